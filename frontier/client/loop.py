"""The loop of one trial: closed (N streams, each sends again when its answer has ended) or open (Poisson arrivals).

Closed loop: the streams start out of step (see `pacing`): each one's first request asks for a random share of the
output length; where the length cannot be forced, the first sends are spread over one estimated end-to-end latency.
Warm-up hands its slots over without draining. Latency counts the requests sent in the window; the load is held until
the last of them has ended; what is still in flight then is cancelled. (A closed system in the sense of Schroeder,
Wierman and Harchol-Balter, NSDI 2006.)

Open loop: requests arrive whether or not earlier ones have been answered. It checks an operating point that a closed
loop gave. Latency counts from the scheduled arrival, kept as `Record.scheduled`, so a late send cannot hide a queue
(coordinated omission; as wrk2 does). The trial's concurrency is the admission cap: what arrives while so many are in
flight waits here, and its wait counts.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from yarl import URL

from frontier.client.evidence import Evidence
from frontier.client.health import BEAT, HealthMonitor
from frontier.client.http import Client, Clock, Exchange
from frontier.client.parse import parse_all, retry_after
from frontier.client.pipeline import PreparedRequest, RequestPipeline
from frontier.client.prompts import PromptSource
from frontier.client.target import Target
from frontier.errors import MeasurementError
from frontier.model import Measurement, Outcome, Phase, Record, Trial, Window
from frontier.pacing import Pacing

Ended = Literal["requests", "time", "interrupted", "server_lost"]
Stage = Literal["ramp", "warmup", "window", "hold"]

_PROGRESS_EVERY = 0.5
_BACK_OFF = (0.05, 2.0)
_LONGEST_RETRY_AFTER = 10.0
_GLANCE = 8
"""Reads of an answer that may be looked at between two sends."""
_LOST_AFTER = 3.0
_DOWN_AFTER = 10.0
_WARMUP_SHARE = 0.5
_CUT_OFF = 5.0
"""Seconds that requests which were cut off may take to be on record; a busy machine's need, normally nothing."""
_SEND = 0.02
"""Seconds that may pass, at the most, between the decision to send and the bytes on their way."""


@dataclass(frozen=True, slots=True)
class TrialProgress:
    """How a running trial stands. `window_sent` counts the requests sent in the window so far.

    `rate` (output tokens per second), `p50_ttft` and `p99_ttft` (seconds) are of the window so far, within 3 %, for
    display; None before there is anything.
    """

    stage: Stage
    elapsed: float
    in_flight: int
    window_sent: int
    finished: int
    failed: int
    rate: float | None = None
    p50_ttft: float | None = None
    p99_ttft: float | None = None


class ClosedLoop:
    """The state of one running trial. Made and run by `run_trial`."""

    def __init__(
        self, trial: Trial, client: Client, pipeline: RequestPipeline, monitor: HealthMonitor, evidence: Evidence
    ) -> None:
        self.trial, self.client, self.pipeline = trial, client, pipeline
        self.monitor, self.evidence = monitor, evidence
        self.target = client.target
        self.url = URL(self.target.request_url, encoded=True)
        self.clock = client.clock
        self.zero = self.clock()
        self.spread: float | None = None
        self.spread_known = asyncio.Event()
        self.stage: Stage = "ramp"
        self.start: float | None = None
        self.end: float | None = None
        self.ended: Ended = "time"
        self.closing = False
        self.first_ended: set[int] = set()
        self.pacing = Pacing(trial.concurrency)
        self.finished = self.window_sent = 0
        self.pending: dict[int, float] = {}
        self.connect_failures = 0
        self.connect_failing_since = 0.0
        self.failing_since: float | None = None

    def now(self) -> float:
        """Seconds since the trial's start."""
        return self.clock() - self.zero

    # --- the streams

    async def stream(self, number: int) -> None:
        """One of the N callers."""
        if not self.pipeline.short:
            await self.wait_turn(number)
        free, pause = self.clock(), 0.0
        while not self.closing:
            exchange = await self.send(self.pipeline.next_request(), number, self.now(), None)
            self.monitor.sent(exchange.sent - free)
            free = exchange.end
            self.first_ended.add(number)
            pause = self.after(exchange, pause)
            delay = 0.0 if pause else self.pacing.delay(free, self.pipeline.mean_tpot, self.pipeline.mean_e2e)
            if (pause or delay) and not self.closing:
                await asyncio.sleep(pause or delay)
                free = self.clock()
                if delay:
                    self.monitor.delayed(free - exchange.end)

    async def send(self, request: PreparedRequest, number: int, counts_at: float, scheduled: float | None) -> Exchange:
        """One request to its end. It belongs to the window if `counts_at` (seconds on the trial's clock) does."""
        if self.start is not None and self.end is None:
            self.window_sent += 1
        self.pending[request.index] = counts_at
        exchange = await self.client.post(self.url, request.body)
        del self.pending[request.index]
        self.finished += 1
        self.pipeline.put(exchange, request, number, scheduled)
        return exchange

    async def wait_turn(self, number: int) -> None:
        """Hold the first send back so that the N first sends spread over one end-to-end latency; of a server too slow
        for that over what there is before the window must open, so that all N are in flight then.
        """
        if number == 0:
            return
        ramp = self.trial.max_time * _WARMUP_SHARE
        if self.spread is None:
            # How long a request takes is not known: stream 0's first one shows it, unless it takes too long to.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.spread_known.wait(), ramp / 2)
        begin = self.now()
        spread = min(ramp if self.spread is None else self.spread, max(0.0, ramp - begin))
        await asyncio.sleep(spread * number / self.trial.concurrency - (self.now() - begin))

    def after(self, exchange: Exchange, pause: float) -> float:
        """Keep count of failures; seconds to pause before this stream's next send (0 after a success)."""
        if self.spread is None:
            self.spread = exchange.end - exchange.sent
            self.spread_known.set()
        failure = exchange.failure
        if failure is None or failure[0] not in (Outcome.CONNECT, Outcome.TLS):
            self.connect_failures = 0
        else:
            if self.connect_failures == 0:
                self.connect_failing_since = self.clock()
            self.connect_failures += 1
        if failure is None and exchange.status is not None and exchange.status < 300:
            return _BACK_OFF[0] if self.failed_at_once(exchange) else 0.0
        requested = min(retry_after(exchange) or 0.0, _LONGEST_RETRY_AFTER)
        return max(requested, min(_BACK_OFF[1], max(_BACK_OFF[0], pause * 2)))

    def failed_at_once(self, exchange: Exchange) -> bool:
        """A quick 2xx answer that is a failure, as an error in a 200 stream: a stream must not spin on it.

        Answers are parsed later, by the pipeline; only these few bytes are looked at here. A quick good one (a prompt
        with one token out) is no reason to pause.
        """
        if exchange.end - exchange.sent >= _BACK_OFF[0] or len(exchange.reads) > _GLANCE:
            return False
        return parse_all(exchange, self.target.adapter, self.target.api).verdict()[0] is not Outcome.OK

    # --- the window

    @property
    def server_lost(self) -> bool:
        """The circuit breaker. Nothing but refused connections for a while: the server is gone. Nothing but failures of
        any kind, and not a byte in any stream, for longer: to go on would only hammer it.
        """
        now, enough = self.clock(), min(32, max(5, self.trial.concurrency))
        if self.pipeline.failed_in_a_row == 0:
            self.failing_since = None
            return False
        self.failing_since = now if self.failing_since is None else self.failing_since
        if self.connect_failures >= enough and now - self.connect_failing_since > _LOST_AFTER:
            return True
        failing = self.pipeline.failed_in_a_row >= enough and now - self.failing_since > _DOWN_AFTER
        return failing and not self.client.received_since(self.failing_since)

    def warm(self, now: float) -> bool:
        """Every stream has finished its first request; 2 N requests, two latencies and the asked warm-up have passed.

        A scan, whose values prove nothing, does not wait for the second half of that. Warm-up may take at most half of
        the trial's max_time; then the window opens as things are.
        """
        trial = self.trial
        if now >= trial.max_time * _WARMUP_SHARE:
            return True
        if len(self.first_ended) < trial.concurrency or now < trial.warmup:
            return False
        settled = self.finished >= 2 * trial.concurrency and now >= 2 * (self.pipeline.mean_e2e or 0.0)
        return settled or trial.phase is Phase.SCAN

    def tick(self) -> bool:
        """Move from stage to stage; True when the trial is over."""
        now, trial = self.now(), self.trial
        if self.server_lost:
            self.close_window(now, "server_lost")
            self.ended = "server_lost"  # also in the hold: what the window still waits for will not come
            return True
        if self.start is None:
            self.stage = "ramp" if len(self.first_ended) < trial.concurrency else "warmup"
            if self.warm(now):
                self.stage = "window"
                self.monitor.open_window()
                self.evidence.opened.set()
                self.start = self.pipeline.live.start = self.now()
        elif self.end is None:
            if self.window_sent >= trial.requests and now - self.start >= trial.min_time:
                # A little later than now: the last one decided on must also be on its way within the window.
                self.close_window(now + _SEND, "requests")
            elif trial.seconds is not None and now - self.start >= trial.seconds and self.window_sent:
                self.close_window(now + _SEND, "time")
            elif now >= trial.max_time:
                self.close_window(now, "time")
        else:
            return not self.window_pending(self.start, self.end)
        return False

    def window_pending(self, start: float, end: float) -> bool:
        """A request of the window has not ended yet."""
        return any(start - _SEND <= counts_at < end for counts_at in self.pending.values())

    def close_window(self, now: float, why: Ended) -> None:
        """The window ends here; the load goes on until its last request has ended."""
        if self.end is None:
            self.start = now if self.start is None else self.start
            self.end, self.ended, self.stage = now, why, "hold"
            self.monitor.close_window()
            self.evidence.closed.set()

    async def pulse(self, stop: asyncio.Event | None, on_progress: Callable[[TrialProgress], None] | None) -> None:
        """Heartbeat of the trial: measures the loop's lag and moves the stages on."""
        next_progress = 0.0
        while True:
            asleep_since = self.clock()
            await asyncio.sleep(BEAT)
            now = self.clock()
            self.monitor.beat(now - asleep_since - BEAT)
            if stop is not None and stop.is_set():
                self.close_window(self.now(), "interrupted")
                self.ended = "interrupted"  # also in the hold: requests of the window are cut off
                return
            if on_progress is not None and now >= next_progress:
                on_progress(self.progress())
                next_progress = now + _PROGRESS_EVERY
            if self.tick():
                return

    def progress(self) -> TrialProgress:
        """How things stand."""
        now, live = self.now(), self.pipeline.live
        return TrialProgress(
            self.stage, now, len(self.client.in_flight), self.window_sent, self.finished, self.pipeline.failed,
            live.rate(now), live.ttft(0.50), live.ttft(0.99),
        )  # fmt: skip

    async def run(self, stop: asyncio.Event | None, on_progress: Callable[[TrialProgress], None] | None) -> None:
        """The whole trial; returns when every stream has stopped and every exchange is on record."""
        self.pipeline.stock_up(min(self.trial.concurrency, 256))
        # The trial's clock starts here, for the loop and for the records: preparing the first requests is not in it.
        self.zero = self.pipeline.zero = self.clock()
        helpers = [asyncio.create_task(self.pipeline.run()), asyncio.create_task(self.pulse(stop, on_progress))]
        streams = [asyncio.create_task(self.stream(i)) for i in range(self.trial.concurrency)]
        try:
            # Only the pulse ends by itself; anything else ending first is a bug, and its exception must be seen.
            done, _ = await asyncio.wait([*helpers, *streams], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self.close_window(self.now(), "interrupted")
            await self.wind_up([*streams, *helpers])

    async def wind_up(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Cut off what is in flight, and put every exchange on record."""
        self.closing = True
        for exchange in tuple(self.client.in_flight):
            self.client.cut(exchange, Outcome.CANCELLED, "cut off at the end of the trial")
        # A task that was cut off ends its exchange and hands it in; to cancel it at once would lose the record.
        if sending := {exchange.task for exchange in self.client.in_flight if exchange.task is not None}:
            await asyncio.wait(sending, timeout=_CUT_OFF)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.pipeline.finish()


class OpenLoop(ClosedLoop):
    """`trial.concurrency` callers share one sequence of arrivals; each takes the next, waits until it is due, sends."""

    def __init__(
        self, trial: Trial, client: Client, pipeline: RequestPipeline, monitor: HealthMonitor, evidence: Evidence,
        rate: float,
    ) -> None:  # fmt: skip
        super().__init__(trial, client, pipeline, monitor, evidence)
        self.rate = rate
        self.rng = random.Random(f"{trial.seed}/arrivals")
        self.next_due = self.rng.expovariate(rate)

    async def stream(self, number: int) -> None:
        """One of the callers."""
        while not self.closing:
            due = self.next_due
            self.next_due += self.rng.expovariate(self.rate)
            request = self.pipeline.next_request()
            self.pending[request.index] = due
            in_time = due > self.now()
            while due > self.now():  # noqa: ASYNC110 - waits for a time, not for an event
                # Not once: an event loop's clock may be a millisecond early.
                await asyncio.sleep(max(0.001, due - self.now()))
            if self.closing:
                return
            exchange = await self.send(request, number, due, self.zero + due)
            if in_time:
                # Only a send that had a free caller waiting for it can be late through the client's own fault.
                self.monitor.sent(exchange.sent - self.zero - due)
            self.after(exchange, 0.0)

    def warm(self, now: float) -> bool:
        """The asked warm-up and two latencies have passed, and something has been answered."""
        if now >= self.trial.max_time / 2:
            return True
        e2e = self.pipeline.mean_e2e
        return e2e is not None and now >= self.trial.warmup and now >= 2 * e2e

    def window_pending(self, start: float, end: float) -> bool:
        """An arrival of the window has not been answered, or not even been taken by a caller."""
        if self.now() - end > self.client.target.timeouts.total:
            return False
        return self.next_due < end or super().window_pending(start, end)

    async def wind_up(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """As for every trial; arrivals of the window that no caller was ever free for are failures, not forgotten."""
        await super().wind_up(tasks)
        while self.ended in ("requests", "time") and self.end is not None and self.next_due < self.end:
            never_sent = Exchange(self.zero + self.next_due, end=self.clock())
            never_sent.failure = Outcome.TIMEOUT, f"never sent: {self.trial.concurrency} were in flight all the time"
            self.pipeline.put(never_sent, self.pipeline.next_request(), -1, never_sent.sent)
            self.next_due += self.rng.expovariate(self.rate)
        self.pipeline.finish()


async def run_trial(
    trial: Trial,
    target: Target,
    prompts: PromptSource,
    *,
    on_record: Callable[[Record], None],
    rate: float | None = None,
    expected_e2e: float | None = None,
    on_progress: Callable[[TrialProgress], None] | None = None,
    stop: asyncio.Event | None = None,
    identity: str | None = None,
    clock: Clock = time.perf_counter,
) -> Measurement:
    """Run one trial against a settled target (see preflight); each Record goes to `on_record` as it is parsed.

    Closed loop; with a `rate` (requests per second) open loop, with at most `trial.concurrency` in flight, where a
    request belongs to the window if it was scheduled in it.

    The trial takes at most `trial.max_time` seconds, of which warm-up at most half, and then as long as the window's
    last request needs. `expected_e2e` (seconds) spreads the first sends of a closed loop where the output length cannot
    be forced; without it stream 0's first request shows it. Setting `stop` ends the trial at once. Failures of the
    server are records, never exceptions. MeasurementError when the target is not settled.
    """
    if target.api == "auto" or target.model is None:
        raise MeasurementError("the target is not settled: its api or model is unknown", "run preflight first")
    short = trial.concurrency if rate is None and target.forces_length else 0
    stock = 2 + trial.concurrency // 8
    pipeline = RequestPipeline(target, prompts, on_record, stock, short, trial.seed)
    evidence = Evidence(target)
    scraping = asyncio.create_task(evidence.run())
    try:
        with HealthMonitor(clock) as monitor:
            async with Client(target, clock) as client:
                if rate is None:
                    loop = ClosedLoop(trial, client, pipeline, monitor, evidence)
                    loop.spread = expected_e2e
                else:
                    loop = OpenLoop(trial, client, pipeline, monitor, evidence, rate)
                await loop.run(stop, on_progress)
                health = monitor.health(client.resent, client.opened)
            epoch = time.time() - loop.now()
        if loop.ended in ("requests", "time") and evidence.opened.is_set():
            await asyncio.wait([scraping], timeout=2.0)
    finally:
        scraping.cancel()
    assert loop.start is not None
    assert loop.end is not None
    server, server_life = evidence.result()
    full_identity = ", ".join(part for part in (identity, server_life) if part) or None
    return Measurement(trial, epoch, Window(loop.start, loop.end), loop.ended, health, server, full_identity)
