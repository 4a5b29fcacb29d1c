"""Bucket counts: histograms of a server's metrics, joined over engines, and values that fit
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from frontier.extras.workload.observed import ProductionFigure

Floats = NDArray[np.float64]
_GRID = 64
"""Places in a bucket at which its smooth distribution is evaluated."""
_TILTS = 40
"""Halvings that find how far values move within their buckets; the sum then matches within 1e-9."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram: the number of values up to each of the ascending `bounds`, their number in all,
    and their sum.
    """

    bounds: tuple[float, ...]
    at_most: tuple[float, ...]
    count: float
    total: float

    @property
    def beyond(self) -> float:
        """The number of values above every bound, in the bucket +Inf."""
        return max(0.0, self.count - (self.at_most[-1] if self.at_most else 0.0))


def joined(several: Sequence[Buckets]) -> tuple[Buckets, bool]:
    """One histogram of several, and whether their bounds differ. If so, it has the bounds that all
    share, where each count is exact.
    """
    common = set(several[0].bounds).intersection(*(each.bounds for each in several))
    bounds = tuple(sorted(common))
    tables = [dict(zip(each.bounds, each.at_most, strict=True)) for each in several]
    at_most = tuple(sum(table[bound] for table in tables) for bound in bounds)
    whole = Buckets(bounds, at_most, sum(each.count for each in several), sum(each.total for each in several))
    return whole, any(each.bounds != bounds for each in several)


def tail_between(h: Buckets, cap: float | None) -> tuple[float, float]:
    """The range of the mean of the values above every bound, by the sum: each other value is
    somewhere in its bucket.
    """
    edges, shares = _edges(h)
    counts = np.diff(shares) * h.count
    low = max(float(edges[-1]), (h.total - float(counts @ edges[1:])) / h.beyond)
    high = (h.total - float(counts @ edges[:-1])) / h.beyond
    return (low, max(low, high)) if cap is None else (min(low, cap), max(min(high, cap), min(low, cap)))


def filled(h: Buckets, number: int, cap: float | None = None) -> Floats:
    """`number` ascending values that fill the buckets in their shares and have their sum.

    Within the buckets the distribution is smooth (a monotone curve through the counts over the
    logarithm). It is then moved toward the lower or the upper bounds so that the sum fits. Values
    above every bound all lie at the mean that the sum leaves for them, as their spread is not
    known.
    """
    p = (np.arange(number) + 0.5) / number
    within = 1 - h.beyond / h.count
    values = _smooth(h, p)
    inside = p <= within
    target = h.total / h.count * number
    if h.beyond and not inside.all():
        low, high = tail_between(h, cap)
        left = (target - float(values[inside].sum())) / (~inside).sum()
        values[~inside] = np.clip(left, low, high)
        target -= float(values[~inside].sum())
    values[inside] = _moved(h, values[inside], target)
    return values if cap is None else np.minimum(values, cap)


def _edges(h: Buckets) -> tuple[Floats, Floats]:
    """The bounds with the lower end of the first bucket, and the shares of the values up to each,
    without empty buckets at both ends.
    """
    bounds = np.asarray((0.0, *h.bounds))
    shares = np.maximum.accumulate(np.asarray((0.0, *h.at_most)) / h.count)
    first = max(0, int(np.searchsorted(shares, 0.0, side="right")) - 1)
    last = max(first, int(np.searchsorted(shares, shares[-1] - 1e-12)))
    return bounds[first : last + 1], shares[first : last + 1]


def _smooth(h: Buckets, p: Floats) -> Floats:
    """The values at these shares, by a monotone curve through the counts."""
    from scipy.interpolate import PchipInterpolator  # slow to import

    edges, shares = _edges(h)
    if len(edges) < 2:
        return np.full(len(p), float(edges[-1]) or h.total / h.count)
    lowest = edges[0] or edges[1] / 10  # the first bucket begins at 0, which has no logarithm
    logs = np.log(np.maximum(edges, lowest))
    fine = np.concatenate([np.linspace(a, b, _GRID, endpoint=False) for a, b in pairwise(logs)])
    fine = np.append(fine, logs[-1])
    curve = np.maximum.accumulate(PchipInterpolator(logs, shares)(fine))
    return np.asarray(np.exp(np.interp(p, curve, fine)))


def _moved(h: Buckets, values: Floats, target: float) -> Floats:
    """The values, each moved within its bucket, so that their sum comes as near to the target as
    the buckets allow.
    """
    edges, _ = _edges(h)
    if len(edges) < 2 or not len(values):
        return values
    place = np.clip(np.searchsorted(edges, values, side="left"), 1, len(edges) - 1)
    low, width = edges[place - 1], edges[place] - edges[place - 1]
    part = np.clip((values - low) / width, 1e-6, 1.0)
    least, most = -6.0, 6.0
    for _ in range(_TILTS):
        tilt = (least + most) / 2
        too_low = float((low + width * part ** np.exp(tilt)).sum()) < target
        least, most = (least, tilt) if too_low else (tilt, most)
    return np.asarray(low + width * part ** np.exp((least + most) / 2))


def bucket_figures(name: str, h: Buckets) -> dict[str, ProductionFigure]:
    """The p50 and p99 of a histogram, by the metrics' names, each with its bucket. Above every
    bound only the lower side is known.
    """
    found = {}
    for p in (0.5, 0.99) if h.bounds and h.count else ():
        place = int(np.searchsorted(np.asarray(h.at_most) / h.count, p - 1e-12))
        low = h.bounds[place - 1] if place else 0.0
        high = h.bounds[place] if place < len(h.bounds) else None
        value = low if high is None else float(np.clip(_smooth(h, np.asarray([p]))[0], low, high))
        found[f"p{p * 100:g}_{name}"] = ProductionFigure(value, low, high, round(h.count))
    return found
