"""Curves over concurrency: the value that a scan predicts for each limit. For planning, never for
claims.

Medians need few requests where a p99 needs many. So a curve is of medians, and the distance from
the median to the tail is pooled over settings.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from frontier.core.claim.levels import latencies
from frontier.core.claim.verdict import RISING
from frontier.core.model.decisions import Limit
from frontier.core.model.loads import Load
from frontier.core.model.points import Point
from frontier.core.stats import episodes
from frontier.core.stats.laws import normal_quantile
from frontier.core.stats.wander import BASIC
from frontier.core.window.held import held
from frontier.core.window.histogram import LogHistogram
from frontier.core.window.window import Episodes, Floats, WindowData, gaps, narrowed

AnyLoad = TypeVar("AnyLoad", bound=int)
"""Requests in flight, or arrivals per second."""
Deviations = tuple[Sequence[float], Sequence[float]]
"""Normal quantiles and, for each, the deviation of the normal law with the quantile seen there."""
EXACT = 0.05
"""The distance (in ln) from the limit that is asked for where the limit is on a mean, a rate or a
share."""


RUN_TO_RUN = 0.03
"""Expected difference of a value from run to run (in ln), beside the noise within a run."""


FAR = 3.0
"""The largest violation (in ln): a larger one counts as this, and so does an infinite one."""


DEEP = -12.0
"""The level (in ln) of what takes no time at all."""


LEAST = 0.01
"""The least standard deviation (in ln) of a latency."""


STEEP = 3.0
"""Latency that rises faster than this power of concurrency is a cliff."""


@dataclass(frozen=True, slots=True)
class Part:
    """A limit, and the class of requests by which it is looked at; None: all requests that it is
    on.

    Where a limit is on requests of several classes, a percentile is looked at class by class: the
    tail of a mixture of classes does not follow from its median. The percentile is within the limit
    where that of each class is.
    """

    limit: Limit
    group: str | None = None

    @classmethod
    def of(cls, limit: Limit, samples: Mapping[Load, WindowData]) -> "list[Part]":
        """The parts in which a limit is looked at."""
        group = limit.of.group
        classes = next((sample.shape.finest(group) for sample in samples.values()), ())
        if limit.of.p is None or limit.of.quantity == "itl" or classes in ((), (group,)):
            return [cls(limit)]
        return [cls(limit, name) for name in classes]


@dataclass(frozen=True, slots=True)
class Curve:
    """One limit over concurrency, for planning and not for verdicts.

    `level` is ln of median over limit by concurrency, non-decreasing (isotonic regression, weighted
    by requests): a median needs few requests where a p99 needs many. `sigma` turns normal quantiles
    into the distance from median to tail, by the tail of the nearest settings, which has `pooled`
    values: a deviation for each of several normal quantiles, as a mixture follows no normal law.
    For a limit that is not on a percentile, the level is of its value, and there is no tail. Of
    gaps between tokens a quantile is that of all `gaps` of a look: they are many, and those in
    which a prompt is read are far longer. `medians` are the medians that the level is made of. All
    are of the time between the episodes `slow`.
    """

    part: Part
    level: Mapping[Load, float]
    requests: Mapping[Load, int]
    sigma: Mapping[Load, Deviations]
    pooled: Mapping[Load, int]
    medians: Mapping[Load, float] = field(default_factory=dict)
    slow: Episodes | None = None
    gaps: Mapping[Load, LogHistogram] = field(default_factory=dict)

    @property
    def limit(self) -> Limit:
        """The limit."""
        return self.part.limit

    @classmethod
    def of(cls, part: Part, samples: Mapping[Load, WindowData], points: Mapping[Load, Point]) -> "Curve":
        m = part.limit.of
        if m.p is None or m.quantity in (None, "itl") or m.inverted:
            return cls._of_values(part, samples, points)
        over = {c: _over_limit(sample, part) for c, sample in samples.items()}
        medians = {c: max(DEEP, min(FAR, middle)) for c, (_, middle) in over.items() if not math.isnan(middle)}
        level = rising(medians, {c: p.n for c, p in points.items()})
        tails = _tails({c: samples[c] for c in level}, part)
        sigma = {c: deviations for c, (deviations, _) in tails.items()}
        counts = {c: number for c, (_, number) in tails.items()}
        slow = next((sample.episodes for sample in samples.values()), None)
        return cls(part, level, {c: len(over[c][0]) for c in level}, sigma, counts, medians, slow)

    @classmethod
    def _of_values(cls, part: Part, samples: Mapping[Load, WindowData], points: Mapping[Load, Point]) -> "Curve":
        """The curve of a limit that is on no percentile of what each request has."""
        limit, requests = part.limit, {c: p.n for c, p in points.items()}
        level = {c: max(DEEP, min(FAR, limit.excess(p.metrics[limit.metric].value))) for c, p in points.items()}
        level = level if limit.metric in RISING else rising(level, requests)
        of_gaps = limit.of.quantity == "itl" and limit.of.p is not None
        return cls(part, level, requests, {}, {}, gaps={c: gaps(samples[c]) for c in points if of_gaps})

    def _z(self, tail: float) -> float:
        """The normal quantile for `tail`, as a share of the requests that may exceed the limit."""
        p = self.limit.of.p
        return normal_quantile(1 - tail * (1 - p)) if self.sigma and p is not None else 0.0

    def _deviation(self, c: Load, z: float) -> float:
        """The standard deviation of the normal law with the quantile of a measured setting at z."""
        return float(np.interp(z, *self.sigma[c])) if c in self.sigma else 0.0

    def at(self, c: Load, tail: float, least: float = -FAR) -> float:
        """Expected ln of that quantile over the limit at c, `least` at the lowest, with the most
        episodes that there may be; without a tail, of the limited value.
        """
        usual, p = self.between_episodes(c, tail, least), self.limit.of.p
        if self.slow is None or p is None or tail * (1 - p) >= self.slow.share:
            return usual
        shift = dict(self.slow.shifts).get(self.limit.of.quantity or "", 0.0)
        return max(usual, min(FAR, shift + self.between_episodes(c, tail / self.slow.share, least)))

    def later(self, times: float) -> "Curve":
        """The curve with the most episodes that there may be once so many times these are seen."""
        if self.slow is None:
            return self
        surer = episodes.most_times(times * self.slow.spans) / episodes.most_times(self.slow.spans)
        return replace(self, slow=replace(self.slow, share=surer * self.slow.share))

    def between_episodes(self, c: Load, tail: float, least: float = -FAR) -> float:
        """`at`, between the episodes."""
        if not self.level:
            return FAR
        z = self._z(tail)
        levels = {k: max(least, min(FAR, x + z * self._deviation(k, z))) for k, x in self.level.items()}
        p = self.limit.of.p
        if self.gaps and p is not None:
            seen = {k: self.limit.excess(gaps.quantile(1 - tail * (1 - p))) for k, gaps in self.gaps.items()}
            levels = rising({k: max(least, min(FAR, x)) for k, x in seen.items()}, self.requests)
        return interpolated(levels, c)

    def standard_error(self, c: Load) -> float:
        """Standard error of the expected value: of its median, its tail, and the difference from
        run to run.
        """
        p = self.limit.of.p
        if p is None or not (self.sigma or self.gaps):
            return EXACT
        near = min(self.level, key=lambda k: abs(math.log(k / c)))
        if self.gaps:  # a request has one long gap at most: requests count, not gaps
            rarer = 1 / (1 + math.sqrt(p / (1 - p) / self.requests[near]))
            return math.hypot(self.at(c, rarer) - self.at(c, 1.0), EXACT)
        z = self._z(1.0)
        of_both = 1.57 / self.requests[near] + z**2 / (2 * self.pooled[near])
        return math.hypot(self._deviation(near, z) * math.sqrt(of_both), RUN_TO_RUN)


@held
def _over_limit(sample: WindowData, part: Part) -> tuple[Floats, float]:
    """The logarithms over the limit between the episodes, and their median, NaN where there are
    none.
    """
    even = narrowed(_between_episodes(sample) if sample.episodes else sample, part.group)
    logs = logs_over(latencies(even, part.limit), part.limit.promise)
    return logs, float(np.median(logs)) if len(logs) else math.nan


@held
def _between_episodes(sample: WindowData) -> WindowData:
    """The sample, which has episodes, as if no request had come in one."""
    ttft, tpot, e2e = (episodes.at_share(sample, name, getattr(sample, name), 0.0) for name in BASIC)
    return replace(sample, ttft=ttft, tpot=tpot, e2e=e2e)


def logs_over(values: Floats, promise: float) -> Floats:
    with np.errstate(divide="ignore"):
        logs: Floats = np.log(values / promise)
    return logs


def _tails(samples: Mapping[Load, WindowData], part: Part) -> dict[Load, tuple[Deviations, int]]:
    """The tail of each setting by the three nearest to it, as one has few requests, and the number
    of values behind it.
    """
    return {c: _tail(*_nearest(samples, c), part=part) for c in samples}


def _nearest(of: Mapping[Load, WindowData], c: Load) -> list[WindowData]:
    """The three settings nearest to c."""
    return [of[k] for k in sorted(of, key=lambda k: (abs(math.log(k / c)), k))[:3]]


@held
def _tail(nearest: WindowData, *others: WindowData, part: Part) -> tuple[Deviations, int]:
    pooled = _pooled(_over_limit(sample, part) for sample in (nearest, *others))
    return _deviations(pooled), len(pooled)


def _pooled(over: Iterable[tuple[Floats, float]]) -> Floats:
    """The distances (in ln) from the median in each of these settings, ascending."""
    parts = [logs - middle for logs, middle in over if math.isfinite(middle)]
    return np.sort(np.concatenate(parts)) if parts else np.zeros(1)


def _deviations(pooled: Floats) -> Deviations:
    """Normal quantiles that at least three of these distances lie beyond, and for each the standard
    deviation of the normal law with the quantile that was seen there.
    """
    telling = [p for p in (0.8, 0.9, 0.95, 0.99) if len(pooled) * (1 - p) >= 3]
    z = [normal_quantile(p) for p in telling]
    seen = [float(pooled[math.ceil(p * len(pooled)) - 1]) / at for p, at in zip(telling, z, strict=True)]
    return z or [0.0], [min(FAR, max(LEAST, width)) for width in seen] or [LEAST]


def interpolated(level: Mapping[Load, float], c: Load) -> float:
    """The level (a logarithm) at c: latency and throughput are nearly linear in concurrency between
    settings.

    A cliff is taken to be half way between its ends.
    """
    measured = sorted(level)
    above = next((a for a in measured if a >= c), None)
    below = next((b for b in reversed(measured) if b <= c), None)
    if above is None or below is None or above == below:
        nearest = above if above is not None else below
        return FAR if nearest is None else level[nearest]
    if (level[above] - level[below]) / math.log(above / below) > STEEP:
        return level[above] if c > math.sqrt(below * above) else level[below]
    share = (c - below) / (above - below)
    return math.log((1 - share) * math.exp(level[below]) + share * math.exp(level[above]))


def rising(level: Mapping[AnyLoad, float], requests: Mapping[AnyLoad, int]) -> dict[AnyLoad, float]:
    """The level made non-decreasing in the load, ascending, weighted by requests. Without this, one
    unlucky value would send a search an octave down. For planning, not for verdicts.
    """
    if not level:
        return {}
    from scipy.optimize import isotonic_regression  # slow to import, and not needed to look at a run

    loads = sorted(level)
    fitted = isotonic_regression([level[x] for x in loads], weights=[max(1, requests[x]) for x in loads]).x
    return dict(zip(loads, map(float, fitted), strict=True))
