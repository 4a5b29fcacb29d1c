"""The pool of kept connections that POSTs go out on, and their renewal within a trial.

Behind a balancer a connection is a replica, so that a window on few connections may have met few
replicas. A window's requests are therefore spread over as many connections as its claim needs. The
next connection is opened while the last request of the one before is under way, so that no request
waits for a handshake. Where it is not open in time, the old connection goes on.
"""

import asyncio
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from yarl import URL

from frontier.client.http.capture import CapturingProtocol
from frontier.core.model.errors import UsageError

# --- How many requests each connection carries.

_TRIES = 8
_GOLDEN = (math.sqrt(5) - 1) / 2


class Renewal:
    """The connections of a trial's requests, and when they are renewed.

    `numbers` gives each connection its number. `requests_each` is how many requests each carries;
    None: it is kept as long as it lives. In a closed loop each of the `streams` has a connection of
    its own, which its session holds while its user thinks.

    `ahead` counts the connections that were opened ahead, `renewed` those that one of these
    replaced. `failed` counts new connections that could not be opened, or that the other side
    closed before they were used.
    """

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        self.numbers = itertools.count() if numbers is None else numbers
        self.requests_each: float | None = None
        self.streams = 0
        self.ahead = self.renewed = self.failed = 0
        self._owed = 0.0
        self._begun = 0

    @property
    def possible(self) -> bool:
        """Whether to go on opening connections ahead: not where hardly any can be used."""
        return self.failed <= self.renewed + _TRIES

    def allowance(self) -> int:
        """How many requests the next connection carries, `requests_each` on average."""
        self._owed += self.requests_each or 1.0
        whole = max(1, int(self._owed))
        self._owed -= whole
        return whole

    def rest(self) -> int:
        """How many requests one of the connections that were open before carries on: evenly from
        none to all of an allowance, so that not all of them are replaced at once.
        """
        self._begun += 1
        return max(1, math.ceil((self.requests_each or 1.0) * (self._begun * _GOLDEN % 1)))


def requests_each(connections: int, streams: int, requests: float, *, open_loop: bool) -> float | None:
    """How many requests each connection of a window carries, so that `requests` are spread over
    `connections`. None where that needs no renewal, as in a closed loop with as many streams, each
    on a connection of its own.
    """
    if not connections or (connections <= streams and not open_loop):
        return None
    return max(1.0, requests / connections)


# --- The pool.


@dataclass(slots=True, eq=False)
class PooledConnection:
    """A connection and the protocol on it. `used` once it carried a request, or was opened ahead of
    one. `number` is its number in the trial, and `left` how many requests it may still carry (None:
    any number). `held`: the next turn of a session is to go out on it. `before` is the connection
    that it replaces, kept open until this one has brought an answer. `restored`: its replacement
    died, and it is used again.
    """

    connection: Connection
    protocol: CapturingProtocol
    number: int | None
    used: bool = False
    left: int | None = None
    held: bool = False
    before: "PooledConnection | None" = None
    restored: bool = False

    @property
    def alive(self) -> bool:
        """The server has not closed it, and another request may be sent on it."""
        return self.protocol.is_connected() and not self.protocol.should_close

    def close(self) -> None:
        """Drop the connection."""
        self.connection.close()


class FastPost:
    """POSTs to one address over kept-alive connections. `connection()` opens or reuses one,
    `keep()` gives it back, and replaces it where the `renewal` wants another.

    `proxy` are the options that aiohttp takes for a request through a proxy (see
    `Proxies.options`). A proxy that forwards requests has connections of its own to the server,
    about which nothing is known: ours have no number then, and none is renewed.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: URL,
        headers: Mapping[str, str],
        proxy: Mapping[str, Any],
        timeout: float,
        renewal: Renewal,
    ) -> None:
        assert session.connector is not None
        self._connector = session.connector
        self._timeout = aiohttp.ClientTimeout(total=None, connect=timeout)
        self._request = aiohttp.ClientRequest(
            "POST",
            url,
            headers=dict(headers) | proxy.get("headers", {}),
            loop=asyncio.get_running_loop(),
            session=session,
            proxy=URL(proxy["proxy"]) if proxy else None,
            proxy_headers=proxy.get("proxy_headers"),
        )
        # A proxy that forwards gets the whole address; through a tunnel (TLS) the server itself is
        # spoken to.
        self._forwarded = bool(proxy) and url.scheme == "http"
        path = str(url) if self._forwarded else url.raw_path_qs
        self._head = _request_head(path, self._request.headers)
        self._idle: list[PooledConnection] = []
        self._in_use = 0
        self._renewal = renewal
        self._spares: list[PooledConnection] = []
        self._opening: set[asyncio.Task[None]] = set()

    async def connection(self, *, fresh: bool, wanted: int | None = None) -> PooledConnection:
        """A free connection: the one with the number `wanted`, else the one used last that no
        session holds. Without any a new one, as where `fresh` asks for it; but one that is held
        where every stream has its own already. Raises as aiohttp's connector.
        """
        self._in_use += 1
        try:
            if fresh and (restored := self._take_restored()) is not None:
                return restored
            while not fresh and (place := self._place(wanted)) is not None:
                idle = self._idle.pop(place)
                if idle.alive:
                    return idle
                self._in_use += 1
                self.drop(idle)
            return await self._open(fresh=fresh)
        except BaseException:
            self._in_use -= 1
            raise

    def _take_restored(self) -> PooledConnection | None:
        """A connection whose replacement died before it answered, and which has answered itself."""
        for place, idle in enumerate(self._idle):
            if idle.restored and idle.alive:
                return self._idle.pop(place)
        return None

    def _place(self, wanted: int | None) -> int | None:
        """Where in the list the connection is that `connection` gives; None for a new one."""
        last = len(self._idle) - 1
        if wanted is not None:
            for place, idle in enumerate(self._idle):
                if idle.number == wanted:
                    return place
        for place in range(last, -1, -1):
            if not self._idle[place].held:
                return place
        # The one that is asked for is counted already.
        return last if last >= 0 and last + 1 + self._in_use > self._renewal.streams else None

    async def _open(self, *, fresh: bool) -> PooledConnection:
        while True:
            connection = await self._connector.connect(self._request, traces=[], timeout=self._timeout)
            protocol = connection.protocol
            assert isinstance(protocol, CapturingProtocol)
            # The connector may hand over one on which the session has sent a request.
            if not (fresh and protocol.requests):
                number = None if self._forwarded else next(self._renewal.numbers)
                return PooledConnection(connection, protocol, number, used=protocol.requests > 0)
            connection.close()

    def send(self, pooled: PooledConnection, body: bytes) -> None:
        """Write the whole request, in one piece. With the last one that the connection is to carry
        the next connection is opened.
        """
        protocol = pooled.protocol
        protocol.begin_capture()
        pooled.used = True
        transport = protocol.transport
        if transport is None:
            raise aiohttp.ServerDisconnectedError
        transport.writelines((self._head % len(body), body))
        if self._renewal.requests_each is not None and not self._forwarded:
            self._count(pooled)

    def _count(self, pooled: PooledConnection) -> None:
        """One request fewer that it may carry; at the last the opening of the next begins."""
        if pooled.left is None:
            pooled.left = self._renewal.rest()
        pooled.left -= 1
        due = pooled.left == 0 or (pooled.left < 0 and not self._spares and not self._opening)
        if due and self._renewal.possible:
            opening = asyncio.create_task(self._open_ahead())
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)

    async def _open_ahead(self) -> None:
        try:
            spare = await self._open(fresh=True)
        except (aiohttp.ClientError, OSError, TimeoutError):
            self._renewal.failed += 1
            return
        spare.used, spare.left = True, self._renewal.allowance()
        self._renewal.ahead += 1
        self._spares.append(spare)

    async def answer(self, pooled: PooledConnection) -> tuple[int, Mapping[str, str], aiohttp.StreamReader]:
        """Status, headers and body of the final answer; interim (1xx) ones are passed over."""
        while True:
            try:
                message, payload = await pooled.protocol.read()
            except HttpProcessingError as error:
                raise aiohttp.ClientResponseError(
                    self._request.request_info, (), status=error.code, message=error.message
                ) from error
            if message.code >= 200 or message.code == 101:
                if pooled.before is not None:
                    pooled.before.close()
                    pooled.before = None
                return message.code, message.headers, payload

    def keep(self, pooled: PooledConnection, *, held: bool = False) -> None:
        """Take it back, for the next request where that is allowed. One that has carried its
        requests is replaced once the next is open, unless it is `held` for the next turn of its
        session.
        """
        self._in_use -= 1
        if not pooled.alive:
            pooled.close()
            return
        if pooled.left is not None and pooled.left <= 0 and not held and (spare := self._spare()) is not None:
            self._renewal.renewed += 1
            spare.before, pooled = pooled, spare
        pooled.held = held
        self._idle.append(pooled)

    def drop(self, pooled: PooledConnection) -> None:
        """Take it back, and close it. One that has never answered gives way to the one before."""
        self._in_use -= 1
        pooled.close()
        if (before := pooled.before) is not None:
            pooled.before, before.restored = None, True
            self._renewal.renewed -= 1
            self._renewal.failed += 1
            self._idle.append(before)

    def _spare(self) -> PooledConnection | None:
        """A connection that was opened ahead and still lives."""
        while self._spares:
            spare = self._spares.pop()
            if spare.alive:
                return spare
            self._renewal.failed += 1
            spare.close()
        return None

    def close(self) -> None:
        """Hand the idle connections back to the connector, whose own closing waits for TLS to say
        goodbye.
        """
        for opening in self._opening:
            opening.cancel()
        for pool in (self._idle, self._spares):
            while pool:
                pooled = pool.pop()
                if pooled.before is not None:
                    pooled.before.close()
                pooled.connection.release()


def _request_head(path: str, headers: Mapping[str, str]) -> bytes:
    """A request's head with a place for the length. UsageError when a header would break it."""
    lines = [f"POST {path} HTTP/1.1"]
    for name, value in headers.items():
        if {"\r", "\n", "\0"} & {*name, *value}:
            raise UsageError(f"the header {name!r} has a line break or a NUL in it", "mend `headers` or the key")
        if name.lower() not in ("content-length", "transfer-encoding"):
            lines.append(f"{name}: {value}")
    text = "\r\n".join(lines).replace("%", "%%")
    return text.encode() + b"\r\nContent-Length: %d\r\n\r\n"
