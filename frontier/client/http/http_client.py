"""The HTTP client of a trial: requests as bytes in, time-stamped bytes out; connections, retry,
time limits, failures.

Nothing is interpreted here: a read is stamped before anything else happens to it, and kept.
`parse.py` reads the bytes later. Every exchange ends in exactly one way: a status with a body, or a
named failure.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import aiohttp
from yarl import URL

from frontier.client.ask.target import Proxies, Target
from frontier.client.http.capture import (
    GRACE,
    MAX_BODY,
    BodyCapture,
    FramingError,
    capture_bodies,
    ends_with_done,
    require_names,
)
from frontier.client.http.exchange import Exchange, name_failure
from frontier.client.http.pool import FastPost, Renewal
from frontier.core.model.errors import UsageError
from frontier.core.model.trials import Outcome

Clock = Callable[[], float]
MAX_ERROR_BODY = 64 * 2**10
_TLS_HINT = "check ca, cert and key under  tls:  in the config"
_LAST_TURNS = 100
_TIMEOUTS_EVERY = 0.25
_RACE = 0.5
"""Seconds after a send in which the death of a kept-alive connection is the two sides' race; later,
it is a failure."""


class Client:
    """Connections to one target. Use as an async context manager, inside which the target's time
    limits are enforced.

    Requests under load are POSTs through the pool (`pool.py`), whose bodies are captured at the
    socket. Small questions go through an aiohttp session. `proxies` default to those of the
    environment; `numbers` are given to connections.
    """

    def __init__(
        self,
        target: Target,
        clock: Clock = time.perf_counter,
        *,
        proxies: Proxies | None = None,
        numbers: Iterator[int] | None = None,
    ) -> None:
        self.target = target
        self.clock = clock
        self.in_flight: set[Exchange] = set()
        self.opened = 0
        self.resent = 0
        self.renewal = Renewal(numbers)
        self._headers = target.request_headers()
        self._proxies = (proxies or Proxies.of_environment()) if target.trust_env else Proxies()
        self._proxies.options(URL(target.base_url))
        self._secrets = target.secrets | self._proxies.secrets
        self._transports: set[asyncio.Transport] = set()
        self._enforcer: asyncio.TimerHandle | None = None
        self._session: aiohttp.ClientSession | None = None
        self._pools: dict[URL, FastPost] = {}

    async def __aenter__(self) -> Self:
        self._session = self._new_session()
        self._enforce_timeouts()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._enforcer is not None:
            self._enforcer.cancel()
        for pool in self._pools.values():
            pool.close()
        if self._session is not None:
            await self._session.close()
        # What is still open waits for a TLS goodbye, which may never come; the loop must not be
        # closed under it.
        for transport in tuple(self._transports):
            transport.abort()
        for _turn in range(_LAST_TURNS):
            await asyncio.sleep(0)
            if not self._transports:
                break

    def _new_session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0, ssl=tls_context(self.target), ttl_dns_cache=300, keepalive_timeout=75.0
        )
        loop = asyncio.get_running_loop()
        require_names(connector, loop)
        capture_bodies(connector, loop, self.clock, self._transports)
        return aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=None, connect=self.target.timeouts.connect),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )

    async def ask(self, path: str, limit: float = 5.0, method: str = "GET") -> Exchange:
        """A small question beside the load, without a body: to a path of the target, or to a full
        address.
        """
        exchange = Exchange(self.clock(), limit=limit)
        url = path if "://" in path else self.target.url(path)
        return await self._exchange(exchange, lambda: self._ask(exchange, method, url))

    async def post(
        self,
        url: URL | str,
        body: bytes,
        *,
        connection: int | None = None,
        held: bool = False,
        asked: int | None = None,
    ) -> Exchange:
        """One request to its end, on the connection of this number if it is free. The answer to one
        that `asked` for a number of tokens is cut at twice as many. Never raises for what the
        network or the server does; see `Exchange.failure`.
        """
        exchange = Exchange(self.clock(), connection=connection, held=held, asked=asked)
        url = url if isinstance(url, URL) else URL(url, encoded=True)
        return await self._exchange(exchange, lambda: self._post(exchange, url, body))

    async def _exchange(self, exchange: Exchange, attempt: Callable[[], Coroutine[Any, Any, None]]) -> Exchange:
        """The exchange, ended: by an attempt, and by another where the first met a connection that
        had died.
        """
        exchange.task, exchange.secrets = asyncio.current_task(), self._secrets
        self.in_flight.add(exchange)
        try:
            for may_resend in (True, False):
                try:
                    await attempt()
                except (aiohttp.ClientError, OSError, TimeoutError) as error:
                    complete = exchange.status is not None and ends_with_done(exchange.reads)
                    exchange.failure = None if complete else name_failure(error, exchange)
                    if may_resend and self._died_idle(exchange, error):
                        exchange.resent, exchange.reused, exchange.failure = True, False, None
                        self.resent += 1
                        continue
                break
        except asyncio.CancelledError:
            if exchange.cut is None:
                raise
            exchange.failure = exchange.cut
        finally:
            if exchange.cut is not None and exchange.task is not None:
                exchange.task.uncancel()
            self.in_flight.discard(exchange)
            exchange.end = self.clock()
        return exchange

    def _died_idle(self, exchange: Exchange, error: BaseException) -> bool:
        """The server closed a kept connection while it was idle, or just as we wrote on it, and
        never saw the request.

        That is neither its failing nor a new send, so the request is sent again, on a fresh
        connection. Only once, and only within a moment of the send: a server that works on a
        request and then dies has failed.
        """
        died = isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
        return died and exchange.reused and exchange.status is None and self.clock() - exchange.sent < _RACE

    async def _post(self, exchange: Exchange, url: URL, body: bytes) -> None:
        """A request under load. Latency starts as the bytes go out on a kept connection: what this
        client did before is not the server's time. Where a connection had to be opened, it starts
        before that, as any user would wait for it too; and a request that is sent once more keeps
        its first start.
        """
        pool = self._pools.get(url)
        if pool is None:
            assert self._session is not None, "use the client as a context manager"
            timeout = self.target.timeouts.connect
            pool = FastPost(self._session, url, self._headers, self._proxies.options(url), timeout, self.renewal)
            self._pools[url] = pool
        wanted, exchange.connection = exchange.connection, None
        connection = await pool.connection(fresh=exchange.resent, wanted=wanted)
        exchange.connection = connection.number
        whole = False
        try:
            exchange.reused = connection.used
            if not connection.used:
                self.opened += 1
                exchange.connect = self.clock() - exchange.sent
            elif not exchange.resent:
                exchange.sent = self.clock()
            pool.send(connection, body)
            exchange.status, exchange.headers, content = await pool.answer(connection)
            capture = connection.protocol.capture
            if capture.active:
                await _until_end(exchange, capture, content)
                whole = True
            else:
                whole = await self._read(exchange, content)
        finally:
            # A server that has closed a kept connection without a word will do so again: the fresh
            # one is not kept.
            lasting = whole and (connection.restored or not exchange.resent)
            pool.keep(connection, held=exchange.held) if lasting else pool.drop(connection)

    async def _ask(self, exchange: Exchange, method: str, url: str) -> None:
        """A small question. aiohttp asks once more by itself where a kept connection had died."""
        assert self._session is not None, "use the client as a context manager"
        options = self._proxies.options(URL(url))
        async with self._session.request(method, url, allow_redirects=False, **options) as response:
            exchange.status, exchange.headers = response.status, response.headers
            if not await self._read(exchange, response.content):
                response.close()

    async def _read(self, exchange: Exchange, content: aiohttp.StreamReader) -> bool:
        """Read a body that is not captured, stamped as the task wakes; False when it is given up as
        too long, or does not end after its [DONE].
        """
        stamps, reads, clock = exchange.stamps, exchange.reads, self.clock
        good = exchange.status is not None and exchange.status < 300
        room = MAX_BODY if good else MAX_ERROR_BODY
        try:
            async with asyncio.timeout(None) as grace:
                async for read in content.iter_any():
                    stamps.append(clock())
                    reads.append(read)
                    room -= len(read)
                    if room < 0:
                        if good:
                            exchange.failure = Outcome.PROTOCOL, f"the body is over {MAX_BODY} bytes"
                        return False
                    done = ends_with_done(reads)
                    grace.reschedule(asyncio.get_running_loop().time() + GRACE if done else None)
        except TimeoutError:
            return False
        return True

    def _enforce_timeouts(self) -> None:
        """Give up the exchanges that are over a limit, now and repeatedly. One timer for all is far
        cheaper than one per exchange, which every read would have to move.
        """
        now, limits = self.clock(), self.target.timeouts
        for exchange in tuple(self.in_flight):
            reason = exchange.overdue(now, limits)
            if reason is not None:
                self.cut(exchange, Outcome.TIMEOUT, reason)
            elif (reason := exchange.endless(now, limits)) is not None:
                self.cut(exchange, Outcome.PROTOCOL, reason)
        self._enforcer = asyncio.get_running_loop().call_later(_TIMEOUTS_EVERY, self._enforce_timeouts)

    def received_since(self, when: float) -> bool:
        """Some exchange in flight has received something after `when`."""
        return any((last := exchange.last_read) is not None and last > when for exchange in self.in_flight)

    def cut(self, exchange: Exchange, outcome: Outcome, reason: str) -> None:
        """End an exchange from our side; its task goes on with the failure given."""
        if exchange.cut is None and exchange.task is not None:
            exchange.cut = outcome, reason
            exchange.task.cancel()


async def _until_end(exchange: Exchange, capture: BodyCapture, content: aiohttp.StreamReader) -> None:
    """Wait while the body is captured; the exchange shares its lists, so that the time limits see
    every read.
    """
    exchange.stamps, exchange.reads, exchange.capture = capture.stamps, capture.reads, capture
    error = content.exception()
    if error is not None:
        raise error
    try:
        if capture.running:
            await content.wait_eof()
    finally:
        if capture.running:  # cut off: what came until now counts
            capture.running = False
            try:
                capture.unpack()
            except FramingError as error:
                exchange.cut = Outcome.PROTOCOL, exchange.cleaned(str(error))


def tls_context(target: Target) -> ssl.SSLContext | Literal[True]:
    """The TLS settings of a target. UsageError when a certificate file cannot be used."""
    if not target.base_url.startswith("https") or (
        target.verify_tls and target.ca_file is None and target.cert_file is None
    ):
        return True
    for file in (target.ca_file, target.cert_file, target.key_file):
        if file is not None and not Path(file).is_file():
            raise UsageError(f"the TLS file {file} is not there", _TLS_HINT)
    try:
        context = ssl.create_default_context(cafile=target.ca_file)
        if target.cert_file is not None:
            context.load_cert_chain(target.cert_file, target.key_file)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the TLS files cannot be used: {error}", _TLS_HINT) from error
    if not target.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


# --- the event loop

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, run on a fresh event loop, the fastest at hand.

    Where a loop is running already, as in a notebook, it runs in a thread of its own.
    """
    if asyncio._get_running_loop() is not None:
        with ThreadPoolExecutor(1) as beside:
            return beside.submit(lambda: run(coroutine)).result()
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)
