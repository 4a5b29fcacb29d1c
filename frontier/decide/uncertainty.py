"""How sure a frontier is: the second, named layer over the exact non-dominated set.

Everything here comes from one block bootstrap: each setting's time blocks are drawn again with replacement, which keeps
the dependence within a block, and all that a frontier says is computed anew for each draw. Seeded, so reproducible.
The attainment band is the empirical attainment function (Fonseca et al.); tested equal to moocore's.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from frontier.decide import pareto
from frontier.metrics import Metric, metric
from frontier.model import Estimate, Frontier, Limit
from frontier.stats import estimate
from frontier.stats.histogram import bin_values
from frontier.stats.window_data import BLOCKS, Floats, Ints, Sample

INDIFFERENCE = 0.02
"""A setting also counts as dominated by one within this of its throughput at this much less latency."""
DRAWS = 500
LEVELS = (0.95, 0.50, 0.05)
"""Shares of the draws that attain the low, the middle and the high line of a band."""
SOLID, FAINT = 0.9, 0.5
"""Draw a point solid from the first on, faint below the second. Only below 0.1 may one say "not on the frontier"."""
_CELLS = 4_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Replicates:
    """Bootstrap draws of two objectives for some settings: arrays of (draws, settings), columns as `concurrencies`.

    `gain` is the objective drawn on the y axis, `price` the one on the x axis, both as measured (not turned round).
    """

    concurrencies: tuple[int, ...]
    objectives: tuple[str, str]
    gain: Floats
    price: Floats

    def turned(self) -> tuple[Floats, Floats]:
        """The draws as (to be maximised, to be minimised), both positive: what has the other direction is inverted."""
        one, other = metric(self.objectives[0]), metric(self.objectives[1])
        with np.errstate(divide="ignore"):
            high = self.gain if one.better == "higher" else 1.0 / self.gain
            low = self.price if other.better == "lower" else 1.0 / self.price
        return high, low


def replicates(
    samples: Mapping[int, Sample],
    objectives: tuple[str, str],
    *,
    limits: tuple[Limit, ...] = (),
    price: float | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Replicates:
    """Draws of both objectives for every setting that has them; settings that lack one are left out.

    `limits` and `price` are needed for goodput and cost only. ValueError for unknown metrics.
    """
    kept, gains, prices = [], [], []
    for c in sorted(samples):
        # Each setting has its own stream of random numbers, so adding a setting changes no other's draws.
        picks = _picks(samples[c], draws, np.random.default_rng([seed, c]))
        drawn = [_drawn(samples[c], metric(name), picks, limits, price) for name in objectives]
        if drawn[0] is not None and drawn[1] is not None:
            kept.append(c)
            gains.append(drawn[0])
            prices.append(drawn[1])
    empty = np.zeros((draws, 0))
    return Replicates(
        tuple(kept),
        objectives,
        np.column_stack(gains) if gains else empty,
        np.column_stack(prices) if prices else empty,
    )


def _picks(sample: Sample, draws: int, rng: np.random.Generator) -> Ints:
    """How often each of the sample's time blocks is taken in each draw.

    Windows are drawn first, one fewer than there are, and blocks within them: what is peculiar to a run is part of the
    doubt, and one fewer makes the spread of so few that of their mean (Rao and Wu, "Resampling inference with complex
    survey data", 1988).
    """
    windows = len(sample.starts)
    taken = rng.multinomial(max(1, windows - 1), [1 / windows] * windows, size=draws)
    return np.hstack([rng.multinomial(BLOCKS * taken[:, w], [1 / BLOCKS] * BLOCKS) for w in range(windows)])


def _drawn(sample: Sample, m: Metric, picks: Ints, limits: tuple[Limit, ...], price: float | None) -> Floats | None:
    """The metric for each row of `picks` (how often each block is taken); None when the sample cannot tell."""
    if estimate.estimate(sample, m.name, limits=limits, price=price) is None:
        return None
    if m.quantity == "itl":
        return _itl(sample, m, picks)
    if m.quantity is not None:
        values: Floats = {"ttft": sample.ttft, "tpot": sample.tpot, "e2e": sample.e2e}[m.quantity]
        has = ~np.isnan(values)
        found = _statistic(values[has], _block_of(sample)[has], m.p, picks)
        return 1.0 / found if m.inverted else found
    seconds = sample.block_seconds
    if m.name in ("error_rate", "attainment"):
        hits = ~sample.ok if m.name == "error_rate" else estimate.attains(sample, limits)
        return _ratio(_tally(sample, hits), _tally(sample, np.ones(sample.n)), picks)
    if m.name == "goodput":
        return _ratio(_tally(sample, estimate.attains(sample, limits)), seconds, picks)
    output, entered = sample.block_output_tokens, sample.block_input_tokens
    totals = {
        "output_throughput": output,
        "input_throughput": entered,
        "total_throughput": output + entered,
        "request_throughput": sample.block_finished,
        "cost": output,
        "energy": output,
        "tokens_per_joule": output,
    }[m.name]
    rate = _ratio(totals, seconds, picks)
    watts = sample.power.watts if sample.power else math.nan
    with np.errstate(divide="ignore"):
        if m.name == "cost":
            return (price or 0.0) / 3600.0 * 1e6 / rate
        return watts / rate if m.name == "energy" else rate / watts if m.name == "tokens_per_joule" else rate


def _block_of(sample: Sample) -> Ints:
    """In which of the windows' time blocks each request was sent."""
    length = (sample.ends - sample.starts)[sample.window]
    into = (sample.sent - sample.starts[sample.window]) / np.where(length > 0, length, 1.0)
    block: Ints = sample.window * BLOCKS + np.clip((into * BLOCKS).astype(np.int64), 0, BLOCKS - 1)
    return block


def _tally(sample: Sample, weights: ArrayLike) -> Floats:
    blocks = len(sample.block_seconds)
    found: Floats = np.bincount(_block_of(sample), np.asarray(weights, dtype=np.float64), blocks).astype(np.float64)
    return found


def _ratio(totals: Floats, weights: Floats, picks: Ints) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = (picks @ totals) / (picks @ weights)
    return found


def _statistic(values: Floats, block: Ints, p: float | None, picks: Ints) -> Floats:
    """Mean or percentile (an observed value) of the requests of the drawn blocks, pooled."""
    if p is None:
        failed = np.isinf(values)
        blocks = picks.shape[1]
        totals, counts = np.bincount(block, np.where(failed, 0.0, values), blocks), np.bincount(block, minlength=blocks)
        means = _ratio(totals.astype(np.float64), counts.astype(np.float64), picks)
        return np.where(picks @ np.bincount(block, failed, blocks) > 0, np.inf, means)
    order = np.argsort(values, kind="stable")
    ordered, of = values[order], block[order]
    total = picks @ np.bincount(block, minlength=picks.shape[1])
    return _weighted(ordered, lambda rows, columns: picks[rows][:, of[columns]], total, p)


def _itl(sample: Sample, m: Metric, picks: Ints) -> Floats:
    """The same from each block's histogram of gaps."""
    blocks = [histogram.to_dict() for histogram in sample.block_itl]
    table = np.zeros((len(blocks), 1 + max(max(found["bins"], default=0) for found in blocks)), dtype=np.int64)
    for row, found in zip(table, blocks, strict=True):
        row[np.asarray(found["bins"], dtype=np.int64)] = found["counts"]
    totals = np.array([histogram.total for histogram in sample.block_itl])
    if m.p is None:
        return _ratio(totals, table.sum(axis=1).astype(float), picks)
    values = bin_values(np.arange(table.shape[1]))
    return _weighted(values, lambda rows, columns: picks[rows] @ table[:, columns], picks @ table.sum(axis=1), m.p)


def _weighted(values: Floats, weights_of: Callable[[slice, slice], Ints], total: Ints, p: float) -> Floats:
    """The percentile p of ascending `values` under each draw's weights, `total` being their sum; NaN where that is 0.

    Counted from above, which for a tail touches few of the values; a few draws at a time, to bound the memory.
    """
    n, draws = len(values), len(total)
    beyond = total - np.maximum(1, np.ceil(p * total - 1e-9))
    found = np.full(draws, np.nan)
    columns = min(n, max(1, math.ceil(4 * (1 - p) * n)))
    start = 0
    while start < draws:
        rows = slice(start, min(draws, start + max(1, _CELLS // max(1, columns))))
        above = np.cumsum(weights_of(rows, slice(n - columns, n))[:, ::-1], axis=1)
        passed = (above <= beyond[rows, None]).sum(axis=1)
        if columns < n and (passed == columns).any():
            columns = min(n, 4 * columns)
            continue
        found[rows] = np.where(total[rows] > 0, values[n - 1 - passed], np.nan)
        start = rows.stop
    return found


def membership(drawn: Replicates, *, zone: float = INDIFFERENCE) -> dict[int, float]:
    """P(non-dominated) of each setting: the share of draws in which no other beats it.

    With a `zone` a setting is beaten by one that has at least (1 - zone) of its gain at (1 - zone) of its price or
    less, so points that differ by noise alone do not all stay; zone 0 is the exact dominance. In both a draw that is
    not finite is beaten. The noise counts twice here, once measured and once drawn: true members average about 0.8.
    """
    high, low = drawn.turned()
    usable = np.isfinite(high) & np.isfinite(low)
    beaten = ~usable
    for j in range(len(drawn.concurrencies)):
        if zone > 0:
            beats = (high[:, [j]] >= (1 - zone) * high) & (low[:, [j]] <= (1 - zone) * low)
        else:
            weakly = (high[:, [j]] >= high) & (low[:, [j]] <= low)
            beats = weakly & ((high[:, [j]] > high) | (low[:, [j]] < low))
        beats[:, j] = False
        beaten |= beats & usable[:, [j]]
    share = 1.0 - beaten.mean(axis=0) if len(beaten) else np.zeros(0)
    return {c: float(p) for c, p in zip(drawn.concurrencies, share, strict=True)}


def with_probability(frontier: Frontier, drawn: Replicates) -> Frontier:
    """The frontier with the P(non-dominated) of its settings, members and dominated alike.

    `drawn` should hold the frontier's own settings only: an excluded one must not beat others.
    """
    found = membership(drawn)
    known = (*frontier.members, *frontier.dominated)
    return dataclasses.replace(frontier, probability={c: found[c] for c in known if c in found})


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """The gain attained at each price `x` by at least 95 %, 50 % and 5 % of the draws; NaN where nothing is."""

    objectives: tuple[str, str]
    x: Floats
    low: Floats
    middle: Floats
    high: Floats


def band(drawn: Replicates, x: ArrayLike | None = None) -> Band:
    """The attainment band of a frontier on the grid `x` of the second objective (default: everywhere it steps).

    A 90 % band point by point: at one price it holds the true staircase nine times in ten, everywhere at once less.
    """
    one, other = metric(drawn.objectives[0]), metric(drawn.objectives[1])
    sign_y = 1.0 if one.better == "higher" else -1.0
    sign_x = 1.0 if other.better == "lower" else -1.0
    grid = np.unique(drawn.price[np.isfinite(drawn.price)]) if x is None else np.asarray(x, dtype=np.float64)
    reached = attained(sign_y * drawn.gain, sign_x * drawn.price, sign_x * grid)
    lines = [np.where(np.isfinite(line), sign_y * line, np.nan) for line in reached]
    return Band(drawn.objectives, grid, *lines)


def attained(maximise: Floats, minimise: Floats, grid: Floats, levels: Sequence[float] = LEVELS) -> list[Floats]:
    """For each level the height reached at each place of `grid` by at least that share of the rows; -inf where none.

    Each row of the (draws, settings) arrays is one frontier. The level q is the ceil(q B)-th highest of B staircases.
    """
    draws = len(maximise)
    heights = np.full((draws, len(grid)), -np.inf)
    for row in range(draws):
        usable = np.isfinite(maximise[row]) & np.isfinite(minimise[row])
        order = np.argsort(minimise[row][usable])
        at = np.searchsorted(minimise[row][usable][order], grid, side="right")
        best = np.concatenate(([-np.inf], np.maximum.accumulate(maximise[row][usable][order])))
        heights[row] = best[at]
    if not draws:
        return [np.full(len(grid), -np.inf) for _ in levels]
    ranked = -np.sort(-heights, axis=0)
    return [ranked[math.ceil(level * draws - 1e-9) - 1] for level in levels]


def hypervolume(drawn: Replicates, best: tuple[ArrayLike, ArrayLike], reference: tuple[float, float]) -> Estimate:
    """The area under the staircase up to `reference` = (least gain, worst price), with its bootstrap interval.

    `best` are the measured (gain, price) of the settings, whose area is the value. `n` counts the draws.
    ValueError as for `pareto.hypervolume`.
    """
    draws = hypervolumes(drawn, reference)
    gain, price = np.asarray(best[0], dtype=np.float64), np.asarray(best[1], dtype=np.float64)
    sign_y, sign_x = _signs(drawn.objectives)
    keep = np.isfinite(gain) & np.isfinite(price)
    value = pareto.hypervolume(
        sign_y * gain[keep], sign_x * price[keep], (sign_y * reference[0], sign_x * reference[1])
    )
    return from_draws(value, draws)


def hypervolumes(drawn: Replicates, reference: tuple[float, float]) -> Floats:
    """The area of each draw."""
    sign_y, sign_x = _signs(drawn.objectives)
    corner = (sign_y * reference[0], sign_x * reference[1])
    areas = []
    for gain, price in zip(sign_y * drawn.gain, sign_x * drawn.price, strict=True):
        keep = np.isfinite(gain) & np.isfinite(price)
        areas.append(pareto.hypervolume(gain[keep], price[keep], corner))
    return np.array(areas)


def from_draws(value: float, draws: Floats) -> Estimate:
    """An estimate from bootstrap draws, by their percentiles; unbounded when some draw has no value."""
    if not len(draws) or not np.isfinite(draws).all():
        return Estimate.without_interval(value, len(draws))
    low, lower, upper, high = (float(q) for q in np.quantile(draws, (0.025, 0.05, 0.95, 0.975)))
    return Estimate(value, low, high, len(draws), lower, upper)


def _signs(objectives: tuple[str, str]) -> tuple[float, float]:
    """What makes the first to be maximised and the second to be minimised."""
    one, other = metric(objectives[0]), metric(objectives[1])
    return (1.0 if one.better == "higher" else -1.0), (1.0 if other.better == "lower" else -1.0)
