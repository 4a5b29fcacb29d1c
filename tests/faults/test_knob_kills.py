"""SIGKILL, SIGTERM and Ctrl-C at any moment of a sweep with a knob: it is found put back."""

import contextlib
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from frontier.simulator.spec import EngineSpec
from tests.kit.commands import start
from tests.kit.knob_server import KnobProcess

FOUND = "375"


@pytest.fixture
def cap(tmp_path: Path) -> Iterator[Path]:
    """The file of a knob that stands at 375; its server runs, and a config lies beside it."""
    file = tmp_path / "cap"
    file.write_text(FOUND)
    spec = EngineSpec.from_mapping({"model_name": str(file), "step_base": "2ms"})
    with KnobProcess(spec) as server:
        (tmp_path / "knob.yaml").write_text(
            f"endpoint: {server.url}\nshapes: [32/8]\nconcurrency: [1, 2]\nsla: {{p90_ttft: 500ms}}\nrequests: 20\n"
            "deployments:\n- name: gpu\n  vary: {watts: [400, 320]}\n"
            f"  apply: sleep 0.05; echo {{watts}} > {file}\n  check: cat {file}\n  settle: 50ms\n"
        )
        yield file


def until(cap: Path, holds: bool, seconds: float = 30.0) -> None:
    """Wait until the knob stands, or no longer stands, at what was found."""
    end = time.monotonic() + seconds
    while (cap.read_text().strip() == FOUND) is not holds:
        assert time.monotonic() < end, cap.read_text()
        time.sleep(0.01)


@pytest.mark.process
def test_after_ten_kills_at_random_moments_the_knob_is_found_put_back(cap: Path) -> None:
    rng = random.Random(54)
    for number in range(10):
        sweep = start("sweep", "knob.yaml", "-o", f"run{number // 2}", cwd=cap.parent)
        until(cap, False)
        time.sleep(rng.uniform(0.0, 1.5))
        sweep.kill()
        sweep.communicate()
        until(cap, True)
        time.sleep(0.2)  # nothing sets it afterwards
        assert cap.read_text().strip() == FOUND


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_after_a_signal_it_is_put_back_before_the_command_ends(number: signal.Signals, cap: Path) -> None:
    sweep = start("sweep", "knob.yaml", "-o", "run", cwd=cap.parent)
    until(cap, False)
    sweep.send_signal(number)
    sweep.communicate(timeout=60)
    assert sweep.returncode == 130
    assert cap.read_text().strip() == FOUND


@pytest.mark.process
def test_where_all_processes_were_killed_the_next_command_puts_it_back(cap: Path) -> None:
    sweep = start("sweep", "knob.yaml", "-o", "run", cwd=cap.parent)
    until(cap, False)
    for child in psutil.Process(sweep.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    sweep.kill()
    sweep.communicate()
    time.sleep(0.3)
    assert cap.read_text().strip() != FOUND
    again = start("sweep", "knob.yaml", "-o", "run", cwd=cap.parent)
    until(cap, True)
    again.terminate()
    again.communicate(timeout=60)
    assert cap.read_text().strip() == FOUND
