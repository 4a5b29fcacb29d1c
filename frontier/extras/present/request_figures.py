"""Detail figures of single requests: latency distributions and their tails, jitter, and one trial's
timeline.

`detail_figure` gives any detail figure of a series by its name.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from frontier.core.model.loads import NO_LOAD, Load
from frontier.core.model.metrics import LATENCIES, short
from frontier.core.model.text import clean
from frontier.core.model.trials import Measurement, Outcome, Record
from frontier.core.model.units import format_share
from frontier.core.window.histogram import LogHistogram
from frontier.core.window.window import WindowData
from frontier.extras.present.figure_axes import concurrency_axis
from frontier.extras.present.series_figures import (
    FROM_POINTS,
    chosen_rule,
    limits_on,
    series_figure,
    tightest_limit,
    valid_points,
)
from frontier.show.picture.axes import padded_axis
from frontier.show.picture.data import Axis, Line, Panel, Picture, Role, Rule
from frontier.show.view.axis_units import seconds_axis
from frontier.show.view.series_view import SeriesView
from frontier.show.view.wording import count, limit_value_text

Samples = Mapping[Load, WindowData]
Floats = NDArray[np.float64]
INKS = (Role.FRONTIER, Role.OTHER, Role.THIRD, Role.SLA, Role.FOURTH)
"""Colours of settings shown together; the operating point has its own."""
MOST = len(INKS)
"""Most settings shown at once: more lines would only hide each other."""
FINE = 240
"""Most points of a curve: more than a screen's worth changes no pixel."""
REACH = 8.0
"""The factor from the values to which a limit is drawn; beyond it the axis only names it."""
EACH, MOST_STREAMS = 40, 12
"""Requests in a timeline: about how many of each stream, from the beginning of the trial, and the
most streams. More rows leave nothing to see between them."""


def settings_shown(view: SeriesView, samples: Samples) -> list[Load]:
    """The settings shown: the lowest, the operating point with its neighbours, and the highest;
    then others evenly, at most MOST in all.
    """
    measured = _with_samples(view, samples)
    if len(measured) <= MOST:
        return measured
    wanted = [measured[0], measured[-1]]
    chosen = view.decision and (view.decision.load or view.decision.candidate)
    if chosen in measured:
        i = measured.index(chosen)
        wanted += measured[i : i + 2]
    spread = [measured[round(k * (len(measured) - 1) / (MOST - 1))] for k in range(MOST)]
    return sorted(list(dict.fromkeys([*wanted, *spread, *measured]))[:MOST])


def _with_samples(view: SeriesView, samples: Samples) -> list[Load]:
    """The valid settings whose requests are known, in order."""
    return [p.load for p in valid_points(view) if p.load in samples]


def _left_out(view: SeriesView, samples: Samples, shown: Sequence[Load]) -> list[str]:
    """A note that settings are left out for room; '' where none are."""
    every = _with_samples(view, samples)
    return [f"{len(shown)} of {len(every)} settings are shown."] if len(every) > len(shown) else []


def tails_figure(view: SeriesView, samples: Samples) -> Picture | None:
    """The share of requests slower than x for each latency, both axes logarithmic: percentiles are
    read from it.
    """
    shown = settings_shown(view, samples)
    ordered = {
        quantity: {c: np.sort(v[~np.isnan(v)]) for c in shown for v in [getattr(samples[c], quantity)]}
        for quantity in ("ttft", "tpot", "e2e")
    }
    tails = [panel for q, values in ordered.items() if (panel := _tail_panel(view, q, values)) is not None]
    if not tails:
        return None
    notes = ["Every request of the windows counts. The last step of each curve is one request."]
    if any(np.isinf(v).any() for values in ordered.values() for v in values.values()):
        notes.append("A failed request never ends: its curve stays above the floor.")
    if empty := [
        f"{q.upper()} at {c.label}"
        for q, values in ordered.items()
        for c, v in values.items()
        if not np.isfinite(v).any()
    ]:
        notes.append(f"No curve, as no request has one: {', '.join(empty)}.")
    notes += _left_out(view, samples, shown)
    title = _over_limit(view, ordered) or "the tail of each latency"
    return series_figure("tails", view, title, tails, notes, columns=len(tails), tall=320)


def _over_limit(view: SeriesView, ordered: Mapping[str, Mapping[Load, Floats]]) -> str:
    """'at c=45 0.02% of requests have a TPOT over 18 ms, 5% may'; '' without a limit on a
    percentile.
    """
    limit, c = tightest_limit(view), view.answer.shown if view.answer is not None else None
    values = ordered.get(limit.of.quantity or "", {}).get(c or NO_LOAD) if limit is not None else None
    if limit is None or limit.of.p is None or values is None or not len(values):
        return ""
    over, may = float((values > limit.promise).mean()), f"{100 * (1 - limit.of.p):.6g}%"
    named = f"{short(limit.of.quantity or '')} over {limit_value_text(limit.metric, limit.promise)}"
    share = f"{format_share(over)} of requests have" if over else "no request has"
    return f"at {(c or NO_LOAD).label} {share} a {named}, {may} may"


def _tail_panel(view: SeriesView, quantity: str, values: Mapping[Load, Floats]) -> Panel | None:
    """The tail of one latency, a curve for each setting, from the ordered values of its requests;
    None where no request has one.
    """
    finite = [v for vs in values.values() for v in (vs[np.isfinite(vs) & (vs > 0)],) if len(v)]
    if not finite:
        return None
    low, high = min(float(v.min()) for v in finite), max(float(v.max()) for v in finite)
    scale, unit = seconds_axis([low, high])
    limits = limits_on(view, quantity)
    near = [limit for limit in limits if low / REACH <= limit.promise <= high * REACH]
    x = padded_axis(f"{unit}, log scale", [v * scale for v in (low, high, *(li.promise for li in near))], log=True)
    if limits:
        named = [f"{'grey' if limit in near else 'beyond'}: {limit}" for limit in limits]
        x = replace(x, label=f"{unit}, log scale ({', '.join(named)})")
    rules = tuple(Rule("x", limit.promise * scale, role=Role.QUIET) for limit in near)
    shares = {limit.of.p: limit for limit in limits if limit.of.p is not None}
    rules += tuple(Rule("y", 100 * (1 - p), (f"p{100 * p:g}",), Role.QUIET, dashed=True) for p in shares)
    floor = 0.5 / max(len(v) for v in values.values())
    curves = {
        c: tuple((max(v, x.low), max(floor, 1 - p) * 100) for v, p in _curve(of_setting, scale))
        for c, of_setting in values.items()
        if np.isfinite(of_setting).any()
    }
    slower = Axis("% of requests slower (log scale)", floor * 100, 120.0, log=True)
    return Panel(LATENCIES[quantity], x, slower, _curves_of(view, list(values), curves), rules=rules)


def _curves_of(
    view: SeriesView, settings: Sequence[Load], curves: Mapping[Load, Sequence[tuple[float, float]]]
) -> tuple[Line, ...]:
    """The curve of each setting that has one, the operating point's strong. A setting has the same
    colour in every panel.
    """
    lines = []
    for c, role in zip(settings, INKS, strict=False):
        is_chosen = c == view.chosen
        ink = Role.OPERATING if is_chosen else role
        lines += [Line(c.label, tuple(curves[c]), ink, "steps", strong=is_chosen)] if c in curves else []
    return tuple(lines)


def _curve(ordered: Floats, scale: float) -> list[tuple[float, float]]:
    """Points (value, share of requests at most that), dense in the tail; failures only lower the
    shares.
    """
    n, last = len(ordered), int(np.isfinite(ordered).sum())
    # Evenly, and once more evenly where the tail is; the last success is always among them.
    ranks = np.concatenate([np.linspace(1, last, FINE // 2), last + 1 - np.geomspace(1, last, FINE // 2)])
    return [(float(ordered[r - 1]) * scale, float(r / n)) for r in np.unique(np.rint(ranks).astype(int))]


def jitter_figure(view: SeriesView, samples: Samples) -> Picture | None:
    """The gaps between chunks: their tail at some settings, and p99 over p50 at every setting."""
    histograms = {c: LogHistogram.merged(s.block_itl) for c, s in samples.items()}
    chosen = settings_shown(view, samples)
    shown = [c for c in chosen if histograms[c].count > 1]
    if not shown:
        return None
    ends = [max(1e-6, histograms[c].quantile(p)) for c in shown for p in (0.001, 1.0)]
    scale, unit = seconds_axis(ends)
    floor = max(1e-6, 0.5 / max(histograms[c].count for c in shown))
    lines = _curves_of(view, chosen, {c: _gap_tail(histograms[c], scale, floor) for c in shown})
    x = padded_axis(f"gap between chunks ({unit}, log scale)", [e * scale for e in ends], log=True)
    longer = Axis("% of gaps longer (log scale)", floor * 100, 120.0, log=True)
    panels = [Panel("tail of the gaps between chunks", x, longer, lines)]
    every = [c for c in _with_samples(view, samples) if histograms[c].count > 1]
    ratios = [(c.amount, histograms[c].quantile(0.99) / max(1e-6, histograms[c].quantile(0.5))) for c in every]
    if len(ratios) > 1:
        up = padded_axis("p99 / p50", [1.0, *(r for _, r in ratios)], log=False)
        line = Line("", tuple(ratios), Role.TEXT)
        panels.append(
            Panel("jitter: p99 gap over p50 gap", concurrency_axis(every), up, (line,), rules=chosen_rule(view))
        )
    notes = ["A gap is between two chunks with tokens, as they arrived; a pause of the server shows in the tail."]
    per_chunk = [float(np.nansum(s.completion_tokens[s.ok]) / max(1, s.events[s.ok].sum())) for s in samples.values()]
    if (most := max(per_chunk, default=0.0)) > 1.05:
        notes.append(f"A chunk carried up to {most:.2g} tokens on average: these are not gaps between tokens.")
    if gapless := [c.label for c in chosen if c not in shown]:
        notes.append(f"No gap between two chunks, and so no curve: {', '.join(gapless)}.")
    title, ratio = "how steadily tokens arrive", dict(ratios).get((view.chosen or NO_LOAD).amount)
    if ratio is not None:
        title = f"at {(view.chosen or NO_LOAD).label} the p99 gap between chunks is {ratio:.2g} times the median"
    return series_figure("jitter", view, title, panels, (*notes, *_left_out(view, samples, chosen)))


def _gap_tail(histogram: LogHistogram, scale: float, floor: float) -> tuple[tuple[float, float], ...]:
    shares = [*np.linspace(0.001, 0.9, 40), *(1 - np.geomspace(0.1, 1 / histogram.count, 80))]
    curve = [(max(1e-6, histogram.quantile(float(p))) * scale, max(floor, 1 - float(p)) * 100) for p in shares]
    return tuple((v, p) for v, p in curve if math.isfinite(v))


def timeline_figure(measurement: Measurement, records: Iterable[Record]) -> Picture | None:
    """A row for each of the first streams of one trial, with each request from its send over its
    first token to its last; None without one.
    """
    everything = sorted(records, key=lambda r: r.sent)
    if not everything:
        return None
    window, trial = measurement.window, measurement.trial
    streams = sorted({r.stream for r in everything})
    ordered = [r for r in everything if r.stream in streams[:MOST_STREAMS]]
    shown = ordered[: EACH * min(len(streams), MOST_STREAMS)]
    begin = shown[0].sent
    end = max(r.end for r in shown) if len(shown) == len(ordered) else shown[-1].sent
    rows = {stream: row for row, stream in enumerate(sorted({r.stream for r in shown}), 1)}
    x = Axis("seconds since the trial began", begin, max(end, begin + 1e-3))
    y = Axis("stream", len(rows) + 0.7, 0.3, ticks=tuple(map(float, range(1, len(rows) + 1, max(1, len(rows) // 8)))))
    failed = sum(map(_has_failed, shown))
    notes = [
        "Faint: from sending to the first token. Strong: from the first token to the last. Between the dashed lines: "
        "the window that counts." + (f" Vermillion: {count(failed, 'failed request')}." if failed else "")
    ]
    if len(streams) > MOST_STREAMS:
        notes.append(f"{MOST_STREAMS} of {len(streams):,} streams are shown.")
    if len(shown) < len(ordered):
        notes.append(f"The first {len(shown):,} of their {len(ordered):,} requests.")
    edges = ((window.start, "window begins"), (window.end, "window ends"))
    rules = tuple(Rule("x", at, (text,), Role.OPERATING, dashed=True) for at, text in edges if begin < at < end)
    of = f"{clean(trial.shape.label, 40)} at {trial.load.label}"
    title = f"{of}: the requests of trial {trial.repeat}, stream by stream"
    panel = Panel("", x, y, _rows_of(shown, rows, end), rules=rules)
    return Picture("timeline", title, (panel,), notes=tuple(notes), description=f"{title}.", tall=360)


def _has_failed(record: Record) -> bool:
    return record.outcome not in (Outcome.OK, Outcome.CANCELLED)


def _rows_of(records: Sequence[Record], rows: Mapping[int, int], end: float) -> tuple[Line, ...]:
    """Faint parts of rows up to the first tokens, strong ones beyond, and failed requests."""
    waits, answers, failed = [], [], []
    for r in records:
        row, stop = float(rows[r.stream]), min(r.end, end)
        first = min(r.first, end) if r.first is not None else stop
        if _has_failed(r):
            failed.append((row, r.sent, stop))
        else:
            waits.append((row, r.sent, first))
            answers.append((row, first, stop))
    looks = ((waits, Role.FRONTIER, False), (answers, Role.FRONTIER, True), (failed, Role.OPERATING, True))
    return tuple(Line("", (), role, "rows", band=tuple(band), strong=strong) for band, role, strong in looks if band)


FROM_SAMPLES: dict[str, Callable[[SeriesView, Samples], Picture | None]] = {
    "tails": tails_figure,
    "jitter": jitter_figure,
}


def detail_figure(name: str, view: SeriesView, samples: Samples) -> Picture | None:
    """The detail figure of that name; None where there is nothing to show."""
    if name in FROM_POINTS:
        return FROM_POINTS[name](view)
    return FROM_SAMPLES[name](view, samples) if samples else None
