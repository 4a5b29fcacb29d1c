"""Where a frontier is least known: between which two measured settings the next one belongs."""

import itertools
import math
from collections.abc import Mapping

from frontier.analyze.capacity import knee
from frontier.analyze.claims import excess
from frontier.model import Limit, Point

NARROW = 0.10
"""Neighbours whose throughputs (in ln) or concurrencies differ by less need no setting between them."""
IMPORTANT = 3.0
"""Weight of a gap that straddles the SLA's limit or touches the knee."""


def widest_gap(points: Mapping[int, Point], limits: tuple[Limit, ...]) -> tuple[int, int] | None:
    """The neighbours whose throughputs differ most, weighted where it matters; None when all are close enough.

    Between neighbours the frontier is known to lie between their throughputs and no closer, so this is its bracket.
    A gap whose middle was measured already (and was not valid) is passed over.
    """
    rates = {
        c: p.metrics["output_throughput"].value
        for c, p in points.items()
        if p.valid and "output_throughput" in p.metrics
    }
    at = sorted(c for c, rate in rates.items() if rate > 0)
    bend = knee([points[c] for c in at])
    best: tuple[float, int, int] | None = None
    for low, high in itertools.pairwise(at):
        rise = abs(math.log(rates[high] / rates[low]))
        if high - low <= 1 or (high - low) / high <= NARROW or rise <= NARROW or between(low, high) in points:
            continue
        a, b = excess(points[low], limits), excess(points[high], limits)
        crossing = bool(limits) and a is not None and b is not None and (a <= 0) != (b <= 0)
        width = rise * (IMPORTANT if crossing or bend in (low, high) else 1.0)
        if best is None or width > best[0]:
            best = (width, low, high)
    return None if best is None else best[1:]


def between(low: int, high: int) -> int:
    """The geometric mean, strictly between."""
    return min(high - 1, max(low + 1, round(math.sqrt(low * high))))
