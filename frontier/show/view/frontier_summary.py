"""Summary of a frontier: members that may be noise, the knee of its throughput curve, and where
throughput falls again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from frontier.core.claim.pareto import knee
from frontier.core.model.loads import Load
from frontier.core.model.points import Frontier, Point
from frontier.run import Objectives, Run

SURE = 0.5
"""The share of draws below which a member of the frontier may be there by noise."""
RETROGRADE = 0.98
"""Throughput has regressed when its upper end is below this share of the best lower end at a lower
concurrency."""
RATE = "output_throughput"


@dataclass(frozen=True, slots=True)
class FrontierSummary:
    """The summary of one frontier and of its series' throughput curve. The `knee` has the most
    throughput per latency; the settings in `retrograde` surely deliver less than a lower one.
    """

    frontier: Frontier
    knee: Load | None = None
    retrograde: tuple[Load, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The same in sentences."""
        faint = [(c, p) for c in self.frontier.members if (p := self.frontier.probability.get(c, 1.0)) < SURE]
        members = ", ".join(f"{c.label} ({p:.0%})" for c, p in faint)
        notes = []
        if faint:
            notes.append(f"On the frontier perhaps by noise alone (in brackets: share of resamples): {members}.")
        if self.knee is not None:
            notes.append(f"Knee (best ratio of throughput to latency): {self.knee.label}.")
        if self.retrograde:
            notes.append(f"Less throughput than at a lower concurrency: c={', '.join(map(str, self.retrograde))}.")
        return tuple(notes)


def summarise(frontier: Frontier, points: Sequence[Point]) -> FrontierSummary:
    """The summary of one frontier; only the valid points of its series count. At rates it has no
    knee and no regression: the throughput there follows from what is sent, and says nothing of the
    server.
    """
    mine = sorted((p for p in points if p.series == frontier.series and p.valid), key=lambda p: p.load)
    usable = [p for p in mine if p.value(RATE) > 0 and not p.load.is_open]
    return FrontierSummary(frontier, knee(usable) if usable else None, retrograde(usable))


def retrograde(points: Sequence[Point]) -> tuple[Load, ...]:
    """The settings whose throughput is surely below that of a lower setting; `points` ascend by
    concurrency.
    """
    regressed: list[Load] = []
    best = -math.inf
    for p in points:
        e = p.metrics[RATE]
        if e.high < RETROGRADE * best:
            regressed.append(p.load)
        best = max(best, e.low)
    return tuple(regressed)


def summaries_of(run: Run, points: Sequence[Point], objectives: Objectives = None) -> tuple[FrontierSummary, ...]:
    """The summary of each series of a run: its frontier with its uncertainty, and its curve."""
    frontiers = run.frontiers(points, objectives, run.uncertainties(objectives))
    return tuple(summarise(frontier, points) for frontier in frontiers)
