"""How much memory this process may take: asked before, because libraries in C crash where they are given none.

An address space limit (`ulimit -v`) ends a process wherever it happens to stand, most often by a segmentation fault in
a library; nothing can be caught then. So one that is too small is refused, and a sweep stops between two trials when
little is left of it.
"""

import ctypes
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

from frontier.errors import MemoryShortError

NEEDED = 600 << 20
"""Bytes of address space a command must be allowed: a sweep crashed with 350 MB, 400 MB did, and half as much again."""
SPARE = 64 << 20
"""Bytes of it that must be left for a trial to begin: with 8 MB one crashed, with 30 MB it did not."""
_ARENA_MAX = -8
_CGROUP = Path("/sys/fs/cgroup")


def address_limit() -> int | None:
    """The bytes of address space this process may have; None where that is not limited."""
    if sys.platform == "win32":
        return None
    import resource

    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def require_address_space() -> None:
    """MemoryShortError when this process may have too little to work at all."""
    limit = address_limit()
    if limit is not None and limit < NEEDED:
        raise MemoryShortError(
            f"this process may have {_mb(limit)} of address space (ulimit -v) and needs {_mb(NEEDED)}",
            "allow it more:  ulimit -v unlimited",
        )


def be_frugal(environ: MutableMapping[str, str]) -> None:
    """Where the address space is limited, reserve less of it: a thread's own heap takes 64 MB, in glibc and in BLAS."""
    if address_limit() is None:
        return
    environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


def require_spare() -> None:
    """MemoryShortError when so little of a limited address space is left that the next trial might crash."""
    limit = address_limit()
    if limit is None:
        return
    with suppress(OSError, ValueError):
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        if limit - used < SPARE:
            raise MemoryShortError(
                f"{_mb(max(limit - used, 0))} are left of the address space of this process ({_mb(limit)}, ulimit -v)",
                "finished trials are kept; allow it more (ulimit -v unlimited), and the same command goes on",
            )


def require_free(needed: float) -> None:
    """MemoryShortError when this machine, or the container this process runs in, has fewer bytes free than `needed`."""
    free = available()
    if free is not None and free < needed:
        raise MemoryShortError(
            f"this sweep needs about {_mb(needed)} of memory and {_mb(free)} are free here",
            "end something else, or measure from another machine",
        )


def available() -> int | None:
    """Bytes that can be had without swapping, of the machine and of the container; None where nothing tells."""
    return min((found for found in (_of_the_machine(), _of_the_container()) if found is not None), default=None)


def _of_the_machine() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _of_the_container() -> int | None:
    """Of the control group (version 2) that is this process's whole world; file caches in it can be given up."""
    with suppress(OSError, ValueError, KeyError):
        limit = int((_CGROUP / "memory.max").read_text())  # "max" where there is none
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        used = int((_CGROUP / "memory.current").read_text()) - int(stat["inactive_file"])
        return max(0, limit - used)
    return None


def _mb(count: float) -> str:
    return f"{count / (1 << 20):,.0f} MB"
