"""What is said while a sweep runs: plain lines in a log, a redrawn line on a terminal."""

import io
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from rich.console import Console

from frontier.core.model.decisions import Decision, Judgement, Limit, Verdict
from frontier.core.model.loads import Concurrency
from frontier.core.model.points import Estimate, Flag
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Phase, Trial
from frontier.planning.sweep_progress import HigherSetting, Progress, Stage
from frontier.planning.time_left import TimeLeft
from frontier.show.live import LiveProgress, fitted, make_progress
from frontier.show.progress import PlainProgress
from frontier.show.view.wording import flag_words
from tests.kit.golden import assert_golden_row
from tests.kit.toy import SHAPE

FIGURES = {"output_throughput": 2914.0, "p50_ttft": None, "p99_ttft": 2.33, "error_rate": 0.0}


@dataclass
class Tick:
    stage: str = "window"
    elapsed: float = 41.0
    in_flight: int = 128
    window_sent: int = 213
    finished: int = 400
    failed: int = 0
    rate: float | None = None
    p50_ttft: float | None = None
    p99_ttft: float | None = None
    silent: tuple[float, ...] = ()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def trial(c: int = 128, repeat: int = 3, shape: Shape = SHAPE, deployment: str = "default") -> Trial:
    return Trial(deployment, shape, c, repeat, Phase.GRID, 300, 1, 20.0, 0.0, 300.0, "f")


def test_a_log_gets_one_stamped_line_per_trial() -> None:
    out, clock = io.StringIO(), Clock()
    progress = PlainProgress(out, clock, lambda: "12:00:00")
    progress.plan(3, 1)
    for _ in (2, 3):
        progress.trial_started(trial())
        progress.tick(Tick())
        clock.now += 60
        progress.trial_finished(trial(), FIGURES)
    progress.note("a note")
    progress.close()

    assert ["12:00:00"] * 5 == [line.split()[0] for line in out.getvalue().splitlines()]
    assert_golden_row("progress", out.getvalue())


def test_requests_that_are_silent_are_told_each_minute_of_the_longest_silence() -> None:
    out = io.StringIO()
    progress = PlainProgress(out, Clock(), lambda: "t")
    progress.trial_started(trial())
    said = []
    for passed in (30.0, 59.0, 61.0, 90.0, 121.0):  # another falls silent every half minute
        progress.tick(Tick(silent=tuple(since for k in range(4) if (since := passed - 30 * k) > 10)))
        said.append(out.getvalue().count("silent"))
    assert [0, 0, 1, 1, 2] == said
    one, several = (line for line in out.getvalue().splitlines() if "silent" in line)
    assert "1 request " in one
    assert "2 min" in several


def test_a_pipe_gets_the_plain_view() -> None:
    assert isinstance(make_progress(io.StringIO()), PlainProgress)


def live(clock: Clock) -> tuple[LiveProgress, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None, _environ={}, markup=False)
    return LiveProgress(console, clock), out


def shown(progress: LiveProgress) -> list[str]:
    """What the live lines say now, without colour and uncut."""
    return ["   ".join(parts) for parts in progress.running()]


def test_a_terminal_shows_stage_streams_requests_failures_and_time() -> None:
    clock = Clock()
    progress, _ = live(clock)
    progress.plan(30, 0)
    progress.trial_started(trial())
    progress.tick(Tick(failed=2))
    said = "\n".join(shown(progress))
    progress.close()

    assert_golden_row("progress", said)


def test_the_time_left_is_what_is_expected_less_what_has_passed_since() -> None:
    clock = Clock()
    progress, _ = live(clock)
    progress.trial_started(trial())
    progress.expect(TimeLeft(480.0))
    said = []
    for passed in (0, 60, 600):  # at last it is longer than was expected: a trial runs, so something is left
        clock.now += passed
        said.append("\n".join(shown(progress)))
    progress.close()
    assert_golden_row("progress", "\n\n".join(said))


def test_a_log_says_what_is_expected_at_the_start_and_with_each_trial() -> None:
    out, clock = io.StringIO(), Clock()
    progress = PlainProgress(out, clock, lambda: "t")
    progress.expect(TimeLeft(120.0))
    progress.trial_started(trial())
    clock.now += 60
    progress.expect(TimeLeft(70.0))
    progress.trial_finished(trial(), FIGURES)
    progress.close()
    assert_golden_row("progress", out.getvalue())


def test_a_log_of_a_finished_sweep_has_no_time_left() -> None:
    out = io.StringIO()
    PlainProgress(out, Clock(), lambda: "t").expect(TimeLeft())
    assert not out.getvalue()


TPOT = Limit("p99_tpot", 0.030)


def judged(
    c: int, phase: Phase, value: float, upper: float, verdict: Verdict
) -> tuple[Trial, Judgement, Limit, Estimate]:
    estimate = Estimate(value, value, value, 900, upper=upper)
    return replace(trial(c, 1), phase=phase), Judgement(c, verdict, {"p99_tpot": verdict}, "p99_tpot"), TPOT, estimate


def drive(progress: Progress, clock: Clock, series_count: int = 1) -> None:
    """A sweep as the conductor reports it: a scan, a proof, the announcement, a setting of the
    frontier.
    """
    progress.expect(TimeLeft(1140.0))
    for c, value in ((1, 0.008), (8, 0.012), (64, 0.028), (128, 0.041)):
        one = judged(c, Phase.SCAN, value, math.inf, Verdict.VIOLATES if value > 0.03 else Verdict.UNPROVEN)
        progress.stage(Stage("scan", 2, series_count, 0, 4))
        progress.trial_started(one[0])
        clock.now += 40
        progress.trial_finished(one[0], FIGURES)
        progress.judged(*one)
    for upper, verdict in ((math.inf, Verdict.UNPROVEN), (0.0284, Verdict.MEETS)):
        one = judged(88, Phase.PROVE, 0.0271, upper, verdict)
        progress.stage(Stage("prove", 2, series_count, 0, 4))
        progress.trial_started(one[0])
        clock.now += 125
        progress.trial_finished(one[0], FIGURES)
        progress.judged(*one)
    rate = {"output_throughput": Estimate.without_interval(3410.0, 900)}
    decision = Decision("default", SHAPE, (TPOT,), Verdict.MEETS, Concurrency(88), "p99_tpot", rate, ())
    progress.announced(decision, clock.now, HigherSetting(Concurrency(100), 0.06, 540.0))
    progress.stage(Stage("complete", 2, series_count, 1, 4))
    progress.expect(TimeLeft(720.0))
    progress.trial_started(trial(64, 1))
    progress.trial_finished(trial(64, 1), FIGURES)
    progress.close()


def stages(lines: list[str]) -> list[tuple[str, str]]:
    """The stage and the setting of each row, in their order."""
    rows = [line.split() for line in lines]
    words = [(row[k], row[k + 1]) for row in rows for k in range(len(row) - 1)]
    return [pair for pair in words if pair[0] in ("search", "prove", "complete")]


ROWS = [*(("search", f"c={c}") for c in (1, 8, 64, 128)), ("prove", "c=88"), ("complete", "c=64")]


def test_a_log_has_a_row_for_each_setting_and_the_answer() -> None:
    out, clock = io.StringIO(), Clock()
    drive(PlainProgress(out, clock, lambda: "t"), clock)
    assert stages(out.getvalue().splitlines()) == ROWS
    assert_golden_row("progress", out.getvalue())


def test_a_setting_has_a_row_only_where_it_stands_otherwise_than_before() -> None:
    out, clock = io.StringIO(), Clock()
    progress = PlainProgress(out, clock, lambda: "t")
    for word, phase, verdict in (
        ("scan", Phase.SCAN, Verdict.UNPROVEN),
        ("prove", Phase.PROVE, Verdict.MEETS),
        ("complete", Phase.VISIT, Verdict.MEETS),
        ("complete", Phase.VISIT, Verdict.VIOLATES),
    ):
        for other in (16, 88):
            one = judged(other, phase, 0.0271, 0.0284, verdict)
            progress.stage(Stage(word, 1, 1, 0, 4))  # type: ignore[arg-type]
            progress.trial_started(one[0])
            progress.trial_finished(one[0], FIGURES)
            progress.judged(*one)
    progress.close()
    rows = [line for line in out.getvalue().splitlines() if "c=88" in line]
    assert ["within", "meets", "violates"] == [
        word for row in rows for word in ("within", "meets", "violates") if word in row
    ]


def test_a_trial_that_is_excluded_is_in_no_row() -> None:
    out = io.StringIO()
    progress = PlainProgress(out, Clock(), lambda: "t")
    one = judged(16, Phase.SCAN, 0.01, 0.02, Verdict.INVALID)
    progress.stage(Stage("scan", 1, 1, 0, 4))
    progress.trial_started(one[0])
    progress.trial_finished(one[0], FIGURES, (WAVES,))
    progress.judged(*one)
    progress.close()
    assert "tok/s" not in out.getvalue()
    assert WAVES.measured in out.getvalue()


def test_a_terminal_has_the_same_lines() -> None:
    clock = Clock()
    progress, out = live(clock)
    drive(progress, clock)
    lines = Screen(out.getvalue()).lines
    assert stages(lines) == ROWS
    assert_golden_row("progress", "\n".join(lines))


def test_of_several_series_each_line_says_which() -> None:
    out, clock = io.StringIO(), Clock()
    drive(PlainProgress(out, clock, lambda: "t"), clock, series_count=3)
    lines = out.getvalue().splitlines()
    assert [False, *[True] * 7, False] == ["1024/256" in line for line in lines]
    assert_golden_row("progress", out.getvalue())


def test_drawing_is_seldom_however_often_it_is_told() -> None:
    clock = Clock()
    progress, out = live(clock)
    progress.trial_started(trial())
    before = len(out.getvalue())
    for _ in range(100):
        clock.now += 0.001
        progress.tick(Tick())

    assert before == len(out.getvalue())
    clock.now += 1
    progress.tick(Tick())
    assert before < len(out.getvalue())
    progress.close()


def test_finished_trials_stay_on_the_screen() -> None:
    progress, out = live(Clock())
    progress.trial_started(trial())
    progress.trial_finished(trial(), FIGURES)
    progress.close()

    assert_golden_row("progress", "\n".join(Screen(out.getvalue()).lines))


def test_hostile_names_and_notes_are_cleaned() -> None:
    out = io.StringIO()
    progress = PlainProgress(out, Clock(), lambda: "t")
    progress.stage(Stage("grid", 1, 2, 0, 1))
    progress.trial_started(trial(shape=Shape(SHAPE.isl, SHAPE.osl, name="a\x1b[2Jb\nc")))
    progress.trial_finished(trial(shape=Shape(SHAPE.isl, SHAPE.osl, name="a\x1b[2Jb\nc")), {})
    progress.note("server says \x1b]0;owned\x07\r\n[red]x")

    assert [
        "t  [1/2] a[2Jb c  grid      0 of 1 setting · c=128 r3",
        "t  server says ]0;owned [red]x",
    ] == out.getvalue().splitlines()


def test_a_terminal_shows_what_the_trial_gives_so_far() -> None:
    progress, _ = live(Clock())
    progress.trial_started(trial())
    progress.tick(Tick())
    before = shown(progress)
    progress.tick(Tick(rate=2914.0, p50_ttft=0.31, p99_ttft=2.33))
    after = shown(progress)
    progress.close()

    assert 2 == len(before) == len(after)
    assert after[0].startswith(before[0])
    assert_golden_row("progress", "\n".join(after))


@pytest.mark.parametrize(("passed", "filled"), [(0.0, 0), (240.0, 10), (479.0, 20), (900.0, 20)])
def test_a_bar_shows_the_share_of_the_time_that_has_passed(passed: float, filled: int) -> None:
    clock = Clock()
    progress, _ = live(clock)
    progress.trial_started(trial())
    assert "[" not in shown(progress)[-1], "nothing is expected yet"
    progress.expect(TimeLeft(480.0, open=True))
    assert "[" not in shown(progress)[-1], "nor is it bounded"
    progress.expect(TimeLeft(480.0))
    clock.now += passed
    assert f"[{'#' * filled}{'·' * (20 - filled)}]" in shown(progress)[-1]
    progress.close()


BUSY = Flag("client_bound", "event loop late (p99) 5.82 ms", "5.00 ms", "an idle machine")
WAVES = Flag("lockstep", "variance over mean 3.1", "2.00", "vary the lengths")
NOTED = Flag("resent", "4 requests", "0", "nothing", fatal=False)
FEW = Flag("too_few_samples", "3 requests", "1000 for a p99", "more", fatal=False)


def test_a_flag_that_excludes_is_said_in_words_where_it_arises() -> None:
    out = io.StringIO()
    log = PlainProgress(out, Clock(), lambda: "t")
    log.trial_started(trial(32))
    log.trial_finished(trial(32), FIGURES, (BUSY, WAVES, NOTED, FEW))
    log.trial_finished(trial(32), FIGURES, (NOTED,))
    log.trial_finished(trial(32), FIGURES, (WAVES,))
    flagged = [line for line in out.getvalue().splitlines() if "tok/s" not in line]
    assert [WAVES.measured in line for line in flagged] == [False, True], "a busy client may have made them"
    assert NOTED.measured not in out.getvalue()
    assert_golden_row("progress", out.getvalue())
    progress, out = live(Clock())
    progress.trial_started(trial(32, deployment="fp8"))
    progress.trial_finished(trial(32, deployment="fp8"), FIGURES, (BUSY, WAVES, NOTED))
    lines = Screen(out.getvalue()).lines
    assert max(map(len, lines)) <= 100
    assert_golden_row("progress", "\n".join(lines), "on a terminal")
    progress.close()


@pytest.mark.parametrize("word", ["scan", "prove", "complete", "grid"])
def test_a_log_has_one_line_of_each_setting_that_a_busy_machine_spoilt(word: str) -> None:
    out = io.StringIO()
    log = PlainProgress(out, Clock(), lambda: "t")
    log.stage(Stage(word, 1, 1, 0, 4))  # type: ignore[arg-type]
    for c in (8, 16, 8, 16, 8):
        log.trial_started(trial(c))
        log.trial_finished(trial(c), FIGURES, (BUSY,))
    log.close()
    lines = out.getvalue().splitlines()
    assert [1, 1, 1] == [sum(text in line for line in lines) for text in ("c=8", "c=16", "5 of 5 trials")]
    assert "tok/s" not in out.getvalue(), "its numbers mean nothing"


def test_of_a_setting_that_is_known_a_trial_that_a_busy_machine_spoilt_has_no_line() -> None:
    out = io.StringIO()
    log = PlainProgress(out, Clock(), lambda: "t")
    log.stage(Stage("prove", 1, 1, 0, 4))
    for c, flags in ((32, ()), (64, ()), (32, (BUSY,))):
        one = judged(c, Phase.PROVE, 0.0271, 0.0284, Verdict.MEETS)
        log.trial_started(one[0])
        log.trial_finished(one[0], FIGURES, flags)
        log.judged(*one)
    log.close()
    assert 1 == sum("c=32" in line for line in out.getvalue().splitlines())
    assert "1 of 3 trials" in out.getvalue()


def test_every_flag_that_is_raised_has_words() -> None:
    import frontier.core

    source = "".join(path.read_text() for path in Path(frontier.core.__file__).parent.rglob("*.py"))
    raised = set(re.findall(r"(?:Flag|_flag)\(\s*f?\"([a-z_]+)\"", source))
    assert {"lockstep", "errors", "buffered_stream"} <= raised
    bare = {name for name in raised if flag_words(Flag(name, "1", "", "")).startswith(name.replace("_", " ") + ":")}
    assert set() == bare, "these have no words of their own"


class Screen:
    """A terminal as far as the live view uses it: lines, the cursor moved up, and what is below it
    erased.
    """

    def __init__(self, text: str) -> None:
        self.lines: list[str] = []
        for part in re.split(r"(\x1b\[\d+A\x1b\[J)", text):
            if up := re.fullmatch(r"\x1b\[(\d+)A\x1b\[J", part):
                assert int(up[1]) <= len(self.lines)
                del self.lines[len(self.lines) - int(up[1]) :]
            else:
                self.lines += part.split("\n")[:-1]


def test_the_screen_holds_what_scrolled_by_and_one_live_view() -> None:
    clock = Clock()
    progress, out = live(clock)
    progress.plan(30, 0)
    for _ in (1, 2, 3):
        progress.trial_started(trial())
        for _ in range(3):
            clock.now += 1
            progress.tick(Tick(rate=2914.0))
        progress.trial_finished(trial(), FIGURES)
    progress.note("a note " * 30)
    progress.trial_started(trial(1))
    progress.tick(Tick())
    lines = Screen(out.getvalue()).lines
    assert 3 == sum("p99 TTFT 2.33 s" in line for line in lines)
    assert 1 == sum(line == "grid      c=1" for line in lines)
    assert max(map(len, lines)) <= 100
    progress.close()
    assert_golden_row("progress", "\n".join(Screen(out.getvalue()).lines))
    assert not re.search(r"\x1b\[\d+m", out.getvalue())


def test_colour_only_where_the_terminal_has_it() -> None:
    def said(**environ: str) -> str:
        out = io.StringIO()
        console = Console(file=out, force_terminal=True, width=100, height=30, _environ={"TERM": "xterm", **environ})
        progress = LiveProgress(console, Clock())
        progress.trial_started(trial())
        progress.close()
        return out.getvalue()

    assert "\x1b[2m" in said()
    assert "\x1b[2m" not in said(NO_COLOR="1")


@pytest.mark.parametrize(
    ("room", "kept"),
    [
        (80, "8/8  c=1 r1   188 tok/s   p50 TTFT 8.66 ms"),
        (41, "8/8  c=1 r1   188 tok/s"),
        (23, "8/8  c=1 r1   188 tok/s"),
        (20, "8/8  c=1 r1"),
        (6, "8/8  c"),
    ],
)
def test_a_figure_without_room_is_left_out_whole(room: int, kept: str) -> None:
    assert kept == fitted(["8/8  c=1 r1", "188 tok/s", "p50 TTFT 8.66 ms"], room)


def test_a_log_of_a_long_trial_says_once_a_minute_what_it_does() -> None:
    out, clock = io.StringIO(), Clock()
    progress = PlainProgress(out, clock, lambda: "12:00:00")
    progress.plan(3, 0)
    progress.trial_started(trial())
    for _ in range(300):
        clock.now += 1
        progress.tick(Tick())
    lines = out.getvalue().splitlines()
    assert len(lines) == 5
    assert all("c=128" in line and "213/300 sent" in line for line in lines)
