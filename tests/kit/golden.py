"""Golden files: what a user reads, whole or as tables of rows, one file a medium, in tests/golden/.

A change of wording is made on purpose: run the tests with WRITE_GOLDEN=1 and read the difference
before committing it. Tests assert the facts (causes, flags, codes, fields); the words stand here.
"""

import fcntl
import os
import re
from pathlib import Path

from tests.kit.places import TESTS

FOLDER = TESTS / "golden"
TABLES = ("complaints", "messages", "answers", "flags", "pictures", "pages", "progress")
"""Media whose words stand as rows: what is wrong with a config; errors and messages of commands;
answers and their notes; flags and warnings; words in pictures; pages and tables; a sweep's log."""


def assert_golden(name: str, text: str) -> None:
    """`text` is what tests/golden/NAME holds, line by line; with WRITE_GOLDEN=1 the file is written
    instead.
    """
    file = FOLDER / name
    text = _plain(text)
    if os.environ.get("WRITE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert file.exists(), f"{file} is missing: run this test with WRITE_GOLDEN=1"
    assert text == file.read_text(encoding="utf-8")


def assert_golden_row(medium: str, text: str, part: str = "") -> None:
    """`text` is the row of the running test in the table of a medium; `part` tells several of one
    test apart. With WRITE_GOLDEN=1 the row is written instead. What differs between runs (paths,
    ports, times) is to be replaced before.
    """
    assert medium in TABLES
    name, text = current_test() + (f" {part}" if part else ""), _plain(text).strip("\n")
    if os.environ.get("WRITE_GOLDEN"):
        with (FOLDER / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _write(medium, read_rows(medium) | {name: text})
    rows = read_rows(medium)
    assert name in rows, f"{medium} has no row {name}: run this test with WRITE_GOLDEN=1"
    assert text == rows[name]


def current_test() -> str:
    """The running test: its module, function and parameters."""
    path, _, test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0].partition("::")
    return f"{Path(path).stem}::{test}"


def read_rows(medium: str) -> dict[str, str]:
    """The rows of a table by test."""
    file = FOLDER / f"{medium}.txt"
    if not file.exists():
        return {}
    parts = re.split(r"^## (test_.*)\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {name: text.strip("\n") for name, text in zip(parts[::2], parts[1::2], strict=True)}


def _write(medium: str, rows: dict[str, str]) -> None:
    text = "\n".join(f"## {name}\n{rows[name]}\n" for name in sorted(rows))
    (FOLDER / f"{medium}.txt").write_text(text, encoding="utf-8")


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"
