"""The three stories that the README tells, as typed: a shell, real processes, real HTTP, the
embedded engine.

Commands and configs are read from the README. A test is skipped where the sweep says that this
machine is too busy to measure on.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frontier.core.model.errors import exit_code
from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from tests.kit.places import ROOT

README = (ROOT / "README.md").read_text()
ENGINE = {
    "step_base": "4ms",
    "per_decode": "100us",
    "per_prefill_token": "2us",
    "noise": "0.05",
    "model_name": "sim-8b",
}
SLA = "{p95_ttft: 500ms, p95_tpot: 10ms}"
"""What the user of the second story promises; the README's own is an example."""
NOT_CONCLUSIVE = (4, 5)
"""What a sweep on a busy machine ends with."""


def block(kind: str, holding: str) -> str:
    """The README's block of this kind that holds a text."""
    return next(text for text in re.findall(rf"^```{kind}\n(.*?)^```$", README, re.M | re.S) if holding in text)


def typed(line: str, cwd: Path) -> subprocess.Popen[str]:
    """A line as typed into a shell in which the virtual environment is active."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.Popen(
        ["bash", "-c", f"exec {line}" if "&&" not in line else line],
        cwd=cwd,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PATH": path, "NO_COLOR": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def run(line: str, cwd: Path, code: int = 0) -> str:
    """What the line printed, once it has ended with this exit code."""
    process = typed(line, cwd)
    try:
        out, err = process.communicate(timeout=1200)
    finally:
        process.kill()
    if process.returncode in NOT_CONCLUSIVE and process.returncode != code:
        pytest.skip(f"this machine was too busy to measure on: {err.splitlines()[-1]}")
    assert process.returncode == code, err
    return out


def solved(line: str, cwd: Path) -> tuple[dict[str, Any], int]:
    """The answer of `frontier solve` as data, and its exit code, which is that of the verdict."""
    process = typed(f"{line} --json", cwd)
    out, err = process.communicate(timeout=120)
    (shape,) = json.loads(out)["shapes"]
    assert process.returncode == exit_code([shape["verdict"]]), err
    return shape, process.returncode


@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_quickstart_ends_proven_within_its_budget(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    command = block("sh", "configs/quickstart.yaml").rpartition(" && ")[2].strip().removeprefix(".venv/bin/")
    began = time.monotonic()
    out = run(command, tmp_path)
    assert time.monotonic() - began < 105, "the 90 s of its budget, the start of Python, and the picture"
    assert re.search(r"^Run at concurrency \d+\b", out, re.M)
    assert list(tmp_path.glob("runs/*/derived/frontier.png"))
    assert "Run at concurrency" in run("frontier solve", tmp_path)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, str]]:
    """The README's short config, with a quarter of its fixed lengths and no sizes, swept until the
    operating point was announced; then Ctrl-C. The directory, what was said, and the answer.
    """
    here = tmp_path_factory.mktemp("user")
    with SimulatorProcess(EngineSpec.from_mapping(ENGINE)) as engine:
        at = "http://localhost:8000/v1"
        for line in block("console", "frontier probe").splitlines():
            run(line.removeprefix("$ ").replace(at, engine.url), here)
        config = block("yaml", "endpoint:")
        assert "1024/256" in config
        config = re.sub(r"^sla: .*$", f"sla: {SLA}", config, flags=re.M).replace("1024/256", "256/64")
        (here / "sweep.yaml").write_text(config.replace(at, engine.url))
        sweep = typed("frontier sweep sweep.yaml", here)
        assert sweep.stderr is not None
        log = []
        for line in sweep.stderr:
            log.append(line)
            if ", proven after " in line:
                sweep.send_signal(signal.SIGINT)
                break
        out, err = sweep.communicate(timeout=120)
        if sweep.returncode in NOT_CONCLUSIVE:
            pytest.skip("this machine was too busy to measure on")
        assert 130 == sweep.returncode, "".join(log) + err
        yield here, "".join(log) + err, out


@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_default_sweep_of_fixed_lengths_is_answered_and_ctrl_c_keeps_the_answer(swept: tuple[Path, str, str]) -> None:
    here, log, out = swept
    (answer,) = re.findall(r"^Run at concurrency (\d+)\b", out, re.M)
    assert int(answer) <= 50, "the engine's p95 TPOT is 10 ms there"
    least = 1 if "busy" in log else 24  # a busy machine proves less, and says so
    assert least <= int(answer)
    shape, _ = solved("frontier solve", here)
    assert (int(answer), "meets") == (shape["concurrency"], shape["verdict"])


@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_later_sla_names_a_better_setting_and_the_command_pasted_proves_it(swept: tuple[Path, str, str]) -> None:
    here, *_ = swept
    (later,) = set(re.findall(r"`(frontier solve --sla '[^']*')`", README))
    shape, code = solved(later, here)
    before, step = shape["concurrency"], shape["next_step"]
    assert step["concurrency"] > (before or 0)
    assert f"\n  {step['command']}\n" in run(later, here, code)
    (inside,) = (here / "runs").iterdir()
    printed, _ = solved(later.replace("solve", "solve ."), inside)
    out = run(printed["next_step"]["command"], inside)
    assert f"Run at concurrency {step['concurrency']}: " in out
