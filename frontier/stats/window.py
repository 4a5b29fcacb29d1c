"""Window data: the part of a trial that counts, as arrays (`WindowData`), made from its records.

Latency counts the requests sent in the window: the load is held until the last of them ends, so none is censored, and a
failed one is +inf. Throughput counts the tokens that arrived in the window, whatever request they belong to: total
tokens over total duration, which other tools report, is low by the ramp and the drain (7 % at ten requests a slot).
Records are streamed in batches, so a million requests of 256 gaps take little memory and no Python work per gap.
Everything above (estimates, flags, verdicts, the search) works on samples; they are what `derived/` caches.
"""

import functools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frontier.client.facts import window_facts
from frontier.model import FINISHED, FIRST, ClientHealth, Measurement, Outcome, Power, Rate, Record, Shape, Window
from frontier.stats import cost_energy, time_breakdown
from frontier.stats.histogram import TOP, LogHistogram, bin_indices
from frontier.units import LONGEST, MOST_COUNT

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

BLOCKS = 20
"""Time blocks per window: enough for a variance, few enough that each outlasts a request."""

BATCH = 1024
"""Records worked on at once: long enough for arrays to pay, short enough to stay in memory at any output length."""
HOLLOW = 0.10
"""Share of the TTFT after which a first visible character counts as late."""
CONTROLS = 64
"""Of each batch with a hollow silence: other answers whose first gap is looked at."""
ODD_REASONS = 8
BY_CLIENT = (Outcome.CANCELLED, Outcome.CLIENT)
"""Outcomes that say nothing about the server."""
_MICRO = 1e-6
_CLOSE = 1e-3
_LONGEST = 10**13
"""Microseconds of a gap: four months."""
_TABLE = bin_indices(np.arange(1 << 20) * _MICRO)
_OUTCOMES = tuple(Outcome)
_CODE = {outcome: code for code, outcome in enumerate(_OUTCOMES)}
_OK, _EMPTY, _CLIENT = _CODE[Outcome.OK], _CODE[Outcome.EMPTY], _CODE[Outcome.CLIENT]


@dataclass(frozen=True, slots=True, eq=False)
class WindowData:
    """One trial's window, or several of one setting joined in time order. Index i is the i-th request sent.

    Latencies are seconds; a failed, truncated, empty or timed-out request is +inf in `ttft`, `tpot` and `e2e`.
    `tpot` is NaN where it is not defined (a success of one token) and where the server's count cannot be used
    (`untimed`). `silence` is how long after the first token the first visible character came, on any channel; `hollow`
    marks where the answer's own pace of tokens does not explain it. `irregular` is how often ordinary gaps are as long:
    a share, or of other answers whether their first gap is, or NaN. Token counts are NaN where the server gave none,
    `text_chars` is how much text came.

    Requests that the client cut off (CANCELLED) or failed itself (CLIENT) are not in the arrays but counted in
    `client_failures`.
    `odd_finishes` counts the finish reasons that are not known to be good.

    `power` is set when a run is read, since the config may state it.

    `starts`, `ends` and `sent` are unix time. In open loop latencies count from the scheduled send, and nothing may be
    expected of how many requests are in flight.

    Of requests of sessions `session` is the number of the session in its trial, `turn` that of the request in it, and
    `reusable` how many of its prompt tokens the server had seen or made before. Empty where there are no turns.

    Block arrays have BLOCKS entries per window: the block's length, the output and prompt tokens of successful requests
    that arrived in it (prompt tokens at the first token), the successful requests that finished in it, and its ITLs.
    """

    deployment: str
    shape: Shape
    concurrency: int
    starts: Floats
    ends: Floats
    sent: Floats
    window: Ints
    ttft: Floats
    tpot: Floats
    e2e: Floats
    ok: Bools
    asked_isl: Floats
    asked_osl: Floats
    silence: Floats
    hollow: Bools
    irregular: Floats
    prompt_tokens: Floats
    completion_tokens: Floats
    cached_tokens: Floats
    events: Ints
    reads: Ints
    text_chars: Ints
    block_seconds: Floats
    block_output_tokens: Floats
    block_input_tokens: Floats
    block_finished: Floats
    block_itl: tuple[LogHistogram, ...]
    in_flight: Floats
    health: tuple[ClientHealth, ...]
    server_identities: tuple[str | None, ...]
    server: tuple[dict[str, float], ...]
    ended: tuple[str, ...]
    client_failures: int
    outcomes: dict[str, int]
    whole_run: dict[str, float]
    odd_finishes: dict[str, int] = field(default_factory=dict)
    open_loop: bool = False
    power: Power | None = None
    session: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    turn: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    reusable: Floats = field(default_factory=lambda: np.empty(0))

    @property
    def n(self) -> int:
        """Requests that count for latency."""
        return len(self.sent)

    @property
    def streams(self) -> int:
        """How many requests were in flight, of which follows what a claim needs at least: of a rate their mean."""
        if isinstance(self.concurrency, Rate):
            return max(1, round(float(self.in_flight.mean())))
        return self.concurrency

    @property
    def holds_in_flight(self) -> bool:
        """Whether N requests are to be in flight all the time: not in open loop, nor where users think meanwhile."""
        return not self.open_loop and self.shape.session is None

    def of_class(self, name: str) -> Bools:
        """Which requests are of a class: "first" are the first turns of sessions, "later" all others."""
        return self.turn == 0 if name == FIRST else self.turn > 0

    @property
    def uncounted(self) -> Bools:
        """Successes without a usable token count of the server."""
        return self.ok & np.isnan(self.completion_tokens)

    @property
    def untimed(self) -> Bools:
        """Successes whose TPOT exists and is not known: no usable count, or one that several chunks contradict."""
        return self.ok & np.isnan(self.tpot) & (np.isnan(self.completion_tokens) | (self.events > 1))

    @property
    def block_of_request(self) -> Ints:
        """In which of the windows' time blocks each request was sent."""
        length = (self.ends - self.starts)[self.window]
        into = (self.sent - self.starts[self.window]) / np.where(length > 0, length, 1.0)
        blocks: Ints = self.window * BLOCKS + np.clip((into * BLOCKS).astype(np.int64), 0, BLOCKS - 1)
        return blocks

    def per_block(self, weights: Floats | Bools) -> Floats:
        """The requests' weights (True counts as 1) summed over the time blocks they were sent in."""
        blocks = len(self.block_seconds)
        sums: Floats = np.bincount(self.block_of_request, weights.astype(np.float64), blocks).astype(np.float64)
        return sums

    def block_totals(self, throughput: str) -> Floats:
        """What the throughput of this name adds up, per time block. KeyError for another name."""
        return {
            "output_throughput": self.block_output_tokens,
            "input_throughput": self.block_input_tokens,
            "total_throughput": self.block_output_tokens + self.block_input_tokens,
            "request_throughput": self.block_finished,
        }[throughput]


@functools.lru_cache(maxsize=256)
def narrowed(sample: WindowData, group: str | None) -> WindowData:
    """The sample with the requests of one class alone, as if no others had been sent; all of it for None.

    What is known of time blocks stays that of all requests. The concurrency is that of the class, by its share: it only
    says how many requests are a claim's least.
    """
    if group is None:
        return sample
    mine = sample.of_class(group)
    parts = {name: getattr(sample, name)[mine] for name in _PER_REQUEST}
    share = float(mine.mean()) if len(mine) else 0.0
    if isinstance(sample.concurrency, Rate):
        return replace(sample, **parts)
    return replace(sample, **parts, concurrency=max(1, round(sample.concurrency * share)))


_PER_REQUEST = (
    "sent", "window", "ttft", "tpot", "e2e", "ok", "asked_isl", "asked_osl", "silence", "hollow", "irregular",
    "prompt_tokens", "completion_tokens", "cached_tokens", "events", "reads", "text_chars", "session", "turn",
    "reusable",
)  # fmt: skip
"""The arrays of WindowData with an entry per request."""


@functools.lru_cache(maxsize=2)
def gaps(sample: WindowData) -> LogHistogram:
    """All gaps between chunks of the sample; remembered, since each of their percentiles asks for it."""
    return LogHistogram.merged(sample.block_itl)


def window_data(measurement: Measurement, records: Iterable[Record], *, open_loop: bool = False) -> WindowData:
    """The window data of a trial. Records may come in any order; the sample is in the order of sending.

    `open_loop` counts latency from when a request was scheduled instead of when it was sent, so that a client or server
    that falls behind cannot hide it (coordinated omission; wrk2's rule). A trial at a rate always is.
    """
    open_loop = open_loop or isinstance(measurement.trial.concurrency, Rate)
    window = measurement.window
    blocks = _Blocks(window)
    columns = []
    odd: Counter[str] = Counter()
    for batch in _batches(records):
        column = _columns(batch, open_loop)
        columns.append(column)
        blocks.add(column, batch)
        odd.update(_odd_finishes(batch, window))
    table = np.concatenate(columns, axis=1) if columns else np.zeros((len(_COLUMNS), 0))
    everything = dict(zip(_COLUMNS, table, strict=True))
    order = np.argsort(everything["sent"], kind="stable")
    sent = everything["sent"][order]
    inside = order[(sent >= window.start) & (sent <= window.end)]
    by_client = np.isin(everything["code"], [_CODE[outcome] for outcome in BY_CLIENT])
    kept = {name: column[inside[~by_client[inside]]] for name, column in everything.items()}
    ok: Bools = kept["code"] == _OK
    codes, counts = np.unique(everything["code"][inside], return_counts=True)
    trial = measurement.trial
    return WindowData(
        deployment=trial.deployment,
        shape=trial.shape,
        concurrency=trial.concurrency,
        starts=np.array([measurement.epoch + window.start]),
        ends=np.array([measurement.epoch + window.end]),
        sent=measurement.epoch + kept["sent"],
        window=np.zeros(len(ok), dtype=np.int64),
        ttft=np.where(ok, kept["ttft"], math.inf),
        tpot=np.where(ok, kept["tpot"], math.inf),
        e2e=np.where(ok, kept["e2e"], math.inf),
        ok=ok,
        silence=np.where(ok, kept["silence"], 0.0),
        hollow=ok & (kept["hollow"] > 0),
        irregular=kept["irregular"],
        asked_isl=kept["asked_isl"],
        asked_osl=kept["asked_osl"],
        prompt_tokens=kept["prompt_tokens"],
        completion_tokens=kept["completion_tokens"],
        cached_tokens=kept["cached_tokens"],
        events=kept["events"].astype(np.int64),
        reads=kept["reads"].astype(np.int64),
        text_chars=kept["text_chars"].astype(np.int64),
        block_seconds=np.full(BLOCKS, window.length / BLOCKS),
        block_output_tokens=blocks.output,
        block_input_tokens=blocks.input,
        block_finished=blocks.finished,
        block_itl=blocks.histograms(),
        in_flight=blocks.in_flight * (BLOCKS / blocks.length),
        health=(measurement.health,),
        server_identities=(measurement.server_identity,),
        server=(_facts(measurement, everything),),
        ended=(measurement.ended,),
        client_failures=int(by_client[inside].sum()),
        odd_finishes=_most(odd),
        outcomes={_OUTCOMES[int(code)].value: int(count) for code, count in zip(codes, counts, strict=True)},
        whole_run=_whole_run(everything),
        open_loop=open_loop,
        **_turns(kept) if trial.shape.session is not None else {},
    )


def join(samples: Sequence[WindowData]) -> WindowData:
    """The windows of one setting as one sample, in the order given, which is that in which they were measured: by the
    journal, as clocks can be set. ValueError for none, or for two settings.

    `whole_run` becomes the median of each figure: what a tool without windows typically reports.
    """
    if not samples:
        raise ValueError("nothing to join: a setting needs at least one window")
    parts, first = samples, samples[0]
    if any(
        (part.deployment, part.shape, part.concurrency) != (first.deployment, first.shape, first.concurrency)
        for part in parts
    ):
        raise ValueError("windows of different settings cannot be joined")
    if len(parts) == 1:
        return first
    joined: dict[str, Any] = {}
    for name in (f.name for f in fields(WindowData)):
        values = [getattr(part, name) for part in parts]
        if isinstance(values[0], np.ndarray):
            joined[name] = np.concatenate(values)
        elif isinstance(values[0], tuple):
            joined[name] = tuple(chain.from_iterable(values))
    windows_before = np.cumsum([0, *(len(part.starts) for part in parts[:-1])])
    joined["window"] = np.concatenate(
        [part.window + before for part, before in zip(parts, windows_before, strict=True)]
    )
    joined["client_failures"] = sum(part.client_failures for part in parts)
    joined["power"] = cost_energy.mean([(float((part.ends - part.starts).sum()), part.power) for part in parts])
    outcomes, odd = Counter[str](), Counter[str]()
    for part in parts:
        outcomes.update(part.outcomes)
        odd.update(part.odd_finishes)
    joined |= {"outcomes": dict(outcomes), "odd_finishes": _most(odd)}
    joined["whole_run"] = {
        name: float(np.median([part.whole_run[name] for part in parts if name in part.whole_run]))
        for name in sorted(set().union(*(part.whole_run for part in parts)))
    }
    return replace(first, **joined)


_COLUMNS = (
    "sent", "end", "first", "last", "code", "asked_isl", "asked_osl", "prompt_tokens", "completion_tokens",
    "cached_tokens", "events", "reads", "text_chars", "ttft", "tpot", "e2e", "silence", "hollow", "irregular",
    "connect", "began", "session", "turn", "reusable",
)  # fmt: skip


def _turns(columns: dict[str, Floats]) -> dict[str, Any]:
    """Which turn of which session each request is, and what it could reuse."""
    numbers = {name: np.nan_to_num(columns[name]).astype(np.int64) for name in ("session", "turn")}
    return numbers | {"reusable": columns["reusable"]}


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    stream = iter(records)
    while batch := list(islice(stream, BATCH)):
        yield batch


def _columns(batch: Sequence[Record], open_loop: bool) -> Floats:
    """The batch as one row per name of _COLUMNS; what is missing is NaN. The caller makes failures infinite."""
    raw = [
        (
            r.sent, r.end, r.first, r.last, _CODE[r.outcome], r.asked_isl, r.asked_osl, r.prompt_tokens,
            r.completion_tokens, r.cached_tokens, r.events, r.reads, r.text_chars,
            r.scheduled if open_loop and r.scheduled is not None else r.sent,
            *silence, r.connect, r.sent, r.session, r.turn, r.reusable,
        )
        for r, silence in zip(batch, _hollowness(batch), strict=True)
    ]  # fmt: skip
    table = np.array(raw, dtype=np.float64).T
    times, counts = table[[0, 1, 2, 3, 13, 14]], table[[*range(4, 13), 19, 20, 21]]
    if (np.abs(times) > LONGEST).any() or (np.abs(counts) > MOST_COUNT).any():
        raise ValueError("a number of a record is beyond what can be")
    sent, first, last, completion, since = (table[i] for i in (0, 2, 3, 8, 13))
    table[4, (table[4] == _OK) & (np.isnan(first) | np.isnan(last))] = _EMPTY  # a success has tokens, and their times
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(completion > 1, (last - first) / (completion - 1), np.nan)
    latencies = [first - since, tpot, last - since, *table[14:]]
    return np.concatenate([since[None] if open_loop else sent[None], table[1:13], latencies])


def _hollowness(batch: Sequence[Record]) -> list[tuple[float, float, float]]:
    """Per record: seconds from the first token to the first visible character, whether that is hollow, and how often
    ordinary gaps are as long.

    A silence is hollow when it is over HOLLOW of the TTFT and longer than the tokens in it, each at twice the request's
    median gap, explain. Models do begin with line breaks and tokens without text, at their own pace, and the gaps of a
    busy server are uneven, the first most of all: so the first gaps of CONTROLS other answers are looked at likewise. A
    token that is sent ahead to look fast is followed by a silence that the others do not have.
    """
    if all(r.first_text is None for r in batch):
        return [(0.0, 0.0, math.nan)] * len(batch)
    controls, rows = CONTROLS, []
    for r in batch:
        gaps = np.array(r.gaps) * _MICRO
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


def _odd_finishes(batch: Sequence[Record], window: Window) -> Iterator[str]:
    """The finish reasons in the window that are not known to be good."""
    for r in batch:
        if r.finish_reason and r.finish_reason.lower() not in FINISHED and window.start <= r.sent <= window.end:
            yield r.finish_reason


def _most(counts: Counter[str]) -> dict[str, int]:
    """The most frequent, and the sum of the others: a server may give a reason of its own to every answer."""
    common = dict(counts.most_common(ODD_REASONS))
    rest = counts.total() - sum(common.values())
    return common | ({"others": common.get("others", 0) + rest} if rest else {})


class _Blocks:
    """Tokens, finished requests, gaps and requests in flight of the window's time blocks, added up batch by batch."""

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
        """The block of each time, -1 outside the window. The window's end belongs to its last block."""
        index = np.floor((times - self.window.start) * (BLOCKS / self.length)).astype(np.int64)
        index[times == self.window.end] = BLOCKS - 1
        index[(times < self.window.start) | (times > self.window.end)] = -1
        return index

    def tally(self, times: Floats, weights: Floats | None = None) -> Floats:
        """How many of `times` (or their weight) fall into each block."""
        blocks = self.block(times)
        inside = blocks >= 0
        return np.bincount(blocks[inside], None if weights is None else weights[inside], BLOCKS).astype(np.float64)

    def add(self, columns: Floats, batch: Sequence[Record]) -> None:
        """A batch: its `_columns` and its records, for their gaps."""
        row = dict(zip(_COLUMNS, columns, strict=True))
        ok = row["code"] == _OK
        first, last = row["first"], row["last"]
        # Input counts when the first token comes, output spread over the arrivals: prompts are read before that, and an
        # answer that began in the window and ends after it has brought only a part of its tokens.
        self.input += self.tally(first[ok], np.nan_to_num(row["prompt_tokens"][ok]))
        self.finished += self.tally(last[ok])
        overlap = np.minimum(row["end"][:, None], self.edges[1:]) - np.maximum(row["sent"][:, None], self.edges[:-1])
        self.in_flight += np.maximum(overlap, 0).sum(axis=0)

        gap_counts = np.fromiter((len(r.gaps) for r in batch), dtype=np.int64, count=len(batch))
        tokens = np.where(ok, np.nan_to_num(row["completion_tokens"]), 0.0)
        share = tokens / np.where(gap_counts > 0, gap_counts + 1, np.maximum(row["events"], 1))
        self.output += self.tally(first[ok], share[ok])
        self._add_untimed(ok & (gap_counts == 0) & (row["events"] > 1), row, tokens - share)
        seen = (row["code"] != _CLIENT) & (gap_counts > 0)
        seen &= (first <= self.window.end) & (row["end"] >= self.window.start)
        within = np.full(len(batch), -1)
        within[seen] = np.where(self.block(first[seen]) == self.block(last[seen]), self.block(first[seen]), -1)
        for wanted, add in ((within >= 0, self._add_whole), (seen & (within < 0), self._add_split)):
            counts = gap_counts[wanted]
            gaps = (r.gaps for r, is_wanted in zip(batch, wanted.tolist(), strict=True) if is_wanted)
            flat = np.fromiter(chain.from_iterable(gaps), dtype=np.int64, count=int(counts.sum()))
            if len(flat):
                if not 0 <= flat.min() <= flat.max() <= _LONGEST:
                    raise ValueError("a gap of a record is beyond what can be")
                add(flat, counts, first[wanted], share[wanted])

    def _add_untimed(self, which: Bools, row: dict[str, Floats], tokens: Floats) -> None:
        """Requests of several events whose gaps were not kept: their later tokens come evenly from first to last."""
        first, last = row["first"][which, None], row["last"][which, None]
        passed = np.clip((self.edges - first) / np.maximum(last - first, _MICRO), 0, 1)
        self.output += (np.diff(passed, axis=1) * tokens[which, None]).sum(axis=0)

    def _add_whole(self, flat: Ints, counts: Ints, first: Floats, share: Floats) -> None:
        """Arrivals after the first of requests that lie in one block, as most do: no need to place each arrival."""
        blocks = self.block(first)
        self.output += np.bincount(blocks, share * counts, BLOCKS)
        self._add_bins(np.repeat(blocks, counts), flat)

    def _add_split(self, flat: Ints, counts: Ints, first: Floats, share: Floats) -> None:
        """Arrivals after the first: each brings its request's tokens per event, and the gap before it."""
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
        bins = _TABLE[np.minimum(micros, len(_TABLE) - 1)]
        long = micros >= len(_TABLE)
        if long.any():
            bins[long] = bin_indices(micros[long] * _MICRO)
        bins += blocks * (TOP + 1)
        self.gap_bins += np.bincount(bins, minlength=self.gap_bins.size).reshape(self.gap_bins.shape)


def _facts(measurement: Measurement, everything: dict[str, Floats]) -> dict[str, float]:
    """The facts of the window: the server's, made anew of its readings where these were kept, and the client's own."""
    facts = window_facts(measurement.readings) or dict(measurement.server)
    return facts | time_breakdown.client_sums(everything, everything["code"] == _OK, facts)


def _whole_run(everything: dict[str, Floats]) -> dict[str, float]:
    """What a tool without windows reports, under the same metric names, to be shown beside the windowed figures.

    All tokens over the whole duration with ramp and drain, and interpolated percentiles of the successes alone.
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
    for name in ("ttft", "tpot", "e2e"):
        values = everything[name][ok]
        values = values[np.isfinite(values)]
        if len(values):
            figures[f"mean_{name}"] = float(values.mean())
            for p, value in zip((50, 90, 95, 99), np.percentile(values, (50, 90, 95, 99)).tolist(), strict=True):
                figures[f"p{p}_{name}"] = value
    return figures
