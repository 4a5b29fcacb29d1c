"""Bounds from dependent requests: estimates of a percentile, a mean or a share, at the effective
sample size.

Four things make requests worth less than their number: neighbours are alike, the turns of a
session are alike, the requests of a connection are alike, and the server's speed wanders. Each of
these only ever widens a bound.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from frontier.core.estimates.widening import widening
from frontier.core.model.metrics import claim_floor
from frontier.core.model.points import Estimate
from frontier.core.stats import connections, episodes, intervals
from frontier.core.stats.wander import Wander, detrended
from frontier.core.window.window import BLOCKS, Bools, Floats, Ints, WindowData

TWO_SIDED = 0.95
"""Confidence of the interval that is shown, low..high."""
SIDE = (1 + TWO_SIDED) / 2
"""Confidence of each end of that interval."""
MEAN_FLOOR = claim_floor(0.5)
"""Fewest requests before a claim about a mean, a rate or a share."""
MOST_NEEDED = 10_000_000
"""More requests than this are not proposed."""
FEWEST_WINDOWS = 3
"""Fewest windows whose largest latencies give a bound: as many as the least proof has."""
_SAYS_NOTHING = math.log(100)
"""A rough bound this far (in ln) above the median says nothing."""
_LARGEST = 100.0
"""Logarithm of the largest bound: beyond it all bounds are alike, and floats end."""


def requests_needed(p: float, confidence: float = 0.95, failed: float = 0.0, per_effective: float = 1.0) -> int | None:
    """How many requests would give the percentile p a finite upper bound, a share `failed` of them
    being +inf.

    `per_effective` requests are worth one independent request. None: the percentile itself is +inf,
    or so near to it that more than MOST_NEEDED requests would be needed.
    """

    if failed > 1 - p - 1e-9:
        return None

    def enough(effective: int) -> bool:
        rank = intervals.upper_rank(p, effective, effective, confidence)
        return effective > MOST_NEEDED or (rank is not None and rank <= effective * (1 - failed))

    independent = intervals.least(enough, intervals.needed(p, confidence))
    return None if independent > MOST_NEEDED else math.ceil(independent * per_effective)


def worths(sample: WindowData, values: Floats, has: Bools, p: float) -> dict[str, float]:
    """The most independent requests that those of `has` are worth for the percentile p of `values`,
    by what they share.
    """
    x = values[has]
    # As `intervals.steadier`, and not further from the tail than the largest tenth.
    steadier = max(intervals.steadier(p), min(p, 0.9))
    return {
        "sessions": _worth_of_sessions(sample, lambda order: intervals.n_eff(values[order][has[order]], p)),
        "streams": _worth_of_streams(sample, has, lambda: (_beyond(x, p), _beyond(x, steadier))),
        "connections": connections.worth(sample, x, has, p),
        "runs": len(x) / sample.runs,
    }


def percentile(
    sample: WindowData, values: Floats, has: Bools, p: float, confidence: float, wander: Wander | None
) -> Estimate:
    """The percentile p of `values` over the requests that `has` marks, with bounds that allow for a
    wandering speed.
    """
    x, windows = values[has], sample.window[has]
    units = functools.partial(_units, sample, has, x)  # a sort, which few percentiles need
    worth = min(worths(sample, values, has, p).values())
    exact = _ranked(sample, x, windows, units, p, confidence, worth)
    if wander is None or not wander.deviation:
        return exact
    if wander.stalls:
        # No normal law has these blocks: evened out they would hide what happened. The plain bound
        # sees them, and in lockstep takes as many turns as it would take requests.
        most = min(worth, wander.independent_periods)
        return _ranked(sample, x, windows, units, p, confidence, most) if widening(sample).waves else exact
    # The same requests at an even speed have the percentile's bounds without the wander; the two
    # errors are independent, and their sum is that of the logarithms.
    even, middle = detrended(sample, x, has, widening(sample).waves)
    levelled = _ranked(sample, even, windows, units, p, confidence, worth)
    return wandering(exact, levelled, middle, p, wander, confidence)


def in_episodes(
    found: Estimate, sample: WindowData, quantity: str, values: Floats, has: Bools, p: float | None
) -> Estimate:
    """`found` with upper bounds that hold with the most episodes that there may be; as it is where
    the series shows none.
    """
    if sample.episodes is None or p is None:
        return found
    most = percentile(
        sample, episodes.at_share(sample, quantity, values, sample.episodes.share), has, p, found.confidence, None
    )
    return replace(found, high=max(most.high, found.value), upper=max(most.upper, found.value), need=most.need)


def _session_order(sample: WindowData) -> Ints | None:
    """The requests sorted by session, in the order in which sessions began; None where there are no
    turns of sessions.
    """
    if not len(sample.session):
        return None
    _, first, number = np.unique(
        np.stack([sample.window, sample.session]), axis=1, return_index=True, return_inverse=True
    )
    return np.lexsort((sample.sent, sample.sent[first][number.reshape(-1)]))


def _worth_of_sessions(sample: WindowData, worth: Callable[[Ints], float]) -> float:
    """The most independent requests that the sample is worth, as the turns of a session are alike.

    In this order the turns of a session are in one block, so the block estimate sees what they
    share.
    """
    order = _session_order(sample)
    return math.inf if order is None else worth(order)


def _beyond(x: Floats, p: float) -> Bools:
    """Which values of x are beyond its percentile p.

    Where that is the largest value, the values equal to it count: requests that repeat a cycle have
    many equal values. Where it is infinite, the infinite values count.
    """
    value = intervals.quantile(x, p)
    beyond: Bools = x > value
    return beyond if beyond.any() else x >= value


def _worth_of_streams(sample: WindowData, has: Bools, hits: Callable[[], tuple[Bools, Bools]]) -> float:
    """The most independent requests that those of `has` are worth, as the requests of one stream
    are alike.

    With equal lengths a stream keeps its place among the others for a whole window, and with it its
    latency. Time blocks cannot see that, as each holds all places. `hits` gives the requests beyond
    the percentile, and those beyond a lower one. Infinite where streams differ in them by
    chance only, and where there are too few windows to show the places in another window.
    """
    if len(sample.stream) != sample.n or not has.any():
        return math.inf
    streams, windows = sample.stream[has], sample.window[has]
    if np.count_nonzero(np.bincount(windows)) < FEWEST_WINDOWS:
        return math.inf
    of_stream = windows * (int(streams.max()) + 1) + streams
    at_p, towards = (intervals.vif_of_clusters(each, of_stream, windows) for each in hits())
    return len(streams) / intervals.inflation(at_p, towards) if max(at_p, towards) > 1 else math.inf


def wandering(exact: Estimate, even: Estimate, middle: float, p: float, wander: Wander, confidence: float) -> Estimate:
    """`exact` with bounds that allow for a wandering speed: those of `even`, its requests at one
    speed, further out by what the measured periods leave unknown. Never narrower than they were.
    `middle` is the mean logarithm.
    """

    def moved(bound: float, level: float) -> float:
        if not 0 < bound < math.inf:
            return bound
        reach, beyond = math.log(bound) - middle, wander.beyond(p, level)
        both = math.copysign(math.hypot(reach, beyond), reach) if reach * beyond > 0 else reach + beyond
        return math.exp(min(middle + both, _LARGEST))

    def upper(were: float, bound: float, level: float) -> float:
        # A rough bound, by windows, takes their wander for a tail, and is no floor of this one.
        by_ranks = math.isfinite(were) and exact.need is None
        return max(moved(bound, level), exact.value, were if by_ranks else 0.0)

    def lower(were: float, bound: float, level: float) -> float:
        return min(moved(bound, 1 - level), exact.value, were)

    wider = replace(
        exact,
        low=lower(exact.low, even.low, SIDE),
        high=upper(exact.high, even.high, SIDE),
        lower=lower(exact.lower, even.lower, confidence),
        upper=upper(exact.upper, even.upper, confidence),
    )
    return replace(wider, need=None if even.need is None else exact.need)


def wandering_mean(mean: Estimate, wander: Wander | None, confidence: float) -> Estimate:
    """A mean or rate with bounds that allow for a wandering speed."""
    if wander is None or not wander.deviation:
        return mean

    def reach(bound: float, level: float) -> float:
        if not math.isfinite(bound):
            return bound
        sign = math.copysign(1.0, bound - mean.value)
        more = mean.value * math.expm1(min(wander.of_mean(level), _LARGEST))
        return max(0.0, mean.value + sign * math.hypot(bound - mean.value, more))

    return replace(
        mean,
        low=reach(mean.low, SIDE),
        high=reach(mean.high, SIDE),
        lower=reach(mean.lower, confidence),
        upper=reach(mean.upper, confidence),
    )


def _ranked(
    sample: WindowData,
    x: Floats,
    windows: Ints,
    units: Callable[[], Ints],
    p: float,
    confidence: float,
    most: float = math.inf,
) -> Estimate:
    """A percentile by order statistics at the effective sample size, which is `most` at most, its
    upper bound by the largest latency of each unit where that is too small.
    """
    ordered, tail = np.sort(x), intervals.steadier(p)
    value, middle, steady = (float(ordered[intervals.rank(q, len(x)) - 1]) for q in (p, 0.5, tail))
    beyond = np.isinf(x) if math.isinf(value) else x > value
    counts = np.bincount(windows).astype(np.float64)
    tails = np.bincount(windows, beyond, len(counts)).astype(np.float64)
    effective = min(len(x) / intervals.inflation(intervals.vif(x, value), intervals.vif(x, steady)), most)
    least = connections.least_requests(sample, p, confidence)
    by_ranks = from_ranks(
        p,
        len(x),
        lambda level: intervals.worth_between(effective, p, tails, counts, level),
        lambda rank: float(ordered[rank - 1]),
        confidence,
        requests=len(x),
        least=least,
        failed=float(np.isinf(x).mean()),
    )
    if math.isfinite(by_ranks.upper) or len(x) < least:
        return by_ranks
    largest = _largest(x, units())
    enough = np.count_nonzero(counts) >= FEWEST_WINDOWS and sample.runs == 1
    side, bound = (above_largest(largest, middle, p, level) if enough else math.inf for level in (SIDE, confidence))
    return replace(by_ranks, high=min(by_ranks.high, side), upper=bound)


def _units(sample: WindowData, has: Bools, x: Floats) -> Ints:
    """The number of the unit of each value of x, over the requests in `has`.

    The requests of one unit may be alike to any degree. A unit is a stream in its window, where
    windows differ no more than their streams do; else it is a window. Windows begin anew, each with
    its streams in places of their own. So they are independent however much alike the requests of
    one window are: in lockstep a window is one cycle over and over. Where requests vary, those of
    each stream do so by themselves.
    """
    windows = sample.window[has]
    if len(sample.stream) != sample.n or not len(x) or not (np.isfinite(x) & (x > 0)).all():
        return windows
    streams = windows * (int(sample.stream.max()) + 1) + sample.stream[has]
    _, first, unit = np.unique(streams, return_index=True, return_inverse=True)
    return streams if intervals.means_alike(np.log(_largest(x, unit)), windows[first]) else windows


def _largest(x: Floats, units: Ints) -> Floats:
    """The largest value of each unit."""
    unit = intervals.numbered(units)
    largest = np.full(int(unit.max()) + 1, -math.inf)
    np.maximum.at(largest, unit, x)
    return largest


def above_largest(largest: Floats, middle: float, p: float, confidence: float) -> float:
    """An upper bound of the percentile p where requests are too much alike for a bound by ranks.

    Each unit (see `_units`) counts as a single value, its `largest` latency. The bound is infinite
    where one of these is infinite or 0, and where it would be a hundred times the median.

    A request is beyond a bound no more often than the largest request of its unit. So a bound for
    the percentile p of the largest is one for the requests. The logarithms are taken to have an
    exponential tail, so the latencies have a Pareto tail.

    Units may be alike by chance. So the bound lies at least as far above the largest latency of all
    as that lies above `middle`, the median: the tail may be twice as long as was seen. So it is
    never below a bound by ranks, and only helps where no request came near the limit.
    """
    if len(largest) < 2 or not middle > 0 or not (np.isfinite(largest) & (largest > 0)).all():
        return math.inf
    logs = np.log(largest)
    top = float(logs.max())
    reach = max(top, 2 * top - math.log(middle), intervals.exponential_upper(logs, p, confidence))
    return math.exp(reach) if reach - math.log(middle) < _SAYS_NOTHING else math.inf


def from_ranks(
    p: float,
    n: int,
    effective: Callable[[float], float],
    value_of: Callable[[int], float],
    confidence: float,
    *,
    requests: int,
    least: int,
    failed: float,
) -> Estimate:
    """The percentile p of n values with bounds that are order statistics: `value_of` gives the
    value of a rank.

    `effective` gives how many independent values they are worth to a bound at a confidence.

    The upper bound, which a claim rests on, also needs `least` requests. The lower bound, which
    shows a violation, does not: too few requests can hide a slow tail but not invent one.
    """

    def lower(level: float) -> float:
        rank = intervals.lower_rank(p, n, effective(level), level)
        return -math.inf if rank is None else value_of(rank)

    def upper(level: float) -> float:
        rank = intervals.upper_rank(p, n, effective(level), level)
        return math.inf if rank is None else value_of(rank)

    bound = upper(confidence) if requests >= least else math.inf
    needed = requests_needed(p, confidence, failed, requests / effective(confidence)) if math.isinf(bound) else None
    if needed is not None:
        needed = max(needed, least, requests + 1)
    value = value_of(intervals.rank(p, n))
    return Estimate(value, lower(SIDE), upper(SIDE), requests, lower(confidence), bound, needed, confidence)


def mean(sample: WindowData, values: Floats, has: Bools, confidence: float) -> Estimate:
    """The mean, from blocks of successive requests, or of whole sessions where those differ
    more.
    """
    by_requests = _mean_of(values[has], sample.window[has], confidence)
    order = _session_order(sample)
    if order is None:
        return by_requests
    order = order[has[order]]
    by_sessions = _mean_of(values[order], sample.window[order], confidence)
    wider = by_sessions.high - by_sessions.low > by_requests.high - by_requests.low
    return by_sessions if wider else by_requests


def _mean_of(x: Floats, windows: Ints, confidence: float) -> Estimate:
    """The mean, from blocks of successive values. With a failure it is infinite, and only a lower
    bound is known.
    """
    finite = np.isfinite(x)
    successes, runs = x[finite], windows[finite]
    parts = [successes[runs == run] for run in np.unique(runs)]
    # As many blocks per window as the shortest can fill, so that no block is empty and all windows
    # have equally many.
    blocks = max(1, min([BLOCKS, *(len(part) for part in parts)]))
    cut = [block for part in parts for block in np.array_split(part, blocks)]
    totals, counts = np.array([b.sum() for b in cut]), np.array([float(len(b)) for b in cut])
    mean = from_blocks(totals, counts, len(parts), len(x), len(x), confidence)
    return mean if finite.all() else with_failures(mean)


def with_failures(mean: Estimate) -> Estimate:
    """A mean over the successes, made one over all requests, some of which failed: infinite, with
    its lower bounds.
    """
    return replace(mean, value=math.inf, high=math.inf, upper=math.inf, need=None)


def from_blocks(totals: Floats, weights: Floats, windows: int, n: int, requests: int, confidence: float) -> Estimate:
    """A mean or rate from time blocks. Both bounds need MEAN_FLOOR requests, as they are
    approximate.
    """
    means = intervals.batch_means(totals, weights, max(1, windows))
    low, high = means.bounds(SIDE)
    if requests < MEAN_FLOOR:
        return Estimate(means.value, max(0.0, low), high, n, need=math.ceil(MEAN_FLOOR * n / max(1, requests)))
    lower, upper = means.bounds(confidence)
    return Estimate(means.value, max(0.0, low), high, n, max(0.0, lower), upper, None, confidence)


def share(sample: WindowData, hits: Bools, confidence: float) -> Estimate:
    """A share of requests at the effective sample size; its upper bound needs MEAN_FLOOR.

    The bounds that claims rest on are exact (Clopper and Pearson); the interval shown is their
    mid-P one, never within.
    """
    n, windows = len(hits), sample.window
    effective = min(
        _worth_of_sessions(sample, lambda order: intervals.share_n_eff(hits[order])),
        _worth_of_streams(sample, np.ones(n, np.bool_), lambda: (hits, hits)),
        intervals.share_n_eff(hits),
        connections.share_worth(sample, hits),
        n / sample.runs,
    )
    value = float(hits.mean())
    counts = np.bincount(windows).astype(np.float64)
    hits_of_window = np.bincount(windows, hits, len(counts)).astype(np.float64)

    def bounds(exact: Callable[[float, float, float], tuple[float, float]], level: float) -> tuple[float, float]:
        worth = intervals.worth_between(effective, value, hits_of_window, counts, level)
        return exact(value * worth, worth, level)

    (low, high), (lower, upper) = bounds(intervals.mid_p, SIDE), bounds(intervals.clopper_pearson, confidence)
    if n < MEAN_FLOOR:
        return Estimate(value, low, high, n, lower, math.inf, MEAN_FLOOR, confidence)
    return Estimate(value, low, high, n, lower, upper, None, confidence)
