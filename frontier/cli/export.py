"""`frontier export`: a run in the formats of other tools."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier.cli.common import RunOptions, answer, run_options, say, subcommand, write_file
from frontier.errors import ExitCode, UsageError
from frontier.model import Frontier, Point

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frontier.run import Run

BINARY = {"parquet": ".parquet", "excel": ".xlsx"}


@subcommand("export")
@click.option("--csv", "name", flag_value="csv", help="A table for spreadsheets and `frontier import`.")
@click.option("--parquet", "name", flag_value="parquet", help="The same, typed; needs pyarrow.")
@click.option("--excel", "name", flag_value="excel", help="The same as a workbook; needs openpyxl.")
@click.option("--prometheus", "name", flag_value="prometheus", help="Gauges for a textfile collector.")
@click.option("--llm-d", "name", flag_value="llm-d", help="llm-d's Benchmark Report 0.2, one per point.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="FILE (a directory with --llm-d); default: stdout."
)
@run_options("run", "deployments", "shapes", "sla", "objectives", "settings")
def command(options: RunOptions, name: str | None, output: Path | None) -> int:
    """Write the points of RUN for another tool: CSV, Parquet, Excel, Prometheus, or llm-d's Benchmark Report.

    Values are in SI units, each with the ends of its 95 % interval where it has one. The verdict that --prometheus
    writes is under --sla. RUN defaults to the newest run under runs/ that holds a finished trial.

    \b
    Examples:
      frontier export --csv --set 'price=$12/h' > cost.csv
      frontier export runs/llama8b --prometheus -o /var/lib/prom/frontier.prom
      frontier export --llm-d -o reports/
    """
    if name is None:
        raise UsageError("export as what?", "name one of  --csv --parquet --excel --prometheus --llm-d")
    if name in BINARY and output is None:
        raise UsageError(f"--{name} is not for a terminal", f"name a file:  -o points{BINARY[name]}")
    from frontier.plot.selection import check_axes

    axes = options.axes
    run = options.read()
    points = run.points(names=axes or ())
    check_axes(points, axes or ())
    frontiers = run.frontiers(points, axes)
    if output is not None and str(output) == "-":
        output = None
    if name == "llm-d":
        return _llmd(run, points, output)
    data = _prometheus(run, points, frontiers, options) if name == "prometheus" else _table(name, points, frontiers)
    if output is None:
        answer(data.decode().rstrip("\n"))
    else:
        write_file(output, data)
    return ExitCode.YES


def _table(name: str, points: "Sequence[Point]", frontiers: "Sequence[Frontier]") -> bytes:
    from frontier.formats.export import csv_text, excel_bytes, parquet_bytes, table

    rows = table(points, frontiers)
    return {"csv": lambda t: csv_text(t).encode(), "parquet": parquet_bytes, "excel": excel_bytes}[name](rows)


def _prometheus(run: "Run", points: "Sequence[Point]", frontiers: "Sequence[Frontier]", options: RunOptions) -> bytes:
    from frontier.formats.export import prometheus_text

    limits = options.limits(run)
    return prometheus_text(points, frontiers, run.solve(limits) if limits else ()).encode()


def _llmd(run: "Run", points: "Sequence[Point]", output: Path | None) -> int:
    """Write one report per point: as files of a directory, or one after the other on standard output."""
    from frontier.formats.llmd import documents, yaml_text

    models = {d.name: d.model for d in run.config.deployments}
    version = str(run.manifest.get("frontier", "unknown"))
    reports = documents(points, run=run.path.name, tool_version=version, models=models)
    if output is None:
        answer(yaml_text([report for _, report in reports]).rstrip("\n"))
        return ExitCode.YES
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file; a report is one file per point", "name a directory:  -o reports/")
    for file, report in reports:
        write_file(output / file, yaml_text([report]).encode(), quiet=True)
    say(f"wrote {len(reports)} reports to {output}/")
    return ExitCode.YES
