"""The table of the extras: strings by which commands and rings find what an extra adds, imported
when it is used.

An extra is a folder of `frontier/extras`. Nothing else names what is in it, so that a folder that
is deleted takes exactly its commands, options, keys, notes, sections and figures with it.
"""

import importlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_EXTRAS = Path(__file__).parent / "extras"


class Command(NamedTuple):
    """A command of an extra: the section of the help it stands in, its line there, its module."""

    section: str
    line: str
    module: str


COMMANDS = {
    "quick": Command("Measure", "a plain answer in about a minute", "quick.command"),
    "compare": Command("Decide", "compare two runs: is B's frontier better than A's?", "compare.command"),
    "trend": Command("Decide", "runs over time: a table and a figure", "compare.trend_command"),
    "users": Command(
        "Decide", "people per replica, replicas for so many people, and where to set the limit", "users.command"
    ),
    "predict": Command(
        "Decide", "predicted frontier (before or beyond the measured points) and the roofline bound", "predict.command"
    ),
    "export": Command("Exchange", "a run for other tools: CSV, Parquet, Prometheus", "exporters.command"),
    "import": Command(
        "Exchange",
        "results of other tools as a run: vLLM, AIPerf, GuideLLM, genai-bench, InferenceX, CSV",
        "importers.command",
    ),
    "ceilings": Command(
        "Also",
        "measured memory bandwidth, matmul rate and attention decode, beside the data sheet",
        "predict.ceilings_command",
    ),
}


@cache
def is_there(extra: str) -> bool:
    """Whether the folder of an extra is there."""
    return (_EXTRAS / extra / "__init__.py").exists()


def commands() -> dict[str, Command]:
    """The commands of the extras that are there."""
    return {name: found for name, found in COMMANDS.items() if is_there(found.module.partition(".")[0])}


def load(place: str) -> Any:
    """What stands at 'EXTRA.module' or 'EXTRA.module:name'."""
    module, _, name = place.partition(":")
    found = importlib.import_module(f"frontier.extras.{module}")
    return getattr(found, name) if name else found
