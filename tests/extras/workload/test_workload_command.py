"""`frontier workload` as a user types it: a server under load, a real Prometheus, logs, replays and
sessions; each config is swept."""

import concurrent.futures
import http.server
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontier import load, run_sweep
from frontier.config.config_file import load_config_file, with_trace
from frontier.core.model.trials import Outcome
from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from frontier.store.run_dir import RunDirectory
from tests.extras.workload.test_server_metrics import NAMES, buckets, lengths, text
from tests.kit import logs
from tests.kit.commands import conclusive, frontier, until_said

pytestmark = pytest.mark.process


@pytest.fixture
def server() -> Iterator[str]:
    with SimulatorProcess(EngineSpec()) as simulator:
        yield simulator.url


def ask(url: str, isl: int, osl: int) -> None:
    body = {"model": "sim-8b", "prompt": " ".join(["word"] * isl), "max_tokens": osl, "ignore_eos": True}
    request = urllib.request.Request(
        f"{url}/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()


def test_from_a_running_server_to_a_sweep_of_its_traffic(server: str, tmp_path: Path) -> None:
    rng = random.Random(1)
    sent = [(max(1, round(rng.lognormvariate(5, 0.8))), max(2, round(rng.lognormvariate(3, 0.5)))) for _ in range(400)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        waiting = threading.Timer(2.0, lambda: [pool.submit(ask, server, *pair) for pair in sent])
        waiting.start()
        said = frontier("workload", f"{server.removesuffix('/v1')}/metrics", "--over", "14s", cwd=tmp_path)
        waiting.join()
    assert said.code == 0, said.err
    (tmp_path / "mine.yaml").write_text(said.out)
    config = load_config_file(tmp_path / "mine.yaml")
    assert config.deployments[0].endpoint == server
    assert config.deployments[0].model == "sim-8b"
    shape = config.shapes[0]
    for side, true in ((shape.isl, [p[0] for p in sent]), (shape.osl, [p[1] for p in sent])):
        assert side.mean == pytest.approx(np.mean(true), rel=0.1)
    dry = frontier("sweep", "mine.yaml", "--dry-run", cwd=tmp_path)
    assert dry.code == 0, dry.err
    short = (
        (tmp_path / "mine.yaml")
        .read_text()
        .replace(f"endpoint: {json.dumps(server)}", "endpoint: simulator\nrequests: 100\nrefine: 0")
    )
    (tmp_path / "short.yaml").write_text(short)
    run = run_sweep(tmp_path / "short.yaml", tmp_path / "run", virtual=True)
    assert [p.load for p in run.points() if p.valid]


def test_in_flight_is_what_the_server_had_on_average(tmp_path: Path) -> None:
    """Four streams without a pause, whose requests have one, two or three times 50 tokens of 2 ms:
    a request that comes and goes between two readings counts with its time.
    """
    stop = threading.Event()

    def stream(server: str, seed: int) -> None:
        rng = random.Random(seed)
        while not stop.is_set():
            ask(server, 20, 50 * rng.randrange(1, 4))

    with SimulatorProcess(EngineSpec(step_base=0.002)) as simulator, concurrent.futures.ThreadPoolExecutor(4) as pool:
        streams = [pool.submit(stream, simulator.url, seed) for seed in range(4)]
        try:
            said = frontier("workload", simulator.url, "--over", "6s", "--json", cwd=tmp_path)
        finally:
            stop.set()
        concurrent.futures.wait(streams)
    assert said.code == 0, said.err
    running = json.loads(said.out)["running"]
    assert running["value"] == pytest.approx(4, rel=0.15)
    assert running["low"] < running["value"] < running["high"]


MEANS = {
    "vllm:request_prompt_tokens": 100.0,
    "vllm:request_generation_tokens": 20.0,
    "vllm:time_to_first_token_seconds": 0.2,
    "vllm:e2e_request_latency_seconds": 2.5,
}


class Restarting(http.server.BaseHTTPRequestHandler):
    """Metrics of a server that ended 20 requests before it is restarted, and then four a second."""

    begun = 0.0

    def do_GET(self) -> None:
        elapsed = time.monotonic() - self.begun
        if 1.5 < elapsed < 4:
            self.send_error(503)
            return
        number = 20 if elapsed < 2 else round(4 * (elapsed - 4)) + 1
        names = (*NAMES["vllm"], "vllm:time_to_first_token_seconds", "vllm:e2e_request_latency_seconds")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text(dict.fromkeys(names, buckets([100] * number))))

    def log_message(self, *_: Any) -> None:
        pass


def test_a_restart_of_several_readings_is_watched_through(tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Restarting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        Restarting.begun = time.monotonic()
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        said = frontier("workload", url, "--over", "6s", "--json", cwd=tmp_path)
        server.shutdown()
    assert said.code == 0, said.err
    tree = json.loads(said.out)
    assert 6 <= tree["requests"] <= 14
    assert len([note for note in tree["notes"] if "anew" in note or "readings" in note]) == 2


class Kept(http.server.BaseHTTPRequestHandler):
    """A Prometheus of the last `days` in which a server gets a request a second, and three a second
    in the one hour before the last: it knows the queries that are asked, and how much a counter
    grew. All values of a histogram are in the bucket up to twice their mean.
    """

    now, days, fell = 0.0, 2.0, 0

    def do_GET(self) -> None:
        where, _, words = self.path.partition("?")
        asked = dict(urllib.parse.parse_qsl(words))
        match = re.search(r"increase\((\S+?)(_bucket|_sum|_count)\{.*\}\[(\d+)s\]\)", asked["query"])
        result: list[dict[str, Any]] = []
        if "resets(" in asked["query"]:
            result = [{"metric": {}, "value": [0, str(self.fell)]}]
        if match is not None and (mean := MEANS.get(match[1])) is not None:
            if where.endswith("query_range"):
                start, end, step = (float(asked[key]) for key in ("start", "end", "step"))
                times = np.arange(start, end + 1e-6, step)
                times = times[times > self.now - 86_400 * self.days]
                result = [{"values": [[at, str(self.grown(at, match, mean))] for at in times]}]
            elif asked["query"].startswith("count("):
                result = [{"metric": {}, "value": [0, "1"]}]
            else:
                labels = [{"le": str(2 * mean)}, {"le": "+Inf"}] if match[2] == "_bucket" else [{}]
                value = str(self.grown(float(asked["time"]), match, mean))
                pods = ("a", "b") if float(match[3]) > 86_400 else ("b",)  # of which the second followed the first
                each_value = str(float(value) / len(pods))
                result = [
                    {"metric": {"model_name": "llama", "pod": pod, **each}, "value": [0, each_value]}
                    for each in labels
                    for pod in pods
                ]
        body = json.dumps({"status": "success", "data": {"result": result}}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def grown(self, at: float, match: re.Match[str], mean: float) -> float:
        """What a counter grew by in the time before."""
        begun = max(at - float(match[3]), self.now - 86_400 * self.days)
        busy = min(at, self.now - 3_600) - max(begun, self.now - 7_200)
        requests = at - begun + 2 * max(0.0, busy)
        return requests * (mean if match[2] == "_sum" else 1.0)

    def log_message(self, *_: Any) -> None:
        pass


def test_the_busiest_hour_of_a_prometheus_has_the_rate_and_what_was_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Kept.now = time.time()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Kept) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            said = frontier("workload", "--prometheus", url, "--range", "2d", "--json", cwd=tmp_path)
            monkeypatch.delitem(MEANS, "vllm:e2e_request_latency_seconds")
            without = frontier("workload", "--prometheus", url, "--range", "2d", "--json", cwd=tmp_path)
        finally:
            server.shutdown()
    assert said.code == 0, said.err
    tree = json.loads(said.out)
    assert tree["requests"] == pytest.approx(2 * 86_400 + 7_200, rel=0.001)
    assert tree["arrivals"]["rate"] == pytest.approx(1.04, rel=0.01)
    assert tree["arrivals"]["busiest"] == pytest.approx(3, rel=0.05)
    assert tree["running"]["value"] == pytest.approx(7.5, rel=0.05)
    assert tree["running"]["low"] <= 7.5 <= tree["running"]["high"]
    assert tree["servers"] == 1, "a pod that took the place of another is no second server"
    assert json.loads(without.out)["running"] is None


@pytest.mark.parametrize(("fell", "code"), [(1, 0), (57, 5)])
def test_counters_that_fell_in_the_busiest_hour_are_a_restart_or_several_replicas(
    fell: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Kept.now = time.time()
    monkeypatch.setattr(Kept, "fell", fell)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Kept) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            said = frontier("workload", "--prometheus", url, "--range", "2d", cwd=tmp_path)
        finally:
            server.shutdown()
    assert said.code == code, said.err
    assert ("scrape each replica" in said.err) == (code == 5)
    assert ("at least" in said.out) == (code == 0)


def test_of_a_range_beyond_what_a_prometheus_keeps_the_mean_rate_is_that_of_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Kept.now = time.time()
    monkeypatch.setattr(Kept, "days", 1.0)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Kept) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            said = frontier("workload", "--prometheus", url, "--range", "7d", "--json", cwd=tmp_path)
        finally:
            server.shutdown()
    tree = json.loads(said.out)
    assert tree["seconds"] == pytest.approx(86_400, rel=0.01)
    assert tree["arrivals"]["rate"] == pytest.approx(1.083, rel=0.02)


def test_a_server_without_requests_and_one_without_metrics(server: str, tmp_path: Path) -> None:
    said = frontier("workload", server, "--over", "1s", cwd=tmp_path)
    assert said.code == 5
    assert "no request" in said.error
    assert "does not answer" in frontier("workload", "http://127.0.0.1:1", "--over", "1s", cwd=tmp_path).error
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as empty:
        threading.Thread(target=empty.serve_forever, daemon=True).start()
        said = frontier("workload", f"http://127.0.0.1:{empty.server_port}/metrics", "--over", "1s", cwd=tmp_path)
        empty.shutdown()
    assert said.code == 5


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["a.jsonl", "http://127.0.0.1:1/metrics"],
        ["a.jsonl", "b.jsonl"],
        ["missing.jsonl"],
        ["log", "--share", "5%"],
        ["log", "--from", "yesterday"],
        ["http://h/metrics", "--replay", "kept.jsonl"],
        ["--prometheus", "http://h", "--to", "2026-11-24"],
        ["http://h/metrics?key=1"],
        ["http://h/metrics", "--match", 'model_name="llama"'],
        ["http://h/metrics", "--over", "0s"],
        ["--prometheus", "http://h", "--range", "0d"],
        ["--prometheus", "http://h", "--range", "soon"],
        ["http://user:pass@h/metrics"],
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(words: list[str], tmp_path: Path) -> None:
    said = frontier("workload", *words, cwd=tmp_path)
    assert said.code == 2, said.err


def test_a_log_with_json_facts(tmp_path: Path) -> None:
    logs.write(tmp_path / "access.jsonl", logs.rows(3_000))
    said = frontier("workload", "access.jsonl", "--json", cwd=tmp_path)
    tree = json.loads(said.out)
    assert tree["schema"] == "frontier.workload/1"
    assert tree["requests"] == 3_000
    assert tree["figures"]["p50_tpot"]["low"] <= 0.012 <= tree["figures"]["p50_tpot"]["high"] + 1e-6
    assert not [planted for planted in logs.PLANTED if planted in said.out + said.err]


@pytest.mark.parametrize(
    ("words", "requests"),
    [
        (["--from", "1763996400", "--to", "2025-11-24T16:00"], 360),
        (["--from", "2025-11-24T17:30+01:00"], 180),
        (["--to", "2025-11-24 15:00:05Z"], 1),
    ],
)
def test_a_part_of_a_log_is_taken_by_its_times(words: list[str], requests: int, tmp_path: Path) -> None:
    rows = [{"startTime": 1_763_996_400 + 10 * i, "prompt_tokens": 9, "completion_tokens": 5} for i in range(720)]
    logs.write(tmp_path / "access.jsonl", [*rows, {"prompt_tokens": 9, "completion_tokens": 5}])
    said = frontier("workload", "access.jsonl", *words, "--json", cwd=tmp_path)
    assert said.code == 0, said.err
    assert json.loads(said.out)["requests"] == requests


def test_a_part_without_requests_is_refused_with_the_times_that_there_are(tmp_path: Path) -> None:
    logs.write(tmp_path / "access.jsonl", logs.rows(20))
    said = frontier("workload", "access.jsonl", "--from", "2026-01-01", cwd=tmp_path)
    assert said.code == 2
    assert "2025-11-24 16:00 UTC" in said.error


@pytest.mark.parametrize("words", [["--share", "0%"], ["--columns", "time=none"], ["--to", "2025-11-24T16:00:20"]])
def test_a_replay_of_too_few_requests_is_refused_before_it_is_written(words: list[str], tmp_path: Path) -> None:
    logs.write(tmp_path / "access.jsonl", logs.rows(500))
    said = frontier("workload", "access.jsonl", "--replay", "kept.jsonl", *words, cwd=tmp_path)
    assert said.code == 2, said.err
    assert not (tmp_path / "kept.jsonl").exists()


def test_what_is_kept_of_a_log_has_room_in_the_context(tmp_path: Path) -> None:
    rows = [row | {"session_id": f"s{i % 50}"} for i, row in enumerate(logs.rows(400))]
    logs.write(tmp_path / "access.jsonl", rows)
    for option in ("--replay", "--sessions"):
        said = frontier("workload", "access.jsonl", option, "kept.jsonl", "--context", "1000", cwd=tmp_path)
        assert said.code == 0, said.err
        assert "cut to it" in said.err
        kept = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
        lengths = [[(t["new"], t["out"]) for t in k["turns"]] for k in kept if "turns" in k]
        lengths += [[(k["input_length"], k["output_length"])] for k in kept if "turns" not in k]
        assert max(sum(map(sum, turns)) for turns in lengths) == 1_000


def test_a_replay_plays_each_arrival_with_its_own_lengths(tmp_path: Path) -> None:
    rows = list(logs.rows(2_000))
    for i, row in enumerate(rows):
        row["hash_ids"] = [i // 4, 100_000 + i] if row["prompt_tokens"] >= 1_024 else []
    logs.write(tmp_path / "access.jsonl", iter(rows))
    said = frontier("workload", "access.jsonl", "--replay", "kept.jsonl", "--share", "50%", cwd=tmp_path)
    assert said.code == 0, said.err
    kept = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert 900 <= len(kept) <= 1_100
    (tmp_path / "mine.yaml").write_text(said.out.replace('"kept.jsonl"', json.dumps(str(tmp_path / "kept.jsonl"))))
    config = with_trace(load_config_file(tmp_path / "mine.yaml"))
    shape = config.shapes[0]
    assert shape.arrivals is not None
    assert shape.arrivals.trace is not None
    assert config.loads[0] / 1000 == pytest.approx(shape.arrivals.trace.rate, rel=0.002)
    moment, first = shape.arrivals.trace.start(7)
    due = list(zip(range(50), shape.arrivals.times(shape.arrivals.trace.rate, 7), strict=False))
    for number, at in due:
        row = shape.request(number, 7, random.Random())
        expected = kept[(first + number) % len(kept)]
        assert (row.isl, row.osl) == (expected["input_length"], expected["output_length"])
        if first + number < len(kept):
            assert moment + at == pytest.approx((expected["timestamp"]) / 1000, abs=1e-3)
    short = (
        (tmp_path / "mine.yaml")
        .read_text()
        .replace(
            "endpoint: http://localhost:8000/v1", "endpoint: simulator\nsimulator: {prefix_cache: true}\nrequests: 200"
        )
    )
    (tmp_path / "short.yaml").write_text(short)
    run = run_sweep(tmp_path / "short.yaml", tmp_path / "run", virtual=True)
    assert [p for p in run.points() if p.valid]


def test_a_replay_over_http_sends_each_request_when_it_came_and_with_its_blocks(tmp_path: Path) -> None:
    rng, time_, rows = random.Random(4), 0.0, []
    for i in range(150):
        time_ += rng.expovariate(25)
        rows.append({"timestamp": round(1_000 * time_), "input_length": rng.choice([300, 700, 1_100])})
        rows[-1] |= {"output_length": rng.randrange(2, 9), "hash_ids": [i % 5, 1_000 + i, 2_000 + i]}
    logs.write(tmp_path / "access.jsonl", rows)
    said = frontier("workload", "access.jsonl", "--replay", "kept.jsonl", cwd=tmp_path)
    assert said.code == 0, said.err
    (tmp_path / "mine.yaml").write_text(said.out.replace('"kept.jsonl"', json.dumps(str(tmp_path / "kept.jsonl"))))
    values = "requests=60", "repeats=1", "refine=0", "warmup=100ms", "endpoint=simulator"
    engine = "simulator={prefix_cache: true, step_base: 2ms, per_prefill_token: 1us}"
    settings = (word for value in (*values, engine) for word in ("--set", value))
    swept = conclusive(frontier("sweep", "mine.yaml", *settings, "-o", "run", cwd=tmp_path))
    assert swept.code == 0, swept.err
    run = RunDirectory.read(tmp_path / "run")
    measurement = next(iter(run.finished().values()))  # on a busy machine others follow
    records = [record for record in run.records(measurement.trial.key) if record.outcome is Outcome.OK]
    records.sort(key=lambda record: record.index)
    assert len(records) >= 60
    trace = with_trace(load_config_file(tmp_path / "mine.yaml")).trace
    assert trace is not None
    _, first = trace.start(measurement.trial.seed)
    seen, late = set[int](), 0
    for record in records:
        row = rows[(first + record.index) % 150]
        assert (record.asked_isl, record.asked_osl) == (row["input_length"], row["output_length"])
        assert (record.prompt_tokens, record.completion_tokens) == (record.asked_isl, record.asked_osl)
        full = row["hash_ids"][: record.asked_isl // 512]
        common = 512 * sum(name in seen for name in full)
        assert record.cached_tokens in (0, common)
        late += record.cached_tokens < common
        seen |= set(full)
    assert late <= 5, "a request that comes right after the first with its beginning may not find it"
    places = [divmod(first + record.index, 150) for record in records]
    recorded = np.diff([trace.times[place] + passed * trace.seconds for passed, place in places])
    assert np.diff([record.scheduled for record in records]) == pytest.approx(recorded, rel=0.02, abs=1e-3)
    assert [point.valid for point in load(tmp_path / "run").points()] == [True]


def test_prompts_that_share_blocks_begin_alike(tmp_path: Path) -> None:
    from frontier.client.ask.prompts import PromptPlan

    rows = [
        {"timestamp": 100 * i, "input_length": 1_100, "output_length": 5, "hash_ids": [7, 8 if i % 2 else 9, 50 + i]}
        for i in range(120)
    ]
    logs.write(tmp_path / "trace.jsonl", iter(rows))
    (tmp_path / "t.yaml").write_text(
        f"endpoint: simulator\nshapes: [{{name: t, trace: '{tmp_path / 'trace.jsonl'}'}}]\nconcurrency: [2]\n"
    )
    shape = load_config_file(tmp_path / "t.yaml").shapes[0]
    assert shape.prefix == pytest.approx((119 * 512 + 118 * 512) / (120 * 1_100))
    source = PromptPlan(shape, 3).source()
    one, two, three = (str(source(i).content).split() for i in range(3))
    assert len(one) == len(two) == 1_100
    assert one[:512] == two[:512] == three[:512]
    assert one[:1_024] == three[:1_024]
    assert one[:1_024] != two[:1_024]
    assert one[1_024:] != three[1_024:]


def test_sessions_of_a_log_are_played_as_sessions(tmp_path: Path) -> None:
    rows = []
    for session in range(150):
        prompt, time_ = 100, 1_764_000_000.0 + 20 * session
        for turn in range(3):
            rows.append({"startTime": time_, "endTime": time_ + 2, "prompt_tokens": prompt, "completion_tokens": 20})
            rows[-1] |= {"session_id": f"s{session}", "request_id": f"{session}-{turn}"}
            prompt, time_ = prompt + 20 + 30, time_ + 7
    logs.write(tmp_path / "access.jsonl", sorted(rows, key=lambda row: row["startTime"]))
    said = frontier("workload", "access.jsonl", "--sessions", "kept.jsonl", cwd=tmp_path)
    assert said.code == 0, said.err
    first = json.loads((tmp_path / "kept.jsonl").read_text().splitlines()[0])
    assert first == {
        "turns": [
            {"new": 100, "out": 20, "pause": 0.0},
            {"new": 30, "out": 20, "pause": 5.0},
            {"new": 30, "out": 20, "pause": 5.0},
        ]
    }
    (tmp_path / "mine.yaml").write_text(said.out.replace('"kept.jsonl"', json.dumps(str(tmp_path / "kept.jsonl"))))
    assert load_config_file(tmp_path / "mine.yaml").shapes[0].has_sessions


MEASURE = """
import sys
from pathlib import Path
from frontier.extras.workload.log_rows import given_columns, log_rows
from frontier.extras.workload.log_summary import summary
found, _ = summary("log", log_rows(Path(sys.argv[1]), given_columns(None)), None)
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(found.requests, int(peak.split()[1]) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read where Linux tells it")
def test_a_long_log_takes_no_more_memory_than_a_short_one(tmp_path: Path) -> None:
    """At most 300 MiB, and the slope from 200,000 to 800,000 lines is none. Linux tells the peak of
    the program itself; that of getrusage begins with what started it.
    """
    taken = {}
    for number in (200_000, 800_000):
        with (tmp_path / "log.csv").open("w") as file:
            file.write("timestamp,prompt_tokens,completion_tokens,session_id\n")
            file.writelines(f"{1.7e9 + i * 1.5:.1f},{i % 9000 + 1},{i % 700 + 1},s{i // 5}\n" for i in range(number))
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(tmp_path / "log.csv")], capture_output=True, text=True, check=True
        )
        requests, taken[number] = map(int, done.stdout.split())
        assert requests == number
    assert max(taken.values()) <= 300
    assert taken[800_000] - taken[200_000] <= 20


class Growing(http.server.BaseHTTPRequestHandler):
    """Metrics of a server that gets four requests a second."""

    begun = 0.0

    def do_GET(self) -> None:
        number = 5 + int(4 * (time.monotonic() - self.begun))
        isl, osl = lengths(1, number), lengths(2, number, mu=4.5, sigma=0.7)
        series = {NAMES["vllm"][0]: buckets(isl), NAMES["vllm"][1]: buckets(osl)}
        series["vllm:time_to_first_token_seconds"] = buckets([0.2] * number, (0.1, 0.5))
        series["vllm:e2e_request_latency_seconds"] = buckets([0.75] * number, (0.5, 1.0))
        body = text(series)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus is installed here")
def test_the_days_past_of_a_real_prometheus(tmp_path: Path) -> None:
    Growing.begun = time.monotonic()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Growing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (tmp_path / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s}\n"
            f"scrape_configs: [{{job_name: llm, static_configs: [{{targets: ['127.0.0.1:{server.server_port}']}}]}}]\n"
        )
        words = ["--config.file=prometheus.yml", "--web.listen-address=127.0.0.1:0", "--storage.tsdb.path=data"]
        process = subprocess.Popen(
            ["prometheus", *words], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            url = f"http://{until_said(process, r'Listening on.*?(127[.]0[.]0[.]1:[0-9]+)')[1]}"
            time.sleep(35)
            words = ["--prometheus", url, "--range", "30s", "--match", 'model_name="llama"', "--json"]
            said = frontier("workload", *words, cwd=tmp_path)
            assert said.code == 0, said.err
            other = frontier("workload", *words[:-2], 'model_name="other"', cwd=tmp_path)
            assert other.code == 5
            mistaken = frontier("workload", *words[:-2], "model_name=", cwd=tmp_path)
            assert mistaken.code == 5
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            server.shutdown()
    tree = json.loads(said.out)
    assert tree["requests"] == pytest.approx(120, rel=0.15)
    assert tree["arrivals"]["busiest"] == pytest.approx(4.0, rel=0.15)
    assert tree["model"] == "llama"
    assert tree["running"]["value"] == pytest.approx(3, rel=0.15)
    assert tree["figures"]["p50_ttft"]["low"] == 0.1
    (tmp_path / "mine.yaml").write_text(tree["config"])
    mean = load_config_file(tmp_path / "mine.yaml").shapes[0].isl.mean
    assert mean == pytest.approx(float(np.mean(lengths(1, 160))), rel=0.35)
