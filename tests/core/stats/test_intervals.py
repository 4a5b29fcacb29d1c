"""Confidence intervals: every statistic against a slow twin or a closed form."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats as dist

from frontier.core.model.metrics import claim_floor
from frontier.core.stats import intervals, laws
from tests.kit.made import bounds

Floats = NDArray[np.float64]
latencies = st.lists(st.floats(1e-3, 1e3), min_size=40, max_size=200)
shares = st.sampled_from([0.5, 0.9, 0.95, 0.99])


# --- percentiles


@pytest.mark.parametrize("n", [1, 2, 7, 99, 100, 101, 298, 299, 999, 1000])
@pytest.mark.parametrize("p", [0.01, 0.07, 0.5, 0.9, 0.95, 0.99, 0.999])
def test_the_rank_is_that_of_exact_arithmetic(n: int, p: float) -> None:
    from fractions import Fraction

    exact = math.ceil(Fraction(str(p)) * n)
    assert max(1, exact) == intervals.rank(p, n)


@settings(max_examples=50, deadline=None)
@given(latencies, shares)
def test_the_percentile_is_numpys_inverted_cdf(x: list[float], p: float) -> None:
    assert sorted(x)[math.ceil(p * len(x) - 1e-9) - 1] == intervals.quantile(np.array(x), p)


def test_failures_are_infinite_latency_and_never_nan() -> None:
    x = np.concatenate([np.linspace(1, 2, 990), np.full(10, math.inf)])
    assert 2.0 == intervals.quantile(x, 0.99)
    x[0] = math.inf
    assert math.inf == intervals.quantile(x, 0.99)


def test_nothing_has_no_percentile() -> None:
    assert math.isnan(intervals.quantile(np.zeros(0), 0.5))


# --- how many are needed


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        (0.9, [29, 46, 61]),
        (0.95, [59, 93, 124]),
        (0.99, [299, 473, 628, 773, 913, 1049]),
        (0.999, [2995, 4742, 6294]),
    ],
)
def test_needed_gives_the_published_table(p: float, expected: list[int]) -> None:
    assert expected == [intervals.needed(p, violations=v) for v in range(len(expected))]


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.975, 1 - 0.05 / 6, 0.999])
def test_needed_without_violations_is_the_logarithm(confidence: float) -> None:
    assert math.ceil(math.log(1 - confidence) / math.log(0.99)) == intervals.needed(0.99, confidence)


@pytest.mark.parametrize("violations", [0, 1, 4])
@pytest.mark.parametrize("p", [0.5, 0.95])
def test_needed_is_the_smallest_that_a_search_one_by_one_finds(p: float, violations: int) -> None:
    n = violations + 1
    while sum(math.comb(n, k) * (1 - p) ** k * p ** (n - k) for k in range(violations + 1)) > 0.05:
        n += 1
    assert n == intervals.needed(p, violations=violations)


# --- bounds of a percentile


def slow_vif(x: Floats, q: float) -> float:
    size = len(x) // 20
    shares = [sum(v > q for v in x[i * size : (i + 1) * size]) / size for i in range(20)]
    mean = sum(shares) / 20
    if not 0 < mean < 1:
        return 1.0
    return size * sum((s - mean) ** 2 for s in shares) / 19 / (mean * (1 - mean))


def slow_upper(x: Floats, p: float, confidence: float) -> float:
    v = max(1.0, slow_vif(x, sorted(x)[math.ceil(p * len(x) - 1e-9) - 1]))
    towards = max(0.5, 1 - 5 * (1 - p))
    w = max(1.0, slow_vif(x, sorted(x)[math.ceil(towards * len(x) - 1e-9) - 1]))
    effective = int(len(x) / (1.1 * max(v, math.sqrt(v * w))))
    for k in range(effective):
        # The k+1-th smallest of `effective` independent values is a bound when enough of them lie
        # below the percentile.
        if sum(dist.binom.pmf(range(k + 1), effective, p)) >= confidence:
            return float(sorted(x)[min(len(x), math.ceil((k + 1) / effective * len(x) - 1e-9)) - 1])
    return math.inf


@pytest.mark.parametrize("p", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("seed", range(4))
def test_the_upper_bound_equals_a_slow_twin(p: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.lognormal(size=400) if seed % 2 else np.exp(ar1(rng, 400, 0.7))
    assert slow_upper(x, p, 0.95) == bounds(x, p)[1]


def ar1(rng: np.random.Generator, n: int, rho: float) -> Floats:
    from scipy.signal import lfilter

    noise = rng.standard_normal(n + 200)
    series: Floats = lfilter([1.0], [1.0, -rho], noise)[200:]
    return series


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_the_vif_equals_a_slow_twin(rho: float) -> None:
    x = ar1(np.random.default_rng(3), 2987, rho)
    for p in (0.5, 0.95, 0.99):
        q = intervals.quantile(x, p)
        assert slow_vif(x, q) == pytest.approx(intervals.vif(x, q), rel=1e-12)


def test_the_vif_is_one_for_independence_and_grows_with_dependence() -> None:
    rng = np.random.default_rng(4)
    mean = {
        rho: np.mean([intervals.vif(x, intervals.quantile(x, 0.9)) for x in (ar1(rng, 4000, rho) for _ in range(40))])
        for rho in (0.0, 0.5, 0.9)
    }
    assert 1.0 == pytest.approx(mean[0.0], abs=0.15)
    assert mean[0.0] < mean[0.5] < mean[0.9]
    assert mean[0.9] > 4


def test_a_series_too_short_for_blocks_counts_as_independent() -> None:
    assert 1.0 == intervals.vif(np.arange(19.0), 5.0)


@pytest.mark.parametrize(("effective", "exists"), [(298, False), (299, True), (999, True), (1000, True)])
def test_a_p99_bound_exists_from_299_independent_requests(effective: int, exists: bool) -> None:
    assert exists is (intervals.upper_rank(0.99, effective, effective) is not None)


def test_golden_ranks_of_the_p99_bound() -> None:
    assert 299 == intervals.upper_rank(0.99, 299, 299)
    assert 472 == intervals.upper_rank(0.99, 473, 473)
    assert 996 == intervals.upper_rank(0.99, 1000, 1000)
    assert 995 == intervals.upper_rank(0.99, 999, 999)
    assert 985 == intervals.lower_rank(0.99, 1000, 1000)
    assert intervals.lower_rank(0.5, 4, 4) is None


@pytest.mark.parametrize("n", [299, 999, 1000, 3000])
@pytest.mark.parametrize("p", [0.5, 0.95, 0.99])
def test_independent_bounds_are_those_of_the_binomial_law(n: int, p: float) -> None:
    k = intervals.upper_rank(p, n, n)
    assert k is not None
    assert dist.binom.cdf(k - 1, n, p) >= 0.95 > dist.binom.cdf(k - 2, n, p)
    low = intervals.lower_rank(p, n, n)
    assert low is not None
    assert dist.binom.sf(low - 1, n, p) >= 0.95 > dist.binom.sf(low, n, p)


def test_failures_within_the_tail_make_the_bound_infinite_but_not_the_percentile() -> None:
    x = np.random.default_rng(0).uniform(1, 2, 1000)
    x[[100, 300, 500, 700, 900]] = math.inf
    assert 2 > intervals.quantile(x, 0.99)
    lower, upper = bounds(x, 0.99)
    assert math.inf == upper
    assert 1 < lower < 2
    assert 2 > bounds(x, 0.95)[1]


def test_the_smallest_of_five_bounds_a_median_and_that_of_four_does_not() -> None:
    assert [1, None] == [intervals.lower_rank(0.5, n, n) for n in (5, 4)]  # 1/32 and 1/16 that all are above it
    assert [5, None] == [intervals.upper_rank(0.5, n, n) for n in (5, 4)]


def test_blocks_without_requests_are_left_out() -> None:
    beyond, counts = np.array([3.0, 1.0, 5.0, 2.0]), np.array([9.0, 10.0, 11.0, 10.0])
    with_empty = np.insert(beyond, 2, 0.0), np.insert(counts, 2, 0.0)
    assert intervals.vif_of_blocks(beyond, counts) == intervals.vif_of_blocks(*with_empty)
    assert 1.0 == intervals.vif_of_blocks(counts, counts), "everything beyond depends on nothing"


def test_two_windows_that_differ_widen_the_interval_as_three_do() -> None:
    fine = np.concatenate([np.full(20, 95.0), np.full(20, 105.0)]) + np.tile([0.1, -0.1], 20)
    low, high = intervals.batch_means(fine, np.ones(40), windows=2).bounds(0.975)
    assert high - low == pytest.approx(2 * dist.t.ppf(0.975, 1) * 5.0)


def test_too_few_have_no_bounds() -> None:
    assert (-math.inf, math.inf) == bounds(np.array([1.0, 2.0, 3.0]), 0.5, 0.975)
    assert (-math.inf, math.inf) == bounds(np.zeros(0), 0.99)


def test_the_largest_of_a_series_worth_three_is_no_lower_bound() -> None:
    # The largest of three independent values is below the p99 in 97 of 100 cases; that of a
    # thousand is not.
    assert 990 == intervals.lower_rank(0.99, 1000, 3)


@settings(max_examples=50, deadline=None)
@given(latencies, shares, st.floats(0.01, 100.0))
def test_in_other_units_the_bounds_are_the_same(x: list[float], p: float, scale: float) -> None:
    values = np.array(x)
    once, scaled = bounds(values, p), bounds(values * scale, p)
    for a, b in zip(once, scaled, strict=True):
        assert b == (a if math.isinf(a) else pytest.approx(a * scale))


@settings(max_examples=50, deadline=None)
@given(latencies, shares)
def test_more_confidence_never_narrows_an_interval(x: list[float], p: float) -> None:
    values = np.array(x)
    pairs = [bounds(values, p, c) for c in (0.5, 0.8, 0.9, 0.95, 0.99)]
    assert sorted((low for low, _ in pairs), reverse=True) == [low for low, _ in pairs]
    assert sorted(high for _, high in pairs) == [high for _, high in pairs]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=200), shares)
def test_the_value_lies_within_its_interval(x: list[float], p: float) -> None:
    values = np.array(x)
    low, high = bounds(values, p)
    assert low <= intervals.quantile(values, p) <= high


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(20)), st.sampled_from([0.5, 0.9]))
def test_the_order_of_blocks_does_not_matter(order: list[int], p: float) -> None:
    blocks = ar1(np.random.default_rng(8), 800, 0.8).reshape(20, 40)
    assert bounds(blocks.ravel(), p) == bounds(blocks[order].ravel(), p)


def test_sorted_series_are_worth_less_than_shuffled_ones() -> None:
    x = np.random.default_rng(1).uniform(size=2000)
    assert 20 * intervals.n_eff(np.sort(x), 0.5) < intervals.n_eff(x, 0.5)


# --- shares


@pytest.mark.parametrize(("hits", "n"), [(0, 1000), (1, 100), (5, 299), (50, 100), (99, 100), (100, 100)])
def test_clopper_pearson_inverts_the_binomial_test(hits: int, n: int) -> None:
    low, high = intervals.clopper_pearson(hits, n)
    exact = dist.binomtest(hits, n).proportion_ci(0.90, "exact")
    assert (exact.low, exact.high) == pytest.approx((low, high))


@pytest.mark.parametrize(("hits", "n"), [(0, 1000), (1, 100), (5, 299), (50, 100), (99, 100), (100, 100)])
def test_mid_p_counts_what_was_seen_half(hits: int, n: int) -> None:
    low, high = intervals.mid_p(hits, n, 0.975)
    half = dist.binom.pmf(hits, n, [low, high]) / 2

    if hits > 0:
        assert 0.025 == pytest.approx(dist.binom.sf(hits, n, low) + half[0])
    if hits < n:
        assert 0.025 == pytest.approx(dist.binom.cdf(hits - 1, n, high) + half[1])
    assert (hits == 0, hits == n) == (low == 0, high == 1)


@given(st.integers(0, 60), st.floats(60, 5000))
def test_the_shown_interval_of_a_share_lies_between_the_exact_one_and_the_claims_bounds(hits: int, n: float) -> None:
    (a, z), (b, y), (c, x) = (
        intervals.clopper_pearson(hits, n, 0.975),
        intervals.mid_p(hits, n, 0.975),
        intervals.clopper_pearson(hits, n, 0.95),
    )
    assert a - 1e-9 <= b <= c + 1e-9
    assert x - 1e-9 <= y <= z + 1e-9


def test_mid_p_holds_rare_shares_as_often_as_it_says_and_the_exact_interval_more_often() -> None:
    n, hits = 1000, np.arange(40)
    truths = np.linspace(0.001, 0.01, 200)
    chance = dist.binom.pmf(hits[:, None], n, truths)

    def held(interval: Callable[[float, float, float], tuple[float, float]]) -> float:
        low, high = np.array([interval(k, n, 0.975) for k in hits]).T[:, :, None]
        return float((chance * ((low <= truths) & (truths <= high))).sum(axis=0).mean())

    assert 0.947 < held(intervals.mid_p) < 0.962
    assert held(intervals.clopper_pearson) > 0.967


def test_no_failure_in_a_thousand_leaves_three_in_a_thousand() -> None:
    assert 1 - 0.05 ** (1 / 1000) == pytest.approx(intervals.clopper_pearson(0, 1000)[1])


def test_a_share_of_nothing_is_anything() -> None:
    assert (0.0, 1.0) == intervals.clopper_pearson(0, 0) == intervals.mid_p(0, 0)


def test_failures_in_a_row_are_worth_less_than_scattered_ones() -> None:
    bunched, scattered = np.zeros(1000, bool), np.zeros(1000, bool)
    bunched[400:450] = True
    scattered[::20] = True
    assert 1000 == intervals.share_n_eff(scattered)
    assert 100 > intervals.share_n_eff(bunched)


# --- batch means


def test_the_interval_of_equal_batches_is_students() -> None:
    blocks = np.random.default_rng(6).normal(100, 10, 20)
    means = intervals.batch_means(blocks, np.ones(20))
    expected = dist.t.interval(0.90, 19, blocks.mean(), blocks.std(ddof=1) / math.sqrt(20))
    assert expected == pytest.approx(means.bounds(0.95))
    assert blocks.mean() == pytest.approx(means.value)


def test_the_lag_one_correlation_is_that_of_the_textbook() -> None:
    blocks = ar1(np.random.default_rng(2), 20, 0.8) + 50
    d = blocks - blocks.mean()
    assert sum(a * b for a, b in zip(d[1:], d, strict=False)) / sum(d * d) == pytest.approx(
        intervals.batch_means(blocks, np.ones(20)).lag1
    )


def test_unequal_blocks_are_weighted() -> None:
    seconds = np.linspace(1, 3, 20)
    means = intervals.batch_means(70 * seconds, seconds)
    assert 70 == pytest.approx(means.value)
    assert 0 == pytest.approx(means.error, abs=1e-9)


def test_windows_are_regrouped_into_twenty() -> None:
    fine = np.random.default_rng(3).normal(10, 1, 60)
    by_hand = fine.reshape(20, 3).sum(axis=1)
    assert by_hand == pytest.approx(intervals.regroup(fine))
    one, regrouped = intervals.batch_means(by_hand, np.full(20, 3.0)), intervals.batch_means(fine, np.ones(60))
    assert one.bounds() == pytest.approx(regrouped.bounds(), rel=1e-12)


def test_windows_that_differ_widen_the_interval_to_their_own() -> None:
    rng = np.random.default_rng(7)
    windows = np.array([95.0, 100.0, 105.0])
    fine = (windows[:, None] + rng.normal(0, 0.5, (3, 20))).ravel()
    means = intervals.batch_means(fine, np.ones(60), windows=3)
    per_window = fine.reshape(3, 20).mean(axis=1)
    assert per_window.std(ddof=1) / math.sqrt(3) == pytest.approx(means.between)
    low, high = means.bounds(0.975)
    assert high - low == pytest.approx(2 * dist.t.ppf(0.975, 2) * per_window.std(ddof=1) / math.sqrt(3))


def test_windows_closer_together_than_their_blocks_leave_the_interval_to_the_blocks() -> None:
    fine = np.tile(np.random.default_rng(7).normal(100, 5, 20), 3)
    three, one = intervals.batch_means(fine, np.ones(60), windows=3), intervals.batch_means(fine, np.ones(60))
    assert one.bounds() == three.bounds()


def test_a_rate_is_covered_whether_runs_differ_or_not() -> None:
    rng = np.random.default_rng(5)
    for between in (0.0, 1.0, 5.0):
        held = 0
        for _ in range(400):
            fine = (100 + rng.normal(0, between, (3, 1)) + rng.normal(0, 3, (3, 20))).ravel()
            low, high = intervals.batch_means(fine, np.ones(60), windows=3).bounds(0.975)
            held += low <= 100 <= high
        assert 0.93 <= held / 400 <= 0.995


# --- what differs from run to run


def test_windows_that_differ_are_worth_fewer_requests_at_the_price_of_their_number() -> None:
    counts = np.full(3, 1000.0)
    beyond = np.array([150.0, 100.0, 50.0])
    vif = intervals.vif_of_blocks(beyond, counts)
    price = dist.t.ppf(0.95, 2) / dist.norm.ppf(0.95)
    assert 3000 / (vif * price**2) == pytest.approx(intervals.worth_between(2500, 0.9, beyond, counts, 0.95))
    assert intervals.worth_between(2500, 0.9, beyond, counts, 0.975) < intervals.worth_between(
        2500, 0.9, beyond, counts, 0.95
    )
    assert 2500 == intervals.worth_between(2500, 0.9, np.full(3, 100.0), counts, 0.95)  # alike to the last one


def test_windows_with_too_small_a_tail_are_not_compared_by_it() -> None:
    counts, beyond = np.full(3, 334.0), np.array([9.0, 1.0, 0.0])
    assert 900 == intervals.worth_between(900, 0.99, beyond, counts, 0.95)
    assert 900 > intervals.worth_between(900, 0.9, np.array([90.0, 10.0, 0.0]), counts, 0.95)
    assert 900 == intervals.worth_between(900, 0.9, beyond[:1], counts[:1], 0.95)  # one window tells nothing of others


def test_percentiles_of_runs_that_differ_are_covered_and_blocks_alone_would_not_do() -> None:
    rng = np.random.default_rng(13)
    held = naive = 0
    truth = 1.2816  # p90 of a normal; runs differ by a third of its spread, which the pooled law takes in
    for _ in range(300):
        x = (rng.normal(0, 0.33, (3, 1)) + rng.normal(0, math.sqrt(1 - 0.33**2), (3, 400))).ravel()
        at = intervals.quantile(x, 0.9)
        tails = (x > at).reshape(3, 400).sum(axis=1).astype(float)
        ordered = np.sort(x)
        for worth, kind in ((intervals.n_eff(x, 0.9), 0), (0.0, 1)):
            worth = worth or intervals.worth_between(intervals.n_eff(x, 0.9), 0.9, tails, np.full(3, 400.0), 0.975)
            low, high = intervals.lower_rank(0.9, 1200, worth, 0.975), intervals.upper_rank(0.9, 1200, worth, 0.975)
            inside = (low is None or ordered[low - 1] <= truth) and (high is None or truth <= ordered[high - 1])
            held, naive = (held + inside, naive) if kind else (held, naive + inside)
    assert held / 300 >= 0.85
    assert naive / 300 < 0.75


def test_one_block_or_none_has_no_interval() -> None:
    assert (-math.inf, math.inf) == intervals.batch_means(np.array([3.0]), np.array([1.0])).bounds()
    assert math.isnan(intervals.batch_means(np.zeros(20), np.zeros(20)).value)


def test_batch_means_cover_the_mean_of_a_dependent_series() -> None:
    rng = np.random.default_rng(11)
    held = 0
    for _ in range(300):
        blocks = ar1(rng, 2000, 0.7).reshape(20, 100).sum(axis=1)
        low, high = intervals.batch_means(blocks, np.full(20, 100.0)).bounds(0.975)
        held += low <= 0 <= high
    assert 0.91 <= held / 300 <= 0.98


# --- floors


@pytest.mark.parametrize(
    ("p", "concurrency", "least"),
    [(0.5, 128, 30), (0.95, 128, 200), (0.99, 1, 1000), (0.99, 128, 2560), (0.999, 1, 10_000)],
)
def test_a_tail_needs_a_window_that_outlasts_its_requests(p: float, concurrency: int, least: int) -> None:
    assert least == claim_floor(p, concurrency)


@pytest.mark.parametrize(("n", "confidence"), [(3, 0.95), (6, 0.99), (20, 0.9875)])
def test_the_bound_of_exponential_values_holds_as_often_as_it_says(n: int, confidence: float) -> None:
    """Against the law itself, from anywhere: its percentile is known."""
    rng = np.random.default_rng(8)
    true = 5.0 - 0.3 * math.log(0.01)
    draws = 5.0 + 0.3 * rng.exponential(size=(4000, n))
    held = np.mean([intervals.exponential_upper(values, 0.99, confidence) >= true for values in draws])
    error = math.sqrt(confidence * (1 - confidence) / 4000)
    # A little more often: that the least value is above that of the law is not charged.
    assert confidence - 3 * error <= held <= confidence + (1 - confidence) * 0.4 + 3 * error


def test_of_many_values_the_tail_is_taken_alone() -> None:
    """The body of a normal law would make an exponential one far too long."""
    rng = np.random.default_rng(9)
    draws = rng.standard_normal((400, 96))
    true = float(dist.norm.ppf(0.99))
    bounds = np.array([intervals.exponential_upper(values, 0.99, 0.95) for values in draws])
    assert np.mean(bounds >= true) >= 0.95
    assert true < np.median(bounds) < 2 * true


@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_groups_are_alike_as_an_analysis_of_variance_says(apart: float) -> None:
    rng = np.random.default_rng(10)
    said = []
    for _ in range(200):
        groups = np.repeat(np.arange(3), 8)
        values = rng.standard_normal(24) + apart * rng.standard_normal(3)[groups]
        said.append(intervals.means_alike(values, groups))
        assert said[-1] == (dist.f_oneway(*(values[groups == k] for k in range(3))).pvalue >= intervals.GROUPED)
    assert 0.05 < np.mean(said) < 0.99
    one_each, one_group = np.arange(3), np.zeros(3, np.int64)
    assert not intervals.means_alike(rng.standard_normal(3), one_each)
    assert not intervals.means_alike(rng.standard_normal(3), one_group)


def test_equal_values_are_their_own_bound() -> None:
    assert 2.0 == intervals.exponential_upper(np.full(5, 2.0), 0.99, 0.95)


def test_the_quantile_of_gamma_is_that_of_scipy() -> None:
    for shape in (2, 5.5, 35):
        assert dist.gamma.ppf(0.05, shape) == pytest.approx(laws.gamma_quantile(0.05, shape))


@pytest.mark.parametrize(("few", "n", "many", "m"), [(0, 300, 4, 60), (2, 1000, 9, 240), (5, 40, 3, 30), (0, 9, 0, 7)])
def test_the_error_that_a_share_is_larger_is_that_of_fishers_exact_test(few, n, many, m):
    table = [[many, m - many], [few, n - few]]
    assert intervals.as_often(few, n, many, m) == pytest.approx(dist.fisher_exact(table, "greater").pvalue)
