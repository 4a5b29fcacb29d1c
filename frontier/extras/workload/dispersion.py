"""Index of dispersion and gaps of arrivals: how much more they come in bursts than those of a
Poisson process do."""

from collections.abc import Sequence

import numpy as np

LEAST_WINDOWS = 10
"""Windows that an index of dispersion is computed of, at the least."""


def index_of_dispersion(times: Sequence[float], length: float, window: float) -> float | None:
    """The variance of the number of arrivals in windows of so many seconds over its mean: 1 of a
    Poisson process.

    `times` are ascending seconds in 0..length. None where fewer than LEAST_WINDOWS windows fit.
    """
    windows = int(length / window)
    if windows < LEAST_WINDOWS:
        return None
    counts = np.diff(np.searchsorted(np.asarray(times), np.arange(windows + 1) * window))
    mean = float(counts.mean())
    return float(counts.var(ddof=1)) / mean if mean > 0 else None


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
