"""Search over rates of arrivals: the next trial of a sweep whose load is a rate. Pure, as `scan`.

First a ramp: looks of a few seconds at 1, 2, 4, ... requests per second, from the lowest rate of
the config, until more arrives than is served. A longer look there shows how much the server serves
at most. The ramp ends earlier where two looks in a row violate the SLA, and not the first: rates
from the second on are of no use, and the server serves at least that much. Several SLAs share the
ramp, and each has its own end. The rest is `highest_rate`, as in `verify --find`. It locates the
rate at which the SLA breaks and proves the highest rate below it on fresh data; the guarantee is
written there. Looks of the ramp place the first candidate and support no claim.

A rate of sessions counts the sessions that begin. A look begins when sessions have had time to come
to their last turn. The first look shows how much time that is, and is then taken again.
"""

import math
from collections.abc import Sequence

import numpy as np

from frontier.core.claim.changes import History
from frontier.core.claim.proof import pilot_point, violation
from frontier.core.claim.verdict import judge
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.loads import Load, Rate, SessionRate
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Phase
from frontier.core.window.window import BLOCKS, WindowData, mean_e2e
from frontier.search import highest_rate
from frontier.search.highest_rate import INVALID
from frontier.search.next_trial import Ask, Done
from frontier.search.rate_policy import RatePolicy, invalid_because, is_overloaded, rate_of, rounded

LOOK_REQUESTS, LOOK_SECONDS, LOOK_TURNS = 50, 12.0, 4.0
"""A look of the ramp lasts for this many requests, this many seconds, and this many times the time
of a request, whichever is longest."""
SATURATED_REQUESTS = 400
"""Requests of the look that shows how much is served at most."""
MOST_RATE = 20_000.0
"""The ramp ends here: no client process sends more."""
LATE = BLOCKS // 2
"""The blocks of the saturated look from which on all that the server can hold is in flight."""


def next_ask(
    shape: Shape, grid: Sequence[Load], slas: Sequence[tuple[Limit, ...]], tier: int, history: History, warmup: float
) -> Ask | Done:
    """The next trial at a rate for the SLA number `tier` of `slas`, which share the ramp, or the
    answer. `grid` are the rates of the config, `warmup` the least in seconds.

    Nothing is remembered between calls: after a crash or an interruption the same history gives the
    same next trial.
    """
    searched = [(trial, data) for trial, data in history if trial.phase in _SEARCHED]
    parts = [searched[:k] for k in range(1, len(searched) + 1)]
    ramps = [next((looks for looks in parts if _is_ramp(looks, limits)), None) for limits in slas]
    if (ramp := ramps[tier]) is None or None in ramps:
        return _ramp(shape, rate_of(grid[0]), slas[tier], searched, warmup)
    ahead = searched[max(len(looks or ()) for looks in ramps) :]
    return highest_rate.next_ask(_policy(shape, slas[tier], ramp, warmup), slas[tier], ahead)


_SEARCHED = (Phase.SCAN, Phase.PROVE)


def _is_ramp(looks: History, limits: tuple[Limit, ...]) -> bool:
    """Whether the ramp of an SLA ends with the last of these looks. Where even the lowest rate
    violates, only overload ends it: how low to search follows from what is served.
    """
    trial, data = looks[-1]
    if is_overloaded(data):
        return trial.phase is Phase.SCAN and trial.requests >= SATURATED_REQUESTS
    violates = [judge(pilot_point(sample, limits), limits).verdict is Verdict.VIOLATES for _, sample in looks]
    return not violates[0] and all(violates[-2:]) and looks[-2][0].load < trial.load


def _ramp(shape: Shape, lowest: Rate, limits: tuple[Limit, ...], looks: History, warmup: float) -> Ask | Done:
    """The next look of the ramp, which begins at the `lowest` rate."""
    invalid = [(trial, data) for trial, data in looks if invalid_because(data, limits)]
    if len(invalid) >= INVALID:
        why = invalid_because(invalid[-1][1], limits)
        return Done(f"the measurements are not valid: {why}", verdict=Verdict.INVALID)
    samples = [data for _, data in looks]
    if not looks:
        return ramp_look(shape, lowest, LOOK_REQUESTS, samples, warmup)
    trial, data = looks[-1]
    last = rate_of(trial.load)
    if (trial, data) in invalid:
        return ramp_look(shape, last, trial.requests, samples, warmup)
    if shape.has_sessions and len(looks) == 1:
        return ramp_look(shape, last, LOOK_REQUESTS, samples, warmup)
    if is_overloaded(data):
        return ramp_look(shape, last, SATURATED_REQUESTS, samples, warmup)
    if 2 * last.per_second > MOST_RATE:
        unit = (SessionRate if shape.has_sessions else Rate).arrivals
        return Done(f"the server keeps up with {last.per_second:g} {unit}, the most that is sent")
    return ramp_look(shape, rounded(2 * last.per_second), LOOK_REQUESTS, samples, warmup)


def ramp_look(shape: Shape, rate: Rate, least: int, looks: Sequence[WindowData], warmup: float) -> Ask:
    """A look at a rate, of `least` requests or more. For sessions, the first look shows how long a
    request takes where the server kept up with no look.
    """
    e2e = max((mean_e2e(look) for look in looks if not is_overloaded(look)), default=0.0)
    if not e2e and shape.has_sessions and looks:
        e2e = mean_e2e(looks[0])
    seconds = max(LOOK_SECONDS, LOOK_TURNS * e2e)
    requests = max(least, math.ceil(rate.per_second * shape.requests * seconds))
    return Ask(rate, Phase.SCAN, requests, "", warmup=max(warmup, 2 * e2e, shape.session_seconds(e2e)))


def _policy(shape: Shape, limits: tuple[Limit, ...], ramp: History, warmup: float) -> RatePolicy:
    """What is searched, by the ramp, whose last look is the saturated one, or the second that
    violates.

    The most requests in flight that matter follow from Little's law at the highest rate that is
    served. The time of a request is the longest mean of the looks that the server kept up with.
    Where it kept up with no look, it is the time of the fastest request of the last look.
    """
    last, saturated = ramp[-1]
    top = served(saturated) / shape.requests
    kept = [(rate_of(trial.load).per_second, data) for trial, data in ramp if not is_overloaded(data)]
    if not is_overloaded(saturated):
        top = rate_of(last.load).per_second
    elif shape.has_sessions:  # of a backlog first turns are served before their time
        top = min(rate_of(last.load).per_second, max(top, *(rate for rate, _ in kept), 0.0))
    kept_up = [(rate, data) for rate, data in kept if rate < top]
    e2e = max((mean_e2e(data) for _, data in kept_up), default=0.0)
    if not e2e:
        finite = saturated.e2e[np.isfinite(saturated.e2e)]
        e2e = float(np.min(finite)) if len(finite) else 1.0 / (top * shape.requests)
    inside = [
        rate for rate, data in kept_up if (x := violation(pilot_point(data, limits), limits)) is not None and x <= 0
    ]
    in_flight = max(1, round(top * shape.requests * e2e))
    lasting = shape.session_seconds(e2e)
    return RatePolicy(
        max(inside, default=0.0),
        top,
        in_flight,
        in_flight / (top * shape.requests),
        max(warmup, 2 * e2e, lasting),
        shape.requests,
        lasting,
    )


def served(sample: WindowData) -> float:
    """The most requests per second that a server serves, by the second half of a window in which
    more arrived. It is the output tokens over those of one answer, so that an answer that began
    earlier counts by its share.
    """
    tokens, late = sample.completion_tokens[sample.ok], slice(LATE, None)
    per_answer = float(np.nanmean(tokens)) if len(tokens) and not np.isnan(tokens).all() else math.nan
    produced = float(sample.block_output_tokens[late].sum())
    if not per_answer > 0 or not produced:
        produced, per_answer = float(sample.block_finished[late].sum()), 1.0
    return max(produced / per_answer, 1.0) / float(sample.block_seconds[late].sum())
