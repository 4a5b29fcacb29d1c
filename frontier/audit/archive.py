"""The pack of a run as a zip file: written with fixed names, times and order, and read as a file
from a stranger.

    run/         manifest.json  config.yaml  arrivals.txt  journal.jsonl  imported.jsonl
    trials/KEY.jsonl
                 evidence/KEY.json
    claim.json   what is claimed, and the size and SHA-256 of every file of the run

Nothing else of a run goes into a pack: no log, no lock, nothing under derived/ or verify/. A reader
takes these names and no others, writes them into a new directory of its own, and never more bytes
or records than a pack may have.
"""

import hashlib
import os
import re
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

import orjson

from frontier.errors import ExitCode, StoreError, UsageError
from frontier.store.files import Folder
from frontier.text import clean_name
from frontier.units import format_bytes

MOST_BYTES, MOST_RECORDS = 4 * 2**30 - 1, 5_000_000
"""Of all files of a pack before compression, and of all its trials: what an audit may need of disk
and memory."""
CLAIM_BYTES = 64 * 2**20
_DIRECTORY_BYTES = 8 * 2**20
"""Of the zip's list of files, which is read at once: 40,000 files have less."""
_BLOCK = 1 << 20
_CLAIM, _RUN = "claim.json", "run/"
_KEY = "[A-Za-z0-9._~-]{1,200}"
_NAMES = re.compile(
    r"claim\.json|run/(?:manifest\.json|config\.yaml|arrivals\.txt|"
    rf"(?:journal|imported|trials/{_KEY})\.jsonl|evidence/{_KEY}\.json)"
)
_END, _END_64 = b"PK\x05\x06", b"PK\x06\x07"
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
)
"""What `zipfile` raises for a file that is no sound zip."""

Listed = dict[str, dict[str, Any]]
"""Size and SHA-256 of each file of a run, by its name in the run."""


class UnsoundPackError(StoreError):
    """A file that is no pack, or a damaged or hostile one: nothing in it is believed."""

    exit_code = ExitCode.NO

    def __init__(self, pack: Path, what: str) -> None:
        super().__init__(f"{pack} is not a sound pack: {what}", "ask for the file that  frontier pack  wrote")


class Unpacked(NamedTuple):
    """A pack in a directory: the `run`, what is claimed of it, the files as they are there, and how
    many records.
    """

    run: Path
    claim: Mapping[str, Any]
    files: Listed
    records: int


# --- writing


def write(pack: Path, run: Path, trials: Iterable[str], claim: Mapping[str, Any]) -> str:
    """Pack the files of a run with these trials and what is claimed of it; the SHA-256 of the pack.

    The same run gives the same bytes, wherever the same zlib compresses them. UsageError where the
    run is too large.
    """
    sources = dict(sorted(_sources(run, trials).items()))
    pack.parent.mkdir(parents=True, exist_ok=True)
    files: Listed = {}
    # Without the zip64 extension there is one way only to write a size.
    with (
        Folder(pack.parent).whole(pack.name) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=False) as archive,
    ):
        left, records = MOST_BYTES, 0
        for name, (folder, own) in sources.items():
            with folder.reader(own, left) as source, archive.open(_entry(_RUN + name), "w") as sink:
                files[name], lines = _copy(source, sink)
            left -= files[name]["bytes"]
            records += lines if name.startswith("trials/") else 0
        if records > MOST_RECORDS:
            raise UsageError(f"{run} has {records:,} requests; a pack holds {MOST_RECORDS:,} at most")
        tree = {**claim, "files": files}
        archive.writestr(_entry(_CLAIM), orjson.dumps(tree, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS))
    with pack.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sources(run: Path, trials: Iterable[str]) -> dict[str, tuple[Folder, str]]:
    """The files of a run that are packed, by their names in it: the folder and the name there."""
    top, records, evidence = Folder(run), Folder(run, "trials"), Folder(run, "evidence")
    names = ("manifest.json", "config.yaml", "journal.jsonl", "imported.jsonl", "arrivals.txt")
    sources = {name: (top, name) for name in names if top.exists(name)}
    for key in trials:
        sources[f"trials/{key}.jsonl"] = records, f"{key}.jsonl"
        sources[f"evidence/{key}.json"] = evidence, f"{key}.json"
    if evidence.exists("imported.json"):
        sources["evidence/imported.json"] = evidence, "imported.json"
    return sources


def _entry(name: str) -> zipfile.ZipInfo:
    """An entry whose header says nothing of this machine or of today."""
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    return entry


def _copy(source: IO[bytes] | BinaryIO, sink: IO[bytes]) -> tuple[dict[str, Any], int]:
    """Copy block by block: what is listed of the file, and how many lines it has."""
    digest, size, lines = hashlib.sha256(), 0, 0
    while block := source.read(_BLOCK):
        sink.write(block)
        digest.update(block)
        size += len(block)
        lines += block.count(b"\n")
    return {"bytes": size, "sha256": digest.hexdigest()}, lines


# --- reading


@contextmanager
def unpacked(pack: Path) -> Iterator[Unpacked]:
    """The pack in a directory that is removed afterwards. UnsoundPackError, before anything is
    written where that can be seen, for a file that `write` cannot have written.
    """
    if not pack.is_file():  # opening a pipe would wait for its writer
        raise UsageError(f"{pack} is not a file", "name the file that  frontier pack  wrote")
    with pack.open("rb") as file, tempfile.TemporaryDirectory(prefix="frontier-audit-") as scratch:
        run = Path(scratch, "run")
        try:
            _require_one_zip(file)
            with zipfile.ZipFile(file) as archive:
                _require_ours(archive, os.fstat(file.fileno()).st_size)
                for inside in ("trials", "evidence"):
                    (run / inside).mkdir(parents=True)
                claim = _claim(archive)
                files, records = _extract(archive, run)
        except _DAMAGED as error:
            raise UnsoundPackError(pack, clean_name(str(error) or type(error).__name__, 160)) from error
        yield Unpacked(run, claim, files, records)


def _require_one_zip(file: BinaryIO) -> None:
    """ValueError unless it ends as a zip without zip64 and without a comment does, with a short
    list of files.
    """
    file.seek(max(0, file.seek(0, os.SEEK_END) - 42))
    tail = file.read()
    if tail[-22:-18] != _END or tail[-2:] != b"\0\0" or tail[:4] == _END_64:
        raise ValueError("it is no zip file as that command writes it")
    if (size := struct.unpack("<I", tail[-10:-6])[0]) > _DIRECTORY_BYTES:
        raise ValueError(f"its list of files has {format_bytes(size)}")


def _require_ours(archive: zipfile.ZipFile, size: int) -> None:
    """ValueError for entries that `write` does not make: other names, links, the same name twice,
    too many bytes.
    """
    entries = archive.infolist()
    for entry in entries:
        name = clean_name(entry.orig_filename, 80)
        if not _NAMES.fullmatch(entry.orig_filename) or entry.orig_filename != entry.filename:
            raise ValueError(f"it has a file {name!r}, which belongs to no pack")
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
            raise ValueError(f"{name} is not a regular file")
        if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{name} is encrypted, or compressed in another way")
    names = [entry.filename for entry in entries]
    if len({name.casefold() for name in names}) < len(names):
        raise ValueError("it has two files of one name")
    if missing := [name for name in (_CLAIM, "run/manifest.json", "run/config.yaml") if name not in names]:
        raise ValueError(f"{missing[0]} is missing")
    if (total := sum(entry.file_size for entry in entries)) > MOST_BYTES:
        raise ValueError(f"it would unpack to {format_bytes(total)}")
    if sum(entry.compress_size for entry in entries) > size:
        raise ValueError("its files overlap")


def _claim(archive: zipfile.ZipFile) -> dict[str, Any]:
    if archive.getinfo(_CLAIM).file_size > CLAIM_BYTES:
        raise ValueError(f"{_CLAIM} is too large")
    claim = orjson.loads(archive.read(_CLAIM))
    if not isinstance(claim, dict):
        raise ValueError(f"{_CLAIM} is no object")
    return claim


def _extract(archive: zipfile.ZipFile, run: Path) -> tuple[Listed, int]:
    """Write the run's files; what they are, and how many records they have.

    `zipfile` gives no more bytes of an entry than its list says, and checks their CRC.
    """
    files: Listed = {}
    records = 0
    for entry in archive.infolist():
        if entry.filename == _CLAIM:
            continue
        name = entry.filename.removeprefix(_RUN)
        with archive.open(entry) as source, (run / name).open("xb") as sink:
            files[name], lines = _copy(source, sink)
        if files[name]["bytes"] != entry.file_size:
            raise ValueError(f"{name} is not as long as the list says")
        records += lines if name.startswith("trials/") else 0
        if records > MOST_RECORDS:
            raise ValueError(f"it has more than {MOST_RECORDS:,} requests")
    return files, records
