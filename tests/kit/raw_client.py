"""A small closed-loop client written for these tests alone: asyncio streams, one connection per
stream, no parsing beyond finding the events. It owes nothing to the package's own client."""

import asyncio
import json
import time
from dataclasses import dataclass, field


@dataclass
class Seen:
    key: str
    sent: float
    events: list[float] = field(default_factory=list)
    body: bytes = b""
    status: int = 0

    @property
    def ttft(self) -> float:
        return self.events[0] - self.sent

    @property
    def tpot(self) -> float:
        return (self.events[-1] - self.events[0]) / (len(self.events) - 1)


def request_bytes(path: str, body: dict, key: str = "") -> bytes:
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(raw)}\r\n"
    return (head + f"x-request-id: {key}\r\n\r\n").encode() + raw


async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: dict, key: str) -> Seen:
    """One streamed completion over an open connection; token events are stamped when they are
    read.
    """
    seen = Seen(key, time.perf_counter())
    writer.write(request_bytes(path, body, key))
    tail = b""
    while True:
        data = await reader.read(65536)
        now = time.perf_counter()
        if not data:
            raise ConnectionResetError("closed")
        seen.body += data
        window = tail + data
        seen.events += [now] * (window.count(b'"text":"') - tail.count(b'"text":"'))
        tail = window[-8:]
        if seen.body.endswith(b"0\r\n\r\n") and b"[DONE]" in seen.body[-40:]:
            seen.status = int(seen.body[9:12])
            return seen


async def closed_loop(port: int, concurrency: int, each: int, body: dict, spread: float) -> list[Seen]:
    """`each` requests in every stream, the first sends spread over `spread` seconds."""

    async def stream(number: int) -> list[Seen]:
        await asyncio.sleep(spread * number / concurrency)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            return [await one(reader, writer, "/v1/completions", body, f"{number}-{i}") for i in range(each)]
        finally:
            writer.close()

    groups = await asyncio.gather(*(stream(n) for n in range(concurrency)))
    return [seen for group in groups for seen in group]
