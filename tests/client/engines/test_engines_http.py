"""Every engine's own way of answering, over HTTP: found out, asked what it takes, and counted
right."""

import asyncio
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest

from frontier.client.ask.preflight import Preflight, preflight
from frontier.client.ask.target import Target, Timeouts
from frontier.client.engines import ENGINES
from frontier.client.engines.request import Prompt
from frontier.client.http.http_client import Client
from frontier.client.http.parse import parse_all, to_record
from frontier.core.model.errors import MeasurementError
from frontier.core.model.trials import Outcome, Record
from tests.kit import faces
from tests.kit.golden import assert_golden_row
from tests.kit.hostile import BEHAVIOURS, Call, Hostile, chunk, sse
from tests.kit.neutral import neutral

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    for face in faces.FACES:
        faces.install(face)
    with Hostile() as running:
        yield running


def target(server: Hostile, name: str, **more: Any) -> Target:
    return Target(server.url(name) + "/v1", timeouts=Timeouts(2.0, 5.0, 2.0, 10.0), **more)


def look(target: Target) -> Preflight:
    return asyncio.run(preflight(target))


def ask(target: Target, times: int = 1) -> tuple[list[Record], Client]:
    dialect = ENGINES[target.dialect or "openai"]

    async def go() -> tuple[list[Record], Client]:
        async with Client(target) as client:
            body = dialect.body(target.api, "m", Prompt("hello", 0, 4))
            found = [await client.post(target.url(dialect.paths[target.api]), body) for _ in range(times)]
            parsers = [parse_all(exchange, dialect, target.api) for exchange in found]
            return [to_record(p, p.exchange.sent) for p in parsers], client

    return asyncio.run(go())


ANSWERS = [(name, face.dialect, face.cached) for name, face in faces.FACES.items() if face.dialect]


def test_every_engine_has_a_stand_in_in_tests_kit_faces() -> None:
    assert {dialect for _, dialect, _ in ANSWERS} == ENGINES.keys() - {"openai_reasoning"}


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize(("face", "dialect", "cached"), ANSWERS)
def test_an_engine_is_found_out_and_its_tokens_are_counted(
    server: Hostile, face: str, dialect: str, cached: int | None, api: str
) -> None:
    found = look(target(server, face, api=api))
    assert (dialect, api) == (found.target.dialect, found.target.api)
    (record,), _ = ask(found.target)
    assert (Outcome.OK, None, "length") == (record.outcome, record.error, record.finish_reason)
    assert (4, 9, 4, cached) == (
        record.events,
        record.prompt_tokens,
        record.completion_tokens,
        record.cached_tokens,
    )
    assert len(record.gaps) == 3
    assert record.text_chars == len("".join(faces.TOKENS)) - (5 if (face, api) == ("vllm", "completions") else 0)


@pytest.mark.parametrize("face", ["thinker", "openrouter"])
def test_a_hosted_api_is_taken_as_plain_openai_chat(server: Hostile, face: str) -> None:
    found = look(target(server, face))
    assert "chat" == found.target.api
    assert {"thinker": "openai_reasoning", "openrouter": "openai"}[face] == found.target.dialect
    (record,), _ = ask(found.target)
    assert (Outcome.OK, 4, 4) == (record.outcome, record.events, record.completion_tokens)


def test_a_usage_of_zeros_is_none(server: Hostile) -> None:
    with pytest.raises(MeasurementError) as refused:
        look(target(server, "unknowing"))
    assert_golden_row("messages", neutral(str(refused.value)))
    (record,), _ = ask(target(server, "unknowing", dialect="openai", api="chat"))
    assert (Outcome.OK, 4, None, None) == (
        record.outcome,
        record.events,
        record.prompt_tokens,
        record.completion_tokens,
    )


def test_an_engine_behind_a_gateway_is_forced_where_its_dialect_is_named(server: Hostile) -> None:
    before = len(server.bodies)
    found = look(target(server, "litellm", dialect="vllm", api="completions"))
    assert ("vllm", "completions", None) == (found.target.dialect, found.target.api, found.ids)
    sent = [json.loads(body) for path, body in server.bodies[before:] if path.startswith("/litellm/v1/completions")]
    assert sent
    assert all(body["ignore_eos"] and body["min_tokens"] for body in sent)


def test_thoughts_that_were_counted_and_not_sent_are_no_output(server: Hostile) -> None:
    # 64 tokens by the usage, 60 of them thought in silence: a TPOT over 64 would be sixteen times
    # too good.
    found = look(target(server, "thinker"))
    (record,), _ = ask(found.target)
    assert 4 == record.completion_tokens
    assert "warn" == next(check.state for check in found.checks if check.name == "output length")


def test_reasoning_that_is_sent_counts(server: Hostile) -> None:
    (record,), _ = ask(look(target(server, "sglang", api="chat")).target)
    assert record.first is not None
    assert record.visible is not None
    assert record.first < record.visible
    assert 4 == record.completion_tokens


def test_a_dialect_that_is_given_is_not_guessed(server: Hostile) -> None:
    found = look(target(server, "vllm", dialect="openai", api="chat"))
    assert "openai" == found.target.dialect
    sent = [json.loads(body) for path, body in server.bodies if path.startswith("/vllm/v1/chat")]
    assert "ignore_eos" not in sent[-1]
    assert (Outcome.OK, 4) == (ask(found.target)[0][0].outcome, ask(found.target)[0][0].events)


def test_a_wrong_dialect_is_told_and_not_believed(server: Hostile) -> None:
    for served, taken_for in (("trtllm", "llamacpp"), ("vllm", "ollama")):
        with pytest.raises(MeasurementError) as refused:
            look(target(server, served, dialect=taken_for))
        assert_golden_row("messages", neutral(str(refused.value)), f"{served} as {taken_for}")


def test_a_server_that_closes_what_it_promised_to_keep_loses_nothing(server: Hostile) -> None:
    found, client = ask(dataclasses.replace(look(target(server, "llamacpp", api="chat")).target), times=20)
    assert [Outcome.OK] * 20 == [r.outcome for r in found]
    assert client.resent == sum(r.resent for r in found)


def fragment(text: str) -> dict[str, Any]:
    return {"model": "m", "message": {"role": "assistant", "content": text}, "done": False}


async def ollama_tools(call: Call) -> None:
    """A tool call of Ollama's own route has its arguments as an object."""
    tool = {"function": {"name": "find", "arguments": {"x": 1}}}
    last = fragment("") | {"done": True, "done_reason": "stop", "eval_count": 2, "prompt_eval_count": 9}
    lines = [
        fragment("") | {"message": {"role": "assistant", "content": "", "tool_calls": [tool]}},
        fragment("a"),
        last,
    ]
    await call.head("Transfer-Encoding: chunked", kind="application/x-ndjson")
    for line in lines:
        await call.raw(chunk(json.dumps(line).encode() + b"\n"))
    await call.raw(b"0\r\n\r\n")


async def ollama_thinks(call: Call) -> None:
    """The last line comes without a newline, and lines are joined and cut."""
    thought = {"model": "m", "message": {"role": "assistant", "content": "", "thinking": "hm"}, "done": False}
    last = fragment("") | {"done": True, "done_reason": "stop", "eval_count": 2, "prompt_eval_count": 9}
    text = b"\n".join(json.dumps(line).encode() for line in (thought, fragment("a"), last))
    await call.head("Transfer-Encoding: chunked", kind="application/x-ndjson")
    for at in range(0, len(text), 50):
        await call.raw(chunk(text[at : at + 50]))
        await asyncio.sleep(0.001)
    await call.raw(b"0\r\n\r\n")


async def tgi_chat_error(call: Call) -> None:
    await call.stream(sse({"error": {"message": "Input validation error", "http_status_code": 422}}))


async def ollama_error(call: Call) -> None:
    await call.head("Transfer-Encoding: chunked", kind="application/x-ndjson")
    await call.raw(chunk(json.dumps(fragment("a")).encode() + b"\n"))
    await call.raw(chunk(b'{"error": "model runner has unexpectedly stopped"}\n') + b"0\r\n\r\n")


async def trtllm_refuses(call: Call) -> None:
    await call.json("400 Bad Request", {"object": "error", "message": "Extra inputs", "type": "BadRequestError"})


async def tgi_overloaded(call: Call) -> None:
    await call.json("429 Too Many Requests", {"error": "Model is overloaded", "error_type": "overloaded"})


SPECIAL = [
    (ollama_tools, "ollama", "chat", Outcome.OK, None, 2),
    (ollama_thinks, "ollama", "chat", Outcome.OK, None, 2),
    (tgi_chat_error, "tgi", "chat", Outcome.STREAM_ERROR, "Input validation error", 0),
    (ollama_error, "ollama", "chat", Outcome.STREAM_ERROR, "model runner has unexpectedly stopped", 1),
    (trtllm_refuses, "trtllm", "completions", Outcome.HTTP_ERROR, "HTTP 400: Extra inputs", 0),
    (tgi_overloaded, "tgi", "completions", Outcome.HTTP_ERROR, "HTTP 429: Model is overloaded", 0),
]


@pytest.mark.parametrize(("serve", "dialect", "api", "outcome", "error", "events"), SPECIAL)
def test_what_only_one_engine_does(
    server: Hostile, serve: Any, dialect: str, api: Any, outcome: Outcome, error: str | None, events: int
) -> None:
    BEHAVIOURS[serve.__name__] = serve
    (record,), _ = ask(target(server, serve.__name__, model="m", dialect=dialect, api=api))
    assert (outcome, error, events) == (record.outcome, record.error, record.events)
