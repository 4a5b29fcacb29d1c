"""Power of devices: what nvidia-smi, NVML or a device exporter reported of a deployment's GPUs in
the windows, and whether that can be used.
"""

import math
from collections.abc import Iterator

from frontier.core.points import Flag, Power
from frontier.core.units import format_number, format_share
from frontier.hardware.device_power import Windows

FEWEST_READINGS, FEWEST_UPDATES = 10, 20
"""Of power samples, and of an energy counter, in the windows of a point: an edge may be off by one
of them."""
DISAGREE = 0.05
"""A gap between power samples and energy counters that is worth a warning."""


def measured(windows: Windows, gpus: int | None) -> Power | None:
    """The mean power over windows of (seconds, the server's metrics): by energy counters where they
    can be used, else by power samples; None when a window lacks both.

    The readings are of every GPU of the machine, so they are not those of a deployment with another
    number of `gpus`.
    """
    for name, by in (("gpu_energy_power", "energy counters"), ("gpu_power", "")):
        watts = _watts(windows, name)
        if watts > 0 and _unusable(name, windows, gpus) is None:  # no NaN
            return Power(watts, "measured", by)
    return None


def _watts(windows: Windows, name: str) -> float:
    """The mean of a reading over windows; NaN where one lacks it, or where they have no length."""
    whole = sum(seconds for seconds, _ in windows)
    return sum(seconds * facts.get(name, math.nan) for seconds, facts in windows) / whole if whole > 0 else math.nan


def power_flag(windows: Windows, gpus: int | None, power: Power | None) -> Iterator[Flag]:
    """Why what was read of the devices' power does not count, or that its two sources disagree."""
    seen = [name for name in ("gpu_energy_power", "gpu_power") if any(name in metrics for _, metrics in windows)]
    reasons = {name: _unusable(name, windows, gpus) for name in seen}
    if seen and (power is None or power.source == "stated"):
        measured, limit = reasons[seen[-1]] or ("no power in some of the windows", "all windows")
        advice = "energy is not measured: state it as  hardware: {power: 700W/gpu},  or see to the readings"
        yield Flag("power_unmeasured", measured, limit, advice, fatal=False)
    elif len(seen) == 2 and not any(reasons.values()):
        watts = [_watts(windows, name) for name in seen]
        if abs(watts[1] / watts[0] - 1) > DISAGREE:
            yield Flag(
                "power_disagrees",
                f"{format_number(watts[1])} W by samples, {format_number(watts[0])} W by counters",
                format_share(DISAGREE),
                "the counters count: samples miss what happens between them",
                fatal=False,
            )


def _unusable(name: str, windows: Windows, gpus: int | None) -> tuple[str, str] | None:
    """What is wrong with these readings of power, and what it should be; None where they count."""

    def most(fact: str) -> float:
        return max((metrics.get(fact, 0.0) for _, metrics in windows), default=0.0)

    counters = name == "gpu_energy_power"
    count = most("gpu_energy_count" if counters else "gpu_count")
    least = count if counters else min((m.get("gpu_count_min", count) for _, m in windows), default=0.0)
    if gpus is not None and count != gpus:
        return f"readings of {count:.0f} GPUs", f"{gpus} (gpus)"
    if counters and (lost := most("gpu_energy_lost")):
        return f"{lost:.0f} of {count:.0f} energy counters started again or were missing", "0"
    if least < count:
        return f"at times readings of {least:.0f} GPUs only", f"{count:.0f}"
    fact, fewest = ("gpu_energy_updates", FEWEST_UPDATES) if counters else ("gpu_power_readings", FEWEST_READINGS)
    number = sum(facts.get(fact, math.inf) for _, facts in windows)
    return (f"{number:.0f} readings", f"{fewest}") if number < fewest else None
