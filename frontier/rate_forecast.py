"""Expected search over rates: what a server is taken to serve at most before anything is measured,
and the looks that a search then takes. Pure.
"""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from frontier.config import Config
from frontier.decide import load_search
from frontier.decide.load_search import LoadAsk, LoadPolicy, rounded
from frontier.decide.prediction import assumption, most_in_flight
from frontier.decide.rate_search import LOOK_REQUESTS, MOST_RATE, SATURATED_REQUESTS, ramp_look
from frontier.errors import UsageError
from frontier.model import Limit, Phase, Rate, Series, Shape
from frontier.simulator.virtual import expected_e2e
from frontier.units import count

ASSUMED_IN_FLIGHT = 16
"""Requests that a server has in flight at the most that it serves, while nothing is described and
nothing measured."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a search over rates of a shape is expected to find: what is served at most, and `by`
    what that is known.
    """

    shape: Shape
    policy: LoadPolicy
    by: str

    @property
    def usual(self) -> Rate:
        """The rate that is usually proven."""
        return self.shape.load(Rate.of(rounded(load_search.USUAL * self.policy.top)))  # type: ignore[return-value]

    def looks(self, limits: Sequence[Limit], lowest: float, seen: int) -> list[LoadAsk]:
        """The looks of the ramp from the lowest rate on, and those that locate the SLA, after the
        first `seen`.
        """
        warmup = self.policy.warmup
        ramp = [ramp_look(self.shape, lowest, LOOK_REQUESTS, (), warmup)]
        while ramp[-1].load <= self.policy.top and 2 * ramp[-1].load <= MOST_RATE:
            ramp.append(ramp_look(self.shape, rounded(2 * ramp[-1].load), LOOK_REQUESTS, (), warmup))
        ramp.append(ramp_look(self.shape, ramp[-1].load, SATURATED_REQUESTS, (), warmup))
        rate = self.usual.per_second
        size = load_search.look_size(self.policy, limits, rate)
        look = LoadAsk(rate, Phase.SCAN, size, max(warmup, self.policy.lasting), self.policy.each)
        locating = [look] * load_search.EXPECTED_LOOKS
        return [*ramp, *locating][seen:] or locating[:1]


def expectation(config: Config, series: Series, longest: float) -> Expectation:
    """By the engine model, with as many requests in flight as the limits on TPOT and E2E allow;
    where too little is described, by the middle one of the listed rates, or by ASSUMED_IN_FLIGHT
    requests of `longest` seconds.
    """
    shape = series.shape

    def expected(by: str, rate: float, in_flight: int, e2e: float) -> Expectation:
        """Of so many requests, or turns of sessions, per second."""
        lasting = shape.session_seconds(e2e)
        policy = LoadPolicy(0.0, rate / shape.requests, in_flight, e2e, config.warmup, shape.requests, lasting)
        return Expectation(shape, policy, by)

    with contextlib.suppress(UsageError):
        assumed, _ = assumption(config.deployment(series.deployment))
        times = {"e2e": 1.0, "tpot": shape.osl.mean}
        limited = [li for li in config.limits if li.of.quantity in times and not li.of.inverted and not li.of.group]
        allowed = min((li.promise * times[li.of.quantity or ""] for li in limited), default=math.inf)
        if n := most_in_flight(assumed, shape, allowed):

            def e2e(in_flight: int) -> float:
                return expected_e2e(assumed.spec, shape, in_flight)

            top = n / e2e(n)
            usual = next(m for m in range(1, n + 1) if m >= load_search.USUAL * top * e2e(m))
            by = f"three quarters of what the engine model serves with {count(n, 'request')} in flight"
            return expected(by, top, max(1, round(top * e2e(usual))), e2e(usual))
    if config.rate:
        top = config.rate[len(config.rate) // 2].per_second * shape.requests / load_search.USUAL
        return expected("as listed", top, max(1, round(top * longest)), longest)
    by = f"three quarters of what {ASSUMED_IN_FLIGHT} requests in flight give, each as slow as the SLA lets it be"
    return expected(by, ASSUMED_IN_FLIGHT / longest, ASSUMED_IN_FLIGHT, longest)
