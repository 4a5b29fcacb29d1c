"""Import: files of other tools are read, put together, and stored as a run directory."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from frontier._version import __version__
from frontier.config import Config, load_config
from frontier.errors import ConfigError, StoreError, UsageError
from frontier.fields import Problem
from frontier.fields import name as name_of
from frontier.formats import aiperf, genai_bench, guidellm, inference_perf, inferencex, llmd, llmperf, table, vllm
from frontier.formats.assemble import Assembled, assemble, config_text
from frontier.formats.documents import MOST_BYTES, Document, ForeignFileError, foreign_text, read_document
from frontier.formats.results import ImportedFile
from frontier.model import Shape, ShapeError
from frontier.store.files import read_given
from frontier.store.run_dir import AnotherSweepError, RunDirectory
from frontier.text import clean_name, suggestion

MOST_FILES = 10_000
MOST_ERRORS = 20
"""Errors about files that are listed; more are counted."""


class Format(Protocol):
    """The module of a foreign format."""

    def detect(self, document: Document) -> bool:
        """Whether the document looks like it."""

    def read(self, document: Document) -> ImportedFile:
        """The results in it."""


FORMATS: dict[str, Format] = {
    "aiperf": aiperf,
    "guidellm": guidellm,
    "genai-bench": genai_bench,
    "inference-perf": inference_perf,
    "inferencex": inferencex,
    "vllm": vllm,
    "llm-d": llmd,
    "llmperf": llmperf,
    "csv": table,
}
"""By the names of --format; the first that detects a file reads it."""


@dataclass(frozen=True, slots=True)
class Import:
    """Files that were read and put together; nothing is stored yet. `skipped` hold no result;
    `identity` names it.
    """

    files: tuple[ImportedFile, ...]
    skipped: tuple[str, ...]
    assembled: Assembled
    sources: tuple[dict[str, str], ...]
    identity: str

    @property
    def tool_notes(self) -> list[str]:
        """Each difference of the tools' definitions from ours, once."""
        return list(dict.fromkeys(f"{file.format}: {note}" for file in self.files for note in file.notes))


def read_results(file: str, data: bytes, name: str | None = None) -> ImportedFile | None:
    """The results of a file: of the format `name`, else of the one that its content has. None for
    metadata alone.

    ForeignFileError when it is of no known format, or not of the named one.
    """
    document = read_document(file, data)
    if name is None and genai_bench.is_metadata(document):
        return None
    chosen = FORMATS[name] if name else next((f for f in FORMATS.values() if f.detect(document)), None)
    if chosen is None:
        keys = ", ".join(str(key)[:30] for key in list(document.objects[0].tree)[:6])
        kind = {"json": "a JSON object", "table": "a table"}.get(document.kind, "lines")
        known = f"known: {', '.join(FORMATS)}; or a CSV with concurrency, isl, osl and metrics (docs/exchange.md)"
        raise ForeignFileError(file, f"no result of a known tool ({kind} with {keys or 'nothing in it'})", known)
    return chosen.read(document)


def read_files(
    files: Sequence[str | Path], *, name: str | None = None, deployment: str | None = None, shape: str | None = None
) -> Import:
    """The files as one import; nothing is written. `name` is that of their format, where their
    content does not tell.

    `deployment` names the only one, `shape` ("1024/256") replaces all lengths. UsageError with the
    errors of all files when one cannot be used, and for an option that is not valid.
    """
    if name is not None and name not in FORMATS:
        raise UsageError(f"unknown format {clean_name(name)!r}", suggestion(name, FORMATS))
    try:
        deployment = None if deployment is None else name_of(deployment)
        asked = Shape.parse(shape) if shape is not None else None
    except Problem as problem:
        raise UsageError(problem.named("--deployment").what, problem.hint) from None
    except ShapeError as error:
        raise UsageError(error.what, error.hint) from None
    if len(files) > MOST_FILES:
        raise UsageError(f"{len(files):,} files; the maximum is {MOST_FILES:,}", "import a part of them")
    read: dict[str, tuple[str, ImportedFile | None]] = {}  # by digest
    errors: list[UsageError] = []
    for file in map(str, files):
        try:
            data = _bytes(file)
            digest = hashlib.sha256(data).hexdigest()
            if digest in read:
                raise ForeignFileError(file, f"the same file as {foreign_text(read[digest][0], 200)}", "name it once")
            read[digest] = file, None  # also where it cannot be read
            read[digest] = file, read_results(file, data, name)
        except UsageError as error:
            errors.append(error)
    if errors:
        more = f"\n  and {len(errors) - MOST_ERRORS} more files" if len(errors) > MOST_ERRORS else ""
        raise UsageError("\n".join(map(str, errors[:MOST_ERRORS])) + more)
    imported = {digest: results for digest, (_, results) in read.items() if results is not None}
    assembled = assemble(list(imported.values()), deployment=deployment, shape=asked)
    options = f"{name} {deployment} {asked.label if asked else None}"
    return Import(
        files=tuple(imported.values()),
        skipped=tuple(file for file, results in read.values() if results is None),
        assembled=assembled,
        sources=tuple(
            {"file": foreign_text(Path(read[digest][0]).name, 200), "sha256": digest, "format": results.format}
            for digest, results in imported.items()
        ),
        identity=hashlib.sha256(f"{options} {sorted(read)}".encode()).hexdigest(),
    )


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


def store(imported: Import, path: Path) -> None:
    """Write the run directory; the same import again changes nothing. StoreError when another run
    is there.
    """
    text, config = _config(imported.assembled)
    facts = {
        "frontier": __version__,
        "imported": {"sources": list(imported.sources), "notes": imported.tool_notes, "time": time.time()},
    }
    try:
        run = RunDirectory.open_for_sweep(
            path, identity=imported.identity, canonical=config.canonical(), config_text=text, facts=facts
        )
    except AnotherSweepError as error:
        raise StoreError(f"{path} holds another run", "choose another directory with  -o RUN") from error
    with run:
        done = run.finished()
        for measurement, records in imported.assembled.trials:
            if measurement.trial.key not in done:
                with run.writer(measurement.trial) as writer:
                    for record in records:
                        writer.add(record)
                    writer.commit(measurement)
        run.write_imported(imported.assembled.points)
        run.journal("finished")


def _config(assembled: Assembled) -> tuple[str, Config]:
    """The config of the run. A foreign file may call its model what no config may hold; models are
    then left out.
    """
    text = config_text(assembled)
    try:
        return text, load_config(text, "config.yaml")
    except ConfigError:
        text = config_text(assembled, with_models=False)
        return text, load_config(text, "config.yaml")
