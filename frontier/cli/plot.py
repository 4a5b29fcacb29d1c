"""`frontier plot`: the frontier as a picture, and its companion figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from frontier.cli.common import (
    complete_metrics,
    deployment_option,
    find_run,
    measured,
    objectives_option,
    runs_argument,
    say,
    set_option,
    shape_option,
)
from frontier.errors import ExitCode

FIGURES = {
    "frontier": "throughput against latency: what to decide by",
    "latency": "TTFT, TPOT, ITL and E2E percentiles against concurrency, with the limits",
    "throughput": "throughput and efficiency against concurrency, with the fitted capacity",
    "goodput": "requests per second that keep every limit",
    "inflation": "latency as a multiple of what one user sees",
    "tails": "the distributions and their tails",
    "jitter": "the gaps between chunks",
    "lengths": "TTFT against input length, TPOT against context length",
    "timeline": "every request of one trial",
}


@click.command("plot")
@runs_argument
@click.option(
    "-o",
    "--output",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="FILE.png, .svg or .pdf; repeatable.",
)
@click.option(
    "--figure",
    type=click.Choice(list(FIGURES)),
    default="frontier",
    metavar="NAME",
    help=f"One of {', '.join(FIGURES)}; default: the frontier itself.",
)
@click.option("--at", type=click.IntRange(1), metavar="C", help="The concurrency a timeline is of.")
@click.option("--overlay", is_flag=True, help="The deployments of one run in one panel per shape, not in one each.")
@deployment_option
@shape_option
@objectives_option
@click.option("--x", shell_complete=complete_metrics, help="Only the axis across, as p50_interactivity or p99_e2e.")
@set_option
@click.option("--sla", shell_complete=complete_metrics, help="Limits to draw and decide by; default: the config's.")
@click.option("--width", "pixels", type=click.IntRange(400, 8000), help="Width of a PNG in pixels, for slides.")
@click.option("--dark", is_flag=True, help="On a dark ground.")
def command(
    runs: tuple[Path, ...], output: tuple[Path, ...], figure: str, at: int | None, overlay: bool,
    deployments: tuple[str, ...], shapes: tuple[str, ...], objectives: str | None,
    x: str | None, settings: tuple[str, ...], sla: str | None, pixels: int | None, dark: bool,
) -> int:  # fmt: skip
    """Draw the frontier of RUN with its SLA and operating point, or one of its companions.

    Several runs, up to four, share a panel per shape. Without -o the picture goes into the directory of the (first)
    run, as png and svg. The axis across is the latency that binds the decision, unless the config or --objectives
    names the axes. Several figures of one kind are named by their shape: latency-1024x256.png.

    RUN defaults to the run under runs/ whose last trial was finished last.

    \b
    Examples:
      frontier plot -o review.svg
      frontier plot runs/llama8b -o slide.png --width 1920 --dark
      frontier plot --x p50_interactivity --set gpus=8 -o users.png
      frontier plot --objectives cost,p99_ttft --set 'price=$12/h' -o cost.png
      frontier plot --objectives energy,p99_e2e --set hardware.power=700W
      frontier plot runs/bf16 runs/fp8 -o both.svg
      frontier plot runs/imported --deployment fp8 --overlay -o fp8.svg
      frontier plot --figure tails -o tails.pdf
      frontier plot --figure timeline --at 64 -o timeline.svg

    Axes are any two metrics, as output_throughput, goodput, p99_ttft, p50_tpot, p99_e2e, p50_interactivity, cost,
    energy (J/tok), tokens_per_joule. Rates are per GPU where gpus is known; cost needs a price; energy a power,
    measured by nvidia-smi beside the server or stated. What the config does not say, --set does.
    """
    from frontier.cli.common import read_objectives
    from frontier.cli.reporting import draw, draw_companion, draw_together
    from frontier.config import parse_sla
    from frontier.errors import UsageError
    from frontier.plot.selection import check_panels, check_together, narrowed

    found = [narrowed(measured(run, settings), deployments, shapes) for run in runs or [find_run(None)]]
    limits = found[0].limits() if sla is None else parse_sla(sla)
    theme: Literal["light", "dark"] = "dark" if dark else "light"
    if x is not None and objectives is not None:
        raise UsageError("--x and --objectives both name the axis across", "give one of them")
    axes = read_objectives(objectives if x is None else f"{found[0].config.objectives[0]},{x}")
    if figure != "frontier" and (overlay or len(found) > 1):
        raise UsageError("only the frontier itself is drawn for several at once", f"name one run for --figure {figure}")
    if overlay or len(found) > 1:
        check_together(found)
        files = draw_together(found, output, limits, axes, pixels, theme)
        return _written(files)
    check_panels(found[0])
    if figure == "frontier":
        files = draw(found[0], output, limits, axes, pixels, theme)
    else:
        files = draw_companion(found[0], figure, at, output, limits, pixels, theme)
    return _written(files)


def _written(files: Sequence[Path]) -> int:
    for file in files:
        say(f"wrote {file}")
    return ExitCode.YES
