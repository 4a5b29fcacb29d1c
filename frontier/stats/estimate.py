"""Estimates with confidence intervals from window data: percentiles, means, rates, shares; and the point of a setting.

Every number comes with its interval and the one-sided bounds that verdicts use. A bound that the sample cannot carry is
infinite on the side of the claim, and `need` says how many requests would carry it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from frontier.metrics import DEFAULT_METRICS, claim_floor, metric
from frontier.model import Estimate, Limit, Point
from frontier.stats import cost_energy, intervals
from frontier.stats.flags import UNCOUNTED, differing, flags
from frontier.stats.histogram import ALPHA, X0, LogHistogram
from frontier.stats.wander import Wander, evened
from frontier.stats.widening import widening
from frontier.stats.window import BLOCKS, Bools, Floats, Ints, WindowData, gaps, narrowed

OF_CLASSES = tuple(f"{s}_{q}" for q in ("ttft", "tpot", "e2e") for s in ("mean", "p50", "p90", "p95", "p99"))
"""The metrics that each class of requests has of its own, where all the default ones are asked for."""
TWO_SIDED = 0.95
"""Of the interval that is shown, low..high."""
MEAN_FLOOR = claim_floor(0.5)
"""Fewest requests before a claim about a mean, a rate or a share."""
DEPENDENT_BLOCKS = 0.4
"""Correlation of successive blocks above which a batch-means interval is too narrow."""
MOST_NEEDED = 10_000_000
"""More requests than this are not proposed."""
_THROUGHPUTS = {
    "output_throughput": ("output",),
    "input_throughput": ("input",),
    "total_throughput": ("output", "input"),
}
"""Which sides' tokens a throughput counts."""
_SIDE = (1 + TWO_SIDED) / 2
_LARGEST = 100.0
"""Logarithm of the largest bound: beyond it all bounds are alike, and floats end."""


def point(
    sample: WindowData,
    *,
    names: Iterable[str] = DEFAULT_METRICS,
    limits: tuple[Limit, ...] = (),
    price: float | None = None,
) -> Point:
    """What this sample says about its setting: the metrics `names` and those of `limits`, the flags, the notes.

    With limits also goodput and attainment; with a `price` (dollars per hour for the deployment) also the cost; where
    the sample has a power the energy.
    """
    wanted = [*names, *(limit.metric for limit in limits)]
    if set(DEFAULT_METRICS) <= set(wanted):
        wanted += [f"{group}.{name}" for group in sample.shape.classes for name in OF_CLASSES]
    wanted += ["goodput", "attainment"] if limits else []
    wanted += ["cost"] if price is not None else []
    wanted += ["energy", "tokens_per_joule"] if sample.power is not None else []
    estimates = {name: estimate(sample, name, limits=limits, price=price) for name in dict.fromkeys(wanted)}
    return Point(
        deployment=sample.deployment,
        shape=sample.shape,
        concurrency=sample.concurrency,
        metrics={name: value for name, value in estimates.items() if value is not None},
        n=sample.n,
        flags=flags(sample, limits),
        repeats=len(sample.starts),
        notes=_notes(sample),
        whole_run=sample.whole_run,
        power=sample.power,
        in_flight=None if sample.holds_in_flight else _in_flight(sample),
    )


def _in_flight(sample: WindowData) -> float | None:
    """Requests in flight on average over the windows; None for windows without length."""
    seconds = float(sample.block_seconds.sum())
    return float((sample.in_flight * sample.block_seconds).sum()) / seconds if seconds > 0 else None


def estimate(
    sample: WindowData,
    name: str,
    *,
    limits: tuple[Limit, ...] = (),
    confidence: float = 0.95,
    price: float | None = None,
) -> Estimate | None:
    """The metric `name` of this sample; None when the sample lacks it. ValueError for an unknown name.

    `lower` and `upper` are one-sided bounds at `confidence` each; `low`..`high` is always the two-sided 95 %.
    """
    m = metric(name)
    sample = narrowed(sample, m.group)
    if not sample.n:
        return None
    if m.quantity == "itl":
        return _itl(sample, m.p, confidence)
    if m.quantity is not None:
        latency = _of_requests(sample, m.quantity, m.p, confidence)
        return latency.inverted() if latency is not None and m.inverted else latency
    if m.counts is not None:
        return _share(sample, m.counts(sample), confidence)
    if name in ("goodput", "attainment"):
        return _attaining(sample, name, limits, confidence)
    if name in ("cost", "energy", "tokens_per_joule"):
        throughput = estimate(sample, "output_throughput", confidence=confidence)
        if throughput is None:
            return None
        if name == "cost":
            return None if price is None else cost_energy.cost(throughput, price)
        return None if sample.power is None else cost_energy.energy(throughput, sample.power)[name]
    if any(_uncounted_share(sample, side) > UNCOUNTED for side in _THROUGHPUTS.get(name, ())):
        return None
    rate = _rate(sample, sample.block_totals(name), confidence)
    return None if rate is None else _with_uncounted(sample, name, rate)


def requests_needed(p: float, confidence: float = 0.95, failed: float = 0.0, per_effective: float = 1.0) -> int | None:
    """How many requests would give the percentile p a finite upper bound, a share `failed` of them being +inf.

    `per_effective` requests are worth one independent one. None: the percentile itself is +inf, or so near to it that
    more than MOST_NEEDED would be needed.
    """

    if failed > 1 - p - 1e-9:
        return None

    def enough(effective: int) -> bool:
        rank = intervals.upper_rank(p, effective, effective, confidence)
        return rank is not None and rank <= effective * (1 - failed)

    independent = intervals.least(enough, intervals.needed(p, confidence), MOST_NEEDED)
    return None if independent is None else math.ceil(independent * per_effective)


def per_request(limits: Iterable[Limit]) -> Mapping[str, float]:
    """Seconds within which a single request attains, per quantity (ttft, tpot, e2e).

    Of several percentiles of one quantity the highest counts. Means, rates and ITL are no promise about one request.
    """
    chosen: dict[str, tuple[float, float]] = {}
    for limit in limits:
        m = limit.of
        if m.quantity is None or m.quantity == "itl" or m.p is None:
            continue
        promise = limit.promise if not m.inverted else 1 / limit.promise if limit.promise > 0 else math.inf
        if m.quantity not in chosen or m.p > chosen[m.quantity][0]:
            chosen[m.quantity] = (m.p, promise)
    return {quantity: promise for quantity, (_, promise) in chosen.items()}


def attains(sample: WindowData, limits: Iterable[Limit]) -> Bools:
    """Which requests succeeded within every limit of `per_request`, at the worst of what is known of each. A TPOT that
    is not defined breaks no limit.
    """
    within, limits = sample.ok.copy(), tuple(limits)
    for group in dict.fromkeys(limit.of.group for limit in limits):
        mine = sample.of_class(group) if group is not None else np.ones(sample.n, dtype=np.bool_)
        for quantity, promise in per_request(limit for limit in limits if limit.of.group == group).items():
            within &= ~(mine & (_sides(sample, quantity)[1] > promise))
    return within


def _of_requests(sample: WindowData, quantity: str, p: float | None, confidence: float) -> Estimate | None:
    """A percentile, or with p None the mean, of what each request has; None when no request has it.

    Upper bounds are of the worst that each request may have had, lower bounds of the best.
    """

    def statistic(values: Floats) -> Estimate | None:
        has = ~np.isnan(values)
        if not has.any():
            return None
        wander = widening(sample).wander.get(quantity)
        if p is None:
            return _wandering_mean(_mean(sample, values, has, confidence), wander, confidence)
        return _percentile(sample, values, has, p, confidence, wander)

    values: Floats = getattr(sample, quantity)
    best, worst = _sides(sample, quantity)
    result = statistic(values)
    if result is None:
        return None
    if worst is not values and (above := statistic(worst)) is not None:
        result = replace(result, high=above.high, upper=above.upper, need=above.need)
    if best is not values and (below := statistic(best)) is not None:
        result = replace(result, low=below.low, lower=below.lower)
    return result


def _sides(sample: WindowData, quantity: str) -> tuple[Floats, Floats]:
    """The least and the most that each request's latency may have been: the same array twice where it is known exactly.

    A TTFT is at most the time to the first visible character. A TPOT that is not known lies between 0 and infinity.
    Where a count differs a little from the chunks (`differing`), the tokens were as many as one or the other.
    What a load slightly off leaves in doubt (`widening`) comes on top: of a TPOT, shared by the tokens.
    """
    best, worst = _as_measured(sample, quantity)
    slack = widening(sample)
    if not slack.longer and not slack.shorter and not slack.pause:
        return best, worst
    each = np.fmax(sample.completion_tokens - 1, 1) if quantity == "tpot" else 1.0
    mean = _tokens_after_first(sample) if quantity == "tpot" else 1.0
    less, more = (slack.pause / each + seconds / mean for seconds in (slack.shorter, slack.longer))
    return np.maximum(best - less, 0.0), worst + more


def _tokens_after_first(sample: WindowData) -> float:
    """Of an answer, on average; 1 where that is not known."""
    known = sample.completion_tokens[sample.completion_tokens > 1]
    return float(known.mean()) - 1 if len(known) else 1.0


def _as_measured(sample: WindowData, quantity: str) -> tuple[Floats, Floats]:
    """`_sides` of the load that was measured."""
    values: Floats = getattr(sample, quantity)
    if quantity == "ttft":
        return values, values + sample.silence if sample.silence.any() else values
    if quantity != "tpot":
        return values, values
    untimed, miscounted = sample.untimed, differing(sample)
    if not untimed.any() and not miscounted.any():
        return values, values
    best, worst = values.copy(), values.copy()
    best[untimed], worst[untimed] = 0.0, math.inf
    spans, chunks = (sample.e2e - sample.ttft)[miscounted], sample.events[miscounted] - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        by_chunks = np.where(chunks > 0, spans / chunks, math.inf)
    worst[miscounted] = np.maximum(values[miscounted], by_chunks)
    best[miscounted] = np.where(chunks > 0, np.minimum(values[miscounted], by_chunks), 0.0)
    return best, worst


def _percentile(
    sample: WindowData, values: Floats, has: Bools, p: float, confidence: float, wander: Wander | None
) -> Estimate:
    x, windows = values[has], sample.window[has]
    worth = _worth_of_sessions(sample, lambda order: intervals.n_eff(values[order][has[order]], p))
    exact = _ranked(sample, x, windows, p, confidence, worth)
    if wander is None or not wander.deviation:
        return exact
    if wander.stalls:
        # No normal law has these blocks: evened out they would hide what happened. The plain bound sees them, and in
        # lockstep takes as many turns as it would take requests.
        most = min(worth, wander.stretches)
        return _ranked(sample, x, windows, p, confidence, most) if widening(sample).waves else exact
    # The same requests at an even speed have the percentile's bounds without the wander; the two errors are
    # independent, and their sum is that of the logarithms.
    even, middle = evened(sample, x, has, widening(sample).waves)
    return _wandering(exact, _ranked(sample, even, windows, p, confidence, worth), middle, p, wander, confidence)


def _session_order(sample: WindowData) -> Ints | None:
    """The requests session by session, in the order in which these began; None where there are no sessions of turns."""
    if not len(sample.session):
        return None
    _, first, number = np.unique(
        np.stack([sample.window, sample.session]), axis=1, return_index=True, return_inverse=True
    )
    return np.lexsort((sample.sent, sample.sent[first][number.reshape(-1)]))


def _worth_of_sessions(sample: WindowData, worth: Callable[[Ints], float]) -> float:
    """How many independent requests the sample is worth at most, the turns of a session being alike.

    Put in this order, the turns of a session are in one block, so that what they share is seen as what blocks share.
    """
    order = _session_order(sample)
    return math.inf if order is None else worth(order)


def _wandering(exact: Estimate, even: Estimate, middle: float, p: float, wander: Wander, confidence: float) -> Estimate:
    """`exact` with bounds that allow for a wandering speed: those of `even`, its requests at one speed, further out by
    what the measured stretches leave unknown. Never narrower than they were. `middle` is the mean logarithm.
    """

    def moved(bound: float, level: float) -> float:
        if not 0 < bound < math.inf:
            return bound
        reach, beyond = math.log(bound) - middle, wander.beyond(p, level)
        both = math.copysign(math.hypot(reach, beyond), reach) if reach * beyond > 0 else reach + beyond
        return math.exp(min(middle + both, _LARGEST))

    def upper(were: float, bound: float, level: float) -> float:
        return max(moved(bound, level), exact.value, were if math.isfinite(were) else 0.0)

    def lower(were: float, bound: float, level: float) -> float:
        return min(moved(bound, 1 - level), exact.value, were)

    wider = replace(
        exact,
        low=lower(exact.low, even.low, _SIDE), high=upper(exact.high, even.high, _SIDE),
        lower=lower(exact.lower, even.lower, confidence), upper=upper(exact.upper, even.upper, confidence),
    )  # fmt: skip
    return replace(wider, need=None) if math.isfinite(wider.upper) else wider


def _wandering_mean(mean: Estimate, wander: Wander | None, confidence: float) -> Estimate:
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
        mean, low=reach(mean.low, _SIDE), high=reach(mean.high, _SIDE),
        lower=reach(mean.lower, confidence), upper=reach(mean.upper, confidence),
    )  # fmt: skip


def _ranked(
    sample: WindowData, x: Floats, windows: Ints, p: float, confidence: float, most: float = math.inf
) -> Estimate:
    """A percentile by order statistics at the effective sample size, which is `most` at most."""
    streams = sample.streams
    ordered = np.sort(x)
    value = float(ordered[intervals.rank(p, len(x)) - 1])
    beyond = np.isinf(x) if math.isinf(value) else x > value
    counts = np.bincount(windows).astype(np.float64)
    tails = np.bincount(windows, beyond, len(counts)).astype(np.float64)
    effective = min(intervals.n_eff(x, p), most)
    return _from_ranks(
        p, len(x), lambda level: intervals.worth_between(effective, p, tails, counts, level),
        lambda rank: float(ordered[rank - 1]), confidence,
        requests=len(x), least=claim_floor(p, streams), failed=float(np.isinf(x).mean()),
    )  # fmt: skip


def _from_ranks(
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
    """The percentile p of n values with bounds that are order statistics: `value_of` gives the value of a rank.

    `effective` gives how many independent values they are worth to a bound at a confidence.

    The upper bound, which a claim rests on, also needs `least` requests. The lower bound, which shows a violation, does
    not: too few requests can hide a slow tail but not invent one.
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
    return Estimate(value, lower(_SIDE), upper(_SIDE), requests, lower(confidence), bound, needed)


def _itl(sample: WindowData, p: float | None, confidence: float) -> Estimate | None:
    """The gaps between chunks that arrived in the window. A failed request counts as a request's worth of endless gaps.

    Gaps are many but dependent, so how much they are worth comes from the time blocks, and the floor counts requests.
    """
    pooled = gaps(sample)
    counts = np.array([block.count for block in sample.block_itl], dtype=np.float64)
    failed = float((~sample.ok).mean())
    if not pooled.count:
        return None
    if p is None:
        totals = np.array([block.total for block in sample.block_itl])
        mean = _from_blocks(totals, counts, len(sample.starts), sample.n, sample.n, confidence)
        mean = _wandering_mean(mean, widening(sample).wander.get("tpot"), confidence)
        return _with_failures(mean) if failed else mean
    n = math.ceil(pooled.count / (1 - failed)) if failed < 1 else pooled.count

    def value_of(rank: int) -> float:
        return pooled.order_stat(rank) if rank <= pooled.count and failed < 1 else math.inf

    def beyond(share: float) -> Floats:
        value = pooled.order_stat(intervals.rank(share, n))
        return np.array(LogHistogram.counts_above(sample.block_itl, value), dtype=np.float64)

    def variance_inflation(tail: Floats) -> float:
        return intervals.vif_of_blocks(intervals.regroup(tail), intervals.regroup(counts))

    tail = beyond(p)
    steadier = beyond(intervals.steadier(p))
    effective = n / intervals.inflation(variance_inflation(tail), variance_inflation(steadier))
    tail_of_window, count_of_window = (blocks.reshape(-1, BLOCKS).sum(axis=1) for blocks in (tail, counts))
    exact = _from_ranks(
        p, n, lambda level: intervals.worth_between(effective, p, tail_of_window, count_of_window, level), value_of,
        confidence, requests=sample.n, least=claim_floor(p, sample.streams), failed=failed,
    )  # fmt: skip
    # A bin stands for what is ALPHA to either side of it, and a bound has to hold for all of that.
    less, more = 1 - ALPHA, 1 + ALPHA
    exact = replace(
        exact, low=exact.low * less, lower=exact.lower * less, high=exact.high * more, upper=exact.upper * more
    )
    slack = widening(sample)
    if wander := slack.wander.get("tpot"):
        exact = _wandering(exact, exact, math.log(max(pooled.quantile(0.5), X0)), p, wander, confidence)
    tokens = _tokens_after_first(sample)
    less, more = (slack.pause + seconds / tokens for seconds in (slack.shorter, slack.longer))
    return replace(
        exact, low=max(0.0, exact.low - less), lower=max(exact.lower - less, min(exact.lower, 0.0)),
        high=exact.high + more, upper=exact.upper + more,
    )  # fmt: skip


def _mean(sample: WindowData, values: Floats, has: Bools, confidence: float) -> Estimate:
    """The mean, from blocks of successive requests, or of whole sessions where those differ more."""
    mean = _mean_of(values[has], sample.window[has], confidence)
    order = _session_order(sample)
    if order is None:
        return mean
    order = order[has[order]]
    by_sessions = _mean_of(values[order], sample.window[order], confidence)
    wider = by_sessions.high - by_sessions.low > mean.high - mean.low
    return by_sessions if wider else mean


def _mean_of(x: Floats, windows: Ints, confidence: float) -> Estimate:
    """The mean, from blocks of successive values. With a failure it is infinite, and only a lower bound is known."""
    finite = np.isfinite(x)
    successes, runs = x[finite], windows[finite]
    parts = [successes[runs == run] for run in np.unique(runs)]
    # As many blocks per window as the shortest can fill, so that no block is empty and all windows have equally many.
    blocks = max(1, min([BLOCKS, *(len(part) for part in parts)]))
    cut = [block for part in parts for block in np.array_split(part, blocks)]
    totals, counts = np.array([b.sum() for b in cut]), np.array([float(len(b)) for b in cut])
    mean = _from_blocks(totals, counts, len(parts), len(x), len(x), confidence)
    return mean if finite.all() else _with_failures(mean)


def _with_failures(mean: Estimate) -> Estimate:
    """A mean over the successes, turned into what it says of all requests when some failed."""
    return replace(mean, value=math.inf, high=math.inf, upper=math.inf, need=None)


def _from_blocks(totals: Floats, weights: Floats, windows: int, n: int, requests: int, confidence: float) -> Estimate:
    """A mean or rate from time blocks; both bounds need MEAN_FLOOR requests, being approximate."""
    means = intervals.batch_means(totals, weights, max(1, windows))
    low, high = means.bounds(_SIDE)
    if requests < MEAN_FLOOR:
        return Estimate(means.value, max(0.0, low), high, n, need=MEAN_FLOOR)
    lower, upper = means.bounds(confidence)
    return Estimate(means.value, max(0.0, low), high, n, max(0.0, lower), upper)


def _side(sample: WindowData, side: str) -> tuple[Floats, Floats]:
    """The lengths asked for and the tokens counted by the server, of the output or the input."""
    if side == "output":
        return sample.asked_osl, sample.completion_tokens
    return sample.asked_isl, sample.prompt_tokens


def _uncounted_share(sample: WindowData, side: str) -> float:
    counted = _side(sample, side)[1][sample.ok]
    return float(np.isnan(counted).mean()) if len(counted) else 0.0


def _with_uncounted(sample: WindowData, name: str, rate: Estimate) -> Estimate:
    """A throughput in tokens whose upper bounds allow for the answers without a count: each may have been as long as
    was asked.
    """
    most = known = 0.0
    for side in _THROUGHPUTS.get(name, ()):
        asked, counted = _side(sample, side)
        missing = sample.ok & np.isnan(counted)
        most += float(np.where(asked > 0, asked, math.inf)[missing].sum())
        known += float(np.nansum(counted[sample.ok]))
    if most == 0:
        return rate
    factor = 1 + most / known if known > 0 else math.inf
    return replace(rate, high=rate.high * factor, upper=rate.upper * factor)


def _rate(sample: WindowData, totals: Floats, confidence: float) -> Estimate | None:
    """A total per second over the time blocks; None for a window without length."""
    if not sample.block_seconds.sum() > 0:
        return None
    rate = _from_blocks(totals, sample.block_seconds, len(sample.starts), BLOCKS, sample.n, confidence)
    slack = widening(sample)
    if not sample.open_loop:
        rate = _wandering_mean(rate, slack.wander.get("e2e"), confidence)
    return replace(
        rate, low=rate.low * slack.less, lower=rate.lower * slack.less,
        high=rate.high * slack.more, upper=rate.upper * slack.more,
    )  # fmt: skip


def _share(sample: WindowData, hits: Bools, confidence: float) -> Estimate:
    """A share of requests at the effective sample size; its upper bound needs MEAN_FLOOR.

    The bounds that claims rest on are exact (Clopper and Pearson); the interval shown is their mid-P one, never within.
    """
    n, windows = len(hits), sample.window
    effective = _worth_of_sessions(sample, lambda order: intervals.share_n_eff(hits[order]))
    effective = min(effective, intervals.share_n_eff(hits))
    share = float(hits.mean())
    counts = np.bincount(windows).astype(np.float64)
    hits_of_window = np.bincount(windows, hits, len(counts)).astype(np.float64)

    def bounds(exact: Callable[[float, float, float], tuple[float, float]], level: float) -> tuple[float, float]:
        worth = intervals.worth_between(effective, share, hits_of_window, counts, level)
        return exact(share * worth, worth, level)

    (low, high), (lower, upper) = bounds(intervals.mid_p, _SIDE), bounds(intervals.clopper_pearson, confidence)
    if n < MEAN_FLOOR:
        return Estimate(share, low, high, n, lower, math.inf, MEAN_FLOOR)
    return Estimate(share, low, high, n, lower, upper)


def _attaining(sample: WindowData, name: str, limits: tuple[Limit, ...], confidence: float) -> Estimate | None:
    """Goodput: attaining requests, by when they were sent, per second. Attainment: their share. None where the server
    counts no tokens and TPOT is limited.
    """
    limited = per_request(limits)
    if not limited or ("tpot" in limited and sample.ok.any() and sample.untimed[sample.ok].all()):
        return None
    within = attains(sample, limits)
    if name == "attainment":
        miss = _share(sample, ~within, confidence)
        return Estimate(1 - miss.value, 1 - miss.high, 1 - miss.low, miss.n, 1 - miss.upper, 1 - miss.lower, miss.need)
    return _rate(sample, sample.per_block(within), confidence)


def _notes(sample: WindowData) -> tuple[str, ...]:
    """What a reader should know about how the numbers came about, beside the flags."""
    notes: list[str] = []
    failed = int((~sample.ok).sum())
    if failed:
        notes.append(
            f"{failed} of {sample.n} requests failed; they count as infinite latency, so means are infinite "
            "(whole_run has the figures of the successes alone)"
        )
    uncounted = int(np.isnan(sample.completion_tokens[sample.ok]).sum())
    if uncounted:
        notes.append(f"the server gave no token count for {uncounted} of {int(sample.ok.sum())} answers")
    if sample.block_seconds.sum() > 0:
        lag1 = intervals.batch_means(sample.block_output_tokens, sample.block_seconds).lag1
        if lag1 > DEPENDENT_BLOCKS:
            notes.append(
                f"throughput of successive time blocks is correlated ({lag1:.2f}): its interval is too narrow, "
                "a longer window widens it"
            )
    return tuple(notes)
