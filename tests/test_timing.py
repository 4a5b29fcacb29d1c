"""How long trials will take: from what was measured, from the curves fitted to it, from the
hardware, in that order."""

import dataclasses
from pathlib import Path

import pytest

from frontier.budget import Amount, TrialTimes
from frontier.config import load_config
from frontier.decide.prediction import Assumption, grid_advice, rough_e2e
from frontier.forecast import ASSUMED_TPOT, TimeEstimator
from frontier.model import Shape
from frontier.plan import make_plan
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import closed_loop_arrays
from tests.commands import frontier
from tests.golden import assert_golden_row
from tests.sweeps import sweep_in_virtual_time

BARE = """\
endpoint: http://localhost:8000/v1
model: llama-3.1-8b
shapes: [1024/256, 128/64]
concurrency: [1, 8, 64]
requests: 200
repeats: 2
"""


def test_a_setting_that_was_measured_takes_as_long_again() -> None:
    config = load_config(BARE + "hardware: h100\n", "s")
    trials = make_plan(config).trials
    again = [t for t in trials if (t.shape, t.concurrency) == (trials[0].shape, trials[0].concurrency)]
    assert len(again) == 2
    pace = TrialTimes(((again[0], Amount(77.0, 200)),))
    assert 77.0 == TimeEstimator(config).seconds(again[1], pace, {})


def test_where_nothing_is_described_and_nothing_measured_a_pace_is_assumed() -> None:
    config = load_config(BARE, "s")
    estimator, trial = TimeEstimator(config), make_plan(config).trials[0]
    assert not estimator.knows(TrialTimes())
    assert_golden_row("answers", estimator.basis(TrialTimes()))
    answer = trial.shape.osl.mean * ASSUMED_TPOT
    window = 300  # 200 requests one after another take longer than a window may
    assert window + 4 * answer == pytest.approx(estimator.seconds(trial, TrialTimes(), {}), rel=0.01)


def test_described_hardware_speaks_from_the_start_and_is_corrected_by_what_is_found() -> None:
    config = load_config(BARE + "hardware: h100\n", "s")
    trials = make_plan(config).trials
    timing = TimeEstimator(config)
    first, other = trials[0], next(t for t in trials if t.shape == trials[0].shape and t.concurrency == 64)
    guess, guessed = (timing.seconds(t, TrialTimes(), {}) for t in (first, other))
    assert guess is not None
    assert guessed is not None
    slower = TrialTimes(((first, Amount(1.5 * guess, first.requests)),))
    assert timing.seconds(other, slower, {}) == pytest.approx(1.5 * guessed)


def test_a_guess_without_simulating_is_near_the_simulation() -> None:
    spec = EngineSpec.from_mapping({"model": "llama-3.1-8b", "hardware": "h100", "max_batched_tokens": 8192})
    tight = dataclasses.replace(spec, kv_tokens=40_000)
    shape = Shape.of(1024, 256)
    for engine, c, within in ((spec, 1, 0.05), (spec, 64, 0.15), (tight, 64, 0.3)):
        said = rough_e2e(Assumption(engine), shape, c)
        assert said == pytest.approx(float(closed_loop_arrays(engine, shape, c, requests=200).e2e.mean()), rel=within)
    assert rough_e2e(Assumption(tight), Shape.of(100_000, 256), 1) is None, "it does not fit"


@pytest.mark.parametrize(
    ("sla", "concurrency", "misses"),
    [
        ("{p99_tpot: 2ms}", "[1, 8]", True),
        ("{p99_tpot: 80ms, error_rate: 1%}", "[1, 8]", True),
        ("{p99_tpot: 80ms}", "[1, 8]", True),
        ("{p99_tpot: 14ms}", "[1, 64]", False),
        ("{p99_ttft: 10s}", "[1, 8]", False),  # only the least of TTFT can be said
        ("{p99_ttft: 1ms}", "[1, 8]", True),
        ("{p99_e2e: 100ms}", "[1, 8]", True),
        ("{p99_itl: 1us}", "[1, 8]", False),
    ],
)
def test_a_grid_that_misses_the_edge_of_its_sla_is_told(sla: str, concurrency: str, misses: bool) -> None:
    text = BARE.replace("[1, 8, 64]", concurrency) + f"hardware: h100\nsla: {sla}\n"
    said = grid_advice(load_config(text, "s"))
    assert bool(said) is misses
    if misses:
        assert_golden_row("answers", "\n".join(said))
    assert [] == grid_advice(load_config(text.replace("hardware: h100\n", ""), "s"))


TEXT = """\
endpoint: simulator
simulator: {step_base: 5ms, per_decode: 60us, per_prefill_token: 20us}
shapes: [256/32, 64/16]
concurrency: [1, 2, 4]
requests: 100
repeats: 2
refine: 0
"""


def test_a_sweep_says_what_is_left_before_and_after_each_trial(tmp_path: Path) -> None:
    _, told, end = sweep_in_virtual_time(tmp_path / "run", TEXT)
    assert "finished" == end
    assert 1 + 12 == len(told.left)
    assert None not in told.left
    assert told.left[0] > 10, "before the first trial the engine itself is asked"
    assert 0 == told.left[-1]


def test_a_dry_run_says_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(TEXT)
    said = frontier("sweep", "s.yaml", "--dry-run", cwd=tmp_path)
    assert 0 == said.code
    assert_golden_row("answers", said.out, "simulator")
    (tmp_path / "s.yaml").write_text(BARE)
    assert_golden_row("answers", frontier("sweep", "s.yaml", "--dry-run", cwd=tmp_path).out, "server")
