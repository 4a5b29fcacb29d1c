"""Units of axes, columns and texts: the factor from a metric's own unit to the shown one."""

import math
from collections.abc import Iterable

from frontier.core.model.metrics import Unit, metric, per_gpu
from frontier.core.model.units import seconds_unit


def display(name: str, values: Iterable[float], gpus: int | None = None) -> tuple[float, str]:
    """The factor from the metric's own unit to an axis or a column over these values, and the
    unit's name.

    Times are in ms, or in s by the rule of `seconds_axis`; shares in %; rates per GPU when
    `gpus` is given.

    >>> display("p99_ttft", [0.2, 3.0]), display("error_rate", [0.01])
    ((1000.0, 'ms'), (100.0, '%'))
    >>> display("output_throughput", [9.0], 4)
    (0.25, 'tok/s')
    """
    unit = metric(name).unit
    if unit is Unit.SECONDS:
        return seconds_axis(values)
    return (100.0, "%") if unit is Unit.SHARE else (1 / per_gpu(name, gpus), unit.value)


def display_one(name: str, value: float, gpus: int | None = None) -> tuple[float, str]:
    """As `display`, for one value in a text: times in the unit in which `Metric.format` writes
    them.
    """
    return seconds_unit(value) if metric(name).unit is Unit.SECONDS else display(name, (), gpus)


def seconds_axis(values: Iterable[float]) -> tuple[float, str]:
    """The factor and the unit of one axis or column for many durations: ms, or s when all are 1 s
    or more or one is above 60 s. Only finite values above zero count; without any, ms.

    >>> seconds_axis([0.2, 3.0]), seconds_axis([1.5, 3.0]), seconds_axis([0.2, 90.0])
    ((1000.0, 'ms'), (1.0, 's'), (1.0, 's'))
    """
    usable_values = [v for v in values if math.isfinite(v) and v > 0]
    in_seconds = bool(usable_values) and (min(usable_values) >= 1.0 or max(usable_values) > 60.0)
    return (1.0, "s") if in_seconds else (1e3, "ms")
