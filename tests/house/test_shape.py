"""The shape of the code: size, nested conditional expressions, arguments, cognitive complexity.

The size is limited for the heart alone, the core and what solver and search import. These limits
are raised by a decision (docs/decisions/0040-the-house.md). The size of everything else is printed,
by `python -m tests.house.test_shape`, and has no limit.

The complex functions were there when the rule came. Their list only shrinks: a function that is
mended leaves it, and nothing is added.
"""

import ast
import tokenize
from collections import Counter
from pathlib import Path

import complexipy
import pytest

import frontier
from tests.house.test_imports import imported

ROOT = Path(frontier.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

MOST_COMPLEX = 20
"""Cognitive complexity of a function (the measure of Sonar): a reader's branches and nestings."""
COMPLEX = {
    "cli/plot.py: command": 22,
    "extras/compare/command.py: _gate": 23,
    "extras/compare/gate.py: gate": 27,
    "extras/compare/multi_run.py: _panel": 27,
    "extras/diagnose/diagnosis.py: diagnose": 21,
    "extras/present/contexts_figure.py: _bounds": 22,
    "extras/present/contexts_figure.py: _context_notes": 24,
    "extras/present/contexts_figure.py: contexts_figure": 30,
    "extras/present/series_figures.py: _edge_notes": 22,
    "extras/present/series_figures.py: inflation_figure": 23,
    "extras/capacity/command.py: command": 31,
    "planning/plan.py: _turn_in_order": 24,
    "search/highest_rate.py: _prove": 25,
    "search/place.py: candidate": 23,
    "search/skipping.py: skip_reason": 22,
    "show/picture/frontier_picture.py: axes_of": 38,
    "sweep/conductor.py: Conductor._complete": 24,
}
MANY_ARGUMENTS = 10
"""Functions of more than eight arguments at most, each marked with `noqa: PLR0913`."""


def test_no_conditional_expression_stands_in_another() -> None:
    nested = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.IfExp)
        and any(isinstance(part, ast.IfExp) for part in (node.test, node.body, node.orelse))
    ]
    assert nested == []


def test_functions_stay_within_their_cognitive_complexity() -> None:
    measured = {
        f"{path.relative_to(ROOT)}: {function.name.replace('::', '.')}": function.complexity
        for path in FILES
        for function in complexipy.file_complexity(str(path)).functions
    }
    assert len(measured) > 1_000
    over = {name: complexity for name, complexity in measured.items() if complexity > MOST_COMPLEX}
    assert {name: complexity for name, complexity in over.items() if complexity > COMPLEX.get(name, 0)} == {}
    assert sorted(COMPLEX) == sorted(over), "take what is mended from the list"


def test_functions_of_many_arguments_are_few() -> None:
    marks: Counter[str] = Counter()
    for path in FILES:
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type == tokenize.COMMENT and "noqa: PLR0913" in token.string:
                    marks[str(path.relative_to(ROOT))] += 1
    assert sum(marks.values()) <= MANY_ARGUMENTS, marks


MOST_IN_CORE = 4_585
"""Statements of the core, without imports and docstrings."""
MOST_IMPORTED = {"frontier.core.claim.solver": 4_060, "frontier.search.scan": 5_185}
"""Statements of a module and of all modules of the package that it imports."""


def statements(path: Path) -> int:
    def counts(node: ast.AST) -> bool:
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return isinstance(node, ast.stmt) and not isinstance(node, ast.Import | ast.ImportFrom) and not text

    return sum(map(counts, ast.walk(ast.parse(path.read_text()))))


def sizes() -> Counter[str]:
    """Statements by folder of the package; a module beside them by its name."""
    found: Counter[str] = Counter()
    for path in FILES:
        found[path.relative_to(ROOT).parts[0]] += statements(path)
    return found


def imported_by(start: str) -> int:
    """Statements of a module and of all that it imports."""
    known = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts): path for path in FILES}
    seen, todo = set[str](), [start]
    while todo:
        module = todo.pop()
        if module in known and module not in seen:
            seen.add(module)
            todo += imported(known[module])
    return sum(statements(known[module]) for module in seen)


def test_the_core_stays_within_its_size() -> None:
    assert 1_000 < sizes()["core"] <= MOST_IN_CORE, "more needs a decision: docs/decisions/0040-the-house.md"


@pytest.mark.parametrize("start", MOST_IMPORTED)
def test_what_solver_and_search_import_stays_within_its_size(start: str) -> None:
    assert 1_000 < imported_by(start) <= MOST_IMPORTED[start], "more needs a decision: docs/decisions/0040-the-house.md"


LONGEST_FILE = 450
"""Lines of a file: a topic that a newcomer can name."""
LONG = {}


def test_files_stay_within_their_length() -> None:
    lines = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in FILES}
    over = {name: count for name, count in lines.items() if count > LONGEST_FILE}
    assert {name: count for name, count in over.items() if count > LONG.get(name, 0)} == {}
    assert sorted(LONG) == sorted(over), "take what is mended from the list"


def test_a_name_stands_in_one_folder_only() -> None:
    """But for commands, engines and importers."""
    places: dict[str, set[str]] = {}
    for path in FILES:
        parts = path.relative_to(ROOT).parts
        free = {"cli", "engines", "exchange"} & set(parts) or path.stem in ("__init__", "__main__", "command")
        if not free:
            places.setdefault(path.stem, set()).add("/".join(parts[:-1]))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_a_public_class_has_a_name_of_its_own() -> None:
    """No other class has it, and no alias of a module, as `Floats = NDArray[np.float64]`."""
    places: dict[str, list[str]] = {}
    aliases: dict[str, list[str]] = {}
    for path in FILES:
        tree, file = ast.parse(path.read_text()), str(path.relative_to(ROOT))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(file)
        for node in tree.body:
            for target in node.targets if isinstance(node, ast.Assign) else ():
                if isinstance(target, ast.Name):
                    aliases.setdefault(target.id, []).append(file)
    assert len(places) > 300
    every = {name: found + aliases.get(name, []) for name, found in places.items()}
    assert {name: found for name, found in every.items() if len(found) > 1} == {}


def main() -> None:
    """Print the statements of the package, and those of the heart beside their limits."""
    found = sizes()
    total = sum(found.values())
    print(f"core {found['core']:,} (limit {MOST_IN_CORE:,})")
    for start, most in MOST_IMPORTED.items():
        print(f"{start} and what it imports {imported_by(start):,} (limit {most:,})")
    print(f"core and rings {total - found['extras']:,}, extras {found['extras']:,}, all {total:,}")


if __name__ == "__main__":
    main()
