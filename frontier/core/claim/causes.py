"""The explanation of a decision as data: what binds, and why each other setting was not chosen.

It also says by how much the limit binds, what was excluded, and what would decide.
`show/view/explain.py` has the sentences; tables, pages and pictures only lay them out.
"""

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from frontier.core.claim.changes import Change, History, Unchanged
from frontier.core.claim.levels import Growth
from frontier.core.claim.undecided import OPEN, may_pass, next_step, requests_to_decide, widened
from frontier.core.claim.verdict import RISING, inside, judge
from frontier.core.model.decisions import (
    Cause,
    Decision,
    EndedEarly,
    Explanation,
    Judgement,
    Limit,
    NextStep,
    Reason,
    RejectedStep,
    Verdict,
)
from frontier.core.model.groups import by_key
from frontier.core.model.loads import NO_LOAD, Load
from frontier.core.model.metrics import APART, claim_floor, metric
from frontier.core.model.points import Estimate, Flag, Point
from frontier.core.model.trials import Phase

_WORTH_SAYING = 0.01
"""A throughput optimum is named when it gives more than this share above the operating point."""


@dataclass(frozen=True, slots=True)
class Server:
    """What happened to the server meanwhile.

    - `corrected`: the settings that a later visit contradicted
    - `changes`: the changes that made earlier trials stale
    - `growing`: latencies that grow past their limit, by setting
    - `stale`: the settings that were not measured since the last change
    - `doubted`: the settings to be proven anew, as a higher one showed another tail
    - `compared`: the settings measured for a whole window to complete the frontier
    """

    corrected: tuple[Load, ...] = ()
    changes: tuple[Change, ...] = ()
    growing: Mapping[Load, Growth] = field(default_factory=dict)
    stale: frozenset[Load] = frozenset()
    doubted: tuple[Load, ...] = ()
    compared: frozenset[Load] = frozenset()

    @classmethod
    def of(
        cls, history: History, kept: Unchanged, corrected: tuple[Load, ...], growing: Mapping[Load, Growth]
    ) -> "Server":
        """Of a history and what of it is `kept`, as the server did not change since."""
        return cls(
            corrected,
            kept.changes,
            growing,
            stale=frozenset({trial.load for trial, _ in history} - {trial.load for trial, _ in kept}),
            doubted=kept.doubted,
            compared=frozenset(trial.load for trial, _ in kept if trial.phase is Phase.FRONTIER),
        )


def with_causes(
    decision: Decision,
    points: Mapping[Load, Point],
    rate: str | None = None,
    *,
    cuts: Mapping[Load, EndedEarly] = MappingProxyType({}),
    server: Server = Server(),
    unworthy: Collection[Load] = (),
    preferred: Mapping[Load, RejectedStep] = MappingProxyType({}),
    point_estimates: bool = False,
) -> Decision:
    """The decision with its explanation and its next step.

    `points` are the settings decided on and those that were only scanned, by concurrency; `rate`
    names the throughput. `cuts` say what cut a proof short, `server` what happened to the server.
    `unworthy` are settings whose gain would not be worth their tail, `preferred` lower settings
    from which the step to the operating point is not worth its tail.
    """
    judged = {j.load: j for j in decision.judgements}
    every = sorted(judged.keys() | points.keys())
    gains = {c: _gain(decision, points, c, rate) for c in every}
    said = (_setting(decision, points.get(c), judged.get(c), c, gains[c], cuts.get(c)) for c in every)
    settings = tuple(_of_server(reason, server) for reason in said)
    by_concurrency = {reason.settings[0]: reason for reason in settings}
    undecided = decision.load is None or not point_estimates
    step = next_step(decision, points, settings, unworthy, preferred) if undecided else None
    shown, answered = _answered(decision, step, points, by_concurrency)
    reasons = [*_happened(server), *_undefined(decision), *answered]
    reasons += _other_optima(decision, points, rate)
    reasons += _non_monotone(decision)
    if decision.verdict is not Verdict.INVALID:
        named = {c for reason in reasons if reason.cause is Cause.EXCLUDED for c in reason.settings}
        reasons += _excluded(point for point in points.values() if point.load not in named)
    if point_estimates:
        reasons.append(Reason(Cause.POINT_ESTIMATES))
        step = None
    chosen = points.get(decision.load) if decision.load is not None else None
    explanation = Explanation(settings, tuple(reasons), _remarks(chosen) if chosen is not None else ())
    return dataclasses.replace(decision, explanation=explanation, next_step=step, **shown)


def _remarks(chosen: Point) -> tuple[str, ...]:
    """What a reader should know of the operating point, with the warnings on answers and prompts
    that a cache may have had: they are no work of the engine.
    """
    return (
        *chosen.notes,
        *(
            f"{flag.measured}: {flag.advice}"
            for flag in chosen.flags
            if flag.name in ("buffered_stream", "cache_contaminated")
        ),
    )


def _answered(
    decision: Decision, step: NextStep | None, points: Mapping[Load, Point], settings: Mapping[Load, Reason]
) -> tuple[dict[str, Any], list[Reason]]:
    """Why the operating point is the answer, or why there is none. Where nothing is decided yet,
    the setting of the next step becomes the candidate: what is recommended and what is shown are of
    one setting. The facts are those of `facts_of` that change by that.
    """
    if decision.load is not None:
        return {}, _chosen(decision, decision.load, settings, step)
    reasons = _no_answer(decision, points, settings)
    if step is None or step.flags or decision.verdict not in OPEN or step.load == decision.candidate:
        return {}, reasons
    judged = {j.load: j for j in decision.judgements}
    verdict = judged[step.load].verdict if step.load in judged else Verdict.UNPROVEN
    shown = facts_of(points[step.load], decision.limits, judged)
    return {"verdict": verdict, **shown}, [settings[step.load], *reasons]


def facts_of(
    shown: Point | None, limits: Sequence[Limit], judged: Mapping[Load, Judgement], chosen: Point | None = None
) -> dict[str, Any]:
    """What a decision shows of a setting, by the names of its fields: metrics, the limit that
    binds, and whether it is the operating point (`chosen`) or the candidate.
    """
    if shown is None:
        return {"metrics": {}, "binding": None, "load": None, "candidate": None}
    c, binding = shown.load, (judged.get(shown.load) or judge(shown, limits)).binding
    at = {"load": None, "candidate": c} if chosen is None else {"load": c, "candidate": None}
    return {"metrics": shown.metrics, "binding": binding, **at}


def _happened(server: Server) -> list[Reason]:
    """The reasons that come first: what happened to the server that changed the answer."""
    reasons = [Reason(Cause.CORRECTED, server.corrected)] if server.corrected else []
    if server.changes:
        change = server.changes[-1]
        reasons.append(Reason(Cause.CHANGED, (change.load,), change.metric, growth=math.expm1(change.by)))
    return reasons + ([Reason(Cause.DOUBTED, server.doubted)] if server.doubted else [])


# --- each setting


def _of_server(reason: Reason, server: Server) -> Reason:
    """The reason of a setting; where the server's growth or change decides, that instead."""
    (c,) = reason.settings
    if c in server.growing:
        growth = server.growing[c]
        return dataclasses.replace(reason, cause=Cause.GROWS, metric=growth.limit.metric, growth=growth.per_minute)
    looked = reason.cause in (Cause.NOT_JUDGED, Cause.SCANNED)
    if looked and c in server.stale:
        return dataclasses.replace(reason, cause=Cause.DOUBTED if c in server.doubted else Cause.STALE)
    return dataclasses.replace(reason, compared=looked and c in server.compared)


def _setting(
    decision: Decision,
    point: Point | None,
    judged: Judgement | None,
    concurrency: Load,
    gain: float | None,
    cut: EndedEarly | None,
) -> Reason:
    """Why one measured setting is, or is not, the operating point."""
    if judged is None:
        values = point.metrics if point is not None and may_pass(point.fatal) else {}
        measured = [limit for limit in decision.limits if limit.metric in values]
        if point is None or not measured:
            return Reason(Cause.NOT_JUDGED, (concurrency,))
        tight = min(measured, key=lambda limit: limit.margin(values[limit.metric].value))
        looked = Reason(Cause.NOT_JUDGED, (concurrency,), tight.metric, values[tight.metric], tight, gain=gain)
        if not inside(point, decision.limits):
            return looked
        return dataclasses.replace(looked, cause=Cause.SCANNED, need=requests_to_decide(point, decision.limits))
    name = judged.binding or decision.limits[0].metric
    limit = next((limit for limit in decision.limits if limit.metric == name), None)
    estimate = point.metrics.get(name) if point is not None else None
    need, cut = (judged.need, cut) if judged.verdict in OPEN else (None, None)
    reason = Reason(
        _cause(decision, judged, estimate, limit),
        (concurrency,),
        name,
        estimate,
        limit,
        judged.verdict,
        gain,
        need=need,
        cut=cut,
        flags=() if point is None else (*point.fatal, *_failures(point, estimate, name)),
    )
    reason = _of_a_busy_client(_of_connections(reason, point), point)
    step = decision.rejected
    if step is not None and step.load == concurrency:
        return dataclasses.replace(reason, metric=step.metric, gain=step.gain, cost=step.cost)
    return reason


def _failures(point: Point, estimate: Estimate | None, name: str) -> tuple[Flag, ...]:
    """The flag that says why requests failed, where their share or an infinite value decides."""
    if name != "error_rate" and (estimate is None or math.isfinite(estimate.value)):
        return ()
    return tuple(flag for flag in point.flags if flag.name == "errors" and not flag.fatal)


def _of_connections(reason: Reason, point: Point | None) -> Reason:
    """The reason, with the flag of too few connections where these are missing for a bound."""
    few = () if point is None else tuple(flag for flag in point.flags if flag.name == "too_few_connections")
    return dataclasses.replace(reason, flags=few) if few and reason.cause is Cause.TOO_FEW else reason


def _of_a_busy_client(reason: Reason, point: Point | None) -> Reason:
    """The reason, with the flag of a busy client where that made the bound too wide, or the
    requests so much alike that no reasonable number decides.
    """
    hopeless = reason.cause is Cause.TOO_FEW and (reason.need is None or reason.cut == EndedEarly("given_up"))
    busy = (hopeless or reason.cause is Cause.CROSSES) and reason.metric not in APART
    return dataclasses.replace(reason, flags=(*reason.flags, *widened(point))) if busy else reason


def _cause(decision: Decision, judged: Judgement, estimate: Estimate | None, limit: Limit | None) -> Cause:
    """The cause of one judged setting in the decision, by the estimate of its binding metric."""
    c, step = judged.load, decision.rejected
    if c == decision.load:
        return Cause.CHOSEN
    if step is not None and step.load == c:
        return Cause.STEP_NOT_WORTH
    if judged.verdict in OPEN:
        return _undecided(estimate, limit)
    if judged.verdict is Verdict.VIOLATES:
        return Cause.VIOLATES
    if judged.verdict is Verdict.INVALID:
        return Cause.EXCLUDED
    above_violation = decision.first_fail is not None and c > decision.first_fail
    below = decision.load is not None and c < decision.load
    return Cause.MEETS if above_violation or below else Cause.STEP_NOT_WORTH


def _undecided(estimate: Estimate | None, limit: Limit | None) -> Cause:
    """Why a setting is neither within nor over its limit."""
    if estimate is None or limit is None or math.isnan(estimate.value):
        return Cause.NO_INTERVAL
    p = metric(limit.metric).p
    if estimate.need is not None or (estimate.has_bound and estimate.n < (claim_floor(p) if p is not None else 0)):
        return Cause.TOO_FEW
    return Cause.CROSSES if estimate.has_bound and estimate.has_interval else Cause.NO_INTERVAL


def _gain(decision: Decision, points: Mapping[Load, Point], concurrency: Load, rate: str | None) -> float | None:
    """The throughput of a setting against the operating point's, as a share more."""
    chosen = points.get(decision.load) if decision.load is not None else None
    other = points.get(concurrency)
    if rate is None or chosen is None or other is None:
        return None
    here, there = chosen.value(rate), other.value(rate)
    return there / here - 1 if here > 0 and math.isfinite(there) else None


# --- the decision as a whole


def _undefined(decision: Decision) -> list[Reason]:
    """Limits on metrics that no request of this shape has."""
    names = dict.fromkeys(limit.metric for limit in decision.limits if limit.undefined(decision.shape))
    return [Reason(Cause.UNDEFINED, metric=name) for name in names]


def _chosen(decision: Decision, chosen: Load, settings: Mapping[Load, Reason], step: NextStep | None) -> list[Reason]:
    """What binds at the operating point, and why no higher setting was chosen."""
    here = settings[chosen]
    reasons = [here]
    if here.verdict is Verdict.MARGINAL:  # accepted although not proven, as asked
        reasons.append(dataclasses.replace(here, cause=Cause.CROSSES))
    return [*reasons, *_range(decision), *_higher(decision, chosen, settings, step)]


def _higher(decision: Decision, chosen: Load, settings: Mapping[Load, Reason], step: NextStep | None) -> list[Reason]:
    """Why no setting above the operating point was chosen."""
    higher = [c for c in sorted(settings) if c > chosen]
    short = (Cause.NOT_JUDGED, Cause.SCANNED, Cause.STALE, Cause.DOUBTED)
    above = [c for c in higher if settings[c].cause not in short]
    better = settings[step.load] if step is not None and step.load > chosen else None
    if not higher:
        return [Reason(Cause.HIGHEST_MEASURED, (chosen,))]
    looked = _looked_at(settings[higher[0]], better)
    if not above:
        return [*looked, better] if better is not None else [settings[higher[0]]]
    reasons = looked if decision.rejected is None else [settings[decision.rejected.load], *looked]
    beyond, fail = min(above), decision.first_fail
    if settings[beyond].verdict is not Verdict.MEETS or (fail is not None and beyond > fail):
        reasons.append(settings[beyond])
    elif fail is not None:
        reasons.append(settings[fail])
    elif decision.last_pass == max(above):
        reasons.append(Reason(Cause.HIGHEST_MEASURED, (max(above),)))
    if better is not None and better not in reasons and better.cause is not Cause.EXCLUDED:
        reasons.append(better)
    if fail is not None and fail != beyond and decision.last_pass is not None:
        reasons.append(Reason(Cause.BRACKET, (decision.last_pass, fail)))
    return reasons


def _looked_at(first: Reason, better: Reason | None) -> list[Reason]:
    """The reason of the next higher setting where it had a quick look only and is not `better`,
    which is named apart.
    """
    return [first] if first.cause in (Cause.NOT_JUDGED, Cause.SCANNED) and first is not better else []


def _range(decision: Decision) -> list[Reason]:
    """The place of the operating point between the comfort mark and the promise, for each limit
    that has both.
    """
    reasons = []
    for limit in decision.limits:
        estimate = decision.metrics.get(limit.metric)
        if limit.comfort is not None and estimate is not None:
            reasons.append(Reason(Cause.RANGE, metric=limit.metric, estimate=estimate, limit=limit))
    return reasons


def _no_answer(decision: Decision, points: Mapping[Load, Point], settings: Mapping[Load, Reason]) -> list[Reason]:
    """Why no setting is the operating point."""
    if decision.verdict is Verdict.INVALID or decision.candidate is None:
        usable = [c for c in points if points[c].valid]
        return [*([settings[min(usable)]] if usable else []), *_excluded(points.values())]
    nearest = settings[decision.candidate]
    if decision.verdict is Verdict.VIOLATES:
        if nearest.metric in RISING:
            return [nearest, Reason(Cause.HIGHEST_MEASURED, (max(settings),), verdict=decision.verdict)]
        failing = any(flag.name == "errors" for flag in nearest.flags)
        if nearest.metric == "quality" or (failing and min(settings) == 1):  # the same at any setting
            return [nearest]
        cause = Cause.SLOW_ALONE if min(settings) == 1 else Cause.LOWEST_MEASURED
        return [nearest, dataclasses.replace(settings[min(settings)], cause=cause)]
    if nearest.verdict is Verdict.MEETS and decision.first_fail is not None:
        return [Reason(Cause.NON_MONOTONE, (decision.first_fail, decision.candidate))]
    return [nearest]


def _other_optima(decision: Decision, points: Mapping[Load, Point], rate: str | None) -> list[Reason]:
    """The other optima within the SLA where they differ from the operating point, and its
    energy.
    """
    chosen = points.get(decision.load) if decision.load is not None else None
    if chosen is None or rate is None:
        return []
    reasons = []
    for concurrency, name in (
        (decision.throughput_optimum, rate),
        (decision.goodput_optimum, "goodput"),
        (decision.cheapest, "cost"),
    ):
        if concurrency is None or concurrency not in points or name not in points[concurrency].metrics:
            continue
        gain = _gain(decision, points, concurrency, rate)
        differs = concurrency != decision.load and (name != rate or (gain or 0) > _WORTH_SAYING)
        estimate = points[concurrency].metrics[name]
        if math.isfinite(estimate.value) and (differs or name == "cost"):
            reasons.append(Reason(Cause.OPTIMUM, (concurrency,), name, estimate, gain=gain))
    if chosen.power is not None and (joules := chosen.metrics.get("energy")) is not None:
        reasons.append(Reason(Cause.ENERGY, (chosen.load,), "energy", joules, power=chosen.power))
    return reasons


def _non_monotone(decision: Decision) -> list[Reason]:
    """Settings that violate although a higher one meets. They come first in `settings`; the higher
    one is last.
    """
    if decision.load is None:
        return []
    highest = max((j.load for j in decision.judgements if j.verdict is Verdict.MEETS), default=NO_LOAD)
    causes = {Cause.NON_MONOTONE: decision.holes, Cause.UNCONFIRMED: decision.unconfirmed}
    return [Reason(cause, (*lower, highest)) for cause, lower in causes.items() if lower]


def _excluded(points: Iterable[Point]) -> list[Reason]:
    """The excluded settings, grouped by their flags; each reason has the flags of its lowest
    setting, which it names where another was measured otherwise.
    """
    excluded = sorted((point for point in points if not point.valid), key=lambda each: each.load)
    groups = by_key((tuple(flag.name for flag in point.fatal), point) for point in excluded)
    return [
        Reason(Cause.EXCLUDED, tuple(point.load for point in group), flags=tuple(_flags_of_lowest(group)))
        for group in groups.values()
    ]


def _flags_of_lowest(group: Sequence[Point]) -> Iterator[Flag]:
    for alike in zip(*(point.fatal for point in group), strict=True):
        differ = len({(flag.measured, flag.limit) for flag in alike}) > 1
        at = f"at {group[0].load.label} " if differ else ""
        yield dataclasses.replace(alike[0], measured=f"{at}{alike[0].measured}")
