"""The roofline: the highest speed of a model on given GPUs, and the resource that sets it.

It also says how far a point is from that speed. A step costs at least its arithmetic at peak rate,
or its memory traffic at peak bandwidth, whichever is larger. Everything real adds to that, so a
measurement faster than these bounds is wrong (token count, cached prompts, fewer requests in flight
than thought). The bounds catch such numbers, and say how far a deployment is from its hardware;
they do not choose a concurrency. The method is the speed-of-light mode of aiconfigurator, with one
change: the expected number of distinct experts replaces "all picks differ", which overstates what a
MoE batch reads.

A deployment is described by a model card and a GPU (`ModelRoofline`), or by the few figures a user
can state (`GivenRoofline`): bandwidth, bytes of weights, bytes of KV per token. MBU is the memory
traffic of decoding over the peak bandwidth (weights once a step, the KV of every running request).
MFU is the arithmetic of prompts and answers over the peak rate.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from frontier.core.model.shapes import Shape
from frontier.hardware.gpus import Hardware
from frontier.hardware.models import KV_BYTES, WEIGHT_BYTES, ModelCard

Binds = Literal["compute", "bandwidth", "network"]
USABLE_MEMORY = 0.9
"""Share of a GPU's memory an engine takes for weights and KV (vLLM's gpu_memory_utilization)."""
_LATENCY_PER_ALL_REDUCE = 10e-6


@dataclass(frozen=True, slots=True)
class Bound:
    """The least time of one step or prefill: seconds, its FLOPs over all GPUs, its bytes per GPU,
    and what binds.
    """

    seconds: float
    binds: Binds
    flops: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Limits:
    """The roofline of one setting. `running` requests fit at once; the others queue.

    `tpot` and `ttft` and `e2e` are floors in seconds (ttft of a request that does not queue),
    `throughput` the ceiling of output tokens per second over the whole deployment. `binds` says
    what sets the ceiling: 'decode bandwidth', 'decode compute', 'prefill compute', 'prefill
    bandwidth', 'network', 'KV capacity', 'batch cap'.
    """

    concurrency: int
    running: int
    ttft: float
    tpot: float
    e2e: float
    throughput: float
    binds: str


@dataclass(frozen=True, slots=True)
class ModelRoofline:
    """The roofline of one model on `tp` x `pp` GPUs of a kind.

    `precision` is that of weights and arithmetic, `kv_precision` that of the cache. `max_num_seqs`
    is the engine's batch cap, where known.

    The `pp` stages have a part of the layers each, and the batch goes through them in as many
    parts. A token passes all stages one after the other; with fewer requests than stages some
    stages idle (the bubble). Over `ep` of a stage's GPUs the experts are spread whole: each token
    is sent to the GPUs of its experts and back (all-to-all) in place of an all-reduce.

    With speculative decoding every request brings `drafts` draft tokens into a step, and gets at
    best one token more than that. The bounds take drafts to cost nothing and to be all accepted, so
    nothing real is faster.
    """

    model: ModelCard
    gpu: Hardware
    tp: int = 1
    precision: str = "bf16"
    kv_precision: str | None = None
    drafts: int = 0
    max_num_seqs: int | None = None
    pp: int = 1
    ep: int = 1

    @classmethod
    def of(
        cls,
        model: ModelCard,
        gpu: Hardware,
        tp: int = 1,
        precision: str | None = None,
        kv_precision: str | None = None,
        drafts: int = 0,
        max_num_seqs: int | None = None,
    ) -> "ModelRoofline":
        """The roofline of a model on a GPU. The defaults are the precision the model is published
        in, and KV at 16 bits.
        """
        return cls(model, gpu, tp, precision or model.precision, kv_precision, drafts, max_num_seqs)

    @property
    def gpus(self) -> int:
        """GPUs of all stages."""
        return self.tp * self.pp

    @property
    def per_step(self) -> int:
        """Tokens a decode step yields for each request, at best."""
        return 1 + self.drafts

    @property
    def flops_rate(self) -> float:
        """Peak FLOP/s of all GPUs together at the compute precision."""
        return self.gpus * self.gpu.peak(self.precision)

    @property
    def kv_bytes(self) -> float:
        """KV bytes per token that the GPUs of all stages read, one GPU of each stage. Attention
        windows are not considered. MLA's latent is the same on every GPU of a stage.
        """
        shards = 1 if self.model.mla else min(self.tp, self.model.kv_heads)
        return self.model.kv_elements * KV_BYTES[self.kv_precision or "bf16"] / shards

    @property
    def weight_bytes_per_gpu(self) -> float:
        """Everything that must lie in memory: all experts, embedding and head included."""
        m = self.model
        weights = (m.dense_params + m.moe_layers * m.experts * m.expert_params) * WEIGHT_BYTES[self.precision]
        return (weights + 2 * m.head_params * 2.0) / self.gpus

    def seen(self, context: float) -> float:
        """KV tokens that a query at `context` looks back on, averaged over layers (windowed layers
        see fewer).
        """
        m = self.model
        if not m.windowed_layers:
            return context
        windowed = m.windowed_layers / m.layers
        return (1 - windowed) * context + windowed * min(context, m.window)

    def _seen_in_common(self, context: float, common: float) -> float:
        """How many of the seen tokens are among the first `common` tokens of the context."""
        windowed = self.model.windowed_layers / self.model.layers
        return (1 - windowed) * common + windowed * max(0.0, common - max(0.0, context - self.model.window))

    def kv_room(self, context: float, common: float = 0.0) -> float:
        """Requests of `context` tokens whose KV fits beside the weights; the first `common` are
        kept once for all.
        """
        room = USABLE_MEMORY * self.gpu.capacity - self.weight_bytes_per_gpu
        once = self._seen_in_common(context, common)
        return max(0.0, (room * self.pp / self.kv_bytes - once) / (self.seen(context) - once))

    def kv_tokens(self) -> int:
        """KV tokens that fit, counted at a context of 4096. ValueError when not even the weights
        fit.
        """
        tokens = int(self.kv_room(4096) * 4096)
        if tokens < 1:
            need = self.weight_bytes_per_gpu / 1e9
            raise ValueError(
                f"tp: {self.model.name} needs {need:,.0f} GB of weights on each of {self.gpus} x {self.gpu.name} "
                f"({USABLE_MEMORY * self.gpu.capacity / 1e9:,.0f} GB usable); raise tp or lower the precision"
            )
        return tokens

    def weight_traffic(self, tokens: float) -> float:
        """Bytes of weights that a GPU of each stage reads, added up, for `tokens` tokens."""
        m = self.model
        read = (m.dense_params + m.moe_layers * m.touched(tokens) * m.expert_params) * WEIGHT_BYTES[self.precision]
        return (read + m.head_params * 2.0) / self.tp

    @property
    def flops_per_token(self) -> float:
        """Arithmetic of the weights for one token, without head and attention."""
        return 2.0 * self.model.active_params

    @property
    def flops_per_kv(self) -> float:
        """Arithmetic of one decoded token with one earlier token, over all layers."""
        m = self.model
        if m.mla:
            return 2.0 * m.heads * (2 * m.kv_rank + m.rope_dim) * m.layers
        return 4.0 * m.heads * m.head_dim * m.layers

    @property
    def flops_per_pair(self) -> float:
        """Arithmetic of one prompt token with one earlier token in prefill, over all layers."""
        m = self.model
        dims = m.nope_dim + m.rope_dim + m.v_dim if m.mla else 2 * m.head_dim
        return 2.0 * m.heads * dims * m.layers

    def all_reduce(self, tokens: float) -> float:
        """Seconds that an engine's exchanges take in a step; zero on one GPU.

        Tensor parallelism needs two ring all-reduces per layer. In layers of spread experts, an
        all-to-all there and back takes the place of one. Pipelines add the way to the next stage.
        """
        m, size = self.model, tokens * self.model.hidden * 2.0
        spread = m.moe_layers if self.ep > 1 else 0
        rings = 2 * m.layers - spread if self.tp > 1 else 0
        ring = 2.0 * (self.tp - 1) / self.tp * size / self.gpu.link + _LATENCY_PER_ALL_REDUCE
        sent = self._sent_to_experts(tokens) / self.gpu.link + 2 * _LATENCY_PER_ALL_REDUCE
        passed = size / self.gpu.link + _LATENCY_PER_ALL_REDUCE
        return rings * ring + spread * sent + (self.pp - 1) * passed

    def network(self, tokens: float) -> float:
        """The least seconds that a step's exchanges take. Every GPU sends and receives each
        activation at least once; with spread experts it sends each to every GPU that has one of its
        experts, and back.

        Switches that add on the way reach this; a ring needs up to twice as much (`all_reduce`).
        """
        m, size = self.model, tokens * self.model.hidden * 2.0
        spread = m.moe_layers if self.ep > 1 else 0
        reduced = (2 * m.layers - spread) * size if self.tp > 1 else 0.0
        return (reduced + spread * self._sent_to_experts(tokens) + (self.pp - 1) * size) / self.gpu.link

    def _sent_to_experts(self, tokens: float) -> float:
        """Bytes that a GPU sends in one layer of spread experts, under uniform routing. It sends
        its share of the tokens to the other GPUs that have one of their experts, and as much back.
        """
        others = (self.ep - 1) * (1.0 - (1.0 - 1.0 / self.ep) ** self.model.experts_per_token)
        return 2.0 * tokens / self.ep * others * self.model.hidden * 2.0

    def decode(self, batch: float, context: float, common: float = 0.0) -> Bound:
        """The least time of one decode step of `batch` requests that each look back on `context`
        tokens.

        The first `common` tokens are read once for all requests, as cascade attention does. The
        step verifies `per_step` tokens of each request. The batch goes through the stages of a
        pipeline in parts, one in each stage; the step is over when every part has passed all
        stages.
        """
        m, parts = self.model, min(self.pp, max(1.0, batch))
        each = batch / parts
        seen, tokens = self.seen(context), each * self.per_step
        flops = tokens * (self.flops_per_token + 2 * m.head_params + self.flops_per_kv * seen)
        once = self._seen_in_common(context, common)
        traffic = self.weight_traffic(tokens) + (each * (seen - once) + once) * self.kv_bytes
        bound = self._bound(flops * self.pp, traffic, tokens)
        return replace(bound, flops=flops * parts, bytes=traffic * parts / self.pp)

    def prefill(self, isl: float, cached: float = 0.0) -> Bound:
        """The least time to read a prompt of `isl` tokens; the first `cached` are in the prefix
        cache. Parts of it can be in all stages of a pipeline at once.
        """
        fresh = isl - cached
        flops = fresh * self.flops_per_token + self._pairs(isl, cached) * self.flops_per_pair
        flops += 2 * self.model.head_params
        traffic = (self.weight_traffic(fresh) + self.seen(fresh) * self.kv_bytes) / self.pp
        return self._bound(flops, traffic, fresh / self.pp)

    def _pairs(self, isl: float, cached: float) -> float:
        """(prompt token, earlier token) pairs, averaged over layers."""

        def triangle(s: float, w: float) -> float:
            return s * s / 2 if s <= w else w * s - w * w / 2

        m = self.model
        windowed = m.windowed_layers / m.layers
        full = (isl * isl - cached * cached) / 2
        return (1 - windowed) * full + windowed * (triangle(isl, m.window) - triangle(cached, m.window))

    def _bound(self, flops: float, traffic: float, tokens: float) -> Bound:
        times: dict[Binds, float] = {
            "bandwidth": traffic / self.gpu.bandwidth,
            "compute": flops / self.flops_rate,
            "network": self.network(tokens),
        }
        binds = max(times, key=lambda name: times[name])
        return Bound(times[binds], binds, flops, traffic)

    def limits(self, shape: Shape, concurrency: int) -> Limits:
        """The bounds of a setting, on a server that mixes prefill and decoding. ValueError when not
        one request fits.

        The common prefix of the prompts is taken to be in the prefix cache: computed before, kept
        once and read once.
        """
        isl, osl, context, common = shape.isl.mean, shape.osl.mean, context_of(shape), common_of(shape)
        cached = shape.cached * isl
        room = int(self.kv_room(context, common))
        if room < 1:
            raise ValueError(f"not one request of {context:,.0f} tokens fits on {self.gpus} x {self.gpu.name}")
        running = min(concurrency, room, self.max_num_seqs or concurrency)
        decode, prefill = self.decode(running, context, common), self.prefill(isl, cached)
        tpot = decode.seconds / self.per_step
        decoding = (osl - 1) * tpot
        e2e = prefill.seconds + decoding
        phase = f"decode {decode.binds}" if decoding >= prefill.seconds else f"prefill {prefill.binds}"
        ceilings = {
            "network" if phase.endswith("network") else phase: running * osl / e2e,
            "prefill compute": self.flops_rate * osl / (prefill.flops + osl * decode.flops / running / self.per_step),
        }
        sent = (self.network(isl - cached) + osl * self.network(running) / running) / self.pp
        if sent > 0:
            ceilings["network"] = min(osl / sent, ceilings.get("network", math.inf))
        binds = min(ceilings, key=lambda name: ceilings[name])
        throughput = min(*ceilings.values(), running / tpot)
        if running < concurrency and binds not in ("prefill compute", "network"):
            binds = "KV capacity" if running == room else "batch cap"
        return Limits(concurrency, running, prefill.seconds, tpot, e2e, throughput, binds)

    def token_seconds(self, shape: Shape, batch: float) -> float:
        """The least seconds from one token of a request to its next, when `batch` requests
        decode.
        """
        return self.decode(batch, context_of(shape), common_of(shape)).seconds / self.per_step

    def read_seconds(self, shape: Shape, batch: float) -> float | None:
        """The seconds of memory traffic in a step of `batch` requests, where each reads its whole
        context; None when the tokens of a step are not known.
        """
        return None if self.drafts else self.decode(batch, context_of(shape)).bytes / self.gpu.bandwidth

    def compute_share(self, shape: Shape, requests: float, tokens: float) -> float | None:
        """The share of peak arithmetic that `requests` prompts and `tokens` output tokens per
        second take.
        """
        prompt = self.prefill(shape.isl.mean, shape.cached * shape.isl.mean).flops
        token = self.decode(1, context_of(shape)).flops / self.per_step
        return (requests * prompt + tokens * token) / self.flops_rate

    @property
    def assumption(self) -> str:
        """What the bounds assume, in words."""
        drafts = f", {self.drafts} drafts a step, all accepted" if self.drafts else ""
        spread = f", {self.pp} stages of {self.tp}" if self.pp > 1 else ""
        spread += f", experts over {self.ep}" if self.ep > 1 else ""
        return f"{self.model.name} in {self.precision} on {self.gpus} x {self.gpu.name}{spread}{drafts}"


@dataclass(frozen=True, slots=True)
class GivenRoofline:
    """The roofline of given figures: `bandwidth` (bytes/s) and `memory` (bytes) of one GPU,
    `weights` (bytes over all GPUs) read in every step, `kv_per_token` bytes. Only decoding is
    bounded; prompts cost nothing. `drafts` as above.
    """

    bandwidth: float
    weights: float
    kv_per_token: float = 0.0
    gpus: int = 1
    memory: float | None = None
    drafts: int = 0

    def limits(self, shape: Shape, concurrency: int) -> Limits:
        room = math.inf
        if self.memory is not None and self.kv_per_token > 0:
            common = common_of(shape)
            tokens = (self.memory * self.gpus - self.weights) / self.kv_per_token
            room = max(1.0, (tokens - common) / (context_of(shape) - common))
        running = min(float(concurrency), room)
        step = self.token_seconds(shape, running)
        binds = "KV capacity" if running < concurrency else "decode bandwidth"
        e2e = shape.osl.mean * step
        return Limits(concurrency, int(running), 0.0, step, e2e, running / step, binds)

    def token_seconds(self, shape: Shape, batch: float) -> float:
        once = common_of(shape)
        return self._seconds(batch * (context_of(shape) - once) + once) / (1 + self.drafts)

    def read_seconds(self, shape: Shape, batch: float) -> float | None:
        return None if self.drafts else self._seconds(batch * context_of(shape))

    def _seconds(self, tokens: float) -> float:
        """The least seconds to read the weights and the KV of `tokens` tokens."""
        return (self.weights + tokens * self.kv_per_token) / (self.bandwidth * self.gpus)

    def compute_share(self, shape: Shape, requests: float, tokens: float) -> None:
        """Not known: the figures hold no peak rate."""

    @property
    def assumption(self) -> str:
        return "memory bandwidth"


Roofline = ModelRoofline | GivenRoofline
"""The bounds of a described deployment. Both have the same methods; rates and bytes are over all
GPUs."""


def limits_if_any(roofline: Roofline | None, shape: Shape, concurrency: int) -> Limits | None:
    """The bounds of a setting; None without a roofline, or where not one request fits."""
    try:
        return None if roofline is None else roofline.limits(shape, concurrency)
    except ValueError:
        return None


def context_of(shape: Shape) -> float:
    """Tokens a decoding request looks back on, on average: its prompt and half its output."""
    return shape.isl.mean + shape.osl.mean / 2


def common_of(shape: Shape) -> float:
    """Prompt tokens that a request has in common with the others (of its class), on average. A
    server with a prefix cache keeps them once. The history of a session is not in common.
    """
    if shape.mix:
        return sum(share * common_of(each.shape) for share, each in shape.by_class())
    return shape.shared
