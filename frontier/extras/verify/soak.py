"""A hold (soak test): the load of an operating point for hours, window after window, and its
verdict.

A verdict is about the server as it is now, so it covers the windows since the last growth that was
seen. It also covers all windows: an SLA that was broken for an hour was broken.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from frontier.client.ask.same_server import Identity
from frontier.core.model.decisions import Decision, Limit, Verdict
from frontier.core.model.errors import MeasurementError
from frontier.core.model.groups import by_key
from frontier.core.model.trials import Record
from frontier.core.stats.intervals import clopper_pearson
from frontier.core.stats.laws import normal_quantile
from frontier.core.window.from_records import window_data
from frontier.extras.verify.open_loop_check import Sender
from frontier.extras.verify.soak_watch import MONTH, LatencyGrowth, LatencyWatch, threshold
from frontier.extras.verify.soak_windows import (
    EVENT,
    Kept,
    allowed,
    judged_limits,
    kept,
    read,
    window_seconds,
    window_trial,
)
from frontier.store.run_dir import RunDirectory

HOUR = 3600.0
"""Seconds over which the worst share is looked for: users must bear it that long."""
USUAL = "usual request"
"""The name of the second logarithm of a window, beside a limit's percentile."""


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """The setting to hold, for `duration` seconds in all, and the name of its windows."""

    decision: Decision
    limits: tuple[Limit, ...]
    duration: float
    hold: str

    @property
    def window(self) -> float:
        return window_seconds(self.duration)


@dataclass(frozen=True, slots=True)
class OverLimitShare:
    """The requests over a limit.

    - `value`, `lower`, `upper`: their share in all windows that count, with one-sided bounds at 95
      %.
    - `worst`, `worst_at`: the share in the worst hour, and when that hour began.
    - `verdict`: the share compared with the allowed one.
    """

    limit: Limit
    value: float
    lower: float
    upper: float
    worst: float
    worst_at: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Held:
    """The result of a hold so far.

    - `growths`: which metric grew (a limited one, or its usual request), and how.
    - `minutes_to_see`: the time until a growth of 10% would be noticed, where all of a latency
      grows.
    - `watches`: the watch over each latency.
    """

    plan: SoakPlan
    windows: tuple[Kept, ...]
    shares: tuple[OverLimitShare, ...]
    growths: tuple[tuple[str, LatencyGrowth], ...]
    minutes_to_see: float
    watches: tuple[LatencyWatch, ...] = ()

    @property
    def least_growth(self) -> float | None:
        """The least growth of each latency that these windows could have named (1.2: by 20%); None
        where they were too few.
        """
        could = [watch.least_named for watch in self.watches]
        known = [each for each in could if each is not None]
        return max(known) if known and len(known) == len(could) else None

    @property
    def seconds(self) -> float:
        """The seconds held so far, over the windows alone."""
        return sum(w.ended - w.begun for w in self.windows)

    @property
    def over(self) -> bool:
        """Whether all of the duration was held."""
        return self.seconds >= self.plan.duration

    @property
    def verdict(self) -> Verdict:
        found = [share.verdict for share in self.shares]
        if not found or not any(not w.excluded for w in self.windows):
            return Verdict.INVALID
        if self.another and Verdict.VIOLATES not in found:
            return Verdict.INVALID
        order = (Verdict.VIOLATES, Verdict.UNPROVEN, Verdict.MEETS)
        return next(v for v in order if v in found)

    @property
    def another(self) -> int:
        """The number of windows in which another server answered than the run was measured on. A
        gateway falls back when its deployment is unwell, so the remaining windows are a biased
        sample.
        """
        return sum(bool(w.another) for w in self.windows)


def begun(store: RunDirectory, decision: Decision, limits: Sequence[Limit], duration: float) -> SoakPlan:
    """The hold to resume: the last of this setting, SLA and duration that is not over, otherwise a
    new one. A window keeps counts against its own limits, so another SLA is another hold.
    """
    sla = " ".join(map(str, limits))
    mine = f"{decision.series.label(keep_shape=True)} {decision.load} {sla} {duration:g}"
    numbers = [int(str(line["hold"]).rpartition("#")[2]) for line in store.journal_lines() if _is_of(line, mine)]
    plan = SoakPlan(decision, tuple(judged_limits(limits)), duration, f"{mine} #{max(numbers, default=1)}")
    if judge(plan, read(store.journal_lines(), plan.hold)).over:
        return SoakPlan(decision, plan.limits, duration, f"{mine} #{max(numbers) + 1}")
    return plan


def _is_of(line: Mapping[str, object], name: str) -> bool:
    return line["event"] == EVENT and str(line.get("hold", "")).startswith(f"{name} #")


async def hold(sender: Sender, plan: SoakPlan, on_window: Callable[["Held"], None]) -> Held:
    """Send window after window until the duration is over or it is stopped. Each window is on disk
    before the next begins. MeasurementError when the server is lost; the windows are kept.
    """
    windows = read(sender.store.journal_lines(), plan.hold)
    identity = sender.run.identities.get(plan.decision.deployment, Identity())
    follow = Following(plan)
    for window in windows:
        follow.add(window)
    await sender.prepare(plan.decision.deployment)
    while not (held := follow.held()).over and not sender.stop.is_set():
        if windows:
            on_window(held)
        trial = window_trial(sender.run, plan.decision, plan.window, len(windows) + 1, plan.hold)
        records: list[Record] = []
        measurement = await sender.backend.run(
            trial, expected_e2e=None, on_record=records.append, on_tick=sender.on_tick, stop=sender.stop
        )
        if measurement.ended == "server_lost":
            raise MeasurementError("the server was lost under the load", "see why; the same command goes on")
        if measurement.ended == "interrupted":
            break
        identity, sample = identity.with_window(window_data(measurement, records))
        window = kept(measurement, sample, plan.limits)
        sender.store.journal(EVENT, hold=plan.hold, **asdict(window))
        windows.append(window)
        follow.add(window)
    return follow.held()


@dataclass(slots=True)
class Following:
    """The windows of a hold as they come, and the watches over them."""

    plan: SoakPlan
    windows: list[Kept] = field(default_factory=list)
    growths: list[tuple[str, LatencyGrowth]] = field(default_factory=list)
    _watches: dict[str, LatencyWatch] = field(default_factory=dict)

    def add(self, window: Kept) -> None:
        """Add a window that has ended."""
        self.windows.append(window)
        if window.excluded:
            return
        names = [limit.metric for limit in self.plan.limits if limit.of.p is not None]
        limit = threshold(max(1, 2 * len(names)) * MONTH / self.plan.window)
        for name in names:
            for what, level in zip((name, f"{name}, {USUAL}"), window.levels.get(name, ()), strict=False):
                watch = self._watches.setdefault(what, LatencyWatch(limit))
                grown = watch.add(math.inf if level is None else level, window.begun, window.ended)
                if grown is not None:
                    self.growths.append((what, grown))

    def held(self) -> Held:
        """The result of the windows so far."""
        valid = [w for w in self.windows if not w.excluded]
        since = max((grown.since for _, grown in self.growths), default=0.0)
        now = [w for w in valid if w.begun >= since]
        shares = tuple(_share(limit, valid, now) for limit in self.plan.limits) if valid else ()
        known = [watch.windows_to_see(1.1) for what, watch in self._watches.items() if what.endswith(USUAL)]
        spacing = (valid[-1].ended - valid[0].begun) / len(valid) if valid else self.plan.window
        minutes = max(known, default=math.inf) * spacing / 60
        watches = tuple(self._watches.values())
        return Held(self.plan, tuple(self.windows), shares, tuple(self.growths), minutes, watches)


def judge(plan: SoakPlan, windows: Sequence[Kept]) -> Held:
    """The result of a hold, by its windows."""
    follow = Following(plan)
    for window in windows:
        follow.add(window)
    return follow.held()


def _share(limit: Limit, windows: Sequence[Kept], now: Sequence[Kept]) -> OverLimitShare:
    """The share of requests over a limit. The verdict is the worse of two: of all windows, and of
    those since the last growth.
    """
    value, lower, upper = _bounds(limit, windows)
    ends = [(value, lower, upper), *([_bounds(limit, now)] if now else [])]
    verdict = Verdict.MEETS
    if any(low > allowed(limit) for _, low, _ in ends):
        verdict = Verdict.VIOLATES
    elif any(high > allowed(limit) for *_, high in ends):
        verdict = Verdict.UNPROVEN
    hours = by_key((int((window.begun - windows[0].begun) // HOUR), window) for window in windows)
    worst = max(hours.values(), key=lambda mine: _bounds(limit, mine)[0])
    return OverLimitShare(limit, value, lower, upper, _bounds(limit, worst)[0], worst[0].begun, verdict)


def _bounds(limit: Limit, windows: Sequence[Kept]) -> tuple[float, float, float]:
    """The share of requests over a limit with one-sided bounds at 95%. They are the wider of two:
    with independent requests, and by the differences between windows.
    """
    over = np.array([w.over.get(limit.metric, 0) for w in windows], dtype=float)
    n = np.array([w.counts.get(limit.metric, 0) for w in windows], dtype=float)
    if not n.sum():
        return 0.0, 0.0, 1.0
    value = float(over.sum() / n.sum())
    low, high = clopper_pearson(float(over.sum()), float(n.sum()))
    if len(windows) > 1:
        spread = math.sqrt(float(((over - value * n) ** 2).sum()) * len(n) / (len(n) - 1)) / float(n.sum())
        low, high = min(low, value - normal_quantile(0.95) * spread), max(high, value + normal_quantile(0.95) * spread)
    return value, max(0.0, low), min(1.0, high)
