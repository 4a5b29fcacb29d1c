"""API adapters: the request body and the event format of each engine, one frozen record per engine
(its dialect).

Extension fields (ignore_eos and the like) are sent only where the engine lists them: some servers
reject what they do not know. Formats are from the engines' own sources and API references; a
deviation seen in the wild is named beside the line that handles it.
"""

import json
import math
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
NAMED = ("model", "system_fingerprint")
"""Fields of an event that say who answered."""
_MOST_NAMED = 8
"""Values of them that are kept of an answer."""
_SEEN = 2 * MOST
"""Bytes of an event that is not understood. More than of its words is looked at: they are cut only
when redacted."""


@dataclass(slots=True)
class StreamState:
    """What the events of a stream have brought so far.

    `usage` is the last one seen (some send a running count in every chunk). `showed`: a text since
    this was last set to False had a visible character. `texts` are the pieces of the answer,
    without its reasoning, where it is asked for. `named` are the values of NAMED that it gave.
    """

    text_bytes: int = 0
    text_chars: int = 0
    finish_reason: str | None = None
    done: bool = False
    error: str | None = None
    malformed: str | None = None
    usage: Mapping[str, Any] | None = None
    showed: bool = False
    texts: list[str] | None = None
    named: set[tuple[str, str]] = field(default_factory=set, compare=False)

    @property
    def terminal(self) -> bool:
        """The server said it was finished."""
        return self.done or self.finish_reason is not None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a turn of a session was answered, with the server's counts; `asked_osl` is 0 where no
    length was forced.
    """

    text: str
    prompt_tokens: int | None
    completion_tokens: int | None
    asked_osl: int


@dataclass(frozen=True, slots=True)
class Turn:
    """The place of a request in its session: its number from 0, the prompt tokens known to the
    server from before, and the seconds to wait before it is sent. `then` makes the next turn of the
    answer; None: it is the last. Of a mix, `class_index` is the place of its class.
    """

    number: int
    reusable: int | None
    pause: float
    then: "Callable[[Answer], Prompt] | None"
    class_index: int | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one request asks: its content and the two lengths wanted, in tokens (an `isl` of 0 is
    not known).

    Prompts with different `salt` share no prefix cache, on the servers that have such a thing.
    `shares`: it may have text in common with others that is meant to be cached. Of a session,
    `history` is what was said before: by the user and by the model, in turn.
    """

    content: Content
    isl: int
    osl: int
    salt: str | None = None
    shares: bool = False
    history: tuple[str, ...] = ()
    turn: Turn | None = None

    @property
    def text(self) -> Content:
        """All of it, where there are no messages: each answer is followed by a space and what the
        user said next.
        """
        if not self.history:
            return self.content
        assert isinstance(self.content, str), "a history of texts goes on with a text"
        said = "".join(f"{user}{model} " for user, model in zip(*[iter(self.history)] * 2, strict=True))
        return said + self.content


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request ready to be sent: its number in the trial, its bytes, the output tokens they ask
    for (0: no length is forced), the number of its session, and the prompt they were made of.
    """

    index: int
    body: bytes
    osl: int
    session: int
    prompt: Prompt

    @property
    def pause(self) -> float:
        """Seconds of thinking before it."""
        return 0.0 if self.prompt.turn is None else self.prompt.turn.pause

    @property
    def goes_on(self) -> bool:
        """Another turn of its session is made of the answer, whose text is wanted."""
        return self.prompt.turn is not None and self.prompt.turn.then is not None


NO_REQUEST = PreparedRequest(0, b"", 0, 0, Prompt("", 0, 0))
EventReader = Callable[[StreamState, bytes, bytes], int]
"""Takes one event (its type, its data) into the state; the channel on which it brought a token."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """One engine. `paths` maps an api to its route; `length_fields` are sent to force the output
    length, {} meaning that it cannot be forced; `token_ids` says that a completions prompt may be a
    list of token ids. `token_per_event` allows counting events where the server reports no usage.

    `salted`: requests take a cache_salt; those with different salts share no prefix cache.
    `uncached` is sent with requests that share nothing. `reset` is the route that empties the
    prefix cache, `metrics` the one of its Prometheus text.
    """

    name: str
    payload: Callable[["Adapter", str, str, Prompt], dict[str, Any]]
    parse_event: Mapping[str, EventReader]
    paths: Mapping[str, str]
    framing: Literal["sse", "ndjson"] = "sse"
    length_fields: Callable[[int], dict[str, Any]] = lambda _: {}
    token_ids: bool = False
    token_per_event: bool = False
    salted: bool = False
    uncached: Mapping[str, Any] = field(default_factory=dict)
    reset: str | None = None
    metrics: str = "/metrics"

    def body(
        self, api: str, model: str, prompt: Prompt, *, force_length: bool = True, extra: Mapping[str, Any] | None = None
    ) -> bytes:
        """The body of a request; `extra` is merged into it, last."""
        length = self.length_fields(prompt.osl) if force_length else {}
        salt = {"cache_salt": prompt.salt} if self.salted and prompt.salt is not None else {}
        uncached = {} if prompt.shares else dict(self.uncached)
        return orjson.dumps(self.payload(self, api, model, prompt) | length | salt | uncached | dict(extra or {}))


def message_of(error: object, depth: int = 0) -> str:
    """The human text of an error in any of the shapes seen: a string, or an object with message,
    detail or error.
    """
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


def _json(state: StreamState, data: bytes) -> dict[str, Any] | None:
    try:
        event = orjson.loads(data)
    except orjson.JSONDecodeError:
        event = _with_absurd_numbers(data) if any(name in data for name in _COUNTED) else None
    if isinstance(event, dict):
        for name in NAMED:
            value = event.get(name)
            if value and isinstance(value, str) and len(state.named) < _MOST_NAMED:
                state.named.add((name, value[:MOST]))
        return event
    state.malformed = f"an event is not a JSON object: {data[:_SEEN].decode(errors='replace')}"
    return None


_COUNTED = (b'"usage"', b'"details"', b'"eval_count"')
"""What an event with counts holds, in the formats of all engines."""
_LONGEST_USAGE, _LONGEST_NUMBER = 2**16, 20


def _with_absurd_numbers(data: bytes) -> Any:
    """An event whose numbers no float holds (1e400, NaN), each of them as None: a usage with one
    such number has others. None when it is no JSON for another reason.
    """

    def whole(digits: str) -> int | None:
        return int(digits) if len(digits) <= _LONGEST_NUMBER else None

    def broken(number: str) -> float | None:
        return value if math.isfinite(value := float(number)) else None

    if len(data) > _LONGEST_USAGE:
        return None
    try:
        return json.loads(data, parse_int=whole, parse_float=broken, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
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


def _count(state: StreamState, text: str, *, said: bool = True) -> None:
    state.showed = state.showed or shows(text)
    if said and state.texts is not None:
        state.texts.append(text)
    chars = len(text)
    state.text_chars += chars
    state.text_bytes += chars if text.isascii() else len(text.encode())


def _openai_event(state: StreamState, kind: bytes, data: bytes) -> dict[str, Any] | None:
    """The parts common to both OpenAI routes: [DONE], errors in any shape, usage. None when nothing
    else is in it.
    """
    if data == b"[DONE]":
        state.done = True
        return None
    event = _json(state, data)
    if event is None:
        if kind == b"error":
            state.malformed, state.error = None, data[:_SEEN].decode(errors="replace")
        return None
    error = event.get("error")
    if error or kind == b"error" or event.get("object") == "error":
        state.error = message_of(error or event)
        return None
    usage = event.get("usage")
    if usage and isinstance(usage, dict):
        timings = event.get("timings")
        if isinstance(timings, dict) and "cache_n" in timings and "prompt_tokens_details" not in usage:
            # llama-server tells the cached tokens beside the usage.
            usage["prompt_tokens_details"] = {"cached_tokens": timings["cache_n"]}
        state.usage = usage
    return event


def _finish(state: StreamState, reason: object) -> None:
    """Take a finish reason into account; some servers send an empty one with every event. A reason
    that is not known to be good (FINISHED) ends the answer in an error, whatever the server says
    after it.
    """
    if reason and state.error is None:
        state.finish_reason = str(reason)
        if state.finish_reason.lower() not in FINISHED:
            state.error = f"the server ended the answer with finish_reason {state.finish_reason!r}"


def read_completions(state: StreamState, kind: bytes, data: bytes, empty_is_token: bool = False) -> int:
    """One event of /v1/completions. With `empty_is_token` a choice with text "" still brought a
    token (vLLM emits an event per step even when the token is a special one that has no text)."""
    event = _openai_event(state, kind, data)
    channel = NOTHING
    if event is not None:
        for choice in event.get("choices") or ():
            text = choice.get("text")
            if text:
                _count(state, text)
                channel = VISIBLE
            elif choice.get("token_ids") or (empty_is_token and text == ""):
                channel = VISIBLE
            _finish(state, choice.get("finish_reason"))
    return channel


def read_completions_vllm(state: StreamState, kind: bytes, data: bytes) -> int:
    """As read_completions, where an empty text is a token."""
    return read_completions(state, kind, data, empty_is_token=True)


def read_chat(state: StreamState, kind: bytes, data: bytes) -> int:
    """One event of /v1/chat/completions. A role alone, an empty delta or a finish reason is not a
    token.
    """
    event = _openai_event(state, kind, data)
    channel = NOTHING
    if event is not None:
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            text = delta.get("content")
            if text:
                _count(state, text if isinstance(text, str) else message_of(text))
                channel = VISIBLE
            elif choice.get("token_ids"):
                channel = VISIBLE
            else:
                channel = _hidden(state, delta) or channel
            _finish(state, choice.get("finish_reason"))
    return channel


def _hidden(state: StreamState, delta: Mapping[str, Any]) -> int:
    """Reasoning (named three ways by servers: the older and newer vLLM, and gateways) and tool-call
    fragments.
    """
    for name in ("reasoning_content", "reasoning", "thinking"):
        text = delta.get(name)
        if text and isinstance(text, str):
            _count(state, text, said=False)
            return REASONING
    if delta.get("refusal"):
        _count(state, str(delta["refusal"]))
        return VISIBLE
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or {}
        arguments = function.get("arguments") or ""
        # A text everywhere but on Ollama's own route, where it is the object itself.
        fragment = (function.get("name") or "") + (arguments if isinstance(arguments, str) else message_of(arguments))
        if fragment:
            _count(state, fragment, said=False)
            return TOOL
    return NOTHING


def _native_event(state: StreamState, kind: bytes, data: bytes) -> dict[str, Any] | None:
    """An event of an engine's own route; None when it is an error, or no JSON object."""
    event = _json(state, data)
    if event is not None and (event.get("error") or kind == b"error"):
        state.error = message_of(event.get("error") or event)
        return None
    return event


def read_tgi(state: StreamState, kind: bytes, data: bytes) -> int:
    """One event of TGI's /generate_stream: one token each, the last one with the details; there is
    no [DONE].
    """
    event = _native_event(state, kind, data)
    if event is None:
        return NOTHING
    details = event.get("details")
    if details:
        state.done = True
        _finish(state, details.get("finish_reason"))
        state.usage = {
            "completion_tokens": details.get("generated_tokens"),
            "prompt_tokens": details.get("input_length"),
        }
    elif event.get("generated_text") is not None:
        state.done = True
    token = event.get("token")
    if not token:
        return NOTHING
    _count(state, token.get("text") or "")
    return VISIBLE


def read_ollama(state: StreamState, kind: bytes, data: bytes) -> int:
    """One line of Ollama's native stream (/api/generate and /api/chat): the last one has done,
    counts and reason.
    """
    event = _native_event(state, kind, data)
    if event is None:
        return NOTHING
    if event.get("done"):
        state.done = True
        _finish(state, event.get("done_reason"))
        state.usage = {
            "prompt_tokens": event.get("prompt_eval_count"),
            "completion_tokens": event.get("eval_count"),
        }
    message = event.get("message") or event
    text = message.get("content") or event.get("response")
    if text:
        _count(state, text)
        return VISIBLE
    return _hidden(state, message)


def _messages(prompt: Prompt) -> list[dict[str, Any]]:
    said = [*prompt.history, prompt.content]
    return [{"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(said)]


def _openai_payload(adapter: Adapter, api: str, model: str, prompt: Prompt) -> dict[str, Any]:
    content = {"messages": _messages(prompt)} if api == "chat" else {"prompt": prompt.text}
    # OpenAI's own reasoning models refuse max_tokens and a temperature; every engine takes both.
    if adapter.name == "openai_reasoning":
        length: dict[str, Any] = {"max_completion_tokens": prompt.osl}
    else:
        length = {"max_tokens": prompt.osl, "temperature": 0.0}
    return {"model": model, "stream": True, "stream_options": {"include_usage": True}} | content | length


def _tgi_payload(_: Adapter, api: str, model: str, prompt: Prompt) -> dict[str, Any]:
    if api == "chat":
        body = {"model": model, "messages": _messages(prompt), "max_tokens": prompt.osl}
        return body | {"stream": True, "stream_options": {"include_usage": True}}
    # `decoder_input_details` would make the prompt counted per token; `details` is enough for the
    # lengths.
    parameters = {"max_new_tokens": prompt.osl, "details": True, "do_sample": False}
    return {"inputs": prompt.text, "parameters": parameters}


def _ollama_payload(_: Adapter, api: str, model: str, prompt: Prompt) -> dict[str, Any]:
    content = {"messages": _messages(prompt)} if api == "chat" else {"prompt": prompt.text, "raw": True}
    options = {"num_predict": prompt.osl, "temperature": 0.0}
    return {"model": model, "stream": True, "options": options} | content


_OPENAI_PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
_OPENAI_EVENTS: Mapping[str, EventReader] = {"completions": read_completions, "chat": read_chat}
_VLLM_EVENTS: Mapping[str, EventReader] = {"completions": read_completions_vllm, "chat": read_chat}


def _ignore_eos(osl: int) -> dict[str, Any]:
    return {"ignore_eos": True, "min_tokens": osl}


DIALECTS: Mapping[str, Adapter] = {
    d.name: d
    for d in (
        Adapter("openai", _openai_payload, _OPENAI_EVENTS, _OPENAI_PATHS),
        Adapter("openai_reasoning", _openai_payload, _OPENAI_EVENTS, _OPENAI_PATHS),
        Adapter(
            "vllm",
            _openai_payload,
            _VLLM_EVENTS,
            _OPENAI_PATHS,
            length_fields=_ignore_eos,
            token_ids=True,
            salted=True,
            reset="/reset_prefix_cache",
        ),
        Adapter(
            "sglang",
            _openai_payload,
            _OPENAI_EVENTS,
            _OPENAI_PATHS,
            length_fields=_ignore_eos,
            token_ids=True,
            salted=True,
            reset="/flush_cache",
        ),
        Adapter(
            "trtllm",
            _openai_payload,
            _OPENAI_EVENTS,
            _OPENAI_PATHS,
            length_fields=_ignore_eos,
            token_ids=True,
            metrics="/prometheus/metrics",
        ),
        Adapter(
            "tgi",
            _tgi_payload,
            {"chat": read_chat, "completions": read_tgi},
            {"completions": "/generate_stream", "chat": "/v1/chat/completions"},
            token_per_event=True,
        ),
        Adapter(
            "llamacpp",
            _openai_payload,
            _OPENAI_EVENTS,
            _OPENAI_PATHS,
            length_fields=lambda osl: {"ignore_eos": True, "n_predict": osl},
            token_ids=True,
            uncached={"cache_prompt": False},
        ),
        Adapter(
            "ollama",
            _ollama_payload,
            {"completions": read_ollama, "chat": read_ollama},
            {"completions": "/api/generate", "chat": "/api/chat"},
            framing="ndjson",
        ),
    )
}
