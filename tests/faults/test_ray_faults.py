"""Client processes on a Ray of the sweep: killed, their node killed, the sweep killed; who listens;
where the key is.

They run where Ray is installed (`pip install -e '.[ray,test]'`) and are skipped otherwise.
"""

import contextlib
import importlib.util
import ipaddress
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from tests.faults.test_worker_faults import KEY, SWEEP, events, finished
from tests.kit.commands import start
from tests.kit.sweeps import own_exit_code

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install '.[ray]'"),
    pytest.mark.slow,
]
ON_RAY = SWEEP.split("\n", 2)[2].replace("workers: 3", "workers: {ray: local, count: 2}")


@contextlib.contextmanager
def sweep_on_ray(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A sweep in the middle of a trial, sent by two actors with three streams each."""
    spec = EngineSpec.from_mapping({"step_base": "4ms", "per_decode": "20us", "per_prefill_token": "5us"})
    with SimulatorProcess(spec) as simulator:
        port = urlsplit(simulator.url).port
        assert port is not None
        (folder / "sweep.yaml").write_text(f"endpoint: {simulator.url}\napi_key_env: WORKERS_KEY\n{ON_RAY}")
        process = start("sweep", "sweep.yaml", cwd=folder, WORKERS_KEY=KEY)
        try:
            deadline = time.monotonic() + 90
            while not sending(process.pid, port):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            time.sleep(0.8)
            yield process
        finally:
            process.kill()
            process.communicate()


def tree(pid: int) -> list[psutil.Process]:
    """The processes that a sweep started, directly or not."""
    return psutil.Process(pid).children(recursive=True)


def titled(pid: int, *titles: str) -> list[psutil.Process]:
    found = []
    for process in tree(pid):
        with contextlib.suppress(psutil.Error):
            if any(title in " ".join(process.cmdline()) for title in titles):
                found.append(process)
    return found


def actors(pid: int) -> list[psutil.Process]:
    return titled(pid, "ray::ShardHost")


def sending(pid: int, port: int) -> bool:
    """Both actors hold their connections to the server."""
    with contextlib.suppress(psutil.Error):
        held = [[c for c in actor.net_connections() if c.raddr and c.raddr.port == port] for actor in actors(pid)]
        return [3, 3] == [len(connections) for connections in held]
    return False


def gone(processes: list[psutil.Process], within: float = 15.0) -> list[psutil.Process]:
    """Those that are not gone in time."""
    _, alive = psutil.wait_procs(processes, timeout=within)
    return [process for process in alive if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def session_folders(pid: int) -> set[Path]:
    """The folders in which a sweep's Ray keeps its sessions."""
    words = [word for process in titled(pid, "frontier-ray-") for word in process.cmdline()]
    places = [word[word.index("/tmp/frontier-ray-") :].split("/")[2] for word in words if "/tmp/frontier-ray-" in word]
    return {Path("/tmp") / place for place in places}


def files_with(text: bytes, folders: set[Path]) -> list[Path]:
    """The files in some folders that hold a text."""
    regular = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return [path for path in regular if text in path.read_bytes()]


@pytest.mark.fault("SIGKILL of a Ray actor", times=1)
def test_a_killed_actor_costs_its_trial_which_is_run_again_without_it(tmp_path: Path) -> None:
    with sweep_on_ray(tmp_path) as process:
        actors(process.pid)[1].kill()
        _, err = process.communicate(timeout=120)
    run = finished(tmp_path)
    assert process.returncode == own_exit_code(run.path), err
    (lost,) = [event for event in events(tmp_path) if event["event"] == "worker_lost"]
    assert re.match(r"client process 2 on Ray \(.+\) was lost: ", str(lost["reason"])), lost
    measurement = next(iter(run.finished().values()))  # on a busy machine others follow
    assert [6] == [worker.streams for worker in measurement.workers]
    indices = sorted(record.index for record in run.records(measurement.trial.key))
    assert len(indices) == len(set(indices))
    assert indices[:6] == list(range(6))


@pytest.mark.parametrize(
    "title",
    [
        pytest.param("raylet/raylet", marks=pytest.mark.fault("SIGKILL of a Ray node", times=1)),
        pytest.param("gcs_server", marks=pytest.mark.fault("SIGKILL of a Ray node", times=1)),
        pytest.param("frontier.extras.cluster.ray_bridge", marks=pytest.mark.fault("SIGKILL of a Ray node", times=1)),
    ],
)
def test_a_killed_node_costs_its_trial_at_most_and_never_the_sweep(title: str, tmp_path: Path) -> None:
    with sweep_on_ray(tmp_path) as process:
        before = tree(process.pid)
        killed = [p for p in titled(process.pid, title) if not p.cmdline()[0].startswith("ray::")]
        assert killed
        killed[0].kill()
        _, err = process.communicate(timeout=150)
    assert process.returncode == own_exit_code(finished(tmp_path).path), err
    measurement = next(iter(finished(tmp_path).finished().values()))  # on a busy machine others follow
    assert 6 == sum(worker.streams for worker in measurement.workers)
    assert [] == gone(before)


@pytest.mark.fault("SIGKILL of a sweep that started Ray", times=1)
def test_nothing_of_ray_outlives_a_killed_sweep_which_goes_on(tmp_path: Path) -> None:
    with sweep_on_ray(tmp_path) as process:
        started, folders = tree(process.pid), session_folders(process.pid)
        assert len(started) > 4
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert [] == gone(started)
        assert [] == [folder for folder in folders if folder.exists()]
        again = start("sweep", "sweep.yaml", cwd=tmp_path, WORKERS_KEY=KEY)
        _, err = again.communicate(timeout=120)
        assert again.returncode == own_exit_code(finished(tmp_path).path), err
    measurement = next(iter(finished(tmp_path).finished().values()))  # on a busy machine others follow
    assert [3, 3] == [worker.streams for worker in measurement.workers]


def test_ray_listens_here_only_and_knows_no_key(tmp_path: Path) -> None:
    with sweep_on_ray(tmp_path) as process:
        started = tree(process.pid)
        listening = [
            (p.name(), c.laddr.ip)
            for p in started
            for c in p.net_connections("inet")
            if c.status == psutil.CONN_LISTEN or c.type == socket.SOCK_DGRAM
        ]
        assert listening
        own = [ipaddress.ip_address(ip.removeprefix("::ffff:")).is_loopback for _, ip in listening]
        assert own
        assert all(own), listening
        (folder,) = session_folders(process.pid)
        assert folder.stat().st_mode & 0o077 == 0
        for one in started:
            assert KEY not in " ".join(one.cmdline())
            assert KEY not in " ".join(one.environ().values())
        seen = list(folder.rglob("*.log")) + list(folder.rglob("*.out"))
        assert seen, "Ray's logs are elsewhere: what is searched is not what it wrote"
        assert [] == files_with(KEY.encode(), {folder, tmp_path})
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert 130 == process.returncode, err
        assert [] == gone(started)
        assert not folder.exists()
