"""Estimates with confidence intervals from window data: percentiles, means, rates, shares; and the
point of a setting.

Every number comes with its interval and the one-sided bounds that verdicts use. A bound that the
sample cannot carry is infinite on the side of the claim, and `need` says how many requests would
carry it.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from frontier.core.estimates import bounds
from frontier.core.estimates.sides import sides, tokens_after_first
from frontier.core.estimates.sources import Given, source_of
from frontier.core.estimates.widening import widening
from frontier.core.flags.flags import flags
from frontier.core.model.decisions import Limit
from frontier.core.model.metrics import DEFAULT_METRICS, NEEDS, metric
from frontier.core.model.points import Estimate, Point
from frontier.core.model.units import format_share
from frontier.core.stats import connections, intervals
from frontier.core.window.held import held
from frontier.core.window.histogram import ALPHA, X0, LogHistogram
from frontier.core.window.window import BLOCKS, Floats, WindowData, gaps, in_series, narrowed

OF_CLASSES = tuple(f"{s}_{q}" for q in ("ttft", "tpot", "e2e") for s in ("mean", "p50", "p90", "p95", "p99"))
"""The metrics that each class of requests has of its own, where all the default ones are asked for.
"""
DEPENDENT_BLOCKS = 0.4
"""Correlation of successive blocks above which a batch-means interval is too narrow."""


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
    also the cost; where the sample has a power the energy, and its quality and
    agreement where it has them.
    """
    wanted = [*names, *(limit.metric for limit in limits)]
    if set(DEFAULT_METRICS) <= set(wanted):
        wanted += [f"{group}.{name}" for group in sample.shape.classes for name in OF_CLASSES]
    given = {"limits": bool(limits), "price": price is not None, "background": len(sample.background_tokens) > 0}
    given |= {name: getattr(sample, name) is not None for name in ("power", "quality", "agreement")}
    wanted += [name for name, need in NEEDS.items() if given[need]]
    wanted += ["cached_share"] if price is not None else []
    estimates = {name: estimate(sample, name, limits=limits, price=price) for name in dict.fromkeys(wanted)}
    return Point(
        deployment=sample.deployment,
        shape=sample.shape,
        load=sample.load,
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
    name. Remembered: the points of a sample for the search, the answer and the table share most of
    their metrics, and so do the points under other limits.

    `lower` and `upper` are one-sided bounds at `confidence` each; `low`..`high` is always the
    two-sided 95%.
    """
    needs = metric(name).needs
    return _estimate(sample, name, limits if needs == "limits" else (), confidence, price if needs == "price" else None)


@held
def _estimate(
    sample: WindowData, name: str, limits: tuple[Limit, ...], confidence: float, price: float | None
) -> Estimate | None:
    m = metric(name)
    sample = narrowed(sample, m.group)
    if not sample.n:
        return None
    if m.quantity == "itl":
        return _itl(sample, m.p, confidence)
    if m.quantity is not None:
        latency = _of_requests(sample, m.quantity, m.p, confidence)
        return latency.inverted() if latency is not None and m.inverted else latency
    return source_of(m).estimate(sample, m, Given(limits, price, confidence))


def _of_requests(sample: WindowData, quantity: str, p: float | None, confidence: float) -> Estimate | None:
    """A percentile, or with p None the mean, of what each request has; None when no request has it.

    Upper bounds are of the worst that each request may have had, lower bounds of the best.
    """

    values = (getattr(sample, quantity), *sides(sample, quantity))
    plain = sample if sample.episodes is None else in_series(sample.alone, sample.runs, None)

    def statistic(side: int) -> Estimate | None:
        found, has = _statistic(plain, quantity, side, p, confidence), ~np.isnan(values[side])
        return found and bounds.in_episodes(found, sample, quantity, values[side], has, p)

    result = statistic(0)
    if result is None:
        return None
    if values[2] is not values[0] and (above := statistic(2)) is not None:
        result = replace(result, high=above.high, upper=above.upper, need=above.need)
    if values[1] is not values[0] and (below := statistic(1)) is not None:
        result = replace(result, low=below.low, lower=below.lower)
    return result


@held
def _statistic(sample: WindowData, quantity: str, side: int, p: float | None, confidence: float) -> Estimate | None:
    """A percentile or the mean of what each request has (0), has at least (1) or at most (2),
    without episodes: what they add changes with each window of the series, and this does not.
    """
    values: Floats = (getattr(sample, quantity), *sides(sample, quantity))[side]
    has = ~np.isnan(values)
    if not has.any():
        return None
    wander = widening(sample).wander.get(quantity)
    if p is None:
        return bounds.wandering_mean(bounds.mean(sample, values, has, confidence), wander, confidence)
    return bounds.percentile(sample, values, has, p, confidence, wander)


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
    tokens = tokens_after_first(sample)
    less, more = (slack.pause + seconds / tokens for seconds in (slack.shorter, slack.longer))
    return replace(
        exact,
        low=max(0.0, exact.low - less),
        lower=max(exact.lower - less, min(exact.lower, 0.0)),
        high=exact.high + more,
        upper=exact.upper + more,
    )


def _notes(sample: WindowData) -> tuple[str, ...]:
    """What a reader should know about how the numbers came about, beside the flags."""
    notes: list[str] = []
    failed = int((~sample.ok).sum())
    if failed:
        notes.append(
            f"{failed:,} of {sample.n:,} requests failed; they count as infinite latency, so means are infinite "
            "(whole_run has the figures of the successes alone)"
        )
    uncounted = int(np.isnan(sample.completion_tokens[sample.ok]).sum())
    if uncounted:
        notes.append(f"the server gave no token count for {uncounted:,} of {int(sample.ok.sum()):,} answers")
    if twofold := int((sample.ok & (sample.most_tokens > sample.completion_tokens)).sum()):
        notes.append(
            f"the tokens of {twofold:,} answers can be counted in two ways, as the usage does not fit their text or "
            "their limit, or does not tell where reasoning belongs: TPOT and throughput have both in their intervals"
        )
    if sample.seconds > 0:
        lag1 = intervals.batch_means(sample.block_output_tokens, sample.block_seconds).lag1
        if lag1 > DEPENDENT_BLOCKS:
            notes.append(
                f"throughput of successive time blocks is correlated ({lag1:.2f}): its interval is too narrow, "
                "a longer window widens it"
            )
    if sample.episodes is not None:
        notes.append(
            "the server was slower for some time at some setting: upper bounds of percentiles hold if it is so for "
            f"{format_share(sample.episodes.share)} of the requests"
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
