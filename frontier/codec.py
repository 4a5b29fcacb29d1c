"""What a trial's files hold: a record as one JSON line, a measurement as a tree."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from frontier.errors import StoreError
from frontier.model import ClientHealth, Lengths, Measurement, Outcome, Phase, Record, Shape, Trial, Window

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


def decode_record(line: bytes, file: Path | None = None) -> Record:
    """The record of one line. StoreError, naming the file it is of, when it is not one."""
    try:
        fields = orjson.loads(line)
        fields["outcome"] = Outcome(fields["outcome"])
        fields["gaps"] = tuple(fields.get("gaps", ()))
        return Record(**fields)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        where = f" of {file}" if file is not None else ""
        again = f"; remove {file} to measure the trial again" if file is not None else ""
        raise StoreError(
            f"a record{where} cannot be read: {error}", f"the trial's file was changed or damaged{again}"
        ) from error


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
