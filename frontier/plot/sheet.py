"""Draws a sheet of companion charts with matplotlib, in the picture's colours: PNG, PDF, and SVG of the same bytes."""

import io
import math
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from frontier.plot.chart import Chart, Line, Mark, Sheet
from frontier.plot.draw import COLOURS, blend, defaults, metadata
from frontier.plot.layout import fit, line_height, text_width, wrap
from frontier.plot.picture_model import FORMATS, Theme
from frontier.store.files import write_output

WIDTH = 1100
TITLE, HEAD, SIZE, NOTE = 14.0, 10.5, 9.0, 9.0
INKS: dict[Theme, tuple[str, ...]] = {
    "light": ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8F6200", "#3A3A3A"),
    "dark": ("#56B4E9", "#FF8A3D", "#2BC79A", "#E59CC3", "#E69F00", "#D0D0D0"),
}
"""Okabe and Ito's colours, the yellow one darkened on white until thin lines of it can be seen."""
CELLS = {1: 560, 2: 480, 3: 366}
"""Pixels a chart of a page is wide, by how many stand side by side: what is readable there and on a phone."""
STUB = 0.05
"""Length of the arrow of an interval without an end, as a share of the axis."""
STROKES: dict[str, object] = {"measured": (0, (1, 1.6)), "steps": "-", "fit": (0, (5, 2.5)), "cloud": "none"}


def save_sheet(sheet: Sheet, path: Path, *, width: int | None = None, theme: Theme = "light") -> None:
    """Write the sheet as the path's suffix says (png, svg, pdf). ValueError for another suffix."""
    write_output(path, render_sheet(sheet, path.suffix.removeprefix(".").lower(), width=width, theme=theme))


def render_chart(sheet: Sheet, chart: Chart) -> bytes:
    """One chart of a sheet as an SVG of its own, for a page that puts them side by side or, on a phone, one below the
    other; title, key and notes of the sheet are left to the page.
    """
    alone = Sheet(sheet.name, f"{sheet.title}: {chart.title}", (chart,), columns=1, tall=sheet.tall)
    return render_sheet(alone, "svg", titled=False, laid_out=CELLS[min(sheet.columns, len(sheet.charts), 3)])


def render_sheet(
    sheet: Sheet, form: str, *, width: int | None = None, theme: Theme = "light", titled: bool = True,
    laid_out: int = WIDTH,
) -> bytes:  # fmt: skip
    """The sheet as bytes of one of FORMATS; ValueError for another. `width` in pixels enlarges a PNG for slides.

    `laid_out` is the width that text and charts are laid out for.
    """
    if form not in FORMATS:
        raise ValueError(f"a picture cannot be written as {form!r}; it can as {', '.join(FORMATS)}")
    out = io.BytesIO()
    with defaults():
        figure = draw_sheet(sheet, theme, titled=titled, laid_out=laid_out)
        figure.savefig(
            out, format=form, dpi=100 * (width or laid_out) / laid_out,
            metadata=metadata(form, sheet.title, sheet.description),
        )  # fmt: skip
    return out.getvalue()


def draw_sheet(sheet: Sheet, theme: Theme = "light", *, titled: bool = True, laid_out: int = WIDTH) -> Figure:
    """The sheet as a matplotlib Figure with an Agg canvas."""
    colours = COLOURS[theme]
    head = wrap(sheet.title, TITLE, laid_out - 28, lines=2, bold=True) if titled else ()
    notes = [line for note in sheet.notes for line in wrap(note, NOTE, laid_out - 28, lines=3)]
    rows = math.ceil(len(sheet.charts) / sheet.columns)
    above = 10 + len(head) * line_height(TITLE) + (6 if head else 0)
    keyed = bool(sheet.key) and any(chart.keyed for chart in sheet.charts)
    above, below = above + (line_height(SIZE) + 4 if keyed else 0), 10 + len(notes) * line_height(NOTE)
    cell_tall = sheet.tall + 92
    height = math.ceil(above + rows * cell_tall + below)
    figure = Figure(figsize=(laid_out / 100, height / 100), dpi=100, facecolor=colours["paper"])
    FigureCanvasAgg(figure)

    def write(text: str, x: float, y: float, size: float, colour: str, *, bold: bool = False) -> None:
        figure.text(x / laid_out, y / height, text, fontsize=size, color=colours[colour], va="top", parse_math=False,
                    fontweight="bold" if bold else "normal")  # fmt: skip

    for i, line in enumerate(head):
        write(line, 14, height - 10 - i * line_height(TITLE), TITLE, "text", bold=True)
    for i, line in enumerate(notes):
        write(line, 14, below - 4 - i * line_height(NOTE), NOTE, "quiet")
    if keyed:
        x, y = 14.0, height - above + line_height(SIZE)
        for name, ink in sheet.key:
            at = (y - line_height(SIZE) * 0.5) / height
            figure.add_artist(Line2D([x / laid_out, (x + 22) / laid_out], [at, at], color=INKS[theme][ink % 6], lw=2.2))
            write(name, x + 28, y, SIZE, "text")
            x += 28 + text_width(name, SIZE) + 20
    cell = laid_out / min(sheet.columns, max(1, len(sheet.charts)))
    for i, chart in enumerate(sheet.charts):
        row, column = divmod(i, sheet.columns)
        right = 26.0 if chart.keyed or chart.spans else 20.0 + _name_room(chart)
        x0, top = column * cell + 78, height - above - row * cell_tall - 38
        wide = cell - 78 - right
        axes = figure.add_axes((x0 / laid_out, (top - sheet.tall) / height, wide / laid_out, sheet.tall / height))
        write(fit(chart.title, HEAD, cell - 30, bold=True), column * cell + 14, top + 33, HEAD, "text", bold=True)
        _dress(axes, chart, colours)
        _draw(axes, chart, theme, sheet.tall)
    return figure


def _name_room(chart: Chart) -> float:
    return max((text_width(line.name, SIZE) for line in chart.lines), default=0.0) + 8


def _dress(axes: Axes, chart: Chart, colours: dict[str, str]) -> None:
    axes.patch.set_alpha(0)
    if chart.x.log:
        axes.set_xscale("log")
    if chart.y.log:
        axes.set_yscale("log")
    axes.set_xlim(chart.x.low, chart.x.high)
    axes.set_ylim(chart.y.low, chart.y.high)
    for axis, of in ((axes.xaxis, chart.x), (axes.yaxis, chart.y)):
        axis.set_major_locator(FixedLocator([at for at, _ in of.ticks]))
        axis.set_major_formatter(FixedFormatter([text for _, text in of.ticks]))
        axis.set_minor_locator(NullLocator())
        axis.grid(True, color=colours["grid"], lw=0.8)
        axis.label.set_parse_math(False)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=SIZE, colors=colours["axis"], length=3)
    axes.set_xlabel(chart.x.label, fontsize=SIZE + 0.5, color=colours["text"], labelpad=4)
    axes.set_ylabel(chart.y.label, fontsize=SIZE + 0.5, color=colours["text"], labelpad=5)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(colours["axis"])


def _draw(axes: Axes, chart: Chart, theme: Theme, tall: float) -> None:
    colours = COLOURS[theme]
    _spans(axes, chart, theme)
    for mark in chart.marks:
        _mark(axes, mark, chart, colours)
    for line in chart.lines:
        _line(axes, line, INKS[theme][line.ink % len(INKS[theme])], colours["paper"], chart)
    if not chart.keyed and not chart.spans:
        _end_names(axes, chart, theme, tall)


def _line(axes: Axes, line: Line, colour: str, paper: str, chart: Chart) -> None:
    xs = [x for x, _ in line.points]
    ys = [chart.y.shown(y) for _, y in line.points]
    if line.kind == "cloud":
        axes.plot(xs, ys, line.marker, color=blend(colour, paper, 0.45), ms=2.6, mew=0)
        return
    marker = line.marker if line.kind == "measured" else None
    held = [i for i, (_, y) in enumerate(line.points) if not chart.y.off(y)]
    axes.plot(xs, ys, color=colour, lw=1.0 if marker else 1.6, ls=STROKES[line.kind], marker=marker, ms=5, mew=0,
              markevery=held, clip_on=marker is None,  # a mark on the frame, as of 0, is seen whole
              drawstyle="steps-post" if line.kind == "steps" else "default")  # fmt: skip
    for side, head in ((1, "^"), (-1, "v")):
        off = [(x, chart.y.shown(y)) for x, y in line.points if chart.y.off(y) == side]
        if off:
            axes.plot(*zip(*off, strict=True), head, ms=8, mfc=paper, mec=colour, mew=1.3, ls="none", clip_on=False,
                      zorder=4)  # fmt: skip
    _bars(axes, line, chart, colour)


def _bars(axes: Axes, line: Line, chart: Chart, colour: str) -> None:
    """The intervals cut to the chart, an end without a bound as a short arrow; all at once, which is faster."""
    stems: list[tuple[float, float, float]] = []
    heads: dict[str, list[tuple[float, float]]] = {"v": [], "^": []}
    for (x, y), bar in zip(line.points, line.bars, strict=False):
        if bar is None:
            continue
        ends = []
        for end, sign, head in ((bar[0], -1, "v"), (bar[1], 1, "^")):
            if math.isinf(end):
                middle = chart.y.fraction(chart.y.shown(y))
                ends.append(chart.y.value(min(1.0, max(0.0, middle + sign * STUB))))
                heads[head].append((x, ends[-1]))
            else:
                ends.append(min(max(end, chart.y.low), chart.y.high))
        stems.append((x, ends[0], ends[1]))
    if stems:
        xs, lows, highs = zip(*stems, strict=True)
        axes.vlines(xs, lows, highs, color=colour, lw=1.2, capstyle="butt", zorder=2)
    for head, at in heads.items():
        if at:
            axes.plot(*zip(*at, strict=True), head, ms=3.2, color=colour, mew=0)


def _mark(axes: Axes, mark: Mark, chart: Chart, colours: dict[str, str]) -> None:
    """A line across the chart and its text: above the frame, or inside at the foot for what matters less."""
    colour = colours[{"limit": "sla", "chosen": "operating", "edge": "quiet"}[mark.of]]
    stroke = "-" if mark.of == "limit" else (0, (4, 2))
    if mark.upright:
        over = 3 if chart.spans else 0.8  # rows of a timeline leave nothing free to see it through
        axes.axvline(mark.at, color=colour, lw=1.2, ls=stroke, zorder=over)
        foot = mark.of == "edge"
        where, coords = (mark.at, 0.0 if foot else 1.0), ("data", "axes fraction")
        shift = (-3, 4) if foot else (2, 3)
    else:
        axes.axhline(mark.at, color=colour, lw=1.3, ls=stroke, zorder=0.8)
        where, coords, shift = (0.015, mark.at), ("axes fraction", "data"), (0, 3)
    leftward = mark.upright and (mark.of == "edge" or chart.x.fraction(mark.at) > 0.55)
    text = axes.annotate(mark.text, where, xycoords=coords, xytext=shift, textcoords="offset points",
                         fontsize=SIZE - 0.5, color=colour, annotation_clip=False,
                         ha="right" if leftward else "left", zorder=1,
                         bbox={"facecolor": colours["paper"], "edgecolor": "none", "pad": 0.6})  # fmt: skip
    text.set_parse_math(False)


def _spans(axes: Axes, chart: Chart, theme: Theme) -> None:
    if not chart.spans:
        return
    colours, inks = COLOURS[theme], INKS[theme]
    look = {"wait": blend(inks[0], colours["paper"], 0.35), "answer": inks[0], "failed": inks[1]}
    rows = max((span.row for span in chart.spans), default=0) + 1
    thick = max(0.6, min(9.0, 0.7 * 260 / rows))
    for span in chart.spans:
        if span.of == "shade":
            axes.axvspan(span.start, span.end, color=blend(colours["sla"], colours["paper"], 0.09), lw=0, zorder=0.5)
    for kind, colour in look.items():
        lines = [[(s.start, s.row), (s.end, s.row)] for s in chart.spans if s.of == kind]
        if lines:
            axes.add_collection(LineCollection(lines, colors=colour, linewidths=thick, capstyle="butt", zorder=2))


def _end_names(axes: Axes, chart: Chart, theme: Theme, tall: float) -> None:
    """Each line's name at its right end, pushed apart where they would touch."""
    step = 12.5
    wanted = []
    for line in chart.lines:
        y = chart.y.shown(line.points[-1][1])
        wanted.append((min(1.0, max(0.0, chart.y.fraction(y))) * tall, line))
    placed = -math.inf
    for at, line in sorted(wanted, key=lambda item: (item[0], item[1].name)):
        placed = max(at, placed + step)
        text = axes.annotate(
            line.name, (1.0, placed / tall), xycoords="axes fraction", xytext=(4, -3), textcoords="offset points",
            fontsize=SIZE, color=INKS[theme][line.ink % len(INKS[theme])], annotation_clip=False,
        )  # fmt: skip
        text.set_parse_math(False)
