"""Sessions and mixes of the simulated engine: what the search names keeps the limits of each class
in the long run.

The short form of `python -m benchmarks.calibration.mixes`, whose table is in
docs/validation/calibration.md.
"""

import functools

import pytest

from benchmarks.calibration import mixes
from frontier.core.stats.intervals import clopper_pearson

deployment = functools.cache(mixes.deployment)


@pytest.mark.slow
def test_a_search_over_sessions_finds_what_is_there() -> None:
    found = deployment("sessions", 0)
    (answer,) = found["answers"]
    assert answer["c"] is not None
    assert answer["excess"] <= 1
    assert answer["c"] >= 0.6 * found["at"], "the limits were drawn to hold there"


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("seeds", "fewest"), [((0,), 5), pytest.param((0, 1), 8, marks=pytest.mark.nightly)])
def test_limits_of_classes_are_seldom_broken(seeds: tuple[int, ...], fewest: int) -> None:
    drawn = [(family, seed) for seed in seeds for family in mixes.FAMILIES if family != "shares"]
    results = [deployment(family, seed) for family, seed in (*drawn, ("shares", 2), ("shares", 22))]
    answers = [a["excess"] for r in results for a in r["answers"] if a["c"] is not None]
    assert len(answers) >= fewest
    broken = sum(excess > 1 for excess in answers)
    assert clopper_pearson(broken, len(answers), 0.99)[0] <= 0.05, answers
    assert mixes.table(results).count("\n| ") == 5
