"""Draws figure data with matplotlib: PNG, PDF and SVG, the same bytes for the same figure. Decides
nothing it says.

The object interface is used throughout: no pyplot, no global state, no display. Text stays text in
SVG, and is never parsed as mathematics.
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

import numpy as np

from frontier.core.errors import DrawingError
from frontier.core.text import clean
from frontier.show.picture.colours import COLOURS, blend, ink
from frontier.show.picture.data import (
    FORMATS,
    SIGN_WORDS,
    Bar,
    Line,
    Mark,
    Panel,
    Picture,
    Role,
    Sign,
    Theme,
    mark_id,
)

# matplotlib reads the user's settings when it is imported, and fails on some of them with any
# exception: a backend that does not exist, a matplotlibrc that is not UTF-8 or cannot be read.
try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    from frontier.show.picture.layout import PanelLayout, Placed, fit, line_height, text_width, wrap
    from frontier.show.picture.ticks import ticks_of
except Exception as error:
    raise DrawingError(
        f"matplotlib cannot be loaded: {clean(f'{type(error).__name__}: {error}')}",
        "unset MPLBACKEND, or mend the matplotlibrc: here, in $MATPLOTLIBRC or in ~/.config/matplotlib",
    ) from error

_MARK = re.compile(r'<g id="(mark-[^"]*)">')
TOGETHER = re.compile(r"(?<=[\d∞]) (?=[a-zµ])|(?<=concurrency) (?=\d)|(?<=[≤≥]) |(?<=p99) |(?<=p50) | (?=[≤≥])")
"""Spaces at which a title is not broken: between a number and its unit, and around a sign."""
SHAPES = {Role.OTHER: "s", Role.THIRD: "^", Role.FOURTH: "D", Role.PREDICTED: "D"}
"""Symbols of marks that are not dots."""
STROKES: dict[str, tuple[float, object, float]] = {
    "stair": (2.3, "-", 3.0),
    "roofline": (1.3, (0, (1, 1.8)), 2.0),
    "predicted": (1.5, (0, (5, 3)), 2.7),
    "measured": (1.0, (0, (1, 1.6)), 2.5),
    "steps": (1.6, "-", 2.5),
    "fit": (1.6, (0, (5, 2.5)), 2.0),
    "cloud": (0.0, "none", 1.5),
}
"""Width, dashes and depth of each kind of line."""
STRONG = 2.0
"""So much thicker is a strong one."""
TITLE, NOTE, FOOT = 16.0, 9.5, 9.0
HEAD, RIGHT, ROW = 26.0, 24.0, 21.0
"""Pixels above a panel for its title, beside it on the right, and of a row of the strip."""
CELLS = {1: 560, 2: 480, 3: 366}
"""Pixels a chart of a page is wide, by how many stand side by side: what is readable there and on a
phone."""


@contextmanager
def defaults() -> Iterator[None]:
    """matplotlib as shipped, whatever the user's matplotlibrc says; a glyph the font lacks is no
    reason to fail.
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

    `width` in pixels enlarges or shrinks a PNG; a narrow one is laid out anew, so that its text can
    be read. A page gives the width to lay out for as `laid_out`, and is not `titled` where it says
    title, table and notes itself.
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
    """The SVG with a `<title>` in each mark that has a tooltip, which browsers show under the
    pointer. Marks of several runs at one setting have the same id, in the order of the panel.
    """
    waiting: dict[str, list[str]] = {}
    for i, panel in enumerate((*picture.panels, *([picture.strip] if picture.strip else []))):
        for mark in panel.marks:
            for end in ("", "-star") if mark.star else ("",):
                waiting.setdefault(mark_id(i, mark.concurrency) + end, []).append(escape(mark.tooltip))

    def titled(found: re.Match[str]) -> str:
        text = waiting[found[1]].pop(0)
        return f"{found[0]}<title>{text}</title>" if text else found[0]

    return _MARK.sub(titled, svg.decode()).encode()


def render_panel(picture: Picture, number: int) -> bytes:
    """One panel of a detail figure as an SVG of its own, for a page that puts them side by side or,
    on a phone, one below the other; the page says title, key and notes itself.
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
    """The picture as a matplotlib Figure with an Agg canvas. To be called under `defaults`.

    Words are laid out first: only then is known how tall the figure is, and which of them go below
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
    keys = 22.0 if handles else 0.0
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
    _legend(figure, handles, height - top - legend.tall - 4, theme)
    for i, cell in enumerate(cells):
        layout, y1 = cell.layout, height - under - cell.down
        box = cell.x / width, (y1 - layout.height) / height, layout.width / width, layout.height / height
        if not cell.large and layout.panel.title:
            name = fit(layout.panel.title, 10.5, layout.width + cell.left - 20, bold=True, middle=True)
            _write(figure, _Lines((name,), 10.5, Role.TEXT, bold=True), cell.x - cell.left + 14, y1 + 24, theme)
        _draw_panel(figure.add_axes(box), layout, theme, i, large=cell.large)
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
        layout = PanelLayout(picture.strip, width - left - RIGHT, ROW * len(picture.strip.y.names), 9.5).run()
        cells.append(_Cell(layout, left, deep + HEAD, left))
        deep += layout.height + 86
    return cells, deep


def _unsaid(layouts: Sequence[PanelLayout]) -> list[str]:
    """Notes on the words that found no room in their panels; the same words of several panels
    once.
    """
    panels: dict[str, list[str]] = {}
    for layout in layouts:
        words = list(layout.unplaced)
        if layout.unnumbered:
            settings = dict.fromkeys(m.name for m in sorted(layout.unnumbered, key=lambda m: m.concurrency))
            words.append(f"too crowded to be numbered: {', '.join(settings)}")
        for text in words:
            panels.setdefault(text, []).append(layout.panel.title)
    return [text if len(titles) == len(layouts) else f"{', '.join(titles)}:  {text}" for text, titles in panels.items()]


def _table(picture: Picture, width: int) -> list[list[tuple[float, _Lines]]]:
    """The table of answers as rows of (x, text): columns as wide as their widest cell, a long name
    cut. Where that is wider than the figure, what follows a name stands below it.
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
        y = top - (i + 0.5) * line_height(lines.size) - lines.size * 0.36 * 100 / 72
        figure.text(
            x / wide,
            y / tall,
            line,
            fontsize=lines.size,
            color=ink(lines.role, theme),
            va="baseline",
            fontweight="bold" if lines.bold else "normal",
        )


def _handles(picture: Picture, theme: Theme, *, titled: bool) -> list[Line2D]:
    """What the legend draws: the signs of marks and, where the page does not say it, the lines."""
    black, paper = ink(Role.TEXT, theme), COLOURS[theme]["paper"]
    handles = [_line_handle(line, ink(line.role, theme)) for line in picture.named_lines if titled]
    for sign in picture.signs:
        shape, face = _look(sign, "o", black, paper)
        handles.append(
            Line2D([], [], marker=shape, label=SIGN_WORDS[sign], mfc=face, mec=black, ms=7.5, mew=1.4, ls="none")
        )
    return handles


def _line_handle(line: Line, colour: str) -> Line2D:
    """A line as it is drawn, for the legend; of a layer a square of its colour."""
    if line.kind == "layer":
        return Line2D([], [], color=colour, marker="s", ms=9, mew=0, ls="none", label=line.name)
    lw, stroke, _ = STROKES[line.kind]
    drawn = Line2D([], [], color=colour, lw=lw * (STRONG if line.strong else 1), ls=stroke, label=line.name)
    if line.kind == "measured":
        drawn.set(marker=line.marker, ms=6 if line.strong else 5, mew=0)
    return drawn


def _legend(figure: Figure, handles: Sequence[Line2D], top: float, theme: Theme) -> None:
    """The legend in one line, left below the title."""
    wide, tall = figure.get_size_inches() * 100
    if handles:
        figure.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(14 / wide, top / tall),
            ncols=len(handles),
            frameon=False,
            fontsize=9.5,
            labelcolor=ink(Role.TEXT, theme),
            borderpad=0,
            borderaxespad=0,
            handletextpad=0.5,
            columnspacing=1.6,
            handlelength=1.6,
        )


def _look(sign: Sign, shape: str, colour: str, paper: str) -> tuple[str, str]:
    """The symbol and the filling of a setting by how it stands to the SLA."""
    if sign == "violates":
        return "x", colour
    if sign == "excluded":
        return "s", paper
    return shape, paper if sign == "open" else colour


def _draw_panel(axes: Axes, layout: PanelLayout, theme: Theme, number: int, *, large: bool) -> None:
    panel, colours = layout.panel, COLOURS[theme]
    _dress(axes, layout, colours, large=large)
    if panel.is_empty:
        axes.text(
            0.5,
            0.5,
            "nothing to draw on these axes",
            transform=axes.transAxes,
            ha="center",
            va="center",
            fontsize=layout.size,
            color=colours["quiet"],
        )
    if panel.region:
        x0, x1, y0, y1 = panel.region
        axes.fill(
            [x0, x1, x1, x0], [y0, y0, y1, y1], color=blend(colours["sla"], colours["paper"], 0.07), lw=0, zorder=-1
        )
    for rule in panel.rules:
        line = axes.axvline if rule.axis == "x" else axes.axhline
        line(
            rule.at,
            color=colours[rule.role.value],
            lw=1.0 if rule.dashed else 1.6,
            ls="--" if rule.dashed else "-",
            zorder=3 if panel.spans else 2,
        )
    _draw_spans(axes, panel, colours)
    for line_data in panel.lines:
        _draw_line(axes, line_data, panel, theme)
    for role in dict.fromkeys(mark.role for mark in panel.marks):
        quiet = role in (Role.DOMINATED, Role.FLAGGED, Role.PREDICTED)
        colour = blend(colours[role.value], colours["paper"], 0.55) if quiet else colours[role.value]
        marks = [mark for mark in panel.marks if mark.role is role]
        _draw_bars(axes, [(m.y, m.x_bar) for m in marks if m.x_bar], colour, upright=False)
        _draw_bars(axes, [(m.x, m.y_bar) for m in marks if m.y_bar], colour, upright=True)
    for mark in panel.marks:
        _draw_mark(axes, mark, colours, mark_id(number, mark.concurrency))
    for placed in layout.placed:
        _draw_words(axes, placed, layout, theme)


def _dress(axes: Axes, layout: PanelLayout, colours: dict[str, str], *, large: bool) -> None:
    """Frame, grid, ticks and the names of the axes."""
    panel, points = layout.panel, 12.0 if large else 9.5
    axes.patch.set_alpha(0)
    axes.set_xscale("log" if panel.x.log else "linear")
    axes.set_yscale("log" if panel.y.log else "linear")
    axes.set_xlim(panel.x.low, panel.x.high)
    axes.set_ylim(panel.y.low, panel.y.high)
    sides = ((axes.xaxis, panel.x, layout.width, False), (axes.yaxis, panel.y, layout.height, True))
    for axis, data, length, upright in sides:
        ticks = () if panel.is_empty else ticks_of(data, length, points, upright)
        axis.set_major_locator(FixedLocator([value for value, _ in ticks]))
        axis.set_major_formatter(FixedFormatter([text for _, text in ticks]))
        axis.set_minor_locator(NullLocator())
        axis.grid(True, color=colours["grid"], lw=0.9, zorder=0)
        fits = data.short_label == "" or (large and text_width(data.label, points) <= length)
        axis.set_label_text(data.label if fits else data.short_label, fontsize=points, color=colours["text"])
        axis.labelpad = 8 if upright else 6
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=points, colors=colours["axis"], length=4)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(colours["axis"])


def _draw_line(axes: Axes, line: Line, panel: Panel, theme: Theme) -> None:
    colours = COLOURS[theme]
    paper = colours["paper"]
    if line.kind == "layer":
        _draw_layer(axes, line, ink(line.role, theme))
        return
    thin = line.kind not in ("stair", "roofline")
    colour = ink(line.role, theme) if thin else colours[line.role.value]
    if line.band:
        edges, lows, highs = zip(*line.band, strict=True)
        axes.fill_between(
            edges,
            lows,
            highs,
            step="pre" if panel.x.rising_is_better else "post",
            color=blend(colour, paper, 0.18),
            lw=0,
            zorder=-0.5,
        )
    xs, ys = [x for x, _ in line.points], [panel.y.shown(y) for _, y in line.points]
    if line.kind == "cloud":
        axes.plot(xs, ys, line.marker, color=blend(colour, paper, 0.45), ms=2.6, mew=0, zorder=1.5)
        return
    lw, stroke, depth = STROKES[line.kind]
    marker = line.marker if line.kind == "measured" else None
    on_axis = [i for i, (_, y) in enumerate(line.points) if not panel.y.off(y)]
    axes.plot(
        xs,
        ys,
        color=colour,
        lw=lw * (STRONG if line.strong else 1),
        ls=stroke,
        marker=marker,
        ms=6 if line.strong else 5,
        mew=0,
        markevery=on_axis,
        zorder=depth,
        clip_on=marker is None,  # a mark on the frame, as of 0, is seen whole
        drawstyle="steps-post" if line.kind == "steps" else "default",
        solid_joinstyle="miter",
    )
    for side, head in ((1, "^"), (-1, "v")):
        edge = [(x, panel.y.shown(y)) for x, y in line.points if panel.y.off(y) == side]
        if edge:
            axes.plot(
                *zip(*edge, strict=True), head, ms=8, mfc=paper, mec=colour, mew=1.3, ls="none", clip_on=False, zorder=4
            )
    bars = [(x, bar) for (x, _), bar in zip(line.points, line.bars, strict=False) if bar]
    _draw_bars(axes, bars, colour, upright=True)


def _draw_layer(axes: Axes, line: Line, colour: str) -> None:
    """A part of each category's column."""
    xs, lows, highs = (np.array(values) for values in zip(*line.band, strict=True))
    axes.bar(xs, highs - lows, 0.7, lows, color=colour, lw=0, zorder=1.5)


def _draw_bars(axes: Axes, bars: Sequence[tuple[float, Bar]], colour: str, *, upright: bool) -> None:
    """Intervals at their places on the other axis; all at once, which is faster."""
    if not bars:
        return
    stems = axes.vlines if upright else axes.hlines
    stems(
        [at for at, _ in bars],
        [bar.low for _, bar in bars],
        [bar.high for _, bar in bars],
        color=colour,
        lw=1.4,
        zorder=2.9,
    )


def _draw_mark(axes: Axes, mark: Mark, colours: dict[str, str], name: str) -> None:
    colour, paper = colours[mark.role.value], colours["paper"]
    predicted = mark.role is Role.PREDICTED
    shape, face = _look(mark.sign, SHAPES.get(mark.role, "o"), colour, paper)
    axes.plot(
        mark.x,
        mark.y,
        ">" if mark.beyond else shape,
        ms=4.5 if predicted else 8.0,
        mfc=paper if predicted else face,
        mec=colour,
        mew=1.0 if predicted else 1.6,
        zorder=4,
        gid=None if predicted else name,
    )
    if mark.ring:
        axes.plot(mark.x, mark.y, "o", ms=15, mfc="none", mec=colours["operating"], mew=1.6, zorder=6)
    if mark.star:
        axes.plot(
            mark.x, mark.y, "*", ms=20, mfc=colours[mark.star.value], mec=paper, mew=1.2, zorder=6, gid=name + "-star"
        )


def _draw_spans(axes: Axes, panel: Panel, colours: dict[str, str]) -> None:
    """The rows of a timeline, and the window behind them."""
    if not panel.spans:
        return
    paper = colours["paper"]
    wait, failed = blend(colours["frontier"], paper, 0.35), colours["operating"]
    thick = max(0.6, min(9.0, 180 / (max(span.row for span in panel.spans) + 1)))
    for span in panel.spans:
        if span.kind == "shade":
            axes.axvspan(span.start, span.end, color=blend(colours["sla"], paper, 0.09), lw=0, zorder=0.5)
    for kind, colour in (("wait", wait), ("answer", colours["frontier"]), ("failed", failed)):
        rows = [[(s.start, s.row), (s.end, s.row)] for s in panel.spans if s.kind == kind]
        if rows:
            axes.add_collection(LineCollection(rows, colors=colour, linewidths=thick, capstyle="butt", zorder=2))


def _draw_words(axes: Axes, placed: Placed, layout: PanelLayout, theme: Theme) -> None:
    """Lines of text one by one, so that nothing depends on a renderer's idea of line spacing."""
    w, h = layout.width, layout.height
    x0, y0, x1, y1 = placed.box
    x = {"left": x0, "center": (x0 + x1) / 2, "right": x1}[placed.align]
    step = (y1 - y0) / len(placed.lines)
    colour = ink(placed.role, theme)
    for i, line in enumerate(placed.lines):
        y = y1 - (i + 0.5) * step - placed.size * 0.36 * 100 / 72
        axes.text(
            x / w,
            y / h,
            line,
            transform=axes.transAxes,
            fontsize=placed.size,
            color=colour,
            ha=placed.align,
            va="baseline",
            fontweight="bold" if placed.bold else "normal",
            zorder=7,
        )
    if placed.leader and placed.arrow:
        tail, tip = (placed.leader[0] / w, placed.leader[1] / h), (placed.leader[2] / w, placed.leader[3] / h)
        axes.add_patch(
            FancyArrowPatch(
                tail,
                tip,
                transform=axes.transAxes,
                arrowstyle="->",
                mutation_scale=13,
                lw=1.3,
                color=colour,
                shrinkA=0,
                shrinkB=0,
            )
        )
    elif placed.leader:
        xs, ys = [placed.leader[0] / w, placed.leader[2] / w], [placed.leader[1] / h, placed.leader[3] / h]
        axes.plot(xs, ys, color=colour, lw=1.1, transform=axes.transAxes, zorder=6.5)
