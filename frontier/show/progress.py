"""The progress of a sweep as plain timestamped lines, for logs, nohup and CI."""

import time
from collections.abc import Callable
from typing import TextIO

from frontier.show.view.rough import format_range
from frontier.show.view.sweep_lines import SweepProgress, TimeLeft
from frontier.world import world

ALIVE = 60.0
"""Seconds after which a log gets a line of a trial that is still going on."""


class PlainProgress(SweepProgress):
    """One line per event with the time, for logs, nohup and CI. The first line of a day has its
    date.
    """

    is_log = True

    def __init__(
        self,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
        stamp: Callable[[], str] = lambda: time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(world().wall())),
    ) -> None:
        super().__init__(clock)
        self._stream, self._stamp, self._last, self._day = stream, stamp, clock(), ""

    def _line(self, text: str, style: str = "") -> None:  # noqa: ARG002  # a log has no colours
        self._last = self._clock()
        day, _, at = self._stamp().rpartition(" ")
        self._stream.write(f"{at if day == self._day else f'{day} {at}'}  {text}\n")
        self._day = day
        self._stream.flush()

    def expect(self, left: TimeLeft) -> None:
        """Write a line as soon as the time left is known, where anything is left."""
        if self._time_left is None and left.range[1] > 0:
            self._line(f"{format_range(*left.range)} left")
        super().expect(left)

    def _changed(self) -> None:
        """The state of the running trial, where nothing was said for long."""
        if self._tick is not None and self._clock() - self._last >= ALIVE:
            trial, *_ = self.running()
            self._line("   ".join(filter(None, (*trial, self._left()))))
