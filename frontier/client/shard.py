"""A shard: the share of one trial's streams that one client process has, and the messages between it and the sweep.

A shard runs its own closed loop and decides nothing about the window. Ten times a second the sweep asks how its streams
stand, gets the records of the requests that have ended since, and says when the window opens, when it closes and when
the trial is over. No token leaves a shard. A record's times count from the trial's start as the shard's own clock has
it, so a latency never mixes two clocks.
"""

import asyncio
import math
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from frontier._version import __version__
from frontier.client.health import HealthMonitor, raise_fd_limit
from frontier.client.http import Client, Clock
from frontier.client.loop import ClosedLoop, new_pipeline, require_settled
from frontier.client.pipeline import Share
from frontier.client.prompts import PromptPlan
from frontier.client.target import Proxies, Target
from frontier.client.window_rules import StreamStatus, WindowState
from frontier.errors import FrontierError
from frontier.model import ClientHealth, Record, Trial, WorkerFacts
from frontier.store.records import encode_record

_OWN_FILES = 64
"""Files that a process opens beside its connections."""


@dataclass(frozen=True, slots=True)
class ShardJob:
    """What a shard is to send. Everything it needs, the key included: it is sent over a pipe and never written.

    The proxies are those of the sweep, wherever the shard runs.
    """

    trial: Trial
    target: Target
    prompts: PromptPlan
    share: Share
    expected_e2e: float | None = None
    proxies: Proxies = field(default_factory=Proxies.of_environment)


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a client process says of itself. Processes of another version are not mixed with this one."""

    version: str = __version__
    host: str = field(default_factory=platform.node)
    pid: int = field(default_factory=os.getpid)


@dataclass(frozen=True, slots=True)
class ShardReport:
    """How a shard's streams stand, and the records (JSON lines) of the requests that ended since the last report."""

    status: StreamStatus
    lines: bytes


@dataclass(frozen=True, slots=True)
class ShardResult:
    """The end of a shard: its last report, its health, and by how many seconds it began late."""

    report: ShardReport
    health: ClientHealth
    late: float


class Shard:
    """One shard of one trial. `state` is what is decided of the window, set from outside as it is decided."""

    def __init__(self, job: ShardJob, clock: Clock = time.perf_counter) -> None:
        """Also prepares the first requests, which takes a while."""
        require_settled(job.target)
        self.job, self.clock = job, clock
        self.state = WindowState()
        self._lines: list[bytes] = []
        self._loop: ClosedLoop | None = None
        self._pipeline = new_pipeline(job.trial, job.target, job.prompts.source(), self._on_record, job.share)
        streams = len(job.share.streams(job.trial.concurrency))
        raise_fd_limit(streams + _OWN_FILES)
        self._pipeline.stock_up(streams)

    async def run(self, zero: float) -> ShardResult:
        """Send from `zero` on, the trial's start on this clock, until the state is over."""
        job, clock = self.job, self.clock
        with HealthMonitor(clock) as monitor:
            async with Client(job.target, clock, proxies=job.proxies) as client:
                loop = ClosedLoop(job.trial, client, self._pipeline, monitor, lambda *_: self.state, share=job.share)
                loop.spread = job.expected_e2e
                await asyncio.sleep(max(0.0, zero - clock()))
                late = max(0.0, clock() - zero)
                self._loop = loop
                await loop.run(zero=zero)
                return ShardResult(self.report(), monitor.health(client.resent, client.opened), late)

    def report(self) -> ShardReport:
        """How the streams stand now, with the records since the last report."""
        lines, self._lines = b"".join(self._lines), []
        return ShardReport(StreamStatus(-math.inf) if self._loop is None else self._loop.status(), lines)

    def _on_record(self, record: Record) -> None:
        self._lines.append(encode_record(record))


class ShardHost:
    """What a client process does when the sweep asks it to, one shard at a time."""

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self._clock = clock
        self._shard: Shard | None = None
        self._running: asyncio.Task[ShardResult] | None = None

    async def answer(self, method: str, arguments: tuple[Any, ...]) -> tuple[str | None, Any]:
        """The answer to a question: (None, result), or (what went wrong, None). A coroutine, so that
        Ray runs its actor on an event loop, which the streams need.
        """
        try:
            return None, getattr(self, method)(*arguments)
        except (FrontierError, AssertionError, OSError, MemoryError) as error:
            return str(error) or type(error).__name__, None

    def info(self) -> WorkerInfo:
        """Who this is."""
        return WorkerInfo()

    def time(self) -> float:
        """This process's clock."""
        return self._clock()

    def prepare(self, job: ShardJob) -> None:
        """Get ready for a shard."""
        self._shard = Shard(job, self._clock)

    def start(self, zero: float) -> None:
        """Begin it at `zero` on this clock."""
        assert self._shard is not None, "prepare first"
        self._running = asyncio.ensure_future(self._shard.run(zero))

    def exchange(self, state: WindowState) -> ShardReport | ShardResult:
        """Hear what is decided of the window; how the shard stands, or its result once it has ended."""
        assert self._shard is not None, "prepare first"
        assert self._running is not None, "start first"
        self._shard.state = state
        return self._running.result() if self._running.done() else self._shard.report()


def worst_health(workers: Sequence[WorkerFacts]) -> ClientHealth:
    """The health of all client processes of a trial: counts are added up, of the rest the worst counts; the deliberate
    waits are averaged over the streams.
    """
    healths = [worker.health for worker in workers]

    def most(name: str) -> float | None:
        return max((value for health in healths if (value := getattr(health, name)) is not None), default=None)

    delays = [(w.streams, w.health.restart_delay_mean) for w in workers if w.health.restart_delay_mean is not None]
    streams = sum(n for n, _ in delays)
    return ClientHealth(
        loop_lag_p99=most("loop_lag_p99"),
        send_late_p99=most("send_late_p99"),
        cpu_share=most("cpu_share"),
        gc_pause_max=most("gc_pause_max"),
        resent=sum(health.resent for health in healths),
        connections_opened=sum(health.connections_opened or 0 for health in healths),
        suspended=most("suspended"),
        stood_still=most("stood_still"),
        restart_delay_mean=sum(n * delay for n, delay in delays) / streams if streams else None,
        processes=len(workers) if len(workers) > 1 else None,
        clock_bound=max(worker.clock_bound for worker in workers) if len(workers) > 1 else None,
    )
