"""Wandering speed of a server: how far and how slowly, and what the measured time leaves unknown.

The speed is modelled as a first-order autoregression of the logarithm of a latency's level, as on a
machine shared with others. A wander that lasts about as long as the window shows few independent
periods, so bounds have little freedom. Windows apart in time show more of them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from frontier.core.stats import laws
from frontier.core.window.held import held_alone
from frontier.core.window.window import Bools, Floats, Ints, WindowData, mean_e2e

FEWEST = 6
"""Blocks needed to say anything about a wander."""
MOST_PER_WINDOW, MOST_BLOCKS = 40, 200
"""The most blocks, in a window and in all: more do not show a wander better."""
PERIODS = 0.25
"""A sample counts as one period, and at least this part of one more for each window: fewer would
leave no freedom at all, and these cost enough."""
SURE = 3.2
"""Standard errors by which successive blocks must be alike to show a wander; a few of a thousand
steady windows are so by chance."""
OUTLIER, FAR = 6.0, 0.02
"""A block whose level is further from the middle, in standard deviations (by the median deviation)
and as a logarithm, is a stall and not a wander."""
CAUTION = 1.3
"""Standard errors that are added to the observed correlation of neighbours: enough nine times in
ten."""
RARE = 0.10
"""The chance that the scatter of windows is taken to be less than it is."""
SURELY = 0.95
"""Confidence above which a wander widens bounds no further: the price of two or three periods is a
thousandfold there, and a search that judges at 98% and more would never end. The study has the
error of this (docs/validation/calibration.md)."""
BASIC = ("ttft", "tpot", "e2e")
"""The latencies that show whether a server wanders; each further one would add false alarms."""
_SETTLES = 8
"""Rounds in which the estimate of a correlation time settles."""
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Wander:
    """The standard deviation of a level's logarithm, and the number of its independent periods in
    the sample.

    `sure` is by how many standard errors successive blocks are alike beyond chance. `stalls`: some
    blocks are slower than a normal law of their levels allows.
    """

    deviation: float
    independent_periods: float
    sure: float
    stalls: bool = False

    @property
    def certain(self) -> bool:
        """Whether more than chance makes successive blocks alike."""
        return self.sure > SURE

    def beyond(self, p: float, confidence: float) -> float:
        """The most by which the percentile p of the level's logarithm is above its observed mean,
        at `confidence`.

        The one-sided tolerance factor of the normal law (Hahn and Meeker) for this number of
        periods.
        """
        confidence = min(confidence, SURELY)
        root = math.sqrt(self.independent_periods)
        shift = laws.normal_quantile(p) * root
        return laws.noncentral_t_quantile(confidence, 2 * self.independent_periods - 1, shift) / root * self.deviation

    def of_mean(self, confidence: float) -> float:
        """The most by which the mean of the level's logarithm is above the observed mean, at
        `confidence`.
        """
        confidence = min(confidence, SURELY)
        return (
            laws.t_quantile(confidence, 2 * self.independent_periods - 1)
            / math.sqrt(self.independent_periods)
            * self.deviation
        )


@dataclass(frozen=True, slots=True, eq=False)
class TimeBlocks:
    """The time blocks of a sample. `of_request` is the block in which each request was sent;
    `windows` and `middles` have the window of each block and its middle, counted in blocks.
    """

    of_request: Ints
    windows: Ints
    middles: Floats


@held_alone
def of_latencies(sample: WindowData, by_turns: bool = False) -> Mapping[str, Wander]:
    """The wander of each latency of which enough is known. In lockstep blocks are turns.

    The duration of the wander comes from the one of TTFT, TPOT and E2E that shows it most surely. A
    latency that is too noisy to show its wander is taken to have at least as much.
    """
    blocks = time_blocks(sample, by_turns)
    own: dict[str, Wander] = {}
    for name in (*BASIC, "visible", "second"):
        levels, counts, noise = _levels(sample, getattr(sample, name), np.ones(sample.n, np.bool_), blocks)
        filled = counts > 0
        if (moves := wander(levels[filled], blocks.middles[filled], blocks.windows[filled], noise)) is not None:
            own[name] = moves
    if not any(name in own for name in BASIC):
        return {}
    surest = max((own[name] for name in BASIC if name in own), key=lambda moves: moves.sure)
    return {
        name: replace(
            moves,
            independent_periods=surest.independent_periods,
            deviation=moves.deviation if moves.certain else max(moves.deviation, surest.deviation),
        )
        for name, moves in own.items()
    }


def detrended(sample: WindowData, x: Floats, has: Bools, by_turns: bool) -> tuple[Floats, float]:
    """The latencies x of the requests `has` as at an even speed, and the mean of their levels'
    logarithms.
    """
    blocks = time_blocks(sample, by_turns)
    levels, counts, _ = _levels(sample, x, has, blocks)
    middle = float(levels[counts > 0].mean()) if counts.any() else 0.0
    return x * np.exp(middle - np.where(counts > 0, levels, middle))[blocks.of_request[has]], middle


def time_blocks(sample: WindowData, by_turns: bool = False, shortest: float = 1.0) -> TimeBlocks:
    """Blocks of about equal length in all windows, none shorter than `shortest` requests. With
    `by_turns`, two blocks for each turn, the time in which all requests in flight are sent once.
    """
    if by_turns:
        return _turns(sample)
    lengths = np.maximum(sample.ends - sample.starts, _TINY)
    step = max(
        shortest * mean_e2e(sample), float(lengths.max()) / MOST_PER_WINDOW, float(lengths.sum()) / MOST_BLOCKS, _TINY
    )
    counts = np.maximum(1, (lengths / step).astype(np.int64))
    before = counts.cumsum() - counts
    into = (sample.sent - sample.starts[sample.window]) / lengths[sample.window] * counts[sample.window]
    of_request = before[sample.window] + np.clip(into.astype(np.int64), 0, counts[sample.window] - 1)
    windows = np.repeat(np.arange(len(counts)), counts)
    into_window = np.arange(len(windows)) - before[windows] + 0.5
    # Windows are taken to follow each other at once: clocks can be set, and an answer must not
    # depend on that.
    middles = (lengths.cumsum() - lengths)[windows] + into_window * (lengths / counts)[windows]
    return TimeBlocks(of_request, windows, middles / step)


def _turns(sample: WindowData) -> TimeBlocks:
    # Half a turn: convoys are sent one after another within a turn, each with a level of its own.
    sizes = np.bincount(sample.window, minlength=len(sample.starts))
    half = max(1, sample.streams // 2)
    size = half * -(-sample.n // (half * 2 * MOST_BLOCKS))
    counts = np.maximum(1, sizes // size)
    place = np.arange(sample.n) - (sizes.cumsum() - sizes)[sample.window]
    before = counts.cumsum() - counts
    of_request = before[sample.window] + np.minimum(place // size, counts[sample.window] - 1)
    windows = np.repeat(np.arange(len(counts)), counts)
    return TimeBlocks(of_request, windows, np.arange(len(windows), dtype=np.float64))


def _levels(sample: WindowData, x: Floats, has: Bools, blocks: TimeBlocks) -> tuple[Floats, Floats, float]:
    """The mean and count of each block, of the logarithms of the latencies x of the requests `has`.
    The third value is the variance of those means that the requests within blocks explain.
    """
    known = np.isfinite(x) & (x > 0)
    logs = _turn_by_turn(np.log(x[known]), sample.class_code[has][known] if len(sample.turn) else sample.turn)
    block, number = blocks.of_request[has][known], len(blocks.middles)
    counts = np.bincount(block, minlength=number).astype(np.float64)
    levels = np.bincount(block, logs, number) / np.maximum(counts, 1)
    within = float(((logs - levels[block]) ** 2).sum()) / max(1.0, len(logs) - float((counts > 0).sum()))
    return levels, counts, within * float((1 / counts[counts > 0]).mean()) if len(logs) else 0.0


def _turn_by_turn(logs: Floats, turns: Ints) -> Floats:
    """The logarithms as if every turn of a session, and every class of a mix, were as fast as the
    average. The turns and classes that a block happens to hold say nothing of the server's speed.
    `turns` is empty where there are no sessions.
    """
    if not len(turns):
        return logs
    counts = np.bincount(turns)
    means = np.bincount(turns, logs) / np.maximum(counts, 1)
    return logs - means[turns] + logs.mean() if len(logs) else logs


def wander(levels: Floats, times: Floats, windows: Ints, noise: float) -> Wander | None:
    """The wander of the logarithms of block levels, with times counted in blocks; None for fewer
    blocks than FEWEST.

    `noise` is the variance that the blocks' own requests explain. The correlation of neighbours
    gives the duration of the wander. That and the times of the blocks give the number of
    independent periods. Variance and correlation come out low where the blocks extend over few
    periods, so both are corrected for the number.
    """
    n = len(levels)
    neighbors = windows[1:] == windows[:-1]
    if n < FEWEST or not neighbors.any():
        return None
    away = levels - levels.mean()
    variance = float(away @ away) / n
    if variance <= 0:
        return Wander(0.0, float(n), 0.0)
    along = float((away[1:] * away[:-1])[neighbors].mean())
    sure = (along / variance + 1 / n) * math.sqrt(float(neighbors.sum()))
    own = max(variance - noise, variance / 1000)
    observed = min(max(along / own, 0.0), 1.0)
    observed = min(1.0, observed + CAUTION * math.sqrt((1 - observed**2) / float(neighbors.sum())))
    apart = np.abs(times[:, None] - times[None, :])
    correlation, periods, autocorrelation = observed, float(n), np.empty_like(apart)
    for _ in range(_SETTLES):
        # correlation**apart, five times as fast in this way; caution keeps the correlation above
        # zero.
        np.exp(np.multiply(apart, math.log(correlation), out=autocorrelation), out=autocorrelation)
        periods = n * n / float(autocorrelation.sum())
        correlation = observed + (1 - observed) / periods
    periods = max(1 + PERIODS * (1 + np.count_nonzero(~neighbors)), periods, min(n, _by_windows(levels, windows, own)))
    middle = float(np.median(levels))
    usual = 1.4826 * float(np.median(np.abs(levels - middle)))
    stalls = float(levels.max()) - middle > max(OUTLIER * usual, FAR)
    return Wander(math.sqrt(own / (1 - 1 / periods)), periods, sure, stalls)


def _by_windows(levels: Floats, windows: Ints, own: float) -> float:
    """How many independent periods the scatter of whole windows shows, with caution; 0 for fewer
    than three windows.

    The more periods a window holds, the less its mean scatters. Blocks may be alike for other
    reasons than a slow wander, as waves that come again and again. The scatter of windows then
    shows more periods than the correlation of neighbours. Where a wander outlasts the windows,
    their means differ as much as blocks do, and the scatter shows few periods.
    """
    counts = np.bincount(windows)
    means = np.bincount(windows, levels)[counts > 0] / counts[counts > 0]
    n = len(means)
    away = means - means.mean()
    if n < 3 or not away.any():
        return 0.0
    scatter = float(away @ away) / laws.chi_square_quantile(RARE, n - 1)
    autocorrelation = float(away[1:] @ away[:-1]) / float(away @ away) * n / (n - 1)
    autocorrelation = min(1.0, max(0.0, autocorrelation + 1 / n + CAUTION / 2 / math.sqrt(n)))
    return n * own / scatter * (1 - autocorrelation) / (1 + autocorrelation)
