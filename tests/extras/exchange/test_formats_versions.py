"""Files of the versions of a tool, and figures that contradict their load: what is read, and what
is refused.

The files are built after public ones; each test names the report.
"""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from frontier.core.model.loads import Rate
from frontier.core.model.points import Point
from frontier.extras.exchange import formats
from frontier.extras.exchange.assemble import assemble
from frontier.extras.exchange.results import ImportedFile
from frontier.store.documents import ForeignFileError
from frontier.store.records import decode_imported, encode_imported
from tests.kit.peer_files import aiperf, guidellm, said, vllm


def points(*found: ImportedFile) -> tuple[Point, ...]:
    return assemble(found).points


def only(tree: Any) -> Point:
    (found,) = points(said(tree))
    return found


def before_0_4(**more: Any) -> dict[str, Any]:
    """A benchmark of GuideLLM 0.2 and 0.3 (huggingface/optimum-neuron#854)."""
    new = guidellm()["benchmarks"][0]
    totals = new["metrics"].pop("request_totals")
    spread = {name: {"successful": each["successful"] | {"count": 200}} for name, each in new["metrics"].items()}
    return {
        "args": {"strategy": {"type_": "concurrent", "streams": 16}},
        "worker": {"backend_model": "org/m"},
        "metrics": spread,
        "request_totals": totals,
        "duration": 10.0,
    } | more


def test_guidellm_before_0_4_has_its_counts_strategy_and_model() -> None:
    found = only({"benchmarks": [before_0_4()]})
    assert (16, 200, "org-m") == (found.load, found.n, found.deployment)
    assert 160 == found.metrics["output_throughput"].value


@pytest.mark.parametrize("totals", [{}, {"successful": 0, "errored": 0}])
def test_no_requests_beside_their_latencies_are_refused(totals: dict[str, int]) -> None:
    with pytest.raises(ForeignFileError, match="200"):
        said({"benchmarks": [before_0_4(request_totals=totals)]})


def test_requests_under_way_at_the_end_were_sent_at_their_rate() -> None:
    """vllm-project/guidellm#707: 60 s at a rate; those of the last seconds are incomplete."""
    item = guidellm(config={"strategy": {"type_": "constant", "rate": 22.0}})
    item["benchmarks"][0]["metrics"]["request_totals"] = {"successful": 200, "errored": 0, "incomplete": 20}
    found = only(item)
    assert Rate.of(22) == found.load
    assert "under_rate" not in {flag.name for flag in found.flags}


LOADGEN = {"endpoint": {"model_names": ["org/m"]}, "loadgen": {"concurrency": 4, "request_count": 64}}
GENAI_PERF = {"model": ["org/m"], "perf_analyzer": {"stimulus": {"concurrency": 4}}}


@pytest.mark.parametrize("config", [LOADGEN, GENAI_PERF, {"model": ["org/m"], "concurrency": 4}])
def test_aiperf_before_0_9_and_genai_perf_state_their_concurrency(config: dict[str, Any]) -> None:
    """ai-dynamo/aiperf#340, aws-samples/aws-do-eks#89."""
    lengths = {"input_sequence_length": {"unit": "tokens", "avg": 200.0}}
    tree = aiperf(input_config=config, **lengths, request_throughput={"unit": "requests/sec", "avg": 9.4})
    del tree["aiperf_version"]
    found = only(tree)
    assert (4, "org-m") == (found.load, found.deployment)
    assert "error_rate" not in found.metrics, "the file does not say that none failed"


def test_the_load_of_a_warm_up_is_not_that_of_the_run() -> None:
    phases = [
        {"name": "warmup", "exclude_from_results": True, "concurrency": 1},
        {"name": "profiling", "type": "concurrency", "concurrency": 4},
    ]
    lengths = {"input_sequence_length": {"unit": "tokens", "avg": 200.0}}
    assert 4 == only(aiperf(input_config={"phases": phases}, **lengths)).load


def test_a_cap_that_a_rate_does_not_reach_is_no_concurrency() -> None:
    lengths = {"input_sequence_length": {"unit": "tokens", "avg": 200.0}}
    phases = [{"name": "profiling", "type": "poisson", "rate": 9.5, "concurrency": 64}]
    assert Rate.of(9.5) == only(aiperf(input_config={"phases": phases}, **lengths)).load


def test_a_ramp_of_rates_is_no_burst_and_excluded() -> None:
    found = only(vllm(max_concurrency=None, ramp_up_strategy="linear", ramp_up_start_rps=1, ramp_up_end_rps=20))
    assert {"under_rate"} <= {flag.name for flag in found.fatal}
    assert not any("at once" in note for note in found.notes)


def test_the_data_set_of_sglang_tells_whether_its_lengths_were_asked_for() -> None:
    lengths = {"random_input_len": 1024, "random_output_len": 64, "random_range_ratio": 1.0}
    asked = [only(vllm(dataset_name=name, **lengths)).shape.label for name in ("random", "sharegpt")]
    assert asked[0].startswith("1024/")
    assert not asked[1].startswith("1024/")


def test_sglang_says_what_its_server_is() -> None:
    info = {"tp_size": 4, "dp_size": 4, "enable_dp_attention": True, "model_path": "org/m"}
    tree = {key: value for key, value in vllm(server_info=info).items() if key != "model_id"}
    (deployment,) = assemble([said(tree)]).deployments
    assert ("org/m", 4) == (deployment.model, deployment.gpus)


def test_a_file_that_states_no_flags_is_of_the_only_deployment_of_its_model() -> None:
    with_flags = vllm(model_id="org/m", backend="openai-chat")
    guide = guidellm()
    guide["args"] = {"model": "org/m"}
    assert 1 == len(assemble([said(with_flags), said(guide)]).deployments)


def test_results_that_stand_one_after_the_other_are_all_read() -> None:
    text = "\n".join(json.dumps(vllm(max_concurrency=c), indent=1) for c in (6, 8))
    assert [6, 8] == [point.load for point in points(formats.read_results("a.json", text.encode()))]


EVALSCOPE = {
    "Concurrency": 16,
    "Request Rate (req/s)": -1.0,
    "Success Requests": 640,
    "Failed Requests": 0,
    "Req Throughput (req/s)": 10.0,
    "Output Throughput (tok/s)": 1280.0,
    "Total Throughput (tok/s)": 3840.0,
    "Avg Latency (s)": 1.6,
    "TTFT (ms)": 72.0,
    "TPOT (ms)": 12.0,
    "Avg Input Tokens": 256.0,
    "Avg Output Tokens": 128.0,
}
"""modelscope/evalscope, evalscope/perf/utils/perf_constants.py."""


def test_evalscope_has_its_percentiles_in_a_file_of_their_own(tmp_path: Path) -> None:
    rows = [{"Percentiles": f"{rank}%", "TTFT (ms)": 2.0 * rank, "Latency (s)": 0.02 * rank} for rank in (50, 99)]
    (tmp_path / "benchmark_summary.json").write_text(json.dumps(EVALSCOPE))
    (tmp_path / "benchmark_percentile.json").write_text(json.dumps(rows))
    (found,) = formats.read_files([tmp_path]).assembled.points
    true = {"mean_ttft": 0.072, "p99_ttft": 0.198, "p50_e2e": 1.0, "mean_tpot": 0.012, "output_throughput": 1280.0}
    assert true == pytest.approx({name: found.metrics[name].value for name in true})
    assert (16, 640, "256/128", ()) == (found.load, found.n, found.shape.label, found.flags)


def test_requests_without_start_times_are_said_to_prove_nothing() -> None:
    found = only(vllm(ttfts=[0.1] * 9, itls=[[0.1]] * 9, input_lens=[9] * 9, output_lens=[2] * 9))
    assert any("start times" in note for note in found.notes)


def test_the_failures_of_aiperf_are_those_of_its_summary() -> None:
    assert 64 / 128 == only(aiperf(error_summary=[{"count": 60}, {"count": 4}])).metrics["error_rate"].value


def test_vllm_before_0_6_4_has_no_cap() -> None:
    tree = {key: value for key, value in vllm(request_rate=10.0).items() if key != "max_concurrency"}
    assert Rate.of(10) == only(tree).load


def test_sglang_0_4_leaves_its_request_throughput_to_be_reckoned() -> None:
    tree = vllm(request_rate=10.0, max_concurrency=None)
    del tree["request_throughput"]
    found = only(tree)
    assert (Rate.of(10), 10.0) == (found.load, found.metrics["request_throughput"].value)


@pytest.mark.parametrize(
    ("n", "e2e", "late", "flagged"),
    [
        (200, 7.2, 7.2, {"identity"}),
        (2000, 7.2, 7.2, {"identity"}),
        (200, 1.0, 7.2, {"identity"}),  # as slow by chance: 200 arrivals of a Poisson process
        (2000, 1.0, 100.0, {"identity", "under_rate"}),
        (2000, 100.0, 150.0, {"identity"}),  # the queue may have grown, up to twice the mean
        (2000, 40.0, 130.0, {"identity", "overloaded"}),
    ],
)
def test_the_drain_at_the_end_is_no_load_that_was_not_made(n: int, e2e: float, late: float, flagged: set[str]) -> None:
    """vllm-project/vllm#47651: all sent in time; the time ends with the last answer."""
    seconds = n / 4 + late
    more = {"num_prompts": n, "completed": n, "duration": seconds, "request_throughput": n / seconds}
    tokens = {"total_input_tokens": 128 * n, "total_output_tokens": 64 * n, "output_throughput": 64 * n / seconds}
    tree = vllm(request_rate=4.0, max_concurrency=None, **more, **tokens) | {"mean_e2el_ms": 1e3 * e2e}
    point = only(tree)
    assert flagged == {flag.name for flag in point.flags}
    assert not {"overloaded"} & {flag.name for flag in point.fatal}


def test_rates_are_settings_of_their_own() -> None:
    """0.8 and 1.0 requests/s, each with about one in flight (ai-dynamo/aiperf#874)."""
    found = points(
        *(said(vllm(request_rate=r, max_concurrency=None, request_throughput=r), f"{r}.json") for r in (8.0, 10.0))
    )
    assert [Rate.of(8), Rate.of(10)] == [point.load for point in found]
    again = decode_imported(encode_imported(found[0]))
    assert (found[0].load, found[0].shape) == (again.load, again.shape)
    assert isinstance(again.load, Rate)


# --- the load held against the other figures


def test_a_cap_that_was_never_reached_is_not_the_concurrency() -> None:
    """sgl-project/sglang#5735: the cap stays 2,048, the prompts vary."""
    found = only(vllm(max_concurrency=2048, num_prompts=64, completed=64))
    assert 64 == found.load
    assert any("2,048" in note for note in found.notes)


def test_a_count_below_what_was_in_flight_is_of_a_window() -> None:
    assert 64 == in_flight(32.0, 2.0, n=36).load


def in_flight(rate: float, seconds: float, c: int = 64, n: int = 640) -> Point:
    more = {"request_throughput": rate, "output_throughput": 64 * rate, "total_token_throughput": 192 * rate}
    counts = {"num_prompts": n, "completed": n, "total_input_tokens": 128 * n, "total_output_tokens": 64 * n}
    times = {"mean_ttft_ms": 100.0, "mean_tpot_ms": (1e3 * seconds - 100) / 63, "mean_e2el_ms": 1e3 * seconds}
    tree = {key: value for key, value in vllm().items() if not key.endswith("_ms")}
    return only(tree | more | counts | times | {"max_concurrency": c})


@pytest.mark.parametrize(("share", "fatal"), [(1.0, None), (0.93, None), (0.85, False), (0.5, True), (1.5, True)])
def test_a_mean_in_flight_that_is_not_the_concurrency_is_said(share: float, fatal: bool | None) -> None:
    """sgl-project/sgl-cookbook#16: as many prompts as the cap; half of the time is drain."""
    flags = [flag.fatal for flag in in_flight(64 * share / 2.0, 2.0).flags if flag.name == "littles_law"]
    assert ([] if fatal is None else [fatal]) == flags


def test_a_wave_without_e2e_is_excluded_too() -> None:
    tree = {k: v for k, v in vllm(max_concurrency=64, num_prompts=64, completed=64).items() if not k.endswith("_ms")}
    assert not only(tree | {"p99_ttft_ms": 100.0}).valid


def table(head: str, *rows: str) -> ImportedFile:
    return formats.read_results("t.csv", "\n".join([head, *rows]).encode())


@pytest.mark.parametrize(
    ("head", "row"),
    [
        ("p50_ttft_ms,p99_ttft_ms", "90,80"),
        ("request_throughput,output_throughput", "1,90000"),
        ("output_throughput,total_throughput", "900,400"),
        ("mean_ttft_ms,p99_ttft_ms", "400,80"),
    ],
)
def test_figures_that_rule_each_other_out_are_excluded(head: str, row: str) -> None:
    (found,) = points(table(f"concurrency,isl,osl,n,{head}", f"8,256,128,800,{row}"))
    assert ["identity"] == [flag.name for flag in found.fatal]


def test_answers_of_all_lengths_keep_the_law_of_their_tokens() -> None:
    """vllm-project/vllm#18566: mean TPOT weighs each request, mean ITL each token."""
    tree = vllm(mean_ttft_ms=100.0, mean_tpot_ms=15.0, mean_itl_ms=10.0, mean_e2el_ms=100.0 + 63 * 10)
    assert "identity" not in {flag.name for flag in only(tree).flags}
    assert "identity" in {flag.name for flag in only(tree | {"mean_itl_ms": 20.0}).flags}


@pytest.mark.parametrize(("failed", "valid"), [(1, True), (5, False)])
def test_failures_exclude_an_aggregate_as_they_do_requests(failed: int, valid: bool) -> None:
    ok = 400 - failed
    tokens = {"total_input_tokens": 128 * ok, "total_output_tokens": 64 * ok}
    assert valid == only(vllm(num_prompts=400, completed=ok, failed=failed, **tokens)).valid


# --- sweeps of flags


def test_what_differs_between_results_of_one_model_names_the_deployments() -> None:
    """vllm-project/vllm#27085: a sweep of server flags; its summary has each result again."""
    runs = [vllm(max_concurrency=8, tensor_parallel_size=tp, output_throughput=640.0 + tp) for tp in (1, 2)]
    made = assemble([*(said(run, f"{i}/run=0.json") for i, run in enumerate(runs)), said(runs, "summary.json")])
    assert {"org-m-tp1": 1, "org-m-tp2": 2} == {d.name: d.gpus for d in made.deployments}
    assert [1, 1] == [found.repeats for found in made.points]


def test_vllms_summary_as_a_table_is_read_as_its_json() -> None:
    tree = vllm()
    text = ",".join(tree) + "\n" + ",".join("" if value is None else str(value) for value in tree.values())
    (found,) = points(formats.read_results("summary.csv", text.encode()))
    assert {k: e.value for k, e in only(tree).metrics.items()} == {k: e.value for k, e in found.metrics.items()}


def test_a_setting_of_which_every_request_failed_stands_beside_the_others() -> None:
    none = {"total_input_tokens": 0, "total_output_tokens": 0, "request_throughput": 0.0, "output_throughput": 0.0}
    failed = vllm(max_concurrency=16, completed=0, failed=100, **none)
    found = points(said(failed, "a.json"), said(vllm(max_concurrency=8), "b.json"))
    assert [(8, True), (16, False)] == [(point.load, point.valid) for point in found]
    assert 1.0 == found[1].metrics["error_rate"].value
    assert found[0].shape == found[1].shape


GUIDELLM_HEADS = (
    ("Run Info", "Profile", ""),
    ("Run Info", "Backend", ""),
    ("Benchmark", "Strategy", ""),
    ("Timings", "Duration", "Sec"),
    *(("Request Counts", name, "") for name in ("Successful", "Incomplete", "Errored")),
    *(("Request Latency", "Successful Sec", name) for name in ("Mean", "Median", "Percentiles")),
    *(("Time to First Token", "Successful ms", name) for name in ("Mean", "Median", "Percentiles")),
    ("Inter Token Latency", "Successful ms", "Mean"),
    ("Token Metrics", "Successful Input Tokens", "Mean"),
    ("Token Metrics", "Successful Output Tokens", "Mean"),
)


def listed(*values: float) -> str:
    """GuideLLM's cell of percentiles: min, 0.1, 1, 5, 10, 25, 75, 90, 95, 99, max."""
    return str([values[0]] * 6 + [*values, 9.9])


def test_the_table_of_guidellm_has_three_rows_of_heads(tmp_path: Path) -> None:
    """vllm-project/guidellm#434."""
    profile, backend = json.dumps({"streams": [4, 16]}), json.dumps({"model": "m-8b"})
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerows(list(part) for part in zip(*GUIDELLM_HEADS, strict=True))
    for e2e, n in ((2.0, 120), (4.0, 240)):
        latencies = [e2e, e2e, listed(e2e, e2e, e2e, 1.5 * e2e), 90, 80, listed(70, 100, 110, 150)]
        writer.writerow([profile, backend, "concurrent", 60.0, n, 4, 0, *latencies, (e2e * 1e3 - 90) / 127, 256, 128])
    (tmp_path / "benchmarks.csv").write_text(out.getvalue())
    found = formats.read_files([tmp_path]).assembled
    assert [(4, 120), (16, 240)] == [(point.load, point.n) for point in found.points]
    point = found.points[0]
    assert (0.08, 0.15, 256.0) == pytest.approx([point.value(n) for n in ("p50_ttft", "p99_ttft", "output_throughput")])
    assert ("m-8b", "256/128") == (found.deployments[0].model, point.shape.label)
    assert point.valid


def test_the_table_of_aiperf_has_a_metric_a_row_and_gives_way_to_its_json(tmp_path: Path) -> None:
    text = (
        "Metric,avg,min,max,p50,p99,std\n"
        "Time to First Token (ms),72.0,40,300,68,216,20\n"
        "Inter Token Latency (ms),12.0,8,18,11.4,16.8,1\n\n"
        "Metric,Value\n"
        'Output Token Throughput (tokens/sec),"1,283.1"\n'
        "Request Throughput (requests/sec),10.02\n"
    )
    (tmp_path / "profile_export_aiperf.csv").write_text(text)
    (point,) = formats.read_files([tmp_path], shape="256/128").assembled.points
    assert (16, 0.216, 1283.1) == (point.load, point.value("p99_ttft"), point.value("output_throughput"))
    (tmp_path / "profile_export_aiperf.json").write_text(json.dumps(aiperf()))
    (point,) = formats.read_files([tmp_path]).assembled.points
    assert 1283.1 != point.value("output_throughput")


def test_an_aggregate_over_runs_has_its_metrics_by_their_statistic() -> None:
    """ai-dynamo/aiperf#761: request_latency_p99 is the mean of the runs' p99."""
    flat = {
        f"{name}_{statistic}": {"mean": value, "std": 1.0, "ci_low": 1.0, "ci_high": 9.0, "unit": unit}
        for name, unit, statistics in (
            ("request_throughput", "requests/sec", {"avg": 10.0}),
            ("request_count", "requests", {"avg": 640.0}),
            ("output_token_throughput", "tokens/sec", {"avg": 1280.0}),
            ("time_to_first_token", "ms", {"avg": 72.0, "p99": 216.0}),
        )
        for statistic, value in statistics.items()
    }
    varied = {"isl": 400, "osl": 128, "concurrency": 16}
    cell = {"metadata": {"aggregation_type": "confidence", "variation_values": varied}, "metrics": flat}
    sweep = {"aggregation_type": "sweep", "per_combination_metrics": [{"parameters": varied, "metrics": flat}]}
    for tree in (cell, sweep):
        point = only(tree)
        assert (16, "400/128", 640) == (point.load, point.shape.label, point.n)
        assert (0.216, 1280.0) == (point.value("p99_ttft"), point.value("output_throughput"))


def test_rates_of_a_constant_strategy_are_no_poisson_process() -> None:
    even = only(vllm(request_rate=10.0, max_concurrency=None, burstiness=4.0)).shape.arrivals
    assert "Poisson" not in str(even)
    assert "Poisson" == str(only(vllm(request_rate=10.0, max_concurrency=None)).shape.arrivals)


def test_rows_of_units_and_of_sums_are_no_settings() -> None:
    text = "conc,ISL,OSL,n,tput,p99 ttft\n,tokens,tokens,#,tok/s,ms\n16,256,128,640,1283,216\nmean,,,,1100,250\n"
    file = formats.read_results("t.csv", text.encode())
    (point,) = assemble([file]).points
    assert (16, 0.216) == (point.load, point.value("p99_ttft"))
    assert any("line 4" in note for note in file.notes)


PRINTED = """INFO 11-28 12:00:00 bench
============ Serving Benchmark Result ============
Successful requests:                     640
Maximum request concurrency:             16
Benchmark duration (s):                  63.84
Total input tokens:                      163840
Total generated tokens:                  81920
Request throughput (req/s):              10.02
Output token throughput (tok/s):         1283.15
---------------Time to First Token----------------
Mean TTFT (ms):                          72.00
Median TTFT (ms):                        68.40
P99 TTFT (ms):                           216.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          12.00
==================================================
"""


@pytest.mark.parametrize("with_load", [True, False])
def test_what_bench_serve_prints_is_read_block_by_block(with_load: bool) -> None:
    text = PRINTED if with_load else PRINTED.replace("Maximum request concurrency:             16\n", "")
    slower = text.replace(
        "P99 TTFT (ms):                           216", "P99 TTFT (ms):                           220"
    )
    (point,) = points(formats.read_results("night.log", (text + slower).encode()))
    assert (16, 2, 1280) == (point.load, point.repeats, point.n)
    assert (0.218, 1283.15) == (point.value("p99_ttft"), point.value("output_throughput"))


def test_flags_of_llm_optimizer_tell_its_runs_apart() -> None:
    runs = [
        {"config": {"server_args": {"tensor_parallel_size": tp}}, "results": vllm(output_throughput=640.0 + tp)}
        for tp in (1, 2)
    ]
    found = assemble([said({"metadata": {}, "test_results": runs})])
    assert [("org-m-tp1", 1), ("org-m-tp2", 2)] == [(d.name, d.gpus) for d in found.deployments]


WRITTEN = (
    (
        "Concurrent Users\tInput Tokens\tOutput Tokens\tRequests\tFailures (%)\tOutput TPS\n"
        '16\t256\t128\t"1,000"\t0.5%\t1,283.2\n'
    ),
    "conc,isl,osl,GPUs,n,errors,Output tok/s/gpu\n16,256,128,4,1000,5,320.8\n",
    "conc,isl,osl,n,errors,Output (tok/s)\n16,256,128,1000,5,1283.2\nconc,isl,osl,n,errors,Output (tok/s)\n",
)


@pytest.mark.parametrize("number", range(len(WRITTEN)))
def test_tables_as_people_write_them(number: int) -> None:
    text = WRITTEN[number]
    for data in (text.encode(), text.encode("utf-16"), text.encode("utf-16-le"), b"\xef\xbb\xbf" + text.encode()):
        (point,) = points(formats.read_results("t.csv", data))
        got = point.load, point.n, point.value("output_throughput"), point.value("error_rate")
        assert (16, 1000, 1283.2, 0.005) == pytest.approx(got)


def test_an_excel_file_is_named_as_one() -> None:
    with pytest.raises(ForeignFileError) as raised:
        formats.read_results("t.xlsx", b"PK\x03\x04junk")
    assert "CSV" in (raised.value.hint or "")
