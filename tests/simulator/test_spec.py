import json
import re

import pytest

from frontier.fields import Problem
from frontier.simulator.engine import Scheduler
from frontier.simulator.spec import EngineSpec, Faults, Stalls, kv_blocks, max_len, price_of, roofline_of
from tests.kit.golden import assert_golden_row

READ = EngineSpec.from_mapping


def test_durations_are_text_with_a_unit_or_seconds():
    spec = READ({"step_base": "6.5ms", "per_decode": 2e-5, "per_prefill_token": "25us", "per_context_token": "45ns"})
    assert (6.5e-3, 2e-5, 25e-6, 45e-9) == pytest.approx(
        (spec.step_base, spec.per_decode, spec.per_prefill_token, spec.per_context_token)
    )


def test_an_empty_mapping_is_the_default_engine():
    assert EngineSpec() == READ({}) == READ({"noise": None})


_SIZES = {"hidden": 64, "layers": 2, "heads": 2, "kv_heads": 2, "intermediate": 64, "vocab": 64}


WRONG = [
    ({"step_bas": "5ms"}, "step_bas"),
    ({"zzz": 1}, "zzz"),
    ({"step_base": "5"}, "step_base"),
    ({"step_base": -1}, "step_base"),
    ({"step_base": True}, "step_base"),
    ({"step_base": 0, "per_decode": 0}, "step_base"),
    ({"max_num_seqs": 1.5}, "max_num_seqs"),
    ({"max_num_seqs": 0}, "max_num_seqs"),
    ({"max_num_seqs": 64, "max_batched_tokens": 32}, "max_batched_tokens"),
    ({"noise": "much"}, "noise"),
    ({"noise_kind": "normal"}, "noise_kind"),
    ({"stalls": 3}, "stalls"),
    ({"stalls": {"every": "10s"}}, "duration"),
    ({"stalls": {"every": "10s", "duration": 0}}, "stalls.duration"),
    ({"stalls": {"evry": "10s"}}, "evry"),
    ({"model": "llama-3.1-8b"}, "hardware"),
    ({"hardware": "h100"}, "model"),
    ({"model": "llama-3.1-9b", "hardware": "h100"}, "model"),
    ({"model": 8, "hardware": "h100"}, "model"),
    ({"model": "llama-3.1-8b", "hardware": "h1000"}, "hardware"),
    ({"model": "llama-3.1-70b", "hardware": "h100"}, "tp"),
    ({"model": "llama-3.1-8b", "hardware": "h100", "step_base": "1ms"}, "step_base"),
    ({"efficiency": 0}, "efficiency"),
    ({"prefix_cache": "perhaps"}, "prefix_cache"),
    ({"kv_tokens": 20}, "kv_tokens"),
    ({"model": {"hidden": 8, "heads": 0}, "hardware": "h100"}, "layers"),
    ({"model": _SIZES | {"heads": 0}, "hardware": "h100"}, "model.heads"),
    ({"model": _SIZES | {"vocab": 10**30}, "hardware": "h100"}, "model.vocab"),
    (
        {"model": {"num_hidden_layers": 1e300, "hidden_size": 8, "num_attention_heads": 0}, "hardware": "h100"},
        "model.num_hidden_layers",
    ),
    ({"step_base": "25h"}, "step_base"),
    ({"kv_tokens": 1e300}, "kv_tokens"),
    ({"model_name": ""}, "model_name"),
]


@pytest.mark.parametrize(("mapping", "key"), WRONG, ids=[json.dumps(mapping) for mapping, _ in WRONG])
def test_a_wrong_mapping_is_refused_by_the_name_of_its_key(mapping, key):
    with pytest.raises(Problem) as refused:
        READ(mapping)
    named = re.match(r"(?:unknown key '|[\w.]+: unknown key '|(?:\w+: )?the key )?([\w.]+)", refused.value.what)
    assert named is not None
    assert named[1] == key
    assert_golden_row("complaints", f"{refused.value.what}\n  {refused.value.hint}")


def test_text_as_a_command_line_gives_it_is_understood():
    spec = READ({"max_num_seqs": "16", "noise": "5%", "drift": "-0.01", "prefix_cache": "true", "efficiency": "0.5"})
    assert (16, 0.05, -0.01, True, 0.5) == (
        spec.max_num_seqs,
        spec.noise,
        spec.drift,
        spec.prefix_cache,
        spec.efficiency,
    )


@pytest.mark.parametrize(
    "mapping",
    [
        {},
        {"noise": 0.1, "stalls": {"every": "30s", "duration": "200ms"}, "faults": {"error_rate": 0.01}, "seed": 4},
        {"model": "deepseek-r1", "hardware": "h200", "tp": 8, "model_name": "r1", "kv_precision": "fp8"},
        {"model": "gpt-oss-120b", "hardware": {"memory_bandwidth": "2TB/s", "memory": "192GB", "tflops": 700}},
    ],
)
def test_a_spec_survives_the_journey_through_json(mapping):
    spec = READ(mapping)
    assert spec == READ(json.loads(json.dumps(spec.to_mapping())))


def test_parts_become_types():
    spec = READ({"stalls": {"every": "1min", "duration": "0.5s"}, "faults": {"cut_rate": "2%"}})
    assert Stalls(60.0, 0.5) == spec.stalls
    assert Faults(0.0, 0.02) == spec.faults


def test_a_model_on_hardware_is_priced_by_its_roofline():
    spec = READ({"model": "llama-3.1-8b", "hardware": "h100", "efficiency": 0.5, "overhead": "2ms"})
    roofline = roofline_of(spec)
    price = price_of(spec)
    assert price.decode(64, 64 * 1536) == pytest.approx(2e-3 + roofline.decode(64, 1536).seconds / 0.5)
    prompt = price.mixed(0, 0, 0, 1024, 1024**2 / 2, 1)
    assert prompt == pytest.approx(2e-3 + roofline.prefill(1024).seconds / 0.5)
    assert "Llama-3.1-8B" == spec.model_name
    assert kv_blocks(spec) == roofline.kv_tokens() // 16
    assert 350_000 < roofline.kv_tokens() < 500_000


@pytest.mark.parametrize("name", ["deepseek-r1", "gpt-oss-120b", "qwen3-235b"])
def test_experts_and_windows_are_in_the_price_of_a_step(name):
    spec = READ({"model": name, "hardware": "h200", "tp": 8, "efficiency": 1.0, "overhead": 0, "kv_precision": "bf16"})
    roofline, price = roofline_of(spec), price_of(spec)
    for batch in (1, 8, 64):
        expected = roofline.decode(batch, 1536).seconds + roofline.all_reduce(batch)
        assert price.decode(batch, batch * 1536) == pytest.approx(expected)


def test_efficiency_never_makes_a_step_faster_than_its_roofline():
    best, half = (
        price_of(READ({"model": "qwen3-32b", "hardware": "h100", "tp": 2, "overhead": 0, "efficiency": e}))
        for e in (1.0, 0.5)
    )
    assert best.decode(32, 32_000) < half.decode(32, 32_000)


def test_time_scale_multiplies_every_price():
    for mapping in ({}, {"model": "llama-3.1-8b", "hardware": "h100"}):
        slow, fast = price_of(READ(mapping)), price_of(READ({**mapping, "time_scale": 0.1}))
        assert fast.decode(8, 9000) == pytest.approx(0.1 * slow.decode(8, 9000))
        assert fast.mixed(8, 9000, 8, 500, 1e5, 1) == pytest.approx(0.1 * slow.mixed(8, 9000, 8, 500, 1e5, 1))


def test_a_context_is_never_longer_than_the_kv_holds():
    assert 1600 - 16 == max_len(READ({"kv_tokens": 1600, "watermark": 0.01}))
    assert 512 == max_len(READ({"max_model_len": 512}))
    assert Scheduler(READ({"max_model_len": 512})).max_len == 512


def test_weights_fit_on_enough_gpus():
    assert 4 == READ({"model": "llama-3.1-70b", "hardware": "h100", "tp": 4}).tp


def test_an_explicit_spec_has_no_roofline():
    with pytest.raises(ValueError, match="explicit durations"):
        roofline_of(EngineSpec())
