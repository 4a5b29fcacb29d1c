"""Detail figures of one series over concurrency: latency, throughput, goodput, inflation, and the
time breakdown.

Lines leave out excluded points, which are never chosen; a note names them. A value that no axis
holds is drawn at its edge and named below. A value that is not known is named too. One setting
makes no line, so it has no such figure.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from frontier.core.claim.pareto import knee
from frontier.core.model.decisions import Limit
from frontier.core.model.loads import Load
from frontier.core.model.metrics import LATENCIES, metric, per_gpu, short
from frontier.core.model.points import Estimate, Point, TimeBreakdown
from frontier.core.model.units import format_share
from frontier.extras.present.figure_axes import axis_from_zero, concurrency_axis, settings_axis
from frontier.show.picture.axes import bar_of, padded_axis
from frontier.show.picture.data import Axis, Line, Panel, Picture, Role, Rule
from frontier.show.picture.labels import view_name
from frontier.show.view.axis_units import seconds_axis
from frontier.show.view.figures import tightest_figure
from frontier.show.view.series_view import SeriesView
from frontier.show.view.wording import PART_WORDS, limit_value_text, unit_text, value_text

Values = Sequence[tuple[Load, Estimate]]
LIMITED = (("D", Role.FOURTH), ("v", Role.OTHER))
"""Markers and colours of percentiles that only a limit names."""
STATISTICS = (("p50", "o", Role.FRONTIER), ("p90", "^", Role.THIRD), ("p99", "s", Role.OPERATING))


def series_figure(
    name: str,
    view: SeriesView,
    title: str,
    panels: Sequence[Panel],
    notes: Iterable[str],
    *,
    columns: int = 2,
    tall: float = 300.0,
) -> Picture:
    """The figure of one series; the last of its notes names the excluded settings, which its lines
    do not show.
    """
    title = f"{view_name(view)}: {title}"
    contents = "; ".join(f"{p.title}: {', '.join(li.name for li in p.lines if li.name)}" for p in panels)
    excluded = ", ".join(p.load.label for p in view.points if not p.valid)
    notes = [*notes, *([f"Excluded, and so not in these charts: {excluded}."] if excluded else [])]
    return Picture(
        name,
        title,
        tuple(panels),
        notes=tuple(notes),
        description=f"{title}. {contents}".rstrip(" :.") + ".",
        columns=columns,
        tall=tall,
    )


def valid_points(view: SeriesView) -> list[Point]:
    """The points by concurrency, without the excluded ones."""
    return [p for p in view.points if p.valid]


def chosen_rule(view: SeriesView) -> tuple[Rule, ...]:
    """An upright line at the operating point."""
    c = view.chosen
    return (Rule("x", c.amount, (c.label,), Role.OPERATING, dashed=True),) if c is not None else ()


def known(points: Sequence[Point], name: str) -> list[tuple[Load, Estimate]]:
    """(concurrency, estimate) where the metric is known, also where it is 0, or infinite because of
    failures.
    """
    estimates = [(p.load, p.metrics[name]) for p in points if name in p.metrics]
    return [(c, e) for c, e in estimates if not math.isnan(e.value)]


def _edge_notes(points: Sequence[Point], names: Sequence[str], *, log: bool = False) -> list[str]:
    """Notes on drawn metrics that are infinite, 0 on a logarithmic axis, or not known somewhere."""
    places: dict[str, list[str]] = {
        "△ at the top edge: infinite, as too many requests failed": [],
        "▽ at the lower edge: 0, which a logarithmic axis does not hold": [],
        "Not known, and the line passes over it": [],
    }
    for name in names:
        values = {c: e.value for c, e in known(points, name)}
        if not values:
            continue
        groups = (
            [c for c, v in values.items() if math.isinf(v)],
            [c for c, v in values.items() if log and v == 0],
            [p.load for p in points if p.load not in values],
        )
        label = metric(name).label.partition(" (")[0]
        for where, lines in zip(groups, places.values(), strict=True):
            if where:
                lines.append(f"{label} at {', '.join(load.label for load in where)}")
    return [f"{head}: {'; '.join(lines)}." for head, lines in places.items() if lines]


def _measured(name: str, values: Values, scale: float, axis: Axis, role: Role, marker: str = "o") -> Line:
    """A series with its intervals, cut to the axis; an interval open on both sides is not known."""
    points = tuple((c.amount, e.value * scale) for c, e in values)
    return Line(name, points, role, "measured", marker, tuple(bar_of(e.scaled(scale), axis) for _, e in values))


def limits_on(view: SeriesView, quantity: str) -> list[Limit]:
    """The limits on percentiles of one latency, of all requests together."""
    limited = [(li, metric(li.metric)) for li in view.sla]
    return [li for li, m in limited if m.quantity == quantity and not m.inverted and m.group is None]


def _limited(view: SeriesView) -> set[str]:
    """The percentiles that the SLA limits on any latency, as p95."""
    return {limit.of.name.partition("_")[0] for quantity in LATENCIES for limit in limits_on(view, quantity)}


def latency_figure(view: SeriesView) -> Picture | None:
    """TTFT, TPOT, ITL and E2E percentiles with the limits on them; None with fewer than two
    settings that have any.
    """
    panels = [panel for q, words in LATENCIES.items() if (panel := _latency_panel(view, q, words)) is not None]
    if not panels:
        return None
    bars = [bar for panel in panels for line in panel.lines for bar in line.bars if bar is not None]
    notes = ["Bars: 95% intervals."] if bars else []
    notes.append("Between the settings nothing was measured: the dotted lines only join them.")
    notes += _edge_notes(valid_points(view), [f"{s}_{q}" for q in LATENCIES for s, *_ in STATISTICS], log=True)
    if any(bar.open_low or bar.open_high for bar in bars):
        notes.append("A bar is cut short where it has no bound, or one beyond the chart.")
    columns = 3 if len(panels) == 3 else 2
    load = view.points[0].load.kind
    title = _crossing(view) or f"latency against {load}"
    return series_figure("latency", view, title, panels, notes, columns=columns, tall=250)


def tightest_limit(view: SeriesView) -> Limit | None:
    """The tightest limit on a latency of all requests; None without one."""
    figure = tightest_figure(view.decision) if view.decision is not None else None
    limit = figure.limit if figure is not None else None
    return limit if limit is not None and limit in limits_on(view, limit.of.quantity or "") else None


def _crossing(view: SeriesView) -> str:
    """'p95 TPOT passes its limit of 18 ms between c=45 and c=64', by the values; '' without a limit
    on a latency.
    """
    limit = tightest_limit(view)
    values = known(valid_points(view), limit.metric) if limit is not None else []
    if limit is None or not values:
        return ""
    promise = f"its limit of {limit_value_text(limit.metric, limit.promise)}"
    over = next((i for i, (_, e) in enumerate(values) if limit.breaks(e.value)), None)
    if over is None:
        return f"{limit.of.label} stays within {promise} up to {values[-1][0].label}"
    if over == 0:
        return f"{limit.of.label} is over {promise} from {values[0][0].label} on"
    return f"{limit.of.label} passes {promise} between {values[over - 1][0].label} and {values[over][0].label}"


def _latency_panel(view: SeriesView, quantity: str, words: str) -> Panel | None:
    points, limits = valid_points(view), limits_on(view, quantity)
    limited = {li.of.name.partition("_")[0] for li in limits}
    shown = [row for row in _statistics(_limited(view)) if known(points, f"{row[0]}_{quantity}")]
    series = {s: known(points, f"{s}_{quantity}") for s, *_ in shown}
    values = [e.value for estimates in series.values() for _, e in estimates if 0 < e.value < math.inf]
    settings = [c for estimates in series.values() for c, _ in estimates]
    if len(set(settings)) < 2 or not values:
        return None
    near = [li for li in limits if min(values) / 8 <= li.promise <= max(values) * 8]
    scale, unit = seconds_axis(values)
    heights = [v * scale for v in (*values, *_ends_near(series.values()), *(li.promise for li in near))]
    y = padded_axis(f"{short(quantity)} ({unit}, log scale)", heights, log=True)
    lines = [replace(_measured(s, series[s], scale, y, role, marker), strong=s in limited) for s, marker, role in shown]
    rules = [Rule("y", li.promise * scale, (str(li),)) for li in near]
    far = [f"   {li} (outside the chart)" for li in limits if li not in near]
    name = (short(quantity) if far else words) + ",".join(far)
    return Panel(name, concurrency_axis(settings), y, tuple(lines), rules=(*rules, *chosen_rule(view)))


def _ends_near(series: Iterable[Values]) -> list[float]:
    """The interval ends within a factor of three of their values; others would squeeze the
    figure.
    """
    return [end for values in series for _, e in values for end in (e.low, e.high) if e.value / 3 < end < e.value * 3]


def _statistics(limited: Collection[str]) -> list[tuple[str, str, Role]]:
    """The percentiles that are drawn: p50, p99 and the limited ones; also p90 where no other is
    limited.
    """
    others = sorted(set(limited) - {s for s, *_ in STATISTICS})
    usual = [row for row in STATISTICS if row[0] != "p90" or not others or "p90" in limited]
    return sorted([*usual, *((s, *look) for s, look in zip(others, LIMITED, strict=False))])


def throughput_figure(view: SeriesView) -> Picture | None:
    """Output throughput with the knee, and the share of its one-stream speed that each stream
    keeps. None with fewer than two settings.
    """
    points, name = valid_points(view), "output_throughput"
    values = known(points, name)
    if len(values) < 2 or not any(e.value for _, e in values):
        return None
    share = 1 / per_gpu(name, view.gpus)
    x = concurrency_axis([c for c, _ in values])
    tops = [end * share for _, e in values for end in (e.value, e.high) if end < 2 * e.value]
    y = axis_from_zero(f"output throughput ({unit_text(name, view.gpus)})", tops)
    line = _measured("measured", values, share, y, Role.FRONTIER)
    rules = list(chosen_rule(view))
    first, alone = next((c, e.value / c) for c, e in values if e.value)
    bend = None if first.is_open else knee(points)  # at a rate what is served follows from what is sent
    if bend is not None and bend not in [rule.at for rule in rules]:
        rules.append(Rule("x", float(bend), (f"knee {bend.label}",), Role.QUIET, dashed=True))
    kept = tuple((c.amount, e.value / c / alone * 100) for c, e in values)
    efficiency = Panel(
        f"speed each stream keeps (100% = at {first.label})",
        x,
        axis_from_zero(f"% of {first.label}", [y for _, y in kept]),
        (Line("measured", kept),),
        rules=chosen_rule(view),
    )
    panels = [Panel("output throughput", x, y, (line,), rules=tuple(rules)), efficiency]
    panels = panels[:1] if first.is_open else panels  # a rate has no streams that could keep a speed
    at = view.chosen if view.chosen in dict(values) else max(values, key=lambda each: each[1].value)[0]
    title = f"{value_text(name, dict(values)[at].value, view.gpus)} at {at.label}"
    if len(panels) > 1 and at != first:
        title += f", where each stream keeps {dict(kept)[at.amount]:.0f}% of its speed at {first.label}"
    return series_figure("throughput", view, title, panels, _edge_notes(points, [name]))


def goodput_figure(view: SeriesView) -> Picture | None:
    """Requests per second, and those within every limit. None without latency limits, or without a
    line.
    """
    points = valid_points(view)
    good, every = known(points, "goodput"), known(points, "request_throughput")
    if len(good) < 2 or not every:
        return None
    share = 1 / per_gpu("goodput", view.gpus)
    unit = unit_text("goodput", view.gpus)
    y = axis_from_zero(unit, [e.value * share for _, e in (*good, *every)])
    lines = (
        replace(_measured("all requests", every, share, y, Role.FRONTIER), strong=True),
        _measured("within every limit", good, share, y, Role.SLA, "s"),
    )
    panel = Panel(
        f"requests per second ({unit})", concurrency_axis([c for c, _ in every]), y, lines, rules=chosen_rule(view)
    )
    best, most = max(good, key=lambda item: item[1].value)
    title = f"{best.label} keeps the most requests within the limits, {value_text('goodput', most.value, view.gpus)}"
    title = title if most.value else "no request kept every limit, at any setting"
    limits = ", ".join(_of_one_request(li) for li in view.sla if metric(li.metric).quantity)
    notes = [f"A request is within the limits when it alone has {limits}."]
    if view.chosen is not None and view.chosen != best:
        notes.append(f"The answer is {view.chosen.label}, the highest at which the percentiles are proven.")
    notes += _edge_notes(points, ["goodput", "request_throughput"])
    return series_figure("goodput", view, title, [panel], notes, columns=1)


def _of_one_request(limit: Limit) -> str:
    """'TTFT ≤ 150 ms': the limit on a percentile as one on a single request."""
    return re.sub(r"^(p[\d.]+|mean) ", "", str(limit))


def inflation_figure(view: SeriesView) -> Picture | None:
    """The factor by which TTFT and TPOT grow over the lowest measured concurrency; None with fewer
    than two settings.
    """
    points = valid_points(view)
    if len(points) < 2:
        return None
    first = points[0].load
    panels: list[Panel] = []
    drawn: list[str] = []
    baseless: list[str] = []
    for quantity in ("ttft", "tpot"):
        lines = []
        for statistic, marker, role in _statistics(_limited(view)):
            name = f"{statistic}_{quantity}"
            values = known(points, name)
            base = values[0][1].value if values and values[0][0] == first else None
            if base is not None and not 0 < base < math.inf:
                baseless.append(f"{metric(name).label} is {'infinite' if base else '0'}")
            elif base is not None and len(values) > 1:
                drawn.append(name)
                multiples = tuple((c.amount, e.value / base) for c, e in values)
                lines.append(Line(statistic, multiples, role, marker=marker))
        panels += [_slowdown_panel(view, quantity, lines)] if lines else []
    if not panels:
        return None
    notes = _edge_notes(points, drawn, log=True)
    notes += [f"No multiple: at {first.label} {' and '.join(baseless)}."] if baseless else []
    title = _slowdown_title(view, first, {p.title: p.lines for p in panels})
    return series_figure("inflation", view, title, panels, notes)


def _slowdown_panel(view: SeriesView, quantity: str, lines: Sequence[Line]) -> Panel:
    """The multiples of one latency."""
    loads = [point.load for point in valid_points(view)]
    multiples = [multiple for line in lines for _, multiple in line.points]
    y = padded_axis(f"× of {loads[0].label} (log scale)", [1.0, *multiples], log=True)
    return Panel(LATENCIES[quantity], concurrency_axis(loads), y, tuple(lines), rules=chosen_rule(view))


def _slowdown_title(view: SeriesView, first: Load, lines: Mapping[str, Sequence[Line]]) -> str:
    """'at c=45 p99 TTFT is 4.4 and p99 TPOT is 2.6 times that at c=1', by the highest percentile of
    each.
    """
    c = view.chosen if view.chosen is not None else valid_points(view)[-1].load
    ends = {q: lines[words][-1] for q, words in LATENCIES.items() if words in lines}
    grown = [
        f"{line.name} {short(q)} is {dict(line.points)[c.amount]:.2g}"
        for q, line in ends.items()
        if c.amount in dict(line.points)
    ]
    if not grown or c == first:
        return f"slowdown, latency relative to {first.label}"
    return f"at {c.label} {' and '.join(grown)} times that at {first.label}"


# --- where the time goes

UNEXPLAINED = "unexplained"
INKS = {
    "connect": Role.SIXTH,
    "network": Role.THIRD,
    "front_end": Role.OPERATING,
    "queue": Role.OTHER,
    "prefill": Role.ROOFLINE,
    "decode": Role.FRONTIER,
    UNEXPLAINED: Role.DOMINATED,
}
"""The roles of the parts of a column, each part of another grey than its neighbours in print."""
THIN = 0.01
"""The share of every bar below which a layer is left out: it would not be seen, and would lengthen
the legend."""

Bars = Mapping[Load, Mapping[str, float]]
"""Seconds of each layer, by setting."""


def time_figure(view: SeriesView) -> Picture | None:
    """The stacks of every valid setting whose time breakdown is known; None where there is none."""
    points = valid_points(view)
    times = {p.load: p.time for p in points if p.time is not None and not p.time.refused}
    if not times:
        return None
    first = {c: _layers(time, time.ttft, without="decode") for c, time in times.items()}
    whole = {c: _layers(time, time.e2e) for c, time in times.items()}
    panels = [
        panel
        for title, bars in (("time to first token", first), ("end-to-end latency", whole))
        if (panel := _time_panel(view, f"mean {title}", bars)) is not None
    ]
    notes = ["Means over the window, from the server's histograms and the client's stamps; a percentile has no parts."]
    at = view.chosen if view.chosen in whole else max(whole)
    part, most = max(whole[at].items(), key=lambda layer: layer[1])
    share = most / sum(whole[at].values()) if most else 0.0
    title = f"at {at.label} {share:.0%} of the mean latency is {PART_WORDS.get(part, part)}"
    return series_figure("time", view, title, panels, notes + _time_notes(points, times))


def _layers(time: TimeBreakdown, total: float, without: str = "") -> dict[str, float]:
    """The parts of a total, and the rest of it."""
    parts = {name: seconds for name, seconds in time.parts.items() if name != without}
    return {**parts, UNEXPLAINED: max(0.0, total - sum(parts.values()))}


def _time_panel(view: SeriesView, title: str, bars: Bars) -> Panel | None:
    tops = {c: sum(parts.values()) for c, parts in bars.items()}
    if not any(tops.values()):
        return None
    drawn = [n for n in INKS if any(parts.get(n, 0.0) >= THIN * tops[c] > 0 for c, parts in bars.items())]
    scale, unit = seconds_axis(list(tops.values()))
    lines, below = [], dict.fromkeys(bars, 0.0)
    for name in drawn:
        band = []
        for place, (c, parts) in enumerate(bars.items()):
            low, below[c] = below[c], below[c] + parts.get(name, 0.0) * scale
            band.append((float(place), low, below[c]))
        lines.append(Line(PART_WORDS.get(name, name), (), INKS[name], "layer", band=tuple(band)))
    y = axis_from_zero(f"mean ({unit})", [top * scale for top in tops.values()])
    return Panel(title, settings_axis(list(bars), view.chosen), y, tuple(lines))


def _time_notes(points: Sequence[Point], times: Mapping[Load, TimeBreakdown]) -> list[str]:
    """Notes on what the stacks do not show."""
    missing = list(dict.fromkeys(PART_WORDS[name] for time in times.values() for name in time.missing))
    notes = [f"The server's metrics do not tell {', '.join(missing)}: it is in what is unexplained."] if missing else []
    over = [
        f"{format_share(-time.rest / time.e2e)} at {c.label}"
        for c, time in times.items()
        if time.rest < -THIN * time.e2e
    ]
    notes += [f"The parts add up to more than was measured: by {', '.join(over)}."] if over else []
    absent = [p.load.label for p in points if p.load not in times]
    return [*notes, *([f"Not known, and so not drawn: {', '.join(absent)}."] if absent else [])]


FROM_POINTS: dict[str, Callable[[SeriesView], Picture | None]] = {
    "latency": latency_figure,
    "throughput": throughput_figure,
    "goodput": goodput_figure,
    "inflation": inflation_figure,
    "time": time_figure,
}
