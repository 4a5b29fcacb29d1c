"""One run against another: whether they say anything of each other, and if so what."""

from collections.abc import Sequence

from frontier.config.schema import described
from frontier.decide.compare import Comparison, compare_all
from frontier.decide.wording import clean, clean_name
from frontier.errors import UsageError
from frontier.model import Limit, Point
from frontier.plot.selection import narrowed
from frontier.report.notebook import PRE, WIDE
from frontier.run import Run
from frontier.text import suggestion


class Comparisons(tuple[Comparison, ...]):
    """Comparisons, one per shape: a tuple that shows itself as `frontier compare` prints it."""

    def __str__(self) -> str:
        from frontier.report.comparison import comparison_table

        return comparison_table(self, width=WIDE)

    def _repr_html_(self) -> str:
        from markupsafe import escape

        return PRE.format(escape(str(self)))


def compare_runs(
    a: Run,
    b: Run | None = None,
    *,
    deployments: Sequence[str] = (),
    objectives: tuple[str, str] | None = None,
    limits: Sequence[Limit] | None = None,
    within: float | None = None,
) -> Comparisons:
    """B against A for each shape both measured, on A's objectives and up to A's SLA where nothing else is asked.

    Of one run, `deployments` names two: the second against the first. `within` as for `analyze.compare.compare`.
    UsageError where the two say nothing of each other: other workloads, other prompts, answers forced to their
    length on one side only, deployments that cannot be matched.
    """
    if b is None:
        one, other = two_deployments(a, deployments)
        a, b = narrowed(a, (one,)), narrowed(a, (other,))
    elif deployments:
        raise UsageError("two runs were given, and deployments", "name two deployments of one run, or two runs")
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
        raise UsageError(
            f"no deployment of {a.path} ({names[0]}) is in {b.path} ({names[1]})",
            "give a deployment the same name on both sides, or sweep one on each",
        )
    return Comparisons(found)


def two_deployments(run: Run, named: Sequence[str]) -> tuple[str, str]:
    """The two deployments of `run` that are named, in that order. UsageError for anything but two of its own."""
    measured = [deployment for deployment, _ in run.histories] + [p.deployment for p in run.imported]
    known = list(dict.fromkeys(measured))
    planned = [d.name for d in run.config.deployments if d.name not in known]
    there = ", ".join(clean_name(name) for name in known[:8]) + (f" and {len(known) - 8} more" if known[8:] else "")
    if len(known) + len(planned) < 2:
        what = f"{run.path} holds one deployment: there is nothing to compare it with"
        raise UsageError(what, "name a second run")
    for name in named:
        if name in planned:
            raise UsageError(f"{name} has no finished trial in {run.path} to compare", "go on with its sweep")
        if name not in known:
            hint = clean(suggestion(name, known), 400)
            raise UsageError(f"no deployment of {run.path} is called {clean(name, 80)!r}", hint)
    if len(named) != 2 or named[0] == named[1]:
        number = len(set(named)) or "none"
        raise UsageError(
            f"of one run two deployments are compared, and {number} {'was' if number in (1, 'none') else 'were'} named",
            f"frontier compare {run.path} --deployment A --deployment B,  B against A; it has {there}",
        )
    return named[0], named[1]


def _comparable(a: Run, b: Run, a_points: Sequence[Point], b_points: Sequence[Point]) -> None:
    for run, points in ((a, a_points), (b, b_points)):
        if not points:
            raise UsageError(f"{run.path} has no finished trial to compare", "go on with its sweep")
    shapes = [dict.fromkeys(p.shape for p in side) for side in (a_points, b_points)]
    if not shapes[0].keys() & shapes[1].keys():
        said = [", ".join(described(shape) for shape in of) for of in shapes]
        raise UsageError(
            f"different workloads: {a.path} measured {said[0]} and {b.path} {said[1]}",
            "sweep both with the same shapes; a frontier says nothing of another workload",
        )
    for key, means in (("prompts", "prompts"), ("ignore_eos", "output lengths (ignore_eos)")):
        theirs, ours = getattr(a.config, key), getattr(b.config, key)
        if a.histories and b.histories and theirs != ours:
            raise UsageError(
                f"different {means}: {theirs} in {a.path}, {ours} in {b.path}", "sweep both with the same load"
            )
