"""`frontier verify`: the operating point under open-loop (Poisson) load, and the highest such rate
that holds."""

import asyncio
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
    consent_to_reach,
    given_options,
    layout,
    run_options,
    say,
    subcommand,
    with_options,
)
from frontier.core.errors import ExitCode, UsageError, exit_code
from frontier.core.loads import setting
from frontier.core.units import format_elapsed, format_number
from frontier.store.run_dir import RunDirectory

if TYPE_CHECKING:
    from frontier.client.load.loop import TrialProgress
    from frontier.planning.sla_result import Check
    from frontier.run import Run
    from frontier.search.load_trials import LoadAsk, LoadTrial
    from frontier.sweep.verify import Search, Sender

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
@click.option("--find", is_flag=True, help="Find and prove the highest rate that keeps the SLA.")
@run_options("run", "deployments", "shapes", "sla", "settings", "as_json")
@with_options("verify")
def command(options: RunOptions, load: str | None, requests: int | None, find: bool, **given: Any) -> int:
    """Does the operating point of RUN hold under open-loop (Poisson) load: the rate that the answer
    estimates for independent users?

    A closed loop never queues more callers than it has. Poisson arrivals do. At most the operating
    point's concurrency is in flight, as you would set it in production: what arrives beyond waits,
    and latency is counted from each arrival. The exit code is the verdict, as solve's. RUN defaults
    to the newest run under runs/ that holds a finished trial.

    With --find: which is the highest rate that holds so? Exit code 0 found, 3 no rate, 4 not
    proven. The same command again goes on.

    \b
    Examples:
      frontier verify
      frontier verify runs/llama8b --load 80%
      frontier verify runs/llama8b --find
    """
    from frontier.core import solver
    from frontier.show.answer import decision_table, found_json, verified_json
    from frontier.sweep.verify import checks, searches

    sized = requests is not None or load is not None
    if find and sized:
        raise UsageError("--find looks for the load and sizes its trials itself", "leave out --load and --requests")
    for extra in registry.options_of("verify"):
        code: int | None = extra.run(options, given, find=find, sized=sized)
        if code is not None:
            return code
    run = options.read()
    limits = options.limits(run)
    found = searches(run, limits) if find else []
    checked = [] if find else checks(run, limits, load=share(load) if load is not None else None, requests=requests)
    if not (found or checked):
        decisions = run.solve(limits)
        say("there is no operating point to verify:")
        empty = found_json([]) if find else verified_json([])
        answer(empty if options.as_json else decision_table(decisions))
        return solver.exit_code(decisions)
    consent(run)
    again = shlex.join(["frontier", "verify", str(run.path), *given_options("load", "requests")])
    return _find(run, found, again, options.as_json) if find else _check(run, checked, again, options.as_json)


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


def _check(run: "Run", wanted: "list[Check]", again: str, as_json: bool) -> int:
    """Send the rate of each operating point, and answer; the exit code."""
    from frontier.show.answer import verified_json, verified_text
    from frontier.sweep.verify import verify

    for check in wanted:
        say(
            f"{check.decision.shape.label}  {check.requests:,} requests arrive at {check.rate:.4g}/s, as independent "
            f"users would, at most {check.decision.concurrency} in flight; about "
            f"{format_elapsed(check.requests / check.rate)}"
        )
    checked = send(run, Tick(), lambda sender: verify(sender, wanted))
    answer(verified_json(checked) if as_json else verified_text(checked, again=again))
    return stopped() if len(checked) < len(wanted) else exit_code(check.judgement.verdict for check in checked)


def _find(run: "Run", wanted: "list[Search]", again: str, as_json: bool) -> int:
    """Find the highest rate at each operating point, and answer; the exit code."""
    from frontier.show.answer import found_json, found_text, load_trial_text
    from frontier.sweep.verify import find

    tick = Tick()
    begun: set[int] = set()

    def on_ask(search: "Search", ask: "LoadAsk", left: float) -> None:
        decision, policy = search.decision, search.policy
        tick.expect(f"{ask.load:g} requests/s", left)
        if id(search) not in begun:
            begun.add(id(search))
            say(
                f"{decision.shape.label}  the highest rate of independent users with at most {policy.in_flight} in "
                f"flight; closed loop {format_number(policy.top)} requests/s at {setting(policy.in_flight)}; "
                f"about {format_elapsed(left)}. Ctrl-C keeps what is finished."
            )

    def on_trial(search: "Search", trial: "LoadTrial") -> None:
        tick.clear()
        say(load_trial_text(trial, search.decision.limits))

    found = send(run, tick, lambda sender: find(sender, wanted, on_ask=on_ask, on_trial=on_trial))
    if found:
        answer(found_json(found) if as_json else found_text(found, again=again, width=layout()["width"]))
    if len(found) < len(wanted):
        return stopped(f"finished trials are kept; go on with\n  {again} --find")
    return exit_code(each.done.verdict for each in found)


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

    def __init__(self) -> None:
        self._what, self._left, self._since = "", 0.0, 0.0

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
