"""Curves over concurrency: the value that a scan predicts for each limit. For planning, never for
claims.

Medians need few requests where a p99 needs many. So a curve is of medians, and the distance from
the median to the tail is pooled over settings.
"""

import math
from collections.abc import Mapping
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
from frontier.core.window.window import Episodes, Floats, WindowData, narrowed

AnyLoad = TypeVar("AnyLoad", bound=int)
"""Requests in flight, or arrivals per second."""
EXACT = 0.05
"""The distance (in ln) from the limit that is asked for where the limit is on a mean, a rate or a
share."""


RUN_TO_RUN = 0.03
"""Expected difference of a value from run to run (in ln), beside the noise within a run."""


FAR = 3.0
"""The largest violation (in ln): a larger one counts as this, and so does an infinite one."""


DEEP = -12.0
"""The level (in ln) of what takes no time at all."""


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
    values. For a limit that is not on a percentile, the level is of its value, and there is no
    tail. `medians` are the medians that the level is made of. All are of the time between the
    episodes `slow`.
    """

    part: Part
    level: Mapping[Load, float]
    requests: Mapping[Load, int]
    sigma: Mapping[Load, float]
    pooled: Mapping[Load, int]
    medians: Mapping[Load, float] = field(default_factory=dict)
    slow: Episodes | None = None

    @property
    def limit(self) -> Limit:
        """The limit."""
        return self.part.limit

    @classmethod
    def of(cls, part: Part, samples: Mapping[Load, WindowData], points: Mapping[Load, Point]) -> "Curve":
        limit, m = part.limit, part.limit.of
        if m.p is None or m.quantity in (None, "itl") or m.inverted:
            level = {c: max(DEEP, min(FAR, limit.excess(p.metrics[limit.metric].value))) for c, p in points.items()}
            level = level if m.name in RISING else rising(level, {c: p.n for c, p in points.items()})
            return cls(part, level, {c: points[c].n for c in level}, {}, {})
        logs = _logs(part, samples)
        middles = {c: float(np.median(x)) for c, x in logs.items()}
        medians = {c: max(DEEP, min(FAR, x)) for c, x in middles.items()}
        level = rising(medians, {c: p.n for c, p in points.items()})
        tails = {c: _tail(logs, middles, c) for c in level}
        sigma, pooled = ({c: tail[i] for c, tail in tails.items()} for i in (0, 1))
        counts = {c: int(k) for c, k in pooled.items()}
        slow = [sample.episodes for sample in samples.values()][:1]
        return cls(part, level, {c: len(logs[c]) for c in level}, sigma, counts, medians, *slow)

    def _z(self, tail: float) -> float:
        """The normal quantile for `tail`, as a share of the requests that may exceed the limit."""
        p = self.limit.of.p
        return normal_quantile(1 - tail * (1 - p)) if self.sigma and p is not None else 0.0

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
        levels = {k: max(least, min(FAR, x + z * self.sigma.get(k, 0.0))) for k, x in self.level.items()}
        return interpolated(levels, c)

    def standard_error(self, c: Load) -> float:
        """Standard error of the expected value: of its median, its tail, and the difference from
        run to run.
        """
        if not self.sigma:
            return EXACT
        near = min(self.level, key=lambda k: abs(math.log(k / c)))
        of_tail = self._z(1.0) ** 2 / (2 * self.pooled[near])
        return math.hypot(self.sigma[near] * math.sqrt(1.57 / self.requests[near] + of_tail), RUN_TO_RUN)


def _logs(part: Part, samples: Mapping[Load, WindowData]) -> dict[Load, Floats]:
    """The logarithms over the limit between the episodes, of the settings that have any."""
    even = {
        c: narrowed(_between_episodes(sample) if sample.episodes else sample, part.group)
        for c, sample in samples.items()
    }
    logs = {c: logs_over(latencies(sample, part.limit), part.limit.promise) for c, sample in even.items()}
    return {c: x for c, x in logs.items() if len(x)}


@held
def _between_episodes(sample: WindowData) -> WindowData:
    """The sample, which has episodes, as if no request had come in one."""
    ttft, tpot, e2e = (episodes.at_share(sample, name, getattr(sample, name), 0.0) for name in BASIC)
    return replace(sample, ttft=ttft, tpot=tpot, e2e=e2e)


def logs_over(values: Floats, promise: float) -> Floats:
    with np.errstate(divide="ignore"):
        logs: Floats = np.log(values / promise)
    return logs


def _tail(logs: Mapping[Load, Floats], medians: Mapping[Load, float], c: Load) -> tuple[float, int]:
    """The standard deviation of the normal law with the tail of the settings nearest to c (in ln,
    from the median), and the number of values behind it.

    Three settings are taken together, as one has few requests. Several quantiles are tried, and the
    largest deviation counts.
    """
    near = sorted(logs, key=lambda k: (abs(math.log(k / c)), k))[:3]
    parts = [logs[k] - medians[k] for k in near if math.isfinite(medians[k])]
    pooled = np.sort(np.concatenate(parts)) if parts else np.zeros(1)
    telling = [p for p in (0.8, 0.9, 0.95, 0.99) if len(pooled) * (1 - p) >= 3]
    widths = [float(pooled[math.ceil(p * len(pooled)) - 1]) / normal_quantile(p) for p in telling]
    return min(FAR, max([0.01, *widths])), len(pooled)


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
