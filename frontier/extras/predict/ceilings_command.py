"""`frontier ceilings`: measured memory bandwidth, matmul rates, attention and links of this
machine, or several hosts compared.
"""

import functools
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from frontier.cli.common import FILE_PATH, RunOptions, answer, layout, note, run_options, subcommand, write_file
from frontier.core.model.errors import ExitCode, UsageError, install_command
from frontier.core.model.units import whole_number
from frontier.show.verbosity import Detail

if TYPE_CHECKING:
    from frontier.extras.predict.ceilings import Ceiling, NumpyMachine, TorchMachine


class Seconds(click.FloatRange):
    """A number of seconds in a range. Refuses nan, which click accepts in any range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, as click converts it."""
        seconds = super().convert(value, param, ctx)
        return seconds if seconds == seconds else self.fail(f"{value!r} is not a number.", param, ctx)


@subcommand("ceilings")
@click.argument("files", metavar="[HOST.json ...]", nargs=-1, type=FILE_PATH)
@click.option(
    "--device",
    type=click.Choice(["auto", "cuda", "cpu"]),
    default="auto",
    show_default=True,
    help="auto: torch's GPUs where there are any, else the processor.",
)
@click.option("--seconds", type=Seconds(0.01, 60), default=0.5, show_default=True, help="Time for each ceiling.")
@click.option("--links", is_flag=True, help="Between two processes of this machine too; between GPUs always.")
@click.option("-o", "--output", type=FILE_PATH, help="FILE.yaml: the block  hardware:  to append to a config.")
@run_options("detail", "as_json", more="Also the rate of each round.")
def command(
    options: RunOptions, files: tuple[Path, ...], device: str, seconds: float, links: bool, output: Path | None
) -> int:
    """What can this machine's hardware do: memory bandwidth, matmul rates, attention, links, beside
    the data sheet.

    Run it where the engine runs, with the engine stopped. GPUs and links need torch (the extra
    [gpu]); the processor does not. Between several GPUs all-reduce, all-to-all and point to point
    are measured from 32 KB up; on several hosts start it by torchrun. Files of several hosts, made
    with --json, are compared: those that are slower beyond their noise are named, with exit code 3.

    \b
    Examples:
      frontier ceilings
      frontier ceilings -o ceilings.yaml && cat ceilings.yaml >> sweep.yaml
      torchrun --nproc-per-node 8 -m frontier ceilings --json > a.json
      frontier ceilings a.json b.json c.json
    """
    from frontier.extras.predict.ceilings import ROUNDS, lines_of, measure
    from frontier.extras.predict.ceilings_tables import ceilings_json, ceilings_table, ceilings_yaml

    if files:
        return _compare(files, options.as_json)
    machine = _machine(device)
    between, hosts, first = _links(machine, device, seconds, links)
    if not first:
        return ExitCode.YES
    number = len(list(lines_of(machine)))
    label, quiet = f"{number} ceilings, about {number * seconds:.0f} s", options.detail is Detail.ANSWER
    steps = click.progressbar(
        length=number * ROUNDS, label=label, item_show_func=lambda what: what, file=sys.stderr, hidden=quiet
    )
    with steps as bar:
        ceilings = measure(machine, seconds, links=between, hosts=hosts, done=lambda what: bar.update(1, what))
    if output is not None:
        write_file(output, ceilings_yaml(ceilings).encode())
    table = functools.partial(ceilings_table, detail=options.detail, **layout())
    answer(ceilings_json(ceilings) if options.as_json else table(ceilings))
    return ExitCode.YES


def _compare(files: tuple[Path, ...], as_json: bool) -> int:
    """Name the slower hosts of a fleet."""
    from frontier.extras.predict.ceilings_tables import fleet_json, fleet_table
    from frontier.extras.predict.fleet import read_hosts, slower_hosts

    if len(files) < 2:
        raise UsageError("one host is not compared with anything", "name the files of two hosts or more")
    hosts = read_hosts(files)
    slower = slower_hosts(hosts)
    answer(fleet_json(hosts, slower) if as_json else fleet_table(hosts, slower, **layout()))
    return ExitCode.NO if slower else ExitCode.YES


def _links(
    machine: "NumpyMachine | TorchMachine", device: str, seconds: float, asked: bool
) -> "tuple[list[Ceiling], tuple[str, ...], bool]":
    """The links that are measured, the host of each rank, and whether this process is the first."""
    from frontier.extras.predict.ceilings import TorchMachine
    from frontier.extras.predict.link_ceilings import Place, joined, place_of, started_here

    os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")  # else NCCL ends the process that waits too long
    torch, gpus = _torch(), machine.devices
    on_gpu = isinstance(machine, TorchMachine) and machine.on_gpu
    place = place_of(os.environ, machine.device, machine.memory, platform.node())
    if place is None and not asked and gpus < 2:
        return [], (), True
    if torch is None:
        raise UsageError("links are measured with torch, which is not installed", install_command("torch"))
    note("links between GPUs or processes, from 32 KB up")
    if place is not None:
        owns = place.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        links = joined(torch, place, owns)
        try:
            return links.measure(seconds), links.hosts(), place.rank == 0
        finally:
            links.close()
    if on_gpu and gpus < 2:
        raise UsageError("one GPU has no link to another", "on several hosts start it by torchrun, or  --device cpu")
    words = [sys.executable, "-m", "frontier", "ceilings", "--device", device, "--seconds", str(seconds)]
    here = Place(0, max(2, gpus), "127.0.0.1", 0, machine.device, machine.memory, platform.node())
    with started_here(torch, words, here, os.environ) as links:
        return links.measure(seconds), links.hosts(), True


def _machine(device: str) -> "NumpyMachine | TorchMachine":
    """The machine to measure: the GPUs where torch has any, otherwise the processor."""
    from frontier.extras.predict.ceilings import NumpyMachine, TorchMachine

    torch = _torch()
    gpu = torch is not None and torch.cuda.is_available()
    if device == "cuda" and not gpu:
        why = "torch is not installed" if torch is None else "torch sees no GPU"
        hint = "--device cpu" if torch is not None else f"{install_command('torch')}   or  --device cpu"
        raise UsageError(f"no GPU to measure: {why}", hint)
    if gpu and device != "cpu":
        return TorchMachine(
            torch, local=whole_number(os.environ.get("LOCAL_RANK", ""), 0, torch.cuda.device_count() - 1) or 0
        )
    return NumpyMachine() if torch is None else TorchMachine(torch, "cpu")


def _torch() -> Any:
    """Torch, where it is installed."""
    try:
        import torch
    except ImportError:
        return None
    return torch
