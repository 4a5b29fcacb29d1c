"""Answers as they stream in: the state of one, and what the events of every engine have in common.

A deviation seen in the wild is named beside the line that handles it.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import orjson

from frontier.client.secrets import MOST
from frontier.core.model.trials import FINISHED

NO_TOKEN, VISIBLE, REASONING, TOOL = range(4)
"""What an event brought: no token, or a token on that channel."""
NAMED = ("model", "system_fingerprint")
"""Fields of an event that say who answered."""
REASONING_FIELDS = (
    *("reasoning_content", "reasoning", "reasoning_text"),
    *("thinking", "thinking_content", "thought", "thoughts"),
)
"""The names of reasoning in a delta: those of the older and the newer vLLM, and of gateways."""
_PARTS = ("text", "thinking", "reasoning", "content", "parts")
"""What holds the text in a part of a content."""
_WORDS = (
    *("message", "detail", "error", "errors", "msg", "error_msg", "error_message", "status_msg"),
    *("title", "reason", "exception", "body"),
)
"""What holds the words of an error, the best first."""
_DEEPEST = 8
_FAILED = 400
_STATUS = ("status", "code", "statusCode", "status_code", "error_code")
_MOST_NAMED = 8
"""Values of them that are kept of an answer."""
SEEN = 2 * MOST
"""Bytes of an event that is not understood. More than of its words is looked at: they are cut only
when redacted."""

SEVERAL = "a stream holds several answers (choices)"
"""How the error of such a stream begins."""


@dataclass(slots=True)
class StreamState:
    """What the events of a stream have brought so far.

    `usage` is the last one seen (some send a running count in every chunk). `showed`: a text since
    this was last set to False had a visible character. `blank`: an event since then had an empty
    text, as for a token that shows nothing. `texts` are the pieces of the answer,
    without its reasoning, where it is asked for. `ids` counts the token ids of choices that list
    them. `named` are the values of NAMED that it gave. `ended` is the choice that ended last.
    """

    text_bytes: int = 0
    text_chars: int = 0
    finish_reason: str | None = None
    done: bool = False
    error: str | None = None
    malformed: str | None = None
    usage: Mapping[str, Any] | None = None
    showed: bool = False
    blank: bool = False
    texts: list[str] | None = None
    ids: int = 0
    named: set[tuple[str, str]] = field(default_factory=set, compare=False)
    ended: object = None


def message_of(error: object, depth: int = 0) -> str:
    """The human text of an error in any of the shapes seen: a string, or an object with message,
    detail or error.
    """
    if isinstance(error, str):
        return error
    if depth < _DEEPEST and (parts := _parts_of(error)):
        return "; ".join(message_of(part, depth + 1) for part in parts)
    try:
        return orjson.dumps(error, default=str).decode()
    except TypeError:
        return "an error nested too deeply to be read"


def _parts_of(error: object) -> list[object]:
    """The parts of an error object, or of a list of errors, that hold its text."""
    if isinstance(error, dict):
        text = next((error[key] for key in _WORDS if error.get(key)), None)
        return [] if text is None else [_placed(error.get("param"), text)]
    if isinstance(error, list):
        return [
            _placed(item.get("loc"), item.get("msg", item)) if isinstance(item, dict) else item for item in error[:3]
        ]
    return []


def _placed(where: object, text: object) -> object:
    """The text after the field of the request that it is about, where it does not name it."""
    if isinstance(where, list):
        where = ".".join(str(part) for part in where if isinstance(part, str | int) and part != "body")
    named = isinstance(where, str) and isinstance(text, str) and where not in ("", "None") and where not in text
    return f"{where}: {text}" if named else text


def is_error(event: Mapping[str, Any]) -> bool:
    """Whether an object without choices is an error: by its name, in FastAPI's {"detail": ...}, by
    a status of 400 or more, or in bare words.
    """
    return (
        any(value and key.lower().startswith(("error", "exception")) for key, value in event.items())
        or isinstance(event.get("detail") or event.get("message"), str | list)
        or any(isinstance(code := event.get(name), int) and code >= _FAILED for name in _STATUS)
        or event.get("success") is False
        or event.get("status") in ("error", "failed")
    )


def text_of(content: object, depth: int = 0) -> str:
    """The text of a content: a string, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and depth < _DEEPEST:
        return "".join(text_of(part, depth + 1) for part in content)
    if isinstance(content, dict) and depth < _DEEPEST:
        return next((text for name in _PARTS if (text := text_of(content.get(name), depth + 1))), "")
    return ""


def is_reasoning(content: object) -> bool:
    """Whether all parts of a content are of a reasoning, by their type."""
    return isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") in REASONING_FIELDS for part in content
    )


def json_event(state: StreamState, data: bytes) -> dict[str, Any] | None:
    """The JSON object of an event; None where it is not one."""
    try:
        event = orjson.loads(data)
    except orjson.JSONDecodeError:
        if not data.strip():
            return None  # an event without data, as a gateway sends to keep a connection open
        event = None
    if isinstance(event, dict):
        for name in NAMED:
            value = event.get(name)
            if value and isinstance(value, str) and len(state.named) < _MOST_NAMED:
                state.named.add((name, value[:MOST]))
        return event
    state.malformed = f"an event is not a JSON object: {data[:SEEN].decode(errors='replace')}"
    return None


_BLANK = frozenset("\u034f\u115f\u1160\u2800\u3164\uffa0\ufffd")
"""Printable by Unicode, and yet nothing to see: fillers, the empty Braille cell, what stands for a
broken character."""


def shows(text: str) -> bool:
    """The text has a character that can be seen: no space, control, zero-width or filler, no
    combining mark alone.
    """
    return any(
        ch.isprintable() and not ch.isspace() and ch not in _BLANK and unicodedata.category(ch)[0] != "M" for ch in text
    )


def take_text(state: StreamState, text: str, *, said: bool = True) -> None:
    """Take a piece of the answer into account; without `said` it is not a part of the answer's
    text.
    """
    state.showed = state.showed or shows(text)
    if said and state.texts is not None:
        state.texts.append(text)
    chars = len(text)
    state.text_chars += chars
    state.text_bytes += chars if text.isascii() else len(text.encode())


def take_ids(state: StreamState, ids: object) -> bool:
    """Count the token ids of a choice; whether it has any."""
    if isinstance(ids, list):
        state.ids += len(ids)
    return bool(ids)


def take_reason(state: StreamState, reason: object, choice: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Take a finish reason into account; some servers send an empty one with every event. A reason
    that is not known to be good (FINISHED) ends the answer in an error, whatever the server says
    after it. Where a second `choice` ends, the stream holds several answers: its usage counts the
    tokens of all, so no time per token follows from it.
    """
    if reason and state.error is None:
        number = choice.get("index") or 0
        if state.ended is not None and number != state.ended:
            state.malformed = SEVERAL
        state.ended = number
        state.finish_reason = str(reason)
        if state.finish_reason.lower() not in FINISHED:
            state.error = f"the server ended the answer with finish_reason {state.finish_reason!r}"


def native_event(state: StreamState, kind: bytes, data: bytes) -> dict[str, Any] | None:
    """An event of an engine's own route (see `json_event`); None when it is an error, or no JSON
    object.
    """
    event = json_event(state, data)
    if event is not None and (event.get("error") or kind == b"error"):
        state.error = message_of(event.get("error") or event)
        return None
    return event


def take_hidden(state: StreamState, delta: Mapping[str, Any]) -> int:
    """The channel of tokens that are not text of the answer; NO_TOKEN without any. They are
    reasoning and tool-call fragments.
    """
    for name in REASONING_FIELDS:
        if text := text_of(delta.get(name)):
            take_text(state, text, said=False)
            return REASONING
    if delta.get("refusal"):
        take_text(state, str(delta["refusal"]))
        return VISIBLE
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or {}
        arguments = function.get("arguments") or ""
        # A text everywhere but on Ollama's own route, where it is the object itself.
        fragment = (function.get("name") or "") + (arguments if isinstance(arguments, str) else message_of(arguments))
        if fragment:
            take_text(state, fragment, said=False)
            return TOOL
    return NO_TOKEN
