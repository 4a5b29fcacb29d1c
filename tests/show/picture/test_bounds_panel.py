"""The panel of bounds: when there is one, and what its rows show."""

from dataclasses import replace

import pytest
from matplotlib.text import Text

from frontier.core.model.decisions import Limit
from frontier.core.model.loads import SessionRate
from frontier.core.model.points import Point
from frontier.show.picture.bounds_panel import MOST, bounds_panel
from frontier.show.picture.data import Panel, Role
from frontier.show.picture.draw import defaults, draw
from frontier.show.view.series_view import series_view
from tests.kit.toy import LIMIT, estimate, picture, toy_decision, toy_frontier, toy_point

MS, INF = 1e-3, float("inf")
NEAR = {8: 100.0, 48: 440.0, 56: 478.0, 64: 505.0, 80: 565.0, 128: 900.0}
"""p99 TTFT in ms by concurrency, around a limit of 500."""


def points(values: dict[int, float] = NEAR) -> list[Point]:
    made = []
    for c, value in values.items():
        point = toy_point(c)
        made.append(replace(point, metrics={**point.metrics, "p99_ttft": estimate(value * MS, 0.02)}))
    return made


def panel(measured: list[Point], limit: Limit = LIMIT) -> Panel | None:
    return bounds_panel([series_view(measured, toy_frontier(measured), toy_decision(measured, (limit,)))])


def test_each_setting_near_the_limit_has_a_row_with_its_value_and_the_bound_that_decides() -> None:
    measured = points()
    found = panel(measured)
    assert found is not None
    of = {p.load: p.metrics["p99_ttft"] for p in measured}

    assert [48, 56, 64, 80] == [mark.load for mark in found.marks]
    assert ["440 ms", "478 ms", "505 ms", "565 ms"] == [name.partition("  ")[2] for name in found.y.names]
    assert [(rule.axis, rule.at) for rule in found.rules] == [("x", 500.0)]
    for row, mark in enumerate(found.marks):
        e = of[mark.load]  # type: ignore[index]
        assert (pytest.approx(e.value * 1e3), row) == (mark.x, mark.y)
        bound = e.upper if e.value <= LIMIT.promise else e.lower
        assert mark.x_bar is not None
        assert sorted((e.value * 1e3, bound * 1e3)) == pytest.approx([mark.x_bar.low, mark.x_bar.high])
    assert [Role.OPERATING if c == 56 else None for c in (48, 56, 64, 80)] == [mark.star for mark in found.marks]


def test_the_answer_and_its_neighbours_have_rows_however_far_they_are() -> None:
    found = panel(points({1: 50.0, 8: 100.0, 56: 420.0, 128: 9000.0}))
    assert found is not None
    assert [8, 56, 128] == [mark.load for mark in found.marks]
    assert [False, False, True] == [mark.beyond for mark in found.marks]
    assert all(found.x.holds(end) for mark in found.marks if mark.x_bar for end in (mark.x_bar.low, mark.x_bar.high))


def test_without_a_limit_or_a_neighbour_there_is_no_panel() -> None:
    assert panel(points({56: 478.0})) is None
    assert picture(points(), toy_frontier(points())).strip is None


def test_a_value_without_a_bound_runs_to_the_edge() -> None:
    measured = points()
    open_ended = replace(measured[1].metrics["p99_ttft"], upper=float("inf"))
    measured[1] = replace(measured[1], metrics={**measured[1].metrics, "p99_ttft": open_ended})
    found = panel(measured)
    assert found is not None
    assert found.marks[0].x_bar is not None

    assert found.x.high == found.marks[0].x_bar.high


def test_of_many_settings_the_nearest_have_rows() -> None:
    found = panel(points({c: 460.0 + c for c in range(1, 61)}))
    assert found is not None

    assert MOST == len(found.marks)
    answer = next(mark for mark in found.marks if mark.star)
    assert all(abs(mark.x - 500) <= 6 or abs(mark.load - answer.load) <= 1 for mark in found.marks)


def test_the_picture_draws_it_below_the_frontier() -> None:
    measured = points()
    drawn = picture(measured, toy_frontier(measured), toy_decision(measured))

    assert drawn.strip == panel(measured)


def test_the_names_of_its_rows_are_not_cut_at_the_edge() -> None:
    measured = [replace(p, load=SessionRate.of(p.load + 0.387)) for p in points()]
    drawn = picture(measured, toy_frontier(measured), toy_decision(measured))
    assert drawn.strip is not None
    with defaults():
        figure = draw(drawn)
        figure.canvas.draw()
    names = [text for text in figure.findobj(Text) if text.get_text() in drawn.strip.y.names]

    assert len(names) >= 4
    assert all(name.get_window_extent().x0 >= 0 for name in names)


def panel_of_two(first: Limit, second: Limit) -> Panel:
    measured = points()
    views = [
        series_view(measured, toy_frontier(measured), toy_decision(measured, (limit,)), (limit,))
        for limit in (first, second)
    ]
    found = bounds_panel(views, ("bf16", "fp8"), (Role.FRONTIER, Role.OTHER))
    assert found is not None
    return found


def test_of_several_series_each_answer_has_rows_with_its_neighbours_in_its_colour() -> None:
    found = panel_of_two(LIMIT, LIMIT)
    assert [48, 56, 64] * 2 == [mark.load for mark in found.marks]
    assert [Role.FRONTIER] * 3 + [Role.OTHER] * 3 == [mark.role for mark in found.marks]
    assert ["bf16"] * 3 + ["fp8"] * 3 == [name.partition("  ")[0] for name in found.y.names]
    assert ("p99_ttft", [500.0]) == (found.x.metric, [rule.at for rule in found.rules])


def test_where_limits_differ_the_axis_is_in_percent_of_each() -> None:
    found = panel_of_two(LIMIT, Limit("p99_ttft", 1.0))
    assert [100.0] == [rule.at for rule in found.rules]
    assert (88.0, 95.6, 101.0) == pytest.approx([mark.x for mark in found.marks[:3]], abs=0.1)
    assert [0, 1, 2] == [row for row, name in enumerate(found.y.names) if "of 500 ms" in name]
    for mark in found.marks:
        assert found.x.holds(mark.x)


def test_an_aggregate_has_its_value_and_no_line() -> None:
    bare = [
        replace(p, metrics={**p.metrics, "p99_ttft": replace(e, low=-INF, high=INF, lower=-INF, upper=INF)})
        for p in points()
        for e in [p.metrics["p99_ttft"]]
    ]
    found = panel(bare)
    assert found is not None
    assert {None} == {mark.x_bar for mark in found.marks}
