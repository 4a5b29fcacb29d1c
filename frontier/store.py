"""The run directory: the only module that knows file names.

    runs/NAME/  manifest.json  config.yaml  journal.jsonl  trials/KEY.jsonl  evidence/KEY.json  derived/  lock

A trial exists when `trials/KEY.jsonl` does: its records are written to `KEY.jsonl.part` while it runs, its evidence is
put in place, and only then is the part renamed. Whatever kills us before the rename loses that one trial; nothing
is ever half there. The journal is an account for people and for `status`; it decides nothing.
"""

import dataclasses
import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import orjson

from frontier.errors import StoreError
from frontier.model import ClientHealth, Lengths, Measurement, Outcome, Phase, Record, Shape, Trial, Window

SCHEMA = "frontier.run/1"

_RECORD_DEFAULTS = {
    f.name: f.default for f in dataclasses.fields(Record) if f.default is not dataclasses.MISSING
}  # a field at its default is not written: most records have no error, no reason, no schedule
_RECORD_FIELDS = tuple(f.name for f in dataclasses.fields(Record))
_TIMES = frozenset({"sent", "end", "first", "visible", "last", "scheduled"})


def encode_record(record: Record) -> bytes:
    """One JSON line; times rounded to the microsecond, fields at their default left out."""
    line: dict[str, Any] = {}
    for name in _RECORD_FIELDS:
        value = getattr(record, name)
        if name in _RECORD_DEFAULTS and value == _RECORD_DEFAULTS[name]:
            continue
        line[name] = round(value, 6) if name in _TIMES else value
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def decode_record(line: bytes) -> Record:
    """The record of one line. StoreError when it is not one."""
    try:
        fields = orjson.loads(line)
        fields["outcome"] = Outcome(fields["outcome"])
        fields["gaps"] = tuple(fields.get("gaps", ()))
        return Record(**fields)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"a record cannot be read: {error}", "the trial's file was changed or damaged") from error


def encode_measurement(measurement: Measurement) -> dict[str, Any]:
    """A plain tree of the measurement, for JSON."""
    return dataclasses.asdict(measurement)


def decode_measurement(tree: Mapping[str, Any]) -> Measurement:
    """The measurement of a tree written by `encode_measurement`."""
    trial = dict(tree["trial"])
    shape = dict(trial["shape"])
    shape |= {"isl": Lengths(**shape["isl"]), "osl": Lengths(**shape["osl"])}
    trial |= {"shape": Shape(**shape), "phase": Phase(trial["phase"])}
    return Measurement(
        trial=Trial(**trial),
        epoch=tree["epoch"],
        window=Window(**tree["window"]),
        ended=tree["ended"],
        health=ClientHealth(**tree["health"]),
        server=tree["server"],
        server_identity=tree["server_identity"],
    )


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: a temporary beside it, fsync, rename."""
    temporary = path.with_name(path.name + f".{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _fsync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _fsync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _writing(what: Path) -> Iterator[None]:
    """Turn what the operating system says about writing into an error with a way out."""
    try:
        yield
    except PermissionError as error:
        raise StoreError(
            f"no permission to write {error.filename or what}", "choose another run directory with  -o DIR"
        ) from error
    except OSError as error:
        raise StoreError(
            f"cannot write {what}: {error.strerror}", "finished trials are kept; free space or choose  -o DIR"
        ) from error


class TrialWriter:
    """The records of the trial in flight. `commit` makes them count; leaving without it drops them."""

    def __init__(self, run: "RunDirectory", trial: Trial) -> None:
        self._run, self._trial = run, trial
        self._final = run.trial_file(trial.key)
        self._part = self._final.with_name(self._final.name + ".part")
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        with _writing(self._part):
            self._file = self._part.open("wb", buffering=1 << 20)
        return self

    def add(self, record: Record) -> None:
        """Append one record. Called while measuring: buffered, so it costs a few microseconds."""
        assert self._file is not None
        self._file.write(encode_record(record))

    def commit(self, measurement: Measurement) -> None:
        """The trial is complete: evidence first, then the rename that makes it exist, then the journal."""
        assert self._file is not None
        with _writing(self._final):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            evidence = orjson.dumps(encode_measurement(measurement), option=orjson.OPT_INDENT_2)
            write_whole(self._run.evidence_file(self._trial.key), evidence)
            self._part.replace(self._final)
            _fsync_directory(self._final.parent)
        self._run.journal("trial_done", trial=self._trial.key, ended=measurement.ended)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        with suppress(OSError):
            self._part.unlink(missing_ok=True)


class RunDirectory:
    """One run on disk. Open it with `create`, `resume` or `read`; the first two hold its lock until `close`."""

    def __init__(self, path: Path, manifest: Mapping[str, Any], lock: BinaryIO | None = None) -> None:
        self.path = path
        self.manifest = manifest
        self._lock = lock

    # -- opening ---------------------------------------------------------------------------------------------------

    @classmethod
    def open_for_sweep(
        cls, path: Path, *, identity: str, canonical: Mapping[str, Any], config_text: str, facts: Mapping[str, Any]
    ) -> Self:
        """Create the run, or resume it when it is the same sweep. Holds the lock until `close`.

        StoreError when the directory holds another sweep (`.other` is then its canonical config), is in use by another
        process, is no run directory, or cannot be written.
        """
        manifest_file = path / "manifest.json"
        if path.exists() and not path.is_dir():
            raise StoreError(f"{path} is a file, not a run directory", "choose another with  -o DIR")
        if path.is_dir() and not manifest_file.exists() and any(p.name != "lock" for p in path.iterdir()):
            raise StoreError(f"{path} is not empty and not a run directory", "choose another with  -o DIR")
        with _writing(path):
            for part in (path, path / "trials", path / "evidence", path / "derived"):
                part.mkdir(parents=True, exist_ok=True)
            lock = _take_lock(path)
        try:
            if manifest_file.exists():
                run = cls(path, read_manifest(path), lock)
                run._require_same(identity, canonical)
                run._sweep_leftovers()
                run.journal("resumed", finished=len(run.finished()))
                return run
            manifest = {
                "schema": SCHEMA,
                "identity": identity,
                "canonical": canonical,
                "created": time.time(),
                **facts,
            }
            with _writing(path):
                write_whole(path / "config.yaml", config_text.encode())
                write_whole(manifest_file, orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
            run = cls(path, manifest, lock)
            run.journal("created")
        except BaseException:
            lock.close()
            raise
        return run

    @classmethod
    def read(cls, path: Path) -> Self:
        """Open a run to look at it; takes no lock."""
        return cls(path, read_manifest(path))

    def close(self) -> None:
        """Let go of the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_same(self, identity: str, canonical: Mapping[str, Any]) -> None:
        if self.manifest.get("identity") != identity:
            raise AnotherSweepError(self.path, self.manifest.get("canonical", {}), canonical, len(self.finished()))

    def _sweep_leftovers(self) -> None:
        """Parts and temporaries of a killed predecessor: never data, so they go."""
        for leftover in [*self.path.rglob("*.part"), *self.path.rglob("*.tmp")]:
            leftover.unlink(missing_ok=True)

    def held(self) -> bool:
        """A sweep is running on it: some process holds its lock."""
        try:
            with (self.path / "lock").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    # -- writing ---------------------------------------------------------------------------------------------------

    def journal(self, event: str, **facts: Any) -> None:
        """One line, on the disk when this returns."""
        line = orjson.dumps({"time": round(time.time(), 3), "event": event, **facts}, option=orjson.OPT_APPEND_NEWLINE)
        with _writing(self.path / "journal.jsonl"), (self.path / "journal.jsonl").open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def writer(self, trial: Trial) -> TrialWriter:
        """A place for the records of a trial about to run."""
        return TrialWriter(self, trial)

    # -- reading ---------------------------------------------------------------------------------------------------

    def finished(self) -> dict[str, Measurement]:
        """The trials that count, by key, oldest first."""
        found = []
        for file in (self.path / "trials").glob("*.jsonl"):
            evidence = self.evidence_file(file.stem)
            try:
                found.append(decode_measurement(orjson.loads(evidence.read_bytes())))
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise StoreError(
                    f"the evidence of trial {file.stem} cannot be read: {error}",
                    f"remove {file} to measure it again",
                ) from error
        return {m.trial.key: m for m in sorted(found, key=lambda m: m.epoch)}

    def records(self, key: str) -> Iterator[Record]:
        """The records of a finished trial, in the order they ended."""
        with self.trial_file(key).open("rb") as file:
            for line in file:
                yield decode_record(line)

    def journal_lines(self) -> list[dict[str, Any]]:
        """The journal; a last line torn by a kill is left out."""
        file = self.path / "journal.jsonl"
        lines: list[dict[str, Any]] = []
        if file.exists():
            for line in file.read_bytes().splitlines():
                with suppress(orjson.JSONDecodeError):
                    lines.append(orjson.loads(line))
        return lines

    def config_text(self) -> str:
        """The config as the user wrote it."""
        return (self.path / "config.yaml").read_text()

    def trial_file(self, key: str) -> Path:
        return self.path / "trials" / f"{key}.jsonl"

    def evidence_file(self, key: str) -> Path:
        return self.path / "evidence" / f"{key}.json"

    def derived_file(self, name: str) -> Path:
        """A place for something that can be made again."""
        return self.path / "derived" / name

    def size(self) -> int:
        """Bytes on disk."""
        return sum(f.stat().st_size for f in self.path.rglob("*") if f.is_file())


class AnotherSweepError(StoreError):
    """The run directory holds another sweep; `theirs` and `ours` are the canonical configs."""

    def __init__(self, path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any], finished: int) -> None:
        super().__init__(f"{path} holds another sweep; its {finished} finished trials are untouched")
        self.path, self.theirs, self.ours, self.finished = path, theirs, ours, finished


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a run. StoreError when there is none or it is of a newer schema."""
    file = path / "manifest.json"
    try:
        manifest = json.loads(file.read_text())
    except FileNotFoundError as error:
        raise StoreError(f"{path} is not a run directory", "make one with  frontier sweep CONFIG") from error
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot read {file}: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise StoreError(f"{path} was written by another version of frontier ({manifest.get('schema', 'no schema')!r})")
    return manifest


def _take_lock(path: Path) -> BinaryIO:
    """The kernel drops this lock with its holder, so a dead process never blocks a resume."""
    file = (path / "lock").open("a+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read(200).decode(errors="replace").strip() or "another process"
        file.close()
        raise StoreError(
            f"{path} is in use by {holder}", f"wait for it, watch it with  frontier status {path},  or choose  -o DIR"
        ) from error
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
    file.flush()
    return file


def newest_run(root: Path) -> Path:
    """The run under `root` created last. StoreError when there is none."""
    runs = [p.parent for p in root.glob("*/manifest.json")]
    if not runs:
        raise StoreError(f"no run under {root}/", "make one with  frontier sweep CONFIG,  or name a run directory")
    return max(runs, key=lambda p: (p / "manifest.json").stat().st_mtime)


def free_bytes(path: Path) -> int:
    """Free space where `path` is or would be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
