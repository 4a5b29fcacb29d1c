"""The `frontier` command: a table of commands imported only when called, and the one place errors become exit codes."""

import ast
import errno
import importlib
import io
import keyword
import logging
import os
import re
import sys
import tempfile
import traceback
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from frontier._version import __version__
from frontier.cli.streams import settled, stand
from frontier.errors import ExitCode, FrontierError

SECTIONS: dict[str, dict[str, str]] = {
    "Measure": {
        "probe": "one streamed request and a checked list of what the server does",
        "init": "print a commented config for an endpoint",
        "sweep": "run a sweep, or resume it: the same command again",
        "quick": "a plain answer in about a minute",
        "status": "how a running sweep stands",
        "verify": "the operating point under Poisson arrivals: an open-loop check",
    },
    "Decide": {
        "show": "the points of a run as a table",
        "solve": "the operating point: the concurrency proven inside the SLA",
        "compare": "did the change push the frontier up and to the left",
        "predict": "the frontier to expect, before measuring or beyond it, and the speed of light",
    },
    "Present": {
        "plot": "the frontier as a picture (png, svg, pdf)",
        "report": "the run as one page (html, md)",
    },
    "Exchange": {
        "export": "a run for other tools: CSV, Parquet, Excel, Prometheus, llm-d",
        "import": "results of other tools as a run: vLLM, AIPerf, GuideLLM, genai-bench, InferenceX, CSV",
    },
    "Also": {
        "ceilings": "measured memory bandwidth, matmul rate and attention decode, beside the data sheet",
        "serve-sim": "the embedded simulated engine behind an OpenAI-compatible address",
    },
}

EXAMPLES = """\b
Examples:
  frontier init http://localhost:8000/v1 > sweep.yaml    a commented config
  frontier sweep sweep.yaml --dry-run      the plan and its time, nothing else
  frontier sweep sweep.yaml                run it; the same command resumes it
  frontier solve --sla 'p99_ttft<=500ms'   another SLA on the newest run
"""

EPILOG = """\b
Exit codes: 0 yes · 3 no (violated, infeasible) · 4 not proven
            5 measurement failed or invalid · 2 mis-asked · 1 a bug of ours
            130 interrupted
"""


class Commands(click.Group):
    """Commands by section, each imported from `frontier.cli.<name>` when it is called and not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # the signature is click's
        return [name for commands in SECTIONS.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        name = cmd_name.replace("-", "_") + ("_" if keyword.iskeyword(cmd_name) else "")
        module = importlib.import_module(f"frontier.cli.{name}")
        command: click.Command = module.command
        if command.help is None and module.__file__ is not None:  # python -OO takes docstrings away
            command.help = _docstring(Path(module.__file__), "command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        import difflib

        if args and args[0] not in self.list_commands(ctx):
            close = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f" Did you mean {close[0]!r}?" if close else " See  frontier --help."
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for section, commands in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl(list(commands.items()), col_max=14)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
    help="The throughput-latency frontier of an LLM deployment, and the concurrency proven inside its SLA.\n\n"
    + EXAMPLES,
)
@click.version_option(__version__, prog_name="frontier")
def cli() -> None:
    """The group; its help is given above."""


def _docstring(file: Path, function: str) -> str | None:
    """What the source says of a function."""
    with suppress(OSError, SyntaxError, ValueError):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name == function:
                return ast.get_docstring(node)
    return None


def _complain(text: str) -> None:
    """Say what is wrong; a word without end, as an argument may be, is not repeated whole."""
    from frontier.cli.common import say

    say(_shortened(text))


def _shortened(text: str) -> str:
    return re.sub(r"[^\s/]{161,}", lambda word: f"{word[0][:80]}…", text)


def _bug(error: BaseException) -> ExitCode:
    """Something of ours broke: keep the traceback in a file of the user's own, say so in two lines."""
    from frontier.cli.common import harmless

    said = "".join(traceback.format_exception(error))
    _complain(f"bug: {type(error).__name__}: {error}")
    try:
        with tempfile.NamedTemporaryFile("w", prefix="frontier-crash-", suffix=".log", delete=False) as log:
            log.write(harmless(said))
    except OSError:
        _complain(f"  this is our mistake, not yours\n{said}")
    else:
        _complain(f"  this is our mistake, not yours; the details are in {log.name}")
    return ExitCode.INTERNAL_ERROR


def _require_text(arguments: list[str]) -> None:
    """UsageError for an argument that is not text: it could be written into no file and no answer."""
    from frontier.errors import UsageError

    for argument in arguments:
        if any("\ud800" <= ch <= "\udfff" for ch in argument):
            said = argument.encode(errors="backslashreplace").decode().replace("\\udc", "\\x")
            raise UsageError(f"the argument '{said[:60]}' is not UTF-8 text", "give the file another name")


def _machine(error: OSError) -> ExitCode:
    """A file that cannot be read or written: what the system says of it, and no traceback."""
    where = f"cannot use {error.filename}: " if error.filename is not None else "this machine refuses: "
    _complain(f"error: {where}{error.strerror or error}")
    wrong_place = isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError)
    return ExitCode.USAGE if wrong_place or error.errno == errno.EROFS else ExitCode.FAILED


def run(arguments: list[str]) -> int:
    """Run the command line and give its exit code; never raises for an error of the user's or the server's."""
    try:
        _require_text(arguments)
        code: Any = cli.main(args=arguments, prog_name="frontier", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.Abort:
        _complain("interrupted")
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        said = io.StringIO()
        error.show(said)
        _complain(said.getvalue().rstrip("\n"))
        return ExitCode.USAGE
    except FrontierError as error:
        _complain(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        _complain("interrupted")
        return ExitCode.INTERRUPTED
    except MemoryError:
        _complain("error: this machine is out of memory\n  finished trials are kept; the same command goes on")
        return ExitCode.FAILED
    except OSError as error:
        return _machine(error)
    except Exception as error:  # noqa: BLE001  # the edge: whatever else escapes is a bug and becomes exit code 1
        return _bug(error)
    return int(code) if isinstance(code, int) else ExitCode.YES


def _mend_environment(environ: MutableMapping[str, str]) -> None:
    """Forget numbers that are none, on which libraries stumble, and what matplotlib says where it finds no home."""
    from frontier.units import whole_number

    for name, most in (("COLUMNS", 10_000), ("LINES", 10_000), ("SOURCE_DATE_EPOCH", 10**11)):
        if whole_number(environ.get(name, "1"), 1, most) is None:
            del environ[name]
    logging.getLogger("matplotlib").setLevel(logging.ERROR)


def main() -> NoReturn:
    """The console script."""
    out = stand()
    _mend_environment(os.environ)
    sys.exit(settled(out, run(sys.argv[1:])))
