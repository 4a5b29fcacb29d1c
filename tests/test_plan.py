"""The plan: every setting in every block, an order that drift cannot pose as concurrency, seeds that never repeat."""

import itertools
import json
import statistics

import pytest

from frontier.config import Config, load_config
from frontier.config.schema import TURNS
from frontier.decide.proof import MAX_WINDOWS
from frontier.model import Phase, Shape, Trial
from frontier.plan import RECORD_BYTES, TOKEN_BYTES, Plan, estimate, make_plan, make_trial

TWO = """\
endpoint: http://h:8000
shapes: [1024/256, 64/16]
concurrency: [1, 2, 4, 8, 16, 32, 64, 128]
requests: 200
sla: {p99_ttft: 1s}
deployments: [{name: bf16}, {name: fp8, endpoint: "http://h:8001"}]
"""


def load(more: str = "", base: str = TWO) -> Config:
    return load_config(base + more, "s.yaml")


def plan(more: str = "") -> Plan:
    return make_plan(load(more))


def setting(trial: Trial) -> tuple[str, Shape, int]:
    return trial.deployment, trial.shape, trial.concurrency


def test_every_setting_is_run_once_in_every_block() -> None:
    config = load()
    every = {(d.name, s, c) for d in config.deployments for s in config.shapes for c in config.concurrency}
    trials = make_plan(config).trials
    for repeat in (1, 2, 3):
        block = [setting(t) for t in trials if t.repeat == repeat]
        assert len(every) == len(block)
        assert every == set(block)


def test_blocks_follow_each_other_and_each_has_an_order_of_its_own() -> None:
    trials = plan().trials
    assert sorted(t.repeat for t in trials) == [t.repeat for t in trials]
    orders = [[setting(t) for t in trials if t.repeat == r] for r in (2, 3)]
    assert orders[0] != orders[1]


def test_the_first_trials_are_each_shape_on_each_deployment_at_the_lowest_concurrency() -> None:
    trials = plan().trials
    assert {("bf16", "1024/256", 1), ("fp8", "1024/256", 1), ("bf16", "64/16", 1), ("fp8", "64/16", 1)} == {
        (t.deployment, t.shape.label, t.concurrency) for t in trials[:4]
    }
    assert all(t.concurrency > 1 for t in trials[4:32])


def test_deployments_take_turns_setting_by_setting_and_neither_is_always_first() -> None:
    later = plan().trials[4:]
    pairs = list(itertools.pairwise(later))[::2]
    assert all((a.shape, a.concurrency) == (b.shape, b.concurrency) for a, b in pairs)
    assert all({"bf16", "fp8"} == {a.deployment, b.deployment} for a, b in pairs)
    assert {"bf16", "fp8"} == {a.deployment for a, _ in pairs}


def test_a_drift_of_the_machine_does_not_look_like_concurrency() -> None:
    """Over many sweeps, the place of a setting in its block does not depend on its concurrency."""
    ranks: dict[int, list[float]] = {}
    for seed in range(1, 41):
        block = [t for t in plan(f"seed: {seed}\n").trials if t.repeat == 2]
        for i, trial in enumerate(block):
            ranks.setdefault(trial.concurrency, []).append(i / len(block))
    # 160 places each, uniform on 0..1: the mean has a standard error of 0.023; four of them are allowed.
    assert all(abs(statistics.fmean(places) - 0.5) < 0.092 for places in ranks.values())


def test_the_same_config_gives_the_same_plan_and_another_seed_another_order() -> None:
    assert plan() == plan()
    assert [setting(t) for t in plan().trials] != [setting(t) for t in plan("seed: 2\n").trials]


def test_no_two_trials_share_a_seed_a_key_or_a_fingerprint() -> None:
    config = load("repeats: 5\n")
    trials = list(make_plan(config).trials)
    for phase in (Phase.LOCATE, Phase.CONFIRM, Phase.FRONTIER):
        trials += [make_trial(config, config.deployments[0], config.shapes[0], c, phase, 1, 200) for c in (1, 2, 3)]
    for what in ({t.seed for t in trials}, {t.key for t in trials}, {t.fingerprint for t in trials}):
        assert len(trials) == len(what)
    assert all(0 <= t.seed < 2**60 for t in trials)


def test_seeds_and_fingerprints_are_the_same_on_every_machine() -> None:
    config = load_config("endpoint: http://h\nshapes: 1/1\n", "s.yaml")
    trial = make_trial(config, config.deployments[0], config.shapes[0], 8, Phase.GRID, 2, 300)
    assert (289814188846204209, "77f652de56a41500") == (trial.seed, trial.fingerprint)


def fingerprint(config: Config, requests: int = 200) -> str:
    return make_trial(config, config.deployments[0], config.shapes[0], 4, Phase.GRID, 1, requests).fingerprint


@pytest.mark.parametrize(
    "line", ["repeats: 9", "refine: 0", "objectives: [goodput, p50_e2e]", "price: $1/h", "budget: {time: 9h}"]
)
def test_a_finished_trial_still_counts_when_nothing_it_depends_on_changes(line: str) -> None:
    assert fingerprint(load()) == fingerprint(load(line + "\n"))
    assert fingerprint(load()) == fingerprint(load(base=TWO.replace("[1, 2, 4, 8,", "[1, 3, 4, 9,")))
    assert fingerprint(load()) == fingerprint(load(base=TWO.replace("8001", "9001"))), "another deployment changed"


@pytest.mark.parametrize(
    "line",
    ["seed: 2", "warmup: 9s", "max_time: 4min", "min_time: 9s", "prompts: p.jsonl", "ignore_eos: false", "model: m",
     "extra_body: {temperature: 0}", "timeouts: {idle: 9s}", "headers: {X-A: b}", "dialect: vllm", "api: chat"],
)  # fmt: skip
def test_a_finished_trial_no_longer_counts_when_something_it_depends_on_changes(line: str) -> None:
    assert fingerprint(load()) != fingerprint(load(line + "\n"))
    assert fingerprint(load(), 200) != fingerprint(load(), 201)


def test_a_window_holds_several_turns_of_every_stream() -> None:
    config = load()
    assert (200, 200, 320) == tuple(config.window_requests(c) for c in (1, 40, 64))
    assert all(t.requests >= max(200, TURNS * t.concurrency) for t in make_plan(config).trials)


def test_the_longest_time_is_every_trial_at_its_limit_and_refinement_comes_on_top() -> None:
    found = plan("max_time: 2min\nrefine: 4\n")
    assert 2 * 2 * 8 * 3 * 120.0 == found.longest
    assert 4 * 4 * MAX_WINDOWS * 120.0 == found.refine_longest
    assert sum(t.requests for t in found.trials) == found.requests


def test_without_an_sla_there_is_nothing_to_refine_toward() -> None:
    found = make_plan(load(base=TWO.replace("sla: {p99_ttft: 1s}\n", "")))
    assert (0, 0.0) == (found.refine, found.refine_longest)


def test_a_trial_costs_what_its_requests_take_and_never_more_than_its_limit() -> None:
    config = load("max_time: 1min\nmin_time: 5s\n")
    one = make_trial(config, config.deployments[0], config.shapes[1], 1, Phase.GRID, 1, 200)
    many = make_trial(config, config.deployments[0], config.shapes[1], 100, Phase.GRID, 1, 500)
    unknown, slow, quick = (
        *estimate((one,), config),
        *estimate((one, many), config, lambda _: 2.0),
    )
    assert (60.0, None) == (unknown.longest, unknown.expected)
    assert 203 * (RECORD_BYTES + 16 * TOKEN_BYTES) == unknown.bytes
    assert (62.0, 62.0) == (slow.longest, slow.expected)  # 200 requests of 2 s do not fit into a minute
    assert 32 * (RECORD_BYTES + 16 * TOKEN_BYTES) == slow.bytes
    assert 6.0 + 10.0 + 2.0 == quick.expected  # three E2E of warm-up, 5 turns of 2 s, the last requests


def test_the_summary_is_json_and_lists_the_trials_in_order() -> None:
    found = plan()
    summary = json.loads(json.dumps(found.summary()))
    assert [t.key for t in found.trials] == [t["key"] for t in summary["trials"]]
    assert (["bf16", "fp8"], found.longest) == (summary["deployments"], summary["longest_seconds"])
