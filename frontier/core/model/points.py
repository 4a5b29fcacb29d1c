"""Points: the estimates of a setting with their intervals, and its flags; the frontier of a
series.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from frontier.core.model.loads import Load
from frontier.core.model.series import HasLoad, HasSeries
from frontier.core.model.shapes import Shape


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its confidence intervals. `low`..`high` is the two-sided 95% interval.

    `lower` and `upper` are the one-sided bounds that verdicts use, each at `confidence`: 95%, or
    more where the error is shared among judgements (`core.claim.proof`), and then they may lie
    outside the interval. Infinite: no such bound exists. `need` is how many requests would give a
    percentile a bound by ranks, where there are too few. Its upper bound is then a rough one
    (`core.estimates.bounds.above_largest`), or infinite. `n` counts the requests behind the value.
    """

    value: float
    low: float
    high: float
    n: int
    lower: float = -math.inf
    upper: float = math.inf
    need: int | None = None
    confidence: float = 0.95

    @classmethod
    def without_interval(cls, value: float, n: int) -> "Estimate":
        """A value without a known interval, as an imported aggregate."""
        return cls(value, -math.inf, math.inf, n)

    @property
    def has_interval(self) -> bool:
        """Whether the two-sided interval has an end. The interval of an infinite percentile is
        [inf, inf].
        """
        return math.isfinite(self.low) or math.isfinite(self.high) or self.low == self.high

    @property
    def has_bound(self) -> bool:
        """Whether one of the one-sided bounds exists; decided as in `has_interval`."""
        return math.isfinite(self.lower) or math.isfinite(self.upper) or self.lower == self.upper

    def scaled(self, factor: float, divisor: float = 1.0) -> "Estimate":
        """The estimate times `factor`, over `divisor`. `n` and `need` stay, and a bound that does
        not exist stays so.

        A division is not written as a factor, since x * (1 / 3) and x / 3 differ in the last digit.
        ValueError unless the factor is 0 or more and the divisor above 0: a negative one would swap
        the bounds.

        >>> third = Estimate(6.0, 3.0, math.inf, 9).scaled(1, 3)
        >>> third.value, third.low, third.high, third.n
        (2.0, 1.0, inf, 9)
        """
        if not (factor >= 0 and divisor > 0):
            raise ValueError(f"an estimate cannot be scaled by {factor} / {divisor}")

        def scale(x: float) -> float:
            return x if math.isinf(x) else x * factor / divisor

        return replace(
            self,
            value=scale(self.value),
            low=scale(self.low),
            high=scale(self.high),
            lower=scale(self.lower),
            upper=scale(self.upper),
        )

    def moved(self, down: Callable[[float], float], up: Callable[[float], float]) -> "Estimate":
        """The estimate with its lower ends moved by `down` and its upper ends by `up`; the value
        stays.
        """
        return replace(self, low=down(self.low), lower=down(self.lower), high=up(self.high), upper=up(self.upper))

    def inverted(self, numerator: float = 1.0, *, lower_at_zero: float = -math.inf) -> "Estimate":
        """`numerator` over the estimate of something that is never negative: bounds swap sides, `n`
        and `need` stay.

        A bound that does not exist (or is 0, below 0 or infinite) gives one that does not exist.
        The inverse of the value 0 is infinite, and of an infinite value 0. `lower_at_zero` is the
        one-sided lower bound where the upper one is 0 or less. -inf claims nothing. inf says that
        the inverse is certainly infinite, as the cost per token without any token.

        >>> over = Estimate(2.0, 1.0, 4.0, 9, 1.25, math.inf).inverted(10)
        >>> over.value, over.low, over.high, over.lower, over.upper
        (5.0, 2.5, 10.0, -inf, 8.0)
        """

        def over(x: float, otherwise: float) -> float:
            if math.isnan(x):
                return x
            return numerator / x if 0 < x < math.inf else otherwise

        return replace(
            self,
            value=0.0 if math.isinf(self.value) else over(self.value, math.inf),
            low=over(self.high, -math.inf if math.isinf(self.high) else math.inf),
            high=over(self.low, math.inf),
            lower=over(self.upper, -math.inf if math.isinf(self.upper) else lower_at_zero),
            upper=over(self.lower, math.inf),
        )


@dataclass(frozen=True, slots=True)
class Flag:
    """A defect of a point: what was measured, its limit, and advice. A `fatal` one makes the point
    invalid.
    """

    name: str
    measured: str
    limit: str
    advice: str
    fatal: bool = True


FLAG_WORDS = {
    "errors": "requests failed",
    "cut_off": "the budget ended it",
    "short_output": "answers of another length than asked",
    "wrong_input_length": "prompts of another length than asked",
    "cache_contaminated": "prompts came from the cache",
    "recomputed": "preempted requests were computed again",
    "history_read_again": "the history of sessions was read again",
    "server_lost": "the server was lost",
    "server_changed": "the server changed",
    "server_restarted": "the server was restarted",
    "buffered_stream": "the stream was held back",
    "coalesced": "several tokens in a chunk",
    "token_mismatch": "the server's token counts do not fit its stream",
    "identity": "times and token counts do not fit together",
    "uncounted": "answers without the server's token count",
    "odd_finish": "answers were not finished",
    "hollow_first": "a first token that shows nothing",
    "client_bound": "this machine was busy",
    "resent": "kept connections were closed",
    "under_concurrency": "fewer requests in flight than asked",
    "over_concurrency": "more requests in flight than asked",
    "background_missing": "the background was not there",
    "littles_law": "rate and latency do not fit the concurrency",
    "overloaded": "more arrived than was served",
    "lockstep": "requests came in waves",
    "non_stationary": "the speed was not steady",
    "too_few_samples": "too few requests",
    "too_few_connections": "connections to too few replicas",
    "fingerprint_changed": "the system's fingerprint changed",
    "faster_than_light": "faster than its hardware can be",
    "power_unmeasured": "energy was not measured",
    "clocks_held_down": "the clocks of its GPUs were held down",
    "no_requests": "no request counts",
    "records_changed": "its records were changed",
    "under_rate": "fewer requests a second than asked",
    "marked_invalid": "marked as not valid",
}
"""The kinds of flags in words, by name, for readers who do not know the names."""


@dataclass(frozen=True, slots=True)
class Distance:
    """The roofline of a setting at its own concurrency, and the share of it that was reached.

    `ceiling` is the output tokens per second that the hardware allows, `share` the part of it that
    was reached, and `binds` the resource that sets it. `mbu` is the utilisation of memory bandwidth
    by decoding, `mfu` that of arithmetic by prefill and decoding; None where the description of the
    hardware is not enough.
    """

    ceiling: float
    share: Estimate
    binds: str
    mbu: Estimate | None = None
    mfu: Estimate | None = None


@dataclass(frozen=True, slots=True)
class Power:
    """The electrical power of a whole deployment in watts: `measured` in the windows by samples, or
    `stated` in the config.
    """

    watts: float
    source: Literal["measured", "stated"]


@dataclass(frozen=True, slots=True)
class TimeBreakdown:
    """Where the time of the `requests` that ended in the windows went, as means in seconds.

    `parts` holds the known ones of connect, network, front_end, queue, prefill and decode, in this
    order. Together with the unexplained `rest` they are the mean E2E latency. All but decode are
    within the mean TTFT. `missing` names the parts that neither the server's metrics nor the
    client's stamps show: their time is in `rest`. `refused` is the reason why there are no parts at
    all.
    """

    requests: int
    ttft: float
    e2e: float
    parts: Mapping[str, float] = field(default_factory=dict)
    rest: float = 0.0
    missing: tuple[str, ...] = ()
    refused: str = ""


OVERLOADED = "overloaded"
"""The flag of a rate at which the backlog grew through the window."""


@dataclass(frozen=True, slots=True)
class Point(HasLoad):
    """The metrics and flags of one setting, from all its trials. Unknown metrics are absent from
    `metrics`.

    `roofline_distance` is known when the config describes the hardware. `energy` was computed
    with `power`. `time` is the breakdown of its requests' time, known where the server's metrics
    have it. `in_flight` is the mean number of requests in flight where the concurrency counts
    sessions.
    """

    deployment: str
    shape: Shape
    load: Load
    metrics: Mapping[str, Estimate]
    n: int
    flags: tuple[Flag, ...] = ()
    repeats: int = 1
    notes: tuple[str, ...] = ()
    whole_run: Mapping[str, float] = field(default_factory=dict)
    roofline_distance: Distance | None = None
    power: Power | None = None
    in_flight: float | None = None
    time: TimeBreakdown | None = None

    @property
    def concurrency(self) -> int:
        """The name of `load` in version 1.0."""
        return self.load

    @property
    def overloaded(self) -> bool:
        """Whether more requests arrived than were served. Such a point keeps no SLA, whatever the
        latencies of its window.
        """
        return any(flag.name == OVERLOADED for flag in self.flags)

    def value(self, name: str) -> float:
        """The value of a metric; nan where it was not measured."""
        estimate = self.metrics.get(name)
        return math.nan if estimate is None else estimate.value

    @property
    def fatal(self) -> tuple[Flag, ...]:
        """The flags that make its numbers meaningless."""
        return tuple(flag for flag in self.flags if flag.fatal)

    @property
    def valid(self) -> bool:
        """Whether no fatal flag makes its numbers meaningless."""
        return not any(flag.fatal for flag in self.flags)


@dataclass(frozen=True, slots=True)
class Frontier(HasSeries):
    """The Pareto frontier of one series: the concurrencies on it, those dominated, and why others
    were excluded.
    """

    deployment: str
    shape: Shape
    objectives: tuple[str, ...]
    members: tuple[Load, ...]
    dominated: tuple[Load, ...]
    excluded: Mapping[Load, str] = field(default_factory=dict)
    probability: Mapping[Load, float] = field(default_factory=dict)
