"""`concurrency: auto`: where the scan ends, which settings the frontier has, what bounds them."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

import frontier
from frontier.config import load_config
from frontier.config.config_file import open_run
from frontier.core.claim import proof, solver
from frontier.core.model.decisions import Cause, Explanation, Limit, Reason
from frontier.core.model.loads import doublings
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Phase
from frontier.planning import next_step
from frontier.planning.next_step import with_top
from frontier.planning.plan import highest_tried, make_plan, search_policy
from frontier.search import complete, scan
from frontier.search.auto import MOST, SETTINGS, around
from frontier.search.next_trial import Ask
from frontier.search.scan import SearchPolicy
from frontier.simulator.spec import EngineSpec
from tests.kit.commands import frontier as command
from tests.kit.golden import assert_golden_row
from tests.kit.made import SHAPE, Server, trial
from tests.kit.virtual_truth import truth

TTFT, ANY = (Limit("p99_ttft", 0.5),), (Limit("p99_ttft", 60.0),)


def policy(top: int = MOST) -> SearchPolicy:
    return SearchPolicy(doublings(1, top), auto=True)


def swept(server, limits, asked=scan.next_ask, top=MOST):
    """What is asked for until there is nothing more to ask, and the history."""
    history, asks = [], []
    while isinstance(ask := asked(policy(top), SHAPE, [("", limits)] if limits else [], history), Ask):
        asks.append(ask)
        assert len(asks) < 150, "the search does not end"
        repeat = 1 + sum((t.load, t.phase) == (ask.load, ask.phase) for t, _ in history)
        planned = trial(ask.load, ask.phase, repeat, ask.requests)
        history.append((planned, server.run(planned)))
    return asks, history, ask


def settings(asks, *phases):
    return sorted({ask.load for ask in asks if ask.phase in phases})


@pytest.mark.parametrize("edge", [3, 20, 200, 2000])
def test_the_edge_is_found_wherever_it_is(edge):
    # With sigma 0.2 the p99 is 1.59 times the median.
    asks, _, done = swept(Server(ttft=lambda c: 0.5 / 1.592 * c / edge), TTFT)
    assert min(0.75 * edge, edge - 1) <= done.proven <= edge
    assert max(settings(asks, Phase.SCAN)) <= 4 * edge


def limited(slots):
    """A server of so many slots, whose throughput grows no more beyond them."""
    return Server(tpot=lambda c: 0.01 * max(1.0, c / slots), ttft=lambda c: 0.05 * max(1.0, c / slots))


@pytest.mark.parametrize("slots", [8, 100])
def test_the_scan_ends_where_throughput_no_longer_grows(slots):
    for limits, asked in ((ANY, scan.next_ask), ((), complete.next_ask)):
        asks, _, _ = swept(limited(slots), limits, asked)
        assert slots <= max(settings(asks, Phase.SCAN)) <= 16 * slots


def test_the_scan_ends_at_the_top_and_names_no_higher_setting():
    asks, _, done = swept(Server(ttft=lambda c: 0.01), TTFT, top=48)
    assert 48 == max(settings(asks, Phase.SCAN)) == done.proven


def test_without_an_sla_the_frontier_follows_from_where_throughput_bends():
    asks, _, done = swept(limited(100), (), complete.next_ask)
    grid = settings(asks, Phase.GRID)
    assert SETTINGS <= len(grid) <= SETTINGS + 2
    assert 4 <= sum(50 <= c <= 200 for c in grid)
    assert not isinstance(done, Ask)


def test_the_frontier_has_about_eight_settings_closer_together_near_the_edge():
    asks, history, _ = swept(Server(ttft=lambda c: 0.5 / 1.592 * c / 200), TTFT, complete.next_ask)
    point = max(settings(asks, Phase.VISIT))
    grid = settings(asks, Phase.GRID)
    measured = {t.load for t, _ in history if t.phase is not Phase.SCAN}
    assert 150 <= point <= 200
    assert 6 <= len(grid) <= 2 * SETTINGS
    assert 3 <= sum(point / 2.5 <= c <= 2.5 * point for c in grid)
    assert 1 in measured
    assert max(grid) <= 4 * point


@pytest.mark.parametrize("top", [1, 2, 7, 48, 200, MOST])
def test_the_settings_around_an_edge_are_some_of_those_that_may_be_measured(top):
    for edge in sorted({1, 2, 3, 5, 17, 100, 1000, top}):
        found = around(min(edge, top), top)
        assert sorted(set(found)) == list(found)
        assert 1 == found[0]
        assert found[-1] <= top
        assert min(SETTINGS, len(found)) == len(found)
        assert min(abs(math.log(c / min(edge, top))) for c in found) <= math.log(1.5)


# ---- what bounds it


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("endpoint: simulator\nsimulator: {max_num_seqs: 20}", (20, Cause.STATED_SLOTS)),
        ("endpoint: http://h:1", (MOST, Cause.MOST_TRIED)),
        ("endpoint: http://h:1\nstart: vllm serve m --max-num-seqs 96", (96, Cause.STATED_SLOTS)),
        ("endpoint: http://h:1\nstart: llama-server --parallel=8", (8, Cause.STATED_SLOTS)),
        ("endpoint: http://h:1\nstart: vllm serve m --max-num-seqs 9000", (MOST, Cause.MOST_TRIED)),
    ],
)
def test_the_deployments_own_slots_bound_what_is_tried(lines, expected):
    config = load_config(f"{lines}\nshapes: [64/16]\n", "c.yaml")
    assert expected == highest_tried(config.deployments[0], MOST)
    assert expected[0] == search_policy(config, MOST).top
    assert {1} == {t.load for t in make_plan(config).trials}


def test_a_client_that_holds_fewer_bounds_it():
    config = load_config("endpoint: http://h:1\nshapes: [64/16]\n", "c.yaml")
    assert (500, Cause.CLIENT_CAPACITY) == highest_tried(config.deployments[0], 500)


def looked_at(server, settings):
    planned = [trial(c, Phase.SCAN, 1, max(200, 10 * c)) for c in settings]
    return [(each, server.run(each)) for each in planned]


@pytest.mark.parametrize(
    ("settings", "top", "cause"),
    [
        ((1, 4, 16, 64), MOST, Cause.NO_MORE_THROUGHPUT),
        ((1, 4), MOST, Cause.SCAN_CUT),
        ((1, 4), 4, Cause.STATED_SLOTS),
    ],
)
def test_the_answer_says_why_nothing_higher_was_tried(settings, top, cause, monkeypatch):
    config = load_config("endpoint: http://h:1\nshapes: [512/100]\n", "c.yaml")
    monkeypatch.setattr(next_step, "highest_tried", lambda *_: (top, Cause.STATED_SLOTS))
    history = looked_at(limited(8), settings)
    (decision,) = solver.solve_all([proof.pilot_point(history[0][1], ANY)], ANY)
    highest = Explanation(reasons=(Reason(Cause.HIGHEST_MEASURED, (settings[-1],)),))
    decision = replace(decision, deployment="default", explanation=highest)
    assert cause in {reason.cause for reason in with_top(decision, config, history, MOST).reasons}
    listed = load_config("endpoint: http://h:1\nshapes: [512/100]\nconcurrency: 1..64\n", "c.yaml")
    measured_all = settings[-1] == 64
    expected = Cause.HIGHEST_MEASURED if measured_all else Cause.SCAN_CUT
    assert [expected] == [reason.cause for reason in with_top(decision, listed, history, MOST).reasons]


def test_a_run_that_was_begun_with_the_doublings_goes_on_with_them(tmp_path: Path) -> None:
    text = "endpoint: simulator\nshapes: [64/16]\nsla: {p99_ttft: 1s}\n"
    (tmp_path / "sweep.yaml").write_text(text)
    listed = load_config(f"{text}concurrency: 1..128\n", "sweep.yaml")
    with open_run(tmp_path / "run", listed, text, {}):
        pass
    file = tmp_path / "run/manifest.json"
    manifest = json.loads(file.read_text())
    del manifest["defaults"]["concurrency"]  # as 1.0.0 wrote it
    file.write_text(json.dumps(manifest))
    said = command("sweep", "sweep.yaml", "-o", "run", "--dry-run", "--json", cwd=tmp_path, here=True)
    assert list(doublings(1, 128)) == json.loads(said.out)["concurrency"]


CONFIG = "endpoint: simulator\nsimulator: {max_num_seqs: 20}\nshapes: [64/16]\n"


@pytest.mark.parametrize(
    "lines", ["", "sla: {p99_ttft: 1s}", "sla: {p99_ttft: 1s}\nconcurrency: 1..32", "concurrency: 8"]
)
def test_the_plan_says_how_settings_are_found_or_that_the_highest_listed_may_bind(tmp_path: Path, lines: str) -> None:
    (tmp_path / "sweep.yaml").write_text(f"{CONFIG}{lines}\n")
    assert_golden_row("answers", command("sweep", "sweep.yaml", "--dry-run", cwd=tmp_path, here=True).out)
    tree = json.loads(command("sweep", "sweep.yaml", "--dry-run", "--json", cwd=tmp_path, here=True).out)
    expected = None if "concurrency" in lines else {"default": {"most": 20, "cause": "stated_slots"}}
    assert expected == tree["auto"]


# ---- whole sweeps of the embedded engine

ENGINE = "max_num_seqs: {slots}, step_base: 5ms, per_decode: 5us, per_prefill_token: 1us, noise: 0.05"


@pytest.mark.process
@pytest.mark.parametrize("slots", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_four_lines_find_the_edge(tmp_path: Path, slots: int) -> None:
    engine = "{" + ENGINE.format(slots=slots) + "}"
    config = tmp_path / "sweep.yaml"
    config.write_text(f"endpoint: simulator\nsimulator: {engine}\nshapes: [64/16]\nsla: {{p90_tpot: 14ms}}\n")
    run = frontier.run_sweep(config, tmp_path / "run", virtual=True)
    (decision,) = run.solve()
    spec, shape = EngineSpec.from_mapping({"max_num_seqs": slots, **dict(_pairs())}), Shape.of(64, 16)
    inside = [c for c in around(slots, slots) if 2 * c > slots and truth(spec, shape, c, "p90_tpot", 1_500) <= 0.014]
    best = max(truth(spec, shape, c, "output_throughput", 1_500) for c in inside)
    assert decision.load is not None
    assert truth(spec, shape, decision.load, "p90_tpot", 1_500) <= 0.014
    assert truth(spec, shape, decision.load, "output_throughput", 1_500) >= 0.95 * best
    causes = {reason.cause for reason in decision.explanation.reasons}
    assert decision.load < slots or Cause.STATED_SLOTS in causes


def _pairs() -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (part.partition(": ") for part in ENGINE.split(", ")[1:])]


def test_nothing_changes_for_listed_settings() -> None:
    listed = load_config("endpoint: http://h:1\nshapes: [64/16]\nconcurrency: 1..64\n", "c.yaml")
    expected = SearchPolicy(doublings(1, 64), warmup=listed.warmup, marginal_gain=True)
    assert expected == search_policy(listed, MOST)
