"""The statement of a pack: every number and verdict that a run's records give, as JSON, and how two of them differ."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from frontier._version import __version__
from frontier.config import parse_sla
from frontier.report.answer import answers_json
from frontier.report.json_out import points_json
from frontier.run import Run, load
from frontier.store.run_dir import RunDirectory
from frontier.text import clean

SCHEMA = "frontier.claim/1"
DERIVED = ("servers", "points", "frontiers", "tiers")
"""The parts of a statement that follow from the run's files."""
_SAME = 1e-9
"""Relative difference of two numbers that are the same: other builds of numpy add up in another order."""
_AGAIN = "frontier sweep CONFIG"


def state(path: Path, sla: Sequence[str] = ()) -> tuple[Run, dict[str, Any]]:
    """The run in a directory, and what it states under these SLAs (default: every tier of its config)."""
    run = load(path)
    if run.standing is not None:  # the command that goes on names directories of the machine
        run = replace(run, standing=replace(run.standing, again=_AGAIN))
    tiers = [(text, parse_sla(text)) for text in sla] or None
    axes = run.config.objectives
    points = run.points(names=axes)
    summaries = run.summaries(points, axes)
    shown = points_json(points, [summary.frontier for summary in summaries], summaries)
    begun = [line for line in RunDirectory.read(path).journal_lines() if line["event"] == "server"]
    return run, orjson.loads(orjson.dumps({
        "schema": SCHEMA,
        "frontier": __version__,
        "sla": list(sla),
        "servers": [{name: line[name] for name in ("deployment", "model", "identity")} for line in begun],
        "points": shown["points"],
        "frontiers": shown["frontiers"],
        "tiers": answers_json(run.answers(tiers))["tiers"],
    }, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY))  # fmt: skip


def differences(stated: Any, derived: Any, where: str = "") -> Iterator[str]:
    """Where two statements differ: 'points c=88 metrics p99_ttft value: stated 0.212, the records give 0.241'."""
    if isinstance(stated, dict) and isinstance(derived, dict):
        for name in sorted(stated.keys() | derived.keys()):
            yield from differences(stated.get(name), derived.get(name), f"{where} {name}".strip())
    elif isinstance(stated, list) and isinstance(derived, list) and len(stated) == len(derived):
        for i, (one, other) in enumerate(zip(stated, derived, strict=True)):
            yield from differences(one, other, f"{where} {_label(other, i)}")
    elif not _same(stated, derived):
        yield f"{clean(where)}: stated {_text(stated)}, the records give {_text(derived)}"


def _label(item: Any, index: int) -> str:
    """An entry of a list, by what a reader knows it by."""
    known = (
        [str(item[name]) for name in ("tier", "deployment", "shape") if item.get(name)]
        if isinstance(item, dict)
        else []
    )
    if known and item.get("concurrency") is not None:
        known.append(f"c={item['concurrency']}")
    return " ".join(known) or str(index + 1)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float) and not isinstance(one, bool):
        return math.isclose(one, other, rel_tol=_SAME, abs_tol=1e-12)
    return type(one) is type(other) and bool(one == other)


def _text(value: Any) -> str:
    if isinstance(value, dict | list):
        return f"{len(value)} entries"
    return "nothing" if value is None else clean(str(value), 60)
