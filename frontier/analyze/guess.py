"""A guess at how far each concurrency is from an SLA: a quiet line through noisy values, to plan by, never to claim."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from frontier.analyze.claims import bulk_name, excess
from frontier.model import Limit, Point

FAR = 3.0
"""An excess (in ln) beyond this says no more than this; it also stands for an infinite one."""
STEEP = 3.0
"""A line that rises faster than this power of concurrency is a cliff."""


def smoothed(points: Mapping[int, Point], limits: tuple[Limit, ...]) -> dict[int, float]:
    """ln of the worst metric over its limit, quieter than measured: to plan by, never to claim.

    A p99 of a few hundred requests is noisy, so half of each comes from the setting's own p90 times what the p99 is of
    the p90 in the middle of all settings. Then it is made non-decreasing in concurrency (isotonic regression, weighted
    by requests): one unlucky value would otherwise send the search an octave down.
    """
    usable = {c: p for c, p in sorted(points.items()) if excess(p, limits) is not None}
    if not usable:
        return {}
    worst = dict.fromkeys(usable, -FAR)
    for limit in limits:
        own = {c: excess(p, (limit,)) for c, p in usable.items()}
        bulk = {c: excess(p, (dataclasses.replace(limit, metric=bulk_name(limit.metric)),)) for c, p in usable.items()}
        apart = {c: x - y for c in usable if (x := own[c]) is not None and (y := bulk[c]) is not None and abs(x) < FAR}
        usual = float(np.median(list(apart.values()))) if apart else 0.0
        for c in usable:
            value = own[c] or 0.0
            if c in apart:
                value -= 0.5 * (apart[c] - usual)
            worst[c] = max(worst[c], min(FAR, value))
    from scipy.optimize import isotonic_regression  # imported by whoever searches, not by whoever looks

    fitted = isotonic_regression(list(worst.values()), weights=[points[c].n for c in worst]).x
    return {c: float(value) for c, value in zip(worst, fitted, strict=True)}


def expected(line: Mapping[int, float], c: int) -> float:
    """Where the line through the data lies at c. A cliff is taken to be half way between its ends."""
    at = sorted(line)
    above = next((a for a in at if a >= c), None)
    below = next((a for a in reversed(at) if a <= c), None)
    if above is None or below is None or above == below:
        nearest = above if above is not None else below
        return FAR if nearest is None else line[nearest]
    span = math.log(above / below)
    share = math.log(c / below) / span
    if (line[above] - line[below]) / span > STEEP:
        return line[above] if share > 0.5 else line[below]
    return line[below] + share * (line[above] - line[below])
