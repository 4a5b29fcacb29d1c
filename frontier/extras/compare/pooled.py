"""The frontier pooled over several deployments: which deployment owns which part, and why another
owns none.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from frontier.core.claim.pareto import costs, exclusion, nondominated_nd
from frontier.core.claim.verdict import judge
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.groups import by_key
from frontier.core.model.metrics import RATES, Metric, metric, per_gpu
from frontier.core.model.points import Point
from frontier.core.model.shapes import Shape
from frontier.core.model.text import clean_name, middle_cut, short_hash
from frontier.run import Axes, Objectives, Run
from frontier.show.table import Table
from frontier.show.view.json_out import Tree, tree_of
from frontier.show.view.selection import check_axes
from frontier.show.view.wording import limits_text, value_text


@dataclass(frozen=True, slots=True)
class Pooled:
    """The frontier of one shape over several owners; a point names its owner as its deployment. The
    best by the first objective come first.

    - `without`: why an owner has no part of it, by owner.
    - `hidden`: the limits that the settings had to keep.
    - `gpus`: the GPUs of each owner, where rates were compared per GPU.
    - `undivided`: why they were not, where some numbers are known.
    """

    shape: Shape
    objectives: tuple[str, ...]
    hidden: tuple[Limit, ...]
    members: tuple[Point, ...]
    without: Mapping[str, str]
    gpus: Mapping[str, int] = field(default_factory=dict)
    undivided: str = ""


def pooled(
    owned: Sequence[Point],
    objectives: Sequence[str],
    limits: Sequence[Limit] = (),
    gpus: Mapping[str, int | None] = MappingProxyType({}),
) -> list[Pooled]:
    """The pooled frontier of each shape, on two to four metrics.

    The points have their owners as deployments. Rates are compared per GPU where the `gpus` of each
    owner are known. A setting takes part when it has a value of each metric and, with an SLA, is
    proven to keep the limits on the other metrics. Otherwise quality against cost would hide that
    the cheapest is too slow.
    """
    return [
        _of_shape(shape, [point for point in owned if point.shape == shape], objectives, limits, gpus)
        for shape in dict.fromkeys(point.shape for point in owned)
    ]


def _of_shape(
    shape: Shape,
    points: Sequence[Point],
    objectives: Sequence[str],
    limits: Sequence[Limit],
    gpus: Mapping[str, int | None],
) -> Pooled:
    metrics = [metric(name) for name in objectives]
    hidden = tuple(limit for limit in limits if limit.metric not in objectives)
    counts = [(owner, gpus.get(owner)) for owner in dict.fromkeys(point.deployment for point in points)]
    known = {owner: number for owner, number in counts if number}
    by = known if len(known) == len(counts) else {}
    parts = [p for p in points if exclusion(p, metrics) is None and keeps(p, hidden)]
    divided = [_per_gpu(p, metrics, by.get(p.deployment)) for p in parts]
    table = costs(divided, metrics)
    best = sorted(np.flatnonzero(nondominated_nd(table)), key=lambda i: (*table[i], i))
    without = dict(_without(points, divided, [divided[i] for i in best], metrics))
    members = tuple(parts[i] for i in best)
    return Pooled(shape, tuple(objectives), hidden, members, without, by, undivided(counts, objectives))


def _per_gpu(point: Point, metrics: Sequence[Metric], gpus: int | None) -> Point:
    divided = {m.name: point.metrics[m.name].scaled(1, per_gpu(m.name, gpus)) for m in metrics}
    return replace(point, metrics={**point.metrics, **divided})


def undivided(counts: Sequence[tuple[str, int | None]], axes: Sequence[str]) -> str:
    """Why rates are not per GPU: some owners, but not all, state their number of GPUs. '' where all
    do, or none.
    """
    unknown = [name for name, gpus in counts if gpus is None]
    if not unknown or len(unknown) == len(counts) or not any(metric(name).unit in RATES for name in axes):
        return ""
    return f"whole deployments, not per GPU: the number of GPUs is not known of {', '.join(unknown)}"


def keeps(point: Point, limits: Sequence[Limit]) -> bool:
    """Whether a point is proven to keep the limits; the values of an aggregate without intervals
    decide by themselves.
    """
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
            reasons = [exclusion(point, metrics) for point in points if point.deployment == owner]
            yield owner, next((why for why in reasons if why), "no setting is proven to keep the SLA")
        elif not any(point.deployment == owner for point in members):
            yield owner, f"dominated by {' and '.join(dict.fromkeys(above))}"


def _better(point: Point, other: Point, by: Metric) -> bool:
    return by.improves(point.metrics[by.name].value, other.metrics[by.name].value)


def unique_labels(names: Sequence[str], longest: int = 60) -> list[str]:
    """Names from outside, cleaned and cut, each unlike the others. A short hash tells equal cuts
    apart, and a repeated name gets a number.
    """
    cut = [clean_name(name, longest) for name in names]
    several = {short for short in cut if len({n for n, c in zip(names, cut, strict=True) if c == short}) > 1}
    labels: list[str] = []
    for name, short in zip(names, cut, strict=True):
        label = short
        if short in several:
            label = f"{middle_cut(short, longest - 7)}~{short_hash(name, 6)}"
        again = sum(other == name for other in names[: len(labels)])
        labels.append(f"{label} ({again + 1})" if again else label)
    return labels


def base_axes(runs: Sequence[Run], objectives: Objectives, limits: Sequence[Limit]) -> dict[Shape, Axes]:
    """The axes for several runs together: for each shape, those of the first run that measured it,
    and of its first deployment.
    """
    known = (run.axes(objectives, limits).items() for run in runs)
    axes = by_key((series.shape, own) for each in known for series, own in each)
    return {shape: mine[0] for shape, mine in axes.items()}


def pooled_of(runs: Sequence[Run], objectives: Objectives, limits: Sequence[Limit]) -> list[tuple[Table, Tree]]:
    """The frontier of each shape over the deployments of one run or several, as a table and for
    JSON. Its owners are named by run, deployment, or both.
    """
    axes = base_axes(runs, objectives, limits)
    drawn = tuple(dict.fromkeys(itertools.chain(*axes.values())))
    owned: list[Point] = []
    gpus: dict[str, int | None] = {}
    for name, run in zip(unique_labels([run.path.name for run in runs], 200), runs, strict=True):
        points = run.points(limits, names=drawn)
        check_axes(points, drawn, str(run.path))
        several = len({p.deployment for p in points}) > 1
        owner = f"{name} · {{}}" if several else name
        if len(runs) == 1:
            owner = "{}"
        owned += [replace(p, deployment=owner.format(p.deployment)) for p in points]
        gpus |= {owner.format(deployment): number for deployment, number in run.gpus.items()}
    pools = [
        pool for shape in axes for pool in pooled([p for p in owned if p.shape == shape], axes[shape], limits, gpus)
    ]
    return [(_table(pool), _tree(pool)) for pool in pools]


def _table(pool: Pooled) -> Table:
    """The settings on the pooled frontier with their owners, and the owners without one."""
    heads = ("deployment", "concurrency", *(metric(name).label for name in pool.objectives))
    rows = [
        (
            clean_name(p.deployment),
            p.load.label,
            *(value_text(name, p.metrics[name].value, pool.gpus.get(p.deployment)) for name in pool.objectives),
        )
        for p in pool.members
    ]
    rows += [
        (clean_name(owner), f"no part: {why}", *("" for _ in pool.objectives)) for owner, why in pool.without.items()
    ]
    keep = f", settings proven to keep {limits_text(pool.hidden)}" if pool.hidden else ""
    whole = f"; {pool.undivided}" if pool.undivided else ""
    caption = f"Frontier over all deployments, {clean_name(pool.shape.label)}{keep}{whole}"
    return Table.of(heads, rows, caption, right=range(2, len(heads)))


def _tree(pool: Pooled) -> Tree:
    """The owners of the parts of the frontier, for JSON. The metrics are of the whole deployment,
    as everywhere in JSON, also where rates were compared `per_gpu`; its `gpus` stand beside them.
    """
    return {
        "shape": pool.shape.label,
        "objectives": list(pool.objectives),
        "per_gpu": bool(pool.gpus) and any(metric(name).unit in RATES for name in pool.objectives),
        "members": [
            {
                "deployment": p.deployment,
                **p.load.facts,
                "gpus": pool.gpus.get(p.deployment),
                "metrics": {name: tree_of(p.metrics[name]) for name in pool.objectives},
            }
            for p in pool.members
        ],
        "without": dict(pool.without),
    }
