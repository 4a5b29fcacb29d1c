"""`frontier status` beside a sweep that runs: what it tells, and that it disturbs nothing."""

import json
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from frontier.cli.status import line, page, read_state, trial_words
from frontier.config import load_config
from frontier.core.claim.proof import SCANS
from frontier.core.model.trials import Phase
from frontier.read_run import load
from tests.kit.commands import frontier, http_sweep, start, until_trial
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import without_numbers
from tests.kit.sweeps import ENGINES, config_text, open_run, sweep_in_virtual_time


@pytest.mark.process
@pytest.mark.slow
def test_a_running_sweep_is_told_and_followed_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(http_sweep("[1, 4]", requests=100_000, shape="64/20", step="10ms"))
    sweep = start("sweep", "sweep.yaml", cwd=tmp_path)
    until_trial(sweep, tmp_path)
    told = json.loads(frontier("status", "--json", cwd=tmp_path).out)
    assert ("running", 0, 2, 2) == (told["state"], told["done"], told["planned"], told["left"])
    running = told["running"]
    assert isinstance(running, dict)
    assert running["trial"] == "default-64x20-c0001-grid-r1"
    assert trial_words(str(running["trial"])) in frontier("status", cwd=tmp_path).out
    follower = start("status", "--follow", "--json", cwd=tmp_path)
    assert follower.stdout is not None
    assert "running" == json.loads(follower.stdout.readline())["state"]
    sweep.send_signal(signal.SIGINT)
    sweep.communicate(timeout=60)
    out, _ = follower.communicate(timeout=60)
    assert (130, 0) == (sweep.returncode, follower.returncode)
    last = json.loads(out.splitlines()[-1])
    assert ("stopped", "interrupted") == (last["state"], last["last"][-1]["event"])


def test_time_left_comes_from_what_was_measured_and_warnings_are_the_last_ones(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"]) + "budget: {requests: 5000}\n"
    sweep_in_virtual_time(tmp_path / "run", text)
    told = read_state(tmp_path / "run")
    assert ("finished", 0) == (told["state"], told["left"])
    assert told["done"] + told["skipped"] == told["planned"] == 21
    assert {True} == {"requests 5,000" in text for text in told["warnings"]}
    assert page(told)[0] == line(told)
    run = load(tmp_path / "run")
    first, said = line(told).split()[0], run.unfinished.split()[0]
    assert first.rstrip(",") == said.rstrip(":"), "as `solve` says"
    for lost in (tmp_path / "run" / "trials").glob("*c0004-grid-r1.jsonl"):
        lost.unlink()
    again = read_state(tmp_path / "run")
    assert ("stopped", 1) == (again["state"], again["left"])
    assert again["seconds_left"] == pytest.approx(0.0, abs=30), "virtual time passes in no time"


@pytest.mark.parametrize("requests", ["", "requests: 400"], ids=["unsized", "sized"])
def test_sweep_status_and_answer_count_the_trials_on_the_disk(requests: str, tmp_path: Path) -> None:
    text = re.sub("repeats: .*|requests: .*", "", config_text(ENGINES["smooth"])) + requests
    _, first, _ = sweep_in_virtual_time(tmp_path / "run", f"{text}\nbudget: {{requests: 5000}}\n")
    _, again, _ = sweep_in_virtual_time(tmp_path / "run", f"{text}\nbudget: {{requests: 8000}}\n")
    files = len(list((tmp_path / "run" / "trials").glob("*.jsonl")))
    told = read_state(tmp_path / "run")
    known = int(again.notes[0].split()[-1])
    assert (len(first.finished), files) == (known, known + len(again.finished))
    assert files == told["trials_finished"]
    assert f"  {files} trials" in line(told)
    standing = load(tmp_path / "run").standing
    assert standing is not None
    tree = replace(standing, end="budget").tree("") or {}
    assert [told["settings"], told["measured"]] == [tree["settings"], tree["measured"]]
    assert tree["settings"] - tree["measured"] == len(tree["not_measured"]) + len(tree["short"])


def test_of_a_sweep_that_finds_its_settings_those_that_were_measured_are_counted(tmp_path: Path) -> None:
    small = ENGINES["smooth"].replace("}", ", max_num_seqs: 8}")
    text = re.sub("repeats: .*|requests: .*|refine: .*", "", config_text(small, sla="{p90_ttft: 50ms}"))
    text = text.replace("256/32", "256/8")
    sweep_in_virtual_time(tmp_path / "run", re.sub("concurrency: .*", "concurrency: auto", text))
    told, run = read_state(tmp_path / "run"), load(tmp_path / "run")
    trials = [trial for history in run.histories.values() for trial, _ in history]
    whole = {(t.series, t.load) for t in trials if t.phase not in (*SCANS, Phase.FRONTIER)}
    assert (None, len(whole)) == (told["settings"], told["measured"])
    assert 0 < len(whole) < len({(t.series, t.load) for t in trials})
    assert f"{len(whole)} setting" in line(told)


def test_what_is_proven_is_judged_by_the_sla_that_the_config_has_now(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"])
    run, _, _ = sweep_in_virtual_time(tmp_path / "run", text)
    (decision,) = run.solve()
    assert [decision.load] == [one["concurrency"] for one in read_state(tmp_path / "run")["proven"]]
    (tmp_path / "run" / "config.yaml").write_text(text.replace("p99_ttft: 50ms", "p99_ttft: 1us"))
    assert [] == read_state(tmp_path / "run")["proven"]


def test_while_a_sweep_runs_only_what_it_told_for_this_sla_and_did_not_correct_is_proven(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"])
    config = load_config(text, "sweep.yaml")
    with open_run(tmp_path / "run", config, text) as run:
        for shape, promise in (("256/32", 0.05), ("256/64", 0.05), ("256/16", 0.5)):
            facts = {"deployment": "default", "shape": shape, "concurrency": 4, "after": 1.0}
            run.journal("proven", **facts, limits=[f"p99_ttft={promise}"])
        run.journal("corrected", deployment="default", shape="256/64", reason="c=4 is no longer proven")
        assert ["256/32"] == [one["shape"] for one in read_state(tmp_path / "run")["proven"]]


@pytest.mark.parametrize(("shapes", "words"), [("['256/32']", "c=4"), ("['256/32', '64/8']", "256/32 c=4")])
def test_what_is_proven_has_its_shape_where_the_config_has_several(shapes: str, words: str, tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"]).replace("shapes:", f"shapes: {shapes} #")
    with open_run(tmp_path / "run", load_config(text, "sweep.yaml"), text) as run:
        facts = {"deployment": "default", "shape": "256/32", "concurrency": 4, "after": 1.0}
        run.journal("proven", **facts, limits=["p99_ttft=0.05"])
        assert words == read_state(tmp_path / "run")["proven"][0]["words"]


@pytest.mark.parametrize(("event", "killed"), [("trial_begun", True), ("interrupted", False), ("stopped", False)])
def test_a_sweep_that_was_killed_is_said_to_be_with_the_way_on(event: str, killed: bool, tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"])
    with open_run(tmp_path / "run", load_config(text, "sweep.yaml"), text) as run:
        run.journal(event, trial="default-64x20-c0001-grid-r1")
        assert "running" == read_state(tmp_path / "run")["state"]
    told = read_state(tmp_path / "run")
    assert ["stopped", "killed" if killed else event] == [told["state"], told["end"]]
    assert_golden_row("answers", without_numbers(line(told)))
    assert f"  {load(tmp_path / 'run').go_on}" in page(told)
    assert str(tmp_path / "run") in told["go_on"]


@pytest.mark.parametrize("finished", [True, False])
def test_of_a_damaged_run_the_first_step_is_told_as_the_answer_tells_it(finished: bool, tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"])
    sweep_in_virtual_time(tmp_path / "run", text)
    if not finished:
        with open_run(tmp_path / "run", load_config(text, "sweep.yaml"), text) as run:
            run.journal("interrupted")
    file = min((tmp_path / "run" / "trials").glob("*.jsonl"))
    file.write_bytes(file.read_bytes()[:-20])
    told, run = read_state(tmp_path / "run"), load(tmp_path / "run")
    assert (f"remove {file}" in told["way"], told["way"] in run.unfinished) == (True, not finished)
    lines = page(told)
    at = next(i for i, text in enumerate(lines) if str(file) in text)
    assert [f"  {run.go_on}"] * (not finished) == lines[at + 1 :]


def test_what_ended_the_sweep_is_said_once(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"])
    with open_run(tmp_path / "run", load_config(text, "sweep.yaml"), text) as run:
        run.journal("warning", text="the disk is slow")
        run.journal("failed", reason="no space is left")
    first, left, *rest, _, _ = page(read_state(tmp_path / "run"))
    assert first.count("no space") == 1
    assert left.startswith("  left: ")
    assert ["the disk is slow"] == [one.rpartition(": ")[2] for one in rest]


def test_a_run_held_by_another_machine_is_said_to_be(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"])
    with open_run(tmp_path / "run", load_config(text, "sweep.yaml"), text):
        (tmp_path / "run" / "lock").write_text(json.dumps({"pid": 17, "host": "node-b\u001b[31m"}))
        told = read_state(tmp_path / "run")
    assert told["state"] == "running"
    second = page(told)[1]
    assert "\x1b" not in second
    assert_golden_row("answers", without_numbers(second))
