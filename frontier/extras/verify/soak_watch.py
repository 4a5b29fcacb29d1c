"""Detection of latency growth during a hold, window by window (a self-starting CUSUM).

One number of each window is followed: the logarithm of its percentile, or of a usual request. Its
distance above the mean of the windows before it is added up. The unit is their standard deviation,
with Student's t for how few they were. Each window subtracts half a deviation (SLACK), and the sum
never falls below 0.

Over its threshold the latency has grown, since the window in which the sum last left 0. The
threshold follows from the allowed number of false alarms, by Siegmund's approximation of the time
that a sum of independent normal numbers takes to reach it (Sequential Analysis, 1985). One window
counts at most CLIP deviations, so that a stall alone is no change. A deviation is taken as at least
FLOOR: nobody acts on a smaller change.
"""

import math
from dataclasses import dataclass

from frontier.core.stats.intervals import least

SLACK = 0.5
"""Deviations of each window that count against a change."""
CLIP = 2.5
"""Most deviations that one window counts."""
FLOOR = 0.03
"""The smallest deviation of a window's percentile (in ln) that is assumed."""
FEWEST = 5
"""Windows to learn from before any is judged."""
MOST_GROWTH = 10_000
"""Percent: where not even this could have been named, no growth could."""
MOST_JUDGED = 2_000
"""Windows within which a growth is to be named: more name hardly less, and take long."""
MONTH = 30 * 86_400.0
"""Seconds in which an unchanged server is reported as changed at most once."""
SPARE = 5.0
"""The factor by which the threshold is set for rarer alarms, since the logarithms of percentiles
are skewed (`benchmarks/hold_drift.py`)."""


def threshold(windows: float) -> float:
    """The threshold that the sum of an unchanged server reaches at most once in this many windows.

    >>> threshold(43_200)
    10.5
    """
    wanted = 2 * SLACK**2 * SPARE * windows

    def enough(tenths: int) -> bool:
        reach = 2 * SLACK * (tenths / 10 + 1.166)
        return math.exp(reach) - reach - 1 >= wanted

    return least(enough, 1) / 10


@dataclass(frozen=True, slots=True)
class LatencyGrowth:
    """A latency grew by the factor `times` since the time `since`; this was known at `seen`."""

    since: float
    seen: float
    times: float


@dataclass(slots=True)
class LatencyWatch:
    """The windows of one latency since its last change: their number, mean and scatter, and the
    sum. After a change it learns anew.
    """

    threshold: float
    n: int = 0
    mean: float = 0.0
    squares: float = 0.0
    total: float = 0.0
    since: float = 0.0
    later: int = 0
    excess: float = 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation of one window."""
        return max(FLOOR, math.sqrt(self.squares / (self.n - 1))) if self.n > 1 else FLOOR

    def add(self, level: float, begun: float, ended: float) -> LatencyGrowth | None:
        """The growth that the next window shows. `level` is the logarithm of its percentile,
        infinite where failures reach it.
        """
        if self.n < FEWEST:
            if math.isfinite(level):
                self._learn(level)
            return None
        deviation = self.deviation
        apart = (level - self.mean) / deviation
        score = min(CLIP, _normal(apart * math.sqrt(self.n / (self.n + 1)), self.n - 1))
        self._learn(self.mean + deviation * max(-CLIP, min(CLIP, apart)))
        if self.total <= 0:
            self.since, self.later, self.excess = begun, 0, 0.0
        self.total = max(0.0, self.total + score - SLACK)
        self.later += 1
        self.excess += min(apart, 10 * CLIP) * deviation
        if self.total < self.threshold:
            return None
        grown = LatencyGrowth(self.since, ended, math.exp(self.excess / self.later))
        self.n, self.mean, self.squares, self.total = 0, 0.0, 0.0, 0.0
        return grown

    def _learn(self, level: float) -> None:
        self.n += 1
        step = level - self.mean
        self.mean += step / self.n
        self.squares += step * (level - self.mean)

    def windows_to_see(self, times: float) -> float:
        """The number of windows until a latency that has grown by the factor `times` is noticed;
        infinite while too few windows are known to judge by.
        """
        if self.n < FEWEST:
            return math.inf
        return self.threshold / max(0.05, min(CLIP, math.log(times) / self.deviation) - SLACK)

    @property
    def least_named(self) -> float | None:
        """The least growth (a factor) that so many windows could have named, had the latency grown
        as soon as there was something to judge it by; None where there were too few for any.
        """
        judged = min(self.n - FEWEST, MOST_JUDGED)

        def is_named(percent: int) -> bool:
            after = LatencyWatch(self.threshold, FEWEST, 0.0, self.squares * (FEWEST - 1) / (self.n - 1))
            level = math.log1p(percent / 100)
            return any(after.add(level, 0.0, 0.0) is not None for _ in range(judged))

        if judged < 1 or not is_named(MOST_GROWTH):
            return None
        return 1 + least(is_named, 1) / 100


def _normal(t: float, freedom: int) -> float:
    """The normal deviate that is as rare as this deviate of Student's (Wallace, 1959)."""
    if math.isinf(t):
        return t
    scale = (8 * freedom + 1) / (8 * freedom + 3)
    return math.copysign(scale * math.sqrt(freedom * math.log1p(t * t / freedom)), t)
