"""What a sweep may spend, how long its trials take, and what therefore fits: planned before, kept during. Pure.

Work is done in the order of its worth (see `plan`), and what has no room left is dropped: so the least valuable goes.

How long trials will take, for whoever waits: nothing is chosen by it, and nothing claimed.

A setting that was measured takes as long again. Others of its shape follow from the engine model fitted to the shape's
points; where there are fewer than three, from the described hardware at its assumed efficiency, by what was found of it
so far. Where nothing is described, neighbours tell. How well is measured by `benchmarks/time_left.py`.
"""

import dataclasses
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from frontier.config import BudgetConfig, Config
from frontier.decide.forecast import LEAST, Assumption, assumption, guess_e2e
from frontier.errors import UsageError
from frontier.hardware.predict import Calibrated, Known, calibrate
from frontier.hardware.roofline import ModelRoofline
from frontier.model import Phase, Shape, Trial
from frontier.plan import estimate
from frontier.run import History, Setting, by_concurrency
from frontier.stats.window_data import Sample
from frontier.units import format_elapsed

MARGIN = 1.15
"""A trial is begun when there is room for this many times what it is expected to take."""
_PARTS = (("seconds", "time"), ("requests", "requests"), ("tokens", "tokens"), ("dollars", "cost"))


@dataclass(frozen=True, slots=True)
class Amount:
    """What something takes: seconds, requests sent, output tokens received, dollars."""

    seconds: float = 0.0
    requests: float = 0.0
    tokens: float = 0.0
    dollars: float = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            self.seconds + other.seconds, self.requests + other.requests,
            self.tokens + other.tokens, self.dollars + other.dollars,
        )  # fmt: skip

    def tree(self) -> dict[str, float]:
        """For JSON."""
        return {name: round(value, 3) for name, value in dataclasses.asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Caps:
    """The most that may be spent in all; None where there is no limit. `until` is unix time.

    `words` says each limit as the config does: {'time': '8 h', 'until': '07:00'}.
    """

    seconds: float | None = None
    requests: float | None = None
    tokens: float | None = None
    dollars: float | None = None
    until: float | None = None
    words: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, budget: BudgetConfig, now: float) -> "Caps":
        """The caps of a config's budget at unix time `now`, which tells which day a deadline means."""
        said = {
            "time": budget.time and format_elapsed(budget.time),
            "until": budget.until,
            "requests": budget.requests and f"{budget.requests:,}",
            "tokens": budget.tokens and f"{budget.tokens:,}",
            "cost": budget.cost and f"${budget.cost:,.10g}",
        }
        return cls(
            budget.time, budget.requests, budget.tokens, budget.cost,
            None if budget.until is None else deadline(budget.until, now), {k: v for k, v in said.items() if v},
        )  # fmt: skip

    def share(self, spent: Amount, now: float, parts: float) -> "Caps":
        """An equal part of what is left, as caps of their own: for what runs next of `parts` things in turn."""

        def part(cap: float | None, used: float) -> float | None:
            return None if cap is None else used + (cap - used) / parts

        return Caps(
            part(self.seconds, spent.seconds), part(self.requests, spent.requests), part(self.tokens, spent.tokens),
            part(self.dollars, spent.dollars), part(self.until, now), self.words,
        )  # fmt: skip

    def refuses(self, spent: Amount, need: Amount, now: float) -> str | None:
        """The limit that has no room for `need` after `spent`, in words ('time 8 h'); None when all have room."""
        for name, word in _PARTS:
            cap = getattr(self, name)
            if cap is not None and getattr(spent, name) + getattr(need, name) > cap:
                return f"{word} {self.words[word]}"
        if self.until is not None and now + need.seconds > self.until:
            return f"until {self.words['until']}"
        return None

    def seconds_left(self, spent: Amount, now: float) -> float | None:
        """Seconds until the time or the deadline is over; None when neither is limited."""
        left = [] if self.seconds is None else [self.seconds - spent.seconds]
        left += [] if self.until is None else [self.until - now]
        return min(left, default=None)


_CLOCK = re.compile(r"(?:(\d{4})-(\d\d)-(\d\d)[ T])?(\d{1,2}):(\d\d)")


def deadline(until: str, now: float) -> float:
    """Unix time of '07:00', the next time this machine's clock shows it, or of '2026-11-22 07:00'.

    A dated one may lie in the past. ValueError when it is neither.
    """
    found = _CLOCK.fullmatch(until)
    if found is None:
        raise ValueError(f"{until!r} is not a time of day")
    hour, minute = int(found[4]), int(found[5])
    if found[1] is not None:
        return time.mktime((int(found[1]), int(found[2]), int(found[3]), hour, minute, 0, 0, 0, -1))
    today = time.localtime(now)
    at = [time.mktime((today.tm_year, today.tm_mon, today.tm_mday + d, hour, minute, 0, 0, 0, -1)) for d in (0, 1)]
    return at[0] if at[0] > now else at[1]


@dataclass(frozen=True, slots=True)
class Pace:
    """What trials took so far, and so what others may be expected to take."""

    seen: tuple[tuple[Trial, Amount], ...] = ()

    @classmethod
    def of(cls, lines: Iterable[Mapping[str, Any]], trials: Mapping[str, Trial]) -> "Pace":
        """From a run's journal; `trials` are those that may be named in it, by key."""
        done = [line for line in lines if line["event"] == "trial_done" and "took" in line and line["trial"] in trials]
        return cls(tuple((trials[one["trial"]], Amount(one["took"], one["sent"], one["tokens"])) for one in done))

    def seconds(self, trial: Trial) -> float | None:
        """Seconds a trial will take, from the nearest settings measured; None when its shape was not measured yet.

        Seconds per planned request are interpolated on logarithmic axes of concurrency. Below what was measured they
        grow as concurrency falls; above, no gain is counted on.
        """
        rates: dict[int, list[float]] = {}
        for other, took in self.seen:
            if other.shape == trial.shape and other.deployment == trial.deployment and took.seconds > 0:
                rates.setdefault(other.concurrency, []).append(took.seconds / other.requests)
        if not rates:
            return None
        known = {c: sum(found) / len(found) for c, found in rates.items()}
        longest = max(trial.max_time, *(took.seconds for _, took in self.seen))
        return min(longest, max(trial.min_time, _between(known, trial.concurrency) * trial.requests))

    def same(self, trial: Trial) -> list[Amount]:
        """What trials of the very same setting and size took."""
        return [took for other, took in self.seen if _setting(other) == _setting(trial)]

    def need(self, trial: Trial, rate: float = 0.0) -> Amount:
        """What a trial will take, at `rate` dollars per second. `max_time` bounds what nobody knows yet."""
        expected = self.seconds(trial)
        seconds = trial.max_time if expected is None else expected
        same = [took for took in self.same(trial) if took.requests > 0]
        requests = float(trial.requests + 3 * trial.concurrency)
        tokens = requests * trial.shape.osl.mean
        if same:
            requests = max(took.requests for took in same)
            tokens = max(took.tokens for took in same)
        return Amount(seconds, requests, tokens, seconds * rate)

    def left(self, trials: Sequence[Trial]) -> float | None:
        """Seconds all these trials will take; None when that is not known of each."""
        found = [self.seconds(trial) for trial in trials]
        return None if None in found else math.fsum(s for s in found if s is not None)


def _between(known: Mapping[int, float], at: int) -> float:
    """Interpolated on logarithmic axes."""
    below, above = max((c for c in known if c <= at), default=None), min((c for c in known if c >= at), default=None)
    if below is None:
        assert above is not None
        return known[above] * above / at
    if above is None or below == above:
        return known[below]
    share = math.log(at / below) / math.log(above / below)
    return math.exp((1 - share) * math.log(known[below]) + share * math.log(known[above]))


def _setting(trial: Trial) -> tuple[str, Shape, int, int]:
    return trial.deployment, trial.shape, trial.concurrency, trial.requests


@dataclass(frozen=True, slots=True)
class Forecast:
    """What of some trials fits, in their order, and which limit drops the others.

    `spent` is what will have been spent then; `bounded`: some trial's time is not known but for its `max_time`.
    """

    fits: tuple[Trial, ...]
    dropped: tuple[Trial, ...]
    by: tuple[str, ...]
    bounded: bool
    spent: Amount = Amount()

    def __add__(self, later: "Forecast") -> "Forecast":
        """This, and then what comes later."""
        return Forecast(
            self.fits + later.fits, self.dropped + later.dropped, tuple(dict.fromkeys(self.by + later.by)),
            self.bounded or later.bounded, later.spent,
        )  # fmt: skip


def forecast(
    trials: Sequence[Trial], caps: Caps, pace: Pace, *, now: float, spent: Amount | None = None, rate: float = 0.0
) -> Forecast:
    """Which trials fit into what is left, when each takes what is expected, or its longest where nothing is known."""
    used, at = spent or Amount(), now
    fits, dropped, by = [], [], []
    for trial in trials:
        need = pace.need(trial, rate)
        reason = caps.refuses(used, need, at)
        if reason is None:
            used, at = used + need, at + need.seconds
            fits.append(trial)
        else:
            dropped.append(trial)
            by.append(reason)
    bounded = any(pace.seconds(trial) is None for trial in trials)
    return Forecast(tuple(fits), tuple(dropped), tuple(dict.fromkeys(by)), bounded, used)


def described_trials(trials: Sequence[Trial]) -> str:
    """'12 of repeat 3, 2 of repeat 2': the first to be dropped first."""
    groups: dict[str, int] = {}
    for trial in sorted(trials, key=lambda t: (t.phase is Phase.GRID, -t.repeat)):
        name = f"repeat {trial.repeat}" if trial.phase is Phase.GRID else "the refinement"
        groups[name] = groups.get(name, 0) + 1
    return ", ".join(f"{n} of {name}" for name, n in groups.items())


class Timing:
    """Estimates for the trials of one config."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._assumed: dict[str, Assumption] = {}
        self._light = {d.name: d.roofline() for d in config.deployments}
        self._fits: dict[tuple[Setting, int], Calibrated | None] = {}
        for deployment in config.deployments:
            try:
                self._assumed[deployment.name] = assumption(deployment)[0]
            except UsageError:  # too little is described: then it is not known before the first trials
                continue

    def left(
        self, trials: Sequence[Trial], pace: Pace, histories: Mapping[Setting, History] | None = None
    ) -> float | None:
        """Seconds these trials will take in all, after what `pace` and `histories` saw; None when that is not known of
        each."""
        found = [self.seconds(trial, pace, histories or {}) for trial in trials]
        return None if None in found else math.fsum(s for s in found if s is not None)

    def seconds(self, trial: Trial, pace: Pace, histories: Mapping[Setting, History]) -> float | None:
        """Seconds one trial will take; None when nothing says so."""
        if same := pace.same(trial):
            return sum(took.seconds for took in same) / len(same)
        setting = trial.deployment, trial.shape
        fit = self._fit(setting, histories.get(setting, []))
        if fit is not None:
            said = fit.at(trial.concurrency)
            return self._cost(trial, said.ttft.value + (trial.shape.osl.mean - 1) * said.tpot.value)
        guess = self._guessed(trial)
        return pace.seconds(trial) if guess is None else guess * self._ratio(trial, pace)

    def _cost(self, trial: Trial, e2e: float) -> float | None:
        return estimate((trial,), self._config, lambda _: e2e)[0].expected

    def _guessed(self, trial: Trial) -> float | None:
        """By the described hardware; None where none is, or a request does not fit it."""
        assumed = self._assumed.get(trial.deployment)
        if assumed is None:
            return None
        e2e = guess_e2e(assumed, trial.shape, trial.concurrency)
        return None if e2e is None else self._cost(trial, e2e)

    def _ratio(self, trial: Trial, pace: Pace) -> float:
        """What trials took over what was guessed of them: those of the shape, else of the deployment."""
        mine = [(other, took.seconds) for other, took in pace.seen if other.deployment == trial.deployment]
        alike = [(other, took) for other, took in mine if other.shape == trial.shape] or mine
        ratios = [math.log(took / guess) for other, took in alike if took > 0 and (guess := self._guessed(other))]
        return math.exp(sum(ratios) / len(ratios)) if ratios else 1.0

    def _fit(self, setting: Setting, history: History) -> Calibrated | None:
        """The engine model fitted to what was measured of a setting's shape so far."""
        key = setting, len(history)
        if key not in self._fits:
            self._fits[key] = self._fitted(setting, history)
        return self._fits[key]

    def _fitted(self, setting: Setting, history: History) -> Calibrated | None:
        known = [point for c, samples in sorted(by_concurrency(history).items()) if (point := _mean(c, samples))]
        if len(known) < LEAST:
            return None
        light, shape = self._light.get(setting[0]), setting[1]
        return calibrate(
            known, shape.isl.mean, shape.osl.mean, roofline=light if isinstance(light, ModelRoofline) else None
        )


def _mean(concurrency: int, samples: Sequence[Sample]) -> Known | None:
    """The mean latencies of the requests that succeeded; None where they say nothing."""
    ttft, tpot = (np.concatenate([getattr(s, name)[s.ok] for s in samples]) for name in ("ttft", "tpot"))
    tpot = tpot[~np.isnan(tpot)]
    if not len(ttft) or not len(tpot) or not (ttft.mean() > 0 and tpot.mean() > 0):
        return None
    return Known(concurrency, float(ttft.mean()), float(tpot.mean()))
