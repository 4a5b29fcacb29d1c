"""Running the real command: in a process of its own, or in this one where nothing but the answer is
looked at."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from frontier.cli.main import run

MEASURING = ("sweep", "quick", "verify", "serve-sim", "tune")
"""Commands that run in a process of their own, as they handle signals. A start of Python for each
of the others would be most of a test's time.
"""


def http_sweep(concurrency: str, *, requests: int, shape: str = "32/8", step: str = "2ms", more: str = "") -> str:
    """The config of a sweep of the embedded engine that the real command runs over HTTP, in trials
    of a few seconds.
    """
    return f"""\
endpoint: simulator
simulator: {{step_base: {step}, per_decode: 10us, per_prefill_token: 10us}}
shapes: [{shape}]
concurrency: {concurrency}
sla: {{p90_ttft: 500ms}}
requests: {requests}
repeats: 1
refine: 0
warmup: 100ms
{more}"""


@dataclass(frozen=True, slots=True)
class Said:
    """What a command answered (stdout), said (stderr) and ended with."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The error that it ended with, and its way out."""
        return self.err[self.err.rindex("error: ") :]


def conclusive(said: Said) -> Said:
    """What a command said; the test is skipped where it said that this machine was too busy."""
    if said.code in (4, 5) and "this machine was busy" in said.out + said.err:
        pytest.skip(f"this machine was too busy to measure on: {said.err.splitlines()[-1]}")
    return said


def _heed_signals() -> None:
    """Also where the tests themselves run under nohup, or in the background of a shell, which has
    Ctrl-C ignored.
    """
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def start(
    *arguments: str | Path, cwd: Path, preexec_fn: Callable[[], object] = _heed_signals, **environ: str
) -> subprocess.Popen[str]:
    """Start `frontier ARGUMENTS` in `cwd`."""
    return subprocess.Popen(
        [sys.executable, "-m", "frontier", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100", **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=preexec_fn,
    )


def until_said(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """The match of the first line of a started command's messages that matches."""
    assert process.stderr is not None
    for line in process.stderr:
        if match := re.search(pattern, line):
            return match
    raise AssertionError(f"it ended without a line like {pattern!r}")


def until_trial(process: subprocess.Popen[str], run: Path, *, finished: int = 0) -> None:
    """Wait until a started sweep, whose run is in this folder or below it, has so many finished
    trials and one under way.
    """
    deadline = time.monotonic() + 60
    while not (list(run.rglob("trials/*.part")) and len(list(run.rglob("trials/*.jsonl"))) >= finished):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "the sweep did not come so far"
        time.sleep(0.01)


def frontier(*arguments: str | Path, cwd: Path, here: bool | None = None, timeout: float = 120, **environ: str) -> Said:
    """Run `frontier ARGUMENTS` to its end; `here`: in this process, which is the default where
    nothing is measured.
    """
    if here is None:
        here = "--dry-run" in arguments or arguments[0] not in MEASURING
    if here:
        return _here([str(a) for a in arguments], cwd, environ)
    process = start(*arguments, cwd=cwd, **environ)
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return Said(process.returncode, out, err)


def _here(arguments: list[str], cwd: Path, environ: dict[str, str]) -> Said:
    """In this process, with its own directory, environment and streams; all of them as before
    afterwards.
    """
    out, err, before, stdin = io.StringIO(), io.StringIO(), dict(os.environ), sys.stdin
    try:
        os.environ.update({"NO_COLOR": "1", "COLUMNS": "100", **environ})
        sys.stdin = io.StringIO()
        with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(arguments)
    finally:
        sys.stdin = stdin
        os.environ.clear()
        os.environ.update(before)
    return Said(code, out.getvalue(), err.getvalue())
