import pytest

from frontier.core.claim import pareto
from frontier.core.estimates import estimate
from frontier.core.model.points import Estimate, Flag, Point
from frontier.show.view.frontier_summary import retrograde, summarise
from frontier.show.view.json_out import littles_law
from tests.kit.made import SHAPE, Server, trial

GRID = (1, 2, 4, 8, 16, 32, 64, 128)


def exact(value):
    return Estimate(value, value, value, 1000)


def point(c, throughput, spread=0.0, **metrics):
    found = {"output_throughput": Estimate(throughput, throughput * (1 - spread), throughput * (1 + spread), 20)}
    return Point("d", SHAPE, c, found | {k: exact(v) for k, v in metrics.items()}, 1000)


def test_a_regression_has_to_be_more_than_noise():
    sure = [point(1, 100), point(2, 200), point(4, 190), point(8, 210)]
    assert (4,) == retrograde(sure)
    overlapping = [point(1, 100), point(2, 200), point(4, 190, spread=0.06)]
    assert () == retrograde(overlapping)


def test_the_knee_has_the_most_throughput_per_latency():
    law = [(1, 1, 1.0), (8, 7, 1.1), (32, 20, 1.6), (64, 22, 2.9), (128, 22, 5.8)]
    points = [point(c, x, request_throughput=x, mean_e2e=r) for c, x, r in law]
    assert 32 == pareto.knee(points)
    assert pareto.knee(points[:1]) is None


def test_invalid_points_take_no_part():
    bad = Point("d", SHAPE, 256, {"output_throughput": exact(1.0)}, 9, flags=(Flag("lockstep", "", "", ""),))
    points = [point(c, 10 * c / (1 + 0.03 * (c - 1))) for c in GRID]
    of = pareto.frontier(points, ("output_throughput", "output_throughput"))
    found, none = summarise(of, [*points, bad]), summarise(of, [bad])
    assert found == summarise(of, points)
    assert (None, ()) == (none.knee, none.retrograde)


def test_rate_times_latency_is_the_concurrency():
    found = littles_law(estimate.point(Server(ttft=lambda c: 0.01 * c).run(trial(16, requests=2000))))
    assert 1.0 == pytest.approx(found.value, abs=0.02)
    assert found.low <= found.value <= found.high
    assert littles_law(point(1, 1)) is None
