"""What the simulator's server reads and writes: request bodies, the tokenizer, OpenAI answers,
/metrics text.

The tokenizer is deterministic and has no vocabulary: a word costs one token per eight characters
begun. It is no model's, on purpose: a client has to learn from the server's `usage` how many tokens
its words are, as with a real server. All of an answer is encoded before its first token is due.
"""

import random
import re
import time
import zlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from frontier.simulator.http.realtime import LiveEngine
from frontier.simulator.spec import EngineSpec

_PIECE = re.compile(r"\S{1,8}")
_PER_MESSAGE, _PER_CHAT = 4, 1
WORDS = (" river", " stone", " light", " under", " cloud", " field", " north", " water")
"""The words of answers: one word is one token."""

Pieces = Sequence[Hashable]


def block_hashes(pieces: Pieces, block: int) -> list[int]:
    """One hash per full block of tokens, each covering everything before it."""
    hashes, chain = [], 0
    for end in range(block, len(pieces) + 1, block):
        chain = hash((chain, *pieces[end - block : end]))
        hashes.append(chain)
    return hashes


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

    def body(self, kind: str, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        """The JSON of an answer or of one of its chunks; `kind` is what a chat calls it."""
        body: dict[str, Any] = {
            "id": self.name,
            "object": kind if self.api == "chat" else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }
        if usage is not None:
            body["usage"] = usage
        return orjson.dumps(body)

    def event(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        """One SSE event."""
        return b"data: " + self.body("chat.completion.chunk", choices, usage) + b"\n\n"

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
    """The framed events of a token in the middle, one per word; token i is sent as number i modulo
    their count.
    """
    before, _, after = head.event([head.choice(_MARK, None)]).partition(_MARK_BYTES)
    return tuple(frame(before + word.encode() + after) for word in WORDS)


def answer_pieces(count: int) -> Pieces:
    """The tokens of an answer, as a prompt has them that repeats it."""
    return _PIECE.findall("".join(WORDS[i % len(WORDS)] for i in range(count)))


def opening(head: Head) -> bytes:
    """What precedes the first token, unframed: chat has a chunk with the role and empty content."""
    if head.api != "chat":
        return b""
    delta = {"role": "assistant", "content": ""}
    return head.event([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])


def closing(head: Head, number: int, finish: str, usage: dict[str, Any] | None) -> bytes:
    """The event of the last token and all that follows it, framed."""
    last = frame(head.event([head.choice(WORDS[number % len(WORDS)], finish)]))
    counted = frame(head.event([], usage)) if usage is not None else b""
    return last + counted + frame(DONE)


Tokens = Sequence[tuple[str, float]]
"""Words with their log-probabilities."""


def greedy_tokens(
    pieces: Pieces, count: int, spec: EngineSpec, rng: random.Random, *, beside: int = 0, preempted: bool = False
) -> Tokens:
    """The words of an answer, with log-probabilities that the prompt decides. Some words differ
    from the usual ones: the share `token_flips` of them, decided by the prompt too, and by chance
    the share `token_noise` and those that the load changes: `beside` requests ran beside it, and it
    was `preempted` or not.
    """
    noise = spec.token_noise + spec.flips.batch * beside + spec.flips.preempted * preempted
    noise += spec.flips.drafts * (spec.speculation is not None)
    model = random.Random(zlib.crc32(repr(pieces).encode()))
    tokens = []
    for i in range(count):
        flipped = model.random() < spec.token_flips or rng.random() < noise
        tokens.append((WORDS[(i + flipped) % len(WORDS)], -model.random() - spec.token_flips))
    return tokens


def whole(head: Head, asked: "GenerationRequest", tokens: Tokens, usage: dict[str, Any]) -> bytes:
    """The answer to a request that did not ask for a stream."""
    choice = head.choice("".join(word for word, _ in tokens), asked.finish)
    if asked.logprobs and head.api == "chat":
        choice["logprobs"] = {"content": [{"token": word, "logprob": value} for word, value in tokens]}
    elif asked.logprobs:
        choice["logprobs"] = {"tokens": [word for word, _ in tokens], "token_logprobs": [value for _, value in tokens]}
    if head.api == "chat":
        choice["message"] = {"role": "assistant", **choice.pop("delta")}
    return head.body("chat.completion", [choice], usage)


def usage_of(prompt: int, completion: int, cached: int) -> dict[str, Any]:
    """OpenAI's usage object."""
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def error(message: str, kind: str, code: int, param: str | None = None) -> bytes:
    """OpenAI's error object."""
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


DEFAULT_TOKENS: Mapping[str, int] = {"chat": 256, "completions": 16}
"""Output tokens of a request that states no limit (vLLM's chat would fill the context)."""


class RefusedError(Exception):
    """The request is answered with this status and OpenAI error."""

    def __init__(self, status: int, message: str, kind: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = error(message, kind, status, param)


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What a request asks for. `output` tokens will be made, after which it ends for the reason
    `finish`.
    """

    pieces: Pieces
    output: int
    finish: str
    stream: bool
    usage: bool
    logprobs: bool = False


def _bad(message: str, param: str | None = None) -> RefusedError:
    return RefusedError(400, message, "BadRequestError", param)


def pieces_of(body: Mapping[str, Any], api: Api) -> Pieces:
    """The tokens of the prompt with its beginning-of-text mark, or of the conversation with its
    template.

    RefusedError when there is no readable prompt.
    """
    if api == "chat":
        return _pieces_of_chat(body.get("messages"))
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return ["<s>", *_PIECE.findall(prompt)]
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return prompt
    raise _bad("prompt: one text, or one list of token ids, is needed", "prompt")


def _pieces_of_chat(messages: Any) -> Pieces:
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise _bad("messages: a list of messages is needed", "messages")
    pieces: list[Hashable] = [("chat", i) for i in range(_PER_CHAT)]
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content if isinstance(part, Mapping))
        if not isinstance(content, str | None):
            raise _bad("messages: content must be text", "messages")
        pieces.extend(_role(message.get("role")))
        pieces.extend(_PIECE.findall(content or ""))
    # As real templates do: what comes before an answer is there when it is generated, and when it
    # is history.
    return [*pieces, *_role("assistant")]


def _role(role: Any) -> list[Hashable]:
    """What a chat template puts before a message."""
    return [("message", role, i) for i in range(_PER_MESSAGE)]


def read_request(raw: bytes, api: Api, spec: EngineSpec, rng: random.Random) -> GenerationRequest:
    """The request in `raw`. RefusedError with the status a vLLM server would send."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as wrong:
        raise _bad(f"the body is not JSON: {wrong}") from wrong
    if not isinstance(body, dict):
        raise _bad("the body is not a JSON object")
    if body.get("model") not in (None, spec.model_name):
        raise RefusedError(404, f"The model `{body['model']}` does not exist.", "NotFoundError", "model")
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
    logprobs = body.get("logprobs") not in (None, False)
    return GenerationRequest(pieces, output, finish, bool(body.get("stream")), usage, logprobs)


def _count(value: Any, name: str, low: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise _bad(f"{name} must be at least {low}, got {value}.", name)
    return value


def metrics_text(engine: LiveEngine, model: str) -> bytes:
    """The state of the engine, by vLLM's names and in Prometheus' text format."""
    s = engine.scheduler
    label = model.replace("\\", "\\\\").replace('"', '\\"')
    labels = f'engine="0",model_name="{label}"'
    gauges = {
        "num_requests_running": s.running,
        "num_requests_waiting": engine.waiting,
        "kv_cache_usage_perc": s.kv.used,
    }
    lines: list[str] = []
    for kind, values in (("gauge", gauges), ("counter", s.counters)):
        for name, value in values.items():
            lines += [f"# TYPE vllm:{name} {kind}", f"vllm:{name}{{{labels}}} {float(value)}"]
    for name, histogram in s.times.observed.items():
        lines.append(f"# TYPE vllm:{name} histogram")
        lines += [f'vllm:{name}_bucket{{{labels},le="{le}"}} {float(n)}' for le, n in histogram.at_most]
        lines.append(f"vllm:{name}_sum{{{labels}}} {histogram.total}")
        lines.append(f"vllm:{name}_count{{{labels}}} {float(histogram.count)}")
    return ("\n".join(lines) + "\n").encode()
