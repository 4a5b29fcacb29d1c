"""`frontier show`: the points of a run."""

from pathlib import Path

import click

from frontier.cli.common import (
    answer,
    answer_json,
    answer_prose,
    deployment_option,
    find_run,
    in_colour,
    json_option,
    looked_at,
    measured,
    objectives_option,
    run_argument,
    set_option,
    shape_option,
    unfinished_tree,
    width,
)
from frontier.errors import ExitCode


@click.command("show")
@run_argument
@deployment_option
@shape_option
@objectives_option
@set_option
@json_option
def command(
    run: Path | None, deployments: tuple[str, ...], shapes: tuple[str, ...], objectives: str | None,
    settings: tuple[str, ...], as_json: bool,
) -> int:  # fmt: skip
    """The points of RUN as a table: what each setting does, with intervals, and which are on the frontier.

    RUN defaults to the run under runs/ whose last trial was finished last.

    \b
    Examples:
      frontier show
      frontier show runs/llama8b --objectives output_throughput,p99_e2e
      frontier show --json | jq '.points[] | select(.on_frontier) | .concurrency'
    """
    from frontier.cli.common import read_objectives
    from frontier.plot.selection import narrowed
    from frontier.report.json_out import points_json
    from frontier.report.tables import points_table

    path = find_run(run)
    found = narrowed(looked_at(path, settings) if as_json else measured(path, settings, told=True), deployments, shapes)
    axes = read_objectives(objectives) or found.config.objectives
    points = found.points(names=axes)
    insights = found.insights(points, axes)
    frontiers = [one.frontier for one in insights]
    if as_json:
        answer_json({**points_json(points, frontiers, insights), "unfinished": unfinished_tree(found)})
    else:
        from frontier.cli.reporting import gpus

        limits = found.limits()
        decisions = found.solve() if limits else ()
        answer(
            points_table(
                points, frontiers, limits, decisions=decisions, insights=insights, gpus=gpus(found), width=width(),
                colour=in_colour(),
            )
        )  # fmt: skip
        if found.unfinished:
            answer_prose(found.unfinished)
    return ExitCode.YES if any(p.valid for p in points) else ExitCode.FAILED
