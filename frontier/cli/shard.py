"""`frontier shard`: one of N shards of a sweep, for a Kubernetes Job or a Slurm array; `frontier
merge` joins them."""

import datetime as dt
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier._version import __version__
from frontier.cli import common
from frontier.errors import ExitCode, UsageError
from frontier.store.files import read_config
from frontier.units import format_elapsed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from frontier.sweep.file_shards import ShardOf, Slot


@common.subcommand("shard")
@click.argument("config_file", metavar="CONFIG", type=common.FILE_PATH)
@click.option("--index", metavar="I", type=click.IntRange(0), required=True, help="Which shard this is, from 0.")
@click.option("--of", "count", metavar="N", type=click.IntRange(1), required=True, help="How many shards there are.")
@click.option("--start-at", metavar="TIME", required=True, help="When all start: unix seconds, or 2026-11-22T07:00Z.")
@click.option("-o", "--output", type=common.RUN_PATH, required=True, help="The directory of all shards.")
@click.option("--dry-run", is_flag=True, help="Print the timetable; send nothing.")
def command(config_file: Path, index: int, count: int, start_at: str, output: Path, dry_run: bool) -> int:
    """Send one share of a grid's load. All shards keep the same timetable and need no connection to
    each other.

    The config states warmup and max_time, which fix each trial's window. Every machine's clock must
    be right.

    \b
    Examples:
      frontier shard a.yaml --index 0 --of 4 --start-at $START -o night --dry-run
      frontier shard a.yaml --index $RANK --of 4 --start-at $START -o night
      frontier merge night -o runs/night
    """
    from frontier.client.http.http_client import run as run_loop
    from frontier.client.load.pipeline import Share
    from frontier.config import load_config
    from frontier.formats.config_file import open_run
    from frontier.formats.session_files import read_sessions
    from frontier.plan import make_plan
    from frontier.sweep.backend import HttpBackend
    from frontier.sweep.file_shards import ShardOf, run_shard, shard_facts, timetable

    if index >= count:
        raise UsageError(f"--index {index} of {count} shards", f"they are numbered 0 to {count - 1}")
    shard = ShardOf(Share(index, count), _moment(start_at))
    text = read_config(config_file)
    config = load_config(text, str(config_file), read_sessions=read_sessions)
    slots = timetable(config, make_plan(config))
    if dry_run:
        common.answer("\n".join(timetable_lines(slots, shard)))
        return ExitCode.YES
    common.consent_to_sweep(config_file, config)
    path = output / shard.name
    if path.exists() and any(path.iterdir()):
        raise UsageError(f"{path} is there already", "remove it, or choose another directory with  -o")
    facts = {"frontier": __version__, "config_file": str(config_file), "shard": shard_facts(shard)}
    with open_run(path, config, text, facts) as run:
        # The salt keeps the prompts apart from those of other sweeps, and is the same for all
        # shards of this one.
        own = config.model_copy(update={"given_workers": None})  # a shard is one process
        backend = HttpBackend(own, os.environ, int(shard.start_at * 1000))
        run_loop(run_shard(config, backend, slots, shard, run, common.say))
    return ExitCode.YES


def _moment(text: str) -> float:
    """The unix time that a text says."""
    hint = "write unix seconds, or a time with its zone, as 2026-11-22T07:00:00Z"
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--start-at {text}: that is no time", hint) from None
    if moment.tzinfo is None:
        raise UsageError(f"--start-at {text}: its time zone is not said", hint)
    return moment.timestamp()


def timetable_lines(slots: "Sequence[Slot]", shard: "ShardOf") -> list[str]:
    """The timetable, a line per trial."""

    def clock(seconds: float) -> str:
        return dt.datetime.fromtimestamp(shard.start_at + seconds, dt.UTC).strftime("%H:%M:%S")

    start = dt.datetime.fromtimestamp(shard.start_at, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    lines = [f"{len(slots)} trials from {start}, {format_elapsed(slots[-1].begin + slots[-1].ends)} in all"]
    for slot in slots:
        streams = len(shard.share.streams(slot.trial.concurrency))
        window = f"window {clock(slot.begin + slot.opens)} to {clock(slot.begin + slot.closes)}"
        begin, end = clock(slot.begin), clock(slot.begin + slot.ends)
        lines.append(f"  {begin}  {slot.trial.key}  {window}, held to {end}; {streams} streams here")
    return lines
