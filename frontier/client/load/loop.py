"""The closed loop of one trial: N streams, each of which holds one session after another.

In: the trial, the client that sends, the pipeline that prepares requests and parses answers, and
`decide`, the rules of the window (see `rules`). Out: when `run` returns, the pipeline has every
exchange on record. A session is one request, or several turns with seconds of thinking between
them; a failed turn ends it. The next session follows at once.

The subtle part is an even load. The streams start out of step: the first request of each asks for a
random share of the output length; where the length cannot be forced, the first sends spread over
one estimated end-to-end latency. Warm-up hands its slots over without draining. Latency counts the
requests sent in the window. The load is held until the last of them has ended; what is still in
flight then is cancelled. (A closed system: Schroeder, Wierman and Harchol-Balter, NSDI 2006.)
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from yarl import URL

from frontier.client.ask.evidence import Evidence
from frontier.client.engines.request import PreparedRequest
from frontier.client.http.exchange import Exchange
from frontier.client.http.http_client import Client
from frontier.client.http.parse import no_token_since, parse_all
from frontier.client.http.pool import requests_each
from frontier.client.http.retry_after import retry_after
from frontier.client.load.health import BEAT, HealthMonitor
from frontier.client.load.pipeline import WHOLE, LiveStats, RequestPipeline, Share
from frontier.client.load.rules import SEND, WARMUP_SHARE, Pacing, StreamStatus, TrialStage, WindowState, patience
from frontier.core.model.trials import Outcome, Trial

_PROGRESS_EVERY = 0.5
_BACK_OFF = (0.05, 2.0)
_LONGEST_RETRY_AFTER = 10.0
_GLANCE = 8
"""Reads of an answer that may be looked at between two sends."""
_LOST_AFTER = 3.0
_DOWN_AFTER = 10.0
_FEW, _MANY = 8, 32
"""Failures in a row that end a trial: the first number after _DOWN_AFTER seconds, the second after
_LOST_AFTER."""
_CUT_OFF = 5.0
"""Seconds until requests that were cut off must be on record: a busy machine may need them."""


@dataclass(frozen=True, slots=True)
class TrialProgress:
    """How a running trial stands. `window_sent` counts the requests sent in the window so far.

    `rate` (output tokens per second), `p50_ttft` and `p99_ttft` (seconds) are of the window so far,
    for display; None before there is anything. `silent` are the seconds of the requests that have
    been silent for long.
    """

    stage: TrialStage
    elapsed: float
    in_flight: int
    window_sent: int
    failed: int
    rate: float | None = None
    p50_ttft: float | None = None
    p99_ttft: float | None = None
    silent: tuple[float, ...] = ()

    @classmethod
    def of(
        cls, stage: TrialStage, status: StreamStatus, live: LiveStats, silent: tuple[float, ...] = ()
    ) -> "TrialProgress":
        """How the streams stand, and what has ended."""
        return cls(
            stage,
            status.now,
            status.in_flight,
            status.window_sent,
            status.failed,
            live.rate(status.now),
            live.ttft(0.50),
            live.ttft(0.99),
            silent,
        )


Decide = Callable[[WindowState, StreamStatus], WindowState]
"""The next state of the window, given the state before and how the streams stand."""


class ClosedLoop:
    """The streams of one running trial, or a share of them (see `shard`). Run by
    `run_trial`.

    The loop decides nothing about the window: every few milliseconds `decide` does, and the loop
    follows.
    """

    def __init__(
        self,
        trial: Trial,
        client: Client,
        pipeline: RequestPipeline,
        monitor: HealthMonitor,
        decide: Decide,
        evidence: Evidence | None = None,
        share: Share = WHOLE,
    ) -> None:
        self.trial, self.client, self.pipeline = trial, client, pipeline
        self.monitor, self.decide, self.evidence = monitor, decide, evidence
        self.numbers = share.streams(trial.streams)
        self.client.renewal.streams = 0 if trial.load.is_open else len(self.numbers)
        self.target = client.target
        self.url = URL(self.target.request_url, encoded=True)
        self.clock = client.clock
        self.zero = self.clock()
        self.spread: float | None = None
        self.spread_known = asyncio.Event()
        self.stage: TrialStage = "ramp"
        self.state = WindowState()
        self.closing = False
        self.first_ended: set[int] = set()
        self.pacing = Pacing(len(self.numbers))
        self.finished = self.window_sent = 0
        self.pending: dict[int, float] = {}
        self.opened = asyncio.Event()
        self.held: dict[int, int] = {}
        self.connect_failures = 0
        self.connect_failing_since = 0.0
        self.failing_since: float | None = None
        self.answered = -math.inf
        """When a request that was answered with a status ended last, on the client's clock."""

    def now(self) -> float:
        """Seconds since the trial's start."""
        return self.clock() - self.zero

    # --- the streams

    async def stream(self, number: int) -> None:
        """One of the N streams: `wait_turn` holds back the first send, then requests follow each
        other. The pipeline gives the next request, `send` posts it to its end, and `after` counts
        failures and gives the pause. The pipeline then gives the next turn of the session, if any.
        A turn with thinking time waits for that; otherwise `hold_back` waits for the pause, or to
        stay out of step.
        """
        if not self.pipeline.short and not self.trial.shape.has_sessions:
            await self.wait_turn(number)
        free, pause = self.clock(), 0.0
        request: PreparedRequest | None = None
        while not self.closing:
            request = request or self.pipeline.next_request()
            free += request.pause
            if (thinking := free - self.clock()) > 0:
                await asyncio.sleep(thinking)
                if self.closing:
                    return
            exchange = await self.send(request, number, self.now(), None)
            self.monitor.sent(exchange.sent - free)
            free = exchange.end
            self.first_ended.add(number)
            pause = self.after(exchange, pause)
            request = await self.pipeline.next_turn(request)
            if request is not None and request.pause:
                continue
            if request is not None:  # the next turn is due when the answer has been read
                free = self.clock()
            free = await self.hold_back(free, pause, exchange.end)

    async def hold_back(self, free: float, pause: float, ended: float) -> float:
        """Wait after a failure, or for the moment that keeps streams out of step. Returns when the
        stream may send again. Before, that was `free`; its last request ended at `ended`.
        """
        delay = 0.0 if pause else self.pacing.delay(free, self.pipeline.times.tpot, self.pipeline.times.e2e)
        if not (pause or delay) or self.closing:
            return free
        await (self.rest(pause) if pause else asyncio.sleep(delay))
        free = self.clock()
        if delay:
            self.monitor.delayed(free - ended)
        return free

    async def rest(self, pause: float) -> None:
        """Pause after a failure. A pause that began before the window ends as it opens: a server
        that has a stream wait for longer would be in no record of the window.
        """
        if self.opened.is_set():
            await asyncio.sleep(pause)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.opened.wait(), pause)
            await asyncio.sleep(max(0.0, (self.state.start or 0.0) - self.now()))

    async def send(self, request: PreparedRequest, number: int, counts_at: float, scheduled: float | None) -> Exchange:
        """One request to its end. It belongs to the window if `counts_at` (seconds on the trial's
        clock) does. The turns of a session go out on one connection where that is still free:
        behind a balancer it leads to the replica that has the history in its cache.
        """
        if self.stage == "window":
            self.window_sent += 1
        self.pending[request.index] = counts_at
        before, goes_on = self.held.pop(request.session, None), request.goes_on
        exchange = await self.client.post(self.url, request.body, connection=before, held=goes_on)
        if goes_on and exchange.connection is not None:
            self.held[request.session] = exchange.connection
        del self.pending[request.index]
        self.finished += 1
        self.pipeline.put(exchange, request, number, scheduled)
        return exchange

    async def wait_turn(self, number: int) -> None:
        """Hold the first send back, so that the N first sends spread over one end-to-end latency. A
        slow server gets less: the time until the window must open, so that all N are in flight
        then.
        """
        if number == self.numbers[0]:
            return
        ramp = self.trial.max_time * WARMUP_SHARE
        if self.spread is None:
            # How long a request takes is not known: the first stream's first one shows it, unless
            # it takes too long to.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.spread_known.wait(), ramp / 2)
        begin = self.now()
        spread = min(ramp if self.spread is None else self.spread, max(0.0, ramp - begin))
        await asyncio.sleep(spread * number / self.trial.load - (self.now() - begin))

    def after(self, exchange: Exchange, pause: float) -> float:
        """Keep count of failures; seconds to pause before this stream's next send (0 after a
        success).
        """
        if self.spread is None:
            self.spread = exchange.end - exchange.sent
            self.spread_known.set()
        if exchange.status is not None:
            self.answered = exchange.end
        failure = exchange.failure
        if failure is None or failure[0] not in (Outcome.CONNECT, Outcome.TLS):
            self.connect_failures = 0
        else:
            if self.connect_failures == 0:
                self.connect_failing_since = self.clock()
            self.connect_failures += 1
        good = failure is None or self.complete(exchange)
        if good and exchange.status is not None and exchange.status < 300:
            return _BACK_OFF[0] if self.failed_at_once(exchange) else 0.0
        requested = min(retry_after(exchange) or 0.0, _LONGEST_RETRY_AFTER)
        return max(requested, min(_BACK_OFF[1], max(_BACK_OFF[0], pause * 2)))

    def complete(self, exchange: Exchange) -> bool:
        """Whether an answer was complete before its body was cut off or reset."""
        if exchange.failure is None or exchange.failure[0] not in (Outcome.TRUNCATED, Outcome.STREAM_ERROR):
            return False
        parser = exchange.parser = parse_all(exchange, self.target.engine, self.target.api)
        return parser.verdict()[0] is Outcome.OK

    def failed_at_once(self, exchange: Exchange) -> bool:
        """Whether a quick 2xx answer is a failure, as an error in a 200 stream: a stream must not
        spin on it.

        Answers are parsed later, by the pipeline; only these few bytes are parsed here, and not
        again there. A quick good one (a prompt with one token out) is no reason to pause.
        """
        if exchange.end - exchange.sent >= _BACK_OFF[0] or len(exchange.reads) > _GLANCE:
            return False
        parser = exchange.parser = parse_all(exchange, self.target.engine, self.target.api)
        return parser.verdict()[0] is not Outcome.OK

    # --- the window

    def cut_silent(self) -> None:
        """Give up requests that have brought nothing for much longer than any answer of the trial
        did: they would keep it open for ever. Before the first answer none is given up.
        """
        if (longest := self.pipeline.longest_wait) is None:
            return
        allowed, engine, api = patience(longest), self.target.engine, self.target.api
        for exchange in tuple(self.client.in_flight):
            idle = no_token_since(exchange, engine, api, self.clock() - allowed)
            if idle or self.silence(exchange) > allowed:
                self.client.cut(exchange, Outcome.TIMEOUT, f"silent for {allowed:.3g} s, and the window had closed")

    def silence(self, exchange: Exchange) -> float:
        """Seconds since something of an answer came, or since its request was sent."""
        last = exchange.last_read
        return self.clock() - (exchange.sent if last is None else last)

    def silent(self) -> tuple[float, ...]:
        """The seconds of the requests that have been silent for long."""
        return tuple(since for exchange in self.client.in_flight if (since := self.silence(exchange)) > patience())

    @property
    def server_lost(self) -> bool:
        """The circuit breaker: whether the server is gone. It is after a while of nothing but
        refused connections, or a longer time without an answer with a status and without a byte in
        any stream.
        """
        now, since, enough = self.clock(), self.failing_since, min(32, max(5, len(self.numbers)))
        if since is None:
            return False
        if self.connect_failures >= enough and now - self.connect_failing_since > _LOST_AFTER:
            return True
        silent = self.pipeline.failed_in_a_row >= enough and now - since > _DOWN_AFTER
        return silent and self.answered < since and not self.client.received_since(since)

    @property
    def failing(self) -> float | None:
        """Since when, on the trial's clock, every request has been answered with a failure. Such a
        server is not lost, but to go on would only hammer it. None until that has lasted, and while
        an earlier request still receives.
        """
        since, row = self.failing_since, self.pipeline.failed_in_a_row
        if since is None or self.answered < since:
            return None
        lasts = self.clock() - since
        few, many = min(_MANY, max(_FEW, len(self.numbers))), max(_MANY, len(self.numbers))
        if not (row >= many and lasts > _LOST_AFTER) and not (row >= few and lasts > _DOWN_AFTER):
            return None
        earlier = (exchange.last_read for exchange in self.client.in_flight if exchange.sent < since)
        return None if any(read is not None and read > since for read in earlier) else self.pipeline.failing_from

    def status(self) -> StreamStatus:
        """How the streams stand."""
        now, state, pipeline = self.now(), self.state, self.pipeline
        if pipeline.failed_in_a_row == 0:
            self.failing_since = None
        elif self.failing_since is None:
            self.failing_since = self.clock()
        waiting = True
        if state.start is not None and state.end is not None and now >= state.end:
            waiting = self.window_pending(state.start, state.end)
        return StreamStatus(
            now,
            len(self.first_ended),
            self.finished,
            pipeline.failed,
            len(self.client.in_flight),
            self.window_sent,
            waiting,
            pipeline.times.count,
            pipeline.times.e2e_sum,
            self.server_lost,
            self.failing,
            pipeline.times.early_e2e,
            min(self.pending.values(), default=None) if state.end is None else None,
        )

    def follow(self, state: WindowState) -> None:
        """Take over the new state of the window."""
        self.state, now = state, self.now()
        # What was announced further ahead than the margin for a send comes at its time.
        if self.stage in ("ramp", "warmup"):
            if state.start is not None and state.start - now < 2 * SEND:
                self.stage = "window"
                self.opened.set()
                self.client.renewal.requests_each = self.requests_each(now)
                self.monitor.open_window()
                self.pipeline.live.start = state.start
                if self.evidence is not None:
                    self.evidence.opened.set()
            else:
                self.stage = state.stage(now, len(self.first_ended) == len(self.numbers))
        if state.end is not None and self.stage != "hold" and state.end - now < 2 * SEND:
            self.stage = "hold"
            self.monitor.close_window()
            if self.evidence is not None:
                self.evidence.closed.set()

    def requests_each(self, now: float) -> float | None:
        """How many requests each connection is to carry in the window, which opens now. The window
        is expected to have the requests asked for, or as many as fit into its time at the rate of
        the warm-up.
        """
        trial, mine = self.trial, len(self.numbers) / self.trial.streams
        seconds = trial.max_time - now if trial.seconds is None else min(trial.seconds, trial.max_time - now)
        rate = self.finished / max(now, SEND)
        expected = max(1.0, min(max(trial.requests * mine, rate * trial.min_time), rate * seconds))
        wanted = self.target.connections
        return requests_each(wanted, trial.streams, expected / mine, open_loop=trial.load.is_open)

    def window_pending(self, start: float, end: float) -> bool:
        """Whether a request of the window has not ended yet."""
        return any(start - SEND <= counts_at < end for counts_at in self.pending.values())

    async def pulse(self, stop: asyncio.Event | None, on_progress: Callable[[TrialProgress], None] | None) -> None:
        """Heartbeat of the trial: measures the loop's lag and moves the stages on."""
        next_progress = 0.0
        while True:
            asleep_since = self.clock()
            await asyncio.sleep(BEAT)
            now = self.clock()
            self.monitor.beat(now - asleep_since - BEAT)
            if stop is not None and stop.is_set():
                self.follow(self.state.cut_short(self.now(), "interrupted"))
                return
            status = self.status()
            if now >= next_progress:
                if on_progress is not None:
                    on_progress(TrialProgress.of(self.stage, status, self.pipeline.live, self.silent()))
                if self.stage == "hold":
                    self.cut_silent()
                next_progress = now + _PROGRESS_EVERY
            self.follow(self.decide(self.state, status))
            if self.state.over:
                return

    async def run(
        self,
        stop: asyncio.Event | None = None,
        on_progress: Callable[[TrialProgress], None] | None = None,
        zero: float | None = None,
    ) -> None:
        """The whole trial; returns when every stream has stopped and every exchange is on record.

        The trial's clock starts here, for the loop and for the records, or counts from `zero` on
        the client's clock.
        """
        self.zero = self.pipeline.zero = self.clock() if zero is None else zero
        helpers = [asyncio.create_task(self.pipeline.run()), asyncio.create_task(self.pulse(stop, on_progress))]
        streams = [asyncio.create_task(self.stream(number)) for number in self.numbers]
        try:
            # Only the pulse ends by itself; anything else ending first is a bug, and its exception
            # must be seen.
            done, _ = await asyncio.wait([*helpers, *streams], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            if self.state.end is None:
                self.follow(self.state.cut_short(self.now(), "interrupted"))
            await self.wind_up([*streams, *helpers])

    async def wind_up(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Cut off what is in flight, and put every exchange on record."""
        self.closing = True
        self.cut_silent()
        for exchange in tuple(self.client.in_flight):
            self.client.cut(exchange, Outcome.CANCELLED, "cut off at the end of the trial")
        # A task that was cut off ends its exchange and hands it in; to cancel it at once would lose
        # the record.
        if sending := {exchange.task for exchange in self.client.in_flight if exchange.task is not None}:
            await asyncio.wait(sending, timeout=_CUT_OFF)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.pipeline.finish()
