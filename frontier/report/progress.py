"""How a sweep stands while it runs, in words; and plain timestamped lines of it for logs (see `live` for a terminal).

There is a line for a scan, one for each setting that is proven, the operating point as soon as it is known, and a line
per trial that completes the frontier. Everything that came from a server is cleaned and never read as markup.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from frontier.decide.wording import clean, count, flag_kind, flag_words, setting, value_text
from frontier.metrics import metric
from frontier.model import Decision, Estimate, Flag, Judgement, Limit, Phase, Trial, Verdict, in_words, listed
from frontier.plan import Better, Progress, Stage
from frontier.units import format_elapsed, format_rough

if TYPE_CHECKING:
    from frontier.client.loop import TrialProgress

_FIGURES = ("output_throughput", "p50_ttft", "p99_ttft", "p99_tpot")
_JUMP, _JUMP_SECONDS = 1.3, 60.0
"""A time left that is by this factor, and by so many seconds, another one than was shown is given with its reason."""


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
    lines = [f"Run at {in_words(decision.concurrency or 0)}: {tokens}proven after {format_elapsed(seconds)}."]
    keep = "Ctrl-C keeps this answer."
    if better is not None:
        gain = f"{setting(better.concurrency)} may give {better.gain:.0%} more"
        keep = f"{gain}; about {format_rough(better.seconds)} would decide. {keep}"
    return [*lines, keep]


class Tally:
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
        return " · ".join(f"{listed(each, ' ')} {how}" for how, each in groups.items())


class PlainProgress(Progress):
    """One line per event, each with the wall-clock time: for logs, nohup and CI."""

    def __init__(
        self,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
        stamp: Callable[[], str] = lambda: time.strftime("%Y-%m-%d %H:%M:%S"),
    ) -> None:
        self._stream, self._stamp = stream, stamp
        self._count = Tally(clock)
        self._flags = FlagLines()
        self._scan = self._scanned = ""

    def _say(self, text: str) -> None:
        self._stream.write(f"{self._stamp()}  {text}\n")
        self._stream.flush()

    def plan(self, total: int, done: int) -> None:
        """The first line, where trials were finished before."""
        if done:
            self._say(plan_text(total, done))

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


def plan_text(total: int, done: int) -> str:
    return count(total, "trial") + (f", {done:,} of them finished before" if done else "")
