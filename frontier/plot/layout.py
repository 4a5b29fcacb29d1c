"""Where text goes: widths of text without a renderer, and greedy placement that keeps labels off what they would cover.

Everything is in pixels at 100 dpi, origin bottom left, and deterministic: the same picture is laid out the same way.
"""

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from frontier.decide.wording import middle_cut

PX_PER_POINT = 100 / 72
HARD = 100.0
"""A cost nothing is placed at: covering a marker or another text, or leaving the panel."""

BUSY = 4.0
"""A label of a point may cross the faint path, not an interval or the staircase: it is left out then."""
NEAR_RINGS = 8
NEAR_ENOUGH = 26.0
"""A leader may cross the staircase and an interval on its way, not another mark or text."""
SCATTERED = 45.0
"""An annotation that could only be placed at this cost would confuse more than it says."""

# Advance widths of DejaVu Sans, code points 32 to 126, in hundredths of the font size; matplotlib ships this font.
_SANS = (
    32, 40, 46, 84, 64, 95, 78, 27, 39, 39, 50, 84, 32, 36, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 34, 34, 84,
    84, 84, 53, 100, 68, 69, 70, 77, 63, 58, 77, 75, 29, 29, 66, 56, 86, 75, 79, 60, 79, 69, 63, 61, 73, 68, 99, 69, 61,
    69, 39, 34, 39, 84, 50, 50, 61, 63, 55, 63, 62, 35, 63, 63, 28, 28, 58, 28, 97, 63, 61, 63, 63, 41, 52, 39, 63, 59,
    82, 59, 59, 52, 64, 34, 64, 84,
)  # fmt: skip
_OTHER = {"\u00a0": 32, "·": 32, "–": 50, "…": 100, "×": 84}
_BOLD = 1.11
"""The bold face is about this much wider; a rare letter is up to 15 % wider, digits are 10 %."""


def text_width(text: str, points: float, *, bold: bool = False) -> float:
    """Pixels a line of text takes; wide (East Asian) characters count a full em."""
    hundredths = 0
    for ch in text:
        code = ord(ch)
        if 32 <= code < 127:
            hundredths += _SANS[code - 32]
        elif ch in _OTHER:
            hundredths += _OTHER[ch]
        else:
            hundredths += 100 if unicodedata.east_asian_width(ch) in "WF" else 84
    return hundredths / 100 * points * PX_PER_POINT * (_BOLD if bold else 1.0)


def line_height(points: float) -> float:
    """Pixels from one line of text to the next."""
    return points * PX_PER_POINT * 1.2


def wrap(text: str, points: float, width: float, *, lines: int = 2, bold: bool = False) -> tuple[str, ...]:
    """Text broken at spaces into at most `lines` lines of `width` pixels; what does not fit is cut with an ellipsis.

    Lines are made about equally long: no word stands alone on the last one.
    """
    best = _wrap(text, points, width, lines, bold)
    if len(best) == 1 or best[-1].endswith("…"):
        return best
    for share in range(95, 45, -5):
        narrower = _wrap(text, points, width * share / 100, lines, bold)
        if len(narrower) > len(best) or narrower[-1].endswith("…"):
            break
        best = narrower
    return best


def _wrap(text: str, points: float, width: float, lines: int, bold: bool) -> tuple[str, ...]:
    done: list[str] = []
    current = ""
    words = text.split(" ")
    for i, word in enumerate(words):
        trial = f"{current} {word}" if current else word
        if text_width(trial, points, bold=bold) <= width or not current:
            current = trial
            continue
        if len(done) == lines - 1:
            current = " ".join([current, *words[i:]])
            break
        done.append(current)
        current = word
    return (*done, fit(current, points, width, bold=bold))


def fit(text: str, points: float, width: float, *, bold: bool = False) -> str:
    """One line cut with an ellipsis when it is wider than `width` pixels."""
    if text_width(text, points, bold=bold) <= width:
        return text
    while text and text_width(text + "…", points, bold=bold) > width:
        text = text[:-1]
    return text.rstrip() + "…"


def fit_middle(text: str, points: float, width: float, *, bold: bool = False) -> str:
    """One line whose middle is cut out when it is wider than `width` pixels: both ends of a name tell it apart."""
    found, longest = text, len(text)
    while longest > 2 and text_width(found, points, bold=bold) > width:
        longest -= 1
        found = middle_cut(text, longest)
    return found


@dataclass(frozen=True, slots=True)
class Rect:
    """A box in pixels."""

    x0: float
    y0: float
    x1: float
    y1: float

    @classmethod
    def around(cls, x: float, y: float, half_width: float, half_height: float | None = None) -> "Rect":
        tall = half_width if half_height is None else half_height
        return cls(x - half_width, y - tall, x + half_width, y + tall)

    def overlaps(self, other: "Rect") -> bool:
        return self.x0 < other.x1 and other.x0 < self.x1 and self.y0 < other.y1 and other.y0 < self.y1

    def inside(self, other: "Rect") -> bool:
        return self.x0 >= other.x0 and self.x1 <= other.x1 and self.y0 >= other.y0 and self.y1 <= other.y1

    def grown(self, by: float) -> "Rect":
        return Rect(self.x0 - by, self.y0 - by, self.x1 + by, self.y1 + by)

    def crossed_by(self, line: "Segment") -> bool:
        """Whether a straight line touches the box (Liang-Barsky clipping)."""
        if max(line.x0, line.x1) < self.x0 or min(line.x0, line.x1) > self.x1:
            return False
        if max(line.y0, line.y1) < self.y0 or min(line.y0, line.y1) > self.y1:
            return False
        enter, leave = 0.0, 1.0
        dx, dy = line.x1 - line.x0, line.y1 - line.y0
        for p, q in (
            (-dx, line.x0 - self.x0),
            (dx, self.x1 - line.x0),
            (-dy, line.y0 - self.y0),
            (dy, self.y1 - line.y0),
        ):
            if p == 0:
                if q < 0:
                    return False
            elif p < 0:
                enter = max(enter, q / p)
            else:
                leave = min(leave, q / p)
        return enter <= leave

    def raised(self, by: float) -> "Rect":
        return Rect(self.x0, self.y0 + by, self.x1, self.y1 + by)

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """The point of the box closest to (x, y)."""
        return min(max(x, self.x0), self.x1), min(max(y, self.y0), self.y1)


@dataclass(frozen=True, slots=True)
class Segment:
    """A straight line in pixels, with what it costs to cover it."""

    x0: float
    y0: float
    x1: float
    y1: float
    weight: float = 0.0

    def raised(self, by: float) -> "Segment":
        return Segment(self.x0, self.y0 + by, self.x1, self.y1 + by, self.weight)


@dataclass(slots=True)
class Canvas:
    """What is already drawn in a panel: boxes nobody may cover, and lines better left free."""

    bounds: Rect
    boxes: list[Rect] = field(default_factory=list)
    lines: list[Segment] = field(default_factory=list)

    def cost(self, box: Rect, enough: float = HARD) -> float:
        """What covering this box costs: HARD is out of the question. From `enough` on it is not added up."""
        if not box.inside(self.bounds) or any(box.overlaps(other) for other in self.boxes):
            return HARD
        total = 0.0
        for line in self.lines:
            if box.crossed_by(line):
                total += line.weight
                if total >= enough:
                    break
        return total

    def around(self, area: Rect) -> "Canvas":
        """What lies in an area, to look at quickly; taking places on it does not change this canvas."""
        boxes = [box for box in self.boxes if box.overlaps(area)]
        return Canvas(self.bounds, boxes, [line for line in self.lines if area.crossed_by(line)])

    def take(self, box: Rect) -> None:
        self.boxes.append(box)

    def draw(self, x0: float, y0: float, x1: float, y1: float, weight: float) -> None:
        self.lines.append(Segment(x0, y0, x1, y1, weight))

    def leader_cost(self, leader: Segment) -> float:
        """What a line from a text to its point costs: it must not run through other markers or texts."""
        boxes = sum(box.crossed_by(leader) for box in self.boxes)
        return 30.0 * boxes + sum(line.weight for line in self.lines if _crosses(leader, line))


def _crosses(a: Segment, b: Segment) -> bool:
    def side(s: Segment, x: float, y: float) -> float:
        return (s.x1 - s.x0) * (y - s.y0) - (s.y1 - s.y0) * (x - s.x0)

    return side(a, b.x0, b.y0) * side(a, b.x1, b.y1) < 0 and side(b, a.x0, a.y0) * side(b, a.x1, a.y1) < 0


Corner = Literal["above left", "above", "left", "above right", "right", "below right", "below", "below left"]
ABOVE_FIRST: tuple[Corner, ...] = (
    "above left", "above", "left", "below right", "right", "below", "above right", "below left",
)  # fmt: skip
BELOW_FIRST: tuple[Corner, ...] = (
    "below right", "below", "right", "below left", "above right", "above", "left", "above left",
)  # fmt: skip


def beside(x: float, y: float, width: float, height: float, gap: float, corner: Corner) -> Rect:
    """The box of a text of this size on one side of a point."""
    left, bottom = x - width / 2, y - height / 2
    if "left" in corner:
        left = x - gap - width
    if "right" in corner:
        left = x + gap
    if "above" in corner:
        bottom = y + (gap if corner == "above" else gap * 0.6)
    if "below" in corner:
        bottom = y - height - (gap if corner == "below" else gap * 0.6)
    return Rect(left, bottom, left + width, bottom + height)


def place_label(
    canvas: Canvas, x: float, y: float, size: tuple[float, float], order: Sequence[Corner], gap: float
) -> Rect | None:
    """The best free box beside a point, taken on the canvas; None when every side is occupied or too busy."""
    best: tuple[float, Rect] | None = None
    for rank, corner in enumerate(order):
        box = beside(x, y, size[0], size[1], gap, corner)
        covers = canvas.cost(box, BUSY)
        cost = covers + 0.6 * rank
        if covers < BUSY and (best is None or cost < best[0]):
            best = (cost, box)
    if best is None:
        return None
    canvas.take(best[1].grown(2))
    return best[1]


def place_near(
    canvas: Canvas, x: float, y: float, size: tuple[float, float], *, clear: float = 8.0
) -> tuple[Rect, Segment] | None:
    """The best free box within a few text heights of a point, and its leader, both taken; None where all is busy."""
    width, height = size
    reach = Rect.around(x, y, 30 + 9.0 * NEAR_RINGS + width, 30 + 9.0 * NEAR_RINGS + height)
    near = canvas.around(reach)
    best: tuple[float, Rect, Segment] | None = None
    for ring in range(NEAR_RINGS):
        away = 20.0 + 9.0 * ring
        for step in range(24):
            angle = math.tau * step / 24
            cx, cy = x + (away + width / 2) * math.cos(angle), y + (away + height / 2) * math.sin(angle)
            box = Rect.around(cx, cy, width / 2, height / 2)
            covers = near.cost(box, BUSY)
            if covers >= BUSY or (best is not None and ring + covers >= best[0]):
                continue
            at = box.nearest(x, y)
            distance = math.dist(at, (x, y))
            share = max(0.0, 1 - clear / distance)
            leader = Segment(*at, at[0] + (x - at[0]) * share, at[1] + (y - at[1]) * share, weight=12.0)
            cost = ring + covers + near.leader_cost(leader)
            if cost < NEAR_ENOUGH and (best is None or cost < best[0]):
                best = (cost, box, leader)
    if best is None:
        return None
    canvas.take(best[1].grown(2))
    canvas.lines.append(best[2])
    return best[1], best[2]


def place_first(canvas: Canvas, candidates: Iterable[Rect]) -> Rect | None:
    """The cheapest of some boxes, the earlier winning ties; taken on the canvas."""
    costs = [(canvas.cost(box), i, box) for i, box in enumerate(candidates)]
    best = min(costs, default=None, key=lambda c: c[:2])
    if best is None or best[0] >= HARD:
        return None
    canvas.take(best[2].grown(2))
    return best[2]


def place_block(
    canvas: Canvas, x: float, y: float, widths: Sequence[float], line: float, *, away: float, step: float = 16.0
) -> tuple[Rect, Segment] | None:
    """A free box for an annotation of this point and the leader between them, both taken; None when there is no room.

    The annotation has lines of these widths, each `line` pixels tall, set left. Boxes around `away` pixels from the
    point are preferred, with a leader that crosses nothing; it stops at the edge of the point's marker.
    """
    width, height = max(widths), line * len(widths)
    area = canvas.bounds
    candidates: list[tuple[float, Rect]] = []
    for row in range(max(0, int((area.y1 - area.y0 - height) // step)) + 1):
        for column in range(max(0, int((area.x1 - area.x0 - width) // step)) + 1):
            left, bottom = area.x0 + column * step, area.y0 + row * step
            box = Rect(left, bottom, left + width, bottom + height)
            distance = math.dist(box.nearest(x, y), (x, y))
            if distance >= 24:
                candidates.append((abs(distance - away) / 12, box))
    best: tuple[float, Rect, Segment] | None = None
    for near, box in sorted(candidates, key=lambda c: (c[0], c[1].y0, c[1].x0)):
        if near >= (best[0] if best else SCATTERED):
            break
        cost = near + canvas.cost(box.grown(5)) * 1.5
        if cost >= (best[0] if best else SCATTERED):
            continue
        leader = _leader(box, x, y, widths)
        cost += canvas.leader_cost(leader) + _parallel_cost(leader)
        if best is None or cost < best[0]:
            best = (cost, box, leader)
    if best is None or best[0] >= SCATTERED:
        return None
    canvas.take(best[1].grown(4))
    canvas.lines.append(best[2])
    return best[1], best[2]


def _leader(box: Rect, x: float, y: float, widths: Sequence[float], clear: float = 13.0) -> Segment:
    """From the side of the text that faces the point to just short of it: short, and slanted if it can be."""
    above, middle_y = y > box.y1, (box.y0 + box.y1) / 2
    side_y = box.y1 if above else box.y0 if y < box.y0 else middle_y
    right = box.x0 + (widths[0] if above else widths[-1] if y < box.y0 else max(widths))
    starts = [(box.x0 - 3, side_y), ((box.x0 + right) / 2, side_y), (right + 3, side_y)]
    if x > box.x1 or x < box.x0:
        starts.append((box.x0 - 4 if x < box.x0 else box.x1 + 4, middle_y))
    leaders = []
    for x0, y0 in starts:
        distance = math.dist((x0, y0), (x, y))
        share = max(0.0, 1 - clear / distance) if distance else 0.0
        leaders.append((distance, Segment(x0, y0, x0 + (x - x0) * share, y0 + (y - y0) * share, weight=25.0)))
    return min(leaders, key=lambda found: found[0] / 12 + _parallel_cost(found[1]))[1]


def _parallel_cost(leader: Segment) -> float:
    """A leader along an axis looks like a part of the staircase; a slanted one does not."""
    across, up = abs(leader.x1 - leader.x0), abs(leader.y1 - leader.y0)
    slant = min(across, up) / (math.hypot(across, up) or 1.0)
    return 6.0 * max(0.0, 1 - slant / 0.3)


def mirrored(order: Sequence[Corner], *, sideways: bool, upside_down: bool) -> tuple[Corner, ...]:
    """The same preferences where better lies to the right, or down."""
    swaps = ([("left", "right")] if sideways else []) + ([("above", "below")] if upside_down else [])
    found: list[str] = list(order)
    for one, other in swaps:
        found = [c.replace(one, "#").replace(other, one).replace("#", other) for c in found]
    return tuple(c for name in found for c in ABOVE_FIRST if c == name)
