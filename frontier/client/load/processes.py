"""Client processes on this machine: started when a trial needs them, kept for the next, ended with
the sweep.

Each is `python -m frontier.client.load.processes`, whose standard input is a socket to the sweep.
Questions and answers are frames of pickled Python values, which only ever pass between a sweep and
the processes that it started itself. The process ends as soon as that socket closes, so it does not
outlive the sweep.
"""

import asyncio
import contextlib
import math
import os
import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frontier.client.http.http_client import run
from frontier.client.load.process_capacity import client_capacity
from frontier.client.load.shard import ShardHost, WorkerLostError

EVENTS_PER_WORKER = 60_000
"""Streamed events per second that one client process carries where it is not measured; half of them
need no measuring.
"""
_STOP_LIMIT = 3.0
_STOPPED_FOR, _LOOK_EVERY = 3.0, 0.5
"""Seconds after which a process that is stopped (SIGSTOP) is taken for lost, and in which one that
does not answer is looked at: how long an answer may take says nothing, as a start takes its time.
"""
_LENGTH = struct.Struct(">Q")


async def read_frame(reader: asyncio.StreamReader) -> Any:
    """The next value. IncompleteReadError or ConnectionError when the other side is gone."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return pickle.loads(await reader.readexactly(length))  # noqa: S301 - from the process that started this one, or back


def write_frame(writer: asyncio.StreamWriter, value: Any) -> None:
    """Send a value."""
    data = pickle.dumps(value)
    writer.write(_LENGTH.pack(len(data)) + data)


def start_process(
    module: str, environ: Mapping[str, str] | None = None
) -> tuple["subprocess.Popen[bytes]", socket.socket]:
    """A process that runs this module of the package, and the socket to its standard input."""
    ours, theirs = socket.socketpair()
    with theirs:
        # A session of its own: Ctrl-C in the terminal is the sweep's to answer; it then stops the
        # process. The key is on no command line and in no file: it comes with the shard, over the
        # socket.
        child = subprocess.Popen(  # noqa: S603 - our own arguments
            [sys.executable, "-m", module],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            env=environ,
            start_new_session=True,
        )
    return child, ours


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def most_workers() -> int:
    """The most client processes that `auto` takes: one core is left to the sweep itself."""
    if sys.platform == "win32":  # there a socket cannot be a standard input
        return 1
    return max(1, cores() - 1)


def workers_needed(rate: float | None, concurrency: int) -> int:
    """Client processes for a trial of so many streams and, as far as is known, `rate` events per
    second.

    Where it comes near to needing a second one, what one carries on this machine is measured, once.
    """
    most = min(most_workers(), concurrency)
    if most == 1 or rate is None or rate <= EVENTS_PER_WORKER / 2:
        return 1
    return min(math.ceil(rate / (client_capacity() or EVENTS_PER_WORKER)), most)


@dataclass(frozen=True, slots=True)
class AutoWorkers:
    """What `workers: auto` goes by on this machine. `events_per_second` is what one client process
    carries, `measured` or assumed; `most` is how many it takes at the most.
    """

    events_per_second: int
    measured: bool
    cores: int
    most: int

    @classmethod
    def of_this_machine(cls, *, measure: bool = True) -> "AutoWorkers":
        """To measure takes about two seconds, once."""
        capacity = client_capacity() if measure else None
        return cls(capacity or EVENTS_PER_WORKER, capacity is not None, cores(), most_workers())

    def carries(self) -> str:
        how = "on this machine (measured)" if self.measured else "(not measured)"
        return f"one client process carries {self.events_per_second:,} events/s {how}"

    def chooses(self) -> str:
        """What `auto` chooses, and why."""
        if self.most == 1:
            return f"workers: auto takes one on {self.cores} core{'s, as one is left to the sweep' * (self.cores > 1)}"
        return f"workers: auto takes more where a trial needs more, up to {self.most} on {self.cores} cores"


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped a process; False where the system does not say."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    return False


class ProcessWorker:
    """One client process. It ends by itself when this process does, however it does."""

    def __init__(self, number: int) -> None:
        self._child, self._socket = start_process("frontier.client.load.processes")
        self.pid = self._child.pid
        self.name = f"client process {number} (pid {self.pid})"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def alive(self) -> bool:
        """It has not ended."""
        return self._child.poll() is None

    async def call(self, method: str, *arguments: Any) -> Any:
        """As in Worker."""
        if self._streams is None:
            self._streams = await asyncio.open_unix_connection(sock=self._socket)
        asking = asyncio.ensure_future(self._ask(*self._streams, (method, arguments)))
        try:
            problem, result = await self._unless_stopped(asking)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerLostError(f"{self.name} was lost{self._status()}") from None
        finally:
            asking.cancel()
        if problem is not None:
            raise WorkerLostError(f"{self.name} failed: {problem}")
        return result

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, question: Any) -> Any:
        write_frame(writer, question)
        await writer.drain()
        return await read_frame(reader)

    async def _unless_stopped(self, asking: "asyncio.Future[Any]") -> Any:
        """The answer. WorkerLostError where the process is stopped for too long to give one."""
        stopped = 0.0
        while not (await asyncio.wait({asking}, timeout=_LOOK_EVERY))[0]:
            stopped = stopped + _LOOK_EVERY if is_stopped(self.pid) else 0.0
            if stopped >= _STOPPED_FOR:
                raise WorkerLostError(f"{self.name} was stopped (SIGSTOP) for {_STOPPED_FOR:g} s")
        return asking.result()

    def _status(self) -> str:
        """How it ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._child.wait(_STOP_LIMIT)
            return f": signal {-status} ended it" if status < 0 else f": it ended with status {status}"
        return ""

    def kill(self) -> None:
        """End it at once."""
        if self._streams is not None:
            self._streams[1].close()
        self._socket.close()
        self._child.kill()
        self._child.wait()


class LocalWorkers:
    """The client processes of a sweep on this machine."""

    def __init__(self) -> None:
        self._workers: list[ProcessWorker] = []
        self._started = 0

    def get(self, count: int) -> list[ProcessWorker]:
        """So many of them, started as needed."""
        self._workers = [worker for worker in self._workers if worker.alive]
        while len(self._workers) < count:
            self._started += 1
            self._workers.append(ProcessWorker(self._started))
        return self._workers[:count]

    def close(self) -> None:
        """End them all, whatever they are doing."""
        for worker in self._workers:
            worker.kill()
        self._workers.clear()


# --- in the process


async def serve(connection: socket.socket) -> None:
    """Answer the sweep's questions, (method, arguments), with (None, result) or (what went wrong,
    None).
    """
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    host = ShardHost()
    while True:
        try:
            question = await read_frame(reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            os._exit(0)  # at once: the requests in flight are of no use to anybody any more
        write_frame(writer, await host.answer(*question))


if __name__ == "__main__":
    run(serve(socket.socket(fileno=0)))
