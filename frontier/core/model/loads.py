"""Loads: what a setting offers to a server, requests in flight (closed loop) or a rate of arrivals
(open loop).

A load is a whole number wherever settings are compared, sorted or looked up. In closed loop it is
the number of requests in flight, a plain int. In open loop it is a `Rate`, an int too. It counts
arrivals in thousandths of a request per second, as a price is kept in cents, and knows how it is
written. A rate of sessions is a `SessionRate`.
"""

import bisect
import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self


class Rate(int):
    """Arrivals, in thousandths of a request per second. Arithmetic gives plain numbers.

    >>> rate = Rate.of(2.5)
    >>> str(rate), rate.per_second, rate == 2500
    ('2.5 req/s', 2.5, True)
    """

    __slots__ = ()
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
        """Arrivals per second."""
        return int(self) / 1000

    def __str__(self) -> str:
        return f"{self.per_second:.10g} {self.unit}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}.of({self.per_second:.10g})"

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec else str(self)


class SessionRate(Rate):
    """A rate at which sessions begin; each then sends its turns.

    >>> str(SessionRate.of(0.5))
    '0.5 sessions/s'
    """

    __slots__ = ()
    unit = arrivals = "sessions/s"


OPEN_CAP = 1_024
"""The most requests in flight at a rate: as many as the largest default limit of an engine."""


def streams(load: int) -> int:
    """How many requests may be in flight at the client: the load itself. At a rate it is OPEN_CAP,
    as arrivals do not wait for answers.
    """
    return OPEN_CAP if isinstance(load, Rate) else load


def doublings(low: int, high: int) -> tuple[int, ...]:
    """Every doubling of requests in flight.

    >>> doublings(1, 20)
    (1, 2, 4, 8, 16, 20)
    """
    steps = [low]
    while steps[-1] * 2 < high:
        steps.append(steps[-1] * 2)
    return tuple(dict.fromkeys((*steps, high)))


def setting(load: int) -> str:
    """How a table or note names a setting: 'c=64', '2.5 req/s'."""
    return str(load) if isinstance(load, Rate) else f"c={load}"


def amount(load: int) -> float:
    """The number of a load: 64, or 2.5 for 2.5 requests per second."""
    return load.per_second if isinstance(load, Rate) else load


def bare(load: int) -> str:
    """The number of a load as a text: '64', '2.5'."""
    return f"{amount(load):.10g}" if isinstance(load, Rate) else str(load)


def kind_of(load: int) -> str:
    """The kind of a load: 'concurrency' or 'rate'."""
    return "rate" if isinstance(load, Rate) else "concurrency"


def listed(loads: Iterable[int], join: str = ", ") -> str:
    """Several loads as a text: 'c=1, 2, 4', '0.5, 1, 2 req/s'."""
    every = list(loads)
    numbers = join.join(map(bare, every))
    return f"{numbers} {every[0].unit}" if every and isinstance(every[0], Rate) else f"c={numbers}"


def in_words(load: int) -> str:
    """How a sentence names a load: 'concurrency 64', '2.5 req/s'."""
    return str(load) if isinstance(load, Rate) else f"concurrency {load}"


def load_facts(load: int | None) -> dict[str, Any]:
    """A load as JSON has it: `concurrency`, or `rate` in requests per second; the other is null. A
    rate of sessions has `rate_of`, too.
    """
    if isinstance(load, Rate):
        of_sessions = {"rate_of": "sessions"} if isinstance(load, SessionRate) else {}
        return {"concurrency": None, "rate": load.per_second, **of_sessions}
    return {"concurrency": load, "rate": None}


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
