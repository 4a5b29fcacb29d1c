"""Completion: what to measure once the operating point is known, in the order of its value; pure,
as the search.

The answer comes first (`search`). Then come candidates that may give more; the settings of the
config that were only scanned; the gaps of the frontier between them; and, spread over these, visits
of the operating point, by which its claim covers more of the night. `trials_left` counts all of
these by the same rules, for the time left.
"""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from frontier.core import solver
from frontier.core.causes import CLEARLY_MORE
from frontier.core.changes import CLAIMED, MOST_CHANGES, PROOFS, History, Unchanged, spoilt, unchanged
from frontier.core.claim import claim_of, proof_windows
from frontier.core.decisions import Decision, Limit, Verdict
from frontier.core.loads import Rate, setting
from frontier.core.points import Point
from frontier.core.proof import (
    MOST_SPOILT,
    WINDOWS,
    candidates,
    claim_points,
    joined,
    nearest,
    over_at_last,
    pilot_point,
    scans,
    violation,
)
from frontier.core.shapes import Shape
from frontier.core.trials import Phase
from frontier.core.verdict import judge
from frontier.search import scan
from frontier.search.claim_turns import MORE_TURNS, turns_expected, turns_to_go
from frontier.search.scan import (
    VISIT_TURNS,
    Ask,
    Done,
    SearchPolicy,
    between,
    in_flight,
    longer,
    mean_e2e,
    settings_beyond,
    visit_of,
    widest_gap,
)
from frontier.search.window_size import window_size

FRONTIER_SETTINGS = 4
"""Settings between those of the config that are measured for the frontier, where the config does
not say."""
GRID_SECONDS = 45.0
"""A setting of the config is measured for this long, where the config does not say; its claim may
need less."""
USUAL_PROOF = 2.0
"""How many times the least proof one usually takes: half of them are decided at the second
judgement at the latest."""
MOST_LAST = 3
"""So many settings more than are chosen are visited at the end, where each visit changes the
answer, before it is left at that."""
WORTH_NAMING = 0.02
"""A better candidate is named with an announcement, and decided later, when it may give so much
more, as a share."""
LATER_WORTH = 0.0015
"""The share of throughput for which one more window of a proof is measured once there is an answer.
"""


def next_ask(
    policy: SearchPolicy,
    shape: Shape,
    tiers: Sequence[tuple[str, Sequence[Limit]]],
    history: History,
    *,
    within: float = math.inf,
) -> Ask | Done:
    """The next trial that completes the frontier of one series; Done when there is none. The same
    arguments give the same trial. Without limits only the frontier is completed.

    First comes what may be better, as an operating point that is proven later has to be visited
    itself: what is worth its windows, and what the headline would name as clearly more even where
    the search sees no chance, each setting once. A proof is begun where it fits `within` so many
    seconds, which are what is left of the budget. Then the settings of the config and visits of the
    operating point, in turns, so that the visits are spread over the time; and last settings
    between those of the config.
    """
    limits, every = tuple(tiers[0][1]) if tiers else (), history
    doubtful, history = _doubtful(tiers, every), unchanged(history, limits)
    if doubtful is not None or len(history.changes) >= MOST_CHANGES:
        return doubtful or last_ask(tiers, every) or Done("the server keeps changing")
    policy = _without_skipped(policy, tiers, history)
    better = scan.next_ask(policy, shape, tiers, every, window_worth=LATER_WORTH) if limits else None
    if isinstance(better, Ask):
        candidate = _affordable(better, limits, history, within)
    else:
        candidate = _named(policy, tiers, every, within)
    rest = candidate or _completing(policy, limits, history)
    return rest or last_ask(tiers, every) or Done("the frontier is complete")


def _completing(policy: SearchPolicy, limits: tuple[Limit, ...], history: History) -> Ask | None:
    """The next trial that completes the frontier where no better candidate comes first."""
    setting, gap = _setting(policy, limits, history), _gap(policy, limits, history)
    first, second = (gap, setting) if gap is not None and may_be_better(gap, limits, history) else (setting, gap)
    rest = first or second
    visit = next_visit(limits, history) if limits else None
    if visit is not None and (rest is None or not _is_after(history, Phase.VISIT)):
        return visit
    return rest or _again(policy, limits, history)


def _affordable(better: Ask, limits: tuple[Limit, ...], history: History, within: float) -> Ask | None:
    """The next trial of what may be better, with its worth; None where its proof is not begun and
    does not end `within` so many seconds.
    """
    seconds = _seconds(better, pilot_points(limits, history))
    if not _begun(better, history) and USUAL_PROOF * WINDOWS * seconds > within:
        return None
    return replace(better, value=max(0.0, gain(better.concurrency, limits, history)) / (WINDOWS * seconds))


def last_ask(
    tiers: Sequence[tuple[str, Sequence[Limit]]], history: History, *, marginal_gain: bool = True
) -> Ask | None:
    """What a series ends with: a window of each setting that is chosen, after all others, as a
    claim is about the server as it was when its series ended; and of a load whose last window
    differs from those before it. None where it ends so.
    """
    if (doubtful := _doubtful(tiers, history)) is not None:
        return doubtful
    solved = (
        _solved(tuple(limits), unchanged(history, limits), marginal_gain=marginal_gain) for _, limits in tiers if limits
    )
    chosen = list(dict.fromkeys(d.concurrency for d in solved if d is not None and d.concurrency is not None))
    clean = [trial for trial, sample in history if not spoilt(sample)]
    last = {t.concurrency for t in clean[-len(chosen) :] if t.phase in CLAIMED}
    missing = [c for c in chosen if c not in last]
    in_vain = all(spoilt(sample) for _, sample in history[-MOST_SPOILT:])
    visits = itertools.takewhile(lambda trial: trial.phase is Phase.VISIT, reversed(clean))
    if not missing or in_vain or len({trial.concurrency for trial in visits}) > len(chosen) + MOST_LAST:
        return None
    limits = tuple(tiers[0][1])
    return visit_of(missing[0], pilot_points(limits, history), f"the last look at {setting(missing[0])}")


def _doubtful(tiers: Sequence[tuple[str, Sequence[Limit]]], history: History) -> Ask | None:
    """Another window of a load whose last one differs from those before it, or is over a limit that
    all keep, unless this machine is too busy to measure it; one of what was the operating point
    until the server changed; and one of a setting that meets, where a lower one was over a limit
    since.
    """
    for limits in (tuple(limits) for _, limits in tiers if limits):
        for c in (*unchanged(history, limits).suspect, *over_at_last(history, limits)):
            last = [sample for trial, sample in history if trial.concurrency == c][-MOST_SPOILT:]
            if not all(spoilt(sample) for sample in last):
                reason = f"{setting(c)} is not as it was; measuring it again"
                return visit_of(c, pilot_points(limits, history), reason)
        again = scan.revisit(limits, history) or _contradicted(limits, unchanged(history, limits))
        if again is not None:
            return again
    return None


def _contradicted(limits: tuple[Limit, ...], history: Unchanged) -> Ask | None:
    """Another window of the highest setting that meets, where a lower one was over a limit since.
    The server may have changed, or latency may not grow with load: only windows of one load tell.
    """
    decision = _solved(limits, history, marginal_gain=True)
    meeting = [j.concurrency for j in decision.judgements if j.verdict is Verdict.MEETS] if decision else []
    if decision is None or not meeting:
        return None
    highest, over = max(meeting), {*decision.holes, *decision.unconfirmed}
    places = {trial.concurrency: k for k, (trial, _) in enumerate(history)}
    if all(places[c] < places[highest] for c in over if c in places):
        return None
    reason = f"{setting(highest)} met the SLA before a lower setting was over it; measuring it again"
    return visit_of(highest, pilot_points(limits, history), reason)


@functools.lru_cache(maxsize=64)
def _solved(limits: tuple[Limit, ...], history: Unchanged, *, marginal_gain: bool) -> Decision | None:
    """The decision as an answer has it, settings that were only looked at included; None where
    nothing may be claimed of any setting.
    """
    points, looked = _decidable(limits, history)
    if not points:
        return None
    return solver.solve(points, limits, marginal_gain=marginal_gain, scanned=looked, history=history)


def _named(
    policy: SearchPolicy, tiers: Sequence[tuple[str, Sequence[Limit]]], history: History, within: float
) -> Ask | None:
    """The first window of a proof of the setting that an answer would name as one that may give
    clearly more and is not decided; None where there is none, its proof was begun before, or it
    does not end `within` so many seconds.
    """
    ask = _first_named(tiers, history)
    if ask is None or ask.concurrency >= policy.lost:
        return None
    limits = tuple(tiers[0][1])
    seconds = WINDOWS * _seconds(ask, pilot_points(limits, history))
    value = max(0.0, gain(ask.concurrency, limits, history)) / seconds
    return replace(ask, value=value) if USUAL_PROOF * seconds <= within else None


def _first_named(tiers: Sequence[tuple[str, Sequence[Limit]]], every: History) -> Ask | None:
    """`_named`, whatever time it takes; begun of the server as it is now."""
    for limits in (tuple(limits) for _, limits in tiers if limits):
        history = unchanged(every, limits)
        begun = {trial.concurrency for trial, _ in history if trial.phase is Phase.PROVE}
        decision = _solved(limits, history, marginal_gain=True)
        step = None if decision is None or decision.concurrency is None else decision.next_step
        if step is None or step.requests is None or step.concurrency in begun or isinstance(step.concurrency, Rate):
            continue
        c = step.concurrency
        if gain(c, limits, history) < CLEARLY_MORE:
            continue  # only beside a violation that what is proven contradicts
        return window_of_proof(
            c, limits, history, f"{setting(c)} may give clearly more than what is proven; proving it"
        )
    return None


def window_of_proof(c: int, limits: tuple[Limit, ...], history: History, reason: str = "") -> Ask:
    """The next window of a proof at c, of the size that its first had."""
    history = unchanged(history, limits)
    earlier = tuple(itertools.takewhile(lambda k: k.concurrency != c, candidates(history, limits)))
    return Ask(c, Phase.PROVE, window_size(nearest(scans(history), c), limits, c, earlier), reason)


def _decidable(limits: tuple[Limit, ...], history: History) -> tuple[list[Point], list[Point]]:
    """What is decided on: the settings of which something may be claimed, and those looked at that
    violate a limit; and the others that were only looked at.
    """
    claims = claim_points(history, limits, names=("output_throughput", *(limit.metric for limit in limits)))
    known = {p.concurrency for p in claims}
    others = [p for c, p in pilot_points(limits, history).items() if c not in known]
    violating = [p for p in others if judge(p, limits).verdict is Verdict.VIOLATES]
    return [*claims, *violating], [p for p in others if p not in violating]


@functools.lru_cache(maxsize=256)
def stands(c: int, limits: tuple[Limit, ...], history: Unchanged) -> Verdict:
    """MEETS: proven below every violation; VIOLATES: not, and more of a proof decides nothing; else
    UNPROVEN.
    """
    points, _ = _decidable(limits, history)
    if not points:
        return Verdict.UNPROVEN
    decision = solver.solve(points, limits)
    judged = decision.judgement(c)
    if decision.first_fail is not None and decision.first_fail <= c:
        return Verdict.VIOLATES
    if judged is not None and judged.verdict is Verdict.MEETS:
        return Verdict.MEETS
    ended = any(k.concurrency == c and k.verdict is not Verdict.UNPROVEN for k in candidates(history, limits))
    return Verdict.VIOLATES if ended else Verdict.UNPROVEN


def _again(policy: SearchPolicy, limits: tuple[Limit, ...], history: History) -> Ask | None:
    """A second trial of a setting that was over a limit in its only one although a higher setting
    is proven: last, so that what disturbed the first is over. The one with the most throughput
    first.
    """
    again = unconfirmed(limits, history)
    if not again:
        return None
    c = max(again)
    mine = [trial for trial, _ in history if trial.concurrency == c]
    first = next((trial for trial in mine if trial.phase is not Phase.VISIT), mine[0])
    reason = f"{setting(c)} was over a limit in its only trial, and a higher setting is proven"
    phase = Phase.GRID if c in policy.grid else Phase.FRONTIER
    seconds = None if policy.requests else longer(GRID_SECONDS, c, pilot_points(limits, history))
    return Ask(c, phase, first.requests, reason, seconds)


def unconfirmed(limits: tuple[Limit, ...], history: History) -> tuple[int, ...]:
    """The settings whose violation in one trial does not count yet (see `Decision.unconfirmed`)."""
    points = _decidable(limits, history)[0] if limits else []
    return solver.solve(points, limits).unconfirmed if points else ()


def may_be_better(ask: Ask, limits: tuple[Limit, ...], history: History) -> bool:
    """Whether a setting may be inside the SLA and give enough more than the operating point to be
    worth naming.
    """
    points = pilot_points(limits, history)
    outside = min((c for c in points if c > (edge(limits, points) or 0)), default=math.inf)
    inside = ask.phase is Phase.PROVE or ask.concurrency < outside
    return bool(limits) and inside and gain(ask.concurrency, limits, history) > WORTH_NAMING


def _begun(ask: Ask, history: History) -> int:
    """How many windows of its proof are measured."""
    return sum((t.phase, t.concurrency) == (Phase.PROVE, ask.concurrency) for t, _ in history)


def gain(concurrency: int, limits: tuple[Limit, ...], history: History) -> float:
    """The throughput to expect at a setting over that of the operating point, less 1; 1 where there
    is none.

    On straight lines in the logarithm of concurrency between what was measured; beyond it that of
    the nearest.
    """
    point = operating_concurrency(limits, history)
    rates = {
        c: p.metrics["output_throughput"].value
        for c, p in pilot_points(limits, history).items()
        if "output_throughput" in p.metrics
    }
    if point is None or not rates.get(point, 0.0) > 0:
        return 1.0
    known = sorted(rates)
    return float(np.interp(math.log(concurrency), np.log(known), [rates[c] for c in known])) / rates[point] - 1


def _seconds(ask: Ask, points: Mapping[int, Point]) -> float:
    """About how long a window lasts, as requests take at the nearest setting."""
    e2e = mean_e2e(ask.concurrency, points) or 1.0
    return min(ask.seconds or math.inf, ask.requests * e2e / in_flight(ask.concurrency, points))


def _is_after(history: History, phase: Phase) -> bool:
    """Whether the last trial was of this phase."""
    return bool(history) and history[-1][0].phase is phase


def operating_concurrency(limits: tuple[Limit, ...], history: History) -> int | None:
    """The operating point by what may be claimed so far; None where there is none."""
    return _operating_concurrency(limits, unchanged(history, limits))


@functools.lru_cache(maxsize=64)
def _operating_concurrency(limits: tuple[Limit, ...], history: Unchanged) -> int | None:
    names = ("output_throughput", *(limit.metric for limit in limits))
    points = claim_points(history, limits, names=names)
    return solver.solve(points, limits).concurrency if points else None


def next_visit(limits: tuple[Limit, ...], history: History) -> Ask | None:
    """Another visit of the operating point, until its claim is final or it has had its turns (a bet
    over turns may be ended at any moment: `claim.capital`). Its value is by how much
    less of the time a stall can be that the claim has not seen, per second.
    """
    c = operating_concurrency(limits, history)
    if c is None:
        return None
    claim = claim_of(proof_windows(history, c, limits), limits)
    if claim is None or claim.stage == "final" or claim.turns >= MORE_TURNS * turns_expected(limits, history, c):
        return None
    points = pilot_points(limits, history)
    visit = visit_of(c, points, f"the claim of {setting(c)} covers {claim.turns} turns; visiting it again")
    unseen = 1 - 0.05 ** (1 / (claim.turns + VISIT_TURNS))
    return replace(visit, value=max(0.0, claim.unseen_share - unseen) / _seconds(visit, points))


def worth_proving(
    settings: Sequence[int], limits: tuple[Limit, ...], history: History, *, shared: bool = False
) -> tuple[int, ...]:
    """Those of these settings whose proof can change the answer, by all other data: below every
    setting that violates a limit, and above the operating point or seen to give more. Without data
    each can. Where one concurrency is `shared` by several shapes, a lower one that is not proven
    can as well.
    """
    others = [(trial, sample) for trial, sample in history if trial.concurrency not in settings]
    names = ("output_throughput", *(limit.metric for limit in limits))
    points = claim_points(others, limits, names=names)
    if not points:  # nothing else was measured, or all of it before the server changed
        return tuple(settings)
    decision = solver.solve(points, limits)
    point, most = decision.concurrency or 0, decision.first_fail or math.inf

    def changes(c: int) -> bool:
        lacks = shared and stands(c, limits, unchanged(history, limits)) is Verdict.UNPROVEN
        return c > point or c in decision.unconfirmed or lacks or gain(c, limits, history) > 0

    return tuple(c for c in settings if c < most and changes(c))


# -- what is to come


def trials_left(
    policy: SearchPolicy, tiers: Sequence[tuple[str, Sequence[Limit]]], history: History, point: int | None
) -> list[tuple[Ask, int]]:
    """The trials that complete the frontier, and how many of each, if none of them surprises;
    without proofs of better candidates. `point` is the operating point; before there is one, the
    setting that it is expected to be.
    """
    limits = tuple(tiers[0][1]) if tiers else ()
    history = unchanged(history, limits)
    policy = _without_skipped(policy, tiers, history)
    points = dict(pilot_points(limits, history))
    trials = [(_setting_ask(policy, limits, c, history), 1) for c in _settings_left(policy, history) if c != point]
    gaps = _gaps_allowed(policy, history)
    if not limits and len(policy.grid) < 2:
        gaps = 0  # nothing is scanned, and one setting leaves no gap
    if gaps and len(points) < 3:  # before the scan each of them is expected to be needed
        middle = len(policy.grid) // 2
        trials.append((_gap_ask(policy, (policy.grid[max(0, middle - 1)], policy.grid[middle]), points), gaps))
    for _ in range(gaps if len(points) >= 3 else 0):
        gap = widest_gap(points, limits)
        if gap is None:
            break
        trials.append((_gap_ask(policy, gap, points), 1))
        points = dict(sorted([*points.items(), _midpoint(gap, points)]))
    if limits and point is not None:
        visit = visit_of(point, points)
        owed = math.ceil(turns_to_go(limits, history, point) / _turns_of(visit, points))
        ends = not trials and bool(history) and history[-1][0].concurrency == point
        trials.append((visit, max(owed, 0 if ends else 1)))  # the series ends with a window of it
    return [(ask, count) for ask, count in trials if count]


def _turns_of(visit: Ask, points: Mapping[int, Point]) -> float:
    """How many turns a visit lasts."""
    e2e = mean_e2e(visit.concurrency, points)
    return VISIT_TURNS if e2e is None else min(VISIT_TURNS, (visit.seconds or math.inf) / e2e)


def _midpoint(gap: tuple[int, int], points: Mapping[int, Point]) -> tuple[int, Point]:
    """The point to expect in the middle of a gap: half way between its ends, in the logarithm."""
    c, low, high = between(*gap), points[gap[0]], points[gap[1]]

    def middle(a: float, b: float) -> float:
        return math.sqrt(a * b) if 0 < min(a, b) and max(a, b) < math.inf else max(a, b)

    metrics = {
        name: replace(e, value=middle(e.value, high.metrics[name].value))
        for name, e in low.metrics.items()
        if name in high.metrics
    }
    return c, replace(low, concurrency=c, metrics=metrics)


# -- settings and gaps


def skip_reason(concurrency: int, tiers: Sequence[tuple[str, Sequence[Limit]]], history: History) -> str | None:
    """Why a setting of the config would show nothing new, under any of the SLAs; None to measure
    it.
    """
    reasons = [scan.skip_reason(concurrency, history, limits) for limits in [tier for _, tier in tiers] or [()]]
    return reasons[-1] if None not in reasons else None


def _without_skipped(
    policy: SearchPolicy, tiers: Sequence[tuple[str, Sequence[Limit]]], history: History
) -> SearchPolicy:
    measured = {trial.concurrency for trial, _ in history}
    kept = (c for c in policy.grid if c in measured or skip_reason(c, tiers, history) is None)
    return replace(policy, grid=tuple(kept))


def _setting(policy: SearchPolicy, limits: tuple[Limit, ...], history: History) -> Ask | None:
    """A setting of the config that was only scanned or not seen, the one next to the SLA's edge
    first.
    """
    left = _settings_left(policy, history)
    if not left:
        return None
    points = pilot_points(limits, history)
    middle = edge(limits, points) or max(policy.grid)
    c = min(left, key=lambda c: (abs(math.log(c / middle)), c))
    return _setting_ask(policy, limits, c, history)


def _settings_left(policy: SearchPolicy, history: History) -> list[int]:
    measured = {trial.concurrency for trial, _ in history if trial.phase in (*PROOFS, Phase.GRID)}
    return [c for c in policy.grid if c not in measured]


def _setting_ask(policy: SearchPolicy, limits: tuple[Limit, ...], c: int, history: History) -> Ask:
    """As many requests as a proof of it would take: so many usually bound its percentiles."""
    points = pilot_points(limits, history)
    streams = math.ceil(in_flight(c, points))
    requests = policy.requests or _usual(c, points)
    if policy.requests is None and limits and (seen := joined(history, tuple(Phase))):
        requests = WINDOWS * window_size(nearest(seen, c), limits, streams)
    seconds = None if policy.requests else longer(GRID_SECONDS, c, points)
    return Ask(c, Phase.GRID, requests, f"{setting(c)} is a setting of the config", seconds)


def edge(limits: tuple[Limit, ...], points: Mapping[int, Point]) -> int | None:
    """The highest setting whose values are inside the SLA."""
    inside = [c for c, p in points.items() if (x := violation(p, limits)) is not None and x <= 0]
    return max(inside, default=None)


def pilot_points(limits: tuple[Limit, ...], history: History) -> Mapping[int, Point]:
    """What planning needs of every setting, by concurrency, from all of its trials."""
    return {c: pilot_point(sample, limits) for c, sample in joined(unchanged(history, limits), tuple(Phase)).items()}


def _gap(policy: SearchPolicy, limits: tuple[Limit, ...], history: History) -> Ask | None:
    """A setting where the frontier is least known, while settings beyond the config's are left."""
    points = pilot_points(limits, history)
    gap = widest_gap(points, limits) if _gaps_allowed(policy, history) else None
    return None if gap is None else _gap_ask(policy, gap, points)


def _usual(c: int, points: Mapping[int, Point]) -> int:
    """Requests of a setting of which nothing is to be proven; of a rate as many as arrive in the
    time that it has.
    """
    if not isinstance(c, Rate):
        return 20 * math.ceil(in_flight(c, points))
    each = next((p.shape.requests for p in points.values()), 1.0)
    return math.ceil(GRID_SECONDS * c.per_second * each)


def _gaps_allowed(policy: SearchPolicy, history: History) -> int:
    if policy.refine is not None:
        return max(0, policy.refine - len(settings_beyond(policy, history)))
    return max(0, FRONTIER_SETTINGS - len({t.concurrency for t, _ in history if t.phase is Phase.FRONTIER}))


def _gap_ask(policy: SearchPolicy, gap: tuple[int, int], points: Mapping[int, Point]) -> Ask:
    c = between(*gap)
    reason = f"the frontier is widest between {setting(gap[0])} and {setting(gap[1])}"
    seconds = None if policy.requests else longer(GRID_SECONDS, c, points)
    return Ask(c, Phase.FRONTIER, policy.requests or _usual(c, points), reason, seconds)
