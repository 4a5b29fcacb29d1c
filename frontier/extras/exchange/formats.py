"""Import: files of other tools are read, put together, and stored as a run directory."""

import hashlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from frontier import registry
from frontier._version import __version__
from frontier.config import load_config
from frontier.core.model.errors import StoreError, UsageError
from frontier.core.model.shapes import Shape, ShapeError
from frontier.core.model.text import clean_name, suggestion
from frontier.extras.exchange import (
    aiconfigurator,
    aiperf,
    csv_table,
    evalscope,
    genai_bench,
    guidellm,
    inference_perf,
    inferencex,
    llmd,
    llmperf,
    mlperf,
    sglang_one_batch,
    sglang_turns,
    trtllm_bench,
    vllm,
    vllm_turns,
)
from frontier.extras.exchange.assemble import Assembled, assemble, config_text
from frontier.extras.exchange.column_heads import ColumnHead, given_columns
from frontier.extras.exchange.found_files import FoundFile, files_of
from frontier.extras.exchange.results import ImportedFile
from frontier.extras.exchange.unread import with_unread
from frontier.fields import Problem
from frontier.fields import name as name_of
from frontier.read_run import load
from frontier.run import Run
from frontier.store.documents import (
    Document,
    ForeignFileError,
    decoded,
    foreign_text,
    parsed,
    read_document,
)
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
    "evalscope": evalscope,
    "trtllm-bench": trtllm_bench,
    "mlperf": mlperf,
    "sglang-turns": sglang_turns,
    "sglang-one-batch": sglang_one_batch,
    "vllm-turns": vllm_turns,
    "aiconfigurator": aiconfigurator,
    "csv": csv_table,
}
"""The formats by the names of --format; the first that detects a file reads it."""


LEFT_OUT = "left out"
"""In the place of a format: a file of a folder that holds no result."""


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
        of_tools = (f"{file.format}: {note}" for file in self.files if file.format != LEFT_OUT for note in file.notes)
        return list(dict.fromkeys((*self._left_out(), *of_tools, *self.assembled.notes)))

    def _left_out(self) -> list[str]:
        """A note on the files of a folder that hold no result, and why the first does not."""
        names = [Path(file.file).name for file in self.files if file.format == LEFT_OUT]
        if not names:
            return []
        why = next(note for file in self.files if file.format == LEFT_OUT for note in file.notes)
        listed = f"{', '.join(names[:4])}{f' and {len(names) - 4:,} more' if names[4:] else ''}"
        return [f"left out: {listed} ({f'the first: {why}' if names[1:] else why})"]


def read_results(file: str, data: bytes, name: str | None = None) -> ImportedFile:
    """The results of a file in the format `name`, otherwise in the format that its content has.
    ForeignFileError when it has no known format, or not the named one.
    """
    return _results(read_document(file, data), name)


def _completed(file: ImportedFile, others: Collection[ImportedFile]) -> ImportedFile:
    """The file, its one result with the figures that another file of its folder has."""
    alike = (each for each in others if each.tool == file.tool and Path(each.file).parent == Path(file.file).parent)
    more = [each.beside for each in alike if each.beside]
    if len(file.results) != 1 or len(more) != 1:
        return file
    (result,) = file.results
    return replace(file, results=(replace(result, figures={**more[0], **result.figures}),))


def _said_once(file: ImportedFile, others: Collection[ImportedFile]) -> ImportedFile:
    """The file, without results where the files of its runs are there, too: they count."""
    runs = any(each.results and each.tool == file.tool and not each.again for each in others)
    if not (file.again and runs):
        return file
    return replace(file, results=(), notes=(f"{Path(file.file).name} is left out: it sums up files that are read",))


def _results(
    document: Document, name: str | None, given: Mapping[str, ColumnHead] | None = None, *, listed: bool = True
) -> ImportedFile:
    """The results of a document. One that was not named, but found in a folder, may hold none."""
    if given is not None and document.kind == "table":
        return csv_table.read(document, given)
    chosen = FORMATS[name] if name else next((f for f in FORMATS.values() if f.detect(document)), None)
    if chosen is not None:
        return chosen.read(document) if chosen is csv_table else with_unread(document, chosen.read(document))
    keys = ", ".join(str(key)[:30] for key in list(document.top.tree)[:6])
    kind = {"json": "a JSON object", "table": "a table"}.get(document.kind, "lines")
    what = f"no result of a known tool ({kind} with {keys or 'nothing in it'})"
    if listed:
        raise ForeignFileError(document.file, what, _nearest(document))
    return ImportedFile(document.file, LEFT_OUT, notes=(what,))


_SIGNS = {
    "vllm": ("num_prompts", "completed", "request_throughput", "max_concurrency", "duration", "mean_ttft_ms"),
    "guidellm": ("benchmarks", "metadata", "args", "guidellm_version"),
    "aiperf": ("input_config", "request_throughput", "time_to_first_token", "aiperf_version", "records"),
    "genai-bench": ("aggregated_metrics", "individual_request_metrics", "num_concurrency"),
    "inference-perf": ("load_summary", "successes", "failures"),
    "inferencex": ("hw", "framework", "tput_per_gpu", "conc"),
    "llm-d": ("version", "scenario", "results", "metrics", "run"),
    "llmperf": ("num_concurrent_requests", "results_ttft_s_mean", "results_number_errors"),
    "evalscope": ("Number of concurrency", "Succeed requests", "Total requests"),
    "trtllm-bench": ("engine", "world_info", "request_info", "performance"),
}
"""Keys of each format, two of which tell that a file is like it."""


def _nearest(document: Document) -> str:
    """The hint for a file of no format: the format that it is like and what it lacks, or all."""
    if csv_table.lacks_load(document):
        return "it has no column of a load: name it concurrency or rate, or give  --columns 'concurrency=THEIRS'"
    keys = set(map(str, document.top.tree))
    near = max(_SIGNS, key=lambda name: len(keys & set(_SIGNS[name])))
    missing = [key for key in _SIGNS[near] if key not in keys]
    if document.kind != "table" and len(keys & set(_SIGNS[near])) >= 2 and missing:
        return f"it is most like {near}, without {', '.join(missing[:4])}; --format {near} tries it"
    return f"known: {', '.join(FORMATS)}; or a CSV with concurrency, isl, osl and metrics (docs/share.md)"


def read_files(
    files: Sequence[str | Path],
    *,
    name: str | None = None,
    deployment: str | None = None,
    shape: str | None = None,
    columns: str | None = None,
) -> Import:
    """The files, and those in folders and zips, as one import; nothing is written. `name` is their
    format, where their content does not tell it. `deployment` names the only one, `shape`
    ("1024/256") gives the lengths that files lack, `columns` names those of tables. UsageError for
    the first file that cannot be used, and for an invalid option.
    """
    if name is not None and name not in FORMATS:
        raise UsageError(f"unknown format {clean_name(name)!r}", suggestion(name, FORMATS))
    try:
        wanted = None if deployment is None else name_of(deployment)
        asked = Shape.parse(shape) if shape is not None else None
    except (Problem, ShapeError) as error:
        raise UsageError(error.what.replace("{key}", "--deployment"), error.hint) from None
    read = _read_all(files, name, None if columns is None else given_columns(columns))
    return Import(
        files=tuple(read.values()),
        assembled=assemble(list(read.values()), deployment=wanted, shape=asked),
        sources=tuple(
            {"file": foreign_text(Path(results.file).name, 200), "sha256": digest, "format": results.format}
            for digest, results in read.items()
        ),
        identity=hashlib.sha256(
            f"{name} {wanted} {asked.label if asked else None}{columns or ''} {sorted(read)}".encode()
        ).hexdigest(),
    )


def _read_all(
    files: Sequence[str | Path], name: str | None, given: Mapping[str, ColumnHead] | None
) -> dict[str, ImportedFile]:
    """What each file holds, by its digest. A summary is left out beside the files of its runs."""
    read: dict[str, ImportedFile] = {}
    for found in (found for file in map(str, files) for found in files_of(file)):
        digest, document = _opened(found)
        if digest in read and found.named:
            raise ForeignFileError(found.name, f"the same file as {read[digest].file}", "name it once")
        if isinstance(document, str):
            read[digest] = ImportedFile(found.name, LEFT_OUT, notes=(document,))
        elif digest not in read:
            read[digest] = _results(document, name, given, listed=found.named)
    whole = {digest: _completed(each, read.values()) for digest, each in read.items()}
    return {digest: _said_once(each, read.values()) for digest, each in whole.items()}


def _opened(file: FoundFile) -> tuple[str, Document | str]:
    """The digest of a file, and its parsed content. Its bytes and its text are dropped, as it may
    be large. Of a file of a folder that cannot be parsed, as a config beside results, the reason.
    """
    data = file.read()
    digest, text = hashlib.sha256(data).hexdigest(), decoded(file.name, data)
    del data
    try:
        return digest, parsed(file.name, text)
    except ForeignFileError as error:
        if file.named or file.name.lower().removesuffix(".gz").endswith(("json", "jsonl")):
            raise
        return digest, error.what.removeprefix(f"{foreign_text(file.name, 300)}: ")


def store(imported: Import, path: Path) -> None:
    """Write the run directory; the same import again changes nothing. StoreError when another run
    is there.
    """
    text = config_text(imported.assembled)
    commands = {d.name: d.command for d in imported.assembled.deployments if d.command}
    told = {"sources": list(imported.sources), "notes": imported.notes, "commands": commands, "time": time.time()}
    facts = {"frontier": __version__, "imported": told}
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
    columns: str | None = None,
) -> Run:
    """Results of other tools as a run. The content of `files` tells their format, unless `format`
    names it. `deployment` names the only deployment, `shape` ("1024/256") its lengths where the
    files have none, `columns` ("p99_ttft=their column:ms") what those of tables hold. UsageError
    when a file cannot be used, StoreError when `run` holds something else.
    """
    store(read_files(files, name=format, deployment=deployment, shape=shape, columns=columns), Path(run))
    shown = registry.API["load"].find() or load  # as a notebook shows it
    imported: Run = shown(run)
    return imported
