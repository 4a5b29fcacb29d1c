"""Watching servers: their metrics read again and again over a time, and what the differences come
to."""

import asyncio
import contextlib
import math
import time
from collections.abc import Sequence

import numpy as np

from frontier.client.ask.evidence import parse_metrics
from frontier.client.ask.facts import Samples
from frontier.client.ask.target import Target, require_address
from frontier.client.http.http_client import Client
from frontier.core.errors import MeasurementError
from frontier.core.units import format_elapsed
from frontier.extras.workload.log_summary import dispersion_of
from frontier.extras.workload.observed import ArrivalFacts, Figure
from frontier.extras.workload.server_metrics import MOST_LINES, WANTED, Increases, Watched, in_flight, reset_notes

_READINGS = 600
"""Readings of a watch at the most, none more often than once a second: so bursts are seen."""
_WITHIN = 5.0
"""Seconds that a server has for its metrics."""
_ROUTES = ("/metrics", "/prometheus/metrics")
"""Where engines have them: the second is TensorRT-LLM's."""
_MOST_MISSED = 3
"""Readings in a row that may fail: a restart takes longer than one."""


def base_of(address: str) -> str:
    """The address of the API beside metrics: http://host:8000/v1 for http://host:8000/metrics.
    UsageError where it is no address.
    """
    require_address(address)
    base = address.rstrip("/")
    for end in (*reversed(_ROUTES), "/v1"):
        base = base.removesuffix(end)
    return f"{base}/v1"


async def watch(addresses: Sequence[str], seconds: float, api_key: str | None) -> Watched:
    """What the counters of these servers grew by in a time. MeasurementError where one of them has
    none.
    """
    increases, came, flights, times = Increases(), [], [], []
    step = max(1.0, math.ceil(seconds / _READINGS)) if seconds > 10 else seconds / 10
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(Client(Target(base_of(each), api_key=api_key))) for each in addresses
        ]
        urls = [await _route(client, address) for client, address in zip(clients, addresses, strict=True)]
        begun, missed = time.perf_counter(), 0
        for number in range(math.ceil(seconds / step) + 1):
            await asyncio.sleep(max(0.0, begun + number * step - time.perf_counter()))
            samples = await _all(clients, urls)
            missed = missed + 1 if samples is None else 0
            if missed > _MOST_MISSED:
                raise MeasurementError("a server stopped answering with its metrics", "look whether it still runs")
            if samples is None:
                continue
            came.append(increases.add(samples))
            times.append(time.perf_counter())
            if (flight := in_flight(samples)) is not None:
                flights.append(flight)
    lasted = times[-1] - times[0]
    rate = sum(came) / lasted
    dispersion = dispersion_of(came[1:], round(step)) if step >= 1 else {}
    arrivals = ArrivalFacts(rate, rate, f"in {format_elapsed(lasted)}", dispersion) if rate > 0 else None
    source = ", ".join(addresses)
    return Watched(source, increases.grown, lasted, arrivals, mean_figure(flights), tuple(reset_notes(increases)))


async def _all(clients: Sequence[Client], urls: Sequence[str]) -> Samples | None:
    """The samples of all servers now, each with its address where there are several; None where one
    does not answer.
    """
    every: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for client, url in zip(clients, urls, strict=True):
        exchange = await client.ask(url, _WITHIN)
        if exchange.failure is not None or exchange.status != 200:
            return None
        try:
            samples = parse_metrics(b"".join(exchange.reads), wanted=WANTED, most=MOST_LINES)
        except ValueError:
            return None
        for (name, labels), value in samples.items():
            every[name, (*labels, ("server", url)) if len(urls) > 1 else labels] = value
    return every


async def _route(client: Client, address: str) -> str:
    """Where a server has its metrics: as it was given, or on the routes of the engines."""
    base = base_of(address).removesuffix("/v1")
    given = address.rstrip("/")
    for url in [given] if given.endswith("metrics") else [f"{base}{route}" for route in _ROUTES]:
        if await _all([client], [url]):
            return url
    what = f"{client.target.secrets.redact(address)} shows no metrics of vLLM, SGLang, TGI or TensorRT-LLM"
    raise MeasurementError(what, "name their address, as http://host:8000/metrics; SGLang needs --enable-metrics")


def mean_figure(values: Sequence[float]) -> Figure | None:
    """The mean of readings, with its interval of parts of the time; None without readings."""
    if not values:
        return None
    parts = [float(np.mean(part)) for part in np.array_split(values, min(10, len(values)))]
    mean = float(np.mean(values))
    error = 2.26 * float(np.std(parts, ddof=1)) / len(parts) ** 0.5 if len(parts) > 1 else 0.0
    return Figure(mean, max(0.0, mean - error), mean + error, len(values))
