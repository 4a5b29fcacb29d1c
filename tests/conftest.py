"""The same examples for the same code: a test fails because of a change, not by luck. Lanes of
tests: what starts a process or a server says so. Bytecode for what tests start.

New examples are searched for with  pytest --hypothesis-profile=search
"""

import gc
import os
import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings

settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.register_profile("search", derandomize=False, print_blob=True, deadline=None)
settings.load_profile("same")

REAL_PARTS = {
    "subprocess.Popen": "starts a process",
    "os.fork": "starts a process",
    "os.posix_spawn": "starts a process",
    "socket.bind": "opens a server",
    "socket.connect": "connects to a server",
}
"""Events of the interpreter (PEP 578) that the fast lane leaves to `process` and smoke tests."""
MAY = ("process", "smoke", "slow", "engine", "nightly")
MAY_SERVE = ("process", "smoke", "engine", "nightly")
"""A slow test may compute in processes; one with a server has a clock, and no idle lane."""
_seen: list[str] = []


SECONDS_EACH = (
    "cli/test_solve_answers.py",
    "cli/test_solve.py",
    "cli/test_show_energy.py",
    "extras/compare/test_compare_command.py",
    "cli/test_plot.py",
    "cli/test_common_detail.py",
    "extras/predict/test_predict_command.py",
    "cli/test_solve_deployments.py",
    "extras/capacity/test_capacity_command.py",
    "extras/diagnose/test_jitter.py",
    "search/test_complete_undecided.py",
    "show/view/test_selection_one_frontier.py",
    "core/stats/test_connections.py",
    "core/estimates/test_estimate_coverage.py",
    "cli/test_measured_plan.py",
    "sweep/test_sweep_mixes.py",
    "sweep/test_servers.py",
    "sweep/test_sweep_rates.py",
    "sweep/test_sweep_sessions.py",
    "search/test_shared.py",
    "planning/test_standing.py",
    "sweep/test_conductor.py",
    "cli/test_sweep.py",
    "extras/verify/test_open_loop_check.py",
    "extras/tune/test_race.py",
)
"""Files of whole sweeps in virtual time, and of every command on whole runs, seconds a test: they
are `whole`, but for what is marked otherwise there. The fast lane has one sweep of each kind
(tests/kit/sweeps.py), recorded runs, and the commands' mistakes.
"""


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in REAL_PARTS and (not event.startswith("socket") or isinstance(arguments[1], tuple)):
        _seen.append(REAL_PARTS[event])


sys.addaudithook(_watch)


def _guarded(item: pytest.Item) -> Iterator[None]:
    """A test without processes, servers and their clocks is quick and cannot be disturbed; one that
    has them belongs to the lane of processes, but for a handful of smoke tests.
    """
    _seen.clear()
    yield
    if _seen and not any(item.get_closest_marker(name) for name in MAY):
        pytest.fail(f"this test {_seen[0]}: mark it process", pytrace=False)
    served = [what for what in _seen if "server" in what]
    if served and not any(item.get_closest_marker(name) for name in MAY_SERVE):
        pytest.fail(f"this test {served[0]}: mark it process", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Fixtures count too: those of a module for the first test that needs them."""
    yield from _guarded(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """What the test itself does."""
    yield from _guarded(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Lines of the embedded engine are counted in its own tests: its loop takes five times as long
    where each line is counted.
    """
    if sys.gettrace() is None or "simulator" in item.path.parts:
        return (yield)
    from frontier.simulator import virtual

    simulate = virtual.simulate

    def uncounted(*args: Any, **options: Any) -> Any:
        tracer: Any = sys.gettrace()
        if not hasattr(tracer, "stop"):
            return simulate(*args, **options)
        tracer.stop()
        try:
            return simulate(*args, **options)
        finally:
            tracer.start()

    with patch.object(virtual, "simulate", uncounted):
        return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Keep bytecode where Python may write none beside the source (PYTHONDONTWRITEBYTECODE): each
    of the processes that tests start would compile its hundreds of modules, for seconds.
    """
    os.environ.pop("PYTEST_ADDOPTS", None)  # what .ci/run adds is for this pytest, not for one that a test starts
    if sys.dont_write_bytecode:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(config.rootpath / ".pytest_cache" / "bytecode")
        sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Nothing that is collected is garbage: it is not looked for."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole sweeps are marked before lanes are chosen. Stories and the study of calibration last
    longest: begun last, they would keep one process waiting for the other.
    """
    for item in items:
        if item.path.as_posix().endswith(SECONDS_EACH) and not any(map(item.get_closest_marker, MAY)):
            item.add_marker("whole")
    items.sort(key=lambda item: item.path.name not in ("test_stories.py", "test_calibration.py"))


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of every later garbage collection."""
    gc.collect()
    gc.freeze()
