"""Policy of the search for the highest rate: its range, its sizes, and what a trial shows."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from frontier.core.claim.proof import WINDOWS, pilot_point
from frontier.core.flags import load_flags
from frontier.core.model.decisions import Limit
from frontier.core.model.loads import Load, Rate, SessionRate
from frontier.core.model.points import FLAG_WORDS
from frontier.core.stats import intervals
from frontier.core.window.window import WindowData
from frontier.search.next_trial import Ask

LEAST, MOST = 0.10, 0.90
"""Shares of `top` between which rates are tried, and from half of `start` where that is lower.
Nearer to it no window of reasonable length differs from overload."""
LOOK_TAIL = 4
"""Requests beyond the percentile in a look, of a server that is right at its limit."""
LOOK_TURNS, PROOF_TURNS = 10, 40
"""Fewest requests of a look, and of a proof's first WINDOWS windows, per request in flight."""
LOOK_SPELLS = 1
"""Fewest requests of a look per request that arrives while the queue forgets its past."""
TURNED_AWAY = 1 / 3
"""A server that fails more than this share of the requests has no backlog, and serves no more at a
higher rate."""
SETTLED = 2.0
"""Warm-up, in times in which a queue forgets that it began empty."""


@dataclass(frozen=True, slots=True)
class RatePolicy:
    """The range of a search: rates below `top`, which is more than the server can take, from
    `start`. All rates here are arrivals per second.

    At most `in_flight` requests are in flight at any rate, each about `e2e` seconds long at the
    top. `warmup` are the fewest seconds of warm-up. An arrival brings `each` requests on average,
    within `lasting` seconds where they are the turns of a session.
    """

    start: float
    top: float
    in_flight: int
    e2e: float
    warmup: float = 0.0
    each: float = 1.0
    lasting: float = 0.0

    @property
    def least(self) -> Rate:
        """The lowest rate that is tried."""
        return rounded(min(LEAST * self.top, self.start / 2 or math.inf))

    def memory(self, rate: float) -> float:
        """Seconds in which a queue forgets its past: the longer, the nearer the rate is to the top.

        The relaxation time of a queue with c servers is one service time over c (1 -
        sqrt(utilization))^2 (Morse 1955). How many sessions are open changes no faster than
        sessions end.
        """
        queue = self.e2e / self.in_flight / (1 - math.sqrt(min(rate / self.top, MOST))) ** 2
        return max(queue, self.lasting)

    def settled(self, rate: float) -> float:
        """Seconds of warm-up at a rate, after which the queue has forgotten that it began empty."""
        memory = self.memory(rate)
        return max(self.warmup, 0.0 if memory == self.lasting else SETTLED * memory)

    def seconds(self, ask: Ask) -> float:
        """Seconds that a trial's arrivals take with its warm-up."""
        return ask.warmup + ask.requests / (rate_of(ask.load).per_second * self.each)

    @property
    def unit(self) -> str:
        """What arrives, in a sentence."""
        return (SessionRate if self.lasting else Rate).arrivals


# --- sizes


def _independent(limits: Iterable[Limit]) -> int:
    """Fewest independent requests that bound every limited percentile."""
    return max((intervals.needed(p) for limit in limits if (p := limit.of.p) is not None), default=1)


def least_window(policy: RatePolicy, limits: Iterable[Limit], rate: float) -> int:
    """Fewest requests of each window of a proof at a rate.

    Waits come in spells: not single requests are independent, but the spells in which the queue
    forgets its past. The first windows hold enough spells that they would be a proof if none had a
    violation.
    """
    spells = _independent(limits) * rate * policy.each * policy.memory(rate)
    return math.ceil(max(PROOF_TURNS * policy.in_flight, spells) / WINDOWS)


def proof_size(policy: RatePolicy, limits: Iterable[Limit], rate: float) -> int:
    """Requests of a proof at a rate, up to its first judgement."""
    return WINDOWS * least_window(policy, limits, rate)


def look_size(policy: RatePolicy, limits: Iterable[Limit], rate: float) -> int:
    """Requests of a look: enough that its percentiles are not just the worst request."""
    tails = [LOOK_TAIL / (1 - p) for limit in limits if (p := limit.of.p) is not None]
    spells = LOOK_SPELLS * rate * policy.each * policy.memory(rate)
    return math.ceil(max([100.0, LOOK_TURNS * policy.in_flight, spells, *tails]) - 1e-6)


def rate_of(load: Load) -> Rate:
    """The load of a trial at a rate."""
    assert isinstance(load, Rate)
    return load


def rounded(per_second: float) -> Rate:
    """The rate rounded to three digits, so that the printed rate is the one that was sent."""
    return Rate.of(float(f"{per_second:.3g}"))


# --- what a trial shows


def is_overloaded(sample: WindowData) -> bool:
    """Whether more arrives than is served: the backlog grew through the window, the server turned
    most of the requests away, or the trial was ended early as that was clear.
    """
    turned_away = int((~sample.ok).sum()) > TURNED_AWAY * len(sample.ok)
    return "interrupted" in sample.ended or any(load_flags.overloaded(sample)) or turned_away


def invalid_because(sample: WindowData, limits: tuple[Limit, ...]) -> str:
    """The kinds of flags that make a trial's numbers mean nothing, in words; '' for a trial that
    counts, as an overloaded one does.
    """
    fatal = () if is_overloaded(sample) else pilot_point(sample, limits).fatal
    return ", ".join(FLAG_WORDS[flag.name] for flag in fatal)
