"""What a sound config probably does not mean: said before the night, not after it."""

import math

from frontier.config.models import Config
from frontier.config.values import Fault
from frontier.metrics import claim_floor, metric


def least_for_a_bound(p: float) -> int:
    """Fewest independent requests whose largest value bounds percentile `p` from above with 95 % confidence.

    The largest of n exceeds the percentile with chance 1 - p^n: 59 for p95, 299 for p99 (order statistics).
    """
    return math.ceil(math.log(0.05) / math.log(p))


def advice(config: Config) -> list[Fault]:
    """What to warn of; each path leads to the key."""
    return [*_too_few(config), *_means(config)]


def _too_few(config: Config) -> list[Fault]:
    """Too few requests for the percentiles the SLA names. A setting's repeats are pooled."""
    asked = {metric(limit.metric).p: limit.metric for _, limits in config.tiers for limit in limits}
    named = [(p, name) for p, name in asked.items() if p is not None]
    if not named:
        return []
    p, _ = max(named)
    pooled = config.requests * config.repeats
    enough = least_for_a_bound(p)
    percentile, sum_up = f"p{p * 100:g}", f"{config.requests:,} x {config.repeats} = {pooled:,} requests"
    if config.repeats == 1:
        sum_up = f"{pooled:,} requests"
    if pooled < enough:
        what = f"{sum_up} cannot bound a {percentile} (a one-sided 95% limit needs {enough:,})"
    elif pooled < claim_floor(p) and config.refine == 0:
        enough = claim_floor(p)
        what = f"{sum_up} are too few to claim a {percentile} ({enough:,} are needed), and refine: 0 measures no more"
    else:
        return []
    lower = [q for q in (0.95, 0.9, 0.5) if q < p and least_for_a_bound(q) <= pooled]
    other = f",  or ask for p{lower[0] * 100:g} ({least_for_a_bound(lower[0])} is enough)" if lower else ""
    return [Fault(what, f"set  requests: {math.ceil(enough / config.repeats)}{other}", ("requests",))]


def _means(config: Config) -> list[Fault]:
    found = []
    for tier, limits in config.tiers:
        for limit in limits:
            if metric(limit.metric).is_mean:
                path = ("sla", limit.metric) if len(config.tiers) == 1 else ("sla", tier, limit.metric)
                what = f"{limit.metric} limits a mean, which says nothing about the slowest requests"
                found.append(Fault(what, f"write {limit.metric.replace('mean', 'p99')} to bound the tail", path))
    return found
