"""The most background beside a shape that is proven to keep its SLA.

Each amount of the background is a series of its own, proven at 95% like any other. The amounts are
tested in ascending order, and the first that is not proven ends the test. Such a fixed sequence
names an amount that breaks the SLA with a chance of at most 5% over all amounts together, whether
or not latency rises with the background (Maurer, Hothorn and Lehmacher 1995).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from frontier.core.claim.pareto import nondominated
from frontier.core.model.decisions import Decision, Verdict
from frontier.core.model.shapes import Shape

RATE = "background_throughput"


@dataclass(frozen=True, slots=True)
class MostBackground:
    """The amounts of the background of one deployment, ascending: `streams` of requests of `shape`
    in flight, and what was decided beside each of them. `missing` is the next amount, of which
    nothing was measured; None where there is none.
    """

    deployment: str
    shape: Shape
    streams: tuple[int, ...]
    decisions: tuple[Decision, ...]
    missing: int | None = None

    @property
    def proven(self) -> tuple[Decision, ...]:
        """The decisions of the amounts up to the most one; empty where not even the least one is
        proven.
        """
        return tuple(takewhile(lambda decision: decision.load is not None, self.decisions))

    @property
    def most(self) -> int | None:
        """The most of the background; None where not even the least amount is proven."""
        return self.streams[len(self.proven) - 1] if self.proven else None

    @property
    def chosen(self) -> Decision:
        """The decision that is the answer: beside the most background, else beside the least."""
        return self.proven[-1] if self.proven else self.decisions[0]

    @property
    def ends(self) -> tuple[int, Decision] | None:
        """The first amount that is not proven, and its decision; None where all are."""
        place = len(self.proven)
        return (self.streams[place], self.decisions[place]) if place < len(self.streams) else None

    @property
    def deciding(self) -> Decision:
        """The decision that says how a command ends: the answer; where no background at all is
        proven, that of the first amount that is not decided.
        """
        return self.ends[1] if not self.most and self.ends is not None and is_open(self.ends[1]) else self.chosen

    def frontier(self, latency: str) -> tuple[int, ...]:
        """The amounts that no other beats in both the background's throughput and this latency."""
        of = [d.metrics if d.verdict is not Verdict.INVALID else {} for d in self.decisions]
        pairs = [(metrics.get(RATE), metrics.get(latency)) for metrics in of]
        known = [
            (amount, rate.value, value.value)
            for amount, (rate, value) in zip(self.streams, pairs, strict=True)
            if rate is not None and value is not None and math.isfinite(value.value)
        ]
        amounts, rates, latencies = zip(*known, strict=True) if known else ((), (), ())
        members = nondominated(rates, latencies)
        return tuple(amount for amount, member in zip(amounts, members, strict=True) if member)


def most_background(decisions: Sequence[Decision], shapes: Sequence[Shape]) -> tuple[MostBackground, ...]:
    """The most background of each deployment; none where nothing was beside a shape. `shapes` are
    those of the config: an amount that was not measured ends the sequence too.
    """
    beside = [shape for shape in shapes if shape.background is not None]
    by_deployment = ([d for d in decisions if d.deployment == name] for name in {d.deployment: None for d in decisions})
    found = (_of_deployment({d.shape: d for d in mine}, beside) for mine in by_deployment)
    return tuple(each for each in found if each is not None)


def _of_deployment(decisions: Mapping[Shape, Decision], beside: Sequence[Shape]) -> MostBackground | None:
    """The most background by the decisions of one deployment; None where the least amount was not
    measured.
    """
    known, amounts = [], [b.streams for shape in beside if (b := shape.background) is not None]
    for shape in beside:
        if shape not in decisions:
            break
        known.append(decisions[shape])
    if not known or (background := known[0].shape.background) is None:
        return None
    missing = next(iter(amounts[len(known) :]), None)
    return MostBackground(known[0].deployment, background.shape, tuple(amounts[: len(known)]), tuple(known), missing)


def is_open(decision: Decision) -> bool:
    """Whether it was not decided that a shape keeps, or breaks, its SLA."""
    return decision.load is None and decision.verdict is not Verdict.VIOLATES
