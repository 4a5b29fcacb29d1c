"""The plan: every setting in every block, an order that drift cannot pose as concurrency, seeds
that never repeat."""

import itertools
import json
import statistics

import pytest

from frontier.config import Config, load_config
from frontier.config.config_file import with_prompts
from frontier.config.schema import LONGEST, LONGEST_TRIAL, TURNS
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Phase, Trial
from frontier.planning.plan import (
    GRID_SECONDS,
    RECORD_BYTES,
    STATED_SECONDS,
    TOKEN_BYTES,
    Plan,
    halving,
    longest_of,
    make_plan,
    make_trial,
)

TWO = """\
endpoint: http://h:8000
shapes: [1024/256, 64/16]
concurrency: [1, 2, 4, 8, 16, 32, 64, 128]
requests: 200
repeats: 3
max_time: 5min
sla: {p99_ttft: 1s}
deployments: [{name: bf16}, {name: fp8, endpoint: "http://h:8001"}]
"""


def load(more: str = "", base: str = TWO) -> Config:
    return load_config(base + more, "s.yaml")


def plan(more: str = "") -> Plan:
    return make_plan(load(more))


def setting(trial: Trial) -> tuple[str, Shape, int]:
    return trial.deployment, trial.shape, trial.load


def test_every_setting_is_run_once_in_every_block() -> None:
    config = load()
    every = {(d.name, s, c) for d in config.deployments for s in config.shapes for c in config.loads}
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
        (t.deployment, t.shape.label, t.load) for t in trials[:4]
    }
    assert min(t.load for t in trials[4:32]) > 1


def test_deployments_take_turns_setting_by_setting_and_neither_is_always_first() -> None:
    later = plan().trials[4:]
    pairs = list(itertools.pairwise(later))[::2]
    assert pairs
    assert all((a.shape, a.load) == (b.shape, b.load) for a, b in pairs)
    assert all({"bf16", "fp8"} == {a.deployment, b.deployment} for a, b in pairs)
    assert {"bf16", "fp8"} == {a.deployment for a, _ in pairs}


def test_a_drift_of_the_machine_does_not_look_like_concurrency() -> None:
    """Over many sweeps, the place of a setting in its block does not depend on its concurrency."""
    ranks: dict[int, list[float]] = {}
    for seed in range(1, 41):
        block = [t for t in plan(f"seed: {seed}\n").trials if t.repeat == 2]
        for i, trial in enumerate(block):
            ranks.setdefault(trial.load, []).append(i / len(block))
    # 160 places each, uniform on 0..1: the mean has a standard error of 0.023; four of them are
    # allowed.
    assert max(abs(statistics.fmean(places) - 0.5) for places in ranks.values()) < 0.092


def test_the_same_config_gives_the_same_plan_and_another_seed_another_order() -> None:
    assert plan() == plan()
    assert [setting(t) for t in plan().trials] != [setting(t) for t in plan("seed: 2\n").trials]


def test_no_two_trials_share_a_seed_a_key_or_a_fingerprint() -> None:
    config = load(base=TWO.replace("repeats: 3", "repeats: 5"))
    trials = list(make_plan(config).trials)
    for phase in (Phase.LOCATE, Phase.CONFIRM, Phase.FRONTIER):
        trials += [make_trial(config, config.deployments[0], config.shapes[0], c, phase, 1, 200) for c in (1, 2, 3)]
    for what in ({t.seed for t in trials}, {t.key for t in trials}, {t.fingerprint for t in trials}):
        assert len(trials) == len(what)
    assert [] == [t for t in trials if not 0 <= t.seed < 2**60]


def test_seeds_and_fingerprints_are_the_same_on_every_machine() -> None:
    config = load_config("endpoint: http://h\nshapes: 1/1\n", "s.yaml", begun={})
    trial = make_trial(config, config.deployments[0], config.shapes[0], 8, Phase.GRID, 2, 300)
    assert (289814188846204209, "77f652de56a41500") == (trial.seed, trial.fingerprint), "as 0.1.0 wrote it"


def fingerprint(config: Config, requests: int = 200) -> str:
    return make_trial(config, config.deployments[0], config.shapes[0], 4, Phase.GRID, 1, requests).fingerprint


@pytest.mark.parametrize("line", ["refine: 0", "objectives: [goodput, p50_e2e]", "price: $1/h", "budget: {time: 9h}"])
def test_a_finished_trial_still_counts_when_nothing_it_depends_on_changes(line: str) -> None:
    assert fingerprint(load()) == fingerprint(load(line + "\n"))
    assert fingerprint(load()) == fingerprint(load(base=TWO.replace("[1, 2, 4, 8,", "[1, 3, 4, 9,")))
    assert fingerprint(load()) == fingerprint(load(base=TWO.replace("repeats: 3\n", "")))
    assert fingerprint(load()) == fingerprint(load(base=TWO.replace("8001", "9001"))), "another deployment changed"


@pytest.mark.parametrize(
    "line",
    [
        "seed: 2",
        "warmup: 9s",
        "min_time: 9s",
        "prompts: p.jsonl",
        "ignore_eos: false",
        "model: m",
        "extra_body: {temperature: 0}",
        "timeouts: {idle: 9s}",
        "headers: {X-A: b}",
        "dialect: vllm",
        "api: chat",
    ],
)
def test_a_finished_trial_no_longer_counts_when_something_it_depends_on_changes(line: str) -> None:
    assert fingerprint(load()) != fingerprint(load(line + "\n"))
    assert fingerprint(load()) != fingerprint(load(base=TWO.replace("5min", "4min")))
    assert fingerprint(load(), 200) != fingerprint(load(), 201)


def test_a_window_holds_several_turns_of_every_stream() -> None:
    trials = make_plan(load()).trials
    assert {200, 320, 640} == {t.requests for t in trials}
    assert all(t.requests == max(200, TURNS * t.load) for t in trials)
    assert {None} == {t.seconds for t in trials}


def test_the_longest_time_is_every_trial_at_its_limit() -> None:
    found = plan("refine: 4\n")
    assert (4, sum(t.requests for t in found.trials)) == (
        found.refine,
        found.summary(load("refine: 4\n"))["requests_at_least"],
    )


def test_without_an_sla_there_is_nothing_to_search_for() -> None:
    assert 0 == make_plan(load(base=TWO.replace("sla: {p99_ttft: 1s}\n", ""))).refine


LEFT_OUT = TWO.replace("requests: 200\nrepeats: 3\nmax_time: 5min\n", "")


def test_where_sizes_are_left_out_a_trial_is_bounded_by_the_time_of_its_window() -> None:
    found = make_plan(load(base=LEFT_OUT))
    assert (32, False, None) == (len(found.trials), found.sized, found.refine)
    assert {(GRID_SECONDS, LONGEST_TRIAL)} == {(t.seconds, t.max_time) for t in found.trials}
    assert {2 * GRID_SECONDS} == {longest_of(t) for t in found.trials}
    shape = [t.load for t in found.trials if (t.deployment, t.shape.label) == ("fp8", "64/16")]
    assert halving((1, 2, 4, 8, 16, 32, 64, 128)) == shape, "the widest gap first, wherever it is cut"
    stated = make_plan(load("requests: 90\n", base=LEFT_OUT))
    assert {(STATED_SECONDS, True, 1)} == {(t.seconds, stated.sized, t.repeat) for t in stated.trials}
    (one,) = make_plan(load("min_time: 3min\n", base=LEFT_OUT), only=["bf16", "64/16"]).trials[:1]
    assert 180.0 == one.seconds, "min_time holds"


def test_what_is_finished_is_not_left_and_its_size_matters_only_where_it_was_stated() -> None:
    for base, counts in ((TWO, False), (LEFT_OUT, True)):
        config = load(base=base)
        found = make_plan(config)
        one = found.trials[3]
        deployment = config.deployment(one.deployment)
        larger = make_trial(config, deployment, one.shape, one.load, one.phase, one.repeat, 7_000)
        assert len(found.trials) - 1 == len(found.left({one.key: one}))
        assert counts == (one not in found.left({one.key: larger}))


def test_a_trial_takes_its_limit_at_most() -> None:
    config = load("min_time: 5s\n", TWO.replace("5min", "1min"))
    one = make_trial(config, config.deployments[0], config.shapes[1], 1, Phase.GRID, 1, 200)
    assert 60.0 == longest_of(one)


def test_a_plan_takes_the_bytes_of_all_that_its_trials_may_send() -> None:
    listed = make_plan(load("refine: 0\n"), only=["bf16", "64/16"])
    sent = sum(t.requests + 3 * t.load for t in listed.trials)
    assert sent * (RECORD_BYTES + 16 * TOKEN_BYTES) == listed.expected_bytes


def test_the_summary_is_json_and_lists_the_trials_in_order() -> None:
    found = plan()
    summary = json.loads(json.dumps(found.summary(load())))
    assert [t.key for t in found.trials] == [t["key"] for t in summary["trials"]]
    assert ["bf16", "fp8"] == summary["deployments"]


def test_passes_over_a_file_stay_whole_with_many_streams_and_are_bounded_by_a_day() -> None:
    text = "endpoint: http://h\nshapes: [8/8]\nprompts: p.jsonl\nrequests: 2 passes\nconcurrency: [1, 7, 64]\n"
    trials = make_plan(with_prompts(load("", base=text), 30)).trials
    sizes = {trial.load: trial.requests for trial in trials}
    assert {1: 60, 7: 60, 64: 330} == sizes
    assert {(None, LONGEST)} == {(trial.seconds, trial.max_time) for trial in trials}
