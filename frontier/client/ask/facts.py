"""Facts of a window from readings: engines' metrics, device exporters, nvidia-smi, RAPL, in common
names and units.

An engine has the table of its metrics' names in its file, a device exporter here. Engines' metrics
get vLLM's names without the prefix. Counters and the sums and counts of histograms become increases
over the window; gauges become means. Nothing is a percentile here: buckets are not kept, and
percentiles come from the client's own stamps.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Literal, NamedTuple

from frontier.client.engines import ENGINES
from frontier.client.engines.base import COUNTERS, HISTOGRAMS, Table
from frontier.client.secrets import NO_SECRETS, Secrets
from frontier.core.trials import MetricSeries, SourceReadings
from frontier.core.units import usable

Key = tuple[str, tuple[tuple[str, str], ...]]
"""A series: its name and its labels, in order."""
Samples = Mapping[Key, float]
"""What a source said at one moment."""


class Fact(NamedTuple):
    """A fact: its unit, how the series of one moment become one value, and how the values of a
    window become one.

    'level' is the mean over time, and the highest beside it as NAME_max; of 'energy' see
    `_energy_facts`, of 'samples' `_clock_facts`.
    """

    unit: str
    series: Literal["sum", "max", "min", "mean", "count"]
    time: Literal["increase", "rate", "level", "mean", "min", "max", "count", "energy", "samples"]


FACTS: Mapping[str, Fact] = {
    "num_requests_running": Fact("requests", "sum", "level"),
    "num_requests_waiting": Fact("requests", "sum", "level"),
    "kv_cache_usage_perc": Fact("share", "max", "level"),
    **{name: Fact(unit, "sum", "increase") for name, unit in COUNTERS.items()},
    **{f"{name}_sum": Fact(unit, "sum", "increase") for name, unit in HISTOGRAMS.items()},
    **{f"{name}_count": Fact("1", "sum", "increase") for name in HISTOGRAMS},
    "gpu_count": Fact("1", "count", "max"),
    "gpu_count_min": Fact("1", "count", "min"),
    "gpu_power": Fact("W", "sum", "mean"),
    "gpu_power_readings": Fact("1", "count", "count"),
    "gpu_energy": Fact("J", "sum", "energy"),
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
START = "process_start_time_seconds"

# --- tables of the names of devices


class Mask(int):
    """In place of a factor: 1 where one of these bits is set, else 0."""


_CLOCK = {"gpu_sm_clock_min": 1e6, "gpu_sm_clock": 1e6}
_POWER = {"gpu_power": 1.0, "gpu_count": 1.0, "gpu_count_min": 1.0, "gpu_power_readings": 1.0}
# NVML gives the reasons for a GPU's clock as bits. Held down: power cap (4), hardware slowdown (8),
# heat (0x20, 0x40), power brake (0x80). Ignored, since neither power nor heat is the cause: idle
# (1), clocks set by a user (2) and sync boost (0x10), where a GPU keeps the clock of the slowest in
# its group.
_CLOCKS = {"gpu_clocks_held": Mask(0xEC), "gpu_clocks_heat": Mask(0x60)}
# NVIDIA's exporter, in the names before and after DCGM 4.6.
DCGM: Table = {
    "DCGM_FI_DEV_POWER_USAGE": _POWER,
    "DCGM_FI_DEV_BOARD_POWER_WATTS": _POWER,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": {"gpu_energy": 1e-3},
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
AMD: Table = {
    f"{prefix}{name}": facts
    for prefix in ("", "amd_")
    for name, facts in {
        "gpu_package_power": _POWER,
        "gpu_average_package_power": _POWER,
        "gpu_energy_consumed": {"gpu_energy": 1e-6},
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
NVIDIA_SMI: Table = {
    "index": {"gpu_count": 1.0},
    "power.draw": {name: 1.0 for name in _POWER if name != "gpu_count"},
    "utilization.gpu": {"gpu_utilization": 0.01},
    "memory.used": {"gpu_memory_used": 2.0**20},
    "clocks.sm": _CLOCK,
    "temperature.gpu": {"gpu_temperature_max": 1.0},
}
NVML: Table = {"energy_mj": {"gpu_energy": 1e-3}, "clocks_reasons": _CLOCKS}
RAPL: Table = {"energy_uj": {"cpu_power": 1e-6}}
"""Of CPU packages, in runs of versions that read these counters."""

EXPORTED: Table = {
    name: facts
    for table in (*(engine.facts for engine in ENGINES.values()), DCGM, AMD)
    for name, facts in table.items()
}
"""What is looked for in a Prometheus text."""


def _by_name(table: Table) -> dict[str, list[tuple[tuple[str, str] | None, Mapping[str, float]]]]:
    """The entries of each name, with the label that a series must have."""
    entries: dict[str, list[tuple[tuple[str, str] | None, Mapping[str, float]]]] = {}
    for key, facts in table.items():
        name, _, selector = key.removesuffix("}").partition("{")
        label, _, value = selector.partition("=")
        entries.setdefault(name, []).append(((label, value) if label else None, facts))
    return entries


_ENTRIES = _by_name({**EXPORTED, **NVIDIA_SMI, **NVML, **RAPL})
INFO = tuple(name for engine in ENGINES.values() for name in engine.info)
"""Metrics whose labels are the server's settings."""
NAMES = (*_by_name(EXPORTED), *INFO)
"""What is kept of a Prometheus text, without labels."""


# --- readings to facts


def facts_at(samples: Samples) -> dict[str, float]:
    """The facts of one moment, its series joined: counters still count from the server's start."""
    values: dict[str, list[float]] = {}
    for key, fact, factor in _made_of(samples):
        values.setdefault(fact, []).append(_scaled(samples[key], factor))
    return {name: _joined(FACTS[name].series, several) for name, several in values.items()}


def _scaled(value: float, factor: float) -> float:
    return float(bool(int(value) & factor)) if isinstance(factor, Mask) else value * factor


def _joined(how: str, values: Sequence[float]) -> float:
    if how == "mean":
        return sum(values) / len(values)
    return float({"sum": sum, "max": max, "min": min, "count": len}[how](values))  # type: ignore[operator]


def window_facts(readings: Iterable[SourceReadings]) -> dict[str, float]:
    """The facts of a window. `observed_from` and `observed_until` (seconds on the trial's clock)
    are the first and the last reading of the server's metrics: increases are over the time between
    these.

    A count that fell, or another start of the server's process, gives `restarts`. What fell is left
    out. A sum of times tells no restart: one time taken by two clocks, or rounded, may be negative.
    """
    facts: dict[str, float] = {}
    for source in readings:
        times, moments = moments_of(source)
        if not moments:
            continue
        own, fell = _source_facts(times, moments)
        facts |= own
        if source.source == "metrics":
            facts |= {"observed_from": times[0], "observed_until": times[-1]}
            if (lives := len({start for start in map(started, moments) if start is not None})) > 1 or fell:
                facts["restarts"] = float(max(1, lives - 1))
    return facts


def _source_facts(times: Sequence[float], moments: Sequence[Samples]) -> tuple[dict[str, float], bool]:
    """The facts of one source, and whether one of its counts fell."""
    facts: dict[str, float] = {}
    told, fell = [facts_at(samples) for samples in moments], False
    for name in sorted(set().union(*told)):
        values, how = [moment[name] for moment in told if name in moment], FACTS[name].time
        match how:
            case "increase" | "rate":
                if len(told) < 2 or name not in told[0] or name not in told[-1]:
                    continue
                step = values[-1] - values[0]
                fell = fell or (step < 0 and not name.endswith("_sum"))
                if step >= 0:
                    facts[name] = step / (times[-1] - times[0]) if how == "rate" else step
            case "energy":
                facts |= _energy_facts(times, moments)
            case "samples":
                facts |= _clock_facts(moments)
            case "level":
                facts |= {name: sum(values) / len(values), f"{name}_max": max(values)}
            case _:
                facts[name] = _joined(how, values)
    return facts, fell


def _energy_facts(times: Sequence[float], moments: Sequence[Samples]) -> dict[str, float]:
    """`gpu_energy_power`: the watts of all devices by their energy counters, each from its first
    change to its last, as an exporter may read its devices seldom. The slowest changed
    `gpu_energy_updates` times. There are `gpu_energy_count`, of which `gpu_energy_lost` started
    again or were missing at times.
    """
    watts, updates, lost = 0.0, [], 0
    counters = {key: factor for key, fact, factor in _made_of(_series(moments)) if fact == "gpu_energy"}
    for key, factor in counters.items():
        values = [moment.get(key, -1.0) for moment in moments]
        changes = [i for i, (before, value) in enumerate(pairwise(values), 1) if value > before]
        if min(values) < 0 or any(value < before for before, value in pairwise(values)):
            lost += 1
            continue
        updates.append(len(changes))
        if len(changes) > 1:
            first, last = changes[0], changes[-1]
            watts += factor * (values[last] - values[first]) / (times[last] - times[first])
    facts = {"gpu_energy_count": len(counters), "gpu_energy_lost": lost, "gpu_energy_updates": min(updates, default=0)}
    return {"gpu_energy_power": watts, **{name: float(number) for name, number in facts.items()}}


def _clock_facts(moments: Sequence[Samples]) -> dict[str, float]:
    """The share of time in which the clocks were held down, and by heat, as the mean over devices
    that count samples: those in which the limit that held longest did, over all samples between the
    first and the last reading. A device whose counters stand still (a partition without its own) or
    fell (another driver life) is left out.
    """
    if len(moments) < 2:
        return {}
    devices: dict[object, dict[str, float]] = {}
    for (name, labels), fact, _ in _made_of(_series(moments)):
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
    """The share of a device's samples in which its clocks were held down, and that by heat; None
    where they were not counted.
    """
    limits = [count for fact, count in samples.items() if fact != "gpu_samples"]
    all_samples = samples.get("gpu_samples", 0.0)
    if all_samples <= 0 or not limits or min(limits) < 0:
        return None
    return min(1.0, max(limits) / all_samples), min(1.0, samples.get("gpu_heat_samples", 0.0) / all_samples)


def _series(moments: Iterable[Samples]) -> Iterable[Key]:
    """Every series of these readings, in the order in which they came."""
    return dict.fromkeys(chain.from_iterable(moments))


def _made_of(series: Iterable[Key]) -> Iterator[tuple[Key, str, float]]:
    """Each of the series with each fact that is made of it, and the factor to its unit."""
    for key in series:
        for label, facts in _ENTRIES.get(key[0], ()):
            if label is None or label in key[1]:
                for fact, factor in facts.items():
                    yield key, fact, factor


def started(samples: Samples) -> float | None:
    """When the server's process was started (unix time), the latest of several; None when it does
    not say.
    """
    return max((value for (name, _), value in samples.items() if name == START), default=None)


def server_life(readings: Iterable[SourceReadings]) -> str | None:
    """The start of the server's process at the last reading, which changes when it is restarted."""
    for source in readings:
        _, moments = moments_of(source)
        if source.source == "metrics" and moments and (start := started(moments[-1])) is not None:
            return f"started {start:.0f}"
    return None


# --- readings as they are stored

_NONE = "-"


def stored_readings(
    source: str, times: Sequence[float], moments: Sequence[Samples], clean: Callable[[str], str]
) -> SourceReadings:
    """What a source said at some times, as it is kept: its labels cleaned."""
    series = [
        MetricSeries(
            name,
            {clean(label): clean(value) for label, value in labels},
            " ".join(_text(moment.get((name, labels))) for moment in moments),
        )
        for name, labels in _series(moments)
    ]
    return SourceReadings(source, " ".join(f"{time:.3f}" for time in times), tuple(series))


def _text(value: float | None) -> str:
    return _NONE if value is None else repr(value).removesuffix(".0")


def moments_of(source: SourceReadings) -> tuple[list[float], list[dict[Key, float]]]:
    """The times of a source's readings, and what it said at each. ValueError where they are
    damaged.
    """
    times = [_number(word) for word in source.times.split()]
    moments: list[dict[Key, float]] = [{} for _ in times]
    for series in source.series:
        key = (series.name, tuple(series.labels.items()))
        for moment, word in zip(moments, series.values.split(), strict=True):
            if word != _NONE:
                moment[key] = _number(word)
    return times, moments


def _number(word: str) -> float:
    value = usable(float(word))
    if value is None:
        raise ValueError(f"{word!r:.40} cannot be one of its numbers")
    return value


_MOST_VALUES = 200_000
"""Values that are kept of a source: about 1.5 MB. With more, every second moment is dropped."""
LONGEST_LABEL = 200


class Readings:
    """What one source said, moment by moment, bounded in size: a long window keeps fewer moments of
    it.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._moments: list[tuple[float, Samples]] = []
        self._values = self._seen = 0
        self._stride = 1

    def __bool__(self) -> bool:
        return bool(self._moments)

    def add(self, samples: Samples, at: float, *, last: bool = False) -> None:
        """Keep what it said `at` a moment (perf_counter seconds)."""
        self._seen += 1
        if not last and (self._seen - 1) % self._stride:
            return
        self._moments.append((at, samples))
        self._values += len(samples)
        if self._values > _MOST_VALUES and not last:
            self._moments = self._moments[::2]
            self._values = sum(len(kept) for _, kept in self._moments)
            self._stride *= 2

    def stored(self, zero: float = 0.0, secrets: Secrets = NO_SECRETS) -> tuple[SourceReadings, ...]:
        """As it is kept in the evidence, times counting from `zero` (perf_counter seconds); none
        without a reading.
        """
        if not self._moments:
            return ()
        times, moments = zip(*((at - zero, samples) for at, samples in tuple(self._moments)), strict=True)
        clean = functools.cache(lambda text: secrets.said(text, LONGEST_LABEL))
        return (stored_readings(self._source, times, moments, clean),)
