"""Dollars per million output tokens, with the doubt of the throughput it is divided by."""

import dataclasses
import math
from collections.abc import Sequence

from frontier.model import Decision, Estimate, Point

SECONDS = 3600.0
MILLION = 1e6


def per_million_tokens(throughput: Estimate, price: float) -> Estimate:
    """The cost at `price` dollars per hour of the whole deployment and this output throughput in tokens per second.

    Dividing turns the bounds round: the least throughput is the highest cost. Infinite when nothing is produced.
    ValueError for a negative price.
    """
    if not price >= 0:
        raise ValueError(f"a price is dollars per hour, 0 or more, not {price}")
    return reciprocal(throughput, price / SECONDS * MILLION)


def reciprocal(rate: Estimate, scale: float) -> Estimate:
    """`scale` divided by a rate, with its bounds turned round; infinite where the rate is 0."""
    return dataclasses.replace(
        rate,
        value=_over(scale, rate.value),
        low=_over(scale, rate.high),
        high=_over(scale, rate.low),
        lower=_over(scale, rate.upper),
        upper=_over(scale, rate.lower),
    )


def _over(scale: float, rate: float) -> float:
    """A bound that is not known (infinite, or below zero) becomes the matching end that is not known."""
    if math.isnan(rate):
        return math.nan
    if rate == math.inf:
        return -math.inf
    return scale / rate if rate > 0 else math.inf


def with_cost(point: Point, price: float | None) -> Point:
    """The point with its `cost`; unchanged without a price or a throughput."""
    throughput = point.metrics.get("output_throughput")
    if price is None or throughput is None:
        return point
    return dataclasses.replace(point, metrics={**point.metrics, "cost": per_million_tokens(throughput, price)})


def cheapest(decisions: Sequence[Decision]) -> tuple[Decision | None, bool]:
    """Among deployments, each at its own operating point, the one of least cost per token; and whether that is sure.

    Sure means that its interval lies below every other's. Decisions without an operating point or a price are passed
    over; (None, False) when none is left. Compare decisions of one shape only.
    """
    priced = [d for d in decisions if d.concurrency is not None and "cost" in d.metrics]
    if not priced:
        return None, False
    best = min(priced, key=lambda d: d.metrics["cost"].value)
    sure = all(best.metrics["cost"].high < d.metrics["cost"].low for d in priced if d is not best)
    return best, sure
