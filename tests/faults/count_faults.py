"""Counts how often one run of all the tests makes each fault of the matrix (README.md beside this
file), from the marks of the tests.

A test is marked `@pytest.mark.fault(ROW, times=N)`: N times in each of its cases, or in the one
case that is marked.

    python -m tests.faults.count_faults
"""

import collections
import importlib
import itertools
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

MODULES = (
    "tests.faults.test_server_faults",
    "tests.sweep.test_servers",
    "tests.faults.test_security",
    "tests.faults.test_leaks",
    "tests.sweep.test_conductor_deployments",
    "tests.sweep.start.test_process_session",
    "tests.faults.test_kills",
    "tests.sweep.test_conductor_interrupt",
    "tests.store.test_lock",
    "tests.faults.test_client_faults",
    "tests.faults.test_fuzz",
    "tests.faults.test_foreign_files",
    "tests.cli.test_consent",
    "tests.faults.test_environment",
    "tests.faults.test_numbers",
    "tests.faults.test_special_files",
    "tests.store.test_trial_files",
    "tests.store.test_run_dir",
    "tests.planning.test_standing",
    "tests.faults.test_worker_faults",
    "tests.sweep.test_backend_workers",
    "tests.faults.test_ray_faults",
    "tests.client.http.test_http_client",
)


def faults_made(test: FunctionType) -> Iterator[tuple[str, int]]:
    """The rows a test belongs to, with the times, case by case."""
    marks: list[Any] = list(getattr(test, "pytestmark", ()))
    cases = [[getattr(value, "marks", ()) for value in m.args[1]] for m in marks if m.name == "parametrize"]
    for case in itertools.product(*cases):
        for mark in [*marks, *itertools.chain.from_iterable(case)]:
            made = getattr(mark, "mark", mark)
            if made.name == "fault":
                yield made.args[0], made.kwargs.get("times", 1)


def count_faults(modules: tuple[str, ...] = MODULES) -> tuple[collections.Counter[str], dict[str, set[str]]]:
    """Per row: how often in all, and in which files."""
    times, files = collections.Counter[str](), dict[str, set[str]]()
    for name in modules:
        module: ModuleType = importlib.import_module(name)
        for test in [
            f for f in vars(module).values() if isinstance(f, FunctionType) and f.__name__.startswith("test_")
        ]:
            for row, often in faults_made(test):
                times[row] += often
                files.setdefault(row, set()).add(name.rpartition(".")[2])
    return times, files


if __name__ == "__main__":
    counted, where = count_faults()
    for row, often in counted.items():
        print(f"{often:6,}  {row}  ({', '.join(sorted(where[row]))})")
