"""`frontier compare`: two runs against each other, with a verdict a CI job can act on."""

from pathlib import Path

import click

from frontier.cli.common import (
    answer,
    answer_json,
    complete_metrics,
    complete_run,
    deployment_option,
    in_colour,
    json_option,
    measured,
    objectives_option,
    say,
    set_option,
    shape_option,
    unfinished_tree,
    width,
)

_RUN = click.Path(path_type=Path, file_okay=False)


@click.command("compare")
@click.argument("a", type=_RUN, shell_complete=complete_run)
@click.argument("b", required=False, type=_RUN, shell_complete=complete_run)
@click.option(
    "--sla",
    shell_complete=complete_metrics,
    help="Limits; the area counts up to the one on the frontier's latency. Default: A's.",
)
@click.option("--within", metavar="5%", help="Also say yes when B is proven to lose no more than this share.")
@click.option(
    "-o", "--output", multiple=True, type=click.Path(path_type=Path, dir_okay=False),
    help="Also draw both frontiers, the verdict as the title: FILE.png, .svg or .pdf; repeatable.",
)  # fmt: skip
@deployment_option
@shape_option
@objectives_option
@set_option
@click.option("--set-a", "settings_a", multiple=True, metavar="KEY=VALUE", help="The same, of run A alone.")
@click.option("--set-b", "settings_b", multiple=True, metavar="KEY=VALUE", help="The same, of run B alone.")
@json_option
def command(
    a: Path, b: Path | None, sla: str | None, within: str | None, output: tuple[Path, ...],
    deployments: tuple[str, ...], shapes: tuple[str, ...], objectives: str | None, settings: tuple[str, ...],
    settings_a: tuple[str, ...], settings_b: tuple[str, ...], as_json: bool,
) -> int:  # fmt: skip
    """Run B against run A: is its frontier further up and to the left, by how much, and how sure is that.

    Of one run, its deployment B against its deployment A, named in that order:
    frontier compare RUN --deployment A --deployment B.

    Exit codes: 0 better (or, with --within, proven no worse), 3 worse, 4 not resolved, 5 no usable measurement.
    Two runs of one server on two days differ by some percent: sweep A and B in turn, not a week apart.
    Of runs with different numbers of GPUs rates are compared per GPU, when both say how many they have.

    \b
    Examples:
      frontier compare runs/before runs/after
      frontier compare runs/night --deployment bf16 --deployment fp8
      frontier compare runs/main runs/pull-request --within 5% --json
      frontier compare runs/bf16 runs/fp8 -o verdict.svg
      frontier compare runs/h100 runs/b200 --set-a gpus=8 --set-b gpus=4
    """
    from frontier.cli.common import read_objectives
    from frontier.config import parse_sla
    from frontier.decide.compare import exit_code
    from frontier.errors import UsageError
    from frontier.plot.selection import narrowed
    from frontier.report.comparison import compare_runs, comparison_table, comparisons_json, two_deployments
    from frontier.units import parse_share

    try:
        share = None if within is None else parse_share(within)
    except ValueError as error:
        raise UsageError(f"--within: {error}", "write a share, as 5%") from error
    runs = (
        measured(a, (*settings, *settings_a), told=True),
        measured(b or a, (*settings, *settings_b), told=True),
    )
    pair = two_deployments(runs[0], deployments) if b is None else None
    kept = [deployments] * 2 if pair is None else [pair[:1], pair[1:]]
    runs = narrowed(runs[0], kept[0], shapes), narrowed(runs[1], kept[1], shapes)
    for run in {run.path: run for run in runs if run.unfinished}.values():
        say(f"{run.path} is {run.unfinished}" if b is not None else run.unfinished)
    limits = None if sla is None else parse_sla(sla)
    found = compare_runs(*runs, objectives=read_objectives(objectives), limits=limits, within=share)
    names = None if b is None or a.name == b.name else (a.name, b.name)
    compared = {(c.a, c.shape) for c in found}, {(c.b, c.shape) for c in found}
    for run, known in zip(runs, compared, strict=True):
        settings_of = dict.fromkeys([*run.histories, *((p.deployment, p.shape) for p in run.imported)])
        alone = [f"{at[0]} {at[1].label}" for at in settings_of if at not in known]
        if alone:
            say(f"left out, as only {run.path} measured it: {', '.join(alone)}")
    if output:
        from frontier.cli.reporting import draw_comparisons

        for file in draw_comparisons(runs, found, names, output, runs[0].limits() if limits is None else limits):
            say(f"wrote {file}")
    if as_json:
        answer_json({**comparisons_json(found, names), "unfinished": [unfinished_tree(run) for run in runs]})
    else:
        answer(comparison_table(found, names=names, width=width(), colour=in_colour()))
    return exit_code(found)
