"""`frontier import`: results of other tools as a run."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from frontier.cli.common import RUNS, answer, answer_json, json_option, say, subcommand
from frontier.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from frontier.importing import Read


@subcommand("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="The run directory.")
@click.option("--format", "name", metavar="NAME", help="What the files are, when their content does not tell.")
@click.option("--deployment", metavar="NAME", help="What to call the deployment they are of.")
@click.option("--shape", metavar="ISL/OSL", help="Input and output tokens, when the files do not say.")
@json_option
def command(
    files: tuple[str, ...],
    output: Path | None,
    name: str | None,
    deployment: str | None,
    shape: str | None,
    as_json: bool,
) -> int:
    """Make a run of what other tools measured, to be shown, plotted, compared and solved like any other.

    Read are results of vllm bench serve (and SGLang's), AIPerf, GuideLLM, genai-bench, inference-perf, InferenceX,
    and CSV tables. Where a file holds every request with its times, all statistics apply; of aggregates no doubt is
    known, and solve decides on them only with --point-estimates.

    \b
    Examples:
      frontier import results/*.json -o runs/vllm
      frontier import profile_export.jsonl --deployment fp8
      frontier import table.csv --shape 1024/256
    """
    from frontier.importing import parse_shape, read_files, store

    read = read_files(files, format=known_format(name), deployment=known_name(deployment), shape=parse_shape(shape))
    path = output or RUNS / f"{time.strftime('%Y-%m-%d')}-imported-{read.identity[:6]}"
    run = store(read, path)
    if as_json:
        answer_json(tree(read, path))
    else:
        answer("\n".join(lines(read)))
        for note in notes(read):
            say(f"note: {note}")
        if run.imported:
            say("note: aggregates have no intervals: solve decides on them only with --point-estimates")
    say(f"run  {path}")
    return ExitCode.YES


def known_format(name: str | None) -> str | None:
    """The format asked for. UsageError when there is none of that name."""
    from frontier.formats.registry import NAMES

    if name is not None and name not in NAMES:
        raise UsageError(f"--format {name!r} is not known", "known: " + ", ".join(NAMES))
    return name


def known_name(name: str | None) -> str | None:
    """A name a deployment may have. UsageError otherwise."""
    import re

    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}", name):
        raise UsageError(f"--deployment {name!r} cannot be a name", "use letters, digits, . - and _, at most 60")
    return name


def notes(read: "Read") -> list[str]:
    """Each thing to know once: how the tools' definitions differ, what was left out."""
    said = dict.fromkeys(f"{found.format}: {note}" for found in read.founds for note in found.notes)
    said |= dict.fromkeys(f"{Path(file).name} holds no result and is left out" for file in read.skipped)
    return [*said, *read.assembled.notes]


def lines(read: "Read") -> list[str]:
    """What came of it: a line per (deployment, shape)."""
    groups: dict[tuple[str, str], list[tuple[int, bool]]] = {}
    for point in read.assembled.points:
        groups.setdefault((point.deployment, point.shape.label), []).append((point.concurrency, False))
    for measurement, _ in read.assembled.trials:
        trial = measurement.trial
        groups.setdefault((trial.deployment, trial.shape.label), []).append((trial.concurrency, True))
    told = []
    for (deployment, shape), settings in groups.items():
        head = shape if deployment == "default" else f"{deployment}  {shape}"
        full = {c for c, traced in settings if traced}
        kind = "with every request" if len(full) == len({c for c, _ in settings}) else "aggregates"
        kind = (
            f"{kind}; every request at c={', '.join(map(str, sorted(full)))}" if full and kind == "aggregates" else kind
        )
        told.append(f"{head}  c={', '.join(str(c) for c in sorted({c for c, _ in settings}))}  ({kind})")
    formats = ", ".join(dict.fromkeys(found.format for found in read.founds))
    files = "1 file" if len(read.founds) == 1 else f"{len(read.founds)} files"
    return [f"{files} of {formats}", *(f"  {line}" for line in told)]


def tree(read: "Read", path: Path) -> dict[str, Any]:
    """The answer for a machine."""
    return {
        "schema": "frontier.import/1",
        "run": str(path),
        "files": list(read.sources),
        "points": len(read.assembled.points),
        "trials": len(read.assembled.trials),
        "deployments": [d.name for d in read.assembled.deployments],
        "notes": notes(read),
    }
