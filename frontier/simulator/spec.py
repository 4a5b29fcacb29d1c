"""Parameters of the simulated engine (`EngineSpec`), how they are read, and what a step costs by
them.

Steps are priced either by explicit durations

    {step_base: 6.5ms, per_decode: 20us, per_prefill_token: 25us, per_context_token: 45ns}

or from a model and a GPU through the roofline, divided by an efficiency:

    {model: llama-3.1-8b, hardware: h100, tp: 1, efficiency: 0.6, overhead: 2ms}
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, PlainValidator, ValidatorFunctionWrapHandler, WrapValidator

from frontier.fields import (
    AS_TEXT,
    Count,
    Positive,
    Problem,
    Text,
    duration_in,
    in_words,
    number_in,
    one_of,
    read_alone,
    truth,
    without_nulls,
)
from frontier.hardware.gpus import Hardware, hardware, hardware_mapping
from frontier.hardware.models import KV_BYTES, WEIGHT_BYTES, ModelCard, card
from frontier.hardware.roofline import ModelRoofline

_NANOSECONDS = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*ns\s*")


def _from_nanoseconds(value: Any) -> Any:
    """Seconds of '45ns', as prices per token are given; all else as it is."""
    match = _NANOSECONDS.fullmatch(value) if isinstance(value, str) else None
    return float(match[1]) * 1e-9 if match else value


NonNegativeSeconds = Annotated[float, duration_in(0.0, 86_400.0, bare=True), BeforeValidator(_from_nanoseconds)]
PositiveSeconds = Annotated[float, duration_in(1e-6, 86_400.0, bare=True), BeforeValidator(_from_nanoseconds)]
UnitShare = Annotated[float, number_in(0.0, 1.0), AS_TEXT]
Card = Annotated[ModelCard, PlainValidator(card)]
Gpu = Annotated[Hardware, PlainValidator(hardware)]
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Stalls:
    """Pauses at random moments: on average one `every` seconds (a Poisson process), each `duration`
    long.
    """

    __pydantic_config__ = _STRICT
    every: PositiveSeconds
    duration: PositiveSeconds


@dataclass(frozen=True, slots=True)
class Faults:
    """Shares of requests that fail over HTTP: refused with status 500, or cut off in the middle of
    the stream.

    Virtual time knows no faults, and there every request runs to the length asked.
    """

    __pydantic_config__ = _STRICT
    error_rate: UnitShare = 0.0
    cut_rate: UnitShare = 0.0


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding: `tokens` drafts per request and step. Each is accepted with probability
    `acceptance` when the drafts before it were. One draft token costs the share `draft` of a step
    that decodes one token per request; 0 for drafts looked up in the prompt. The simulator has its
    mean effect: tokens come one by one, in the mean time per token (`SpeculativePrice`).
    """

    __pydantic_config__ = _STRICT
    tokens: Positive
    acceptance: UnitShare = 0.7
    draft: UnitShare = 0.05

    @property
    def expected(self) -> float:
        """Tokens a step yields on average for a request: (1 - a^(k + 1)) / (1 - a)."""
        return math.fsum(self.acceptance**j for j in range(self.tokens + 1))


@dataclass(frozen=True, slots=True)
class Flips:
    """Tokens that the load changes by chance in answers that are not streamed: the share `batch` of
    them for each other request that runs as the answer ends. `preempted` is the share of an answer
    that was preempted, `drafts` that where drafts are verified.
    """

    __pydantic_config__ = _STRICT
    batch: UnitShare = 0.0
    preempted: UnitShare = 0.0
    drafts: UnitShare = 0.0


PRICES = ("step_base", "per_decode", "per_prefill_token", "per_context_token", "per_prefill_pair")


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One simulated deployment. Durations in seconds.

    With `model` and `hardware` given, a step costs `overhead + roofline / efficiency`, on `tp` GPUs
    in each of `pp` stages with the experts spread over `ep` of them. Otherwise a step costs the sum
    of

        step_base
        per_decode * decodes
        per_prefill_token * prompt tokens
        per_context_token * KV tokens the decodes read
        per_prefill_pair * (prompt token, earlier token) pairs

    `noise` is the coefficient of variation of a step's time, `drift` the share by which steps grow
    per minute; `time_scale` multiplies every duration. `kv_tokens` None means what the roofline
    leaves beside the weights (explicit prices: 400,000). `ingest` is the time from a request's
    sending until the scheduler can see it. `natural_output` is the mean length at which the model
    stops by itself, unless told to ignore the end of text; 0: it never does.

    In answers that are not streamed, some tokens differ from the usual ones: the share
    `token_flips` of them, always the same for a prompt, the share `token_noise` by chance, and
    those of `flips` by the load.
    """

    __pydantic_config__ = _STRICT
    model_name: Text = "sim-8b"
    step_base: NonNegativeSeconds = 6.5e-3
    per_decode: NonNegativeSeconds = 20e-6
    per_prefill_token: NonNegativeSeconds = 25e-6
    per_context_token: NonNegativeSeconds = 45e-9
    per_prefill_pair: NonNegativeSeconds = 0.0
    model: Card | None = None
    hardware: Gpu | None = None
    tp: Positive = 1
    pp: Positive = 1
    ep: Positive = 1
    precision: Annotated[str, one_of(*WEIGHT_BYTES)] | None = None
    kv_precision: Annotated[str, one_of(*KV_BYTES)] | None = None
    efficiency: Annotated[float, number_in(1e-9, 1.0), AS_TEXT] = 0.6
    overhead: NonNegativeSeconds = 2e-3
    max_num_seqs: Positive = 256
    max_batched_tokens: Positive = 2048
    kv_tokens: Positive | None = None
    block_size: Positive = 16
    watermark: Annotated[float, number_in(0.0, 0.5), AS_TEXT] = 0.01
    max_model_len: Positive | None = None
    prefix_cache: Annotated[bool, PlainValidator(truth), AS_TEXT] = False
    speculation: Speculation | None = None
    noise: Annotated[float, number_in(0.0, 10.0), AS_TEXT] = 0.0
    noise_kind: Annotated[Literal["lognormal", "gamma"], one_of("lognormal", "gamma")] = "lognormal"
    seed: Count = 0
    stalls: Stalls | None = None
    drift: Annotated[float, number_in(-1.0, 100.0), AS_TEXT] = 0.0
    time_scale: Annotated[float, number_in(1e-9, 1e6), AS_TEXT] = 1.0
    ingest: NonNegativeSeconds = 0.5e-3
    natural_output: Count = 0
    token_flips: UnitShare = 0.0
    token_noise: UnitShare = 0.0
    flips: Flips = Flips()
    faults: Faults = Faults()

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "EngineSpec":
        """The spec a mapping describes. ValueError with the first problem, which names its key:
        'noise: ...'.

        >>> EngineSpec.from_mapping({"step_base": "5ms", "per_decode": "10us"}).step_base
        0.005
        """
        spec: EngineSpec = read_alone(READ_SPEC, mapping)
        return spec

    def check(self) -> None:
        """ValueError that names the key, when the parts do not fit together."""
        try:
            self._check()
        except Problem as problem:
            raise in_words(problem) from None

    def _check(self) -> None:
        drafts = 0 if self.speculation is None else self.speculation.tokens
        least = self.max_num_seqs * (1 + drafts)
        if self.max_batched_tokens < least:
            of = "max_num_seqs x (1 + speculation.tokens)" if drafts else "max_num_seqs"
            why = "every running request verifies its drafts" if drafts else "every running request needs one token"
            what = f"{{key}}: {self.max_batched_tokens} is below {of} ({least})"
            raise Problem(what, f"raise it: {why}", "max_batched_tokens")
        if self.tp % self.ep:
            raise Problem(f"{{key}}: {self.ep} does not divide tp ({self.tp})", "experts spread over GPUs of tp", "ep")
        if self.kv_tokens is not None and self.kv_tokens < 2 * self.block_size:
            what = f"{{key}}: {self.kv_tokens} is less than two blocks of {self.block_size}"
            raise Problem(what, "raise it, or lower block_size", "kv_tokens")
        if self.model is not None and self.hardware is not None and self.kv_tokens is None:
            roofline_of(self).kv_tokens()  # refuses weights that do not fit
        if self.model is None and self.step_base + self.per_decode <= 0:
            raise Problem("{key}: a step must take some time", "give step_base or per_decode", "step_base")

    def to_mapping(self) -> dict[str, Any]:
        """A JSON-ready mapping from which `from_mapping` makes an equal spec."""
        plain = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }
        for key in ("stalls", "faults", "model", "speculation", "flips"):
            if key in plain:
                plain[key] = dataclasses.asdict(plain[key])
        if self.hardware is not None:
            plain["hardware"] = hardware_mapping(self.hardware)
            plain["model_name"] = self.model_name
        return plain


def _read_spec(value: Any, build: ValidatorFunctionWrapHandler) -> EngineSpec:
    """The spec of a mapping, after the checks that need several keys."""
    given = without_nulls(value) if isinstance(value, Mapping) else value
    if ("model" in given) != ("hardware" in given):
        here, missing = ("model", "hardware") if "model" in given else ("hardware", "model")
        raise Problem(f"the key {missing} is missing", f"{here} is given, and the roofline needs both")
    explicit = [key for key in PRICES if key in given]
    if "model" in given and explicit:
        raise Problem("{key} is not together with model and hardware", "price steps one way or the other", explicit[0])
    spec: EngineSpec = build(given)
    if spec.model is not None and "model_name" not in given:
        spec = dataclasses.replace(spec, model_name=spec.model.name)
    spec._check()
    return spec


READ_SPEC: Any = Annotated[EngineSpec, WrapValidator(_read_spec)]
"""What `fields.read` makes an `EngineSpec` of."""


DEFAULT_KV_TOKENS = 400_000


class ExplicitPrice:
    """The sum of the spec's durations."""

    def __init__(self, spec: EngineSpec) -> None:
        scale = spec.time_scale
        self._base, self._per_decode = spec.step_base * scale, spec.per_decode * scale
        self._per_prefill_token, self._per_prefill_pair = spec.per_prefill_token * scale, spec.per_prefill_pair * scale
        self._per_context_token = spec.per_context_token * scale

    def decode(self, decodes: int, context: int) -> float:
        """Seconds of a step in which `decodes` requests decode; they look back on `context` tokens
        in all.
        """
        return self._base + self._per_decode * decodes + self._per_context_token * context

    def mixed(self, decodes: int, context: int, queries: int, prefill: int, pairs: float, sampled: int) -> float:
        """As `decode`, for a step that also reads `prefill` prompt tokens, with `pairs` (prompt
        token, earlier token) pairs. The decodes bring `queries` tokens in all, drafts of
        speculative decoding included. `sampled` of the prompts end here and give their first token.
        """
        del sampled  # which this sum has no price of its own for
        step = self.decode(decodes, context) + self._per_prefill_token * prefill + self._per_prefill_pair * pairs
        return step + self._per_decode * (queries - decodes)


class RooflinePrice:
    """Overhead plus the roofline of the step's work, divided by the efficiency; methods as of
    `ExplicitPrice`.
    """

    def __init__(self, spec: EngineSpec, roofline: ModelRoofline) -> None:
        scale = spec.time_scale / spec.efficiency
        self._roofline = roofline
        self._overhead = spec.overhead * spec.time_scale
        self._stages = roofline.pp
        self._per_flop = scale * roofline.pp / roofline.flops_rate
        self._per_byte = scale / roofline.gpu.bandwidth
        self._scale = scale
        self._token_flops = roofline.flops_per_token
        self._head_flops = 2 * roofline.model.head_params
        self._windowed = roofline.model.windowed_layers / roofline.model.layers
        # By tokens in the step: experts touched make the traffic of weights a curve, so it is
        # tabled.
        most = spec.max_batched_tokens + spec.max_num_seqs
        self._weights = [roofline.weight_traffic(n) * self._per_byte for n in range(most + 1)]
        self._reduce = [roofline.all_reduce(n) * scale for n in range(most + 1)]
        per_decode = self._token_flops + self._head_flops
        self._decode_flops = per_decode * self._per_flop
        self._kv_flops = roofline.flops_per_kv * self._per_flop
        self._kv_bytes = roofline.kv_bytes * self._per_byte

    def _seen(self, decodes: int, context: int) -> float:
        if not self._windowed or not decodes:
            return context
        return self._roofline.seen(context / decodes) * decodes

    def decode(self, decodes: int, context: int) -> float:
        if self._stages > 1 and decodes > 1:  # a part of the batch in each stage
            parts = min(self._stages, decodes)
            decodes, context = -(-decodes // parts), context // parts
        seen = self._seen(decodes, context)
        compute = self._decode_flops * decodes + self._kv_flops * seen
        memory = self._weights[decodes] + self._kv_bytes * seen
        return self._overhead + self._reduce[decodes] + (compute if compute > memory else memory)

    def mixed(self, decodes: int, context: int, queries: int, prefill: int, pairs: float, sampled: int) -> float:
        if self._stages > 1:
            parts = self._stages
            decodes, context, queries = -(-decodes // parts), context // parts, -(-queries // parts)
            prefill, pairs = -(-prefill // parts), pairs / parts
        seen, tokens = self._seen(decodes, context), queries + prefill
        looks = seen * queries / decodes if decodes else 0.0
        flops = self._token_flops * prefill + self._roofline.flops_per_pair * pairs + self._head_flops * sampled
        compute = self._decode_flops * queries + self._kv_flops * looks + flops * self._per_flop
        memory = self._weights[tokens] + self._kv_bytes * (seen + prefill)
        return self._overhead + self._reduce[tokens] + max(compute, memory)


class SpeculativePrice:
    """The mean time per token of steps that verify drafts and give several tokens of a request;
    methods as of `ExplicitPrice`.

    A step in which prompts are read takes as long as one that verifies drafts, so that a first
    token waits for a whole step. What that is above the mean is taken off the steps after it.
    """

    def __init__(self, plain: ExplicitPrice | RooflinePrice, speculation: Speculation) -> None:
        self._plain, self._speculation = plain, speculation
        self._ahead = 0.0

    def _whole(self, decodes: int, context: int) -> float:
        drafts = self._speculation.tokens
        verifying = self._plain.mixed(decodes, context, decodes * (1 + drafts), 0, 0.0, 0)
        return verifying + self._speculation.draft * drafts * self._plain.decode(decodes, context)

    def decode(self, decodes: int, context: int) -> float:
        mean = self._whole(decodes, context) / self._speculation.expected
        taken = min(self._ahead, mean / 2)
        self._ahead -= taken
        return mean - taken

    def mixed(self, decodes: int, context: int, queries: int, prefill: int, pairs: float, sampled: int) -> float:
        together = self._plain.mixed(decodes, context, queries, prefill, pairs, sampled)
        if not decodes:
            return together
        whole = self._whole(decodes, context)
        self._ahead += whole - whole / self._speculation.expected
        return together - self._plain.decode(decodes, context) + whole


Price = ExplicitPrice | RooflinePrice | SpeculativePrice


def price_of(spec: EngineSpec) -> Price:
    """The price of `spec`'s steps, `time_scale` included."""
    plain = ExplicitPrice(spec) if spec.model is None else RooflinePrice(spec, roofline_of(spec))
    return plain if spec.speculation is None else SpeculativePrice(plain, spec.speculation)


def roofline_of(spec: EngineSpec) -> ModelRoofline:
    """The roofline behind a spec that names a model and hardware. ValueError when it names none."""
    if spec.model is None or spec.hardware is None:
        raise ValueError("model: this spec prices its steps by explicit durations; it has no roofline")
    drafts = spec.speculation.tokens if spec.speculation is not None else 0
    roofline = ModelRoofline.of(
        spec.model, spec.hardware, spec.tp, spec.precision, spec.kv_precision, drafts, spec.max_num_seqs
    )
    return dataclasses.replace(roofline, pp=spec.pp, ep=spec.ep)


def kv_blocks(spec: EngineSpec) -> int:
    """Blocks of KV the deployment has."""
    tokens = spec.kv_tokens
    if tokens is None:
        tokens = roofline_of(spec).kv_tokens() if spec.model is not None else DEFAULT_KV_TOKENS
    return max(2, tokens // spec.block_size)


def max_len(spec: EngineSpec) -> int:
    """Longest prompt plus output the deployment takes: the model's, never more than the KV
    holds.
    """
    longest = spec.max_model_len or (spec.model.max_len if spec.model is not None else 131_072)
    reserve = math.ceil(kv_blocks(spec) * spec.watermark)
    return min(longest, (kv_blocks(spec) - reserve) * spec.block_size)
