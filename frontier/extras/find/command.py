"""`frontier verify --find`: the highest rate of independent arrivals that keeps the SLA."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import click

from frontier.cli.common import RunOptions, answer, layout, note
from frontier.core.model.errors import UsageError, exit_code
from frontier.core.model.loads import setting
from frontier.core.model.units import format_elapsed, format_number
from frontier.search.load_trials import LoadAsk, LoadTrial

_HELP = """
    With --find: which is the highest rate that holds so? Exit code 0 found, 3 no rate, 4 not
    proven. The same command again goes on.

    \b
    Examples:
      frontier verify runs/llama8b --find
    """


def option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the option, and its part of the help."""
    command.__doc__ = (command.__doc__ or "") + _HELP
    help_line = "Find and prove the highest rate that keeps the SLA."
    return click.option("--find", is_flag=True, help=help_line)(command)


def run(options: RunOptions, given: Mapping[str, Any], *, sized: bool) -> int | None:
    """The exit code of `--find`; None where it was not asked for."""
    if not given["find"]:
        return None
    if sized:
        raise UsageError("--find looks for the load and sizes its trials itself", "leave out --load and --requests")
    return _find(options)


def _find(options: RunOptions) -> int:
    """Find the highest rate at each operating point, and answer; the exit code."""
    # What asks for this option as it is made.
    from frontier.cli.verify import Tick, again_with, consent, nothing_to_verify, send, stopped
    from frontier.extras.find.finding import find
    from frontier.extras.find.found_text import found_json, found_text, load_trial_text
    from frontier.sweep.verify import Search, searches

    loaded = options.read()
    wanted = searches(loaded, options.limits(loaded))
    if not wanted:
        return nothing_to_verify(loaded, options)
    consent(loaded)
    tick = Tick()
    begun: set[int] = set()

    def on_ask(search: Search, ask: LoadAsk, left: float) -> None:
        decision, policy = search.decision, search.policy
        tick.expect(f"{ask.load:g} requests/s", left)
        if id(search) not in begun:
            begun.add(id(search))
            note(
                f"{decision.shape.label}  the highest rate of independent users with at most {policy.in_flight} in "
                f"flight; closed loop {format_number(policy.top)} requests/s at {setting(policy.in_flight)}; "
                f"about {format_elapsed(left)}. Ctrl-C keeps what is finished."
            )

    def on_trial(search: Search, trial: LoadTrial) -> None:
        tick.clear()
        note(load_trial_text(trial, search.decision.limits))

    again = again_with(loaded)
    found = send(loaded, tick, lambda sender: find(sender, wanted, on_ask=on_ask, on_trial=on_trial))
    if found:
        text = functools.partial(found_text, again=again, detail=options.detail, width=layout()["width"])
        answer(found_json(found) if options.as_json else text(found))
    if len(found) < len(wanted):
        return stopped(f"finished trials are kept; go on with\n  {again} --find")
    return exit_code(each.done.verdict for each in found)
