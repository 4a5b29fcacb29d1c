"""Detail figures as figure data: latency, throughput, goodput and inflation against concurrency; distributions and
their tails, jitter, lengths; and the timeline of one trial.

All are of one series. Excluded points are left out of the lines, as they are never chosen, and named below. A value
that no axis holds is drawn at its edge and named below, as is what is not known. One setting makes no line: there is no
such figure of it.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from frontier.decide.capacity import capacity
from frontier.decide.wording import limit_text, setting, unit_text, value_text
from frontier.metrics import LATENCIES, metric, per_gpu, short
from frontier.model import Estimate, Limit, Point, Rate, amount, kind_of
from frontier.plot.data import (
    Axis,
    Line,
    Panel,
    Picture,
    Role,
    Rule,
    View,
    axis_from_zero,
    bar_of,
    concurrency_axis,
    padded_axis,
)
from frontier.plot.series_figure import chosen_rule, excluded_notes, series_figure, valid_points
from frontier.plot.time_figure import time_figure
from frontier.stats.histogram import LogHistogram
from frontier.stats.window import WindowData
from frontier.units import seconds_axis

Samples = Mapping[int, WindowData]
Values = Sequence[tuple[int, Estimate]]
Floats = NDArray[np.float64]
STATISTICS = (("p50", "o", Role.FRONTIER), ("p90", "^", Role.THIRD), ("p99", "s", Role.OPERATING))
INKS = (Role.FRONTIER, Role.OPERATING, Role.SLA, Role.THIRD, Role.FOURTH)
"""Colours of settings shown together."""
MARKERS = ("o", "s", "^", "D", "v")
MOST = len(INKS)
"""Settings shown at once: more lines would only hide each other."""
FINE = 240
"""Points a curve is drawn with: more than a screen's worth changes no pixel."""
VARIED = 1.2
"""Lengths that differ by less than this factor show no dependence on them."""


# --- from points: everything against concurrency


def known(points: Sequence[Point], name: str) -> list[tuple[int, Estimate]]:
    """(concurrency, estimate) where the metric is known: also where it is 0, or infinite because of failures."""
    estimates = [(p.concurrency, p.metrics[name]) for p in points if name in p.metrics]
    return [(c, e) for c, e in estimates if not math.isnan(e.value)]


def _edge_notes(points: Sequence[Point], names: Sequence[str], *, log: bool = False) -> list[str]:
    """Where metrics that are drawn are infinite, 0 on a logarithmic axis, or not known: none of it is left unsaid."""
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
            [p.concurrency for p in points if p.concurrency not in values],
        )
        label = metric(name).label.partition(" (")[0]
        for where, lines in zip(groups, places.values(), strict=True):
            if where:
                lines.append(f"{label} at {', '.join(map(setting, where))}")
    return [f"{head}: {'; '.join(lines)}." for head, lines in places.items() if lines]


def _measured(name: str, values: Values, scale: float, axis: Axis, role: Role, marker: str = "o") -> Line:
    """A series with its intervals, cut to the axis; an interval open on both sides is not known."""
    points = tuple((amount(c), e.value * scale) for c, e in values)
    return Line(name, points, role, "measured", marker, tuple(bar_of(e.scaled(scale), axis) for _, e in values))


def _limits_on(view: View, quantity: str) -> list[Limit]:
    limited = [(li, metric(li.metric)) for li in view.sla]
    return [li for li, m in limited if m.quantity == quantity and not m.inverted and m.group is None]


def latency_figure(view: View) -> Picture | None:
    """TTFT, TPOT, ITL and E2E percentiles with the limits on them; None with fewer than two settings that have any."""
    panels = [panel for q, words in LATENCIES.items() if (panel := _latency_panel(view, q, words)) is not None]
    if not panels:
        return None
    bars = [bar for panel in panels for line in panel.lines for bar in line.bars if bar is not None]
    notes = ["Bars: 95% intervals."] if bars else []
    notes.append("Between the settings nothing was measured: the dotted lines only join them.")
    notes += _edge_notes(valid_points(view), [f"{s}_{q}" for q in LATENCIES for s, *_ in STATISTICS], log=True)
    if any(bar.open_low or bar.open_high for bar in bars):
        notes.append("An arrow: the interval has no bound there, or one beyond the chart.")
    columns = 3 if len(panels) == 3 else 2
    notes += excluded_notes(view)
    load = kind_of(view.mine[0].concurrency)
    return series_figure("latency", view, f"latency against {load}", panels, notes, columns=columns, tall=250)


def _latency_panel(view: View, quantity: str, words: str) -> Panel | None:
    points, limits = valid_points(view), _limits_on(view, quantity)
    series = {s: known(points, f"{s}_{quantity}") for s, *_ in STATISTICS}
    values = [e.value for estimates in series.values() for _, e in estimates if 0 < e.value < math.inf]
    settings = [c for estimates in series.values() for c, _ in estimates]
    if len(set(settings)) < 2 or not values:
        return None
    near = [li for li in limits if min(values) / 8 <= li.promise <= max(values) * 8]
    scale, unit = seconds_axis(values)
    ends = [end for s in series.values() for _, e in s for end in (e.low, e.high) if e.value / 3 < end < e.value * 3]
    shown = [v * scale for v in (*values, *ends, *(li.promise for li in near))]
    y = padded_axis(f"{short(quantity)} ({unit}, log scale)", shown, log=True)
    lines = [_measured(s, series[s], scale, y, role, marker) for s, marker, role in STATISTICS if series[s]]
    rules = [Rule("y", li.promise * scale, (limit_text(li),)) for li in near]
    far = [f"{limit_text(li)} (outside the chart)" for li in limits if li not in near]
    title = words + (f"   {', '.join(far)}" if far else "")
    return Panel(title, concurrency_axis(settings), y, tuple(lines), rules=(*rules, *chosen_rule(view)))


def throughput_figure(view: View) -> Picture | None:
    """Output throughput with the fitted capacity, and how much of the one-stream speed each stream keeps.

    None with fewer than two settings.
    """
    points, name = valid_points(view), "output_throughput"
    values = known(points, name)
    if len(values) < 2 or not any(e.value for _, e in values):
        return None
    share = 1 / per_gpu(name, view.gpus)
    fitted = capacity(points)
    x = concurrency_axis([c for c, _ in values])
    tops = [end * share for _, e in values for end in (e.value, e.high) if end < 2 * e.value]
    low, high = values[0][0], values[-1][0]
    steps = [low * (high / low) ** (i / 60) for i in range(61)]
    curve = tuple((c, fitted.best(c) * share) for c in steps) if fitted.best else ()
    y = axis_from_zero(unit_text(name, view.gpus), [*tops, *(v for _, v in curve)])
    lines = [_measured("measured", values, share, y, Role.FRONTIER)]
    notes, rules = [], list(chosen_rule(view))
    if fitted.best is not None:
        law = {"usl": "Universal Scalability Law", "capped": "line to a cap"}[fitted.best.model]
        lines.append(Line("fit", curve, Role.THIRD, "fit"))
        notes.append(f"Fit: {law}, {fitted.best.error * 100:.1f}% off on average; it describes, it decides nothing.")
    if fitted.peak is not None:
        notes.append(f"Fitted peak near c={fitted.peak.value:.0f} [{fitted.peak.low:.0f}, {fitted.peak.high:.0f}].")
    if fitted.limit is not None and fitted.onset is not None:
        what = {"thrashing": "throughput falls and latency jumps", "queueing": "throughput is flat, only TTFT rises"}
        notes.append(f"From {setting(fitted.onset)} on {what[fitted.limit]}: {fitted.limit}.")
    if fitted.knee is not None and fitted.knee not in [rule.at for rule in rules]:
        rules.append(Rule("x", float(fitted.knee), (f"knee {setting(fitted.knee)}",), Role.QUIET, dashed=True))
    first, alone = next((c, e.value / c) for c, e in values if e.value)
    kept = tuple((amount(c), e.value / c / alone * 100) for c, e in values)
    efficiency = Panel(
        f"speed each stream keeps (100% = at {setting(first)})", x, axis_from_zero("%", [y for _, y in kept]),
        (Line("measured", kept),), rules=chosen_rule(view),
    )  # fmt: skip
    panels = [Panel("output throughput", x, y, tuple(lines), rules=tuple(rules)), efficiency]
    panels = panels[:1] if isinstance(first, Rate) else panels  # a rate has no streams that could keep a speed
    notes += [*_edge_notes(points, [name]), *excluded_notes(view)]
    return series_figure("throughput", view, "throughput and efficiency", panels, notes)


def goodput_figure(view: View) -> Picture | None:
    """Requests per second and the part of them within every limit; None without limits on latency, or a line."""
    points = valid_points(view)
    good, every = known(points, "goodput"), known(points, "request_throughput")
    if len(good) < 2 or not every:
        return None
    share = 1 / per_gpu("goodput", view.gpus)
    unit = unit_text("goodput", view.gpus)
    y = axis_from_zero(unit, [e.value * share for _, e in (*good, *every)])
    lines = (
        _measured("all requests", every, share, y, Role.FRONTIER),
        _measured("within every limit", good, share, y, Role.SLA, "s"),
    )
    panel = Panel(f"requests per second ({unit})", concurrency_axis([c for c, _ in every]), y, lines,
                  rules=chosen_rule(view))  # fmt: skip
    best = max(good, key=lambda item: item[1].value)
    most = f"Most goodput: {value_text('goodput', best[1].value, view.gpus)} at {setting(best[0])}."
    most = most if best[1].value else "No request kept every limit, at any setting."
    limits = ", ".join(limit_text(li) for li in view.sla if metric(li.metric).quantity)
    notes = [f"{most} A request counts as good when it alone keeps {limits}.",
             *_edge_notes(points, ["goodput", "request_throughput"]), *excluded_notes(view)]  # fmt: skip
    load = kind_of(points[0].concurrency)
    return series_figure("goodput", view, f"goodput against {load}", [panel], notes, columns=1)


def inflation_figure(view: View) -> Picture | None:
    """By what factor TTFT and TPOT grow over the lowest concurrency measured; None with fewer than two settings."""
    points = valid_points(view)
    if len(points) < 2:
        return None
    first = points[0].concurrency
    panels: list[Panel] = []
    drawn: list[str] = []
    baseless: list[str] = []
    for quantity in ("ttft", "tpot"):
        lines = []
        for statistic, marker, role in STATISTICS:
            name = f"{statistic}_{quantity}"
            values = known(points, name)
            base = values[0][1].value if values and values[0][0] == first else None
            if base is not None and not 0 < base < math.inf:
                baseless.append(f"{metric(name).label} is {'infinite' if base else '0'}")
            elif base is not None and len(values) > 1:
                drawn.append(name)
                multiples = tuple((amount(c), e.value / base) for c, e in values)
                lines.append(Line(statistic, multiples, role, marker=marker))
        if lines:
            y = padded_axis("times (log scale)", [1.0, *(y for line in lines for _, y in line.points)], log=True)
            x = concurrency_axis([p.concurrency for p in points])
            panels.append(Panel(LATENCIES[quantity], x, y, tuple(lines), rules=chosen_rule(view)))
    if not panels:
        return None
    notes = _edge_notes(points, drawn, log=True)
    notes += [f"No multiple: at {setting(first)} {' and '.join(baseless)}."] if baseless else []
    title = f"latency as a multiple of what it is at {setting(first)}"
    return series_figure("inflation", view, title, panels, (*notes, *excluded_notes(view)))


# --- from samples: distributions


def settings_shown(view: View, samples: Samples) -> list[int]:
    """The lowest, the operating point with its neighbours, the highest; then others evenly, at most MOST in all."""
    measured = _with_samples(view, samples)
    if len(measured) <= MOST:
        return measured
    wanted = [measured[0], measured[-1]]
    chosen = view.decision and (view.decision.concurrency or view.decision.candidate)
    if chosen in measured:
        i = measured.index(chosen)
        wanted += measured[i : i + 2]
    spread = [measured[round(k * (len(measured) - 1) / (MOST - 1))] for k in range(MOST)]
    return sorted(list(dict.fromkeys([*wanted, *spread, *measured]))[:MOST])


def _with_samples(view: View, samples: Samples) -> list[int]:
    """The valid settings whose requests are known, in order."""
    return [p.concurrency for p in valid_points(view) if p.concurrency in samples]


def _not_shown(view: View, samples: Samples, shown: Sequence[int]) -> list[str]:
    """The notes on settings without a curve: those left out for room, and those that are excluded."""
    every = _with_samples(view, samples)
    more = set(every) - set(shown)
    return [*([f"{len(shown)} of {len(every)} settings are shown."] if more else []), *excluded_notes(view)]


def tails_figure(view: View, samples: Samples) -> Picture | None:
    """Cumulative distributions above, and below them the tail: the share of requests slower than x, both log."""
    shown = settings_shown(view, samples)
    bodies, tails, lost = [], [], 0
    empty: list[str] = []
    for quantity in ("ttft", "tpot", "e2e"):
        values = {c: np.sort(v[~np.isnan(v)]) for c in shown for v in [getattr(samples[c], quantity)]}
        finite = [v for vs in values.values() for v in (vs[np.isfinite(vs) & (vs > 0)],) if len(v)]
        empty += [f"{quantity.upper()} at {setting(c)}" for c in shown if not np.isfinite(values[c]).any()]
        if not finite:
            continue
        low, high = min(float(v.min()) for v in finite), max(float(v.max()) for v in finite)
        scale, unit = seconds_axis([low, high])
        lost = max(lost, sum(int(np.isinf(vs).sum()) for vs in values.values()))
        x = padded_axis(f"{unit}, log scale", [low * scale, high * scale], log=True)
        limits = [limit for limit in _limits_on(view, quantity) if x.holds(limit.promise * scale)]
        rules = tuple(Rule("x", limit.promise * scale, (limit_text(limit),)) for limit in limits)
        floor = 0.5 / max(len(v) for v in values.values())
        body, tail = [], []
        for c, role in zip(shown, INKS, strict=False):
            if np.isfinite(values[c]).any():
                curve = [(max(v, x.low), p) for v, p in _curve(values[c], scale)]
                body.append(Line(setting(c), tuple((v, p * 100) for v, p in curve), role, "steps"))
                tail.append(Line(setting(c), tuple((v, max(floor, 1 - p) * 100) for v, p in curve), role, "steps"))
        percent = Axis("% of requests at most", 0.0, 103.0, ticks=(0, 100, 50, 25, 75))
        bodies.append(Panel(LATENCIES[quantity], x, percent, tuple(body), rules=rules))
        slower = Axis("% of requests slower (log scale)", floor * 100, 120.0, log=True)
        tails.append(Panel(f"tail of the {LATENCIES[quantity]}", x, slower, tuple(tail), rules=rules))
    if not bodies:
        return None
    notes = ["Every request of the windows counts. A tail that ends in a step says no more than its last request."]
    if lost:
        notes.append("A failed request never ends: its curve stays below 100%, and its tail above the floor.")
    if empty:
        notes.append(f"No curve, as no request has one: {', '.join(empty)}.")
    notes += _not_shown(view, samples, shown)
    return series_figure(
        "tails", view, "how latency is distributed", (*bodies, *tails), notes, columns=len(bodies), tall=230
    )


def _curve(ordered: Floats, scale: float) -> list[tuple[float, float]]:
    """(value, share of requests at most that), finely where the tail is; failures only lower the shares."""
    n, last = len(ordered), int(np.isfinite(ordered).sum())
    # Evenly, and once more evenly where the tail is; the last success is always among them.
    ranks = np.concatenate([np.linspace(1, last, FINE // 2), last + 1 - np.geomspace(1, last, FINE // 2)])
    return [(float(ordered[r - 1]) * scale, float(r / n)) for r in np.unique(np.rint(ranks).astype(int))]


def jitter_figure(view: View, samples: Samples) -> Picture | None:
    """The gaps between chunks: their tail at some settings, and how far p99 lies above p50 at every one."""
    histograms = {c: LogHistogram.merged(s.block_itl) for c, s in samples.items()}
    chosen = settings_shown(view, samples)
    shown = [c for c in chosen if histograms[c].count > 1]
    if not shown:
        return None
    ends = [max(1e-6, histograms[c].quantile(p)) for c in shown for p in (0.001, 1.0)]
    scale, unit = seconds_axis(ends)
    floor = max(1e-6, 0.5 / max(histograms[c].count for c in shown))
    lines = tuple(
        Line(setting(c), _gap_tail(histograms[c], scale, floor), role, "steps")
        for c, role in zip(chosen, INKS, strict=False)
        if c in shown
    )
    x = padded_axis(f"gap between chunks ({unit}, log scale)", [e * scale for e in ends], log=True)
    longer = Axis("% of gaps longer (log scale)", floor * 100, 120.0, log=True)
    panels = [Panel("tail of the gaps between chunks", x, longer, lines)]
    every = [c for c in _with_samples(view, samples) if histograms[c].count > 1]
    ratios = [(amount(c), histograms[c].quantile(0.99) / max(1e-6, histograms[c].quantile(0.5))) for c in every]
    if len(ratios) > 1:
        up = padded_axis("times", [1.0, *(r for _, r in ratios)], log=False)
        line = Line("p99 / p50", tuple(ratios), Role.TEXT)
        panels.append(Panel("jitter: p99 gap over p50 gap", concurrency_axis(every), up, (line,),
                            rules=chosen_rule(view)))  # fmt: skip
    notes = ["A gap is between two chunks with tokens, as they arrived; a pause of the server shows in the tail."]
    per_chunk = [float(np.nansum(s.completion_tokens[s.ok]) / max(1, s.events[s.ok].sum())) for s in samples.values()]
    if (most := max(per_chunk, default=0.0)) > 1.05:
        notes.append(f"A chunk carried up to {most:.2g} tokens on average: these are not gaps between tokens.")
    if gapless := [setting(c) for c in chosen if c not in shown]:
        notes.append(f"No gap between two chunks, and so no curve: {', '.join(gapless)}.")
    return series_figure(
        "jitter", view, "how steadily tokens arrive", panels, (*notes, *_not_shown(view, samples, chosen))
    )


def _gap_tail(histogram: LogHistogram, scale: float, floor: float) -> tuple[tuple[float, float], ...]:
    shares = [*np.linspace(0.001, 0.9, 40), *(1 - np.geomspace(0.1, 1 / histogram.count, 80))]
    curve = [(max(1e-6, histogram.quantile(float(p))) * scale, max(floor, 1 - float(p)) * 100) for p in shares]
    return tuple((v, p) for v, p in curve if math.isfinite(v))


def lengths_figure(view: View, samples: Samples) -> Picture | None:
    """TTFT against input length and TPOT against context length; None where the lengths were all but the same."""
    shown = settings_shown(view, samples)
    shown = [shown[0], shown[-1]] if len(shown) > 1 else shown
    inks = dict(zip(shown, zip(INKS, MARKERS, strict=True), strict=False))
    panels = []
    few: list[str] = []
    for quantity, words in (("ttft", "input tokens"), ("tpot", "context tokens (input + half of the output)")):
        pairs = {c: _pairs(samples[c], quantity) for c in shown}
        few += [f"{quantity.upper()} at {setting(c)}" for c, (x, _) in pairs.items() if len(x) < 20]
        pairs = {c: (x, y) for c, (x, y) in pairs.items() if len(x) >= 20}
        if not pairs:
            continue
        xs = np.concatenate([x for x, _ in pairs.values()])
        ys = np.concatenate([y for _, y in pairs.values()])
        if xs.max() < VARIED * xs.min():
            continue
        scale, unit = seconds_axis(ys.tolist())
        lines = [Line("", _thinned(x, y * scale), inks[c][0], "cloud") for c, (x, y) in pairs.items()]
        lines += [
            Line(f"median, {setting(c)}", _medians(x, y * scale), inks[c][0], marker=inks[c][1])
            for c, (x, y) in pairs.items()
        ]
        across = padded_axis(words, [float(xs.min()), float(xs.max())], log=False)
        up = padded_axis(
            f"{quantity.upper()} ({unit}, log scale)", [float(ys.min()) * scale, float(ys.max()) * scale], log=True
        )
        title = f"{LATENCIES[quantity]} against {words.partition(' (')[0]}"
        panels.append(Panel(title, across, up, tuple(line for line in lines if line.points)))
    if not panels:
        return None
    notes = ["Each dot is a request; lengths as the server counted them. Medians over tenths of the range."]
    if any(not samples[c].ok.all() for c in shown):
        notes.append("Failed requests have no dot.")
    if few:
        notes.append(f"Fewer than 20 requests with both, and so not drawn: {', '.join(few)}.")
    return series_figure("lengths", view, "latency against length", panels, (*notes, *_not_shown(view, samples, shown)))


def _pairs(sample: WindowData, quantity: str) -> tuple[Floats, Floats]:
    y: Floats = getattr(sample, quantity)
    x = sample.prompt_tokens if quantity == "ttft" else sample.prompt_tokens + sample.completion_tokens / 2
    keep = np.isfinite(x) & np.isfinite(y) & (y > 0)
    return x[keep], y[keep]


def _thinned(x: Floats, y: Floats, most: int = 300) -> tuple[tuple[float, float], ...]:
    """Every k-th request: a cloud of thousands is a blot and a heavy file."""
    step = max(1, math.ceil(len(x) / most))
    return tuple(zip(x[::step].tolist(), y[::step].tolist(), strict=True))


def _medians(x: Floats, y: Floats, bins: int = 10) -> tuple[tuple[float, float], ...]:
    edges = np.linspace(x.min(), x.max(), bins + 1)
    medians = []
    for low, high in itertools.pairwise(edges):
        inside = (x >= low) & ((x < high) | (high == edges[-1]))
        if inside.sum() >= 5:
            medians.append((float(np.median(x[inside])), float(np.median(y[inside]))))
    return tuple(medians)


FROM_POINTS: dict[str, Callable[[View], Picture | None]] = {
    "latency": latency_figure, "throughput": throughput_figure, "goodput": goodput_figure,
    "inflation": inflation_figure, "time": time_figure,
}  # fmt: skip
FROM_SAMPLES: dict[str, Callable[[View, Samples], Picture | None]] = {
    "tails": tails_figure, "jitter": jitter_figure, "lengths": lengths_figure,
}  # fmt: skip


def detail_figure(name: str, view: View, samples: Samples) -> Picture | None:
    """The detail figure of that name; None where there is nothing to show."""
    if name in FROM_POINTS:
        return FROM_POINTS[name](view)
    return FROM_SAMPLES[name](view, samples) if samples else None
