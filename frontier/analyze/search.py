"""Where to measure next, as a pure function of what was measured: resuming a sweep is replaying its history.

Locate, then confirm. On the grid's values and a few cheap probes the search finds where the SLA is crossed; that
location is a guess and claims nothing. It then climbs a short ladder of concurrencies below it on fresh data only.

What is guaranteed. Each rung is tested at the full error alpha and the climb stops at the first rung not proven
(fixed-sequence testing, as in Angelopoulos et al. 2021, "Learn then Test"); the looks at one rung share alpha equally
(Bonferroni), their sizes being fixed before the first. The pilot data that chose the rungs are never part of the claim.
If the SLA is broken at every concurrency above one where it is broken, a rung that breaks it is named with probability
at most alpha, up to the coverage error of the bounds themselves (`stats`: 2-7 % at nominal 5 %). A grid setting that
meets by its own data is a claim of its own at alpha, so a sweep that uses both may err by at most the sum; for servers
that are not monotone only each setting's own claim holds. benchmarks/calibration measures what that comes to.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frontier.analyze import sla, stats, window
from frontier.analyze.claims import (
    ALPHA,
    LOOKS,
    History,
    claim_point,
    claim_points,
    claim_samples,
    excess,
    in_order,
    joined,
    pilot_point,
    skip_reason,
)
from frontier.analyze.sample import Sample
from frontier.metrics import metric
from frontier.model import Limit, Phase, Point, Shape, Verdict

__all__ = [
    "Ask", "Done", "History", "SearchPolicy", "claim_points", "claim_samples", "next_ask", "policy", "skip_reason",
]  # fmt: skip

RUNGS = (0.7, 0.8, 0.9, 1.0)
"""The ladder, as shares of the located limit. The first is cheap to prove; the last five percent rarely are."""
COMFORTABLE = 0.2
"""A rung whose tail is expected this much (in ln) below its limit can start the ladder: lower ones add nothing."""
FRONTIER_GAP = 0.10
"""Neighbours whose throughputs (in ln) or concurrencies differ by less need no setting between them."""
DEPENDENCE_CAP = 4.0
"""Most requests one independent request is taken for when a look is sized: a short pilot's inflation is noisy."""
FORECAST_SLACK = 1.5
"""A rung is given up early when deciding it looks this many times dearer than all of its looks."""
AFFORDABLE = 0.04
"""Headroom (in ln) under which a rung is not tried: proving the last few percent takes days, not requests."""
_STEEP = 3.0


@dataclass(frozen=True, slots=True)
class SearchPolicy:
    """What the search may spend: `refine` settings beyond the grid, and optionally requests and seconds in windows.

    `requests` is the size of a probe; a confirming look is as large as its proof needs. `gap` is how close (relative)
    the location is driven, `top` the highest concurrency asked.
    """

    refine: int
    requests: int = 300
    top: int = 1 << 20
    gap: float = 0.05
    max_requests: int | None = None
    max_time: float | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """One trial to run next, and why."""

    concurrency: int
    phase: Phase
    requests: int
    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to ask. `located` is the likely limit (no claim), `confirmed` the highest rung proven afresh."""

    reason: str
    located: int | None = None
    confirmed: int | None = None


def policy(refine: int, requests: int, max_concurrency: int) -> SearchPolicy:
    """The policy of a sweep's config."""
    return SearchPolicy(refine=refine, requests=requests, top=max_concurrency)


def next_ask(policy: SearchPolicy, shape: Shape, limits: Sequence[Limit], history: History) -> Ask | Done:
    """The next trial for one (deployment, shape), given all of its finished trials in any order; or Done.

    Without limits only the frontier is refined. ValueError for trials of another shape.
    """
    if any(trial.shape != shape for trial, _ in history):
        raise ValueError("the history holds trials of another shape")
    state = _State.of(policy, tuple(limits), history)
    aim = _aim(state)
    confirmed = None
    if limits and state.pilot:
        probe = _locate(state, aim)
        if probe is not None:
            return state.afforded(probe)
        ladder = _confirm(state, aim)
        if isinstance(ladder, Ask):
            return state.afforded(ladder)
        confirmed = ladder.confirmed
        reason = ladder.reason
    else:
        reason = "no limit to search for" if state.pilot else "no valid measurement to start from"
    further = _frontier(state)
    if further is not None:
        asked = state.afforded(further)
        if isinstance(asked, Ask):
            return asked
    return Done(reason, aim.located, confirmed)


# --- what is known


@dataclass(frozen=True, slots=True)
class _State:
    """The history, sorted: `pilot` are the points that locate, `samples` their data, `fresh` the confirming trials."""

    policy: SearchPolicy
    limits: tuple[Limit, ...]
    history: History
    samples: Mapping[int, Sample]
    pilot: Mapping[int, Point]
    fresh: Mapping[int, list[Sample]]

    @classmethod
    def of(cls, policy: SearchPolicy, limits: tuple[Limit, ...], history: History) -> "_State":
        samples = joined(history, (Phase.GRID, Phase.LOCATE))
        points = {c: pilot_point(sample, limits) for c, sample in samples.items()}
        pilot = {c: p for c, p in points.items() if excess(p, limits) is not None}
        fresh: dict[int, list[Sample]] = {}
        for trial, sample in in_order(history, Phase.CONFIRM):
            fresh.setdefault(trial.concurrency, []).append(sample)
        return cls(policy, limits, history, samples, pilot, fresh)

    def settings(self, *phases: Phase) -> int:
        """How many of the extra settings these phases have used."""
        return len({(t.phase, t.concurrency) for t, _ in self.history if t.phase in phases})

    @property
    def left(self) -> int:
        """Extra settings left."""
        return self.policy.refine - self.settings(Phase.LOCATE, Phase.CONFIRM, Phase.FRONTIER)

    def excess(self, concurrency: int) -> float:
        """ln of the worst metric over its limit at a piloted setting."""
        found = excess(self.pilot[concurrency], self.limits)
        assert found is not None
        return found

    def expected_excess(self, concurrency: int) -> float:
        """The same between settings, on a line through the neighbours in ln c: for planning, never for a claim."""
        at = sorted(self.pilot)
        big = 1e3  # stands for an infinite excess, which has no line through it
        lines = [min(big, max(-big, self.excess(c))) for c in at]
        return float(np.interp(math.log(concurrency), np.log(at), lines))

    def afforded(self, ask: Ask) -> Ask | Done:
        """The ask, unless the request or time budget has no room for it."""
        extra = [s for t, s in self.history if t.phase is not Phase.GRID]
        p = self.policy
        if p.max_requests is not None and sum(s.n for s in extra) + ask.requests > p.max_requests:
            return Done(f"the budget of {p.max_requests:,} extra requests has no room for {ask.requests:,} more")
        if p.max_time is not None:
            rates = {c: s.n / max(1e-9, float((s.ends - s.starts).sum())) for c, s in self.samples.items()}
            at = sorted(rates)
            rate = float(np.interp(ask.concurrency, at, [rates[c] for c in at])) if at else math.inf
            used = sum(float((s.ends - s.starts).sum()) for s in extra)
            if used + ask.requests / max(rate, 1e-9) > p.max_time:
                return Done(f"the time budget has no room for {ask.requests:,} requests at c={ask.concurrency}")
        return ask


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
    decision = sla.solve(list(state.pilot.values()), state.limits, point_estimates=True)
    low, high = decision.concurrency, decision.first_fail
    if low is None:
        return _Aim(high=high)
    if high is None or decision.last_pass != low or _flat(state, low, high):
        return _Aim(low, None, low)
    below, above = state.excess(low), state.excess(high)
    span = math.log(high / low)
    share = -below / (above - below) if math.isfinite(above) and math.isfinite(below) else 0.5
    if not math.isfinite(above) or (above - below) / span > _STEEP:
        share = min(share, 0.5)  # over a cliff a straight line points too high
    return _Aim(low, high, max(low, min(high - 1, math.floor(low * math.exp(share * span) + 1e-9))))


def _flat(state: _State, low: int, high: int) -> bool:
    """Throughput has stopped growing before the limit: between the two there is nothing to win."""
    rate = {c: p.metrics["output_throughput"].value for c, p in state.pilot.items() if "output_throughput" in p.metrics}
    before = max((c for c in rate if c < low), default=None)
    if low not in rate or high not in rate or before is None:
        return False
    best = rate[low] * math.exp(sla.NOISE)
    return rate[high] <= best and rate[low] <= rate[before] * math.exp(sla.NOISE)


def _locate(state: _State, aim: _Aim) -> Ask | None:
    """A cheap probe between the last setting inside and the first outside, if rungs can be afforded after it."""
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
    below, above, span = state.excess(low), state.excess(high), math.log(high / low)
    share = -below / (above - below) if math.isfinite(above) and math.isfinite(below) else 0.5
    middle = low * math.exp(min(0.75, max(0.25, share)) * span)
    at = min(high - 1, max(low + 1, round(middle)))
    return Ask(at, Phase.LOCATE, requests, f"c={low} is inside the SLA and c={high} is not; looking between them")


def _probes(refine: int) -> int:
    """How many of the extra settings may go into locating: none of one, then a third or so, at most four."""
    return min(4, (refine + 1) // 3) if refine > 1 else 0


# --- confirm


def _rungs(state: _State, aim: _Aim) -> list[int]:
    """The ladder: ascending, above what the grid's own data prove. It depends on the pilot data alone."""
    if aim.located is None:
        return []
    grid = [pilot_point(s, state.limits) for s in joined(state.history, (Phase.GRID,)).values()]
    proven = sla.solve(grid, state.limits).last_pass if grid else None
    count = state.policy.refine - state.settings(Phase.LOCATE)
    ladder = sorted({max(1, round(aim.located * share)) for share in RUNGS})
    start = max((i for i, c in enumerate(ladder) if state.expected_excess(c) <= -COMFORTABLE), default=0)
    ladder = [c for c in ladder[start:] if proven is None or c > proven]
    if proven is not None and ladder and (ladder[-1] - proven) / ladder[-1] <= state.policy.gap:
        return []
    if len(ladder) <= count:
        return ladder
    return ladder[:1] if count == 1 else [ladder[0], *ladder[-count:-1]] if count > 1 else []


def _confirm(state: _State, aim: _Aim) -> Ask | Done:
    """The next look of the ladder, or how the climb ended."""
    if aim.located is None:
        return Done("no measured setting is inside the SLA: there is nothing to confirm")
    confirmed: int | None = None
    rungs = _rungs(state, aim)
    for c in rungs:
        looks = state.fresh.get(c, [])
        if confirmed is not None and not looks and _hopeless(state, confirmed, c):
            return Done(
                f"c={confirmed} is proven on fresh data; c={c} would be too close to decide", aim.located, confirmed
            )
        standing, why = _standing(state, looks)
        if standing is Verdict.MEETS:
            confirmed = c
            continue
        if standing is Verdict.UNPROVEN:
            if not looks and state.left < 1:
                return Done("no extra settings are left", aim.located, confirmed)
            reason = f"the limit is near c={aim.located}; proving c={c} on fresh data, look {len(looks) + 1} of {LOOKS}"
            return Ask(c, Phase.CONFIRM, _look_size(state, c), reason)
        proven = f"c={confirmed} is proven on fresh data, " if confirmed is not None else ""
        return Done(f"{proven}c={c} is not: {why}", aim.located, confirmed)
    if confirmed is not None:
        return Done(f"c={confirmed} is proven on fresh data", aim.located, confirmed)
    return Done("the grid's own data decide" if not rungs else "no extra settings are left", aim.located)


def _standing(state: _State, looks: Sequence[Sample]) -> tuple[Verdict, str]:
    """MEETS (proven), UNPROVEN (look again), or VIOLATES (give the rung up) with the reason."""
    if not looks:
        return Verdict.UNPROVEN, ""
    point = claim_point(window.join(looks), state.limits, names=())
    judged = sla.judge(point, state.limits, alpha=ALPHA / LOOKS)
    over = excess(point, state.limits)
    if judged.verdict is Verdict.MEETS:
        return Verdict.MEETS, ""
    if not point.valid:
        return Verdict.VIOLATES, "its measurement is not valid: " + ", ".join(f.name for f in point.flags if f.fatal)
    if judged.verdict is Verdict.VIOLATES or over is None or over > 0:
        return Verdict.VIOLATES, f"{judged.binding} is over its limit"
    size = max(s.n for s in looks)
    if len(looks) >= LOOKS or judged.need is None or judged.need > FORECAST_SLACK * LOOKS * size:
        return Verdict.VIOLATES, f"{judged.binding} is too close to its limit for {LOOKS * size:,} requests to decide"
    return Verdict.UNPROVEN, ""


def _hopeless(state: _State, confirmed: int, further: int) -> bool:
    """From the proven rung's fresh data and the pilot's slope, the next rung leaves too little headroom to be proven.

    Stopping a climb early costs throughput, never the guarantee.
    """
    here = excess(pilot_point(window.join(state.fresh[confirmed]), state.limits), state.limits)
    if here is None or math.isinf(here):
        return False
    return here + state.expected_excess(further) - state.expected_excess(confirmed) > -AFFORDABLE


def _look_size(state: _State, concurrency: int) -> int:
    """Requests of one look: the first should be able to prove the rung with one violation seen.

    Sized from the nearest pilot data, so that every look's size is fixed before the rung's first.
    """
    nearest = min(state.pilot, key=lambda c: (abs(math.log(c / concurrency)), c))
    sample, size = state.samples[nearest], state.policy.requests
    for limit in state.limits:
        m = metric(limit.metric)
        if m.p is None:
            continue
        values = {"ttft": sample.ttft, "tpot": sample.tpot, "e2e": sample.e2e}.get(m.quantity or "", sample.e2e)
        values = values[~np.isnan(values)]
        worth = min(DEPENDENCE_CAP, len(values) / max(1.0, stats.n_eff(values, m.p))) if len(values) else 1.0
        wanted = math.ceil(worth * stats.needed(m.p, 1 - ALPHA / LOOKS, violations=1))
        size = max(size, wanted, stats.floor(m.p, concurrency))
    return size


# --- the frontier


def _frontier(state: _State) -> Ask | None:
    """A setting at the geometric mean of the neighbours whose throughputs differ most, weighted where it matters."""
    if state.left < 1:
        return None
    points = {c: pilot_point(s, state.limits) for c, s in joined(state.history, tuple(Phase)).items()}
    usable = {
        c: p
        for c, p in points.items()
        if p.valid and "output_throughput" in p.metrics and p.metrics["output_throughput"].value > 0
    }
    at = sorted(usable)
    knee = _power_peak(usable)
    best: tuple[float, int, int] | None = None
    for low, high in itertools.pairwise(at):
        if high - low <= 1 or (high - low) / high <= FRONTIER_GAP:
            continue
        rise = abs(
            math.log(usable[high].metrics["output_throughput"].value / usable[low].metrics["output_throughput"].value)
        )
        a, b = excess(usable[low], state.limits), excess(usable[high], state.limits)
        crossing = bool(state.limits) and a is not None and b is not None and (a <= 0) != (b <= 0)
        width = rise * (3 if crossing or knee in (low, high) else 1)
        if rise > FRONTIER_GAP and (best is None or width > best[0]):
            best = (width, low, high)
    if best is None:
        return None
    _, low, high = best
    middle = min(high - 1, max(low + 1, round(math.sqrt(low * high))))
    reason = f"the frontier is widest between c={low} and c={high}"
    return Ask(middle, Phase.FRONTIER, state.policy.requests, reason)


def _power_peak(points: Mapping[int, Point]) -> int | None:
    """The setting of most throughput per unit of latency (Kleinrock's power): where the curve bends, roughly."""
    power = {
        c: p.metrics["request_throughput"].value / p.metrics["mean_e2e"].value
        for c, p in points.items()
        if "request_throughput" in p.metrics and "mean_e2e" in p.metrics and p.metrics["mean_e2e"].value > 0
    }
    return max(power, key=lambda c: power[c]) if power else None
