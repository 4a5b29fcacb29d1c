"""Requests straight onto aiohttp's connections, without a ClientSession between.

aiohttp's connector resolves, connects, speaks TLS and owns every socket; its parser reads the heads. What a session
does around each request (headers merged, cookies, redirects, tracing, a request and a response object) costs several
times the rest of a request and is the same every time: here the head is made once (docs/decisions/0002).
Requests through a proxy, and aiohttp releases that are not as known, take the session.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from yarl import URL

from frontier.client.body_capture import TapingHandler
from frontier.errors import UsageError

_READ_BUFFER = 2**20
"""More than one read brings: the read with the head must never make aiohttp pause a body that the tape will take."""


@dataclass(slots=True)
class Lane:
    """A connection and the protocol on it; `used` once it carried a request."""

    connection: Connection
    protocol: TapingHandler
    used: bool = False

    @property
    def alive(self) -> bool:
        """The server has not closed it, and may be asked again."""
        return self.protocol.is_connected() and not self.protocol.should_close

    def close(self) -> None:
        """Drop the connection."""
        self.connection.close()


class Direct:
    """POSTs to one address over kept-alive connections. `lane()` opens or reuses one, `keep()` gives it back."""

    def __init__(
        self, session: aiohttp.ClientSession, url: URL, headers: Mapping[str, str], tls: Any, connect: float
    ) -> None:
        assert session.connector is not None
        self._connector = session.connector
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect)
        self._request = aiohttp.ClientRequest(
            "POST", url, headers=headers, loop=asyncio.get_running_loop(), session=session, ssl=tls
        )
        self._head = _head(url, self._request.headers)
        self._idle: list[Lane] = []

    async def lane(self) -> Lane:
        """A connection that is free: the one used last, or a new one. Raises what aiohttp's connector raises."""
        while self._idle:
            lane = self._idle.pop()
            if lane.alive:
                return lane
            lane.close()
        connection = await self._connector.connect(self._request, traces=[], timeout=self._timeout)
        protocol = connection.protocol
        assert isinstance(protocol, TapingHandler)
        # The connector may hand over one on which the session has asked a small question.
        return Lane(connection, protocol, used=protocol.reused)

    def write(self, lane: Lane, body: bytes) -> None:
        """The whole request, in one piece."""
        protocol = lane.protocol
        protocol.set_response_params(auto_decompress=False, read_until_eof=True, read_bufsize=_READ_BUFFER)
        lane.used = True
        transport = protocol.transport
        if transport is None:
            raise aiohttp.ServerDisconnectedError
        transport.writelines((self._head % len(body), body))

    async def answer(self, lane: Lane) -> tuple[int, Mapping[str, str], aiohttp.StreamReader]:
        """Status, headers and body of the final answer; interim (1xx) ones are passed over."""
        while True:
            try:
                message, payload = await lane.protocol.read()
            except HttpProcessingError as error:
                raise aiohttp.ClientResponseError(
                    self._request.request_info, (), status=error.code, message=error.message
                ) from error
            if message.code >= 200 or message.code == 101:
                return message.code, message.headers, payload

    def keep(self, lane: Lane) -> None:
        """Done with it: kept for the next request where that is allowed."""
        if lane.alive:
            self._idle.append(lane)
        else:
            lane.close()

    def close(self) -> None:
        """Hand the connections that wait back to the connector, whose own closing waits for TLS to say goodbye."""
        while self._idle:
            self._idle.pop().connection.release()


def _head(url: URL, headers: Mapping[str, str]) -> bytes:
    """The request's head with a place for the length. UsageError when a header would break it."""
    lines = [f"POST {url.raw_path_qs} HTTP/1.1"]
    for name, value in headers.items():
        if {"\r", "\n", "\0"} & {*name, *value}:
            raise UsageError(f"the header {name!r} has a line break or a NUL in it", "mend `headers` or the key")
        if name.lower() not in ("content-length", "transfer-encoding"):
            lines.append(f"{name}: {value}")
    text = "\r\n".join(lines).replace("%", "%%")
    return text.encode() + b"\r\nContent-Length: %d\r\n\r\n"
