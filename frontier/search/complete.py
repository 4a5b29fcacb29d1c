"""Completion: what to measure once the operating point is known, in the order of its value; pure,
as the search.

The answer comes first (`scan`). Then come, in this order:

- candidates that may give more
- settings of the config that were only scanned
- the gaps of the frontier between them

Visits of the operating point are spread over these, so that its claim covers more time.
`trials_left` counts all of these by the same rules, for the time left.
"""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from frontier.core.claim.changes import CLAIMED, MOST_CHANGES, PROOFS, History, spoilt
from frontier.core.claim.claim import claim_of, proof_windows
from frontier.core.claim.claimed import over_at_last
from frontier.core.claim.proof import MOST_SPOILT, WINDOWS, joined, pilot_point
from frontier.core.claim.undecided import CLEARLY_MORE
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.loads import Concurrency, Load
from frontier.core.model.points import Point
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Phase
from frontier.search import auto, scan, skipping
from frontier.search.claim_turns import MORE_TURNS, turns_expected, turns_to_go
from frontier.search.gaps import between, widest_gap
from frontier.search.next_trial import Ask, Done
from frontier.search.scan import VISIT_TURNS, SearchPolicy, settings_beyond, visit_of
from frontier.search.series_history import SeriesHistory, scans
from frontier.search.window_size import in_flight, longer, mean_e2e, requests_per_arrival, window_size

FRONTIER_SETTINGS = 4
"""Settings between those of the config that are measured for the frontier, where the config does
not say."""
GRID_SECONDS = 45.0
"""A setting of the config is measured for this long, where the config does not say; its claim may
need less."""
USUAL_PROOF = 2.0
"""A proof usually takes this many times the windows of the least one: half of the proofs are
decided by the second judgement."""
MOST_LAST = 3
"""At the end of a series each visit may change the answer. At most this many settings beyond the
chosen ones are visited then."""
WORTH_NAMING = 0.02
"""The share of throughput that a better candidate must promise to be named with an announcement,
and decided later."""
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

    1. Better candidates, as an operating point that is proven later has to be visited itself: those
    that are worth their windows, and, once each, those that the headline would name as clearly
    more. A proof is begun where it fits `within` the seconds that are left of the budget.

    2. Settings of the config, alternating with visits of the operating point, so that the visits
    are spread over the time.

    3. Gaps: settings between those of the config.
    """
    known = _first_tier(tiers, history)
    doubtful = _doubtful(tiers, history)
    if doubtful is not None or len(known.kept.changes) >= MOST_CHANGES:
        return doubtful or last_ask(tiers, history) or Done("the server keeps changing")
    if policy.auto and not known.limits and (c := auto.next_higher(policy.grid, known.points, known.kept)) is not None:
        return scan.look_at(policy, known.points, c, f"looking at {c.label}, while throughput grows")
    listed = _settings_of(policy, tiers, known)
    policy = policy if policy.auto else listed
    better = (
        scan.next_ask(policy, shape, tiers, history, window_worth=LATER_WORTH, within=within) if known.limits else None
    )
    if isinstance(better, Ask):
        candidate = _affordable(better, known, within)
    else:
        candidate = _named(policy, tiers, history, within)
    rest = candidate or _completing(listed, known)
    return rest or last_ask(tiers, history) or Done("the frontier is complete")


def _first_tier(tiers: Sequence[tuple[str, Sequence[Limit]]], history: History) -> SeriesHistory:
    """The series under the first SLA, by which its frontier is completed, or under none."""
    return SeriesHistory.of(tiers[0][1] if tiers else (), history)


def _under_each(tiers: Sequence[tuple[str, Sequence[Limit]]], history: History) -> list[SeriesHistory]:
    """The series under each SLA that has limits."""
    return [SeriesHistory.of(limits, history) for _, limits in tiers if limits]


def _completing(policy: SearchPolicy, known: SeriesHistory) -> Ask | None:
    """The next trial that completes the frontier where no better candidate comes first."""
    setting, gap = _setting(policy, known), _gap(policy, known)
    first, second = (gap, setting) if gap is not None and may_be_better(gap, known) else (setting, gap)
    rest = first or second
    visit = next_visit(known) if known.limits else None
    visited_last = bool(known.kept) and known.kept[-1][0].phase is Phase.VISIT
    if visit is not None and (rest is None or not visited_last):
        return visit
    return rest or _repeat_unconfirmed(policy, known)


def _affordable(better: Ask, known: SeriesHistory, within: float) -> Ask | None:
    """The trial of the better candidate with its value; None where something is proven, and its
    own proof is not begun and would not end `within` the seconds given.
    """
    seconds = _seconds(better, known.points)
    if known.operating_point is not None and not known.begun(better.load) and USUAL_PROOF * WINDOWS * seconds > within:
        return None
    return replace(better, value=max(0.0, known.gain(better.load)) / (WINDOWS * seconds))


def last_ask(
    tiers: Sequence[tuple[str, Sequence[Limit]]], history: History, *, marginal_gain: bool = True
) -> Ask | None:
    """The trial that a series ends with; None where it ends so already.

    It is a window of each chosen setting, after all others, as a claim is about the server as it
    was when its series ended; also after those that another server answered. A load whose last
    window differs from the earlier ones is measured again before that.
    """
    if (doubtful := _doubtful(tiers, history)) is not None:
        return doubtful
    solved = (known.decide(marginal_gain=marginal_gain) for known in _under_each(tiers, history))
    chosen = list(dict.fromkeys(d.load for d in solved if d is not None and d.load is not None))
    clean = [trial for trial, sample in history if not spoilt(sample)]
    asked = [(t, sample) for t, sample in history if not spoilt(sample) or any(sample.changed)]
    last = {t.load for t, sample in asked[-len(chosen) :] if t.phase in CLAIMED and not spoilt(sample)}
    missing = [c for c in chosen if c not in last]
    in_vain = all(spoilt(sample) for _, sample in history[-MOST_SPOILT:])
    visits = itertools.takewhile(lambda trial: trial.phase is Phase.VISIT, reversed(clean))
    if not missing or in_vain or len({trial.load for trial in visits}) > len(chosen) + MOST_LAST:
        return None
    points = _first_tier(tiers, history).points
    return visit_of(missing[0], points, f"the last look at {missing[0].label}")


def _doubtful(tiers: Sequence[tuple[str, Sequence[Limit]]], history: History) -> Ask | None:
    """Another window where the last one raises a doubt; None without a doubt. These are measured
    again:

    - a load whose last window differs from the earlier ones, or is over a limit that they all keep;
      not where this machine is too busy to measure it
    - the setting that was the operating point until the server changed
    - the highest setting that meets, where a lower one was over a limit since
    - the highest setting in doubt by the tail of a higher one, where there is no answer without it
    """
    for known in _under_each(tiers, history):
        for c in (*known.kept.suspect, *over_at_last(known.kept, known.limits)):
            last = [sample for trial, sample in history if trial.load == c][-MOST_SPOILT:]
            if not all(spoilt(sample) for sample in last):
                reason = f"{c.label} is not as it was; measuring it again"
                return visit_of(c, known.points, reason)
        if (again := scan.revisit(known) or _contradicted(known) or _put_in_doubt(known)) is not None:
            return again
    return None


def _contradicted(known: SeriesHistory) -> Ask | None:
    """Another window of the highest setting that meets, where a lower one was over a limit since;
    else None. The server may have changed, or latency may not grow with load: only windows of one
    load can show which.
    """
    decision = known.decision
    meeting = [j.load for j in decision.judgements if j.verdict is Verdict.MEETS] if decision else []
    if decision is None or not meeting:
        return None
    highest, over = max(meeting), {*decision.holes, *decision.unconfirmed}
    places = {trial.load: k for k, (trial, _) in enumerate(known.kept)}
    if all(places[c] < places[highest] for c in over if c in places):
        return None
    reason = f"{highest.label} met the SLA before a lower setting was over it; measuring it again"
    return visit_of(highest, known.points, reason)


def _put_in_doubt(known: SeriesHistory) -> Ask | None:
    """A window of the highest setting that the tail of a higher one put in doubt; None where it was
    measured since, and where there is an operating point without it.
    """
    unseen = [c for c in known.kept.doubted if c not in known.points]
    if known.operating_point is not None or not unseen:
        return None
    if all(spoilt(sample) for _, sample in known.every[-MOST_SPOILT:]):
        return None
    c = max(unseen)
    points = {k: pilot_point(sample, known.limits) for k, sample in joined(known.every, tuple(Phase)).items()}
    return visit_of(c, points, f"a higher setting showed another tail; is {c.label} as it was?")


def _named(
    policy: SearchPolicy, tiers: Sequence[tuple[str, Sequence[Limit]]], history: History, within: float
) -> Ask | None:
    """The first window of a proof of the undecided setting that the answer would name as clearly
    more.

    None where there is no such setting, its proof was begun before, or it does not end `within` the
    seconds given.
    """
    ask = _first_named(tiers, history)
    if ask is None or ask.load >= policy.lost:
        return None
    known = _first_tier(tiers, history)
    seconds = WINDOWS * _seconds(ask, known.points)
    value = max(0.0, known.gain(ask.load)) / seconds
    return replace(ask, value=value) if USUAL_PROOF * seconds <= within else None


def _first_named(tiers: Sequence[tuple[str, Sequence[Limit]]], every: History) -> Ask | None:
    """`_named`, however long it takes; a proof counts as begun only since the server last
    changed.
    """
    for known in _under_each(tiers, every):
        decision = known.decision
        step = None if decision is None or decision.load is None else decision.next_step
        if step is None or step.requests is None or step.load.is_open:
            continue
        c = step.load
        if known.begun(c) or (known.gain(c) < CLEARLY_MORE and step.tail is None):
            continue  # of less gain only beside a violation that what is proven contradicts
        why = "may be preferred for its tail to" if step.tail else "may give clearly more than"
        return window_of_proof(c, known, f"{c.label} {why} what is proven; proving it")
    return None


def window_of_proof(c: Load, known: SeriesHistory, reason: str = "") -> Ask:
    """The next window of a proof at c, of the size that the first window had."""
    size = window_size(scans(known.kept), known.limits, c, known.before(c))
    return Ask(c, Phase.PROVE, size, reason)


def _repeat_unconfirmed(policy: SearchPolicy, known: SeriesHistory) -> Ask | None:
    """A second trial of a setting that was over a limit in its only trial, although a higher
    setting is proven; None without one.

    It comes last, so that what disturbed the first trial is over. The highest such setting comes
    first.
    """
    if not known.limits or not known.unconfirmed:
        return None
    c = max(known.unconfirmed)
    mine = [trial for trial, _ in known.kept if trial.load == c]
    first = next((trial for trial in mine if trial.phase is not Phase.VISIT), mine[0])
    reason = f"{c.label} was over a limit in its only trial, and a higher setting is proven"
    phase = Phase.GRID if c in policy.grid else Phase.FRONTIER
    seconds = None if policy.requests else longer(GRID_SECONDS, c, known.points)
    return Ask(c, phase, first.requests, reason, seconds)


def may_be_better(ask: Ask, known: SeriesHistory) -> bool:
    """Whether a setting may be within the SLA, and gives enough more throughput than the operating
    point to be named.
    """
    if not known.limits:
        return False
    outside = min((c for c in known.points if c > (known.edge() or 0)), default=math.inf)
    inside = ask.phase is Phase.PROVE or ask.load < outside
    return inside and known.gain(ask.load) > WORTH_NAMING


def _seconds(ask: Ask, points: Mapping[Load, Point]) -> float:
    """About how long a window lasts, as requests take at the nearest setting."""
    e2e = mean_e2e(ask.load, points) or 1.0
    return min(ask.seconds or math.inf, ask.requests * e2e / in_flight(ask.load, points))


def next_visit(known: SeriesHistory) -> Ask | None:
    """Another visit of the operating point, until its claim is final or it has had its turns; then
    None.

    A bet over turns may be ended at any moment (`claim.capital`). The value of a visit is by how
    much it lowers the share of time that a stall can take unseen, per second.
    """
    c, limits = known.operating_point, known.limits
    if c is None:
        return None
    claim = claim_of(proof_windows(known.kept, c, limits), limits)
    if claim is None or claim.stage == "final" or claim.turns >= MORE_TURNS * turns_expected(limits, known.kept, c):
        return None
    visit = visit_of(c, known.points, f"{c.label} is proven over {claim.turns} request lifetimes; measured again")
    unseen = 1 - 0.05 ** (1 / (claim.turns + VISIT_TURNS))
    return replace(visit, value=max(0.0, claim.unseen_share - unseen) / _seconds(visit, known.points))


# -- what is to come


def trials_left(
    policy: SearchPolicy, tiers: Sequence[tuple[str, Sequence[Limit]]], history: History, point: Load | None
) -> list[tuple[Ask, int]]:
    """The trials that complete the frontier, and the number of each, if nothing surprising is
    measured. Proofs of better candidates are not among them. `point` is the operating point; before
    there is one, the setting that is expected to become it.
    """
    if not policy.grid:
        return []  # the server was lost under the lowest setting
    known = _first_tier(tiers, history)
    limits, kept = known.limits, known.kept
    policy = _settings_of(policy, tiers, known)
    points = dict(known.points)
    trials = [(_setting_ask(policy, c, known), 1) for c in _settings_left(policy, kept) if c != point]
    gaps = _gaps_allowed(policy, kept)
    if len(policy.grid) < 2 and (not limits or policy.top == 1):
        gaps = 0  # nothing is scanned, or nothing below: one setting leaves no gap
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
        owed = math.ceil(turns_to_go(limits, kept, point) / _turns_of(visit, points))
        ends = not trials and bool(kept) and kept[-1][0].load == point
        trials.append((visit, max(owed, 0 if ends else 1)))  # the series ends with a window of it
    return [(ask, count) for ask, count in trials if count]


def _turns_of(visit: Ask, points: Mapping[Load, Point]) -> float:
    """How many turns a visit lasts."""
    e2e = mean_e2e(visit.load, points)
    return VISIT_TURNS if e2e is None else min(VISIT_TURNS, (visit.seconds or math.inf) / e2e)


def _midpoint(gap: tuple[Load, Load], points: Mapping[Load, Point]) -> tuple[Load, Point]:
    """The expected point in the middle of a gap: half way between its ends, in the logarithm."""
    c, low, high = between(*gap), points[gap[0]], points[gap[1]]

    def middle(a: float, b: float) -> float:
        return math.sqrt(a * b) if 0 < min(a, b) and max(a, b) < math.inf else max(a, b)

    metrics = {
        name: replace(e, value=middle(e.value, high.metrics[name].value))
        for name, e in low.metrics.items()
        if name in high.metrics
    }
    return c, replace(low, load=c, metrics=metrics)


# -- settings and gaps


def skip_reason(concurrency: Load, tiers: Sequence[tuple[str, Sequence[Limit]]], history: History) -> str | None:
    """Why a setting of the config would show nothing new, under any of the SLAs; None to measure
    it.
    """
    reasons = [skipping.skip_reason(concurrency, history, limits) for limits in [tier for _, tier in tiers] or [()]]
    return reasons[-1] if None not in reasons else None


def _settings_of(
    policy: SearchPolicy, tiers: Sequence[tuple[str, Sequence[Limit]]], known: SeriesHistory
) -> SearchPolicy:
    """The policy with the settings of the frontier as its grid, less those that would be skipped.
    They are the settings of the config or, where it lists none, settings around the operating point
    or edge.
    """
    grid, history = policy.grid, known.kept
    if policy.auto:
        edge = (known.operating_point or known.edge() or Concurrency(1)) if known.limits else auto.bend(known.points)
        grid = auto.around(edge, policy.top)
    measured = {trial.load for trial, _ in history}
    kept = (c for c in grid if c in measured or skip_reason(c, tiers, history) is None)
    return replace(policy, grid=tuple(kept))


def _setting(policy: SearchPolicy, known: SeriesHistory) -> Ask | None:
    """A setting of the config that was only scanned or not seen, the one next to the SLA's edge
    first.
    """
    left = _settings_left(policy, known.kept)
    if not left:
        return None
    middle = known.edge() or max(policy.grid)
    c = min(left, key=lambda c: (abs(math.log(c / middle)), c))
    return _setting_ask(policy, c, known)


def _settings_left(policy: SearchPolicy, history: History) -> list[Load]:
    measured = Counter(trial.load for trial, _ in history if trial.phase in (*PROOFS, Phase.GRID))
    return [c for c in policy.grid if measured[c] < policy.repeats]


def _setting_ask(policy: SearchPolicy, c: Load, known: SeriesHistory) -> Ask:
    """A trial of a setting of the frontier, with as many requests as its proof would take: they
    usually bound its percentiles.
    """
    streams = math.ceil(in_flight(c, known.points))
    requests = policy.requests or _usual(c, known.points)
    if policy.requests is None and known.limits and (seen := joined(known.kept, tuple(Phase))):
        requests = WINDOWS * window_size(seen, known.limits, streams)
    seconds = None if policy.requests else longer(GRID_SECONDS, c, known.points)
    return Ask(
        c, Phase.GRID, requests, f"{c.label} is a setting of the {'frontier' if policy.auto else 'config'}", seconds
    )


def _gap(policy: SearchPolicy, known: SeriesHistory) -> Ask | None:
    """A setting where the frontier is least known, while settings beyond the config's are left."""
    gap = widest_gap(known.points, known.limits) if _gaps_allowed(policy, known.kept) else None
    return None if gap is None else _gap_ask(policy, gap, known.points)


def _usual(c: Load, points: Mapping[Load, Point]) -> int:
    """Requests of a setting that needs no proof; of a rate, as many as arrive in the time of its
    window.
    """
    if c.per_second is None:
        return 20 * math.ceil(in_flight(c, points))
    return math.ceil(GRID_SECONDS * c.per_second * requests_per_arrival(points))


def _gaps_allowed(policy: SearchPolicy, history: History) -> int:
    if policy.refine is not None:
        return max(0, policy.refine - len(settings_beyond(policy, history)))
    return max(0, FRONTIER_SETTINGS - len({t.load for t, _ in history if t.phase is Phase.FRONTIER}))


def _gap_ask(policy: SearchPolicy, gap: tuple[Load, Load], points: Mapping[Load, Point]) -> Ask:
    c = between(*gap)
    reason = f"the frontier is widest between {gap[0].label} and {gap[1].label}"
    seconds = None if policy.requests else longer(GRID_SECONDS, c, points)
    return Ask(c, Phase.FRONTIER, policy.requests or _usual(c, points), reason, seconds)
