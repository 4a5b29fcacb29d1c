"""Our own records, written as six tools write theirs and read back, give the native verdict, or the
same with a wider bound and its reason."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontier.core.claim.verdict import judge
from frontier.core.estimates import estimate
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.loads import POISSON, Arrivals, Concurrency, Rate
from frontier.core.model.points import Point
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Outcome, Phase, Record, Trial
from frontier.core.window.from_records import window_data
from frontier.extras.exchange import formats
from frontier.extras.exchange.assemble import Assembled, assemble
from frontier.extras.exchange.imported_requests import trial_of
from frontier.extras.exchange.results import ImportedFile, Result
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import virtual_trial
from tests.extras.exchange.test_imported_requests import N, requests
from tests.kit.peer_files import aiperf, aiperf_lines, guidellm_detailed, said, vllm, vllm_detailed

NAMES = ("p50_ttft", "p90_ttft", "p90_tpot", "p90_e2e", "output_throughput")
SHAPE = "128/32"
OF = Shape.parse(SHAPE)


def sglang(records: Sequence[Record]) -> ImportedFile:
    """With --output-details: every request, and not when it was sent."""
    tree = {key: value for key, value in vllm_detailed(records, N).items() if key not in HIDDEN and "_itl" not in key}
    for quantity in ("ttft", "tpot"):
        of = {"p90": percentile(records, quantity, 90), "p99": percentile(records, quantity, 99)}
        of |= {"mean": 1e3 * mean(records, quantity), "median": percentile(records, quantity, 50)}
        tree |= {f"{name}_{quantity}_ms": value for name, value in of.items()}
    return said(tree | {"accept_length": None})


def genai_bench(records: Sequence[Record]) -> ImportedFile:
    """Sums and percentiles in seconds over requests without times."""
    seconds = max(r.end for r in records) - min(r.sent for r in records)
    tokens = sum(r.completion_tokens or 0 for r in records)
    stats = {
        name: {f"p{p}": percentile(records, quantity, p) / 1e3 for p in (50, 90, 99)}
        | {"mean": mean(records, quantity)}
        for name, quantity in (("ttft", "ttft"), ("tpot", "tpot"), ("e2e_latency", "e2e"))
    }
    metrics = {
        "scenario": f"D({SHAPE.replace('/', ',')})",
        "num_concurrency": N,
        "mean_output_throughput_tokens_per_s": tokens / seconds,
        "requests_per_second": len(records) / seconds,
        "num_completed_requests": len(records),
        "num_error_requests": 0,
        "stats": stats,
    }
    return said({"aggregated_metrics": metrics, "individual_request_metrics": [], "_time_unit": "s"})


def table(records: Sequence[Record]) -> ImportedFile:
    """One row by hand, in milliseconds."""
    seconds = max(r.end for r in records) - min(r.sent for r in records)
    rate = sum(r.completion_tokens or 0 for r in records) / seconds
    heads = "conc,shape,requests,errors,tput (tok/s),TTFT p90 (ms),TPOT p90 (ms)"
    row = [N, SHAPE, len(records), 0, rate, percentile(records, "ttft", 90), percentile(records, "tpot", 90)]
    return formats.read_results("t.csv", f"{heads}\n{','.join(map(str, row))}\n".encode())


FORMATS = {
    "vllm": lambda records: said(vllm_detailed(records, N)),
    "aiperf": lambda records: formats.read_results("p.jsonl", aiperf_lines(records)),
    "guidellm": lambda records: said(guidellm_detailed(records, N)),
    "sglang": sglang,
    "genai-bench": genai_bench,
    "table": table,
}
HIDDEN = ("start_times", "failed", "num_prompts", "total_token_throughput")
WITH_TIMES = ("vllm", "aiperf", "guidellm")


def values_of(records: Sequence[Record], quantity: str) -> list[float]:
    """Milliseconds."""
    values = []
    for r in records:
        assert r.first is not None
        assert r.last is not None
        if (r.completion_tokens or 0) < 2:
            continue
        gap = (r.last - r.first) / ((r.completion_tokens or 0) - 1)
        values.append(1e3 * {"ttft": r.first - r.sent, "e2e": r.last - r.sent, "tpot": gap}[quantity])
    return values


def percentile(records: Sequence[Record], quantity: str, p: int) -> float:
    return float(np.percentile(values_of(records, quantity), p))


def mean(records: Sequence[Record], quantity: str) -> float:
    return float(np.mean(values_of(records, quantity))) / 1e3


def native() -> Point:
    """The point of the records as a sweep has them."""
    return estimate.point(
        window_data(*trial_of("d", OF, Concurrency(N), 1, Result(N, {}, 0, records=requests()))), names=NAMES
    )


def read_back(kind: str) -> Point:
    made = assemble([FORMATS[kind](requests())], shape=OF)
    if kind not in WITH_TIMES:
        (point,) = made.points
        return point
    (trial,) = made.trials
    return estimate.point(window_data(*trial), names=NAMES)


@pytest.mark.parametrize("kind", FORMATS)
def test_records_that_are_written_and_read_back_give_the_native_verdict(kind: str) -> None:
    ours, theirs = native(), read_back(kind)
    for name in ("p90_ttft", "p90_tpot"):
        estimated = ours.metrics[name]
        for at, verdict in ((1.1 * estimated.upper, Verdict.MEETS), (0.8 * estimated.lower, Verdict.VIOLATES)):
            limits = (Limit(name, at),)
            assert verdict is judge(ours, limits).verdict
            if kind in WITH_TIMES:
                assert verdict is judge(theirs, limits).verdict, (kind, name)
                assert estimated.value == pytest.approx(theirs.metrics[name].value, rel=5e-3)
            else:
                assert Verdict.UNPROVEN is judge(theirs, limits).verdict, "nothing is known of its interval"
                assert verdict is judge(theirs, limits, point_estimates=True).verdict, (kind, name)


RATE = Rate.of(60)


@cache
def arrivals() -> tuple[Record, ...]:
    """An open loop on the simulated engine, ramp and drain included."""
    spec = EngineSpec.from_mapping({"step_base": "5ms", "per_decode": "60us", "noise": "0.1"})
    shape = replace(OF, arrivals=POISSON)
    trial = Trial("d", shape, RATE, 1, Phase.GRID, 3000, 7, 2.0, 0.0, 600.0, "f")
    records, _ = virtual_trial(trial, spec)
    return tuple(sorted((r for r in records if r.outcome is Outcome.OK), key=lambda r: r.sent))


def at_a_rate(kind: str, folder: Path) -> Assembled:
    """What a tool writes of an open loop; AIPerf states the rate in the summary beside it."""
    if kind == "vllm":
        return assemble([said(vllm_detailed(arrivals(), 0, max_concurrency=None, request_rate=RATE.per_second))])
    if kind == "guidellm":
        tree = guidellm_detailed(arrivals(), 1)
        measured = {"measure_start_time": 1.8e9, "measure_end_time": 1.8e9 + max(r.end for r in arrivals())}
        strategy = {"type_": "poisson", "rate": RATE.per_second}
        tree["benchmarks"][0] |= {"config": {"strategy": strategy}, "scheduler_metrics": measured}
        return assemble([said(tree)], shape=OF)
    if kind == "inference-perf":
        (folder / "stage_0_lifecycle_metrics.json").write_text(json.dumps(stage(RATE.per_second)))
        (folder / "per_request_lifecycle_metrics.json").write_text(json.dumps(inference_perf_requests(arrivals())))
        return formats.read_files([folder]).assembled
    (folder / "profile_export.jsonl").write_bytes(aiperf_lines(arrivals()))
    phases = [{"name": "profiling", "type": "poisson", "rate": RATE.per_second}]
    summary = aiperf(input_config={"phases": phases}, request_throughput={"unit": "requests/sec", "avg": 59.5})
    (folder / "profile_export_aiperf.json").write_text(json.dumps(summary))
    return formats.read_files([folder], shape=SHAPE).assembled


def stage(rate: float) -> dict[str, Any]:
    """A stage of inference-perf."""
    latency = {"request_latency": {"mean": 0.2}, "time_to_first_token": {"mean": 0.01}}
    throughput = {"requests_per_sec": rate, "output_tokens_per_sec": 32.0 * rate}
    lengths = {"prompt_len": {"mean": 128.0}, "output_len": {"mean": 32.0}}
    return {
        "load_summary": {"count": 3000, "requested_rate": rate, "achieved_rate": rate},
        "successes": {"count": 3000, "latency": latency, "throughput": throughput, **lengths},
        "failures": {"count": 0},
    }


def inference_perf_requests(records: Sequence[Record]) -> list[dict[str, Any]]:
    """A per_request_lifecycle_metrics.json, on a clock of its own; a failed one is the last."""
    rows = []
    for r in records:
        assert r.first is not None
        stamps = [1234.5 + r.first, *(1234.5 + r.first + gap / 1e6 for gap in itertools.accumulate(r.gaps))]
        answer = {"output_tokens": r.completion_tokens, "server_usage": None, "output_token_times": stamps}
        info = {"request_metrics": {"text": {"input_tokens": r.prompt_tokens}}, "response_metrics": answer}
        rows.append(
            {"start_time": 1234.5 + r.sent, "end_time": 1234.5 + r.end, "request": "{}", "info": info, "error": None}
        )
    return rows


def test_requests_of_several_stages_are_left_out(tmp_path: Path) -> None:
    """They do not say which stage each is of."""
    for number, rate in enumerate((30.0, 60.0)):
        (tmp_path / f"stage_{number}_lifecycle_metrics.json").write_text(json.dumps(stage(rate)))
    rows = inference_perf_requests(arrivals())
    (tmp_path / "per_request_lifecycle_metrics.json").write_text(json.dumps(rows))
    read = formats.read_files([tmp_path])
    assert (2, 0) == (len(read.assembled.points), len(read.assembled.trials))
    assert any("2 results of stages" in note for note in read.notes)


@pytest.mark.parametrize("kind", [*WITH_TIMES, "inference-perf"])
def test_requests_of_an_open_loop_give_the_native_verdict_at_their_rate(kind: str, tmp_path: Path) -> None:
    made = at_a_rate(kind, tmp_path)
    (trial,) = made.trials
    assert (RATE, POISSON, RATE.per_second) == (
        trial[0].trial.load,
        trial[0].trial.shape.arrivals,
        trial[0].trial.load.per_second,
    )
    theirs = estimate.point(window_data(*trial), names=NAMES)
    shape = replace(OF, arrivals=POISSON)
    known = Result(1, {}, 0, records=arrivals(), rate=RATE.per_second)
    ours = estimate.point(window_data(*trial_of("d", shape, RATE, 1, known)), names=NAMES)
    for name in ("p90_ttft", "p90_tpot", "p90_e2e"):
        estimated = ours.metrics[name]
        assert (estimated.value, estimated.upper) == pytest.approx(
            (theirs.metrics[name].value, theirs.metrics[name].upper), rel=5e-3
        )
        assert Verdict.MEETS is judge(theirs, (Limit(name, 1.1 * estimated.upper),)).verdict
        assert Verdict.VIOLATES is judge(theirs, (Limit(name, 0.8 * estimated.lower),)).verdict


def test_requests_take_no_load_from_the_result_of_another_tool(tmp_path: Path) -> None:
    (tmp_path / "profile_export.jsonl").write_bytes(aiperf_lines(requests()))
    (tmp_path / "c64.json").write_text(json.dumps(vllm(max_concurrency=64)))
    made = formats.read_files([tmp_path], shape=SHAPE).assembled
    assert [N] == [measurement.trial.load for measurement, _ in made.trials]


def test_even_arrivals_are_even_whatever_the_file_calls_them() -> None:
    records = [replace(r, sent=i / RATE.per_second) for i, r in enumerate(arrivals())]
    even = [replace(r, first=r.sent + 0.01, last=r.sent + 0.2, end=r.sent + 0.2) for r in records]
    tree = vllm_detailed(even, 0, max_concurrency=None, request_rate=RATE.per_second, burstiness=1.0)
    ((measurement, _),) = assemble([said(tree)]).trials
    assert Arrivals(0.0) == measurement.trial.shape.arrivals


def test_a_rate_that_was_not_sent_is_an_aggregate_with_its_flag() -> None:
    """A client that falls behind sends at another rate than it says."""
    asked = 2 * RATE.per_second
    made = assemble([said(vllm_detailed(arrivals(), 0, max_concurrency=None, request_rate=asked))])
    assert not made.trials
    (point,) = made.points
    assert "under_rate" in {flag.name for flag in point.flags if flag.fatal}
