"""Label placement: a greedy search for free places in a panel.

Everything is in pixels at 100 dpi from the panel's lower left corner. A label never touches a line,
a mark or another label. A label that finds no free place is handed back, and the picture writes its
words below the panel.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from frontier.show.picture.data import Bar, Line, Mark, Panel, Role, Rule
from frontier.show.picture.text_size import PX, fit, line_height, text_width

Box = tuple[float, float, float, float]
"""x0, y0, x1, y1."""
At = tuple[float, float]
LabelSide = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class Placed:
    """A line of text in a box, with an optional leader (x0, y0, x1, y1) to its mark."""

    text: str
    box: Box
    role: Role
    align: Literal["left", "center", "right"] = "left"
    bold: bool = False
    leader: Box | None = None


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


_BESIDE = 16
"""Pixels from its edge up to which words stand beside their mark without a leader."""
_LEADER_FROM = 9.0
"""Pixels from the middle of a mark at which its leader begins."""
_NEAR, _FAR, _WORDS = (3,), (16, 24, 32, 40, 50), (9, 3, 15, 29, 49, 79, 119, 169, 229)
"""Distances in pixels from the edge of a mark: of its number, of its number where there is no room
so near, and of its words."""
_APART = 4.0
"""Pixels between two texts on one line."""
DIRECTIONS = (45, 90, 20, 0, 70, 135, -45, -20, -90, -70, 180, -135, 160, -160, 110, -110)
"""Directions in degrees from a mark for its words, where left and up are better. The best place of
a point on the frontier comes first: away from the dominated points."""


@dataclass(slots=True)
class PanelLayout:
    """Finds places for the words of one panel, the most important ones first.

    No word is placed on the `boxes` of marks and texts, or on straight lines (`segments`). `head`
    pixels above the panel are free.
    """

    panel: Panel
    width: float
    height: float
    size: float
    head: float = 0.0
    boxes: list[Box] = field(default_factory=list)
    segments: np.ndarray = field(default_factory=lambda: np.empty((0, 4)))
    placed: list[Placed] = field(default_factory=list)
    unplaced: list[str] = field(default_factory=list)
    unnumbered: list[Mark] = field(default_factory=list)
    _places: list[tuple[Mark, At]] = field(init=False)

    def __post_init__(self) -> None:
        self._places = [(mark, self.at(mark.x, mark.y)) for mark in self.panel.marks]
        for mark, (x, y) in self._places:
            r = radius(mark)
            self.boxes.append((x - r, y - r, x + r, y + r))
            self.draw(self._bar(mark.x_bar, mark.x, mark.y, "x"))
            self.draw(self._bar(mark.y_bar, mark.x, mark.y, "y"))
        for line in self.panel.lines:
            self._take_line(line)
        for rule in self.panel.rules:
            self.draw(self._rule_ends(rule))

    def draw(self, places: Iterable[At]) -> None:
        """Take the straight lines between these places."""
        lines = [(*a, *b) for a, b in itertools.pairwise(places)]
        self.segments = np.vstack([self.segments, np.array(lines).reshape(-1, 4)])

    def free(self, box: Box, margin: float = 2.0) -> bool:
        """Whether the box lies in the panel and touches neither a box nor a line."""
        x0, y0, x1, y1 = box[0] - margin, box[1] - margin, box[2] + margin, box[3] + margin
        if x0 < 0 or y0 < 0 or x1 > self.width or y1 > self.height + self.head:
            return False
        if any(x0 < b[2] and b[0] < x1 and y0 < b[3] and b[1] < y1 for b in self.boxes):
            return False
        return not _touches(self.segments.T, (x0, y0, x1, y1))

    def clear(self, leader: Box, x: float, y: float) -> bool:
        """Whether a leader from the mark at a place crosses no other mark and no text. It may cross
        lines.
        """
        others = (box for box in self.boxes if not (box[0] <= x <= box[2] and box[1] <= y <= box[3]))
        return not any(_touches(np.array([leader]).T, box) for box in others)

    def at(self, x: float, y: float) -> At:
        """A place in display units as pixels; an infinite one is at the edge."""
        ax, ay = self.panel.x, self.panel.y
        return ax.fraction(ax.shown(x)) * self.width, ay.fraction(ay.shown(y)) * self.height

    def _take_line(self, line: Line) -> None:
        if line.kind == "rows":  # they leave nothing free: words stand above
            self.boxes.append((0.0, 0.0, self.width, self.height))
            self.head = 26.0
        places = [self.at(*place) for place in line.points if line.kind != "cloud"]
        if line.kind == "steps":
            places = [p for (x0, y0), (x1, y1) in itertools.pairwise(places) for p in ((x0, y0), (x1, y0), (x1, y1))]
        self.draw(places)
        if line.kind == "measured":
            self.boxes += [(x - 4, y - 4, x + 4, y + 4) for x, y in places]
        for (x, y), bar in zip(line.points, line.bars, strict=False):
            self.draw(self._bar(bar, x, y, "y"))

    def _bar(self, bar: Bar | None, x: float, y: float, axis: str) -> list[At]:
        """The ends of an interval at a place; none without one."""
        ends = () if bar is None else (bar.low, bar.high)
        return [self.at(v, y) if axis == "x" else self.at(x, v) for v in ends]

    def _rule_ends(self, rule: Rule) -> tuple[At, At]:
        """The top and the foot of an upright rule, the left and the right end of a level one."""
        if rule.axis == "x":
            x = self.panel.x.fraction(rule.at) * self.width
            return (x, self.height), (x, 0.0)
        y = self.panel.y.fraction(rule.at) * self.height
        return (0.0, y), (self.width, y)

    def run(self) -> "PanelLayout":
        """Place everything: words on rules, names of lines, numbers, words of marks, and the
        numbers that are left.
        """
        for rule in self.panel.rules:
            text = " · ".join(rule.lines)
            if text and not self._write(text, rule.role, *self._rule_ends(rule)):
                self.unplaced.append(text)
        for line in self.panel.lines:
            if line.kind in ("stair", "roofline") and line.name:
                name = fit(line.name, self.size, self.width / 3, bold=True, middle=True)
                self._write(name, line.role, self.at(*line.points[-1]), self.at(*line.points[-2]), bold=True)
        numbered = sorted((mark for mark in self.panel.marks if mark.text), key=self._rank)
        crowded = [mark for mark in numbered if not mark.words and not self._beside(mark, mark.text, _NEAR)]
        for mark in self.panel.marks:
            if mark.words and not self._beside(mark, mark.words, _WORDS):
                self.unplaced.append(mark.words)
                crowded += [mark]
        self.unnumbered = [mark for mark in crowded if not self._beside(mark, mark.text, _FAR)]
        if self.panel.compass:
            self._compass()
        return self

    def _take(self, placed: Placed) -> None:
        self.placed.append(placed)
        self.boxes.append(placed.box)
        if placed.leader:
            self.draw([placed.leader[:2], placed.leader[2:]])

    def _write(self, text: str, role: Role, begin: At, end: At, *, bold: bool = False) -> bool:
        """Write a line of text along a straight line, as near to its beginning as there is room;
        False where there is none.
        """
        wide, half = text_width(text, self.size, bold), line_height(self.size) / 2
        for x, y, side in self._along(begin, end, wide):
            x0 = x - wide if side == "left" else x
            if self.free((x0 - _APART, y - half, x0 + wide + _APART, y + half)):
                self._take(
                    Placed(text, (x0, y - half, x0 + wide, y + half), role, "right" if side == "left" else "left", bold)
                )
                return True
        return False

    def _along(self, begin: At, end: At, wide: float) -> Iterator[tuple[float, float, LabelSide]]:
        """Where text may begin or end: x, its middle y, and its side of x. Beside an upright line,
        from its top down and on the better side first; above and below a level line.
        """
        (x, y), (until, _) = begin, end
        half = line_height(self.size) / 2
        if x == until:
            sides: tuple[tuple[int, LabelSide], ...] = ((7, "right"), (-7, "left"))
            heights = (y + 4 + half, *(y - 5 - half - step * self.height / 16 for step in range(12)))
            better_first = sides if self.panel.x.rising_is_better else sides[::-1]
            yield from ((x + shift, at, side) for at, (shift, side) in itertools.product(heights, better_first))
        else:
            level: LabelSide = "right" if until > x else "left"
            steps = [math.copysign(8 + 40 * i, until - x) for i in range(12) if 8 + 40 * i + wide <= abs(until - x)]
            yield from ((x + step, y + up * (4 + half), level) for step, up in itertools.product(steps, (1, -1)))

    def _rank(self, mark: Mark) -> tuple[bool, int, float]:
        """The rank of a number: the ends, powers of two, multiples of sixteen, multiples of eight,
        the rest; the frontier first.
        """
        c, loads = round(mark.load), [each.load for each in self.panel.marks]
        roundness = (c & (c - 1) == 0, c % 16 == 0, c % 8 == 0, True).index(True)
        is_end = mark.load in (min(loads), max(loads))
        return not is_end, roundness + (mark.role is not Role.FRONTIER), mark.load

    def _beside(self, mark: Mark, text: str, distances: Sequence[float]) -> bool:
        """Write a mark's number or words at one of these distances from it. Further off they get a
        leader, which crosses no mark and no text. False where there is no room.
        """
        x, y = self.at(mark.x, mark.y)
        is_number = text == mark.text
        wide, tall = text_width(text, self.size), self.size * PX * 0.85 if is_number else line_height(self.size)
        turned = mark.role in (Role.DOMINATED, Role.FLAGGED)
        rings = ((away, self._ring(x, y, wide, tall, radius(mark) + away, turned=turned)) for away in distances)
        for away, box, leader in ((away, *place) for away, ring in rings for place in ring):
            if not self.free(box, 1.0):
                continue
            nearest = not is_number or self._is_nearest(mark, box)
            if nearest if is_number and away < _FAR[0] else self.clear(leader, x, y):
                role, tied = mark.role if is_number else Role.OPERATING, away > _BESIDE or not nearest
                self._take(Placed(text, box, role, "center", leader=leader if tied else None))
                return True
        return False

    def _is_nearest(self, mark: Mark, box: Box) -> bool:
        """Whether no other mark is about as near to a place as this one; a number there could be
        read as the other's.
        """
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        distances = {id(m): math.hypot(place[0] - x, place[1] - y) for m, place in self._places}
        own = distances.pop(id(mark))
        return all(distance > 1.15 * own for distance in distances.values())

    def _ring(
        self, x: float, y: float, wide: float, tall: float, away: float, *, turned: bool
    ) -> Iterator[tuple[Box, Box]]:
        """Boxes about `away` pixels from a place, each with its leader; the best first, or `turned`
        the worst.
        """
        side = (1 if self.panel.x.rising_is_better else -1) * (-1 if turned else 1)
        over = (1 if self.panel.y.rising_is_better or not self.panel.y.metric else -1) * (-1 if turned else 1)
        for degrees in DIRECTIONS:
            cos, sin = math.cos(math.radians(degrees)) * side, math.sin(math.radians(degrees)) * over
            x0, y0 = x + cos * away - _behind(cos) * wide, y + sin * away - _behind(sin) * tall
            tip = min(max(x, x0), x0 + wide), min(max(y, y0), y0 + tall)
            share = _LEADER_FROM / (math.dist(tip, (x, y)) or 1.0)
            yield (x0, y0, x0 + wide, y0 + tall), (x + (tip[0] - x) * share, y + (tip[1] - y) * share, *tip)

    def _compass(self) -> None:
        """Draw an arrow toward better with that word, as near to its corner as there is room; none
        without room.
        """
        right, up = self.panel.x.rising_is_better, self.panel.y.rising_is_better
        word = f"better {'↗' if up else '↘'}" if right else f"{'↖' if up else '↙'} better"
        y, left_end, right_end = self.height - 12 if up else 12.0, 12.0, self.width - 12
        begin, end = (right_end, left_end) if right else (left_end, right_end)
        self._write(word, Role.QUIET, (begin, y), (end, y))


def radius(mark: Mark) -> float:
    """Pixels from the middle of a mark to its edge."""
    return 11 if mark.star or mark.ring else 6


def _behind(direction: float) -> float:
    """The share of a box that lies behind the end of its leader, along one axis. `direction` is the
    leader's, a cosine or a sine. A box beside the place starts there; one above or below it is
    centred.
    """
    return 0.5 if abs(direction) <= 0.3 else float(direction < 0)
