"""Index of dispersion and gaps of arrivals: how much burstier they are than a Poisson process."""

from collections.abc import Sequence

import numpy as np

LEAST_WINDOWS = 10
"""Fewest windows for an index of dispersion."""
WINDOWS = (1, 10, 60)
"""The window lengths, in seconds, in which bursts are looked for."""


BLOCK = 300
"""Seconds of a block. A rate that changes more slowly is another rate, not a burst."""


def _index(counts: np.ndarray, block: int | None = None) -> float | None:
    """The variance of counts over their mean, within blocks of `block` counts. None with fewer than
    LEAST_WINDOWS counts, or where all are 0.
    """
    if len(counts) < LEAST_WINDOWS or not counts.any():
        return None
    starts = np.arange(0, len(counts), block or len(counts))
    sizes = np.diff([*starts, len(counts)])
    around = counts - np.repeat(np.add.reduceat(counts, starts) / sizes, sizes)
    return float(around @ around / (len(counts) - len(starts)) / counts.mean())


def index_of_dispersion(times: Sequence[float], length: float, window: float) -> float | None:
    """The variance over the mean of the number of arrivals in windows of `window` seconds; 1 for a
    Poisson process.

    `times` are ascending seconds in 0..length. None where fewer than LEAST_WINDOWS windows fit.
    """
    edges = np.arange(int(length / window) + 1) * window
    return _index(np.diff(np.searchsorted(np.asarray(times), edges)))


def dispersion_of(counts: Sequence[float] | np.ndarray, step: int = 1) -> dict[int, float]:
    """The index of dispersion by window in seconds, within blocks of five minutes, from counts of
    `step` seconds each. Windows shorter than a step, or too few for an index, are left out.
    """
    found = {}
    for window in (window for window in WINDOWS if window >= step):
        each = window // step
        whole = np.asarray(counts[: len(counts) // each * each], float)
        found[window] = _index(whole.reshape(-1, each).sum(axis=1), BLOCK // window)
    return {window: index for window, index in found.items() if index is not None}


def dispersion_by_count(times: Sequence[float], length: float) -> tuple[float, ...]:
    """The index in windows with 1, 2, 4, ... arrivals on average, as long as there are enough
    windows.
    """
    indices: list[float] = []
    while (index := index_of_dispersion(times, length, 2 ** len(indices) * length / len(times))) is not None:
        indices.append(index)
    return tuple(indices)


def gap_cv(times: Sequence[float]) -> float:
    """The coefficient of variation of the gaps between arrivals; 1 for a Poisson process."""
    gaps = np.diff(np.asarray(times))
    return float(gaps.std(ddof=1) / gaps.mean())
