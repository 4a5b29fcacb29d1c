"""`frontier plot`: the frontier as a picture."""

from pathlib import Path

import click

from frontier.cli.common import find_run, objectives_option, run_argument, say


@click.command("plot")
@run_argument
@click.option(
    "-o",
    "--output",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="FILE.png, .svg or .pdf; repeatable.",
)
@objectives_option
@click.option("--sla", help="Limits to draw and decide by; default: the config's.")
@click.option("--width", "pixels", type=click.IntRange(400, 8000), help="Width of a PNG in pixels, for slides.")
@click.option("--dark", is_flag=True, help="On a dark ground.")
def command(
    run: Path | None, output: tuple[Path, ...], objectives: str | None, sla: str | None, pixels: int | None, dark: bool
) -> int:
    """Draw the frontier of RUN with its SLA and operating point; default: frontier.png and .svg in the run directory.

    \b
    Examples:
      frontier plot -o review.svg
      frontier plot runs/llama8b -o slide.png --width 1920 --dark
    """
    from frontier.cli.common import read_objectives
    from frontier.cli.outcome import draw
    from frontier.config import parse_sla
    from frontier.errors import ExitCode
    from frontier.results import load

    found = load(find_run(run))
    limits = found.limits() if sla is None else parse_sla(sla)
    for file in draw(found, output, limits, read_objectives(objectives), pixels, "dark" if dark else "light"):
        say(f"wrote {file}")
    return ExitCode.YES
