"""Gaps of the frontier: where it is least known between two measured settings."""

import itertools
import math
from collections.abc import Mapping

from frontier.core.claim.pareto import knee
from frontier.core.claim.proof import violation
from frontier.core.model.decisions import Limit
from frontier.core.model.loads import Load
from frontier.core.model.points import Point

NARROW = 0.10
"""Neighbours whose throughputs (in ln) or concurrencies differ by less need no setting between
them."""
IMPORTANT = 3.0
"""Weight of a gap that straddles the SLA's limit or touches the knee."""


def widest_gap(points: Mapping[Load, Point], limits: tuple[Limit, ...]) -> tuple[Load, Load] | None:
    """The neighbours whose throughputs differ most, weighted where it matters; None when all are
    close enough.

    Between two neighbours the frontier lies between their throughputs, so these are its bracket. A
    gap is passed over where its middle was measured already (and was not valid).
    """
    throughputs = {c: p.value("output_throughput") for c, p in points.items() if p.valid}
    measured = sorted(c for c, rate in throughputs.items() if rate > 0)
    bend = knee([points[c] for c in measured])
    widest: tuple[float, Load, Load] | None = None
    for low, high in itertools.pairwise(measured):
        rise = abs(math.log(throughputs[high] / throughputs[low]))
        if high - low <= 1 or (high - low) / high <= NARROW or rise <= NARROW or between(low, high) in points:
            continue
        a, b = violation(points[low], limits), violation(points[high], limits)
        crossing = bool(limits) and a is not None and b is not None and (a <= 0) != (b <= 0)
        width = rise * (IMPORTANT if crossing or bend in (low, high) else 1.0)
        if widest is None or width > widest[0]:
            widest = (width, low, high)
    return None if widest is None else widest[1:]


def between(low: Load, high: Load) -> Load:
    """The geometric mean, strictly between the two; a load of the same kind."""
    return type(low)(min(high - 1, max(low + 1, round(math.sqrt(low * high)))))
