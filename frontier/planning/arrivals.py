"""Independent arrivals: the rate that one replica takes at its operating point.

The arrivals of very many people are a Poisson process, whatever is in flight. The number of
requests in flight is a birth-death process. They arrive at the rate, and the replicas end them at
the rate that the sweep measured with as many in flight on each. Beyond the proven concurrency, the
cap, a request waits for a slot: its wait is a sum of gaps between departures of a full replica.

Random arrivals come in bunches, which a closed loop does not show: requests that wait for their
first token are a queue of its own. The records give the speed of this queue, and the time of a
request that finds m others in it. The rate of arrivals gives how often m are found (a birth-death
process again). docs/capacity.md has the assumptions, docs/validation/how-often-right.md
how often the promise holds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frontier.core.model.decisions import Decision, Limit
from frontier.core.model.errors import UsageError
from frontier.core.model.loads import Load
from frontier.core.model.points import Point
from frontier.core.stats.intervals import least
from frontier.core.window.window import Floats, WindowData
from frontier.planning.sla_result import ArrivalRate

WAITING = 0.01
"""Share of requests that may wait for a slot, where no limit on TTFT or E2E bounds the wait."""
ENOUGH = 20
"""Requests from which a length of the first-token queue has figures of its own; longer queues are
taken together."""
BEYOND = 200
"""The number of states beyond the cap that are computed; a queue that reaches the last of them is
an overload."""
MOST = 10_000_000
"""The most people, or replicas, that are searched for."""
STEPS = 1_000
"""The number of steps in which the rate of a full replica is searched."""
SPARE = 0.9
"""Share of the model's rate that is promised: something the windows did not show, as a rare pause
of the server, would break the promise."""
KEPT_UP = 0.8
"""Share of the rate of a full replica up to which it is taken to keep up with arrivals, where no
limit bounds a wait."""
RARE = 1e-9
"""A probability that counts as zero."""
_QUANTILES = (np.arange(200) + 0.5) / 200


@dataclass(frozen=True, slots=True, eq=False)
class Latencies:
    """Latencies in ascending order, each with the share of time at which an arriving request meets
    at most this latency.

    A request stands for the time until the next one was sent. Counted one by one, requests of a
    closed loop would hide a pause of the server: few are sent in it, but people go on asking.
    """

    seconds: Floats
    share: Floats

    @classmethod
    def of(cls, seconds: Floats, time: Floats) -> "Latencies":
        order = np.argsort(seconds)
        share = np.cumsum(time[order])
        return cls(seconds[order], share / share[-1] if len(share) else share)

    def above(self, limit: float) -> float:
        """The share above a limit; 1 without any latencies, as nothing is known then."""
        within = int(np.searchsorted(self.seconds, limit, side="right"))
        return 1 - float(self.share[within - 1]) if within else 1.0

    def quantiles(self) -> Floats:
        """Evenly spread quantiles."""
        values: Floats = self.seconds[np.searchsorted(self.share, _QUANTILES)]
        return values


def _lasted(sample: WindowData) -> Floats:
    """Seconds until the next request was sent, or the window ended."""
    following = np.append(sample.sent[1:], np.inf)
    time: Floats = np.maximum(np.minimum(following, sample.ends[sample.window]) - sample.sent, RARE)
    return time


@dataclass(frozen=True, slots=True, eq=False)
class FirstTokens:
    """The queue of requests that wait for their first token, at one setting.

    `rates[m - 1]` are first tokens per second while m wait, `found[m]` the TTFTs of requests that
    found m others waiting; the last of each holds for longer queues too. `variety` is the squared
    coefficient of variation of the prompts' lengths, which stand for the work of a first token.
    """

    rates: Floats
    found: tuple[Latencies, ...]
    variety: float = 1.0

    @classmethod
    def of(cls, sample: WindowData) -> "FirstTokens":
        """The queue by the requests of a window; failed requests are left out."""
        ok = np.isfinite(sample.ttft)
        sent, ttft, time = sample.sent[ok], sample.ttft[ok], _lasted(sample)[ok]
        times, change = np.concatenate((sent, sent + ttft)), np.repeat([1, -1], len(sent))
        order = np.lexsort((change, times))  # a first token comes before a request that is sent at that moment
        after = np.cumsum(change[order])
        before = after - change[order]
        lasted = np.bincount(after[:-1], np.diff(times[order]), minlength=int(after.max(initial=0)) + 1)
        served = np.bincount(before[change[order] < 0], minlength=len(lasted))
        longest = max(1, int(np.argmax(np.append(served[1:], 0) < ENOUGH)))
        own = served[1:longest] / np.maximum(lasted[1:longest], RARE)
        rest = served[longest:].sum() / max(float(lasted[longest:].sum()), RARE)
        found = np.empty(len(times), np.int64)
        found[order] = before
        groups = [np.minimum(found[: len(sent)], longest - 1) == m for m in range(longest)]
        by_state = tuple(Latencies.of(ttft[group], time[group]) for group in groups)
        variety = float(np.var(sample.prompt_tokens[ok]) / np.mean(sample.prompt_tokens[ok]) ** 2)
        return cls(np.append(own, rest), by_state, 1.0 if math.isnan(variety) else variety)

    def late(self, limit: float, rate: float, most: int, replicas: int) -> float:
        """The share of TTFTs above `limit` where requests arrive at random, `rate` per second on
        each of the `replicas`, with at most `most` in flight.

        Rates that depend on the state alone are those of exponential times. Work of even length,
        and arrivals that a router has spread, make long queues rarer. The mean of both squared
        coefficients of variation says how much, as in the two-moment formula of Kingman.
        `test_users.py` compares with M/M/1 and M/D/1.
        """
        m = np.arange(most)
        service = self.rates[np.minimum(m, len(self.rates) - 1)]
        even = 2 - min(1.0, (1 / replicas + self.variety) / 2)
        ratio = rate / service[: most - 1]
        ratio[1:] = np.where(ratio[1:] < 1, ratio[1:] ** even, ratio[1:])
        weight = np.append(1.0, np.cumprod(ratio))
        last = len(self.found) - 1
        longer = np.maximum(0, m - last) / self.rates[-1]
        share = np.array([self.found[min(i, last)].above(limit - longer[i]) for i in range(most)])
        return float(np.average(share, weights=weight))


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredSetting:
    """What one measured setting shows: requests per second, TTFT and E2E by name, and the share
    that failed.
    """

    load: Load
    rate: float
    latencies: Mapping[str, Latencies]
    failed: float


@dataclass(frozen=True, slots=True, eq=False)
class Replica:
    """One server with at most `cap` requests in flight, as its sweep measured it; `settings` ascend
    up to the cap.

    `first_tokens` is the queue for first tokens at the cap: no other setting has as many requests
    waiting, nor longer steps. `limits` are those on percentiles of TTFT and E2E, each with the
    factor from its value to its bound. Aggregates have neither: their limits are only known to hold
    without a wait.
    """

    cap: int
    settings: tuple[MeasuredSetting, ...]
    first_tokens: FirstTokens | None
    limits: tuple[tuple[Limit, float], ...]

    def rates(self, replicas: int, states: int) -> Floats:
        """Requests that end per second, with 1 .. `states` in flight, evenly spread over the
        `replicas`.
        """
        loads = [0, *(s.load for s in self.settings)]
        each = np.minimum(np.arange(1, states + 1) / replicas, self.cap)
        ended: Floats = replicas * np.interp(each, loads, [0.0, *(s.rate for s in self.settings)])
        return ended


def replica_of(decision: Decision, points: Sequence[Point], samples: Mapping[Load, WindowData]) -> Replica:
    """The replica that an operating point describes. `points` and `samples` are those of its
    series.

    UsageError where no rate of requests is known, and for limits that are not on single requests.
    """
    for limit in decision.limits:
        known = limit.of.p is not None and limit.of.quantity in ("ttft", "tpot", "itl", "e2e")
        if not known and limit.metric != "error_rate":
            raise UsageError(
                f"people cannot be counted for a limit on {limit.of.label}",
                "name limits on percentiles of TTFT, TPOT or E2E, as  --sla 'p99_ttft<=500ms'",
            )
    return _replica(decision, points, samples)


def _replica(decision: Decision, points: Sequence[Point], samples: Mapping[Load, WindowData]) -> Replica:
    """The replica for any limits; it keeps those on percentiles of TTFT and E2E."""
    if decision.shape.session is not None:
        what = f"{decision.shape.label} is a session: its proven number is people with one open at a time already"
        raise UsageError(what, "frontier solve names it")
    if decision.shape.mix:
        what = f"{decision.shape.label} is a mix, and people are counted for requests of one shape"
        raise UsageError(what, "frontier solve names the proven number in flight, and how many of each class they are")
    cap = decision.load
    assert cap is not None
    traced = cap in samples
    measured = [
        found
        for point in sorted(points, key=lambda p: p.load)
        if point.load <= cap and point.valid and traced is (point.load in samples)
        if (found := _measured(point, samples.get(point.load))) is not None
    ]
    if not measured or measured[-1].load != cap:
        what = "people cannot be counted: the rate of requests at the operating point is not known"
        raise UsageError(what, "sweep the server itself")
    if not traced:
        return Replica(cap, tuple(measured), None, ())
    waits = [limit for limit in decision.limits if limit.of.p is not None and limit.of.quantity in ("ttft", "e2e")]
    limits = tuple((limit, _spread(decision, limit)) for limit in waits)
    return Replica(cap, tuple(measured), FirstTokens.of(samples[cap]), limits)


def _measured(point: Point, sample: WindowData | None) -> MeasuredSetting | None:
    """What a point shows, without latencies where it has no requests; None without a rate."""
    rate = point.value("request_throughput")
    if math.isnan(rate):  # an aggregate may name the rate of tokens only
        rate = point.value("output_throughput") / point.shape.osl.mean
    if not rate > 0:
        return None
    if sample is None:
        failed = point.metrics.get("error_rate")
        return MeasuredSetting(point.load, rate, {}, failed.value if failed else 0.0)
    ok, time = np.isfinite(sample.e2e), _lasted(sample)
    both = {"ttft": sample.ttft, "e2e": sample.e2e}
    latencies = {name: Latencies.of(values[ok], time[ok]) for name, values in both.items()}
    return MeasuredSetting(point.load, rate, latencies, 1 - float(ok.mean()))


def _spread(decision: Decision, limit: Limit) -> float:
    """The factor from the value of a limited metric to its bound; 1 without a bound."""
    e = decision.metrics.get(limit.metric)
    return e.upper / e.value if e is not None and 0 < e.value <= e.upper < math.inf else 1.0


def arrival_rate(decision: Decision, points: Sequence[Point], samples: Mapping[Load, WindowData]) -> ArrivalRate | None:
    """The rate of independent arrivals that an operating point takes. None where no request has a
    known time, or no rate is expected to hold. Measured in closed loop, sessions have none (their
    requests do not arrive at random), and mixes neither (their classes take different times).
    """
    load = decision.load
    if load is None or load not in samples:
        return None
    if load.per_second is not None:
        most, mean = in_flight(samples[load])
        each = decision.shape.requests if decision.shape.has_sessions else 1.0
        return ArrivalRate(most, max(1, round(mean)), load.per_second * each)
    if decision.shape.kind != "shape":
        return None
    try:
        replica = _replica(decision, points, samples)
    except UsageError:
        return None
    rate = open_rate(replica, decision.limits)
    if rate is None:
        return None
    ended = replica.rates(1, load + BEYOND)
    found = birth_death(np.full(len(ended), rate), ended)
    streams = float(found @ np.minimum(np.arange(len(found)), load))
    return ArrivalRate(load, max(1, round(streams)), rate)


def in_flight(sample: WindowData) -> tuple[int, float]:
    """The most and the mean number in flight, of the requests sent in the windows."""
    ends = np.minimum(sample.sent + sample.e2e, sample.ends[sample.window])
    times, change = np.concatenate((sample.sent, ends)), np.repeat([1, -1], len(sample.sent))
    most = 0
    for window in np.unique(sample.window):
        mine = np.tile(sample.window == window, 2)
        order = np.lexsort((change[mine], times[mine]))
        most = max(most, int(np.cumsum(change[mine][order]).max()))
    seconds = float(sample.block_seconds.sum())
    mean = float((sample.in_flight * sample.block_seconds).sum()) / seconds if seconds > 0 else float(most)
    return most, mean


def open_rate(replica: Replica, limits: Sequence[Limit]) -> float | None:
    """The highest rate of Poisson arrivals, in requests per second, that one replica should serve
    within its limits; None without such a rate.

    At most its cap is in flight. An arrival finds the state of any moment. A wait does not touch a
    limit on TPOT or ITL: such a limit holds at any rate that the replica keeps up with. Limits that
    are not on percentiles are only known to hold without a wait.
    """
    slots, full = replica.cap, float(replica.settings[-1].rate)
    ended = replica.rates(1, slots + BEYOND)
    waits = [limit for limit, _ in replica.limits]
    at_once = any(limit not in waits and not _untouched(limit) for limit in limits)
    most = STEPS if waits else KEPT_UP * STEPS

    def holds(step: int) -> bool:
        rate = step / STEPS * full
        found = birth_death(np.full(len(ended), rate), ended)
        if step > most or found[-1] > RARE or (at_once and found[slots:].sum() > WAITING):
            return False
        return forgives(replica, found, rate, 1)

    best = highest(holds)
    return SPARE * best / STEPS * full if best else None


def _untouched(limit: Limit) -> bool:
    """Whether a wait before the first token leaves the limited metric as it is."""
    return limit.metric == "error_rate" or (limit.of.p is not None and limit.of.quantity in ("tpot", "itl"))


def forgives(replica: Replica, found: Floats, rate: float, replicas: int) -> bool:
    """Whether every limited percentile allows for the late requests. `found` are the shares of
    requests that find 0, 1, ... others in flight, where each replica gets `rate` per second.
    """
    return all(
        _late(replica, limit, spread, found, replicas, rate) <= 1 - (limit.of.p or 0.0)
        for limit, spread in replica.limits
    )


def _late(replica: Replica, limit: Limit, spread: float, found: Floats, replicas: int, rate: float) -> float:
    """The share of requests later than a limit. `found` are the shares of requests that find 0, 1,
    ... others in flight, where each replica gets `rate` per second.
    """
    promise, full, slots = limit.promise / spread, replica.settings[-1], replicas * replica.cap
    if limit.of.quantity == "ttft" and replica.first_tokens is not None:
        bunched = replica.first_tokens.late(promise, rate, replica.cap, replicas)
        late = np.full(len(replica.settings), full.failed + (1 - full.failed) * bunched)
    else:
        late = np.array([s.failed + (1 - s.failed) * s.latencies["e2e"].above(promise) for s in replica.settings])
    each = -(-np.arange(1, min(slots, len(found)) + 1) // replicas)  # in flight on its replica, itself included
    place = np.searchsorted([s.load for s in replica.settings], each)  # never a setting below it
    total = float(found[:slots] @ late[place])
    if len(found) > slots:
        total += float(found[slots:] @ _late_after_wait(full, limit, promise, replicas, len(found) - slots))
    return total


def _late_after_wait(full: MeasuredSetting, limit: Limit, promise: float, replicas: int, queue: int) -> Floats:
    """The share of late requests among those that find all slots taken and 0 .. `queue` - 1 others
    waiting.

    Such a request waits for as many departures of one full replica as it has place in the queue.
    Their gaps are exponential (an Erlang distribution).
    """
    left = promise - full.latencies[limit.of.quantity or ""].quantiles()
    turns = -(-np.arange(1, queue + 1) // replicas)
    tail = np.where(left > 0, _erlang_tails(int(turns[-1]), full.rate * np.maximum(left, 0.0)), 1.0).mean(axis=1)
    late: Floats = full.failed + (1 - full.failed) * tail[turns - 1]
    return late


def _erlang_tails(most: int, x: Floats) -> Floats:
    """The probability that the sum of 1, 2, ... `most` exponential times of mean 1 is longer than
    `x`. It is the chance that a Poisson number, the times ended by then, is smaller.
    """
    ended = np.arange(most)
    log = ended * np.log(np.maximum(x, RARE))[:, None] - np.cumsum(np.log(np.maximum(ended, 1))) - x[:, None]
    tails: Floats = np.minimum(1.0, np.cumsum(np.exp(log), axis=1)).T
    return tails


def highest(holds: Callable[[int], bool]) -> int:
    """The highest number for which something holds that holds up to some number; 0 where it does
    not for 1.
    """
    return least(lambda number: number >= MOST or not holds(number), 1) - 1


def birth_death(asking: Floats, ended: Floats) -> Floats:
    """The share of time with 0, 1, ... requests in flight where these rates of arrivals and of ends
    take it one up and one down.
    """
    log = np.append(0.0, np.cumsum(np.log(asking) - np.log(ended)))
    weight = np.exp(log - log.max())
    share: Floats = weight / weight.sum()
    return share
