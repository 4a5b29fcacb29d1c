"""Requests of equal length on the embedded engine over HTTP: they do not run in step, and N stay in
flight."""

import numpy as np
import pytest

from frontier.client import run_trial
from frontier.client.ask.preflight import preflight
from frontier.client.ask.prompts import random_prompts
from frontier.client.ask.target import Target
from frontier.client.http.http_client import run
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Outcome, Phase, Record, Trial
from frontier.core.stats.stationarity import dispersion
from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec

pytestmark = pytest.mark.process

SHAPE, STREAMS = Shape.of(128, 48), 16
SPEC = EngineSpec(step_base=4e-3, per_prefill_token=1e-4, noise=0.05, seed=2)


@pytest.mark.timeout(60)
def test_equal_requests_do_not_run_in_step_and_n_are_in_flight() -> None:
    trial = Trial("d", SHAPE, STREAMS, 1, Phase.SCAN, 10**6, 5, 0.0, 0.0, 30.0, "f", seconds=3.0)
    records: list[Record] = []
    simulator = SimulatorProcess(SPEC)
    simulator.start()
    try:
        ready = run(preflight(Target(simulator.url, None, "completions", dialect="vllm"), concurrency=STREAMS))
        # The estimate is far too short, as after a look at one user: it used to send all streams
        # off together.
        found = run(
            run_trial(
                trial,
                ready.target,
                random_prompts(SHAPE, 5),
                on_record=records.append,
                expected_e2e=0.05,
            )
        )
    finally:
        simulator.stop()
    window = found.window
    inside = [r for r in records if window.start <= r.sent <= window.end]
    e2e = np.array([r.end - r.sent for r in inside])
    assert "time" == found.ended
    assert 3.0 <= window.length < 3.3
    assert window.start < 2.5 * e2e.mean()
    assert {(Outcome.OK, 48)} == {(r.outcome, r.completion_tokens) for r in inside}
    sends = dispersion(np.array([r.sent for r in inside]), window.start, window.end, float(e2e.mean()))
    assert sends is not None
    assert sends.value - 2 * sends.error < 2
    busy = sum(max(0.0, min(r.end, window.end) - max(r.sent, window.start)) for r in records) / window.length
    assert busy == pytest.approx(STREAMS, rel=0.02)
    tpot = np.mean([(r.last - r.first) / 47 for r in inside if r.first is not None and r.last is not None])
    assert found.health.restart_delay_mean is not None
    assert 0 < found.health.restart_delay_mean <= tpot
