"""One trial in closed loop: N streams, each sending its next request the moment its last one ended.

Start: the first sends are spread evenly over one estimated end-to-end latency, so that no convoy forms. Warm-up hands
its slots over without draining. Latency counts the requests sent in the window; the load is held until the last of
them has ended; what is still in flight then is cancelled. (Reasons and figures: the counting rules of the statistics
notes, after Schroeder, Wierman and Harchol-Balter, NSDI 2006, on closed systems.)
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from yarl import URL

from frontier.errors import MeasurementError
from frontier.measure.client import Client, Clock, Exchange
from frontier.measure.dialects import DIALECTS, Ask, Dialect
from frontier.measure.prompts import Prompt, PromptSource
from frontier.measure.reading import Reading, to_record
from frontier.measure.target import Target
from frontier.measure.watchdog import BEAT, Watchdog
from frontier.model import ClientHealth, Measurement, Outcome, Record, Trial, Window

Ended = Literal["requests", "time", "interrupted", "server_lost"]
Stage = Literal["ramp", "warmup", "window", "hold"]

_SLICE = 32
_SWEEP_EVERY = 0.25
_PROGRESS_EVERY = 0.5
_BACK_OFF = (0.05, 2.0)
_LOST_AFTER = 3.0
_WARMUP_SHARE = 0.5
"""Warm-up may take at most this share of the trial's max_time; then the window opens as things are."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How a running trial stands. `window_sent` counts the requests sent in the window so far."""

    stage: Stage
    elapsed: float
    in_flight: int
    window_sent: int
    finished: int
    failed: int


@dataclass(frozen=True, slots=True)
class _Job:
    """A prepared request and, once sent, its exchange."""

    index: int
    prompt: Prompt
    body: bytes


class ClosedLoop:
    """The state of one running trial. Made and run by `run_trial`."""

    def __init__(
        self, trial: Trial, target: Target, prompts: PromptSource, client: Client, watchdog: Watchdog,
        sink: Callable[[Record], None], expected_e2e: float | None,
    ) -> None:  # fmt: skip
        self.trial, self.target, self.client, self.watchdog, self.sink = trial, target, client, watchdog, sink
        self.dialect: Dialect = DIALECTS[target.dialect or "openai"]
        self.url = URL(target.url(self.dialect.paths[target.api]), encoded=True)
        self.prompts = prompts
        self.clock = client.clock
        self.zero = self.clock()
        self.expected_e2e = expected_e2e
        self.stage: Stage = "ramp"
        self.start: float | None = None
        self.end: float | None = None
        self.ended: Ended = "time"
        self.closing = False
        self.ready: deque[_Job] = deque()
        self.made = 0
        self.unread: deque[tuple[_Job, int, Exchange]] = deque()
        self.clerk_wanted = asyncio.Event()
        self.wave_started = asyncio.Event()
        self.first_ended: set[int] = set()
        self.finished = self.failed = self.window_sent = 0
        self.window_open: set[int] = set()
        self.e2e_sum, self.e2e_count = 0.0, 0
        self.connect_failures = 0
        self.connect_failing_since = 0.0

    # --- requests, prepared before they are needed and read after they have ended

    def make_job(self) -> _Job:
        """The next request's body."""
        prompt = self.prompts(self.made)
        target = self.target
        ask = Ask(target.model or "", prompt.content, prompt.osl, target.ignore_eos, extra=target.extra_body)
        job = _Job(self.made, prompt, self.dialect.body(target.api, ask))
        self.made += 1
        return job

    def now(self) -> float:
        """Seconds since the trial's start."""
        return self.clock() - self.zero

    async def clerk(self) -> None:
        """Makes requests ahead and reads finished exchanges, a slice at a time, giving way to the network between."""
        enough = 2 + self.trial.concurrency // 8
        while True:
            while self.unread or len(self.ready) < enough:
                if len(self.ready) < enough and not self.closing:
                    self.ready.append(self.make_job())
                    await asyncio.sleep(0)
                elif not self.unread:
                    break
                if self.unread:
                    job, stream, exchange = self.unread.popleft()
                    reading = Reading(exchange, self.dialect, self.target.api)
                    while reading.take(_SLICE):  # noqa: ASYNC110 - gives way between slices, waits for nothing
                        await asyncio.sleep(0)
                    self.record(job, stream, reading)
                    await asyncio.sleep(0)
            self.clerk_wanted.clear()
            await self.clerk_wanted.wait()

    def record(self, job: _Job, stream: int, reading: Reading) -> None:
        """A finished exchange becomes a record."""
        record = to_record(
            reading, index=job.index, stream=stream, isl=job.prompt.isl, osl=job.prompt.osl, zero=self.zero
        )
        if record.outcome is Outcome.OK:
            self.e2e_sum += record.end - record.sent
            self.e2e_count += 1
        elif record.outcome is not Outcome.CANCELLED:
            self.failed += 1
        self.sink(record)

    # --- the streams

    async def stream(self, number: int) -> None:
        """One of the N callers."""
        await self.wait_turn(number)
        free, pause = self.clock(), 0.0
        while not self.closing:
            job = self.ready.popleft() if self.ready else self.make_job()
            self.clerk_wanted.set()
            in_window = self.start is not None and self.end is None
            if in_window:
                self.window_sent += 1
                self.window_open.add(job.index)
            self.watchdog.sent(self.clock() - free)
            exchange = await self.client.post(self.url, job.body)
            free = exchange.end
            self.window_open.discard(job.index)
            self.finished += 1
            self.first_ended.add(number)
            self.unread.append((job, number, exchange))
            self.clerk_wanted.set()
            pause = self.after(exchange, pause)
            if pause and not self.closing:
                await asyncio.sleep(pause)
                free = self.clock()

    async def wait_turn(self, number: int) -> None:
        """Hold the first send back so that the N first sends spread over one end-to-end latency."""
        if number == 0:
            return
        if self.expected_e2e is None:
            # Nobody knows how long a request takes: stream 0's first one tells.
            await self.wave_started.wait()
            begin = self.now()
        else:
            begin = 0.0
        spread = self.expected_e2e or 0.0
        await asyncio.sleep(max(0.0, begin + spread * number / self.trial.concurrency - self.now()))

    def after(self, exchange: Exchange, pause: float) -> float:
        """Keep count of failures; seconds to pause before this stream's next send (0 after a success)."""
        if not self.wave_started.is_set():
            if self.expected_e2e is None:
                self.expected_e2e = exchange.end - exchange.sent
            self.wave_started.set()
        failure = exchange.failure
        lost = failure is not None and failure[0] in (Outcome.CONNECT, Outcome.TLS)
        if not lost:
            self.connect_failures = 0
        else:
            if self.connect_failures == 0:
                self.connect_failing_since = self.clock()
            self.connect_failures += 1
        if failure is None and exchange.status is not None and exchange.status < 300:
            # An error inside a 200 stream ends fast too: such a stream must not spin.
            return 0.0 if exchange.end - exchange.sent > _BACK_OFF[0] or len(exchange.reads) > 2 else _BACK_OFF[0]
        return min(_BACK_OFF[1], max(_BACK_OFF[0], pause * 2))

    # --- the window

    @property
    def server_lost(self) -> bool:
        """Only refused connections, and for a while: the server is gone."""
        enough = self.connect_failures >= max(5, self.trial.concurrency)
        return enough and self.clock() - self.connect_failing_since > _LOST_AFTER

    def warm(self, now: float) -> bool:
        """Every stream has finished its first request, two end-to-end latencies and the asked warm-up have passed."""
        trial = self.trial
        if now >= trial.max_time * _WARMUP_SHARE:
            return True
        if len(self.first_ended) < trial.concurrency or self.e2e_count == 0:
            return False
        e2e = self.e2e_sum / self.e2e_count
        return now >= trial.warmup and now >= 2 * e2e and self.finished >= 2 * trial.concurrency

    def tick(self) -> bool:
        """Move from stage to stage; True when the trial is over."""
        now, trial = self.now(), self.trial
        if self.server_lost:
            self.close_window(now, "server_lost")
            return True
        if self.start is None:
            self.stage = "ramp" if len(self.first_ended) < trial.concurrency else "warmup"
            if self.warm(now):
                self.stage = "window"
                self.watchdog.open_window()
                self.start = self.now()
        elif self.end is None:
            if self.window_sent >= trial.requests and now - self.start >= trial.min_time:
                self.close_window(now, "requests")
            elif now >= trial.max_time:
                self.close_window(now, "time")
        elif not self.window_open:
            return True
        return False

    def close_window(self, now: float, why: Ended) -> None:
        """The window ends here; the load goes on until its last request has ended."""
        if self.end is None:
            self.start = now if self.start is None else self.start
            self.end, self.ended, self.stage = now, why, "hold"
            self.watchdog.close_window()

    async def pulse(self, stop: asyncio.Event | None, tell: Callable[[Progress], None] | None) -> None:
        """Heartbeat of the trial: measures the loop's lag, moves the stages on, enforces the time limits."""
        sweep_at = tell_at = 0.0
        while True:
            asked = self.clock()
            await asyncio.sleep(BEAT)
            now = self.clock()
            self.watchdog.beat(now - asked - BEAT)
            if stop is not None and stop.is_set():
                self.close_window(self.now(), "interrupted")
                return
            if now >= sweep_at:
                self.client.sweep(now)
                sweep_at = now + _SWEEP_EVERY
            if tell is not None and now >= tell_at:
                tell(self.progress())
                tell_at = now + _PROGRESS_EVERY
            if self.tick():
                return

    def progress(self) -> Progress:
        """How things stand."""
        return Progress(self.stage, self.now(), len(self.client.flights), self.window_sent, self.finished, self.failed)

    async def run(self, stop: asyncio.Event | None, tell: Callable[[Progress], None] | None) -> None:
        """The whole trial; returns when every stream has stopped and every exchange is on record."""
        for _ in range(min(self.trial.concurrency, 256)):
            self.ready.append(self.make_job())
        self.zero = self.clock()
        clerk = asyncio.create_task(self.clerk())
        streams = [asyncio.create_task(self.stream(i)) for i in range(self.trial.concurrency)]
        pulse = asyncio.create_task(self.pulse(stop, tell))
        try:
            # A stream or the clerk only ever ends by itself before the pulse through a bug: let that be seen.
            done, _ = await asyncio.wait([pulse, clerk, *streams], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self.closing = True
            self.close_window(self.now(), "interrupted")
            await self.wind_up(clerk, pulse, streams)

    async def wind_up(
        self, clerk: "asyncio.Task[None]", pulse: "asyncio.Task[None]", streams: "list[asyncio.Task[None]]"
    ) -> None:
        """Cancel what is in flight, and put every exchange on record."""
        for flight in tuple(self.client.flights):
            self.client.cut(flight, Outcome.CANCELLED, "cut off at the end of the trial")
        await asyncio.sleep(0)
        await asyncio.wait(streams, timeout=1.0)
        for task in (pulse, clerk, *streams):
            task.cancel()
        await asyncio.gather(pulse, clerk, *streams, return_exceptions=True)
        while self.unread:
            job, number, exchange = self.unread.popleft()
            reading = Reading(exchange, self.dialect, self.target.api)
            reading.take(len(exchange.reads))
            self.record(job, number, reading)


async def run_trial(
    trial: Trial,
    target: Target,
    prompts: PromptSource,
    *,
    sink: Callable[[Record], None],
    expected_e2e: float | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stop: asyncio.Event | None = None,
    clock: Clock = time.perf_counter,
) -> Measurement:
    """Run one trial against a settled target (see preflight) and hand each request's Record to `sink` as it is read.

    The trial takes at most `trial.max_time` seconds, of which warm-up at most half, and then as long as the window's
    last request needs. `expected_e2e` (seconds) spreads the first sends; without it stream 0's first request tells.
    Setting `stop` ends the trial at once. Failures of the server are records, never exceptions.
    """
    if target.api == "auto" or target.model is None:
        raise MeasurementError("the target is not settled: its api or model is unknown", "run preflight first")
    with Watchdog(clock) as watchdog:
        async with Client(target, clock) as client:
            loop = ClosedLoop(trial, target, prompts, client, watchdog, sink, expected_e2e)
            await loop.run(stop, on_progress)
            health: ClientHealth = watchdog.health(client.resent, client.opened)
        assert loop.start is not None
        assert loop.end is not None
        epoch = time.time() - loop.now()
        return Measurement(trial, epoch, Window(loop.start, loop.end), loop.ended, health)
