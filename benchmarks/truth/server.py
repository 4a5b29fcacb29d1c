"""Builds, starts and stops the truth server, and reads its log."""

import contextlib
import hashlib
import os
import select
import shlex
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

SOURCE = Path(__file__).with_name("truth.c")
MAGIC = b"FTRUTH1\n"
ENTRY = struct.Struct("<8I5q")  # as `struct entry` in truth.c
CHAT, STREAMED, ASKED_USAGE, CUT_SHORT = 1, 2, 4, 8


class NoCompilerError(RuntimeError):
    """There is no C compiler, or it cannot build the server."""


@dataclass(frozen=True)
class Served:
    """One answered request, as the server saw it. Times in seconds on the clock of
    `time.perf_counter()`.
    """

    serial: int
    """Counts the answered requests of this server, from 0, in order of receipt."""
    connection: int
    """Counts the accepted connections, from 0: equal numbers mean that a connection was reused."""
    request_id: str | None
    """The header x-request-id."""
    chat: bool
    streamed: bool
    asked_usage: bool
    cut_short: bool
    """The client went away, or the server was stopped, before the last token."""
    prompt_tokens: int
    tokens: int
    """How many tokens the answer has when it is not cut short."""
    blocked: int
    """How often the client's socket was full: stamps after that tell the client's pace, not the
    schedule's.
    """
    first_byte: float
    receipt: float
    """When the request's last byte was read: the schedule counts from here."""
    role: float | None
    """When head and role left; None if that never came to pass."""
    sent: npt.NDArray[np.float64]
    """When each token left, taken right before its send()."""
    asked_ttft: float
    asked_itl: float

    @property
    def ttft(self) -> float:
        return float(self.sent[0]) - self.receipt

    @property
    def e2e(self) -> float:
        return float(self.sent[-1]) - self.receipt

    @cached_property
    def itl(self) -> npt.NDArray[np.float64]:
        return np.diff(self.sent)

    @cached_property
    def lateness(self) -> npt.NDArray[np.float64]:
        """By how much each token missed its appointment."""
        last_first = np.arange(len(self.sent)) if self.streamed else np.full(len(self.sent), self.tokens - 1)
        return self.sent - (self.receipt + self.asked_ttft + last_first * self.asked_itl)


def parse_log(data: bytes) -> list[Served]:
    """The requests of a log, in the order in which they ended. A last entry that is not wholly
    written is left out.

    Raises ValueError when this is no log of the truth server.
    """
    if not data.startswith(MAGIC):
        raise ValueError("not a log of the truth server")
    served, at = [], len(MAGIC)
    while at + ENTRY.size <= len(data):
        serial, connection, flags, prompt, tokens, sent, blocked, id_len, *times = ENTRY.unpack_from(data, at)
        stamps = at + ENTRY.size + id_len
        end = stamps + 8 * sent
        if end > len(data):
            break
        first_byte, receipt, role, ttft, itl = (t / 1e9 for t in times)
        served.append(
            Served(
                serial=serial,
                connection=connection,
                request_id=data[at + ENTRY.size : stamps].decode("latin-1") or None,
                chat=bool(flags & CHAT),
                streamed=bool(flags & STREAMED),
                asked_usage=bool(flags & ASKED_USAGE),
                cut_short=bool(flags & CUT_SHORT),
                prompt_tokens=prompt,
                tokens=tokens,
                blocked=blocked,
                first_byte=first_byte,
                receipt=receipt,
                role=role or None,
                sent=np.frombuffer(data, "<i8", sent, stamps) / 1e9,
                asked_ttft=ttft,
                asked_itl=itl,
            )
        )
        at = end
    return served


def build() -> Path:
    """The server's binary, compiled on first use and kept in the user's cache under a name that
    tells its source.

    Raises NoCompilerError when $CC, cc, gcc or clang is not there or refuses.
    """
    compiler = shlex.split(os.environ.get("CC", "")) or [p for p in map(shutil.which, ("cc", "gcc", "clang")) if p][:1]
    if not compiler:
        raise NoCompilerError("no C compiler: neither $CC nor cc, gcc, clang")
    key = hashlib.sha256(SOURCE.read_bytes() + " ".join(compiler).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "frontier-truth"
    binary = cache / f"truth-{key}"
    if binary.exists():
        return binary
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        made = Path(scratch) / "truth"
        try:
            done = subprocess.run([*compiler, "-O2", "-o", made, SOURCE], capture_output=True, text=True, check=False)
        except OSError as error:
            raise NoCompilerError(f"{compiler[0]} does not start: {error}") from error
        if done.returncode:
            raise NoCompilerError(f"{compiler[0]} does not build {SOURCE.name}: {done.stderr.strip()[:500]}")
        made.replace(binary)
    return binary


class TruthServer:
    """A running truth server; a context manager. `read_log()` works during its life and after it.

    ttft, itl: the schedule, in seconds. osl: cap on the tokens of an answer, beside the request's
    max_tokens. role_early: head and role chunk leave at receipt instead of together with the first
    token.

    It runs at real-time priority where the system grants that (root, CAP_SYS_NICE), so that a busy
    client on the same cores cannot make it late; `realtime` says whether it did. Either way the log
    tells by how much it was late.
    """

    def __init__(
        self, *, ttft: float = 0.0, itl: float = 0.0, osl: int | None = None, role_early: bool = False, port: int = 0
    ) -> None:
        self._arguments = [f"--port={port}", f"--ttft-ms={ttft * 1e3!r}", f"--itl-ms={itl * 1e3!r}"]
        self._arguments += [f"--osl={osl}"] if osl else []
        self._arguments += ["--role-early"] if role_early else []
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._log: bytes | None = None
        self.port = port
        self.realtime = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process, "not started"
        return self._process.pid

    def start(self) -> Self:
        """Returns once the server listens. Raises NoCompilerError, or RuntimeError when it does not
        start.
        """
        binary = build()
        memory = Path("/dev/shm")  # a write to a disk others are busy with can hold the server up for 100 ms
        place = memory if os.access(memory, os.W_OK) else None
        self._scratch = tempfile.TemporaryDirectory(prefix="truth-", dir=place)
        log = Path(self._scratch.name) / "log"
        self._process = subprocess.Popen([binary, *self._arguments, f"--log={log}"], stdout=subprocess.PIPE)
        assert self._process.stdout
        ready, _, _ = select.select([self._process.stdout], [], [], 10)
        line = self._process.stdout.readline() if ready else b""
        if not line.strip().isdigit():
            self.stop()
            raise RuntimeError("the truth server did not say its port")
        self.port = int(line)
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(self._process.pid, os.SCHED_FIFO, os.sched_param(1))
            self.realtime = True
        return self

    def stop(self) -> None:
        """Ends the server; requests under way are logged as cut short. Safe to call twice.

        Raises RuntimeError when the server did not end well: what it served is then not wholly in
        the log.
        """
        if self._process is None or self._scratch is None:
            return
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        log = Path(self._scratch.name) / "log"
        self._log = log.read_bytes() if log.exists() else b""
        self._scratch.cleanup()
        code, self._process, self._scratch = self._process.returncode, None, None
        if code:
            raise RuntimeError(f"the truth server ended with exit code {code}")

    def read_log(self) -> list[Served]:
        """What was served, in the order in which it ended. While the server runs the last 20 ms may
        be missing.
        """
        if self._log is None:
            assert self._scratch, "not started"
            return parse_log((Path(self._scratch.name) / "log").read_bytes())
        return parse_log(self._log)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
