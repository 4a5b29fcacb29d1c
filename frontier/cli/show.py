"""`frontier show`: the points of a run as a table, and the frontier over several deployments or
runs."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier import registry
from frontier.cli import common, completion
from frontier.cli.knob_answer import knob_json, print_knob
from frontier.core.model.errors import ExitCode
from frontier.show.verbosity import Detail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frontier.core.model.decisions import Decision
    from frontier.core.model.points import Point
    from frontier.run import Run
    from frontier.show.table import Table
    from frontier.show.view.frontier_summary import FrontierSummary
    from frontier.show.view.notes import Noted


@common.subcommand("show")
@click.argument("runs", nargs=-1, metavar="[RUN]...", type=common.RUN_PATH, shell_complete=completion.complete_run)
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
    from frontier.show.view.frontier_summary import summaries_of
    from frontier.show.view.json_out import points_json
    from frontier.show.view.notes import notes_of
    from frontier.show.view.series_view import series_views

    if len(runs) > 1:
        return _pooled([replace(options, run=path).read() for path in runs], options)
    run = replace(options, run=runs[0] if runs else None).read(allow_empty=options.as_json)
    decisions = run.solve() if run.limits() else ()
    axes = run.axes(options.all_axes, decisions=decisions)
    points = run.points(names=metrics_of(axes))
    summaries = summaries_of(run, points, axes)
    notes = notes_of(run, points, decisions) if options.as_json or options.detail is Detail.ALL else {}
    pooled_of = registry.POOLED.find() if options.all_axes else None
    pools = pooled_of([run], options.all_axes, run.limits()) if pooled_of is not None else []
    if options.as_json:
        views = series_views(points, [summary.frontier for summary in summaries], run.limits(), decisions, run.gpus)
        tree = {"unfinished": common.unfinished_json(run), "pooled": [tree for _, tree in pools], **knob_json(run)}
        common.answer({**points_json(views, summaries, notes), **tree})
    else:
        _print(run, points, summaries, decisions, notes, [table for table, _ in pools], options.detail)
    return ExitCode.YES if any(p.valid for p in points) else ExitCode.FAILED


def _pooled(runs: "Sequence[Run]", options: common.RunOptions) -> int:
    """The frontier over several runs."""
    from frontier.show.table import captioned
    from frontier.show.view.json_out import SHOW_SCHEMA

    pooled_of = registry.POOLED.require("one frontier of several runs")
    pools = pooled_of(runs, options.all_axes, runs[0].limits())
    trees = [tree for _, tree in pools]
    answer = {"schema": SHOW_SCHEMA, "pooled": trees}
    common.answer(answer if options.as_json else captioned([table for table, _ in pools], **common.layout()))
    return ExitCode.YES if any(tree["members"] for tree in trees) else ExitCode.FAILED


def _print(
    run: "Run",
    points: "Sequence[Point]",
    summaries: "Sequence[FrontierSummary]",
    decisions: "Sequence[Decision]",
    notes: "Mapping[str, Noted]",
    pooled: "Sequence[Table]",
    detail: Detail,
) -> None:
    """The table of a run with what is below it."""
    from frontier.show.table import captioned
    from frontier.show.tables import points_table
    from frontier.show.view.sentences import frontier_sentence
    from frontier.show.view.series_view import series_views

    layout, frontiers = common.layout(), [summary.frontier for summary in summaries]
    views = series_views(points, frontiers, run.limits(), decisions, run.gpus)
    table = functools.partial(points_table, views, **layout)
    common.answer(table(whole=False))
    if detail is Detail.ANSWER:
        return
    for frontier in frontiers if run.limits() else ():  # without limits the table has said it
        name = f"{frontier.series.label()}: " if len(frontiers) > 1 else ""
        common.answer_prose(f"{name}{frontier_sentence(frontier)}")
    if detail is Detail.ALL:
        common.answer("\n" + table(below=True, repeats=False, summaries=summaries, notes=notes))
    if len(run.config.deployments) > 1 and pooled:
        common.answer("\n" + captioned(pooled, **layout))
    print_knob(run, detail)
    if run.not_measured:
        common.answer_prose(run.not_measured)
