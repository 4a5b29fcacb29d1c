"""The detector of steady state of MLPerf Endpoints, on passes over a dataset in order of issue.

A series has one value per pass: the P50 or P90 of TPOT. Passes of the beginning are cut off until
they are near the level of the back half. A window is steady where neither series has a significant
trend (Mann-Kendall, with the variance of Hamed and Rao) of a change that matters, and neither
spreads too much. The first steady stretch that is long enough is the plateau.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm, rankdata, theilslopes

from frontier.core.window.window import WindowData
from frontier.extras.rehearse.endpoints_rules import (
    ALPHA,
    BOUND_ERROR,
    CHANGE,
    CROP,
    LATENCIES,
    RELATIVE_ERROR,
    SHIFT,
    SHORT,
    SPREAD,
    SUPER_PASSES,
)

Floats = NDArray[np.float64]
STATES = {0: "Plateau", 1: "Drifting Up", -1: "Drifting Down"}
STEADY, ANOMALY, NOT_FOUND = "STEADY STATE", "anomaly", "not found"


@dataclass(frozen=True, slots=True)
class SuperPasses:
    """The passes of a window over a dataset of `size`: the P50 and P90 of TPOT of each whole pass,
    when it began, and when the last one ended; and the P90 of E2E latency. Times are in seconds.
    """

    size: int
    tpot: tuple[Floats, Floats]
    begins: Floats
    e2e: float = 0.0

    @property
    def number(self) -> int:
        """How many whole passes there are."""
        return len(self.begins) - 1


@dataclass(frozen=True, slots=True)
class Steady:
    """The verdict on a window. `start` and `end` are the first and last pass of the plateau,
    inclusive, over `seconds` of issue time; None without one. `states` are those of the P50 and P90
    of TPOT.
    """

    status: str
    verdict: str
    passes: int
    size: int
    start: int | None = None
    end: int | None = None
    seconds: float = 0.0
    states: tuple[str, str] = (STATES[0], STATES[0])

    @property
    def steady_passes(self) -> int:
        """How many passes the plateau has."""
        return 0 if self.start is None or self.end is None else self.end - self.start + 1


def lower_percentile(values: Floats, p: float) -> float:
    """The percentile as their client takes it: the nearest rank below, of positive finite
    values.
    """
    usable = np.sort(values[np.isfinite(values) & (values > 0)])
    return float(usable[int(p * (len(usable) - 1))]) if len(usable) else math.nan


def bound_rank(p: float, n: int) -> int | None:
    """The rank from the top of the value that bounds a percentile of n requests; None where they
    are too few.

    >>> bound_rank(0.9, 63), bound_rank(0.9, 64), bound_rank(0.9, 1000)
    (None, 1, 78)
    """
    rank = int(binom.ppf(BOUND_ERROR, n, 1 - p)) - 1
    return rank if rank >= 1 else None


def passes_of(data: WindowData, size: int) -> SuperPasses:
    """The whole passes of the longest window of a setting."""
    window = int(np.argmax(np.bincount(data.window)))
    mine = np.flatnonzero(data.window == window)
    number = len(mine) // size
    parts = [mine[i * size : (i + 1) * size] for i in range(number)]
    tpot = tuple(np.array([lower_percentile(data.tpot[part], p) for part in parts]) for p in (0.5, 0.9))
    ends = [data.sent[mine[number * size]] if number * size < len(mine) else data.ends[window]]
    begins = np.array([*(data.sent[part[0]] for part in parts), *ends])
    return SuperPasses(size, (tpot[0], tpot[1]), begins, lower_percentile(data.e2e[mine], 0.9))


def trend(values: Floats) -> tuple[float, float]:
    """The two-sided p of a trend (Mann-Kendall, corrected by Hamed and Rao), and its change from
    end to end as a share of the median.
    """
    n = len(values)
    times = np.arange(n)
    s = sum(int(np.sign(values[i + 1 :] - values[i]).sum()) for i in range(n))
    rest = rankdata(values - theilslopes(values).slope * times)
    rest -= rest.mean()
    factor, power = 1.0, float(rest @ rest)
    if power > 0:
        for lag in range(1, n - 2):
            rho = float(rest[lag:] @ rest[:-lag]) / power
            if abs(rho) > norm.ppf(1 - ALPHA / 2) / math.sqrt(n):
                factor += 2 * (n - lag) * (n - lag - 1) * (n - lag - 2) * rho / (n * (n - 1) * (n - 2))
    _, tied = np.unique(values, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((tied * (tied - 1) * (2 * tied + 5)).sum())) / 18 * factor
    z = (s - np.sign(s)) / math.sqrt(variance) if variance > 0 else 0.0
    return float(2 * norm.sf(abs(z))), float(np.polyfit(times, values, 1)[0]) * (n - 1) / float(np.median(values))


def direction(values: Floats) -> int:
    """1 for a drift up, -1 down, 0 for none that is significant and matters."""
    p, change = trend(values)
    return int(np.sign(change)) if p < ALPHA and abs(change) >= CHANGE else 0


def admissible(series: Sequence[Floats]) -> bool:
    """Whether a window of these series is steady."""
    return all(direction(values) == 0 and values.std() / values.mean() <= SPREAD for values in series)


def plateaus(series: tuple[Floats, Floats], start: int) -> list[tuple[int, int]]:
    """The steady stretches from a pass on, each the longest from its beginning, as (first, one
    after the last).
    """
    n, found = len(series[0]), list[tuple[int, int]]()
    while start + SUPER_PASSES <= n:
        ends = range(n, start + SUPER_PASSES - 1, -1)
        end = next((end for end in ends if admissible([values[start:end] for values in series])), None)
        found += [] if end is None else [(start, end)]
        start = start + 1 if end is None else end
    return found


def _crop(p50: Floats) -> int:
    """How many passes are cut off at the beginning: one at least, half at most."""
    n = len(p50)
    level = float(np.median(p50[n // 2 :])) if n else 0.0
    first = 1
    while first < n // 2 and abs(p50[first] - level) > CROP * level:
        first += 1
    return first


def judged(passes: SuperPasses, least: float) -> Steady:
    """The verdict on the passes of a window that has to last `least` seconds."""
    n, size, begins = passes.number, passes.size, passes.begins
    if not all(np.isfinite(values).all() for values in passes.tpot):
        return Steady("partial_dataset", NOT_FOUND, n, size)
    if n < SUPER_PASSES + 1:
        return Steady("insufficient_passes" if n else "partial_dataset", NOT_FOUND, n, size)
    first = _crop(passes.tpot[0])
    found = plateaus(passes.tpot, first)
    long = [each for each in found if begins[each[1]] - begins[each[0]] >= _needed(passes, *each)]
    if not found:
        drifts = [direction(values[first:]) for values in passes.tpot]
        verdict = {1: "drifting_up", -1: "drifting_down"}.get(drifts[1] or drifts[0], NOT_FOUND)
        return Steady("insufficient_passes", verdict, n, size, states=(STATES[drifts[0]], STATES[drifts[1]]))
    start, end = (long or found)[0]
    seconds = float(begins[end] - begins[start])
    status = "windowable" if long and seconds >= least else "insufficient_duration"
    verdict = STEADY if long else NOT_FOUND
    if _shifted(passes.tpot[0], start, end, found):
        verdict = ANOMALY
    return Steady(status, verdict, n, size, start, end - 1, seconds)


def _needed(passes: SuperPasses, start: int, end: int) -> float:
    """Seconds that a plateau has to last."""
    spread = max(float(values[start:end].std() / values[start:end].mean()) for values in passes.tpot)
    wanted = math.ceil((norm.ppf(0.975) * spread / RELATIVE_ERROR) ** 2)
    by_spread = wanted * float(np.median(np.diff(passes.begins))) if wanted > SUPER_PASSES else 0.0
    return max(SHORT, LATENCIES * passes.e2e, by_spread)


def _shifted(p50: Floats, start: int, end: int, found: Sequence[tuple[int, int]]) -> bool:
    """Whether a later plateau has another level, with a significant point of change (Pettitt)."""
    level = float(p50[start:end].mean())
    later = [float(p50[a:b].mean()) for a, b in found if a >= end]
    if not any(abs(other - level) > SHIFT * level for other in later):
        return False
    rest = p50[start:]
    n, signs = len(rest), np.sign(rest[:, None] - rest[None, :])
    most = max(abs(float(signs[:t, t:].sum())) for t in range(1, n))
    return 2 * math.exp(-6 * most**2 / (n**3 + n**2)) < ALPHA
