"""Ticks: round, enough of them to read a value, and no text on another."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier.extras.present.figure_axes import concurrency_axis
from frontier.show.picture.data import Axis
from frontier.show.picture.draw import defaults
from frontier.show.picture.text_size import text_width
from frontier.show.picture.ticks import ticks_of
from tests.kit.made import loads

LENGTH, POINTS = 210.0, 9.5
"""The narrowest axis of a figure, one of three side by side, and the size of its text."""


def gap(axis: Axis, ticks: list[tuple[float, str]]) -> float:
    """The least room between the texts of two neighbours."""
    places = [(axis.fraction(value) * LENGTH, text_width(text, POINTS)) for value, text in ticks]
    return min((b - a - (m + n) / 2 for (a, m), (b, n) in itertools.pairwise(places)), default=1e9)


@given(st.floats(1e-3, 1e5), st.floats(1.02, 1e5), st.booleans())
def test_a_value_can_be_read_off_any_axis_and_no_text_touches_another(low: float, ratio: float, log: bool) -> None:
    axis = Axis("", low, low * ratio, log)
    with defaults():
        ticks = list(ticks_of(axis, LENGTH, POINTS, upright=False))
        assert gap(axis, ticks) >= 6.9

    assert (2 if axis.high < 1e5 else 1) <= len(ticks) <= 10
    assert [] == [value for value, _ in ticks if not axis.low <= value <= axis.high * (1 + 1e-9)]
    assert len({text for _, text in ticks}) == len(ticks)


def test_a_logarithmic_axis_over_a_short_range_has_ticks() -> None:
    with defaults():
        ticks = ticks_of(Axis("", 6.1, 7.5, log=True), 400, POINTS, upright=False)
    assert ["6.2", "6.4", "6.6", "6.8", "7", "7.2", "7.4"] == [text for _, text in ticks]


def test_linear_ticks_of_a_logarithmic_axis_are_fitted_where_they_are_drawn() -> None:
    axis = Axis("", 91429.0, 171429.375, log=True)
    with defaults():
        assert gap(axis, list(ticks_of(axis, LENGTH, POINTS, upright=False))) >= 6.9


def test_thousands_over_a_decade_do_not_run_into_each_other() -> None:
    with defaults():
        ticks = ticks_of(Axis("ms", 270.0, 5900.0, log=True), LENGTH, POINTS, upright=False)
    assert ["500", "1,000", "2,000", "5,000"] == [text for _, text in ticks]


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        (range(1, 41), 4),
        ((*range(1, 14), *range(20, 253, 8)), 4),
        ((1, 8, 32), 8),
        ((48, 50, 52), 2),
        ((7,), 1),
    ],
)
def test_concurrency_is_read_where_it_was_measured_up_to_both_ends(settings: tuple[int, ...], most: float) -> None:
    axis = concurrency_axis(loads(*settings))
    with defaults():
        ticks = list(ticks_of(axis, LENGTH, POINTS, upright=False))
        assert gap(axis, ticks) >= 6.9
    shown = [int(text) for _, text in ticks]

    assert {min(settings), max(settings)} <= set(shown) <= set(settings)
    widest = max((b / a for a, b in itertools.pairwise(shown)), default=1.0)
    assert widest <= most
