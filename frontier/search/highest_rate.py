"""Search for the highest rate that an SLA allows: where to measure next, by what was measured.

Looks locate the rate first. From a start that is likely to be within the SLA, the search brackets
the rate at which the SLA breaks and halves the bracket, with short windows that claim nothing. The
rate is then proven on fresh data, from below. Each candidate is as high as all data so far promise
to be provable, and is judged by the rules of every proof (`proof.candidates`).

The guarantee is that of the search over concurrency (`scan`). If a higher rate never makes latency
better, the rate named breaks the SLA with probability at most ALPHA, up to the coverage error of
the bounds. An ascent ends at the first candidate that is given up, and the ascents share the error
(fixed-sequence testing). See docs/decisions/0011-open-loop-rate.md.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frontier.core.claim.changes import History
from frontier.core.claim.proof import (
    ASCENTS,
    WINDOWS,
    Candidate,
    attempts_over,
    candidates,
    pilot_point,
    violation,
)
from frontier.core.claim.verdict import judge
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.groups import by_key
from frontier.core.model.loads import Rate
from frontier.core.model.metrics import metric
from frontier.core.model.points import Point
from frontier.core.model.trials import Phase, Trial
from frontier.core.window.window import WindowData, join
from frontier.search.curves import rising
from frontier.search.next_trial import Ask, Done
from frontier.search.rate_policy import (
    MOST,
    RatePolicy,
    invalid_because,
    is_overloaded,
    least_window,
    look_size,
    rate_of,
    rounded,
)
from frontier.search.window_size import window_size

GAP = 0.05
"""How close (relative) the rate is located, and the least step worth proving."""
LOOKS = 5
"""Most looks that locate."""
GIVEN_UP = 6
"""The search ends after this many candidates given up: the rest of the gain is not worth a night.
"""
WINDOWS_ABOVE = 2 * WINDOWS
"""Most windows of a candidate above one that is proven, likewise."""
INVALID = 3
"""The search ends after this many invalid looks: one or two may have met a busy machine."""
START, REACH = 0.10, 0.025
"""The first candidate is expected so far (in ln) below the limits, the next so far; both grow by
REACH with every candidate given up."""
STRIDE = 1.25
"""A candidate further above the last one proven than this counts as a first."""
FIRST = 0.90
"""The first candidate is at most this share of the rate that was located: looks are short, and
queues steep."""
STEP_DOWN = 0.80
"""Where nothing is proven, the next candidate is at most this share of the one given up."""
FAR = 1.0
"""The largest excess (in ln): a larger one counts as this."""


def next_ask(policy: RatePolicy, limits: Sequence[Limit], history: History) -> Ask | Done:
    """The next trial, or the answer. `history` holds the finished looks and windows of proofs in
    the order in which they ended; each trial's load is a rate.

    Nothing is remembered between calls: after a crash or an interruption the same history gives the
    same next trial.
    """
    state = _State.of(policy, tuple(limits), history)
    if state.invalid:
        if len(state.invalid) >= INVALID:
            why = invalid_because(state.invalid[-1][1], state.limits) or "a limited metric was not measured"
            return Done(f"the measurements are not valid: {why}", verdict=Verdict.INVALID)
        again = rate_of(state.invalid[-1][0].load)
        if all(trial.load != again for trial, _ in state.looks):
            return state.look(again)
    return _locate(state) or _prove(state)


# --- what is known


@dataclass(frozen=True, slots=True)
class _State:
    """The history, sorted. `excess` is ln(value / limit) of the looks by rate, made
    non-decreasing; `proofs` are the windows of each candidate, `sizes` the requests of its first.
    """

    policy: RatePolicy
    limits: tuple[Limit, ...]
    looks: list[tuple[Trial, WindowData]]
    invalid: list[tuple[Trial, WindowData]]
    excess: Mapping[Rate, float]
    proofs: Mapping[Rate, list[WindowData]]
    sizes: Mapping[Rate, int]
    candidates: Mapping[Rate, Candidate]

    @classmethod
    def of(cls, policy: RatePolicy, limits: tuple[Limit, ...], history: History) -> "_State":
        proofs = by_key((rate_of(trial.load), (trial, data)) for trial, data in history if trial.phase is Phase.PROVE)
        sizes = {rate: windows[0][0].requests for rate, windows in proofs.items()}
        others = [(trial, data) for trial, data in history if trial.phase is not Phase.PROVE]
        told = by_key((_excess([data], limits) is not None, (trial, data)) for trial, data in others)
        looks, invalid = told.get(True, []), told.get(False, [])
        trend = _trend(((rate_of(trial.load), [data]) for trial, data in looks), limits)
        proven = {rate: [data for _, data in windows] for rate, windows in proofs.items()}
        return cls(policy, limits, looks, invalid, trend, proven, sizes, candidates_at(history, limits))

    @property
    def low(self) -> Rate | None:
        """The highest rate within the SLA by its values."""
        return max((rate for rate, excess in self.excess.items() if excess <= 0), default=None)

    @property
    def high(self) -> Rate | None:
        """The lowest rate outside."""
        return min((rate for rate, excess in self.excess.items() if excess > 0), default=None)

    def ask(self, rate: Rate, phase: Phase, requests: int) -> Ask:
        return Ask(rate, phase, requests, "", warmup=self.policy.settled(rate.per_second))

    def look(self, rate: Rate) -> Ask:
        return self.ask(rate, Phase.SCAN, look_size(self.policy, self.limits, rate.per_second))


def _point(parts: Sequence[WindowData], limits: tuple[Limit, ...]) -> Point:
    """The point of windows of one rate."""
    return pilot_point(join(parts), limits)


def _unflagged(parts: Sequence[WindowData], limits: tuple[Limit, ...]) -> Point:
    """The point of windows by its values alone, whether or not they are valid."""
    return dataclasses.replace(_point(parts, limits), flags=())


def _excess(parts: Sequence[WindowData], limits: tuple[Limit, ...]) -> float | None:
    """ln(value / limit) of the worst metric over windows of one rate; None when they are not
    valid.
    """
    excess = violation(_point(parts, limits), limits)
    if any(map(is_overloaded, parts)):
        return FAR
    return None if excess is None else min(FAR, max(-FAR, excess))


def _trend(rates: Iterable[tuple[Rate, Sequence[WindowData]]], limits: tuple[Limit, ...]) -> dict[Rate, float]:
    """The excess by rate, made non-decreasing and so less noisy."""
    known = by_key(
        (rate, (excess, sum(data.n for data in parts)))
        for rate, parts in rates
        if (excess := _excess(parts, limits)) is not None
    )
    requests = {rate: sum(n for _, n in seen) for rate, seen in known.items()}
    level = {
        rate: float(np.average([x for x, _ in seen], weights=[max(1, n) for _, n in seen]))
        for rate, seen in known.items()
    }
    return rising(level, requests)


# --- locate


def _locate(state: _State) -> Ask | Done | None:
    """The next look, or the answer that no rate is within the SLA. None when the bracket is close
    enough, or the looks are spent.
    """
    policy, low, high = state.policy, state.low, state.high
    least, most = policy.least, rounded(MOST * policy.top)
    if not state.excess:
        return state.look(min(most, max(least, rounded(policy.start))))
    if low is None:
        assert high is not None
        return _no_rate(state, high) if high <= least else state.look(max(least, _middle(high)))
    if len(state.looks) >= LOOKS:
        return None
    if high is None:
        step = _middle(low, most) if most.per_second - low.per_second > 2 * GAP * policy.top else most
        return state.look(step) if low < most else None
    probe = _middle(low, high)
    return None if (high - low) / high <= GAP or probe in state.excess else state.look(probe)


def _middle(low: Rate, high: Rate | None = None) -> Rate:
    """The rate in the middle of two; half of one."""
    return rounded((low.per_second + (high.per_second if high is not None else 0.0)) / 2)


def _no_rate(state: _State, lowest: Rate) -> Done:
    """The answer that even the lowest rate worth trying is outside the SLA."""
    parts = [data for trial, data in state.looks if trial.load == lowest]
    judged = judge(_unflagged(parts, state.limits), state.limits)
    binding = metric(judged.binding or state.limits[0].metric).label
    sure = judged.verdict is Verdict.VIOLATES or any(map(is_overloaded, parts))
    reason = f"{binding} is over its limit at {lowest.per_second:g} {state.policy.unit} already, the lowest rate tried"
    return Done(reason, verdict=Verdict.VIOLATES if sure else Verdict.UNPROVEN, refused=(lowest, reason))


# --- prove


def candidates_at(history: History, limits: tuple[Limit, ...]) -> dict[Rate, Candidate]:
    """The candidates by rate, in the order in which they were begun."""
    proofs = [(trial, data) for trial, data in history if trial.phase is Phase.PROVE]
    return {rate_of(judged.load): judged for judged in candidates(proofs, limits)}


def _prove(state: _State) -> Ask | Done:
    """The next window of a candidate, or the answer."""
    low, high = state.low, state.high
    assert low is not None
    ends = {rate: _standing(state, rate) for rate in sorted(state.candidates)}
    proven = max((rate for rate, (verdict, _) in ends.items() if verdict is Verdict.MEETS), default=None)
    for rate, (verdict, _) in ends.items():
        if verdict is Verdict.UNPROVEN and rate > (proven or math.inf) and len(state.proofs[rate]) >= WINDOWS_ABOVE:
            ends[rate] = Verdict.VIOLATES, "it is close to its limit, and deciding it takes much longer"
    given_up = {rate: why for rate, (verdict, why) in ends.items() if verdict is Verdict.VIOLATES}
    candidate = next((rate for rate, (verdict, _) in ends.items() if verdict is Verdict.UNPROVEN), None)
    spent = len(given_up) >= GIVEN_UP or attempts_over(list(state.candidates.values())) >= ASCENTS
    if candidate is None and not spent:
        candidate = _candidate(state, proven, sorted(given_up))
    if candidate is not None:
        return _window(state, candidate)
    refused = min(((rate, why) for rate, why in given_up.items() if rate > (proven or 0)), default=None)
    if refused is None and high is not None:
        refused = high, f"by the values of a short look {_binding_label(state, high)} is over its limit"
    if proven is None:
        why = f": {refused[1]}" if given_up and refused else ": every rate within the SLA is too close to its limit"
        return Done(f"no rate is proven{why}", None, Verdict.UNPROVEN, low, refused)
    return Done("proven on fresh data", proven, Verdict.MEETS, low, refused)


def _binding_label(state: _State, rate: Rate) -> str:
    """The metric that is worst at a rate."""
    point = _unflagged([data for trial, data in state.looks if trial.load == rate], state.limits)
    excess = {limit.metric: violation(point, (limit,)) for limit in state.limits}
    return metric(max(excess, key=lambda name: -math.inf if excess[name] is None else excess[name] or 0.0)).label


def _standing(state: _State, rate: Rate) -> tuple[Verdict, str]:
    """How a candidate stands after its windows."""
    parts, judged = state.proofs[rate], state.candidates[rate]
    if is_overloaded(parts[-1]):
        over = violation(_unflagged(parts[-1:], state.limits), state.limits)
        if over is None or over <= 0:
            return Verdict.VIOLATES, "more arrives than the server keeps up with"
        return Verdict.VIOLATES, "too many requests are over the limits"
    why = judged.reason
    for limit in state.limits:
        why = why.replace(limit.metric, limit.of.label)
    return judged.verdict, why


def _window(state: _State, rate: Rate) -> Ask:
    """The next window of a candidate, as large as those before."""
    if rate in state.sizes:
        return state.ask(rate, Phase.PROVE, state.sizes[rate])
    look, nearest = min(state.looks, key=lambda look: (abs(math.log(look[0].load / rate)), look[0].load))
    size = window_size({look.load: nearest}, state.limits, state.policy.in_flight)
    return state.ask(rate, Phase.PROVE, max(size, least_window(state.policy, state.limits, rate.per_second)))


def _candidate(state: _State, proven: Rate | None, failed: Sequence[Rate]) -> Rate | None:
    """The next rate to prove: above the proven rates, below those given up, as high as the data
    promise.
    """
    policy = state.policy
    looks = ((rate_of(trial.load), [data]) for trial, data in state.looks)
    trend = _trend([*looks, *state.proofs.items()], state.limits)
    least: float = policy.least if proven is None else proven * (1 + GAP)
    most: float = rounded(MOST * policy.top) if state.high is None else state.high
    if proven is None:
        most = FIRST * (state.low or most)
    if failed:
        most = min(most, failed[0] * (1 - GAP / 2 if proven is not None else STEP_DOWN))
    near = 0.0 if proven is None else STRIDE * proven
    more = REACH * len(failed)
    steps = [rounded(share * policy.top) for share in np.arange(GAP / 2, MOST + 1e-9, GAP / 2)]
    rates = [rate for rate in (*steps, state.low) if rate is not None and least <= rate <= most]
    # On straight lines between the rates that were tried.
    expected = {rate: float(np.interp(rate, list(trend), list(trend.values()))) for rate in rates}
    candidate = max((x for x, e in expected.items() if e <= -more - (REACH if x <= near else START)), default=None)
    if candidate is None and proven is None:  # nothing is comfortable: then what is least tight
        candidate = max((rate for rate, e in expected.items() if e <= -REACH), default=None)
    if candidate is None and proven is None and (lower := rounded(STEP_DOWN * min(most, *trend) / 1000)) >= least:
        return lower  # below all that was tried
    return candidate
