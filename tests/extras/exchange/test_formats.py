"""Each importer on files of its documented form: the figures, and what it refuses."""

import json
import math
from typing import Any

import pytest

from frontier.config import load_config
from frontier.core.model.errors import UsageError
from frontier.core.model.points import Estimate
from frontier.core.model.shapes import Shape
from frontier.extras.exchange import formats
from frontier.extras.exchange.assemble import assemble, config_text
from frontier.extras.exchange.results import ImportedFile, Result
from frontier.store.documents import ForeignFileError
from tests.kit.golden import assert_golden_row
from tests.kit.peer_files import DATA, aiperf, genai_bench, guidellm, said, vllm, without_parser


def only(found: ImportedFile) -> Result:
    (result,) = found.results
    return result


def values(found: ImportedFile) -> dict[str, float]:
    (point,) = assemble([found]).points
    return {name: estimate.value for name, estimate in point.metrics.items()}


def refusal(data: bytes, name: str | None = None) -> str:
    with pytest.raises(ForeignFileError) as raised:
        formats.read_results("results/file.json", data, name)
    assert str(raised.value).startswith("results/file.json: ")
    return str(raised.value)


# --- vLLM and its descendants


def test_vllm_says_its_rate_its_lengths_and_its_failures() -> None:
    result = only(said(vllm(failed=2, completed=98)))
    assert (8, 98, 2) == (result.concurrency, result.ok, result.failed)
    assert (128 * 100 / 98, 64 * 100 / 98) == pytest.approx(result.came)
    assert (None, "org/m") == (result.deployment, result.model)


def test_vllm_of_an_old_version_counts_what_was_not_completed_as_failed() -> None:
    old = vllm(completed=90)
    del old["failed"]
    assert 10 == only(said(old)).failed


def test_vllm_percentiles_beyond_the_failures_are_infinite() -> None:
    got = values(said(vllm(failed=2, completed=98)))
    assert math.isinf(got["p99_ttft"])
    assert math.isinf(got["mean_e2e"])
    assert 0.048 == got["p50_ttft"]
    assert 0.02 == got["error_rate"]


def test_vllm_with_nothing_completed_is_all_infinite_and_no_percentile_is_zero() -> None:
    got = values(said(vllm(completed=0, failed=100, p99_ttft_ms=0.0, random_input_len=128, random_output_len=64)))
    assert 1.0 == got["error_rate"]
    assert 0.0 not in [got.get(name) for name in ("p99_ttft", "p50_ttft")]


def test_vllm_appended_results_are_a_result_each() -> None:
    two = b"\n".join(json.dumps(vllm(max_concurrency=c)).encode() for c in (4, 8))
    read = formats.read_results("f.json", two)
    assert [4, 8] == [r.concurrency for r in read.results]


def test_vllm_at_a_rate_has_the_mean_in_flight() -> None:
    result = only(said(vllm(request_rate=10.0, max_concurrency=None)))
    assert 8 == result.concurrency
    assert 10.0 == result.rate
    assert any("open loop at 10 requests/s" in note for note in result.notes)
    tree = {k: v for k, v in vllm(request_rate=10.0, max_concurrency=None).items() if "e2el" not in k}
    assert 10.0 == only(said(tree)).rate  # a setting by its rate, whatever was in flight
    refused = refusal(json.dumps(tree | {"request_rate": 5.0}).encode())
    assert "mean_e2el_ms" in refused
    assert_golden_row("messages", refused)


def test_vllm_that_did_not_make_its_rate_is_flagged() -> None:
    (point,) = assemble([said(vllm(request_rate=20.0, max_concurrency=None))]).points
    assert ["under_rate"] == [flag.name for flag in point.flags]


def test_vllm_sent_at_once_is_a_burst() -> None:
    result = only(said(vllm(max_concurrency=None)))
    assert 100 == result.concurrency
    assert any("burst" in note for note in result.notes)


def test_sglang_is_read_with_its_infinity_and_its_names() -> None:
    line = (
        b'{"tag":null,"backend":"sglang-oai","request_rate":Infinity,"max_concurrency":2,"random_input_len":16,'
        b'"random_output_len":4,"random_range_ratio":1.0,"duration":0.2666,"completed":6,"total_output_tokens":24,'
        b'"output_throughput":90.02,"request_throughput":22.5,"mean_ttft_ms":53.0,"median_ttft_ms":52.0,'
        b'"p99_ttft_ms":55.53,"mean_e2e_latency_ms":86.0,"p99_e2e_latency_ms":93.0,"mean_tpot_ms":11.0,'
        b'"accept_length":null,"concurrency":1.926}'
    )
    read = formats.read_results(
        "sglang.jsonl", line + b"\n" + line.replace(b'"max_concurrency":2', b'"max_concurrency":4')
    )
    assert "SGLang bench_serving" == read.format
    assert [2, 4] == [r.concurrency for r in read.results]
    result = read.results[0]
    assert (16, 4) == result.asked
    assert 0.093 == pytest.approx(result.figures["p99_e2e"])
    assert result.failed is None


# --- AIPerf


def test_aiperf_names_are_ours() -> None:
    result = only(said(aiperf()))
    assert (4, 64, 0) == (result.concurrency, result.ok, result.failed)
    assert (200, 32) == result.asked
    got = values(said(aiperf()))
    assert {"p99_ttft": 0.0837, "mean_tpot": 0.010, "p99_itl": 0.025, "mean_e2e": 0.3767} == pytest.approx(
        {name: got[name] for name in ("p99_ttft", "mean_tpot", "p99_itl", "mean_e2e")}
    )
    assert 320 == got["output_throughput"]


def test_aiperf_prefers_percentiles_in_which_failures_are_infinite() -> None:
    tree = aiperf(
        error_request_count={"unit": "requests", "avg": 1.0},
        request_count={"unit": "requests", "avg": 199.0},
        adj_time_to_first_token={"unit": "ms", "p50": 67.0, "p99": 99.0, "count": 200},
    )
    got = values(said(tree))
    assert 0.099 == pytest.approx(got["p99_ttft"])
    assert math.isinf(got["mean_ttft"])


def test_aiperf_of_a_sweep_has_its_concurrency_among_the_varied_values() -> None:
    tree = aiperf(run_info={"variation_values": {"phases.profiling.concurrency": 16}})
    tree["input_config"]["phases"] = [{"kind": "profiling"}]
    assert 16 == only(said(tree)).concurrency


def test_aiperf_in_an_unknown_unit_is_refused() -> None:
    tree = aiperf(time_to_first_token={"unit": "fortnights", "avg": 1.0, "p99": 2.0})
    assert "'fortnights'" in refusal(json.dumps(tree).encode())


# --- GuideLLM, genai-bench, inference-perf


def test_guidellm_tpot_is_its_itl_and_not_its_tpot() -> None:
    result = only(said(guidellm()))
    assert 8 == result.concurrency
    assert 0.00115 == pytest.approx(result.figures["mean_tpot"])
    assert 0.0012 == pytest.approx(result.figures["p99_tpot"])
    assert not any(name.endswith("_itl") for name in result.figures)
    assert 20 == result.figures["request_throughput"]
    assert 160 == result.figures["output_throughput"]
    assert 0.021 == pytest.approx(result.figures["p99_e2e"])
    assert not result.flags


def test_guidellm_of_a_rate_has_the_mean_in_flight() -> None:
    tree = guidellm(config={"strategy": {"type_": "constant", "rate": 30.0}})
    result = only(said(tree))
    assert (1, 30.0) == (result.concurrency, result.rate)
    assert ["under_rate"] == [flag.name for flag in result.flags]


def test_genai_bench_has_its_scenario_for_a_shape_and_its_unit() -> None:
    result = only(said(genai_bench()))
    assert (4, 40, 0, (100, 100)) == (result.concurrency, result.ok, result.failed, result.asked)
    assert 0.12 == pytest.approx(result.figures["p99_ttft"])
    assert 400 == result.figures["output_throughput"]
    in_ms = genai_bench() | {"_time_unit": "ms"}
    assert 0.00012 == pytest.approx(only(said(in_ms)).figures["p99_ttft"])
    assert "_time_unit is 'h'" in refusal(json.dumps(genai_bench() | {"_time_unit": "h"}).encode())


def test_genai_bench_metadata_is_no_result_and_no_mistake() -> None:
    metadata = formats.read_results("metadata.json", b'{"benchmark_version": "1", "traffic_scenario": ["D"]}')
    assert () == metadata.results


def test_inferencex_rates_of_a_disaggregated_server_are_per_decode_and_per_prefill_gpu() -> None:
    agg = json.loads((DATA / "inferencex-agg" / "agentic-c64.json").read_bytes())
    split = {"is_multinode": True, "num_prefill_gpu": 2, "num_decode_gpu": 6}
    rates = {"output_tput_per_gpu": 10.0, "input_tput_per_gpu": 90.0, "tput_per_gpu": 30.0}
    totals = {"output_tput_tps", "input_tput_tps", "total_tput_tps"}
    result = only(said({key: value for key, value in (agg | split | rates).items() if key not in totals}))
    assert 8 == result.gpus
    assert (60, 180, 240) == tuple(result.figures[f"{side}_throughput"] for side in ("output", "input", "total"))


# --- llm-d


def llmd(model: str = "org/m", tool: str = "guidellm") -> str:
    """A Benchmark Report of version 0.2.1."""
    return f"""\
version: "0.2.1"
run: {{uid: x}}
scenario:
  stack:
  - {{standardized: {{kind: inference_engine}}}}
  - {{standardized: {{kind: inference_engine, model: {{name: {model}}}}}}}
  load: {{standardized: {{tool: {tool}, concurrency: 8, input_seq_len: {{distribution: fixed, value: 32}},
         output_seq_len: {{distribution: fixed, value: 8}}}}}}
results:
  request_performance:
    aggregate:
      requests: {{total: 200, failures: 0, output_length: {{units: count, mean: 8.0}}}}
      latency:
        time_to_first_token: {{units: ms, mean: 11.5, p99: 12.0}}
        time_per_output_token: {{units: ms/token, mean: 2.44}}
        inter_token_latency: {{units: ms/token, mean: 1.15, p99: 1.2}}
        request_latency: {{units: s, mean: 0.0196}}
      throughput: {{output_token_rate: {{units: tokens/s, mean: 160.0}}}}
"""


def test_a_report_of_guidellm_has_its_tpot_elsewhere() -> None:
    result = only(formats.read_results("br.yaml", llmd().encode()))
    assert (8, 200, 0, (32, 8), "org/m") == (
        result.concurrency,
        result.ok,
        result.failed,
        result.asked,
        result.model,
    )
    assert 0.00115 == pytest.approx(result.figures["mean_tpot"])
    assert 160 == result.figures["output_throughput"]
    assert "mean_itl" not in result.figures
    assert not result.flags
    other = only(formats.read_results("br.yaml", llmd(tool="inference-perf").encode()))
    assert (0.00244, 0.00115) == pytest.approx((other.figures["mean_tpot"], other.figures["mean_itl"]))


def test_reports_of_several_models_are_several_deployments_also_in_one_file() -> None:
    text = "\n---\n".join(llmd(model) for model in ("org/a", "org/b"))
    made = assemble([formats.read_results("br.yaml", text.encode())])
    assert [("org-a", "org/a"), ("org-b", "org/b")] == [(d.name, d.model) for d in made.deployments]
    assert 2 == len(made.points)


def test_a_report_that_this_tool_wrote_names_its_deployment() -> None:
    native = "load: {native: {config: {deployment: fp8}}, standardized:"
    text = llmd(tool="frontier").replace("load: {standardized:", native)
    assert "fp8" == only(formats.read_results("br.yaml", text.encode())).deployment


# --- plain tables


def test_a_table_needs_a_concurrency_and_a_metric() -> None:
    text = (
        "# by hand\nconcurrency,isl,osl,n,output_throughput,p99_ttft_ms,error_rate,remark\n"
        "8,1024,256,2000,900,120,0.5%,x\n"
    )
    with pytest.raises(ForeignFileError, match=r"line 3: error_rate is '0\.5km'"):
        formats.read_results("t.csv", text.replace("0.5%", "0.5km").encode())
    (point,) = assemble([formats.read_results("t.csv", text.encode())]).points
    assert ("1024/256", 8, 2000) == (point.shape.label, point.load, point.n)
    got = {name: e.value for name, e in point.metrics.items()}
    assert {"output_throughput": 900.0, "p99_ttft": 0.12, "error_rate": 0.005} == pytest.approx(got)


def test_intervals_of_a_table_are_not_believed() -> None:
    text = "concurrency,shape,n,p99_ttft,p99_ttft_low,p99_ttft_high\n8,1024/256,2000,0.12,0.11,0.13\n"
    read = formats.read_results("t.csv", text.encode())
    assert any("cannot prove" in note for note in read.notes)
    (point,) = assemble([read]).points
    assert Estimate.without_interval(0.12, 2000) == point.metrics["p99_ttft"]


def test_a_column_of_a_class_is_not_that_of_all_requests():
    text = b"concurrency,shape,chat.p99_ttft,p99_ttft,rag.p50_e2e,objectives\n8,64/8,0.1,0.2,0.3,p99_ttft\n"
    read = formats.read_results("t.csv", text)
    assert {"p99_ttft": 0.2} == read.results[0].figures
    (unread,) = (note for note in read.notes if "not read" in note)
    assert "chat.p99_ttft, rag.p50_e2e" in unread
    assert "objectives" not in unread


def test_a_row_that_calls_itself_invalid_stays_so() -> None:
    read = formats.read_results("t.csv", b"concurrency,shape,p99_ttft,valid,flags\n8,64/8,0.12,False,lockstep\n")
    (point,) = assemble([read]).points
    assert not point.valid
    assert "lockstep" == point.flags[0].measured


# --- what is refused


UNUSABLE = {
    "nothing": b"",
    "blanks": b"  \n ",
    "prose": b"hello",
    "an open object": b"{",
    "an open list": b"[1, 2",
    "zstd": b"\x28\xb5\x2f\xfd1234",
    "gzip": b"\x1f\x8b1234",
    "zip": b"PK\x03\x04",
    "Latin-1": b"a,b\xff\n",
    "another object": b'{"a": 1}',
    "another list": b"[]",
    "another table": b"a,b\n1,2\n",
    "two columns of a name": b"a,a\n1,2\n",
    "a cell too many": b"concurrency,p99_ttft\n1,2,3\n",
    "nothing in flight": b"concurrency,p99_ttft,isl,osl\n0,2,1,1\n",
    "a cut second line": b'{"max_concurrency": 1}\n{"max_conc',
    "aliases": b"version: '0.2'\na: &x [1]\nb: *x\n",
    "deep lists": b"[" * 100_000,
    "deep lists and Infinity": b"[Infinity," + b"[" * 100_000,
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_what_cannot_be_used_is_refused_with_a_way_out(what: str) -> None:
    text = refusal(UNUSABLE[what])
    assert "\n  " in text
    assert_golden_row("messages", without_parser(text))


IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "a negative time": ({"p99_ttft_ms": -3.0}, "p99_ttft_ms"),
    "a time of years": ({"p99_ttft_ms": 1e13}, "p99_ttft_ms"),
    "half a request": ({"completed": 3.5}, "completed"),
    "no count": ({"completed": None}, "completed"),
    "too many in flight": ({"max_concurrency": 10**14}, "max_concurrency"),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_impossible_figures_are_refused(what: str) -> None:
    more, key = IMPOSSIBLE[what]
    with pytest.raises(ForeignFileError, match=key) as raised:
        assemble([said(vllm(**more))])
    assert raised.value.hint
    assert_golden_row("messages", str(raised.value))


@pytest.mark.parametrize("tokens", [4_194_305, 1e11])
def test_a_length_that_no_config_holds_is_refused(tokens: float) -> None:
    table = formats.read_results("t.csv", f"concurrency,p99_ttft,isl,osl\n8,0.1,16,{tokens:.0f}\n".encode())
    with pytest.raises(ForeignFileError, match="tokens is impossible"):
        assemble([table])


def test_a_named_format_overrides_the_detection() -> None:
    tree = vllm() | {"hw": "h", "framework": "f", "tput_per_gpu": 1.0, "conc": 8}
    assert "InferenceX" == said(tree).format
    read = formats.read_results("f.json", json.dumps(tree).encode(), "vllm")
    assert "vLLM bench serve" == read.format
    assert_golden_row("messages", refusal(json.dumps(vllm()).encode(), "inferencex"))


# --- put together


def test_lengths_that_no_file_says_must_be_said() -> None:
    table = formats.read_results("t.csv", b"concurrency,p99_ttft\n8,0.1\n")
    with pytest.raises(ForeignFileError, match="--shape 1024/256"):
        assemble([table])
    (point,) = assemble([table], shape=Shape.of(10, 20)).points
    assert "10/20" == point.shape.label


def test_a_deployment_is_called_as_its_file_calls_it_or_by_its_model() -> None:
    label, model = said(vllm(model_id="org/llama", label="y z/../w")), said(vllm(model_id="org/llama"))
    both = assemble([label, model])
    assert ["y-z-..-w", "org-llama"] == [d.name for d in both.deployments]
    with pytest.raises(UsageError, match=r"2 deployments: y-z-\.\.-w, org-llama"):
        assemble([label, model], deployment="mine")
    assert "mine" == assemble([label], deployment="mine").points[0].deployment


def test_a_deployment_of_inferencex_is_called_by_how_it_is_served() -> None:
    agg = json.loads((DATA / "inferencex-agg" / "agentic-c64.json").read_bytes())
    files = [said(agg | {"tp": tp, "framework": version}) for version, tp in (("0.16", 8), ("0.18", 8), ("0.18", 4))]
    assert ["b200-0.16-fp4-tp8-ep8", "b200-0.18-fp4-tp8-ep8", "b200-0.18-fp4-tp4-ep8"] == [
        d.name.removeprefix("DeepSeek-R1-0528-FP4-") for d in assemble(files).deployments
    ]


def test_names_that_come_to_the_same_are_one_deployment() -> None:
    both = assemble([said(vllm(label="a b")), said(vllm(label="A-b", max_concurrency=16))])
    assert ["a-b"] == [d.name for d in both.deployments]


def test_results_without_a_name_are_of_the_only_deployment_that_others_name() -> None:
    head = "concurrency,isl,osl,p99_ttft,deployment,gpus"
    one = formats.read_results("t.csv", f"{head}\n8,9,9,0.1,fp8,2\n4,9,9,0.1,,2".encode())
    assert [("fp8", 2)] == [(d.name, d.gpus) for d in assemble([one]).deployments]
    several = formats.read_results("t.csv", f"{head}\n8,9,9,0.1,fp8,2\n8,9,9,0.1,bf16,4\n4,9,9,0.1,,8".encode())
    with pytest.raises(UsageError, match="some name none") as raised:
        assemble([several])
    assert_golden_row("messages", str(raised.value))


def test_gpus_that_results_of_a_deployment_name_differently_are_not_known() -> None:
    rows = formats.read_results("t.csv", b"concurrency,isl,osl,p99_ttft,gpus\n8,9,9,0.1,1\n4,9,9,0.1,8")
    assert [None] == [d.gpus for d in assemble([rows]).deployments]


def test_a_files_words_for_its_model_are_kept() -> None:
    made = assemble([said(vllm(model_id="org/llama \U0001f999 é"))])
    assert "org/llama \U0001f999 é" == load_config(config_text(made), "config.yaml").deployments[0].model
