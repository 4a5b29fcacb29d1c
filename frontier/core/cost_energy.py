"""Cost and energy of a deployment: its power, joules per output token, dollars per million tokens
of each kind.

The power is what nvidia-smi, NVML or a device exporter reported for the GPUs during the windows, or
a flat figure that the config states. Either is taken as it is: the interval of an energy or a cost
is that of the throughput alone.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from frontier.core.points import Estimate, Flag, Point, Power
from frontier.core.units import format_number, format_share

INPUT_PRICE, CACHED_PRICE = 0.25, 0.025
"""The price of an input token, and of one from the prefix cache, as a share of an output token's:
about the ratios of public price lists (1 : 4 and 1 : 40). They only say how the same total is
shared out.
"""
HOURS_PER_MONTH = 730.0
"""Hours of a month, 365 days over 12."""

Windows = Sequence[tuple[float, Mapping[str, float]]]
"""The length of each window in seconds, and the facts of it that the server and its devices gave.
"""


def power_text(powers: Iterable[Power]) -> str:
    """Where the power of some points comes from, and how much it was: 'power measured by ..., 612
    to 690 W'.
    """
    by_source: dict[str, list[float]] = {}
    for power in powers:
        measured_by = f"measured by {power.by or 'nvidia-smi or an exporter'}"
        words = measured_by if power.source == "measured" else "stated in the config, not measured"
        by_source.setdefault(words, []).append(power.watts)
    parts = []
    for source, watts in sorted(by_source.items()):
        low, high = (format_number(w) for w in (min(watts), max(watts)))
        parts.append(f"{source}, {low if low == high else f'{low} to {high}'} W")
    return "power " + "; ".join(parts) if parts else ""


FEWEST_READINGS, FEWEST_UPDATES = 10, 20
"""Of power samples, and of an energy counter, in the windows of a point: an edge may be off by one
of them."""
DISAGREE = 0.05
"""A gap between power samples and energy counters that is worth a warning."""


def measured(windows: Windows, gpus: int | None) -> Power | None:
    """The mean power over windows of (seconds, the server's metrics): by energy counters where they
    can be used, else by power samples; None when a window lacks both.

    The readings are of every GPU of the machine, so they are not those of a deployment with another
    number of `gpus`.
    """
    for name, by in (("gpu_energy_power", "energy counters"), ("gpu_power", "")):
        watts = _watts(windows, name)
        if watts > 0 and _unusable(name, windows, gpus) is None:  # no NaN
            return Power(watts, "measured", by)
    return None


def _watts(windows: Windows, name: str) -> float:
    """The mean of a reading over windows; NaN where one lacks it, or where they have no length."""
    whole = sum(seconds for seconds, _ in windows)
    return sum(seconds * facts.get(name, math.nan) for seconds, facts in windows) / whole if whole > 0 else math.nan


def power_flag(windows: Windows, gpus: int | None, power: Power | None) -> Iterator[Flag]:
    """Why what was read of the devices' power does not count, or that its two sources disagree."""
    seen = [name for name in ("gpu_energy_power", "gpu_power") if any(name in metrics for _, metrics in windows)]
    reasons = {name: _unusable(name, windows, gpus) for name in seen}
    if seen and (power is None or power.source == "stated"):
        measured, limit = reasons[seen[-1]] or ("no power in some of the windows", "all windows")
        advice = "energy is not measured: state it as  hardware: {power: 700W/gpu},  or see to the readings"
        yield Flag("power_unmeasured", measured, limit, advice, fatal=False)
    elif len(seen) == 2 and not any(reasons.values()):
        watts = [_watts(windows, name) for name in seen]
        if abs(watts[1] / watts[0] - 1) > DISAGREE:
            yield Flag(
                "power_disagrees",
                f"{format_number(watts[1])} W by samples, {format_number(watts[0])} W by counters",
                format_share(DISAGREE),
                "the counters count: samples miss what happens between them",
                fatal=False,
            )


def _unusable(name: str, windows: Windows, gpus: int | None) -> tuple[str, str] | None:
    """What is wrong with these readings of power, and what it should be; None where they count."""

    def most(fact: str) -> float:
        return max((metrics.get(fact, 0.0) for _, metrics in windows), default=0.0)

    counters = name == "gpu_energy_power"
    count = most("gpu_energy_count" if counters else "gpu_count")
    least = count if counters else min((m.get("gpu_count_min", count) for _, m in windows), default=0.0)
    if gpus is not None and count != gpus:
        return f"readings of {count:.0f} GPUs", f"{gpus} (gpus)"
    if counters and (lost := most("gpu_energy_lost")):
        return f"{lost:.0f} of {count:.0f} energy counters started again or were missing", "0"
    if least < count:
        return f"at times readings of {least:.0f} GPUs only", f"{count:.0f}"
    fact, fewest = ("gpu_energy_updates", FEWEST_UPDATES) if counters else ("gpu_power_readings", FEWEST_READINGS)
    number = sum(facts.get(fact, math.inf) for _, facts in windows)
    return (f"{number:.0f} readings", f"{fewest}") if number < fewest else None


def mean(powers: Sequence[tuple[float, Power | None]]) -> Power | None:
    """The power over several (seconds, power); None unless all are known, and of one source."""
    known = [(seconds, power) for seconds, power in powers if power is not None]
    if len(known) < len(powers) or len({(power.source, power.by) for _, power in known}) != 1:
        return None
    whole = sum(seconds for seconds, _ in known)
    first = known[0][1]
    return dataclasses.replace(first, watts=sum(s * p.watts for s, p in known) / whole) if whole > 0 else first


def cost(throughput: Estimate, price: float) -> Estimate:
    """Dollars per million output tokens at `price` dollars per hour; infinite when nothing is
    produced.
    """
    return throughput.inverted(price * 1e6 / 3600)


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """What tokens must bring to pay for a deployment that is busy for a share `utilisation` of the
    time, in dollars per million. `input` is of tokens that are not from the prefix cache; `cached`
    of those that are, None where the server does not tell how many these were: all are then counted
    as input. `per_month` is the deployment's price in dollars, `output_tokens_per_month` how many
    output tokens it makes for that.
    """

    utilisation: float
    output: Estimate
    input: Estimate
    cached: Estimate | None
    per_month: float
    output_tokens_per_month: float


def token_prices(metrics: Mapping[str, Estimate], utilisation: float = 1.0) -> TokenPrices | None:
    """The prices by the mix of tokens that was measured; None without a cost, or where not all
    tokens were counted.

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
        utilisation,
        output,
        output.scaled(INPUT_PRICE),
        None if share is None else output.scaled(CACHED_PRICE),
        round(alone.value * made.value * 3600 / 1e6 * HOURS_PER_MONTH, 6),
        made.value * 3600 * HOURS_PER_MONTH * utilisation,
    )


def joules(throughput: Estimate, power: Power) -> Estimate:
    """Joules per output token; infinite when nothing is produced."""
    return throughput.inverted(power.watts, lower_at_zero=math.inf)


def with_energy(point: Point, power: Power | None) -> Point:
    """The point with its `energy`; unchanged without a power or a throughput."""
    throughput = point.metrics.get("output_throughput")
    if power is None or throughput is None:
        return point
    return dataclasses.replace(point, metrics={**point.metrics, "energy": joules(throughput, power)}, power=power)
