import time

import moocore
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier.core.claim import pareto
from frontier.core.model.points import FLAG_WORDS, Estimate, Flag, Point
from frontier.core.model.shapes import Shape
from tests.kit.golden import assert_golden_row

SHAPE = Shape.of(1024, 256)
coarse = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=40)


def point(concurrency, throughput, latency, *, flags=(), shape=SHAPE, deployment="d"):
    values = {"output_throughput": throughput, "p99_ttft": latency}
    metrics = {name: Estimate(v, v, v, 1000) for name, v in values.items() if v is not None}
    return Point(deployment, shape, concurrency, metrics, 1000, flags=flags)


def by_definition(high, low):
    return [
        not any(h2 >= h and l2 <= lo and (h2 > h or l2 < lo) for h2, l2 in zip(high, low, strict=True))
        for h, lo in zip(high, low, strict=True)
    ]


def test_the_filter_equals_moocore_on_thousands_of_tie_heavy_sets():
    rng = np.random.default_rng(1)
    for _ in range(3000):
        n, levels = rng.integers(1, 60), rng.integers(2, 12)
        high, low = rng.integers(0, levels, n).astype(float), rng.integers(0, levels, n).astype(float)
        expected = moocore.is_nondominated(np.column_stack((-high, low)), keep_weakly=True)
        assert list(expected) == list(pareto.nondominated(high, low))


def test_many_objectives_equal_moocore_and_the_two_axis_filter():
    rng = np.random.default_rng(2)
    for _ in range(400):
        n, d = rng.integers(1, 80), rng.integers(2, 6)
        table = rng.integers(0, 5, (n, d)).astype(float)
        expected = moocore.is_nondominated(table, keep_weakly=True)
        assert list(expected) == list(pareto.nondominated_nd(table))
    table = rng.integers(0, 50, (3000, 2)).astype(float)
    two = pareto.nondominated(table[:, 0], table[:, 1])
    assert list(two) == list(pareto.nondominated_nd(table * [-1, 1]))


def test_many_objectives_of_thousands_of_points_equal_moocore():
    table = np.random.default_rng(3).normal(size=(4000, 3))
    table /= np.linalg.norm(table, axis=1, keepdims=True)  # on a sphere: about a fifth of it is non-dominated
    expected = moocore.is_nondominated(table, keep_weakly=True)
    assert list(expected) == list(pareto.nondominated_nd(table))


@given(coarse)
def test_a_point_is_kept_exactly_when_no_other_beats_it(points):
    high, low = zip(*points, strict=True)
    assert by_definition(high, low) == list(pareto.nondominated(high, low))


@given(coarse)
def test_the_frontier_of_the_frontier_is_itself(points):
    high, low = np.array(points, float).T
    keep = pareto.nondominated(high, low)
    assert keep.any()
    assert pareto.nondominated(high[keep], low[keep]).all()


@given(coarse, st.randoms(use_true_random=False))
def test_the_order_of_the_points_does_not_matter(points, random):
    high, low = np.array(points, float).T
    order = list(range(len(points)))
    random.shuffle(order)
    assert list(pareto.nondominated(high, low)[order]) == list(pareto.nondominated(high[order], low[order]))


@given(coarse)
def test_copies_are_kept_with_their_original(points):
    high, low = np.array(points, float).T
    twice = pareto.nondominated(np.tile(high, 2), np.tile(low, 2))
    assert list(np.tile(pareto.nondominated(high, low), 2)) == list(twice)


@given(coarse)
def test_rescaling_an_axis_monotonically_changes_nothing(points):
    high, low = np.array(points, float).T
    assert list(pareto.nondominated(high, low)) == list(pareto.nondominated(np.exp(high), low**3 - 5))


@given(coarse, st.integers(0, 1000))
def test_adding_a_dominated_point_changes_nothing_else(points, pick):
    high, low = np.array(points, float).T
    i = pick % len(points)
    more = pareto.nondominated(np.append(high, high[i] - 0.5), np.append(low, low[i] + 0.5))
    assert [*pareto.nondominated(high, low), False] == list(more)


def test_nan_and_infinity_are_refused_not_sorted_somewhere():
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="cannot be compared"):
            pareto.nondominated([1.0, bad], [1.0, 2.0])
        with pytest.raises(ValueError, match="cannot be compared"):
            pareto.nondominated_nd([[1.0, 2.0], [bad, 1.0]])
    assert list(pareto.nondominated([], [])) == []


def test_a_frontier_excludes_by_name_and_reason_and_orders_by_concurrency():
    broken = (Flag("lockstep", "8.1", "2", "stagger the starts"),)
    points = [
        point(64, 2000, 0.9),
        point(1, 100, 0.05),
        point(32, 1800, 0.2),
        point(48, 1700, 0.3),
        point(96, 2100, float("inf")),
        point(8, 600, None),
        point(16, 9000, 0.01, flags=broken),
        point(4, float("nan"), 0.1),
    ]
    found = pareto.frontier(points, ("output_throughput", "p99_ttft"))
    assert (1, 32, 64) == found.members
    assert (48,) == found.dominated
    assert {4, 8, 16, 96} == set(found.excluded)
    assert "p99_ttft was not measured" == found.excluded[8]
    assert "output_throughput was not measured" == found.excluded[4]
    assert f"invalid: {FLAG_WORDS['lockstep']}" == found.excluded[16]
    assert "infinite" in found.excluded[96]


def test_a_flag_that_only_warns_keeps_its_point_on_the_frontier():
    warned = (Flag("drift", "3%", "5%", "look", fatal=False),)
    assert (1,) == pareto.frontier([point(1, 100, 0.1, flags=warned)], ("output_throughput", "p99_ttft")).members


def test_any_two_metrics_make_a_frontier_in_their_own_direction():
    def two(concurrency, ttft, speed):
        metrics = {"p99_ttft": Estimate(ttft, ttft, ttft, 9), "p50_interactivity": Estimate(speed, speed, speed, 9)}
        return Point("d", SHAPE, concurrency, metrics, 9)

    points = [two(1, 0.1, 50), two(2, 0.2, 60), two(3, 0.3, 55)]
    assert (1, 2) == pareto.frontier(points, ("p99_ttft", "p50_interactivity")).members
    assert (1, 2) == pareto.frontier(points, ("p50_interactivity", "p99_ttft")).members


def test_points_of_two_shapes_or_a_concurrency_twice_make_no_frontier():
    objectives = ("output_throughput", "p99_ttft")
    with pytest.raises(ValueError, match="one shape"):
        pareto.frontier([point(1, 1, 1), point(2, 1, 1, shape=Shape.of(8, 8))], objectives)
    with pytest.raises(ValueError, match="one deployment"):
        pareto.frontier([point(1, 1, 1), point(2, 1, 1, deployment="e")], objectives)
    with pytest.raises(ValueError, match="twice"):
        pareto.frontier([point(1, 1, 1), point(1, 2, 1)], objectives)


def test_all_points_excluded_leave_an_empty_frontier():
    found = pareto.frontier([point(1, 100, None)], ("output_throughput", "p99_ttft"))
    assert ((), ()) == (found.members, found.dominated)


@pytest.mark.parametrize("table", [[1.0, 2.0], [], [[], []]])
def test_what_is_no_table_of_objectives_is_refused(table):
    with pytest.raises(ValueError) as refused:
        pareto.nondominated_nd(table)
    assert_golden_row("messages", str(refused.value))


def test_a_large_set_takes_no_more_than_a_few_times_what_moocore_takes():
    rng = np.random.default_rng(5)
    high, low = rng.random(200_000), rng.random(200_000)
    table = np.column_stack((-high, low))

    def best(call):
        times = []
        for _ in range(3):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return min(times)

    # The published figure (benchmarks/pareto_speed.py) is for a million points on a quiet machine;
    # this one is a guard.
    theirs = best(lambda: moocore.is_nondominated(table, keep_weakly=True))
    assert 4 * theirs > best(lambda: pareto.nondominated(high, low))
