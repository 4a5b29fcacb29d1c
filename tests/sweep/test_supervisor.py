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

from frontier.sweep.supervisor import Log, lines, plain
from frontier.text import Secrets

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Start]:
    """Starts supervisors with a job each; closed when the test has ended."""
    begun: list[subprocess.Popen[bytes]] = []

    def begin(command: str, **job: object) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "frontier.sweep.supervisor"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "MY_KEY": "hunter2-and-more"},
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


def told(process: subprocess.Popen[bytes]) -> dict[str, object]:
    assert process.stdout is not None
    return dict(json.loads(process.stdout.readline()))


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
setsid sh -c 'echo $$ > away.pid; trap "" TERM; while :; do sleep 1; done' &
sh -c 'echo $$ > child.pid; while :; do sleep 1; done' &
wait
"""
"""A shell with a child in its group, and one that has left the group and does not heed SIGTERM."""


@pytest.mark.process
@pytest.mark.parametrize("how", ["let go", "SIGTERM", "killed sweep"])
def test_nothing_is_left_of_a_command_whatever_it_started(how: str, supervise: Start, tmp_path: Path) -> None:
    process = supervise(TREE, within=0.5)
    assert "started" == told(process)["event"]
    running = pids(tmp_path, 3)
    assert process.stdin is not None
    if how == "SIGTERM":
        process.send_signal(signal.SIGTERM)
    else:
        process.stdin.close()  # a killed process' pipes are closed by the kernel
    process.wait(60)
    assert [] == [pid for pid in running if lives(pid)]


@pytest.mark.process
def test_a_signal_while_the_command_is_being_started_does_not_lose_it(tmp_path: Path) -> None:
    script = """if True:
        import os, signal
        from frontier.sweep import supervisor
        start = supervisor._start
        def signalled(*given):
            child = start(*given)
            os.kill(os.getpid(), signal.SIGTERM)
            return child
        supervisor._start = signalled
        supervisor.main()
    """
    job = {"command": "echo $$ > sh.pid; exec sleep 600", "log": str(tmp_path / "a.log"), "within": 0.5}
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(job).encode() + b"\n")
    process.stdin.flush()
    pid = told(process)["pid"]
    assert isinstance(pid, int)
    process.wait(60)
    assert not lives(pid)
    process.communicate()


@pytest.mark.process
def test_the_stop_command_comes_first_and_is_bounded(supervise: Start, tmp_path: Path) -> None:
    stop = "echo stopping; touch stopped; sleep 60"
    heeding = "trap 'ls stopped > order; exit 0' TERM; echo $$ > heeding.pid; while :; do sleep 0.1; done"
    process = supervise(heeding, stop=stop, within=1)
    told(process)
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
    assert ["started", "ended"] == [told(process)["event"], (ended := told(process))["event"]]
    assert 3 == ended["status"]
    assert process.stdin is not None
    process.stdin.close()
    process.wait(60)
    assert "key ***\nred\n10%\n20%\n***\n" == (tmp_path / "a.log").read_text()


def test_a_log_is_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    log = Log(tmp_path / "a.log", limit=2_000)
    for i in range(1_000):
        log.write(f"line {i}")
    log.close()
    files = sorted(tmp_path.iterdir())
    assert ["a.log", "a.log.1"] == [f.name for f in files]
    assert sum(f.stat().st_size for f in files) <= 2_000
    assert files[0].read_text().endswith("line 999\n")


def test_what_could_harm_a_terminal_goes() -> None:
    assert "title red done" == plain("\x1b]0;x\x07title \x1b[31mred\x1b[0m\x00 \u202edone".encode())


@pytest.mark.parametrize("before", [0, 3_990, 3_996, 65_520, 131_060])
@pytest.mark.parametrize("key", ["twelve-chars", "tok" + "0123456789abcdef" * 50], ids=["short", "long"])
def test_a_key_across_the_cut_of_a_long_line_is_not_kept(before: int, key: str, tmp_path: Path) -> None:
    (tmp_path / "output").write_text("." * before + key + "." * 70_000)
    with (tmp_path / "output").open("rb") as output:
        kept = list(lines(output, Secrets.of([key])))
    assert set("".join(kept)) == {".", "*"}
    assert abs(len("".join(kept)) - before - 70_000) < 10
    assert max(map(len, kept)) <= 4_000
