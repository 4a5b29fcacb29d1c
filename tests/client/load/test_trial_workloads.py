"""Every kind of load a config can ask for, as the server at the other end sees it."""

import asyncio
import contextlib
import json
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme

from frontier.client.http.http_client import run
from frontier.config import load_config
from frontier.core.model.trials import Outcome, Record
from frontier.planning.plan import make_plan
from frontier.sweep.backend import Facts, HttpBackend
from tests.kit.certificates import client_files, secure
from tests.kit.engine import Engine
from tests.kit.golden import assert_golden_row
from tests.kit.hostile import Hostile
from tests.kit.neutral import neutral
from tests.kit.proxies import Forward, listening

pytestmark = pytest.mark.process

SALT = 7


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with Hostile() as running:
        yield running


def load(
    url: str, shapes: str = "[100/4]", more: str = "", trials: int = 1, **environ: str
) -> tuple[list[Record], Facts]:
    """Prepare and run the first trials of a small config; all records."""
    config = load_config(
        f"endpoint: {url}/v1\nshapes: {shapes}\nconcurrency: [4]\nrequests: 60\nwarmup: 100ms\nmax_time: 4s\n"
        f"repeats: {trials}\n{more}",
        "t",
    )
    records: list[Record] = []

    async def go() -> Facts:
        backend = HttpBackend(config, environ, SALT)
        facts = await backend.prepare(config.deployments[0])
        for trial in make_plan(config).trials[:trials]:
            await backend.run(
                trial, expected_e2e=0.02, on_record=records.append, on_tick=lambda _: None, stop=asyncio.Event()
            )
        await backend.close()
        return facts

    facts = run(go())
    return [r for r in records if r.outcome is not Outcome.CANCELLED], facts


def quick(name: str, **options: Any) -> Engine:
    return Engine(name, ttft=0.005, itl=0.001, **options).install()


# --- lengths


@pytest.mark.parametrize(("ids", "per_word"), [(True, 1.0), (False, 1.3)], ids=["token ids", "words"])
@pytest.mark.parametrize(
    ("isl", "low", "high", "mean"),
    [("200", 200, 200, 200), ("{uniform: [100, 300]}", 100, 300, 200), ("{normal: [200, 30]}", 110, 290, 200)],
    ids=["fixed", "uniform", "normal"],
)
def test_input_lengths_are_those_asked_as_the_server_counts_them(
    server: Hostile, isl: str, low: int, high: int, mean: int, ids: bool, per_word: float
) -> None:
    name = f"w_{low}_{high}_{ids}"
    engine = quick(name, takes_ids=ids, tokens_per_word=per_word, template_tokens=0 if ids else 9)
    records, _ = load(server.url(name), f"[{{isl: {isl}, osl: 4}}]")
    assert {Outcome.OK} == {r.outcome for r in records}
    assert len(records) >= 60
    for record in records:
        assert record.prompt_tokens is not None
        assert low <= record.asked_isl <= high
        assert record.prompt_tokens == pytest.approx(record.asked_isl, abs=0 if ids else max(2, 0.015 * mean))
    drawn = [r.asked_isl for r in records]
    assert statistics.mean(drawn) == pytest.approx(mean, abs=0 if low == high else 25)
    assert (len(set(drawn)) > 20) is (low != high)
    assert ids is isinstance(engine.prompts[-1], list)


def test_output_lengths_are_drawn_and_forced(server: Hostile) -> None:
    quick("w_osl")
    records, _ = load(server.url("w_osl"), "[{isl: 50, osl: {uniform: [2, 9]}}]")
    assert {r.asked_osl for r in records} == set(range(2, 10))
    assert all(r.completion_tokens == r.asked_osl for r in records)


def test_natural_lengths_are_taken_as_they_come(server: Hostile) -> None:
    quick("w_natural", honours_length=False)
    records, _ = load(server.url("w_natural"), "[50/9]", "ignore_eos: false\n")
    assert ({3}, {0}) == ({r.completion_tokens for r in records}, {r.asked_osl for r in records})
    sent = [json.loads(body) for path, body in server.bodies if path.startswith("/w_natural")]
    assert not any("ignore_eos" in body for body in sent)


@pytest.mark.parametrize("ids", [True, False], ids=["token ids", "words"])
def test_a_shared_prefix_is_shared_and_the_rest_is_not(server: Hostile, ids: bool) -> None:
    engine = quick(f"w_prefix_{ids}", takes_ids=ids)
    load(server.url(engine.name), "[{isl: 200, osl: 2, prefix: 50%}]", trials=2)
    prompts = [p if isinstance(p, list) else p.split() for p in engine.prompts]
    load_only = [p for p in prompts if len(p) == 200]
    assert len(load_only) >= 120
    common = [tuple(p[:100]) for p in load_only]
    most = max(set(common), key=common.count)
    of_the_load = [p for p in load_only if tuple(p[:100]) == most]
    assert len(of_the_load) >= 120
    assert len({tuple(p[100:116]) for p in of_the_load}) == len(of_the_load)


# --- prompts of a file


def test_a_files_prompts_are_sent_as_they_are_each_pass_with_its_own_salt(server: Hostile, tmp_path: Path) -> None:
    quick("w_file")
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        "".join(json.dumps({"prompt": f"question {i}", "output_tokens": 2 + i % 3}) + "\n" for i in range(20))
    )
    before = len(server.bodies)
    records, facts = load(server.url("w_file"), "[100/4]", f"prompts: {file}\n", trials=2)
    sent = [json.loads(body) for path, body in server.bodies[before:] if path.startswith("/w_file")]
    questions = [body for body in sent if str(body["prompt"]).startswith("question")]
    assert {f"question {i}" for i in range(20)} == {body["prompt"] for body in questions}
    asked = [(body["max_tokens"], 2 + int(body["prompt"].split()[1]) % 3) for body in questions]
    assert all(a <= b for a, b in asked)
    assert sum(a != b for a, b in asked) <= 8, "only the first request of each stream, in two trials"
    pairs = [(body["prompt"], body["cache_salt"]) for body in questions]
    assert len(set(pairs)) == len(pairs), "no prompt meets itself"
    assert {0} == {r.asked_isl for r in records}
    assert not any("prompts:" in note for note in facts.notes)


def test_repeats_without_a_salt_are_noted(server: Hostile, tmp_path: Path) -> None:
    quick("w_plain", owner="someone")
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a b c"}\n')
    _, facts = load(server.url("w_plain"), "[100/4]", f"prompts: {file}\n")
    (note,) = (note for note in facts.notes if str(file) in note or "the file" in note)
    assert_golden_row("flags", neutral(note, tmp_path))
    assert not any(b"cache_salt" in body for path, body in server.bodies if path.startswith("/w_plain"))


def test_sharegpt_conversations_begin_with_their_first_question(server: Hostile, tmp_path: Path) -> None:
    engine = quick("w_share")
    talk = [
        {"from": "human", "value": "first question"},
        {"from": "gpt", "value": "x"},
        {"from": "human", "value": "y"},
    ]
    file = tmp_path / "share.json"
    file.write_text(json.dumps([{"id": "1", "conversations": talk}]))
    records, _ = load(server.url("w_share"), "[100/4]", f"prompts: {file}\n")
    assert {Outcome.OK} == {r.outcome for r in records}
    assert "first question" == engine.prompts[-1]


# --- body, headers, TLS, proxies


def test_extra_body_and_headers_go_with_every_request_and_secrets_come_from_the_environment(server: Hostile) -> None:
    quick("w_extra", key="sk-from-the-environment")
    more = (
        "extra_body: {temperature: 0.7, chat_template_kwargs: {enable_thinking: false}}\n"
        'headers: {X-Tenant: blue, X-Api-Token: "${MY_TOKEN}"}\napi_key_env: MY_KEY\n'
    )
    before = len(server.bodies), len(server.calls)
    records, facts = load(
        server.url("w_extra"), "[50/4]", more, MY_KEY="sk-from-the-environment", MY_TOKEN="tok-secret-123"
    )
    assert {Outcome.OK} == {r.outcome for r in records}
    for path, body in server.bodies[before[0] :]:
        if path.endswith("completions"):
            sent = json.loads(body)
            assert (0.7, {"enable_thinking": False}) == (sent["temperature"], sent["chat_template_kwargs"])
    for path, headers in server.calls[before[1] :]:
        if path.startswith("/w_extra"):
            assert ("blue", "tok-secret-123") == (headers["x-tenant"], headers["x-api-token"])
            assert "Bearer sk-from-the-environment" == headers["authorization"]
    assert "secret" not in repr(facts)
    assert "sk-from" not in repr(facts)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@contextlib.contextmanager
def guarded(authority: trustme.CA) -> Iterator[tuple[Hostile, str]]:
    """A server that wants a certificate of its clients; yields it with the config's tls block."""
    with Hostile(secure(authority, asks_clients=True)) as server, client_files(authority) as (ca, cert, key):
        yield server, f"tls: {{ca: {ca}, cert: {cert}, key: {key}}}\n"


def test_both_sides_show_their_certificates(authority: trustme.CA) -> None:
    quick("w_mtls")
    with guarded(authority) as (server, tls):
        records, _ = load(server.url("w_mtls"), "[50/4]", tls)
        assert {Outcome.OK} == {r.outcome for r in records}
        assert len(records) >= 60


@contextlib.contextmanager
def proxying(environ: pytest.MonkeyPatch, variable: str) -> Iterator[Forward]:
    """A forward proxy named in the environment, and nothing else there about proxies."""
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        environ.delenv(name, raising=False)
        environ.delenv(name.upper(), raising=False)
    proxy = Forward()
    with listening(proxy.serve) as address:
        environ.setenv(variable, address)
        yield proxy


def test_a_forward_proxy_is_gone_through_when_asked(server: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    quick("w_proxy")
    with proxying(monkeypatch, "http_proxy") as proxy:
        load(server.url("w_proxy"), "[50/4]")
        assert [] == proxy.seen
        records, _ = load(server.url("w_proxy"), "[50/4]", "proxy: env\n")
    assert {Outcome.OK} == {r.outcome for r in records}
    assert any(line.startswith(f"POST {server.url('w_proxy')}/v1/") for line in proxy.seen)


def test_tls_goes_through_a_proxys_tunnel(authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    quick("w_tunnel")
    with guarded(authority) as (server, tls), proxying(monkeypatch, "https_proxy") as proxy:
        records, _ = load(server.url("w_tunnel"), "[50/4]", tls + "proxy: env\n")
    assert {Outcome.OK} == {r.outcome for r in records}
    assert {f"CONNECT 127.0.0.1:{server.port}"} == set(proxy.seen)


def test_a_body_may_say_no_more_than_the_config(server: Hostile) -> None:
    """The control: without extras, what is sent is what the dialect lists."""
    quick("w_bare")
    load(server.url("w_bare"), "[50/4]")
    bodies: list[Mapping[str, Any]] = [json.loads(b) for path, b in server.bodies if path == "/w_bare/v1/completions"]
    keys = {"model", "stream", "stream_options", "temperature", "prompt", "max_tokens", "ignore_eos", "min_tokens"}
    assert {frozenset(keys)} == {frozenset(body) for body in bodies}
