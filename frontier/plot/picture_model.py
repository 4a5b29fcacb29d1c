"""The parts of a picture as data. Marks are in display units of the axes; text is in pixels at 100 dpi, origin bottom
left; colours are roles that `figure` turns into a palette.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from frontier.plot.axes import Axis
from frontier.plot.layout import Rect, Segment

Align = Literal["left", "center", "right"]
Theme = Literal["light", "dark"]
FORMATS = ("png", "svg", "pdf")
"""What a picture can be written as."""
TICKS, TICKS_SMALL = 12.0, 10.0
"""Sizes in points of the text on axes, of a panel alone and of one among several."""


class Role(StrEnum):
    """What a thing means; colour follows from it, and shape or text always says it too."""

    FRONTIER = "frontier"
    OTHER = "other"
    THIRD = "third"
    FOURTH = "fourth"
    DOMINATED = "dominated"
    FLAGGED = "flagged"
    OPERATING = "operating"
    SLA = "sla"
    LIGHT = "light"
    QUIET = "quiet"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Bar:
    """An interval in display units, clipped to the axis; an open end has no bound and is drawn as an arrow."""

    low: float
    high: float
    open_low: bool = False
    open_high: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """One setting. `pale` doubts its place on the frontier; `beyond` is drawn at the edge, its value being infinite.

    `struck` is drawn through: the setting breaks a limit that is on neither axis. `chosen` is an operating point among
    several frontiers: a star in the frontier's colour.
    """

    concurrency: int
    x: float
    y: float
    role: Role
    x_bar: Bar | None = None
    y_bar: Bar | None = None
    pale: bool = False
    beyond: bool = False
    struck: bool = False
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Predicted:
    """A prediction at its place, with its band on each axis: dashed, a small open diamond, never a mark."""

    concurrency: float
    x: float
    y: float
    x_bar: Bar | None = None
    y_bar: Bar | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A limit of the SLA as a line across the panel, on the x or the y axis; comfort marks are dashed."""

    axis: Literal["x", "y"]
    at: float
    comfort: bool = False


@dataclass(frozen=True, slots=True)
class Label:
    """Text at a place, its block `box`; a leader ties it to what it speaks of."""

    lines: tuple[str, ...]
    box: Rect
    role: Role
    size: float
    align: Align = "left"
    bold: bool = False
    leader: Segment | None = None


@dataclass(frozen=True, slots=True)
class Stair:
    """A staircase through the settings that were measured, as corners; `name` is set when several are overlaid.

    `band` is its attainment band: (x, low, high), each holding to the next worse x.
    """

    corners: tuple[tuple[float, float], ...]
    role: Role = Role.FRONTIER
    name: str | None = None
    band: tuple[tuple[float, float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """One (deployment, shape): axes, what is drawn on them, and the text around it.

    `unlabelled` are the concurrencies whose label found no room: they are named under the picture.
    """

    name: str
    box: Rect
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    stairs: tuple[Stair, ...]
    paths: tuple[tuple[tuple[float, float], ...], ...] = ()
    region: tuple[float, float, float, float] | None = None
    rules: tuple[Rule, ...] = ()
    light: tuple[tuple[float, float], ...] = ()
    expected: tuple[Predicted, ...] = ()
    star: tuple[float, float] | None = None
    ring: tuple[float, float] | None = None
    arrow: Segment | None = None
    labels: tuple[Label, ...] = ()
    unlabelled: tuple[int, ...] = ()

    def raised(self, by: float) -> "Panel":
        """The same panel so many pixels further up."""
        labels = tuple(
            replace(of, box=of.box.raised(by), leader=of.leader.raised(by) if of.leader else None) for of in self.labels
        )
        return replace(
            self, box=self.box.raised(by), labels=labels, arrow=self.arrow.raised(by) if self.arrow else None
        )

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Pixels of a place in display units."""
        box = self.box
        return (
            box.x0 + self.x.fraction(x) * (box.x1 - box.x0),
            box.y0 + self.y.fraction(y) * (box.y1 - box.y0),
        )


@dataclass(frozen=True, slots=True)
class Picture:
    """A whole picture. `title` is the decision; `description` is what somebody who cannot see it is told."""

    title: str
    width: int
    height: int
    panels: tuple[Panel, ...]
    labels: tuple[Label, ...]
    description: str
