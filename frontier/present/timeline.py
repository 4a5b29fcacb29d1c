"""One trial as a timeline: a row per stream, each request from its send over its first token to its last."""

from collections.abc import Iterable

from frontier.model import Measurement, Outcome, Record
from frontier.present.axes import ticks_of
from frontier.present.chart import Chart, Mark, Scale, Sheet, Span
from frontier.present.wording import clean, count

EACH, MOST = 40, 1500
"""Requests drawn: about so many of each stream from the beginning of the trial, and so many in all."""


def timeline_sheet(measurement: Measurement, records: Iterable[Record]) -> Sheet | None:
    """The waterfall of a trial, from its start; None when nothing was sent."""
    ordered = sorted(records, key=lambda r: r.sent)
    if not ordered:
        return None
    window, trial = measurement.window, measurement.trial
    shown = ordered[: min(MOST, EACH * trial.concurrency)]
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
