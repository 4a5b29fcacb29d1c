"""The real engine's starter: failures are told plainly, nothing is left running, and the engine
really answers."""

import json
import os
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.kit.golden import assert_golden_row
from tests.kit.neutral import neutral
from tests.real_engines.vllm_cpu import MODEL, RECIPE, EngineError, install, running, why_missing

SERVER = """
import http.server, signal, subprocess, sys
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
helper = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE)
helper.stdout.readline()
open(__file__ + ".pids", "w").write(f"{helper.pid}")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"data": [{"id": "tiny"}]}')
port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def pretend(folder: Path, program: str) -> Path:
    """An engine folder whose command is a Python program; returns the command."""
    command = folder / "venv" / "bin" / "vllm"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!{sys.executable}\n{program}")
    command.chmod(0o755)
    return command


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.process
def test_every_process_of_the_engine_is_ended_even_one_that_ignores_the_request(tmp_path: Path) -> None:
    command = pretend(tmp_path, SERVER)
    with running(tmp_path, grace_s=0.3) as url:
        helper = int(Path(f"{command}.pids").read_text())
        assert alive(helper)
        with urllib.request.urlopen(f"{url}/v1/models", timeout=5) as answer:
            assert "tiny" == json.load(answer)["data"][0]["id"]
    assert not alive(helper)


@pytest.mark.process
def test_the_engine_is_ended_when_the_test_fails(tmp_path: Path) -> None:
    command = pretend(tmp_path, SERVER)
    with pytest.raises(ZeroDivisionError), running(tmp_path, grace_s=0.1):
        1 / 0  # noqa: B018
    assert not alive(int(Path(f"{command}.pids").read_text()))


@pytest.mark.process
def test_an_engine_that_dies_is_noticed_at_once_and_its_last_words_are_told(tmp_path: Path) -> None:
    pretend(tmp_path, "import sys\nprint('no such instruction')\nsys.exit(3)")
    start = time.monotonic()
    with pytest.raises(EngineError) as died, running(tmp_path):
        pass
    assert_golden_row("messages", neutral(str(died.value), tmp_path))
    assert time.monotonic() - start < 30


@pytest.mark.process
def test_an_engine_that_never_answers_is_given_up_and_ended(tmp_path: Path) -> None:
    command = pretend(tmp_path, "import os, time\nopen(__file__ + '.pid', 'w').write(str(os.getpid()))\ntime.sleep(60)")
    with pytest.raises(EngineError) as silent, running(tmp_path, ready_within_s=1):
        pass
    assert_golden_row("messages", neutral(str(silent.value), tmp_path))
    assert not alive(int(Path(f"{command}.pid").read_text()))


def test_a_missing_engine_names_the_command_and_a_failed_install_its_reason(tmp_path: Path) -> None:
    missing = why_missing(tmp_path)
    assert missing is not None
    assert "install" in missing
    (tmp_path / "failed").write_text("no network\nmore")
    assert "no network" == why_missing(tmp_path)
    (tmp_path / "complete").write_text(RECIPE)
    assert why_missing(tmp_path) is None
    (tmp_path / "complete").write_text("an older recipe")
    assert why_missing(tmp_path) is not None


@pytest.mark.process
@pytest.mark.slow
def test_an_install_without_packages_says_so_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(EngineError) as error:
        install(tmp_path / "engine")
    reason = why_missing(tmp_path / "engine")
    assert reason == str(error.value).partition("\n")[0]
    assert " uv " in reason


@pytest.mark.process
def test_an_install_that_runs_out_of_time_says_so(tmp_path: Path) -> None:
    with pytest.raises(EngineError) as late:
        install(tmp_path, limit_s=0.05)
    assert str(late.value).partition("\n")[0] == why_missing(tmp_path)
    assert_golden_row("messages", why_missing(tmp_path) or "")


@pytest.mark.engine
@pytest.mark.timeout(300)
def test_the_real_engine_streams_the_asked_tokens_and_their_usage(vllm: str) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Once upon a time"}],
        "max_tokens": 12,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{vllm}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        lines = answer.read().decode().split("\n")
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert "data: [DONE]" in lines
    assert 12 == events[-1]["usage"]["completion_tokens"]
    assert events[-1]["usage"]["prompt_tokens"] > 4
    assert "length" == events[-2]["choices"][0]["finish_reason"]
