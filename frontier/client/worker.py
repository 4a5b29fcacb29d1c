"""A client process that sends a share of a trial's load: `python -m frontier.client.worker`, started by a sweep.

Its standard input is a socket to the sweep. Questions and answers are frames of pickled Python values, which only ever
pass between a sweep and the processes that it started itself. The process ends as soon as that socket closes, so it
does not outlive the sweep.
"""

import asyncio
import os
import pickle
import socket
import struct
from typing import Any

from frontier.client.event_loop import run
from frontier.client.shard import ShardHost

_LENGTH = struct.Struct(">Q")


async def read_frame(reader: asyncio.StreamReader) -> Any:
    """The next value. IncompleteReadError or ConnectionError when the other side is gone."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return pickle.loads(await reader.readexactly(length))  # noqa: S301 - from the process that started this one, or back


def write_frame(writer: asyncio.StreamWriter, value: Any) -> None:
    """Send a value."""
    data = pickle.dumps(value)
    writer.write(_LENGTH.pack(len(data)) + data)


async def serve(connection: socket.socket) -> None:
    """Answer the sweep's questions, (method, arguments), with (None, result) or (what went wrong, None)."""
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
