import csv
import dataclasses

import pytest

from frontier.core.model.shapes import Lengths, Shape
from frontier.hardware.gpus import HARDWARE, hardware
from frontier.hardware.models import CARDS, card
from frontier.hardware.roofline import ModelRoofline
from tests.kit.places import DATA

SILICON = DATA / "silicon" / "sample.csv"


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        ("llama-3.1-8b", 65_536),
        ("llama-3.1-70b", 163_840),
        ("qwen3-32b", 131_072),
        ("qwen3-235b", 96_256),
        ("minimax-m2.5", 126_976),
        ("deepseek-r1", 35_136),
        ("gpt-oss-120b", 36_864),
    ],
)
def test_kv_elements_per_token_are_the_published_ones(name, elements):
    assert elements == card(name).kv_elements


@pytest.mark.parametrize(("tokens", "experts"), [(1, 8), (8, 57.4), (16, 102), (32, 163), (64, 222), (128, 252)])
def test_experts_touched_are_those_of_uniform_routing(tokens, experts):
    assert card("deepseek-r1").touched(tokens) == pytest.approx(experts, abs=0.5)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("llama-3.1-8b", 8.03),
        ("llama-3.1-70b", 70.6),
        ("qwen3-32b", 32.8),
        ("qwen3-235b", 235),
        ("deepseek-r1", 671),
        ("gpt-oss-120b", 117),
        ("minimax-m2.5", 230),
    ],
)
def test_a_card_has_the_parameters_its_model_is_known_for(name, billions):
    m = card(name)
    total = m.dense_params + m.moe_layers * m.experts * m.expert_params + 2 * m.head_params
    assert total / 1e9 == pytest.approx(billions, rel=0.02)


def test_llama_8b_on_one_h100_steps_as_fast_as_published():
    roofline = ModelRoofline.of(card("llama-3.1-8b"), hardware("h100"))
    one, many = roofline.decode(1, 1536), roofline.decode(64, 1536)
    assert (15.21e9, 4.540e-3) == pytest.approx((one.bytes, one.seconds), rel=5e-4)
    assert (27.89e9, 8.327e-3) == pytest.approx((many.bytes, many.seconds), rel=5e-4)
    prefill = roofline.prefill(1024)
    assert (14.57e12, 14.73e-3) == pytest.approx((prefill.flops, prefill.seconds), rel=5e-4)
    assert ("bandwidth", "compute") == (many.binds, prefill.binds)


def test_llama_70b_on_eight_h200_steps_as_fast_as_published():
    roofline = ModelRoofline.of(card("llama-3.1-70b"), hardware("h200"), 8, "fp8", "fp8")
    step = roofline.decode(64, 1536)
    assert (10.83e9, 2.257e-3) == pytest.approx((step.bytes, step.seconds), rel=5e-4)
    assert roofline.all_reduce(64) - roofline.all_reduce(0) == pytest.approx(0.652e-3, rel=1e-3)
    assert roofline.prefill(1024).seconds * 1978 / 1979 == pytest.approx(8.94e-3, rel=1e-3)


def test_deepseek_r1_on_eight_h200_steps_as_fast_as_published():
    roofline = ModelRoofline.of(card("deepseek-r1"), hardware("h200"), 8, "fp8", "fp8")
    step = roofline.decode(64, 1536)
    assert (76.6e9, 15.96e-3) == pytest.approx((step.bytes, step.seconds), rel=5e-4)


def test_a_compressed_kv_is_not_divided_by_tensor_parallelism_and_a_grouped_one_only_by_its_heads():
    for name, one, sixteen in (("deepseek-r1", 1, 1), ("llama-3.1-70b", 1, 8)):
        sizes = [ModelRoofline.of(card(name), hardware("b200"), tp, "fp8", "fp8").kv_bytes for tp in (1, 16)]
        assert sizes[0] / one == pytest.approx(sizes[1] * sixteen)


def test_a_windowed_layer_looks_back_no_further_than_its_window():
    roofline = ModelRoofline.of(card("gpt-oss-120b"), hardware("b200"))
    assert 64 == roofline.seen(64)
    assert (4096 + 128) / 2 == roofline.seen(4096)
    assert (
        roofline.prefill(8192).flops
        < ModelRoofline.of(card({**_plain("gpt-oss-120b"), "windowed_layers": 0}), hardware("b200")).prefill(8192).flops
    )


def _plain(name):
    m = card(name)
    return {field: getattr(m, field) for field in m.__slots__}


def test_requests_beyond_the_kv_wait_and_the_limit_says_so():
    roofline = ModelRoofline.of(card("llama-3.1-70b"), hardware("h200"), 2, "fp8")
    roomy, full = roofline.limits(Shape.of(256, 4096), 8), roofline.limits(Shape.of(256, 4096), 4096)
    assert (8, "decode bandwidth") == (roomy.running, roomy.binds)
    assert full.running == int(roofline.kv_room(256 + 2048))
    assert "KV capacity" == full.binds
    assert "batch cap" == dataclasses.replace(roofline, max_num_seqs=16).limits(Shape.of(1024, 1024), 64).binds
    assert full.throughput == roofline.limits(Shape.of(256, 4096), full.running).throughput


def test_long_prompts_with_short_answers_are_bound_by_prefill():
    roofline = ModelRoofline.of(card("llama-3.1-8b"), hardware("h100"))
    limits = roofline.limits(Shape.of(8192, 16), 64)
    assert "prefill compute" == limits.binds
    assert limits.throughput < roofline.flops_rate * 16 / roofline.prefill(8192).flops


def test_the_ceiling_rises_with_concurrency_and_no_request_is_faster_than_it():
    roofline = ModelRoofline.of(card("qwen3-32b"), hardware("h100"), 2)
    ladder = [roofline.limits(Shape.of(1024, 256), c) for c in (1, 2, 4, 8, 16, 32)]
    assert sorted(x.throughput for x in ladder) == [x.throughput for x in ladder]
    assert sorted(x.tpot for x in ladder) == [x.tpot for x in ladder]
    for x in ladder:
        assert x.throughput <= x.running / x.tpot
        assert x.e2e == pytest.approx(x.ttft + 255 * x.tpot)


def test_weights_that_do_not_fit_are_refused_in_words():
    with pytest.raises(ValueError, match="raise tp"):
        ModelRoofline.of(card("llama-3.1-70b"), hardware("h100")).kv_tokens()


def test_names_are_read_as_people_write_them():
    assert card("meta-llama/Llama-3.1-8B-Instruct") is CARDS["llama-3.1-8b"]
    assert card("Qwen/Qwen3-235B-A22B") is CARDS["qwen3-235b"]
    assert hardware("H100 SXM") is hardware("h100_sxm") is HARDWARE["h100"]
    with pytest.raises(ValueError, match="did you mean 'h200'"):
        hardware("h-200")
    with pytest.raises(ValueError, match=r"did you mean 'llama-3\.1-70b'"):
        card("lama-3.1-70b")


def test_a_card_comes_from_a_hugging_face_config():
    llama = {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
    }
    made = card(llama)
    assert made.dense_params == card("llama-3.1-8b").dense_params
    deepseek = {
        "model_type": "deepseek_v3",
        "num_hidden_layers": 61,
        "hidden_size": 7168,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "intermediate_size": 18432,
        "vocab_size": 129280,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "n_shared_experts": 1,
        "first_k_dense_replace": 3,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "quantization_config": {"quant_method": "fp8"},
    }
    made = card(deepseek)
    assert (card("deepseek-r1").active_params, 35_136, "fp8") == (made.active_params, made.kv_elements, made.precision)
    gpt = {
        "num_hidden_layers": 36,
        "hidden_size": 2880,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "intermediate_size": 2880,
        "vocab_size": 201088,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 18,
        "quantization_config": {"quant_method": "mxfp4"},
    }
    made = card(gpt)
    assert (128, 18, "fp4") == (made.window, made.windowed_layers, made.precision)
    assert made.active_params == card("gpt-oss-120b").active_params
    with pytest.raises(ValueError, match="hidden_size"):
        card({"num_hidden_layers": 2, "num_attention_heads": 2})
    with pytest.raises(ValueError, match="mamba"):  # without a number of layers it is a config.json, too
        card({"model_type": "mamba"})
    with pytest.raises(ValueError, match="'layers'"):
        card({"hidden": 8, "layer": 2})


def test_hardware_comes_from_a_mapping():
    gpu = hardware({"name": "mine", "memory_bandwidth": "2TB/s", "memory": "40GiB", "tflops": 200})
    assert (2e12, 40 * 2**30, 200e12, 200e12) == (gpu.bandwidth, gpu.capacity, gpu.bf16, gpu.peak("fp8"))
    with pytest.raises(ValueError, match=r"\bmemory\b"):
        hardware({"memory_bandwidth": "2TB/s", "tflops": 200})
    with pytest.raises(ValueError, match="'much'"):
        hardware({"memory_bandwidth": "2TB/s", "memory": "much", "tflops": 200})


def test_nothing_measured_on_silicon_was_above_its_roofline():
    with SILICON.open() as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    shares = []
    for row in rows:
        roofline = ModelRoofline.of(
            card(row["model"]), hardware(row["system"]), int(row["tp"]), row["precision"], "fp8"
        )
        shape = Shape(*(Lengths("fixed", 0.9 * int(row[key]), 1, 1) for key in ("isl", "osl")))
        # Real prompts and answers were up to a tenth shorter than asked, and the cache may hold one
        # byte per number.
        limits = roofline.limits(shape, int(row["concurrency"]))
        assert limits.tpot <= float(row["tpot_ms"]) / 1e3
        assert limits.ttft <= float(row["ttft_ms"]) / 1e3
        osl = 0.9 * int(row["osl"])
        residence = (float(row["ttft_ms"]) + (osl - 1) * float(row["tpot_ms"])) / 1e3
        assert limits.throughput >= int(row["concurrency"]) * osl / residence
        shares.append(limits.tpot * 1e3 / float(row["tpot_ms"]))
    assert len(shares) > 150
    # A bound that is far below everything would pass too, and be worth nothing.
    assert 0.2 < sorted(shares)[len(shares) // 2] < 0.6
    assert max(shares) > 0.8


def test_a_slow_link_binds_where_a_fast_one_does_not():
    model, shape = card("llama-3.1-70b"), Shape.of(4096, 64)
    nvlink = ModelRoofline.of(model, hardware("h100"), 8, "fp8")
    pcie = ModelRoofline.of(model, hardware("l40s"), 8, "fp8")
    assert "network" == pcie.limits(shape, 256).binds
    assert "network" != nvlink.limits(shape, 256).binds
    # 2 x 80 layers x 4096 tokens x 8192 x 2 bytes over 32 GB/s
    assert pcie.network(4096) == pytest.approx(2 * 80 * 4096 * 8192 * 2 / 32e9)
    assert pcie.network(4096) < pcie.all_reduce(4096) - pcie.all_reduce(0), "a ring sends more than the least"
    assert 0 == ModelRoofline.of(model, hardware("h100"), 1, "fp8").network(4096)


def test_shared_prompts_are_read_once():
    roofline = ModelRoofline.of(card("llama-3.1-8b"), hardware("h100"))
    shape = Shape.of(4096, 64)
    whole, half = roofline.limits(shape, 8), roofline.limits(dataclasses.replace(shape, prefix=0.5), 8)
    assert half.ttft < 0.55 * whole.ttft
    assert half.throughput > whole.throughput


def test_one_long_prompt_with_a_short_answer_waits_for_its_prefill():
    roofline = ModelRoofline.of(card("llama-3.1-8b"), hardware("h100"))
    assert "prefill compute" == roofline.limits(Shape.of(32_768, 4), 1).binds
    assert "decode bandwidth" == roofline.limits(Shape.of(128, 512), 1).binds


def test_every_accelerator_has_a_source_and_figures_of_its_kind():
    assert len(HARDWARE) >= 30
    wanted = "t4 l4 l40s a10g rtx-4090 rtx-5090 h20 h200 b200 b300 gb200 mi250x mi300x mi325x mi355x gaudi3"
    assert {*wanted.split(), "tpu-v5e", "tpu-v6e", "trainium2"} <= HARDWARE.keys()
    for gpu in HARDWARE.values():
        assert gpu.source
        assert 0.2e12 <= gpu.bandwidth <= 10e12
        assert 10e9 < gpu.capacity < 400e9
        assert 60e12 <= gpu.bf16 <= (gpu.fp8 or 5e15) <= (gpu.fp4 or 2e16)
    assert hardware("NVIDIA GeForce RTX 5090") is HARDWARE["rtx-5090"]
    assert hardware("Intel Gaudi3") is HARDWARE["gaudi3"]


def staged(name: str, pp: int, tp: int, ep: int = 1) -> ModelRoofline:
    return dataclasses.replace(ModelRoofline.of(card(name), hardware("h200"), tp, "fp8"), pp=pp, ep=ep)


def test_a_pipeline_passes_parts_of_the_batch_through_its_stages():
    """By hand: two stages of one GPU. A token passes both, each reads its half of the weights for
    every part of the batch, so a token takes as long as on one GPU with half of the batch.
    """
    one, two = staged("llama-3.1-8b", 1, 1), staged("llama-3.1-8b", 2, 1)
    alone, parts = one.decode(32, 1024), two.decode(64, 1024)
    passed = 32 * 4096 * 2 / 450e9
    assert parts.seconds == pytest.approx(max(alone.seconds, passed))
    assert parts.flops == pytest.approx(2 * alone.flops)
    assert parts.bytes == pytest.approx(alone.bytes)
    assert two.weight_bytes_per_gpu == one.weight_bytes_per_gpu / 2
    assert two.kv_room(1024) > 2 * one.kv_room(1024)


def test_with_fewer_requests_than_stages_some_idle():
    four = staged("llama-3.1-8b", 4, 1)
    assert four.decode(1, 1024).seconds == pytest.approx(four.decode(4, 1024).seconds)
    shape = Shape.of(16, 512)
    rates = [four.limits(shape, c).throughput for c in (1, 4)]
    assert rates[1] == pytest.approx(4 * rates[0], rel=0.02)
    assert "4 stages of 1" in four.assumption


def test_a_prompt_may_be_in_all_stages_at_once_so_its_floor_is_that_of_all_gpus():
    assert staged("llama-3.1-70b", 4, 1).prefill(8192).seconds == pytest.approx(
        staged("llama-3.1-70b", 1, 4).prefill(8192).seconds, rel=0.05
    )


def test_spread_experts_exchange_tokens_in_place_of_an_all_reduce():
    """By hand for DeepSeek-R1: 58 of its 61 layers route to 8 of 256 experts."""
    together, spread = staged("deepseek-r1", 1, 8), staged("deepseek-r1", 1, 8, ep=8)
    size = 64 * 7168 * 2
    assert together.network(64) == pytest.approx(2 * 61 * size / 450e9)
    others = 7 * (1 - (7 / 8) ** 8)
    sent = 58 * 2 * size / 8 * others
    assert spread.network(64) == pytest.approx(((2 * 61 - 58) * size + sent) / 450e9)
    assert spread.decode(64, 1024).bytes == together.decode(64, 1024).bytes, "as many experts are read"
    dense = staged("llama-3.1-70b", 1, 8, ep=8)
    assert dense.network(64) == staged("llama-3.1-70b", 1, 8).network(64)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "jamba"}, "jamba"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        ({"model_type": "gemma3"}, "layer_types"),
        ({"decoder_sparse_step": 2}, "decoder_sparse_step"),
        ({"mlp_only_layers": [0]}, "mlp_only_layers"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
    ],
)
def test_what_a_config_json_has_that_no_card_describes_is_named(change, named):
    with pytest.raises(ValueError, match=named):
        card(MIXTRAL | change)


MIXTRAL = {
    "model_type": "mixtral",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}


def test_experts_and_shared_experts_of_a_config_json_are_counted():
    made = card(MIXTRAL)
    total = made.dense_params + made.moe_layers * made.experts * made.expert_params + 2 * made.head_params
    assert total / 1e9 == pytest.approx(46.7, rel=0.01)
    shared = card(
        MIXTRAL | {"model_type": "qwen2_moe", "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632}
    )
    assert shared.shared_experts == 4
    inside = card({"model_type": "llava", "text_config": MIXTRAL})
    assert inside.active_params == made.active_params
