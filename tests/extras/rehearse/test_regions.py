"""The regions of MLPerf Endpoints: its worked examples, and that they tile the concurrencies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier.extras.rehearse.endpoints_rules import REGIONS
from frontier.extras.rehearse.regions import Regions

NAMES = list(REGIONS)
EXAMPLES = [
    (1, 64, (2, 5), (6, 17), (18, 64), 71),
    (4, 512, (5, 12), (13, 68), (69, 512), 564),
    (1, 100, (2, 6), (7, 22), (23, 100), 111),  # in floats 1.10 * 100 is above 110
    (16, 1024, (17, 26), (27, 117), (118, 1024), 1127),
    (32, 33, (33, 33), (34, 33), (34, 33), 37),
]


@pytest.mark.parametrize(("lowest", "highest", "low", "medium", "high", "margin"), EXAMPLES)
def test_worked_examples(lowest, highest, low, medium, high, margin) -> None:
    regions = Regions.of(lowest, highest)
    assert [(1, lowest), low, medium, high] == list(regions.spans.values())
    assert margin == regions.margin


@given(st.integers(1, 32), st.integers(33, 5_000))
def test_regions_tile_what_lies_between_the_lowest_and_the_highest(lowest: int, highest: int) -> None:
    regions = Regions.of(lowest, highest)
    listed = [c for low, high in regions.spans.values() for c in range(low, high + 1)]
    assert list(range(1, highest + 1)) == listed
    assert [name for name in NAMES for c in range(1, highest + 1) if regions.region(c) == name]
    assert regions.region(highest + 1) is None
    if highest - lowest >= 3:
        assert all(low <= high for low, high in regions.spans.values())


@pytest.mark.parametrize(("lowest", "highest"), [(33, 64), (0, 64), (1, 32), (32, 32)])
def test_there_are_none_outside_of_what_a_curve_may_be(lowest: int, highest: int) -> None:
    with pytest.raises(ValueError, match="concurrency is"):
        Regions.of(lowest, highest)


def test_a_region_is_covered_by_a_point_in_it_and_one_without_room_by_its_edge() -> None:
    assert Regions.of(1, 64).uncovered([1, 5, 64]) == ["med_concurrency"]
    assert Regions.of(1, 64).uncovered([1, 64, 70]) == ["low_concurrency", "med_concurrency"]
    assert Regions.of(32, 33).uncovered([32, 33]) == []
