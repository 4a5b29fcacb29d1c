"""Confidence intervals robust to autocorrelation and to failed (infinite-latency) requests. Pure
functions of arrays.

A percentile is an observed value ("inverted_cdf"), so +inf stands for a failure and never becomes
NaN. Its bounds are order statistics chosen by the binomial law (Conover, "Practical Nonparametric
Statistics"; Hahn and Meeker, "Statistical Intervals"). They are taken at the effective sample size:
the number of independent requests that the dependent ones are worth. Consecutive requests share
stalls, queues and batches, and bounds that ignore it are wrong up to half the time instead of one
in twenty. Rates and means get batch-means intervals (Glynn and Lim 2009) over the same time blocks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frontier.core.stats.laws import (
    Floats,
    beta_cdf,
    beta_quantile,
    binomial_cdf,
    binomial_quantile,
    chi_square_quantile,
    f_quantile,
    gamma_quantile,
    normal_quantile,
    t_quantile,
)

BATCHES = 20
"""Blocks a series is cut into: enough to estimate a variance, few enough that each outlasts its
dependence."""
TUNING = 1.1
"""n_eff is divided by this: the variance of 20 blocks is itself noisy, and claims need the coverage
they state."""
TELLING = 10.0
"""Independent values a window needs on a percentile's rarer side before windows are compared by it.
"""
SURELY = 0.98
"""Confidence above which windows are not compared, as in the bounds of the search's looks, which
are held to 99.7%."""
CLUSTERED = 0.01
"""Error at which clusters of requests are taken to differ; smaller differences matter little."""
GROUPED = 0.05
"""Error at which groups of values are taken to differ."""
SPARSE = 8
"""Numbers up to so many times as high as there are values are counted, not sorted."""
TAIL = 20
"""Fewest values above a threshold that show the tail alone."""
_SLACK = 1e-9


# --- percentiles by order statistics


def rank(p: float, n: int) -> int:
    """Which of n ascending values (1 = the smallest) is the percentile p: ceil(p n), within 1..n.

    The slack keeps 0.07 * 100 = 7.000000000000001 at rank 7.
    """
    return min(n, max(1, math.ceil(p * n - _SLACK)))


def quantile(x: Floats, p: float) -> float:
    """The percentile p (a share) of x, as an observed value: +inf when more than 1 - p of x is. NaN
    when x is empty.
    """
    if not len(x):
        return math.nan
    index = rank(p, len(x)) - 1
    return float(np.partition(x, index)[index])


def least(holds: Callable[[int], bool], start: int) -> int:
    """The least whole number that holds, found by doubling `start` and halving; there is one."""
    high = start
    while not holds(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def needed(p: float, confidence: float = 0.95, violations: int = 0) -> int:
    """Fewest independent requests that prove "the percentile p is within the target" with
    `violations` beyond it.

    The smallest n with P(at most `violations` of n exceed | share 1 - p exceeds) <= 1 - confidence.

    >>> [needed(0.99, violations=v) for v in range(3)]
    [299, 473, 628]
    """
    return least(lambda n: binomial_cdf(violations, n, 1 - p) <= 1 - confidence, violations + 1)


def upper_rank(p: float, n: int, effective: float, confidence: float = 0.95) -> int | None:
    """Rank among n ascending values of the one-sided upper bound of the percentile p. None: no such
    bound exists.

    `effective` is how many independent values the n are worth; the binomial rank at that size is
    scaled up to n.
    """
    whole = math.floor(effective + _SLACK)
    if whole < 1:
        return None
    # P(the k-th smallest of `whole` independent values is above the percentile) = P(Bin(whole, p) <
    # k) >= confidence.
    k = binomial_quantile(confidence, whole, p) + 1
    return None if k > whole else min(n, max(rank(p, n), math.ceil(k / whole * n - _SLACK)))


def lower_rank(p: float, n: int, effective: float, confidence: float = 0.95) -> int | None:
    """As `upper_rank`, for the lower bound. It is never above the rank of the percentile itself, as
    it could be with few values.
    """
    whole = math.floor(effective + _SLACK)
    k = binomial_quantile(1 - confidence, whole, p) if whole >= 1 else 0
    return None if k < 1 else min(rank(p, n), max(1, math.floor(k / whole * n + _SLACK)))


def exponential_upper(values: Floats, p: float, confidence: float) -> float:
    """An upper bound of the percentile p of the law of these independent values, which has an
    exponential tail.

    The bound is a threshold plus a multiple of the mean excess of the values above it. The
    threshold is the least value; or, where half of the values are at least TAIL, the largest of the
    lower half: of many values the tail is seen alone.

    For k exponential values above a threshold, k times the mean excess is gamma(k) times the scale
    of the law; gamma(n - 1) where the threshold is one of the values. See Hahn and Meeker; Lawless,
    "Statistical Models and Methods for Lifetime Data", section 4.1. For a law with a lighter tail,
    as the normal, the bound is too high.

    >>> round(exponential_upper(np.array([1.0, 1.1, 1.3]), 0.99, 0.95), 1)
    6.2
    """
    n, half = len(values), len(values) // 2
    if half < TAIL:
        threshold, above, freedom = float(values.min()), n, n - 1
    else:
        ordered = np.sort(values)
        threshold, above, freedom, values = float(ordered[-half - 1]), half, half, ordered[-half:]
    scale = above * (float(values.mean()) - threshold) / gamma_quantile(1 - confidence, freedom)
    return threshold + scale * max(0.0, math.log(above / n / (1 - p)))


def numbered(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each value's place among the different values, from 0. Values that are close together, as
    numbers of streams, need no sort, which would take a seventh of a search.
    """
    close = values.min(initial=0) >= 0 and values.max(initial=0) <= SPARSE * len(values)
    return (np.bincount(values) > 0).cumsum()[values] - 1 if close else np.unique(values, return_inverse=True)[1]


def means_alike(values: Floats, groups: NDArray[np.int64]) -> bool:
    """Whether the means of groups of values differ no more than by chance, given the spread within
    groups (F test at GROUPED). False for one group, or one value in each.
    """
    group = numbered(groups)
    counts = np.bincount(group).astype(np.float64)
    between, within = len(counts) - 1, len(values) - len(counts)
    if between < 1 or within < 1:
        return False
    means = np.bincount(group, values) / counts
    spread = float(((values - means[group]) ** 2).sum()) / within
    apart = float(counts @ (means - values.mean()) ** 2) / between
    return apart <= spread * f_quantile(1 - GROUPED, between, within)


# --- effective sample size


def vif(x: Floats, q: float) -> float:
    """The factor by which dependence inflates the variance of "the share of x beyond q", with x in
    the order of sending.

    The variance between BATCHES equal blocks over what independence would give. 1 when nothing or
    everything is beyond q, or when x is too short for blocks. A q of +inf asks for the share that
    is +inf.
    """
    size = len(x) // BATCHES
    if size == 0:
        return 1.0
    cut = x[: size * BATCHES].reshape(BATCHES, size)
    beyond = np.isinf(cut) if math.isinf(q) else cut > q
    return vif_of_blocks(beyond.sum(axis=1).astype(np.float64), np.full(BATCHES, float(size)))


def vif_of_blocks(beyond: Floats, counts: Floats) -> float:
    """`vif` from each block's count beyond and count, for blocks that may differ in size. Empty
    blocks are left out.
    """
    beyond, counts = beyond[counts > 0], counts[counts > 0]
    total = float(counts.sum())
    share = float(beyond.sum()) / total if total else 0.0
    if len(counts) < 2 or not 0 < share < 1:
        return 1.0
    # The variance of a ratio: blocks that differ in size also differ in their count beyond, which
    # is no dependence.
    residual = beyond - share * counts
    variance = float(residual @ residual) * len(counts) / (len(counts) - 1)
    return variance / (total * share * (1 - share))


def vif_of_clusters(beyond: NDArray[np.bool_], clusters: NDArray[np.int64], groups: NDArray[np.int64]) -> float:
    """The factor by which differences of clusters within their groups inflate the variance of a
    share; 1 where they differ by chance only (chi-square, at CLUSTERED).

    `beyond` marks values, `clusters` and `groups` are numbers of each value's cluster and group.
    """
    cluster, group = numbered(clusters), numbered(groups)
    hits, counts = (np.bincount(cluster, w).astype(np.float64) for w in (beyond, None))
    share = np.bincount(group, beyond) / np.bincount(group)
    freedom, independent = len(hits) - len(share), float((share * (1 - share))[group].sum())
    if freedom < 1 or independent <= 0:
        return 1.0
    # The values of a cluster have one group, which is their mean.
    residual = hits - share[(np.bincount(cluster, group) / counts).astype(np.int64)] * counts
    inflated = float(residual @ residual) / independent * len(hits) / freedom
    return inflated if inflated * freedom > chi_square_quantile(1 - CLUSTERED, freedom) else 1.0


def inflation(at_p: float, towards: float) -> float:
    """One inflation from two: that at p, and that at a steadier, lower percentile, as the VIF of a
    rare event is noisy.
    """
    v, w = max(1.0, at_p), max(1.0, towards)
    return TUNING * max(v, math.sqrt(v * w))


def steadier(p: float) -> float:
    """A percentile that helps to judge the dependence at p: its tail is five times as large, at
    most a half (0.95 for 0.99).
    """
    return max(0.5, 1 - 5 * (1 - p))


def n_eff(x: Floats, p: float) -> float:
    """How many independent requests x (in the order of sending) is worth for its percentile p."""
    return len(x) / inflation(vif(x, quantile(x, p)), vif(x, quantile(x, steadier(p))))


def worth_between(worth: float, p: float, beyond: Floats, counts: Floats, confidence: float) -> float:
    """`worth` independent values, less what whole windows take from it: no block shows what differs
    from run to run.

    `beyond` and `counts` are per window. Few windows show little of how far windows lie apart, so a
    bound at `confidence` pays Student's price for their number. Nothing is taken in two cases:

    - A window has fewer than TELLING independent values in its tail. At a p99 of a thousand
      requests its own noise is the larger.
    - The confidence is above SURELY, where the price for two or three windows is a hundredfold. The
      margin of such a bound has to be enough.
    """
    windows = int((counts > 0).sum())
    if windows < 2 or worth * min(p, 1 - p) / windows < TELLING or confidence > SURELY:
        return worth
    price = t_quantile(confidence, windows - 1) / normal_quantile(confidence)
    return min(worth, float(counts.sum()) / max(1e-9, vif_of_blocks(beyond, counts) * price**2))


# --- shares


def share_n_eff(hits: NDArray[np.bool_]) -> float:
    """How many independent requests `hits` (in the order of sending) is worth for the share of
    True.
    """
    return len(hits) / max(1.0, vif(hits.astype(np.float64), 0.5))


def clopper_pearson(hits: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """One-sided lower and upper bound of a share, each at `confidence`; `hits` and `n` may be
    effective, so not whole.

    Clopper and Pearson, "The use of confidence or fiducial limits", Biometrika 1934. (0, 1) when n
    is 0.

    >>> round(clopper_pearson(0, 1000)[1], 5)
    0.00299
    """
    if n <= 0:
        return 0.0, 1.0
    low = 0.0 if hits <= 0 else beta_quantile(1 - confidence, hits, n - hits + 1)
    high = 1.0 if hits >= n else beta_quantile(confidence, hits + 1, n - hits)
    return low, high


def as_often(few: float, n: float, many: float, m: float) -> float:
    """The error of "`many` of m is a larger share than `few` of n": the chance of as many or more
    of all hits among the m, where both shares are the same (Fisher's exact test, one-sided).
    Effective numbers become whole ones on the safe side.

    >>> round(as_often(0, 10, 3, 10), 4)
    0.1053
    """
    less, n, more, m = math.ceil(few), math.floor(n), math.floor(many), math.floor(m)
    hits = less + more

    def ways(total: int, chosen: int) -> float:
        return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)

    counts = range(max(more, hits - n), min(hits, m) + 1)
    return sum(math.exp(ways(m, k) + ways(n, hits - k) - ways(n + m, hits)) for k in counts)


def mid_p(hits: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """As `clopper_pearson`, but with half the probability of the observed number: right on average,
    not for every share.

    An exact bound of a few whole numbers errs on the safe side: it holds 98 times in a hundred
    instead of 95. That is right for a claim, but wide for an interval to be shown. Lancaster,
    "Significance tests in discrete distributions", JASA 1961.

    >>> round(mid_p(0, 1000, 0.975)[1], 5)
    0.00299
    """
    if n <= 0:
        return 0.0, 1.0

    def at_most(share: float) -> float:
        fewer = 0.0 if hits <= 0 else 1 - beta_cdf(share, hits, n - hits + 1)
        as_many = 1.0 if hits >= n else 1 - beta_cdf(share, hits + 1, n - hits)
        return (fewer + as_many) / 2

    low = 0.0 if hits <= 0 else _falls_to(at_most, confidence)
    high = 1.0 if hits >= n else _falls_to(at_most, 1 - confidence)
    return low, high


def _falls_to(falling: Callable[[float], float], target: float) -> float:
    """Where in 0..1 a falling function passes `target`, to the last bit that matters."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > target else (low, middle)
    return (low + high) / 2


# --- means and rates


@dataclass(frozen=True, slots=True)
class BatchMeans:
    """A mean or rate from time blocks, with its standard error, degrees of freedom, and how far
    blocks still depend.

    `between` is the standard error that whole windows show (0 for one window). `lag1` is the
    correlation of a block with the next; above 0.4 the blocks are too short and the interval too
    narrow.
    """

    value: float
    error: float
    freedom: int
    lag1: float
    windows: int = 1
    between: float = 0.0

    def bounds(self, confidence: float = 0.95) -> tuple[float, float]:
        """One-sided lower and upper bound, each at `confidence`; infinite when there is no error to
        go by.

        The bound is by blocks or by whole windows, whichever reaches further. Blocks are many, but
        do not show differences between runs; windows show all differences, but are few.
        """
        if self.freedom < 1 or not math.isfinite(self.value):
            return -math.inf, math.inf
        reach = t_quantile(confidence, self.freedom) * self.error
        if self.windows > 1:
            reach = max(reach, t_quantile(confidence, self.windows - 1) * self.between)
        return self.value - reach, self.value + reach


def batch_means(totals: Floats, weights: Floats, windows: int = 1) -> BatchMeans:
    """The ratio sum(totals) / sum(weights) of blocks in time order (`windows` equal runs),
    regrouped into BATCHES.

    For a rate the weights are seconds, for a mean per request they are counts.
    """
    fine_weights, fine_totals = regroup(weights), regroup(totals)
    whole = float(fine_weights.sum())
    value = float(fine_totals.sum()) / whole if whole > 0 else math.nan
    if whole <= 0 or not math.isfinite(value) or len(fine_weights) < 2:
        return BatchMeans(value, math.inf, 0, math.nan)
    residual = fine_totals - value * fine_weights
    centred = residual - residual.mean()
    spread = float(centred @ centred)
    lag1 = float(centred[1:] @ centred[:-1]) / spread if spread > 0 else 0.0
    between = _ratio_error((totals - value * weights).reshape(windows, -1).sum(axis=1), whole) if windows > 1 else 0.0
    return BatchMeans(value, _ratio_error(residual, whole), len(residual) - 1, lag1, windows, between)


def _ratio_error(residual: Floats, whole: float) -> float:
    """Standard error of a ratio from its blocks' residuals."""
    b = len(residual)
    return math.sqrt(float(residual @ residual) * b / (b - 1)) / whole


def regroup(blocks: Floats) -> Floats:
    """Sums of at most BATCHES runs of successive blocks, as equal as they go."""
    if len(blocks) <= BATCHES:
        return blocks
    starts = np.arange(BATCHES) * len(blocks) // BATCHES
    grouped: Floats = np.add.reduceat(blocks, starts)
    return grouped
