"""Electrical power of a deployment: samples of its GPUs in the windows, and the energy that
follows.

The samples are those of nvidia-smi or a device exporter; whether they can be used is decided here.
A flat figure that the config states takes their place where nothing was measured.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence

from frontier.core.model.points import Flag, Point, Power
from frontier.core.window.cost_energy import joules
from frontier.core.window.window import Timed, WindowData, join

FEWEST_READINGS = 10
"""Fewest power samples in the windows of a point: an edge may be off by one sample."""


def measured(windows: Timed, gpus: int | None, fewest: int = FEWEST_READINGS) -> Power | None:
    """The mean power over windows of (seconds, the server's metrics); None when a window lacks it,
    or all together have fewer than so many readings.

    The readings are of every GPU of the machine, so they do not fit a deployment with another
    number of `gpus`.
    """
    whole = sum(seconds for seconds, _ in windows)
    joules = sum(seconds * facts.get("gpu_power", math.nan) for seconds, facts in windows)
    usable = joules > 0 and _unusable(windows, gpus, fewest) is None  # no NaN
    return Power(joules / whole, "measured") if usable else None


def in_parts(parts: Sequence[WindowData]) -> Sequence[WindowData]:
    """The parts of a setting's data, each with the power of its own readings, where all together
    have enough of them.
    """
    if not parts or (power := join(parts).power) is None or power.source != "measured":
        return parts
    rule = functools.partial(measured, gpus=None, fewest=1)  # which GPUs they are of was seen together
    return [dataclasses.replace(part, power_rule=rule) for part in parts]


def power_flag(windows: Timed, gpus: int | None, power: Power | None) -> Iterator[Flag]:
    """The flag that says why the readings of power do not count."""
    seen = any("gpu_power" in facts for _, facts in windows)
    if seen and (power is None or power.source == "stated"):
        what, limit = _unusable(windows, gpus, FEWEST_READINGS) or ("no power in some of the windows", "all windows")
        advice = "energy is not measured: state it as  hardware: {power: 700W/gpu},  or see to the readings"
        yield Flag("power_unmeasured", what, limit, advice, fatal=False)


def _unusable(windows: Timed, gpus: int | None, fewest: int) -> tuple[str, str] | None:
    """What is wrong with the readings of power, and what it should be; None where they count."""
    count = max((facts.get("gpu_count", 0.0) for _, facts in windows), default=0.0)
    least = min((facts.get("gpu_count_min", facts.get("gpu_count", count)) for _, facts in windows), default=0.0)
    if gpus is not None and count != gpus:
        return f"readings of {count:.0f} GPUs", f"{gpus} (gpus)"
    if least < count:
        return f"at times readings of {least:.0f} GPUs only", f"{count:.0f}"
    number = sum(facts.get("gpu_power_readings", math.inf) for _, facts in windows)
    return (f"{number:.0f} readings", f"{fewest}") if number < fewest else None


def with_energy(point: Point, power: Power | None) -> Point:
    """The point with its `energy`; unchanged without a power or a throughput."""
    throughput = point.metrics.get("output_throughput")
    if power is None or throughput is None:
        return point
    return dataclasses.replace(point, metrics={**point.metrics, "energy": joules(throughput, power)}, power=power)
