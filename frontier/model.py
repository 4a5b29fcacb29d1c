"""The words of the house as types: few, frozen, without behaviour beyond what their name promises.

Time is in seconds, sizes in bytes, shares 0..1. Missing is None, never 0; a failed request's latency is +inf.
"""

import hashlib
import math
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

MAX_TOKENS = 4_194_304
"""The longest input or output that a config or a file may name."""


_SAFE_NAME = re.compile(r"[A-Za-z0-9._~-]{1,80}")


def file_label(name: str) -> str:
    """A name as part of a file name: as it is where it is short and safe, else its safe part and a hash.

    Replacing characters alone would give two names one file: 'a/b' and 'axb', or two that agree where they are cut.
    """
    if _SAFE_NAME.fullmatch(name) and name.strip("."):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9._~-]+', '_', name)[:40].lstrip('.')}-{digest}"


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many tokens a request has on one side: fixed, uniform in low..high, or normal(mean, sd) cut at low..high."""

    kind: Literal["fixed", "uniform", "normal"]
    mean: float
    low: int
    high: int
    sd: float = 0.0

    @classmethod
    def fixed(cls, tokens: int) -> "Lengths":
        return cls("fixed", tokens, tokens, tokens)

    @classmethod
    def uniform(cls, low: int, high: int) -> "Lengths":
        return cls("uniform", (low + high) / 2, low, high)

    @classmethod
    def normal(cls, mean: float, sd: float) -> "Lengths":
        """Cut at three standard deviations and at one token."""
        return cls("normal", mean, max(1, round(mean - 3 * sd)), max(1, round(mean + 3 * sd)), sd)

    def draw(self, rng: random.Random) -> int:
        """One length."""
        if self.kind == "fixed":
            return self.low
        if self.kind == "uniform":
            return rng.randint(self.low, self.high)
        return min(self.high, max(self.low, round(rng.gauss(self.mean, self.sd))))

    def __str__(self) -> str:
        if self.kind == "fixed":
            return str(self.low)
        if self.kind == "uniform":
            return f"{self.low}-{self.high}"
        return f"{self.mean:g}~{self.sd:g}"


@dataclass(frozen=True, slots=True)
class Shape:
    """A workload: input and output lengths; `prefix` is the share of the prompt that all requests have in common."""

    isl: Lengths
    osl: Lengths
    name: str | None = None
    prefix: float = 0.0

    @classmethod
    def of(cls, isl: int, osl: int) -> "Shape":
        return cls(Lengths.fixed(isl), Lengths.fixed(osl))

    @property
    def label(self) -> str:
        """What tables and pictures call it: its name, or '1024/256'."""
        return self.name or f"{self.isl}/{self.osl}"

    @property
    def file_label(self) -> str:
        """The label as part of a file name: '1024x256'."""
        if self.name is not None:
            return file_label(self.name)
        return f"{self.isl}x{self.osl}".replace("+", "_")


class Phase(StrEnum):
    """Why a trial is run. Only `grid` and `confirm` trials support a claim; the search explains itself by these."""

    GRID = "grid"
    LOCATE = "locate"
    CONFIRM = "confirm"
    FRONTIER = "frontier"


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a setting. `requests` are sent in the window at least, unless `max_time` ends it before.

    `seed` makes the prompts: it differs for every trial, so no two share a prompt. `fingerprint` names everything that
    decides the trial's numbers; a stored trial with another fingerprint does not count.
    """

    deployment: str
    shape: Shape
    concurrency: int
    repeat: int
    phase: Phase
    requests: int
    seed: int
    warmup: float
    min_time: float
    max_time: float
    fingerprint: str

    @property
    def key(self) -> str:
        """Unique in a sweep and safe as a file name."""
        where = f"{file_label(self.deployment)}-{self.shape.file_label}"
        return f"{where}-c{self.concurrency:04d}-{self.phase.value}-r{self.repeat}"


class Outcome(StrEnum):
    """Exactly one of these per request sent."""

    OK = "ok"
    HTTP_ERROR = "http_error"
    CONNECT = "connect"
    TLS = "tls"
    TIMEOUT = "timeout"
    STREAM_ERROR = "stream_error"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    PROTOCOL = "protocol"
    CLIENT = "client"
    CANCELLED = "cancelled"


FINISHED = frozenset(
    {
        "stop", "length", "tool_calls", "function_call",  # OpenAI, vLLM, SGLang, TensorRT-LLM, llama.cpp, Ollama
        "eos_token", "stop_sequence",  # TGI
        "eos", "limit", "word",  # llama.cpp's own route
        "end_turn", "max_tokens", "tool_use", "complete", "model_length",  # gateways to other makers' models
    }
)  # fmt: skip
"""Finish reasons, in lower case, of an answer that was given: it ended by itself, or at the length asked for."""


@dataclass(frozen=True, slots=True)
class Record:
    """One request as it was seen, written once. Times are seconds on the trial's clock (0 = the trial's start).

    `first` and `last` are the receipt of the first and last token-bearing event on any channel. `visible` is that of
    the first character a user sees (not reasoning, not a space); `first_text` of the first one on any channel, `last`
    where none came, and None where it came with `first`. `gaps` are the microseconds between successive token-bearing
    events.
    `prompt_tokens`, `completion_tokens` and `cached_tokens` are the server's own counts, without reasoning tokens that
    it counted and did not stream. `asked_isl` and `asked_osl` are 0 where no length was asked for. CANCELLED (cut off
    by us) is neither success nor failure; CLIENT is our own failing (no file descriptors) and never counted against
    the server.
    """

    index: int
    stream: int
    sent: float
    outcome: Outcome
    end: float
    asked_isl: int
    asked_osl: int
    first: float | None = None
    visible: float | None = None
    last: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    events: int = 0
    reads: int = 0
    text_bytes: int = 0
    text_chars: int = 0
    finish_reason: str | None = None
    status: int | None = None
    error: str | None = None
    scheduled: float | None = None
    resent: bool = False
    gaps: tuple[int, ...] = ()
    first_text: float | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a trial that counts, in seconds on the trial's clock."""

    start: float
    end: float

    @property
    def length(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class ClientHealth:
    """What the client knows of itself during the window; None = not measured.

    `suspended` is how long this machine slept during the trial: its clocks stood still, the server's did not.
    `stood_still` is the longest that this process did not run, as when it is stopped (Ctrl-Z) or paused by a host.
    """

    loop_lag_p99: float | None = None
    send_late_p99: float | None = None
    cpu_share: float | None = None
    gc_pause_max: float | None = None
    resent: int = 0
    connections_opened: int | None = None
    suspended: float | None = None
    stood_still: float | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a trial is beside its records: its window, its clock's zero as unix time, and the evidence gathered.

    `ended` says why the window closed: 'requests', 'time', 'interrupted' or 'server_lost'. `server` holds the server's
    own metrics over the window (counters as differences, gauges as means), under vLLM's names without the prefix.
    """

    trial: Trial
    epoch: float
    window: Window
    ended: Literal["requests", "time", "interrupted", "server_lost"]
    health: ClientHealth = ClientHealth()
    server: Mapping[str, float] = field(default_factory=dict)
    server_identity: str | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its doubt. `low`..`high` is the two-sided 95 % interval.

    `lower` and `upper` are the one-sided 95 % bounds that verdicts use (inf = no such bound can be given); `need` is
    how many requests would make the bound exist, when it does not. `n` counts the requests behind the number.
    """

    value: float
    low: float
    high: float
    n: int
    lower: float = -math.inf
    upper: float = math.inf
    need: int | None = None

    @classmethod
    def unknown_doubt(cls, value: float, n: int) -> "Estimate":
        """An imported aggregate: the value is known, how sure it is, is not."""
        return cls(value, -math.inf, math.inf, n)


@dataclass(frozen=True, slots=True)
class Flag:
    """Something wrong with a point, with the measured value, its limit and what to do. `fatal` makes it invalid."""

    name: str
    measured: str
    limit: str
    advice: str
    fatal: bool = True


@dataclass(frozen=True, slots=True)
class Distance:
    """How far a setting is from the speed of light at its own concurrency.

    `ceiling` is the output tokens per second its hardware allows, `share` how much of that was reached, `binds` what
    sets the ceiling. `mbu` and `mfu` are the shares of memory bandwidth that decoding used and of arithmetic that
    prompts and answers used; None where the description does not say enough.
    """

    ceiling: float
    share: Estimate
    binds: str
    mbu: Estimate | None = None
    mfu: Estimate | None = None


@dataclass(frozen=True, slots=True)
class Power:
    """The electrical power of a whole deployment in watts: `measured` in the windows, or `stated` in the config."""

    watts: float
    source: Literal["measured", "stated"]


@dataclass(frozen=True, slots=True)
class Point:
    """What was learned about a setting from its trials. Metrics not known are absent from `metrics`.

    `light` is known where the config describes the hardware; `power` is what `energy` was made with.
    """

    deployment: str
    shape: Shape
    concurrency: int
    metrics: Mapping[str, Estimate]
    n: int
    flags: tuple[Flag, ...] = ()
    repeats: int = 1
    notes: tuple[str, ...] = ()
    whole_run: Mapping[str, float] = field(default_factory=dict)
    light: Distance | None = None
    power: Power | None = None

    @property
    def valid(self) -> bool:
        """No flag that makes its numbers meaningless."""
        return not any(flag.fatal for flag in self.flags)


@dataclass(frozen=True, slots=True)
class Frontier:
    """The exact non-dominated set of one (deployment, shape): the concurrencies on it, and why others are not."""

    deployment: str
    shape: Shape
    objectives: tuple[str, str]
    members: tuple[int, ...]
    dominated: tuple[int, ...]
    excluded: Mapping[int, str] = field(default_factory=dict)
    probability: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limit:
    """One line of an SLA, in the metric's own unit: the promise, and optionally a comfort mark inside it."""

    metric: str
    promise: float
    comfort: float | None = None


class Verdict(StrEnum):
    """The five answers."""

    MEETS = "meets"
    VIOLATES = "violates"
    MARGINAL = "marginal"
    UNPROVEN = "unproven"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Judgement:
    """One point against one SLA: a verdict per metric, jointly, and the metric with the least headroom."""

    concurrency: int
    verdict: Verdict
    per_metric: Mapping[str, Verdict]
    binding: str | None
    headroom: float | None = None
    need: int | None = None


@dataclass(frozen=True, slots=True)
class RejectedStep:
    """The next higher setting that also meets the SLA but whose gain is not worth its tail."""

    concurrency: int
    gain: float
    metric: str
    cost: float
    tie: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The operating point of one (deployment, shape), or the plain statement that nothing is.

    `concurrency` is None unless the verdict is MEETS; `candidate` is then the nearest: the best unproven or marginal
    setting, or the nearest miss. `last_pass`/`first_fail` bracket the limit among measured settings.
    """

    deployment: str
    shape: Shape
    limits: tuple[Limit, ...]
    verdict: Verdict
    concurrency: int | None
    binding: str | None
    metrics: Mapping[str, Estimate]
    judgements: tuple[Judgement, ...]
    notes: tuple[str, ...] = ()
    candidate: int | None = None
    last_pass: int | None = None
    first_fail: int | None = None
    holes: tuple[int, ...] = ()
    rejected: RejectedStep | None = None
    throughput_optimum: int | None = None
    goodput_optimum: int | None = None
    cheapest: int | None = None
