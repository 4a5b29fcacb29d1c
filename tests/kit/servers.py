"""Servers on loopback that misbehave in one way each, for tests that look at what a user is
told."""

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MODELS = {"object": "list", "data": [{"id": "sim", "object": "model", "max_model_len": 8192}]}


@contextmanager
def serving(routes: dict[str, Handler], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve `routes` ('POST /v1/completions') on a free port in a thread; yields the address with
    /v1.
    """
    started = threading.Event()
    state: dict[str, object] = {}

    async def main() -> None:
        app = web.Application()
        for route, handler in routes.items():
            method, path = route.split()
            app.router.add_route(method, path, handler)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        state["port"] = runner.addresses[0][1]
        state["loop"] = asyncio.get_running_loop()
        state["stop"] = asyncio.Event()
        started.set()
        stop = state["stop"]
        assert isinstance(stop, asyncio.Event)
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{state['port']}/v1"
    finally:
        loop, stop = state["loop"], state["stop"]
        assert isinstance(loop, asyncio.AbstractEventLoop)
        assert isinstance(stop, asyncio.Event)
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


async def models(_: web.Request) -> web.StreamResponse:
    return web.json_response(MODELS)


def refusing(status: int, message: str) -> Handler:
    """Answers every request with an OpenAI error."""

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": message, "type": "x", "code": status}}, status=status)

    return handler


def saying(body: bytes, content_type: str = "application/json") -> Handler:
    """Answers every request with these bytes."""

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type=content_type)

    return handler


async def whole_answer(_: web.Request) -> web.StreamResponse:
    """A server that does not stream: one JSON body."""
    return web.json_response(
        {"choices": [{"text": "hello", "finish_reason": "stop"}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    )


def streaming(*, usage: bool) -> Handler:
    """A stream of four tokens, with or without the usage chunk."""

    async def handler(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        chat = request.path.endswith("chat/completions")
        for i in range(4):
            end = '"length"' if i == 3 else "null"
            what = '"delta":{"content":"w "}' if chat else '"text":"w "'
            await response.write(f'data: {{"choices":[{{"index":0,{what},"finish_reason":{end}}}]}}\n\n'.encode())
        if usage:
            await response.write(b'data: {"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":4}}\n\n')
        await response.write(b"data: [DONE]\n\n")
        return response

    return handler


def completing(handler: Handler) -> dict[str, Handler]:
    """Routes of a server that lists its model and answers both apis with `handler`."""
    return {"GET /v1/models": models, "POST /v1/completions": handler, "POST /v1/chat/completions": handler}
