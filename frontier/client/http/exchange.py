"""One request and its answer: raw bytes with their times of arrival, or a named failure.

Nothing is interpreted here; `parse.py` reads the bytes later.
"""

import asyncio
import errno
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from frontier.client.ask.target import Timeouts
from frontier.client.engines.request import NO_REQUEST, PreparedRequest
from frontier.client.http.capture import BodyCapture, FramingError
from frontier.client.secrets import NO_SECRETS, Secrets
from frontier.core.model.trials import Outcome

_ENDLESS = 10.0
"""Seconds after which an answer with more than twice the tokens asked for is taken for endless."""
_EVENTS_BESIDE, _BYTES_BESIDE, _TOKEN_BYTES = 64, 2**20, 2**12
"""Events of an answer that bring no token, bytes of them, and those of one that brings one."""
_OWN_LIMITS = {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM}


@dataclass(slots=True, eq=False)
class Exchange:
    """One request and what came back: `reads[i]` was received at `stamps[i]` (the client's clock,
    seconds).

    `failure` is None when the body came to its proper end, or to the [DONE] of its stream.
    `headers` ignore case. `connect`: seconds until a connection was open, from `sent` on; 0 on one
    that was. `reused`: it went out on a connection that had carried a request before; `resent`:
    that one died, and it went out once more, on a fresh one. `connection` is the number of the
    connection in the trial, None where it is not known; `held`: the next turn of a session is to
    find it again. `limit`: seconds it may take in all, beside the target's own limits. `asked`: the
    tokens it asks for, where an answer that does not end is to be cut. `cut`: why this client gave
    it up.

    The last fields say which `request` of a trial it is, the stream that sent it, and when it was
    due on the client's clock (open loop only). `parser` is its AnswerParser, where it was parsed
    already.
    """

    sent: float
    stamps: list[float] = field(default_factory=list)
    reads: list[bytes] = field(default_factory=list)
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    failure: tuple[Outcome, str] | None = None
    end: float = 0.0
    connect: float = 0.0
    reused: bool = False
    resent: bool = False
    connection: int | None = None
    held: bool = False
    limit: float | None = None
    asked: int | None = None
    task: "asyncio.Task[Any] | None" = None
    capture: BodyCapture | None = None
    cut: tuple[Outcome, str] | None = None
    secrets: Secrets = NO_SECRETS
    request: PreparedRequest = NO_REQUEST
    stream: int = 0
    scheduled: float | None = None
    parser: Any = None

    def cleaned(self, text: str, longest: int = 300) -> str:
        """The server's words without secrets and control characters, cut."""
        return self.secrets.said(text, longest)

    def overdue(self, now: float, limits: Timeouts) -> str | None:
        """Which limit has passed, in words; None while all is well."""
        if self.limit is not None and now - self.sent > self.limit:
            return f"no answer within {self.limit:g} s"
        if now - self.sent > limits.total:
            return f"total: not finished within {limits.total:g} s"
        last_read = self.last_read
        if last_read is None:
            if now - self.sent > limits.first_byte:
                return f"first_byte: nothing received within {limits.first_byte:g} s"
        elif now - last_read > limits.idle:
            return f"idle: the stream was silent for {limits.idle:g} s"
        return None

    def endless(self, now: float, limits: Timeouts) -> str | None:
        """Why its answer is taken for one without end, in words; None while all is well."""
        if self.asked is None or now - self.sent < _ENDLESS:
            return None
        reads = self.reads if self.capture is None else (*self.capture.reads, *self.capture.raw_reads)
        events = sum(read.count(b"data:") or read.count(b"}\n") for read in reads)
        long = sum(map(len, reads)) > _BYTES_BESIDE + _TOKEN_BYTES * self.asked
        if long or events > 2 * self.asked + _EVENTS_BESIDE:
            return f"the answer goes on after {_ENDLESS:g} s and twice the {self.asked} tokens of its max_tokens"
        if reads and not events and now - self.sent > limits.first_byte:
            return f"first_byte: no event within {limits.first_byte:g} s, only what keeps the connection open"
        return None

    @property
    def last_read(self) -> float | None:
        """When something last came, on the client's clock; None before the first byte."""
        stamps = self.capture.raw_stamps or self.stamps if self.capture is not None else self.stamps
        return stamps[-1] if stamps else None


def name_failure(error: BaseException, exchange: Exchange) -> tuple[Outcome, str]:
    """Which of the outcomes an exception of the HTTP stack is, and a sentence about it.

    The order matters: aiohttp's TLS and proxy errors are connector errors too, and its connection
    errors are OSErrors. A local limit (no file, port or memory left) may come as any of them and is
    not the server's failing.
    """
    text = exchange.cleaned(str(error)) or type(error).__name__
    if getattr(error, "errno", None) in _OWN_LIMITS or getattr(error.__cause__, "errno", None) in _OWN_LIMITS:
        return Outcome.CLIENT, f"this machine ran out of something: {text}"
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError() | ssl.SSLError():
            return Outcome.TLS, text
        case aiohttp.ClientProxyConnectionError():
            return Outcome.CONNECT, f"the proxy {error.host}:{error.port} cannot be reached"
        case aiohttp.ClientHttpProxyError():
            return Outcome.CONNECT, f"the proxy refuses: HTTP {error.status} {exchange.cleaned(error.message, 100)}"
        case aiohttp.ClientConnectorError():
            return Outcome.CONNECT, text
        case TimeoutError():
            return Outcome.TIMEOUT, "connect: no connection within the limit"
        case FramingError():
            return Outcome.PROTOCOL, text
        case aiohttp.ClientPayloadError() if exchange.status is not None:
            reset = exchange.capture.reset if exchange.capture is not None else "ConnectionReset" in text
            return (
                (Outcome.STREAM_ERROR, "reset while streaming")
                if reset
                else (Outcome.TRUNCATED, "closed before the end of the body")
            )
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError() | ConnectionError():
            when = "before the first byte" if exchange.status is None else "while streaming"
            return Outcome.STREAM_ERROR, f"the connection was closed {when}"
        case aiohttp.ClientResponseError() | aiohttp.ClientPayloadError():
            return Outcome.PROTOCOL, f"not a proper HTTP answer: {text}"
    return Outcome.CONNECT, text
