"""Server-sent events and newline-delimited JSON read from a stream's bytes; event templates, which
save most parsing.

`EventParser` follows the event-stream interpretation of the WHATWG HTML standard (section 9.2.6):
an optional BOM, lines ended by LF, CR or CRLF, comments, `data` lines joined by LF, an event cut
off by the end of the stream dropped.
"""

import re

from frontier.client.engines.base import EventReader
from frontier.client.engines.stream import NO_TOKEN, REASONING_FIELDS, StreamState

Event = tuple[bytes, bytes]
"""The event's type (b"" when unnamed) and its data, undecoded."""

MAX_EVENT = 16 * 2**20
"""A single event may hold the token ids of a very long prompt, but no more than this many bytes."""

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")


class EventTooLargeError(ValueError):
    """One event (or line) grew over the cap: the stream is not an event stream, or hostile."""


class EventParser:
    """Feeds on reads, returns the events each read completed. Any cutting of the same bytes gives
    the same events.
    """

    __slots__ = ("_cap", "_data", "_data_size", "_line", "_line_size", "_skip_lf", "_started", "_type")

    def __init__(self, cap: int = MAX_EVENT) -> None:
        self._cap = cap
        self._started = False
        self._skip_lf = False
        self._line: list[bytes] = []
        self._line_size = 0
        self._type = b""
        self._data: list[bytes] | None = None
        self._data_size = 0

    def feed(self, read: bytes) -> list[Event]:
        """The events completed by this read. EventTooLargeError when one exceeds the cap."""
        # Nearly every read is one or several whole `data: {...}\n\n`: no state before it, none
        # after.
        if read.startswith(b"data: ") and read.endswith(b"\n\n") and self.idle and b"\r" not in read:
            bodies = read[6:-2].split(b"\n\ndata: ")
            if len(read) <= self._cap and not any(b"\n" in body for body in bodies):
                self._started = True
                return [(b"", body) for body in bodies]
        return self._feed_lines(read)

    @property
    def idle(self) -> bool:
        """Between two events: nothing is unfinished."""
        return not (self._line or self._skip_lf or self._type) and self._data is None

    def _feed_lines(self, read: bytes) -> list[Event]:
        if not self._started:
            read = b"".join((*self._line, read))
            self._line, self._line_size = [], 0
            if len(read) < len(_BOM) and _BOM.startswith(read):
                self._hold(read)
                return []
            self._started = True
            read = read.removeprefix(_BOM)
        if self._skip_lf and read:
            self._skip_lf = False
            read = read.removeprefix(b"\n")
        events: list[Event] = []
        position = 0
        for end in _LINE_END.finditer(read):
            line = read[position : end.start()]
            if self._line:
                line = b"".join((*self._line, line))
                self._line, self._line_size = [], 0
            self._take(line, events)
            position = end.end()
        if position and position == len(read):
            self._skip_lf = read.endswith(b"\r")
        self._hold(read[position:])
        return events

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._line.append(piece)
            self._line_size += len(piece)
            self._check(self._line_size + self._data_size)

    def _check(self, size: int) -> None:
        if size > self._cap:
            raise EventTooLargeError(f"one event is over {self._cap} bytes")

    def _take(self, line: bytes, events: list[Event]) -> None:
        if not line:
            if self._data is not None:
                events.append((self._type, b"\n".join(self._data)))
            self._type, self._data, self._data_size = b"", None, 0
            return
        name, colon, value = line.partition(b":")
        if colon and not name:
            return
        value = value.removeprefix(b" ")
        if name == b"data":
            if self._data is None:
                self._data = []
            self._data.append(value)
            self._data_size += len(value) + 1
            self._check(self._data_size)
        elif name == b"event":
            self._type = value


class LineParser:
    """Newline-delimited JSON as Ollama sends it: each non-empty line is an event; a last line needs
    no newline.
    """

    __slots__ = ("_cap", "_rest", "_size")

    def __init__(self, cap: int = MAX_EVENT) -> None:
        self._cap = cap
        self._rest: list[bytes] = []
        self._size = 0

    @property
    def idle(self) -> bool:
        """Between two lines."""
        return not self._rest

    def feed(self, read: bytes) -> list[Event]:
        """The lines completed by this read."""
        *whole, rest = read.split(b"\n")
        if whole:
            whole[0] = b"".join((*self._rest, whole[0]))
            self._rest, self._size = [], 0
        if rest:
            self._rest.append(rest)
            self._size += len(rest)
        if self._size > self._cap:
            raise EventTooLargeError(f"one line is over {self._cap} bytes")
        return [(b"", line) for line in (w.strip() for w in whole) if line]


EventTemplate = tuple[bytes, bytes]
"""What a read with one token event begins and ends with."""

_FIELDS = "|".join(("content", "text", "response", *REASONING_FIELDS)).encode()
_TEXT = re.compile(rb'"(?:' + _FIELDS + rb')": ?"((?:[^"\\]|\\.)+)"')
PLAIN = re.compile(rb'[^"\\\x00-\x1f]+').fullmatch
"""Called with a read and the bounds of its text."""
_PROOF = b"frontier-proof"


def event_template(read: bytes, prefix: bytes, suffix: bytes, parse_event: EventReader) -> EventTemplate | None:
    """A template from a read that is `prefix`, one event, `suffix`; None when the event does not
    lend itself to one.

    A server's token events are the same bytes around another text. The template is the bytes before
    and after the text of one event that was parsed properly. It is used only after a check: with
    another text in the same place, the reader must find exactly that text and nothing else. Then an
    event that begins and ends as the template, with a plain JSON string between (no quote,
    backslash or control character), gives the same as the parser, at a tenth of the cost. Anything
    else goes to the parser.
    """
    if not (read.startswith(prefix) and read.endswith(suffix)):
        return None
    for match in _TEXT.finditer(read):
        before, after = read[: match.start(1)], read[match.end(1) :]
        state = StreamState()
        event = (before + _PROOF + after)[len(prefix) : -len(suffix)]
        channel = NO_TOKEN if b"\n" in event else parse_event(state, b"", event)
        if channel != NO_TOKEN and state == StreamState(text_bytes=len(_PROOF), text_chars=len(_PROOF), showed=True):
            return before, after
    return None
