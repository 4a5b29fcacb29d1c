"""`frontier users`: how many people an operating point serves, on how many replicas, and where the
limit is set."""

from typing import TYPE_CHECKING

import click

from frontier.cli import common
from frontier.client.engines import EMITTED
from frontier.core.model.errors import ExitCode, UsageError
from frontier.core.model.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frontier.core.model.decisions import Decision
    from frontier.run import Run

TARGETS = (*EMITTED, "keda", "prometheus-rule")
LONGEST = 86_400.0
"""The longest think time in seconds."""


@common.subcommand("users")
@click.option("--think", metavar="TIME", help="Mean time between an answer and the next question, as 45s.")
@click.option("--people", type=click.IntRange(1, 1_000_000), metavar="N", help="People at once, at peak.")
@click.option(
    "--spare",
    type=click.IntRange(0, 1000),
    default=1,
    show_default=True,
    metavar="N",
    help="Replicas that may be down while the others serve all --people.",
)
@click.option("--emit", type=click.Choice(TARGETS), help="Print the lines that set the limit there, instead.")
@common.run_options(
    "run",
    "deployments",
    "shapes",
    "settings",
    "sla",
    "point_estimates",
    "detail",
    "as_json",
    more="Also the operating point that it counts from.",
)
def command(options: common.RunOptions, think: str | None, people: int | None, spare: int, emit: str | None) -> int:
    """How many people does the operating point of RUN serve, and how many replicas do so many
    people need?

    Each person asks, waits for the whole answer, thinks and asks again. A request that waits for a
    slot counts its wait. The rate that `frontier verify --find` proved is used where there is one;
    else the answer is an estimate from the closed loop. Exit code 0 answered, 3 no operating point,
    4 none proven. RUN defaults to the newest run under runs/ that holds a finished trial.

    \b
    Examples:
      frontier users --think 45s --people 5000
      frontier users runs/llama8b --think 2m --set 'price=$4/h'
      frontier users runs/llama8b --emit vllm
      frontier users runs/llama8b --think 45s --people 5000 --emit keda
    """
    from frontier.core.claim.solver import exit_code
    from frontier.extras.capacity.emit import emit as lines
    from frontier.extras.capacity.people import users_json, users_text
    from frontier.extras.capacity.served import require_in_flight, served
    from frontier.show.answer import decision_table
    from frontier.show.view.answer_view import answer_view

    seconds = None if think is None else common.parsed("--think", think, parse_duration)
    if seconds is not None and not 0 < seconds <= LONGEST:
        raise UsageError(f"--think {think!r} is no time to think", "write it as  --think 45s,  at most 24h")
    if seconds is None and (emit is None or people is not None):
        raise UsageError("how long do people think between an answer and the next question?", "add  --think 45s")
    run = options.read()
    decisions = _decided(options, run)
    for decision in decisions:
        require_in_flight(decision)
    proven = [decision for decision in decisions if decision.load is not None]
    if len(proven) < len(decisions):
        common.say("no operating point is proven, so no people are counted:")
        common.say(decision_table([answer_view(decision) for decision in decisions if decision.load is None]))
    if emit is not None and len(proven) > 1:
        raise UsageError("--emit is about one operating point", "narrow it with  --deployment  or  --shape")
    if emit is not None and proven and proven[0].shape.has_sessions:
        shape = proven[0].shape
        what = f"{shape.label} is a {shape.kind}{' with sessions' if shape.mix else ''}: its proven number counts open "
        what += "sessions, not requests in flight"
        raise UsageError(what, "sweep a shape of one request, and emit its operating point")
    answers = [] if seconds is None else [served(run, decision, seconds, people, spare) for decision in proven]
    if emit is None:
        if options.as_json:
            common.answer(users_json(answers))
        elif answers:
            common.answer(users_text(answers, detail=options.detail, **common.layout()))
    elif proven:
        people_served = (answers[0].fleet or answers[0].one) if answers else None
        common.answer(lines(emit, proven[0], people_served).rstrip("\n"))
    code = exit_code(decisions)
    return ExitCode.NOT_PROVEN if code == ExitCode.YES and any(not each.one.people for each in answers) else code


def _decided(options: common.RunOptions, run: "Run") -> "Sequence[Decision]":
    """The operating points; by values alone where that was asked for, which is said."""
    if options.point_estimates:
        common.say("decided on values alone, as asked: nothing here is proven")
    return run.solve(options.limits(run), point_estimates=options.point_estimates)
