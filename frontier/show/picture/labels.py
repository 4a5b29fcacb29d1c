"""The words of the frontier picture: title, table of answers, legend, notes and foot; limits and
operating points."""

import math
from collections.abc import Sequence
from dataclasses import replace

from frontier.core.decisions import Decision, Limit, Verdict
from frontier.core.loads import Rate, setting
from frontier.core.metrics import metric, per_gpu
from frontier.core.points import Point
from frontier.core.series import unnamed
from frontier.core.text import clean, clean_name, middle_cut
from frontier.show.costs import power_text
from frontier.show.numbers import binding_limit
from frontier.show.picture.data import Axis, Callout, Panel, Role, View
from frontier.show.sentences import decision_sentence, may_give, no_answer_words
from frontier.show.wording import (
    Provenance,
    apart,
    bound_words,
    flag_kinds,
    left_out,
    limit_value_text,
    limits_text,
    named_value,
    unproven_words,
    value_text,
)

NBSP = "\u00a0"
SEPARATOR = f"{NBSP}· "
OPEN_OR_OVER = (Verdict.MARGINAL, Verdict.UNPROVEN, Verdict.VIOLATES)
"""Verdicts of a measured setting that is not shown to keep the SLA."""


def view_name(view: View) -> str:
    """'1024/256', or 'fp8 · 1024/256' when the deployment has a name of its own."""
    return view.frontier.series.label(longest=40)


def panel_names(views: Sequence[View]) -> list[str]:
    """The names of several panels: what they differ in, the deployment, the shape, or both."""
    series = [view.frontier.series for view in views]
    shapes = [clean_name(of.shape.label) for of in series]
    if len({of.deployment for of in series}) == 1:
        return shapes
    names = apart([clean_name(of.deployment, 200) or "default" for of in series])
    if len(set(shapes)) == 1:
        return [middle_cut(name, 60) for name in names]
    return [f"{middle_cut(name, 40)} · {shape}" for name, shape in zip(names, shapes, strict=True)]


def headline(views: Sequence[View]) -> str:
    """The title: the decision of one view, or how many of several keep their SLA."""
    if len(views) == 1:
        return view_sentence(views[0])
    decided = [v.decision for v in views if v.decision is not None]
    shapes, deployments = {v.frontier.shape for v in views}, {v.frontier.deployment for v in views}
    what = "deployments" if len(shapes) == 1 and len(deployments) == len(views) else "workloads"
    if not decided:
        return f"The frontiers of {len(views)} {what}"
    met = sum(d.verdict is Verdict.MEETS for d in decided)
    promises = {limits_text(d.limits) for d in decided}
    promise = promises.pop() if len(promises) == 1 else "its SLA"
    if met == len(views):
        more = sum(d.next_step is not None for d in decided)
        open_ones = f"; {more} of them may give clearly more" if more else ""
        return f"{'Both' if met == 2 else f'All {met}'} {what} keep {promise}{open_ones}"
    some = f"None of the {len(views)} {what} is"
    if met:
        some = f"{met} of {len(views)} {what} {'is' if met == 1 else 'are'}"
    return f"{some} proven to keep {promise}"


def view_sentence(view: View) -> str:
    """The decision, or without an SLA the top of the frontier."""
    if view.decision is not None:
        return decision_sentence(view.decision, throughput=view.axes[1], gpus=view.gpus)
    best = _top(view)
    return f"{_top_words(view)} ({setting(best.concurrency)})" if best else _top_words(view)


def _top(view: View) -> Point | None:
    """The point of the frontier that is best upwards; None without one."""
    up = metric(view.axes[1])
    ends = [p for p in view.drawable if p.concurrency in view.frontier.members]
    return max(ends, key=lambda p: up.sign * p.metrics[up.name].value, default=None)


def _top_words(view: View) -> str:
    """'Up to 2,850 tok/s at p99 TTFT 396 ms'."""
    best, (across, up) = _top(view), view.axes
    if best is None:
        return "No setting gave a valid measurement"
    most = value_text(up, best.metrics[up].value, view.gpus)
    return f"Up to {most} at {metric(across).label} {value_text(across, best.metrics[across].value)}"


def answer_rows(views: Sequence[View], names: Sequence[str]) -> tuple[tuple[tuple[str, ...], Role], ...]:
    """The table of answers: a row per panel."""
    return tuple(
        ((name, *answer_cells(view)), Role.QUIET if view.chosen is None else Role.TEXT)
        for view, name in zip(views, names, strict=True)
    )


def answer_cells(view: View) -> tuple[str, ...]:
    """The operating point in columns: concurrency, throughput, the binding metric, its bound and
    its limit. Without one why there is none, in words.
    """
    decision, up = view.decision, view.axes[1]
    if decision is None or decision.concurrency is None:
        return (no_answer_words(decision) if decision else _top_words(view),)
    speed, limit = decision.metrics.get(up), binding_limit(decision)
    step = decision.next_step
    better = "" if step is None else f" ({may_give(replace(step, flags=()))})"  # why it is excluded is in the notes
    cells = [f"run at {decision.concurrency}{better}", named_value(up, speed.value, view.gpus) if speed else "–"]
    if limit and limit.metric in decision.metrics:
        estimate = decision.metrics[limit.metric]
        cells.append(f"{metric(limit.metric).label} {value_text(limit.metric, estimate.value)}")
        cells.append(bound_words(estimate, limit))
        cells.append(f"limit {limit_value_text(limit.metric, limit.promise)}")
    return tuple(cells)


def legend_line(views: Sequence[View], panels: Sequence[Panel], *, own_axes: bool) -> str:
    """The workload, and what the signs mean: only those that occur in the panels."""
    marks = [mark for panel in panels for mark in panel.marks]
    shapes, deployments = {v.frontier.shape for v in views}, {v.frontier.deployment for v in views}
    parts = [clean_name(name) for name in deployments if len(deployments) == 1 and not unnamed(name)]
    if len(shapes) == 1:
        (shape,) = shapes
        named = f"{clean_name(shape.name, 60)} · " if shape.name else ""
        parts.append(clean_name(shape.label, 60) if shape.mix else f"{named}ISL {shape.isl} / OSL {shape.osl}")
    if any(line.kind == "stair" for panel in panels for line in panel.lines):
        parts.append("staircase = measured frontier")
    return joined([*parts, *([] if not marks else sign_words(views, panels)), *(["own axes each"] if own_axes else [])])


def sign_words(views: Sequence[View], panels: Sequence[Panel]) -> list[str]:
    """What the signs in these panels mean."""
    marks = [mark for panel in panels for mark in panel.marks if mark.role is not Role.PREDICTED]
    roles = {mark.role for mark in marks}
    bars = [bar for mark in marks for bar in (mark.x_bar, mark.y_bar) if bar]
    bands = [step for panel in panels for line in panel.lines for step in line.band]
    known = any(p.metrics[name].has_interval for v in views for p in v.drawable for name in v.axes)
    loads = {
        c.arrivals if isinstance(c := point.concurrency, Rate) else "concurrency" for v in views for point in v.mine
    }
    numbers = loads.pop() if len(loads) == 1 else "concurrency"
    words = [f"numbers = {numbers}", "bars = 95% CI" if known else "intervals not known"]
    words += ["shade = 90% of resamples"] if any(low < high for _, low, high in bands) else []
    words += ["arrow = interval goes on"] if any(bar.open_low or bar.open_high for bar in bars) else []
    words += ["pale = may be dominated"] if any(mark.pale for mark in marks) else []
    words += ["✕ = dominated"] if Role.DOMINATED in roles else []
    words += ["slash = breaks another limit"] if any(mark.struck for mark in marks) else []
    words += ["○ = excluded"] if Role.FLAGGED in roles else []
    if any(view.expected for view in views):
        words += ["◇ dashed = predicted, not measured", "thin bars hold 95 of 100 predictions"]
    return words


def joined(parts: Sequence[str]) -> str:
    """Parts with dots between them, each kept on one line."""
    return SEPARATOR.join(part.replace(" ", NBSP) for part in parts)


def notes_of(view: View, panel: Panel, head: str) -> list[str]:
    """Under the panel: why points are excluded, and which could not be drawn. `head` says of which
    panel.
    """
    across = view.axes[0]
    reasons = [kind.text(most=6) for kind in flag_kinds(view.mine) if kind.fatal]
    notes = [f"○  {f'{NBSP}{SEPARATOR}{NBSP}'.join(reasons)}"] if reasons else []
    infinite = [p for p in view.mine if across in p.metrics and math.isinf(p.metrics[across].value)]
    if infinite:
        where = ", ".join(setting(p.concurrency) for p in infinite)
        notes.append(f"▷  at the edge: too many requests failed for a {metric(across).label} to exist: {where}")
    rest = [p for p in view.mine if p not in infinite]
    drawable = view.drawable
    notes += [f"○  {line}" for line in left_out([p for p in rest if p in drawable], view.frontier)]
    notes += [f"not drawn, {line}" for line in left_out([p for p in rest if p not in drawable], view.frontier)]
    drawn = {mark.concurrency for mark in panel.marks}
    if far := [setting(p.concurrency) for p in drawable if p.concurrency not in drawn]:
        notes.append(f"beyond the axes: {', '.join(far)}")
    return [f"{head}{note}" for note in (*notes, *unstarred(view))]


def unstarred(view: View) -> list[str]:
    """The note where the operating point cannot be drawn on these axes."""
    point = next((p for p in view.mine if p.concurrency == view.chosen), None)
    missing = [metric(name).label for name in view.axes if point is not None and name not in point.metrics]
    if view.chosen is None or not (point is None or missing):
        return []
    why = f"it has no {' and no '.join(missing)}" if missing else "it is not among these points"
    return [f"★  the operating point {setting(view.chosen)} is not on these axes: {why}"]


def foot_line(views: Sequence[View], provenance: Provenance | None) -> str:
    """Model, server, hardware, loop, repeats, n, errors, run."""
    known = provenance or Provenance(loop=None)
    points = [p for v in views for p in v.mine]
    parts = [known.remark, known.model, f"server {known.server}" if known.server else None, known.hardware, known.loop]
    if points:
        repeats, n = sorted({p.repeats for p in points}), sorted(p.n for p in points if p.n) or [0]
        parts.append(f"{_span(repeats[0], repeats[-1])} repeat{'' if repeats[-1] == 1 else 's'}")
        parts.append(f"n = {_span(n[0], n[-1])} per point" if n[0] else "n not known")
    rates = [(p.metrics["error_rate"].value, p.n) for p in points if "error_rate" in p.metrics]
    if rates and (total := sum(n for _, n in rates)):
        parts.append(f"{sum(r * n for r, n in rates) / total * 100:.2g}% errors")
    if any(metric(name).needs == "power" for v in views for name in (*v.axes, *(limit.metric for limit in v.sla))):
        parts.append(power_text(p.power for p in points if p.power))
    parts.append(f"run {known.run}" if known.run else None)
    return joined([clean(part) for part in parts if part])


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def describe(views: Sequence[View], title: str) -> str:
    """For a reader who cannot see the picture."""
    sentences = [title + "."]
    for view in views:
        across, up = view.axes
        on = ", ".join(str(c) for c in sorted(view.frontier.members)) or "none"
        axes = f"{metric(up).label} against {metric(across).label}"
        sentences.append(f"{view_name(view)}: {axes}; concurrencies on the frontier: {on}.")
    return " ".join(sentences)


# --- words in a panel


def level_words(limit: Limit, gpus: int | None) -> str:
    """A limit on the vertical axis: as promised, and where rates are drawn per GPU also so."""
    per = f"  ({value_text(limit.metric, limit.promise, gpus)})" if per_gpu(limit.metric, gpus) > 1 else ""
    return f"SLA  {limit}{per}"


def limit_lines(limits: Sequence[Limit], x: Axis, up: str) -> list[str]:
    """The words on limits that are not on the vertical axis `up`: those on the horizontal one
    first.
    """
    here = [limit for limit in limits if limit.metric == x.metric]
    there = [limit for limit in limits if limit.metric not in (x.metric, up)]
    lines = []
    for limit in here:
        value, beyond = limit.promise * x.scale, ""
        if not x.holds(value):
            beyond = "  (right of the picture)" if value > x.high else "  (left of the picture)"
        lines.append(f"SLA  {limit}{beyond}")
    if there:
        lines.append("limits these axes do not show:" if not here else "and, not on these axes:")
        lines += [str(limit) for limit in there]
    return lines + [f"dashed: comfort {limit.bound_text(limit.comfort)}" for limit in here if limit.comfort is not None]


def panel_words(view: View, panel: Panel) -> list[Callout]:
    """Words on the panel as a whole: limits without a line of their own, and the roofline's height
    and assumption.
    """
    lines = limit_lines(view.sla, panel.x, panel.y.metric)
    on_a_rule = any(rule.axis == "x" and rule.lines for rule in panel.rules)
    words = [Callout(tuple(lines), Role.SLA)] if lines and not on_a_rule else []
    if view.light:
        level = view.light.ceiling * panel.y.scale
        above = "" if panel.y.holds(level) else "  above the picture ↑"
        height = f"roofline  {value_text(panel.y.metric, view.light.ceiling, view.gpus)}{above}"
        words.append(Callout((height, clean(view.light.assumption)), Role.ROOFLINE, level=level))
    return words


def callouts(view: View, panel: Panel, *, brief: bool) -> list[Callout]:
    """The operating point (or the nearest to one), then what the step above it is. `brief`: only
    that, as a table has the operating points.
    """
    decision = view.decision
    if decision is None:
        return []
    words = []
    star = next((m for m in panel.marks if (m.star or m.ring) and not m.beyond), None)
    chosen = decision.shown
    if star is not None and chosen is not None and not brief:
        lines = _chosen_lines(panel, decision, chosen, view.gpus)
        words.append(Callout(lines, Role.OPERATING, lines[0], (star.x, star.y), 105.0))
    for concurrency, lines, reason in _next_lines(panel, decision):
        mark = next((m for m in panel.marks if m.concurrency == concurrency and not m.beyond), None)
        if mark is not None:
            role, short = mark.role, f"{_at(concurrency)}: {reason}"
            role = Role.QUIET if role is Role.DOMINATED else role
            place, away = (mark.x, mark.y), 50.0 if brief else 90.0
            words.append(Callout((short,) if brief else lines, role, short, place, away))
    return words


def _at(load: int) -> str:
    """A setting in a callout: 'c = 64', '2.5 req/s'."""
    return setting(load).replace("=", " = ")


def _chosen_lines(panel: Panel, decision: Decision, chosen: int, gpus: int | None) -> tuple[str, ...]:
    kinds = {Verdict.VIOLATES: "closest", Verdict.INVALID: "not valid"}
    head = "operating point" if decision.concurrency is not None else kinds.get(decision.verdict, "not proven")
    lines = [f"{head}  {_at(chosen)}"]
    if (speed := decision.metrics.get(panel.y.metric)) is not None:
        lines.append(named_value(panel.y.metric, speed.value, gpus))
    limit = binding_limit(decision)
    names = list(dict.fromkeys([*([limit.metric] if limit else []), panel.x.metric]))
    for name in names:
        if (estimate := decision.metrics.get(name)) is None:
            continue
        lines.append(f"{metric(name).label} {value_text(name, estimate.value)}")
        if limit is not None and name == limit.metric:
            lines.append(bound_words(estimate, limit))
    return tuple(lines)


def _next_lines(panel: Panel, decision: Decision) -> list[tuple[int, tuple[str, ...], str]]:
    """The step not taken, and the first setting above that is not inside for a reason the axes do
    not show: at length, and in a word or two.
    """
    steps: list[tuple[int, tuple[str, ...], str]] = []
    if (step := decision.rejected) is not None:
        gain = f"{_at(step.concurrency)}: {step.gain * 100:+.0f}% throughput"
        cost = f"for {step.cost:.2g}× {metric(step.metric).label}: not taken"
        why = "within the noise: not taken" if step.tie else cost
        steps.append((step.concurrency, (gain, why), "not taken"))
    chosen, reasons = decision.concurrency, decision.explanation.settings
    above = (r for r in reasons if chosen is not None and r.settings[0] > chosen and r.verdict in OPEN_OR_OVER)
    near = next(above, None)
    if near is None or near.settings[0] in {c for c, *_ in steps}:
        return steps
    (c,), limit, value = near.settings, near.limit, near.estimate
    if near.verdict is Verdict.MARGINAL:
        steps.append((c, (f"{_at(c)}: unresolved, its interval", "crosses the limit"), "unresolved"))
    elif near.verdict is Verdict.UNPROVEN:
        steps.append((c, (f"{_at(c)}: not proven,", unproven_words(value, near.need)), "not proven"))
    elif limit is not None and limit.metric not in (panel.x.metric, panel.y.metric) and value:
        label, most = metric(limit.metric).label, limit_value_text(limit.metric, limit.promise)
        short = f"{label} too {'high' if metric(limit.metric).better == 'lower' else 'low'}"
        steps.append((c, (f"{_at(c)}: {label}", f"{value_text(limit.metric, value.value)}, limit {most}"), short))
    return steps
