"""Files with every request: what becomes of them is what our own records would have become."""

import itertools
import json
import math
import random
from dataclasses import replace
from functools import cache

import pytest

from frontier.core.estimates import estimate
from frontier.core.model.loads import Concurrency
from frontier.core.model.points import Point
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Outcome, Phase, Record, Trial
from frontier.core.window.from_records import window_data
from frontier.extras.exchange import formats
from frontier.extras.exchange.assemble import assemble
from frontier.extras.exchange.imported_requests import concurrency_of, window_of
from frontier.extras.exchange.results import ImportedFile, microseconds
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import virtual_trial
from frontier.store.documents import ForeignFileError
from tests.kit.golden import assert_golden_row
from tests.kit.peer_files import aiperf_lines, guidellm_detailed, said, vllm_detailed
from tests.kit.virtual_truth import closed_loop

N = 8


@cache
def requests(count: int = 1500) -> tuple[Record, ...]:
    """A closed loop on the simulated engine, ramp and drain included."""
    spec = EngineSpec.from_mapping({"step_base": "5ms", "per_decode": "60us", "noise": "0.1"})
    trial = Trial("d", Shape.of(128, 32), N, 1, Phase.GRID, count, 7, 2.0, 0.0, 600.0, "f")
    records, _ = virtual_trial(trial, spec)
    return tuple(sorted((r for r in records if r.outcome is Outcome.OK), key=lambda r: r.sent))


def trace_of(found: ImportedFile) -> tuple[object, ...]:
    (trace,) = found.results
    return (trace.load, len(trace.records))


def test_the_window_has_the_load_held_from_its_first_send_to_the_end_of_its_last() -> None:
    records = requests()
    span = window_of(records, Concurrency(N))
    assert span is not None
    sent = [r for r in records if span.start <= r.sent <= span.end]
    assert len(sent) > 0.9 * len(records) - 5 * N
    first_wave = sorted(records, key=lambda r: r.sent)[:N]
    assert max(r.end for r in first_wave) == span.start
    last_end = max(r.end for r in sent)
    busy = sum(r.sent <= last_end - 1e-9 < r.end for r in records)
    assert busy >= 0.95 * N - 1


def test_a_run_of_few_waves_has_no_window() -> None:
    assert window_of(requests()[: N + 1], Concurrency(N)) is None
    assert window_of(requests()[:N], Concurrency(N)) is None
    assert window_of((), Concurrency(N)) is None


def test_the_concurrency_of_a_closed_loop_is_the_level_it_held() -> None:
    assert (N, True) == concurrency_of(requests())
    assert (1, False) == concurrency_of(())
    apart = [Record(i, 0, 10.0 * i, Outcome.OK, 10.0 * i + 1, 1, 1) for i in range(9)]
    assert (1, False) == concurrency_of(apart)


@pytest.mark.parametrize("tool", ["vllm", "aiperf"])
def test_a_trace_gives_the_estimates_of_its_own_records(tool: str) -> None:
    records = requests()
    found = (
        said(vllm_detailed(records, N))
        if tool == "vllm"
        else formats.read_results("profile_export.jsonl", aiperf_lines(records))
    )
    (trial,) = assemble([found], shape=Shape.of(128, 32)).trials
    measurement, theirs = trial
    assert N == measurement.trial.load
    assert len(records) == len(theirs)
    sample = window_data(measurement, theirs)
    zero = min(r.sent for r in records)
    shifted = [
        replace(r, sent=r.sent - zero, end=r.end - zero, first=(r.first or 0) - zero, last=(r.last or 0) - zero)
        for r in records
    ]
    ours = window_data(measurement, shifted)
    for name in ("p50_ttft", "p99_ttft", "p99_tpot", "p99_e2e", "p95_itl", "output_throughput", "input_throughput"):
        a, b = estimate.estimate(sample, name), estimate.estimate(ours, name)
        assert a is not None
        assert b is not None
        assert (a.value, a.low, a.upper) == pytest.approx((b.value, b.low, b.upper), rel=2e-3, abs=2e-6)
        assert abs(a.n - b.n) <= 1, "a send at the window's very edge may be rounded to its other side"


@pytest.mark.parametrize("ends", ["first", "last"])
def test_an_event_without_a_token_is_no_gap(ends: str) -> None:
    """That of the role comes right before the first token, the closing one right after the last."""
    tree = vllm_detailed(requests(), N)
    (plain,) = said(tree).results
    gaps = [[4e-6, *one] if ends == "first" else [*one, 4e-6] for one in tree["itls"]]
    (marked,) = said(tree | {"itls": gaps}).results
    for ours, theirs in zip(plain.records, marked.records, strict=True):
        assert ours.gaps == theirs.gaps
        assert (ours.first, ours.last) == pytest.approx((theirs.first, theirs.last), abs=5e-6)


def test_failed_requests_of_a_trace_are_infinite() -> None:
    records = [replace(r, outcome=Outcome.HTTP_ERROR) if i % 20 == 0 else r for i, r in enumerate(requests())]
    for found in (said(vllm_detailed(records, N)), formats.read_results("p.jsonl", aiperf_lines(records))):
        (trace,) = found.results
        failed = [r for r in trace.records if r.outcome is not Outcome.OK]
        assert math.ceil(len(records) / 20) == len(failed)
        assert {r.first for r in failed} == {None}
        assert "" not in {r.error or "" for r in failed}


def test_a_trace_too_short_for_a_window_becomes_an_aggregate() -> None:
    found = said(vllm_detailed(requests()[: 2 * N], N))
    together = assemble([found])
    assert not together.trials
    (point,) = together.points
    assert_golden_row("answers", "\n".join(point.notes))
    assert -math.inf == point.metrics["p99_ttft"].low


def test_requests_without_a_steady_part_or_a_summary_are_refused() -> None:
    lines = formats.read_results("p.jsonl", aiperf_lines(requests()[: 2 * N]))
    with pytest.raises(ForeignFileError, match=r"^p\.jsonl: ") as raised:
        assemble([lines])
    assert_golden_row("messages", str(raised.value))


def test_a_gap_that_is_no_time_is_refused() -> None:
    tree = vllm_detailed(requests()[:20], 2)
    tree["itls"][3] = [0.1, "x"]
    with pytest.raises(ForeignFileError, match=r"itls\[3\] ") as raised:
        said(tree)
    assert_golden_row("messages", str(raised.value))


@pytest.mark.parametrize(
    "gaps",
    [[0.1, None], [[0.1]], [0.1, math.nan, 0.2], [math.nan], [math.inf], [0.1, -1e-9], [1e6], [10**400], ["0.1"]],
)
def test_each_gap_of_a_trace_is_a_time(gaps: list[object]) -> None:
    tree = vllm_detailed(requests()[:20], 2)
    with pytest.raises(ForeignFileError, match=r"itls\[3\] "):
        said(tree | {"itls": [gaps if i == 3 else each for i, each in enumerate(tree["itls"])]})


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_gaps_are_whole_microseconds_that_add_up_to_theirs(scale: float) -> None:
    rng = random.Random(3)
    for n in (0, 1, 2, 300):
        gaps = [rng.choice((0, 1, 0.0000005, rng.random(), 1e3 * rng.random())) for _ in range(n)]
        stamps = [0, *(round(t * scale * 1e6) for t in itertools.accumulate(gaps))]
        assert tuple(b - a for a, b in itertools.pairwise(stamps)) == microseconds(gaps, scale)


def test_gaps_beyond_all_that_is_measured_are_refused() -> None:
    lines = aiperf_lines(requests()[:40]).splitlines()
    row = json.loads(lines[3])
    row["metrics"]["inter_chunk_latency"] = {"value": [1e15] * 30, "unit": "sec"}
    found = formats.read_results("p.jsonl", b"\n".join([*lines[:3], json.dumps(row).encode(), *lines[4:]]))
    with pytest.raises(ForeignFileError, match="has impossible times"):
        assemble([found])


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("ttfts", -1.0, "times"),
        ("start_times", -1e9, "times"),
        ("ttfts", 1e14, "times"),
        ("input_lens", -5, "tokens"),
        ("output_lens", -5, "tokens"),
        ("output_lens", 1e14, "tokens"),
    ],
)
def test_a_request_that_cannot_have_been_is_refused(key: str, value: float, what: str) -> None:
    tree = vllm_detailed(requests()[:40], 2)
    tree[key][3] = value
    with pytest.raises(ForeignFileError, match=f"has impossible {what}"):
        assemble([said(tree)])


@pytest.mark.parametrize("gaps", [[1e15, 1.0], [-1.0, 2.0]])
def test_gaps_that_cannot_have_been_are_refused(gaps: list[float]) -> None:
    lines = aiperf_lines(requests()[:40]).splitlines()
    row = json.loads(lines[3])
    row["metrics"]["inter_chunk_latency"] = {"value": gaps, "unit": "s"}
    found = formats.read_results("f.jsonl", b"\n".join([*lines[:3], json.dumps(row).encode(), *lines[4:]]))
    with pytest.raises(ForeignFileError, match="has impossible times"):
        assemble([found])


def test_details_without_start_times_are_aggregates() -> None:
    tree = vllm_detailed(requests(), N)
    del tree["start_times"]
    found = said(json.loads(json.dumps(tree)))
    (result,) = found.results
    assert not result.records


# --- a load that is not quite the one asked for


IN_FLIGHT = 16


@cache
def in_step(apart: float = 0.0, counted: float = 1.0) -> tuple[Record, ...]:
    """128/64 tokens at 16 in flight from a client that starts all at once and pauses a share
    `apart` between requests; its tool counts `counted` times the tokens that were streamed.
    """
    spec = EngineSpec.from_mapping({"step_base": "5ms", "per_decode": "60us", "noise": "0.05"})
    records, _ = closed_loop(spec, Shape.of(128, 64), IN_FLIGHT, requests=1500, stagger=False, seed=3)
    full = 1 - apart

    def nearer(r: Record) -> Record:
        assert r.first is not None
        assert r.last is not None
        first, last, end = (r.sent + full * (t - r.sent) for t in (r.first, r.last, r.end))
        gaps, tokens = tuple(round(gap * full) for gap in r.gaps), round(counted * (r.completion_tokens or 0))
        return replace(r, first=first, last=last, end=end, gaps=gaps, completion_tokens=tokens)

    return tuple(nearer(r) for r in sorted(records, key=lambda r: r.sent) if r.outcome is Outcome.OK)


def point_of(tool: str, records: tuple[Record, ...]) -> Point:
    """The point of the file that the tool would have written."""
    read = {
        "vllm": lambda: said(vllm_detailed(records, IN_FLIGHT)),
        "aiperf": lambda: formats.read_results("profile_export.jsonl", aiperf_lines(records)),
        "guidellm": lambda: said(guidellm_detailed(records, IN_FLIGHT)),
    }[tool]()
    ((measurement, theirs),) = assemble([read], shape=Shape.of(128, 64)).trials
    return estimate.point(window_data(measurement, theirs))


@pytest.mark.parametrize("tool", ["vllm", "aiperf", "guidellm"])
@pytest.mark.parametrize("apart", [0.0, 0.02, 0.03])
def test_lockstep_and_15_5_of_16_in_flight_widen_the_bars_and_keep_the_point(tool: str, apart: float) -> None:
    found = point_of(tool, in_step(apart))
    flags = {flag.name: flag for flag in found.flags}
    assert "lockstep" in flags
    assert found.valid, flags
    if apart == 0.03:
        assert flags["under_concurrency"].measured.startswith("15.5 in flight")
    truth = point_of(tool, in_step())
    for name in ("p50_ttft", "p95_e2e", "p50_tpot", "output_throughput"):
        one = found.metrics[name]
        assert math.isfinite(one.upper), "a bound at least, where the requests in step are too few for two sides"
        assert one.low <= truth.metrics[name].value <= one.high, name


def test_another_load_than_was_asked_is_still_no_measurement_of_it() -> None:
    found = point_of("vllm", in_step(0.15))
    assert not found.valid
    assert "under_concurrency" in {flag.name for flag in found.flags if flag.fatal}


def test_a_wrong_count_of_tokens_is_still_excluded() -> None:
    found = point_of("vllm", in_step(0.03, counted=0.5))
    assert "token_mismatch" in {flag.name for flag in found.flags if flag.fatal}
