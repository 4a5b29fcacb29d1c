"""The truth of the simulated engine in virtual time: the records of a closed loop, and a metric of
a long run."""

from typing import Any

import numpy as np

from frontier.core.model.loads import Rate
from frontier.core.model.metrics import Unit, metric
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Record, Window
from frontier.simulator import virtual
from frontier.simulator.spec import EngineSpec, price_of


def closed_loop(
    spec: EngineSpec, shape: Shape, concurrency: int, *, requests: int, **how: Any
) -> tuple[list[Record], Window]:
    """Records of a closed loop in virtual time, and its window, in which at least `requests` were
    sent; `how` are the other arguments of `virtual.simulate`.
    """
    run = virtual.simulate(spec, shape, concurrency, requests, **how)
    return virtual.records_of(run), run.window


def expected_e2e(spec: EngineSpec, shape: Shape, concurrency: int) -> float:
    """A first guess at a request's end-to-end latency at this concurrency, without queueing, in
    seconds.
    """
    price = price_of(spec)
    isl, osl = round(shape.isl.mean), shape.osl.mean
    running = min(concurrency, spec.max_num_seqs)
    context = round(running * (isl + osl / 2))
    step = price.decode(running, context)
    own = min(isl, spec.max_batched_tokens - running + 1)
    reading = (price.mixed(0, 0, 0, own, own * own / 2, 1) - price.decode(1, isl)) * isl / own
    return step * osl + max(0.0, reading) * running


def truth(spec: EngineSpec, shape: Shape, concurrency: int, name: str, requests: int = 20_000) -> float:
    """The metric called `name` ('p99_ttft', 'mean_tpot', 'output_throughput') of a long run at this
    setting.

    ValueError for metrics that need more than one request's latencies or the token count (goodput,
    cost).
    """
    asked, warmup = metric(name), 0.0
    if isinstance(concurrency, Rate):
        warmup = shape.session_seconds(expected_e2e(spec, shape, spec.max_num_seqs))
    run = virtual.simulate(spec, shape, concurrency, requests, times=virtual.WindowTimes(warmup))
    inside = [request for request in run.requests if virtual.counts_in(request, run.window)]
    if asked.quantity == "itl":
        return _statistic(np.concatenate([np.diff(virtual.token_times(r, run.ends)) for r in inside]), asked.p)
    arrays = virtual.arrays_of(run)
    if name == "output_throughput":
        return arrays.output_throughput
    if name == "request_throughput":
        return len(arrays.sent) / arrays.window.length
    if asked.quantity is None:
        raise ValueError(f"{name} is not known to the virtual engine; ask for a latency or a throughput")
    values: virtual.Floats = getattr(arrays, asked.quantity)
    has = ~np.isnan(values)
    if asked.group is not None:
        index, turn = (np.array([getattr(request, label) for request in inside]) for label in ("class_index", "turn"))
        has &= shape.in_class(asked.group, index, turn)
    value = _statistic(values[has], asked.p)
    return 1.0 / value if asked.unit is Unit.TOKENS_PER_SECOND_PER_USER else value


def _statistic(values: virtual.Floats, p: float | None) -> float:
    """The mean, or the percentile as an observed value."""
    return float(np.mean(values)) if p is None else float(np.quantile(values, p, method="inverted_cdf"))
