"""Errors a user can cause or meet, and the exit code each one ends in.

Every one says what happened, where, and the way out; the command line prints them without a traceback.
Anything else that escapes is a bug of ours and ends in exit code 1.
"""

import shlex
import sys
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """What a script reads: 0 yes, 3 no, 4 not proven, 5 measurement failed, 2 mis-asked, 130 interrupted."""

    YES = 0
    INTERNAL_ERROR = 1
    USAGE = 2
    NO = 3
    NOT_PROVEN = 4
    FAILED = 5
    INTERRUPTED = 130


class FrontierError(Exception):
    """Base of every error meant for the user: `what` happened, and optionally the `hint`."""

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return self.what if self.hint is None else f"{self.what}\n  {self.hint}"


def install_command(*libraries: str) -> str:
    """The command that installs libraries beside this program, however this was installed."""
    return shlex.join([sys.executable, "-m", "pip", "install", *libraries])


class UsageError(FrontierError):
    """The request itself is wrong: a bad option, a missing run, a config mistake."""

    exit_code = ExitCode.USAGE


class MeasurementError(FrontierError):
    """Nothing can be measured: the endpoint is down, refuses, or does not stream.

    `retry_after` is how many seconds the server asked to be left alone, where it did.
    """

    exit_code = ExitCode.FAILED

    def __init__(self, what: str, hint: str | None = None, *, retry_after: float | None = None) -> None:
        super().__init__(what, hint)
        self.retry_after = retry_after


class MemoryShortError(MeasurementError):
    """This machine, or what a limit leaves this process of it, has not the memory for the work."""


class AnotherServerError(MeasurementError):
    """The server that answers is not the one the run was begun with: their figures are not mixed."""


class StoreError(FrontierError):
    """The run directory cannot be used: another sweep's, locked, not writable, damaged."""

    exit_code = ExitCode.USAGE


class WriteError(StoreError):
    """What is measured can no longer be written down: the disk is full, read-only, or the run directory is gone."""

    exit_code = ExitCode.FAILED


MOST_COMPLAINTS = 50
"""Complaints printed at once; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing wrong with a config: where (1-based line and column, when known), what, and the way out.

    `where` names the place when it is not in the file, as '--set requests=many'.
    """

    what: str
    hint: str | None = None
    line: int | None = None
    column: int | None = None
    source_line: str | None = None
    where: str | None = None


class ConfigError(UsageError):
    """Everything that is wrong with one config file, all at once."""

    def __init__(self, file: str, complaints: tuple[Complaint, ...]) -> None:
        self.file = file
        self.complaints = complaints
        super().__init__("\n".join(self._lines()))

    def _lines(self) -> list[str]:
        lines: list[str] = []
        for c in self.complaints[:MOST_COMPLAINTS]:
            where = c.where or (self.file if c.line is None else f"{self.file}:{c.line}:{c.column}")
            lines.append(f"{where}: {c.what}")
            if c.source_line is not None:
                lines.append(f"  {c.line} | {c.source_line.strip()}")
            if c.hint is not None:
                lines.append(f"  {c.hint}")
        if (more := len(self.complaints) - MOST_COMPLAINTS) > 0:
            lines.append(f"and {more:,} more")
        return lines
