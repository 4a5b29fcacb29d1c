"""A sweep of a mix on the simulated engine: answers by class, records, resume, and what does not
know mixes."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from frontier.core.model.decisions import Verdict
from frontier.core.model.errors import UsageError
from frontier.core.window.window import narrowed
from frontier.extras.verify.open_loop_check import checks
from frontier.read_run import load
from frontier.run import Run
from frontier.show.tables import points_table
from frontier.show.view.json_out import points_json
from frontier.show.view.mixes import shares_sentence
from frontier.show.view.series_view import series_views
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import resumed_without, sweep_in_virtual_time
from tests.kit.trial_rules import broken_rules

TEXT = """\
endpoint: simulator
simulator: {step_base: 5ms, per_decode: 100us, per_prefill_token: 60us, prefix_cache: true, noise: 0.05}
shapes:
  - {name: chat, isl: {uniform: [64, 256]}, osl: 12, prefix: 25%}
  - {name: agent, turns: 3, first: 600, per_turn: 40/8, think: 100ms, system: 200}
traffic:
  chat: {share: 60%, sla: {p90_ttft: 80ms}}
  agent: {share: 40%, sla: {later: {p90_ttft: 1s}}}
concurrency: [2, 8, 32]
requests: 1600
repeats: 1
refine: 0
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return sweep_in_virtual_time(tmp_path_factory.mktemp("mixes") / "run", TEXT)[0]


def test_the_answer_is_for_the_whole_mix_and_names_the_class_that_binds(run: Run) -> None:
    (decision,) = run.solve()
    assert decision.shape.label == "chat60%+agent40%"
    assert (decision.verdict, decision.load, decision.first_fail) == (Verdict.MEETS, 8, 32)
    assert decision.binding == "chat.p90_ttft"
    said = frontier("solve", str(run.path), cwd=run.path.parent)
    assert_golden_row("answers", said.out)
    (shape,) = json.loads(frontier("solve", str(run.path), "--json", cwd=run.path.parent).out)["shapes"]
    chat, agent = shape["classes"]["chat"], shape["classes"]["agent"]
    assert (chat["started"], chat["verdict"], agent["verdict"]) == (0.6, "meets", "meets")
    assert chat["requests"] == pytest.approx(0.6 / (0.6 + 0.4 * 3), abs=0.06)
    assert 0 < chat["in_flight"] < 1


def test_a_class_has_the_figures_of_its_own_records(run: Run) -> None:
    """The oracle goes through the records one by one."""
    (history,) = run.histories.values()
    ((_, sample),) = [(t, s) for t, s in history if t.load == 8]
    point = next(p for p in run.points() if p.load == 8)
    (file,) = (run.path / "trials").glob("*c0008*.jsonl")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert records
    assert all({"session", "turn", "reusable", "class_index"} <= set(r) for r in records)
    inside = [r for r in records if sample.sent[0] - 1e-6 <= r["sent"] <= sample.sent[-1] + 1e-6]
    assert len(inside) == sample.n
    for name, mine in (
        ("chat", [r for r in inside if r["class_index"] == 0]),
        ("agent", [r for r in inside if r["class_index"] == 1]),
        ("agent.first", [r for r in inside if r["class_index"] == 1 and r["turn"] == 0]),
        ("agent.later", [r for r in inside if r["class_index"] == 1 and r["turn"] > 0]),
    ):
        ordered = sorted(r["first"] - r["sent"] for r in mine)
        found = point.metrics[f"{name}.p90_ttft"]
        assert found.n == len(mine)
        assert found.value == pytest.approx(ordered[math.ceil(0.9 * len(mine)) - 1], abs=3e-6)
        whole = sum(r["end"] - r["sent"] for r in inside)
        share = sum(r["end"] - r["sent"] for r in mine) / whole
        assert narrowed(sample, name).load == max(1, round(8 * share))


def test_the_prefix_of_a_class_and_the_history_of_sessions_come_from_the_cache(run: Run) -> None:
    for history in run.histories.values():
        for _, sample in history:
            cached = sample.cached_tokens / sample.prompt_tokens
            assert cached[sample.of_class("agent.later")].mean() > 0.85
            assert 0.1 < cached[sample.of_class("chat")].mean() < 0.25
    assert not [flag for p in run.points() for flag in p.flags if flag.name in ("history_read_again", "wrong_input")]


def test_points_and_tables_tell_the_classes_apart(run: Run) -> None:
    trees = points_json(series_views(run.points(), run.frontiers(run.points())))["points"]
    for tree in trees:
        assert sum(tree["classes"][name]["requests"] for name in ("chat", "agent")) == pytest.approx(1)
        assert tree["in_flight"] < tree["concurrency"]
    table = points_table(series_views(run.points(), run.frontiers(run.points()), run.limits()), width=240)
    for head in ("chat p90 TTFT", "agent.later p90 TTFT", "agent.first p99 TTFT", "in flight"):
        assert head in table


def test_a_sweep_of_a_mix_goes_on_where_it_ended_and_reads_its_caches(run: Run, tmp_path: Path) -> None:
    resumed = resumed_without(run, tmp_path / "again", TEXT, "c0032")
    a, b = (next(p for p in each.points() if p.load == 32) for each in (run, resumed))
    assert a.metrics["agent.later.p90_ttft"] == b.metrics["agent.later.p90_ttft"]
    for series, history in run.histories.items():
        for (_, a), (_, b) in zip(history, load(run.path).histories[series], strict=True):
            np.testing.assert_array_equal(a.class_index, b.class_index)


def test_what_does_not_know_mixes_says_so(run: Run) -> None:
    with pytest.raises(UsageError) as refused:
        checks(run, run.limits())
    assert_golden_row("messages", str(refused.value), "verify")
    assert not any(answer.arrivals for answer in run.answers())
    for command in (("users", "--think", "45s"), ("users", "--emit", "vllm"), ("predict",)):
        said = frontier(command[0], run.path.name, *command[1:], cwd=run.path.parent)
        assert (2, "") == (said.code, said.out)
        assert_golden_row("messages", said.err, " ".join(command))


def test_commands_that_know_mixes(run: Run) -> None:
    here = run.path.parent
    said = frontier("solve", str(run.path), "--sla", "agent.first.p90_ttft<=9s", "--json", cwd=here)
    (shape,) = json.loads(said.out)["shapes"]
    assert (said.code, shape["concurrency"], shape["binding"]) == (0, 32, "agent.first.p90_ttft")
    assert frontier("compare", str(run.path), str(run.path), cwd=here).code == 4, "a run is not better than itself"
    assert frontier("export", str(run.path), "--csv", cwd=here).code == 0
    assert frontier("plot", str(run.path), "-o", "mix.svg", cwd=here).code == 0
    assert "chat60%+agent40%" in (here / "mix.svg").read_text()
    assert frontier("report", str(run.path), "-o", "r.md", cwd=here).code == 0
    (decision,) = run.solve()
    assert shares_sentence(decision.shape, decision.metrics) in (here / "r.md").read_text()
    said = frontier("predict", str(run.path / "config.yaml"), cwd=here)
    assert (said.code, "chat60%+agent40%" in said.out) == (0, True)


def test_its_trials_keep_their_rules(run: Run) -> None:
    assert [] == list(broken_rules(run))


def test_a_class_that_no_run_has_is_refused(run: Run) -> None:
    said = frontier("solve", str(run.path), "--sla", "bag.p90_ttft<=9s", cwd=run.path.parent)
    assert said.code == 2
    assert_golden_row("messages", said.err)


def test_classes_of_equal_lengths_are_judged_each_by_its_own_limit(tmp_path: Path) -> None:
    equal = """\
endpoint: simulator
simulator: {step_base: 5ms, per_decode: 100us, per_prefill_token: 60us, prefix_cache: true, noise: 0.05}
shapes: [{name: chat, isl: 200, osl: 12}, {name: api, isl: 200, osl: 12}]
traffic: {chat: {share: 75%, sla: {p50_ttft: 1s}}, api: {share: 25%, sla: {p50_ttft: 1ms}}}
concurrency: [2]
requests: 600
repeats: 1
refine: 0
"""
    run = sweep_in_virtual_time(tmp_path / "run", equal)[0]
    (decision,) = run.solve()
    assert (Verdict.VIOLATES, "api.p50_ttft") == (decision.verdict, decision.binding)
    (point,) = run.points()
    counts = {name: point.metrics[f"{name}.p50_ttft"].n for name in ("chat", "api")}
    assert 0.7 < counts["chat"] / sum(counts.values()) < 0.8
    assert () == point.flags, "prompts of the one class are not in the cache of the other"
    said = frontier("show", str(run.path), "--json", cwd=tmp_path)
    assert 0 == said.code
