"""Exceptions that users may see, and exit codes: of each exception, and of verdicts.

All errors of the package, each below its base, with the exit code and the module where it is not
this one:

    FrontierError               5
        UsageError              2
            ConfigError         2   config.complaints
            ForeignFileError    2   store.documents
                UnsteadyError   2   extras.exchange.imported_requests
        MeasurementError        5
            MemoryShortError    5
            AnotherServerError  5
            NoAnswerError       5   client.ask.unmeasurable
            WorkerLostError     5   client.load.shard
        DrawingError            2
        StoreError              2
            WriteError          5
            AlteredError        2   store.trial_files
            AnotherSweepError   2   store.run_dir
            NotPlainError       2   store.files

Each message says what happened, where, and what to do; the command line prints it without a
traceback. Any other exception that reaches the command line is an internal error and exits with 1.
"""

import shlex
import sys
from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command.

    0 yes, 1 internal error, 2 usage error, 3 no, 4 not proven, 5 failed, 130 Ctrl-C.
    """

    YES = 0
    INTERNAL_ERROR = 1
    USAGE = 2
    NO = 3
    NOT_PROVEN = 4
    FAILED = 5
    INTERRUPTED = 130


_CODE_OF_VERDICT = {
    "invalid": ExitCode.FAILED,
    "violates": ExitCode.NO,
    "worse": ExitCode.NO,
    "marginal": ExitCode.NOT_PROVEN,
    "unproven": ExitCode.NOT_PROVEN,
    "not resolved": ExitCode.NOT_PROVEN,
    "meets": ExitCode.YES,
    "better": ExitCode.YES,
    "no worse": ExitCode.YES,
}
_WORST_FIRST = (ExitCode.FAILED, ExitCode.NO, ExitCode.NOT_PROVEN, ExitCode.YES)


def exit_code(verdicts: Iterable[str]) -> ExitCode:
    """The exit code of the worst of several verdicts; FAILED without any.

    The worst comes first: FAILED, NO, NOT_PROVEN, YES. The verdicts are those of an SLA
    (`core.model.decisions.Verdict`) or of a comparison ("better", "no worse", "not resolved",
    "worse", "invalid"). KeyError for another word.

    >>> [exit_code(verdicts).name for verdicts in (["meets", "unproven"], ["better", "worse"], [])]
    ['NOT_PROVEN', 'NO', 'FAILED']
    """
    return min((_CODE_OF_VERDICT[verdict] for verdict in verdicts), key=_WORST_FIRST.index, default=ExitCode.FAILED)


class FrontierError(Exception):
    """Base of every error meant for the user: `what` happened, and optionally a `hint` of what to
    do.
    """

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return self.what if self.hint is None else f"{self.what}\n  {self.hint}"


def install_command(*libraries: str) -> str:
    """The pip command that installs libraries into the environment this program runs in."""
    return shlex.join([sys.executable, "-m", "pip", "install", *libraries])


class UsageError(FrontierError):
    """Usage error: a bad option, a missing run, a mistake in a config."""

    exit_code = ExitCode.USAGE


class MeasurementError(FrontierError):
    """Nothing can be measured: the endpoint is down, refuses requests, or does not stream.

    `retry_after` is the server's Retry-After in seconds, where it sent one.
    """

    def __init__(self, what: str, hint: str | None = None, *, retry_after: float | None = None) -> None:
        super().__init__(what, hint)
        self.retry_after = retry_after


class MemoryShortError(MeasurementError):
    """Not enough memory for the work, on this machine or within this process's limit."""


class AnotherServerError(MeasurementError):
    """Another server answers than the one the run was started with; their numbers are not mixed."""


class DrawingError(FrontierError):
    """No picture can be drawn here, as matplotlib does not load; the results are not affected."""

    exit_code = ExitCode.USAGE


class StoreError(FrontierError):
    """The run directory cannot be used: of another sweep, locked, not writable, or damaged."""

    exit_code = ExitCode.USAGE


class WriteError(StoreError):
    """Results cannot be written: the disk is full or read-only, or the run directory is gone."""

    exit_code = ExitCode.FAILED
