"""`frontier import`: results of other tools as a run."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from frontier.cli.common import (
    FILE_PATH,
    RUN_PATH,
    RunOptions,
    answer,
    note,
    read_run,
    run_options,
    subcommand,
)
from frontier.core.model.errors import ExitCode
from frontier.core.model.loads import listed
from frontier.core.model.points import Point
from frontier.core.model.series import by_series
from frontier.core.model.trials import Trial
from frontier.core.model.units import count
from frontier.store.run_dir import RUNS

if TYPE_CHECKING:
    from frontier.extras.exchange.formats import Import


@subcommand("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", type=RUN_PATH, help="The run directory.")
@click.option("--format", "name", metavar="NAME", help="The format of the files, when their content does not tell.")
@click.option("--deployment", metavar="NAME", help="The name of their deployment.")
@click.option("--shape", metavar="ISL/OSL", help="Input and output tokens, when the files do not give them.")
@click.option("--columns", metavar="WHAT=COLUMN,...", help="Columns of tables, and units: p99_ttft=first tok:ms, ...")
@click.option("--plot", "picture", type=FILE_PATH, help="Draw the frontier there, too: FILE.png, .svg or .pdf.")
@run_options("detail", "as_json", more="The same as without it.")
def command(
    options: RunOptions,
    files: tuple[str, ...],
    output: Path | None,
    name: str | None,
    deployment: str | None,
    shape: str | None,
    columns: str | None,
    picture: Path | None,
) -> int:
    """Make a run of results of other tools, to be shown, plotted, compared and solved like any
    other.

    Supported are results of vllm bench serve (and SGLang's), AIPerf, GuideLLM, genai-bench,
    inference-perf, InferenceX, LLMPerf, llm-d, EvalScope, trtllm-bench and CSV tables; a folder or
    an archive stands for the files in it. Where a file holds every request with its times, all
    statistics apply. Files with aggregates only have no confidence intervals: solve decides on them
    only with --point-estimates.

    \b
    Examples:
      frontier import results/*.json -o runs/vllm
      frontier import night/ --plot night.png
      frontier import profile_export.jsonl --deployment fp8
      frontier import table.csv --shape 1024/256
    """
    from frontier.cli.plot import check_formats
    from frontier.extras.exchange.formats import read_files, store

    check_formats([picture] if picture else [])
    imported = read_files(files, name=name, deployment=deployment, shape=shape, columns=columns)
    path = output or RUNS / f"{time.strftime('%Y-%m-%d')}-imported-{imported.identity[:6]}"
    store(imported, path)
    if options.as_json:
        answer(tree(imported, path))
    else:
        answer("\n".join(lines(imported)))
        more = ["aggregates have no intervals: solve decides on them only with --point-estimates"]
        for line in [*imported.notes, *(more if imported.assembled.points else [])]:
            note(f"note: {line}")
    note(f"run  {path}")
    if picture is not None:
        _draw(path, picture)
    return ExitCode.YES


def _draw(path: Path, file: Path) -> None:
    """Write the picture of the run."""
    from frontier.cli.plot import beside_an_answer, picture_of, save_pictures

    run = read_run(path, ())
    with beside_an_answer():
        save_pictures([picture_of(run, run.limits())], [file])


def lines(imported: "Import") -> list[str]:
    """What was imported: a line per deployment and shape."""
    trials = [measurement.trial for measurement, _ in imported.assembled.trials]
    read = [file for file in imported.files if file.results or file.beside]
    formats = ", ".join(dict.fromkeys(file.format for file in read if file.results))
    others = len(imported.files) - len(read)
    table = [f"{count(len(read), 'file')} of {formats}{f'; {others:,} left out' if others else ''}"]
    measured: list[Point | Trial] = [*imported.assembled.points, *trials]
    for series, items in by_series(measured).items():
        settings = {item.load for item in items}
        traced = {trial.load for trial in trials if trial.series == series}
        kind = "with every request" if traced == settings else "aggregates"
        if traced and traced != settings:
            kind += f"; every request at c={', '.join(map(str, sorted(traced)))}"
        table.append(f"  {series.label(join='  ')}  {listed(sorted(settings))}  ({kind})")
    return table


def tree(imported: "Import", path: Path) -> dict[str, Any]:
    """The answer as JSON."""
    assembled = imported.assembled
    return {
        "schema": "frontier.import/1",
        "run": str(path),
        "files": list(imported.sources),
        "points": len(assembled.points),
        "trials": len(assembled.trials),
        "deployments": [d.name for d in assembled.deployments],
        "notes": imported.notes,
    }
