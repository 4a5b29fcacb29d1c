"""Facts of a window from readings: metrics of engines and of devices, in common names and units.

An engine has the table of its metrics' names in its file, devices in theirs. Engines' metrics get
vLLM's names without the prefix. Counters and the sums and counts of histograms become increases
over the window; gauges become means. Nothing is a percentile here: buckets are not kept, and
percentiles come from the client's own stamps.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from frontier.client.ask import device_names
from frontier.client.engines import ENGINES
from frontier.client.engines.base import COUNTERS, HISTOGRAMS, Fact, FactTable, Key, Mask, Samples
from frontier.client.secrets import NO_SECRETS, Secrets
from frontier.core.model.groups import by_key
from frontier.core.model.trials import (
    CACHED_ANEW,
    REPEATED_PROMPTS,
    SHARE_ANEW,
    UNCOUNTED_PROMPTS,
    MetricSeries,
    SourceReadings,
)
from frontier.core.model.units import usable
from frontier.core.window.time_breakdown import FINISHED, SERIES

FACTS: Mapping[str, Fact] = {
    "num_requests_running": Fact("requests", "sum", "level"),
    "num_requests_waiting": Fact("requests", "sum", "level"),
    "kv_cache_usage_perc": Fact("share", "max", "level"),
    **{name: Fact(unit, "sum", "increase") for name, unit in COUNTERS.items()},
    **{f"{name}_sum": Fact(unit, "sum", "increase") for name, unit in HISTOGRAMS.items()},
    **{f"{name}_count": Fact("1", "sum", "increase") for name in HISTOGRAMS},
    CACHED_ANEW: Fact("tokens", "max", "max"),
    SHARE_ANEW: Fact("share", "max", "max"),
    UNCOUNTED_PROMPTS: Fact("1", "max", "max"),
    REPEATED_PROMPTS: Fact("1", "max", "max"),
    **device_names.FACTS,
}
_MADE = device_names.MADE
"""How special kinds of facts are made, from times, moments, and series with the facts made of
each."""
START = "process_start_time_seconds"

EXPORTED: FactTable = {
    name: facts
    for table in (*(engine.facts for engine in ENGINES.values()), device_names.EXPORTED)
    for name, facts in table.items()
}
"""The names that are looked for in a Prometheus text, with their facts."""


def _by_name(table: FactTable) -> dict[str, list[tuple[tuple[str, str] | None, Mapping[str, float]]]]:
    """The entries of each name, with the label that a series must have."""
    entries: dict[str, list[tuple[tuple[str, str] | None, Mapping[str, float]]]] = {}
    for key, facts in table.items():
        name, _, selector = key.removesuffix("}").partition("{")
        label, _, value = selector.partition("=")
        entries.setdefault(name, []).append(((label, value) if label else None, facts))
    return entries


_LEARNED: FactTable = {name: {name: 1.0} for name in (CACHED_ANEW, SHARE_ANEW, UNCOUNTED_PROMPTS, REPEATED_PROMPTS)}
_ENTRIES = _by_name({**EXPORTED, **_LEARNED, **device_names.READ})
INFO = tuple(name for engine in ENGINES.values() for name in engine.info)
"""Metrics whose labels are the server's settings."""
NAMES = (*_by_name(EXPORTED), *INFO)
"""The names of the series that are kept from a Prometheus text, without labels."""


# --- readings to facts


def facts_at(samples: Samples) -> dict[str, float]:
    """The facts of one moment, its series joined: counters still count from the server's start."""
    values = by_key((fact, _scaled(samples[key], factor)) for key, fact, factor in _made_of(samples))
    return {name: _joined(FACTS[name].series, several) for name, several in values.items()}


def _scaled(value: float, factor: float) -> float:
    return float(bool(int(value) & factor)) if isinstance(factor, Mask) else value * factor


def _joined(how: str, values: Sequence[float]) -> float:
    if how == "mean":
        return sum(values) / len(values)
    return float({"sum": sum, "max": max, "min": min, "count": len}[how](values))  # type: ignore[operator]


def window_facts(readings: Iterable[SourceReadings]) -> dict[str, float]:
    """The facts of a window. `observed_from` and `observed_until` (seconds on the trial's clock)
    are the first and the last reading of the server's metrics: increases are over the time between
    these.

    A count that fell, or another start of the server's process, gives `restarts`. Counts that fell
    are left out. A sum of times cannot show a restart: one time taken by two clocks, or rounded,
    may be negative.
    """
    facts: dict[str, float] = {}
    for source in readings:
        times, moments = moments_of(source)
        if not moments:
            continue
        own, fell = _source_facts(times, moments)
        facts |= own
        if source.source == "metrics":
            facts |= {"observed_from": times[0], "observed_until": times[-1]} | _added_up(moments) | _ranks(moments)
            if (lives := len({start for start in map(started, moments) if start is not None})) > 1 or fell:
                facts["restarts"] = float(max(1, lives - 1))
    return facts


def _source_facts(times: Sequence[float], moments: Sequence[Samples]) -> tuple[dict[str, float], bool]:
    """The facts of one source, and whether one of its counts fell."""
    facts: dict[str, float] = {}
    told, fell = [facts_at(samples) for samples in moments], False
    for name in sorted(set().union(*told)):
        values, how = [moment[name] for moment in told if name in moment], FACTS[name].time
        match how:
            case "increase" | "rate":
                if len(told) < 2 or name not in told[0] or name not in told[-1]:
                    continue
                step = values[-1] - values[0]
                fell = fell or (step < 0 and not name.endswith("_sum"))
                if step >= 0:
                    facts[name] = step / (times[-1] - times[0]) if how == "rate" else step
            case "level":
                facts |= {name: sum(values) / len(values), f"{name}_max": max(values)}
            case "samples":
                facts |= _MADE[how](times, moments, _made_of(_series(moments)))
            case _:
                facts[name] = _joined(how, values)
    return facts, fell


_ONE_NUMBER = {"num_requests_running", "num_requests_waiting", *FINISHED}
"""Facts where it matters whether several series are several numbers, or one number several
times."""


def _added_up(moments: Sequence[Samples]) -> dict[str, float]:
    """How many series were added up into one of these facts at most, where they were several."""
    most = max(Counter(fact for _, fact, _ in _made_of(_series(moments)) if fact in _ONE_NUMBER).values(), default=0)
    return {SERIES: float(most)} if most > 1 else {}


RANKS = "data_parallel_ranks"
_RANK = "engine"
"""vLLM's label of a rank."""


def _ranks(moments: Sequence[Samples]) -> dict[str, float]:
    """How many ranks of data parallelism name themselves in the gauge of what runs, those of one
    replica; nothing where it is one.
    """
    labels = (dict(key[1]) for key, fact, _ in _made_of(_series(moments)) if fact == "num_requests_running")
    named = {(each.get("metrics_url"), each[_RANK]) for each in labels if _RANK in each}
    most = max(Counter(replica for replica, _ in named).values(), default=1)
    return {RANKS: float(most)} if most > 1 else {}


def _series(moments: Iterable[Samples]) -> Iterable[Key]:
    """Every series of these readings, in the order in which they came."""
    return dict.fromkeys(chain.from_iterable(moments))


def _made_of(series: Iterable[Key]) -> Iterator[tuple[Key, str, float]]:
    """Each of the series with each fact that is made of it, and the factor to its unit."""
    for key in series:
        for label, facts in _ENTRIES.get(key[0], ()):
            if label is None or label in key[1]:
                for fact, factor in facts.items():
                    yield key, fact, factor


def started(samples: Samples) -> float | None:
    """When the server's process was started (unix time), the latest of several; None when it does
    not say.
    """
    return max((value for (name, _), value in samples.items() if name == START), default=None)


def server_life(readings: Iterable[SourceReadings]) -> str | None:
    """The start of the server's process at the last reading, which changes when it is restarted."""
    for source in readings:
        _, moments = moments_of(source)
        if source.source == "metrics" and moments and (start := started(moments[-1])) is not None:
            return f"started {start:.0f}"
    return None


# --- readings as they are stored

_NONE = "-"


def stored_readings(
    source: str, times: Sequence[float], moments: Sequence[Samples], clean: Callable[[str], str]
) -> SourceReadings:
    """The readings of a source at some times, as they are kept: with cleaned labels."""
    series = [
        MetricSeries(
            name,
            {clean(label): clean(value) for label, value in labels},
            " ".join(_text(moment.get((name, labels))) for moment in moments),
        )
        for name, labels in _series(moments)
    ]
    return SourceReadings(source, " ".join(f"{time:.3f}" for time in times), tuple(series))


def _text(value: float | None) -> str:
    return _NONE if value is None else repr(value).removesuffix(".0")


def moments_of(source: SourceReadings) -> tuple[list[float], list[dict[Key, float]]]:
    """The times of a source's readings, and the samples at each. ValueError where they are
    damaged.
    """
    times = [_number(word) for word in source.times.split()]
    moments: list[dict[Key, float]] = [{} for _ in times]
    for series in source.series:
        key = (series.name, tuple(series.labels.items()))
        for moment, word in zip(moments, series.values.split(), strict=True):
            if word != _NONE:
                moment[key] = _number(word)
    return times, moments


def _number(word: str) -> float:
    value = usable(float(word))
    if value is None:
        raise ValueError(f"{word!r:.40} cannot be one of its numbers")
    return value


_MOST_VALUES = 200_000
"""Values that are kept of a source: about 1.5 MB. With more, every second moment is dropped."""
LONGEST_LABEL = 200


class Readings:
    """The samples of one source, moment by moment, bounded in size: a long window keeps fewer
    moments.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._moments: list[tuple[float, Samples]] = []
        self._values = self._seen = 0
        self._stride = 1

    def __bool__(self) -> bool:
        return bool(self._moments)

    def add(self, samples: Samples, at: float, *, last: bool = False) -> None:
        """Keep the samples of the moment `at` (perf_counter seconds)."""
        self._seen += 1
        if not last and (self._seen - 1) % self._stride:
            return
        self._moments.append((at, samples))
        self._values += len(samples)
        if self._values > _MOST_VALUES and not last:
            self._moments = self._moments[::2]
            self._values = sum(len(kept) for _, kept in self._moments)
            self._stride *= 2

    def stored(self, zero: float = 0.0, secrets: Secrets = NO_SECRETS) -> tuple[SourceReadings, ...]:
        """As it is kept in the evidence, times counting from `zero` (perf_counter seconds); none
        without a reading.
        """
        if not self._moments:
            return ()
        times, moments = zip(*((at - zero, samples) for at, samples in tuple(self._moments)), strict=True)
        clean = functools.cache(lambda text: secrets.said(text, LONGEST_LABEL))
        return (stored_readings(self._source, times, moments, clean),)
