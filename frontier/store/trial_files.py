"""A trial's two files, the records and the evidence, with the hashes that reveal a change of
either.

The evidence holds the SHA-256 of the records, made as they are written, and a digest of all its own
other fields. They reveal damage and edits, but are no signature: whoever rewrites a trial can write
its hashes too.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar

import orjson

from frontier.core.model.errors import StoreError
from frontier.core.model.points import Point
from frontier.core.model.trials import Measurement, Record, Trial
from frontier.core.window.from_records import BATCH, Batch
from frontier.store.files import Folder, writing
from frontier.store.records import (
    decode_batch,
    decode_imported,
    decode_measurement,
    decode_record,
    encode_imported,
    encode_measurement,
    encode_record,
)

T = TypeVar("T")
EVIDENCE_BYTES = 64 * 2**20
RECORD_BYTES, RECORDS_BYTES = 64 * 2**20, 2**40
"""The most bytes of one record, which may have a gap for each of four million tokens, and of a
trial's records."""
IMPORTED_BYTES = 512 * 2**20
_CHUNK = 1 << 20
_TICK = 20_000_000
"""Nanoseconds: two changes of a file within a tick of the kernel's clock may have the same time."""


class AlteredError(StoreError):
    """A finished trial is not as it was written: it never counts. `trial` is its key."""

    def __init__(self, trial: str, what: str, file: Path) -> None:
        hint = f"put its files back as they were, or remove {file} and sweep again"
        super().__init__(f"{what}; trial {trial} was changed or damaged", hint)
        self.trial = trial


@dataclass(frozen=True, slots=True)
class TrialEvidence:
    """The content of `evidence/KEY.json`. `sha256` and `size` are of the records; None in a run of
    an early version.

    `altered` is the reason why it cannot be relied on. `digest` is the digest of its bytes.
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
    """The tree, and whether it is as it was written; None when it has no digest. ValueError when it
    is no object.
    """
    tree = orjson.loads(data)
    if not isinstance(tree, dict):
        raise ValueError("it is no object")
    digest = tree.pop("digest", None)
    return tree, None if digest is None else digest == _digest(tree)


def _digest(tree: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(tree, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _sha256(file: BinaryIO) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # of any binary file


class TrialFiles:
    """The trials and imported points in a run's folder. `hashed`: all of them have hashes."""

    def __init__(self, folder: Folder, *, hashed: bool) -> None:
        self.trials, self.evidence_folder = folder.at("trials"), folder.at("evidence")
        self._folder, self._hashed = folder, hashed
        self._number: int | None = None

    def trial_file(self, key: str) -> Path:
        return self.trials.path / f"{key}.jsonl"

    def evidence_file(self, key: str) -> Path:
        return self.evidence_folder.path / f"{key}.json"

    # -- evidence
    # ----------------------------------------------------------------------------------------------

    def finished(self) -> dict[str, Measurement]:
        """The trials that count, by key, in the order they were finished, whatever the clock was
        set to meanwhile.
        """
        return {key: evidence.measurement for key, evidence in self.evidences().items()}

    def evidences(self) -> dict[str, TrialEvidence]:
        """The evidence of the finished trials, in the same order."""
        ordered = sorted(map(self.evidence, self._keys()), key=lambda e: (e.number, float(e.measurement.epoch)))
        return {e.measurement.trial.key: e for e in ordered}

    def next_number(self) -> int:
        """The number of the trial finished next: they are numbered as they are finished."""
        if self._number is None:
            self._number = max((self.evidence(key).number for key in self._keys()), default=0)
        self._number += 1
        return self._number

    def _keys(self) -> list[str]:
        return [name.removesuffix(".jsonl") for name in self.trials.names(".jsonl")]

    def evidence(self, key: str) -> TrialEvidence:
        """The evidence of a finished trial. StoreError when it cannot be read."""
        file = self.evidence_file(key)
        try:
            data = self.evidence_folder.read(file.name, EVIDENCE_BYTES)
            tree, whole = unsealed(data)
            altered = None
            if whole is False:
                altered = f"the evidence {file} does not match its digest"
            elif self._hashed and (whole is None or "sha256" not in tree):
                altered = f"the evidence {file} has lost its hashes"
            measurement = decode_measurement(tree)
            if measurement.trial.key != key:
                raise ValueError(f"it is of another trial, {measurement.trial.key!r}")
            size, sha256 = tree.get("bytes"), tree.get("sha256")
            if not isinstance(size, int | None) or not isinstance(sha256, str | None):
                raise TypeError("the size or the hash of its records is none")
            digest = hashlib.sha256(data).hexdigest()
            return TrialEvidence(measurement, int(tree.get("number", 0)), size, sha256, digest, altered)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            what = f"the evidence of trial {key} cannot be read: {error}"
            raise StoreError(what, f"remove {self.trial_file(key)} to measure it again") from error

    # -- records
    # ----------------------------------------------------------------------------------------------

    def records(self, key: str, evidence: TrialEvidence | None = None, *, background: bool = False) -> Iterator[Record]:
        """The records of a finished trial, or of the background beside it, in the order they ended.
        AlteredError when they are not as they were written, at the latest after the last record;
        StoreError when a record cannot be read.
        """
        decoded = self._decoded(key, evidence, 1, lambda lines, path: decode_record(lines[0], path))
        return (record for record in decoded if record.background is background)

    def batches(self, key: str, evidence: TrialEvidence | None = None, *, background: bool = False) -> Iterator[Batch]:
        """The same records in batches, for `window_of_batches`: far quicker, as no Record is
        made.
        """
        return (batch.beside(background) for batch in self._decoded(key, evidence, BATCH, decode_batch))

    def _decoded(
        self, key: str, evidence: TrialEvidence | None, size: int, decode: Callable[[list[bytes], Path], T]
    ) -> Iterator[T]:
        evidence = evidence or self.evidence(key)
        self._require_size(key, evidence)
        digest, path = hashlib.sha256(), self.trial_file(key)
        with self.trials.reader(path.name, RECORDS_BYTES) as file:
            remaining = iter(partial(file.readline, RECORD_BYTES), b"")
            while lines := list(islice(remaining, size)):
                for line in lines:
                    digest.update(line)
                try:
                    decoded = decode(lines, path)
                except StoreError:
                    self.require_unaltered(key, evidence)
                    raise
                yield decoded
        self._require_same(key, evidence, digest.hexdigest())

    def require_unaltered(self, key: str, evidence: TrialEvidence | None = None) -> None:
        """AlteredError when the trial's files are not as they were written. All their bytes are
        read.
        """
        evidence = evidence or self.evidence(key)
        self._require_size(key, evidence)
        with self.trials.reader(f"{key}.jsonl", RECORDS_BYTES) as file:
            self._require_same(key, evidence, _sha256(file))

    def _require_size(self, key: str, evidence: TrialEvidence) -> None:
        """What needs no reading of the records."""
        path = self.trial_file(key)
        if evidence.altered is not None:
            raise AlteredError(key, evidence.altered, path)
        with self.trials.reader(path.name) as file:
            size = os.fstat(file.fileno()).st_size
        if evidence.size not in (None, size):
            raise AlteredError(key, f"the records {path} have {size:,} bytes of {evidence.size:,}", path)

    def _require_same(self, key: str, evidence: TrialEvidence, sha256: str) -> None:
        path = self.trial_file(key)
        if evidence.sha256 not in (None, sha256):
            raise AlteredError(key, f"the records {path} do not match the hash in their evidence", path)

    def record_hashes(self) -> frozenset[str]:
        """SHA-256 of the records of each finished trial that has one, and of imported points. Two
        runs with one in common hold one measurement twice, as no two measurements have the same
        times.
        """
        hashes = {e.sha256 for e in self.evidences().values() if e.sha256 is not None and e.size != 0}
        if self._folder.exists("imported.jsonl"):
            with self._folder.reader("imported.jsonl", IMPORTED_BYTES) as file:
                hashes.add(_sha256(file))
        return frozenset(hashes)

    def mark(self, key: str) -> tuple[str, bool]:
        """A name of the state of the records' file, without reading it; and whether any later
        change gives another.

        The name holds the kernel's own time of change (ctime), which no program can set. But a
        change within the same tick of the kernel's clock would leave it as it is, so a file that
        was changed just now is not settled.
        """
        with self.trials.reader(f"{key}.jsonl") as file:
            about = os.fstat(file.fileno())
        counts_seconds = about.st_ctime_ns % 10**9 == 0  # a file system that does; some count by two
        age = time.time_ns() - about.st_ctime_ns
        settled = not 0 <= age < (2 * 10**9 if counts_seconds else _TICK)
        return f"{about.st_size} {about.st_mtime_ns} {about.st_ctime_ns} {about.st_ino}", settled

    # -- imported points
    # ----------------------------------------------------------------------------------------------

    def write_imported(self, points: Sequence[Point]) -> None:
        """The points of an import, whole or not at all; their hash first."""
        lines = b"".join(map(encode_imported, points))
        evidence = {"sha256": hashlib.sha256(lines).hexdigest(), "bytes": len(lines)}
        with writing(self._folder.path / "imported.jsonl"):
            self.evidence_folder.write_whole("imported.json", sealed(evidence))
            self._folder.write_whole("imported.jsonl", lines)

    def imported(self) -> tuple[Point, ...]:
        """The points of an import; none in a run that was measured. StoreError when they are
        damaged or changed.
        """
        if not self._folder.exists("imported.jsonl"):
            return ()
        file, again = self._folder.path / "imported.jsonl", "import the files again, into another run directory"
        data = self._folder.read(file.name, IMPORTED_BYTES)
        if self.evidence_folder.exists("imported.json"):
            try:
                tree, whole = unsealed(self.evidence_folder.read("imported.json", EVIDENCE_BYTES))
            except ValueError:
                tree, whole = {}, False
            if not whole or tree.get("sha256") != hashlib.sha256(data).hexdigest():
                raise StoreError(f"{file} does not match its hash: it was changed or damaged since the import", again)
        elif self._hashed:
            raise StoreError(f"{self.evidence_file('imported')} is missing: the hash of {file}", again)
        return tuple(decode_imported(line, file) for line in data.splitlines())

    def imported_unhashed(self) -> bool:
        """Whether it has imported points without a hash: an earlier version imported them."""
        return self._folder.exists("imported.jsonl") and not self.evidence_folder.exists("imported.json")


class TrialWriter:
    """The records of the trial in flight. `commit` makes them count; leaving without it drops
    them.
    """

    def __init__(self, files: TrialFiles, trial: Trial, journal: Callable[..., None]) -> None:
        self._files, self._trial, self._journal = files, trial, journal
        self._final = files.trial_file(trial.key)
        self._part = self._final.with_name(f"{self._final.name}.part")
        self._file: BinaryIO | None = None
        self._records = 0
        self._digest = hashlib.sha256()

    def __enter__(self) -> Self:
        with writing(self._part):
            self._file = self._files.trials.creator(self._part.name, buffering=_CHUNK)
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
            with writing(self._part):  # only now: a context manager costs more than the write
                raise

    def commit(self, measurement: Measurement, **facts: Any) -> None:
        """The trial is complete: evidence first, then the rename that makes it exist, then the
        journal with `facts`. Where it is measured again, its earlier records go before, as the
        evidence is no longer theirs.
        """
        assert self._file is not None
        key = self._trial.key
        with writing(self._final):
            self._file.flush()
            os.fsync(self._file.fileno())
            size = self._file.tell()
            self._file.close()
            tree = encode_measurement(measurement) | {
                "number": self._files.next_number(),
                "records": self._records,
                "bytes": size,
            }
            tree["sha256"] = self._digest.hexdigest()
            self._files.trials.unlink(self._final.name)
            self._files.evidence_folder.write_whole(f"{key}.json", sealed(tree))
            self._files.trials.replace(self._part.name, self._final.name)
        self._journal("trial_done", trial=key, ended=measurement.ended, **facts)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        with suppress(OSError, StoreError):
            self._files.trials.unlink(self._part.name)
