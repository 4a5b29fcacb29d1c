"""The soak's short form: one sweep under random faults and one after them, and every request accounted for."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_sweep_of_faults_is_accounted_for_to_the_last_request() -> None:
    command = [sys.executable, "-m", "benchmarks.soak", "0.4", "--seed", str(time.time_ns() % 10**6)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout.rstrip().endswith("exact")
