"""Supervisor process: runs one server command for a sweep and ends it, even when the sweep is
killed.

    python -m frontier.extras.launcher.supervisor

It reads its job as one JSON line (see `Job`) from standard input, and writes the command's exit
status to standard output once it has ended. When the pipe on its standard input closes, the sweep
is done with the command or gone: the job's stop command runs, then the command's process group gets
SIGTERM and at last SIGKILL. What has left the group is the stop command's to end. The output of
both goes to a log that is bounded and without secrets.
"""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from frontier.client.secrets import Secrets
from frontier.core.errors import StoreError
from frontier.store.files import Folder

LOG_BYTES = 8_000_000
"""Of a log at the most: where it is full, the older half of it goes."""
LINE_CHARS = 4_000
"""Of a line of the log at the most; what is longer is cut, so that no line fills it."""
_LONG = 65_536
_LOOK = 0.2
"""Seconds between two looks at whether the sweep still holds the pipe."""
_KILLED_WITHIN = 5.0
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Job:
    """`command` and `stop` are lines for /bin/sh; ending takes at most twice `within` seconds, and
    five.

    `secrets` and `whole` are kept out of the log, as `Secrets` has them.
    """

    command: str
    log: str
    stop: str | None = None
    within: float = 30.0
    secrets: Sequence[str] = field(default=(), repr=False)
    whole: Sequence[str] = field(default=(), repr=False)


class Log:
    """A file of at most `limit` bytes, which keeps the newest lines."""

    def __init__(self, path: Path, limit: int = LOG_BYTES) -> None:
        self._limit = limit
        self._file: BinaryIO | None = None
        with contextlib.suppress(OSError, StoreError):  # without a log the command runs all the same
            descriptor = Folder(path.parent).open(path.name, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            self._file = os.fdopen(descriptor, "a+b", buffering=0)

    def write(self, line: str) -> None:
        """One line. A full disk ends the log, not the command."""
        if self._file is None:
            return
        text = line.encode(errors="replace") + b"\n"
        try:
            if self._file.tell() + len(text) > self._limit:
                self._file.seek(-(self._limit // 2), os.SEEK_END)
                newest = self._file.read().partition(b"\n")[2]
                self._file.truncate(0)
                self._file.write(newest)
            self._file.write(text)
        except OSError:
            self.close()

    def close(self) -> None:
        """No more is kept."""
        if self._file is not None:
            self._file.close()
            self._file = None


def plain(line: bytes) -> str:
    """Without terminal escapes and control characters; what is no UTF-8 can be turned back into its
    bytes.
    """
    return _CONTROL.sub("", _ESCAPES.sub("", line.decode(errors="surrogateescape")))


class Lines:
    """The output of a command by lines, without secrets and escapes. A carriage return ends a line
    too.

    A line too long is cut into several: after it was redacted, as half a secret would not be found.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets, self._rest = secrets, b""

    def of(self, data: bytes) -> Iterator[str]:
        """The lines that end in the next bytes of the output."""
        *whole, self._rest = re.split(rb"[\r\n]+", self._rest + data)
        for line in whole:
            yield from _pieces(self._secrets.redact(plain(line)))
        if len(self._rest) > _LONG:
            done, left = self._secrets.split(plain(self._rest))
            yield from _pieces(done)
            self._rest = left.encode(errors="surrogateescape")

    def last(self) -> Iterator[str]:
        """What is left where no more comes."""
        return self.of(b"\n") if self._rest else iter(())


def _pieces(line: str) -> Iterator[str]:
    return (line[i : i + LINE_CHARS] for i in range(0, max(1, len(line)), LINE_CHARS))


class Output:
    """What the commands of a job write, on its way from their pipe to the log."""

    def __init__(self, job: Job) -> None:
        self.reader, self.writer = os.pipe()
        self._lines = Lines(Secrets(frozenset(job.secrets), frozenset(job.whole)))
        self._log = Log(Path(job.log))

    def pump(self, seconds: float = 0.0) -> None:
        """Log what is there; where nothing is, wait for so long."""
        if select.select([self.reader], [], [], seconds)[0]:
            for line in self._lines.of(os.read(self.reader, _LONG)):
                self._log.write(line)

    def pump_until(self, over: Callable[[], bool], seconds: float) -> bool:
        """Log until something is over, for at most so many seconds; whether it is."""
        deadline = time.monotonic() + seconds
        while not (done := over()) and time.monotonic() < deadline:
            self.pump(_LOOK / 10)
        return done

    def close(self) -> None:
        """Log what is left."""
        self.pump()
        for line in self._lines.last():
            self._log.write(line)
        self._log.close()


def run(job: Job) -> None:
    """Start the command, wait for the sweep to let go, end the command."""
    output = Output(job)
    child = _start(job.command, output)
    left = True
    while not select.select([0], [], [], 0)[0]:
        output.pump(_LOOK)
        if child.returncode is not None:
            left = left and _signal(child.pid, 0)  # the number of an empty group may be given to another one
        elif (status := child.poll()) is not None:
            output.pump()  # its last lines: the sweep looks for the reason of the end in the log
            with contextlib.suppress(OSError):  # the sweep may be gone
                os.write(1, b"%d\n" % status)
    if job.stop is not None:
        stopping = _start(job.stop, output)
        output.pump_until(lambda: stopping.poll() is not None, job.within)
        _signal(stopping.pid, signal.SIGKILL)
    if left:
        end(child, output, job.within)
    output.close()


def _start(command: str, output: Output) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603  # the user's own line, from a config they named
        ["/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=output.writer,
        stderr=output.writer,
        start_new_session=True,
    )


def end(child: "subprocess.Popen[bytes]", output: Output, within: float) -> None:
    """End a command and its process group."""

    def over() -> bool:
        return child.poll() is not None and not _signal(child.pid, 0)

    for number, patience in ((signal.SIGTERM, within), (signal.SIGKILL, _KILLED_WITHIN)):
        _signal(child.pid, number)
        if output.pump_until(over, patience):
            return


def _signal(group: int, number: int) -> bool:
    """Signal a process group. Whether it exists."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main() -> None:
    """The process."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # The pipe alone tells that the sweep is over. Signals are handled, as what ignores them
        # would hand that on to the command.
        signal.signal(number, lambda *_: None)
    run(Job(**json.loads(sys.stdin.buffer.readline())))


if __name__ == "__main__":
    main()
