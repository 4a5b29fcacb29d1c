"""The HTTP client of a trial: one aiohttp session, requests as bytes in, time-stamped bytes out.

Nothing is interpreted here: a read is stamped before anything else happens to it, and kept. What the bytes mean is
`reading.py`'s, later. Every exchange ends in exactly one way: a status with a body, or a named failure.
"""

import asyncio
import errno
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import aiohttp
from yarl import URL

from frontier.client.body_capture import LINE, MAX_BODY, FramingError, Line, Tape, TimedBody, tape_bodies, tracing
from frontier.client.fast_post import Direct, Lane
from frontier.client.target import Proxies, Target, Timeouts
from frontier.errors import UsageError
from frontier.model import Outcome
from frontier.text import NO_SECRETS, Secrets

Clock = Callable[[], float]
MAX_ERROR_BODY = 64 * 2**10
_TLS_WAY_OUT = "check ca, cert and key under  tls:  in the config"
_LAST_TURNS = 100
_RACE = 0.5
"""Seconds after a send in which the death of a kept-alive connection is the two sides' race; later, it is a failure."""
_OURS = {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM}


@dataclass(slots=True, eq=False)
class Exchange:
    """One request and what came back: `reads[i]` was received at `stamps[i]` (the client's clock, seconds).

    `failure` is None when the body came to its proper end. `headers` ignore case.
    """

    sent: float
    stamps: list[float] = field(default_factory=list)
    reads: list[bytes] = field(default_factory=list)
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    failure: tuple[Outcome, str] | None = None
    end: float = 0.0
    resent: bool = False
    task: "asyncio.Task[Any] | None" = None
    tape: Tape | None = None
    cut: tuple[Outcome, str] | None = None
    secrets: Secrets = NO_SECRETS

    def said(self, text: str, longest: int = 300) -> str:
        """What the server says, safe to repeat and to keep."""
        return self.secrets.said(text, longest)

    def overdue(self, now: float, limits: Timeouts) -> str | None:
        """Which limit has passed, in words; None while all is well."""
        if now - self.sent > limits.total:
            return f"total: not finished within {limits.total:g} s"
        heard = self.heard
        if heard is None:
            if now - self.sent > limits.first_byte:
                return f"first_byte: nothing received within {limits.first_byte:g} s"
        elif now - heard > limits.idle:
            return f"idle: the stream was silent for {limits.idle:g} s"
        return None

    @property
    def heard(self) -> float | None:
        """When something last came, on the client's clock; None before the first byte."""
        heard = self.tape.heard or self.stamps if self.tape is not None else self.stamps
        return heard[-1] if heard else None


class Client:
    """A session to one target. Use as an async context manager; `sweep()` must be called now and then (see there)."""

    def __init__(self, target: Target, clock: Clock = time.perf_counter, *, taping: bool = True) -> None:
        self.target = target
        self.clock = clock
        self.flights: set[Exchange] = set()
        self.opened = 0
        self.resent = 0
        self._headers = target.request_headers()
        self._proxies = Proxies.of_environment() if target.trust_env else Proxies()
        self._proxies.options(URL(target.base_url))
        self._secrets = target.secrets | self._proxies.secrets
        self._taping = taping
        self._lines: set[asyncio.Transport] = set()
        self._session: aiohttp.ClientSession | None = None
        self._spare: aiohttp.ClientSession | None = None
        self._direct: dict[URL, Direct] = {}

    async def __aenter__(self) -> Self:
        self._session = self._new_session(force_close=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for direct in self._direct.values():
            direct.close()
        for session in (self._session, self._spare):
            if session is not None:
                await session.close()
        # What is still open waits for a TLS goodbye, which may never come; the loop must not be closed under it.
        for line in tuple(self._lines):
            line.abort()
        for _ in range(_LAST_TURNS):
            await asyncio.sleep(0)
            if not self._lines:
                break

    def _new_session(self, force_close: bool) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0,
            ssl=tls_context(self.target),
            ttl_dns_cache=300,
            force_close=force_close,
            keepalive_timeout=None if force_close else 75.0,
        )
        if self._taping:
            self._taping = tape_bodies(connector, asyncio.get_running_loop(), self.clock, self._lines)
        return aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=None, connect=self.target.timeouts.connect),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trace_configs=None if self._taping else [tracing()],
        )

    async def get(self, path: str, timeout: float = 5.0) -> Exchange:  # noqa: ASYNC109 - a bound on a small question
        """A GET beside the load, with its own total bound in seconds."""
        return await self.get_url(self.target.url(path), timeout)

    async def get_url(self, url: str, timeout: float) -> Exchange:  # noqa: ASYNC109 - as get
        """As get, for a full address."""
        return await self._exchange("GET", url, None, timeout)

    async def call(self, method: str, path: str, timeout: float = 5.0) -> Exchange:  # noqa: ASYNC109 - as get
        """A request of any method, without a body."""
        return await self._exchange(method, self.target.url(path), None, timeout)

    async def post(self, url: URL | str, body: bytes) -> Exchange:
        """One request to its end. Never raises for what the network or the server does; see `Exchange.failure`."""
        return await self._exchange("POST", url if isinstance(url, URL) else URL(url, encoded=True), body, None)

    async def _exchange(self, method: str, url: URL | str, body: bytes | None, limit: float | None) -> Exchange:
        assert self._session is not None, "use the client as a context manager"
        flight = Exchange(self.clock(), task=asyncio.current_task(), secrets=self._secrets)
        self.flights.add(flight)
        timer = None if limit is None else asyncio.get_running_loop().call_later(limit, self._late, flight, limit)
        try:
            direct = self._direct_to(url) if body is not None and isinstance(url, URL) else None
            if direct is not None and body is not None:
                died = await self._attempt_direct(direct, flight, body)
            else:
                died = await self._attempt(self._session, flight, method, url, body)
            if died:
                # Kept alive, and closed by the server just as we wrote: not the server's failing, and not a new send.
                flight.resent, flight.failure = True, None
                self.resent += 1
                self._spare = self._spare or self._new_session(force_close=True)
                await self._attempt(self._spare, flight, method, url, body)
        except asyncio.CancelledError:
            if flight.cut is None:
                raise
            flight.failure = flight.cut
        finally:
            if flight.cut is not None and flight.task is not None:
                flight.task.uncancel()
            if timer is not None:
                timer.cancel()
            self.flights.discard(flight)
            flight.end = self.clock()
        return flight

    def _late(self, flight: Exchange, limit: float) -> None:
        self.cut(flight, Outcome.TIMEOUT, f"no answer within {limit:g} s")

    def _direct_to(self, url: URL) -> Direct | None:
        """The short way to an address; None where only the session knows the way (proxies, credentials in the URL)."""
        if not self._taping or self.target.trust_env or url.user is not None:
            return None
        found = self._direct.get(url)
        if found is None:
            assert self._session is not None
            tls, connect = tls_context(self.target), self.target.timeouts.connect
            found = self._direct[url] = Direct(self._session, url, self._headers, tls, connect)
        return found

    async def _attempt_direct(self, direct: Direct, flight: Exchange, body: bytes) -> bool:
        """As `_attempt`, the short way."""
        lane: Lane | None = None
        reused = whole = False
        try:
            lane = await direct.lane()
            reused = lane.used
            if reused:
                # The clock starts as the bytes go out; only where a connection had to be opened does that count too.
                flight.sent = self.clock()
            else:
                self.opened += 1
            direct.write(lane, body)
            flight.status, flight.headers, content = await direct.answer(lane)
            tape = lane.protocol.tape
            if tape.used:
                await _until_end(flight, tape, content)
                whole = True
            else:
                whole = await self._read(flight, content)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            flight.failure = name_failure(error, flight)
            died = isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
            return died and reused and flight.status is None and self.clock() - flight.sent < _RACE
        finally:
            if lane is not None:
                direct.keep(lane) if whole else lane.close()
        return False

    async def _attempt(
        self, session: aiohttp.ClientSession, flight: Exchange, method: str, url: URL | str, body: bytes | None
    ) -> bool:
        """One try; True when it died on a kept-alive connection before its first byte and may be sent again."""
        line = Line()
        LINE.set(line)
        data = None if body is None else TimedBody(body, line, self.clock)
        try:
            way = self._proxies.options(URL(url))
            async with session.request(method, url, data=data, allow_redirects=False, **way) as response:
                flight.status, flight.headers = response.status, response.headers
                if line.tape is not None and line.tape.used:
                    await _until_end(flight, line.tape, response.content)
                elif not await self._read(flight, response.content):
                    response.close()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            flight.failure = name_failure(error, flight)
            died = isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
            raced = line.written is None or self.clock() - line.written < _RACE
            return died and line.reused and not flight.resent and flight.status is None and raced
        finally:
            self.opened += line.opened
            if line.reused and line.written is not None and not flight.resent:
                # The clock starts as the bytes go out; only where a connection had to be opened does that count too.
                flight.sent = line.written
        return False

    async def _read(self, flight: Exchange, content: aiohttp.StreamReader) -> bool:
        """A body the usual way, stamped as the task wakes; False when it is given up as too long."""
        stamps, reads, clock = flight.stamps, flight.reads, self.clock
        good = flight.status is not None and flight.status < 300
        room = MAX_BODY if good else MAX_ERROR_BODY
        async for read in content.iter_any():
            stamps.append(clock())
            reads.append(read)
            room -= len(read)
            if room < 0:
                if good:
                    flight.failure = Outcome.PROTOCOL, f"the body is over {MAX_BODY} bytes"
                return False
        return True

    def sweep(self, now: float) -> None:
        """Give up the exchanges that are over a limit. One call for all is far cheaper than a timer per read."""
        limits = self.target.timeouts
        for flight in tuple(self.flights):
            late = flight.overdue(now, limits)
            if late is not None:
                self.cut(flight, Outcome.TIMEOUT, late)

    def heard_since(self, when: float) -> bool:
        """Some exchange in flight has received something after `when`."""
        return any((heard := flight.heard) is not None and heard > when for flight in self.flights)

    def cut(self, flight: Exchange, outcome: Outcome, reason: str) -> None:
        """End an exchange from our side; its task goes on with the failure given."""
        if flight.cut is None and flight.task is not None:
            flight.cut = outcome, reason
            flight.task.cancel()


async def _until_end(flight: Exchange, tape: Tape, content: aiohttp.StreamReader) -> None:
    """Wait while the tape fills; the flight shares its lists, so that the sweep sees every read."""
    flight.stamps, flight.reads, flight.tape = tape.stamps, tape.reads, tape
    error = content.exception()
    if error is not None:
        raise error
    try:
        if tape.running:
            await content.wait_eof()
    finally:
        if tape.running:
            tape.running = False
            try:
                tape.unpack()
            except FramingError as error:
                flight.cut = Outcome.PROTOCOL, flight.said(str(error))


def tls_context(target: Target) -> ssl.SSLContext | Literal[True]:
    """The TLS settings of a target. UsageError when a certificate file cannot be used."""
    if not target.base_url.startswith("https") or (
        target.verify_tls and target.ca_file is None and target.cert_file is None
    ):
        return True
    for file in (target.ca_file, target.cert_file, target.key_file):
        if file is not None and not Path(file).is_file():
            raise UsageError(f"the TLS file {file} is not there", _TLS_WAY_OUT)
    try:
        context = ssl.create_default_context(cafile=target.ca_file)
        if target.cert_file is not None:
            context.load_cert_chain(target.cert_file, target.key_file)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the TLS files cannot be used: {error}", _TLS_WAY_OUT) from error
    if not target.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def name_failure(error: BaseException, flight: Exchange) -> tuple[Outcome, str]:
    """Which of the outcomes an exception of the HTTP stack is, and a sentence about it."""
    text = flight.said(str(error)) or type(error).__name__
    if getattr(error, "errno", None) in _OURS or getattr(error.__cause__, "errno", None) in _OURS:
        return Outcome.CLIENT, f"this machine ran out of something: {text}"
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError() | ssl.SSLError():
            return Outcome.TLS, text
        case aiohttp.ClientProxyConnectionError():
            return Outcome.CONNECT, f"the proxy {error.host}:{error.port} cannot be reached"
        case aiohttp.ClientHttpProxyError():
            return Outcome.CONNECT, f"the proxy refuses: HTTP {error.status} {flight.said(error.message, 100)}"
        case aiohttp.ClientConnectorError():
            return Outcome.CONNECT, text
        case TimeoutError():
            return Outcome.TIMEOUT, "connect: no connection within the limit"
        case FramingError():
            return Outcome.PROTOCOL, text
        case aiohttp.ClientPayloadError() if flight.status is not None:
            reset = flight.tape.reset if flight.tape is not None else "ConnectionReset" in text
            return (Outcome.STREAM_ERROR, "reset while streaming") if reset else (
                Outcome.TRUNCATED, "closed before the end of the body"
            )  # fmt: skip
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError() | ConnectionError():
            when = "before the first byte" if flight.status is None else "while streaming"
            return Outcome.STREAM_ERROR, f"the connection was closed {when}"
        case aiohttp.ClientResponseError() | aiohttp.ClientPayloadError():
            return Outcome.PROTOCOL, f"not a proper HTTP answer: {text}"
    return Outcome.CONNECT, text
