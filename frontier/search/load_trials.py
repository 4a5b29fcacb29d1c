"""Trials of the search for the highest load: what is searched, and what each trial sends and shows.

It also has the sizes of a look and of a window of a proof. A load is what a server is offered: a
rate of arrivals, or requests in flight.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from frontier.core.claim.proof import WINDOWS, pilot_point
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.loads import Rate, SessionRate
from frontier.core.model.trials import Phase
from frontier.core.stats import intervals
from frontier.core.window.window import WindowData

LEAST, MOST = 0.10, 0.90
"""Shares of `top` between which loads are tried. Nearer to it no window of reasonable length
differs from overload."""
LOOK_TAIL = 4
"""Requests beyond the percentile in a look, of a server that is right at its limit."""
LOOK_TURNS, PROOF_TURNS = 10, 40
"""Fewest requests of a look, and of a proof's first WINDOWS windows, per request in flight."""
LOOK_SPELLS = 1
"""Fewest requests of a look per request that arrives while the queue forgets its past."""
SETTLED = 2.0
"""Warm-up, in times in which a queue forgets that it began empty."""


@dataclass(frozen=True, slots=True)
class LoadPolicy:
    """The range of a search: loads below `top`, which is more than the server can take, from
    `start`.

    At most `in_flight` requests are in flight at any load, each about `e2e` seconds long at the
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

    def memory(self, load: float) -> float:
        """Seconds in which a queue forgets its past: the longer, the nearer the load is to the top.

        The relaxation time of a queue with c servers is one service time over c (1 -
        sqrt(utilization))^2 (Morse 1955). How many sessions are open changes no faster than
        sessions end.
        """
        queue = self.e2e / self.in_flight / (1 - math.sqrt(min(load / self.top, MOST))) ** 2
        return max(queue, self.lasting)

    def settled(self, load: float) -> float:
        """Seconds of warm-up at a load, after which the queue has forgotten that it began empty."""
        memory = self.memory(load)
        return max(self.warmup, 0.0 if memory == self.lasting else SETTLED * memory)

    @property
    def unit(self) -> str:
        """What arrives, in a sentence."""
        return (SessionRate if self.lasting else Rate).arrivals


@dataclass(frozen=True, slots=True, eq=False)
class LoadTrial:
    """A finished trial at a load. `overloaded`: it was ended early, as the load was clearly too
    much.
    """

    load: float
    phase: Phase
    requests: int
    data: WindowData
    overloaded: bool = False


LoadHistory = Sequence[LoadTrial]


@dataclass(frozen=True, slots=True)
class LoadAsk:
    """One trial to run next."""

    load: float
    phase: Phase
    requests: int
    warmup: float
    each: float = 1.0

    @property
    def seconds(self) -> float:
        """Seconds that its arrivals take with the warm-up; an arrival brings `each` requests."""
        return self.warmup + self.requests / (self.load * self.each)


@dataclass(frozen=True, slots=True)
class Refused:
    """A load above the answer that was tried, and why it is not the answer."""

    load: float
    reason: str


@dataclass(frozen=True, slots=True)
class LoadDone:
    """The answer: `proven` is the highest load proven; without one, `verdict` says whether no load
    can be.

    `located` is the highest load whose values are within the SLA (no claim), `refused` the lowest
    one above the answer that was tried.
    """

    verdict: Verdict
    reason: str
    proven: float | None = None
    located: float | None = None
    refused: Refused | None = None


# --- sizes


def _independent(limits: Iterable[Limit]) -> int:
    """Fewest independent requests that bound every limited percentile."""
    return max((intervals.needed(p) for limit in limits if (p := limit.of.p) is not None), default=1)


def least_window(policy: LoadPolicy, limits: Iterable[Limit], load: float) -> int:
    """Fewest requests of each window of a proof at a load.

    Waits come in spells: not single requests are independent, but the spells in which the queue
    forgets its past. The first windows hold enough spells that they would be a proof if none had a
    violation.
    """
    spells = _independent(limits) * load * policy.each * policy.memory(load)
    return math.ceil(max(PROOF_TURNS * policy.in_flight, spells) / WINDOWS)


def proof_size(policy: LoadPolicy, limits: Iterable[Limit], load: float) -> int:
    """Requests of a proof at a load, up to its first judgement."""
    return WINDOWS * least_window(policy, limits, load)


def look_size(policy: LoadPolicy, limits: Iterable[Limit], load: float) -> int:
    """Requests of a look: enough that its percentiles are not just the worst request."""
    tails = [LOOK_TAIL / (1 - p) for limit in limits if (p := limit.of.p) is not None]
    spells = LOOK_SPELLS * load * policy.each * policy.memory(load)
    return math.ceil(max([100.0, LOOK_TURNS * policy.in_flight, spells, *tails]) - 1e-6)


def rounded(load: float) -> float:
    """The load rounded to three digits, so that the printed load is the one that was sent."""
    return float(f"{load:.3g}")


def invalid_because(trial: LoadTrial, limits: tuple[Limit, ...]) -> str:
    """The flags that make a trial's numbers mean nothing; '' for a trial that counts, as one ended
    early does.
    """
    return "" if trial.overloaded else ", ".join(flag.name for flag in pilot_point(trial.data, limits).fatal)
