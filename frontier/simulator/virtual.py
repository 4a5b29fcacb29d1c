"""The simulated engine in virtual time: a closed loop of N streams, or arrivals at a rate, in a fraction of the time.

The result is the same records that the HTTP client writes (streams that start and stay out of step, warm-up that hands
over without draining, latency of the requests sent in the window, the load held until the last of them has ended), or
the window's figures as arrays. Nothing is measured, so the true value of a metric can be computed to any precision; the
statistics are calibrated against it.
"""

import bisect
import dataclasses
import heapq
import math
import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from frontier.metrics import Unit, metric
from frontier.model import POISSON, ClientHealth, Measurement, Outcome, Phase, Rate, Record, Shape, Trial, Window
from frontier.pacing import Pacing, first_length
from frontier.sessions import EARLY, SessionPlan, class_of, left_out, plan_session
from frontier.simulator.engine import Scheduler, Step
from frontier.simulator.spec import EngineSpec, price_of
from frontier.simulator.speculative import make_scheduler

Floats = npt.NDArray[np.float64]
_CHARS_PER_TOKEN = 5


@dataclass(slots=True)
class Sent:
    """One request of the run. `spans` are the first and one past the last of the step numbers that gave it one token
    each; where steps give several, or not every step gives any, `steps` and `counts` say which gave how many."""

    index: int
    stream: int
    sent: float
    prompt: int
    output: int
    spans: list[tuple[int, int]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    open: int = -1
    cached: int = 0
    done: bool = False
    session: int | None = None
    turn: int | None = None
    reusable: int | None = None
    class_index: int | None = None


@dataclass(frozen=True, slots=True)
class Took:
    """Everything that happened: requests in the order of sending, the end of every step, the window, and gauges.

    `delay` is the mean of what streams waited on purpose before they sent again, in the window.
    In open loop a request is sent when it arrives.
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
    """The requests sent in the window, in that order: seconds, and output tokens. `tpot` is NaN for a single token.

    `output_tokens` arrived in the window, whoever sent for them.
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


def counts_in(request: Sent, window: Window) -> bool:
    return window.start <= request.sent <= window.end


def _arrived(request: Sent, low: int, high: int) -> int:
    """Tokens it got in the steps from `low` to before `high`."""
    if request.steps:
        return sum(count for step, count in zip(request.steps, request.counts, strict=True) if low <= step < high)
    return sum(max(0, min(b, high) - max(a, low)) for a, b in request.spans)


def token_times(request: Sent, ends: Floats) -> Floats:
    """When each of the steps that gave it tokens ended."""
    if request.steps:
        return ends[request.steps]
    return np.concatenate([ends[a:b] for a, b in request.spans] or [ends[:0]])


def arrays_of(run: Took) -> Arrays:
    """The window's figures, without touching single tokens except those at the window's edges."""
    inside = [request for request in run.requests if counts_in(request, run.window)]
    sent = np.array([request.sent for request in inside])
    tokens = np.array([request.output for request in inside], dtype=np.int64)
    first = run.ends[[request.steps[0] if request.steps else request.spans[0][0] for request in inside]]
    last = run.ends[[request.steps[-1] if request.steps else request.spans[-1][1] - 1 for request in inside]]
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(tokens > 1, (last - first) / (tokens - 1), np.nan)
    low, high = np.searchsorted(run.ends, [run.window.start, run.window.end])
    output = sum(_arrived(request, int(low), int(high)) for request in run.requests)
    return Arrays(sent, first - sent, tpot, last - sent, tokens, run.window, output)


def records_of(run: Took) -> list[Record]:
    """The run as the client would have written it; what was in flight at the end is cancelled."""
    return [_record(request, run) for request in run.requests]


def _record(request: Sent, run: Took) -> Record:
    times = token_times(request, run.ends)
    tokens = sum(request.counts) if request.steps else len(times)
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
        text_bytes=tokens * _CHARS_PER_TOKEN,
        text_chars=tokens * _CHARS_PER_TOKEN,
        finish_reason="length" if request.done else None,
        status=200,
        scheduled=request.sent if run.open_loop else None,
        gaps=tuple(np.rint(np.diff(times) * 1e6).astype(np.int64).tolist()),
        session=request.session,
        turn=request.turn,
        reusable=request.reusable,
        class_index=request.class_index,
    )


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


@dataclass(slots=True)
class _Session:
    """A stream's session: its shape, the turn that comes next, the tokens said before, and those an answer left out."""

    number: int
    shape: Shape
    class_index: int | None
    plan: SessionPlan
    turn: int
    known: int
    more: int = 0


class _Loop:
    """The clients of one run: who sends when, and when the window opens and closes."""

    def __init__(self, spec: EngineSpec, shape: Shape, load: int, stagger: bool, seed: int) -> None:
        rate = load.per_second if isinstance(load, Rate) else None
        streams = load if rate is None else 0
        self.scheduler = make_scheduler(spec)
        self.shape, self.streams, self.seed = shape, streams, seed
        self.rng = random.Random(seed)
        self.pacing = Pacing(streams) if stagger and rate is None else None
        self.due = None if rate is None else (shape.arrivals or POISSON).times(rate, seed)
        self.tpot_sum = self.e2e_sum = 0.0
        self.whole = self.several = 0
        self.sends: list[tuple[float, float]] = []
        self.ingest = spec.ingest * spec.time_scale
        self.requests: list[Sent] = []
        self.sessions: dict[int, _Session] = {}
        self.ends: list[float] = []
        self.arrivals: list[tuple[float, int, int]] = []
        self.completed = 0
        self.prefix, self.block, self.caches = shape.prefix, spec.block_size, spec.prefix_cache
        self.shared = self._beginning(int(shape.prefix * shape.isl.high) if shape.session is None else shape.shared)
        self.of_class = [self._beginning(each.shape.shared, i) for i, each in enumerate(shape.mix)]
        self.begun = 0
        self.arrived, self.latest, self.early_e2e = 0, 0.0, 0.0
        for stream in range(streams):
            heapq.heappush(self.arrivals, (self._begin(stream), stream, stream))
        self._arrive(0.0)

    def _arrive(self, now: float) -> None:
        """Open loop: all arrivals until now, and the next one. Each is a stream of its own, of one session."""
        while self.due is not None and self.latest <= now:
            self.latest, stream = next(self.due), self.arrived
            self.arrived += 1
            self._begin(stream)
            self._send(self.latest, 0.0, stream)

    def _send(self, due: float, delay: float, stream: int) -> None:
        """A stream sends at this time."""
        bisect.insort(self.sends, (due, delay))
        heapq.heappush(self.arrivals, (due, len(self.sends) + self.streams, stream))

    def admit(self, now: float) -> None:
        """Hand the scheduler what has reached it by `now`."""
        while self.arrivals and self.arrivals[0][0] + self.ingest <= now:
            sent, _, stream = heapq.heappop(self.arrivals)
            request, hashes = self._turn(sent, stream) if stream in self.sessions else self._single(sent, stream)
            self.requests.append(request)
            self.scheduler.submit(request.index, request.prompt, request.output, hashes, sent)

    def _beginning(self, tokens: int, class_index: int | None = None) -> tuple[Hashable, ...]:
        """The blocks that all sessions of a class begin with, where the engine has a prefix cache."""
        blocks = tokens // self.block if self.caches else 0
        return tuple(("shared", class_index, i) for i in range(blocks))

    def _single(self, sent: float, stream: int) -> tuple[Sent, Sequence[Hashable]]:
        """A request of its own."""
        prompt, output = self.shape.isl.draw(self.rng), self.shape.osl.draw(self.rng)
        if self.pacing is not None and len(self.requests) < self.streams:
            output = first_length(output, self.seed, stream)
        hashes = self.shared[: int(self.prefix * prompt) // self.block] if self.shared else ()
        return Sent(len(self.requests), stream, sent, prompt, output), hashes

    def _turn(self, sent: float, stream: int) -> tuple[Sent, Sequence[Hashable]]:
        """The next turn of the stream's session."""
        session = self.sessions[stream]
        planned = session.plan.turns[session.turn]
        begins = session.turn == session.plan.start
        prompt = session.plan.prompt(session.turn) if begins else session.known + planned.new + session.more
        output = planned.osl
        if self.pacing is not None and begins and session.number < self.streams:
            output = first_length(output, self.seed, stream)
        known = min(session.shape.shared, prompt - 1) if begins else session.known
        hashes: Sequence[Hashable] = ()
        if self.caches:
            shared = (
                self.shared
                if session.class_index is None
                else self.of_class[session.class_index][: known // self.block]
            )
            own = range(len(shared), (prompt + output) // self.block)
            hashes = (*shared, *((session.number, i) for i in own))
        index = len(self.requests)
        return Sent(
            index, stream, sent, prompt, output, session=session.number, turn=session.turn, reusable=known,
            class_index=session.class_index,
        ), hashes  # fmt: skip

    def _begin(self, stream: int) -> float:
        """A new session for a stream; the seconds before its first turn."""
        if self.shape.session is None and not self.shape.mix:
            return 0.0
        number, self.begun = self.begun, self.begun + 1
        class_index = class_of(self.shape, self.seed, number) if self.shape.mix else None
        shape = self.shape if class_index is None else self.shape.mix[class_index].shape
        plan = plan_session(shape, self.seed, number, self.streams if self.pacing is not None else 0)
        self.sessions[stream] = _Session(number, shape, class_index, plan, plan.start, 0)
        return plan.turns[plan.start].pause

    def _continue(self, request: Sent) -> float | None:
        """The seconds of thinking before the next turn of the session of a request that has ended; None: it is over."""
        session = self.sessions.get(request.stream)
        if session is None or session.turn + 1 == len(session.plan.turns):
            return None
        session.more = left_out(session.plan.turns[session.turn], request.output)
        session.known = request.prompt + request.output
        session.turn += 1
        return session.plan.turns[session.turn].pause

    def advance(self, now: float) -> Step | None:
        """One step from `now` on; None when the engine is idle until the next arrival."""
        self.admit(now)
        step = self.scheduler.step(now)
        if step is None:
            return None
        self._arrive(step.end)
        self.ends.append(step.end)
        if step.counts is None:
            self._span(step)
        else:
            self._count(step, step.counts)
        for name in step.finished:
            request = self.requests[name]
            request.done = True
            self.completed += 1
            if self.due is not None:
                self.whole += 1
                self.e2e_sum += step.end - request.sent
                if self.whole <= EARLY:
                    self.early_e2e = self.e2e_sum / self.whole
                if (thinking := self._continue(request)) is not None:
                    self._send(step.end + thinking, 0.0, request.stream)
                else:
                    self.sessions.pop(request.stream, None)
                continue
            delay = 0.0 if self.pacing is None else self._delay(self.pacing, request, step.end)
            thinking = self._continue(request)
            if thinking is None:
                self._begin(request.stream)
            elif thinking:
                delay = 0.0
            send = step.end + delay + (thinking or 0.0)
            self._send(send, delay, request.stream)
        return step

    def _delay(self, pacing: Pacing, request: Sent, now: float) -> float:
        """How long its stream waits now that it has ended."""
        if request.index >= self.streams:
            self.whole += 1
            self.e2e_sum += now - request.sent
            if request.output > 1:
                first = self.ends[request.steps[0] if request.steps else request.spans[0][0]]
                self.several += 1
                self.tpot_sum += (now - first) / (request.output - 1)
        if not self.several:
            return 0.0
        return pacing.delay(now, self.tpot_sum / self.several, self.e2e_sum / self.whole)

    def _span(self, step: Step) -> None:
        """One token for everybody in the batch: only who came and who went is noted."""
        number, requests = step.number, self.requests
        for name in step.preempted:
            request = requests[name]
            if request.open >= 0:
                request.spans.append((request.open, number))
                request.open = -1
        for name, cached in zip(step.first, step.cached, strict=True):
            requests[name].open = number
            requests[name].cached = cached
        for name in step.finished:
            request = requests[name]
            request.spans.append((request.open, number + 1))

    def _count(self, step: Step, counts: Sequence[int]) -> None:
        """Who got how many."""
        number, requests = step.number, self.requests
        for name, count in zip(step.tokens, counts, strict=True):
            requests[name].steps.append(number)
            requests[name].counts.append(count)
        for name, cached in zip(step.first, step.cached, strict=True):
            requests[name].cached = cached


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
    loop = _Loop(spec, shape, concurrency, stagger, seed)
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
