"""Options beside the best forecast: the corner of a full server, and what is proven soonest.

A corner is looked at for a shorter tail. What is proven soonest goes first where time runs out, or
where nothing is proven.
"""

import itertools
import math
from collections.abc import Mapping, Sequence

from frontier.core.claim.proof import TOO_BUSY, WINDOWS
from frontier.core.claim.undecided import CLEARLY_MORE
from frontier.core.claim.verdict import inside, judge
from frontier.core.model.decisions import Verdict
from frontier.core.model.loads import Load
from frontier.search.curves import RUN_TO_RUN
from frontier.search.gaps import between
from frontier.search.place import PREFERRED, State, forecast

APART, NEAR = 1.15, 1.05
"""Settings further apart than the first may have a corner between them; one that seems nearer to
the higher one than the second is looked for in the middle."""
BELOW, LEAST_GROWTH = 1.4, 0.2
"""How throughput grows below a gap is told by a setting this many times lower; it is at least this
power of concurrency."""
MOST_OF_TIME, LIKELY = 1 / 3, 0.5
"""The share of the time that one candidate may take while nothing is proven, unless it is at least
so likely to be proven in the rest."""
STAYS = 0.75
"""Where the server is unsteady, a proof goes on with at least this share of another's chance."""


def corner(state: State, proven: Sequence[Load], listed: Sequence[Load] = ()) -> Load | None:
    """The setting to look at for a better merit than the `proven` ones have; None without one.

    Between two settings throughput may go on as it grew below the lower one, with its tail, until
    it reaches that of the higher one: so it does where a server is full from there on. Above what
    is proven, and above the best setting so far where it is `listed`, only clearly more is looked
    for; and a listed setting that was not seen is looked at first. A setting that was seen once,
    and is no better by less than the difference from run to run, is looked at again.
    """
    named = max((*proven, *(c for c in state.points if c in listed and c < max(proven))), key=state.merit)
    best = state.merit(named)
    tried = {*proven, *(k.load for k in state.candidates)}
    rates = {c: state.rate(c) for c in state.points}
    once = [c for c in state.points if c < max(proven) and c not in tried and state.looks.get(c) == 1]
    hopes = [(hope, c) for c in once if (hope := state.merit(c) * (1 + RUN_TO_RUN) / best - 1) > PREFERRED]
    for low, high in itertools.pairwise(state.points):
        beyond = high > max(proven) or (named in listed and low >= named)
        hope = state.merit(low) * rates[high] / rates[low] / best - 1
        if (beyond and state.value(high) > 0) or hope <= (CLEARLY_MORE if beyond else PREFERRED):
            continue
        c = full_at(rates, low, high)
        if c is not None and (look := _listed_near(c, low, high, listed)) not in state.looks:
            hopes.append((hope, look))
    return max(hopes, default=(0.0, None))[1]


def _listed_near(c: Load, low: Load, high: Load, listed: Sequence[Load]) -> Load:
    """The listed setting between two others that is nearest to one; without any, that one."""
    return min((k for k in listed if low < k < high), key=lambda k: (abs(k - c), k), default=c)


def full_at(rates: Mapping[Load, float], low: Load, high: Load) -> Load | None:
    """Where between two settings a server is full, if throughput goes on as it grew below the lower
    one; None where they are close, or the higher one gives no more. `rates` are the throughputs of
    the measured settings.
    """
    rise = rates[high] / rates[low]
    if rise <= 1 or high - low < 2 or high / low <= APART:
        return None
    before = max((c for c in rates if c * BELOW <= low), default=low)
    grown = math.log(rates[low] / rates[before]) / math.log(low / before) if before < low else 1.0
    c = type(low)(min(high - 1, max(low + 1, round(low * rise ** (1 / min(1.0, max(LEAST_GROWTH, grown)))))))
    return c if c * NEAR <= high else between(low, high)


def _unlucky(state: State, c: Load) -> bool:
    """Whether a candidate is the lowest setting, begun as none was seen within the SLA, and a
    higher one was seen within it since. Its own windows may show that a look had been unlucky.
    """
    return state.candidates[0].load == c == min(state.points, default=0) < (state.edge() or 0)


def is_overtaken(state: State, c: Load, other: Load) -> bool:
    """Whether a candidate that `gives_way` does so to this other setting: a likely one, or where
    the server is unsteady one that is likelier by far.
    """
    chance = forecast(state, other, 1.0).chance
    needed = forecast(state, c, 1.0).chance / STAYS if state.unsteady else LIKELY
    return chance > needed or _unlucky(state, c)


def gives_way(state: State, c: Load, proven: Sequence[Load]) -> bool:
    """Whether a candidate may give way to another, as it is not likely to be proven, or was
    `_unlucky`.

    Where time is short and nothing is proven, one may that had MOST_OF_TIME, or any where the
    server is unsteady. Where a server is slow in episodes each may: they come at every load, and
    only a lower one keeps its limit in them.
    """
    if _unlucky(state, c) or (not proven and state.unsteady):
        return True
    had = state.spent.get(c, 0.0) >= MOST_OF_TIME * (state.elapsed + state.within)
    short = not proven and state.within < math.inf and had
    return (state.slow or short) and forecast(state, c, 1.0).chance < LIKELY


def soonest(state: State, below: float = math.inf) -> Load | None:
    """The setting `below` another that is proven soonest for its worth, by all of its data: these
    are within the SLA, or could be. It was not judged and given up, nor given up as the client was
    busy. None where none fits the time that is left.
    """
    tried = {
        k.load
        for k in state.candidates
        if k.windows >= WINDOWS or k.reason == TOO_BUSY or k.verdict is Verdict.UNPROVEN
    }
    options = []
    for c, point in state.points.items():
        expected = forecast(state, c, state.rate(c))
        seconds = (expected.windows if expected.chance > 0 else WINDOWS) * state.seconds(c)
        possible = c < below and c not in tried and seconds <= state.within
        if possible and judge(point, state.limits).verdict is not Verdict.VIOLATES:
            worth = state.rate(c) / seconds
            options.append((inside(point, state.limits), expected.chance * worth, worth, c))
    return max(options, default=(None,))[-1]
