"""Time units of a request log: the units of its stamps and durations, and the steps of its clocks.

A unit is asked for (`--columns latency=duration:ms`), named by the column (`latency_ms`), or found
from the log. Numbers without a unit are seconds unless:

- a request would then take a hundred times as long as one with its tokens usually does;
- its first token would come after its end; or
- its own stamps say otherwise.

A note states a unit that was found so.
"""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from frontier.core.model.units import format_seconds, parse_duration
from frontier.extras.workload.arrival_files import LATEST, number_of, seconds_of
from frontier.store.documents import foreign_text

Floats = NDArray[np.float64]
UNITS: Mapping[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
"""The units of --columns, in seconds."""
TIMED = ("time", "end", "first", "ttft", "latency")
"""Columns that have times."""
_STAMPS = TIMED[:3]
_WORDS = {1e-3: "milliseconds", 1e-6: "microseconds", 1e-9: "nanoseconds"}
_STATED = {"Elapsed time": 1.0, "gen_ai.server.time_to_first_token": 1.0, "total_duration": 1e-9, "request_time": 1.0}
"""Columns whose tool states the unit."""
_SEPARATE = re.compile(
    r"(?i:[_ .\-(\[]([nuµm]?s|(?:milli|micro|nano)?s(?:ec(?:ond)?s?)?|(?:milli|micro|nano)s)[)\]]?$)"
)
_CAMEL = re.compile(r"(?<=[a-z])([NUM]s|Sec(?:ond)?s?|(?:Milli|Micro|Nano)s(?:ec(?:ond)?s?)?)$")
_EPOCH = (9e8, 4e9)
"""Seconds since 1970 that a log may have, from 1998 to 2096; other numbers count from its start."""
_SURELY = 100.0
"""The multiple of a request's usual time above which a number cannot be in seconds."""
_DOUBTED = 10.0
"""The multiple of a request's usual time above which a note is made."""
_TOO_SHORT = 0.005
"""The part of a request's usual time below which a note is made too."""
_IDLE = 0.02
"""Requests in flight below which whole numbers from the start of a log cannot be seconds."""
CLOCKS = 1.1
"""The factor by which the time to the first token may exceed the request's, where two clocks
measured them."""
_STEPS = (60.0, 1.0, 0.1, 0.01, 0.001)
"""Steps of a clock that are looked for, in seconds."""
_VALUES = 5
"""Fewest different values that show the step of a clock; fewer may lie on any grid."""


class RowTimes(NamedTuple):
    """The times of a row as they stand in the log, in the order of TIMED; the columns that they
    come from; and the units that its format states.
    """

    values: tuple[Any, ...]
    names: Mapping[str, str]
    stated: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ReadAs:
    """How the times of a log are read.

    - `units`: the units of its numbers in seconds; a date has none.
    - `ttft_step`, `e2e_step`: the steps of the clocks that made TTFT and E2E.
    - `notes`: remarks on them.
    - `doubted`: the column of latencies that were taken for seconds and are long for that.
    """

    units: Mapping[str, float] = field(default_factory=dict)
    ttft_step: float = 0.0
    e2e_step: float = 0.0
    notes: tuple[str, ...] = ()
    doubted: str | None = None

    def seconds(self, times: RowTimes) -> tuple[float | None, float | None, float | None]:
        """When a request arrived, its TTFT and its E2E, in seconds; None where the row does not
        give one.
        """
        begun, end, first = (_stamp(times.values[i], self.units.get(what)) for i, what in enumerate(_STAMPS))
        ttft, e2e = (_elapsed(times.values[i], self.units.get(TIMED[i], 1.0)) for i in (3, 4))
        ttft, e2e = ttft or _between(begun, first), e2e or _between(begun, end)
        if ttft is not None and e2e is not None and ttft > CLOCKS * (e2e + self.e2e_step):
            ttft = None  # of another clock
        return begun, ttft, e2e


PLAIN = ReadAs()


def named_unit(column: str) -> float | None:
    """The seconds of the unit that the name of a column ends with; None where it names none.

    >>> [named_unit(name) for name in ("latency_ms", "durationNanos", "TTFT (µs)", "tokens")]
    [0.001, 1e-09, 1e-06, None]
    """
    if column in _STATED:
        return _STATED[column]
    match = _SEPARATE.search(column) or _CAMEL.search(column)
    unit = "" if match is None else match[1].lower()
    starts = (("n", 1e-9), ("u", 1e-6), ("µ", 1e-6), ("mic", 1e-6), ("m", 1e-3), ("s", 1.0))
    return next((seconds for start, seconds in starts if unit.startswith(start)), None)


def _stamp(value: Any, unit: float | None) -> float | None:
    """A moment in seconds, from a number in a unit or from a date."""
    number = None if unit is None else number_of(value, 1e20)
    if number is None or unit is None or number * unit >= LATEST:
        return seconds_of(value, unit or 1.0)
    return number * unit


def _elapsed(value: Any, unit: float) -> float | None:
    """Seconds that something took; a text may have a unit of its own."""
    number = number_of(value)
    if number is None and isinstance(value, str):
        with suppress(ValueError):
            number, unit = parse_duration(value), 1.0
    return number * unit if number is not None and 0 < number * unit < 1e6 else None


def _between(begun: float | None, end: float | None) -> float | None:
    """Seconds between two stamps; None where one is missing or they are out of order."""
    return None if begun is None or end is None or end < begun else end - begun


# --- the first requests to units


def read_as(rows: Sequence[RowTimes], lengths: Sequence[tuple[int, int]], asked: Mapping[str, float]) -> ReadAs:
    """How the times of a log are read, by its first requests, their lengths, and the units that
    were asked for.
    """
    fit = _Fit(rows, lengths, asked)
    fit.stamps()
    fit.duration("latency", "end")
    fit.duration("ttft", "first")
    fit.stamps_beside_durations()
    steps = fit.step("ttft", "first"), fit.step("latency", "end")
    return ReadAs(fit.units, *steps, notes=tuple(fit.notes), doubted=fit.doubted)


class _Fit:
    """The units of a log while they are looked for."""

    def __init__(
        self, rows: Sequence[RowTimes], lengths: Sequence[tuple[int, int]], asked: Mapping[str, float]
    ) -> None:
        self._rows, self._asked = rows, asked
        self._names = {what: name for row in rows for what, name in row.names.items() if what in TIMED}
        self.units: dict[str, float] = {
            **{what: unit for row in rows[:1] for what, unit in row.stated.items()},
            **{what: unit for what, name in self._names.items() if (unit := named_unit(name)) is not None},
            **asked,
        }
        first = np.asarray([0.3 + 1e-4 * isl for isl, _ in lengths])
        self._usual = {"ttft": first, "latency": first + [0.02 * osl for _, osl in lengths]}
        self._from_start = "time" not in self.units and self._counts_from_start()
        self.notes: list[str] = []
        self.doubted: str | None = None

    def _numbers(self, what: str) -> Floats:
        """The numbers of a column; NaN for any other value."""
        place = TIMED.index(what)
        return np.asarray([math.nan if (n := number_of(row.values[place], 1e20)) is None else n for row in self._rows])

    def _moments(self, what: str) -> Floats:
        place, unit = TIMED.index(what), self.units.get(what)
        return np.asarray([math.nan if (n := _stamp(row.values[place], unit)) is None else n for row in self._rows])

    def _took(self, what: str, end: str) -> Floats:
        """The seconds of a column of durations, otherwise between two stamps."""
        if what in self._names:
            return self._numbers(what) * self.units.get(what, 1.0)
        return self._moments(end) - self._moments("time")

    def _counts_from_start(self) -> bool:
        """Whether stamps are numbers that cannot be a time since 1970 in any unit."""
        largest = np.nanmax(self._numbers("time"), initial=0.0)
        return bool(largest > 0) and not any(_EPOCH[0] <= largest * unit <= _EPOCH[1] for unit in UNITS.values())

    def stamps(self) -> None:
        """Find the unit of stamps that count from the start of a log, by the times between them."""
        for end, what in (("end", "latency"), ("first", "ttft")):
            if self._from_start and end in self._names:
                unit = _usual_unit(_middle((self._numbers(end) - self._numbers("time")) / self._usual[what]))
                self._give_stamps(unit, "as seconds a request would take too long")
                return

    def stamps_beside_durations(self) -> None:
        """Find the unit of stamps that count from the start of a log, by Little's law. Where hardly
        anything would be in flight, whole numbers have the unit of the durations.
        """
        unit, times = self.units.get("latency", 1.0), self._numbers("time")
        span = np.nanmax(times, initial=0.0) - np.nanmin(times, initial=0.0)
        if not self._from_start or {"end", "first"} & self._names.keys() or unit == 1.0 or span <= 0:
            return
        running = np.nansum(self._took("latency", "end")) / span
        if running < _IDLE and np.all(np.nan_to_num(times) % 1 == 0):
            self._give_stamps(unit, f"as seconds, {running:.2g} requests would be in flight")

    def _give_stamps(self, unit: float, why: str) -> None:
        if unit < 1:
            self.units |= {what: unit for what in _STAMPS if what not in self.units}
            name = foreign_text(self._names["time"], 40)
            self.notes.append(
                f"{name} counts from the start of the log and is read as {_WORDS[unit]}: {why}. "
                f"In another unit:  --columns time={name}:s"
            )

    def duration(self, what: str, end: str) -> None:
        """Find the unit of a column of durations, or doubt the one that it names."""
        values = self._numbers(what) if what in self._names and what not in self._asked else np.empty(0)
        if np.isnan(values).all():
            return
        between = self._moments(end) - self._moments("time") if end in self._names else np.zeros(len(values))
        known = between > 0
        if np.isfinite(values[known]).any():
            times = _middle(values[known] / between[known]) or 1.0
            unit = min(1.0, 1000.0 ** -round(math.log(times, 1000)))
        else:
            times = _middle(values / self._usual[what])
            unit = _usual_unit(times)
        if what == "ttft":
            whole = _middle(values / self._took("latency", "end"))
            while unit > 1e-9 and whole * unit > CLOCKS * 1.0001:
                unit /= 1000
        self._say(what, unit, times, values)

    def _say(self, what: str, unit: float, times: float, values: Floats) -> None:
        """Set the unit of a column of durations, and note what is odd in it."""
        name, named = foreign_text(self._names[what], 40), self.units.get(what)
        subject = "a request" if what == "latency" else "a first token"
        long = format_seconds(_middle(values) * (named or 1.0))
        taken = self.units.setdefault(what, unit)
        if named is not None and not _TOO_SHORT < times * named <= _SURELY:
            self.notes.append(
                f"{name} says that {subject} takes {long} in the median, which no such request does: "
                f"name its unit, as  --columns {what}={name}:{'s' if times * named < 1 else 'us'}"
            )
        elif named is None and taken < 1:
            self.notes.append(
                f"{name} names no unit and is read as {_WORDS[taken]}: as seconds {subject} would take {long} "
                f"in the median. In another unit:  --columns {what}={name}:s"
            )
        elif named is None and not _TOO_SHORT < times <= _DOUBTED:
            self.doubted = name if what == "latency" and times > 1 else self.doubted
            self.notes.append(
                f"{name} names no unit and is read as seconds: {subject} takes {long} in the median. "
                f"In milliseconds:  --columns {what}={name}:ms"
            )

    def step(self, what: str, end: str) -> float:
        """The step of the clock that made a column of durations, or the stamps in its place."""
        if what in self._names and np.isfinite(values := self._numbers(what)).any():
            return _step(values, self.units.get(what, 1.0))
        if end not in self._names:
            return 0.0
        return max(_step(self._moments(each), 1.0) for each in ("time", end))


def _middle(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else math.nan


def _usual_unit(times: float) -> float:
    """The unit in which a time is not surely too long, given the multiple of the usual time that it
    is in seconds.
    """
    steps = math.ceil(math.log(times / _SURELY, 1000)) if times > _SURELY else 0
    return float(max(1e-9, 1000.0**-steps))


def _step(values: Floats, unit: float) -> float:
    """The step, in seconds, of the grid that holds all values; 0 where there is none."""
    seconds = np.unique(values[np.isfinite(values)]) * unit
    if not len(seconds):
        return 0.0
    steps = _STEPS if len(seconds) >= _VALUES else ()
    fitting = (step for step in (*steps, unit) if np.all(np.abs(seconds / step - np.round(seconds / step)) < 0.01))
    return next(fitting, 0.0)
