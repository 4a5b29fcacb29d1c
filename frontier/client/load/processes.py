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
from typing import Any

from frontier.client.http.http_client import run
from frontier.client.load.shard import ShardHost, WorkerLostError

EVENTS_PER_WORKER = 40_000
"""Streamed events per second that one client process gets: at most 55% of a core where an event
takes up to 14 microseconds, as on a slow core. The rest is room for bursts."""
_STOP_LIMIT = 3.0
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
    return max(1, cores() - 1)


def workers_needed(rate: float | None, concurrency: int) -> int:
    """Client processes for a trial of `concurrency` streams and `rate` events per second, None
    where the rate is not known.
    """
    return min(max(1, math.ceil((rate or 0.0) / EVENTS_PER_WORKER)), most_workers(), concurrency)


def auto_facts() -> dict[str, Any]:
    """What `workers: auto` goes by on this machine, for JSON; `most` is how many it takes at the
    most. `measured` was true in versions that measured what one client process carries.
    """
    return {"events_per_second": EVENTS_PER_WORKER, "measured": False, "cores": cores(), "most": most_workers()}


def auto_chooses() -> str:
    """What `workers: auto` chooses on this machine, and why."""
    count, most = cores(), most_workers()
    if most == 1:
        return f"workers: auto takes one on {count} core{'s, as one is left to the sweep' * (count > 1)}"
    return f"workers: auto takes more where a trial needs more, up to {most} on {count} cores"


CARRIES = f"one client process carries {EVENTS_PER_WORKER:,} events/s"


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
        reader, writer = self._streams
        try:
            write_frame(writer, (method, arguments))
            await writer.drain()
            problem, result = await read_frame(reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerLostError(f"{self.name} was lost{self._status()}") from None
        if problem is not None:
            raise WorkerLostError(f"{self.name} failed: {problem}")
        return result

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
        """`count` workers, started as needed."""
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
