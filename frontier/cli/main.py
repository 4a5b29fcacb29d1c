"""The `frontier` command: subcommands by section, imported only when called, and errors turned into
exit codes."""

import errno
import gc
import importlib
import logging
import os
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import MutableMapping
from typing import Any, NoReturn

import click

from frontier import registry
from frontier._version import __version__
from frontier.cli.streams import final_exit_code, install_streams
from frontier.core.model.errors import ExitCode, FrontierError, UsageError

SECTIONS = ("Measure", "Decide", "Present", "Exchange", "Also")


def sections() -> dict[str, dict[str, str]]:
    """The commands by section, each with its line."""
    every = registry.commands()
    listed = {section: {n: of.line for n, of in every.items() if of.section == section} for section in SECTIONS}
    return {section: lines for section, lines in listed.items() if lines}


HELP = """\
Find the best concurrency at which an LLM server keeps its latency SLA, and its frontier.

\b
Start with three commands:
  frontier init http://localhost:8000/v1 > sweep.yaml    a config
  frontier sweep sweep.yaml              run it; the same command resumes it
  frontier solve --sla 'p99_ttft<=1s'    another SLA on the run just made

\b
Examples:
  frontier quick                         a first look at a server, in a minute
  frontier sweep sweep.yaml --dry-run    the plan and its time, nothing else
  frontier report -o review.html         the newest run as a page
"""

EPILOG = """\b
Exit codes: 0 yes · 3 no (violated, infeasible) · 4 not proven
            5 measurement failed or invalid · 2 usage error
            1 internal error (please report) · 130 interrupted
"""


class Commands(click.Group):
    """Commands by section, each imported from `frontier.cli.<name>` or from its extra, and only
    when it is called.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # the signature is click's
        return [name for commands in sections().values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        row = registry.commands()[cmd_name].row
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"frontier.cli.{name}") if row is None else row.load()
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from frontier.core.model.text import closest

        if args and args[0] not in self.list_commands(ctx):
            close = closest(args[0], self.list_commands(ctx))
            hint = f" Did you mean {close[0]!r}?" if close else " See  frontier --help."
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for section, commands in sections().items():
            with formatter.section(section):
                formatter.write_dl(list(commands.items()), col_max=14)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
    help=HELP,
)
@click.version_option(__version__, prog_name="frontier")
def cli() -> None:
    """The group of all commands; its help is HELP, which imports as little as can be. A command
    begins without the secrets of the one before.
    """
    from frontier.client.secrets import forget

    forget()


# ---- errors to exit codes
# --------------------------------------------------------------------------------------------------


def run(arguments: list[str]) -> int:
    """Run a command line. Returns its exit code: every error is reported here, and none is
    raised.
    """
    try:
        _require_text(arguments)
        # Without standalone_mode click returns the command's exit code, and raises instead of
        # exiting.
        code: Any = cli.main(args=arguments, prog_name="frontier", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted")
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        _say(_usage_text(error))
        return ExitCode.USAGE
    except FrontierError as error:
        _say(f"error: {error}")
        return error.exit_code
    except MemoryError:
        _say("error: this machine is out of memory\n  finished trials are kept; the same command goes on")
        return ExitCode.FAILED
    except OSError as error:
        return _system_error(error)
    except Exception as error:  # noqa: BLE001  # the edge: whatever else escapes is a bug and becomes exit code 1
        return _internal_error(error)
    return int(code) if isinstance(code, int) else ExitCode.YES


def _usage_text(error: click.ClickException) -> str:
    """click's message in the form of all other errors, and where the options are listed: 'error: no
    such option '--verbos'. Did you mean '--verbose'?'. A key of the config has its own hint.
    """
    text = error.format_message()
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.NoSuchOption) and context is not None:
        key = error.option_name.lstrip("-").replace("-", "_")
        takes = (option for option in context.command.params if "--set" in option.opts)
        if key in [item.value for option in takes for item in option.shell_complete(context, key)]:
            return f"error: {error.option_name} is no option, but a key of the config\n  write  --set {key}=VALUE"
    return f"error: {text[:1].lower()}{text[1:]}\n  options: {context.command_path if context else 'frontier'} --help"


def _say(text: str) -> None:
    """Write what is wrong. A very long word, as an argument may be, is cut."""
    from frontier.cli.common import say

    say(re.sub(r"[^\s/]{161,}", lambda word: f"{word[0][:80]}…", text))


def _system_error(error: OSError) -> ExitCode:
    """Report a file that cannot be read or written, in the system's words and without a
    traceback.
    """
    where = f"cannot use {error.filename}: " if error.filename is not None else "this machine refuses: "
    _say(f"error: {where}{error.strerror or error}")
    wrong_place = isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError)
    return ExitCode.USAGE if wrong_place or error.errno == errno.EROFS else ExitCode.FAILED


def _internal_error(error: BaseException) -> ExitCode:
    """Report an internal error in two lines, its traceback in a file that only the user can
    read.
    """
    from frontier.cli.common import harmless

    details = "".join(traceback.format_exception(error))
    _say(f"internal error: {type(error).__name__}: {error}")
    try:
        with tempfile.NamedTemporaryFile("w", prefix="frontier-crash-", suffix=".log", delete=False) as log:
            log.write(harmless(details))
    except OSError:
        _say(f"  this is a bug of frontier, please report it:\n{details}")
    else:
        _say(f"  this is a bug of frontier, please report it with {log.name}")
    return ExitCode.INTERNAL_ERROR


def _require_text(arguments: list[str]) -> None:
    """UsageError for an argument that is not valid text: no file and no answer could hold it."""
    for argument in arguments:
        if any("\ud800" <= ch <= "\udfff" for ch in argument):
            text = argument.encode(errors="backslashreplace").decode().replace("\\udc", "\\x")
            raise UsageError(f"the argument '{text[:60]}' is not UTF-8 text", "give the file another name")


# ---- the process
# --------------------------------------------------------------------------------------------------


def _mend_environment(environ: MutableMapping[str, str]) -> None:
    """Drop variables that should be numbers and are not, on which libraries fail. Silence
    matplotlib where it finds no home directory.
    """
    from frontier.core.model.units import whole_number

    for name, most in (("COLUMNS", 10_000), ("LINES", 10_000), ("SOURCE_DATE_EPOCH", 10**11)):
        if whole_number(environ.get(name, "1"), 1, most) is None:
            del environ[name]
    logging.getLogger("matplotlib").setLevel(logging.ERROR)


def main() -> NoReturn:
    """The console script."""
    # Imports make some 200,000 objects that stay: looking for garbage among them takes a tenth of a
    # short command.
    gc.set_threshold(300_000, 20, 100)
    out = install_streams()
    _mend_environment(os.environ)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # what a library has to say is for developers, who give -W
    code = final_exit_code(out, run(sys.argv[1:]))
    gc.freeze()  # the interpreter looks for garbage once more when it ends, in memory that the system takes back anyway
    sys.exit(code)
