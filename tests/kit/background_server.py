"""The simulator's server that refuses a background, whose requests it knows by their priority."""

import json

from aiohttp import web
from aiohttp.typedefs import Handler

from frontier.simulator.http import server
from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec

PRIORITY, WORDS = 10, "the batch queue is full"


class RefusingProcess(SimulatorProcess):
    MODULE = "tests.kit.background_server"


@web.middleware
async def refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.method == "POST" and json.loads(await request.read()).get("priority") == PRIORITY:
        return web.json_response({"error": {"message": WORDS}}, status=429)
    return await handler(request)


plain_app = server.make_app


def make_app(spec: EngineSpec) -> web.Application:
    app = plain_app(spec)
    app.middlewares.insert(0, refuse)
    return app


if __name__ == "__main__":
    server.make_app = make_app
    server.main()
