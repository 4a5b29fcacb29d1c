"""The time left of a sweep: which trials are to come, how long they take, when it is not known."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from frontier.config import load_config
from frontier.core.model.series import Series
from frontier.core.model.trials import Phase
from frontier.planning.budget import TrialTimes
from frontier.planning.plan import make_plan, make_trial, search_policy
from frontier.planning.time_left import TimeLeft, of_sweep, outlook, to_come, until_decided
from frontier.search.auto import MOST
from frontier.search.next_trial import Ask, Done
from frontier.store.journal import Amount
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.made import Server
from tests.kit.sweeps import sweep_in_virtual_time

TEXT = """\
endpoint: http://localhost:8000/v1
model: m
shapes: [1024/256]
concurrency: [1, 4, 16, 64]
sla: {p99_ttft: 500ms}
"""


def of(text=TEXT):
    config = load_config(text, "s")
    return config, Series(config.deployments[0].name, config.shapes[0])


def coming(config, series, history=(), ask=None, later=None, prove=()):
    return to_come(config, series, make_plan(config).trials, history, search_policy(config, MOST, prove), ask, later)


def counts(found):
    """How many trials of each phase are to come."""
    number = {}
    for trial, count in (*found.answer, *found.rest):
        number[trial.phase] = number.get(trial.phase, 0) + count
    return number


def measured(config, series, *settings):
    """Trials of a server that takes 10 ms per user to its first token."""
    server = Server(lambda c: 0.01 * c)
    trials = [make_trial(config, config.deployments[0], series.shape, c, phase, 1, 300) for c, phase in settings]
    return [(t, replace(server.run(t), shape=series.shape)) for t in trials]


def scanned(config, series):
    return measured(config, series, (4, Phase.SCAN), (16, Phase.SCAN), (64, Phase.SCAN))


def took(history, seconds):
    return TrialTimes(tuple((trial, Amount(seconds, 300.0)) for trial, _ in history))


def test_before_the_first_trial_the_time_is_not_known():
    config, series = of()
    assert coming(config, series).seconds(TrialTimes()) is None
    assert of_sweep({series: None}, TrialTimes()) is None
    assert TimeLeft() == of_sweep({}, TrialTimes()), "nothing is to come"


@pytest.mark.parametrize(
    ("more", "phases"),
    [
        ("", {Phase.PROVE}),
        ("refine: 0\n", {Phase.GRID}),
        ("refine: 0\nrequests: 200\nrepeats: 2\n", {Phase.GRID}),
        ("requests: 200\nrefine: 2\n", {Phase.PROVE, Phase.GRID}),
    ],
)
def test_what_the_config_states_is_what_is_to_come(more, phases):
    config, series = of(TEXT + more)
    found = coming(config, series, scanned(config, series), Ask(16, Phase.PROVE, 400, ""))
    assert phases == set(counts(found))
    assert found.open is (config.refine != 0), "while proofs go on more may follow"
    if config.refine == 0:
        assert counts(found)[Phase.GRID] == 4 * (config.repeats or 1)


def test_once_something_is_proven_what_completes_the_frontier_is_counted():
    config, series = of()
    history = [*scanned(config, series), *measured(config, series, *[(4, Phase.PROVE)] * 6)]
    onward = coming(config, series, history, Ask(16, Phase.PROVE, 334, ""))
    assert {Phase.PROVE, Phase.GRID, Phase.FRONTIER, Phase.VISIT} == set(counts(onward))
    assert onward.open
    over = coming(config, series, history, Done(""), Ask(1, Phase.GRID, 100, ""))
    assert {Phase.GRID, Phase.FRONTIER, Phase.VISIT} == set(counts(over))
    assert not over.open


def test_without_an_sla_only_the_frontier_is_completed():
    config, series = of(TEXT.replace("sla: {p99_ttft: 500ms}\n", ""))
    history = measured(config, series, (1, Phase.GRID))
    assert {Phase.GRID, Phase.FRONTIER} == set(counts(coming(config, series, history, Done(""))))


def test_a_proof_has_fewer_windows_left_the_more_it_has_until_it_is_judged():
    config, series = of()
    history, ask, left = scanned(config, series), Ask(16, Phase.PROVE, 334, ""), []
    for windows in range(4):
        proof = measured(config, series, *[(16, Phase.PROVE)] * windows)
        left.append(coming(config, series, [*history, *proof], ask).answer[-1][1])
    assert [left[0] - k for k in (0, 1, 2, 0)] == left, "the fourth window is the first of the next judgement"
    decided = until_decided(config, series, [*history, *proof], ask)
    assert [3] == [count for _, count in decided.answer], "until its second judgement"


def test_proofs_that_the_user_asked_for_are_all_there_is():
    config, series = of()
    history = scanned(config, series)
    left = coming(config, series, history, ask=Ask(8, Phase.PROVE, 100, ""), prove=(4, 8, 32))
    assert [8, 32] == [trial.load for trial, _ in left.answer]
    assert () == left.rest
    assert () == coming(config, series, history, ask=Done(""), prove=(4, 8, 32)).answer


def test_trials_take_as_long_as_the_same_took_else_as_the_nearest_setting():
    config, series = of()
    history = scanned(config, series)
    times = took(history, 20.0)
    again = history[1][0]
    assert 20.0 == times.expected(again)
    other = make_trial(config, config.deployments[0], series.shape, 8, Phase.PROVE, 1, 400)
    assert times.seconds(other) == times.expected(other) is not None
    ask = Ask(16, Phase.PROVE, 334, "")
    assert coming(config, series, history, ask).seconds(times).answer > 0


def test_a_series_that_is_not_measured_takes_as_long_as_those_that_are():
    config, series = of()
    other = Series("", load_config(TEXT.replace("1024/256", "64/32"), "s").shapes[0])
    times = took(measured(config, series, (4, Phase.SCAN)), 30.0)
    alone = of_sweep({series: TimeLeft(60.0, 100.0)}, times)
    both = of_sweep({series: TimeLeft(60.0, 100.0), other: None}, times)
    assert (60.0, 100.0, False) == (alone.answer, alone.rest, alone.open)
    assert (60.0 + 90.0, 200.0) == (both.answer, both.rest), "what was spent on the first is to come in the second"
    assert both.open


def test_the_budget_ends_it():
    left = TimeLeft(60.0, 100.0)
    assert [160.0, 100.0, 40.0, 0.0] == [left.within(limit).seconds for limit in (math.inf, 100.0, 40.0, -1.0)]
    assert (60.0, 40.0) == (left.within(100.0).answer, left.within(100.0).rest)
    assert 3 > left.range[1] / left.range[0] > 1
    assert math.inf == TimeLeft(60.0, open=True).range[1]
    assert 90.0 == TimeLeft(60.0, open=True).within(90.0).range[1]
    later = left.within(130.0).after(70.0)
    assert (0.0, 60.0, 60.0) == (later.answer, later.rest, later.most)


def test_each_series_of_the_plan_has_its_own():
    config, _ = of(TEXT.replace("[1024/256]", "[1024/256, 64/32]"))
    assert 2 == len(outlook(config, make_plan(config), {}, MOST))
    assert 1 == len(outlook(config, make_plan(config, ["64/32"]), {}, MOST))


GRID = """\
endpoint: simulator
simulator: {step_base: 5ms, per_decode: 60us, per_prefill_token: 20us}
shapes: [256/32, 64/16]
concurrency: [1, 2, 4]
requests: 100
repeats: 2
refine: 0
"""


def test_a_sweep_says_what_is_left_after_each_trial(tmp_path: Path) -> None:
    _, told, end = sweep_in_virtual_time(tmp_path / "run", GRID)
    assert "finished" == end
    assert 12 == len(told.left), "after each trial, and not before the first"
    assert [] == [left for left in told.left[:-1] if not left > 0]
    assert 0 == told.left[-1]


@pytest.mark.process
@pytest.mark.parametrize(
    "more",
    [
        "sla: {p99_ttft: 1s}\n",
        "sla: {p99_ttft: 1s}\nbudget: {time: 20min, requests: 5000}\n",
        "",
        "sla: {p99_ttft: 1s}\nconcurrency: 1..128\nrefine: 0\n",
    ],
    ids=["sla", "budget", "no sla", "refine 0"],
)
def test_a_dry_run_says_what_will_be_done_and_when_its_time_is_known(more: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(f"endpoint: http://127.0.0.1:9/v1\nshapes: [1024/256]\n{more}")
    assert_golden_row("answers", frontier("sweep", "sweep.yaml", "--dry-run", cwd=tmp_path, COLUMNS="200").out)
    tree = json.loads(frontier("sweep", "sweep.yaml", "--dry-run", "--json", cwd=tmp_path).out)
    assert tree["expected_seconds"] is tree["expected"] is None
    assert ("budget" in more) == ("budget" in tree)


def test_a_dry_run_of_a_run_says_the_range_of_what_is_left(tmp_path: Path) -> None:
    sweep_in_virtual_time(tmp_path / "run", GRID.replace("repeats: 2", "repeats: 1"))
    (tmp_path / "s.yaml").write_text(GRID)
    tree = json.loads(frontier("sweep", "s.yaml", "-o", "run", "--dry-run", "--json", cwd=tmp_path).out)
    assert (6, 12) == (tree["finished"], len(tree["trials"]))
    left = tree["expected"]
    assert 0 < left["shortest_seconds"] < tree["expected_seconds"] < left["longest_seconds"]
