"""Figure data: axes, lines, marks and words in display units, as frozen types that `draw` turns
into a picture.

`SeriesView` is the input of one panel of the frontier picture. Only `draw` and `layout` import
matplotlib, so that figures can be tested without pixels, and commands that draw nothing start
fast.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from frontier.core.model.groups import by_key
from frontier.core.model.loads import Rate
from frontier.show.view.series_view import SettingView, Sign

FORMATS = ("png", "svg", "pdf")
"""The formats of a picture's file."""
Theme = Literal["light", "dark"]


SIGN_WORDS: dict[Sign, str] = {
    "meets": "meets the SLA",
    "open": "not proven",
    "over": "over by value, not proven",
    "violates": "violates",
    "excluded": "excluded",
}
"""What the legend calls each, in this order."""


class Role(StrEnum):
    """What a part of the picture means. Its colour follows from it, and shape or text always says
    the same.
    """

    FRONTIER = "frontier"
    OTHER = "other"
    THIRD = "third"
    FOURTH = "fourth"
    FIFTH = "fifth"
    SIXTH = "sixth"
    SEVENTH = "seventh"
    EIGHTH = "eighth"
    DOMINATED = "dominated"
    FLAGGED = "flagged"
    PREDICTED = "predicted"
    OPERATING = "operating"
    SLA = "sla"
    ROOFLINE = "roofline"
    QUIET = "quiet"
    TEXT = "text"


SERIES = (
    *(Role.FRONTIER, Role.OTHER, Role.THIRD, Role.FOURTH),
    *(Role.FIFTH, Role.SIXTH, Role.SEVENTH, Role.EIGHTH),
)
"""The roles of several frontiers in a panel, by colour and by the shape of the mark; more than
eight cannot be told apart."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis in display units: `scale` times the metric's own unit. `ticks` are preferred values
    by priority; without them matplotlib chooses. An axis of categories has their `names` at 0, 1,
    2, ...
    """

    label: str
    low: float
    high: float
    log: bool = False
    ticks: tuple[float, ...] = ()
    metric: str = ""
    scale: float = 1.0
    short_label: str = ""
    rising_is_better: bool = False
    names: tuple[str, ...] = ()

    def fraction(self, value: float) -> float:
        """Where a value in display units lies: 0 at the low end, 1 at the high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def value(self, fraction: float) -> float:
        """The inverse of `fraction`."""
        if self.log:
            return self.low * math.exp(fraction * math.log(self.high / self.low))
        return self.low + fraction * (self.high - self.low)

    def holds(self, value: float) -> bool:
        """Whether a value in display units lies on the axis."""
        return min(self.low, self.high) <= value <= max(self.low, self.high)

    @property
    def worst(self) -> float:
        """The end of the axis where the metric is worst; the staircase extends to it."""
        return self.low if self.rising_is_better else self.high

    def off(self, value: float) -> int:
        """Where a value is off the axis: 1 above every axis (infinite), -1 below a logarithmic axis
        (0 or less), otherwise 0.
        """
        if value == math.inf:
            return 1
        return -1 if self.log and value <= 0 else 0

    def shown(self, value: float) -> float:
        """The value, or the edge where it is `off`."""
        return {1: self.high, -1: self.low, 0: value}[self.off(value)]


@dataclass(frozen=True, slots=True)
class Bar:
    """An interval in display units. An open end has no bound, or one beyond the axis; it is drawn
    short.
    """

    low: float
    high: float
    open_low: bool = False
    open_high: bool = False

    @property
    def ends(self) -> tuple[tuple[float, bool], tuple[float, bool]]:
        """Both ends, and whether each is open; a cap stands at one that is not."""
        return (self.low, self.open_low), (self.high, self.open_high)


@dataclass(frozen=True, slots=True)
class Mark:
    """One setting as a symbol.

    - `sign`: how it stands to the SLA.
    - `beyond`: its value is infinite, so it is drawn at the edge.
    - `star`: the colour of an operating point's star; `ring` marks the nearest setting to one.
    - `bound`: where the bound that decides lies on the horizontal axis, if that has a limit.
    - `words`: the text beside it, otherwise `text`, usually its concurrency; nothing where both are
      empty.
    - `tooltip`: what an SVG shows under the pointer.
    """

    load: float
    x: float
    y: float
    role: Role
    x_bar: Bar | None = None
    y_bar: Bar | None = None
    text: str = ""
    words: str = ""
    sign: Sign = ""
    beyond: bool = False
    star: Role | None = None
    ring: bool = False
    tooltip: str = ""
    bound: float | None = None

    @property
    def name(self) -> str:
        """The setting, for a mark that has no text beside it."""
        return str(self.load) if isinstance(self.load, Rate) else f"c={self.text}"


_DASHES: dict[Role, tuple[float, ...]] = {
    Role.OTHER: (6.0, 1.5),
    Role.THIRD: (1.2, 1.2),
    Role.FOURTH: (6.0, 1.5, 1.2, 1.5),
    Role.FIFTH: (3.0, 1.5),
    Role.SIXTH: (6.0, 1.5, 1.2, 1.5, 1.2, 1.5),
}


LineKind = Literal["stair", "roofline", "predicted", "measured", "steps", "fit", "cloud", "layer", "rows"]


@dataclass(frozen=True, slots=True)
class Line:
    """A series of points, joined as `kind` says; `marker` tells lines apart without colour.

    - stair: a measured frontier, with `band` (x, low, high) as its attainment band
    - measured: settings with intervals in y
    - steps: a distribution
    - fit: a model
    - cloud: dots that are not joined
    - layer: a part of a column for each setting, `band` being (x, low, high)
    - rows: parts of rows, `band` being (y, start, end)

    An infinite value, or 0 on a logarithmic axis, is drawn at the edge as an open triangle, never
    left out. A `strong` line is the one to look at: it is drawn thicker, and rows that are not
    strong are faint.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    role: Role = Role.FRONTIER
    kind: LineKind = "measured"
    marker: str = "o"
    bars: tuple[Bar | None, ...] = ()
    band: tuple[tuple[float, float, float], ...] = ()
    strong: bool = False

    @property
    def dashes(self) -> tuple[float, ...]:
        """The dashes of a distribution, in line widths, by which print without colour tells it from
        others; () for a solid line.
        """
        return _DASHES.get(self.role, ()) if self.kind == "steps" else ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A straight line across the panel at one value of an axis, such as a limit, and the words
    beside it.
    """

    axis: Literal["x", "y"]
    at: float
    lines: tuple[str, ...] = ()
    role: Role = Role.SLA
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """Two axes and what is drawn on them. `region` (x0, x1, y0, y1) is shaded; `compass` shows
    where better is.
    """

    title: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...] = ()
    marks: tuple[Mark, ...] = ()
    rules: tuple[Rule, ...] = ()
    region: tuple[float, float, float, float] | None = None
    compass: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is drawn on the panel. Its axes then have no numbers, as they would be
        invented.
        """
        return not (self.marks or self.lines)


@dataclass(frozen=True, slots=True)
class Picture:
    """A whole figure: panels in reading order under a title, a table of answers and a legend; notes
    and foot below.

    A row of the table has cells and a colour. `description` is for a reader who cannot see the
    picture. `strip` is a low panel of named rows below the others.
    """

    name: str
    title: str
    panels: tuple[Panel, ...]
    legend: str = ""
    rows: tuple[tuple[tuple[str, ...], Role], ...] = ()
    notes: tuple[str, ...] = ()
    foot: str = ""
    description: str = ""
    columns: int = 1
    tall: float = 505.0
    width: int = 1100
    strip: Panel | None = None

    @property
    def named_lines(self) -> tuple[Line, ...]:
        """The lines of the legend of a detail figure: the first line of each name and colour,
        without stairs and rooflines.
        """
        every = (line for panel in self.panels for line in panel.lines if line.kind not in ("stair", "roofline"))
        alike = by_key(((line.name, line.role), line) for line in every if line.name)
        return tuple(lines[0] for lines in alike.values())

    @property
    def signs(self) -> tuple[Sign, ...]:
        """The signs of its settings, for the legend."""
        shown = {mark.sign for mark in self.marks}
        return tuple(sign for sign in SIGN_WORDS if sign in shown)

    @property
    def marks(self) -> list[Mark]:
        """The marks of all panels."""
        return [mark for panel in self.panels for mark in panel.marks]


def role_of(setting: SettingView) -> Role:
    """Whether the setting is on the frontier, dominated, or excluded."""
    if not setting.usable:
        return Role.FLAGGED
    return Role.FRONTIER if setting.place == "member" else Role.DOMINATED


def mark_id(panel: int, concurrency: float, role: Role = Role.FRONTIER) -> str:
    """The id of a setting's mark in an SVG, by which a page links it to its row."""
    return f"mark-{panel}{owner(role) or OWNERS[0]}{concurrency:g}"


def id_of(number: int, panel: Panel, mark: Mark) -> str:
    """The id of a mark in the panel of this number: in rows by its row, as several rows may be of
    one concurrency.
    """
    return mark_id(number, mark.y if panel.y.names else mark.load, mark.role)


OWNERS = tuple(f"_{i}-" for i, _ in enumerate(SERIES))
"""What the ids of all parts of one of several frontiers have in common."""


def owner(role: Role) -> str:
    """The part of an id that names the frontier of a role; '' for what belongs to none."""
    return OWNERS[SERIES.index(role)] if role in SERIES else ""
