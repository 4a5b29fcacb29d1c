"""The simulated engine in real time: steps begin and end on an absolute schedule, tokens leave when
their step ends.

A step that is served late does not push the next one: the next step still begins where this one
ended, and admits only what had arrived by then. So a client sees the virtual engine's answer to its
sends, plus the send lateness.
"""

import asyncio
import contextlib
import ctypes
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from frontier.simulator.engine import Scheduler, Step
from frontier.simulator.spec import EngineSpec

_ABSOLUTE = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)


class _Timespec(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_long) for name in ("interval_s", "interval_ns", "s", "ns"))


class PreciseTimer:
    """Calls `ring` once at a moment of `time.perf_counter`, within some tens of microseconds.

    One moment is pending at most; the last one set counts. Event loops round their timers to a
    millisecond, which is a sixth of an engine step. A timerfd of Linux is finer; elsewhere the
    timer of the event loop is used.
    """

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


Sink = Callable[[int, bool], None]
"""Takes a token of a request as it leaves: its number (from 0), and whether it is the last."""


@dataclass(slots=True, eq=False)
class LiveRequest:
    """One request in the live engine. Times are perf_counter seconds. `beside`: how many others ran
    in its last step.
    """

    receipt: float
    prompt: int
    output: int
    hashes: Sequence[Hashable]
    sink: Sink | None = None
    name: int = -1
    cached: int = 0
    sent: int = 0
    beside: int = 0
    preempted: bool = False
    done: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class LiveEngine:
    """The live engine of one server. Made inside a running event loop; `close` it there."""

    def __init__(self, spec: EngineSpec) -> None:
        self.scheduler = Scheduler(spec)
        self.zero = time.perf_counter()
        self._ingest = spec.ingest * spec.time_scale
        self._jobs: dict[int, LiveRequest] = {}
        self._arriving: deque[LiveRequest] = deque()
        self._step: Step | None = None
        self._next = 0
        self._timer = PreciseTimer(asyncio.get_running_loop(), self._ring)

    @property
    def waiting(self) -> int:
        """Requests received but not running."""
        return self.scheduler.waiting + len(self._arriving)

    def submit(self, job: LiveRequest) -> None:
        """Queue a request that the scheduler has checked; `job.done` is set when its last token has
        left.
        """
        job.name, self._next = self._next, self._next + 1
        self._jobs[job.name] = job
        self._arriving.append(job)
        if self._step is None and len(self._arriving) == 1:
            self._timer.set(job.receipt + self._ingest)

    def cancel(self, job: LiveRequest) -> None:
        """The client is gone: free what the request holds."""
        if self._jobs.pop(job.name, None) is None:
            return
        if not self.scheduler.cancel(job.name) and job in self._arriving:
            self._arriving.remove(job)
        if not job.done.done():
            job.done.cancel()

    def close(self) -> None:
        """Stop stepping."""
        self._timer.close()

    def _ring(self) -> None:
        """A step ended, or a request reached an idle engine."""
        step = self._step
        if step is None:
            if self._arriving:
                self._begin(self._arriving[0].receipt + self._ingest)
            return
        end = self.zero + step.start + step.duration
        # The next step is decided first: writing may take a while, and deciding must not wait for
        # it.
        self._begin(end)
        self._emit(step)

    def _begin(self, at: float) -> None:
        """Begin a step at `at` with all that has arrived by then, or wait for what arrives next."""
        arriving, ingest = self._arriving, self._ingest
        while True:
            while arriving and arriving[0].receipt + ingest <= at:
                job = arriving.popleft()
                received = job.receipt - self.zero
                self.scheduler.submit(job.name, job.prompt, job.output, job.hashes, received)
            self._step = self.scheduler.step(at - self.zero)
            if self._step is not None:
                self._timer.set(self.zero + self._step.start + self._step.duration)
                return
            if not arriving:
                return
            at = arriving[0].receipt + ingest
            if at > time.perf_counter():
                self._timer.set(at)
                return

    def _emit(self, step: Step) -> None:
        """Send the step's tokens."""
        jobs = self._jobs
        for name, cached in zip(step.first, step.cached, strict=True):
            if name in jobs:
                jobs[name].cached = cached
        for name in step.preempted:
            if name in jobs:
                jobs[name].preempted = True
        for name in step.tokens:
            job = jobs.get(name)
            if job is None:  # cancelled while the step ran
                continue
            number, job.sent = job.sent, job.sent + 1
            last = job.sent == job.output
            if job.sink is not None:
                job.sink(number, last)
            if last:
                job.beside = step.running - 1
                del jobs[name]
                if not job.done.done():
                    job.done.set_result(None)
