"""Server metrics as a workload: which series of the engines describe requests. Their increases over
a time give the workload.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from frontier.client.ask.evidence import series_of
from frontier.client.ask.facts import START
from frontier.client.engines import ENGINES
from frontier.client.engines.base import Key, Samples
from frontier.core.model.errors import MeasurementError
from frontier.core.model.groups import by_key
from frontier.core.model.shapes import MAX_TOKENS
from frontier.core.model.text import clean
from frontier.core.model.units import format_elapsed, format_share
from frontier.core.stats.intervals import batch_means
from frontier.extras.workload.arrival_files import number_of
from frontier.extras.workload.bucket_counts import Buckets, Floats, bucket_figures, filled, joined, tail_between
from frontier.extras.workload.observed import (
    MOST_PAIRS,
    ArrivalFacts,
    Pair,
    ProductionFigure,
    RequestClass,
    Workload,
    capped,
    even,
)

COUNTED = sorted((engine for engine in ENGINES.values() if engine.histograms), key=lambda e: -len(e.histograms))
"""The engines that have histograms of their requests, those with the most first."""
HISTOGRAMS = {
    what: tuple(name for engine in COUNTED for name in engine.histograms.get(what, ()))
    for what in ("input", "output", "ttft", "tpot", "itl", "e2e")
}
"""Histograms by what they measure; the first name that has counted anything is read."""
COUNTERS = {
    what: tuple(name for engine in COUNTED for name in engine.counters.get(what, ()))
    for what in ("input", "output", "queries", "hits")
}
_PARTS = ("_bucket", "_sum", "_count")
Labels = tuple[tuple[str, str], ...]
SERIES = (
    *(f"{name}{part}" for names in HISTOGRAMS.values() for name in names for part in _PARTS),
    *(name for names in COUNTERS.values() for name in names),
)
"""All series whose increase is read."""
WANTED = series_of((*SERIES, START))
OF_ENGINE = re.compile(
    rb"^(?:# TYPE )?(?:%s)[:_]" % b"|".join(re.escape((e.prefix or e.name).rstrip(":_").encode()) for e in COUNTED),
    re.MULTILINE,
)
"""A metric of an engine: one that has had no request yet has no histograms."""
MOST_LINES = 20_000
"""Most lines of these series in one answer: 100 engines with all their buckets."""
UNKNOWN_TAIL = 0.01
"""The share of requests above every bound from which the p99 of a length is not known."""


@dataclass(slots=True)
class _Address:
    """The history of one address's counters: the readings at which they fell, the requests counted
    at each reading, and the start times of the processes that answered.
    """

    falls: int = 0
    totals: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    several: bool = False

    def add(self, total: float, fell: bool, start: float | None, since: float | None) -> bool:
        """Add a reading. True where its counters were reset since the one before."""
        latest = self.starts[-1] if self.starts else start
        other = start is not None and start != latest
        if start is not None and latest is not None and other:
            # A process that had been there before the one that answered last, or before the watch.
            self.several |= start < latest or (since is not None and start < since - _SKEW)
        if start is not None and (other or not self.starts):
            self.starts.append(start)
        if fell and not other:
            self.falls += 1
            self.several |= self.falls > 1 or self._came_back(total)
        elif self.falls:
            self.several |= self._went_back(total)
        self.totals.append(total)
        return fell or other

    def _came_back(self, total: float) -> bool:
        """Whether counters that fell are back at a value from which they had risen at once: another
        replica answered.
        """
        half = (self.totals[-1] - total) / 2
        return any(0 < low <= total and high - low >= half > 0 for low, high in pairwise(self.totals))

    def _went_back(self, total: float) -> bool:
        """Whether counters that fell are at once where they would be without the fall: another
        replica answers again. A restarted process would take as long again.
        """
        steps = [b - a for a, b in pairwise(self.totals)]
        fall, rises = min(steps), [step for step in steps if step > 0]
        rise, before = total - self.totals[-1], self.totals[steps.index(fall)]
        return bool(rises) and total >= before and rise >= -fall / 2 and rise > _AT_ONCE * max(rises)


@dataclass(slots=True)
class Increases:
    """The growth of counters between successive readings.

    Where an address's counters fell they were reset, and what was counted around that is not known.
    `since` is when the watch began (unix time). `twins` are engines that repeat another engine's
    counts; they are left out.
    """

    since: float | None = None
    grown: dict[Key, float] = field(default_factory=dict)
    restarted: bool = False
    twins: set[Labels] = field(default_factory=set)
    _addresses: dict[int, _Address] = field(default_factory=dict)
    _before: Samples | None = None

    def add(self, samples: Samples) -> tuple[float, float]:
        """Add a reading. Returns the number of requests since the one before, and the seconds that
        the ended ones had spent in the server.
        """
        samples = self._without_twins(samples)
        came, spent, before = 0.0, 0.0, samples if self._before is None else self._before
        self._before = {**before, **samples}  # a page without them, of a proxy, says nothing of a counter
        starts = {_address(key): value for key, value in samples.items() if key[0] == START}
        counters = {key: value for key, value in samples.items() if key[0] != START}
        # A sum of times tells no restart: one time taken by two clocks may be negative.
        fell = {
            _address(key)
            for key, value in counters.items()
            if value < before.get(key, 0.0) and not key[0].endswith("_sum")
        }
        ended = by_key((_address(key), value * key[0].endswith("_count")) for key, value in counters.items())
        totals = {at: float(sum(each)) for at, each in ended.items()}
        known = {at: self._addresses.setdefault(at, _Address()) for at in totals}
        anew = {at for at, each in known.items() if each.add(totals[at], at in fell, starts.get(at), self.since)}
        self.restarted |= bool(anew)
        for key, value in counters.items():
            step = 0.0 if _address(key) in anew else value - before.get(key, 0.0)
            self.grown[key] = self.grown.get(key, 0.0) + step
            came += step if key[0] in _ARRIVALS else 0.0
            spent += step if key[0] in _SPENT else 0.0
        return came, spent

    def _without_twins(self, samples: Samples) -> Samples:
        self.twins |= _twins(samples)
        return {key: value for key, value in samples.items() if _engine(key) not in self.twins}

    @property
    def several(self) -> int | None:
        """The index of an address behind which several replicas answer; None where there is no such
        address.
        """
        return next((at for at, each in self._addresses.items() if each.several), None)


def _engine(key: Key) -> Labels:
    """The labels of a series' engine: all but those of a histogram's buckets."""
    return tuple(label for label in key[1] if label[0] != "le")


def _twins(samples: Samples) -> set[Labels]:
    """Engines whose counts, and sums of seconds to the last digit, equal an earlier engine's: an
    exporter is there twice, or one server has two addresses.
    """
    counted = by_key(
        (_engine(key), (key[0], tuple(label for label in key[1] if label[0] == "le"), value))
        for key, value in samples.items()
        if value > 0 and key[0] != START
    )
    first: dict[frozenset[tuple[str, Labels, float]], Labels] = {}
    timed = {engine: frozenset(each) for engine, each in counted.items() if any(_has_digits(part) for part in each)}
    return {engine for engine, each in timed.items() if first.setdefault(each, engine) != engine}


def _has_digits(part: tuple[str, Labels, float]) -> bool:
    """Whether a value is a sum of seconds that another engine would not reach by chance."""
    return part[0].endswith("_seconds_sum") and not part[2].is_integer()


def _address(key: Key) -> int:
    """The index of the address that a series was read from."""
    label, place = key[1][0] if key[1] else ("", "")
    return int(place) if label == "metrics_url" and place.isdecimal() else 0


_AT_ONCE = 3.0
"""The multiple of the largest earlier step by which a counter rises where another process answers
again."""
_SKEW = 60.0
"""Seconds by which the clocks of a server and of this machine may differ."""
_ARRIVALS = frozenset(
    f"{name}_count"
    for engine in COUNTED
    for name in next((engine.histograms[what] for what in ("ttft", "input", "e2e") if what in engine.histograms), ())
)
"""Counters of requests that count as soon as a request shows."""
_SPENT = frozenset(f"{name}_sum" for name in HISTOGRAMS["e2e"])


def in_flight(spent: Floats, seconds: Floats) -> ProductionFigure | None:
    """The requests in flight, running or waiting, by Little's law: the rate at which requests end,
    times their mean seconds in the server.

    `spent` is the sum of these seconds in each part, and `seconds` is the length of the parts. The
    interval is that of batch means; None where no time in the server is counted.
    """
    means = batch_means(spent, seconds)
    if not means.value > 0:
        return None
    low, high = (max(0.0, side) if means.freedom else None for side in means.bounds(0.975))
    return ProductionFigure(means.value, low, high, len(spent))


# --- increases to a workload


def workload_of(
    source: str,
    grown: Mapping[Key, float],
    seconds: float,
    context: int | None,
    *,
    arrivals: ArrivalFacts | None = None,
    running: ProductionFigure | None = None,
    notes: Sequence[str] = (),
) -> Workload:
    """The workload by the growth of servers' counters over `seconds`. MeasurementError where no
    request ended.
    """
    found = {what: _histogram(grown, names) for what, names in HISTOGRAMS.items()}
    requests = sum(each.count for each in found["input"]) or max(sum(each.count for each in h) for h in found.values())
    if requests < 1:
        what = f"no request ended at {source} in {format_elapsed(seconds)}"
        raise MeasurementError(what, "look for longer, as  --over 1h  or  --range 7d,  or at  --match")
    kinds = sorted({re.split("[:_]", name)[0] for (name, _), value in grown.items() if value > 0})
    if len(kinds) > 1:
        what = f"{source} counts requests of several engines: {', '.join(kinds)}"
        raise MeasurementError(what, "name the servers of one, as  --match 'job=\"vllm\"'")
    said = list(notes)
    means = {side: first_grown(grown, COUNTERS[side])[1] / requests for side in ("input", "output")}
    inputs, outputs = (_lengths(source, side, found[side], context, mean, said) for side, mean in means.items())
    room = context or MAX_TOKENS
    pairs, cut = capped(pairs_apart(inputs, outputs), room)
    if cut:
        said.append(
            f"{format_share(cut / len(pairs))} of the pairs exceed the context of {room:,} tokens, and are cut."
        )
    models = _models(grown)
    if len(models) > 1:
        said.append(f"Several models are counted together: {', '.join(models[:5])}.")
    latencies = [what for what in ("ttft", "tpot" if found["tpot"] else "itl", "e2e") if found[what]]
    means_of = [(what, joined(found[what])[0]) for what in latencies if what != "e2e"]
    return Workload(
        source,
        round(requests),
        seconds,
        (RequestClass("traffic", 1.0, pairs),),
        joint=False,
        cached=_cached(grown),
        arrivals=arrivals,
        running=running,
        means={"ttft" if what == "ttft" else "tpot": h.total / h.count for what, h in means_of},
        bounds=tuple(joined(found[side])[0].bounds if found[side] else () for side in ("input", "output")),
        figures={name: f for what in latencies for name, f in bucket_figures(what, joined(found[what])[0]).items()},
        servers=max(1, *(len(series) for series in found.values())),
        model=models[0] if len(models) == 1 else None,
        context=context,
        notes=tuple(said),
    )


def _histogram(grown: Mapping[Key, float], names: Iterable[str]) -> list[Buckets]:
    """The histograms of each engine, under the first name that has counted anything."""
    for name in names:
        engines = by_key(
            (_engine(key), (dict(key[1]).get("le", part), value))
            for key, value in grown.items()
            if key[0].startswith(name) and (part := key[0][len(name) :]) in _PARTS
        )
        found = [buckets for parts in engines.values() if (buckets := _buckets(dict(parts))) is not None]
        if found:
            return found
    return []


def _buckets(parts: Mapping[str, float]) -> Buckets | None:
    """The histogram of one engine; None where it has counted nothing."""
    count = parts.get("+Inf", parts.get("_count", 0.0))
    if count <= 0 or "_sum" not in parts:
        return None
    finite = sorted((le, value) for text, value in parts.items() if (le := number_of(text) or 0.0) > 0)
    bounds, at_most = [le for le, _ in finite], [min(value, count) for _, value in finite]
    return Buckets(tuple(bounds), tuple(np.maximum.accumulate(at_most).tolist()), count, parts["_sum"])


def _lengths(
    source: str, side: str, series: Sequence[Buckets], context: int | None, mean: float, notes: list[str]
) -> list[float]:
    """Lengths of one side, ascending; only the mean where there is no histogram."""
    if not series:
        if not mean:
            raise MeasurementError(f"{source} tells no {side} lengths", "read a log of its requests instead")
        mean = max(1.0, mean)
        notes.append(f"There is no histogram of {side} lengths: each is the mean, {mean:,.0f} tokens.")
        return [mean] * MOST_PAIRS
    whole, differ = joined(series)
    if differ:
        known = (
            f"the {len(whole.bounds)} bounds that all have count"
            if whole.bounds
            else "none is common, each is the mean"
        )
        notes.append(f"Engines have different buckets of {side} lengths: {known}.")
    if (beyond := whole.beyond / whole.count) > 0 and whole.bounds:
        low, high = tail_between(whole, context)
        said = f"{format_share(beyond)} of {side} lengths are above the last bucket, {whole.bounds[-1]:,.0f} tokens"
        where = f"at {low:,.0f}" if high - low < 1 else f"between {low:,.0f} and {high:,.0f}"
        tail = "; their p99 is not known" if beyond >= UNKNOWN_TAIL else ""
        notes.append(f"{said}: how they are spread is not known, and the sum leaves a mean {where}{tail}.")
    return list(filled(whole, MOST_PAIRS, context))


def pairs_apart(inputs: Sequence[float], outputs: Sequence[float]) -> list[Pair]:
    """The lengths of both sides as pairs, drawn independently: answers that fill their range evenly
    are matched with prompts in order of length.
    """
    order = np.argsort(np.argsort(even(len(inputs))))
    return [(max(1, round(isl)), max(1, round(outputs[k]))) for isl, k in zip(inputs, order, strict=True)]


def first_grown(grown: Mapping[Key, float], names: Iterable[str]) -> tuple[str, float]:
    """The first of these counters that grew, and its growth over all engines; '' where none
    grew.
    """
    sums = ((name, sum(value for (series, _), value in grown.items() if series == name)) for name in names)
    return next((each for each in sums if each[1] > 0), ("", 0.0))


def _cached(grown: Mapping[Key, float]) -> float | None:
    """The share of prompt tokens that came from the prefix cache; None where no counter has it."""
    names = {series for series, _ in grown}
    if names.isdisjoint(COUNTERS["hits"]):
        return None
    hits, queries, prompts = (first_grown(grown, COUNTERS[what])[1] for what in ("hits", "queries", "input"))
    asked = queries or prompts
    return min(1.0, hits / asked) if asked else None


def _models(grown: Mapping[Key, float]) -> list[str]:
    """The models that the series name, that with the most requests first."""
    named = (
        (dict(labels).get("model_name"), value)
        for (series, labels), value in grown.items()
        if series.endswith("_count")
    )
    counts = {name: sum(each) for name, each in by_key(named).items() if name}
    return [clean(name, 200) for name in sorted((n for n in counts if counts[n] > 0), key=lambda n: -counts[n])]
