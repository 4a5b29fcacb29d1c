"""The most background beside a shape that is proven to keep its SLA.

Each amount of the background is a series of its own, proven at 95% like any other. The amounts are
tested in ascending order, and the first that is not proven ends the test. Such a fixed sequence
names an amount that breaks the SLA with a chance of at most 5% over all amounts together, whether
or not latency rises with the background (Maurer, Hothorn and Lehmacher 1995).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from frontier.core.model.decisions import Decision, Verdict
from frontier.core.model.points import Estimate
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
        return tuple(takewhile(lambda decision: decision.concurrency is not None, self.decisions))

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
    def rates(self) -> tuple[Estimate | None, ...]:
        """The output throughput of the background at each amount; None where it is not known."""
        return tuple(decision.metrics.get(RATE) for decision in self.decisions)


def most_background(decisions: Sequence[Decision], shapes: Sequence[Shape]) -> tuple[MostBackground, ...]:
    """The most background of each deployment; none where nothing was beside a shape. `shapes` are
    those of the config: an amount that was not measured ends the sequence too.
    """
    found, beside = [], [(b, shape) for shape in shapes if (b := shape.background) is not None]
    for deployment in dict.fromkeys(d.deployment for d in decisions):
        mine = {d.shape: d for d in decisions if d.deployment == deployment}
        missed = next((i for i, (_, shape) in enumerate(beside) if shape not in mine), len(beside))
        known = beside[:missed]
        if known:
            missing = beside[missed][0].streams if missed < len(beside) else None
            streams, decided = tuple(b.streams for b, _ in known), tuple(mine[shape] for _, shape in known)
            found.append(MostBackground(deployment, known[0][0].shape, streams, decided, missing))
    return tuple(found)


def is_open(decision: Decision) -> bool:
    """Whether it was not decided that a shape keeps, or breaks, its SLA."""
    return decision.concurrency is None and decision.verdict is not Verdict.VIOLATES
