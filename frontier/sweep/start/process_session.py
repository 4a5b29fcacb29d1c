"""Processes of a session, found by the session's number. Start times tell them from later processes
with the same numbers.

A session holds all processes that a command started, whatever process groups it makes; only
`setsid` leaves it. The system gives the number of a session to no other as long as one of its
processes lives.
"""

import calendar
import hashlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from frontier.core.model.errors import MeasurementError
from frontier.core.model.text import some_of

_PROC = Path("/proc")
_LIST = ("ps", "-A", "-o", "pid=,pgid=,stat=,lstart=,comm=")
_NEEDS = "start: needs /proc, or the command ps"
_NAMED = 3


@dataclass(frozen=True, slots=True)
class SeenProcess:
    """A process. `start`: when it was started, in ticks since the boot (Linux), otherwise unix time
    in seconds. `lives`: it has not ended; a zombie has.
    """

    pid: int
    group: int
    session: int
    start: int
    name: str
    lives: bool
    is_stopped: bool


@dataclass(frozen=True, slots=True)
class ProcessSession:
    """The session that the process `leader`, started at `start`, leads or led; `system` is the boot
    of the machine.
    """

    leader: int
    start: int
    system: str

    @classmethod
    def led_by(cls, pid: int) -> "ProcessSession":
        """The session of its leader, a process that is there. MeasurementError where the system
        tells nothing of it.
        """
        start = next((process.start for process in _processes() if process.pid == pid), None)
        if start is None:
            raise MeasurementError(f"process {pid} was not found", _NEEDS)
        return cls(pid, start, this_system())

    def living(self) -> list[SeenProcess]:
        """The living processes of the session, without this one. Empty where the session's number
        now belongs to another session.
        """
        if self.system != this_system():
            return []
        found = list(_processes())
        if any(p.pid == self.leader and p.start != self.start for p in found):
            return []
        mine = (p for p in found if p.session == self.leader and p.start >= self.start)
        return [p for p in mine if p.lives and p.pid != os.getpid()]

    def signal(self, number: int) -> bool:
        """Send a signal to its living processes. True where there are any."""
        living = self.living()
        for group in {process.group for process in living}:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
        return bool(living)


def names(processes: Iterable[SeenProcess]) -> str:
    """'vllm (4120), python (4123) and 6 more'."""
    return some_of([f"{process.name} ({process.pid})" for process in processes], _NAMED)


def ending(processes: Iterable[SeenProcess]) -> str:
    """The shell command that ends them. It addresses process groups, as the processes may start
    more meanwhile.
    """
    groups = dict.fromkeys(process.group for process in processes)
    return " ".join([f"kill -{signal.SIGKILL.value}", *(f"-{group}" for group in groups)])


def this_system() -> str:
    """The scope in which process numbers are unique: this boot of this machine, or container."""
    try:
        told = (_PROC / "sys/kernel/random/boot_id").read_text() + str((_PROC / "self/ns/pid").readlink())
    except OSError:
        told = str(uuid.getnode())
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _processes() -> Iterator[SeenProcess]:
    return _of_proc() if (_PROC / "self/stat").exists() else _of_ps()


def _of_proc() -> Iterator[SeenProcess]:
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
            told, _, facts = (entry / "stat").read_text(errors="replace").rpartition(")")
            state, _, group, session, *more = facts.split()
            pid, _, name = told.partition(" (")
            lives = state not in "ZX" or int(more[13]) > 1  # threads that go on hold memory and ports
            numbers = int(pid), int(group), int(session), int(more[15])
            yield SeenProcess(*numbers, _shown(name), lives, state in "Tt")


def _of_ps() -> Iterator[SeenProcess]:
    try:
        environ = {**os.environ, "LC_ALL": "C", "TZ": "UTC0"}
        listed = subprocess.run(  # noqa: S603  # our own line
            _LIST, capture_output=True, text=True, errors="replace", env=environ, check=False
        )
    except OSError as error:
        raise MeasurementError(f"processes cannot be listed: {error}", _NEEDS) from error
    for line in listed.stdout.splitlines():
        with suppress(OSError, ValueError, IndexError):
            pid, group, state, *when, name = line.split(maxsplit=8)
            start = calendar.timegm(time.strptime(" ".join(when), "%a %b %d %H:%M:%S %Y"))
            numbers = int(pid), int(group), os.getsid(int(pid)), start
            yield SeenProcess(*numbers, _shown(Path(name).name), state[0] != "Z", state[0] == "T")


def _shown(name: str) -> str:
    """The name that a process gave itself, for a terminal."""
    return "".join(filter(str.isprintable, name))
