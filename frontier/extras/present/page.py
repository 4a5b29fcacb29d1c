"""The report as an HTML page, as GitHub-flavoured Markdown for a pull request, and as JSON.

The HTML page loads nothing. Its pictures are inside as SVG with text as text, and it reads as well
without its one small script. Code that draws and that fills templates is imported when it is
needed.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from frontier import registry
from frontier.core.model.metrics import metric
from frontier.core.model.text import capital, clean
from frontier.extras.present.dark_page import dark_colours
from frontier.extras.present.report import LIMIT_AT, Report, page_of
from frontier.show.picture.colours import ink, line_colour
from frontier.show.picture.data import SERIES, Picture, mark_id, owner
from frontier.show.picture.frontier_picture import small_multiples
from frontier.show.view.json_out import Tree, decisions_json, points_json
from frontier.show.view.series_view import SeriesView

REPORT_SCHEMA = "frontier.report/1"
ROOM = 1_500_000
"""Most bytes of a page's pictures together; detail figures beyond it are named, not drawn."""
NARROW, ALONE = 520, 800
"""The widths in pixels for which a picture for phones, and one of a single series, is laid out."""
CELLS = {1: 560, 2: 480, 3: 366}
"""The width of a page's chart in pixels, by the number that stand side by side: readable there and
on a phone."""

_TEMPLATES = Path(__file__).parent / "templates"
_PROLOGUE = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_IDS = re.compile(r'(\bid="|xlink:href="#|url\(#)')
_SIZE = re.compile(r' (?:width|height)="[^"]*"')
_COLOUR = re.compile(r"(?:fill|stroke): #[0-9a-f]{6}\b")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A detail figure on the page, chart by chart; one without charts was left out for its size.
    `key` has the names, colours and dashes of its lines.
    """

    sheet: Picture
    charts: tuple[Markup, ...]
    key: tuple[tuple[str, str, str], ...]

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
    light and dark. `sides` are the deployments that share the pictures' panels: name, colour, and
    what their ids have in common. `undrawn` says why there are none.
    """

    pictures: Sequence[AxesPicture] = ()
    companions: Sequence[Sequence[Drawn]] = ()
    colours: Sequence[tuple[str, str, str]] = ()
    sides: Sequence[tuple[str, str, str]] = ()
    undrawn: str = ""


def draw_figures(report: Report) -> Figures:
    """The figures of a report. DrawingError where matplotlib does not load."""
    views, dark = report.views, dark_colours()
    whole = report.pictures or (small_multiples(views, footer=report.provenance),)
    wide = ALONE if len(views) == 1 else None
    pictures = [_axes_picture(picture, str(i or ""), wide, dark) for i, picture in enumerate(whole)]
    room = ROOM - sum(len(svg) for each in pictures for svg in each.drawn.values())
    companions = []
    for i, view in enumerate(views):
        companions.append(_companions(report, view, f"b{i}", room, dark))
        room -= sum(len(chart) for each in companions[-1] for chart in each.charts)
    inlined = (svg for each in pictures for svg in each.drawn.values())
    drawn_in = "".join([*inlined, *(c for section in companions for each in section for c in each.charts)])
    sides = [(name, _variable(colour, dark), part) for name, colour, part in _sides(report)]
    colours = [(f"--{colour[1:]}", colour, dark[colour]) for colour in dark if f"--{colour[1:]}" in drawn_in]
    return Figures(pictures, companions, colours, sides)


def _companions(report: Report, view: SeriesView, head: str, room: int, dark: Mapping[str, str]) -> list[Drawn]:
    """The detail figures of a series; those for which there is no `room` have no charts."""
    page_figures, drawn = registry.PAGE_FIGURES.find(), []
    sheets = page_figures(view, report.samples.get(view.frontier.series, {})) if page_figures is not None else ()
    for k, sheet in enumerate(sheets):
        panels = range(len(sheet.panels)) if room >= 0 else ()  # beyond the room nothing is drawn in vain
        charts = [_inlined(_chart(sheet, j), f"{head}-{k}-{j}-", dark) for j in panels]
        room -= sum(map(len, charts))
        key = tuple(
            (line.name, _variable(line_colour(line).lower(), dark), " ".join(f"{2 * dash:g}" for dash in line.dashes))
            for line in sheet.named_lines
        )
        own = replace(sheet, notes=(*sheet.notes, *_noted_below(sheet.name, report, view)))
        drawn.append(Drawn(own, tuple(charts) if room >= 0 else (), key))
    return drawn


def _chart(sheet: Picture, number: int) -> bytes:
    """One panel of a detail figure as an SVG of its own. The page puts panels side by side or, on a
    phone, one below the other, and writes title, key and notes itself.
    """
    from frontier.show.picture.draw import render

    panel, beside = sheet.panels[number], min(sheet.columns, len(sheet.panels), max(CELLS))
    alone = replace(sheet, title=f"{sheet.title}: {panel.title}", panels=(panel,), notes=(), columns=1)
    return render(alone, "svg", titled=False, laid_out=CELLS[beside])


def _axes_picture(picture: Picture, number: str, wide: int | None, dark: Mapping[str, str]) -> AxesPicture:
    """A picture for screens, as `wide` as it is shown there, and for phones; `number` keeps its ids
    apart.
    """
    from frontier.show.picture.draw import render

    widths = {"wide": ("a", wide), "narrow": ("n", NARROW)}
    name = ", ".join(dict.fromkeys(metric(panel.x.metric).label for panel in picture.panels))
    drawn = {
        kind: _inlined(render(picture, "svg", titled=False, laid_out=width), f"{head}{number}-", dark)
        for kind, (head, width) in widths.items()
    }
    return AxesPicture(f"over {name}", picture.description, drawn)


def _marks(report: Report) -> Callable[[int, float], str]:
    """The id of the mark of a setting of the series with a number. Deployments that share a panel
    have their order in it.
    """
    series, together = [view.frontier.series for view in report.views], bool(_sides(report))
    shapes = list(dict.fromkeys(each.shape for each in series)) if together else []
    first = [each.deployment for each in series]

    def mark(number: int, concurrency: float) -> str:
        if not together:
            return mark_id(number, concurrency)
        shape = series[number].shape
        among = [deployment for deployment, each in zip(first, series, strict=True) if each.shape == shape]
        return mark_id(shapes.index(shape), concurrency, SERIES[among.index(series[number].deployment)])

    return mark


def _sides(report: Report) -> list[tuple[str, str, str]]:
    """The name of each deployment in a picture that they share, its colour, and what the ids of its
    parts have in common; none where each has a panel of its own.
    """
    picture = report.pictures[0] if report.pictures else None
    if picture is None or len(picture.panels) == len(report.views):
        return []
    named = {role: cells[0] for cells, role in picture.rows}
    return [(name, ink(role).lower(), owner(role)) for role, name in named.items()]


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
        mark=_marks(report),
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
