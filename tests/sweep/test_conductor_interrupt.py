"""Ctrl-C in each stage of a trial, through real HTTP and real signals."""

import asyncio
import fcntl
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import termios
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from frontier.client.load.loop import TrialProgress
from frontier.config import load_config
from frontier.planning.plan import make_plan
from frontier.read_run import load
from frontier.sweep.backend import HttpBackend
from frontier.sweep.conductor import Conductor, SweepEnd
from tests.kit.commands import frontier, http_sweep, start, until_trial
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import line_of
from tests.kit.sweeps import Told, open_run

SLOW = http_sweep("[1, 4]", requests=4, shape="64/20", step="10ms", more="max_time: 20s\n")


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("stage", ["warmup", "window", "hold"])
def test_stopping_in_any_stage_keeps_finished_trials_and_drops_the_one_in_flight(stage: str, tmp_path: Path) -> None:
    text = SLOW.replace("64/20", "64/60") if stage == "hold" else SLOW  # the hold is as long as a request takes
    text = text.replace("warmup: 100ms", "warmup: 2s") if stage == "warmup" else text  # longer than between two ticks
    config = load_config(text, "sweep.yaml")
    stop = asyncio.Event()

    class StopsIn(Told):
        def tick(self, tick: object) -> None:
            assert isinstance(tick, TrialProgress)
            if self.finished and tick.stage == stage:
                stop.set()

    told = StopsIn()

    async def go() -> SweepEnd:
        return await Conductor(config, make_plan(config), run, HttpBackend(config, {}), told, stop).conduct()

    with open_run(tmp_path / "run", config, text) as run:
        end = asyncio.run(go())
        assert (end, 1) == ("interrupted", len(run.finished()))
        assert list((tmp_path / "run" / "trials").glob("*.part")) == []
    stop = asyncio.Event()
    told = Told()  # type: ignore[assignment]
    with open_run(tmp_path / "run", config, text) as run:
        assert asyncio.run(go()) == "finished"
    assert [4] == [trial.load for trial in told.finished]
    assert 2 == len(load(tmp_path / "run").points())


def started(tmp_path: Path, **how: Callable[[], object]) -> subprocess.Popen[str]:
    """A sweep whose first trial is under way."""
    (tmp_path / "sweep.yaml").write_text(SLOW.replace("requests: 4", "requests: 5000") + "on_finish: 'cat > told'\n")
    process = start("sweep", "sweep.yaml", cwd=tmp_path, **how)
    until_trial(process, tmp_path)
    return process


@pytest.mark.process
@pytest.mark.fault("SIGINT, SIGTERM, SIGHUP")
@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGTERM, signal.SIGHUP))]
)
def test_a_signal_ends_the_sweep_with_the_command_that_resumes_it(number: signal.Signals, tmp_path: Path) -> None:
    process = started(tmp_path)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert_golden_row("progress", line_of(err, "stopping: "))
    assert err.rstrip().endswith("frontier sweep sweep.yaml")
    assert "Traceback" not in err
    told = json.loads((tmp_path / "told").read_text())
    assert ("interrupted", 130) == (told["end"], told["exit_code"]), "on_finish is told of an interruption, too"


def in_stage(stage: str, port: int) -> bool:
    """The running sweep says that its trial is in this stage."""
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as told:
        return f'frontier_trial_stage{{stage="{stage}"}} 1.0' in told.read().decode()
    return False


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.fault("SIGINT, SIGTERM, SIGHUP")
@pytest.mark.parametrize("stage", ["ramp", "warmup", "window", "hold"])
def test_ctrl_c_in_any_stage_of_a_trial_is_answered_alike(stage: str, tmp_path: Path) -> None:
    longer = re.sub(r"shapes: .*", "shapes: [64/150]", re.sub(r"concurrency: .*", "concurrency: 1", SLOW))
    (tmp_path / "sweep.yaml").write_text(re.sub(r"step_base: \w+", "step_base: 10ms", longer))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = start("sweep", "sweep.yaml", "--prometheus", str(port), cwd=tmp_path)
    while not in_stage(stage, port):
        assert process.poll() is None, "the sweep ended before that stage"
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert 1 == err.count("stopping: ")
    assert err.rstrip().endswith(f"frontier sweep sweep.yaml --prometheus {port}")
    assert "Traceback" not in err
    assert [] == list(tmp_path.glob("runs/*/trials/*"))
    assert "interrupted" == ended(tmp_path)


@pytest.mark.process
@pytest.mark.fault("SIGINT, SIGTERM, SIGHUP")
def test_the_second_ctrl_c_leaves_at_once(tmp_path: Path) -> None:
    process = started(tmp_path)
    process.send_signal(signal.SIGSTOP)  # both arrive before either is answered
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130


def ended(tmp_path: Path) -> str:
    """The last event of the one run's journal."""
    (journal,) = tmp_path.glob("runs/*/journal.jsonl")
    return str(json.loads(journal.read_text().splitlines()[-1])["event"])


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.fault("a closed terminal")
@pytest.mark.slow
def test_a_closed_terminal_that_says_so_twice_is_one_wish(tmp_path: Path) -> None:
    process = started(tmp_path)
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=60)
    assert (130, "interrupted") == (process.returncode, ended(tmp_path))


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.fault("a closed terminal, under nohup")
def test_under_nohup_a_closed_terminal_changes_nothing(tmp_path: Path) -> None:
    process = started(tmp_path, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert (130, 1) == (process.returncode, err.count("stopping: "))


def take_terminal() -> None:
    """Make the standard input our controlling terminal."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.fault("a closed terminal")
def test_a_terminal_that_goes_away_ends_the_sweep_as_it_should(tmp_path: Path) -> None:
    """As when an ssh connection breaks: the kernel sends SIGHUP, and whatever is said then
    fails.
    """
    (tmp_path / "sweep.yaml").write_text(SLOW.replace("requests: 4", "requests: 5000"))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "frontier", "sweep", "sweep.yaml"],
        cwd=tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=take_terminal,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    seen = b""
    while b"in flight" not in seen:
        seen += os.read(ours, 65_536)
    os.close(ours)
    process.wait(timeout=60)
    assert (130, "interrupted") == (process.returncode, ended(tmp_path))


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.fault("SIGINT, SIGTERM, SIGHUP")
def test_ctrl_c_while_the_server_is_not_there_yet(tmp_path: Path) -> None:
    """A server that accepts and says nothing: the check before the first trial waits for it."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        text = SLOW.replace("endpoint: simulator", f"endpoint: {address}").replace("simulator:", "# simulator:")
        (tmp_path / "sweep.yaml").write_text(text)
        process = start("sweep", "sweep.yaml", cwd=tmp_path)
        accepted, _ = silent.accept()
        with accepted:
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.rstrip().endswith("frontier sweep sweep.yaml")


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.fault("SIGKILL at a random moment")
def test_a_killed_sweep_goes_on_with_the_same_command(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(SLOW)
    process = start("sweep", "sweep.yaml", cwd=tmp_path)
    until_trial(process, tmp_path, finished=1)
    process.kill()
    process.communicate()
    (run,) = (tmp_path / "runs").iterdir()
    assert 1 == len(list((run / "trials").glob("*.jsonl")))
    said = frontier("sweep", "sweep.yaml", cwd=tmp_path)
    assert "2 of 2 settings" in said.err
    assert "1 of 2 settings" not in said.err
    assert [run] == list((tmp_path / "runs").iterdir())
