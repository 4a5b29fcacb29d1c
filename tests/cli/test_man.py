"""Manual pages: one for each command, from its help, that a formatter takes without a warning."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from frontier.cli.main import SECTIONS
from frontier.cli.man import write_manuals
from tests.commands import frontier

COMMANDS = [name for commands in SECTIONS.values() for name in commands]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man") / "man1"
    write_manuals(folder)
    return folder


def test_each_command_has_a_page(pages: Path) -> None:
    assert {"frontier.1", *(f"frontier-{name}.1" for name in COMMANDS)} == {path.name for path in pages.iterdir()}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_says_all_that_the_help_says(name: str, pages: Path) -> None:
    page = (pages / f"frontier-{name}.1").read_text()
    assert [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH EXAMPLES"] == re.findall(r"^\.SH .*", page, re.M)[:4]
    plain = page.replace(r"\-", "-").replace(r"\e", "\\").replace(r"\&", "")
    help_text = frontier(name, "--help", cwd=Path.cwd(), here=True, COLUMNS="78").out
    asked = [word for line in help_text.splitlines() if not line.endswith(":") for word in line.split()]
    assert [word for word in asked if word != "Usage:" and word not in plain.split()] == []


@pytest.mark.process
@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff here")
def test_groff_has_no_complaint(pages: Path) -> None:
    for page in pages.iterdir():
        said = subprocess.run(["groff", "-man", "-Tutf8", "-ww", page], capture_output=True, text=True, check=True)
        assert said.stderr == "", page.name
        assert "NAME" in re.sub(r".\x08", "", said.stdout)


@pytest.mark.process
def test_the_module_is_the_command_that_the_documents_name(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "frontier.cli.man"]
    said = subprocess.run([*command, "man1"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert len(COMMANDS) + 1 == len(said.stdout.splitlines()) == len(list((tmp_path / "man1").iterdir()))
    assert 1 == subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode


def test_what_roff_would_take_for_a_request_is_text(tmp_path: Path) -> None:
    import click

    from frontier.cli.man import manual

    @click.command(help="\b\n.TH is no request\n'nor this\na back\\slash and a-dash")
    def odd() -> None: ...

    page = manual(odd, "frontier odd", "odd")
    lines = page.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("\\&.TH"))
    first, second, third = lines[start : start + 3]
    assert ["\\&.TH", "\\&'nor"] == [first.split()[0], second.split()[0]]
    assert ["back\\eslash", "a\\-dash"] == [third.split()[1], third.split()[-1]]
