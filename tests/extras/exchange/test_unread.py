"""Units and names of other builds of a tool: read, refused or said, and never lost in silence."""

from typing import Any

import pytest

from frontier.core.model.points import Point
from frontier.extras.exchange.assemble import Assembled, assemble
from frontier.store.documents import ForeignFileError
from tests.kit.peer_files import aiperf, said, vllm

UNITS = {"_ms": 1e3, "_s": 1.0, "_us": 1e6, "_seconds": 1.0, "": 1.0}
LATENCIES = ("ttft", "tpot", "itl", "e2el")


def assembled(tree: Any) -> Assembled:
    return assemble([said(tree)])


def only(tree: Any) -> Point:
    (point,) = assembled(tree).points
    return point


def in_unit(suffix: str) -> dict[str, Any]:
    """vLLM's result with its latencies in another unit."""
    factor, plain = UNITS[suffix] / 1e3, vllm()
    return {
        f"{name.removesuffix('_ms')}{suffix}" if name.endswith("_ms") else name: (
            value * factor if name.endswith("_ms") else value
        )
        for name, value in plain.items()
    }


def stage(suffix: str) -> dict[str, Any]:
    """A stage of inference-perf with its latencies in the unit of a suffix."""
    latency = {
        name: {"mean": value * UNITS[suffix]}
        for name, value in (("request_latency", 1.3), ("time_to_first_token", 0.1))
    }
    named = {f"{name}{suffix}": values for name, values in latency.items()}
    throughput = {"output_tokens_per_sec": 640.0, "requests_per_sec": 10.0}
    lengths = {"prompt_len": {"mean": 256}, "output_len": {"mean": 64}}
    return {
        "load_summary": {"count": 200, "concurrency": 13},
        "successes": {"count": 200, "latency": named, "throughput": throughput, **lengths},
        "failures": {"count": 0},
    }


@pytest.mark.parametrize("suffix", UNITS)
def test_the_unit_behind_a_name_counts(suffix: str) -> None:
    plain, other = only(vllm()), only(in_unit(suffix))
    assert {name: pytest.approx(figure.value) for name, figure in plain.metrics.items()} == {
        name: figure.value for name, figure in other.metrics.items()
    }
    found = only(stage(suffix)).metrics
    assert (pytest.approx(0.1), pytest.approx(1.3)) == (found["mean_ttft"].value, found["mean_e2e"].value)


@pytest.mark.parametrize(("unit", "factor"), [("requests/min", 60.0), ("req/s", 1.0), ("", 1.0)])
def test_the_unit_beside_a_rate_counts(unit: str, factor: float) -> None:
    tree = aiperf()
    rate = tree["request_throughput"]["avg"]
    tree["request_throughput"] = {"unit": unit, "avg": rate * factor}
    assert pytest.approx(rate) == only(tree).metrics["request_throughput"].value


@pytest.mark.parametrize("text", ["100 ms", "1,283.5", "12,5"])
def test_a_text_that_begins_with_a_number_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ForeignFileError) as raised:
        said(vllm() | {"mean_ttft_ms": text})
    assert f"mean_ttft_ms is '{text}'" in str(raised.value)


def test_latencies_under_unknown_names_are_said() -> None:
    tree = {name: value for name, value in vllm().items() if not name.endswith("_ms")}
    read = said(tree | {"ttft": {"mean": 90.0}, "p99_e2el_ticks": 9.0})
    assert [True, True] == [any(name in note for note in read.notes) for name in ("ttft.mean", "p99_e2el_ticks")]
    assert any("no latency" in note for note in assemble([read]).notes)
    assert not any("not read" in note for note in said(vllm()).notes)
