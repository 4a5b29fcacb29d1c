"""`frontier show`: the points of a run as a table."""

from frontier.cli import common
from frontier.errors import ExitCode


@common.subcommand("show")
@common.run_options("run", "deployments", "shapes", "objectives", "settings", "as_json")
def command(options: common.RunOptions) -> int:
    """What does each measured setting do: its metrics with intervals, and is it on the frontier?

    RUN defaults to the newest run under runs/ that holds a finished trial.

    \b
    Examples:
      frontier show
      frontier show runs/llama8b --objectives output_throughput,p99_e2e
      frontier show --json | jq '.points[] | select(.on_frontier) | .concurrency'
    """
    from frontier.report.json_out import points_json
    from frontier.report.tables import client_lines, points_table

    run = options.read(allow_empty=options.as_json, say_unfinished=False)
    axes = options.axes or run.config.objectives
    points = run.points(names=axes)
    summaries = run.summaries(points, axes)
    frontiers = [summary.frontier for summary in summaries]
    limits = run.limits()
    decisions = run.solve() if limits else ()
    diagnoses = run.diagnoses(points, decisions)
    if options.as_json:
        tree = points_json(points, frontiers, summaries, diagnoses)
        common.answer_json({**tree, "unfinished": common.unfinished_json(run)})
    else:
        common.answer(
            points_table(
                points,
                frontiers,
                limits,
                decisions=decisions,
                summaries=summaries,
                diagnoses=diagnoses,
                gpus=run.gpus,
                **common.layout(),
            )
        )
        for line in client_lines(run.histories):
            common.answer_prose(line)
        if run.unfinished:
            common.answer_prose(run.unfinished)
    return ExitCode.YES if any(p.valid for p in points) else ExitCode.FAILED
