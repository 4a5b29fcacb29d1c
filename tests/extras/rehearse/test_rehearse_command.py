"""`frontier rehearse`: the curve of a run, its hours, what is missing, and what cannot be one."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from frontier.config import load_config
from frontier.extras.rehearse.bundle import missing
from frontier.extras.rehearse.endpoints_rules import HEAD, NOTICE
from frontier.extras.rehearse.regions import Regions
from frontier.extras.rehearse.rehearsal import rehearse
from frontier.read_run import load
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import sweep_in_virtual_time

SPEEDS = {
    1: (179, 192.3, 32),
    4: (647, 172.4, 38),
    8: (1148, 151.5, 46),
    16: (1874, 122.0, 62),
    24: (2375, 102.0, 78),
    32: (2742, 87.7, 94),
    64: (3567, 56.2, 158),
}
"""Tokens per second, those of a user, and milliseconds of P90 TTFT by concurrency."""
TOKENS = 128
ENGINE = "simulator: {step_base: 5ms, per_decode: 60us, per_prefill_token: 20us, noise: 0.05}"


def table(speeds: dict[int, tuple[float, float, float]], failed: float = 0.0) -> str:
    """A table of points, to be imported."""
    head = "concurrency,isl,osl,n,failed,output_throughput,request_throughput,p90_tpot_ms,p90_ttft_ms\n"
    rows = (
        f"{c},1024,{TOKENS},5000,{round(5000 * failed)},{tps},{tps / TOKENS},{1000 / user},{ttft}\n"
        for c, (tps, user, ttft) in speeds.items()
    )
    return head + "".join(rows)


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path


def imported(cwd: Path, text: str, name: str = "run") -> str:
    (cwd / f"{name}.csv").write_text(text)
    said = frontier("import", f"{name}.csv", "-o", f"runs/{name}", cwd=cwd)
    assert said.code == 0, said.err
    return f"runs/{name}"


def rehearsed(cwd: Path, run: str, *more: str) -> dict[str, Any]:
    said = frontier("rehearse", run, "--json", *more, cwd=cwd)
    assert said.code == 0, said.err
    tree: dict[str, Any] = json.loads(said.out)
    return tree


def test_the_worked_example_has_its_regions_hours_and_sums(cwd: Path) -> None:
    run = imported(cwd, table(SPEEDS))
    tree = rehearsed(cwd, run, "--benchmark", "llama3_1-8b")
    points = {p["concurrency"]: p for p in tree["points"]}
    assert NOTICE == tree["notice"]
    regions = ["low_latency", "low_concurrency", *["med_concurrency"] * 2, *["high_concurrency"] * 3]
    assert regions == [p["region"] for p in points.values()]
    hours = {c: round(p["one_pass"] / 3600, 2) for c, p in points.items()}
    assert {1: 2.66, 4: 0.73, 8: 0.41, 16: 0.25, 24: 0.20, 32: 0.17, 64: 0.13} == hours
    windows = {c: round(p["with_window"] / 3600, 2) for c, p in points.items()}
    assert {1: 13.28, 4: 3.67, 8: 2.07, 16: 1.27, 24: 1.00, 32: 0.87, 64: 0.67} == windows
    assert 22.8 == round(tree["seconds"]["with_window"] / 3600, 1)
    assert 4.8 == round(tree["seconds"]["whole_run"] / 3600, 1)
    assert [1, 4, 16, 64] == [c for c, p in points.items() if p["accuracy"]]
    assert {c: round(user, 1) for c, (_, user, _) in SPEEDS.items()} == {
        c: round(p["tps_per_user"], 1) for c, p in points.items()
    }
    assert tree["uncovered"] == []
    assert_golden_row("answers", frontier("rehearse", run, "--benchmark", "llama3_1-8b", cwd=cwd).out)


def test_a_short_pass_lasts_as_long_as_the_rules_ask(cwd: Path) -> None:
    speeds = {c: (100 * tps, 100 * user, ttft / 100) for c, (tps, user, ttft) in SPEEDS.items()}
    tree = rehearsed(cwd, imported(cwd, table(speeds)), "--benchmark", "llama3_1-8b")
    windows = {p["concurrency"]: (p["with_window"], p["whole_run"]) for p in tree["points"]}
    assert [(600.0, 600.0), (1200.0, 1200.0)] == [windows[32], windows[64]]


def test_a_point_that_a_lower_one_beats_stays_on_the_line(cwd: Path) -> None:
    run = imported(cwd, table(SPEEDS | {64: (2500, 56.2, 158)}))
    tree = rehearsed(cwd, run)
    assert {64: 32} == {p["concurrency"]: p["worse_than"] for p in tree["points"] if p["worse_than"]}
    said = frontier("rehearse", run, "-o", "curve.svg", cwd=cwd)
    assert re.search("C=64 .*C=32", said.out)
    svg = (cwd / "curve.svg").read_text()
    assert NOTICE in svg
    assert 7 == len(set(re.findall(r'id="(mark-0[^"]*-\d+)"', svg)))


def test_without_a_dataset_no_hours_are_said(cwd: Path) -> None:
    tree = rehearsed(cwd, imported(cwd, table(SPEEDS)))
    assert tree["dataset"] is None
    assert {None} == {p["one_pass"] for p in tree["points"]}


@pytest.mark.parametrize(
    ("concurrencies", "part"),
    [((1, 4), "above 32"), ((40, 64), "1 to 32"), ((1, 64), "none in low"), ((32, 33), "every region covered")],
)
def test_what_a_region_lacks_is_one_line_beside_what_was_measured(cwd: Path, concurrencies, part: str) -> None:
    run = imported(cwd, table({c: (45.0 * c, 50.0, 50.0) for c in concurrencies}))
    said = frontier("rehearse", run, "-o", "curve.png", cwd=cwd)
    assert said.code == 0, said.err
    assert part in " ".join(said.out.split())
    assert [str(c) for c in concurrencies] == re.findall(r"^(\d+) ", said.out, re.MULTILINE)


def test_failures_that_are_dropped_there_are_said(cwd: Path) -> None:
    said = frontier("rehearse", imported(cwd, table(SPEEDS, failed=0.004)), cwd=cwd)
    assert "0.400% at C=1" in said.out


@pytest.mark.parametrize(
    "lines",
    [
        "shapes: [64/8, 32/8]\nconcurrency: [1, 40]\n",
        "shapes: [64/8]\nrate: [4, 8]\n",
        "shapes: [{name: chat, turns: 2, first: 64, per_turn: 32/8}]\nconcurrency: [1, 40]\n",
    ],
)
def test_what_is_no_curve_is_refused_in_one_line(cwd: Path, lines: str) -> None:
    sweep_in_virtual_time(cwd / "runs" / "run", f"endpoint: simulator\n{ENGINE}\n{lines}requests: 60\nrefine: 0\n")
    said = frontier("rehearse", "runs/run", cwd=cwd)
    assert (2, "") == (said.code, said.out)
    assert_golden_row("messages", said.err)
    if "32/8]" in lines and "turns" not in lines:
        assert 0 == frontier("rehearse", "runs/run", "--shape", "64/8", cwd=cwd).code


def test_the_config_of_what_is_missing_is_sound_and_reaches_every_region(cwd: Path) -> None:
    text = f"endpoint: simulator\n{ENGINE}\nshapes: [64/8]\nconcurrency: [1, 2, 64]\nrequests: 60\nrefine: 0\n"
    sweep_in_virtual_time(cwd / "runs" / "run", text)
    said = frontier("rehearse", "runs/run", "--benchmark", "deepseek-r1", "--config", cwd=cwd)
    assert said.code == 0, said.err
    assert said.out.startswith(f"# {HEAD}\n")
    config = load_config(said.out, "full.yaml")
    assert (5, 1200.0) == (config.passes.count if config.passes else None, config.min_time)
    assert 7 == len(config.loads)
    assert {1, 2, 64} < set(config.loads)
    assert any(6 <= c <= 17 for c in config.loads)


def test_an_export_never_mixes_with_what_is_there(cwd: Path) -> None:
    text = f"endpoint: simulator\n{ENGINE}\nshapes: [64/8]\nconcurrency: [1, 40]\nrequests: 60\nrefine: 0\n"
    sweep_in_virtual_time(cwd / "runs" / "run", text)
    assert 0 == frontier("rehearse", "runs/run", "--export", "out", cwd=cwd).code
    assert {"r1", "r40"} == {path.name for path in (cwd / "out").iterdir()}
    again = frontier("rehearse", "runs/run", "--export", "out", cwd=cwd)
    assert 2 == again.code
    imported_run = frontier("rehearse", imported(cwd, table(SPEEDS), "table"), "--export", "new", cwd=cwd)
    assert (2, False) == (imported_run.code, (cwd / "new").exists())


@pytest.mark.parametrize(
    ("measured", "wanted"),
    [((32, 33), [32, 33]), ((40, 64), [1, 2, 4, 9, 19, 40, 64]), ((1, 2), [1, 2, 3, 6, 11, 34, 64])],
)
def test_what_is_missing_lies_between_the_lowest_and_the_highest_that_a_curve_may_have(
    cwd: Path, measured: tuple[int, ...], wanted: list[int]
) -> None:
    run = imported(cwd, table({c: (45.0 * c, 50.0, 50.0) for c in measured}))
    made = rehearse(load(cwd / run), "llama3_1-8b")
    found = missing(made)
    assert set(measured) <= set(found)
    assert (wanted[0], wanted[-1]) == (found[0], found[-1])
    assert len(found) == min(7, found[-1] - found[0] + 1)
    assert Regions.of(found[0], found[-1]).uncovered(found) == []
