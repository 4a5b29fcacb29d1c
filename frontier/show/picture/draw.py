"""Drawing figure data with matplotlib: PNG, PDF and SVG, the same bytes for the same figure.

Nothing here decides what a figure says. The object interface is used throughout: no pyplot, no
global state, no display. Text stays text in SVG, and is never parsed as mathematics.
"""

import io
import itertools
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import escape

from frontier.core.model.errors import DrawingError
from frontier.core.model.text import clean
from frontier.show.picture.colours import COLOURS, ink, line_colour
from frontier.show.picture.data import (
    FORMATS,
    SIGN_WORDS,
    Line,
    Picture,
    Role,
    Theme,
    id_of,
)

# matplotlib reads the user's settings when it is imported, and fails on some of them with any
# exception: a backend that does not exist, a matplotlibrc that is not UTF-8 or cannot be read.
try:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from frontier.show.picture.draw_panel import STROKES, STRONG, draw_panel, look_of
    from frontier.show.picture.layout import PanelLayout
    from frontier.show.picture.text_size import fit, line_height, text_width, wrap
except Exception as error:
    raise DrawingError(
        f"matplotlib cannot be loaded: {clean(f'{type(error).__name__}: {error}')}",
        "unset MPLBACKEND, or mend the matplotlibrc: here, in $MATPLOTLIBRC or in ~/.config/matplotlib",
    ) from error

_MARK = re.compile(r'<g id="(mark-[^"]*)">')
TOGETHER = re.compile(r"(?<=[\d∞]) (?=[a-zµ])|(?<=concurrency) (?=\d)|(?<=[≤≥]) |(?<=p99) |(?<=p50) | (?=[≤≥])")
"""Spaces at which a title is not broken: between a number and its unit, and around a sign."""
TITLE, NOTE, FOOT = 16.0, 9.5, 9.0
HEAD, RIGHT, ROW = 26.0, 24.0, 21.0
"""Pixels above a panel for its title, beside it on the right, and of a row of the strip."""
CELLS = {1: 560, 2: 480, 3: 366}
"""The width of a page's chart in pixels, by the number that stand side by side: readable there and
on a phone."""


@contextmanager
def defaults() -> Iterator[None]:
    """matplotlib with its shipped settings, whatever the user's matplotlibrc says. A glyph that the
    font lacks raises nothing.
    """
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore", mpl.MatplotlibDeprecationWarning)  # defaults that matplotlib gives up
        # What mpl.rcdefaults() does, without reading thirty style sheets. rc_context would not
        # restore the backend.
        mpl.rcParams.update({key: value for key, value in mpl.rcParamsDefault.items() if key != "backend"})
        # Without hinting a text is as wide as its letters, at every size: the layout counts on it.
        mpl.rcParams.update(
            {
                "svg.hashsalt": "frontier",
                "svg.fonttype": "none",
                "pdf.fonttype": 42,
                "text.hinting": "no_hinting",
                "text.parse_math": False,
                "font.sans-serif": ["DejaVu Sans", "Bitstream Vera Sans", "Verdana", "Geneva", "Arial", "Helvetica"],
            }
        )
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        yield


def render(
    picture: Picture,
    form: str,
    *,
    width: int | None = None,
    theme: Theme = "light",
    titled: bool = True,
    laid_out: int | None = None,
) -> bytes:
    """The picture as bytes of one of FORMATS; ValueError for another.

    `width` in pixels scales a PNG; a narrow one is laid out anew, so that its text can be read. A
    page gives the width of its layout as `laid_out`, and is not `titled` where it writes title,
    table and notes itself.
    """
    if form not in FORMATS:
        raise ValueError(f"a picture cannot be written as {form!r}; it can as {', '.join(FORMATS)}")
    wide = laid_out or (max(480, width) if width and width < 0.75 * picture.width else picture.width)
    metadata: dict[str, dict[str, str | None]] = {  # no date and no version: the same picture is the same bytes
        "png": {"Software": None, "Title": picture.title},
        "svg": {"Date": None, "Creator": "frontier", "Title": picture.title, "Description": picture.description},
        "pdf": {"CreationDate": None, "Creator": "frontier", "Producer": None, "Title": picture.title},
    }
    out = io.BytesIO()
    with defaults():
        figure = draw(picture, theme, titled=titled, laid_out=wide)
        figure.savefig(out, format=form, dpi=100 * (width or wide) / wide, metadata=metadata[form])
    return _with_tooltips(out.getvalue(), picture) if form == "svg" else out.getvalue()


def _with_tooltips(svg: bytes, picture: Picture) -> bytes:
    """The SVG with a `<title>`, which browsers show under the pointer, in each mark that has a
    tooltip.

    Marks of several runs at one setting have the same id, in the order of the panel.
    """
    waiting: dict[str, list[str]] = {}
    for i, panel in enumerate((*picture.panels, *([picture.strip] if picture.strip else []))):
        for mark in panel.marks:
            for end in ("", "-star") if mark.star else ("",):
                waiting.setdefault(id_of(i, panel, mark) + end, []).append(escape(mark.tooltip))

    def titled(found: re.Match[str]) -> str:
        text = waiting[found[1]].pop(0)
        return f"{found[0]}<title>{text}</title>" if text else found[0]

    return _MARK.sub(titled, svg.decode()).encode()


def render_panel(picture: Picture, number: int) -> bytes:
    """One panel of a detail figure as an SVG of its own. A page puts panels side by side or, on a
    phone, one below the other, and writes title, key and notes itself.
    """
    panel = picture.panels[number]
    alone = replace(picture, title=f"{picture.title}: {panel.title}", panels=(panel,), notes=(), columns=1)
    wide = CELLS[min(picture.columns, len(picture.panels), 3)]
    return render(alone, "svg", titled=False, laid_out=wide)


@dataclass(frozen=True, slots=True)
class _Lines:
    """Lines of text across the figure, one below the other."""

    texts: tuple[str, ...]
    size: float
    role: Role = Role.QUIET
    bold: bool = False

    @property
    def tall(self) -> float:
        return len(self.texts) * line_height(self.size)


def draw(picture: Picture, theme: Theme = "light", *, titled: bool = True, laid_out: int | None = None) -> Figure:
    """The picture as a matplotlib Figure with an Agg canvas, to be called under `defaults`.

    Words are laid out first: only then is it known how tall the figure is, and which words go below
    the panels.
    """
    width, colours = laid_out or picture.width, COLOURS[theme]
    cells, deep = _cells(picture, width)
    most = 3 if width >= 700 else 8
    title = wrap(TOGETHER.sub("\u00a0", picture.title), TITLE, width - 28, lines=most, bold=True) if titled else ()
    head = _Lines(title, TITLE, Role.TEXT, bold=True)
    legend = _Lines(wrap(picture.legend, 10.0, width - 28, lines=most) if picture.legend else (), 10.0)
    notes = [*picture.notes, *_unsaid([cell.layout for cell in cells])]
    below = _Lines(tuple(line for note in notes for line in wrap(note, NOTE, width - 28, lines=most - 1)), NOTE)
    foot = _Lines(wrap(picture.foot, FOOT, width - 28, lines=most) if picture.foot else (), FOOT)
    table = _table(picture, width) if titled else []
    handles = _handles(picture, theme, titled=titled)
    across = _fitting(handles, width)
    keys = 22.0 * math.ceil(len(handles) / across)
    top = 12 + head.tall + (10 if titled else 0) + sum(row[0][1].tall for row in table) + (8 if table else 0)
    under = top + legend.tall + keys + 8
    height = math.ceil(under + deep + below.tall + foot.tall + 16)
    figure = Figure(figsize=(width / 100, height / 100), dpi=100, facecolor=colours["paper"])
    FigureCanvasAgg(figure)
    _write(figure, head, 14, height - 12, theme)
    y = height - 12 - head.tall - (10 if titled else 0)
    for row in table:
        for x, cell_text in row:
            _write(figure, cell_text, x, y, theme)
        y -= row[0][1].tall
    _write(figure, legend, 14, height - top, theme)
    _legend(figure, handles, across, height - top - legend.tall - 4, theme)
    for i, cell in enumerate(cells):
        layout, y1 = cell.layout, height - under - cell.down
        box = cell.x / width, (y1 - layout.height) / height, layout.width / width, layout.height / height
        if not cell.large and layout.panel.title:
            name = fit(layout.panel.title, 10.5, layout.width + cell.left - 20, bold=True, middle=True)
            _write(figure, _Lines((name,), 10.5, Role.TEXT, bold=True), cell.x - cell.left + 14, y1 + 24, theme)
        draw_panel(figure.add_axes(box), layout, theme, i, large=cell.large)
    _write(figure, below, 14, below.tall + foot.tall + 12, theme)
    _write(figure, foot, 14, foot.tall + 8, theme)
    return figure


@dataclass(frozen=True, slots=True)
class _Cell:
    """A panel laid out, with the place of its frame: from the left, and down from the first."""

    layout: PanelLayout
    x: float
    down: float
    left: float
    large: bool = False


def _cells(picture: Picture, width: int) -> tuple[list[_Cell], float]:
    """The panels in rows, the strip below them, and the height of all."""
    columns = max(1, min(picture.columns, len(picture.panels), width // 330))
    large = len(picture.panels) == 1 and picture.tall > 400
    tall = min(picture.tall, 0.8 * width) if large else picture.tall
    left, head, size = (102.0, 0.0, 11.0) if large else (84.0, HEAD, 9.5)
    cells, each = [], tall + (62 if large else 86)
    for i, panel in enumerate(picture.panels):
        row, column = divmod(i, columns)
        layout = PanelLayout(panel, width / columns - left - RIGHT, tall, size).run()
        cells.append(_Cell(layout, column * width / columns + left, row * each + head, left, large))
    deep = math.ceil(len(picture.panels) / columns) * each
    if picture.strip is not None:
        names = tuple(fit(name, 9.5, 0.55 * width, middle=True) for name in picture.strip.y.names)
        strip = replace(picture.strip, y=replace(picture.strip.y, names=names))
        left = max(left, 32 + max(text_width(name, 9.5) for name in names))
        layout = PanelLayout(strip, width - left - RIGHT, ROW * len(names), 9.5).run()
        cells.append(_Cell(layout, left, deep + HEAD, left))
        deep += layout.height + 86
    return cells, deep


def _unsaid(layouts: Sequence[PanelLayout]) -> list[str]:
    """Notes of the words that found no room in their panels; words that several panels share come
    once.
    """
    panels: dict[str, list[str]] = {}
    for layout in layouts:
        words = list(layout.unplaced)
        if layout.unnumbered:
            settings = dict.fromkeys(m.name for m in sorted(layout.unnumbered, key=lambda m: m.load))
            words.append(f"too crowded to be numbered: {', '.join(settings)}")
        for text in words:
            panels.setdefault(text, []).append(layout.panel.title)
    return [text if len(titles) == len(layouts) else f"{', '.join(titles)}:  {text}" for text, titles in panels.items()]


def _table(picture: Picture, width: int) -> list[list[tuple[float, _Lines]]]:
    """The table of answers as rows of (x, text). Columns are as wide as their widest cell; a long
    name is cut. Where the table is wider than the figure, the cells after a name stand below it.
    """
    size = 10.5 if len(picture.rows) <= 12 else 9.0
    columns = max((len(cells) for cells, _ in picture.rows), default=0)
    widths = []
    for column in range(columns):
        cells = [row[column] for row, _ in picture.rows if len(row) == columns or column < len(row) - 1]
        widths.append(max((text_width(cell, size, column == 0) for cell in cells), default=0.0) + 18)
    if widths:
        widths[0] = min(widths[0], max(160.0, width - 10 - sum(widths[1:])))
    starts = [14.0, *(14.0 + total for total in itertools.accumulate(widths))]
    table = []
    for texts, role in picture.rows:
        if starts[-1] > width + 4:
            name = fit(texts[0], size, width - 28, bold=True, middle=True)
            rest = fit(" · ".join(texts[1:]), size, width - 42)
            table += [[(14.0, _Lines((name,), size, role, bold=True))], [(28.0, _Lines((rest,), size, role))]]
            continue
        row = []
        for column, text in enumerate(texts):
            room = (width - 14 if column == len(texts) - 1 else starts[column + 1] - 18) - starts[column] + 0.5
            cell = fit(text, size, room, bold=column == 0, middle=column == 0)
            row.append((starts[column], _Lines((cell,), size, role, bold=column == 0)))
        table.append(row)
    return table


def _write(figure: Figure, lines: _Lines, x: float, top: float, theme: Theme) -> None:
    wide, tall = figure.get_size_inches() * 100
    for i, line in enumerate(lines.texts):
        figure.text(
            x / wide,
            (top - (i + 0.5) * line_height(lines.size) - lines.size * 0.36 * 100 / 72) / tall,
            line,
            fontsize=lines.size,
            color=ink(lines.role, theme),
            va="baseline",
            fontweight="bold" if lines.bold else "normal",
        )


def _handles(picture: Picture, theme: Theme, *, titled: bool) -> list[Line2D]:
    """The handles of the legend: the signs of marks and, where the page does not show them, the
    lines.
    """
    black, paper = ink(Role.TEXT, theme), COLOURS[theme]["paper"]
    handles = [_line_handle(line, line_colour(line, theme)) for line in picture.named_lines if titled]
    for sign in picture.signs:
        shape, face = look_of(sign, "o", black, paper)
        handles.append(
            Line2D([], [], marker=shape, label=SIGN_WORDS[sign], mfc=face, mec=black, ms=7.5, mew=1.4, ls="none")
        )
    colours = COLOURS[theme]
    stars = {mark.star for mark in picture.marks if mark.star}
    star = colours[stars.pop().value] if len(stars) == 1 else black
    others = (
        (any(mark.star for mark in picture.marks), "*", "run here", star, paper, 13.0),
        (any(mark.ring for mark in picture.marks), "o", "nearest to an answer", "none", colours["operating"], 12.0),
        (
            any(mark.role is Role.DOMINATED and mark.sign != "excluded" for mark in picture.marks),
            "o",
            "grey: dominated",
            colours["dominated"],
            colours["dominated"],
            7.5,
        ),
    )
    for drawn, shape, label, face, edge, size in others:
        if drawn:
            handles.append(Line2D([], [], marker=shape, label=label, mfc=face, mec=edge, ms=size, mew=1.4, ls="none"))
    return handles


def _line_handle(line: Line, colour: str) -> Line2D:
    """A line of the legend as it is drawn; for a layer a square of its colour."""
    if line.kind == "layer":
        return Line2D([], [], color=colour, marker="s", ms=9, mew=0, ls="none", label=line.name)
    lw, stroke, _ = STROKES[line.kind]
    dashed = (0, line.dashes) if line.dashes else stroke
    drawn = Line2D([], [], color=colour, lw=lw * (STRONG if line.strong else 1), ls=dashed, label=line.name)
    if line.kind == "measured":
        drawn.set(marker=line.marker, ms=6 if line.strong else 5, mew=0)
    return drawn


def _fitting(handles: Sequence[Line2D], width: float) -> int:
    """How many entries of the legend fit beside each other."""
    widths = [text_width(str(handle.get_label()), 9.5) + 52 for handle in handles]
    return max(1, len(handles) if sum(widths) <= width - 28 else int((width - 28) / max(widths)))


def _legend(figure: Figure, handles: Sequence[Line2D], across: int, top: float, theme: Theme) -> None:
    """The legend, so many entries in a line, left below the title."""
    wide, tall = figure.get_size_inches() * 100
    if handles:
        figure.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(14 / wide, top / tall),
            ncols=across,
            frameon=False,
            fontsize=9.5,
            labelcolor=ink(Role.TEXT, theme),
            borderpad=0,
            borderaxespad=0,
            handletextpad=0.5,
            columnspacing=1.6,
            handlelength=1.6,
        )
