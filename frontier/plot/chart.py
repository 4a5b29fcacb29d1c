"""Companion charts as data: lines, limits and bars on two scales, several to a sheet. `sheet` draws them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from frontier.plot.axes import Room, legible, tick_text, ticks_of

NARROW: Room = (210.0, 9.0)
"""What the narrowest chart of a sheet, one of three side by side, has for the text of its x axis."""
PADDING = 0.06
"""Share of a scale that is left free at each end."""


@dataclass(frozen=True, slots=True)
class Scale:
    """One axis of a chart: range and ticks in display units."""

    label: str
    low: float
    high: float
    log: bool
    ticks: tuple[tuple[float, str], ...]

    def fraction(self, value: float) -> float:
        """Where a value lies: 0 at the low end, 1 at the high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def value(self, fraction: float) -> float:
        """The inverse of `fraction`."""
        if self.log:
            return self.low * math.exp(fraction * math.log(self.high / self.low))
        return self.low + fraction * (self.high - self.low)

    def off(self, value: float) -> int:
        """1 for what no axis holds above (infinite), -1 for what this one does not hold below (0 on a logarithm)."""
        return 1 if value == math.inf else -1 if self.log and value <= 0 else 0

    def shown(self, value: float) -> float:
        """The value, or the edge where it is `off`."""
        return {1: self.high, -1: self.low, 0: value}[self.off(value)]


@dataclass(frozen=True, slots=True)
class Line:
    """One series in display units. `ink` numbers its colour; marker and stroke say the same without colour.

    A value that is infinite, or 0 on a logarithmic axis, is drawn at the edge as an open triangle, never left out.
    `bars` are intervals in y, None where nothing is known. A `fit` is a model, not a measurement: dashed, unmarked.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    ink: int = 0
    marker: str = "o"
    kind: Literal["measured", "steps", "fit", "cloud"] = "measured"
    bars: tuple[tuple[float, float] | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A value across the chart, as a limit or the operating point, and what is written on it."""

    at: float
    text: str
    of: Literal["limit", "chosen", "edge"] = "limit"
    upright: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """A bar of a timeline: on row `row`, from `start` to `end`."""

    row: int
    start: float
    end: float
    of: Literal["wait", "answer", "failed", "shade"]


@dataclass(frozen=True, slots=True)
class Chart:
    """One panel. Its lines are named at their right ends, or with `keyed` by the sheet's key."""

    title: str
    x: Scale
    y: Scale
    lines: tuple[Line, ...] = ()
    marks: tuple[Mark, ...] = ()
    spans: tuple[Span, ...] = ()
    keyed: bool = False


@dataclass(frozen=True, slots=True)
class Sheet:
    """Charts side by side under one title; `notes` are written below. `description` is for who cannot see it.

    `key` names what the inks stand for in charts that are `keyed`.
    """

    name: str
    title: str
    charts: tuple[Chart, ...]
    notes: tuple[str, ...] = ()
    columns: int = 2
    tall: float = 300.0
    key: tuple[tuple[str, int], ...] = ()

    @property
    def description(self) -> str:
        said = "; ".join(f"{c.title}: {', '.join(li.name for li in c.lines if li.name)}" for c in self.charts)
        return f"{self.title}. {said}".rstrip(" :.") + "."


def span_scale(label: str, values: Sequence[float], *, log: bool, across: bool = False) -> Scale:
    """A scale over these values with some room; infinite ones, and 0 on a logarithm, lie beyond. `across`: x."""
    held = [v for v in values if math.isfinite(v) and (v > 0 or not log)] or [1.0]
    low, high = min(held), max(held)
    if log:
        pad = (high / low) ** PADDING if high > low else 1.3
        low, high = low / max(pad, 1.08), high * max(pad, 1.08)
    else:
        pad = (high - low) * PADDING or abs(high) * 0.1 or 1.0
        low, high = low - pad, high + pad
    return Scale(label, low, high, log, ticks_of(low, high, log=log, room=NARROW if across else None))


def from_zero(label: str, values: Sequence[float]) -> Scale:
    """A linear scale from 0 to a little above the highest."""
    high = 1.12 * max([v for v in values if math.isfinite(v)], default=1.0) or 1.0
    return Scale(label, 0.0, high, False, ticks_of(0.0, high, log=False))


def concurrency_scale(settings: Sequence[int]) -> Scale:
    """Logarithmic, with settings that were measured as ticks: both ends, powers of two, then others where there is
    room.
    """
    found = sorted(set(settings))
    low, high = found[0], found[-1]
    pad = (high / low) ** 0.05 if high > low else 1.6
    shown: list[float] = []
    for c in sorted(found, key=lambda c: (c not in (low, high), c & (c - 1) != 0, c % 16 != 0, c % 4 != 0, c)):
        wider = sorted([*shown, float(c)])
        if legible(wider, low / pad, high * pad, True, NARROW):
            shown = wider
    return Scale("concurrency", low / pad, high * pad, True, tuple((c, tick_text(c)) for c in shown))
