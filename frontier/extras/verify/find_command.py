"""`frontier verify --find`: the highest rate of independent arrivals that keeps the SLA."""

import functools

from frontier.cli.common import RunOptions, answer, layout, note
from frontier.core.model.errors import UsageError, exit_code
from frontier.core.model.loads import Concurrency
from frontier.core.model.trials import Trial
from frontier.core.model.units import format_elapsed, format_number
from frontier.core.window.window import WindowData
from frontier.extras.verify.command_send import Tick, again_with, consent, nothing_to_verify, send, stopped
from frontier.search.next_trial import Ask
from frontier.search.rate_policy import rate_of


def run(options: RunOptions, *, sized: bool) -> int:
    """The exit code of `--find`. UsageError where the load was given (`sized`)."""
    if sized:
        raise UsageError("--find looks for the load and sizes its trials itself", "leave out --load and --requests")
    return _find(options)


def _find(options: RunOptions) -> int:
    """Find the highest rate at each operating point, and answer; the exit code."""
    from frontier.extras.verify.finding import find
    from frontier.extras.verify.found_text import found_json, found_text, load_trial_text
    from frontier.extras.verify.open_loop_check import Search, searches

    loaded = options.read()
    wanted = searches(loaded, options.limits(loaded))
    if not wanted:
        return nothing_to_verify(loaded, options)
    consent(loaded)
    tick = Tick()
    begun: set[int] = set()

    def on_ask(search: Search, ask: Ask, left: float) -> None:
        decision, policy = search.decision, search.policy
        tick.expect(f"{rate_of(ask.load).per_second:g} requests/s", left)
        if id(search) not in begun:
            begun.add(id(search))
            note(
                f"{decision.shape.label}  the highest rate of independent users with at most {policy.in_flight} in "
                f"flight; closed loop {format_number(policy.top)} requests/s at {Concurrency(policy.in_flight).label}; "
                f"about {format_elapsed(left)}. Ctrl-C keeps what is finished."
            )

    def on_trial(search: Search, trial: Trial, data: WindowData) -> None:
        tick.clear()
        note(load_trial_text(trial, data, search.decision.limits))

    again = again_with(loaded)
    found = send(loaded, tick, lambda sender: find(sender, wanted, on_ask=on_ask, on_trial=on_trial))
    if found:
        text = functools.partial(found_text, again=again, detail=options.detail, width=layout()["width"])
        answer(found_json(found) if options.as_json else text(found))
    if len(found) < len(wanted):
        return stopped(f"finished trials are kept; go on with\n  {again} --find")
    return exit_code(each.done.verdict for each in found)
