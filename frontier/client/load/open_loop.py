"""The open loop of one trial: requests arrive at a rate, whether or not earlier ones have been
answered.

Latency counts from the scheduled arrival, kept as `Record.scheduled`, so a late send cannot hide a
queue (coordinated omission; as wrk2 does). A request that arrives while `trial.streams` are in
flight waits here, and its wait counts. The first turns of sessions arrive. A later turn is due when
its thinking is over, whether or not it can be sent then, and its latency counts from there.
"""

import asyncio
import contextlib
import heapq
from collections.abc import Sequence
from typing import Any

from frontier.client.ask.evidence import Evidence
from frontier.client.engines.request import PreparedRequest
from frontier.client.http.exchange import Exchange
from frontier.client.http.http_client import Client
from frontier.client.load.health import HealthMonitor
from frontier.client.load.loop import ClosedLoop, Decide
from frontier.client.load.pipeline import RequestPipeline
from frontier.core.model.loads import POISSON
from frontier.core.model.trials import Outcome, Trial


class OpenLoop(ClosedLoop):
    """`trial.streams` callers share one sequence of due requests: arrivals, and later turns of
    sessions that arrived. One caller waits for the next request and sends it; others follow. A
    session that thinks takes no caller.
    """

    def __init__(
        self,
        trial: Trial,
        client: Client,
        pipeline: RequestPipeline,
        monitor: HealthMonitor,
        decide: Decide,
        evidence: Evidence,
    ) -> None:
        super().__init__(trial, client, pipeline, monitor, decide, evidence)
        rate = trial.load.per_second
        assert rate is not None, "a trial in open loop has a rate"
        self.arrivals = (trial.shape.arrivals or POISSON).times(rate, trial.seed)
        self.next_arrival = next(self.arrivals)
        self.arriving: PreparedRequest | None = None
        self.later: list[tuple[float, int, PreparedRequest]] = []
        self.sooner = asyncio.Event()
        self.first_in_line = asyncio.Lock()

    @property
    def next_due(self) -> float:
        """When the next arrival or later turn is due."""
        return min(self.next_arrival, self.later[0][0]) if self.later else self.next_arrival

    def take(self) -> tuple[float, PreparedRequest]:
        """The request that is due next, and when."""
        if self.later and self.later[0][0] <= self.next_arrival:
            due, _, request = heapq.heappop(self.later)
            return due, request
        due, self.next_arrival = self.next_arrival, next(self.arrivals)
        request, self.arriving = self.arriving or self.pipeline.next_request(), None
        return due, request

    async def until_due(self) -> None:
        """Wait until something is due."""
        while (seconds := self.next_due - self.now()) > 0 and not self.closing:
            self.sooner.clear()  # a turn that is due before what is waited for sets it
            with contextlib.suppress(TimeoutError):
                # Not once: an event loop's clock may be a millisecond early.
                async with asyncio.timeout(max(0.001, seconds)):
                    await self.sooner.wait()

    async def stream(self, number: int) -> None:
        """One of the callers."""
        while not self.closing:
            free = self.now()
            async with self.first_in_line:
                self.arriving = self.arriving or self.pipeline.next_request()
                await self.until_due()
                if self.closing:
                    return
                due, request = self.take()
            exchange = await self.send(request, number, due, self.zero + due)
            if free < due:
                # Only a send that had a free caller waiting for it can be late through the client's
                # own fault.
                self.monitor.sent(exchange.sent - self.zero - due)
            self.after(exchange, 0.0)
            # Until the answer has been read, its next turn may be due in the window.
            self.pending[request.index] = exchange.end - self.zero
            following = await self.pipeline.next_turn(request)
            del self.pending[request.index]
            if following is not None:
                due = exchange.end - self.zero + following.pause if following.pause else self.now()
                heapq.heappush(self.later, (due, following.index, following))
                self.sooner.set()

    def window_pending(self, start: float, end: float) -> bool:
        """Whether a request that was due in the window has not been answered, or not even been
        taken by a caller.
        """
        if self.now() - end > self.client.target.timeouts.total:
            return False
        return self.next_due < end or super().window_pending(start, end)

    async def wind_up(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """As for every trial. A request that was due in the window while no caller was free is a
        failure.
        """
        await super().wind_up(tasks)
        state = self.state
        while state.ended in ("requests", "time", "failing") and state.end is not None and self.next_due < state.end:
            due, request = self.take()
            never_sent = Exchange(self.zero + due, end=self.clock())
            never_sent.failure = Outcome.TIMEOUT, f"never sent: {self.trial.streams} were in flight all the time"
            self.pipeline.put(never_sent, request, -1, never_sent.sent)
        self.pipeline.finish()
