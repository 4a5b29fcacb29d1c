"""Log summary: the workload of a request log of any length, read once in bounded memory.

Counts and rates are of all rows. Lengths and latencies are of a sample of at most MOST_KEPT
requests. A hash of the request's name, or of its session's, selects it: so sessions are whole, and
the same log gives the same sample.
"""

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import yaml

from frontier.client.secrets import looks_like_a_key, looks_random
from frontier.core.model.errors import MeasurementError, UsageError
from frontier.core.model.groups import by_key
from frontier.core.model.length_pairs import RequestLengths
from frontier.core.model.metrics import CLASS_NAME, TURN_CLASSES
from frontier.core.model.units import format_elapsed, format_share
from frontier.extras.workload.arrival_files import EQUAL
from frontier.extras.workload.dispersion import dispersion_of
from frontier.extras.workload.log_rows import BLOCK, LogRow, name_hash
from frontier.extras.workload.observed import (
    ArrivalFacts,
    ProductionFigure,
    RequestClass,
    Workload,
    capped,
    percentile_figures,
    representative,
)
from frontier.extras.workload.server_metrics import in_flight
from frontier.extras.workload.time_units import Floats

MOST_KEPT = 100_000
"""Most requests of the sample: their p99 is then known within 1% of the rank, in 40 MB."""
_LONGEST = 100
"""A session with more than one in this many requests of a full sample does not count as a
session."""
MOST_CLASSES = 8
"""Most classes of a mix; the rarest are joined to one, 'other'."""
MOST_HOURS = 1_000
"""Most hours that are counted second by second (14 MB): the busiest, and the latest."""
_HASHES = 2**64
_HOUR = 3_600
_PART = 300
"""Seconds of a part of an hour: the busiest hour begins at one, and its interval has blocks of this
length."""
_PARTS = _HOUR // _PART
_FEWEST = 8
"""Fewest blocks of a log that is shorter than an hour."""
_MOST_BLOCKS = 500_000
"""Most names of prompt blocks that are remembered, to recognise them: about 50 MB."""
COARSE = 0.1
"""Seconds of a clock's step from which a note is made of it."""
STEP_BACK = 60.0
"""Seconds that rows may be out of order without a note: a log is written when requests end."""


class ArrivalCounts:
    """Arrivals by the hour, by five minutes, and by the second in hours that may be the busiest."""

    def __init__(self) -> None:
        self.hours: Counter[int] = Counter()
        self.parts: dict[int, array[int]] = {}
        self.seconds: dict[int, array[int]] = {}
        self.first, self.last = float("inf"), float("-inf")
        self.backwards, self.longest_back = 0, 0.0
        self._latest, self._equal, self._step = float("-inf"), 0, float("inf")

    def add(self, time: float) -> None:
        """Count an arrival."""
        hour = int(time // _HOUR)
        second = int(time - hour * _HOUR)
        if (counts := self.seconds.get(hour)) is None and not self.hours[hour]:
            counts = self.seconds[hour] = array("I", bytes(4 * _HOUR))
            self.parts[hour] = array("I", bytes(4 * _PARTS))
            if len(self.seconds) > MOST_HOURS:
                for quiet in sorted(self.seconds, key=lambda h: (h == hour, self._at_most(h)))[: MOST_HOURS // 2]:
                    del self.seconds[quiet]
        self.hours[hour] += 1
        self.parts[hour][second // _PART] += 1
        if counts is not None:
            counts[second] += 1
        self.first, self.last = min(self.first, time), max(self.last, time)
        self._equal += time == self._latest
        if time > self._latest:
            self._step = min(self._step, time - self._latest)
        if time < self._latest:
            self.backwards += self._latest - time > STEP_BACK
            self.longest_back = max(self.longest_back, self._latest - time)
        self._latest = time

    def _at_most(self, hour: int) -> int:
        """The most arrivals of an hour that begins or ends in this one."""
        before, own, after = (self.hours.get(each, 0) for each in (hour - 1, hour, hour + 1))
        return own + max(before, after)

    def facts(self) -> ArrivalFacts | None:
        """The rates, also of the busiest hour where the log is long enough for one; None without
        times.
        """
        total, span = sum(self.hours.values()), self.last - self.first
        if total < 2 or span <= 0:
            return None
        begun, end = self.busiest()
        part = self.is_part
        busiest = self.arrived(begun) / _HOUR if part else total / span
        when = f"the hour from {named_time(begun)}" if part else f"all {format_elapsed(span)} of it"
        first, last = int(begun), int(end) + (not part)
        hours = range(first // _HOUR, -(-last // _HOUR))
        counts = np.concatenate([self.seconds.get(each, np.zeros(_HOUR)) for each in hours])
        dispersion = self._seen_bursts(counts[first - hours[0] * _HOUR : last - hours[0] * _HOUR])
        return ArrivalFacts(total / span, busiest, when, dispersion)

    @property
    def is_part(self) -> bool:
        """Whether the busiest hour is only a part of the log, which must be longer than an hour and
        two parts of five minutes.
        """
        return self.last - self.first > _HOUR + 2 * _PART

    def busiest(self) -> tuple[float, float]:
        """The begin and end of the busiest hour, which begins at any five minutes; of the whole log
        where it is too short for one.
        """
        if not self.is_part:
            return self.first, self.last
        most = max(self.hours.values())
        hours = [hour for hour in sorted(self.parts) if self._at_most(hour) >= most]
        places = (hour * _HOUR + part * _PART for hour in hours for part in range(_PARTS))
        begun = max(places, key=self.arrived)
        return float(begun), float(begun + _HOUR)

    def arrived(self, begun: float) -> int:
        """The number of requests that arrived in the hour from then on."""
        hour, part = divmod(int(begun) // _PART, _PARTS)
        empty = array("I")
        return sum(self.parts.get(hour, empty)[part:]) + sum(self.parts.get(hour + 1, empty)[:part])

    def _seen_bursts(self, counts: np.ndarray) -> dict[int, float]:
        """The index of dispersion, without windows that a clock coarser than the arrivals made."""
        coarse = self._step if self._equal > EQUAL * sum(self.hours.values()) else 0.0
        return {window: index for window, index in dispersion_of(counts).items() if window >= 2 * coarse}


def named_time(seconds: float) -> str:
    """A moment by its date, or by the time since the start of a log whose times count from
    there.
    """
    if seconds < 1e8:
        return f"{format_elapsed(seconds)} after its start"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


class Sample:
    """A sample of a log's requests by a hash of their names, at most MOST_KEPT."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most, self._below = most, _HASHES
        self._kept: list[tuple[int, LogRow]] = []
        self._endless: set[str | None] = set()
        self.seen = 0

    def add(self, row: LogRow) -> None:
        """Add a request; it is kept where its hash is below the sample's bound."""
        self.seen += 1
        session = None if row.session in self._endless else row.session
        place = name_hash(session or row.name or str(self.seen))
        if place < self._below:
            self._kept.append((place, row._replace(blocks=(), name=None, session=session)))
            while len(self._kept) > self._most:
                self._thin()

    def _thin(self) -> None:
        """Keep half of the hashes. A session that makes up a large part of the sample is no longer
        kept together: it would be all of the sample, or none of it.
        """
        turns = Counter(row.session for _, row in self._kept if row.session is not None)
        endless = {session for session, number in turns.items() if number > max(100, self._most // _LONGEST)}
        self._endless |= endless
        self._below //= 2
        rows = enumerate(self._kept)
        placed = (
            (name_hash(str(i)), row._replace(session=None)) if row.session in endless else (place, row)
            for i, (place, row) in rows
        )
        self._kept = [each for each in placed if each[0] < self._below]

    @property
    def rows(self) -> list[LogRow]:
        """The requests that are kept."""
        return [row for _, row in self._kept]


class BlockReuse:
    """The share of prompt tokens in blocks that came before, over a sample of the blocks by their
    names.
    """

    def __init__(self, block: int) -> None:
        self._block, self._below = block, _HASHES
        self._seen: set[int] = set()
        self.again = self.full = 0
        self.total = 0

    def add(self, row: LogRow | RequestLengths) -> int | None:
        """The tokens at the beginning of a prompt that came before, by the names of its blocks.
        None where not all names are remembered.
        """
        self.total += row.isl
        before = self.again
        for name in row.blocks[: row.isl // self._block]:
            mixed = name * 0x9E3779B97F4A7C15 % _HASHES
            self.full += self._block
            if mixed < self._below:
                self.again += self._block * (_HASHES // self._below) * (mixed in self._seen)
                self._seen.add(mixed)
        while len(self._seen) > _MOST_BLOCKS:
            self._below //= 2
            self._seen = {each for each in self._seen if each < self._below}
        return self.again - before if self._below == _HASHES else None

    @property
    def share(self) -> float | None:
        """The share; None where no request names blocks."""
        return min(self.again, self.full) / self.total if self.full else None


def rows_between(rows: Iterable[LogRow | None], begin: float, end: float) -> Iterator[LogRow]:
    """The requests of a log that arrived from one time to before another. UsageError where none
    did.
    """
    first, last, inside = math.inf, -math.inf, 0
    for row in rows:
        if row is not None and row.time is not None:
            first, last = min(first, row.time), max(last, row.time)
            if begin <= row.time < end:
                inside += 1
                yield row
    if not inside:
        span = f"its times run from {named_time(first)} to {named_time(last)}" if first <= last else "none has a time"
        raise UsageError(f"no request of the log is in the time of --from and --to: {span}", "name a time within")


def summary(
    source: str, rows: Iterable[LogRow | None], context: int | None, keep: Callable[[LogRow], None] = lambda _: None
) -> tuple[Workload, list[LogRow]]:
    """The workload of a log, and the sample of its requests. `keep` gets each request."""
    counts, sample, reuse = ArrivalCounts(), Sample(), BlockReuse(BLOCK)
    kinds: Counter[str] = Counter()
    failed, cached, cached_of = 0, 0.0, 0
    for row in rows:
        if row is None:
            failed += 1
            continue
        keep(row)
        if row.time is not None:
            counts.add(row.time)
        if row.kind is not None and (row.kind in kinds or len(kinds) < 1_000):
            kinds[row.kind] += 1
        if row.cached is not None:
            cached, cached_of = cached + min(row.cached, row.isl), cached_of + row.isl
        sample.add(row._replace(cached=reuse.add(row)) if row.blocks else row)
    kept = sample.rows
    if not kept:
        raise MeasurementError(f"{source} holds no request with two lengths", "name a log of another time")
    classes, cut = _classes(kept, kinds, context, 0.0 if reuse.full else None)
    arrivals = counts.facts()
    _require_a_unit(kept, counts)
    return Workload(
        source,
        sample.seen,
        counts.last - counts.first if arrivals else None,
        classes,
        joint=True,
        cached=cached / cached_of if cached_of else reuse.share,
        arrivals=arrivals,
        running=None if arrivals is None else _running(kept, counts),
        figures=_figures(kept),
        context=context,
        notes=tuple(_notes(sample, kept, failed, cut, counts)),
    ), kept


def _require_a_unit(kept: Sequence[LogRow], counts: ArrivalCounts) -> None:
    """UsageError where requests take longer than the whole log, and the unit of their latency is in
    doubt.
    """
    column, span = kept[0].read_as.doubted, counts.last - counts.first
    ends = [row.e2e for row in kept if row.e2e is not None]
    if column is not None and ends and span >= 0 and (took := float(np.median(ends))) > span:
        hint = f"name their unit, as  --columns latency={column}:ms,  or with :s where they are seconds"
        what = f"{column}: as seconds, requests take {format_elapsed(took)} in a log of {format_elapsed(span)}"
        raise UsageError(what, hint)


def _figures(kept: Sequence[LogRow]) -> dict[str, ProductionFigure]:
    """The percentiles of TTFT, TPOT and E2E, with the steps of their clocks."""
    first, last = kept[0].read_as.ttft_step, kept[0].read_as.e2e_step
    ttft, e2e = ([x for row in kept if (x := getattr(row, what)) is not None] for what in ("ttft", "e2e"))
    paces = [
        ((row.e2e - row.ttft) / (row.osl - 1), (first + last) / (row.osl - 1))
        for row in kept
        if row.ttft is not None and row.e2e is not None and row.osl > 1 and row.e2e >= row.ttft
    ]
    return {
        **percentile_figures("ttft", ttft, [first] * len(ttft)),
        **percentile_figures("tpot", [pace for pace, _ in paces], [step for _, step in paces]),
        **percentile_figures("e2e", e2e, [last] * len(e2e)),
    }


def _notes(sample: Sample, kept: Sequence[LogRow], failed: int, cut: float, counts: ArrivalCounts) -> Iterator[str]:
    if len(kept) < sample.seen:
        yield f"Lengths and latencies are of {len(kept):,} of its requests, taken by a hash of their names."
    if failed:
        yield f"{failed:,} rows without two lengths are left out: they failed, or are no requests."
    timeless = sample.seen - sum(counts.hours.values())
    if timeless == sample.seen:
        yield "None of its requests has a time that can be read, so their rate is not known."
    elif timeless:
        yield f"{timeless:,} of its requests have no time that can be read: the rate is without them."
    if counts.backwards:
        times = "once" if counts.backwards == 1 else f"{counts.backwards:,} times"
        yield (
            f"Its clock runs backwards {times}, by up to {format_elapsed(counts.longest_back)}: "
            "an hour that it ran through twice has the requests of both."
        )
    yield from kept[0].read_as.notes
    for what, step in (("TTFT", kept[0].read_as.ttft_step), ("E2E", kept[0].read_as.e2e_step)):
        if step >= COARSE:
            yield f"The clock of its {what} counts in steps of {format_elapsed(step)}: intervals contain one more."
    if cut:
        yield f"{format_share(cut)} of the requests are longer than the context, and are cut to it."


def _running(kept: Sequence[LogRow], counts: ArrivalCounts) -> ProductionFigure | None:
    """The requests in flight in the busiest part of a log: the time that each was in flight there
    over its length, with the interval of blocks of five minutes. None without their times.

    In a log of less than an hour, the time after its end is counted at its beginning, in place of
    the requests that had begun before it. A sample, and rows without an E2E, are scaled to all that
    arrived.
    """
    timed = [(row.time, row.e2e) for row in kept if row.time is not None and row.e2e is not None]
    if len(timed) < 2:
        return None
    begun, took = np.asarray(timed).T
    start, end = counts.busiest()
    length = end - start
    edges = np.linspace(start, end, 1 + (_PARTS if counts.is_part else max(_FEWEST, round(length / _PART))))
    whole = np.zeros(len(took)) if counts.is_part else took // length
    left = took - whole * length
    passed = _passed(begun, left, edges)
    if not counts.is_part:
        passed = passed + _passed(begun - length, left, edges) + whole.sum() * np.diff(edges)
    there = int(((begun >= start) & (begun < end)).sum()) if counts.is_part else len(timed)
    arrived = counts.arrived(start) if counts.is_part else sum(counts.hours.values())
    scale = arrived / there if there else 0.0
    figure = in_flight(passed * scale, np.diff(edges))
    off = kept[0].read_as.e2e_step * arrived / length
    if figure is None or figure.low is None or figure.high is None:
        return figure
    return replace(figure, low=max(0.0, figure.low - off), high=figure.high + off)


def _passed(begun: Floats, took: Floats, edges: Floats) -> Floats:
    """The seconds that requests were in flight, summed, in each block."""
    parts = (
        np.clip(np.minimum(begun + took, high) - np.maximum(begun, low), 0, None).sum() for low, high in pairwise(edges)
    )
    return np.asarray(list(parts))


def _classes(
    kept: Sequence[LogRow], kinds: Mapping[str, int], context: int | None, without: float | None
) -> tuple[tuple[RequestClass, ...], float]:
    """The classes of a log, or its only one, and the share of its requests that a context cut. The
    pairs of an only one also have the tokens from the cache, where every row states them or
    `without` gives a default.
    """
    names = _class_names(kinds)
    shared = [without if row.cached is None else row.cached for row in kept]
    told = not names and None not in shared and any(shared)
    called = (names.get(row.kind or "", "other") if names else "traffic" for row in kept)
    both = zip(kept, shared, strict=True)
    each = ((r.isl, r.osl, min(int(n or 0), r.isl - 1)) if told else (r.isl, r.osl) for r, n in both)
    by_name = by_key(zip(called, each, strict=True))
    total, cut, classes = len(kept), 0, []
    for name, rows in by_name.items():
        pairs, those = capped(rows, context)
        cut += those
        classes.append(RequestClass(name, len(rows) / total, representative(pairs)))
    return tuple(sorted(classes, key=lambda each: -each.share)), cut / total


def _class_names(kinds: Mapping[str, int]) -> dict[str, str]:
    """The name of each class in a config; empty where there is only one. A name that a config does
    not accept, or that may be a secret key, becomes a number.
    """
    if len(kinds) < 2:
        return {}
    common = sorted(kinds, key=lambda kind: -kinds[kind])[: MOST_CLASSES - (len(kinds) > MOST_CLASSES)]
    names: dict[str, str] = {}
    for i, kind in enumerate(common, 1):
        name = kind.strip().replace(" ", "_")
        sound = CLASS_NAME.fullmatch(name) and name not in (*TURN_CLASSES, "other", *names.values())
        sound = sound and yaml.safe_load(name) == name  # on and null are no texts
        names[kind] = name if sound and not looks_like_a_key(kind) and not looks_random(kind) else f"class_{i}"
    return names
