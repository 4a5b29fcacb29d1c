"""Search: where to measure next, as a pure function of what was measured, so that resuming a sweep replays its history.

Locate, then confirm. On the grid's values and a few cheap probes the search estimates where the SLA is crossed; that
claims nothing. It then ascends towards it on fresh data, each candidate as high as all data so far promise to be
provable (`confirmation`).

What is guaranteed. An ascent goes upwards only and ends at the first candidate not proven, so whatever its length it
can name a concurrency that breaks the SLA only at the first such candidate it meets (fixed-sequence testing, as in
Angelopoulos et al. 2021, "Learn then Test"). There are at most ASCENTS ascents, and at most MAX_BATCHES judgements of a
candidate; they share the error ALPHA equally (Bonferroni). Which candidate comes next may depend on anything seen
before, as each is tested on data of its own. If the SLA is broken at every concurrency above one where it is broken,
the search names one that breaks it with probability at most ALPHA = 5 %, up to the coverage error of the bounds
themselves (2 to 7 % at nominal 5 %, see `stats`). A grid setting that meets by its own data is a claim of its own at
ALPHA, so a sweep that also uses one may err by the sum; for servers that are not monotone each setting's own claim
holds. With several tiers a candidate proven for one is judged for all, and each tier errs with ALPHA plus
MAX_BATCHES * BATCH_ALPHA for every candidate of another tier that breaks it and passes for the lowest that does. What
it comes to is measured in docs/calibration.md.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frontier.decide import operating_point
from frontier.decide.capacity import knee
from frontier.decide.confirmation import (
    ASCENTS,
    BATCH_SIZES,
    MAX_BATCHES,
    History,
    batch_size,
    bulk_name,
    claim_points,
    claim_windows,
    in_order,
    join,
    joined,
    pilot_point,
    standing,
    violation,
)
from frontier.model import Limit, Phase, Point, Shape, Trial, Verdict
from frontier.stats import estimate
from frontier.stats.window import WindowData

__all__ = ["Ask", "Done", "History", "SearchPolicy", "claim_points", "claim_windows", "next_ask", "skip_reason"]

START = 0.10
"""An ascent starts at the highest concurrency whose tail is expected this far (in ln) below its limit, ..."""
REACH = 0.025
"""... and steps to the highest expected this far below; both grow by this much with every candidate given up."""
STRIDE = 1.5
"""A candidate further above the last one proven than this counts as a start."""
FAR = 3.0
"""A violation (in ln) beyond this says no more than this; it also stands for an infinite one."""
STEEP = 3.0
"""A trend that rises faster than this power of concurrency is a cliff."""
NARROW = 0.10
"""Neighbours whose throughputs (in ln) or concurrencies differ by less need no setting between them."""
IMPORTANT = 3.0
"""Weight of a gap that straddles the SLA's limit or touches the knee."""
SKIP_ERRORS, SKIP_TAIL, SKIP_FALL = 0.05, 10.0, 0.05
"""Share of failed requests, times over a latency limit, and loss of throughput that make higher settings pointless."""


@dataclass(frozen=True, slots=True)
class SearchPolicy:
    """What the search may spend: `refine` settings beyond the grid.

    `requests` is the size of a probe; a confirming batch is as large as its proof needs. `top` is the highest
    concurrency asked, `gap` how close (relative) the location is driven. `grid` are the config's settings, `prove`
    those that the user asked to be proven.
    """

    refine: int
    requests: int
    top: int
    gap: float = 0.05
    grid: tuple[int, ...] = ()
    prove: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """One trial to run next, and why. Its window ends with `requests` sent, or after `seconds` where they are given."""

    concurrency: int
    phase: Phase
    requests: int
    reason: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to ask. `located` is the likely limit (no claim), `confirmed` the highest candidate proven."""

    reason: str
    located: int | None = None
    confirmed: int | None = None


def next_ask(
    policy: SearchPolicy, shape: Shape, tiers: Sequence[tuple[str, Sequence[Limit]]], history: History
) -> Ask | Done:
    """The next trial for one (deployment, shape), given all of its finished trials in any order; or Done.

    `tiers` are named SLAs inside the one budget. First every tier is located, then each is ascended to, the one with
    the lowest limit first: what is proven for it serves the looser ones too. Of the extra settings each tier may use an
    equal share and what those before it left; then any tier that still has a use for one, then the frontier. Without
    limits only the frontier is refined. ValueError for trials of another shape.

    Nothing is remembered between calls: after a crash or an interruption the same history gives the same next trial.
    """
    if any(trial.shape != shape for trial, _ in history):
        raise ValueError("the history holds trials of another shape")
    states = [_State.of(policy, tuple(limits), history) for _, limits in tiers]
    aims = [_aim(state) for state in states]
    first = aims[0] if aims else _Aim()
    if not any(state.limits for state in states):
        return _frontier(_State.of(policy, (), history)) or Done("no limit to search for")
    if not any(state.pilot for state in states):
        return _frontier(states[0]) or Done("no valid measurement to start from", first.located)
    order = sorted(range(len(tiers)), key=lambda i: aims[i].located or 0)
    probed = states[0].settings(Phase.LOCATE)
    ends: dict[int, Done] = {}
    for k, i in enumerate(order, 1):
        probe = _locate(states[i].within(math.ceil(policy.refine * k / len(tiers))), aims[i])
        if probe is not None:
            return probe
    shares = [probed + math.ceil((policy.refine - probed) * k / len(tiers)) for k in range(1, len(tiers) + 1)]
    for i, share in [*zip(order, shares, strict=True), *((i, policy.refine) for i in order)]:
        step = _confirm(states[i].within(share), aims[i])
        if isinstance(step, Ask):
            return step
        ends[i] = step
    reasons = [f"{name}: {ends[i].reason}" if len(tiers) > 1 else ends[i].reason for i, (name, _) in enumerate(tiers)]
    return _frontier(states[0]) or Done("; ".join(reasons), first.located, ends[0].confirmed)


# --- what is known


@dataclass(frozen=True, slots=True)
class _State:
    """The history, sorted: `pilot` are the points that locate, `samples` their data, `fresh` the confirming trials."""

    policy: SearchPolicy
    limits: tuple[Limit, ...]
    history: History
    samples: Mapping[int, WindowData]
    pilot: Mapping[int, Point]
    trend: Mapping[int, float]
    fresh: Mapping[int, list[WindowData]]

    @classmethod
    def of(cls, policy: SearchPolicy, limits: tuple[Limit, ...], history: History) -> "_State":
        samples = joined(history, (Phase.GRID, Phase.LOCATE))
        points = {c: pilot_point(sample, limits) for c, sample in samples.items()}
        fresh: dict[int, list[WindowData]] = {}
        for trial, sample in in_order(history, Phase.CONFIRM):
            fresh.setdefault(trial.concurrency, []).append(sample)
        pilot = {c: p for c, p in points.items() if violation(p, limits) is not None}
        return cls(policy, limits, history, samples, pilot, _trend(pilot, limits), fresh)

    def settings(self, *phases: Phase) -> int:
        """How many of the extra settings these phases have used."""
        return len({(t.phase, t.concurrency) for t, _ in self.history if t.phase in phases})

    @property
    def left(self) -> int:
        """Extra settings left."""
        return self.policy.refine - self.settings(Phase.LOCATE, Phase.CONFIRM, Phase.FRONTIER)

    def within(self, refine: int) -> "_State":
        """The same with fewer extra settings."""
        return dataclasses.replace(self, policy=dataclasses.replace(self.policy, refine=refine))

    def batch_size(self, concurrency: int) -> int:
        """Requests of a candidate's first batch, sized from the nearest pilot data."""
        nearest = min(self.pilot, key=lambda c: (abs(math.log(c / concurrency)), c))
        return batch_size(self.samples[nearest], self.limits, concurrency, self.policy.requests)


# --- the trend


def _trend(points: Mapping[int, Point], limits: tuple[Limit, ...]) -> dict[int, float]:
    """Isotonic trend of the violation over concurrency, less noisy than measured; for planning, not for verdicts.

    A p99 of a few hundred requests is noisy, so half of each comes from the setting's own p90 times what the p99 is of
    the p90 in the middle of all settings. Then it is made non-decreasing in concurrency (isotonic regression, weighted
    by requests): one unlucky value would otherwise send the search an octave down.
    """
    usable = {c: p for c, p in sorted(points.items()) if violation(p, limits) is not None}
    if not usable:
        return {}
    worst = dict.fromkeys(usable, -FAR)
    for limit in limits:
        bulk_limit = dataclasses.replace(limit, metric=bulk_name(limit.metric))
        own = {c: violation(p, (limit,)) for c, p in usable.items()}
        bulk = {c: violation(p, (bulk_limit,)) for c, p in usable.items()}
        apart = {c: x - y for c in usable if (x := own[c]) is not None and (y := bulk[c]) is not None and abs(x) < FAR}
        usual = float(np.median(list(apart.values()))) if apart else 0.0
        for c in usable:
            value = own[c] or 0.0
            if c in apart:
                value -= 0.5 * (apart[c] - usual)
            worst[c] = max(worst[c], min(FAR, value))
    from scipy.optimize import isotonic_regression  # slow to import, and not needed to look at a run

    fitted = isotonic_regression(list(worst.values()), weights=[points[c].n for c in worst]).x
    return {c: float(value) for c, value in zip(worst, fitted, strict=True)}


def _trend_at(trend: Mapping[int, float], c: int) -> float:
    """The trend at c, on straight lines in ln c. A cliff is taken to be half way between its ends."""
    measured = sorted(trend)
    above = next((a for a in measured if a >= c), None)
    below = next((b for b in reversed(measured) if b <= c), None)
    if above is None or below is None or above == below:
        nearest = above if above is not None else below
        return FAR if nearest is None else trend[nearest]
    span = math.log(above / below)
    share = math.log(c / below) / span
    if (trend[above] - trend[below]) / span > STEEP:
        return trend[above] if share > 0.5 else trend[below]
    return trend[below] + share * (trend[above] - trend[below])


# --- locate


@dataclass(frozen=True, slots=True)
class _Aim:
    """What the values say: `low` is worth running, `high` is the first above it that breaks the SLA, if any does.

    `located` is the likely limit, or `low` itself where more concurrency would not be worth its tail.
    """

    low: int | None = None
    high: int | None = None
    located: int | None = None


def _aim(state: _State) -> _Aim:
    if not state.pilot or not state.limits:
        return _Aim()
    inside = [c for c in state.pilot if state.trend[c] <= 0]
    high = min((c for c in state.pilot if state.trend[c] > 0), default=None)
    if not inside:
        return _Aim(high=high)
    low, top = _worthwhile(state, inside), max(inside)
    if high is None or low != top or _flat(state, low, high):
        return _Aim(low, None, low)
    span, share = math.log(high / low), _crossing(state, low, high)
    if (state.trend[high] - state.trend[low]) / span > STEEP:
        share = min(share, 0.5)  # over a cliff a straight line points too high
    return _Aim(low, high, max(low, min(high - 1, math.floor(low * math.exp(share * span) + 1e-9))))


def _worthwhile(state: _State, inside: Sequence[int]) -> int:
    """The setting among these that the marginal-gain rule would run, by values alone."""
    never_broken = [dataclasses.replace(limit, promise=limit.of.worst_possible) for limit in state.limits]
    decision = operating_point.solve([state.pilot[c] for c in inside], never_broken, point_estimates=True)
    return max(inside) if decision.concurrency is None else decision.concurrency


def _crossing(state: _State, low: int, high: int) -> float:
    """Where in ln c between two settings a straight line crosses the limit, 0..1."""
    below, above = state.trend[low], state.trend[high]
    return -below / (above - below)


def _flat(state: _State, low: int, high: int) -> bool:
    """Throughput has stopped growing before the limit: between the two there is nothing to win."""
    rate = {c: p.metrics["output_throughput"].value for c, p in state.pilot.items() if "output_throughput" in p.metrics}
    before = max((c for c in rate if c < low), default=None)
    if low not in rate or high not in rate or before is None:
        return False
    noise = math.exp(operating_point.NOISE)
    return rate[high] <= rate[low] * noise and rate[low] <= rate[before] * noise


def _locate(state: _State, aim: _Aim) -> Ask | None:
    """A cheap probe between the last setting inside and the first outside, if candidates can be afforded after it."""
    if state.fresh or state.left < 1:
        return None
    requests = state.policy.requests
    if aim.low is None:
        lowest = min(state.samples)
        if aim.high is None or aim.high != lowest or lowest == 1:
            return None
        return Ask(max(1, lowest // 4), Phase.LOCATE, requests, f"c={lowest}, the lowest measured, breaks the SLA")
    if aim.high is None or state.settings(Phase.LOCATE) >= _probes(state.policy.refine):
        return None
    low, high = aim.low, aim.high
    if high - low <= 1 or (high - low) / high <= state.policy.gap:
        return None
    share = min(0.75, max(0.25, _crossing(state, low, high)))
    probe = min(high - 1, max(low + 1, round(low * math.exp(share * math.log(high / low)))))
    if probe in state.samples:  # measured, and not valid
        return None
    return Ask(probe, Phase.LOCATE, requests, f"c={low} is inside the SLA and c={high} is not; looking between them")


def _probes(refine: int) -> int:
    """How many of the extra settings may go into locating: none of one, then a third or so, at most four."""
    return min(4, (refine + 1) // 3) if refine > 1 else 0


# --- confirm


def _confirm(state: _State, aim: _Aim) -> Ask | Done:
    """The next batch of an ascent, or how the ascents ended."""
    if aim.located is None:
        return Done("no measured setting is inside the SLA: there is nothing to confirm")
    standings = {c: standing(batches, state.limits, state.batch_size(c)) for c, batches in sorted(state.fresh.items())}
    confirmed = max((c for c, (verdict, _) in standings.items() if verdict is Verdict.MEETS), default=None)
    given_up = {c: why for c, (verdict, why) in standings.items() if verdict is Verdict.VIOLATES}
    for c, (verdict, _) in standings.items():
        if verdict is Verdict.UNPROVEN and c < min(given_up, default=math.inf):  # else asked for a looser tier
            return _batch(state, aim, c)
    grid = [pilot_point(s, state.limits) for s in joined(state.history, (Phase.GRID,)).values()]
    by_grid = operating_point.solve(grid, state.limits).last_pass if grid else None
    proven = max((c for c in (confirmed, by_grid) if c is not None), default=None)
    candidate = _candidate(state, aim, proven, sorted(given_up))
    if candidate is not None and len(given_up) < ASCENTS and state.left >= 1:
        return _batch(state, aim, candidate)
    reason = f"c={confirmed} is proven on fresh data" if confirmed is not None else "nothing is proven on fresh data"
    if given_up:
        lowest = min(given_up)
        reason += f"; c={lowest} is not: {given_up[lowest]}"
    elif candidate is not None:
        reason += "; no extra settings are left"
    elif confirmed is None and by_grid is not None:
        reason = f"c={by_grid} is proven by the grid's own data"
    elif confirmed is None:
        reason += ": every setting inside the SLA is too close to its limit"
    return Done(reason, aim.located, confirmed)


def _batch(state: _State, aim: _Aim, c: int) -> Ask:
    number = len(state.fresh.get(c, []))
    reason = f"the limit is near c={aim.located}; proving c={c} on fresh data, batch {number + 1} of {MAX_BATCHES}"
    return Ask(c, Phase.CONFIRM, state.batch_size(c) * BATCH_SIZES[number], reason)


def _candidate(state: _State, aim: _Aim, proven: int | None, failed: Sequence[int]) -> int | None:
    """The next concurrency to prove: above what is proven, below what was given up, as high as the data promise."""
    assert aim.low is not None
    known = dict(state.pilot)
    for c, batches in state.fresh.items():
        fresh = pilot_point(join(tuple(batches)), state.limits)
        if fresh.valid:
            known[c] = fresh
    trend = _trend(known, state.limits)
    most = min(state.policy.top, aim.low if aim.high is None else aim.high - 1)
    if failed:
        most = min(most, failed[0] - 1 if proven is not None else math.floor(0.85 * failed[0]))
    least = 1 if proven is None else proven + 1
    near = 0 if proven is None else most if aim.high is None else math.floor(STRIDE * proven)
    more = REACH * len(failed)
    expected = {c: _trend_at(trend, c) for c in range(least, most + 1)}
    candidate = max((c for c, x in expected.items() if x <= -more - (REACH if c <= near else START)), default=None)
    if candidate is None and proven is None:  # nothing is comfortable: then what is least tight
        candidate = max((c for c, x in expected.items() if x <= -REACH), default=None)
    if candidate is None or (proven is not None and (candidate - proven) / candidate < state.policy.gap):
        return None
    return candidate


# --- the frontier


def _frontier(state: _State) -> Ask | None:
    """A setting where the frontier is least known, while settings are left."""
    if state.left < 1:
        return None
    points = {c: pilot_point(sample, state.limits) for c, sample in joined(state.history, tuple(Phase)).items()}
    gap = _widest_gap(points, state.limits)
    if gap is None:
        return None
    low, high = gap
    reason = f"the frontier is widest between c={low} and c={high}"
    return Ask(_between(low, high), Phase.FRONTIER, state.policy.requests, reason)


def _widest_gap(points: Mapping[int, Point], limits: tuple[Limit, ...]) -> tuple[int, int] | None:
    """The neighbours whose throughputs differ most, weighted where it matters; None when all are close enough.

    Between neighbours the frontier is known to lie between their throughputs and no closer, so this is its bracket.
    A gap whose middle was measured already (and was not valid) is passed over.
    """
    rates = {
        c: p.metrics["output_throughput"].value
        for c, p in points.items()
        if p.valid and "output_throughput" in p.metrics
    }
    measured = sorted(c for c, rate in rates.items() if rate > 0)
    bend = knee([points[c] for c in measured])
    widest: tuple[float, int, int] | None = None
    for low, high in itertools.pairwise(measured):
        rise = abs(math.log(rates[high] / rates[low]))
        if high - low <= 1 or (high - low) / high <= NARROW or rise <= NARROW or _between(low, high) in points:
            continue
        a, b = violation(points[low], limits), violation(points[high], limits)
        crossing = bool(limits) and a is not None and b is not None and (a <= 0) != (b <= 0)
        width = rise * (IMPORTANT if crossing or bend in (low, high) else 1.0)
        if widest is None or width > widest[0]:
            widest = (width, low, high)
    return None if widest is None else widest[1:]


def _between(low: int, high: int) -> int:
    """The geometric mean, strictly between."""
    return min(high - 1, max(low + 1, round(math.sqrt(low * high))))


# --- what need not be run


def skip_reason(trial: Trial, history: History, limits: Sequence[Limit]) -> str | None:
    """Why a grid trial need not be run, given what lower concurrencies of its shape showed; None: run it.

    A setting is skipped, and reported as skipped, when the highest lower one failed more than 5 % of its requests or
    was more than ten times over a latency limit, or when throughput fell by more than 5 % below the best at two in a
    row: bounds count, not values, and one fall may be noise.
    """
    below = {c: s for c, s in joined(history, (Phase.GRID,)).items() if c < trial.concurrency}
    if not below:
        return None
    last = max(below)
    errors = estimate.estimate(below[last], "error_rate")
    if errors is not None and errors.lower > SKIP_ERRORS:
        return f"c={last} already failed {errors.value:.0%} of its requests"
    for limit in limits:
        m = limit.of
        tail = estimate.estimate(below[last], limit.metric, limits=tuple(limits)) if m.unit.value == "s" else None
        if tail is not None and tail.lower > SKIP_TAIL * limit.promise:
            return f"{m.label} at c={last} is already {m.format(tail.value)}, over ten times its limit"
    rates = [estimate.estimate(below[c], "output_throughput") for c in sorted(below)]
    known = [r for r in rates if r is not None]
    if len(known) >= 3 and all(r.high < (1 - SKIP_FALL) * max(k.value for k in known) for r in known[-2:]):
        return f"throughput has fallen at two settings in a row, up to c={last}"
    return None
