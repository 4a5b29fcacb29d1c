"""What each engine is asked and how its events are read: one frozen record per engine.

Extension fields (ignore_eos and the like) are sent only where the engine lists them: some servers reject what they do
not know. Formats are from the engines' own sources and API references; a deviation seen in the wild is named beside
the line that handles it.
"""

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from frontier.model import FINISHED
from frontier.text import MOST

Content = str | list[int]
NOTHING, VISIBLE, REASONING, TOOL = range(4)
"""What an event brought: no token, or a token on that channel."""
_SEEN = 2 * MOST
"""Bytes of an event that is not understood. More than of its words is looked at: they are cut only when redacted."""


@dataclass(slots=True)
class Tally:
    """What a stream has said so far. `usage` is the last one seen (some send a running count in every chunk).

    `showed`: a text since this was last set to False had a visible character.
    """

    text_bytes: int = 0
    text_chars: int = 0
    finish_reason: str | None = None
    done: bool = False
    error: str | None = None
    malformed: str | None = None
    usage: Mapping[str, Any] | None = None
    showed: bool = False

    @property
    def terminal(self) -> bool:
        """The server said it was finished."""
        return self.done or self.finish_reason is not None


@dataclass(frozen=True, slots=True)
class Ask:
    """One request in the project's words, before a dialect puts it into an engine's. `shares`: it has text in common
    with others, which a prefix cache may keep.
    """

    model: str
    content: Content
    osl: int
    force_length: bool = True
    salt: str | None = None
    shares: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


Fold = Callable[[Tally, bytes, bytes], int]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One engine. `paths` maps an api to its route; `length_fields` are sent to force the output length, {} meaning
    that it cannot be forced; `token_ids` says that a completions prompt may be a list of token ids.
    `token_per_event` allows counting events where the server reports no usage.

    `salted`: requests take a cache_salt; those with different salts share no prefix cache. `uncached` is sent with
    requests that share nothing. `reset` is the route that empties the prefix cache, `metrics` the one of its Prometheus
    text.
    """

    name: str
    payload: Callable[["Dialect", str, Ask], dict[str, Any]]
    fold: Mapping[str, Fold]
    paths: Mapping[str, str]
    framing: Literal["sse", "ndjson"] = "sse"
    length_fields: Callable[[int], dict[str, Any]] = lambda _: {}
    token_ids: bool = False
    token_per_event: bool = False
    salted: bool = False
    uncached: Mapping[str, Any] = field(default_factory=dict)
    reset: str | None = None
    metrics: str = "/metrics"

    def body(self, api: str, ask: Ask) -> bytes:
        """The request body."""
        salt = {"cache_salt": ask.salt} if self.salted and ask.salt is not None else {}
        uncached = {} if ask.shares else dict(self.uncached)
        return orjson.dumps(self.payload(self, api, ask) | salt | uncached | dict(ask.extra))


def message_of(error: object, depth: int = 0) -> str:
    """The human text of an error in any of the shapes seen: a string, or an object with message, detail or error."""
    if isinstance(error, str):
        return error
    if depth < 8:
        if isinstance(error, dict):
            for key in ("message", "detail", "error"):
                if error.get(key):
                    return message_of(error[key], depth + 1)
        if isinstance(error, list) and error:
            items = [item.get("msg", item) if isinstance(item, dict) else item for item in error[:3]]
            return "; ".join(message_of(item, depth + 1) for item in items)
    try:
        return orjson.dumps(error, default=str).decode()
    except TypeError:
        return "an error nested too deeply to be read"


def _json(tally: Tally, data: bytes) -> dict[str, Any] | None:
    try:
        event = orjson.loads(data)
    except orjson.JSONDecodeError:
        event = None
    if isinstance(event, dict):
        return event
    tally.malformed = f"an event is not a JSON object: {data[:_SEEN].decode(errors='replace')}"
    return None


_BLANK = frozenset("\u034f\u115f\u1160\u2800\u3164\uffa0\ufffd")
"""Printable by Unicode, and yet nothing to see: fillers, the empty Braille cell, what stands for a broken character."""


def shows(text: str) -> bool:
    """The text has a character that can be seen: no space, control, zero-width or filler, no combining mark alone."""
    return any(
        ch.isprintable() and not ch.isspace() and ch not in _BLANK and unicodedata.category(ch)[0] != "M" for ch in text
    )


def _count(tally: Tally, text: str) -> None:
    tally.showed = tally.showed or shows(text)
    chars = len(text)
    tally.text_chars += chars
    tally.text_bytes += chars if text.isascii() else len(text.encode())


def _openai_event(tally: Tally, kind: bytes, data: bytes) -> dict[str, Any] | None:
    """The parts common to both OpenAI routes: [DONE], errors in any shape, usage. None when nothing else is in it."""
    if data == b"[DONE]":
        tally.done = True
        return None
    event = _json(tally, data)
    if event is None:
        if kind == b"error":
            tally.malformed, tally.error = None, data[:_SEEN].decode(errors="replace")
        return None
    error = event.get("error")
    if error or kind == b"error" or event.get("object") == "error":
        tally.error = message_of(error or event)
        return None
    usage = event.get("usage")
    if usage and isinstance(usage, dict):
        timings = event.get("timings")
        if timings and "cache_n" in timings and "prompt_tokens_details" not in usage:
            # llama-server tells the cached tokens beside the usage.
            usage["prompt_tokens_details"] = {"cached_tokens": timings["cache_n"]}
        tally.usage = usage
    return event


def _finish(tally: Tally, reason: object) -> None:
    """Take a finish reason into account; some servers send an empty one with every event. A reason that is not known
    to be good (FINISHED) ends the answer in an error, whatever the server says after it.
    """
    if reason and tally.error is None:
        tally.finish_reason = str(reason)
        if tally.finish_reason.lower() not in FINISHED:
            tally.error = f"the server ended the answer with finish_reason {tally.finish_reason!r}"


def fold_completions(tally: Tally, kind: bytes, data: bytes, empty_is_token: bool = False) -> int:
    """One event of /v1/completions. With `empty_is_token` a choice with text "" still brought a token (vLLM emits an
    event per step even when the token is a special one that has no text)."""
    event = _openai_event(tally, kind, data)
    found = NOTHING
    if event is not None:
        for choice in event.get("choices") or ():
            text = choice.get("text")
            if text:
                _count(tally, text)
                found = VISIBLE
            elif choice.get("token_ids") or (empty_is_token and text == ""):
                found = VISIBLE
            _finish(tally, choice.get("finish_reason"))
    return found


def fold_completions_vllm(tally: Tally, kind: bytes, data: bytes) -> int:
    """As fold_completions, where an empty text is a token."""
    return fold_completions(tally, kind, data, empty_is_token=True)


def fold_chat(tally: Tally, kind: bytes, data: bytes) -> int:
    """One event of /v1/chat/completions. A role alone, an empty delta or a finish reason is not a token."""
    event = _openai_event(tally, kind, data)
    found = NOTHING
    if event is not None:
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            text = delta.get("content")
            if text:
                _count(tally, text if isinstance(text, str) else message_of(text))
                found = VISIBLE
            elif choice.get("token_ids"):
                found = VISIBLE
            else:
                found = _hidden(tally, delta) or found
            _finish(tally, choice.get("finish_reason"))
    return found


def _hidden(tally: Tally, delta: Mapping[str, Any]) -> int:
    """Reasoning (named three ways by servers: the older and newer vLLM, and gateways) and tool-call fragments."""
    for name in ("reasoning_content", "reasoning", "thinking"):
        text = delta.get(name)
        if text and isinstance(text, str):
            _count(tally, text)
            return REASONING
    if delta.get("refusal"):
        _count(tally, str(delta["refusal"]))
        return VISIBLE
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or {}
        arguments = function.get("arguments") or ""
        # A text everywhere but on Ollama's own route, where it is the object itself.
        fragment = (function.get("name") or "") + (arguments if isinstance(arguments, str) else message_of(arguments))
        if fragment:
            _count(tally, fragment)
            return TOOL
    return NOTHING


def _native_event(tally: Tally, kind: bytes, data: bytes) -> dict[str, Any] | None:
    """An event of an engine's own route; None when it is an error, or no JSON object."""
    event = _json(tally, data)
    if event is not None and (event.get("error") or kind == b"error"):
        tally.error = message_of(event.get("error") or event)
        return None
    return event


def fold_tgi(tally: Tally, kind: bytes, data: bytes) -> int:
    """One event of TGI's /generate_stream: one token each, the last one with the details; there is no [DONE]."""
    event = _native_event(tally, kind, data)
    if event is None:
        return NOTHING
    details = event.get("details")
    if details:
        tally.done = True
        _finish(tally, details.get("finish_reason"))
        tally.usage = {
            "completion_tokens": details.get("generated_tokens"),
            "prompt_tokens": details.get("input_length"),
        }
    elif event.get("generated_text") is not None:
        tally.done = True
    token = event.get("token")
    if not token:
        return NOTHING
    _count(tally, token.get("text") or "")
    return VISIBLE


def fold_ollama(tally: Tally, kind: bytes, data: bytes) -> int:
    """One line of Ollama's native stream (/api/generate and /api/chat): the last one has done, counts and reason."""
    event = _native_event(tally, kind, data)
    if event is None:
        return NOTHING
    if event.get("done"):
        tally.done = True
        _finish(tally, event.get("done_reason"))
        tally.usage = {
            "prompt_tokens": event.get("prompt_eval_count"),
            "completion_tokens": event.get("eval_count"),
        }
    message = event.get("message") or event
    text = message.get("content") or event.get("response")
    if text:
        _count(tally, text)
        return VISIBLE
    return _hidden(tally, message)


def _openai_payload(dialect: Dialect, api: str, ask: Ask) -> dict[str, Any]:
    body: dict[str, Any] = {"model": ask.model, "stream": True, "temperature": 0.0}
    body["stream_options"] = {"include_usage": True}
    if api == "chat":
        body["messages"] = [{"role": "user", "content": ask.content}]
    else:
        body["prompt"] = ask.content
    # OpenAI's own reasoning models refuse max_tokens and a temperature; every engine takes both.
    if dialect.name == "openai_reasoning":
        body["max_completion_tokens"] = ask.osl
        del body["temperature"]
    else:
        body["max_tokens"] = ask.osl
    return body | (dialect.length_fields(ask.osl) if ask.force_length else {})


def _tgi_payload(_: Dialect, api: str, ask: Ask) -> dict[str, Any]:
    if api == "chat":
        return {
            "model": ask.model, "messages": [{"role": "user", "content": ask.content}], "max_tokens": ask.osl,
            "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
    # `decoder_input_details` would make the prompt counted per token; `details` is enough for the lengths.
    return {"inputs": ask.content, "parameters": {"max_new_tokens": ask.osl, "details": True, "do_sample": False}}


def _ollama_payload(_: Dialect, api: str, ask: Ask) -> dict[str, Any]:
    options = {"num_predict": ask.osl, "temperature": 0.0}
    if api == "chat":
        messages = [{"role": "user", "content": ask.content}]
        return {"model": ask.model, "messages": messages, "stream": True, "options": options}
    return {"model": ask.model, "prompt": ask.content, "raw": True, "stream": True, "options": options}


_OPENAI_PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
_OPENAI_FOLD: Mapping[str, Fold] = {"completions": fold_completions, "chat": fold_chat}
_VLLM_FOLD: Mapping[str, Fold] = {"completions": fold_completions_vllm, "chat": fold_chat}


def _ignore_eos(osl: int) -> dict[str, Any]:
    return {"ignore_eos": True, "min_tokens": osl}


DIALECTS: Mapping[str, Dialect] = {
    d.name: d
    for d in (
        Dialect("openai", _openai_payload, _OPENAI_FOLD, _OPENAI_PATHS),
        Dialect("openai_reasoning", _openai_payload, _OPENAI_FOLD, _OPENAI_PATHS),
        Dialect(
            "vllm", _openai_payload, _VLLM_FOLD, _OPENAI_PATHS, length_fields=_ignore_eos, token_ids=True,
            salted=True, reset="/reset_prefix_cache",
        ),
        Dialect(
            "sglang", _openai_payload, _OPENAI_FOLD, _OPENAI_PATHS, length_fields=_ignore_eos, token_ids=True,
            salted=True, reset="/flush_cache",
        ),
        Dialect(
            "trtllm", _openai_payload, _OPENAI_FOLD, _OPENAI_PATHS, length_fields=_ignore_eos, token_ids=True,
            metrics="/prometheus/metrics",
        ),
        Dialect(
            "tgi", _tgi_payload, {"chat": fold_chat, "completions": fold_tgi},
            {"completions": "/generate_stream", "chat": "/v1/chat/completions"}, token_per_event=True,
        ),
        Dialect(
            "llamacpp", _openai_payload, _OPENAI_FOLD, _OPENAI_PATHS,
            length_fields=lambda osl: {"ignore_eos": True, "n_predict": osl}, token_ids=True,
            uncached={"cache_prompt": False},
        ),
        Dialect(
            "ollama", _ollama_payload, {"completions": fold_ollama, "chat": fold_ollama},
            {"completions": "/api/generate", "chat": "/api/chat"}, framing="ndjson",
        ),
    )
}  # fmt: skip
