"""The panel of bounds: each answer and its neighbours against the tightest limit. Each has a row
with its value and the bound that decides; the limit is a line.

On the axes of the frontier settings near a limit lie within an inch, where a bound cannot be told
from the limit.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from frontier.core.model.loads import SessionRate
from frontier.show.picture.axes import metric_axis, padded_axis
from frontier.show.picture.data import Axis, Bar, Mark, Panel, Role, Rule, role_of
from frontier.show.picture.labels import tooltip
from frontier.show.view.figures import tightest_figure
from frontier.show.view.series_view import Limit, SeriesView, SettingView
from frontier.show.view.wording import beside_limit, deciding_bound, limit_value_text

NEAR = 0.15
"""A value is near the limit when it differs from it by at most this share."""
MOST = 10
"""The most rows."""
FEW = 4
"""The most series whose neighbours have rows too."""
_FAR_OFF = 10.0
"""The ln of value over limit that an infinite value is drawn at."""
FAR = 2.0
"""The multiple of a limit beyond which a value is drawn at the edge."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A setting against the tightest limit of its series."""

    view: SeriesView
    name: str
    role: Role | None
    limit: Limit
    point: SettingView

    @property
    def value(self) -> float:
        return self.point.metrics[self.limit.metric].value

    @property
    def bound(self) -> float | None:
        return deciding_bound(self.point.metrics[self.limit.metric], self.limit)


def bounds_panel(views: Sequence[SeriesView], names: Sequence[str] = (), roles: Sequence[Role] = ()) -> Panel | None:
    """The panel of bounds; None without a limit that was measured at an answer and a neighbour. Its
    axis is that of the one limit, or where limits differ in percent of each. Several series have
    `names`, and `roles` as their colours where these tell them apart.
    """
    rows = [
        _Row(view, names[i] if len(views) > 1 else "", roles[i] if roles else None, limit, point)
        for i, view in enumerate(views)
        if (limit := _tightest(view)) is not None
        for point in _settings(view, limit, among=len(views))
    ]
    if len(rows) < 2:
        return None
    one = len({(row.limit, row.view.gpus) for row in rows}) == 1
    return _panel_of(rows, *(_own_axis(rows) if one else _shared_axis(rows)))


PlaceOfValue = Callable[[Limit, float], float]
"""Where a value of a limited metric lies on the axis."""


def _tightest(view: SeriesView) -> Limit | None:
    """The limit with the least headroom; None without one, or where it is 0."""
    binding = tightest_figure(view.decision) if view.decision is not None else None
    return binding.limit if binding is not None and binding.limit is not None and binding.limit.promise else None


def _own_axis(rows: Sequence[_Row]) -> tuple[Axis, PlaceOfValue, str]:
    """The axis of one metric, and what the panel is called."""
    limit, gpus = rows[0].limit, rows[0].view.gpus
    ends = [limit.promise * (1 - NEAR), limit.promise * (1 + NEAR)]
    close = [row.value for row in rows if row.value <= FAR * limit.promise]
    known = [row.bound for row in rows if row.bound is not None]
    x = metric_axis(limit.metric, [*close, *ends], known, (limit.promise,), gpus)
    of = f"{limit.of.label} against its limit of {limit_value_text(limit.metric, limit.promise)}: value and bound"
    return x, lambda _, value: value * x.scale, of


def _shared_axis(rows: Sequence[_Row]) -> tuple[Axis, PlaceOfValue, str]:
    """The axis of several limits: each value in percent of its limit, or the other way round where
    higher is better.
    """

    def used(limit: Limit, value: float) -> float:
        return 100 * math.exp(min(limit.excess(value), _FAR_OFF))

    shown = [used(row.limit, value) for row in rows for value in (row.value, row.bound) if value is not None]
    close = [value for value in shown if 0 < value <= 100 * FAR]
    label = "% of the limit"
    x = padded_axis(label, [*close, 100 * (1 - NEAR), 100 * (1 + NEAR)], log=False)
    return replace(x, short_label=label), used, "Each setting against its tightest limit: value and bound"


def _panel_of(rows: Sequence[_Row], x: Axis, place: PlaceOfValue, title: str) -> Panel:
    one = len({row.limit for row in rows}) == 1
    bounds = [None if row.bound is None else place(row.limit, row.bound) for row in rows]
    names = tuple(f"{row.name}  {_row_name(row.point)}  {_row_value(row, alone=one)}".strip() for row in rows)
    y = Axis("", len(rows) - 0.5, -0.5, ticks=tuple(range(len(rows))), names=names)
    marks = [
        Mark(
            row.point.load,
            min(max(place(row.limit, row.value), x.low), x.value(0.985)),
            float(i),
            row.role or role_of(row.point),
            _bar(row, place(row.limit, row.value), bound, x),
            sign=row.point.sign,
            star=(row.role or Role.OPERATING) if row.point.chosen else None,
            beyond=place(row.limit, row.value) > x.high,
            tooltip=tooltip(row.view, row.point),
        )
        for i, (row, bound) in enumerate(zip(rows, bounds, strict=True))
    ]
    if any(mark.x_bar and (at is None or not x.holds(at)) for mark, at in zip(marks, bounds, strict=True)):
        x = replace(x, short_label=f"{x.short_label}; a line to the edge: no bound here")
    limit = place(rows[0].limit, rows[0].limit.promise)
    within = (limit, x.high) if x.rising_is_better else (x.low, limit)
    return Panel(title, x, y, marks=tuple(marks), rules=(Rule("x", limit),), region=(*within, y.high, y.low))


def _settings(view: SeriesView, limit: Limit, *, among: int) -> Sequence[SettingView]:
    """The rows of one series `among` so many, ascending by load: its answer or candidate with the
    settings on both sides. Among more than FEW series the answer alone; a series by itself has rows
    for all settings near the limit.
    """
    name, promise = limit.metric, limit.promise
    known = sorted((p for p in view.settings if p.point.valid and name in p.metrics), key=lambda p: p.load)
    shown = view.answer.shown if view.answer is not None else None
    at = next((i for i, p in enumerate(known) if p.load == shown), None)
    beside = 1 if among <= FEW else 0
    rows = [] if at is None else known[max(0, at - beside) : at + beside + 1]
    if among > 1:
        return rows

    def distance(point: SettingView) -> float:
        return abs(point.metrics[name].value / promise - 1)

    near = sorted((p for p in known if p not in rows and distance(p) <= NEAR), key=distance)
    return sorted((*rows, *near[: MOST - len(rows)]), key=lambda p: p.load)


def _row_name(point: SettingView) -> str:
    """The load of a row; there is no room for 'sessions'."""
    load = point.load
    return f"{load.bare}/s" if isinstance(load, SessionRate) else load.label


def _row_value(row: _Row, *, alone: bool) -> str:
    """The value of a row; where limits differ, with its metric and limit."""
    value = beside_limit(row.value, row.limit)
    return (
        value if alone else f"{row.limit.of.label} {value} of {limit_value_text(row.limit.metric, row.limit.promise)}"
    )


def _bar(row: _Row, value: float, bound: float | None, axis: Axis) -> Bar | None:
    """A bar from the value to its bound, where a cap stands; cut at the axis, or without a bound it
    goes to the edge beyond the limit. None for a value that has no interval.
    """
    if not row.point.metrics[row.limit.metric].has_interval:
        return None
    beyond = axis.worst if row.limit.holds(row.value) else axis.low + axis.high - axis.worst
    ends = (value, beyond if bound is None else bound)
    low, high = sorted(min(max(end, axis.low), axis.high) for end in ends)
    return Bar(low, high, low != bound, high != bound)
