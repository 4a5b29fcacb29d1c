"""A race in virtual time, over HTTP and with servers that are started, and what it claims."""

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.tuning import conducted, draw, true_best
from frontier.config import load_config
from frontier.core.difference import in_pairs
from frontier.extras.tune.course import RaceCourse, _starts, race_of, rules_of
from frontier.extras.tune.gain import SPENT, reach_of
from frontier.extras.tune.race import Race
from frontier.extras.tune.tune_text import answer_text, effects, outcome_of, race_json
from frontier.extras.tune.variants import Variant, variants_of
from frontier.read_run import load
from frontier.store.run_dir import RunDirectory
from tests.commands import conclusive, frontier, start
from tests.sweep.test_deployments import SERVE, free_port

HEAD = "shapes: 128/32\nsla: {p95_ttft: 500ms, p95_tpot: 20ms}\ndeployments:\n"
ENGINE = "- {name: e, endpoint: simulator, simulator: {noise: 0.03, per_decode: 200us}, vary: "


def raced(text: str, path: Path) -> tuple[Race, tuple[Variant, ...], float]:
    """A race in virtual time, with what a start of each server takes and differs by as in a
    family.
    """
    config, variants = load_config(text, "s.yaml"), variants_of(text, "s.yaml")
    rules = rules_of(config, "output_throughput")
    seconds = conducted(config, draw(0), path, RaceCourse(variants, rules))
    return read(text, path), variants, seconds


def read(text: str, path: Path) -> Race:
    config, variants = load_config(text, "s.yaml"), variants_of(text, "s.yaml")
    lines = RunDirectory.read(path).journal_lines()
    return race_of(config, variants, rules_of(config, "output_throughput"), load(path).histories, lines)


@pytest.fixture(scope="module")
def capped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Race, tuple[Variant, ...], str, Path]:
    """A race of caps, the first of which is far too low."""
    path, text = tmp_path_factory.mktemp("race") / "run", f"{HEAD}{ENGINE}{{max_num_seqs: [12, 40, 90]}}}}\n"
    race, variants, _ = raced(text, path)
    return race, variants, text, path


def test_the_winner_is_the_true_one_and_its_gain_covers_the_truth(
    capped: tuple[Race, tuple[Variant, ...], str, Path],
) -> None:
    race, variants, text, _ = capped
    config = load_config(text, "s.yaml")
    truths = [true_best(config, d, 4_000) for d in config.deployments]
    assert outcome_of(race) == "better"
    assert race.gain is not None
    assert race.finalist is not None
    chosen = [v.name for v in variants].index(race.finalist.series.deployment)
    assert truths[chosen] >= 0.97 * max(truths)
    assert race.gain.ratio.low <= truths[chosen] / truths[0] <= race.gain.ratio.high
    assert race.gain.ratio.low > 1.1
    assert race.gain.pairs >= min(SPENT)


def test_every_pair_is_of_starts_of_their_own(capped: tuple[Race, tuple[Variant, ...], str, Path]) -> None:
    race, _, _, path = capped
    served = [line["deployment"] for line in RunDirectory.read(path).journal_lines() if line["event"] == "server"]
    assert race.finalist is not None
    final = served[len(race.runners) :]
    pair = [race.baseline.series.deployment, race.finalist.series.deployment]
    assert {final.count(name) for name in pair} <= set(range(len(final) // 2 - 1, len(final) // 2 + 2))
    assert all(a != b for a, b in zip(final[-6:], final[-5:], strict=False))
    for side in (race.baseline.side(), race.finalist.side()):
        assert side is not None
        assert len(side.starts) >= min(SPENT)


def test_half_the_cost_is_a_saving(capped: tuple[Race, tuple[Variant, ...], str, Path]) -> None:
    _, variants, text, path = capped
    text = text.replace("deployments:", "price: $12/h\ndeployments:")
    config = load_config(text, "s.yaml")
    rules, lines = rules_of(config, "cost"), RunDirectory.read(path).journal_lines()
    race = race_of(config, variants, rules, load(path).histories, lines)
    gain = race_json(race, variants)["gain"]
    assert gain["ratio"] == pytest.approx(gain["winner"] / gain["baseline"])
    assert gain["low"] <= gain["ratio"] <= gain["high"] < 1
    assert f"{gain['ratio'] - 1:+.0%} cost" in answer_text(race)


def test_a_race_read_back_is_over_and_says_the_same(capped: tuple[Race, tuple[Variant, ...], str, Path]) -> None:
    race, variants, text, path = capped
    again = read(text, path)
    assert again.next_step() is None
    assert race_json(again, variants) == race_json(race, variants)
    tree = json.loads(json.dumps(race_json(again, variants)))
    assert tree["chosen"] == race.finalist.series.deployment  # type: ignore[union-attr]
    assert [v["name"] for v in tree["variants"]] == [v.name for v in variants]


def test_starts_are_counted_over_all_variants_so_that_the_newest_is_known() -> None:
    """The variant in the final is the one that was started last, however often another was."""
    events = [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("a", "a4")]
    lines: list[dict[str, Any]] = []
    for deployment, trial in events:
        lines.append({"event": "server", "deployment": deployment})
        lines.append({"event": "asked", "deployment": deployment, "trial": trial})
    assert _starts(lines) == {"a1": 1, "a2": 2, "a3": 3, "b1": 4, "a4": 5}


def test_equal_variants_are_not_told_apart(tmp_path: Path) -> None:
    race, variants, _ = raced(f"{HEAD}{ENGINE}{{max_num_seqs: [200, 201, 202]}}}}\n", tmp_path / "run")
    assert outcome_of(race) == "no better"
    assert race.gain is not None
    assert race.gain.ratio.low < 1 < race.gain.ratio.high
    assert race_json(race, variants)["chosen"] == variants[0].name


def test_what_is_surely_worse_is_dropped_after_few_looks(tmp_path: Path) -> None:
    text = f"{HEAD}{ENGINE}{{step_base: [4ms, 16ms, 17ms, 18ms]}}}}\n"
    race, _, _ = raced(text, tmp_path / "run")
    worse = race.runners[1:]
    assert sum(race.dropped(runner) for runner in worse) >= 2
    assert all(len(runner.history) <= 4 for runner in worse if race.dropped(runner))


def test_a_baseline_that_keeps_no_load_inside_loses_to_one_that_does(tmp_path: Path) -> None:
    race, variants, _ = raced(f"{HEAD}{ENGINE}{{step_base: [40ms, 6ms]}}}}\n", tmp_path / "run")
    assert outcome_of(race) == "only"
    assert race_json(race, variants)["chosen"] == variants[1].name


def test_what_a_value_does_needs_three_pairs_that_agree(tmp_path: Path) -> None:
    text = f"{HEAD}{ENGINE}{{step_base: [7ms, 5ms], max_num_seqs: [200, 210, 220]}}}}\n"
    race, variants, _ = raced(text, tmp_path / "run")
    said = effects(race, variants)
    assert len(said) == 1, "the caps do nothing"
    assert re.match(r"step_base 5ms against 7ms: \+\d+% .* 3 pairs", said[0])


def test_the_interval_of_pairs_is_students() -> None:
    """Against draws: at each judgement the interval of the pairs misses as often as it spends."""
    rng = np.random.default_rng(3)
    for pairs, error in SPENT.items():
        missed = 0
        for steps in rng.normal(0.1, 0.03, (4_000, pairs)):
            found = in_pairs(list(steps))
            missed += abs(found.value - 0.1) > reach_of(found, pairs)
        assert abs(missed / 4_000 - error) < 0.008


# ---- on servers


@pytest.mark.process
def test_a_sweep_names_the_race_and_a_race_what_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(f"{HEAD}{ENGINE}{{max_num_seqs: [12, 40]}}}}\n")
    said = frontier("sweep", path, cwd=tmp_path)
    assert said.code == 2
    assert f"frontier tune {path}" in said.err
    for text, word in (
        (path.read_text().replace("sla:", "# sla:"), "SLA"),
        (path.read_text().replace("shapes: 128/32", "shapes: [128/32, 64/8]"), "2 shapes"),
        ("shapes: 8/8\nendpoint: simulator\nsla: {p99_ttft: 1s}\n", "varies nothing"),
    ):
        path.write_text(text)
        refused = frontier("tune", path, cwd=tmp_path)
        assert (refused.code, word in refused.err) == (2, True)


def started(tmp_path: Path, budget: str = "") -> Path:
    """A config of three servers that are started: the second does not start."""
    port = free_port()
    serve = SERVE.format(port=port).replace("step_base=2ms", "step_base={step} --set per_decode=200us {more}")
    text = (
        f"shapes: [16/8]\nsla: {{p90_ttft: 200ms, p90_tpot: 16ms}}\n{budget}deployments:\n"
        f"- name: s\n  endpoint: http://127.0.0.1:{port}/v1\n  start: {json.dumps(serve)}\n"
        "  ready: {within: 40s}\n  stop: {within: 5s}\n"
        "  variants: [{name: today, step: 14ms, more: null}, {name: broken, step: 8ms, more: --no-such-option},"
        " {name: quick, step: 8ms, more: null}]\n"
    )
    path = tmp_path / "t.yaml"
    path.write_text(text)
    return path


@pytest.mark.process
@pytest.mark.slow
def test_servers_are_raced_and_one_that_does_not_start_is_a_row_with_its_last_lines(tmp_path: Path) -> None:
    path = started(tmp_path)
    said = conclusive(frontier("tune", str(path), "-o", str(tmp_path / "run"), "--json", timeout=600, cwd=tmp_path))
    tree: dict[str, Any] = json.loads(said.out)
    assert said.code == 0, said.err
    assert (tree["outcome"], tree["chosen"]) == ("better", "quick")
    broken = tree["variants"][1]
    assert broken["reason"].startswith("did not start: ")
    assert "no-such-option" in said.err, "the last lines of its log"
    again = frontier("tune", str(path), "-o", str(tmp_path / "run"), "--json", timeout=60, cwd=tmp_path)
    assert json.loads(again.out) == tree


@pytest.mark.process
@pytest.mark.slow
def test_a_race_that_is_killed_goes_on(tmp_path: Path) -> None:
    path, run = started(tmp_path), tmp_path / "run"
    race = start("tune", str(path), "-o", str(run), cwd=tmp_path)
    journal = run / "journal.jsonl"
    deadline = time.monotonic() + 120
    while (not journal.exists() or journal.read_text().count("trial_done") < 4) and time.monotonic() < deadline:
        time.sleep(0.2)
    race.kill()
    race.communicate()
    before = journal.read_text().count("trial_done")
    said = frontier("tune", str(path), "-o", str(run), "--json", timeout=600, cwd=tmp_path)
    assert json.loads(said.out)["schema"] == "frontier.tune/1"
    lines = RunDirectory.read(run).journal_lines()
    done = [line["trial"] for line in lines if line["event"] == "trial_done"]
    assert len(done) == len(set(done)) > before >= 4, "what was finished is not measured again"


@pytest.mark.process
@pytest.mark.slow
def test_a_budget_ends_a_race_with_what_stands(tmp_path: Path) -> None:
    said = frontier(
        "tune",
        str(started(tmp_path, "budget: {time: 20s}\n")),
        "-o",
        str(tmp_path / "run"),
        "--json",
        timeout=120,
        cwd=tmp_path,
    )
    assert said.code == 4, said.err
    assert json.loads(said.out)["outcome"] == "undecided"
