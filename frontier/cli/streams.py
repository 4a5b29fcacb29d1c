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
from typing import Any

from frontier.core.errors import ExitCode

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
}


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """A codec's error handler: ASCII in place of what an encoding does not have."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    plain = (_PLAIN.get(ch) or unicodedata.normalize("NFKD", ch).encode("ascii", "ignore").decode() for ch in text)
    return "".join(ch or "?" for ch in plain), error.end


codecs.register_error("frontier.plainly", _plainly)


class SafeFile(io.FileIO):
    """A descriptor that is written to at once, by what never sees an OSError.

    `lost` is why it can no longer be written to, None as long as it can; what is written then goes
    to `instead`, if there is one, unless it is that its reader closed the pipe.
    """

    def __init__(self, descriptor: int, instead: "SafeFile | None" = None) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._instead = instead
        self.lost: OSError | None = None

    def isatty(self) -> bool:
        """Whether it is a terminal that can still be written to."""
        return self.lost is None and super().isatty()

    def write(self, data: Any) -> int:
        """As any file's, and all of it; never an OSError."""
        try:
            if self.lost is None:
                self._put(data)
        except OSError as error:
            self.lost = error
        if self._instead is not None and self.failed:
            self._instead.write(data)
        return len(data)

    def _put(self, data: bytes) -> None:
        while data:
            written: int | None = super().write(data)
            if written is None:  # another process that shares it made it non-blocking
                select.select([], [self.fileno()], [])
            data = data[written or 0 :]

    @property
    def failed(self) -> bool:
        """Whether what was written to it did not come where it was wanted."""
        return self.lost is not None and not isinstance(self.lost, BrokenPipeError)


def safe_stream(file: SafeFile, encoding: str) -> io.TextIOWrapper:
    """A text stream that writes to a safe file at once."""
    return io.TextIOWrapper(file, encoding, "frontier.plainly", write_through=True)


def install_streams() -> SafeFile:
    """Put safe streams in place of sys.stdin, stdout and stderr; the file of stdout.

    A descriptor that was closed is opened on /dev/null: else the next socket would get its number,
    and what a library writes to "standard error" would go to the server.
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
    err = SafeFile(2)
    out = SafeFile(1, err)
    if 1 in closed:
        out.lost = OSError(errno.EBADF, os.strerror(errno.EBADF))
    sys.stdout, sys.stderr = safe_stream(out, encodings[0]), safe_stream(err, encodings[1])
    return out


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def final_exit_code(out: SafeFile, code: int) -> int:
    """The exit code of a command that ended with `code`: 5 instead of 0 when its answer could not
    be written.

    A stdout that was closed from the start was not wanted: that the answer went to stderr loses
    nothing.
    """
    if out.lost is None or not out.failed or out.lost.errno == errno.EBADF:
        return code
    sys.stderr.write(f"error: cannot write to standard output: {out.lost.strerror}\n  its text stands above\n")
    return code or ExitCode.FAILED
