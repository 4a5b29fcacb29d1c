"""Files of other tools into a run directory: read, put together, stored. What `frontier import` and a notebook call."""

import hashlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from frontier._version import __version__
from frontier.config import Config, load_config
from frontier.errors import ConfigError, StoreError, UsageError
from frontier.formats import registry
from frontier.formats.assemble import Assembled, assemble, config_text
from frontier.formats.documents import MOST_BYTES, ForeignFileError, text
from frontier.formats.found import Found
from frontier.model import MAX_TOKENS, Shape
from frontier.report.notebook import NotebookRun, load
from frontier.store.files import read_given
from frontier.store.run_dir import AnotherSweepError, RunDirectory

MOST_FILES = 10_000
MOST_SAID = 20
"""Complaints about files that are listed; more are counted."""


@dataclass(frozen=True, slots=True)
class Read:
    """What the files say, before anything is stored. `skipped` only accompany results; `identity` names the import."""

    founds: tuple[Found, ...]
    skipped: tuple[str, ...]
    assembled: Assembled
    sources: tuple[dict[str, str], ...]
    identity: str


def read_files(
    files: Sequence[str | Path],
    *,
    format: str | None = None,  # noqa: A002  # the option's name
    deployment: str | None = None,
    shape: Shape | None = None,
) -> Read:
    """Read and put together; nothing is written. UsageError with every complaint when a file cannot be used."""
    if len(files) > MOST_FILES:
        raise UsageError(f"{len(files):,} files are more than {MOST_FILES:,}", "import a part of them")
    founds: list[Found] = []
    skipped: list[str] = []
    sources: list[dict[str, str]] = []
    wrong: list[UsageError] = []
    seen: dict[str, str] = {}
    for file in map(str, files):
        try:
            data = _bytes(file)
            digest = hashlib.sha256(data).hexdigest()
            if digest in seen:
                raise ForeignFileError(file, f"the same file as {text(seen[digest], 200)}", "name it once")
            seen[digest] = file
            found = registry.read(file, data, format)
        except UsageError as error:
            wrong.append(error)
            continue
        if found is None:
            skipped.append(file)
            continue
        founds.append(found)
        sources.append({"file": text(Path(file).name, 200), "sha256": digest, "format": found.format})
    if wrong:
        more = f"\n  and {len(wrong) - MOST_SAID} more files" if len(wrong) > MOST_SAID else ""
        raise UsageError("\n".join(str(error) for error in wrong[:MOST_SAID]) + more)
    assembled = assemble(founds, deployment=deployment, shape=shape)
    options = f"{format} {deployment} {shape.label if shape else None}"
    identity = hashlib.sha256(f"{options} {sorted(seen)}".encode()).hexdigest()
    return Read(tuple(founds), tuple(skipped), assembled, tuple(sources), identity)


def _bytes(file: str) -> bytes:
    path = Path(file)
    try:
        if path.is_dir():
            raise ForeignFileError(file, "it is a directory", f"name the files in it, as  {file.rstrip('/')}/*.json")
        return read_given(path, MOST_BYTES)
    except FileNotFoundError:
        raise ForeignFileError(file, "there is no such file") from None
    except OSError as error:
        raise ForeignFileError(file, f"it cannot be read: {error.strerror}") from None


def store(read: Read, path: Path) -> NotebookRun:
    """Write the run directory of an import; the same import again changes nothing. StoreError when it is another's."""
    text_of, config = _config(read.assembled)
    try:
        run = RunDirectory.open_for_sweep(
            path, identity=read.identity, canonical=config.canonical(), config_text=text_of, facts=_facts(read)
        )
    except AnotherSweepError as error:
        raise StoreError(f"{path} holds another run", "choose another directory with  -o RUN") from error
    with run:
        done = run.finished()
        for measurement, records in read.assembled.trials:
            if measurement.trial.key not in done:
                with run.writer(measurement.trial) as writer:
                    for record in records:
                        writer.add(record)
                    writer.commit(measurement)
        run.write_imported(read.assembled.points)
        run.journal("finished")
    return load(path)


def _facts(read: Read) -> dict[str, object]:
    notes = dict.fromkeys(f"{found.format}: {note}" for found in read.founds for note in found.notes)
    return {
        "frontier": __version__,
        "imported": {"sources": list(read.sources), "notes": list(notes), "time": time.time()},
    }


def _config(assembled: Assembled) -> tuple[str, Config]:
    """The run's config. What a foreign file calls its model may be what no config may hold; it is left out then."""
    text_of = config_text(assembled)
    try:
        return text_of, load_config(text_of, "config.yaml")
    except ConfigError:
        text_of = config_text(assembled, with_models=False)
        return text_of, load_config(text_of, "config.yaml")


def import_files(
    files: Sequence[str | Path],
    run: str | Path,
    *,
    format: str | None = None,  # noqa: A002  # the option's name
    deployment: str | None = None,
    shape: str | None = None,
) -> NotebookRun:
    """Results of other tools as a run: `files` are detected by content unless `format` says what they are.

    `deployment` names the only deployment, `shape` ("1024/256") its lengths where the files do not say them.
    UsageError when a file cannot be used, StoreError when `run` holds something else.
    """
    read = read_files(files, format=format, deployment=deployment, shape=parse_shape(shape))
    return store(read, Path(run))


def parse_shape(written: str | None) -> Shape | None:
    """'1024/256' as a shape. UsageError otherwise."""
    if written is None:
        return None
    found = re.fullmatch(r"\s*([1-9]\d{0,8})\s*/\s*([1-9]\d{0,8})\s*", written)
    if found is None or max(int(found[1]), int(found[2])) > MAX_TOKENS:
        raise UsageError(f"--shape {written!r} is not a shape", "write input/output tokens, as 1024/256")
    return Shape.of(int(found[1]), int(found[2]))
