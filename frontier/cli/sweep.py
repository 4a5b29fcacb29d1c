"""`frontier sweep`: run a config, or resume it, and end in an operating point."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier.cli.common import RUNS, answer, answer_json, in_colour, json_option, say, width
from frontier.errors import ExitCode, MisaskedError

if TYPE_CHECKING:
    from frontier.config import Config
    from frontier.plan import Plan
    from frontier.store import RunDirectory
    from frontier.sweep import SweepEnd


@click.command("sweep")
@click.argument("config_file", metavar="CONFIG", type=click.Path(path_type=Path, dir_okay=False))
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="The run directory.")
@click.option("--dry-run", is_flag=True, help="Print the plan, its time and its disk; send nothing.")
@json_option
def command(config_file: Path, output: Path | None, dry_run: bool, as_json: bool) -> int:
    """Run the sweep of CONFIG, or resume it: the same command again.

    Trials that are finished stay finished. Ctrl-C keeps them and prints how to go on.

    \b
    Examples:
      frontier sweep configs/quickstart.yaml
      frontier sweep sweep.yaml --dry-run
      frontier sweep sweep.yaml -o runs/llama8b
    """
    from frontier.config import load_config
    from frontier.plan import make_plan

    text = _read(config_file)
    config = load_config(text, str(config_file))
    for warning in config.warnings:
        say(f"warning: {config_file}:{warning.line}: {warning.what}\n  {warning.way_out}")
    plan = make_plan(config)
    if dry_run:
        return _dry_run(config, plan, as_json)
    return _sweep(config, plan, config_file, text, output, as_json)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError as error:
        raise MisaskedError(f"there is no config {file}", f"make one with  frontier init URL > {file}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise MisaskedError(f"cannot read {file}: {error}") from error


def _dry_run(config: "Config", plan: "Plan", as_json: bool) -> int:
    if as_json:
        answer_json({"schema": "frontier.plan/1", **plan.summary()})
    else:
        from frontier.present.tables import plan_table

        answer(plan_table(config, plan, width=width(), colour=in_colour()))
    return ExitCode.YES


def _sweep(config: "Config", plan: "Plan", config_file: Path, text: str, output: Path | None, as_json: bool) -> int:
    from frontier.cli.outcome import conclude
    from frontier.config import describe_difference
    from frontier.store import AnotherSweepError, RunDirectory, free_bytes

    identity = config.identity()
    path = (
        output
        or existing_run(identity)
        or RUNS / f"{time.strftime('%Y-%m-%d')}-{config.name or config_file.stem}-{identity[:6]}"
    )
    if plan.expected_bytes > free_bytes(path):
        raise MisaskedError(
            f"the records may take {plan.expected_bytes / 1e9:.1f} GB and {path} has less free", "choose  -o DIR"
        )
    try:
        run = RunDirectory.open_for_sweep(
            path, identity=identity, canonical=config.canonical(), config_text=text, facts=_provenance(config_file)
        )
    except AnotherSweepError as error:
        difference = describe_difference(error.theirs, error.ours)
        raise MisaskedError(
            f"{path} holds another sweep: {difference}; its {error.finished} finished trials are untouched",
            f"frontier sweep {config_file} -o {path}-2",
        ) from error
    with run:
        say(f"run  {path}")
        end = _drive(config, plan, run)
    again = f"frontier sweep {config_file}" + (f" -o {output}" if output else "")
    return conclude(path, end, again, as_json)


def existing_run(identity: str) -> Path | None:
    """The run of this very sweep under runs/, newest first: what `the same command again` resumes."""
    from frontier.errors import StoreError
    from frontier.store import read_manifest

    for manifest in sorted(RUNS.glob("*/manifest.json"), key=lambda p: p.stat().st_mtime, reverse=True):
        try:
            if read_manifest(manifest.parent).get("identity") == identity:
                return manifest.parent
        except StoreError:
            continue
    return None


def _provenance(config_file: Path) -> dict[str, str]:
    import platform

    from frontier._version import __version__

    return {
        "frontier": __version__,
        "config_file": str(config_file),
        "python": platform.python_version(),
        "client": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    }


def _drive(config: "Config", plan: "Plan", run: "RunDirectory") -> "SweepEnd":
    """Run the conductor under signal handling: the first Ctrl-C stops cleanly, the second leaves at once."""
    from frontier.backend import HttpBackend
    from frontier.present.progress import make_progress
    from frontier.sweep import Conductor

    salt = time.time_ns()
    run.journal("session", salt=salt)

    async def go() -> "SweepEnd":
        stop = asyncio.Event()
        _on_signals(stop)
        progress = make_progress(sys.stderr)
        try:
            return await Conductor(config, plan, run, HttpBackend(config, os.environ, salt), progress, stop).conduct()
        finally:
            progress.close()

    try:
        import uvloop
    except ImportError:
        return asyncio.run(go())
    return uvloop.run(go())


def _on_signals(stop: asyncio.Event) -> None:
    def first_then_leave() -> None:
        if stop.is_set():
            os._exit(ExitCode.INTERRUPTED)
        say("\nstopping: the trial in flight is dropped, finished ones are kept; again to leave at once")
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, first_then_leave)
