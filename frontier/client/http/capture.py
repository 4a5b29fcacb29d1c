"""Response bodies captured at the socket: aiohttp's connections, with each read stamped before
anything parses it.

aiohttp resolves, connects, speaks TLS and reads response heads. Two things are done here instead,
because they cost most of a request's CPU time (figures in docs/decisions/0002-client-hot-path.md):

- `CapturingProtocol` stamps and stores the reads of a chunked 2xx body, and wakes the waiting task
  once, at the end. aiohttp would parse each read, copy it and wake the task each time.
- `FastPost` (in `pool.py`) writes a request head that is made once. A ClientSession merges headers,
  cookies and tracing every time.

Both need names that aiohttp does not promise. They are listed and checked in the section right
below: with an aiohttp that lacks one nothing is measured.
"""

import asyncio
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

from frontier.core.model.errors import MeasurementError

# --- Private names of aiohttp.
#
# All that the fast path uses beyond aiohttp's documented interface. The tests run it against the
# oldest and the newest aiohttp that pyproject.toml allows; this check is for a release that comes
# later.
_CONNECTOR_NAMES = ("_factory", "connect")  # _factory makes the protocol of each new connection
_CONNECTION_NAMES = ("protocol", "close", "release")
_PROTOCOL_NAMES = (
    "_payload",  # the StreamReader of the body that is being received
    "_should_close",  # no other request may be sent on the connection
    "connection_made",
    "connection_lost",
    "data_received",
    "feed_data",
    "is_connected",
    "read",
    "set_exception",
    "set_response_params",
    "should_close",
    "transport",
)
_READ_BUFFER = 2**20
"""More than one read brings: the read with the head must never make aiohttp pause a body that is to
be captured."""
_RESPONSE = {"auto_decompress": False, "read_until_eof": True, "read_bufsize": _READ_BUFFER}


def require_names(connector: aiohttp.TCPConnector, loop: asyncio.AbstractEventLoop) -> None:
    """MeasurementError where the installed aiohttp lacks one of the private names: some of them it
    would pass over in silence.
    """
    protocol = ResponseHandler(loop)
    missing = [f"TCPConnector.{name}" for name in _CONNECTOR_NAMES if not hasattr(connector, name)]
    missing += [f"Connection.{name}" for name in _CONNECTION_NAMES if not hasattr(Connection, name)]
    missing += [f"ResponseHandler.{name}" for name in _PROTOCOL_NAMES if not hasattr(protocol, name)]
    if missing:
        what = f"aiohttp {aiohttp.__version__} cannot be used: it lacks {', '.join(missing)}"
        raise MeasurementError(what, "install an earlier one, or a later frontier")


def capture_bodies(
    connector: aiohttp.TCPConnector,
    loop: asyncio.AbstractEventLoop,
    clock: Callable[[], float],
    transports: set[asyncio.Transport],
) -> None:
    """Make the connector's connections capturing ones. `transports` holds the open ones, also those
    that aiohttp has closed and that only wait for the other side's TLS goodbye.
    """
    factory = functools.partial(CapturingProtocol, loop=loop, clock=clock, transports=transports)
    connector._factory = factory  # type: ignore[assignment]


# --- The chunked transfer coding.

MAX_BODY = 64 * 2**20
_MAX_LINE = 16 * 2**10
_MAX_HEAD = 2**20
"""More than any read, so that a head that came together with its body is not too long."""
_BATCH = 128
"""Reads stored before they are unpacked together, which is cheaper than one by one but must not
take long."""
_END = b"\r\n\r\n"
_LAST = (_END, *(b"]" + end for end in (b"", b"\n", b"\n\n", b"\r\n", b"\n\r\n", b"\n\n\r\n")))
"""How the last read of a body ends, or the chunk with [DONE], if it is not too short to tell."""
_SHORT = 8
_DONE = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\]\s*\Z")
GRACE = 0.05
"""Seconds after [DONE] in which the end of the body is awaited: the answer is complete without."""


def ends_with_done(reads: Sequence[bytes]) -> bool:
    """Whether a body, however its reads cut it, ends with the [DONE] of an event stream."""
    return _DONE.search(b"".join(read[-32:] for read in reads[-24:])[-32:]) is not None


def _chunk_heads(length: int) -> tuple[bytes, ...]:
    """How a read of this length begins, in either case, if it is exactly one chunk: its length
    leaves no choice.
    """
    for digits in range(1, 4):
        size = length - digits - 4
        if size > 0 and len(f"{size:x}") == digits:
            return b"%x\r\n" % size, b"%X\r\n" % size
    return ()


_FEW = 4096
_CHUNK_HEADS = tuple(map(_chunk_heads, range(_FEW)))
_CHUNK_HEAD_SIZES = tuple(len(heads[0]) if heads else 0 for heads in _CHUNK_HEADS)
"""Nearly every read is exactly one chunk: its size in hexadecimal, CR LF, that many bytes, CR LF.
"""


class FramingError(aiohttp.ClientPayloadError):
    """The chunked transfer coding is broken."""


class Unchunker:
    """Takes the chunked transfer coding (RFC 9112, section 7.1) off a body, whatever way the reads
    cut it.

    `ended` when the last chunk and its trailers have come; what follows them is in `surplus`.
    `broken` is the reason why the coding cannot be followed any further.
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
    def between_chunks(self) -> bool:
        """Nothing is unfinished."""
        return self._state == self._SIZE and not self._rest

    def feed(self, read: bytes) -> bytes:
        """The body bytes in this read, as far as the coding is whole."""
        data, self._rest = self._rest + read, b""
        position, pieces = 0, []
        while position < len(data) and not self.ended and self.broken is None:
            if self._state == self._DATA:
                piece = data[position : position + self._left]
                pieces.append(piece)
                position += len(piece)
                self._left -= len(piece)
                if self._left == 0:
                    self._state = self._CRLF
                continue
            end = data.find(b"\n", position)
            if end < 0:
                if len(data) - position > _MAX_LINE:
                    self.broken = "a line of the chunked coding is too long"
                self._rest = data[position:]
                break
            self._line(data[position:end].removesuffix(b"\r"))
            position = end + 1
        if self.ended:
            self.surplus = data[position:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

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


class BodyCapture:
    """The body of one answer: `reads[i]` came at `stamps[i]`, once `unpack` has been called.

    Until then reads are in `raw_reads`, as the socket gave them, and their times in `raw_stamps`.
    `active`: this, not aiohttp's reader, has the body. `running`: more is to come. `reset`: the
    other side reset the connection.
    """

    __slots__ = ("_coding", "_size", "active", "raw_reads", "raw_stamps", "reads", "reset", "running", "stamps")

    def __init__(self) -> None:
        self.raw_reads: list[bytes] = []
        self.raw_stamps: list[float] = []
        self.stamps: list[float] = []
        self.reads: list[bytes] = []
        self.active = self.running = self.reset = False
        self._coding = Unchunker()
        self._size = 0

    @property
    def surplus(self) -> bool:
        """More came than the answer's end."""
        return bool(self._coding.surplus)

    def unpack(self) -> bool:
        """Take the stored reads out of their chunks; True at the answer's end. FramingError: the
        coding is broken.
        """
        coding, reads, stamps = self._coding, self.reads, self.stamps
        between_chunks = coding.between_chunks
        for stamp, raw in zip(self.raw_stamps, self.raw_reads, strict=True):
            size = len(raw)
            if between_chunks and size < _FEW and raw.startswith(_CHUNK_HEADS[size]) and raw.endswith(b"\r\n"):
                body = raw[_CHUNK_HEAD_SIZES[size] : -2]
            else:
                body = coding.feed(raw)
                between_chunks = coding.between_chunks
                if not body:
                    continue
            stamps.append(stamp)
            reads.append(body)
            self._size += len(body)
        self.raw_reads.clear()
        self.raw_stamps.clear()
        if coding.broken is not None:
            raise FramingError(coding.broken)
        if self._size > MAX_BODY:
            raise FramingError(f"the body is over {MAX_BODY} bytes")
        return coding.ended


# --- The connection.


class CapturingProtocol(ResponseHandler):
    """aiohttp's protocol; the chunked 2xx body of a request begun with `begin_capture` goes to
    `capture`.

    `requests` counts those sent on this connection. Requests of the session share it and take
    aiohttp's way.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float], transports: set[asyncio.Transport]
    ) -> None:
        super().__init__(loop)
        self.capture = BodyCapture()
        self.requests = 0
        self._clock = clock
        self._transports = transports
        self._own_transport: asyncio.Transport | None = None
        self._head: bytes | None = None
        """The bytes of the head so far; None once it is complete."""
        self._heads_parsed = 0
        self._wanted = self._chunked = self._given_up = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        # uvloop's are Transports in all but name.
        self._own_transport = cast("asyncio.Transport", transport)
        self._transports.add(self._own_transport)
        super().connection_made(transport)

    def set_response_params(self, **params: Any) -> None:
        """A new request begins on this connection."""
        self.capture = BodyCapture()
        self.requests += 1
        self._head, self._heads_parsed, self._wanted, self._chunked = b"", 0, False, False
        super().set_response_params(**params)

    def begin_capture(self) -> None:
        """A new request begins whose body is to be captured."""
        self.set_response_params(**_RESPONSE)
        self._wanted = True

    def feed_data(self, data: Any, size: int = 0) -> None:
        """aiohttp has parsed a head: (message, payload)."""
        self._heads_parsed += 1
        self._chunked = bool(data[0].chunked) and 200 <= data[0].code < 300
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        """Bytes from the socket. The stamp comes first: all that is done before it would be counted
        as latency.
        """
        stamp = self._clock()
        capture = self.capture
        if capture.running:
            capture.raw_stamps.append(stamp)
            capture.raw_reads.append(data)
            if data.endswith(_LAST) or len(data) < _SHORT or len(capture.raw_reads) >= _BATCH:
                self._unpack()
            return
        if self._head is None and (self._payload is None or self._payload.is_eof()) and data.strip():
            # Nothing is asked for. What comes would be taken for the answer to the next request.
            self._should_close = True
            if self.transport is not None:
                self.transport.close()
            return
        if self._head is not None:
            self._head += data
            if len(self._head) > _MAX_HEAD:
                self._give_up(FramingError(f"the head of the answer is over {_MAX_HEAD} bytes"))
                return
        super().data_received(data)
        if self._heads_parsed and self._head is not None:
            self._head_complete(stamp)

    def _head_complete(self, stamp: float) -> None:
        """Take the body over from aiohttp if it is to be captured; an interim (1xx) head is passed
        over.
        """
        head, payload, capture = self._head or b"", self._payload, self.capture
        if not self._chunked:
            if not head.startswith((b"HTTP/1.1 1", b"HTTP/1.0 1")):
                self._head = None
            return
        self._head = None
        if not self._wanted:
            return
        *_, body = head.split(_END, self._heads_parsed)
        if payload is None or head.count(_END) < self._heads_parsed:
            return
        capture.raw_stamps.append(stamp)
        capture.raw_reads.append(body)
        try:
            ended = capture.unpack()
        except FramingError:
            return
        # aiohttp's parser and ours have both seen this read. They must agree on whether the body
        # has ended; where they do not, aiohttp keeps the body. From the next read on its parser
        # sees nothing more of a captured body.
        capture.active = payload.is_eof() == ended
        capture.running = capture.active and not ended

    def _unpack(self) -> None:
        capture = self.capture
        try:
            ended = capture.unpack()
        except FramingError as error:
            self._give_up(error)
            return
        if ended:
            self._finish()
        elif ends_with_done(capture.reads):
            asyncio.get_running_loop().call_later(GRACE, self._finish_without_end, capture)

    def _finish(self) -> None:
        self.capture.running = False
        if self.capture.surplus:
            self._should_close = True
        if self._payload is not None:
            self._payload.feed_eof()  # wakes the task that waits for the end

    def _finish_without_end(self, capture: BodyCapture) -> None:
        """The last chunk has not come after [DONE]: the answer is complete, and the connection is
        not used again.
        """
        if capture is self.capture and capture.running:
            self._unpack()
            if capture.running and ends_with_done(capture.reads):
                self._should_close = True
                self._finish()

    def _give_up(self, error: FramingError) -> None:
        self.capture.running = False
        if self._payload is not None:
            self._payload.set_exception(error)
        self.set_exception(error)
        self._should_close = self._given_up = True
        if self.transport is not None:
            self.transport.close()

    def set_exception(self, exc: Any, *cause: BaseException) -> None:
        """The error of a task that waits for a head; the first reason stays."""
        if not self._given_up:
            super().set_exception(exc, *cause)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The socket is gone."""
        if self._own_transport is not None:
            self._transports.discard(self._own_transport)
        if self.capture.running:
            self.capture.reset = exc is not None
            self._unpack()
        super().connection_lost(exc)
