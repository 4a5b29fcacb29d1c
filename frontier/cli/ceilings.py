"""`frontier ceilings`: what this machine's memory, arithmetic and links do at their best."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from frontier.cli.common import answer, answer_json, in_colour, json_option, say, width
from frontier.errors import ExitCode, UsageError, install_command

if TYPE_CHECKING:
    from frontier.hardware.ceilings import Machine


class Seconds(click.FloatRange):
    """A number of seconds in a range; click takes nan for one in any."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As click does, NaN refused."""
        found = super().convert(value, param, ctx)
        return found if found == found else self.fail(f"{value!r} is not a number.", param, ctx)


@click.command("ceilings")
@click.option(
    "--device", type=click.Choice(["auto", "cuda", "cpu"]), default="auto", show_default=True,
    help="auto: torch's GPUs where there are any, else the processor.",
)  # fmt: skip
@click.option("--seconds", type=Seconds(0.01, 60), default=0.5, show_default=True, help="For each ceiling.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False),
    help="FILE.yaml: the block  hardware:  to append to a config.",
)  # fmt: skip
@json_option
def command(device: str, seconds: float, output: Path | None, as_json: bool) -> int:
    """Measure memory bandwidth, matmul rate per number format and attention decode here, and between several GPUs
    all-reduce from 32 KB to 1 GB and point to point, beside the data sheet.

    Run it where the engine runs, with the engine stopped. GPUs need torch (the extra [gpu]); the processor does not.

    \b
    Examples:
      frontier ceilings
      frontier ceilings -o ceilings.yaml && cat ceilings.yaml >> sweep.yaml
    """
    from frontier.hardware.ceilings import measure
    from frontier.report.json_out import ceilings_json
    from frontier.report.tables import ceilings_table, ceilings_yaml
    from frontier.store.files import write_output

    found = measure(_machine(device), seconds)
    if output is not None:
        write_output(output, ceilings_yaml(found).encode())
        say(f"wrote {output}")
    if as_json:
        answer_json(ceilings_json(found))
    else:
        answer(ceilings_table(found, width=width(), colour=in_colour()))
    return ExitCode.YES


def _machine(device: str) -> "Machine":
    """The GPUs where torch has any, else the processor."""
    from frontier.hardware.ceilings import NumpyMachine, TorchMachine

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
