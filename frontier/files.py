"""Files outside a run: outputs written whole or not at all, inputs read without waiting for ever, errors in words."""

import errno
import os
import select
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from frontier.errors import MisaskedError, StoreError, WriteError
from frontier.folder import Folder, kind_of

CONFIG_BYTES = 8 * 2**20
"""The most a config has."""
SILENT, UNOPENED = 10.0, 2.0
"""Seconds after which a pipe is given up: one that is silent, and one that nobody has opened to write."""


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: a temporary beside it, fsync, rename. An OSError names the file itself."""
    Folder(path.parent).write_whole(path.name, data)


def write_output(path: Path, data: bytes) -> None:
    """Write what somebody asked for where they asked for it: whole, in a directory that is made where there is none.

    MisaskedError where a device, a pipe or a socket is named: it would be replaced by a file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise MisaskedError(f"{path} is {kind_of(path.stat().st_mode)}, and not a file to write to", "name a file")
    write_whole(path, data)


def read_given(path: Path, most: int) -> bytes:
    """All of a file that the user named, of `most` bytes at most: a regular one, or a pipe that somebody writes to, as
    of a shell's <(command). Links are followed.

    OSError as of any reading; MisaskedError for anything else, or more.
    """
    return _read(path, most, pipes=True)[0]


def read_regular(path: Path, most: int) -> tuple[bytes, os.stat_result]:
    """As `read_given`, of a regular file, with what the system says of it."""
    return _read(path, most, pipes=False)


def _read(path: Path, most: int, *, pipes: bool) -> tuple[bytes, os.stat_result]:
    _require_kind(path.stat().st_mode, path, pipes=pipes)  # a device may act on being opened
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        about = os.fstat(descriptor)
        _require_kind(about.st_mode, path, pipes=pipes)
        data, size = bytearray(), about.st_size
        pipe = stat.S_ISFIFO(about.st_mode)
        while size <= most and (part := _part(descriptor, path, pipe=pipe, begun=bool(data))):
            data += part
            size = max(size, len(data))
        if size > most:
            raise MisaskedError(f"{path} has more than the {most:,} bytes that are read", "name a smaller file")
        return bytes(data), about
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(descriptor)


def _require_kind(mode: int, path: Path, *, pipes: bool) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode) and not (pipes and stat.S_ISFIFO(mode)):
        raise MisaskedError(f"{path} is {kind_of(mode)}, and not a file to read", "name a file")


def _part(descriptor: int, path: Path, *, pipe: bool, begun: bool) -> bytes:
    """What can be read next; nothing at the end."""
    deadline = time.monotonic() + UNOPENED
    while True:
        try:
            part = os.read(descriptor, 1 << 20)
        except BlockingIOError:
            if not select.select([descriptor], [], [], SILENT)[0]:
                raise MisaskedError(f"{path} was silent for {SILENT:.0f} s", "name a file") from None
            continue
        if part or begun or not pipe:
            return part
        if time.monotonic() > deadline:  # nobody writes to it yet; that looks like its end
            raise MisaskedError(f"{path} is a pipe that nothing came from", "name a file")
        time.sleep(0.02)


def read_config(path: Path) -> str:
    """The text of a config that the user named. MisaskedError when it cannot be read."""
    try:
        return read_given(path, CONFIG_BYTES).decode().replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError as error:
        raise MisaskedError(f"there is no config {path}", f"make one with  frontier init URL > {path}") from error
    except UnicodeDecodeError as error:
        raise MisaskedError(f"cannot read {path}: byte {error.start} is not UTF-8", "save it as UTF-8") from error
    except OSError as error:
        raise MisaskedError(f"cannot read {path}: {error.strerror or error}") from error


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
