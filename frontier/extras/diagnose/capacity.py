"""Capacity: the knee of a throughput curve, its regression, queueing or thrashing.

All of it annotates; nothing of it decides.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from frontier.core.loads import Rate, setting
from frontier.core.pareto import knee
from frontier.core.points import Point

RATE = "output_throughput"


RETROGRADE = 0.98
"""Throughput has regressed when its upper end is below this much of the best lower end at a lower
concurrency."""


JUMP = 1.5
"""A tail that rises by this factor from one setting to the next has jumped."""


STEADY_TPOT = 1.15
"""Factor on TPOT from one setting to the next below which decoding is as it was."""


FLAT = 0.02
"""Share by which throughput may differ from one setting to the next and is flat."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the throughput curve of one (deployment, shape) shows. None: not shown by these points.

    `knee` has the most throughput per latency. `retrograde` are the settings that surely deliver
    less than a lower one. `limit` names what happens from `onset` on: thrashing (throughput falls
    and latency jumps: preemption, recomputation) or queueing (throughput is flat, only the time to
    first token rises: an admission cap).
    """

    knee: int | None = None
    retrograde: tuple[int, ...] = ()
    limit: Literal["thrashing", "queueing"] | None = None
    onset: int | None = None

    @property
    def notes(self) -> list[str]:
        """Where and why the throughput curve ends, as sentences."""
        lines: list[str] = []
        if self.knee is not None:
            lines.append(f"Knee: the most throughput per latency is at {setting(self.knee)}.")
        if self.limit == "queueing":
            lines.append(
                f"Queueing from c={self.onset} on: throughput is flat and only the first token waits, as behind an "
                "admission cap (max_num_seqs)."
            )
        if self.limit == "thrashing":
            lines.append(
                f"Thrashing from c={self.onset} on: throughput falls and latency jumps, as when requests are preempted "
                "and computed again (KV memory)."
            )
        elif self.retrograde:
            lines.append(f"Less throughput than at a lower concurrency: c={', '.join(map(str, self.retrograde))}.")
        return lines


def capacity(points: Sequence[Point]) -> Capacity:
    """Everything `Capacity` says, from the valid points of one (deployment, shape) that have an
    output throughput.
    """
    usable = sorted((p for p in points if p.valid and p.value(RATE) > 0), key=lambda p: p.concurrency)
    if not usable or isinstance(usable[0].concurrency, Rate):  # what is served follows from what is sent
        return Capacity()
    limit, onset = _limit(usable)
    return Capacity(knee=knee(usable), retrograde=retrograde(usable), limit=limit, onset=onset)


def retrograde(points: Sequence[Point]) -> tuple[int, ...]:
    """The settings whose throughput is surely below that of a lower concurrency."""
    regressed: list[int] = []
    best = -math.inf
    for p in sorted((p for p in points if p.valid and RATE in p.metrics), key=lambda p: p.concurrency):
        e = p.metrics[RATE]
        if e.high < RETROGRADE * best:
            regressed.append(p.concurrency)
        best = max(best, e.low)
    return tuple(regressed)


def _limit(points: Sequence[Point]) -> tuple[Literal["thrashing", "queueing"] | None, int | None]:
    regressed = retrograde(points)
    for before, here in itertools.pairwise(points):
        if here.concurrency in regressed and max(_rise(before, here, "p99_itl"), _rise(before, here, "p99_e2e")) > JUMP:
            return "thrashing", here.concurrency
        flat = abs(here.value(RATE) / before.value(RATE) - 1) <= FLAT
        ttft = max(_rise(before, here, "p50_ttft"), _rise(before, here, "p99_ttft"))
        tpot = _rise(before, here, "p50_tpot")
        if flat and ttft > JUMP and tpot < STEADY_TPOT:
            return "queueing", here.concurrency
    return None, None


def _rise(before: Point, here: Point, name: str) -> float:
    """By what factor a metric rose; 0, which is no rise, when either is not known."""
    a, b = before.value(name), here.value(name)
    return b / a if a > 0 and b > 0 else 0.0
