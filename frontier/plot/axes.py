"""Axes: the unit a person reads, the range, logarithmic or linear, and ticks at round numbers."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from frontier.decide.wording import unit_text
from frontier.metrics import LATENCIES, RATES, Unit, metric, per_gpu
from frontier.plot.layout import text_width

RATIOS = (Unit.SECONDS, Unit.DOLLARS_PER_MILLION_TOKENS, Unit.JOULES_PER_TOKEN)
"""What is compared by factors, and so drawn on a logarithmic axis."""
SMALL_RANGE = 3.0
"""Below this ratio of largest to smallest a logarithmic axis has too few round ticks to be read; linear then."""
Room = tuple[float, float]
"""A horizontal axis for text: its length in pixels, the size of the text in points."""
MOST_TICKS = 10
TICK_GAP = 7.0
"""Pixels that stay free between the texts at two ticks."""
REACH = 8.0
"""A limit further than this factor from every point would squeeze the picture; it is named instead of drawn."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis in display units: `scale` times the metric's own unit."""

    metric: str
    label: str
    short_label: str
    scale: float
    log: bool
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    rising_is_better: bool

    def fraction(self, value: float) -> float:
        """Where a value in display units lies, 0 at the low end and 1 at the high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def value(self, fraction: float) -> float:
        """The inverse of `fraction`."""
        if self.log:
            return self.low * math.exp(fraction * math.log(self.high / self.low))
        return self.low + fraction * (self.high - self.low)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def worst(self) -> float:
        """The end of the axis where the metric is worst: the staircase extends to it."""
        return self.low if self.rising_is_better else self.high


def display_scale(name: str, values: Sequence[float], gpus: int | None) -> tuple[float, str]:
    """The factor from the metric's own unit to the axis, and the unit's name: milliseconds unless all is in seconds."""
    unit = metric(name).unit
    if unit is Unit.SECONDS:
        finite = [v for v in values if math.isfinite(v) and v > 0]
        in_seconds = bool(finite) and (min(finite) >= 1.0 or max(finite) > 60.0)
        return (1.0, "s") if in_seconds else (1e3, "ms")
    if unit is Unit.SHARE:
        return 100.0, "%"
    return 1 / per_gpu(name, gpus), unit_text(name).removesuffix("/GPU")


def axis_words(name: str, gpus: int | None) -> tuple[str, str]:
    """What an axis is called, in full and short: ('p99 time to first token', 'p99 TTFT')."""
    of = metric(name)
    per = " per GPU" if gpus and of.unit in RATES else ""
    full = of.label
    if of.quantity is not None and not of.inverted:
        full = f"{name.partition('_')[0]} {LATENCIES[of.quantity]}"
    return full + per, of.label + per


def horizontal(
    name: str, values: Sequence[float], bars: Sequence[float], limits: Sequence[float], gpus: int | None,
    room: Room | None = None,
) -> Axis:  # fmt: skip
    """The x axis over these values (the metric's own unit), their interval ends where near, and limits where near."""
    scale, unit = display_scale(name, values, gpus)
    shown = [v * scale for v in values if math.isfinite(v)] or [v * scale for v in limits] or [1.0]
    shown += [v * scale for v in limits if min(shown) / REACH <= v * scale <= max(shown) * REACH]
    low, high = min(shown), max(shown)
    log = metric(name).unit in RATIOS and low > 0 and high / low >= SMALL_RANGE
    low, high = _widen(low, high, [b * scale for b in bars if math.isfinite(b)], log=log)
    full, short = axis_words(name, gpus)
    kind = f"{unit}, log scale" if log else unit
    return Axis(
        name, f"{full} ({kind})", f"{short} ({kind})", scale, log, low, high,
        ticks_of(low, high, log=log, room=room), metric(name).better == "higher",
    )  # fmt: skip


def vertical(name: str, values: Sequence[float], gpus: int | None, head: float) -> Axis:
    """The y axis: linear from 0 for what is better high, else as `horizontal`. `head` is the share kept free on top."""
    if metric(name).better == "lower":
        return horizontal(name, values, (), (), gpus)
    scale, unit = display_scale(name, values, gpus)
    top = max((v * scale for v in values if math.isfinite(v)), default=0.0) or 1.0
    high = top / (1 - head)
    full, short = axis_words(name, gpus)
    ticks = ticks_of(0, high, log=False)
    return Axis(name, f"{full} ({unit})", f"{short} ({unit})", scale, False, 0.0, high, ticks, True)


def _widen(low: float, high: float, bars: Sequence[float], *, log: bool) -> tuple[float, float]:
    """Room around the values, and for interval ends up to an eighth of the span beyond them."""
    if log:
        span = math.log(high / low)
        inner = math.exp(0.125 * span)
        ends = [b for b in bars if low / inner <= b <= high * inner]
        pad = math.exp(0.055 * span)
        return min([low, *ends]) / pad, max([high, *ends]) * pad
    span = (high - low) or abs(high) or 1.0
    ends = [b for b in bars if low - span / 4 <= b <= high + span / 4]
    least, most = min([low, *ends]) - 0.08 * span, max([high, *ends]) + 0.08 * span
    return (max(-0.02 * span, least) if low >= 0 else least), most


def ticks_of(low: float, high: float, *, log: bool, room: Room | None = None) -> tuple[tuple[float, str], ...]:
    """Round numbers on an axis with the text at each. On a horizontal one with `room` no text touches the next."""
    found: list[float] = []
    for values in _log_choices(low, high) if log else _linear_choices(low, high):
        found = values
        if len(values) <= MOST_TICKS and (room is None or legible(values, low, high, log, room)):
            break
    while room is not None and len(found) > 1 and not legible(found, low, high, log, room):
        found = found[::2]
    return tuple((v, tick_text(v)) for v in found)


def legible(values: Sequence[float], low: float, high: float, log: bool, room: Room) -> bool:
    """Whether the texts at these values, written side by side, leave a gap between them."""
    pixels, points = room
    turn = math.log if log else float
    places = [(turn(v) - turn(low)) / (turn(high) - turn(low)) * pixels for v in values]
    wide = [text_width(tick_text(v), points) for v in values]
    return all(
        right - left >= (a + b) / 2 + TICK_GAP
        for (left, right), (a, b) in zip(itertools.pairwise(places), itertools.pairwise(wide), strict=True)
    )


def _log_choices(low: float, high: float) -> list[list[float]]:
    """From many round numbers to few, 1-2-5 or decades alone over a long range; over a short one as if linear."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    choices: tuple[tuple[float, ...], ...] = ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
    found = [[s * 10.0**d for d in decades for s in steps if low <= s * 10.0**d <= high] for steps in choices]
    many = [values for values in found if len(values) > 2]
    return [*many, *(values for values in found if len(values) == 2)] if many else _linear_choices(low, high)


def _linear_choices(low: float, high: float) -> list[list[float]]:
    """From many to few."""
    found = [_linear_ticks(low, high, steps) for steps in (9, 6, 4, 3, 2)]
    return [values for values in found if len(values) > 1] or found[:1]


def _linear_ticks(low: float, high: float, steps: int) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten, at most about `steps` apart."""
    rough = (high - low) / steps
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first
    return [(first + i) * step for i in range(count + 1)]


def tick_text(value: float) -> str:
    """'2,000', '0.25'."""
    text = f"{value:,.6f}".rstrip("0").rstrip(".")
    return text or "0"
