"""A sweep whose arrivals are those of a trace: its truth in virtual time, what a run keeps, and
real HTTP."""

import json
import random
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from frontier.config import Config, load_config
from frontier.config.config_file import with_trace
from frontier.core.model.decisions import Verdict
from frontier.core.model.errors import UsageError
from frontier.core.model.loads import POISSON, Rate
from frontier.core.model.trials import Phase
from frontier.extras.api.notebook_run import load
from frontier.planning.plan import make_plan, make_trial
from frontier.run import Run
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import swept
from tests.kit.trial_rules import broken_rules
from tests.kit.virtual_truth import truth
from tests.sweep.test_sweep_http import sweep_over_http

TEXT = """\
endpoint: simulator
simulator: {{step_base: 8ms, per_decode: 200us, noise: 0.1, max_num_seqs: 8}}
shapes: [{{isl: 64, osl: {{uniform: [6, 12]}}, name: short}}]
rate: {rate}
arrivals: {{trace: {file}}}
sla: {{p50_ttft: 60ms}}
requests: 150
refine: 1
"""


def bursty(path: Path, seed: int = 4, count: int = 300) -> Path:
    """A trace in which a request brings others: so many in bunches of 4 on average."""
    rng, now = random.Random(seed), 0.0
    times: list[float] = []
    while len(times) < count:
        now += rng.expovariate(0.1)
        times += [now + rng.uniform(0, 2.0) for _ in range(1 + int(rng.expovariate(1 / 3)))]
    path.write_text("".join(f"{t:.6f}\n" for t in sorted(times)))
    return path


def config_of(file: Path, rate: str = "[5, 40]") -> Config:
    return with_trace(load_config(TEXT.format(file=file, rate=rate), "s.yaml"))


@pytest.fixture(scope="module")
def swept_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    here = tmp_path_factory.mktemp("trace")
    file = bursty(here / "bursty.txt")
    swept(here / "run", TEXT.format(file=file, rate="[5, 40]").replace("refine: 1", "refine: 0"))
    file.unlink()
    return load(here / "run")


def test_its_trials_keep_their_rules(swept_run: Run) -> None:
    assert [] == list(broken_rules(swept_run))


@pytest.mark.chance
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 5])
def test_the_proven_rate_keeps_the_limit_over_the_whole_trace(seed: int, tmp_path: Path) -> None:
    swept(tmp_path / "run", TEXT.format(file=bursty(tmp_path / "a.txt", seed, 2_000), rate="[5, 40]"))
    run = load(tmp_path / "run")
    (decision,) = run.solve()
    assert decision.verdict is Verdict.MEETS
    rate, (shape,) = decision.load, run.config.shapes
    assert isinstance(rate, Rate)
    spec = run.config.deployments[0].engine_spec()
    assert truth(spec, shape, rate, "p50_ttft", requests=8_000) <= 0.06
    assert truth(spec, shape, Rate.of(1.7 * rate.per_second), "p50_ttft", requests=8_000) > 0.06
    poisson = replace(shape, arrivals=POISSON)
    assert truth(spec, poisson, rate, "p50_ttft", requests=8_000) < 0.04, "without bursts it is far inside"


def test_a_trial_that_a_claim_rests_on_plays_enough_of_the_trace(swept_run: Run) -> None:
    (shape,) = swept_run.config.shapes
    assert shape.arrivals is not None
    assert 150 < shape.arrivals.long_enough <= 310
    (history,) = swept_run.histories.values()
    assert {trial.requests for trial, _ in history} == {shape.arrivals.long_enough}
    rates = {p.load: p.metrics["request_throughput"].value for p in swept_run.points()}
    assert rates[Rate.of(5)] == pytest.approx(5, rel=0.2)
    assert not any(p.overloaded for p in swept_run.points())
    scan = make_trial(swept_run.config, swept_run.config.deployments[0], shape, Rate.of(5), Phase.SCAN, 1, 50)
    assert scan.requests == 50


def test_the_run_keeps_the_times_and_its_evidence_does_not(swept_run: Run, tmp_path: Path) -> None:
    column = (swept_run.path / "arrivals.txt").read_bytes()
    (shape,) = swept_run.config.shapes
    assert shape.arrivals is not None
    assert shape.arrivals.trace is not None
    assert column.count(b"\n") == shape.arrivals.trace.count >= 300
    evidence = next((swept_run.path / "evidence").iterdir()).read_bytes()
    assert b'"dispersion"' in evidence
    assert b'"times"' not in evidence
    damaged = tmp_path / "run"
    shutil.copytree(swept_run.path, damaged)
    for data, what in ((b"1\n0\n", "no column of ascending seconds"), (None, "cannot read")):
        (damaged / "arrivals.txt").unlink()
        if data is not None:
            (damaged / "arrivals.txt").write_bytes(data)
        said = frontier("solve", damaged, cwd=tmp_path, here=True)
        assert (said.code, what in said.err) == (2, True), said.err


def test_scheduled_times_are_those_of_the_trace_at_the_rate(swept_run: Run) -> None:
    (shape,) = swept_run.config.shapes
    assert shape.arrivals is not None
    trial = next(t for history in swept_run.histories.values() for t, _ in history if t.phase is Phase.GRID)
    assert trial.load.per_second is not None
    lines = (swept_run.path / "trials" / f"{trial.key}.jsonl").read_text().splitlines()
    due = sorted(json.loads(line)["scheduled"] for line in lines)
    assert due == pytest.approx(
        list(islice(shape.arrivals.times(trial.load.per_second, trial.seed), len(due))), abs=2e-6
    )


def test_the_times_decide_what_a_trial_is_and_the_place_of_the_file_does_not(tmp_path: Path) -> None:
    one = config_of(bursty(tmp_path / "a.txt"))
    (tmp_path / "elsewhere").mkdir()
    moved = config_of(bursty(tmp_path / "elsewhere" / "a.txt"))
    other = config_of(bursty(tmp_path / "a.txt", seed=5))
    poisson = load_config(TEXT.format(file="a.txt", rate="[5, 40]").replace("{trace: a.txt}", "poisson"), "s.yaml")
    prints = [make_plan(config).trials[0].fingerprint for config in (one, moved, other, poisson)]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3
    assert one.identity() == moved.identity() != other.identity()


def test_a_dry_run_says_how_the_trace_is_played(tmp_path: Path) -> None:
    bursty(tmp_path / "a.txt")
    (tmp_path / "sweep.yaml").write_text(TEXT.format(file="a.txt", rate="[5, 40]"))
    said = frontier("sweep", "sweep.yaml", "--dry-run", cwd=tmp_path)
    assert said.code == 0, said.err
    assert_golden_row("answers", said.out)
    tree = json.loads(frontier("sweep", "sweep.yaml", "--dry-run", "--json", cwd=tmp_path).out)
    assert tree["trace"]["arrivals"] >= 300
    assert tree["trace"]["index_of_dispersion"]["10"] > 2
    assert tree["trace"]["index_of_dispersion"]["60"] is not None
    (tmp_path / "sweep.yaml").write_text(TEXT.format(file="b.txt", rate="[5, 40]"))
    said = frontier("sweep", "sweep.yaml", "--dry-run", cwd=tmp_path)
    assert 2 == said.code
    assert_golden_row("messages", said.err, "no file")


def test_a_file_of_the_config_is_shown_before_a_sweep_from_a_stranger() -> None:
    config = load_config(TEXT.format(file="/home/me/a.txt", rate="5"), "s.yaml")
    (effect,) = (effect.text for effect in config.effects if "/home/me/a.txt" in effect.text)
    assert_golden_row("messages", effect)
    with pytest.raises(UsageError):
        with_trace(config)


@pytest.mark.process
@pytest.mark.slow
def test_over_http_requests_come_when_the_trace_says(tmp_path: Path) -> None:
    file = bursty(tmp_path / "a.txt", count=100)
    text = TEXT.format(file=file, rate="[100]").replace("refine: 1", "refine: 0\nwarmup: 100ms")
    text = text.replace("max_num_seqs: 8", "max_num_seqs: 64")
    run, _, _ = sweep_over_http(tmp_path / "run", text)
    (shape,) = run.config.shapes
    assert shape.arrivals is not None
    ((trial, _),) = [each for history in run.histories.values() for each in history]
    lines = (tmp_path / "run" / "trials" / f"{trial.key}.jsonl").read_text().splitlines()
    records = sorted((json.loads(line) for line in lines), key=lambda record: record["index"])
    expected = list(islice(shape.arrivals.times(100.0, trial.seed), len(records)))
    assert [record["scheduled"] for record in records] == pytest.approx(expected, abs=2e-6)
    assert records
    assert all(record["sent"] >= record["scheduled"] - 1e-6 for record in records)
    late = np.median([record["sent"] - record["scheduled"] for record in records])
    assert late < 0.05
