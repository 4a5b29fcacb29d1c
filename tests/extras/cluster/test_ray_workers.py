"""A trial on Ray: the load and the figures of one process; a cluster of several nodes; or no trial
at all.

What needs Ray runs where it is installed (`pip install -e '.[ray,test]'`) and is skipped otherwise.
"""

import asyncio
import contextlib
import importlib
import importlib.util
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from frontier.client import run_trial
from frontier.client.ask.prompts import PromptPlan
from frontier.client.ask.target import Target
from frontier.client.http.http_client import run
from frontier.client.load.rules import first_length
from frontier.client.load.shard import WorkerLostError, run_sharded
from frontier.client.secrets import NO_SECRETS, Secrets
from frontier.config import load_config
from frontier.core.estimates.estimate import estimate
from frontier.core.model.errors import MeasurementError, UsageError
from frontier.core.model.trials import Measurement, Outcome, Record, Trial
from frontier.core.window.from_records import window_data
from frontier.extras.cluster.ray_workers import RAY_SETTINGS, RayWorkers, bridge_environment
from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from frontier.sweep.backend import HttpBackend
from tests.client.load.test_shard import target, trial
from tests.kit.commands import frontier
from tests.kit.engine import Engine
from tests.kit.golden import assert_golden_row
from tests.kit.hostile import Hostile
from tests.kit.neutral import neutral

on_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install '.[ray]'"
)
KEY = "sk-ray-0123456789abcdef"

FIND_SPEC = "frontier.extras.cluster.ray_workers.importlib.util.find_spec"


def test_no_variable_with_a_secret_and_no_setting_of_another_ray_reaches_a_ray_of_our_own() -> None:
    environ = {"PATH": "/bin", "ANY_NAME": f"Bearer {KEY}", "RAY_ADDRESS": "10.0.0.1:6379", "RAY_AUTH_TOKEN": "t0k"}
    environ["RAY_AUTH_TOKEN"] += KEY
    secrets = Secrets.of([KEY])
    own = bridge_environment(environ, secrets, local=True)
    assert own["RAY_AUTH_TOKEN"] != bridge_environment(environ, secrets, local=True)["RAY_AUTH_TOKEN"]
    assert {"PATH": "/bin", "RAY_AUTH_MODE": "token"}.items() <= own.items()
    assert not {"ANY_NAME", "RAY_ADDRESS"} & set(own)
    assert KEY not in own["RAY_AUTH_TOKEN"]
    assert {"PATH", "RAY_ADDRESS", "RAY_AUTH_TOKEN", *RAY_SETTINGS} == set(
        bridge_environment(environ, secrets, local=False)
    )


@pytest.mark.parametrize("spec", [None, SimpleNamespace(origin=None)], ids=["absent", "a namesake folder"])
def test_without_ray_a_sweep_says_what_to_install(spec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FIND_SPEC, lambda _: spec)
    config = load_config("endpoint: http://127.0.0.1:1/v1\nshapes: [8/8]\nworkers: ray\n", "a.yaml")
    with pytest.raises(UsageError) as caught:
        run(HttpBackend(config, {}).prepare(config.deployments[0]))
    assert_golden_row("messages", str(caught.value).replace(shlex.quote(sys.executable), "PYTHON"))


@pytest.mark.process
def test_a_bridge_that_ends_is_said_and_costs_no_sweep_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether Ray is installed or not: Python ends at once where it has no standard library."""
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    monkeypatch.setattr(FIND_SPEC, lambda _: SimpleNamespace(origin="x"))
    with pytest.raises(MeasurementError) as caught:
        run(RayWorkers(None, NO_SECRETS).connect())
    assert_golden_row("messages", str(caught.value).splitlines()[0])


@pytest.mark.parametrize("workers", ["ray", "{ray: ray://head:10001, count: 8}"], ids=["local", "cluster"])
def test_a_plan_says_from_where_the_load_is_sent(workers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FIND_SPEC, lambda _: SimpleNamespace(origin="x"))
    text = f"endpoint: simulator\nshapes: [8/8]\nconcurrency: [2]\nworkers: {workers}\n"
    (tmp_path / "sweep.yaml").write_text(text)
    plan = frontier("sweep", "sweep.yaml", "--dry-run", cwd=tmp_path).out
    (sent_from,) = (line for line in plan.splitlines() if "Ray" in line)
    assert_golden_row("answers", sent_from)


@pytest.mark.parametrize("workers", ["ray", "{ray: ray://head:10001, count: 8}"])
@pytest.mark.parametrize("spec", [None, SimpleNamespace(origin=None)])
def test_a_dry_run_says_that_ray_is_missing_as_the_sweep_does(
    workers: str, spec: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FIND_SPEC, lambda _: spec)
    text = f"endpoint: simulator\nshapes: [8/8]\nconcurrency: [2, 4]\nworkers: {workers}\n"
    (tmp_path / "sweep.yaml").write_text(text)
    dry, real = (frontier("sweep", "sweep.yaml", *more, cwd=tmp_path, here=True) for more in (("--dry-run",), ()))
    assert (2, "") == (dry.code, dry.out)
    assert dry == real
    assert not (tmp_path / "runs").exists()
    with pytest.raises(UsageError) as caught:
        run(RayWorkers(None, NO_SECRETS).connect())
    assert f"error: {caught.value}\n" == dry.err


@pytest.mark.process
@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_cluster_that_is_not_there_is_said_at_once(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FIND_SPEC, lambda _: SimpleNamespace(origin="x"))
    address = f"{scheme}127.0.0.1:{free_port()}"
    with pytest.raises(MeasurementError) as caught:
        run(RayWorkers(address, NO_SECRETS).connect())
    assert address in str(caught.value)
    assert_golden_row("messages", neutral(str(caught.value)))


@pytest.mark.parametrize(("lost", "reached"), [(0, True), (2, True), (3, False)])
def test_a_connection_that_the_head_loses_at_its_fork_is_made_anew(
    lost: int, reached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's own double, as gRPC loses some forks of a busy head, and none on demand."""
    failed = "Initialization failure from server:\nTraceback (most recent call last):\n  File\nRuntimeError: died"
    calls: list[str] = []

    def init(address: str, **_: object) -> None:
        calls.append(address)
        if len(calls) <= lost:
            raise ConnectionAbortedError(failed)

    node = {"Alive": True, "Resources": {"CPU": 1}, "NodeManagerHostname": "a", "NodeID": "1"}
    strategy = SimpleNamespace(NodeAffinitySchedulingStrategy=None)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init, nodes=lambda: [node]))
    monkeypatch.setitem(sys.modules, "ray.exceptions", SimpleNamespace(RayError=OSError))
    monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategy)
    monkeypatch.delitem(sys.modules, "frontier.extras.cluster.ray_bridge", raising=False)
    bridge = importlib.import_module("frontier.extras.cluster.ray_bridge")
    del sys.modules["frontier.extras.cluster.ray_bridge"]
    problem, hosts = bridge.Cluster().open("ray://head:10001", None)
    assert ["ray://head:10001"] * min(lost + 1, 3) == calls
    assert reached is (problem is None)
    assert ["a"] == hosts if reached else "RuntimeError: died" in problem and "Traceback" not in problem


def go(
    asked: Trial, aim: Target, workers: int, address: str | None = None
) -> tuple[Measurement, list[Record], list[str]]:
    """Run the trial on Ray; also the names of its client processes."""
    records: list[Record] = []

    async def all_of_it() -> tuple[Measurement, list[str]]:
        pool = RayWorkers(address, NO_SECRETS)
        try:
            those = await pool.get(workers)
            prompts = PromptPlan(asked.shape, asked.seed)
            found = await run_sharded(asked, aim, prompts, those, on_record=records.append)
            return found, [worker.name for worker in those]
        finally:
            pool.close()

    measurement, names = run(all_of_it())
    return measurement, sorted(records, key=lambda r: r.index), names


@pytest.mark.process
@on_ray
def test_actors_send_the_very_prompts_of_one_process_and_leave_this_one_as_it_was() -> None:
    before = dict(os.environ), signal.getsignal(signal.SIGTERM), sys.excepthook
    with Hostile() as server:
        engine, asked = Engine("ray").install(), trial(requests=60)
        measurement, records, _ = go(asked, target(server, engine), 2)
        source = PromptPlan(asked.shape, asked.seed).source()
        same = sorted(engine.prompts) == sorted(str(source(r.index).content) for r in records)
        assert same, "these are long: no difference is shown"
        assert engine.served == len(records)
    assert "requests" == measurement.ended
    for share in (0, 1):
        mine = [r.index for r in records if r.index % 2 == share]
        assert {share} == {r.stream % 2 for r in records if r.index % 2 == share}
        assert mine == list(range(share, share + 2 * len(mine), 2))
    assert [first_length(20, 7, k) for k in range(8)] == [r.asked_osl for r in records[:8]]
    inside = [r for r in records if measurement.window.start <= r.sent < measurement.window.end]
    assert {Outcome.OK} == {r.outcome for r in inside}
    assert [4, 4] == [worker.streams for worker in measurement.workers]
    assert all(worker.clock_bound < 0.02 for worker in measurement.workers)
    assert before == (dict(os.environ), signal.getsignal(signal.SIGTERM), sys.excepthook)
    assert "ray" not in sys.modules
    assert [] == [p for p in psutil.Process().children(recursive=True) if "ray" in " ".join(p.cmdline())]


@pytest.mark.process
@on_ray
@pytest.mark.slow
def test_the_figures_of_1024_streams_on_ray_are_those_of_one_process() -> None:
    """The embedded engine, whose speed is known: intervals that hold the truth overlap."""
    spec = EngineSpec.from_mapping(
        {"step_base": "100ms", "per_decode": "20us", "per_prefill_token": "1us", "noise": 0.02, "max_num_seqs": 1024}
    )
    asked = replace(trial(1024, 2000, osl=16), min_time=5.0, max_time=60.0)
    with SimulatorProcess(spec) as simulator:
        aim = Target(simulator.url, spec.model_name, "completions", dialect="vllm")
        on_ray_measured, records, _ = go(asked, aim, 2)
        alone: list[Record] = []
        one = run(run_trial(asked, aim, PromptPlan(asked.shape, 8).source(), on_record=alone.append))
    assert 1024 == sum(worker.streams for worker in on_ray_measured.workers)
    assert len({r.index for r in records}) == len(records)
    both = [window_data(m, sorted(r, key=lambda r: r.end)) for m, r in ((on_ray_measured, records), (one, alone))]
    for name in ("output_throughput", "mean_ttft", "mean_tpot", "p90_e2e"):
        a, b = (estimate(data, name) for data in both)
        assert a is not None
        assert b is not None
        print(f"| {name} | " + " | ".join(f"{e.value:.5g} [{e.low:.5g}, {e.high:.5g}]" for e in (b, a)) + " |")
        wide = 0.02 * b.value  # a shared machine disturbs the two differently
        assert a.low <= b.high + wide, (name, a, b)
        assert b.low <= a.high + wide, (name, a, b)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster that is not ours, all on this machine: its address from inside and from
    outside, and its nodes.
    """

    inside: str
    outside: str
    nodes: list[subprocess.Popen[bytes]]


@contextlib.contextmanager
def cluster(nodes: int) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="fr-", dir="/tmp"))
    port, client_port = free_port(), free_port()
    found = Cluster(f"127.0.0.1:{port}", f"ray://127.0.0.1:{client_port}", [])
    head = ["--head", f"--port={port}", f"--ray-client-server-port={client_port}", "--include-dashboard=false"]
    try:
        for number in range(nodes):
            command = [
                sys.executable,
                "-m",
                "ray.scripts.scripts",
                "start",
                "--block",
                "--node-ip-address=127.0.0.1",
                "--num-cpus=1",
                "--object-store-memory=100000000",
                *([f"--address={found.inside}"] if number else [*head, f"--temp-dir={folder}"]),
            ]
            with (folder / f"node{number}.txt").open("wb") as log:
                node = subprocess.Popen(
                    command, env=os.environ | RAY_SETTINGS, stdout=log, stderr=log, start_new_session=True
                )
            found.nodes.append(node)
            wait_for_nodes(found.inside, number + 1)
        yield found
    finally:
        for node in found.nodes:
            kill_tree(node.pid)
            node.wait()
        shutil.rmtree(folder, ignore_errors=True)


def actors_of(node: subprocess.Popen[bytes]) -> int:
    """How many client processes a node has."""
    return sum("ray::ShardHost" in " ".join(p.cmdline()) for p in psutil.Process(node.pid).children(recursive=True))


def wait_for_nodes(address: str, count: int) -> None:
    async def reached() -> int:
        pool = RayWorkers(address, NO_SECRETS)
        try:
            await pool.connect()
            return pool.nodes
        finally:
            pool.close()

    deadline = time.monotonic() + 120
    while True:
        with contextlib.suppress(MeasurementError):
            if run(reached()) == count:
                return
        assert time.monotonic() < deadline
        time.sleep(0.5)


def kill_tree(pid: int) -> None:
    """A node with all its processes, as when a machine is gone."""
    with contextlib.suppress(psutil.Error):
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                process.kill()


@pytest.mark.process
@on_ray
@pytest.mark.slow
def test_a_cluster_of_two_nodes_has_a_client_process_on_each_and_outlives_the_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0123456789abcdef" * 4)
    with cluster(2) as ray, Hostile() as server:
        for address in (ray.inside, ray.outside):
            engine = Engine(f"nodes{len(address)}").install()
            measurement, records, _ = go(trial(), target(server, engine), 2, address)
            assert [4, 4] == [worker.streams for worker in measurement.workers]
            assert len({r.index for r in records}) == len(records) == engine.served
        assert [None, None] == [node.poll() for node in ray.nodes], "a cluster that is not ours is left alone"
        # A node that dies costs the trial.
        engine = Engine("dying", itl=0.05).install()

        async def dying() -> None:
            pool = RayWorkers(ray.inside, NO_SECRETS)
            try:
                those, asked = await pool.get(2), trial(requests=100_000)
                aim, plan = target(server, engine), PromptPlan(asked.shape, 1)
                running = asyncio.create_task(run_sharded(asked, aim, plan, those, on_record=lambda _: None))
                while engine.running < 8:  # noqa: ASYNC110 - it is another thread that counts
                    await asyncio.sleep(0.05)
                assert [1, 1] == [actors_of(node) for node in ray.nodes]
                kill_tree(ray.nodes[1].pid)
                await running
            finally:
                pool.close()

        with pytest.raises(WorkerLostError) as lost:
            run(dying())
        assert "Ray" in str(lost.value)
