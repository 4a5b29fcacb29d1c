"""Summary of one series' frontier: how certain its members are, its area, and where capacity ends."""

from collections.abc import Sequence
from dataclasses import dataclass

from frontier.decide.capacity import Capacity, capacity
from frontier.decide.sentences import capacity_notes
from frontier.metrics import metric
from frontier.model import Estimate, Frontier, Point, setting
from frontier.units import format_number

SURE = 0.5
"""A member of the frontier in fewer than this share of the draws may be there by noise."""


@dataclass(frozen=True, slots=True)
class FrontierSummary:
    """`area` under the frontier counts up to `reference` = (least gain, worst price), in the metrics' own units."""

    frontier: Frontier
    capacity: Capacity
    area: Estimate | None = None
    reference: tuple[float, float] | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for a reader."""
        return (*self._frontier_notes(), *capacity_notes(self.capacity))

    def _frontier_notes(self) -> list[str]:
        notes = []
        faint = [(c, p) for c in self.frontier.members if (p := self.frontier.probability.get(c, 1.0)) < SURE]
        if faint:
            members = ", ".join(f"{setting(c)} ({p:.0%})" for c, p in faint)
            notes.append(f"On the frontier perhaps by noise alone (in brackets: share of resamples): {members}.")
        if self.area is not None and self.reference is not None:
            second = metric(self.frontier.objectives[1])
            notes.append(
                f"Area under the frontier up to {second.label} {second.format(self.reference[1])}: "
                f"{format_number(self.area.value)} [{format_number(self.area.low)}, {format_number(self.area.high)}], "
                "to compare runs by."
            )
        return notes


def summarise(
    frontier: Frontier,
    points: Sequence[Point],
    area: Estimate | None = None,
    reference: tuple[float, float] | None = None,
) -> FrontierSummary:
    """The summary of one frontier; of `points`, those of its series count."""
    mine = [p for p in points if p.series == frontier.series]
    return FrontierSummary(frontier, capacity(mine), area, reference)
