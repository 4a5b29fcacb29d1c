"""A window in requests somebody else sent: where the load was what it should be, ramp and drain outside.

The requests that count are those sent in the window. It begins when every stream has finished its first request, and
ends so early that each of them ended while the load was still held: a drain would make the last ones too fast.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from frontier.model import Record, Window

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


HELD = 0.95
"""The load is held while at least this share of the concurrency is in flight."""


def concurrency_of(records: Sequence[Record]) -> tuple[int, bool]:
    """How many were in flight: the level held longest, and whether it was held (else their mean over time)."""
    _, levels, seconds = _levels(records)
    if not len(seconds) or seconds.sum() <= 0:
        return max(1, len(records)), False
    at = np.bincount(levels, weights=seconds)
    most = int(at.argmax())
    if most and at[most] >= 0.5 * float(seconds.sum()):
        return most, True
    return max(1, round(float((levels * seconds).sum() / seconds.sum()))), False


def window_of(records: Sequence[Record], concurrency: int) -> Window | None:
    """The part of a closed loop that counts; None when there is none, as in a run of few waves."""
    if len(records) <= concurrency:
        return None
    sends, ends = np.array([r.sent for r in records]), np.array([r.end for r in records])
    order = np.argsort(sends, kind="stable")
    start = float(ends[order[:concurrency]].max())
    held = _held_until(records, concurrency)
    # The latest send such that it and all before it had ended while the load was held.
    done = np.maximum.accumulate(ends[order])
    fit = sends[order][(done <= held) & (sends[order] >= start)]
    return Window(start, float(fit[-1])) if len(fit) and fit[-1] > start else None


def _levels(records: Sequence[Record]) -> tuple[Floats, Ints, Floats]:
    """Requests in flight as a step function: times, the level from each on, and how long it lasts."""
    steps = sorted([(r.sent, 1) for r in records] + [(r.end, -1) for r in records])
    times = np.array([t for t, _ in steps], dtype=np.float64)
    levels = np.cumsum([s for _, s in steps], dtype=np.int64)
    return times[:-1], levels[:-1], np.diff(times)


def _held_until(records: Sequence[Record], concurrency: int) -> float:
    """When the load was last as high as it should be."""
    times, levels, seconds = _levels(records)
    high = np.flatnonzero((levels >= HELD * concurrency) & (seconds > 0))
    return float(times[high[-1]] + seconds[high[-1]]) if len(high) else -np.inf
