"""Ticks of an axis: round numbers, as many as have room."""

import itertools
from collections.abc import Sequence

from matplotlib.ticker import Locator, LogLocator, MaxNLocator

from frontier.show.picture.data import Axis
from frontier.show.picture.text_size import line_height, text_width


def ticks_of(axis: Axis, length: float, points: float, upright: bool) -> Sequence[tuple[float, str]]:
    """The ticks of an axis as (value, text): its own where they fit, by priority, else round
    numbers.
    """
    low, high = sorted((axis.low, axis.high))
    if axis.ticks:
        return _own_ticks(axis, length, points, upright)
    subs = ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))
    steps = [MaxNLocator(n, steps=[1, 2, 2.5, 5, 10]) for n in (9, 6, 4, 3, 2)]

    def inside(locators: Sequence[Locator]) -> list[list[tuple[float, str]]]:
        return [
            [(float(v), tick_text(v)) for v in locator.tick_values(low, high) if low <= v <= high * (1 + 1e-9)]
            for locator in locators
        ]

    every = inside([LogLocator(subs=of, numticks=99) for of in subs] if axis.log else steps)
    choices = [ticks for ticks in every if 3 <= len(ticks) <= 10]
    if not choices and axis.log and axis.high < 30 * axis.low:  # hardly a round number: ticks as if it were linear
        every = inside(steps)
        choices = [ticks for ticks in every if 3 <= len(ticks) <= 10]
    return ticks_that_fit(axis, choices or [max(every, key=len)], length, points, upright)


def _own_ticks(axis: Axis, length: float, points: float, upright: bool) -> list[tuple[float, str]]:
    """Those of the axis's own ticks that fit, the first of them first."""
    kept: list[tuple[float, str]] = []
    for value in axis.ticks:
        wider = sorted([*kept, (value, axis.names[int(value)] if axis.names else tick_text(value))])
        if ticks_that_fit(axis, [wider], length, points, upright) == wider:
            kept = wider
    return kept


def tick_text(value: float) -> str:
    """'2,000', '0.25'."""
    return f"{value:,.6f}".rstrip("0").rstrip(".")


def ticks_that_fit(
    axis: Axis, choices: Sequence[Sequence[tuple[float, str]]], length: float, points: float, upright: bool
) -> Sequence[tuple[float, str]]:
    """The first of several choices of ticks whose texts leave a gap between them; else every other
    one of the last.
    """

    def fits(ticks: Sequence[tuple[float, str]]) -> bool:
        sizes = [line_height(points) if upright else text_width(text, points) + 7 for _, text in ticks]
        places = [abs(axis.fraction(value)) * length for value, _ in ticks]
        return all(abs(b - a) >= (m + n) / 2 for (a, m), (b, n) in itertools.pairwise(zip(places, sizes, strict=True)))

    for ticks in choices:
        if fits(ticks):
            return ticks
    ticks = list(choices[-1])
    while len(ticks) > 1 and not fits(ticks):
        ticks = ticks[::2]
    return ticks
