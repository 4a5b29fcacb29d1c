"""Comparison of two frontiers of one shape, B against A: what the contest shows, and whether a
token is as much text on both sides.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from frontier.core.difference import ORDER, ComparisonVerdict
from frontier.core.shapes import Shape
from frontier.extras.compare.contest import Contest, Gpus, Outcome, Rules, Side, divides, judged
from frontier.extras.compare.gate import Gate


@dataclass(frozen=True, slots=True)
class Comparison:
    """B against A for one shape.

    Where the sides have different numbers of GPUs, and both are known, all of it is per GPU.
    `characters_per_token` is how long the answers' tokens are, None where the requests of a side
    are not known. `remarks` are of the runs, in words.
    """

    contest: Contest
    outcome: Outcome
    remarks: tuple[str, ...] = ()
    characters_per_token: tuple[float | None, float | None] = (None, None)

    @property
    def shape(self) -> Shape:
        """The workload of both."""
        return self.contest.sides[0].points[0].shape

    @property
    def deployments(self) -> tuple[str, str]:
        """The deployment of each side."""
        a, b = (side.points[0].deployment for side in self.contest.sides)
        return a, b

    @property
    def verdict(self) -> ComparisonVerdict:
        """What it shows."""
        return self.outcome.verdict

    @property
    def gpus(self) -> Gpus:
        """How many GPUs each side has."""
        a, b = (side.gpus for side in self.contest.sides)
        return a, b

    @property
    def per_gpu(self) -> bool:
        """Rates were divided by each side's own GPUs, as these differ."""
        return divides(self.contest.rules.objectives, self.gpus)


def compare(a: Side, b: Side, rules: Rules) -> Comparison:
    """B against A, each of one deployment and both of the same shape. Of sides with different
    numbers of GPUs rates are compared per GPU.
    """
    contest = Contest((a, b), rules)
    characters = _characters_per_token(a), _characters_per_token(b)
    return Comparison(contest, judged(contest), characters_per_token=characters)


def _characters_per_token(side: Side) -> float | None:
    """Of the answers of a side whose tokens were counted; None where the requests, or their text,
    are not known.
    """
    counted = [(s, s.ok & ~np.isnan(s.completion_tokens)) for s in side.samples.values()]
    characters = sum(int(s.text_chars[ok].sum()) for s, ok in counted)
    tokens = sum(float(s.completion_tokens[ok].sum()) for s, ok in counted)
    return characters / tokens if characters and tokens else None


def overall(judged: Sequence[Comparison | Gate]) -> ComparisonVerdict:
    """The worst of all shapes; "invalid" when nothing could be compared."""
    return max((one.verdict for one in judged), key=ORDER.index, default="invalid")
