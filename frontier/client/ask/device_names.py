"""Names of device metrics in NVIDIA's and AMD's exporters, nvidia-smi and NVML.

Facts are made of them: power and clocks.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from frontier.client.engines.base import Fact, FactTable, Key, Mask, Samples

Made = tuple[Key, str, float]
"""A series, a fact that is made of it, and the factor to its unit."""
FACTS: Mapping[str, Fact] = {
    "gpu_count": Fact("1", "count", "max"),
    "gpu_count_min": Fact("1", "count", "min"),
    "gpu_power": Fact("W", "sum", "mean"),
    "gpu_power_readings": Fact("1", "count", "count"),
    "gpu_clocks_held": Fact("share", "mean", "mean"),
    "gpu_clocks_heat": Fact("share", "mean", "mean"),
    "gpu_power_samples": Fact("samples", "max", "samples"),
    "gpu_heat_samples": Fact("samples", "max", "samples"),
    "gpu_samples": Fact("samples", "max", "samples"),
    "gpu_utilization": Fact("share", "mean", "mean"),
    "gpu_memory_used": Fact("bytes", "sum", "mean"),
    "gpu_sm_clock_min": Fact("Hz", "min", "min"),
    "gpu_sm_clock": Fact("Hz", "min", "mean"),
    "gpu_temperature_max": Fact("°C", "max", "max"),
    "cpu_power": Fact("W", "sum", "rate"),
}
_CLOCK = {"gpu_sm_clock_min": 1e6, "gpu_sm_clock": 1e6}
_POWER = {"gpu_power": 1.0, "gpu_count": 1.0, "gpu_count_min": 1.0, "gpu_power_readings": 1.0}
# NVML gives the reasons for a GPU's clock as bits. Held down: power cap (4), hardware slowdown (8),
# heat (0x20, 0x40), power brake (0x80). Ignored, since neither power nor heat is the cause: idle
# (1), clocks set by a user (2) and sync boost (0x10), where a GPU keeps the clock of the slowest in
# its group.
_CLOCKS = {"gpu_clocks_held": Mask(0xEC), "gpu_clocks_heat": Mask(0x60)}
# NVIDIA's exporter, in the names before and after DCGM 4.6.
DCGM: FactTable = {
    "DCGM_FI_DEV_POWER_USAGE": _POWER,
    "DCGM_FI_DEV_BOARD_POWER_WATTS": _POWER,
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": _CLOCKS,
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": _CLOCKS,
    "DCGM_FI_DEV_GPU_UTIL": {"gpu_utilization": 0.01},
    "DCGM_FI_DEV_FB_USED": {"gpu_memory_used": 2.0**20},
    "DCGM_FI_DEV_SM_CLOCK": _CLOCK,
    "DCGM_FI_DEV_GPU_TEMP": {"gpu_temperature_max": 1.0},
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS": {"gpu_temperature_max": 1.0},
}
# AMD's exporter, which may have a prefix. The power is that of MI3xx and MI2xx: a GPU has one of
# the two. Its firmware counts the samples of its own in which a limit held the clocks down, each
# limit beside the count of all samples.
AMD: FactTable = {
    f"{prefix}{name}": facts
    for prefix in ("", "amd_")
    for name, facts in {
        "gpu_package_power": _POWER,
        "gpu_average_package_power": _POWER,
        "gpu_violation_ppt_residency_accumulated": {"gpu_power_samples": 1.0},
        "gpu_violation_socket_thermal_residency_accumulated": {"gpu_heat_samples": 1.0},
        "gpu_violation_hbm_thermal_residency_accumulated": {"gpu_heat_samples": 1.0},
        "gpu_violation_vr_thermal_residency_accumulated": {"gpu_heat_samples": 1.0},
        "gpu_violation_processor_hot_residency_accumulated": {"gpu_heat_samples": 1.0},
        "gpu_violation_current_accumulated_counter": {"gpu_samples": 1.0},
        "gpu_clock{clock_type=system}": _CLOCK,
        "gpu_clock{clock_type=GPU_CLOCK_TYPE_SYSTEM}": _CLOCK,
        "gpu_gfx_activity": {"gpu_utilization": 0.01},
        "gpu_used_vram": {"gpu_memory_used": 2.0**20},
        "gpu_junction_temperature": {"gpu_temperature_max": 1.0},
    }.items()
}
NVIDIA_SMI: FactTable = {
    "index": {"gpu_count": 1.0},
    "power.draw": {name: 1.0 for name in _POWER if name != "gpu_count"},
    "utilization.gpu": {"gpu_utilization": 0.01},
    "memory.used": {"gpu_memory_used": 2.0**20},
    "clocks.sm": _CLOCK,
    "temperature.gpu": {"gpu_temperature_max": 1.0},
}
NVML: FactTable = {"clocks_reasons": _CLOCKS}
RAPL: FactTable = {"energy_uj": {"cpu_power": 1e-6}}
"""Energy of CPU packages, in runs of versions that read these counters."""
EXPORTED: FactTable = {**DCGM, **AMD}
"""The names that are looked for in a Prometheus text."""
READ: FactTable = {**NVIDIA_SMI, **NVML, **RAPL}


def clock_facts(_: Sequence[float], moments: Sequence[Samples], made: Iterable[Made]) -> dict[str, float]:
    """The share of time in which the clocks were held down, and the share in which heat did so.

    Both are means over the devices that count samples. Of each device the limit that held longest
    counts, over all samples between the first and the last reading. A device is left out where its
    counters stand still (a partition without its own) or fell (another driver life).
    """
    if len(moments) < 2:
        return {}
    devices: dict[object, dict[str, float]] = {}
    for (name, labels), fact, _factor in made:
        counts = [moment.get((name, labels), -1.0) for moment in (moments[0], moments[-1])]
        if fact.endswith("_samples") and min(counts) >= 0:
            known = devices.setdefault(labels, {})
            known[fact] = max(known.get(fact, 0.0), counts[1] - counts[0]) if counts[1] >= counts[0] else -math.inf
    shares = [share for share in map(_held_shares, devices.values()) if share is not None]
    if not shares:
        return {}
    held, heat = (sum(column) / len(shares) for column in zip(*shares, strict=True))
    return {"gpu_clocks_held": held, "gpu_clocks_heat": heat}


def _held_shares(samples: Mapping[str, float]) -> tuple[float, float] | None:
    """The shares of a device's samples in which its clocks were held down, by any limit and by
    heat; None where they were not counted.
    """
    limits = [count for fact, count in samples.items() if fact != "gpu_samples"]
    all_samples = samples.get("gpu_samples", 0.0)
    if all_samples <= 0 or not limits or min(limits) < 0:
        return None
    return min(1.0, max(limits) / all_samples), min(1.0, samples.get("gpu_heat_samples", 0.0) / all_samples)


MADE: Mapping[str, Callable[..., dict[str, float]]] = {"samples": clock_facts}
"""How facts are made whose values are not joined over time as a server's are; by `Fact.time`."""
