"""`frontier solve`: the operating point of a run under an SLA."""

from pathlib import Path

import click

from frontier.cli.common import answer, answer_json, find_run, in_colour, json_option, run_argument, width


@click.command("solve")
@run_argument
@click.option("--sla", help="Limits, as 'p99_ttft<=500ms, p99_tpot<=30ms, error_rate<=1%'; default: the config's.")
@click.option("--point-estimates", is_flag=True, help="Decide on values without intervals (imported aggregates).")
@click.option(
    "--marginal-ok", is_flag=True, help="Accept a setting whose interval crosses the limit; said in the answer."
)
@json_option
def command(run: Path | None, sla: str | None, point_estimates: bool, marginal_ok: bool, as_json: bool) -> int:
    """The operating point: the concurrency whose tail is proven inside the SLA, or the plain statement that none is.

    Nothing is measured again: any SLA can be asked of a finished run. The exit code says the verdict.

    \b
    Examples:
      frontier solve
      frontier solve runs/llama8b --sla 'p99_ttft<=500ms, p99_tpot<=30ms'
    """
    from frontier.analyze.sla import exit_code
    from frontier.config import parse_sla
    from frontier.present.jsonout import decisions_json
    from frontier.present.tables import decision_table
    from frontier.results import load

    found = load(find_run(run))
    limits = found.limits() if sla is None else parse_sla(sla)
    decisions = found.solve(limits, point_estimates=point_estimates, marginal_ok=marginal_ok)
    if as_json:
        answer_json(decisions_json(decisions))
    else:
        gpus = {d.name: d.gpus for d in found.config.deployments}
        answer(decision_table(decisions, gpus=gpus, width=width(), colour=in_colour()))
    return exit_code(decisions)
