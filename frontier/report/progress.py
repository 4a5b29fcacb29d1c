"""How a sweep stands while it runs: a live view on a terminal, plain timestamped lines anywhere else.

Both say the same: a line for a scan, one for each setting that is proven, the operating point as soon as it is known,
and a line per trial that completes the frontier.

Drawing happens only when the conductor calls, never from a thread of its own: the client being timed shares the
process. Everything that came from a server is cleaned and never read as markup.
"""

import math
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from frontier.decide.wording import clean, count, flag_kind, flag_words, setting, value_text
from frontier.metrics import metric
from frontier.model import Decision, Estimate, Flag, Judgement, Limit, Phase, Trial, Verdict
from frontier.plan import Better, Progress, Stage
from frontier.units import format_elapsed, format_number, format_rough, format_seconds

if TYPE_CHECKING:
    from frontier.client.loop import TrialProgress

_STAGES = {"ramp": "ramp-up", "warmup": "warm-up", "window": "window", "hold": "draining"}
_FIGURES = ("output_throughput", "p50_ttft", "p99_ttft", "p99_tpot")
_DRAW_EVERY = 0.4
_JUMP, _JUMP_SECONDS = 1.3, 60.0
"""A time left that is by this factor, and by so many seconds, another one than was shown is given with its reason."""


def make_progress(stream: TextIO) -> "PlainProgress | LiveProgress":
    """The live view where the stream is a terminal that can redraw a line, else the plain one."""
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(console)
    return PlainProgress(stream)


def trial_name(trial: Trial) -> str:
    """'1024/256  c=128 r3', after the deployment's name where it has one."""
    return f"{setting_name(trial)}  {setting(trial.concurrency)} r{trial.repeat}"


def setting_name(trial: Trial) -> str:
    """'fp8  1024/256': the deployment, where it has a name, and the shape."""
    return trial.series.label(join="  ", longest=30)


class FlagLines:
    """The lines about flags. A kind of flag is said in full once; afterwards a trial that it excludes says it in few
    words, and trials of which it is only noted are counted.

    That the requests are too few is not said of a single trial: its setting's repeats are pooled.
    """

    def __init__(self) -> None:
        self._said: set[tuple[str, bool]] = set()
        self._again: Counter[str] = Counter()

    def of(self, trial: Trial, flags: Sequence[Flag]) -> list[tuple[str, bool]]:
        """A line for what excludes a trial and one for what is only noted, each with whether it excludes."""
        lines = []
        for excluded, word in ((True, "excluded"), (False, "noted")):
            texts = []
            for flag in flags:
                if flag.fatal != excluded or flag.name == "too_few_samples":
                    continue
                if (flag.name, excluded) not in self._said:
                    texts.append(flag_words(flag))
                elif excluded:
                    texts.append(flag_kind(flag))
                else:
                    self._again[flag_kind(flag)] += 1
                self._said.add((flag.name, excluded))
            if texts:
                lines.append((f"{trial_name(trial)}  {word}: {'; '.join(texts)}", excluded))
        return lines

    def counted(self) -> str:
        """'noted again: this machine was busy (12 trials)'; '' where nothing was."""
        counts = ", ".join(f"{kind} ({count(n, 'trial')})" for kind, n in self._again.items())
        return f"noted again: {counts}" if counts else ""


def figures_text(figures: Mapping[str, float | None], gpus: int | None = None) -> str:
    """'2,914 tok/s   p99 TTFT 2.33 s', and the share of errors where there were any."""
    parts = []
    for name in _FIGURES:
        if (value := figures.get(name)) is not None:
            label = "" if name == "output_throughput" else metric(name).label + " "
            parts.append(label + value_text(name, value, gpus))
    if errors := figures.get("error_rate"):
        parts.append(f"{value_text('error_rate', errors)} errors")
    return "   ".join(parts)


def judged_text(judgement: Judgement, limit: Limit, estimate: Estimate) -> str:
    """'p99 TPOT 27.1 ms, at most 28.4 ms (95 %), limit 30 ms', and that it is over its limit, or not proven yet."""
    bound, side = limit.bound(estimate), "at most" if limit.better == "lower" else "at least"
    text = f"{limit.of.label} {value_text(limit.metric, estimate.value)}"
    text += f", {side} {limit.of.format(bound)} (95 %)" if math.isfinite(bound) else ""
    text += f", limit {limit.of.format_trimmed(limit.promise)}"
    if judgement.verdict is Verdict.MEETS:
        return text
    return f"{text}: {'over its limit' if judgement.verdict is Verdict.VIOLATES else 'not proven yet'}"


def announced_lines(decision: Decision, seconds: float, better: Better | None) -> list[str]:
    """The operating point as soon as it is proven, and what a higher setting may bring and take."""
    rate = decision.metrics.get("output_throughput")
    tokens = "" if rate is None else f"{value_text('output_throughput', rate.value)}, "
    lines = [f"Run at concurrency {decision.concurrency}: {tokens}proven after {format_elapsed(seconds)}."]
    keep = "Ctrl-C keeps this answer."
    if better is not None:
        gain = f"c={better.concurrency} may give {better.gain:.0%} more"
        keep = f"{gain}; about {format_rough(better.seconds)} would decide. {keep}"
    return [*lines, keep]


class _Count:
    """What is being done, what was, and the time left."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.begun = self.stage_begun = clock()
        self.ran = 0
        self.end: float | None = None
        self.longest, self.told = math.inf, self.begun
        self.stage: Stage | None = None
        self.key: tuple[object, ...] = ()
        self.looks: dict[int, str | None] = {}

    def staged(self, stage: Stage) -> None:
        self.stage = stage

    def started(self, trial: Trial) -> bool:
        """Whether something else is begun with this trial: another phase, or the proof of another setting."""
        word = self.stage.word if self.stage else ""
        key = (word, trial.series, trial.concurrency if word == "prove" else None)
        if key == self.key:
            return False
        self.key, self.stage_begun = key, self.clock()
        return True

    def expect(self, seconds: float, longest: float, why: str) -> str:
        """Take the new estimate; a line with its reason where it is another one than was shown, else ''."""
        now = self.clock()
        shown = None if self.end is None else max(0.0, self.end - now)
        self.end, self.longest, self.told = now + seconds, longest, now
        if shown is None or abs(seconds - shown) < max(_JUMP_SECONDS, (_JUMP - 1) * min(seconds, shown)):
            return ""
        text = f"about {format_rough(seconds)} left instead of {format_rough(shown)}"
        return f"{text}: {clean(why, 200)}" if why else text

    @property
    def elapsed(self) -> float:
        return self.clock() - self.begun

    @property
    def of_stage(self) -> str:
        """How long the phase has taken."""
        return format_elapsed(self.clock() - self.stage_begun)

    def left(self) -> str:
        """'12 min left', while anything is to come."""
        return "" if self.end is None else f"{format_rough(max(0.0, self.end - self.clock()))} left"

    def left_at_most(self) -> str:
        """'12 min left (at most 31 min)', where a bound is known."""
        if self.end is None or not math.isfinite(self.longest):
            return self.left()
        passed = self.clock() - self.told
        return f"{self.left()} (at most {format_rough(max(0.0, self.longest - passed))})"

    def head(self, trial: Trial) -> str:
        """'[2/3] fp8  1024/256  prove', the series only where there are several."""
        stage = self.stage
        if stage is None:
            return setting_name(trial)
        several = f"[{stage.place}/{stage.series_count}] {setting_name(trial)}  " if stage.series_count > 1 else ""
        return f"{several}{stage.word:<8}"

    def look(self, trial: Trial, judgement: Judgement, limit: Limit, estimate: Estimate) -> None:
        """Keep how the value of a scanned setting lies."""
        over = judgement.verdict is Verdict.VIOLATES or limit.breaks(estimate.value)
        self.looks[trial.concurrency] = limit.of.label if over else None

    def looks_text(self) -> str:
        """'c=1 2 4 inside · c=8 over p99 TPOT'."""
        groups: dict[str, list[int]] = {}
        for c, over in sorted(self.looks.items()):
            groups.setdefault("inside" if over is None else f"over {over}", []).append(c)
        return " · ".join(f"c={' '.join(map(str, each))} {how}" for how, each in groups.items())


class PlainProgress(Progress):
    """One line per event, each with the wall-clock time: for logs, nohup and CI."""

    def __init__(
        self,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
        stamp: Callable[[], str] = lambda: time.strftime("%Y-%m-%d %H:%M:%S"),
    ) -> None:
        self._stream, self._stamp = stream, stamp
        self._count = _Count(clock)
        self._flags = FlagLines()
        self._scan = self._scanned = ""

    def _say(self, text: str) -> None:
        self._stream.write(f"{self._stamp()}  {text}\n")
        self._stream.flush()

    def plan(self, total: int, done: int) -> None:
        """The first line, where trials were finished before."""
        if done:
            self._say(_plan_text(total, done))

    def expect(self, seconds: float, longest: float = math.inf, why: str = "") -> None:
        """Part of the lines of finished trials; before the first at once, and where it changes with the reason."""
        if self._count.end is None:
            most = f", at most {format_rough(longest)}" if math.isfinite(longest) else ""
            self._say(f"about {format_rough(seconds)} in all{most}")
        if line := self._count.expect(seconds, longest, why):
            self._say(line)

    def stage(self, stage: Stage) -> None:
        self._count.staged(stage)

    def trial_started(self, trial: Trial, number: int, total: int) -> None:  # noqa: ARG002  # said when it has ended
        """The line of a scan that is over."""
        head = self._scan
        if self._count.started(trial):
            self._end_scan(head)
            self._scan = self._count.head(trial)

    def _end_scan(self, head: str) -> None:
        if self._count.looks:
            self._say(f"{head}  {self._count.looks_text()}   {self._scanned}")
            self._count.looks.clear()

    def tick(self, tick: "TrialProgress") -> None:
        """Nothing: a log is not a screen."""

    def trial_finished(self, trial: Trial, figures: Mapping[str, float | None], flags: Sequence[Flag] = ()) -> None:
        """The trial's line, unless its setting is only looked at or is being proven; and what is wrong with it."""
        self._count.ran += 1
        stage = self._count.stage
        if stage is None or stage.word in ("grid", "complete"):
            done = trial_done(trial, stage)
            parts = [f"{self._count.head(trial)}  {done}", figures_text(figures), self._count.left()]
            self._say("   ".join(part for part in parts if part))
        for text, _ in self._flags.of(trial, flags):
            self._say(text)

    def judged(self, trial: Trial, judgement: Judgement, limit: Limit, estimate: Estimate) -> None:
        """The line of a proof; a scan has one line for all of its settings, at its end."""
        word = self._count.stage.word if self._count.stage else ""
        if word == "scan":
            self._count.look(trial, judgement, limit, estimate)
            self._scanned = self._count.of_stage
        elif word == "prove":
            text = judged_text(judgement, limit, estimate)
            self._say(f"{self._count.head(trial)}  {setting(trial.concurrency)}  {text}   {self._count.of_stage}")

    def announced(self, decision: Decision, seconds: float, better: Better | None) -> None:
        name = decision.series.label() if self._count.stage and self._count.stage.series_count > 1 else ""
        for line in announced_lines(decision, seconds, better):
            self._say(f"{name}  {line}" if name else line)

    def note(self, text: str) -> None:
        """A line of its own."""
        self._say(clean(text, 400))

    def close(self) -> None:
        """The last lines."""
        self._end_scan(self._scan)
        if counted := self._flags.counted():
            self._say(counted)
        self._say(f"{count(self._count.ran, 'trial')} run in {format_elapsed(self._count.elapsed)}")


def trial_done(trial: Trial, stage: Stage | None) -> str:
    """'5 of 8 settings · c=48', with the repeat where it is not the first."""
    repeat = f" r{trial.repeat}" if trial.repeat > 1 or stage is None else ""
    what = {Phase.VISIT: " visited", Phase.FRONTIER: " between settings"}.get(trial.phase, "")
    name = f"{setting(trial.concurrency)}{repeat if not what else ''}{what}"
    if stage is None:
        return name
    measured = stage.measured + (not what and trial.repeat == 1)
    return f"{min(measured, stage.settings)} of {count(stage.settings, 'setting')} · {name}"


Parts = list[tuple[str, str]]
"""A line as texts, each with the SGR code of its colour ('' for none)."""
_BOLD, _DIM, _RED, _YELLOW, _CYAN = "1", "2", "31", "33", "36"


class LiveProgress(Progress):
    """A few lines that are redrawn, finished trials scrolling by above them: how the trial stands, what it gives so
    far, the time, and where there is room for it the frontier so far of the shape that is being measured.

    Redrawing is done by hand: rich's takes milliseconds, in which the client would be late to stamp what arrives.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._count = _Count(clock)
        self._flags = FlagLines()
        self._phase = self._head_text = ""
        self._trial: Trial | None = None
        self._tick: TrialProgress | None = None
        self._seen: dict[tuple[str, str], dict[int, Spot]] = {}
        self._plot: list[str] = []
        self._drawn = 0.0
        self._on_screen = 0
        self._colour = console.color_system is not None and not console.no_color

    def plan(self, total: int, done: int) -> None:
        """What was finished before."""
        if done:
            self._above([(_plan_text(total, done), _DIM)])

    def expect(self, seconds: float, longest: float = math.inf, why: str = "") -> None:
        """Part of the live lines from now on; a line above where it changes, with the reason."""
        if line := self._count.expect(seconds, longest, why):
            self._lines_above(line, _DIM)

    def stage(self, stage: Stage) -> None:
        self._count.staged(stage)

    def trial_started(self, trial: Trial, number: int, total: int) -> None:  # noqa: ARG002  # the stage says more
        """The live lines now speak of this trial; the line of a phase that is over scrolls by above."""
        if self._count.started(trial):
            self._end_phase()
        self._trial, self._tick = trial, None
        self._head_text = self._count.head(trial)
        self._plot = self._frontier_so_far(trial)
        self._draw(always=True)

    def tick(self, tick: "TrialProgress") -> None:
        """Redraw, at most about twice a second."""
        self._tick = tick
        self._draw()

    def trial_finished(self, trial: Trial, figures: Mapping[str, float | None], flags: Sequence[Flag] = ()) -> None:
        """The line of a trial of the grid scrolls by above, and what is wrong with any."""
        self._count.ran += 1
        rate, latency = figures.get("output_throughput"), figures.get("p99_ttft")
        if rate is not None and latency is not None:
            # Of several repeats the last is shown: this is for the eye, the points are made from all of them.
            spots = self._seen.setdefault((trial.deployment, trial.shape.label), {})
            spot = Spot(latency, rate, excluded=any(flag.fatal for flag in flags))
            if not spot.excluded or spots.get(trial.concurrency, spot).excluded:
                spots[trial.concurrency] = spot
        stage = self._count.stage
        if stage is None or stage.word in ("grid", "complete"):
            done = f"  {trial_done(trial, stage)}   {figures_text(figures)}"
            self._above([(self._count.head(trial), _DIM), (done, "")])
        for text, excluded in self._flags.of(trial, flags):
            self._lines_above(text, _YELLOW if excluded else _DIM)

    def judged(self, trial: Trial, judgement: Judgement, limit: Limit, estimate: Estimate) -> None:
        """The line of a scan or a proof, rewritten with each of its trials until it scrolls by above."""
        word = self._count.stage.word if self._count.stage else ""
        if word == "scan":
            self._count.look(trial, judgement, limit, estimate)
            self._phase = f"  {self._count.looks_text()}   {self._count.of_stage}"
        elif word == "prove":
            text = judged_text(judgement, limit, estimate)
            self._phase = f"  {setting(trial.concurrency)}  {text}   {self._count.of_stage}"

    def _end_phase(self) -> None:
        """The line of a scan or a proof scrolls by above."""
        phase, self._phase = self._phase, ""
        self._count.looks.clear()
        if phase:
            self._above([(self._head_text, _DIM), (phase, "")])

    def announced(self, decision: Decision, seconds: float, better: Better | None) -> None:
        """Two lines above, the first in bold."""
        self._trial = None
        self._end_phase()
        name = f"{decision.series.label()}  " if self._count.stage and self._count.stage.series_count > 1 else ""
        first, second = announced_lines(decision, seconds, better)
        self._above([(f"{name}{first}", _BOLD)])
        self._lines_above(f"{name}{second}", "")

    def note(self, text: str) -> None:
        """A line above, or several where it is long."""
        self._lines_above(clean(text, 400), _YELLOW)

    def _lines_above(self, text: str, colour: str) -> None:
        for line in textwrap.wrap(text, max(20, self._console.width)) or [""]:
            self._above([(line, colour)])

    def close(self) -> None:
        """The live lines go, what scrolled by stays."""
        self._trial = None
        self._end_phase()
        if counted := self._flags.counted():
            self._lines_above(counted, _DIM)
        if self._count.ran:
            done = f"{count(self._count.ran, 'trial')} run in {format_elapsed(self._count.elapsed)}"
            self._above([(done, _DIM)])
        self._draw(always=True)

    def _above(self, parts: Parts) -> None:
        self._write(self._erasing() + self._dressed(parts) + "\n")
        self._on_screen = 0
        self._draw(always=True)

    def _draw(self, *, always: bool = False) -> None:
        now = self._clock()
        if always or now - self._drawn >= _DRAW_EVERY:
            self._drawn = now
            lines = [*(self._dressed(parts) for parts in self._head()), *self._plot] if self._trial else []
            self._write(self._erasing() + "".join(f"{line}\n" for line in lines))
            self._on_screen = len(lines)

    def _erasing(self) -> str:
        return f"\x1b[{self._on_screen}A\x1b[J" if self._on_screen else ""

    def _write(self, text: str) -> None:
        if text:
            self._console.file.write(text)
            self._console.file.flush()

    def _dressed(self, parts: Parts) -> str:
        """One line for the terminal: figures it has no room for are left out whole, a half of one would mislead."""
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
        return ["".join(text for text, _ in parts) for parts in self._head()] + self._plot

    def _head(self) -> list[Parts]:
        if self._trial is None:
            return []
        first: Parts = [(self._count.head(self._trial), _BOLD), (f"  {setting(self._trial.concurrency)}", "")]
        lines = [*([[(self._head_text, _DIM), (self._phase, "")]] if self._phase else []), first]
        if (tick := self._tick) is not None:
            first += [
                (f"   {_STAGES.get(tick.stage, clean(tick.stage, 20))}", _CYAN),
                (f"   {tick.in_flight} in flight", ""),
            ]
            if tick.stage in ("window", "hold"):
                first.append((f"   {tick.window_sent:,}/{self._trial.requests:,} sent", ""))
            if tick.failed:
                first.append((f"   {tick.failed:,} failed", _RED))
            first.append((f"   {format_elapsed(tick.elapsed)}", _DIM))
            if so_far := _so_far_text(tick):
                lines.append([(so_far, "")])
        spent = [f"{format_elapsed(self._count.elapsed)} so far", self._count.left_at_most()]
        lines.append([("   ".join(part for part in spent if part), _DIM)])
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
    """As many of the parts, which three spaces separate, as fit; where not even the first does, what fits of it."""
    cut = text
    while cell_len(cut) > room and "   " in cut.lstrip():
        cut = cut[: cut.rindex("   ")].rstrip()
    return cut if cell_len(cut) <= room else "" if text.startswith("   ") else set_cell_size(cut, room)


def _so_far_text(tick: "TrialProgress") -> str:
    """'so far  about 2,914 tok/s   p50 TTFT 310 ms   p99 TTFT 2.33 s'."""
    figures = {"output_throughput": tick.rate, "p50_ttft": tick.p50_ttft, "p99_ttft": tick.p99_ttft}
    text = figures_text(figures)
    return f"so far about  {text}" if text else ""


def _plan_text(total: int, done: int) -> str:
    return count(total, "trial") + (f", {done:,} of them finished before" if done else "")


# --- the settings so far as a plot of characters

MARGIN = 9
"""Columns left of the plot, for the numbers of the vertical axis."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A setting: a latency in seconds (across, logarithmic) and a rate (upward, from 0). An excluded one is drawn with
    a ring, and beats no other.
    """

    latency: float
    rate: float
    excluded: bool = False


def best_so_far(spots: Mapping[int, Spot]) -> set[int]:
    """The settings that no other beats in both, without the excluded ones."""
    best, most = set(), -math.inf
    spots = {c: spot for c, spot in spots.items() if not spot.excluded}
    for concurrency, spot in sorted(spots.items(), key=lambda item: (item[1].latency, -item[1].rate)):
        if spot.rate > most:
            best.add(concurrency)
            most = spot.rate
    return best


def text_plot(spots: Mapping[int, Spot], *, across: str, up: str, width: int = 60, height: int = 8) -> Text:
    """The settings on a grid of so many columns and rows, those not finite named below it; '' for fewer than two.

    A number that would cover another is drawn as a dot, or not at all where the place itself is taken.
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
        label = f"{'○' if spot.excluded else ''}{concurrency}"
        start = min(max(0, column - len(label) + 1), columns - len(label))
        if any(ch != " " for ch in grid[row][max(0, start - 1) : start + len(label) + 1]):
            label, start = "·", column
        if grid[row][start] == " ":
            for i, ch in enumerate(label):
                grid[row][start + i] = ch
                styles[row][start + i] = "bold blue" if concurrency in on_it else "dim"
    text = Text(no_wrap=True, overflow="ellipsis")
    for i in range(height):
        number = format_number(top) if i == 0 else "0" if i == height - 1 else ""
        text.append(f"{number:>{MARGIN - 1}} │", style="dim")
        for ch, style in zip(grid[i], styles[i], strict=True):
            text.append(ch, style=style)
        text.append(f" {up}\n" if i == 0 else "\n", style="dim")
    left, right = format_seconds(least), f"{format_seconds(most)}  {across}"
    text.append(" " * MARGIN + "└" + "─" * columns + "\n", style="dim")
    text.append(f"{'':{MARGIN + 1}}{left}{right:>{max(0, columns - len(left))}}", style="dim")
    if beyond := sorted(spots.keys() - drawn.keys()):
        text.append(f"\n{'':{MARGIN + 1}}not on this chart, with no such {across}: ", style="dim")
        text.append(", ".join(f"c={c}" for c in beyond), style="dim")
    return text
