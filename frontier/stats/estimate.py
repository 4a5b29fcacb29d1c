"""Estimates with confidence intervals from window data: percentiles, means, rates, shares; and the
point of a setting.

Every number comes with its interval and the one-sided bounds that verdicts use. A bound that the
sample cannot carry is infinite on the side of the claim, and `need` says how many requests would
carry it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from frontier.metrics import DEFAULT_METRICS, metric
from frontier.model import Estimate, Limit, Point
from frontier.stats import bounds, connections, cost_energy, intervals
from frontier.stats.flags import UNCOUNTED, differing, flags
from frontier.stats.histogram import ALPHA, X0, LogHistogram
from frontier.stats.widening import widening
from frontier.stats.window import BLOCKS, Bools, Floats, WindowData, gaps, narrowed

OF_CLASSES = tuple(f"{s}_{q}" for q in ("ttft", "tpot", "e2e") for s in ("mean", "p50", "p90", "p95", "p99"))
"""The metrics that each class of requests has of its own, where all the default ones are asked for.
"""
DEPENDENT_BLOCKS = 0.4
"""Correlation of successive blocks above which a batch-means interval is too narrow."""
_OUTPUT, _INPUT = ("asked_osl", "completion_tokens"), ("asked_isl", "prompt_tokens")
_THROUGHPUTS = {
    "output_throughput": (_OUTPUT,),
    "input_throughput": (_INPUT,),
    "total_throughput": (_OUTPUT, _INPUT),
}
"""Which tokens a throughput counts: how many were asked for, and how many the server counted."""


def point(
    sample: WindowData,
    *,
    names: Iterable[str] = DEFAULT_METRICS,
    limits: tuple[Limit, ...] = (),
    price: float | None = None,
) -> Point:
    """What this sample says about its setting: the metrics `names` and those of `limits`, the
    flags, the notes.

    With limits also goodput and attainment; with a `price` (dollars per hour for the deployment)
    also the cost; where the sample has a power the energy, where its deployment has a quality that.
    """
    wanted = [*names, *(limit.metric for limit in limits)]
    if set(DEFAULT_METRICS) <= set(wanted):
        wanted += [f"{group}.{name}" for group in sample.shape.classes for name in OF_CLASSES]
    wanted += ["goodput", "attainment"] if limits else []
    wanted += ["cost", "cached_share"] if price is not None else []
    wanted += ["energy"] if sample.power is not None else []
    wanted += ["quality"] if sample.quality is not None else []
    estimates = {name: estimate(sample, name, limits=limits, price=price) for name in dict.fromkeys(wanted)}
    return Point(
        deployment=sample.deployment,
        shape=sample.shape,
        concurrency=sample.concurrency,
        metrics={name: value for name, value in estimates.items() if value is not None},
        n=sample.n,
        flags=flags(sample, limits),
        repeats=len(sample.starts),
        notes=(*_notes(sample), *connections.notes(sample, limits)),
        whole_run=sample.whole_run,
        power=sample.power,
        in_flight=None if sample.holds_in_flight else _in_flight(sample),
    )


def _in_flight(sample: WindowData) -> float | None:
    """Requests in flight on average over the windows; None for windows without length."""
    seconds = sample.seconds
    return float((sample.in_flight * sample.block_seconds).sum()) / seconds if seconds > 0 else None


def estimate(
    sample: WindowData,
    name: str,
    *,
    limits: tuple[Limit, ...] = (),
    confidence: float = 0.95,
    price: float | None = None,
) -> Estimate | None:
    """The metric `name` of this sample; None when the sample lacks it. ValueError for an unknown
    name.

    `lower` and `upper` are one-sided bounds at `confidence` each; `low`..`high` is always the
    two-sided 95 %.
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
        hits = m.counts(sample)
        return None if hits is None else _share_of(sample, hits, confidence, m.higher_is_better)
    if name == "cached_share":
        return _cached_share(sample, confidence)
    if name == "quality":
        return sample.quality
    if name in ("goodput", "attainment"):
        return _attaining(sample, name, limits, confidence)
    if name in ("cost", "energy"):
        throughput = estimate(sample, "output_throughput", confidence=confidence)
        if throughput is None:
            return None
        if name == "cost":
            return None if price is None else cost_energy.cost(throughput, price)
        return None if sample.power is None else cost_energy.energy(throughput, sample.power)
    if _uncounted_share(sample, name) > UNCOUNTED:
        return None
    rate = _rate(sample, sample.block_totals(name), confidence)
    return None if rate is None else _with_uncounted(sample, name, rate)


def per_request(limits: Iterable[Limit]) -> Mapping[str, float]:
    """Seconds within which a single request attains, per quantity (ttft, tpot, e2e, ...).

    Of several percentiles of one quantity the highest counts. Means, rates and ITL are no promise
    about one request.
    """
    chosen: dict[str, tuple[float, float]] = {}
    for limit in limits:
        m = limit.of
        if m.quantity is None or m.quantity == "itl" or m.p is None:
            continue
        promise = limit.promise
        if m.inverted:
            promise = 1 / promise if promise > 0 else math.inf
        if m.quantity not in chosen or m.p > chosen[m.quantity][0]:
            chosen[m.quantity] = (m.p, promise)
    return {quantity: promise for quantity, (_, promise) in chosen.items()}


def attains(sample: WindowData, limits: Iterable[Limit]) -> Bools:
    """Which requests succeeded within every limit of `per_request`, at the worst of what is known
    of each. A TPOT that is not defined breaks no limit.
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
            return bounds.wandering_mean(bounds.mean(sample, values, has, confidence), wander, confidence)
        return bounds.percentile(sample, values, has, p, confidence, wander)

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
    """The least and the most that each request's latency may have been: the same array twice where
    it is known exactly.

    A TTFT is at most the time to the first visible character. A TPOT that is not known lies between
    0 and infinity. Where a count differs a little from the chunks (`differing`), the tokens were as
    many as one or the other. What a load slightly off leaves in doubt (`widening`) comes on top: of
    a TPOT, shared by the tokens.
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
    if quantity == "second":  # with several tokens in an event it may have come with the first
        several = (sample.completion_tokens > sample.events) & ~np.isnan(values)
        return (np.where(several, sample.ttft, values), values) if several.any() else (values, values)
    if quantity != "tpot":
        return values, values
    untimed, miscounted = sample.untimed, differing(sample)
    if not untimed.any() and not miscounted.any():
        return values, values
    best, worst = values.copy(), values.copy()
    best[untimed], worst[untimed] = 0.0, math.inf
    spans, chunks = sample.e2e[miscounted] - sample.ttft[miscounted], sample.events[miscounted] - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        by_chunks = np.where(chunks > 0, spans / chunks, math.inf)
    worst[miscounted] = np.maximum(values[miscounted], by_chunks)
    best[miscounted] = np.where(chunks > 0, np.minimum(values[miscounted], by_chunks), 0.0)
    return best, worst


def _itl(sample: WindowData, p: float | None, confidence: float) -> Estimate | None:
    """The gaps between chunks that arrived in the window. A failed request counts as a request's
    worth of endless gaps.

    Gaps are many but dependent, so how much they are worth comes from the time blocks, and the
    floor counts requests.
    """
    pooled = gaps(sample)
    counts = np.array([block.count for block in sample.block_itl], dtype=np.float64)
    failed = float((~sample.ok).mean())
    if not pooled.count:
        return None
    if p is None:
        totals = np.array([block.total for block in sample.block_itl])
        mean = bounds.from_blocks(totals, counts, len(sample.starts), sample.n, sample.n, confidence)
        mean = bounds.wandering_mean(mean, widening(sample).wander.get("tpot"), confidence)
        return bounds.with_failures(mean) if failed else mean
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
    exact = bounds.from_ranks(
        p,
        n,
        lambda level: intervals.worth_between(effective, p, tail_of_window, count_of_window, level),
        value_of,
        confidence,
        requests=sample.n,
        least=connections.least_requests(sample, p, confidence),
        failed=failed,
    )
    # A bin stands for what is ALPHA to either side of it, and a bound has to hold for all of that.
    exact = exact.moved(lambda x: x * (1 - ALPHA), lambda x: x * (1 + ALPHA))
    slack = widening(sample)
    if wander := slack.wander.get("tpot"):
        exact = bounds.wandering(exact, exact, math.log(max(pooled.quantile(0.5), X0)), p, wander, confidence)
    tokens = _tokens_after_first(sample)
    less, more = (slack.pause + seconds / tokens for seconds in (slack.shorter, slack.longer))
    return replace(
        exact,
        low=max(0.0, exact.low - less),
        lower=max(exact.lower - less, min(exact.lower, 0.0)),
        high=exact.high + more,
        upper=exact.upper + more,
    )


def _uncounted_share(sample: WindowData, name: str) -> float:
    """The share of answers that the server did not count for a throughput, of the side where it is
    larger.
    """
    sides = _THROUGHPUTS.get(name, ()) if sample.ok.any() else ()
    return max((float(np.isnan(getattr(sample, counted)[sample.ok]).mean()) for _, counted in sides), default=0.0)


def _with_uncounted(sample: WindowData, name: str, rate: Estimate) -> Estimate:
    """A throughput in tokens whose upper bounds allow for the answers without a count: each may
    have been as long as was asked.
    """
    most = known = 0.0
    for side in _THROUGHPUTS.get(name, ()):
        asked, counted = (getattr(sample, tokens) for tokens in side)
        missing = sample.ok & np.isnan(counted)
        most += float(np.where(asked > 0, asked, math.inf)[missing].sum())
        known += float(np.nansum(counted[sample.ok]))
    if most == 0:
        return rate
    factor = 1 + most / known if known > 0 else math.inf
    return replace(rate, high=rate.high * factor, upper=rate.upper * factor)


def _rate(sample: WindowData, totals: Floats, confidence: float) -> Estimate | None:
    """A total per second over the time blocks; None for a window without length."""
    if not sample.seconds > 0:
        return None
    rate = bounds.from_blocks(totals, sample.block_seconds, len(sample.starts), BLOCKS, sample.n, confidence)
    slack = widening(sample)
    if not sample.open_loop:
        rate = bounds.wandering_mean(rate, slack.wander.get("e2e"), confidence)
    return rate.moved(lambda x: x * slack.less, lambda x: x * slack.more)


def _share_of(sample: WindowData, hits: Bools, confidence: float, higher_is_better: bool) -> Estimate:
    """A share of requests. Where a high one is good, a claim is about those that miss."""
    if not higher_is_better:
        return bounds.share(sample, hits, confidence)
    miss = bounds.share(sample, ~hits, confidence)
    return Estimate(1 - miss.value, 1 - miss.high, 1 - miss.low, miss.n, 1 - miss.upper, 1 - miss.lower, miss.need)


def cached_tokens(sample: WindowData) -> tuple[Floats, Floats]:
    """The prompt tokens from the cache and all prompt tokens, per time block, of the answers that
    tell both.
    """
    known = sample.ok & ~np.isnan(sample.cached_tokens) & (sample.prompt_tokens > 0)
    cached, prompt = (np.where(known, tokens, 0.0) for tokens in (sample.cached_tokens, sample.prompt_tokens))
    return sample.per_block(cached), sample.per_block(prompt)


def _cached_share(sample: WindowData, confidence: float) -> Estimate | None:
    """The share of prompt tokens that came from the cache; None where the server does not tell."""
    cached, prompt = cached_tokens(sample)
    if not prompt.any():
        return None
    share = bounds.from_blocks(cached, prompt, len(sample.starts), sample.n, sample.n, confidence)
    return replace(share, high=min(1.0, share.high), upper=min(1.0, share.upper))


def _attaining(sample: WindowData, name: str, limits: tuple[Limit, ...], confidence: float) -> Estimate | None:
    """Goodput: attaining requests, by when they were sent, per second. Attainment: their share.
    None where the server counts no tokens and TPOT is limited.
    """
    limited = per_request(limits)
    unknown = ("tpot" in limited and sample.untimed[sample.ok].all()) or (
        "visible" in limited and np.isnan(sample.visible[sample.ok]).any()
    )
    if not limited or (sample.ok.any() and unknown):
        return None
    within = attains(sample, limits)
    if name == "attainment":
        return _share_of(sample, within, confidence, higher_is_better=True)
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
    if sample.seconds > 0:
        lag1 = intervals.batch_means(sample.block_output_tokens, sample.block_seconds).lag1
        if lag1 > DEPENDENT_BLOCKS:
            notes.append(
                f"throughput of successive time blocks is correlated ({lag1:.2f}): its interval is too narrow, "
                "a longer window widens it"
            )
    if (named := _alias(sample)) is not None:
        notes.append(named)
    return tuple(notes)


def _alias(sample: WindowData) -> str | None:
    """The one name that all answers gave their model, where it is another than was asked for."""
    asked, answered = (sample.names(field) for field in ("asked", "model"))
    if len(answered) != 1 or not asked or set(answered) <= set(asked):
        return None
    return f"the answers name their model {next(iter(answered))!r}; asked for was {next(iter(asked))!r}"
