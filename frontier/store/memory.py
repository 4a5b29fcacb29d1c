"""Free memory of this machine or container, asked before a sweep: C libraries crash where they are given none."""

from contextlib import suppress
from pathlib import Path

from frontier.errors import MemoryShortError

_CGROUP = Path("/sys/fs/cgroup")


def require_free(needed: float) -> None:
    """MemoryShortError when this machine, or the container this process runs in, has fewer bytes free than `needed`."""
    free = available()
    if free is not None and free < needed:
        raise MemoryShortError(
            f"this sweep needs about {_mb(needed)} of memory and {_mb(free)} are free here",
            "end something else, or measure from another machine",
        )


def available() -> int | None:
    """Free bytes of the machine and of the container, without swapping; None where neither is known."""
    return min((free for free in (_of_the_machine(), _of_the_container()) if free is not None), default=None)


def _of_the_machine() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _of_the_container() -> int | None:
    """Of the control group (version 2) at the root of this process's file system; the kernel can free file caches."""
    with suppress(OSError, ValueError, KeyError):
        limit = int((_CGROUP / "memory.max").read_text())  # "max" where there is none
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        used = int((_CGROUP / "memory.current").read_text()) - int(stat["inactive_file"])
        return max(0, limit - used)
    return None


def _mb(count: float) -> str:
    return f"{count / (1 << 20):,.0f} MB"
