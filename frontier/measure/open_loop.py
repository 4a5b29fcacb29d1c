"""One trial in open loop: requests arrive as a Poisson process, whether or not earlier ones have been answered.

The check of an operating point that a closed loop found. Latency counts from the scheduled arrival, kept as
`Record.scheduled`, so a late send cannot hide a queue (coordinated omission; as wrk2 does). The trial's concurrency is
the admission cap: what arrives while so many are in flight waits here, and its wait counts.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from frontier.measure.clerk import Clerk, Done
from frontier.measure.client import Client, Clock, Exchange
from frontier.measure.evidence import Evidence
from frontier.measure.loop import ClosedLoop, Progress, conduct
from frontier.measure.prompts import PromptSource
from frontier.measure.target import Target
from frontier.measure.watchdog import Watchdog
from frontier.model import Measurement, Outcome, Record, Trial


class OpenLoop(ClosedLoop):
    """`trial.concurrency` callers share one sequence of arrivals; each takes the next, waits until it is due, sends."""

    def __init__(
        self, trial: Trial, target: Target, client: Client, clerk: Clerk, watchdog: Watchdog, evidence: Evidence,
        rate: float,
    ) -> None:  # fmt: skip
        super().__init__(trial, target, client, clerk, watchdog, evidence, None)
        self.rate = rate
        self.rng = random.Random(f"{trial.seed}/arrivals")
        self.next_due = self.rng.expovariate(rate)

    async def stream(self, number: int) -> None:
        """One of the callers."""
        while not self.closing:
            due = self.next_due
            self.next_due += self.rng.expovariate(self.rate)
            job = self.clerk.next_job()
            self.pending[job.index] = due
            in_time = due > self.now()
            while due > self.now():  # noqa: ASYNC110 - waits for a time, not for an event
                # Not once: an event loop's clock may be a millisecond early.
                await asyncio.sleep(max(0.001, due - self.now()))
            if self.closing:
                return
            exchange = await self.send(job, number, due, self.zero + due)
            if in_time:
                # Only a send that had a free caller waiting for it can be late through the client's own fault.
                self.watchdog.sent(exchange.sent - self.zero - due)
            self.after(exchange, 0.0)

    def warm(self, now: float) -> bool:
        """The asked warm-up and two latencies have passed, and something has been answered."""
        if now >= self.trial.max_time / 2:
            return True
        e2e = self.clerk.mean_e2e
        return e2e is not None and now >= self.trial.warmup and now >= 2 * e2e

    def window_pending(self, start: float, end: float) -> bool:
        """An arrival of the window has not been answered, or not even been taken by a caller."""
        if self.now() - end > self.client.target.timeouts.total:
            return False
        return self.next_due < end or super().window_pending(start, end)

    async def wind_up(self, streams: Sequence[asyncio.Task[Any]], helpers: Sequence[asyncio.Task[Any]]) -> None:
        """As for every trial; arrivals of the window that no caller was ever free for are failures, not forgotten."""
        await super().wind_up(streams, helpers)
        while self.ended in ("requests", "time") and self.end is not None and self.next_due < self.end:
            never = Exchange(self.zero + self.next_due, end=self.clock())
            never.failure = Outcome.TIMEOUT, f"never sent: {self.trial.concurrency} were in flight all the time"
            self.clerk.put(Done(self.clerk.next_job(), -1, never, never.sent))
            self.next_due += self.rng.expovariate(self.rate)
        self.clerk.finish()


async def run_open_trial(
    trial: Trial,
    target: Target,
    prompts: PromptSource,
    *,
    rate: float,
    sink: Callable[[Record], None],
    on_progress: Callable[[Progress], None] | None = None,
    stop: asyncio.Event | None = None,
    identity: str | None = None,
    clock: Clock = time.perf_counter,
) -> Measurement:
    """Run one trial with Poisson arrivals of `rate` requests per second and at most `trial.concurrency` in flight.

    Everything else is as in `run_trial`; a request belongs to the window if it was scheduled in it.
    """
    return await conduct(
        partial(OpenLoop, rate=rate),
        trial, target, prompts, sink, on_progress, stop, identity, clock,
    )  # fmt: skip
