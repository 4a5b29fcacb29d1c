"""`frontier --help` and the help of every command: one golden file, examples, widths."""

from pathlib import Path

import pytest

from frontier.cli.main import sections
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden

COMMANDS = [name for commands in sections().values() for name in commands]


def help_of(*command: str, columns: int) -> str:
    said = frontier(*command, "--help", cwd=Path.cwd(), here=True, COLUMNS=str(columns))
    assert (0, "") == (said.code, said.err)
    return said.out


def test_help_is_as_in_the_golden_file() -> None:
    pages = [help_of(*command, columns=100) for command in ((), *((name,) for name in COMMANDS))]
    assert_golden("help.txt", "\n\n".join(pages))


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_examples_and_fits_eighty_columns(command: str) -> None:
    page = help_of(*([command] if command else []), columns=80)
    assert "Examples:" in page
    assert [line for line in page.splitlines() if len(line) > 80] == []
