"""Facts of a window: each engine's and exporter's names, how readings become facts, and what is
stored of them."""

import itertools
from pathlib import Path

import pytest

from frontier.client.ask import device_names
from frontier.client.ask.evidence import parse_metrics
from frontier.client.ask.facts import (
    EXPORTED,
    FACTS,
    Readings,
    facts_at,
    moments_of,
    server_life,
    window_facts,
)
from frontier.client.secrets import Secrets
from frontier.core.model.trials import (
    CACHED_ANEW,
    REPEATED_PROMPTS,
    SHARE_ANEW,
    UNCOUNTED_PROMPTS,
    MetricSeries,
    SourceReadings,
)


def read(*texts: tuple[float, bytes | tuple[bytes, ...]]) -> tuple[SourceReadings, ...]:
    """The stored readings of a server that gave these texts at these times."""
    readings = Readings("metrics")
    for at, text in texts:
        readings.add(parse_metrics(*(text if isinstance(text, tuple) else (text,))), at)
    return readings.stored()


def test_every_name_in_a_table_leads_to_a_fact() -> None:
    named = {fact for facts in {**EXPORTED, **device_names.READ}.values() for fact in facts}
    assert named | {CACHED_ANEW, SHARE_ANEW, UNCOUNTED_PROMPTS, REPEATED_PROMPTS} == set(FACTS)


# What each engine says before and after two requests: (before, after, the facts' increases).
ENGINES: dict[str, tuple[bytes, bytes, dict[str, float]]] = {
    "sglang": (
        (
            b'sglang:queue_time_seconds_sum{model_name="m"} 1.0\nsglang:queue_time_seconds_count{model_name="m"} 4\n'
            b'sglang:per_stage_req_latency_seconds_sum{model_name="m",stage="prefill_forward"} 2.0\n'
            b'sglang:per_stage_req_latency_seconds_sum{model_name="m",stage="request_process"} 7.0\n'
        ),
        (
            b'sglang:queue_time_seconds_sum{model_name="m"} 1.5\nsglang:queue_time_seconds_count{model_name="m"} 6\n'
            b'sglang:per_stage_req_latency_seconds_sum{model_name="m",stage="prefill_forward"} 2.3\n'
            b'sglang:per_stage_req_latency_seconds_sum{model_name="m",stage="request_process"} 9.0\n'
        ),
        {
            "request_queue_time_seconds_sum": 0.5,
            "request_queue_time_seconds_count": 2.0,
            "request_prefill_time_seconds_sum": 0.3,
        },
    ),
    "trtllm": (
        (
            b"trtllm_request_queue_time_seconds_sum 1\ntrtllm_request_queue_time_seconds_count 1\n"
            b"trtllm_request_decode_time_seconds_sum 5\ntrtllm_request_decode_time_seconds_count 1\n"
        ),
        (
            b"trtllm_request_queue_time_seconds_sum 1.2\ntrtllm_request_queue_time_seconds_count 3\n"
            b"trtllm_request_decode_time_seconds_sum 8\ntrtllm_request_decode_time_seconds_count 3\n"
        ),
        {
            "request_queue_time_seconds_sum": 0.2,
            "request_queue_time_seconds_count": 2.0,
            "request_decode_time_seconds_sum": 3.0,
            "request_decode_time_seconds_count": 2.0,
        },
    ),
    "tgi": (
        (
            b"tgi_request_queue_duration_sum 0.5\ntgi_request_queue_duration_count 1\n"
            b"tgi_request_duration_sum 4\ntgi_request_duration_count 1\n"
        ),
        (
            b"tgi_request_queue_duration_sum 0.75\ntgi_request_queue_duration_count 3\n"
            b"tgi_request_duration_sum 9\ntgi_request_duration_count 3\n"
        ),
        {
            "request_queue_time_seconds_sum": 0.25,
            "request_queue_time_seconds_count": 2.0,
            "e2e_request_latency_seconds_sum": 5.0,
            "e2e_request_latency_seconds_count": 2.0,
        },
    ),
    "llama.cpp": (
        b"llamacpp:prompt_seconds_total 3\nllamacpp:tokens_predicted_seconds_total 30\n",
        b"llamacpp:prompt_seconds_total 3.5\nllamacpp:tokens_predicted_seconds_total 34\n",
        {"request_prefill_time_seconds_sum": 0.5, "request_decode_time_seconds_sum": 4.0},
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engines_times_get_common_names(engine: str) -> None:
    before, after, expected = ENGINES[engine]
    facts = window_facts(read((1.0, before), (9.0, after)))
    assert (1.0, 9.0) == (facts.pop("observed_from"), facts.pop("observed_until"))
    assert facts == pytest.approx(expected)


def test_replicas_add_up_and_gauges_are_means_with_the_most_beside() -> None:
    def said(running: int, done: int) -> bytes:
        return (
            f'vllm:num_requests_running{{engine="0"}} {running}\nvllm:e2e_request_latency_seconds_count {done}\n'
            f'vllm:kv_cache_usage_perc{{engine="0"}} 0.{running}\n'
        ).encode()

    facts = window_facts(read((0.0, (said(2, 5), said(4, 100))), (5.0, (said(4, 9), said(6, 103)))))
    assert (8.0, 10.0) == (facts["num_requests_running"], facts["num_requests_running_max"])
    assert (0.5, 0.6) == (facts["kv_cache_usage_perc"], facts["kv_cache_usage_perc_max"])
    assert facts["e2e_request_latency_seconds_count"] == 7.0
    assert "restarts" not in facts


def test_a_restart_is_seen_by_a_counter_that_fell_or_another_start() -> None:
    fell = read((0.0, b"vllm:generation_tokens_total 9\n"), (1.0, b"vllm:generation_tokens_total 2\n"))
    assert {"observed_from": 0.0, "observed_until": 1.0, "restarts": 1.0} == window_facts(fell)
    text = b"vllm:num_requests_running 1\nprocess_start_time_seconds %d\n"
    again = read((0.0, text % 1000), (1.0, text % 2000), (2.0, text % 3000))
    assert window_facts(again)["restarts"] == 2.0
    assert server_life(again) == "started 3000"


def test_a_sum_of_times_that_fell_by_a_rounding_is_no_restart() -> None:
    text = "vllm:generation_tokens_total {}\nvllm:request_queue_time_seconds_sum {}\n"
    facts = window_facts(read((0.0, text.format(1, 2e-9).encode()), (1.0, text.format(5, 1e-9).encode())))
    assert 4.0 == facts["generation_tokens_total"]
    assert not {"restarts", "request_queue_time_seconds_sum"} & set(facts)


def test_a_device_exporter_under_its_old_and_new_names() -> None:
    old = b'DCGM_FI_DEV_POWER_USAGE{gpu="0"} 300\nDCGM_FI_DEV_POWER_USAGE{gpu="1"} 310\nDCGM_FI_DEV_SM_CLOCK 1400\n'
    new = b'DCGM_FI_DEV_BOARD_POWER_WATTS{gpu="0"} 320\nDCGM_FI_DEV_BOARD_POWER_WATTS{gpu="1"} 330\n'
    facts = window_facts(read((0.0, old), (1.0, new)))
    assert (630.0, 2.0, 1.4e9) == (facts["gpu_power"], facts["gpu_count"], facts["gpu_sm_clock_min"])


def test_what_is_stored_is_what_came(tmp_path: Path) -> None:
    texts: list[tuple[float, bytes | tuple[bytes, ...]]] = [
        (0.5, b'vllm:num_requests_running{engine="0"} 3\nvllm:request_queue_time_seconds_sum 0.1\n'),
        (1.5, b"vllm:request_queue_time_seconds_sum 0.30000000000000004\n"),
    ]
    (kept,) = read(*texts)
    times, moments = moments_of(kept)
    assert [0.5, 1.5] == times
    assert [parse_metrics(text) for _, text in texts if isinstance(text, bytes)] == moments
    assert ["3 -", "0.1 0.30000000000000004"] == [series.values for series in kept.series]


@pytest.mark.parametrize("values", ["1 2 3", "1", "1 x", "1 nan", "1 1e400"])
def test_damaged_readings_are_refused(values: str) -> None:
    (kept,) = read((0.0, b"vllm:num_requests_running 1\n"), (1.0, b"vllm:num_requests_running 1\n"))
    damaged = SourceReadings("metrics", kept.times, (type(kept.series[0])(kept.series[0].name, {}, values),))
    with pytest.raises(ValueError, match=r"shorter|longer|could not convert|cannot be one"):
        moments_of(damaged)


def test_a_secret_in_a_label_is_not_kept() -> None:
    readings = Readings("metrics")
    readings.add(parse_metrics(b'vllm:num_requests_running{model_name="a-very-secret-key"} 3\n'), 0.0)
    (kept,) = readings.stored(0.0, Secrets.of(["a-very-secret-key"]))
    assert "secret" not in str(kept)
    assert facts_at(moments_of(kept)[1][0]) == {"num_requests_running": 3.0}


def test_a_long_window_keeps_fewer_moments_and_always_the_first_and_last() -> None:
    readings = Readings("metrics")
    for second in range(3000):
        readings.add({("vllm:generation_tokens_total", (("i", str(i)),)): float(second) for i in range(100)}, second)
    readings.add({("vllm:generation_tokens_total", (("i", str(i)),)): 3000.0 for i in range(100)}, 3000, last=True)
    (kept,) = readings.stored()
    times, _ = moments_of(kept)
    assert (0.0, 3000.0) == (times[0], times[-1])
    assert 500 < len(times) <= 2001
    gaps = {round(b - a) for a, b in itertools.pairwise(times)}
    assert gaps <= {1, 2, 4}
    assert window_facts([kept])["generation_tokens_total"] == 300_000


def test_the_power_of_cpu_packages_is_read_from_runs_that_kept_it() -> None:
    zones = (MetricSeries("energy_uj", {"zone": f"intel-rapl:{i}"}, "900000000 980000000 1060000000") for i in (0, 1))
    spread = SourceReadings("rapl", "10 12 20", tuple(zones))
    assert window_facts([spread]) == {"cpu_power": pytest.approx(2 * 160 / 10)}
