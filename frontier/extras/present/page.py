"""The report as an HTML page, as GitHub-flavoured Markdown for a pull request, and as JSON.

The HTML page loads nothing. Its pictures are inside as SVG with text as text, and it reads as well
without its one small script. Code that draws and that fills templates is imported when it is
needed.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from frontier import registry
from frontier.core.model.metrics import metric
from frontier.core.model.text import capital, clean
from frontier.extras.present.dark_page import dark_colours
from frontier.extras.present.report import Report, page_of
from frontier.show.picture.colours import ink
from frontier.show.picture.data import Picture, mark_id
from frontier.show.picture.frontier_picture import small_multiples
from frontier.show.view.figures import LIMIT_AT
from frontier.show.view.json_out import Tree, decisions_json, points_json
from frontier.show.view.series_view import SeriesView

REPORT_SCHEMA = "frontier.report/1"
ROOM = 1_500_000
"""Most bytes of a page's pictures together; detail figures beyond it are named, not drawn."""
NARROW = 520
"""The width in pixels for which a picture for phones is laid out."""

_TEMPLATES = Path(__file__).parent / "templates"
_PROLOGUE = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_IDS = re.compile(r'(\bid="|xlink:href="#|url\(#)')
_SIZE = re.compile(r' (?:width|height)="[^"]*"')
_COLOUR = re.compile(r"(?:fill|stroke): #[0-9a-f]{6}\b")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A detail figure on the page, chart by chart; one without charts was left out for its size.
    `key` has the names and colours of its lines.
    """

    sheet: Picture
    charts: tuple[Markup, ...]
    key: tuple[tuple[str, str], ...]

    @property
    def heading(self) -> str:
        """The title without the section's name."""
        title = self.sheet.title.partition(": ")[2] or self.sheet.title
        return capital(title)


@dataclass(frozen=True, slots=True)
class AxesPicture:
    """The picture on one pair of axes: their name, what it shows in words, and the drawing by its
    width.
    """

    name: str
    description: str
    drawn: Mapping[str, Markup]


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of a page: the pictures, the detail figures of each section, and their colours in
    light and dark. `undrawn` says why there are none.
    """

    pictures: Sequence[AxesPicture] = ()
    companions: Sequence[Sequence[Drawn]] = ()
    colours: Sequence[tuple[str, str, str]] = ()
    undrawn: str = ""


def draw_figures(report: Report, others: Sequence[Sequence[SeriesView]] = ()) -> Figures:
    """The figures of a report; `others` are its series on further axes. DrawingError where
    matplotlib does not load.
    """
    from frontier.show.picture.draw import render_panel

    views, dark = report.views, dark_colours()
    pictures = [_axes_picture(each, report, str(i or ""), dark) for i, each in enumerate((views, *others))]
    room = ROOM - sum(len(svg) for each in pictures for svg in each.drawn.values())
    companions: list[list[Drawn]] = []
    for i, view in enumerate(views):
        companions.append([])
        samples = report.samples.get(view.frontier.series, {})
        page_figures = registry.PAGE_FIGURES.find()
        for k, sheet in enumerate(page_figures(view, samples) if page_figures is not None else ()):
            charts = [_inlined(render_panel(sheet, j), f"b{i}-{k}-{j}-", dark) for j in range(len(sheet.panels))]
            room -= sum(map(len, charts))
            key = tuple((line.name, _variable(ink(line.role).lower(), dark)) for line in sheet.named_lines)
            own = replace(sheet, notes=(*sheet.notes, *_noted_below(sheet.name, report, view)))
            companions[-1].append(Drawn(own, tuple(charts) if room >= 0 else (), key))
    inlined = (svg for each in pictures for svg in each.drawn.values())
    drawn_in = "".join([*inlined, *(c for section in companions for each in section for c in each.charts)])
    colours = [(f"--{colour[1:]}", colour, dark[colour]) for colour in dark if f"--{colour[1:]}" in drawn_in]
    return Figures(pictures, companions, colours)


def _axes_picture(views: Sequence[SeriesView], report: Report, number: str, dark: Mapping[str, str]) -> AxesPicture:
    """The picture of these views, for screens and for phones; `number` keeps its ids apart."""
    from frontier.show.picture.draw import render

    picture = small_multiples(views, footer=report.provenance)
    widths = {"wide": ("a", None), "narrow": ("n", NARROW)}
    name = ", ".join(dict.fromkeys(metric(view.axes[0]).label for view in views))
    drawn = {
        kind: _inlined(render(picture, "svg", titled=False, laid_out=width), f"{head}{number}-", dark)
        for kind, (head, width) in widths.items()
    }
    return AxesPicture(f"over {name}", picture.description, drawn)


def _noted_below(figure: str, report: Report, view: SeriesView) -> list[str]:
    """The notes of extras on a series that stand below this detail figure."""
    below = [noted for noted in report.notes.values() if noted.figure == figure]
    return [f"{head}: {clean(text, 800)}" for n in below for head, text in n.lines.get(view.frontier.series, ())]


def report_html(report: Report, figures: Figures | None = None) -> str:
    """The whole page, with these figures (default: drawn here). The template, or the SVG writer,
    escapes whatever came from a server.
    """
    figures = figures or draw_figures(report)
    script = (_TEMPLATES / "page.js").read_text(encoding="utf-8")
    return _filled(
        "page.html.j2",
        page=page_of(report),
        figures=figures,
        script=Markup(script),  # noqa: S704  # our own file
        allowed=_allowed(script),
        mark=mark_id,
        limit_at=LIMIT_AT,
    )


def _filled(template: str, **given: Any) -> str:
    """A template filled in. HTML escapes every value; Markdown templates say where to escape."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=template.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"md": escape_markdown, "fence": _fence}
    return environment.get_template(template).render(given)


def _allowed(script: str) -> str:
    """The policy that lets a browser run only the page's one script: any other would not run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _inlined(svg: bytes, prefix: str, dark: Mapping[str, str]) -> Markup:
    """The SVG element alone, as wide as its place; its ids differ from those of other pictures on
    the page.
    """
    element = _METADATA.sub("", _PROLOGUE.sub("", svg.decode()))
    head, end, rest = element.partition(">")
    element = _SIZE.sub("", head) + end + rest
    element = _COLOUR.sub(lambda found: _variable(found[0], dark), element)
    return Markup(_IDS.sub(rf"\g<1>{prefix}", element))  # noqa: S704  # matplotlib has escaped what is in it


def _variable(rule: str, dark: Mapping[str, str]) -> str:
    """'fill: #0072b2' as 'fill: var(--0072b2)' where the dark page has another colour for it."""
    head, _, colour = rule.rpartition("#")
    return f"{head}var(--{colour})" if f"#{colour}" in dark else rule


# --- Markdown

_SPECIAL = re.compile(r"([\\`*_\[\]|~$]|^[#+-])")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")


def escape_markdown(text: str) -> str:
    """Plain text as Markdown that reads the same: it makes no markup, HTML, link or mention, and
    breaks no table cell.
    """
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")
    return _NUMBERED.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", plain))


LONGEST_MARKDOWN = 60_000
"""Most characters of a report as Markdown: a comment on GitHub holds 65,536."""
PARTS = ("evidence", "the points", "the config", "the reasons of each series", "the quality of the data")
"""Parts that a report that is too long leaves out, the least important first."""


def report_markdown(report: Report) -> str:
    """The report as GitHub-flavoured Markdown. A report that is too long leaves out its least
    important parts, and names them.
    """
    page, text = page_of(report), ""
    for number in range(len(PARTS) + 1):
        text = _filled("page.md.j2", page=page, without=PARTS[:number])
        if len(text) <= LONGEST_MARKDOWN:
            break
    return text


def _fence(text: str) -> str:
    """A fence for a code block, longer than any inside."""
    return "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))


# --- JSON


def report_json(report: Report) -> Tree:
    """`frontier report -o FILE.json`: the answers of `solve --json` and `show --json`, with the
    rest of the report.
    """
    page = page_of(report)
    return {
        "schema": REPORT_SCHEMA,
        "title": page["title"],
        "unfinished": report.standing,
        "solve": decisions_json([view.decision for view in report.views if view.decision]),
        "show": points_json(report.views),
        "sections": [
            {
                "name": section["name"],
                "verdict": section["verdict"],
                "notes": [text for _, text in (*section["lines"], *section["more"])],
                "neighbours": section["neighbours"].as_json() if section["neighbours"] else [],
                "evidence": [{"caption": table.caption, "rows": table.as_json()} for table in section["evidence"]],
            }
            for section in page["sections"]
        ],
        "pooled": [tree for _, tree in report.pooled],
        "health": page["health"],
        "provenance": dict(page["provenance"]),
        "commands": page["commands"],
        "config": page["config_text"],
        "not_said": list(page["not_said"]),
    }
