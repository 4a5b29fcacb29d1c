"""Several client processes in a whole sweep: `workers: auto` over HTTP, and client processes that
fail repeatedly."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frontier.client.load.shard import WorkerLostError
from frontier.config import Config, load_config
from frontier.core.model.trials import Measurement, Trial
from frontier.extras.api.virtual_backend import VirtualBackend
from frontier.planning.plan import make_plan
from frontier.read_run import load
from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from frontier.store.run_dir import RunDirectory
from frontier.sweep.backend import HttpBackend
from frontier.sweep.conductor import Conductor, SweepEnd
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import line_of
from tests.kit.sweeps import ENGINES, Told, config_text, open_run

SWEEP = """\
endpoint: {url}
shapes: [32/16]
concurrency: [1, 8]
requests: 40
repeats: 1
refine: 0
warmup: 100ms
max_time: 20s
"""


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    spec = EngineSpec.from_mapping({"step_base": "4ms", "per_decode": "20us", "per_prefill_token": "5us"})
    with SimulatorProcess(spec) as running:
        yield running


def conduct(path: Path, text: str, backend: Any, told: Told) -> SweepEnd:
    config = load_config(text, "sweep.yaml")

    async def go() -> SweepEnd:
        made = backend(config)
        return await Conductor(config, make_plan(config), run, made, told, asyncio.Event()).conduct()

    with open_run(path, config, text) as run:
        return asyncio.run(go())


def measurements(path: Path) -> dict[int, Measurement]:
    return {m.trial.load: m for m in RunDirectory.read(path).finished().values()}


@pytest.mark.process
def test_auto_takes_a_second_process_where_the_measured_latency_asks_for_it(
    simulator: SimulatorProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One stream gets some 230 tokens a second, so eight are expected to get over 1,200, and 1,000
    are set as the most of one process; what they then get is sent by two.
    """
    monkeypatch.setattr("frontier.client.load.processes.cores", lambda: 8)
    monkeypatch.setattr("frontier.client.load.processes.EVENTS_PER_WORKER", 1_000)
    told, path = Told(), tmp_path / "runs" / "auto"
    text = SWEEP.format(url=simulator.url)
    assert "finished" == conduct(path, text, lambda config: HttpBackend(config, {}), told)
    found = measurements(path)
    assert () == found[1].workers
    assert [4, 4] == [worker.streams for worker in found[8].workers]
    assert (None, 2) == (found[1].health.processes, found[8].health.processes)
    assert found[8].health.clock_bound == max(worker.clock_bound for worker in found[8].workers)
    (note,) = {note for note in told.notes if "client processes" in note}  # said again where it is measured again
    assert_golden_row("progress", note)
    begun = [line for line in RunDirectory.read(path).journal_lines() if line["event"] == "trial_begun"]
    assert [None, 2] == [line.get("client_processes") for line in begun][:2]
    records = list(RunDirectory.read(path).records(found[8].trial.key))
    assert set(range(8)) == {record.stream for record in records}
    assert len({record.index for record in records}) == len(records)
    assert frontier("report", "runs/auto", "-o", "page.md", cwd=tmp_path).code == 0
    assert_golden_row("pages", line_of((tmp_path / "page.md").read_text(), "client processes |"), "report")


class Losing(VirtualBackend):
    """Client processes fail under every trial of this concurrency, `times` times."""

    def __init__(self, config: Config, concurrency: int, times: int) -> None:
        super().__init__({d.name: d.engine_spec() for d in config.deployments})
        self.concurrency, self.left = concurrency, times
        self.tried: list[int] = []

    async def run(self, trial: Trial, **how: Any) -> Measurement:
        self.tried.append(trial.load)
        if trial.load == self.concurrency and self.left:
            self.left -= 1
            raise WorkerLostError("client process 3 (pid 17) was lost: signal 9 ended it")
        return await super().run(trial, **how)


def losing(path: Path, text: str, concurrency: int, times: int) -> tuple[SweepEnd, Losing, Told]:
    made, told = Losing(load_config(text, "sweep.yaml"), concurrency, times), Told()
    return conduct(path, text, lambda _: made, told), made, told


@pytest.mark.fault("client processes that fail under a trial again and again", times=1)
def test_a_setting_under_which_client_processes_fail_three_times_is_put_off_and_tried_once_more(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"], sla="{}", requests=40).replace("repeats: 3", "repeats: 1")
    end, backend, told = losing(tmp_path / "run", text.replace("sla: {}\n", ""), 8, times=3)
    assert ("finished", 4) == (end, backend.tried.count(8))
    assert [1, 2, 4, 8, 16, 32, 64] == sorted(measurements(tmp_path / "run"))
    assert_golden_row("progress", "\n".join(note for note in told.notes if "process" in note))
    assert {} == load(tmp_path / "run").skipped


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.fault("client processes that fail under a trial again and again", times=1)
def test_a_setting_under_which_client_processes_always_fail_is_left_out_and_the_lower_ones_decide(
    tmp_path: Path,
) -> None:
    text = config_text(ENGINES["smooth"], requests=400, refine=6).replace("requests: 400\n", "")
    end, backend, _ = losing(tmp_path / "run", text, 16, times=99)
    assert "finished" == end
    run = load(tmp_path / "run")
    assert max(backend.tried) == 16 > max(measurements(tmp_path / "run"))
    assert 6 == backend.tried.count(16)  # by the search, and once more at the end
    assert {16, 32, 64} == {int(key.split("-c")[1][:4]) for key in run.skipped}
    assert_golden_row("progress", "\n".join(sorted(set(run.skipped.values()))))
    (decision,) = run.solve()
    assert decision.load == 8
