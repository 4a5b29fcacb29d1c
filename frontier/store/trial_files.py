"""A trial's two files, the records and the evidence, and the hashes that tell when either was changed.

The evidence holds the SHA-256 of the records, made as they are written, and a digest of all its own other fields. They
find damage and edits; they are no signature: whoever rewrites a trial can write its hashes too.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import orjson

from frontier.errors import StoreError
from frontier.model import Measurement, Point, Record, Trial
from frontier.store.files import Folder, writing
from frontier.store.records import decode_imported, decode_measurement, decode_record, encode_measurement, encode_record

EVIDENCE_BYTES = 64 * 2**20
RECORD_BYTES, RECORDS_BYTES = 64 * 2**20, 2**40
"""Of one record, which may have a gap for each of four million tokens, and of a trial's records."""
IMPORTED_BYTES = 512 * 2**20
_CHUNK = 1 << 20
_TICK = 20_000_000
"""Nanoseconds: two changes of a file within a tick of the kernel's clock may have one time."""


class AlteredError(StoreError):
    """A finished trial is not as it was written down: it never counts. `trial` is its key."""

    def __init__(self, trial: str, what: str, file: Path) -> None:
        hint = f"put its files back as they were, or remove {file} and sweep again"
        super().__init__(f"{what}; trial {trial} was changed or damaged", hint)
        self.trial = trial


@dataclass(frozen=True, slots=True)
class Evidence:
    """What `evidence/KEY.json` holds. `sha256` and `size` are of the records; None in a run made before there were any.

    `altered` says why it cannot be relied on; `digest` names its bytes.
    """

    measurement: Measurement
    number: int
    size: int | None
    sha256: str | None
    digest: str
    altered: str | None


def sealed(tree: Mapping[str, Any]) -> bytes:
    """The tree as JSON, with a digest of its fields."""
    plain = orjson.loads(orjson.dumps(tree))
    return orjson.dumps(plain | {"digest": _digest(plain)}, option=orjson.OPT_INDENT_2)


def unsealed(data: bytes) -> tuple[dict[str, Any], bool | None]:
    """The tree, and whether it is as it was written; None when it has no digest. ValueError when it is no object."""
    tree = orjson.loads(data)
    if not isinstance(tree, dict):
        raise ValueError("it is no object")  # as for anything else that is not JSON of ours
    said = tree.pop("digest", None)
    return tree, None if said is None else said == _digest(tree)


def _digest(tree: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(tree, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _sha256(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while part := file.read(_CHUNK):
        digest.update(part)
    return digest.hexdigest()


class TrialFiles:
    """The trials of one run directory; `hashed` says that all of them have hashes."""

    def __init__(self, folder: Folder, *, hashed: bool) -> None:
        self.trials, self.evidences = folder.at("trials"), folder.at("evidence")
        self._run, self._hashed = folder, hashed

    def finished(self) -> list[str]:
        """The finished trials."""
        return [name.removesuffix(".jsonl") for name in self.trials.names(".jsonl")]

    def file(self, key: str) -> Path:
        return self.trials.path / f"{key}.jsonl"

    def evidence(self, key: str) -> Evidence:
        """What the evidence of a finished trial says. StoreError when it cannot be read."""
        file = self.evidences.path / f"{key}.json"
        try:
            data = self.evidences.read(f"{key}.json", EVIDENCE_BYTES)
            tree, whole = unsealed(data)
            altered = None
            if whole is False:
                altered = f"the evidence {file} does not match its digest"
            elif self._hashed and (whole is None or "sha256" not in tree):
                altered = f"the evidence {file} has lost its hashes"
            elif "before" in tree:
                tree = self._of_the_records(tree, key)
            measurement = decode_measurement(tree)
            if measurement.trial.key != key:
                raise ValueError(f"it is of another trial, {measurement.trial.key!r}")
            size, sha256 = tree.get("bytes"), tree.get("sha256")
            if not isinstance(size, int | None) or not isinstance(sha256, str | None):
                raise TypeError("the size or the hash of its records is none")
            found = hashlib.sha256(data).hexdigest()
            return Evidence(measurement, int(tree.get("number", 0)), size, sha256, found, altered)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise StoreError(
                f"the evidence of trial {key} cannot be read: {error}", f"remove {self.file(key)} to measure it again"
            ) from error

    def before(self, key: str) -> dict[str, Any]:
        """What goes into the evidence of a trial that is measured again: the evidence it has. A kill between the new
        evidence and the new records then leaves the trial as it was.
        """
        try:
            if self.trials.exists(f"{key}.jsonl"):
                tree, _ = unsealed(self.evidences.read(f"{key}.json", EVIDENCE_BYTES))
                return {"before": {name: value for name, value in tree.items() if name != "before"}}
        except (FileNotFoundError, ValueError):
            pass
        return {}

    def _of_the_records(self, tree: dict[str, Any], key: str) -> dict[str, Any]:
        """The evidence, or the one before it, whichever is of the records that are there."""
        before: dict[str, Any] = tree["before"]
        if before.get("sha256") == tree["sha256"]:
            return tree
        with self.trials.reader(f"{key}.jsonl") as file:
            if tree["bytes"] != before.get("bytes"):
                earlier = before.get("bytes") == os.fstat(file.fileno()).st_size
            else:
                earlier = before.get("sha256") == _sha256(file)
        return before if earlier else tree

    def records(self, key: str, evidence: Evidence | None = None) -> Iterator[Record]:
        """The records of a finished trial, in the order they ended. AlteredError, at the latest after the last of them,
        when they are not those that were written down; StoreError when one cannot be read.
        """
        said = evidence or self.evidence(key)
        self._require_size(key, said)
        digest, path = hashlib.sha256(), self.file(key)
        with self.trials.reader(path.name, RECORDS_BYTES) as file:
            for line in iter(partial(file.readline, RECORD_BYTES), b""):
                digest.update(line)
                try:
                    record = decode_record(line, path)
                except StoreError:
                    self.require_unaltered(key, said)
                    raise
                yield record
        self._require_same(key, said, digest.hexdigest())

    def require_unaltered(self, key: str, evidence: Evidence | None = None) -> None:
        """AlteredError when the trial's files are not those that were written down."""
        said = evidence or self.evidence(key)
        self._require_size(key, said)
        with self.trials.reader(f"{key}.jsonl", RECORDS_BYTES) as file:
            self._require_same(key, said, _sha256(file))

    def _require_size(self, key: str, said: Evidence) -> None:
        """What needs no reading of the records."""
        if said.altered is not None:
            raise AlteredError(key, said.altered, self.file(key))
        with self.trials.reader(f"{key}.jsonl") as file:
            size = os.fstat(file.fileno()).st_size
        if said.size not in (None, size):
            what = f"the records {self.file(key)} have {size:,} bytes of {said.size:,}"
            raise AlteredError(key, what, self.file(key))

    def _require_same(self, key: str, said: Evidence, sha256: str) -> None:
        if said.sha256 not in (None, sha256):
            what = f"the records {self.file(key)} do not match the hash in their evidence"
            raise AlteredError(key, what, self.file(key))

    def mark(self, key: str) -> tuple[str, bool]:
        """Names the state of the records' file without reading it: another after every change, whatever time the file
        is given, as the kernel's own (ctime) cannot be set. And whether a change that follows at once would be told.
        """
        with self.trials.reader(f"{key}.jsonl") as file:
            about = os.fstat(file.fileno())
        counts_seconds = about.st_ctime_ns % 10**9 == 0  # a file system that does; some count by two
        age = time.time_ns() - about.st_ctime_ns
        settled = not 0 <= age < (2 * 10**9 if counts_seconds else _TICK)
        return f"{about.st_size} {about.st_mtime_ns} {about.st_ctime_ns} {about.st_ino}", settled

    # -- aggregates of an import -----------------------------------------------------------------------------------

    def write_imported(self, lines: bytes) -> None:
        """The aggregates, whole or not at all; their hash first."""
        evidence = {"sha256": hashlib.sha256(lines).hexdigest(), "bytes": len(lines)}
        self.evidences.write_whole("imported.json", sealed(evidence))
        self._run.write_whole("imported.jsonl", lines)

    def imported(self) -> tuple[tuple[Point, ...], bool]:
        """The aggregates, and whether they have a hash; none in a run that was measured. StoreError when they cannot be
        read or were changed.
        """
        if not self._run.exists("imported.jsonl"):
            return (), True
        file, again = self._run.path / "imported.jsonl", "import the files again, into another run directory"
        data = self._run.read("imported.jsonl", IMPORTED_BYTES)
        hashed = self.evidences.exists("imported.json")
        if not hashed and self._hashed:
            raise StoreError(f"{self.evidences.path / 'imported.json'} is missing: the hash of {file}", again)
        if hashed:
            try:
                tree, whole = unsealed(self.evidences.read("imported.json", EVIDENCE_BYTES))
            except ValueError:
                tree, whole = {}, False
            if not whole or tree.get("sha256") != hashlib.sha256(data).hexdigest():
                raise StoreError(f"{file} does not match its hash: it was changed or damaged since the import", again)
        return tuple(decode_imported(line, file) for line in data.splitlines()), hashed


class TrialWriter:
    """The records of the trial in flight. `commit` makes them count; leaving without it drops them."""

    def __init__(
        self, files: TrialFiles, trial: Trial, number: Callable[[], int], journal: Callable[..., None]
    ) -> None:
        self._files, self._trial, self._number, self._journal = files, trial, number, journal
        self._final = files.file(trial.key)
        self._part = self._final.name + ".part"
        self._path = self._final.with_name(self._part)
        self._file: BinaryIO | None = None
        self._records = 0
        self._digest = hashlib.sha256()

    def __enter__(self) -> Self:
        with writing(self._path):
            self._file = self._files.trials.creator(self._part, buffering=_CHUNK)
        return self

    def add(self, record: Record) -> None:
        """Append one record. Called while measuring: buffered, so it costs a few microseconds."""
        assert self._file is not None
        self._records += 1
        line = encode_record(record)
        self._digest.update(line)
        try:
            self._file.write(line)
        except OSError:
            with writing(self._path):
                raise

    def commit(self, measurement: Measurement, **facts: Any) -> None:
        """The trial is complete: evidence first, then the rename that makes it exist, then the journal with `facts`."""
        assert self._file is not None
        key = self._trial.key
        with writing(self._final):
            self._file.flush()
            os.fsync(self._file.fileno())
            size = self._file.tell()
            self._file.close()
            tree = encode_measurement(measurement) | self._files.before(key)
            tree |= {"number": self._number(), "records": self._records, "bytes": size}
            tree["sha256"] = self._digest.hexdigest()
            self._files.evidences.write_whole(f"{key}.json", sealed(tree))
            self._files.trials.replace(self._part, self._final.name)
        self._journal("trial_done", trial=key, ended=measurement.ended, **facts)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        with suppress(OSError, StoreError):
            self._files.trials.unlink(self._part)
