"""Loads: what a setting offers to a server, requests in flight (closed loop) or a rate of arrivals
(open loop).

A load is a whole number wherever settings are compared, sorted or looked up; arithmetic gives plain
numbers. `Concurrency` counts requests in flight. A `Rate` counts arrivals in thousandths of a
request per second, as a price is kept in cents; a rate of sessions is a `SessionRate`. Each kind
knows how it is written and what follows from it.
"""

import bisect
import math
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

OPEN_CAP = 1_024
"""The most requests in flight at a rate: as many as the largest default limit of an engine."""


class Load(int):
    """What a setting offers to a server; its kinds are below."""

    __slots__ = ()
    kind: ClassVar[str]
    """The kind in JSON and in a config: 'concurrency' or 'rate'."""
    column: ClassVar[tuple[str, str]]
    """The head of a column of such loads, short and long."""
    axis: ClassVar[str]
    """The label of an axis of such loads."""
    is_open: ClassVar[bool]
    """Whether arrivals do not wait for answers."""

    @classmethod
    def of(cls, amount: float) -> Self:
        """The load of a number as a person writes it."""
        return cls(amount)

    @property
    def amount(self) -> float:
        """The number as a person writes it: 64, or 2.5 for 2.5 requests per second."""
        return int(self)

    @property
    def stored(self) -> int:
        """The number in files and fingerprints, which `as_load` reads."""
        return int(self)

    @property
    def bare(self) -> str:
        """The number as a text: '64', '2.5'."""
        return f"{self.amount:.10g}"

    @property
    def label(self) -> str:
        """How a table or note names the setting: 'c=64', '2.5 req/s'."""
        return self.bare

    @property
    def words(self) -> str:
        """How a sentence names it: 'concurrency 64', '2.5 req/s'."""
        return self.label

    @property
    def file_label(self) -> str:
        """Its part of a file's name: 'c0064', 'q2.5'."""
        return self.bare

    @property
    def per_second(self) -> float | None:
        """Arrivals per second; None in closed loop, where they follow from the answers."""
        return None

    @property
    def streams(self) -> int:
        """How many requests may be in flight at the client."""
        return OPEN_CAP

    def turns(self, each: int) -> int:
        """The requests in which every stream sends this many; 0 at a rate, which has no streams."""
        return 0 if self.is_open else each * self

    @property
    def facts(self) -> dict[str, Any]:
        """The load as JSON has it: `concurrency`, or `rate` in requests per second; the other is
        null.
        """
        return {"concurrency": None, "rate": self.per_second}


class Concurrency(Load):
    """Requests in flight, in closed loop.

    >>> load = Concurrency(64)
    >>> load.label, load.words, load.streams, load == 64
    ('c=64', 'concurrency 64', 64, True)
    """

    __slots__ = ()
    kind = "concurrency"
    column = ("c", "concurrency")
    axis = "concurrency"
    is_open = False

    @property
    def label(self) -> str:
        return f"c={self}"

    @property
    def words(self) -> str:
        return f"concurrency {self}"

    @property
    def file_label(self) -> str:
        return f"c{self:04d}"

    @property
    def streams(self) -> int:
        return int(self)

    @property
    def facts(self) -> dict[str, Any]:
        return {"concurrency": int(self) or None, "rate": None}


class Rate(Load):
    """Arrivals, in thousandths of a request per second.

    >>> rate = Rate.of(2.5)
    >>> str(rate), rate.per_second, rate == 2500
    ('2.5 req/s', 2.5, True)
    """

    __slots__ = ()
    kind = "rate"
    column = ("rate", "rate, arrivals per second")
    axis = "rate (requests/s)"
    is_open = True
    unit: ClassVar[str] = "req/s"
    """What arrives, in tables and notes."""
    arrivals: ClassVar[str] = "requests/s"
    """The same in a sentence."""

    @classmethod
    def of(cls, per_second: float) -> Self:
        """The rate nearest to a number of arrivals per second, one thousandth at least."""
        return cls(max(1, round(1000 * per_second)))

    @property
    def per_second(self) -> float:
        return int(self) / 1000

    @property
    def amount(self) -> float:
        return self.per_second

    @property
    def label(self) -> str:
        return f"{self.bare} {self.unit}"

    @property
    def file_label(self) -> str:
        return f"q{self.bare}"

    def __str__(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return f"{type(self).__name__}.of({self.bare})"

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec else self.label


class SessionRate(Rate):
    """A rate at which sessions begin; each then sends its turns.

    >>> str(SessionRate.of(0.5))
    '0.5 sessions/s'
    """

    __slots__ = ()
    column = ("rate", "rate, sessions that begin per second")
    axis = "rate (sessions/s)"
    unit = arrivals = "sessions/s"

    @property
    def facts(self) -> dict[str, Any]:
        """As of a rate of requests, with `rate_of`."""
        return super().facts | {"rate_of": "sessions"}


class CappedRate(Concurrency):
    """Arrivals at a rate, of which at most this many are in flight: a check of an operating point.

    >>> load = CappedRate.at(135.0625, 49)
    >>> load.label, load.per_second, load.is_open
    ('c=49', 135.0625, True)
    """

    is_open = True
    per_second: float = math.nan  # given to each by `at`; an int takes no second argument

    @classmethod
    def at(cls, per_second: float, most: int) -> Self:
        """The load of exactly so many arrivals per second, and the most in flight."""
        load = cls(most)
        load.per_second = per_second
        return load


def as_load(number: int, kind: type[Load] = Concurrency) -> Load:
    """The load as it is; a stored number as one of this kind."""
    return number if isinstance(number, Load) else kind(number)


def load_of(facts: Mapping[str, Any]) -> Load:
    """The load of `Load.facts`; those of earlier versions have no rate."""
    rate: float | None = facts.get("rate")
    if rate is None:
        return Concurrency(facts["concurrency"])
    return (SessionRate if facts.get("rate_of") == "sessions" else Rate).of(rate)


NO_LOAD = Concurrency(0)
"""In place of a load where there is none: its facts are null."""


def doublings(low: int, high: int) -> tuple[Concurrency, ...]:
    """Every doubling of requests in flight.

    >>> doublings(1, 20)
    (1, 2, 4, 8, 16, 20)
    """
    steps = [low]
    while steps[-1] * 2 < high:
        steps.append(steps[-1] * 2)
    return tuple(map(Concurrency, dict.fromkeys((*steps, high))))


def listed(loads: Iterable[Load], join: str = ", ") -> str:
    """Several loads of one kind as a text: 'c=1, 2, 4', '0.5, 1, 2 req/s'."""
    every = list(loads)
    numbers = join.join(load.bare for load in every)
    return every[0].label.replace(every[0].bare, numbers) if every else "c="


@dataclass(frozen=True, slots=True)
class Trace:
    """Recorded times of arrival: `count` of them in `seconds`, from `times[0]` = 0 on, to be played
    again and again. `digest` is a digest of the times; `name` is the name of their file.

    `dispersion[k]` is the index of dispersion of counts in windows with 2^k arrivals on average (1:
    as of a Poisson process). Stamps on a coarse `grid` (seconds) were placed at random within its
    steps. A trace that is read back from a trial has no `times`.
    """

    name: str
    digest: str
    count: int = field(default=0, compare=False)
    seconds: float = field(default=0.0, compare=False)
    dispersion: tuple[float, ...] = field(default=(), compare=False)
    grid: float | None = field(default=None, compare=False)
    times: tuple[float, ...] = field(default=(), compare=False, repr=False)

    @property
    def rate(self) -> float:
        """Recorded arrivals per second."""
        return self.count / self.seconds

    @property
    def long_enough(self) -> int:
        """The fewest arrivals of a window whose number varies little from one part of the trace to
        another: by at most PART_OF_A_TRACE, as a standard deviation. All arrivals where no number
        does.
        """
        enough = (2**k for k, index in enumerate(self.dispersion) if index <= PART_OF_A_TRACE**2 * 2**k)
        return min(self.count, next(enough, self.count))

    def dispersion_at(self, arrivals: float) -> float:
        """The index of dispersion in windows with this mean number of arrivals, interpolated
        between known numbers.
        """
        if not self.dispersion:
            return 1.0
        place = min(max(math.log2(max(arrivals, 1.0)), 0.0), len(self.dispersion) - 1.0)
        below = min(int(place), len(self.dispersion) - 2) if len(self.dispersion) > 1 else 0
        above = min(below + 1, len(self.dispersion) - 1)
        return self.dispersion[below] + (place - below) * (self.dispersion[above] - self.dispersion[below])

    def start(self, seed: int) -> tuple[float, int]:
        """Where in the trace the trial of a seed begins: the moment, and the arrival after it."""
        if not self.times:
            raise ValueError(f"the times of the trace {self.name} are not read")
        moment = random.Random(f"{seed}/arrivals").uniform(0.0, self.seconds)
        return moment, bisect.bisect_right(self.times, moment)

    def played(self, rate: float, seed: int) -> Iterator[float]:
        """The arrival times of the trial of a seed, for ever; time is scaled to `rate` arrivals per
        second.
        """
        scale = self.rate / rate
        moment, first = self.start(seed)
        begun = -moment
        while True:
            for time in self.times[first:]:
                yield (begun + time) * scale
            first, begun = 0, begun + self.seconds


PART_OF_A_TRACE = 0.2
"""How much the number of arrivals of a claim's window may vary with the part of the trace that it
takes."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The gaps between arrivals in open loop: gamma distributed with this coefficient of variation.
    1, the exponential distribution, makes a Poisson process, as many independent users do; more
    makes bursts, and 0 (of imports alone) even gaps. With a `trace`, its gaps are taken instead.
    """

    cv: float = 1.0
    trace: Trace | None = None

    def times(self, rate: float, seed: int) -> Iterator[float]:
        """The times of arrival in seconds, for ever: `rate` per second, drawn by the seed. For a
        trace the seed draws the place where it begins.
        """
        if self.trace is not None:
            yield from self.trace.played(rate, seed)
        rng = random.Random(f"{seed}/arrivals")
        now, shape = 0.0, self.cv**-2
        while True:
            now += rng.expovariate(rate) if self.cv == 1 else rng.gammavariate(shape, 1 / (shape * rate))
            yield now

    def spread(self, arrivals: float) -> float:
        """The standard deviation of the number of arrivals, over that of a Poisson process with
        this mean number.
        """
        return self.cv if self.trace is None else math.sqrt(self.trace.dispersion_at(arrivals))

    @property
    def long_enough(self) -> int:
        """The fewest requests of a trial that a claim may rest on."""
        return 0 if self.trace is None else self.trace.long_enough

    @property
    def without_times(self) -> "Arrivals":
        """The arrivals as a trial keeps them: without the times of a trace."""
        return self if self.trace is None else replace(self, trace=replace(self.trace, times=()))

    def __str__(self) -> str:
        if self.trace is not None:
            return f"{self.trace.name} ({self.trace.digest[:8] or 'not read'})"
        return {0.0: "evenly spaced", 1.0: "Poisson"}.get(self.cv, f"gamma (CV {self.cv:g})")


POISSON = Arrivals()
