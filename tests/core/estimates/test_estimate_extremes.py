"""The worst request that was sent: a value without a bound, never a limit."""

from dataclasses import replace

import numpy as np
import pytest

from frontier import uncertainty
from frontier.core.estimates.estimate import estimate, point
from frontier.core.model.metrics import EXTREMES
from tests.core.estimates.test_estimate import a_sample, failing
from tests.kit.made import sample

WINDOW = a_sample()


def test_the_values_are_of_the_worst_request_and_have_no_bound() -> None:
    worst = {"max_ttft": WINDOW.ttft.max(), "max_e2e": WINDOW.e2e.max(), "min_interactivity": 1 / WINDOW.tpot.max()}
    assert worst.keys() == EXTREMES.keys()
    metrics = point(WINDOW).metrics
    for name, value in worst.items():
        assert (metrics[name].value, WINDOW.n) == (pytest.approx(value), metrics[name].n)
        assert not metrics[name].has_interval
        assert not metrics[name].has_bound


def test_a_failed_request_is_the_worst_and_what_is_not_known_is_missing() -> None:
    failed = failing(WINDOW, [3])
    values = [estimate(failed, name) for name in EXTREMES]
    assert [np.inf, np.inf, 0.0] == [each.value for each in values if each is not None]
    assert estimate(replace(WINDOW, tpot=np.full(WINDOW.n, np.nan)), "min_interactivity") is None


def test_a_frontier_is_drawn_over_them() -> None:
    rng = np.random.default_rng(1)
    windows = {c: sample(c, rng.lognormal(-3, 0.2, 500), np.full(500, 0.01)) for c in (4, 8)}
    for name in EXTREMES:
        drawn = uncertainty.replicates(windows, ("output_throughput", name))
        assert (4, 8) == drawn.loads
        for i, c in enumerate(drawn.loads):
            whole = estimate(windows[c], name)
            assert whole is not None
            better = (
                drawn.price[:, i] >= whole.value if name == "min_interactivity" else drawn.price[:, i] <= whole.value
            )
            assert better.all()
