"""The capacity of one client process on this machine: how many streamed events a second it carries,
measured.

`python -m frontier.client.load.process_capacity` runs a short trial of the real client against
ready-made answers, which a second process sends over loopback, and prints the capacity: the events
a second that would take SHARE of a core at the CPU time that an event took. What is left of the
core is room for bursts; a trial is flagged `client_bound` at 80 %.
"""

import asyncio
import functools
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
from typing import cast

from frontier.client.ask.prompts import random_prompts
from frontier.client.ask.target import Target
from frontier.client.http.http_client import run
from frontier.client.load.trial import run_trial
from frontier.core.shapes import Shape
from frontier.core.trials import Phase, Record, Trial

SHARE = 0.55
"""Of a core. An event costs less where there are more of them, so at this share the capacity is not
overstated."""
STREAMS, TOKENS, TICK = 64, 200, 0.001
"""Each stream gets an event every TICK seconds: 64,000 a second, about what a process carries."""
_ISL, _WINDOW = 32, 0.6
_LIMIT = 15
"""Seconds after which the measurement is given up; normally it takes two."""

_ASKED = re.compile(rb'"max_(?:completion_)?tokens":\s*(\d+)')
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_NOTHING_HERE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@functools.cache
def client_capacity() -> int | None:
    """Events a second that one client process carries here, to two digits; None where that cannot
    be measured.

    It takes about two seconds, once per process. The client is measured in a process of its own.
    """
    command = [sys.executable, "-m", "frontier.client.load.process_capacity"]
    try:
        measured = subprocess.run(  # noqa: S603 - our own arguments
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT, check=True, text=True
        )
        return round(float(f"{float(measured.stdout):.2g}")) or None
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


async def measure(port: int) -> float:
    """The capacity, against the server at this port."""
    target, shape = Target(f"http://127.0.0.1:{port}/v1", "capacity", "chat", dialect="vllm"), Shape.of(_ISL, TOKENS)
    trial = Trial("capacity", shape, STREAMS, 1, Phase.SCAN, 1, 1, 0.0, _WINDOW, _LIMIT, "capacity")
    records: list[Record] = []
    found = await run_trial(trial, target, random_prompts(shape, 1), on_record=records.append)
    start, end = found.window.start, found.window.end
    events = sum(
        start <= record.first + microseconds * 1e-6 < end
        for record in records
        if record.first is not None
        for microseconds in itertools.accumulate(record.gaps, initial=0)
    )
    return SHARE * events / ((found.health.cpu_share or 0.0) * found.window.length)


# --- the server


def _event(choices: str, usage: str = "") -> bytes:
    """One streamed event as a chunk of the answer, as long as those of real servers."""
    head = '"id":"chatcmpl-00000000000000000000000000000000","object":"chat.completion.chunk","created":1700000000'
    data = f'data: {{{head},"model":"capacity","choices":[{choices}]{usage}}}\n\n'.encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


_TOKEN = _event('{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}')
_LAST = _event('{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}')


class _Stream(asyncio.Protocol):
    """One connection: every request is answered with as many events as it asks for, one per
    tick.
    """

    def __init__(self, streams: set["_Stream"]) -> None:
        self._streams = streams
        self._sent = self._asked = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _: Exception | None) -> None:
        self._streams.discard(self)

    def data_received(self, data: bytes) -> None:
        """A request, which is short enough to come in one piece; or a question for metrics."""
        asked = _ASKED.search(data)
        if asked is None:
            self._transport.write(_NOTHING_HERE)
            return
        self._sent, self._asked = 0, int(asked[1])
        self._transport.write(_HEAD)
        self._streams.add(self)

    def tick(self) -> None:
        """Send the next event, and the end after the last."""
        self._sent += 1
        if self._sent <= self._asked:
            self._transport.write(_TOKEN)
            return
        counts = f',"usage":{{"prompt_tokens":{_ISL},"completion_tokens":{self._asked}}}'
        self._transport.write(_LAST + _event("", counts) + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        self._streams.discard(self)


async def serve(listener: socket.socket) -> None:
    """Answer for ever."""
    loop, streams = asyncio.get_running_loop(), set[_Stream]()
    await loop.create_server(lambda: _Stream(streams), sock=listener)
    due = loop.time()
    while True:
        for stream in tuple(streams):
            stream.tick()
        due = max(due + TICK, loop.time())
        await asyncio.sleep(due - loop.time())


def main() -> None:
    """Measure against a server in a forked process, which an alarm ends should this process be
    killed.
    """
    listener = socket.create_server(("127.0.0.1", 0), backlog=STREAMS)
    if not (server := os.fork()):
        signal.alarm(_LIMIT)
        run(serve(listener))
    try:
        sys.stdout.write(f"{run(measure(listener.getsockname()[1]))}\n")
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)


if __name__ == "__main__":
    main()
