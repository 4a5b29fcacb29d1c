"""Stated sizes: which trials end before their requests are sent, and sizes that can prove nothing.
Pure.

A config states `requests`, `max_time` or a budget. A trial that a time ends first has fewer
requests; and where no setting can have as many as a claim about the SLA's percentile needs, the
sweep can only answer *not proven*. Both are said before anything is sent.
"""

import math
from collections.abc import Iterable

from frontier.config import Config
from frontier.core.claim.changes import History
from frontier.core.claim.proof import MAX_WINDOWS
from frontier.core.model.metrics import claim_floor
from frontier.core.model.points import Point
from frontier.core.model.trials import Phase, Trial
from frontier.core.model.units import format_elapsed
from frontier.planning.budget import AROUND, TrialTimes
from frontier.planning.plan import make_plan

ENOUGH = 1.02
"""A time that has room for all requests of a trial is this many times what they are expected to
take."""


def size_lines(config: Config, times: TrialTimes) -> list[str]:
    """What a plan says of its stated sizes: which settings get fewer requests than stated, and that
    no setting can be proven. `times` are what trials took so far.
    """
    trials = make_plan(config).trials
    return [*_cut_lines(config, trials, times), *_too_few_lines(config, trials, times)]


def cut_note(config: Config, point: Point, history: History) -> str | None:
    """'287 of 1,000 requests in 5 min; max_time: 18min gives all': where a time ended a trial of
    stated requests; else None.
    """
    if config.requests is None:
        return None
    cut = [
        (trial, sample)
        for trial, sample in history
        if trial.load == point.load and trial.phase is Phase.GRID
        if "time" in sample.ended and 0 < sample.n < trial.requests
    ]
    if not cut:
        return None
    trial, sample = max(cut, key=lambda each: each[1].n)
    lasted = float((sample.ends - sample.starts).sum())
    return _got(sample.n, trial, lasted, lasted / sample.n, exact=True)


def _got(n: float, trial: Trial, seconds: float, each: float, *, exact: bool = False) -> str:
    """'about 290 of 1,000 requests in 5 min; max_time: 18min gives all'."""
    sent = f"{n:,.0f}" if exact else f"about {_two_digits(n):,}"
    got = f"{sent} of {trial.requests:,} requests in {format_elapsed(seconds)}"
    return f"{got}; max_time: {_enough(trial, each)} gives all"


def _two_digits(n: float) -> int:
    scale: int = 10 ** max(0, len(str(int(n))) - 2)
    return round(n) // scale * scale


def _enough(trial: Trial, each: float) -> str:
    """The `max_time` with which all requests of a trial are sent, where each takes so long."""
    around = trial.warmup if trial.load.is_open else AROUND * trial.load * each
    return f"{math.ceil((trial.requests * each + max(around, trial.warmup)) * ENOUGH / 60)}min"


def _each(trial: Trial, times: TrialTimes) -> float | None:
    """Seconds of a trial's window per request sent; None where nothing is known."""
    if (rate := trial.load.per_second) is not None:
        return 1 / (rate * trial.shape.requests)
    return times.each(trial)


def _window(trial: Trial) -> float:
    """Seconds that a trial's window lasts at most."""
    return min(trial.max_time - trial.warmup, math.inf if trial.seconds is None else trial.seconds)


def _cut_lines(config: Config, trials: Iterable[Trial], times: TrialTimes) -> list[str]:
    """The settings that get fewer requests than stated; before a speed is known, that windows
    end.
    """
    if config.requests is None:
        return []
    lines: dict[str, str] = {}
    for trial in sorted(trials, key=lambda trial: trial.load):
        each = _each(trial, times)
        if each is None:
            what, bound = ("trial", trial.max_time) if trial.seconds is None else ("window", trial.seconds)
            fewer = f"Each {what} ends after {format_elapsed(bound)}, with fewer requests where they are slow"
            lines.setdefault("", f"{fewer}; max_time sets another time." if config.max_time is None else f"{fewer}.")
        elif (got := _window(trial) / each) < trial.requests:
            said = _got(got, trial, _window(trial), each)
            lines.setdefault(str(trial.series), f"{trial.load.label}: {said}.")
    return list(lines.values())


def _too_few_lines(config: Config, trials: Iterable[Trial], times: TrialTimes) -> list[str]:
    """Why no setting can be proven, with the size that can; nothing where one can."""
    percentiles = [limit.of for limit in config.limits if limit.of.p is not None]
    if not percentiles:
        return []
    hardest = max(percentiles, key=lambda each: each.p or 0.0)
    least, found = claim_floor(hardest.p or 0.0), []
    listed = list(trials)
    for key, most, enough in _bounds(config, listed, times, least):
        if most < least:
            found.append(
                f"No setting can be proven: {key} leaves {int(most):,} requests a setting at most, and {hardest.label} "
                f"needs {least:,}. {enough} can."
            )
    return found[:1]


def _bounds(config: Config, trials: list[Trial], times: TrialTimes, least: int) -> Iterable[tuple[str, float, str]]:
    """For each stated bound: its key, the most requests that a setting can have under it, and the
    value that leaves `least`.
    """
    repeats, budget = config.repeats or 1, config.budget
    if config.requests is not None and not config.searches:
        sent = repeats * max(trial.requests for trial in trials)
        yield f"requests: {config.requests:,}", sent, f"requests: {math.ceil(least / repeats)}"
    if budget.requests is not None:
        yield f"budget.requests: {budget.requests:,}", budget.requests, f"budget.requests: {2 * least}"
    tokens = min(trial.shape.osl.mean for trial in trials)
    if budget.tokens is not None:
        yield (
            f"budget.tokens: {budget.tokens:,}",
            budget.tokens / tokens,
            f"budget.tokens: {math.ceil(2 * least * tokens)}",
        )
    known = [each for trial in trials if (each := _each(trial, times)) is not None]
    if not known:
        return
    each, windows = min(known), MAX_WINDOWS if config.searches else repeats
    if config.max_time is not None:
        most = windows * max(0.0, config.max_time - config.warmup) / each
        enough = math.ceil(least * each / windows + config.warmup)
        yield f"max_time: {format_elapsed(config.max_time)}", most, f"max_time: {enough}s"
    if budget.time is not None:
        yield (
            f"budget.time: {format_elapsed(budget.time)}",
            budget.time / each,
            f"budget.time: {math.ceil(2 * least * each / 60)}min",
        )
