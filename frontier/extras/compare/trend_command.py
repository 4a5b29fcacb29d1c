"""`frontier trend`: dated runs as a series, with breaks."""

import functools
from pathlib import Path

import click

from frontier.cli import common, completion
from frontier.core.model.errors import UsageError
from frontier.store.run_dir import RUNS


@common.subcommand("trend")
@click.argument("runs", nargs=-1, metavar="[RUN]...", type=common.RUN_PATH, shell_complete=completion.complete_run)
@click.option(
    "-o",
    "--output",
    "files",
    multiple=True,
    type=common.FILE_PATH,
    help="FILE.csv for the table, FILE.png, .svg or .pdf for the figure; repeatable.",
)
@click.option("--width", "pixels", type=click.IntRange(400, 8000), metavar="PIXELS", help="Width of a PNG.")
@click.option("--dark", is_flag=True, help="A dark background.")
@common.run_options(
    "deployments",
    "shapes",
    "sla",
    "settings",
    "point_estimates",
    "detail",
    "as_json",
    more="Also each run's values with their intervals.",
)
def command(
    options: common.RunOptions, runs: tuple[Path, ...], files: tuple[Path, ...], pixels: int | None, dark: bool
) -> int:
    """Show runs over time: a table and a figure of throughput and latency.

    RUN is a run or a folder of runs (default: runs/). Shown are the output throughput and the
    medians of the limited latencies, each as the geometric mean over the settings that the runs
    have in common. Where device, engine, flags, model or load differ there is a break: what was
    measured changed. Whether a run is worse than another: frontier compare --gate.

    \b
    Examples:
      frontier trend runs/nightly
      frontier trend runs/nightly -o trend.png -o trend.csv
      frontier trend runs/mon runs/tue runs/wed --shape 1024/256 --json
    """
    from frontier.cli.plot import beside_an_answer, check_formats, save_pictures
    from frontier.extras.compare.command import runs_in
    from frontier.extras.compare.comparison_text import trend_frame, trends_json, trends_text
    from frontier.extras.compare.regression import trends_of
    from frontier.extras.compare.trend_figure import trend_picture
    from frontier.show.point_rows import csv_text
    from frontier.show.view.selection import narrowed

    tables = [file for file in files if file.suffix.lower() == ".csv"]
    pictures = [file for file in files if file not in tables]
    check_formats(pictures)
    paths = runs_in(runs or (RUNS,))
    newest = common.read_run(paths[-1], options.settings)
    read = (narrowed(common.read_run(path, options.settings), options.deployments, options.shapes) for path in paths)
    trends = trends_of(read, options.limits(newest), point_estimates=options.point_estimates)
    drawn = [one for one in trends if one.rows]
    if pictures and not drawn:
        raise UsageError("no run to draw: none has all settings", "name runs of one config")
    for file in tables:
        common.write_file(file, csv_text(trend_frame(trends)).encode())
    if pictures:
        figures = [trend_picture(one) for one in drawn]
        with beside_an_answer():
            save_pictures(figures, pictures, [one.series for one in drawn], pixels, "dark" if dark else "light")
    table = functools.partial(trends_text, detail=options.detail, **common.layout())
    common.answer(trends_json(trends) if options.as_json else table(trends))
    return 0
