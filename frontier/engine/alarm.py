"""A timer for the event loop that rings within some tens of microseconds of the asked moment.

Event loops round their timers to a millisecond, which is a sixth of an engine step. On Linux a timerfd, watched like
a socket, has no such grain; elsewhere the loop's own timer is used.
"""

import asyncio
import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable

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
