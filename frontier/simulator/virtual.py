"""Virtual time: a closed loop, or arrivals at a rate, against the simulated engine in a fraction of
the time.

The result is the same records that the HTTP client writes, or the window's figures as arrays. So
streams start and stay out of step, warm-up hands over without draining, latency is that of the
requests sent in the window, and the load is held until the last of them has ended. Nothing is
measured, so the true value of a metric can be computed to any precision; the statistics are
calibrated against it.
"""

import bisect
import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from frontier.core.model.loads import as_load
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import ClientHealth, Measurement, Outcome, Phase, Record, Trial, Window
from frontier.simulator.engine import Scheduler, Step
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual_clients import Sent, VirtualClients

Floats = npt.NDArray[np.float64]
_CHARS_PER_TOKEN = 5


@dataclass(frozen=True, slots=True)
class Took:
    """Everything that happened: requests in the order of sending, the end of every step, the
    window, and gauges.

    `delay` is the mean time in the window that streams waited on purpose before they sent again. In
    open loop a request is sent when it arrives.
    """

    requests: list[Sent]
    ends: Floats
    window: Window
    until: float
    ended: Literal["requests", "time"]
    server: dict[str, float]
    delay: float
    open_loop: bool = False


@dataclass(frozen=True, slots=True)
class Arrays:
    """The requests sent in the window, in that order: seconds, and output tokens. `tpot` is NaN for
    a single token.

    `output_tokens` arrived in the window, of all requests, also those sent before it.
    """

    sent: Floats
    ttft: Floats
    tpot: Floats
    e2e: Floats
    tokens: npt.NDArray[np.int64]
    window: Window
    output_tokens: int

    @property
    def output_throughput(self) -> float:
        """Tokens per second that arrived in the window."""
        return self.output_tokens / self.window.length


def closed_loop_arrays(
    spec: EngineSpec, shape: Shape, concurrency: int, *, requests: int, stagger: bool = True, seed: int = 0
) -> Arrays:
    """The figures of the requests sent in the window of a closed loop, at least `requests`.
    `stagger=False` lets the streams begin and go on in step, as most tools do.
    """
    return arrays_of(simulate(spec, shape, concurrency, requests, stagger=stagger, seed=seed))


def virtual_trial(trial: Trial, spec: EngineSpec) -> tuple[list[Record], Measurement]:
    """A whole trial in virtual time. The engine's noise differs from trial to trial, by the trial's
    own seed.
    """
    own = dataclasses.replace(spec, seed=(spec.seed * 1_000_003 + trial.seed) % 2**63)
    seconds = math.inf if trial.seconds is None else trial.seconds
    run = simulate(
        own,
        trial.shape,
        trial.load,
        trial.requests,
        warmup_requests=0 if trial.phase is Phase.SCAN else None,
        times=WindowTimes(trial.warmup, trial.min_time, trial.max_time, seconds),
        seed=trial.seed,
    )
    health = ClientHealth(restart_delay_mean=run.delay)
    return records_of(run), Measurement(trial, 0.0, run.window, run.ended, health, run.server, "virtual")


class _Gauges:
    """The server's metrics over the window, as a scrape would give them."""

    def __init__(self, scheduler: Scheduler, now: float) -> None:
        self.scheduler, self.begun = scheduler, now
        self.running = self.waiting = self.kv = self.time = 0.0
        self.most_running = self.most_waiting = 0
        self.most_kv = 0.0
        self.before = self._counters()

    def _counters(self) -> dict[str, float]:
        return {**self.scheduler.counters, **self.scheduler.times.counters}

    def add(self, step: Step) -> None:
        self.time += step.duration
        self.running += step.duration * step.running
        self.waiting += step.duration * step.waiting
        self.kv += step.duration * step.kv_used
        self.most_running = max(self.most_running, step.running)
        self.most_waiting = max(self.most_waiting, step.waiting)
        self.most_kv = max(self.most_kv, step.kv_used)

    def result(self, now: float) -> dict[str, float]:
        time = self.time or 1.0
        means = {
            "num_requests_running": self.running / time,
            "num_requests_waiting": self.waiting / time,
            "kv_cache_usage_perc": self.kv / time,
            "num_requests_running_max": float(self.most_running),
            "num_requests_waiting_max": float(self.most_waiting),
            "kv_cache_usage_perc_max": self.most_kv,
            "observed_from": self.begun,
            "observed_until": now,
        }
        return means | {name: value - self.before[name] for name, value in self._counters().items()}


@dataclass(frozen=True, slots=True)
class WindowTimes:
    """Seconds of a run: of its warm-up and its window at the least, and of all of it and of the
    window at the most.
    """

    warmup: float = 0.0
    min_time: float = 0.0
    max_time: float = math.inf
    seconds: float = math.inf


class _Window:
    """The window of a run: when it opens and closes, and the server's metrics over it."""

    def __init__(self, loop: VirtualClients, requests: int, warmup_requests: int | None, times: WindowTimes) -> None:
        self.loop, self.requests, self.times = loop, requests, times
        self.enough = max(1, 2 * loop.streams) if warmup_requests is None else warmup_requests
        self.unseen = set(range(loop.streams))
        self.start = self.end = math.inf
        self.ended: Literal["requests", "time"] = "requests"
        self.sent = self.done = self.sent_before = 0
        self.gauges, self.server = _Gauges(loop.scheduler, 0.0), dict[str, float]()

    @property
    def over(self) -> bool:
        """It is closed, and every request that was sent in it has ended."""
        return self.end < math.inf and self.done >= self.sent

    def step(self, step: Step, now: float) -> None:
        """Follow a step that ends now."""
        if self.start < math.inf and self.end == math.inf:
            self.gauges.add(step)
            self._close(now - step.duration / 2, now)
        if step.finished:
            if self.start == math.inf:
                self._open(step, now)
            requests = self.loop.requests
            self.done += sum(self.start <= requests[name].sent <= self.end for name in step.finished)

    def _open(self, step: Step, now: float) -> None:
        """Open the window within a step if the load is warm."""
        loop, times = self.loop, self.times
        self.unseen.difference_update(loop.requests[name].stream for name in step.finished)
        warm = not self.unseen and loop.completed >= self.enough and now >= times.warmup
        if loop.due is not None:
            lasting = loop.shape.session_seconds(loop.times.early_e2e)
            warm = warm and now >= max(lasting, 2 * loop.times.e2e_sum / loop.times.count)
        if warm or now >= times.max_time / 2:
            self.start = now - step.duration / 2
            self.sent_before = bisect.bisect_left(loop.sends, (self.start,))
            self.gauges = _Gauges(loop.scheduler, now)

    def _close(self, edge: float, now: float) -> None:
        """Close the window at the edge if enough was sent in it, or its time is over."""
        times, lasted = self.times, now - self.start
        over = now >= times.max_time or lasted >= times.seconds
        if over or lasted >= times.min_time:
            # Streams that were waiting as the window opened sent in it; from now on none sends
            # before now.
            least, sends = 1 if over else self.requests, self.loop.sends
            if len(sends) - self.sent_before < least:
                return
            self.sent = bisect.bisect_right(sends, (edge, math.inf)) - self.sent_before
            if self.sent >= least:
                self.ended, self.end, self.server = "time" if over else "requests", edge, self.gauges.result(now)


def simulate(
    spec: EngineSpec,
    shape: Shape,
    load: int,
    requests: int,
    *,
    warmup_requests: int | None = None,
    times: WindowTimes = WindowTimes(),
    stagger: bool = True,
    seed: int = 0,
) -> Took:
    """Run until every request sent in the window has ended: a closed loop, or arrivals at a `Rate`,
    which never give up. The window opens when every stream has ended its first request,
    `warmup_requests` (default: two per stream) have ended in all and the seconds of warm-up have
    passed. Its edges lie within a step, where none ends; a stream that waits may send after the
    window although it was free in it.
    """
    if load < 1 or requests < 1:
        raise ValueError("load and requests must be at least 1")
    loop = VirtualClients(spec, shape, as_load(load), stagger, seed)
    window, now = _Window(loop, requests, warmup_requests, times), 0.0
    while not window.over:
        step = loop.advance(now)
        if step is None:
            begins = loop.arrivals[0][0] + loop.ingest
            window.gauges.time += begins - now
            now = begins
        else:
            now = step.start + step.duration
            window.step(step, now)
    for request in loop.requests:
        if not request.done and request.open >= 0:
            request.spans.append((request.open, len(loop.ends)))
    took = Window(window.start, window.end)
    delays = [delay for when, delay in loop.sends if took.start <= when <= took.end]
    delay = sum(delays) / len(delays) if delays else 0.0
    ends, open_loop = np.array(loop.ends), loop.due is not None
    return Took(loop.requests, ends, took, now, window.ended, window.server, delay, open_loop)


# --- what came of it


def counts_in(request: Sent, window: Window) -> bool:
    """It was sent in the window."""
    return window.start <= request.sent <= window.end


def _arrived(request: Sent, low: int, high: int) -> int:
    """Tokens it got in the steps from `low` to before `high`."""
    return sum(max(0, min(b, high) - max(a, low)) for a, b in request.spans)


def token_times(request: Sent, ends: Floats) -> Floats:
    """When each of the steps that gave it tokens ended."""
    return np.concatenate([ends[a:b] for a, b in request.spans] or [ends[:0]])


def arrays_of(run: Took) -> Arrays:
    """The window's figures, without touching single tokens except those at the window's edges."""
    inside = [request for request in run.requests if counts_in(request, run.window)]
    sent = np.array([request.sent for request in inside])
    tokens = np.array([request.output for request in inside], dtype=np.int64)
    first = run.ends[[request.spans[0][0] for request in inside]]
    last = run.ends[[request.spans[-1][1] - 1 for request in inside]]
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(tokens > 1, (last - first) / (tokens - 1), np.nan)
    low, high = np.searchsorted(run.ends, [run.window.start, run.window.end])
    output = sum(_arrived(request, int(low), int(high)) for request in run.requests)
    return Arrays(sent, first - sent, tpot, last - sent, tokens, run.window, output)


def records_of(run: Took) -> list[Record]:
    """The run as records of the client; requests in flight at the end are cancelled."""
    return [_record(request, run) for request in run.requests]


def _record(request: Sent, run: Took) -> Record:
    times = token_times(request, run.ends)
    seen = len(times)
    first, last = (float(times[0]), float(times[-1])) if seen else (None, None)
    return Record(
        index=request.index,
        stream=request.stream,
        sent=request.sent,
        outcome=Outcome.OK if request.done else Outcome.CANCELLED,
        end=last if request.done and last is not None else run.until,
        asked_isl=request.prompt,
        asked_osl=request.output,
        first=first,
        visible=first,
        last=last,
        prompt_tokens=request.prompt if request.done else None,
        completion_tokens=request.output if request.done else None,
        cached_tokens=request.cached if request.done else None,
        events=seen,
        reads=seen,
        text_bytes=seen * _CHARS_PER_TOKEN,
        text_chars=seen * _CHARS_PER_TOKEN,
        finish_reason="length" if request.done else None,
        status=200,
        scheduled=request.sent if run.open_loop else None,
        gaps=tuple(np.rint(np.diff(times) * 1e6).astype(np.int64).tolist()),
        session=request.session,
        turn=request.turn,
        reusable=request.reusable,
        class_index=request.class_index,
        # A connection costs nothing here: each session has its own, and so has a request alone.
        connection=request.index if request.session is None else request.session,
    )
