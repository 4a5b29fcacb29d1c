"""Running the real command in a process of its own."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Said:
    """What a command answered (stdout), said (stderr) and ended with."""

    code: int
    out: str
    err: str


def start(*arguments: str | Path, cwd: Path, **environ: str) -> subprocess.Popen[str]:
    """Start `frontier ARGUMENTS` in `cwd`."""
    return subprocess.Popen(
        [sys.executable, "-m", "frontier", *map(str, arguments)],
        cwd=cwd, env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100", **environ},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def frontier(*arguments: str | Path, cwd: Path, timeout: float = 120, **environ: str) -> Said:
    """Run `frontier ARGUMENTS` to its end."""
    process = start(*arguments, cwd=cwd, **environ)
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return Said(process.returncode, out, err)
