"""`frontier probe` as a user meets it: an address, a config, or nothing at all."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from frontier.cli import probe
from frontier.engine.process import SimulatorProcess
from frontier.engine.spec import EngineSpec
from frontier.errors import MisaskedError
from frontier.measure import discover
from tests.commands import frontier


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(EngineSpec.from_mapping({"step_base": "2ms"})) as running:
        yield running


def run(*arguments: str) -> Result:
    return CliRunner().invoke(probe.command, arguments, standalone_mode=False)


def test_a_server_is_found_without_an_address(simulator: SimulatorProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    port = int(simulator.root.rpartition(":")[2])
    monkeypatch.setattr(discover, "USUAL_PORTS", (1, port))
    said = run()
    assert f"server  http://127.0.0.1:{port}/v1 (vllm" in said.stderr
    assert "ok   streams" in said.stdout
    assert 0 == said.return_value


def test_no_server_is_told_with_what_else_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discover, "USUAL_PORTS", (1,))
    error = run().exception
    assert isinstance(error, MisaskedError)
    assert "no server was found on this machine's ports 1" in str(error)
    assert "frontier probe http://host:port/v1" in str(error)


def test_something_that_never_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setattr(discover, "USUAL_PORTS", (silent.getsockname()[1],))
        assert isinstance(run().exception, MisaskedError)


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
    assert "fail usable                cannot reach http://127.0.0.1:1" in plain.out


def test_what_is_neither_an_address_nor_a_config_is_refused(tmp_path: Path) -> None:
    said = frontier("probe", "localhost:8000", cwd=tmp_path)
    assert 2 == said.code
    assert "neither an address nor a config file" in said.err
    (tmp_path / "sim.yaml").write_text("endpoint: simulator\nshapes: [100/10]\n")
    said = frontier("probe", "sim.yaml", cwd=tmp_path)
    assert (2, True) == (said.code, "needs no probe" in said.err)


def test_a_key_said_back_by_the_server_is_not_shown(tmp_path: Path) -> None:
    said = frontier("probe", "http://127.0.0.1:1/v1", "--api-key-env", "MY_KEY", cwd=tmp_path, MY_KEY="127.0.0.1")
    assert "127.0.0.1" not in said.out
    assert "***" in said.out
