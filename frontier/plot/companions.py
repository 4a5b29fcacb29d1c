"""The companions of the picture that are made from points: everything against concurrency, for one (deployment, shape).

Flagged points are left out of the lines, as they are never chosen, and named below. A value that no axis holds is drawn
at its edge and named below, as is what is not known. One setting makes no line: there is no such chart of it.
"""

import math
from collections.abc import Callable, Sequence

from frontier.decide.capacity import capacity
from frontier.decide.wording import limit_text, limit_value_text, setting, unit_text, value_text
from frontier.metrics import LATENCIES, metric, per_gpu
from frontier.model import Estimate, Limit, Point
from frontier.plot.chart import Chart, Line, Mark, Sheet, concurrency_scale, from_zero, span_scale
from frontier.plot.data import View, panel_name

STATISTICS = (("p50", "o", 0), ("p90", "^", 2), ("p99", "s", 1))
Sheets = dict[str, Callable[[View], Sheet | None]]


def valid_points(view: View) -> list[Point]:
    """By concurrency, without the flagged."""
    return [p for p in view.mine if p.valid]


def left_out(view: View) -> list[str]:
    """The note on what the lines do not show."""
    flagged = [setting(p.concurrency) for p in view.mine if not p.valid]
    return [f"Flagged, and so not in these charts: {', '.join(flagged)}."] if flagged else []


def known(points: Sequence[Point], name: str) -> list[tuple[int, Estimate]]:
    """(concurrency, estimate) where the metric is known: also where it is 0, or infinite because of failures."""
    found = [(p.concurrency, p.metrics[name]) for p in points if name in p.metrics]
    return [(c, e) for c, e in found if not math.isnan(e.value)]


def off_notes(points: Sequence[Point], names: Sequence[str], *, log: bool = False) -> list[str]:
    """Where metrics that are drawn are infinite, 0 on a logarithmic axis, or not known: none of it is left unsaid."""
    infinite: list[str] = []
    zero: list[str] = []
    unknown: list[str] = []
    for name in names:
        values = {c: e.value for c, e in known(points, name)}
        if not values:
            continue
        label = metric(name).label.partition(" (")[0]
        for places, where in (
            (infinite, [c for c, v in values.items() if math.isinf(v)]),
            (zero, [c for c, v in values.items() if log and v == 0]),
            (unknown, [p.concurrency for p in points if p.concurrency not in values]),
        ):
            if where:
                places.append(f"{label} at {', '.join(map(setting, where))}")
    return [
        f"{head}: {'; '.join(places)}."
        for head, places in (
            ("△ at the top edge: infinite, as too many requests failed", infinite),
            ("▽ at the lower edge: 0, which a logarithmic axis does not hold", zero),
            ("Not known, and the line passes over it", unknown),
        )
        if places
    ]


def chosen_mark(view: View) -> tuple[Mark, ...]:
    """The operating point, upright."""
    c = view.decision.concurrency if view.decision else None
    return (Mark(float(c), setting(c), "chosen", upright=True),) if c is not None else ()


def measured_line(name: str, values: Sequence[tuple[int, Estimate]], scale: float, ink: int, marker: str) -> Line:
    """A series with its intervals; an interval open on both sides is not known."""
    bars = [
        None if math.isinf(e.low) and math.isinf(e.high) else (e.low * scale, e.high * scale) for _, e in values
    ]  # fmt: skip
    return Line(name, tuple((float(c), e.value * scale) for c, e in values), ink, marker, bars=tuple(bars))


def latency_sheet(view: View) -> Sheet | None:
    """TTFT, TPOT, ITL and E2E percentiles with the limits on them; None with fewer than two settings that have any."""
    charts = []
    for quantity, words in LATENCIES.items():
        mine = [li for li in view.sla if metric(li.metric).quantity == quantity and not metric(li.metric).inverted]
        chart = _latency_chart(view, quantity, words, mine)
        if chart is not None:
            charts.append(chart)
    if not charts:
        return None
    bars = [bar for chart in charts for line in chart.lines for bar in line.bars if bar is not None]
    notes = ["Between the settings nothing was measured: the dotted lines only join them."]
    notes += off_notes(valid_points(view), [f"{s}_{q}" for q in LATENCIES for s, *_ in STATISTICS], log=True)
    if bars:
        notes.insert(0, "Bars: 95% intervals.")
    if any(math.isinf(end) for bar in bars for end in bar):
        notes.append("An arrow has no bound on its side: too few requests.")
    return Sheet(
        "latency", f"{panel_name(view)}: latency against concurrency", tuple(charts), (*notes, *left_out(view)),
        columns=3 if len(charts) == 3 else 2, tall=250,
    )  # fmt: skip


def _latency_chart(view: View, quantity: str, words: str, limits: Sequence[Limit]) -> Chart | None:
    points = valid_points(view)
    series = {s: known(points, f"{s}_{quantity}") for s, *_ in STATISTICS}
    values = [e.value for found in series.values() for _, e in found if math.isfinite(e.value) and e.value > 0]
    settings = [c for found in series.values() for c, _ in found]
    if len(set(settings)) < 2 or not values:
        return None
    near = [li for li in limits if min(values) / 8 <= li.promise <= max(values) * 8]
    scale, unit = (1.0, "s") if min(values) >= 1 else (1e3, "ms")
    shown = [v * scale for v in (*values, *(li.promise for li in near))]
    lines = [measured_line(s, series[s], scale, ink, marker) for s, marker, ink in STATISTICS if series[s]]
    marks = [Mark(li.promise * scale, limit_text(li)) for li in near]
    far = [f"{limit_text(li)} (outside the chart)" for li in limits if li not in near]
    title = words + (f"   {', '.join(far)}" if far else "")
    return Chart(
        title, concurrency_scale(settings), span_scale(f"{quantity.upper()} ({unit}, log scale)", shown, log=True),
        tuple(lines), (*marks, *chosen_mark(view)),
    )  # fmt: skip


def throughput_sheet(view: View) -> Sheet | None:
    """Output throughput with the fitted capacity, and how much of the one-stream speed each stream keeps.

    None with fewer than two settings.
    """
    points = valid_points(view)
    name = "output_throughput"
    values = known(points, name)
    if len(values) < 2 or not any(e.value for _, e in values):
        return None
    share = 1 / per_gpu(name, view.gpus)
    found = capacity(points)
    lines = [measured_line("measured", values, share, 0, "o")]
    notes = []
    if found.best is not None:
        steps = _between(values[0][0], values[-1][0])
        named = {"usl": "Universal Scalability Law", "capped": "line to a cap"}[found.best.model]
        lines.append(Line("fit", tuple((c, found.best(c) * share) for c in steps), 3, kind="fit"))
        notes.append(f"Fit: {named}, {found.best.error * 100:.1f}% off on average; it describes, it decides nothing.")
    if found.peak is not None:
        notes.append(f"Fitted peak near c={found.peak.value:.0f} [{found.peak.low:.0f}, {found.peak.high:.0f}].")
    if found.limit is not None and found.onset is not None:
        what = {"thrashing": "throughput falls and latency jumps", "queueing": "throughput is flat, only TTFT rises"}
        notes.append(f"From {setting(found.onset)} on {what[found.limit]}: {found.limit}.")
    marks = list(chosen_mark(view))
    if found.knee is not None and found.knee not in [m.at for m in marks]:
        marks.append(Mark(float(found.knee), f"knee {setting(found.knee)}", "edge", upright=True))
    tops = [y for line in lines for _, y in line.points]
    speed = Chart("output throughput", concurrency_scale([c for c, _ in values]),
                  from_zero(unit_text(name, view.gpus), tops), tuple(lines), tuple(marks))  # fmt: skip
    charts = [speed]
    first, alone = next((c, e.value / c) for c, e in values if e.value)
    kept = tuple((float(c), e.value / c / alone * 100) for c, e in values)
    charts.append(
        Chart(f"speed each stream keeps (100% = at c={first})", concurrency_scale([c for c, _ in values]),
              from_zero("%", [y for _, y in kept]), (Line("measured", kept, 0, "o"),), chosen_mark(view))
    )  # fmt: skip
    notes += [*off_notes(points, [name]), *left_out(view)]
    return Sheet("throughput", f"{panel_name(view)}: throughput and efficiency", tuple(charts), tuple(notes))


def _between(low: float, high: float, steps: int = 60) -> list[float]:
    return [low * (high / low) ** (i / steps) for i in range(steps + 1)] if high > low else [low]


def goodput_sheet(view: View) -> Sheet | None:
    """Requests per second and the part of them within every limit; None without limits on latency, or a line."""
    points = valid_points(view)
    good, every = known(points, "goodput"), known(points, "request_throughput")
    if len(good) < 2 or not every:
        return None
    share = 1 / per_gpu("goodput", view.gpus)
    lines = (
        measured_line("all requests", every, share, 0, "o"), measured_line("within every limit", good, share, 2, "s"),
    )  # fmt: skip
    best = max(good, key=lambda item: item[1].value)
    chart = Chart(
        f"requests per second ({unit_text('goodput', view.gpus)})", concurrency_scale([c for c, _ in every]),
        from_zero(unit_text("goodput", view.gpus), [y for line in lines for _, y in line.points]), lines,
        chosen_mark(view),
    )  # fmt: skip
    said = f"Most goodput: {value_text('goodput', best[1].value, view.gpus)} at {setting(best[0])}."
    said = said if best[1].value else "No request kept every limit, at any setting."
    limits = ", ".join(limit_text(li) for li in view.sla if metric(li.metric).quantity)
    return Sheet(
        "goodput", f"{panel_name(view)}: goodput against concurrency", (chart,),
        (f"{said} A request counts as good when it alone keeps {limits}.",
         *off_notes(points, ["goodput", "request_throughput"]), *left_out(view)),
        columns=1,
    )  # fmt: skip


def inflation_sheet(view: View) -> Sheet | None:
    """By what factor TTFT and TPOT grow over the lowest concurrency measured; None with fewer than two settings."""
    points = valid_points(view)
    if len(points) < 2:
        return None
    first = points[0].concurrency
    charts: list[Chart] = []
    drawn: list[str] = []
    baseless: list[str] = []
    for quantity in ("ttft", "tpot"):
        lines = []
        for statistic, marker, ink in STATISTICS:
            values = known(points, f"{statistic}_{quantity}")
            base = values[0][1].value if values and values[0][0] == first else None
            if base is not None and not 0 < base < math.inf:
                said = "infinite" if base else "0"
                baseless.append(f"{metric(f'{statistic}_{quantity}').label} is {said}")
            elif base is not None and len(values) > 1:
                drawn.append(f"{statistic}_{quantity}")
                lines.append(Line(statistic, tuple((float(c), e.value / base) for c, e in values), ink, marker))
        if lines:
            ys = [y for line in lines for _, y in line.points]
            charts.append(
                Chart(LATENCIES[quantity],
                      concurrency_scale([p.concurrency for p in points]),
                      span_scale("times (log scale)", [*ys, 1.0], log=True), tuple(lines),
                      chosen_mark(view))
            )  # fmt: skip
    if not charts:
        return None
    notes = off_notes(points, drawn, log=True)
    notes += [f"No multiple: at {setting(first)} {' and '.join(baseless)}."] if baseless else []
    return Sheet("inflation", f"{panel_name(view)}: latency as a multiple of what it is at c={first}", tuple(charts),
                 (*notes, *left_out(view)))  # fmt: skip


def limit_marks(view: View, quantity: str, scale: float) -> tuple[Mark, ...]:
    """The limits on one quantity, upright, for a chart of its distribution."""
    found = [li for li in view.sla if metric(li.metric).quantity == quantity and not metric(li.metric).inverted]
    return tuple(
        Mark(li.promise * scale, f"{metric(li.metric).label} {limit_value_text(li.metric, li.promise)}", upright=True)
        for li in found
    )


FROM_POINTS: Sheets = {
    "latency": latency_sheet, "throughput": throughput_sheet, "goodput": goodput_sheet, "inflation": inflation_sheet,
}  # fmt: skip
