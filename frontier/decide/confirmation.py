"""Confirmation of a setting on fresh data: which trials support a claim, and when a candidate is proven or given up.

The error of a search is spent in advance. A search may try many candidates and look at each several times, and each
look is a chance to be fooled by luck. There are at most ASCENTS ascents and at most MAX_BATCHES batches of requests per
candidate, and after each batch the candidate is judged at BATCH_ALPHA: together they err with ALPHA at most
(Bonferroni). The sizes of the batches are fixed before the first: a size that followed the results would be a way to
stop at a lucky moment.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from frontier.decide.verdict import judge
from frontier.metrics import DEFAULT_METRICS, claim_floor, metric
from frontier.model import Limit, Phase, Point, Trial, Verdict
from frontier.stats import estimate, intervals, window
from frontier.stats.window import WindowData

History = Sequence[tuple[Trial, WindowData]]
"""The finished trials of one series, in any order."""

ALPHA = 0.05
"""One-sided error of a claim."""
BATCH_SIZES = (1, 1, 2, 4, 8)
"""A candidate's requests come in at most these many trials, in multiples of the first; it is judged after each."""
MAX_BATCHES = len(BATCH_SIZES)
ASCENTS = 3
"""Ascents on fresh data: the first, and one more after each of at most two candidates given up."""
BATCH_ALPHA = ALPHA / (ASCENTS * MAX_BATCHES)
"""One-sided error of each judgement of a candidate, so that a search as a whole errs with ALPHA at most."""
DEPENDENCE_CAP = 4.0
"""Most requests one independent request is taken for when a batch is sized: a short pilot's inflation is noisy."""
FORECAST_SLACK = 3.0
"""A candidate is given up early when deciding it looks this many times dearer than all its batches: forecasts err."""
OVER = 0.03
"""A candidate whose value is this much (in ln) over its limit after a batch gets no other."""


# --- the data of a setting


def in_order(history: History, *phases: Phase) -> list[tuple[Trial, WindowData]]:
    """The trials of these phases by concurrency and repeat, whatever order they were finished in."""
    return sorted(((t, s) for t, s in history if t.phase in phases), key=lambda ts: (ts[0].concurrency, ts[0].repeat))


def by_concurrency(history: History) -> dict[int, list[WindowData]]:
    """The samples of each concurrency, in the history's order."""
    groups: dict[int, list[WindowData]] = {}
    for trial, sample in history:
        groups.setdefault(trial.concurrency, []).append(sample)
    return groups


def joined(history: History, phases: tuple[Phase, ...]) -> dict[int, WindowData]:
    """Per concurrency the data of these phases, joined."""
    return {c: join(tuple(parts)) for c, parts in by_concurrency(in_order(history, *phases)).items()}


@functools.lru_cache(maxsize=64)
def join(parts: tuple[WindowData, ...]) -> WindowData:
    """The windows as one. Remembered, as are the points below: the search replays its whole history at every step."""
    return window.join(parts)


@functools.lru_cache(maxsize=64)
def pilot_point(sample: WindowData, limits: tuple[Limit, ...]) -> Point:
    """What locating and drawing the frontier's gaps need of a sample, and no more."""
    names = [name for limit in limits for name in (limit.metric, bulk_name(limit.metric))]
    wanted = dict.fromkeys(("output_throughput", "request_throughput", "mean_e2e", *names))
    return estimate.point(sample, names=tuple(wanted), limits=limits)


def bulk_name(name: str) -> str:
    """The less noisy relative of a tail metric: p90 of the same quantity for percentiles above it, else itself."""
    m = metric(name)
    return f"p90_{name.partition('_')[2]}" if m.p is not None and m.p > 0.9 else name


def violation(point: Point, limits: Iterable[Limit]) -> float | None:
    """ln of value over limit for the worst metric, below 0 inside the SLA; None when invalid or not measured."""
    if not point.valid:
        return None
    worst = -math.inf
    for limit in limits:
        e = point.metrics.get(limit.metric)
        if e is None or math.isnan(e.value):
            return None
        worst = max(worst, limit.excess(e.value))
    return worst


# --- what may be claimed


def claim_windows(history: History) -> dict[int, WindowData]:
    """Per concurrency the data a claim stands on: the confirming trials where there are any, the grid's otherwise.

    Locating and frontier trials are left out: the former chose where to look, neither was sized for a claim.
    """
    return {**joined(history, (Phase.GRID,)), **joined(history, (Phase.CONFIRM,))}


def claim_points(
    history: History,
    limits: Sequence[Limit] = (),
    *,
    names: Sequence[str] = DEFAULT_METRICS,
    price: float | None = None,
) -> tuple[Point, ...]:
    """The points that `operating_point.solve` may decide on, by concurrency.

    A confirmed setting was judged several times, as one of several, so the one-sided bounds of its limited metrics
    are those at BATCH_ALPHA; the two-sided intervals shown stay at 95 %. Points of grid settings are the usual ones.
    """
    confirmed = {trial.concurrency for trial, _ in history if trial.phase is Phase.CONFIRM}
    return tuple(
        claim_point(sample, tuple(limits), names=names, price=price)
        if c in confirmed
        else estimate.point(sample, names=names, limits=tuple(limits), price=price)
        for c, sample in sorted(claim_windows(history).items())
    )


def claim_point(
    sample: WindowData, limits: tuple[Limit, ...], *, names: Sequence[str] = (), price: float | None = None
) -> Point:
    """A point whose limited metrics carry one-sided bounds at BATCH_ALPHA."""
    point = estimate.point(sample, names=names, limits=limits, price=price)
    metrics = dict(point.metrics)
    for limit in limits:
        strict = estimate.estimate(sample, limit.metric, limits=limits, confidence=1 - BATCH_ALPHA, price=price)
        if strict is not None:
            metrics[limit.metric] = strict
    return dataclasses.replace(point, metrics=metrics)


_candidate_point = functools.lru_cache(maxsize=64)(claim_point)


# --- a candidate


def standing(batches: Sequence[WindowData], limits: tuple[Limit, ...], size: int) -> tuple[Verdict, str]:
    """MEETS (proven), UNPROVEN (another batch), or VIOLATES (give it up) with the reason. `size`: of the first batch.

    Giving up early, on a forecast, costs throughput and never the guarantee.
    """
    if not batches:
        return Verdict.UNPROVEN, ""
    point = _candidate_point(join(tuple(batches)), limits)
    judged = judge(point, limits, alpha=BATCH_ALPHA)
    over = violation(point, limits)
    if judged.verdict is Verdict.MEETS:
        return Verdict.MEETS, ""
    if not point.valid:
        return Verdict.VIOLATES, "its measurement is not valid: " + ", ".join(f.name for f in point.flags if f.fatal)
    if judged.verdict is Verdict.VIOLATES or over is None or over > OVER:
        return Verdict.VIOLATES, f"{judged.binding} is over its limit"
    most = size * sum(BATCH_SIZES)
    if len(batches) >= MAX_BATCHES or (judged.need or most) > FORECAST_SLACK * most:
        return Verdict.VIOLATES, f"{judged.binding} is too close to its limit for {most:,} requests to decide"
    return Verdict.UNPROVEN, ""


def batch_size(pilot: WindowData, limits: Sequence[Limit], concurrency: int, least: int) -> int:
    """Requests of a candidate's first batch: enough to prove it with one violation seen, and at least `least`.

    `pilot` is the nearest data from before: a size taken from the candidate's own would follow its results.
    """
    size = least
    for limit in limits:
        m = limit.of
        if m.p is None:
            continue
        values = {"ttft": pilot.ttft, "tpot": pilot.tpot}.get(m.quantity or "", pilot.e2e)
        values = values[~np.isnan(values)]
        dependence = len(values) / max(1.0, intervals.n_eff(values, m.p)) if len(values) else 1.0
        independent = intervals.needed(m.p, 1 - BATCH_ALPHA, violations=1)
        size = max(size, math.ceil(min(DEPENDENCE_CAP, dependence) * independent), claim_floor(m.p, concurrency))
    return size
