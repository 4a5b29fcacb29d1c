"""`frontier report`: the run as one page (HTML, Markdown or JSON)."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier.cli.common import (
    FILE_PATH,
    RUN_PATH,
    RunOptions,
    answer,
    find_run,
    given_options,
    harmless,
    json_bytes,
    read_run,
    run_options,
    say,
    subcommand,
    write_file,
)
from frontier.cli.completion import complete_run
from frontier.client.secrets import remember
from frontier.core.model.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from frontier.extras.present.page import Figures
    from frontier.extras.present.report import Report


@subcommand("report")
@click.option("-o", "--output", type=FILE_PATH, help="FILE.html, FILE.md or FILE.json; - for Markdown on stdout.")
@click.option(
    "--baseline",
    metavar="RUN",
    type=RUN_PATH,
    shell_complete=complete_run,
    help="The last accepted run, to stand beside.",
)
@click.option(
    "--serve",
    metavar="[PORT]",
    is_flag=False,
    flag_value=0,
    type=click.IntRange(0, 65535),
    help="Serve the page of a run under way on loopback; without PORT on a free one.",
)
@run_options("run", "deployments", "shapes", "sla", "objectives", "settings")
def command(options: RunOptions, output: Path | None, baseline: Path | None, serve: int | None) -> int:
    """Write RUN as one self-contained page: HTML for a review, Markdown for a pull request, JSON
    for a machine.

    The page holds the decision, the picture, every point, why not its neighbours, the
    distributions, the quality of the data, how to reproduce it and what it does not say. It loads
    nothing, prints well, and reads without its script.

    RUN defaults to the newest run under runs/ that holds a finished trial. With --serve it is drawn
    anew when it is asked for and a trial was added; nothing in the run is touched.

    \b
    Examples:
      frontier report -o review.html
      frontier report runs/new --baseline runs/accepted -o review.html
      frontier report runs/llama8b --serve 8090
      frontier report --sla 'p99_ttft<=300ms' --set gpus=8 -o strict.html
      frontier report runs/llama8b -o - | gh pr comment --body-file -
    """
    from frontier.extras.present.page import report_markdown

    if serve is not None:
        if output is not None:
            raise UsageError("-o writes a page and --serve serves one", "give one of them")
        return _serve(options, baseline, serve)
    report = _report(options, baseline, with_others=output is not None and output.suffix == ".html")
    if output is None or str(output) == "-":
        answer(report_markdown(report))
        return ExitCode.YES
    write_file(output, _page(report, output))
    return ExitCode.YES


def _report(options: RunOptions, baseline: Path | None, *, with_others: bool) -> "Report":
    """The report; pictures on further axes where the page has a place for them."""
    from frontier.cli.plot import picture_of
    from frontier.extras.present.baseline import baseline_tables
    from frontier.extras.present.report import other_axes, report_of
    from frontier.show.view.selection import check_panels, narrowed
    from frontier.sweep.secrets_of_config import secrets_of

    run = options.read()
    if not run.is_imported:  # an earlier version kept the config as it was
        remember(secrets_of(run.config, os.environ))
    check_panels(run)
    limits = options.limits(run)
    report = report_of(run, limits, options.all_axes, given_options("serve"))
    if report.views:
        first = picture_of(run, limits, options.all_axes[:2] if options.all_axes else None, report.views)
        others = other_axes(limits, report.views) if with_others and options.objectives is None else []
        report = replace(report, pictures=[first, *(picture_of(run, limits, pair) for pair in others)])
    if baseline is not None:
        old = narrowed(read_run(baseline, options.settings), options.deployments, options.shapes)
        tables = baseline_tables(report.views, old, limits, asked=options.sla is not None)
        report = replace(report, before=[*report.before, *tables])
    return report


def _serve(options: RunOptions, baseline: Path | None, port: int) -> int:
    """Serve the page until Ctrl-C."""
    from frontier.extras.present.live_page import CORES, LivePage, serve

    run = find_run(options.run, running=True)
    named = replace(options, run=run)

    def draw() -> bytes:
        return _page(_report(named, baseline, with_others=True), Path("page.html"))

    def ready(url: str) -> None:
        say(f"{run} at {url}  ·  load it again for what is new  ·  Ctrl-C to stop")
        if (cores := os.cpu_count() or 1) < CORES:
            say(f"note: a drawing may disturb a sweep on this machine of {cores} cores: look from another, or seldom")

    serve(LivePage(run, draw, harmless), port, ready)
    say("stopped")
    return ExitCode.YES


def _figures(report: "Report") -> "Figures":
    """The figures of the page. Where drawing fails, the page says why and holds everything else."""
    from frontier.cli.plot import undrawn
    from frontier.extras.present.page import Figures, draw_figures

    try:
        return draw_figures(report)
    except Exception as error:  # noqa: BLE001  # whatever matplotlib fails with
        why = undrawn("the pictures of this page were not", error)
        say(f"warning: {why}")
        return Figures(undrawn=why)


def _page(report: "Report", output: Path) -> bytes:
    """The page in the format that the file's suffix names."""
    from frontier.extras.present.page import report_html, report_json, report_markdown

    if output.suffix == ".html":
        return report_html(report, _figures(report)).encode()
    if output.suffix == ".md":
        return report_markdown(report).encode()
    if output.suffix == ".json":
        return json_bytes(report_json(report))
    raise UsageError(f"a report cannot be written as {output.name!r}", "name a FILE.html, a FILE.md or a FILE.json")
