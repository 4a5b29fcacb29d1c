"""Requests that are alike: how many independent ones those of a setting are worth, and why, where a
value is well within its limit and not proven.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from frontier.core.estimates.bounds import worths
from frontier.core.estimates.widening import widening
from frontier.core.model.decisions import Cause, Explanation, Limit, Reason
from frontier.core.model.points import Flag
from frontier.core.stats import intervals
from frontier.core.window.window import WindowData, narrowed

ALIKE = "alike"
"""The name of the flag of a reason whose requests are worth far fewer than their number."""
CLEARLY = 0.1
"""Headroom from which a setting is unproven for its bound and not for its value."""
FEWER = 0.5
"""Requests that are worth less than this share of their number are said to be alike."""
_WHY = {
    "sessions": "the turns of a session are alike",
    "streams": "a stream keeps its place among the others, and with it its latency",
    "connections": "some connections are slower than others",
    "neighbours": "slow requests come together",
    "waves": "they came in waves, and some waves stalled",
}


def is_clear(reason: Reason) -> bool:
    """Whether the value that a setting is not proven by lies well within its limit."""
    limit, estimate = reason.limit, reason.estimate
    return limit is not None and estimate is not None and limit.margin(estimate.value) >= CLEARLY


def alike(reason: Reason) -> str:
    """'count as about 95 independent ones, as they came in waves': what follows 'its requests'; ''
    where they are not much alike.
    """
    return next((flag.measured for flag in reason.flags if flag.name == ALIKE), "")


def with_alike(explanation: Explanation, samples: Mapping[int, WindowData]) -> Explanation:
    """The explanation in which each setting that is not proven, though well within its limit, has
    the flag of requests that are alike where they are. `samples` are the data by setting.
    """

    def told(reason: Reason) -> Reason:
        sample = samples.get(reason.settings[0]) if reason.settings else None
        found = None if sample is None else _flag(reason, sample)
        return reason if found is None else replace(reason, flags=(*reason.flags, found))

    return replace(
        explanation, settings=tuple(map(told, explanation.settings)), reasons=tuple(map(told, explanation.reasons))
    )


def _flag(reason: Reason, sample: WindowData) -> Flag | None:
    if reason.cause not in (Cause.TOO_FEW, Cause.CROSSES) or not is_clear(reason) or reason.flags:
        return None
    found = None if reason.limit is None else _worth(sample, reason.limit)
    if found is None or reason.estimate is None or found[1] > FEWER * reason.estimate.n:
        return None
    why, worth = found
    return Flag(ALIKE, f"count as about {max(1, round(worth)):,} independent ones, as {why}", "", "", fatal=False)


def _worth(sample: WindowData, limit: Limit) -> tuple[str, float] | None:
    """Why the requests of a sample are worth fewer than their number for the percentile of a limit,
    and how many; None for what is no percentile of requests.
    """
    of, sample = limit.of, narrowed(sample, limit.of.group)
    if of.p is None or of.quantity in (None, "itl"):
        return None
    values = getattr(sample, of.quantity)
    has = ~np.isnan(values)
    if not has.any():
        return None
    found = worths(sample, values, has, of.p) | {"neighbours": intervals.n_eff(values[has], of.p)}
    slack = widening(sample)
    wander = slack.wander.get(of.quantity)
    if wander is not None and wander.stalls and slack.waves:
        found["waves"] = wander.independent_periods
    name = min((name for name in found if name in _WHY), key=found.__getitem__)
    return (_WHY[name], found[name]) if math.isfinite(found[name]) else None
