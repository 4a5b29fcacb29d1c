"""Several frontiers on the same axes: up to eight runs or deployments in one panel per shape. Their
titles are made in `rivals`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from frontier.core.claim import pareto
from frontier.core.model.decisions import Limit
from frontier.core.model.errors import UsageError
from frontier.core.model.groups import by_key
from frontier.core.model.metrics import RATES, metric, per_gpu
from frontier.core.model.text import clean, clean_name, middle_cut
from frontier.extras.compare.contest import CompareRules, Contest, Side
from frontier.extras.compare.pooled import base_axes, keeps, undivided, unique_labels
from frontier.extras.compare.rivals import contest_sentence
from frontier.run import Objectives, Run
from frontier.show.picture.bounds_panel import bounds_panel
from frontier.show.picture.data import SERIES, Axis, Line, Mark, Panel, Picture, Role
from frontier.show.picture.frontier_picture import (
    axes_of,
    mark_of,
    region_of,
    rules_of,
    shared_axes,
    staircase,
    telling,
)
from frontier.show.picture.labels import (
    answer_row,
    bar_key,
    foot_line,
    joined,
    limit_parts,
    power_notes,
    unstarred,
    view_sentence,
)
from frontier.show.view.selection import check_panels, provenance_of, series_of, views_of
from frontier.show.view.series_view import SeriesView, changed
from frontier.show.view.wording import Provenance, apart, count, flag_kinds, left_out, limits_text

SIGNS = dict(zip(SERIES, "●■▲◆▼✚◀⬢", strict=True))


@dataclass(frozen=True, slots=True)
class Group:
    """The views of one panel, all of one shape, and their names."""

    names: tuple[str, ...]
    views: tuple[SeriesView, ...]


def check_together(runs: Sequence[Run]) -> None:
    """Check, before anything is computed, that runs have no more frontiers of a shape than one
    panel can tell apart, and no more shapes than a picture can show. UsageError otherwise.
    """
    for run in runs:
        check_panels(run, panels={shape for _, shape in series_of(run)})
    shapes = Counter(shape for run in runs for _, shape in series_of(run))
    for shape, number in shapes.items():
        if number > len(SERIES):
            raise UsageError(
                f"{number} frontiers of {clean(shape.label, 40)} in one panel cannot be told apart; at most "
                f"{len(SERIES)} can",
                "name fewer runs, or  --deployment NAME  once for each to be drawn",
            )


def grouped(runs: Sequence[tuple[str, Sequence[SeriesView]]]) -> list[Group]:
    """The views of several (run's name, its views), grouped by shape. Each is named by its run, its
    deployment, or both.
    """
    several = len(runs) > 1
    whole: list[str] = []
    panels: list[tuple[str, str]] = []
    run_names = unique_labels([run for run, _ in runs], 200)
    for run, (_, views) in zip(run_names, runs, strict=True):
        deployments = list(dict.fromkeys(view.frontier.deployment for view in views))
        for deployment in deployments:
            panels.append((run, deployment))
            alone = run if len(deployments) == 1 else f"{run} · {deployment}"
            whole.append(alone if several else deployment)
    called = dict(zip(panels, unique_labels(whole), strict=True))
    named = ((run, view) for run, (_, views) in zip(run_names, runs, strict=True) for view in views)
    by_shape = by_key((view.frontier.shape, (called[run, view.frontier.deployment], view)) for run, view in named)
    return [Group(tuple(n for n, _ in group), tuple(v for _, v in group)) for group in by_shape.values()]


def contest(group: Group) -> Contest:
    """The frontiers of a panel beside each other."""
    first = group.views[0]
    objectives = first.frontier.objectives
    sides = [Side(n, v.points, v.decision, v.gpus) for n, v in zip(group.names, group.views, strict=True)]
    return Contest(tuple(sides), CompareRules((objectives[0], objectives[1]), limits=first.sla))


def title_of(groups: Sequence[Group]) -> str:
    """The title of a picture of several frontiers. It names a winner only over all that are
    drawn.
    """
    if len(groups) == 1 and len(groups[0].names) == 1 and not _is_of_quality(groups[0].views[0]):
        return f"{groups[0].names[0]}: {view_sentence(groups[0].views[0])}"
    return contest_sentence([contest(group) for group in groups])


def together_picture(runs: Sequence[Run], limits: Sequence[Limit], axes: Objectives) -> Picture:
    """The picture of several runs, or of the deployments of one, a panel per shape. UsageError
    where there are more than it can show.
    """
    check_together(runs)
    drawn = base_axes(runs, axes, limits)
    groups = grouped([(run.path.name, views_of(run, limits, drawn)) for run in runs])
    footer = provenance_of(runs[0]) if len(runs) == 1 else None
    return together(groups, footer=footer, more=other_limits(runs, limits))


def other_limits(runs: Sequence[Run], limits: Sequence[Limit]) -> list[str]:
    """A note when a run was swept for another SLA than the one used for all."""
    others = [run for run in runs if run.limits() and tuple(run.limits()) != tuple(limits)]
    if not others or not limits:
        return []
    slas = "; ".join(f"{run.path.name} was swept for {limits_text(run.limits())}" for run in others)
    return [f"all are judged by {limits_text(limits)}; {slas}"]


def together(groups: Sequence[Group], *, footer: Provenance | None = None, more: Sequence[str] = ()) -> Picture:
    """Up to eight frontiers in one panel per shape. A frontier is named as the best only where
    intervals separate it from the others. `more` are notes.
    """
    if _is_of_quality(groups[0].views[0]):
        groups = [Group(group.names, tuple(map(_taking_part, group.views))) for group in groups]
    notes = _undivided(groups)
    if notes:
        groups = [Group(group.names, tuple(replace(view, gpus=None) for view in group.views)) for group in groups]
    return _picture(groups, title_of(groups), footer, [*notes, *more])


def _is_of_quality(view: SeriesView) -> bool:
    """Whether an axis is the quality, which is the same at all settings of a deployment."""
    return "quality" in view.axes


def _taking_part(view: SeriesView) -> SeriesView:
    """The view with only the settings that are proven to keep the limits on other metrics, and the
    frontier of these.
    """
    points = [p for p in view.points if not p.valid or keeps(p, view.hidden_limits)]
    empty = replace(view.frontier, members=(), dominated=(), excluded={})
    frontier = pareto.frontier(points, view.frontier.objectives) if points else empty
    return changed(view, points=points, frontier=frontier, band=())


def _undivided(groups: Sequence[Group]) -> list[str]:
    """Why rates are not per GPU: some runs, but not all, state their number of GPUs. Empty where
    all do, or none.
    """
    counts = list(dict.fromkeys((n, v.gpus) for group in groups for n, v in zip(group.names, group.views, strict=True)))
    why = undivided(counts, groups[0].views[0].axes)
    return [why] if why else []


def _picture(groups: Sequence[Group], title: str, footer: Provenance | None, more: Sequence[str]) -> Picture:
    one = len(groups) == 1
    views = [view for group in groups for view in group.views]
    shared = None if one else shared_axes([_drawn(_per_gpu(view)) for view in views])
    panels = tuple(_panel(group, shared, alone=one) for group in groups)
    shape = views[0].frontier.shape
    legend = [shape.label if shape.mix else f"ISL {shape.isl} / OSL {shape.osl}"] if one else []
    legend += [] if one or shared else ["own axes each"]
    whole = [limit for limit in _whole(views[0]) if limit.metric in views[0].axes]
    notes = [*more, *([f"not drawn, being of a whole deployment: {limits_text(whole)}"] if whole else [])]
    return Picture(
        "together",
        title,
        panels,
        legend=joined([clean(part, 400) for part in (*legend, *limit_parts(views), *bar_key(views))]),
        rows=_answer_rows(groups),
        notes=(*_absences(groups), *notes),
        foot=foot_line(footer),
        description=f"{title}.",
        columns=1 if one else 2,
        tall=505.0 if one else 300.0,
        strip=None if _is_of_quality(views[0]) else _bounds(groups),
    )


def _bounds(groups: Sequence[Group]) -> Panel | None:
    """The panel of bounds, with a name for each frontier that says which it is."""
    drawn = [
        (view, f"{middle_cut(name, 40)} · {clean_name(view.frontier.shape.label)}" if len(groups) > 1 else name, role)
        for group in groups
        for name, view, role in zip(group.names, group.views, SERIES, strict=False)
    ]
    views, names, roles = zip(*drawn, strict=True)
    return bounds_panel(views, names, roles)


def _answer_rows(groups: Sequence[Group]) -> tuple[tuple[tuple[str, ...], Role], ...]:
    """The answer of each frontier, with its mark and in its colour; with the number of GPUs where
    these differ.
    """
    rows = []
    differ = len({view.gpus for group in groups for view in group.views}) > 1
    for group in groups:
        for name, view, role in zip(group.names, group.views, SERIES, strict=False):
            shape = (clean_name(view.frontier.shape.label),) if len(groups) > 1 else ()
            size = f" ({count(view.gpus, 'GPU')})" if differ and view.gpus else ""
            rows.append(((f"{SIGNS[role]} {name}{size}", *shape, *answer_row(view)), role))
    return tuple(rows)


def _absences(groups: Sequence[Group]) -> list[str]:
    """The parts of each frontier that are not drawn: excluded points, points without an axis, an
    operating point off the axes.
    """
    notes = []
    for group in groups:
        for name, view, role in zip(group.names, group.views, SERIES, strict=False):
            shape = f" ({clean_name(view.frontier.shape.label)})" if len(groups) > 1 else ""
            flagged = [kind.text(6) for kind in flag_kinds(view.points) if kind.fatal]
            lines = [f"excluded and not drawn: {'; '.join(flagged)}"] if flagged else []
            lines += [f"not drawn, {line}" for line in left_out(view.points, view.frontier)]
            lines += [*power_notes(view), *unstarred(view)]
            notes += [f"{SIGNS[role]} {name}{shape}, {line}" for line in lines]
    return notes


def _panel(group: Group, shared: tuple[Axis, Axis] | None, *, alone: bool) -> Panel:
    """The staircases of one shape on one pair of axes, each with the points on its frontier and its
    operating point.
    """
    views = [_drawn(_per_gpu(view)) for view in group.views]
    first = views[0]
    x, y = shared or axes_of(views, 505.0 if alone else 300.0)
    marks: list[Mark] = []
    lines: list[Line] = []
    for whole, view, name, role in zip(group.views, views, apart(group.names), SERIES, strict=False):
        # A limit on a rate is of the whole deployment, so that the points as they were measured are
        # judged by it.
        signs = {each.load: each.sign for each in whole.settings}
        mine = [
            replace(
                mark,
                role=role,
                star=role if point.chosen else None,
                sign=signs[point.load],
            )
            for point in view.drawable
            if (mark := mark_of(point, view, x, y)) is not None
        ]
        members = [mark for mark in mine if mark.load in view.frontier.members]
        if _is_of_quality(first):  # of which a deployment has one step: its name stands at the mark
            marks += [replace(mark, text=f"{name}, c={round(mark.load)}") for mark in members]
        else:
            marks += telling(mine)
            lines += staircase(members, view, x, y, role, name)
    if _is_of_quality(first):
        sides = [[sign * getattr(mark, axis) for mark in marks] for axis, sign in zip("yx", _signs(first), strict=True)]
        best = [mark for mark, member in zip(marks, pareto.nondominated(*sides), strict=True) if member]
        lines += staircase(best, first, x, y, Role.QUIET)
    title = "" if alone else clean(first.frontier.shape.label, 60)
    return Panel(
        title, x, y, tuple(lines), tuple(marks), rules_of(first, x, y), region=region_of(first, x, y), compass=True
    )


def _signs(view: SeriesView) -> tuple[float, float]:
    """The signs that turn values so that higher is better on the vertical axis and lower is better
    on the other.
    """
    across, up = map(metric, view.axes)
    return up.sign, -across.sign


def _drawn(view: SeriesView) -> SeriesView:
    """The view with the drawn points: those on the frontier, and the operating point."""
    shown = {*view.frontier.members, view.chosen}
    return replace(view, roofline=None, settings=tuple(each for each in view.drawable if each.load in shown))


def _per_gpu(view: SeriesView) -> SeriesView:
    """The view with its rates divided by its own GPUs, as one axis cannot divide by several
    numbers.
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
    return replace(changed(view, points=points, limits=limits, band=band, gpus=1), sla=tuple(limits))


def _whole(view: SeriesView) -> list[Limit]:
    """Limits on a rate of the whole deployment; on an axis per GPU each deployment would have them
    at another place.
    """
    return [limit for limit in view.sla if view.gpus and metric(limit.metric).unit in RATES]
