"""What several commands share: finding a run, saying things, and JSON on standard output."""

import os
import sys
import textwrap
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from frontier.errors import MeasurementError
    from frontier.run import Run

RUNS = Path("runs")


def harmless(text: str) -> str:
    """Text that may hold a stranger's words, for a terminal: without control and format characters (escape sequences,
    overrides of the writing direction) and without secrets, by their form or by the environment's values.
    """
    from frontier.text import Secrets, environment_secrets

    text = Secrets.of((), environment_secrets(os.environ)).redact(text)
    return "".join(ch for ch in text if ch in "\n\t" or unicodedata.category(ch)[0] != "C")


def say(text: str = "") -> None:
    """The conversation: standard error; on a terminal its sentences are broken between words."""
    text = harmless(text)
    with suppress(OSError, ValueError):
        if sys.stderr.isatty():
            text = wrapped(text, os.get_terminal_size(sys.stderr.fileno()).columns)
    click.echo(text, err=True)


def wrapped(text: str, columns: int) -> str:
    """Prose in lines of at most so many columns, broken between words and indented as it was. A line that is a command
    stays whole, to be copied.
    """
    lines = []
    for line in text.split("\n"):
        lead = line[: len(line) - len(line.lstrip())]
        if len(line) <= columns or line.lstrip().startswith("frontier "):
            lines.append(line)
        else:
            lines += textwrap.wrap(
                line, max(20, columns), subsequent_indent=lead, break_long_words=False, break_on_hyphens=False
            )
    return "\n".join(lines)


def answer(text: str) -> None:
    """The answer: standard output."""
    click.echo(text)


def unread() -> bool:
    """The program that read standard output has closed its end of the pipe."""
    return bool(getattr(sys.stdout, "unread", False))


def answer_prose(text: str) -> None:
    """Sentences of the answer, wrapped as its tables are laid out."""
    answer(wrapped(text, width()))


def answer_json(tree: Any) -> None:
    """The answer for a machine: one JSON object on standard output."""
    import orjson

    click.echo(orjson.dumps(tree, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY).decode())


def find_run(run: Path | None, *, running: bool = False) -> Path:
    """The run named, or the newest under runs/, which is then named on standard error: the one whose last trial was
    finished last. With `running` a run that is being swept comes first, and one without a finished trial last.

    A later run that holds nothing is named too. MeasurementError, with why, where no run holds a finished trial.
    """
    from frontier.store.run_dir import RunDirectory, last_measured, newest_run, runs_under

    if run is not None:
        return run
    runs = runs_under(RUNS)
    empty = [path for path in runs if last_measured(path) is None]
    if runs and len(empty) == len(runs) and not running:
        raise _empty(runs[0])
    newest = runs[0] if runs else newest_run(RUNS)
    if running:
        newest = next((path for path in runs if RunDirectory(path, {}).held()), newest)
    say(f"run  {newest}")
    if empty and empty[0] != newest and (empty[0] / "manifest.json").stat().st_mtime > (last_measured(newest) or 0.0):
        say(f"     {empty[0]} is newer and holds no finished trial: frontier status {empty[0]}")
    return newest


def looked_at(path: Path, settings: Sequence[str] = ()) -> "Run":
    """The run at `path`, looked at with these settings (see `load`). What could not be checked is said, once a command,
    and what was changed.
    """
    from frontier.run import load

    found = load(path, settings)
    told = click.get_current_context().meta
    if found.unhashed and not told.get("unhashed"):
        told["unhashed"] = True
        say(f"{path} was made before trials had hashes: a change of its records would not be seen")
    for _, error in found.altered:
        say(f"warning: {error}")
    return found


def _empty(path: Path) -> "MeasurementError":
    """What ended the sweep of a run without a finished trial."""
    from frontier.errors import MeasurementError
    from frontier.store.run_dir import RunDirectory

    lines = RunDirectory.read(path).journal_lines()
    last = lines[-1] if lines else {}
    why = f": {last['event'].replace('_', ' ')}, {last['reason']}" if "reason" in last else ""
    return MeasurementError(f"{path} holds no finished trial{why}", f"see how it stands with  frontier status {path}")


def measured(path: Path, settings: Sequence[str] = (), *, told: bool = False) -> "Run":
    """The run at `path`, looked at with these settings (see `load`). That a part of it is not measured yet is said,
    unless the answer itself tells (`told`).

    MeasurementError, with what ended its sweep, when no trial of it was finished.
    """
    found = looked_at(path, settings)
    if not (found.histories or found.imported):
        raise _empty(path)
    if found.unfinished and not told:
        say(found.unfinished)
    return found


def unfinished_tree(found: "Run") -> dict[str, Any] | None:
    """For JSON: how far the sweep of an unfinished run has come; None for a finished one, or an import."""
    return None if found.standing is None else found.standing.tree()


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
    """Two metric names. UsageError for anything else."""
    from frontier.errors import UsageError
    from frontier.metrics import metric

    if text is None:
        return None
    names = [part.strip() for part in text.split(",")]
    if len(names) != 2:
        raise UsageError(f"--objectives {text!r} must name two metrics", "as  --objectives output_throughput,p99_ttft")
    try:
        return metric(names[0]).name, metric(names[1]).name
    except ValueError as error:
        raise UsageError(str(error)) from error
