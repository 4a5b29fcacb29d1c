"""`frontier solve`: the operating point of a run under an SLA."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier.cli.common import (
    answer,
    answer_json,
    answer_prose,
    complete_metrics,
    deployment_option,
    find_run,
    in_colour,
    json_option,
    looked_at,
    measured,
    run_argument,
    set_option,
    shape_option,
    unfinished_tree,
    width,
)

if TYPE_CHECKING:
    from frontier.config.sla import Tiers
    from frontier.run import Run


@click.command("solve")
@run_argument
@click.option(
    "--sla",
    multiple=True,
    shell_complete=complete_metrics,
    help="Limits, as 'p99_ttft<=500ms, p99_tpot<=30ms, error_rate<=1%'; repeatable. A range is 200ms..500ms (comfort, "
    "promise). Default: every tier of the config.",
)
@click.option("--tier", help="Only this tier of the config.")
@click.option("--point-estimates", is_flag=True, help="Decide on values without intervals (imported aggregates).")
@click.option(
    "--marginal-ok", is_flag=True, help="Accept a setting whose interval crosses the limit; said in the answer."
)
@deployment_option
@shape_option
@set_option
@json_option
def command(
    run: Path | None, sla: tuple[str, ...], tier: str | None, point_estimates: bool, marginal_ok: bool,
    deployments: tuple[str, ...], shapes: tuple[str, ...], settings: tuple[str, ...], as_json: bool,
) -> int:  # fmt: skip
    """The operating point: the concurrency whose tail is proven inside the SLA, or the plain statement that none is.

    Nothing is measured again: any SLA can be asked of a finished run. The exit code says the verdict, the worst one
    where several tiers or shapes are asked.

    RUN defaults to the run under runs/ whose last trial was finished last.

    \b
    Examples:
      frontier solve
      frontier solve runs/llama8b --sla 'p99_ttft<=500ms, p99_tpot<=30ms'
      frontier solve --sla 'p99_ttft<=200ms..500ms' --sla 'p95_e2e<=4s'
      frontier solve --sla 'p99_e2e<=9s, energy<=0.5' --set hardware.power=700W
    """
    from frontier.decide.sla_result import exit_code
    from frontier.plot.selection import narrowed
    from frontier.report.answer import answers_json, answers_text

    path = find_run(run)
    found = looked_at(path, settings) if as_json else measured(path, settings, told=True)
    found = narrowed(found, deployments, shapes)
    answers = found.answers(asked(found, sla, tier), point_estimates=point_estimates, marginal_ok=marginal_ok)
    if as_json:
        answer_json({**answers_json(answers), "unfinished": unfinished_tree(found)})
    else:
        gpus = {d.name: d.gpus for d in found.config.deployments}
        answer(answers_text(answers, gpus=gpus, width=width(), colour=in_colour()))
        if found.unfinished:
            answer_prose(found.unfinished)
    return exit_code(answers)


def asked(found: "Run", sla: tuple[str, ...], tier: str | None) -> "Tiers":
    """The named sets of limits to answer: those given, else the config's. UsageError for a tier there is not."""
    from frontier.config import parse_sla
    from frontier.errors import UsageError

    if sla and tier:
        raise UsageError("--sla and --tier are two ways to say what to ask", "give one of them")
    if sla:
        return tuple((text, parse_sla(text)) for text in sla)
    tiers = found.config.tiers
    if not tiers:
        raise UsageError("no SLA to decide by", "name one, for example  --sla 'p99_ttft<=500ms'")
    if tier is None:
        return tiers
    chosen = tuple(t for t in tiers if t[0] == tier)
    if not chosen:
        raise UsageError(f"the config has no tier {tier!r}", "it has " + ", ".join(name for name, _ in tiers))
    return chosen
