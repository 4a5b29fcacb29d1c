"""Manual pages, one for each command, made of its `--help`:  python -m frontier.cli.man
~/.local/share/man/man1

A page is the help as it is printed, its headings as sections, so that nothing has to be written
twice.
"""

import re
import sys
from pathlib import Path

import click

from frontier._version import __version__
from frontier.cli.main import SECTIONS, cli

_WIDTH = 78


def manual(command: click.Command, name: str, summary: str) -> str:
    """The manual page of a command, in roff; `name` as it is typed ('frontier sweep')."""
    dashed = name.replace(" ", "-")
    context = click.Context(
        command, info_name=name, terminal_width=_WIDTH, max_content_width=_WIDTH, help_option_names=["-h", "--help"]
    )
    usage, _, rest = command.get_help(context).partition("\n\n")
    lines = [
        f'.TH {dashed.upper()} 1 "" "frontier {__version__}"',
        ".SH NAME",
        rf"{_roff(dashed)} \- {_roff(summary)}",
        ".SH SYNOPSIS",
        _roff(usage.removeprefix("Usage: ")),
        ".SH DESCRIPTION",
        ".nf",
        *(_line(line) for line in rest.splitlines()),
        ".fi",
    ]
    return re.sub(r"\n+\.fi", "\n.fi", "\n".join(lines)) + "\n"


def write_manuals(folder: Path) -> list[Path]:
    """Write the pages of the program and of all its commands into a folder, which is made; the
    files.
    """
    summaries = {"": "the throughput-latency frontier of an LLM deployment"}
    summaries |= {name: text for commands in SECTIONS.values() for name, text in commands.items()}
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, summary in summaries.items():
        command = cli.get_command(click.Context(cli), name) if name else cli
        assert command is not None
        files.append(folder / f"{'-'.join(['frontier', *filter(None, [name])])}.1")
        files[-1].write_text(manual(command, f"frontier {name}".strip(), summary), encoding="utf-8")
    return files


def _line(line: str) -> str:
    """A line of the help. A heading, which stands at the margin or says Examples, begins a
    section.
    """
    if heading := re.fullmatch(r"(\S.*|  Examples):", line):
        return f".fi\n.SH {_roff(heading[1].strip().upper())}\n.nf"
    return _roff(line.removeprefix("  "))


def _roff(text: str) -> str:
    """Text that roff takes as it stands: its escapes, its hyphens, and what would be a request at a
    line's begin.
    """
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{text}" if text[:1] in (".", "'") else text


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m frontier.cli.man FOLDER")
    click.echo("\n".join(map(str, write_manuals(Path(sys.argv[1])))))
