"""Folders, zips, columns that the user names, and the tools of which one file is read."""

import gzip
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from frontier.core.model.errors import UsageError
from frontier.core.model.loads import Rate
from frontier.extras.exchange import formats
from frontier.extras.exchange.assemble import assemble
from frontier.store.documents import ForeignFileError
from tests.kit.peer_files import aiperf, said, vllm

RUNS = [vllm(max_concurrency=c, output_throughput=640.0 + c + k) for c in (6, 8) for k in (0, 0.1, 0.2)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a sweep of vllm bench leaves: a folder per setting, runs and their summary."""
    for i, run in enumerate(RUNS):
        path = tmp_path / "sweep" / f"c{run['max_concurrency']}" / f"run={i % 3}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(run))
    (tmp_path / "sweep" / "summary.json").write_text(json.dumps(RUNS))
    (tmp_path / "sweep" / "serve.yaml").write_text("model: m\nport: 8000\n")
    (tmp_path / "sweep" / "other.json").write_text('{"a": 1}')
    return tmp_path / "sweep"


@pytest.mark.parametrize("packed", [None, "gz", "zip", "tar.gz"])
def test_a_folder_or_an_archive_stands_for_the_files_in_it(folder: Path, packed: str | None) -> None:
    """vllm-project/vllm#27085, ai-dynamo/aiperf#699."""
    named = folder if packed in (None, "gz") else folder.parent / f"sweep.{packed}"
    if packed == "gz":
        for path in [*folder.rglob("run*.json")]:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    if packed == "zip":
        with zipfile.ZipFile(named, "w") as archive:
            for path in folder.rglob("*.*"):
                archive.write(path, path.relative_to(folder))
    if packed == "tar.gz":
        with tarfile.open(named, "w:gz") as tar:
            tar.add(folder, arcname=".")
    read = formats.read_files([named])
    assert [(6, 3), (8, 3)] == [(point.load, point.repeats) for point in read.assembled.points]
    (left,) = (note for note in read.notes if note.startswith("left out"))
    assert all(name in left for name in ("other.json", "serve.yaml", "JSON object"))


def test_a_summary_beside_the_files_of_its_stages_is_left_out(tmp_path: Path) -> None:
    """Public files of inference-perf: the summary of all stages states no load."""
    for name, load in (("stage_0", {"requested_rate": 2.0, "achieved_rate": 2.0}), ("summary", {})):
        stage = {
            "load_summary": {"count": 100, **load},
            "successes": {
                "count": 100,
                "latency": {"request_latency": {"mean": 0.8}},
                "throughput": {"requests_per_sec": 2.0, "output_tokens_per_sec": 128.0},
                "prompt_len": {"mean": 256.0},
                "output_len": {"mean": 64.0},
            },
            "failures": {"count": 0},
        }
        (tmp_path / f"{name}_lifecycle_metrics.json").write_text(json.dumps(stage))
    formats.import_files([tmp_path], tmp_path / "run")
    (point,) = formats.read_files([tmp_path]).assembled.points
    assert Rate.of(2.0) == point.load
    alone = formats.read_files([tmp_path / "summary_lifecycle_metrics.json"]).assembled.points
    assert 2 == alone[0].load


def test_a_folder_of_nothing_and_a_broken_zip_are_refused(tmp_path: Path) -> None:
    for name, data in (("a.zip", b"PK\x03\x04"), ("b.tar.gz", b"\x1f\x8b12"), ("c.tar", b"x" * 600)):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "d.json.gz").write_bytes(gzip.compress(b"{}" * 999)[:-9])
    for path in (tmp_path, *tmp_path.glob("*.*")):
        with pytest.raises(ForeignFileError):
            formats.read_files([path])


def test_columns_are_what_the_user_says(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("load,isl,osl,first tok,out\n8,256,128,90,900\n")
    columns = "concurrency=load,p99_ttft=first tok:ms,output_throughput=out"
    (point,) = formats.read_files([tmp_path / "t.csv"], columns=columns).assembled.points
    assert 8 == point.load
    assert 0.09 == pytest.approx(point.metrics["p99_ttft"].value)
    for wrong in ("p99_ttft=nothing:ms", "what=out", "p99_ttft", "p99_ttft=first tok:km"):
        with pytest.raises(UsageError):
            formats.read_files([tmp_path / "t.csv"], columns=f"{wrong}")


def spread(mean: float, unit: str = "ms") -> dict[str, Any]:
    return {"unit": unit, "avg": mean, "mean": mean, "p50": mean, "p99": 2 * mean}


def test_the_aggregate_of_a_sweep_has_a_point_of_each_combination() -> None:
    """ai-dynamo/aiperf#874: where is the aggregate?"""
    metrics = {
        "request_throughput": spread(10.0, "requests/sec"),
        "time_to_first_token": spread(60.0),
        "request_latency": spread(400.0),
        "input_sequence_length": spread(200.0, "tokens"),
        "output_sequence_length": spread(32.0, "tokens"),
    }
    items = [{"parameters": {"phases.profiling.concurrency": c}, "metrics": metrics} for c in (4, 5)]
    tree = {"aggregation_type": "sweep", "per_combination_metrics": items}
    assert [4, 5] == [point.load for point in assemble([said(tree)]).points]


def test_the_aggregate_of_a_sweep_is_left_out_beside_its_runs(tmp_path: Path) -> None:
    tree = aiperf()
    sweep = {"per_combination_metrics": [{"parameters": {"concurrency": 4}, "metrics": tree}]}
    (tmp_path / "a.json").write_text(json.dumps(tree))
    (tmp_path / "b.json").write_text(json.dumps(sweep))
    (point,) = formats.read_files([tmp_path]).assembled.points
    assert 1 == point.repeats


EVALSCOPE = {
    "Number of concurrency": 16,
    "Request rate (req/s)": -1,
    "Total requests": 640,
    "Succeed requests": 640,
    "Failed requests": 0,
    "Output token throughput (tok/s)": 1280.0,
    "Request throughput (req/s)": 10.0,
    "Average latency (s)": 1.6,
    "Average time to first token (s)": 0.07,
    "Average input tokens per request": 256.0,
    "Average output tokens per request": 128.0,
}
TRTLLM = {
    "engine": {"model": "org/m"},
    "world_info": {"tp_size": 2, "pp_size": 1},
    "request_info": {
        "num_requests": 640,
        "avg_num_concurrent_requests": 15.8,
        "avg_input_length": 256.0,
        "avg_output_length": 128.0,
    },
    "performance": {
        "avg_request_latency_ms": 1600.0,
        "request_throughput_req_s": 10.0,
        "system_output_throughput_tok_s": 1280.0,
    },
    "streaming_metrics": {"avg_ttft_ms": 70.0, "ttft_percentiles": {"p50": 65.0, "p99": 216.0}},
}
LLM_D = {
    "version": "0.1",
    "scenario": {"model": {"name": "org/m"}, "load": {"name": "inference-perf", "args": {}}},
    "metrics": {
        "requests": {"total": 640, "failures": 0, "input_length": {"mean": 256}, "output_length": {"mean": 128}},
        "latency": {
            "time_to_first_token": {"units": "ms", "mean": 70.0, "p99": 216.0},
            "request_latency": {"units": "ms", "mean": 1600.0},
        },
        "throughput": {"output_tokens_per_sec": 1280.0, "requests_per_sec": 10.0},
    },
}


@pytest.mark.parametrize("tree", [EVALSCOPE, TRTLLM, LLM_D])
def test_one_file_of_a_tool_is_its_point(tree: dict[str, Any]) -> None:
    """modelscope/evalscope#1101; trtllm-bench's report; llm-d/llm-d-benchmark's example of 0.1."""
    (point,) = assemble([said(tree)]).points
    assert (16, 640, "256/128", True) == (point.load, point.n, point.shape.label, point.valid)
    got = {name: point.metrics[name].value for name in ("output_throughput", "mean_ttft", "mean_e2e")}
    assert {"output_throughput": 1280.0, "mean_ttft": 0.07, "mean_e2e": 1.6} == pytest.approx(got)


def test_an_unknown_file_names_the_format_that_it_is_like() -> None:
    with pytest.raises(ForeignFileError) as raised:
        said({"num_prompts": 8, "request_throughput": 1.0, "date": "x"})
    assert "vllm" in str(raised.value)
    assert "completed" in str(raised.value)
