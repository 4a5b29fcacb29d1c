import math

import numpy as np
import pytest

from frontier.decide import capacity
from frontier.model import Estimate, Flag, Point
from frontier.stats import estimate
from tests.stats.made import SHAPE, Server, trial

GRID = np.array([1, 2, 4, 8, 16, 32, 64, 128], float)


def exact(value):
    return Estimate(value, value, value, 1000)


def point(c, throughput, spread=0.0, **metrics):
    found = {"output_throughput": Estimate(throughput, throughput * (1 - spread), throughput * (1 + spread), 20)}
    return Point("d", SHAPE, int(c), found | {k: exact(v) for k, v in metrics.items()}, 1000)


def usl(n, rate=10.0, contention=0.03, coherency=3e-4):
    return rate * n / (1 + contention * (n - 1) + coherency * n * (n - 1))


def test_the_scalability_law_is_recovered_from_its_own_curve():
    fit, peak = capacity.fit_usl(GRID, usl(GRID))
    assert {"rate": 10.0, "contention": 0.03, "coherency": 3e-4} == pytest.approx(fit.parameters, rel=1e-4)
    assert math.sqrt(0.97 / 3e-4) == pytest.approx(peak.value, rel=1e-3)
    assert usl(40.0) == pytest.approx(fit(40), rel=1e-4)


def test_a_peak_outside_what_was_measured_is_not_named():
    _, peak = capacity.fit_usl(GRID, usl(GRID, coherency=1e-5))  # N* = 311
    assert peak is None


def test_a_peak_that_only_noise_shows_is_not_named():
    rng = np.random.default_rng(1)
    named = 0
    for _ in range(60):
        _, peak = capacity.fit_usl(GRID, usl(GRID, coherency=0.0) * (1 + 0.03 * rng.standard_normal(8)))
        named += peak is not None
    assert named <= 6  # the two-sided 95 % interval of a coherency that is zero


def test_a_real_peak_inside_the_range_is_found_through_noise():
    rng = np.random.default_rng(2)
    found = []
    for _ in range(30):
        _, peak = capacity.fit_usl(GRID, usl(GRID) * (1 + 0.02 * rng.standard_normal(8)))
        if peak is not None:
            found.append(peak.value)
    assert len(found) > 25
    assert math.sqrt(0.97 / 3e-4) == pytest.approx(float(np.median(found)), rel=0.1)


def test_the_capped_line_is_recovered_exactly_with_and_without_its_cap():
    capped = np.minimum(GRID / (0.5 + 0.02 * GRID), 20.0)
    fit = capacity.fit_capped(GRID, capped)
    assert {"a": 0.5, "b": 0.02, "cap": 20.0} == pytest.approx(fit.parameters)
    assert fit.error < 1e-9
    free = capacity.fit_capped(GRID, GRID / (0.5 + 0.02 * GRID))
    assert {"a": 0.5, "b": 0.02} == pytest.approx({k: free.parameters[k] for k in "ab"})
    assert free(64) == pytest.approx(64 / 1.78)


def test_the_model_that_fits_is_the_one_reported():
    cliff = np.minimum(GRID / (0.5 + 0.001 * GRID), 60.0)
    found = capacity.capacity([point(c, x) for c, x in zip(GRID, cliff, strict=True)])
    assert ("capped", 2) == (found.best.model, len(found.fits))
    folding = capacity.capacity([point(c, x) for c, x in zip(GRID, usl(GRID), strict=True)])
    assert "usl" == folding.best.model
    assert folding.peak is not None


def test_four_points_are_too_few_for_three_parameters():
    assert (None, None) == capacity.fit_usl(GRID[:4], usl(GRID[:4]))
    assert capacity.fit_capped(GRID[:4], usl(GRID[:4])) is None


def test_a_regression_has_to_be_more_than_noise():
    sure = [point(1, 100), point(2, 200), point(4, 190), point(8, 210)]
    assert (4,) == capacity.retrograde(sure)
    overlapping = [point(1, 100), point(2, 200), point(4, 190, spread=0.06)]
    assert () == capacity.retrograde(overlapping)


def test_throughput_that_falls_while_latency_jumps_is_thrashing():
    points = [
        point(16, 900, p99_e2e=2, p50_ttft=0.1, p99_ttft=0.2, p50_tpot=0.01),
        point(32, 1000, p99_e2e=3, p50_ttft=0.1, p99_ttft=0.3, p50_tpot=0.012),
        point(64, 700, p99_e2e=9, p50_ttft=0.2, p99_ttft=0.5, p50_tpot=0.03),
    ]
    found = capacity.capacity(points)
    assert ("thrashing", 64, (64,)) == (found.limit, found.onset, found.retrograde)


def test_flat_throughput_with_only_the_first_token_waiting_is_queueing():
    points = [
        point(32, 1000, p99_e2e=3, p50_ttft=0.1, p99_ttft=0.3, p50_tpot=0.012),
        point(64, 1005, p99_e2e=6, p50_ttft=2.1, p99_ttft=3.3, p50_tpot=0.012),
    ]
    found = capacity.capacity(points)
    assert ("queueing", 64, ()) == (found.limit, found.onset, found.retrograde)
    growing = [points[0], point(64, 1700, p50_ttft=2.1, p99_ttft=3.3, p50_tpot=0.012)]
    assert capacity.capacity(growing).limit is None


def test_the_knee_has_the_most_throughput_per_latency():
    law = [(1, 1, 1.0), (8, 7, 1.1), (32, 20, 1.6), (64, 22, 2.9), (128, 22, 5.8)]
    points = [point(c, x, request_throughput=x, mean_e2e=r) for c, x, r in law]
    assert 32 == capacity.knee(points)
    assert capacity.knee(points[:1]) is None


def test_invalid_points_take_no_part():
    bad = Point("d", SHAPE, 256, {"output_throughput": exact(1.0)}, 9, flags=(Flag("lockstep", "", "", ""),))
    points = [point(c, x) for c, x in zip(GRID, usl(GRID, coherency=0.0), strict=True)]
    assert capacity.capacity(points) == capacity.capacity([*points, bad])
    assert capacity.Capacity() == capacity.capacity([bad])


def test_rate_times_latency_is_the_concurrency():
    found = capacity.littles_law(estimate.point(Server(ttft=lambda c: 0.01 * c).run(trial(16, requests=2000))))
    assert 1.0 == pytest.approx(found.value, abs=0.02)
    assert found.low <= found.value <= found.high
    assert capacity.littles_law(point(1, 1)) is None
