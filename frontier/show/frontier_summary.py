"""Summary of a frontier in sentences: which of its members noise may have made, and where and why
its throughput ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frontier import registry
from frontier.core.loads import setting
from frontier.core.points import Frontier, Point
from frontier.run import Objectives, Run

SURE = 0.5
"""A member of the frontier in fewer than this share of the draws may be there by noise."""
CAPACITY_FIELDS = ("knee", "retrograde", "limit", "onset")
"""What JSON has of the capacity of a series; null where nothing is known of it."""


@dataclass(frozen=True, slots=True)
class FrontierSummary:
    """What is to be said of one frontier, and what is known of the capacity of its series."""

    frontier: Frontier
    notes: tuple[str, ...] = ()
    capacity: Mapping[str, Any] = field(default_factory=dict)


def summarise(frontier: Frontier, points: Sequence[Point]) -> FrontierSummary:
    """The summary of one frontier; of `points`, those of its series count."""
    faint = [(c, p) for c in frontier.members if (p := frontier.probability.get(c, 1.0)) < SURE]
    members = ", ".join(f"{setting(c)} ({p:.0%})" for c, p in faint)
    notes = [f"On the frontier perhaps by noise alone (in brackets: share of resamples): {members}."] if faint else []
    capacity_of = registry.optional(registry.CAPACITY)
    capacity = capacity_of and capacity_of([p for p in points if p.series == frontier.series])
    facts = {name: getattr(capacity, name, None) for name in CAPACITY_FIELDS}
    return FrontierSummary(frontier, (*notes, *(capacity.notes if capacity else ())), facts)


def summaries_of(run: Run, points: Sequence[Point], objectives: Objectives = None) -> tuple[FrontierSummary, ...]:
    """The summary of each series of a run: its frontier with its uncertainty, and its capacity."""
    frontiers = run.frontiers(points, objectives, run.uncertainties(objectives))
    return tuple(summarise(frontier, points) for frontier in frontiers)
