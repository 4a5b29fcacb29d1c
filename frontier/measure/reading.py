"""From time-stamped bytes to a Record: the success predicate, in one place.

A request is OK when the status is 2xx, the content type is the dialect's stream, at least one event brought a token,
nothing in the stream was an error, and the server said it was finished. Pure: no clock, no network.
"""

import re
from typing import Any

import orjson

from frontier.measure.client import Exchange
from frontier.measure.dialects import NOTHING, REASONING, Dialect, Tally, message_of
from frontier.measure.sse import EventParser, EventTooLargeError, LineParser
from frontier.model import Outcome, Record

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_MAX_MESSAGE = 300
_STREAM_TYPES = {"sse": ("text/event-stream",), "ndjson": ("application/x-ndjson", "application/json")}


def clean(text: str) -> str:
    """A server's words, safe to print: one line, no control characters, bounded."""
    text = _CONTROL.sub(" ", text).strip()
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"


class Reading:
    """Takes in an exchange's reads a few at a time, so that a long answer never stops the loop for long."""

    __slots__ = (
        "_at",
        "_dialect",
        "_fold",
        "_parser",
        "events",
        "exchange",
        "first",
        "gaps",
        "last",
        "tally",
        "visible",
    )

    def __init__(self, exchange: Exchange, dialect: Dialect, api: str) -> None:
        self.exchange = exchange
        self._dialect = dialect
        self._fold = dialect.fold[api]
        self._parser = EventParser() if dialect.framing == "sse" else LineParser()
        self._at = 0
        self.tally = Tally()
        self.first: float | None = None
        self.visible: float | None = None
        self.last: float | None = None
        self.events = 0
        self.gaps: list[int] = []

    def take(self, most: int) -> bool:
        """Read up to `most` more reads; False when none is left."""
        stamps, reads = self.exchange.stamps, self.exchange.reads
        parser, fold, tally, gaps = self._parser, self._fold, self.tally, self.gaps
        stop = min(self._at + most, len(reads))
        try:
            for i in range(self._at, stop):
                for kind, data in parser.feed(reads[i]):
                    channel = fold(tally, kind, data)
                    if channel != NOTHING:
                        now = stamps[i]
                        self.events += 1
                        if self.last is None:
                            self.first = now
                        else:
                            gaps.append(round((now - self.last) * 1e6))
                        self.last = now
                        if channel != REASONING and self.visible is None:
                            self.visible = now
        except EventTooLargeError as error:
            tally.malformed = str(error)
            stop = len(reads)
        except (AttributeError, TypeError, KeyError) as error:
            # A server's JSON of another build than its dialect says (a list where an object belongs, and the like).
            tally.malformed = f"an event is not of the expected form: {error}"
            stop = len(reads)
        self._at = stop
        return stop < len(reads)

    @property
    def counts_events(self) -> bool:
        """Without a usage from the server, each event may be counted as one token."""
        return self._dialect.token_per_event

    def verdict(self) -> tuple[Outcome, str | None]:
        """How the request ended, and what was said about it."""
        exchange, tally = self.exchange, self.tally
        status = exchange.status
        if status is not None and not 200 <= status < 300:
            if exchange.failure is not None and exchange.failure[0] in (Outcome.CANCELLED, Outcome.TIMEOUT):
                return exchange.failure
            return Outcome.HTTP_ERROR, error_message(exchange)
        if tally.error is not None:
            return Outcome.STREAM_ERROR, clean(tally.error)
        if exchange.failure is not None and not tally.done:
            return exchange.failure[0], clean(exchange.failure[1])
        if exchange.headers.get("content-encoding", "identity") != "identity":
            return Outcome.PROTOCOL, f"compressed ({exchange.headers['content-encoding']}) though identity was asked"
        kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in _STREAM_TYPES[self._dialect.framing]:
            return Outcome.PROTOCOL, f"the answer is {clean(kind) or 'of no content type'}, not a stream"
        if tally.malformed is not None:
            return Outcome.PROTOCOL, clean(tally.malformed)
        if self.events == 0:
            return Outcome.EMPTY, "the stream ended without a token"
        if not tally.terminal:
            return Outcome.TRUNCATED, "the stream ended without a finish reason or [DONE]"
        return Outcome.OK, None


def error_message(exchange: Exchange) -> str:
    """What a non-2xx answer says, with its status; bounded and printable."""
    body = b"".join(exchange.reads)[:65536]
    try:
        said: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = body.decode(errors="replace")
    if isinstance(said, dict) and "error" in said:
        said = said["error"]
    text = clean(message_of(said)) if said else ""
    wait = exchange.headers.get("retry-after")
    where = exchange.headers.get("location")
    extra = (
        f" (Retry-After: {clean(wait)})" if wait else f" (redirect to {clean(where)}, not followed)" if where else ""
    )
    return f"HTTP {exchange.status}{': ' + text if text else ''}{extra}"


def read_all(exchange: Exchange, dialect: Dialect, api: str) -> Reading:
    """The whole reading at once."""
    reading = Reading(exchange, dialect, api)
    reading.take(len(exchange.reads))
    return reading


def to_record(
    reading: Reading, *, index: int, stream: int, isl: int, osl: int, zero: float, scheduled: float | None = None
) -> Record:
    """The record of one request; `zero` is the trial's start on the client's clock."""
    exchange, tally = reading.exchange, reading.tally
    outcome, error = reading.verdict()
    usage = tally.usage or {}
    completion = _count_of(usage, "completion_tokens")
    if completion is None and reading.counts_events and outcome is Outcome.OK:
        completion = reading.events
    return Record(
        index=index,
        stream=stream,
        sent=exchange.sent - zero,
        outcome=outcome,
        end=exchange.end - zero,
        asked_isl=isl,
        asked_osl=osl,
        first=None if reading.first is None else reading.first - zero,
        visible=None if reading.visible is None else reading.visible - zero,
        last=None if reading.last is None else reading.last - zero,
        prompt_tokens=_count_of(usage, "prompt_tokens"),
        completion_tokens=completion,
        cached_tokens=_count_of(usage.get("prompt_tokens_details"), "cached_tokens"),
        events=reading.events,
        reads=len(exchange.reads),
        text_bytes=tally.text_bytes,
        text_chars=tally.text_chars,
        finish_reason=tally.finish_reason,
        status=exchange.status,
        error=error,
        scheduled=scheduled,
        resent=exchange.resent,
        gaps=tuple(reading.gaps),
    )


def _count_of(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
