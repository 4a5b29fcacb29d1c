"""Pictures drawn: right kinds of file, the same bytes again, text that stays text, and nothing
hostile in it."""

import io
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

from frontier.core.model.shapes import Shape
from frontier.show.picture.draw import defaults, render
from frontier.show.picture.frontier_picture import save
from frontier.show.view.series_view import DrawnRoofline
from frontier.show.view.wording import Provenance
from tests.kit.golden import assert_golden_row
from tests.kit.toy import SHAPE, picture, toy_decision, toy_frontier, toy_points


@pytest.fixture(scope="module")
def usual():  # type: ignore[no-untyped-def]
    points = toy_points()
    return picture(points, toy_frontier(points), toy_decision(points), roofline=DrawnRoofline(3600, "roofline"), gpus=1)


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def test_a_png_has_the_pictures_size_and_its_colours(usual) -> None:  # type: ignore[no-untyped-def]
    found = pixels(render(usual, "png"))

    assert usual.width == found.shape[1]
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


def test_the_defaults_are_those_of_matplotlib_and_the_users_backend_stays(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setitem(mpl.rcParams, "backend", "svg")
    with mpl.rc_context():
        mpl.rcdefaults()
        shipped = dict(mpl.rcParams)
    monkeypatch.setitem(mpl.rcParams, "axes.facecolor", "red")
    with defaults():
        drawn = dict(mpl.rcParams)
    changed = {key for key in shipped if shipped[key] != drawn[key]}

    own = {"svg.hashsalt", "svg.fonttype", "pdf.fonttype", "text.hinting", "text.parse_math", "font.sans-serif"}
    assert own == changed
    assert "svg" == mpl.rcParams["backend"]


def test_svg_keeps_text_as_text_and_carries_title_and_description(usual) -> None:  # type: ignore[no-untyped-def]
    tree = ET.fromstring(render(usual, "svg"))
    texts = [t.text for t in tree.iter("{http://www.w3.org/2000/svg}text")]

    assert "limit 500 ms" in texts
    assert {"meets the SLA", "violates"} <= set(texts)
    assert any("c=64" in (text or "") for text in texts)
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


@pytest.mark.process
def test_drawing_needs_no_pyplot() -> None:
    code = (
        "import sys, frontier.show.picture.draw, frontier.show.picture.frontier_picture; "
        "assert 'matplotlib.pyplot' not in sys.modules and 'scipy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def tooltips(svg: bytes) -> dict[str, str]:
    """What is shown under the pointer on each mark of an SVG, by its id."""
    groups = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}g")
    marks = [group for group in groups if group.get("id", "").startswith("mark-")]
    return {
        mark.get("id", ""): mark[0].text or ""
        for mark in marks
        if mark[0].tag.endswith("}title") and mark.get("id", "").startswith("mark-0_0-")
    }


def test_each_mark_of_an_svg_has_its_row_of_the_table_as_a_tooltip(usual) -> None:  # type: ignore[no-untyped-def]
    shown = tooltips(render(usual, "svg"))
    (panel,) = usual.panels

    assert {f"mark-0_0-{mark.load}" for mark in panel.marks} | {"mark-0_0-64-star"} == set(shown)
    assert shown["mark-0_0-64"] == shown["mark-0_0-64-star"]
    assert_golden_row("pictures", "\n\n".join(shown[f"mark-0_0-{c}"] for c in (64, 128)))


def test_a_tooltip_is_text_whatever_is_in_it(usual) -> None:  # type: ignore[no-untyped-def]
    (panel,) = usual.panels
    text = '</title><script>alert(1)</script> & "c=1" \\1 <g id="mark-0_0-1">'
    marks = tuple(replace(mark, tooltip=text) for mark in panel.marks)

    assert {text} == set(tooltips(render(replace(usual, panels=(replace(panel, marks=marks),)), "svg")).values())


def test_two_runs_at_one_setting_keep_their_own_tooltips(usual) -> None:  # type: ignore[no-untyped-def]
    (panel,) = usual.panels
    marks = (replace(panel.marks[0], tooltip="one"), replace(panel.marks[0], tooltip="another"))
    svg = render(replace(usual, panels=(replace(panel, marks=marks),), strip=None), "svg").decode()

    assert ["one", "another"] == re.findall(r'<g id="mark-[^"]*"><title>([^<]*)', svg)
