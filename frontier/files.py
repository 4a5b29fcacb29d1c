"""Writing files: whole or not at all, and what the operating system says against it in words with a way out."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from frontier.errors import StoreError, WriteError


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: a temporary beside it, fsync, rename. An OSError names the file itself."""
    temporary = path.with_name(path.name + f".{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        fsync_directory(path.parent)
    except OSError as error:
        if error.filename == str(temporary):
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_output(path: Path, data: bytes) -> None:
    """Write what somebody asked for where they asked for it: whole, in a directory that is made where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data)


def fsync_directory(directory: Path) -> None:
    """A rename is on the disk once its directory is."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def writing(what: Path, *, opening: bool = False) -> Iterator[None]:
    """Turn what the operating system says about writing into an error with a way out.

    A place that cannot be written to from the first is a wrong question; one that fails later is a failed measurement.
    """
    try:
        yield
    except OSError as error:
        denied = isinstance(error, PermissionError) or error.errno == errno.EROFS
        if opening and denied:
            raise StoreError(
                f"no permission to write {error.filename or what}", "choose another run directory with  -o DIR"
            ) from error
        said = _SAID.get(error.errno or 0, f"cannot write {what}: {error.strerror or error}")
        raise WriteError(
            said.format(what=what),
            "choose another run directory with  -o DIR" if opening else
            "finished trials are kept; put it right, and the same command goes on",
        ) from error  # fmt: skip


_SAID = {
    errno.ENOSPC: "no space is left on the disk of {what}",
    errno.EDQUOT: "the disk quota for {what} is used up",
    errno.EFBIG: "{what} has reached this process's file size limit (ulimit -f)",
    errno.EROFS: "{what} is on a file system that is read-only now",
    errno.ENOENT: "{what} is gone: its directory was moved or removed",
}


def free_bytes(path: Path) -> int:
    """Free space where `path` is or would be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
