"""Proxies on loopback, each in a thread of its own: one that forwards, one that buffers."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.contextmanager
def listening(serve: Serve) -> Iterator[str]:
    """Serve each connection until the end of the block; yields http://127.0.0.1:PORT."""
    loop, up = asyncio.new_event_loop(), threading.Event()
    port: list[int] = []
    tasks: set[asyncio.Task[None]] = set()
    stop = asyncio.Event()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            await serve(reader, writer)
        tasks.discard(task)
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(one, "127.0.0.1", 0, limit=2**22)
        port.append(server.sockets[0].getsockname()[1])
        up.set()
        await stop.wait()
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def run() -> None:
        loop.run_until_complete(main())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert up.wait(10)
    try:
        yield f"http://127.0.0.1:{port[0]}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


async def _head(reader: asyncio.StreamReader) -> tuple[bytes, int | None]:
    """A head, and the length of the body it announces."""
    head = await reader.readuntil(b"\r\n\r\n")
    sizes = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return head, int(sizes[0].partition(b":")[2]) if sizes else None


def buffering(upstream: str) -> Serve:
    """A reverse proxy that passes an answer on when it has all of it (nginx's proxy_buffering with
    a large buffer).
    """
    host, port = upstream.removeprefix("http://").split(":")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, length = await _head(reader)
            body = await reader.readexactly(length or 0)
            up_reader, up_writer = await asyncio.open_connection(host, int(port))
            try:
                up_writer.write(head + body)
                answer, length = await _head(up_reader)
                rest = up_reader.readuntil(b"\r\n0\r\n\r\n") if length is None else up_reader.readexactly(length)
                writer.write(answer + await rest)
                await writer.drain()
            finally:
                up_writer.close()

    return serve


class Forward:
    """A forward proxy: absolute addresses and CONNECT. `seen` are the requests it was asked to pass
    on.
    """

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await _head(reader)
        method, address, _ = head.split(b"\r\n", 1)[0].decode().split()
        self.seen.append(f"{method} {address}")
        host, port = address.removeprefix("http://").split("/")[0].split(":")
        up_reader, up_writer = await asyncio.open_connection(host, int(port))
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                up_writer.write(head)
            await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer))
        finally:
            up_writer.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Everything from one side to the other."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
