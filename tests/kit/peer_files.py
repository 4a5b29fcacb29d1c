"""Files in the formats of other tools: real ones under tests/data, and small ones built after their
documented form."""

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Outcome, Record
from frontier.extras.exchange import formats
from frontier.extras.exchange.assemble import Assembled, assemble
from frontier.extras.exchange.results import ImportedFile
from tests.kit import places

DATA = places.DATA / "exchange"


def without_parser(text: str) -> str:
    """A message without the words of Python's JSON parser, which differ from version to version."""
    return re.sub(r"[A-Z][^:\n]*: line \d+ column \d+ \(char \d+\)", "...", text)


def found(*names: str) -> list[ImportedFile]:
    """What the real files under tests/data/exchange say."""
    read = [formats.read_results(str(path), path.read_bytes()) for name in names for path in sorted(DATA.glob(name))]
    assert read
    return read


def assembled(*names: str, shape: Shape | None = None) -> Assembled:
    """The same, put together."""
    return assemble(found(*names), shape=shape)


def said(tree: Any, name: str = "file.json") -> ImportedFile:
    """What a file with this JSON says."""
    return formats.read_results(name, json.dumps(tree).encode())


def vllm(**more: Any) -> dict[str, Any]:
    """A result of vllm bench serve."""
    return {
        "date": "20261120-131428",
        "endpoint_type": "openai",
        "backend": "openai",
        "label": None,
        "model_id": "org/m",
        "tokenizer_id": "org/m",
        "num_prompts": 100,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 8,
        "duration": 10.0,
        "completed": 100,
        "failed": 0,
        "total_input_tokens": 12800,
        "total_output_tokens": 6400,
        "request_throughput": 10.0,
        "request_goodput": None,
        "output_throughput": 640.0,
        "total_token_throughput": 1920.0,
        "mean_ttft_ms": 50.0,
        "median_ttft_ms": 48.0,
        "std_ttft_ms": 4.0,
        "p99_ttft_ms": 80.0,
        "mean_tpot_ms": 11.9,
        "median_tpot_ms": 11.8,
        "p99_tpot_ms": 14.0,
        "mean_itl_ms": 11.9,
        "median_itl_ms": 11.0,
        "p99_itl_ms": 30.0,
        "mean_e2el_ms": 799.7,
        "median_e2el_ms": 790.0,
        "p99_e2el_ms": 900.0,
    } | more


def _latencies(name: str, values: Sequence[float]) -> dict[str, float]:
    """The summary of these latencies, as vLLM writes it."""
    if not values:
        return {}
    return {
        f"mean_{name}_ms": float(np.mean(values)) * 1e3,
        f"median_{name}_ms": float(np.percentile(values, 50)) * 1e3,
        f"p99_{name}_ms": float(np.percentile(values, 99)) * 1e3,
    }


def vllm_detailed(records: Sequence[Record], concurrency: int, **more: Any) -> dict[str, Any]:
    """What vllm bench serve --save-detailed would have written of these requests."""
    ok = [r for r in records if r.outcome is Outcome.OK]
    seconds = max(r.end for r in records) - min(r.sent for r in records)
    output = sum(r.completion_tokens or 0 for r in ok)
    fine = [r.outcome is Outcome.OK for r in records]
    return (
        vllm(
            num_prompts=len(records),
            completed=len(ok),
            failed=len(records) - len(ok),
            max_concurrency=concurrency,
            duration=seconds,
            request_throughput=len(ok) / seconds,
            output_throughput=output / seconds,
            total_output_tokens=output,
            total_input_tokens=sum(r.prompt_tokens or 0 for r in ok),
            start_times=[1234.5 + r.sent for r in records],
            ttfts=[(r.first or r.sent) - r.sent if good else 0.0 for r, good in zip(records, fine, strict=True)],
            itls=[[g / 1e6 for g in r.gaps] if good else [] for r, good in zip(records, fine, strict=True)],
            **_latencies("ttft", [(r.first or r.sent) - r.sent for r in ok]),
            **_latencies("e2el", [(r.last or r.sent) - r.sent for r in ok]),
            input_lens=[r.prompt_tokens or 0 for r in records],
            output_lens=[(r.completion_tokens or 0) if good else 0 for r, good in zip(records, fine, strict=True)],
            errors=["" if good else "HTTP 500" for good in fine],
            generated_texts=["..."] * len(records),
        )
        | more
    )


def aiperf(**more: Any) -> dict[str, Any]:
    """A profile_export_aiperf.json."""
    ms = {"unit": "ms"}
    return {
        "schema_version": "1.4",
        "aiperf_version": "0.13.0",
        "benchmark_id": "db6d",
        "request_throughput": {"unit": "requests/sec", "avg": 10.0},
        "request_count": {"unit": "requests", "avg": 64.0},
        "time_to_first_token": ms | {"avg": 66.7, "p50": 65.5, "p90": 75.2, "p95": 76.1, "p99": 83.7, "count": 64},
        "inter_token_latency": ms | {"avg": 10.0, "p50": 9.9, "p99": 12.0, "count": 64},
        "inter_chunk_latency": ms | {"avg": 10.0, "p50": 9.0, "p99": 25.0},
        "request_latency": ms | {"avg": 376.7, "p50": 370.0, "p99": 450.0, "count": 64},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 320.0},
        "output_sequence_length": {"unit": "tokens", "avg": 32.0},
        "benchmark_duration": {"unit": "sec", "avg": 6.4},
        "input_config": {
            "models": {"items": [{"name": "org/m"}]},
            "endpoint": {"urls": ["http://h"], "streaming": True},
            "datasets": [{"type": "synthetic", "prompts": {"isl": {"mean": 200.0}, "osl": {"mean": 32.0}}}],
            "phases": [{"kind": "warmup", "concurrency": 1}, {"kind": "profiling", "concurrency": 4}],
        },
        "was_cancelled": False,
        "is_complete": True,
    } | more


def aiperf_lines(records: Sequence[Record]) -> bytes:
    """A profile_export.jsonl of these requests."""
    epoch = 1_795_000_000_000_000_000
    lines = []
    for r in records:
        start = epoch + round(r.sent * 1e9)
        good = r.outcome is Outcome.OK
        meta = {
            "request_start_ns": start,
            "request_end_ns": epoch + round(r.end * 1e9) if good else start,
            "benchmark_phase": "profiling",
            "was_cancelled": False,
        }
        metrics: dict[str, Any] = {}
        if good:
            assert r.first is not None
            assert r.last is not None
            metrics = {
                "time_to_first_token": {"value": (r.first - r.sent) * 1e3, "unit": "ms"},
                "request_latency": {"value": (r.last - r.sent) * 1e3, "unit": "ms"},
                "inter_chunk_latency": {"value": [g / 1e3 for g in r.gaps], "unit": "ms"},
                "input_sequence_length": {"value": r.prompt_tokens, "unit": "tokens"},
                "output_sequence_length": {"value": r.completion_tokens, "unit": "tokens"},
            }
        line = {"metadata": meta, "metrics": metrics}
        if not good:
            line["error"] = {"code": 503, "type": "Service Unavailable", "message": "busy"}
        lines.append(json.dumps(line))
    warm = {"metadata": {"request_start_ns": epoch - 10**9, "request_end_ns": epoch, "benchmark_phase": "warmup"}}
    return "\n".join([json.dumps(warm | {"metrics": {}}), *lines]).encode()


def guidellm(streams: int = 8, **more: Any) -> dict[str, Any]:
    """A benchmarks.json, schema v2, of one concurrent benchmark."""

    def spread(*values: float) -> dict[str, Any]:
        keys = ("p50", "p75", "p90", "p95", "p99", "p999")
        return {
            "successful": {"mean": values[0], "median": values[1], "percentiles": dict(zip(keys, values, strict=False))}
        }

    one = {
        "type_": "generative_benchmark",
        "config": {"strategy": {"type_": "concurrent", "streams": streams, "max_concurrency": streams}},
        "scheduler_state": {"successful_requests": 200, "errored_requests": 0},
        "scheduler_metrics": {"measure_start_time": 1786678148.0, "measure_end_time": 1786678158.0},
        "metrics": {
            "request_totals": {"successful": 200, "errored": 0, "incomplete": 0, "total": 200},
            "time_to_first_token_ms": spread(11.0, 11.3, 11.6, 11.7, 12.0, 13.0),
            "inter_token_latency_ms": spread(1.15, 1.15, 1.16, 1.17, 1.2, 1.3),
            "time_per_output_token_ms": spread(2.44, 2.44, 2.5, 2.5, 2.6, 2.7),
            "request_latency": spread(0.0190, 0.0190, 0.0195, 0.02, 0.021, 0.022),
            "prompt_token_count": spread(32.0, 32.0, 32.0, 32.0, 32.0, 32.0),
            "output_token_count": spread(8.0, 8.0, 8.0, 8.0, 8.0, 8.0),
        },
        "requests": {"successful": [], "errored": [], "incomplete": [], "total": None},
        "duration": 10.0,
    }
    return {
        "metadata": {"version": 2, "guidellm_version": "0.8.0"},
        "config": {
            "spec": {
                "backend": {"kind": "openai_http", "model": "org/m"},
                "data": [{"kind": "synthetic_text", "prompt_tokens": 32, "output_tokens": 8}],
            }
        },
        "benchmarks": [one | more],
    }


def guidellm_detailed(records: Sequence[Record], streams: int) -> dict[str, Any]:
    """A benchmarks.json with every request."""
    tree = guidellm(streams)
    one = tree["benchmarks"][0]
    epoch = 1.8e9
    items = []
    for r in records:
        assert r.first is not None
        assert r.last is not None
        items.append(
            {
                "request_start_time": epoch + r.sent,
                "request_end_time": epoch + r.end,
                "time_to_first_token_ms": (r.first - r.sent) * 1e3,
                "output_tokens": r.completion_tokens,
                "prompt_tokens": r.prompt_tokens,
                "info": {"timings": {"last_token_iteration": epoch + r.last, "token_iterations": r.events}},
            }
        )
    seconds = max(r.end for r in records) - min(r.sent for r in records)
    one["scheduler_state"] = {"successful_requests": len(items), "errored_requests": 0}
    one["metrics"] = {
        "time_to_first_token_ms": {
            "successful": {"mean": float(np.mean([i["time_to_first_token_ms"] for i in items]))}
        },
        "requests_per_second": {"successful": {"mean": len(items) / seconds}},
    }
    one["requests"] = {"successful": items, "errored": []}
    return tree


def genai_bench(**more: Any) -> dict[str, Any]:
    """One result of genai-bench."""

    def stats(mean: float) -> dict[str, float]:
        return {
            "min": mean,
            "max": mean,
            "mean": mean,
            "p25": mean,
            "p50": mean,
            "p75": mean,
            "p90": mean,
            "p95": 1.1 * mean,
            "p99": 1.2 * mean,
        }

    of = {
        "scenario": "D(100,100)",
        "num_concurrency": 4,
        "batch_size": 1,
        "run_duration": 10,
        "mean_output_throughput_tokens_per_s": 400.0,
        "mean_input_throughput_tokens_per_s": 400.0,
        "mean_total_tokens_throughput_tokens_per_s": 800.0,
        "requests_per_second": 4.0,
        "num_error_requests": 0,
        "num_completed_requests": 40,
        "num_requests": 40,
        "error_codes_frequency": {},
        "stats": {
            "ttft": stats(0.1),
            "tpot": stats(0.009),
            "e2e_latency": stats(0.991),
            "num_input_tokens": stats(100.0),
            "num_output_tokens": stats(100.0),
        },
    }
    return {"aggregated_metrics": of | more, "individual_request_metrics": [], "_time_unit": "s"}
