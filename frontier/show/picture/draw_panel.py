"""Draws one panel of a picture with matplotlib: axes and ticks, lines, bars, marks and words."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from frontier.show.picture.colours import COLOURS, blend, ink, line_colour
from frontier.show.picture.data import Bar, Line, Mark, Panel, Role, Theme, id_of, owner
from frontier.show.picture.layout import PanelLayout, Placed, radius
from frontier.show.picture.text_size import PX, text_width
from frontier.show.picture.ticks import ticks_of
from frontier.show.view.series_view import Sign

SHAPES = {
    Role.OTHER: "s",
    Role.THIRD: "^",
    Role.FOURTH: "D",
    Role.PREDICTED: "D",
    Role.FIFTH: "v",
    Role.SIXTH: "P",
    Role.SEVENTH: "<",
    Role.EIGHTH: "h",
}
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
"""The factor by which a strong line is thicker."""


def look_of(sign: Sign, shape: str, colour: str, paper: str) -> tuple[str, str]:
    """The symbol of a setting and its filling, by how it stands to the SLA."""
    looks = {"violates": ("X", colour), "excluded": ("d", paper), "open": (shape, paper), "over": ("X", paper)}
    return looks.get(sign, (shape, colour))


def draw_panel(axes: Axes, layout: PanelLayout, theme: Theme, number: int, *, large: bool) -> None:
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
            zorder=2,
        )
    for i, line_data in enumerate(panel.lines):
        _draw_line(axes, line_data, panel, theme, _part(number, line_data.role, f"line{i}"))
    _draw_intervals(axes, panel, colours, number)
    for i, mark in enumerate(panel.marks):
        _draw_mark(axes, mark, layout, colours, id_of(number, panel, mark), _part(number, mark.role, f"m{i}"))
    for i, placed in enumerate(layout.placed):
        _draw_words(axes, placed, layout, theme, _part(number, placed.role, f"words{i}"))


def _draw_intervals(axes: Axes, panel: Panel, colours: dict[str, str], number: int) -> None:
    """The intervals of the marks of each role on both axes."""
    for role in dict.fromkeys(mark.role for mark in panel.marks):
        # Over the staircase and dark: in its own colour half of an interval would lie in its line.
        colour = colours["text"]
        if role in (Role.DOMINATED, Role.FLAGGED, Role.PREDICTED) and not panel.y.names:
            colour = blend(colours[role.value], colours["paper"], 0.55)
        marks = [mark for mark in panel.marks if mark.role is role]
        across, up = ([(m.y, m.x_bar) for m in marks if m.x_bar], [(m.x, m.y_bar) for m in marks if m.y_bar])
        depth = 6.5 if panel.y.names else 3.2  # of rows the bars are what is looked for: no mark hides them
        _draw_bars(axes, across, colour, depth, upright=False, part=_part(number, role, "across"))
        _draw_bars(axes, up, colour, depth, upright=True, part=_part(number, role, "up"))


def _part(number: int, role: Role, name: str) -> str | None:
    """The id of a frontier's lines, bars and words, by which a page hides them."""
    return f"part-{number}{owner(role)}{name}" if owner(role) else None


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


def _draw_line(axes: Axes, line: Line, panel: Panel, theme: Theme, part: str | None) -> None:
    colours = COLOURS[theme]
    paper = colours["paper"]
    if line.kind in ("layer", "rows"):
        solid = line_colour(line, theme)
        faint = line.kind == "rows" and not line.strong
        _draw_blocks(axes, line, blend(solid, paper, 0.35) if faint else solid, paper)
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
            gid=part and part + "-band",
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
        ls=(0, line.dashes) if line.dashes else stroke,
        marker=marker,
        ms=6 if line.strong else 5,
        mew=0,
        markevery=on_axis,
        zorder=depth + 0.1 * line.strong,
        clip_on=marker is None,  # a mark on the frame, as of 0, is seen whole
        drawstyle="steps-post" if line.kind == "steps" else "default",
        solid_joinstyle="miter",
        gid=part,
    )
    for side, head in ((1, "^"), (-1, "v")):
        edge = [(x, panel.y.shown(y)) for x, y in line.points if panel.y.off(y) == side]
        if edge:
            axes.plot(
                *zip(*edge, strict=True), head, ms=8, mfc=paper, mec=colour, mew=1.3, ls="none", clip_on=False, zorder=4
            )
    bars = [(x, bar) for (x, _), bar in zip(line.points, line.bars, strict=False) if bar]
    _draw_bars(axes, bars, colour, 3.2, upright=True, part=part and part + "-bars")


def _draw_blocks(axes: Axes, line: Line, colour: str, paper: str) -> None:
    """Parts of each category's column, with an edge between them, or of rows."""
    places, starts, ends = (np.array(values) for values in zip(*line.band, strict=True))
    blocks = axes.barh if line.kind == "rows" else axes.bar
    edge = 0.8 if line.kind == "layer" else 0.0
    blocks(places, ends - starts, 0.7, starts, facecolor=colour, edgecolor=paper, lw=edge, zorder=1.5)


def _draw_bars(
    axes: Axes, bars: Sequence[tuple[float, Bar]], colour: str, depth: float, *, upright: bool, part: str | None
) -> None:
    """Draw intervals at their places on the other axis, all at once, which is faster."""
    if not bars:
        return
    stems = axes.vlines if upright else axes.hlines
    stems(
        [at for at, _ in bars],
        [bar.low for _, bar in bars],
        [bar.high for _, bar in bars],
        color=colour,
        lw=1.4,
        zorder=depth,
        gid=part,
    )
    caps = [(at, end) for at, bar in bars for end, open_ in bar.ends if not open_]
    if caps:
        across, along = zip(*caps, strict=True)
        places = (across, along) if upright else (along, across)
        sign, name = "_" if upright else "|", part and part + "-caps"
        axes.plot(*places, sign, ms=6, mew=1.4, color=colour, ls="none", zorder=depth, gid=name)


def _draw_mark(
    axes: Axes, mark: Mark, layout: PanelLayout, colours: dict[str, str], name: str, part: str | None
) -> None:
    colour, paper = colours[mark.role.value], colours["paper"]
    predicted, edged = mark.role is Role.PREDICTED, mark.sign == "violates"
    shape, face = look_of(mark.sign, SHAPES.get(mark.role, "o"), colour, paper)
    axes.plot(
        mark.x,
        mark.y,
        ">" if mark.beyond else shape,
        ms=4.5 if predicted or mark.star else 8.0 + 2.0 * edged,  # a star hides the mark below it
        mfc=paper if predicted else face,
        mec=paper if edged else colour,
        mew=1.0 if predicted or edged else 1.6,
        zorder=4,
        gid=None if predicted else name,
    )
    if mark.bound is not None and abs(layout.at(mark.bound, mark.y)[0] - layout.at(mark.x, mark.y)[0]) > radius(mark):
        axes.plot(mark.bound, mark.y, "|", ms=14, mew=2.4, color=colours["sla"], zorder=3.4, gid=part)
    if mark.ring:
        axes.plot(mark.x, mark.y, "o", ms=15, mfc="none", mec=colours["operating"], mew=1.6, zorder=6)
    if mark.star:
        axes.plot(
            mark.x, mark.y, "*", ms=20, mfc=colours[mark.star.value], mec=paper, mew=1.2, zorder=6, gid=name + "-star"
        )


def _draw_words(axes: Axes, placed: Placed, layout: PanelLayout, theme: Theme, part: str | None) -> None:
    w, h = layout.width, layout.height
    x0, y0, x1, y1 = placed.box
    colour = ink(placed.role, theme)
    axes.text(
        {"left": x0, "center": (x0 + x1) / 2, "right": x1}[placed.align] / w,
        ((y0 + y1) / 2 - layout.size * 0.36 * PX) / h,
        placed.text,
        transform=axes.transAxes,
        fontsize=layout.size,
        color=colour,
        ha=placed.align,
        va="baseline",
        fontweight="bold" if placed.bold else "normal",
        zorder=7,
        gid=part,
    )
    if placed.leader:
        xs, ys = [placed.leader[0] / w, placed.leader[2] / w], [placed.leader[1] / h, placed.leader[3] / h]
        axes.plot(xs, ys, color=colour, lw=1.1, transform=axes.transAxes, zorder=6.5, gid=part and part + "-leader")
