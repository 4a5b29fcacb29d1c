"""`frontier export`: a run in the formats of other tools."""

from pathlib import Path

import click

from frontier.cli.common import RunOptions, answer, run_options, subcommand, write_file
from frontier.core.model.errors import ExitCode, UsageError


@subcommand("export")
@click.option("--csv", "name", flag_value="csv", help="A table for spreadsheets and `frontier import`.")
@click.option("--parquet", "name", flag_value="parquet", help="The same, typed; needs pyarrow.")
@click.option("--prometheus", "name", flag_value="prometheus", help="Gauges for a textfile collector.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="FILE; default: stdout.")
@run_options("run", "deployments", "shapes", "sla", "objectives", "settings")
def command(options: RunOptions, name: str | None, output: Path | None) -> int:
    """Write the points of RUN for another tool: CSV, Parquet or Prometheus.

    Values are in SI units, each with the ends of its 95% interval where it has one. The verdict
    that --prometheus writes is under --sla. RUN defaults to the newest run under runs/ that holds a
    finished trial.

    \b
    Examples:
      frontier export --csv --set 'price=$12/h' > cost.csv
      frontier export runs/llama8b --prometheus -o /var/lib/prom/frontier.prom
      frontier export --parquet -o points.parquet
    """
    if name is None:
        raise UsageError("export as what?", "name one of  --csv --parquet --prometheus")
    if name == "parquet" and output is None:
        raise UsageError("--parquet is not for a terminal", "name a file:  -o points.parquet")
    from frontier.run import metrics_of
    from frontier.show.view.selection import check_axes

    run = options.read()
    limits = options.limits(run)
    axes = metrics_of(run.axes(options.axes, limits))
    points = run.points(names=axes)
    check_axes(points, axes if options.axes else ())
    frontiers = run.frontiers(points, options.axes, limits=limits)
    if output is not None and str(output) == "-":
        output = None
    from frontier.extras.exchange import export
    from frontier.show import point_rows
    from frontier.show.view.series_view import series_views

    views = series_views(points, frontiers, limits, run.solve(limits) if limits else (), run.gpus)
    if name == "prometheus":
        data = export.prometheus_text(views).encode()
    else:
        rows = point_rows.table(views)
        data = export.parquet_bytes(rows) if name == "parquet" else point_rows.csv_text(rows).encode()
    if output is None:
        answer(data.decode().rstrip("\n"))
    else:
        write_file(output, data)
    return ExitCode.YES
