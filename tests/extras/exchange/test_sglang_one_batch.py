"""SGLang's bench_one_batch_server, after its writer."""

import json
from typing import Any

import pytest

from frontier.core.model.points import Point
from frontier.extras.exchange import formats
from frontier.extras.exchange.assemble import assemble
from frontier.store.documents import ForeignFileError


def points(*batches: Any) -> tuple[Point, ...]:
    text = "".join(json.dumps(batch) + "\n" for batch in batches)
    return assemble([formats.read_results("b.jsonl", text.encode())]).points


def batch(size: int, **more: Any) -> dict[str, Any]:
    """The newest file, whose output_throughput leaves the prefill out."""
    return {
        "run_name": "default",
        "batch_size": size,
        "input_len": 256,
        "output_len": 128,
        "latency": 2.0,
        "output_throughput": 128 * size / 1.873,
        "last_ttft": 0.127,
        "acc_length": -1,
        **more,
    }


def test_a_batch_is_a_concurrency_at_its_whole_latency() -> None:
    one, sixteen = points(batch(1), batch(16))
    assert (1, 16, "256/128") == (one.load, sixteen.load, sixteen.shape.label)
    said = {"output_throughput": 1024.0, "request_throughput": 8.0, "mean_e2e": 2.0, "p99_ttft": 0.127}
    assert said == pytest.approx({name: sixteen.value(name) for name in said})
    assert pytest.approx(1.873 / 127) == sixteen.value("mean_tpot")


def test_a_line_without_its_latency_is_named() -> None:
    with pytest.raises(ForeignFileError, match=r"line 2: .*latency is missing"):
        points(batch(1), batch(4, latency=None))
