"""Uncertainty of a frontier by bootstrap: membership probabilities and the attainment band.

A second, named layer over the exact non-dominated set, made by one block bootstrap. It draws each
setting's time blocks again with replacement, which keeps the dependence within a block, and
computes the frontier anew for each draw. It is seeded, so reproducible. The attainment band is the
empirical attainment function (Fonseca et al.); tested equal to moocore's.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from frontier.core.estimates import estimate
from frontier.core.estimates.sources import Given, ratio, source_of
from frontier.core.model.decisions import Limit
from frontier.core.model.loads import Load
from frontier.core.model.metrics import Metric, metric
from frontier.core.window.histogram import LogHistogram, bin_values
from frontier.core.window.window import BLOCKS, Floats, Ints, WindowData, narrowed

INDIFFERENCE = 0.02
"""A setting also counts as dominated by one with at most this share less throughput and at least
this share less latency."""
DRAWS = 500
"""Bootstrap draws of a frontier."""
LEVELS = (0.95, 0.05)
"""Shares of the draws that attain the low and the high line of a band."""


@dataclass(frozen=True, slots=True, eq=False)
class Replicates:
    """Bootstrap draws of two objectives for some settings: arrays of (draws, settings), columns as
    `loads`.

    `gain` is the objective drawn on the y axis, `price` the one on the x axis, both as measured
    (not turned round).
    """

    loads: tuple[Load, ...]
    objectives: tuple[str, str]
    gain: Floats
    price: Floats


def replicates(
    samples: Mapping[Load, WindowData],
    objectives: tuple[str, str],
    *,
    limits: tuple[Limit, ...] = (),
    price: float | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Replicates:
    """Draws of both objectives for every setting that has them; settings that lack one are left
    out.

    `limits` and `price` are needed for goodput and cost only. ValueError for unknown metrics.
    """
    kept, drawn = [], []
    for c in sorted(samples):
        # Each setting has its own stream of random numbers, so adding a setting changes no other's
        # draws.
        picks = _picks(samples[c], draws, np.random.default_rng([seed, c]))
        gain, cost = (_drawn(samples[c], metric(name), picks, limits, price) for name in objectives)
        if gain is not None and cost is not None:
            kept.append(c)
            drawn.append((gain, cost))
    gains, prices = np.array(drawn).reshape(len(kept), 2, draws).transpose(1, 2, 0)
    return Replicates(tuple(kept), objectives, gains, prices)


def _picks(sample: WindowData, draws: int, rng: np.random.Generator) -> Ints:
    """How often each of the sample's time blocks is taken in each draw.

    Windows are drawn first, then blocks within them, so differences from run to run are part of the
    uncertainty. One window fewer is drawn than there are: the spread is then that of their mean,
    also for few windows (Rao and Wu, "Resampling inference with complex survey data", 1988).
    """
    windows = len(sample.starts)
    taken = rng.multinomial(max(1, windows - 1), [1 / windows] * windows, size=draws)
    return np.hstack([rng.multinomial(BLOCKS * taken[:, w], [1 / BLOCKS] * BLOCKS) for w in range(windows)])


def _drawn(sample: WindowData, m: Metric, picks: Ints, limits: tuple[Limit, ...], price: float | None) -> Floats | None:
    """The metric for each row of `picks` (how often each block is taken); None when the sample
    lacks it.
    """
    if estimate.estimate(sample, m.name, limits=limits, price=price) is None:
        return None
    if m.quantity == "itl":
        return _itl(sample, m, picks)
    if m.quantity is not None:
        mine = narrowed(sample, m.group)
        values: Floats = getattr(mine, m.quantity)
        has = ~np.isnan(values)
        statistic = _statistic(values[has], mine.block_of_request[has], m.p, picks)
        return 1.0 / statistic if m.inverted else statistic
    return source_of(m).draw(sample, m, Given(limits, price), picks)


def _statistic(values: Floats, block: Ints, p: float | None, picks: Ints) -> Floats:
    """Mean or percentile (an observed value) of the requests of the drawn blocks, pooled."""
    if p is None:
        failed = np.isinf(values)
        blocks = picks.shape[1]
        totals, counts = np.bincount(block, np.where(failed, 0.0, values), blocks), np.bincount(block, minlength=blocks)
        means = ratio(totals.astype(np.float64), counts.astype(np.float64), picks)
        return np.where(picks @ np.bincount(block, failed, blocks) > 0, np.inf, means)
    order = np.argsort(values, kind="stable")
    return _percentile(values[order], block[order], np.ones(len(values), np.int64), picks, p)


def _itl(sample: WindowData, m: Metric, picks: Ints) -> Floats:
    """The mean or percentile of gaps for each row of picks, from each block's histogram of gaps."""
    table = LogHistogram.dense(sample.block_itl)
    totals = np.array([histogram.total for histogram in sample.block_itl])
    if m.p is None:
        return ratio(totals, table.sum(axis=1).astype(float), picks)
    bins, block = np.nonzero(table.T)
    return _percentile(bin_values(bins), block, table[block, bins], picks, m.p)


def _percentile(values: Floats, block: Ints, counts: Ints, picks: Ints, p: float) -> Floats:
    """The percentile p of ascending `values`, each of which its block has so often, for each row of
    picks; NaN where no value is drawn.

    Of the values in groups only the group is weighed that a row's percentile lies in.
    """
    size, n, blocks = math.isqrt(len(values)) + 1, len(values), picks.shape[1]
    groups = -(-n // size)
    sums = np.bincount(block * groups + np.arange(n) // size, counts, blocks * groups).reshape(blocks, groups)
    up_to = picks @ sums.cumsum(axis=1)  # whole numbers, exact as floats
    rank = np.maximum(1, np.ceil(p * up_to[:, -1] - 1e-9))[:, None]
    group = np.minimum((up_to < rank).sum(axis=1), groups - 1)[:, None]
    before = np.where(group > 0, np.take_along_axis(up_to, np.maximum(group - 1, 0), axis=1), 0)
    inside = np.minimum(group * size + np.arange(size), n - 1)
    weights = np.take_along_axis(picks, block[inside], axis=1) * counts[inside]
    passed = (before + weights.cumsum(axis=1) < rank).sum(axis=1)
    found: Floats = values[np.minimum(group[:, 0] * size + passed, n - 1)]
    return np.where(up_to[:, -1] > 0, found, np.nan)


def membership(drawn: Replicates) -> dict[Load, float]:
    """P(non-dominated) of each setting: the share of draws in which no other beats it.

    A setting is beaten by another with at least (1 - INDIFFERENCE) of its gain at (1 -
    INDIFFERENCE) of its price or less. So points that differ by noise alone do not all stay. A draw
    that is not finite is beaten. The noise counts twice here, once measured and once drawn: true
    members average about 0.8.
    """
    gain, price = (metric(name) for name in drawn.objectives)
    with np.errstate(divide="ignore"):  # both stay positive: what has the other direction is inverted
        high = drawn.gain if gain.higher_is_better else 1.0 / drawn.gain
        low = 1.0 / drawn.price if price.higher_is_better else drawn.price
    usable = np.isfinite(high) & np.isfinite(low)
    beaten = ~usable
    for j in range(len(drawn.loads)):
        beats = (high[:, [j]] >= (1 - INDIFFERENCE) * high) & (low[:, [j]] <= (1 - INDIFFERENCE) * low)
        beats[:, j] = False
        beaten |= beats & usable[:, [j]]
    share = 1.0 - beaten.mean(axis=0) if len(beaten) else np.zeros(0)
    return {c: float(p) for c, p in zip(drawn.loads, share, strict=True)}


def band(drawn: Replicates, x: ArrayLike | None = None) -> list[tuple[float, float, float]]:
    """The attainment band of a frontier: (x, low, high) at each place of the grid `x` of the second
    objective.

    By default the grid is everywhere the frontier steps. `low` and `high` are the gains attained by
    at least 95% and 5% of the draws; NaN where nothing is attained. It is a 90% band point by
    point: at one price it holds the true staircase nine times in ten, at all prices together less
    often.
    """
    gain, price = (metric(name) for name in drawn.objectives)
    sign_y, sign_x = gain.sign, -price.sign
    grid = np.unique(drawn.price[np.isfinite(drawn.price)]) if x is None else np.asarray(x, dtype=np.float64)
    reached = attained(sign_y * drawn.gain, sign_x * drawn.price, sign_x * grid)
    lines = [np.where(np.isfinite(line), sign_y * line, np.nan) for line in reached]
    return list(zip(grid.tolist(), *(line.tolist() for line in lines), strict=True))


def attained(maximise: Floats, minimise: Floats, grid: Floats, levels: Sequence[float] = LEVELS) -> list[Floats]:
    """For each level, the height that at least that share of the rows reaches at each place of
    `grid`; -inf where no row does.

    Each row of the (draws, settings) arrays is one frontier. The level q is the ceil(q B)-th
    highest of B staircases.
    """
    draws = len(maximise)
    heights = np.full((draws, len(grid)), -np.inf)
    for row, high, low in zip(heights, maximise, minimise, strict=True):
        usable = np.isfinite(high) & np.isfinite(low)
        order = np.argsort(low[usable])
        reached = np.searchsorted(low[usable][order], grid, side="right")
        row[:] = np.concatenate(([-np.inf], np.maximum.accumulate(high[usable][order])))[reached]
    if not draws:
        return [np.full(len(grid), -np.inf) for _ in levels]
    places = [draws - math.ceil(level * draws - 1e-9) for level in levels]
    return list(np.partition(heights, places, axis=0)[places])
