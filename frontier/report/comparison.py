"""Comparisons of two frontiers: `compare_runs` makes them; their table and JSON (the answer of
`frontier compare`)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.text import Text

from frontier.config.shapes import described
from frontier.decide.compare import (
    Comparison,
    Gain,
    Names,
    Rules,
    Side,
    compare_all,
    gpus_note,
    names_of,
    overall,
    ratio_text,
    until_text,
)
from frontier.errors import UsageError
from frontier.metrics import RATES, metric
from frontier.model import Limit, Point, Series
from frontier.plot.data import View
from frontier.plot.multi_run import Group, title_of
from frontier.plot.selection import narrowed, samples_of
from frontier.report.json_out import Tree, tree_of
from frontier.report.notebook import WIDE, as_html
from frontier.report.tables import indented, text_grid, to_text
from frontier.run import Run
from frontier.show.wording import clean, clean_name
from frontier.text import suggestion

COMPARE_SCHEMA = "frontier.compare/1"
MOST_CHANGES = 6
Settings = Mapping[str, Mapping[str, str]]
"""What the servers told of themselves, by deployment."""
STYLES = {"better": "green", "no worse": "green", "not resolved": "yellow", "worse": "red", "invalid": "red"}


class Comparisons(tuple[Comparison, ...]):
    """Comparisons, one per shape: a tuple that shows itself as `frontier compare` prints it."""

    def __str__(self) -> str:
        return comparison_table(self, width=WIDE)

    def _repr_html_(self) -> str:
        return as_html(str(self))


def compare_runs(
    a: Run,
    b: Run | None = None,
    *,
    deployments: Sequence[str] = (),
    objectives: tuple[str, str] | None = None,
    limits: Sequence[Limit] | None = None,
    within: float | None = None,
    names: Names | None = None,
) -> Comparisons:
    """B against A for each shape that both measured, on A's objectives and up to A's SLA unless
    others are given.

    Of one run, `deployments` names two: the second against the first. `within` as for
    `decide.compare.Rules`; `names` is what the sides are called where it is said which of them is
    proven inside the SLA. UsageError where the two cannot be compared: other workloads, other
    prompts, answers forced to their length on one side only, deployments that cannot be matched.
    """
    if b is None:
        one, other = two_deployments(a, deployments)
        a, b = narrowed(a, (one,)), narrowed(a, (other,))
    elif deployments:
        raise UsageError("two runs were given, and deployments", "name two deployments of one run, or two runs")
    axes = objectives or a.config.objectives
    wanted = a.limits() if limits is None else tuple(limits)
    points = a.points(wanted, names=axes), b.points(wanted, names=axes)
    comparable(a, b, *points)
    reference = next((limit.promise for limit in wanted if limit.metric == axes[1]), None)
    rules = Rules(axes, reference, limits=wanted, within=within)
    comparisons = compare_all(_side(a, points[0]), _side(b, points[1]), rules)
    if not comparisons:
        named = [", ".join(dict.fromkeys(p.deployment for p in side)) for side in points]
        raise UsageError(
            f"no deployment of {a.path} ({named[0]}) is in {b.path} ({named[1]})",
            "give a deployment the same name on both sides, or sweep one on each",
        )
    noted = []
    for c in comparisons:
        changed = changed_settings(a.server_settings, c.a, b.server_settings, c.b)
        noted.append(replace(c, notes=(*c.notes, *no_characters(c, a, b), *changed)))
    return Comparisons(_with_proven(noted, (a, b), points, wanted, names))


def no_characters(comparison: Comparison, a: Run, b: Run) -> list[str]:
    """That nothing tells whether two models cut text into tokens alike."""
    sides, known = ((a, comparison.a), (b, comparison.b)), comparison.characters_per_token
    models = [d.model for run, name in sides for d in run.config.deployments if d.name == name]
    lacking = [str(run.path) for (run, _), characters in zip(sides, known, strict=True) if not characters]
    if not lacking or len(set(models)) < 2:
        return []
    return [f"Other models may cut text into other tokens: {' and '.join(lacking)} holds no text lengths to tell."]


def changed_settings(a: Settings, of_a: str, b: Settings, of_b: str) -> list[str]:
    """What the servers told differently of their own settings; nothing where one of them told
    nothing.
    """
    before, after = a.get(of_a, {}), b.get(of_b, {})
    if not before or not after:
        return []
    changes = [
        f"{name} {before.get(name, 'not told')} → {after.get(name, 'not told')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
    more = f" and {len(changes) - MOST_CHANGES} more" if len(changes) > MOST_CHANGES else ""
    return [f"The servers tell other settings: {', '.join(changes[:MOST_CHANGES])}{more}."] if changes else []


def _with_proven(
    comparisons: Sequence[Comparison],
    runs: tuple[Run, Run],
    points: tuple[Sequence[Point], Sequence[Point]],
    limits: tuple[Limit, ...],
    names: Names | None,
) -> list[Comparison]:
    """The comparisons, each with who carries the most inside the SLA: the areas are of all points,
    proven or not, so that the better frontier may be one of which nothing is proven.
    """
    if not limits or not all(run.histories for run in runs):
        return list(comparisons)
    decisions = [{d.series: d for d in run.solve(limits)} for run in runs]
    noted = []
    for comparison in comparisons:
        views = []
        for run, side, decided, deployment in zip(runs, points, decisions, (comparison.a, comparison.b), strict=True):
            series = Series(deployment, comparison.shape)
            mine = [point for point in side if point.series == series]
            (frontier,) = run.frontiers(mine, comparison.objectives)
            gpus = run.gpus.get(deployment) if comparison.per_gpu else None
            views.append(View(mine, frontier, decided.get(series), limits, None, gpus))
        sentence = title_of([Group(names_of(comparison, names), tuple(views))])
        noted.append(replace(comparison, proven=f"{sentence}."))
    return noted


def _side(run: Run, points: Sequence[Point]) -> Side:
    return Side(points, samples_of(run), run.gpus)


def two_deployments(run: Run, named: Sequence[str]) -> tuple[str, str]:
    """The two deployments of `run` that are named, in that order. UsageError for anything but two
    of its own.
    """
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


def comparable(a: Run, b: Run, a_points: Sequence[Point], b_points: Sequence[Point]) -> None:
    for run, points in ((a, a_points), (b, b_points)):
        if not points:
            raise UsageError(f"{run.path} has no finished trial to compare", "go on with its sweep")
    shapes = [dict.fromkeys(p.shape for p in side) for side in (a_points, b_points)]
    if not shapes[0].keys() & shapes[1].keys():
        measured = [", ".join(described(shape) for shape in side) for side in shapes]
        raise UsageError(
            f"different workloads: {a.path} measured {measured[0]} and {b.path} {measured[1]}",
            "sweep both with the same shapes; a frontier of one workload predicts nothing about another",
        )
    for key, means in (("prompts", "prompts"), ("ignore_eos", "output lengths (ignore_eos)")):
        theirs, ours = getattr(a.config, key), getattr(b.config, key)
        if a.histories and b.histories and theirs != ours:
            raise UsageError(
                f"different {means}: {theirs} in {a.path}, {ours} in {b.path}", "sweep both with the same load"
            )


# --- as a table and as JSON


def _notes(comparison: Comparison, names: Names | None) -> list[str]:
    """How GPUs count, the notes of the comparison, and what is missing on either side."""
    per_gpu = gpus_note(comparison, names)
    absent = [
        f"Not compared of {name}: {'; '.join(reasons)}."
        for name, reasons in zip(names_of(comparison, names), comparison.absent, strict=True)
        if reasons
    ]
    return [*([per_gpu] if per_gpu else []), *comparison.notes, *absent]


def comparison_table(
    comparisons: Sequence[Comparison], *, names: Names | None = None, width: int = 80, colour: bool = False
) -> str:
    """Each shape's verdict, the ratio of the areas, and the gain at equal latency as a bracket."""
    blocks = []
    several = len({comparison.a for comparison in comparisons}) > 1
    for comparison in comparisons:
        a, b = names_of(comparison, names)
        per = " per GPU" if comparison.per_gpu else ""
        head = Text.assemble(
            (comparison.verdict, f"bold {STYLES[comparison.verdict]}"),
            "   ",
            (f"{b} against {a}", "bold"),
            per,
            f"   {_workload(comparison, several)}",
        )
        rows = []
        if comparison.verdict != "invalid":
            rows.append((f"area up to {until_text(comparison)}", ratio_text(comparison.ratio)))
        rate, latency = (metric(name) for name in comparison.objectives)
        for gain in comparison.gains:
            label = rate.label + (per if rate.unit in RATES else "")
            rows.append((f"{label} at {latency.label} {latency.format_trimmed(gain.at)}", _gain_text(gain)))
        lines: list[RenderableType] = [
            *([Text(comparison.proven)] if comparison.proven else []),
            *([text_grid(rows)] if rows else []),
            *(Text(clean(note, 400), style="dim") for note in _notes(comparison, names)),
        ]
        blocks.append(to_text(head, *map(indented, lines), width=width, colour=colour))
    return "\n\n".join(blocks) or "nothing to compare"


def _workload(comparison: Comparison, several: bool) -> str:
    """The shape, after the deployment where several are compared each with its namesake."""
    shape = clean_name(comparison.shape.label)
    return f"{clean_name(comparison.a, 60)} · {shape}" if several and comparison.a == comparison.b else shape


def _gain_text(gain: Gain) -> str:
    """The bracket of a gain: 'between 1.08× and 1.2×'."""
    if gain.low > 0 and math.isfinite(gain.high):
        between = f"between {gain.low:.3g}× and {gain.high:.3g}×"
    elif gain.low > 0:
        between = f"at least {gain.low:.3g}×"
    elif math.isfinite(gain.high):
        between = f"at most {gain.high:.3g}×"
    else:
        between = "not known: too few settings around that latency"
    return between if gain.interpolated is None else f"{between}   (by straight lines {ratio_text(gain.interpolated)})"


def comparisons_json(comparisons: Sequence[Comparison], names: Names | None = None) -> Tree:
    """The answer of `frontier compare --json`: the worst verdict, and one entry per shape."""
    return {
        "schema": COMPARE_SCHEMA,
        "verdict": overall(comparisons),
        "shapes": [_tree(comparison, names) for comparison in comparisons],
    }


def _tree(comparison: Comparison, names: Names | None) -> Tree:
    """One comparison."""
    a, b = names_of(comparison, names)
    tree: Tree = tree_of(comparison)
    del tree["absent"]  # said in the notes
    return {
        **tree,
        "a": a,
        "b": b,
        "deployments": [comparison.a, comparison.b],
        "gains": [{**tree_of(gain), "resolved": gain.resolved} for gain in comparison.gains],
        "per_gpu": comparison.per_gpu,
        "notes": _notes(comparison, names),
    }
