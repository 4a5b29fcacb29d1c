"""A log histogram of durations: counts per bin, where a bin is a fixed ratio wide.

Quantiles are off by at most ALPHA relative, at any percentile, from one microsecond upwards.
Merging is the addition of counts, so the order of the merges and the number of workers cannot
change a result (a t-digest's can). The bins are those of DDSketch (Masson, Rim, Lee: "DDSketch",
VLDB 2019).
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

ALPHA = 0.001
"""Guaranteed relative error of a quantile."""
X0 = 1e-6
"""Seconds: durations below this one share the lowest bin. Stamps are in microseconds, so nothing is
lost."""

_GAMMA = (1 + ALPHA) / (1 - ALPHA)
_LN_GAMMA = math.log(_GAMMA)
TOP = math.ceil(math.log(1e6 / X0) / _LN_GAMMA) + 2
"""The last bin: everything above a million seconds, and +inf."""
_NONE = np.zeros(0, dtype=np.int64)


def bin_indices(seconds: ArrayLike) -> NDArray[np.int64]:
    """The bin of each duration: 0 below X0, else i with X0 g^(i-2) < x <= X0 g^(i-1), the last one
    holding +inf too.

    ValueError for NaN and negatives.
    """
    x = np.asarray(seconds, dtype=np.float64)
    if x.size and not x.min() >= 0:  # the negation also catches NaN
        raise ValueError("a duration is a number of seconds, 0 or more")
    raised = np.log(np.maximum(x, X0 / 2) * (1 / X0))
    raised *= 1 / _LN_GAMMA
    # A value that is a bin's edge but for rounding stays in it: without the slack X0 itself could
    # go either way.
    indices: NDArray[np.int64] = np.clip(np.ceil(raised - 1e-9) + 1, 0, TOP).astype(np.int64)
    return indices


def bin_values(indices: NDArray[np.int64]) -> NDArray[np.float64]:
    """The duration that stands for each bin: within ALPHA of everything in it; 0 for the lowest,
    +inf for the last.
    """
    values: NDArray[np.float64] = 2 * X0 / (_GAMMA + 1) * np.exp((indices - 1) * _LN_GAMMA)
    values[indices <= 0] = 0.0
    values[indices >= TOP] = math.inf
    return values


class LogHistogram:
    """Counts of durations per bin, sparse and never changed once made.

    `total` is the exact sum of the durations in seconds, which a mean needs and bins cannot give.
    """

    __slots__ = ("_counts", "_cumulative", "_indices", "total")

    def __init__(self, indices: NDArray[np.int64] = _NONE, counts: NDArray[np.int64] = _NONE, total: float = 0.0):
        """From distinct ascending bin numbers and their counts; `of` and `merged` are what callers
        want.
        """
        keep = counts > 0
        self._indices = indices if keep.all() else indices[keep]
        self._counts = counts if keep.all() else counts[keep]
        self._cumulative = self._counts.cumsum()
        self.total = total

    @classmethod
    def of(cls, seconds: ArrayLike) -> "LogHistogram":
        """The histogram of these durations, in seconds."""
        x = np.asarray(seconds, dtype=np.float64).ravel()
        return cls.from_bins(np.bincount(bin_indices(x)), float(x.sum()))

    @classmethod
    def from_bins(cls, dense: NDArray[np.int64], total: float) -> "LogHistogram":
        """From one count per bin, starting at bin 0, and the sum of the durations."""
        indices = np.flatnonzero(dense)
        return cls(indices, np.asarray(dense[indices], dtype=np.int64), total)

    @classmethod
    def merged(cls, parts: Iterable["LogHistogram"]) -> "LogHistogram":
        """All of them together; exactly the histogram of all their durations, in whatever order
        they come.
        """
        filled = [part for part in parts if part.count]
        if not filled:
            return cls()
        dense = np.zeros(1 + max(int(part._indices[-1]) for part in filled), dtype=np.int64)
        for part in filled:
            dense[part._indices] += part._counts
        return cls.from_bins(dense, math.fsum(part.total for part in filled))

    @staticmethod
    def dense(parts: Sequence["LogHistogram"]) -> NDArray[np.int64]:
        """One row per part, one column per bin from bin 0 to the highest in use."""
        table = np.zeros((len(parts), 1 + max(int(part._indices.max(initial=0)) for part in parts)), dtype=np.int64)
        for row, part in zip(table, parts, strict=True):
            row[part._indices] = part._counts
        return table

    def __eq__(self, other: object) -> bool:
        """Same counts in the same bins. (The sums, being floats, may differ in the last digit.)"""
        if not isinstance(other, LogHistogram):
            return NotImplemented
        return np.array_equal(self._indices, other._indices) and np.array_equal(self._counts, other._counts)

    def __hash__(self) -> int:
        return hash((self._indices.tobytes(), self._counts.tobytes()))

    @property
    def count(self) -> int:
        """How many durations."""
        return int(self._cumulative[-1]) if len(self._cumulative) else 0

    def quantile(self, p: float) -> float:
        """The ceil(p * count)-th smallest duration within ALPHA ("inverted_cdf"); NaN when
        empty.
        """
        return self.order_stat(math.ceil(p * self.count - 1e-9))

    def order_stat(self, rank: int) -> float:
        """The rank-th smallest duration (1 = the smallest; clipped to 1..count) within ALPHA; NaN
        when empty.
        """
        if not self.count:
            return math.nan
        position = int(np.searchsorted(self._cumulative, min(max(rank, 1), self.count)))
        return float(bin_values(self._indices[position : position + 1])[0])

    @staticmethod
    def counts_above(parts: Iterable["LogHistogram"], x: float) -> list[int]:
        """How many durations of each part are in a bin above that of `x` seconds: exact where `x`
        is a bin's value.
        """
        bin_of_x = int(bin_indices([x])[0])
        counts = []
        for part in parts:
            bins_up_to_x = int(part._indices.searchsorted(bin_of_x, side="right"))
            counts.append(part.count - (int(part._cumulative[bins_up_to_x - 1]) if bins_up_to_x else 0))
        return counts

    def fraction_above(self, x: float) -> float:
        """`counts_above` as a share; NaN when empty."""
        return LogHistogram.counts_above((self,), x)[0] / self.count if self.count else math.nan

    @staticmethod
    def flat(parts: Sequence["LogHistogram"]) -> dict[str, NDArray[Any]]:
        """Arrays for a file: how many bins each part has, all their bins and counts end to end, and
        the sums.
        """
        return {
            "sizes": np.array([len(part._indices) for part in parts], np.int64),
            "bins": np.concatenate([part._indices for part in parts]),
            "counts": np.concatenate([part._counts for part in parts]),
            "totals": np.array([part.total for part in parts], np.float64),
        }

    @classmethod
    def of_flat(
        cls, sizes: NDArray[np.int64], bins: NDArray[np.int64], counts: NDArray[np.int64], totals: NDArray[np.float64]
    ) -> tuple["LogHistogram", ...]:
        """The parts that `flat` made arrays of."""
        ends = sizes.cumsum()[:-1]
        parts = zip(np.split(bins, ends), np.split(counts, ends), totals.tolist(), strict=True)
        return tuple(cls(*part) for part in parts)
