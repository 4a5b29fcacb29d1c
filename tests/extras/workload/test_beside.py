"""Production beside a run: the room that is left, and whether workload or server differs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import frontier
from frontier.extras.api.notebook_run import NotebookRun
from frontier.extras.workload.beside import beside, beside_picture
from frontier.extras.workload.observed import ArrivalFacts, ProductionFigure, RequestClass, Workload
from frontier.show.picture.data import Role
from frontier.show.view.selection import views_of
from frontier.show.view.series_view import SeriesView
from tests.kit import logs
from tests.kit.commands import frontier as command

pytestmark = pytest.mark.process
PAIRS = ((64, 8), (512, 64), (2048, 32), (128, 64))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> NotebookRun:
    here = tmp_path_factory.mktemp("run")
    (here / "sweep.yaml").write_text(
        "endpoint: simulator\nsimulator: {step_base: 9ms, per_decode: 400us, noise: 0.05}\n"
        f"shapes: [{{name: mine, pairs: {' '.join(f'{isl}/{osl}' for isl, osl in PAIRS)}}}]\n"
        "concurrency: [1, 4, 8, 16, 32]\nsla: {p99_tpot: 18ms}\n"
    )
    return frontier.run_sweep(here / "sweep.yaml", here / "run", virtual=True)


@pytest.fixture(scope="module")
def view(run: NotebookRun) -> SeriesView:
    (only,) = views_of(run, run.limits())
    return only


def production(view: SeriesView, running: float, factor: float = 1.0) -> Workload:
    """A service as the run says that it is at a setting, but for a factor on its latencies."""
    point = next(p for p in view.points if p.load == running)
    figures = {
        name: ProductionFigure(
            *(getattr(point.metrics[name], part) * factor for part in ("value", "low", "high")), n=900
        )
        for name in ("p50_ttft", "p50_tpot", "p99_tpot")
    }
    rate = point.metrics["request_throughput"].value
    classes = (RequestClass("traffic", 1.0, PAIRS),)
    running_now = ProductionFigure(running, running, running, 60)
    return Workload("x", 900, 60.0, classes, True, None, ArrivalFacts(rate, rate, "now"), running_now, figures)


def test_alike_is_not_said_to_differ_and_the_room_is_counted(view: SeriesView) -> None:
    found = beside(production(view, 4), view)
    assert found.differs == "nothing"
    assert found.at == (4,)
    assert found.operating is not None
    assert found.room == found.operating / 4


def test_a_slower_server_and_another_workload_are_told_apart(view: SeriesView) -> None:
    slower = production(view, 4, factor=1.6)
    assert beside(slower, view).differs == "server"
    longer = replace(slower, classes=(RequestClass("traffic", 1.0, ((3_000, 60),)),))
    assert beside(longer, view).differs == "workload"
    assert beside(replace(slower, cached=0.4), view).differs == "workload"
    assert "cached" not in beside(slower, view).lengths


def test_between_two_settings_both_are_looked_at(view: SeriesView) -> None:
    workload = replace(production(view, 4), running=ProductionFigure(11.0, 10.0, 12.0, 60), servers=2)
    found = beside(workload, view)
    assert found.running == 5.5
    assert found.at[0] <= 5.5 <= found.at[-1]
    assert beside(replace(workload, running=None), view).at == ()


def test_latencies_of_all_hours_are_compared_from_the_mean_load_to_that_of_the_busiest_hour(view: SeriesView) -> None:
    """A day whose busiest hour has four times the mean: its latencies are mostly those of a low
    load, and its room is that of the busiest hour.
    """
    quiet = production(view, 4)
    assert quiet.arrivals is not None
    busy = replace(quiet.arrivals, busiest=4 * quiet.arrivals.rate)
    found = beside(replace(quiet, arrivals=busy, running=ProductionFigure(16.0, 15.0, 17.0, 20)), view)
    assert found.running == 16
    assert (found.at[0], found.at[-1]) == (4, 16)
    assert found.differs == "nothing"
    assert found.operating is not None
    assert found.room == found.operating / 16


@pytest.mark.parametrize(("running", "at"), [(0.2, (1,)), (32.0, (32,)), (33.0, ()), (200.0, ())])
def test_latencies_beyond_the_measured_loads_are_not_compared(
    running: float, at: tuple[int, ...], view: SeriesView
) -> None:
    found = beside(
        replace(production(view, 4, factor=9.0), running=ProductionFigure(running, running, running, 20)), view
    )
    assert found.at == at
    assert found.differs == ("server" if at else "nothing")


def test_production_is_a_point_of_the_picture(view: SeriesView) -> None:
    picture = beside_picture(production(view, 4), [view], None)
    assert picture is not None
    (mark,) = [mark for mark in picture.panels[0].marks if mark.role is Role.PREDICTED]
    assert mark.text == "production"
    assert mark.x_bar is not None
    assert not any("predict" in text for text in (*picture.notes, picture.legend))
    assert beside_picture(replace(production(view, 4), figures={}), [view], None) is None


def test_the_command_says_and_draws_it(run: NotebookRun, tmp_path: Path) -> None:
    logs.write(tmp_path / "access.jsonl", logs.rows(1_500))
    said = command("workload", "access.jsonl", "--beside", str(run.path), cwd=tmp_path)
    assert said.code == 0, said.err
    assert (run.path / "derived" / "production.png").stat().st_size > 10_000
    tree = json.loads(command("workload", "access.jsonl", "--beside", str(run.path), "--json", cwd=tmp_path).out)
    assert tree["series"][0]["differs"] == "workload"
