"""A timer for the event loop that rings within some tens of microseconds of the asked moment.

Event loops round their timers to a millisecond, which is a sixth of an engine step. On Linux a timerfd, watched like
a socket, has no such grain; elsewhere the loop's own timer is used.

The scheduler in real time: steps begin and end on an absolute schedule, and tokens leave when their step ends.

A step that is served late does not push the next one: the next step still begins where this one ended, and admits only
what had arrived by then. So what a client sees is the virtual engine's answer to its sends, plus the send lateness.
"""

import asyncio
import contextlib
import ctypes
import math
import os
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, Protocol

from frontier.simulator.engine import Scheduler, Step
from frontier.simulator.pools import Disaggregated
from frontier.simulator.spec import EngineSpec
from frontier.simulator.speculative import make_scheduler

_ABSOLUTE = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


class _Timespec(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_long) for name in ("interval_s", "interval_ns", "s", "ns"))


class Alarm:
    """Calls `ring` once at a moment of `time.perf_counter`. One moment is pending at most; the last one set counts."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop, self._ring = loop, ring
        self._handle: asyncio.TimerHandle | None = None
        self._fd = -1
        if sys.platform == "linux":
            # Python has os.timerfd_create only from 3.13 on.
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._fd = self._libc.timerfd_create(time.CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
            if self._fd >= 0:
                loop.add_reader(self._fd, self._readable)

    def set(self, moment: float) -> None:
        """Ring at `moment` (perf_counter seconds); at once when it has passed."""
        if self._fd >= 0:
            nanoseconds = max(1, int(moment * 1e9))
            when = _Timespec(0, 0, *divmod(nanoseconds, 1_000_000_000))
            self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(when), None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(max(0.0, moment - time.perf_counter()), self._ring)

    def _readable(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # set anew between ringing and reading: it will ring again
            return
        self._ring()

    def close(self) -> None:
        """Never ring again."""
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1


RING = 20_000
_LATENESS_SAMPLE = 100_000


class Sink(Protocol):
    """Takes a request's tokens as they leave."""

    def tokens(self, number: int, count: int, last: bool) -> None:
        """`count` tokens leave together, the first of them the request's number `number` (from 0)."""
        ...


class Job:
    """One request in the live engine. Times are perf_counter seconds."""

    __slots__ = (
        "actual", "cached", "done", "hashes", "key", "name", "output", "prompt", "receipt", "scheduled", "sink",
    )  # fmt: skip

    def __init__(
        self, key: str, receipt: float, prompt: int, output: int, hashes: Sequence[Hashable], sink: Sink
    ) -> None:
        self.key, self.receipt, self.prompt, self.output, self.hashes = key, receipt, prompt, output, hashes
        self.sink = sink
        self.name = -1
        self.cached = 0
        self.scheduled, self.actual = array("d"), array("d")
        self.done = asyncio.get_running_loop().create_future()

    def truth(self) -> dict[str, Any]:
        """The ground truth of this request, JSON-ready."""
        return {
            "x_request_id": self.key,
            "receipt": self.receipt,
            "prompt_tokens": self.prompt,
            "cached_tokens": self.cached,
            "output_tokens": self.output,
            "finished": len(self.actual) == self.output,
            "scheduled": self.scheduled.tolist(),
            "actual": self.actual.tolist(),
        }


class Engine:
    """The live engine of one server. Made inside a running event loop; `close` it there.

    `state` is what there is to know of it: the scheduler of its one instance here.
    """

    state: Scheduler | Disaggregated

    def __init__(self, spec: EngineSpec) -> None:
        self.state = self.scheduler = make_scheduler(spec)
        self.zero = time.perf_counter()
        self.epoch = time.time() - self.zero
        self.finished: deque[Job] = deque(maxlen=RING)
        self.lateness: deque[float] = deque(maxlen=_LATENESS_SAMPLE)
        self._ingest = spec.ingest * spec.time_scale
        self._jobs: dict[int, Job] = {}
        self._arriving: deque[Job] = deque()
        self._step: Step | None = None
        self._next = 0
        self._alarm = Alarm(asyncio.get_running_loop(), self._ring)

    @property
    def waiting(self) -> int:
        """Requests received but not running."""
        return self.state.waiting + len(self._arriving)

    def check(self, job: Job) -> None:
        """ValueError when the request can never fit."""
        if job.prompt + job.output > self.state.max_len:
            raise ValueError(
                f"This model's maximum context length is {self.state.max_len} tokens. However, you requested "
                f"{job.prompt + job.output} tokens ({job.prompt} in the prompt, {job.output} in the completion)."
            )

    def submit(self, job: Job) -> None:
        """Queue a request that was checked; `job.done` is set when its last token has left."""
        job.name, self._next = self._next, self._next + 1
        self._jobs[job.name] = job
        self._arriving.append(job)
        if self._step is None and len(self._arriving) == 1:
            self._alarm.set(job.receipt + self._ingest)

    def cancel(self, job: Job) -> None:
        """The client is gone: free what the request holds."""
        if self._jobs.pop(job.name, None) is None:
            return
        if not self._dropped(job) and job in self._arriving:
            self._arriving.remove(job)
        self.finished.append(job)
        if not job.done.done():
            job.done.cancel()

    def _dropped(self, job: Job) -> bool:
        """It was in the engine, and is no more."""
        return self.scheduler.cancel(job.name)

    def close(self) -> None:
        """Stop stepping."""
        self._alarm.close()

    def _ring(self) -> None:
        """A step ended, or a request reached an idle engine."""
        step = self._step
        if step is None:
            if self._arriving:
                self._begin(self._arriving[0].receipt + self._ingest)
            return
        end = self.zero + step.start + step.duration
        # The next step is decided first: writing may take a while, and deciding must not wait for it.
        self._begin(end)
        self._emit(step, end)

    def _begin(self, at: float) -> None:
        """Begin a step at `at` with all that has arrived by then, or wait for what arrives next."""
        arriving, ingest = self._arriving, self._ingest
        while True:
            while arriving and arriving[0].receipt + ingest <= at:
                job = arriving.popleft()
                self.scheduler.submit(job.name, job.prompt, job.output, job.hashes)
            self._step = self.scheduler.step(at - self.zero)
            if self._step is not None:
                self._alarm.set(self.zero + self._step.start + self._step.duration)
                return
            if not arriving:
                return
            at = arriving[0].receipt + ingest
            if at > time.perf_counter():
                self._alarm.set(at)
                return

    def _emit(self, step: Step, end: float) -> None:
        """Send the step's tokens."""
        jobs, clock = self._jobs, time.perf_counter
        for name, cached in zip(step.first, step.cached, strict=True):
            if name in jobs:
                jobs[name].cached = cached
        self.lateness.append(clock() - end)
        for name, count in zip(step.tokens, step.counts or repeat(1), strict=False):  # no counts: one each
            job = jobs.get(name)
            if job is None:  # cancelled while the step ran
                continue
            number = len(job.actual)
            last = number + count == job.output
            job.sink.tokens(number, count, last)
            left = clock()
            for _ in range(count):
                job.scheduled.append(end)
                job.actual.append(left)
            if last:
                del jobs[name]
                self.finished.append(job)
                if not job.done.done():
                    job.done.set_result(None)


class PooledEngine(Engine):
    """The live engine of a server whose spec is disaggregated: its `state` has the instances of both pools."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(replace(spec, disaggregation=None))
        self.state = self.pools = Disaggregated(spec)

    def submit(self, job: Job) -> None:
        job.name, self._next = self._next, self._next + 1
        self._jobs[job.name] = job
        self._arriving.append(job)
        self._set_alarm()

    def _dropped(self, job: Job) -> bool:
        found = self.pools.cancel(job.name, time.perf_counter() - self.zero)
        self._set_alarm()
        return found

    def _set_alarm(self) -> None:
        due = self._due
        if due < math.inf:
            self._alarm.set(due)

    @property
    def _due(self) -> float:
        """When the next request arrives or the next thing happens, whichever is first."""
        arrival = self._arriving[0].receipt + self._ingest if self._arriving else math.inf
        return min(arrival, self.pools.next_event + self.zero)

    def _ring(self) -> None:
        """Do all that is due, then let the tokens leave."""
        steps = []
        while self._due <= time.perf_counter():
            event = self.pools.next_event + self.zero
            if self._arriving and (at := self._arriving[0].receipt + self._ingest) <= event:
                job = self._arriving.popleft()
                self.pools.submit(job.name, job.prompt, job.output, job.hashes, at - self.zero)
            elif (step := self.pools.advance()) is not None:
                steps.append(step)
        self._set_alarm()
        for step in steps:
            self._emit(step, self.zero + step.start + step.duration)


def make_engine(spec: EngineSpec) -> Engine:
    """The live engine of `spec`."""
    return Engine(spec) if spec.disaggregation is None else PooledEngine(spec)
