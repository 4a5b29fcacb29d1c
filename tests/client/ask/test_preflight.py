"""What is asked of an endpoint before it is measured, and how it says no."""

import asyncio
import base64
import json
import re
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest
import trustme

from frontier.client.ask import preflight as module
from frontier.client.ask.identify import listed_context
from frontier.client.ask.preflight import Preflight, calibrate, preflight
from frontier.client.ask.prompts import random_prompts
from frontier.client.ask.target import Target, Timeouts
from frontier.client.ask.unmeasurable import stream_hint
from frontier.client.http.parse import COMPRESSED
from frontier.core.model.errors import MeasurementError, UsageError
from frontier.core.model.shapes import Lengths, Shape
from frontier.core.model.trials import Outcome, Record
from tests.kit import faces
from tests.kit.certificates import secure
from tests.kit.engine import Engine
from tests.kit.golden import assert_golden_row
from tests.kit.hostile import BEHAVIOURS, Call, Hostile, missing, sse
from tests.kit.neutral import neutral
from tests.kit.proxies import listening


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with Hostile() as running:
        yield running


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TRY_EVERY", 0.3)


def target(server: Hostile, name: str, **more: object) -> Target:
    return Target(server.url(name) + "/v1", timeouts=Timeouts(2.0, 5.0, 2.0, 10.0), **more)  # type: ignore[arg-type]


def look(target: Target) -> Preflight:
    return asyncio.run(preflight(target))


@pytest.mark.process
def test_a_vllm_is_settled_with_exact_token_id_prompts(server: Hostile) -> None:
    Engine("p_vllm").install()
    found = look(target(server, "p_vllm"))
    assert ("vllm", "completions", "m") == (found.target.dialect, found.target.api, found.target.model)
    assert ("vllm 0.11.0", ("m",), 4096) == (found.identity, found.models, found.max_model_len)
    assert (1000, 30000) == found.ids
    assert ["ok"] * len(found.checks) == [c.state for c in found.checks]
    assert found.ids == asyncio.run(calibrate(found, [100])).ids


@pytest.mark.process
def test_chat_is_taken_where_completions_is_missing(server: Hostile) -> None:
    Engine("p_chat", apis=("chat",), owner="someone", template_tokens=11).install()
    found = look(target(server, "p_chat"))
    assert ("openai", "chat", None) == (found.target.dialect, found.target.api, found.ids)


@pytest.mark.process
def test_words_are_the_fall_back_where_token_ids_are_refused(server: Hostile) -> None:
    Engine("p_text", takes_ids=False).install()
    found = look(target(server, "p_text"))
    assert ("completions", None) == (found.target.api, found.ids)


@pytest.mark.process
@pytest.mark.parametrize(("template", "per_word"), [(0, 1.0), (11, 1.0), (37, 1.31), (4, 2.6)])
def test_word_prompts_hit_the_asked_length_as_the_server_counts_it(
    server: Hostile, template: int, per_word: float
) -> None:
    name = f"p_cal_{template}_{per_word}"
    engine = Engine(name, template_tokens=template, tokens_per_word=per_word, apis=("chat",), ttft=0, itl=0).install()
    found = look(target(server, name))
    lengths = [64, 1000, 4000]
    calibration = asyncio.run(calibrate(found, lengths))
    for isl in (*lengths, 500, 2222):
        content = random_prompts(Shape.of(isl, 1), 3, calibration)(0).content
        assert engine.count(content) == pytest.approx(isl, abs=max(1.3 * per_word, 0.01 * isl))


@pytest.mark.process
def test_a_forced_length_that_is_not_honoured_is_told(server: Hostile) -> None:
    Engine("p_short", honours_length=False).install()
    found = look(target(server, "p_short"))
    assert [("output length", "warn")] == [(c.name, c.state) for c in found.checks if c.state == "warn"]


def refusal(target: Target, **more: float) -> MeasurementError:
    with pytest.raises(MeasurementError) as caught:
        asyncio.run(preflight(target, **more))  # type: ignore[arg-type]
    assert caught.value.hint
    return caught.value


@pytest.mark.process
def test_a_wrong_model_is_told_with_the_right_ones(server: Hostile) -> None:
    Engine("p_model", model="meta-llama/Llama-3.1-8B-Instruct").install()
    error = refusal(target(server, "p_model", model="llama-3.1-8b"))
    assert_golden_row("messages", neutral(str(error)))


def two_models(name: str, owner: str, **row: object) -> None:
    """A server that lists two models, of which the second is an adapter or not in memory."""
    engine = Engine(name, owner=owner)

    async def answer(call: Call) -> None:
        route = call.path.removeprefix(f"/{name}")
        if route == "/v1/models":
            rows = [{"id": "other", "owned_by": owner, **row}, {"id": "m", "owned_by": owner}]
            await call.json("200 OK", {"data": rows})
        elif route == "/api/ps":
            await call.json("200 OK", {"models": [{"model": "m"}]})
        else:
            await engine.answer(call)

    BEHAVIOURS[name] = answer


@pytest.mark.process
def test_of_several_models_one_must_be_named_or_the_loaded_one_is_picked(server: Hostile) -> None:
    two_models("p_lora", "vllm", parent="m")
    assert_golden_row("messages", neutral(str(refusal(target(server, "p_lora")))))
    found = asyncio.run(preflight(target(server, "p_lora"), pick=True))
    assert "m" == found.target.model
    assert "one of 2" in next(c.detail for c in found.checks if c.name == "model")
    two_models("p_two", "vllm")
    with pytest.raises(MeasurementError) as refused:
        asyncio.run(preflight(target(server, "p_two"), pick=True))
    assert_golden_row("messages", neutral(str(refused.value)), "none can be picked")


@pytest.mark.process
def test_the_loaded_model_of_an_ollama_is_picked(server: Hostile) -> None:
    faces.install("ollama")
    plain = BEHAVIOURS["ollama"]

    async def many(call: Call) -> None:
        if call.path.endswith("/v1/models"):
            await call.json("200 OK", {"data": [{"id": n, "owned_by": "library"} for n in ("big", "m", "small")]})
        else:
            await plain(call)

    async def rerouted(call: Call) -> None:
        call.path = call.path.replace("/p_ollama", "/ollama")
        await many(call)

    BEHAVIOURS["p_ollama"] = rerouted
    found = asyncio.run(preflight(target(server, "p_ollama"), pick=True))
    assert ("ollama", "m") == (found.target.dialect, found.target.model)


@pytest.mark.process
def test_a_hostile_name_is_printed_without_its_control_characters(server: Hostile) -> None:
    Engine("p_escape", model="\x1b[2J\x07evil").install()
    found = look(target(server, "p_escape"))
    assert found.checks
    assert all(check.detail.isprintable() for check in found.checks)
    assert "\x1b" not in refusal(target(server, "p_escape", model="good")).what


@pytest.mark.process
def test_nobody_there_is_told_with_the_number_of_tries() -> None:
    error = refusal(Target("http://127.0.0.1:1/v1"))
    assert_golden_row("messages", str(error))


@pytest.mark.process
def test_a_gateway_with_nobody_behind_it_is_not_ready(server: Hostile) -> None:
    error = refusal(target(server, "bad_gateway"))
    assert_golden_row("messages", neutral(str(error)))


@pytest.mark.process
def test_a_server_that_does_not_list_its_models_is_told_with_what_it_said(server: Hostile) -> None:
    nowhere = refusal(target(server, "no_such_thing"))
    assert_golden_row("messages", neutral(str(nowhere)), "404")

    async def answer(call: Call) -> None:
        await call.json("500 Internal Server Error", b"Internal Server Error")

    BEHAVIOURS["p_listless"] = answer
    listless = refusal(target(server, "p_listless"))
    assert_golden_row("messages", neutral(str(listless)), "500")


@pytest.mark.process
def test_a_web_page_is_told_as_that_and_not_as_a_missing_model(server: Hostile) -> None:
    async def answer(call: Call) -> None:
        await call.json("200 OK", b"<!doctype html><title>Welcome to nginx!</title>")

    BEHAVIOURS["p_page"] = answer
    error = refusal(target(server, "p_page"))
    assert all(words in error.what for words in ("web page", "nginx"))
    assert "model was named" not in error.what
    assert "/v1" in error.hint


@pytest.mark.process
def test_a_model_that_a_server_without_a_list_does_not_know_is_to_be_named_otherwise(server: Hostile) -> None:
    async def answer(call: Call) -> None:
        await call.json("404 Not Found", {"error": {"message": "The model `m` does not exist."}})

    BEHAVIOURS["p_unknown"] = answer
    error = refusal(target(server, "p_unknown", model="m"))
    assert "--set model=" in error.hint


@pytest.mark.process
def test_a_length_that_nothing_forces_is_no_promise(server: Hostile) -> None:
    engine = Engine("p_unforced", owner="someone").install()

    async def answer(call: Call) -> None:
        if call.method == "POST":  # a model that happens to go on
            call.body = json.dumps(json.loads(call.body) | {"ignore_eos": True}).encode()
        await engine.answer(call)

    BEHAVIOURS["p_unforced"] = answer
    said = "asked 16 tokens, got 16"
    for more, state, detail in (
        ({}, "note", f"{said}; nothing forces it, so longer answers may end early"),
        ({"extra_body": {"ignore_eos": True}}, "ok", said),
        ({"dialect": "vllm"}, "ok", said),
    ):
        (check,) = [c for c in look(target(server, "p_unforced", **more)).checks if c.name == "output length"]
        assert (state, detail) == (check.state, check.detail)


@pytest.mark.process
def test_a_missing_key_and_a_wrong_key_are_told_apart(server: Hostile) -> None:
    Engine("p_key", key="sk-right").install()
    assert_golden_row("messages", neutral(str(refusal(target(server, "p_key")))), "without a key")
    wrong = refusal(target(server, "p_key", api_key="sk-wrong"))
    assert_golden_row("messages", neutral(str(wrong)), "a wrong key")
    assert "m" == look(target(server, "p_key", api_key="sk-right")).target.model


@pytest.mark.process
def test_a_server_without_usage_cannot_be_measured(server: Hostile) -> None:
    Engine("p_usage", usage=False).install()
    assert "no token counts" in refusal(target(server, "p_usage")).what


@pytest.mark.parametrize(
    ("outcome", "error", "word"),
    [
        (Outcome.PROTOCOL, f"{COMPRESSED} (gzip) though identity was asked", "compresses"),
        (Outcome.TRUNCATED, "the stream ended without a finish reason or [DONE]", "closes"),
        (Outcome.PROTOCOL, "the answer is text/html, not a stream", "must stream"),
    ],
)
def test_a_stream_that_failed_has_the_way_out_of_its_cause(outcome: Outcome, error: str, word: str) -> None:
    assert word in stream_hint(Record(0, 0, 0.0, outcome, 1.0, 48, 16, error=error, status=200), None)


@pytest.mark.process
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
def test_a_usage_that_counts_one_side_is_told_with_the_other(server: Hostile, name: str) -> None:
    engine = Engine(f"half_{name}")
    engine.usage_of = lambda prompt, completion: {  # type: ignore[method-assign]
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        name: 0,
    }
    engine.install()
    assert name in refusal(target(server, engine.name)).what


@pytest.mark.process
def test_a_first_answer_without_usage_is_asked_for_again(server: Hostile) -> None:
    class LateUsage(Engine):
        async def complete(self, call: Call, api: str) -> None:
            self.usage = self.served >= 1
            await super().complete(call, api)

    LateUsage("late_usage").install()
    assert "m" == look(target(server, "late_usage")).target.model


@pytest.mark.process
def test_a_server_that_does_not_stream_cannot_be_measured(server: Hostile) -> None:
    error = refusal(target(server, "plain_json", model="m"))
    assert_golden_row("messages", neutral(str(error)))


@pytest.mark.process
@pytest.mark.parametrize(
    ("said", "settles"),
    [
        ("no_such_thing", "chat"),
        ("plain_json", "chat"),
        ("invalid", "chat"),
        ("not_ready", None),
        ("too_many", None),
        ("reset_mid", None),
        ("error_object", None),
    ],
)
def test_chat_is_measured_where_completions_are_not_there_and_not_where_they_just_failed(
    server: Hostile, said: str, settles: str | None
) -> None:
    async def answer(call: Call) -> None:
        if call.method == "POST" and not call.path.endswith("/chat/completions"):
            await BEHAVIOURS.get(said, missing)(call)
        else:
            await engine.answer(call)

    engine = Engine("p_half")
    BEHAVIOURS["p_half"] = answer
    if settles:
        assert settles == look(target(server, "p_half")).target.api
    else:
        assert "/v1/completions: " in refusal(target(server, "p_half")).what


def only_completions(name: str, said: str) -> None:
    """A server that lists its model, and answers a completion as the behaviour `said` does."""

    async def answer(call: Call) -> None:
        if call.method == "GET":
            await call.json("200 OK", {"data": [{"id": "m"}]})
        else:
            await BEHAVIOURS[said](call)

    BEHAVIOURS[name] = answer


@pytest.mark.process
@pytest.mark.parametrize(
    "said", ["too_many", "not_ready", "redirect", "invalid", "chatty_error", "error_object", "reset_mid", "html"]
)
def test_each_refusal_has_its_own_way_out(server: Hostile, said: str) -> None:
    only_completions(f"p_{said}", said)
    error = refusal(target(server, f"p_{said}"))
    assert (7.0 if said == "too_many" else None) == error.retry_after
    assert_golden_row("messages", neutral(str(error)))


def refusing(name: str, first: int, status: str, then_over: int = 0) -> Engine:
    """An engine whose first so many completions are refused with the status, and all with a longer
    body if asked.
    """
    engine = Engine(name, takes_ids=False, ttft=0, itl=0)
    left = [first]

    async def answer(call: Call) -> None:
        if call.method == "POST" and (left[0] or (then_over and len(call.body) > then_over)):
            left[0] = max(0, left[0] - 1)
            await call.json(status, {"error": "no"})
        else:
            await engine.answer(call)

    BEHAVIOURS[name] = answer
    return engine


@pytest.mark.process
def test_a_gateway_that_limits_its_callers_is_asked_again(server: Hostile) -> None:
    refusing("p_limits", 2, "503 Service Temporarily Unavailable")
    found = look(target(server, "p_limits"))
    assert "completions" == found.target.api
    refusing("p_limits", 1, "429 Too Many Requests")
    assert asyncio.run(calibrate(found, [64])).per_word == pytest.approx(1.0, abs=0.05)


@pytest.mark.process
@pytest.mark.parametrize("status", [413, 504])
def test_a_prompt_that_cannot_be_counted_is_told_with_a_way_out(server: Hostile, status: int) -> None:
    refusing("p_long", 0, f"{status} {HTTPStatus(status).phrase}", then_over=600)
    found = look(target(server, "p_long"))
    with pytest.raises(MeasurementError) as caught:
        asyncio.run(calibrate(found, [4000]))
    assert_golden_row("messages", neutral(str(caught.value)))


@pytest.mark.process
@pytest.mark.parametrize(("every", "counted"), [(2, True), (10**9, False)])
def test_a_prompt_is_counted_where_only_some_answers_tell_the_usage(server: Hostile, every: int, counted: bool) -> None:
    class Forgetful(Engine):
        async def complete(self, call: Call, api: str) -> None:
            self.usage = self.served < 2 or self.served % every == 0
            await super().complete(call, api)

    engine = Forgetful(f"forgetful{every}", takes_ids=False, ttft=0.0, itl=0.0)
    engine.install()
    found = asyncio.run(preflight(Target(server.url(engine.name))))
    if counted:
        assert asyncio.run(calibrate(found, [64])).per_word == pytest.approx(1.0, abs=0.05)
    else:
        with pytest.raises(MeasurementError) as refused:
            asyncio.run(calibrate(found, [64]))
        assert_golden_row("messages", neutral(str(refused.value)))


@pytest.mark.process
def test_a_prompt_is_counted_by_an_answer_whose_only_token_has_no_text(server: Hostile) -> None:
    class HeldBack(Engine):
        async def speak(self, call: Call, api: str, tokens: int, prompt_tokens: int) -> None:
            if tokens > 1:
                await super().speak(call, api, tokens, prompt_tokens)
                return
            end = {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}
            usage = {"choices": [], "usage": self.usage_of(prompt_tokens, tokens)}
            await call.stream(sse(end), sse(usage), b"data: [DONE]\n\n", gap=0)

    engine = HeldBack("held_back", takes_ids=False, ttft=0.0, itl=0.0, owner="me")
    engine.install()
    found = asyncio.run(preflight(Target(server.url(engine.name))))
    assert asyncio.run(calibrate(found, [64])).per_word == pytest.approx(1.0, abs=0.05)


@pytest.mark.process
def test_a_server_that_says_nothing_is_waited_for_once(server: Hostile) -> None:
    only_completions("p_silent", "slow_first_byte")
    error = refusal(Target(server.url("p_silent"), timeouts=Timeouts(1.0, 0.3, 5.0, 5.0)))
    assert_golden_row("messages", neutral(str(error)))
    assert 1 == server.asked("p_silent")


@pytest.mark.process
@pytest.mark.parametrize("name", ["endless_tokens", "endless_pings"])
def test_an_answer_without_end_is_given_up(server: Hostile, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontier.client.http.exchange._ENDLESS", 0.5)
    monkeypatch.setattr("frontier.client.http.exchange._EVENTS_BESIDE", 0)
    only_completions(f"p_{name}", name)
    began = time.monotonic()
    error = refusal(Target(server.url(f"p_{name}"), timeouts=Timeouts(1.0, 2.0, 5.0, 1800.0)))
    assert time.monotonic() - began < 10
    assert_golden_row("messages", re.sub(r"127.0.0.1:\d+", "...", str(error)))


@pytest.mark.process
def test_an_answer_longer_than_asked_that_ends_is_measured(server: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    class Long(Engine):
        async def speak(self, call: Call, api: str, tokens: int, prompt_tokens: int) -> None:
            await super().speak(call, api, 20 * tokens, prompt_tokens)

    Long("p_longer", ttft=0.0, itl=0.0).install()
    found = look(target(server, "p_longer"))
    assert 320 == found.probe.completion_tokens
    assert "warn" == next(check.state for check in found.checks if check.name == "output length")


@pytest.mark.process
def test_usage_behind_the_end_of_a_stream_is_told_as_that(server: Hostile) -> None:
    class Behind(Engine):
        async def speak(self, call: Call, api: str, tokens: int, prompt_tokens: int) -> None:
            events = [sse({"choices": [{"text": f" t{i}", "finish_reason": None}]}) for i in range(tokens)]
            end = sse({"choices": [{"text": "", "finish_reason": "length"}]})
            usage = sse({"choices": [], "usage": self.usage_of(prompt_tokens, tokens)})
            await call.stream(*events, end, b"data: [DONE]\n\n", usage, gap=0)

    Behind("p_behind").install()
    error = refusal(target(server, "p_behind"))
    assert "no token counts" not in error.what
    assert error.what.index("usage") < error.what.index("[DONE]")


class Still:
    """A heartbeat that finds that the event loop stood still for so long."""

    longest = 0.0

    async def __aenter__(self) -> "Still":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


@pytest.mark.process
@pytest.mark.parametrize(("still", "state"), [(0.0, "warn"), (0.3, "note")])
def test_an_answer_in_one_piece_is_the_servers_fault_unless_the_client_stood_still(
    server: Hostile, monkeypatch: pytest.MonkeyPatch, still: float, state: str
) -> None:
    monkeypatch.setattr(Still, "longest", still)
    monkeypatch.setattr(module, "Heartbeat", Still)
    only_completions("p_lump", "one_lump")
    (check,) = [c for c in look(target(server, "p_lump", api="chat")).checks if c.name == "unbuffered"]
    assert state == check.state
    assert ("busy" in check.detail) is (still > 0)
    if not still:
        assert_golden_row("messages", check.detail)


@pytest.mark.process
def test_a_stream_that_a_pause_of_the_client_gathered_is_asked_for_again(
    server: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pause(self: object, *given: object) -> object:
        if not asked:
            asyncio.get_running_loop().call_later(0.005, time.sleep, 0.4)
        asked.append(1)
        return usual(self, *given)

    asked: list[int] = []
    usual = module._Questions._with_fields_taken
    monkeypatch.setattr(module._Questions, "_with_fields_taken", pause)
    Engine("p_paused", ttft=0.05).install()
    (check,) = [c for c in look(target(server, "p_paused")).checks if c.name == "unbuffered"]
    assert "ok" == check.state
    assert len(asked) > 1


@pytest.mark.process
def test_a_redirect_is_told_with_its_aim(server: Hostile) -> None:
    assert f"redirect to http://localhost:{server.port}/good" in refusal(target(server, "redirect", model="m")).what


@pytest.mark.process
def test_tls_trouble_is_not_tried_again(server: Hostile) -> None:
    error = refusal(Target(server.url("good").replace("http:", "https:")))
    assert "no secure connection" in error.what


@pytest.mark.process
def test_https_to_a_plain_port_is_told_as_such(server: Hostile) -> None:
    error = refusal(Target(server.url("good").replace("http:", "https:")))
    assert server.url("good") in (error.hint or "")
    assert_golden_row("messages", neutral(error.hint or ""))


@pytest.mark.process
def test_http_to_a_port_of_tls_is_told_as_such() -> None:
    with Hostile(secure(trustme.CA())) as server:
        error = refusal(Target(server.url("good").replace("https:", "http:")))
        assert server.url("good") in (error.hint or "")
        assert_golden_row("messages", neutral(error.hint or ""))


@pytest.mark.process
def test_a_certificate_of_an_unknown_authority_is_refused_with_its_way_out() -> None:
    authority = trustme.CA()
    with Hostile(secure(authority)) as server, authority.cert_pem.tempfile() as ca_file:
        Engine("p_tls").install()
        error = refusal(target(server, "p_tls"))
        assert "no secure connection" in error.what
        assert "tls: {ca: FILE}" in (error.hint or "")
        assert "m" == look(target(server, "p_tls", ca_file=ca_file)).target.model


@pytest.mark.process
def test_a_proxy_that_is_not_there_is_named(server: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    error = refusal(target(server, "good", trust_env=True))
    assert "127.0.0.1:1 " in error.what
    assert_golden_row("messages", neutral(str(error)))


@pytest.mark.process
def test_a_proxy_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")

    with listening(no) as proxy:
        monkeypatch.setenv("https_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        error = refusal(Target("https://elsewhere.invalid/v1", trust_env=True))
    assert_golden_row("messages", neutral(str(error)))


@pytest.mark.process
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_gets_its_password_and_nobody_reads_it(
    scheme: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    heads: list[str] = []

    async def parrot(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        said = next((line for line in head.splitlines() if line.startswith("Proxy-Authorization")), "nothing")
        body = f'{{"error": "{said} hunter2%21and-more"}}'
        writer.write(f"HTTP/1.1 401 {said}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    (tmp_path / ".netrc").write_text("machine elsewhere.invalid login me password netrc-password\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("no_proxy", raising=False)
    with listening(parrot) as proxy:
        monkeypatch.setenv(f"{scheme}_proxy", proxy.replace("://", "://me:hunter2%21and-more@"))
        error = refusal(Target(f"{scheme}://elsewhere.invalid/v1", trust_env=True))
    coded = base64.b64encode(b"me:hunter2!and-more").decode()
    assert any(f"Proxy-Authorization: Basic {coded}\r\n" in head for head in heads)
    assert not any("\r\nAuthorization:" in head for head in heads), "what ~/.netrc holds is not sent"
    assert "***" in error.what
    assert not any(one in error.what for one in ("hunter2", coded[:12], coded[6:14]))


def test_a_tls_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError) as refused:
        asyncio.run(preflight(Target("https://127.0.0.1:1/v1", ca_file="no-such-ca.pem")))
    assert_golden_row("messages", str(refused.value))


def test_an_unknown_host_is_told() -> None:
    error = refusal(Target("http://no-such-host.invalid/v1", timeouts=Timeouts(connect=1.0)))
    assert "no-such-host.invalid" in error.what


def test_a_base_url_must_be_one() -> None:
    for wrong in ("localhost:8000", "ftp://host/v1", "http://", ""):
        with pytest.raises(UsageError):
            Target(wrong)


def test_the_base_url_is_understood_with_and_without_v1() -> None:
    for base in ("http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"):
        assert "http://h:1/v1/models" == Target(base).url("/v1/models")


@pytest.mark.parametrize(
    ("base", "chat", "metrics"),
    [
        ("http://h:1/v1/chat/completions", "http://h:1/v1/chat/completions", "http://h:1/metrics"),
        ("http://h:1/llm/v1/completions/", "http://h:1/llm/v1/chat/completions", "http://h:1/llm/metrics"),
        ("https://h/api/paas/v4", "https://h/api/paas/v4/chat/completions", "https://h/api/paas/v4/metrics"),
        ("https://h/v1beta/openai/", "https://h/v1beta/openai/chat/completions", "https://h/v1beta/openai/metrics"),
        ("https://h/openai/chat/completions", "https://h/openai/chat/completions", "https://h/openai/metrics"),
        (
            "http://h:1/api/v1/namespaces/a/services/b:80/proxy",
            "http://h:1/api/v1/namespaces/a/services/b:80/proxy/v1/chat/completions",
            "http://h:1/api/v1/namespaces/a/services/b:80/proxy/metrics",
        ),
        ("https://v2.h/openai", "https://v2.h/openai/v1/chat/completions", "https://v2.h/openai/metrics"),
    ],
)
def test_an_address_with_its_version_or_its_route_is_taken_as_it_is(base: str, chat: str, metrics: str) -> None:
    assert (chat, metrics) == (Target(base).url("/v1/chat/completions"), Target(base).url("/metrics"))


@pytest.mark.process
def test_waiting_outlasts_a_server_that_is_still_loading() -> None:
    Engine("late").install()
    with Hostile() as early:
        pass
    # Nobody listens on that port until a second server takes it.
    late = Hostile()
    late.port = early.port
    timer = threading.Timer(1.5, late.__enter__)
    timer.start()
    began = time.perf_counter()
    try:
        found = asyncio.run(preflight(Target(early.url("late") + "/v1"), wait=10.0))
    finally:
        timer.join()
        late.__exit__(None, None, None)
    assert "m" == found.target.model
    assert time.perf_counter() - began > 1.2


@pytest.mark.parametrize(
    "lengths",
    [Lengths.fixed(200), Lengths.uniform(50, 300), Lengths.normal(200, 30)],
    ids=["fixed", "uniform", "normal"],
)
def test_drawn_lengths_are_those_asked(lengths: Lengths) -> None:
    source = random_prompts(Shape(lengths, Lengths.fixed(4)), 5)
    for index in range(50):
        prompt = source(index)
        assert isinstance(prompt.content, str)
        assert prompt.isl == len(prompt.content.split())
        assert lengths.low <= prompt.isl <= lengths.high


@pytest.mark.parametrize(("said", "known"), [(-1, None), (0, None), (True, None), ("9", None), (9, 9)])
def test_a_context_is_a_number_of_tokens(said: object, known: int | None) -> None:
    assert listed_context({"data": [{"id": "m", "max_model_len": said}]}) == known
