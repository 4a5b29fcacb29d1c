"""Deployments that the sweep starts, waits for and stops: with real servers, real signals and real
kills."""

import contextlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from frontier.cli.consent import consent_to_reach, consent_to_sweep
from frontier.config import load_config
from frontier.core.model.errors import UsageError
from frontier.core.model.trials import Phase
from frontier.planning.plan import make_plan
from tests.kit.commands import Said, frontier, start
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import line_of, neutral
from tests.kit.sweeps import own_exit_code

pytestmark = pytest.mark.process

SERVE = f"exec {sys.executable} -m frontier serve-sim --port {{port}} --set step_base=2ms"
TEXT = """\
endpoint: http://127.0.0.1:{port}/v1
shapes: [32/4]
concurrency: [1, 2]
sla: {{p90_ttft: 1s}}
requests: {requests}
repeats: 1
refine: 0
warmup: 50ms
max_time: 60s
deployments:
"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def written(tmp_path: Path, port: int, *deployments: str, requests: int = 20) -> None:
    text = TEXT.format(port=port, requests=requests) + "".join(f"  - {d}\n" for d in deployments)
    (tmp_path / "sweep.yaml").write_text(text)


def started(name: str, command: str, more: str = "") -> str:
    return f"{{name: {name}, start: {json.dumps(command)}, ready: {{within: 40s}}, stop: {{within: 5s}}{more}}}"


def journal(tmp_path: Path) -> list[dict[str, object]]:
    (run,) = (tmp_path / "runs").iterdir()
    return [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]


def events(tmp_path: Path, *names: str) -> list[tuple[object, object]]:
    return [(e["event"], e.get("deployment")) for e in journal(tmp_path) if e["event"] in names]


def the_run(tmp_path: Path) -> Path:
    (run,) = (tmp_path / "runs").iterdir()
    return run


def sweep(tmp_path: Path, *options: str, **environ: str) -> Said:
    said = frontier("sweep", "sweep.yaml", *options, cwd=tmp_path, **environ)
    assert "Traceback" not in said.err
    return said


@pytest.mark.slow
def test_deployments_are_started_one_after_another_and_stopped(tmp_path: Path) -> None:
    port = free_port()
    serve = SERVE.format(port=port)
    written(tmp_path, port, started("plain", serve), started("wide", f"{serve} --set max_num_seqs=4", ", quality: 0.9"))
    said = sweep(tmp_path)
    assert said.code == own_exit_code(the_run(tmp_path)), said.err
    assert not answers(port)
    assert [("starting", "plain"), ("stopped", "plain"), ("starting", "wide"), ("stopped", "wide")] == events(
        tmp_path, "starting", "stopped"
    )
    points = json.loads(frontier("show", "--json", cwd=tmp_path).out)["points"]
    assert 4 == len(points)
    (run,) = (tmp_path / "runs").iterdir()
    assert "simulated endpoint on" in (run / "logs" / "wide.log").read_text()
    again = sweep(tmp_path)
    assert 2 == len(events(tmp_path, "starting")), "nothing is left to measure, so nothing is started"
    assert again.code == said.code


@pytest.mark.fault("any signal to a sweep that started its server")
@pytest.mark.parametrize(
    "number",
    [
        *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)),
        signal.SIGKILL,
    ],
)
def test_however_the_sweep_ends_its_server_is_stopped(number: signal.Signals, tmp_path: Path) -> None:
    port = free_port()
    written(tmp_path, port, started("plain", SERVE.format(port=port)), requests=100_000)
    process = running_trial(tmp_path)
    assert answers(port)
    process.send_signal(number)
    _, err = process.communicate(timeout=90)
    assert process.returncode == (-9 if number == signal.SIGKILL else 130)
    assert "Traceback" not in err
    deadline = time.monotonic() + 60
    while answers(port) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not answers(port)


@pytest.mark.slow
@pytest.mark.fault("any signal to a sweep that started its server")
def test_the_second_ctrl_c_leaves_while_the_server_is_still_being_stopped(tmp_path: Path) -> None:
    port = free_port()
    stop = "{command: 'sleep 6; touch stopped', within: 20s}"
    start_it = json.dumps(SERVE.format(port=port))
    deployment = f"{{name: plain, start: {start_it}, ready: {{within: 40s}}, stop: {stop}}}"
    written(tmp_path, port, deployment, requests=100_000)
    process = running_trial(tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert any(line.startswith("stopping: ") for line in process.stderr)
    process.send_signal(signal.SIGINT)
    assert 130 == process.wait(60)
    assert not (tmp_path / "stopped").exists(), "it does not wait for the stop command"
    process.communicate()
    deadline = time.monotonic() + 60
    while answers(port) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (tmp_path / "stopped").exists()
    assert not answers(port)


def running_trial(tmp_path: Path) -> subprocess.Popen[str]:
    """A sweep whose server is up and whose first trial has begun."""
    process = start("sweep", "sweep.yaml", cwd=tmp_path)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if list((tmp_path).glob("runs/*/trials/*.part")):
            return process
        time.sleep(0.1)
    process.kill()
    raise AssertionError(process.communicate()[1])


@pytest.mark.fault("any signal to a sweep that started its server")
def test_ctrl_c_while_a_server_loads_stops_both(tmp_path: Path) -> None:
    port = free_port()
    written(tmp_path, port, started("slow", "echo $$ > server.pid; exec sleep 600"))
    process = start("sweep", "sweep.yaml", cwd=tmp_path)
    while not (tmp_path / "server.pid").exists():
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=90)
    assert process.returncode == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "server.pid").read_text()), 0)


@pytest.mark.slow
@pytest.mark.fault("any signal to a sweep that started its server")
def test_ctrl_c_does_not_wait_for_a_ready_command(tmp_path: Path) -> None:
    port = free_port()
    ready = "{command: 'echo $$ > asked.pid; exec sleep 600', within: 10min}"
    start_it = json.dumps(SERVE.format(port=port))
    written(tmp_path, port, f"{{name: a, start: {start_it}, ready: {ready}, stop: {{within: 5s}}}}")
    process = start("sweep", "sweep.yaml", cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not (tmp_path / "asked.pid").exists():
        assert time.monotonic() < deadline, "the ready command was not asked"
        time.sleep(0.1)
    told = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=90)
    assert time.monotonic() - told < 20, "a ready command is asked for up to 30 s"
    assert process.returncode == 130
    assert "is ready after" not in err
    assert not answers(port)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "asked.pid").read_text()), 0)


@pytest.mark.fault("a server that the sweep starts does not come up")
@pytest.mark.slow
def test_one_that_does_not_start_is_told_with_its_last_lines_and_the_others_are_measured(tmp_path: Path) -> None:
    port = free_port()
    broken = "echo loading; echo 'torch.OutOfMemoryError: 80 GiB' >&2; exit 7"
    written(tmp_path, port, started("broken", broken), started("plain", SERVE.format(port=port)))
    said = sweep(tmp_path)
    assert said.code == 5
    assert "broken" in line_of(said.err, "status 7")
    assert "torch.OutOfMemoryError: 80 GiB" in said.err
    (lost,) = [line for line in journal(tmp_path) if line["event"] == "dropped"]
    assert "status 7" in str(lost["reason"])
    points = json.loads(frontier("show", "--json", cwd=tmp_path).out)["points"]
    assert 2 == len(points)
    (not_measured,) = [line for line in said.err.splitlines() if "skipped: c=1, 2" in line]
    assert "its last lines" not in not_measured, "they stand elsewhere"
    again = sweep(tmp_path)
    assert again.err.count("80 GiB") == said.err.count("80 GiB"), "what an earlier start said is not said again"


@pytest.mark.fault("a server that the sweep starts does not come up")
@pytest.mark.slow
def test_one_that_never_gets_ready_is_given_up_in_time(tmp_path: Path) -> None:
    port = free_port()
    written(tmp_path, port, "{name: slow, start: 'echo still loading; exec sleep 600', ready: {within: 2s}}")
    began = time.monotonic()
    said = sweep(tmp_path)
    assert said.code == 5
    assert time.monotonic() - began < 60
    (given_up,) = [line for line in journal(tmp_path) if line["event"] == "dropped"]
    assert_golden_row("messages", neutral(str(given_up["reason"])))


@pytest.mark.process
@pytest.mark.fault("a server that the sweep starts does not come up")
def test_a_server_that_never_came_up_was_not_lost(tmp_path: Path) -> None:
    port = free_port()
    written(tmp_path, port, started("broken", "echo loading; echo 'torch.OutOfMemoryError: 80 GiB' >&2; exit 7"))
    said = sweep(tmp_path)
    assert 5 == said.code
    (end,) = (line for line in journal(tmp_path) if line["event"] == "server_lost")
    (given_up,) = (line for line in journal(tmp_path) if line["event"] == "given_up")
    assert ("never_came_up", "never_came_up") == (end["cause"], given_up["cause"])
    assert "did not come back" not in said.err
    last = said.err.partition("the server never came up")
    assert_golden_row("messages", re.sub(r"after \d+ m?s|runs/\S+", "...", "".join(last[1:])))
    assert "server never came up" in " ".join(frontier("status", cwd=tmp_path).out.split())


@pytest.mark.process
@pytest.mark.slow
def test_the_ready_command_is_asked_too(tmp_path: Path) -> None:
    port = free_port()
    serve = SERVE.format(port=port)
    written(tmp_path, port, f"{{name: a, start: {json.dumps(serve)}, ready: {{command: 'test -e warm', within: 5s}}}}")
    said = sweep(tmp_path)
    assert said.code == 5
    assert "ready command" in line_of(said.err, "within 5 s")
    (tmp_path / "warm").touch()
    assert sweep(tmp_path).code == own_exit_code(the_run(tmp_path))


@pytest.mark.slow
def test_a_server_that_is_there_already_is_not_taken_for_the_one_to_be_started(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = int(other.getsockname()[1])
        written(tmp_path, port, started("plain", SERVE.format(port=port)))
        said = sweep(tmp_path)
    assert said.code == 5
    (refused,) = [line for line in journal(tmp_path) if line["event"] == "dropped"]
    assert_golden_row("messages", neutral(str(refused["reason"])))


@pytest.mark.fault("a server that the sweep started crashes")
@pytest.mark.slow
def test_one_that_crashes_in_a_trial_is_started_again_and_the_sweep_goes_on(tmp_path: Path) -> None:
    port = free_port()
    serve = f"echo $$ >> server.pid; {SERVE.format(port=port)}"
    written(tmp_path, port, started("plain", serve), requests=400)
    process = running_trial(tmp_path)
    time.sleep(1)
    os.kill(int((tmp_path / "server.pid").read_text().split()[-1]), signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == own_exit_code(the_run(tmp_path)), err
    assert 2 == len(events(tmp_path, "starting"))
    assert 1 == len(events(tmp_path, "server_lost"))
    assert ("finished", None) == events(tmp_path, "finished", "server_lost")[-1], err


def test_commands_of_a_config_in_a_run_directory_are_not_run_unasked(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text("{}")
    port = free_port()
    written(tmp_path, port, started("evil", "touch pwned; sleep 60"))
    (tmp_path / "sweep.yaml").rename(tmp_path / "run" / "config.yaml")
    said = frontier("sweep", "run/config.yaml", cwd=tmp_path, here=True)
    assert said.code == 2
    assert "  run  touch pwned; sleep 60\n" in said.err
    assert_golden_row("messages", neutral(said.err))
    assert not (tmp_path / "pwned").exists()


def test_secrets_that_a_config_in_a_run_directory_names_are_not_sent_unasked(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "config.yaml").write_text(
        "endpoint: https://elsewhere.invalid/v1\nshapes: [8/8]\nconcurrency: [1]\n"
        "api_key_env: CLOUD_KEY\nheaders: {X-Other: '${OTHER_KEY}'}\n"
    )
    said = frontier("sweep", "config.yaml", cwd=tmp_path, here=True, CLOUD_KEY="k" * 20, OTHER_KEY="o" * 20)
    assert said.code == 2
    assert "  send  $CLOUD_KEY to https://elsewhere.invalid/v1\n" in said.err
    assert "  send  $OTHER_KEY to https://elsewhere.invalid/v1\n" in said.err
    assert_golden_row("messages", neutral(said.err))


def test_verifying_a_run_sends_a_key_where_the_users_own_config_sends_it(tmp_path: Path) -> None:
    text = "endpoint: https://mine.invalid/v1\nshapes: [8/8]\nconcurrency: [1]\napi_key_env: CLOUD_KEY\n"
    own, run = tmp_path / "sweep.yaml", tmp_path / "run" / "config.yaml"
    run.parent.mkdir()
    (run.parent / "manifest.json").write_text("{}")
    for file in (own, run, run.parent / "sweep.yaml"):
        file.write_text(text)
    config = load_config(text, "config.yaml")
    consent_to_reach(run, config, own)
    own.write_text(text.replace("mine", "other"))
    for begun_with in (own, run.parent / "sweep.yaml", tmp_path / "gone.yaml"):
        with pytest.raises(UsageError) as refused:
            consent_to_reach(run, config, begun_with)
        assert_golden_row("messages", neutral(str(refused.value), tmp_path), str(begun_with.relative_to(tmp_path)))
    consent_to_reach(run, load_config(text.replace("api_key_env: CLOUD_KEY\n", ""), "config.yaml"), None)


class Terminal(io.StringIO):
    """Somebody who types this."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "run"), [("n\n", False), ("\n", False), ("", False), ("y\n", True)])
def test_at_a_terminal_it_is_asked_first_with_every_command_shown(
    typed: str, run: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    port = free_port()
    written(tmp_path, port, "{name: a, start: ./up, ready: {command: ./ready}, stop: {command: ./down}}")
    with (tmp_path / "sweep.yaml").open("a") as file:
        file.write("on_finish: ./tell\n")
    config = load_config((tmp_path / "sweep.yaml").read_text(), "sweep.yaml")
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    with contextlib.nullcontext() if run else pytest.raises((UsageError, click.Abort)):
        consent_to_sweep(tmp_path / "sweep.yaml", config)
    asked = capsys.readouterr().err
    assert all(f"  run  {command}\n" in asked for command in ("./up", "./ready", "./down", "./tell"))
    assert "allow this? [y/N]" in asked


def test_a_changed_start_command_is_another_deployment() -> None:
    base = "endpoint: http://h:1\nshapes: [8/8]\nconcurrency: [1]\n"
    plain, bare = (load_config(f"{base}start: {c}\n", "s") for c in ("vllm serve a", "vllm serve b"))
    assert plain.identity() != bare.identity()
    assert load_config(base, "s").identity() == load_config(base, "s").identity()
    stop = load_config(f"{base}start: vllm serve a\nstop: ./down.sh\nready: {{within: 1h}}\n", "s")
    assert plain.identity() == stop.identity(), "how long to wait decides nothing that is measured"


def test_those_that_are_up_take_turns_and_those_that_are_started_follow() -> None:
    text = """\
shapes: [8/8]
concurrency: [1, 2, 4]
repeats: 2
deployments:
  - {name: a, endpoint: "http://h:1"}
  - {name: c, endpoint: "http://h:3", start: vllm serve c}
  - {name: b, endpoint: "http://h:2"}
"""
    trials = [t for t in make_plan(load_config(text, "s")).trials if t.phase is Phase.GRID]
    assert {"a", "b"} == {t.deployment for t in trials[:12]}
    assert {"c"} == {t.deployment for t in trials[12:]}
