"""A range of Prometheus: the growth of servers' counters in past days. Also their busiest hour, and
the requests in flight then.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import numpy as np

from frontier.client.ask.identify import object_of
from frontier.client.ask.target import Target, require_address
from frontier.client.engines.base import Key
from frontier.client.http.http_client import Client
from frontier.core.model.errors import MeasurementError
from frontier.core.model.text import clean
from frontier.core.model.units import format_elapsed
from frontier.extras.workload.arrival_files import number_of
from frontier.extras.workload.counter_watch import ANEW, as_lower_bound
from frontier.extras.workload.dispersion import dispersion_of
from frontier.extras.workload.log_summary import named_time
from frontier.extras.workload.observed import ArrivalFacts, ProductionFigure, Workload
from frontier.extras.workload.server_metrics import HISTOGRAMS, SERIES, first_grown, in_flight, workload_of

_WITHIN = 60.0
"""Seconds that Prometheus has for a query over days."""
_HOUR = 3_600.0
_MOST_POINTS = 2_000
"""Most moments at which the requests of the hour before are looked up: every five minutes of a
week."""
_MINUTE = 60
_PARTS = 20
"""Parts of the busiest hour; their requests in flight give the interval of the mean."""
_LEAST_PART = 120.0
"""Fewest seconds of a part: two readings, as Prometheus reads a server every 15 to 60 s."""
_REQUESTS = [f"{name}_count" for what in ("ttft", "input", "e2e") for name in HISTOGRAMS[what]]
"""Counters of requests: of first tokens, otherwise of ended requests."""


class Prometheus:
    """Queries to one Prometheus, over the `seconds` before now, of the series that match."""

    def __init__(self, client: Client, match: str, seconds: float) -> None:
        self._client, self._match, self._seconds = client, match, seconds
        self._now = time.time()

    async def query(self, kind: str, **asked: Any) -> list[Mapping[str, Any]]:
        """The series in the answer to a query. MeasurementError where it has none."""
        url = f"{self._client.target.base_url.rstrip('/')}/api/v1/{kind}?{urlencode(asked)}"
        exchange = await self._client.ask(url, _WITHIN)
        tree = object_of(exchange) or {}
        if tree.get("status") != "success" or not isinstance(tree.get("data"), dict):
            why = clean(str(tree.get("error") or (exchange.failure or ("", f"HTTP {exchange.status}"))[1]), 200)
            raise MeasurementError(f"Prometheus does not answer: {why}", "look at its address, and at --match")
        listed = tree["data"].get("result")
        return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []

    async def increase(self, name: str) -> dict[Key, float]:
        """The growth of each series of a name; Prometheus itself handles restarts."""
        window = f"[{math.ceil(self._seconds)}s]"
        found = {}
        for each in await self.query("query", query=f"increase({name}{{{self._match}}}{window})", time=self._now):
            labels = {str(k): str(v) for k, v in each.get("metric", {}).items()}
            if (value := _number(each.get("value"))) is not None:
                found[name, tuple(sorted(labels.items()))] = value
        return found

    async def grew(
        self, counter: str, window: float, start: float, end: float, step: float
    ) -> list[tuple[float, float]]:
        """The growth of all series of a counter in the `window` seconds before each of these
        moments.
        """
        query = f"sum(increase({counter}{{{self._match}}}[{round(window)}s]))"
        listed = await self.query("query_range", query=query, start=start, end=end, step=step)
        values = listed[0].get("values") if listed else []
        return [(float(pair[0]), value) for pair in values or [] if (value := _number(pair)) is not None]

    async def arrivals(self, counter: str, total: float) -> tuple[ArrivalFacts, float, float]:
        """How requests arrived by a counter of them, and the begin and end of the busiest hour, or
        of a shorter range.
        """
        window, now = min(_HOUR, self._seconds), self._now
        step = max(window / 12, self._seconds / _MOST_POINTS)
        first = now - self._seconds + window
        hours = await self.grew(counter, window, first, now, step)
        end, most = max(hours, key=lambda each: each[1], default=(now, total))
        begun = end - window + _MINUTE  # each count is of the minute before
        minutes = await self.grew(counter, _MINUTE, begun, end, _MINUTE) if begun < end else []
        # A Prometheus that keeps less than was asked for has no values before.
        oldest = hours[0][0] if hours else first
        rate = total / (self._seconds if oldest < first + step / 2 else now - oldest + step)
        when = f"{named_time(end - window)}, for {format_elapsed(window)}"
        dispersion = dispersion_of([value for _, value in minutes], _MINUTE)
        return ArrivalFacts(rate, max(rate, most / window), when, dispersion), end - window, end

    async def engines(self, counter: str, start: float, end: float) -> int:
        """The number of series of a counter that grew between two times. A server that replaced
        another has labels of its own.
        """
        query = f"count(increase({counter}{{{self._match}}}[{round(end - start)}s]) > 0)"
        values = [_number(each.get("value")) for each in await self.query("query", query=query, time=end)]
        return next((round(value) for value in values if value), 0)

    async def resets(self, counter: str, start: float, end: float) -> int:
        """The most resets of any series of a counter between two times."""
        query = f"max(resets({counter}{{{self._match}}}[{round(end - start)}s]))"
        values = [_number(each.get("value")) for each in await self.query("query", query=query, time=end)]
        return next((round(value) for value in values if value), 0)

    async def running(self, summed: str, start: float, end: float) -> ProductionFigure | None:
        """The requests in flight between two times, from the sum of the seconds that requests spent
        in the server.
        """
        step = min(end - start, max(_LEAST_PART, (end - start) / _PARTS))
        spent = [value for _, value in await self.grew(summed, step, start + step, end, step)]
        return in_flight(np.asarray(spent), np.full(len(spent), step))


def _number(pair: object) -> float | None:
    """The value of a pair of a time and a text; None for NaN, or for any other content."""
    value = number_of(pair[1]) if isinstance(pair, list) and len(pair) > 1 else None
    return value if value is not None and value >= 0 else None


async def watched_in(url: str, seconds: float, match: str, api_key: str | None, context: int | None) -> Workload:
    """The workload by what servers counted in the time before now, from the Prometheus at an
    address.
    """
    require_address(url)
    async with Client(Target(url, api_key=api_key)) as client:
        prometheus = Prometheus(client, match, seconds)
        grown: dict[Key, float] = {}
        for name in SERIES:
            grown |= await prometheus.increase(name)
        counter, total = first_grown(grown, _REQUESTS)
        summed, _ = first_grown(grown, [f"{name}_sum" for name in HISTOGRAMS["e2e"]])
        arrivals, running, engines, resets = None, None, 0, 0
        if counter:
            arrivals, start, end = await prometheus.arrivals(counter, total)
            running = await prometheus.running(summed, start, end) if summed else None
            engines = await prometheus.engines(counter, start, end)
            resets = await prometheus.resets(counter, start, end)
            seconds = total / arrivals.rate
        if resets > 1:
            what = f"{counter} fell {resets:,} times in the busiest hour: one address with several replicas was scraped"
            raise MeasurementError(what, "let Prometheus scrape each replica, and name those series with  --match")
        where = client.target.secrets.redact(url)
        notes = [ANEW] if resets else []
        workload = workload_of(where, grown, seconds, context, arrivals=arrivals, running=running, notes=notes)
        workload = as_lower_bound(workload) if resets else workload
        return replace(workload, servers=engines or workload.servers)
