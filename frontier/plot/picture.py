"""What a picture of a frontier shows, as data: computed apart from drawing, so that it can be tested without pixels.

The title is the decision, the subtitle the key, the foot the provenance; one (deployment, shape) per panel.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from frontier.decide.wording import Provenance, setting
from frontier.model import Decision, Estimate, Frontier, Limit, Point, Verdict
from frontier.plot.annotate import annotated, limit_lines
from frontier.plot.axes import Axis, horizontal, vertical
from frontier.plot.data import (
    NBSP,
    SURE,
    TOGETHER,
    Light,
    View,
    breaks,
    describe,
    foot_line,
    headline,
    hidden_limits,
    key_line,
    notes_of,
    panel_name,
    panel_names,
    role_of,
    view_sentence,
)
from frontier.plot.layout import Rect, line_height, text_width, wrap
from frontier.plot.picture_model import (
    TICKS,
    TICKS_SMALL,
    Bar,
    Label,
    Mark,
    Panel,
    Picture,
    Predicted,
    Role,
    Rule,
    Stair,
)

__all__ = ["Light", "Picture", "View", "picture", "small_multiples"]

WIDTH, NARROW = 1100, 520
TITLE, SUBTITLE, NOTE, FOOT = 16.0, 11.0, 9.5, 9.0
Band = tuple[tuple[float, float, float], ...]
STUB = 0.028
"""Length of the arrow of an interval without an end, as a share of the axis."""


def picture(
    points: Sequence[Point],
    frontier: Frontier,
    decision: Decision | None = None,
    *,
    limits: Sequence[Limit] = (),
    footer: Provenance | None = None,
    light: Light | None = None,
    gpus: int | None = None,
    x: str | None = None,
) -> Picture:
    """The picture of one frontier. ValueError when `x` is not one of its objectives."""
    return small_multiples([View(points, frontier, decision, limits, light, gpus, x)], footer=footer)


def small_multiples(
    views: Sequence[View], *, footer: Provenance | None = None, titled: bool = True, narrow: bool = False
) -> Picture:
    """One panel per view, in reading order, under one title and one key. ValueError without a view.

    `titled` is False where the page around it says the title already. `narrow` is for a phone: panels below each other.
    """
    if not views:
        raise ValueError("a picture needs at least one frontier")
    found = _laid_out(views, footer, titled, narrow)
    crowded = [panel.unlabelled for panel in found.panels]
    if not any(crowded):
        return found
    # Only a picture that was laid out knows which labels found no room; naming them below moves its panels up a little.
    unsaid = [
        f"{head}too crowded to be numbered: {', '.join(map(setting, of))}"
        for head, of in zip(_heads(views), crowded, strict=True) if of
    ]  # fmt: skip
    return _laid_out(views, footer, titled, narrow, unsaid, found.panels)


def _heads(views: Sequence[View]) -> list[str]:
    """How a note begins: with the panel it is of, where there are several."""
    return [f"{name}:  " for name in panel_names(views)] if len(views) > 1 else [""]


def _laid_out(
    views: Sequence[View], footer: Provenance | None, titled: bool, narrow: bool, more: Sequence[str] = (),
    done: Sequence[Panel] = (),
) -> Picture:  # fmt: skip
    """The picture, with `more` notes; panels that are `done` are only put in their places."""
    one = len(views) == 1
    columns = 1 if one or narrow else 2 if len(views) <= 4 else 3
    rows = math.ceil(len(views) / columns)
    width = NARROW if narrow else WIDTH if columns < 3 else 1500
    most = 8 if narrow else 3
    title = headline(views)
    head = wrap(TOGETHER.sub(NBSP, title), TITLE, width - 28, lines=most, bold=True) if titled else ()
    heads = zip(views, _heads(views), strict=True)
    notes = [line for view, head in heads for line in (*notes_of(view, head), *_too_far(view, head))]
    if any(view.expected for view in views):
        notes.append("◇  predictions are of means, and so are these axes; none of them is an operating point")
    note_lines = [line for note in (*notes, *more) for line in wrap(note, NOTE, width - 28, lines=most - 1)]
    above = 14 + len(head) * line_height(TITLE) + (12 if titled else 0)
    key_left = 14 if narrow else 102 if one else 86
    key_lines = wrap(key_line(views), SUBTITLE, width - key_left - 18, lines=most)
    foot_lines = wrap(foot_line(views, footer), FOOT, width - 28, lines=most)
    below = 16 + len(foot_lines) * line_height(FOOT) + len(note_lines) * line_height(NOTE) + (6 if note_lines else 0)
    panel_height = 300.0 if not one else 400.0 if narrow else 505.0
    row_height = panel_height + 62 + (0 if one else 48)
    height = math.ceil(above + len(key_lines) * line_height(SUBTITLE) + 8 + rows * row_height + below)
    key_top = height - above
    plot_top = key_top - len(key_lines) * line_height(SUBTITLE) - 8
    places = boxes(len(views), columns, width, plot_top, panel_height, row_height, one)
    names = [panel_name(views[0])] if one else panel_names(views)
    panels = [panel.raised(box.y0 - panel.box.y0) for panel, box in zip(done, places, strict=bool(done))] or [
        _panel(view, name, box, alone=one) for view, name, box in zip(views, names, places, strict=True)
    ]
    labels = [
        *text_lines(head, 14, height - 14, TITLE, Role.TEXT, bold=True),
        *text_lines(key_lines, key_left, key_top, SUBTITLE, Role.QUIET),
        *text_lines(note_lines, 14, below - 2, NOTE, Role.QUIET),
        *text_lines(foot_lines, 14, 12 + len(foot_lines) * line_height(FOOT), FOOT, Role.QUIET),
    ]
    return Picture(title, width, height, tuple(panels), tuple(labels), describe(views, title))


def boxes(
    number: int, columns: int, width: int, top: float, panel_height: float, row_height: float, one: bool
) -> list[Rect]:
    """Where the panels' axes lie."""
    left, right = (102.0, 26.0) if one else (86.0, 22.0)
    cell = width / columns
    found = []
    for i in range(number):
        row, column = divmod(i, columns)
        y1 = top - row * row_height - (0 if one else 46)
        found.append(Rect(column * cell + left, y1 - panel_height, (column + 1) * cell - right, y1))
    return found


def text_lines(
    lines: Iterable[str], x: float, top: float, size: float, role: Role, *, bold: bool = False
) -> list[Label]:
    """One label per line of text, going down from `top`; a separator does not hang at the end of a line."""
    lines = [line.strip(f" ·{NBSP}") for line in lines]
    step = line_height(size)
    return [
        Label((line,), Rect(x, top - (i + 1) * step, x + text_width(line, size, bold=bold), top - i * step), role, size,
              bold=bold)
        for i, line in enumerate(lines)
    ]  # fmt: skip


def _panel(view: View, name: str, box: Rect, *, alone: bool) -> Panel:
    across, up = view.axes
    points = [p for p in view.mine if across in p.metrics and up in p.metrics]
    x, y = axes_of(view, points, box, alone=alone)
    marks = tuple(m for p in points if (m := mark_of(p, view.frontier, x, y, hidden_limits(view))) is not None)
    if not marks:
        x, y = replace(x, ticks=()), replace(y, ticks=())  # numbers on an axis without a value would be invented
    members = {m.concurrency: m for m in marks if m.role is Role.FRONTIER}
    chosen = view.decision.concurrency if view.decision else None
    undecided = view.decision is not None and chosen is None and view.decision.verdict is not Verdict.INVALID
    nearest = view.decision.candidate if view.decision and undecided else None
    healthy = [m for m in marks if m.role is not Role.FLAGGED and not m.beyond]
    by_concurrency = {m.concurrency: m for m in marks if not m.beyond}
    star, ring = by_concurrency.get(chosen or -1), by_concurrency.get(nearest or -1)
    panel = Panel(
        name=name,
        box=box,
        x=x,
        y=y,
        marks=marks,
        stairs=tuple(staircase(list(members.values()), x, y, band=attained(view, x, y))),
        paths=(tuple((m.x, m.y) for m in healthy),) if len(healthy) > 1 else (),
        region=region_of(view, x, y),
        rules=rules_of(view, x, y),
        light=_light(view, x, y),
        expected=_predicted(view, x, y),
        star=(star.x, star.y) if star else None,
        ring=(ring.x, ring.y) if ring else None,
    )
    light = (view.light.ceiling, view.light.assumption) if view.light else None
    title = None if alone else f"{panel.name}: {TOGETHER.sub(NBSP, view_sentence(view, brief=True))}"
    return annotated(panel, view.decision, points, view.sla, light, view.gpus, title)


def _predicted(view: View, x: Axis, y: Axis) -> tuple[Predicted, ...]:
    return tuple(
        Predicted(c, a.value * x.scale, b.value * y.scale, _bar(a, x), _bar(b, y))
        for c, a, b in view.expected
        if x.holds(a.value * x.scale) and y.holds(b.value * y.scale)
    )


def axes_of(view: View, points: Sequence[Point], box: Rect, *, alone: bool) -> tuple[Axis, Axis]:
    """Ranges that hold every healthy point; a flagged one stretches them to at most three times that.

    On top there is room for the words on the limits. Panels that are not `alone` have smaller text at their ticks.
    """
    across, up = view.axes
    healthy = [p for p in points if role_of(p, view.frontier) is not Role.FLAGGED] or list(points)
    xs = [v for p in healthy if math.isfinite(v := p.metrics[across].value)]
    ys = [v for p in healthy if math.isfinite(v := p.metrics[up].value)]
    near_x = [v for p in points if xs and min(xs) / 3 <= (v := p.metrics[across].value) <= max(xs) * 3]
    near_y = [v for p in points if ys and (v := p.metrics[up].value) <= 3 * max(ys)]
    bounded = [p.metrics[up] for p in healthy if p.metrics[up].high < math.inf]
    tops = near_y + [min(e.high, 1.2 * e.value) for e in bounded]
    if view.light and ys and view.light.ceiling <= 1.6 * max(ys):
        tops.append(view.light.ceiling)
    near_x += [end for _, a, _ in view.expected for end in (a.low, a.value, a.high) if 0 < end < math.inf]
    tops += [end for _, _, b in view.expected for end in (b.value, b.high) if end < math.inf]
    limits = [limit.promise for limit in view.sla if limit.metric == across]
    ends = [end for p in healthy for end in (p.metrics[across].low, p.metrics[across].high)]
    room = box.x1 - box.x0, TICKS if alone else TICKS_SMALL
    x = horizontal(across, near_x, ends, limits, view.gpus, room)
    head = 26 + 18 * max(1, len(limit_lines(view.sla, x, up)))
    return x, vertical(up, tops, view.gpus, head / (box.y1 - box.y0))


def _too_far(view: View, head: str) -> list[str]:
    """The note on points so far out that drawing them would squeeze the others."""
    across, up = view.axes
    points = [p for p in view.mine if across in p.metrics and up in p.metrics]
    x, y = axes_of(view, points, Rect(0, 0, 1000, 500), alone=True)
    far = [p.concurrency for p in points if mark_of(p, view.frontier, x, y) is None]
    return [f"{head}beyond the axes: {', '.join(map(setting, far))}"] if far else []


def mark_of(point: Point, frontier: Frontier, x: Axis, y: Axis, hidden: Sequence[Limit] = ()) -> Mark | None:
    """The point on these axes; None when it lies outside them. It is struck where it breaks a `hidden` limit."""
    across, up = point.metrics[x.metric], point.metrics[y.metric]
    at_y = up.value * y.scale
    beyond = math.isinf(across.value)
    at_x = x.value(0.985) if beyond else across.value * x.scale
    if not (math.isfinite(at_x) and math.isfinite(at_y) and x.holds(at_x) and y.holds(at_y)):
        return None
    c = point.concurrency
    role = role_of(point, frontier)
    return Mark(
        c, at_x, at_y, role,
        None if beyond else _bar(across, x), _bar(up, y),
        pale=role is Role.FRONTIER and frontier.probability.get(c, 1.0) < SURE, beyond=beyond,
        struck=any(breaks(point, limit) for limit in hidden),
    )  # fmt: skip


def _bar(estimate: Estimate, axis: Axis) -> Bar | None:
    """The interval clipped to the axis; an infinite end becomes a short arrow; nothing where nothing is known."""
    low_open, high_open = math.isinf(estimate.low), math.isinf(estimate.high)
    if (low_open and high_open) or estimate.low == estimate.high:
        return None
    middle = axis.fraction(estimate.value * axis.scale)
    low = axis.value(max(0.0, middle - STUB)) if low_open else max(axis.low, estimate.low * axis.scale)
    high = axis.value(min(1.0, middle + STUB)) if high_open else min(axis.high, estimate.high * axis.scale)
    return Bar(low, high, low_open, high_open)


def staircase(
    members: Sequence[Mark], x: Axis, y: Axis, role: Role = Role.FRONTIER, name: str | None = None, band: Band = ()
) -> list[Stair]:
    """What is attained at each x: level from a setting to the next worse x, then up to that setting.

    Between settings nothing was measured, so nothing is drawn through them; the last level runs to the worst end.
    """
    if not members:
        return []
    ordered = sorted(members, key=lambda m: (x.fraction(m.x), y.fraction(m.y)), reverse=x.rising_is_better)
    corners = [(ordered[0].x, ordered[0].y)]
    for mark in ordered[1:]:
        corners += [(mark.x, corners[-1][1]), (mark.x, mark.y)]
    corners.append((x.worst, corners[-1][1]))
    return [Stair(tuple(corners), role, name, band)]


def region_of(view: View, x: Axis, y: Axis) -> tuple[float, float, float, float] | None:
    """The part of the panel inside the limits that these axes can show."""
    edges = [x.low, x.high, y.low, y.high]
    any_limit = False
    for axis, at in ((x, 0), (y, 2)):
        for limit in view.sla:
            if limit.metric != axis.metric:
                continue
            any_limit = True
            value = limit.promise * axis.scale
            side = at + (0 if axis.rising_is_better else 1)
            edges[side] = min(max(value, axis.low), axis.high)
    if not any_limit or edges[0] >= edges[1] or edges[2] >= edges[3]:
        return None
    return edges[0], edges[1], edges[2], edges[3]


def rules_of(view: View, x: Axis, y: Axis) -> tuple[Rule, ...]:
    found = []
    for axis, name in ((x, "x"), (y, "y")):
        for limit in view.sla:
            if limit.metric != axis.metric:
                continue
            for value, comfort in ((limit.promise, False), (limit.comfort, True)):
                if value is not None and axis.holds(value * axis.scale):
                    found.append(Rule("x" if name == "x" else "y", value * axis.scale, comfort))
    return tuple(found)


def attained(view: View, x: Axis, y: Axis) -> Band:
    """The attainment band in display units, cut to the panel; where nothing is attained there is none."""
    cut = []
    for at, low, high in view.band:
        if math.isfinite(at) and x.holds(at * x.scale) and math.isfinite(low) and math.isfinite(high):
            ends = [min(max(value * y.scale, y.low), y.high) for value in (low, high)]
            cut.append((at * x.scale, ends[0], ends[1]))
    if cut and not x.rising_is_better:
        cut.append((x.high, *cut[-1][1:]))
    elif cut:
        cut.insert(0, (x.low, *cut[0][1:]))
    return tuple(cut)


def _light(view: View, x: Axis, y: Axis) -> tuple[tuple[float, float], ...]:
    """The speed of light where it fits the picture; a curve is cut to the axes, its level end drawn out to the edge."""
    light = view.light
    if light is None:
        return ()
    shown = y.holds(light.ceiling * y.scale)
    if not light.curve:
        return ((x.low, light.ceiling * y.scale), (x.high, light.ceiling * y.scale)) if shown else ()
    curve = [(a * x.scale, b * y.scale) for a, b in light.curve]
    inside = sorted((a, b) for a, b in curve if x.holds(a) and y.holds(b))
    before = max((b for a, b in curve if (a > x.high if x.rising_is_better else a < x.low)), default=math.inf)
    start = [(x.high if x.rising_is_better else x.low, before)] if y.holds(before) else []
    end = [(x.worst, light.ceiling * y.scale)] if shown else []
    inside = [*end, *inside, *start] if x.rising_is_better else [*start, *inside, *end]
    return tuple(inside) if len(inside) > 1 else ()
