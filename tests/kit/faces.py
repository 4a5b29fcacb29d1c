"""The engines' faces, as each one's own source has them: routes, rejections, and the way the tokens
are written.

Every face answers four tokens of nine asked-for prompt tokens; `/FACE/...` of a hostile server.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.kit.hostile import BEHAVIOURS, DONE, Call, chunk, sse

TOKENS = (" one", " two", " three", " four")
PROMPT = 9

Face = Callable[[str, dict[str, Any]], Iterator[bytes]]


def usage(**more: Any) -> dict[str, Any]:
    return {"prompt_tokens": PROMPT, "completion_tokens": len(TOKENS), "total_tokens": PROMPT + len(TOKENS), **more}


def event(choice: dict[str, Any] | None, **more: Any) -> bytes:
    return sse({"id": "x", "created": 1, "model": "m", "choices": [{"index": 0, **choice}] if choice else [], **more})


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


def trtllm(api: str, _: dict[str, Any]) -> Iterator[bytes]:
    """A running usage is possible; both names of reasoning are in the protocol."""
    for i, text in enumerate(TOKENS):
        said: dict[str, Any] = {"delta": {"content": text, "reasoning_content": None, "reasoning": None}}
        said = said if api == "chat" else {"text": text, "token_ids": [i]}
        so_far = usage(completion_tokens=i + 1)
        yield event({**said, "finish_reason": None, "avg_decoded_tokens_per_iter": 1.0}, usage=so_far)
    yield event({**({"delta": {}} if api == "chat" else {"text": ""}), "finish_reason": "length"}, usage=usage())
    yield DONE


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


def ollama(api: str, _: dict[str, Any]) -> Iterator[bytes]:
    """Lines of JSON; times in nanoseconds on the last."""
    for text in TOKENS:
        said = {"response": text} if api == "completions" else {"message": {"role": "assistant", "content": text}}
        yield json.dumps({"model": "m", "created_at": "now", **said, "done": False}).encode() + b"\n"
    said = {"response": ""} if api == "completions" else {"message": {"role": "assistant", "content": ""}}
    counts = {"prompt_eval_count": PROMPT, "eval_count": 4, "load_duration": 5_000_000, "eval_duration": 9_000_000}
    yield json.dumps({"model": "m", **said, "done": True, "done_reason": "length", **counts}).encode() + b"\n"


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


def thinker(api: str, _: dict[str, Any]) -> Iterator[bytes]:
    """OpenAI's reasoning models: what was thought is counted, and not sent."""
    *chunks, _last, done = openai(api, {})
    yield from chunks
    details = {"completion_tokens_details": {"reasoning_tokens": 60}}
    yield event(None, usage=usage(completion_tokens=64, **details))
    yield done


def openrouter(api: str, _: dict[str, Any]) -> Iterator[bytes]:
    """A gateway: comments while it waits, another name for reasoning."""
    yield b": OPENROUTER PROCESSING\n\n" * 3
    yield event({"delta": {"role": "assistant", "content": "", "reasoning": TOKENS[0]}, "finish_reason": None})
    for text in TOKENS[1:]:
        yield event({"delta": {"role": "assistant", "content": text}, "finish_reason": None})
    yield event({"delta": {"role": "assistant", "content": ""}, "finish_reason": "length"}, usage=usage())
    yield DONE


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


def unknowing(api: str, _: dict[str, Any]) -> Iterator[bytes]:
    """LiteLLM where the engine behind it tells no usage: one of zeros, in every chunk."""
    zeros = {"completion_tokens": 0, "prompt_tokens": 0, "total_tokens": 0}
    for text in TOKENS:
        yield event({"delta": {"content": text}} if api == "chat" else {"text": text}, usage=zeros)
    yield event({"finish_reason": "length", **({"delta": {}} if api == "chat" else {})}, usage=zeros)
    yield DONE


def transformers(api: str, _: dict[str, Any]) -> Iterator[bytes]:
    """`transformers serve` 5.23: the usage beside the finish reason, and no [DONE]."""
    if api == "chat":
        yield event({"delta": {"role": "assistant"}})
    for text in TOKENS:
        yield event({"delta": {"content": text}} if api == "chat" else {"text": text})
    last = {"delta": {}} if api == "chat" else {"text": ""}
    yield event({**last, "finish_reason": "length"}, usage=usage())


FACES: dict[str, Face] = {
    f.__name__: f
    for f in (
        vllm,
        sglang,
        trtllm,
        tgi,
        llamacpp,
        ollama,
        openai,
        thinker,
        openrouter,
        litellm,
        unknowing,
        transformers,
    )
}

OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp", "trtllm": "tensorrt_llm", "ollama": "library"}

# What a face says beside the load, by route.
ABOUT: dict[str, dict[str, Any]] = {
    "vllm": {"/version": {"version": "0.32.0"}},
    "sglang": {"/server_info": {"version": "0.5.23"}},
    "trtllm": {"/version": {"version": "1.2.0"}, "/metrics": [{"iter": 1}]},
    "tgi": {"/info": {"model_id": "m", "version": "3.3.7"}},
    "llamacpp": {"/props": {"total_slots": 4, "build_info": "b6000"}},
    "ollama": {"/api/version": {"version": "0.12"}, "/api/ps": {"models": [{"model": "m"}]}},
}

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


def complaint(face: str, body: dict[str, Any]) -> Any:
    """The answer to a request the engine does not take; None when it does."""
    prompt = body.get("prompt", body.get("inputs"))
    if face == "trtllm" and (extra := set(body) - KNOWN):
        return {"object": "error", "message": f"Extra inputs are not permitted: {sorted(extra)}", "code": 400}
    if face in ("openai", "thinker", "openrouter") and {"ignore_eos", "min_tokens"} & set(body):
        return {"error": {"message": "Unrecognized request argument supplied: ignore_eos", "param": None}}
    if face == "thinker" and {"max_tokens", "temperature"} & set(body):
        said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'."
        return {"error": {"message": said, "type": "invalid_request_error"}}
    if isinstance(prompt, list) and face in ("tgi", "ollama", "openai", "thinker", "openrouter", "litellm"):
        return {"error": "inputs must be a string", "error_type": "validation"}
    return None


CHATS_ONLY = {"thinker", "openrouter"}
ROUTES = {
    "/v1/completions": "completions",
    "/v1/chat/completions": "chat",
    "/generate_stream": "completions",
    "/api/generate": "completions",
    "/api/chat": "chat",
}
OWN_ROUTES = {"tgi": {"/generate_stream", "/v1/chat/completions"}, "ollama": {"/api/generate", "/api/chat"}}
DEFAULT_ROUTES = {"/v1/completions", "/v1/chat/completions"}


def install(face: str) -> None:
    """Make `/FACE/...` of every hostile server answer as that engine."""

    async def answer(call: Call) -> None:
        route = call.path.removeprefix(f"/{face}").partition("?")[0]
        about = ABOUT.get(face, {})
        if route == "/v1/models":
            row = {"id": "m", "object": "model", "owned_by": OWNERS.get(face, "someone")}
            await call.json("200 OK", {"object": "list", "data": [row]})
        elif route in about:
            await call.json("200 OK", about[route])
        elif route in OWN_ROUTES.get(face, DEFAULT_ROUTES) and not (
            face in CHATS_ONLY and ROUTES[route] == "completions"
        ):
            await speak(call, face, ROUTES[route])
        else:
            await call.json("404 Not Found", {"detail": "Not Found"})

    BEHAVIOURS[face] = answer


async def speak(call: Call, face: str, api: str) -> None:
    body = json.loads(call.body)
    said = complaint(face, body)
    if said is not None:
        await call.json("400 Bad Request", said)
        return
    kind = "application/x-ndjson" if face == "ollama" else "text/event-stream"
    keep = ("Keep-Alive: timeout=5, max=100",) if face == "llamacpp" else ()
    await call.head("Transfer-Encoding: chunked", *keep, kind=kind)
    for piece in FACES[face](api, body):
        await call.raw(chunk(piece))
        await asyncio.sleep(0.002)
    await call.raw(b"0\r\n\r\n")
    call.keep = face != "llamacpp"
