"""What the engine inside is told: how steps are priced, how many requests fit, and what disturbs it.

A spec is written as a short mapping (YAML or JSON). Steps are priced either by explicit durations

    {step_base: 6.5ms, per_decode: 20us, per_prefill_token: 25us, per_context_token: 45ns}

or from a model and a GPU through the roofline, divided by an efficiency:

    {model: llama-3.1-8b, hardware: h100, tp: 1, efficiency: 0.6, overhead: 2ms}
"""

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from frontier.engine.cards import ModelCard
from frontier.engine.hardware import Hardware, hardware_mapping
from frontier.engine.roofline import Roofline
from frontier.engine.spec_parts import NO_FAULTS, Disaggregation, Faults, Speculation, Stalls
from frontier.engine.spec_values import PRICES, READERS


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
