"""Search over rates of arrivals: the next trial of a sweep whose load is a rate. Pure, as `scan`.

First a ramp: looks of a few seconds at 1, 2, 4, ... requests per second, from the lowest rate of
the config, until more arrives than is served. A longer look there shows how much the server serves
at most. With that known the rest is `highest_rate`, as in `verify --find`. It locates the rate at
which the SLA breaks and proves the highest rate below it on fresh data; the guarantee is written
there. Looks of the ramp place the first candidate and support no claim.

A rate of sessions counts the sessions that begin. A look begins when sessions have had time to come
to their last turn. The first look shows how much time that is, and is then taken again.
"""

import math
from collections.abc import Sequence

import numpy as np

from frontier.core.claim.changes import History
from frontier.core.claim.proof import pilot_point, violation
from frontier.core.flags import load_flags
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.loads import Rate, SessionRate
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Phase
from frontier.core.window.window import BLOCKS, WindowData, mean_e2e
from frontier.search import highest_rate
from frontier.search.highest_rate import INVALID
from frontier.search.load_trials import LoadAsk, LoadDone, LoadPolicy, LoadTrial, invalid_because, rounded

LOOK_REQUESTS, LOOK_SECONDS, LOOK_TURNS = 50, 12.0, 4.0
"""A look of the ramp lasts for this many requests, this many seconds, and this many times the time
of a request, whichever is longest."""
SATURATED_REQUESTS = 400
"""Requests of the look that shows how much is served at most."""
TURNED_AWAY = 1 / 3
"""A server that fails more than this share of the requests has no backlog, and serves no more at a
higher rate."""
MOST_RATE = 20_000.0
"""The ramp ends here: no client process sends more."""
LATE = BLOCKS // 2
"""The blocks of the saturated look from which on all that the server can hold is in flight."""


def next_ask(
    shape: Shape, grid: Sequence[int], limits: Sequence[Limit], history: History, warmup: float
) -> LoadAsk | LoadDone:
    """The next trial at a rate, or the answer. `grid` are the rates of the config, `warmup` the
    least in seconds.

    Nothing is remembered between calls: after a crash or an interruption the same history gives the
    same next trial.
    """
    trials = [load_trial(trial.phase, trial.requests, s) for trial, s in history if trial.phase in _SEARCHED]
    begun = next((i for i, trial in enumerate(trials) if _is_saturated_look(trial)), None)
    if begun is None:
        return _ramp(shape, grid, tuple(limits), trials, warmup)
    policy = _policy(shape, tuple(limits), trials[: begun + 1], warmup)
    return highest_rate.next_ask(policy, limits, trials[begun + 1 :])


_SEARCHED = (Phase.SCAN, Phase.PROVE)


def load_trial(phase: Phase, requests: int, sample: WindowData) -> LoadTrial:
    """A finished trial at a rate as `highest_rate` wants it."""
    assert isinstance(sample.concurrency, Rate)
    return LoadTrial(sample.concurrency.per_second, phase, requests, sample, overloaded=is_overloaded(sample))


def is_overloaded(sample: WindowData) -> bool:
    """Whether more arrives than is served: the backlog grew through the window, or the server
    turned most of the requests away.
    """
    return any(load_flags.overloaded(sample)) or float((~sample.ok).mean()) > TURNED_AWAY


def _is_saturated_look(trial: LoadTrial) -> bool:
    return trial.phase is Phase.SCAN and trial.requests >= SATURATED_REQUESTS and trial.overloaded


def _ramp(
    shape: Shape, grid: Sequence[int], limits: tuple[Limit, ...], looks: Sequence[LoadTrial], warmup: float
) -> LoadAsk | LoadDone:
    """The next look of the ramp."""
    invalid = [look for look in looks if invalid_because(look, limits)]
    if len(invalid) >= INVALID:
        return LoadDone(Verdict.INVALID, f"the measurements are not valid: {invalid_because(invalid[-1], limits)}")
    if not looks:
        lowest = grid[0]
        assert isinstance(lowest, Rate)
        return ramp_look(shape, lowest.per_second, LOOK_REQUESTS, looks, warmup)
    last = looks[-1]
    if last in invalid:
        return ramp_look(shape, last.load, last.requests, looks, warmup)
    if shape.has_sessions and len(looks) == 1:
        return ramp_look(shape, last.load, LOOK_REQUESTS, looks, warmup)
    if last.overloaded:
        return ramp_look(shape, last.load, SATURATED_REQUESTS, looks, warmup)
    if 2 * last.load > MOST_RATE:
        unit = (SessionRate if shape.has_sessions else Rate).arrivals
        return LoadDone(Verdict.UNPROVEN, f"the server keeps up with {last.load:g} {unit}, the most that is sent")
    return ramp_look(shape, rounded(2 * last.load), LOOK_REQUESTS, looks, warmup)


def ramp_look(shape: Shape, rate: float, least: int, looks: Sequence[LoadTrial], warmup: float) -> LoadAsk:
    """A look at a rate, of `least` requests or more. For sessions, the first look shows how long a
    request takes where the server kept up with no look.
    """
    e2e = max((mean_e2e(look.data) for look in looks if not look.overloaded), default=0.0)
    if not e2e and shape.has_sessions and looks:
        e2e = mean_e2e(looks[0].data)
    seconds = max(LOOK_SECONDS, LOOK_TURNS * e2e)
    requests = max(least, math.ceil(rate * shape.requests * seconds))
    warmup = max(warmup, 2 * e2e, shape.session_seconds(e2e))
    return LoadAsk(rate, Phase.SCAN, requests, warmup, shape.requests)


def _policy(shape: Shape, limits: tuple[Limit, ...], ramp: Sequence[LoadTrial], warmup: float) -> LoadPolicy:
    """What is searched, by the ramp, whose last look is the saturated one.

    The most requests in flight that matter follow from Little's law at the highest rate that is
    served. The time of a request is the longest mean of the looks that the server kept up with.
    Where it kept up with no look, it is the time of the fastest request of the last look.
    """
    top = served(ramp[-1].data) / shape.requests
    if shape.has_sessions:  # of a backlog first turns are served before their time
        kept = (look.load for look in ramp if not look.overloaded)
        top = min(ramp[-1].load, max(top, *kept, 0.0))
    kept_up = [look for look in ramp if not look.overloaded and look.load < top]
    e2e = max((mean_e2e(look.data) for look in kept_up), default=0.0)
    if not e2e:
        finite = ramp[-1].data.e2e[np.isfinite(ramp[-1].data.e2e)]
        e2e = float(np.min(finite)) if len(finite) else 1.0 / (top * shape.requests)
    inside = [
        look.load
        for look in kept_up
        if (excess := violation(pilot_point(look.data, limits), limits)) is not None and excess <= 0
    ]
    in_flight = max(1, round(top * shape.requests * e2e))
    lasting = shape.session_seconds(e2e)
    return LoadPolicy(
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
