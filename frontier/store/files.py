"""Safe files: run directories that may come from a stranger, and files that the user names.

In a run directory a link in the place of a file is not followed. It would lead a reader to the
user's files, and a writer would empty them. A FIFO would make either wait for ever, and a device
has no end. So only regular files of a bounded size are used. A file is checked before it is opened
(a device may act on being opened), and nothing waits while it is.

Outside a run, outputs are written whole or not at all, and inputs are regular files.
"""

import errno
import itertools
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from frontier.core.model.errors import StoreError, UsageError, WriteError

_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISREG, "a file"),
)


def free_beside(path: Path) -> Path:
    """A run's name that is not taken: the first of PATH-2, PATH-3, ... Of PATH-2 itself it is
    PATH-3, where PATH is there.
    """
    path = path.resolve() if path.name in ("", "..") else path
    name, _, number = path.name.rpartition("-")
    before = (name, *(f"{name}-{n}" for n in range(2, int(number)))) if name and number.isdecimal() else ()
    first = name if before and all(path.with_name(other).exists() for other in before) else path.name
    return next(free for n in itertools.count(2) if not (free := path.with_name(f"{first}-{n}")).exists())


class NotPlainError(StoreError):
    """Something is neither a regular file nor a directory where only these may be; or a file is too
    large.
    """


def kind_of(mode: int) -> str:
    """The kind of file that a mode of `stat` is of, in words."""
    return next((words for test, words in _KINDS if test(mode)), "no file")


def too_large(path: Path, size: int | None, most: int) -> NotPlainError:
    """The error for a file of more bytes than are read."""
    has = "has no end" if size is None else f"has {size:,} bytes"
    return NotPlainError(f"{path} {has}; at most {most:,} are read", "nothing that frontier writes is as large")


def _not_plain(path: Path, mode: int, should: str) -> NotPlainError:
    return NotPlainError(
        f"{path} is {kind_of(mode)} and not {should}: it is not used", f"remove it, or replace it with {should}"
    )


class Folder:
    """A directory of a run, and its files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def at(self, *names: str) -> "Folder":
        """A directory in this one."""
        return Folder(self.path.joinpath(*names))

    # -- the directory
    # ----------------------------------------------------------------------------------------------

    def make(self) -> None:
        """Make the directory unless it is there. NotPlainError where something else has its
        name.
        """
        with suppress(FileExistsError):
            self.path.mkdir(parents=True)
        self.require()

    def require(self) -> None:
        """NotPlainError where something other than a directory has its name."""
        if not self.path.is_dir() and os.path.lexists(self.path):
            raise _not_plain(self.path, self.path.lstat().st_mode, "a directory")

    def names(self, suffix: str = "") -> list[str]:
        """The names in it with this ending, sorted; none where the directory does not exist."""
        self.require()
        try:
            return sorted(entry.name for entry in self.path.iterdir() if entry.name.endswith(suffix))
        except FileNotFoundError:
            return []

    def _sync(self) -> None:
        """Have the names in it on the disk."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    # -- its files
    # ----------------------------------------------------------------------------------------------

    def exists(self, name: str) -> bool:
        """Whether a file of this name is there. NotPlainError where it is no regular file."""
        path = self.path / name
        try:
            mode = path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return False
        if not stat.S_ISREG(mode):
            raise _not_plain(path, mode, "a regular file")
        return True

    def open(self, name: str, flags: int, most: int | None = None) -> int:
        """A descriptor of the regular file `name`, opened without following a link and without
        waiting.

        OSError as of any opening; NotPlainError for anything else than a file, and for one of more
        than `most` bytes.
        """
        self.exists(name)
        descriptor = os.open(self.path / name, flags | _SAFELY, 0o666)
        try:
            size = os.fstat(descriptor).st_size
            if most is not None and size > most:
                raise too_large(self.path / name, size, most)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def reader(self, name: str, most: int | None = None) -> BinaryIO:
        """The file, opened to be read."""
        return os.fdopen(self.open(name, os.O_RDONLY, most), "rb")

    def read(self, name: str, most: int) -> bytes:
        """All of the file."""
        with self.reader(name, most) as file:
            data = _at_most(file, most)
        if len(data) > most:
            raise too_large(self.path / name, None, most)
        return data

    def appender(self, name: str) -> BinaryIO:
        """The file, opened for appending, unbuffered; made where it does not exist."""
        return os.fdopen(self.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab", buffering=0)

    def creator(self, name: str, buffering: int = -1) -> BinaryIO:
        """A new file in place of one of this name."""
        self.unlink(name)
        descriptor = self.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        return os.fdopen(descriptor, "wb", buffering=buffering)

    def unlink(self, name: str) -> None:
        """Remove the file, if it is there; it is gone from the disk when this returns."""
        if self.exists(name):
            with suppress(FileNotFoundError):
                (self.path / name).unlink()
            self._sync()

    def replace(self, old: str, new: str) -> None:
        """Rename a file in it, on the disk when this returns; it replaces a file of the new
        name.
        """
        (self.path / old).replace(self.path / new)
        self._sync()

    def write_whole(self, name: str, data: bytes) -> None:
        """Write a file with this content, whole or not at all: a temporary of a new name beside
        it, fsync, rename.
        """
        temporary = f"{name}.{os.getpid()}{time.time_ns() % 10**6:06}.tmp"
        try:
            with os.fdopen(self.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self.replace(temporary, name)
        except OSError as error:  # of the file that was asked for, and not of the temporary
            error.filename, error.filename2 = str(self.path / name), None
            raise
        finally:
            self.unlink(temporary)


def _at_most(file: BinaryIO, most: int) -> bytes:
    """All of a file, or somewhat more than `most` bytes of one that has more."""
    # Not `most` at once: so much memory would be taken before the first byte is read.
    data = file.read(min(most, os.fstat(file.fileno()).st_size) + 1)
    while len(data) <= most and (part := file.read(1 << 20)):  # it grew, or is of a kind that reports size 0
        data += part
    return data


CONFIG_BYTES = 8 * 2**20
"""The most a config has."""


def write_output(path: Path, data: bytes) -> None:
    """Write an output that the user asked for, whole; its directory is made where there is none.

    UsageError where the path is of a device, a pipe or a socket: a file would replace it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UsageError(f"{path} is {kind_of(path.stat().st_mode)}, and not a file to write to", "name a file")
    Folder(path.parent).write_whole(path.name, data)


def read_given(path: Path, most: int) -> bytes:
    """All of a regular file that the user named, of `most` bytes at most. Links are followed.

    OSError as of any reading; UsageError for anything else, or more.
    """
    about = path.stat()
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(about.st_mode):
        raise UsageError(f"{path} is {kind_of(about.st_mode)}, and not a file to read", "name a file")
    data = b""
    if about.st_size <= most:
        with path.open("rb") as file:
            data = _at_most(file, most)
    if max(about.st_size, len(data)) > most:
        raise UsageError(f"{path} has more than the {most:,} bytes that are read", "name a smaller file")
    return data


def read_config(path: Path) -> str:
    """The text of a config that the user named. UsageError when it cannot be read."""
    try:
        return read_given(path, CONFIG_BYTES).decode().replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError as error:
        raise UsageError(f"there is no config {path}", f"make one with  frontier init URL > {path}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {path}: byte {error.start} is not UTF-8", "save it as UTF-8") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error


@contextmanager
def writing(what: Path, *, opening: bool = False) -> Iterator[None]:
    """Turn an OSError of writing into an error with a hint: a usage error where the first write is
    denied (`opening`), a failed measurement where one fails later.
    """
    try:
        yield
    except OSError as error:
        denied = isinstance(error, PermissionError) or error.errno == errno.EROFS
        if opening and denied:
            raise StoreError(
                f"no permission to write {error.filename or what}", "choose another run directory with  -o DIR"
            ) from error
        what_failed = _CAUSES.get(error.errno or 0, f"cannot write {what}: {error.strerror or error}")
        raise WriteError(
            what_failed.format(what=what),
            "choose another run directory with  -o DIR"
            if opening
            else "finished trials are kept; put it right, and the same command goes on",
        ) from error


_CAUSES = {
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
