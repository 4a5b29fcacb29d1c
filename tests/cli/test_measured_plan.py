"""`sweep --dry-run --measure`: a minute of scan says how long a sweep takes, and leaves nothing."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from frontier.cli.measured_plan import _nowhere, after_a_scan
from frontier.config import load_config
from frontier.core.claim.proof import SCANS
from frontier.planning.budget import TrialTimes
from frontier.planning.plan import make_plan
from frontier.planning.time_left import series_of
from frontier.read_run import load
from frontier.store.run_dir import RunDirectory
from frontier.sweep.scan_course import ScanCourse
from tests.kit.commands import Said, frontier
from tests.kit.sweeps import clocked, commands_in_virtual_time, conduct_by_the_clock, swept

TEXT = """\
endpoint: simulator
simulator: {step_base: 20ms, per_decode: 300us, per_prefill_token: 60us, noise: 0.05}
shapes: [{isl: 256, osl: 64, name: short}, {isl: 1024, osl: 32, name: long}]
concurrency: 1..64
sla: {p99_ttft: 500ms, p99_tpot: 40ms}
"""
ONE = TEXT.replace(", {isl: 1024, osl: 32, name: long}", "")


def dry_run(here: Path, text: str, *more: str) -> Said:
    (here / "sweep.yaml").write_text(text)
    with commands_in_virtual_time():
        return frontier("sweep", "sweep.yaml", "--dry-run", *more, cwd=here, here=True)


def test_a_minute_has_looks_alone_and_each_series_has_its_part(tmp_path: Path) -> None:
    backend = clocked(TEXT)
    began = backend.now
    conduct_by_the_clock(tmp_path / "run", TEXT, backend, course=ScanCourse(60.0))
    histories = load(tmp_path / "run").histories
    trials = [trial for history in histories.values() for trial, _ in history]
    assert {"short", "long"} == {trial.shape.label for trial in trials}
    assert {trial.phase for trial in trials} <= set(SCANS)
    assert 30 < backend.now - began < 60 + 2 * 20, "the last look of each may end after its part"


@pytest.mark.parametrize(
    "engine",
    [
        "kv_tokens: 6000, step_base: 20ms",
        *(pytest.param(f"step_base: {step}", marks=pytest.mark.nightly) for step in ("20ms", "12ms")),
    ],
)
def test_the_time_to_the_answer_is_about_what_it_takes(tmp_path: Path, engine: str) -> None:
    text = ONE.replace("step_base: 20ms", engine)
    scan = clocked(text)
    conduct_by_the_clock(tmp_path / "scan", text, scan, course=ScanCourse(60.0))
    config, run = load_config(text, "sweep.yaml"), RunDirectory.read(tmp_path / "scan")
    plan, (series,) = make_plan(config), series_of(config, make_plan(config))
    history = load(tmp_path / "scan").histories[series]
    near, coming = after_a_scan(config, series, plan.trials, config.tiers, history)
    times = TrialTimes.of(run.journal_lines(), {trial.key: trial for trial, _ in history})
    left = coming.seconds(times)
    assert left is not None

    whole = clocked(text)
    conduct_by_the_clock(tmp_path / "whole", text, whole)
    lines = RunDirectory.read(tmp_path / "whole").journal_lines()
    proven = next(i for i, line in enumerate(lines) if line["event"] == "proven")
    done = [line for line in lines[:proven] if line["event"] == "trial_done"]
    looks = [line for line in done if "-prove-" not in line["trial"]]
    took = done[-1]["spent"]["seconds"] - looks[-1]["spent"]["seconds"]
    (decision,) = load(tmp_path / "whole").solve()
    assert decision.load is not None
    assert near is not None
    assert near / 1.5 <= decision.load <= near * 1.5
    assert left.answer / 3 < took < left.answer * 3
    assert left.rest > 0


def test_nothing_stays_and_each_shape_has_its_time(tmp_path: Path) -> None:
    said = dry_run(tmp_path, TEXT, "--measure", "--json")
    assert said.code == 0, said.err
    assert ["sweep.yaml"] == [path.name for path in tmp_path.iterdir()]
    measured = json.loads(said.out)["measured"]
    assert ["short", "long"] == [each["shape"] for each in measured["series"]]
    assert all(each["near"] and each["expected"]["answer_seconds"] > 0 for each in measured["series"])
    assert {"answers": True, "all": True} == measured["fits"]
    expected = json.loads(said.out)["expected"]
    assert expected["answer_seconds"] == pytest.approx(
        sum(each["expected"]["answer_seconds"] for each in measured["series"])
    )
    assert 0 < measured["p95_answer_seconds"]
    lower = dry_run(tmp_path, TEXT.replace("p99", "p95"), "--measure", "--json")
    assert json.loads(lower.out)["measured"]["p95_answer_seconds"] is None


def test_a_budget_without_room_is_named_with_one_that_has_it(tmp_path: Path) -> None:
    text = f"{TEXT}budget: {{requests: 2000}}\n"
    said = dry_run(tmp_path, text, "--measure")
    assert said.code == 0
    command = said.out.splitlines()[-1].strip()
    assert command.startswith("frontier sweep sweep.yaml --set budget.requests=")
    fits = json.loads(dry_run(tmp_path, text, *command.split()[3:], "--measure", "--json").out)["measured"]["fits"]
    assert {"answers": True, "all": True} == fits


def test_a_run_with_trials_knows_its_time_and_sends_nothing(tmp_path: Path) -> None:
    swept(tmp_path / "run", ONE)
    before = sorted(path.name for path in (tmp_path / "run" / "trials").iterdir())
    said = dry_run(tmp_path, ONE, "--measure", "--json", "-o", "run")
    measured = json.loads(said.out)["measured"]
    assert measured["seconds"] is None
    assert measured["trials"] == len(before)
    assert before == sorted(path.name for path in (tmp_path / "run" / "trials").iterdir())


@pytest.mark.parametrize("more", ["refine: 0\nrequests: 200\n", "rate"])
def test_a_stated_grid_and_rates_have_their_time(tmp_path: Path, more: str) -> None:
    text = ONE + more if more != "rate" else ONE.replace("concurrency: 1..64", "rate: [1, 2, 4]")
    said = dry_run(tmp_path, text, "--measure", "--json")
    assert said.code == 0, said.err
    (only,) = json.loads(said.out)["measured"]["series"]
    assert only["expected"]["answer_seconds"] + only["expected"]["frontier_seconds"] > 0


def test_it_is_a_part_of_the_dry_run(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(TEXT)
    for more in ((), ("--dry-run", "--prove", "8")):
        refused = frontier("sweep", "sweep.yaml", "--measure", *more, cwd=tmp_path, here=True)
        assert (2, "") == (refused.code, refused.out)


@pytest.mark.process
def test_where_no_trial_is_finished_the_config_is_probed(tmp_path: Path) -> None:
    (tmp_path / "dead.yaml").write_text(
        "endpoint: http://127.0.0.1:1/v1\nmodel: m\nshapes: [8/8]\nsla: {p90_ttft: 1s}\n"
    )
    said = frontier("sweep", "dead.yaml", "--dry-run", "--measure", cwd=tmp_path)
    assert (said.code, "frontier probe dead.yaml" in said.err) == (5, True)
    assert "refused" in said.err.splitlines()[-2], "the cause stands in the error"


@pytest.mark.process
def test_a_server_that_does_not_start_is_started_once_for_all_shapes(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    (tmp_path / "sweep.yaml").write_text(
        "endpoint: http://127.0.0.1:1/v1\nmodel: m\nshapes: [8/8, 16/8, 32/8]\nsla: {p90_ttft: 1s}\n"
        f"deployments: [{{name: a, start: 'echo x >> {starts}; exit 3'}}]\n"
    )
    said = frontier("sweep", "sweep.yaml", "--dry-run", "--measure", cwd=tmp_path)
    assert said.code == 5
    assert starts.read_text().split() == ["x"]
    assert "status 3" in said.err
    assert "none is within" not in said.out


def test_what_was_not_measured_is_not_called_outside(tmp_path: Path) -> None:
    config = load_config(TEXT, "sweep.yaml")
    assert "not known" in _nowhere(config, ())
    conduct_by_the_clock(tmp_path / "run", ONE, clocked(ONE), course=ScanCourse(10.0))
    (history,) = load(tmp_path / "run").histories.values()
    assert _nowhere(config, history).startswith("none is within")
    cached = [(trial, replace(sample, cached_tokens=sample.prompt_tokens)) for trial, sample in history]
    assert "cache" in _nowhere(config, cached)
