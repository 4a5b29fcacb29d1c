"""`frontier verify`: the operating point under Poisson arrivals."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier.cli.common import (
    answer,
    answer_json,
    complete_metrics,
    find_run,
    json_option,
    measured,
    run_argument,
    say,
)
from frontier.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from frontier.client.loop import Progress
    from frontier.run import Run
    from frontier.sweep.verify import Check, Checked


@click.command("verify")
@run_argument
@click.option(
    "--sla",
    shell_complete=complete_metrics,
    help="Limits to find the operating point by and to hold; default: the config's.",
)
@click.option("--load", default="100%", show_default=True, help="Share of the rate that the operating point served.")
@click.option(
    "--requests", type=click.IntRange(1, 10_000_000), help="How many to send; default: as the claim rests on."
)
@json_option
def command(run: Path | None, sla: str | None, load: str, requests: int | None, as_json: bool) -> int:
    """Check the operating point of RUN in open loop: the same average rate, but from independent users.

    A closed loop never queues more callers than it has. Poisson arrivals do, and latency is counted from each arrival.
    The exit code says the verdict, as solve's does.

    RUN defaults to the run under runs/ whose last trial was finished last.

    \b
    Examples:
      frontier verify
      frontier verify runs/llama8b --load 80%
    """
    from frontier.cli.confirm_foreign_config import consent_to_reach
    from frontier.config import parse_sla
    from frontier.decide import operating_point as solver
    from frontier.report.answer import decision_table, verified_json, verified_text
    from frontier.sweep.verify import checks, exit_code

    found = measured(find_run(run))
    limits = found.limits() if sla is None else parse_sla(sla)
    wanted = checks(found, limits, load=share(load), requests=requests)
    if not wanted:
        decisions = found.solve(limits)
        say("there is no operating point to verify:")
        answer_json(verified_json([])) if as_json else answer(decision_table(decisions))
        return solver.exit_code(decisions)
    begun_with = found.manifest.get("config_file")
    consent_to_reach(
        found.path / "config.yaml", found.config, Path(begun_with) if isinstance(begun_with, str) else None
    )
    done = _measure(found, wanted)
    answer_json(verified_json(done)) if as_json else answer(verified_text(done))
    if len(done) < len(wanted):
        say("stopped; what was finished is kept")
        return ExitCode.INTERRUPTED
    return exit_code(done)


def share(text: str) -> float:
    """A share that may be above 1: '80%', '1.2'. UsageError otherwise."""
    from frontier.sweep.verify import LEAST_LOAD, MOST_LOAD

    written = text.strip()
    try:
        value = float(written.removesuffix("%")) / (100.0 if written.endswith("%") else 1.0)
    except ValueError:
        value = 0.0
    if not LEAST_LOAD <= value <= MOST_LOAD:
        between = f"{LEAST_LOAD:.0%} and {MOST_LOAD:.0%}"
        raise UsageError(f"--load {text!r} is not a share of the rate between {between}", "write it as  --load 80%")
    return value


def _measure(found: "Run", wanted: "list[Check]") -> "list[Checked]":
    from frontier.client.event_loop import run as run_loop
    from frontier.store.run_dir import RunDirectory
    from frontier.sweep.backend import HttpBackend
    from frontier.sweep.verify import verify
    from frontier.units import format_elapsed

    for check in wanted:
        d = check.decision
        say(
            f"{d.shape.label}  {check.requests:,} requests arrive at {check.rate:.4g}/s, as independent users would; "
            f"about {format_elapsed(check.seconds)}"
        )

    async def go() -> "list[Checked]":
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        backend = HttpBackend(found.config, os.environ, time.time_ns())
        return await verify(found, wanted, backend, store, on_tick=tick, stop=stop)

    with RunDirectory.open_to_verify(found.path) as store:
        done = run_loop(go())
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
    return done


def tick(progress: "Progress") -> None:
    """How it stands, on one line that is written over; nothing where that cannot be."""
    if sys.stderr.isatty():
        sent, flying = progress.window_sent, progress.in_flight
        click.echo(f"\r\x1b[K{progress.stage}: {sent:,} sent, {flying:,} in flight", nl=False, err=True)
