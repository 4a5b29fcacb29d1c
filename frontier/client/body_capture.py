"""The last metre of the hot path: a body's bytes, stamped as the socket hands them over and taken out of their chunks.

aiohttp keeps connections, TLS, proxies, request and response heads. The body of a chunked answer does not go through
its parser, reader and a task wake-up per read, but is stamped and put aside here; the waiting task wakes once, at the
end. Figures and reasons: docs/decisions/0002-client-hot-path.md. Bodies that are not chunked take aiohttp's usual way.
"""

import asyncio
import functools
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import BaseConnector
from aiohttp.payload import Payload

MAX_BODY = 64 * 2**20
_MAX_LINE = 16 * 2**10
_MAX_HEAD = 2**20
"""More than any read, so that a head that came together with its body is not too long."""
_BATCH = 128
"""Reads put aside before they are unpacked together, which is cheaper than one by one but must not take long."""


def _whole_chunk(length: int) -> tuple[bytes, ...]:
    """How a read of this length begins, in either case, if it is exactly one chunk: its length leaves no choice."""
    for digits in range(1, 4):
        size = length - digits - 4
        if size > 0 and len(f"{size:x}") == digits:
            return b"%x\r\n" % size, b"%X\r\n" % size
    return ()


_FEW = 4096
_WHOLE = tuple(map(_whole_chunk, range(_FEW)))
_WHOLE_HEAD = tuple(len(heads[0]) if heads else 0 for heads in _WHOLE)
"""Nearly every read is exactly one chunk: its size in hexadecimal, CR LF, that many bytes, CR LF."""


class FramingError(aiohttp.ClientPayloadError):
    """The chunked transfer coding is broken."""


class Unchunker:
    """Takes the chunked transfer coding (RFC 9112, section 7.1) off a body, whatever way the reads cut it.

    `ended` when the last chunk and its trailers have come; what follows them is in `surplus`. `broken` says why the
    coding cannot be followed any further.
    """

    __slots__ = ("_left", "_rest", "_state", "broken", "ended", "surplus")

    _SIZE, _DATA, _CRLF, _TRAILER = range(4)

    def __init__(self) -> None:
        self._state = self._SIZE
        self._left = 0
        self._rest = b""
        self.broken: str | None = None
        self.ended = False
        self.surplus = b""

    @property
    def between(self) -> bool:
        """Before a chunk: nothing is unfinished."""
        return self._state == self._SIZE and not self._rest

    def feed(self, read: bytes) -> bytes:
        """The body bytes in this read, as far as the coding is whole."""
        data, self._rest = self._rest + read, b""
        at, out = 0, []
        while at < len(data) and not self.ended and self.broken is None:
            if self._state == self._DATA:
                piece = data[at : at + self._left]
                out.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if self._left == 0:
                    self._state = self._CRLF
                continue
            end = data.find(b"\n", at)
            if end < 0:
                if len(data) - at > _MAX_LINE:
                    self.broken = "a line of the chunked coding is too long"
                self._rest = data[at:]
                break
            self._line(data[at:end].removesuffix(b"\r"))
            at = end + 1
        if self.ended:
            self.surplus = data[at:]
        return out[0] if len(out) == 1 else b"".join(out)

    def _line(self, line: bytes) -> None:
        if self._state == self._CRLF:
            if line:
                self.broken = "a chunk is longer than it said"
            self._state = self._SIZE
        elif self._state == self._SIZE:
            digits = line.partition(b";")[0].strip()
            if not digits or digits.strip(b"0123456789abcdefABCDEF"):
                self.broken = f"not a chunk size: {line!r}"
                return
            self._left = int(digits, 16)
            self._state = self._DATA if self._left else self._TRAILER
        elif not line:
            self.ended = True


class Tape:
    """The body of one answer: `reads[i]` came at `stamps[i]`, once `unpack` has been called.

    `used`: this tape, not aiohttp's reader, has the body. `running`: more is to come. `reset`: the socket broke.
    """

    __slots__ = ("_coding", "_size", "heard", "raw", "reads", "reset", "running", "stamps", "used")

    def __init__(self) -> None:
        self.raw: list[bytes] = []
        self.heard: list[float] = []
        self.stamps: list[float] = []
        self.reads: list[bytes] = []
        self.used = self.running = self.reset = False
        self._coding = Unchunker()
        self._size = 0

    @property
    def surplus(self) -> bool:
        """More came than the answer's end."""
        return bool(self._coding.surplus)

    def unpack(self) -> bool:
        """Take what was put aside out of its chunks; True at the answer's end. FramingError: the coding is broken."""
        coding, reads, stamps = self._coding, self.reads, self.stamps
        between = coding.between
        for stamp, raw in zip(self.heard, self.raw, strict=True):
            size = len(raw)
            if between and size < _FEW and raw.startswith(_WHOLE[size]) and raw.endswith(b"\r\n"):
                body = raw[_WHOLE_HEAD[size] : -2]
            else:
                body = coding.feed(raw)
                between = coding.between
                if not body:
                    continue
            stamps.append(stamp)
            reads.append(body)
            self._size += len(body)
        self.raw.clear()
        self.heard.clear()
        if coding.broken is not None:
            raise FramingError(coding.broken)
        if self._size > MAX_BODY:
            raise FramingError(f"the body is over {MAX_BODY} bytes")
        return coding.ended


@dataclass(slots=True)
class Line:
    """The connection a request got: whether it was used before (or opened for it), when the request's body went out
    on it, and the tape of its answer."""

    tape: Tape | None = None
    reused: bool = False
    opened: bool = False
    written: float | None = None


LINE: ContextVar[Line] = ContextVar("line")
"""Set by whoever sends a request, filled by the connection it gets; aiohttp tells it only through costly tracing."""


class TimedBody(Payload):
    """A request body that notes on the line when it is handed to the socket."""

    _autoclose = True

    def __init__(self, body: bytes, line: Line, clock: Callable[[], float]) -> None:
        super().__init__(body, content_type="application/json")
        self._size = len(body)
        self._line = line
        self._clock = clock

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """As aiohttp's interface asks."""
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Head and body go out together here."""
        self._line.written = self._clock()
        await writer.write(self._value)


class TapingHandler(ResponseHandler):
    """aiohttp's connection, with the body of a chunked answer going to a Tape."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float], lines: set[asyncio.Transport]
    ) -> None:
        super().__init__(loop)
        self.tape = Tape()
        self._lines = lines
        self._line: asyncio.Transport | None = None
        self._clock = clock
        self._head: bytes | None = None
        self._heads = 0
        self._chunked = self._given_up = False
        self._requests = 0

    @property
    def reused(self) -> bool:
        """A request went out on this connection before."""
        return self._requests > 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        # uvloop's are Transports in all but name.
        self._line = cast("asyncio.Transport", transport)
        self._lines.add(self._line)
        super().connection_made(transport)

    def set_response_params(self, **params: Any) -> None:
        """A new request begins on this connection."""
        self.tape = Tape()
        self._head, self._heads, self._chunked = b"", 0, False
        line = LINE.get(None)
        if line is not None:
            line.tape, line.reused, line.opened = self.tape, self.reused, not self.reused
        self._requests += 1
        super().set_response_params(**params)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """A parsed head: (message, payload)."""
        self._heads += 1
        self._chunked = bool(data[0].chunked) and 200 <= data[0].code < 300
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        """Bytes from the socket."""
        stamp = self._clock()
        tape = self.tape
        if tape.running:
            tape.heard.append(stamp)
            tape.raw.append(data)
            # Whatever is the last read ends so, or is too short to tell.
            if data.endswith(b"\r\n\r\n") or len(data) < 4 or len(tape.raw) >= _BATCH:
                self._unpack()
            return
        if self._head is not None:
            self._head += data
            if len(self._head) > _MAX_HEAD:
                self._give_up(FramingError(f"the head of the answer is over {_MAX_HEAD} bytes"))
                return
        super().data_received(data)
        if self._heads and self._head is not None:
            self._look(stamp)

    def _look(self, stamp: float) -> None:
        """A head is complete. If a chunked body begins behind it, tape that; an interim (1xx) head is passed over."""
        head, payload, tape = self._head or b"", self._payload, self.tape
        if not self._chunked:
            if not head.startswith((b"HTTP/1.1 1", b"HTTP/1.0 1")):
                self._head = None
            return
        self._head = None
        *_, body = head.split(b"\r\n\r\n", self._heads)
        if payload is None or head.count(b"\r\n\r\n") < self._heads:
            return
        tape.heard.append(stamp)
        tape.raw.append(body)
        try:
            ended = tape.unpack()
        except FramingError:
            return
        # Both parsers have seen the same bytes; should they not agree, aiohttp's is believed.
        tape.used = payload.is_eof() == ended
        tape.running = tape.used and not ended

    def _unpack(self) -> None:
        tape = self.tape
        try:
            if not tape.unpack():
                return
        except FramingError as error:
            self._give_up(error)
            return
        tape.running = False
        if tape.surplus:
            self.force_close()
        if self._payload is not None:
            self._payload.feed_eof()

    def _give_up(self, error: FramingError) -> None:
        self.tape.running = False
        self.force_close()
        if self._payload is not None:
            self._payload.set_exception(error)
        self.set_exception(error)
        self._given_up = True
        if self.transport is not None:
            self.transport.close()

    def set_exception(self, exc: Any, *cause: BaseException) -> None:
        """What whoever waits for a head is told; the first reason stays."""
        if not self._given_up:
            super().set_exception(exc, *cause)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The socket is gone."""
        if self._line is not None:
            self._lines.discard(self._line)
        if self.tape.running:
            self.tape.reset = exc is not None
            self._unpack()
        super().connection_lost(exc)


def tracing() -> aiohttp.TraceConfig:
    """Fills LINE where connections are not taping ones."""

    async def reused(*_: object) -> None:
        LINE.get().reused = True

    async def opened(*_: object) -> None:
        LINE.get().opened = True

    config = aiohttp.TraceConfig()
    config.on_connection_reuseconn.append(reused)
    config.on_connection_create_end.append(opened)
    return config


def tape_bodies(
    connector: BaseConnector, loop: asyncio.AbstractEventLoop, clock: Callable[[], float],
    lines: set[asyncio.Transport],
) -> bool:  # fmt: skip
    """Make a connector's connections taping ones; False, and aiohttp's usual way, where aiohttp is not as known.

    `lines` holds their transports while they are open, also those that aiohttp has closed and that only wait for the
    other side's TLS goodbye.
    """
    if not hasattr(connector, "_factory"):
        return False
    connector._factory = functools.partial(TapingHandler, loop=loop, clock=clock, lines=lines)  # type: ignore[assignment]
    return True
