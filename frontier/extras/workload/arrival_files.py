"""Arrival traces: recorded times of requests, parts of which a sweep at rates replays.

Known formats are the Azure LLM trace (CSV with TIMESTAMP, a date), BurstGPT (CSV with Timestamp,
seconds), Mooncake (JSON lines with timestamp, milliseconds), Bailian (the same with chat_id,
seconds), and a plain column of seconds. Only times are taken, in ascending order from 0 on and to
the microsecond; a run keeps them as such a column.
"""

import hashlib
import io
import math
import random
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np

from frontier.core.model.errors import UsageError
from frontier.core.model.loads import Arrivals, Trace
from frontier.core.model.text import clean_name
from frontier.extras.workload.dispersion import dispersion_by_count, gap_cv
from frontier.store.documents import LARGEST, MOST_BYTES, MOST_ROWS, Document, ForeignFileError, Node, read_document
from frontier.store.files import read_given

LEAST = 100
"""Fewest arrivals of a trace: fewer say nothing about bursts."""
EQUAL = 0.01
"""The share of stamps equal to the one before above which their clock was coarser than the
arrivals."""
ON_GRID = 0.99
"""The share of steps between different stamps that must be multiples of a coarse clock's step."""
LATEST = 1e11
"""Seconds since 1970 that no request can have: the year 5138."""
_SOURCES = "name a CSV with a column timestamp (Azure LLM, BurstGPT), Mooncake's JSON lines, or a column of seconds"


def read_trace(path: str) -> Arrivals:
    """The arrivals of a trace file."""
    return arrivals_of(given_rows(path)[1])


def given_rows(path: str) -> tuple[str, Document]:
    """The SHA-256 of a file that a config names, and its rows. A column of numbers without a head,
    which may have comments, is read as timestamps. UsageError where it cannot be read.
    """
    hint = "write its path as seen from this directory"
    try:
        data = read_given(Path(path), MOST_BYTES)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint) from error
    digest, lines = hashlib.sha256(data).hexdigest(), enumerate(map(bytes.strip, io.BytesIO(data)), 1)
    told = ((number, line.decode("utf-8", "replace")) for number, line in lines if line and line[:1] != b"#")
    first = next(told, (0, ""))
    if number_of(first[1]) is None:
        return digest, read_document(path, data)
    rows = [(number, {"timestamp": text}) for number, text in (first, *told)]
    if len(rows) > MOST_ROWS:
        raise ForeignFileError(path, f"more than {MOST_ROWS:,} rows", "name a part of it")
    return digest, Document.listed(path, "table", "line", rows)


def arrivals_of(document: Document) -> Arrivals:
    """The arrivals in the rows of a trace."""
    file, times = document.file, sorted(stamps_of(document))
    if len(times) < LEAST or not times[-1] > times[0]:
        raise ForeignFileError(file, f"it has {len(times):,} arrivals; {LEAST} at different times are needed", _SOURCES)
    grid = _coarse_step(times)
    if grid is not None:
        rng = random.Random("within the step")
        times = sorted(time + rng.uniform(0.0, grid) for time in times)
    return of_column(Path(file).name, "".join(f"{time - times[0]:.6f}\n" for time in times).encode(), grid)


def of_column(name: str, column: bytes, grid: float | None = None) -> Arrivals:
    """The arrivals of a column of seconds as a run keeps it. ValueError for any other content."""
    times = tuple(map(float, column.split()))
    ascending = all(a <= b for a, b in pairwise(times))
    if len(times) < 3 or times[0] != 0 or not 0 < times[-1] <= LARGEST or not ascending:
        raise ValueError("it is no column of ascending seconds from 0 on")
    seconds = times[-1] * len(times) / (len(times) - 1)  # played again, the gap at the seam is a mean one
    digest = hashlib.sha256(column).hexdigest()[:16]
    known = dispersion_by_count(times, seconds)
    return Arrivals(round(gap_cv(times), 3), Trace(clean_name(name), digest, len(times), seconds, known, grid, times))


# --- the times in a file


def stamps_of(document: Document) -> list[float]:
    """The time of each row, in seconds."""
    file, first = document.file, document.top.tree
    key = next((key for key in first if key.lower() == "timestamp" or len(first) == 1), None)
    if key is None or document.kind == "json":
        raise ForeignFileError(file, "it has no column timestamp", _SOURCES)
    in_seconds = document.kind == "table" or "chat_id" in first
    if not in_seconds and "input_length" not in first:
        raise ForeignFileError(file, "the unit of its timestamps is not known", _SOURCES)
    return [_stamp(row, key, 1.0 if in_seconds else 1e-3) for row in document.objects]


def _stamp(row: Node, key: str, scale: float) -> float:
    """A time in seconds, or of a date."""
    seconds = seconds_of(row.tree.get(key), scale)
    if seconds is None:
        raise row.error(f"{row.place(key)} is neither a number nor a date", _SOURCES)
    return seconds


def seconds_of(value: object, scale: float = 1.0) -> float | None:
    """The seconds of a number in a unit, or of a date; None for any other value. A number too large
    for seconds since 1970 is in milliseconds, microseconds or nanoseconds.
    """
    number = number_of(value, 1e20)
    if number is not None:
        number *= scale
        while number >= LATEST:
            number /= 1e3
        return number
    try:
        text = str(value).strip("[]")
        if text[2:3] == "/":
            return datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z").timestamp()  # of Apache and nginx
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def number_of(value: object, largest: float = LARGEST) -> float | None:
    """The value of a number, or of a text that spells one, of at most that size; None for any other
    value.
    """
    with suppress(TypeError, ValueError, OverflowError):
        number = math.nan if value is None else float(value)  # type: ignore[arg-type]
        return number if abs(number) <= largest and not isinstance(value, bool) else None
    return None


def _coarse_step(times: Sequence[float]) -> float | None:
    """The step of a clock that was coarser than the arrivals: many stamps are equal, and all lie on
    its grid.
    """
    steps = np.diff(np.asarray(times))
    equal = steps <= 0
    if equal.mean() <= EQUAL:
        return None
    apart = steps[~equal]
    values, counts = np.unique(np.round(apart, 6), return_counts=True)
    step = float(values[counts.argmax()])
    multiples = apart / step
    return step if (np.abs(multiples - np.round(multiples)) < 0.01).mean() >= ON_GRID else None
