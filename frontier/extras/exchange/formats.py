"""Import: files of other tools are read, put together, and stored as a run directory."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from frontier import registry
from frontier._version import __version__
from frontier.config import load_config
from frontier.core.model.errors import StoreError, UsageError
from frontier.core.model.shapes import Shape, ShapeError
from frontier.core.model.text import clean_name, suggestion
from frontier.extras.exchange import (
    aiperf,
    csv_table,
    genai_bench,
    guidellm,
    inference_perf,
    inferencex,
    llmd,
    llmperf,
    vllm,
)
from frontier.extras.exchange.assemble import Assembled, assemble, config_text
from frontier.extras.exchange.results import ImportedFile
from frontier.fields import Problem
from frontier.fields import name as name_of
from frontier.read_run import load
from frontier.run import Run
from frontier.store.documents import (
    MOST_BYTES,
    Document,
    ForeignFileError,
    decoded,
    foreign_text,
    parsed,
    read_document,
)
from frontier.store.files import read_given
from frontier.store.run_dir import AnotherSweepError, RunDirectory


class Format(Protocol):
    """The module of a foreign format."""

    def detect(self, document: Document) -> bool:
        """Whether the document has this format."""

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
    "csv": csv_table,
}
"""The formats by the names of --format; the first that detects a file reads it."""


@dataclass(frozen=True, slots=True)
class Import:
    """Files that were read and put together; nothing is stored yet. `identity` names it."""

    files: tuple[ImportedFile, ...]
    assembled: Assembled
    sources: tuple[dict[str, str], ...]
    identity: str

    @property
    def notes(self) -> list[str]:
        """Each difference of the tools' definitions from ours, once."""
        return list(dict.fromkeys(f"{file.format}: {note}" for file in self.files for note in file.notes))


def read_results(file: str, data: bytes, name: str | None = None) -> ImportedFile:
    """The results of a file in the format `name`, otherwise in the format that its content has.
    ForeignFileError when it has no known format, or not the named one.
    """
    return _results(read_document(file, data), name)


def _results(document: Document, name: str | None) -> ImportedFile:
    chosen = FORMATS[name] if name else next((f for f in FORMATS.values() if f.detect(document)), None)
    if chosen is None:
        keys = ", ".join(str(key)[:30] for key in list(document.top.tree)[:6])
        kind = {"json": "a JSON object", "table": "a table"}.get(document.kind, "lines")
        known = f"known: {', '.join(FORMATS)}; or a CSV with concurrency, isl, osl and metrics (docs/share.md)"
        raise ForeignFileError(
            document.file, f"no result of a known tool ({kind} with {keys or 'nothing in it'})", known
        )
    return chosen.read(document)


def read_files(
    files: Sequence[str | Path], *, name: str | None = None, deployment: str | None = None, shape: str | None = None
) -> Import:
    """The files as one import; nothing is written. `name` is their format, where their content does
    not tell it. `deployment` names the only one, `shape` ("1024/256") gives the lengths that files
    lack. UsageError for the first file that cannot be used, and for an invalid option.
    """
    if name is not None and name not in FORMATS:
        raise UsageError(f"unknown format {clean_name(name)!r}", suggestion(name, FORMATS))
    try:
        wanted = None if deployment is None else name_of(deployment)
        asked = Shape.parse(shape) if shape is not None else None
    except (Problem, ShapeError) as error:
        raise UsageError(error.what.replace("{key}", "--deployment"), error.hint) from None
    read: dict[str, ImportedFile] = {}  # by digest
    for file in map(str, files):
        digest, document = _opened(file)
        if digest in read:
            raise ForeignFileError(file, f"the same file as {read[digest].file}", "name it once")
        read[digest] = _results(document, name)
    return Import(
        files=tuple(read.values()),
        assembled=assemble(list(read.values()), deployment=wanted, shape=asked),
        sources=tuple(
            {"file": foreign_text(Path(results.file).name, 200), "sha256": digest, "format": results.format}
            for digest, results in read.items()
        ),
        identity=hashlib.sha256(
            f"{name} {wanted} {asked.label if asked else None} {sorted(read)}".encode()
        ).hexdigest(),
    )


def _opened(file: str) -> tuple[str, Document]:
    """The digest of a file, and its parsed content. Its bytes and its text are dropped, as it may
    be large.
    """
    try:
        data = read_given(Path(file), MOST_BYTES)
    except OSError as error:
        what = f"it cannot be read: {error.strerror}"
        raise ForeignFileError(file, what, "name files, as  results/*.json") from None
    digest, text = hashlib.sha256(data).hexdigest(), decoded(file, data)
    del data
    return digest, parsed(file, text)


def store(imported: Import, path: Path) -> None:
    """Write the run directory; the same import again changes nothing. StoreError when another run
    is there.
    """
    text = config_text(imported.assembled)
    facts = {
        "frontier": __version__,
        "imported": {"sources": list(imported.sources), "notes": imported.notes, "time": time.time()},
    }
    try:
        run = RunDirectory.open_for_sweep(
            path,
            identity=imported.identity,
            canonical=load_config(text, "config.yaml").canonical(),
            config_text=text,
            facts=facts,
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


def import_files(
    files: Sequence[str | Path],
    run: str | Path,
    *,
    format: str | None = None,  # noqa: A002  # the option's name
    deployment: str | None = None,
    shape: str | None = None,
) -> Run:
    """Results of other tools as a run. The content of `files` tells their format, unless `format`
    names it. `deployment` names the only deployment, `shape` ("1024/256") its lengths where the
    files have none. UsageError when a file cannot be used, StoreError when `run` holds something
    else.
    """
    store(read_files(files, name=format, deployment=deployment, shape=shape), Path(run))
    shown = registry.API["load"].find() or load  # as a notebook shows it
    imported: Run = shown(run)
    return imported
