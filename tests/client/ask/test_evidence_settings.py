"""What a server tells of its own settings: kept without secrets, and compared between runs."""

import asyncio
from typing import Any

import pytest

from frontier.client.ask.evidence import ask_settings, parse_metrics, told_settings
from frontier.client.ask.facts import Readings
from frontier.client.ask.target import Target
from frontier.client.http.http_client import Client
from frontier.extras.compare.comparison_tables import changed_settings
from tests.kit.golden import assert_golden_row
from tests.kit.hostile import BEHAVIOURS, Call, Hostile

SGLANG = {
    "model_path": "/models/m",
    "tokenizer_path": "/models/t",
    "max_running_requests": 128,
    "mem_fraction_static": 0.88,
    "api_key": "sk-aaaaaaaaaaaaaaaaaaaaaaaa",
    "admin_api_key": None,
    "max_total_num_tokens": 4096,
    "hf_token": "hf_b",
    "launch_command": "python -m sglang --api-key sk-aaaaaaaaaaaaaaaaaaaaaaaa",
    "internal_states": [{"load": 3}],
    "note": "this server's client is called secret-of-the-target",
}


def asked(dialect: str, routes: dict[str, Any]) -> dict[str, str]:
    async def serve(call: Call) -> None:
        route = call.path.removeprefix("/settings")
        await call.json("200 OK" if route in routes else "404 Not Found", routes.get(route, {}))

    async def ask(url: str) -> dict[str, str]:
        async with Client(Target(url, dialect=dialect, api_key="secret-of-the-target")) as client:
            return await ask_settings(client)

    BEHAVIOURS["settings"] = serve
    try:
        with Hostile() as server:
            return asyncio.run(ask(server.url("settings")))
    finally:
        del BEHAVIOURS["settings"]


@pytest.mark.process
@pytest.mark.parametrize("route", ["/server_info", "/get_server_info"])
def test_sglang_tells_its_arguments_on_its_new_or_old_route(route: str) -> None:
    told = asked("sglang", {route: SGLANG})
    expected = {
        "model_path": "/models/m",
        "tokenizer_path": "/models/t",
        "max_running_requests": "128",
        "mem_fraction_static": "0.88",
        "admin_api_key": "None",
        "max_total_num_tokens": "4096",
    }
    assert expected == {name: value for name, value in told.items() if name != "note"}
    assert "secret-of-the-target" not in str(told)


@pytest.mark.process
def test_an_engine_without_such_a_route_is_not_asked() -> None:
    assert asked("vllm", {"/server_info": SGLANG}) == {}
    assert asked("llamacpp", {"/props": {"total_slots": 4, "chat_template": "long"}}) == {"total_slots": "4"}


def test_vllm_tells_its_cache_settings_as_labels() -> None:
    readings = Readings("metrics")
    text = b'vllm:cache_config_info{block_size="16",kv_cache_size_tokens="4096",engine="0"} 1.0\n'
    readings.add(parse_metrics(text), 0.0)
    assert told_settings(readings.stored()) == {"block_size": "16", "kv_cache_size_tokens": "4096"}


def test_a_comparison_says_what_changed_and_nothing_where_a_server_told_nothing() -> None:
    before = {"d": {"gpu_memory_utilization": "0.9", "block_size": "16", "old": "1"}}
    after = {"e": {"gpu_memory_utilization": "0.95", "block_size": "16", "new": "2"}}
    (changes,) = changed_settings(before, "d", after, "e")
    assert_golden_row("answers", changes)
    assert [] == changed_settings(before, "d", before, "d")
    assert [] == changed_settings(before, "d", {}, "e")
    many = {"e": {f"flag{i:02}": "x" for i in range(20)}}
    assert_golden_row("answers", changed_settings(before, "d", many, "e")[0], "many")
