"""The lock of a run directory: one sweep at a time.

The kernel's lock (flock) decides: the kernel releases it when its holder ends, however that ends.
The lock file also names the holder. A name in a lock that is free is that of a holder that was
killed, which the next one reports. On a file system without locks the name alone decides.

A file system shared by machines may keep locks within each of them (NFS mounted with `local_lock`,
Lustre with `localflock`): the lock is then free here while another machine holds it. So the name of
a process under another kernel counts as a holder, even when the lock is free, until the user
removes the file. A container with another host name on the same kernel is not another machine: its
locks are seen.
"""

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from frontier.errors import StoreError
from frontier.store.files import Folder

_BUSY = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}
_LONGEST = 1000
"""Most bytes of a lock file."""
_PATIENCE = 0.5
"""Seconds to try: a process that only checks the lock (status) holds it for a moment."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds, or held, a lock. `boot` and `began` distinguish it from a later process
    of the same pid.
    """

    pid: int
    host: str
    boot: str | None = None
    began: int | None = None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @classmethod
    def me(cls) -> "Holder":
        """This process."""
        return cls(os.getpid(), socket.gethostname(), _boot(), _began(os.getpid()))

    @property
    def gone(self) -> bool | None:
        """Whether it has ended; None when it runs on another machine, where this one cannot see
        it.
        """
        if self.host != socket.gethostname():
            return None
        if self.boot is not None and _boot() not in (None, self.boot):
            return True
        began = _began(self.pid)
        if self.began is not None and began is not None:
            return began != self.began
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False

    @property
    def unseen(self) -> bool:
        """Whether it runs on another machine, whose locks may not be seen from here."""
        return self.host != socket.gethostname() and (self.boot is None or self.boot != _boot())


class Lock:
    """A lock that is held until `close`. `killed` is the holder before it, where that was
    killed.
    """

    def __init__(self, file: BinaryIO, killed: Holder | None) -> None:
        self._file = file
        self.killed = killed

    def close(self) -> None:
        """Release it; an empty file names no holder that was killed."""
        with suppress(OSError, ValueError):
            self._file.truncate(0)
        self._file.close()


def take(path: Path, signs_of_life: Iterable[Path] = ()) -> Lock:
    """The lock in the file `path`. StoreError, naming the holder, when another process has it; also
    where the file is not a lock of ours, as it would be emptied.

    `signs_of_life` are files the holder writes: their age helps to distinguish a dead machine from
    a slow one.
    """
    file = os.fdopen(Folder(path.parent).open(path.name, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+b")
    try:
        if not ours(file):
            raise StoreError(f"{path} is not a lock that frontier wrote", "move it away, and start again")
        locked, before = _locked(file, fcntl.LOCK_EX, _PATIENCE), _read(file)
        if locked is False or (before != Holder.me() and _still_holds(before, locked)):
            raise _refusal(path, before, signs_of_life)
        file.truncate(0)
        file.write(json.dumps(asdict(Holder.me())).encode())
        file.flush()
    except BaseException:
        file.close()
        raise
    return Lock(file, before)


def held(path: Path) -> bool:
    """Whether a process holds the lock in the file `path`, or may, on another machine (see
    `elsewhere`).
    """
    try:
        with Folder(path.parent).reader(path.name) as file:
            return (locked := _locked(file, fcntl.LOCK_SH)) is False or _still_holds(_read(file), locked)
    except OSError:
        return False


def _still_holds(named: Holder | None, locked: bool | None) -> bool:
    """Whether the process named in a lock file may hold it, though it is `locked` here, or cannot
    be (None).
    """
    return named is not None and (named.unseen if locked else not named.gone)


def elsewhere(path: Path, signs_of_life: Iterable[Path] = ()) -> str | None:
    """The process on another machine that holds the lock, and when it last wrote; None where there
    is none.
    """
    with suppress(OSError), Folder(path.parent).reader(path.name) as file:
        holder = _read(file)
        if holder is not None and holder.unseen:
            return f"{holder}{_last(signs_of_life)}"
    return None


def _locked(file: BinaryIO, kind: int, patience: float = 0.0) -> bool | None:
    """Lock a file within `patience` seconds. False where another process has it; None on a file
    system without locks. OSError where it fails otherwise.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return None
            if error.errno not in _BUSY:
                raise
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)


def _refusal(path: Path, holder: Holder | None, signs_of_life: Iterable[Path]) -> StoreError:
    run = path.parent
    what = f"{run} is in use by {holder or 'another process'}"
    watch = f"wait for it, watch it with  frontier status {run},  or choose  -o DIR"
    if holder is None or holder.gone is False:
        return StoreError(what, watch)
    last = _last(signs_of_life)
    if holder.gone:
        return StoreError(
            f"{what}{last} and has ended; a child it left, or the file system, still holds its lock",
            f"if nothing of it runs any more, remove {path} and start again",
        )
    ended = f"if it has ended (it cannot be seen from {socket.gethostname()}), remove {path} and start again"
    return StoreError(what + last, f"{watch}\n  {ended}")


def _last(signs_of_life: Iterable[Path]) -> str:
    """When a holder last wrote, in words; empty where that is not known."""
    ages = []
    for file in signs_of_life:
        with suppress(OSError):
            ages.append(time.time() - file.stat().st_mtime)
    return f", which last wrote {_ago(min(ages))} ago" if ages else ""


def _ago(seconds: float) -> str:
    return f"{max(seconds, 0):.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def ours(file: BinaryIO) -> bool:
    """Whether it is a lock file: empty, or with a holder or the beginning of one (the disk may have
    been full).
    """
    file.seek(0)
    data = file.read(_LONGEST + 1)
    return len(data) <= _LONGEST and b'{"pid": '.startswith(data[:8])


def _read(file: BinaryIO) -> Holder | None:
    file.seek(0)
    try:
        tree: Any = json.loads(file.read(_LONGEST))
        return Holder(int(tree["pid"]), str(tree["host"]), tree.get("boot"), tree.get("began"))
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        return None


def _boot() -> str | None:
    """The identifier of this boot of the machine; None where it is not known."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None


def _began(pid: int) -> int | None:
    """When a process began, in the kernel's ticks; None where it is not known, or there is no such
    process.
    """
    try:
        # The name of the command, in brackets, may hold anything; what follows it is numbers.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[19])
    except (OSError, IndexError, ValueError):
        return None
