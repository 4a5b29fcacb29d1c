"""The simulated engine in virtual time: a closed loop of N streams, or arrivals at a rate, in a fraction of the time.

The result is the same records that the HTTP client writes (streams that start and stay out of step, warm-up that hands
over without draining, latency of the requests sent in the window, the load held until the last of them has ended), or
the window's figures as arrays. Nothing is measured, so the true value of a metric can be computed to any precision; the
statistics are calibrated against it.
"""

import bisect
import dataclasses
import math
from typing import Literal

import numpy as np

from frontier.metrics import Unit, metric
from frontier.model import ClientHealth, Measurement, Phase, Rate, Record, Shape, Trial, Window
from frontier.simulator.engine import Scheduler, Step
from frontier.simulator.spec import EngineSpec, price_of
from frontier.simulator.virtual_clients import VirtualClients
from frontier.simulator.virtual_records import Arrays, Floats, Took, arrays_of, counts_in, records_of, token_times


def closed_loop(
    spec: EngineSpec,
    shape: Shape,
    concurrency: int,
    *,
    requests: int,
    warmup_requests: int | None = None,
    warmup: float = 0.0,
    seconds: float = math.inf,
    stagger: bool = True,
    seed: int = 0,
) -> tuple[list[Record], Window]:
    """Records of a closed loop in virtual time, and its window, in which at least `requests` were sent.

    The window opens when every stream has ended its first request, `warmup_requests` (default: two per stream) have
    ended in all and `warmup` seconds have passed. `stagger=False` lets the streams begin and go on in step, as most
    tools do.
    """
    run = _simulate(
        spec, shape, concurrency, requests, warmup_requests=warmup_requests, warmup=warmup, seconds=seconds,
        stagger=stagger, seed=seed,
    )  # fmt: skip
    return records_of(run), run.window


def closed_loop_arrays(
    spec: EngineSpec, shape: Shape, concurrency: int, *, requests: int, stagger: bool = True, seed: int = 0
) -> Arrays:
    """As `closed_loop`, but only the figures of the requests sent in the window, as arrays."""
    return arrays_of(_simulate(spec, shape, concurrency, requests, stagger=stagger, seed=seed))


def truth(spec: EngineSpec, shape: Shape, concurrency: int, name: str, requests: int = 20_000) -> float:
    """The metric called `name` ('p99_ttft', 'mean_tpot', 'output_throughput') of a long run at this setting.

    ValueError for metrics that need more than one request's latencies or the token count (goodput, cost).
    """
    asked = metric(name)
    warmup = (
        shape.session_seconds(expected_e2e(spec, shape, spec.max_num_seqs)) if isinstance(concurrency, Rate) else 0.0
    )
    if asked.quantity == "itl":
        run = _simulate(spec, shape, concurrency, requests, warmup=warmup)
        gaps = [np.diff(token_times(r, run.ends)) for r in run.requests if counts_in(r, run.window)]
        return _statistic(np.concatenate(gaps), asked.p)
    run = _simulate(spec, shape, concurrency, requests, warmup=warmup)
    found = arrays_of(run)
    if name == "output_throughput":
        return found.output_throughput
    if name == "request_throughput":
        return len(found.sent) / found.window.length
    if asked.quantity is None:
        raise ValueError(f"{name} is not known to the virtual engine; ask for a latency or a throughput")
    values: Floats = getattr(found, asked.quantity)
    has = ~np.isnan(values)
    if asked.group is not None:
        inside = [request for request in run.requests if counts_in(request, run.window)]
        index, turn = (np.array([getattr(request, label) for request in inside]) for label in ("class_index", "turn"))
        has &= shape.in_class(asked.group, index, turn)
    value = _statistic(values[has], asked.p)
    return 1.0 / value if asked.unit is Unit.TOKENS_PER_SECOND_PER_USER else value


def virtual_trial(trial: Trial, spec: EngineSpec) -> tuple[list[Record], Measurement]:
    """A whole trial in virtual time. The engine's noise differs from trial to trial, by the trial's own seed."""
    own = dataclasses.replace(spec, seed=(spec.seed * 1_000_003 + trial.seed) % 2**63)
    seconds = math.inf if trial.seconds is None else trial.seconds
    run = _simulate(
        own, trial.shape, trial.concurrency, trial.requests,
        warmup_requests=0 if trial.phase is Phase.SCAN else None,
        warmup=trial.warmup, min_time=trial.min_time, max_time=trial.max_time, seconds=seconds, seed=trial.seed,
    )  # fmt: skip
    health = ClientHealth(restart_delay_mean=run.delay)
    return records_of(run), Measurement(trial, 0.0, run.window, run.ended, health, run.server, "virtual")


def expected_e2e(spec: EngineSpec, shape: Shape, concurrency: int) -> float:
    """A first guess at a request's end-to-end latency at this concurrency, without queueing, in seconds."""
    price = price_of(spec)
    isl, osl = round(shape.isl.mean), shape.osl.mean
    running = min(concurrency, spec.max_num_seqs)
    context = round(running * (isl + osl / 2))
    step = price.decode(running, context)
    if (speculation := spec.speculation) is not None:
        drafting = speculation.draft * speculation.tokens * step
        verifying = price.mixed(running, context, running * (1 + speculation.tokens), 0, 0.0, 0)
        step = (drafting + verifying) / speculation.expected
    own = min(isl, spec.max_batched_tokens - running + 1)
    reading = (price.mixed(0, 0, 0, own, own * own / 2, 1) - price.decode(1, isl)) * isl / own
    return step * osl + max(0.0, reading) * running


class _Gauges:
    """What a scrape of the server's metrics over the window would have said."""

    def __init__(self, scheduler: Scheduler, now: float) -> None:
        self.scheduler, self.begun = scheduler, now
        self.running = self.waiting = self.kv = self.time = 0.0
        self.before = self._counters()

    def _counters(self) -> dict[str, float]:
        return {**self.scheduler.counters, **self.scheduler.times.counters}

    def add(self, step: Step) -> None:
        self.time += step.duration
        self.running += step.duration * step.running
        self.waiting += step.duration * step.waiting
        self.kv += step.duration * step.kv_used

    def idle(self, seconds: float) -> None:
        """So long there was nothing to do."""
        self.time += seconds

    def result(self, now: float) -> dict[str, float]:
        time = self.time or 1.0
        means = {
            "num_requests_running": self.running / time,
            "num_requests_waiting": self.waiting / time,
            "kv_cache_usage_perc": self.kv / time,
            "observed_from": self.begun,
            "observed_until": now,
        }
        return means | {name: value - self.before[name] for name, value in self._counters().items()}


def _simulate(
    spec: EngineSpec,
    shape: Shape,
    concurrency: int,
    requests: int,
    *,
    warmup_requests: int | None = None,
    warmup: float = 0.0,
    min_time: float = 0.0,
    max_time: float = math.inf,
    seconds: float = math.inf,
    stagger: bool = True,
    seed: int = 0,
) -> Took:
    """Run until every request sent in the window has ended: a closed loop, or arrivals at a `Rate`, of which none gives
    up. The window's edges lie within a step, where none ends; a stream that waits may send after the window although it
    was free in it.
    """
    if concurrency < 1 or requests < 1:
        raise ValueError("concurrency and requests must be at least 1")
    loop = VirtualClients(spec, shape, concurrency, stagger, seed)
    enough = max(1, 2 * loop.streams) if warmup_requests is None else warmup_requests
    now = 0.0
    ended: Literal["requests", "time"] = "requests"
    start = end = math.inf
    unseen = set(range(loop.streams))
    sent = done = 0
    gauges, server = _Gauges(loop.scheduler, now), {}
    while end == math.inf or done < sent:
        step = loop.advance(now)
        if step is None:
            gauges.idle(loop.arrivals[0][0] + loop.ingest - now)
            now = loop.arrivals[0][0] + loop.ingest
            continue
        now = step.start + step.duration
        if start < math.inf and end == math.inf:
            gauges.add(step)
            edge, over = now - step.duration / 2, now >= max_time or now - start >= seconds
            least = 1 if over else requests
            if over or now - start >= min_time:
                # Streams that were waiting as the window opened sent in it.
                sent = bisect.bisect_right(loop.sends, (edge, math.inf)) - bisect.bisect_left(loop.sends, (start,))
                if sent >= least:
                    ended, end, server = "time" if over else "requests", edge, gauges.result(now)
        if not step.finished:
            continue
        if start == math.inf:
            unseen.difference_update(loop.requests[name].stream for name in step.finished)
            warm = not unseen and loop.completed >= enough and now >= warmup
            if loop.due is not None:
                lasting = shape.session_seconds(loop.early_e2e)
                warm = warm and now >= max(lasting, 2 * loop.e2e_sum / loop.whole)
            if warm or now >= max_time / 2:
                start = now - step.duration / 2
                gauges = _Gauges(loop.scheduler, now)
        done += sum(start <= loop.requests[name].sent <= end for name in step.finished)
    for request in loop.requests:
        if not request.done and request.open >= 0:
            request.spans.append((request.open, len(loop.ends)))
    window = Window(start, end)
    delays = [delay for when, delay in loop.sends if start <= when <= end]
    delay = sum(delays) / len(delays) if delays else 0.0
    return Took(loop.requests, np.array(loop.ends), window, now, ended, server, delay, loop.due is not None)


def _statistic(values: Floats, p: float | None) -> float:
    """The mean, or the percentile as an observed value."""
    return float(np.mean(values)) if p is None else float(np.quantile(values, p, method="inverted_cdf"))
