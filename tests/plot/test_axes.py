"""Ticks: round, enough of them to read a value, and no text on another."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier.model import Shape
from frontier.plot.axes import MOST_TICKS, TICK_GAP, legible, ticks_of
from frontier.plot.chart import NARROW, Scale, concurrency_scale, span_scale
from frontier.plot.data import View
from frontier.plot.layout import text_width
from frontier.plot.picture import picture, small_multiples
from frontier.plot.picture_model import TICKS, TICKS_SMALL, Picture
from tests.plot.toy import toy_frontier, toy_points


def gap(places: list[float], texts: list[str], points: float) -> float:
    """The least room between two texts centred at these pixels."""
    wide = [text_width(text, points) for text in texts]
    pairs = zip(itertools.pairwise(places), itertools.pairwise(wide), strict=True)
    return min((b - a - (wide_a + wide_b) / 2 for (a, b), (wide_a, wide_b) in pairs), default=1e9)


def of_scale(scale: Scale, room: tuple[float, float]) -> float:
    return gap([scale.fraction(at) * room[0] for at, _ in scale.ticks], [text for _, text in scale.ticks], room[1])


@given(st.floats(1e-3, 1e5), st.floats(1.02, 1e5), st.booleans())
def test_a_value_can_be_read_off_any_axis_and_no_text_touches_another(low: float, ratio: float, log: bool) -> None:
    high = low * ratio
    ticks = ticks_of(low, high, log=log, room=NARROW)

    assert (2 if high < 1e6 else 1) <= len(ticks) <= MOST_TICKS
    assert all(low <= at <= high * (1 + 1e-9) for at, _ in ticks)
    assert len({text for _, text in ticks}) == len(ticks)
    assert legible([at for at, _ in ticks], low, high, log, NARROW)


def test_a_logarithmic_axis_over_a_short_range_has_ticks() -> None:
    assert ["6.2", "6.4", "6.6", "6.8", "7", "7.2", "7.4"] == [text for _, text in ticks_of(6.1, 7.5, log=True)]


@pytest.mark.parametrize(
    "settings", [range(1, 41), (*range(1, 14), *range(20, 253, 8)), (1, 8, 32), (48, 50, 52), (7,)]
)
def test_concurrency_is_read_where_it_was_measured_up_to_both_ends(settings: tuple[int, ...]) -> None:
    scale = concurrency_scale(list(settings))
    shown = [int(text) for _, text in scale.ticks]

    assert {min(settings), max(settings)} <= set(shown) <= set(settings)
    assert of_scale(scale, NARROW) >= TICK_GAP - 1e-9
    widest = max((b / a for a, b in itertools.pairwise(shown)), default=1.0)
    assert widest <= 4 or len(settings) < 5


def texts_apart(found: Picture, points: float) -> None:
    for panel in found.panels:
        places = [panel.at(at, panel.y.high)[0] for at, _ in panel.x.ticks]
        assert gap(places, [text for _, text in panel.x.ticks], points) >= TICK_GAP - 1e-9
        assert len(panel.x.ticks) > 1


@pytest.mark.parametrize("knee", [20.0, 35.0, 60.0, 90.0, 150.0])
def test_the_texts_at_the_ticks_of_a_picture_leave_a_gap(knee: float) -> None:
    points = toy_points(knee=knee)
    shapes = [Shape.of(isl, 64) for isl in (128, 256, 512, 1024, 2048, 4096)]
    views = [View(of := toy_points(shape=s, knee=knee), toy_frontier(of)) for s in shapes]

    texts_apart(picture(points, toy_frontier(points)), TICKS)
    texts_apart(small_multiples(views), TICKS_SMALL)


def test_thousands_over_a_decade_do_not_run_into_each_other() -> None:
    scale = span_scale("ms", [310.0, 5100.0], log=True, across=True)

    assert ["500", "1,000", "2,000", "5,000"] == [text for _, text in scale.ticks]
