"""What a command leaves on a terminal, as text and as an SVG: a picture for the README."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

WIDE = 100
"""Columns of the terminal."""
_ESCAPE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])")
_THEME = TerminalTheme(
    (255, 255, 255),
    (31, 35, 40),
    [
        (31, 35, 40),
        (207, 34, 46),
        (17, 99, 41),
        (125, 78, 0),
        (9, 105, 218),
        (130, 80, 223),
        (27, 124, 131),
        (87, 96, 106),
    ],
)
"""Dark letters on white, as a README has them on paper and on a screen."""


def typed(command: list[str], folder: Path) -> tuple[str, int]:
    """All that a command writes to a terminal in this folder, with its escapes; its exit code."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDE, 0, 0))
    unset = ("NO_COLOR", "COLUMNS", "LINES")
    env = {name: value for name, value in os.environ.items() if name not in unset} | {"TERM": "xterm-256color"}
    with subprocess.Popen(command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux says so where nobody writes any more
                break
            if not part:
                break
            parts.append(part)
    os.close(ours)
    return b"".join(parts).decode(), process.returncode


def screen(written: str) -> list[str]:
    """The lines that remain: a cursor that goes up or to the left writes over them."""
    lines, row, column = [[]], 0, 0
    style = ""
    i = 0
    while i < len(written):
        if found := _ESCAPE.match(written, i):
            number, kind = found[1], found[2]
            if kind == "m":
                style = "" if number in ("", "0") else style + found[0]
            elif kind == "A":
                row = max(0, row - int(number or 1))
            elif kind == "J":
                del lines[row][column:], lines[row + 1 :]
            i = found.end()
            continue
        letter = written[i]
        i += 1
        if letter == "\r":
            column = 0
        elif letter == "\n":
            row, column = row + 1, 0
            lines += [[] for _ in range(row + 1 - len(lines))]
        else:
            lines[row] += [("", " ")] * (column + 1 - len(lines[row]))
            lines[row][column] = (style, letter)
            column += 1
    return [
        "".join(f"{style}{letter}\x1b[0m" if style else letter for style, letter in line).rstrip() for line in lines
    ]


def picture(title: str, lines: list[str]) -> str:
    """The lines as an SVG that loads nothing."""
    console = Console(record=True, width=WIDE, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)
    svg = console.export_svg(title=title, theme=_THEME, unique_id="terminal")
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas")
