"""One frontier per run: table, JSON, CSV, Prometheus, picture, page and comparison have the same
axes, the same settings on it and the same operating point, and so of five recorded runs.
"""

import csv
import functools
import html
import io
import json
import re
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from frontier.core.model.decisions import Limit
from frontier.core.model.loads import Rate
from frontier.extras.compare.comparison_tables import compare_runs
from frontier.extras.compare.pooled import base_axes
from frontier.read_run import load
from frontier.show.picture.data import Role
from frontier.show.picture.frontier_picture import small_multiples
from frontier.show.view.selection import views_of
from frontier.show.view.series_view import SeriesView
from tests.kit.commands import frontier
from tests.kit.places import DATA
from tests.kit.sweeps import ENGINES, config_text, swept

DEPLOYMENTS = """\
deployments:
  - {name: bf16, endpoint: simulator, simulator: {step_base: 5ms, per_decode: 60us, noise: 0.05}}
  - {name: fp8, endpoint: simulator, simulator: {step_base: 4ms, per_decode: 50us, noise: 0.05}}
shapes: [256/32, 64/16]
concurrency: [1, 8, 32]
sla: {p90_ttft: 5s, p90_tpot: 6ms}
requests: 300
repeats: 1
refine: 0
"""
RUNS = {
    "ttft binds": config_text(ENGINES["smooth"], sla="{p99_ttft: 50ms, p99_tpot: 1s}"),
    "tpot binds": config_text(ENGINES["smooth"], sla="{p99_ttft: 5s, p95_tpot: 8ms}"),
    "no answer": config_text(ENGINES["infeasible"], sla="{p99_ttft: 5s, p99_tpot: 8ms}"),
    "no limits": config_text(ENGINES["smooth"]).replace("sla: {p99_ttft: 50ms}\n", ""),
    "named": config_text(ENGINES["smooth"]) + "objectives: [request_throughput, p50_e2e]\n",
    "several series": DEPLOYMENTS,
}
BINDING = {
    "ttft binds": "p99_ttft",
    "tpot binds": "p95_tpot",
    "no answer": "p99_tpot",
    "no limits": "p99_ttft",
    "named": "p50_e2e",
    "several series": "p90_tpot",
}


LIMITED = dict.fromkeys(RUNS, "p99_ttft") | {"several series": "p90_ttft"}


@pytest.mark.parametrize("name", RUNS)
def test_all_that_is_said_of_a_run_has_the_same_frontier(tmp_path: Path, name: str) -> None:
    swept(tmp_path / "run", RUNS[name])
    run = load(tmp_path / "run")
    views = views_of(run, run.limits())
    for view in views:
        bound = None if view.decision is None else view.decision.binding
        assert view.frontier.objectives[1] == (bound or LIMITED[name]) or name == "named"
    assert BINDING[name] in {view.frontier.objectives[1] for view in views}

    table = json.loads(frontier("show", "run", "--json", cwd=tmp_path).out)
    shown = {_setting(p): (p["objectives"], p["on_frontier"]) for p in table["points"]}
    assert shown
    assert frontier("report", "run", "-o", "page.json", cwd=tmp_path).code == 0
    page = json.loads((tmp_path / "page.json").read_text())["show"]
    assert shown == {_setting(p): (p["objectives"], p["on_frontier"]) for p in page["points"]}
    drawn = small_multiples(views).panels
    assert {(m, tuple(a)) for m, (a, on) in shown.items() if on} == {
        ((view.frontier.deployment, view.frontier.shape.label, c), view.frontier.objectives)
        for view in views
        for c in view.frontier.members
    }
    for view, panel in zip(views, drawn, strict=True):
        assert (panel.y.metric, panel.x.metric) == view.frontier.objectives
        on = {mark.load for mark in panel.marks if mark.role is Role.FRONTIER}
        assert on <= set(view.frontier.members)
    rows = list(csv.DictReader(io.StringIO(frontier("export", "run", "--csv", cwd=tmp_path).out)))
    assert shown == {_setting(row): (row["objectives"].split(","), row["on_frontier"] == "true") for row in rows}
    if run.limits():
        _one_operating_point(tmp_path, views)
    gauges = frontier("export", "run", "--prometheus", cwd=tmp_path).out
    assert sum(on for _, on in shown.values()) == len(
        re.findall(r"^frontier_point_on_frontier\{.*\} 1\.0$", gauges, re.M)
    )


def _one_operating_point(here: Path, views: Sequence[SeriesView]) -> None:
    """The concurrency that JSON, table, answer, picture and page name for each series."""
    answer = json.loads(frontier("solve", "run", "--json", cwd=here).out)["shapes"]
    named = [(s["deployment"], s["shape"], s["concurrency"]) for s in answer]
    drawn = [(v.frontier.deployment, v.frontier.shape.label, v.chosen) for v in views]
    assert named == drawn
    chosen = [c for _, _, c in named if c is not None]
    table = frontier("show", "run", cwd=here).out
    assert chosen == [int(row) for row in re.findall(r"^ *(\d+) .*<- run here$", table, re.M)]
    said = frontier("solve", "run", cwd=here).out
    assert chosen == _named(said)
    if len(views) == 1:
        assert frontier("report", "run", "-o", "page.html", cwd=here).code == 0
        (head,) = re.findall(r"<h1>(.*?)</h1>", (here / "page.html").read_text())
        assert chosen == _named(small_multiples(views).title) == _named(html.unescape(head))


def _named(text: str) -> list[int]:
    return [int(c) for c in re.findall(r"(?:Run\s+at|[Pp]roven\s+so\s+far:)\s+concurrency\s+(\d+)", text)]


def _setting(tree: dict[str, Any]) -> tuple[str, str, int]:
    return tree["deployment"], tree["shape"], int(tree["concurrency"])


# ---- recorded runs: one of each kind of load

RECORDED = ("closed", "stated", "open", "sessions", "mix")
Number = int | float | None
Truth = dict[str, tuple[tuple[str, ...], frozenset[Number], Number, str]]
"""Of each shape the frontier's axes, the loads on it, the operating point and the verdict."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded")
    with tarfile.open(DATA / "runs" / "runs-1.0.0.tar.xz") as archive:
        archive.extractall(path, filter="data")
    return path


@pytest.mark.parametrize("name", RECORDED)
def test_show_csv_json_plot_report_and_compare_of_a_recorded_run_say_one_truth(recorded: Path, name: str) -> None:
    said = functools.partial(frontier, cwd=recorded)
    solved = json.loads(said("solve", name, "--json").out)["shapes"]
    points = json.loads(said("show", name, "--json").out)["points"]
    truth = _truth(points, solved)
    assert truth

    rows = list(csv.DictReader(io.StringIO(said("export", name, "--csv").out)))
    read = (
        {**row, "objectives": row["objectives"].split(","), "on_frontier": row["on_frontier"] == "true"} for row in rows
    )
    assert truth == _truth(list(read), solved)
    assert said("report", name, "-o", f"{name}.json").code == 0
    page = json.loads((recorded / f"{name}.json").read_text())
    assert truth == _truth(page["show"]["points"], page["solve"]["shapes"])
    made, read_again = page["commands"]
    assert name in made
    assert name == read_again.split()[2], "made and read alike"
    assert {shape: (axes, chosen) for shape, (axes, _, chosen, _) in truth.items()} == _drawn(recorded / name)

    shown = said("show", name).out
    starred = [float(load) for load in re.findall(r"^ *([\d.]+) .* meets   <- run here$", shown, re.M)]
    assert [float(chosen) for _, _, chosen, _ in truth.values() if chosen is not None] == starred
    assert all((verdict == "meets") == (chosen is not None) for _, _, chosen, verdict in truth.values())
    answers = re.findall(r"^(?:\S+: )?((?:Run at|No setting).*)$", said("solve", name).out, re.M)
    assert ["No " if chosen is None else "Run" for _, _, chosen, _ in truth.values()] == [each[:3] for each in answers]
    for shape in json.loads(said("compare", name, name, "--json").out)["shapes"]:
        axes, _, chosen, _ = truth[shape["shape"]]
        assert list(axes) == shape["objectives"]
        inside = [each["settings"] for each in shape["differences"] if each["inside_sla"]]
        assert inside == ([] if chosen is None else [[[chosen, chosen]]])


def test_rates_are_requests_per_second_in_the_json_of_several_runs(recorded: Path) -> None:
    swept_at = [5.0, 40.0, 320.0]
    (trend,) = json.loads(frontier("trend", "open", "--json", cwd=recorded).out)["shapes"]
    assert trend["settings"]
    assert set(trend["settings"]) <= set(swept_at)
    (pool,) = json.loads(frontier("show", "open", "open", "--json", cwd=recorded).out)["pooled"]
    rates = [(member["concurrency"], member["rate"]) for member in pool["members"]]
    assert rates
    assert {(None, rate) for rate in swept_at} >= set(rates)


def _truth(points: Sequence[dict[str, Any]], solved: Sequence[dict[str, Any]]) -> Truth:
    truth: Truth = {}
    for each in solved:
        mine = [point for point in points if point["shape"] == each["shape"]]
        (axes,) = {tuple(point["objectives"]) for point in mine}
        on = frozenset(_load(point) for point in mine if point["on_frontier"])
        truth[each["shape"]] = axes, on, _load(each), each["verdict"]
    return truth


def _of_csv(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "objectives": row["objectives"].split(","), "on_frontier": row["on_frontier"] == "true"}


def _load(tree: dict[str, Any]) -> Number:
    load = tree["concurrency"] or tree.get("rate")
    return None if load in (None, "") else float(load)


def _drawn(path: Path) -> dict[str, tuple[tuple[str, ...], Number]]:
    """The axes of each panel of the picture, and the load under its star."""
    run = load(path)
    views = views_of(run, run.limits())
    drawn: dict[str, tuple[tuple[str, ...], Number]] = {}
    for view, panel in zip(views, small_multiples(views).panels, strict=True):
        stars = [mark.load for mark in panel.marks if mark.star is not None]
        assert len(stars) <= 1
        assert stars == ([] if view.chosen is None else [view.chosen])
        at = next((c.per_second if isinstance(c, Rate) else float(c) for c in stars), None)
        drawn[view.frontier.shape.label] = ((panel.y.metric, panel.x.metric), at)
    return drawn


def test_two_runs_are_seen_on_the_axes_of_the_first(tmp_path: Path) -> None:
    for name in ("ttft binds", "tpot binds"):
        swept(tmp_path / name, RUNS[name])
    a, b = load(tmp_path / "tpot binds"), load(tmp_path / "ttft binds")
    (series,) = a.axes()
    wanted = ("output_throughput", "p95_tpot")
    assert wanted == a.axes()[series]
    assert wanted == base_axes((a, b), None, a.limits())[series.shape]
    (comparison,) = compare_runs(a, b)
    assert wanted == comparison.contest.rules.objectives
    said = frontier("compare", "tpot binds", "ttft binds", cwd=tmp_path).out
    verdict = " ".join(said.partition("\n")[2].partition("\n  output throughput")[0].split())
    assert verdict.startswith("Not resolved")
    assert frontier("plot", "tpot binds", "ttft binds", "-o", "both.svg", cwd=tmp_path).code == 0
    drawn = " ".join(re.findall(r">([^<>]+)</", (tmp_path / "both.svg").read_text()))
    assert verdict.rstrip(".") in " ".join(html.unescape(drawn).split())
    pooled = json.loads(frontier("show", "tpot binds", "ttft binds", "--json", cwd=tmp_path).out)["pooled"]
    assert [list(wanted)] == [pool["objectives"] for pool in pooled]


def test_other_limits_have_other_axes(tmp_path: Path) -> None:
    swept(tmp_path / "run", RUNS["tpot binds"])
    run = load(tmp_path / "run")
    asked = (Limit("p99_ttft", 0.05), Limit("p95_tpot", 1.0))
    (axes,) = run.axes(limits=asked).values()
    assert axes == ("output_throughput", "p99_ttft")
    assert {("output_throughput", "p50_e2e")} == set(run.axes(("output_throughput", "p50_e2e"), asked).values())
