"""Whole sweeps over real HTTP in real time: the operating point is the one the engine's virtual
twin says is true."""

import asyncio
import time
from pathlib import Path

import pytest

from frontier.config import Config, load_config
from frontier.config.config_file import with_trace
from frontier.planning.plan import make_plan
from frontier.read_run import load
from frontier.run import Run
from frontier.show.view.explain import with_notes
from frontier.sweep.backend import HttpBackend
from frontier.sweep.conductor import Conductor, SweepEnd
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import Told, open_run, true_operating_point
from tests.kit.virtual_truth import truth

GRID = (2, 8, 16, 32)

# (engine, SLA, requests): the limit stands well between two settings of the truth, by more than
# loopback and a busy machine add.
CASES = {
    "smooth": ("{step_base: 8ms, per_decode: 100us, per_prefill_token: 20us, noise: 0.05}", "{p90_tpot: 14.5ms}", 250),
    "KV cliff": (
        "{step_base: 8ms, per_decode: 50us, per_prefill_token: 20us, noise: 0.05, kv_tokens: 4000}",
        "{p90_ttft: 60ms}",
        250,
    ),
    "infeasible": ("{step_base: 30ms, per_decode: 60us, per_prefill_token: 20us, noise: 0.05}", "{p90_ttft: 30ms}", 60),
}


def text_of(engine: str, sla: str, grid: tuple[int, ...] = GRID, requests: int = 250) -> str:
    return f"""\
endpoint: simulator
simulator: {engine}
shapes: [{{isl: {{uniform: [200, 312]}}, osl: {{uniform: [24, 40]}}, name: mixed}}]
concurrency: {list(grid)}
sla: {sla}
requests: {requests}
repeats: 1
refine: 0
max_time: 25s
"""


def sweep_over_http(path: Path, text: str) -> tuple[Run, Told, SweepEnd]:
    config, told = with_trace(load_config(text, "sweep.yaml")), Told()

    async def go() -> SweepEnd:
        backend = HttpBackend(config, {})
        return await Conductor(config, make_plan(config), run, backend, told, asyncio.Event()).conduct()

    with open_run(path, config, text) as run:
        end = asyncio.run(go())
    return load(path), told, end


@pytest.mark.nightly
@pytest.mark.chance
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("family", CASES)
def test_the_operating_point_over_http_is_the_true_one(family: str, tmp_path: Path) -> None:
    engine, sla, requests = CASES[family]
    text = text_of(engine, sla, requests=requests)
    true = true_operating_point(text, GRID)
    for attempt in range(3):
        run, _, end = sweep_over_http(tmp_path / f"run{attempt}", text)
        (decision,) = run.solve()
        if (end, true) == ("finished", decision.load):
            return
        busy = [p.load for p in run.points() if "client_bound" in {f.name for f in p.flags}]
        assert busy, (end, true, with_notes(decision).notes)
    pytest.skip("this machine was too busy to measure on, three times, and the sweep said so")


def unlike_its_twin(run: Run, config: Config) -> list[str]:
    """Where a run's figures are further from virtual time's than their own intervals, 3% and a
    millisecond a token.
    """
    spec, shape = config.deployments[0].engine_spec(), config.shapes[0]
    off = []
    for point in run.points():
        for name, late in (("mean_ttft", 2e-3), ("mean_tpot", 1e-3), ("mean_e2e", 40e-3), ("output_throughput", 0.0)):
            said, twin = point.metrics[name], truth(spec, shape, point.load, name, requests=3_000)
            if not said.low - 0.03 * twin - late <= twin <= said.high + 0.03 * twin:
                off.append(f"c={point.load} {name}: {said} over HTTP, {twin} in virtual time")
    return off


@pytest.mark.process
@pytest.mark.slow
def test_a_sweep_over_http_and_its_virtual_twin_agree(tmp_path: Path) -> None:
    engine = "{step_base: 6ms, per_decode: 50us, per_prefill_token: 20us, noise: 0.05}"
    text = text_of(engine, "{p90_ttft: 10s}", (4, 16), 100)
    config = load_config(text, "sweep.yaml")
    for attempt in range(3):
        run, _, _ = sweep_over_http(tmp_path / f"run{attempt}", text)
        assert (4, 16) == tuple(point.load for point in run.points())
        off = unlike_its_twin(run, config)
        if not off:
            return
        assert not all(point.valid for point in run.points()), off
    pytest.skip("this machine was too busy to measure on, three times, and the sweep said so")


@pytest.mark.process
@pytest.mark.slow
def test_a_small_sweep_over_http_ends_in_points_with_evidence(tmp_path: Path) -> None:
    text = text_of("{step_base: 3ms, per_decode: 20us}", "{p90_ttft: 10s}", (1, 4), 40)
    run, told, end = sweep_over_http(tmp_path / "run", text)
    if any("client_bound" in {f.name for f in p.flags} for p in run.points()):
        pytest.skip("this machine was too busy to measure on, and the sweep said so")
    assert (end, 2) == ("finished", len(told.finished))
    one, four = run.points()
    assert (1, 4) == (one.load, four.load)
    assert one.n >= 40
    assert one.metrics["error_rate"].value == 0
    assert four.metrics["output_throughput"].value > one.metrics["output_throughput"].value
    (history,) = run.histories.values()
    for trial, sample in history:
        assert sample.in_flight.mean() == pytest.approx(trial.load, rel=0.02)
        assert (sample.completion_tokens == sample.asked_osl).all()
        assert abs(sample.prompt_tokens - sample.asked_isl).mean() <= 2
        assert sample.server[0], "the server's own metrics are evidence"


@pytest.mark.process
@pytest.mark.slow
def test_a_trial_that_runs_over_the_budgets_time_is_cut_off_and_said_to_be(tmp_path: Path) -> None:
    text = text_of("{step_base: 3ms, per_decode: 20us}", "{p90_ttft: 10s}", (1, 4), 900_000) + "budget: {time: 4s}\n"
    config, told = load_config(text, "sweep.yaml"), Told()

    async def go() -> SweepEnd:
        return await Conductor(config, make_plan(config), run, HttpBackend(config, {}), told, asyncio.Event()).conduct()

    began = time.monotonic()
    with open_run(tmp_path / "run", config, text) as run:
        assert asyncio.run(go()) == "budget"
        lines = run.journal_lines()
    assert time.monotonic() - began < 25, "not the 25 s a trial may take, twice"
    (cut,) = [line for line in lines if line.get("ended") == "budget"]
    assert cut["sent"] > 0, "what was sent is kept"
    reasons = {line["reason"]: line["trials"] for line in lines if line["event"] == "dropped"}
    assert_golden_row("progress", "\n".join(sorted(reasons)))
    assert 2 == sum(len(trials) for trials in reasons.values())
