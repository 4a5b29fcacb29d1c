"""Operating point (the SLA solver): which concurrency to run, or that no measured setting will do.

In: the points of one series, the limits of one SLA, and the trials behind the points. Out: a
`Decision` with its verdict, what the claim covers, and the reason why each other setting was not
chosen. `solve_all` does this for each series.

Nothing is interpolated and no monotonicity is assumed: each setting was measured and is judged by
itself (`verdict`). The subtle part is which violations forbid the settings above them
(`violating_settings`, `_unconfirmed`), and which step to a higher setting is worth its longer tail
(`_choose`).
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from frontier.core.claim.causes import Server, facts_of, with_causes
from frontier.core.claim.changes import History, Unchanged, unchanged
from frontier.core.claim.claim import claim_of, corrected_settings, ended_early, proof_windows
from frontier.core.claim.levels import Growth
from frontier.core.claim.pareto import by_concurrency
from frontier.core.claim.proof import TOO_BUSY, WINDOWS, candidates
from frontier.core.claim.verdict import inside, judge, violating_settings
from frontier.core.model import errors
from frontier.core.model.decisions import (
    Claim,
    Decision,
    EndedEarly,
    Judgement,
    Limit,
    RejectedStep,
    SweepEnding,
    Verdict,
)
from frontier.core.model.errors import ExitCode
from frontier.core.model.loads import NO_LOAD, Load
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate, Point
from frontier.core.model.series import Series, by_series
from frontier.core.window.window import join

RATES = ("output_throughput", "total_throughput", "request_throughput")
"""Metrics that the solver may use as throughput: it takes the first that every feasible setting
has."""
LEAST_WINDOW = 10.0
"""Seconds that a window of a proof takes at least, with its warm-up."""
NOISE = 0.02
"""A gain in ln(throughput) below this is not a gain."""
TAIL_PRICE = math.log(1.10)
"""What doubling the tail must bring in ln(throughput): ten percent."""


def solve(
    points: Sequence[Point],
    limits: Sequence[Limit],
    *,
    marginal_gain: bool = True,
    marginal_ok: bool = False,
    point_estimates: bool = False,
    scanned: Sequence[Point] = (),
    history: History = (),
    end: SweepEnding | None = None,
) -> Decision:
    """The operating point of one (deployment, shape): the setting to run, and in `explanation` why
    not the next one.

    Only settings below the lowest violation are chosen, whatever lies above it. Two kinds of
    violation do not count: settings at the low end that only lack throughput (`verdict.RISING`),
    and a setting of a single trial below a proven one (`Decision.unconfirmed`). Among the settings
    that meet, those steps are taken that are worth their tail (`_choose`); with
    `marginal_gain=False` the setting with the most throughput is taken. `marginal_ok` also accepts
    settings whose values are inside while a bound is not; the verdict then says MARGINAL although a
    concurrency is named.

    `scanned` are settings of which nothing can be claimed; they are named where they may be a
    better answer. `history` says what the claim covers, `end` how the sweep ended.
    When nothing is feasible, the verdict is VIOLATES with the nearest miss as candidate (UNPROVEN
    where settings below it were only scanned), UNPROVEN or MARGINAL with the best undecided one,
    else INVALID. UsageError without limits; ValueError as `by_concurrency`.
    """
    by_c = by_concurrency(points) if points or not scanned else {}
    kept = unchanged(history, limits)
    growing = {} if point_estimates else _outgrown(kept, by_c, limits)
    judged = _judged(by_c, limits, growing, point_estimates)
    unconfirmed = _unconfirmed(judged, by_c)
    violating = [c for c in violating_settings(judged) if c not in unconfirmed]
    lowest = min(violating, default=math.inf)
    feasible = [p for c, p in by_c.items() if c < lowest and _acceptable(p, judged[c], limits, marginal_ok)]
    rate = _rate_name(feasible)
    chosen = _choose(feasible, limits, rate, marginal_gain, point_estimates)
    verdict, shown = _shown(chosen, by_c, judged, limits, [p for p in scanned if p.load < lowest])
    claim, corrected = _claim(verdict, chosen, judged, history, kept, limits, point_estimates)
    decision = Decision(
        **(points or scanned)[0].series._asdict(),
        limits=tuple(limits),
        verdict=verdict,
        rejected=_rejected(chosen, feasible, limits, rate, point_estimates) if marginal_gain else None,
        claim=claim,
        **facts_of(shown, limits, judged, chosen),
        **_landmarks(feasible, violating, unconfirmed, judged, rate),
    )
    every = {p.load: p for p in scanned} | by_c
    return with_causes(
        decision,
        every,
        rate,
        cuts=ended_early(history, limits, end) | _given_up(kept, tuple(limits)),
        server=Server.of(history, kept, corrected, growing),
        point_estimates=point_estimates,
        unworthy=_unworthy(chosen, every.values(), limits, rate) if marginal_gain else (),
        preferred=_preferred(chosen, every.values(), limits, rate) if marginal_gain else {},
    )


def _shown(
    chosen: Point | None,
    points: Mapping[Load, Point],
    judged: Mapping[Load, Judgement],
    limits: Sequence[Limit],
    scanned: Sequence[Point],
) -> tuple[Verdict, Point | None]:
    """The verdict, and the setting that is shown: `chosen`, or else the nearest one.

    It is UNPROVEN where `scanned` settings may still keep the limits though others violate them, or
    nothing is judged. The candidate is then that of the next step, if there is one (`causes`).
    """
    if chosen is not None:
        return judged[chosen.load].verdict, chosen
    verdict, candidate = _nearest(points, judged, limits)
    shown, valid = None if candidate is None else points[candidate], [p for p in scanned if p.valid]
    if judged and verdict is not Verdict.VIOLATES:
        return verdict, shown
    if valid and not judged:
        shown = min(valid, key=lambda p: p.load)
    return Verdict.UNPROVEN if valid or (scanned and judged) else verdict, shown


def _judged(
    points: Mapping[Load, Point], limits: Sequence[Limit], growing: Mapping[Load, Growth], point_estimates: bool
) -> dict[Load, Judgement]:
    """The judgement of each setting; unproven where a latency grows past its limit."""
    judged = {c: judge(p, limits, point_estimates=point_estimates) for c, p in points.items()}
    return judged | {c: _unproven(judged[c], growth) for c, growth in growing.items()}


def _landmarks(
    feasible: Sequence[Point],
    violating: Sequence[Load],
    unconfirmed: tuple[Load, ...],
    judged: Mapping[Load, Judgement],
    rate: str | None,
) -> dict[str, Any]:
    """The settings that a decision names beside its own, by the names of its fields."""
    meeting = max((c for c, j in judged.items() if j.verdict is Verdict.MEETS), default=0)
    return {
        "judgements": tuple(judged.values()),
        "unconfirmed": unconfirmed,
        "last_pass": max((p.load for p in feasible), default=None),
        "first_fail": min(violating, default=None),
        "holes": tuple(c for c in violating if c < meeting),
        "throughput_optimum": _best_at(feasible, rate),
        "goodput_optimum": _best_at(feasible, "goodput", proven=True),
        "cheapest": _best_at(feasible, "cost"),
    }


def _claim(
    verdict: Verdict,
    chosen: Point | None,
    judged: Mapping[Load, Judgement],
    history: History,
    kept: Unchanged,
    limits: Sequence[Limit],
    point_estimates: bool,
) -> tuple[Claim | None, tuple[Load, ...]]:
    """What is claimed, and the settings that a later visit contradicted. Without an operating point
    the claim is that of the highest contradicted setting.
    """
    corrected = corrected_settings(history, tuple(limits), {c: j.verdict for c, j in judged.items()})
    if not corrected and (verdict is not Verdict.MEETS or point_estimates):
        return None, corrected
    claimed = max(corrected, default=NO_LOAD) if chosen is None else chosen.load
    return claim_of(proof_windows(kept, claimed, limits), tuple(limits), corrected=bool(corrected)), corrected


def _given_up(history: Unchanged, limits: tuple[Limit, ...]) -> dict[Load, EndedEarly]:
    """The settings whose proof was given up: as too close to a limit, where more of it decides
    nothing, or as the client was busy.
    """
    return {
        k.load: EndedEarly("busy" if k.reason == TOO_BUSY else "given_up")
        for k in candidates(history, limits)
        if k.verdict is Verdict.VIOLATES and k.windows >= WINDOWS and k.point.valid
    }


def _outgrown(history: Unchanged, points: Mapping[Load, Point], limits: Sequence[Limit]) -> dict[Load, Growth]:
    """The settings where a latency grows so fast that its bound would be over the limit within the
    time of one more proof.
    """
    found, growths = {}, {growth.limit.metric: growth for growth in history.growing}
    for limit, c in itertools.product(limits, points if growths else ()):
        growth, windows = growths.get(limit.metric), proof_windows(history, c, limits)
        estimate = points[c].metrics.get(limit.metric)
        if growth is None or estimate is None or not windows:
            continue
        sent = join(windows).sent
        lasts = WINDOWS * max(float(np.median([w.ends[-1] - w.starts[0] for w in windows])), LEAST_WINDOW)
        ahead = float(windows[-1].ends[-1]) + lasts - float(sent.mean())
        if limit.breaks(limit.bound(estimate) * math.exp(growth.rate * ahead)):
            found[c] = growth
    return found


def _unproven(judgement: Judgement, growth: Growth) -> Judgement:
    """The judgement of a setting that meets, where a latency grows past its limit."""
    if judgement.verdict is not Verdict.MEETS:
        return judgement
    name = growth.limit.metric
    per_metric = {**judgement.per_metric, name: Verdict.UNPROVEN}
    return replace(judgement, verdict=Verdict.UNPROVEN, per_metric=per_metric, binding=name)


def _unconfirmed(judged: Mapping[Load, Judgement], points: Mapping[Load, Point]) -> tuple[Load, ...]:
    """The violating settings that were measured in one trial only, below a proven setting.

    That higher setting meets in at least WINDOWS windows, as many as the least proof has. Without
    this rule, other work on the server's machine during one trial would cost the whole answer: on a
    real engine c=5, disturbed for 20 s, took back a proof of c=47. Such a setting is measured again
    (`search.complete`); its violation counts when two trials show it.
    """
    proven = max(
        (c for c, j in judged.items() if j.verdict is Verdict.MEETS and points[c].repeats >= WINDOWS), default=0
    )
    return tuple(c for c in violating_settings(judged) if c < proven and points[c].repeats == 1)


def _acceptable(point: Point, judgement: Judgement, limits: Sequence[Limit], marginal_ok: bool) -> bool:
    if judgement.verdict is Verdict.MEETS:
        return True
    return marginal_ok and judgement.verdict is Verdict.MARGINAL and inside(point, limits)


def _nearest(
    points: Mapping[Load, Point], judged: Mapping[Load, Judgement], limits: Sequence[Limit]
) -> tuple[Verdict, Load | None]:
    """The verdict when no setting is feasible, and the setting nearest to an answer: the undecided
    one that is closest to being proven. A lower setting that only lacks throughput forbids none
    (`violating_settings`). A setting whose values are inside counts also above a violation of a
    single trial, which would not count against its proof (`_unconfirmed`).
    """
    violating = [c for c, j in judged.items() if j.verdict is Verdict.VIOLATES]
    lowest = min(violating, default=math.inf)
    confirmed = min((c for c in violating if points[c].repeats > 1), default=math.inf)
    undecided = [
        c
        for c, j in judged.items()
        if j.verdict in (Verdict.MARGINAL, Verdict.UNPROVEN)
        and (c < min(violating_settings(judged), default=math.inf) or (c < confirmed and inside(points[c], limits)))
    ]
    if undecided:
        candidate = min(undecided, key=lambda c: (not inside(points[c], limits), _left(judged[c], points[c]), -c))
        return judged[candidate].verdict, candidate
    if not violating or any(c < lowest for c in judged):
        return Verdict.INVALID, None
    meeting = [c for c, j in judged.items() if j.verdict is Verdict.MEETS]
    if meeting:  # the lowest violates and a higher one meets: contradictory, so neither yes nor no
        return Verdict.UNPROVEN, min(meeting)
    return Verdict.VIOLATES, max(violating, key=lambda c: (_least_headroom(points[c], limits), -c))


def _left(judgement: Judgement, point: Point) -> float:
    """The requests that would decide a setting, as a multiple of those it has."""
    return math.inf if judgement.need is None else judgement.need / max(1, point.n)


def _least_headroom(point: Point, limits: Sequence[Limit]) -> float:
    margins = (limit.margin(point.value(limit.metric)) for limit in limits)
    return min((margin for margin in margins if not math.isnan(margin)), default=-math.inf)


def _rate_name(points: Sequence[Point]) -> str | None:
    for name in RATES:
        if points and all(math.isfinite(p.value(name)) for p in points):
            return name
    return None


def _best_at(points: Sequence[Point], name: str | None, *, proven: bool = False) -> int | None:
    """The concurrency with the best value of a metric, the lowest on ties; None unless all points
    have it.

    `proven` compares lower bounds where there are any.
    """
    if name is None or not points or any(name not in p.metrics for p in points):
        return None
    direction = metric(name).sign

    def goodness(p: Point) -> float:
        e = p.metrics[name]
        return direction * (e.lower if proven and math.isfinite(e.lower) else e.value)

    return max(points, key=lambda p: (goodness(p), -p.load)).load


def _choose(
    feasible: Sequence[Point], limits: Sequence[Limit], rate: str | None, marginal_gain: bool, point_estimates: bool
) -> Point | None:
    """The feasible setting to run; None without any.

    From the lowest setting up, a step is taken when throughput grows by more than 2% and by at
    least ten percent per doubling of the worst tail. Both settings keep the promise, so this is a
    preference and no claim: values decide. A step that falls short by less than its interval is
    called a tie.
    """
    if not feasible:
        return None
    if rate is None or feasible[-1].load.is_open:
        # Throughput unknown: more users served is all there is to prefer. At a rate all that
        # arrives is served.
        return feasible[-1]
    if not marginal_gain:
        return max(feasible, key=lambda p: (p.metrics[rate].value, -p.load))
    current = feasible[0]
    for further in feasible[1:]:
        if _unworthy_step(current, further, limits, rate, point_estimates) is None:
            current = further
    return current


def _unworthy_step(
    current: Point, further: Point, limits: Sequence[Limit], rate: str, point_estimates: bool
) -> RejectedStep | None:
    """The step from one setting to a higher one, if its throughput is not worth its tail; None if
    it is.

    A tie is not worth it by the values, but may be within the interval of the gain.
    """
    a, b = current.metrics[rate], further.metrics[rate]
    if a.value <= 0 or b.value <= 0:
        gain, reach = math.inf if b.value > a.value else -math.inf, 0.0
    else:
        gain = math.log(b.value / a.value)
        reach = 0.0 if point_estimates else math.hypot(_log_reach(a, upwards=False), _log_reach(b, upwards=True))
    name, cost = _worst_tail(current, further, limits)
    bar = max(NOISE, math.log2(cost) * TAIL_PRICE)
    if gain > bar:
        return None
    return RejectedStep(further.load, math.expm1(gain), name, cost, tie=NOISE < gain <= bar < gain + reach)


def _log_reach(e: Estimate, *, upwards: bool) -> float:
    """How far the interval reaches to one side, in ln; infinite where no interval is known."""
    edge = e.high if upwards else e.low
    if not math.isfinite(edge) or edge <= 0:
        return math.inf
    return abs(math.log(edge / e.value))


def _worst_tail(current: Point, further: Point, limits: Sequence[Limit]) -> tuple[str, float]:
    """The limited per-request metric that grows most, and by what factor; throughput and error
    limits are no tails.
    """
    name, factor = limits[0].metric, 0.0
    for limit in limits:
        a, b = current.value(limit.metric), further.value(limit.metric)
        growth = limit.of.worsening(a, b) if limit.of.quantity is not None and a > 0 and b > 0 else 0.0
        if growth > factor:
            name, factor = limit.metric, growth
    return name, factor or 1.0


def _unworthy(
    chosen: Point | None, points: Iterable[Point], limits: Sequence[Limit], rate: str | None
) -> tuple[Load, ...]:
    """The settings that would not be worth their tail even if they were proven, seen from the
    operating point.
    """
    if chosen is None or rate is None:
        return ()
    others = [p for p in points if rate in p.metrics and p is not chosen]
    return tuple(p.load for p in others if _unworthy_step(chosen, p, limits, rate, point_estimates=False))


def _preferred(
    chosen: Point | None, points: Iterable[Point], limits: Sequence[Limit], rate: str | None
) -> dict[Load, RejectedStep]:
    """The lower settings from which the step to the operating point would clearly not be worth its
    tail, each with that step: were one of them proven, it would be the answer.
    """
    if chosen is None or rate is None or chosen.load.is_open:
        return {}
    lower = (p for p in points if p.load < chosen.load and rate in p.metrics)
    steps = {p.load: _unworthy_step(p, chosen, limits, rate, point_estimates=False) for p in lower}
    return {
        c: step
        for c, step in steps.items()
        if step is not None and math.log2(step.cost) * TAIL_PRICE - math.log1p(step.gain) > NOISE
    }


def _rejected(
    chosen: Point | None, feasible: Sequence[Point], limits: Sequence[Limit], rate: str | None, point_estimates: bool
) -> RejectedStep | None:
    """The step to the next higher feasible setting, which was not taken."""
    above = next((p for p in feasible if chosen is not None and p.load > chosen.load), None)
    if chosen is None or above is None or rate is None:
        return None
    return _unworthy_step(chosen, above, limits, rate, point_estimates)


def solve_all(
    points: Sequence[Point],
    limits: Sequence[Limit],
    *,
    scanned: Sequence[Point] = (),
    histories: Mapping[Series, History] | None = None,
    end: SweepEnding | None = None,
    **options: bool,
) -> tuple[Decision, ...]:
    """`solve` for each (deployment, shape), in the order they first appear; also for a series that
    was only `scanned`. `options` are passed on to `solve`.
    """
    groups, looks, known = by_series(points), by_series(scanned), histories or {}
    return tuple(
        solve(groups.get(s, ()), limits, scanned=looks.get(s, ()), history=known.get(s, ()), end=end, **options)
        for s in dict.fromkeys([*known, *groups, *looks])
        if s in groups or s in looks
    )


def exit_code(decisions: Sequence[Decision]) -> ExitCode:
    """The worst of all shapes: invalid 5, violates 3, marginal or unproven 4, meets 0. FAILED
    without any decision.

    A marginal setting the user asked to accept (it names a concurrency) counts as met.
    """
    return errors.exit_code(Verdict.MEETS if d.load is not None else d.verdict for d in decisions)
