"""Safe standard streams: stdin, stdout and stderr that may be closed, full, gone or of a narrow
encoding.

What cannot be written to stdout is written to stderr instead, and the exit code is then not 0. What
cannot be written to stderr is lost, and nothing else is. A reader that leaves (`| head`) is no
error.
"""

import codecs
import errno
import io
import os
import select
import sys
import unicodedata
from contextlib import suppress

from frontier.core.model.errors import ExitCode

_PLAIN = {
    "≤": "<=",
    "≥": ">=",
    "∞": "inf",
    "–": "-",
    "—": "-",
    "−": "-",
    "×": "x",
    "·": "-",
    "→": "->",
    "±": "+-",
    "…": "...",
    "µ": "u",
    "★": "*",
    "─": "-",
    "│": "|",
    "┃": "|",
    "━": "-",
    "✓": "ok",
    "✗": "NO",
}


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """A codec's error handler: ASCII in place of what an encoding does not have."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    plain = (_PLAIN.get(ch) or unicodedata.normalize("NFKD", ch).encode("ascii", "ignore").decode() for ch in text)
    # A mark of two letters takes the place of the space behind it, so that columns stay columns.
    longer = text[-1] in "✓✗" and error.object[error.end : error.end + 1] == " "
    return "".join(ch or "?" for ch in plain), error.end + longer


codecs.register_error("frontier.plainly", _plainly)


class SafeStream(io.TextIOBase):
    """A standard stream that writes at once and never raises an OSError.

    - `lost`: why the stream can no longer be written to; None as long as it can.
    - `instead`: where text goes once the stream is lost.
    - `unread`: the reader closed its end of the pipe.
    """

    def __init__(self, descriptor: int, encoding: str, instead: "SafeStream | None" = None) -> None:
        self._descriptor, self._encoding, self._instead = descriptor, encoding, instead
        self._encoder = codecs.getincrementalencoder(encoding)("frontier.plainly")
        self.lost: OSError | None = None
        self.unread = False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """As any text stream's."""
        return self._encoding

    @property
    def errors(self) -> str:  # type: ignore[override]
        """As any text stream's."""
        return "frontier.plainly"

    def fileno(self) -> int:
        """As any stream's."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether the stream is a terminal that can still be written to."""
        return self.lost is None and os.isatty(self._descriptor)

    def writable(self) -> bool:
        """As any stream's."""
        return True

    def write(self, text: str) -> int:
        """As any text stream's; never an OSError."""
        # click writes a shell's completions as bytes where a text stream has no binary one below
        # it.
        data = bytes(text) if isinstance(text, bytes) and text else self._encoder.encode(text)
        if not self.unread and self.lost is None:
            try:
                self._put(data)
            except BrokenPipeError:
                self.unread = True
            except OSError as error:
                self.lost = error
        if self.lost is not None and self._instead is not None:
            self._instead.write(text)
        return len(text)

    def _put(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # another process that shares it made it non-blocking
                select.select([], [self._descriptor], [])


def install_streams() -> SafeStream:
    """Put safe streams in place of sys.stdin, stdout and stderr. Returns the one of stdout.

    A descriptor that was closed is opened on /dev/null. Otherwise the next socket would get its
    number, and what a library writes to "standard error" would go to the server.
    """
    encodings = [getattr(stream, "encoding", None) or "utf-8" for stream in (sys.stdout, sys.stderr)]
    closed = [descriptor for descriptor in (0, 1, 2) if not _is_open(descriptor)]
    for _ in closed:
        os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # for as long as the process lives
    err = SafeStream(2, encodings[1])
    out = SafeStream(1, encodings[0], err)
    if 1 in closed:
        out.lost = OSError(errno.EBADF, os.strerror(errno.EBADF))
    sys.stdout, sys.stderr = out, err
    return out


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def final_exit_code(out: SafeStream, code: int) -> int:
    """The exit code of a command that ended with `code`: 5 in place of 0 when its answer could not
    be written.

    A stdout that was closed from the start was not wanted: its answer went to stderr, and nothing
    is lost.
    """
    if out.lost is None or out.lost.errno == errno.EBADF:
        return code
    sys.stderr.write(f"error: cannot write to standard output: {out.lost.strerror}\n  its text stands above\n")
    return code or ExitCode.FAILED
