"""Energy as a user meets it: stated on the command line or in the config, measured beside the
server, or unknown."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

import frontier as api
from frontier.core.model.metrics import metric
from frontier.core.model.points import Power
from frontier.show.view.costs import power_text
from frontier.store.trial_files import sealed, unsealed
from tests.kit.commands import Said, frontier
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import sweep_in_virtual_time

CONFIG = """\
endpoint: simulator
simulator: {step_base: 5ms, per_decode: 60us, per_prefill_token: 20us, noise: 0.05}
shapes: [128/16]
concurrency: [1, 8, 32]
sla: {p95_ttft: 200ms}
requests: 300
repeats: 1
refine: 0
gpus: 2
"""
STATED = ("--set", "hardware.power=700W/gpu")


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("energy")
    sweep_in_virtual_time(here / "night", CONFIG)
    return here


@pytest.fixture
def cwd(night: Path, tmp_path: Path) -> Path:
    shutil.copytree(night / "night", tmp_path / "night")
    return tmp_path


def points(said: Said) -> list[dict[str, object]]:
    return json.loads(said.out)["points"]


STATED_POWER = power_text([Power(1400.0, "stated")])


def drew(run: Path, watts: float, gpus: int) -> None:
    """nvidia-smi had been there."""
    for file in (run / "evidence").glob("*.json"):
        tree, _ = unsealed(file.read_bytes())
        tree["server"] |= {"gpu_power": watts, "gpu_count": float(gpus)}
        file.write_bytes(sealed(tree))


def test_nothing_knows_it_unless_it_is_said(cwd: Path) -> None:
    plain = frontier("show", "night", "--json", cwd=cwd)
    assert [(False, None)] * 3 == [("energy" in p["metrics"], p["power"]) for p in points(plain)]
    energy = frontier("plot", "night", "--objectives", "energy,p95_ttft", "-o", "e.svg", cwd=cwd)
    cost = frontier("plot", "night", "--objectives", "cost,p95_ttft", "-o", "e.svg", cwd=cwd)
    assert [2, 2] == [energy.code, cost.code]
    assert "--set hardware.power=" in energy.err
    assert "--set 'price=" in cost.err
    assert_golden_row("messages", f"{energy.err}\n{cost.err}")


def test_stated_beside_the_run_it_is_drawn_listed_and_named(cwd: Path) -> None:
    before = (cwd / "night" / "config.yaml").read_text()
    found = points(frontier("show", "night", "--json", *STATED, cwd=cwd))
    for p in found:
        metrics = p["metrics"]
        assert 1400 / metrics["output_throughput"]["value"] == pytest.approx(metrics["energy"]["value"])
        assert {"watts": 1400.0, "source": "stated"} == p["power"]
    assert 0 == frontier("plot", "night", "--objectives", "energy,p95_ttft", *STATED, "-o", "e.svg", cwd=cwd).code
    drawn = (cwd / "e.svg").read_text().replace("\u00a0", " ")
    assert metric("energy").label in drawn
    assert STATED_POWER in drawn
    assert before == (cwd / "night" / "config.yaml").read_text()


def test_the_config_states_it_too_and_every_answer_names_it(cwd: Path) -> None:
    file = cwd / "night" / "config.yaml"
    file.write_text(file.read_text() + "hardware: {power: 1.4kW}\n")
    rows = list(csv.DictReader(io.StringIO(frontier("export", "night", "--csv", cwd=cwd).out)))
    assert [("1400.0", "stated")] * 3 == [(row["power_w"], row["power_source"]) for row in rows]
    assert [True] * 3 == [float(row["energy"]) > 0 for row in rows]
    assert STATED_POWER.removeprefix("power ") in frontier("report", "night", "-o", "-", cwd=cwd).out
    assert STATED_POWER in frontier("show", "night", "-v", cwd=cwd).out
    solved = frontier("solve", "night", "--sla", "p95_ttft<=200ms, energy<=1000", cwd=cwd)
    assert STATED_POWER in " ".join(solved.out.split())
    assert_golden_row("answers", STATED_POWER)


def test_what_was_measured_beside_the_server_counts_before_what_is_stated(cwd: Path) -> None:
    drew(cwd / "night", 900.0, 2)
    found = points(frontier("show", "night", "--json", *STATED, cwd=cwd))
    assert [(pytest.approx(900.0), "measured")] * 3 == [(p["power"]["watts"], p["power"]["source"]) for p in found]
    known = power_text([Power(900.0, "measured")]).removeprefix("power ")
    assert known in frontier("report", "night", "-o", "-", cwd=cwd).out
    # Of a machine of eight these two are a part: what all of them drew is not this deployment's.
    drew(cwd / "night", 900.0, 8)
    assert ["stated"] * 3 == [
        p["power"]["source"] for p in points(frontier("show", "night", "--json", *STATED, cwd=cwd))
    ]


def test_a_setting_that_decides_what_is_measured_is_refused(cwd: Path) -> None:
    other = frontier("show", "night", "--set", "concurrency=[1]", cwd=cwd)
    bare = frontier("show", "night", "--set", "hardware.power=700", cwd=cwd)
    assert [2, 2] == [other.code, bare.code]
    assert_golden_row("messages", f"{other.err}\n{bare.err}")


def test_the_axis_across_alone_may_be_named(cwd: Path) -> None:
    assert 0 == frontier("plot", "night", "--x", "p50_interactivity", "--set", "gpus=8", "-o", "x.svg", cwd=cwd).code
    drawn = (cwd / "x.svg").read_text()
    assert metric("p50_interactivity").label in drawn
    assert "per GPU" in drawn
    typo = frontier("plot", "night", "--x", "interactivity", "-o", "x.svg", cwd=cwd)
    twice = frontier("plot", "night", "--x", "p99_e2e", "--objectives", "cost,p99_e2e", "-o", "x.svg", cwd=cwd)
    assert [2, 2] == [typo.code, twice.code]
    assert "p50_interactivity" in typo.err
    assert_golden_row("messages", f"{typo.err}\n{twice.err}")


def test_a_notebook_gets_the_same(cwd: Path) -> None:
    run = api.load(cwd / "night", ["gpus=4", "hardware.power=700W/gpu"])
    frame = run.frame()
    assert "J/tok" == frame.attrs["units"]["energy"]
    assert (2800 / frame["output_throughput"]).tolist() == pytest.approx(frame["energy"].tolist())
    assert "2,800" in run.picture(objectives=("energy", "p95_ttft"))._repr_svg_()
