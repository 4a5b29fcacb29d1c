"""Health of the load client in a trial: event-loop lag, garbage-collector pauses, CPU share, late
sends, suspension.

They show whether the client's own slowness could be mistaken for the server's. Also how many files
this system lets a client open.
"""

import asyncio
import ctypes
import gc
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import numpy as np

from frontier.core.model.trials import ClientHealth

if TYPE_CHECKING:
    from frontier.client.http.pool import Renewal

BEAT = 0.010
"""Seconds between two heartbeats."""


class HealthMonitor:
    """Collects over a trial; `open_window()` forgets what came before. A context manager for the
    collector's hook.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lags: list[float] = []
        self._lates: list[float] = []
        self._delayed = 0.0
        self._gc_started = 0.0
        self._gc_max = 0.0
        self._lag_max = 0.0
        self._opened = clock()
        self._cpu = time.process_time()
        self._final: tuple[float, float] | None = None
        self._suspended_before = seconds_suspended()

    def __enter__(self) -> Self:
        # A full collection walks every object and stops the event loop for as long. What exists now
        # will outlive the trial: frozen, it is never walked again. What the trial makes is mostly
        # freed by counts of references, so the young generation is collected seldom, and the old
        # ones hardly ever.
        gc.collect()
        _return_free_memory()
        gc.freeze()
        gc.callbacks.append(self._on_gc)
        self._thresholds = gc.get_threshold()
        gc.set_threshold(5_000, 200, 1_000)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._on_gc)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def _on_gc(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._gc_started = time.perf_counter()
        elif self._final is None:
            self._gc_max = max(self._gc_max, time.perf_counter() - self._gc_started)

    def beat(self, lag: float) -> None:
        """The loop woke `lag` seconds after it was asked to. Also after the window: its last
        requests are in flight.
        """
        self._lag_max = max(self._lag_max, lag)
        if self._final is None:
            self._lags.append(lag)

    def sent(self, late: float) -> None:
        """A slot sent its next request `late` seconds after it was free."""
        if self._final is None:
            self._lates.append(late)

    def delayed(self, seconds: float) -> None:
        """A slot waited on purpose before its next send."""
        if self._final is None:
            self._delayed += seconds

    def open_window(self) -> None:
        """Start counting afresh: the window begins."""
        self._lags, self._lates, self._delayed, self._gc_max, self._lag_max = [], [], 0.0, 0.0, 0.0
        self._opened, self._cpu = self._clock(), time.process_time()

    def close_window(self) -> None:
        """The window ends: the CPU share stays what it is now."""
        if self._final is None:
            self._final = self._clock() - self._opened, time.process_time() - self._cpu

    def health(self, resent: int, opened: int, renewal: "Renewal | None" = None) -> ClientHealth:
        """The health of the window; `opened` connections were opened by requests, others ahead."""
        length, cpu = self._final or (self._clock() - self._opened, time.process_time() - self._cpu)
        return ClientHealth(
            loop_lag_p99=p99(self._lags),
            send_late_p99=p99(self._lates),
            cpu_share=cpu / length if length > 0 else None,
            gc_pause_max=self._gc_max,
            resent=resent,
            connections_opened=opened + (0 if renewal is None else renewal.ahead),
            connections_renewed=None if renewal is None else renewal.renewed,
            renewals_failed=None if renewal is None else renewal.failed,
            suspended=seconds_suspended() - self._suspended_before,
            stood_still=self._lag_max if self._lags else None,
            restart_delay_mean=self._delayed / len(self._lates) if self._lates else None,
        )


class Heartbeat:
    """An async context manager that measures the longest time for which the event loop stood
    still.
    """

    def __init__(self) -> None:
        self.longest = 0.0

    async def __aenter__(self) -> Self:
        self._asleep_since = time.perf_counter()
        self._task = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        self._woke()  # what ran here may have ended before the next beat

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            self._woke()

    def _woke(self) -> None:
        now = time.perf_counter()
        self.longest = max(self.longest, now - self._asleep_since - BEAT)
        self._asleep_since = now


def p99(values: list[float]) -> float | None:
    """The 99th percentile, as an observed value; None of nothing."""
    return float(np.quantile(values, 0.99, method="inverted_cdf")) if values else None


def _return_free_memory() -> None:
    """Free memory of the last trial goes back to the system: scattered over the heap it would not
    be used again, and a night of trials would take ever more. Only glibc has, and needs, this.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def seconds_suspended() -> float:
    """Seconds this machine has been suspended since it was started, on a clock that counts them; 0
    where none does.
    """
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


OTHER_FILES = 64
"""Files that a client opens beside its connections."""


def most_connections(wanted: int) -> int:
    """The `wanted` number of connections, or as many as this process may be allowed to open files
    for. Nothing is changed yet (`raise_fd_limit`).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if hard == resource.RLIM_INFINITY else max(1, min(wanted, hard - OTHER_FILES))


def raise_fd_limit(needed: int) -> int:
    """Raise this process's soft limit on open files as far as the system lets it; the limit that
    now holds.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        wanted = needed if hard == resource.RLIM_INFINITY else min(max(needed, soft), hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return 2**31 if soft == resource.RLIM_INFINITY else soft
