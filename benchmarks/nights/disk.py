"""A disk that fails: at the n-th step on it a command is killed, or there is no space any more.

The steps are those of `benchmarks.kills`: each opening for writing, fsync, rename, removal,
directory and lock below the folder of the night.
"""

import errno
import os
import sys
from pathlib import Path
from typing import Any

_STEPS = {"os.rename", "os.remove", "os.mkdir", "os.truncate", "fcntl.flock"}


class Killed(BaseException):
    """The process was killed here: nothing that it does later reaches the disk."""


class Disk:
    """Counts the steps of a command, and fails at one of them. One for each process, as a hook
    stays.
    """

    def __init__(self) -> None:
        self.folder, self.kind, self.at, self.count = "", "", 0, 0
        sys.addaudithook(self._hook)

    def fail(self, folder: Path, kind: str, at: int) -> None:
        """From now on fail so, at the step of this number."""
        self.folder, self.kind, self.at, self.count = str(folder), kind, at, 0

    def mend(self) -> None:
        self.kind = ""

    def synced(self, _descriptor: int) -> None:
        if self.kind:
            self._step()
        # No night has to outlive the machine, and a sync takes longer than all else.

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.kind:
            return
        if event in _STEPS or (event == "open" and self._writes(*arguments)):
            self._step()

    def _writes(self, file: Any, _mode: Any, flags: int) -> bool:
        named = str(file)
        inside = not named.startswith("/") or named.startswith(self.folder)
        return bool(flags & (os.O_WRONLY | os.O_RDWR)) and inside

    def _step(self) -> None:
        self.count += 1
        if self.count < self.at:
            return
        if self.kind == "kill":
            raise Killed
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
