"""`frontier verify --for`: does the operating point hold for hours?"""

import functools
import shlex
from collections.abc import Sequence

from frontier.cli.common import RunOptions, answer, given_options, layout, note, parsed
from frontier.core.model.decisions import Decision, Limit
from frontier.core.model.errors import UsageError, exit_code
from frontier.core.model.loads import NO_LOAD
from frontier.core.model.units import format_elapsed, parse_duration
from frontier.extras.verify.command_send import Tick, consent, send, stopped
from frontier.run import Run

LEAST, MOST = 60.0, 31 * 86_400.0
"""The shortest and the longest hold in seconds."""
QUIET = 600.0
"""Seconds between the lines of a hold in a log."""


def run(options: RunOptions, given: str, *, alone: bool) -> int:
    """Run `--for`. Returns the exit code. UsageError where other options are given too."""
    if not alone:
        raise UsageError("--for holds the operating point as it was measured", "leave out the other options")
    duration = parsed("--for", given, parse_duration)
    if not LEAST <= duration <= MOST:
        raise UsageError(f"--for {given} is not between 1 minute and 31 days", "write it as  --for 8h")
    loaded = options.read()
    limits = options.limits(loaded)
    return _hold(loaded, limits, _wanted(loaded, limits), duration, options)


def _wanted(run: Run, limits: Sequence[Limit]) -> Decision:
    """The one operating point of a run. UsageError where it has none, or several."""
    if run.is_imported:
        raise UsageError(f"{run.path} was imported: there is no server to send to", "sweep it:  frontier init URL")
    if beside := [shape for shape in run.config.shapes if shape.background is not None]:
        what = f"{beside[0].label} is a {beside[0].kind}, and verify holds a shape alone"
        raise UsageError(what, "sweep a copy of its config without  background:")
    found = [decision for decision in run.solve(limits) if decision.load is not None]
    if not found:
        raise UsageError("there is no operating point to hold", f"see why:  frontier solve {run.path}")
    if len(found) > 1:
        named = ", ".join(f"{d.series.label(keep_shape=True)} {(d.load or NO_LOAD).label}" for d in found)
        which = "--deployment" if len({d.deployment for d in found}) > 1 else "--shape"
        raise UsageError(f"the run has {len(found)} operating points: {named}", f"name one with  {which}")
    return found[0]


def _hold(run: Run, limits: Sequence[Limit], decision: Decision, duration: float, options: RunOptions) -> int:
    """Hold the load, and answer; the exit code."""
    from frontier.extras.verify.soak import Held, begun, hold
    from frontier.extras.verify.soak_text import growth_text, hold_json, hold_text, window_text
    from frontier.store.run_dir import RunDirectory

    budget = run.config.budget
    if budget.time is not None and duration > budget.time:
        what = f"--for {format_elapsed(duration)} is beyond the budget of {format_elapsed(budget.time)}"
        raise UsageError(what, f"hold it for less, or raise it:  --set budget.time={duration:.0f}s")
    consent(run)
    again = shlex.join(["frontier", "verify", str(run.path), *given_options()])
    with RunDirectory.open_to_verify(run.path) as store:
        plan = begun(store, decision, limits, duration)
    note(
        f"{decision.shape.label}  {(decision.load or NO_LOAD).label} is held for {format_elapsed(duration)}, in "
        f"windows of about {format_elapsed(plan.window)}. Ctrl-C keeps those that are finished."
    )
    tick = Tick()
    said, told = [0.0], [0]

    def on_window(held: Held) -> None:
        tick.expect((decision.load or NO_LOAD).label, duration - held.seconds)
        tick.clear()
        for what, growth in held.growths[told[0] :]:
            note(growth_text(what, growth))
        told[0] = len(held.growths)
        if held.windows[-1].ended - said[0] >= QUIET:
            said[0] = held.windows[-1].ended
            note(window_text(held))

    held = send(run, tick, lambda sender: hold(sender, plan, on_window))
    text = functools.partial(hold_text, again=again, detail=options.detail, width=layout()["width"])
    answer(hold_json(held) if options.as_json else text(held))
    return exit_code([held.verdict]) if held.over else stopped("finished windows are kept")
