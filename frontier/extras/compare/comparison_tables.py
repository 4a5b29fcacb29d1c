"""Comparisons of two frontiers: `compare_runs` makes them, `comparison_views` has what they
show."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from frontier.config.shape_keys import described
from frontier.config.uses import MADE_PROMPTS
from frontier.core.model.decisions import Decision, Limit
from frontier.core.model.errors import UsageError
from frontier.core.model.metrics import metric
from frontier.core.model.points import Point
from frontier.core.model.series import Series, by_series
from frontier.core.model.text import clean, clean_name, some_of, suggestion
from frontier.core.window.window import WindowData
from frontier.extras.compare.comparison_text import comparisons_text
from frontier.extras.compare.contest import CompareRules, Comparison, Contest, Side, compare
from frontier.extras.compare.pooled import base_axes, unique_labels
from frontier.extras.compare.rivals import comparison_notes, contest_sentence, difference_rows
from frontier.run import Asked, Run
from frontier.show.table import WIDE, as_html
from frontier.show.view.cached_and_drafted import FOUND_CACHED, SPECULATED
from frontier.show.view.comparison_view import ComparisonView
from frontier.show.view.json_out import Tree, tree_of
from frontier.show.view.selection import narrowed
from frontier.show.view.sentences import decision_sentence

COMPARE_SCHEMA = "frontier.compare/1"
MOST_CHANGES = 6
"""Most settings of two servers that are named as different; the others are counted."""
Names = tuple[str, str]
Settings = Mapping[str, Mapping[str, str]]
"""Settings that the servers reported, by deployment."""


class Comparisons(tuple[Comparison, ...]):
    """Comparisons, one per shape: a tuple that shows itself as `frontier compare` prints it."""

    def __str__(self) -> str:
        return comparisons_text(comparison_views(self), width=WIDE)

    def _repr_html_(self) -> str:
        return as_html(str(self))


def compare_runs(
    a: Run,
    b: Run | None = None,
    *,
    deployments: Sequence[str] = (),
    objectives: tuple[str, str] | None = None,
    limits: Asked = None,
    within: float | None = None,
    names: Names | None = None,
    point_estimates: bool = False,
) -> Comparisons:
    """B against A for each shape that both measured, on the axes of A's frontier and under A's SLA
    unless others are given.

    Of one run, `deployments` names two: the second is compared with the first. `within` and
    `point_estimates` are as in `contest.CompareRules`; `names` are the names of the sides.

    UsageError where the two cannot be compared: other workloads, prompts of another file, answers
    forced to their length on one side only, or deployments that cannot be matched.
    """
    if b is None:
        one, other = two_deployments(a, deployments)
        a, b = narrowed(a, (one,)), narrowed(a, (other,))
    elif deployments:
        raise UsageError("two runs were given, and deployments", "name two deployments of one run, or two runs")
    wanted = a.limits(limits)
    axes = base_axes((a, b), objectives, wanted)
    names_of_axes = tuple(name for each in axes.values() for name in each)
    points = a.points(wanted, names=names_of_axes), b.points(wanted, names=names_of_axes)
    comparable(a, b, *points)
    decisions = _decisions(a, wanted, point_estimates), _decisions(b, wanted, point_estimates)
    rules = CompareRules(("", ""), wanted, within, point_estimates)
    comparisons = []
    for pair in partners(*map(by_series, points)):
        shown = _names(pair, names)
        sides = [
            _side(run, name, series, side, decided.get(series))
            for run, name, series, side, decided in zip((a, b), shown, pair, points, decisions, strict=True)
        ]
        up, across = axes[pair[0].shape][:2]
        found = compare(Contest(tuple(sides), replace(rules, objectives=(up, across))))
        changed = changed_settings(a.server_settings, pair[0].deployment, b.server_settings, pair[1].deployment)
        remarks = (*other_prompts(a, b, pair), *no_characters(found, a, b), *changed)
        comparisons.append(replace(found, remarks=remarks))
    if not comparisons:
        named = [", ".join(dict.fromkeys(p.deployment for p in side)) for side in points]
        raise UsageError(
            f"no deployment of {a.path} ({named[0]}) is in {b.path} ({named[1]})",
            "give a deployment the same name on both sides, or sweep one on each",
        )
    return Comparisons(comparisons)


def partners(a: Collection[Series], b: Collection[Series]) -> list[tuple[Series, Series]]:
    """The pairs of series to compare, each of one shape. Deployments are matched by name; two
    single deployments are matched whatever their names.
    """
    single = all(len({series.deployment for series in side}) == 1 for side in (a, b))
    return [
        (series, other) for series in a for other in b if other.shape == series.shape and (single or other == series)
    ]


def _names(pair: tuple[Series, Series], names: Names | None) -> Names:
    """The names of the sides: as asked, by their deployments, or A and B where those are
    the same.
    """
    if names is None and pair[0].deployment == pair[1].deployment:
        return "A", "B"
    a, b = unique_labels(names or (pair[0].deployment, pair[1].deployment), 40)
    return a, b


def _decisions(run: Run, limits: tuple[Limit, ...], point_estimates: bool) -> dict[Series, Decision]:
    """The decision of each series; empty without an SLA. Imported aggregates have none, unless
    values decide.
    """
    decided = bool(limits) and (point_estimates or bool(run.histories))
    return {d.series: d for d in run.solve(limits, point_estimates=point_estimates)} if decided else {}


def _side(run: Run, name: str, series: Series, points: Sequence[Point], decision: Decision | None) -> Side:
    mine = [point for point in points if point.series == series]
    return Side(name, mine, decision, run.gpus.get(series.deployment), run.samples(series))


def other_prompts(a: Run, b: Run, pair: tuple[Series, Series]) -> list[str]:
    """A note that one side had random words and the other natural text, with what depends on the
    text.
    """
    if a.config.prompts == b.config.prompts or not (a.histories and b.histories):
        return []
    told = _cached_and_drafted(*(list(run.samples(series).values()) for run, series in zip((a, b), pair, strict=True)))
    what = f"The prompts differ: {a.config.prompts} in {a.path}, {b.config.prompts} in {b.path}"
    return [f"{what}; {told or 'neither server tells of its prefix cache or of drafts'}."]


def _cached_and_drafted(*sides: Sequence[WindowData]) -> str:
    """A sentence on the prefix-cache hits of each side's server and its tokens per step under
    speculative decoding; '' where no server reports either.
    """
    told = [(label, [read(*samples) for samples in sides], write) for label, read, write in (SPECULATED, FOUND_CACHED)]
    parts = [
        f"{label}: " + ", ".join("–" if value is None else write(value) for value in values)
        for label, values, write in told
        if any(value is not None for value in values)
    ]
    return "; ".join(parts)


def no_characters(comparison: Comparison, a: Run, b: Run) -> list[str]:
    """A note that it is not known whether two models cut text into tokens alike."""
    sides = list(zip((a, b), comparison.deployments, strict=True))
    known = [side.characters_per_token for side in comparison.contest.sides]
    models = [d.model for run, name in sides for d in run.config.deployments if d.name == name]
    lacking = [str(run.path) for (run, _), characters in zip(sides, known, strict=True) if not characters]
    if not lacking or len(set(models)) < 2:
        return []
    named = f"{' and '.join(lacking)} {'hold' if lacking[1:] else 'holds'}"
    return [f"Other models may cut text into other tokens: {named} no text lengths to tell."]


def changed_settings(a: Settings, of_a: str, b: Settings, of_b: str) -> list[str]:
    """The settings that the two servers report differently; empty where one of them
    reported none.
    """
    before, after = a.get(of_a, {}), b.get(of_b, {})
    if not before or not after:
        return []
    changes = [
        f"{name} {before.get(name, 'not told')} → {after.get(name, 'not told')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
    return [f"Server settings differ: {some_of(changes, MOST_CHANGES)}."] if changes else []


def two_deployments(run: Run, named: Sequence[str]) -> tuple[str, str]:
    """The two deployments of `run` that are named, in that order. UsageError for any other number,
    or for unknown names.
    """
    measured = [deployment for deployment, _ in run.histories] + [p.deployment for p in run.imported]
    known = list(dict.fromkeys(measured))
    planned = [d.name for d in run.config.deployments if d.name not in known]
    there = some_of([clean_name(name) for name in known], 8)
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
        if a.histories and b.histories and theirs != ours and not {theirs, ours} <= MADE_PROMPTS:
            raise UsageError(
                f"different {means}: {theirs} in {a.path}, {ours} in {b.path}", "sweep both with the same load"
            )


# --- what it has to say


def comparison_views(comparisons: Sequence[Comparison]) -> list[ComparisonView]:
    """What each comparison has to say: its verdict in a sentence, and the evidence as values, ratio
    and interval; beside these the axes, and the results of each side alone.
    """
    several = len({comparison.deployments[0] for comparison in comparisons}) > 1
    return [_view(comparison, several) for comparison in comparisons]


def _view(comparison: Comparison, several: bool) -> ComparisonView:
    contest, rows = comparison.contest, tuple(difference_rows(comparison))
    a, b = contest.names
    sentence, notes = f"{contest_sentence([contest])}.", tuple(comparison_notes(comparison))
    return ComparisonView(
        comparison.verdict,
        f"{b} against {a}{' per GPU' if contest.per_gpu else ''}",
        _workload(comparison, several),
        sentence if rows or contest.is_judged else "",
        rows,
        notes,
        tuple(_alone(comparison)),
        _tree(comparison, sentence, notes),
    )


def _alone(comparison: Comparison) -> list[str]:
    """The axes of the comparison, and the results of each side alone."""
    contest = comparison.contest
    axes = " against ".join(metric(name).label for name in contest.rules.objectives)
    divided = contest.per_gpu or len({side.gpus for side in contest.sides}) == 1
    decided = [
        f"{side.name}: {decision_sentence(side.decision, gpus=side.gpus if divided else None)}."
        for side in contest.sides
        if side.decision is not None
    ]
    return [f"Frontiers of {axes}.", *decided]


def _workload(comparison: Comparison, several: bool) -> str:
    """The shape, after the deployment's name where several are compared, each with its namesake."""
    shape, (a, b) = clean_name(comparison.shape.label), comparison.deployments
    return f"{clean_name(a, 60)} · {shape}" if several and a == b else shape


def _tree(comparison: Comparison, sentence: str, notes: Sequence[str]) -> Tree:
    """One comparison for JSON. `differences` are the evidence of the verdict."""
    contest = comparison.contest
    a, b = contest.names
    tree: Tree = {
        "shape": comparison.shape,
        "a": a,
        "b": b,
        "deployments": comparison.deployments,
        "verdict": comparison.verdict,
        "differences": comparison.differences,
        "proven": sentence,
        "objectives": contest.rules.objectives,
        "gpus": [side.gpus for side in contest.sides],
        "per_gpu": contest.per_gpu,
        "characters_per_token": [side.characters_per_token for side in contest.sides],
        "notes": notes,
    }
    return {name: tree_of(value) for name, value in tree.items()}
