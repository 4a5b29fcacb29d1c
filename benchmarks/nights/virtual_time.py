"""Virtual time: an event loop that never waits, and clocks that go on by its timers."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from frontier.sweep.backend import Backend
from frontier.world import World

EPOCH = 1_780_000_000.0
"""Unix time at which every night begins."""


class Clock:
    """Seconds of a night, and the wall clock, which an event may set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.shift = 0.0

    def wall(self) -> float:
        """Unix time as this machine's clock shows it."""
        return EPOCH + self.shift + self.now

    def seconds(self) -> float:
        """Seconds since the night began."""
        return self.now


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose time is a clock's: with nothing to do, it goes on to the next timer."""

    def __init__(self, clock: Clock) -> None:
        self._night = clock
        super().__init__()
        self._clock_resolution = 1e-9  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._night.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._night.now = max(self._night.now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def virtual_world(clock: Clock, backend: Callable[..., Backend]) -> World:
    """The world of a night."""

    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=lambda: _Loop(clock)) as runner:
            return runner.run(coroutine)

    return World(clock.wall, clock.seconds, backend, run)
