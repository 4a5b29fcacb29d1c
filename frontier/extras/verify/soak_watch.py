"""Detection of latency growth during a hold, window by window (a self-starting CUSUM).

One number of each window is followed: the logarithm of its percentile, or of a usual request. Its
distance above the mean of the windows before it is added up. The unit is their standard deviation,
with Student's t for how few they were. Each window subtracts half a deviation (SLACK), and the sum
never falls below 0.

A latency that creeps up widens the deviation of its windows as noise does, and would hide in it.
The differences of windows LAG apart, around their mean, show noise alone (von Neumann, Annals of
Mathematical Statistics, 1941). Where their scatter is surely smaller, it is the deviation.

Over its threshold the latency has grown, since the window in which the sum last left 0. The
threshold follows from the allowed number of false alarms, by Siegmund's approximation of the time
that a sum of independent normal numbers takes to reach it (Sequential Analysis, 1985). One window
counts at most CLIP deviations, so that a stall alone is no change. A deviation is taken as at least
FLOOR: nobody acts on a smaller change.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache

from frontier.core.stats.intervals import least
from frontier.core.stats.laws import chi_square_quantile

SLACK = 0.5
"""Deviations of each window that count against a change."""
CLIP = 2.5
"""Most deviations that one window counts."""
LAG = 3
"""Windows from one to the other of a difference: neighbours are alike where the speed wanders."""
SURELY = 0.05
"""Error at which the scatter of differences is smaller than the deviation that is taken from it."""
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
    """The windows of one latency since its last change: their number, mean and scatter, the sum and
    the sum of squares of their differences, and the sum that is watched. After a change it learns
    anew.
    """

    threshold: float
    n: int = 0
    mean: float = 0.0
    squares: float = 0.0
    total: float = 0.0
    since: float = 0.0
    later: int = 0
    excess: float = 0.0
    rise: float = 0.0
    rises: float = 0.0
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=LAG))

    @property
    def deviation(self) -> float:
        """The standard deviation of one window."""
        return max(FLOOR, math.sqrt(self._variance)) if self.n > 1 else FLOOR

    @property
    def _variance(self) -> float:
        """The variance of the windows, or the most that it is without a trend, by the differences,
        if that is less.
        """
        own, (weight, most) = self.squares / (self.n - 1), _differences(self.n)
        if not weight:
            return own
        return min(own, most * max(0.0, self.rises - self.rise**2 / (self.n - LAG)) / weight)

    def add(self, level: float, begun: float, ended: float) -> LatencyGrowth | None:
        """The growth that the next window shows. `level` is the logarithm of its percentile,
        infinite where failures reach it.
        """
        if self.n < FEWEST:
            if math.isfinite(level):
                self.learn(level)
            return None
        deviation = self.deviation
        apart = (level - self.mean) / deviation
        score = min(CLIP, _normal(apart * math.sqrt(self.n / (self.n + 1)), self.n - 1))
        self.learn(self.mean + deviation * max(-CLIP, min(CLIP, apart)))
        if self.total <= 0:
            self.since, self.later, self.excess = begun, 0, 0.0
        self.total = max(0.0, self.total + score - SLACK)
        self.later += 1
        self.excess += min(apart, 10 * CLIP) * deviation
        if self.total < self.threshold:
            return None
        grown = LatencyGrowth(self.since, ended, math.exp(self.excess / self.later))
        self.n, self.mean, self.squares, self.total = 0, 0.0, 0.0, 0.0
        self.rise, self.rises = 0.0, 0.0
        self.recent.clear()
        return grown

    def learn(self, level: float) -> None:
        """Add a window to those that later windows are compared with."""
        self.n += 1
        if len(self.recent) == LAG:
            rise = level - self.recent[0]
            self.rise, self.rises = self.rise + rise, self.rises + rise**2
        self.recent.append(level)
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
        variance = self.squares / max(1, self.n - 1)

        def is_named(percent: int) -> bool:
            after = LatencyWatch(self.threshold, FEWEST, 0.0, variance * (FEWEST - 1))
            after.rises, after.recent = variance * _differences(FEWEST)[0], deque([0.0] * LAG, LAG)
            level = math.log1p(percent / 100)
            return any(after.add(level, 0.0, 0.0) is not None for _ in range(judged))

        if judged < 1 or not is_named(MOST_GROWTH):
            return None
        return 1 + least(is_named, 1) / 100


@lru_cache(maxsize=4096)
def _differences(n: int) -> tuple[float, float]:
    """Of the differences of `n` independent windows LAG apart: the sum of squares around their mean
    that a variance of 1 gives, and the factor to the bound (SURELY) of a variance that is estimated
    by them. 0 where there are too few.
    """
    m = n - LAG
    if m < 2:
        return 0.0, math.inf
    freedom = (m if m < LAG else 2 * m**2 / (3 * m - LAG)) - 1
    return 2 * (m - min(LAG, m) / m), freedom / chi_square_quantile(SURELY, freedom)


def _normal(t: float, freedom: int) -> float:
    """The normal deviate that is as rare as this deviate of Student's (Wallace, 1959)."""
    if math.isinf(t):
        return t
    scale = (8 * freedom + 1) / (8 * freedom + 3)
    return math.copysign(scale * math.sqrt(freedom * math.log1p(t * t / freedom)), t)
