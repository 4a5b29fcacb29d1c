"""Draws a Picture with matplotlib and decides nothing: PNG, PDF, and SVG that is the same bytes for the same picture.

The object interface is used throughout: no pyplot, no global state, no display. Text stays text in SVG.
"""

import io
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from frontier.plot.layout import Segment, text_width
from frontier.plot.picture_model import (
    FORMATS,
    TICKS,
    TICKS_SMALL,
    Bar,
    Label,
    Mark,
    Panel,
    Picture,
    Predicted,
    Role,
    Stair,
    Theme,
)

SHAPES = {Role.OTHER: "s", Role.THIRD: "^", Role.FOURTH: "D"}
"""Marks of the second to fourth of several frontiers in one panel."""
STRIKE = [(-0.5, -0.5), (0.5, 0.5)]
"""A slash through a mark, as a marker's path."""

# Okabe & Ito's colours (2008), told apart by colour-blind readers too; a shape or a text always says the same.
COLOURS: dict[Theme, dict[str, str]] = {
    "light": {
        "frontier": "#0072B2", "other": "#E69F00", "other text": "#8F6200",
        "third": "#CC79A7", "third text": "#A3507F", "fourth": "#3A3A3A",
        "dominated": "#8C8C8C", "flagged": "#6E6E6E",
        "operating": "#D55E00", "sla": "#009E73", "light": "#000000", "quiet": "#6A6A6A", "text": "#000000",
        "paper": "#FFFFFF", "grid": "#E6E6E6", "axis": "#000000",
    },
    "dark": {
        "frontier": "#56B4E9", "other": "#E69F00", "third": "#E59CC3", "fourth": "#E8E8E8",
        "dominated": "#8A8F98", "flagged": "#A9AEB6",
        "operating": "#FF8A3D", "sla": "#2BC79A", "light": "#F2F2F2", "quiet": "#A9AEB6", "text": "#F4F4F4",
        "paper": "#14171C", "grid": "#2A2F37", "axis": "#C9CDD3",
    },
}  # fmt: skip


BLENDS = (0.07, 0.09, 0.18, 0.35, 0.45, 0.55)
"""Shares that colours are blended with the paper in."""


def blend(colour: str, paper: str, share: float) -> str:
    """So much of a colour on the paper: not every viewer of SVG and PDF knows transparency."""
    mixed = (round(share * int(colour[i : i + 2], 16) + (1 - share) * int(paper[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{part:02X}" for part in mixed)


def inks(light: Iterable[str], dark: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each colour of the light palette with what the dark one has in its place, bare and blended with the paper."""
    papers = COLOURS["light"]["paper"], COLOURS["dark"]["paper"]
    for one, other in zip(light, dark, strict=True):
        yield one, other
        for share in BLENDS:
            yield blend(one, papers[0], share), blend(other, papers[1], share)


def render(picture: Picture, form: str, *, width: int | None = None, theme: Theme = "light") -> bytes:
    """The picture as bytes of one of FORMATS; ValueError for another format."""
    if form not in FORMATS:
        raise ValueError(f"a picture cannot be written as {form!r}; it can as {', '.join(FORMATS)}")
    out = io.BytesIO()
    with defaults():
        figure = draw(picture, theme)
        figure.savefig(
            out, format=form, dpi=100 * (width or picture.width) / picture.width,
            metadata=metadata(form, picture.title, picture.description),
        )  # fmt: skip
    return out.getvalue()


def metadata(form: str, title: str, description: str) -> dict[str, str | None]:
    """What a file says of itself: no date and no version, so that the same picture is the same bytes."""
    found: dict[str, dict[str, str | None]] = {
        "png": {"Software": None, "Title": title},
        "svg": {"Date": None, "Creator": "frontier", "Title": title, "Description": description},
        "pdf": {"CreationDate": None, "Creator": "frontier", "Producer": None, "Title": title},
    }
    return found[form]


@contextmanager
def defaults() -> Iterator[None]:
    """matplotlib as shipped, whatever the user's matplotlibrc says; a glyph the font lacks is no reason to fail."""
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        # Without hinting a text is as wide as its letters, at every size: the layout counts on it.
        mpl.rcParams.update(
            {"svg.hashsalt": "frontier", "svg.fonttype": "none", "pdf.fonttype": 42, "text.hinting": "no_hinting",
             "font.sans-serif": ["DejaVu Sans", "Bitstream Vera Sans", "Verdana", "Geneva", "Arial", "Helvetica"]}
        )  # fmt: skip
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        yield


def draw(picture: Picture, theme: Theme = "light") -> Figure:
    """The picture as a matplotlib Figure with an Agg canvas, for a notebook."""
    colours = COLOURS[theme]
    figure = Figure(figsize=(picture.width / 100, picture.height / 100), dpi=100, facecolor=colours["paper"])
    FigureCanvasAgg(figure)
    for number, panel in enumerate(picture.panels):
        _panel(figure, picture, panel, colours, number)
    for label in picture.labels:
        _label(figure, picture, label, colours)
    return figure


def mark_id(panel: int, concurrency: int) -> str:
    """What the mark of a setting is called in an SVG, for a page to link it to its row."""
    return f"mark-{panel}-{concurrency}"


def _panel(figure: Figure, picture: Picture, panel: Panel, colours: dict[str, str], number: int) -> None:
    box, w, h = panel.box, picture.width, picture.height
    axes = figure.add_axes((box.x0 / w, box.y0 / h, (box.x1 - box.x0) / w, (box.y1 - box.y0) / h))
    small = len(picture.panels) > 1
    _axes(axes, panel, colours, small=small)
    if panel.region:
        x0, x1, y0, y1 = panel.region
        ground = blend(colours["sla"], colours["paper"], 0.07)
        axes.fill([x0, x1, x1, x0], [y0, y0, y1, y1], color=ground, lw=0, zorder=-1)
    for rule in panel.rules:
        line = axes.axvline if rule.axis == "x" else axes.axhline
        line(rule.at, color=colours["sla"], lw=1.0 if rule.comfort else 1.6, ls="--" if rule.comfort else "-", zorder=2)
    if panel.light:
        xs, ys = zip(*panel.light, strict=True)
        axes.plot(xs, ys, color=colours["light"], lw=1.3, ls=(0, (1, 1.8)), zorder=2)
    if panel.expected:
        _bands(axes, panel.expected, blend(colours["quiet"], colours["paper"], 0.55))
        xs, ys = zip(*((p.x, p.y) for p in panel.expected), strict=True)
        axes.plot(xs, ys, color=colours["quiet"], lw=1.5, ls=(0, (5, 3)), marker="D", ms=4.5,
                  mfc=colours["paper"], mec=colours["quiet"], mew=1.0, zorder=2.7)  # fmt: skip
    for path in panel.paths:
        xs, ys = zip(*path, strict=True)
        axes.plot(xs, ys, color=colours["dominated"], lw=0.9, ls=(0, (1, 2)), zorder=2.5)
    for stair in panel.stairs:
        _band(axes, stair, colours, rightward=panel.x.rising_is_better)
        xs, ys = zip(*stair.corners, strict=True)
        axes.plot(xs, ys, color=colours[stair.role.value], lw=2.3, zorder=3, solid_joinstyle="miter")
    for mark in panel.marks:
        _mark(axes, mark, colours, mark_id(number, mark.concurrency))
    starred = {(m.x, m.y): mark_id(number, m.concurrency) + "-star" for m in panel.marks}
    if panel.ring:
        axes.plot(*panel.ring, "o", ms=15, mfc="none", mec=colours["operating"], mew=1.6, zorder=6)
    if panel.star:
        axes.plot(*panel.star, "*", ms=20, mfc=colours["operating"], mec=colours["paper"], mew=1.2, zorder=6,
                  gid=starred.get(panel.star))  # fmt: skip
    for label in panel.labels:
        _label(figure, picture, label, colours)
    if panel.arrow:
        _arrow(figure, picture, panel.arrow, colours["quiet"])


def _axes(axes: Axes, panel: Panel, colours: dict[str, str], *, small: bool) -> None:
    """Frame, grid and ticks exactly where the picture says."""
    axes.patch.set_alpha(0)
    if panel.x.log:
        axes.set_xscale("log")
    if panel.y.log:
        axes.set_yscale("log")
    axes.set_xlim(panel.x.low, panel.x.high)
    axes.set_ylim(panel.y.low, panel.y.high)
    size = TICKS_SMALL if small else TICKS
    for axis, of in ((axes.xaxis, panel.x), (axes.yaxis, panel.y)):
        axis.set_major_locator(FixedLocator([at for at, _ in of.ticks]))
        axis.set_major_formatter(FixedFormatter([text for _, text in of.ticks]))
        axis.set_minor_locator(NullLocator())
        axis.grid(True, color=colours["grid"], lw=0.9, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=size, colors=colours["axis"], length=4)
    box = panel.box
    for write, of, room, pad in (
        (axes.set_xlabel, panel.x, box.x1 - box.x0, 6), (axes.set_ylabel, panel.y, box.y1 - box.y0, 8),
    ):  # fmt: skip
        short = small or text_width(of.label, size) > room
        write(of.short_label if short else of.label, fontsize=size, color=colours["text"], labelpad=pad)
    for text in (axes.xaxis.label, axes.yaxis.label):
        text.set_parse_math(False)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(colours["axis"])


def _band(axes: Axes, stair: Stair, colours: dict[str, str], *, rightward: bool) -> None:
    if stair.band:
        xs, lows, highs = zip(*stair.band, strict=True)
        step: Literal["pre", "post"] = "pre" if rightward else "post"
        shade = blend(colours[stair.role.value], colours["paper"], 0.18)
        axes.fill_between(xs, lows, highs, step=step, color=shade, lw=0, zorder=-0.5)


def _bands(axes: Axes, predicted: Iterable[Predicted], colour: str) -> None:
    """What the predictions' bands hold, as thin bars."""
    for at in predicted:
        if at.x_bar:
            axes.plot([at.x_bar.low, at.x_bar.high], [at.y, at.y], color=colour, lw=0.9, zorder=2.6)
        if at.y_bar:
            axes.plot([at.x, at.x], [at.y_bar.low, at.y_bar.high], color=colour, lw=0.9, zorder=2.6)


def _mark(axes: Axes, mark: Mark, colours: dict[str, str], called: str) -> None:
    colour, paper = colours[mark.role.value], colours["paper"]
    faint = blend(colour, paper, 0.55) if mark.role in (Role.DOMINATED, Role.FLAGGED) else colour
    if mark.x_bar:
        axes.plot([mark.x_bar.low, mark.x_bar.high], [mark.y, mark.y], color=faint, lw=1.5, zorder=3.5)
        _ends(axes, [(mark.x_bar.low, mark.y), (mark.x_bar.high, mark.y)], mark.x_bar, "<>", faint)
    if mark.y_bar:
        axes.plot([mark.x, mark.x], [mark.y_bar.low, mark.y_bar.high], color=faint, lw=1.5, zorder=3.5)
        _ends(axes, [(mark.x, mark.y_bar.low), (mark.x, mark.y_bar.high)], mark.y_bar, "v^", faint)
    if mark.struck:
        axes.plot(mark.x, mark.y, marker=STRIKE, ms=16, mec=colours["text"], mew=1.3, zorder=5, gid=called + "-strike")
    if mark.role is Role.DOMINATED:
        axes.plot(mark.x, mark.y, "X", ms=8, mfc=colour, mec=paper, mew=0.6, zorder=4, gid=called)
        return
    face = paper if mark.role is Role.FLAGGED else blend(colour, paper, 0.35) if mark.pale else colour
    if mark.chosen:
        axes.plot(mark.x, mark.y, "*", ms=19, mfc=colour, mec=paper, mew=1.2, zorder=6, gid=called)
        return
    shape = ">" if mark.beyond else SHAPES.get(mark.role, "o")
    axes.plot(mark.x, mark.y, shape, ms=8, mfc=face, mec=colour, mew=1.4, zorder=4, gid=called)


def _ends(axes: Axes, ends: list[tuple[float, float]], bar: Bar, markers: str, colour: str) -> None:
    """Arrow heads on the ends without a bound."""
    for (x, y), marker, is_open in zip(ends, markers, (bar.open_low, bar.open_high), strict=True):
        if is_open:
            axes.plot(x, y, marker, ms=5, mfc=colour, mec=colour, mew=0, zorder=3.5)


def _label(figure: Figure, picture: Picture, label: Label, colours: dict[str, str]) -> None:
    """Lines of text one by one, so that nothing depends on a renderer's idea of line spacing."""
    colour = colours.get(f"{label.role.value} text", colours[label.role.value])
    x = {"left": label.box.x0, "center": (label.box.x0 + label.box.x1) / 2, "right": label.box.x1}[label.align]
    step = (label.box.y1 - label.box.y0) / len(label.lines)
    for i, line in enumerate(label.lines):
        baseline = label.box.y1 - (i + 0.5) * step - label.size * 0.36 * 100 / 72
        figure.text(
            x / picture.width, baseline / picture.height, line, fontsize=label.size, color=colour, ha=label.align,
            va="baseline", fontweight="bold" if label.bold else "normal", parse_math=False,
        )  # fmt: skip
    if label.leader:
        s = label.leader
        figure.add_artist(
            Line2D([s.x0 / picture.width, s.x1 / picture.width], [s.y0 / picture.height, s.y1 / picture.height],
                   color=colour, lw=1.1, transform=figure.transFigure)
        )  # fmt: skip


def _arrow(figure: Figure, picture: Picture, arrow: Segment, colour: str) -> None:
    w, h = picture.width, picture.height
    tail, tip = (arrow.x0 / w, arrow.y0 / h), (arrow.x1 / w, arrow.y1 / h)
    figure.add_artist(
        FancyArrowPatch(
            tail, tip, transform=figure.transFigure, arrowstyle="->", mutation_scale=13, lw=1.3, color=colour,
            shrinkA=0, shrinkB=0,
        )
    )  # fmt: skip
