"""The parts of an engine's description that have several figures of their own.

How each key of an engine's description is read: what is written in YAML, JSON or on a command line, as a value.

What the engine inside is told: how steps are priced, how many requests fit, and what disturbs it.

A spec is written as a short mapping (YAML or JSON). Steps are priced either by explicit durations

    {step_base: 6.5ms, per_decode: 20us, per_prefill_token: 25us, per_context_token: 45ns}

or from a model and a GPU through the roofline, divided by an efficiency:

    {model: llama-3.1-8b, hardware: h100, tp: 1, efficiency: 0.6, overhead: 2ms}
"""

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from frontier.hardware.gpus import Hardware, hardware, hardware_mapping
from frontier.hardware.models import KV_BYTES, WEIGHT_BYTES, ModelCard, card
from frontier.hardware.roofline import Roofline
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


@dataclass(frozen=True, slots=True)
class Stalls:
    """Pauses at random moments: on average one `every` seconds (a Poisson process), each `duration` long."""

    every: float
    duration: float


@dataclass(frozen=True, slots=True)
class Faults:
    """Shares of requests that fail over HTTP: refused with status 500, or cut off in the middle of the stream.

    Virtual time knows no faults, and there every request runs to the length asked.
    """

    error_rate: float = 0.0
    cut_rate: float = 0.0


NO_FAULTS = Faults()


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding: `tokens` drafts per request and step, each of which is accepted with probability
    `acceptance` when those before it were. One draft token costs the share `draft` of a step that decodes one token per
    request; 0 for drafts looked up in the prompt."""

    tokens: int
    acceptance: float = 0.7
    draft: float = 0.05

    @property
    def expected(self) -> float:
        """Tokens a step yields on average for a request: (1 - a^(k + 1)) / (1 - a)."""
        return math.fsum(self.acceptance**j for j in range(self.tokens + 1))


@dataclass(frozen=True, slots=True)
class Disaggregation:
    """So many instances that read prompts and so many that decode, each as the rest of the spec describes one. KV moves
    between them at `link` bytes per second and GPU, and `latency` seconds more for each request; `kv_per_token` bytes
    on each GPU (None: what the model's card says)."""

    prefill: int = 1
    decode: int = 1
    link: float = 50e9
    latency: float = 2e-3
    kv_per_token: float | None = None


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


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One simulated deployment. Durations in seconds.

    With `model` and `hardware` given, a step costs `overhead + roofline / efficiency`; otherwise
    `step_base + per_decode * decodes + per_prefill_token * prompt tokens + per_context_token * KV tokens the decodes
    read + per_prefill_pair * (prompt token, earlier token) pairs`. `noise` is the coefficient of variation of a
    step's time, `drift` the share by which steps grow per minute, `time_scale` multiplies every duration. `kv_tokens`
    None means: what the roofline leaves beside the weights (explicit prices: 400,000). `ingest` is the time from a
    request's sending until the scheduler can see it. `natural_output` is the mean length at which the model stops by
    itself when not told to ignore the end of text; 0 = it never does.
    """

    model_name: str = "sim-8b"
    step_base: float = 6.5e-3
    per_decode: float = 20e-6
    per_prefill_token: float = 25e-6
    per_context_token: float = 45e-9
    per_prefill_pair: float = 0.0
    model: ModelCard | None = None
    hardware: Hardware | None = None
    tp: int = 1
    precision: str | None = None
    kv_precision: str | None = None
    efficiency: float = 0.6
    overhead: float = 2e-3
    max_num_seqs: int = 256
    max_batched_tokens: int = 2048
    kv_tokens: int | None = None
    block_size: int = 16
    watermark: float = 0.01
    max_model_len: int | None = None
    prefix_cache: bool = False
    speculation: Speculation | None = None
    disaggregation: Disaggregation | None = None
    noise: float = 0.0
    noise_kind: Literal["lognormal", "gamma"] = "lognormal"
    seed: int = 0
    stalls: Stalls | None = None
    drift: float = 0.0
    time_scale: float = 1.0
    ingest: float = 0.5e-3
    natural_output: int = 0
    faults: Faults = NO_FAULTS

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "EngineSpec":
        """The spec a mapping describes. ValueError begins with the key that is wrong, as `noise: ...`.

        >>> EngineSpec.from_mapping({"step_base": "5ms", "per_decode": "10us"}).step_base
        0.005
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for key in mapping:
            if key not in known:
                close = difflib.get_close_matches(str(key), known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(known)
                raise ValueError(f"{key}: unknown key; {hint}")
        values = {key: READERS[key](key, value) for key, value in mapping.items() if value is not None}
        if ("model" in values) != ("hardware" in values):
            here, there = ("model", "hardware") if "model" in values else ("hardware", "model")
            raise ValueError(f"{there}: missing; {here} is given, and the roofline needs both")
        explicit = [key for key in PRICES if key in values]
        if "model" in values and explicit:
            raise ValueError(f"{explicit[0]}: not together with model and hardware; price steps one way or the other")
        if "model" in values and "model_name" not in values:
            values["model_name"] = values["model"].name
        spec = cls(**values)
        spec.check()
        return spec

    def check(self) -> None:
        """ValueError, beginning with the key, when the parts do not fit together."""
        if self.max_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_batched_tokens: {self.max_batched_tokens} is below max_num_seqs ({self.max_num_seqs}); "
                "every running request needs one token of the budget"
            )
        if self.speculation is not None and self.max_batched_tokens < self.max_num_seqs * (1 + self.speculation.tokens):
            raise ValueError(
                f"max_batched_tokens: {self.max_batched_tokens} is below max_num_seqs x (1 + speculation.tokens) "
                f"({self.max_num_seqs * (1 + self.speculation.tokens)}); every running request verifies its drafts"
            )
        if self.kv_tokens is not None and self.kv_tokens < 2 * self.block_size:
            raise ValueError(f"kv_tokens: {self.kv_tokens} is less than two blocks of {self.block_size}")
        if self.model is not None and self.hardware is not None and self.kv_tokens is None:
            light = Roofline.of(self.model, self.hardware, self.tp, self.precision, self.kv_precision)
            light.kv_tokens()  # refuses weights that do not fit
        if self.model is None and self.disaggregation is not None and self.disaggregation.kv_per_token is None:
            raise ValueError("disaggregation.kv_per_token: missing; without a model nobody knows it, write 128KiB")
        if self.model is None and self.step_base + self.per_decode <= 0:
            raise ValueError("step_base: a step must take some time; give step_base or per_decode")

    def to_mapping(self) -> dict[str, Any]:
        """A JSON-ready mapping from which `from_mapping` makes an equal spec."""
        plain = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }
        for key in ("stalls", "faults", "model", "speculation", "disaggregation"):
            if key in plain:
                plain[key] = dataclasses.asdict(plain[key])
        if self.hardware is not None:
            plain["hardware"] = hardware_mapping(self.hardware)
            plain["model_name"] = self.model_name
        return plain
