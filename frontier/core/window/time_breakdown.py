"""Time breakdown: where TTFT and E2E latency went, as means over the windows. Only means add up: a
p99 has no parts.

The server's histograms give sums and counts for the requests between the first and the last reading
of its metrics. The client's stamps are added up over the same requests, by when a server observes
them: TTFT over requests whose first token came in that time, all else over requests that ended in
it. So both sides are of one population, and no edge of the window mixes two.

The server's clocks tell queue, prefill and decode. Network time is the client's TTFT less the
server's. Front-end time is the rest of the server's TTFT without queue and prefill (template,
tokenizer, transport between its processes). Where the server does not tell its TTFT, its E2E
latency gives the network time: the way there and back delays the first token and the last alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frontier.core.model.points import TimeBreakdown
from frontier.core.model.units import format_seconds

PARTS = ("connect", "network", "front_end", "queue", "prefill", "decode")
"""The parts, in the order in which a request passes them."""
SERVED = ("queue", "prefill", "decode")
"""The parts that the server's clocks tell."""
BEYOND = 2.0
"""They cannot take this many times as long as the whole answer: their unit is another."""
OTHERS = 0.02
"""The counts of requests may differ by this share. If they differ by more, the server's means are
of other requests than ours."""
FEW = 2
"""Requests that may end between the server's answer and the time stamp that it gets."""
SERIES = "metric_series"
"""The fact that says how many series were added up into a count or a gauge of requests."""

_ROUNDED = 1e-6
"""Stamps of records are kept to the microsecond."""
WindowFacts = Mapping[str, float]
_FINISHED = ("e2e_request_latency_seconds", "request_queue_time_seconds", "request_decode_time_seconds")
FINISHED = (*(f"{name}_count" for name in _FINISHED), "generation_tokens_total")
"""The facts that may count the requests or tokens that the server finished."""


def client_sums(
    columns: Mapping[str, NDArray[np.float64]], ok: NDArray[np.bool_], facts: WindowFacts
) -> dict[str, float]:
    """The sums of the client's own stamps between the first and the last reading; empty without
    readings.
    """
    if not {"observed_from", "observed_until"} <= facts.keys():
        return {}
    begin, end = facts["observed_from"] + _ROUNDED, facts["observed_until"] + _ROUNDED
    first, last, connect = columns["first"], columns["last"], columns["connect"]
    began, ended = (first > begin) & (first <= end), ok & (last > begin) & (last <= end)
    ttft = first - columns["began"]
    sums = {
        "client_first_count": began.sum(),
        "client_first_ttft_sum": ttft[began].sum(),
        "client_first_connect_sum": connect[began].sum(),
        "client_count": ended.sum(),
        "client_ttft_sum": ttft[ended].sum(),
        "client_connect_sum": connect[ended].sum(),
        "client_e2e_sum": (last - columns["began"])[ended].sum(),
        "client_tokens": np.nansum(columns["completion_tokens"][ended]),
    }
    known = {name: float(value) for name, value in sums.items()}
    # An answer is counted by the server when it ends, by us when it has come: of those that end
    # together, as in lockstep or in one step of the engine, all may be on the way at an edge.
    way = (_network({**facts, **known}) or 0.0) + _ROUNDED
    known["client_early_count"] = float((ended & (last <= begin + way)).sum())
    known["client_late_count"] = float((ok & (last > end) & (last <= end + way)).sum())
    return known


def time_breakdown(windows: Sequence[WindowFacts]) -> TimeBreakdown | None:
    """The time breakdown of a setting, from the facts of its windows; None where no server metrics
    were read.
    """
    seen = [facts for facts in windows if facts.get("client_count") and not facts.get("restarts")]
    if not seen or not any(name.endswith("_seconds_sum") for facts in seen for name in facts):
        return None
    total = totals(seen)
    n = total["client_count"]
    ttft, e2e = total["client_ttft_sum"] / n, total["client_e2e_sum"] / n
    if refused := _other_load(total, max(facts.get(SERIES, 1.0) for facts in seen)):
        return TimeBreakdown(round(n), ttft, e2e, refused=refused)
    parts = _parts(total, ttft, e2e)
    if (told := sum(parts[name] or 0.0 for name in SERVED)) > BEYOND * e2e:
        why = f"its histograms tell of {format_seconds(told)} in answers of {format_seconds(e2e)}: another unit?"
        return TimeBreakdown(round(n), ttft, e2e, refused=why)
    known = {name: round(max(0.0, value), 6) for name in PARTS if (value := parts[name]) is not None}
    missing = tuple(name for name in PARTS if parts[name] is None)
    return TimeBreakdown(round(n), ttft, e2e, known, round(e2e - sum(known.values()), 6), missing)


def totals(windows: Sequence[WindowFacts]) -> WindowFacts:
    """The sums over windows of the facts that every window has: a partial sum would be of other
    requests than the rest.
    """
    return {n: sum(facts[n] for facts in windows) for n in windows[0] if all(n in facts for facts in windows)}


def _parts(total: WindowFacts, ttft: float, e2e: float) -> dict[str, float | None]:
    """The mean of each part; None where it is not known."""
    n = total["client_count"]
    connect = total["client_connect_sum"] / n
    queue = _mean(total, "request_queue_time_seconds")
    # An engine that adds up seconds without counting requests counts as many as we do:
    # `_other_load` saw to it.
    prefill = _mean(total, "request_prefill_time_seconds", _count(total) or n)
    decode = _mean(total, "request_decode_time_seconds", _count(total) or n)
    inference = _mean(total, "request_inference_time_seconds")
    if decode is None:
        decode = e2e - ttft  # by the client's stamps: the network delays the first token and the last alike
    if prefill is None and inference is not None:
        prefill = inference - decode
    network = _network(total)
    front_end = None
    if network is not None and queue is not None and prefill is not None:
        front_end = ttft - connect - network - queue - prefill
    return dict(zip(PARTS, (connect, network, front_end, queue, prefill, decode), strict=True))


def _mean(total: WindowFacts, name: str, count: float | None = None) -> float | None:
    """The mean of a histogram over the time observed."""
    count = total.get(f"{name}_count", count)
    return total[f"{name}_sum"] / count if count and f"{name}_sum" in total else None


def _count(total: WindowFacts) -> float | None:
    """How many requests the server finished, if it counts them."""
    return next((total[f"{name}_count"] for name in _FINISHED if f"{name}_count" in total), None)


def _network(total: WindowFacts) -> float | None:
    """The mean time on the network there and back, by the first token, else by the whole answer;
    None if not known.
    """
    for name, client in (("time_to_first_token_seconds", "client_first"), ("e2e_request_latency_seconds", "client")):
        server, count = _mean(total, name), total[f"{client}_count"]
        whole = "client_first_ttft_sum" if client == "client_first" else "client_e2e_sum"
        if server is not None and count:
            return (total[whole] - total[f"{client}_connect_sum"]) / count - server
    return None


def _on_the_way(total: WindowFacts, *, ours_more: bool) -> float:
    """The answers that may be on the network at a reading.

    With `ours_more` that is the first reading, where the server has counted fewer than we have;
    else the last one. They are the answers seen shortly after it, and at least as many as are on
    the network on average.
    """
    seconds = total.get("observed_until", 0.0) - total.get("observed_from", 0.0)
    network = _network(total)
    if network is None or seconds <= 0:
        return 0.0
    at_edge = total.get("client_early_count" if ours_more else "client_late_count", 0.0)
    return max(at_edge, total["client_count"] * max(0.0, network) / seconds)


@dataclass(frozen=True, slots=True)
class Finished:
    """Requests, or tokens, that the server and this client finished between the readings.

    Up to a difference of `room` the counts are the same. `edge` is the part of requests that were
    in flight at a reading.
    """

    server: float
    client: float
    unit: str
    room: float
    edge: float

    @property
    def same(self) -> bool:
        return abs(self.server - self.client) <= self.room

    def times(self, series: float) -> int:
        """How many times the server counts each of our requests, in at most `series` series; 0:
        others used it.
        """
        times = round(self.server / self.client)
        whole = abs(self.server - times * self.client) <= times * self.room
        return times if whole and 2 <= times <= series else 0

    def __str__(self) -> str:
        return f"the server finished {self.server:,.0f} {self.unit}, this client {self.client:,.0f}"


def finished(total: WindowFacts) -> Finished | None:
    """The finished requests or tokens; None where the server counts neither."""
    requests = total.get("client_count")
    server, unit = _count(total), "requests"
    if not requests:
        return None
    ours, each, edge = requests, 1.0, 0.0
    if server is None:
        server, unit, ours = total.get("generation_tokens_total"), "tokens", total["client_tokens"]
        each = ours / requests
        lasted = total.get("observed_until", 0.0) - total.get("observed_from", 0.0)
        edge = each * total["client_e2e_sum"] / max(1.0, lasted)
    if server is None or not ours:
        return None
    room = max(round(FEW * each), OTHERS * ours) + each * _on_the_way(total, ours_more=ours > server)
    return Finished(server, ours, unit, room, edge)


def _other_load(total: WindowFacts, series: float) -> str:
    """Why the server's means are not of our requests; '' where they are."""
    done = finished(total)
    if done is None:
        return "the server does not count its requests, so other load cannot be told from ours"
    if done.same:
        return ""
    why = "list the metrics of every replica under  metrics:"
    if done.server > done.client:
        times = done.times(series)
        why = f"{times} times as many: its metrics count each several times, or others used it as much"
        why = why if times else "others used it too"
    return f"{done} ({why})"
