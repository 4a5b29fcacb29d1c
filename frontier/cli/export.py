"""`frontier export`: a run in the formats of other tools."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier.cli.common import RunOptions, answer, run_options, say, subcommand, write_file
from frontier.errors import ExitCode, UsageError
from frontier.model import Point

if TYPE_CHECKING:
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
    """Write the points of RUN for another tool: CSV, Parquet, Excel, Prometheus, or llm-d's
    Benchmark Report.

    Values are in SI units, each with the ends of its 95 % interval where it has one. The verdict
    that --prometheus writes is under --sla. RUN defaults to the newest run under runs/ that holds a
    finished trial.

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
    from frontier.formats import export

    if name == "prometheus":
        limits = options.limits(run)
        data = export.prometheus_text(points, frontiers, run.solve(limits) if limits else ()).encode()
    else:
        rows = export.table(points, frontiers)
        write = {"parquet": export.parquet_bytes, "excel": export.excel_bytes}.get(name)
        data = export.csv_text(rows).encode() if write is None else write(rows)
    if output is None:
        answer(data.decode().rstrip("\n"))
    else:
        write_file(output, data)
    return ExitCode.YES


def _llmd(run: "Run", points: Sequence[Point], output: Path | None) -> int:
    """Write one report per point: as files of a directory, or one after the other on standard
    output.
    """
    from frontier.formats.llmd import report, yaml_text

    models = {d.name: d.model for d in run.config.deployments}
    version = str(run.manifest.get("frontier", "unknown"))
    reports = [report(p, run.path.name, version, models.get(p.deployment)) for p in points]
    if output is None:
        answer(yaml_text([tree for _, tree in reports]).rstrip("\n"))
        return ExitCode.YES
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file; a report is one file per point", "name a directory:  -o reports/")
    for file, tree in reports:
        write_file(output / file, yaml_text([tree]).encode(), quiet=True)
    say(f"wrote {len(reports)} reports to {output}/")
    return ExitCode.YES
