"""The frontier over several deployments: which of them owns which part of it, and why another has none.

Dominance is exact, on two to four metrics. A setting takes part when it has a value of each and, where there is an SLA,
is proven to keep the limits on other metrics: quality against cost would not show that the cheapest is too slow.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frontier.decide import pareto
from frontier.decide.verdict import judge
from frontier.metrics import Metric, metric
from frontier.model import Limit, Point, Shape, Verdict


@dataclass(frozen=True, slots=True)
class Pooled:
    """The frontier of one shape over several owners; a point names its owner as its deployment. The best by the first
    objective come first. `without` says of each owner that has no part of it why; `hidden` are the limits that the
    settings had to keep.
    """

    shape: Shape
    objectives: tuple[str, ...]
    hidden: tuple[Limit, ...]
    members: tuple[Point, ...]
    without: Mapping[str, str]


def pooled(owned: Sequence[Point], objectives: Sequence[str], limits: Sequence[Limit] = ()) -> list[Pooled]:
    """The pooled frontier of each shape. The points have their owners as deployments."""
    metrics = [metric(name) for name in objectives]
    hidden = tuple(limit for limit in limits if limit.metric not in objectives)
    pools = []
    for shape in dict.fromkeys(point.shape for point in owned):
        points = [point for point in owned if point.shape == shape]
        parts = [p for p in points if pareto.exclusion(p, metrics) is None and keeps(p, hidden)]
        costs = [[-m.sign * p.metrics[m.name].value for m in metrics] for p in parts]
        mask = pareto.nondominated_nd(np.array(costs).reshape(-1, len(metrics)), ["lower"] * len(metrics))
        kept = [(cost, i) for i, (cost, member) in enumerate(zip(costs, mask, strict=True)) if member]
        members = [parts[i] for _, i in sorted(kept)]
        without = dict(_without(points, parts, members, metrics))
        pools.append(Pooled(shape, tuple(objectives), hidden, tuple(members), without))
    return pools


def keeps(point: Point, limits: Sequence[Limit]) -> bool:
    """Whether it is proven to keep the limits; an aggregate without intervals goes by its values."""
    estimates = [point.metrics[limit.metric] for limit in limits if limit.metric in point.metrics]
    known = any(estimate.has_interval or estimate.has_bound for estimate in estimates)
    return not limits or judge(point, limits, point_estimates=not known).verdict is Verdict.MEETS


def _without(
    points: Sequence[Point], parts: Sequence[Point], members: Sequence[Point], metrics: Sequence[Metric]
) -> Iterator[tuple[str, str]]:
    """Each owner without a part, and why."""
    for owner in dict.fromkeys(point.deployment for point in points):
        mine = [point for point in parts if point.deployment == owner]
        above = [m.deployment for m in members for p in mine if not any(_better(p, m, each) for each in metrics)]
        if not mine:
            reasons = [pareto.exclusion(point, metrics) for point in points if point.deployment == owner]
            yield owner, next((why for why in reasons if why), "no setting is proven to keep the SLA")
        elif not any(point.deployment == owner for point in members):
            yield owner, f"dominated by {' and '.join(dict.fromkeys(above))}"


def _better(point: Point, other: Point, by: Metric) -> bool:
    return by.improves(point.metrics[by.name].value, other.metrics[by.name].value)
