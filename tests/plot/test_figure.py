"""Pictures drawn: right kinds of file, the same bytes again, text that stays text, and nothing hostile in it."""

import io
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from frontier.decide.wording import Provenance
from frontier.model import Shape
from frontier.plot.draw import draw, render
from frontier.plot.figure_cache import save
from frontier.plot.layout import text_width
from frontier.plot.picture import Light, picture
from tests.plot.toy import SHAPE, toy_decision, toy_frontier, toy_points


@pytest.fixture(scope="module")
def usual():  # type: ignore[no-untyped-def]
    points = toy_points()
    return picture(points, toy_frontier(points), toy_decision(points), light=Light(3600, "roofline"), gpus=1)


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def test_a_png_has_the_pictures_size_and_its_colours(usual) -> None:  # type: ignore[no-untyped-def]
    found = pixels(render(usual, "png"))

    assert (usual.height, usual.width, 3) == found.shape
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0x00, 0x9E, 0x73)):
        assert (found == colour).all(axis=2).sum() > 50


def test_width_enlarges_a_png_and_dark_turns_the_ground(usual) -> None:  # type: ignore[no-untyped-def]
    found = pixels(render(usual, "png", width=1650, theme="dark"))

    assert 1650 == found.shape[1]
    assert tuple(found[2, 2]) == (0x14, 0x17, 0x1C)


def test_the_same_bytes_again_whatever_the_users_settings(usual, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    first = {form: render(usual, form) for form in ("svg", "png", "pdf")}
    monkeypatch.setitem(mpl.rcParams, "font.size", 23.0)
    monkeypatch.setitem(mpl.rcParams, "axes.facecolor", "red")

    assert first == {form: render(usual, form) for form in ("svg", "png", "pdf")}
    assert 23.0 == mpl.rcParams["font.size"]


def test_svg_keeps_text_as_text_and_carries_title_and_description(usual) -> None:  # type: ignore[no-untyped-def]
    tree = ET.fromstring(render(usual, "svg"))
    texts = [t.text for t in tree.iter("{http://www.w3.org/2000/svg}text")]

    assert "SLA  p99 TTFT ≤ 500 ms" in texts
    assert "operating point  c = 64" in texts
    assert usual.title in ET.tostring(tree, encoding="unicode")


def test_dollar_signs_and_markup_in_names_are_drawn_as_they_are() -> None:
    shape = Shape(SHAPE.isl, SHAPE.osl, name="a $x^{2$ <script>alert(1)</script> &amp; 漢字")
    points = toy_points((1, 8, 64), shape=shape)
    svg = render(picture(points, toy_frontier(points), footer=Provenance(model="<img src=x>")), "svg").decode()

    assert "<script" not in svg
    assert "<img" not in svg
    texts = [t.text or "" for t in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert any("a\u00a0$x^{2$\u00a0<script>alert(1)</script>" in text for text in texts)


def test_the_suffix_decides_the_format(usual, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    save(usual, tmp_path / "a.PDF")
    assert (tmp_path / "a.PDF").read_bytes().startswith(b"%PDF")
    with pytest.raises(ValueError, match="png, svg, pdf"):
        save(usual, tmp_path / "a.gif")


@pytest.mark.parametrize("text", ["operating point  c = 64", "SLA  p99 TTFT ≤ 500 ms", "[2,816, 2,884] ·", "WWiil|"])
def test_widths_of_text_agree_with_the_renderer(text: str) -> None:
    figure = Figure(dpi=100)
    canvas = FigureCanvasAgg(figure)
    with mpl.rc_context({"text.hinting": "no_hinting"}):
        for bold in (False, True):
            drawn = figure.text(0, 0, text, fontsize=11, fontweight="bold" if bold else "normal", parse_math=False)
            actual = drawn.get_window_extent(canvas.get_renderer()).width
            assert actual == pytest.approx(text_width(text, 11, bold=bold), rel=0.06)


def test_every_text_lies_where_the_picture_says(usual) -> None:  # type: ignore[no-untyped-def]
    """The layout trusts its table of widths: here the renderer is asked."""
    with mpl.rc_context({"text.hinting": "no_hinting"}):
        figure = draw(usual)
        renderer = FigureCanvasAgg(figure).get_renderer()
        boxes = {text.get_text(): text.get_window_extent(renderer) for text in figure.texts}
    for label in [*usual.labels, *usual.panels[0].labels]:
        for line in label.lines:
            box = boxes[line]
            assert box.x0 >= label.box.x0 - 6
            assert box.x1 <= label.box.x1 + max(6, 0.02 * (box.x1 - box.x0))
            assert label.box.y0 - 3 <= box.y0
            assert box.y1 <= label.box.y1 + 3


def test_drawing_needs_no_pyplot() -> None:
    code = (
        "import sys, frontier.plot.draw, frontier.plot.picture; "
        "assert 'matplotlib.pyplot' not in sys.modules and 'scipy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
