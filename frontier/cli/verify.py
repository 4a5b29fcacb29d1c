"""`frontier verify`: the operating point under open-loop (Poisson) load."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier.cli.common import RunOptions, answer, answer_json, consent_to_reach, run_options, say, subcommand
from frontier.errors import ExitCode, UsageError, exit_code

if TYPE_CHECKING:
    from frontier.client.loop import TrialProgress
    from frontier.run import Run
    from frontier.sweep.verify import Check, Checked


@subcommand("verify")
@click.option(
    "--load",
    metavar="SHARE",
    default="100%",
    show_default=True,
    help="Share of the rate that the operating point served.",
)
@click.option(
    "--requests", type=click.IntRange(1, 10_000_000), metavar="N",
    help="How many to send; default: as many as the claim rests on.",
)  # fmt: skip
@run_options("run", "sla", "as_json")
def command(options: RunOptions, load: str, requests: int | None) -> int:
    """Does the operating point of RUN hold under open-loop (Poisson) load: the same rate, from independent users?

    A closed loop never queues more callers than it has. Poisson arrivals do, and latency is counted from each arrival.
    The exit code is the verdict, as solve's. RUN defaults to the newest run under runs/ that holds a finished trial.

    \b
    Examples:
      frontier verify
      frontier verify runs/llama8b --load 80%
    """
    from frontier.decide import operating_point as solver
    from frontier.report.answer import decision_table, verified_json, verified_text
    from frontier.sweep.verify import checks

    run = options.read()
    limits = options.limits(run)
    wanted = checks(run, limits, load=share(load), requests=requests)
    if not wanted:
        decisions = run.solve(limits)
        say("there is no operating point to verify:")
        answer_json(verified_json([])) if options.as_json else answer(decision_table(decisions))
        return solver.exit_code(decisions)
    config_file = run.manifest.get("config_file")
    begun_with = Path(config_file) if isinstance(config_file, str) else None
    consent_to_reach(run.path / "config.yaml", run.config, begun_with)
    checked = _measure(run, wanted)
    answer_json(verified_json(checked)) if options.as_json else answer(verified_text(checked))
    if len(checked) < len(wanted):
        say("stopped; what was finished is kept")
        return ExitCode.INTERRUPTED
    return exit_code(check.judgement.verdict for check in checked)


def share(text: str) -> float:
    """A share that may be above 1: '80%', '1.2'. UsageError otherwise."""
    from frontier.sweep.verify import LEAST_LOAD, MOST_LOAD

    number = text.strip()
    try:
        value = float(number.removesuffix("%")) / (100.0 if number.endswith("%") else 1.0)
    except ValueError:
        value = 0.0
    if not LEAST_LOAD <= value <= MOST_LOAD:
        between = f"{LEAST_LOAD:.0%} and {MOST_LOAD:.0%}"
        raise UsageError(f"--load {text!r} is not a share of the rate between {between}", "write it as  --load 80%")
    return value


def _measure(run: "Run", wanted: "list[Check]") -> "list[Checked]":
    """Send the open-loop load of each check; the checks that were finished."""
    from frontier.client.event_loop import run as run_loop
    from frontier.store.run_dir import RunDirectory
    from frontier.sweep.backend import HttpBackend
    from frontier.sweep.verify import verify
    from frontier.units import format_elapsed

    for check in wanted:
        say(
            f"{check.decision.shape.label}  {check.requests:,} requests arrive at {check.rate:.4g}/s, as independent "
            f"users would; about {format_elapsed(check.seconds)}"
        )

    async def go() -> "list[Checked]":
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        backend = HttpBackend(run.config, os.environ, time.time_ns())
        return await verify(run, wanted, backend, store, on_tick=tick, stop=stop)

    with RunDirectory.open_to_verify(run.path) as store:
        checked = run_loop(go())
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
    return checked


def tick(progress: "TrialProgress") -> None:
    """Show the progress on one line of a terminal that is written over."""
    if sys.stderr.isatty():
        sent, in_flight = progress.window_sent, progress.in_flight
        click.echo(f"\r\x1b[K{progress.stage}: {sent:,} sent, {in_flight:,} in flight", nl=False, err=True)
