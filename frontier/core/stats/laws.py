"""Probability laws: distribution functions, quantiles, and the rank test of Mann and Whitney.

The laws are the binomial, beta, normal, t, chi-square, gamma and F. They come straight from
scipy.special. `scipy.stats` has the same under friendlier names, but takes a second to import,
which every `frontier solve` would pay. The import of scipy.special takes a tenth of a second, when
the first law is asked for; a sweep asks before its first trial (`load`).
"""

import math
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@cache
def _special() -> Any:
    # scipy takes all that numpy lists, and so imports every part of numpy, as f2py, for half of the
    # time. It finds the parts that are there: nothing asks scipy for the others.
    listed: dict[str, Any] = {name: vars(np)[name] for name in ("__all__", "__dir__") if name in vars(np)}
    loaded = list(vars(np))
    vars(np).update({"__all__": [name for name in np.__all__ if name in loaded], "__dir__": lambda: loaded})
    try:
        from scipy import special
    finally:
        vars(np).update(listed)
    return special


def load() -> None:
    """Import what the laws need now, so that the pause between the first two trials is no longer
    than any other.
    """
    _special()


def binomial_cdf(k: int, n: int, p: float) -> float:
    """P(Bin(n, p) <= k)."""
    if k <= 2:  # all that a plan asks for, without the import
        return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(min(k, n) + 1))
    return float(_special().bdtr(k, n, p))


@lru_cache(maxsize=4096)
def binomial_quantile(q: float, n: int, p: float) -> int:
    """The smallest k with P(Bin(n, p) <= k) >= q."""
    k: int = math.ceil(_special().bdtrik(q, n, p))
    # bdtrik solves for real k, so rounding up may pass the answer by one, in either direction of
    # its own error.
    if k > 0 and binomial_cdf(k - 1, n, p) >= q:
        return k - 1
    return k if binomial_cdf(k, n, p) >= q else k + 1


def beta_quantile(q: float, a: float, b: float) -> float:
    """The q-quantile of Beta(a, b)."""
    return float(_special().betaincinv(a, b, q))


def beta_cdf(x: float, a: float, b: float) -> float:
    """P(Beta(a, b) <= x)."""
    return float(_special().betainc(a, b, x))


def normal_quantile(q: float) -> float:
    """The q-quantile of the standard normal."""
    return float(_special().ndtri(q))


def normal_cdf(x: float) -> float:
    """P(Z <= x) of the standard normal."""
    return float(_special().ndtr(x))


def t_quantile(q: float, freedom: float) -> float:
    """The q-quantile of Student's t."""
    return float(_special().stdtrit(freedom, q))


def chi_square_quantile(q: float, freedom: float) -> float:
    """The q-quantile of chi-square."""
    return float(_special().chdtri(freedom, 1 - q))


def gamma_quantile(q: float, shape: float) -> float:
    """The q-quantile of the gamma law of scale 1."""
    return float(_special().gammaincinv(shape, q))


def f_quantile(q: float, between: float, within: float) -> float:
    """The q-quantile of the F law."""
    return float(_special().fdtri(between, within, q))


@lru_cache(maxsize=256)  # 30 µs each, and the metrics of a point ask for the same few
def noncentral_t_quantile(q: float, freedom: float, shift: float) -> float:
    """The q-quantile of the noncentral t."""
    return float(_special().nctdtrit(freedom, shift, q))


def mann_whitney(x: Floats, y: Floats) -> float:
    """Two-sided p-value of "x and y are alike in rank". 1 when all tie.

    Mann and Whitney, "On a test of whether one of two random variables is stochastically larger",
    1947: exact for few values without ties, else by the normal approximation with ties and
    continuity corrected.
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
    return min(1.0, 2 * normal_cdf(-z))


def _rank_sums(n: int, m: int) -> Floats:
    """The number of orderings of n and m values in which U is 0, 1, ..., n m: the coefficients of a
    Gaussian binomial.
    """
    ways = np.zeros(n * m + 1)
    ways[0] = 1.0
    for i in range(1, n + 1):
        ways[m + i :] -= ways[: -(m + i)].copy() if m + i <= n * m else 0.0
        for u in range(i, n * m + 1):
            ways[u] += ways[u - i]
    return ways
