"""`frontier verify`: the operating point under open-loop (Poisson) load. It also finds the highest
such rate that holds, holds a load for hours, and compares quality.
"""

import functools
from typing import TYPE_CHECKING, Any

import click

from frontier.cli.common import RunOptions, answer, note, run_options, subcommand
from frontier.core.model.errors import UsageError, exit_code
from frontier.core.model.units import format_elapsed
from frontier.extras.verify import find_command, quality_command, soak_command
from frontier.extras.verify.command_send import Tick, again_with, consent, nothing_to_verify, send, stopped

if TYPE_CHECKING:
    from frontier.planning.sla_result import OpenLoopCheck
    from frontier.run import Run

LEAST_LOAD, MOST_LOAD = 0.01, 10.0
"""Shares of the operating point's rate that are worth sending: below, the requests of a claim take
days to arrive."""


@subcommand("verify")
@click.option(
    "--load",
    metavar="SHARE",
    help="Share of the rate that the operating point served; default: the rate estimated for independent users.",
)
@click.option(
    "--requests",
    type=click.IntRange(1, 10_000_000),
    metavar="N",
    help="How many to send; default: as many as the proof has.",
)
@run_options(
    "run",
    "deployments",
    "shapes",
    "sla",
    "settings",
    "detail",
    "as_json",
    more="All metrics; every trial of --find, every window of --for.",
)
@click.option("--find", is_flag=True, help="Find and prove the highest rate that keeps the SLA.")
@click.option("--for", "duration", metavar="TIME", help="Hold the operating point for so long: 8h.")
@click.option("--quality", is_flag=True, help="Compare answers with those of the reference that the config names.")
@click.option(
    "--under-load",
    metavar="[C,C]",
    is_flag=False,
    flag_value="",
    help="With --quality: ask among the load of these settings; default: operating point and neighbours.",
)
@click.option("--scorer", metavar="COMMAND", help="With --quality: the command that scores each answer.")
def command(options: RunOptions, load: str | None, requests: int | None, duration: str | None, **asked: Any) -> int:
    """Does the operating point of RUN hold under open-loop (Poisson) load: the rate that the answer
    estimates for independent users?

    A closed loop never queues more callers than it has. Poisson arrivals do. At most the operating
    point's concurrency is in flight, as you would set it in production: what arrives beyond waits,
    and latency is counted from each arrival. The exit code is the verdict, as solve's. RUN defaults
    to the newest run under runs/ that holds a finished trial.

    With --find: which is the highest rate that holds so? Exit code 0 found, 3 no rate, 4 not
    proven. The same command again goes on.

    With --for: does it still hold later? The load of the operating point, as it was measured, is
    held for so long. A latency that grows is named with the time since when. Exit code 0 held, 3
    the SLA is broken, 4 not proven. The same command again goes on.

    With --quality: how often do deployments that have  quality: {reference: NAME}  choose the same
    next token as NAME, each with as many requests in flight as at its operating point? Then it is
    their metric `quality`.

    With --under-load too: how much do a deployment's own answers change with the load? Its prompts
    are sent as one more stream among the sweep's load at each setting C, and alone. --requests N
    asks N prompts; default 200. Then the metric `agreement` is known at these settings. The same
    command goes on after a stop.

    With --scorer too: a command of yours reads a JSON object a line, {"id", "prompt", "answer",
    "reference"}, and prints a score from 0 to 1 for each. The mean score is then the quality. It
    gets no key that the config names.

    \b
    Examples:
      frontier verify
      frontier verify runs/llama8b --load 80%
      frontier verify runs/llama8b --find
      frontier verify runs/llama8b --for 8h
      frontier verify runs/llama8b --quality --scorer 'python3 score.py'
      frontier verify runs/llama8b --quality --under-load 8,16
    """
    from frontier.extras.verify.open_loop_check import checks

    sized, (find, quality) = requests is not None or load is not None, (asked["find"], asked["quality"])
    under_load, scorer = asked["under_load"], asked["scorer"]
    if quality or scorer is not None or under_load is not None:
        others = [flag for flag, given in (("--find", find), ("--for", duration is not None)) if given]
        if quality and under_load is not None and load is None:
            return quality_command.run_under_load(options, scorer, under_load, requests, others=others)
        return quality_command.run(options, scorer, asked=quality, sized=sized, others=others)
    if duration is not None:
        return soak_command.run(options, duration, alone=not (sized or find))
    if find:
        return find_command.run(options, sized=sized)
    run = options.read()
    wanted = checks(run, options.limits(run), load=share(load) if load is not None else None, requests=requests)
    return _check(run, wanted, options) if wanted else nothing_to_verify(run, options)


def share(text: str) -> float:
    """A share that may be above 1: '80%', '1.2'. UsageError otherwise."""
    number = text.strip()
    try:
        value = float(number.removesuffix("%")) / (100.0 if number.endswith("%") else 1.0)
    except ValueError:
        value = 0.0
    if not LEAST_LOAD <= value <= MOST_LOAD:
        between = f"{LEAST_LOAD:.0%} and {MOST_LOAD:.0%}"
        raise UsageError(f"--load {text!r} is not a share of the rate between {between}", "write it as  --load 80%")
    return value


def _check(run: "Run", wanted: "list[OpenLoopCheck]", options: RunOptions) -> int:
    """Send the rate of each operating point, and answer; the exit code."""
    from frontier.extras.verify.checked_text import verified_json, verified_text
    from frontier.extras.verify.open_loop_check import verify

    consent(run)
    again = again_with(run)
    for check in wanted:
        note(
            f"{check.decision.shape.label}  {check.requests:,} requests arrive at {check.rate:.4g}/s, as independent "
            f"users would, at most {check.decision.load} in flight; about "
            f"{format_elapsed(check.requests / check.rate)}"
        )
    checked = send(run, Tick(), lambda sender: verify(sender, wanted))
    text = functools.partial(verified_text, again=again, detail=options.detail)
    answer(verified_json(checked) if options.as_json else text(checked))
    return stopped() if len(checked) < len(wanted) else exit_code(check.judgement.verdict for check in checked)
