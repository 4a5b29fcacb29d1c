"""How far from the limit of the silicon: the speed of light of a described deployment, and a point's distance from it.

A deployment is described by a model card and a GPU (a `Roofline`), or by the few figures a user can state: bandwidth,
bytes of weights, bytes of KV per token. Both give `Limits`. MBU is what decoding reads from memory over what the memory
could give (weights once a step, every running request's KV), MFU the arithmetic of prompts and answers over the peak.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from frontier.engine.roofline import Limits, Roofline
from frontier.model import Distance, Estimate, Lengths, Point, Shape

UNEVEN = 0.85
"""A measured TPOT below this share of its floor is called impossible: the batch is uneven in time, the floor is not."""


class Light(Protocol):
    """A described deployment. Rates and bytes are over all its GPUs; None where the description does not say."""

    def limits(self, shape: Shape, concurrency: int) -> Limits: ...
    def token(self, shape: Shape, batch: float) -> float:
        """The least seconds from one token of a request to its next when so many decode."""
        ...

    def read(self, shape: Shape, batch: float) -> float | None:
        """The seconds of memory traffic in that time; None where a step yields nobody knows how many tokens."""
        ...

    def computed(self, shape: Shape, requests: float, tokens: float) -> float | None:
        """The share of peak arithmetic that so many prompts and output tokens per second take."""
        ...

    @property
    def assumption(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Carded:
    """Described by a model card and a GPU. `max_num_seqs` is the engine's batch cap, where known."""

    roofline: Roofline
    max_num_seqs: int | None = None

    def limits(self, shape: Shape, concurrency: int) -> Limits:
        """ValueError when not one request fits."""
        isl, osl = shape.isl.mean, shape.osl.mean
        return self.roofline.limits(concurrency, isl, osl, self.max_num_seqs, shape.prefix * isl)

    def token(self, shape: Shape, batch: float) -> float:
        return self.roofline.decode(batch, context_of(shape)).seconds / self.roofline.per_step

    def read(self, shape: Shape, batch: float) -> float | None:
        if self.roofline.drafts:
            return None
        return self.roofline.decode(batch, context_of(shape)).bytes / self.roofline.gpu.bandwidth

    def computed(self, shape: Shape, requests: float, tokens: float) -> float | None:
        prompt = self.roofline.prefill(shape.isl.mean, shape.prefix * shape.isl.mean).flops
        token = self.roofline.decode(1, context_of(shape)).flops / self.roofline.per_step
        return (requests * prompt + tokens * token) / self.roofline.flops_rate

    @property
    def assumption(self) -> str:
        of = self.roofline
        drafts = f", {of.drafts} drafts a step, all accepted" if of.drafts else ""
        return f"{of.model.name} in {of.precision} on {of.tp} x {of.gpu.name}{drafts}"


@dataclass(frozen=True, slots=True)
class Stated:
    """Described by figures: `bandwidth` (bytes/s) and `memory` (bytes) of one GPU, `weights` (bytes over all GPUs) read
    in every step, `kv_per_token` bytes. Only decoding is bounded; prompts cost nothing. `drafts` as for a Roofline."""

    bandwidth: float
    weights: float
    kv_per_token: float = 0.0
    gpus: int = 1
    memory: float | None = None
    drafts: int = 0

    def limits(self, shape: Shape, concurrency: int) -> Limits:
        room = math.inf
        if self.memory is not None and self.kv_per_token > 0:
            room = max(1.0, (self.memory * self.gpus - self.weights) / (context_of(shape) * self.kv_per_token))
        running = min(float(concurrency), room)
        step = self.token(shape, running)
        binds = "KV capacity" if running < concurrency else "decode bandwidth"
        e2e = shape.osl.mean * step
        return Limits(concurrency, int(running), 0.0, step, e2e, running / step, binds)

    def token(self, shape: Shape, batch: float) -> float:
        traffic = self.weights + batch * context_of(shape) * self.kv_per_token
        return traffic / (self.bandwidth * self.gpus) / (1 + self.drafts)

    def read(self, shape: Shape, batch: float) -> float | None:
        return None if self.drafts else self.token(shape, batch)

    def computed(self, shape: Shape, requests: float, tokens: float) -> float | None:  # noqa: ARG002
        return None

    @property
    def assumption(self) -> str:
        return "memory bandwidth"


def context_of(shape: Shape) -> float:
    """Tokens a decoding request looks back on, on average: its prompt and half its output."""
    return shape.isl.mean + shape.osl.mean / 2


def decoding(point: Point) -> float | None:
    """How many of the requests in flight are decoding at a time, by Little's law; None without both latencies."""
    ttft, tpot = (point.metrics.get(name) for name in ("p50_ttft", "p50_tpot"))
    if ttft is None or tpot is None or not 0 < tpot.value < math.inf or not 0 <= ttft.value < math.inf:
        return None
    time = (point.shape.osl.mean - 1) * tpot.value
    return point.concurrency * time / (ttft.value + time) if time > 0 else None


def distance(light: Light, point: Point) -> Distance | None:
    """How far the point is from light; None when it has no throughput or nothing fits the described memory."""
    rate = point.metrics.get("output_throughput")
    if rate is None:
        return None
    try:
        limits = light.limits(point.shape, point.concurrency)
    except ValueError:
        return None
    batch, tpot = decoding(point), point.metrics.get("p50_tpot")
    mbu = mfu = None
    if batch is not None and tpot is not None:
        read = light.read(point.shape, min(batch, limits.running))
        if read is not None:
            mbu = Estimate(read / tpot.value, _over(read, tpot.high), _over(read, tpot.low), tpot.n)
    requests = point.metrics.get("request_throughput")
    if requests is not None:
        computed = light.computed(point.shape, requests.value, rate.value)
        mfu = None if computed is None else _scaled(rate, computed / rate.value if rate.value else 0.0)
    return Distance(limits.throughput, _scaled(rate, 1 / limits.throughput), limits.binds, mbu, mfu)


def _over(value: float, by: float) -> float:
    """value / by, where an end that is not known stays so."""
    return -math.inf if math.isinf(by) and by > 0 else math.inf if by <= 0 else value / by


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    return Estimate(estimate.value * factor, estimate.low * factor, estimate.high * factor, estimate.n)


def bounds(light: Light, point: Point) -> dict[str, float]:
    """What no measurement of this setting can pass: the ceiling of `output_throughput`, floors of `tpot` and `ttft`.

    The floor of TPOT is that of the batch that was really decoding. The floor of TTFT is given only where every prompt
    has the same length and none of it is shared.
    """
    try:
        limits = light.limits(point.shape, point.concurrency)
    except ValueError:
        return {}
    found = {"output_throughput": limits.throughput}
    if (batch := decoding(point)) is not None:
        found["tpot"] = UNEVEN * light.token(point.shape, min(batch, limits.running))
    if limits.ttft > 0 and point.shape.prefix == 0 and point.shape.isl == Lengths.fixed(point.shape.isl.low):
        found["ttft"] = limits.ttft
    return found


def curve(light: Light, shape: Shape, quantity: str, most: int) -> tuple[tuple[float, float], ...]:
    """The speed-of-light frontier up to concurrency `most`: (latency in seconds, output tokens/s), rising.

    `quantity` is 'ttft', 'tpot', 'itl' or 'e2e'. Empty when nothing fits.
    """
    latency: dict[str, Callable[[Limits], float]] = {
        "ttft": lambda at: at.ttft, "tpot": lambda at: at.tpot, "itl": lambda at: at.tpot, "e2e": lambda at: at.e2e,
    }  # fmt: skip
    found = []
    for concurrency in sorted({min(most, round(2 ** (i / 2))) for i in range(2 * math.ceil(math.log2(most)) + 1)}):
        try:
            at = light.limits(shape, concurrency)
        except ValueError:
            return ()
        found.append((latency[quantity](at), at.throughput))
    return tuple(found)
