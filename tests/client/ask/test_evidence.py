"""The server's metrics under common names, and what the client knows of itself."""

import asyncio
import gc
import platform
import resource
import time
from pathlib import Path

import pytest

from frontier.client.ask.evidence import parse_metrics
from frontier.client.ask.facts import facts_at, started
from frontier.client.ask.identify import detect
from frontier.client.ask.target import Target
from frontier.client.http.http_client import Client
from frontier.client.load.health import HealthMonitor, raise_fd_limit

VLLM_NEW = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 2.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 100.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 7.0
vllm:prefix_cache_hits_created{engine="0",model_name="m"} 1.7e+09
vllm:e2e_request_latency_seconds_bucket{le="0.3",model_name="m"} 5.0
process_start_time_seconds 1.7e+09
"""
VLLM_OLD = b"""vllm:num_requests_waiting{model_name="m"} 5.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
vllm:gpu_prefix_cache_hits_total{model_name="m"} 9.0
"""
SGLANG = b"""sglang:num_running_reqs{model_name="m"} 6.0
sglang:num_queue_reqs{model_name="m"} 2.0
sglang:token_usage{model_name="m"} 0.28
"""
LLAMACPP = b"""# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 1
llamacpp:requests_deferred 2
llamacpp:tokens_predicted_total 66
"""


def test_vllm_metrics_are_summed_over_engines_and_shares_are_the_fullest() -> None:
    found = parse_metrics(VLLM_NEW)
    gauges = {"num_requests_running": 7.0, "kv_cache_usage_perc": 0.75}
    counters = {"num_preemptions_total": 2.0, "prefix_cache_queries_total": 100.0, "prefix_cache_hits_total": 7.0}
    assert gauges | counters == facts_at(found)
    assert 1.7e9 == started(found)


def test_what_a_server_drafts_and_accepts_is_read() -> None:
    text = b"""vllm:spec_decode_num_drafts_total{engine="0"} 10.0
vllm:spec_decode_num_drafts_total{engine="1"} 20.0
vllm:spec_decode_num_draft_tokens_total{engine="0"} 40.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 21.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 9.0
"""
    said = {"drafts": 30.0, "draft_tokens": 40.0, "accepted_tokens": 21.0}
    assert {f"spec_decode_num_{name}_total": value for name, value in said.items()} == facts_at(parse_metrics(text))


def test_a_hundred_thousand_series_are_not_read_beside_a_measurement() -> None:
    many = b"".join(b'vllm:num_requests_running{engine="%d"} 1\n' % i for i in range(100_000))
    began = time.process_time()
    with pytest.raises(ValueError, match="100,000 series"):
        parse_metrics(many)
    assert time.process_time() - began < 2
    assert {"num_requests_running": 64.0} == facts_at(parse_metrics(many[: many.index(b'"64"') - 34]))


def test_older_names_and_other_engines_map_to_the_same_words() -> None:
    old = {"num_requests_waiting": 5.0, "kv_cache_usage_perc": 0.5, "prefix_cache_hits_total": 9.0}
    assert old == facts_at(parse_metrics(VLLM_OLD))
    sglang = {"num_requests_running": 6.0, "num_requests_waiting": 2.0, "kv_cache_usage_perc": 0.28}
    assert sglang == facts_at(parse_metrics(SGLANG))
    llama = {"num_requests_running": 1.0, "num_requests_waiting": 2.0, "generation_tokens_total": 66.0}
    assert llama == facts_at(parse_metrics(LLAMACPP))


@pytest.mark.parametrize("text", [b"", b"<html>not found</html>", b'[{"iter": 1}]', b"\xff\xfe"])
def test_what_is_no_metrics_text_gives_nothing(text: bytes) -> None:
    assert {} == parse_metrics(text)


ROUTES: dict[str, dict[str, object]] = {
    "vllm": {"/version": {"version": "0.11"}, "/metrics": VLLM_NEW},
    "sglang": {"/server_info": {"version": "0.5.23"}},
    "trtllm": {"/version": {"version": "1.1.0"}, "/metrics": b'[{"gpuMemUsage": 1}]'},
    "llamacpp": {"/props": {"total_slots": 4, "build_info": "b6000"}},
    "tgi": {"/info": {"model_id": "m", "version": "3.3"}},
    "ollama": {"/api/version": {"version": "0.12"}},
    "openai": {},
}
IDENTITIES = {
    "vllm": "vllm 0.11",
    "sglang": "sglang 0.5.23",
    "trtllm": "trtllm 1.1.0",
    "llamacpp": "llamacpp b6000",
    "tgi": "tgi 3.3",
    "ollama": "ollama 0.12",
    "openai": "openai",
}


@pytest.mark.process
@pytest.mark.parametrize("name", ROUTES)
def test_an_engine_is_known_by_the_routes_only_it_has(name: str) -> None:
    from tests.kit.hostile import BEHAVIOURS, Call, Hostile

    async def serve(call: Call) -> None:
        said = ROUTES[name].get(call.path.removeprefix(f"/is_{name}"))
        if said is None:
            await call.json("404 Not Found", {"detail": "Not Found"})
        else:
            await call.json("200 OK", said)

    async def ask(url: str) -> tuple[str, str]:
        async with Client(Target(url)) as client:
            return await detect(client, {})

    BEHAVIOURS[f"is_{name}"] = serve
    try:
        with Hostile() as server:
            assert (name, IDENTITIES[name]) == asyncio.run(ask(server.url(f"is_{name}")))
    finally:
        del BEHAVIOURS[f"is_{name}"]


def test_the_watchdog_counts_only_the_window() -> None:
    with HealthMonitor(time.perf_counter) as dog:
        dog.beat(9.0)
        dog.sent(9.0)
        dog.open_window()
        for i in range(100):
            dog.beat(i / 1000)
            dog.sent(i / 10000)
        began = time.process_time()
        while time.process_time() - began < 0.05:
            pass
        gc.collect()
        dog.close_window()
        dog.beat(9.0)
        dog.sent(9.0)
        health = dog.health(resent=1, opened=2)
    assert (0.098, 0.0098) == (health.loop_lag_p99, health.send_late_p99)
    assert health.gc_pause_max is not None
    assert 0 < health.gc_pause_max < 1
    assert health.cpu_share is not None
    assert 0 < health.cpu_share <= 1.05
    assert (1, 2) == (health.resent, health.connections_opened)


def test_the_collector_is_left_as_it_was() -> None:
    hooks, thresholds = list(gc.callbacks), gc.get_threshold()
    with HealthMonitor(time.perf_counter):
        assert hooks != gc.callbacks
    assert (hooks, thresholds, 0) == (gc.callbacks, gc.get_threshold(), gc.get_freeze_count())


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps what is freed")
def test_what_the_last_trial_needed_goes_back_to_the_system() -> None:
    kept = [bytes(2_000) for _ in range(60_000)][::15]  # 120 MB, with something that stays every 30 kB
    before = resident()
    with HealthMonitor(time.perf_counter):
        assert resident() < before - 60e6
    assert len(kept) == 4_000


def resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_the_limit_on_open_files_is_raised_when_it_must_be() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        assert 300 == raise_fd_limit(300)
        assert 300 == raise_fd_limit(100)
        if hard != resource.RLIM_INFINITY:
            assert hard == raise_fd_limit(hard + 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
