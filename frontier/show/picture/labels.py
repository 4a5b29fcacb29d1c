"""The words of the frontier picture: title, table of answers, legend, notes and foot; limits and
operating points."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from frontier.core.model.loads import NO_LOAD
from frontier.core.model.metrics import metric, per_gpu
from frontier.core.model.series import unnamed
from frontier.core.model.text import capital, clean, clean_name, middle_cut
from frontier.show.picture.data import Panel, Role
from frontier.show.view.answer_view import AnswerView
from frontier.show.view.costs import power_text
from frontier.show.view.figures import tightest_figure
from frontier.show.view.sentences import answer_cells, decision_sentence, may_give
from frontier.show.view.series_view import SeriesView, SettingView
from frontier.show.view.wording import (
    RUN_HERE,
    Provenance,
    apart,
    evidence_text,
    flag_kinds,
    left_out,
    limit_value_text,
    limits_text,
    named_value,
    value_text,
)

NBSP = "\u00a0"
SEPARATOR = f"{NBSP}· "


def view_name(view: SeriesView) -> str:
    """'1024/256', or 'fp8 · 1024/256' when the deployment has a name of its own."""
    return view.frontier.series.label(longest=40)


def panel_names(views: Sequence[SeriesView]) -> list[str]:
    """The names of several panels by what differs between them: the deployment, the shape,
    or both.
    """
    series = [view.frontier.series for view in views]
    shapes = [clean_name(of.shape.label) for of in series]
    if len({of.deployment for of in series}) == 1:
        return shapes
    names = apart([clean_name(of.deployment, 200) or "default" for of in series])
    if len(set(shapes)) == 1:
        return [middle_cut(name, 60) for name in names]
    return [f"{middle_cut(name, 40)} · {shape}" for name, shape in zip(names, shapes, strict=True)]


def headline(views: Sequence[SeriesView]) -> str:
    """The title: the decision of one view, or how many of several keep their SLA."""
    if len(views) == 1:
        return view_sentence(views[0])
    decided = [v.answer for v in views if v.answer is not None]
    shapes, deployments = {v.frontier.shape for v in views}, {v.frontier.deployment for v in views}
    what = "deployments" if len(shapes) == 1 and len(deployments) == len(views) else "workloads"
    if not decided:
        return _apart(views) or f"The frontiers of {len(views)} {what}"
    met = sum(answer.proven for answer in decided)
    if met == len(views):
        return _apart(views) or f"{'Both' if met == 2 else f'All {met}'} {what} keep the SLA"
    some = f"None of the {len(views)} {what} is"
    if met:
        some = f"{met} of {len(views)} {what} {'is' if met == 1 else 'are'}"
    return f"{some} proven to keep the SLA"


def view_sentence(view: SeriesView) -> str:
    """The decision, or without an SLA the top of the frontier."""
    if view.decision is not None:
        return decision_sentence(view.decision, throughput=view.axes[1], gpus=view.gpus)
    if view.top is None:
        return _NO_TOP
    at, most, latency = _top_words(view)
    return f"Up to {most} {at}, with {latency}"


def _apart(views: Sequence[SeriesView]) -> str:
    """'Within the SLA 3,696 tok/s with 1024/128, 1,241 tok/s with 4096/128': the most and the least
    throughput of operating points; without an SLA of frontiers. '' where they have none, or the
    same.
    """
    up, names, decided = views[0].axes[1], panel_names(views), any(view.answer for view in views)
    shown = (view.decision or view.top for view in views)
    values = {name: of.metrics[up].value for name, of in zip(names, shown, strict=True) if of and up in of.metrics}
    ends = sorted(values, key=lambda name: -metric(up).sign * values[name])
    if len(ends) < len(views) or values[ends[0]] == values[ends[-1]] or len({view.axes[1] for view in views}) > 1:
        return ""
    gpus = views[0].gpus if len({view.gpus for view in views}) == 1 else None
    told = ", ".join(f"{named_value(up, values[name], gpus)} with {name}" for name in (ends[0], ends[-1]))
    several = f", the most and the least of {len(views)}" if len(views) > 2 else ""
    return f"Within the SLA {told}{several}" if decided else f"{capital(metric(up).label)}: up to {told}"


_NO_TOP = "No setting gave a valid measurement"


def _top_words(view: SeriesView) -> tuple[str, ...]:
    """'at c=64', '2,850 tok/s', 'p99 TTFT 396 ms': the top of a frontier, in columns."""
    best, (across, up) = view.top, view.axes
    if best is None:
        return (_NO_TOP,)
    most = value_text(up, best.metrics[up].value, view.gpus)
    return f"at {best.load.label}", most, f"{metric(across).label} {value_text(across, best.metrics[across].value)}"


def answer_rows(views: Sequence[SeriesView], names: Sequence[str]) -> tuple[tuple[tuple[str, ...], Role], ...]:
    """The table of answers: a row per panel."""
    return tuple(
        ((name, *answer_row(view)), Role.QUIET if view.chosen is None else Role.TEXT)
        for view, name in zip(views, names, strict=True)
    )


def answer_row(view: SeriesView) -> tuple[str, ...]:
    """The answer of a view in columns; without an SLA the top of its frontier."""
    if view.decision is None:
        at, *rest = _top_words(view)
        return (f"most {at}" if rest else at, *rest)
    words, *parts = answer_cells(view.decision, view.axes[1], view.gpus)
    if (step := view.decision.next_step) is not None and view.chosen is not None:
        words = f"{words} ({may_give(replace(step, flags=()))})"  # why it is excluded is in the notes
    return (words, *parts)


def legend_line(views: Sequence[SeriesView], *, own_axes: bool) -> str:
    """The workload, and the limits that no axis shows."""
    shapes, deployments = {v.frontier.shape for v in views}, {v.frontier.deployment for v in views}
    parts = [clean_name(name) for name in deployments if len(deployments) == 1 and not unnamed(name)]
    if len(shapes) == 1:
        (shape,) = shapes
        named = f"{clean_name(shape.name, 60)} · " if shape.name else ""
        parts.append(clean_name(shape.label, 60) if shape.mix else f"{named}ISL {shape.isl} / OSL {shape.osl}")
    parts += limit_parts(views)
    predicted = any(view.expected for view in views)
    parts += bar_key(views)
    parts += ["dashed: predicted, not measured; thin bars hold 95 of 100 predictions"] if predicted else []
    return joined([*parts, *(["own axes each"] if own_axes else [])])


def bar_key(views: Sequence[SeriesView]) -> list[str]:
    """What bars, shade and thick ticks are; empty where there are none."""
    drawn = (each.metrics[name] for view in views for each in view.drawable for name in view.axes)
    barred = {estimate.has_bound for estimate in drawn if estimate.has_interval}
    words = {True: "95% CI", False: "between runs"}
    key = f"bars {' or '.join(words[each] for each in sorted(barred, reverse=True))}"
    key += ", shade 90% of resamples" * any(view.band for view in views)
    limited = True in barred and any(limit.metric == view.axes[0] for view in views for limit in view.sla)
    return [key + ", thick tick the bound that decides" * limited] if barred else []


def limit_parts(views: Sequence[SeriesView]) -> list[str]:
    """The limits that have no line: 'also within: p95 TTFT 41.3 of 150 ms'. For several series, all
    limits where they are the same.
    """
    view = views[0]
    if len(views) > 1:
        same = len({limits_text(each.sla) for each in views}) == 1 and view.sla
        return [f"SLA {limits_text(view.sla)}"] if same else []
    decision, parts = view.decision, []
    titled = tightest_figure(decision) if decision is not None and view.chosen is not None else None
    for limit in view.hidden_limits:
        if titled is not None and limit.metric == titled.metric:
            continue
        estimate = decision.metrics.get(limit.metric) if decision is not None else None
        promise = limit_value_text(limit.metric, limit.promise)
        value = f"{value_text(limit.metric, estimate.value)} of {promise}" if estimate else f"limit {promise}"
        parts.append(f"{limit.of.label} {value}")
    within = "also within: " if view.chosen is not None else "also limited: "
    return [f"{within}{', '.join(parts)}"] if parts else []


def joined(parts: Sequence[str]) -> str:
    """Parts with dots between them, each kept on one line."""
    return SEPARATOR.join(part.replace(" ", NBSP) for part in parts)


def notes_of(view: SeriesView, panel: Panel, head: str) -> list[str]:
    """Notes under the panel: why points are excluded, and which could not be drawn. `head` names
    the panel.
    """
    across = view.axes[0]
    reasons = [kind.text(6) for kind in flag_kinds(view.points) if kind.fatal]
    notes = [f"excluded: {f'{NBSP}{SEPARATOR}{NBSP}'.join(reasons)}"] if reasons else []
    infinite = [each for each in view.settings if across in each.metrics and math.isinf(each.metrics[across].value)]
    if infinite:
        where = ", ".join(each.load.label for each in infinite)
        notes.append(f"▷  at the edge: too many requests failed for a {metric(across).label} to exist: {where}")
    rest = [each for each in view.settings if each not in infinite]
    drawable = view.drawable
    notes += [
        f"not on the frontier: {line}" for line in left_out([s.point for s in rest if s in drawable], view.frontier)
    ]
    notes += [f"not drawn, {line}" for line in left_out([s.point for s in rest if s not in drawable], view.frontier)]
    drawn = {mark.load for mark in panel.marks}
    if far := [each.load.label for each in drawable if each.load not in drawn]:
        notes.append(f"beyond the axes: {', '.join(far)}")
    notes += [*_limits_beyond(view, panel), *_roofline_notes(view, panel), *power_notes(view)]
    return [f"{head}{note}" for note in (*notes, *unstarred(view))]


def _limits_beyond(view: SeriesView, panel: Panel) -> list[str]:
    """The limits on an axis that has no room for their line."""
    sides = itertools.product((panel.x, panel.y), view.sla)
    off = (limit for axis, limit in sides if limit.metric == axis.metric and not axis.holds(limit.promise * axis.scale))
    return [f"beyond the axes: the limit {limit}" for limit in off]


def _roofline_notes(view: SeriesView, panel: Panel) -> list[str]:
    """The roofline's height, and on what assumption it stands."""
    if view.roofline is None:
        return []
    above = "" if panel.y.holds(view.roofline.ceiling * panel.y.scale) else ", above the picture"
    height = value_text(panel.y.metric, view.roofline.ceiling, view.gpus)
    return [f"roofline {height}{above}: {clean(view.roofline.assumption)}"]


def power_notes(view: SeriesView) -> list[str]:
    """The source of the power, where an axis or a limit needs one."""
    names = (*view.axes, *(limit.metric for limit in view.sla))
    power = power_text(p.power for p in view.points if p.power)
    return [power] if power and any(metric(name).needs == "power" for name in names) else []


def unstarred(view: SeriesView) -> list[str]:
    """The note where the operating point cannot be drawn on these axes."""
    point = next((each for each in view.settings if each.chosen), None)
    missing = [metric(name).label for name in view.axes if point is not None and name not in point.metrics]
    if view.chosen is None or not (point is None or missing):
        return []
    why = f"it has no {' and no '.join(missing)}" if missing else "it is not among these points"
    return [f"★  the operating point {view.chosen.label} is not on these axes: {why}"]


_ENGINES = {"frontier-sim": "simulated engine", "virtual": "simulated engine in virtual time"}
"""The names of the embedded engine, by how it identifies itself."""


def foot_line(provenance: Provenance | None) -> str:
    """Model, engine and hardware, date, kind of load, run."""
    known = provenance or Provenance(loop=None)
    engine = (known.server or "").partition(" (")[0]
    engine = _ENGINES.get(engine.rpartition("+")[2], engine)
    on = " on ".join(part for part in (engine, known.hardware) if part)
    run = f"run {known.run}" if known.run else None
    return joined([clean(part) for part in (known.model, on, known.created, known.loop or known.remark, run) if part])


def describe(views: Sequence[SeriesView], title: str) -> str:
    """A description of the picture for a reader who cannot see it."""
    sentences = [title + "."]
    for view in views:
        across, up = view.axes
        on = ", ".join(str(c) for c in sorted(view.frontier.members)) or "none"
        axes = f"{metric(up).label} against {metric(across).label}"
        sentences.append(f"{view_name(view)}: {axes}; concurrencies on the frontier: {on}.")
    return " ".join(sentences)


# --- words in a panel


def level_words(name: str, of: str, value: float, gpus: int | None) -> str:
    """'limit 18 ms', beside its line. Where rates are drawn per GPU, both the promised and the
    drawn value.
    """
    per = f" ({value_text(of, value, gpus)})" if per_gpu(of, gpus) > 1 else ""
    return f"{name} {limit_value_text(of, value)}{per}"


def tooltip(view: SeriesView, point: SettingView) -> str:
    """The setting's row of the table, a line each: the setting, both axes, the limited metrics with
    their bounds, the verdict.
    """
    limits, words = view.sla, f"{point.words}{RUN_HERE * point.chosen}"
    limited = {limit.metric for limit in limits}
    shown = [name for name in reversed(view.axes) if name not in limited and name in point.metrics]
    lines = [f"{metric(name).label} {value_text(name, point.metrics[name].value, view.gpus)}" for name in shown]
    lines += [evidence_text(point.metrics.get(limit.metric), limit) for limit in limits]
    return "\n".join(clean(line) for line in (point.load.label, *lines, words))


def star_words(view: SeriesView, answer: AnswerView) -> str:
    """'run here: c=52, 2,888 tok/s' beside the operating point, or what the nearest setting to one
    is.
    """
    head, up = answer.star, view.axes[1]
    known = answer.decision.metrics
    rate = f", {named_value(up, known[up].value, view.gpus)}" if up in known else ""
    return f"{head}: {(answer.shown or NO_LOAD).label}{rate}"
