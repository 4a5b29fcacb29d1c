"""SGLang's bench_multiturn, after its writer."""

import json
from typing import Any

import pytest

from frontier.core.model.loads import Rate
from frontier.extras.exchange import formats
from frontier.extras.exchange.assemble import assemble


def line(rate: int, **more: Any) -> str:
    summary = {
        "total_requests": 640,
        "request_rate": rate,
        "average_ttft": 0.21,
        "p90_ttft": 0.5,
        "median_ttft": 0.15,
        "average_latency": 2.1,
        "p90_latency": 3.0,
        "throughput": 0.98 * rate,
        **more,
    }
    return json.dumps({"timestamp": "x", "tag": "", "summary": summary}) + "\n"


def test_each_line_is_a_rate_over_all_turns() -> None:
    lengths = {"average_prompt_len": 2048.0, "average_output_len": 128.0, "output_token_throughput": 502.0}
    text = line(4, **lengths) + line(8, **lengths)
    points = assemble([formats.read_results("performance_metrics.jsonl", text.encode())]).points
    assert [Rate.of(4), Rate.of(8)] == [point.load for point in points]
    assert (0.15, 0.5, 2.1) == tuple(points[0].value(name) for name in ("p50_ttft", "p90_ttft", "mean_e2e"))
    assert "2048/128" == points[0].shape.label
    assert 640 == points[0].n
    assert 502.0 == pytest.approx(points[0].value("output_throughput"))
