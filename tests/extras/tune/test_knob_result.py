"""The result of a knob over HTTP: energy comes out where no window alone has enough readings."""

import json
from pathlib import Path

import pytest

from frontier.extras.api.entry import run_sweep
from frontier.extras.tune import knob_turns
from frontier.extras.tune.knob_result import result
from frontier.hardware.device_power import FEWEST_READINGS
from frontier.simulator.spec import EngineSpec
from tests.kit.knob_server import KnobProcess, slowed
from tests.kit.knobs import DECODE, ENGINE, PREFILL, STEP, knob_config

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.nightly]
CONCURRENCY, ISL, OSL = 8, 64, 32
CAPS = (400.0, 260.0)


def joules(watts: float) -> float:
    """Joules of a token: a step brings one to each request, and reads the prompts that begin."""
    prompts = CONCURRENCY * ISL / OSL
    return watts * slowed(watts) * (STEP + CONCURRENCY * DECODE + prompts * PREFILL) / CONCURRENCY


def test_energy_is_that_of_the_formula(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knob_turns, "SECONDS", 3.0)
    monkeypatch.setattr(knob_turns, "ROUNDS", 4)
    cap = tmp_path / "cap"
    cap.write_text("375\n")
    with KnobProcess(EngineSpec.from_mapping({**ENGINE, "model_name": str(cap)})) as server:
        more = f"    metrics: {server.url.removesuffix('/v1')}/dcgm\nrefine: 0\nrequests: 70\nrepeats: 3\n"
        text = knob_config(cap, str(list(CAPS)), more).replace("[4, 8, 16, 32]", str(CONCURRENCY))
        (tmp_path / "knob.yaml").write_text(text.replace("http://127.0.0.1:9/v1", server.url))
        run = run_sweep(tmp_path / "knob.yaml", tmp_path / "run")
    parts = [window for history in run.histories.values() for _, part in history for window in part.server]
    assert all(window["gpu_power_readings"] < FEWEST_READINGS for window in parts)
    ((_, _, tree),) = result(run)
    at = {value["value"]: value["metrics"] for value in json.loads(json.dumps(tree))["values"]}
    for watts in CAPS:
        assert at[f"watts={watts:g}"]["energy"]["value"] == pytest.approx(joules(watts), rel=0.1)
    assert tree["least_energy"] == "watts=260"
    assert tree["energy_ratio"]["value"] == pytest.approx(joules(260) / joules(400), rel=0.05)
