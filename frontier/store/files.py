"""Safe files: those of a run directory that may come from a stranger, and inputs and outputs that
the user names.

In a run directory no link is followed: it would lead a reader to the user's files, and a writer
would empty them. A FIFO keeps either waiting for ever, and a device has no end. So what is neither
a regular file nor a directory is refused. It is checked before it is opened (a device may act on
being opened) and again through the descriptor, so nothing can be put in its place in between. The
user may reach the run directory itself by a link.

Outside a run, outputs are written whole or not at all, and inputs are read without waiting for
ever.
"""

import errno
import os
import select
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from frontier.errors import StoreError, UsageError, WriteError

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_WRITES = os.O_WRONLY | os.O_RDWR
_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISREG, "a file"),
)


class NotPlainError(StoreError):
    """Something that is neither a regular file nor a directory where only those may be, or too
    large to be one.
    """


def kind_of(mode: int) -> str:
    """The kind of file that a mode of `stat` is of, in words."""
    return next((words for test, words in _KINDS if test(mode)), "no file")


def too_large(path: Path, size: int | None, most: int) -> NotPlainError:
    """The error for a file of more bytes than are read."""
    has = "has no end" if size is None else f"has {size:,} bytes"
    return NotPlainError(f"{path} {has}; at most {most:,} are read", "nothing that frontier writes is as large")


class Folder:
    """The directory `inside` of `root`, whose parts may not be links; `root` may be reached by
    one.
    """

    def __init__(self, root: Path, *inside: str) -> None:
        self._root, self._inside = root, inside
        self.path = root.joinpath(*inside)

    def at(self, *names: str) -> "Folder":
        """A directory in this one."""
        return Folder(self._root, *self._inside, *names)

    # -- the directory
    # ----------------------------------------------------------------------------------------------

    @contextmanager
    def _opened(self, *, make: bool = False) -> Iterator[int]:
        """A descriptor of the directory, with its parts made where asked."""
        # Each part is opened relative to the one above it: a path would be resolved anew, links and
        # all.
        descriptor = os.open(self._root, _DIRECTORY)
        try:
            for depth, name in enumerate(self._inside):
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=descriptor)
                above = Folder(self._root, *self._inside[:depth])
                above._require(name, descriptor, stat.S_ISDIR)
                with above._naming(name):
                    below = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """An OSError names the whole path: the name alone was opened."""
        try:
            yield
        except OSError as error:
            error.filename = str(self.path / name)
            raise

    def _require(
        self, name: str, descriptor: int, wanted: Callable[[int], bool] = stat.S_ISREG, *, alone: bool = False
    ) -> bool:
        """Whether there is an entry of this name. NotPlainError where it is not what is wanted."""
        try:
            about = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        self._check(name, about, wanted, alone=alone)
        return True

    def _check(
        self, name: str, about: os.stat_result, wanted: Callable[[int], bool] = stat.S_ISREG, *, alone: bool = False
    ) -> None:
        path = self.path / name
        if not wanted(about.st_mode):
            should = "a directory" if wanted is stat.S_ISDIR else "a regular file"
            raise NotPlainError(
                f"{path} is {kind_of(about.st_mode)} and not {should}: it is not used",
                f"remove it, or replace it with {should}",
            )
        if alone and about.st_nlink > 1:
            raise NotPlainError(
                f"{path} is not written to: the same file has another name elsewhere (a hard link)",
                f"give it a copy of its own:  cp {path} {path}.copy && mv {path}.copy {path}",
            )

    def make(self) -> None:
        """Make the directory unless it is there. NotPlainError where a file, link or the like has
        its name.
        """
        with self._opened(make=True):
            pass

    def require(self) -> None:
        """NotPlainError where one of its parts exists and is no directory."""
        with suppress(FileNotFoundError), self._opened():
            pass

    def names(self, suffix: str = "") -> list[str]:
        """The names in it with this ending, sorted; none where the directory does not exist."""
        try:
            with self._opened() as descriptor, os.scandir(descriptor) as entries:
                return sorted(entry.name for entry in entries if entry.name.endswith(suffix))
        except FileNotFoundError:
            return []

    # -- its files
    # ----------------------------------------------------------------------------------------------

    def exists(self, name: str) -> bool:
        """Whether a file of this name is there. NotPlainError where it is no regular file."""
        try:
            with self._opened() as descriptor:
                return self._require(name, descriptor)
        except FileNotFoundError:
            return False

    def open(self, name: str, flags: int, most: int | None = None) -> int:
        """A descriptor of the regular file `name`, opened without following a link and without
        waiting.

        OSError as of any opening; NotPlainError for anything else than a file, for one of more than
        `most` bytes, and, where it is to be written to, for one that has another name too.
        """
        alone = bool(flags & _WRITES)
        with self._opened() as directory, self._naming(name):
            self._require(name, directory, alone=alone)
            descriptor = os.open(name, flags | _SAFELY, 0o666, dir_fd=directory)
        try:
            about = os.fstat(descriptor)
            self._check(name, about, alone=alone)
            if most is not None and about.st_size > most:
                raise too_large(self.path / name, about.st_size, most)
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
            # Not `most` at once: so much memory would be taken before the first byte is read.
            data = file.read(min(most, os.fstat(file.fileno()).st_size) + 1)
            while len(data) <= most and (part := file.read(1 << 20)):  # it grew, or is of a kind that reports size 0
                data += part
        if len(data) > most:
            raise too_large(self.path / name, None, most)
        return data

    def appender(self, name: str) -> BinaryIO:
        """The file, opened for appending, unbuffered; made where it does not exist."""
        return os.fdopen(self.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab", buffering=0)

    def creator(self, name: str, buffering: int = -1) -> BinaryIO:
        """A new file in place of one of this name; other names (hard links) of that one keep its
        bytes.
        """
        self.unlink(name)
        descriptor = self.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        return os.fdopen(descriptor, "wb", buffering=buffering)

    def unlink(self, name: str) -> None:
        """Remove the file, if it is there; it is gone from the disk when this returns."""
        with suppress(FileNotFoundError), self._opened() as directory, self._naming(name):
            if self._require(name, directory):
                os.unlink(name, dir_fd=directory)
                os.fsync(directory)

    def replace(self, old: str, new: str) -> None:
        """Rename a file in it, on the disk when this returns; it replaces a file of the new
        name.
        """
        with self._opened() as directory, self._naming(new):
            os.replace(old, new, src_dir_fd=directory, dst_dir_fd=directory)
            os.fsync(directory)

    def write_whole(self, name: str, data: bytes) -> None:
        """Write a file with this content, whole or not at all: a temporary of a new name beside
        it, fsync, rename.
        """
        temporary = f"{name}.{os.getpid()}{time.time_ns() % 10**6:06}.tmp"
        with self._naming(name):
            try:
                with os.fdopen(self.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                self.replace(temporary, name)
            finally:
                self.unlink(temporary)


def beside(file: Path) -> Folder:
    """The directory of a file of a run, which may be a link no more than the file may."""
    return Folder(file.parent.parent, file.parent.name)


CONFIG_BYTES = 8 * 2**20
"""The most a config has."""
SILENT, UNOPENED = 10.0, 2.0
"""Seconds after which a pipe is given up: one that is silent, and one that no process has opened to
write."""


def write_output(path: Path, data: bytes) -> None:
    """Write an output that the user asked for, whole; its directory is made where there is none.

    UsageError where the path is of a device, a pipe or a socket: a file would replace it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UsageError(f"{path} is {kind_of(path.stat().st_mode)}, and not a file to write to", "name a file")
    Folder(path.parent).write_whole(path.name, data)


def read_given(path: Path, most: int) -> bytes:
    """All of a file that the user named, of `most` bytes at most: a regular one, or a pipe such as
    a shell's <(command). Links are followed.

    OSError as of any reading; UsageError for anything else, or more.
    """
    return _read(path, most, pipes=True)[0]


def read_regular(path: Path, most: int) -> tuple[bytes, os.stat_result]:
    """As `read_given`, of a regular file, with its `stat`."""
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
            raise UsageError(f"{path} has more than the {most:,} bytes that are read", "name a smaller file")
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
        raise UsageError(f"{path} is {kind_of(mode)}, and not a file to read", "name a file")


def _part(descriptor: int, path: Path, *, pipe: bool, begun: bool) -> bytes:
    """The next bytes; empty at the end."""
    deadline = time.monotonic() + UNOPENED
    while True:
        try:
            part = os.read(descriptor, 1 << 20)
        except BlockingIOError:
            if not select.select([descriptor], [], [], SILENT)[0]:
                raise UsageError(f"{path} was silent for {SILENT:.0f} s", "name a file") from None
            continue
        if part or begun or not pipe:
            return part
        if time.monotonic() > deadline:  # a pipe that no process has opened to write looks like one at its end
            raise UsageError(f"{path} is a pipe that nothing came from", "name a file")
        time.sleep(0.02)


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
