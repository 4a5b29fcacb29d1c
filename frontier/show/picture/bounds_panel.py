"""The panel of bounds, for settings that crowd at the tightest limit. Each has a row with its
value and the bound that decides; the limit is a line.

On the axes of the frontier these settings lie within an inch, where a bound cannot be told from the
limit.
"""

from dataclasses import replace

from frontier.core.model.loads import SessionRate, bare, setting
from frontier.show.picture.axes import metric_axis
from frontier.show.picture.data import Axis, Bar, Mark, Panel, Role, Rule, role_of
from frontier.show.picture.labels import tooltip
from frontier.show.view.figures import tightest_figure
from frontier.show.view.series_view import SeriesView, SettingView
from frontier.show.view.wording import deciding_bound, limit_value_text

NEAR = 0.15
"""A value is near the limit when it differs from it by at most this share."""
CROWD, MOST = 3, 10
"""The number of settings near the limit from which they get a panel, and the most rows of it."""


def bounds_panel(view: SeriesView) -> Panel | None:
    """The panel of bounds; None where fewer than CROWD settings are near the binding limit."""
    binding = tightest_figure(view.decision) if view.decision is not None else None
    limit = binding.limit if binding is not None else None
    if limit is None or not limit.promise:
        return None

    def distance(point: SettingView) -> float:
        return abs(point.metrics[limit.metric].value / limit.promise - 1)

    known = [p for p in view.settings if p.point.valid and limit.metric in p.metrics]
    near = sorted((p for p in known if distance(p) <= NEAR), key=distance)[:MOST]
    if len(near) < CROWD:
        return None
    near.sort(key=lambda p: p.load)
    bounds = [deciding_bound(p.metrics[limit.metric], limit) for p in near]
    values = [p.metrics[limit.metric].value for p in near]
    ends = [limit.promise * (1 - NEAR), limit.promise * (1 + NEAR)]
    x = metric_axis(limit.metric, [*values, *ends], [b for b in bounds if b is not None], (limit.promise,), view.gpus)
    rows = Axis("", len(near) - 0.5, -0.5, ticks=tuple(range(len(near))), names=tuple(_row_name(p) for p in near))
    marks = [
        Mark(
            point.load,
            value * x.scale,
            float(row),
            role_of(point),
            _to_bound(value * x.scale, None if bound is None else bound * x.scale, x, inside=limit.holds(value)),
            sign=point.sign,
            star=Role.OPERATING if point.chosen else None,
            tooltip=tooltip(view, point),
        )
        for row, (point, value, bound) in enumerate(zip(near, values, bounds, strict=True))
    ]
    title = f"{limit.of.label} against its limit of {limit_value_text(limit.metric, limit.promise)}: value and bound"
    if any(bound is None or not x.holds(bound * x.scale) for bound in bounds):
        x = replace(x, short_label=f"{x.short_label}; a line to the edge: no bound, or one beyond")
    at = limit.promise * x.scale
    inside = (at, x.high) if x.rising_is_better else (x.low, at)
    region = (*inside, rows.high, rows.low)
    return Panel(title, x, rows, marks=tuple(marks), rules=(Rule("x", at),), region=region)


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
    low, high = sorted((value, bound))
    return Bar(max(low, axis.low), min(high, axis.high))
