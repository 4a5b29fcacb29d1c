"""The short form of the calibration study: it fails when a guarantee breaks, not when luck is bad."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.calibration import tables
from benchmarks.calibration.__main__ import known
from frontier.stats.intervals import clopper_pearson

ROOT = Path(__file__).parents[2]
OURS = (
    "search, 3 extra settings", "search, 6 extra settings", "search, 6 extra settings, grid once",
    "proven grid, no search",
)  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """91 drawn deployments, thirteen of each family."""
    file = tmp_path_factory.mktemp("calibration") / "results.jsonl"
    command = [sys.executable, "-m", "benchmarks.calibration", "--deployments", "91", "--results", str(file)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=1500)
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(1600)
@pytest.mark.parametrize("rule", OURS)
def test_no_more_than_one_answer_in_twenty_breaks_its_sla(results, rule):
    answered = [a for r in results if (a := r["rules"][rule])["c"] is not None]
    broken = sum(a["excess"] > 1 for a in answered)
    badly = sum(a["excess"] > 1.05 for a in answered)
    assert len(answered) > 50
    # The share is above its goal for sure only when its one-sided 99 % bound is.
    assert clopper_pearson(broken, len(answered), 0.99)[0] <= 0.05
    assert clopper_pearson(badly, len(answered), 0.99)[0] <= 0.01


@pytest.mark.slow
@pytest.mark.timeout(1600)
def test_point_values_alone_would_break_it_far_more_often(results):
    answered = [a for r in results if (a := r["rules"]["bisection on the value"])["c"] is not None]
    assert clopper_pearson(sum(a["excess"] > 1 for a in answered), len(answered), 0.99)[0] > 0.05


@pytest.mark.slow
@pytest.mark.timeout(1600)
def test_the_answers_are_worth_having_and_cost_a_third_of_a_dense_grid(results):
    rules = [(r["rules"]["search, 6 extra settings"], r["dense"]) for r in results]
    shares = sorted(a["share"] for a, _ in rules if a["share"] is not None)
    assert shares[len(shares) // 2] > 0.88
    assert sum(a["requests"] / dense for a, dense in rules) / len(rules) <= 1 / 3
    once = [r["rules"]["search, 6 extra settings, grid once"]["seconds"] / r["dense_seconds"] for r in results]
    assert sum(once) / len(once) <= 1 / 3


@pytest.mark.slow
@pytest.mark.timeout(1600)
def test_an_infeasible_deployment_never_gets_an_operating_point(results):
    answers = [r["rules"][rule] for r in results if r["family"] == "infeasible" for rule in OURS]
    assert answers
    assert all(a["c"] is None for a in answers)


@pytest.mark.slow
@pytest.mark.timeout(1600)
def test_published_intervals_hold_the_truth_about_as_often_as_they_say(results):
    for name, (nominal, held, n, _) in tables.coverage(results).items():
        goal = 0.87 if nominal == "90 %" else 0.93
        # Below its goal for sure only when the one-sided 99.9 % bound is: a dozen and more are looked at.
        assert clopper_pearson(held, n, 0.999)[1] >= goal, (name, held, n)


def test_a_study_that_was_killed_goes_on_after_its_last_whole_line(tmp_path):
    file = tmp_path / "results.jsonl"
    file.write_text('{"seed": 1}\n{"seed": 2}\n{"se')
    assert [{"seed": 1}, {"seed": 2}] == known(file)
    assert '{"seed": 1}\n{"seed": 2}\n' == file.read_text()
    assert [] == known(tmp_path / "none")


def test_the_tables_count_what_the_results_hold():
    def result(seed, excess, share, held):
        rule = {"c": 8, "verdict": "meets", "requests": 100, "seconds": 9.0, "excess": excess, "share": share}
        silent = {**rule, "c": None, "excess": None, "share": 0.0}
        rules = {name: rule if name != tables.OURS[0] else silent for name in tables.RULES}
        return {
            "kind": "process", "family": "smooth", "seed": seed, "best": 9, "dense": 1000, "dense_seconds": 90.0,
            "rules": rules, "frontier": {"band": held},
            "coverage": {"p99_ttft|runs alike": [held, None], "p50_ttft|runs differ": [seed != 1, None]},
        }  # fmt: skip

    results = [result(0, 0.9, 0.8, True), result(1, 1.2, 1.0, False), result(2, 1.01, 0.9, None)]
    s = tables.summary(results, tables.OURS[1])
    wanted = ("answered", "violations", "beyond", "share", "cost", "time")
    assert [3, 2, 1, 0.9, 0.1, 0.1] == pytest.approx([s[k] for k in wanted])
    assert (0, 0.0) == tuple(tables.summary(results, tables.OURS[0])[k] for k in ("answered", "share"))
    assert ("95 %", 1, 2, 3) == tables.coverage(results)["p99, runs alike"]
    text = tables.tables(results)
    assert "| search, 6 extra settings | 3 | 66.7% (2) | 33.3% (1) | 90% | 90% | 10% | 10% |" in text
    assert "| smooth | 3 | 3 | 66.7% (2) | 33.3% (1) | 90% |" in text
    assert "| smooth | 66.7% | 50.0% |" in text
