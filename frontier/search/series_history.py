"""Series history: the finished trials of one series under one SLA, and what follows from them.

Each result is worked out once: a search replays its whole history at every step.
"""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from frontier.core.claim import solver
from frontier.core.claim.changes import PROOFS, History, Unchanged, unchanged
from frontier.core.claim.claimed import claim_points
from frontier.core.claim.proof import Candidate, candidates, joined, pilot_point, violation
from frontier.core.claim.verdict import judge
from frontier.core.model.decisions import Decision, Limit, Verdict
from frontier.core.model.loads import Load
from frontier.core.model.points import Point
from frontier.core.model.trials import Phase
from frontier.core.window.window import WindowData


@dataclass(frozen=True, eq=False)
class SeriesHistory:
    """A series under one SLA, and what follows from its trials.

    `every` is each finished trial, in the order in which they ended. Without limits nothing is
    decided.
    """

    limits: tuple[Limit, ...]
    every: History

    @classmethod
    def of(cls, limits: Sequence[Limit], history: History) -> "SeriesHistory":
        """The series history of these trials; the same object for the same trials."""
        return _remembered(tuple(limits), tuple(history))

    @cached_property
    def kept(self) -> Unchanged:
        """The trials of the server as it is now."""
        return unchanged(self.every, self.limits)

    @cached_property
    def points(self) -> Mapping[Load, Point]:
        """The points for planning, by concurrency, each from all trials of its setting."""
        return {c: pilot_point(sample, self.limits) for c, sample in joined(self.kept, tuple(Phase)).items()}

    @cached_property
    def candidates(self) -> list[Candidate]:
        """The settings that were, or are being, proven, in the order in which they were begun."""
        return candidates(self.kept, self.limits)

    @cached_property
    def claims(self) -> tuple[Point, ...]:
        """The points of the settings that support a claim."""
        return claim_points(self.kept, self.limits, names=("output_throughput", *(x.metric for x in self.limits)))

    @cached_property
    def by_claims(self) -> Decision | None:
        """The decision by what may be claimed so far; None where nothing may."""
        return solver.solve(self.claims, self.limits) if self.claims else None

    @property
    def operating_point(self) -> Load | None:
        """The operating point by what may be claimed so far; None where there is none."""
        return None if self.by_claims is None else self.by_claims.load

    @cached_property
    def _looked_at(self) -> tuple[list[Point], list[Point]]:
        """The settings that were only looked at: those that violate a limit, and the others."""
        claimed = {point.load for point in self.claims}
        others = [point for c, point in self.points.items() if c not in claimed]
        violating = [point for point in others if judge(point, self.limits).verdict is Verdict.VIOLATES]
        return violating, [point for point in others if point not in violating]

    @cached_property
    def _by_violations(self) -> Decision | None:
        """The decision by the claims and by what violates a limit; None where there is neither."""
        points = [*self.claims, *self._looked_at[0]]
        return solver.solve(points, self.limits) if points else None

    @cached_property
    def decision(self) -> Decision | None:
        """The decision as an answer has it, settings that were only looked at included; None where
        nothing may be claimed of any setting.
        """
        return self.decide(marginal_gain=True)

    def decide(self, *, marginal_gain: bool) -> Decision | None:
        """`decision`, or without `marginal_gain` the decision that takes the most throughput."""
        violating, looked = self._looked_at
        points = [*self.claims, *violating]
        if not points:
            return None
        return solver.solve(points, self.limits, marginal_gain=marginal_gain, scanned=looked, history=self.kept)

    @property
    def unconfirmed(self) -> tuple[Load, ...]:
        """The settings whose violation in one trial does not count yet (see
        `Decision.unconfirmed`).
        """
        return self._by_violations.unconfirmed if self._by_violations is not None else ()

    def stands(self, c: Load) -> Verdict:
        """MEETS: proven below every violation; VIOLATES: not, and more of a proof decides nothing;
        else UNPROVEN.
        """
        decision = self._by_violations
        if decision is None:
            return Verdict.UNPROVEN
        judged = decision.judgement(c)
        if decision.first_fail is not None and decision.first_fail <= c:
            return Verdict.VIOLATES
        if judged is not None and judged.verdict is Verdict.MEETS:
            return Verdict.MEETS
        ended = any(k.load == c and k.verdict is not Verdict.UNPROVEN for k in self.candidates)
        return Verdict.VIOLATES if ended else Verdict.UNPROVEN

    def before(self, c: Load) -> tuple[Candidate, ...]:
        """The candidates begun before one."""
        return tuple(itertools.takewhile(lambda k: k.load != c, self.candidates))

    def begun(self, c: Load) -> int:
        """How many windows of a setting's proof are measured."""
        return sum((t.phase, t.load) == (Phase.PROVE, c) for t, _ in self.kept)

    def edge(self) -> Load | None:
        """The highest setting whose values are within the SLA."""
        inside = [c for c, p in self.points.items() if (x := violation(p, self.limits)) is not None and x <= 0]
        return max(inside, default=None)

    def gain(self, c: Load) -> float:
        """The expected throughput at a setting over that of the operating point, less 1; 1 without
        an operating point.

        It is interpolated on straight lines in the logarithm of concurrency; beyond the measured
        settings it is that of the nearest.
        """
        rates = {
            k: p.metrics["output_throughput"].value for k, p in self.points.items() if "output_throughput" in p.metrics
        }
        point = self.operating_point
        if point is None or not rates.get(point, 0.0) > 0:
            return 1.0
        known = sorted(rates)
        return float(np.interp(math.log(c), np.log(known), [rates[k] for k in known])) / rates[point] - 1


@functools.lru_cache(maxsize=64)
def _remembered(limits: tuple[Limit, ...], history: History) -> SeriesHistory:
    return SeriesHistory(limits, history)


def scans(history: History) -> dict[Load, WindowData]:
    """The data from before any proof, by concurrency; all data where there are none from before."""
    return joined(history, tuple(p for p in Phase if p not in (*PROOFS, Phase.VISIT))) or joined(history, tuple(Phase))


def nearest(samples: Mapping[Load, WindowData], c: Load) -> WindowData:
    """The data of the setting nearest to c; the lower one of two."""
    return samples[min(samples, key=lambda k: (abs(math.log(k / c)), k))]
