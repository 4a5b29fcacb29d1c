"""The log histogram against sorted arrays, and the algebra of its merging."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontier.core.window.histogram import ALPHA, X0, LogHistogram, bin_indices, bin_values

durations = st.lists(st.floats(1e-6, 1e5), min_size=1, max_size=60)


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9, 0.99, 0.999])
@pytest.mark.parametrize("kind", ["lognormal", "bimodal", "pareto"])
def test_a_quantile_is_within_alpha_of_the_sorted_array(kind: str, p: float) -> None:
    rng = np.random.default_rng(5)
    x = {
        "lognormal": rng.lognormal(-4, 1, 20_000),
        "bimodal": np.concatenate([rng.normal(0.01, 0.0005, 19_000), rng.normal(0.25, 0.01, 1_000)]),
        "pareto": 1e-3 * (1 + rng.pareto(1.5, 20_000)),
    }[kind]
    exact = np.quantile(x, p, method="inverted_cdf")
    assert pytest.approx(exact, rel=ALPHA * 1.0001) == LogHistogram.of(x).quantile(p)


@settings(max_examples=50, deadline=None)
@given(durations, st.floats(0.01, 0.99))
def test_any_quantile_of_any_durations_is_within_alpha(x: list[float], p: float) -> None:
    exact = sorted(x)[min(len(x), max(1, math.ceil(p * len(x) - 1e-9))) - 1]
    assert pytest.approx(exact, rel=ALPHA * 1.0001) == LogHistogram.of(x).quantile(p)


@settings(max_examples=50, deadline=None)
@given(durations, durations, durations)
def test_merging_is_the_single_pass_whatever_the_order(a: list[float], b: list[float], c: list[float]) -> None:
    ha, hb, hc = map(LogHistogram.of, (a, b, c))
    merged = LogHistogram.merged
    whole = LogHistogram.of(a + b + c)
    assert whole == merged([merged([ha, hb]), hc]) == merged([ha, merged([hb, hc])]) == merged([hb, ha, hc])
    assert whole.total == pytest.approx(merged([ha, hb, hc]).total)


def test_merging_with_nothing_changes_nothing() -> None:
    some = LogHistogram.of([0.1, 0.2])
    assert some == LogHistogram.merged([LogHistogram(), some])
    assert LogHistogram() == LogHistogram.merged([])


def test_merging_leaves_both_sides_as_they_were() -> None:
    a, b = LogHistogram.of([0.1]), LogHistogram.of([0.2, 0.3])
    assert 3 == LogHistogram.merged([a, b]).count
    assert (1, 2) == (a.count, b.count)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 50_000), min_size=1, max_size=50), st.integers(0, 50_000))
def test_the_count_above_a_duration_is_exact_between_bins(micros: list[int], at: int) -> None:
    x = np.array(micros) * 1e-6
    cut = bin_indices([at * 1e-6])[0]
    assert int((bin_indices(x) > cut).sum()) == LogHistogram.counts_above([LogHistogram.of(x)], at * 1e-6)[0]


def test_the_share_above_is_of_all() -> None:
    assert 0.25 == LogHistogram.of([0.1, 0.2, 0.3, 0.4]).fraction_above(0.31)


def test_gaps_of_zero_are_told_from_gaps_of_a_microsecond() -> None:
    h = LogHistogram.of([0.0, 0.0, 1e-6, 2e-6])
    assert [2] == LogHistogram.counts_above([h], 0.0)
    assert 0.0 == h.quantile(0.5)
    assert pytest.approx(X0, rel=ALPHA * 1.0001) == h.quantile(0.75)


def test_what_is_endless_is_in_the_last_bin_and_read_as_endless() -> None:
    h = LogHistogram.of([0.1, math.inf])
    assert math.inf == h.quantile(0.99)
    assert pytest.approx(0.1, rel=ALPHA) == h.quantile(0.5)


def test_neighbouring_bins_are_two_alpha_apart() -> None:
    values = bin_values(np.arange(1, 5000))
    assert np.full(4998, (1 + ALPHA) / (1 - ALPHA)) == pytest.approx(values[1:] / values[:-1])


def test_the_sum_is_exact() -> None:
    x = np.random.default_rng(1).lognormal(size=1000)
    assert x.sum() == pytest.approx(LogHistogram.of(x).total, rel=1e-12)


def test_the_dense_table_has_a_row_per_histogram_and_a_column_per_bin() -> None:
    a, b = LogHistogram.of([0.1, 0.1, 0.2]), LogHistogram.of([0.3])
    table = LogHistogram.dense([a, LogHistogram(), b])
    assert (3, 1 + bin_indices([0.3])[0]) == table.shape
    assert [3, 0, 1] == table.sum(axis=1).tolist()
    assert [2, 1] == table[0, bin_indices([0.1, 0.2])].tolist()


def test_an_empty_histogram_has_no_quantile() -> None:
    assert math.isnan(LogHistogram().quantile(0.5))
    assert math.isnan(LogHistogram().fraction_above(1.0))
    assert 0 == LogHistogram().count


@pytest.mark.parametrize("bad", [-1e-9, math.nan])
def test_what_is_no_duration_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="0 or more"):
        LogHistogram.of([0.1, bad])


def test_the_sparse_form_is_small() -> None:
    gaps = np.random.default_rng(2).normal(0.010, 0.001, 200_000)
    assert 10_000 > sum(array.nbytes for array in LogHistogram.flat([LogHistogram.of(gaps)]).values())
