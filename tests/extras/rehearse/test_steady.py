"""The detector of steady state: its worked examples, planted drift, steps and noise; the bound on a
percentile."""

import math

import numpy as np
import pytest

from frontier.extras.rehearse.steady import (
    STEADY,
    SuperPasses,
    admissible,
    bound_rank,
    judged,
    lower_percentile,
    plateaus,
    trend,
)

LEAST = 600.0


def passes(values: list[float], seconds: float = 300.0) -> SuperPasses:
    """SuperPasses of these TPOT, its P50 and P90 alike."""
    series = np.array(values)
    return SuperPasses(100, (series, series), np.arange(len(values) + 1) * seconds)


@pytest.mark.parametrize(
    ("values", "p", "change", "steady"),
    [
        ([100, 105, 110, 115], 0.089, 0.14, True),  # four rising values are never significant
        ([100, 101, 102, 103, 104], 0.027, 0.039, True),
        ([100, 102, 104, 106, 108], 0.027, 0.077, False),
        ([100, 120, 100, 120, 100], 1.0, 0.0, False),  # a coefficient of variation of 0.091
    ],
)
def test_worked_examples(values: list[float], p: float, change: float, steady: bool) -> None:
    series = np.array(values, dtype=float)
    found = trend(series)
    assert (p, change) == (pytest.approx(found[0], abs=6e-4), pytest.approx(found[1], abs=1e-2))
    assert steady is admissible([series, series])


def test_the_plateau_is_the_longest_steady_stretch_from_its_beginning() -> None:
    rising = np.array([100.0, 102, 104, 106, 108])
    assert [(0, 4)] == plateaus((rising, rising), 0)


@pytest.mark.parametrize(
    ("values", "verdict", "status"),
    [
        ([100] * 6, STEADY, "windowable"),
        ([150, 100, 101, 99, 100, 101, 100], STEADY, "windowable"),
        ([100, 100, 130, 70, 130, 70, 130, 70], "not found", "insufficient_passes"),
        ([100 + 10 * i for i in range(12)], "not found", "insufficient_duration"),
        ([100] * 7 + [120] * 7, STEADY, "windowable"),  # the half that is cut off
        ([100] * 22 + [130] * 7, "anomaly", "windowable"),
        ([100] * 4, "not found", "insufficient_passes"),
        ([], "not found", "partial_dataset"),
        ([100, 100, math.nan, 100, 100, 100], "not found", "partial_dataset"),
    ],
)
def test_what_is_planted_is_found(values: list[float], verdict: str, status: str) -> None:
    found = judged(passes(values), LEAST)
    assert (verdict, status) == (found.verdict, found.status)


def test_a_steep_drift_has_its_direction() -> None:
    up = [100 * 1.4**i for i in range(12)]
    assert "drifting_up" == judged(passes(up), LEAST).verdict
    assert "drifting_down" == judged(passes(up[::-1]), LEAST).verdict


def test_a_window_is_long_enough_for_the_rules_or_it_is_not_the_official_one() -> None:
    flat = [100.0] * 6
    assert "insufficient_duration" == judged(passes(flat, 100.0), LEAST).status
    assert ("windowable", 1, 5, 625.0) == (
        (found := judged(passes(flat, 125.0), LEAST)).status,
        found.start,
        found.end,
        found.seconds,
    )
    assert "insufficient_duration" == judged(passes(flat, 125.0), 2 * LEAST).status


def test_noise_alone_is_steady() -> None:
    rng = np.random.default_rng(1)
    found = [judged(passes((100 + rng.normal(0, 1.5, 12)).tolist()), LEAST).verdict for _ in range(100)]
    assert found.count(STEADY) >= 95


FLOORS = {0.5: 11, 0.75: 24, 0.8: 31, 0.9: 64, 0.95: 130, 0.97: 219, 0.99: 662, 0.999: 6_636}
RANKS = {
    0.9: {64: 1, 1_000: 78, 6_396: 583, 13_368: 1_256},
    0.99: {662: 1, 1_000: 2, 2_000: 9, 10_000: 77},
}


def test_the_bound_on_a_percentile_has_their_floors_and_ranks() -> None:
    for p, floor in FLOORS.items():
        assert (None, 1) == (bound_rank(p, floor - 1), bound_rank(p, floor))
    for p, ranks in RANKS.items():
        assert ranks == {n: bound_rank(p, n) for n in ranks}


def test_a_percentile_is_the_rank_below_of_what_is_positive_and_finite() -> None:
    values = np.array([3.0, 1.0, 2.0, math.inf, math.nan, 0.0, -1.0, 4.0, 5.0])
    assert 4.0 == lower_percentile(values, 0.9)
    assert math.isnan(lower_percentile(np.array([math.inf]), 0.9))
