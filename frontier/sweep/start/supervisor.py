"""Supervisor process: runs one server command for a sweep and ends it, even when the sweep is
killed.

    python -m frontier.sweep.start.supervisor

It reads its job as one JSON line (see `Job`) from standard input, and writes the command's exit
status to standard output once it has ended. When the pipe on its standard input closes, the sweep
is done with the command or gone. The job's stop command runs then. The processes left of this
session, to which the command belongs, get SIGTERM and at last SIGKILL. A process that has left the
session must be ended by the stop command.

The output of both commands goes to a log that is bounded and without secrets. When this process is
killed, Linux kills the command's shell, and the sweep ends the rest of the session (`finish`). If
the sweep is gone as well, the rest is left to the user: the next sweep names it.
"""

import contextlib
import ctypes
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
from typing import Any, BinaryIO

from frontier.client.secrets import Secrets
from frontier.core.model.errors import StoreError
from frontier.store.files import Folder
from frontier.sweep.start.process_session import ProcessSession, SeenProcess

LOG_BYTES = 8_000_000
"""Most bytes of a log: when it is full, its older half is dropped."""
LINE_CHARS = 4_000
"""Most characters of a line of the log; a longer line is cut, so that no line fills the log."""
_LONG = 65_536
_LOOK = 0.2
"""Seconds between two looks at whether the sweep still holds the pipe."""
KILLED_WITHIN = 5.0
"""Seconds within which a process ends after SIGKILL."""
_PR_SET_PDEATHSIG = 1
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
        """Close the log."""
        if self._file is not None:
            self._file.close()
            self._file = None


def plain(line: bytes) -> str:
    """Output without terminal escapes and control characters; bytes that are not UTF-8 can be
    restored.
    """
    return _CONTROL.sub("", _ESCAPES.sub("", line.decode(errors="surrogateescape")))


class Lines:
    """The output of a command by lines, without secrets and escapes. A carriage return ends a line
    too.

    A line that is too long is cut into several after it was redacted: half a secret would not be
    found.
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
        """The rest of the output, at its end."""
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
        """Log the output that is there; wait for this long where there is none."""
        if select.select([self.reader], [], [], seconds)[0]:
            for line in self._lines.of(os.read(self.reader, _LONG)):
                self._log.write(line)

    def pump_until(self, over: Callable[[], bool], seconds: float) -> bool:
        """Log until `over` returns True, for at most this many seconds. True when it is over."""
        deadline = time.monotonic() + seconds
        while not (done := over()) and time.monotonic() < deadline:
            self.pump(_LOOK / 4)
        return done

    def close(self) -> None:
        """Log what is left."""
        self.pump()
        for line in self._lines.last():
            self._log.write(line)
        self._log.close()


def run(job: Job) -> None:
    """Start the command, wait for the sweep to let go, end the command."""
    output, session, status = Output(job), ProcessSession.led_by(os.getpid()), None
    child = _start(job.command, output, process_group=0, preexec_fn=_die_with(os.getpid()))
    while not select.select([0], [], [], 0)[0]:
        output.pump(_LOOK)
        if status is None and (status := child.poll()) is not None:
            output.pump()  # its last lines: the sweep looks for the reason of the end in the log
            with contextlib.suppress(OSError):  # the sweep may be gone
                os.write(1, b"%d\n" % status)
    finish(job, session, output)


def _start(command: str, output: Output, **how: Any) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603  # the user's own line, from a config they named
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=output.writer, stderr=output.writer, **how
    )


def _die_with(parent: int) -> Callable[[], None] | None:
    """The function that a child of `parent` calls before its command, so that it is killed when the
    parent is. None where the system cannot do that.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before
            os.kill(os.getpid(), signal.SIGKILL)

    return ask


def finish(job: Job, session: ProcessSession, output: Output) -> list[SeenProcess]:
    """Run the stop command of a job, end what is left of its session, and close the log. Returns
    the processes that are still alive.
    """
    if job.stop is not None:
        stopping = _start(job.stop, output, start_new_session=True)
        its_own = ProcessSession.led_by(stopping.pid)
        output.pump_until(lambda: stopping.poll() is not None, job.within)
        its_own.signal(signal.SIGKILL)
    session.signal(signal.SIGTERM)
    # What is started meanwhile gets no SIGTERM: it may be what cleans up. It gets SIGKILL.
    if not output.pump_until(lambda: not session.living(), job.within):
        output.pump_until(lambda: not session.signal(signal.SIGKILL), KILLED_WITHIN)
    output.close()
    return session.living()


def main() -> None:
    """The process."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # The pipe alone tells that the sweep is over. Signals are handled, as what ignores them
        # would hand that on to the command.
        signal.signal(number, lambda *_: None)
    if job := sys.stdin.buffer.readline():  # none where the sweep was gone before
        run(Job(**json.loads(job)))


if __name__ == "__main__":
    main()
