"""Metric sources, for the metrics that are not statistics of a latency.

Each gives its estimate of a window, and its value for the draws of a bootstrap. A metric from
outside the requests, as a cost, is one entry of SOURCES and one of `metrics._PLAIN`.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from frontier.core.estimates import bounds
from frontier.core.estimates.sides import sides
from frontier.core.estimates.widening import widening
from frontier.core.flags.flags import UNCOUNTED
from frontier.core.model.decisions import Limit
from frontier.core.model.metrics import Metric, metric
from frontier.core.model.points import Estimate
from frontier.core.window import cost_energy
from frontier.core.window.held import held_alone
from frontier.core.window.window import BLOCKS, Bools, Floats, Ints, WindowData

_OUTPUT, _INPUT = ("asked_osl", "completion_tokens"), ("asked_isl", "prompt_tokens")
_THROUGHPUTS = {
    "output_throughput": (_OUTPUT,),
    "input_throughput": (_INPUT,),
    "total_throughput": (_OUTPUT, _INPUT),
}
"""Which tokens a throughput counts: how many were asked for, and how many the server counted."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a metric may need beside the window.

    `limits` are those that a request is to keep, `price` is the deployment's, in dollars per hour,
    and `confidence` is that of one-sided bounds.
    """

    limits: tuple[Limit, ...] = ()
    price: float | None = None
    confidence: float = 0.95


@dataclass(frozen=True, slots=True)
class MetricSource:
    """A source of a metric.

    `estimate` gives its estimate, None where the window lacks it. `draw` gives its value for each
    row of picks, which say how often each time block is drawn.
    """

    estimate: Callable[[WindowData, Metric, Given], Estimate | None]
    draw: Callable[[WindowData, Metric, Given, Ints], Floats]


def source_of(m: Metric) -> MetricSource:
    """Where a metric comes from: an entry of its own, requests that it counts, or a throughput."""
    if m.counts is not None:
        return _SHARE
    return SOURCES.get(m.name, _THROUGHPUT)


def ratio(totals: Floats, weights: Floats, picks: Ints) -> Floats:
    """Sum of totals over sum of weights, for the blocks of each draw."""
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn: Floats = (picks @ totals) / (picks @ weights)
    return drawn


# --- throughputs


@held_alone
def _throughput(sample: WindowData, m: Metric, given: Given) -> Estimate | None:
    if _uncounted_share(sample, m.name) > UNCOUNTED:
        return None
    rate = _rate(sample, sample.block_totals(m.name), given.confidence)
    return None if rate is None else _with_uncounted(sample, m.name, rate)


def _throughput_drawn(sample: WindowData, m: Metric, _: Given, picks: Ints) -> Floats:
    return ratio(sample.block_totals(m.name), sample.block_seconds, picks)


_THROUGHPUT = MetricSource(_throughput, _throughput_drawn)


def _uncounted_share(sample: WindowData, name: str) -> float:
    """The share of answers that the server did not count for a throughput, of the side where it is
    larger.
    """
    sides = _THROUGHPUTS.get(name, ()) if sample.ok.any() else ()
    return max((float(np.isnan(getattr(sample, counted)[sample.ok]).mean()) for _, counted in sides), default=0.0)


def _with_uncounted(sample: WindowData, name: str, rate: Estimate) -> Estimate:
    """A throughput in tokens, with upper bounds for missing counts: an answer without a count may
    have been as long as was asked. They also allow for the higher of two readings of a count.
    """
    most = known = 0.0
    for side in _THROUGHPUTS.get(name, ()):
        asked, counted = (getattr(sample, tokens) for tokens in side)
        missing = sample.ok & np.isnan(counted)
        most += float(np.where(asked > 0, asked, math.inf)[missing].sum())
        known += float(np.nansum(counted[sample.ok]))
        if side is _OUTPUT:  # where the usage can be read in two ways
            most += float(np.nansum((sample.most_tokens - counted)[sample.ok]))
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
    # Where nothing was answered, `more` may be infinite, and 0 times that is no number.
    return rate.moved(lambda x: x * slack.less, lambda x: x * slack.more if x else x)


def _of_background(sample: WindowData, _: Metric, given: Given) -> Estimate | None:
    """The output throughput of the background; None without one."""
    return _rate(sample, sample.background_tokens, given.confidence) if len(sample.background_tokens) else None


# --- shares of requests


def _hits(sample: WindowData, m: Metric, given: Given) -> Bools | None:
    """The requests that a metric counts: by its own rule, or those that attain. None where that is
    not known.
    """
    return m.counts(sample) if m.counts is not None else _attaining(sample, given.limits)


def _hits_per_block(sample: WindowData, m: Metric, given: Given) -> Floats:
    """The number of counted requests in each time block, for a metric that the window has."""
    hits = _hits(sample, m, given)
    assert hits is not None
    return sample.per_block(hits)


def _share(sample: WindowData, m: Metric, given: Given) -> Estimate | None:
    hits = _hits(sample, m, given)
    return None if hits is None else _share_of(sample, hits, given.confidence, m.higher_is_better)


def _goodput(sample: WindowData, m: Metric, given: Given) -> Estimate | None:
    """Attaining requests per second, by the time they were sent."""
    hits = _hits(sample, m, given)
    return None if hits is None else _rate(sample, sample.per_block(hits), given.confidence)


_SHARE = MetricSource(
    _share,
    lambda sample, m, given, picks: ratio(
        _hits_per_block(sample, m, given), sample.per_block(np.ones(sample.n)), picks
    ),
)


def _share_of(sample: WindowData, hits: Bools, confidence: float, higher_is_better: bool) -> Estimate:
    """A share of requests. Where a high share is good, the claim is about the requests that
    miss.
    """
    if not higher_is_better:
        return bounds.share(sample, hits, confidence)
    miss = bounds.share(sample, ~hits, confidence)
    return replace(
        miss, value=1 - miss.value, low=1 - miss.high, high=1 - miss.low, lower=1 - miss.upper, upper=1 - miss.lower
    )


def per_request(limits: Iterable[Limit]) -> Mapping[str, float]:
    """Seconds within which a single request attains, per quantity (ttft, tpot, e2e, ...).

    With several percentiles of one quantity the highest counts. Means, rates and ITL promise
    nothing about one request.
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
    """Which requests succeeded within every limit of `per_request`, at the worst value that each
    may have had. An undefined TPOT breaks no limit.
    """
    within, limits = sample.ok.copy(), tuple(limits)
    for group in dict.fromkeys(limit.of.group for limit in limits):
        mine = sample.of_class(group) if group is not None else np.ones(sample.n, dtype=np.bool_)
        for quantity, promise in per_request(limit for limit in limits if limit.of.group == group).items():
            within &= ~(mine & (sides(sample, quantity)[1] > promise))
    return within


def _attaining(sample: WindowData, limits: tuple[Limit, ...]) -> Bools | None:
    """Which requests attain; None where the server counts no tokens and TPOT is limited."""
    limited = per_request(limits)
    unknown = ("tpot" in limited and sample.untimed[sample.ok].all()) or (
        "visible" in limited and np.isnan(sample.visible[sample.ok]).any()
    )
    return None if not limited or (sample.ok.any() and unknown) else attains(sample, limits)


# --- what follows from a throughput, and the cache


def _from_throughput(
    estimate: Callable[[WindowData, Given, Estimate], Estimate | None],
    draw: Callable[[WindowData, Given, Floats], Floats],
) -> MetricSource:
    """A metric that follows from the output throughput."""

    def of_output(sample: WindowData, _: Metric, given: Given) -> Estimate | None:
        rate = _throughput(sample, metric("output_throughput"), given)
        return None if rate is None else estimate(sample, given, rate)

    def of_drawn(sample: WindowData, _: Metric, given: Given, picks: Ints) -> Floats:
        with np.errstate(divide="ignore"):
            return draw(sample, given, _throughput_drawn(sample, metric("output_throughput"), given, picks))

    return MetricSource(of_output, of_drawn)


def cached_tokens(sample: WindowData) -> tuple[Floats, Floats]:
    """The prompt tokens from the cache and all prompt tokens, per time block, over answers that
    state both.
    """
    known = sample.ok & ~np.isnan(sample.cached_tokens) & (sample.prompt_tokens > 0)
    told = (np.minimum(sample.cached_tokens, sample.prompt_tokens), sample.prompt_tokens)
    cached, prompt = (np.where(known, tokens, 0.0) for tokens in told)
    return sample.per_block(cached), sample.per_block(prompt)


def _cached_share(sample: WindowData, _: Metric, given: Given) -> Estimate | None:
    """The share of prompt tokens that came from the cache; None where the server does not tell."""
    cached, prompt = cached_tokens(sample)
    if not prompt.any():
        return None
    share = bounds.from_blocks(cached, prompt, len(sample.starts), sample.n, sample.n, given.confidence)
    return replace(share, high=min(1.0, share.high), upper=min(1.0, share.upper))


def _extreme(quantity: str, *, inverted: bool = False) -> MetricSource:
    """The largest value of any request, or its inverse; infinite, or 0, where a request failed. It
    has no interval, as the worst of a sample bounds nothing.
    """

    def of(worst: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return 1.0 / worst if inverted else worst

    def value(sample: WindowData, _: Metric, __: Given) -> Estimate | None:
        values = getattr(sample, quantity)
        has = ~np.isnan(values)
        return Estimate.without_interval(float(of(values[has].max())), int(has.sum())) if has.any() else None

    def drawn(sample: WindowData, _: Metric, __: Given, picks: Ints) -> Floats:
        worst = np.full(picks.shape[1], -np.inf)
        np.fmax.at(worst, sample.block_of_request, getattr(sample, quantity))
        return of(np.where(picks > 0, worst, -np.inf).max(axis=1))

    return MetricSource(value, drawn)


def _given(of: Callable[[WindowData], Estimate | None]) -> MetricSource:
    """A value that was measured apart from the requests, the same in each draw of them."""

    def drawn(sample: WindowData, _m: Metric, _g: Given, picks: Ints) -> Floats:
        known = of(sample)
        return np.full(len(picks), math.nan if known is None else known.value)

    return MetricSource(lambda sample, _m, _g: of(sample), drawn)


SOURCES: dict[str, MetricSource] = {
    "max_ttft": _extreme("ttft"),
    "max_e2e": _extreme("e2e"),
    "min_interactivity": _extreme("tpot", inverted=True),
    "goodput": MetricSource(
        _goodput,
        lambda sample, m, given, picks: ratio(_hits_per_block(sample, m, given), sample.block_seconds, picks),
    ),
    "attainment": _SHARE,
    "background_throughput": MetricSource(
        _of_background, lambda sample, _m, _g, picks: ratio(sample.background_tokens, sample.block_seconds, picks)
    ),
    "cached_share": MetricSource(_cached_share, lambda sample, _m, _g, picks: ratio(*cached_tokens(sample), picks)),
    "quality": _given(lambda sample: sample.quality),
    "agreement": _given(lambda sample: sample.agreement),
    "cost": _from_throughput(
        lambda _, given, rate: None if given.price is None else cost_energy.cost(rate, given.price),
        lambda _, given, rate: (given.price or 0.0) / 3600.0 * 1e6 / rate,
    ),
    "energy": _from_throughput(
        lambda sample, _, rate: cost_energy.joules(rate, sample.power) if sample.power else None,
        lambda sample, _, rate: (sample.power.watts if sample.power else math.nan) / rate,
    ),
}
"""The metrics that are neither of a latency, nor a throughput, nor a share of requests by what each
is."""
