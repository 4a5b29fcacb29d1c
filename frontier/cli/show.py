"""`frontier show`: the points of a run as a table, and the frontier over several deployments or
runs."""

from dataclasses import replace
from pathlib import Path

import click

from frontier.cli import common
from frontier.core.errors import ExitCode


@common.subcommand("show")
@click.argument("runs", nargs=-1, metavar="[RUN]...", type=common.RUN_PATH, shell_complete=common.complete_run)
@common.run_options("deployments", "shapes", "objectives", "settings", "detail", "as_json")
def command(options: common.RunOptions, runs: tuple[Path, ...]) -> int:
    """What does each measured setting do: its metrics with intervals, and is it on the frontier?

    With --objectives (two to four) also: which deployment owns which part of the frontier over all
    of them; of several runs that alone. RUN defaults to the newest run under runs/ that holds a
    finished trial.

    \b
    Examples:
      frontier show
      frontier show runs/llama8b --objectives output_throughput,p99_e2e
      frontier show runs/bf16 runs/fp8 --objectives quality,cost
      frontier show --json | jq '.points[] | select(.on_frontier) | .concurrency'
    """
    from frontier.run import metrics_of
    from frontier.show.answer import decision_table
    from frontier.show.json_out import SHOW_SCHEMA, points_json
    from frontier.show.notes import notes_of
    from frontier.show.picture.selection import pooled_of
    from frontier.show.pooled import pooled_json, pooled_text
    from frontier.show.tables import client_lines, frontier_sentence, points_table

    if len(runs) > 1:
        loaded = [replace(options, run=path).read() for path in runs]
        pools = pooled_of(loaded, options.all_axes, loaded[0].limits())
        pooled = {"schema": SHOW_SCHEMA, "pooled": pooled_json(pools)}
        common.answer(pooled if options.as_json else pooled_text(pools, **common.layout()))
        return ExitCode.YES if any(pool.members for pool in pools) else ExitCode.FAILED
    run = replace(options, run=runs[0] if runs else None).read(allow_empty=options.as_json)
    axes = options.all_axes
    points = run.points(names=metrics_of(run.axes(axes)))
    summaries = run.summaries(points, axes)
    frontiers = [summary.frontier for summary in summaries]
    limits = run.limits()
    decisions = run.solve() if limits else ()
    notes = notes_of(run, points, decisions)
    pools = pooled_of([run], axes, limits) if axes else []
    if options.as_json:
        tree = {"unfinished": common.unfinished_json(run), "pooled": pooled_json(pools)}
        common.answer({**points_json(points, frontiers, summaries, notes), **tree})
    else:
        layout, whole = common.layout(), options.detail == "all"
        if options.detail != "answer" or not decisions:
            table = points_table(
                points,
                frontiers,
                limits,
                decisions=decisions,
                summaries=summaries,
                notes=notes,
                gpus=run.gpus,
                whole=whole,
                **layout,
            )
            common.answer(table)
        if options.detail == "usual":
            for frontier in frontiers:
                name = f"{frontier.series.label()}: " if len(frontiers) > 1 else ""
                common.answer_prose(f"{name}{frontier_sentence(frontier)}")
        if decisions and options.detail == "answer":
            common.answer(decision_table(decisions, gpus=run.gpus, detail="answer", **layout))
        if len(run.config.deployments) > 1 and pools:
            common.answer("\n" + pooled_text(pools, **layout))
        if whole:
            for line in client_lines(run.histories):
                common.answer_prose(line)
        if run.unfinished and options.detail != "answer":
            common.answer_prose(run.unfinished)
    return ExitCode.YES if any(p.valid for p in points) else ExitCode.FAILED
