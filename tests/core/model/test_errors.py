"""The tree of errors that the docstring of `core.model.errors` draws is the one that there is."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import frontier
from frontier.core.model import errors

ROOT = Path(frontier.__file__).parent
Drawn = set[tuple[str, str | None, int, str]]
"""Name, base, exit code and module of each error."""


def drawn(text: str) -> Iterator[tuple[str, str | None, int, str]]:
    """The errors of a drawing: four more columns of indentation are one level."""
    bases: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if line.startswith("    ") and words[0].endswith("Error"):
            level = (len(line) - len(line.lstrip())) // 4 - 1
            bases[level:] = [words[0]]
            module = words[2] if len(words) > 2 else "core.model.errors"
            yield words[0], bases[level - 1] if level else None, int(words[1]), module


def real() -> Iterator[tuple[str, str | None, int, str]]:
    """The classes below FrontierError in all files of the package; no other module is imported."""
    classes = [
        (".".join(path.relative_to(ROOT).with_suffix("").parts), node)
        for path in sorted(ROOT.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    bases: list[str | None] = [None]
    for base in bases:
        for module, node in classes:
            names = {part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "") for part in node.bases}
            if base in names or (base is None and node.name == "FrontierError"):
                bases.append(node.name)
                error = getattr(importlib.import_module(f"frontier.{module}"), node.name)
                yield node.name, base, int(error.exit_code), module


def test_the_drawn_tree_of_errors_is_the_real_one() -> None:
    there: Drawn = set(real())
    assert len(there) > 10
    assert set(drawn(errors.__doc__ or "")) == there
