"""The run directory: the only module that knows file names.

    runs/NAME/  manifest.json  config.yaml  journal.jsonl  trials/KEY.jsonl  evidence/KEY.json  logs/  derived/  lock
                verify/  (the open-loop checks of the operating point, laid out as the run is)
                imported.jsonl  (only in a run made by `frontier import`: one aggregated Point a line)

A trial exists when `trials/KEY.jsonl` does: its records are written to `KEY.jsonl.part` while it runs, its evidence is
put in place, and only then is the part renamed. Whatever kills us before the rename loses that one trial; nothing
is ever half there. The journal is an account for people and for `status`; it decides nothing.
"""

import math
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import orjson

from frontier import lock
from frontier.codec import (
    decode_imported,
    decode_measurement,
    decode_record,
    encode_imported,
    encode_measurement,
    encode_record,
)
from frontier.errors import StoreError
from frontier.files import fsync_directory, write_whole, writing
from frontier.journal import Journal
from frontier.model import Measurement, Point, Record, Trial
from frontier.redaction import redact

SCHEMA = "frontier.run/1"


class TrialWriter:
    """The records of the trial in flight. `commit` makes them count; leaving without it drops them."""

    def __init__(self, run: "RunDirectory", trial: Trial) -> None:
        self._run, self._trial = run, trial
        self._final = run.trial_file(trial.key)
        self._part = self._final.with_name(self._final.name + ".part")
        self._file: BinaryIO | None = None
        self._records = 0

    def __enter__(self) -> Self:
        with writing(self._part):
            self._file = self._part.open("wb", buffering=1 << 20)
        return self

    def add(self, record: Record) -> None:
        """Append one record. Called while measuring: buffered, so it costs a few microseconds."""
        assert self._file is not None
        self._records += 1
        try:
            self._file.write(encode_record(record))
        except OSError:
            with writing(self._part):
                raise

    def commit(self, measurement: Measurement, **facts: Any) -> None:
        """The trial is complete: evidence first, then the rename that makes it exist, then the journal with `facts`."""
        assert self._file is not None
        with writing(self._final):
            self._file.flush()
            os.fsync(self._file.fileno())
            size = self._file.tell()
            self._file.close()
            tree = encode_measurement(measurement)
            tree |= {"number": self._run.next_number(), "records": self._records, "bytes": size}
            evidence = orjson.dumps(tree, option=orjson.OPT_INDENT_2)
            write_whole(self._run.evidence_file(self._trial.key), evidence)
            self._part.replace(self._final)
            fsync_directory(self._final.parent)
        self._run.journal("trial_done", trial=self._trial.key, ended=measurement.ended, **facts)

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

    def __init__(self, path: Path, manifest: Mapping[str, Any], held: lock.Lock | None = None) -> None:
        self.path = path
        self.manifest = manifest
        self._lock = held
        self._journal = Journal(path / "journal.jsonl")
        self._number: int | None = None

    # -- opening ---------------------------------------------------------------------------------------------------

    @classmethod
    def open_for_sweep(
        cls,
        path: Path,
        *,
        identity: str,
        canonical: Mapping[str, Any],
        config_text: str,
        facts: Mapping[str, Any],
        extend: bool = False,
    ) -> Self:
        """Create the run, or resume it when it is the same sweep. Holds the lock until `close`.

        With `extend` a run whose sweep is the same but for fewer concurrencies becomes this one. The config kept is the
        last one given: what it may differ in decides nothing that was measured. This one takes the place of another
        sweep that ended before its first trial.

        StoreError when the directory holds another sweep (`.other` is then its canonical config), is in use by another
        process, is no run directory, or cannot be written.
        """
        manifest_file = path / "manifest.json"
        if path.exists() and not path.is_dir():
            raise StoreError(f"{path} is a file, not a run directory", "choose another with  -o DIR")
        if path.is_dir() and not manifest_file.exists() and not _unborn(path):
            raise StoreError(f"{path} is not empty and not a run directory", "choose another with  -o DIR")
        with writing(path, opening=True):
            for part in (path, path / "trials", path / "evidence", path / "derived"):
                part.mkdir(parents=True, exist_ok=True)
            held = lock.take(path / "lock", _signs_of_life(path))
        try:
            with writing(path, opening=True):
                if manifest_file.exists() and not _barren(run := cls(path, read_manifest(path), held), identity):
                    if extend and run.manifest.get("identity") != identity:
                        run._extend(identity, canonical)
                    run._require_same(identity, canonical)
                    run._sweep_leftovers()
                    if run.config_text() != redact(config_text):
                        write_whole(path / "config.yaml", redact(config_text).encode())
                    killed = {} if held.killed is None else {"killed": str(held.killed)}
                    run.journal("resumed", finished=len(run.finished()), **killed)
                    return run
                before = cls(path, {})
                before._sweep_leftovers()
                before._journal.forget()
                manifest = {
                    "schema": SCHEMA,
                    "identity": identity,
                    "canonical": canonical,
                    "created": time.time(),
                    **facts,
                }
                write_whole(path / "config.yaml", redact(config_text).encode())
                write_whole(manifest_file, orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
            run = cls(path, manifest, held)
            run.journal("created")
        except BaseException:
            held.close()
            raise
        return run

    @classmethod
    def open_to_verify(cls, path: Path) -> Self:
        """A place below a run for the trials that check its operating point; holds the run's lock until `close`.

        They are kept apart from the sweep's: `verify/` is laid out as a run is, and no estimate is made of both.
        """
        manifest = read_manifest(path)
        below = path / "verify"
        with writing(below):
            for part in (below / "trials", below / "evidence", below / "derived"):
                part.mkdir(parents=True, exist_ok=True)
            held = lock.take(path / "lock", _signs_of_life(path))
        run = cls(below, manifest, held)
        run._sweep_leftovers()
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

    def _extend(self, identity: str, canonical: Mapping[str, Any]) -> None:
        """Become the sweep that has more concurrencies; the finished trials count as they are."""
        if not extends(self.manifest["canonical"], canonical):
            return
        before = self.manifest["canonical"]["concurrency"]
        added = [c for c in canonical["concurrency"] if c not in before]
        begun_as = [*self.manifest.get("begun_as", ()), self.manifest["identity"]]
        self.manifest = {**self.manifest, "identity": identity, "canonical": canonical, "begun_as": begun_as}
        write_whole(self.path / "manifest.json", orjson.dumps(self.manifest, option=orjson.OPT_INDENT_2))
        self.journal("extended", concurrency=added)

    def _sweep_leftovers(self) -> None:
        """Parts, temporaries and a half journal line of a killed predecessor: never data, so they go."""
        for leftover in [*self.path.rglob("trials/*.part"), *self.path.rglob("*.[0-9]*.tmp")]:
            leftover.unlink(missing_ok=True)
        self._journal.mend()

    def held(self) -> bool:
        """A sweep is running on it: some process holds its lock."""
        return lock.held(self.path / "lock")

    def held_elsewhere(self) -> str | None:
        """The process on another machine that holds its lock, and when it last wrote; None where none does."""
        return lock.elsewhere(self.path / "lock", _signs_of_life(self.path))

    # -- writing ---------------------------------------------------------------------------------------------------

    def journal(self, event: str, **facts: Any) -> None:
        """One line, on the disk when this returns."""
        self._journal.append(event, **facts)

    def writer(self, trial: Trial) -> TrialWriter:
        """A place for the records of a trial about to run."""
        return TrialWriter(self, trial)

    def write_imported(self, points: Sequence[Point]) -> None:
        """The aggregates of an import, whole or not at all."""
        with writing(self.path / "imported.jsonl"):
            write_whole(self.path / "imported.jsonl", b"".join(map(encode_imported, points)))

    # -- reading ---------------------------------------------------------------------------------------------------

    def finished(self) -> dict[str, Measurement]:
        """The trials that count, by key, in the order they were finished, whatever the clock was set to meanwhile."""
        found = [self._look(file) for file in self._trial_files()]
        return {m.trial.key: m for _, _, m in sorted(found, key=lambda item: item[:2])}

    def next_number(self) -> int:
        """The number of the trial finished next: they are numbered as they are finished."""
        if self._number is None:
            self._number = max((self._look(file)[0] for file in self._trial_files()), default=0)
        self._number += 1
        return self._number

    def _trial_files(self) -> list[Path]:
        return sorted((self.path / "trials").glob("*.jsonl"))

    def _look(self, file: Path) -> tuple[int, float, Measurement]:
        """Number, epoch and evidence of a finished trial. StoreError when they cannot be read or the file is cut."""
        try:
            tree = orjson.loads(self.evidence_file(file.stem).read_bytes())
            measurement = decode_measurement(tree)
            if measurement.trial.key != file.stem:
                raise ValueError(f"it is of another trial, {measurement.trial.key!r}")
            if tree.get("bytes") not in (None, size := file.stat().st_size):
                raise ValueError(f"the trial's file has {size:,} bytes of {tree['bytes']:,}")
            return int(tree.get("number", 0)), float(measurement.epoch), measurement
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(
                f"the evidence of trial {file.stem} cannot be read: {error}", f"remove {file} to measure it again"
            ) from error

    def records(self, key: str) -> Iterator[Record]:
        """The records of a finished trial, in the order they ended."""
        with self.trial_file(key).open("rb") as file:
            for line in file:
                yield decode_record(line, self.trial_file(key))

    def imported(self) -> tuple[Point, ...]:
        """The aggregates of an import; none in a run that was measured."""
        file = self.path / "imported.jsonl"
        return tuple(map(decode_imported, file.read_bytes().splitlines())) if file.exists() else ()

    def journal_lines(self) -> list[dict[str, Any]]:
        """The journal; a last line torn by a kill is left out."""
        return self._journal.lines()

    def config_text(self) -> str:
        """The config as the user wrote it."""
        try:
            return (self.path / "config.yaml").read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"cannot read {self.path / 'config.yaml'}: {error}") from error

    def trial_file(self, key: str) -> Path:
        return self.path / "trials" / f"{key}.jsonl"

    def evidence_file(self, key: str) -> Path:
        return self.path / "evidence" / f"{key}.json"

    def log_file(self, deployment: str) -> Path:
        """What a server that the sweep started says; its predecessor lies beside it as NAME.log.1."""
        return self.path / "logs" / f"{deployment}.log"

    def derived_file(self, name: str) -> Path:
        """A place for something that can be made again."""
        return self.path / "derived" / name

    def size(self) -> int:
        """Bytes on disk."""
        total = 0
        for file in self.path.rglob("*"):
            with suppress(OSError):  # what is temporary may go while one looks
                total += file.stat().st_size if file.is_file() else 0
        return total


class AnotherSweepError(StoreError):
    """The run directory holds another sweep; `theirs` and `ours` are the canonical configs."""

    def __init__(self, path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any], finished: int) -> None:
        super().__init__(f"{path} holds another sweep; its {finished} finished trials are untouched")
        self.path, self.theirs, self.ours, self.finished = path, theirs, ours, finished


def extends(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Two canonical configs are the same sweep, ours with more concurrencies."""
    same = {**theirs, "concurrency": None} == {**ours, "concurrency": None}
    return same and set(theirs.get("concurrency", ())) < set(ours["concurrency"])


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a run. StoreError when there is none or it is of a newer schema."""
    file = path / "manifest.json"
    try:
        manifest = orjson.loads(file.read_bytes())
    except FileNotFoundError as error:
        raise StoreError(f"{path} is not a run directory", "make one with  frontier sweep CONFIG") from error
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot read {file}: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise StoreError(f"{path} was written by another version of frontier ({manifest.get('schema', 'no schema')!r})")
    return manifest


def _signs_of_life(path: Path) -> list[Path]:
    """What whoever sweeps or verifies the run writes to."""
    return [path / "journal.jsonl", *path.glob("trials/*.part"), *path.glob("verify/trials/*.part")]


def _barren(run: RunDirectory, identity: str) -> bool:
    """Another sweep's, and with nothing in it that was measured or imported."""
    return run.manifest.get("identity") != identity and not any(
        (*(run.path / "trials").glob("*.jsonl"), *run.path.glob("imported.jsonl"))
    )


_OWN_NAMES = {"lock", "config.yaml", "trials", "evidence", "derived", "journal.jsonl"}


def _unborn(path: Path) -> bool:
    """Empty, or with no more in it than a start leaves that is killed before its manifest is written."""
    for entry in path.iterdir():
        temporary = entry.suffix == ".tmp" and entry.name.startswith(("config.yaml.", "manifest.json."))
        if not (temporary or entry.name in _OWN_NAMES) or (entry.is_dir() and any(entry.iterdir())):
            return False
    return True


def last_measured(path: Path) -> float | None:
    """Unix time at which the run's last trial was finished, or its points were imported; None when it has neither."""
    found = []
    for file in (*(path / "trials").glob("*.jsonl"), path / "imported.jsonl"):
        with suppress(OSError):
            if stat.S_ISREG((status := file.lstat()).st_mode):
                found.append(status.st_mtime)
    return max(found, default=None)


def runs_under(root: Path) -> list[Path]:
    """The run directories in `root`, newest first: by their last finished trial; then those without one, by their
    start.
    """
    found = []
    for manifest in root.glob("*/manifest.json"):
        with suppress(OSError):  # it may be removed while one looks
            found.append((last_measured(manifest.parent) or -math.inf, manifest.lstat().st_mtime, manifest.parent))
    return [path for *_, path in sorted(found, reverse=True)]


def newest_run(root: Path) -> Path:
    """The run under `root` whose last trial was finished last. StoreError when no run there holds a finished trial."""
    runs = runs_under(root)
    if not runs:
        raise StoreError(f"no run under {root}/", "make one with  frontier sweep CONFIG,  or name a run directory")
    if last_measured(runs[0]) is None:
        raise StoreError(f"no run under {root}/ holds a finished trial", f"see why with  frontier status {runs[0]}")
    return runs[0]
