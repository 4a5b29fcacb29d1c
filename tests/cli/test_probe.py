"""`frontier probe` as a user meets it: an address, a config, or nothing at all."""

import asyncio
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from frontier.cli import probe as probe
from frontier.client.ask import found_servers as discover
from frontier.client.ask.preflight import preflight
from frontier.client.ask.target import Target
from frontier.core.model.errors import UsageError
from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from tests.kit import servers
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(EngineSpec.from_mapping({"step_base": "2ms"})) as running:
        yield running


def run(*arguments: str) -> Result:
    return CliRunner().invoke(probe.command, arguments, standalone_mode=False)


@pytest.mark.process
def test_a_server_is_found_without_an_address(simulator: SimulatorProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    port = int(simulator.url.removesuffix("/v1").rpartition(":")[2])
    monkeypatch.setattr(discover, "USUAL_PORTS", (1, port))
    said = run()
    assert f"server  http://127.0.0.1:{port}/v1 (vllm" in said.stderr
    assert said.stdout.startswith("Ready to be measured: ")
    assert 0 == said.return_value


@pytest.mark.process
def test_probe_lists_what_a_server_does(simulator: SimulatorProcess, tmp_path: Path) -> None:
    said = frontier("probe", simulator.url, "--json", cwd=tmp_path)
    tree = json.loads(said.out)
    assert (0, "frontier.probe/1", True) == (said.code, tree["schema"], tree["usable"])
    assert {check["state"] for check in tree["checks"]} <= {"ok", "warn", "note"}
    gone = frontier("probe", "http://127.0.0.1:1/v1", cwd=tmp_path)
    assert 5 == gone.code
    assert "fail" in gone.out


@pytest.mark.process
def test_no_server_is_told_with_what_else_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discover, "USUAL_PORTS", (1,))
    error = run().exception
    assert isinstance(error, UsageError)
    assert "frontier probe http://host:port/v1" in str(error)
    assert_golden_row("messages", error.what.partition(";")[0])  # what else listens differs between machines


@pytest.mark.process
def test_something_that_never_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setattr(discover, "USUAL_PORTS", (silent.getsockname()[1],))
        assert isinstance(run().exception, UsageError)


@pytest.mark.process
@pytest.mark.slow
def test_the_servers_of_a_config_are_probed_as_it_reaches_them(simulator: SimulatorProcess, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(
        f"shapes: [100/10]\nheaders: {{X-Tenant: blue}}\ndeployments:\n"
        f"  - {{name: here, endpoint: '{simulator.url}'}}\n"
        f"  - {{name: gone, endpoint: 'http://127.0.0.1:1/v1'}}\n"
        f"  - {{name: inside, endpoint: simulator}}\n"
    )
    said = frontier("probe", "two.yaml", "--json", cwd=tmp_path)
    told = json.loads(said.out)
    assert (5, "frontier.probe/1") == (said.code, told["schema"])
    assert [True, False] == [d["usable"] for d in told["deployments"]]
    plain = frontier("probe", "two.yaml", cwd=tmp_path)
    assert [line for line in plain.out.splitlines() if line.endswith(":") and " " not in line] == ["here:", "gone:"]
    assert 1 == len([line for line in plain.out.splitlines() if line.startswith("fail usable")])


@pytest.mark.process
def test_what_is_neither_an_address_nor_a_config_is_refused(tmp_path: Path) -> None:
    neither = frontier("probe", "localhost:8000", cwd=tmp_path)
    (tmp_path / "sim.yaml").write_text("endpoint: simulator\nshapes: [100/10]\n")
    embedded = frontier("probe", "sim.yaml", cwd=tmp_path)
    assert [2, 2] == [neither.code, embedded.code]
    assert_golden_row("messages", f"{neither.error}\n{embedded.error}")


@pytest.mark.process
def test_a_key_said_back_by_the_server_is_not_shown(tmp_path: Path) -> None:
    said = frontier("probe", "http://127.0.0.1:1/v1", "--api-key-env", "MY_KEY", cwd=tmp_path, MY_KEY="127.0.0.1")
    assert "127.0.0.1" not in said.out
    assert "***" in said.out


def listing(ids: list[str], **row: object) -> servers.Handler:
    """A list of models, made once."""
    body = json.dumps({"object": "list", "data": [{"id": one, "parent": None, **row} for one in ids]}).encode()

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type="application/json")

    return handler


def completing(models: servers.Handler) -> dict[str, servers.Handler]:
    return {"GET /v1/models": models, "POST /v1/completions": servers.streaming(usage=True)}


@pytest.mark.process
def test_two_hundred_thousand_models_take_no_longer_than_their_bytes(tmp_path: Path) -> None:
    models = listing([f"m{i}" for i in range(200_000)])
    with servers.serving(completing(models)) as url:
        began = time.monotonic()
        named = frontier("probe", url, "--model", "m199999", cwd=tmp_path)
        unnamed = frontier("probe", url, cwd=tmp_path)
        wrong = frontier("probe", url, "--model", "none", cwd=tmp_path)
        took = time.monotonic() - began
    assert "m199999" in named.out
    assert unnamed.code == wrong.code == 5
    assert ["m0", "m1", "m2", "m3", "m4"] == re.findall(r"\bm\d+", unnamed.out)[:5]
    assert max(len(said.out) for said in (unnamed, wrong)) < 5_000
    assert took < 60, "with a comparison of all with all it was minutes"


HUGE = "\u202e\u200b\x07" + "M" * 5_000_000


@pytest.mark.process
def test_what_a_server_says_of_itself_is_bounded_and_clean(tmp_path: Path) -> None:
    async def version(_: web.Request) -> web.StreamResponse:
        return web.json_response({"version": HUGE})

    # A name too long to be asked for is none; that of the other is sent as it is, and shown without
    # what is not seen.
    routes = completing(listing([HUGE, "sim\u202e\u200b"], owned_by="vllm")) | {"GET /version": version}
    with servers.serving(routes) as url:
        said = frontier("probe", url, "--json", cwd=tmp_path)
        found = asyncio.run(preflight(Target(url), pick=True))
    assert len(said.out) < 5_000
    assert not re.search(r"[\u202e\u200b\x07]", json.loads(said.out)["checks"].__repr__())
    assert (found.models, found.target.model) == (("sim\u202e\u200b",), "sim\u202e\u200b")
    assert f"vllm {'M' * 119}…" in found.identity
    assert (found.version or "").startswith("MMM")
    assert max(len(found.identity), len(found.version or "")) <= 300


PAGES = {
    "title": "<title>" * 9_000,
    "no end": "<TITLE>x" + "</titl" * 10_000,
    "token": "-eyJaaaaaaaa" * 5_000,
    "escape": "\\" * 60_000,
}


@pytest.mark.process
@pytest.mark.parametrize("page", PAGES)
def test_no_error_page_takes_long_to_read(page: str, tmp_path: Path) -> None:
    async def fail(_: web.Request) -> web.StreamResponse:
        return web.Response(status=500, text=PAGES[page])

    with servers.serving({"GET /v1/models": servers.models, "POST /v1/completions": fail}) as url:
        began = time.monotonic()
        said = frontier("probe", url, cwd=tmp_path)
        assert time.monotonic() - began < 20
    assert said.code == 5
    assert len(said.out) < 3_000
