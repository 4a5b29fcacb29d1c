"""`frontier report NEW --baseline OLD`: the last accepted run beside the one under review."""

from pathlib import Path

import pytest

from frontier.extras.present.baseline import HEADS, baseline_tables
from frontier.read_run import load
from frontier.show.view.selection import views_of
from tests.kit.commands import Said, frontier
from tests.kit.sweeps import sweep_in_virtual_time

CONFIG = """\
endpoint: simulator
simulator: {step_base: %s}
shapes: [%s]
concurrency: [1, 4]
sla: {p90_ttft: %s}
requests: 300
repeats: 1
refine: 0
"""


@pytest.fixture(scope="module")
def cwd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("baseline")
    runs = {
        "new": ("4ms", "64/16", "1s"),
        "old": ("8ms", "64/16", "1s"),
        "sla": ("8ms", "64/16", "2s"),
        "shape": ("8ms", "32/16", "1s"),
    }
    for name, values in runs.items():
        sweep_in_virtual_time(here / name, CONFIG % values)
    sweep_in_virtual_time(here / "none", (CONFIG % runs["new"]).replace("sla: {p90_ttft: 1s}\n", ""))
    return here


def report(cwd: Path, *words: str) -> Said:
    return frontier("report", *words, "-o", "-", cwd=cwd)


def test_the_figures_of_both_runs_stand_side_by_side(cwd: Path) -> None:
    new, old = load(cwd / "new"), load(cwd / "old")
    (table,) = baseline_tables(views_of(new, new.limits()), old, new.limits(), asked=False)
    assert HEADS == tuple(table.heads)
    rows = {row[0]: row[1:] for row in table.texts}
    assert ("c=4", "c=4") == rows["answer"][:2]
    made = [run.solve()[0].metrics["output_throughput"].value for run in (new, old)]
    assert f"{made[0] / made[1] - 1:+.1%}" == rows["output throughput"][2]
    said = report(cwd, "new", "--baseline", "old")
    assert said.code == 0
    assert "beside old" in said.out
    assert "beside" not in report(cwd, "new").out


def test_one_run_beside_itself_has_no_change(cwd: Path) -> None:
    new = load(cwd / "new")
    (table,) = baseline_tables(views_of(new, new.limits()), new, new.limits(), asked=False)
    assert {""} == {row[3] for row in table.texts}


@pytest.mark.parametrize(
    ("old", "named"),
    [
        ("sla", ("another SLA", "p90 TTFT ≤ 2 s", "--sla")),
        ("none", ("another SLA: none",)),
        ("shape", ("no 64/16", "32/16")),
        ("gone", ("gone",)),
    ],
)
def test_what_is_no_baseline_is_refused_in_a_line(cwd: Path, old: str, named: tuple[str, ...]) -> None:
    said = report(cwd, "new", "--baseline", old)
    assert (2, "") == (said.code, said.out)
    assert 2 >= len(said.error.splitlines())
    assert [] == [part for part in named if part not in said.error]


def test_another_sla_is_no_hindrance_where_both_are_judged_by_one(cwd: Path) -> None:
    assert report(cwd, "new", "--baseline", "sla", "--sla", "p90_ttft<=3s").code == 0
    assert report(cwd, "none", "--baseline", "old").code == 2
