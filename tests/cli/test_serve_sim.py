import json
import signal
import socket
import urllib.request
from pathlib import Path

import pytest

from tests.kit.commands import frontier, start


@pytest.mark.smoke
def test_the_simulator_serves_until_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "sim.yaml").write_text("endpoint: simulator\nshapes: [16/4]\nsimulator: {step_base: 1ms}\n")
    process = start(
        "serve-sim",
        "sim.yaml",
        "--port",
        "0",
        "--set",
        "model_name=tiny",
        "--set",
        "speculation.tokens=2",
        cwd=tmp_path,
    )
    assert process.stderr is not None
    said = process.stderr.readline()
    url = said.split()[3]
    assert url.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(f"{url}/models") as answer:
        assert json.load(answer)["data"][0]["id"] == "tiny"
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/metrics") as answer:
        assert b"vllm:spec_decode_num_drafts_total" in answer.read()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 0
    assert "Traceback" not in err


@pytest.mark.process
def test_a_taken_port_is_said_with_a_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = frontier("serve-sim", "--port", str(taken.getsockname()[1]), cwd=tmp_path, here=True)
    assert said.code == 2
    assert "--port" in said.err
    assert "Traceback" not in said.err


def test_an_engine_that_cannot_be_built_is_refused(tmp_path: Path) -> None:
    said = frontier("serve-sim", "--set", "max_num_sequences=4", cwd=tmp_path, here=True)
    assert said.code == 2
    assert "did you mean 'max_num_seqs'" in said.err
