"""A user's shell line, run to its end. Input and output are in memory, it has a time limit, and no
process is left over.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

_LOOK = 0.1
"""Seconds between two checks whether to stop it."""


def run_line(
    line: str,
    given: bytes,
    environ: Mapping[str, str],
    within: float,
    *,
    most: int,
    stopped: Callable[[], bool] = bool,
    inherits: Sequence[int] = (),
) -> subprocess.CompletedProcess[bytes]:
    """Run a line with /bin/sh in a process group of its own, with `given` on its standard input.

    It may run for `within` seconds, or until `stopped` returns True. Then the whole group is
    killed, and `returncode` is None. The last `most` bytes of each output are read. It `inherits`
    these descriptors. OSError where the line cannot be run.
    """
    with tempfile.TemporaryFile() as given_file, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        given_file.write(given)
        given_file.seek(0)
        child = subprocess.Popen(  # noqa: S603  # the user's own line, from a config or a command line of theirs
            ["/bin/sh", "-c", line],
            stdin=given_file,
            stdout=output,
            stderr=errors,
            env=dict(environ),
            start_new_session=True,
            pass_fds=inherits,
        )
        status, end = None, time.monotonic() + within
        while status is None and not stopped() and (left := end - time.monotonic()) > 0:
            with suppress(subprocess.TimeoutExpired):
                status = child.wait(min(_LOOK, left))
        if status is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        for file in (output, errors):
            file.seek(max(0, file.seek(0, os.SEEK_END) - most))
        return subprocess.CompletedProcess(line, status, output.read(), errors.read())  # type: ignore[arg-type]
