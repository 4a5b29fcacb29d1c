"""Evidence beside a trial: the engine's metrics, device exporters (Prometheus text), and what
extras read.

Each source is read off the hot path: when the window opens, when it closes, and about once a second
between. Metrics are read more seldom where a reading takes long. Readings are kept as they came;
the module `facts` makes facts of them. Evidence answers where the time went, whether the load
arrived and whether requests were preempted. It is never a source of percentiles. The server's own
settings are kept too, as far as it tells them: they say what was running.
"""

import asyncio
import dataclasses
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, Self

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from frontier import registry
from frontier.client.ask.facts import INFO, LONGEST_LABEL, NAMES, START, Readings, facts_at
from frontier.client.ask.identify import Served, object_of
from frontier.client.ask.target import Target
from frontier.client.engines import PREFIXES
from frontier.client.engines.base import Key, Samples
from frontier.client.http.http_client import Client
from frontier.client.secrets import is_secret_name
from frontier.core.model.trials import MetricSeries, SourceReadings
from frontier.core.model.units import usable
from frontier.core.window.standstill import LASTED

_EVERY, _SELDOM = 1.0, 20.0
"""Seconds between two readings, and times what one takes: it may hold up the streams so long."""
_ASKED = 2.0
_SETTLED = 2 * _ASKED + 1.0
"""A reading may be under way when the window closes, and is followed by the last."""


# --- metrics over HTTP


def series_of(names: Iterable[str]) -> re.Pattern[bytes]:
    """Finds the lines of a Prometheus text that are of these names; also with an underscore for the
    colon, as an exporter or what passes them on may write it.
    """
    listed = b"|".join(re.escape(name.encode()).replace(b":", b"[:_]") for name in names)
    return re.compile(rb"^(?:%s)(?:\{[^\n]*)?[ \t][^\n]*$" % listed, re.MULTILINE)


_WANTED = series_of((*NAMES, START))
_MOST_SERIES = 5_000
"""Far more than the replicas of one server have, and read in a fraction of a second."""


def parse_metrics(*texts: bytes, wanted: re.Pattern[bytes] = _WANTED, most: int = _MOST_SERIES) -> Samples:
    """The known series in Prometheus texts, one per replica or exporter, as they came: what
    `series_of` their names finds.

    ValueError when a text is not a Prometheus text, or has more than `most` series: to read these
    would disturb the trial. NaN and infinite values, which some exporters give before their first
    request, are left out. So are impossible values, below zero or beyond `units.MOST`. Two series
    of one name and labels are both kept, with a label that tells them apart.
    """
    # Only the known lines reach the parser: an engine exports thousands of histogram lines, and
    # time is short here.
    known = [wanted.findall(text) for text in texts]
    if (count := sum(map(len, known))) > most * len(texts):
        raise ValueError(f"{count:,} series of the known metrics")
    samples: dict[Key, float] = {}
    seen: Counter[Key] = Counter()
    for number, lines in enumerate(known):
        source = (("metrics_url", str(number)),) if len(texts) > 1 else ()
        for family in _families(b"\n".join(lines).decode(errors="replace") + "\n"):
            for sample in family.samples:
                value = usable(sample.value)
                if value is not None and value >= 0:
                    key: Key = (_as_engines_write(sample.name), (*source, *sample.labels.items()))
                    samples[_told_apart(key, seen[key])] = value
                    seen[key] += 1
    return samples


def _as_engines_write(name: str) -> str:
    """The name with the colon of its engine's prefix where an underscore stands for it."""
    head, _, rest = name.partition("_")
    return f"{head}:{rest}" if f"{head}:" in PREFIXES else name


def _told_apart(key: Key, again: int) -> Key:
    """The key of a series; of one that came before with a label that it does not have."""
    return (key[0], (*key[1], ("again", str(again)))) if again else key


def _families(lines: str) -> list[Metric]:
    try:
        return list(text_string_to_metric_families(lines))
    except (IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        # The parser stumbles over some of what is not in the format instead of saying so.
        raise ValueError(f"not a Prometheus text: {error}") from error


async def scrape(client: Client) -> tuple[Samples, float] | None:
    """The known metrics of a target now, of all its replicas, and when that was on the client's
    clock; None when one of them has none.
    """
    target, texts, begun = client.target, [], client.clock()
    if target.metrics_urls is None:
        return None
    for url in target.metrics_urls or (target.url(target.engine.metrics),):
        exchange = await client.ask(url, _ASKED)
        if exchange.failure is not None or exchange.status != 200:
            return None
        texts.append(b"".join(exchange.reads))
    ended = client.clock()
    try:
        samples = parse_metrics(*texts)
    except ValueError:
        return None
    # The server made its answer somewhere between.
    return ({**samples, (LASTED, ()): ended - begun}, (begun + ended) / 2) if facts_at(samples) else None


# --- the server's settings, flat and without secrets

_MOST_SETTINGS = 300
_NO_SETTINGS = frozenset({"engine", "model_name", "metrics_url", "launch_command", "chat_template"})
"""What only names a series; a command line, which may hold a key and repeats the settings; a long
text."""


async def ask_settings(client: Client) -> dict[str, str]:
    """The settings of the client's target, from a route of its engine; empty where no route tells
    them.
    """
    for route in client.target.engine.tells:
        if answer := object_of(await client.ask(route, 2.0)):
            return {name: client.target.cleaned(text, LONGEST_LABEL) for name, text in _kept(answer).items()}
    return {}


def told_settings(readings: Iterable[SourceReadings]) -> dict[str, str]:
    """The settings in the labels of info metrics; where replicas differ, those of the last."""
    told: dict[str, str] = {}
    for source in readings:
        for series in source.series:
            if series.name in INFO:
                told |= _kept(series.labels)
    return told


def _kept(settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings that are one number or text each, as text. A text whose name is that of a secret
    is not kept.
    """
    kept = {}
    for name, value in list(settings.items())[:_MOST_SETTINGS]:
        secret = isinstance(value, str) and is_secret_name(name.replace("tokenizer", "")) and not _is_number(value)
        if name not in _NO_SETTINGS and isinstance(value, str | int | float | bool | None) and not secret:
            kept[name[:LONGEST_LABEL]] = str(value)
    return kept


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit() or text in ("None", "True", "False")


# --- all of them


class Source(Protocol):
    """Something else that is read beside a trial, as the devices of the machine."""

    readings: Readings

    async def watch(self, opened: asyncio.Event, closed: asyncio.Event) -> None:
        """Read it into its readings while the window is open."""


class Evidence:
    """The metrics of a target and of its machine, read when the window opens, when it closes, and
    between. It also notes whether the server calls itself the same after the trial as before.
    `named` is what its answers named, set by the trial.

    A context manager, which reads in a task of its own.
    """

    def __init__(self, target: Target) -> None:
        short = dataclasses.replace(target.timeouts, connect=2.0)
        self.target = dataclasses.replace(target, timeouts=short)
        sources = registry.SOURCES.find()
        self._beside: Sequence[Source] = sources(target) if sources is not None else ()
        self._metrics = Readings("metrics")
        self._settings: dict[str, str] = {}
        self._served: Served | None = None
        self.named: dict[str, dict[str, int]] = {}
        self._reading: asyncio.Task[None] | None = None
        self.opened = asyncio.Event()
        self.closed = asyncio.Event()
        self.zero = time.perf_counter()
        """The trial's start on this clock; set by the trial."""

    async def __aenter__(self) -> Self:
        self._reading = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def settle(self) -> None:
        """Wait for the last reading, after the close of the window."""
        if self._reading is not None and self.opened.is_set():
            await asyncio.wait([self._reading], timeout=_SETTLED)

    async def differences(self) -> str | None:
        """What the server says of itself after the last request and did not say before the first,
        in words. None: nothing, or it does not say.
        """
        if self._served is None or self._served == Served(None, None):
            return None
        async with Client(self.target) as client:
            changed = self._served.differences(await Served.ask(client))
        return changed and self.target.cleaned(changed)

    async def _run(self) -> None:
        """Read all sources from the opening of the window to its close; end quietly where there is
        nothing to read.
        """
        beside = (source.watch(self.opened, self.closed) for source in self._beside)
        await asyncio.gather(self._scrape(), *beside)

    async def _scrape(self) -> None:
        """Metrics count only where they could be read at both ends of the window."""
        async with Client(self.target) as client:
            self._served = await Served.ask(client)
            self._settings = await ask_settings(client)
            if await scrape(client) is None:
                return
            await self.opened.wait()
            metrics, begun, first = Readings("metrics"), client.clock(), await scrape(client)
            if first is None:
                return
            metrics.add(*first)
            took = [client.clock() - begun]
            while not self.closed.is_set():
                try:
                    await asyncio.wait_for(self.closed.wait(), max(_EVERY, _SELDOM * statistics.median(took)))
                except TimeoutError:
                    begun, between = client.clock(), await scrape(client)
                    took.append(client.clock() - begun)
                    if between is not None:
                        metrics.add(*between)
            if (final := await scrape(client)) is not None:
                metrics.add(*final, last=True)
                self._metrics = metrics

    def settings(self, readings: Iterable[SourceReadings]) -> dict[str, str]:
        """The server's settings, from a route or its metrics."""
        return self._settings | told_settings(readings)

    def readings(self) -> tuple[SourceReadings, ...]:
        """The readings in the window, on the clock of the trial, which began at `zero`."""
        sources = (self._metrics, *(source.readings for source in self._beside))
        read = tuple(kept for source in sources for kept in source.stored(self.zero, self.target.secrets))
        known = tuple(MetricSeries(name, {}, repr(value)) for name, value in self.target.learned.items())
        return (*read, SourceReadings("learned before", "0", known)) if known else read
