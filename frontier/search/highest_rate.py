"""Search for the highest load that an SLA allows: where to measure next.

It is a pure function of what was measured. A load is what a server is offered: a rate of arrivals,
or requests in flight.

Looks locate the load first. From a start that is likely to be within the SLA, the search brackets
the load at which the SLA breaks and halves the bracket, with short windows that claim nothing. The
load is then proven on fresh data, from below. Each candidate is as high as all data so far promise
to be provable, and is judged by the rules of every proof (`proof.candidates`).

The guarantee is that of the search over concurrency (`scan`). If more load never makes latency
better, the load named breaks the SLA with probability at most ALPHA, up to the coverage error of
the bounds. An ascent ends at the first candidate that is given up, and the ascents share the error
(fixed-sequence testing). See docs/decisions/0011-open-loop-rate.md.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frontier.core.claim.proof import (
    ASCENTS,
    WINDOWS,
    Candidate,
    attempts_over,
    candidates,
    join,
    pilot_point,
    violation,
)
from frontier.core.claim.verdict import judge
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.metrics import metric
from frontier.core.model.points import Point
from frontier.core.model.trials import Phase, Trial
from frontier.search.curves import rising
from frontier.search.load_trials import (
    LEAST,
    MOST,
    LoadAsk,
    LoadDone,
    LoadHistory,
    LoadPolicy,
    LoadTrial,
    Refused,
    invalid_because,
    least_window,
    look_size,
    rounded,
)
from frontier.search.window_size import window_size

GAP = 0.05
"""How close (relative) the load is located, and the least step worth proving."""
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
"""The first candidate is at most this share of the load that was located: looks are short, and
queues steep."""
STEP_DOWN = 0.80
"""Where nothing is proven, the next candidate is at most this share of the one given up."""
FAR = 1.0
"""The largest excess (in ln): a larger one counts as this."""


def next_ask(policy: LoadPolicy, limits: Sequence[Limit], history: LoadHistory) -> LoadAsk | LoadDone:
    """The next trial, or the answer. `history` holds the finished trials in the order in which they
    ended.

    Nothing is remembered between calls: after a crash or an interruption the same history gives the
    same next trial.
    """
    state = _State.of(policy, tuple(limits), history)
    if state.invalid:
        if len(state.invalid) >= INVALID:
            why = invalid_because(state.invalid[-1], state.limits) or "a limited metric was not measured"
            return LoadDone(Verdict.INVALID, f"the measurements are not valid: {why}")
        if all(trial.load != state.invalid[-1].load for trial in state.looks):
            return state.look(state.invalid[-1].load)
    return _locate(state) or _prove(state)


# --- what is known


@dataclass(frozen=True, slots=True)
class _State:
    """The history, sorted. `excess` is ln(value / limit) of the looks by load, made
    non-decreasing.
    """

    policy: LoadPolicy
    limits: tuple[Limit, ...]
    looks: list[LoadTrial]
    invalid: list[LoadTrial]
    excess: Mapping[float, float]
    proofs: Mapping[float, list[LoadTrial]]
    candidates: Mapping[float, Candidate]

    @classmethod
    def of(cls, policy: LoadPolicy, limits: tuple[Limit, ...], history: LoadHistory) -> "_State":
        looks: list[LoadTrial] = []
        invalid: list[LoadTrial] = []
        proofs: dict[float, list[LoadTrial]] = {}
        for trial in history:
            if trial.phase is Phase.PROVE:
                proofs.setdefault(trial.load, []).append(trial)
            else:
                (looks if _excess([trial], limits) is not None else invalid).append(trial)
        trend = _trend(((trial.load, [trial]) for trial in looks), limits)
        return cls(policy, limits, looks, invalid, trend, proofs, candidates_at(history, limits))

    @property
    def low(self) -> float | None:
        """The highest load within the SLA by its values."""
        return max((load for load, excess in self.excess.items() if excess <= 0), default=None)

    @property
    def high(self) -> float | None:
        """The lowest load outside."""
        return min((load for load, excess in self.excess.items() if excess > 0), default=None)

    def ask(self, load: float, phase: Phase, requests: int) -> LoadAsk:
        return LoadAsk(load, phase, requests, self.policy.settled(load), self.policy.each)

    def look(self, load: float) -> LoadAsk:
        return self.ask(load, Phase.SCAN, look_size(self.policy, self.limits, load))


def _point(trials: Sequence[LoadTrial], limits: tuple[Limit, ...]) -> Point:
    """The point of trials of one load."""
    return pilot_point(join(tuple(trial.data for trial in trials)), limits)


def _unflagged(trials: Sequence[LoadTrial], limits: tuple[Limit, ...]) -> Point:
    """The point of trials by its values alone, whether or not they are valid."""
    return dataclasses.replace(_point(trials, limits), flags=())


def _excess(trials: Sequence[LoadTrial], limits: tuple[Limit, ...]) -> float | None:
    """ln(value / limit) of the worst metric over trials of one load; None when they are not
    valid.
    """
    excess = violation(_point(trials, limits), limits)
    if any(trial.overloaded for trial in trials):
        return FAR
    return None if excess is None else min(FAR, max(-FAR, excess))


def _trend(loads: Iterable[tuple[float, Sequence[LoadTrial]]], limits: tuple[Limit, ...]) -> dict[float, float]:
    """The excess by load, made non-decreasing and so less noisy."""
    known: dict[float, list[tuple[float, int]]] = {}
    for load, trials in loads:
        if (excess := _excess(trials, limits)) is not None:
            known.setdefault(load, []).append((excess, sum(trial.data.n for trial in trials)))
    requests = {load: sum(n for _, n in parts) for load, parts in known.items()}
    level = {
        load: float(np.average([x for x, _ in parts], weights=[max(1, n) for _, n in parts]))
        for load, parts in known.items()
    }
    return rising(level, requests)


# --- locate


def _locate(state: _State) -> LoadAsk | LoadDone | None:
    """The next look, or the answer that no load is within the SLA. None when the bracket is close
    enough, or the looks are spent.
    """
    policy, low, high = state.policy, state.low, state.high
    least, most = rounded(LEAST * policy.top), rounded(MOST * policy.top)
    if not state.excess:
        return state.look(rounded(min(most, max(least, policy.start))))
    if low is None:
        assert high is not None
        return _no_load(state, high) if high <= least else state.look(max(least, rounded(high / 2)))
    if len(state.looks) >= LOOKS:
        return None
    if high is None:
        step = rounded((low + most) / 2) if most - low > 2 * GAP * policy.top else most
        return state.look(step) if low < most else None
    probe = rounded((low + high) / 2)
    return None if (high - low) / high <= GAP or probe in state.excess else state.look(probe)


def _no_load(state: _State, lowest: float) -> LoadDone:
    """The answer that even the lowest load worth trying is outside the SLA."""
    trials = [trial for trial in state.looks if trial.load == lowest]
    judged = judge(_unflagged(trials, state.limits), state.limits)
    binding = metric(judged.binding or state.limits[0].metric).label
    sure = judged.verdict is Verdict.VIOLATES or any(trial.overloaded for trial in trials)
    share = f"{lowest / state.policy.top:.0%} of the closed loop's rate"
    reason = f"{binding} is over its limit at {lowest:g} {state.policy.unit} already, {share}"
    return LoadDone(Verdict.VIOLATES if sure else Verdict.UNPROVEN, reason, refused=Refused(lowest, reason))


# --- prove


def candidates_at(history: LoadHistory, limits: tuple[Limit, ...]) -> dict[float, Candidate]:
    """The candidates by load. The rules of a proof count settings: each load is one, numbered as it
    was begun.
    """
    proofs = [trial for trial in history if trial.phase is Phase.PROVE]
    loads = list(dict.fromkeys(trial.load for trial in proofs))
    settings = [(_setting(trial, 1 + loads.index(trial.load)), trial.data) for trial in proofs]
    return {loads[judged.concurrency - 1]: judged for judged in candidates(settings, limits)}


def _setting(trial: LoadTrial, number: int) -> Trial:
    """A trial at a load as one of a setting."""
    data = trial.data
    return Trial(data.deployment, data.shape, number, 1, trial.phase, trial.requests, 0, 0.0, 0.0, 0.0, "")


def _prove(state: _State) -> LoadAsk | LoadDone:
    """The next window of a candidate, or the answer."""
    low, high = state.low, state.high
    assert low is not None
    ends = {load: _standing(state, load) for load in sorted(state.candidates)}
    proven = max((load for load, (verdict, _) in ends.items() if verdict is Verdict.MEETS), default=None)
    for load, (verdict, _) in ends.items():
        if verdict is Verdict.UNPROVEN and load > (proven or math.inf) and len(state.proofs[load]) >= WINDOWS_ABOVE:
            ends[load] = Verdict.VIOLATES, "it is close to its limit, and deciding it takes much longer"
    given_up = {load: why for load, (verdict, why) in ends.items() if verdict is Verdict.VIOLATES}
    candidate = next((load for load, (verdict, _) in ends.items() if verdict is Verdict.UNPROVEN), None)
    spent = len(given_up) >= GIVEN_UP or attempts_over(list(state.candidates.values())) >= ASCENTS
    if candidate is None and not spent:
        candidate = _candidate(state, proven, sorted(given_up))
    if candidate is not None:
        return _window(state, candidate)
    refused = min(((load, why) for load, why in given_up.items() if load > (proven or 0.0)), default=None)
    if refused is None and high is not None:
        refused = high, f"by the values of a short look {_binding_label(state, high)} is over its limit"
    higher = Refused(*refused) if refused else None
    if proven is None:
        why = f": {refused[1]}" if given_up and refused else ": every rate within the SLA is too close to its limit"
        return LoadDone(Verdict.UNPROVEN, f"no rate is proven{why}", None, low, higher)
    return LoadDone(Verdict.MEETS, "proven on fresh data", proven, low, higher)


def _binding_label(state: _State, load: float) -> str:
    """The metric that is worst at a load."""
    point = _unflagged([trial for trial in state.looks if trial.load == load], state.limits)
    excess = {limit.metric: violation(point, (limit,)) for limit in state.limits}
    return metric(max(excess, key=lambda name: -math.inf if excess[name] is None else excess[name] or 0.0)).label


def _standing(state: _State, load: float) -> tuple[Verdict, str]:
    """How a candidate stands after its windows."""
    trials, judged = state.proofs[load], state.candidates[load]
    if trials[-1].overloaded:
        over = violation(_unflagged(trials[-1:], state.limits), state.limits)
        if over is None or over <= 0:
            return Verdict.VIOLATES, "more arrives than the server keeps up with"
        return Verdict.VIOLATES, "too many requests are over the limits"
    why = judged.reason
    for limit in state.limits:
        why = why.replace(limit.metric, limit.of.label)
    return judged.verdict, why


def _window(state: _State, load: float) -> LoadAsk:
    """The next window of a candidate, as large as those before."""
    before = state.proofs.get(load)
    if before:
        return state.ask(load, Phase.PROVE, before[0].requests)
    nearest = min(state.looks, key=lambda trial: (abs(math.log(trial.load / load)), trial.load))
    size = window_size(nearest.data, state.limits, state.policy.in_flight)
    return state.ask(load, Phase.PROVE, max(size, least_window(state.policy, state.limits, load)))


def _candidate(state: _State, proven: float | None, failed: Sequence[float]) -> float | None:
    """The next load to prove: above the proven loads, below those given up, as high as the data
    promise.
    """
    policy = state.policy
    fresh = ((load, trials) for load, trials in state.proofs.items())
    trend = _trend([*((trial.load, [trial]) for trial in state.looks), *fresh], state.limits)
    least = rounded(LEAST * policy.top) if proven is None else proven * (1 + GAP)
    most = rounded(MOST * policy.top) if state.high is None else state.high
    if proven is None:
        most = FIRST * (state.low or most)
    if failed:
        most = min(most, failed[0] * (1 - GAP / 2 if proven is not None else STEP_DOWN))
    near = 0.0 if proven is None else STRIDE * proven
    more = REACH * len(failed)
    steps = [rounded(share * policy.top) for share in np.arange(LEAST, MOST + 1e-9, GAP / 2)]
    loads = [load for load in (*steps, state.low) if load is not None and least <= load <= most]
    # On straight lines between the loads that were tried.
    expected = {load: float(np.interp(load, list(trend), list(trend.values()))) for load in loads}
    candidate = max((x for x, e in expected.items() if e <= -more - (REACH if x <= near else START)), default=None)
    if candidate is None and proven is None:  # nothing is comfortable: then what is least tight
        candidate = max((load for load, e in expected.items() if e <= -REACH), default=None)
    if candidate is None and proven is None and (lower := rounded(STEP_DOWN * min(most, *trend))) >= least:
        return lower  # below all that was tried
    return candidate
