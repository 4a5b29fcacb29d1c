"""Runs of an earlier version: their points, decisions and comparisons stay the same."""

import html
import json
import math
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.kit import places
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.record_runs import CONFIGS, main, said
from tests.kit.sweeps import commands_in_virtual_time

DATA = places.DATA / "runs"
THEN: dict[str, Any] = json.loads((DATA / "runs-0.1.0.json").read_text())
THEN_1_0: dict[str, Any] = json.loads((DATA / "runs-1.0.0.json").read_text())
MERGED: dict[str, Any] = json.loads((DATA / "merged-1.0.0.json").read_text())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("earlier")
    with tarfile.open(DATA / "runs-0.1.0.tar.gz") as archive:
        archive.extractall(path, filter="data")
    return path


@pytest.fixture(scope="module")
def runs_1_0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("earlier")
    with tarfile.open(DATA / "runs-1.0.0.tar.xz") as archive:
        archive.extractall(path, filter="data")
    return path


@pytest.mark.parametrize("command", sorted(THEN_1_0))
def test_the_same_is_said_of_the_runs_of_1_0(runs_1_0: Path, command: str) -> None:
    then = THEN_1_0[command]
    now = said(runs_1_0, *command.split(), *then_axes(then["json"]))
    if command == "compare closed stated":
        # One server, of which `stated` measured fewer settings: its smaller area was "worse" until
        # 1.0.0. What the steps between settings leave open is no difference any more.
        verdicts = [now["json"]["verdict"], *(shape["verdict"] for shape in now["json"]["shapes"])]
        assert (4, ["not resolved"] * 3) == (now["code"], verdicts)
        then = {"json": without_verdicts(then["json"])}
    agrees(then, now)


def then_axes(then: dict[str, Any]) -> list[str]:
    """The options for the axes of that time: until 1.0.0 the frontier of `show` and `compare` was
    that of the first limited metric, also where another binds.
    """
    shown = [
        each["objectives"] for each in (*then.get("frontiers", ()), *then.get("shapes", ())) if "objectives" in each
    ]
    return ["--objectives", ",".join(shown[0])] if shown else []


def without_verdicts(compared: dict[str, Any]) -> dict[str, Any]:
    """The JSON of a comparison without its verdicts."""
    shapes = [{name: value for name, value in shape.items() if name != "verdict"} for shape in compared["shapes"]]
    return {**compared, "verdict": "not resolved", "shapes": shapes}


@pytest.mark.parametrize("command", sorted(MERGED))
def test_the_same_is_said_of_a_run_that_1_0_merged_of_shards(tmp_path: Path, command: str) -> None:
    with tarfile.open(DATA / "merged-1.0.0.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    agrees(MERGED[command], said(tmp_path, *command.split(), *then_axes(MERGED[command]["json"])))
    if command == "show merged":
        workers = json.loads((tmp_path / "merged/evidence/default-32x16-c0005-grid-r1.json").read_text())["workers"]
        assert [3, 2] == [worker["streams"] for worker in workers]
        assert "client processes" in frontier("report", "merged", "-o", "-", cwd=tmp_path, here=True).out


def test_a_run_of_each_kind_is_recorded(runs_1_0: Path) -> None:
    assert set(CONFIGS) <= {path.name for path in runs_1_0.iterdir()}


@pytest.mark.slow
def test_runs_are_recorded_anew(tmp_path: Path) -> None:
    main(tmp_path)
    (statements,) = tmp_path.glob("*.json")
    (archive,) = tmp_path.glob("*.tar.xz")
    assert set(THEN_1_0) == set(json.loads(statements.read_text()))
    with tarfile.open(archive) as runs:
        assert set(CONFIGS) == {name.partition("/")[0] for name in runs.getnames()}


def answer(runs: Path, command: str) -> tuple[int, Any]:
    said = frontier(*command.split(), "--json", cwd=runs, here=True)
    assert said.err.count("hashes") == 1, "that it has none is said once a command"
    return said.code, json.loads(said.out)


WORDS = {"notes", "advice", "change", "effect", "evidence", "measured", "proven", "command"}
"""Fields that hold sentences, which may be reworded."""
ESTIMATED_ANEW = {"diagnosis", "arrival_rate"}
"""The bottleneck, and the rate for independent users: estimates by rules that were calibrated again
since."""
AXES_GIVEN = {"pooled"}
"""What is there only where axes are asked for."""
GONE = {"area", "reference", "fits", "peak", "limit", "onset"}
"""Fields of the frontiers that `show` gave until 1.0.0: areas, scalability models, and the cause of
a flat throughput, which the diagnosis names."""
GONE_OF_SHAPES = {"gains", "ratio", "reference"}
"""What `compare` gave of each shape until 1.0.0: brackets of the gain at equal latency, and the
ratio of the areas up to a reference."""


OF_THE_NEAREST = {"candidate", "metrics", "binding", "next_step"}
"""Without an answer: the setting that is shown, which is now the closest to being proven."""


def agrees(then: Any, now: Any, where: str = "") -> None:
    """All that was said then is said now, sentences apart; numbers to nine digits, as other builds
    of numpy add up in another order.
    """
    if isinstance(then, dict):
        gone = GONE if re.search(r"\.frontiers\[\d+\]$", where) else GONE_OF_SHAPES
        if then.get("verdict") == "unproven" and then.get("concurrency", 0) is None:
            gone = gone | OF_THE_NEAREST
        assert set(then) - gone <= set(now), where
        for name, value in then.items():
            if name not in WORDS | ESTIMATED_ANEW | AXES_GIVEN | gone:
                agrees(value, now[name], f"{where}.{name}")
    elif isinstance(then, list):
        assert len(then) == len(now), where
        for i, (one, other) in enumerate(zip(then, now, strict=True)):
            agrees(one, other, f"{where}[{i}]")
    elif isinstance(then, float) and where.endswith((".low", ".high")):  # never narrower
        outwards = then - now if where.endswith(".low") else now - then
        assert outwards >= -1e-9 * abs(then), (where, then, now)
    elif isinstance(then, float):
        assert math.isclose(then, now, rel_tol=1e-9), (where, then, now)
    else:
        assert then == now, where


@pytest.mark.parametrize("run", ["before", "after"])
def test_its_points_are_the_same(runs: Path, run: str) -> None:
    code, said = answer(runs, f"show {run}")
    points = [point | {"flags": sorted(flag["name"] for flag in point["flags"])} for point in said["points"]]
    assert code == 0
    agrees(THEN[f"show {run}"], points)


def test_its_decisions_are_the_same(runs: Path) -> None:
    code, said = answer(runs, "solve before")
    assert code == 0
    agrees(THEN["solve before"], said["shapes"])


def test_a_comparison_of_two_is_the_same(runs: Path) -> None:
    code, said = answer(runs, " ".join(["compare before after", *then_axes(THEN["compare before after"])]))
    assert code == 0
    agrees(THEN["compare before after"], said)


def test_its_picture_shows_the_same_decisions(runs: Path) -> None:
    said = frontier("plot", "before", "-o", "before.svg", cwd=runs, here=True)
    assert said.code == 0
    described = re.search(r"<dc:description>(.*?)</dc:description>", (runs / "before.svg").read_text(), re.DOTALL)
    assert described is not None
    assert_golden_row("pictures", html.unescape(described[1]))


def test_an_unfinished_one_goes_on_with_the_values_it_was_begun_with(tmp_path: Path) -> None:
    with tarfile.open(DATA / "unfinished-0.1.0.tar.gz") as archive:
        archive.extractall(tmp_path / "runs", filter="data")
    run = tmp_path / "runs" / "unfinished"
    (tmp_path / "sweep.yaml").write_text((run / "config.yaml").read_text())
    before = {path: path.stat().st_mtime_ns for path in (run / "trials").iterdir()}
    assert 2 == len(before)
    assert "2 trials; 2 of 2" in frontier("status", "runs/unfinished", cwd=tmp_path).out
    assert "runs/unfinished holds 2 of them" in frontier("sweep", "sweep.yaml", "--dry-run", cwd=tmp_path).out
    with commands_in_virtual_time():
        said = frontier("sweep", "sweep.yaml", cwd=tmp_path, here=True)
    assert (0, [run]) == (said.code, list((tmp_path / "runs").iterdir()))
    assert before == {path: path.stat().st_mtime_ns for path in before}, "what was finished counts"
    evidence = [json.loads(path.read_text())["trial"] for path in (run / "evidence").iterdir()]
    grid = [trial for trial in evidence if trial["phase"] == "grid"]
    assert {(c, r) for c in (1, 16) for r in (1, 2, 3)} == {(trial["concurrency"], trial["repeat"]) for trial in grid}
    assert {(300, 300.0)} == {(trial["requests"], trial["max_time"]) for trial in grid}
