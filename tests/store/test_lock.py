"""One sweep at a time on a run directory, and nothing a dead one left behind is in the way."""

import errno
import fcntl
import json
import multiprocessing
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from frontier.errors import StoreError
from frontier.store import lock
from frontier.store.lock import Holder
from tests.golden import assert_golden_row


def hold(path: Path, ready: Any) -> None:
    taken = lock.take(path)
    ready.set()
    time.sleep(60)
    taken.close()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(socket, "gethostname", lambda: "node-a")
    return tmp_path / "lock"


def assert_said(refused: StoreError, file: Path, pid: int = 17) -> None:
    """The way out names the lock; the words are the row of the running test."""
    assert f"remove {file}" in str(refused.hint)
    assert_golden_row("messages", str(refused).replace(str(file.parent), "RUN").replace(f"process {pid}", "process 17"))


def killed_holder(file: Path) -> int:
    """The number of a process that took the lock and was killed."""
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    child = context.Process(target=hold, args=(file, ready))
    child.start()
    assert ready.wait(10)
    with pytest.raises(StoreError, match=f"process {child.pid} on {socket.gethostname()}"):
        lock.take(file)
    assert lock.held(file)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    return child.pid


@pytest.mark.process
@pytest.mark.fault("a lock left by a killed process, an earlier boot, a reused process number")
def test_the_lock_of_a_killed_process_is_free_and_tells_who_held_it(file: Path) -> None:
    pid = killed_holder(file)
    assert not lock.held(file)
    taken = lock.take(file)
    assert taken.killed is not None
    assert (pid, True) == (taken.killed.pid, taken.killed.gone)
    taken.close()
    again = lock.take(file)
    assert again.killed is None  # let go of properly, so nobody was killed
    again.close()


@pytest.mark.process
def test_somebody_who_only_looks_does_not_turn_a_start_away(file: Path) -> None:
    lock.take(file).close()
    with file.open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        context = multiprocessing.get_context("fork")
        ready = context.Event()
        child = context.Process(target=hold, args=(file, ready))
        child.start()
        time.sleep(0.1)
        fcntl.flock(looking, fcntl.LOCK_UN)
        assert ready.wait(10)
        child.kill()
        child.join()


def write(file: Path, **about: object) -> None:
    file.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), **about}))


@pytest.mark.fault("a lock held by another machine")
@pytest.mark.parametrize("busy", [True, False], ids=["kernel lock", "no locks"])
def test_a_holder_on_another_machine_is_named_with_its_last_sign_of_life(
    busy: bool, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, pid=17, host="node-b")
    journal = file.with_name("journal.jsonl")
    journal.touch()
    os.utime(journal, (time.time() - 3000, time.time() - 3000))
    monkeypatch.setattr(lock, "_PATIENCE", 0.0)

    def flock(*_: object) -> None:
        raise OSError(errno.EWOULDBLOCK if busy else errno.ENOLCK, "no")

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", flock)
        with pytest.raises(StoreError, match=r"process 17 on node-b, .* 50 min") as caught:
            lock.take(file, [journal])
    assert "node-a" in str(caught.value.hint)
    assert_said(caught.value, file)


@pytest.mark.fault("a lock held by another machine")
def test_another_machines_name_is_believed_where_the_kernels_lock_is_free(file: Path) -> None:
    """As on NFS with locks of its own on each machine: the kernel's lock says nothing of the
    others.
    """
    write(file, pid=17, host="node-b", boot="of node-b")
    with pytest.raises(StoreError, match="process 17 on node-b") as caught:
        lock.take(file)
    assert_said(caught.value, file)
    assert lock.held(file)
    assert lock.elsewhere(file) == "process 17 on node-b"
    assert json.loads(file.read_text())["host"] == "node-b", "looking must not take its name away"
    file.unlink()
    lock.take(file).close()
    assert not lock.held(file)


@pytest.mark.fault("a lock left by a killed process, an earlier boot, a reused process number")
def test_the_lock_of_a_killed_container_on_this_machine_is_free(file: Path) -> None:
    """Started again it has another host name, and the process numbers are its own; the kernel is
    the same.
    """
    boot = Holder.me().boot
    if boot is None:
        pytest.skip("nothing tells this machine's boots apart")
    write(file, pid=1, host="the-first-container", boot=boot)
    assert not lock.held(file)
    assert lock.elsewhere(file) is None
    taken = lock.take(file)
    assert taken.killed is not None
    assert taken.killed.host == "the-first-container"
    taken.close()


@pytest.mark.fault("a lock left by a killed process, an earlier boot, a reused process number", times=2)
def test_without_locks_in_the_file_system_what_is_written_decides(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    parent = os.getppid()
    write(file, pid=parent)
    with pytest.raises(StoreError, match=f"process {parent} on node-a"):
        lock.take(file)
    assert lock.held(file)
    write(file, pid=parent, began=1)  # the number is in use again, by a later process
    taken = lock.take(file)
    assert taken.killed is not None
    taken.close()
    write(file, pid=parent, boot="another boot of this machine")
    lock.take(file).close()
    assert not lock.held(file)


@pytest.mark.process
def test_a_lock_that_outlives_its_process_is_said_to_be_that(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = killed_holder(file)
    with file.open("rb") as child_of_it:
        fcntl.flock(child_of_it, fcntl.LOCK_EX)
        monkeypatch.setattr(lock, "_PATIENCE", 0.0)
        with pytest.raises(StoreError, match=f"process {pid} on node-a") as caught:
            lock.take(file)
    assert_said(caught.value, file, pid)


def test_this_process_is_alive_and_another_boots_is_not() -> None:
    assert Holder.me().gone is False
    assert Holder(os.getpid(), "elsewhere").gone is None
