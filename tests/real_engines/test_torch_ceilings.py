"""The ceilings and links on a real torch: the tests that are skipped without one, in the engine's
environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real_engines.vllm_cpu import default_folder, why_missing

ROOT = Path(__file__).parents[2]


@pytest.mark.engine
@pytest.mark.timeout(600)
@pytest.mark.parametrize("file", ["test_ceilings", "test_link_ceilings"])
def test_the_tests_that_need_torch_pass_where_it_is(file: str) -> None:
    if reason := why_missing():
        pytest.skip(f"real engine not installed: {reason}")
    python = default_folder() / "venv" / "bin" / "python"
    paths = os.pathsep.join([str(ROOT), *dict.fromkeys(p for p in sys.path if p.endswith("-packages"))])
    words = (python, "-m", "pytest", "-q", "-n", "0", "-m", "", "-rs", f"tests/extras/predict/{file}.py")
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=540
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "torch" not in done.stdout.partition("short test summary")[2], "nothing is skipped for want of it"
