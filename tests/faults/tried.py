"""How often each fault of docs/reliability.md is made in one run of all the tests: counted from the tests themselves.

A test says so by `@pytest.mark.fault(ROW, times=N)`: N times in each of its cases, or of the one case that is marked.
    python -m tests.faults.tried
"""

import collections
import importlib
import itertools
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

MODULES = (
    "tests.faults.test_the_servers_night", "tests.sweep.test_nights", "tests.faults.test_security",
    "tests.sweep.test_deployments", "tests.faults.test_kills", "tests.sweep.test_interrupt",
    "tests.store.test_lock", "tests.faults.test_our_own_machine", "tests.faults.test_fuzz",
    "tests.faults.test_foreign_files", "tests.cli.test_consent", "tests.faults.test_environment",
    "tests.faults.test_numbers", "tests.faults.test_special_files", "tests.store.test_altered",
    "tests.store.test_store", "tests.sweep.test_standing",
)  # fmt: skip


def faults(test: FunctionType) -> Iterator[tuple[str, int]]:
    """The rows a test belongs to, with the times, case by case."""
    marks: list[Any] = list(getattr(test, "pytestmark", ()))
    cases = [[getattr(value, "marks", ()) for value in m.args[1]] for m in marks if m.name == "parametrize"]
    for case in itertools.product(*cases):
        for mark in [*marks, *itertools.chain.from_iterable(case)]:
            made = getattr(mark, "mark", mark)
            if made.name == "fault":
                yield made.args[0], made.kwargs.get("times", 1)


def tried(modules: tuple[str, ...] = MODULES) -> tuple[collections.Counter[str], dict[str, set[str]]]:
    """Per row: how often in all, and in which files."""
    times, files = collections.Counter[str](), dict[str, set[str]]()
    for name in modules:
        module: ModuleType = importlib.import_module(name)
        for test in [
            f for f in vars(module).values() if isinstance(f, FunctionType) and f.__name__.startswith("test_")
        ]:
            for row, often in faults(test):
                times[row] += often
                files.setdefault(row, set()).add(name.rpartition(".")[2])
    return times, files


if __name__ == "__main__":
    counted, where = tried()
    for row, often in counted.items():
        print(f"{often:6,}  {row}  ({', '.join(sorted(where[row]))})")
