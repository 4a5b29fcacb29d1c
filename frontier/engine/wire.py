"""The bytes of an answer in OpenAI's shape as vLLM sends it, with everything encoded before the first token."""

import time
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from frontier.engine.tokens import WORDS

Api = Literal["chat", "completions"]
_MARK = "\x00"
_MARK_BYTES = b"\\u0000"
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Head:
    """What all chunks of one answer share."""

    api: Api
    name: str
    model: str
    created: int

    @classmethod
    def new(cls, api: Api, key: str, model: str) -> "Head":
        prefix = "chatcmpl" if api == "chat" else "cmpl"
        return cls(api, f"{prefix}-{key}", model, int(time.time()))

    def event(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        """One SSE event."""
        kind = "chat.completion.chunk" if self.api == "chat" else "text_completion"
        body: dict[str, Any] = {
            "id": self.name, "object": kind, "created": self.created, "model": self.model, "choices": choices,
        }  # fmt: skip
        if usage is not None:
            body["usage"] = usage
        return b"data: " + orjson.dumps(body) + b"\n\n"

    def choice(self, text: str, finish: str | None) -> dict[str, Any]:
        """A choice that carries `text`."""
        end: dict[str, Any] = {"logprobs": None, "finish_reason": finish}
        if finish is not None:
            end["stop_reason"] = None
        if self.api == "chat":
            return {"index": 0, "delta": {"content": text}, **end}
        return {"index": 0, "text": text, **end}


def frame(payload: bytes) -> bytes:
    """One chunk of HTTP's chunked transfer encoding."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def token_frames(head: Head) -> tuple[bytes, ...]:
    """The framed events of a token in the middle, one per word; token i is sent as number i modulo their count."""
    before, _, after = head.event([head.choice(_MARK, None)]).partition(_MARK_BYTES)
    return tuple(frame(before + word.encode() + after) for word in WORDS)


def words(number: int, count: int) -> str:
    """The text of `count` tokens from number `number` on."""
    return "".join(WORDS[i % len(WORDS)] for i in range(number, number + count))


def token_frame(head: Head, number: int, count: int) -> bytes:
    """The framed event of several tokens that left together."""
    return frame(head.event([head.choice(words(number, count), None)]))


def opening(head: Head) -> bytes:
    """What precedes the first token, unframed: chat has a chunk with the role and empty content."""
    if head.api != "chat":
        return b""
    delta = {"role": "assistant", "content": ""}
    return head.event([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])


def closing(head: Head, number: int, count: int, finish: str, usage: dict[str, Any] | None) -> bytes:
    """The event of the last tokens and all that follows it, framed."""
    last = frame(head.event([head.choice(words(number, count), finish)]))
    counted = frame(head.event([], usage)) if usage is not None else b""
    return last + counted + frame(DONE)


def whole(head: Head, tokens: int, finish: str, usage: dict[str, Any]) -> bytes:
    """The answer to a request that did not ask for a stream."""
    text = words(0, tokens)
    choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish, "stop_reason": None}
    if head.api == "chat":
        choice["message"] = {"role": "assistant", "content": text}
    else:
        choice["text"] = text
    kind = "chat.completion" if head.api == "chat" else "text_completion"
    return orjson.dumps(
        {"id": head.name, "object": kind, "created": head.created, "model": head.model, "choices": [choice],
         "usage": usage}
    )  # fmt: skip


def usage_of(prompt: int, completion: int, cached: int) -> dict[str, Any]:
    """OpenAI's usage object."""
    return {
        "prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }  # fmt: skip


def error(message: str, kind: str, code: int, param: str | None = None) -> bytes:
    """OpenAI's error object."""
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})
