"""`frontier rehearse`: a run under the rules of MLPerf Endpoints."""

import functools
from pathlib import Path

import click

from frontier.cli import common
from frontier.core.model.errors import ExitCode, UsageError
from frontier.extras.rehearse.endpoints_rules import BENCHMARKS


@common.subcommand("rehearse")
@click.option("-o", "--output", "files", multiple=True, type=common.FILE_PATH, help="FILE.svg, .png or .pdf.")
@click.option(
    "--benchmark", type=click.Choice(list(BENCHMARKS)), help="The benchmark's model; default: the run's own prompts."
)
@click.option("--config", "as_config", is_flag=True, help="Print the config of the sweep that is missing, instead.")
@click.option("--export", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Write a folder per point.")
@common.run_options("run", "deployments", "shapes", "detail", "as_json", more="Also the span of each region.")
def command(
    options: common.RunOptions, files: tuple[Path, ...], benchmark: str | None, as_config: bool, folder: Path | None
) -> int:
    """Show the result curve that RUN would be in MLPerf Endpoints: points, regions, hours, and what
    is missing.

    It is a rehearsal, not an MLPerf result: only the reference client can make one. RUN is read,
    and nothing is measured. It has one deployment and one shape of single requests in closed loop.
    With passes over a file of prompts (requests: 5 passes) its windows are judged, too.

    \b
    Examples:
      frontier rehearse runs/llama8b --benchmark llama3_1-8b
      frontier rehearse runs/llama8b -o curve.svg
      frontier rehearse runs/llama8b --benchmark llama3_1-8b --config > full.yaml
      frontier rehearse runs/llama8b --benchmark llama3_1-8b --export curve
    """
    from frontier.cli.plot import beside_an_answer, check_formats, save_pictures
    from frontier.extras.rehearse.bundle import bundle, missing_config
    from frontier.extras.rehearse.curve import curve_picture
    from frontier.extras.rehearse.rehearsal import rehearse
    from frontier.extras.rehearse.rehearsal_text import rehearsal_json, rehearsal_text
    from frontier.store.files import write_output

    check_formats(files)
    if as_config and options.as_json:
        raise UsageError("--config and --json are two answers", "give one of them")
    run = options.read()
    made = rehearse(run, benchmark)
    if as_config:
        common.answer(missing_config(made, run).rstrip("\n"))
    else:
        text = functools.partial(rehearsal_text, made, detail=options.detail, **common.layout())
        common.answer(rehearsal_json(made) if options.as_json else text())
    if files:
        with beside_an_answer():
            save_pictures([curve_picture(made)], files)
    if folder is not None:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} is there and not empty", "name a new folder")
        for path, data in bundle(made):
            write_output(folder / path, data)
        common.say(f"wrote {folder}: {len(made.points)} points; fill in what  grep -rn '<' {folder}  shows")
    return ExitCode.YES
