"""The checklist of a server, each line against a server that does the thing and one that does
not."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from frontier.cli.probe_checklist import probe
from frontier.client.ask.found_servers import find_servers
from frontier.client.ask.preflight import Check, preflight, settle_salt
from frontier.client.ask.target import Target, Timeouts
from tests.kit import faces
from tests.kit.engine import Engine
from tests.kit.golden import assert_golden_row
from tests.kit.hostile import BEHAVIOURS, Call, Hostile
from tests.kit.neutral import neutral

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with Hostile() as running:
        yield running


def target(server: Hostile, name: str, **more: Any) -> Target:
    return Target(server.url(name) + "/v1", timeouts=Timeouts(2.0, 5.0, 2.0, 10.0), **more)


def checks(target: Target) -> dict[str, Check]:
    return {check.name: check for check in asyncio.run(probe(target))}


def quick(name: str, **options: Any) -> Engine:
    return Engine(name, ttft=0.01, itl=0.002, **options).install()


def vllm_with_cache(name: str, *, salted: bool = True, tells: bool = True) -> None:
    """An engine with a prefix cache, which it `tells` of. Not `salted`: it refuses a salt."""
    engine = quick(name)
    seen: set[str] = set()
    hit: list[int] = []

    def usage(prompt: int, completion: int) -> dict[str, Any]:
        details = {"prompt_tokens_details": {"cached_tokens": hit[-1]}} if tells else {}
        return {"prompt_tokens": prompt, "completion_tokens": completion, **details}

    engine.usage_of = usage

    async def answer(call: Call) -> None:
        route = call.path.removeprefix(f"/{name}")
        if route.endswith("completions"):
            body = json.loads(call.body)
            if not salted and "cache_salt" in body:
                await call.json("400 Bad Request", {"error": {"message": "cache_salt is not supported"}})
                return
            content = str(body.get("prompt") or body["messages"])
            key = content + str(body.get("cache_salt"))
            hit.append(496 if key in seen and len(content.split()) > 100 else 0)
            seen.add(key)
        await engine.answer(call)

    BEHAVIOURS[name] = answer


def test_a_good_server_is_a_list_of_good_lines(server: Hostile) -> None:
    vllm_with_cache("pr_good")
    found = checks(target(server, "pr_good"))
    assert [
        "reachable",
        "engine",
        "model",
        "streams",
        "authorisation",
        "usage",
        "output length",
        "tokens per chunk",
        "unbuffered",
        "speed",
        "exact input length",
        "connections",
        "prefix cache",
        "metrics",
        "client",
    ] == list(found)
    assert {"ok"} == {check.state for check in found.values()}
    assert "1.00" == found["tokens per chunk"].detail
    assert found["unbuffered"].detail.startswith("16 tokens in ")
    told = ("prefix cache", "metrics", "connections", "model")
    assert_golden_row("pages", neutral("\n".join(f"{name}: {found[name].detail}" for name in told)))


def test_a_server_that_does_not_tell_cached_tokens_is_noted(server: Hostile) -> None:
    vllm_with_cache("pr_silent", tells=False)
    check = checks(target(server, "pr_silent"))["prefix cache"]
    assert "note" == check.state
    assert "unknown" in check.detail


def test_several_tokens_in_a_chunk_are_a_warning(server: Hostile) -> None:
    quick("pr_several", tokens_per_event=4)
    check = checks(target(server, "pr_several"))["tokens per chunk"]
    assert ("warn", "4.00") == (check.state, check.detail.partition(";")[0])
    assert_golden_row("pages", check.detail)


def test_a_server_that_closes_its_connections_is_noted(server: Hostile) -> None:
    faces.install("llamacpp")
    found = checks(target(server, "llamacpp"))
    assert "note" == found["connections"].state
    assert "opened for 4 requests" in found["connections"].detail
    assert "note" == found["metrics"].state
    assert "on: 2 of 9 tokens" in found["prefix cache"].detail


def test_a_prompt_that_a_proxy_finds_too_long_is_told_with_its_words(server: Hostile) -> None:
    engine = quick("pr_413")

    async def answer(call: Call) -> None:
        if len(call.body) > 1024:
            await call.json("413 Request Entity Too Large", {"error": "body too large"})
        else:
            await engine.answer(call)

    BEHAVIOURS["pr_413"] = answer
    check = checks(target(server, "pr_413"))["prefix cache"]
    assert "warn" == check.state
    assert_golden_row("pages", check.detail)


def test_a_key_is_taken_or_not_asked_for(server: Hostile) -> None:
    quick("pr_key", key="sk-right")
    taken = checks(target(server, "pr_key", api_key="sk-right"))["authorisation"]
    assert "ok" == taken.state
    assert_golden_row("pages", taken.detail)
    wrong = checks(target(server, "pr_key", api_key="sk-wrong"))
    assert ["reachable", "usable", "client"] == list(wrong)
    assert "fail" == wrong["usable"].state
    assert_golden_row("pages", neutral(wrong["usable"].detail), "a wrong key")


def test_probe_never_raises_and_names_the_failure(server: Hostile) -> None:
    bad = checks(target(server, "plain_json", model="m"))
    assert "fail" == bad["usable"].state
    assert "no streamed answer" in bad["usable"].detail
    gone = checks(Target("http://127.0.0.1:1/v1"))
    assert "cannot reach" in gone["usable"].detail


def test_a_salt_that_is_refused_is_not_sent_in_a_sweep(server: Hostile) -> None:
    vllm_with_cache("pr_refuses", salted=False)
    vllm_with_cache("pr_takes")

    async def settled(name: str) -> bool:
        return (await settle_salt(await preflight(target(server, name)))).target.salted

    assert (False, True) == (asyncio.run(settled("pr_refuses")), asyncio.run(settled("pr_takes")))


def test_servers_are_found_on_ports_and_others_are_told_apart() -> None:
    """Each behaviour is at the root here, as a server of its own."""

    async def web(call: Call) -> None:
        await call.json("404 Not Found", {"detail": "no such page"})

    def at_root(name: str) -> Hostile:
        engine = BEHAVIOURS[name]

        class Rooted(Hostile):
            async def dispatch(self, call: Call) -> None:
                call.path = f"/{name}{call.path}"
                await engine(call)

        return Rooted()

    faces.install("ollama")
    BEHAVIOURS["plain_web"] = web
    quick("root_vllm")
    with at_root("root_vllm") as one, at_root("plain_web") as two, at_root("ollama") as three:
        found = asyncio.run(find_servers((one.port, two.port, 1, three.port)))
    assert {
        f"http://127.0.0.1:{one.port}/v1": "vllm 0.11.0",
        f"http://127.0.0.1:{three.port}/v1": "ollama 0.12",
    } == found


def test_a_count_of_prompts_that_never_grows_is_a_line(server: Hostile) -> None:
    engine = quick("constant")
    engine.usage_of = lambda _, completion: {"prompt_tokens": 24, "completion_tokens": completion}
    found = checks(target(server, "constant"))
    assert found["prompt tokens"].state == "note"
    assert "24 for" in found["prompt tokens"].detail
    quick("counts")
    assert "prompt tokens" not in checks(target(server, "counts"))
