"""`frontier export`: a run in the formats of other tools."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier.cli.common import (
    answer,
    complete_metrics,
    deployment_option,
    find_run,
    measured,
    objectives_option,
    read_objectives,
    run_argument,
    say,
    set_option,
    shape_option,
)
from frontier.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frontier.model import Frontier, Point
    from frontier.run import Run

BINARY = {"parquet": ".parquet", "excel": ".xlsx"}


@click.command("export")
@run_argument
@click.option("--csv", "name", flag_value="csv", help="A table for spreadsheets and `frontier import`.")
@click.option("--parquet", "name", flag_value="parquet", help="The same, typed; needs pyarrow.")
@click.option("--excel", "name", flag_value="excel", help="The same as a workbook; needs openpyxl.")
@click.option("--prometheus", "name", flag_value="prometheus", help="Gauges for a textfile collector.")
@click.option("--llm-d", "name", flag_value="llm-d", help="llm-d's Benchmark Report 0.2, one per point.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="FILE (a directory with --llm-d); default: stdout."
)
@deployment_option
@shape_option
@objectives_option
@set_option
@click.option(
    "--sla",
    shell_complete=complete_metrics,
    help="Limits of the verdict that --prometheus tells; default: the config's.",
)
def command(
    run: Path | None, name: str | None, output: Path | None, deployments: tuple[str, ...], shapes: tuple[str, ...],
    objectives: str | None, settings: tuple[str, ...], sla: str | None,
) -> int:  # fmt: skip
    """Write the points of RUN for another tool: CSV, Parquet, Excel, Prometheus, or llm-d's Benchmark Report.

    Figures are in SI units, each with the ends of its 95 % interval where there are any.

    RUN defaults to the run under runs/ whose last trial was finished last.

    \b
    Examples:
      frontier export --csv > points.csv
      frontier export --csv --set 'price=$12/h' > cost.csv
      frontier export runs/llama8b --prometheus -o /var/lib/prom/frontier.prom
      frontier export --llm-d -o reports/
    """
    if name is None:
        raise UsageError("export as what?", "name one of  --csv --parquet --excel --prometheus --llm-d")
    if name in BINARY and output is None:
        raise UsageError(f"--{name} is not for a terminal", f"name a file:  -o points{BINARY[name]}")
    from frontier.plot.selection import check_axes, narrowed

    axes = read_objectives(objectives)
    found = narrowed(measured(find_run(run), settings), deployments, shapes)
    points = found.points(names=axes or ())
    check_axes(points, axes or ())
    frontiers = found.frontiers(points, axes)
    if name == "llm-d":
        return _llmd(found, points, output)
    data = _tabular(name, points, frontiers) if name != "prometheus" else _prometheus(found, points, frontiers, sla)
    if output is None or str(output) == "-":
        answer(data.decode().rstrip("\n"))
        return ExitCode.YES
    _write(output, data)
    return ExitCode.YES


def _tabular(name: str, points: "Sequence[Point]", frontiers: "Sequence[Frontier]") -> bytes:
    from frontier.formats.export import csv_text, excel_bytes, parquet_bytes, table

    made = table(points, frontiers)
    return {"csv": lambda t: csv_text(t).encode(), "parquet": parquet_bytes, "excel": excel_bytes}[name](made)


def _prometheus(found: "Run", points: "Sequence[Point]", frontiers: "Sequence[Frontier]", sla: str | None) -> bytes:
    from frontier.config import parse_sla
    from frontier.formats.export import prometheus_text

    limits = found.limits() if sla is None else parse_sla(sla)
    return prometheus_text(points, frontiers, found.solve(limits) if limits else ()).encode()


def _llmd(found: "Run", points: "Sequence[Point]", output: Path | None) -> int:
    from frontier.formats.llmd import documents, yaml_text

    models = {d.name: d.model for d in found.config.deployments}
    version = str(found.manifest.get("frontier", "unknown"))
    reports = documents(points, run=found.path.name, tool_version=version, models=models)
    if output is None or str(output) == "-":
        answer(yaml_text([report for _, report in reports]).rstrip("\n"))
        return ExitCode.YES
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file; a report is one file per point", "name a directory:  -o reports/")
    for file, report in reports:
        _write(output / file, yaml_text([report]).encode(), quiet=True)
    say(f"wrote {len(reports)} reports to {output}/")
    return ExitCode.YES


def _write(path: Path, data: bytes, *, quiet: bool = False) -> None:
    from frontier.store.files import write_output
    from frontier.units import format_bytes

    try:
        write_output(path, data)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "choose another with  -o") from error
    if not quiet:
        say(f"wrote {path} ({format_bytes(len(data))})")
