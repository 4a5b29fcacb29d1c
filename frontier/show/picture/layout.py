"""Label placement: a greedy search for free places in a panel.

Everything is in pixels at 100 dpi from the panel's lower left corner. A label never touches a line,
a mark or another label; one that finds no free place is handed back, and the picture says its words
below the panel.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from frontier.show.picture.data import Bar, Callout, Line, Mark, Panel, Role, Rule
from frontier.show.picture.text_size import PX, fit, line_height, text_width, wrap

Box = tuple[float, float, float, float]
"""x0, y0, x1, y1."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Lines of text in a box, with an optional leader (x0, y0, x1, y1) to what they speak of."""

    lines: tuple[str, ...]
    box: Box
    role: Role
    size: float
    align: Literal["left", "center", "right"] = "left"
    bold: bool = False
    leader: Box | None = None


@dataclass(slots=True)
class Canvas:
    """What is drawn in a panel already: boxes of marks and texts, and straight lines. Nothing may
    be placed on them.

    Above the panel `head` pixels are free.
    """

    width: float
    height: float
    head: float = 0.0
    boxes: list[Box] = field(default_factory=list)
    segments: list[Box] = field(default_factory=list)
    _lines: np.ndarray | None = None

    def draw(self, places: Iterable[tuple[float, float]]) -> None:
        """Take the straight lines between these places."""
        self.segments += [(*a, *b) for a, b in itertools.pairwise(places)]
        self._lines = None

    def free(self, box: Box, margin: float = 2.0) -> bool:
        """Whether the box lies in the panel and touches neither a box nor a line."""
        x0, y0, x1, y1 = box[0] - margin, box[1] - margin, box[2] + margin, box[3] + margin
        if x0 < 0 or y0 < 0 or x1 > self.width or y1 > self.height + self.head:
            return False
        if any(x0 < b[2] and b[0] < x1 and y0 < b[3] and b[1] < y1 for b in self.boxes):
            return False
        if self._lines is None:
            self._lines = np.array(self.segments or [(-9e9,) * 4], dtype=float).T
        return not _touches(self._lines, (x0, y0, x1, y1))

    def clear(self, leader: Box) -> bool:
        """Whether a leader crosses no mark and no text; it may cross lines."""
        line = np.array([leader], dtype=float).T
        return not any(_touches(line, box) for box in self.boxes)


def _touches(lines: np.ndarray, box: Box) -> bool:
    """Whether any of the straight lines (a column each) touches the box."""
    ax, ay, bx, by = lines
    x0, y0, x1, y1 = box
    near = (np.maximum(ax, bx) >= x0) & (np.minimum(ax, bx) <= x1)
    near &= (np.maximum(ay, by) >= y0) & (np.minimum(ay, by) <= y1)
    if not near.any():
        return False
    ax, ay, bx, by = lines[:, near]
    # A line whose extent meets the box's misses the box itself only when all four corners lie on
    # one side of it.
    sides = np.array([(bx - ax) * (y - ay) - (by - ay) * (x - ax) for x in (x0, x1) for y in (y0, y1)])
    return not bool(((sides > 0).all(axis=0) | (sides < 0).all(axis=0)).all())


_BESIDE = 26.0
"""Pixels up to which words stand beside their place and need no line to it."""
DIRECTIONS = (45, 90, 20, 0, 70, 135, -45, -20, -90, -70, 180, -135, 160, -160, 110, -110)
"""Degrees from a mark at which its words may stand, where left and up are better: the best place of
a point on the frontier first, which is away from the dominated.
"""


@dataclass(slots=True)
class PanelLayout:
    """Finds places for the words of one panel, the most important ones first."""

    panel: Panel
    width: float
    height: float
    size: float
    canvas: Canvas = field(init=False)
    placed: list[Placed] = field(default_factory=list)
    unplaced: list[str] = field(default_factory=list)
    unnumbered: list[Mark] = field(default_factory=list)
    _places: list[tuple[Mark, tuple[float, float]]] = field(init=False)

    def __post_init__(self) -> None:
        self.canvas = Canvas(self.width, self.height)
        self._places = [(mark, self.at(mark.x, mark.y)) for mark in self.panel.marks]
        self._take_drawing()
        if any(line.kind == "rows" for line in self.panel.lines):  # they leave nothing free: words stand above
            self.canvas.boxes.append((0.0, 0.0, self.width, self.height))
            self.canvas.head = 26.0

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Pixels of a place in display units; an infinite one is at the edge."""
        ax, ay = self.panel.x, self.panel.y
        return ax.fraction(ax.shown(x)) * self.width, ay.fraction(ay.shown(y)) * self.height

    def _take_drawing(self) -> None:
        canvas, panel = self.canvas, self.panel
        for mark in panel.marks:
            x, y = self.at(mark.x, mark.y)
            r = 11 if mark.star or mark.ring else 6
            canvas.boxes.append((x - r, y - r, x + r, y + r))
            for bar, axis in ((mark.x_bar, "x"), (mark.y_bar, "y")):
                canvas.draw(self._bar(bar, mark.x, mark.y, axis) if bar else ())
        for line in panel.lines:
            if line.kind == "cloud":
                continue
            places = [self.at(*place) for place in line.points]
            if line.kind == "steps":
                places = [
                    p for (x0, y0), (x1, y1) in itertools.pairwise(places) for p in ((x0, y0), (x1, y0), (x1, y1))
                ]
            canvas.draw(places)
            if line.kind == "measured":
                canvas.boxes += [(x - 4, y - 4, x + 4, y + 4) for x, y in places]
            for (x, y), bar in zip(line.points, line.bars, strict=False):
                canvas.draw(self._bar(bar, x, y, "y") if bar else ())
        for rule in panel.rules:
            canvas.draw(self._rule_ends(rule))

    def _bar(self, bar: Bar, x: float, y: float, axis: str) -> list[tuple[float, float]]:
        return [self.at(v, y) if axis == "x" else self.at(x, v) for v in (bar.low, bar.high)]

    def _rule_ends(self, rule: Rule) -> list[tuple[float, float]]:
        if rule.axis == "x":
            x = self.panel.x.fraction(rule.at) * self.width
            return [(x, 0.0), (x, self.height)]
        y = self.panel.y.fraction(rule.at) * self.height
        return [(0.0, y), (self.width, y)]

    def run(self) -> "PanelLayout":
        """Place everything: words on rules and on the panel, numbers, callouts, and the numbers
        that are left.
        """
        for rule in self.panel.rules:
            if rule.lines and not self._words(rule.lines, rule.role, self._rule_places(rule)):
                self.unplaced.append(" · ".join(rule.lines))
        for callout in self.panel.callouts:
            if callout.at is None:
                self._corner_words(callout)
        for line in self.panel.lines:
            if line.kind == "stair" and line.name:
                name = fit(line.name, self.size, self.width / 3, bold=True, middle=True)
                places = self._stair_places(line, text_width(name, self.size, True))
                self._words((name,), line.role, places, bold=True)
        numbered = [mark for mark in self.panel.marks if mark.text]
        called = {callout.at for callout in self.panel.callouts}
        crowded = self._numbers([mark for mark in numbered if (mark.x, mark.y) not in called])
        for callout in self.panel.callouts:
            if callout.at and self._callout(callout):
                called.discard(callout.at)
                numbered = [mark for mark in numbered if (mark.x, mark.y) != callout.at]
        crowded += self._numbers([mark for mark in numbered if (mark.x, mark.y) in called])
        self.unnumbered = [mark for mark in crowded if not self._far_number(mark)]
        if self.panel.compass:
            self._compass()
        return self

    def _take(self, placed: Placed) -> None:
        self.placed.append(placed)
        self.canvas.boxes.append(placed.box)
        if placed.leader:
            self.canvas.draw([placed.leader[:2], placed.leader[2:]])

    def _words(
        self, lines: tuple[str, ...], role: Role, places: Iterator[tuple[float, float, str]], *, bold: bool = False
    ) -> bool:
        """Write words at the first free of these places (x, middle y, side of x that they lie on);
        False if none.
        """
        wide, tall = max(text_width(line, self.size, bold) for line in lines), len(lines) * line_height(self.size)
        for x, y, side in places:
            x0 = x - wide if side == "left" else x
            if self.canvas.free(box := (x0, y - tall / 2, x0 + wide, y + tall / 2)):
                self._take(Placed(lines, box, role, self.size, "right" if side == "left" else "left", bold))
                return True
        return False

    def _rule_places(self, rule: Rule) -> Iterator[tuple[float, float, str]]:
        """Beside an upright rule from the top down, on the better side first; along a level one
        above, then below.
        """
        (x, y), (_, top) = self._rule_ends(rule)
        half = len(rule.lines) * line_height(self.size) / 2
        if rule.axis == "x":
            sides = ((7, "right"), (-7, "left")) if self.panel.x.rising_is_better else ((-7, "left"), (7, "right"))
            above = top + 4 + half
            heights = [above, *(top - 5 - half - step * self.height / 16 for step in range(12))]
            yield from ((x + shift, y, side) for y, (shift, side) in itertools.product(heights, sides))
        else:
            for middle in (y + 3 + half, y - 3 - half):
                yield from ((8 + share * self.width, middle, "right") for share in (0.0, 0.25, 0.5))
                yield self.width - 8, middle, "left"

    def _corner_words(self, callout: Callout) -> None:
        """Words on the whole panel; where there is no room for all, those after the first line are
        left to the notes.
        """
        first, *rest = callout.lines
        broken = [part for line in rest for part in wrap(line, self.size, 0.5 * self.width, lines=4)]
        for lines in ((first, *broken), (first,)):
            if self._words(lines, callout.role, self._level_places(callout.level, len(lines))):
                self.unplaced += rest if lines == (first,) else []
                return
        self.unplaced.append(": ".join(callout.lines))

    def _level_places(self, level: float | None, lines: int) -> Iterator[tuple[float, float, str]]:
        """Below and above a level, then from the top of the panel down."""
        half = lines * line_height(self.size) / 2
        middles = [self.height - 5 - half - step * self.height / 16 for step in range(9)]
        if level is not None and self.panel.y.holds(level):
            y = self.panel.y.fraction(level) * self.height
            middles = [y - 4 - half, y + 4 + half, *middles]
        for middle in middles:
            yield from ((12, middle, "right"), (self.width - 12, middle, "left"), (self.width * 0.3, middle, "right"))

    def _stair_places(self, line: Line, wide: float) -> Iterator[tuple[float, float, str]]:
        """Above and below the far end of a staircase, then further inward, as far as its last level
        reaches.
        """
        (begin, _), (x, y) = (self.at(*place) for place in line.points[-2:])
        away, side = (1, "right") if self.panel.x.rising_is_better else (-1, "left")
        for step, up in itertools.product(range(12), (1, -1)):
            if 8 + 40 * step + wide <= abs(x - begin):
                yield x + away * (8 + 40 * step), y + up * (5 + line_height(self.size) / 2), side

    def _numbers(self, marks: Iterable[Mark]) -> list[Mark]:
        """Write the text beside each mark, the more telling ones first; the marks whose text found
        no room.
        """
        crowded = []
        ends = {min(c), max(c)} if (c := [mark.concurrency for mark in self.panel.marks]) else set()
        for mark in sorted(marks, key=lambda mark: (mark.concurrency not in ends, _rank(mark))):
            size = text_width(mark.text, self.size), self.size * PX * 0.85
            gap = 15 if mark.star or mark.ring else 9
            worse = mark.role in (Role.DOMINATED, Role.FLAGGED)
            for box, _ in self._ring(*self.at(mark.x, mark.y), *size, gap, 0, turned=worse):
                if self.canvas.free(box, 1.0) and self._is_nearest(mark, box):
                    self._take(Placed((mark.text,), box, mark.role, self.size, "center"))
                    break
            else:
                crowded.append(mark)
        return crowded

    def _is_nearest(self, mark: Mark, box: Box) -> bool:
        """Whether no other mark is about as near to a place as this one, so that a number there is
        not read as its.
        """
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        distances = {id(m): math.hypot(place[0] - x, place[1] - y) for m, place in self._places}
        own = distances.pop(id(mark))
        return all(distance > 1.15 * own for distance in distances.values())

    def _far_number(self, mark: Mark) -> bool:
        """Write a number a little further off, with a leader; False where there is no room
        either.
        """
        size = text_width(mark.text, self.size), self.size * PX * 0.85
        return self._tied((mark.text,), mark.role, (mark.x, mark.y), size, (22, 30, 38, 46, 56), 7)

    def _callout(self, callout: Callout) -> bool:
        """Write words beside their place, or further off; False and unplaced where there is no
        room.
        """
        assert callout.at is not None
        size = max(text_width(line, self.size) for line in callout.lines), len(callout.lines) * line_height(self.size)
        if self._tied(callout.lines, callout.role, callout.at, size, (20, 14, 26, 40, 60, 90, 130, 180, 240), 11):
            return True
        self.unplaced.append(" · ".join(callout.lines))
        return False

    def _tied(
        self,
        lines: tuple[str, ...],
        role: Role,
        at: tuple[float, float],
        size: tuple[float, float],
        distances: Sequence[float],
        start: float,
    ) -> bool:
        """Write lines at one of these distances from a place, with a leader that crosses no mark
        and no text.
        """
        x, y = self.at(*at)
        boxes = [b for b in self.canvas.boxes if not (b[0] <= x <= b[2] and b[1] <= y <= b[3])]
        others = Canvas(self.width, self.height, 0.0, boxes)
        for away in distances:
            for box, leader in self._ring(x, y, *size, away, start):
                if self.canvas.free(box, 1.0 if len(lines) == 1 else 4.0) and others.clear(leader):
                    tie = leader if away > _BESIDE else None
                    self._take(Placed(lines, box, role, self.size, "left", leader=tie))
                    return True
        return False

    def _ring(
        self, x: float, y: float, wide: float, tall: float, away: float, start: float, *, turned: bool = False
    ) -> Iterator[tuple[Box, Box]]:
        """Boxes about `away` pixels from a place, the best first or `turned` the worst, each with
        its leader.
        """
        side = (1 if self.panel.x.rising_is_better else -1) * (-1 if turned else 1)
        over = (1 if self.panel.y.rising_is_better or not self.panel.y.metric else -1) * (-1 if turned else 1)
        for degrees in DIRECTIONS:
            cos, sin = math.cos(math.radians(degrees)) * side, math.sin(math.radians(degrees)) * over
            near_x, near_y = x + cos * away, y + sin * away
            x0, y0 = near_x - _behind(cos) * wide, near_y - _behind(sin) * tall
            tip = min(max(x, x0), x0 + wide), min(max(y, y0), y0 + tall)
            length = math.hypot(tip[0] - x, tip[1] - y) or 1.0
            begin = x + (tip[0] - x) / length * start, y + (tip[1] - y) / length * start
            yield (x0, y0, x0 + wide, y0 + tall), (*begin, *tip)

    def _compass(self) -> None:
        """An arrow toward better with that word, as near to its corner as there is room; else
        none.
        """
        right, up = self.panel.x.rising_is_better, self.panel.y.rising_is_better
        word = f"better {'↗' if up else '↘'}" if right else f"{'↖' if up else '↙'} better"
        steps = sorted(itertools.product(range(6), range(8)), key=lambda s: math.hypot(s[0] * 40, s[1] * 24))
        xs = [self.width - 20 - 40 * i if right else 20.0 + 40 * i for i in range(6)]
        ys = [self.height - 24 - 24 * j if up else 24.0 + 24 * j for j in range(8)]
        self._words((word,), Role.QUIET, ((xs[i], ys[j], "left" if right else "right") for i, j in steps))


def _rank(mark: Mark) -> tuple[int, float]:
    """Powers of two first, then multiples of sixteen and of eight, then the rest; the frontier
    before others.
    """
    c = round(mark.concurrency)
    kinds = (c & (c - 1) == 0, c % 16 == 0, c % 8 == 0, True)
    roundness = 1 + kinds.index(True)
    return roundness + (0 if mark.role is Role.FRONTIER else 1), mark.concurrency


def _behind(direction: float) -> float:
    """Which share of a box lies behind the point where its leader ends, along one axis, for a
    leader of this direction (a cosine or a sine): a box beside the place starts there, one above or
    below it is centred.
    """
    if abs(direction) <= 0.3:
        return 0.5
    return 0.0 if direction > 0 else 1.0
