"""The simulator's server with its truth: `GET /truth` gives, of each finished request, when each
token was due and when it had really left."""

import time

import orjson
from aiohttp import web

from frontier.simulator.engine import Step
from frontier.simulator.http import server
from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.http.realtime import LiveEngine, LiveRequest
from frontier.simulator.spec import EngineSpec


class TruthProcess(SimulatorProcess):
    MODULE = "tests.kit.truth_server"


class TruthEngine(LiveEngine):
    """Notes the tokens of every request. A process has one."""

    made: "TruthEngine"

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        TruthEngine.made = self
        self.requests: list[dict[str, object]] = []
        self._noted: dict[int, tuple[LiveRequest, list[float], list[float]]] = {}

    def submit(self, job: LiveRequest) -> None:
        super().submit(job)
        self._noted[job.name] = (job, [], [])

    def _emit(self, step: Step) -> None:
        due = self.zero + step.start + step.duration
        noted = [self._noted[name] for name in step.tokens if name in self._jobs]
        super()._emit(step)
        for job, scheduled, actual in noted:
            scheduled.append(due)
            actual.append(time.perf_counter())
            if job.sent == job.output:
                key = job.sink.head.name.partition("-")[2] if isinstance(job.sink, server._Stream) else ""
                times = {"receipt": job.receipt, "scheduled": scheduled, "actual": actual}
                self.requests.append({"key": key, **times})


async def truth(_: web.Request) -> web.Response:
    return web.Response(body=orjson.dumps(TruthEngine.made.requests))


plain_app = server.make_app


def make_app(spec: EngineSpec) -> web.Application:
    app = plain_app(spec)
    app.router.add_get("/truth", truth)
    return app


if __name__ == "__main__":
    server.LiveEngine, server.make_app = TruthEngine, make_app  # type: ignore[misc]
    server.main()
