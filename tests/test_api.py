"""The public names, and that they are what a notebook needs."""

import subprocess
import sys
from pathlib import Path

import pytest

import frontier
from frontier.model import Verdict

NAMES = [
    "Config", "Decision", "Estimate", "Frontier", "Limit", "Metric", "Point", "Run", "Shape", "Verdict", "__version__",
    "import_files", "load", "load_config", "make_plan", "metric", "nondominated", "parse_sla", "run_sweep",
]  # fmt: skip


def test_the_public_names_are_these() -> None:
    assert NAMES == frontier.__all__
    assert NAMES == dir(frontier)
    for name in NAMES:
        assert getattr(frontier, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = frontier.nothing


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, frontier; print(sorted({'numpy', 'pandas', 'aiohttp', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_program_can_do_what_the_command_does(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(
        "endpoint: simulator\nsimulator: {step_base: 2ms}\nshapes: [32/4]\nconcurrency: [1, 2]\n"
        "sla: {p50_ttft: 10s}\nrequests: 40\nrepeats: 1\nrefine: 0\nmax_time: 5s\n"
    )
    run = frontier.run_sweep(tmp_path / "sweep.yaml", tmp_path / "run")
    assert [1, 2] == list(run.frame()["concurrency"])
    assert 2 == len(frontier.load(tmp_path / "run").points())
    (decision,) = run.solve(frontier.parse_sla("p50_ttft<=1us"))
    assert decision.verdict in (Verdict.VIOLATES, Verdict.INVALID)  # invalid where the machine is too busy to measure
