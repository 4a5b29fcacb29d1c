"""The live view of a sweep on a terminal: lines redrawn in place, and the settings so far as a plot
of characters.

It says what the lines of `progress` say. Drawing happens only when the conductor calls, never from
a thread of its own: the client being timed shares the process.
"""

import itertools
import math
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from frontier.decide.pareto import nondominated
from frontier.model import Decision, Flag, Trial, bare
from frontier.plan import Better
from frontier.report.progress import (
    BOLD,
    CYAN,
    DIM,
    RED,
    PlainProgress,
    SweepProgress,
    figures_text,
    setting_name,
)
from frontier.show.wording import clean, setting
from frontier.units import format_elapsed, format_number, format_seconds

if TYPE_CHECKING:
    from frontier.client.load.loop import TrialProgress

_STAGES = {"ramp": "ramp-up", "warmup": "warm-up", "window": "window", "hold": "draining"}
_DRAW_EVERY = 0.4


def make_progress(stream: TextIO) -> "PlainProgress | LiveProgress":
    """The live view where the stream is a terminal that can redraw a line, else the plain one."""
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(console)
    return PlainProgress(stream)


Parts = list[tuple[str, str]]
"""A line as texts, each with the SGR code of its colour ('' for none)."""


class LiveProgress(SweepProgress):
    """A few lines that are redrawn, finished trials scrolling by above them: how the trial stands,
    what it gives so far, the time, and where there is room for it the frontier so far of the shape
    that is being measured.

    Redrawing is done by hand: rich's takes milliseconds, in which the client would be late to stamp
    what arrives.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._console = console
        self._trial: Trial | None = None
        self._tick: TrialProgress | None = None
        self._seen: dict[tuple[str, str], dict[int, Spot]] = {}
        self._plot: list[str] = []
        self._drawn = 0.0
        self._on_screen = 0
        self._colour = console.color_system is not None and not console.no_color

    def trial_started(self, trial: Trial, number: int, total: int) -> None:
        """The live lines now speak of this trial."""
        super().trial_started(trial, number, total)
        self._trial, self._tick = trial, None
        self._plot = self._frontier_so_far(trial)
        self._draw(always=True)

    def tick(self, tick: "TrialProgress") -> None:
        """Redraw, at most about twice a second."""
        self._tick = tick
        self._draw()

    def trial_finished(self, trial: Trial, figures: Mapping[str, float | None], flags: Sequence[Flag] = ()) -> None:
        """Its setting is on the plot from now on."""
        rate, latency = figures.get("output_throughput"), figures.get("p99_ttft")
        if rate is not None and latency is not None:
            # Of several repeats the last is shown: this is for the eye, the points are made from
            # all of them.
            spots = self._seen.setdefault((trial.deployment, trial.shape.label), {})
            spot = Spot(latency, rate, excluded=any(flag.fatal for flag in flags))
            if not spot.excluded or spots.get(trial.concurrency, spot).excluded:
                spots[trial.concurrency] = spot
        super().trial_finished(trial, figures, flags)

    def announced(self, decision: Decision, seconds: float, better: Better | None) -> None:
        """The phase is over with the announcement."""
        self._trial = None
        self._end_phase()
        super().announced(decision, seconds, better)

    def _line(self, text: str, style: str = "") -> None:
        """A line above the live ones, or several where it is long."""
        for line in textwrap.wrap(text, max(20, self._console.width)) or [""]:
            self._above([(line, style)])

    def _headed(self, head: str, text: str) -> None:
        self._above([(head, DIM), (f"  {text}", "")])

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
            lines = [*(self._dressed(parts) for parts in self._live_lines()), *self._plot] if self._trial else []
            self._write(self._erasing() + "".join(f"{line}\n" for line in lines))
            self._on_screen = len(lines)

    def _erasing(self) -> str:
        return f"\x1b[{self._on_screen}A\x1b[J" if self._on_screen else ""

    def _write(self, text: str) -> None:
        if text:
            self._console.file.write(text)
            self._console.file.flush()

    def _dressed(self, parts: Parts) -> str:
        """One line for the terminal: figures it has no room for are left out whole, a half of one
        would mislead.
        """
        room, dressed = self._console.width, []
        for text, code in parts:
            cut = _whole_parts(text, room)
            room -= cell_len(cut)
            dressed.append(f"\x1b[{code}m{cut}\x1b[0m" if code and self._colour and cut else cut)
            if cut != text:
                break
        return "".join(dressed)

    def lines(self) -> list[str]:
        """What the live lines say now, without colour and uncut."""
        return ["".join(text for text, _ in parts) for parts in self._live_lines()] + self._plot

    def _live_lines(self) -> list[Parts]:
        if self._trial is None:
            return []
        first: Parts = [(self._head(self._trial), BOLD), (f"  {setting(self._trial.concurrency)}", "")]
        lines = [*([[(self._phase_head, DIM), (f"  {self._phase}", "")]] if self._phase else []), first]
        if (tick := self._tick) is not None:
            first += [
                (f"   {_STAGES.get(tick.stage, clean(tick.stage, 20))}", CYAN),
                (f"   {tick.in_flight} in flight", ""),
            ]
            if tick.stage in ("window", "hold"):
                first.append((f"   {tick.window_sent:,}/{self._trial.requests:,} sent", ""))
            if tick.failed:
                first.append((f"   {tick.failed:,} failed", RED))
            first.append((f"   {format_elapsed(tick.elapsed)}", DIM))
            if so_far := _so_far_text(tick):
                lines.append([(so_far, "")])
        spent = [f"{self._elapsed} so far", self._left()]
        lines.append([("   ".join(part for part in spent if part), DIM)])
        return lines

    def _frontier_so_far(self, trial: Trial) -> list[str]:
        """Drawn once per trial, where the terminal has the room."""
        width, height = self._console.size
        spots = self._seen.get((trial.deployment, trial.shape.label), {})
        if width < 60 or height < 18 or len(spots) < 2:
            return []
        plot = text_plot(spots, across="p99 TTFT", up="tok/s", width=min(width - 8, 76), height=min(9, height - 12))
        with self._console.capture() as captured:
            self._console.print(plot)
        ring = ", ○ excluded" if any(spot.excluded for spot in spots.values()) else ""
        head = set_cell_size(f"{setting_name(trial)}: the settings so far{ring}", width - 1).rstrip()
        return ["", head, *captured.get().rstrip("\n").split("\n")] if plot else []


def _whole_parts(text: str, room: int) -> str:
    """As many of the parts, which three spaces separate, as fit; where not even the first does,
    what fits of it.
    """
    cut = text
    while cell_len(cut) > room and "   " in cut.lstrip():
        cut = cut[: cut.rindex("   ")].rstrip()
    if cell_len(cut) <= room:
        return cut
    return "" if text.startswith("   ") else set_cell_size(cut, room)


def _so_far_text(tick: "TrialProgress") -> str:
    """'so far  about 2,914 tok/s   p50 TTFT 310 ms   p99 TTFT 2.33 s'."""
    figures = {"output_throughput": tick.rate, "p50_ttft": tick.p50_ttft, "p99_ttft": tick.p99_ttft}
    text = figures_text(figures)
    return f"so far about  {text}" if text else ""


# --- the settings so far as a plot of characters

MARGIN = 9
"""Columns left of the plot, for the numbers of the vertical axis."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A setting: a latency in seconds (across, logarithmic) and a rate (upward, from 0). An
    excluded one is drawn with a ring, and beats no other.
    """

    latency: float
    rate: float
    excluded: bool = False


def best_so_far(spots: Mapping[int, Spot]) -> set[int]:
    """The settings that no other beats in both, without the excluded ones."""
    valid = {c: spot for c, spot in spots.items() if not spot.excluded}
    members = nondominated([spot.rate for spot in valid.values()], [spot.latency for spot in valid.values()])
    return set(itertools.compress(valid, members))


def text_plot(spots: Mapping[int, Spot], *, across: str, up: str, width: int = 60, height: int = 8) -> Text:
    """The settings on a grid of so many columns and rows, those not finite named below it; '' for
    fewer than two.

    A number that would cover another is drawn as a dot, or not at all where the place itself is
    taken.
    """
    drawn = {c: s for c, s in spots.items() if math.isfinite(s.rate) and 0 < s.latency < math.inf}
    if len(drawn) < 2:
        return Text("")
    columns = max(20, width - MARGIN - 2)
    least, most = (pick(s.latency for s in drawn.values()) for pick in (min, max))
    top = max(s.rate for s in drawn.values()) or 1.0
    span = math.log(most / least) or 1.0
    grid = [[" "] * columns for _ in range(height)]
    styles = [[""] * columns for _ in range(height)]
    on_it = best_so_far(drawn)
    for concurrency, spot in sorted(
        drawn.items(), key=lambda item: (item[0] not in on_it, item[0] & (item[0] - 1) != 0, item[0])
    ):
        column = round(math.log(spot.latency / least) / span * (columns - 1))
        row = height - 1 - round(max(0.0, spot.rate) / top * (height - 1))
        label = f"{'○' if spot.excluded else ''}{bare(concurrency)}"
        start = min(max(0, column - len(label) + 1), columns - len(label))
        if any(ch != " " for ch in grid[row][max(0, start - 1) : start + len(label) + 1]):
            label, start = "·", column
        if grid[row][start] == " ":
            for i, ch in enumerate(label):
                grid[row][start + i] = ch
                styles[row][start + i] = "bold blue" if concurrency in on_it else "dim"
    text = Text(no_wrap=True, overflow="ellipsis")
    for i in range(height):
        number = "0" if i == height - 1 else ""
        if i == 0:
            number = format_number(top)
        text.append(f"{number:>{MARGIN - 1}} │", style="dim")
        for ch, style in zip(grid[i], styles[i], strict=True):
            text.append(ch, style=style)
        text.append(f" {up}\n" if i == 0 else "\n", style="dim")
    left, right = format_seconds(least), f"{format_seconds(most)}  {across}"
    text.append(" " * MARGIN + "└" + "─" * columns + "\n", style="dim")
    text.append(f"{'':{MARGIN + 1}}{left}{right:>{max(0, columns - len(left))}}", style="dim")
    if beyond := sorted(spots.keys() - drawn.keys()):
        text.append(f"\n{'':{MARGIN + 1}}not on this chart, with no such {across}: ", style="dim")
        text.append(", ".join(map(setting, beyond)), style="dim")
    return text
