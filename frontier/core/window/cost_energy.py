"""Cost and energy: dollars per million output tokens, joules per output token.

A price and a power are taken as they are: the interval of an energy or a cost is that of the
throughput alone.
"""

import dataclasses
import math
from collections.abc import Sequence

from frontier.core.model.points import Estimate, Power


def mean(powers: Sequence[tuple[float, Power | None]]) -> Power | None:
    """The power over several (seconds, power); None unless all are known, and of one source."""
    known = [(seconds, power) for seconds, power in powers if power is not None]
    if len(known) < len(powers) or len({power.source for _, power in known}) != 1:
        return None
    whole = sum(seconds for seconds, _ in known)
    first = known[0][1]
    return dataclasses.replace(first, watts=sum(s * p.watts for s, p in known) / whole) if whole > 0 else first


def cost(throughput: Estimate, price: float) -> Estimate:
    """Dollars per million output tokens at `price` dollars per hour; infinite when nothing is
    produced.
    """
    return throughput.inverted(price * 1e6 / 3600)


def joules(throughput: Estimate, power: Power) -> Estimate:
    """Joules per output token; infinite when nothing is produced."""
    return throughput.inverted(power.watts, lower_at_zero=math.inf)
