"""Core data types: shapes, trials, records, points, estimates, limits, verdicts, decisions. All frozen; no I/O.

Times are in seconds, sizes in bytes, shares 0..1. A missing value is None, never 0; the latency of a failed request is
+inf.
"""

import hashlib
import math
import random
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple, TypeVar

from frontier import metrics
from frontier.text import clean_name

MAX_TOKENS = 4_194_304
"""The largest number of input or output tokens that a config or a file may ask for."""

_SAFE_NAME = re.compile(r"[A-Za-z0-9._~-]{1,80}")


def file_label(name: str) -> str:
    """A name as part of a file name: unchanged when it is short and safe, else its safe part and a hash.

    Without the hash two names could get one file: 'a/b' and 'a_b', or two that are equal up to where they are cut.
    """
    if _SAFE_NAME.fullmatch(name) and name.strip("."):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9._~-]+', '_', name)[:40].lstrip('.')}-{digest}"


class ShapeError(ValueError):
    """A text that is no shape: `what` is wrong with it, and a `hint` how to write it."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what}; {hint}")
        self.what = what
        self.hint = hint


_SHAPE_HINT = "write input/output tokens, as 1024/256"
_LENGTHS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})|~([0-9]{1,9}(?:\.[0-9]{1,9})?))?")
_THOUSANDS = re.compile(r"([0-9]{1,5})[kK]\s*/?\s*([0-9]{1,5})[kK]")


@dataclass(frozen=True, slots=True)
class Lengths:
    """The distribution of tokens per request on one side: fixed, uniform in low..high, or normal cut at low..high."""

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

    @classmethod
    def parse(cls, text: str) -> "Lengths":
        """The lengths that `str` writes: '256', '128-512' (uniform), '1024~256' (normal). ShapeError for other text.

        >>> Lengths.parse("128-512"), str(Lengths.parse("1024~256"))
        (Lengths(kind='uniform', mean=320.0, low=128, high=512, sd=0.0), '1024~256')
        """
        match = _LENGTHS.fullmatch(text.strip())
        if match is None:
            raise ShapeError(f"{clean_name(text)!r} is not a number of tokens", "write 256, 128-512 or 1024~256")
        first, high, sd = int(match[1]), int(match[2] or match[1]), float(match[3] or 0.0)
        if not 1 <= min(first, high) or not max(first, high, sd) <= MAX_TOKENS:
            raise ShapeError(f"{clean_name(text)!r} is out of range", f"lengths are from 1 to {MAX_TOKENS:,} tokens")
        if high < first:
            raise ShapeError(f"{clean_name(text)!r} runs backwards", f"write {high}-{first}")
        if sd > 0:
            return cls.normal(first, sd)
        return cls.uniform(first, high) if high > first else cls.fixed(first)

    def draw(self, rng: random.Random) -> int:
        """One random length."""
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

    @classmethod
    def parse(cls, text: str) -> "Shape":
        """The shape of a text such as '1024/256', '256-4096/128-512' or '1024~256/512'. ShapeError for other text.

        '1k/1k' is refused, as k may mean 1,000 or 1,024.

        >>> Shape.parse(" 1024 / 256 ").label
        '1024/256'
        """
        if thousands := _THOUSANDS.fullmatch(text.strip()):
            isl, osl = int(thousands[1]), int(thousands[2])
            ways = f"write {isl * 1024}/{osl * 1024} or {isl * 1000}/{osl * 1000}"
            raise ShapeError(f"{clean_name(text)!r}: k may mean 1,000 or 1,024", ways)
        sides = [side.strip() for side in text.split("/")]
        if len(sides) != 2 or not all(_LENGTHS.fullmatch(side) for side in sides):
            raise ShapeError(f"{clean_name(text)!r} is not a shape", _SHAPE_HINT)
        return cls(Lengths.parse(sides[0]), Lengths.parse(sides[1]))

    @property
    def label(self) -> str:
        """The name in tables and plots: its own, or '1024/256'."""
        return self.name or f"{self.isl}/{self.osl}"

    @property
    def file_label(self) -> str:
        """The label as part of a file name: '1024x256'."""
        if self.name is not None:
            return file_label(self.name)
        return f"{self.isl}x{self.osl}".replace("+", "_")


class Series(NamedTuple):
    """One deployment with one shape: the key of all its concurrencies. Equal to the plain tuple of the two."""

    deployment: str
    shape: Shape

    def label(
        self,
        among: Collection["Series"] | None = None,
        *,
        join: str = " · ",
        longest: int = 60,
        keep_shape: bool = False,
    ) -> str:
        """The name of this series in a table or a plot, each part cleaned and cut to `longest` characters.

        Alone ('fp8 · 1024/256') it hides a deployment that was never named ("default" or ""). `among` others it names
        only what differs: no deployment when all have the same, no shape when all have the same (but `keep_shape`),
        and the shape when nothing differs.

        >>> a, b = Series("default", Shape.of(1024, 256)), Series("fp8", Shape.of(1024, 256))
        >>> a.label(), b.label(), a.label([a, b]), b.label([a, b]), b.label([b])
        ('1024/256', 'fp8 · 1024/256', 'default', 'fp8', '1024/256')
        """
        deployment, shape = clean_name(self.deployment, longest), clean_name(self.shape.label, longest)
        if among is None:
            return shape if unnamed(self.deployment) else f"{deployment}{join}{shape}"
        if len({series.deployment for series in among}) <= 1:
            return shape
        deployment = deployment or DEFAULT_DEPLOYMENT
        one_shape = len({series.shape for series in among}) <= 1
        return deployment if one_shape and not keep_shape else f"{deployment}{join}{shape}"


DEFAULT_DEPLOYMENT = "default"
"""The name of the deployment of a config that names none."""


def unnamed(deployment: str) -> bool:
    """Whether a deployment was never given a name, so that labels need not show it."""
    return deployment in ("", DEFAULT_DEPLOYMENT)


class OfSeries:
    """Something of one series: a trial, a point, a frontier, a decision."""

    __slots__ = ()
    deployment: str
    shape: Shape

    @property
    def series(self) -> Series:
        """Its deployment and shape."""
        return Series(self.deployment, self.shape)


_T = TypeVar("_T", bound=OfSeries)


def by_series(items: Iterable[_T]) -> dict[Series, list[_T]]:
    """The items (trials, points, frontiers, decisions) of each series, series and items in order of appearance."""
    groups: dict[Series, list[_T]] = {}
    for item in items:
        groups.setdefault(item.series, []).append(item)
    return groups


class Phase(StrEnum):
    """Why a trial is run.

    `scan` looks at a setting cheaply, for its values; `prove` measures a candidate for the claim; `visit` measures the
    operating point again later, so that its claim covers more time; `grid` and `frontier` complete the frontier, at the
    settings of the config and between them. Versions before 0.2 wrote `locate` for `scan` and `confirm` for `prove`.
    Scans, and settings between those of the config, support no claim.
    """

    GRID = "grid"
    SCAN = "scan"
    PROVE = "prove"
    VISIT = "visit"
    FRONTIER = "frontier"
    LOCATE = "locate"
    CONFIRM = "confirm"


@dataclass(frozen=True, slots=True)
class Trial(OfSeries):
    """One planned run of a setting. At least `requests` are sent in its window, unless `max_time` ends it earlier.

    `max_time` counts from the trial's start. `seconds` bounds the window alone, which lasts until a request was sent
    in it even so; None: only `max_time` bounds it.

    `seed` makes the prompts; it differs for every trial, so no two share a prompt. `fingerprint` is a hash of all that
    decides the trial's numbers; a stored trial with another fingerprint does not count. `rate` is None in closed loop;
    in open loop requests arrive at so many per second, and `concurrency` is the most in flight.
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
    seconds: float | None = None
    rate: float | None = None

    @property
    def key(self) -> str:
        """The trial's name: unique in a sweep and safe as a file name."""
        where = f"{file_label(self.deployment)}-{self.shape.file_label}"
        return f"{where}-c{self.concurrency:04d}-{self.phase.value}-r{self.repeat}"


class Outcome(StrEnum):
    """How a request ended. Every request sent has exactly one outcome."""

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
"""Finish reasons, in lower case, of a complete answer: it ended by itself, or at the length asked for."""


@dataclass(frozen=True, slots=True)
class Record:
    """The measured facts of one request. Times are seconds on the trial's clock (0 = the trial's start).

    `first` and `last` are the times of receipt of the first and last token-bearing event on any channel. `visible` is
    that of the first character a user sees (not reasoning, not a space); `first_text` that of the first character on
    any channel, `last` when no character came, and None when it came with `first`. `gaps` are the microseconds between
    successive token-bearing events.
    `prompt_tokens`, `completion_tokens` and `cached_tokens` are the server's own counts, without reasoning tokens that
    it counted and did not stream. `asked_isl` and `asked_osl` are 0 when no length was asked for. CANCELLED (by the
    client, at the end) is neither success nor failure; CLIENT is a failure of the client itself (no file descriptors)
    and is never counted against the server.
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
    """How well the load client itself ran during the window; None = not measured.

    `suspended` is how many seconds this machine slept during the trial: its clocks stopped, the server's did not.
    `stood_still` is the longest pause of this process in seconds, as by Ctrl-Z or by the host of a virtual machine.
    `restart_delay_mean` is for how many seconds streams waited on purpose before they sent again, so that requests do
    not run in step.
    """

    loop_lag_p99: float | None = None
    send_late_p99: float | None = None
    cpu_share: float | None = None
    gc_pause_max: float | None = None
    resent: int = 0
    connections_opened: int | None = None
    suspended: float | None = None
    stood_still: float | None = None
    restart_delay_mean: float | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """The facts of a finished trial beside its records: its window, its start as unix time, and the evidence gathered.

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
    """A value with its confidence intervals. `low`..`high` is the two-sided 95 % interval.

    `lower` and `upper` are the one-sided 95 % bounds that verdicts use (infinite: no such bound exists); `need` is how
    many requests would make the bound exist, when it does not. `n` counts the requests behind the value.
    """

    value: float
    low: float
    high: float
    n: int
    lower: float = -math.inf
    upper: float = math.inf
    need: int | None = None

    @classmethod
    def without_interval(cls, value: float, n: int) -> "Estimate":
        """A value of which no interval is known, as that of an imported aggregate."""
        return cls(value, -math.inf, math.inf, n)

    @property
    def has_interval(self) -> bool:
        """Whether the two-sided interval has an end. That of a percentile that is itself infinite is [inf, inf]."""
        return math.isfinite(self.low) or math.isfinite(self.high) or self.low == self.high

    @property
    def has_bound(self) -> bool:
        """Whether one of the one-sided bounds exists; as `has_interval`."""
        return math.isfinite(self.lower) or math.isfinite(self.upper) or self.lower == self.upper

    def scaled(self, factor: float, divisor: float = 1.0) -> "Estimate":
        """The estimate times `factor`, over `divisor`; `n` and `need` stay, and so does a bound that does not exist.

        A division is not written as a factor, since x * (1 / 3) and x / 3 differ in the last digit. ValueError unless
        the factor is 0 or more and the divisor above 0: a negative one would swap the bounds.

        >>> Estimate(6.0, 3.0, math.inf, 9).scaled(1, 3)
        Estimate(value=2.0, low=1.0, high=inf, n=9, lower=-inf, upper=inf, need=None)
        """
        if not (factor >= 0 and divisor > 0):
            raise ValueError(f"an estimate cannot be scaled by {factor} / {divisor}")

        def scale(x: float) -> float:
            return x if math.isinf(x) else x * factor / divisor

        lower, upper = scale(self.lower), scale(self.upper)
        return Estimate(scale(self.value), scale(self.low), scale(self.high), self.n, lower, upper, self.need)

    def inverted(self, numerator: float = 1.0, *, lower_at_zero: float = -math.inf) -> "Estimate":
        """`numerator` over the estimate of something that is never negative: bounds swap sides, `n` and `need` stay.

        A bound that does not exist (or is 0, below 0 or infinite) gives one that does not exist; the inverse of the
        value 0 is infinite, that of an infinite value is 0. `lower_at_zero` is the one-sided lower bound where the
        upper one is 0 or less: -inf claims nothing; inf says that the inverse is certainly infinite, as the cost per
        token is where no token was produced.

        >>> Estimate(2.0, 1.0, 4.0, 9, 1.25, math.inf).inverted(10)
        Estimate(value=5.0, low=2.5, high=10.0, n=9, lower=-inf, upper=8.0, need=None)
        """

        def over(x: float, otherwise: float) -> float:
            return x if math.isnan(x) else numerator / x if 0 < x < math.inf else otherwise

        return Estimate(
            value=0.0 if math.isinf(self.value) else over(self.value, math.inf),
            low=over(self.high, -math.inf if math.isinf(self.high) else math.inf),
            high=over(self.low, math.inf),
            n=self.n,
            lower=over(self.upper, -math.inf if math.isinf(self.upper) else lower_at_zero),
            upper=over(self.lower, math.inf),
            need=self.need,
        )


@dataclass(frozen=True, slots=True)
class Flag:
    """A defect of a point: what was measured, its limit, and advice. A `fatal` one makes the point invalid."""

    name: str
    measured: str
    limit: str
    advice: str
    fatal: bool = True


@dataclass(frozen=True, slots=True)
class Distance:
    """The roofline of a setting at its own concurrency, and the share of it that was reached.

    `ceiling` is the output tokens per second that the hardware allows, `share` the part of it that was reached, `binds`
    the resource that sets the ceiling. `mbu` and `mfu` are the utilisation of memory bandwidth by decoding and of
    arithmetic by prefill and decoding; None when the hardware's description does not say enough.
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
class Point(OfSeries):
    """The metrics and flags of one setting, from all its trials. Metrics not known are absent from `metrics`.

    `light` is its roofline, known when the config describes the hardware; `power` is what `energy` was computed with.
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
        """Whether no fatal flag makes its numbers meaningless."""
        return not any(flag.fatal for flag in self.flags)


@dataclass(frozen=True, slots=True)
class Frontier(OfSeries):
    """The Pareto frontier of one series: the concurrencies on it, those dominated, and why others were excluded."""

    deployment: str
    shape: Shape
    objectives: tuple[str, str]
    members: tuple[int, ...]
    dominated: tuple[int, ...]
    excluded: Mapping[int, str] = field(default_factory=dict)
    probability: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of an SLA in the metric's own unit: the promise, and optionally a comfort mark inside it.

    >>> str(Limit("p99_ttft", 0.5)), str(Limit("goodput", 20))
    ('p99 TTFT ≤ 500 ms', 'goodput (requests within every limit) ≥ 20 req/s')
    """

    metric: str
    promise: float
    comfort: float | None = None

    @property
    def of(self) -> metrics.Metric:
        """The metric that is limited. ValueError when there is none of this name."""
        return metrics.metric(self.metric)

    @property
    def better(self) -> metrics.Better:
        """The direction that is better: 'lower' makes the promise a maximum, 'higher' a minimum."""
        return self.of.better

    def undefined(self, shape: Shape) -> bool:
        """Whether no request of this shape has the metric: times between tokens, where each answer is one token.

        >>> Limit("p99_tpot", 0.03).undefined(Shape.of(1024, 1)), Limit("p99_ttft", 0.5).undefined(Shape.of(1024, 1))
        (True, False)
        """
        return self.of.quantity in ("tpot", "itl") and shape.osl.high <= 1

    def holds(self, value: float) -> bool:
        """Whether a value keeps the promise, its edge included; never nan, and never inf below a finite maximum."""
        return value <= self.promise if self.better == "lower" else value >= self.promise

    def breaks(self, value: float) -> bool:
        """Whether a value is beyond the promise. Not the opposite of `holds` for nan, which does neither."""
        return self.of.improves(self.promise, value)

    def comfortable(self, value: float) -> bool:
        """Whether a value keeps the comfort mark; False when there is none."""
        return self.comfort is not None and Limit(self.metric, self.comfort).holds(value)

    def margin(self, value: float) -> float:
        """The headroom: the share of the promise that a value leaves, negative beyond it, nan for nan.

        At a promise of 0 there are no shares: 0 for a value of 0, else an infinity of the side's sign.

        >>> Limit("p99_ttft", 0.5).margin(0.4), Limit("error_rate", 0.0).margin(0.01)
        (0.19999999999999996, -inf)
        """
        left = self.promise - value if self.better == "lower" else value - self.promise
        if self.promise == 0 and not math.isnan(left):
            return 0.0 if left == 0 else math.copysign(math.inf, left)
        return left / abs(self.promise) if self.promise else left

    def excess(self, value: float) -> float:
        """ln of value over promise (promise over value when higher is better): below 0 inside, inf for infinite."""
        above, below = (value, self.promise) if self.better == "lower" else (self.promise, value)
        if above <= 0:
            return -math.inf
        if below <= 0 or math.isinf(above):
            return math.inf
        ratio = above / below
        return math.log(ratio) if ratio != 0 else -math.inf

    def bound(self, estimate: Estimate) -> float:
        """The one-sided bound that must hold for a proof: `upper` when lower is better, else `lower`."""
        return estimate.upper if self.better == "lower" else estimate.lower

    def worst_end(self, estimate: Estimate) -> float:
        """The worse end of the two-sided interval: `high` when lower is better, else `low`."""
        return estimate.high if self.better == "lower" else estimate.low

    def bound_text(self, value: float | None = None) -> str:
        """'≤ 500 ms': the promise, or another value (the comfort mark) in its place, with the sign of its side."""
        number = self.of.format_trimmed(self.promise if value is None else value)
        return f"{'≤' if self.better == 'lower' else '≥'} {number}"

    def __str__(self) -> str:
        return f"{self.of.label} {self.bound_text()}"


class Verdict(StrEnum):
    """The five verdicts of a setting against an SLA. Exit codes are in `errors.exit_code`."""

    MEETS = "meets"
    VIOLATES = "violates"
    MARGINAL = "marginal"
    UNPROVEN = "unproven"
    INVALID = "invalid"

    @property
    def headline(self) -> str:
        """One short word for the head of a decision: 'met', 'no', 'marginal', 'unproven', 'invalid'."""
        return _VERDICT_WORDS[self][0]

    @property
    def words(self) -> str:
        """The verdict with its reason, for a table: 'marginal: its interval crosses the limit'."""
        return _VERDICT_WORDS[self][1]


_VERDICT_WORDS = {
    Verdict.INVALID: ("invalid", "invalid: excluded"),
    Verdict.VIOLATES: ("no", "violates"),
    Verdict.UNPROVEN: ("unproven", "unproven"),
    Verdict.MARGINAL: ("marginal", "marginal: its interval crosses the limit"),
    Verdict.MEETS: ("met", "meets"),
}
"""Headline and words of each verdict, the worst first."""


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that decides among several: invalid, violates, unproven, marginal, meets. ValueError without any."""
    return min(verdicts, key=tuple(_VERDICT_WORDS).index)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdicts of one point against one SLA, per metric and jointly, and the binding metric (least headroom)."""

    concurrency: int
    verdict: Verdict
    per_metric: Mapping[str, Verdict]
    binding: str | None
    headroom: float | None = None
    need: int | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """What the proof of an operating point covers.

    Its trials lasted `turns` turns, a turn being the time of one request. Something that happens to all requests in
    flight at once, as a stall of the server, in one turn of a hundred, can have been missed: `unseen_share` is the
    rarest share of turns that would have been seen with 95 %. The claim is `early` until there were enough turns for
    the percentile that is claimed (300 for a p99), then `final`. `corrected`: a later visit contradicts an early claim.
    """

    stage: Literal["early", "final"]
    turns: int
    unseen_share: float
    corrected: bool = False


@dataclass(frozen=True, slots=True)
class RejectedStep:
    """A higher setting that also meets the SLA, but whose throughput gain is too small for its longer tail."""

    concurrency: int
    gain: float
    metric: str
    cost: float
    tie: bool = False


class Cause(StrEnum):
    """What a reason of an explanation is; its words are in decide/wording.py."""

    # of one setting
    CHOSEN = "chosen"
    STEP_NOT_WORTH = "step_not_worth"
    TIE = "tie"
    LESS_THROUGHPUT = "less_throughput"
    ABOVE_VIOLATION = "above_violation"
    VIOLATES = "violates"
    EXCLUDED = "excluded"
    CROSSES = "crosses"
    TOO_FEW = "too_few"
    UNBOUNDED = "unbounded"
    NO_INTERVAL = "no_interval"
    SCANNED = "scanned"
    NOT_MEASURED = "not_measured"
    NOT_JUDGED = "not_judged"
    # of a decision
    BINDING = "binding"
    UNDEFINED = "undefined"
    ACCEPTED = "accepted"
    COMFORTABLE = "comfortable"
    WITHIN_RANGE = "within_range"
    ALL_MEET = "all_meet"
    NO_VIOLATION = "no_violation"
    HIGHEST_MEASURED = "highest_measured"
    LOWEST_MEASURED = "lowest_measured"
    BRACKET = "bracket"
    MOST_THROUGHPUT = "most_throughput"
    MOST_GOODPUT = "most_goodput"
    CHEAPEST = "cheapest"
    ENERGY = "energy"
    NON_MONOTONE = "non_monotone"
    NO_VALID_POINT = "no_valid_point"
    NOTHING_MEETS = "nothing_meets"
    NOTHING_PROVEN = "nothing_proven"
    SLOW_ALONE = "slow_alone"
    CONTRADICTION = "contradiction"
    POINT_ESTIMATES = "point_estimates"
    CORRECTED = "corrected"


@dataclass(frozen=True, slots=True)
class Cut:
    """What ended the proof of a setting before it was decided: `max_time`, which let fewer than the `planned` requests
    be sent, or the way the sweep ended ('budget', 'interrupted', ...; 'running': it goes on).
    """

    by: str
    planned: int | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """One statement of an explanation, about `settings` (concurrencies) and, where there is one, a metric's value.

    `gain` is the throughput against the operating point's as a share (0.1: ten percent more), `cost` the factor by
    which the tail of `metric` grows, `need` the number of requests in all that would decide, `cut` what ended its proof
    before that, `flags` what excluded a setting.
    """

    cause: Cause
    settings: tuple[int, ...] = ()
    metric: str | None = None
    estimate: Estimate | None = None
    limit: Limit | None = None
    verdict: Verdict | None = None
    gain: float | None = None
    cost: float | None = None
    need: int | None = None
    cut: Cut | None = None
    flags: tuple[Flag, ...] = ()
    power: Power | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a decision is what it is: `settings` says of each measured setting, ascending, why it is (not) the answer;
    `reasons` what binds, which step was rejected, what would decide, what was excluded, in the order to read them.
    `remarks` are the notes of the operating point, as how it was measured.
    """

    settings: tuple[Reason, ...] = ()
    reasons: tuple[Reason, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NextStep:
    """A setting that is not proven and may be a better answer, or the first, with what would decide it.

    `gain` is its throughput against the operating point's as a share more, None without one; `throughput` its output
    throughput as measured. `flags` excluded it, if any did. `requests` would decide it (None: nothing reasonable, or
    not known), which would take `seconds` with `command`; without `seconds` the command is what to run instead.
    """

    concurrency: int
    gain: float | None = None
    throughput: float | None = None
    flags: tuple[Flag, ...] = ()
    requests: int | None = None
    seconds: float | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Decision(OfSeries):
    """The operating point of one series, or the statement that no setting is one.

    `concurrency` is None unless a setting meets the SLA (or is marginal and was accepted); `candidate` is then the
    best unproven or marginal setting, or the nearest miss. `last_pass` and `first_fail` bracket the limit among the
    measured settings. `claim` is what the proof covers: of the operating point, or of a setting that a later visit
    contradicted where that left none.
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
    explanation: Explanation = Explanation()
    rejected: RejectedStep | None = None
    throughput_optimum: int | None = None
    goodput_optimum: int | None = None
    cheapest: int | None = None
    claim: Claim | None = None
    next_step: NextStep | None = None
