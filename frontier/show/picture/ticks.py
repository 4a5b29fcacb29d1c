"""Ticks of an axis: round numbers, as many as have room."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from matplotlib.ticker import LogLocator, MaxNLocator

from frontier.show.picture.data import Axis
from frontier.show.picture.text_size import line_height, text_width

AxisTick = tuple[float, str]
_LINEAR = [MaxNLocator(n, steps=[1, 2, 2.5, 5, 10]) for n in (9, 6, 4, 3, 2)]
_LOG = [
    LogLocator(subs=subs, numticks=99)
    for subs in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
]
"""The possible places of an axis's ticks, the most ticks first."""


def ticks_of(axis: Axis, length: float, points: float, upright: bool) -> list[AxisTick]:
    """The ticks of an axis as (value, text): its own where they fit, by priority, otherwise round
    numbers.
    """
    fits = partial(_fit, axis=axis, length=length, points=points, upright=upright)
    choices = _round_ticks(axis)
    if axis.ticks or not any(map(fits, choices)):
        own = [(value, axis.names[int(value)] if axis.names else tick_text(value)) for value in axis.ticks]
        kept: list[AxisTick] = []
        for tick in own or choices[-1]:
            kept = wider if fits(wider := sorted([*kept, tick])) else kept
        return kept
    return next(filter(fits, choices))


def _fit(ticks: Sequence[AxisTick], axis: Axis, length: float, points: float, upright: bool) -> bool:
    """Whether the texts of these ticks leave a gap between them."""
    sizes = [line_height(points) if upright else text_width(text, points) + 7 for _, text in ticks]
    places = [abs(axis.fraction(value)) * length for value, _ in ticks]
    return all(abs(b - a) >= (m + n) / 2 for (a, m), (b, n) in itertools.pairwise(zip(places, sizes, strict=True)))


def _round_ticks(axis: Axis) -> list[list[AxisTick]]:
    """Several choices of round numbers on an axis, the most first."""
    low, high = sorted((axis.low, axis.high))
    every = [
        [(float(v), tick_text(v)) for v in locator.tick_values(low, high) if low <= v <= high * (1 + 1e-9)]
        for locator in (_LOG if axis.log else _LINEAR)
    ]
    choices = [ticks for ticks in every if 3 <= len(ticks) <= 10]
    if not choices and axis.log and axis.high < 30 * axis.low:  # hardly a round number: ticks as if it were linear
        return _round_ticks(replace(axis, log=False))
    return choices or [max(every, key=len)]


def tick_text(value: float) -> str:
    """'2,000', '0.25'."""
    return f"{value:,.6f}".rstrip("0").rstrip(".")
