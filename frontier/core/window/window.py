"""Window data: the part of a trial that counts, as arrays (`WindowData`).

Latency counts the requests sent in the window: the load is held until the last of them ends, so
none is censored, and a failed one is +inf. Throughput counts the tokens that arrived in the window,
whatever request they belong to. Other tools report total tokens over total duration, which the ramp
and the drain make too low (by 7% at ten requests a slot). Everything above (estimates, flags,
verdicts, the search) works on samples; they are what `derived/` caches.
"""

import functools
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from frontier.core.model.loads import Load
from frontier.core.model.points import Estimate, Power
from frontier.core.model.series import HasLoad
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import ClientHealth
from frontier.core.window.held import held, held_alone
from frontier.core.window.histogram import LogHistogram

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Timed = Sequence[tuple[float, Mapping[str, float]]]
"""The length of each window in seconds, and the facts of it that the server and its devices gave.
"""


BLOCKS = 20
"""Time blocks per window: enough for a variance, few enough that each outlasts a request."""
READER = ("visible", "second", "pace")
"""Fields of each request from `core.window.reading_speed`."""
UNSTREAMED = 1
"""Tokens that a server counts and sends no chunk for: the end of the text."""
USAGE = ("first_tokens", "most_tokens")
"""Fields of an answer's tokens beside their count."""
ODD_REASONS = 8
"""The most finish reasons, and causes of failures, that are counted separately."""


@dataclass(frozen=True, slots=True)
class Episodes:
    """Spans in which a server works at a lower speed, as its series shows them: the most of the
    requests that are slow, by how much (in ln) their latencies are longer, by quantity, and how
    many `spans` were seen.
    """

    share: float
    shifts: tuple[tuple[str, float], ...]
    spans: int = 1


@dataclass(frozen=True, eq=False)
class WindowData(HasLoad):
    """One trial's window, or several of one setting joined in time order. Index i is the i-th
    request sent.

    Latencies are seconds; a failed, truncated, empty or timed-out request is +inf in `ttft`, `tpot`
    and `e2e`. `tpot` is NaN where it is not defined (a success of one token), and where the
    server's count cannot be used or all came at once (`untimed`). `silence` is how long after the
    first token the first visible character came, on any channel; `hollow` marks where the answer's
    own pace of tokens does not explain it. `irregular` is how often ordinary gaps are as long: a
    share, or of other answers whether their first gap is, or NaN. Token counts are NaN where the
    server gave none. `text_chars` is how much text came. `first_tokens` came with the first chunk
    (`timed_tokens`); `most_tokens` is the higher count where the usage can be read in two ways. NaN
    where not known.

    `stream` is the number of the stream, one of the N in flight, that sent each request; empty
    where that is not known, and at a rate.

    `visible` and `second` are seconds to the first visible and to the second token, `pace` is the
    fastest reading in tokens per second that the text stays ahead of (`core.window.reading_speed`).
    A failure, and an answer without visible text, have +inf seconds and pace 0. NaN where not
    known, as in imports without the times of chunks.

    Requests that the client cut off (CANCELLED) or failed itself (CLIENT) are not in the arrays but
    counted in `client_failures`. `odd_finishes` counts the finish reasons that are not known to be
    good.

    `failures` counts the causes of failed requests, in the server's words without their numbers;
    `background_failures` those of the background in the whole trial.

    `power_rule`, `quality` and `agreement` are set when a run is read: the config may state a power
    and a quality, and answers under load are kept beside the trials. The rule gives the power over
    windows: joined ones may have enough readings of it together.

    `starts`, `ends` and `sent` are unix time. In open loop latencies count from the scheduled send,
    and nothing may be expected of how many requests are in flight.

    For sessions, `session` is the number of the session in its trial, `turn` the number of the
    request in it, and `reusable` how many of its prompt tokens the server had seen or made before;
    empty without turns. For a mix, `class_index` is the place of the class in the mix; empty
    without one. `connection` is the number of a request's TCP connection in its trial, -1 where it
    had none; empty where the records of a window name none, as those of earlier versions.

    `named` and `changed` have an entry per window (see `Measurement`): what its answers named as
    their model and the like, and what the server said at its end and not at its beginning.

    `runs` is the length of the runs in which requests beyond a limit follow each other, as its
    series shows it: the least dependence of its requests.

    Block arrays have BLOCKS entries per window. They hold the block's length, the tokens of
    successful requests that arrived in it (prompt tokens at the first token), the successful
    requests that finished in it, and its ITLs. Beside a background also its output tokens and its
    requests in flight, which are in nothing else.
    """

    deployment: str
    shape: Shape
    load: Load
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
    failures: dict[str, int] = field(default_factory=dict)
    open_loop: bool = False
    power_rule: Callable[[Timed], Power | None] | None = None
    quality: Estimate | None = None
    agreement: Estimate | None = None
    session: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    turn: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    reusable: Floats = field(default_factory=lambda: np.empty(0))
    class_index: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    stream: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    visible: Floats = field(default_factory=lambda: np.empty(0))
    second: Floats = field(default_factory=lambda: np.empty(0))
    pace: Floats = field(default_factory=lambda: np.empty(0))
    connection: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    first_tokens: Floats = field(default_factory=lambda: np.empty(0))
    most_tokens: Floats = field(default_factory=lambda: np.empty(0))
    named: tuple[dict[str, dict[str, int]], ...] = ()
    changed: tuple[str | None, ...] = ()
    runs: int = 1
    episodes: Episodes | None = None
    background_tokens: Floats = field(default_factory=lambda: np.empty(0))
    background_in_flight: Floats = field(default_factory=lambda: np.empty(0))
    background_failures: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (*READER, *USAGE):
            if len(getattr(self, name)) != self.n:
                object.__setattr__(self, name, np.full(self.n, np.nan))

    @property
    def n(self) -> int:
        """Requests that count for latency."""
        return len(self.sent)

    @property
    def seconds(self) -> float:
        """The length of all windows."""
        return float(self.block_seconds.sum())

    @property
    def timed(self) -> Timed:
        """The length of each window, and the facts of it (see `Timed`)."""
        return list(zip((self.ends - self.starts).tolist(), self.server, strict=True))

    @property
    def power(self) -> Power | None:
        """The electrical power over all windows; None where it is not known."""
        return None if self.power_rule is None else self.power_rule(self.timed)

    @property
    def streams(self) -> int:
        """The requests in flight by which the needs of a claim are counted: the concurrency, or at
        a rate the mean in flight.
        """
        if self.load.is_open:
            return max(1, round(float(self.in_flight.mean())))
        return self.load

    def names(self, field_name: str) -> dict[str, int]:
        """The names that answers gave in a field, with the number of answers, over all windows."""
        counts: Counter[str] = Counter()
        for named in self.named:
            counts.update(named.get(field_name, {}))
        return dict(counts)

    @property
    def holds_in_flight(self) -> bool:
        """Whether N requests are to be in flight all the time: not in open loop, nor where users
        think between turns.
        """
        return not self.open_loop and not self.shape.has_sessions

    def of_class(self, name: str) -> Bools:
        """Which requests are of a class. "first" are the first turns of sessions, "later" all
        others. In a mix, "chat" are the requests of its class chat, and "chat.later" the later
        turns among these. No request is of a class that does not exist.
        """
        if name not in self.shape.classes:
            return np.zeros(self.n, np.bool_)
        mine: Bools = self.shape.in_class(name, self.class_index, self.turn)
        return mine

    @property
    def class_code(self) -> Ints:
        """A number for each request, the same for requests of one class and one turn; empty where
        there are neither classes nor turns.
        """
        return self.turn + self.class_index * self.shape.most_turns if len(self.class_index) else self.turn

    def stays_ahead(self, speed: float) -> Bools | None:
        """Which answers never run dry for a reader of `speed` tokens per second; None where that is
        not known of any answer.
        """
        return None if self.ok.any() and np.isnan(self.pace[self.ok]).all() else self.pace >= speed

    @property
    def uncounted(self) -> Bools:
        """Successes without a usable token count of the server."""
        return self.ok & np.isnan(self.completion_tokens)

    @property
    def untimed(self) -> Bools:
        """Successes whose TPOT exists but is not known: there is no usable count, several chunks
        contradict it, or several tokens came at once. One token without a chunk may be the end of
        the text.
        """
        several = (self.events > 1) | (self.completion_tokens - self.events > UNSTREAMED)
        return self.ok & np.isnan(self.tpot) & (np.isnan(self.completion_tokens) | several)

    @property
    def alone(self) -> Self:
        """The same window without what its series shows."""
        known: Self | None = self.__dict__.get("measured", lambda: None)()
        return self if known is None else known

    @property
    def block_of_request(self) -> Ints:
        """The time block in which each request was sent, numbered over all windows."""
        length = (self.ends - self.starts)[self.window]
        into = (self.sent - self.starts[self.window]) / np.where(length > 0, length, 1.0)
        blocks: Ints = self.window * BLOCKS + np.clip((into * BLOCKS).astype(np.int64), 0, BLOCKS - 1)
        return blocks

    def per_block(self, weights: Floats | Bools) -> Floats:
        """The requests' weights (True counts as 1) summed over the time blocks they were sent
        in.
        """
        blocks = len(self.block_seconds)
        sums: Floats = np.bincount(self.block_of_request, weights.astype(np.float64), blocks).astype(np.float64)
        return sums

    def block_totals(self, throughput: str) -> Floats:
        """The totals that the throughput of this name divides by seconds, per time block. KeyError
        for another name.
        """
        return {
            "output_throughput": self.block_output_tokens,
            "input_throughput": self.block_input_tokens,
            "total_throughput": self.block_output_tokens + self.block_input_tokens,
            "request_throughput": self.block_finished,
        }[throughput]


@held
def in_series(sample: WindowData, runs: int, slow: Episodes | None) -> WindowData:
    """A window with what its series shows of any load: the runs of requests beyond a limit, and the
    episodes.
    """
    found = replace(sample, runs=runs, episodes=slow)
    found.__dict__["measured"] = weakref.ref(sample)
    return found


@functools.lru_cache(maxsize=256)
def narrowed(sample: WindowData, group: str | None) -> WindowData:
    """The sample with the requests of one class alone, as if no others had been sent; all of it for
    None.

    The arrays of time blocks still cover all requests; only in a mix the number in flight and the
    finished requests are those of the class. The concurrency is the share of the class: in a mix of
    the time in flight, else of the requests. It only sets the fewest requests of a claim.
    """
    if group is None:
        return sample
    mine = sample.of_class(group)
    parts = {name: values[mine] for name in _PER_REQUEST if len(values := getattr(sample, name))}
    if sample.load.is_open:
        return replace(sample, **parts)
    weights = np.where(np.isfinite(sample.e2e), sample.e2e, 0.0) if sample.shape.mix else np.ones(sample.n)
    share = float(weights[mine].sum() / weights.sum()) if weights.any() else 0.0
    concurrency = max(1, round(sample.load * share))
    if sample.shape.mix and share:
        # In flight, and by Little's law, there are as many too few or too many of the class as of
        # all requests.
        part = concurrency / sample.load
        parts["in_flight"] = sample.in_flight * part
        parts["block_finished"] = sample.block_finished * (part * float(mine.mean()) / share)
    return replace(sample, **parts, load=type(sample.load)(concurrency))


_PER_REQUEST = (
    "sent",
    "window",
    "ttft",
    "tpot",
    "e2e",
    "ok",
    "asked_isl",
    "asked_osl",
    "silence",
    "hollow",
    "irregular",
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
    *READER,
    *USAGE,
)
"""The arrays of WindowData with an entry per request."""


@functools.lru_cache(maxsize=2)
def gaps(sample: WindowData) -> LogHistogram:
    """All gaps between chunks of the sample; remembered, since each of their percentiles asks for
    it.
    """
    return LogHistogram.merged(sample.block_itl)


def mean_e2e(sample: WindowData) -> float:
    """Mean seconds of the requests that succeeded; 0 when there are none."""
    finite = sample.e2e[np.isfinite(sample.e2e)]
    return float(finite.mean()) if len(finite) else 0.0


def join(samples: Sequence[WindowData]) -> WindowData:
    """The windows of one setting as one sample, in the order given. That is the order in which they
    were measured, by the number in their evidence, as clocks can be set. ValueError without
    windows, or for two settings.

    `whole_run` becomes the median of each figure, as a tool without windows typically reports it.
    The last window holds the result.
    """
    if not samples:
        raise ValueError("nothing to join: a setting needs at least one window")
    if len(samples) == 1:
        return samples[0]
    first, whole = samples[0], _joined(samples[-1], *(sample.alone for sample in samples[:-1]))
    return whole if (first.runs, first.episodes) == (1, None) else in_series(whole, first.runs, first.episodes)


@held_alone
def _joined(last: WindowData, *before: WindowData) -> WindowData:
    parts, first = (*before, last), before[0]
    if any((part.deployment, part.shape, part.load) != (first.deployment, first.shape, first.load) for part in parts):
        raise ValueError("windows of different settings cannot be joined")
    joined: dict[str, Any] = {}
    for name in (f.name for f in fields(WindowData)):
        values = [getattr(part, name) for part in parts]
        if isinstance(values[0], np.ndarray):
            joined[name] = _concatenated(parts, name)
        elif isinstance(values[0], tuple):
            joined[name] = tuple(chain.from_iterable(values))
    windows_before = np.cumsum([0, *(len(part.starts) for part in parts[:-1])])
    joined["window"] = np.concatenate(
        [part.window + before for part, before in zip(parts, windows_before, strict=True)]
    )
    joined["client_failures"] = sum(part.client_failures for part in parts)
    outcomes, odd, failures, behind = (
        sum((Counter(getattr(part, name)) for part in parts), Counter[str]())
        for name in ("outcomes", "odd_finishes", "failures", "background_failures")
    )
    joined |= {"outcomes": dict(outcomes), "odd_finishes": most_frequent(odd), "failures": most_frequent(failures)}
    joined["background_failures"] = most_frequent(behind)
    joined["whole_run"] = {
        name: float(np.median([part.whole_run[name] for part in parts if name in part.whole_run]))
        for name in sorted(set().union(*(part.whole_run for part in parts)))
    }
    return replace(first, **joined)


def _concatenated(parts: Sequence[WindowData], name: str) -> NDArray[Any]:
    """One array of all parts. The connections are empty where a part names none, as one of an
    earlier version.
    """
    arrays = [getattr(part, name) for part in parts]
    lacking = name == "connection" and any(len(part.connection) < part.n for part in parts)
    return arrays[0][:0] if lacking else np.concatenate(arrays)


def most_frequent(counts: Counter[str]) -> dict[str, int]:
    """The most frequent counts, and the sum of the others: a server may give a reason of its own to
    every answer.
    """
    common = dict(counts.most_common(ODD_REASONS))
    rest = counts.total() - sum(common.values())
    return common | ({"others": common.get("others", 0) + rest} if rest else {})
