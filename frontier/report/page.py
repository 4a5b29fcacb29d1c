"""The report as one HTML page: it loads nothing, its pictures are inside as SVG with text as text, and it reads as well
without its one small script.
"""

import base64
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from frontier.plot.data import Picture, View
from frontier.plot.draw import dark_colours, ink, mark_id, render, render_panel
from frontier.plot.figures import FROM_POINTS, FROM_SAMPLES
from frontier.plot.picture import small_multiples
from frontier.report.report import KEY, Report, page_of

ROOM = 1_500_000
"""Bytes that the pictures of a page may take together; detail figures beyond it are named, not drawn."""
MOST_OPEN = 20
"""A table of points with more rows than this is folded."""

NARROW = 520
"""Pixels a picture is laid out for that a phone shows."""

_TEMPLATES = Path(__file__).parent / "templates"
_PROLOGUE = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_IDS = re.compile(r'(\bid="|xlink:href="#|url\(#)')
_SIZE = re.compile(r'(<svg[^>]*?) width="[^"]*"', re.DOTALL)
_COLOUR = re.compile(r"(?:fill|stroke): #[0-9a-f]{6}\b")
_HEIGHT = re.compile(r'(<svg[^>]*?) height="[^"]*"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A detail figure on the page, chart by chart; without charts it was left out for its size. `key` are the names and
    colours of its lines.
    """

    sheet: Picture
    charts: tuple[Markup, ...]
    key: tuple[tuple[str, str], ...]

    @property
    def heading(self) -> str:
        """The title without the section's name."""
        title = self.sheet.title.partition(": ")[2] or self.sheet.title
        return title[:1].upper() + title[1:]


def report_html(report: Report) -> str:
    """The whole page. Whatever came from a server is escaped by the template, or by the SVG writer."""
    views = report.views()
    picture = small_multiples(views, footer=report.provenance)
    pictures = {"wide": _inlined(render(picture, "svg", titled=False), "a-")}
    pictures["narrow"] = _inlined(render(picture, "svg", titled=False, laid_out=NARROW), "n-")
    room = ROOM - sum(map(len, pictures.values()))
    companions: list[list[Drawn]] = []
    for i, view in enumerate(views):
        companions.append([])
        for k, sheet in enumerate(sheets_of(report, view)):
            charts = [_inlined(render_panel(sheet, j), f"b{i}-{k}-{j}-") for j in range(len(sheet.panels))]
            room -= sum(map(len, charts))
            key = tuple((name, _variable(ink(role).lower())) for name, role in sheet.keys)
            companions[-1].append(Drawn(sheet, tuple(charts) if room >= 0 else (), key))
    script = (_TEMPLATES / "page.js").read_text(encoding="utf-8")
    drawn_in = "".join([*pictures.values(), *(c for section in companions for each in section for c in each.charts)])
    dark = dark_colours()
    colours = [(f"--{colour[1:]}", colour, dark[colour]) for colour in dark if f"--{colour[1:]}" in drawn_in]
    return _template().render(
        page=page_of(report), pictures=pictures, description=picture.description, companions=companions, key=KEY,
        most_open=MOST_OPEN, colours=colours, script=Markup(script), allowed=_allowed(script),  # noqa: S704  # our own file
        mark=mark_id,
    )  # fmt: skip


def sheets_of(report: Report, view: View) -> Iterator[Picture]:
    """The detail figures of one view, as far as there is something to show."""
    samples = report.samples.get(view.frontier.series, {})
    for make in FROM_POINTS.values():
        if (sheet := make(view)) is not None:
            yield sheet
    for make_from_samples in FROM_SAMPLES.values():
        if samples and (found := make_from_samples(view, samples)) is not None:
            yield found


def _allowed(script: str) -> str:
    """The one script a browser may run on this page: whatever else got in would not be run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("page.html.j2")


def _inlined(svg: bytes, prefix: str) -> Markup:
    """The SVG element alone, as wide as its place, its ids told apart from those of other pictures on the page."""
    element = _METADATA.sub("", _PROLOGUE.sub("", svg.decode()))
    element = _HEIGHT.sub(r"\1", _SIZE.sub(r"\1", element, count=1), count=1)
    element = _COLOUR.sub(lambda found: _variable(found[0]), element)
    return Markup(_IDS.sub(rf"\g<1>{prefix}", element))  # noqa: S704  # matplotlib has escaped what is in it


def _variable(rule: str) -> str:
    """'fill: #0072b2' as 'fill: var(--0072b2)' where the dark page has another colour for it."""
    head, _, colour = rule.rpartition("#")
    return f"{head}var(--{colour})" if f"#{colour}" in dark_colours() else rule
