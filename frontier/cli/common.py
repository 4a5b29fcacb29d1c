"""What commands share: run options, reading a run, answers on stdout, messages on stderr."""

import functools
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click
import orjson

from frontier import registry
from frontier.cli.completion import (
    complete_deployments,
    complete_keys,
    complete_limits,
    complete_metrics,
    complete_run,
    complete_shapes,
)
from frontier.client.secrets import Secrets, environment_secrets, masked
from frontier.core.model.decisions import Limit
from frontier.core.model.errors import MeasurementError, StoreError, UsageError
from frontier.core.model.groups import by_key
from frontier.core.model.metrics import metric
from frontier.core.model.text import without_controls
from frontier.core.model.units import format_bytes, whole_number
from frontier.show.verbosity import Detail
from frontier.store.files import write_output
from frontier.store.run_dir import RUNS, RunDirectory, last_measured, runs_under

if TYPE_CHECKING:
    from frontier.run import Run

T = TypeVar("T")

RUN_PATH = click.Path(path_type=Path, file_okay=False)
FILE_PATH = click.Path(path_type=Path, dir_okay=False)

# ---- messages and answers
# --------------------------------------------------------------------------------------------------


def harmless(text: str) -> str:
    """Text from outside made safe for a terminal: without control and format characters (escape
    sequences, overrides of the writing direction) and without secrets.

    Secrets are recognised by their form, as values of the environment, or as what the command has
    read.
    """
    return without_controls(masked(Secrets.of(environment_secrets(os.environ)).redact(text)))


def say(text: str = "") -> None:
    """Write a message to standard error; on a terminal, lines are broken between words."""
    text = harmless(text)
    with suppress(OSError, ValueError):
        if sys.stderr.isatty():
            text = wrapped(text, os.get_terminal_size(sys.stderr.fileno()).columns)
    click.echo(text, err=True)


def note(text: str) -> None:
    """Write a message that accompanies an answer to standard error; -q leaves it out."""
    context = click.get_current_context(silent=True)
    if context is None or context.meta.get("detail") is not Detail.ANSWER:
        say(text)


def wrapped(text: str, columns: int) -> str:
    """Prose in lines of at most `columns`, broken between words, with its indentation. A line that
    is a command stays whole, to be copied.
    """
    lines = []
    for line in text.split("\n"):
        lead = line[: len(line) - len(line.lstrip())]
        if len(line) <= columns or line.lstrip().startswith("frontier ") or " && frontier " in line:
            lines.append(line)
        else:
            lines += textwrap.wrap(
                line, max(20, columns), subsequent_indent=lead, break_long_words=False, break_on_hyphens=False
            )
    return "\n".join(lines)


def answer(content: str | Mapping[str, Any]) -> None:
    """Write the answer to standard output: a text as it is, a mapping as one JSON object."""
    click.echo(content if isinstance(content, str) else json_bytes(content).decode())


def answer_prose(text: str) -> None:
    """Write sentences of the answer, wrapped to the width of its tables."""
    answer(wrapped(text, layout()["width"]))


def json_bytes(tree: Any) -> bytes:
    """An indented JSON text."""
    return orjson.dumps(tree, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY)


def write_file(path: Path, data: bytes) -> None:
    """Write a file of -o as a whole, and say so. UsageError when it cannot be written."""
    try:
        write_output(path, data)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}", "choose another with  -o") from error
    say(f"wrote {path} ({format_bytes(len(data))})")


def parsed(option: str, text: str, parse: Callable[[str], T]) -> T:
    """The value of an option, as `parse` reads it. UsageError for its ValueError."""
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error


class Layout(TypedDict):
    """How tables are laid out."""

    width: int
    colour: bool


def layout() -> Layout:
    """The width and the colour of tables: the terminal's columns, or 100 where there is no
    terminal; colour only on a terminal that wants it.
    """
    columns: int | None = None
    if sys.stdout.isatty():
        with suppress(OSError):
            columns = os.get_terminal_size(sys.stdout.fileno()).columns
    else:
        columns = whole_number(os.environ.get("COLUMNS", ""), 1, 100_000)
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return Layout(width=max(40, min(columns, 1_000)) if columns else 100, colour=colour)


# ---- runs
# --------------------------------------------------------------------------------------------------


def find_run(run: Path | None, *, running: bool = False) -> Path:
    """The run that is named, or else the newest under runs/: the one whose last trial was finished
    last.

    A run that is found so is named on standard error, and so is a later run that holds nothing.
    With `running`, a run that is being swept comes first, and a run without a finished trial last.
    StoreError without any run; MeasurementError, with the reason, when no run holds a finished
    trial.
    """
    if run is not None:
        return run
    runs = runs_under(RUNS)
    if not runs:
        raise StoreError(f"no run under {RUNS}/", "make one with  frontier sweep CONFIG,  or name a run directory")
    empty = [path for path in runs if last_measured(path) is None]
    if empty == runs and not running:
        raise _empty(runs[0])
    newest = next((path for path in runs if running and RunDirectory(path, {}).held()), runs[0])
    note(f"run  {newest}")
    if empty and empty[0] != newest and (empty[0] / "manifest.json").stat().st_mtime > (last_measured(newest) or 0.0):
        note(f"     {empty[0]} is newer and holds no finished trial: frontier status {empty[0]}")
    return newest


def read_run(path: Path, settings: Sequence[str] = (), *, allow_empty: bool = False) -> "Run":
    """The run at `path`, read with these settings in its config's place (see `load`). Trials that
    were changed, or could not be checked, are reported.

    MeasurementError, with what ended its sweep, when no trial was finished, unless `allow_empty`.
    """
    from frontier.read_run import load

    run = load(path, settings)
    # Commands that read several runs, or one run twice, say this once.
    already_said = click.get_current_context().meta
    if run.unhashed and not already_said.get("unhashed"):
        already_said["unhashed"] = True
        note(f"{path} was made before trials had hashes: a change of its records would not be seen")
    for _, error in run.altered:
        say(f"warning: {error}")
    if allow_empty:
        return run
    if not (run.histories or run.imported):
        raise _empty(path)
    return run


def _empty(path: Path) -> MeasurementError:
    """The error of a run without a finished trial, with what ended its sweep."""
    lines = RunDirectory.read(path).journal_lines()
    last = lines[-1] if lines else {}
    why = f": {last['event'].replace('_', ' ')}, {last['reason']}" if "reason" in last else ""
    return MeasurementError(f"{path} holds no finished trial{why}", f"see how it stands with  frontier status {path}")


def unfinished_json(run: "Run") -> dict[str, Any] | None:
    """For JSON: how far the sweep of an unfinished run has come; None for a finished run and for an
    import.
    """
    return None if run.standing is None else run.standing.tree(run.go_on)


MOST_OBJECTIVES = 4


def read_objectives(text: str | None, most: int = 2) -> tuple[str, ...] | None:
    """The metrics of --objectives, two or up to `most`. UsageError for anything else."""
    if text is None:
        return None
    names = [part.strip() for part in text.split(",")]
    if not 2 <= len(names) <= most or len(set(names)) < len(names):
        number = "two metrics" if most == 2 else f"two to {most} metrics"
        raise UsageError(f"--objectives {text!r} must name {number}", "as  --objectives output_throughput,p99_ttft")
    try:
        return tuple(metric(name).name for name in names)
    except ValueError as error:
        raise UsageError(str(error)) from error


# ---- options
# --------------------------------------------------------------------------------------------------


class GroupedOption(click.Option):
    """An option with the heading it stands under in `--help`."""

    def __init__(self, *args: Any, group: str = "Options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


class _Subcommand(click.Command):
    """A command whose `--help` lists its options under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = (each for each in self.get_params(ctx) if isinstance(each, click.Option))
        listed = ((getattr(each, "group", "Options"), each.get_help_record(ctx)) for each in options)
        groups = by_key((group, row) for group, row in listed if row is not None)
        for heading, rows in sorted(groups.items(), key=lambda each: each[0] != "Options"):  # these first
            with formatter.section(heading):
                formatter.write_dl(rows)


_HELP = {"help_option_names": ["-h", "--help"]}  # as of the group, also for a command that is invoked alone
subcommand = functools.partial(click.command, cls=_Subcommand, context_settings=_HELP)
_part = functools.partial(click.option, cls=GroupedOption, group="Select")
_look = functools.partial(click.option, cls=GroupedOption, group="Recompute with")


def _detail_options(command: Callable[..., Any], more: str) -> Callable[..., Any]:
    """The options -v and -q, which give the `Detail` of a command that answers. `more` is what it
    prints with -v.
    """
    command = click.option("-q", "--quiet", is_flag=True, help="The answer alone.")(command)
    return click.option("-v", "--verbose", is_flag=True, help=more)(command)


def _detail(*, verbose: bool, quiet: bool, as_json: bool) -> Detail:
    """The detail that these flags ask for. UsageError for flags that contradict each other."""
    if verbose and quiet:
        raise UsageError("-v prints all there is and -q the answer alone", "give one of them")
    if as_json and (verbose or quiet):
        raise UsageError(f"--json and {'-v' if verbose else '-q'} are two forms of one answer", "give one of them")
    detail = Detail.ALL if verbose else Detail.USUAL
    click.get_current_context().meta["detail"] = detail = Detail.ANSWER if quiet else detail
    return detail


json_option = click.option("--json", "as_json", is_flag=True, help="Answer as one JSON object.")
_SHARED: dict[str, Callable[[Any], Any]] = {
    "run": click.argument("run", required=False, type=RUN_PATH, shell_complete=complete_run),
    "deployments": _part(
        "--deployment",
        "deployments",
        multiple=True,
        metavar="NAME",
        shell_complete=complete_deployments,
        help="Only this deployment: a name, a part of it or a *pattern*; repeatable.",
    ),
    "shapes": _part(
        "--shape",
        "shapes",
        multiple=True,
        metavar="SHAPE",
        shell_complete=complete_shapes,
        help="Only this shape, as 1024/256.",
    ),
    "sla": _look(
        "--sla",
        shell_complete=complete_limits,
        metavar="LIMITS",
        help="Limits, as 'p99_ttft<=500ms, p99_tpot<=30ms'; a tier of the config, or a preset, as chat; default: the "
        "config's first.",
    ),
    "objectives": _look(
        "--objectives",
        metavar="A,B",
        shell_complete=complete_metrics,
        help="The frontier's axes, as output_throughput,p99_ttft; default: the config's.",
    ),
    "settings": _look(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        shell_complete=complete_keys,
        help="Another value in the run's config: gpus=8, price=$12/h, hardware.power=700W/gpu; repeatable.",
    ),
    "point_estimates": click.option(
        "--point-estimates", is_flag=True, help="Decide on values without intervals (imported aggregates)."
    ),
    "as_json": json_option,
}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The shared options of a command: which run, which part of it, and how it is evaluated."""

    run: Path | None = None
    deployments: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    objectives: str | None = None
    sla: str | None = None
    point_estimates: bool = False
    detail: Detail = Detail.USUAL
    as_json: bool = False

    @property
    def axes(self) -> tuple[str, str] | None:
        """The two metrics of --objectives; None without it."""
        named = read_objectives(self.objectives)
        return (named[0], named[1]) if named else None

    @property
    def all_axes(self) -> tuple[str, ...] | None:
        """The two to four metrics of --objectives, for a table; None without it."""
        return read_objectives(self.objectives, MOST_OBJECTIVES)

    def read(self, *, allow_empty: bool = False) -> "Run":
        """The run with these settings, narrowed to the deployments and shapes named; see
        `read_run`.
        """
        from frontier.show.view.selection import narrowed

        path = find_run(self.run)
        run = read_run(path, self.settings, allow_empty=allow_empty)
        return narrowed(run, self.deployments, self.shapes)

    def limits(self, run: "Run") -> tuple[Limit, ...]:
        """The limits of --sla, else those of the run's config."""
        return run.limits(self.sla)


def given_options(*but: str) -> list[str]:
    """The options of this command line that have a value, written as they can be given again;
    without the parameters in `but`.
    """
    context = click.get_current_context()
    words = []
    for option in context.command.params:
        value = context.params.get(option.name or "")
        if isinstance(option, click.Option) and not option.is_flag and value is not None and option.name not in but:
            values = value if option.multiple else [value]
            words += [word for each in values for word in (option.opts[0], str(each))]
    return words


def with_extra(row: "registry.Row[registry.SweepOption]") -> "Callable[[Callable[..., Any]], Callable[..., Any]]":
    """A command with the option that an extra adds to it, where it is installed."""
    extra = row.find()
    return extra.option if extra is not None else lambda command: command


def run_options(
    *names: str, more: str = "All metrics, flags and reasons."
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that adds the shared options of these names (fields of RunOptions) to a command,
    and passes them to it as its first argument. `more` is what it prints with -v.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_options(**given: Any) -> Any:
            if "detail" in names:
                flags = {name: given.pop(name) for name in ("verbose", "quiet")}
                given["detail"] = _detail(**flags, as_json=given.get("as_json", False))
            shared = {field.name: given.pop(field.name) for field in fields(RunOptions) if field.name in names}
            return command(RunOptions(**shared), **given)

        decorated: Callable[..., Any] = with_options
        for name in reversed(names):
            decorated = _detail_options(decorated, more) if name == "detail" else _SHARED[name](decorated)
        return decorated

    return decorate
