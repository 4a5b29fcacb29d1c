"""How long the windows of a proof are: the requests, connections and turns that a bound needs."""

import functools
import math
from collections.abc import Sequence

from frontier.core import intervals
from frontier.core.changes import PROOFS, latencies
from frontier.core.decisions import Limit, Verdict
from frontier.core.metrics import claim_floor
from frontier.core.proof import ALPHA, ASCENTS, SCANS, SPEND, STEADY, WINDOWS, Candidate, error_left
from frontier.core.shapes import Shape
from frontier.core.trials import Phase, Trial
from frontier.core.window import WindowData

PER_STREAM = 4
"""Requests of each stream that a window holds at least: a shorter one costs as much, by its warm-up
and its end."""


SPARE = 0.05
"""By how much the share of a class in a window may be below its share in all."""


SPARE_CONNECTIONS = 1.25
"""Connections of a setting of the grid over those that a claim needs: some carry fewer requests."""


DEPENDENCE_CAP = 4.0
"""Most requests that stand for one independent request when a window is sized: a short scan's
inflation is noisy."""


MOST_LONGER = 4.0
"""Most times longer that windows become after a candidate that had too few independent requests."""


def window_size(
    scanned: WindowData, limits: Sequence[Limit], concurrency: int, earlier: Sequence[Candidate] = ()
) -> int:
    """Requests of each window of a candidate: WINDOWS of them prove it with two violations seen.

    `scanned` is the nearest data from before, `earlier` are the candidates before it, which left so
    much of the error and showed how far requests depend on each other. A size taken from the
    candidate's own data would follow its results.
    """
    error = SPEND * error_left(earlier)
    size = WINDOWS * max(30, PER_STREAM * concurrency)
    for limit in limits:
        if (p := limit.of.p) is None:
            continue
        independent = shortage(earlier, limit) * intervals.needed(p, 1 - error, violations=2)
        requests = dependence(scanned, limit) * independent / scanned.shape.class_share(limit.of.group)
        size = max(size, math.ceil(requests), fewest_requests(scanned.shape, limit, concurrency))
    return -(-size // WINDOWS)


def connections_wanted(limits: Sequence[Limit], trial: Trial, windows: int = 1) -> int:
    """Over how many connections the requests of a trial's window are to be spread, so that all
    windows of a proof, or the `windows` of a setting of the grid, have as many as the hardest
    percentile needs (`core.connections`); 0 where nothing is claimed. Without limits as a p99
    needs.
    """
    p = max((limit.of.p for limit in limits if limit.of.p is not None), default=None if limits else 0.99)
    if p is None or trial.phase in SCANS:
        return 0
    if trial.phase in (*PROOFS, Phase.VISIT):
        return -(-intervals.needed(p, 1 - SPEND * ALPHA * (1 - SPEND) ** (ASCENTS - 1)) // WINDOWS)
    return math.ceil(SPARE_CONNECTIONS * intervals.needed(p) / windows)


def shortage(earlier: Sequence[Candidate], limit: Limit) -> float:
    """How many times more requests a bound would have needed in candidates that were given up for
    want of one, at most MOST_LONGER; 1 where there are none. A stall of the server makes all
    requests in flight late together: a scan is too short to see one.
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
    """The fewest requests, of all classes, with which a claim about a limit on a percentile is
    made.
    """
    p, share = limit.of.p, shape.class_share(limit.of.group)
    if p is None or share == 1:
        return 0 if p is None else claim_floor(p, concurrency)
    return math.ceil(claim_floor(p, math.ceil(concurrency * share)) / (share * (1 - SPARE)))


@functools.lru_cache(maxsize=512)
def dependence(scanned: WindowData, limit: Limit) -> float:
    """How many requests stand for one independent request, as far as a scan shows it,
    DEPENDENCE_CAP at most.
    """
    p, values = limit.of.p, latencies(scanned, limit)
    if p is None or not len(values):
        return 1.0
    return min(DEPENDENCE_CAP, len(values) / max(1.0, intervals.n_eff(values, p)))


@functools.cache
def allowance(p: float, effective: int, alpha: float) -> float:
    """The share of requests beyond the limit with which so many independent ones prove the
    percentile p; 0: none do.
    """
    violations = intervals.binomial_quantile(alpha, effective, 1 - p) - 1 if effective >= 1 else -1
    return (violations + 0.5) / effective if violations >= 0 else 0.0
