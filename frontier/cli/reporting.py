"""How a sweep ends on the terminal: the table, the decision, the pictures, and the path of the run."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from frontier.cli.common import answer, answer_json, in_colour, looked_at, say, unfinished_tree, width
from frontier.cli.dry_run import larger_budget
from frontier.decide.compare import Comparison
from frontier.decide.operating_point import exit_code
from frontier.decide.wording import limits_text
from frontier.errors import ExitCode, UsageError
from frontier.model import Decision, Limit, Series
from frontier.plot.data import FORMATS
from frontier.plot.multi_run import overlay, together
from frontier.plot.picture import save, small_multiples
from frontier.plot.selection import check_panels, detail_figures, file_names, grouped
from frontier.report.answer import answers_json, answers_text
from frontier.report.report import report_of, skipped_lines
from frontier.report.tables import points_table
from frontier.run import Run
from frontier.store.run_dir import RunDirectory

if TYPE_CHECKING:
    from frontier.sweep.conductor import SweepEnd


def conclude(path: Path, end: "SweepEnd", again: str, as_json: bool) -> tuple[int, Sequence[Decision]]:
    """Say what the sweep found, however it ended; the exit code, and what was decided."""
    found = looked_at(path)
    if end == "interrupted":
        say(f"stopped; {len_trials(found)} finished trials are in {path}; go on with\n  {again}")
        return ExitCode.INTERRUPTED, ()
    if not found.histories:
        say(f"no trial was finished; {path} holds the journal")
        if end == "server_lost":
            say(_lost(path, again))
        return ExitCode.FAILED, ()
    points = found.points()
    frontiers = found.frontiers(points)
    answers = found.answers(found.config.tiers[:1])
    decisions = answers[0].decisions if answers else ()
    if as_json:
        answer_json({**answers_json(answers), "unfinished": unfinished_tree(found)})
    else:
        colour = in_colour()
        answer(
            points_table(
                points, frontiers, found.limits(), decisions=decisions, gpus=gpus(found), width=width(), colour=colour
            )
        )
        if decisions:
            answer(answers_text(answers, gpus=gpus(found), width=width(), colour=colour))
            _tell_how_to_compare(found)
    for told in skipped_lines(found.skipped):
        say(told)
    try:
        check_panels(found)
        for file in draw(found, (), found.limits(), None, None, "light"):
            say(f"wrote {file}")
    except UsageError as error:  # nobody asked for a picture: a sweep of many frontiers has ended well without one
        say(f"no picture was drawn: {error}")
    except OSError as error:  # the answer is given; a full or read-only disk takes only the picture
        say(f"the picture could not be written: {error.strerror}; draw it elsewhere with  frontier plot {path} -o FILE")
    if end == "server_lost":
        say(_lost(path, again))
        return ExitCode.FAILED, decisions
    if end == "budget":
        say(larger_budget(found.config, path, again))
    say(f"run  {path}")
    if decisions:
        return exit_code(decisions), decisions
    return ExitCode.YES if any(p.valid for p in points) else ExitCode.FAILED, ()


def _tell_how_to_compare(found: Run) -> None:
    """The command that compares the frontiers of two deployments; nothing where one was measured."""
    names = list(dict.fromkeys(deployment for deployment, _ in found.histories))
    if len(names) > 1:
        pair = [part for name in names[:2] for part in ("--deployment", name)]
        say(f"compare their frontiers with\n  {shlex.join(['frontier', 'compare', str(found.path), *pair])}")


def _lost(path: Path, again: str) -> str:
    reason = RunDirectory.read(path).journal_lines()[-1].get("reason", "")
    return f"the server was lost and did not come back: {reason}\nfinished trials are kept; go on with\n  {again}"


def len_trials(found: Run) -> int:
    """How many trials are finished."""
    return sum(len(history) for history in found.histories.values())


def gpus(found: Run) -> dict[str, int | None]:
    """What each deployment's rates are divided by."""
    return {d.name: d.gpus for d in found.config.deployments}


def draw(
    found: Run,
    files: Sequence[Path],
    limits: Sequence[Limit],
    objectives: tuple[str, str] | None,
    pixels: int | None,
    theme: Literal["light", "dark"],
) -> list[Path]:
    """Write the picture to `files`, or to frontier.png and frontier.svg in the run's derived directory."""
    check_formats(files)
    run = RunDirectory.read(found.path)
    wanted = list(files) or [run.derived_file("frontier.png"), run.derived_file("frontier.svg")]
    report = report_of(found, limits, objectives)
    drawn = small_multiples(report.views(), footer=report.provenance)
    for file in wanted:
        save(drawn, file, width=pixels, theme=theme)
    return wanted


def draw_together(
    found: Sequence[Run], files: Sequence[Path], limits: Sequence[Limit], objectives: tuple[str, str] | None,
    pixels: int | None, theme: Literal["light", "dark"],
) -> list[Path]:  # fmt: skip
    """Write the frontiers of several runs, or of a run's deployments, in one panel per shape."""
    check_formats(files)
    first = report_of(found[0], limits, objectives)
    axes = next((frontier.objectives for frontier in first.frontiers), objectives)
    reports = [first, *(report_of(run, limits, axes) for run in found[1:])]
    groups = grouped([(run.path.name, report.views()) for run, report in zip(found, reports, strict=True)])
    drawn = together(
        groups, footer=reports[0].provenance if len(found) == 1 else None, more=_other_limits(found, limits)
    )
    run = RunDirectory.read(found[0].path)
    wanted = list(files) or [run.derived_file("together.png"), run.derived_file("together.svg")]
    for file in wanted:
        save(drawn, file, width=pixels, theme=theme)
    return wanted


def _other_limits(found: Sequence[Run], limits: Sequence[Limit]) -> list[str]:
    """The note on runs whose own SLA is another one than that which all are drawn and judged by."""
    others = [run for run in found if run.limits() and tuple(run.limits()) != tuple(limits)]
    if not others or not limits:
        return []
    said = "; ".join(f"{run.path.name} was swept for {limits_text(run.limits())}" for run in others)
    return [f"all are judged by {limits_text(limits)}; {said}"]


def draw_comparisons(
    runs: tuple[Run, Run], comparisons: Sequence[Comparison], names: tuple[str, str] | None, files: Sequence[Path],
    limits: Sequence[Limit],
) -> list[Path]:  # fmt: skip
    """Write each comparison as a picture with its verdict as the title: several are named by deployment and shape."""
    check_formats(files)
    axes = comparisons[0].objectives
    views = [
        {(view.frontier.deployment, view.frontier.shape): view for view in report_of(run, limits, axes).views()}
        for run in runs
    ]
    series = [Series(found.a, found.shape) for found in comparisons]
    written = []
    for i, found in enumerate(comparisons):
        pair = views[0][found.a, found.shape], views[1][found.b, found.shape]
        drawn = overlay(*pair, found, names=names, more=_other_limits(runs, limits))
        for file in files:
            path = file_names(file, series)[i]
            save(drawn, path)
            written.append(path)
    return written


def check_formats(files: Sequence[Path]) -> None:
    """UsageError for a file no picture can be written to."""
    for file in files:
        if file.suffix.removeprefix(".").lower() not in FORMATS:
            raise UsageError(f"a picture cannot be written as {file.name!r}", "name a FILE.png, .svg or .pdf")


def draw_companion(
    found: Run, name: str, at: int | None, files: Sequence[Path], limits: Sequence[Limit], pixels: int | None,
    theme: Literal["light", "dark"],
) -> list[Path]:  # fmt: skip
    """Write the detail figure of each series: several are named by deployment and shape before the suffix."""
    check_formats(files)
    drawn = detail_figures(found, report_of(found, limits).views(), name, at)
    run = RunDirectory.read(found.path)
    wanted = list(files) or [run.derived_file(f"{name}.png"), run.derived_file(f"{name}.svg")]
    series = [view.frontier.series for view, _ in drawn]
    written = []
    for file in wanted:
        for (_, figure), path in zip(drawn, file_names(file, series), strict=True):
            save(figure, path, width=pixels, theme=theme)
            written.append(path)
    return written
