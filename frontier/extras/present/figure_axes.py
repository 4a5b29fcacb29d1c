"""Axes of detail figures: of loads that were measured, of settings beside each other, from zero."""

import math
from collections.abc import Sequence
from dataclasses import replace

from frontier.core.model.loads import Load
from frontier.show.picture.axes import padded_axis
from frontier.show.picture.data import Axis


def axis_from_zero(label: str, values: Sequence[float]) -> Axis:
    """A linear axis from 0 to a little above the highest."""
    return Axis(label, 0.0, 1.12 * max([v for v in values if math.isfinite(v)], default=1.0) or 1.0)


def concurrency_axis(settings: Sequence[Load]) -> Axis:
    """A logarithmic axis of loads whose ticks are settings that were measured: both ends first,
    then the rounder numbers.
    """
    ticks = _by_roundness(settings)
    axis = padded_axis(f"{_load_label(settings)}, log scale", [load.amount for load in settings], log=True)
    return replace(axis, ticks=tuple(load.amount for load in ticks))


def settings_axis(settings: Sequence[Load], chosen: Load | None) -> Axis:
    """An axis with the same room for each setting, at 0, 1, 2, ...; the chosen one has a star."""
    names = tuple(f"★ {c.bare}" if c == chosen else c.bare for c in settings)
    ticks = sorted(_by_roundness(settings), key=lambda c: c != chosen)
    places = tuple(float(settings.index(c)) for c in ticks)
    return Axis(_load_label(settings), -0.6, len(settings) - 0.4, ticks=places, names=names)


def _by_roundness(settings: Sequence[Load]) -> list[Load]:
    """The settings as ticks by priority."""
    ends = min(settings), max(settings)
    return sorted(set(settings), key=lambda c: (c not in ends, c & (c - 1) != 0, c % 16 != 0, c % 4 != 0, c))


def _load_label(settings: Sequence[Load]) -> str:
    return settings[0].axis
