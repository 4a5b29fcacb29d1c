"""Several frontiers on the same axes: two that are compared, or up to four runs or deployments in
one panel per shape.

The title names a winner only where intervals separate it from all others that are drawn: who is
proven inside the SLA, who carries the most, who takes no part and why. Also the words of a
comparison, which its table and JSON share.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from frontier.decide import pareto
from frontier.decide.compare import Comparison, Names, comparison_sentence, gpus_note, names_of
from frontier.decide.pareto import keeps, pooled
from frontier.decide.sla_result import Best, best_deployment
from frontier.errors import UsageError
from frontier.metrics import RATES, metric, per_gpu
from frontier.model import Limit, Shape, Verdict, in_words
from frontier.plot.data import Axis, Line, Mark, Panel, Picture, Role, View, breaks
from frontier.plot.labels import answer_cells, foot_line, joined, panel_words, sign_words, unstarred, view_sentence
from frontier.plot.picture import axes_of, mark_of, region_of, rules_of, shared_axes, staircase, telling
from frontier.plot.selection import check_panels, series_of
from frontier.run import Run
from frontier.show.wording import (
    Provenance,
    apart,
    count,
    flag_kinds,
    left_out,
    limits_text,
    named_value,
    told_apart,
)
from frontier.text import clean, clean_name

ROLES = (Role.FRONTIER, Role.OTHER, Role.THIRD, Role.FOURTH)
"""By colour and by the shape of the mark; more than four in a panel cannot be told apart."""
SIGNS = dict(zip(ROLES, "●■▲◆", strict=True))
LONGEST = 110
"""Characters of a title that names all."""


@dataclass(frozen=True, slots=True)
class Group:
    """What shares a panel: views of one shape, and what each is called."""

    names: tuple[str, ...]
    views: tuple[View, ...]


def check_together(runs: Sequence[Run]) -> None:
    """UsageError where runs have more frontiers of a shape than one panel can tell apart, or more
    shapes than a picture can show: before anything is computed.
    """
    for run in runs:
        check_panels(run, panels={shape for _, shape in series_of(run)})
    shapes = Counter(shape for run in runs for _, shape in series_of(run))
    for shape, number in shapes.items():
        if number > len(ROLES):
            raise UsageError(
                f"{number} frontiers of {clean(shape.label, 40)} in one panel cannot be told apart; at most "
                f"{len(ROLES)} can",
                "name fewer runs, or  --deployment NAME  once for each to be drawn",
            )


def grouped(runs: Sequence[tuple[str, Sequence[View]]]) -> list[Group]:
    """The views of several (run's name, its views) by shape, each called by its run, its
    deployment, or both.
    """
    several = len(runs) > 1
    whole: list[str] = []
    panels: list[tuple[str, str]] = []
    run_names = told_apart([run for run, _ in runs], 200)
    for run, (_, views) in zip(run_names, runs, strict=True):
        deployments = list(dict.fromkeys(view.frontier.deployment for view in views))
        for deployment in deployments:
            panels.append((run, deployment))
            alone = run if len(deployments) == 1 else f"{run} · {deployment}"
            whole.append(alone if several else deployment)
    called = dict(zip(panels, told_apart(whole), strict=True))
    by_shape: dict[Shape, list[tuple[str, View]]] = {}
    for run, (_, views) in zip(run_names, runs, strict=True):
        for view in views:
            by_shape.setdefault(view.frontier.shape, []).append((called[run, view.frontier.deployment], view))
    return [Group(tuple(n for n, _ in group), tuple(v for _, v in group)) for group in by_shape.values()]


def overlay(
    a: View,
    b: View,
    comparison: Comparison,
    *,
    names: Names | None = None,
    footer: Provenance | None = None,
    more: Sequence[str] = (),
) -> Picture:
    """The picture of a comparison: A in blue with dots, B in orange with squares. The title is the
    verdict, with the interval it stands on. ValueError when the objectives differ.
    """
    if a.gpus != b.gpus and not comparison.per_gpu:  # then whole deployments were compared
        a, b = replace(a, gpus=None), replace(b, gpus=None)
    group = Group(names_of(comparison, names), (a, b))
    note = gpus_note(comparison, names)
    notes = [*([note] if note else []), *([f"{title_of([group])}."] if _is_judged(group) else [])]
    return _picture([group], comparison_sentence(comparison, names), footer, [*notes, *more])


def together(groups: Sequence[Group], *, footer: Provenance | None = None, more: Sequence[str] = ()) -> Picture:
    """Up to four frontiers in one panel per shape. Only what intervals separate is called the most.
    `more` are notes.

    ValueError without a group, with more than four in one, or when objectives differ.
    """
    if not groups:
        raise ValueError("a picture needs at least one frontier")
    if groups[0].views[0].is_of_quality:
        groups = [Group(group.names, tuple(map(_taking_part, group.views))) for group in groups]
    notes = _undivided(groups)
    if notes:
        groups = [Group(group.names, tuple(replace(view, gpus=None) for view in group.views)) for group in groups]
    return _picture(groups, title_of(groups), footer, [*notes, *more])


def _taking_part(view: View) -> View:
    """The view with the settings that are proven to keep the limits on other metrics, and the
    frontier of these.
    """
    points = [p for p in view.mine if not p.valid or keeps(p, view.hidden_limits)]
    empty = replace(view.frontier, members=(), dominated=(), excluded={})
    frontier = pareto.frontier(points, view.frontier.objectives) if points else empty
    return replace(view, points=points, frontier=frontier, band=())


def _undivided(groups: Sequence[Group]) -> list[str]:
    """Why no rate is per GPU, where some but not all say how many GPUs they have; empty where all
    do, or none.
    """
    counts = list(dict.fromkeys((n, v.gpus) for group in groups for n, v in zip(group.names, group.views, strict=True)))
    unknown = [name for name, gpus in counts if gpus is None]
    if not unknown or len(unknown) == len(counts) or not any(metric(n).unit in RATES for n in groups[0].views[0].axes):
        return []
    return [f"whole deployments, not per GPU: the number of GPUs is not known of {', '.join(unknown)}"]


def _picture(groups: Sequence[Group], title: str, footer: Provenance | None, more: Sequence[str]) -> Picture:
    one = len(groups) == 1
    views = [view for group in groups for view in group.views]
    shared = None if one else shared_axes([_drawn(_per_gpu(view)) for view in views])
    panels = tuple(_panel(group, shared, alone=one) for group in groups)
    shape = views[0].frontier.shape
    stars = any(mark.star for panel in panels for mark in panel.marks)
    legend = [shape.label if shape.mix else f"ISL {shape.isl} / OSL {shape.osl}"] if one else []
    legend += ["staircases = measured frontiers", *(["★ = operating point"] if stars else [])]
    whole = [limit for limit in _whole(views[0]) if limit.metric in views[0].axes]
    notes = [*more, *([f"not drawn, being of a whole deployment: {limits_text(whole)}"] if whole else [])]
    return Picture(
        "together",
        title,
        panels,
        legend=joined([clean(part, 400) for part in (*legend, *sign_words(views, panels))]),
        rows=_answer_rows(groups),
        notes=(*_absences(groups), *notes),
        foot=foot_line(views, footer),
        description=f"{title}.",
        columns=1 if one else 2,
        tall=505.0 if one else 300.0,
    )


def _answer_rows(groups: Sequence[Group]) -> tuple[tuple[tuple[str, ...], Role], ...]:
    """What each frontier says, with its mark and in its colour; where their GPUs differ, so is
    their number.
    """
    rows = []
    differ = len({view.gpus for group in groups for view in group.views}) > 1
    for group in groups:
        for name, view, role in zip(group.names, group.views, ROLES, strict=False):
            shape = (clean_name(view.frontier.shape.label),) if len(groups) > 1 else ()
            size = f" ({count(view.gpus, 'GPU')})" if differ and view.gpus else ""
            rows.append(((f"{SIGNS[role]} {name}{size}", *shape, *answer_cells(view)), role))
    return tuple(rows)


def _absences(groups: Sequence[Group]) -> list[str]:
    """What of each frontier is not drawn: excluded points, those without an axis, an operating
    point off the axes.
    """
    notes = []
    for group in groups:
        for name, view, role in zip(group.names, group.views, ROLES, strict=False):
            shape = f" ({clean_name(view.frontier.shape.label)})" if len(groups) > 1 else ""
            flagged = [kind.text(most=6) for kind in flag_kinds(view.mine) if kind.fatal]
            lines = [f"excluded and not drawn: {'; '.join(flagged)}"] if flagged else []
            lines += [*(f"not drawn, {line}" for line in left_out(view.mine, view.frontier)), *unstarred(view)]
            notes += [f"{SIGNS[role]} {name}{shape}, {line}" for line in lines]
    return notes


def _panel(group: Group, shared: tuple[Axis, Axis] | None, *, alone: bool) -> Panel:
    """The staircases of one shape on one pair of axes: of each the points on its frontier, and its
    operating point.
    """
    views = [_drawn(_per_gpu(view)) for view in group.views]
    first = views[0]
    for view in views[1:]:
        if view.axes != first.axes:
            raise ValueError(f"the frontiers have different axes: {first.axes} and {view.axes}")
    if len(views) > len(ROLES):
        raise ValueError(f"{len(views)} frontiers in one panel cannot be told apart; at most {len(ROLES)} can")
    x, y = shared or axes_of(views, 505.0 if alone else 300.0)
    marks: list[Mark] = []
    lines: list[Line] = []
    for whole, view, name, role in zip(group.views, views, apart(group.names), ROLES, strict=False):
        # A limit on a rate is of the whole deployment, so that the points as they were measured are
        # judged by it.
        measured = {p.concurrency: p for p in whole.mine}
        mine = [
            replace(
                mark,
                role=role,
                star=role if point.concurrency == view.chosen else None,
                struck=breaks(measured[point.concurrency], whole.hidden_limits),
            )
            for point in view.drawable
            if (mark := mark_of(point, view, x, y)) is not None
        ]
        members = [mark for mark in mine if mark.concurrency in view.frontier.members]
        if first.is_of_quality:  # of which a deployment has one step: its name stands at the mark
            marks += [replace(mark, text=f"{name}, c={round(mark.concurrency)}") for mark in members]
        else:
            marks += telling(mine)
            lines += staircase(members, view, x, y, role, name)
    if first.is_of_quality:
        sides = [[sign * getattr(mark, axis) for mark in marks] for axis, sign in zip("yx", _signs(first), strict=True)]
        best = [mark for mark, member in zip(marks, pareto.nondominated(*sides), strict=True) if member]
        lines += staircase(best, first, x, y, Role.QUIET)
    title = "" if alone else clean(first.frontier.shape.label, 60)
    panel = Panel(
        title, x, y, tuple(lines), tuple(marks), rules_of(first, x, y), region=region_of(first, x, y), compass=True
    )
    return replace(panel, callouts=tuple(panel_words(first, panel)))


def _signs(view: View) -> tuple[float, float]:
    """What makes a value on the vertical axis the better the higher, and one on the other the
    better the lower.
    """
    across, up = map(metric, view.axes)
    return up.sign, -across.sign


def _drawn(view: View) -> View:
    """The view with what of several frontiers is drawn: the points on the frontier, and the
    operating point.
    """
    shown = {*view.frontier.members, view.chosen}
    return replace(view, light=None, points=[p for p in view.drawable if p.concurrency in shown])


def _per_gpu(view: View) -> View:
    """The view with its rates divided by its own GPUs: one axis cannot divide by the different
    counts of several.
    """
    gpus = view.gpus
    if not gpus:
        return view
    across, up = (per_gpu(name, gpus) for name in view.axes)
    points = [
        replace(p, metrics={name: e.scaled(1, per_gpu(name, gpus)) for name, e in p.metrics.items()})
        for p in view.points
    ]
    limits = [limit for limit in view.sla if limit not in _whole(view)]
    band = [(x / across, low / up, high / up) for x, low, high in view.band]
    decision = view.decision and replace(view.decision, limits=tuple(limits))
    return replace(view, points=points, decision=decision, limits=limits, band=band, gpus=1)


def _whole(view: View) -> list[Limit]:
    """Limits on a rate of the whole deployment, which on an axis per GPU would be elsewhere for
    each.
    """
    return [limit for limit in view.sla if view.gpus and metric(limit.metric).unit in RATES]


# --- the title


def title_of(groups: Sequence[Group]) -> str:
    """The title of a picture of several frontiers. It names a winner only over all that are
    drawn.
    """
    names = list(dict.fromkeys(name for group in groups for name in group.names))
    if groups[0].views[0].is_of_quality:
        return _quality_sentence(groups)
    if len(groups) == 1 and len(names) == 1:
        return f"{names[0]}: {view_sentence(groups[0].views[0])}"
    if len(names) == 1 or not all(map(_is_judged, groups)):
        return _names_sentence(names)
    if len(groups) == 1:
        return _panel_sentence(groups[0])
    if all(len(group.names) == 1 for group in groups):
        return f"{_names_sentence(names)} share no workload"
    return _workloads_sentence(groups, names)


def _quality_sentence(groups: Sequence[Group]) -> str:
    """Which deployments are on the frontier of quality and the other axis, and which are not."""
    owned = [
        replace(p, deployment=name)
        for group in groups
        for name, view in zip(group.names, group.views, strict=True)
        for p in view.mine
    ]
    first = groups[0].views[0]
    pools = pooled(owned, first.frontier.objectives, first.sla)
    owners = list(dict.fromkeys(p.deployment for pool in pools for p in pool.members))
    axes = " and ".join(metric(name).label for name in first.frontier.objectives)
    without = "".join(f"; {owner}: {why}" for pool in pools for owner, why in pool.without.items())
    return f"On the frontier of {axes}: {_listed(owners) if owners else 'nothing'}{without}"


def _is_judged(group: Group) -> bool:
    """Whether there is an SLA to prove, and more of what is drawn upwards is better."""
    up = group.views[0].axes[1]
    return metric(up).better == "higher" and any(view.decision is not None for view in group.views)


def best_of(group: Group) -> Best | None:
    """Which of the group gives the most as far as it is proven, by the rule of `frontier solve`;
    None: nothing is.
    """
    up = group.views[0].axes[1]
    decisions = []
    for name, view in zip(group.names, group.views, strict=True):
        if (decision := view.decision) is not None:
            rates = {p.concurrency: p.metrics[up].value for p in view.mine if up in p.metrics}
            # Of the step that may give more it is the rate on this axis that is compared, not
            # always that of tokens.
            step = decision.next_step
            step = step and replace(step, throughput=rates.get(step.concurrency))
            decisions.append(replace(decision, deployment=name, next_step=step))
    return best_deployment(decisions, dict(zip(group.names, (v.gpus for v in group.views), strict=True)), up)


def _panel_sentence(group: Group) -> str:
    promise, best = _promise([group]), best_of(group)
    clauses = _clauses(group, best)
    if best is None:
        two = len(group.names) == 2
        names = f"Neither {_listed(group.names, 'nor')}" if two else f"None of {_listed(group.names)}"
        return f"{names} is proven inside {promise}{clauses}"
    name, up = best.decision.deployment, group.views[0].axes[1]
    speed = best.decision.metrics[up]
    value = named_value(up, speed.value, group.views[group.names.index(name)].gpus)
    words = f"{value} at {in_words(best.decision.concurrency or 0)}"
    if not best.others:
        return f"Only {name} is proven inside {promise} ({value}){clauses}"
    if best.sure:
        of = " that is proven" if best.may_give else ""
        if len(best.others) + 1 < len(group.names):
            of = " of those proven"
        return f"{name} carries the most{of} inside {promise}: {words}{clauses}"
    reason = "within the interval of the next" if speed.has_interval else "but intervals are not known"
    return f"No clear winner inside {promise}: {name} carries {words}, {reason}{clauses}"


def _clauses(group: Group, best: Best | None) -> str:
    """Why each of the others takes no part; that nothing of theirs is proven only where something
    is.
    """
    kinds: dict[str, list[str]] = {}
    for name, kind in without_proof(group, best).items():
        kinds.setdefault(kind, []).append(name)
    clauses = []
    for kind, names in kinds.items():
        its, have, was = ("its", "has", "was") if len(names) == 1 else ("their", "have", "were")
        higher = "frontier is" if len(names) == 1 else "frontiers are"
        clauses.append(
            {
                "higher": f"{_owned(names)} {higher} higher, but none of {its} settings is proven",
                "open": f"none of {_owned(names)} settings is proven" if best else "",
                "violates": f"nothing measured of {_listed(names)} keeps it",
                "invalid": f"{_listed(names)} {have} no valid measurement",
                "not judged": f"{_listed(names)} {was} not judged",
            }[kind]
        )
    clauses += [f"{name} may give more, which is not proven" for name, _ in (best.may_give if best else ())]
    return "".join(f"; {clause}" for clause in clauses if clause)


def without_proof(group: Group, best: Best | None) -> dict[str, str]:
    """Those of which nothing is proven, and why: 'higher' where a value inside the SLA is above the
    best.
    """
    proven = (best.decision.deployment, *best.others) if best else ()
    kinds = {}
    for name, view in zip(group.names, group.views, strict=True):
        verdict = view.decision.verdict if view.decision else None
        if name in proven:
            continue
        if verdict in (Verdict.VIOLATES, Verdict.INVALID):
            kinds[name] = verdict.value
        elif verdict in (Verdict.UNPROVEN, Verdict.MARGINAL):
            kinds[name] = "higher" if best and _highest_inside(view) > best.rate else "open"
        else:
            kinds[name] = "not judged"
    return kinds


def _highest_inside(view: View) -> float:
    """The most throughput of a setting whose measured values keep every limit, proven or not."""
    up = view.axes[1]
    inside = [
        p.metrics[up].value / per_gpu(up, view.gpus)
        for p in view.mine
        if p.valid and up in p.metrics and all(li.metric in p.metrics for li in view.sla) and not breaks(p, view.sla)
    ]
    return max((value for value in inside if math.isfinite(value)), default=-math.inf)


def _workloads_sentence(groups: Sequence[Group], names: Sequence[str]) -> str:
    """Who carries the most in how many workloads, and in how many there is no such contest."""
    outcomes: Counter[str] = Counter()
    won: Counter[str] = Counter()
    for group in groups:
        best = best_of(group)
        if absent := [name for name in names if name not in group.names]:
            outcomes[f"{_listed(absent)} {'was' if len(absent) == 1 else 'were'} not measured"] += 1
        elif best is None:
            outcomes["nothing is proven"] += 1
        elif others := without_proof(group, best):
            proven = [best.decision.deployment, *best.others]
            higher = [name for name, kind in others.items() if kind == "higher"]
            above = f", though {_owned(higher)} frontier is higher" if higher else ""
            outcomes[f"only {_listed(proven)} {'is' if len(proven) == 1 else 'are'} proven{above}"] += 1
        elif best.may_give:
            outcomes[f"{_listed([name for name, _ in best.may_give])} may give more than is proven"] += 1
        elif best.sure:
            won[best.decision.deployment] += 1
        else:
            outcomes["no clear winner"] += 1
    promise = _promise(groups)
    if len(won) == 1 and not outcomes:
        every = "both" if len(groups) == 2 else f"all {len(groups)}"
        return f"{next(iter(won))} carries the most inside {promise} in {every} workloads"
    head = f"Inside {promise}, of {len(groups)} workloads"
    if not won:
        return f"{head}: {', '.join(f'in {number} {outcome}' for outcome, number in outcomes.most_common())}"
    carried = [f"{name} in {won[name]}" for name in names if name in won]
    carried += [f"{outcome} in {number}" for outcome, number in outcomes.most_common()]
    return f"{head} the most is carried by {', '.join(carried)}"


def _promise(groups: Sequence[Group]) -> str:
    inside = {limits_text(view.sla) for group in groups for view in group.views}
    return inside.pop() if len(inside) == 1 else "its SLA"


def _names_sentence(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"The frontier of {names[0]}"
    sentence = f"The frontiers of {_listed(names)}"
    return sentence if len(sentence) <= LONGEST else f"The frontiers of {len(names)} deployments"


def _listed(names: Sequence[str], last: str = "and") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"


def _owned(names: Sequence[str]) -> str:
    return _listed([f"{name}'s" for name in names])
