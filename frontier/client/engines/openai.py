"""OpenAI's API, which most engines speak: requests, the events of both routes, and plain OpenAI as
an engine.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from frontier.client.engines.base import Engine, EventReader
from frontier.client.engines.request import Prompt
from frontier.client.engines.stream import (
    NO_TOKEN,
    REASONING,
    SEEN,
    VISIBLE,
    StreamState,
    is_error,
    is_reasoning,
    json_event,
    message_of,
    take_hidden,
    take_ids,
    take_reason,
    take_text,
    text_of,
)


def _event(state: StreamState, kind: bytes, data: bytes) -> dict[str, Any] | None:
    """The parts common to both OpenAI routes: [DONE], errors in any shape, usage. None when nothing
    else is in it.
    """
    if data == b"[DONE]":
        state.done = True
        return None
    event = json_event(state, data)
    failed = kind.lower() in (b"error", b"exception")
    if event is None:
        if failed:
            state.malformed, state.error = None, data[:SEEN].decode(errors="replace")
        return None
    choices = event.get("choices")
    error = event.get("error") or next((e for choice in choices or () if (e := choice.get("error"))), None)
    if error or failed or event.get("object") == "error" or (choices is None and is_error(event)):
        state.error = message_of(error or event)
        return None
    usage = event.get("usage")
    if usage and isinstance(usage, dict):
        timings = event.get("timings")
        if isinstance(timings, dict) and "cache_n" in timings and "prompt_tokens_details" not in usage:
            # llama-server tells the cached tokens beside the usage.
            usage["prompt_tokens_details"] = {"cached_tokens": timings["cache_n"]}
        if state.usage is None:
            state.usage = usage
        elif _count(usage):  # a gateway's own, of zeros, does not replace the server's
            if not usage.get("prompt_tokens"):
                usage["prompt_tokens"] = state.usage.get("prompt_tokens")  # counted first, the answer at its end
            state.usage = usage
    return event


def _count(usage: dict[str, Any]) -> bool:
    """Whether a usage counts anything."""
    return any(usage.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens"))


def read_completions(state: StreamState, kind: bytes, data: bytes, *, empty_is_token: bool = False) -> int:
    """One event of /v1/completions. With `empty_is_token` a choice with text "" still brought a
    token.
    """
    event = _event(state, kind, data)
    channel = NO_TOKEN
    if event is not None:
        for choice in event.get("choices") or ():
            text, ids = choice.get("text"), take_ids(state, choice.get("token_ids"))
            if text:
                take_text(state, text)
                channel = VISIBLE
            elif ids or (empty_is_token and text == ""):
                channel = VISIBLE
            state.blank = state.blank or (text == "" and not choice.get("finish_reason"))
            take_reason(state, choice.get("finish_reason"), choice)
    return channel


def read_chat(state: StreamState, kind: bytes, data: bytes) -> int:
    """One event of /v1/chat/completions. A role alone, an empty delta or a finish reason is not a
    token.
    """
    event = _event(state, kind, data)
    channel = NO_TOKEN
    if event is not None:
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            text, ids = delta.get("content"), take_ids(state, choice.get("token_ids"))
            if words := text_of(text):
                reasoned = is_reasoning(text)
                take_text(state, words, said=not reasoned)
                channel = REASONING if reasoned else VISIBLE
            elif ids:
                channel = VISIBLE
            else:
                channel = take_hidden(state, delta) or channel
            state.blank = state.blank or (text == "" and "role" not in delta and not choice.get("finish_reason"))
            take_reason(state, choice.get("finish_reason"), choice)
    return channel


def messages(prompt: Prompt) -> list[dict[str, Any]]:
    """The messages of a chat: the history, and the prompt."""
    said = [*prompt.history, prompt.content]
    return [{"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(said)]


def payload(api: str, model: str, prompt: Prompt, *, reasoning: bool = False) -> dict[str, Any]:
    """The body of a request. OpenAI's own `reasoning` models refuse max_tokens and a temperature;
    every engine takes both.
    """
    content = {"messages": messages(prompt)} if api == "chat" else {"prompt": prompt.text}
    length: dict[str, Any] = {"max_tokens": prompt.osl, "temperature": 0.0}
    if reasoning:
        length = {"max_completion_tokens": prompt.osl}
    return {"model": model, "stream": True, "stream_options": {"include_usage": True}} | content | length


def ignore_eos(osl: int) -> dict[str, Any]:
    """The fields by which vLLM, SGLang and TensorRT-LLM force the output length."""
    return {"ignore_eos": True, "min_tokens": osl}


PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
EVENTS: Mapping[str, EventReader] = {"completions": read_completions, "chat": read_chat}

ENGINE = Engine("openai", payload, EVENTS, PATHS)
REASONING_MODELS = Engine("openai_reasoning", partial(payload, reasoning=True), EVENTS, PATHS)
