"""The page as one HTML file: no scripts, nothing loaded from elsewhere, pictures inside as SVG with text as text."""

import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from frontier.present.companions import render_latencies
from frontier.present.figure import render
from frontier.present.picture import small_multiples
from frontier.present.report import KEY, Report, page_of

_PROLOGUE = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_IDS = re.compile(r'(\bid="|xlink:href="#|url\(#)')
_SIZE = re.compile(r'(<svg[^>]*?) width="[^"]*"', re.DOTALL)
_HEIGHT = re.compile(r'(<svg[^>]*?) height="[^"]*"', re.DOTALL)


def report_html(report: Report) -> str:
    """The whole page. Whatever came from a server is escaped by the template, or by the SVG writer."""
    picture = small_multiples(report.views(), footer=report.provenance, titled=False)
    drawn = [render_latencies(view) for view in report.views()]
    companions = [svg and _inlined(svg, f"b{i}-") for i, svg in enumerate(drawn)]
    return _template().render(
        page=page_of(report), picture=_inlined(render(picture, "svg"), "a-"), description=picture.description,
        companions=companions, key=KEY,
    )  # fmt: skip


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("page.html.j2")


def _inlined(svg: bytes, prefix: str) -> Markup:
    """The SVG element alone, as wide as its place, its ids told apart from those of other pictures on the page."""
    element = _PROLOGUE.sub("", svg.decode())
    element = _HEIGHT.sub(r"\1", _SIZE.sub(r"\1", element, count=1), count=1)
    return Markup(_IDS.sub(rf"\g<1>{prefix}", element))  # noqa: S704  # matplotlib has escaped what is in it
