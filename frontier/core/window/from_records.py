"""Window data from the records of a trial: streamed in batches, as columns of numbers and sums of
time blocks.

So a million requests of 256 gaps take little memory and no Python work per gap.
"""

import functools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress, islice
from typing import Any, Literal

import numpy as np

from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement, Outcome, Record, Window
from frontier.core.model.units import LONGEST, MOST_COUNT
from frontier.core.window import time_breakdown, timed_tokens
from frontier.core.window.cached_tokens import beyond_template
from frontier.core.window.gauges import held_against
from frontier.core.window.histogram import TOP, LogHistogram, bin_indices
from frontier.core.window.reading_speed import felt
from frontier.core.window.standstill import Standstill
from frontier.core.window.window import BLOCKS, READER, USAGE, Bools, Floats, Ints, WindowData, most_frequent
from frontier.core.window.window_words import BY_CLIENT, WindowWords

BATCH = 1024
"""Records worked on at once: arrays pay, and fit into memory at any output length."""
HOLLOW = 0.10
"""Share of the TTFT after which a first visible character counts as late."""
CONTROLS = 64
"""Other answers of a batch whose first gap is compared with a silence."""
TOO_MANY = 429
"""The HTTP status of a rate limit."""
_ALWAYS = Window(-math.inf, math.inf)  # a background that fails ends before the window opens
_CUT = ("failing", "budget")
"""Ends of a trial at which the client gives up what is in flight, by no fault of its own."""
_MICRO = 1e-6
_CLOSE = 1e-3
_PERCENTILES = (50, 90, 95, 99)
_LONGEST = 10**13
"""Microseconds of a gap: four months."""
_OUTCOMES = tuple(Outcome)
_CODE = {outcome: code for code, outcome in enumerate(_OUTCOMES)}
_LEFT = (_CODE[Outcome.TIMEOUT], _CODE[Outcome.CANCELLED])
"""Outcomes of requests that the client gave up; the server may go on with them."""
_OK, _EMPTY, _CLIENT = _CODE[Outcome.OK], _CODE[Outcome.EMPTY], _CODE[Outcome.CLIENT]

_TIMES = ("sent", "end", "first", "last")
_COUNTS = (
    "asked_isl",
    "asked_osl",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "events",
    "reads",
    "text_chars",
    "session",
    "turn",
    "reusable",
    "class_index",
    "connection",
    "stream",
    "first_chars",
    "first_tokens",
    "most_tokens",
)
_OF_RECORD = (*_TIMES, *_COUNTS, "connect", "visible")
"""The columns that are taken from a record as they are."""
_FIELDS = operator.attrgetter(*_OF_RECORD)
_SILENCE = ("silence", "hollow", "irregular")
Columns = dict[str, Floats]
"""A number per record, by name."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records worked on at once, at most BATCH. Their gaps are beside them: those of all in a row,
    in microseconds, as many of each as `counts` says. The records' own are not read.
    """

    records: Sequence[Record]
    gaps: Ints
    counts: Ints

    def beside(self, background: bool) -> "Batch":
        """The records of the background, or those of the trial itself."""
        kept = np.fromiter((r.background is background for r in self.records), bool, len(self.records))
        if kept.all():
            return self
        return Batch(list(compress(self.records, kept)), self.gaps[np.repeat(kept, self.counts)], self.counts[kept])


def batches(records: Iterable[Record]) -> Iterator[Batch]:
    """The records in batches."""
    stream = iter(records)
    while batch := list(islice(stream, BATCH)):
        counts = np.fromiter((len(r.gaps) for r in batch), dtype=np.int64, count=len(batch))
        gaps = np.fromiter(chain.from_iterable(r.gaps for r in batch), dtype=np.int64, count=int(counts.sum()))
        yield Batch(batch, gaps, counts)


def window_data(measurement: Measurement, records: Iterable[Record], background: Iterable[Record] = ()) -> WindowData:
    """The window data of a trial, as `window_of_batches`."""
    return window_of_batches(measurement, batches(records), batches(background))


def window_of_batches(
    measurement: Measurement, of_records: Iterable[Batch], background: Iterable[Batch] = ()
) -> WindowData:
    """The window data of a trial. Records may come in any order; the sample is in the order of
    sending. Of a `background` the tokens and the requests in flight count, and why any failed.

    In open loop latency counts from when a request was scheduled instead of when it was sent, so
    that a client or server that falls behind cannot hide it (coordinated omission; wrk2's rule).
    """
    trial, window = measurement.trial, measurement.window
    open_loop = trial.load.is_open
    still = Standstill(measurement.readings)
    everything, blocks, words, limited = _read(of_records, window, open_loop, still, window)
    beside, load, why, _ = _read(background, window, open_loop, Standstill(()), _ALWAYS)
    order = np.argsort(everything["sent"], kind="stable")
    sent = everything["sent"][order]
    inside = order[(sent >= window.start) & (sent <= window.end)]
    by_client = np.isin(everything["code"], [_CODE[outcome] for outcome in BY_CLIENT])
    kept = {name: column[inside[~by_client[inside]]] for name, column in everything.items()}
    ok: Bools = kept["code"] == _OK
    codes, counts = np.unique(everything["code"][inside], return_counts=True)
    return WindowData(
        deployment=trial.deployment,
        shape=trial.shape,
        load=trial.load,
        starts=np.array([measurement.epoch + window.start]),
        ends=np.array([measurement.epoch + window.end]),
        sent=measurement.epoch + kept["sent"],
        window=np.zeros(len(ok), dtype=np.int64),
        ok=ok,
        silence=np.where(ok, kept["silence"], 0.0),
        hollow=ok & (kept["hollow"] > 0),
        block_seconds=np.full(BLOCKS, window.length / BLOCKS),
        block_output_tokens=blocks.output,
        block_input_tokens=blocks.input,
        block_finished=blocks.finished,
        block_itl=blocks.histograms(),
        in_flight=blocks.in_flight * (BLOCKS / blocks.length),
        health=(measurement.health,),
        server_identities=(measurement.server_identity,),
        server=(_facts(measurement, everything, beside, limited) | still.facts(),),
        ended=(measurement.ended,),
        client_failures=int((everything["code"] == _CLIENT if measurement.ended in _CUT else by_client)[inside].sum()),
        odd_finishes=most_frequent(words.odd),
        failures=most_frequent(words.failures),
        outcomes={_OUTCOMES[int(code)].value: int(count) for code, count in zip(codes, counts, strict=True)},
        whole_run=_whole_run(everything),
        open_loop=open_loop,
        connection=_connections(kept),
        cached_tokens=beyond_template(kept, measurement.server),
        named=({name: dict(counts) for name, counts in measurement.named.items()},),
        changed=(measurement.changed,),
        stream=np.empty(0, np.int64) if open_loop else kept["stream"].astype(np.int64),
        background_tokens=load.output[: BLOCKS * bool(trial.shape.background)],
        background_in_flight=load.in_flight * (BLOCKS / blocks.length),
        background_failures=most_frequent(why.failures),
        **_figures(kept, ok),
        **_reader(kept, ok),
        **_turns(kept, trial.shape),
    )


def _read(
    of_records: Iterable[Batch], window: Window, open_loop: bool, still: Standstill, told_in: Window
) -> tuple[Columns, "_Blocks", WindowWords, int]:
    """One pass over the records: their columns, the sums of time blocks, the words of requests sent
    in `told_in`, and how many requests met a rate limit in the window.
    """
    blocks, words, limited = _Blocks(window), WindowWords(told_in), 0
    parts: list[Columns] = []
    for batch in of_records:
        parts.append(_columns(batch, open_loop))
        blocks.add(parts[-1], batch.gaps, batch.counts)
        still.add(parts[-1]["first"], batch.gaps, batch.counts)
        words.add(batch.records)
        limited += sum(r.status == TOO_MANY and window.start <= r.sent <= window.end for r in batch.records)
    parts = parts or [_columns(Batch((), *np.zeros((2, 0), np.int64)), open_loop)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, blocks, words, limited


def _figures(columns: Columns, ok: Bools) -> dict[str, Any]:
    """The figures of each request by their names in the window; a failure takes infinitely long."""
    as_they_are = ("irregular", "asked_isl", "asked_osl", "prompt_tokens", "completion_tokens", *USAGE)
    return {
        **{name: columns[name] for name in as_they_are},
        **{name: np.where(ok, columns[name], math.inf) for name in ("ttft", "tpot", "e2e")},
        **{name: columns[name].astype(np.int64) for name in ("events", "reads", "text_chars")},
    }


def _turns(columns: Columns, shape: Shape) -> dict[str, Any]:
    """The session and turn of each request, the tokens that it could reuse, and its class in a
    mix.
    """
    if shape.session is None and not shape.mix:
        return {}
    names = ("session", "turn", *(["class_index"] if shape.mix else []))
    return {
        "reusable": columns["reusable"],
        **{name: np.nan_to_num(columns[name]).astype(np.int64) for name in names},
    }


def _connections(columns: Columns) -> Ints:
    """The connection of each request, -1 without one; empty where no record names one."""
    numbers = columns["connection"]
    known = ~np.isnan(numbers)
    return np.where(known, numbers, -1).astype(np.int64) if known.any() else np.empty(0, np.int64)


def _reader(columns: Columns, ok: Bools) -> dict[str, Any]:
    """The figures of `READER` for each request. Where some answer has text, an answer without
    visible text never showed any.
    """
    visible, second, pace = (columns[name] for name in READER)
    if columns["text_chars"][ok].any():
        visible = np.where(np.isnan(visible), math.inf, visible)
    visible, second = (np.where(ok, values, math.inf) for values in (visible, second))
    return {"visible": visible, "second": second, "pace": np.where(np.isinf(visible), 0.0, pace)}


def _columns(batch: Batch, open_loop: bool) -> Columns:
    """The columns of a batch, with NaN for missing values. The caller makes failures infinite."""
    if len(batch.gaps) and not 0 <= batch.gaps.min() <= batch.gaps.max() <= _LONGEST:
        raise ValueError("a gap of a record is beyond what can be")
    table = np.fromiter(chain.from_iterable(map(_FIELDS, batch.records)), np.float64).reshape(-1, len(_OF_RECORD)).T
    columns = dict(zip(_OF_RECORD, table, strict=True))
    due = [r.scheduled if r.scheduled is not None else r.sent for r in batch.records] if open_loop else columns["sent"]
    silence = np.array(_hollowness(batch)).reshape(-1, len(_SILENCE)).T
    columns |= {"since": np.asarray(due), **dict(zip(_SILENCE, silence, strict=True))}
    columns["code"] = np.array([_CODE[r.outcome] for r in batch.records], dtype=np.float64)
    for names, most in (((*_TIMES, "since", "connect", *_SILENCE), LONGEST), (_COUNTS, MOST_COUNT)):
        _require_possible(np.array([columns[name] for name in names]), most)
    first, last, since, code = (columns[name] for name in ("first", "last", "since", "code"))
    code[(code == _OK) & (np.isnan(first) | np.isnan(last))] = _EMPTY  # a success has tokens, and their times
    columns["first_tokens"] = timed_tokens.first_tokens(columns, batch.gaps, batch.counts)
    latencies = {"ttft": first - since, "tpot": timed_tokens.seconds_per_token(columns), "e2e": last - since}
    reader = felt(columns, batch.gaps, batch.counts, since)
    _require_possible(reader[:2], LONGEST)
    return columns | latencies | dict(zip(READER, reader, strict=True)) | {"began": columns["sent"], "sent": since}


def _require_possible(numbers: Floats, most: float) -> None:
    if (np.abs(numbers) > most).any():
        raise ValueError("a number of a record is beyond what can be")


def _hollowness(batch: Batch) -> list[tuple[float, float, float]]:
    """Per record: seconds from the first token to the first visible character, whether that is
    hollow, and how often ordinary gaps are as long.

    A silence is hollow when it is over HOLLOW of the TTFT, and longer than its tokens would take,
    each at twice the request's median gap. Some silences are honest: models begin with line breaks
    and tokens without text, at their own pace, and the gaps of a busy server are uneven, the first
    most of all. So the first gaps of CONTROLS other answers are compared. A token that is sent
    ahead to look fast is followed by a silence that these do not have.
    """
    if all(r.first_text is None for r in batch.records):
        return [(0.0, 0.0, math.nan)] * len(batch.records)
    controls, rows = CONTROLS, []
    for r, micros in zip(batch.records, np.split(batch.gaps, batch.counts.cumsum()[:-1]), strict=True):
        gaps = micros.astype(np.float64) * _MICRO
        row = (0.0, 0.0, math.nan)
        if r.first is None or r.outcome is not Outcome.OK:
            pass
        elif r.first_text is not None:
            silence = r.first_text - r.first
            tokens = int(np.searchsorted(gaps.cumsum(), silence * (1 - _CLOSE))) + 1
            rest = gaps[tokens:]
            as_long = float((rest > 2 * np.median(rest)).mean()) if len(rest) else math.nan
            row = (silence, float(_late(r, gaps, silence, tokens)), as_long)
        elif len(gaps) > 1 and controls:
            controls -= 1
            row = (0.0, 0.0, float(_late(r, gaps, float(gaps[0]), 1)))
        rows.append(row)
    return rows


def _late(record: Record, gaps: Floats, silence: float, tokens: int) -> bool:
    pace = float(np.median(gaps[1:])) if len(gaps) > 1 else 0.0
    return silence > HOLLOW * ((record.first or 0.0) - record.sent) and silence > 2 * pace * tokens


class _Blocks:
    """Tokens, finished requests, gaps and requests in flight of the window's time blocks, added up
    batch by batch.
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        self.length = max(window.length, _MICRO)
        self.edges = np.linspace(window.start, window.end, BLOCKS + 1)
        self.output = np.zeros(BLOCKS)
        self.input = np.zeros(BLOCKS)
        self.finished = np.zeros(BLOCKS)
        self.in_flight = np.zeros(BLOCKS)
        self.gap_bins = np.zeros((BLOCKS, TOP + 1), dtype=np.int64)
        self.gap_seconds = np.zeros(BLOCKS)

    def histograms(self) -> tuple[LogHistogram, ...]:
        return tuple(
            LogHistogram.from_bins(*pair) for pair in zip(self.gap_bins, self.gap_seconds.tolist(), strict=True)
        )

    def block(self, times: Floats) -> Ints:
        """The block of each time, -1 outside the window. The window's end belongs to its last
        block.
        """
        index = np.floor((times - self.window.start) * (BLOCKS / self.length)).astype(np.int64)
        index[times == self.window.end] = BLOCKS - 1
        index[(times < self.window.start) | (times > self.window.end)] = -1
        return index

    def tally(self, times: Floats, weights: Floats | None = None) -> Floats:
        """How many of `times` (or their weight) fall into each block."""
        blocks = self.block(times)
        inside = blocks >= 0
        return np.bincount(blocks[inside], None if weights is None else weights[inside], BLOCKS).astype(np.float64)

    def add(self, row: Columns, gaps: Ints, gap_counts: Ints) -> None:
        """A batch: its `_columns` and its `_gaps`."""
        ok = row["code"] == _OK
        first, last = row["first"], row["last"]
        # Input counts when the first token comes, output spread over the arrivals: prompts are read
        # before that, and an answer that began in the window and ends after it has brought only a
        # part of its tokens.
        self.input += self.tally(first[ok], np.nan_to_num(row["prompt_tokens"][ok]))
        self.finished += self.tally(last[ok])
        overlap = np.minimum(row["end"][:, None], self.edges[1:]) - np.maximum(row["sent"][:, None], self.edges[:-1])
        self.in_flight += np.maximum(overlap, 0).sum(axis=0)

        tokens = np.where(ok, np.nan_to_num(row["completion_tokens"]), 0.0)
        share = tokens / np.where(gap_counts > 0, gap_counts + 1, np.maximum(row["events"], 1))
        self.output += self.tally(first[ok], share[ok])
        self._add_untimed(ok & (gap_counts == 0) & (row["events"] > 1), row, tokens - share)
        seen = (row["code"] != _CLIENT) & (gap_counts > 0)
        seen &= (first <= self.window.end) & (row["end"] >= self.window.start)
        if np.isnan(last[seen]).any():
            raise ValueError("a record has gaps and does not say when its last event came")
        within = np.full(len(ok), -1)
        within[seen] = np.where(self.block(first[seen]) == self.block(last[seen]), self.block(first[seen]), -1)
        for wanted, add in ((within >= 0, self._add_whole), (seen & (within < 0), self._add_split)):
            if wanted.any():
                flat = gaps[np.repeat(wanted, gap_counts)]
                add(flat, gap_counts[wanted], first[wanted], share[wanted])

    def _add_untimed(self, which: Bools, row: Columns, tokens: Floats) -> None:
        """Requests of several events whose gaps were not kept: their later tokens come evenly from
        first to last.
        """
        first, last = row["first"][which, None], row["last"][which, None]
        passed = np.clip((self.edges - first) / np.maximum(last - first, _MICRO), 0, 1)
        self.output += (np.diff(passed, axis=1) * tokens[which, None]).sum(axis=0)

    def _add_whole(self, flat: Ints, counts: Ints, first: Floats, share: Floats) -> None:
        """Arrivals after the first of requests that lie in one block, as most do: no need to place
        each arrival.
        """
        blocks = self.block(first)
        self.output += np.bincount(blocks, share * counts, BLOCKS)
        self._add_bins(np.repeat(blocks, counts), flat)

    def _add_split(self, flat: Ints, counts: Ints, first: Floats, share: Floats) -> None:
        """Arrivals after the first: each brings its request's tokens per event, and the gap before
        it.
        """
        passed = flat.cumsum()
        starts = counts.cumsum() - counts
        base = first - (passed[starts] - flat[starts]) * _MICRO
        blocks = self.block(passed * _MICRO + np.repeat(base, counts))
        inside = blocks >= 0
        self.output += np.bincount(blocks[inside], np.repeat(share, counts)[inside], BLOCKS)
        self._add_bins(blocks[inside], flat[inside])

    def _add_bins(self, blocks: Ints, micros: Ints) -> None:
        """Gaps, in microseconds, that ended in these blocks."""
        self.gap_seconds += np.bincount(blocks, micros, BLOCKS) * _MICRO
        table = _bins_of_micros()
        bins = table[np.minimum(micros, len(table) - 1)]
        long = micros >= len(table)
        if long.any():
            bins[long] = bin_indices(micros[long] * _MICRO)
        bins += blocks * (TOP + 1)
        self.gap_bins += np.bincount(bins, minlength=self.gap_bins.size).reshape(self.gap_bins.shape)


@functools.cache
def _bins_of_micros() -> Ints:
    """The histogram bin of each whole number of microseconds up to a second; made when records are
    first read.
    """
    return bin_indices(np.arange(1 << 20) * _MICRO)


def _facts(measurement: Measurement, everything: Columns, beside: Columns, limited: int) -> dict[str, float]:
    """The facts of the window: the server's and the client's own.

    `client_http_429` counts the requests sent in the window that were refused for a rate limit,
    where there are any. The gauges are of the requests `beside` too.
    """
    facts = {**measurement.server, **({"client_http_429": float(limited)} if limited else {})}
    facts |= time_breakdown.client_sums(everything, everything["code"] == _OK, facts)
    began, end, code = (np.concatenate([everything[name], beside[name]]) for name in ("began", "end", "code"))
    return held_against(facts, measurement.readings, began, np.where(np.isin(code, _LEFT), math.inf, end))


def _whole_run(everything: Columns) -> dict[str, float]:
    """What a tool without windows reports, under the same metric names, to be shown beside the
    windowed figures.

    All tokens over the whole duration with ramp and drain, and interpolated percentiles of the
    successes alone.
    """
    ok = everything["code"] == _OK
    if not ok.any():
        return {}
    duration = float(np.nanmax(everything["end"]) - everything["sent"].min())
    figures = {"duration": duration}
    if duration > 0:
        output, prompt = (float(np.nansum(everything[name][ok])) for name in ("completion_tokens", "prompt_tokens"))
        figures |= {
            "output_throughput": output / duration,
            "input_throughput": prompt / duration,
            "total_throughput": (output + prompt) / duration,
            "request_throughput": float(ok.sum()) / duration,
        }
    latencies = {name: everything[name][ok] for name in ("ttft", "tpot", "e2e")}
    return figures | summary({name: values[np.isfinite(values)] for name, values in latencies.items()}, "linear")


def summary(latencies: Mapping[str, Floats], method: Literal["linear", "inverted_cdf"]) -> dict[str, float]:
    """The mean and four percentiles of each latency that has values, under our metric names."""
    figures = {}
    for name, values in latencies.items():
        if len(values):
            figures[f"mean_{name}"] = float(values.mean())
            for p, value in zip(_PERCENTILES, np.percentile(values, _PERCENTILES, method=method).tolist(), strict=True):
                figures[f"p{p}_{name}"] = value
    return figures
