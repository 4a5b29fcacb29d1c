"""The golden tables: each row belongs to a test. Wording stands there, not in asserts."""

import ast
from pathlib import Path

from tests.kit.golden import TABLES, read_rows
from tests.kit.places import TESTS

FROZEN = 60
"""Sentences in asserts, and in what they compare with, at most. It only shrinks."""


def test_each_row_belongs_to_a_test() -> None:
    functions = {
        f"{path.stem}::{node.name}"
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    rows = {name for medium in TABLES for name in read_rows(medium)}
    assert {name for name in rows if name.split("[")[0].split(" ")[0] not in functions} == set()


def test_wording_stands_in_the_golden_files() -> None:
    frozen = {str(p.relative_to(TESTS)): frozen_sentences(p) for p in sorted(TESTS.rglob("*.py"))}
    assert sum(frozen.values()) <= FROZEN, {name: number for name, number in frozen.items() if number}


def frozen_sentences(path: Path) -> int:
    """Asserts, patterns of exceptions and parameters of tests with a sentence: a string of four
    words or more. What an assert says when it fails does not count.
    """
    number = 0
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Assert):
            number += any(True for _ in sentences(node.test))
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name.endswith(("raises", "warns")):
                number += any(True for k in node.keywords if k.arg == "match" for _ in sentences(k.value))
            elif name.endswith("parametrize"):
                number += sum(1 for _ in sentences(node))
    return number


def sentences(tree: ast.AST):  # type: ignore[no-untyped-def]
    """The strings of four words or more below a node."""
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(node, ast.JoinedStr):
            text = " ".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        if isinstance(text, str) and sum(word.strip(".,;:()'\"").isalpha() for word in text.split()) >= 4:
            yield node
