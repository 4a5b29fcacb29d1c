"""The panel of bounds: the answer and its neighbours against the tightest limit. Each has a row
with its value and the bound that decides; the limit is a line.

On the axes of the frontier settings near a limit lie within an inch, where a bound cannot be told
from the limit.
"""

from collections.abc import Sequence
from dataclasses import replace

from frontier.core.model.loads import SessionRate, bare, setting
from frontier.show.picture.axes import metric_axis
from frontier.show.picture.data import Axis, Bar, Mark, Panel, Role, Rule, role_of
from frontier.show.picture.labels import tooltip
from frontier.show.view.figures import tightest_figure
from frontier.show.view.series_view import SeriesView, SettingView
from frontier.show.view.wording import beside_limit, deciding_bound, limit_value_text

NEAR = 0.15
"""A value is near the limit when it differs from it by at most this share."""
MOST = 10
"""The most rows."""
FAR = 2.0
"""The multiple of a limit beyond which a value is drawn at the edge."""


def bounds_panel(view: SeriesView) -> Panel | None:
    """The panel of bounds; None without a limit that was measured at the answer and a neighbour."""
    binding = tightest_figure(view.decision) if view.decision is not None else None
    limit = binding.limit if binding is not None else None
    rows = _rows(view, limit.metric, limit.promise) if limit is not None and limit.promise else []
    if limit is None or len(rows) < 2:
        return None
    bounds = [deciding_bound(p.metrics[limit.metric], limit) for p in rows]
    values = [p.metrics[limit.metric].value for p in rows]
    ends = [limit.promise * (1 - NEAR), limit.promise * (1 + NEAR)]
    close = [value for value in values if value <= FAR * limit.promise]
    known = [b for b in bounds if b is not None]
    x = metric_axis(limit.metric, [*close, *ends], known, (limit.promise,), view.gpus)
    names = tuple(f"{_row_name(p)}  {beside_limit(v, limit)}" for p, v in zip(rows, values, strict=True))
    y = Axis("", len(rows) - 0.5, -0.5, ticks=tuple(range(len(rows))), names=names)
    marks = [
        Mark(
            point.load,
            min(max(value * x.scale, x.low), x.value(0.985)),
            float(row),
            role_of(point),
            _to_bound(value * x.scale, None if bound is None else bound * x.scale, x, inside=limit.holds(value)),
            sign=point.sign,
            star=Role.OPERATING if point.chosen else None,
            beyond=value * x.scale > x.high,
            tooltip=tooltip(view, point),
        )
        for row, (point, value, bound) in enumerate(zip(rows, values, bounds, strict=True))
    ]
    title = f"{limit.of.label} against its limit of {limit_value_text(limit.metric, limit.promise)}: value and bound"
    if any(bound is None or not x.holds(bound * x.scale) for bound in bounds):
        x = replace(x, short_label=f"{x.short_label}; a line to the edge: no bound, or one beyond")
    at = limit.promise * x.scale
    inside = (at, x.high) if x.rising_is_better else (x.low, at)
    return Panel(title, x, y, marks=tuple(marks), rules=(Rule("x", at),), region=(*inside, y.high, y.low))


def _rows(view: SeriesView, name: str, promise: float) -> Sequence[SettingView]:
    """The answer (or the candidate) with the settings on both sides of it, and the others near the
    limit, ascending by load.
    """
    known = sorted((p for p in view.settings if p.point.valid and name in p.metrics), key=lambda p: p.load)
    shown = view.answer.shown if view.answer is not None else None
    at = next((i for i, p in enumerate(known) if p.load == shown), None)
    rows = [] if at is None else known[max(0, at - 1) : at + 2]

    def distance(point: SettingView) -> float:
        return abs(point.metrics[name].value / promise - 1)

    near = sorted((p for p in known if p not in rows and distance(p) <= NEAR), key=distance)
    return sorted((*rows, *near[: MOST - len(rows)]), key=lambda p: p.load)


def _row_name(point: SettingView) -> str:
    """The load of a row; there is no room for 'sessions'."""
    load = point.load
    return f"{bare(load)}/s" if isinstance(load, SessionRate) else setting(load)


def _to_bound(value: float, bound: float | None, axis: Axis, *, inside: bool) -> Bar:
    """A bar from the value to its bound, cut at the axis; without a bound, to the edge beyond the
    limit.
    """
    if bound is None:
        bound = axis.worst if inside else axis.low + axis.high - axis.worst
    low, high = sorted(min(max(end, axis.low), axis.high) for end in (value, bound))
    return Bar(low, high)
