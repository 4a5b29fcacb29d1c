"""A small HTTP server for situations: raw enough to send trailers, wrong content types and
chunks of any size. It runs in a thread of the process that compares."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came; `number` counts the connection's place among all connections."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int

    @property
    def tree(self) -> dict[str, Any]:
        """The body's JSON."""
        tree: dict[str, Any] = json.loads(self.body or b"{}")
        return tree


class Out:
    """Writes one answer: whole, or as a stream of chunks."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @property
    def gone(self) -> bool:
        """The client closed the connection."""
        return self._writer.is_closing() or self._reader.at_eof()

    async def whole(
        self, status: int, body: Any, kind: str = "application/json", headers: Mapping[str, str] | None = None
    ) -> None:
        """An answer at once; a body that is no text is written as JSON."""
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{more}\r\n"
        self._writer.write(head.encode() + data)
        await self._writer.drain()

    async def begin(self, kind: str, headers: Mapping[str, str] | None = None) -> None:
        """The head of a stream."""
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self._writer.write(
            f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{more}Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        await self._writer.drain()

    async def chunk(self, text: str) -> None:
        """A part of the stream."""
        data = text.encode()
        self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self._writer.drain()

    async def end(self, trailers: Mapping[str, str] | None = None) -> None:
        """The end of the stream."""
        more = "".join(f"{name}: {value}\r\n" for name, value in (trailers or {}).items())
        self._writer.write(f"0\r\n{more}\r\n".encode())
        await self._writer.drain()


class Answers(Protocol):
    """What answers requests."""

    def answer(self, request: Request, out: Out) -> Awaitable[None]: ...


@contextmanager
def serving(answers: Answers) -> Iterator[str]:
    """Serve on a free port of this machine; yields the address without a path."""
    loop, address = asyncio.new_event_loop(), ""
    started, connections = threading.Event(), 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        number = connections
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
                while request := await _request(reader, number):
                    await answers.answer(request, Out(reader, writer))
        finally:
            writer.close()

    async def main() -> None:
        nonlocal address
        server = await asyncio.start_server(handle, "127.0.0.1", 0, limit=2**22)
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        server.close()

    def run() -> None:
        asyncio.set_event_loop(loop)
        task = loop.create_task(main())
        stops.append(lambda: loop.call_soon_threadsafe(task.cancel))
        loop.run_until_complete(task)
        for left in asyncio.all_tasks(loop):
            left.cancel()
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    stops: list[Any] = []
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(20)
    try:
        yield address
    finally:
        stops[0]()
        thread.join(20)


async def _request(reader: asyncio.StreamReader, connection: int) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, mark, value in (line.partition(":") for line in head[1:]) if mark}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, path, headers, body, connection)
