"""The engines' faces, as each one's own source has them: routes, rejections, and the way the tokens
are written.

Every face answers four tokens of nine asked-for prompt tokens; `/FACE/...` of a hostile server.
What is known of one stands above its function, and nowhere else.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.kit.hostile import BEHAVIOURS, DONE, Call, chunk, sse

TOKENS = (" one", " two", " three", " four")
PROMPT = 9

Speech = Callable[[str, dict[str, Any]], Iterator[bytes]]
OPENAI_ROUTES = {"/v1/completions": "completions", "/v1/chat/completions": "chat"}
CHAT_ROUTE = {"/v1/chat/completions": "chat"}


@dataclass(frozen=True, slots=True)
class Face:
    """One face: how it writes an answer, and what it is beside that.

    `dialect` is the engine that it must be taken for, on both apis; None for one that has tests of
    its own. `cached` are the cached tokens that it tells. `owner` is that of the models it lists,
    `about` what it answers beside the load, by route. `routes` are those of the load, with their
    api. `words_only` takes no prompt of token ids.
    """

    speech: Speech
    dialect: str | None
    cached: int | None = None
    owner: str = "someone"
    about: Mapping[str, Any] = field(default_factory=dict)
    routes: Mapping[str, str] = field(default_factory=lambda: OPENAI_ROUTES)
    words_only: bool = False


FACES: dict[str, Face] = {}
"""The faces by their names, those of the functions below."""


def face(dialect: str | None, **known: Any) -> Callable[[Speech], Speech]:
    """Enters the function below in `FACES`, with what is known of it."""

    def enter(speech: Speech) -> Speech:
        FACES[speech.__name__] = Face(speech, dialect, **known)
        return speech

    return enter


def usage(**more: Any) -> dict[str, Any]:
    return {"prompt_tokens": PROMPT, "completion_tokens": len(TOKENS), "total_tokens": PROMPT + len(TOKENS), **more}


def event(choice: dict[str, Any] | None, **more: Any) -> bytes:
    return sse({"id": "x", "created": 1, "model": "m", "choices": [{"index": 0, **choice}] if choice else [], **more})


@face("vllm", cached=2, owner="vllm", about={"/version": {"version": "0.32.0"}})
def vllm(api: str, _: dict[str, Any]) -> Iterator[bytes]:
    """The finish reason on the last token, whose text may be empty; the usage in a chunk of its
    own.
    """
    if api == "chat":
        yield event({"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None})
    texts = TOKENS if api == "chat" else (*TOKENS[:-1], "")
    for i, text in enumerate(texts):
        said = {"delta": {"content": text, "reasoning_content": None}} if api == "chat" else {"text": text}
        yield event({**said, "logprobs": None, "finish_reason": "length" if i == 3 else None, "stop_reason": None})
    yield event(None, usage=usage(prompt_tokens_details={"cached_tokens": 2}))
    yield DONE


@face("sglang", cached=2, owner="sglang", about={"/server_info": {"version": "0.5.23"}})
def sglang(api: str, _: dict[str, Any]) -> Iterator[bytes]:
    """Nulls are written out, reasoning comes in a field of its own, the finish reason in an empty
    delta.
    """
    nulls = {"role": None, "reasoning_content": None, "tool_calls": None}
    if api == "chat":
        yield event({"delta": nulls | {"role": "assistant", "content": ""}, "finish_reason": None}, usage=None)
        yield event({"delta": nulls | {"content": None, "reasoning_content": TOKENS[0]}}, usage=None)
    else:
        yield event({"text": TOKENS[0], "finish_reason": None}, usage=None)
    for text in TOKENS[1:]:
        said = {"delta": nulls | {"content": text}} if api == "chat" else {"text": text}
        yield event({**said, "finish_reason": None, "matched_stop": None}, usage=None)
    said = {"delta": nulls | {"content": None}} if api == "chat" else {"text": ""}
    yield event({**said, "finish_reason": "length"}, usage=None)
    yield event(None, usage=usage(reasoning_tokens=1, prompt_tokens_details={"cached_tokens": 2}))
    yield DONE


@face(
    "trtllm",
    owner="tensorrt_llm",
    about={"/version": {"version": "1.2.0"}, "/metrics": [{"iter": 1}]},
)
def trtllm(api: str, _: dict[str, Any]) -> Iterator[bytes]:
    """A running usage is possible; both names of reasoning are in the protocol."""
    for i, text in enumerate(TOKENS):
        said: dict[str, Any] = {"delta": {"content": text, "reasoning_content": None, "reasoning": None}}
        said = said if api == "chat" else {"text": text, "token_ids": [i]}
        so_far = usage(completion_tokens=i + 1)
        yield event({**said, "finish_reason": None, "avg_decoded_tokens_per_iter": 1.0}, usage=so_far)
    yield event({**({"delta": {}} if api == "chat" else {"text": ""}), "finish_reason": "length"}, usage=usage())
    yield DONE


@face(
    "tgi",
    about={"/info": {"model_id": "m", "version": "3.3.7"}},
    routes={"/generate_stream": "completions", "/v1/chat/completions": "chat"},
    words_only=True,
)
def tgi(api: str, _: dict[str, Any]) -> Iterator[bytes]:
    """No space after the colon; its own route has one token an event, the counts on the last, and
    no [DONE].
    """
    if api == "chat":
        for text in TOKENS:
            yield event({"delta": {"role": "assistant", "content": text}, "finish_reason": None}).replace(
                b": ", b":", 1
            )
        yield event({"delta": {"role": "assistant", "content": ""}, "finish_reason": "length"})
        yield event(None, usage=usage())
        yield DONE
        return
    for i, text in enumerate(TOKENS):
        last = i == len(TOKENS) - 1
        details = {"finish_reason": "length", "generated_tokens": 4, "seed": None, "input_length": PROMPT}
        said = {
            "index": i + 1,
            "token": {"id": i, "text": text, "logprob": -0.1, "special": False},
            "generated_text": "".join(TOKENS) if last else None,
            "details": details if last else None,
        }
        yield sse(said).replace(b"data: ", b"data:")


@face("llamacpp", cached=2, owner="llamacpp", about={"/props": {"total_slots": 4, "build_info": "b6000"}})
def llamacpp(api: str, _: dict[str, Any]) -> Iterator[bytes]:
    """The role with a null content, pings, its timings beside the usage."""
    yield b":\n\n"
    if api == "chat":
        yield event({"delta": {"role": "assistant", "content": None}, "finish_reason": None})
    for text in TOKENS:
        yield event({**({"delta": {"content": text}} if api == "chat" else {"text": text}), "finish_reason": None})
        yield b": ping\n\n"
    yield event({**({"delta": {}} if api == "chat" else {"text": ""}), "finish_reason": "length"})
    yield event(None, usage=usage(), timings={"cache_n": 2, "prompt_n": 7, "prompt_ms": 1.5, "predicted_n": 4})
    yield DONE


@face(
    "ollama",
    owner="library",
    about={"/api/version": {"version": "0.12"}, "/api/ps": {"models": [{"model": "m"}]}},
    routes={"/api/generate": "completions", "/api/chat": "chat"},
    words_only=True,
)
def ollama(api: str, _: dict[str, Any]) -> Iterator[bytes]:
    """Lines of JSON; times in nanoseconds on the last."""
    for text in TOKENS:
        said = {"response": text} if api == "completions" else {"message": {"role": "assistant", "content": text}}
        yield json.dumps({"model": "m", "created_at": "now", **said, "done": False}).encode() + b"\n"
    said = {"response": ""} if api == "completions" else {"message": {"role": "assistant", "content": ""}}
    counts = {"prompt_eval_count": PROMPT, "eval_count": 4, "load_duration": 5_000_000, "eval_duration": 9_000_000}
    yield json.dumps({"model": "m", **said, "done": True, "done_reason": "length", **counts}).encode() + b"\n"


@face("openai", cached=2, words_only=True)
def openai(api: str, _: dict[str, Any]) -> Iterator[bytes]:
    """Every chunk has a null usage but the last, which has no choices."""
    if api == "chat":
        yield event({"delta": {"role": "assistant", "content": "", "refusal": None}, "finish_reason": None}, usage=None)
    for text in TOKENS:
        said = {"delta": {"content": text}} if api == "chat" else {"text": text}
        yield event({**said, "logprobs": None, "finish_reason": None}, usage=None)
    yield event({**({"delta": {}} if api == "chat" else {"text": ""}), "finish_reason": "length"}, usage=None)
    yield event(None, usage=usage(prompt_tokens_details={"cached_tokens": 2}))
    yield DONE


@face(None, routes=CHAT_ROUTE, words_only=True)
def thinker(api: str, _: dict[str, Any]) -> Iterator[bytes]:
    """OpenAI's reasoning models: what was thought is counted, and not sent."""
    *chunks, _last, done = openai(api, {})
    yield from chunks
    details = {"completion_tokens_details": {"reasoning_tokens": 60}}
    yield event(None, usage=usage(completion_tokens=64, **details))
    yield done


@face(None, routes=CHAT_ROUTE, words_only=True)
def openrouter(api: str, _: dict[str, Any]) -> Iterator[bytes]:
    """A gateway: comments while it waits, another name for reasoning."""
    yield b": OPENROUTER PROCESSING\n\n" * 3
    yield event({"delta": {"role": "assistant", "content": "", "reasoning": TOKENS[0]}, "finish_reason": None})
    for text in TOKENS[1:]:
        yield event({"delta": {"role": "assistant", "content": text}, "finish_reason": None})
    yield event({"delta": {"role": "assistant", "content": ""}, "finish_reason": "length"}, usage=usage())
    yield DONE


@face("openai", words_only=True)
def litellm(api: str, _: dict[str, Any]) -> Iterator[bytes]:
    """LiteLLM 1.103 before a vLLM: keys that are null are left out, the usage has a choice beside
    it, without text.
    """
    if api == "chat":
        yield event({"delta": {"role": "assistant", "content": ""}})
    for text in TOKENS:
        yield event({"delta": {"content": text}} if api == "chat" else {"text": text})
    yield event({"finish_reason": "length", **({"delta": {}} if api == "chat" else {})})
    details = {"completion_tokens_details": {"reasoning_tokens": 0, "text_tokens": 4}}
    yield event({"delta": {}} if api == "chat" else {}, usage=usage(**details))
    yield DONE


@face(None)
def unknowing(api: str, _: dict[str, Any]) -> Iterator[bytes]:
    """LiteLLM where the engine behind it tells no usage: one of zeros, in every chunk."""
    zeros = {"completion_tokens": 0, "prompt_tokens": 0, "total_tokens": 0}
    for text in TOKENS:
        yield event({"delta": {"content": text}} if api == "chat" else {"text": text}, usage=zeros)
    yield event({"finish_reason": "length", **({"delta": {}} if api == "chat" else {})}, usage=zeros)
    yield DONE


@face("openai")
def transformers(api: str, _: dict[str, Any]) -> Iterator[bytes]:
    """`transformers serve` 5.23: the usage beside the finish reason, and no [DONE]."""
    if api == "chat":
        yield event({"delta": {"role": "assistant"}})
    for text in TOKENS:
        yield event({"delta": {"content": text}} if api == "chat" else {"text": text})
    last = {"delta": {}} if api == "chat" else {"text": ""}
    yield event({**last, "finish_reason": "length"}, usage=usage())


KNOWN = {
    "model",
    "prompt",
    "messages",
    "stream",
    "stream_options",
    "max_tokens",
    "temperature",
    "ignore_eos",
    "min_tokens",
}


def complaint(name: str, body: dict[str, Any]) -> Any:
    """The answer to a request the engine does not take; None when it does."""
    prompt = body.get("prompt", body.get("inputs"))
    if name == "trtllm" and (extra := set(body) - KNOWN):
        return {"object": "error", "message": f"Extra inputs are not permitted: {sorted(extra)}", "code": 400}
    if name in ("openai", "thinker", "openrouter") and {"ignore_eos", "min_tokens"} & set(body):
        return {"error": {"message": "Unrecognized request argument supplied: ignore_eos", "param": None}}
    if name == "thinker" and {"max_tokens", "temperature"} & set(body):
        said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'."
        return {"error": {"message": said, "type": "invalid_request_error"}}
    if isinstance(prompt, list) and FACES[name].words_only:
        return {"error": "inputs must be a string", "error_type": "validation"}
    return None


def install(name: str) -> None:
    """Make `/NAME/...` of every hostile server answer as that engine."""
    known = FACES[name]

    async def answer(call: Call) -> None:
        route = call.path.removeprefix(f"/{name}").partition("?")[0]
        if route == "/v1/models":
            row = {"id": "m", "object": "model", "owned_by": known.owner}
            await call.json("200 OK", {"object": "list", "data": [row]})
        elif route in known.about:
            await call.json("200 OK", known.about[route])
        elif route in known.routes:
            await speak(call, name, known.routes[route])
        else:
            await call.json("404 Not Found", {"detail": "Not Found"})

    BEHAVIOURS[name] = answer


async def speak(call: Call, name: str, api: str) -> None:
    body = json.loads(call.body)
    said = complaint(name, body)
    if said is not None:
        await call.json("400 Bad Request", said)
        return
    kind = "application/x-ndjson" if name == "ollama" else "text/event-stream"
    keep = ("Keep-Alive: timeout=5, max=100",) if name == "llamacpp" else ()
    await call.head("Transfer-Encoding: chunked", *keep, kind=kind)
    for piece in FACES[name].speech(api, body):
        await call.raw(chunk(piece))
        await asyncio.sleep(0.002)
    await call.raw(b"0\r\n\r\n")
    call.keep = name != "llamacpp"
