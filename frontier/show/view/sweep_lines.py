"""The progress of a sweep in lines: what each event of it says. `show/progress.py` writes them to a
log, `show/live.py` draws them on a terminal.

There is a line for:

- each setting, with its throughput, its limited metrics and how it stands: a table that grows;
- the operating point, as soon as it is known;
- each trial of a stated grid.

Everything that came from a server is cleaned and never read as markup.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from frontier.core.model.decisions import Decision, Judgement, Limit, Verdict
from frontier.core.model.loads import NO_LOAD
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate, Flag
from frontier.core.model.series import Series
from frontier.core.model.text import clean
from frontier.core.model.trials import Trial
from frontier.core.model.units import format_elapsed
from frontier.planning.sweep_progress import HigherSetting, Progress, Stage
from frontier.planning.time_left import TimeLeft as TimeLeft
from frontier.show.view.rough import format_range, format_rough
from frontier.show.view.wording import VERDICT_WORDS, count, flag_words, load_words, told, value_text

if TYPE_CHECKING:
    from frontier.client.load.loop import TrialProgress

_STAGES = {"ramp": "ramp-up", "warmup": "warm-up", "window": "window", "hold": "draining"}
_BAR = 20
"""Characters of the progress bar."""
BOLD, DIM, YELLOW = "1", "2", "33"
"""SGR codes of the styles of a line."""


def setting_name(trial: Trial) -> str:
    """'fp8  1024/256': the deployment, where it has a name, and the shape."""
    return trial.series.label(join="  ", longest=30)


def figures_text(figures: Mapping[str, float | None], limited: Collection[str] = (), *, aligned: bool = False) -> str:
    """'2,914 tok/s  p99 TTFT 2.33 s', and the share of errors where there were any. The latencies
    are the limited ones, or all where none is limited. Those of several lines may be `aligned`.
    """
    parts = []
    for name, value in figures.items():
        if value is not None and name != "error_rate" and (not limited or name in ("output_throughput", *limited)):
            label = "" if name == "output_throughput" else metric(name).label + " "
            text = value_text(name, value)
            parts.append(label + (text.rjust(_WIDTHS.get(name, 7)) if aligned else text))
    if errors := figures.get("error_rate"):
        parts.append(f"{value_text('error_rate', errors)} errors")
    return "   ".join(parts)


_WIDTHS = {"output_throughput": 12}
"""Characters of a value in lines that are aligned."""


class SweepProgress(Progress, ABC):
    """A sweep in lines: what is measured now, what was measured, and the time left. A display shows
    a line by `_line`.
    """

    is_log = False
    """Whether there are no live lines. A trial's line then has the time left, and the last line
    comes without a trial."""
    limited: Collection[str] = ()
    """The metrics that the SLA limits."""
    announces = True
    """Whether proven operating points are announced."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun = self._row_begun = clock()
        self._ran = self._before = 0
        self._time_left: TimeLeft | None = None
        self._told = self._begun
        self._stage = Stage("grid", 1, 1, 0, 1)
        self._key: tuple[object, ...] = ()
        self._figures: dict[str, float | None] = {}
        self._state = ""
        self._states: dict[tuple[Any, ...], str] = {}
        self._busy: set[tuple[Series, int]] = set()
        self._busy_trials, self._busy_measured = 0, ""
        self._row_head = ""
        self._silent_minutes = 0
        self._trial: Trial | None = None
        self._tick: TrialProgress | None = None

    @abstractmethod
    def _line(self, text: str, style: str = "") -> None:
        """Show a line; `style` is an SGR code."""

    def _changed(self) -> None:
        """The running trial, or its state, is another one: for a display that shows it."""

    def plan(self, total: int, finished: int) -> None:  # noqa: ARG002  # the plan is printed before
        """Write the first line, where trials were finished before."""
        self._before = finished
        if finished:
            self._line(f"{count(finished, 'trial')} finished before", DIM)

    def expect(self, left: TimeLeft) -> None:
        """Take the time left, for the line of a phase and the bar."""
        self._time_left, self._told = left, self._clock()

    def stage(self, stage: Stage) -> None:
        self._stage = stage

    def tick(self, tick: "TrialProgress") -> None:
        """Write a line for each minute that the longest silence of a request has lasted."""
        minutes = int(max(tick.silent, default=0.0) // 60)
        number = sum(seconds >= 60 * minutes for seconds in tick.silent)
        if minutes > self._silent_minutes:
            verb = "has" if number == 1 else "have"
            self._line(f"{count(number, 'request')} {verb} been silent for {format_elapsed(60 * minutes)}", YELLOW)
        self._silent_minutes, self._tick = minutes, tick
        self._changed()

    @property
    def _word(self) -> str:
        """What is done: search, prove, complete or grid."""
        return "search" if self._stage.word == "scan" else self._stage.word

    def trial_started(self, trial: Trial) -> None:
        """Write the row of the last setting, where this trial is of another one or of another
        phase.
        """
        key = (self._word, trial.series, trial.load)
        if key != self._key:
            self._end_row()
            self._key, self._row_begun = key, self._clock()
            self._row_head = f"{self._head(trial)}  {trial.load.label:<6}"
        self._trial, self._tick = trial, None
        self._changed()

    def _end_row(self) -> None:
        """Write the row of a setting, where it has one that says something new."""
        figures, self._figures, state, self._state = self._figures, {}, self._state, ""
        word, *place = self._key or ("",)
        if not figures or self._states.get(tuple(place)) == state:
            return
        self._states[tuple(place)] = state
        took = f"after {format_elapsed(self._clock() - self._row_begun)}" if word == "prove" else ""
        parts = (figures_text(figures, self.limited, aligned=True), " ".join(filter(None, (state, took))))
        self._line("   ".join(filter(None, (f"{self._row_head}{parts[0]}", parts[1], self._left() * self.is_log))))

    def trial_finished(self, trial: Trial, figures: Mapping[str, float | None], flags: Sequence[Flag] = ()) -> None:
        """Write the line of a trial of a grid, or take the figures for the setting's row. Of an
        excluded trial the line says why.
        """
        self._ran += 1
        fatal, grid = told(flag for flag in flags if flag.fatal), self._word == "grid"
        name = trial_done(trial, self._stage) if grid else f"{trial.load.label:<6}"
        if fatal:
            busy = [flag.name for flag in fatal] == ["client_bound"]
            if not busy or self._was_busy(trial, fatal[0]):
                why = "; ".join(map(flag_words, fatal))
                self._line(f"{self._head(trial)}  {name}  excluded: {why}", YELLOW)
        elif grid:
            parts = [name, figures_text(figures, self.limited), self._left() if self.is_log else ""]
            self._line(f"{self._head(trial)}  {'   '.join(filter(None, parts))}")
        else:
            self._figures = dict(figures)

    def _was_busy(self, trial: Trial, flag: Flag) -> bool:
        """Count a trial that this machine spoilt. Whether it has a line: the first of its setting,
        in a log, where nothing else is known of it.
        """
        self._busy_trials, self._busy_measured = self._busy_trials + 1, clean(flag.measured, 160)
        known, place = len(self._busy), (trial.series, trial.load)
        self._busy.add(place)
        return self.is_log and len(self._busy) > known and place not in self._states

    def _busy_line(self) -> str:
        """'this machine was busy: 11 of 12 trials excluded (event loop late (p99) 9 ms)', or ''."""
        if not self._busy_trials:
            return ""
        of = f"{self._busy_trials:,} of {count(self._ran, 'trial')} excluded"
        return f"this machine was busy: {of} ({self._busy_measured}); an idle machine or core would measure them"

    def judged(self, trial: Trial, judgement: Judgement, limit: Limit, estimate: Estimate) -> None:  # noqa: ARG002
        """Take how the setting stands for its row, with the value of all its trials."""
        if not self._figures:
            return
        self._figures[limit.metric] = estimate.value
        word = VERDICT_WORDS[judgement.verdict]
        if self._word == "search":
            over = judgement.verdict is Verdict.VIOLATES or limit.breaks(estimate.value)
            word = f"over {limit.of.label}" if over else "within"
        elif judgement.verdict is Verdict.VIOLATES:
            word = f"{word} {limit.of.label}"
        self._state = word

    def announced(self, decision: Decision, seconds: float, better: HigherSetting | None) -> None:
        """Write the operating point as soon as it is proven, with what a higher setting may gain
        and the time that it takes.
        """
        self._trial = None
        self._end_row()
        if not self.announces:
            return
        name = f"{decision.series.label()}  " if self._stage.series_count > 1 else ""
        rate = decision.metrics.get("output_throughput")
        tokens = "" if rate is None else f"{value_text('output_throughput', rate.value)}, "
        at = load_words(decision.load or NO_LOAD, decision.shape)
        line = f"{name}Run at {at}: {tokens}proven after {format_elapsed(seconds)}."
        if better is not None:
            line += f" {better.load.label} may give {better.gain:.0%} more"
            line += "." if better.seconds is None else f"; about {format_rough(better.seconds)} would decide."
        self._line(line, BOLD)

    def note(self, text: str) -> None:
        """Write a line of its own."""
        self._line(clean(text, 400), YELLOW)

    def close(self) -> None:
        """Write the last lines."""
        self._trial = None
        self._end_row()
        if busy := self._busy_line():
            self._line(busy, YELLOW)
        if self._ran or self.is_log:
            in_all = f", {self._before + self._ran:,} in all" if self._before else ""
            self._line(f"{count(self._ran, 'trial')} run in {self._elapsed}{in_all}", DIM)

    @property
    def _elapsed(self) -> str:
        return format_elapsed(self._clock() - self._begun)

    def running(self) -> list[list[str]]:
        """The parts of the lines on the running trial: its state and figures so far; then the time
        that has passed and what is left of it.
        """
        if self._trial is None:
            return []
        line = [f"{self._head(self._trial)}  {self._trial.load.label}"]
        if (tick := self._tick) is not None:
            line += [_STAGES.get(tick.stage, clean(tick.stage, 20)), f"{tick.in_flight:,} in flight"]
            if tick.stage in ("window", "hold"):
                line.append(f"{tick.window_sent:,}/{self._trial.requests:,} sent")
            if tick.failed:
                line.append(f"{tick.failed:,} failed")
            line.append(format_elapsed(tick.elapsed))
            figures = {"output_throughput": tick.rate, "p50_ttft": tick.p50_ttft, "p99_ttft": tick.p99_ttft}
            if text := figures_text(figures):
                line += f"so far about {text}".split("   ")
        time = [*filter(None, (self._bar(), f"{self._elapsed} so far", self._left()))]
        return [line, time, *([[busy]] if (busy := self._busy_line()) else [])]

    def _bar(self) -> str:
        """'[#####···············]' by the sweep's time; '' while the time is not known."""
        if self._time_left is None or self._time_left.open:
            return ""
        now = self._clock()
        passed, left = now - self._begun, self._time_left.after(now - self._told).seconds
        filled = round(_BAR * passed / max(passed + left, 1.0))
        return f"[{'#' * filled}{'·' * (_BAR - filled)}]"

    def _left(self) -> str:
        """'7 to 20 min left', while anything is to come; '' where it takes longer than was
        expected.
        """
        left = self._time_left and self._time_left.after(self._clock() - self._told)
        return f"{format_range(*left.range)} left" if left and left.seconds else ""

    def _head(self, trial: Trial) -> str:
        """'[2/3] fp8 1024/256  prove'; the series only where there are several."""
        stage = self._stage
        several = f"[{stage.place}/{stage.series_count}] {setting_name(trial)}  " if stage.series_count > 1 else ""
        return f"{several}{self._word:<8}"


def trial_done(trial: Trial, stage: Stage) -> str:
    """'5 of 8 settings · c=48', with the repeat after the first one."""
    repeat = f" r{trial.repeat}" if trial.repeat > 1 else ""
    measured = stage.measured + (trial.repeat == 1)
    return f"{min(measured, stage.settings)} of {count(stage.settings, 'setting')} · {trial.load.label}{repeat}"
