"""A trial shared among client processes: the shard that each sends, and the sweep's side of it.

A shard is the share of one trial's streams that one client process has. It runs its own closed loop
and decides nothing about the window. Ten times a second the sweep asks how its streams stand, and
gets the records of the requests that have ended since. It says when the window opens, when it
closes and when the trial is over. No token leaves a shard. A record's times count from the trial's
start as the shard's own clock has it, so a latency never mixes two clocks.

The sweep's process sends no load here. It places the clocks of the workers before and after the
trial, gives each its shard, and decides by their sum with the same rules as for one process:
synchronised start, one window for all, exact accounting, one measurement. A worker makes the whole
trial worthless if it is lost, silent, late, of another version, or if its clock cannot be placed. A
part of a trial is never kept.
"""

import asyncio
import itertools
import math
import platform
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from frontier._version import __version__
from frontier.client.ask.evidence import Evidence
from frontier.client.ask.prompts import PromptPlan
from frontier.client.ask.target import Proxies, Target
from frontier.client.http.http_client import Client, Clock
from frontier.client.load.health import OTHER_FILES, HealthMonitor, raise_fd_limit
from frontier.client.load.loop import ClosedLoop, TrialProgress
from frontier.client.load.pipeline import LiveStats, RequestPipeline, Share, named_together
from frontier.client.load.rules import StreamStatus, WindowState, next_state, together
from frontier.client.load.trial import measurement
from frontier.core.model.errors import FrontierError, MeasurementError
from frontier.core.model.trials import ClientHealth, Measurement, Record, Trial, WorkerFacts

ASK_EVERY = 0.1
LEAD = 0.25
"""Seconds ahead that the start, the opening and the close of the window are announced."""
LATE = 0.5
"""Seconds after the trial's start at which a worker may begin."""
SILENT = 10.0
"""Seconds after which a worker that does not answer is taken for lost."""
READY_WITHIN = 60.0
CLOCK_BOUND = 0.050
"""Seconds within which a worker's clock must be known: it places the window, no latency depends on
it."""
_PINGS = 20
_PROGRESS_EVERY = 0.5


@dataclass(frozen=True, slots=True)
class ShardJob:
    """What a shard is to send. Everything it needs, the key included: it is sent over a pipe and
    never written.

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
    """A client process: its version and host. Processes of another version are not mixed with this
    one.
    """

    version: str = __version__
    host: str = field(default_factory=platform.node)


@dataclass(frozen=True, slots=True)
class ShardReport:
    """How a shard's streams stand, and the records of the requests that ended since the last
    report.
    """

    status: StreamStatus
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class ShardResult(ShardReport):
    """The last report of a shard: its health, by how many seconds it began late, and what the
    answers named.
    """

    health: ClientHealth
    late: float
    named: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class ShardHost:
    """A client process: it answers the sweep's questions and sends one shard at a time."""

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self.clock = clock
        self._state = WindowState()
        self._records: list[Record] = []
        self._job: ShardJob | None = None
        self._loop: ClosedLoop | None = None
        self._running: asyncio.Task[ShardResult] | None = None

    async def answer(self, method: str, arguments: tuple[Any, ...]) -> tuple[str | None, Any]:
        """The answer to a question: (None, result), or (what went wrong, None). A coroutine, so
        that Ray runs its actor on an event loop, which the streams need.
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
        return self.clock()

    def prepare(self, job: ShardJob) -> None:
        """Get ready for a shard: also prepares the first requests, which takes a while."""
        self._state, self._records, self._loop = WindowState(), [], None
        self._pipeline = RequestPipeline(job.trial, job.target, job.prompts.source(), self._on_record, job.share)
        self._job = job
        raise_fd_limit(len(job.share.streams(job.trial.load)) + OTHER_FILES)

    def start(self, zero: float) -> None:
        """Begin it at `zero` on this clock."""
        assert self._job is not None, "prepare first"
        self._running = asyncio.ensure_future(self._run(self._job, zero))

    def exchange(self, state: WindowState) -> ShardReport:
        """Take the new state of the window. Returns how the shard stands, or its result once it has
        ended.
        """
        assert self._running is not None, "start first"
        self._state = state
        return self._running.result() if self._running.done() else self._report()

    async def _run(self, job: ShardJob, zero: float) -> ShardResult:
        """Send from `zero` on, the trial's start on this clock, until the state is over."""
        clock = self.clock
        with HealthMonitor(clock) as monitor:
            numbers = itertools.count(job.share.index, job.share.of)
            async with Client(job.target, clock, proxies=job.proxies, numbers=numbers) as client:
                loop = ClosedLoop(job.trial, client, self._pipeline, monitor, lambda *_: self._state, share=job.share)
                loop.spread = job.expected_e2e
                await asyncio.sleep(max(0.0, zero - clock()))
                late = max(0.0, clock() - zero)
                self._loop = loop
                await loop.run(zero=zero)
                health = monitor.health(client.resent, client.opened, client.renewal)
                last = self._report()
                return ShardResult(last.status, last.records, health, late, self._pipeline.named.counts())

    def _report(self) -> ShardReport:
        """How the streams stand now, with the records since the last report."""
        records, self._records = tuple(self._records), []
        if self._loop is None:
            return ShardReport(StreamStatus(-math.inf), records)
        return ShardReport(replace(self._loop.status(), silent=self._loop.silent()), records)

    def _on_record(self, record: Record) -> None:
        self._records.append(record)


# --- the sweep's side


def worst_health(workers: Sequence[WorkerFacts]) -> ClientHealth:
    """The health of all client processes of a trial: counts are added up, of the rest the worst
    counts; the deliberate waits are averaged over the streams.
    """
    healths = [worker.health for worker in workers]

    def most(name: str) -> float | None:
        return max((value for health in healths if (value := getattr(health, name)) is not None), default=None)

    delays = [(w.streams, w.health.restart_delay_mean) for w in workers if w.health.restart_delay_mean is not None]
    streams = sum(n for n, _ in delays)
    worst = ("loop_lag_p99", "send_late_p99", "cpu_share", "gc_pause_max", "suspended", "stood_still")
    return ClientHealth(
        **{name: most(name) for name in worst},
        resent=sum(health.resent for health in healths),
        connections_opened=sum(health.connections_opened or 0 for health in healths),
        connections_renewed=sum(health.connections_renewed or 0 for health in healths),
        renewals_failed=sum(health.renewals_failed or 0 for health in healths),
        restart_delay_mean=sum(n * delay for n, delay in delays) / streams if streams else None,
        processes=len(workers) if len(workers) > 1 else None,
        clock_bound=max(worker.clock_bound for worker in workers) if len(workers) > 1 else None,
    )


class Worker(Protocol):
    """A client process that answers the questions of a `ShardHost`. `name` is for messages."""

    name: str

    async def call(self, method: str, *arguments: Any) -> Any:
        """The answer. WorkerLostError when the process is gone or could not do it."""


class WorkerLostError(MeasurementError):
    """A client process was lost, silent, late or of another version; the trial does not count."""


@dataclass(frozen=True, slots=True)
class ClockFit:
    """A worker's clock is `offset` seconds ahead of this process's, within `bound`."""

    offset: float
    bound: float


async def fit_clock(worker: Worker, clock: Clock) -> ClockFit:
    """The fit of the fastest of some round trips: the answer was given somewhere between question
    and receipt.
    """
    fits = []
    for _ in range(_PINGS):
        asked = clock()
        theirs = await worker.call("time")
        half = (clock() - asked) / 2
        fits.append(ClockFit(theirs - asked - half, half))
    return min(fits, key=lambda fit: fit.bound)


async def run_sharded(  # noqa: PLR0913
    trial: Trial,
    target: Target,
    prompts: PromptPlan,
    workers: Sequence[Worker],
    *,
    on_record: Callable[[Record], None],
    expected_e2e: float | None = None,
    on_progress: Callable[[TrialProgress], None] | None = None,
    stop: asyncio.Event | None = None,
    whole: int = 1,
) -> Measurement:
    """Run one trial in closed loop on these workers; otherwise as `run_trial`.

    WorkerLostError when one of them fails: the others may then still be sending, and are of no more
    use.
    """
    async with Evidence(target) as evidence:
        sharded = _ShardedTrial(trial, workers[: trial.load], evidence, on_record, whole)
        await sharded.begin(target, prompts, expected_e2e)
        await sharded.follow(stop, on_progress)
        epoch, evidence.zero = time.time() - sharded.now(), time.perf_counter() - sharded.now()
        facts = await sharded.worker_facts()
        evidence.named = named_together(result.named for result in sharded.results)
        return await measurement(trial, epoch, sharded.state, worst_health(facts), evidence, facts)


class _ShardedTrial:
    """The state of one trial on several workers."""

    def __init__(
        self,
        trial: Trial,
        workers: Sequence[Worker],
        evidence: Evidence,
        on_record: Callable[[Record], None],
        whole: int,
    ) -> None:
        self.trial, self.workers, self.evidence, self.whole = trial, workers, evidence, whole
        self.on_record, self.clock = on_record, time.perf_counter
        self.shares = [Share(i, len(workers)) for i in range(len(workers))]
        self.state = WindowState()
        self.live = LiveStats()
        self.zero = 0.0
        self.infos: list[WorkerInfo] = []
        self.before: list[ClockFit] = []
        self.results: list[ShardResult] = []

    def now(self) -> float:
        """Seconds since the trial's start."""
        return self.clock() - self.zero

    async def begin(self, target: Target, prompts: PromptPlan, expected_e2e: float | None) -> None:
        """Get all workers ready, then start them at one time."""
        self.infos = await self._of_all(lambda worker: worker.call("info"), READY_WITHIN)
        for worker, info in zip(self.workers, self.infos, strict=True):
            if info.version != __version__:
                what = f"{worker.name} runs frontier {info.version}, and this is {__version__}"
                raise WorkerLostError(what, "install one version everywhere")
        jobs = [ShardJob(self.trial, target, prompts, share, expected_e2e) for share in self.shares]
        await self._of_all(lambda worker, job: worker.call("prepare", job), READY_WITHIN, jobs)
        # One after another: questions to one worker would lengthen the round trips of the next.
        self.before = [await self._within(worker, fit_clock(worker, self.clock)) for worker in self.workers]
        self.zero = self.clock() + LEAD
        starts = [self.zero + fit.offset for fit in self.before]
        await self._of_all(lambda worker, start: worker.call("start", start), SILENT, starts)

    async def follow(self, stop: asyncio.Event | None, on_progress: Callable[[TrialProgress], None] | None) -> None:
        """Ask how the workers stand and decide of the window until the trial is over; then wait for
        their ends.
        """
        next_progress = 0.0
        while not self.state.over:
            answers = await self._of_all(lambda worker: worker.call("exchange", self.state), SILENT)
            if any(isinstance(answer, ShardResult) for answer in answers):
                raise WorkerLostError("a client process ended its share of the trial early")
            for report in answers:
                self._take(report)
            status, now = together([report.status for report in answers]), self.now()
            if stop is not None and stop.is_set():
                self.state = self.state.cut_short(now, "interrupted")
            else:
                self.state = next_state(self.trial, self.state, status, lead=LEAD, whole=self.whole)
            self._tell_evidence()
            if on_progress is not None and now >= next_progress:
                stage = self.state.stage(now, status.begun == self.trial.load)
                on_progress(TrialProgress.of(stage, status, self.live, status.silent))
                next_progress = now + _PROGRESS_EVERY
            await asyncio.sleep(ASK_EVERY)
        self.results = list(await asyncio.gather(*map(self._result, self.workers)))

    async def _result(self, worker: Worker) -> ShardResult:
        """The result of a worker that winds up. It is asked for until it is there, and then no
        more.
        """
        while True:
            answer: ShardReport = await self._within(worker, worker.call("exchange", self.state))
            self._take(answer)
            if isinstance(answer, ShardResult):
                return answer
            await asyncio.sleep(ASK_EVERY)

    def _take(self, report: ShardReport) -> None:
        """Put the records of a report on record."""
        for record in report.records:
            self.live.add(record)
            self.on_record(record)

    def _tell_evidence(self) -> None:
        """Open and close the window of the evidence, which is gathered here."""
        if self.state.start is not None and not self.evidence.opened.is_set():
            self.live.start = self.state.start
            asyncio.get_running_loop().call_later(max(0.0, self.state.start - self.now()), self.evidence.opened.set)
        if self.state.end is not None:
            asyncio.get_running_loop().call_later(max(0.0, self.state.end - self.now()), self.evidence.closed.set)

    async def worker_facts(self) -> tuple[WorkerFacts, ...]:
        """The facts that are kept of each worker. WorkerLostError when one began late or its clock
        is not known well enough.
        """
        after = [await self._within(worker, fit_clock(worker, self.clock)) for worker in self.workers]
        facts = []
        for i, worker in enumerate(self.workers):
            first, last, result = self.before[i], after[i], self.results[i]
            bound = max(first.bound, last.bound) + abs(last.offset - first.offset)
            if result.late > LATE:
                raise WorkerLostError(f"{worker.name} began {result.late:.1f} s after the others")
            if bound > CLOCK_BOUND:
                raise WorkerLostError(f"the clock of {worker.name} is known within {bound * 1e3:.0f} ms only")
            streams = len(self.shares[i].streams(self.trial.load))
            facts.append(WorkerFacts(self.infos[i].host, streams, first.offset, bound, result.late, result.health))
        return tuple(facts)

    async def _of_all(
        self, ask: Callable[..., Awaitable[Any]], limit: float, arguments: Sequence[Any] | None = None
    ) -> list[Any]:
        """The answers of all workers to a question, asked at once; to each with an argument of its
        own, if given.
        """
        each = [(w,) for w in self.workers] if arguments is None else zip(self.workers, arguments, strict=True)
        return list(await asyncio.gather(*(self._within(pair[0], ask(*pair), limit) for pair in each)))

    async def _within(self, worker: Worker, answer: Awaitable[Any], limit: float = SILENT) -> Any:
        """The answer, if it comes in time."""
        try:
            async with asyncio.timeout(limit):
                return await answer
        except TimeoutError:
            raise WorkerLostError(f"{worker.name} did not answer for {limit:g} s") from None
