"""`frontier report`: the run as one page."""

from pathlib import Path

import click

from frontier.cli.common import answer, find_run, run_argument, say
from frontier.errors import ExitCode, MisaskedError


@click.command("report")
@run_argument
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="FILE.html or FILE.md; - for Markdown."
)
@click.option("--sla", help="Limits to decide by; default: the config's.")
def command(run: Path | None, output: Path | None, sla: str | None) -> int:
    """Write the run as one self-contained page: HTML for a review, Markdown for a pull request.

    \b
    Examples:
      frontier report -o review.html
      frontier report runs/llama8b -o - | gh pr comment --body-file -
    """
    from frontier.cli.outcome import page_report
    from frontier.config import parse_sla
    from frontier.present.page import report_html
    from frontier.present.report import report_markdown
    from frontier.results import load
    from frontier.store import write_whole
    from frontier.units import format_bytes

    found = load(find_run(run))
    made = page_report(found, found.limits() if sla is None else parse_sla(sla))
    if output is None or str(output) == "-":
        answer(report_markdown(made))
        return ExitCode.YES
    writers = {".html": report_html, ".md": report_markdown}
    if output.suffix not in writers:
        raise MisaskedError(f"a report cannot be written as {output.name!r}", "name a FILE.html or a FILE.md")
    data = writers[output.suffix](made).encode()
    write_whole(output, data)
    say(f"wrote {output} ({format_bytes(len(data))}, self-contained)")
    return ExitCode.YES
