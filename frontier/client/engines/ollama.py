"""Ollama, by its own routes (their documentation was read)."""

from typing import Any

from frontier.client.engines import openai
from frontier.client.engines.base import Engine, Listing, Room, json_object, object_with
from frontier.client.engines.request import Prompt
from frontier.client.engines.stream import (
    NO_TOKEN,
    VISIBLE,
    StreamState,
    native_event,
    take_hidden,
    take_reason,
    take_text,
)


def read_line(state: StreamState, kind: bytes, data: bytes) -> int:
    """One line of /api/generate or /api/chat: the last one has done, counts and reason."""
    event = native_event(state, kind, data)
    if event is None:
        return NO_TOKEN
    if event.get("done"):
        state.done = True
        take_reason(state, event.get("done_reason"))
        state.usage = {
            "prompt_tokens": event.get("prompt_eval_count"),
            "completion_tokens": event.get("eval_count"),
        }
    message = event.get("message") or event
    text = message.get("content") or event.get("response")
    if text:
        take_text(state, text)
        return VISIBLE
    return take_hidden(state, message)


def _payload(api: str, model: str, prompt: Prompt) -> dict[str, Any]:
    content = {"messages": openai.messages(prompt)} if api == "chat" else {"prompt": prompt.text, "raw": True}
    options = {"num_predict": prompt.osl, "temperature": 0.0}
    return {"model": model, "stream": True, "options": options} | content


def _room(loaded: bytes) -> Room:
    """The context of the model in its memory, where it is one."""
    models = json_object(loaded).get("models")
    one = models[0] if isinstance(models, list) and len(models) == 1 else None
    return Room(context=one.get("context_length") if isinstance(one, dict) else None)


ENGINE = Engine(
    "ollama",
    _payload,
    {"completions": read_line, "chat": read_line},
    {"completions": "/api/generate", "chat": "/api/chat"},
    framing="ndjson",
    owner="library",
    signs={"/api/version": object_with("version")},
    version=("/api/version", "version"),
    loaded=Listing("/api/ps", "models", "model"),  # it lists all that it could load
    room=("/api/ps", _room),
    title="Ollama",
    limit="OLLAMA_NUM_PARALLEL={c}",
    over="wait, OLLAMA_MAX_QUEUE at most; then 503",
    ports=(11434,),
)
