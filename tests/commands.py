"""Running the real command in a process of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Said:
    """What a command answered (stdout), said (stderr) and ended with."""

    code: int
    out: str
    err: str


def _heed_hangups() -> None:
    """Also where the tests themselves run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def start(
    *arguments: str | Path, cwd: Path, preexec_fn: Callable[[], object] = _heed_hangups, **environ: str
) -> subprocess.Popen[str]:
    """Start `frontier ARGUMENTS` in `cwd`."""
    return subprocess.Popen(
        [sys.executable, "-m", "frontier", *map(str, arguments)],
        cwd=cwd, env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100", **environ},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=preexec_fn,
    )  # fmt: skip


def frontier(*arguments: str | Path, cwd: Path, timeout: float = 120, **environ: str) -> Said:
    """Run `frontier ARGUMENTS` to its end."""
    process = start(*arguments, cwd=cwd, **environ)
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return Said(process.returncode, out, err)
