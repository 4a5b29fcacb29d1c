"""Nothing of a started server lives on unsaid: the supervisor is killed or stopped, the sweep is,
or both are."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from frontier.sweep.start import process_session
from frontier.sweep.start.process_session import ProcessSession, SeenProcess
from frontier.sweep.start.started_server import LeftAlive, left_alive
from frontier.sweep.start.supervisor import Job, Output, finish
from tests.kit.commands import conclusive, frontier, start
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import line_of, neutral
from tests.kit.sweeps import own_exit_code
from tests.sweep.start.test_supervisor import Start, lives, pids, supervise
from tests.sweep.test_conductor_deployments import (
    SERVE,
    answers,
    events,
    free_port,
    journal,
    running_trial,
    started,
    sweep,
    the_run,
    written,
)

__all__ = ["supervise"]
pytestmark = pytest.mark.process
linux = pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG")

ROW = "SIGKILL or SIGSTOP of the supervisor of a started server"
BOTH = "SIGKILL of a sweep and of the supervisor of its server"
IDLE = "echo $$ > {}.pid; while :; do sleep 0.1; done"
TREES = {
    "children": f"sh -c '{IDLE.format('child')}' & {IDLE.format('sh')}",
    "a pipeline": f"sh -c '{IDLE.format('left')}' | sh -c '{IDLE.format('right')}'",
    "groups of their own": f"set -m; sh -c '{IDLE.format('one')}' & sh -c '{IDLE.format('two')}' & wait",
    "a daemon": f"(sh -c '{IDLE.format('daemon')}' > /dev/null 2>&1 &); {IDLE.format('sh')}",
    "one that left its shell": f"sh -c '{IDLE.format('a')}' & sh -c '{IDLE.format('b')}' & exit 0",
    "deaf to SIGTERM": f"sh -c 'trap \"\" TERM; {IDLE.format('deaf')}' & {IDLE.format('sh')}",
}
"""Commands that start two processes in their session, each by another way."""


def until(what: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


@pytest.fixture
def sessions() -> Iterator[list[ProcessSession]]:
    """Sessions that are ended after the test, however it ends."""
    begun: list[ProcessSession] = []
    yield begun
    for session in begun:
        until(lambda session=session: not session.signal(signal.SIGKILL))  # type: ignore[misc]


def session_of(process: "subprocess.Popen[bytes]", sessions: list[ProcessSession]) -> ProcessSession:
    sessions.append(ProcessSession.led_by(process.pid))
    return sessions[-1]


@pytest.mark.parametrize("tree", TREES)
def test_whatever_a_command_started_in_its_session_ends_with_it(tree: str, supervise: Start, tmp_path: Path) -> None:
    process = supervise(TREES[tree], within=0.5)
    running = pids(tmp_path, 2)
    assert process.stdin is not None
    process.stdin.close()
    process.wait(60)
    assert [] == [pid for pid in running if lives(pid)]


@linux
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("stopped", [False, True])
def test_the_shell_dies_with_its_supervisor_and_the_rest_is_found(
    tree: str, stopped: bool, supervise: Start, sessions: list[ProcessSession], tmp_path: Path
) -> None:
    process = supervise(f"echo $$ > shell; {TREES[tree]}", within=0.5)
    session, running = session_of(process, sessions), pids(tmp_path, 2)
    if stopped:
        process.send_signal(signal.SIGSTOP)
    process.kill()
    process.wait(60)
    shell = int((tmp_path / "shell").read_text())
    until(lambda: not lives(shell))
    left = {p.pid for p in session.living()}
    assert {pid for pid in running if lives(pid)} <= left
    job = Job("", str(tmp_path / "a.log"), stop="touch stopped-too", within=0.5)
    with contextlib.chdir(tmp_path):
        assert [] == finish(job, session, Output(job))
    assert (tmp_path / "stopped-too").exists()
    assert [] == [pid for pid in running if lives(pid)]


def test_a_number_that_is_anothers_by_now_is_never_signalled(supervise: Start, tmp_path: Path) -> None:
    process = supervise(TREES["children"], within=0.5)
    running = pids(tmp_path, 2)
    mine = ProcessSession.led_by(process.pid)
    others = (
        ProcessSession(mine.leader, mine.start - 1, mine.system),
        ProcessSession(mine.leader, mine.start, "another boot"),
        ProcessSession(running[0], mine.start, mine.system),
    )
    for other in others:
        assert not other.signal(signal.SIGKILL)
        assert [] == left_alive([{"event": "supervised", "deployment": "a", **facts(other)}])
    assert [] == [pid for pid in running if not lives(pid)]
    (left,) = left_alive([{"event": "supervised", "deployment": "a", **facts(mine)}])
    assert left.is_being_ended, "its supervisor is there"
    assert set(running) <= {p.pid for p in left.processes}
    assert process.stdin is not None
    process.stdin.close()
    process.wait(60)


def facts(session: ProcessSession) -> dict[str, object]:
    return {"leader": session.leader, "start": session.start, "system": session.system}


def test_what_lives_on_is_named_with_the_command_that_ends_it() -> None:
    seen = [
        SeenProcess(n, group, 40, 1, "python", True, False) for n, group in ((41, 41), (42, 41), (43, 43), (44, 41))
    ]
    assert_golden_row("messages", LeftAlive("fp8", tuple(seen), False).text)


@pytest.mark.skipif(shutil.which("ps") is None, reason="needs ps")
def test_a_system_without_proc_finds_the_same(
    supervise: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(found: list[SeenProcess]) -> set[tuple[int, int]]:
        return {(p.pid, p.group) for p in found}

    process = supervise(TREES["groups of their own"], within=0.5)
    pids(tmp_path, 2)
    by_proc = ProcessSession.led_by(process.pid)
    with monkeypatch.context() as patch:
        patch.setattr(process_session, "_PROC", tmp_path / "none")
        by_ps = ProcessSession.led_by(process.pid)
        assert seen(by_proc.living()) == set(), "of another system"
        found = by_ps.living()
        assert not ProcessSession(by_ps.leader, by_ps.start - 1, by_ps.system).living()
    assert time.time() - 600 < by_ps.start < time.time() + 5
    running = {int(f.read_text()) for f in tmp_path.glob("*.pid")} | {process.pid}
    assert running <= {p.pid for p in found}
    assert {x for x in seen(found) if x[0] in running} == {x for x in seen(by_proc.living()) if x[0] in running}
    assert process.stdin is not None
    process.stdin.close()
    process.wait(60)


# ---- sweeps


def of_the_run(tmp_path: Path, sessions: list[ProcessSession]) -> ProcessSession:
    """The newest session that the journal names."""
    line = [line for line in journal(tmp_path) if line["event"] == "supervised"][-1]
    sessions.append(ProcessSession(*(line[name] for name in ("leader", "start", "system"))))  # type: ignore[arg-type]
    return sessions[-1]


def piped(port: int) -> str:
    """A server that outlives its shell."""
    return f"echo $$ >> shell.pid; {SERVE.format(port=port).removeprefix('exec ')} | cat"


def test_the_session_is_on_the_disk_before_the_command_is_run(tmp_path: Path) -> None:
    port = free_port()
    written(tmp_path, port, started("plain", f"cp runs/*/journal.jsonl then; {SERVE.format(port=port)}"))
    process = running_trial(tmp_path)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=90)
    assert '"supervised"' in (tmp_path / "then").read_text()
    assert [("supervised", "plain"), ("stopped", "plain")] == events(tmp_path, "supervised", "stopped")


@pytest.mark.fault(ROW)
@pytest.mark.parametrize("stopped", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_sweep_that_loses_the_supervisor_says_so_ends_the_server_and_starts_it_again(
    stopped: bool, tmp_path: Path, sessions: list[ProcessSession]
) -> None:
    port = free_port()
    written(tmp_path, port, started("plain", piped(port)), requests=300)
    process = running_trial(tmp_path)
    session = of_the_run(tmp_path, sessions)
    if stopped:
        os.kill(session.leader, signal.SIGSTOP)
    os.kill(session.leader, signal.SIGKILL)
    _, err = process.communicate(timeout=180)
    assert process.returncode == own_exit_code(the_run(tmp_path)), err
    assert line_of(err, "supervisor", "plain", "lost")
    assert [] == session.living()
    assert 2 == len(events(tmp_path, "supervised"))
    assert [] == of_the_run(tmp_path, sessions).living()
    assert not answers(port)


@pytest.mark.slow
@pytest.mark.fault(ROW)
def test_a_supervisor_that_was_stopped_ends_its_server_at_the_end_of_the_sweep(
    tmp_path: Path, sessions: list[ProcessSession]
) -> None:
    port = free_port()
    written(tmp_path, port, started("plain", piped(port)), requests=100_000)
    process = running_trial(tmp_path)
    session = of_the_run(tmp_path, sessions)
    os.kill(session.leader, signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=90)
    assert [] == session.living()
    assert [("stopped", "plain")] == events(tmp_path, "stopped")


@linux
@pytest.mark.fault(BOTH)
@pytest.mark.parametrize(
    "order", ["at once", *(pytest.param(o, marks=pytest.mark.slow) for o in ("the sweep first", "stopped first"))]
)
def test_the_next_sweep_names_what_lives_on_with_the_command_that_ends_it(
    order: str, tmp_path: Path, sessions: list[ProcessSession]
) -> None:
    port = free_port()
    deaf = f"trap '' TERM; sleep 1000 & {piped(port)}" if order == "the sweep first" else piped(port)
    deployment = started("plain", deaf).replace("{within: 5s}", "{within: 15s}")
    written(tmp_path, port, deployment, requests=300)
    process = running_trial(tmp_path)
    session = of_the_run(tmp_path, sessions)
    if order == "stopped first":
        os.kill(session.leader, signal.SIGSTOP)
    process.kill()
    process.communicate()
    if order == "the sweep first":
        time.sleep(2.0)
    os.kill(session.leader, signal.SIGKILL)
    shell = int((tmp_path / "shell.pid").read_text().split()[0])
    until(lambda: not lives(shell))
    left = session.living()
    assert left
    began = time.monotonic()
    said = sweep(tmp_path)
    assert said.code == 5
    assert time.monotonic() - began < 30
    command = "kill -9 " + " ".join(f"-{g}" for g in dict.fromkeys(p.group for p in left))
    assert command in said.err
    assert any(f"({p.pid})" in said.err for p in left)
    assert session.living(), "they are named, and not ended"
    subprocess.run(["/bin/sh", "-c", command], check=True)
    until(lambda: not session.living())
    again = sweep(tmp_path)
    assert again.code == own_exit_code(the_run(tmp_path)), again.err
    assert "still alive" not in again.err


@pytest.mark.slow
@pytest.mark.fault(BOTH)
def test_a_finished_run_still_names_what_lives_on(tmp_path: Path, sessions: list[ProcessSession]) -> None:
    port = free_port()
    written(tmp_path, port, started("plain", piped(port)))
    assert sweep(tmp_path).code == own_exit_code(the_run(tmp_path))
    other = subprocess.Popen(["/bin/sh", "-c", "sleep 60"], start_new_session=True)
    with other:
        session = session_of(other, sessions)
        line = f'{{"time": {time.time()}, "event": "supervised", "deployment": "plain", "leader": {session.leader}, '
        with (the_run(tmp_path) / "journal.jsonl").open("a") as file:
            file.write(f'{line}"start": {session.start}, "system": "{session.system}"}}\n')
        os.kill(other.pid, signal.SIGSTOP)
        until(lambda: session.living()[0].is_stopped)
        assert f"kill -9 -{other.pid}" in sweep(tmp_path).err
        other.kill()


@pytest.mark.slow
def test_a_sweep_that_follows_a_kill_at_once_waits_for_the_end_of_the_server(
    tmp_path: Path, sessions: list[ProcessSession]
) -> None:
    port = free_port()
    slow = f"trap '' TERM; sleep 1000 & {SERVE.format(port=port)}"
    written(tmp_path, port, started("plain", slow).replace("{within: 5s}", "{within: 12s}"), requests=300)
    process = running_trial(tmp_path)
    session = of_the_run(tmp_path, sessions)
    process.kill()
    process.communicate()
    said = sweep(tmp_path)
    assert said.code == own_exit_code(the_run(tmp_path)), said.err
    assert [] == session.living()


@pytest.mark.fault(ROW)
def test_a_supervisor_that_is_lost_while_the_server_loads_is_said(
    tmp_path: Path, sessions: list[ProcessSession]
) -> None:
    port = free_port()
    written(tmp_path, port, started("slow", "sleep 600 & echo $$ > server.pid; sleep 600"))
    process = start("sweep", "sweep.yaml", cwd=tmp_path)
    until((tmp_path / "server.pid").exists)
    session = of_the_run(tmp_path, sessions)
    os.kill(session.leader, signal.SIGKILL)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 5
    assert line_of(err, "supervisor", "slow", "lost")
    assert [] == session.living()


@pytest.mark.slow
def test_verifying_a_run_whose_server_the_sweep_started_names_the_command(tmp_path: Path) -> None:
    port = free_port()
    serve = SERVE.format(port=port)
    written(tmp_path, port, started("plain", serve), requests=200)
    swept = conclusive(sweep(tmp_path))
    assert 0 == swept.code, swept.err
    refused = frontier("verify", "--requests", "20", cwd=tmp_path)
    assert refused.code == 5
    assert serve in refused.error
    assert_golden_row("messages", neutral(refused.error.replace(serve, "START")))
    with subprocess.Popen(["/bin/sh", "-c", serve], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        until(lambda: answers(port))
        answered = frontier("verify", "--requests", "20", cwd=tmp_path)
        server.kill()
    assert "start it" not in answered.err, answered.err
