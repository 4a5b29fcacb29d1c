"""A knob of a running server: set, checked, put back, and what its values give."""

import json
from pathlib import Path
from typing import Any

import pytest

from frontier.config import load_config
from frontier.core.model.errors import MeasurementError
from frontier.extras.tune.knob import left_turned, number_in
from frontier.extras.tune.knob_result import result
from frontier.read_run import load
from frontier.store.run_dir import RunDirectory
from tests.kit.knobs import CappedBackend, conducted, knob_config
from tests.kit.sweeps import Told, open_run


@pytest.fixture
def cap(tmp_path: Path) -> Path:
    """The file of a knob that stands at 375."""
    (tmp_path / "cap").write_text("375\n")
    return tmp_path / "cap"


def tree_of_run(run: Path) -> Any:
    ((_, _, tree),) = result(load(run))
    return json.loads(json.dumps(tree))


@pytest.mark.process
@pytest.mark.whole
def test_each_value_has_its_proven_setting_and_the_least_energy_is_that_of_the_formula(cap: Path, tmp_path: Path):
    backend = CappedBackend(cap)
    assert conducted(tmp_path / "run", knob_config(cap), backend) == "finished"
    assert cap.read_text() == "375\n"
    assert load(tmp_path / "run").unfinished == ""
    assert {(name, watts) for name, watts, _ in backend.ran} == {
        ("gpu-watts400", 400.0),
        ("gpu-watts320", 320.0),
        ("gpu-watts260", 260.0),
    }
    tree = tree_of_run(tmp_path / "run")
    assert tree["axes"] == ["output_throughput", "energy", "p90_ttft"]
    assert all(value["concurrency"] and value["rounds"] == 6 for value in tree["values"])
    assert tree["least_energy"] == "watts=260"
    at = {value["value"]: value["metrics"] for value in tree["values"]}
    rate = at["watts=260"]["output_throughput"]["value"] / at["watts=400"]["output_throughput"]["value"]
    ratio = tree["energy_ratio"]
    assert ratio["low"] <= 260 / 400 / rate <= ratio["high"]
    assert ratio["high"] - ratio["low"] < 0.05


@pytest.mark.process
@pytest.mark.whole
def test_a_value_that_did_not_take_is_a_row_with_its_reason_and_never_a_point(cap: Path, tmp_path: Path):
    """900 is refused by its command, 260 is cut to 300 without a word."""
    line = "test {watts} -le 450 || { echo no permission >&2; exit 4; }; echo $(({watts} < 300 ? 300 : {watts})) > "
    backend = CappedBackend(cap, powered=False)
    text = knob_config(cap, "[400, 900, 260]", apply=f"{line}{cap}")
    assert conducted(tmp_path / "run", text, backend) == "finished"
    assert {name for name, _, _ in backend.ran} == {"gpu-watts400"}
    good, refused_, cut = tree_of_run(tmp_path / "run")["values"]
    assert good["concurrency"] is not None
    assert refused_["concurrency"] is cut["concurrency"] is None
    assert "no permission" in refused_["reason"]
    assert "300" in cut["reason"]
    assert cap.read_text() == "375\n"


@pytest.mark.process
@pytest.mark.parametrize(
    ("check", "what"), [("echo high", "'high'"), ("printf '400\\n350\\n'", "400"), ("exit 3", "status 3")]
)
def test_a_check_without_a_number_ends_the_sweep_before_anything_is_set(
    check: str, what: str, cap: Path, tmp_path: Path
):
    text, backend = knob_config(cap, check="CHECK").replace('"CHECK"', json.dumps(check)), CappedBackend(cap)
    with pytest.raises(MeasurementError, match=what):
        conducted(tmp_path / "run", text, backend)
    assert not backend.ran
    assert cap.read_text() == "375\n"


@pytest.mark.process
def test_without_the_right_to_set_it_every_value_is_a_reason_and_nothing_is_left_to_put_back(cap: Path, tmp_path: Path):
    told, backend = Told(), CappedBackend(cap)
    conducted(tmp_path / "run", knob_config(cap, apply="echo {watts}: no permission >&2; exit 4"), backend, told)
    assert not backend.ran
    assert 3 == sum("no permission" in note and "nothing more" in note for note in told.notes)
    assert not any("put back" in note for note in told.notes)
    assert left_turned(RunDirectory.read(tmp_path / "run").journal_lines()) is None


class Meddling(CappedBackend):
    """Something else sets the knob during the third trial."""

    async def run(self, trial: Any, **how: Any) -> Any:
        measurement = await super().run(trial, **how)
        if len(self.ran) == 3:
            self.cap.write_text("390\n")
        return measurement


@pytest.mark.process
@pytest.mark.whole
def test_a_trial_under_which_something_else_set_the_knob_does_not_count(cap: Path, tmp_path: Path):
    backend, told = Meddling(cap), Told()
    conducted(tmp_path / "run", knob_config(cap, "[400, 320]"), backend, told)
    assert any("390" in note for note in told.notes)
    trials = [t for history in load(tmp_path / "run").histories.values() for t, _ in history]
    assert 2 == sum(t.deployment == "gpu-watts400" for t in trials)
    assert tree_of_run(tmp_path / "run")["values"][1]["concurrency"] is not None
    assert cap.read_text() == "375\n"


class Failing(CappedBackend):
    """This machine fails in the second trial, as where memory ends."""

    async def run(self, trial: Any, **how: Any) -> Any:
        if len(self.ran) == 1:
            raise MemoryError
        return await super().run(trial, **how)


@pytest.mark.process
def test_the_knob_is_put_back_after_a_failure(cap: Path, tmp_path: Path):
    with pytest.raises(MeasurementError):
        conducted(tmp_path / "run", knob_config(cap), Failing(cap))
    assert cap.read_text() == "375\n"
    assert left_turned(RunDirectory.read(tmp_path / "run").journal_lines()) is None


@pytest.mark.process
def test_what_was_not_put_back_is_before_anything_else_is_set(cap: Path, tmp_path: Path):
    """As after a power cut: the journal has the value, and no keeper lives."""
    text = knob_config(cap)
    with open_run(tmp_path / "run", load_config(text, "knob.yaml"), text) as run:
        run.journal("knob_found", value=350.0, name="watts")
    told = Told()
    with pytest.raises(MeasurementError):
        conducted(tmp_path / "run", text, Failing(cap), told)
    assert any("watts=350 is put back" in note for note in told.notes)
    assert cap.read_text() == "350\n"


@pytest.mark.process
def test_a_sweep_that_cannot_put_back_what_an_earlier_one_left_measures_nothing(cap: Path, tmp_path: Path):
    text, backend = knob_config(cap, apply=f"test {{watts}} -ne 350 && echo {{watts}} > {cap}"), CappedBackend(cap)
    with open_run(tmp_path / "run", load_config(text, "knob.yaml"), text) as run:
        run.journal("knob_found", value=350.0, name="watts")
    with pytest.raises(MeasurementError, match=r"350 .* put back"):
        conducted(tmp_path / "run", text, backend)
    assert not backend.ran


def test_a_line_holds_one_number_and_all_lines_the_same() -> None:
    assert 400.0 == number_in("400.00\n400\n\n")
    assert 0.5 == number_in("limit: .5 W")
    assert -1.0 == number_in("-1")
    assert 64.0 == number_in('{"max_num_seqs": 64}')
    for text in ("", "none", "400\n350", "0, 400"):
        assert number_in(text) is None
