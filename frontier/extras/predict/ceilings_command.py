"""`frontier ceilings`: measured memory bandwidth, matmul rate, attention decode and all-reduce of
this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from frontier.cli.common import FILE_PATH, answer, json_option, layout, subcommand, write_file
from frontier.core.errors import ExitCode, UsageError, install_command

if TYPE_CHECKING:
    from frontier.extras.predict.ceilings import NumpyMachine, TorchMachine


class Seconds(click.FloatRange):
    """A number of seconds in a range. Refuses nan, which click accepts in any range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, as click converts it."""
        seconds = super().convert(value, param, ctx)
        return seconds if seconds == seconds else self.fail(f"{value!r} is not a number.", param, ctx)


@subcommand("ceilings")
@click.option(
    "--device",
    type=click.Choice(["auto", "cuda", "cpu"]),
    default="auto",
    show_default=True,
    help="auto: torch's GPUs where there are any, else the processor.",
)
@click.option("--seconds", type=Seconds(0.01, 60), default=0.5, show_default=True, help="Time for each ceiling.")
@click.option("-o", "--output", type=FILE_PATH, help="FILE.yaml: the block  hardware:  to append to a config.")
@json_option
def command(device: str, seconds: float, output: Path | None, as_json: bool) -> int:
    """What can this machine's hardware do: memory bandwidth, matmul rate and attention decode,
    beside the data sheet.

    Between several GPUs all-reduce (32 KB to 1 GB) and point-to-point copies are measured too. Run
    it where the engine runs, with the engine stopped. GPUs need torch (the extra [gpu]); the
    processor does not.

    \b
    Examples:
      frontier ceilings
      frontier ceilings -o ceilings.yaml && cat ceilings.yaml >> sweep.yaml
    """
    from frontier.extras.predict.ceilings import measure
    from frontier.extras.predict.prediction_tables import ceilings_json, ceilings_table, ceilings_yaml

    ceilings = measure(_machine(device), seconds)
    if output is not None:
        write_file(output, ceilings_yaml(ceilings).encode())
    answer(ceilings_json(ceilings) if as_json else ceilings_table(ceilings, **layout()))
    return ExitCode.YES


def _machine(device: str) -> "NumpyMachine | TorchMachine":
    """The GPUs where torch has any, else the processor."""
    from frontier.extras.predict.ceilings import NumpyMachine, TorchMachine

    torch = _torch()
    gpu = torch is not None and torch.cuda.is_available()
    if device == "cuda" and not gpu:
        why = "torch is not installed" if torch is None else "torch sees no GPU"
        hint = "--device cpu" if torch is not None else f"{install_command('torch')}   or  --device cpu"
        raise UsageError(f"no GPU to measure: {why}", hint)
    if gpu and device != "cpu":
        return TorchMachine(torch)
    return NumpyMachine() if torch is None else TorchMachine(torch, "cpu")


def _torch() -> Any:
    """Torch, where it is installed."""
    try:
        import torch
    except ImportError:
        return None
    return torch
