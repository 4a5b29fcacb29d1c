"""The settings of `concurrency: auto`: where the scan ends, and which settings the frontier has.
Pure, as the search.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from frontier.core.claim.changes import History
from frontier.core.model.loads import Concurrency, Load, doublings
from frontier.core.model.points import Point

MOST = 4_096
"""The highest concurrency that is tried where the deployment states no slots."""
GROWTH = 0.05
"""The scan ends where throughput surely grows by less than this share."""
LOOKS_AT_MOST = 2
"""A look that came out invalid is taken once more."""
SETTINGS, NEAR = 8, 5
"""Settings of the frontier before its gaps are filled, and how many of these lie next to the edge.
"""


def no_more_throughput(points: Mapping[Load, Point]) -> bool:
    """Whether the highest setting surely gives no more throughput than the best below it, or
    less.
    """
    rates = {c: e for c, p in points.items() if p.valid and (e := p.metrics.get("output_throughput")) is not None}
    if len(rates) < 2:
        return False
    last = rates.pop(max(rates))
    return last.high < (1 + GROWTH) * max(e.value for e in rates.values())


def reachable(
    grid: Iterable[Load], points: Mapping[Load, Point], looks: Mapping[Load, int], unseen: Iterable[Load]
) -> list[Load]:
    """The settings that may still be looked at: below any that could not be measured, and no higher
    once throughput no longer grows.
    """
    lowest = min((c for c in grid if c not in points and looks.get(c, 0) >= LOOKS_AT_MOST), default=math.inf)
    most = max(points, default=0) if no_more_throughput(points) else math.inf
    return [c for c in unseen if c < lowest and c <= most]


def next_higher(grid: Sequence[Load], points: Mapping[Load, Point], history: History) -> Load | None:
    """The next doubling to look at without an SLA: until throughput no longer grows."""
    valid = {c: point for c, point in points.items() if point.valid}
    looks = Counter(trial.load for trial, _ in history)
    unseen = (c for c in grid if c > max(valid, default=0) and looks[c] < LOOKS_AT_MOST)
    return next(iter(reachable(grid, valid, looks, unseen)), None)


def bend(points: Mapping[Load, Point]) -> Load:
    """The lowest setting that gives nearly the most throughput: without an SLA the edge."""
    rates = {c: p.value("output_throughput") for c, p in points.items() if p.valid}
    most = max(rates.values(), default=0.0)
    return min((c for c, rate in rates.items() if rate * (1 + GROWTH) >= most), default=Concurrency(1))


def around(edge: Load, top: Load) -> tuple[Load, ...]:
    """The settings of a frontier whose operating point is near `edge`: close together there, and
    below them in equal ratios from 1 up.

    They are doublings and the middles between these. So they stay the same when the edge moves a
    little, and coincide with scanned settings.

    >>> around(50, 4096)
    (1, 3, 8, 24, 32, 48, 64, 96)
    >>> around(2, 4096), around(20, 20)
    ((1, 2, 3, 4, 6, 8, 12, 16), (1, 2, 3, 6, 8, 12, 16, 20))
    """
    steps = [c for low in doublings(1, top) for c in (low, low + low // 2) if c <= top and low & (low - 1) == 0]
    ladder = sorted(map(Concurrency, {*steps, top}))
    place = max(i for i, c in enumerate(ladder) if c <= edge)
    first = min(place - NEAR // 2, len(ladder) - NEAR)
    gaps = SETTINGS - NEAR
    if first <= gaps:
        return tuple(ladder[:SETTINGS])
    spread = (min(ladder, key=lambda c: abs(math.log(c) - math.log(ladder[first]) * i / gaps)) for i in range(gaps))
    return (*spread, *ladder[first : first + NEAR])
