"""The frontier picture as figure data: throughput against latency, the SLA, the operating point and
its neighbours.

The title is the decision. Each series has a panel; several panels share their scales, under a table
of their answers.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from frontier.core.model.metrics import metric
from frontier.show.picture.axes import bar_of, metric_axis, rising_axis
from frontier.show.picture.bounds_panel import bounds_panel
from frontier.show.picture.data import (
    Axis,
    Line,
    LineKind,
    Mark,
    Panel,
    Picture,
    Role,
    Rule,
    Theme,
    role_of,
)
from frontier.show.picture.labels import (
    answer_rows,
    describe,
    foot_line,
    headline,
    legend_line,
    level_words,
    notes_of,
    panel_names,
    star_words,
    tooltip,
    view_name,
)
from frontier.show.view.series_view import DrawnRoofline, SeriesView, SettingView
from frontier.show.view.wording import Provenance, deciding_bound

FEW = 10
"""The number of settings up to which one of several series has all of them numbered."""


def save(picture: Picture, path: Path, *, width: int | None = None, theme: Theme = "light") -> None:
    """Write the picture as the path's suffix says (png, svg, pdf); `width` in pixels is that of a
    PNG. ValueError for another suffix.
    """
    from frontier.show.picture.draw import render
    from frontier.store.files import write_output

    write_output(path, render(picture, path.suffix.removeprefix(".").lower(), width=width, theme=theme))


def small_multiples(views: Sequence[SeriesView], *, footer: Provenance | None = None) -> Picture:
    """One panel per view, in reading order, under one title, one legend line and, for several, a
    table of answers.

    ValueError without a view.
    """
    if not views:
        raise ValueError("a picture needs at least one frontier")
    one, title = len(views) == 1, headline(views)
    names = [view_name(views[0])] if one else panel_names(views)
    strip = bounds_panel(views, names)
    tall = 430.0 if strip else 505.0  # a page shows both on its first screen
    shared = None if one else shared_axes(views)
    panels = tuple(_panel(view, name, shared, alone=one) for view, name in zip(views, names, strict=True))
    notes = [
        note
        for view, panel, name in zip(views, panels, names, strict=True)
        for note in notes_of(view, panel, "" if one else f"{name}:  ")
    ]
    if any(view.expected for view in views):
        notes.append("predictions are of means, and so are these axes; none of them is an operating point")
    return Picture(
        "frontier",
        title,
        panels,
        legend=legend_line(views, own_axes=shared is None and not one),
        rows=() if one else answer_rows(views, names),
        notes=tuple(notes),
        foot=foot_line(footer),
        description=describe(views, title),
        columns=min(3, math.ceil(math.sqrt(len(views)))),
        tall=tall if one else 300.0,
        width=1100 if len(views) <= 4 else 1500,
        strip=strip,
    )


# --- axes


def axes_of(views: Sequence[SeriesView], tall: float) -> tuple[Axis, Axis]:
    """Axes that hold every valid point of the views, which have the same objectives and GPUs.

    An excluded point stretches them to at most three times the range of the valid points, and is
    named below where it lies beyond. Where that would leave a quarter of the points off the panel,
    the axes hold all of them. `tall` is the panel's height in pixels; the top has room for the
    words on the limits.
    """
    across, up = views[0].axes
    points = [p for view in views for p in view.drawable]
    healthy = [p for view in views for p in view.drawable if p.usable] or points
    xs = [v for p in healthy if math.isfinite(v := p.metrics[across].value)]
    ys = [v for p in healthy if math.isfinite(v := p.metrics[up].value)]
    finite = [p for p in points if math.isfinite(p.metrics[across].value) and math.isfinite(p.metrics[up].value)]
    near = [
        p
        for p in finite
        if xs and ys and min(xs) / 3 <= p.metrics[across].value <= max(xs) * 3 and p.metrics[up].value <= 3 * max(ys)
    ]
    if len(finite) - len(near) > max(1, len(finite) // 4) and len(healthy) < 4:
        near = finite
    bounded = [p.metrics[up] for p in healthy if p.metrics[up].high < math.inf]
    at_edge = [
        p for p in points if math.isinf(p.metrics[across].value) and p.metrics[up].value <= 3 * max(ys, default=0)
    ]
    tops = [p.metrics[up].value for p in (*near, *at_edge)] + [min(e.high, 1.2 * e.value) for e in bounded]
    tops += [
        v.roofline.ceiling for v in views if v.roofline and ys and v.roofline.ceiling <= 1.6 * max(tops, default=0)
    ]
    expected = [e for view in views for e in view.expected]
    near_x = [p.metrics[across].value for p in near]
    near_x += [end for _, a, _ in expected for end in (a.low, a.value, a.high) if 0 < end < math.inf]
    tops += [end for _, _, b in expected for end in (b.value, b.high) if end < math.inf]
    sla = list(dict.fromkeys(limit for view in views for limit in view.sla))
    limits = [limit.promise for limit in sla if limit.metric == across]
    ends = [end for p in healthy for end in (p.metrics[across].low, p.metrics[across].high)]
    x = metric_axis(across, near_x, ends, limits, views[0].gpus)
    return x, rising_axis(up, tops, views[0].gpus, 44 / tall)


def shared_axes(views: Sequence[SeriesView]) -> tuple[Axis, Axis] | None:
    """The axes that several panels share. None where their objectives or GPUs differ, where there
    is nothing to draw, or where the smallest panel would be squeezed into a corner of the largest.
    """
    if len({(view.axes, view.gpus) for view in views}) > 1 or not any(view.drawable for view in views):
        return None
    up = views[0].axes[1]
    tops = [max((p.metrics[up].value for p in view.drawable if p.point.valid), default=0.0) for view in views]
    tops = [top for top in tops if 0 < top < math.inf]
    return axes_of(views, 300.0) if tops and max(tops) <= 8 * min(tops) else None


# --- one panel


def _panel(view: SeriesView, name: str, shared: tuple[Axis, Axis] | None, *, alone: bool) -> Panel:
    points = view.drawable
    x, y = shared or axes_of([view], 505.0 if alone else 300.0)
    marks = [_as_shown(mark, view, alone=alone) for p in points if (mark := mark_of(p, view, x, y)) is not None]
    marks = marks if alone else telling(marks)
    lines = staircase([m for m in marks if m.role is Role.FRONTIER], view, x, y)
    lines += roofline_of(view, x, y)
    predicted = _predicted(view, x, y)
    lines += [Line("", tuple((m.x, m.y) for m in predicted), Role.PREDICTED, "predicted")] if predicted else []
    return Panel(
        name,
        x,
        y,
        tuple(lines),
        (*marks, *predicted),
        rules_of(view, x, y),
        region=region_of(view, x, y),
        compass=bool(marks),
    )


def _as_shown(mark: Mark, view: SeriesView, *, alone: bool) -> Mark:
    """The mark as shown: the operating point with a star, the nearest setting to one with a ring.
    `alone` in a picture, it has words too.
    """
    answer = view.answer
    if answer is None or not answer.star or mark.load != answer.shown:
        return mark
    words = star_words(view, answer) if alone and not mark.beyond else ""
    star = None if answer.chosen is None else Role.OPERATING
    return replace(mark, star=star, ring=star is None, words=words)


def mark_of(point: SettingView, view: SeriesView, x: Axis, y: Axis) -> Mark | None:
    """The point on these axes; None when it lies outside them."""
    across, up = point.metrics[x.metric], point.metrics[y.metric]
    beyond, at_y = math.isinf(across.value), up.value * y.scale
    at_x = x.value(0.985) if beyond else across.value * x.scale
    if not (math.isfinite(at_x) and math.isfinite(at_y) and x.holds(at_x) and y.holds(at_y)):
        return None
    c, role = point.load, role_of(point)
    return Mark(
        c,
        at_x,
        at_y,
        role,
        None if beyond else bar_of(across, x),
        bar_of(up, y),
        "" if beyond else _number(point),
        sign=point.sign,
        beyond=beyond,
        tooltip=tooltip(view, point),
        bound=None if beyond else _bound(point, view, x),
    )


def _bound(point: SettingView, view: SeriesView, x: Axis) -> float | None:
    """Where the bound that decides by the limit on this axis lies; None without one, or beyond."""
    limit = next((limit for limit in view.sla if limit.metric == x.metric), None)
    bound = None if limit is None or not point.sign else deciding_bound(point.metrics[x.metric], limit)
    return bound * x.scale if bound is not None and x.holds(bound * x.scale) else None


def _number(point: SettingView) -> str:
    """The number of a setting, with the limit that it breaks where no axis shows that."""
    return point.load.bare + (f": over {metric(point.broken).label}" if point.broken is not None else "")


def telling(marks: Sequence[Mark]) -> list[Mark]:
    """The marks of one of several series. With more than FEW, only the ends, the powers of two and
    the operating point are numbered: hundreds of numbers could not be read.
    """
    ends = {mark.load for mark in (*marks[:1], *marks[-1:])}

    def is_told(mark: Mark) -> bool:
        c = round(mark.load)
        return len(marks) <= FEW or bool(mark.star) or mark.ring or c in ends or c & (c - 1) == 0

    return [mark if is_told(mark) else replace(mark, text="") for mark in marks]


def _predicted(view: SeriesView, x: Axis, y: Axis) -> list[Mark]:
    """The predictions on these axes; the last one has the words on them."""
    places = [(c, a, b) for c, a, b in view.expected if x.holds(a.value * x.scale) and y.holds(b.value * y.scale)]
    return [
        Mark(
            c,
            a.value * x.scale,
            b.value * y.scale,
            Role.PREDICTED,
            bar_of(a, x),
            bar_of(b, y),
            f"{c:g} predicted" if i == len(places) else f"{c:g}",
        )
        for i, (c, a, b) in enumerate(places, 1)
    ]


def staircase(
    members: Sequence[Mark], view: SeriesView, x: Axis, y: Axis, role: Role = Role.FRONTIER, name: str = ""
) -> list[Line]:
    """The staircase of what is attained at each x: level from a setting to the next worse x, then
    up to that setting.

    Nothing was measured between settings, so no line is drawn through them. The last level runs to
    the worst end.
    """
    if not members:
        return []
    ordered = sorted(members, key=lambda m: (x.fraction(m.x), y.fraction(m.y)), reverse=x.rising_is_better)
    corners = [(ordered[0].x, ordered[0].y)]
    for mark in ordered[1:]:
        corners += [(mark.x, corners[-1][1]), (mark.x, mark.y)]
    corners.append((x.worst, corners[-1][1]))
    return [Line(name, tuple(corners), role, "stair", band=_band(view, x, y))]


def _band(view: SeriesView, x: Axis, y: Axis) -> tuple[tuple[float, float, float], ...]:
    """The attainment band in display units, cut to the panel; there is no band where nothing is
    attained.
    """
    cut = []
    for at, low, high in view.band:
        if math.isfinite(at) and x.holds(at * x.scale) and math.isfinite(low) and math.isfinite(high):
            ends = [min(max(value * y.scale, y.low), y.high) for value in (low, high)]
            cut.append((at * x.scale, ends[0], ends[1]))
    if not cut:
        return ()
    worst = (x.worst, *cut[0 if x.rising_is_better else -1][1:])
    return (worst, *cut) if x.rising_is_better else (*cut, worst)


def region_of(view: SeriesView, x: Axis, y: Axis) -> tuple[float, float, float, float] | None:
    """The part of the panel within the limits that these axes can show."""
    edges, limited = [x.low, x.high, y.low, y.high], False
    for (axis, start), limit in itertools.product(((x, 0), (y, 2)), view.sla):
        if limit.metric == axis.metric:
            limited = True
            side = start + (0 if axis.rising_is_better else 1)
            edges[side] = min(max(limit.promise * axis.scale, axis.low), axis.high)
    if not limited or edges[0] >= edges[1] or edges[2] >= edges[3]:
        return None
    return edges[0], edges[1], edges[2], edges[3]


def rules_of(view: SeriesView, x: Axis, y: Axis) -> tuple[Rule, ...]:
    """The limits on these axes as lines across the panel, comfort marks dashed, with their
    words.
    """
    rules = []
    sides: tuple[tuple[Literal["x", "y"], Axis], ...] = (("x", x), ("y", y))
    for (side, axis), limit in itertools.product(sides, view.sla):
        ends = ((limit.promise, "limit", False), (limit.comfort, "comfort", True))
        for value, name, dashed in ends if limit.metric == axis.metric else ():
            if value is not None and axis.holds(value * axis.scale):
                text = level_words(name, limit.metric, value, view.gpus)
                rules.append(Rule(side, value * axis.scale, (text,), dashed=dashed))
    return tuple(rules)


def roofline_of(view: SeriesView, x: Axis, y: Axis) -> list[Line]:
    """The roofline where it fits the panel, with the data sheet's roofline dashed beside it."""
    roofline = view.roofline
    if roofline is None:
        return []
    stated = [] if roofline.stated is None else _roofline_line(roofline.stated, x, y, "fit")
    return stated + _roofline_line(roofline, x, y, "roofline")


def _roofline_line(roofline: DrawnRoofline, x: Axis, y: Axis, kind: LineKind) -> list[Line]:
    """A roofline, beginning at the better latency. A curve is cut to the axes, and its level end is
    drawn to the edge.
    """
    best = x.high if x.rising_is_better else x.low
    curve = [(a * x.scale, b * y.scale) for a, b in roofline.curve] or [(best, roofline.ceiling * y.scale)]
    corners = sorted([*curve, (x.worst, roofline.ceiling * y.scale)], reverse=x.rising_is_better)
    before = [b for a, b in corners if not x.holds(a) and (a > best) == x.rising_is_better]
    corners = [*((best, b) for b in sorted(before)[-1:]), *corners]
    inside = tuple(corner for corner in corners if x.holds(corner[0]) and y.holds(corner[1]))
    return [Line(kind if kind == "roofline" else "", inside, Role.ROOFLINE, kind)] if len(inside) > 1 else []
