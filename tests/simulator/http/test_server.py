import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from frontier.core.model.errors import MeasurementError
from frontier.core.model.shapes import Shape
from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import closed_loop_arrays
from tests.kit import raw_client
from tests.kit.truth_server import TruthProcess

FAST = EngineSpec(step_base=1e-3, per_decode=0.0, per_prefill_token=1e-6, per_context_token=0.0, ingest=0.0)


@pytest.fixture(scope="module")
def simulator():
    with TruthProcess(FAST) as running:
        yield running


def port(simulator):
    return int(simulator.url.removesuffix("/v1").rpartition(":")[2])


def call(simulator, method, path, body=None, headers=None):
    """Status, headers and body of one request on its own connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port(simulator), timeout=30)
    try:
        raw = None if body is None else json.dumps(body).encode()
        connection.request(method, path, raw, {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read()
    finally:
        connection.close()


def events(raw: bytes):
    """The payloads of a stream; the last must be [DONE]."""
    lines = raw.decode().split("\n\n")
    assert "" == lines.pop()
    assert "data: [DONE]" == lines.pop()
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def chat(tokens, **more):
    return {
        "model": "sim-8b",
        "messages": [{"role": "user", "content": "how far is the light"}],
        "max_tokens": tokens,
        "stream": True,
        **more,
    }


@pytest.mark.smoke
def test_chat_streams_as_vllm_does(simulator):
    status, headers, raw = call(
        simulator, "POST", "/v1/chat/completions", chat(4, stream_options={"include_usage": True})
    )
    got = events(raw)
    assert 200 == status
    assert headers["Content-Type"].startswith("text/event-stream")
    assert {"role": "assistant", "content": ""} == got[0]["choices"][0]["delta"]
    tokens = got[1:-1]
    assert 4 == len(tokens)
    assert "" not in [event["choices"][0]["delta"]["content"] for event in tokens]
    assert [None, None, None, "length"] == [event["choices"][0]["finish_reason"] for event in tokens]
    assert [] == got[-1]["choices"]
    assert 4 == got[-1]["usage"]["completion_tokens"]
    assert 1 == len({event["id"] for event in got})


@pytest.mark.process
def test_completions_stream_one_event_per_token_and_no_usage_unless_asked(simulator):
    body = {"prompt": [5, 6, 7], "max_tokens": 3, "stream": True}
    got = events(call(simulator, "POST", "/v1/completions", body)[2])
    assert 3 == len(got)
    assert "" not in [event["choices"][0]["text"] for event in got]
    assert not any("usage" in event for event in got)


@pytest.mark.process
def test_an_answer_can_come_whole(simulator):
    status, _, raw = call(simulator, "POST", "/v1/chat/completions", chat(5, stream=False))
    got = json.loads(raw)
    assert 200 == status
    assert 5 == len(got["choices"][0]["message"]["content"].split()) == got["usage"]["completion_tokens"]
    assert "length" == got["choices"][0]["finish_reason"]


@pytest.mark.process
def test_it_says_what_it_is(simulator):
    assert 200 == call(simulator, "GET", "/health")[0]
    assert "frontier-sim" in json.loads(call(simulator, "GET", "/version")[2])["version"]
    card = json.loads(call(simulator, "GET", "/v1/models")[2])["data"][0]
    assert "sim-8b" == card["id"]
    assert card["max_model_len"] > 1000


@pytest.mark.process
@pytest.mark.parametrize(
    ("path", "body", "status", "word"),
    [
        ("/v1/completions", {"model": "other", "prompt": "a"}, 404, "does not exist"),
        ("/v1/completions", {"prompt": [1] * 500_000, "max_tokens": 5}, 400, "maximum context length"),
        ("/v1/completions", {"prompt": "a", "max_tokens": 0}, 400, "max_tokens"),
        ("/v1/completions", {"prompt": "a", "max_tokens": 3, "min_tokens": 4}, 400, "min_tokens"),
        ("/v1/completions", {"max_tokens": 3}, 400, "prompt"),
        ("/v1/chat/completions", {"messages": []}, 400, "messages"),
        ("/v1/nothing", {}, 404, "Not Found"),
    ],
)
def test_a_wrong_request_gets_openais_error(simulator, path, body, status, word):
    got, _, raw = call(simulator, "POST", path, {**body, "stream": True})
    error = json.loads(raw)["error"]
    assert (status, status) == (got, error["code"])
    assert word in error["message"]


@pytest.mark.process
def test_metrics_parse_and_count(simulator):
    def read():
        text = call(simulator, "GET", "/metrics")[2].decode()
        return {sample.name: sample.value for f in text_string_to_metric_families(text) for sample in f.samples}

    before = read()
    call(simulator, "POST", "/v1/completions", {"prompt": [1] * 37, "max_tokens": 11})
    after = read()
    assert 11 == after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"]
    assert 37 == after["vllm:prompt_tokens_total"] - before["vllm:prompt_tokens_total"]
    assert 0 == after["vllm:num_requests_running"] == after["vllm:num_requests_waiting"]
    for name in (
        "kv_cache_usage_perc",
        "num_preemptions_total",
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
    ):
        assert f"vllm:{name}" in after


@pytest.mark.process
def test_the_truth_names_each_token_of_a_request(simulator):
    sent = time.perf_counter()
    call(simulator, "POST", "/v1/completions", {"prompt": [1], "max_tokens": 6})
    back = time.perf_counter()
    truth = json.loads(call(simulator, "GET", "/truth")[2])[-1]
    assert sent < truth["receipt"] < truth["scheduled"][0] < back
    assert 6 == len(truth["scheduled"]) == len(truth["actual"])
    assert min(np.subtract(truth["actual"], truth["scheduled"])) >= 0
    assert np.diff(truth["scheduled"]) == pytest.approx(1e-3, abs=1e-9)


@pytest.mark.process
def test_over_http_and_in_virtual_time_the_engine_gives_the_same_latencies():
    spec = EngineSpec(
        step_base=15e-3, per_decode=2e-4, per_prefill_token=4e-5, per_context_token=1e-7, noise=0.05, ingest=1e-3
    )
    body = {"prompt": [1] * 300, "max_tokens": 24, "stream": True}
    with TruthProcess(spec) as live:
        seen = asyncio.run(raw_client.closed_loop(port(live), 8, 7, body, spread=0.45))
        truth = json.loads(call(live, "GET", "/truth")[2])
    virtual = closed_loop_arrays(spec, Shape.of(300, 24), 8, requests=400)
    settled = [r for r in truth if not r["key"].endswith("-0")]
    due = np.median([r["scheduled"][0] - r["receipt"] for r in settled])
    assert due == pytest.approx(np.median(virtual.ttft), rel=0.12)
    step = np.median([(r["scheduled"][-1] - r["scheduled"][0]) / 23 for r in settled])
    assert step == pytest.approx(np.median(virtual.tpot), rel=0.03)
    # What a client sees has the machine's own lateness on top.
    assert np.median([s.tpot for s in seen]) == pytest.approx(np.median(virtual.tpot), rel=0.10)
    assert np.median([s.ttft for s in seen]) == pytest.approx(np.median(virtual.ttft), rel=0.35)
    assert {24} == {len(s.events) for s in seen}


@pytest.mark.process
def test_a_late_step_does_not_delay_the_schedule(simulator):
    call(simulator, "POST", "/v1/completions", {"prompt": [1], "max_tokens": 400})
    truth = json.loads(call(simulator, "GET", "/truth")[2])[-1]
    assert truth["scheduled"][-1] - truth["scheduled"][0] == pytest.approx(0.399, abs=1e-6)


@pytest.mark.process
def test_a_client_that_leaves_frees_its_place(simulator):
    with socket.create_connection(("127.0.0.1", port(simulator))) as leaving:
        leaving.sendall(
            raw_client.request_bytes("/v1/completions", {"prompt": [1], "max_tokens": 9000, "stream": True})
        )
        assert b"data:" in leaving.recv(65536) + leaving.recv(65536)
        assert b"running{engine" in call(simulator, "GET", "/metrics")[2]
    deadline = time.monotonic() + 5
    while b'num_requests_running{engine="0",model_name="sim-8b"} 0.0' not in call(simulator, "GET", "/metrics")[2]:
        assert time.monotonic() < deadline, "the request still runs"
        time.sleep(0.02)


@pytest.mark.process
def test_natural_lengths_end_with_stop_and_ignore_eos_forces_the_length():
    with SimulatorProcess(EngineSpec(step_base=2e-4, natural_output=20, ingest=0.0)) as natural:

        def lengths(**more):
            body = {"prompt": [1], "max_tokens": 200, **more}
            got = [json.loads(call(natural, "POST", "/v1/completions", body)[2]) for _ in range(8)]
            return [(g["usage"]["completion_tokens"], g["choices"][0]["finish_reason"]) for g in got]

        assert any("stop" == reason for _, reason in lengths())
        assert {(200, "length")} == set(lengths(ignore_eos=True))
        assert min(count for count, _ in lengths(min_tokens=100)) >= 100


@pytest.mark.process
def test_a_repeated_prompt_is_cached_only_where_the_cache_is_on(simulator):
    body = {"prompt": " ".join(f"word{i}" for i in range(100)), "max_tokens": 1}

    def cached(server):
        got = json.loads(call(server, "POST", "/v1/completions", body)[2])
        return got["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert [0, 0] == [cached(simulator) for _ in range(2)]
    with SimulatorProcess(EngineSpec(step_base=1e-3, prefix_cache=True)) as caching:
        assert [0, 96] == [cached(caching) for _ in range(2)]


@pytest.mark.process
def test_faults_are_refusals_and_cut_streams():
    spec = EngineSpec.from_mapping({"step_base": 1e-3, "faults": {"error_rate": 1.0}})
    with SimulatorProcess(spec) as failing:
        assert 500 == call(failing, "POST", "/v1/completions", {"prompt": "a"})[0]
    spec = EngineSpec.from_mapping({"step_base": 1e-3, "faults": {"cut_rate": 1.0}})
    with SimulatorProcess(spec) as cutting, pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        call(cutting, "POST", "/v1/completions", {"prompt": "a", "max_tokens": 50, "stream": True})


@pytest.mark.process
def test_the_child_ends_when_its_parent_is_killed():
    code = (
        "import os, signal\n"
        "from frontier.simulator.http.process import SimulatorProcess\n"
        "from frontier.simulator.spec import EngineSpec\n"
        "s = SimulatorProcess(EngineSpec()); s.start(); print(s.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    child = int(parent.stdout)
    assert -signal.SIGKILL == parent.returncode
    deadline = time.monotonic() + 10
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the orphan stays"
        time.sleep(0.02)


@pytest.mark.process
def test_sigterm_ends_the_child_cleanly():
    command = [sys.executable, "-m", "frontier.simulator.http.server", "--port", "0"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        told = json.loads(child.stdout.readline())
        assert child.pid == told["pid"]
        os.kill(child.pid, signal.SIGTERM)
        assert 0 == child.wait(10)
    finally:
        child.kill()
        with contextlib.suppress(ValueError):
            child.communicate()


@pytest.mark.process
def test_a_taken_port_is_said_and_stopping_twice_is_harmless(simulator):
    second = SimulatorProcess(FAST, port=port(simulator))
    with pytest.raises(MeasurementError, match="did not start"):
        second.start()
    second.stop()
    second.stop()
