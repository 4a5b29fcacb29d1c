"""`frontier report`: the run as one page."""

from pathlib import Path

import click

from frontier.cli.common import (
    answer,
    complete_metrics,
    deployment_option,
    find_run,
    measured,
    objectives_option,
    run_argument,
    say,
    set_option,
    shape_option,
)
from frontier.errors import ExitCode, UsageError


@click.command("report")
@run_argument
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
    help="FILE.html, FILE.md or FILE.json; - for Markdown.",
)  # fmt: skip
@deployment_option
@shape_option
@objectives_option
@set_option
@click.option("--sla", shell_complete=complete_metrics, help="Limits to decide by; default: the config's.")
def command(
    run: Path | None, output: Path | None, deployments: tuple[str, ...], shapes: tuple[str, ...],
    objectives: str | None, settings: tuple[str, ...], sla: str | None,
) -> int:  # fmt: skip
    """Write the run as one self-contained page: HTML for a review, Markdown for a pull request, JSON for a machine.

    The page has the decision, the picture, every point, why not its neighbours, the distributions, the health of the
    data, how to reproduce it and what it does not say. It loads nothing, prints well, and reads without its script.

    RUN defaults to the run under runs/ whose last trial was finished last.

    \b
    Examples:
      frontier report -o review.html
      frontier report --sla 'p99_ttft<=300ms' --set gpus=8 -o strict.html
      frontier report runs/llama8b -o - | gh pr comment --body-file -
    """
    from frontier.cli.common import read_objectives
    from frontier.config import parse_sla
    from frontier.plot.selection import check_panels, narrowed
    from frontier.report.report import report_of
    from frontier.store.files import write_output
    from frontier.units import format_bytes

    found = narrowed(measured(find_run(run), settings), deployments, shapes)
    check_panels(found)
    limits = found.limits() if sla is None else parse_sla(sla)
    given = (("--deployment", deployments), ("--shape", shapes), ("--set", settings), ("--objectives", [objectives]),
             ("--sla", [sla]), ("-o", [output]))  # fmt: skip
    options = [word for name, values in given for value in values if value is not None for word in (name, str(value))]
    made = report_of(found, limits, read_objectives(objectives), options)
    if output is None or str(output) == "-":
        from frontier.report.markdown import report_markdown

        answer(report_markdown(made))
        return ExitCode.YES
    if output.suffix == ".html":
        from frontier.report.page import report_html

        data = report_html(made).encode()
    elif output.suffix == ".md":
        from frontier.report.markdown import report_markdown

        data = report_markdown(made).encode()
    elif output.suffix == ".json":
        import orjson

        from frontier.report.report import report_json

        data = orjson.dumps(report_json(made), option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY)
    else:
        raise UsageError(f"a report cannot be written as {output.name!r}", "name a FILE.html, a FILE.md or a FILE.json")
    write_output(output, data)
    say(f"wrote {output} ({format_bytes(len(data))}, self-contained)")
    return ExitCode.YES
