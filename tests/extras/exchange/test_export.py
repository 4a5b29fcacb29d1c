"""Exports say what the points say, harm nobody who opens them, and come back through import."""

import csv
import importlib
import io
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from frontier.cli.main import run
from frontier.config import parse_sla
from frontier.core.claim.pareto import frontier
from frontier.core.claim.solver import solve
from frontier.core.model.errors import UsageError
from frontier.core.model.points import Estimate, Flag, Frontier, Point
from frontier.core.model.shapes import Shape
from frontier.extras.exchange import formats
from frontier.extras.exchange.assemble import assemble
from frontier.extras.exchange.export import family_name, parquet_bytes, prometheus_text
from frontier.read_run import load
from frontier.show.point_rows import FIRST, csv_text, guarded, table, unguarded
from frontier.show.view.series_view import series_views
from tests.kit.golden import assert_golden_row
from tests.kit.peer_files import assembled, said, vllm

AXES = ("output_throughput", "p99_ttft")


def measured(concurrency: int, deployment: str = "default") -> Point:
    """A point with intervals, as from a sweep."""
    rate = 100.0 * concurrency
    return Point(
        deployment,
        Shape.of(1024, 256),
        concurrency,
        {
            "output_throughput": Estimate(rate, 0.98 * rate, 1.02 * rate, 2000, 0.98 * rate, 1.02 * rate),
            "request_throughput": Estimate(rate / 256, rate / 260, rate / 250, 2000),
            "p99_ttft": Estimate(0.01 * concurrency, 0.009 * concurrency, math.inf, 2000),
            "p50_ttft": Estimate(0.005 * concurrency, 0.0049 * concurrency, 0.0051 * concurrency, 2000),
            "mean_ttft": Estimate(0.006 * concurrency, 0.0059 * concurrency, 0.0061 * concurrency, 2000),
            "error_rate": Estimate(0.0, 0.0, 0.002, 2000),
        },
        2000,
    )


def points() -> list[Point]:
    broken = Point(
        "default",
        Shape.of(1024, 256),
        64,
        {"p99_ttft": Estimate(math.inf, 1.0, math.inf, 900)},
        900,
        flags=(Flag("errors", "5%", "1%", "look"),),
    )
    return [measured(8), measured(16), broken]


def frontiers(mine: list[Point]) -> list[Frontier]:
    return [frontier(mine, AXES)]


def cells(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# --- tables


def test_csv_has_values_and_interval_ends_and_nothing_for_nothing() -> None:
    rows = cells(csv_text(table(series_views(points(), frontiers(points())))))
    assert list(FIRST) == list(rows[0])[: len(FIRST)]
    first, _, broken = rows
    assert ("8", "2000", "true", "true", "1024/256", "1024") == (
        first["concurrency"],
        first["n"],
        first["valid"],
        first["on_frontier"],
        first["shape"],
        first["isl"],
    )
    assert ("0.08", "0.072", "") == (first["p99_ttft"], first["p99_ttft_low"], first["p99_ttft_high"])
    assert ("false", "false", "errors", "inf", "") == (
        broken["valid"],
        broken["on_frontier"],
        broken["flags"],
        broken["p99_ttft"],
        broken["output_throughput"],
    )


def test_columns_are_in_the_same_order_every_time() -> None:
    latencies = [f"{p}_{name}" for p in ("p50", "p75", "p90", "p95", "p99") for name in ("tpot", "interactivity")]
    point = replace(measured(8), metrics={name: Estimate.without_interval(1.0, 9) for name in reversed(latencies)})
    assert latencies == [name for name in table(series_views([point])).columns if name in latencies]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", " =1", '=HYPERLINK("http://x")'])
def test_no_cell_is_a_formula(text: str) -> None:
    assert "'" + text == guarded(text)
    assert text == unguarded(guarded(text))
    mine = [measured(8, deployment=text)]
    assert "'" + text == cells(csv_text(table(series_views(mine))))[0]["deployment"]


@pytest.mark.parametrize("text", ["\t=x", "\r=1", "\n=1", "a\r\n=1,2"])
def test_no_cell_ends_its_line(text: str) -> None:
    (row,) = cells(csv_text(table(series_views([measured(8, deployment=text)]))))
    assert not row["deployment"].lstrip().startswith("=")
    assert "8" == row["concurrency"]


def test_harmless_text_is_left_alone() -> None:
    assert "a=b" == guarded("a=b")
    assert "'quoted'" == unguarded("'quoted'")


def test_csv_comes_back_with_its_values() -> None:
    mine = [measured(8, "fp8"), measured(16, "fp8"), measured(8, "bf16")]
    found = formats.read_results("points.csv", csv_text(table(series_views(mine))).encode())
    back = assemble([found]).points
    assert [(p.deployment, p.load, p.shape, p.n) for p in mine] == [(p.deployment, p.load, p.shape, p.n) for p in back]
    for there, here in zip(mine, back, strict=True):
        assert {name: e.value for name, e in there.metrics.items()} == {
            name: e.value for name, e in here.metrics.items()
        }
        assert {-math.inf} == {e.low for e in here.metrics.values()}


def test_infinite_percentiles_come_back_infinite() -> None:
    mine = assemble([said(vllm(failed=2, completed=98))]).points
    found = formats.read_results("points.csv", csv_text(table(series_views(mine))).encode())
    (back,) = assemble([found]).points
    assert math.isinf(back.metrics["p99_ttft"].value)
    assert 0.02 == back.metrics["error_rate"].value


def test_parquet_is_typed_and_has_units() -> None:
    parquet: Any = importlib.import_module("pyarrow.parquet")
    made = table(series_views(points(), frontiers(points())))
    read = parquet.read_table(io.BytesIO(parquet_bytes(made)))
    assert list(made.columns) == read.column_names
    assert [8, 16, 64] == read.column("concurrency").to_pylist()
    assert [True, True, False] == read.column("valid").to_pylist()
    assert [0.08, 0.16, math.inf] == read.column("p99_ttft").to_pylist()
    assert [None, None, None] == read.column("p99_ttft_high").to_pylist()
    assert b"s" == read.schema.field("p99_ttft").metadata[b"unit"]
    assert b"tok/s" == read.schema.field("output_throughput_low").metadata[b"unit"]


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"needs pyarrow.*\n  \S+ -m pip install pyarrow$"):
        parquet_bytes(table(series_views(points())))


# --- Prometheus


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_prometheus_reads_every_gauge() -> None:
    mine = points()[:2]
    decided = solve([mine[0]], parse_sla("mean_ttft<=1s"), point_estimates=True)
    read = samples(prometheus_text(series_views(mine, frontiers(mine), (), [decided])))
    at = (("concurrency", "8"), ("deployment", "default"), ("shape", "1024/256"))
    assert 0.08 == read["frontier_p99_ttft_seconds", at]
    assert 0.072 == pytest.approx(read["frontier_p99_ttft_low_seconds", at])
    assert math.inf == read["frontier_p99_ttft_high_seconds", at]
    assert (1, 1, 2000) == (
        read["frontier_point_valid", at],
        read["frontier_point_on_frontier", at],
        read["frontier_point_requests", at],
    )
    of = (("deployment", "default"), ("shape", "1024/256"))
    assert 8 == read["frontier_operating_point_concurrency", of]
    assert 1 == read["frontier_verdict", (*of, ("verdict", "meets"))]
    assert 0 == read["frontier_verdict", (*of, ("verdict", "violates"))]


def test_prometheus_escapes_what_is_hostile() -> None:
    evil = 'a"b\\c\nd'
    read = samples(prometheus_text(series_views([measured(8, evil)])))
    assert any(dict(labels)["deployment"] == evil for _, labels in read)
    assert "frontier_p99_9_tpot_seconds" == family_name("p99.9_tpot")


# --- the command


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    from tests.kit.peer_files import DATA

    assert 0 == run(["import", *map(str, (DATA / "inferencex-result").glob("*.json")), "-o", "runs/peer"])
    return tmp_path


def test_the_command_writes_each_format(imported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert 0 == run(["export", "runs/peer", "--csv"])
    assert 8 == len(cells(capsys.readouterr().out))
    for option, name in (("--csv", "p.csv"), ("--parquet", "p.parquet"), ("--prometheus", "p.prom")):
        assert 0 == run(["export", "runs/peer", option, "-o", f"out/{name}"])
        assert f"wrote out/{name}" in capsys.readouterr().err
    assert 0 == run(["export", "runs/peer", "--prometheus", "--sla", "p99_ttft<=1s"])
    assert (
        'frontier_verdict{deployment="MiniMaxAI-MiniMax-M2.5",shape="1024/1024",verdict="unproven"} 1.0'
        in capsys.readouterr().out
    )
    assert 0 == run(["import", "out/p.csv", "-o", "runs/back"])
    there, back = assembled("inferencex-result/*").points, load(imported / "runs" / "back").points()
    assert {p.load for p in there} == {p.load for p in back} == {2**k for k in range(2, 10)}


WRONG_OPTIONS = {
    "no format": [],
    "parquet to a terminal": ["--parquet"],
    "below a file": ["--csv", "-o", "file/x.csv"],
}


@pytest.mark.parametrize("what", WRONG_OPTIONS)
def test_the_command_says_what_is_missing(imported: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    capsys.readouterr()
    (imported / "file").write_text("")
    assert 2 == run(["export", "runs/peer", *WRONG_OPTIONS[what]])
    assert_golden_row("messages", capsys.readouterr().err)
