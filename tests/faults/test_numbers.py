"""Numbers at the edges of floats in a run's files and in files of other tools: read, or refused
with the file named."""

import itertools
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from frontier.core.model.errors import StoreError, UsageError, exit_code
from frontier.core.model.units import MOST
from frontier.extras.exchange.formats import read_files
from frontier.read_run import load
from frontier.store.records import decode_imported, encode_imported
from frontier.store.run_dir import RunDirectory
from tests.faults.test_fuzz import AT_NIGHT, edges, fuzz, small_run
from tests.kit import servers
from tests.kit.commands import Said, frontier
from tests.kit.sweeps import own_exit_code


def numbers(tree: Any, *path: str | int) -> list[tuple[str | int, ...]]:
    """Where the numbers of a tree are."""
    if isinstance(tree, dict | list):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree[:2])
        return [place for key, item in items for place in numbers(item, *path, key)]
    return [path] if isinstance(tree, int | float) and not isinstance(tree, bool) else []


def changed(data: bytes, place: int, value: float) -> bytes:
    """The JSON with one of its numbers replaced."""
    tree = orjson.loads(data)
    found = numbers(tree)
    *above, last = found[place % len(found)]
    holder = tree
    for key in above:
        holder = holder[key]
    holder[last] = value
    return orjson.dumps(tree)


METRICS = dict.fromkeys(
    (
        "num_requests_running",
        "kv_cache_usage_perc_max",
        "num_preemptions_total",
        "prefix_cache_hits_total",
        "gpu_count",
        "prefix_cache_queries_total",
        "spec_decode_num_drafts_total",
        "spec_decode_num_accepted_tokens_total",
        "gpu_power",
        "restarts",
    ),
    1.0,
)
HOSTILE = "numbers at the edges of floats in a run's manifest and journal"
PARTS = ("manifest.json", "journal.jsonl")
"""Evidence and records have hashes: `test_fuzz` changes them with hashes that agree."""


def code_of(command: str, said: Said) -> int:
    """What a command must exit with by what it printed: 2 where it refused, and said so."""
    if said.err:
        assert said.err.startswith("error: "), said.err
        assert said.out == ""
        return 2
    return exit_code(shape["verdict"] for shape in json.loads(said.out)["shapes"]) if command == "solve" else 0


@pytest.mark.parametrize(
    "many",
    [
        pytest.param(20, marks=pytest.mark.fault(HOSTILE, times=20)),
        pytest.param(300, marks=[*AT_NIGHT, pytest.mark.fault(HOSTILE, times=300)]),
    ],
)
def test_a_run_with_any_number_in_it_is_read_or_refused_with_its_file(many: int, tmp_path: Path) -> None:
    small_run(tmp_path / "run")
    kept = {tmp_path / "run" / part: (tmp_path / "run" / part).read_bytes() for part in PARTS}

    @settings(max_examples=many, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
    @given(st.sampled_from(PARTS), st.integers(0, 10**6), edges)
    def once(part: str, place: int, value: float) -> None:
        file = tmp_path / "run" / part
        lines = kept[file].splitlines() if part == "journal.jsonl" else [kept[file]]
        at = place % len(lines)
        lines[at] = changed(lines[at], place // len(lines), value)
        file.write_bytes(b"\n".join(lines) + b"\n")
        try:
            for command in (["show", "run"], ["solve", "run", "--json"]):
                said = frontier(*command, cwd=tmp_path)
                assert said.code == code_of(command[0], said), said.err
                assert [] == [line for line in said.out.splitlines() if len(line) >= 300]
        finally:
            for file, data in kept.items():
                file.write_bytes(data)

    once()


@pytest.mark.fault("a run that an earlier version's metrics spoiled")
@pytest.mark.parametrize("value", [1e300, 1.7976931348623157e308, -1e308, None])
def test_a_run_with_metrics_of_an_infinite_mean_from_an_earlier_version_is_read(
    value: float | None, tmp_path: Path
) -> None:
    """An infinite mean was written as null. That version wrote no hashes."""
    small_run(tmp_path / "run")
    right = [point.metrics for point in load(tmp_path / "run").points()]
    manifest = tmp_path / "run/manifest.json"
    manifest.write_bytes(orjson.dumps(orjson.loads(manifest.read_bytes()) | {"hashed": None}))
    opened = RunDirectory.read(tmp_path / "run")
    for key in opened.finished():
        file = opened.evidence_file(key)
        tree = orjson.loads(file.read_bytes())
        tree["server"] = dict.fromkeys(tree["server"] | METRICS, value)
        del tree["digest"], tree["sha256"]
        file.write_bytes(orjson.dumps(tree))
    found = load(tmp_path / "run")
    assert right == [point.metrics for point in found.points()]
    assert {} == next(iter(opened.finished().values())).server
    assert 0 == frontier("report", "run", "-o", "run.json", cwd=tmp_path).code


def telling(values: tuple[str, ...]) -> servers.Handler:
    """Metrics of which each takes the next of the values at each question."""
    names = (
        "vllm:num_requests_running",
        "vllm:kv_cache_usage_perc",
        "vllm:num_preemptions_total",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
        "vllm:spec_decode_num_drafts_total",
        "vllm:spec_decode_num_accepted_tokens_total",
        "process_start_time_seconds",
    )
    value = itertools.cycle(values)

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(text="".join(f"{name} {next(value)}\n" for name in names))

    return handler


@pytest.mark.process
@pytest.mark.fault("numbers at the edges of floats in a server's metrics")
@pytest.mark.parametrize(
    "values",
    [
        ("1e308", "-1e308", "NaN"),
        *(
            pytest.param(values, marks=pytest.mark.slow)
            for values in (("1e300",), ("5e-324", "+Inf", "9223372036854775808"), ("1" + "0" * 400, "7", "-5"))
        ),
    ],
    ids=lambda values: values[0][:6],
)
def test_extreme_numbers_in_a_servers_metrics_do_not_harm_a_sweep(values: tuple[str, ...], tmp_path: Path) -> None:
    routes = servers.completing(servers.streaming(usage=True)) | {"GET /metrics": telling(values)}
    with servers.serving(routes) as url:
        text = f"endpoint: {url}\nshapes: [16/4]\nconcurrency: [1]\nrequests: 5\nrepeats: 1\nrefine: 0\n"
        (tmp_path / "sweep.yaml").write_text(f"{text}warmup: 0\nmax_time: 1s\n")
        said = frontier("sweep", "sweep.yaml", "-o", "run", cwd=tmp_path, here=True)
        assert said.code == own_exit_code(tmp_path / "run"), said.err
        assert frontier("probe", url, cwd=tmp_path).code == 0
    measurement = next(iter(RunDirectory.read(tmp_path / "run").finished().values()))  # on a busy machine others follow
    assert [] == [value for value in measurement.server.values() if not 0 <= value <= MOST]
    assert frontier("report", "run", "-o", "run.json", cwd=tmp_path).code == 0


@fuzz
@given(
    st.dictionaries(st.sampled_from(["p99_ttft", "output_throughput", "p50_tpot"]), edges | st.just("inf"), max_size=3),
    edges,
    edges,
)
def test_an_imported_point_has_possible_numbers_or_is_refused(values: dict[str, Any], n: float, c: float) -> None:
    shape = {
        "isl": {"kind": "fixed", "mean": 8, "low": 8, "high": 8},
        "osl": {"kind": "fixed", "mean": 8, "low": 8, "high": 8},
    }
    tree = {
        "deployment": "a",
        "shape": shape,
        "concurrency": c,
        "n": n,
        "repeats": 1,
        "values": values,
        "flags": [],
        "notes": [],
        "whole_run": {},
    }
    try:
        point = decode_imported(orjson.dumps(tree))
    except StoreError as error:
        assert "cannot be read" in str(error)  # noqa: PT017
        return
    assert point.load >= 1
    assert point.n >= 0
    assert [] == [e for e in point.metrics.values() if not (e.value == math.inf or abs(e.value) <= MOST)]


FIGURES = {
    "max_concurrency": 4,
    "completed": 100,
    "failed": 0,
    "duration": 10.0,
    "p99_ttft_ms": 50.0,
    "mean_ttft_ms": 20.0,
    "mean_tpot_ms": 5.0,
    "median_e2el_ms": 300.0,
    "output_throughput": 900.0,
    "request_throughput": 10.0,
    "total_input_tokens": 25_600,
    "total_output_tokens": 6400,
}
"""What vllm bench serve writes, in short."""
foreign = edges | st.sampled_from([math.nan, math.inf, 10**400, "1e300", "NaN", "9" * 400])


@fuzz
@given(st.dictionaries(st.sampled_from(sorted(FIGURES)), foreign), st.booleans())
@example({"p99_ttft_ms": 10**400}, True)
def test_aggregates_at_the_edges_of_floats_are_imported_or_refused(changes: dict[str, Any], nan: bool) -> None:
    text = json.dumps({"backend": "vllm", **FIGURES, **changes, **({"spoiled": math.nan} if nan else {})})
    with tempfile.TemporaryDirectory() as here:
        Path(here, "a.json").write_text(text)
        try:
            read = read_files([str(Path(here, "a.json"))])
        except UsageError as error:
            assert "a.json" in str(error)  # noqa: PT017
            return
    for point in read.assembled.points:
        assert decode_imported(encode_imported(point)).metrics.keys() == point.metrics.keys()
