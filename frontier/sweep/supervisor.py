"""Keeps one command of the user's running for a sweep and ends it, whatever becomes of the sweep.

    python -m frontier.warden

It is a process of its own: when the pipe on its standard input closes, the sweep is done with it or gone, even killed,
and the command is ended: its own stop command first, then SIGTERM and at last SIGKILL to its process group, and to
whatever of it left the group. It is told what to do in one JSON line (see `Job`), tells in JSON lines on standard
output how the command fares, and writes what the command says to a log that is bounded and without secrets.
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
from frontier.store.files import beside
from frontier.text import Secrets

LOG_BYTES = 8_000_000
"""A log is turned over at half of this: the newest half at least is kept, in two files."""
LINE_CHARS = 4_000
_LONG = 65_536
_LAST_WORDS = 2.0
"""Seconds to wait for what a command said last; one that it left behind may hold the pipe open for ever."""
_SUBREAPER = 36
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Job:
    """`command` and `stop` are lines for /bin/sh; ending takes at most twice `within` seconds, and five.

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
        self._folder = beside(path)
        self._file: BinaryIO | None = None
        self._size = 0
        with contextlib.suppress(OSError, StoreError):  # without a log the command runs all the same
            self._file = self._folder.appender(path.name)
            self._size = os.fstat(self._file.fileno()).st_size
        self._lock = threading.Lock()

    def write(self, line: str) -> None:
        """One line. A full disk ends the log, not the command."""
        with self._lock:
            self._put(line.encode(errors="replace") + b"\n")

    def _put(self, text: bytes) -> None:
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
    """Without terminal escapes and control characters; what is no UTF-8 can be turned back into its bytes."""
    return _CONTROL.sub("", _ESCAPES.sub("", line.decode(errors="surrogateescape")))


def lines(pipe: IO[bytes], secrets: Secrets) -> Iterator[str]:
    """What a command says, by lines, without secrets and escapes. A carriage return ends a line too, and one too long
    is cut into several: after it was redacted, as half a secret would not be found.
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


def tell(**facts: Any) -> None:
    """One line to the sweep; it may be gone."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(facts).encode() + b"\n")


def run(job: Job) -> None:
    """Start the command, wait for the sweep to let go, end the command."""
    log, secrets = Log(Path(job.log)), Secrets(frozenset(job.secrets), frozenset(job.whole))
    _adopt_orphans()
    child, pump = _start(job.command, log, secrets)
    tell(event="started", pid=child.pid)

    def watch() -> None:
        status = child.wait()
        pump.join(_LAST_WORDS)  # whoever hears of the end looks for the reason in the log
        tell(event="ended", status=status)

    threading.Thread(target=watch, daemon=True).start()
    while os.read(0, 4096):
        pass
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end(child, job, log, secrets)
    pump.join(_LAST_WORDS)
    tell(event="stopped")


def _start(command: str, log: Log, secrets: Secrets) -> tuple["subprocess.Popen[bytes]", threading.Thread]:
    child = subprocess.Popen(  # noqa: S603  # the user's own line, from a config they named
        ["/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
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
        _kill_group(stopping.pid, signal.SIGKILL)
    for number, patience in ((signal.SIGTERM, job.within), (signal.SIGKILL, 5.0)):
        _kill_group(child.pid, number)
        told = {child.pid}
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            child.poll()
            _reap(child.pid)
            left = _own_children()
            if not left and not _group_lives(child.pid):
                return
            for pid in set(left) - told:  # what left the group becomes ours when its parent ends
                _kill_group(pid, number, alone=True)
                told.add(pid)
            time.sleep(0.02)


def _kill_group(pid: int, number: int, *, alone: bool = False) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number) if alone else os.killpg(pid, number)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _adopt_orphans() -> None:
    """On Linux what a command leaves behind becomes our child, so that it can be found and ended too."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _own_children() -> list[int]:
    """The processes that are ours now; empty where nothing tells."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                found.append(int(stat.parent.name))
    return found


def _reap(but: int) -> None:
    """Let go of ended orphans, so that none lingers."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state == "Z" and int(stat.parent.name) != but:
                os.waitpid(int(stat.parent.name), os.WNOHANG)


def _asked(*_: object) -> None:
    """A signal asks us to end: as if the sweep had let go. Raising would lose a command that is just being started."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def main() -> None:
    """The process."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _asked)
    tree = json.loads(sys.stdin.buffer.readline())
    run(Job(**tree))


if __name__ == "__main__":
    main()
