"""Facts of a window from readings: engines' metrics, device exporters, nvidia-smi, RAPL, in common
names and units.

A new engine or exporter is one table of names below, and nothing else. Engines' metrics get vLLM's
names without the prefix. Counters and the sums and counts of histograms become increases over the
window; gauges become means. Nothing is a percentile here: buckets are not kept, and percentiles
come from the client's own stamps.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Literal, NamedTuple

from frontier.model import MetricSeries, SourceReadings
from frontier.units import usable

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


HISTOGRAMS = {
    "time_to_first_token_seconds": "s",
    "e2e_request_latency_seconds": "s",
    "request_queue_time_seconds": "s",
    "request_prefill_time_seconds": "s",
    "request_decode_time_seconds": "s",
    "request_inference_time_seconds": "s",
    "iteration_tokens_total": "tokens",
}
"""Of these the sum (in the unit given) and the count are facts, as NAME_sum and NAME_count."""
COUNTERS = {
    "num_preemptions_total": "requests",
    "prefix_cache_queries_total": "tokens",
    "prefix_cache_hits_total": "tokens",
    "generation_tokens_total": "tokens",
    "prompt_tokens_total": "tokens",
    "spec_decode_num_drafts_total": "drafts",
    "spec_decode_num_draft_tokens_total": "tokens",
    "spec_decode_num_accepted_tokens_total": "tokens",
}
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

# --- tables of names: NAME, or NAME{label=value} for the series with that label, to facts and the
# factor to their unit


class Mask(int):
    """In place of a factor: 1 where one of these bits is set, else 0."""


Table = Mapping[str, Mapping[str, float]]


def _same(prefix: str, *names: str) -> dict[str, dict[str, float]]:
    """Names that differ from the fact's by a prefix only."""
    return {prefix + name: {name: 1.0} for name in names}


def _histogram(name: str, fact: str) -> dict[str, dict[str, float]]:
    """The sum and the count of a histogram."""
    return {f"{name}_{part}": {f"{fact}_{part}": 1.0} for part in ("sum", "count")}


VLLM: Table = {
    **_same("vllm:", "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", *COUNTERS),
    "vllm:gpu_cache_usage_perc": {"kv_cache_usage_perc": 1.0},
    "vllm:gpu_prefix_cache_queries_total": {"prefix_cache_queries_total": 1.0},
    "vllm:gpu_prefix_cache_hits_total": {"prefix_cache_hits_total": 1.0},
    **_same("vllm:", *(f"{name}_{part}" for name in HISTOGRAMS for part in ("sum", "count"))),
}
# Its prefill stage runs in one pass or in chunks; the count of requests is that of the queue.
SGLANG: Table = {
    "sglang:num_running_reqs": {"num_requests_running": 1.0},
    "sglang:num_queue_reqs": {"num_requests_waiting": 1.0},
    "sglang:token_usage": {"kv_cache_usage_perc": 1.0},
    "sglang:num_retracted_requests_total": {"num_preemptions_total": 1.0},
    **_same("sglang:", "generation_tokens_total", "prompt_tokens_total"),
    **_histogram("sglang:time_to_first_token_seconds", "time_to_first_token_seconds"),
    **_histogram("sglang:e2e_request_latency_seconds", "e2e_request_latency_seconds"),
    **_histogram("sglang:queue_time_seconds", "request_queue_time_seconds"),
    "sglang:per_stage_req_latency_seconds_sum{stage=prefill_forward}": {"request_prefill_time_seconds_sum": 1.0},
    "sglang:per_stage_req_latency_seconds_sum{stage=prefill_chunked_forward}": {
        "request_prefill_time_seconds_sum": 1.0
    },
}
TENSORRT_LLM: Table = {
    **_same(
        "trtllm_",
        "num_requests_running",
        "num_requests_waiting",
        "generation_tokens_total",
        "prompt_tokens_total",
        *(f"{name}_{part}" for name, unit in HISTOGRAMS.items() if unit == "s" for part in ("sum", "count")),
    ),
    "trtllm_kv_cache_utilization": {"kv_cache_usage_perc": 1.0},
}
# TGI counts tokens in histograms only.
TGI: Table = {
    "tgi_batch_current_size": {"num_requests_running": 1.0},
    "tgi_queue_size": {"num_requests_waiting": 1.0},
    "tgi_request_generated_tokens_sum": {"generation_tokens_total": 1.0},
    "tgi_request_input_length_sum": {"prompt_tokens_total": 1.0},
    **_histogram("tgi_request_queue_duration", "request_queue_time_seconds"),
    **_histogram("tgi_request_inference_duration", "request_inference_time_seconds"),
    **_histogram("tgi_request_duration", "e2e_request_latency_seconds"),
}
# Seconds are added up over requests, which it does not count.
LLAMACPP: Table = {
    "llamacpp:requests_processing": {"num_requests_running": 1.0},
    "llamacpp:requests_deferred": {"num_requests_waiting": 1.0},
    "llamacpp:tokens_predicted_total": {"generation_tokens_total": 1.0},
    "llamacpp:prompt_tokens_total": {"prompt_tokens_total": 1.0},
    "llamacpp:prompt_seconds_total": {"request_prefill_time_seconds_sum": 1.0},
    "llamacpp:tokens_predicted_seconds_total": {"request_decode_time_seconds_sum": 1.0},
}
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

EXPORTED: Table = {**VLLM, **SGLANG, **TENSORRT_LLM, **TGI, **LLAMACPP, **DCGM, **AMD}
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
INFO = (
    "vllm:cache_config_info",
    "trtllm_model_config_info",
    "trtllm_parallel_config_info",
    "trtllm_speculative_config_info",
    "trtllm_kv_cache_config_info",
)
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
        told = [facts_at(samples) for samples in moments]
        fell = False
        for name in sorted(set().union(*told)):
            values = [moment[name] for moment in told if name in moment]
            if FACTS[name].time in ("increase", "rate"):
                if len(told) < 2 or name not in told[0] or name not in told[-1]:
                    continue
                step = values[-1] - values[0]
                fell = fell or (step < 0 and not name.endswith("_sum"))
                if step >= 0:
                    facts[name] = step / (times[-1] - times[0]) if FACTS[name].time == "rate" else step
            elif FACTS[name].time == "energy":
                facts |= _energy_facts(times, moments)
            elif FACTS[name].time == "samples":
                facts |= _clock_facts(moments)
            elif FACTS[name].time == "level":
                facts |= {name: sum(values) / len(values), f"{name}_max": max(values)}
            else:
                facts[name] = _joined(FACTS[name].time, values)
        if source.source == "metrics":
            facts |= {"observed_from": times[0], "observed_until": times[-1]}
            if (lives := len({start for start in map(started, moments) if start is not None})) > 1 or fell:
                facts["restarts"] = float(max(1, lives - 1))
    return facts


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
    shares = []
    for known in devices.values():
        limits = [value for fact, value in known.items() if fact != "gpu_samples"]
        if known.get("gpu_samples", 0.0) > 0 and limits and min(limits) >= 0:
            heat = known.get("gpu_heat_samples", 0.0)
            shares.append([min(1.0, value / known["gpu_samples"]) for value in (max(limits), heat)])
    if not shares:
        return {}
    held, heat = (sum(column) / len(shares) for column in zip(*shares, strict=True))
    return {"gpu_clocks_held": held, "gpu_clocks_heat": heat}


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
