"""One frontier per run: table, JSON, CSV, Prometheus, picture, page and comparison have the same
axes and the same settings on it.
"""

import csv
import html
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from frontier.core.decisions import Limit
from frontier.extras.compare.comparison_tables import compare_runs
from frontier.extras.compare.pooled import base_axes
from frontier.read_run import load
from frontier.show.picture.data import Role, View
from frontier.show.picture.frontier_picture import small_multiples
from frontier.show.picture.selection import views_of
from tests.commands import frontier
from tests.sweeps import ENGINES, config_text, swept

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
    "no answer": "p99_ttft",
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
        bound = None if view.chosen is None or view.decision is None else view.decision.binding
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
        on = {mark.concurrency for mark in panel.marks if mark.role is Role.FRONTIER}
        assert on <= set(view.frontier.members)
    rows = list(csv.DictReader(io.StringIO(frontier("export", "run", "--csv", cwd=tmp_path).out)))
    assert shown == {_setting(row): (row["objectives"].split(","), row["on_frontier"] == "true") for row in rows}
    if run.limits():
        _one_operating_point(tmp_path, views)
    gauges = frontier("export", "run", "--prometheus", cwd=tmp_path).out
    assert sum(on for _, on in shown.values()) == len(
        re.findall(r"^frontier_point_on_frontier\{.*\} 1\.0$", gauges, re.M)
    )


def _one_operating_point(here: Path, views: Sequence[View]) -> None:
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
    return [int(c) for c in re.findall(r"(?:Run at|[Pp]roven so far:) concurrency\s+(\d+)", text)]


def _setting(tree: dict[str, Any]) -> tuple[str, str, int]:
    return tree["deployment"], tree["shape"], int(tree["concurrency"])


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
    assert verdict.startswith("No clear winner between tpot binds and ttft binds inside ")
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
