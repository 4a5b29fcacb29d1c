"""The live view of a sweep on a terminal: the running trial and a progress bar, redrawn in place.

It says what the lines of `progress` say. Drawing happens only when the conductor calls, never from
a thread of its own: the client being timed shares the process.
"""

import textwrap
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from frontier.core.model.decisions import Decision
from frontier.core.model.loads import setting
from frontier.core.model.text import clean
from frontier.core.model.trials import Trial
from frontier.core.model.units import format_elapsed
from frontier.planning.sweep_progress import HigherSetting
from frontier.show.progress import DIM, PlainProgress, SweepProgress, figures_text
from frontier.world import world

if TYPE_CHECKING:
    from frontier.client.load.loop import TrialProgress

_STAGES = {"ramp": "ramp-up", "warmup": "warm-up", "window": "window", "hold": "draining"}
_DRAW_EVERY = 0.4
_BAR = 20
"""Characters of the progress bar."""


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
        self._trial: Trial | None = None
        self._tick: TrialProgress | None = None
        self._drawn = 0.0
        self._on_screen = 0
        self._colour = console.color_system is not None and not console.no_color

    def trial_started(self, trial: Trial) -> None:
        """Show this trial on the live lines."""
        super().trial_started(trial)
        self._trial, self._tick = trial, None
        self._draw()

    def tick(self, tick: "TrialProgress") -> None:
        """Redraw, at most about twice a second."""
        super().tick(tick)
        self._tick = tick
        if self._clock() - self._drawn >= _DRAW_EVERY:
            self._draw()

    def announced(self, decision: Decision, seconds: float, better: HigherSetting | None) -> None:
        """Clear the live lines until the next trial."""
        self._trial = None
        super().announced(decision, seconds, better)

    def _line(self, text: str, style: str = "") -> None:
        """A line above the live ones, or several where it is long."""
        self._draw(*(self._styled(line, style) for line in textwrap.wrap(text, max(20, self._console.width)) or [""]))

    def close(self) -> None:
        """Remove the live lines; the lines above stay."""
        self._trial = None
        super().close()
        self._draw()

    def _draw(self, *above: str) -> None:
        """Redraw the live lines, below these lines that stay."""
        erasing = f"\x1b[{self._on_screen}A\x1b[J" if self._on_screen else ""
        lines = [
            self._styled(fitted(parts, self._console.width), DIM if i else "") for i, parts in enumerate(self._parts())
        ]
        self._console.file.write(erasing + "".join(f"{line}\n" for line in (*above, *lines)))
        self._console.file.flush()
        self._drawn, self._on_screen = self._clock(), len(lines)

    def _styled(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if code and self._colour else text

    def lines(self) -> list[str]:
        """What the live lines say now, without colour and uncut."""
        return ["   ".join(parts) for parts in self._parts()]

    def _parts(self) -> list[list[str]]:
        """The parts of each live line."""
        if self._trial is None:
            return []
        line = [f"{self._head(self._trial)}  {setting(self._trial.concurrency)}"]
        if (tick := self._tick) is not None:
            line += [_STAGES.get(tick.stage, clean(tick.stage, 20)), f"{tick.in_flight} in flight"]
            if tick.stage in ("window", "hold"):
                line.append(f"{tick.window_sent:,}/{self._trial.requests:,} sent")
            if tick.failed:
                line.append(f"{tick.failed:,} failed")
            line.append(format_elapsed(tick.elapsed))
            figures = {"output_throughput": tick.rate, "p50_ttft": tick.p50_ttft, "p99_ttft": tick.p99_ttft}
            if text := figures_text(figures):
                line += f"so far about {text}".split("   ")
        return [line, [*filter(None, (self._bar(), f"{self._elapsed} so far", self._left()))]]

    def _bar(self) -> str:
        """'[#####···············]' by the sweep's time; '' while the time is not known."""
        if self._time_left is None or self._time_left.open:
            return ""
        now = self._clock()
        passed, left = now - self._begun, self._time_left.after(now - self._told).seconds
        filled = round(_BAR * passed / max(passed + left, 1.0))
        return f"[{'#' * filled}{'·' * (_BAR - filled)}]"


def fitted(parts: Sequence[str], room: int) -> str:
    """A line of as many parts as fit; half a figure would mislead."""
    line = parts[0]
    for part in parts[1:]:
        if cell_len(f"{line}   {part}") > room:
            break
        line = f"{line}   {part}"
    return set_cell_size(line, room) if cell_len(line) > room else line
