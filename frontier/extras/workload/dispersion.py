"""Index of dispersion and gaps of arrivals: how much more they come in bursts than those of a
Poisson process do."""

from collections.abc import Sequence

import numpy as np

LEAST_WINDOWS = 10
"""Windows that an index of dispersion is computed of, at the least."""
WINDOWS = (1, 10, 60)
"""Seconds of the windows whose counts are looked at for bursts."""


def _index(counts: np.ndarray) -> float | None:
    """The variance of counts over their mean; None where there are fewer than LEAST_WINDOWS, or
    nothing was counted.
    """
    known = len(counts) >= LEAST_WINDOWS and counts.any()
    return float(counts.var(ddof=1) / counts.mean()) if known else None


def index_of_dispersion(times: Sequence[float], length: float, window: float) -> float | None:
    """The variance of the number of arrivals in windows of so many seconds over its mean: 1 of a
    Poisson process.

    `times` are ascending seconds in 0..length. None where fewer than LEAST_WINDOWS windows fit.
    """
    edges = np.arange(int(length / window) + 1) * window
    return _index(np.diff(np.searchsorted(np.asarray(times), edges)))


def dispersion_of(counts: Sequence[float] | np.ndarray, step: int = 1) -> dict[int, float]:
    """The index of dispersion by window in seconds, from counts of `step` seconds each. Windows
    shorter than a step, or too few for an index, are left out.
    """
    found = {}
    for window in (window for window in WINDOWS if window >= step):
        each = window // step
        whole = np.asarray(counts[: len(counts) // each * each], float)
        found[window] = _index(whole.reshape(-1, each).sum(axis=1))
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
