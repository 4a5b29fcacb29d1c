"""Widths of text, wrapping, and places that are free."""

import math

import pytest

from frontier.show.picture.data import Axis, Line, Mark, Panel, Role
from frontier.show.picture.draw import defaults
from frontier.show.picture.layout import PanelLayout
from frontier.show.picture.text_size import fit, text_width, wrap

X, Y = Axis("x", 0, 100), Axis("y", 0, 100)


def laid_out(*marks: Mark, lines: tuple[Line, ...] = ()) -> PanelLayout:
    with defaults():
        return PanelLayout(Panel("", X, Y, lines, marks), 600, 400, 11).run()


def test_wrapped_lines_fit_and_are_about_equal() -> None:
    text = "Nothing measured keeps p99 TTFT below 20 ms: closest is concurrency 1 at 47 ms, so look elsewhere"
    with defaults():
        lines = wrap(text, 16, 800, bold=True)
        widths = [text_width(line, 16, bold=True) for line in lines]

    assert text == " ".join(lines)
    assert 2 == len(lines)
    assert max(widths) <= 800
    assert min(widths) > 0.6 * max(widths)


@pytest.mark.parametrize("text", ["word " * 100, "x" * 500, "word " + "x" * 500 + " word"])
def test_what_does_not_fit_is_cut_with_an_ellipsis(text: str) -> None:
    with defaults():
        lines = wrap(text, 10, 200, lines=2)
        assert max(text_width(line, 10) for line in lines) <= 200
        assert text_width(fit(text, 10, 200, middle=True), 10) <= 200

    assert any(line.endswith("…") for line in lines)


def test_a_box_is_free_where_it_touches_neither_a_line_nor_a_box_nor_the_edge() -> None:
    canvas = PanelLayout(Panel("", X, Y), 100, 100, 11)
    canvas.draw([(0, 0), (100, 100)])
    canvas.boxes.append((60, 10, 80, 30))

    assert canvas.free((10, 60, 30, 80))
    assert not canvas.free((40, 40, 50, 60)), "the diagonal goes through it"
    assert canvas.free((10, 30, 25, 70)), "its extent meets the diagonal's, not the line"
    assert not canvas.free((70, 20, 90, 25))
    assert not canvas.free((90, 90, 110, 95))


def test_a_number_goes_to_another_side_when_one_is_taken_and_to_the_notes_when_all_are() -> None:
    one = Mark(1, 50, 50, Role.FRONTIER, text="1")
    (alone,) = laid_out(one).placed
    wall = Line("", ((40, 55), (60, 55)), kind="fit")
    (moved,) = laid_out(one, lines=(wall,)).placed
    hatch = tuple(Line("", ((0, y), (100, y)), kind="fit") for y in range(0, 101, 2))

    assert alone.box[1] > 200, "above its mark"
    assert moved.box[3] < 55 * 4
    assert [one] == laid_out(one, lines=hatch).unnumbered


STAR = Mark(64, 50, 50, Role.FRONTIER, text="64", words="run here: c=64", star=Role.OPERATING)


def test_the_words_of_a_mark_keep_clear_of_lines_and_their_leader_ends_at_it() -> None:
    lines = tuple(Line("", ((0, y), (100, y)), kind="fit") for y in range(40, 61, 4))
    (placed,) = laid_out(STAR, lines=lines).placed

    assert "run here: c=64" == placed.text
    assert not placed.box[1] <= 240
    assert placed.leader is not None
    assert 9.0 == pytest.approx(math.dist(placed.leader[:2], (300, 200)))


def test_the_words_of_a_mark_stand_beside_it_or_are_never_lost() -> None:
    (placed,) = laid_out(STAR).placed
    assert "run here: c=64" == placed.text
    assert placed.leader is None
    none = laid_out(STAR, lines=tuple(Line("", ((0, y), (100, y)), kind="fit") for y in range(101)))
    assert ["run here: c=64"] == none.unplaced
    assert [STAR] == none.unnumbered


def test_a_number_without_a_leader_is_nearest_to_its_own_mark() -> None:
    places = {c: (40 + 1.8 * c, 50.0 + c) for c in range(1, 9)}
    walls = [Line("", tuple((x, y + by) for x, y in places.values()), kind="fit") for by in (4, -4)]
    crowd = [Mark(c, x, y, Role.FRONTIER, text=str(c)) for c, (x, y) in places.items()]
    placed = laid_out(*crowd, lines=tuple(walls)).placed
    assert any(words.leader for words in placed)
    for words in placed:
        middle = ((words.box[0] + words.box[2]) / 2, (words.box[1] + words.box[3]) / 2)
        distances = {c: math.dist((6 * x, 4 * y), middle) for c, (x, y) in places.items()}
        assert words.leader or min(distances, key=distances.__getitem__) == int(words.text)
