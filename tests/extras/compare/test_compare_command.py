"""`frontier compare --gate` and `frontier trend`: what they print, write and end with, on runs of
the engine."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from frontier.core.model.errors import UsageError
from frontier.extras.compare import regression
from frontier.extras.compare.command import runs_in
from frontier.extras.compare.regression import gate_deployments
from frontier.read_run import load
from tests.kit.commands import Said, frontier
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import without_numbers
from tests.kit.sweeps import ENGINES, commands_in_virtual_time, config_text, swept

TEXT = """\
deployments: [{{name: base, endpoint: simulator, simulator: {{step_base: {base}us, {more}}}}}{second}]
shapes: [256/32]
concurrency: [2, 8]
sla: {{p50_ttft: 150ms}}
requests: 120
repeats: {repeats}
refine: 0
seed: {seed}
"""
MORE = "per_decode: 60us, noise: 0.02"
SECOND = ", {{name: new, endpoint: simulator, simulator: {{step_base: {0}us, " + MORE + "}}}}"
DAY = 86_400.0


def one_run(path: Path, base: int, seed: int, day: float, second: str = "", repeats: int = 1) -> None:
    """A run in virtual time, of which the config does not say how fast the engine was that day."""
    swept(path, TEXT.format(base=base, seed=seed, more=MORE, second=second, repeats=repeats))
    config = path / "config.yaml"
    config.write_text(config.read_text().replace(f"{base}us", "5000us"))
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "created": 1.79e9 + DAY * day}))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a history of eight nights, two runs of today, and one sweep of two
    deployments.
    """
    here = tmp_path_factory.mktemp("gate")
    speeds = (5000, 5020, 4990, 5010, 4985, 5005, 4995, 5015)
    for night, speed in enumerate(speeds):
        one_run(here / "main" / f"night-{night}", speed, night, night)
    one_run(here / "same", 5003, 20, 9)
    one_run(here / "slow", 6000, 21, 9)
    one_run(here / "both", 5000, 22, 9, SECOND.format(5600), repeats=4)
    return here


def verdict(said: Said) -> dict:
    """The one series of an answer in JSON."""
    (shape,) = json.loads(said.out)["shapes"]
    return shape


def test_with_a_stated_spread_a_history_tells_a_regression_from_an_ordinary_day(runs: Path) -> None:
    stated = ("--spread", "2%", "--json")
    same = frontier("compare", "--gate", "main", "same", "--allow", "25%", *stated, cwd=runs)
    slow = frontier("compare", "--gate", "main", "slow", *stated, cwd=runs)
    assert (0, 3) == (same.code, slow.code), same.out + slow.out
    assert ("no worse", "history", 8, [2, 8], 0.02) == tuple(
        verdict(same)[name] for name in ("verdict", "design", "units", "settings", "spread")
    )
    change = next(change for change in verdict(slow)["changes"] if change["metric"] == "output_throughput")
    assert ("worse", "slow", "main") == (verdict(slow)["verdict"], verdict(slow)["b"], verdict(slow)["a"])
    assert 0.05 < change["at_least"] < change["value"] < 0.2
    assert change["verdict"] == "worse"
    assert (8, 8) == (verdict(slow)["at_proven"]["proven"], verdict(slow)["at_proven"]["at"])
    text = frontier("compare", "--gate", "main", "slow", "--spread", "2%", cwd=runs).out
    assert_golden_row("answers", without_numbers(text))


def test_two_deployments_of_one_sweep_are_judged_in_pairs_of_repeats(runs: Path) -> None:
    said = frontier("compare", "--gate", "both", "--deployment", "base", "--deployment", "new", "--json", cwd=runs)
    tree = json.loads(said.out)
    (shape,) = tree["shapes"]
    assert (3, "frontier.gate/1", "worse", 0.05) == (said.code, tree["schema"], tree["verdict"], tree["allow"])
    assert ("repeats", 4, [2, 8]) == (shape["design"], shape["units"], shape["settings"])
    assert 0.05 < shape["changes"][0]["value"] < 0.2
    assert shape["changes"][0]["at_least"] > 0


@pytest.mark.parametrize(("base", "days"), [("main/night-0", 1), ("main", 8)])
def test_a_baseline_without_a_stated_spread_says_nothing(base: str, days: int, runs: Path) -> None:
    said = frontier("compare", "--gate", base, "slow", "--json", cwd=runs)
    assert (4, "not resolved", days) == (said.code, verdict(said)["verdict"], verdict(said)["units"])
    assert {(None, None)} == {(change["at_least"], change["smallest"]) for change in verdict(said)["changes"]}
    assert_golden_row("answers", without_numbers(frontier("compare", "--gate", base, "slow", cwd=runs).out))


def test_runs_that_alternate_are_pairs(runs: Path, tmp_path: Path) -> None:
    for side, days in (("a", (0, 3, 4)), ("b", (1, 2, 5))):
        for number, day in enumerate(days):
            night = number + (3 if side == "b" else 0)
            target = tmp_path / side / str(number)
            shutil.copytree(runs / "main" / f"night-{night}", target)
            manifest = json.loads((target / "manifest.json").read_text())
            (target / "manifest.json").write_text(json.dumps({**manifest, "created": 1.79e9 + 600 * day}))
    said = frontier("compare", "--gate", "a", "b", "--json", cwd=tmp_path)
    assert ("in turn", 3) == (verdict(said)["design"], verdict(said)["units"]), said.err


@pytest.fixture
def copies(runs: Path, tmp_path: Path) -> Path:
    """Nine nights of which six are copies of one: another name, another day, another config."""
    for night in range(3):
        shutil.copytree(runs / "main" / f"night-{night}", tmp_path / "nights" / f"night-{night}")
    for copy in range(6):
        target = tmp_path / "nights" / f"copy-{copy}"
        shutil.copytree(runs / "main" / "night-0", target)
        manifest = json.loads((target / "manifest.json").read_text())
        (target / "manifest.json").write_text(json.dumps({**manifest, "created": 1.79e9 + DAY * (10 + copy)}))
        (target / "config.yaml").write_text((target / "config.yaml").read_text() + f"name: copy{copy}\n")
    return tmp_path


def test_copies_of_a_run_are_one_night(copies: Path) -> None:
    said = frontier("trend", "nights", "--json", cwd=copies)
    (series,) = json.loads(said.out)["shapes"]
    assert (0, 3) == (said.code, len(series["runs"]))
    assert 6 == said.err.count(": a copy, counted once")
    named = [line for line in said.err.splitlines() if line.startswith("nights/copy-0 ")]
    assert_golden_row("messages", "\n".join(named))


def test_a_run_of_a_folder_that_never_measured_is_left_out_and_named(runs: Path, tmp_path: Path) -> None:
    for night in (0, 1):
        shutil.copytree(runs / "main" / f"night-{night}", tmp_path / "nights" / f"night-{night}")
    shutil.copytree(runs / "main" / "night-0", tmp_path / "nights" / "failed")
    shutil.rmtree(tmp_path / "nights" / "failed" / "trials")
    said = frontier("trend", "nights", cwd=tmp_path)
    assert 0 == said.code, said.err
    assert "nights/failed" in said.err
    assert "failed" not in said.out


def test_the_copy_that_holds_most_is_kept(runs: Path, tmp_path: Path) -> None:
    whole = runs / "main" / "night-0"
    for name in ("part", "whole"):
        shutil.copytree(whole, tmp_path / name)
    next((tmp_path / "part" / "trials").iterdir()).unlink()
    assert [tmp_path / "whole"] == runs_in([tmp_path / "part", tmp_path / "whole"])


def test_a_run_is_not_gated_against_its_own_copy(runs: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(runs / "main" / "night-0", tmp_path / name)
    said = frontier("compare", "--gate", "a", "b", cwd=tmp_path)
    assert (2, True) == (said.code, "a holds the same trials as b" in said.err)


def seeded(seed: int, shapes: str = "[64/16]") -> str:
    """The config of a sweep in virtual time."""
    text = config_text(ENGINES["smooth"], sla="{p90_tpot: 7ms}", requests=200).replace("repeats: 3", "repeats: 1")
    text = text.replace("[256/32]", shapes).replace("[1, 2, 4, 8, 16, 32, 64]", "[2, 8, 32]")
    return f"{text}seed: {seed}\n"


def test_a_second_sweep_proves_what_the_first_proved_and_is_gated(tmp_path: Path) -> None:
    swept(tmp_path / "base", seeded(1))
    (tmp_path / "new.yaml").write_text(seeded(2))
    with commands_in_virtual_time():
        said = frontier("sweep", "new.yaml", "-o", "new", "--prove", "base", cwd=tmp_path, here=True)
        nothing = frontier("sweep", "new.yaml", "-o", "own", "--prove", "nowhere", cwd=tmp_path, here=True)
    (base,), (new,) = (load(tmp_path / side).solve() for side in ("base", "new"))
    assert (0, base.load) == (said.code, new.load), said.err
    assert {base.load} == {point.load for point in load(tmp_path / "new").points()}
    unknown = frontier("compare", "--gate", "base", "new", cwd=tmp_path)
    assert (4, True) == (unknown.code, "--spread" in unknown.out)
    gated = frontier("compare", "--gate", "base", "new", "--spread", "0.5%", "--allow", "10%", "--json", cwd=tmp_path)
    assert 0 == gated.code, gated.out
    one = verdict(gated)
    assert ("history", 1, [base.load], 0.005) == (one["design"], one["units"], one["settings"], one["spread"])
    assert base.load == one["at_proven"]["at"]
    two = frontier("compare", "--gate", "base", "--spread", "1%", cwd=tmp_path)
    assert [2, 2] == [nothing.code, two.code]
    assert_golden_row("messages", f"{nothing.err}\n{two.err}")


def test_each_series_proves_what_the_run_proved_in_it(tmp_path: Path) -> None:
    shapes = "[64/16, 2048/16]"
    swept(tmp_path / "base", seeded(1, shapes))
    (tmp_path / "new.yaml").write_text(seeded(2, shapes))
    with commands_in_virtual_time():
        said = frontier("sweep", "new.yaml", "-o", "new", "--prove", "base", cwd=tmp_path, here=True)
    proven = {d.series: d.load for d in load(tmp_path / "base").solve()}
    assert len(set(proven.values())) == 2, "the shapes have different operating points"
    known = {series: c for series, c in proven.items() if c is not None}
    assert known == {point.series: point.load for point in load(tmp_path / "new").points()}, said.err
    for series in set(proven) - set(known):
        assert f"{series.shape.label}: base" in said.err


def test_the_answer_names_the_command_that_measures_what_base_proved(runs: Path, tmp_path: Path) -> None:
    swept(
        tmp_path / "new", TEXT.format(base=5000, seed=31, more=MORE, second="", repeats=1).replace("[2, 8]", "[2, 6]")
    )
    said = frontier("compare", "--gate", runs / "main", "new", "--allow", "25%", "--json", cwd=tmp_path)
    one = verdict(said)
    assert (8, 2) == (one["at_proven"]["proven"], one["at_proven"]["at"])
    where, command = one["notes"][-2:]
    assert re.search(r"frontier sweep \S+ .*--prove 8$", command), command
    assert_golden_row("answers", where)


def test_a_setting_that_base_proved_and_that_was_excluded_is_not_called_unmeasured(runs: Path, tmp_path: Path) -> None:
    swept(tmp_path / "new", TEXT.format(base=5000, seed=32, more=MORE, second="", repeats=1))
    for file in (tmp_path / "new" / "trials").glob("*-c0008-*"):
        file.write_bytes(file.read_bytes()[:-20])
    one = verdict(frontier("compare", "--gate", runs / "main", "new", "--allow", "25%", "--json", cwd=tmp_path))
    assert (8, 2) == (one["at_proven"]["proven"], one["at_proven"]["at"])
    assert "excluded in" in one["notes"][-2]


def test_that_command_has_room_in_a_budget_that_is_spent(runs: Path, tmp_path: Path) -> None:
    text = TEXT.format(base=5000, seed=31, more=MORE, second="", repeats=1).replace("[2, 8]", "[2, 6]")
    swept(tmp_path / "new", f"{text}\nbudget: {{requests: 100000}}\n")
    journal = tmp_path / "new" / "journal.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    spent = [line | {"spent": {**line["spent"], "requests": 100_000}} if "spent" in line else line for line in lines]
    command = {"time": 0.0, "event": "resumed", "config": "new/config.yaml", "directory": str(tmp_path), "settings": []}
    journal.write_text("".join(json.dumps(line) + "\n" for line in (spent[0], command, *spent[1:])))
    said = frontier("compare", "--gate", runs / "main", "new", "--allow", "25%", "--json", cwd=tmp_path)
    assert re.search(r"--prove 8 .*--set budget\.requests=1[0-9]{5}$", verdict(said)["notes"][-1])


def test_the_baseline_is_never_the_run_itself(runs: Path) -> None:
    said = frontier("compare", "--gate", "main", "main/night-3", "--json", cwd=runs)
    assert (7, "main") == (verdict(said)["units"], verdict(said)["a"])
    assert 2 == frontier("compare", "--gate", "main", "main", cwd=runs).code


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("--gate", "main", "same", "--within", "5%"), id="within"),
        pytest.param(("main/night-0", "same", "--allow", "5%"), id="allow"),
        pytest.param(("main/night-0", "same", "--spread", "1%"), id="spread"),
        pytest.param(("--gate", "main", "same", "--allow", "much"), id="much"),
        pytest.param(("--gate", ".", "same"), id="empty folder"),
        pytest.param(("--gate", "both", "--deployment", "base"), id="one deployment"),
    ],
)
def test_what_cannot_be_judged_is_refused(arguments: tuple[str, ...], runs: Path, tmp_path: Path) -> None:
    if arguments[1] == ".":
        (tmp_path / "same").mkdir()
    said = frontier("compare", *arguments, cwd=tmp_path if arguments[1] == "." else runs)
    assert 2 == said.code
    assert_golden_row("messages", said.err)


@pytest.mark.parametrize(("new", "allow", "code"), [("same", "25%", 0), ("slow", "5%", 3)])
def test_another_flag_is_judged_and_named(runs: Path, tmp_path: Path, new: str, allow: str, code: int) -> None:
    shutil.copytree(runs / new, tmp_path / "other")
    config = tmp_path / "other" / "config.yaml"
    config.write_text(config.read_text().replace("60us", "70us"))
    stated = ("--spread", "2%", "--allow", allow, "--json")
    said = frontier("compare", "--gate", runs / "main", "other", *stated, cwd=tmp_path)
    (shape,) = json.loads(said.out)["shapes"]
    assert (code, 8, []) == (said.code, shape["units"], shape["breaks"])
    assert ["Changed between the two: flags per_decode=60us → per_decode=70us."] == shape["notes"]


def test_two_runs_of_other_flags_are_judged_by_a_stated_spread(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "slow", tmp_path / "other")
    config = tmp_path / "other" / "config.yaml"
    config.write_text(config.read_text().replace("60us", "70us"))
    said = frontier("compare", "--gate", runs / "main" / "night-0", "other", "--spread", "1%", cwd=tmp_path)
    assert 3 == said.code
    assert "flags per_decode=60us → per_decode=70us" in said.out


def test_the_sla_is_judged_also_where_a_night_proved_nothing(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = regression.measured

    def cut_short(given, limits):
        """The third of several nights ended before its proof."""
        return {
            series: [replace(one, proven=None) if i == 2 else one for i, one in enumerate(nights)]
            for series, nights in whole(given, limits).items()
        }

    base, new = [load(path) for path in sorted((runs / "main").iterdir())], [load(runs / "same")]
    more = {"allow": 0.25, "limits": new[0].limits(), "names": ("main", "same"), "spread": 0.02}
    monkeypatch.setattr(regression, "measured", cut_short)
    (gate,) = regression.gate_runs(base, new, **more)
    assert gate.at_proven is not None
    assert (8, "no worse") == (gate.at_proven.proven, gate.at_proven.verdict)


@pytest.mark.parametrize("later", ["base", "new"])
def test_deployments_measured_one_after_the_other_are_refused(runs: Path, later: str) -> None:
    """Whichever was measured first, pairs would not have shared what a moment does to a server."""
    run = load(runs / "both")
    histories = {
        series: [
            (trial, replace(sample, starts=sample.starts + DAY) if series.deployment == later else sample)
            for trial, sample in history
        ]
        for series, history in run.histories.items()
    }
    named, limits = ("base", "new"), run.limits()
    assert gate_deployments(run, named, allow=0.05, limits=limits)
    with pytest.raises(UsageError, match="one after"):
        gate_deployments(replace(run, histories=histories), named, allow=0.05, limits=limits)


def test_another_device_is_a_break(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "same", tmp_path / "other")
    manifest = json.loads((tmp_path / "other" / "manifest.json").read_text())
    (tmp_path / "other" / "manifest.json").write_text(json.dumps({**manifest, "client": "another machine"}))
    for night in range(2):
        shutil.copytree(runs / "main" / f"night-{night}", tmp_path / "main" / str(night))
        there = tmp_path / "main" / str(night) / "manifest.json"
        there.write_text(json.dumps({**json.loads(there.read_text()), "client": "this machine"}))
    said = frontier("compare", "--gate", "main", "other", "--json", cwd=tmp_path)
    (shape,) = json.loads(said.out)["shapes"]
    assert (4, ["device: this machine → another machine"]) == (said.code, shape["breaks"])


def test_a_trend_is_a_table_a_file_a_figure_and_json(runs: Path, tmp_path: Path) -> None:
    said = frontier("trend", runs / "main", "-o", "trend.csv", "-o", "trend.png", "-o", "trend.svg", cwd=tmp_path)
    assert 0 == said.code, said.err
    assert len(re.findall(r"^2026-\d\d-\d\d \d\d:\d\d +\S*night-\d +[\d,]+ tok/s", said.out, re.MULTILINE)) == 8
    head, *rows = (tmp_path / "trend.csv").read_text().splitlines()
    assert head.startswith("date,run,deployment,shape,stretch,")
    assert "output_throughput_low" in head
    assert 8 == len(rows)
    assert (tmp_path / "trend.png").read_bytes()[:4] == b"\x89PNG"
    tree = json.loads(frontier("trend", runs / "main", "--json", cwd=tmp_path).out)
    (shape,) = tree["shapes"]
    assert ("frontier.trend/1", 8, [2, 8], []) == (
        tree["schema"],
        len(shape["runs"]),
        shape["settings"],
        shape["breaks"],
    )
    assert_golden_row("answers", "\n".join(said.out.splitlines()[:2]))
