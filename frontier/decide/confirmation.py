"""Where a frontier is least known: between which two measured settings the next one belongs.

A guess at how far each concurrency is from an SLA: a quiet line through noisy values, to plan by, never to claim.

What of a setting's history may be claimed, how far it is from an SLA, and which settings are not worth running.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from frontier.decide.capacity import knee
from frontier.metrics import DEFAULT_METRICS, metric
from frontier.model import Limit, Phase, Point, Trial
from frontier.stats import estimate, window
from frontier.stats.window_data import Sample

NARROW = 0.10
"""Neighbours whose throughputs (in ln) or concurrencies differ by less need no setting between them."""
IMPORTANT = 3.0
"""Weight of a gap that straddles the SLA's limit or touches the knee."""


def widest_gap(points: Mapping[int, Point], limits: tuple[Limit, ...]) -> tuple[int, int] | None:
    """The neighbours whose throughputs differ most, weighted where it matters; None when all are close enough.

    Between neighbours the frontier is known to lie between their throughputs and no closer, so this is its bracket.
    A gap whose middle was measured already (and was not valid) is passed over.
    """
    rates = {
        c: p.metrics["output_throughput"].value
        for c, p in points.items()
        if p.valid and "output_throughput" in p.metrics
    }
    at = sorted(c for c, rate in rates.items() if rate > 0)
    bend = knee([points[c] for c in at])
    best: tuple[float, int, int] | None = None
    for low, high in itertools.pairwise(at):
        rise = abs(math.log(rates[high] / rates[low]))
        if high - low <= 1 or (high - low) / high <= NARROW or rise <= NARROW or between(low, high) in points:
            continue
        a, b = excess(points[low], limits), excess(points[high], limits)
        crossing = bool(limits) and a is not None and b is not None and (a <= 0) != (b <= 0)
        width = rise * (IMPORTANT if crossing or bend in (low, high) else 1.0)
        if best is None or width > best[0]:
            best = (width, low, high)
    return None if best is None else best[1:]


def between(low: int, high: int) -> int:
    """The geometric mean, strictly between."""
    return min(high - 1, max(low + 1, round(math.sqrt(low * high))))


FAR = 3.0
"""An excess (in ln) beyond this says no more than this; it also stands for an infinite one."""
STEEP = 3.0
"""A line that rises faster than this power of concurrency is a cliff."""


def smoothed(points: Mapping[int, Point], limits: tuple[Limit, ...]) -> dict[int, float]:
    """ln of the worst metric over its limit, quieter than measured: to plan by, never to claim.

    A p99 of a few hundred requests is noisy, so half of each comes from the setting's own p90 times what the p99 is of
    the p90 in the middle of all settings. Then it is made non-decreasing in concurrency (isotonic regression, weighted
    by requests): one unlucky value would otherwise send the search an octave down.
    """
    usable = {c: p for c, p in sorted(points.items()) if excess(p, limits) is not None}
    if not usable:
        return {}
    worst = dict.fromkeys(usable, -FAR)
    for limit in limits:
        own = {c: excess(p, (limit,)) for c, p in usable.items()}
        bulk = {c: excess(p, (dataclasses.replace(limit, metric=bulk_name(limit.metric)),)) for c, p in usable.items()}
        apart = {c: x - y for c in usable if (x := own[c]) is not None and (y := bulk[c]) is not None and abs(x) < FAR}
        usual = float(np.median(list(apart.values()))) if apart else 0.0
        for c in usable:
            value = own[c] or 0.0
            if c in apart:
                value -= 0.5 * (apart[c] - usual)
            worst[c] = max(worst[c], min(FAR, value))
    from scipy.optimize import isotonic_regression  # imported by whoever searches, not by whoever looks

    fitted = isotonic_regression(list(worst.values()), weights=[points[c].n for c in worst]).x
    return {c: float(value) for c, value in zip(worst, fitted, strict=True)}


def expected(line: Mapping[int, float], c: int) -> float:
    """Where the line through the data lies at c. A cliff is taken to be half way between its ends."""
    at = sorted(line)
    above = next((a for a in at if a >= c), None)
    below = next((a for a in reversed(at) if a <= c), None)
    if above is None or below is None or above == below:
        nearest = above if above is not None else below
        return FAR if nearest is None else line[nearest]
    span = math.log(above / below)
    share = math.log(c / below) / span
    if (line[above] - line[below]) / span > STEEP:
        return line[above] if share > 0.5 else line[below]
    return line[below] + share * (line[above] - line[below])


History = Sequence[tuple[Trial, Sample]]

ALPHA = 0.05
"""One-sided error of a claim."""
LOOK_SIZES = (1, 1, 2, 4, 8)
"""A rung's requests come in at most these many trials, in multiples of the first, with a look after each."""
LOOKS = len(LOOK_SIZES)
CHAINS = 3
"""Climbs on fresh data: the first, and one more after each of at most two rungs given up."""
RUNG_ALPHA = ALPHA / (CHAINS * LOOKS)
"""One-sided error of each look at a rung, so that a search as a whole errs with ALPHA at most."""
HOPELESS_ERRORS = 0.05
HOPELESS_TAIL = 10.0
HOPELESS_FALL = 0.05


def excess(point: Point, limits: Iterable[Limit]) -> float | None:
    """ln of value over limit for the worst metric, below 0 inside the SLA; None when invalid or not measured."""
    if not point.valid:
        return None
    worst = -math.inf
    for limit in limits:
        e = point.metrics.get(limit.metric)
        if e is None or math.isnan(e.value):
            return None
        value, bar = (e.value, limit.promise) if metric(limit.metric).better == "lower" else (limit.promise, e.value)
        if value <= 0:
            continue
        worst = max(worst, math.inf if bar <= 0 or math.isinf(value) else math.log(value / bar))
    return worst


def in_order(history: History, *phases: Phase) -> list[tuple[Trial, Sample]]:
    """The trials of these phases by concurrency and repeat, whatever order they were finished in."""
    return sorted(((t, s) for t, s in history if t.phase in phases), key=lambda ts: (ts[0].concurrency, ts[0].repeat))


def by_concurrency(history: History) -> dict[int, list[Sample]]:
    """The samples of each concurrency, in the history's order."""
    groups: dict[int, list[Sample]] = {}
    for trial, sample in history:
        groups.setdefault(trial.concurrency, []).append(sample)
    return groups


def joined(history: History, phases: tuple[Phase, ...]) -> dict[int, Sample]:
    """Per concurrency the data of these phases, joined."""
    return {c: _join(tuple(parts)) for c, parts in by_concurrency(in_order(history, *phases)).items()}


def joined_looks(looks: Sequence[Sample]) -> Sample:
    """All the looks at one rung."""
    return _join(tuple(looks))


@functools.lru_cache(maxsize=64)
def _join(parts: tuple[Sample, ...]) -> Sample:
    """Remembered, as is `pilot_point`: the search replays its whole history at every step."""
    return window.join(parts)


@functools.lru_cache(maxsize=64)
def pilot_point(sample: Sample, limits: tuple[Limit, ...]) -> Point:
    """What locating and drawing the frontier's gaps need of a sample, and no more."""
    asked = [name for limit in limits for name in (limit.metric, bulk_name(limit.metric))]
    names = dict.fromkeys(("output_throughput", "request_throughput", "mean_e2e", *asked))
    return estimate.point(sample, names=tuple(names), limits=limits)


@functools.lru_cache(maxsize=64)
def rung_point(sample: Sample, limits: tuple[Limit, ...]) -> Point:
    """What judging a rung needs of its looks."""
    return claim_point(sample, limits, names=())


def bulk_name(name: str) -> str:
    """The quieter sister of a tail metric: p90 of the same quantity for percentiles above it, else itself."""
    m = metric(name)
    return f"p90_{name.partition('_')[2]}" if m.p is not None and m.p > 0.9 else name


def claim_samples(history: History) -> dict[int, Sample]:
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
    """The points that `sla.solve` may decide on, by concurrency.

    A confirmed setting was looked at several times, as one of several, so the one-sided bounds of its limited metrics
    are those at RUNG_ALPHA; the two-sided intervals shown stay at 95 %. Points of grid settings are the usual ones.
    """
    confirmed = {trial.concurrency for trial, _ in history if trial.phase is Phase.CONFIRM}
    return tuple(
        claim_point(sample, tuple(limits), names=names, price=price)
        if c in confirmed
        else estimate.point(sample, names=names, limits=tuple(limits), price=price)
        for c, sample in sorted(claim_samples(history).items())
    )


def claim_point(
    sample: Sample, limits: tuple[Limit, ...], *, names: Sequence[str], price: float | None = None
) -> Point:
    """A point whose limited metrics carry one-sided bounds at RUNG_ALPHA."""
    point = estimate.point(sample, names=names, limits=limits, price=price)
    metrics = dict(point.metrics)
    for limit in limits:
        strict = estimate.estimate(sample, limit.metric, limits=limits, confidence=1 - RUNG_ALPHA, price=price)
        if strict is not None:
            metrics[limit.metric] = strict
    return dataclasses.replace(point, metrics=metrics)


def skip_reason(trial: Trial, history: History, limits: Sequence[Limit]) -> str | None:
    """Why a grid trial need not be run, given what lower concurrencies of its shape showed; None: run it.

    A setting is skipped, and said to be, when the highest lower one failed more than 5 % of its requests or was more
    than ten times over a latency limit, or when throughput fell by more than 5 % below the best at two in a row.
    """
    below = {c: s for c, s in joined(history, (Phase.GRID,)).items() if c < trial.concurrency}
    if not below:
        return None
    last = max(below)
    errors = estimate.estimate(below[last], "error_rate")
    if errors is not None and errors.lower > HOPELESS_ERRORS:
        return f"c={last} already failed {errors.value:.0%} of its requests"
    for limit in limits:
        m = metric(limit.metric)
        found = estimate.estimate(below[last], limit.metric, limits=tuple(limits)) if m.unit.value == "s" else None
        if found is not None and found.lower > HOPELESS_TAIL * limit.promise:
            return f"{m.label} at c={last} is already {m.format(found.value)}, over ten times its limit"
    rates = [estimate.estimate(below[c], "output_throughput") for c in sorted(below)]
    known = [r for r in rates if r is not None]
    if len(known) >= 3 and all(r.high < (1 - HOPELESS_FALL) * max(k.value for k in known) for r in known[-2:]):
        return f"throughput has fallen at two settings in a row, up to c={last}"
    return None
