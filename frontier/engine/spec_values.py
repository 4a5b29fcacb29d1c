"""How each key of an engine's description is read: what is written in YAML, JSON or on a command line, as a value."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from frontier.engine.cards import KV_BYTES, WEIGHT_BYTES, ModelCard, card
from frontier.engine.hardware import Hardware, hardware
from frontier.engine.spec_parts import Disaggregation, Faults, Speculation, Stalls
from frontier.units import (
    MOST_COUNT,
    parse_bandwidth,
    parse_duration,
    parse_share,
    parse_size,
    usable,
    usable_count,
    whole_number,
)

PRICES = ("step_base", "per_decode", "per_prefill_token", "per_context_token", "per_prefill_pair")
_NANOSECONDS = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*ns\s*")

_LONGEST = 86_400.0

Reader = Callable[[str, Any], Any]


def _duration(key: str, value: Any) -> float:
    """Seconds of a number or a text with unit; nanoseconds are understood here too, for prices per token."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = math.nan if (found := usable(value)) is None else found
    elif isinstance(value, str):
        nanoseconds = _NANOSECONDS.fullmatch(value)
        try:
            seconds = float(nanoseconds[1]) * 1e-9 if nanoseconds else parse_duration(value)
        except ValueError as wrong:
            raise ValueError(f"{key}: {wrong}") from wrong
    else:
        raise ValueError(f"{key}: {value!r} is not a duration: write 5ms, or seconds as a number")
    if not 0 <= seconds <= _LONGEST:
        raise ValueError(f"{key}: {value!r} is not a duration between zero and a day")
    return seconds


def _positive_duration(key: str, value: Any) -> float:
    seconds = _duration(key, value)
    if seconds == 0:
        raise ValueError(f"{key}: must be more than zero")
    return seconds


def _count(low: int) -> Reader:
    def read(key: str, value: Any) -> int:
        if isinstance(value, str):
            found = whole_number(value.strip(), low, MOST_COUNT)
        else:
            found = usable_count(int(value) if isinstance(value, float) and value.is_integer() else value)
        if found is None or found < low:
            raise ValueError(f"{key}: {value!r} is not a whole number of at least {low}")
        return found

    return read


def _number(low: float, high: float, *, above: bool = False) -> Reader:
    def read(key: str, value: Any) -> float:
        if isinstance(value, str):
            try:
                value = parse_share(value) if "%" in value else float(value)
            except ValueError:
                raise ValueError(f"{key}: {value!r} is not a number") from None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{key}: {value!r} is not a number")
        if not low <= value <= high or (above and value == low):
            raise ValueError(f"{key}: {value!r} is not between {low:g} and {high:g}")
        return float(value)

    return read


def _choice(*names: str) -> Reader:
    def read(key: str, value: Any) -> str:
        if value not in names:
            raise ValueError(f"{key}: {value!r} is none of {', '.join(names)}")
        return str(value)

    return read


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{key}: {value!r} is not a name")
    return value


def _measure(parse: Callable[[str], float], example: str) -> Reader:
    """Bytes, or bytes per second: a number, or a text with its unit."""

    def read(key: str, value: Any) -> float:
        try:
            found = parse(value) if isinstance(value, str) else float(value)
        except (ValueError, TypeError):
            found = math.nan
        if isinstance(value, bool) or not 0 < found < math.inf:
            raise ValueError(f"{key}: {value!r} is not a size: write {example}")
        return found

    return read


def _flag(key: str, value: Any) -> bool:
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.strip().lower(), value)
    if not isinstance(value, bool):
        raise ValueError(f"{key}: {value!r} is neither true nor false")
    return value


def _model(key: str, value: Any) -> ModelCard:
    if not isinstance(value, str | Mapping):
        raise ValueError(f"{key}: {value!r} is neither a model's name nor a mapping")
    return card(value)


def _hardware(key: str, value: Any) -> Hardware:
    if not isinstance(value, str | Mapping):
        raise ValueError(f"{key}: {value!r} is neither a GPU's name nor a mapping")
    return hardware(value)


def _part(readers: Mapping[str, Reader], make: Callable[..., Any], needed: tuple[str, ...]) -> Reader:
    """Reads a small mapping under a key, naming its keys as `stalls.every`."""

    def read(key: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError(f"{key}: {value!r} is not a mapping of {', '.join(readers)}")
        for name in value:
            if name not in readers:
                raise ValueError(f"{key}.{name}: unknown key; known: {', '.join(readers)}")
        value = {name: inner for name, inner in value.items() if inner is not None}
        for name in needed:
            if name not in value:
                raise ValueError(f"{key}.{name}: missing")
        return make(**{name: readers[name](f"{key}.{name}", inner) for name, inner in value.items()})

    return read


speculation_value = _part(
    {"tokens": _count(1), "acceptance": _number(0, 1), "draft": _number(0, 1)}, Speculation, needed=("tokens",)
)
"""Reads a `speculation` mapping."""

READERS: Mapping[str, Reader] = {
    **dict.fromkeys((*PRICES, "overhead", "ingest"), _duration),
    "model_name": _text,
    "model": _model,
    "hardware": _hardware,
    "precision": _choice(*WEIGHT_BYTES),
    "kv_precision": _choice(*KV_BYTES),
    "efficiency": _number(0, 1, above=True),
    **dict.fromkeys(
        ("tp", "max_num_seqs", "max_batched_tokens", "kv_tokens", "block_size", "max_model_len"), _count(1)
    ),
    **dict.fromkeys(("seed", "natural_output"), _count(0)),
    "watermark": _number(0, 0.5),
    "prefix_cache": _flag,
    "noise": _number(0, 10),
    "noise_kind": _choice("lognormal", "gamma"),
    "stalls": _part(
        {"every": _positive_duration, "duration": _positive_duration}, Stalls, needed=("every", "duration")
    ),
    "speculation": speculation_value,
    "disaggregation": _part(
        {
            "prefill": _count(1),
            "decode": _count(1),
            "link": _measure(parse_bandwidth, "50GB/s"),
            "latency": _duration,
            "kv_per_token": _measure(parse_size, "128KiB"),
        },
        Disaggregation,
        needed=(),
    ),
    "drift": _number(-1, 100),
    "time_scale": _number(0, 1e6, above=True),
    "faults": _part({"error_rate": _number(0, 1), "cut_rate": _number(0, 1)}, Faults, needed=()),
}


def spec_value(key: str, value: Any) -> Any:
    """One key's value as `EngineSpec.from_mapping` reads it. ValueError, beginning with the key, when it is wrong."""
    return READERS[key](key, value)
