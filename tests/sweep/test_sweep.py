import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from frontier.config import DeploymentConfig, load_config
from frontier.errors import MeasurementError
from frontier.model import ClientHealth, Measurement, Phase, Trial, Verdict
from frontier.plan import make_plan
from frontier.report.report import page_of, report_of
from frontier.run import load
from frontier.store.run_dir import RunDirectory
from frontier.sweep.backend import Facts, VirtualBackend
from frontier.sweep.conductor import Conductor
from tests.sweeps import (
    ENGINES,
    Clock,
    Told,
    clocked,
    conduct_by_the_clock,
    config_text,
    open_run,
    sweep_in_virtual_time,
    swept,
    true_operating_point,
)

GRID = (1, 2, 4, 8, 16, 32, 64)


@pytest.mark.parametrize("family", ENGINES)
def test_the_operating_point_is_the_true_one(family: str, tmp_path: Path) -> None:
    text = config_text(ENGINES[family], requests=800)
    run, _, end = sweep_in_virtual_time(tmp_path / "run", text)
    (decision,) = run.solve()
    assert (end, true_operating_point(text, GRID)) == ("finished", decision.concurrency)
    assert decision.verdict is (Verdict.VIOLATES if family == "infeasible" else Verdict.MEETS)


@pytest.mark.slow
def test_refining_finds_a_higher_setting_that_truly_meets(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"], sla="{p99_tpot: 8ms}", refine=4)
    run, told, _ = sweep_in_virtual_time(tmp_path / "run", text)
    (decision,) = run.solve()
    limit = true_operating_point(text, range(1, 65))
    assert limit is not None
    assert decision.concurrency is not None
    assert 0.7 * limit <= decision.concurrency <= limit
    assert decision.concurrency not in GRID
    assert any(trial.phase is Phase.CONFIRM for trial in told.finished)


def test_each_tier_gets_an_operating_point_of_its_own_from_one_search(tmp_path: Path) -> None:
    sla = "{slow: {p90_tpot: 8.2ms}, fast: {p90_tpot: 6.4ms}}"
    text = config_text(ENGINES["smooth"], sla=sla, requests=60, refine=4)
    run, told, _ = sweep_in_virtual_time(tmp_path / "run", text)
    slow, fast = (a.decisions[0].concurrency or 0 for a in run.answers())
    rungs = [trial.concurrency for trial in told.finished if trial.phase is Phase.CONFIRM]
    assert rungs[0] < 8 < rungs[-1]
    assert {slow, fast} <= set(rungs)
    assert fast < slow
    assert 4 >= len({(t.phase, t.concurrency) for t in told.finished if t.phase is not Phase.GRID})


def test_the_same_sweep_again_measures_nothing_and_says_the_same(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"], refine=2)
    first, _, _ = sweep_in_virtual_time(tmp_path / "run", text)
    again, told, end = sweep_in_virtual_time(tmp_path / "run", text)
    assert (end, []) == ("finished", told.finished)
    assert first.solve() == again.solve()


class Down(VirtualBackend):
    """A server that no longer answers."""

    async def prepare(self, deployment: DeploymentConfig) -> Facts:
        raise MeasurementError(f"cannot reach {deployment.name}")


HOPELESS = "{step_base: 5ms, per_decode: 20us, per_prefill_token: 100us, max_num_seqs: 8}"  # at the higher settings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (config_text(ENGINES["smooth"], requests=100, refine=2), "finished"),
        (config_text(HOPELESS, sla="{p99_ttft: 40ms}", requests=300), "finished"),
        (config_text(ENGINES["smooth"], requests=100) + "budget: {requests: 1000}\n", "budget"),
    ],
)
def test_with_nothing_left_to_measure_no_server_is_asked(text: str, expected: str, tmp_path: Path) -> None:
    first, before, end = sweep_in_virtual_time(tmp_path / "run", text)
    assert end == expected
    config, told = load_config(text, "sweep.yaml"), Told()
    with open_run(tmp_path / "run", config, text) as run:
        backend = Down({})
        conductor = Conductor(config, make_plan(config), run, backend, told, asyncio.Event())
        assert expected == asyncio.run(conductor.conduct())
    assert [] == told.finished
    assert first.solve() == load(tmp_path / "run").solve()
    assert first.skipped == load(tmp_path / "run").skipped
    assert {n for n in before.notes if "not measured" in n} == {n for n in told.notes if "not measured" in n}


def test_with_something_left_to_measure_a_server_that_is_down_is_said(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"], requests=100)
    swept(tmp_path / "run", text)
    (tmp_path / "run" / "trials" / "default-256x32-c0004-grid-r2.jsonl").unlink()
    config = load_config(text, "sweep.yaml")
    with open_run(tmp_path / "run", config, text) as run:
        conductor = Conductor(config, make_plan(config), run, Down({}), Told(), asyncio.Event())
        with pytest.raises(MeasurementError, match="cannot reach default"):
            asyncio.run(conductor.conduct())


def test_a_lost_trial_is_measured_again_and_the_answer_is_the_uninterrupted_one(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"])
    whole, _, _ = sweep_in_virtual_time(tmp_path / "whole", text)
    swept(tmp_path / "run", text)
    lost = [tmp_path / "run" / "trials" / f"default-256x32-c{c:04d}-grid-r2.jsonl" for c in (4, 16)]
    for file in lost:
        file.unlink()
    resumed, told, _ = sweep_in_virtual_time(tmp_path / "run", text)
    assert {4, 16} == {trial.concurrency for trial in told.finished}
    assert whole.solve() == resumed.solve()
    assert whole.points() == resumed.points()


def test_derived_files_can_be_deleted_or_damaged_without_changing_the_answer(tmp_path: Path) -> None:
    run, _, _ = sweep_in_virtual_time(tmp_path / "run", config_text(ENGINES["smooth"]))
    before = run.points()
    samples = sorted((tmp_path / "run" / "derived" / "samples").iterdir())
    assert samples
    samples[0].unlink()
    samples[1].write_bytes(b"not a sample")
    samples[2].write_bytes(samples[2].read_bytes()[:1000])
    again, _, _ = sweep_in_virtual_time(tmp_path / "run", config_text(ENGINES["smooth"]))
    assert before == again.points()


def test_settings_far_beyond_the_sla_are_skipped_and_said_to_be(tmp_path: Path) -> None:
    text = config_text("{step_base: 5ms, per_decode: 20us, per_prefill_token: 100us, max_num_seqs: 8}", requests=300)
    told, _ = swept(tmp_path / "run", text.replace("50ms", "40ms"))
    assert any(note.startswith("skipped") for note in told.notes)


def test_a_frame_has_a_row_per_point_with_intervals(tmp_path: Path) -> None:
    run, _, _ = sweep_in_virtual_time(tmp_path / "run", config_text(ENGINES["smooth"]))
    frame = run.frame()
    assert list(GRID) == list(frame["concurrency"])
    assert (frame["p99_ttft_low"] <= frame["p99_ttft"]).all()
    assert (frame["p99_ttft"] <= frame["p99_ttft_high"]).all()


def test_a_spent_budget_ends_the_sweep_with_what_is_finished(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"]) + "budget: {requests: 5000}\n"
    run, told, end = sweep_in_virtual_time(tmp_path / "run", text)
    assert end == "budget"
    assert [1, 8, 2, 32, 4, 16, 64] == [t.concurrency for t in told.finished if t.repeat == 1]
    assert 7 < len(told.finished) < 21
    assert run.points()
    lines = RunDirectory.read(run.path).journal_lines()
    spent = lines[-1]["spent"]["requests"]
    assert 4000 < spent <= 5000
    assert spent == sum(line["sent"] for line in lines if line["event"] == "trial_done")
    (dropped,) = [line for line in lines if line["event"] == "dropped"]
    assert "requests 5,000" in dropped["reason"]
    assert 21 == len(told.finished) + len(dropped["trials"])
    assert any(note.endswith("; the budget had no room: requests 5,000") for note in told.notes)
    assert set(dropped["trials"]) == set(run.skipped)
    (said,) = [line for line in page_of(report_of(run, run.limits())).health if line.startswith("Not measured")]
    assert "the budget had no room: requests 5,000" in said


def test_what_earlier_sessions_spent_counts(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"]) + "budget: {requests: 5000}\n"
    swept(tmp_path / "run", text)
    told, end = swept(tmp_path / "run", text)
    assert ("budget", []) == (end, told.finished)
    told, end = swept(tmp_path / "run", text.replace("5000", "6000"))
    assert end == "budget"
    assert 1 <= len(told.finished) <= 3


def sweep_by_the_clock(path: Path, text: str) -> tuple[Clock, Told, str]:
    backend = clocked(text)
    return backend, *conduct_by_the_clock(path, text, backend)


def test_a_budget_of_time_is_kept_and_most_of_it_used(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"], refine=2)
    whole, _, _ = sweep_by_the_clock(tmp_path / "whole", text)
    spent = whole.now - Clock.now
    backend, fewer, end = sweep_by_the_clock(tmp_path / "run", text + f"budget: {{time: {spent * 0.6:.0f}s}}\n")
    assert end == "budget"
    assert 0.45 * spent < backend.now - Clock.now <= 0.6 * spent
    phases = [t.phase for t in fewer.finished]
    assert Phase.CONFIRM in phases, "the refinement is worth more than the other repeats"
    assert all(t.repeat == 1 for t in fewer.finished[: phases.index(Phase.CONFIRM)])
    assert any("no room in the budget" in note for note in fewer.notes), "said early"
    assert load(tmp_path / "run").solve()[0].verdict is Verdict.MEETS


def test_a_deadline_is_kept(tmp_path: Path) -> None:
    at = Clock.now + 400
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
    backend, _, end = sweep_by_the_clock(
        tmp_path / "run", config_text(ENGINES["smooth"]) + f"budget: {{until: '{until}'}}\n"
    )
    assert end == "budget"
    assert at - 180 < backend.now <= at


class Busy(VirtualBackend):
    """The client is too busy in the first `busy` trials it runs."""

    busy = 1

    async def run(self, trial: Trial, **how: Any) -> Measurement:
        measurement = await super().run(trial, **how)
        self.busy -= 1
        health = ClientHealth(loop_lag_p99=0.2, cpu_share=0.99) if self.busy >= 0 else ClientHealth(loop_lag_p99=1e-4)
        return replace(measurement, health=health)


@pytest.mark.parametrize(("busy", "again"), [(1, 1), (50, 2)])
def test_a_trial_this_machine_was_too_busy_for_is_measured_once_more(busy: int, again: int, tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"], requests=100).replace("repeats: 3", "repeats: 1")
    config = load_config(text, "sweep.yaml")
    backend = Busy({"default": config.deployments[0].engine_spec()})
    backend.busy = busy
    with open_run(tmp_path / "run", config, text) as run:
        conductor = Conductor(config, make_plan(config), run, backend, Told(), asyncio.Event())
        assert asyncio.run(conductor.conduct()) == "finished"
        repeated = [line for line in run.journal_lines() if line["event"] == "measured_again"]
    assert (again, 7) == (len(repeated), len(run.finished()))
    bound = [p.concurrency for p in load(tmp_path / "run").points() if "client_bound" in {f.name for f in p.flags}]
    assert bound == ([] if busy == 1 else [1, 2, 4, 8, 16, 32, 64])


def test_a_trial_there_is_no_room_to_measure_again_counts_as_it_is(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"], requests=100).replace("repeats: 3", "repeats: 1")
    config, told = load_config(text + "budget: {requests: 120}\n", "sweep.yaml"), Told()
    backend = Busy({"default": config.deployments[0].engine_spec()})
    with open_run(tmp_path / "run", config, text) as run:
        assert (
            asyncio.run(Conductor(config, make_plan(config), run, backend, told, asyncio.Event()).conduct()) == "budget"
        )
        (dropped,) = [line["trials"] for line in run.journal_lines() if line["event"] == "dropped"]
        assert (1, 6) == (len(run.finished()), len(dropped))
    assert [1] == [trial.concurrency for trial in told.finished]


def test_a_point_faster_than_the_described_hardware_is_flagged_and_never_chosen(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"], requests=100).replace("repeats: 3", "repeats: 1")
    slow = "hardware: {memory_bandwidth: 1TB/s, weights: 8GB, kv_per_token: 131kB}\n"
    run, _, _ = sweep_in_virtual_time(tmp_path / "run", text + slow)
    fast = [p.concurrency for p in run.points() if "faster_than_light" in {f.name for f in p.flags}]
    assert 1 in fast  # 190 tok/s, where 8 GB at 1 TB/s allow 125
    assert 64 not in fast
