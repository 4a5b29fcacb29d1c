"""A config loads into SI units with sensible defaults, and two configs are the same when they
measure the same."""

import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontier.client.secrets import looks_random, redact
from frontier.config import Config, describe_difference, left_out, load_config, parse_sla
from frontier.config.complaints import Complaint, ConfigError
from frontier.config.sla import PRESETS, read_tiers
from frontier.core.model.decisions import Limit
from frontier.core.model.errors import UsageError
from frontier.core.model.shapes import Lengths, Shape
from frontier.hardware.models import CARDS
from frontier.hardware.roofline import GivenRoofline, ModelRoofline, Roofline
from tests.kit.complaints import Place, assert_complaints
from tests.kit.golden import assert_golden_row
from tests.kit.places import ROOT

BASE = "endpoint: http://h:8000\nshapes: [1024/256]\n"
CONFIGS = ROOT / "configs"


def load(more: str = "", base: str = BASE) -> Config:
    return load_config(base + more, "s.yaml")


def test_the_smallest_config_has_the_documented_defaults() -> None:
    config = load()
    assert (Shape.of(1024, 256),) == config.shapes
    assert config.auto
    assert (1,) == config.loads, "where it begins"
    assert (None, None, None, None) == (config.requests, config.repeats, config.refine, config.max_time), "its own"
    assert (2.0, 0.0, 1) == (config.warmup, config.min_time, config.seed)
    assert ("random", True, True) == (config.prompts, config.ignore_eos, config.marginal_gain)
    assert ((), (), ()) == (config.limits, config.tiers, config.warnings)
    assert ("output_throughput", "p99_ttft") == config.objectives
    (deployment,) = config.deployments
    assert ("default", "http://h:8000", None) == (deployment.name, deployment.base_url, deployment.model)
    assert (10.0, 300.0, 120.0, 1800.0) == tuple(deployment.timeouts.model_dump().values())


def test_units_become_seconds_bytes_dollars_and_shares() -> None:
    config = load(
        "gpus: 8\nprice: $2.50/gpu/h\nwarmup: 20s\nmax_time: 5min\nmin_time: 1min30s\nbudget: {time: 8h, cost: $20.5}\n"
        "hardware: {memory_bandwidth: 4.8TB/s, memory: 80GiB, weights: 16GB, kv_per_token: 131kB, tflops: 989}\n"
        "timeouts: {connect: 500ms}\n"
    )
    (deployment,) = config.deployments
    assert (20.0, 300.0, 90.0) == (config.warmup, config.max_time, config.min_time)
    assert (28_800.0, 20.5) == (config.budget.time, config.budget.cost)
    assert (8, 20.0, 0.5) == (deployment.gpus, deployment.price, deployment.timeouts.connect)
    assert deployment.hardware is not None
    assert {
        "name": None,
        "gpus": None,
        "memory_bandwidth": 4.8e12,
        "memory": 80 * 2.0**30,
        "tflops": 989.0,
        "weights": 16e9,
        "kv_per_token": 131e3,
    } == deployment.hardware.model_dump(exclude_none=True, exclude={"pp", "ep"}) | {"name": None, "gpus": None}


def test_a_config_is_frozen_and_survives_pickling() -> None:
    config = load("sla: {mean_ttft: 1s}\n")
    with pytest.raises(ValueError, match="frozen"):
        config.requests = 5  # type: ignore[misc]
    assert config == pickle.loads(pickle.dumps(config))
    assert config.warnings == pickle.loads(pickle.dumps(config)).warnings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1024/256", Shape.of(1024, 256)),
        ("{isl: 1024, osl: 256, name: chat}", Shape(Lengths.fixed(1024), Lengths.fixed(256), "chat")),
        ("{isl: {uniform: [5, 9]}, osl: {normal: [100, 10]}}", Shape(Lengths.uniform(5, 9), Lengths.normal(100, 10))),
        ("{isl: {uniform: [5, 5]}, osl: {normal: [100, 0]}}", Shape.of(5, 100)),
        ("{isl: 10, osl: 5, prefix: 50%}", Shape(Lengths.fixed(10), Lengths.fixed(5), None, 0.5)),
    ],
)
def test_a_shape_is_two_lengths(text: str, expected: Shape) -> None:
    assert (expected,) == load(base=f"endpoint: http://h\nshapes: [{text}]\n").shapes
    assert (expected,) == load(base=f"endpoint: http://h\nshapes: {text}\n").shapes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", (7,)),
        ("[4, 1, 2]", (1, 2, 4)),
        ("1..128", (1, 2, 4, 8, 16, 32, 64, 128)),
        ("1..100", (1, 2, 4, 8, 16, 32, 64, 100)),
        ("3 .. 20", (3, 6, 12, 20)),
        ("{from: 8, to: 8}", (8,)),
        ("5..6", (5, 6)),
    ],
)
def test_a_range_of_concurrencies_is_every_doubling_and_its_end(text: str, expected: tuple[int, ...]) -> None:
    assert expected == load(f"concurrency: {text}\n").loads


@pytest.mark.parametrize(
    ("address", "base"),
    [
        ("http://h:8000", "http://h:8000"),
        ("http://h:8000/", "http://h:8000"),
        ("http://h:8000/v1", "http://h:8000"),
        ("http://h:8000/v1/", "http://h:8000"),
        ("https://h/openai/v1", "https://h/openai"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
    ],
)
def test_an_address_may_end_in_v1_or_not(address: str, base: str) -> None:
    config = load(base=f"endpoint: {address}\nshapes: 1/1\n")
    assert base == config.deployments[0].base_url


# ---- sla


def test_limits_are_in_the_metrics_own_unit_and_may_be_ranges() -> None:
    config = load(
        "sla: {p99_ttft: [200ms, 0.5s], error_rate: 1%, p50_interactivity: [40, 30], output_throughput: 2000}\n"
    )
    assert (
        Limit("p99_ttft", 0.5, 0.2),
        Limit("error_rate", 0.01),
        Limit("p50_interactivity", 30.0, 40.0),
        Limit("output_throughput", 2000.0),
    ) == config.limits


def test_named_tiers_keep_their_order_and_the_first_is_the_default() -> None:
    config = load("sla:\n  gold: {p99_tpot: 20ms}\n  silver: {p99_ttft: 1s}\n")
    assert ["gold", "silver"] == [name for name, _ in config.tiers]
    assert (Limit("p99_tpot", 0.02),) == config.limits
    assert ("output_throughput", "p99_tpot") == config.objectives


def test_a_preset_stands_wherever_limits_do() -> None:
    assert parse_sla("chat") == load("sla: chat\n").limits
    tiers = load("sla: {gold: chat, silver: summary}\n").tiers
    assert [("gold", parse_sla("chat")), ("silver", parse_sla("summary"))] == list(tiers)
    assert all(parse_sla(name) for name in PRESETS)


def test_natural_text_is_as_long_as_the_corpus_at_most() -> None:
    assert "natural" == load("prompts: natural\n").prompts
    assert load("prompts: natural\n").prompts_file is None
    assert load("prompts: natural\n").identity() != load("").identity()
    load(base="endpoint: http://h\nprompts: natural\nshapes: [{name: a, turns: 2, first: 100, per_turn: 50/20}]\n")
    text = "endpoint: http://h\nshapes: [400000/1]\nprompts: natural\n"
    with pytest.raises(ConfigError) as caught:
        load_config(text, "s.yaml")
    assert [3] == [complaint.line for complaint in caught.value.complaints]
    assert_golden_row("complaints", str(caught.value))


def test_the_inverse_of_energy_that_earlier_configs_name_is_energy() -> None:
    config = load("objectives: [tokens_per_joule, p99_ttft]\n")
    assert ("energy", "p99_ttft") == config.objectives


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p99_ttft<=500ms, p99_tpot<=30ms", (Limit("p99_ttft", 0.5), Limit("p99_tpot", 0.03))),
        ("p99.9_e2e < 2min", (Limit("p99.9_e2e", 120.0),)),
        ("p99_ttft≤200ms..500ms", (Limit("p99_ttft", 0.5, 0.2),)),
        ("p50_interactivity >= 30 tok/s/user", (Limit("p50_interactivity", 30.0),)),
        (
            "error_rate<1%,goodput>=5.5,p95_itl<=50ms",
            (Limit("error_rate", 0.01), Limit("goodput", 5.5), Limit("p95_itl", 0.05)),
        ),
        ("cost<=$2", (Limit("cost", 2.0),)),
        ("chat", (Limit("p99_ttft", 0.2), Limit("p99_tpot", 0.05))),
        ("voice, error_rate<=1%", (Limit("p99_ttft", 0.1), Limit("error_rate", 0.01))),
    ],
)
def test_the_command_lines_sla_says_which_side_is_allowed(text: str, expected: tuple[Limit, ...]) -> None:
    assert expected == parse_sla(text)


WRONG_SLAS = {
    "p99_ttft>=500ms": "p99_ttft",
    "p50_itl>=5s": "p50_itl",
    "cost>=$2": "cost",
    "p99_ttft<=500": "p99_ttft",
    "p99_ttft=500ms": "p99_ttft",
    "p99_tfft<=500ms": "p99_tfft",
    "fast": "'fast'",
    "chatt": "'chatt'",
    "chat, p99_ttft<=1s": "p99_ttft",
    "max_ttft<=1s": "max_ttft",
    "max_e2e<=1s": "max_e2e",
    "min_interactivity>=20": "min_interactivity",
    "": "''",
    "goodput>=5": "goodput",
    "p99_ttft<=500ms..200ms": "p99_ttft",
}


@pytest.mark.parametrize(("text", "key"), WRONG_SLAS.items(), ids=WRONG_SLAS)
def test_a_wrong_sla_is_refused_with_its_reason(text: str, key: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_sla(text)
    assert key in caught.value.what
    assert caught.value.hint
    assert_golden_row("complaints", str(caught.value))


# ---- deployments

TWO = """\
endpoint: http://h:8000
shapes: [1024/256]
model: m
timeouts: {total: 10min}
hardware: {name: H200, weights: 16GB}
deployments:
  - {name: bf16}
  - {name: fp8, endpoint: http://h:8001/v1, timeouts: {connect: 5s}, hardware: {name: H100, gpus: 2}, quality: 0.98}
"""


def test_a_deployment_inherits_what_it_does_not_say() -> None:
    config = load(base=TWO)
    bf16, fp8 = config.deployments
    assert ("http://h:8000", "http://h:8001", "m", "m") == (bf16.base_url, fp8.base_url, bf16.model, fp8.model)
    assert (600.0, 5.0) == (fp8.timeouts.total, fp8.timeouts.connect)
    assert fp8 is config.deployment("fp8")
    with pytest.raises(KeyError):
        config.deployment("int4")


def lit(hardware: str, more: str = "") -> Roofline | None:
    return load(f"gpus: 2\nhardware: {hardware}\n{more}").deployments[0].roofline()


def test_a_known_gpu_and_a_known_model_are_a_whole_roofline() -> None:
    for text in ("h200", "{name: NVIDIA H200}", "{name: h200, model: llama-3.1-8b}"):
        found = lit(text, "model: meta-llama/Llama-3.1-8B-Instruct\n")
        assert isinstance(found, ModelRoofline)
        assert (2, "bf16", 4.8e12) == (found.tp, found.precision, found.gpu.bandwidth)
        assert found.model is CARDS["llama-3.1-8b"]
    assert lit("h200", "model: my-own\n") is None
    assert lit("{name: my-gpu}", "model: llama-3.1-8b\n") is None


def test_what_is_stated_replaces_the_data_sheet() -> None:
    text = "{name: h200, memory_bandwidth: 4TB/s, tflops: 700, precision: fp8, max_num_seqs: 64, link: 32GB/s}"
    found = lit(text, "model: llama-3.1-8b\n")
    assert isinstance(found, ModelRoofline)
    gpu = found.gpu
    assert (4e12, 700e12, 1978e12, 32e9, 64) == (gpu.bandwidth, gpu.bf16, gpu.fp8, gpu.link, found.max_num_seqs)
    own = lit("{memory_bandwidth: 4TB/s, tflops: 700, memory: 96GB}", "model: llama-3.1-8b\n")
    assert isinstance(own, ModelRoofline)
    assert "custom" == own.gpu.name
    assert GivenRoofline(4.8e12, 16e9, 131e3, 2, 141 * 2.0**30) == lit(
        "{name: h200, weights: 16GB, kv_per_token: 131kB}"
    )
    assert GivenRoofline(4e12, 16e9, 0.0, 2) == lit("{memory_bandwidth: 4TB/s, weights: 16GB}")
    assert lit("{weights: 16GB}") is None


def test_a_model_is_described_by_its_config_json_too() -> None:
    sizes = "{num_hidden_layers: 2, hidden_size: 64, num_attention_heads: 4, intermediate_size: 128, vocab_size: 1000}"
    found = lit(f"{{name: h100, model: {sizes}}}")
    assert isinstance(found, ModelRoofline)
    assert (2, 64) == (found.model.layers, found.model.hidden)


BOUNDLESS = {
    "hardware: h200\n": (3, 11),
    "model: our-own\nhardware: h200\n": (4, 11),
    "model: llama-3.1-70b\nhardware: h100\n": (4, 11),
}


@pytest.mark.parametrize(("more", "place"), BOUNDLESS.items(), ids=BOUNDLESS)
def test_hardware_that_bounds_nothing_is_warned_of(more: str, place: Place) -> None:
    assert_complaints(load(more).warnings, place)


@pytest.mark.parametrize(
    "more",
    [
        "model: llama-3.1-8b\nhardware: h200\n",
        "hardware: {name: h200, weights: 16GB}\n",
        "hardware: {name: my-gpu}\n",
    ],
)
def test_hardware_that_bounds_or_is_not_described_is_not_warned_of(more: str) -> None:
    assert () == load(more).warnings


def test_the_simulator_knows_its_own_roofline() -> None:
    text = "simulator: {{model: llama-3.1-8b, hardware: h100, max_num_seqs: 32{}}}\n"
    base = "endpoint: simulator\nshapes: [1024/256]\n"
    (own,), (slowed,) = (load(text.format(x), base=base).deployments for x in ("", ", time_scale: 2"))
    found = own.roofline()
    assert isinstance(found, ModelRoofline)
    assert (32, "h100") == (found.max_num_seqs, found.gpu.name)
    assert slowed.roofline() is None


def test_hardware_is_replaced_as_a_whole_so_no_gpu_gets_anothers_numbers() -> None:
    hardware = load(base=TWO).deployments[1].hardware
    assert hardware is not None
    assert ("H100", None) == (hardware.name, hardware.weights)


def test_the_simulators_parameters_become_an_engine_spec() -> None:
    config = load(base="endpoint: simulator\nsimulator: {max_num_seqs: 64, step_base: 5ms}\nshapes: 1/1\n")
    (deployment,) = config.deployments
    assert deployment.is_simulator
    assert (64, 0.005) == (deployment.engine_spec().max_num_seqs, deployment.engine_spec().step_base)
    with pytest.raises(ValueError, match="no address"):
        _ = deployment.base_url
    assert "http://127.0.0.1:9" == deployment.target({}, url="http://127.0.0.1:9").root


def test_a_header_is_sent_once_however_its_name_is_written() -> None:
    (deployment,) = load("api_key_env: MY_KEY\nheaders: {authorization: '${OTHER}', accept: text/plain}\n").deployments
    sent = deployment.target({"MY_KEY": "hunter2hunter2", "OTHER": "Basic swordfish-1"}).request_headers()
    named = {name.lower(): text for name, text in sent.items()}
    assert len(named) == len(sent)
    assert ("Basic swordfish-1", "text/plain") == (named["authorization"], named["accept"])


def test_secrets_come_from_the_environment_and_are_in_no_repr_and_no_identity() -> None:
    config = load("api_key_env: MY_KEY\nheaders: {X-Tenant: blue, X-Token: '${OTHER}'}\n")
    (deployment,) = config.deployments
    target = deployment.target({"MY_KEY": "hunter2hunter2", "OTHER": "swordfish-1"})
    assert "Bearer hunter2hunter2" == target.request_headers()["Authorization"]
    assert {"X-Tenant": "blue", "X-Token": "swordfish-1"} == dict(target.headers)
    written = repr(target) + repr(config) + json.dumps(config.canonical())
    assert "hunter2" not in written
    assert "swordfish" not in written
    with pytest.raises(UsageError, match="variable OTHER "):
        deployment.target({"MY_KEY": "x"})


def test_everything_about_the_way_reaches_the_target() -> None:
    more = "tls: {ca: ca.pem, cert: c.pem, key: k.pem}\nproxy: env\ndialect: vllm\nmetrics: http://h:9/metrics\n"
    config = load(more + "extra_body: {temperature: 0}\napi: chat\n", base="endpoint: https://h\nshapes: 1/1\n")
    target = config.deployments[0].target({}, ignore_eos=False)
    assert ("ca.pem", "c.pem", "k.pem", True) == (target.ca_file, target.cert_file, target.key_file, target.verify_tls)
    assert (True, "vllm", "chat", False) == (target.trust_env, target.dialect, target.api, target.ignore_eos)
    assert ({"temperature": 0}, ("http://h:9/metrics",)) == (target.extra_body, target.metrics_urls)


def test_metrics_none_reads_none_and_is_no_address() -> None:
    base = "endpoint: https://h\nshapes: 1/1\n"
    (deployment,) = load("metrics: none\n", base=base).deployments
    assert deployment.target({}).metrics_urls is None
    assert () == load("", base=base).deployments[0].target({}).metrics_urls
    assert not [effect.text for effect in load("metrics: none\n", base=base).effects if "none" in effect.text]
    assert deployment.canonical() == load("", base=base).deployments[0].canonical()


def test_a_left_out_concurrency_means_in_a_run_what_it_meant_when_the_run_was_begun() -> None:
    doublings = (1, 2, 4, 8, 16, 32, 64, 128)
    before_auto = {"defaults": {"requests": None, "repeats": None, "max_time": None, "refine": None}}
    for begun in (before_auto, {"canonical": {}}, {"imported": {}}):
        assert doublings == load_config(BASE, "s.yaml", begun=begun).loads
        assert load_config(BASE + "rate: [1, 2]\n", "s.yaml", begun=begun).open_loop
    assert load_config(BASE, "s.yaml", begun={"defaults": left_out(None)}).auto
    assert load("concurrency: auto\n").identity() == load().identity()


# ---- identity


@pytest.mark.parametrize(
    "line",
    [
        "sla: {p99_ttft: 1s}",
        "objectives: [request_throughput, p50_e2e]",
        "repeats: 9",
        "refine: 0",
        "price: $1/h",
        "budget: {time: 1h}",
        "gpus: 4",
        "quality: 3",
        "api_key_env: KEY",
        "name: night",
        "hardware: {memory: 80GB}",
    ],
)
def test_what_does_not_change_the_measurement_does_not_change_the_identity(line: str) -> None:
    listed = "concurrency: [1, 8]\n"
    assert load(listed).identity() == load(f"{listed}{line}\n").identity()


MEASURED = {
    "concurrency: [1, 2]": ["concurrency"],
    "requests: 400": ["requests"],
    "max_time: 5min": ["max_time"],
    "warmup: 20s": ["warmup"],
    "ignore_eos: false": ["ignore_eos"],
    "model: m": ["model"],
    "timeouts: {total: 1h}": ["timeouts"],
    "extra_body: {temperature: 1}": ["extra_body"],
    "headers: {X-A: b}\nseed: 2": ["seed", "headers"],
}


@pytest.mark.parametrize(("line", "keys"), MEASURED.items(), ids=MEASURED)
def test_what_changes_the_measurement_changes_the_identity_and_is_named(line: str, keys: list[str]) -> None:
    before, after = load(), load(line + "\n")
    assert before.identity() != after.identity()
    difference = describe_difference(before.canonical(), after.canonical())
    assert keys == [part.split()[0] for part in difference.split("; ")]
    assert_golden_row("messages", difference)


def test_another_shape_is_named_as_in_the_message_of_a_run_that_holds_another_sweep() -> None:
    other = load(base=BASE.replace("1024/", "2048/"))
    assert_golden_row("messages", describe_difference(load().canonical(), other.canonical()))
    assert "" == describe_difference(load().canonical(), load().canonical())


def test_the_identity_is_the_same_on_every_python_and_canonical_survives_json() -> None:
    config = load(base=TWO)
    assert config.canonical() == json.loads(json.dumps(config.canonical()))
    earlier = load_config(TWO, "s.yaml", begun={})
    assert "fdec" == earlier.identity()[:4], "as 0.1.0 wrote it"
    assert config.identity() != earlier.identity()


def test_a_key_left_out_means_what_it_meant_when_the_run_was_begun() -> None:
    def read(text: str, begun: dict[str, Any] | None) -> tuple[Any, ...]:
        config = load_config(text, "s.yaml", begun=begun)
        return config.requests, config.repeats, config.max_time, config.refine

    assert (300, 3, 300.0, 3) == read(BASE, {"identity": "of 0.1.0"})
    assert (90, 3, 20.0, 3) == read(BASE + "requests: 90\nmax_time: 20s\n", {"identity": "of 0.1.0"})
    now = {"defaults": left_out(None)}
    assert (None, None, None, None) == read(BASE, now) == read(BASE, None) == read(BASE, {"imported": {}})
    assert (7, None, 5.0, None) == read(BASE, {"defaults": {"requests": 7, "max_time": "5s", "seed": 9}})
    assert load_config(BASE, "s.yaml", begun=now).identity() == load().identity()


def test_a_deployment_that_differs_is_named() -> None:
    one, two = load(base=TWO), load(base=TWO.replace("8001", "9001"))
    assert_golden_row("messages", describe_difference(one.canonical(), two.canonical()))


# ---- warnings


TOO_FEW = {
    "requests: 90\nsla: {p99_ttft: 1s}": 1000,
    "requests: 90\nrepeats: 3\nconcurrency: 1..128\nsla: {p99_ttft: 1s}": 334,
    "requests: 300\nrepeats: 3\nconcurrency: [1, 8]\nrefine: 0\nsla: {p99_ttft: 1s}": 334,
    "requests: 334\nrepeats: 3\nconcurrency: 1..128\nrefine: 0\nsla: {p99_ttft: 1s}": 854,
    "requests: 500\nrepeats: 3\nconcurrency: 1..128\nsla: {p99.9_ttft: 1s}": 3334,
}


@pytest.mark.parametrize(("lines", "needed"), TOO_FEW.items(), ids=TOO_FEW)
def test_too_few_requests_for_the_promised_percentile_are_warned_of(lines: str, needed: int) -> None:
    warnings = load(lines + "\n").warnings
    assert_complaints(warnings, (3, 11))
    assert f"requests: {needed}," in str(warnings[0].hint)
    assert () == load(re.sub(r"requests: \d+", f"requests: {needed}", lines) + "\n").warnings


def test_enough_requests_and_a_refinement_that_gets_the_rest_are_not_warned_of() -> None:
    assert () == load("sla: {p99.9_ttft: 1s}\n").warnings, "the sweep sizes its trials itself"
    assert () == load("requests: 300\nsla: {p99_ttft: 1s}\n").warnings
    fixed = "repeats: 3\nrefine: 0\nsla: {p99_ttft: 1s}\n"
    assert () == load(f"requests: 854\nconcurrency: 1..128\n{fixed}").warnings
    assert () == load(f"requests: 334\nconcurrency: [1, 50]\n{fixed}").warnings


def test_a_limit_on_a_mean_is_allowed_and_noted() -> None:
    assert_complaints(load("sla: {mean_ttft: 1s}\n").warnings, (3, 18))


# ---- the examples, and whatever else


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_example_config_loads_without_a_word(path: Path) -> None:
    assert () == load_config(path.read_text(), str(path)).warnings


def test_there_are_the_promised_examples() -> None:
    assert {"quickstart", "gpt-oss-120b", "chat", "batch", "agent"} <= {p.stem for p in CONFIGS.glob("*.yaml")}


SCALARS = st.sampled_from(
    [
        "1",
        "0",
        "-1",
        "1.5",
        "true",
        "500ms",
        "1%",
        "$3/h",
        "x",
        "''",
        "[]",
        "{}",
        "[1, 2]",
        "1..4",
        "p99_ttft",
        "{p99_ttft: 500ms}",
        "[1/2]",
        "http://h",
        "simulator",
        "99999999999",
        "{a: {b: [c]}}",
        "[{name: a}, {name: b}]",
        "[[[]]]",
        "${X}",
        '"\\u0000"',
        "&a {x: 1}",
        "é",
        "sk-abcdefghijklmnopqrstuv",
        "null",
    ]
)
OTHER_KEYS = (
    "endpoint",
    "model",
    "api",
    "dialect",
    "api_key_env",
    "headers",
    "extra_body",
    "metrics",
    "timeouts",
    "tls",
    "proxy",
    "hardware",
    "gpus",
    "price",
    "quality",
    "simulator",
    "start",
    "zzz",
)
KEYS = st.sampled_from([*(field.alias or name for name, field in Config.model_fields.items()), *OTHER_KEYS])


def outcome(text: str) -> tuple[Config | None, tuple[Complaint, ...]]:
    """The config, or the complaints; anything else that escapes fails the test."""
    try:
        return load_config(text, "s.yaml"), ()
    except ConfigError as error:
        return None, error.complaints


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(KEYS, SCALARS, max_size=8))
def test_any_values_under_any_keys_load_or_are_refused_and_nothing_else_escapes(tree: dict[str, Any]) -> None:
    config, told = outcome("".join(f"{key}: {value}\n" for key, value in tree.items()))
    assert (config is None) == bool(told)
    for complaint in told:
        assert complaint.line is not None
        assert 1 <= complaint.line <= max(1, len(tree))
        assert "{key}" not in complaint.what + str(complaint.hint)
        assert "sk-abc" not in f"{complaint}"


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80))
def test_any_text_as_an_sla_is_limits_or_misasked(text: str) -> None:
    try:
        limits = parse_sla(text)
    except UsageError:
        return
    assert limits
    assert [] == [limit for limit in limits if limit.promise <= 0 and limit.metric not in ("error_rate", "attainment")]


def test_tiers_and_text_read_the_same_limits() -> None:
    text = "p99_ttft<=200ms..500ms, error_rate<=1%"
    assert (("default", parse_sla(text)),) == read_tiers({"p99_ttft": ["200ms", "500ms"], "error_rate": "1%"})


def test_redaction_masks_tokens_and_leaves_ordinary_names_alone() -> None:
    kept = "max_batched_tokens: 2048, kv_per_token: 131kB, task-1234567890123 http://host/v1 risk-management-2026"
    assert kept == redact(kept)
    assert "Authorization: Bearer ***" == redact("Authorization: Bearer abcdefghijkl")
    assert "hf ***" == redact("hf hf_abcdefghijklmnop")
    assert looks_random("abcDEF0123456789abcDEF01")
    assert not looks_random("MY_VERY_LONG_VARIABLE_NAME_FOR_A_KEY")


@pytest.mark.parametrize(("text", "expected"), [("", None), ("workers: auto\n", None), ("workers: 4\n", 4)])
def test_the_number_of_client_processes_is_no_part_of_what_is_measured(text: str, expected: int | None) -> None:
    config = load(text)
    assert expected == config.workers
    assert load().identity() == config.identity()
    with pytest.raises(ConfigError, match="workers"):
        load("workers: 0\n")
