"""Client processes that are killed or stand still in a sweep; a sweep that is killed with its processes running."""

import os
import signal
import subprocess
import time
from pathlib import Path

import orjson
import psutil
import pytest

from frontier.simulator.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from frontier.store.run_dir import RunDirectory
from tests.commands import frontier, start

KEY = "sk-workers-0123456789abcdef"
SWEEP = """\
endpoint: simulator
simulator: {step_base: 4ms, per_decode: 20us, per_prefill_token: 5us}
shapes: [32/16]
concurrency: [6]
requests: 120
repeats: 1
refine: 0
warmup: 100ms
max_time: 20s
workers: 3
"""


def client_processes(pid: int) -> list[psutil.Process]:
    """The client processes of a sweep."""
    try:
        children = psutil.Process(pid).children(recursive=True)
        return [child for child in children if "frontier.client.worker" in child.cmdline()]
    except psutil.Error:
        return []


def events(folder: Path) -> list[dict[str, object]]:
    journals = list(folder.glob("runs/*/journal.jsonl"))
    return [orjson.loads(line) for path in journals for line in path.read_bytes().splitlines() if line.endswith(b"}")]


def sending(pid: int) -> bool:
    """Each of a sweep's three client processes holds its connections."""
    clients = client_processes(pid)
    try:
        return [2, 2, 2] == [len(client.net_connections()) for client in clients]
    except psutil.Error:
        return False


def sweep_until_sending(folder: Path, **environ: str) -> subprocess.Popen[str]:
    """A sweep in the middle of a trial."""
    process = start("sweep", "sweep.yaml", cwd=folder, **environ)
    deadline = time.monotonic() + 60
    while not sending(process.pid):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.8)
    return process


def finished(folder: Path) -> RunDirectory:
    return RunDirectory.read(next((folder / "runs").iterdir()))


@pytest.mark.fault("SIGKILL of a client process", times=1)
def test_a_killed_client_process_costs_its_trial_which_is_run_again_without_it(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    process = sweep_until_sending(tmp_path)
    client_processes(process.pid)[1].kill()
    _, err = process.communicate(timeout=90)
    assert process.returncode in (0, 4, 5), err  # on a busy machine its points may be flagged
    assert "was lost: signal 9 ended it" in err
    assert "is run again without that process" in err
    assert "c=6 is sent by 2 client processes" in err
    (lost,) = [event for event in events(tmp_path) if event["event"] == "worker_lost"]
    assert "signal 9" in str(lost["reason"])
    run = finished(tmp_path)
    (measurement,) = run.finished().values()
    assert [3, 3] == [worker.streams for worker in measurement.workers]
    # Nothing of the attempt that was given up: each share's requests are there once, from its first on.
    indices = sorted(record.index for record in run.records(measurement.trial.key))
    assert len(indices) == len(set(indices))
    assert indices[:6] == list(range(6))


@pytest.mark.fault("a client process that stands still", times=1)
@pytest.mark.slow
def test_a_client_process_that_does_not_answer_costs_its_trial(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    process = sweep_until_sending(tmp_path)
    client_processes(process.pid)[0].send_signal(signal.SIGSTOP)
    _, err = process.communicate(timeout=120)
    assert process.returncode in (0, 4, 5), err
    assert "did not answer for 10 s" in err
    (measurement,) = finished(tmp_path).finished().values()
    assert 2 == len(measurement.workers)


@pytest.mark.fault("a client process that stands still", times=1)
@pytest.mark.slow
def test_a_client_process_that_stood_still_for_a_moment_is_seen_in_the_health_of_the_trial(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    process = sweep_until_sending(tmp_path)
    delayed = client_processes(process.pid)[2]
    delayed.send_signal(signal.SIGSTOP)
    time.sleep(1.0)
    delayed.send_signal(signal.SIGCONT)
    process.communicate(timeout=90)
    flagged = [event for event in events(tmp_path) if event["event"] == "flagged"]
    assert flagged
    assert "client_bound" in str(flagged[0]["flags"])
    (measurement,) = finished(tmp_path).finished().values()
    # Measured again, as its numbers meant nothing; the pause was of one process, and that of the trial is the worst.
    assert 3 == len(measurement.workers)
    assert measurement.health.stood_still == max(w.health.stood_still or 0.0 for w in measurement.workers)


@pytest.mark.fault("SIGKILL of a sweep with client processes", times=1)
@pytest.mark.slow
def test_client_processes_die_with_their_sweep_and_hide_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKERS_KEY", KEY)
    spec = EngineSpec.from_mapping({"step_base": "4ms", "per_decode": "20us", "per_prefill_token": "5us"})
    with SimulatorProcess(spec) as simulator:
        server = f"endpoint: {simulator.url}\napi_key_env: WORKERS_KEY\n"
        (tmp_path / "sweep.yaml").write_text(server + SWEEP.split("\n", 2)[2])
        die_with_their_sweep(tmp_path)


def die_with_their_sweep(tmp_path: Path) -> None:
    process = sweep_until_sending(tmp_path)
    clients = client_processes(process.pid)
    children = psutil.Process(process.pid).children(recursive=True)
    lines = [" ".join(child.cmdline()) for child in children]
    assert not [line for line in lines if KEY in line]
    listening = [c for client in clients for c in client.net_connections() if c.status == psutil.CONN_LISTEN]
    assert listening == []
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    _, alive = psutil.wait_procs(clients, timeout=10)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    # The same command again goes on; with another number of processes the trials of before still count.
    said = frontier("sweep", "sweep.yaml", "--set", "workers=2", cwd=tmp_path)
    assert said.code in (0, 4, 5), said.err
    assert 1 == len(list((tmp_path / "runs").iterdir()))
    again = frontier("sweep", "sweep.yaml", "--set", "workers=1", cwd=tmp_path)
    assert "nothing is left to measure" in again.err
    assert 2 == len(next(iter(finished(tmp_path).finished().values())).workers)
