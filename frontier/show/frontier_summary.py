"""Summary of a frontier: members that may be noise, the knee of its throughput curve, and where
throughput falls again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from frontier.core.claim.pareto import knee
from frontier.core.model.loads import Rate, setting
from frontier.core.model.points import Frontier, Point
from frontier.run import Objectives, Run

SURE = 0.5
"""A member of the frontier in fewer than this share of the draws may be there by noise."""
RETROGRADE = 0.98
"""Throughput has regressed when its upper end is below this much of the best lower end at a lower
concurrency."""
RATE = "output_throughput"


@dataclass(frozen=True, slots=True)
class FrontierSummary:
    """What is to be said of one frontier and of the throughput curve of its series: the `knee` has
    the most throughput per latency, and the settings in `retrograde` surely deliver less than a
    lower one.
    """

    frontier: Frontier
    knee: int | None = None
    retrograde: tuple[int, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The same in sentences."""
        faint = [(c, p) for c in self.frontier.members if (p := self.frontier.probability.get(c, 1.0)) < SURE]
        members = ", ".join(f"{setting(c)} ({p:.0%})" for c, p in faint)
        notes = []
        if faint:
            notes.append(f"On the frontier perhaps by noise alone (in brackets: share of resamples): {members}.")
        if self.knee is not None:
            notes.append(f"Knee: the most throughput per latency is at {setting(self.knee)}.")
        if self.retrograde:
            notes.append(f"Less throughput than at a lower concurrency: c={', '.join(map(str, self.retrograde))}.")
        return tuple(notes)


def summarise(frontier: Frontier, points: Sequence[Point]) -> FrontierSummary:
    """The summary of one frontier; of `points`, the valid ones of its series count. At rates what
    is served follows from what is sent, which says nothing of the server.
    """
    mine = sorted((p for p in points if p.series == frontier.series and p.valid), key=lambda p: p.concurrency)
    usable = [p for p in mine if p.value(RATE) > 0 and not isinstance(p.concurrency, Rate)]
    return FrontierSummary(frontier, knee(usable) if usable else None, retrograde(usable))


def retrograde(points: Sequence[Point]) -> tuple[int, ...]:
    """Of points by ascending concurrency the settings whose throughput is surely below that of a
    lower one.
    """
    regressed: list[int] = []
    best = -math.inf
    for p in points:
        e = p.metrics[RATE]
        if e.high < RETROGRADE * best:
            regressed.append(p.concurrency)
        best = max(best, e.low)
    return tuple(regressed)


def summaries_of(run: Run, points: Sequence[Point], objectives: Objectives = None) -> tuple[FrontierSummary, ...]:
    """The summary of each series of a run: its frontier with its uncertainty, and its curve."""
    frontiers = run.frontiers(points, objectives, run.uncertainties(objectives))
    return tuple(summarise(frontier, points) for frontier in frontiers)
