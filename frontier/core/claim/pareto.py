"""The Pareto frontier: the exact set of non-dominated settings, and the knee of a throughput curve.

It also says why other settings are not on it. Exact means float against float, without an epsilon:
noise is a separate, named layer (`uncertainty`). Copies of a non-dominated point are all kept.
Points without finite coordinates never enter; they are excluded by name and reason.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from frontier.core.model.loads import Load
from frontier.core.model.metrics import Metric, metric
from frontier.core.model.points import FLAG_WORDS, Frontier, Point
from frontier.core.window.window import Bools


def nondominated(maximise: ArrayLike, minimise: ArrayLike) -> Bools:
    """Mask of the points no other point beats: at least as good on both axes and better on one.

    O(n log n): sort by the minimised axis, then one pass over groups of equal values. Equal points
    are all kept. ValueError for NaN or infinity (they have no place in an order of operating
    points) and for unequal lengths.
    """
    high, low = _finite(maximise), _finite(minimise)
    if high.ndim != 1 or high.shape != low.shape:
        raise ValueError(f"two equally long rows of numbers are needed, not shapes {high.shape} and {low.shape}")
    if high.size == 0:
        return np.zeros(0, dtype=np.bool_)
    order = np.argsort(low)
    by_low, by_high = low[order], high[order]
    new_group = np.empty(order.size, dtype=np.bool_)
    new_group[0] = True
    np.not_equal(by_low[1:], by_low[:-1], out=new_group[1:])
    starts = np.flatnonzero(new_group)
    best_in_group = np.maximum.reduceat(by_high, starts)
    best_before = np.concatenate(([-np.inf], np.maximum.accumulate(best_in_group)[:-1]))
    # A group whose best does not beat every cheaper group has no member; elsewhere its copies of
    # the best are members.
    bar = np.where(best_in_group > best_before, best_in_group, np.inf)
    mask = np.zeros(order.size, dtype=np.bool_)
    mask[order] = by_high == np.repeat(bar, np.diff(starts, append=order.size))
    return mask


def nondominated_nd(costs: ArrayLike) -> Bools:
    """The same for any number of objectives: `costs` is (n, d), and lower is better in each column.

    Points are taken in lexicographic order, in which none is dominated by a later one, and compared
    with the members found so far: O(n * members). ValueError for NaN, infinity, and what is no
    table.
    """
    table = _finite(costs)
    if table.ndim != 2 or not table.shape[1]:
        raise ValueError(f"a row for each point and a column for each objective are needed, not shape {table.shape}")
    unique, inverse = np.unique(table, axis=0, return_inverse=True)
    members, count = np.empty_like(unique), 0
    kept = np.zeros(len(unique), dtype=np.bool_)
    for i, row in enumerate(unique):
        # All rows differ, so a member that is nowhere worse is somewhere better.
        if not (members[:count] <= row).all(axis=1).any():
            members[count] = row
            count += 1
            kept[i] = True
    return np.take(kept, inverse.reshape(-1))


def frontier(points: Sequence[Point], objectives: tuple[str, ...]) -> Frontier:
    """The non-dominated settings of one (deployment, shape), and why each of the others is not
    among them.

    `objectives` are two metrics or more; which way is better comes from the metric. A point that is
    invalid, or whose value is missing or not finite, or a rate at which the backlog grew, is
    excluded with the reason: it neither joins nor dominates. ValueError when points of several
    deployments or shapes are mixed, when a concurrency comes twice, or when there is no point at
    all.
    """
    metrics = [metric(name) for name in objectives]
    by_c = by_concurrency(points)
    excluded = {c: why for c, p in by_c.items() if (why := exclusion(p, metrics)) is not None}
    usable = [p for c, p in by_c.items() if c not in excluded]
    table = costs(usable, metrics)
    mask = nondominated(-table[:, 0], table[:, 1]) if len(metrics) == 2 else nondominated_nd(table)
    return Frontier(
        deployment=points[0].deployment,
        shape=points[0].shape,
        objectives=objectives,
        members=tuple(p.load for p, member in zip(usable, mask, strict=True) if member),
        dominated=tuple(p.load for p, member in zip(usable, mask, strict=True) if not member),
        excluded=excluded,
    )


def costs(points: Sequence[Point], metrics: Sequence[Metric]) -> NDArray[np.float64]:
    """The metrics of each point, turned so that lower is better."""
    return np.array([[-m.sign * p.metrics[m.name].value for m in metrics] for p in points]).reshape(-1, len(metrics))


def by_concurrency(points: Sequence[Point]) -> dict[Load, Point]:
    """The points of one series by concurrency, ascending.

    ValueError for no points, for mixed deployments or shapes, or for a concurrency that comes
    twice.
    """
    if not points:
        raise ValueError("at least one point is needed")
    if any(p.series != points[0].series for p in points):
        raise ValueError("points of one deployment and one shape are needed: group them first (series.by_series)")
    by_c = {p.load: p for p in sorted(points, key=lambda p: p.load)}
    if len(by_c) != len(points):
        raise ValueError("a concurrency comes twice: join its trials into one point first")
    return by_c


def exclusion(point: Point, objectives: Sequence[Metric]) -> str | None:
    """Why a point has no place on a frontier of these metrics; None when it has one."""
    if not point.valid:
        return "invalid: " + ", ".join(FLAG_WORDS.get(flag.name, flag.name) for flag in point.fatal)
    if point.overloaded:
        return "more arrived than was served, so latency grew for as long as it lasted"
    for m in objectives:
        if math.isnan(point.value(m.name)):
            return f"{m.name} was not measured"
        if math.isinf(point.value(m.name)):
            return f"{m.name} is infinite: too many requests failed"
    return None


def _finite(numbers: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(numbers, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError("NaN and infinity cannot be compared: exclude such points, with the reason, first")
    return array


def knee(points: Sequence[Point]) -> Load | None:
    """The concurrency of most throughput per latency (Kleinrock's power): an annotation.

    Curvature methods (kneed) move with the grid and the axis, this moves with the grid only;
    neither decides anything.
    """
    power = {
        p.load: p.value("request_throughput") / p.value("mean_e2e")
        for p in points
        if p.valid and p.value("mean_e2e") > 0 and p.value("request_throughput") > 0
    }
    return max(power, key=lambda c: (power[c], -c)) if len(power) > 1 else None
