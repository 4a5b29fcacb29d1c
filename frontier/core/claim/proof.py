"""Proof of a setting on fresh data: its candidates, and when one is proven or given up.

In: the trials of one series and the limits. Out: the candidates in the order in which they were
begun, each with its verdict, its windows and its error (`candidates`).

The subtle part is the error. A search may try several candidates and judge each several times; each
time is a chance to be fooled by luck. All judgements together err with ALPHA at most: each spends a
part, fixed before its data came, of the error that is left. The size of a window is fixed before
the first: a size that followed the results would be a way to stop at a lucky moment. Where a server
wanders later windows may be longer, and count as several: judgements come after fixed amounts.

This is a union bound over the judgements made. See alpha spending (Lan and DeMets 1983) and alpha
investing (Foster and Stine 2008).
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from frontier.core.claim.changes import CLAIMED, History, Unchanged, spoilt, unchanged
from frontier.core.claim.verdict import judge
from frontier.core.estimates import estimate
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.groups import by_key
from frontier.core.model.loads import Load
from frontier.core.model.metrics import metric
from frontier.core.model.points import FLAG_WORDS, Point
from frontier.core.model.trials import Phase
from frontier.core.window.held import held
from frontier.core.window.window import WindowData, join

ALPHA = 0.05
"""One-sided error of a claim."""
SPEND = 0.25
"""The share of the error that is left which each judgement of a candidate spends."""
JUDGED_AFTER = (3, 6, 12, 20, 36)
"""After how many windows of a candidate it is judged."""
ASCENTS = 8
"""Ascents at most: the first, and one more after each candidate given up that had been judged."""
WINDOWS = min(JUDGED_AFTER)
"""Windows of a proof, apart in time: one window cannot show what differs from run to run."""
MAX_WINDOWS = max(JUDGED_AFTER)
STEADY = 12
"""Windows before which a candidate whose speed wanders is not given up by a forecast."""
FORECAST_SLACK = 2.0
"""A candidate is given up early when deciding it would take this many times the requests of all its
windows; the margin is there as forecasts err."""
MOST_SPOILT = 4
"""A candidate is given up when the client spoilt this many of its windows."""
EARLY_OVER = 0.05
"""A candidate whose value is this far (in ln) over its limit before its first judgement gets none.
"""
WANDERED = 0.2
"""A window this far (in ln) beyond the middle one shows that the server wandered meanwhile."""
LATER_ALPHA = SPEND * ALPHA
"""The error of a setting that is not a candidate, when it is judged again with windows measured
after the grid."""
EARLIER_ALPHA = ALPHA / 15
"""The error of each judgement of a candidate in versions before 0.2: 3 ascents, 5 judgements, equal
shares."""
SCANS = (Phase.SCAN, Phase.LOCATE)
CONTRADICTED = "later measurements contradict its proof"
FRESH = (Phase.PROVE, Phase.VISIT)
"""Phases after whose windows a candidate is judged. Visits are among them: an earlier version with
less strict rules visited settings that these rules do not prove."""


# --- the data of a setting


def by_concurrency(history: History) -> dict[Load, list[WindowData]]:
    """The samples of each concurrency, in the history's order. Those that say nothing of the server
    count only where there are no others.
    """
    groups = by_key((trial.load, sample) for trial, sample in history)
    return {c: [sample for sample in mine if not spoilt(sample)] or mine for c, mine in groups.items()}


def joined(history: History, phases: tuple[Phase, ...]) -> dict[Load, WindowData]:
    """Per concurrency the data of these phases, joined."""
    groups = by_concurrency([(trial, sample) for trial, sample in history if trial.phase in phases])
    return {c: join(parts) for c, parts in sorted(groups.items())}


@held
def pilot_point(sample: WindowData, limits: tuple[Limit, ...]) -> Point:
    """The point of a sample with the few metrics that scanning and completing the frontier need."""
    limited = (limit.metric for limit in limits)
    wanted = dict.fromkeys(("output_throughput", "request_throughput", "mean_e2e", *limited))
    return estimate.point(sample, names=tuple(wanted), limits=limits)


def violation(point: Point, limits: Iterable[Limit]) -> float | None:
    """ln of value over limit for the worst metric: below 0 within the SLA, infinite where the
    backlog grew. None when invalid or not measured.
    """
    if not point.valid:
        return None
    if point.overloaded:
        return math.inf
    worst, known = -math.inf, False
    for limit in limits:
        e = point.metrics.get(limit.metric)
        if e is None and limit.of.group is not None:
            continue  # a short look may have seen no request of a class
        if e is None or math.isnan(e.value):
            return None
        worst, known = max(worst, limit.excess(e.value)), True
    return worst if known else None


# --- a candidate


@dataclass(frozen=True, slots=True)
class Candidate:
    """A setting that was, or is being, proven. MEETS: proven; UNPROVEN: another window; VIOLATES:
    given up, and why.

    `alpha` is the error of its last judgement. `windows` counts those of its proof, without visits
    and without those that the client spoilt. `point` stands on all of its data, `proof` on that of
    its last judgement (None: none yet).
    """

    load: Load
    verdict: Verdict
    reason: str
    alpha: float
    windows: int
    point: Point
    proof: Point | None
    fresh: int = 0

    def reach(self, limit: Limit) -> float | None:
        """The distance (in ln) of the bound beyond the value at the last judgement; None where it
        was not measured.
        """
        e = self.point.metrics.get(limit.metric)
        if e is None or not math.isfinite(e.value):
            return None
        bound, value = limit.excess(limit.bound(e)), limit.excess(e.value)
        return bound - value if math.isfinite(value) else None

    def shortage(self, limit: Limit) -> float | None:
        """The factor by which its requests were too few for a bound by ranks; None where there were
        enough, or where the rough bound keeps the limit.
        """
        e = self.point.metrics.get(limit.metric)
        return None if e is None or e.need is None or limit.holds(limit.bound(e)) else e.need / e.n


TOO_BUSY = "this machine was too busy to measure it"


# --- points with the bounds of a judgement


@held
def point_of(sample: WindowData, names: tuple[str, ...], limits: tuple[Limit, ...], price: float | None) -> Point:
    """The point of a sample: a trial of one setting leaves the data of the others as they were."""
    return estimate.point(sample, names=names, limits=limits, price=price)


@held
def claim_point(
    sample: WindowData,
    limits: tuple[Limit, ...],
    alpha: float,
    *,
    names: tuple[str, ...] = (),
    price: float | None = None,
) -> Point:
    """A point whose limited metrics carry one-sided bounds at this error."""
    point = point_of(sample, names, limits, price)
    strict = {
        limit.metric: e
        for limit in limits
        if (e := estimate.estimate(sample, limit.metric, limits=limits, confidence=1 - alpha, price=price)) is not None
    }
    return dataclasses.replace(point, metrics={**point.metrics, **strict})


# --- candidates


def candidates(history: History, limits: tuple[Limit, ...]) -> list[Candidate]:
    """The candidates in the order in which they were begun, judged as the search judged them.

    The ascent of a candidate follows from the ends of the earlier ones: each candidate given up
    ends an ascent. Without limits, as for a run without an SLA, there are no candidates.
    """
    return list(_candidates(unchanged(history, limits), limits)) if limits else []


@held
def _candidates(history: Unchanged, limits: tuple[Limit, ...]) -> list[Candidate]:
    judged = list[Candidate]()
    for c in dict.fromkeys(trial.load for trial, _ in history if trial.phase is Phase.PROVE):
        mine = [(t, s) for t, s in history if t.load == c and t.phase in CLAIMED]
        again = (1 - SPEND) ** (c in history.doubted)  # its first judgements were made before
        judged.append(_judged(mine, limits, again * error_left(judged)))
    return judged


def error_left(judged: Sequence[Candidate]) -> float:
    """The error that is left after these candidates.

    A judgement spends its part only when it is made: a candidate given up before could not have
    been proven. The error spent on a proven candidate comes back, as in fixed-sequence testing. If
    that candidate breaks the SLA, the error has been made; if it does not, no error was possible.
    """
    left = ALPHA
    for candidate in judged:
        if candidate.verdict is not Verdict.MEETS:
            left *= (1 - SPEND) ** _looks(candidate.windows)
    return left


def _looks(windows: int) -> int:
    """How often a candidate with so many windows was judged."""
    return sum(look <= windows for look in JUDGED_AFTER)


def attempts_over(judged: Sequence[Candidate]) -> int:
    """How many ascents are over: candidates that were judged and given up."""
    return sum(candidate.verdict is Verdict.VIOLATES and candidate.windows >= WINDOWS for candidate in judged)


def _judged(trials: History, limits: tuple[Limit, ...], error: float) -> Candidate:
    """A candidate, judged after some windows of its proof by all that was measured until then."""
    phases, windows = tuple(trial.phase for trial, _ in trials), tuple(sample for _, sample in trials)
    return _judged_at(windows[-1], windows[:-1], phases, trials[0][0].load, limits, error)


@held
def _judged_at(
    last: WindowData,
    before: tuple[WindowData, ...],
    phases: tuple[Phase, ...],
    load: Load,
    limits: tuple[Limit, ...],
    error: float,
) -> Candidate:
    """`_judged`, held by the last window: a trial of one setting changes nothing for the others."""
    trials = list(zip(phases, (*before, last), strict=True))
    clean = [(phase, sample) for phase, sample in trials if not spoilt(sample)]
    every = [sample for _, sample in clean or trials]
    sizes = [sample.n for phase, sample in clean if phase in FRESH]
    verdict, reason, alpha = Verdict.UNPROVEN, "", SPEND * error
    point = proof = None
    count = looks = 0
    for k, (phase, _) in enumerate(clean, 1):
        if phase not in FRESH:
            continue
        count += 1
        looked, (windows, fresh) = looks, (units(sizes[:count]), sum(sizes[:count]))
        looks = _looks(windows)
        alpha = SPEND * error * (1 - SPEND) ** max(0, looks - 1)
        point = claim_point(join(every[:k]), limits, alpha)
        proof = point if looks > looked else proof
        verdict, reason = _standing(point, limits, alpha, windows, fresh, look=looks > looked)
        if _goes_on(verdict, point, every[:k], limits, windows):
            verdict, reason = Verdict.UNPROVEN, ""
        elif verdict is not Verdict.VIOLATES or not _went_on([phase for phase, _ in clean[k:]], windows):
            break
    if verdict is Verdict.UNPROVEN and len(trials) - len(clean) >= MOST_SPOILT:
        verdict, reason = Verdict.VIOLATES, TOO_BUSY
    if point is None:
        point = claim_point(join(every), limits, alpha)
    candidate = Candidate(load, verdict, reason, alpha, units(sizes), point, proof, sum(sizes[:count]))
    return with_visits(candidate, every, limits) if verdict is Verdict.MEETS else candidate


def units(sizes: Sequence[int]) -> int:
    """How many windows these count as, by their requests: a longer one as several of the first. A
    proof has at least WINDOWS real ones.
    """
    return len(sizes) if len(sizes) < WINDOWS else sum(max(1, n // max(1, sizes[0])) for n in sizes)


def growth(requests: int, fresh: int, windows: int, until: int) -> float:
    """The factor by which the `requests` of a setting grow until its proof has `until` windows. So
    far `windows` of them sent `fresh` of the requests.
    """
    return 1 + (until - windows) * fresh / max(1, windows) / max(1, requests)


def with_visits(candidate: Candidate, parts: Sequence[WindowData], limits: tuple[Limit, ...]) -> Candidate:
    """A proven candidate with its visits: given up where the values of all its data are over a
    limit, or where they are not valid, which contradicts no proof.
    """
    point = claim_point(join(parts), limits, candidate.alpha)
    over = violation(point, limits)
    if over is not None and over <= 0:
        return dataclasses.replace(candidate, point=point)
    reason = CONTRADICTED if point.valid else _not_valid(point)
    return dataclasses.replace(candidate, verdict=Verdict.VIOLATES, reason=reason, point=point)


def _not_valid(point: Point) -> str:
    return "its measurement is not valid: " + ", ".join(FLAG_WORDS[flag.name] for flag in point.fatal)


def _went_on(later: Sequence[Phase], windows: int) -> bool:
    """Whether a proof that was set aside before its first judgement went on."""
    return windows < WINDOWS and Phase.PROVE in later


def _goes_on(
    verdict: Verdict, point: Point, parts: Sequence[WindowData], limits: tuple[Limit, ...], windows: int
) -> bool:
    """Whether a proof is not over: it is undecided, or is over its limit for a part of its windows
    alone. At least half of them keep it then, and the worst is far beyond these: the server
    wandered. Only more windows, until the second judgement, say how often it does; a lower setting
    would have met the same.
    """
    if verdict is not Verdict.VIOLATES or not point.valid:
        return verdict is Verdict.UNPROVEN
    middle, worst = spread(parts, limits)
    return windows < JUDGED_AFTER[1] and middle <= 0 and worst - middle > WANDERED


def spread(parts: Sequence[WindowData], limits: tuple[Limit, ...]) -> tuple[float, float]:
    """How far (in ln) the middle one and the worst one of some windows are over their limits; of
    two the better one is the middle.
    """
    each = sorted(v for part in parts if (v := violation(pilot_point(part, limits), limits)) is not None)
    return (each[(len(each) - 1) // 2], each[-1]) if each else (math.inf, math.inf)


def _standing(
    point: Point, limits: tuple[Limit, ...], alpha: float, windows: int, fresh: int, *, look: bool
) -> tuple[Verdict, str]:
    """MEETS (proven; only at a look), UNPROVEN (another window), or VIOLATES (give it up) with the
    reason.

    Giving up early, on a value or a forecast, costs throughput and never the guarantee.
    """
    judged = judge(point, limits, alpha=alpha)
    over, named = violation(point, limits), metric(judged.binding).label if judged.binding else "it"
    if judged.verdict is Verdict.MEETS and look:
        return Verdict.MEETS, ""
    if not point.valid:
        return Verdict.VIOLATES, _not_valid(point)
    if judged.verdict is Verdict.VIOLATES or over is None:
        return Verdict.VIOLATES, f"{named} is over its limit"
    if over > (0 if look else EARLY_OVER):  # by its value alone; another limit may bind
        beyond = {limit.excess(e.value): limit for limit in limits if (e := point.metrics.get(limit.metric))}
        return Verdict.VIOLATES, f"{beyond[over].of.label} is over its limit"
    if not look:
        return Verdict.UNPROVEN, ""
    most = point.n * growth(point.n, fresh, windows, MAX_WINDOWS)
    # Where the speed wanders or requests run in step, few windows give a bound far too wide to
    # forecast by: each more narrows it by much.
    wanders = windows < STEADY and any(flag.name in ("non_stationary", "lockstep") for flag in point.flags)
    if windows >= MAX_WINDOWS or (not wanders and (judged.need or math.inf) > FORECAST_SLACK * most):
        e = point.metrics.get(judged.binding or "")
        if e is not None and e.need is not None:
            return Verdict.VIOLATES, f"{most:,.0f} requests are too much alike to bound {named}"
        return Verdict.VIOLATES, f"{named} is too close to its limit for {most:,.0f} requests to decide"
    return Verdict.UNPROVEN, ""
