"""Watching servers: their metrics are read again and again, and the differences give the
workload.
"""

import asyncio
import contextlib
import math
import re
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from frontier.client.ask.evidence import parse_metrics
from frontier.client.ask.target import Target, require_address
from frontier.client.engines.base import Samples
from frontier.client.http.http_client import Client
from frontier.core.model.errors import MeasurementError
from frontier.core.model.units import format_elapsed
from frontier.extras.workload.bucket_counts import Floats
from frontier.extras.workload.dispersion import dispersion_of
from frontier.extras.workload.observed import ArrivalFacts, Workload
from frontier.extras.workload.server_metrics import (
    COUNTED,
    MOST_LINES,
    OF_ENGINE,
    WANTED,
    Increases,
    in_flight,
    workload_of,
)

_READINGS = 600
"""Most readings of a watch, at most one per second: so bursts are seen."""
_WITHIN = 5.0
"""Seconds that a server has for its metrics."""
_NO_SERVER, _LEAP = 1_000.0, 100.0
"""A rate in requests/s that no server reaches, and the factor over any other reading, from which a
reading is of another replica."""
ANEW = (
    "Counters began anew, as a server was restarted: what was counted around that is missing, so that the number of "
    "requests, their rate and what is in flight are lower bounds."
)
_TWICE = "Some series repeat another's counts to the last digit: they are one server's, and counted once."
_ROUTES = tuple(dict.fromkeys(engine.metrics for engine in COUNTED))
"""The engines' routes of metrics; the second is TensorRT-LLM's."""


def base_of(address: str) -> str:
    """The address of the API beside metrics: http://host:8000/v1 for http://host:8000/metrics.
    UsageError for a text that is not an address.
    """
    require_address(address)
    return re.sub(rf"(/v1)?({'|'.join(_ROUTES)})?/*$", "", address, count=1) + "/v1"


async def watch(addresses: Sequence[str], seconds: float, api_key: str | None, context: int | None) -> Workload:
    """The workload by the growth of these servers' counters over a time. MeasurementError where one
    of them has none.
    """
    increases, readings = Increases(time.time()), list[tuple[float, float, float]]()
    step = max(1.0, math.ceil(seconds / _READINGS)) if seconds > 10 else seconds / 10
    targets = [Target(base_of(each), api_key=api_key) for each in addresses]
    urls = [await _route(target, address) for target, address in zip(targets, addresses, strict=True)]
    begun, planned = time.perf_counter(), math.ceil(seconds / step) + 1
    for number in range(planned):
        await asyncio.sleep(max(0.0, begun + number * step - time.perf_counter()))
        if (samples := await _all(targets, urls)) is not None:
            readings.append((time.perf_counter(), *increases.add(samples)))
        if increases.several is not None:
            raise _replicas(urls[increases.several % len(urls)])
    if len(readings) < 2:
        raise MeasurementError("a server stopped answering with its metrics", "look whether it still runs")
    missed = planned - len(readings)
    times, came, spent = np.asarray(readings).T
    if _leapt(came[1:], np.diff(times)):
        raise _replicas(", ".join(urls))
    lasted = float(times[-1] - times[0])
    rate = float(came.sum()) / lasted
    dispersion = dispersion_of(came[1:], round(step)) if step >= 1 and not missed else {}
    arrivals = ArrivalFacts(rate, rate, f"in {format_elapsed(lasted)}", dispersion) if rate > 0 else None
    notes = {
        ANEW: increases.restarted,
        _TWICE: bool(increases.twins),
        f"{missed:,} of {planned:,} readings had no answer.": missed,
    }
    workload = workload_of(
        ", ".join(addresses),
        increases.grown,
        lasted,
        context,
        arrivals=arrivals,
        running=in_flight(spent[1:], np.diff(times)),
        notes=[note for note, true in notes.items() if true],
    )
    return as_lower_bound(workload) if increases.restarted else workload


def as_lower_bound(workload: Workload) -> Workload:
    """A workload marked as a lower bound, because its counters were reset."""
    running = workload.running and replace(workload.running, high=None)
    return replace(workload, lower_bound=True, running=running)


def _replicas(address: str) -> MeasurementError:
    what = f"{address}: its counters fall and come back, so several replicas answer at this address"
    hint = "name the metrics of each replica, as  frontier workload http://replica-1:8000/metrics http://replica-2:8000/metrics"
    return MeasurementError(what, hint)


def _leapt(came: Floats, seconds: Floats) -> bool:
    """Whether one reading has most of all requests, far more than a server can serve: it read
    another replica's counters.
    """
    rates = np.sort(came / seconds)
    return len(rates) > 2 and bool(rates[-1] > _NO_SERVER and rates[-1] > _LEAP * rates[-2])


async def _all(targets: Sequence[Target], urls: Sequence[str]) -> Samples | None:
    """The current samples of all servers; None where one does not answer."""
    with contextlib.suppress(ValueError):
        texts = [await _text(target, url) for target, url in zip(targets, urls, strict=True)]
        return parse_metrics(*texts, wanted=WANTED, most=MOST_LINES)
    return None


async def _text(target: Target, url: str) -> bytes:
    """The text of a server's metrics. ValueError where it has none.

    Each reading has a connection of its own: a balancer that keeps a connection with one replica
    would hide the others.
    """
    async with Client(target) as client:
        exchange = await client.ask(url, _WITHIN)
    if exchange.failure is not None or exchange.status != 200:
        raise ValueError(f"no answer from {url}")
    return b"".join(exchange.reads)


async def _route(target: Target, address: str) -> str:
    """The address of a server's metrics: the given one, or one of the engines' routes."""
    base = base_of(address).removesuffix("/v1")
    given = address.rstrip("/")
    for url in [given] if given.endswith("metrics") else [f"{base}{route}" for route in _ROUTES]:
        with contextlib.suppress(ValueError):
            if OF_ENGINE.search(await _text(target, url)):
                return url
    *others, last = (engine.title for engine in COUNTED)
    what = f"{target.secrets.redact(address)} does not answer with metrics of {', '.join(others)} or {last}"
    flags = "".join(f"; {engine.title} needs {engine.metrics_flag}" for engine in COUNTED if engine.metrics_flag)
    raise MeasurementError(what, f"look whether it runs, and name its metrics, as http://host:8000/metrics{flags}")
