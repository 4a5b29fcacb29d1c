"""Diagnosis: each rule on signs made by hand, what a run shows, and cases of the study with known
truth."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.diagnosis import EVIDENCE, STATING, TESTING, diagnosed, draw, second, stated, verdict
from frontier.config import load_config
from frontier.core.estimates import estimate
from frontier.core.model.loads import Concurrency, Rate
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement, Outcome, Phase, Record, Trial, Window
from frontier.core.stats.intervals import clopper_pearson
from frontier.core.window.from_records import window_data
from frontier.extras.diagnose.diagnosis import (
    PROBABILITY,
    SECOND,
    Diagnosis,
    SettingDiagnosis,
    diagnose_setting,
    diagnosis_lines,
)
from frontier.extras.diagnose.remedies import Resource, cap_to_try, remedy
from frontier.extras.diagnose.server_settings import ServerSettings, command_settings, read_settings, settings_of
from frontier.extras.diagnose.signs import Signs, signs_of
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.places import DATA, ROOT
from tests.kit.sweeps import sweep_in_virtual_time

RESULTS = DATA / "diagnosis.jsonl"
ALONE: dict[str, Any] = {
    "connect": 0.0,
    "network": 0.001,
    "front_end": 0.001,
    "queue": 0.0,
    "prefill": 0.03,
    "decode": 1.0,
}


def signs(c: int, parts: dict[str, float] | None = None, **keys: Any) -> Signs:
    """A setting of 1024/101 on an engine whose step takes 10 ms alone, with all that a server can
    tell.
    """
    parts = ALONE | (parts or {})
    ttft = sum(parts.values()) - parts["decode"]
    plain = {
        "rate": c / sum(parts.values()),
        "prompt": 1024.0,
        "answer": 101.0,
        "ttft": ttft,
        "e2e": sum(parts.values()),
        "in_flight": float(c),
        "parts": parts,
        "running": float(c),
        "running_max": float(c),
        "waiting": 0.0,
        "kv": 0.2,
        "kv_max": 0.25,
        "preempted": 0.0,
        "step": 0.012,
        "chunks": 1.0 if c == 1 else None,
        "clock": 1.9e9,
    }
    return Signs(Concurrency(c), **(plain | keys))


def found(here: Signs, limited: str | None = "p99_ttft", engine: str | None = None, **alone: Any) -> SettingDiagnosis:
    return diagnose_setting(here.load, [signs(1, **alone), here], limited=limited, engine=engine)


WAITING = {"queue": 1.0, "decode": 1.5}
CASES = {
    Resource.NETWORK: signs(16, {"network": 0.4}),
    Resource.FRONT_END: signs(16, {"front_end": 0.4}),
    Resource.KV: signs(16, WAITING, waiting=7.0, running=9.0, running_max=10.0, kv=0.93, kv_max=0.99, preempted=0.3),
    Resource.BATCH: signs(16, WAITING, waiting=7.0, running=8.0, running_max=8.0, rate=6.0),
    Resource.PREFILL: signs(64, WAITING, waiting=24.0, running=38.0, running_max=44.0, rate=40.0, step=0.025),
    Resource.BUDGET: signs(32, {**WAITING, "prefill": 0.12}, waiting=12.0, running=20.0, running_max=24.0, rate=12.0),
    Resource.CLIENT: signs(16, client="CPU 97%"),
    Resource.CLOCKS: signs(16, clock=1.2e9, held=0.7),
    Resource.RATE_LIMIT: signs(16, limited=0.3, outcomes={"http_error": 30}),
    Resource.OVERLOAD: signs(16, failed=0.2, outcomes={"http_error": 20}),
}


@pytest.mark.parametrize("resource", CASES)
def test_each_resource_by_its_own_signature(resource: Resource) -> None:
    chunks = 9.0 if resource is Resource.BUDGET else 1.0
    diagnosis = found(CASES[resource], chunks=chunks)
    assert diagnosis.suspects[0].resource is resource
    assert diagnosis.suspects[0].probability == PROBABILITY["clear"]


@pytest.mark.parametrize("resource", [Resource.KV, Resource.BATCH])
def test_at_a_rate_the_queue_is_of_the_requests_in_flight(resource: Resource) -> None:
    """6 requests a second are 6,000 thousandths, and 16 requests in flight."""
    here = replace(CASES[resource], load=Rate(6_000))
    assert resource is found(here).suspects[0].resource
    assert cap_to_try(here) == cap_to_try(CASES[resource])


def test_decode_where_a_token_takes_longer() -> None:
    diagnosis = found(signs(16, {"decode": 2.0}), "p99_tpot")
    (suspect,) = diagnosis.suspects
    assert suspect.resource is Resource.DECODE
    assert_golden_row("answers", suspect.evidence)


def test_what_has_grown_bends_throughput_and_not_what_was_there_alone() -> None:
    far = {"network": 0.5}
    assert found(signs(16, {**far, "decode": 1.4}), None, parts=far).suspects[0].resource is Resource.DECODE
    assert found(signs(16, {**far, "decode": 1.4}), parts=far).suspects[0].resource is Resource.NETWORK


def test_a_clock_that_nothing_held_down_only_idled() -> None:
    assert found(signs(16, {"decode": 2.0}, clock=1.2e9, held=0.0), "p99_tpot").suspects[0].resource is Resource.DECODE


def test_without_clocks_a_slow_engine_is_less_sure() -> None:
    (suspect, *_) = found(signs(16, {"decode": 2.0}, clock=None), "p99_tpot").suspects
    assert (suspect.resource, suspect.probability) == (Resource.DECODE, PROBABILITY["partial"])


def test_two_resources_are_both_named_and_the_first_is_less_sure() -> None:
    first, second = found(signs(16, {"network": 0.4, "front_end": 0.3})).suspects
    assert [first.resource, second.resource] == [Resource.NETWORK, Resource.FRONT_END]
    assert (first.probability, second.probability) == (PROBABILITY["shared"], SECOND)


def test_running_requests_that_fill_memory_are_not_a_cap() -> None:
    """16 run, of which each holds 1,075 tokens: at 94.9% of the memory the rest holds no prompt of
    1,024.
    """
    here = signs(32, WAITING, waiting=15.0, running=16.0, running_max=16.0, kv=0.93, kv_max=0.949, rate=6.0)
    assert found(here).suspects[0].resource is Resource.KV


@pytest.mark.parametrize(
    ("running", "rate", "resource"),
    [
        (51.1, 34.8, Resource.BATCH),  # one in a step ends: so many places are empty when the gauge is read
        (49.9, 34.8, Resource.BUDGET),
        (52.2, 6.0, Resource.BATCH),
        (46.0, 6.0, Resource.BATCH),  # steps have room for prompts, so requests wait for nothing but the cap
        (30.0, 6.0, Resource.BUDGET),
    ],
)
def test_running_requests_at_a_cap_fall_below_it_by_those_that_end_in_a_step(
    running: float, rate: float, resource: Resource
) -> None:
    here = signs(96, WAITING, waiting=42.0, running=running, running_max=53.0, rate=rate, step=0.032)
    assert found(here, parts={"prefill": 0.012}).suspects[0].resource is resource


@pytest.mark.parametrize(("chunks", "rate", "step"), [(2.0, 6.5, 0.08), (1.0, 23.0, 0.085)])
@pytest.mark.parametrize("cap", [None, 128])
def test_running_requests_that_are_steady_below_the_cap_are_no_cap(
    chunks: float, rate: float, step: float, cap: int | None
) -> None:
    """Long prompts with short answers fill each step: as many run as the prompts of a step make."""
    here = signs(
        64, WAITING, waiting=58.0, running=4.99, running_max=5.0, rate=rate, step=step, settings=ServerSettings(cap=cap)
    )
    (suspect, *_) = found(here, parts={"prefill": 0.14 if chunks == 2 else 0.05}, chunks=chunks).suspects
    assert suspect.resource is Resource.PREFILL


def test_a_cap_that_the_server_tells_settles_what_its_requests_wait_for() -> None:
    """53 run, steadily, and one prompt or more ends in each step: a cap, or steps that are full."""
    here = signs(96, WAITING, waiting=42.0, running=51.1, running_max=53.0, rate=34.8, step=0.032)
    told = {cap: found(replace(here, settings=ServerSettings(cap=cap)), parts={"prefill": 0.012}) for cap in (53, 256)}
    assert told[53].suspects[0].resource is Resource.BATCH
    assert told[53].suspects[0].probability == PROBABILITY["clear"]
    assert told[256].suspects[0].resource is Resource.BUDGET
    replicas = replace(here, settings=ServerSettings(cap=20))  # of each of three
    assert found(replicas, parts={"prefill": 0.012}).suspects[0].resource is Resource.BATCH


def test_a_mean_is_not_taken_for_the_most_that_ran() -> None:
    sample = window_data(
        Measurement(
            Trial("d", Shape.of(8, 8), 4, 1, Phase.GRID, 8, 1, 0.0, 0.0, 100.0, "f"),
            0.0,
            Window(2.0, 8.0),
            "requests",
            server={"num_requests_running": 3.0, "kv_cache_usage_perc": 0.5},
        ),
        [Record(i, 0, float(i), Outcome.OK, i + 0.5, 8, 8, status=200) for i in range(10)],
    )
    told = signs_of(estimate.point(sample), sample)
    assert (told.running, told.running_max, told.kv_max) == (3.0, None, None)


def test_what_requests_wait_for_is_not_known_without_gauges() -> None:
    blind = signs(16, WAITING, waiting=None, running=None, running_max=None, kv=None, kv_max=None)
    diagnosis = found(blind)
    assert diagnosis.suspects == ()
    assert_golden_row("answers", diagnosis.unknown)


def test_preemptions_tell_of_memory_without_gauges() -> None:
    blind = signs(16, WAITING, waiting=None, running=None, running_max=None, kv=None, kv_max=None, preempted=0.4)
    (suspect, *_) = found(blind).suspects
    assert (suspect.resource, suspect.probability) == (Resource.KV, PROBABILITY["partial"])


def test_other_load_on_the_server_is_no_evidence() -> None:
    refused = "the server finished 900 requests, this client 500"
    diagnosis = found(signs(16, WAITING, refused=refused))
    assert (diagnosis.suspects, diagnosis.unknown) == ((), refused)


def test_flags_have_the_names_of_the_engine() -> None:
    here = signs(64, {"queue": 0.2, "prefill": 0.1}, running_max=16.0, kv_max=0.4)
    alone = signs(1)
    assert "--max-running-requests 32" in remedy(Resource.BATCH, "sglang", here, alone)[0]
    assert_golden_row("answers", "\n".join(remedy(Resource.BATCH, "sglang", here, alone)))
    assert "--chunked-prefill-size" in remedy(Resource.BUDGET, "sglang", here, alone)[0]
    assert "--max-num-seqs 32" in remedy(Resource.BATCH, None, here, alone)[0]
    assert_golden_row("answers", "\n".join(remedy(Resource.BATCH, None, here, alone)), "of an unknown engine")
    assert "--max-batch-size" in remedy(Resource.BATCH, "tgi", here, alone)[0]
    for resource in Resource:
        for engine in ("vllm", "sglang", "trtllm", "tgi", "llamacpp", "ollama", None):
            change, effect = remedy(resource, engine, here, alone)
            assert "{" not in change + effect
            assert change.strip()


def test_a_cap_to_try_is_shared_by_the_ranks_of_the_server() -> None:
    """--max-num-seqs holds for each rank: four of 16 run 64."""
    here = signs(256, running_max=64.0, kv_max=None, settings=ServerSettings(cap=16), ranks=4)
    assert (64, 128) == (here.cap, cap_to_try(here))
    told = remedy(Resource.BATCH, None, here, signs(1))[0]
    assert "--max-num-seqs 32" in told
    assert "4 ranks" in told
    assert "max-running-requests 128)" in remedy(Resource.BATCH, "sglang", here, signs(1))[0]


def test_a_cap_to_try_leaves_room_in_the_memory() -> None:
    assert cap_to_try(signs(64, running_max=16.0, kv_max=0.8)) == 18
    assert cap_to_try(signs(20, running_max=16.0, kv_max=None)) == 20
    assert cap_to_try(signs(64, running_max=15.0, kv_max=None, settings=ServerSettings(cap=16))) == 32


# --- advice: what is on already is not proposed

NOT_ON = ServerSettings()
SERVERS: dict[str, dict[str, str]] = {
    "vllm, started": command_settings(
        "vllm serve my/model --quantization=fp8 --kv-cache-dtype fp8 --max-num-seqs 64 "
        '--speculative-config \'{"method": "ngram"}\' --enable-prefix-caching --port 8001'
    ),
    "sglang": {
        "quantization": "fp8",
        "kv_cache_dtype": "fp8_e5m2",
        "speculative_algorithm": "EAGLE",
        "max_running_requests": "64",
        "disable_radix_cache": "False",
    },
    "trtllm": {
        "quantization": "FP8",
        "cache_dtype": "fp8",
        "spec_enabled": "true",
        "max_batch_size": "64",
        "enable_block_reuse": "True",
    },
}


@pytest.mark.parametrize("told", SERVERS.values(), ids=SERVERS.keys())
def test_settings_are_read_under_the_names_of_each_engine(told: dict[str, str]) -> None:
    assert read_settings(told) == ServerSettings(8.0, 8.0, drafts=True, prefix_cache=True, cap=64)


@pytest.mark.parametrize(
    ("told", "settings"),
    [
        ({}, NOT_ON),
        (
            {"cache_dtype": "auto", "quantization": "None", "spec_enabled": "False"},
            ServerSettings(drafts=False),
        ),
        ({"enable_prefix_caching": "False"}, ServerSettings(prefix_cache=False)),
        ({"disable_radix_cache": "True"}, ServerSettings(prefix_cache=False)),
        ({"cache_dtype": "bfloat16"}, ServerSettings(kv_bits=16.0)),
        ({"quantization": "awq_marlin"}, ServerSettings(weight_bits=4.0)),
        ({"quantization": "compressed-tensors"}, ServerSettings(weight_bits=8.0)),
        ({"model_path": "/models/qwen3-32b-Q4_K_M.gguf", "total_slots": "4"}, ServerSettings(weight_bits=4.0, cap=4)),
        ({"model": "Qwen/Qwen3-32B-FP8"}, ServerSettings(weight_bits=8.0)),
        ({"model": "meta/Llama-3.1-8B"}, NOT_ON),
    ],
)
def test_settings_that_are_told_otherwise_or_not_at_all(told: dict[str, str], settings: ServerSettings) -> None:
    assert read_settings(told) == settings


def advised(resource: Resource, settings: ServerSettings, tpot: float = 0.011, engine: str = "vllm") -> str:
    here = signs(16, {"decode": 100 * tpot}, settings=settings)
    return remedy(resource, engine, here, signs(1))[0]


@pytest.mark.parametrize(
    ("settings", "tpot", "proposed"),
    [
        (NOT_ON, 0.011, {"--quantization fp8", "--speculative-config"}),
        (NOT_ON, 0.015, {"--quantization fp8", "--speculative-config", "--kv-cache-dtype fp8"}),
        (NOT_ON, 0.030, {"--quantization fp8", "--kv-cache-dtype fp8"}),
        (ServerSettings(weight_bits=8.0), 0.011, {"--speculative-config"}),
        (ServerSettings(weight_bits=4.0), 0.030, {"--kv-cache-dtype fp8"}),
        (ServerSettings(weight_bits=16.0, kv_bits=8.0), 0.030, {"--quantization fp8"}),
        (ServerSettings(weight_bits=8.0, drafts=True), 0.011, {"--tensor-parallel-size"}),
        (ServerSettings(8.0, 8.0, drafts=True), 0.030, {"--tensor-parallel-size"}),
    ],
)
def test_for_decode_what_is_off_and_fits_is_proposed(settings: ServerSettings, tpot: float, proposed: set[str]) -> None:
    flags = ("--quantization fp8", "--speculative-config", "--kv-cache-dtype fp8", "--tensor-parallel-size")
    assert {flag for flag in flags if flag in advised(Resource.DECODE, settings, tpot)} == proposed


@pytest.mark.parametrize(("memory", "flags"), [(None, 1), (0.5, 1), (0.05, 0)])
def test_fewer_bytes_are_no_remedy_where_the_memory_is_idle(memory: float | None, flags: int) -> None:
    """Seen on an H200: a step took ten times as long as the weights take to be read."""
    here = signs(16, {"decode": 3.0}, memory=memory)
    changes = remedy(Resource.DECODE, "vllm", here, signs(1))[0]
    assert changes.count("--quantization fp8") == changes.count("--kv-cache-dtype fp8") == flags
    assert ("CUDA graphs" in changes) is (flags == 0)


def test_a_cache_in_fp8_and_a_prefix_cache_are_not_proposed_twice() -> None:
    assert "--kv-cache-dtype fp8" in advised(Resource.KV, NOT_ON)
    assert "--kv-cache-dtype" not in advised(Resource.KV, ServerSettings(kv_bits=8.0))
    cached = ServerSettings(prefix_cache=True)
    assert "--tensor-parallel-size" in advised(Resource.PREFILL, cached)
    assert advised(Resource.PREFILL, NOT_ON).startswith(advised(Resource.PREFILL, cached) + ",")


def test_drafts_that_the_server_counts_are_on_whatever_is_said() -> None:
    trial = Trial("d", Shape.of(8, 8), 4, 1, Phase.GRID, 8, 1, 0.0, 0.0, 100.0, "f")
    counted = {"spec_decode_num_drafts_total": 40.0}
    measurement = Measurement(trial, 0.0, Window(2.0, 8.0), "requests", server=counted)
    records = [Record(i, 0, float(i), Outcome.OK, i + 0.5, 8, 8, status=200) for i in range(10)]
    sample = window_data(measurement, records)
    assert signs_of(estimate.point(sample), sample).settings.drafts is True


DESCRIBED: list[tuple[str, dict[str, str], ServerSettings]] = [
    ("", {"cache_dtype": "fp8"}, ServerSettings(kv_bits=8.0)),
    (
        "hardware: {name: h200, model: llama-3.1-8b, precision: fp8, kv_precision: fp8, max_num_seqs: 96}\n",
        {},
        ServerSettings(8.0, 8.0, cap=96),
    ),
    ("hardware: {name: h200, model: deepseek-r1}\n", {}, ServerSettings(8.0)),
    ("hardware: {name: h200, speculation: {tokens: 3, acceptance: 70%}}\n", {}, ServerSettings(drafts=True)),
    ("hardware: {name: h200, precision: bf16}\nmodel: x/y-AWQ\n", {"quantization": "fp8"}, ServerSettings(8.0)),
    ("start: vllm serve x --kv-cache-dtype fp8_e4m3\n", {}, ServerSettings(kv_bits=8.0)),
]
DEPLOYMENT = "endpoint: http://localhost:8000\nshapes: [256/32]\nconcurrency: [1]\n"


@pytest.mark.parametrize(("keys", "told", "settings"), DESCRIBED)
def test_settings_of_a_deployment_come_from_its_server_then_its_config(
    keys: str, told: dict[str, str], settings: ServerSettings
) -> None:
    (deployment,) = load_config(DEPLOYMENT + keys, "sweep.yaml").deployments
    assert settings_of(deployment, told) == settings


def test_lines_say_the_resource_its_evidence_and_what_to_try() -> None:
    here = found(CASES[Resource.BATCH], engine="vllm")
    unknown = SettingDiagnosis(Concurrency(8), ("knee",), None, unknown="no metrics")
    lines = dict(diagnosis_lines(Diagnosis("d", Shape.of(1024, 101), (unknown, here))))
    assert list(lines) == ["c=8, knee", "c=16, "]
    assert_golden_row("answers", "\n".join(lines.values()))
    both = Diagnosis("d", Shape.of(1024, 101), (here, replace(here, load=Concurrency(32))))
    (_, first), (_, second) = diagnosis_lines(both)
    assert second == first.partition(" Try ")[0]  # a change is said once
    assert all(resource.words for resource in Resource)


def test_requests_refused_for_a_rate_limit_are_counted_in_the_window() -> None:
    def record(i: int, status: int) -> Record:
        outcome = Outcome.OK if status == 200 else Outcome.HTTP_ERROR
        return Record(i, 0, float(i), outcome, i + 0.5, 8, 8, status=status)

    trial = Trial("d", Shape.of(8, 8), 1, 1, Phase.GRID, 8, 1, 0.0, 0.0, 100.0, "f")
    measurement = Measurement(trial, 0.0, Window(2.0, 8.0), "requests")
    sample = window_data(measurement, [record(i, 429 if i % 2 else 503) for i in range(10)])
    assert sample.server[0]["client_http_429"] == 3.0


# --- the study


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()]


@pytest.mark.parametrize("number", [0, 1, 7, 9])
def test_cases_of_the_study(number: int) -> None:
    case = draw(number)
    assert diagnosed(case).suspects[0].resource in case.planted


def test_the_page_and_the_stated_probabilities_are_those_of_the_study() -> None:
    study = rows()
    first, other = ([row for row in study if row["draw"] == name] for name in (STATING, TESTING))
    assert [row["case"] for row in first] == [row["case"] for row in other] == list(range(200))
    page = (ROOT / "docs" / "validation" / "how-often-right.md").read_text()
    shown = re.search(r"(\d+) right, (\d+) wrong, (\d+) not known \| (\d+) cases", page)
    counts = [sum(verdict(row) == word for row in other) for word in ("right", "wrong", "not known")]
    assert shown is not None
    assert [int(count) for count in shown.groups()] == [*counts, len(other)]
    text = " ".join(page.partition("\n## Bottlenecks\n")[2].partition("\n## ")[0].split())
    by_evidence = {kind: [row["right"] for row in other if row["basis"] in EVIDENCE[kind]] for kind in EVIDENCE}
    moved = [row["moved"] for row in other if row["moved"] is not None]
    pairs = [(sum(some), len(some)) for some in (*by_evidence.values(), moved)]
    for right, named in (*pairs, second(study, TESTING)):
        assert re.search(rf"\b{right} of {named}\b", text), (right, named)
    # Stated from the first draw, tested on the second, which may fall short by chance alone.
    assert {EVIDENCE[kind]: share for kind, share in stated(study).items()} == {
        bases: PROBABILITY[bases[0]] for bases in EVIDENCE.values()
    }
    assert {basis for bases in EVIDENCE.values() for basis in bases} == set(PROBABILITY)
    assert len({PROBABILITY[basis] for basis in ("shared", "partial")}) == 1
    for bases in EVIDENCE.values():
        some = [row["right"] for row in other if row["basis"] in bases]
        assert len(some) >= 20
        assert clopper_pearson(sum(some), len(some), 0.95)[1] >= PROBABILITY[bases[0]]
    right, named = second(study, STATING)
    assert 0 <= right / named - SECOND < 0.05
    assert clopper_pearson(*second(study, TESTING), 0.95)[1] >= SECOND
    for drawn in (first, other):
        assert sum(row["right"] for row in drawn) >= 0.94 * len(drawn)
        assert sum(bool(row["named"]) and not row["right"] for row in drawn) <= 0.02 * len(drawn)
        assert sum((row["probability"] or 0) > 0.9 and not row["right"] for row in drawn) <= 1
        advised = [row["moved"] for row in drawn if row["moved"] is not None]
        assert sum(advised) >= 0.9 * len(advised)


@pytest.mark.slow
@pytest.mark.parametrize("every", [12, pytest.param(4, marks=pytest.mark.nightly)])
def test_cases_drawn_again_give_the_same_results(every: int) -> None:
    study = {(row["draw"], row["case"]): row for row in rows()}
    for number in range(0, 200, every):
        drawn = (STATING, TESTING)[number // 4 % 2]
        case = draw(number, drawn)
        assert [s.resource.value for s in diagnosed(case).suspects] == study[drawn, number]["named"]


# --- what a user sees

CAPPED = """\
endpoint: simulator
simulator: {step_base: 5ms, per_decode: 20us, per_prefill_token: 10us, noise: 0.03, max_num_seqs: 8}
shapes: [256/32]
concurrency: [1, 4, 8, 16, 32]
sla: {p99_ttft: 100ms}
requests: 400
repeats: 1
refine: 0
"""


def test_show_and_the_page_say_what_binds(tmp_path: Path) -> None:
    """The cap is 8 in the engine's configuration, which nothing but the engine sees."""
    (tmp_path / "runs").mkdir()
    sweep_in_virtual_time(tmp_path / "runs" / "capped", CAPPED)
    said = frontier("show", "-v", cwd=tmp_path, here=True)
    (told,) = json.loads(frontier("show", "--json", cwd=tmp_path, here=True).out)["diagnosis"]
    violation = next(place for place in told["settings"] if "first violation" in place["roles"])
    assert violation["metric"] == "p99_ttft"
    assert violation["suspects"][0]["resource"] == "batch_cap"
    assert violation["suspects"][0]["evidence"].startswith("8.00 run at most")
    frontier("report", "-o", "page.md", cwd=tmp_path, here=True)
    page = (tmp_path / "page.md").read_text()
    head = f"Bottleneck at c={violation['concurrency']}, first violation"
    (batch_cap,) = (line for line in page.splitlines() if head in line)
    assert Resource.BATCH.words in batch_cap
    assert violation["suspects"][0]["evidence"] in batch_cap
    assert violation["suspects"][0]["evidence"] in " ".join(said.out.split())


@pytest.mark.parametrize("shape", ["4096/8", "1536/8", "2560/24", "8192/16"])
@pytest.mark.parametrize("cap", [128, 256])
def test_prefill_is_not_called_a_cap(shape: str, cap: int, tmp_path: Path) -> None:
    """Few requests run, steadily: those of which prompts fill the steps. The engine's cap is far
    away.
    """
    engine = f"step_base: 8ms, per_decode: 20us, per_prefill_token: 20us, noise: 0.03, max_num_seqs: {cap}"
    text = CAPPED.replace(CAPPED.splitlines()[1], f"simulator: {{{engine}, max_batched_tokens: 2048}}")
    text = text.replace("256/32", shape).replace("[1, 4, 8, 16, 32]", "[1, 4, 64]").replace("400", "150")
    (tmp_path / "runs").mkdir()
    sweep_in_virtual_time(tmp_path / "runs" / "long", text)
    (told,) = json.loads(frontier("show", "--json", cwd=tmp_path, here=True).out)["diagnosis"]
    suspects = {place["concurrency"]: place["suspects"] for place in told["settings"]}
    assert "batch_cap" not in {suspect["resource"] for named in suspects.values() for suspect in named}
    assert suspects[max(suspects)][0]["resource"] == "prefill"


DECODING = """\
endpoint: simulator
simulator: {step_base: 5ms, per_decode: 20us, per_prefill_token: 2us, noise: 0.03}
shapes: [128/64]
concurrency: [1, 4, 16]
sla: {p99_tpot: 5.3ms}
requests: 150
repeats: 1
refine: 0
"""


@pytest.mark.parametrize(("hardware", "proposed"), [("", True), ("hardware: {name: h200, precision: fp8}\n", False)])
def test_what_the_config_says_of_the_server_reaches_the_advice(hardware: str, proposed: bool, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    sweep_in_virtual_time(tmp_path / "runs" / "decode", DECODING + hardware)
    (told,) = json.loads(frontier("show", "--json", cwd=tmp_path, here=True).out)["diagnosis"]
    advice = " ".join(s["change"] for place in told["settings"] for s in place["suspects"] if s["resource"] == "decode")
    assert "--speculative-config" in advice
    assert ("--quantization fp8" in advice) is proposed
    frontier("report", "-o", "page.md", cwd=tmp_path, here=True)
    assert ("--quantization fp8" in (tmp_path / "page.md").read_text()) is proposed
