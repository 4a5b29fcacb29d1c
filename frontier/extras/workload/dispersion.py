"""Index of dispersion and gaps of arrivals: how much burstier they are than a Poisson process."""

from collections.abc import Sequence

import numpy as np

LEAST_WINDOWS = 10
"""Windows that an index of dispersion is computed of, at the least."""
WINDOWS = (1, 10, 60)
"""Seconds of the windows whose counts are looked at for bursts."""


BLOCK = 300
"""Seconds of a block: a rate that moves more slowly is another rate, and no burst."""


def _index(counts: np.ndarray, block: int | None = None) -> float | None:
    """The variance of counts over their mean, within blocks of so many; None where there are fewer
    than LEAST_WINDOWS, or nothing was counted.
    """
    if len(counts) < LEAST_WINDOWS or not counts.any():
        return None
    starts = np.arange(0, len(counts), block or len(counts))
    sizes = np.diff([*starts, len(counts)])
    around = counts - np.repeat(np.add.reduceat(counts, starts) / sizes, sizes)
    return float(around @ around / (len(counts) - len(starts)) / counts.mean())


def index_of_dispersion(times: Sequence[float], length: float, window: float) -> float | None:
    """The variance of the number of arrivals in windows of so many seconds over its mean: 1 of a
    Poisson process.

    `times` are ascending seconds in 0..length. None where fewer than LEAST_WINDOWS windows fit.
    """
    edges = np.arange(int(length / window) + 1) * window
    return _index(np.diff(np.searchsorted(np.asarray(times), edges)))


def dispersion_of(counts: Sequence[float] | np.ndarray, step: int = 1) -> dict[int, float]:
    """The index of dispersion within blocks of five minutes by window in seconds, from counts of
    `step` seconds each. Windows shorter than a step, or too few for an index, are left out.
    """
    found = {}
    for window in (window for window in WINDOWS if window >= step):
        each = window // step
        whole = np.asarray(counts[: len(counts) // each * each], float)
        found[window] = _index(whole.reshape(-1, each).sum(axis=1), BLOCK // window)
    return {window: index for window, index in found.items() if index is not None}


def dispersion_by_count(times: Sequence[float], length: float) -> tuple[float, ...]:
    """The index in windows with 1, 2, 4, ... arrivals on average, as far as there are enough of
    them.
    """
    indices: list[float] = []
    while (index := index_of_dispersion(times, length, 2 ** len(indices) * length / len(times))) is not None:
        indices.append(index)
    return tuple(indices)


def gap_cv(times: Sequence[float]) -> float:
    """The coefficient of variation of the gaps between arrivals: 1 of a Poisson process."""
    gaps = np.diff(np.asarray(times))
    return float(gaps.std(ddof=1) / gaps.mean())
