"""Requests that are alike: how many independent ones those of an unproven setting are worth.

It is said where a value is well within its limit and not proven, with what makes them alike.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from frontier.core.claim.proof import MAX_WINDOWS
from frontier.core.estimates.bounds import requests_needed, worths
from frontier.core.estimates.widening import widening
from frontier.core.model.decisions import Cause, Decision, Limit, Reason
from frontier.core.model.loads import Load
from frontier.core.model.metrics import Metric
from frontier.core.model.points import Flag
from frontier.core.stats import intervals
from frontier.core.window.window import Bools, Floats, WindowData, narrowed

ALIKE = "alike"
"""The name of the flag of a reason whose requests are worth far fewer than their number."""
CLEARLY = 0.1
"""Headroom from which a setting is unproven for its bound and not for its value."""
FEWER = 0.5
"""Requests that are worth less than this share of their number are said to be alike."""
_VARY = "vary the output length"
"""What ends that streams keep their places, or come in waves."""
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


def may_vary(decision: Decision, concurrency: int) -> bool:
    """Whether the requests of a setting would not be alike with outputs of several lengths."""
    found = (flag for r in decision.explanation.settings if r.settings == (concurrency,) for flag in r.flags)
    return any(flag.name == ALIKE and flag.advice == _VARY for flag in found)


def with_alike(decision: Decision, samples: Mapping[Load, WindowData]) -> Decision:
    """The decision, with a flag on each setting that is not proven although it is well within its
    limit, where its requests are alike. It then needs as many as would decide even so; no number
    where a proof would be given up before. `samples` are the data by setting.
    """

    def told(reason: Reason) -> Reason:
        sample = samples.get(reason.settings[0]) if reason.settings else None
        if sample is None or reason.cause not in (Cause.TOO_FEW, Cause.CROSSES) or not is_clear(reason):
            return reason
        return reason if reason.flags or reason.limit is None else _told(reason, reason.limit, sample)

    why = decision.explanation
    why = replace(why, settings=tuple(map(told, why.settings)), reasons=tuple(map(told, why.reasons)))
    step, needs = decision.next_step, {r.settings[0]: r.need for r in why.settings if alike(r)}
    if step is not None and step.requests is not None and step.load in needs:
        step = replace(step, requests=needs[step.load])
    return replace(decision, explanation=why, next_step=step)


def _told(reason: Reason, limit: Limit, sample: WindowData) -> Reason:
    """The reason with the flag of requests that are alike, where they are."""
    estimate, mine = reason.estimate, narrowed(sample, limit.of.group)
    if estimate is None or limit.of.p is None or limit.of.quantity in (None, "itl"):
        return reason
    values = getattr(mine, limit.of.quantity)
    has = ~np.isnan(values)
    why, worth = _worth(mine, values, has, limit.of)
    if not worth < FEWER * estimate.n:
        return reason
    over = float(np.mean([limit.breaks(value) for value in values[has]]))
    need = requests_needed(limit.of.p, estimate.confidence, over, estimate.n / worth)
    most = MAX_WINDOWS * int(np.bincount(sample.window)[0])
    need = None if need is None or reason.need is None else max(need, reason.need)
    said = f"count as about {max(1, round(worth)):,} independent ones, as {_WHY[why]}"
    flag = Flag(ALIKE, said, "", _VARY if why in ("waves", "streams") else "", fatal=False)
    return replace(reason, flags=(*reason.flags, flag), need=None if need is None or need > most else need)


def _worth(sample: WindowData, values: Floats, has: Bools, of: Metric) -> tuple[str, float]:
    """Why the requests of a sample are worth fewer than their number for a percentile, and how
    many.
    """
    p = of.p or 0.5
    found = worths(sample, values, has, p) | {"neighbours": intervals.n_eff(values[has], p)}
    slack = widening(sample)
    wander = slack.wander.get(of.quantity or "")
    if wander is not None and wander.stalls and slack.waves:
        found["waves"] = wander.independent_periods
    why = min((name for name in found if name in _WHY), key=found.__getitem__)
    return why, max(1.0, found[why])
