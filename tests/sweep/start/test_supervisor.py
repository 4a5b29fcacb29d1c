"""The supervisor: a command of the user's runs as long as the sweep holds the pipe, and nothing of
it is left after."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from frontier.client.secrets import Secrets
from frontier.sweep.start.supervisor import Lines, Log, plain
from tests.kit.places import ROOT

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Start]:
    """Starts supervisors with a job each; closed when the test has ended."""
    begun: list[subprocess.Popen[bytes]] = []

    def begin(command: str, **job: object) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "frontier.sweep.start.supervisor"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "MY_KEY": "hunter2-and-more"},
            start_new_session=True,
        )
        begun.append(process)
        assert process.stdin is not None
        process.stdin.write(json.dumps({"command": command, "log": str(tmp_path / "a.log"), **job}).encode() + b"\n")
        process.stdin.flush()
        return process

    yield begin
    for process in begun:
        with process:
            pass


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pids(tmp_path: Path, count: int) -> list[int]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = [int(f.read_text()) for f in tmp_path.glob("*.pid") if f.read_text().strip()]
        if len(found) == count:
            return found
        time.sleep(0.05)
    raise AssertionError("the command did not start")


TREE = """\
echo $$ > sh.pid
sh -c 'echo $$ > deaf.pid; trap "" TERM; while :; do sleep 1; done' &
sh -c 'echo $$ > child.pid; while :; do sleep 1; done' &
wait
"""
"""A shell with two children in its group, of which one does not heed SIGTERM."""


@pytest.mark.process
@pytest.mark.parametrize("signalled", [False, True])
def test_nothing_of_a_commands_group_is_left_when_the_sweep_lets_go(
    signalled: bool, supervise: Start, tmp_path: Path
) -> None:
    process = supervise(TREE, within=0.5)
    running = pids(tmp_path, 3)
    if signalled:  # its own end is not the command's: the pipe alone tells that the sweep is over
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process.send_signal(number)
        time.sleep(0.5)
        assert running == [pid for pid in running if lives(pid)]
        assert process.poll() is None
    assert process.stdin is not None
    process.stdin.close()  # as the kernel does with the pipes of a sweep that is killed
    process.wait(60)
    assert [] == [pid for pid in running if lives(pid)]


@pytest.mark.process
def test_a_command_gets_the_signals_that_its_supervisor_does_not_heed(supervise: Start, tmp_path: Path) -> None:
    process = supervise("grep SigIgn /proc/self/status > ignored; echo $$ > sh.pid; sleep 60", within=0.5)
    pids(tmp_path, 1)
    assert process.stdin is not None
    process.stdin.close()
    process.wait(60)
    ignored = int((tmp_path / "ignored").read_text().split()[1], 16)
    assert not any(ignored >> (number - 1) & 1 for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))


@pytest.mark.process
def test_the_stop_command_comes_first_and_is_bounded(supervise: Start, tmp_path: Path) -> None:
    stop = "echo stopping; touch stopped; sleep 60"
    heeding = "trap 'ls stopped > order; exit 0' TERM; echo $$ > heeding.pid; while :; do sleep 0.1; done"
    process = supervise(heeding, stop=stop, within=1)
    pids(tmp_path, 1)
    assert process.stdin is not None
    began = time.monotonic()
    process.stdin.close()
    process.wait(60)
    assert time.monotonic() - began < 30
    assert "stopped\n" == (tmp_path / "order").read_text(), "SIGTERM came after it"
    assert (tmp_path / "a.log").read_text().startswith("stopping\n")


@pytest.mark.process
def test_how_a_command_ends_is_told_and_what_it_said_is_kept_without_secrets(supervise: Start, tmp_path: Path) -> None:
    said = (
        r"""echo "key $MY_KEY"; printf '\033[31mred\033[0m\n10%%\r20%%\n'; echo sk-abcdefghijklmnop123456 >&2; exit 3"""
    )
    process = supervise(said, secrets=["hunter2-and-more"])
    assert process.stdout is not None
    assert b"3\n" == process.stdout.readline()
    assert "key ***\nred\n10%\n20%\n***\n" == (tmp_path / "a.log").read_text(), "it is there before the end is told"
    assert process.stdin is not None
    process.stdin.close()
    process.wait(60)


def test_a_log_is_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    log = Log(tmp_path / "a.log", limit=2_000)
    for i in range(1_000):
        log.write(f"line {i}")
    log.close()
    (file,) = tmp_path.iterdir()
    kept = file.read_text().splitlines()
    assert 1_000 <= file.stat().st_size <= 2_000
    assert kept == [f"line {i}" for i in range(1_000 - len(kept), 1_000)]
    again = Log(tmp_path / "a.log", limit=2_000)
    again.write("of the next start")
    again.close()
    assert file.read_text().splitlines()[-2:] == ["line 999", "of the next start"]


def test_what_could_harm_a_terminal_goes() -> None:
    assert "title red done" == plain("\x1b]0;x\x07title \x1b[31mred\x1b[0m\x00 \u202edone".encode())


@pytest.mark.parametrize("before", [0, 3_990, 3_996, 65_520, 131_060])
@pytest.mark.parametrize("key", ["twelve-chars", "tok" + "0123456789abcdef" * 50], ids=["short", "long"])
def test_a_key_across_the_cut_of_a_long_line_is_not_kept(before: int, key: str) -> None:
    output, lines = ("." * before + key + "." * 70_000).encode(), Lines(Secrets.of([key]))
    kept = [line for at in range(0, len(output), 65_536) for line in lines.of(output[at : at + 65_536])]
    kept += lines.last()
    assert set("".join(kept)) == {".", "*"}
    assert abs(len("".join(kept)) - before - 70_000) < 10
    assert max(map(len, kept)) <= 4_000
