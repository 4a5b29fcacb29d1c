"""The probability laws the intervals need, straight from scipy.special.

`scipy.stats` has the same under friendlier names and takes a second to import, which every `frontier solve` would pay.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special


def binomial_cdf(k: int, n: int, p: float) -> float:
    """P(Bin(n, p) <= k)."""
    return float(special.bdtr(k, n, p))


def binomial_quantile(q: float, n: int, p: float) -> int:
    """The smallest k with P(Bin(n, p) <= k) >= q."""
    k = math.ceil(special.bdtrik(q, n, p))
    # bdtrik solves for real k, so rounding up may pass the answer by one, in either direction of its own error.
    if k > 0 and binomial_cdf(k - 1, n, p) >= q:
        return k - 1
    return k if binomial_cdf(k, n, p) >= q else k + 1


def beta_quantile(q: float, a: float, b: float) -> float:
    """The q-quantile of Beta(a, b)."""
    return float(special.betaincinv(a, b, q))


def beta_cdf(x: float, a: float, b: float) -> float:
    """P(Beta(a, b) <= x)."""
    return float(special.betainc(a, b, x))


def normal_quantile(q: float) -> float:
    """The q-quantile of the standard normal."""
    return float(special.ndtri(q))


def t_quantile(q: float, freedom: int) -> float:
    """The q-quantile of Student's t."""
    return float(special.stdtrit(freedom, q))


def f_quantile(q: float, above: int, below: int) -> float:
    """The q-quantile of F with `above` and `below` degrees of freedom."""
    return float(special.fdtri(above, below, q))


def mann_whitney(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Two-sided p-value of "x and y are alike in rank". 1 when all tie.

    Mann and Whitney, "On a test of whether one of two random variables is stochastically larger", 1947: exact for few
    values without ties, else by the normal approximation with ties and continuity corrected.
    """
    both = np.concatenate([x, y])
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    ranks = (counts.cumsum() - (counts - 1) / 2)[inverse]
    n, m = len(x), len(y)
    u = float(ranks[:n].sum()) - n * (n + 1) / 2
    if min(n, m) <= 8 and len(counts) == n + m:
        ways = _rank_sums(n, m)
        return min(1.0, 2 * float(ways[: round(min(u, n * m - u)) + 1].sum() / ways.sum()))
    ties = float((counts**3 - counts).sum()) / ((n + m) * (n + m - 1))
    variance = n * m / 12 * (n + m + 1 - ties)
    if variance <= 0:
        return 1.0
    z = (abs(u - n * m / 2) - 0.5) / math.sqrt(variance)
    return min(1.0, float(2 * special.ndtr(-z)))


def _rank_sums(n: int, m: int) -> NDArray[np.float64]:
    """In how many of the orderings of n and m values U is 0, 1, ..., n m: the coefficients of a Gaussian binomial."""
    ways = np.zeros(n * m + 1)
    ways[0] = 1.0
    for i in range(1, n + 1):
        ways[m + i :] -= ways[: -(m + i)].copy() if m + i <= n * m else 0.0
        for at in range(i, n * m + 1):
            ways[at] += ways[at - i]
    return ways
