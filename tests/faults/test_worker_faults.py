"""Client processes that are killed or stand still in a sweep; a sweep that is killed with its
processes running."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from frontier.client.ask.prompts import PromptPlan
from frontier.client.ask.target import Target
from frontier.client.http.http_client import run as run_loop
from frontier.client.load.processes import ProcessWorker
from frontier.client.load.shard import WorkerLostError, run_sharded
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement, Phase, Record, Trial
from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from frontier.store.run_dir import RunDirectory
from tests.kit.commands import frontier, start
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import own_exit_code

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
        return [child for child in children if "frontier.client.load.processes" in child.cmdline()]
    except psutil.Error:
        return []


def events(folder: Path) -> list[dict[str, object]]:
    journals = list(folder.glob("runs/*/journal.jsonl"))
    return [orjson.loads(line) for path in journals for line in path.read_bytes().splitlines() if line.endswith(b"}")]


def sending(pid: int) -> list[int]:
    """How many connections each client process of a sweep holds."""
    try:
        return sorted((len(client.net_connections()) for client in client_processes(pid)), reverse=True)
    except psutil.Error:
        return []


def wait_until_sending(process: subprocess.Popen[str], connections: list[int]) -> None:
    """Until the client processes are in the middle of a trial, with so many connections each."""
    deadline = time.monotonic() + 60
    while sending(process.pid) != connections:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.8)


def sweep_until_sending(folder: Path, **environ: str) -> subprocess.Popen[str]:
    """A sweep in the middle of a trial."""
    process = start("sweep", "sweep.yaml", cwd=folder, **environ)
    wait_until_sending(process, [2, 2, 2])
    return process


def finished(folder: Path) -> RunDirectory:
    return RunDirectory.read(next((folder / "runs").iterdir()))


@pytest.mark.process
@pytest.mark.fault("SIGKILL of a client process", times=1)
def test_a_killed_client_process_costs_its_trial_which_is_run_again_without_it(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    process = sweep_until_sending(tmp_path)
    client_processes(process.pid)[1].kill()
    _, err = process.communicate(timeout=90)
    run = finished(tmp_path)
    assert process.returncode == own_exit_code(run.path), err
    (lost,) = [event for event in events(tmp_path) if event["event"] == "worker_lost"]
    assert_golden_row("progress", re.sub(r"process \d \(pid \d+\)", "process N (pid N)", str(lost["reason"])))
    measurement = next(iter(run.finished().values()))
    assert [3, 3] == [worker.streams for worker in measurement.workers]
    # Nothing of the attempt that was given up: each share's requests are there once, from its first
    # on.
    indices = sorted(record.index for record in run.records(measurement.trial.key))
    assert len(indices) == len(set(indices))
    assert indices[:6] == list(range(6))


@pytest.mark.process
@pytest.mark.fault("SIGKILL of a client process", times=3)
@pytest.mark.slow
def test_a_trial_whose_client_processes_are_killed_three_times_is_sent_by_what_is_left(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(SWEEP.replace("workers: 3", "workers: 4").replace("[6]", "[12]"))
    process = start("sweep", "sweep.yaml", cwd=tmp_path)
    for connections in ([3, 3, 3, 3], [4, 4, 4], [6, 6]):
        wait_until_sending(process, connections)
        client_processes(process.pid)[0].kill()
    _, err = process.communicate(timeout=90)
    run = finished(tmp_path)
    assert process.returncode == own_exit_code(run.path), err
    assert 3 == sum(event["event"] == "worker_lost" for event in events(tmp_path))
    assert 1 == err.count("put off")
    measurement = next(iter(run.finished().values()))  # on a busy machine others follow
    assert () == measurement.workers
    indices = [record.index for record in run.records(measurement.trial.key)]
    assert len(indices) == len(set(indices))


@pytest.mark.process
@pytest.mark.fault("a client process that stands still", times=1)
@pytest.mark.slow
def test_a_client_process_that_does_not_answer_costs_its_trial(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    process = sweep_until_sending(tmp_path)
    client_processes(process.pid)[0].send_signal(signal.SIGSTOP)
    _, err = process.communicate(timeout=120)
    assert process.returncode == own_exit_code(finished(tmp_path).path), err
    (lost,) = [event for event in events(tmp_path) if event["event"] == "worker_lost"]
    assert "did not answer" in str(lost["reason"])
    measurement = next(iter(finished(tmp_path).finished().values()))  # on a busy machine others follow
    assert 2 == len(measurement.workers)


@pytest.mark.process
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
    measurement = next(iter(finished(tmp_path).finished().values()))  # on a busy machine others follow
    # Measured again, as its numbers meant nothing; the pause was of one process, and that of the
    # trial is the worst.
    assert 3 == len(measurement.workers)
    assert measurement.health.stood_still == max(w.health.stood_still or 0.0 for w in measurement.workers)


@pytest.mark.process
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
    # The same command again goes on; with another number of processes the trials of before still
    # count.
    said = frontier("sweep", "sweep.yaml", "--set", "workers=2", cwd=tmp_path)
    (path,) = (tmp_path / "runs").iterdir()
    assert said.code == own_exit_code(path), said.err
    begun = [event for event in events(tmp_path) if event["event"] == "trial_begun"]
    again = frontier("sweep", "sweep.yaml", "--set", "workers=1", cwd=tmp_path)
    assert said.code == again.code
    assert begun == [event for event in events(tmp_path) if event["event"] == "trial_begun"], "nothing is left"
    assert 2 == len(next(iter(finished(tmp_path).finished().values())).workers)


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    spec = EngineSpec.from_mapping({"step_base": "4ms", "per_decode": "20us", "per_prefill_token": "5us"})
    with SimulatorProcess(spec) as running:
        yield running


def send(simulator: SimulatorProcess, workers: Sequence[ProcessWorker]) -> tuple[Measurement, list[Record]]:
    """A trial of four streams on these processes, which are then ended."""
    trial = Trial("d", Shape.of(32, 16), 4, 1, Phase.GRID, 40, 7, 0.2, 0.3, 20.0, "f")
    target = Target(simulator.url, simulator.spec.model_name, "completions", dialect="vllm")
    records = list[Record]()

    async def run() -> Measurement:
        try:
            return await run_sharded(
                trial, target, PromptPlan(trial.shape, trial.seed), workers, on_record=records.append
            )
        finally:
            for worker in workers:
                worker.kill()

    return run_loop(run()), records


class Delayed(ProcessWorker):
    """A client process that is stopped just when it is to begin, for longer than it may be late."""

    async def call(self, method: str, *arguments: Any) -> Any:
        if method == "start":
            os.kill(self.pid, signal.SIGSTOP)
            asyncio.get_running_loop().call_later(1.2, os.kill, self.pid, signal.SIGCONT)
        return await super().call(method, *arguments)


@pytest.mark.process
@pytest.mark.fault("a client process that begins late", times=1)
def test_a_client_process_that_begins_late_makes_no_trial(simulator: SimulatorProcess) -> None:
    with pytest.raises(WorkerLostError) as late:
        send(simulator, [ProcessWorker(1), Delayed(2)])
    assert re.match(r"client process 2 \(pid \d+\) began [01]\.\d s after ", late.value.what), late.value.what


class Struck(ProcessWorker):
    """A client process that a signal strikes just before one of its questions."""

    def __init__(self, number: int, number_of_signal: int, before: str) -> None:
        super().__init__(number)
        self._signal, self._before = number_of_signal, before

    async def call(self, method: str, *arguments: Any) -> Any:
        if method == self._before:
            os.kill(self.pid, self._signal)
        return await super().call(method, *arguments)


@pytest.mark.process
@pytest.mark.fault("a client process stopped or killed before its load begins")
@pytest.mark.parametrize(
    ("number", "said", "before"),
    [
        *((signal.SIGKILL, "was lost: signal 9", before) for before in ("info", "prepare", "time", "start")),
        (signal.SIGSTOP, "did not answer", "time"),
    ],
)
def test_a_client_process_struck_before_its_load_begins_is_noticed_soon(
    number: int, said: str, before: str, simulator: SimulatorProcess
) -> None:
    workers = [ProcessWorker(1), Struck(2, number, before)]
    began = time.monotonic()
    with pytest.raises(WorkerLostError, match=rf"client process 2 \(pid \d+\) {said}"):
        send(simulator, workers)
    assert time.monotonic() - began < 20, "10 s are waited for an answer"


TIME = ["unshare", "--user", "--map-root-user", "--fork", "--kill-child", "--time", "--monotonic", "600"]


@pytest.mark.process
@pytest.mark.fault("a client process whose clock is minutes off", times=1)
def test_a_client_process_whose_clock_is_ten_minutes_ahead_changes_nothing(
    simulator: SimulatorProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a time namespace, as if it ran on a machine that was started ten minutes earlier."""
    try:
        subprocess.run([*TIME, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("time namespaces are not available here")
    ahead = tmp_path / "python"
    ahead.write_text(f'#!/bin/sh\nexec {" ".join(TIME)} {sys.executable} "$@"\n')
    ahead.chmod(0o755)
    here = ProcessWorker(1)
    monkeypatch.setattr(sys, "executable", str(ahead))
    measurement, records = send(simulator, [here, ProcessWorker(2)])
    assert measurement.ended == "requests"
    own, other = measurement.workers
    assert own.clock_offset == pytest.approx(0.0, abs=0.02)
    assert other.clock_offset == pytest.approx(600.0, abs=0.02)
    assert max(own.clock_bound, other.clock_bound) == measurement.health.clock_bound
    firsts = [min(record.sent for record in records if record.stream % 2 == share) for share in (0, 1)]
    assert firsts == pytest.approx([0.0, 0.0], abs=0.2)
    assert records
    assert all(0 < record.end - record.sent < 5 for record in records)
