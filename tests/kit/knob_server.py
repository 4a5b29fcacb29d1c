"""The simulator's server with a power cap: a file holds the watts, and `GET /dcgm` gives the power
as a device exporter does. The physics is a formula, so the joules of a token are known.
"""

from pathlib import Path

from aiohttp import web

from frontier.simulator.engine import Scheduler
from frontier.simulator.http import server
from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.http.realtime import LiveEngine
from frontier.simulator.spec import EngineSpec

IDLE, FULL, BOUND = 100.0, 400.0, 0.4
"""Watts without load; watts at full clocks; the share of a step that follows the clock."""


class KnobProcess(SimulatorProcess):
    MODULE = "tests.kit.knob_server"


def slowed(watts: float) -> float:
    """The factor by which steps are longer: the clock goes with the cube root of the power that is
    not idle.
    """
    return 1 - BOUND + BOUND / min(1.0, ((watts - IDLE) / (FULL - IDLE)) ** (1 / 3))


class CappedScheduler(Scheduler):
    _last = FULL

    @property
    def watts(self) -> float:
        """The cap; the last one while a command is writing the file."""
        if text := Path(self.spec.model_name).read_text().strip():
            self._last = float(text)
        return self._last

    def _cost(self, *work: float) -> float:  # type: ignore[override]
        return super()._cost(*work) * slowed(self.watts)  # type: ignore[arg-type]


class CappedEngine(LiveEngine):
    """A process has one. The name of its model is the file of its cap."""

    made: "CappedEngine"

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self.scheduler = CappedScheduler(spec)
        CappedEngine.made = self


async def dcgm(_: web.Request) -> web.Response:
    scheduler = CappedEngine.made.scheduler
    watts = IDLE if scheduler.idle else scheduler.watts
    return web.Response(text=f'DCGM_FI_DEV_POWER_USAGE{{gpu="0"}} {watts}\n')


plain_app = server.make_app


def make_app(spec: EngineSpec) -> web.Application:
    app = plain_app(spec)
    app.router.add_get("/dcgm", dcgm)
    return app


if __name__ == "__main__":
    server.LiveEngine, server.make_app = CappedEngine, make_app  # type: ignore[misc]
    server.main()
