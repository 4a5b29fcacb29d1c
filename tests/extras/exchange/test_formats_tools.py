"""Files that five tools wrote of the same simulated engine: what each says, and what its requests
show."""

import json
import re
import statistics
from collections.abc import Sequence
from typing import Any

import pytest

from frontier.core.estimates import estimate as summarize
from frontier.core.model.points import Point
from frontier.core.model.trials import Record
from frontier.core.window.from_records import window_data
from frontier.extras.exchange import formats
from frontier.extras.exchange.assemble import assemble
from tests.kit.golden import assert_golden_row
from tests.kit.peer_files import DATA, found


def tree(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((DATA / "tools" / name).read_bytes())
    return read


def point(name: str) -> Point:
    (only,) = assemble(found(f"tools/{name}")).points
    return only


def values(name: str) -> dict[str, float]:
    return {metric: estimate.value for metric, estimate in point(name).metrics.items()}


def test_vllm() -> None:
    told, got = tree("vllm.json"), values("vllm.json")
    for ours, theirs in (("p99_ttft", "p99_ttft_ms"), ("mean_tpot", "mean_tpot_ms"), ("p90_e2e", "p90_e2el_ms")):
        assert told[theirs] / 1e3 == pytest.approx(got[ours])
    assert told["output_throughput"] == got["output_throughput"]
    assert (4, 120, "33/8") == (point("vllm.json").load, point("vllm.json").n, point("vllm.json").shape.label)


def test_aiperf_counted_other_tokens_than_the_server_and_is_flagged() -> None:
    told, got = tree("aiperf.json"), values("aiperf.json")
    assert told["time_to_first_token"]["p99"] / 1e3 == pytest.approx(got["p99_ttft"])
    assert told["request_latency"]["avg"] / 1e3 == pytest.approx(got["mean_e2e"])
    flag = next(f for f in point("aiperf.json").flags if f.name == "token_mismatch")
    assert ["17", "8"] == re.findall(r"\d+", flag.measured)
    assert_golden_row("flags", flag.measured)
    assert not point("aiperf.json").valid
    assert "32/17" == point("aiperf.json").shape.label
    (note,) = (note for note in point("aiperf.json").notes if "32/8" in note)
    assert "32/17" in note
    assert_golden_row("answers", note)


def test_guidellm_and_genai_bench() -> None:
    told = tree("genai-bench.json")["aggregated_metrics"]
    got = values("genai-bench.json")
    assert told["stats"]["ttft"]["p99"] == got["p99_ttft"]
    assert told["mean_output_throughput_tokens_per_s"] == got["output_throughput"]
    assert ["littles_law"] == [flag.name for flag in point("genai-bench.json").flags], "3.1 of 4 in flight: a warning"
    assert point("genai-bench.json").valid
    (trace,) = found("tools/guidellm.json")[0].results
    assert (4, len(trace.records)) == (trace.concurrency, 80)


def test_inference_perf_contradicts_itself_and_asked_for_no_rate() -> None:
    got = values("inference-perf.json")
    assert tree("inference-perf.json")["successes"]["latency"]["time_to_first_token"]["p99"] == got["p99_ttft"]
    assert {"identity"} == {f.name for f in point("inference-perf.json").flags if f.fatal}
    assert 4 == point("inference-perf.json").load


def test_metadata_beside_results_is_left_out() -> None:
    data = (DATA / "tools" / "genai-bench-metadata.json").read_bytes()
    metadata = formats.read_results("experiment_metadata.json", data)
    assert not metadata.results
    assert "holds no result" in metadata.notes[0]


def mean_latencies(records: Sequence[Record]) -> dict[str, float]:
    """Mean TTFT, TPOT and E2E of the requests that succeeded."""
    rows = [
        (r.first - r.sent, (r.last - r.first) / (r.completion_tokens - 1), r.last - r.sent)
        for r in records
        if r.first is not None and r.last is not None and r.completion_tokens and r.completion_tokens > 1
    ]
    return dict(zip(("ttft", "tpot", "e2e"), map(statistics.fmean, zip(*rows, strict=True)), strict=True))


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("vllm-detailed.json", {"ttft": "mean_ttft_ms", "tpot": "mean_tpot_ms", "e2e": "mean_e2el_ms"}),
        ("guidellm.json", {"ttft": "time_to_first_token_ms", "tpot": "inter_token_latency_ms"}),
        ("aiperf.jsonl", {"ttft": "time_to_first_token", "e2e": "request_latency"}),
    ],
)
def test_requests_sum_up_to_what_the_tool_says(name: str, means: dict[str, str]) -> None:
    (trace,) = found(f"tools/{name}")[0].results
    figures = mean_latencies(trace.records)
    if name == "guidellm.json":
        metrics = tree(name)["benchmarks"][0]["metrics"]
        told = {ours: metrics[theirs]["successful"]["mean"] for ours, theirs in means.items()}
    else:
        summary = tree("vllm.json" if name.startswith("vllm") else "aiperf.json")
        told = {
            ours: summary[theirs] if name.startswith("vllm") else summary[theirs]["avg"]
            for ours, theirs in means.items()
        }
    for ours, milliseconds in told.items():
        assert milliseconds / 1e3 == pytest.approx(figures[ours], rel=1e-3)


@pytest.mark.parametrize("name", ["vllm-detailed.json", "guidellm.json", "aiperf.jsonl"])
def test_requests_become_a_trial_in_which_the_engines_step_shows(name: str) -> None:
    ((measurement, records),) = assemble(found(f"tools/{name}")).trials
    sample = window_data(measurement, records)
    step = summarize.estimate(sample, "p50_tpot")
    assert step is not None
    assert 0.006 == pytest.approx(step.value, rel=0.05)
    assert step.n > 60
    flags = {flag.name for flag in summarize.point(sample).flags}
    assert not flags & {"buffered_stream", "token_mismatch", "wrong_input_length", "short_output"}
