"""What to expect before anything was measured: the engine at an assumed efficiency, in virtual time.

The assumption is plain: every step costs a fixed overhead, and the roofline of its work at a share of the peak. How
far that is off was measured on aiconfigurator's silicon sample (239 points, docs/prediction.md); the bands are those
errors. An idle prefill is all it can say of TTFT: on real servers requests come in waves and wait for more than the
engine.
"""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from frontier.engine.predict import Prediction
from frontier.engine.price import kv_blocks
from frontier.engine.spec import EngineSpec
from frontier.engine.virtual import closed_loop_arrays, expected_e2e
from frontier.model import Estimate, Shape

EFFICIENCY = 0.6
OVERHEAD = 2e-3
_TPOT = (-0.43, 0.56)
_THROUGHPUT = (-0.62, 0.43)
"""Log of measured over expected: where 95 of 100 measured points lay."""
_LEAST_REQUESTS = 32


@dataclass(frozen=True, slots=True)
class Assumption:
    """The engine that is simulated; `known` says that it is the very engine asked about, so nothing is assumed."""

    spec: EngineSpec
    known: bool = False

    @property
    def text(self) -> str:
        """In words, for the reader of a prediction."""
        spec = self.spec
        if self.known:
            return "the simulated engine itself, in virtual time"
        drafts = (
            ""
            if spec.speculation is None
            else (f"; {spec.speculation.tokens} drafts a step, {spec.speculation.acceptance:.0%} accepted")
        )
        return (
            f"every step at {spec.efficiency:.0%} of the roofline plus {spec.overhead * 1e3:g} ms; "
            f"chunks of {spec.max_batched_tokens:,} tokens, at most {spec.max_num_seqs:,} running{drafts}"
        )


def expect(assumed: Assumption, shape: Shape, concurrency: int) -> Prediction:
    """Mean TTFT and TPOT and the throughput to expect at a concurrency. ValueError when a request does not fit."""
    spec = dataclasses.replace(assumed.spec, prefix_cache=assumed.spec.prefix_cache or shape.prefix > 0)
    run = closed_loop_arrays(spec, shape, concurrency, requests=max(_LEAST_REQUESTS, concurrency))
    ttft, rate = float(run.ttft.mean()), run.output_throughput
    step = 0.0 if np.isnan(run.tpot).all() else float(np.nanmean(run.tpot))
    n = len(run.ttft)
    running = _running(spec, shape, concurrency)
    if assumed.known:
        exact = [Estimate(value, value, value, n) for value in (ttft, step, rate)]
        return Prediction(concurrency, exact[0], exact[1], exact[2], running, "simulated")
    return Prediction(
        concurrency, Estimate(ttft, ttft, math.inf, n), _banded(step, _TPOT, n), _banded(rate, _THROUGHPUT, n),
        running, "unmeasured",
    )  # fmt: skip


def guess_e2e(assumed: Assumption, shape: Shape, concurrency: int) -> float | None:
    """A request's end-to-end latency in seconds by the prices alone, without simulating; None when it does not fit.

    Where not all can run at once the others wait their turn (Little's law).
    """
    spec = assumed.spec
    running = _running(spec, shape, concurrency)
    if running < 1:
        return None
    return expected_e2e(spec, shape, round(running)) * concurrency / running


def _running(spec: EngineSpec, shape: Shape, concurrency: int) -> float:
    """Requests that fit at once, of so many."""
    context = shape.isl.mean + shape.osl.mean / 2
    room = kv_blocks(spec) * spec.block_size * (1 - spec.watermark) / context
    pools = spec.disaggregation.decode if spec.disaggregation is not None else 1
    return min(concurrency, spec.max_num_seqs * pools, room * pools)


def _banded(value: float, band: tuple[float, float], n: int) -> Estimate:
    return Estimate(value, value * math.exp(band[0]), value * math.exp(band[1]), n)
