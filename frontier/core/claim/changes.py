"""Changes of the server during a series: which windows were measured of the server as it is now.

A claim is about the server as it was when its series ended, so windows from before a change must
not prove anything. Only windows of one load are compared, as latency need not grow with load.

A load becomes *suspect* when the level of a window lies beyond CHANGE, and beyond the noise, from
the level of its earlier windows. It is then measured again. Where that window says the same, the
server has changed, and the earlier windows of the load are stale. The windows of other loads from
before the change are stale too. A load counts again once it was measured after the change and is as
it was: other work on the server's machine during one trial is no reason to prove everything anew.
"""

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from frontier.core.claim import tails
from frontier.core.claim.levels import NOISE, PRIOR, Growth, Level, Levels, growths, level, within
from frontier.core.flags import load_flags
from frontier.core.model.decisions import Limit
from frontier.core.model.groups import by_key
from frontier.core.model.loads import Load
from frontier.core.model.trials import Phase, Trial
from frontier.core.stats import episodes, laws
from frontier.core.window import window
from frontier.core.window.held import held, held_alone
from frontier.core.window.window import Episodes, Floats, WindowData

History = Sequence[tuple[Trial, WindowData]]
"""The finished trials of one series in the order in which they ended: by the number in their
evidence, as clocks can be set."""
PROOFS = (Phase.PROVE, Phase.CONFIRM)
CLAIMED = (Phase.GRID, *PROOFS, Phase.VISIT)
"""Phases whose windows count for a claim. Scans chose where to look; neither scans nor frontier
trials were sized for a claim."""
CHANGE = math.log(1.10)
"""A change of the level (in ln) up to this does not count as one."""
SUSPECT, SURE = 0.02, 0.0005
"""Error, in a pair of levels, at which a load is measured again, and at which it has changed."""
SHORTEST = 2.5
"""The shortest mean of runs that counts: requests side by side share a step, and come in pairs."""
FEWEST_RUNS = 3
"""Fewest runs of requests beyond a limit that show how long runs are; one disturbance shows none.
"""
_AWAY = re.compile(r"HTTP 50[234]\b")
MOST_SUSPECT = 3
"""This many windows that differ from the earlier ones, but not in the same way, are noise."""
MOST_CHANGES = 3
"""A server that changed so often is not searched any further."""


@dataclass(frozen=True, slots=True)
class Change:
    """The level of a load in a limited metric changed `by` an amount in ln.

    That was after the trial number `last` of the history and before the trial number `first`. Where
    the `tail` alone changed, it is the percentile of the metric that changed.
    """

    load: Load
    last: int
    first: int
    by: float
    metric: str
    tail: bool = False


class Unchanged(tuple[tuple[Trial, WindowData], ...]):
    """The part of a history that was measured of the server as it was at the end.

    `changes` made the rest stale; the last of them came before the trial number `since`. The last
    window of a load in `suspect` differs from its earlier ones. What was measured of a load in
    `doubted` excludes the tail that the next higher load showed since: it has to be proven anew.
    `growing` holds the latencies that grow. It holds what follows from it (see `held`): there is
    one for each history and limits.
    """

    changes: tuple[Change, ...] = ()
    since: int = 0
    suspect: tuple[Load, ...] = ()
    doubted: tuple[Load, ...] = ()
    growing: tuple[Growth, ...] = ()


@held_alone
def spoilt(sample: WindowData) -> bool:
    """Whether a window says nothing of the server under this load.

    The client itself spoilt it, the budget cut it off, a gateway answered for a server that was
    away, or another server was deployed meanwhile.
    """
    if "budget" in sample.ended or any(sample.changed) or away(sample):
        return True
    return bool(sample.n) and any(flag.fatal for flag in load_flags.client(sample))


def away(sample: WindowData) -> bool:
    """Whether a gateway answered every request with the error that the server is away (502, 503,
    504), until the trial was ended.
    """
    return sample.ended == ("failing",) and bool(sample.failures) and all(map(_AWAY.match, sample.failures))


def unchanged(history: History, limits: Sequence[Limit]) -> Unchanged:
    """What still counts of a history, in its order."""
    if isinstance(history, Unchanged):
        return history
    return _unchanged(tuple(history), tuple(limits))


@functools.lru_cache(maxsize=64)
def _unchanged(history: tuple[tuple[Trial, WindowData], ...], limits: tuple[Limit, ...]) -> Unchanged:
    followed = _nothing(limits)
    for number, (trial, sample) in enumerate(history):
        followed = _and(sample, followed, number, trial)
    last = followed.since
    later = {c for c, load in followed.loads.items() if max(load.numbers, default=-1) >= last}
    starts = {c: load.start for c, load in followed.loads.items()}

    def counts(number: int, trial: Trial) -> bool:
        c = trial.load
        return number >= starts.get(c, 0) and (number >= last or c in later)

    runs = _runs(tuple(followed.loads.values()), limits)
    kept = [ts for number, ts in enumerate(history) if counts(number, ts[0])]
    slow = _episodes(kept)
    shown = runs > 1 or slow is not None
    found = Unchanged((trial, window.in_series(sample, runs, slow) if shown else sample) for trial, sample in kept)
    found.changes, found.since = tuple(followed.changes), followed.since
    found.suspect = tuple(c for c, load in followed.loads.items() if load.suspects)
    found.doubted = tuple(c for c, load in followed.loads.items() if load.doubted)
    found.growing = growths((load.seen for load in followed.loads.values()), limits)
    return found


def _episodes(history: History) -> Episodes | None:
    """The episodes that the windows of a series show."""
    loads = by_key((trial.load, sample) for trial, sample in history if not spoilt(sample))
    return episodes.seen([window.join(parts) for parts in loads.values()])


def _runs(loads: Sequence["_Load"], limits: tuple[Limit, ...]) -> int:
    """The mean length of the runs in which requests beyond a limit follow each other, at any load;
    1 where there are too few runs to tell.
    """
    found = [1]
    for which in range(len(limits)):
        windows = [x.runs for load in loads for levels in (*load.looks, *load.every) if (x := levels[which])]
        late, begun = (sum(each[i] for each in windows) for i in (0, 1))
        found += [round(late / begun)] if begun >= FEWEST_RUNS and late >= SHORTEST * begun else []
    return max(found)


@dataclass(slots=True)
class _Load:
    """The windows of one load. `known` are the levels since its last change, `suspects` those that
    differ from them, `every` all levels, `looks` those of its scans since a change, `seen` those of
    all its windows without a backlog. `start` is the number of the first trial that counts, `proof`
    of the last that was sized for a claim.
    """

    start: int = 0
    proof: int = 0
    doubted: bool = False
    looks: list[Levels] = field(default_factory=list)
    seen: list[Levels] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    every: list[Levels] = field(default_factory=list)
    known: list[Levels] = field(default_factory=list)
    suspects: list[Levels] = field(default_factory=list)

    def copy(self) -> "_Load":
        """The same in lists of its own."""
        return replace(
            self,
            looks=[*self.looks],
            seen=[*self.seen],
            numbers=[*self.numbers],
            every=[*self.every],
            known=[*self.known],
            suspects=[*self.suspects],
        )


@dataclass(slots=True, eq=False)
class _Followed:
    """The loads of a series, followed from window to window; the findings at one window do not
    depend on later windows. `since` is the number of the first trial after the last change.
    """

    limits: tuple[Limit, ...]
    loads: dict[Load, _Load] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    since: int = 0

    def add(self, number: int, trial: Trial, sample: WindowData) -> None:
        """The next window."""
        c, levels = trial.load, tuple(level(sample, limit) for limit in self.limits)
        load = self.loads.setdefault(c, _Load())
        if not any(load_flags.overloaded(sample)):  # a backlog grows although the server is as it was
            load.seen.append(levels)
        if trial.phase not in (*CLAIMED, Phase.FRONTIER):
            load.looks.append(levels)
            return
        if trial.phase is not Phase.VISIT:
            load.proof = number
        self._follow(number, c, load, levels)
        self._doubt(number, c)

    def _follow(self, number: int, c: Load, load: _Load, levels: Levels) -> None:
        stale = bool(load.numbers) and load.numbers[-1] < self.since
        # The scans of a load from before a change show another server.
        load.start = load.start if load.numbers else self.since
        load.numbers.append(number)
        load.every.append(levels)
        if stale:
            self._seen_again(load, number, levels)
            return
        if not (load.known or load.looks) or not (load.suspects or self._differs(load, levels)):
            load.known.append(levels)
            return
        load.suspects.append(levels)
        if len(load.suspects) == 1:
            return
        by, metric, tail = self._differ(load, load.suspects, SURE)
        if by and self._differs(load, levels):
            load.start = self.since = load.numbers[-len(load.suspects)]
            last = max((k for k in load.numbers if k < load.start), default=load.start - 1)
            self.changes.append(Change(c, last, load.start, by, metric, tail))
            load.known, load.suspects = load.suspects, []
            self.loads = {k: replace(each, looks=[]) for k, each in self.loads.items()}
        elif len(load.suspects) >= MOST_SUSPECT or not self._differs(load, levels):
            load.known, load.suspects = [*load.known, *load.suspects], []

    def _seen_again(self, load: _Load, number: int, levels: Levels) -> None:
        """The first window of a load since the server changed. If the load is as it was, its
        earlier windows count again; noise is not allowed for. Of a tail that is never said, as one
        window shows too little of it. The change then came before the first of these windows. Where
        the windows that show the change are later than that, only their load has changed, and the
        others count again.
        """
        pairs = [([x for each in load.known if (x := each[i])], now) for i, now in enumerate(levels)]
        alike = not self.changes[-1].tail and all(
            now is not None and old and abs(now.mean - _mean(old)) <= CHANGE for old, now in pairs
        )
        load.suspects = []
        if alike:
            load.known.append(levels)
            self._came_before(next(n for n in load.numbers if n >= load.start))
        else:
            load.known, load.start = [levels], number

    def _came_before(self, number: int) -> None:
        """Note that the last change came before this trial, as its load is still as it was then."""
        if number > self.changes[-1].last:
            self.since = min(self.since, number)
            return
        self.changes.pop()
        self.since = self.changes[-1].first if self.changes else 0

    def _doubt(self, number: int, c: Load) -> None:
        """Doubt the next lower load where, since its proof, this load showed a tail that the lower
        load's data exclude. Their medians are alike, so the server's tail may have changed between
        the two. Each load is doubted once.
        """
        lower = max((k for k in self.loads if k < c), default=c)
        load, here = self.loads[lower], self.loads[c]
        since = [levels for k, levels in zip(here.numbers, here.every, strict=True) if k > load.proof]
        if lower == c or load.doubted or not load.known or not since:
            return
        for which, limit in enumerate(self.limits):
            old, new = ([x for levels in side if (x := levels[which])] for side in (load.known, since))
            if old and new and tails.excluded(_values(old), _values(new), limit, CHANGE):
                self.loads[lower] = replace(load.copy(), doubted=True, start=number, known=[], suspects=[])
                return

    def _differs(self, load: _Load, levels: Levels) -> bool:
        return self._differ(load, [levels], SUSPECT)[0] != 0

    def _differ(self, load: _Load, after: Sequence[Levels], error: float) -> tuple[float, str, bool]:
        """The largest difference (in ln), its metric, and whether it is that of a tail alone; 0
        without one. Levels differ by more than CHANGE and the noise at this error. Tails differ
        where the share of the requests beyond the limit changed at this error.
        """
        largest = 0.0, "", False
        for which, limit in enumerate(self.limits):
            sides = load.known, after, load.looks
            old, new, looks = ([x for levels in side if (x := levels[which])] for side in sides)
            each = error / len(self.limits)
            was = old or looks
            if not was or not new:
                continue
            by, shift = _mean(new) - _mean(was), max(CHANGE, self._noise(which, was, new, each))
            if tail := abs(by) <= shift or not old:
                by = tails.difference(_values([*looks, *old]), _values(new), limit, shift, each)
            if abs(by) > abs(largest[0]):
                largest = by, limit.metric, tail
        return largest

    def _noise(self, which: int, old: Sequence[Level], new: Sequence[Level], error: float) -> float:
        """The most by which two means of levels of an unchanged server differ, except with
        probability `error`.
        """
        total, freedom = self._scatter(which)
        between = (PRIOR * NOISE**2 + total) / (PRIOR + freedom)
        variance = (between + within([*old, *new])) * (1 / len(old) + 1 / len(new))
        return math.sqrt(variance) * laws.t_quantile(1 - error / 2, PRIOR + freedom)

    def _scatter(self, which: int) -> tuple[float, int]:
        """The sum of squares of the levels of each load since its last change, around their mean,
        and its degrees of freedom.
        """
        total, freedom = 0.0, 0
        for load in self.loads.values():
            means = [x.mean for levels in load.known if (x := levels[which])]
            if len(means) > 1:
                total += float(np.var(means)) * len(means)
                freedom += len(means) - 1
        return total, freedom


@functools.lru_cache(maxsize=64)
def _nothing(limits: tuple[Limit, ...]) -> _Followed:
    """No window yet; the same object for the same limits."""
    return _Followed(limits)


@held
def _and(sample: WindowData, before: _Followed, number: int, trial: Trial) -> _Followed:
    """What was followed `before`, and the next window."""
    if spoilt(sample):
        return before
    loads = {c: load.copy() if c == trial.load else load for c, load in before.loads.items()}
    after = replace(before, loads=loads, changes=list(before.changes))
    after.add(number, trial, sample)
    return after


def _mean(levels: Sequence[Level]) -> float:
    return sum(x.mean for x in levels) / len(levels)


def _values(levels: Sequence[Level]) -> Floats:
    return np.concatenate([x.values for x in levels])
