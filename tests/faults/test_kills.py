"""SIGKILL at any moment: finished trials stay, no file is partial, the answer is that of an
uninterrupted sweep."""

import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from frontier.store.run_dir import RunDirectory
from tests.kit.commands import frontier, http_sweep, start, until_trial
from tests.kit.golden import assert_golden_row
from tests.kit.places import ROOT
from tests.kit.sweeps import own_exit_code


def study(*arguments: str) -> str:
    """The kill study in a process of its own, which forks."""
    command = [sys.executable, "-m", "benchmarks.kills", *arguments]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert said.returncode == 0, said.stdout + said.stderr
    return said.stdout


def lost_and_torn(said: str) -> tuple[int, ...]:
    """The study's counts of finished trials that were lost, and of torn files."""
    found = re.search(r"(\d+) finished trials lost, (\d+) files torn", said)
    assert found is not None, said
    return tuple(map(int, found.groups()))


@pytest.mark.process
@pytest.mark.fault("SIGKILL at a random moment", times=3)
def test_kills_at_random_moments_lose_no_finished_trial() -> None:
    """With this seed in one sweep, so that little is run beside what the kills ask for."""
    assert (0, 0) == lost_and_torn(study("--kills", "3", "--seed", "919"))


@pytest.mark.process
@pytest.mark.fault("SIGKILL at a random moment", times=40)
@pytest.mark.nightly
@pytest.mark.slow
def test_forty_kills_at_random_moments_lose_no_finished_trial() -> None:
    assert (0, 0) == lost_and_torn(study("--kills", "40", "--seed", str(time.time_ns() % 10**6)))


STEP = "SIGKILL before an open, fsync, rename, removal, mkdir or lock"


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(
    ("stride", "least"),
    [
        pytest.param("12", 13, marks=pytest.mark.fault(STEP, times=13)),
        pytest.param("4", 40, marks=[pytest.mark.fault(STEP, times=40), pytest.mark.nightly]),
    ],
)
def test_a_kill_before_any_step_on_the_disk_loses_no_finished_trial(stride: str, least: int) -> None:
    said = study("--every-step", stride)
    assert (0, 0) == lost_and_torn(said)
    assert int(said.split()[0]) >= least


@pytest.mark.process
@pytest.mark.fault("SIGKILL at a random moment", times=12)
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_real_command_killed_again_and_again_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(http_sweep("[1, 2, 4]", requests=20, more="max_time: 10s\n"))
    rng, done, simulators = random.Random(3), 0, []
    for _ in range(12):
        process = start("sweep", "sweep.yaml", cwd=tmp_path)
        time.sleep(rng.uniform(0.2, 4.0))
        simulators += psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.communicate()
        runs = list((tmp_path / "runs").glob("*/manifest.json"))
        if runs:
            run = RunDirectory.read(runs[0].parent)
            finished = run.finished()
            assert len(finished) >= done
            done = len(finished)
            assert [] == [key for key in finished if not list(run.records(key))]
    assert len(list((tmp_path / "runs").iterdir())) == 1
    said = frontier("sweep", "sweep.yaml", cwd=tmp_path)
    (path,) = (tmp_path / "runs").iterdir()
    assert said.code == own_exit_code(path), said.err
    assert {m.trial.load for m in RunDirectory.read(path).finished().values()} == {1, 2, 4}
    _, alive = psutil.wait_procs(simulators, timeout=10)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE], "a simulator outlived its sweep"


@pytest.mark.process
@pytest.mark.fault("a second start on the same run")
def test_a_second_start_on_a_running_sweep_is_refused_and_does_not_disturb_it(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(http_sweep("[1, 2, 4]", requests=400, more="max_time: 10s\n"))
    first = start("sweep", "sweep.yaml", cwd=tmp_path)
    until_trial(first, tmp_path)  # it holds its lock by then
    said = frontier("sweep", "sweep.yaml", cwd=tmp_path, here=True)
    assert said.code == 2
    (run,) = (tmp_path / "runs").iterdir()
    told = said.err.replace(str(first.pid), "PID").replace(os.uname().nodename, "HOST").replace(run.name, "RUN")
    assert_golden_row("messages", told[told.index("error: ") :])
    assert first.poll() is None
    first.terminate()
    first.communicate(timeout=20)
    assert first.returncode == 130
