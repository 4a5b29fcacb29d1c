"""Fuzzing of event streams, configs, records and run directories: bytes are read or refused, never
a crash.

Bounded by default; `-m nightly` looks much longer.
"""

import hashlib
import json
import math
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from frontier import import_files
from frontier.client import engines
from frontier.client.ask.evidence import parse_metrics
from frontier.client.ask.facts import facts_at
from frontier.client.engines.stream import message_of
from frontier.client.http.exchange import Exchange
from frontier.client.http.parse import AnswerParser, error_message, parse_all, to_record
from frontier.client.http.retry_after import retry_after
from frontier.client.http.sse import EventParser, EventTooLargeError, LineParser
from frontier.config import load_config
from frontier.config.complaints import ConfigError
from frontier.core.model.decisions import Limit
from frontier.core.model.errors import StoreError, UsageError
from frontier.core.model.trials import Outcome
from frontier.core.model.units import MOST
from frontier.core.window.from_records import window_data
from frontier.read_run import load
from frontier.store.records import decode_measurement, decode_record, encode_record
from frontier.store.run_dir import RunDirectory
from frontier.store.trial_files import sealed
from frontier.store.window_cache import unpack
from tests.kit.sweeps import ENGINES, config_text, sweep_in_virtual_time

SHORT = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
AT_NIGHT = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(1200)]
LONG = settings(max_examples=3000, deadline=timedelta(seconds=5), suppress_health_check=list(HealthCheck))


def fuzz(test: Callable[..., None]) -> Any:
    """The test briefly, and as `[True]`, much longer, in the nightly lane."""

    @pytest.mark.parametrize("long", [False, pytest.param(True, marks=AT_NIGHT)])
    def run(long: bool) -> None:
        (LONG if long else SHORT)(test)()

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


# --- event streams

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(
    [
        "choices",
        "text",
        "delta",
        "content",
        "error",
        "usage",
        "object",
        "finish_reason",
        "token_ids",
        "reasoning",
        "tool_calls",
        "function",
        "arguments",
        "name",
        "index",
        "completion_tokens",
        "prompt_tokens",
        "message",
        "detail",
        "token",
        "details",
        "generated_text",
        "done",
        "response",
        "prompt_tokens_details",
        "cached_tokens",
    ]
)
events = st.recursive(
    json_values, lambda inner: st.dictionaries(KEYS, inner, max_size=5) | st.lists(inner, max_size=3), max_leaves=20
)
pieces = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"data: ",
            b"data:",
            b"\n\n",
            b"\r\n\r\n",
            b"\r",
            b": ping\n",
            b"event: error\n",
            b"\xef\xbb\xbf",
            b"data: [DONE]\n\n",
            b"id: 1\n",
            b"retry: 5\n",
            b"\x00",
        ]
    ),
    events.map(lambda e: b"data: " + json.dumps(e).encode() + b"\n\n"),
)
streams = st.lists(pieces, max_size=25).map(b"".join)


def cut(data: bytes, marks: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(m % (len(data) + 1) for m in marks)})
    return [data[a:b] for a, b in pairwise(places)]


@fuzz
@given(streams, st.lists(st.integers(0, 10**6), max_size=20), st.sampled_from([EventParser, LineParser]))
def test_any_cutting_of_any_bytes_gives_the_same_events(data: bytes, marks: list[int], parser: Any) -> None:
    whole, torn = parser(cap=500), parser(cap=500)
    try:
        expected = whole.feed(data)
    except EventTooLargeError:
        return
    try:
        found = [event for read in cut(data, marks) for event in torn.feed(read)]
    except EventTooLargeError:
        return
    assert expected == found


def reads_of(name: str, api: str, status: int, kind: str, reads: list[bytes]) -> None:
    exchange = Exchange(0.0, [0.1 * i for i in range(len(reads))], reads, status, {"content-type": kind}, end=9.0)
    parser = AnswerParser(exchange, engines.ENGINES[name], api)
    while parser.parse(3):
        pass
    record = to_record(parser, 0.0)
    assert record.outcome in Outcome
    assert (record.error is None) is (record.outcome is Outcome.OK)
    assert len(record.error or "") < 1000
    assert len(record.finish_reason or "") <= 60
    assert decode_record(encode_record(record)).outcome is record.outcome


@fuzz
@given(
    st.sampled_from([(n, a) for n, d in engines.ENGINES.items() for a in d.paths]),
    st.sampled_from([200, 200, 200, 429, 500]),
    st.sampled_from(["text/event-stream", "application/x-ndjson", "text/html"]),
    streams,
    st.lists(st.integers(0, 10**6), max_size=8),
)
def test_whatever_a_server_streams_is_one_record(
    dialect: tuple[str, str], status: int, kind: str, data: bytes, marks: list[int]
) -> None:
    reads_of(*dialect, status, kind, cut(data, marks))


@pytest.mark.parametrize("depth", [10, 200, 500, 1000, 100_000])
@pytest.mark.parametrize("status", [200, 500])
def test_deeply_nested_answers_are_refused_without_recursion(depth: int, status: int) -> None:
    for head, tail in ((b'{"error":', b"}"), (b"[", b"]"), (b'{"choices":[', b"]}")):
        body = head * depth + b"1" + tail * depth
        for name, dialect in engines.ENGINES.items():
            for api in dialect.paths:
                frame = b"data: " + body + b"\n\n" if dialect.framing == "sse" else body + b"\n"
                reads_of(name, api, status, "text/event-stream", [frame if status == 200 else body])


@fuzz
@given(events)
@example({"error": {"message": {"detail": [{"msg": None}]}}})
def test_any_error_object_has_a_text(error: object) -> None:
    assert isinstance(message_of(error), str)


@fuzz
@given(st.binary(max_size=200), st.text(max_size=40))
def test_any_error_body_and_header_has_a_text(body: bytes, wait: str) -> None:
    exchange = Exchange(0.0, [0.1], [body], 503, {"retry-after": wait})
    assert error_message(exchange).startswith("HTTP 503")
    assert 0 <= (retry_after(exchange) or 0.0) < math.inf


@pytest.mark.parametrize("count", [10**30, 2**64 - 1, 10**13, -1, 1e300, "16", True, None])
def test_a_count_that_no_answer_can_have_is_not_known(count: object) -> None:
    usage = {"prompt_tokens": count, "completion_tokens": count, "prompt_tokens_details": {"cached_tokens": count}}
    event = json.dumps({"choices": [{"text": "a", "finish_reason": "stop"}], "usage": usage}).encode()
    exchange = Exchange(
        0.0, [0.1], [b"data: " + event + b"\n\ndata: [DONE]\n\n"], 200, {"content-type": "text/event-stream"}
    )
    record = to_record(parse_all(exchange, engines.ENGINES["openai"], "completions"), 0.0)
    assert (None, None, None) == (record.prompt_tokens, record.completion_tokens, record.cached_tokens)
    assert decode_record(encode_record(record)) == record


metric_names = st.sampled_from(
    [
        "vllm:num_requests_running",
        "vllm:generation_tokens_total",
        "vllm:kv_cache_usage_perc",
        "sglang:token_usage",
        "process_start_time_seconds",
        "llamacpp:requests_processing",
    ]
)
EDGES = (
    1e300,
    -1e300,
    1.7976931348623157e308,
    -1e308,
    5e-324,
    1e18,
    1e19,
    -1e18,
    2.0**63,
    2**63,
    2**64 - 1,
    10**12,
    10**18,
    1e8,
    1e11,
    1e15,
    -1,
    -5.5,
    0,
    0.1,
    1e9,
)
"""Numbers where floats, 64 bits, dates and what has a meaning end."""
edges = st.sampled_from(EDGES)
metric_lines = st.builds(
    lambda name, labels, value: f"{name}{labels} {value}",
    metric_names,
    st.sampled_from(["", "{}", '{a="b"}', '{a="', '{a="b"', "{a=b}", '{a="\\"}', "{,}", '{a="b",,}']),
    st.one_of(
        st.floats().map(str),
        st.text(max_size=10),
        edges.map(str),
        st.sampled_from(["NaN", "+Inf", "-Inf", "1e999", "1 2 3", "1" + "0" * 400, "1 1e300", f"1 1{'0' * 400}"]),
    ),
)


@fuzz
@given(st.lists(metric_lines, max_size=8).map(lambda lines: "\n".join(lines).encode(errors="replace")))
def test_any_metrics_text_is_finite_numbers_or_refused(text: bytes) -> None:
    try:
        found = parse_metrics(text)
    except ValueError:
        return
    assert [] == [value for value in facts_at(found).values() if not 0 <= value <= 8 * MOST]


# --- configs

yaml_bits = st.sampled_from(
    [
        "endpoint: simulator\n",
        "shapes: [64/8]\n",
        "shapes: ",
        "concurrency: [1, 2]\n",
        "concurrency: 1..",
        "sla: {",
        "p99_ttft: 500ms",
        ": ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        "\n",
        "  ",
        "\t",
        "&a ",
        "*a",
        "!!",
        "!!str ",
        "|\n",
        ">\n",
        "'",
        '"',
        "1e400",
        "0x1F",
        "~",
        "on",
        "2024-01-01",
        "<<: ",
        "%YAML 1.1\n",
        "---\n",
        "...\n",
        "# ",
        "api_key_env: ",
        "budget: {",
        "deployments:\n  - ",
        "name: ",
        "hardware: ",
        "simulator: {",
        "timeouts: {",
        "headers: {",
        "\x00",
        "\ufeff",
        "🙂",
    ]
)
texts = st.lists(yaml_bits | st.text(max_size=12), max_size=25).map("".join)


@fuzz
@given(texts)
@example("endpoint: simulator\nshapes: [64/8]\nsimulator: {step_base: 1e999}\n")
def test_any_text_is_a_config_or_a_complaint(text: str) -> None:
    try:
        config = load_config(text, "sweep.yaml")
    except ConfigError as error:
        assert error.complaints  # noqa: PT017  # whether it raises is what is open
        assert [] == [c for c in error.complaints if not c.what]  # noqa: PT017
    else:
        assert len(config.identity()) == 64


tree = st.dictionaries(
    st.sampled_from(
        [
            "endpoint",
            "shapes",
            "concurrency",
            "sla",
            "requests",
            "repeats",
            "warmup",
            "max_time",
            "budget",
            "refine",
            "prompts",
            "seed",
            "deployments",
            "headers",
            "extra_body",
            "timeouts",
            "tls",
            "hardware",
            "price",
            "simulator",
            "objectives",
            "api",
            "model",
            "gpus",
            "metrics",
            "min_time",
            "proxy",
            "api_key_env",
            "api_key_file",
            "quality",
        ]
    ),
    events | json_values,
    max_size=8,
)


@fuzz
@given(tree)
def test_any_tree_is_a_config_or_a_complaint(given_tree: dict[str, Any]) -> None:
    text = json.dumps({"endpoint": "simulator", "shapes": ["64/8"]} | given_tree)
    try:
        load_config(text, "sweep.yaml")
    except ConfigError as error:
        assert error.complaints  # noqa: PT017


# --- what is on the disk


@fuzz
@given(st.binary(max_size=200) | st.dictionaries(st.text(max_size=10), json_values, max_size=6).map(orjson.dumps))
def test_any_line_is_a_record_or_an_error(line: bytes) -> None:
    try:
        decode_record(line)
    except StoreError as error:
        assert "cannot be read" in str(error)  # noqa: PT017


@fuzz
@given(json_values)
def test_any_tree_is_a_measurement_or_an_error(found: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        decode_measurement(found)


@fuzz
@given(st.binary(max_size=300))
def test_any_bytes_are_no_sample(data: bytes) -> None:
    assert unpack(data, "x") is None
    assert unpack(b"PK\x03\x04" + data, "x") is None


SMALL = (
    config_text(ENGINES["smooth"], requests=60)
    .replace("[1, 2, 4, 8, 16, 32, 64]", "[1, 4]")
    .replace("repeats: 3", "repeats: 1")
)


def small_run(path: Path) -> None:
    """A finished run of two trials of 60 requests, and one of each repeat that its decision asks
    for.
    """
    sweep_in_virtual_time(path, SMALL)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz") / "run"
    small_run(path)
    with patch("frontier.store.trial_files._TICK", 0):  # records of a moment ago are cached, to be damaged here too
        load(path).points()
    return path


def damage(path: Path, at: int, how: str, filler: bytes) -> None:
    data = path.read_bytes()
    at %= len(data) + 1
    if how == "cut":
        path.write_bytes(data[:at])
    elif how == "overwrite":
        path.write_bytes(data[:at] + filler + data[at + len(filler) :])
    else:
        path.write_bytes(data[:at] + filler + data[at:])


def damages(many: int, *marks: pytest.MarkDecorator) -> Any:
    """A case with so many damages."""
    return pytest.param(many, marks=[*marks, pytest.mark.fault("a file of the run cut or damaged", times=many)])


@pytest.mark.parametrize("many", [damages(10), damages(100, pytest.mark.slow), damages(1500, *AT_NIGHT)])
def test_a_run_damaged_anywhere_is_read_or_refused_and_never_a_crash(many: int, run: Path, imported_run: Path) -> None:
    """One byte string put somewhere, or an end cut off, in any of the run's files; then everything
    is asked of it.
    """
    files = [run / "manifest.json", run / "journal.jsonl", run / "config.yaml"]
    files += sorted((run / "trials").iterdir())[:2] + sorted((run / "evidence").iterdir())[:2]
    files += sorted((run / "derived" / "samples").iterdir())[:2]
    files += [imported_run / "imported.jsonl", imported_run / "evidence" / "imported.json"]

    @settings(max_examples=many, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(
        st.sampled_from(files),
        st.integers(0, 10**6),
        st.sampled_from(["cut", "overwrite", "insert"]),
        st.binary(min_size=1, max_size=12) | st.sampled_from([b"null", b"-1", b"1e999", b'"', b"[]", b"{}", b"\n"]),
    )
    def once(file: Path, at: int, how: str, filler: bytes) -> None:
        whole = file.read_bytes()
        try:
            damage(file, at, how, filler)
            try:
                found = load(imported_run if imported_run in file.parents else run)
                found.points()
                found.solve()
            except (StoreError, ConfigError, UsageError) as error:  # a cut config may have lost its SLA
                assert str(error)  # noqa: PT017
        finally:
            file.write_bytes(whole)

    once()


@pytest.fixture(scope="module")
def imported_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("fuzz-import")
    (here / "t.csv").write_text(
        "concurrency,request_throughput,output_throughput,p99_ttft_ms\n1,2.5,300,40\n4,9,1100,55\n"
    )
    import_files([here / "t.csv"], here / "run", deployment="a", shape="256/64")
    return here / "run"


EDGES = st.sampled_from(
    [1e308, -1e308, 1e300, 5e-324, -0.0, 0, -1, 2**53, 2**63, -(2**63), 2**64 - 1, True, None, "1", "", [], {}, 1e16]
)


def numbers(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of the numbers in a tree."""
    if isinstance(tree, dict | list):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        return [place for key, value in items for place in numbers(value, (*path, key))]
    return [path] if isinstance(tree, int | float) and not isinstance(tree, bool) else []


def put(tree: Any, path: tuple[Any, ...], value: object) -> None:
    for key in path[:-1]:
        tree = tree[key]
    tree[path[-1]] = value


@pytest.mark.parametrize(
    "many",
    [
        pytest.param(n, marks=[*marks, pytest.mark.fault("a stored number at the edge of what a float holds", times=n)])
        for n, marks in ((25, ()), (500, AT_NIGHT))
    ],
)
def test_numbers_at_the_edges_with_every_hash_in_place_are_read_or_refused(
    many: int, run: Path, imported_run: Path
) -> None:
    """A stranger's run: evidence, a record or an aggregate has a number that no sweep writes, and
    its hashes agree.
    """
    key = "default-256x32-c0004-grid-r1"
    evidence, trial = run / "evidence" / f"{key}.json", run / "trials" / f"{key}.jsonl"
    aggregates, digest = imported_run / "imported.jsonl", imported_run / "evidence" / "imported.json"
    whole = {file: file.read_bytes() for file in (evidence, trial, aggregates, digest)}

    def changed_line(file: Path, at: int, which: int, edge: object) -> bytes:
        lines = whole[file].splitlines()
        tree = orjson.loads(lines[which % len(lines)])
        places = numbers(tree)
        put(tree, places[at % len(places)], edge)
        lines[which % len(lines)] = orjson.dumps(tree)
        return b"\n".join(lines) + b"\n"

    @settings(max_examples=many, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(st.sampled_from(["evidence", "record", "aggregate"]), st.integers(0, 10**4), st.integers(0, 10**4), EDGES)
    def once(what: str, at: int, which: int, edge: object) -> None:
        tree = orjson.loads(whole[evidence])
        del tree["digest"]
        try:
            if what == "aggregate":
                aggregates.write_bytes(changed_line(aggregates, at, which, edge))
                digest.write_bytes(sealed({"sha256": hashlib.sha256(aggregates.read_bytes()).hexdigest()}))
            elif what == "record":
                trial.write_bytes(changed_line(trial, at, which, edge))
                sha256 = hashlib.sha256(trial.read_bytes()).hexdigest()
                evidence.write_bytes(sealed(tree | {"bytes": trial.stat().st_size, "sha256": sha256}))
            else:
                places = numbers(tree)
                put(tree, places[at % len(places)], edge)
                evidence.write_bytes(sealed(tree))
            try:
                found = load(imported_run if what == "aggregate" else run)
                found.points()
                found.solve([Limit("p99_ttft", 0.05)], point_estimates=True)
            except (StoreError, UsageError) as error:
                assert str(error)  # noqa: PT017
        finally:
            for file, data in whole.items():
                file.write_bytes(data)

    once()


def test_records_of_the_wrong_type_are_refused_with_the_file_named(tmp_path: Path) -> None:
    """A foreign run: each line is a record by its names, and nonsense by its values."""
    path = tmp_path / "run"
    small_run(path)
    opened = RunDirectory.read(path)
    key, measurement = next(iter(opened.finished().items()))
    file = opened.trial_file(key)
    line = orjson.loads(file.read_bytes().splitlines()[0]) | {"sent": "yesterday"}
    whole = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(orjson.dumps(line) + b"\n" + b"".join(whole[1:]))
    evidence = orjson.loads(opened.evidence_file(key).read_bytes())
    evidence |= {"bytes": file.stat().st_size, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    del evidence["digest"]
    opened.evidence_file(key).write_bytes(sealed(evidence))
    with pytest.raises(StoreError, match="cannot be read") as caught:
        load(path)
    assert str(file) in str(caught.value)
    assert window_data(measurement, []).n == 0
