"""Window sizes: the requests, connections and turns that a bound needs, and the time they take.

The time is estimated by what was measured nearby.
"""

import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from frontier.core.claim.changes import PROOFS
from frontier.core.claim.levels import latencies
from frontier.core.claim.proof import (
    ALPHA,
    ASCENTS,
    JUDGED_AFTER,
    SCANS,
    SPEND,
    STEADY,
    WINDOWS,
    Candidate,
    error_left,
)
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.loads import Concurrency, Load
from frontier.core.model.metrics import claim_floor
from frontier.core.model.points import Point
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Phase, Trial
from frontier.core.stats import intervals, laws
from frontier.core.window.held import held
from frontier.core.window.window import WindowData
from frontier.search.series_history import nearest

PER_STREAM = 4
"""Requests of each stream that a window holds at least: a shorter one costs as much, by its warm-up
and its end."""


SPARE = 0.05
"""The share by which a class may be rarer in a window than in all requests."""


SPARE_CONNECTIONS = 1.25
"""Connections of a setting of the grid, as a multiple of those that a claim needs: some carry fewer
requests."""


REPEATED, SECOND_TURNS, FEWER = 0.1, 4, 6
"""The share of the variance of a latency that is left within streams where each repeats its own. So
many requests that follow another of their stream show it. The last is the factor by which a bound
by the largest values of streams needs fewer than one by ranks."""


DEPENDENCE_CAP = 4.0
"""The most requests that count as one independent request when a window is sized: the estimate of a
short scan is noisy."""


MOST_LONGER = 4.0
"""The most by which windows grow after a candidate that had too few independent requests, as a
factor."""


def window_size(
    scanned: Mapping[Load, WindowData], limits: Sequence[Limit], concurrency: int, earlier: Sequence[Candidate] = ()
) -> int:
    """Requests of each window of a candidate: WINDOWS of them prove it with two violations seen.
    Where a stream `repeats` its latency only more windows tell more, and the requests are spread
    over as many as that takes, STEADY at most.

    `scanned` is data from before the candidate; the nearest counts. `earlier` are the candidates
    before it: they show how much of the error is left, and how far requests depend on each other. A
    size taken from the candidate's own data would follow its results.
    """
    near, error = nearest(scanned, Concurrency(concurrency)), SPEND * error_left(earlier)
    needed = {m: intervals.needed(m.of.p, 1 - error, violations=2) for m in limits if m.of.p is not None}
    alike = [limit for limit in needed if repeats(scanned, limit, concurrency)]
    windows = next(k for k in JUDGED_AFTER if k >= STEADY or all(FEWER * k * concurrency >= needed[m] for m in alike))
    size = windows * max(30, PER_STREAM * concurrency)
    for limit, independent in needed.items():
        size = max(size, fewest_requests(near.shape, limit, concurrency))
        if limit not in alike:
            requests = shortage(earlier, limit) * dependence(near, limit) * independent
            size = max(size, math.ceil(requests / near.shape.class_share(limit.of.group)))
    return -(-size // windows)


def connections_wanted(limits: Sequence[Limit], trial: Trial, windows: int = 1) -> int:
    """The number of connections over which the requests of a trial's window are to be spread; 0
    where nothing is claimed.

    All windows of a proof, or the `windows` of a setting of the grid, then have as many as the
    hardest percentile needs (`core.stats.connections`). Without limits that is a p99.
    """
    p = max((limit.of.p for limit in limits if limit.of.p is not None), default=None if limits else 0.99)
    if p is None or trial.phase in SCANS:
        return 0
    if trial.phase in (*PROOFS, Phase.VISIT):
        return -(-intervals.needed(p, 1 - SPEND * ALPHA * (1 - SPEND) ** (ASCENTS - 1)) // WINDOWS)
    return math.ceil(SPARE_CONNECTIONS * intervals.needed(p) / windows)


def shortage(earlier: Sequence[Candidate], limit: Limit) -> float:
    """The factor by which earlier candidates had too few requests for a bound, at most MOST_LONGER;
    1 where none was given up for that.

    A stall of the server makes all requests in flight late together; a scan is too short to see
    one.
    """
    missed = [1.0]
    for candidate in earlier:
        e = candidate.point.metrics.get(limit.metric)
        given_up = candidate.verdict is Verdict.VIOLATES and candidate.windows >= STEADY
        times = candidate.shortage(limit)
        if given_up and e is not None and times is not None and not limit.breaks(e.value):
            missed.append(times)
    return min(MOST_LONGER, max(missed))


def fewest_requests(shape: Shape, limit: Limit, concurrency: int) -> int:
    """The fewest requests of all classes for a claim about a limit on a percentile; 0 for other
    limits.
    """
    p, share = limit.of.p, shape.class_share(limit.of.group)
    if p is None or share == 1:
        return 0 if p is None else claim_floor(p, concurrency)
    return math.ceil(claim_floor(p, math.ceil(concurrency * share)) / (share * (1 - SPARE)))


@held
def dependence(scanned: WindowData, limit: Limit) -> float:
    """How many requests count as one independent request, by a scan; at most DEPENDENCE_CAP."""
    p, values = limit.of.p, latencies(scanned, limit)
    if p is None or not len(values):
        return 1.0
    return min(DEPENDENCE_CAP, len(values) / max(1.0, min(intervals.n_eff(values, p), len(values) / scanned.runs)))


def repeats(scanned: Mapping[Load, WindowData], limit: Limit, concurrency: int) -> bool:
    """Whether a stream meets one latency again and again within a window, by the nearest scan of
    several: where all answers are equally long, a stream keeps its place among the others.
    """
    several = {c: sample for c, sample in scanned.items() if c > 1}
    return bool(several) and _varies_within(nearest(several, Concurrency(concurrency)), limit) < REPEATED


@held
def _varies_within(sample: WindowData, limit: Limit) -> float:
    """The share of the variance of a latency that is left within streams."""
    values = getattr(sample, limit.of.quantity or "e2e", sample.e2e)
    has = np.isfinite(values) & (values > 0)
    if len(sample.stream) != sample.n or limit.of.group is not None or not has.any():
        return 1.0
    logs, windows = np.log(values[has]), sample.window[has]
    _, stream = np.unique(windows * (int(sample.stream.max()) + 1) + sample.stream[has], return_inverse=True)
    means, counts = (np.bincount(stream, weights) for weights in (logs, None))
    within = float(((logs - (means / counts)[stream]) ** 2).sum()) / max(1, len(logs) - len(counts))
    return within / max(1e-12, float(logs.var())) if len(logs) - len(counts) >= SECOND_TURNS else 1.0


@functools.cache
def allowance(p: float, effective: int, alpha: float) -> float:
    """The share of requests that may be over the limit when `effective` independent ones prove the
    percentile p; 0: too few to prove it.
    """
    violations = laws.binomial_quantile(alpha, effective, 1 - p) - 1 if effective >= 1 else -1
    return (violations + 0.5) / effective if violations >= 0 else 0.0


@functools.cache
def reach_of_largest(p: float, units: int, alpha: float) -> float:
    """How many standard deviations beyond the median a bound by the largest values of so many
    streams lies (`estimates.bounds`), where these follow a normal law.
    """
    expected = np.array([laws.normal_quantile((k + 0.5) / units) for k in range(units)])
    return max(2 * float(expected[-1]), intervals.exponential_upper(expected, p, 1 - alpha))


TURNS = 2.0
"""The shortest window that the search sizes by time, as a multiple of the time of a request."""


SESSION_TURNS = 8.0
"""Requests of each stream in a look, where requests are of classes: turns of sessions, or a mix."""


def in_flight(load: Load, points: Mapping[Load, Point]) -> float:
    """Requests in flight at a load: the concurrency. At a rate, by Little's law with the time of a
    request at the nearest setting.
    """
    if load.per_second is None:
        return load
    return load.per_second * requests_per_arrival(points) * (mean_e2e(load, points) or 1.0)


def requests_per_arrival(points: Mapping[Load, Point]) -> float:
    """Requests that an arrival brings."""
    return next((p.shape.requests for p in points.values()), 1.0)


def mean_e2e(concurrency: Load, points: Mapping[Load, Point]) -> float | None:
    """Mean seconds of a request at the nearest measured setting; None before a setting was
    measured.
    """
    known = {k: e2e for k, p in points.items() if math.isfinite(e2e := p.value("mean_e2e"))}
    if not known:
        return None
    return known[min(known, key=lambda k: (abs(math.log(k / concurrency)), k))]


def longer(seconds: float, c: Load, points: Mapping[Load, Point]) -> float:
    """The seconds of a window at c: `seconds`, or TURNS times the time of a request nearby with the
    thinking before it, whichever is longer.
    """
    shape = next((p.shape for p in points.values()), None)
    pause = 0.0 if shape is None else shape.pause
    return max(seconds, requests_per_stream(points, TURNS) * ((mean_e2e(c, points) or 0.0) + pause))


def requests_per_stream(points: Mapping[Load, Point], usual: float) -> float:
    """Requests of each stream in a look: `usual`, or SESSION_TURNS where requests are of classes
    and so less alike.
    """
    return SESSION_TURNS if any(p.shape.classes for p in points.values()) else usual
