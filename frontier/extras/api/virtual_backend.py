"""Virtual backend: the simulator in virtual time, in place of servers."""

import asyncio
from collections.abc import Mapping

from frontier.config import DeploymentConfig
from frontier.core.model.trials import Measurement, Trial
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import virtual_trial
from frontier.store.journal import VIRTUAL
from frontier.sweep.backend import Backend, Facts, OnRecord, OnTick


class VirtualBackend(Backend):
    """The simulator in virtual time: a whole sweep in seconds, with the truth known. For tests and
    studies.
    """

    def __init__(self, specs: Mapping[str, EngineSpec]) -> None:
        self._specs = specs

    async def prepare(self, deployment: DeploymentConfig) -> Facts:
        spec = self._specs[deployment.name]
        return Facts(deployment.name, VIRTUAL, spec.model_name, VIRTUAL)

    async def run(
        self, trial: Trial, *, expected_e2e: float | None, on_record: OnRecord, on_tick: OnTick, stop: asyncio.Event
    ) -> Measurement:
        del expected_e2e, on_tick, stop  # virtual time needs no estimate, shows no progress and is not stopped
        await asyncio.sleep(0.001)  # signals are heard between trials
        records, measurement = virtual_trial(trial, self._specs[trial.deployment])
        for record in records:
            on_record(record)
        return measurement

    async def release(self) -> None:
        """Nothing was started."""

    async def close(self) -> None:
        """Nothing was started."""
