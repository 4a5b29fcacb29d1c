"""The files of an import: those that are named, and those in a folder or a zip that is named."""

import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from frontier.store.documents import MOST_BYTES, ForeignFileError
from frontier.store.files import read_given

MOST_FILES = 5_000
"""Files of a folder or a zip."""
_RESULTS = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".yaml", ".yml")
_SUMMARY = "mlperf_log_summary.txt"
_HINT = "name files, as  results/*.json"


class FoundFile(NamedTuple):
    """A file by the name that messages give it, and how to read its bytes."""

    name: str
    read: Callable[[], bytes]
    named: bool = False


def files_of(name: str) -> Iterator[FoundFile]:
    """The file of a name; of a folder or a zip all files in it that may hold results, in order.
    ForeignFileError where it cannot be read.
    """
    path = Path(name)
    if path.is_dir():
        found = (p for p in path.rglob("*") if _may_hold(p) and p.is_file() and not p.is_symlink())
        inside = sorted(p for p in found if not any(part.startswith(".") for part in p.relative_to(path).parts))
        _require_some(name, len(inside))
        yield from (FoundFile(str(p), lambda p=p: _bytes(str(p))) for p in inside)  # type: ignore[misc]
    elif path.suffix.lower() == ".zip" and path.is_file():
        yield from _of_zip(name)
    else:
        yield FoundFile(name, lambda: _bytes(name), named=True)


def _may_hold(path: Path) -> bool:
    return path.suffix.lower() in _RESULTS or path.name == _SUMMARY


def _bytes(name: str) -> bytes:
    try:
        return read_given(Path(name), MOST_BYTES)
    except OSError as error:
        raise ForeignFileError(name, f"it cannot be read: {error.strerror}", _HINT) from None


def _require_some(name: str, number: int) -> None:
    if not 0 < number <= MOST_FILES:
        raise ForeignFileError(name, f"{number:,} files of results are in it", _HINT)


def _of_zip(name: str) -> Iterator[FoundFile]:
    try:
        archive = zipfile.ZipFile(io.BytesIO(_bytes(name)))
    except zipfile.BadZipFile as error:
        raise ForeignFileError(name, f"not a zip: {error}", "unpack it, and name the folder") from None
    inside = sorted((i for i in archive.infolist() if _may_hold(Path(i.filename))), key=lambda i: i.filename)
    _require_some(name, len(inside))
    if sum(each.file_size for each in inside) > MOST_BYTES:
        raise ForeignFileError(name, f"more than {MOST_BYTES:,} bytes are in it", "unpack it, and name a part")
    for each in inside:
        yield FoundFile(f"{name}/{each.filename}", lambda each=each: archive.read(each))  # type: ignore[misc]
