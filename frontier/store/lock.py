"""The lock of a run directory: one sweep at a time.

The kernel's lock (flock) decides: the kernel releases it when its holder ends, however that ends.
The lock file also names the holder. A name in a lock that is free is that of a holder that was
killed, which the next one reports. On a file system without locks a name in the file counts as a
holder until the user removes the file.
"""

import errno
import fcntl
import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from frontier.core.model.errors import StoreError
from frontier.store.files import Folder

_BUSY = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}
_LONGEST = 1000
"""Most bytes of a lock file."""
_PATIENCE = 0.5
"""Seconds to try: a process that only checks the lock (status) holds it for a moment."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds, or held, a lock."""

    pid: int
    host: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def elsewhere(self) -> bool:
        """Whether it runs under another host name than this process."""
        return self.host != socket.gethostname()


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


def take(path: Path) -> Lock:
    """The lock in the file `path`. StoreError, naming the holder, when another process has it; also
    where the file is not a lock of ours, as it would be emptied.
    """
    file = os.fdopen(Folder(path.parent).open(path.name, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+b")
    try:
        if not ours(file):
            raise StoreError(f"{path} is not a lock that frontier wrote", "move it away, and start again")
        locked, before = _locked(file, fcntl.LOCK_EX, _PATIENCE), _read(file)
        if locked is False or (locked is None and before is not None):
            raise _refusal(path, before, by_name=locked is None)
        file.truncate(0)
        file.write(json.dumps(asdict(Holder(os.getpid(), socket.gethostname()))).encode())
        file.flush()
    except BaseException:
        file.close()
        raise
    return Lock(file, before)


def held(path: Path) -> bool:
    """Whether a process holds the lock in the file `path`, as far as the file system tells."""
    try:
        with Folder(path.parent).reader(path.name) as file:
            locked = _locked(file, fcntl.LOCK_SH)
            return locked is False or (locked is None and _read(file) is not None)
    except OSError:
        return False


def holder(path: Path) -> Holder | None:
    """The process that the lock in the file `path` names; None where it names none."""
    with suppress(OSError), Folder(path.parent).reader(path.name) as file:
        return _read(file)
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


def _refusal(path: Path, before: Holder | None, *, by_name: bool) -> StoreError:
    run = path.parent
    hint = f"wait for it, watch it with  frontier status {run},  or choose  -o DIR"
    if by_name:
        hint += f"\n  if it has ended (this file system has no locks), remove {path} and start again"
    return StoreError(f"{run} is in use by {before or 'another process'}", hint)


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
        return Holder(int(tree["pid"]), str(tree["host"]))
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        return None
