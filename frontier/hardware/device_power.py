"""Electrical power of a deployment: what an extra reads off its devices in the windows, and the
energy that follows.

A flat figure that the config states takes its place where nothing was measured.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from frontier import registry
from frontier.core.model.points import Flag, Point, Power
from frontier.core.window.cost_energy import joules

Windows = Sequence[tuple[float, Mapping[str, float]]]
"""The length of each window in seconds, and the facts of it that the server and its devices gave.
"""


def measured(windows: Windows, gpus: int | None) -> Power | None:
    """The mean power of `gpus` over windows of (seconds, facts); None where it is not known."""
    devices = registry.optional(registry.POWER)
    return None if devices is None else devices.measured(windows, gpus)


def power_flag(windows: Windows, gpus: int | None, power: Power | None) -> Iterable[Flag]:
    """What is wrong with the readings of power, as a flag."""
    devices = registry.optional(registry.POWER)
    return () if devices is None else devices.power_flag(windows, gpus, power)


def with_energy(point: Point, power: Power | None) -> Point:
    """The point with its `energy`; unchanged without a power or a throughput."""
    throughput = point.metrics.get("output_throughput")
    if power is None or throughput is None:
        return point
    return dataclasses.replace(point, metrics={**point.metrics, "energy": joules(throughput, power)}, power=power)
