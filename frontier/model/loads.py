"""Loads: what a setting offers to a server, requests in flight (closed loop) or a rate of arrivals (open loop).

A load is a whole number wherever settings are compared, sorted or looked up. In closed loop it is the number of
requests in flight, a plain int. In open loop it is a `Rate`, an int too, which counts arrivals in thousandths of a
request per second, as a price is kept in cents, and knows how it is written; of sessions a `SessionRate`.
"""

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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
        """The rate nearest to so many arrivals per second, one thousandth at least."""
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
"""Requests of a rate that are in flight at the most: as many as the largest default limit of an engine."""


def streams(load: int) -> int:
    """How many requests may be in flight at the client: of a rate OPEN_CAP, as arrivals do not wait for answers."""
    return OPEN_CAP if isinstance(load, Rate) else load


def setting(load: int) -> str:
    """How a table or note names a setting: 'c=64', '2.5 req/s'."""
    return str(load) if isinstance(load, Rate) else f"c={load}"


def amount(load: int) -> float:
    """Its number: 64, or 2.5 of 2.5 requests per second."""
    return load.per_second if isinstance(load, Rate) else load


def bare(load: int) -> str:
    """The same as a text: '64', '2.5'."""
    return f"{amount(load):.10g}" if isinstance(load, Rate) else str(load)


def kind_of(load: int) -> str:
    """What it is an amount of: 'concurrency' or 'rate'."""
    return "rate" if isinstance(load, Rate) else "concurrency"


def listed(loads: Iterable[int], join: str = ", ") -> str:
    """Several: 'c=1, 2, 4', '0.5, 1, 2 req/s'."""
    every = list(loads)
    numbers = join.join(map(bare, every))
    return f"{numbers} {every[0].unit}" if every and isinstance(every[0], Rate) else f"c={numbers}"


def in_words(load: int) -> str:
    """How a sentence names it: 'concurrency 64', '2.5 req/s'."""
    return str(load) if isinstance(load, Rate) else f"concurrency {load}"


def load_facts(load: int | None) -> dict[str, Any]:
    """A load as JSON has it: `concurrency`, or `rate` in requests per second; the other is null. Of a rate of sessions
    `rate_of` says so.
    """
    if isinstance(load, Rate):
        of_sessions = {"rate_of": "sessions"} if isinstance(load, SessionRate) else {}
        return {"concurrency": None, "rate": load.per_second, **of_sessions}
    return {"concurrency": load, "rate": None}


def load_columns(load: int) -> dict[str, Any]:
    """The same for a table, in which a concurrency has no column `rate`."""
    return load_facts(load) if isinstance(load, Rate) else {"concurrency": load}


def load_of(facts: Mapping[str, Any]) -> int:
    """The load of such facts, read back; those of earlier versions have no rate."""
    rate: float | None = facts.get("rate")
    if rate is None:
        return facts["concurrency"]  # type: ignore[no-any-return]
    return (SessionRate if facts.get("rate_of") == "sessions" else Rate).of(rate)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The gaps between arrivals in open loop: gamma distributed with this coefficient of variation. 1, the exponential
    distribution, makes a Poisson process, as of many independent users; more makes bursts.
    """

    cv: float = 1.0

    def times(self, rate: float, seed: int) -> Iterator[float]:
        """The times of arrival in seconds, for ever: `rate` per second, drawn by the seed."""
        rng = random.Random(f"{seed}/arrivals")
        now, shape = 0.0, self.cv**-2
        while True:
            now += rng.expovariate(rate) if self.cv == 1 else rng.gammavariate(shape, 1 / (shape * rate))
            yield now

    def __str__(self) -> str:
        return "Poisson" if self.cv == 1 else f"gamma (CV {self.cv:g})"


POISSON = Arrivals()
