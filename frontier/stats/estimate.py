"""From a sample to estimates, and to the point that everything above the summary speaks of.

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
from frontier.stats.histogram import ALPHA, LogHistogram
from frontier.stats.window_data import BLOCKS, Bools, Floats, Ints, Sample, gaps

TWO_SIDED = 0.95
"""Of the interval that is shown, low..high."""
MEAN_FLOOR = claim_floor(0.5)
"""Fewest requests before a claim about a mean, a rate or a share."""
DEPENDENT_BLOCKS = 0.4
"""Correlation of successive blocks above which a batch-means interval is too narrow."""
MOST_NEED = 10_000_000
"""More requests than this are not proposed to anybody."""
_SIDE = (1 + TWO_SIDED) / 2


def point(
    sample: Sample,
    *,
    names: Iterable[str] = DEFAULT_METRICS,
    limits: tuple[Limit, ...] = (),
    price: float | None = None,
    light: Mapping[str, float] | None = None,
) -> Point:
    """What this sample says about its setting: the metrics `names` and those of `limits`, the flags, the notes.

    With limits also goodput and attainment; with a `price` (dollars per hour for the deployment) also the cost; where
    the sample has a power the energy. `light` is what physics allows, see `validity.flags`.
    """
    wanted = [*names, *(limit.metric for limit in limits)]
    wanted += ["goodput", "attainment"] if limits else []
    wanted += ["cost"] if price is not None else []
    wanted += ["energy", "tokens_per_joule"] if sample.power is not None else []
    found = {name: estimate(sample, name, limits=limits, price=price) for name in dict.fromkeys(wanted)}
    return Point(
        deployment=sample.deployment,
        shape=sample.shape,
        concurrency=sample.concurrency,
        metrics={name: value for name, value in found.items() if value is not None},
        n=sample.n,
        flags=flags(sample, limits, light=light),
        repeats=len(sample.starts),
        notes=_notes(sample),
        whole_run=sample.whole_run,
        power=sample.power,
    )


def estimate(
    sample: Sample,
    name: str,
    *,
    limits: tuple[Limit, ...] = (),
    confidence: float = 0.95,
    price: float | None = None,
) -> Estimate | None:
    """The metric `name` of this sample; None when the sample cannot tell. ValueError for an unknown name.

    `lower` and `upper` are one-sided bounds at `confidence` each; `low`..`high` is always the two-sided 95 %.
    """
    wanted = metric(name)
    if not sample.n:
        return None
    if wanted.quantity == "itl":
        return _itl(sample, wanted.p, confidence)
    if wanted.quantity is not None:
        found = _of_requests(sample, wanted.quantity, wanted.p, confidence)
        return _inverse(found) if found is not None and wanted.inverted else found
    if name == "error_rate":
        return _share(~sample.ok, sample.window, confidence)
    if name in ("goodput", "attainment"):
        return _attaining(sample, name, limits, confidence)
    if name == "cost":
        throughput = estimate(sample, "output_throughput", confidence=confidence)
        return None if price is None or throughput is None else _inverse(throughput, price * 1e6 / 3600)
    if name in ("energy", "tokens_per_joule"):
        throughput = estimate(sample, "output_throughput", confidence=confidence)
        if sample.power is None or throughput is None:
            return None
        return (cost_energy.per_token if name == "energy" else cost_energy.per_joule)(throughput, sample.power)
    totals = _block_totals(sample, name)
    found = None if totals is None else _rate(sample, totals, confidence)
    return None if found is None else _with_uncounted(sample, name, found)


def need(p: float, confidence: float = 0.95, failed: float = 0.0, per_effective: float = 1.0) -> int | None:
    """How many requests would give the percentile p a finite upper bound, a share `failed` of them being +inf.

    `per_effective` requests are worth one independent one. None: the percentile itself is +inf, or so near to it that
    more than MOST_NEED would be needed.
    """

    if failed > 1 - p - 1e-9:
        return None

    def decides(effective: int) -> bool:
        rank = intervals.upper_rank(p, effective, effective, confidence)
        return rank is not None and rank <= effective * (1 - failed)

    low, high = 0, intervals.needed(p, confidence)
    while not decides(high):
        if high > MOST_NEED:
            return None
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return math.ceil(high * per_effective)


def per_request(limits: Iterable[Limit]) -> Mapping[str, float]:
    """Seconds within which a single request attains, per quantity (ttft, tpot, e2e).

    Of several percentiles of one quantity the highest counts. Means, rates and ITL are no promise about one request.
    """
    chosen: dict[str, tuple[float, float]] = {}
    for limit in limits:
        read = metric(limit.metric)
        if read.quantity is None or read.quantity == "itl" or read.p is None:
            continue
        promise = limit.promise if not read.inverted else 1 / limit.promise if limit.promise > 0 else math.inf
        if read.quantity not in chosen or read.p > chosen[read.quantity][0]:
            chosen[read.quantity] = (read.p, promise)
    return {quantity: promise for quantity, (_, promise) in chosen.items()}


def attains(sample: Sample, limits: Iterable[Limit]) -> Bools:
    """Which requests succeeded within every limit of `per_request`, at the worst of what is known of each. A TPOT that
    is not defined breaks no limit.
    """
    within = sample.ok.copy()
    for quantity, promise in per_request(limits).items():
        within &= ~(_sides(sample, quantity)[1] > promise)
    return within


def _of_requests(sample: Sample, quantity: str, p: float | None, confidence: float) -> Estimate | None:
    """A percentile, or with p None the mean, of what each request has; None when no request has it.

    Upper bounds are of the worst that each request may have had, lower bounds of the best.
    """

    def of(values: Floats) -> Estimate | None:
        has = ~np.isnan(values)
        if not has.any():
            return None
        values, windows = values[has], sample.window[has]
        if p is None:
            return _mean(values, windows, confidence)
        return _percentile(values, windows, p, sample.concurrency, confidence)

    values: Floats = getattr(sample, quantity)
    best, worst = _sides(sample, quantity)
    found = of(values)
    if found is None:
        return None
    if worst is not values and (above := of(worst)) is not None:
        found = replace(found, high=above.high, upper=above.upper, need=above.need)
    if best is not values and (below := of(best)) is not None:
        found = replace(found, low=below.low, lower=below.lower)
    return found


def _sides(sample: Sample, quantity: str) -> tuple[Floats, Floats]:
    """The least and the most that each request's latency may have been; the latency itself where all is known of it.

    A TTFT is at most the time to the first visible character. A TPOT that is not known lies between nothing and
    endless. Where a count differs a little from the chunks (`differing`), the tokens were as many as one or the other.
    """
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


def _percentile(x: Floats, windows: Ints, p: float, concurrency: int, confidence: float) -> Estimate:
    ordered = np.sort(x)
    at = float(ordered[intervals.rank(p, len(x)) - 1])
    beyond = np.isinf(x) if math.isinf(at) else x > at
    counts = np.bincount(windows).astype(np.float64)
    tails = np.bincount(windows, beyond, len(counts)).astype(np.float64)
    worth = intervals.n_eff(x, p)
    return _tail(
        p, len(x), lambda level: intervals.worth_between(worth, p, tails, counts, level),
        lambda rank: float(ordered[rank - 1]), confidence,
        requests=len(x), least=claim_floor(p, concurrency), failed=float(np.isinf(x).mean()),
    )  # fmt: skip


def _tail(
    p: float,
    n: int,
    worth: Callable[[float], float],
    at: Callable[[int], float],
    confidence: float,
    *,
    requests: int,
    least: int,
    failed: float,
) -> Estimate:
    """The percentile p of n values, where `at` gives the value of a rank.

    `worth` tells how many independent values they are worth to a bound at a confidence.

    The upper bound, which a claim rests on, also needs `least` requests. The lower bound, which shows a violation, does
    not: too few requests can hide a slow tail but not invent one.
    """

    def low(level: float) -> float:
        rank = intervals.lower_rank(p, n, worth(level), level)
        return -math.inf if rank is None else at(rank)

    def high(level: float) -> float:
        rank = intervals.upper_rank(p, n, worth(level), level)
        return math.inf if rank is None else at(rank)

    upper = high(confidence) if requests >= least else math.inf
    wanted = need(p, confidence, failed, requests / worth(confidence)) if math.isinf(upper) else None
    if wanted is not None:
        wanted = max(wanted, least, requests + 1)
    return Estimate(at(intervals.rank(p, n)), low(_SIDE), high(_SIDE), requests, low(confidence), upper, wanted)


def _itl(sample: Sample, p: float | None, confidence: float) -> Estimate | None:
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
        found = _from_blocks(totals, counts, len(sample.starts), sample.n, sample.n, confidence)
        return _with_failures(found) if failed else found
    n = math.ceil(pooled.count / (1 - failed)) if failed < 1 else pooled.count

    def at(rank: int) -> float:
        return pooled.order_stat(rank) if rank <= pooled.count and failed < 1 else math.inf

    def above(share: float) -> Floats:
        q = pooled.order_stat(intervals.rank(share, n))
        return np.array(LogHistogram.counts_above(sample.block_itl, q), dtype=np.float64)

    def inflation(beyond: Floats) -> float:
        return intervals.vif_of_blocks(intervals.regroup(beyond), intervals.regroup(counts))

    beyond = above(p)
    worth = n / intervals.inflation(inflation(beyond), inflation(above(intervals.steadier(p))))
    tails, of = (blocks.reshape(-1, BLOCKS).sum(axis=1) for blocks in (beyond, counts))
    found = _tail(
        p, n, lambda level: intervals.worth_between(worth, p, tails, of, level), at, confidence,
        requests=sample.n, least=claim_floor(p, sample.concurrency), failed=failed,
    )  # fmt: skip
    # A bin stands for what is ALPHA to either side of it, and a bound has to hold for all of that.
    less, more = 1 - ALPHA, 1 + ALPHA
    return replace(
        found, low=found.low * less, lower=found.lower * less, high=found.high * more, upper=found.upper * more
    )


def _mean(x: Floats, windows: Ints, confidence: float) -> Estimate:
    """The mean, from blocks of successive requests. With a failure it is infinite, and only a lower bound is known."""
    finite = np.isfinite(x)
    kept, runs = x[finite], windows[finite]
    parts = [kept[runs == run] for run in np.unique(runs)]
    blocks = max(1, min([BLOCKS, *(len(part) for part in parts)]))
    cut = [block for part in parts for block in np.array_split(part, blocks)]
    totals, counts = np.array([b.sum() for b in cut]), np.array([float(len(b)) for b in cut])
    found = _from_blocks(totals, counts, len(parts), len(x), len(x), confidence)
    return found if finite.all() else _with_failures(found)


def _with_failures(found: Estimate) -> Estimate:
    """A mean over the successes, turned into what it says of all requests when some failed."""
    return replace(found, value=math.inf, high=math.inf, upper=math.inf, need=None)


def _from_blocks(totals: Floats, weights: Floats, windows: int, n: int, requests: int, confidence: float) -> Estimate:
    """A mean or rate from time blocks; both bounds need MEAN_FLOOR requests, being approximate."""
    means = intervals.batch_means(totals, weights, max(1, windows))
    low, high = means.bounds(_SIDE)
    lower, upper = means.bounds(confidence)
    enough = requests >= MEAN_FLOOR
    if not enough:
        lower, upper = -math.inf, math.inf
    return Estimate(
        means.value, max(0.0, low), high, n, max(0.0, lower) if enough else lower, upper, None if enough else MEAN_FLOOR
    )


def _block_totals(sample: Sample, name: str) -> Floats | None:
    """What the throughput `name` adds up, per block; None when the server counted too few of the tokens."""
    if name == "request_throughput":
        return sample.block_finished
    total = np.zeros(len(sample.block_seconds))
    for sides, blocks, counted in (
        (("output_throughput", "total_throughput"), sample.block_output_tokens, sample.completion_tokens),
        (("input_throughput", "total_throughput"), sample.block_input_tokens, sample.prompt_tokens),
    ):
        if name in sides:
            if sample.ok.any() and np.isnan(counted[sample.ok]).mean() > UNCOUNTED:
                return None
            total = total + blocks
    return total


def _with_uncounted(sample: Sample, name: str, found: Estimate) -> Estimate:
    """A throughput in tokens whose upper bounds allow for the answers without a count: they may have been as long as
    was asked.
    """
    most = known = 0.0
    for sides, asked, counted in (
        (("output_throughput", "total_throughput"), sample.asked_osl, sample.completion_tokens),
        (("input_throughput", "total_throughput"), sample.asked_isl, sample.prompt_tokens),
    ):
        if name in sides:
            missing = sample.ok & np.isnan(counted)
            most += float(np.where(asked > 0, asked, math.inf)[missing].sum())
            known += float(np.nansum(counted[sample.ok]))
    if most == 0:
        return found
    factor = 1 + most / known if known > 0 else math.inf
    return replace(found, high=found.high * factor, upper=found.upper * factor)


def _rate(sample: Sample, totals: Floats, confidence: float) -> Estimate | None:
    if not sample.block_seconds.sum() > 0:
        return None
    return _from_blocks(totals, sample.block_seconds, len(sample.starts), BLOCKS, sample.n, confidence)


def _share(hits: Bools, windows: Ints, confidence: float) -> Estimate:
    """A share of requests at the effective sample size; its upper bound needs MEAN_FLOOR.

    The bounds that claims rest on are exact (Clopper and Pearson); the interval shown is their mid-P one, never within.
    """
    n, worth = len(hits), intervals.share_n_eff(hits)
    share = float(hits.mean())
    counts = np.bincount(windows).astype(np.float64)
    tails = np.bincount(windows, hits, len(counts)).astype(np.float64)

    def bounds(exact: Callable[[float, float, float], tuple[float, float]], level: float) -> tuple[float, float]:
        effective = intervals.worth_between(worth, share, tails, counts, level)
        return exact(share * effective, effective, level)

    (low, high), (lower, upper) = bounds(intervals.mid_p, _SIDE), bounds(intervals.clopper_pearson, confidence)
    if n < MEAN_FLOOR:
        return Estimate(share, low, high, n, lower, math.inf, MEAN_FLOOR)
    return Estimate(share, low, high, n, lower, upper)


def _attaining(sample: Sample, name: str, limits: tuple[Limit, ...], confidence: float) -> Estimate | None:
    """Goodput: attaining requests, by when they were sent, per second. Attainment: their share. None where the server
    counts no tokens and TPOT is limited.
    """
    if not per_request(limits) or (
        "tpot" in per_request(limits) and sample.ok.any() and sample.untimed[sample.ok].all()
    ):
        return None
    within = attains(sample, limits)
    if name == "attainment":
        miss = _share(~within, sample.window, confidence)
        return Estimate(1 - miss.value, 1 - miss.high, 1 - miss.low, miss.n, 1 - miss.upper, 1 - miss.lower, miss.need)
    length = (sample.ends - sample.starts)[sample.window]
    into = (sample.sent - sample.starts[sample.window]) / np.where(length > 0, length, 1)
    block = sample.window * BLOCKS + np.clip((into * BLOCKS).astype(np.int64), 0, BLOCKS - 1)
    totals = np.bincount(block[within], minlength=len(sample.block_seconds)).astype(np.float64)
    return _rate(sample, totals, confidence)


def _inverse(found: Estimate, scale: float = 1.0) -> Estimate:
    """scale / the estimate: bounds change sides, and a side without a bound stays without."""

    def turn(x: float, none: float) -> float:
        return none if not 0 < x < math.inf else scale / x

    value = 0.0 if math.isinf(found.value) else turn(found.value, math.inf)
    return Estimate(
        value,
        turn(found.high, -math.inf if math.isinf(found.high) else math.inf),
        turn(found.low, math.inf),
        found.n,
        turn(found.upper, -math.inf),
        turn(found.lower, math.inf),
        found.need,
    )


def _notes(sample: Sample) -> tuple[str, ...]:
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
