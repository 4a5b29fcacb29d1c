"""`frontier sweep`: run a config, or resume it, and end in an operating point."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier.cli.common import json_option, say
from frontier.errors import ExitCode, FrontierError, MemoryShortError, UsageError, WriteError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frontier.cli.sweep_request import Asked
    from frontier.config import Config
    from frontier.model import Decision
    from frontier.plan import Plan
    from frontier.store.run_dir import RunDirectory
    from frontier.sweep.conductor import SweepEnd


@click.command("sweep")
@click.argument("config_file", metavar="CONFIG", type=click.Path(path_type=Path, dir_okay=False))
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="The run directory.")
@click.option("--dry-run", is_flag=True, help="Print the plan, its time, disk and budget; send nothing.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Another value for a key, as sla.p99_ttft.")
@click.option("--only", metavar="NAME", multiple=True, help="Run only this shape (or deployment) now; may be repeated.")
@click.option("--until", metavar="TIME", help="Be done by then, as 07:00; the least valuable work is dropped.")
@click.option("--add-concurrency", "add", metavar="N,N", help="Extend the run of CONFIG; what is finished counts.")
@click.option(
    "--prometheus", metavar="PORT", type=click.IntRange(0, 65535), help="Serve progress on this loopback port."
)
@json_option
def command(
    config_file: Path, output: Path | None, dry_run: bool, settings: tuple[str, ...], only: tuple[str, ...],
    until: str | None, add: str | None, prometheus: int | None, as_json: bool,
) -> int:  # fmt: skip
    """Run the sweep of CONFIG, or resume it: the same command again.

    Trials that are finished stay finished. Ctrl-C keeps them and prints how to go on.

    \b
    Examples:
      frontier sweep configs/quickstart.yaml
      frontier sweep sweep.yaml --dry-run
      frontier sweep sweep.yaml -o runs/llama8b --until 07:00
      frontier sweep sweep.yaml --set requests=600 --set sla.p99_ttft=400ms
      frontier sweep sweep.yaml --add-concurrency 48,96
    """
    from frontier.cli.confirm_foreign_config import consent_to_sweep
    from frontier.cli.sweep_request import read_asked
    from frontier.plan import make_plan

    asked = read_asked(config_file, output, settings, until, add, only, prometheus)
    for warning in asked.config.warnings:
        say(f"warning: {warning.where or f'{config_file}:{warning.line}'}: {warning.what}\n  {warning.hint}")
    plan = make_plan(asked.config, only)
    _require_time(asked, plan)
    if dry_run:
        from frontier.cli.dry_run import dry_run as tell

        return tell(asked.config, plan, asked.run, as_json)
    consent_to_sweep(config_file, asked.config)
    return _sweep(asked, plan, config_file, output, prometheus, as_json)


def _require_time(asked: "Asked", plan: "Plan") -> None:
    """UsageError when the time by which all must be done is past, and something is left to do."""
    from frontier.cli.dry_run import remaining
    from frontier.sweep.ledger import deadline

    until = asked.config.budget.until
    if (
        until is not None
        and deadline(until, time.time()) <= time.time()
        and remaining(asked.config, plan, asked.run)[1]
    ):
        name = "--until" if "--until" in asked.options else "budget.until"
        raise UsageError(f"{name} {until}: that is past, and no trial would be run", "name a later time, as 07:00")


def _sweep(
    asked: "Asked", plan: "Plan", config_file: Path, output: Path | None, prometheus: int | None, as_json: bool
) -> int:
    from frontier.cli.notify_end import farewell
    from frontier.cli.reporting import conclude
    from frontier.config import describe_difference
    from frontier.store.files import free_bytes
    from frontier.store.memory import require_free
    from frontier.store.run_dir import AnotherSweepError, RunDirectory, extends
    from frontier.units import format_bytes

    path = asked.directory(output, config_file.stem)
    if plan.expected_bytes > (free := free_bytes(path)):
        needed = format_bytes(plan.expected_bytes)
        raise UsageError(
            f"the records may take {needed}, and where {path} lies {format_bytes(free)} are free",
            "make room, or choose another place with  -o DIR",
        )
    require_free(plan.expected_memory)
    try:
        run = RunDirectory.open_for_sweep(
            path, identity=asked.config.identity(), canonical=asked.config.canonical(), config_text=asked.text,
            facts=_provenance(config_file), extend=asked.extend,
        )  # fmt: skip
    except AnotherSweepError as error:
        difference, hint = describe_difference(error.theirs, error.ours), asked.command(Path(f"{path}-2"))
        if extends(error.theirs, error.ours):
            more = [str(c) for c in error.ours["concurrency"] if c not in error.theirs["concurrency"]]
            hint = f"{asked.again} --add-concurrency {','.join(more)}   extends it"
        finished = "1 finished trial is" if error.finished == 1 else f"{error.finished} finished trials are"
        raise UsageError(f"{path} holds another sweep: {difference}; its {finished} untouched", hint) from error
    end, reason, code = "failed", "", int(ExitCode.INTERNAL_ERROR)
    decisions: Sequence[Decision] = ()
    try:
        with run:
            say(f"run  {path}")
            end = _drive(asked.config, plan, run, prometheus)
        code, decisions = conclude(path, end, asked.again, as_json)
        return code
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
        raise
    except FrontierError as error:
        reason, code = error.what, error.exit_code
        if isinstance(error, WriteError | MemoryShortError):
            raise type(error)(error.what, f"{error.hint}\n  {asked.again}") from error
        raise
    finally:
        farewell(asked.config, path, end, code, decisions, reason)


def _provenance(config_file: Path) -> dict[str, str]:
    import platform

    from frontier._version import __version__

    return {
        "frontier": __version__,
        "config_file": str(config_file),
        "python": platform.python_version(),
        "client": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    }


def _drive(config: "Config", plan: "Plan", run: "RunDirectory", prometheus: int | None) -> "SweepEnd":
    """Run the conductor under signal handling: the first Ctrl-C stops cleanly, the second leaves at once."""
    from frontier.client.event_loop import run as run_loop
    from frontier.plan import Progress
    from frontier.report.progress import make_progress
    from frontier.sweep.backend import HttpBackend
    from frontier.sweep.conductor import Conductor

    salt = time.time_ns()
    run.journal("session", salt=salt)

    async def go() -> "SweepEnd":
        stop = asyncio.Event()
        _on_signals(stop)
        progress: Progress = make_progress(sys.stderr)
        exporter = None
        if prometheus is not None:
            from frontier.sweep.telemetry import Exporter, Telemetry

            progress = telemetry = Telemetry(progress)
            exporter = Exporter(telemetry.text)
        try:
            if exporter is not None and prometheus is not None:
                progress.note(f"metrics  {await exporter.start(prometheus)}")
            return await Conductor(config, plan, run, HttpBackend(config, os.environ, salt), progress, stop).conduct()
        finally:
            progress.close()
            if exporter is not None:
                await exporter.close()

    return run_loop(go())


def _let_go_of(terminals: "Sequence[int]") -> None:
    """What is still said to one that is gone goes nowhere, rather than fail."""
    for descriptor in terminals:
        try:
            os.write(descriptor, b"\n")
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _on_signals(stop: asyncio.Event) -> None:
    """The first stops the sweep; a second one of the user's leaves at once. A closed terminal may say so twice.

    Under nohup, which has a closed terminal ignored, it stays ignored.
    """

    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def told(number: int) -> None:
        if stop.is_set() and number != signal.SIGHUP:
            os._exit(ExitCode.INTERRUPTED)
        if not stop.is_set():
            stop.set()
            if number == signal.SIGHUP:
                _let_go_of(terminals)
            say("stopping: the trial in flight is dropped, finished ones are kept; again to leave at once")

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup; what shells put into the background
            loop.add_signal_handler(number, told, number)
