"""Token prices that pay for a deployment, and the source of its power figure, in words."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from frontier.core.model.groups import by_key
from frontier.core.model.points import Estimate, Power
from frontier.core.model.units import format_number

INPUT_PRICE, CACHED_PRICE = 0.25, 0.025
"""The price of an input token, and of one from the prefix cache, as a share of an output token's
price.

They are about the ratios of public price lists (1 : 4 and 1 : 40). They only divide the same total.
"""


HOURS_PER_MONTH = 730.0
"""Hours of a month, 365 days over 12."""


_SOURCES = {"measured": "measured by nvidia-smi or an exporter", "stated": "stated in the config, not measured"}


def power_text(powers: Iterable[Power]) -> str:
    """The source and size of the power of some points: 'power measured by ..., 612 to 690 W'."""
    parts = []
    for source, watts in sorted(by_key((_SOURCES[power.source], power.watts) for power in powers).items()):
        low, high = (format_number(w) for w in (min(watts), max(watts)))
        parts.append(f"{source}, {low if low == high else f'{low} to {high}'} W")
    return "power " + "; ".join(parts) if parts else ""


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """Token prices that pay for a deployment which is busy for a share `utilisation` of the time,
    in dollars per million tokens.

    - `input`: the price of tokens that are not from the prefix cache.
    - `cached`: the price of tokens from it; None where the server does not report their number. All
      input tokens then have the price `input`.
    - `per_month`: the deployment's price in dollars.
    - `output_tokens_per_month`: the output tokens that it makes for that.
    """

    utilisation: float
    output: Estimate
    input: Estimate
    cached: Estimate | None
    per_month: float
    output_tokens_per_month: float


def token_prices(metrics: Mapping[str, Estimate], utilisation: float = 1.0) -> TokenPrices | None:
    """The prices for the measured mix of tokens; None without a cost, or where not all tokens were
    counted.

    Their intervals are those of the cost: the mix is taken as exact.
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
