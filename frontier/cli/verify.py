"""`frontier verify`: the operating point under open-loop (Poisson) load, and the highest such rate
that holds."""

import asyncio
import functools
import os
import shlex
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from frontier import registry
from frontier.cli.common import (
    RunOptions,
    answer,
    given_options,
    note,
    run_options,
    say,
    subcommand,
    with_options,
)
from frontier.cli.consent import consent_to_reach
from frontier.core.model.errors import ExitCode, UsageError, exit_code
from frontier.core.model.units import format_elapsed
from frontier.store.run_dir import RunDirectory

if TYPE_CHECKING:
    from frontier.client.load.loop import TrialProgress
    from frontier.planning.sla_result import Check
    from frontier.run import Run
    from frontier.sweep.verify import Sender

T = TypeVar("T")

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
@run_options("run", "deployments", "shapes", "sla", "settings", "detail", "as_json")
@with_options("verify")
def command(options: RunOptions, load: str | None, requests: int | None, **given: Any) -> int:
    """Does the operating point of RUN hold under open-loop (Poisson) load: the rate that the answer
    estimates for independent users?

    A closed loop never queues more callers than it has. Poisson arrivals do. At most the operating
    point's concurrency is in flight, as you would set it in production: what arrives beyond waits,
    and latency is counted from each arrival. The exit code is the verdict, as solve's. RUN defaults
    to the newest run under runs/ that holds a finished trial.

    \b
    Examples:
      frontier verify
      frontier verify runs/llama8b --load 80%
    """
    from frontier.sweep.verify import checks

    sized = requests is not None or load is not None
    for extra in registry.options_of("verify"):
        code: int | None = extra.run(options, given, sized=sized)
        if code is not None:
            return code
    run = options.read()
    wanted = checks(run, options.limits(run), load=share(load) if load is not None else None, requests=requests)
    return _check(run, wanted, options) if wanted else nothing_to_verify(run, options)


def nothing_to_verify(run: "Run", options: RunOptions) -> int:
    """Say that the run has no operating point, and why; the exit code."""
    from frontier.core.claim import solver
    from frontier.show.answer import decision_table, verified_json

    decisions = run.solve(options.limits(run))
    say("there is no operating point to verify:")
    answer(verified_json([]) if options.as_json else decision_table(decisions, detail=options.detail))
    return solver.exit_code(decisions)


def again_with(run: "Run") -> str:
    """The command that was given, without what concerns the load."""
    return shlex.join(["frontier", "verify", str(run.path), *given_options("load", "requests")])


def consent(run: "Run") -> None:
    """Ask before anything is sent to a server that the user's own config does not name."""
    config_file = run.manifest.get("config_file")
    begun_with = Path(config_file) if isinstance(config_file, str) else None
    consent_to_reach(run.path / "config.yaml", run.config, begun_with)


def stopped(kept: str = "what was finished is kept") -> ExitCode:
    """Say that it was stopped, and what is kept."""
    say(f"stopped; {kept}")
    return ExitCode.INTERRUPTED


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


def _check(run: "Run", wanted: "list[Check]", options: RunOptions) -> int:
    """Send the rate of each operating point, and answer; the exit code."""
    from frontier.show.answer import verified_json, verified_text
    from frontier.sweep.verify import verify

    consent(run)
    again = again_with(run)
    for check in wanted:
        note(
            f"{check.decision.shape.label}  {check.requests:,} requests arrive at {check.rate:.4g}/s, as independent "
            f"users would, at most {check.decision.concurrency} in flight; about "
            f"{format_elapsed(check.requests / check.rate)}"
        )
    checked = send(run, Tick(), lambda sender: verify(sender, wanted))
    text = functools.partial(verified_text, again=again, detail=options.detail)
    answer(verified_json(checked) if options.as_json else text(checked))
    return stopped() if len(checked) < len(wanted) else exit_code(check.judgement.verdict for check in checked)


def send(run: "Run", tick: "Tick", work: "Callable[[Sender], Awaitable[T]]") -> T:
    """Run `work` with the run's lock held; signals stop it, and what is finished is kept."""
    from frontier.cli.sweep import stop_on_signals
    from frontier.client.http.http_client import run as run_loop
    from frontier.sweep.backend import HttpBackend
    from frontier.sweep.verify import Sender

    async def go() -> T:
        stop = asyncio.Event()
        stop_on_signals(stop)
        config = run.config.model_copy(update={"given_workers": None})  # an open loop is sent from this process
        backend = HttpBackend(config, os.environ, time.time_ns())
        return await work(Sender(run, backend, store, tick, stop))

    with RunDirectory.open_to_verify(run.path) as store:
        done = run_loop(go())
    tick.clear()
    return done


class Tick:
    """The progress of a trial, on one line of a terminal that is written over."""

    _what, _left, _since = "", 0.0, 0.0

    def expect(self, what: str, left: float) -> None:
        """From here on it is about `what`, and all is done after `left` seconds."""
        self._what, self._left, self._since = what, left, time.monotonic()

    def __call__(self, progress: "TrialProgress") -> None:
        if sys.stderr.isatty():
            line = f"{progress.stage}: {progress.window_sent:,} sent, {progress.in_flight:,} in flight"
            if self._what:
                left = max(self._left - (time.monotonic() - self._since), 1.0)
                line = f"{self._what}  {line} · about {format_elapsed(left)} left"
            click.echo(f"\r\x1b[K{line}", nl=False, err=True)

    def clear(self) -> None:
        """An empty line."""
        if sys.stderr.isatty():
            click.echo("\r\x1b[K", nl=False, err=True)
