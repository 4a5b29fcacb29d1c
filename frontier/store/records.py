"""What a trial's files hold: a record as one JSON line, a measurement as a tree."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from frontier.errors import StoreError
from frontier.metrics import metric
from frontier.model import (
    ClientHealth,
    Estimate,
    Flag,
    Lengths,
    Measurement,
    Outcome,
    Phase,
    Point,
    Record,
    Shape,
    Trial,
    Window,
)
from frontier.text import stored, stored_tree
from frontier.units import LONGEST, MOST_COUNT, usable, usable_count

_RECORD_DEFAULTS = {
    f.name: f.default for f in dataclasses.fields(Record) if f.default is not dataclasses.MISSING
}  # a field at its default is not written: most records have no error, no reason, no schedule
_RECORD_FIELDS = tuple(f.name for f in dataclasses.fields(Record))
_TIMES = frozenset({"sent", "end", "first", "first_text", "visible", "last", "scheduled"})
_NUMBERS = _TIMES | {
    "index", "stream", "asked_isl", "asked_osl", "prompt_tokens", "completion_tokens", "cached_tokens", "events",
    "reads", "text_bytes", "text_chars",
}  # fmt: skip
_LONGEST = 1e12
"""Seconds, tokens, requests or microseconds: more than any trial has, and few enough to be counted with."""
_WORDS = frozenset({"error", "finish_reason"})


def encode_record(record: Record) -> bytes:
    """One JSON line; times rounded to the microsecond, a server's words cleaned, fields at their default left out."""
    line: dict[str, Any] = {}
    for name in _RECORD_FIELDS:
        value = getattr(record, name)
        if name in _RECORD_DEFAULTS and value == _RECORD_DEFAULTS[name]:
            continue
        line[name] = round(value, 6) if name in _TIMES else stored(value) if name in _WORDS else value
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def decode_record(line: bytes, file: Path | None = None) -> Record:
    """The record of one line. StoreError, naming the file it is of, when it is not one."""
    try:
        fields = orjson.loads(line)
        fields["outcome"] = Outcome(fields["outcome"])
        fields["gaps"] = tuple(fields.get("gaps", ()))
        numbers = [value for name, value in fields.items() if name in _NUMBERS and value is not None]
        if not (
            -_LONGEST <= min(numbers) and max(numbers) <= _LONGEST and -_LONGEST <= sum(fields["gaps"]) <= _LONGEST
        ):
            raise ValueError("a number is larger than any that is measured")
        return Record(**fields)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        where = f" of {file}" if file is not None else ""
        again = f"; remove {file} to measure the trial again" if file is not None else ""
        raise StoreError(
            f"a record{where} cannot be read: {error}", f"the trial's file was changed or damaged{again}"
        ) from error


def encode_measurement(measurement: Measurement) -> dict[str, Any]:
    """A plain tree of the measurement, for JSON; what the server says is cleaned."""
    tree = dataclasses.asdict(measurement)
    return tree | {name: stored_tree(tree[name]) for name in ("server", "server_identity")}


def decode_measurement(tree: Mapping[str, Any]) -> Measurement:
    """The measurement of a tree written by `encode_measurement`."""
    trial = dict(tree["trial"])
    trial |= {"shape": _decode_shape(trial["shape"]), "phase": Phase(trial["phase"])}
    measurement = Measurement(
        trial=Trial(**trial),
        epoch=tree["epoch"],
        window=Window(**tree["window"]),
        ended=tree["ended"],
        health=ClientHealth(**tree["health"]),
        server=_server(tree["server"]),
        server_identity=tree["server_identity"],
    )
    _require(measurement)
    return measurement


def _server(said: Mapping[str, Any]) -> dict[str, Any]:
    """The server's metrics without what nothing can be computed of: older runs kept all that a server said, and null
    where a sum of it was infinite."""
    spoiled = {name for name, value in said.items() if value is None or (_is_number(value) and usable(value) is None)}
    return {name: value for name, value in said.items() if name not in spoiled}


def _decode_shape(tree: Mapping[str, Any]) -> Shape:
    return Shape(**dict(tree) | {"isl": Lengths(**tree["isl"]), "osl": Lengths(**tree["osl"])})


def encode_imported(point: Point) -> bytes:
    """One JSON line of an imported aggregate. Its intervals are endless, so values alone are kept."""
    tree = {
        "deployment": point.deployment,
        "shape": dataclasses.asdict(point.shape),
        "concurrency": point.concurrency,
        "n": point.n,
        "repeats": point.repeats,
        "values": {name: "inf" if e.value == math.inf else e.value for name, e in point.metrics.items()},
        "flags": [dataclasses.asdict(flag) for flag in point.flags],
        "notes": point.notes,
        "whole_run": point.whole_run,
    }
    return orjson.dumps(tree, option=orjson.OPT_APPEND_NEWLINE)


def decode_imported(line: bytes, file: Path | None = None) -> Point:
    """The point of one line. StoreError, naming the file it is of, when it is not one."""
    try:
        tree = orjson.loads(line)
        shape, n = _decode_shape(tree["shape"]), _count(tree["n"])
        point = Point(
            deployment=tree["deployment"],
            shape=shape,
            concurrency=_count(tree["concurrency"], 1),
            metrics={name: Estimate.without_interval(_figure(value), n) for name, value in tree["values"].items()},
            n=n,
            flags=tuple(Flag(**flag) for flag in tree["flags"]),
            repeats=_count(tree["repeats"]),
            notes=tuple(tree["notes"]),
            whole_run=tree["whole_run"],
        )
        _require_imported(point)
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        where = f" of {file}" if file is not None else ""
        raise StoreError(
            f"an imported point{where} cannot be read: {error}", "import the files again, into another run directory"
        ) from error
    return point


def _figure(value: Any) -> float:
    """A value of an imported point. ValueError when it is neither infinite nor a number that can be one."""
    found = math.inf if value == "inf" else usable(value)
    if found is None:
        raise ValueError(f"{value!r:.40} cannot be one of its figures")
    return found


def _count(value: Any, least: int = 0) -> int:
    """A count of an imported point. ValueError when it is none."""
    found = usable_count(value)
    if found is None or found < least:
        raise ValueError(f"{value!r:.40} cannot be one of its counts")
    return found


def _lengths(shape: Shape) -> list[float]:
    """All the numbers of a shape's two sides."""
    return [n for side in (shape.isl, shape.osl) for n in (side.mean, side.low, side.high, side.sd)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_LATEST = 1e11
"""Unix time: the year 5138."""
_ENDED = ("requests", "time", "interrupted", "server_lost")


def _require(found: Measurement) -> None:
    """TypeError where a value is not of its kind: what is read may have been damaged, or come from a stranger."""
    trial, shape = found.trial, found.trial.shape
    numbers = [
        found.epoch, found.window.start, found.window.end, shape.prefix, trial.concurrency, trial.repeat,
        trial.requests, trial.warmup, trial.min_time, trial.max_time,
        *_lengths(shape),
        *found.server.values(), *(v for v in dataclasses.astuple(found.health) if v is not None),
    ]  # fmt: skip
    _require_kinds(
        [*numbers, trial.seed],
        [trial.deployment, trial.fingerprint, *_shape_texts(shape), *found.server, found.server_identity or ""],
    )
    lasts = (found.window.end, trial.warmup, trial.min_time, trial.max_time)
    if beyond := [n for n in numbers if usable(n) is None]:
        raise ValueError(f"{beyond[0]:.3g} cannot be one of its numbers")
    if not (0 <= found.window.start <= found.window.end and max(lasts) <= LONGEST and abs(found.epoch) <= _LATEST):
        raise ValueError("its times cannot be")
    if not (trial.concurrency >= 1 and max(trial.requests, trial.concurrency) <= MOST_COUNT):
        raise ValueError("its load cannot be")
    if found.ended not in _ENDED:
        raise TypeError("a text is not one")


def _require_imported(point: Point) -> None:
    texts = [point.deployment, *_shape_texts(point.shape), *point.metrics, *point.whole_run, *point.notes]
    texts += [text for flag in point.flags for text in (flag.name, flag.measured, flag.limit, flag.advice)]
    numbers = [point.shape.prefix, *_lengths(point.shape)]
    _require_kinds([*numbers, *point.whole_run.values()], texts)
    if beyond := [n for n in (*numbers, *point.whole_run.values()) if usable(n) is None and n != math.inf]:
        raise ValueError(f"{beyond[0]!r:.40} cannot be one of its numbers")
    for name in point.metrics:
        metric(name)


def _shape_texts(shape: Shape) -> list[Any]:
    return [shape.isl.kind, shape.osl.kind, *([] if shape.name is None else [shape.name])]


def _require_kinds(numbers: Iterable[Any], texts: Iterable[Any]) -> None:
    if not all(map(_is_number, numbers)):
        raise TypeError("a number is not one")
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a text is not one")
