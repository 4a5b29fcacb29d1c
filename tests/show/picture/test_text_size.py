"""Every text as it is really drawn lies inside its figure and on no other text, in the cases that
crowd it most."""

import dataclasses
import itertools

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from frontier.core.model.decisions import Limit
from frontier.core.model.points import Flag, Point
from frontier.core.model.shapes import Shape
from frontier.extras.compare.multi_run import Group, together
from frontier.extras.present.series_figures import FROM_POINTS, time_figure
from frontier.show.picture.data import Picture
from frontier.show.picture.draw import defaults, draw
from frontier.show.picture.frontier_picture import small_multiples
from frontier.show.picture.layout import PanelLayout, _touches
from frontier.show.picture.text_size import wrap
from frontier.show.view.series_view import DrawnRoofline, SeriesView, changed, series_view
from frontier.show.view.wording import Provenance
from tests.kit.toy import LADDER, LIMIT, toy_decision, toy_frontier, toy_points, with_times

LONG = "meta-llama/Llama-3.1-405B-Instruct-dynamically-quantized-fp8"
FOOT = Provenance(run="2026-11-20-" + LONG[11:], model=LONG, server="vllm 0.33.1+" + "g" * 40, hardware="8 × H200")
EIGHT = (1, 4, 8, 16, 32, 64, 96, 128)
FORTY = (*range(1, 9), *range(10, 42, 2), *range(44, 108, 4))
SHAPES = [Shape.of(1024, 256), Shape.of(8192, 512), Shape.of(128, 2048), Shape.of(32768, 128), Shape.of(512, 512)]
DRIFT = Flag("non_stationary", "TPOT from half to half +12%, TTFT from half to half +31%", "10%", "measure longer")
CACHE = Flag("cache_contaminated", "a cached share of 41% of the prompt tokens", "5%", "send fresh prompts")


def flagged(points: list[Point]) -> list[Point]:
    """The last third, for one reason or for two."""
    least = len(points) * 2 // 3
    flags = itertools.cycle([(DRIFT,), (DRIFT, CACHE)])
    return [dataclasses.replace(p, flags=next(flags)) if i >= least else p for i, p in enumerate(points)]


def view(ladder: tuple[int, ...], deployment: str = LONG, shape: Shape = SHAPES[0], peak: float = 3300.0) -> SeriesView:
    points = toy_points(ladder, deployment=deployment, shape=shape, peak=peak)
    points = flagged(points) if len(points) > 1 else points
    decision = toy_decision(points, (LIMIT, Limit("p99_tpot", 0.03)))
    roofline = DrawnRoofline(
        3430.0, "HBM roofline at c=128, bf16 weights 16 GB, KV 131 kB/token; memory bandwidth binds"
    )
    return series_view(points, toy_frontier(points), decision, roofline=roofline, gpus=8)


def several(number: int) -> Picture:
    ladders = itertools.cycle([EIGHT, FORTY, (16,)])
    return small_multiples([view(next(ladders), shape=SHAPES[i]) for i in range(number)], footer=FOOT)


def laid_over(*ladders: tuple[int, ...]) -> Picture:
    names = ("bf16", LONG + "-a", LONG + "-b", "int4")
    groups = []
    for shape, ladder in zip(SHAPES, ladders, strict=False):
        views = [view(ladder, name, shape, 3300.0 - 400 * i) for i, name in enumerate(names)]
        groups.append(Group(names, tuple(views)))
    return together(groups, footer=FOOT)


CASES = {
    "one point": lambda: small_multiples([view((16,))], footer=FOOT),
    "eight": lambda: small_multiples([view(EIGHT)], footer=FOOT),
    "forty": lambda: small_multiples([view(FORTY)], footer=FOOT),
    "all to 128": lambda: small_multiples([view(tuple(range(1, 129)))], footer=FOOT),
    "two shapes": lambda: several(2),
    "five shapes": lambda: several(5),
    "overlay": lambda: laid_over(EIGHT),
    "crowded overlay of two shapes": lambda: laid_over(LADDER, FORTY),
    **{
        name: lambda make=make: make(view(FORTY))
        for name, make in FROM_POINTS.items()
        if name not in ("goodput", "time")
    },
    "time": lambda: time_figure(changed(view(FORTY), points=with_times(view(FORTY).points))),
}
SLOW = ("all to 128", "five shapes", "crowded overlay of two shapes")
EVERY = [pytest.param(case, marks=pytest.mark.slow if case in SLOW else ()) for case in CASES]


def texts(figure: Figure) -> list[tuple[str, Bbox]]:
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in shown]


@pytest.mark.parametrize(
    ("case", "width"),
    [pytest.param(case, None, marks=pytest.mark.slow if case in SLOW else ()) for case in CASES]
    + [(n, 480) for n in ("forty", "overlay")],
)
def test_no_text_leaves_the_figure_or_lies_on_another(case: str, width: int | None) -> None:
    with defaults():
        figure = draw(CASES[case](), "dark", laid_out=width)
        found = texts(figure)
    edge = figure.bbox.padded(0.5)

    assert len(found) > 10
    assert [] == [text for text, box in found if not (edge.contains(*box.min) and edge.contains(*box.max))]
    pairs = [(a, b, Bbox.intersection(one, other)) for (a, one), (b, other) in itertools.combinations(found, 2)]
    # An extent has the room of letters that reach above and below the line: touching by less than
    # that is no overlap.
    assert [] == [(a, b) for a, b, common in pairs if common and common.width > 1.5 and common.height > 2.5]


@pytest.mark.parametrize("case", EVERY)
def test_no_label_touches_a_line_or_a_mark_and_none_is_lost(case: str) -> None:
    picture = CASES[case]()
    with defaults():
        for panel in picture.panels:
            empty = PanelLayout(panel, 480, 300, 9.5)
            layout = PanelLayout(panel, 480, 300, 9.5).run()
            lines = empty.segments.T
            for placed in layout.placed:
                assert not _touches(lines, placed.box), placed.text
                x0, y0, x1, y1 = placed.box
                marks = [b for b in empty.boxes if x0 < b[2] and b[0] < x1 and y0 < b[3] and b[1] < y1]
                assert not marks, placed.text
            words = [placed.text for placed in layout.placed]
            numbers = {mark.text for mark in panel.marks if mark.text and not mark.star and not mark.ring}
            missing = numbers - set(words) - {mark.text for mark in layout.unnumbered}
            assert not [text for text in missing if not any(f"c={text}," in word for word in words)]


def test_the_check_sees_a_text_on_another_and_one_outside() -> None:
    with defaults():
        figure = draw(small_multiples([view(EIGHT)], footer=FOOT))
        figure.text(0.99, 0.5, "beyond the edge")
        figure.text(0.02, 0.97, "on the title")
        found = dict(texts(figure))

    assert found["beyond the edge"].x1 > figure.bbox.x1
    assert any(Bbox.intersection(found["on the title"], box) for name, box in found.items() if name.startswith("Run"))


def test_what_stays_together_is_broken_where_a_line_is_too_narrow_for_it() -> None:
    together = "bars 95% CI, thick tick the bound that decides".replace(" ", "\u00a0")
    with defaults():
        assert (together,) == wrap(together, 9.0, 600)
        narrow = wrap(together, 9.0, 150, lines=8)
    assert together.split("\u00a0") == " ".join(narrow).split()
    assert len(narrow) > 1
