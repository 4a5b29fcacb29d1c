"""Parsing of an answer into a Record: the events in time-stamped bytes, and the rule of success.

A request is OK when the status is 2xx, the body is the dialect's stream, at least one event brought
a token, no event was an error, and the server said that it was finished. Pure: no clock, no
network.
"""

import bisect
import html
import itertools
import re
from collections.abc import Mapping
from typing import Any

import orjson

from frontier.client.engines.base import Engine
from frontier.client.engines.stream import NO_TOKEN, REASONING, StreamState, is_error, message_of
from frontier.client.http.exchange import Exchange
from frontier.client.http.sse import PLAIN, EventParser, EventTemplate, EventTooLargeError, LineParser, event_template
from frontier.core.flags.stream_flags import TOKENS_PER_CHUNK
from frontier.core.model.shapes import MAX_TOKENS
from frontier.core.model.trials import Outcome, Record
from frontier.core.model.units import usable_count

_TITLE = re.compile("<title>(.{0,300}?)</title>", re.IGNORECASE | re.DOTALL)
COMPRESSED = "compressed"
"""How the error of a compressed answer begins."""
_MAX_REASON = 60
_MOST_TEMPLATES, _PATIENCE = 16, 8
"""The most templates that are made per answer, and the events that do not fit the last one before a
new one is made."""
_KEPT_OPEN = 64
"""The most reads that are looked at for a token: an answer with more of them streams."""
_TOKEN_TEXT = 3.0
"""Characters; a token of an answer has more: English text has four, as a rule of thumb."""
_OTHER_NAMES = {"prompt": "input", "completion": "output"}
_NO_TEMPLATE: EventTemplate = (b"", b"")
_STREAM_TYPES = {"sse": ("text/event-stream",), "ndjson": ("application/x-ndjson", "application/json")}


class AnswerParser:
    """Takes in an exchange's reads a few at a time, so that a long answer never stops the loop for
    long.

    `times`: when each event that brought a token came; `blanks`: when each with an empty text did.
    `first_chars`, `first_ids`, `first_usage`:
    characters, token ids and usage so far, with the first of them and those in one read with it.
    `first_text`: when the first visible character came; `visible`: when the first came outside the
    reasoning.
    """

    __slots__ = (
        "_frame",
        "_misses",
        "_parse_event",
        "_parser",
        "_position",
        "_template",
        "_templates_left",
        "_texts",
        "blanks",
        "engine",
        "exchange",
        "first_chars",
        "first_ids",
        "first_text",
        "first_usage",
        "reasoned",
        "state",
        "times",
        "visible",
    )

    def __init__(self, exchange: Exchange, engine: Engine, api: str) -> None:
        self.exchange = exchange
        self.engine = engine
        self._parse_event = engine.parse_event[api]
        self._parser = EventParser() if engine.framing == "sse" else LineParser()
        self._frame = (b"data: ", b"\n\n") if engine.framing == "sse" else (b"", b"\n")
        self._template = _NO_TEMPLATE
        keeps_text = exchange.request.goes_on
        # A template does not look at the text.
        self._templates_left, self._misses = 0 if keeps_text else _MOST_TEMPLATES, _PATIENCE - 2
        self._texts: list[bytes] = []
        self._position = 0
        self.state = StreamState(texts=[] if keeps_text else None)
        self.times: list[float] = []
        self.blanks: list[float] = []
        self.first_chars = self.first_ids = 0
        self.first_usage: Mapping[str, Any] | None = None
        self.first_text: float | None = None
        self.visible: float | None = None
        self.reasoned = False

    @property
    def events(self) -> int:
        """Events that brought a token."""
        return len(self.times)

    def parse(self, most: int) -> bool:
        """Parse up to `most` more reads; False when none is left."""
        stop = min(self._position + most, len(self.exchange.reads))
        try:
            self._parse_reads(stop)
        except EventTooLargeError as error:
            self.state.malformed = str(error)
            stop = len(self.exchange.reads)
        except (AttributeError, TypeError, KeyError) as error:
            # A server's JSON of another build than its dialect says (a list where an object
            # belongs, and the like).
            self.state.malformed = f"an event is not of the expected form: {error}"
            stop = len(self.exchange.reads)
        self._position = stop
        if stop < len(self.exchange.reads):
            return True
        text = b"".join(self._texts)
        self._texts.clear()
        self.state.text_bytes += len(text)
        self.state.text_chars += len(text.decode(errors="replace"))
        return False

    def _parse_reads(self, stop: int) -> None:
        stamps, reads, times, texts, plain = self.exchange.stamps, self.exchange.reads, self.times, self._texts, PLAIN
        if self.state.done:
            return  # what follows [DONE] is no part of the answer
        before, after = self._template
        skip, drop, usable = len(before), len(after), self._template is not _NO_TEMPLATE and self._parser.idle
        for i in range(self._position, stop):
            read = reads[i]
            if usable and read.startswith(before) and read.endswith(after) and plain(read, skip, len(read) - drop):
                times.append(stamps[i])
                texts.append(read[skip:-drop])
                continue
            self._parse_read(read, stamps[i])
            if self.state.done:
                return
            before, after = self._template
            skip, drop, usable = len(before), len(after), self._template is not _NO_TEMPLATE and self._parser.idle
        if stop == len(reads) and stop and self.engine.framing == "ndjson" and self.exchange.failure is None:
            self._parse_read(b"\n", stamps[-1])  # the last line needs no newline

    def _parse_read(self, read: bytes, stamp: float) -> None:
        """Parse one read in full. Now and then a template is made from a read that was one token
        event.
        """
        state = self.state
        events = self._parser.feed(read)
        channel = NO_TOKEN
        for kind, data in events:
            if state.done:
                break
            state.showed = state.blank = False
            channel = self._parse_event(state, kind, data)
            if channel != NO_TOKEN:
                self._take_token(channel, stamp)
            elif state.blank:
                self.blanks.append(stamp)
        self._misses += 1
        # A template does not look at the text: none is made while the channel's first visible
        # character is awaited.
        awaited = self.first_text if channel == REASONING else self.visible
        suited = channel != NO_TOKEN and len(events) == 1 and awaited is not None
        if suited and self._templates_left and self._misses > _PATIENCE and self._parser.idle:
            self._templates_left -= 1
            self._misses = 0
            self._template = event_template(read, *self._frame, self._parse_event) or _NO_TEMPLATE

    def _take_token(self, channel: int, stamp: float) -> None:
        state = self.state
        self.times.append(stamp)
        if stamp == self.times[0]:
            self.first_chars, self.first_ids, self.first_usage = state.text_chars, state.ids, state.usage
        self.reasoned = self.reasoned or channel == REASONING
        if state.showed and self.first_text is None:
            self.first_text = stamp
        if state.showed and self.visible is None and channel != REASONING:
            self.visible = stamp

    def verdict(self) -> tuple[Outcome, str | None]:
        """How the request ended, and a sentence about a failure."""
        exchange, state = self.exchange, self.state
        status = exchange.status
        if status is not None and not 200 <= status < 300:
            if exchange.failure is not None and exchange.failure[0] in (Outcome.CANCELLED, Outcome.TIMEOUT):
                return exchange.failure
            return Outcome.HTTP_ERROR, error_message(exchange)
        if state.error is not None:
            return Outcome.STREAM_ERROR, exchange.cleaned(state.error)
        if exchange.headers.get("content-encoding", "identity") != "identity":
            coding = exchange.cleaned(exchange.headers["content-encoding"], 40)
            return Outcome.PROTOCOL, f"{COMPRESSED} ({coding}) though identity was asked"
        if state.malformed is not None:
            return Outcome.PROTOCOL, exchange.cleaned(state.malformed)
        if exchange.failure is not None and not state.done:
            return exchange.failure
        kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
        # A proxy may call the stream what it likes: events are what makes one.
        streamed = self.events or state.done or state.usage is not None
        if not streamed and kind not in _STREAM_TYPES[self.engine.framing]:
            return Outcome.PROTOCOL, _no_stream(exchange, kind)
        if self.events == 0:
            return Outcome.EMPTY, "the stream ended without a token"
        # A gateway ends the stream of a server that failed with [DONE] too, without counts.
        counted = state.usage is not None or self.engine.token_per_event
        if state.finish_reason is None and not (state.done and counted):
            lacks = "a finish reason or token counts before [DONE]" if state.done else "a finish reason or [DONE]"
            return Outcome.TRUNCATED, f"the stream ended without {lacks}"
        return Outcome.OK, None


def _no_stream(exchange: Exchange, kind: str) -> str:
    """What came in place of a stream, with the error in it."""
    what = f"the answer is {exchange.cleaned(kind, 80) or 'of no content type'}, not a stream"
    content = error_body(exchange)
    failed = isinstance(content, dict) and is_error(content)
    return f"{what}: {exchange.cleaned(message_of(content))}" if failed else what


def error_body(exchange: Exchange) -> Any:
    """The body of an answer that is not a stream: its JSON, or its text."""
    body = b"".join(exchange.reads)[:65536]
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode(errors="replace")


def is_page(exchange: Exchange) -> bool:
    """Whether an answer is a web page."""
    return b"".join(exchange.reads).lstrip().startswith(b"<")


def error_message(exchange: Exchange) -> str:
    """The message of a non-2xx answer with its status, bounded and printable."""
    content = error_body(exchange)
    if isinstance(content, str) and is_page(exchange):
        title = _TITLE.search(content)  # of a proxy's page: it says all
        content = html.unescape(title[1]) if title else content
    if isinstance(content, dict) and "error" in content:
        content = content["error"]
    text = exchange.cleaned(message_of(content)).removeprefix(f"{exchange.status} ") if content else ""
    message = f"HTTP {exchange.status}{': ' + text if text else ''}"
    if wait := exchange.headers.get("retry-after"):
        return f"{message} (Retry-After: {exchange.cleaned(wait)})"
    if location := exchange.headers.get("location"):
        return f"{message} (redirect to {exchange.cleaned(location)}, not followed)"
    return message


def parse_all(exchange: Exchange, engine: Engine, api: str) -> AnswerParser:
    """The parser of an answer, with all of it parsed."""
    parser = AnswerParser(exchange, engine, api)
    parser.parse(len(exchange.reads))
    return parser


def no_token_since(exchange: Exchange, engine: Engine, api: str, at: float) -> bool:
    """Whether an answer under way brought no token since a time: nothing at all, or only what keeps
    its connection open, as comments and empty events do. After many reads that is not looked at.
    """
    capture = exchange.capture
    if exchange.sent > at or capture is None:
        return False
    sides = (capture.stamps, capture.reads), (capture.raw_stamps, capture.raw_reads)
    recent = [read for stamps, reads in sides for read in reads[bisect.bisect_right(stamps, at) :][: _KEPT_OPEN + 1]]
    if len(recent) > _KEPT_OPEN:
        return False
    parser, state = EventParser() if engine.framing == "sse" else LineParser(), StreamState()
    try:
        events = [event for read in recent for event in parser.feed(read)]
        return all(engine.parse_event[api](state, *event) == NO_TOKEN for event in events)
    except (AttributeError, TypeError, KeyError, EventTooLargeError):
        return False  # what it is shows when the answer is parsed


def to_record(parser: AnswerParser, zero: float) -> Record:
    """The record of one request; `zero` is the trial's start on the client's clock."""
    exchange, state, times = parser.exchange, parser.state, parser.times
    request, turn = exchange.request, exchange.request.prompt.turn
    outcome, error = parser.verdict()
    usage = _by_our_names(state.usage or {})
    completion, most = output_tokens(usage, parser.events, reasoned=parser.reasoned)
    if completion is not None and most is None:
        completion, most = _contradicted(parser, usage, completion)
    if completion is None and parser.engine.token_per_event and outcome is Outcome.OK:
        completion = parser.events
    return Record(
        index=request.index,
        stream=exchange.stream,
        sent=exchange.sent - zero,
        outcome=outcome,
        end=exchange.end - zero,
        asked_isl=request.prompt.isl,
        asked_osl=request.osl,
        first=times[0] - zero if times else None,
        visible=None if parser.visible is None else parser.visible - zero,
        last=times[-1] - zero if times else None,
        first_text=_first_text(parser, zero),
        prompt_tokens=_count_of(usage, "prompt_tokens") or None,
        completion_tokens=completion,
        cached_tokens=_count_of(usage.get("prompt_tokens_details"), "cached_tokens"),
        events=parser.events,
        reads=len(exchange.reads),
        text_bytes=state.text_bytes,
        text_chars=state.text_chars,
        finish_reason=None if state.finish_reason is None else exchange.cleaned(state.finish_reason, _MAX_REASON),
        status=exchange.status,
        error=error,
        scheduled=None if exchange.scheduled is None else exchange.scheduled - zero,
        resent=exchange.resent,
        gaps=tuple([int((b - a) * 1e6 + 0.5) for a, b in itertools.pairwise(times)]),
        session=None if turn is None else request.session,
        turn=None if turn is None else turn.number,
        reusable=None if turn is None else turn.reusable,
        class_index=None if turn is None else turn.class_index,
        connect=exchange.connect,
        connection=exchange.connection,
        first_chars=parser.first_chars if times else None,
        first_tokens=_first_tokens(parser, usage, completion) if times else None,
        most_tokens=most,
    )


def _by_our_names(usage: Mapping[str, Any]) -> Mapping[str, Any]:
    """The usage by the names of chat completions, where a gateway gives those of another API."""
    if "completion_tokens" in usage or "output_tokens" not in usage:
        return usage
    named = {f"{ours}_tokens": usage.get(f"{theirs}_tokens") for ours, theirs in _OTHER_NAMES.items()}
    return {**usage, **named}


def output_tokens(usage: Mapping[str, Any], chunks: int, *, reasoned: bool) -> tuple[int | None, int | None]:
    """The tokens that were streamed, and the higher count where the usage can be read in two ways.

    Reasoning tokens that were counted and not streamed came at no known time, so they are not among
    them. The total shows whether `completion_tokens` includes the reasoning; a reading with fewer
    tokens than chunks is ruled out.
    """
    completion = _count_of(usage, "completion_tokens")
    total, prompt = _count_of(usage, "total_tokens"), _count_of(usage, "prompt_tokens")
    output = None if total is None or prompt is None else total - prompt
    if completion == total and output and chunks - 1 <= TOKENS_PER_CHUNK * (output - 1):
        return output, None  # the prompt is counted in the completion
    reasoning = _count_of(usage.get("completion_tokens_details"), "reasoning_tokens")
    if reasoning is None and output != completion:
        reasoning = _count_of(usage, "reasoning_tokens")  # as SGLang names it, which counts it within
    if completion is None or not reasoning:
        # 0 where tokens came, and nothing beside it, is LiteLLM's way of not knowing.
        return (None if completion == 0 and chunks else completion), None
    within = (completion, completion + reasoning) if reasoned else (completion - reasoning, completion)
    beside = (completion + reasoning,) if reasoned else (completion, completion + reasoning)
    told_beside = reasoning > completion or output == completion + reasoning
    readings = beside if told_beside else within
    possible = [count for count in readings if chunks - 1 <= TOKENS_PER_CHUNK * max(count - 1, 0)]
    if not possible:
        return readings[0], None
    two = len(possible) > 1 and not told_beside and output != completion
    return possible[0], possible[1] if two else None


def _contradicted(parser: AnswerParser, usage: Mapping[str, Any], counted: int) -> tuple[int, int | None]:
    """The tokens that were streamed, and the higher count where another figure contradicts the
    usage.

    An answer has less text than so many tokens, as where a gateway took its reasoning out. Or it
    ended at its limit with as many tokens counted as chunks, and fewer than the limit.
    """
    chunks, limit = parser.events, parser.exchange.request.prompt.osl
    unforced = not parser.engine.length_fields(1)
    told = isinstance(usage.get("completion_tokens_details"), dict) or parser.blanks or parser.first_ids
    if unforced and not told and 1 < chunks < counted - 1 and parser.state.text_chars < _TOKEN_TEXT * counted:
        return chunks, counted
    at_limit = parser.state.finish_reason == "length" and counted == chunks
    if at_limit and limit - counted > (TOKENS_PER_CHUNK - 1) * limit + 1:
        return counted, limit
    return counted, None


def _first_tokens(parser: AnswerParser, usage: Mapping[str, Any], completion: int | None) -> int | None:
    """The tokens that were not waited for between the first chunk and the last; None where that is
    not known, or `completion` counts otherwise.

    Token ids in the first chunk, or a running usage, tell them. Empty texts before the first and
    after the last are tokens where the server counted them.
    """
    if parser.first_ids:
        return parser.first_ids
    unseen = sum(not parser.times[0] <= at <= parser.times[-1] for at in parser.blanks)
    if unseen and completion is not None and completion - parser.events >= unseen:
        return 1 + unseen
    running = parser.first_usage
    if running is None or running is usage or completion != _count_of(usage, "completion_tokens"):
        return None
    return _count_of(running, "completion_tokens")


def _first_text(parser: AnswerParser, zero: float) -> float | None:
    """As in Record: None where the first token event itself showed something, or none came."""
    if not parser.times or parser.first_text == parser.times[0]:
        return None
    return (parser.times[-1] if parser.first_text is None else parser.first_text) - zero


def _count_of(usage: Any, name: str) -> int | None:
    """A count of tokens; None where there is none, or where it cannot be one. Some servers write
    16.0 for 16.
    """
    value = usage.get(name) if isinstance(usage, dict) else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    count = usable_count(value)
    return None if count is None or count > MAX_TOKENS else count
