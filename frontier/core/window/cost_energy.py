"""Cost and energy: dollars per million output tokens, joules per output token.

A price and a power are taken as they are: the interval of an energy or a cost is that of the
throughput alone.
"""

import math

from frontier.core.model.points import Estimate, Power


def cost(throughput: Estimate, price: float) -> Estimate:
    """Dollars per million output tokens at `price` dollars per hour; infinite when nothing is
    produced.
    """
    return throughput.inverted(price * 1e6 / 3600)


def joules(throughput: Estimate, power: Power) -> Estimate:
    """Joules per output token; infinite when nothing is produced."""
    return throughput.inverted(power.watts, lower_at_zero=math.inf)
