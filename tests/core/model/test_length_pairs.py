"""Pairs of lengths in a config: which request has which, their common prefix, and what decides a
trial."""

from collections import Counter
from pathlib import Path

import pytest

from frontier import run_sweep
from frontier.client.ask.prompts import PromptPlan
from frontier.client.load.session_plans import plan_session
from frontier.config import Config, load_config
from frontier.config.complaints import ConfigError
from frontier.config.shape_keys import described
from frontier.core.model.shapes import Shape
from frontier.extras.api.notebook_run import NotebookRun
from frontier.planning.plan import make_plan
from frontier.simulator.virtual import virtual_trial
from frontier.store.records import decode_measurement, encode_measurement

PAIRS = "64/8 512/16 2048/32 128/64"


def config(shape: str, more: str = "concurrency: [4]\nrequests: 200") -> Config:
    return load_config(f"endpoint: simulator\nshapes:\n  - {shape}\n{more}\n", "sweep.yaml")


def test_pairs_come_each_as_often_and_together() -> None:
    made = config(f"{{name: mine, pairs: {PAIRS}}}")
    trial = make_plan(made).trials[0]
    records, measurement = virtual_trial(trial, made.deployments[0].engine_spec())
    asked = Counter(
        (r.asked_isl, r.asked_osl) for r in records if measurement.window.start <= r.sent < measurement.window.end
    )
    assert set(asked) == {(64, 8), (512, 16), (2048, 32), (128, 64)}
    assert max(asked.values()) - min(asked.values()) <= 2
    prompts = PromptPlan(trial.shape, 7, trial_seed=trial.seed).source()
    over_http = [(p.isl, p.osl) for p in map(prompts, range(8))]
    assert Counter(over_http) == dict.fromkeys(asked, 2)
    assert over_http[:4] == [tuple(trial.shape.request(i, trial.seed, None)[:2]) for i in range(4)]  # type: ignore[arg-type]


def test_a_prefix_is_a_share_of_each_prompt() -> None:
    shape = config(f"{{name: mine, pairs: {PAIRS}, prefix: 50%}}").shapes[0]
    prompts = [PromptPlan(shape, 7).source()(i) for i in range(4)]
    for one in prompts:
        assert len(str(one.content).split()) == one.isl
    short, long = (next(str(p.content).split() for p in prompts if p.isl == isl) for isl in (64, 2048))
    assert short[:32] == long[:32]
    assert short[32:40] != long[32:40]
    assert shape.cached == 0.5


def test_what_a_pair_is_decides_a_trial() -> None:
    one, other = (config(f"{{name: mine, pairs: {pairs}}}") for pairs in (PAIRS, PAIRS.replace("512/16", "512/17")))
    assert make_plan(one).trials[0].fingerprint != make_plan(other).trials[0].fingerprint
    assert described(one.shapes[0]) != described(other.shapes[0])


def test_a_record_keeps_what_pairs_were_and_not_all_of_them() -> None:
    made = config(f"{{name: mine, pairs: {PAIRS}}}")
    trial = make_plan(made).trials[0]
    _, measurement = virtual_trial(trial, made.deployments[0].engine_spec())
    tree = encode_measurement(measurement)
    assert "table" not in tree["trial"]["shape"]["pairs"]
    assert decode_measurement(tree).trial.shape == trial.shape


def test_pairs_may_be_a_class_of_a_mix() -> None:
    text = "- {name: a, pairs: 64/8 96/8, prefix: 25%}\n  - {name: b, pairs: 900/90}"
    shape = config(text.removeprefix("- "), "traffic: {a: {share: 80%}, b: {}}\nconcurrency: [4]").shapes[0]
    drawn = {plan_session(c.shape, 3, n, 0).turns[0][:2] for c in shape.mix for n in range(6)}
    assert drawn == {(64, 8), (96, 8), (900, 90)}


@pytest.mark.parametrize("pairs", ["64", "64/8 96", "64/8-16", "0/4", "''", "[1, 2]", "64/8,96/8"])
def test_what_is_no_list_of_pairs_is_refused(pairs: str) -> None:
    with pytest.raises(ConfigError):
        config(f"{{name: mine, pairs: {pairs}}}")


def test_a_sweep_of_pairs_gives_a_frontier(tmp_path: Path) -> None:
    text = f"endpoint: simulator\nshapes: [{{name: mine, pairs: {PAIRS}}}]\nconcurrency: [1, 4]\n"
    text += "requests: 100\nrefine: 0\n"
    (tmp_path / "sweep.yaml").write_text(text)
    run = run_sweep(tmp_path / "sweep.yaml", tmp_path / "run", virtual=True)
    assert isinstance(run, NotebookRun)
    assert [p.load for p in run.points() if p.valid] == [1, 4]
    assert {p.shape.label for p in run.points()} == {"mine"}


def test_shapes_without_pairs_draw_as_before() -> None:
    shape = Shape.parse("100-200/8")
    prompts = PromptPlan(shape, 7).source()
    assert all(100 <= prompts(i).isl <= 200 for i in range(20))


def test_a_pair_may_say_how_much_of_its_prompt_is_common() -> None:
    made = load_config(
        "endpoint: simulator\nsimulator: {prefix_cache: true}\n"
        "shapes: [{name: mine, pairs: 400/8/320 400/8/0 800/8/640}]\n"
        "concurrency: [2]\nrequests: 60\n",
        "sweep.yaml",
    )
    shape = made.shapes[0]
    assert shape.prefix == 960 / 1_600
    source = PromptPlan(shape, 7).source()
    texts = sorted((str(source(i).content).split() for i in range(3)), key=len)
    alike = [sum(a == b for a, b in zip(text, texts[2], strict=False)) for text in texts[:2]]
    assert 640 <= len(texts[2]) == 800
    assert max(alike) >= 320 > min(alike)
    records, _ = virtual_trial(make_plan(made).trials[0], made.deployments[0].engine_spec())
    later = [(r.asked_isl, r.cached_tokens or 0) for r in records[10:]]
    assert set(later) == {(400, 320), (400, 0), (800, 640)}


@pytest.mark.parametrize(
    "shape", ["{name: a, pairs: 40/8/40}", "{name: a, pairs: 40/8/20, prefix: 50%}", "{name: a, pairs: 40/8/20/1}"]
)
def test_what_a_pair_cannot_share_is_refused(shape: str) -> None:
    with pytest.raises(ConfigError):
        config(shape)


def test_requests_with_common_parts_of_their_own_are_no_class() -> None:
    with pytest.raises(ConfigError, match="own"):
        config("{name: a, pairs: 64/8/20}\n  - {name: b, pairs: 900/90}", "traffic: {a: {share: 80%}, b: {}}")
