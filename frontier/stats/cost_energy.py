"""Cost and energy of a deployment: its power, joules per output token, dollars per million tokens of each kind.

The power is what nvidia-smi or a device exporter reported for the GPUs during the windows, or a flat figure that the
config states. Either is taken as it is: the interval of an energy or a cost is that of the throughput alone.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from frontier.model import Estimate, Point, Power
from frontier.units import format_number

INPUT_PRICE, CACHED_PRICE = 0.25, 0.025
"""The price of an input token, and of one from the prefix cache, as a share of an output token's: about the ratios of
public price lists (1 : 4 and 1 : 40). They only say how the same total is shared out.
"""
HOURS_PER_MONTH = 730.0


def power_text(powers: Iterable[Power]) -> str:
    """Where the power of some points comes from, and how much it was: 'power measured by ..., 612 to 690 W'."""
    by_source: dict[str, list[float]] = {}
    for power in powers:
        by_source.setdefault(power.source, []).append(power.watts)
    words = {"measured": "measured by nvidia-smi or an exporter", "stated": "stated in the config, not measured"}
    parts = []
    for source, watts in sorted(by_source.items()):
        low, high = (format_number(w) for w in (min(watts), max(watts)))
        parts.append(f"{words[source]}, {low if low == high else f'{low} to {high}'} W")
    return "power " + "; ".join(parts) if parts else ""


def measured(windows: Sequence[tuple[float, Mapping[str, float]]], gpus: int | None) -> Power | None:
    """The mean power over windows of (seconds, the server's metrics); None when a window lacks it.

    The readings are of every GPU of the machine, so they are not those of a deployment with another number of `gpus`.
    """
    readings = [(seconds, m["gpu_power"], m.get("gpu_count")) for seconds, m in windows if "gpu_power" in m]
    if len(readings) < len(windows) or any(gpus is not None and count != gpus for _, _, count in readings):
        return None
    whole = sum(seconds for seconds, _, _ in readings)
    watts = sum(seconds * power for seconds, power, _ in readings) / whole if whole > 0 else 0.0
    return Power(watts, "measured") if watts > 0 else None


def mean(powers: Sequence[tuple[float, Power | None]]) -> Power | None:
    """The power over several (seconds, power); None unless all are known, and of one source."""
    known = [(seconds, power) for seconds, power in powers if power is not None]
    if len(known) < len(powers) or len({power.source for _, power in known}) != 1:
        return None
    whole = sum(seconds for seconds, _ in known)
    return Power(sum(s * power.watts for s, power in known) / whole, known[0][1].source) if whole > 0 else known[0][1]


def cost(throughput: Estimate, price: float) -> Estimate:
    """Dollars per million output tokens at `price` dollars per hour; infinite when nothing is produced."""
    return throughput.inverted(price * 1e6 / 3600)


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """What tokens must bring to pay for a deployment that is busy for a share `utilisation` of the time, in dollars per
    million. `input` is of tokens that are not from the prefix cache; `cached` of those that are, None where the server
    does not tell how many these were: all are then counted as input. `per_month` is the deployment's price in dollars,
    `output_tokens_per_month` how many output tokens it makes for that.
    """

    utilisation: float
    output: Estimate
    input: Estimate
    cached: Estimate | None
    per_month: float
    output_tokens_per_month: float


def token_prices(metrics: Mapping[str, Estimate], utilisation: float = 1.0) -> TokenPrices | None:
    """The prices by the mix of tokens that was measured; None without a cost, or where not all tokens were counted.

    Their intervals are those of the cost: the mix is taken as it was.
    """
    alone, made, read = (metrics.get(name) for name in ("cost", "output_throughput", "input_throughput"))
    if alone is None or made is None or read is None or not made.value > 0:
        return None
    share = metrics.get("cached_share")
    cached = share.value if share is not None else 0.0
    worth = (1 - cached) * INPUT_PRICE + cached * CACHED_PRICE  # of a prompt token, in output tokens
    output = alone.scaled(1, (1 + worth * read.value / made.value) * utilisation)
    return TokenPrices(
        utilisation, output, output.scaled(INPUT_PRICE), None if share is None else output.scaled(CACHED_PRICE),
        round(alone.value * made.value * 3600 / 1e6 * HOURS_PER_MONTH, 6),
        made.value * 3600 * HOURS_PER_MONTH * utilisation,
    )  # fmt: skip


def energy(throughput: Estimate, power: Power) -> dict[str, Estimate]:
    """`energy` (joules per output token; infinite when nothing is produced) and `tokens_per_joule`."""
    return {
        "energy": throughput.inverted(power.watts, lower_at_zero=math.inf),
        "tokens_per_joule": throughput.scaled(1, power.watts),
    }


def with_energy(point: Point, power: Power | None) -> Point:
    """The point with its `energy` and `tokens_per_joule`; unchanged without a power or a throughput."""
    throughput = point.metrics.get("output_throughput")
    if power is None or throughput is None:
        return point
    return dataclasses.replace(point, metrics={**point.metrics, **energy(throughput, power)}, power=power)
