"""Where to measure next, as a pure function of what was measured: resuming a sweep is replaying its history.

Locate, then confirm. On the grid's values and a few cheap probes the search guesses where the SLA is crossed; a guess
claims nothing. It then climbs towards it on fresh data, each rung as high as all data so far promise to be provable.

What is guaranteed. A climb ascends and ends at the first rung not proven, so whatever its length it can name a rung
that breaks the SLA only at the first such rung it meets (fixed-sequence testing, as in Angelopoulos et al. 2021,
"Learn then Test"). There are at most CHAINS climbs, and at most LOOKS looks at a rung, their sizes fixed before the
first; they share the error ALPHA equally (Bonferroni). Which rung comes next may depend on anything seen before, as
each is tested on data of its own. If the SLA is broken at every concurrency above one where it is broken, the search
names one that breaks it with probability at most ALPHA = 5 %, up to the coverage error of the bounds themselves (2 to
7 % at nominal 5 %, see `stats`). A grid setting that meets by its own data is a claim of its own at ALPHA, so a sweep
that also uses one may err by the sum; for servers that are not monotone each setting's own claim holds. With several
tiers a rung proven for one is judged for all, and each tier errs with ALPHA plus LOOKS * RUNG_ALPHA for every rung of
another tier that breaks it and passes for the lowest that does. What it comes to is measured in docs/calibration.md.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frontier.decide import operating_point
from frontier.decide.confirmation import (
    CHAINS,
    LOOK_SIZES,
    LOOKS,
    RUNG_ALPHA,
    STEEP,
    History,
    between,
    claim_points,
    claim_samples,
    excess,
    expected,
    in_order,
    joined,
    joined_looks,
    pilot_point,
    rung_point,
    skip_reason,
    smoothed,
    widest_gap,
)
from frontier.decide.verdict import judge
from frontier.metrics import claim_floor, metric
from frontier.model import Limit, Phase, Point, Shape, Verdict
from frontier.stats import intervals
from frontier.stats.window import Sample

__all__ = [
    "Ask", "Done", "History", "SearchPolicy", "claim_points", "claim_samples", "next_ask", "next_ask_of_tiers",
    "policy", "skip_reason",
]  # fmt: skip

START = 0.10
"""A climb starts at the highest concurrency whose tail is expected this far (in ln) below its limit, ..."""
REACH = 0.025
"""... and steps to the highest expected this far below; both grow by this much with every rung given up."""
STRIDE = 1.5
"""A rung further above the last one proven than this counts as a start."""
DEPENDENCE_CAP = 4.0
"""Most requests one independent request is taken for when a look is sized: a short pilot's inflation is noisy."""
FORECAST_SLACK = 3.0
"""A rung is given up early when deciding it looks this many times dearer than all of its looks: forecasts are noisy."""
OVER = 0.03
"""A rung whose value is this much (in ln) over its limit after a look is not looked at again."""


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
    return next_ask_of_tiers(policy, shape, [("", limits)], history)


def next_ask_of_tiers(
    policy: SearchPolicy, shape: Shape, tiers: Sequence[tuple[str, Sequence[Limit]]], history: History
) -> Ask | Done:
    """As `next_ask`, for several named SLAs inside the one budget.

    First every tier is located, then each is climbed to, the one with the lowest limit first: what is proven for it
    serves the looser ones too. Of the extra settings each tier may use an equal share and what those before it left;
    then whoever still has a use for one, then the frontier.
    """
    if any(trial.shape != shape for trial, _ in history):
        raise ValueError("the history holds trials of another shape")
    states = [_State.of(policy, tuple(limits), history) for _, limits in tiers]
    aims = [_aim(state) for state in states]
    first = aims[0] if aims else _Aim()
    if not any(state.limits for state in states):
        return _fill(_State.of(policy, (), history), Done("no limit to search for"))
    if not any(state.pilot for state in states):
        return _fill(states[0], Done("no valid measurement to start from", first.located))
    order = sorted(range(len(tiers)), key=lambda i: aims[i].located or 0)
    probed = states[0].settings(Phase.LOCATE)
    ends: dict[int, Done] = {}
    for k, i in enumerate(order, 1):
        state = states[i].within(math.ceil(policy.refine * k / len(tiers)))
        probe = _locate(state, aims[i])
        if probe is not None:
            return state.afforded(probe)
    shares = [probed + math.ceil((policy.refine - probed) * k / len(tiers)) for k in range(1, len(tiers) + 1)]
    for i, share in [*zip(order, shares, strict=True), *((i, policy.refine) for i in order)]:
        state = states[i].within(share)
        climb = _confirm(state, aims[i])
        if isinstance(climb, Ask):
            return state.afforded(climb)
        ends[i] = climb
    reasons = [f"{name}: {ends[i].reason}" if len(tiers) > 1 else ends[i].reason for i, (name, _) in enumerate(tiers)]
    return _fill(states[0], Done("; ".join(reasons), first.located, ends[0].confirmed))


def _fill(state: "_State", done: Done) -> Ask | Done:
    """What is left goes to the frontier."""
    further = _frontier(state)
    asked = None if further is None else state.afforded(further)
    return asked if isinstance(asked, Ask) else done


# --- what is known


@dataclass(frozen=True, slots=True)
class _State:
    """The history, sorted: `pilot` are the points that locate, `samples` their data, `fresh` the confirming trials."""

    policy: SearchPolicy
    limits: tuple[Limit, ...]
    history: History
    samples: Mapping[int, Sample]
    pilot: Mapping[int, Point]
    smooth: Mapping[int, float]
    fresh: Mapping[int, list[Sample]]

    @classmethod
    def of(cls, policy: SearchPolicy, limits: tuple[Limit, ...], history: History) -> "_State":
        samples = joined(history, (Phase.GRID, Phase.LOCATE))
        points = {c: pilot_point(sample, limits) for c, sample in samples.items()}
        fresh: dict[int, list[Sample]] = {}
        for trial, sample in in_order(history, Phase.CONFIRM):
            fresh.setdefault(trial.concurrency, []).append(sample)
        pilot = {c: p for c, p in points.items() if excess(p, limits) is not None}
        return cls(policy, limits, history, samples, pilot, smoothed(pilot, limits), fresh)

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
    inside = [c for c in state.pilot if state.smooth[c] <= 0]
    high = min((c for c in state.pilot if state.smooth[c] > 0), default=None)
    if not inside:
        return _Aim(high=high)
    low, top = _worthwhile(state, inside), max(inside)
    if high is None or low != top or _flat(state, low, high):
        return _Aim(low, None, low)
    span, share = math.log(high / low), _share(state, low, high)
    if (state.smooth[high] - state.smooth[low]) / span > STEEP:
        share = min(share, 0.5)  # over a cliff a straight line points too high
    return _Aim(low, high, max(low, min(high - 1, math.floor(low * math.exp(share * span) + 1e-9))))


def _worthwhile(state: _State, inside: Sequence[int]) -> int:
    """The setting among these that the marginal-gain rule would run, by values alone."""
    open_limits = [
        dataclasses.replace(limit, promise=math.inf if metric(limit.metric).better == "lower" else -math.inf)
        for limit in state.limits
    ]
    decision = operating_point.solve([state.pilot[c] for c in inside], open_limits, point_estimates=True)
    return max(inside) if decision.concurrency is None else decision.concurrency


def _share(state: _State, low: int, high: int) -> float:
    """Where in ln c between two settings a straight line crosses the limit, 0..1."""
    below, above = state.smooth[low], state.smooth[high]
    return -below / (above - below)


def _flat(state: _State, low: int, high: int) -> bool:
    """Throughput has stopped growing before the limit: between the two there is nothing to win."""
    rate = {c: p.metrics["output_throughput"].value for c, p in state.pilot.items() if "output_throughput" in p.metrics}
    before = max((c for c in rate if c < low), default=None)
    if low not in rate or high not in rate or before is None:
        return False
    best = rate[low] * math.exp(operating_point.NOISE)
    return rate[high] <= best and rate[low] <= rate[before] * math.exp(operating_point.NOISE)


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
    middle = low * math.exp(min(0.75, max(0.25, _share(state, low, high))) * math.log(high / low))
    at = min(high - 1, max(low + 1, round(middle)))
    if at in state.samples:  # measured, and not valid
        return None
    return Ask(at, Phase.LOCATE, requests, f"c={low} is inside the SLA and c={high} is not; looking between them")


def _probes(refine: int) -> int:
    """How many of the extra settings may go into locating: none of one, then a third or so, at most four."""
    return min(4, (refine + 1) // 3) if refine > 1 else 0


# --- confirm


def _confirm(state: _State, aim: _Aim) -> Ask | Done:
    """The next look of a climb, or how the climbing ended."""
    if aim.located is None:
        return Done("no measured setting is inside the SLA: there is nothing to confirm")
    standings = {c: _standing(state, looks, _look_size(state, c)) for c, looks in sorted(state.fresh.items())}
    confirmed = max((c for c, (verdict, _) in standings.items() if verdict is Verdict.MEETS), default=None)
    given_up = {c: why for c, (verdict, why) in standings.items() if verdict is Verdict.VIOLATES}
    for c, (verdict, _) in standings.items():
        if verdict is Verdict.UNPROVEN and c < min(given_up, default=math.inf):  # else asked for a looser tier
            return _look(state, aim, c)
    grid = [pilot_point(s, state.limits) for s in joined(state.history, (Phase.GRID,)).values()]
    by_grid = operating_point.solve(grid, state.limits).last_pass if grid else None
    proven = max((c for c in (confirmed, by_grid) if c is not None), default=None)
    rung = _rung(state, aim, proven, sorted(given_up))
    if rung is not None and len(given_up) < CHAINS and state.left >= 1:
        return _look(state, aim, rung)
    said = f"c={confirmed} is proven on fresh data" if confirmed is not None else "nothing is proven on fresh data"
    if given_up:
        lowest = min(given_up)
        said += f"; c={lowest} is not: {given_up[lowest]}"
    elif rung is None:
        if confirmed is None and by_grid is not None:
            said = f"c={by_grid} is proven by the grid's own data"
        elif confirmed is None:
            said += ": every setting inside the SLA is too close to its limit"
    else:
        said += "; no extra settings are left"
    return Done(said, aim.located, confirmed)


def _look(state: _State, aim: _Aim, c: int) -> Ask:
    looks = len(state.fresh.get(c, []))
    reason = f"the limit is near c={aim.located}; proving c={c} on fresh data, look {looks + 1} of {LOOKS}"
    return Ask(c, Phase.CONFIRM, _look_size(state, c) * LOOK_SIZES[looks], reason)


def _rung(state: _State, aim: _Aim, proven: int | None, failed: Sequence[int]) -> int | None:
    """The next concurrency to prove: above what is proven, below what was given up, as high as the data promise."""
    assert aim.low is not None
    known = dict(state.pilot)
    for c, looks in state.fresh.items():
        fresh = pilot_point(joined_looks(looks), state.limits)
        if fresh.valid:
            known[c] = fresh
    line = smoothed(known, state.limits)
    most = min(state.policy.top, aim.low if aim.high is None else aim.high - 1)
    if failed:
        most = min(most, failed[0] - 1 if proven is not None else math.floor(0.85 * failed[0]))
    least = 1 if proven is None else proven + 1
    near = 0 if proven is None else most if aim.high is None else math.floor(STRIDE * proven)
    more = REACH * len(failed)
    found = max(
        (c for c in range(least, most + 1) if expected(line, c) <= -more - (REACH if c <= near else START)),
        default=None,
    )
    if found is None and proven is None:  # nothing is comfortable: then what is least tight
        found = max((c for c in range(least, most + 1) if expected(line, c) <= -REACH), default=None)
    if found is None or (proven is not None and (found - proven) / found < state.policy.gap):
        return None
    return found


def _standing(state: _State, looks: Sequence[Sample], size: int) -> tuple[Verdict, str]:
    """MEETS (proven), UNPROVEN (look again), or VIOLATES (give the rung up) with the reason. `size`: of the first look.

    Giving up early, on a forecast, costs throughput and never the guarantee.
    """
    if not looks:
        return Verdict.UNPROVEN, ""
    point = rung_point(joined_looks(looks), state.limits)
    judged = judge(point, state.limits, alpha=RUNG_ALPHA)
    over = excess(point, state.limits)
    if judged.verdict is Verdict.MEETS:
        return Verdict.MEETS, ""
    if not point.valid:
        return Verdict.VIOLATES, "its measurement is not valid: " + ", ".join(f.name for f in point.flags if f.fatal)
    if judged.verdict is Verdict.VIOLATES or over is None or over > OVER:
        return Verdict.VIOLATES, f"{judged.binding} is over its limit"
    most = size * sum(LOOK_SIZES)
    if len(looks) >= LOOKS or (judged.need or most) > FORECAST_SLACK * most:
        return Verdict.VIOLATES, f"{judged.binding} is too close to its limit for {most:,} requests to decide"
    return Verdict.UNPROVEN, ""


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
        worth = min(DEPENDENCE_CAP, len(values) / max(1.0, intervals.n_eff(values, m.p))) if len(values) else 1.0
        wanted = math.ceil(worth * intervals.needed(m.p, 1 - RUNG_ALPHA, violations=1))
        size = max(size, wanted, claim_floor(m.p, concurrency))
    return size


# --- the frontier


def _frontier(state: _State) -> Ask | None:
    """A setting where the frontier is least known, while settings are left."""
    if state.left < 1:
        return None
    points = {c: pilot_point(sample, state.limits) for c, sample in joined(state.history, tuple(Phase)).items()}
    gap = widest_gap(points, state.limits)
    if gap is None:
        return None
    low, high = gap
    reason = f"the frontier is widest between c={low} and c={high}"
    return Ask(between(low, high), Phase.FRONTIER, state.policy.requests, reason)
