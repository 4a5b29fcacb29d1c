"""The live view of a sweep on a terminal: the running trial and a progress bar, redrawn in place.

It says what the lines of `progress` say. Drawing happens only when the conductor calls, never from
a thread of its own: the client being timed shares the process.
"""

import textwrap
import time
from collections.abc import Callable, Collection, Sequence
from typing import TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from frontier.show.progress import PlainProgress
from frontier.show.view.sweep_lines import DIM, SweepProgress
from frontier.world import world

_DRAW_EVERY = 0.4


def make_progress(stream: TextIO, limited: Collection[str] = ()) -> SweepProgress:
    """The live view where the stream is a terminal that can redraw a line, otherwise the plain one.
    `limited` are the metrics of the SLA.
    """
    clock = world().clock
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    live = console.is_terminal and not console.is_dumb_terminal
    progress: SweepProgress = LiveProgress(console, clock) if live else PlainProgress(stream, clock)
    progress.limited = limited
    return progress


class LiveProgress(SweepProgress):
    """Two redrawn lines, with finished trials scrolling by above them: the state of the trial and
    its figures so far, and the share of the sweep's time that has passed.

    Redrawing is done by hand. rich takes milliseconds for it, in which the client would be late to
    stamp what arrives.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._console = console
        self._drawn = 0.0
        self._on_screen = 0
        self._colour = console.color_system is not None and not console.no_color

    def _changed(self) -> None:
        """Redraw: at once for another trial, else at most about twice a second."""
        if self._tick is None or self._clock() - self._drawn >= _DRAW_EVERY:
            self._draw()

    def _line(self, text: str, style: str = "") -> None:
        """A line above the live ones, or several where it is long."""
        self._draw(*(self._styled(line, style) for line in textwrap.wrap(text, max(20, self._console.width)) or [""]))

    def close(self) -> None:
        """Remove the live lines; the lines above stay."""
        super().close()
        self._draw()

    def _draw(self, *above: str) -> None:
        """Redraw the live lines, below these lines that stay."""
        erasing = f"\x1b[{self._on_screen}A\x1b[J" if self._on_screen else ""
        lines = [
            self._styled(fitted(parts, self._console.width), DIM if i else "") for i, parts in enumerate(self.running())
        ]
        self._console.file.write(erasing + "".join(f"{line}\n" for line in (*above, *lines)))
        self._console.file.flush()
        self._drawn, self._on_screen = self._clock(), len(lines)

    def _styled(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if code and self._colour else text


def fitted(parts: Sequence[str], room: int) -> str:
    """A line of as many parts as fit; half a figure would mislead."""
    line = parts[0]
    for part in parts[1:]:
        if cell_len(f"{line}   {part}") > room:
            break
        line = f"{line}   {part}"
    return set_cell_size(line, room) if cell_len(line) > room else line
