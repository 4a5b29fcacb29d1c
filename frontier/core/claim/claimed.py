"""Claims by setting: the trials that support a claim, and the point with the bounds of its last
judgement.
"""

import dataclasses
from collections.abc import Collection, Iterator, Sequence

from frontier.core.claim.changes import CLAIMED, History, spoilt, unchanged
from frontier.core.claim.proof import (
    CONTRADICTED,
    EARLIER_ALPHA,
    JUDGED_AFTER,
    LATER_ALPHA,
    Candidate,
    candidates,
    claim_point,
    growth,
    point_of,
    with_visits,
)
from frontier.core.claim.verdict import judge
from frontier.core.estimates.estimate import estimate
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.groups import by_key
from frontier.core.model.loads import Load
from frontier.core.model.metrics import DEFAULT_METRICS
from frontier.core.model.points import Estimate, Point
from frontier.core.model.trials import Phase, Trial
from frontier.core.window.window import WindowData, join

NEWEST = 0.99
"""Confidence at which the newest window of a setting must be over a limit to count as a violation.
"""


def claimed(history: History, limits: Sequence[Limit] = ()) -> dict[Load, list[tuple[Trial, WindowData]]]:
    """Trials that support a claim, by concurrency, in the history's order.

    They are those of the grid, the proof and the visits since the last change of the server in a
    limited metric. Trials that the client spoilt count only where there are no others: they say
    nothing of the server, and another trial is measured in their place.
    """
    groups = by_key((each[0].load, each) for each in unchanged(history, limits) if each[0].phase in CLAIMED)
    return {c: [ts for ts in mine if not spoilt(ts[1])] or mine for c, mine in sorted(groups.items())}


def claim_windows(history: History, limits: Sequence[Limit] = ()) -> dict[Load, WindowData]:
    """The windows of those trials joined, by concurrency."""
    return {c: _joined(mine) for c, mine in claimed(history, limits).items()}


def _joined(trials: History) -> WindowData:
    return join([sample for _, sample in trials])


def claim_points(
    history: History,
    limits: Sequence[Limit] = (),
    *,
    names: Sequence[str] = DEFAULT_METRICS,
    price: float | None = None,
) -> tuple[Point, ...]:
    """The points that `solver.solve` may decide on, by concurrency.

    A setting is judged several times, as one of several settings. So the one-sided bounds of its
    limited metrics are those of its last judgement. The two-sided intervals shown stay at 95%.
    Between two judgements nothing new is claimed of a candidate. A grid setting that was not
    measured again has its usual point.
    """
    limits = tuple(limits)
    every = _claims(unchanged(history, limits), limits, tuple(names), price)
    return tuple(_as_it_was_last(point, windows[-1], limits) for point, windows in every)


def over_at_last(history: History, limits: tuple[Limit, ...]) -> tuple[Load, ...]:
    """The settings that all of their data prove, although their newest window alone is surely over
    a limit. The window before it must not be surely over one.
    """
    return tuple(
        point.load
        for point, windows in _claims(unchanged(history, limits), limits, (), None)
        if len(windows) > 1
        and judge(point, limits).verdict is Verdict.MEETS
        and _over(windows[-1], limits)
        and not _over(windows[-2], limits)
    )


def _claims(
    history: History, limits: tuple[Limit, ...], names: tuple[str, ...], price: float | None
) -> Iterator[tuple[Point, list[WindowData]]]:
    """For each setting the point of all of its data, and the windows behind it. Once a proof was
    contradicted, what the grid alone proves is not enough.
    """
    known = {candidate.load: candidate for candidate in candidates(history, limits)}
    groups = claimed(history, limits)
    open_ = {c: mine for c, mine in groups.items() if c not in known or known[c].verdict is Verdict.UNPROVEN}
    known |= {c: found for c, mine in open_.items() if (found := _by_grid(mine, limits)) is not None}
    corrected = any(candidate.reason == CONTRADICTED for candidate in known.values())
    for c, mine in groups.items():
        candidate = known.get(c)
        if candidate is None or (corrected and candidate.windows == 0 and candidate.verdict is Verdict.MEETS):
            candidate = _of_later(mine, limits, corrected)
        alpha = candidate.alpha if candidate is not None else _alpha({trial.phase for trial, _ in mine})
        if alpha is None:
            point = point_of(_joined(mine), names, limits, price)
        else:
            point = claim_point(_joined(mine), limits, alpha, names=names, price=price)
        yield point if candidate is None else _with_proof(point, candidate, limits), [sample for _, sample in mine]


def _over(newest: WindowData, limits: tuple[Limit, ...]) -> dict[Limit, Estimate]:
    """The limits that a window alone is surely over, with its estimates."""
    found = {limit: estimate(newest, limit.metric, limits=limits, confidence=NEWEST) for limit in limits}
    return {limit: e for limit, e in found.items() if e is not None and limit.breaks(limit.bad_bound(e))}


def _as_it_was_last(point: Point, newest: WindowData, limits: tuple[Limit, ...]) -> Point:
    """The point. If all data meet the SLA but the newest window surely violates a limit, it shows
    that window's value.
    """
    if not limits or point.n <= newest.n or judge(point, limits).verdict is not Verdict.MEETS:
        return point
    metrics, notes = dict(point.metrics), list(point.notes)
    for limit, last in _over(newest, limits).items():
        value = limit.of.format(metrics[limit.metric].value)
        metrics[limit.metric] = last
        notes.append(f"{limit.of.label} is that of the newest trial; with all earlier ones it was {value}")
    return dataclasses.replace(point, metrics=metrics, notes=tuple(notes))


def _alpha(phases: Collection[Phase]) -> float | None:
    """Alpha for a setting that is not a candidate, from its trials' phases; None: the default, for
    a grid that was measured as the config says.
    """
    if Phase.CONFIRM in phases:
        return EARLIER_ALPHA
    return LATER_ALPHA if Phase.VISIT in phases else None


def _by_grid(trials: History, limits: tuple[Limit, ...]) -> Candidate | None:
    """A candidate for a setting that the grid's own data prove, judged with its later windows too.
    None where the grid proves nothing, or the setting was not measured since.
    """
    grid = [(trial, sample) for trial, sample in trials if trial.phase is Phase.GRID]
    if len(grid) in (0, len(trials)) or not limits:
        return None
    point = point_of(_joined(grid), tuple(limit.metric for limit in limits), limits, None)
    if judge(point, limits).verdict is not Verdict.MEETS:
        return None
    proven = Candidate(trials[0][0].load, Verdict.MEETS, "", LATER_ALPHA, 0, point, point)
    return with_visits(proven, [sample for _, sample in trials], limits)


def _of_later(trials: History, limits: tuple[Limit, ...], corrected: bool) -> Candidate | None:
    """An unproven candidate for a setting that has yet to be proven: one with visits only, since
    the server changed, as visits say what it is like now and prove nothing; each where another
    setting was `corrected`. None for others.
    """
    if not corrected and any(trial.phase is not Phase.VISIT for trial, _ in trials):
        return None
    point = claim_point(_joined(trials), limits, LATER_ALPHA)
    return Candidate(trials[0][0].load, Verdict.UNPROVEN, "", LATER_ALPHA, 0, point, None)


def _with_proof(point: Point, candidate: Candidate, limits: tuple[Limit, ...]) -> Point:
    """The point of a candidate with the bounds that may be claimed of it.

    A proven candidate gets the bounds of its proof where they are tighter than the bounds of all
    its data. The error is shared among the judgements, so the bounds of all of them hold together,
    and the tightest holds.

    Where the value of all data lies beyond the proof's bound, the server became slower since. If
    the bound of all data keeps the limit, it counts. Otherwise the point shows the proof with its
    own value, and a note says so.

    A candidate whose proof goes on gets the bounds of its last judgement; before the first there
    are none. What had no bound then may have one at the next.
    """
    if candidate.verdict is Verdict.VIOLATES:
        return point
    metrics, notes = dict(point.metrics), list(point.notes)
    for limit in limits:
        if (now := metrics.get(limit.metric)) is None:
            continue
        then = None if candidate.proof is None else candidate.proof.metrics.get(limit.metric)
        if candidate.verdict is not Verdict.MEETS:
            metrics[limit.metric] = _between_looks(now, then, limit, candidate)
        elif then is not None and not limit.of.improves(limit.bound(then), now.value):
            if limit.of.improves(limit.bound(then), limit.bound(now)):
                metrics[limit.metric] = _bounded(now, limit, limit.bound(then), None)
        elif then is not None and limit.breaks(limit.bound(now)):
            metrics[limit.metric] = then
            value = limit.of.format(now.value)
            notes.append(f"{limit.of.label} is that of the proof; with all later trials it was {value}")
    return dataclasses.replace(point, metrics=metrics, notes=tuple(notes))


def _between_looks(now: Estimate, then: Estimate | None, limit: Limit, candidate: Candidate) -> Estimate:
    """The estimate with the bound of the last judgement. Without one, it needs the next."""
    if then is not None and then.need is None:
        return _bounded(now, limit, limit.bound(then), None)
    need = max(now.need or 0, now.n + 1, _at_next_look(now.n, candidate))
    return _bounded(now, limit, limit.of.worst_possible if then is None else limit.bound(then), need)


def _at_next_look(n: int, candidate: Candidate) -> int:
    """The n that a candidate will have at its next judgement."""
    until = next((look for look in JUDGED_AFTER if look > candidate.windows), candidate.windows)
    return int(n * growth(candidate.point.n, candidate.fresh, candidate.windows, until) + 1e-9)


def _bounded(estimate: Estimate, limit: Limit, bound: float, need: int | None) -> Estimate:
    """The estimate with another bound on the side of the claim."""
    if limit.better == "lower":
        return dataclasses.replace(estimate, upper=bound, need=need)
    return dataclasses.replace(estimate, lower=bound, need=need)
