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

from frontier.core.model.errors import StoreError
from frontier.store import lock
from frontier.store.lock import Holder
from tests.kit.golden import assert_golden_row


def hold(path: Path, ready: Any) -> None:
    taken = lock.take(path)
    ready.set()
    time.sleep(60)
    taken.close()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(socket, "gethostname", lambda: "node-a")
    return tmp_path / "lock"


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
@pytest.mark.fault("a lock left by a killed process")
def test_the_lock_of_a_killed_process_is_free_and_tells_who_held_it(file: Path) -> None:
    pid = killed_holder(file)
    assert not lock.held(file)
    taken = lock.take(file)
    assert taken.killed is not None
    assert Holder(pid, "node-a") == taken.killed
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


@pytest.mark.fault("a lock left by a killed process")
def test_a_name_in_a_free_lock_is_that_of_a_killed_holder_wherever_it_ran(file: Path) -> None:
    write(file, pid=17, host="node-b", boot="an earlier version wrote this too")
    assert not lock.held(file)
    assert lock.holder(file) == Holder(17, "node-b")
    assert json.loads(file.read_text())["host"] == "node-b", "looking must not take its name away"
    taken = lock.take(file)
    assert taken.killed == Holder(17, "node-b")
    taken.close()
    assert lock.holder(file) is None


@pytest.mark.fault("a lock held by another machine")
def test_a_holder_on_another_machine_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(file, pid=17, host="node-b")
    monkeypatch.setattr(lock, "_PATIENCE", 0.0)
    with file.open("rb") as another:
        fcntl.flock(another, fcntl.LOCK_EX)
        assert lock.held(file)
        with pytest.raises(StoreError) as refused:
            lock.take(file)
    assert_golden_row("messages", str(refused.value).replace(str(file.parent), "RUN"))


@pytest.mark.fault("a file system without locks")
def test_without_locks_in_the_file_system_a_name_counts_until_it_is_removed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", flock)
        first = lock.take(file)
        assert lock.held(file)
        write(file, pid=17)
        with pytest.raises(StoreError) as refused:
            lock.take(file)
        first.close()
        assert not lock.held(file)
        lock.take(file).close()
    assert f"remove {file}" in str(refused.value.hint)
    assert_golden_row("messages", str(refused.value).replace(str(file.parent), "RUN"))
