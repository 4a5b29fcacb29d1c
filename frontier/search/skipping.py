"""What need not be run: settings that would show nothing new."""

import math
from collections.abc import Sequence

from frontier.core.claim.changes import History
from frontier.core.claim.proof import joined
from frontier.core.estimates import estimate
from frontier.core.model.decisions import Limit
from frontier.core.model.loads import Load
from frontier.core.model.trials import Phase
from frontier.search.rate_policy import is_overloaded

SKIP_ERRORS, SKIP_TAIL, SKIP_FALL = 0.05, 10.0, 0.05
"""Share of failed requests, times over a latency limit, and loss of throughput that make higher
settings pointless."""


def skip_reason(load: Load, history: History, limits: Sequence[Limit]) -> str | None:
    """Why a setting need not be measured for the grid, given what lower ones of its shape showed;
    None: measure it.

    A setting is skipped, and reported as skipped, when the highest lower one failed more than 5%
    of its requests or was more than ten times over a latency limit. It is also skipped when
    throughput was more than 5% below the best at the last two settings; one fall may be noise.
    Bounds count, not values. A rate is skipped when more requests arrived than were served, at it
    or at a lower rate.
    """
    if load.is_open:
        over = min((t.load for t, s in history if is_overloaded(s)), default=math.inf)
        return f"at {over} more arrives than is served" if load >= over else None
    below = {c: s for c, s in joined(history, (Phase.GRID,)).items() if c < load}
    if not below:
        return None
    last = max(below)
    errors = estimate.estimate(below[last], "error_rate")
    if errors is not None and errors.lower > SKIP_ERRORS:
        return f"c={last} already failed {errors.value:.0%} of its requests"
    for limit in limits:
        m = limit.of
        tail = estimate.estimate(below[last], limit.metric, limits=tuple(limits)) if m.unit.value == "s" else None
        if tail is not None and tail.lower > SKIP_TAIL * limit.promise:
            return f"{m.label} at c={last} is already {m.format(tail.value)}, over ten times its limit"
    throughputs = [estimate.estimate(below[c], "output_throughput") for c in sorted(below)]
    known = [r for r in throughputs if r is not None]
    if len(known) >= 3 and all(r.high < (1 - SKIP_FALL) * max(k.value for k in known) for r in known[-2:]):
        return f"throughput has fallen at two settings in a row, up to c={last}"
    return None
