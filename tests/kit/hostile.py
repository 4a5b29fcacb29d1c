"""One HTTP server with every nasty behaviour, each under its own path:
http://host/BEHAVIOUR/v1/chat/completions.

Runs in a thread of its own on 127.0.0.1; written on bare sockets because most of it is what HTTP
libraries prevent.
"""

import asyncio
import gzip
import json
import random
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

Behaviour = Callable[["Call"], Awaitable[None]]
BEHAVIOURS: dict[str, Behaviour] = {}


def behaviour(run: Behaviour) -> Behaviour:
    BEHAVIOURS[run.__name__] = run
    return run


@dataclass
class Call:
    """One request and the way back."""

    path: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter
    nth_on_connection: int
    server: "Hostile"
    method: str
    keep: bool = True

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, *more: str, status: str = "200 OK", kind: str = "text/event-stream") -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", *more]
        await self.raw(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def stream(self, *events: bytes, end: bool = True, gap: float = 0.002) -> None:
        """A chunked stream, each piece a chunk and a send of its own."""
        await self.head("Transfer-Encoding: chunked")
        for event in events:
            await self.raw(chunk(event))
            await asyncio.sleep(gap)
        if end:
            await self.raw(b"0\r\n\r\n")

    async def json(self, status: str, body: Any, *more: str) -> None:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self.head(f"Content-Length: {len(text)}", *more, status=status, kind="application/json")
        await self.raw(text)

    def reset(self) -> None:
        """Close with a TCP reset."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
        self.keep = False


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def sse(event: Any) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def delta(**fields: Any) -> bytes:
    return sse({"id": "c1", "choices": [{"index": 0, "delta": fields, "finish_reason": None}], "usage": None})


ROLE = delta(role="assistant", content="")
TOKENS = [delta(content=f" tok{i}") for i in range(5)]
FINISH = sse({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
USAGE = sse({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5, "prompt_tokens_details": None}})
DONE = b"data: [DONE]\n\n"
GOOD = [ROLE, *TOKENS, FINISH, USAGE, DONE]


class Hostile:
    """The server; a context manager."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.calls: list[tuple[str, dict[str, str]]] = []
        self.bodies: list[tuple[str, bytes]] = []
        self.methods: list[tuple[str, str]] = []
        self.connections = 0
        self.port = 0

    def url(self, name: str) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/{name}"

    def asked(self, name: str) -> int:
        """How many completions a behaviour was asked for."""
        return sum(path.startswith(f"/{name}/") and path.endswith("completions") for path, _ in self.calls)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._stop is not None
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self._tls, limit=2**24)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            await self._converse(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nth = 0
        while True:
            first_byte = await reader.readexactly(1)
            if not first_byte.isalpha():
                writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                return
            head = (first_byte + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.split("\r\n")
            headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            method, path, _ = first.split(" ")
            # A proxy's client asks for the whole address.
            path = "/" + path.split("/", 3)[3] if path.startswith("http://") else path
            nth += 1
            self.calls.append((path, headers))
            if body:
                self.bodies.append((path, body))
            self.methods.append((method, path))
            call = Call(path, headers, body, writer, nth, self, method)
            await self.dispatch(call)
            if not call.keep:
                return

    async def dispatch(self, call: Call) -> None:
        """Answer as the behaviour named first in the path."""
        await BEHAVIOURS.get(call.path.split("/")[1], missing)(call)


async def missing(call: Call) -> None:
    await call.json("404 Not Found", {"detail": "Not Found"})


# --- good streams in odd shapes


@behaviour
async def good(call: Call) -> None:
    await call.stream(*GOOD)


@behaviour
async def one_lump(call: Call) -> None:
    await call.head("Transfer-Encoding: chunked")
    await call.raw(b"".join(map(chunk, GOOD)) + b"0\r\n\r\n")


@behaviour
async def all_at_once(call: Call) -> None:
    text = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    await call.raw(text + b"".join(map(chunk, GOOD)) + b"0\r\n\r\n")


@behaviour
async def byte_by_byte(call: Call) -> None:
    await call.stream(*(bytes([b]) for b in b"".join(GOOD)), gap=0)


@behaviour
async def torn_chunks(call: Call) -> None:
    """The chunked coding itself is cut anywhere, the head too."""
    text = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
    text += b"".join(map(chunk, GOOD)) + b"0\r\n\r\n"
    for at in range(0, len(text), 23):
        await call.raw(text[at : at + 23])
        await asyncio.sleep(0)


@behaviour
async def cut_anywhere(call: Call) -> None:
    """The whole answer, coding and all, in pieces of any size: as drawn from the number of the
    request.
    """
    rng = random.Random(len(call.server.calls))
    coded = [b"\xef\xbb\xbf"] if rng.random() < 0.3 else []
    end = rng.choice([b"\n", b"\r\n", b"\r"])
    body = b"".join(coded + [event.replace(b"\n", end) for event in GOOD])
    text = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    while body:
        size = rng.choice([1, 2, 7, 40, 200, 5000])
        text, body = text + chunk(body[:size]), body[size:]
    text += b"0\r\n\r\n"
    while text:
        size = rng.choice([1, 3, 20, 100, 1000])
        await call.raw(text[:size])
        await asyncio.sleep(0)
        text = text[size:]


@behaviour
async def shouting_chunks(call: Call) -> None:
    """Upper-case sizes, padding, an extension, trailers."""
    await call.head("Transfer-Encoding: chunked")
    for event in GOOD:
        await call.raw(b"000%X;name=value\r\n%b\r\n" % (len(event), event))
        await asyncio.sleep(0.001)
    await call.raw(b"0\r\nX-Trailer: yes\r\n\r\n")


@behaviour
async def crlf(call: Call) -> None:
    await call.stream(*(event.replace(b"\n", b"\r\n") for event in GOOD))


@behaviour
async def cr(call: Call) -> None:
    await call.stream(*(event.replace(b"\n", b"\r") for event in GOOD))


@behaviour
async def bom_and_no_space(call: Call) -> None:
    await call.stream(b"\xef\xbb\xbf", *(event.replace(b"data: ", b"data:") for event in GOOD))


@behaviour
async def pings(call: Call) -> None:
    await call.stream(b": ping\n\n", *(b": OPENROUTER PROCESSING\n\ndata:\n\n" + event for event in GOOD))


@behaviour
async def no_done(call: Call) -> None:
    await call.stream(*GOOD[:-1])


@behaviour
async def done_without_finish(call: Call) -> None:
    await call.stream(*TOKENS, USAGE, DONE)


@behaviour
async def after_done(call: Call) -> None:
    await call.stream(*GOOD, b"data: trailing\n\n", TOKENS[0], b"data: [DONE]\n\ndata: cut")


@behaviour
async def done_and_no_end(call: Call) -> None:
    """The last chunk never comes, and the connection stays open."""
    await call.stream(*GOOD, end=False)
    await asyncio.sleep(30)


@behaviour
async def done_and_closed(call: Call) -> None:
    """The connection is closed instead of a last chunk."""
    await call.stream(*GOOD, end=False)
    call.keep = False


@behaviour
async def done_and_reset(call: Call) -> None:
    await call.stream(*GOOD, end=False)
    await asyncio.sleep(0.01)
    call.reset()


@behaviour
async def done_in_pieces(call: Call) -> None:
    """[DONE] cut anywhere, and no last chunk."""
    await call.stream(*GOOD[:-1], end=False)
    cut = 3 + call.nth_on_connection % 9
    await call.raw(b"e\r\n" + DONE[:cut])
    await asyncio.sleep(0.01)
    await call.raw(DONE[cut:])
    await asyncio.sleep(30)


@behaviour
async def done_and_more_promised(call: Call) -> None:
    """A Content-Length of more than comes."""
    text = b"".join(GOOD)
    await call.head(f"Content-Length: {len(text) + 100}")
    await call.raw(text)
    await asyncio.sleep(30)


@behaviour
async def answer_ahead(call: Call) -> None:
    """Behind its answer the server sends one to a request that nobody has sent, without an end."""
    await call.stream(*GOOD)
    await asyncio.sleep(0.05)
    await call.stream(*TOKENS, end=False)


@behaviour
async def until_close(call: Call) -> None:
    await call.head("Connection: close")
    for event in GOOD:
        await call.raw(event)
        await asyncio.sleep(0.002)
    call.keep = False


@behaviour
async def with_length(call: Call) -> None:
    text = b"".join(GOOD)
    await call.head(f"Content-Length: {len(text)}")
    await call.raw(text)


@behaviour
async def continued(call: Call) -> None:
    await call.raw(b"HTTP/1.1 100 Continue\r\n\r\n")
    await call.stream(*GOOD)


@behaviour
async def surplus(call: Call) -> None:
    """Bytes after the end of the answer: the connection cannot be used again."""
    await call.stream(*GOOD, end=False)
    await call.raw(b"0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


@behaviour
async def utf8(call: Call) -> None:
    event = 'data: {"choices": [{"delta": {"content": "héé\\u00e9 – 漢字"}}]}\n\n'.encode()
    await call.stream(event[:52], event[52:53], event[53:], event, FINISH, USAGE, DONE)


# --- what is and is not a token


@behaviour
async def role_early(call: Call) -> None:
    await call.head("Transfer-Encoding: chunked")
    await call.raw(chunk(ROLE))
    await asyncio.sleep(0.15)
    await call.raw(b"".join(map(chunk, [*TOKENS, FINISH])))
    await asyncio.sleep(0.15)
    await call.raw(chunk(USAGE) + chunk(DONE) + b"0\r\n\r\n")


@behaviour
async def reasoning(call: Call) -> None:
    nulls = {"content": None, "tool_calls": None}
    thoughts = [delta(**nulls, reasoning_content=t) for t in ("a", "")] + [delta(**nulls, reasoning="b")]
    await call.stream(ROLE, *thoughts, *TOKENS, FINISH, USAGE, DONE, gap=0.02)


@behaviour
async def tools(call: Call) -> None:
    calls = [{"name": "find", "arguments": ""}, {"arguments": '{"x":'}, {"arguments": "1}"}, {"arguments": ""}]
    events = [delta(tool_calls=[{"index": 0, "function": f}]) for f in calls]
    await call.stream(ROLE, *events, FINISH, USAGE, DONE)


@behaviour
async def running_usage(call: Call) -> None:
    events = [
        sse({"choices": [{"delta": {"content": "x"}}], "usage": {"prompt_tokens": 7, "completion_tokens": i + 1}})
        for i in range(5)
    ]
    await call.stream(*events, FINISH, DONE)


@behaviour
async def null_choices(call: Call) -> None:
    usage = sse({"choices": None, "usage": {"prompt_tokens": 7, "completion_tokens": 5}})
    await call.stream(*TOKENS, FINISH, usage, DONE)


@behaviour
async def no_usage(call: Call) -> None:
    await call.stream(ROLE, *TOKENS, FINISH, DONE)


# --- failures


@behaviour
async def role_only(call: Call) -> None:
    await call.stream(ROLE, FINISH, USAGE, DONE)


@behaviour
async def empty(call: Call) -> None:
    await call.stream()


@behaviour
async def no_terminal(call: Call) -> None:
    await call.stream(ROLE, *TOKENS)


@behaviour
async def error_object(call: Call) -> None:
    await call.stream(*TOKENS, sse({"error": {"message": "out of\u0007 memory", "code": 500}}), DONE)


@behaviour
async def error_string(call: Call) -> None:
    await call.stream(*TOKENS, sse({"error": "out of memory", "error_type": "generation"}), DONE)


@behaviour
async def error_event(call: Call) -> None:
    await call.stream(*TOKENS, b'event: error\ndata: {"message": "out of memory"}\n\n')


@behaviour
async def error_flat(call: Call) -> None:
    await call.stream(sse({"object": "error", "message": "out of memory"}), DONE)


@behaviour
async def error_beside_choices(call: Call) -> None:
    await call.stream(*TOKENS, sse({"choices": [{"delta": {"content": ""}}], "error": {"message": "out of memory"}}))


@behaviour
async def not_json(call: Call) -> None:
    await call.stream(*TOKENS, b"data: {oops\n\n", FINISH, DONE)


@behaviour
async def wrong_form(call: Call) -> None:
    await call.stream(*TOKENS, sse({"choices": ["text"]}), FINISH, DONE)


@behaviour
async def compressed(call: Call) -> None:
    text = gzip.compress(b"".join(GOOD))
    await call.head("Content-Encoding: gzip", f"Content-Length: {len(text)}")
    await call.raw(text)


@behaviour
async def plain_json(call: Call) -> None:
    await call.json("200 OK", {"choices": [{"message": {"content": "hello"}}], "usage": {"completion_tokens": 5}})


@behaviour
async def html(call: Call) -> None:
    await call.head("Content-Length: 13", kind="text/html")
    await call.raw(b"<h1>Hello</h1"[:13])


@behaviour
async def endless_line(call: Call) -> None:
    await call.head("Transfer-Encoding: chunked")
    for _ in range(17):
        await call.raw(chunk(b"data: " + b"x" * 2**20))
    await call.raw(b"0\r\n\r\n")


@behaviour
async def endless_tokens(call: Call) -> None:
    """It never stops generating, whatever was asked."""
    await call.head("Transfer-Encoding: chunked")
    while True:
        await call.raw(chunk(TOKENS[0]))
        await asyncio.sleep(0.02)


@behaviour
async def endless_head(call: Call) -> None:
    await call.raw(b"HTTP/1.1 200 OK\r\n")
    while True:
        await call.raw(b"X-Padding: " + b"x" * 4000 + b"\r\n")
        await asyncio.sleep(0)


@behaviour
async def dripping_head(call: Call) -> None:
    """A head a byte at a time (slowloris)."""
    for byte in b"HTTP/1.1 200 OK\r\nX-Padding: " + b"x" * 400:
        await call.raw(bytes([byte]))
        await asyncio.sleep(0.1)


@behaviour
async def endless_continue(call: Call) -> None:
    while True:
        await call.raw(b"HTTP/1.1 100 Continue\r\n\r\n")
        await asyncio.sleep(0.01)


@behaviour
async def flood_of_heads(call: Call) -> None:
    while True:
        await call.raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)
        await asyncio.sleep(0)


@behaviour
async def endless_trailers(call: Call) -> None:
    """Chunked, all of it there but the very end. Slow enough that aiohttp's limit on the number of
    trailers, 128, is not met before the time limits of the tests.
    """
    await call.stream(*GOOD[:-3], end=False)
    await call.raw(b"0\r\n")
    while True:
        await call.raw(b"X-Trailer: yes\r\n")
        await asyncio.sleep(0.1)


@behaviour
async def huge_event(call: Call) -> None:
    """The token ids of a long prompt in the first event: far over what a line reader takes, and
    fine.
    """
    ids = sse({"choices": [{"index": 0, "delta": {"content": ""}}], "prompt_token_ids": list(range(100_000))})
    await call.stream(ids, *GOOD)


@behaviour
async def closes_after(call: Call) -> None:
    """llama-server's way: keep-alive is announced, and the connection closed after the stream."""
    await call.head("Transfer-Encoding: chunked", "Keep-Alive: timeout=5, max=100")
    for event in GOOD:
        await call.raw(chunk(event))
        await asyncio.sleep(0.002)
    await call.raw(b"0\r\n\r\n")
    call.keep = False


@behaviour
async def resets_after(call: Call) -> None:
    """As closes_after, with a TCP reset."""
    await call.stream(*GOOD)
    await asyncio.sleep(0.02)
    call.reset()


@behaviour
async def bad_chunk(call: Call) -> None:
    await call.stream(*TOKENS, end=False)
    await call.raw(b"zz\r\nwhat\r\n")


@behaviour
async def long_chunk(call: Call) -> None:
    await call.stream(*TOKENS, end=False)
    await call.raw(b"3\r\nfour\r\n")


@behaviour
async def not_http(call: Call) -> None:
    await call.raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
    call.keep = False


@behaviour
async def slow_head(call: Call) -> None:
    await asyncio.sleep(30)


@behaviour
async def slow_first_byte(call: Call) -> None:
    await call.head("Transfer-Encoding: chunked")
    await asyncio.sleep(30)


@behaviour
async def stall(call: Call) -> None:
    await call.stream(*TOKENS, end=False)
    await asyncio.sleep(30)


@behaviour
async def endless_pings(call: Call) -> None:
    await call.head("Transfer-Encoding: chunked")
    while True:
        await call.raw(chunk(b": ping\n\n"))
        await asyncio.sleep(0.05)


@behaviour
async def close_before(call: Call) -> None:
    call.keep = False


@behaviour
async def reset_before(call: Call) -> None:
    call.reset()


@behaviour
async def close_in_head(call: Call) -> None:
    await call.raw(b"HTTP/1.1 200 OK\r\nContent-Ty")
    call.keep = False


@behaviour
async def close_mid(call: Call) -> None:
    await call.stream(*TOKENS, end=False)
    call.keep = False


@behaviour
async def reset_mid(call: Call) -> None:
    await call.stream(*TOKENS, end=False)
    await asyncio.sleep(0.05)
    call.reset()


@behaviour
async def short_length(call: Call) -> None:
    await call.head("Content-Length: 100000")
    await call.raw(b"".join(GOOD[:4]))
    call.keep = False


@behaviour
async def lying_keep_alive(call: Call) -> None:
    """The first request of a connection is answered; the second finds the door shut."""
    if call.nth_on_connection == 1:
        await call.stream(*GOOD)
    else:
        await asyncio.sleep(0.1)
        call.keep = False


@behaviour
async def thinks_and_dies(call: Call) -> None:
    """The first request of a connection is answered; the second is thought about, and the server
    dies over it.
    """
    if call.nth_on_connection == 1:
        await call.stream(*GOOD)
    else:
        await asyncio.sleep(0.8)
        call.keep = False


@behaviour
async def unauthorized(call: Call) -> None:
    await call.json("401 Unauthorized", {"error": {"message": "Invalid API key", "type": "auth"}})


@behaviour
async def too_many(call: Call) -> None:
    await call.json(
        "429 Too Many Requests", {"error": "Model is overloaded", "error_type": "overloaded"}, "Retry-After: 7"
    )


@behaviour
async def bad_gateway(call: Call) -> None:
    """nginx, when nobody listens behind it."""
    page = b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1>"
    page += b"</center>\r\n<hr><center>nginx/1.22.1</center>\r\n</body>\r\n</html>\r\n"
    await call.head(f"Content-Length: {len(page)}", status="502 Bad Gateway", kind="text/html")
    await call.raw(page)


@behaviour
async def not_ready(call: Call) -> None:
    await call.json("503 Service Unavailable", {"error": {"message": "Loading model", "code": 503}})


@behaviour
async def invalid(call: Call) -> None:
    await call.json("422 Unprocessable Entity", {"detail": [{"loc": ["body"], "msg": "extra field ignore_eos"}]})


@behaviour
async def chatty_error(call: Call) -> None:
    await call.json("500 Internal Server Error", b"\x1b[31mTraceback\x1b[0m\n" + b"x" * 300_000)


@behaviour
async def redirect(call: Call) -> None:
    await call.json(
        "307 Temporary Redirect", b"", f"Location: http://localhost:{call.server.port}/good/v1/chat/completions"
    )
