"""The table of throughput by the speed of each user."""

from pathlib import Path

import pytest

from frontier.config import load_config
from frontier.core.model.decisions import Limit
from frontier.extras.present.report import report_of
from frontier.extras.present.speeds import SPEEDS, Speeds, speeds_of
from frontier.read_run import load
from frontier.show.view.selection import views_of
from tests.kit.sweeps import sweep_in_virtual_time

CONFIG = """\
endpoint: simulator
simulator: {step_base: 8ms, per_decode: 1ms}
shapes: [64/16]
concurrency: [1, 8, 20, 60]
sla: {p50_tpot: 34ms}
requests: 1500
repeats: 1
refine: 0
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("speeds") / "run"
    sweep_in_virtual_time(path, CONFIG)
    return path


def speeds(path: Path) -> Speeds:
    read = load(path)
    found = report_of(read, read.limits()).speeds
    assert found is not None
    return found


def test_each_cell_is_the_highest_measured_setting_inside_by_value(run: Path) -> None:
    table = speeds(run).table
    assert len(SPEEDS) == len(table.texts)
    for speed, row in zip(SPEEDS, table.texts, strict=True):
        assert row[0].startswith(f"{speed} tok/s")
        for name, cell in zip(("p50_tpot", "p99_tpot"), row[1:], strict=True):
            points = load(run).points([Limit(name, 1 / speed)])
            inside = [p for p in points if p.valid and p.metrics[name].value <= 1 / speed]
            if not inside:
                assert cell == "none within"
                continue
            best = max(inside, key=lambda p: p.metrics["output_throughput"].value)
            assert f"at c={best.load}," in cell
            proven = best.metrics[name].upper <= 1 / speed
            assert cell.endswith("value only") or (cell.endswith("proven") and proven), cell
    assert any(cell.endswith("proven") for row in table.texts for cell in row)


def test_the_tiers_below_it_would_prove_what_is_value_only(tmp_path: Path) -> None:
    sweep_in_virtual_time(tmp_path / "run", CONFIG.replace("1500", "80"))
    found = speeds(tmp_path / "run")
    assert any(cell.endswith("value only") for row in found.table.texts for cell in row)
    tiers = load_config(f"{CONFIG.partition('sla')[0]}{found.tiers[found.tiers.index('sla: ') :]}\n", "s").tiers
    for name, (limit,) in tiers:
        assert limit == Limit(limit.metric, pytest.approx(1 / int(name.removeprefix("at_")), rel=0.01))
    # Their time is that of the requests at the rates measured, not what the simulation took.
    assert "min" in found.tiers.partition("(at least ")[2].partition(" of requests)")[0]


def test_without_times_between_tokens_there_is_no_table(tmp_path: Path) -> None:
    one = CONFIG.replace("64/16", "64/1").replace("p50_tpot", "p50_ttft").replace("1500", "60")
    sweep_in_virtual_time(tmp_path / "run", one)
    read = load(tmp_path / "run")
    assert speeds_of(read, views_of(read, read.limits())) is None
