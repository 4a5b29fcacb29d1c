"""One run against another: whether they say anything of each other, and if so what."""

from collections.abc import Sequence

from frontier.analyze.compare import Comparison, compare_all
from frontier.config.models import described
from frontier.errors import MisaskedError
from frontier.model import Limit, Point
from frontier.results import Run


def compare_runs(
    a: Run,
    b: Run,
    *,
    objectives: tuple[str, str] | None = None,
    limits: Sequence[Limit] | None = None,
    within: float | None = None,
) -> tuple[Comparison, ...]:
    """B against A for each shape both measured, on A's objectives and up to A's SLA where nothing else is asked.

    `within` as for `analyze.compare.compare`. MisaskedError where the two say nothing of each other: other workloads,
    other prompts, answers forced to their length on one side only, deployments that cannot be matched.
    """
    axes = objectives or a.config.objectives
    wanted = a.limits() if limits is None else tuple(limits)
    points = a.points(wanted, names=axes), b.points(wanted, names=axes)
    _comparable(a, b, *points)
    found = compare_all(
        *points,
        axes,
        a_samples={at: a.samples(at) for at in a.histories},
        b_samples={at: b.samples(at) for at in b.histories},
        reference=next((limit.promise for limit in wanted if limit.metric == axes[1]), None),
        limits=wanted,
        within=within,
        a_gpus=a.gpus,
        b_gpus=b.gpus,
    )
    if not found:
        names = [", ".join(dict.fromkeys(p.deployment for p in side)) for side in points]
        raise MisaskedError(
            f"no deployment of {a.path} ({names[0]}) is in {b.path} ({names[1]})",
            "give a deployment the same name on both sides, or sweep one on each",
        )
    return found


def _comparable(a: Run, b: Run, a_points: Sequence[Point], b_points: Sequence[Point]) -> None:
    for run, points in ((a, a_points), (b, b_points)):
        if not points:
            raise MisaskedError(f"{run.path} has no finished trial to compare", "go on with its sweep")
    shapes = [dict.fromkeys(p.shape for p in side) for side in (a_points, b_points)]
    if not shapes[0].keys() & shapes[1].keys():
        said = [", ".join(described(shape) for shape in of) for of in shapes]
        raise MisaskedError(
            f"different workloads: {a.path} measured {said[0]} and {b.path} {said[1]}",
            "sweep both with the same shapes; a frontier says nothing of another workload",
        )
    for key, means in (("prompts", "prompts"), ("ignore_eos", "output lengths (ignore_eos)")):
        theirs, ours = getattr(a.config, key), getattr(b.config, key)
        if a.histories and b.histories and theirs != ours:
            raise MisaskedError(
                f"different {means}: {theirs} in {a.path}, {ours} in {b.path}", "sweep both with the same load"
            )
