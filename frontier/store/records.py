"""The JSON of a run's files: records as lines, measurements and imported points as trees, checked
when read.

A run directory may be damaged, or come from a stranger. A file is refused unless it has the types
of its dataclass, and numbers that can be computed with.
"""

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import orjson

from frontier.client.ask.facts import window_facts
from frontier.core.model.errors import StoreError
from frontier.core.model.loads import CappedRate, Load
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate, Point
from frontier.core.model.shapes import Shape
from frontier.core.model.text import short_hash, without_controls
from frontier.core.model.trials import Measurement, Outcome, Record
from frontier.core.model.units import LONGEST, MOST_COUNT, usable, usable_count
from frontier.core.window.from_records import Batch, batches
from frontier.core.window.window import Ints

# --- texts

STORED = 2_000
"""Most characters of one text that are kept in a run."""
_MOST_ITEMS, _DEEPEST = 100_000, 20


def stored(text: str) -> str:
    """Untrusted text for a file of a run: as `without_controls`, at most STORED characters.

    A cut text ends in its full length and a hash, so that two long names that differ stay two
    names. Stored text is stored again unchanged.
    """
    if len(text) <= STORED and text.isprintable():
        return text
    kept = without_controls(text[: 2 * STORED])
    if len(text) <= 2 * STORED and len(kept) <= STORED:
        return kept
    tail = f"… ({len(text):,} characters, sha256 {short_hash(text, 16)})"
    return kept[: STORED - len(tail)] + tail


def stored_tree(tree: Any, depth: int = 0) -> Any:
    """Data for JSON with `stored` applied to every text in it, keys too; ValueError when it is
    nested too deep.
    """
    if isinstance(tree, str):
        return stored(tree)
    if depth > _DEEPEST:
        raise ValueError("what is to be stored is nested too deep")
    if isinstance(tree, dict):
        return {
            stored(name) if isinstance(name, str) else name: stored_tree(value, depth + 1)
            for name, value in list(tree.items())[:_MOST_ITEMS]
        }
    if isinstance(tree, list | tuple):
        return [stored_tree(value, depth + 1) for value in tree[:_MOST_ITEMS]]
    return tree


# --- records

_DEFAULTS = {f.name: f.default for f in dataclasses.fields(Record)}
_TYPES = get_type_hints(Record)
_TIMES = frozenset(name for name, kind in _TYPES.items() if kind in (float, float | None))
_NUMBERS = _TIMES | {name for name, kind in _TYPES.items() if kind in (int, int | None)}
_MOST = 1e12
"""Seconds, tokens, requests or microseconds: more than any trial has, and few enough to be counted
with."""
_WORDS = frozenset({"error", "finish_reason"})
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
"""Far quicker than `Outcome(value)`."""


def encode_record(record: Record) -> bytes:
    """One JSON line; times rounded to the microsecond, a server's words cleaned, fields at their
    default left out.
    """
    line: dict[str, Any] = {}
    for name, default in _DEFAULTS.items():
        value = getattr(record, name)
        if value != default:
            if name in _TIMES:
                value = round(value, 6)
            line[name] = stored(value) if name in _WORDS else value
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def decode_record(line: bytes, file: Path | None = None) -> Record:
    """The record of one line. StoreError, naming its file, when it is not one.

    Called for every request of a run, so it does not use `build`: the comparisons below refuse a
    text for a number.
    """
    try:
        fields = orjson.loads(line)
        fields["outcome"] = _OUTCOMES[fields["outcome"]]
        fields["gaps"] = tuple(fields.get("gaps", ()))
        numbers = [value for name, value in fields.items() if name in _NUMBERS and value is not None]
        if not (-_MOST <= min(numbers) and max(numbers) <= _MOST and -_MOST <= sum(fields["gaps"]) <= _MOST):
            raise ValueError("a number is larger than any that is measured")
        return Record(**fields)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        remove = f"; remove {file} to measure the trial again" if file is not None else ""
        what = f"a record{_of(file)} cannot be read: {error}"
        raise StoreError(what, f"the trial's file was changed or damaged{remove}") from error


def _of(file: Path | None) -> str:
    return f" of {file}" if file is not None else ""


_OPTIONAL = {name: default for name, default in _DEFAULTS.items() if default is not dataclasses.MISSING}
_NEEDED = _DEFAULTS.keys() - _OPTIONAL.keys()
_Fields: Any = type("_Fields", (), _OPTIONAL)
"""The fields of a line, with the attributes of a Record, which takes ten times as long to make."""
_KINDS = {int, float, bool, NoneType, str, Outcome}


def decode_batch(lines: Sequence[bytes], file: Path | None = None) -> Batch:
    """The records of these lines for `window_of_batches`, which refuses numbers beyond what it can
    compute with. StoreError as of `decode_record`, which looks at each line where one is odd.
    """
    try:
        return _plain_batch(lines)
    except (LookupError, TypeError, ValueError, OverflowError):
        return next(batches([decode_record(line, file) for line in lines]))


def _plain_batch(lines: Sequence[bytes]) -> Batch:
    """`decode_batch` without work of Python for each number. LookupError, TypeError, ValueError or
    OverflowError where a line may not be one that `encode_record` wrote.
    """
    gaps, trees, rows = [], [], []
    for line in lines:
        # Inside a text a quote has a backslash before it, so this is the field.
        before, start, rest = line.partition(b'"gaps":[')
        numbers, end, after = rest.partition(b"]")
        tree = orjson.loads(before + start + end + after)
        tree["outcome"] = _OUTCOMES[tree["outcome"]]
        if tree.pop("gaps", []) != []:
            raise ValueError("gaps may be written in another way")
        gaps.append(numbers)
        trees.append(tree)
        row = _Fields()
        row.__dict__ = tree
        rows.append(row)
    kinds = list(map(type, chain.from_iterable(map(dict.values, trees))))
    layouts = [(frozenset(names), n) for names, n in Counter(map(tuple, trees)).items()]
    words = sum(n * len(names & _WORDS) for names, n in layouts)
    if kinds.count(str) != words or not _KINDS.issuperset(kinds):
        raise TypeError("a number may be something else")
    if not all(_NEEDED <= names <= _DEFAULTS.keys() for names, _ in layouts):
        raise ValueError("a field may be missing or unknown")
    return Batch(rows, *_numbers(gaps))


_SUMS = ((2561, 8, 0x00FF00FF00FF00FF), (6553601, 16, 0x0000FFFF0000FFFF), (42949672960001, 32, 0xFFFFFFFF))
"""Of words of digits, pairs and fours: 10, 100 or 10,000 times one neighbour and the other."""


def _numbers(texts: Sequence[bytes]) -> tuple[Ints, Ints]:
    """The whole numbers of texts such as b"12,7", those of all in a row, and how many each has.
    ValueError for another text, or a number of more than eight digits.

    The eight bytes that end with a number are read as one word. Each step of three adds up its
    neighbours: digits, pairs and fours (Lemire, "Quickly parsing eight digits", 2018).
    """
    text = b",".join([b"0" * 8, *filter(None, texts), b""])
    letters = np.frombuffer(text, np.uint8)
    commas = np.flatnonzero(letters - np.uint8(ord("0")) > 9)  # what is below a zero wraps round
    digits, ends = np.diff(commas) - 1, commas[1:]
    if (letters[ends] != ord(",")).any() or ((digits < 1) | (digits > 8)).any():
        raise ValueError("a gap may be no whole number")
    words = np.ndarray(len(text) - 7, np.dtype("<u8"), text, strides=(1,))[ends - 8]
    before = (64 - 8 * digits).astype(np.uint64)
    words = words >> before << before & 0x0F0F0F0F0F0F0F0F
    for factor, half, kept in _SUMS:
        words = words * factor >> half & kept
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    last = 8 + (sizes + (sizes > 0)).cumsum()
    return words.astype(np.int64), np.diff(np.searchsorted(ends, last, "right"), prepend=0)


# --- measurements

_LATER: Mapping[str, Any] = {"workers": [], "readings": [], "server_settings": {}, "named": {}, "changed": None}
"""Fields that older files do not have, and that are left out where they are empty, as here."""
LATEST = 1e11
"""Unix time: the year 5138."""


def encode_measurement(measurement: Measurement) -> dict[str, Any]:
    """The measurement as a tree for JSON; texts of the server are cleaned."""
    trial = measurement.trial
    if trial.shape.arrivals is not None:  # the times of a trace are in a file of the run
        shape = dataclasses.replace(trial.shape, arrivals=trial.shape.arrivals.without_times)
        measurement = dataclasses.replace(measurement, trial=dataclasses.replace(trial, shape=shape))
    tree = dataclasses.asdict(measurement)
    named = tree["trial"].items()
    tree["trial"] = {"concurrency" if name == "load" else name: value for name, value in named}
    tree["trial"] |= {"concurrency": trial.load.stored, "rate": trial.load.per_second}
    kept = tree["trial"]["shape"]
    if (arrivals := kept["arrivals"]) is not None:
        _leave_empty_out(arrivals, "trace")
        _leave_empty_out(arrivals.get("trace", {}), "times")
    _leave_empty_out(kept, "session", "mix", "arrivals", "pairs", "background")
    _leave_empty_out(tree["trial"], "seconds", "rate")
    _leave_empty_out(tree, *_LATER)
    _leave_tables_out(kept)
    said = ("server", "server_identity", "named", "changed")
    return tree | {name: stored_tree(tree[name]) for name in said if name in tree}


def _leave_empty_out(tree: dict[str, Any], *names: str) -> None:
    for name in names:
        if tree.get(name) in (None, (), {}):
            tree.pop(name, None)


def shape_tree(shape: Shape) -> dict[str, Any]:
    """A shape as a tree for JSON, which `build` reads back; of sessions of a file their figures."""
    tree = dataclasses.asdict(shape)
    _leave_tables_out(tree)
    return tree


def _leave_tables_out(shape: dict[str, Any]) -> None:
    """Leave out the tables of session files and length pairs: a trial keeps only their figures."""
    if pairs := shape.get("pairs"):
        del pairs["table"]
    if session := shape.get("session"):
        if session["file"] is None:
            del session["file"]
        else:
            del session["file"]["table"]
    for each in shape.get("mix", ()):
        _leave_tables_out(each["shape"])


def decode_measurement(tree: Mapping[str, Any]) -> Measurement:
    """The measurement of a tree written by `encode_measurement`. KeyError, TypeError or ValueError
    for another tree.
    """
    fields = {f.name: tree[f.name] for f in dataclasses.fields(Measurement) if f.name not in _LATER}
    fields |= {name: tree.get(name, empty) for name, empty in _LATER.items()}
    # Older runs kept all that a server told, and null where a sum of it was infinite.
    server = {k: v for k, v in fields["server"].items() if v is not None and not (_is_number(v) and usable(v) is None)}
    sent = {"load" if name == "concurrency" else name: value for name, value in fields["trial"].items()}
    rate = build(float | None, sent.pop("rate", None))
    measurement: Measurement = build(Measurement, fields | {"server": server, "trial": sent})
    trial = measurement.trial
    if rate is not None and not trial.load.is_open:
        trial = dataclasses.replace(trial, load=CappedRate.at(rate, trial.load))
    # Made anew of the readings where these were kept: a later version may read more of them.
    facts = window_facts(measurement.readings) or measurement.server
    measurement = dataclasses.replace(measurement, trial=trial, server=facts)
    require_usable(fields | {"server": server, "trial": {**fields["trial"], "seed": 0}})
    window = measurement.window
    lasts = (window.end, trial.warmup, trial.min_time, trial.max_time, trial.seconds or 0.0)
    if not (0 <= window.start <= window.end and max(lasts) <= LONGEST and abs(measurement.epoch) <= LATEST):
        raise ValueError("its times are impossible")
    if not (trial.load >= 1 and max(trial.requests, trial.load) <= MOST_COUNT):
        raise ValueError("its load is impossible")
    return measurement


# --- imported points


def encode_imported(point: Point) -> bytes:
    """One JSON line of an imported aggregate. It has no intervals but those between its runs."""
    tree = {
        "deployment": point.deployment,
        "shape": dataclasses.asdict(point.shape),
        "concurrency": point.load.stored,
        "n": point.n,
        "repeats": point.repeats,
        "values": {name: "inf" if e.value == math.inf else e.value for name, e in point.metrics.items()},
        "between_runs": {name: (e.low, e.high) for name, e in point.metrics.items() if e.has_interval},
        "flags": [dataclasses.asdict(flag) for flag in point.flags],
        "notes": point.notes,
        "whole_run": point.whole_run,
    }
    return orjson.dumps(tree, option=orjson.OPT_APPEND_NEWLINE)


def decode_imported(line: bytes, file: Path | None = None) -> Point:
    """The point of one line. StoreError, naming its file, when it is not one."""
    try:
        tree = orjson.loads(line)
        values, ends = tree.pop("values"), tree.pop("between_runs", {})
        load = tree.pop("concurrency")
        require_usable(tree)
        point: Point = build(Point, tree | {"metrics": {}, "load": load})
        for count, least in ((point.n, 0), (point.repeats, 0), (point.load, 1)):
            if usable_count(count) is None or count < least:
                raise ValueError(f"{count!r:.40} cannot be one of its counts")
        metrics = {metric(name).name: Estimate.without_interval(_figure(v), point.n) for name, v in values.items()}
        for name, (low, high) in ends.items():
            if not _figure(low) <= metrics[name].value <= _figure(high):
                raise ValueError(f"the interval of {name!r:.40} is not around its value")
            metrics[name] = dataclasses.replace(metrics[name], low=_figure(low), high=_figure(high))
        return dataclasses.replace(point, metrics=metrics)
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError) as error:
        what = f"an imported point{_of(file)} cannot be read: {error}"
        raise StoreError(what, "import the files again, into another run directory") from error


def _figure(value: Any) -> float:
    """A value of an imported point. ValueError when it is neither infinite nor a usable number."""
    figure = math.inf if value == "inf" else usable(value)
    if figure is None:
        raise ValueError(f"{value!r:.40} cannot be one of its figures")
    return figure


# --- dataclasses of JSON


_SCALARS = {float: (int, float), int: (int,), Load: (int,), str: (str,), bool: (bool,)}
"""The types a JSON value may have for a field of a type: a whole number counts as a float, and
stays an int."""


def build(kind: Any, tree: Any) -> Any:
    """The value of a type (a frozen dataclass, with fields of such types) that a JSON tree holds.

    TypeError or ValueError where a value is not of its type.
    """
    if (allowed := _SCALARS.get(kind)) is not None:
        if type(tree) not in allowed:
            raise TypeError(f"{tree!r:.40} is no {kind.__name__}")
        return tree
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        fields = _fields(kind)
        return kind(**{name: build(fields[name], value) for name, value in tree.items()})
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin is UnionType:  # X | None, as all unions in the types that are stored
        return None if tree is None else build(arguments[0], tree)
    if origin in (Mapping, dict):
        return {build(arguments[0], name): build(arguments[1], value) for name, value in tree.items()}
    if origin is tuple and type(tree) is list:
        return tuple(build(arguments[0], value) for value in tree)
    if origin is Literal and tree not in arguments:
        raise ValueError(f"{tree!r:.40} is none of {', '.join(arguments)}")
    return tree if origin is Literal else kind(tree)  # a StrEnum, which raises a ValueError of its own


_fields = functools.cache(get_type_hints)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def require_usable(tree: Any) -> None:
    """ValueError for a number anywhere in a JSON tree that nothing can be computed of."""
    if isinstance(tree, dict | list):
        for value in tree.values() if isinstance(tree, dict) else tree:
            require_usable(value)
    elif _is_number(tree) and usable(tree) is None:
        raise ValueError(f"{tree!r:.40} cannot be one of its numbers")
