"""Whether a window was steady: no convoy of requests, no drift, no transient left in it. Pure
functions of arrays.

Every finding has to be larger than a limit *and* larger than the noise of the window explains,
since a short healthy window crosses any fixed limit now and then.
"""

import math
from dataclasses import dataclass

import numpy as np

from frontier.core.stats import laws
from frontier.core.window.window import Floats

BLOCKS = 20
"""Time blocks of a window."""
BINS_PER_E2E = 8
"""Sends are counted in bins of an eighth of a mean E2E: a convoy fills one and leaves the others
empty."""
SURE = 0.001
"""Error at which a drift is called one; there are several looks at each window, and many windows in
a night."""
_BATCH = 5
"""Requests averaged to one value before the end of a transient is looked for."""


@dataclass(frozen=True, slots=True)
class Dispersion:
    """Variance over mean of the sends per bin, and its standard error. About 1 by chance, 0.5 when
    staggered.
    """

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


def blocks(length: float, e2e: float) -> int:
    """How many equal blocks a window is cut into to look for drift: at most BLOCKS, even, none
    shorter than an E2E.

    Shorter blocks share requests with the next one, which looks like a drift.
    """
    return min(BLOCKS, int(length / e2e) // 2 * 2) if 0 < e2e < math.inf else 0


@dataclass(frozen=True, slots=True)
class Drift:
    """ln(second half / first half) of a quantity, and whether more than noise explains it."""

    change: float
    sure: bool


def rate_drift(totals: Floats, seconds: Floats, count: int) -> Drift | None:
    """The drift of a rate: BLOCKS equal time blocks, regrouped into `count`; the halves against
    their scatter (t-test, SURE).

    None for fewer than six blocks.
    """
    if count < 6:
        return None
    groups = np.arange(len(totals)) * count // len(totals)
    rates = np.bincount(groups, totals) / np.bincount(groups, seconds)
    first, second = rates[: count // 2], rates[count // 2 :]
    if first.mean() <= 0 or second.mean() <= 0:
        return Drift(0.0 if first.mean() == second.mean() else math.inf, bool(first.mean() != second.mean()))
    return Drift(math.log(second.mean() / first.mean()), _differ(first, second))


def _differ(first: Floats, second: Floats) -> bool:
    """Welch's t-test at SURE, with the smaller number of degrees of freedom; two constants differ
    when they are not equal.
    """
    error = math.sqrt(first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second))
    gap = abs(float(second.mean() - first.mean()))
    freedom = min(len(first), len(second)) - 1
    return gap > error * laws.t_quantile(1 - SURE / 2, freedom) if error > 0 else gap > 0


def median_drift(x: Floats, count: int) -> Drift | None:
    """The drift of a latency in the order of sending: medians of `count` equal blocks, first half
    against second (Mann-Whitney).

    None for fewer than fourteen blocks, too few to be sure at SURE, or fewer than two requests in
    each.
    """
    if count < 14 or len(x) < 2 * count:
        return None
    medians = _block_medians(x, count)
    first, second = medians[: count // 2], medians[count // 2 :]
    before, after = float(np.median(first)), float(np.median(second))
    if before <= 0 or after <= 0:
        return None
    p = laws.mann_whitney(first, second)
    return Drift(math.log(after / before), p < SURE)


def _block_medians(x: Floats, count: int) -> Floats:
    """The median of each of np.array_split's blocks: the first are longer by one."""
    size, longer = divmod(len(x), count)
    at = longer * (size + 1)
    parts = [x[:at].reshape(longer, size + 1), x[at:].reshape(count - longer, size)]
    return np.concatenate([np.median(part, axis=1) for part in parts if len(part)])


def mser5(x: Floats) -> int:
    """How many of the first values MSER-5 would cut off as a transient (White, Cobb and Spratt
    2000); at most half.

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


def transient(x: Floats, count: int, change: float) -> float:
    """Share of a window that still belongs to a transient: the cut of MSER-5, if the part before it
    really differs; else 0.

    On steady data MSER-5 cuts at random. So the means before and after the cut must also differ by
    `change` (in logarithms), and by more than the scatter of the window's `count` blocks explains
    (t-test, SURE).
    """
    cut = mser5(x)
    head = round(count * cut / len(x)) if cut else 0
    if head < 2:
        return 0.0
    before, after = float(x[:cut].mean()), float(x[cut:].mean())
    if min(before, after) <= 0 or abs(math.log(before / after)) <= change:
        return 0.0
    first = np.array([block.mean() for block in np.array_split(x[:cut], head)])
    rest = np.array([block.mean() for block in np.array_split(x[cut:], count - head)])
    return cut / len(x) if _differ(first, rest) else 0.0
