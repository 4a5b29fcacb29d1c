"""Live statistics of a running trial, against the exact figures of the same records."""

import math
import random

import pytest

from frontier.client.load.pipeline import LiveStats
from frontier.core.model.trials import Outcome, Record


def record(i: int, ttft: float | None, end: float, outcome: Outcome = Outcome.OK) -> Record:
    first = None if ttft is None else end - 1.0 + ttft
    return Record(i, 0, end - 1.0, outcome, end, 10, 20, first=first, last=end, completion_tokens=20)


def test_percentiles_are_the_exact_ones() -> None:
    rng = random.Random(1)
    values = [rng.lognormvariate(-2, 0.8) for _ in range(5000)]
    live = LiveStats(start=0.0)
    for i, value in enumerate(values):
        live.add(record(i, value, 1.0 + i * 0.01))

    for p in (0.5, 0.99):
        exact = sorted(values)[math.ceil(p * len(values)) - 1]
        assert live.ttft(p) == pytest.approx(exact)
    assert live.rate(100.0) == pytest.approx(5000 * 20 / 100.0)


def test_failures_are_infinite_and_what_was_cut_off_or_came_before_the_window_is_left_out() -> None:
    live = LiveStats()
    live.add(record(0, 0.1, 1.0))
    assert live.ttft(0.5) is None
    assert live.rate(9.0) is None
    live.start = 5.0
    live.add(record(1, 0.1, 4.0))
    live.add(record(2, None, 6.0, Outcome.CANCELLED))
    assert live.ttft(0.5) is None
    live.add(record(3, 0.1, 6.0))
    live.add(record(4, None, 6.0, Outcome.TIMEOUT))
    assert live.ttft(0.5) == pytest.approx(0.1)
    assert math.inf == live.ttft(0.99)
