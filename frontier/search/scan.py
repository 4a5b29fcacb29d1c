"""Search: where to measure next, as a pure function of what was measured.

In: the policy, the SLAs, and the finished trials of one series in their order. Out: the next trial
(`Ask`), or that the search is over (`Done`). Nothing is remembered between calls, so resuming a
sweep replays its history. A scan looks at few settings for a few seconds each and claims nothing. A
candidate is then placed a little below the edge of the SLA (`place`) and measured on fresh data
until it is proven or given up (`proof`). `complete` goes on from there.

The subtle part is the guarantee. All judgements of all candidates share the error ALPHA of a claim.
Each judgement spends a part of the error that is left, fixed before its data came, and each
candidate is tested on data of its own. So the search names a concurrency that breaks the SLA with
probability at most ALPHA = 5%, up to the coverage error of the bounds. This holds whichever
candidate comes next, and whether or not latency rises with concurrency.

With several tiers each tier errs with ALPHA, plus the chance that a candidate of another tier
breaks this tier and passes. docs/validation/calibration.md has the measured rates.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from frontier.core.claim.changes import CLAIMED, MOST_CHANGES, History, spoilt
from frontier.core.claim.proof import ASCENTS, MOST_SPOILT, STEADY, Candidate, attempts_over, joined, pilot_point
from frontier.core.claim.undecided import CLEARLY_MORE
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.loads import Concurrency, Load
from frontier.core.model.points import Point
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Phase
from frontier.search import auto, rates
from frontier.search.auto import LOOKS_AT_MOST
from frontier.search.gaps import between
from frontier.search.next_trial import Ask, Done
from frontier.search.options import corner, gives_way, is_overtaken, soonest
from frontier.search.place import LOWER, State, candidate
from frontier.search.series_history import SeriesHistory, scans
from frontier.search.window_size import in_flight, longer, requests_per_stream, window_size

SCAN_REQUESTS, SCAN_PER_STREAM, SCAN_SECONDS = 40, 4, 12.0
"""A scan's window holds this many requests, or this many of each stream, whichever is more; it ends
earlier when its time is over."""
WINDOW_WORTH = 0.008
"""The share of throughput for which one more window of a proof (a third of the least proof) is
measured."""
AFTER_ANSWER = 36
"""Windows spent on candidates that were not proven, after the first proven one. From then on only
candidates that may give clearly more are tried. It is as many windows as the longest proof takes.
"""
CORNER_TURNS, CORNER_SECONDS = 20, 45.0
"""The size of a trial beside an answer: a few percent of throughput decide there."""
VISIT_TURNS, VISIT_SECONDS = 30, 120.0
"""A visit lasts this many turns of a setting, or this long."""
SCAN_OF_TIME = 1 / 4
"""The share of the time after which looks only go on while no setting was seen within the SLA."""
CLOSE = 1.25
"""The scan ends when the edge is known within this factor."""
NEAR = 2.0
"""Once the edge is known within this factor, a scan ends whose setting to prove lies below it."""
SINGLE_FROM = 64
"""From this concurrency on, a scan without a list goes up by single steps: the edge often lies
there, and a look at four times the load costs four times as much."""


@dataclass(frozen=True, slots=True)
class SearchPolicy:
    """What the search may do.

    - `grid`: the settings to look at, those of the config; with `auto` the config lists none
    - `requests`: the size of a window that the config states; None: the search sizes its trials
    - `refine`: how many settings beyond the grid may be measured for looks, proofs and the
      frontier; None: as many as are worth their time
    - `prove`: the settings that the user asked to be proven
    - `lost`: the setting at which the server was lost
    - `warmup`: the least warm-up of a trial at a rate, in seconds
    - `repeats`: how often each setting of the frontier is measured
    - `marginal_gain`: whether settings are compared as the answer compares them, by throughput less
      the price of a longer tail; else by throughput alone
    """

    grid: tuple[Load, ...]
    requests: int | None = None
    refine: int | None = None
    prove: tuple[Load, ...] = ()
    lost: float = math.inf
    warmup: float = 0.0
    auto: bool = False
    repeats: int = 1
    marginal_gain: bool = False

    @property
    def top(self) -> Load:
        """The highest concurrency that may be asked for."""
        return max((*self.grid, *self.prove))


def next_ask(
    policy: SearchPolicy,
    shape: Shape,
    tiers: Sequence[tuple[str, Sequence[Limit]]],
    history: History,
    *,
    window_worth: float = WINDOW_WORTH,
    within: float = math.inf,
) -> Ask | Done:
    """The next trial of one (deployment, shape); Done when there is none. `history` holds all of
    its finished trials in the order in which they ended.

    `tiers` are named SLAs. The scan goes on until every tier's limit is located; then each is
    proven, the one with the lowest limit first: what is proven for it serves the looser ones too.
    `within` are the seconds that are left: while nothing is proven, a candidate that had a third of
    the time and does not fit them gives way to one that does. ValueError for trials of another
    shape.

    Nothing is remembered between calls: after a crash or an interruption the same arguments give
    the same next trial.
    """
    if any(trial.shape != shape for trial, _ in history):
        raise ValueError("the history holds trials of another shape")
    limited = [tuple(limits) for _, limits in tiers if limits]
    if not limited:
        return Done("no limit to search for")
    tried = [SeriesHistory.of(limits, history) for limits in limited]
    if len(tried[0].kept.changes) >= MOST_CHANGES:
        return Done("the server keeps changing")
    for known in tried:
        if (again := revisit(known)) is not None:
            return again
    if shape.arrivals is not None:
        return _at_rates(policy, shape, tried)
    if policy.prove:
        return _as_asked(policy, tried[0])
    states = [State.of(known, within) for known in tried]
    may_add = policy.refine is None or len(settings_beyond(policy, history)) < policy.refine
    for state in states:
        if (look := _scan(policy, state, may_add, window_worth)) is not None:
            return look
    ends = []
    for state in sorted(states, key=lambda state: state.edge() or 0):
        step = _prove(policy, state, may_add, window_worth)
        if isinstance(step, Ask):
            return step
        ends.append(step)
    return ends[0]


def _at_rates(policy: SearchPolicy, shape: Shape, tiers: Sequence[SeriesHistory]) -> Ask | Done:
    """The next trial at a rate, or Done. The SLAs come one after another: a proof for one counts
    for the others too.
    """
    ends, slas = [], [known.limits for known in tiers]
    for k, known in enumerate(tiers):
        step = rates.next_ask(shape, policy.grid, slas, k, known.kept, policy.warmup)
        if isinstance(step, Done):
            ends.append(step)
            continue
        rate = shape.load(int(step.load))
        if rate >= policy.lost:
            ends.append(Done(f"the server was lost at {policy.lost}"))
            continue
        window = 1 + sum((trial.load, trial.phase) == (rate, Phase.PROVE) for trial, _ in known.every)
        reason = f"proving {rate} on fresh data, window {window}" if step.phase is Phase.PROVE else f"looking at {rate}"
        return replace(step, load=rate, reason=reason)
    return ends[0]


def settings_beyond(policy: SearchPolicy, history: History) -> set[Load]:
    """The settings used beyond the grid. A setting that was looked at and then proven counts once.
    Where the config lists no settings, looks do not count.
    """
    looks = (Phase.SCAN, Phase.GRID) if policy.auto else ()
    return {trial.load for trial, _ in history if trial.phase not in looks} - set(policy.grid)


# --- after a change of the server


def revisit(known: SeriesHistory) -> Ask | None:
    """A window of the setting that was the operating point until the server changed; None where it
    was measured since. If it is as it was, that is known sooner than by a new search.
    """
    since = known.kept.since
    before = tuple(known.every[:since])
    point = SeriesHistory.of(known.limits, before).operating_point if before else None
    later = [sample for trial, sample in known.every[since:] if trial.load == point and trial.phase in CLAIMED]
    if point is None or any(not spoilt(sample) for sample in later) or len(later) >= MOST_SPOILT:
        return None
    points = {c: pilot_point(sample, known.limits) for c, sample in joined(before, tuple(Phase)).items()}
    return visit_of(point, points, f"the server changed; is c={point} as it was?")


def visit_of(c: Load, points: Mapping[Load, Point], reason: str = "") -> Ask:
    """A visit of a setting."""
    return Ask(c, Phase.VISIT, math.ceil(VISIT_TURNS * in_flight(c, points)), reason, longer(VISIT_SECONDS, c, points))


# --- scan


def _scan(policy: SearchPolicy, state: State, may_add: bool, window_worth: float) -> Ask | None:
    """The next cheap look, None when the scan is over: upwards in double steps until the SLA is
    broken, then into the gap that holds its edge. Once that is known within NEAR, a setting to
    prove below the gap goes first: further looks would not change it.

    The first candidate ends the scan, and so does SCAN_OF_TIME. An exception is a candidate at the
    lowest setting, which a look had shown outside by bad luck, unless it was given up.
    """
    look = partial(look_at, policy, state.points)
    lowest = min(state.points, default=0)
    late = state.elapsed > SCAN_OF_TIME * (state.elapsed + state.within) and state.bracket() is not None
    if late or any(k.verdict is Verdict.VIOLATES or k.load > lowest for k in state.candidates):
        return None
    unseen = _unseen(policy, state)
    if unseen and unseen[0] == policy.grid[0]:
        return look(policy.grid[0], "the lowest setting shows how long a request takes")
    if (again := _once_more(state)) is not None:
        return again
    low, high = state.bracket() or (0, None)
    if high is not None and high <= NEAR * low:
        first = _candidate(policy, state, state.by_grid, may_add, window_worth)
        if first is not None and first <= low:
            return None
    return _to_edge(policy, state, unseen, may_add)


def _unseen(policy: SearchPolicy, state: State) -> list[Load]:
    """The settings of the grid that may be looked at."""
    return [c for c in policy.grid if c not in state.points and state.looks.get(c, 0) < LOOKS_AT_MOST]


def _to_edge(policy: SearchPolicy, state: State, unseen: Sequence[Load], may_add: bool) -> Ask | None:
    """The next look towards the edge, at one of the grid's `unseen` settings or between them."""
    look = partial(look_at, policy, state.points)
    edge, here, there = state.bracket(), "is within the SLA", "is not"
    if edge is None:
        edge, here, there = state.too_few(), "only lacks throughput", "breaks another limit"
    if edge is None:
        return _below_all(policy, state, unseen, may_add)
    low, high = edge
    if policy.auto:
        unseen = auto.reachable(policy.grid, state.points, state.looks, unseen)
        if high is None and low >= SINGLE_FROM:
            unseen = [c for c in unseen if c <= 2 * low]
    if (step := _higher(state, unseen, low, high)) is not None:
        return look(step, f"c={low} {here}; looking higher")
    if high is None or high - low <= 1 or high / low <= CLOSE:
        return None
    middle = between(low, high)
    inner = min((c for c in unseen if low < c < high), key=lambda c: abs(math.log(c / middle)), default=None)
    if inner is None and (not may_add or state.looks.get(middle, 0) >= LOOKS_AT_MOST or middle >= policy.lost):
        return None
    return look(inner or middle, f"c={low} {here} and c={high} {there}; looking between them")


def _higher(state: State, unseen: Sequence[Load], low: Load, high: Load | None) -> Load | None:
    """The next setting to look at above the edge: in double steps until one is surely outside."""
    if high is not None and any(state.surely_outside(k) for k in state.points if k >= high):
        return None
    above = [c for c in unseen if c > (high or low)]
    return next(iter(above[1:2] if high is None and len(above) > 1 else above), None)


def _below_all(policy: SearchPolicy, state: State, unseen: Sequence[Load], may_add: bool) -> Ask | None:
    """The next look where no setting was seen within the SLA: below the lowest setting, above the
    highest where its look does not show it outside, or at the next one of the grid where none could
    be measured.
    """
    if not state.points:
        return look_at(policy, state.points, unseen[0], "no lower setting could be measured") if unseen else None
    lowest, highest = min(state.points), max(state.points)
    lower = Concurrency(max(1, lowest // 4))
    if lower < lowest and may_add and state.looks.get(lower, 0) < LOOKS_AT_MOST:
        return look_at(policy, state.points, lower, f"c={lowest}, the lowest measured, breaks the SLA")
    step = _higher(state, unseen, highest, None) if state.may_be_within(highest) else None
    if step is None:
        return None
    return look_at(policy, state.points, step, f"c={highest} may be within the SLA; looking higher")


def _once_more(state: State) -> Ask | None:
    """Another look at a setting that came out slower than a higher one: a disturbance during one
    look must not bound the search. None without such a setting.
    """
    c = min((c for c in state.contradicted if state.looks.get(c, 0) < LOOKS_AT_MOST), default=None)
    reason = f"c={c} came out slower than a higher setting; looking once more"
    return None if c is None else _scanned(state.points, c, reason)


def look_at(policy: SearchPolicy, points: Mapping[Load, Point], c: Load, reason: str) -> Ask:
    """A look at a setting: of the size that the config states, else a short one."""
    if policy.requests is not None and c in policy.grid:
        return Ask(c, Phase.GRID, policy.requests, reason)
    return _scanned(points, c, reason)


def _scanned(points: Mapping[Load, Point], c: Load, reason: str) -> Ask:
    seconds = longer(SCAN_SECONDS, c, points)
    requests = max(SCAN_REQUESTS, round(requests_per_stream(points, SCAN_PER_STREAM) * c))
    return Ask(c, Phase.SCAN, requests, reason, seconds)


# --- prove


def _prove(policy: SearchPolicy, state: State, may_add: bool, window_worth: float) -> Ask | Done:
    """The next window of a candidate, or how the ascents ended. Where no setting may be added, only
    settings that are listed or were looked at are candidates.
    """
    by_verdict = {v: [k for k in state.candidates if k.verdict is v] for v in Verdict}
    given_up, fresh = by_verdict[Verdict.VIOLATES], [k.load for k in by_verdict[Verdict.MEETS]]
    begun = [k.load for k in by_verdict[Verdict.UNPROVEN] if k.load < policy.lost]
    if going_on := [c for c in begun if not gives_way(state, c, fresh)]:
        return _window(state, going_on[-1])
    known = [*fresh, *state.by_grid]
    searches = attempts_over(state.candidates) < ASCENTS and policy.refine != 0
    step = _another(policy, state, known, may_add, window_worth) if searches else None
    if begun and not known and not (step is not None and is_overtaken(state, begun[-1], step.load)):
        return _window(state, begun[-1])
    if step is not None:
        return step
    proven, best = max(fresh, default=None), max(known, default=None)
    return Done(_how_it_ended(state, proven, given_up, may_add=may_add), best)


def _another(
    policy: SearchPolicy, state: State, known: Sequence[Load], may_add: bool, window_worth: float
) -> Ask | None:
    """The first window of another candidate, or a look for one, beside those that are `known` to
    keep the SLA; None where no setting is worth it.
    """
    named = max(known, key=state.merit if policy.marginal_gain else state.rate, default=None)
    if named is not None and state.wanders and state.looks[named] < STEADY // 2:
        return visit_of(named, state.points, f"the server wanders; c={named} is measured longer")
    c = _candidate(policy, state, known, may_add, window_worth)
    if c is not None and _worth_more_windows(state, c, known, marginal_gain=policy.marginal_gain):
        return _window(state, c)
    if not known:
        c = soonest(state, below=policy.lost)
        among = _among(policy, state, may_add)
        return None if c is None or (among is not None and c not in among) else _window(state, c)
    # The scan may have left a gap for the first proof. A setting that was given up closes it.
    open_gap = all(k.verdict is Verdict.MEETS and k.load <= (state.edge() or 0) for k in state.candidates)
    if open_gap and (look := _to_edge(policy, state, _unseen(policy, state), may_add)) is not None:
        return look
    full = corner(state, known, policy.grid) if policy.marginal_gain and may_add else None
    return None if full is None else _beside(policy, state, full)


def _candidate(
    policy: SearchPolicy, state: State, known: Sequence[Load], may_add: bool, window_worth: float
) -> Load | None:
    """The setting to prove next, or None where none is worth it. `known` settings keep the SLA."""
    top = policy.top if known else min(policy.top, max(state.points, default=policy.top))
    if policy.auto:  # well below a setting under which the server was lost
        top = Concurrency(min(max(state.points, default=1), LOWER * policy.lost))
    among = _among(policy, state, may_add)
    return candidate(state, top, known, window_worth, among, marginal_gain=policy.marginal_gain)


def _among(policy: SearchPolicy, state: State, may_add: bool) -> set[Load] | None:
    """The settings that may be proven; None for any."""
    return None if may_add else {*policy.grid, *state.looks}


def _beside(policy: SearchPolicy, state: State, c: Load) -> Ask:
    """A trial of a setting that may give as much as what is proven, with a shorter tail."""
    requests, seconds = policy.requests, None
    if requests is None:
        requests, seconds = CORNER_TURNS * c, longer(CORNER_SECONDS, c, state.points)
    return Ask(c, Phase.FRONTIER, requests, f"c={c} may give as much with a shorter tail", seconds)


def _how_it_ended(state: State, proven: Load | None, given_up: Sequence[Candidate], *, may_add: bool) -> str:
    """Why the search asks for nothing more."""
    if proven is None and state.by_grid:
        reason = f"c={state.by_grid[-1]} is proven by the grid's own data"
    else:
        reason = f"c={proven} is proven on fresh data" if proven is not None else "nothing is proven"
    if given_up:
        lowest = min(given_up, key=lambda k: k.load)
        return f"{reason}; c={lowest.load} was given up: {lowest.reason}"
    if proven is None and not state.by_grid and state.bracket() is None:
        return "no measured setting is within the SLA" if state.points else "no setting could be measured"
    return reason if may_add else f"{reason}; no extra settings are left"


def _worth_more_windows(state: State, c: Load, known: Sequence[Load], *, marginal_gain: bool) -> bool:
    """Whether a candidate is begun. After AFTER_ANSWER windows were spent beside an answer, only a
    candidate that may give clearly more is begun.
    """
    merit = state.merit if marginal_gain else state.rate
    if not known or merit(c) > (1 + CLEARLY_MORE) * max(map(merit, known)):
        return True
    later = itertools.dropwhile(lambda k: k.verdict is not Verdict.MEETS, state.candidates)
    spent = sum(k.windows for k in later if k.verdict is not Verdict.MEETS)
    return spent < AFTER_ANSWER


def _as_asked(policy: SearchPolicy, known: SeriesHistory) -> Ask | Done:
    """The next window of a setting that the user asked to be proven, and nothing else, until each
    is decided.

    The windows count as those of any candidate, so they share its error.
    """
    judged = {k.load: k for k in known.candidates}
    for c in sorted(policy.prove):
        if c in judged and judged[c].verdict is not Verdict.UNPROVEN:
            continue
        seen = scans(known.kept)
        if not seen:
            return Ask(c, Phase.SCAN, max(SCAN_REQUESTS, SCAN_PER_STREAM * c), f"c={c} was asked")
        return Ask(c, Phase.PROVE, window_size(seen, known.limits, c), f"c={c} was asked to be proven")
    ends = [k for c, k in judged.items() if c in policy.prove]
    reasons = [
        f"c={k.load} is " + ("proven" if k.verdict is Verdict.MEETS else f"not proven: {k.reason}") for k in ends
    ]
    proven = [k.load for k in ends if k.verdict is Verdict.MEETS]
    return Done("; ".join(reasons) or "the server was lost", proven=max(proven, default=None))


def _window(state: State, c: Load) -> Ask:
    done = next((k.windows for k in state.candidates if k.load == c), 0)
    return Ask(c, Phase.PROVE, state.window_size(c), f"proving c={c} on fresh data, window {done + 1}")
