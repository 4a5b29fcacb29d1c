"""A trial run by several client processes: the load, the accounting and the figures of one; or no
trial at all."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from frontier import __version__
from frontier.client import run_trial
from frontier.client.ask.prompts import PromptPlan
from frontier.client.ask.target import Target, Timeouts
from frontier.client.http.http_client import run
from frontier.client.load.loop import TrialProgress
from frontier.client.load.processes import CARRIES, LocalWorkers, auto_chooses, auto_facts, workers_needed
from frontier.client.load.rules import StreamStatus, first_length
from frontier.client.load.shard import ShardHost, ShardReport, WorkerInfo, WorkerLostError, run_sharded
from frontier.config import load_config
from frontier.core.estimates.estimate import estimate
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement, Outcome, Phase, Record, Trial
from frontier.core.window.from_records import window_data
from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from frontier.sweep.backend import HttpBackend
from tests.kit.engine import Engine
from tests.kit.golden import assert_golden_row
from tests.kit.hostile import Hostile
from tests.kit.neutral import without_numbers

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with Hostile() as running:
        yield running


LATE = 2.5


@pytest.fixture(autouse=True)
def _busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other work on this machine lets a worker begin late; how late is too late is for one test
    alone.
    """
    monkeypatch.setattr("frontier.client.load.shard.LATE", LATE)


def trial(concurrency: int = 8, requests: int = 40, osl: int = 20, **more: Any) -> Trial:
    times = {"warmup": 0.2, "min_time": 0.3, "max_time": 20.0} | more
    return Trial("d", Shape.of(40, osl), concurrency, 1, Phase.GRID, requests, 7, fingerprint="f", **times)


def target(server: Hostile, engine: Engine) -> Target:
    url = server.url(engine.name) + "/v1"
    return Target(url, "m", "completions", dialect="vllm", timeouts=Timeouts(2.0, 5.0, 2.0, 10.0))


class Here:
    """A worker in this process, whose clock, version and pace a test decides."""

    def __init__(self, number: int, off: float = 0.0, version: str | None = None, slow: float = 0.0) -> None:
        self.name = f"worker {number}"
        self._off, self._slow = off, slow
        self._host = ShardHost(self.clock)
        self._version = version

    def clock(self) -> float:
        return time.perf_counter() + self._off

    async def call(self, method: str, *arguments: Any) -> Any:
        if method == "start":
            await asyncio.sleep(self._slow)
        if method == "info" and self._version is not None:
            return WorkerInfo(self._version)
        return getattr(self._host, method)(*arguments)


def go(
    trial: Trial,
    target: Target,
    workers: int | list[Here],
    tell: Callable[[TrialProgress], None] | None = None,
    stop_when: Callable[[], bool] | None = None,
) -> tuple[Measurement, list[Record]]:
    """Run the trial on so many real processes, or on these workers."""
    records: list[Record] = []

    async def all_of_it() -> Measurement:
        stop, local = asyncio.Event(), LocalWorkers()

        async def watch() -> None:
            while stop_when is None or not stop_when():  # noqa: ASYNC110 - the condition is another thread's
                await asyncio.sleep(0.01)
            stop.set()

        watching = asyncio.create_task(watch())
        prompts = PromptPlan(trial.shape, trial.seed)
        try:
            those = local.get(workers) if isinstance(workers, int) else workers
            return await run_sharded(
                trial, target, prompts, those, on_record=records.append, on_progress=tell, stop=stop
            )
        finally:
            watching.cancel()
            local.close()

    return run(all_of_it()), sorted(records, key=lambda r: r.index)


def test_processes_send_the_very_prompts_of_one_and_every_request_is_on_record_once(server: Hostile) -> None:
    engine, asked, seen = Engine("two").install(), trial(requests=60), []
    measurement, records = go(asked, target(server, engine), 2, seen.append)

    assert "requests" == measurement.ended
    for share in (0, 1):
        mine = [r.index for r in records if r.index % 2 == share]
        assert {share} == {r.stream % 2 for r in records if r.index % 2 == share}
        assert mine == list(range(share, share + 2 * len(mine), 2))
    source = PromptPlan(asked.shape, asked.seed).source()
    same = sorted(engine.prompts) == sorted(str(source(r.index).content) for r in records)
    assert same, "these are long: no difference is shown"
    assert [first_length(20, 7, k) for k in range(8)] == [r.asked_osl for r in records[:8]]
    assert [r.stream for r in records[:8]] == list(range(8))
    assert {r.stream for r in records} == set(range(8))
    assert engine.served == len(records)
    ended = [r for r in records if r.outcome is Outcome.OK]
    assert {Outcome.OK, Outcome.CANCELLED} >= {r.outcome for r in records}
    assert engine.generated >= sum(r.completion_tokens or 0 for r in ended)

    window = measurement.window
    inside = [r for r in records if window.start <= r.sent < window.end]
    assert {Outcome.OK} == {r.outcome for r in inside}
    assert len(inside) >= 60
    assert [4, 4] == [worker.streams for worker in measurement.workers]
    assert measurement.health.send_late_p99 == max(w.health.send_late_p99 or 0 for w in measurement.workers)
    assert measurement.health.connections_opened == 8
    assert "ramp" == seen[0].stage
    assert seen[-1].rate is not None


def test_more_processes_than_streams_leave_some_without(server: Hostile) -> None:
    engine = Engine("few").install()
    measurement, records = go(trial(2, 20), target(server, engine), [Here(i) for i in range(4)])
    assert [1, 1] == [worker.streams for worker in measurement.workers]
    assert {0, 1} == {r.stream for r in records}


@pytest.mark.slow
def test_the_figures_of_two_processes_are_those_of_one() -> None:
    """The embedded engine, whose speed is known: intervals that hold the truth overlap."""
    spec = EngineSpec.from_mapping(
        {"step_base": "4ms", "per_decode": "50us", "per_prefill_token": "5us", "noise": 0.05}
    )
    asked = replace(trial(8, 150, osl=16), min_time=1.0)
    with SimulatorProcess(spec) as simulator:
        aim = Target(simulator.url, spec.model_name, "completions", dialect="vllm")
        several, records = go(asked, aim, 2)
        alone: list[Record] = []
        prompts = PromptPlan(asked.shape, 8).source()
        one = run(run_trial(asked, aim, prompts, on_record=alone.append))

    both = [window_data(m, sorted(r, key=lambda r: r.end)) for m, r in ((several, records), (one, alone))]
    for name in ("output_throughput", "mean_ttft", "mean_tpot", "p90_e2e"):
        a, b = (estimate(data, name) for data in both)
        assert a is not None
        assert b is not None
        wide = 0.02 * b.value  # a shared machine disturbs the two differently
        assert a.low <= b.high + wide, name
        assert b.low <= a.high + wide, name
    assert not [worker for worker in several.workers if worker.clock_bound > 0.01]


@pytest.mark.parametrize("minutes", [10.0, pytest.param(-10.0, marks=pytest.mark.slow)])
def test_a_clock_that_is_minutes_off_changes_nothing(server: Hostile, minutes: float) -> None:
    engine = Engine(f"off{minutes:.0f}").install()
    workers = [Here(0), Here(1, off=60 * minutes)]
    measurement, records = go(trial(6, 60), target(server, engine), workers)
    assert measurement.workers[1].clock_offset == pytest.approx(60 * minutes, abs=0.02)
    assert measurement.workers[1].clock_bound < 0.05
    for parity in (0, 1):
        mine = [r for r in records if r.stream % 2 == parity]
        assert mine[0].sent == pytest.approx(0.0, abs=LATE)  # as late as a worker may begin
        assert all(0.0 <= r.end - r.sent < 5 for r in mine)
    zero = measurement.epoch - (time.time() - time.perf_counter())
    served = sorted(start - zero for start, _ in engine.spans)
    sent = sorted(r.sent for r in records)
    assert served
    assert all(a == pytest.approx(b, abs=0.1) for a, b in zip(served, sent, strict=True))


@pytest.mark.parametrize("worker", [Here(1, version="0.0.1"), Here(1, slow=LATE + 0.5)], ids=["version", "late"])
def test_a_worker_of_another_version_or_late_makes_no_trial(server: Hostile, worker: Here) -> None:
    engine = Engine("mixed").install()
    with pytest.raises(WorkerLostError) as lost:
        go(trial(2, 8), target(server, engine), [Here(0), worker])
    assert worker.name in lost.value.what
    assert_golden_row("messages", without_numbers(str(lost.value).replace(__version__, "VERSION")))


def test_a_clock_that_runs_at_another_pace_makes_no_trial(server: Hostile) -> None:
    engine, drifting = Engine("drifting").install(), Here(1)
    began = time.perf_counter()
    drifting.clock = lambda: time.perf_counter() + 0.1 * (time.perf_counter() - began)  # type: ignore[method-assign]
    drifting._host = ShardHost(drifting.clock)
    with pytest.raises(WorkerLostError) as lost:
        go(trial(2, 8), target(server, engine), [Here(0), drifting])
    assert drifting.name in lost.value.what
    assert_golden_row("messages", without_numbers(str(lost.value)))


class Slow(Here):
    """A worker that takes longer than the others to say that it has ended."""

    asked_in_vain = 0

    async def call(self, method: str, *arguments: Any) -> Any:
        if method == "exchange" and arguments[0].over and self.asked_in_vain < 3:
            self.asked_in_vain += 1
            return ShardReport(StreamStatus(0.0), ())
        return await super().call(method, *arguments)


def test_a_worker_that_ends_later_than_the_others_gives_no_record_twice(server: Hostile) -> None:
    engine = Engine("unequal").install()
    _, records = go(trial(4, 20), target(server, engine), [Here(0), Slow(1)])
    assert len(records) == len({r.index for r in records}) == engine.served


def test_stop_ends_all_processes_at_once_with_everything_on_record(server: Hostile) -> None:
    engine = Engine("stopped_two", ttft=5.0).install()
    began = time.perf_counter()
    measurement, records = go(
        trial(6), target(server, engine), [Here(0), Here(1)], stop_when=lambda: engine.running == 6
    )
    assert time.perf_counter() - began < 5
    assert "interrupted" == measurement.ended
    assert [Outcome.CANCELLED] * 6 == [r.outcome for r in records]


@pytest.mark.slow
def test_a_server_that_is_gone_for_all_processes_ends_the_trial() -> None:
    asked = trial(4, 100000)
    nowhere = Target("http://127.0.0.1:1", "m", "chat", dialect="vllm")
    measurement, records = go(asked, nowhere, [Here(0), Here(1)])
    assert "server_lost" == measurement.ended
    assert {Outcome.CONNECT} >= {r.outcome for r in records} - {Outcome.CANCELLED}


@pytest.mark.parametrize(
    ("machine", "rate", "streams", "expected"),
    [
        (8, None, 4096, 1),  # nothing is measured yet
        (8, 39_000.0, 128, 1),
        (8, 41_000.0, 128, 2),
        (8, 1e7, 4096, 7),  # one core is left
        (2, 1e7, 4096, 1),
        (8, 1e7, 3, 3),
    ],
)
def test_so_many_processes_are_taken_as_the_event_rate_needs_and_the_cores_allow(
    machine: int, rate: float | None, streams: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontier.client.load.processes.cores", lambda: machine)
    assert expected == workers_needed(rate, streams)


def test_what_auto_chooses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontier.client.load.processes.cores", lambda: 8)
    several, facts = auto_chooses(), auto_facts()
    assert (40_000, 8, 7) == (facts["events_per_second"], facts["cores"], facts["most"])
    monkeypatch.setattr("frontier.client.load.processes.cores", lambda: 2)
    assert 1 == auto_facts()["most"]
    assert_golden_row("answers", "\n".join((CARRIES, several, auto_chooses())))


def test_a_sweep_expects_the_rate_from_the_nearest_latency_and_takes_one_process_fewer_for_a_lost_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("frontier.client.load.processes.cores", lambda: 8)
    text = "endpoint: http://127.0.0.1:1/v1\nshapes: [32/20]\n"
    asked = trial(600)  # 20 tokens each
    chosen, stated = (HttpBackend(load_config(text + more, "a.yaml"), {}) for more in ("", "workers: 4\n"))
    assert [1, 1, 4] == [chosen.workers(asked, e2e) for e2e in (None, 0.4, 0.08)]  # 30,000 and 150,000 events/s
    assert [4, 2] == [stated.workers(one, None) for one in (asked, trial(2))]

    class Lost(LocalWorkers):
        def get(self, count: int) -> Any:
            raise WorkerLostError(f"one of {count}")

    async def unchanged(ready: Any) -> None:
        return None

    ready: Any = SimpleNamespace(target=Target("http://127.0.0.1:1/v1"))
    monkeypatch.setattr("frontier.sweep.backend.changed", unchanged)
    monkeypatch.setattr(stated, "_processes", Lost())
    monkeypatch.setattr(stated, "_ready", {asked.deployment: ready})
    monkeypatch.setattr(stated, "_calibrations", {asked.deployment: None})
    how: dict[str, Any] = {"on_record": print, "on_tick": print, "stop": asyncio.Event(), "expected_e2e": None}
    for expected in ("one of 4", "one of 3"):
        with pytest.raises(WorkerLostError, match=expected):
            run(stated.run(asked, **how))
    assert 2 == stated.workers(asked, None)
    assert 4 == stated.workers(replace(asked, repeat=2), None)
