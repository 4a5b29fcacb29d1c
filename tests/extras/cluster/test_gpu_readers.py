"""GPU evidence from a process that talks as nvidia-smi does; nothing where there is none, or the
server is away."""

import asyncio
import time
from pathlib import Path

import pytest

from frontier.client import run_trial
from frontier.client.ask.prompts import random_prompts
from frontier.client.ask.target import Target
from frontier.client.http.http_client import run
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement, Phase, Trial
from frontier.extras.cluster.gpu_readers import Gpus, is_here, parse_gpu_line
from tests.kit.engine import Engine
from tests.kit.hostile import Hostile

SMI = """#!/bin/sh
echo "$@" > {asked}
trap 'exit 0' TERM
while true; do
  echo "0, 310.50, 90, 70000, 1800, 61"
  echo "1, 289.50, 70, 70000, 1755, [N/A]"
  sleep 0.1
done
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an nvidia-smi, first on the path."""
    tool, asked = tmp_path / "nvidia-smi", tmp_path / "asked"
    tool.write_text(SMI.format(asked=asked))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return asked


def measured() -> Measurement:
    engine = Engine("gpu", owner="someone").install()
    shape = Shape.of(20, 10)
    trial = Trial("d", shape, 2, 0, Phase.GRID, 20, 1, 0.2, 0.5, 5.0, fingerprint="f")
    with Hostile() as server:
        target = Target(server.url(engine.name), "m", "completions", dialect="vllm")
        prompts = random_prompts(shape, 1)
        return run(run_trial(trial, target, prompts, on_record=lambda _: None, expected_e2e=0.05))


@pytest.mark.process
def test_the_gpus_of_the_window_are_kept_with_the_evidence(smi: Path) -> None:
    server = measured().server
    assert 2 == server["gpu_count"]
    assert server["gpu_power"] == pytest.approx(600.0, rel=0.03)
    assert server["gpu_utilization"] == pytest.approx(0.8, abs=0.02)
    assert server["gpu_memory_used"] == pytest.approx(140_000 * 2**20)
    assert 1.755e9 == server["gpu_sm_clock_min"]
    assert 61.0 == server["gpu_temperature_max"]
    assert "--query-gpu=index,power.draw" in smi.read_text()


@pytest.mark.process
def test_without_a_gpu_nothing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not [name for name in measured().server if name.startswith("gpu_")]


@pytest.mark.process
@pytest.mark.slow
def test_a_tool_that_fails_or_hangs_is_no_trouble(smi: Path) -> None:
    tool = smi.parent / "nvidia-smi"
    for script in ("#!/bin/sh\nexit 9\n", "#!/bin/sh\necho NVIDIA-SMI has failed\nsleep 60\n", "not a program"):
        tool.write_text(script)
        began = time.perf_counter()
        assert not [name for name in measured().server if name.startswith("gpu_")]
        assert time.perf_counter() - began < 5


def test_a_server_elsewhere_has_other_gpus(smi: Path) -> None:
    async def watch() -> bool:
        gpus, opened, closed = Gpus(Target("http://gpu-box:8000/v1")), asyncio.Event(), asyncio.Event()
        opened.set()
        await asyncio.wait_for(gpus.watch(opened, closed), 1.0)
        return bool(gpus.readings)

    assert not asyncio.run(watch())
    assert not smi.exists()


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://127.8.0.1", True),
        ("http://localhost/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://10.0.0.1/v1", False),
        ("https://api.example.org/v1", False),
    ],
)
def test_here_is_this_machine(url: str, here: bool) -> None:
    assert here is is_here(url)


def test_lines_are_read_and_others_are_not() -> None:
    assert (0.0, 310.5, 90.0, None, None, 61.0) == parse_gpu_line("0, 310.50, 90, [N/A], [Not Supported], 61\n")
    for line in ("", "No devices were found", "a, 1, 2, 3, 4, 5", "0, 1"):
        assert parse_gpu_line(line) is None
