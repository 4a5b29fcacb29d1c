"""The contract of an executor (`sweep.backend.Backend`): what carries out trials, whatever it runs
them on.

Another one gets a line in EXECUTORS. A sweep by it must leave a run that breaks no rule of the
closed loop, of the window and of the seeds (`tests.kit.trial_rules`); the rest is below.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from frontier.client.http.http_client import run as run_loop
from frontier.config import Config, load_config
from frontier.core.model.trials import Measurement, Record
from frontier.extras.api.virtual_backend import VirtualBackend
from frontier.planning.plan import make_plan
from frontier.read_run import load
from frontier.sweep.backend import Backend, HttpBackend
from frontier.sweep.conductor import Conductor
from tests.kit.sweeps import Told, open_run
from tests.kit.trial_rules import broken_rules

TEXT = """\
endpoint: simulator
simulator: {step_base: 3ms}
shapes: [64/8]
concurrency: [4]
requests: 60
repeats: 1
refine: 0
warmup: 100ms
max_time: 20s
"""
EXECUTORS: dict[str, tuple[str, Callable[[Config], Backend]]] = {
    "virtual time": ("", lambda c: VirtualBackend({d.name: d.engine_spec() for d in c.deployments})),
    "HTTP": ("workers: 1\n", lambda c: HttpBackend(c, {}, salt=7)),
    "HTTP, two client processes": ("workers: 2\n", lambda c: HttpBackend(c, {}, salt=7)),
}
"""What the config of each has beside TEXT, and how it is made."""


@pytest.mark.process
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * ("two" in n)) for n in EXECUTORS])
def test_an_executor_keeps_its_contract(name: str, tmp_path: Path) -> None:
    more, make = EXECUTORS[name]
    config = load_config(TEXT + more, "sweep.yaml")
    records: list[Record] = []

    async def one_trial() -> Measurement:
        backend, trial = make(config), make_plan(config).trials[0]
        try:
            facts = await backend.prepare(config.deployments[0])
            again = await backend.prepare(config.deployments[0])  # as after a server was lost
            assert (facts.deployment, facts.identity) == ("default", again.identity)
            measurement = await backend.run(
                trial, expected_e2e=None, on_record=records.append, on_tick=lambda _: None, stop=asyncio.Event()
            )
        finally:
            await backend.close()
        assert measurement.trial == trial
        assert (measurement.server_identity or "").startswith(facts.identity)
        return measurement

    measurement = run_loop(one_trial())
    window = measurement.window
    assert measurement.ended == "requests"
    assert sum(window.start <= r.sent <= window.end for r in records) >= 60
    assert {r.stream for r in records} == set(range(4))

    async def sweep() -> str:
        return await Conductor(config, make_plan(config), run, make(config), Told(), asyncio.Event()).conduct()

    with open_run(tmp_path / "run", config, TEXT + more) as run:
        assert run_loop(sweep()) == "finished"
    assert [] == list(broken_rules(load(tmp_path / "run")))
