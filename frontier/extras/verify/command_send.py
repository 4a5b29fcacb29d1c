"""Sending the checks of `frontier verify`: consent, the load under the run's lock, and its
progress. Also the messages for runs on which nothing can be checked.
"""

import asyncio
import os
import shlex
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from frontier.cli.common import RunOptions, answer, given_options, say
from frontier.cli.consent import consent_to_reach
from frontier.config.connection import names_server
from frontier.core.model.errors import ExitCode
from frontier.core.model.units import format_elapsed
from frontier.store.run_dir import RunDirectory
from frontier.world import world

if TYPE_CHECKING:
    from frontier.client.load.loop import TrialProgress
    from frontier.extras.verify.open_loop_check import Sender
    from frontier.run import Run

T = TypeVar("T")


def nothing_to_verify(run: "Run", options: RunOptions) -> int:
    """Report that the run has no operating point, and why. Returns the exit code."""
    from frontier.core.claim import solver
    from frontier.extras.verify.checked_text import verified_json
    from frontier.show.answer import decision_table
    from frontier.show.view.answer_view import answer_view

    decisions = run.solve(options.limits(run))
    say("there is no operating point to verify:")
    answers = [answer_view(decision) for decision in decisions]
    answer(verified_json([]) if options.as_json else decision_table(answers, detail=options.detail))
    return solver.exit_code(decisions)


def again_with(run: "Run") -> str:
    """The command that was given, without its load options."""
    return shlex.join(["frontier", "verify", str(run.path), *given_options("load", "requests")])


def consent(run: "Run") -> None:
    """Ask for consent before anything is sent to a server that the user's own config does
    not name.
    """
    config_file = run.manifest.get("config_file")
    begun_with = Path(config_file) if isinstance(config_file, str) and not names_server(config_file) else None
    consent_to_reach(run.path / "config.yaml", run.config, begun_with)


def stopped(kept: str = "what was finished is kept") -> ExitCode:
    """Report that it was stopped, and what is kept. Returns the exit code."""
    say(f"stopped; {kept}")
    return ExitCode.INTERRUPTED


def send(run: "Run", tick: "Tick", work: "Callable[[Sender], Awaitable[T]]") -> T:
    """Run `work` with the run's lock held. Signals stop it, and what is finished is kept."""
    from frontier.cli.measuring import stop_on_signals
    from frontier.extras.verify.open_loop_check import Sender
    from frontier.sweep.backend import new_salt, open_backend, run_to_end

    async def go() -> T:
        stop = asyncio.Event()
        stop_on_signals(stop)
        config = run.config.model_copy(update={"given_workers": None})  # an open loop is sent from this process
        backend = open_backend(config, os.environ, new_salt())
        try:
            return await work(Sender(run, backend, store, tick, stop))
        finally:
            await backend.close()

    if (knob := next((d.apply for d in run.config.deployments if d.apply is not None), None)) is not None:
        say(f"{knob.name} is not set here, only in a sweep; it stays as it is")
    with RunDirectory.open_to_verify(run.path) as store:
        done = run_to_end(go())
    tick.clear()
    return done


class Tick:
    """The progress of a trial, on one line of a terminal that is written over."""

    _what, _left, _since = "", 0.0, 0.0

    def expect(self, what: str, left: float) -> None:
        """Show `what` from here on, with everything done after `left` seconds."""
        self._what, self._left, self._since = what, left, world().clock()

    def __call__(self, progress: "TrialProgress") -> None:
        if sys.stderr.isatty():
            line = f"{progress.stage}: {progress.window_sent:,} sent, {progress.in_flight:,} in flight"
            if self._what:
                left = max(self._left - (world().clock() - self._since), 1.0)
                line = f"{self._what}  {line} · about {format_elapsed(left)} left"
            click.echo(f"\r\x1b[K{line}", nl=False, err=True)

    def clear(self) -> None:
        """Clear the line."""
        if sys.stderr.isatty():
            click.echo("\r\x1b[K", nl=False, err=True)
