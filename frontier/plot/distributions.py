"""The companions of the picture that need every request: distributions and their tails, jitter, and lengths.

One trial as a timeline: a row per stream, each request from its send over its first token to its last.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from frontier.decide.wording import clean, count, setting
from frontier.metrics import LATENCIES
from frontier.model import Measurement, Outcome, Record
from frontier.plot.axes import ticks_of
from frontier.plot.chart import Chart, Line, Mark, Scale, Sheet, Span, concurrency_scale, span_scale
from frontier.plot.companions import chosen_mark, limit_marks
from frontier.plot.data import View, panel_name
from frontier.stats.histogram import LogHistogram
from frontier.stats.window import Sample

Samples = Mapping[int, Sample]
Floats = NDArray[np.float64]
MOST = 5
"""Settings shown at once: more lines would only hide each other."""
MARKERS = ("o", "s", "^", "D", "v")
FINE = 240
"""Points a curve is drawn with: more than a screen's worth changes no pixel."""
VARIED = 1.2
"""Lengths that differ by less than this factor show no dependence on them."""


def settings_shown(view: View, samples: Samples) -> list[int]:
    """The lowest, the operating point with its neighbours, the highest; then others evenly, at most MOST in all."""
    valid = {p.concurrency for p in view.mine if p.valid}
    at = sorted(c for c in samples if c in valid)
    if len(at) <= MOST:
        return at
    wanted = [at[0], at[-1]]
    chosen = view.decision and (view.decision.concurrency or view.decision.candidate)
    if chosen in at:
        i = at.index(chosen)
        wanted += [at[i], *at[i + 1 : i + 2]]
    spread = [at[round(k * (len(at) - 1) / (MOST - 1))] for k in range(MOST)]
    found: list[int] = []
    for c in (*wanted, *spread, *at):
        if c not in found and len(found) < MOST:
            found.append(c)
    return sorted(found)


def not_shown(view: View, samples: Samples, shown: Sequence[int]) -> list[str]:
    """The notes on settings without a curve: those left out for room, and those that are flagged."""
    valid = {p.concurrency for p in view.mine if p.valid}
    more = sorted(c for c in samples if c in valid and c not in shown)
    found = [f"{len(shown)} of {len(shown) + len(more)} settings are shown."] if more else []
    flagged = sorted(c for c in samples if c not in valid)
    return found + ([f"Flagged, and so not shown: {', '.join(map(setting, flagged))}."] if flagged else [])


def keys(shown: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """What the inks stand for."""
    return tuple((setting(c), i) for i, c in enumerate(shown))


def tails_sheet(view: View, samples: Samples) -> Sheet | None:
    """Cumulative distributions above, and below them the tail: the share of requests slower than x, both log."""
    shown = settings_shown(view, samples)
    bodies, tails, lost = [], [], 0
    empty: list[str] = []
    for quantity in ("ttft", "tpot", "e2e"):
        values = {c: _measured(samples[c], quantity) for c in shown}
        finite = [v for vs in values.values() for v in (vs[np.isfinite(vs) & (vs > 0)],) if len(v)]
        empty += [f"{quantity.upper()} at {setting(c)}" for c in shown if not np.isfinite(values[c]).any()]
        if not finite:
            continue
        low, high = min(float(v.min()) for v in finite), max(float(v.max()) for v in finite)
        scale, unit = (1.0, "s") if low >= 1 else (1e3, "ms")
        lost = max(lost, sum(int(np.isinf(vs).sum()) for vs in values.values()))
        x = span_scale(f"{unit}, log scale", [low * scale, high * scale], log=True, across=True)
        marks = tuple(m for m in limit_marks(view, quantity, scale) if x.low < m.at < x.high)
        curves = {
            i: [(max(v, x.low), p) for v, p in _curve(values[c], scale)]
            for i, c in enumerate(shown) if np.isfinite(values[c]).any()
        }  # fmt: skip
        body = [
            Line(setting(shown[i]), tuple((v, p * 100) for v, p in curve), i, kind="steps")
            for i, curve in curves.items()
        ]
        floor = 0.5 / max(len(v) for v in values.values())
        tail = [
            Line(setting(shown[i]), tuple((v, max(floor, 1 - p) * 100) for v, p in curve), i, kind="steps")
            for i, curve in curves.items()
        ]
        bodies.append(Chart(LATENCIES[quantity], x, _percent("% of requests at most"), tuple(body), marks,
                            keyed=True))  # fmt: skip
        tails.append(Chart(f"tail of the {LATENCIES[quantity]}", x, _share_scale(floor), tuple(tail), marks,
                           keyed=True))  # fmt: skip
    if not bodies:
        return None
    notes = ["Every request of the windows counts. A tail that ends in a step says no more than its last request."]
    if lost:
        notes.append("A failed request never ends: its curve stays below 100%, and its tail above the floor.")
    if empty:
        notes.append(f"No curve, as no request has one: {', '.join(empty)}.")
    notes += not_shown(view, samples, shown)
    charts = (*bodies, *tails)
    return Sheet("tails", f"{panel_name(view)}: how latency is distributed", charts, tuple(notes), len(bodies), 230,
                 keys(shown))  # fmt: skip


def _measured(sample: Sample, quantity: str) -> Floats:
    values: Floats = getattr(sample, quantity)
    return np.sort(values[~np.isnan(values)])


def _curve(ordered: Floats, scale: float) -> list[tuple[float, float]]:
    """(value, share of requests at most that), finely where the tail is; failures only lower the shares."""
    n, last = len(ordered), int(np.isfinite(ordered).sum())
    # Evenly, and once more evenly where the tail is; the last success is always among them.
    ranks = np.concatenate([np.linspace(1, last, FINE // 2), last + 1 - np.geomspace(1, last, FINE // 2)])
    return [(float(ordered[r - 1]) * scale, float(r / n)) for r in np.unique(np.rint(ranks).astype(int))]


def _percent(label: str) -> Scale:
    return Scale(label, 0.0, 103.0, False, tuple((float(v), str(v)) for v in (0, 25, 50, 75, 100)))


def _share_scale(floor: float) -> Scale:
    ticks = [(p, f"{p:g}") for p in (100.0, 10.0, 1.0, 0.1, 0.01, 0.001) if p >= floor * 100]
    return Scale("% of requests slower (log scale)", floor * 100, 120.0, True, tuple(ticks))


def jitter_sheet(view: View, samples: Samples) -> Sheet | None:
    """The gaps between chunks: their tail at some settings, and how far p99 lies above p50 at every one."""
    histograms = {c: LogHistogram.merged(s.block_itl) for c, s in samples.items()}
    chosen = settings_shown(view, samples)
    shown = [c for c in chosen if histograms[c].count > 1]
    if not shown:
        return None
    gapless = [setting(c) for c in chosen if c not in shown]
    ends = [max(1e-6, histograms[c].quantile(p)) for c in shown for p in (0.001, 1.0)]
    scale, unit = (1.0, "s") if min(ends) >= 1 else (1e3, "ms")
    floor = 0.5 / max(histograms[c].count for c in shown)
    lines = tuple(
        Line(setting(c), _gap_tail(histograms[c], scale, floor), i, kind="steps") for i, c in enumerate(shown)
    )  # fmt: skip
    x = span_scale(f"gap between chunks ({unit}, log scale)", [e * scale for e in ends], log=True, across=True)
    charts = [Chart("tail of the gaps between chunks", x, _gap_scale(floor), lines, keyed=True)]
    valid = sorted(
        c for c in samples if histograms[c].count > 1 and any(p.concurrency == c and p.valid for p in view.mine)
    )
    ratios = [(float(c), histograms[c].quantile(0.99) / max(1e-6, histograms[c].quantile(0.5))) for c in valid]
    if len(ratios) > 1:
        line = Line("p99 / p50", tuple(ratios), 0, "o")
        up = span_scale("times", [1.0, *(r for _, r in ratios)], log=False)
        charts.append(
            Chart("jitter: p99 gap over p50 gap", concurrency_scale(valid), up, (line,), chosen_mark(view))
        )  # fmt: skip
    per_chunk = [float(np.nansum(s.completion_tokens[s.ok]) / max(1, s.events[s.ok].sum())) for s in samples.values()]
    notes = [
        "A gap is between two chunks that carried tokens, as they arrived; a pause of the server shows in the tail."
    ]
    if per_chunk and max(per_chunk) > 1.05:
        notes.append(
            f"A chunk carried up to {max(per_chunk):.2g} tokens on average: these are not gaps between tokens."
        )
    if gapless:
        notes.append(f"No gap between two chunks, and so no curve: {', '.join(gapless)}.")
    notes += not_shown(view, samples, chosen)
    return Sheet(
        "jitter", f"{panel_name(view)}: how steadily tokens arrive", tuple(charts), tuple(notes), key=keys(shown)
    )


def _gap_tail(histogram: LogHistogram, scale: float, floor: float) -> tuple[tuple[float, float], ...]:
    shares = [*np.linspace(0.001, 0.9, 40), *(1 - np.geomspace(0.1, 1 / histogram.count, 80))]
    found = [(max(1e-6, histogram.quantile(float(p))) * scale, max(floor, 1 - float(p)) * 100) for p in shares]
    return tuple((v, p) for v, p in found if math.isfinite(v))


def _gap_scale(floor: float) -> Scale:
    found = _share_scale(max(floor, 1e-6))
    return Scale("% of gaps longer (log scale)", found.low, found.high, True, found.ticks)


def lengths_sheet(view: View, samples: Samples) -> Sheet | None:
    """TTFT against input length and TPOT against context length; None where the lengths were all but the same."""
    shown = settings_shown(view, samples)
    shown = [shown[0], shown[-1]] if len(shown) > 1 else shown
    charts = []
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
        scale, unit = (1.0, "s") if ys.min() >= 1 else (1e3, "ms")
        inks = {c: i for i, c in enumerate(shown)}
        lines = [
            Line("", tuple(zip(*_thinned(x, y * scale), strict=True)), inks[c], "o", "cloud")
            for c, (x, y) in pairs.items()
        ]
        lines += [
            Line(f"median, {setting(c)}", _medians(x, y * scale), inks[c], MARKERS[inks[c]])
            for c, (x, y) in pairs.items()
        ]
        across = span_scale(words, [float(xs.min()), float(xs.max())], log=False, across=True)
        up = span_scale(
            f"{quantity.upper()} ({unit}, log scale)", [float(ys.min()) * scale, float(ys.max()) * scale], log=True
        )
        charts.append(Chart(f"{LATENCIES[quantity]} against {words.partition(' (')[0]}", across, up,
                            tuple(line for line in lines if line.points), keyed=True))  # fmt: skip
    if not charts:
        return None
    notes = ["Each dot is a request; lengths as the server counted them. Medians over tenths of the range."]
    if any(not samples[c].ok.all() for c in shown):
        notes.append("Failed requests have no dot.")
    if few:
        notes.append(f"Fewer than 20 requests with both, and so not drawn: {', '.join(few)}.")
    notes += not_shown(view, samples, shown)
    key = tuple((f"{setting(c)}, with medians", i) for i, c in enumerate(shown))
    return Sheet("lengths", f"{panel_name(view)}: latency against length", tuple(charts), tuple(notes), key=key)


def _pairs(sample: Sample, quantity: str) -> tuple[Floats, Floats]:
    y: Floats = getattr(sample, quantity)
    x = sample.prompt_tokens if quantity == "ttft" else sample.prompt_tokens + sample.completion_tokens / 2
    keep = np.isfinite(x) & np.isfinite(y) & (y > 0)
    return x[keep], y[keep]


def _thinned(x: Floats, y: Floats, most: int = 300) -> tuple[list[float], list[float]]:
    """Every k-th request: a cloud of thousands is a blot and a heavy file."""
    step = max(1, math.ceil(len(x) / most))
    return x[::step].tolist(), y[::step].tolist()


def _medians(x: Floats, y: Floats, bins: int = 10) -> tuple[tuple[float, float], ...]:
    edges = np.linspace(x.min(), x.max(), bins + 1)
    found = []
    for low, high in itertools.pairwise(edges):
        inside = (x >= low) & ((x < high) | (high == edges[-1]))
        if inside.sum() >= 5:
            found.append((float(np.median(x[inside])), float(np.median(y[inside]))))
    return tuple(found)


FROM_SAMPLES = {"tails": tails_sheet, "jitter": jitter_sheet, "lengths": lengths_sheet}


EACH, MOST_TIMELINE = 40, 1500
"""Requests drawn: about so many of each stream from the beginning of the trial, and so many in all."""


def timeline_sheet(measurement: Measurement, records: Iterable[Record]) -> Sheet | None:
    """The waterfall of a trial, from its start; None when nothing was sent."""
    ordered = sorted(records, key=lambda r: r.sent)
    if not ordered:
        return None
    window, trial = measurement.window, measurement.trial
    shown = ordered[: min(MOST_TIMELINE, EACH * trial.concurrency)]
    begin = shown[0].sent
    end = max(r.end for r in shown) if len(shown) == len(ordered) else shown[-1].sent
    streams = {stream: row for row, stream in enumerate(sorted({r.stream for r in shown}))}
    spans = [Span(0, window.start, min(window.end, end), "shade")] if window.start < end else []
    for r in shown:
        row, stop = streams[r.stream], min(r.end, end)
        if r.outcome not in (Outcome.OK, Outcome.CANCELLED):
            spans.append(Span(row, r.sent, stop, "failed"))
            continue
        first = min(r.first, end) if r.first is not None else stop
        spans += [Span(row, r.sent, first, "wait"), Span(row, first, stop, "answer")]
    rows = len(streams)
    x = Scale("seconds since the trial began", begin, end, False, ticks_of(begin, end, log=False))
    step = max(1, rows // 8)
    ticks = tuple((float(i), str(i + 1)) for i in range(0, rows, step))
    y = Scale("stream", rows - 0.3, -0.7, False, ticks)
    failed = sum(span.of == "failed" for span in spans)
    notes = [
        "Pale: from sending to the first token. Dark: from the first token to the last. Green ground: the window that "
        "counts." + (f" Vermillion: {count(failed, 'failed request')}." if failed else "")
    ]
    if len(shown) < len(ordered):
        notes.append(f"The first {len(shown):,} of {len(ordered):,} requests.")
    edges = ((window.start, "window begins"), (window.end, "window ends"))
    marks = tuple(Mark(at, text, "chosen", upright=True) for at, text in edges if begin < at < end)
    name = f"{clean(trial.shape.label, 40)} c={trial.concurrency} r{trial.repeat}"
    chart = Chart("", x, y, (), marks, tuple(spans))
    return Sheet("timeline", f"{name}: every request of a trial", (chart,), tuple(notes), columns=1, tall=360)
