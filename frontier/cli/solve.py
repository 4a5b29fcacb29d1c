"""`frontier solve`: the operating point of a run under an SLA."""

from typing import TYPE_CHECKING

import click

from frontier.cli import common, completion
from frontier.core.model.errors import UsageError
from frontier.show.verbosity import Detail

if TYPE_CHECKING:
    from frontier.config.sla import Tiers
    from frontier.run import Run


@common.subcommand("solve")
@click.option(
    "--sla",
    multiple=True,
    shell_complete=completion.complete_limits,
    metavar="LIMITS",
    help="Limits, as 'p99_ttft<=500ms, p99_tpot<=30ms, error_rate<=1%'; repeatable. A range is 200ms..500ms (comfort, "
    "promise); or a tier of the config; or a preset: chat, search, agent, summary, voice, batch. Default: every "
    "tier of the config.",
)
@click.option("--tier", metavar="NAME", help="Only this tier of the config.")
@click.option(
    "--marginal-ok", is_flag=True, help="Accept a setting whose interval crosses the limit; said in the answer."
)
@common.run_options("run", "deployments", "shapes", "settings", "point_estimates", "detail", "as_json")
def command(options: common.RunOptions, sla: tuple[str, ...], tier: str | None, marginal_ok: bool) -> int:
    """Which concurrency is proven within the SLA: the operating point, or the statement that there
    is none.

    Nothing is measured: an SLA is answered from the trials of RUN, or with the command that would
    decide it. The exit code is the verdict, the worst one of several tiers or shapes. RUN defaults
    to the newest run under runs/ that holds a finished trial.

    \b
    Examples:
      frontier solve runs/llama8b --sla 'p99_ttft<=500ms, p99_tpot<=30ms'
      frontier solve --sla 'p99_ttft<=200ms..500ms' --sla 'p95_e2e<=4s'
      frontier solve --sla 'p99_e2e<=9s, energy<=0.5' --set hardware.power=700W
    """
    from frontier.core.claim.solver import exit_code
    from frontier.planning.next_step import spoilt_settings
    from frontier.show.answer import answers_text
    from frontier.show.view.answer_view import tier_views
    from frontier.show.view.json_out import answers_json

    run = options.read(allow_empty=options.as_json)
    how = {"point_estimates": options.point_estimates, "marginal_ok": marginal_ok}
    answers = run.answers(_tiers(run, sla, tier), **how)
    if options.as_json:
        common.answer({**answers_json(answers), "unfinished": common.unfinished_json(run)})
    else:
        common.answer(answers_text(tier_views(answers, run.gpus), detail=options.detail, **common.layout()))
        spoilt = any(spoilt_settings(d) for tier in answers for d in tier.deciding)  # the answer says what to do
        if run.unfinished and options.detail >= Detail.USUAL and not spoilt:
            common.answer_prose(run.unfinished)
    return exit_code([d for tier in answers for d in tier.deciding])


def _tiers(run: "Run", sla: tuple[str, ...], tier: str | None) -> "Tiers":
    """The named sets of limits to answer: those given, else the config's. UsageError for an unknown
    tier.
    """
    if sla and tier:
        raise UsageError("--sla and --tier are two ways to say what to ask", "give one of them")
    if sla:
        return tuple((text, run.limits(text)) for text in sla)
    tiers = run.config.tiers
    if not tiers:
        raise UsageError("no SLA to decide by", "name one, for example  --sla 'p99_ttft<=500ms'")
    if tier is None:
        return tiers
    chosen = tuple(t for t in tiers if t[0] == tier)
    if not chosen:
        raise UsageError(f"the config has no tier {tier!r}", "it has " + ", ".join(name for name, _ in tiers))
    return chosen
