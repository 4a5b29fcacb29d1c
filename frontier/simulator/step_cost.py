"""Step cost: the seconds of one engine step as a pure function of its work, from an EngineSpec."""

import math
from dataclasses import dataclass
from typing import Protocol

from frontier.hardware.roofline import ModelRoofline
from frontier.simulator.spec import EngineSpec

DEFAULT_KV_TOKENS = 400_000


class Price(Protocol):
    """Seconds of a step.

    `decodes` requests decode and look back on `context` tokens in all; `prefill` prompt tokens are read, with `pairs`
    (prompt token, earlier token) pairs; `sampled` of the prompts end here and give their first token. `verify` is the
    step of speculative decoding, in which the decodes bring `queries` tokens in all, their drafts among them.
    """

    def decode(self, decodes: int, context: int) -> float: ...

    def mixed(self, decodes: int, context: int, prefill: int, pairs: float, sampled: int) -> float: ...

    def verify(self, decodes: int, context: int, queries: int, prefill: int, pairs: float, sampled: int) -> float: ...


@dataclass(frozen=True, slots=True)
class ExplicitPrice:
    """The sum of the spec's durations."""

    base: float
    per_decode: float
    per_prefill_token: float
    per_context_token: float
    per_prefill_pair: float

    def decode(self, decodes: int, context: int) -> float:
        return self.base + self.per_decode * decodes + self.per_context_token * context

    def mixed(self, decodes: int, context: int, prefill: int, pairs: float, sampled: int) -> float:  # noqa: ARG002
        step = self.base + self.per_decode * decodes + self.per_context_token * context
        return step + self.per_prefill_token * prefill + self.per_prefill_pair * pairs

    def verify(self, decodes: int, context: int, queries: int, prefill: int, pairs: float, sampled: int) -> float:
        return self.mixed(decodes, context, prefill, pairs, sampled) + self.per_decode * (queries - decodes)


class RooflinePrice:
    """Overhead plus the roofline of the step's work, divided by the efficiency."""

    def __init__(self, spec: EngineSpec, light: ModelRoofline) -> None:
        scale = spec.time_scale / spec.efficiency
        self._light = light
        self._overhead = spec.overhead * spec.time_scale
        self._per_flop = scale / light.flops_rate
        self._per_byte = scale / light.gpu.bandwidth
        self._scale = scale
        self._token_flops = light.flops_per_token
        self._head_flops = 2 * light.model.head_params
        self._windowed = light.model.windowed_layers / light.model.layers
        # By tokens in the step: experts touched make the traffic of weights a curve, so it is tabled.
        most = spec.max_batched_tokens + spec.max_num_seqs
        self._weights = [light.weight_traffic(n) * self._per_byte for n in range(most + 1)]
        self._reduce = [light.all_reduce(n, latency=True) * scale for n in range(most + 1)]
        per_decode = self._token_flops + self._head_flops
        self._decode_flops = per_decode * self._per_flop
        self._kv_flops = light.flops_per_kv * self._per_flop
        self._kv_bytes = light.kv_bytes * self._per_byte

    def _seen(self, decodes: int, context: int) -> float:
        if not self._windowed or not decodes:
            return context
        return self._light.seen(context / decodes) * decodes

    def decode(self, decodes: int, context: int) -> float:
        seen = self._seen(decodes, context)
        compute = self._decode_flops * decodes + self._kv_flops * seen
        memory = self._weights[decodes] + self._kv_bytes * seen
        return self._overhead + self._reduce[decodes] + (compute if compute > memory else memory)

    def mixed(self, decodes: int, context: int, prefill: int, pairs: float, sampled: int) -> float:
        return self.verify(decodes, context, decodes, prefill, pairs, sampled)

    def verify(self, decodes: int, context: int, queries: int, prefill: int, pairs: float, sampled: int) -> float:
        seen, tokens = self._seen(decodes, context), queries + prefill
        looks = seen * queries / decodes if decodes else 0.0
        flops = self._token_flops * prefill + self._light.flops_per_pair * pairs + self._head_flops * sampled
        compute = self._decode_flops * queries + self._kv_flops * looks + flops * self._per_flop
        memory = self._weights[tokens] + self._kv_bytes * (seen + prefill)
        return self._overhead + self._reduce[tokens] + max(compute, memory)


def price_of(spec: EngineSpec) -> Price:
    """The price of `spec`'s steps, `time_scale` included."""
    if spec.model is not None and spec.hardware is not None:
        return RooflinePrice(spec, roofline_of(spec))
    scale = spec.time_scale
    return ExplicitPrice(
        spec.step_base * scale, spec.per_decode * scale, spec.per_prefill_token * scale,
        spec.per_context_token * scale, spec.per_prefill_pair * scale,
    )  # fmt: skip


def roofline_of(spec: EngineSpec) -> ModelRoofline:
    """The roofline behind a spec that names a model and hardware. ValueError when it names none."""
    if spec.model is None or spec.hardware is None:
        raise ValueError("model: this spec prices its steps by explicit durations; it has no roofline")
    drafts = spec.speculation.tokens if spec.speculation is not None else 0
    return ModelRoofline.of(
        spec.model, spec.hardware, spec.tp, spec.precision, spec.kv_precision, drafts, spec.max_num_seqs
    )


def kv_blocks(spec: EngineSpec) -> int:
    """Blocks of KV the deployment has."""
    tokens = spec.kv_tokens
    if tokens is None:
        tokens = roofline_of(spec).kv_tokens() if spec.model is not None else DEFAULT_KV_TOKENS
    return max(2, tokens // spec.block_size)


def max_len(spec: EngineSpec) -> int:
    """Longest prompt plus output the deployment takes: the model's, never more than the KV holds."""
    longest = spec.max_model_len or (spec.model.max_len if spec.model is not None else 131_072)
    reserve = math.ceil(kv_blocks(spec) * spec.watermark)
    return min(longest, (kv_blocks(spec) - reserve) * spec.block_size)
