"""Supervisor process: runs one server command for a sweep and ends it, even when the sweep is
killed.

    python -m frontier.sweep.supervisor

When the pipe on its standard input closes, the sweep is done with it or gone, and the command is
ended: its own stop command first, then SIGTERM and at last SIGKILL to its process group, and to
whatever of it left the group. It reads its job as one JSON line (see `Job`), writes events as JSON
lines to standard output, and writes the command's output to a log that is bounded and without
secrets.
"""

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO

from frontier.errors import StoreError
from frontier.store.files import Folder
from frontier.text import Secrets

LOG_BYTES = 8_000_000
"""A log is turned over at half of this: the newest half at least is kept, in two files."""
LINE_CHARS = 4_000
_LONG = 65_536
_LAST_OUTPUT = 2.0
"""Seconds to wait for a command's last output; a process that it left behind may hold the pipe open
for ever."""
_SUBREAPER = 36
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
    """A file that never grows beyond LOG_BYTES together with its predecessor NAME.1."""

    def __init__(self, path: Path, limit: int = LOG_BYTES) -> None:
        self._path, self._limit = path, limit
        self._folder = Folder(path.parent)
        self._file: BinaryIO | None = None
        self._size = 0
        with contextlib.suppress(OSError, StoreError):  # without a log the command runs all the same
            self._file = self._folder.appender(path.name)
            self._size = os.fstat(self._file.fileno()).st_size
        self._lock = threading.Lock()

    def write(self, line: str) -> None:
        """One line. A full disk ends the log, not the command."""
        text = line.encode(errors="replace") + b"\n"
        with self._lock:
            if self._file is None:
                return
            try:
                if self._size + len(text) > self._limit // 2:
                    self._file.close()
                    self._folder.replace(self._path.name, self._path.name + ".1")
                    self._file, self._size = self._folder.creator(self._path.name, buffering=0), 0
                self._file.write(text)
                self._size += len(text)
            except (OSError, StoreError):
                self._file = None

    def close(self) -> None:
        """No more is kept."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None


def plain(line: bytes) -> str:
    """Without terminal escapes and control characters; what is no UTF-8 can be turned back into its
    bytes.
    """
    return _CONTROL.sub("", _ESCAPES.sub("", line.decode(errors="surrogateescape")))


def lines(pipe: IO[bytes], secrets: Secrets) -> Iterator[str]:
    """The output of a command by lines, without secrets and escapes. A carriage return ends a line
    too.

    A line too long is cut into several: after it was redacted, as half a secret would not be found.
    """
    rest = b""
    while data := os.read(pipe.fileno(), 65_536):
        *whole, rest = re.split(rb"[\r\n]+", rest + data)
        for line in whole:
            yield from _pieces(secrets.redact(plain(line)))
        if len(rest) > _LONG:
            done, left = secrets.split(plain(rest))
            yield from _pieces(done)
            rest = left.encode(errors="surrogateescape")
    if rest:
        yield from _pieces(secrets.redact(plain(rest)))


def _pieces(line: str) -> Iterator[str]:
    return (line[i : i + LINE_CHARS] for i in range(0, max(1, len(line)), LINE_CHARS))


def emit(**facts: Any) -> None:
    """Write one event to the sweep, which may be gone."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(facts).encode() + b"\n")


def run(job: Job) -> None:
    """Start the command, wait for the sweep to let go, end the command."""
    log, secrets = Log(Path(job.log)), Secrets(frozenset(job.secrets), frozenset(job.whole))
    _adopt_orphans()
    child, pump = _start(job.command, log, secrets)
    emit(event="started", pid=child.pid)

    def watch() -> None:
        status = child.wait()
        pump.join(_LAST_OUTPUT)  # the sweep looks for the reason of the end in the log
        emit(event="ended", status=status)

    threading.Thread(target=watch, daemon=True).start()
    while os.read(0, 4096):
        pass
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end(child, job, log, secrets)
    pump.join(_LAST_OUTPUT)
    emit(event="stopped")


def _start(command: str, log: Log, secrets: Secrets) -> tuple["subprocess.Popen[bytes]", threading.Thread]:
    child = subprocess.Popen(  # noqa: S603  # the user's own line, from a config they named
        ["/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    pipe = child.stdout
    assert pipe is not None

    def pump() -> None:
        for line in lines(pipe, secrets):
            log.write(line)

    pumping = threading.Thread(target=pump, daemon=True)
    pumping.start()
    return child, pumping


def end(child: "subprocess.Popen[bytes]", job: Job, log: Log, secrets: Secrets) -> None:
    """End a command and all it started."""
    if job.stop is not None:
        stopping, _ = _start(job.stop, log, secrets)
        with contextlib.suppress(subprocess.TimeoutExpired):
            stopping.wait(job.within)
        _signal(stopping.pid, signal.SIGKILL)
    for number, patience in ((signal.SIGTERM, job.within), (signal.SIGKILL, 5.0)):
        _signal(child.pid, number)
        signalled = {child.pid}
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            child.poll()
            for pid in [pid for pid, state in _children() if state == "Z" and pid != child.pid]:
                with contextlib.suppress(OSError):
                    os.waitpid(pid, os.WNOHANG)
            left = [pid for pid, state in _children() if state != "Z"]
            if not left and not _signal(child.pid, 0):
                return
            # A process that left the group becomes a child of this one when its parent ends.
            for pid in set(left) - signalled:
                _signal(pid, number, alone=True)
                signalled.add(pid)
            time.sleep(0.02)


def _signal(pid: int, number: int, *, alone: bool = False) -> bool:
    """Signal a process group, or a process alone. Whether it exists."""
    try:
        os.kill(pid, number) if alone else os.killpg(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _adopt_orphans() -> None:
    """On Linux what the command leaves behind becomes a child of this process, so that it is found
    and ended too.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _children() -> list[tuple[int, str]]:
    """The processes whose parent is this one, each with its state; none where there is no /proc."""
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid():
                children.append((int(stat.parent.name), state))
    return children


def _let_go(*_: object) -> None:
    """A signal ends the supervisor as if the sweep had let go. Raising would lose a command that is
    just starting.
    """
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def main() -> None:
    """The process."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _let_go)
    tree = json.loads(sys.stdin.buffer.readline())
    run(Job(**tree))


if __name__ == "__main__":
    main()
