"""Head count: how many people one operating point serves, and how many replicas a number of people
needs.

A person asks, waits for the whole answer, thinks for a while and asks again. The number of N such
people that have a request in flight is a birth-death process. With n in flight, the other N - n ask
at the rate (N - n) / think, and the replicas end requests as `arrivals` has it. A head count is
promised where, in each limited percentile, the share of late requests stays within what the
percentile forgives.
"""

import math
from dataclasses import dataclass

import numpy as np

from frontier.core.model.decisions import Decision
from frontier.core.model.loads import NO_LOAD, Load
from frontier.core.window.window import Floats
from frontier.planning.arrivals import BEYOND, RARE, WAITING, Replica, birth_death, forgives, highest


@dataclass(frozen=True, slots=True)
class HeadCount:
    """The `people` that a number of replicas serve.

    - `in_flight`, `rate`: of one replica, the mean number in flight and the request rate then.
    - `waiting`: the share of requests that wait for a slot; None where only measured rates are
      known.
    """

    people: int
    replicas: int
    in_flight: float
    rate: float
    waiting: float | None


def head_count(replica: Replica, think: float, replicas: int) -> HeadCount:
    """The most people that this number of replicas serves within the limits; 0 people where not
    even one is served.
    """
    most = highest(lambda people: _keeps(replica, think, replicas, people))
    share = _in_flight(replica, think, replicas, most)
    rate = float(share[1:] @ replica.rates(replicas, len(share) - 1)) / replicas
    waiting = float(_in_flight(replica, think, replicas, max(0, most - 1))[replicas * replica.cap :].sum())
    return HeadCount(most, replicas, float(share @ np.arange(len(share))) / replicas, rate, waiting)


def replicas_for(replica: Replica, think: float, people: int) -> int:
    """The fewest replicas that serve this number of people within the limits. One replica must
    serve one person.
    """
    return 1 + highest(lambda replicas: not _keeps(replica, think, replicas, people))


def _in_flight(replica: Replica, think: float, replicas: int, people: int) -> Floats:
    """The distribution of requests in flight, waiting ones included: the share of time with 0, 1,
    ... of them.
    """
    states = min(people, replicas * replica.cap + BEYOND)
    return birth_death((people - np.arange(states)) / think, replica.rates(replicas, states))


def _keeps(replica: Replica, think: float, replicas: int, people: int) -> bool:
    """Whether every limited percentile forgives the late requests of this number of people."""
    found = _in_flight(replica, think, replicas, people - 1)  # what a person who asks finds of the others
    slots = replicas * replica.cap
    if len(found) > slots + BEYOND and found[-1] > RARE:
        return False
    if not replica.limits:
        return float(found[slots:].sum()) <= WAITING
    ended = replica.rates(replicas, len(found))
    own = _in_flight(replica, think, replicas, people)
    return forgives(replica, found, float(own[1:] @ ended[: len(own) - 1]) / replicas, replicas)


@dataclass(frozen=True, slots=True)
class Verified:
    """A rate of Poisson arrivals that one replica was proven to serve, and its mean E2E latency at
    that rate.
    """

    rate: float
    e2e: float

    def head_count(self, think: float, replicas: int) -> HeadCount:
        """The people whose requests come at that rate on each replica: N = X (R + Z). Their
        requests are less bursty than the Poisson arrivals of the proof, because a person who waits
        for an answer does not ask.
        """
        people = replicas * math.floor(self.rate * (self.e2e + think) + 1e-9)
        return HeadCount(people, replicas, self.rate * self.e2e, self.rate, None)


@dataclass(frozen=True, slots=True)
class Users:
    """The answer for one operating point.

    - `one`: what one replica serves.
    - `fleet`: the fewest replicas that serve the `people` asked for, without the `spare` ones.
    - `price`: of a replica per hour.
    """

    decision: Decision
    think: float
    one: HeadCount
    verified: Verified | None = None
    people: int | None = None
    fleet: HeadCount | None = None
    spare: int = 0
    price: float | None = None

    @property
    def cap(self) -> Load:
        """The proven concurrency."""
        return self.decision.load or NO_LOAD

    @property
    def replicas(self) -> int:
        """Replicas to run, the spare ones included."""
        return self.spare + (self.fleet or self.one).replicas

    @property
    def sticky(self) -> int | None:
        """The replicas for the people, without spare ones, where each person stays on one
        replica.
        """
        return None if self.people is None or not self.one.people else math.ceil(self.people / self.one.people)

    @property
    def cost(self) -> float | None:
        """The cost of all replicas per hour."""
        return None if self.price is None else self.price * self.replicas


def users(
    decision: Decision,
    replica: Replica,
    think: float,
    *,
    people: int | None = None,
    spare: int = 0,
    verified: Verified | None = None,
    price: float | None = None,
) -> Users:
    """The people that a replica serves, and the replicas that `people` need. They follow from the
    verified rate, which is proven, or else from the closed loop's estimate.
    """
    one = verified.head_count(think, 1) if verified is not None else head_count(replica, think, 1)
    if people is None or not one.people:
        return Users(decision, think, one, verified, price=price)
    if verified is not None:
        fleet = verified.head_count(think, math.ceil(people / one.people))
    else:
        fleet = head_count(replica, think, replicas_for(replica, think, people))
    return Users(decision, think, one, verified, people, fleet, spare, price)
