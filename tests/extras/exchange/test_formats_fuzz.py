"""Whatever a foreign file holds, it is read or refused with a word, never a traceback, and never
into nonsense."""

import json
import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frontier.config import load_config
from frontier.core.model.errors import UsageError
from frontier.core.model.metrics import metric
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Outcome, Record
from frontier.extras.exchange import formats
from frontier.extras.exchange.assemble import assemble, config_text
from frontier.store.records import decode_imported, encode_imported
from tests.kit.peer_files import DATA, aiperf, aiperf_lines, genai_bench, guidellm, vllm, vllm_detailed

BOUNDED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def closed_loop(n: int = 40, streams: int = 4) -> list[Record]:
    """A plain closed loop: every request takes a second, the streams a quarter apart."""
    records = []
    for i in range(n):
        sent = (i // streams) * 1.0 + (i % streams) * 0.25
        records.append(
            Record(
                i,
                i % streams,
                sent,
                Outcome.OK,
                sent + 0.999,
                16,
                4,
                first=sent + 0.1,
                last=sent + 0.999,
                prompt_tokens=16,
                completion_tokens=4,
                events=4,
                reads=4,
                gaps=(300_000, 300_000, 299_000),
            )
        )
    return records


def real(name: str) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((DATA / name).read_bytes())
    return tree


TREES: dict[str, Callable[[], Any]] = {
    "vllm": vllm,
    "vllm detailed": lambda: vllm_detailed(closed_loop(), 4),
    "aiperf": aiperf,
    "guidellm": guidellm,
    "genai-bench": genai_bench,
    "inference-perf": lambda: real("inference-perf/stage-2.json"),
    "inferencex": lambda: real("inferencex-agg/agentic-c64.json"),
    "llm-d": lambda: {
        "version": "0.2",
        "run": {"uid": "x"},
        "scenario": {
            "load": {
                "standardized": {
                    "tool": "t",
                    "concurrency": 8,
                    "input_seq_len": {"value": 32},
                    "output_seq_len": {"value": 8},
                }
            }
        },
        "results": {
            "request_performance": {
                "aggregate": {
                    "requests": {"total": 9, "failures": 0},
                    "latency": {"time_to_first_token": {"units": "s", "mean": 0.1, "p99": 0.2}},
                    "throughput": {"output_token_rate": {"units": "tokens/s", "mean": 5.0}},
                }
            }
        },
    },
    "aiperf lines": lambda: [json.loads(line) for line in aiperf_lines(closed_loop()).splitlines()],
}

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        [
            1e308,
            -1e308,
            10**400,
            "inf",
            "nan",
            "1e9",
            "=1",
            "\x00\x1b[2J",
            "../../x",
            "\u202e",
            "sk-" + "a" * 40,
            0.0,
            -0.0,
            1e-300,
            [],
            {},
            [[]],
            [None],
            {"unit": "ms"},
            [1, "x"],
            {"mean": "x"},
        ]
    ),
    st.lists(st.floats(), max_size=3),
)


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path into a tree, long lists by their first items."""
    found = [path] if path else []
    if isinstance(tree, dict):
        for key, value in tree.items():
            found += places(value, (*path, key))
    elif isinstance(tree, list):
        for i, value in enumerate(tree[:4]):
            found += places(value, (*path, i))
    return found


def changed(tree: Any, path: tuple[Any, ...], value: Any, remove: bool) -> Any:
    tree = deepcopy(tree)
    at = tree
    for part in path[:-1]:
        at = at[part]
    if remove:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return tree


def spelled(tree: Any, lines: bool) -> bytes:
    text = "\n".join(map(json.dumps, tree)) if lines and isinstance(tree, list) else json.dumps(tree)
    return text.encode()


def import_whatever(data: bytes, name: str | None = None) -> None:
    """Read and put together; what comes out is sound, or the refusal says what and where."""
    try:
        found = formats.read_results("foreign.file", data, name)
        made = assemble([found])
    except UsageError as error:
        said = str(error)
        assert said
        assert "\x1b" not in said
        assert len(said) < 2_000
        return
    for p in made.points:
        assert p.load >= 1
        assert p.n >= 0
        for named, e in p.metrics.items():
            assert metric(named).name == named
            assert not math.isnan(e.value)
            assert e.value >= 0
        assert p == decode_imported(encode_imported(p))
    for measurement, records in made.trials:
        assert measurement.window.end > measurement.window.start
        assert {math.isfinite(r.sent) and math.isfinite(r.end) for r in records} == {True}
    load_config(config_text(made), "config.yaml")


@BOUNDED
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    import_whatever(data)


@BOUNDED
@given(st.text(max_size=300), st.sampled_from(sorted(formats.FORMATS)))
def test_any_text_is_read_or_refused_under_any_name(text: str, name: str) -> None:
    import_whatever(text.encode("utf-8", "surrogatepass"), name)


@pytest.mark.parametrize("kind", TREES)
@BOUNDED
@given(data=st.data())
def test_a_changed_file_is_read_or_refused(kind: str, data: st.DataObject) -> None:
    tree = TREES[kind]()
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(tree)))
        tree = changed(tree, path, data.draw(ODD), data.draw(st.booleans()))
        if not places(tree):
            break
    import_whatever(spelled(tree, kind == "aiperf lines"))


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("name", formats.FORMATS)
def test_every_file_is_read_or_refused_as_every_format(kind: str, name: str) -> None:
    import_whatever(spelled(TREES[kind](), kind == "aiperf lines"), name)


@pytest.mark.parametrize("kind", TREES)
def test_unchanged_they_are_all_read(kind: str) -> None:
    found = formats.read_results("f", spelled(TREES[kind](), kind == "aiperf lines"))
    made = assemble([found], shape=Shape.of(16, 4))
    assert made.points or made.trials


COLUMNS = st.sampled_from(
    [
        "concurrency",
        "shape",
        "isl",
        "osl",
        "n",
        "failed",
        "p99_ttft",
        "p99_ttft_ms",
        "output_throughput",
        "error_rate",
        "deployment",
        "model",
        "gpus",
        "valid",
        "flags",
        "p99_ttft_low",
        "x",
    ]
)
CELLS = st.one_of(
    st.sampled_from(["8", "1024/256", "0.1", "inf", "-1", "", "=1+1", "1e400", "nan", "true"]),
    st.text(max_size=8),
)


@BOUNDED
@given(st.lists(COLUMNS, min_size=2, max_size=8), st.lists(st.lists(CELLS, max_size=8), max_size=4))
def test_any_table_is_read_or_refused(header: list[str], rows: list[list[str]]) -> None:
    text = "\n".join(",".join(cells) for cells in [header, *rows])
    import_whatever(text.encode("utf-8", "surrogatepass"))
