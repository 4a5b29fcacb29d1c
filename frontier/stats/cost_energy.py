"""Dollars per million output tokens, with the doubt of the throughput it is divided by.

Joules per output token and output tokens per joule: the power that was drawn, and the throughput it bought.

The power is what nvidia-smi told of the GPUs while the windows lasted, or a flat figure that the config states. Either
is taken as it is: the interval of an energy is that of the throughput alone.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from frontier.model import Decision, Estimate, Point, Power
from frontier.units import format_number

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


def said(powers: Iterable[Power]) -> str:
    """Where the power of some points comes from, and how much it was: 'power measured by nvidia-smi, 612 to 690 W'."""
    found: dict[str, list[float]] = {}
    for power in powers:
        found.setdefault(power.source, []).append(power.watts)
    words = {"measured": "measured by nvidia-smi in the windows", "stated": "stated in the config, not measured"}
    parts = []
    for source, watts in sorted(found.items()):
        low, high = (format_number(w) for w in (min(watts), max(watts)))
        parts.append(f"{words[source]}, {low if low == high else f'{low} to {high}'} W")
    return "power " + "; ".join(parts) if parts else ""


def measured(windows: Sequence[tuple[float, Mapping[str, float]]], gpus: int | None) -> Power | None:
    """The mean power over windows of (seconds, what the GPUs of this machine said); None when one does not tell.

    The readings are of every GPU of the machine: those of a deployment with another number of `gpus` they are not.
    """
    told = [(seconds, said["gpu_power"], said.get("gpu_count")) for seconds, said in windows if "gpu_power" in said]
    if not told or len(told) < len(windows) or any(gpus is not None and count != gpus for _, _, count in told):
        return None
    whole = sum(seconds for seconds, _, _ in told)
    watts = sum(seconds * power for seconds, power, _ in told) / whole if whole > 0 else 0.0
    return Power(watts, "measured") if watts > 0 else None


def mean(powers: Sequence[tuple[float, Power | None]]) -> Power | None:
    """The power over several (seconds, power); None unless all are known, and of one source."""
    known = [(seconds, power) for seconds, power in powers if power is not None]
    if len(known) < len(powers) or len({power.source for _, power in known}) != 1:
        return None
    whole = sum(seconds for seconds, _ in known)
    return Power(sum(s * power.watts for s, power in known) / whole, known[0][1].source) if whole > 0 else known[0][1]


def per_token(throughput: Estimate, power: Power) -> Estimate:
    """Joules per output token; infinite when nothing is produced."""
    return reciprocal(throughput, power.watts)


def per_joule(throughput: Estimate, power: Power) -> Estimate:
    """Output tokens per joule."""
    sides = ("value", "low", "high", "lower", "upper")
    return dataclasses.replace(throughput, **{side: getattr(throughput, side) / power.watts for side in sides})


def with_energy(point: Point, power: Power | None) -> Point:
    """The point with its `energy` and `tokens_per_joule`; unchanged without a power or a throughput."""
    throughput = point.metrics.get("output_throughput")
    if power is None or throughput is None:
        return point
    more = {"energy": per_token(throughput, power), "tokens_per_joule": per_joule(throughput, power)}
    return dataclasses.replace(point, metrics={**point.metrics, **more}, power=power)
