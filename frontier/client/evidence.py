"""Evidence beside a trial: the engine's metrics and device exporters (Prometheus text), nvidia-smi,
NVML, RAPL.

Each source is read off the hot path, when the window opens, when it closes, and about once a second
between, and kept as it came. `client.facts` makes facts of it. It answers where the time went,
whether the load arrived and whether requests were preempted; it is never a source of percentiles.
Of the server's settings what it tells is kept too: what was running.
"""

import asyncio
import dataclasses
import functools
import importlib
import ipaddress
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from frontier.client.facts import INFO, NAMES, START, Key, Samples, facts_at, stored_readings
from frontier.client.http import Client
from frontier.client.preflight import json_of, models_of, object_of, version_of
from frontier.client.target import Target
from frontier.model import SourceReadings
from frontier.text import NO_SECRETS, Secrets, is_secret_name
from frontier.units import usable

_EVERY = 1.0
_SETTLED = 2.0
_MOST_VALUES = 200_000
"""Values that are kept of a source: about 1.5 MB. With more, every second moment is dropped."""
_LONGEST_LABEL = 200


class Readings:
    """What one source said, moment by moment, bounded in size: a long window keeps fewer moments of
    it.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._moments: list[tuple[float, Samples]] = []
        self._values = self._seen = 0
        self._stride = 1

    def __bool__(self) -> bool:
        return bool(self._moments)

    def add(self, samples: Samples, at: float, *, last: bool = False) -> None:
        """Keep what it said `at` a moment (perf_counter seconds)."""
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
        clean = functools.cache(lambda text: secrets.said(text, _LONGEST_LABEL))
        return (stored_readings(self._source, times, moments, clean),)


# --- this machine's GPUs and CPU

_FIELDS = ("index", "power.draw", "utilization.gpu", "memory.used", "clocks.sm", "temperature.gpu")
_ARGUMENTS = (f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits", "--loop=1")

GpuSample = tuple[float | None, ...]
"""One GPU at one moment, as _FIELDS; None where nvidia-smi has no value."""


class Gpus:
    """Reads the GPUs once a second while a trial runs. `readings` has what was read in its
    window.
    """

    def __init__(self, target: Target) -> None:
        self._tool = shutil.which("nvidia-smi") if is_here(target.base_url) else None
        self.readings = Readings("nvidia-smi")

    async def watch(self, opened: asyncio.Event, closed: asyncio.Event) -> None:
        """One process for the whole trial, begun before the window, so that starting it disturbs
        nothing.
        """
        if self._tool is None:
            return
        try:
            process = subprocess.Popen(  # noqa: ASYNC220, S603 - quick, before the window; our own arguments
                [self._tool, *_ARGUMENTS], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError:
            return
        threading.Thread(target=self._read, args=(process, opened), daemon=True).start()
        try:
            await closed.wait()
        finally:
            process.kill()
            process.wait()

    def _read(self, process: "subprocess.Popen[bytes]", opened: asyncio.Event) -> None:
        """In a thread of its own: a line a second for each GPU, which together are a moment."""
        assert process.stdout is not None
        moment: dict[Key, float] = {}
        with process.stdout as lines:
            for line in lines:
                sample = parse_gpu_line(line.decode(errors="replace"))
                if sample is None or not opened.is_set():
                    continue
                index = (("index", f"{sample[0]:.0f}"),)
                if ("index", index) in moment:
                    self.readings.add(moment, time.perf_counter())
                    moment = {}
                values = zip(_FIELDS, sample, strict=True)
                moment |= {(name, index): value for name, value in values if value is not None}
        if moment and not self.readings:  # a later one may lack GPUs: it was cut off
            self.readings.add(moment, time.perf_counter())


def parse_gpu_line(line: str) -> GpuSample | None:
    """A line of nvidia-smi's CSV; None for anything else. What is not supported reads '[N/A]' or
    the like.
    """
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != len(_FIELDS) or not fields[0].isdigit():
        return None
    return tuple(_number(field) for field in fields)


def _number(text: str) -> float | None:
    try:
        return usable(float(text))
    except ValueError:
        return None


def is_here(url: str) -> bool:
    """The address is this machine's own."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class GpuEnergy:
    """The energy counters of this machine's NVIDIA GPUs and what holds their clocks down, by NVML,
    which is only read; nothing without the package nvidia-ml-py or without a driver.
    """

    def __init__(self, target: Target) -> None:
        self.readings = Readings("nvml")
        self._nvml: Any = None
        self._devices: list[Any] = []
        with suppress(ImportError):
            self._nvml = nvml = importlib.import_module("pynvml")
            with suppress(nvml.NVMLError):
                if is_here(target.base_url):
                    nvml.nvmlInit()
                    self._devices = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]

    def read(self) -> dict[Key, float]:
        """What all devices say now. What a device does not tell is missing."""
        samples: dict[Key, float] = {}
        for index, device in enumerate(self._devices):
            for name, ask in (
                ("energy_mj", self._nvml.nvmlDeviceGetTotalEnergyConsumption),
                ("clocks_reasons", self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons),
            ):
                with suppress(self._nvml.NVMLError):
                    samples[name, (("index", str(index)),)] = float(ask(device))
        return samples


POWERCAP = Path("/sys/class/powercap")


class CpuEnergy:
    """The energy counters of this machine's CPU packages (RAPL), of AMD's too; none where they may
    not be read.

    A counter starts again from 0 at `max_energy_range_uj`, about once in ten minutes under load;
    what is kept goes on.
    """

    def __init__(self, target: Target, root: Path = POWERCAP) -> None:
        self._zones = sorted(root.glob("intel-rapl:[0-9]")) if is_here(target.base_url) else []
        self._before: dict[Path, int] = {}
        self._turns: dict[Path, int] = {}
        self.readings = Readings("rapl")

    def read(self) -> dict[Key, float]:
        """What all packages say now; nothing where one of them does not."""
        samples: dict[Key, float] = {}
        with suppress(OSError, ValueError):
            for zone in self._zones:
                value, most = (int((zone / name).read_text()) for name in ("energy_uj", "max_energy_range_uj"))
                self._turns[zone] = self._turns.get(zone, 0) + most * (value < self._before.get(zone, 0))
                self._before[zone] = value
                samples["energy_uj", (("zone", zone.name),)] = float(value + self._turns[zone])
        return samples if len(samples) == len(self._zones) else {}


# --- metrics over HTTP

_WANTED = re.compile(
    rb"^(?:%s)(?:\{[^\n]*)?[ \t][^\n]*$" % b"|".join(re.escape(name.encode()) for name in (*NAMES, START)),
    re.MULTILINE,
)
_MOST_SERIES = 5_000
"""Far more than the replicas of one server have, and read in a fraction of a second."""


def parse_metrics(*texts: bytes) -> Samples:
    """The known series in Prometheus texts, one per replica or exporter, as they came.

    ValueError when one is no such text, or has so many that reading them would disturb what is
    measured. NaN and infinite values, which some exporters give before their first request, say
    nothing and are left out, as is what no server can mean: a value below zero or beyond
    `units.MOST`. Series that are there twice are added up.
    """
    # Only the known lines reach the parser: an engine exports thousands of histogram lines, and
    # time is short here.
    known = [_WANTED.findall(text) for text in texts]
    if (count := sum(map(len, known))) > _MOST_SERIES * len(texts):
        raise ValueError(f"{count:,} series of the known metrics")
    samples: dict[Key, float] = {}
    for number, lines in enumerate(known):
        source = (("metrics_url", str(number)),) if len(texts) > 1 else ()
        for family in _families(b"\n".join(lines).decode(errors="replace") + "\n"):
            for sample in family.samples:
                value = usable(sample.value)
                if value is not None and value >= 0:
                    key = (sample.name, (*source, *sample.labels.items()))
                    samples[key] = samples.get(key, 0.0) + value
    return samples


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
    for url in target.metrics_urls or (target.url(target.adapter.metrics),):
        exchange = await client.ask(url, 2.0)
        if exchange.failure is not None or exchange.status != 200:
            return None
        texts.append(b"".join(exchange.reads))
    at = (begun + client.clock()) / 2  # the server made its answer somewhere between
    try:
        samples = parse_metrics(*texts)
    except ValueError:
        return None
    return (samples, at) if facts_at(samples) else None


# --- the server's settings, flat and without secrets

_ROUTES = {"sglang": ("/server_info", "/get_server_info"), "llamacpp": ("/props",), "tgi": ("/info",)}
"""Where an engine tells its settings, by dialect: the first route that answers counts. vLLM and
TensorRT-LLM tell theirs as labels of info metrics.
"""
_MOST_SETTINGS = 300
_NO_SETTINGS = frozenset({"engine", "model_name", "metrics_url", "launch_command", "chat_template"})
"""What only names a series; a command line, which may hold a key and repeats the settings; a long
text."""


async def ask_settings(client: Client) -> dict[str, str]:
    """The settings of the client's target, on the route of its engine; nothing where there is
    none.
    """
    for route in _ROUTES.get(client.target.dialect or "", ()):
        if answer := await object_of(client, route, 2.0):
            return {name: client.target.cleaned(text, _LONGEST_LABEL) for name, text in _kept(answer).items()}
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
            kept[name[:_LONGEST_LABEL]] = str(value)
    return kept


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit() or text in ("None", "True", "False")


# --- who the server is

_MODELS_SAID = 5
"""Models of a list that changed which are named."""


@dataclasses.dataclass(frozen=True, slots=True)
class Served:
    """What a server says of itself at one moment: the models it lists and its version; None where
    it does not say.
    """

    models: frozenset[str] | None
    version: str | None

    @classmethod
    async def ask(cls, client: Client) -> "Served":
        """What the client's target says now; nothing more where it does not get its list across."""
        exchange = await client.ask("/v1/models", 2.0)
        if exchange.failure is not None:
            return cls(None, None)
        listed = json_of(exchange)
        known = isinstance(listed, dict) and isinstance(listed.get("data"), list)
        return cls(frozenset(models_of(listed)[0]) if known else None, await version_of(client, 2.0))

    def differences(self, later: "Served") -> str | None:
        """What is another at a later moment, in words; None: nothing."""
        found = []
        if self.models is not None and later.models is not None and self.models != later.models:
            kinds = (("now lists", later.models - self.models), ("no longer lists", self.models - later.models))
            for verb, names in kinds:
                if names:
                    more = f" and {len(names) - _MODELS_SAID} more" if len(names) > _MODELS_SAID else ""
                    found.append(f"the server {verb} {', '.join(sorted(names)[:_MODELS_SAID])}{more}")
        if self.version is not None and later.version is not None and self.version != later.version:
            found.append(f"it was version {self.version} and is {later.version}")
        return "; ".join(found) or None


# --- all of them


class Evidence:
    """The metrics of a target and of its machine, read when the window opens, when it closes, and
    between; and whether the server calls itself the same after the trial as before. `named` is what
    its answers named, set by the trial.

    A context manager, which reads in a task of its own.
    """

    def __init__(self, target: Target) -> None:
        short = dataclasses.replace(target.timeouts, connect=2.0)
        self._target = dataclasses.replace(target, timeouts=short)
        self._gpus = Gpus(target)
        self._energy = (CpuEnergy(target), GpuEnergy(target))
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
        """What the server says otherwise now, after the last request, than it did before the first,
        in words; None: nothing, or it does not say.
        """
        if self._served is None or self._served == Served(None, None):
            return None
        async with Client(self._target) as client:
            changed = self._served.differences(await Served.ask(client))
        return changed and self._target.cleaned(changed)

    async def _run(self) -> None:
        """From the opening of the window to its close; ends quietly where there is nothing to
        read.
        """
        await asyncio.gather(self._scrape(), self._read_energy(), self._gpus.watch(self.opened, self.closed))

    async def _scrape(self) -> None:
        """Metrics count only where they could be read at both ends of the window."""
        async with Client(self._target) as client:
            self._served = await Served.ask(client)
            self._settings = await ask_settings(client)
            if await scrape(client) is None:
                return
            await self.opened.wait()
            metrics, first = Readings("metrics"), await scrape(client)
            if first is None:
                return
            metrics.add(*first)
            while not self.closed.is_set():
                try:
                    await asyncio.wait_for(self.closed.wait(), _EVERY)
                except TimeoutError:
                    if (between := await scrape(client)) is not None:
                        metrics.add(*between)
            if (final := await scrape(client)) is not None:
                metrics.add(*final, last=True)
                self._metrics = metrics

    async def _read_energy(self) -> None:
        await self.opened.wait()
        await asyncio.to_thread(self._read_counters)
        while any(counters.readings for counters in self._energy) and not self.closed.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self.closed.wait(), _EVERY)
            await asyncio.to_thread(self._read_counters, last=self.closed.is_set())

    def _read_counters(self, *, last: bool = False) -> None:
        """In a thread: a driver may take milliseconds to answer."""
        for counters in self._energy:
            if samples := counters.read():
                counters.readings.add(samples, time.perf_counter(), last=last)

    def settings(self, readings: Iterable[SourceReadings]) -> dict[str, str]:
        """What the server told of its settings, on a route or in its metrics."""
        return self._settings | told_settings(readings)

    def readings(self) -> tuple[SourceReadings, ...]:
        """What was read in the window, on the clock of the trial, which began at `zero`."""
        sources = (self._metrics, self._gpus.readings, *(counters.readings for counters in self._energy))
        return tuple(kept for source in sources for kept in source.stored(self.zero, self._target.secrets))
