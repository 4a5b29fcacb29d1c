"""The probability laws against scipy.stats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from frontier.core.stats import laws


@settings(max_examples=300, deadline=None)
@given(st.floats(0.001, 0.999), st.integers(1, 20_000), st.floats(0.001, 0.999))
def test_a_binomial_quantile_is_the_smallest_count_that_reaches_it(q: float, n: int, p: float) -> None:
    k = laws.binomial_quantile(q, n, p)
    assert stats.binom.cdf(k, n, p) >= q - 1e-12
    assert k == 0 or stats.binom.cdf(k - 1, n, p) < q + 1e-12


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 5), st.integers(1, 20_000), st.floats(0.0, 0.1) | st.floats(0.0, 1.0))
def test_the_probability_of_a_few_is_scipys(k: int, n: int, p: float) -> None:
    k = min(k, n)
    assert laws.binomial_cdf(k, n, p) == pytest.approx(stats.binom.cdf(k, n, p), rel=1e-9, abs=1e-200)


@settings(max_examples=200, deadline=None)
@given(st.floats(0.001, 0.999), st.floats(0.5, 2000), st.floats(0.5, 2000), st.integers(1, 200))
def test_continuous_quantiles_are_scipys(q: float, a: float, b: float, n: int) -> None:
    assert laws.beta_quantile(q, a, b) == pytest.approx(stats.beta.ppf(q, a, b), rel=1e-8)
    assert laws.t_quantile(q, n) == pytest.approx(stats.t.ppf(q, n), rel=1e-8, abs=1e-12)
    assert laws.chi_square_quantile(q, n) == pytest.approx(stats.chi2.ppf(q, n), rel=1e-8, abs=1e-12)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 30), st.integers(2, 30), st.booleans())
def test_mann_whitney_is_scipys(seed: int, n: int, m: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(0, 1, n), rng.normal(0.5, 1, m)
    if ties:
        x, y = x.round(), y.round()
    expected = stats.mannwhitneyu(x, y).pvalue
    assert laws.mann_whitney(x, y) == pytest.approx(expected, rel=1e-9)


def test_what_all_ties_is_alike() -> None:
    assert laws.mann_whitney(np.ones(9), np.ones(9)) == 1.0
