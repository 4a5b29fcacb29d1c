"""Tails: whether the share of the requests beyond a limit differs between two sets of latencies.

The level of a window, its mean logarithm, hardly moves where 3% of the requests take five times as
long, and a p99 then breaks its limit. Here the requests beyond the limit are counted, at their
effective number. A shift of all requests by as much as counts as no change puts more of them beyond
the limit, and is no change of the tail either. Such a shift also moves the usual request: of one
that surely moved less, no greater shift is allowed for.
"""

import math

import numpy as np

from frontier.core.model.decisions import Limit
from frontier.core.stats import intervals
from frontier.core.window.window import Floats

DOUBT = 0.99
"""Confidence of the bounds of two shares at which one load puts another in doubt."""
_MOST = math.log(100)
"""The largest difference (ln) that is stated: where requests fail, it is infinite."""


def difference(before: Floats, after: Floats, limit: Limit, shift: float, error: float) -> float:
    """The difference of a limited percentile (ln), where it passed its limit by more than `shift`;
    0 otherwise, and where the shares beyond the limit may be the same (Fisher's exact test).
    """
    p, most = limit.of.p, _most(limit)
    if p is None or _over(before, p, most) == _over(after, p, most):
        return 0.0
    (low, few), (high, many) = sorted(
        ((intervals.quantile(values, p), values) for values in (before, after)), key=lambda side: side[0]
    )
    if high <= low * math.exp(shift):
        return 0.0
    shift = min(shift, _moved(few, many))
    if intervals.as_often(*_beyond(few, most * math.exp(-shift)), *_beyond(many, most)) > error:
        return 0.0
    by = min(_MOST, math.log(high / low)) if low > 0 else _MOST
    return by if many is after else -by


def _moved(few: Floats, many: Floats) -> float:
    """The most (ln) by which the median rose from one set to the other (bounds at DOUBT)."""
    below = intervals.lower_rank(0.5, len(few), intervals.n_eff(few, 0.5), DOUBT)
    above = intervals.upper_rank(0.5, len(many), intervals.n_eff(many, 0.5), DOUBT)
    if below is None or above is None or (low := float(np.partition(few, below - 1)[below - 1])) <= 0:
        return math.inf
    return max(0.0, math.log(float(np.partition(many, above - 1)[above - 1]) / low))


def excluded(lower: Floats, higher: Floats, limit: Limit, shift: float) -> bool:
    """Whether a load has more requests beyond a limit on a percentile than it allows, and than the
    data of a lower load do (bounds at DOUBT), although their medians differ by `shift` at most.
    Failures do not count: a limit on requests in flight refuses what is over it, and nothing below.
    """
    p, most, higher = limit.of.p, _most(limit), higher[np.isfinite(higher)]
    if p is None or not len(higher) or not (higher > most).mean() > 1 - p:
        return False
    middles = [math.log(max(1e-9, intervals.quantile(values, 0.5))) for values in (lower, higher)]
    least = intervals.clopper_pearson(*_beyond(higher, most), DOUBT)[0]
    allowed = intervals.clopper_pearson(*_beyond(lower, most * math.exp(-shift)), DOUBT)[1]
    return least > allowed and abs(middles[1] - middles[0]) <= shift


MOST_LATE = 0.1
"""The largest share of requests beyond a limit in a window whose runs are counted: far over a limit
requests wait in waves, which says nothing of lower loads."""


def runs(values: Floats, limit: Limit) -> tuple[int, int]:
    """The numbers of requests of a window beyond a limit on a percentile and of the runs in which
    they follow each other. None of a window with many of them: where most are beyond it, they
    follow each other.
    """
    hits = values > _most(limit)
    if limit.of.p is None or hits.mean() > min(MOST_LATE, 1 - intervals.steadier(limit.of.p)):
        return 0, 0
    return int(hits.sum()), int((np.diff(hits, prepend=False) & hits).sum())


def _over(values: Floats, p: float, most: float) -> bool:
    """Whether the percentile p is over `most`: counted, which is far quicker than to find it."""
    return int(np.count_nonzero(values <= most)) < intervals.rank(p, len(values))


def _beyond(values: Floats, most: float) -> tuple[float, float]:
    """The effective numbers of the requests beyond `most`, and of all."""
    hits = values > most
    worth = intervals.share_n_eff(hits)
    return float(np.mean(hits)) * worth, worth


def _most(limit: Limit) -> float:
    """The most that a request's latency may be to keep a limit."""
    return 1 / limit.promise if limit.of.inverted and limit.promise > 0 else limit.promise
