"""Text inside a panel: the limit on its line, labels of points, the operating point and its neighbour, where there is
room. A concurrency whose label finds no room is kept in `unlabelled`, and named under the picture.
"""

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from frontier.decide.wording import limit_text, value_text
from frontier.metrics import metric, per_gpu
from frontier.model import Decision, Limit, Point
from frontier.plot.axes import Axis
from frontier.plot.labels import Callout, callouts
from frontier.plot.layout import (
    ABOVE_FIRST,
    BELOW_FIRST,
    BUSY,
    Canvas,
    Rect,
    Segment,
    fit,
    fit_middle,
    line_height,
    mirrored,
    place_block,
    place_first,
    place_label,
    place_near,
    text_width,
    wrap,
)
from frontier.plot.picture_model import Align, Label, Mark, Panel, Role

TITLE = 10.5


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Text sizes in points."""

    sla: float
    light: float
    point: float
    block: float
    better: float


_ALONE = _Sizes(11.0, 10.0, 10.0, 11.0, 11.0)
_SMALL = _Sizes(9.5, 8.5, 9.0, 9.5, 9.5)


def annotated(
    panel: Panel,
    decision: Decision | None,
    points: Sequence[Point],
    limits: Sequence[Limit],
    light: tuple[float, str] | None,
    gpus: int | None,
    title: str | None,
    numbered: Collection[Mark] | None = None,
) -> Panel:
    """The panel with its labels, in order of importance. `light` is the ceiling and its assumption; `numbered` are the
    marks whose concurrency is written, all without it.
    """
    sizes = _ALONE if title is None else _SMALL
    if not panel.marks:
        return replace(panel, labels=(*_title(panel, title), _nothing(panel, sizes.block)))
    canvas = _occupied(panel)
    labels = [
        *_title(panel, title),
        *_limit_labels(panel, canvas, limits, gpus, sizes.sla),
        *_light_label(panel, canvas, light, gpus, sizes.light),
    ]
    labels += _stair_names(panel, canvas, sizes.block)
    blocks = callouts(panel, decision, points, gpus, brief=title is not None)
    told = [m for m in panel.marks if blocks and (m.x, m.y) in (panel.star, panel.ring)]
    silent = told if numbered is None else [*told, *(m for m in panel.marks if m not in numbered)]
    points_said, crowded = _point_labels(panel, canvas, silent, sizes.point)
    labels += points_said
    for block in blocks:
        placed = _placed(panel, canvas, block, sizes.block if block.role is Role.OPERATING else sizes.point)
        labels += placed
        crowded = [m for m in crowded if not placed or (m.x, m.y) != block.at]
        crowded += [m for m in told if not placed and (m.x, m.y) == block.at]
    labels += _expected_labels(panel, canvas, sizes.point)
    far, crowded = _far_labels(panel, canvas, crowded, sizes.point)
    labels += far
    arrow, better = _better(panel, canvas, sizes.better, (5, 6) if title is None else (2, 3))
    return replace(
        panel, labels=(*labels, *better), arrow=arrow, unlabelled=tuple(sorted(m.concurrency for m in crowded))
    )


def _nothing(panel: Panel, size: float) -> Label:
    """What an empty panel says, in its middle."""
    box, text = panel.box, "nothing to draw on these axes"
    x, y, width = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2, text_width(text, size)
    return Label((text,), Rect.around(x, y, width / 2, line_height(size) / 2), Role.QUIET, size, "center")


def _occupied(panel: Panel) -> Canvas:
    """The canvas with everything drawn by position: marks and the star are untouchable, lines better left free."""
    canvas = Canvas(panel.box.grown(-3))
    for mark in panel.marks:
        x, y = panel.at(mark.x, mark.y)
        canvas.take(Rect.around(x, y, 11 if mark.struck or mark.chosen else 6))
        if mark.x_bar:
            canvas.draw(panel.at(mark.x_bar.low, mark.y)[0], y, panel.at(mark.x_bar.high, mark.y)[0], y, 5)
        if mark.y_bar:
            canvas.draw(x, panel.at(mark.x, mark.y_bar.low)[1], x, panel.at(mark.x, mark.y_bar.high)[1], 5)
    for place in (panel.star, panel.ring):
        if place:
            canvas.take(Rect.around(*panel.at(*place), 11))
    for stair in panel.stairs:
        _draw_all(canvas, panel, stair.corners, 6)
    for path in panel.paths:
        _draw_all(canvas, panel, path, 1)
    _draw_all(canvas, panel, panel.light, 8)
    _draw_all(canvas, panel, [(p.x, p.y) for p in panel.expected], 4)
    for said in panel.expected:
        if said.x_bar:
            _draw_all(canvas, panel, [(said.x_bar.low, said.y), (said.x_bar.high, said.y)], 2)
        if said.y_bar:
            _draw_all(canvas, panel, [(said.x, said.y_bar.low), (said.x, said.y_bar.high)], 2)
    box = panel.box
    for rule in panel.rules:
        if rule.axis == "x":
            x = panel.at(rule.at, panel.y.low)[0]
            canvas.draw(x, box.y0, x, box.y1, 8)
        else:
            y = panel.at(panel.x.low, rule.at)[1]
            canvas.draw(box.x0, y, box.x1, y, 8)
    return canvas


def _draw_all(canvas: Canvas, panel: Panel, corners: Sequence[tuple[float, float]], weight: float) -> None:
    places = [panel.at(*corner) for corner in corners]
    for (x0, y0), (x1, y1) in itertools.pairwise(places):
        canvas.draw(x0, y0, x1, y1, weight)


def _size(lines: Sequence[str], points: float) -> tuple[float, float]:
    return max(text_width(line, points) for line in lines), len(lines) * line_height(points)


def _title(panel: Panel, title: str | None) -> list[Label]:
    """The panel's own sentence, when there are several."""
    if title is None:
        return []
    box = panel.box
    width = box.x1 - box.x0
    name, _, sentence = title.partition(": ")
    lines: tuple[str, ...] = (title,)
    if text_width(title, TITLE, bold=True) > width:
        lines = (fit_middle(name, TITLE, width, bold=True), fit(sentence, TITLE, width, bold=True))
    tall = line_height(TITLE)
    top = box.y1 + 6 + tall * len(lines)
    return [
        Label((line,), Rect(box.x0, top - (i + 1) * tall, box.x1, top - i * tall), Role.TEXT, TITLE, bold=True)
        for i, line in enumerate(lines)
    ]


def limit_lines(limits: Sequence[Limit], x: Axis, up: str) -> list[str]:
    """The words on limits that are not on the vertical axis `up`: those on the horizontal one first."""
    here = [limit for limit in limits if limit.metric == x.metric]
    there = [limit for limit in limits if limit.metric not in (x.metric, up)]
    lines = []
    for limit in here:
        value, beyond = limit.promise * x.scale, ""
        if not x.holds(value):
            beyond = "  (right of the picture)" if value > x.high else "  (left of the picture)"
        lines.append(f"SLA  {limit_text(limit)}{beyond}")
    if there:
        lines.append("limits these axes do not show:" if not here else "and, not on these axes:")
        lines += [limit_text(limit) for limit in there]
    comforts = [(limit, limit.comfort) for limit in here if limit.comfort is not None]
    return lines + [
        "dashed: comfort" + limit_text(limit, comfort).removeprefix(metric(limit.metric).label)
        for limit, comfort in comforts
    ]


def _limit_labels(panel: Panel, canvas: Canvas, limits: Sequence[Limit], gpus: int | None, size: float) -> list[Label]:
    """The SLA written on its line; limits on other metrics follow it, since the shade cannot show them."""
    if not limits:
        return []
    box, lines = panel.box, limit_lines(limits, panel.x, panel.y.metric)
    found = _across_labels(panel, canvas, limits, gpus, size)
    if not lines:
        return found
    width, height = _size(lines, size)
    edge = box.x1 if panel.region and not panel.x.rising_is_better else box.x0
    rule = next((r for r in panel.rules if r.axis == "x" and not r.comfort), None)
    if rule is not None:
        edge = panel.at(rule.at, panel.y.low)[0]
    top = box.y1 - 4 - height
    left = Rect(edge - 7 - width, top, edge - 7, top + height)
    right = Rect(edge + 7, top, edge + 7 + width, top + height)
    inside_first = (right, left) if panel.x.rising_is_better else (left, right)
    placed = place_first(canvas, [*inside_first, Rect(box.x1 - 7 - width, top, box.x1 - 7, top + height)])
    if placed is None:
        return found
    align: Align = "right" if placed.x1 <= edge else "left"
    return [*found, Label(tuple(lines), placed, Role.SLA, size, align)]


def _across_labels(panel: Panel, canvas: Canvas, limits: Sequence[Limit], gpus: int | None, size: float) -> list[Label]:
    """Limits on the vertical axis, written along their line: as promised, and where that is drawn per GPU also so."""
    found = []
    box = panel.box
    for limit in limits:
        if limit.metric != panel.y.metric or not panel.y.holds(limit.promise * panel.y.scale):
            continue
        said = f"SLA  {limit_text(limit)}"
        if per_gpu(limit.metric, gpus) > 1:
            said += f"  ({value_text(limit.metric, limit.promise, gpus)})"
        lines = (said,)
        width, height = _size(lines, size)
        y = panel.at(panel.x.low, limit.promise * panel.y.scale)[1]
        options = [Rect(x, b, x + width, b + height) for x in (box.x0 + 8, box.x1 - 8 - width)
                   for b in (y + 3, y - 3 - height)]  # fmt: skip
        if (placed := place_first(canvas, options)) is not None:
            found.append(Label(lines, placed, Role.SLA, size))
    return found


def _light_label(
    panel: Panel, canvas: Canvas, light: tuple[float, str] | None, gpus: int | None, size: float
) -> list[Label]:
    """The assumption written on the speed of light; where the line is far above, its number in the corner."""
    if light is None:
        return []
    ceiling, assumption = light
    box = panel.box
    shown = panel.y.holds(ceiling * panel.y.scale)
    said = f"speed of light  {value_text(panel.y.metric, ceiling, gpus)}{'' if shown else '  above the picture ↑'}"
    lines: tuple[str, ...] = (f"{said}   ({assumption})",)
    if text_width(lines[0], size) > 0.6 * (box.x1 - box.x0):
        lines = (said, *wrap(assumption, size, 0.55 * (box.x1 - box.x0), lines=3))
    width, height = _size(lines, size)
    y = panel.at(panel.x.low, ceiling * panel.y.scale)[1] if shown else box.y1 - 2
    shifts = [box.x0 + 12, box.x1 - 12 - width, (box.x0 + box.x1 - width) / 2]
    bottoms = [y - 3 - height, y + 3] if shown else [y - height - i * height / 4 for i in range(9)]
    placed = place_first(canvas, [Rect(x, b, x + width, b + height) for b in bottoms for x in shifts])
    return [Label(lines, placed, Role.LIGHT, size)] if placed else []


def _expected_labels(panel: Panel, canvas: Canvas, size: float) -> list[Label]:
    """The concurrency of each prediction, where there is room."""
    found = []
    for i, said in enumerate(panel.expected):
        text = f"{said.concurrency:g} predicted" if i == len(panel.expected) - 1 else f"{said.concurrency:g}"
        width, height = _size((text,), size)
        x, y = panel.at(said.x, said.y)
        places = [Rect(x + 6, y + 4, x + 6 + width, y + 4 + height), Rect(x - 6 - width, y + 4, x - 6, y + 4 + height),
                  Rect(x + 6, y - 4 - height, x + 6 + width, y - 4)]  # fmt: skip
        if (placed := place_first(canvas, places)) is not None:
            found.append(Label((text,), placed, Role.QUIET, size))
    return found


def _stair_names(panel: Panel, canvas: Canvas, size: float) -> list[Label]:
    """Whose staircase it is, at its far end, where several share the panel."""
    found = []
    for stair in panel.stairs:
        if stair.name is None:
            continue
        width, height = text_width(stair.name, size, bold=True), line_height(size)
        x, y = panel.at(*stair.corners[-1])
        left = x + 8 if panel.x.rising_is_better else x - 8 - width
        shift = 1 if panel.x.rising_is_better else -1
        options = [Rect(left + i * shift * 40, b, left + i * shift * 40 + width, b + height)
                   for i in range(3) for b in (y + 5, y - 5 - height)]  # fmt: skip
        # On another staircase it would name that one; below the picture every name has its colour and its mark anyway.
        if (placed := place_first(canvas, [o for o in options if canvas.cost(o) < BUSY])) is not None:
            found.append(Label((stair.name,), placed, stair.role, size, bold=True))
    return found


def _point_labels(panel: Panel, canvas: Canvas, skip: Sequence[Mark], size: float) -> tuple[list[Label], list[Mark]]:
    """The concurrency beside its mark, the more telling ones first; and those that found no room there."""
    found: list[Label] = []
    crowded: list[Mark] = []
    turned = {"sideways": panel.x.rising_is_better, "upside_down": not panel.y.rising_is_better}
    above, below = mirrored(ABOVE_FIRST, **turned), mirrored(BELOW_FIRST, **turned)
    for mark in sorted(panel.marks, key=lambda m: _rank(m, panel.marks)):
        if mark in skip or mark.beyond:
            continue
        lines = (str(mark.concurrency),)
        x, y = panel.at(mark.x, mark.y)
        width, height = _size(lines, size)
        order = below if mark.role in (Role.DOMINATED, Role.FLAGGED) else above
        placed = place_label(canvas, x, y, (width, height * 0.8), order, gap=14 if mark.struck or mark.chosen else 9)
        if placed is None:
            crowded.append(mark)
        else:
            found.append(Label(lines, placed, mark.role, size, "center"))
    return found, crowded


def _far_labels(panel: Panel, canvas: Canvas, crowded: Sequence[Mark], size: float) -> tuple[list[Label], list[Mark]]:
    """What found no room beside its mark, a little further off with a leader; and what finds none there either."""
    found: list[Label] = []
    left: list[Mark] = []
    for mark in crowded:
        lines = (str(mark.concurrency),)
        width, height = _size(lines, size)
        placed = place_near(canvas, *panel.at(mark.x, mark.y), (width, height * 0.8))
        if placed is None:
            left.append(mark)
        else:
            found.append(Label(lines, placed[0], mark.role, size, "center", leader=placed[1]))
    return found, left


def _rank(mark: Mark, marks: Sequence[Mark]) -> tuple[int, int]:
    """Ends of the range first, then powers of two, multiples of sixteen and of eight, then the rest."""
    c = mark.concurrency
    if c in (marks[0].concurrency, marks[-1].concurrency):
        return 0, c
    roundness = 1 if c & (c - 1) == 0 else 2 if c % 16 == 0 else 3 if c % 8 == 0 else 4
    return roundness + (0 if mark.role is Role.FRONTIER else 1), c


def _placed(panel: Panel, canvas: Canvas, block: Callout, size: float) -> list[Label]:
    """The annotation where there is room for it, else in short, else nothing."""
    x, y = panel.at(*block.at)
    for lines in (block.lines, (block.short,)):
        widths = [text_width(line, size) for line in lines]
        found = place_block(canvas, x, y, widths, line_height(size), away=block.away)
        if found is not None:
            return [Label(lines, found[0], block.role, size, leader=found[1])]
    return []


def _better(panel: Panel, canvas: Canvas, size: float, reach: tuple[int, int]) -> tuple[Segment | None, list[Label]]:
    """A small arrow toward better, as near to that corner as there is room; left out where there is none."""
    box = panel.box
    right, up = panel.x.rising_is_better, panel.y.rising_is_better
    width, height, text_tall = size * 8.7, size * 4.5, line_height(size)
    steps = [(i, j) for i in range(reach[0]) for j in range(reach[1])]
    for i, j in sorted(steps, key=lambda s: (math.hypot(s[0] * 40, s[1] * 24), s)):
        x = box.x1 - 20 - width - i * 40 if right else box.x0 + 20 + i * 40
        y = box.y1 - 60 - height - j * 24 if up else box.y0 + 14 + j * 24
        place = Rect(x, y, x + width, y + height)
        if canvas.cost(place) > 0.5:
            continue
        canvas.take(place)
        tail_y, tip_y = (y + text_tall, y + height) if up else (y + height - text_tall, y)
        tail_x, tip_x = (x + width * 0.42, x + width * 0.95) if right else (x + width * 0.58, x + width * 0.05)
        words_y = y if up else y + height - text_tall
        words = Rect(x, words_y, x + width, words_y + text_tall)
        return Segment(tail_x, tail_y, tip_x, tip_y), [
            Label(("better",), words, Role.QUIET, size, "left" if right else "right")
        ]
    return None, []
