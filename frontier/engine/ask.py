"""Reading a request's body: what is asked of the simulator, or the error it deserves."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from frontier.engine.spec import EngineSpec
from frontier.engine.tokens import Pieces, pieces_of_chat, pieces_of_text
from frontier.engine.wire import Api, error

DEFAULT_TOKENS: Mapping[str, int] = {"chat": 256, "completions": 16}
"""Output tokens when nobody asked for a number (vLLM's chat would fill the context)."""


class RefusedError(Exception):
    """The request is answered with this status and OpenAI error."""

    def __init__(self, status: int, message: str, kind: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = error(message, kind, status, param)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request wants. `output` tokens will be made, after which it ends for the reason `finish`."""

    pieces: Pieces
    output: int
    finish: str
    stream: bool
    usage: bool


def _bad(message: str, param: str | None = None) -> RefusedError:
    return RefusedError(400, message, "BadRequestError", param)


def read_json(raw: bytes) -> Mapping[str, Any]:
    """The body as an object. RefusedError when it is none."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as wrong:
        raise _bad(f"the body is not JSON: {wrong}") from wrong
    if not isinstance(body, dict):
        raise _bad("the body is not a JSON object")
    return body


def check_model(body: Mapping[str, Any], spec: EngineSpec) -> None:
    """RefusedError 404 unless the model asked is the one served (or none is named)."""
    model = body.get("model")
    if model is not None and model != spec.model_name:
        raise RefusedError(404, f"The model `{model}` does not exist.", "NotFoundError", "model")


def pieces_of(body: Mapping[str, Any], api: Api) -> Pieces:
    """The prompt's tokens. RefusedError when there is no prompt that can be read."""
    if api == "chat":
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
            raise _bad("messages: a list of messages is needed", "messages")
        try:
            return pieces_of_chat(messages)
        except ValueError as wrong:
            raise _bad(str(wrong), "messages") from wrong
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return pieces_of_text(prompt)
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return prompt
    raise _bad("prompt: one text, or one list of token ids, is needed", "prompt")


def read_ask(raw: bytes, api: Api, spec: EngineSpec, rng: random.Random) -> Asked:
    """The request in `raw`. RefusedError with the status a vLLM server would send."""
    body = read_json(raw)
    check_model(body, spec)
    if body.get("n", 1) != 1:
        raise _bad("n: only one choice is served", "n")
    pieces = pieces_of(body, api)
    asked = body.get("max_completion_tokens") if api == "chat" else None
    if asked is None:
        asked = body.get("max_tokens")
    limit = DEFAULT_TOKENS[api] if asked is None else _count(asked, "max_tokens")
    least = _count(body.get("min_tokens") or 0, "min_tokens", low=0)
    if least > limit:
        raise _bad(f"min_tokens must be less than or equal to max_tokens={limit}, got {least}.", "min_tokens")
    output, finish = limit, "length"
    if spec.natural_output and not body.get("ignore_eos"):
        natural = max(1, least, round(rng.expovariate(1.0 / spec.natural_output)))
        if natural < limit:
            output, finish = natural, "stop"
    options = body.get("stream_options") or {}
    usage = isinstance(options, dict) and bool(options.get("include_usage"))
    return Asked(pieces, output, finish, bool(body.get("stream")), usage)


def _count(value: Any, name: str, low: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise _bad(f"{name} must be at least {low}, got {value}.", name)
    return value
