"""What several commands share: finding a run, saying things, and JSON on standard output."""

import os
import sys
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from frontier.results import Run

RUNS = Path("runs")


def harmless(text: str) -> str:
    """Text that may hold a stranger's words, for a terminal: without control and format characters (escape sequences,
    overrides of the writing direction) and without secrets, by their form or by the environment's values.
    """
    from frontier.redaction import Secrets, environment_secrets

    text = Secrets.of((), environment_secrets(os.environ)).redact(text)
    return "".join(ch for ch in text if ch in "\n\t" or unicodedata.category(ch)[0] != "C")


def say(text: str = "") -> None:
    """The conversation: standard error."""
    click.echo(harmless(text), err=True)


def answer(text: str) -> None:
    """The answer: standard output."""
    click.echo(text)


def unread() -> bool:
    """Whoever read the answer has left."""
    return bool(getattr(sys.stdout, "unread", False))


def read_config(file: Path) -> str:
    """The text of a config. MisaskedError when it is not there or is no text."""
    from frontier.errors import MisaskedError

    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise MisaskedError(f"there is no config {file}", f"make one with  frontier init URL > {file}") from error
    except UnicodeDecodeError as error:
        raise MisaskedError(f"cannot read {file}: byte {error.start} is not UTF-8", "save it as UTF-8") from error
    except OSError as error:
        raise MisaskedError(f"cannot read {file}: {error.strerror or error}") from error


def answer_json(tree: Any) -> None:
    """The answer for a machine: one JSON object on standard output."""
    import orjson

    click.echo(orjson.dumps(tree, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY).decode())


def find_run(run: Path | None) -> Path:
    """The run named, or the newest under runs/, which is then named on standard error."""
    from frontier.store import newest_run

    if run is not None:
        return run
    newest = newest_run(RUNS)
    say(f"run  {newest}")
    return newest


def measured(path: Path, settings: Sequence[str] = ()) -> "Run":
    """The run at `path`, looked at with these settings (see `load`).

    MeasurementError, with what ended its sweep, when no trial of it was finished.
    """
    from frontier.errors import MeasurementError
    from frontier.results import load
    from frontier.store import RunDirectory

    found = load(path, settings)
    if found.histories or found.imported:
        return found
    lines = RunDirectory.read(path).journal_lines()
    last = lines[-1] if lines else {}
    why = f": {last['event'].replace('_', ' ')}, {last['reason']}" if "reason" in last else ""
    raise MeasurementError(f"{path} holds no finished trial{why}", f"see how it stands with  frontier status {path}")


def picture_cache() -> Path | None:
    """Where drawn pictures are kept: $FRONTIER_CACHE, else with the user's other caches. Empty, or no home: nowhere."""
    named = os.environ.get("FRONTIER_CACHE")
    if named is not None:
        return Path(named) if named else None
    with suppress(RuntimeError):
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "frontier" / "pictures"
    return None


def complete_run(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Shell completion: run directories under runs/."""
    names = [str(p.parent) for p in RUNS.glob("*/manifest.json")]
    return sorted(n for n in names if n.startswith(incomplete))


def complete_metrics(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Shell completion: metric names, also after a comma in a list of them."""
    from frontier.metrics import names

    head, comma, last = incomplete.rpartition(",")
    gap = last[: len(last) - len(last.lstrip())]
    return [f"{head}{comma}{gap}{name}" for name in names() if name.startswith(last.lstrip())]


run_argument = click.argument(
    "run", required=False, type=click.Path(path_type=Path, file_okay=False), shell_complete=complete_run
)
runs_argument = click.argument(
    "runs", nargs=-1, metavar="[RUN]...", type=click.Path(path_type=Path, file_okay=False), shell_complete=complete_run
)
json_option = click.option("--json", "as_json", is_flag=True, help="Answer as one JSON object.")


def width() -> int:
    """Columns to lay an answer out for: the terminal's, or 100 where there is none."""
    from frontier.units import whole_number

    columns: int | None = None
    if sys.stdout.isatty():
        with suppress(OSError):
            columns = os.get_terminal_size(sys.stdout.fileno()).columns
    else:
        columns = whole_number(os.environ.get("COLUMNS", ""), 1, 100_000)
    return max(60, min(columns, 1_000)) if columns else 100


def in_colour() -> bool:
    """Colour only on a terminal that wants it (NO_COLOR, TERM=dumb)."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


set_option = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE",
    help="Look at the run with this in its config: gpus=8, price=$12/h, hardware.power=700W/gpu; repeatable.",
)  # fmt: skip
deployment_option = click.option(
    "--deployment", "deployments", multiple=True, metavar="NAME", help="Only this one: a name, a part or a *pattern*."
)
shape_option = click.option("--shape", "shapes", multiple=True, metavar="SHAPE", help="Only this one, as 1024/256.")
objectives_option = click.option(
    "--objectives",
    metavar="A,B",
    shell_complete=complete_metrics,
    help="The frontier's axes, as output_throughput,p99_ttft; default: the config's.",
)


def read_objectives(text: str | None) -> tuple[str, str] | None:
    """Two metric names. MisaskedError for anything else."""
    from frontier.errors import MisaskedError
    from frontier.metrics import metric

    if text is None:
        return None
    names = [part.strip() for part in text.split(",")]
    if len(names) != 2:
        raise MisaskedError(
            f"--objectives {text!r} must name two metrics", "as  --objectives output_throughput,p99_ttft"
        )
    try:
        return metric(names[0]).name, metric(names[1]).name
    except ValueError as error:
        raise MisaskedError(str(error)) from error
