"""Time breakdown against known truth: an engine whose parts can be computed, Little's law, and
facts made by hand."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from frontier.client import run_trial
from frontier.client.ask.prompts import random_prompts
from frontier.client.ask.target import Target
from frontier.client.http.http_client import run
from frontier.core.model.loads import Concurrency
from frontier.core.model.points import TimeBreakdown
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement, Phase, Record, Trial
from frontier.core.window.from_records import window_data
from frontier.core.window.time_breakdown import PARTS, client_sums, time_breakdown
from frontier.show.view.wording import time_sentence
from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import virtual_trial
from frontier.store.records import decode_measurement, decode_record, encode_measurement, encode_record
from tests.kit.golden import assert_golden_row

STEP, TOKEN, INGEST = 0.010, 0.0001, 0.003


def trial(c: int, requests: int = 200, shape: str = "100/20") -> Trial:
    return Trial("d", Shape.parse(shape), c, 1, Phase.GRID, requests, 1, 1.0, 0.0, 600.0, "f")


def spec(**keys: Any) -> EngineSpec:
    free = dict.fromkeys(("per_decode", "per_context_token", "per_prefill_pair", "noise"), 0.0)
    plain = {"step_base": STEP, "per_prefill_token": TOKEN, "ingest": INGEST, **free}
    return EngineSpec.from_mapping(plain | keys)


def known(measurement: Measurement, records: list[Record]) -> TimeBreakdown:
    """The breakdown of a trial as it is read back from its files."""
    kept = [decode_record(encode_record(record)) for record in records]
    stored = orjson.loads(orjson.dumps(encode_measurement(measurement)))
    found = time_breakdown(window_data(decode_measurement(stored), kept).server)
    assert found is not None
    assert found.refused == ""
    return found


def measured(engine: EngineSpec, c: int, **how: Any) -> tuple[TimeBreakdown, Measurement]:
    records, measurement = virtual_trial(trial(c, **how), engine)
    return known(measurement, records), measurement


def counted(found: TimeBreakdown) -> tuple[int, int]:
    """The requests or tokens of the server and of this client in the reason why nothing is said:
    more at the server are others', fewer are those of one replica of several.
    """
    server, client = (int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\b", found.refused))
    return server, client


def test_alone_every_part_is_what_the_engine_costs() -> None:
    found, _ = measured(spec(), 1)
    prefill, decode = STEP + 100 * TOKEN, 19 * STEP
    expected = {"connect": 0.0, "network": 0.0, "front_end": INGEST, "queue": 0.0, "prefill": prefill, "decode": decode}
    assert dict(found.parts) == pytest.approx(expected, abs=2e-6)
    assert (found.ttft, found.e2e) == pytest.approx((INGEST + prefill, INGEST + prefill + decode), abs=2e-6)
    assert found.rest == pytest.approx(0.0, abs=2e-6)
    assert found.missing == ()


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"max_num_seqs": 4},
        {"kv_tokens": 700},
        {"noise": 0.2},
        {"max_num_seqs": 32, "max_batched_tokens": 64},
        {"speculation": {"tokens": 3, "acceptance": 0.6}},
    ],
    ids=str,
)
@pytest.mark.parametrize("c", [3, 16])
def test_the_parts_add_up_to_what_was_measured_at_any_load(keys: dict[str, Any], c: int) -> None:
    found, _ = measured(spec(**keys), c)
    assert found.ttft == pytest.approx(sum(v for name, v in found.parts.items() if name != "decode"), abs=5e-6)
    assert found.rest == pytest.approx(0.0, abs=5e-6)
    assert found.parts["front_end"] >= INGEST - 5e-6


def test_the_queue_agrees_with_littles_law() -> None:
    """The time mean of the gauge of waiting requests knows nothing of stamps."""
    found, measurement = measured(spec(max_num_seqs=4), 16, requests=2000)
    facts = measurement.server
    rate = facts["request_queue_time_seconds_count"] / (facts["observed_until"] - facts["observed_from"])
    assert found.parts["queue"] == pytest.approx(facts["num_requests_waiting"] / rate, rel=0.03)
    assert found.parts["queue"] > 2 * found.parts["decode"]


def facts(n: int = 100, **more: float | None) -> dict[str, float]:
    """Of 100 requests: connect 1, network 20, front end 4, queue 30, prefill 45, decode 900,
    unexplained 10 ms.
    """
    means = {
        "request_queue_time": 0.030,
        "request_prefill_time": 0.045,
        "request_decode_time": 0.900,
        "time_to_first_token": 0.079,
        "e2e_request_latency": 0.979,
    }
    server = {
        f"{name}_seconds_{part}": n * (mean if part == "sum" else 1)
        for name, mean in means.items()
        for part in ("sum", "count")
    }
    client = {
        "client_first_count": 100.0,
        "client_first_ttft_sum": 10.0,
        "client_first_connect_sum": 0.1,
        "client_count": 100.0,
        "client_ttft_sum": 10.0,
        "client_connect_sum": 0.1,
        "client_e2e_sum": 101.0,
        "client_tokens": 2000.0,
    }
    return {k: v for k, v in (server | client | more).items() if v is not None}


def without(*names: str, **more: float | None) -> dict[str, float]:
    gone = {f"{name}_{part}": None for name in names for part in ("sum", "count")}
    return facts(**(gone | more))


def test_network_is_what_the_client_waits_longer_and_the_rest_is_shown() -> None:
    found = time_breakdown([facts()])
    assert found is not None
    milliseconds = {name: round(value * 1e3, 6) for name, value in found.parts.items()}
    assert dict(zip(PARTS, (1.0, 20.0, 4.0, 30.0, 45.0, 900.0), strict=True)) == milliseconds
    assert found.rest == pytest.approx(0.010)
    assert_golden_row("answers", time_sentence(Concurrency(8), found))


def test_windows_are_joined_by_their_requests_not_by_their_means() -> None:
    long = {name: 9 * value for name, value in facts(request_queue_time_seconds_sum=6.0).items()}
    found = time_breakdown([facts(), long])
    assert found is not None
    assert found.requests == 1000
    assert found.parts["queue"] == pytest.approx((0.030 + 9 * 0.060) / 10)


def test_what_an_engine_does_not_tell_is_named_and_stays_in_the_rest() -> None:
    cases: dict[str, tuple[dict[str, float], tuple[str, ...], dict[str, float]]] = {
        # TGI: no TTFT, but E2E; prefill and decode in one, which the client's stamps divide.
        "tgi": (
            without(
                "time_to_first_token_seconds",
                "request_prefill_time_seconds",
                "request_decode_time_seconds",
                e2e_request_latency_seconds_sum=98.9,
                request_inference_time_seconds_sum=95.5,
                request_inference_time_seconds_count=100.0,
            ),
            (),
            {"network": 0.020, "front_end": 0.004, "queue": 0.030, "prefill": 0.045, "decode": 0.910},
        ),
        # llama.cpp: seconds of prefill and decode without a count.
        "llama.cpp": (
            without(
                "time_to_first_token_seconds",
                "request_queue_time_seconds",
                "e2e_request_latency_seconds",
                request_prefill_time_seconds_count=None,
                request_decode_time_seconds_count=None,
                generation_tokens_total=2000.0,
            ),
            ("network", "front_end", "queue"),
            {"prefill": 0.045, "decode": 0.900},
        ),
        # SGLang: the prefill stage has the queue's count.
        "sglang": (
            without("request_decode_time_seconds", request_prefill_time_seconds_count=None),
            (),
            {"network": 0.020, "front_end": 0.004, "prefill": 0.045, "decode": 0.910},
        ),
    }
    for name, (told, missing, parts) in cases.items():
        found = time_breakdown([told])
        assert found is not None
        assert missing == found.missing, name
        assert {part: found.parts[part] for part in parts} == pytest.approx(parts), name
        assert sum(found.parts.values()) + found.rest == pytest.approx(found.e2e), name
        assert_golden_row("answers", time_sentence(Concurrency(1), found), name)


def test_histograms_of_another_unit_than_seconds_are_not_used() -> None:
    told = facts(100)
    parts = ("queue", "prefill", "decode")
    long = {
        f"request_{name}_time_seconds_sum": 1000 * told.get(f"request_{name}_time_seconds_sum", 0.0) for name in parts
    }
    found = time_breakdown([{**told, **long}])
    assert found is not None
    assert not found.parts
    assert "unit" in found.refused


def test_with_others_load_or_half_of_the_replicas_nothing_is_said() -> None:
    for n, why in ((103, "others"), (50, "a replica")):
        found = time_breakdown([facts(n)])
        assert found is not None
        assert not found.parts
        assert counted(found) == (n, 100)
        assert_golden_row("answers", found.refused, why)
        assert found.refused in time_sentence(Concurrency(1), found)
    assert time_breakdown([facts(102)]).parts  # type: ignore[union-attr]
    tokens = without(
        "request_queue_time_seconds",
        "request_decode_time_seconds",
        "e2e_request_latency_seconds",
        generation_tokens_total=2500.0,
    )
    found = time_breakdown([tokens])
    assert found is not None
    assert counted(found) == (2500, 2000)
    assert_golden_row("answers", found.refused, "tokens")
    del tokens["generation_tokens_total"]
    found = time_breakdown([tokens])
    assert found is not None
    assert_golden_row("answers", found.refused, "uncounted")


def test_without_times_or_after_a_restart_there_is_no_breakdown() -> None:
    gauges = {name: value for name, value in facts().items() if not name.endswith("_seconds_sum")}
    old_run = {"num_requests_running": 3.0, "generation_tokens_total": 12.0}
    for told in (gauges, old_run, facts(restarts=1.0), facts(client_count=0.0)):
        assert time_breakdown([told]) is None
    assert time_breakdown([old_run, facts()]) is not None


def test_a_part_below_zero_is_none_of_the_time_and_the_rest_says_so() -> None:
    found = time_breakdown([facts(time_to_first_token_seconds_sum=12.0)])
    assert found is not None
    assert found.parts["network"] == 0.0
    assert sum(found.parts.values()) + found.rest == pytest.approx(found.e2e)


@pytest.mark.process
def test_over_http_at_most_3_percent_is_unexplained_and_the_front_end_is_found(tmp_path: Path) -> None:
    records: list[Record] = []
    shape = Shape.of(64, 32)
    asked = Trial("d", shape, 6, 1, Phase.GRID, 30, 1, 0.5, 0.0, 8.0, "f")
    with SimulatorProcess(EngineSpec.from_mapping({"step_base": "6ms", "max_num_seqs": 4, "ingest": "5ms"})) as server:
        target = Target(server.url, "sim-8b", "completions", dialect="vllm")
        prompts = random_prompts(shape, 1)
        measurement = run(run_trial(asked, target, prompts, on_record=records.append, expected_e2e=0.3))
    found = known(measurement, records)
    assert abs(found.rest) < 0.03 * found.e2e
    assert 0.0045 < found.parts["front_end"] < 0.012  # 5 ms, and what a busy machine adds
    assert found.parts["queue"] > found.parts["prefill"]
    assert [record.connect > 0 for record in sorted(records, key=lambda r: r.sent)[:6]] == [True] * 6
    assert {source.source for source in measurement.readings} >= {"metrics"}


def test_answers_on_a_slow_network_are_no_load_of_others() -> None:
    """Of 100 requests in 10 s six may be on a network that takes 600 ms; ten more are another's."""

    def facts(finished: float) -> dict[str, float]:
        return {
            "observed_from": 0.0,
            "observed_until": 10.0,
            "client_count": 100.0,
            "client_ttft_sum": 80.0,
            "client_connect_sum": 0.0,
            "client_e2e_sum": 200.0,
            "client_first_count": 100.0,
            "client_first_ttft_sum": 80.0,
            "client_first_connect_sum": 0.0,
            "client_tokens": 1000.0,
            "time_to_first_token_seconds_sum": 20.0,
            "time_to_first_token_seconds_count": 100.0,
            "e2e_request_latency_seconds_sum": 140.0,
            "e2e_request_latency_seconds_count": finished,
        }

    near, far = time_breakdown([facts(106.0)]), time_breakdown([facts(110.0)])
    assert near is not None
    assert near.refused == ""
    assert near.parts["network"] == pytest.approx(0.6)
    assert far is not None
    assert counted(far) == (110, 100)


def test_answers_that_end_together_at_an_edge_are_no_load_of_others() -> None:
    """40 streams in lockstep on a network of 300 ms: the server counts 40 answers 150 ms before
    they have come.
    """
    ends = [wave + 0.15 for wave in range(5) for _ in range(40)]
    columns = {
        "last": np.array(ends),
        "first": np.array(ends) - 0.5,
        "began": np.array(ends) - 0.9,
        "connect": np.zeros(200),
        "completion_tokens": np.full(200, 10.0),
    }
    for begin, until, finished, refused in (
        (0.05, 4.5, 160, False),
        (0.05, 3.99, 120, False),
        (0.2, 4.1, 160, False),
        (0.2, 4.5, 160, False),
        (0.05, 4.5, 140, True),
        (0.2, 4.1, 180, True),
        (0.2, 4.5, 180, True),
    ):
        server = {
            "observed_from": begin,
            "observed_until": until,
            "time_to_first_token_seconds_sum": 0.1 * finished,
            "time_to_first_token_seconds_count": float(finished),
            "e2e_request_latency_seconds_sum": 0.6 * finished,
            "e2e_request_latency_seconds_count": float(finished),
        }
        found = time_breakdown([server | client_sums(columns, np.full(200, True), server)])
        assert found is not None
        assert refused == bool(found.refused), found.refused
        if refused:
            assert counted(found)[0] == finished
