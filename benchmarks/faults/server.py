"""The simulated engine with faults: a process that can be told to fail, and be killed, frozen and
restarted.

    with FaultyServer(spec, log=here / "server.log") as server:
        server.fault("status", status=503, retry_after=2, seconds=1.5)   # for everyone, for a while
        server.fault("reset", after=0.05, share=0.3)                     # a TCP reset into some of
        the streams server.kill(); server.start()                                    # a crash, and
        back on the same port

Every request that arrives is one line of the log, written before it is answered, so that even a
crash loses none: the key is a hash of its prompt, the fault is what was done to it.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import logging
import os
import random
import selectors
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from frontier.simulator.http.server import Handler, make_app
from frontier.simulator.spec import EngineSpec

KINDS = ("status", "hang", "drip", "reset", "close", "garbage", "empty", "error_event", "not_a_stream")


def key_of(prompt: object) -> str:
    """What a request is called in the log: prompts are fresh, so each names its request."""
    return hashlib.sha256(json.dumps(prompt).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Fault:
    """What is done to a `share` of the requests that arrive in the next `seconds`. `after`: seconds
    until a cut.
    """

    kind: str
    seconds: float = 1e9
    share: float = 1.0
    status: int = 503
    retry_after: str | None = None
    after: float = 0.05


class _Faults:
    """The middleware: passes requests on to the engine, or fails them, and keeps the log."""

    def __init__(self, log: Path | None) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if log is not None else None
        self._fault: Fault | None = None
        self._until = 0.0
        self._random = random.Random(1)

    def set(self, tree: dict[str, Any] | None) -> None:
        """Begin a fault; None ends it."""
        self._fault = None if tree is None else Fault(**tree)
        self._until = time.monotonic() + (self._fault.seconds if self._fault else 0.0)

    def _pick(self) -> Fault | None:
        fault = self._fault
        if fault is None or time.monotonic() > self._until or self._random.random() >= fault.share:
            return None
        return fault

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every route passes here; only generations fail."""
        if request.method != "POST" or not request.path.endswith("/completions"):
            return await handler(request)
        body = json.loads(await request.read())
        fault = self._pick()
        if self._log is not None:
            line = {"key": key_of(body.get("prompt") or body.get("messages")), "fault": fault.kind if fault else None}
            os.write(self._log, json.dumps(line).encode() + b"\n")
        if fault is None:
            return await handler(request)
        return await self._fail(fault, request, handler)

    async def _fail(self, fault: Fault, request: web.Request, handler: Handler) -> web.StreamResponse:
        match fault.kind:
            case "status":
                headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
                tree = {"error": {"message": "told to fail", "type": "x", "code": fault.status}}
                return web.json_response(tree, status=fault.status, headers=headers)
            case "hang":
                await asyncio.sleep(3600)
            case "reset" | "close":
                cut = asyncio.get_running_loop().call_later(fault.after, _cut, request.transport, fault.kind == "reset")
                try:
                    return await handler(request)
                finally:
                    cut.cancel()
            case "not_a_stream":
                return web.json_response({"choices": [{"text": "all at once", "finish_reason": "length"}]})
        return await _broken_stream(fault, request)


async def _broken_stream(fault: Fault, request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    if fault.kind == "garbage":
        await response.write(b'data: {"choices": [\x00\xff not json\n\n')
    elif fault.kind == "error_event":
        await response.write(b'data: {"error": {"message": "out of memory", "code": 500}}\n\n')
    elif fault.kind == "drip":
        for _ in range(100_000):
            await response.write(b":")
            await asyncio.sleep(0.2)
    await response.write(b"data: [DONE]\n\n")
    return response


def _cut(transport: asyncio.Transport | None, reset: bool) -> None:
    if transport is None or transport.is_closing():
        return
    if reset:
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class FaultyServer:
    """The parent's handle. `start` after `kill` or `stop` comes back on the same port; `**changes`
    are other parameters of the engine, as model_name. `tls` is a PEM file with key and certificate.
    """

    def __init__(self, spec: EngineSpec, *, log: Path | None = None, tls: Path | None = None) -> None:
        self.spec, self.log, self.tls = spec, log, tls
        self.port = 0
        self.child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/v1"

    def start(self, **changes: Any) -> None:
        """Start, and wait until it serves."""
        spec = self.spec.to_mapping() | changes
        command = [sys.executable, "-m", "benchmarks.faults.server", "--port", str(self.port)]
        command += ["--spec", json.dumps(spec)]
        command += ["--log", str(self.log)] if self.log else []
        command += ["--tls", str(self.tls)] if self.tls else []
        root = Path(__file__).parents[2]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root)
        assert self.child.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.child.stdout, selectors.EVENT_READ)
            assert selector.select(60), "the faulty server did not start"
        self.port = int(self.child.stdout.readline())

    def fault(self, kind: str | None, **how: Any) -> None:
        """Begin a fault (None: end it). It holds for requests that arrive from now on."""
        assert self.child is not None
        assert self.child.stdin is not None
        assert kind is None or kind in KINDS
        self.child.stdin.write(json.dumps(None if kind is None else {"kind": kind, **how}).encode() + b"\n")
        self.child.stdin.flush()

    def kill(self) -> None:
        """As the kernel does when memory is out."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Sockets stay open, nothing is answered."""
        assert self.child is not None
        self.child.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.child is not None
        self.child.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        child, self.child = self.child, None
        if child is None:
            return
        child.send_signal(number)
        child.send_signal(signal.SIGCONT)
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def arrivals(self) -> list[dict[str, Any]]:
        """The log so far."""
        assert self.log is not None
        return [json.loads(line) for line in self.log.read_bytes().splitlines()] if self.log.exists() else []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


async def _serve(spec: EngineSpec, port: int, log: Path | None, tls: Path | None) -> None:
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # clients that go away are the point of it
    faults, loop, stop = _Faults(log), asyncio.get_running_loop(), asyncio.Event()
    app = make_app(spec)
    app.middlewares.insert(0, faults.middleware)
    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context, backlog=1024).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def listen() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(faults.set, json.loads(line))
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=listen, daemon=True).start()
    print(runner.addresses[0][1], flush=True)
    await stop.wait()
    await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description="The simulated engine with faults; see FaultyServer.")
    parser.add_argument("--spec", type=json.loads, default={})
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--tls", type=Path)
    given = parser.parse_args()
    asyncio.run(_serve(EngineSpec.from_mapping(given.spec), given.port, given.log, given.tls))
    os._exit(0)  # the thread that reads standard input would hold the end up


if __name__ == "__main__":
    main()
