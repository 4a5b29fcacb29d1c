"""Whether a window was steady: no convoy of requests, no drift, no transient left in it. Pure functions of arrays.

Every finding has to be larger than a limit *and* larger than the noise of the window explains, since a short healthy
window crosses any fixed limit now and then.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats as dist

from frontier.analyze.sample import Floats

BLOCKS = 20
BINS_PER_E2E = 8
"""Sends are counted in bins of an eighth of a mean E2E: a convoy fills one and leaves the others empty."""
SURE = 0.001
"""Error at which a drift is called one; there are several looks at each window, and many windows in a night."""
_BATCH = 5


@dataclass(frozen=True, slots=True)
class Dispersion:
    """Variance over mean of the sends per bin, and its standard error. About 1 by chance, 0.5 when staggered."""

    value: float
    error: float


def dispersion(sent: Floats, start: float, end: float, e2e: float) -> Dispersion | None:
    """How bunched the sends of a window are; None when it is shorter than three mean E2E."""
    if not 0 < e2e < math.inf:
        return None
    rounds = int((end - start) / e2e)
    if rounds < 3:
        return None
    per_run = BINS_PER_E2E * max(1, rounds // BLOCKS)
    runs = rounds * BINS_PER_E2E // per_run
    bins = np.floor((sent - start) * (BINS_PER_E2E / e2e)).astype(np.int64)
    counts = np.bincount(bins[(bins >= 0) & (bins < runs * per_run)], minlength=runs * per_run).astype(np.float64)
    mean = counts.mean()
    if mean == 0:
        return None
    per_block = ((counts - mean) ** 2).reshape(runs, per_run).mean(axis=1) / mean
    return Dispersion(float(per_block.mean()), float(per_block.std(ddof=1)) / math.sqrt(runs))


@dataclass(frozen=True, slots=True)
class Drift:
    """ln(second half / first half) of a quantity, and whether more than noise explains it."""

    change: float
    sure: bool


def rate_drift(totals: Floats, seconds: Floats) -> Drift:
    """Of a rate, from equal time blocks: the halves' means against their scatter (t-test, error SURE)."""
    rates = totals / seconds
    half = len(rates) // 2
    first, second = rates[:half], rates[-half:]
    if first.mean() <= 0 or second.mean() <= 0:
        return Drift(0.0 if first.mean() == second.mean() else math.inf, bool(first.mean() != second.mean()))
    return Drift(math.log(second.mean() / first.mean()), _differ(first, second))


def _differ(first: Floats, second: Floats) -> bool:
    """Welch's t-test at SURE; two constants differ when they are not equal."""
    error = math.sqrt(first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second))
    gap = abs(float(second.mean() - first.mean()))
    freedom = len(first) + len(second) - 2
    return gap > error * float(dist.t.isf(SURE / 2, freedom)) if error > 0 else gap > 0


def median_drift(x: Floats) -> Drift | None:
    """Of a latency in the order of sending: medians of BLOCKS equal blocks, first ten against last ten (Mann-Whitney).

    None for fewer than two requests per block.
    """
    if len(x) < 2 * BLOCKS:
        return None
    medians = np.array([np.median(block) for block in np.array_split(x, BLOCKS)])
    first, second = medians[: BLOCKS // 2], medians[BLOCKS // 2 :]
    before, after = float(np.median(first)), float(np.median(second))
    if before <= 0 or after <= 0:
        return None
    p = float(dist.mannwhitneyu(first, second).pvalue)
    return Drift(math.log(after / before), p < SURE)


def mser5(x: Floats) -> int:
    """How many of the first values MSER-5 would cut off as a transient (White, Cobb and Spratt 2000); at most half.

    The cut that leaves the smallest standard error of the mean of what remains, over means of five.
    """
    k = len(x) // _BATCH
    if k < 4:
        return 0
    means = x[: k * _BATCH].reshape(k, _BATCH).mean(axis=1)
    left = np.arange(k, 0, -1)
    sums, squares = means[::-1].cumsum()[::-1], (means**2)[::-1].cumsum()[::-1]
    loss = (squares - sums**2 / left) / left.astype(np.float64) ** 2
    return int(np.argmin(loss[: k // 2 + 1])) * _BATCH


def transient(x: Floats) -> float:
    """Share of a window that still belongs to a transient: MSER-5's cut, when what it cuts really differs; else 0.

    On steady data MSER-5 cuts at random, so blocks before and after the cut must differ too (t-test, error SURE).
    """
    cut = mser5(x)
    if cut == 0:
        return 0.0
    share = cut / len(x)
    head = max(2, round(BLOCKS * share))
    before = np.array([block.mean() for block in np.array_split(x[:cut], head)])
    after = np.array([block.mean() for block in np.array_split(x[cut:], max(2, BLOCKS - head))])
    return share if _differ(before, after) else 0.0
