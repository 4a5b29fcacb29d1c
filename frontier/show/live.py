"""The live view of a sweep on a terminal: a line on the trial that runs and a progress bar, redrawn
in place.

It says what the lines of `progress` say. Drawing happens only when the conductor calls, never from
a thread of its own: the client being timed shares the process.
"""

import textwrap
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from frontier.core.decisions import Decision
from frontier.core.loads import setting
from frontier.core.text import clean
from frontier.core.trials import Trial
from frontier.core.units import format_elapsed
from frontier.planning.sweep_progress import Better
from frontier.show.progress import BOLD, CYAN, DIM, RED, PlainProgress, SweepProgress, figures_text

if TYPE_CHECKING:
    from frontier.client.load.loop import TrialProgress

_STAGES = {"ramp": "ramp-up", "warmup": "warm-up", "window": "window", "hold": "draining"}
_DRAW_EVERY = 0.4
_BAR = 20
"""Characters of the progress bar."""


def make_progress(stream: TextIO, limited: Collection[str] = ()) -> SweepProgress:
    """The live view where the stream is a terminal that can redraw a line, else the plain one; of
    an SLA on these metrics.
    """
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    live = console.is_terminal and not console.is_dumb_terminal
    progress: SweepProgress = LiveProgress(console) if live else PlainProgress(stream)
    progress.limited = limited
    return progress


Parts = list[tuple[str, str]]
"""A line as texts, each with the SGR code of its colour ('' for none)."""


class LiveProgress(SweepProgress):
    """Two lines that are redrawn, finished trials scrolling by above them: how the trial stands and
    what it gives so far; and the share of the sweep's time that has passed.

    Redrawing is done by hand: rich's takes milliseconds, in which the client would be late to stamp
    what arrives.
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
        """The live lines now speak of this trial."""
        super().trial_started(trial)
        self._trial, self._tick = trial, None
        self._draw(always=True)

    def tick(self, tick: "TrialProgress") -> None:
        """Redraw, at most about twice a second."""
        self._tick = tick
        self._draw()

    def announced(self, decision: Decision, seconds: float, better: Better | None) -> None:
        """The live lines rest until the next trial."""
        self._trial = None
        super().announced(decision, seconds, better)

    def _line(self, text: str, style: str = "") -> None:
        """A line above the live ones, or several where it is long."""
        for line in textwrap.wrap(text, max(20, self._console.width)) or [""]:
            self._above([(line, style)])

    def _headed(self, head: str, text: str) -> None:
        first, *rest = text.split("   ")
        self._above([(head, DIM), (f"  {first}", ""), *((f"   {part}", "") for part in rest)])

    def close(self) -> None:
        """The live lines go, what scrolled by stays."""
        self._trial = None
        super().close()
        self._draw(always=True)

    def _above(self, parts: Parts) -> None:
        self._write(self._erasing() + self._dressed(parts) + "\n")
        self._on_screen = 0
        self._draw(always=True)

    def _draw(self, *, always: bool = False) -> None:
        now = self._clock()
        if always or now - self._drawn >= _DRAW_EVERY:
            self._drawn = now
            lines = [self._dressed(parts) for parts in self._live_lines()]
            self._write(self._erasing() + "".join(f"{line}\n" for line in lines))
            self._on_screen = len(lines)

    def _erasing(self) -> str:
        return f"\x1b[{self._on_screen}A\x1b[J" if self._on_screen else ""

    def _write(self, text: str) -> None:
        if text:
            self._console.file.write(text)
            self._console.file.flush()

    def _dressed(self, parts: Parts) -> str:
        """One line for the terminal: of several parts those that have room, a half of a figure
        would mislead.
        """
        room, dressed = self._console.width, []
        for i, (text, code) in enumerate(parts):
            if i and cell_len(text) > room:
                break
            shown = set_cell_size(text, room) if cell_len(text) > room else text
            room -= cell_len(shown)
            dressed.append(f"\x1b[{code}m{shown}\x1b[0m" if code and self._colour else shown)
        return "".join(dressed)

    def lines(self) -> list[str]:
        """What the live lines say now, without colour and uncut."""
        return ["".join(text for text, _ in parts) for parts in self._live_lines()]

    def _live_lines(self) -> list[Parts]:
        if self._trial is None:
            return []
        line: Parts = [(self._head(self._trial), BOLD), (f"  {setting(self._trial.concurrency)}", "")]
        if (tick := self._tick) is not None:
            line += [
                (f"   {_STAGES.get(tick.stage, clean(tick.stage, 20))}", CYAN),
                (f"   {tick.in_flight} in flight", ""),
            ]
            if tick.stage in ("window", "hold"):
                line.append((f"   {tick.window_sent:,}/{self._trial.requests:,} sent", ""))
            if tick.failed:
                line.append((f"   {tick.failed:,} failed", RED))
            line.append((f"   {format_elapsed(tick.elapsed)}", DIM))
            figures = {"output_throughput": tick.rate, "p50_ttft": tick.p50_ttft, "p99_ttft": tick.p99_ttft}
            if text := figures_text(figures):
                line += [(f"   {figure}", "") for figure in f"so far about {text}".split("   ")]
        shown = filter(None, (self._bar(), f"{self._elapsed} so far", self._left()))
        return [line, [("   " * bool(i) + part, DIM) for i, part in enumerate(shown)]]

    def _bar(self) -> str:
        """'[#####···············]', by the sweep's time; '' while that is not known."""
        if self._time_left is None or self._time_left.open:
            return ""
        now = self._clock()
        passed, left = now - self._begun, self._time_left.after(now - self._told).seconds
        filled = round(_BAR * passed / max(passed + left, 1.0))
        return f"[{'#' * filled}{'·' * (_BAR - filled)}]"
