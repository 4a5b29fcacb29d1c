"""Words and layout: limits, intervals, cleaning, wrapping, placement."""

import math

import pytest

from frontier.decide.wording import clean, flag_kinds, interval_text, limit_text, unproven_words, value_text
from frontier.model import Estimate, Flag, Limit
from frontier.plot.layout import (
    ABOVE_FIRST,
    Canvas,
    Rect,
    Segment,
    mirrored,
    place_block,
    place_label,
    text_width,
    wrap,
)
from tests.plot.toy import toy_point


@pytest.mark.parametrize(
    ("name", "promise", "text"),
    [
        ("p99_ttft", 0.5, "p99 TTFT ≤ 500 ms"),
        ("p99_tpot", 0.03, "p99 TPOT ≤ 30 ms"),
        ("p99_e2e", 1.5, "p99 E2E ≤ 1.5 s"),
        ("error_rate", 0.01, "error rate ≤ 1%"),
        ("p50_interactivity", 20.0, "p50 interactivity ≥ 20 tok/s/user"),
    ],
)
def test_limits_read_as_they_were_written(name: str, promise: float, text: str) -> None:
    assert text == limit_text(Limit(name, promise))


def test_an_interval_has_the_unit_of_its_value() -> None:
    assert "[373, 438]" == interval_text("p99_ttft", Estimate(0.396, 0.373, 0.438, 900))
    assert "[0.963, 1.14]" == interval_text("p99_ttft", Estimate(1.04, 0.963, 1.14, 900))
    assert "[704, 721]" == interval_text("output_throughput", Estimate(2850, 2816, 2884, 900), 4)
    assert "[373, ∞]" == interval_text("p99_ttft", Estimate(0.396, 0.373, math.inf, 100))
    assert "" == interval_text("p99_ttft", Estimate.without_interval(0.396, 100))


def test_what_is_not_known_is_a_dash() -> None:
    assert "–" == value_text("p99_ttft", None)
    assert "–" == value_text("output_throughput", math.nan)


def test_cleaning_removes_what_a_terminal_or_a_page_could_obey() -> None:
    assert "ab c d" == clean("a\x1bb\r\nc\td\x00\u202e\u200b\ud800")
    assert 160 == len(clean("x" * 1000))
    assert "naïve 漢字 ≤" == clean("naïve 漢字 ≤")


def test_wrapped_lines_fit_and_are_about_equal() -> None:
    text = "Nothing measured keeps p99 TTFT below 20 ms: closest is concurrency 1 at 47 ms, so look elsewhere"
    lines = wrap(text, 16, 800, bold=True)

    assert 2 == len(lines)
    assert text == " ".join(lines)
    widths = [text_width(line, 16, bold=True) for line in lines]
    assert max(widths) <= 800
    assert min(widths) > 0.6 * max(widths)


def test_what_does_not_fit_is_cut_with_an_ellipsis() -> None:
    lines = wrap("word " * 100, 10, 200, lines=2)

    assert 2 == len(lines)
    assert lines[-1].endswith("…")
    assert text_width(lines[-1], 10) <= 200


def test_a_label_goes_to_the_next_side_when_one_is_taken() -> None:
    canvas = Canvas(Rect(0, 0, 200, 200))
    first = place_label(canvas, 100, 100, (20, 10), ABOVE_FIRST, gap=8)
    second = place_label(canvas, 100, 100, (20, 10), ABOVE_FIRST, gap=8)

    assert first is not None
    assert second is not None
    assert not first.overlaps(second)
    assert first.x1 <= 100
    assert first.y0 >= 100


def test_a_label_without_room_is_left_out() -> None:
    canvas = Canvas(Rect(90, 90, 110, 110))

    assert place_label(canvas, 100, 100, (20, 10), ABOVE_FIRST, gap=8) is None


def test_an_annotation_keeps_clear_of_lines_and_its_leader_ends_at_the_point() -> None:
    canvas = Canvas(Rect(0, 0, 600, 400))
    canvas.draw(0, 200, 600, 200, 6)
    found = place_block(canvas, 300, 200, [120.0, 100.0], 18.0, away=90)

    assert found is not None
    box, leader = found
    assert not box.crossed_by(Segment(0, 200, 600, 200))
    assert 13.0 == pytest.approx(math.dist((leader.x1, leader.y1), (300, 200)))


def test_preferences_turn_with_the_direction_that_is_better() -> None:
    assert "above right" == mirrored(ABOVE_FIRST, sideways=True, upside_down=False)[0]
    assert "below left" == mirrored(ABOVE_FIRST, sideways=False, upside_down=True)[0]
    assert set(ABOVE_FIRST) == set(mirrored(ABOVE_FIRST, sideways=True, upside_down=True))


def test_a_line_crosses_a_box_or_does_not() -> None:
    box = Rect(0, 0, 10, 10)

    assert box.crossed_by(Segment(-5, 5, 15, 5))
    assert box.crossed_by(Segment(2, 2, 3, 3))
    assert not box.crossed_by(Segment(-5, 11, 15, 12))
    assert not box.crossed_by(Segment(-5, 4, 4, 25))


def test_many_settings_with_few_figures_are_listed_under_each() -> None:
    few = [toy_point(c, flags=(Flag("few", "401 requests" if c == 8 else "400 requests", "1000", "ask for more"),))
           for c in (1, 2, 4, 8, 16, 32)]  # fmt: skip
    (kind,) = flag_kinds(few)

    assert "few (limit 1000): 400 requests at c=1, c=2, c=4, c=16, c=32; 401 requests at c=8" == kind.text()


def test_a_limit_that_depends_on_the_setting_stands_beside_each_figure() -> None:
    few = [toy_point(c, flags=(Flag("few", f"{n} requests", least, "ask for more"),))
           for c, n, least in ((42, 400, "1000"), (64, 1200, "1280"))]  # fmt: skip
    (kind,) = flag_kinds(few)

    assert "few: c=42 400 requests (limit 1000), c=64 1200 requests (limit 1280)" == kind.text()


@pytest.mark.parametrize(
    ("estimate", "need", "words"),
    [
        (Estimate(0.02, 0.019, 0.021, 601), 1280, "601 of about 1,300 requests"),
        (Estimate(0.02, 0.019, math.inf, 601), None, "too few requests"),
        (Estimate.without_interval(0.02, 0), None, "interval not known"),
        (None, None, "not measured"),
    ],
)
def test_why_nothing_is_proven_of_a_setting(estimate: Estimate | None, need: int | None, words: str) -> None:
    assert words == unproven_words(estimate, need)
