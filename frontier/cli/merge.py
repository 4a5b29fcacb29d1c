"""`frontier merge`: the shards of a sweep as one run."""

from pathlib import Path

import click

from frontier._version import __version__
from frontier.cli import common
from frontier.errors import ExitCode
from frontier.units import count


@common.subcommand("merge")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-o", "--output", type=common.RUN_PATH, required=True, help="The run directory.")
def command(folder: Path, output: Path) -> int:
    """Put the shards of one sweep together: every record of every shard, in one run.

    Refused unless all shards of one sweep are there, finished, with clocks that are right. A trial
    that a shard began late is left out.

    \b
    Examples:
      frontier merge /shared/night -o runs/night
    """
    from frontier.sweep.file_shards import merge_shards

    merged = merge_shards(folder, output, {"frontier": __version__, "merged_from": str(folder)}, common.say)
    common.say(f"run  {output}: {count(merged, 'trial')} merged; see them with  frontier show {output}")
    return ExitCode.YES if merged else ExitCode.FAILED
