"""From time-stamped bytes to a Record: the success predicate, in one place.

A request is OK when the status is 2xx, the content type is the dialect's stream, at least one event brought a token,
nothing in the stream was an error, and the server said it was finished. Pure: no clock, no network.
"""

import html
import itertools
import re
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from frontier.client.adapters import NOTHING, REASONING, Dialect, Tally, message_of
from frontier.client.http import Exchange
from frontier.client.sse import PLAIN, EventParser, EventTooLargeError, LineParser, Stencil, cut_stencil
from frontier.model import MAX_TOKENS, Outcome, Record
from frontier.units import usable_count

_TITLE, _TITLE_END = re.compile("<title>", re.IGNORECASE), re.compile("</title>", re.IGNORECASE)
_MAX_REASON = 60
_LESSONS, _PATIENCE = 16, 8
"""At most so many stencils are cut per answer, a new one after so many events that the last one did not fit."""
_NO_STENCIL: Stencil = (b"", b"")
_STREAM_TYPES = {"sse": ("text/event-stream",), "ndjson": ("application/x-ndjson", "application/json")}


class Reading:
    """Takes in an exchange's reads a few at a time, so that a long answer never stops the loop for long."""

    __slots__ = (
        "_at", "_dialect", "_fold", "_frame", "_lessons", "_misses", "_parser", "_stencil", "_texts", "exchange",
        "first_text", "reasoned", "tally", "times", "visible",
    )  # fmt: skip

    def __init__(self, exchange: Exchange, dialect: Dialect, api: str, *, stencils: bool = True) -> None:
        self.exchange = exchange
        self._dialect = dialect
        self._fold = dialect.fold[api]
        self._parser = EventParser() if dialect.framing == "sse" else LineParser()
        self._frame = (b"data: ", b"\n\n") if dialect.framing == "sse" else (b"", b"\n")
        self._stencil = _NO_STENCIL
        self._lessons, self._misses = (_LESSONS, _PATIENCE - 2) if stencils else (0, 0)
        self._texts: list[bytes] = []
        self._at = 0
        self.tally = Tally()
        self.times: list[float] = []
        self.first_text: float | None = None
        self.visible: float | None = None
        self.reasoned = False

    @property
    def events(self) -> int:
        """Events that brought a token."""
        return len(self.times)

    def take(self, most: int) -> bool:
        """Read up to `most` more reads; False when none is left."""
        stop = min(self._at + most, len(self.exchange.reads))
        try:
            self._take(stop)
        except EventTooLargeError as error:
            self.tally.malformed = str(error)
            stop = len(self.exchange.reads)
        except (AttributeError, TypeError, KeyError) as error:
            # A server's JSON of another build than its dialect says (a list where an object belongs, and the like).
            self.tally.malformed = f"an event is not of the expected form: {error}"
            stop = len(self.exchange.reads)
        self._at = stop
        if stop < len(self.exchange.reads):
            return True
        text = b"".join(self._texts)
        self._texts.clear()
        self.tally.text_bytes += len(text)
        self.tally.text_chars += len(text.decode(errors="replace"))
        return False

    def _take(self, stop: int) -> None:
        stamps, reads, times, texts, plain = self.exchange.stamps, self.exchange.reads, self.times, self._texts, PLAIN
        if self.tally.done:
            return  # what follows [DONE] is no part of the answer
        before, after = self._stencil
        skip, drop, usable = len(before), len(after), self._stencil is not _NO_STENCIL and self._parser.idle
        for i in range(self._at, stop):
            read = reads[i]
            if usable and read.startswith(before) and read.endswith(after) and plain(read, skip, len(read) - drop):
                times.append(stamps[i])
                texts.append(read[skip:-drop])
                continue
            self._parse(read, stamps[i])
            if self.tally.done:
                return
            before, after = self._stencil
            skip, drop, usable = len(before), len(after), self._stencil is not _NO_STENCIL and self._parser.idle
        if stop == len(reads) and stop and self._dialect.framing == "ndjson" and self.exchange.failure is None:
            self._parse(b"\n", stamps[-1])  # the last line needs no newline

    def _parse(self, read: bytes, stamp: float) -> None:
        """The proper way. From a read that was one token event a stencil is cut, now and then."""
        fold, tally = self._fold, self.tally
        found = self._parser.feed(read)
        channel = NOTHING
        for kind, data in found:
            if tally.done:
                break
            tally.showed = False
            channel = fold(tally, kind, data)
            if channel != NOTHING:
                self.times.append(stamp)
                self.reasoned = self.reasoned or channel == REASONING
                if tally.showed and self.first_text is None:
                    self.first_text = stamp
                if tally.showed and self.visible is None and channel != REASONING:
                    self.visible = stamp
        self._misses += 1
        # A stencil does not look at the text, so none is cut while the channel's first visible character is awaited.
        awaited = self.first_text if channel == REASONING else self.visible
        learns = channel != NOTHING and len(found) == 1 and awaited is not None
        if learns and self._lessons and self._misses > _PATIENCE and self._parser.idle:
            self._lessons -= 1
            self._misses = 0
            self._stencil = cut_stencil(read, *self._frame, self._fold) or _NO_STENCIL

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
            return Outcome.STREAM_ERROR, exchange.said(tally.error)
        if exchange.headers.get("content-encoding", "identity") != "identity":
            coding = exchange.said(exchange.headers["content-encoding"], 40)
            return Outcome.PROTOCOL, f"compressed ({coding}) though identity was asked"
        if tally.malformed is not None:
            return Outcome.PROTOCOL, exchange.said(tally.malformed)
        if exchange.failure is not None and not tally.done:
            return exchange.failure
        kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in _STREAM_TYPES[self._dialect.framing]:
            return Outcome.PROTOCOL, f"the answer is {exchange.said(kind, 80) or 'of no content type'}, not a stream"
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
        if said.lstrip().startswith("<"):
            said = _title(said) or said  # a proxy's page: its title says all
    if isinstance(said, dict) and "error" in said:
        said = said["error"]
    text = exchange.said(message_of(said)).removeprefix(f"{exchange.status} ") if said else ""
    wait = exchange.headers.get("retry-after")
    where = exchange.headers.get("location")
    extra = (
        f" (Retry-After: {exchange.said(wait)})"
        if wait
        else f" (redirect to {exchange.said(where)}, not followed)"
        if where
        else ""
    )
    return f"HTTP {exchange.status}{': ' + text if text else ''}{extra}"


def _title(page: str) -> str | None:
    """The title of an HTML page. One pattern for all of it would take a time that grows with the page's square."""
    start = _TITLE.search(page)
    end = _TITLE_END.search(page, start.end()) if start else None
    return html.unescape(page[start.end() : end.start()]) if start and end else None


def retry_after(exchange: Exchange) -> float | None:
    """How many seconds a refusing server asks to be left alone (RFC 9110, 10.2.3: seconds or a date); None if it
    does not say so readably.
    """
    said = exchange.headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", said):
        return float(said)
    try:
        at, now = parsedate_to_datetime(said), parsedate_to_datetime(exchange.headers.get("date", ""))
        return max(0.0, (at - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def read_all(exchange: Exchange, dialect: Dialect, api: str) -> Reading:
    """The whole reading at once."""
    reading = Reading(exchange, dialect, api)
    reading.take(len(exchange.reads))
    return reading


def to_record(
    reading: Reading, *, index: int, stream: int, isl: int, osl: int, zero: float, scheduled: float | None = None
) -> Record:
    """The record of one request; `zero` is the trial's start on the client's clock."""
    exchange, tally, times = reading.exchange, reading.tally, reading.times
    outcome, error = reading.verdict()
    usage = tally.usage or {}
    completion = _count_of(usage, "completion_tokens")
    hidden = _count_of(usage.get("completion_tokens_details"), "reasoning_tokens")
    if completion is not None and hidden and not reading.reasoned:
        # Counted and never streamed: nothing can be said of when they came, so they are not among the tokens timed.
        completion = max(0, completion - hidden)
    if completion == 0 and reading.events:
        completion = None  # tokens came, and the usage knows of none: LiteLLM's way of not knowing
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
        first=times[0] - zero if times else None,
        visible=None if reading.visible is None else reading.visible - zero,
        last=times[-1] - zero if times else None,
        first_text=_first_text(reading, zero),
        prompt_tokens=_count_of(usage, "prompt_tokens") or None,
        completion_tokens=completion,
        cached_tokens=_count_of(usage.get("prompt_tokens_details"), "cached_tokens"),
        events=reading.events,
        reads=len(exchange.reads),
        text_bytes=tally.text_bytes,
        text_chars=tally.text_chars,
        finish_reason=None if tally.finish_reason is None else exchange.said(tally.finish_reason, _MAX_REASON),
        status=exchange.status,
        error=error,
        scheduled=scheduled,
        resent=exchange.resent,
        gaps=tuple([int((b - a) * 1e6 + 0.5) for a, b in itertools.pairwise(times)]),
    )


def _first_text(reading: Reading, zero: float) -> float | None:
    """As in Record: None where the first token event itself showed something, or none came."""
    if not reading.times or reading.first_text == reading.times[0]:
        return None
    return (reading.times[-1] if reading.first_text is None else reading.first_text) - zero


def _count_of(usage: Any, name: str) -> int | None:
    """A count of tokens; None where there is none, or none that can be one. Some servers write 16.0 for 16."""
    value = usage.get(name) if isinstance(usage, dict) else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    count = usable_count(value)
    return None if count is None or count > MAX_TOKENS else count
