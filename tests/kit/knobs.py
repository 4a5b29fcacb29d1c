"""Sweeps of a knob in virtual time: its commands are real ones, on a file; its power and speed are
formulas of what the file holds.
"""

import asyncio
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from frontier.config import load_config
from frontier.core.model.trials import Measurement, Phase, Trial
from frontier.planning.plan import make_plan
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import virtual_trial
from frontier.store.run_dir import RunDirectory
from frontier.sweep.backend import Backend, Facts
from frontier.sweep.conductor import Conductor, SweepEnd
from tests.kit.knob_server import slowed
from tests.kit.sweeps import Told, no_fsync, open_run

STEP, DECODE, PREFILL = 0.02, 240e-6, 80e-6
ENGINE: Mapping[str, Any] = {"step_base": STEP, "per_decode": DECODE, "per_prefill_token": PREFILL, "noise": 0.02}


def knob_config(cap: Path, watts: str = "[400, 320, 260]", more: str = "", apply: str = "", check: str = "") -> str:
    """A sweep of three power caps; the file `cap` holds what is set."""
    apply = apply or f"echo {{watts}} > {cap}"
    return f"""\
endpoint: http://127.0.0.1:9/v1
shapes: [64/32]
concurrency: [4, 8, 16, 32]
sla: {{p90_ttft: 400ms, p90_tpot: 32ms}}
deployments:
  - name: gpu
    vary: {{watts: {watts}}}
    apply: "{apply}"
    check: "{check or f"cat {cap}"}"
    settle: 0s
{more}"""


class CappedBackend(Backend):
    """Trials at the cap that the file holds. Each is slower by `drift` and by noise of its own, and
    draws the cap, or nothing that is known where `powered` is not set.
    """

    def __init__(self, cap: Path, *, powered: bool = True, drift: float = 0.0, noise: float = 0.0, seed: int = 1):
        self.cap, self.powered, self.drift, self.noise = cap, powered, drift, noise
        self.rng, self.ran = np.random.default_rng(seed), list[tuple[str, float, Phase]]()

    async def prepare(self, deployment: Any) -> Facts:
        return Facts(deployment.name, "virtual", "m", "virtual")

    def factor(self, watts: float) -> float:
        """How much longer a step is."""
        return slowed(watts) * (1 + self.drift) ** len(self.ran) * float(np.exp(self.noise * self.rng.normal()))

    async def run(self, trial: Trial, *, on_record: Any, **_: Any) -> Measurement:
        watts = float(self.cap.read_text())
        self.ran.append((trial.deployment, watts, trial.phase))
        longer = self.factor(watts)
        times = {key: ENGINE[key] * longer for key in ("step_base", "per_decode", "per_prefill_token")}
        spec = EngineSpec.from_mapping({**ENGINE, **times, "seed": len(self.ran)})
        records, measurement = virtual_trial(trial, spec)
        for record in records:
            on_record(record)
        power = {"gpu_power": watts, "gpu_count": 1.0, "gpu_power_readings": 100.0}
        server = {**measurement.server, **power} if self.powered else measurement.server
        return dataclasses.replace(measurement, server=server)

    async def release(self) -> None:
        """Nothing was started."""

    async def close(self) -> None:
        """Nothing was started."""


def conducted(run: Path, text: str, backend: CappedBackend, told: Told | None = None) -> SweepEnd:
    """Run (or resume) the sweep of a knob."""
    config = load_config(text, "knob.yaml")

    async def go(directory: RunDirectory) -> SweepEnd:
        parts = config, make_plan(config), directory, backend, told or Told(), asyncio.Event()
        return await Conductor(*parts).conduct()

    with no_fsync(), open_run(run, config, text) as directory:
        return asyncio.run(go(directory))
