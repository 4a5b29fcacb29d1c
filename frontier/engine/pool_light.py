"""The speed of light of separate prefill and decode pools, with KV moved between them.

No request takes less than an idle prefill, the move of its KV and its decode steps; and no pool does more than it can:
the prefill pool its arithmetic, its links every prompt's KV, the decode pool the steps of as many requests as its
memory holds. How many decode at a time follows from Little's law, since those that are read or moved are in no batch.
They are taken to be spread evenly over the decode instances, which is best for all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from frontier.engine.light import Carded, Light, context_of
from frontier.engine.price import roofline_of, transfer_of
from frontier.engine.roofline import PHASE, Bound, Limits, Roofline
from frontier.engine.spec import EngineSpec
from frontier.model import Shape


@dataclass(frozen=True, slots=True)
class Pooled:
    """`readers` prefill and `writers` decode instances, each of them one `roofline`. The links of a prefill instance
    carry a prompt token in `per_token` seconds, one request after another, and each takes `latency` more.
    `max_num_seqs` is the batch cap of one instance."""

    roofline: Roofline
    readers: int
    writers: int
    per_token: float
    latency: float
    max_num_seqs: int | None = None

    def limits(self, shape: Shape, concurrency: int) -> Limits:
        """`running` are those whose KV the decode pool can hold. ValueError when not one request fits."""
        one, context = self.roofline, context_of(shape)
        room = int(one.kv_room(context)) * self.writers
        if room < 1:
            raise ValueError(f"not one request of {context:,.0f} tokens fits on {one.tp} x {one.gpu.name}")
        cap = room if self.max_num_seqs is None else min(room, self.max_num_seqs * self.writers)
        moving = shape.isl.mean * self.per_token + self.latency
        ahead = self._prefill(shape).seconds + moving
        free = self._decoding(shape, concurrency, ahead)
        batch = min(free, cap)
        tpot = self.token(shape, batch)
        first = one.prefill(shape.isl.mean, shape.isl.mean - 1).seconds  # the last prompt token is read again
        ceilings = self._pools(shape)
        flow = batch / tpot
        by = ("KV capacity" if cap == room else "batch cap") if free > cap else self._longest(shape, batch, moving)
        if flow < ceilings.get(by, math.inf):
            ceilings = {**ceilings, by: flow}
        binds = min(ceilings, key=lambda name: ceilings[name])
        ttft = ahead + first
        return Limits(
            concurrency, min(concurrency, cap), ttft, tpot, ttft + (shape.osl.mean - 1) * tpot, ceilings[binds], binds
        )

    def _prefill(self, shape: Shape) -> Bound:
        return self.roofline.prefill(shape.isl.mean, shape.prefix * shape.isl.mean)

    def _pools(self, shape: Shape) -> Mapping[str, float]:
        """Output tokens per second for which the prefill pool's GPUs and links can read and move prompts."""
        osl, per_prompt = shape.osl.mean, shape.isl.mean * self.per_token
        return {
            "prefill compute": self.readers * self.roofline.flops_rate * osl / self._prefill(shape).flops,
            "KV transfer": self.readers * osl / per_prompt if per_prompt else math.inf,
        }

    def _decoding(self, shape: Shape, concurrency: int, ahead: float) -> float:
        """How many of those in flight decode, when each spends `ahead` seconds before: Little's law."""

        def over(batch: float) -> float:
            return batch * (1 + ahead / (shape.osl.mean * self.token(shape, batch))) - concurrency

        from scipy.optimize import brentq  # a quarter of a second, which only disaggregated pools need pay

        return float(brentq(over, 0.0, concurrency))

    def _longest(self, shape: Shape, batch: float, moving: float) -> str:
        """The part of a request's time that is longest."""
        prefill = self._prefill(shape)
        decode = self._step(shape, batch)
        parts = {
            f"prefill {PHASE[prefill.binds]}": prefill.seconds,
            "KV transfer": moving,
            f"decode {PHASE[decode.binds]}": shape.osl.mean * self.token(shape, batch),
        }
        longest = max(parts, key=lambda name: parts[name])
        return "network" if longest.endswith("network") else longest

    def _step(self, shape: Shape, batch: float) -> Bound:
        return self.roofline.decode(max(1.0, batch / self.writers), context_of(shape))

    def token(self, shape: Shape, batch: float) -> float:
        return self._step(shape, batch).seconds / self.roofline.per_step

    def read(self, shape: Shape, batch: float) -> float | None:
        if self.roofline.drafts:
            return None
        return self._step(shape, batch).bytes / self.roofline.gpu.bandwidth

    def computed(self, shape: Shape, requests: float, tokens: float) -> float | None:
        one = Carded(self.roofline).computed(shape, requests, tokens)
        return None if one is None else one / (self.readers + self.writers)

    @property
    def assumption(self) -> str:
        return f"{self.readers} prefill and {self.writers} decode instances, each {Carded(self.roofline).assumption}"


def light_of(spec: EngineSpec) -> Light:
    """The speed of light of a simulated engine. ValueError when it prices its steps by durations of its own."""
    one = roofline_of(spec)
    if spec.disaggregation is None:
        return Carded(one, spec.max_num_seqs)
    pools = spec.disaggregation
    return Pooled(one, pools.prefill, pools.decode, *transfer_of(spec), spec.max_num_seqs)
