"""Index of dispersion of counts and gap CV, against a count in a loop and against processes whose
values are known."""

import random

import pytest

from frontier.extras.workload.dispersion import LEAST_WINDOWS, dispersion_by_count, gap_cv, index_of_dispersion


def poisson(n: int, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    times = [0.0]
    while len(times) < n:
        times.append(times[-1] + rng.expovariate(2.0))
    return times


def counted(times: list[float], length: float, window: float) -> float:
    """The same, one window after another."""
    counts = []
    while (len(counts) + 1) * window <= length:
        low = len(counts) * window
        counts.append(sum(low <= time < low + window for time in times))
    mean = sum(counts) / len(counts)
    return sum((c - mean) ** 2 for c in counts) / (len(counts) - 1) / mean


def test_the_index_is_the_variance_of_the_counts_over_their_mean() -> None:
    times = poisson(500)
    for window in (0.7, 3.0, 11.0):
        assert index_of_dispersion(times, times[-1], window) == pytest.approx(counted(times, times[-1], window))


def test_a_poisson_process_has_one_at_every_scale_and_bunches_have_their_size() -> None:
    times = poisson(20_000)
    indices = dispersion_by_count(times, times[-1])
    assert len(indices) == 11, "windows of 1, 2, ... 1024 arrivals: there are ten of 2,000"
    assert indices[:9] == pytest.approx([1.0] * 9, abs=0.25)
    assert gap_cv(times) == pytest.approx(1.0, abs=0.03)
    bunches = sorted(5 * times)
    assert index_of_dispersion(bunches, times[-1], 10.0) == pytest.approx(5.0, rel=0.15)


def test_a_rate_that_moves_slowly_shows_in_long_windows_and_not_in_the_gaps() -> None:
    rng = random.Random(3)
    times, now = [0.0], 0.0
    while len(times) < 20_000:
        now += rng.expovariate(1.5 if now % 600 < 300 else 0.5)
        times.append(now)
    assert gap_cv(times) < 1.4
    in_short = index_of_dispersion(times, now, 1.0)
    assert in_short is not None
    assert 1 < in_short < 1.5
    # In windows of 60 s the rate is 1.5 or 0.5: 60 (of the Poisson process) and (60 x 0.5)^2 over
    # 60.
    assert index_of_dispersion(times, now, 60.0) == pytest.approx(1 + 30**2 / 60, rel=0.15)


def test_too_few_windows_give_none() -> None:
    assert index_of_dispersion([0.0, 1.0, 2.0], 3.0, 3.1 / LEAST_WINDOWS) is None
    assert index_of_dispersion([0.0, 1.0, 2.0], 3.0, 3.0 / LEAST_WINDOWS) is not None
