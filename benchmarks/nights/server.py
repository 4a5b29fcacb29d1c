"""The server of a night: latencies by a law of the load, what goes wrong by a course of events, and
a backend that plays its trials in virtual time.

A trial is worked out request by request with the rules of pacing and of the window that the client
has over HTTP (`client.load.rules`). The truth of a law is the law itself, drawn many times.
"""

import asyncio
import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from benchmarks.nights.virtual_time import EPOCH, Clock
from frontier.client.load.loop import TrialProgress
from frontier.client.load.rules import StreamStatus, WindowState, next_state, patience
from frontier.config import Config, DeploymentConfig
from frontier.core.model.errors import MeasurementError
from frontier.core.model.loads import POISSON, Rate
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import ClientHealth, Measurement, Outcome, Record, Trial
from frontier.sweep.backend import Backend, Facts, OnRecord, OnTick

SILENT = 120.0
"""Seconds after which a request that nothing comes of is given up, as `timeouts: idle`; sooner once
the window has closed (see `patience`)."""
LOST = 5.0
"""Seconds without a connection after which the server counts as lost."""
FAILING = 30.0
"""Seconds after which a trial in which every request fails is given up."""
BACK_OFF = 1.0
"""Seconds that a stream waits after a failure."""
TRUTH = 10_000
"""Requests from which a truth is drawn."""
MOST_REQUESTS = 200_000
"""Of one trial: more is a fault of what asks for it."""


@dataclass(frozen=True, slots=True)
class Law:
    """Latencies as functions of the load. Seconds.

    Medians of TPOT and TTFT grow from those of one request, by `half` and `power`; above `edge`
    both are `cliff` times as long. Above `seats` requests wait. `noise` and `first_noise` are the
    spreads of a request's TPOT and TTFT (ln), `shared` the spread of what successive requests have
    in common. A share `rare` of requests takes `rare_by` seconds longer to its first token.
    `fails` is the share of requests that the server refuses; at `breaks` and above, it refuses
    all. `silent`: the share of requests that nothing comes of. Of the class `failing_class` half
    the requests fail.
    """

    tpot: float = 0.01
    ttft: float = 0.05
    half: float = 16.0
    power: float = 1.0
    edge: int = 1 << 20
    cliff: float = 1.0
    seats: int = 1 << 20
    noise: float = 0.03
    first_noise: float = 0.2
    shared: float = 0.03
    rare: float = 0.0
    rare_by: float = 0.0
    fails: float = 0.0
    breaks: int = 1 << 20
    silent: float = 0.0
    failing_class: int | None = None


@dataclass(frozen=True, slots=True)
class Course:
    """What changes in a night, in its seconds.

    From `at` on, latencies are `factor` times as long; with a `tail`, only those of this share of
    the requests. In `lost` (from, until) the server is down; in the spans
    `busy` this machine is busy, and its event loop `lag` seconds late.
    """

    at: float = math.inf
    factor: float = 1.0
    tail: float | None = None
    lost: tuple[float, float] | None = None
    busy: tuple[tuple[float, float], ...] = ()
    lag: float = 0.05

    def slower(self, now: float, u: float) -> float:
        """The factor of a request sent now, whose place among all is `u`."""
        return self.factor if now >= self.at and (self.tail is None or u < self.tail) else 1.0

    def down(self, now: float) -> bool:
        return self.lost is not None and self.lost[0] <= now < self.lost[1]


class Requests:
    """Draws the requests of one law and shape."""

    def __init__(self, law: Law, shape: Shape, seed: Any) -> None:
        self.law, self.shape = law, shape
        self.rng = np.random.default_rng(seed)
        self.drawn, self.pool = np.empty((0, 5)), list[list[float]]()
        self.common = 0.0
        self.medians = cache(self._medians)

    def _medians(self, load: float) -> tuple[float, float]:
        """TPOT and TTFT of a request among so many."""
        law, seated = self.law, min(load, self.law.seats)
        grown = (1 + (seated - 1) / law.half) ** law.power * (law.cliff if seated > law.edge else 1.0)
        wait = (load - seated) / seated * (law.ttft + law.tpot * self.shape.osl.mean) * grown
        return law.tpot * grown, law.ttft * grown + max(0.0, wait)

    def draw(self, load: float, isl: float, osl: int) -> tuple[float, float, float]:
        """TTFT and TPOT in seconds, and the request's place among all, of one more request."""
        if not self.pool:
            if not len(self.drawn):
                normal, even = self.rng.standard_normal((4096, 3)), self.rng.random((4096, 2))
                self.drawn = np.concatenate([normal, even], axis=1)
            self.drawn, rows = self.drawn[:-64], self.drawn[-64:]
            self.pool = rows.tolist()  # most trials are short
        a, b, shock, u, v = self.pool.pop()
        law = self.law
        self.common = 0.5 * self.common + math.sqrt(0.75) * law.shared * shock
        tpot, ttft = self.medians(load)
        ttft *= math.exp(self.common + law.first_noise * a) * math.sqrt(isl / self.shape.isl.mean)
        if u < law.rare:
            ttft += law.rare_by
        return ttft, tpot * math.exp(self.common + law.noise * b) * (1 if osl > 1 else 0), v


class _Lengths:
    """The lengths, class and session of the next request of a stream."""

    def __init__(self, shape: Shape, rng: np.random.Generator) -> None:
        self.shape = shape
        self.rng = rng
        self.sessions = 0
        self.of: dict[int, list[Any]] = {}

    def _one(self, lengths: Any) -> int:
        if lengths.kind == "fixed":
            return int(lengths.low)
        if lengths.kind == "uniform":
            return int(self.rng.integers(lengths.low, lengths.high + 1))
        return int(min(lengths.high, max(lengths.low, round(self.rng.normal(lengths.mean, lengths.sd)))))

    def next(self, stream: int) -> dict[str, Any]:
        """Of one more request; `pause` are the seconds of thinking before it."""
        shape = self.shape
        if not shape.mix and shape.session is None:
            return {"isl": self._one(shape.isl), "osl": self._one(shape.osl), "pause": 0.0}
        if not self.of.get(stream):
            self.of[stream] = self._session()
        found: dict[str, Any] = self.of[stream].pop(0)
        return found

    def _session(self) -> list[Any]:
        number, kind, shape = self.sessions, None, self.shape
        self.sessions += 1
        if shape.mix:
            kind = int(self.rng.choice(len(shape.mix), p=np.array([c.share for c in shape.mix])))
            shape = shape.mix[kind].shape
        if shape.session is None:
            one = {"isl": self._one(shape.isl), "osl": self._one(shape.osl), "pause": 0.0}
            return [{**one, "session": number, "turn": 0, "class_index": kind}]
        turns, history = [], 0
        for turn in range(self._one(shape.session.turns)):
            history += self._one(shape.session.added if turn else shape.session.first)
            osl = self._one(shape.osl)
            think = shape.session.think
            pause = float(self.rng.exponential(think)) if turn and think else 0.0
            turns.append({"isl": history, "osl": osl, "pause": pause, "session": number, "turn": turn})
            if kind is not None:
                turns[-1]["class_index"] = kind
            history += osl
        return turns


@dataclass(frozen=True, slots=True)
class Played:
    """A trial as it went, on its own clock: records in the order of sending, and the state of its
    window at its end.
    """

    records: list[Record]
    state: WindowState
    until: float


class _Trial:
    """Works out one trial that begins `at` so many seconds of the night."""

    def __init__(self, trial: Trial, law: Law, course: Course, at: float, seed: Any) -> None:
        self.trial, self.law, self.course, self.at = trial, law, course, at
        self.requests = Requests(law, trial.shape, seed)
        self.lengths = _Lengths(trial.shape, self.requests.rng)
        self.records: list[Record] = []
        self.state = WindowState()
        self.ends: list[tuple[float, int, bool, float]] = []
        self.begun = set[int]()
        self.finished = self.failed = self.sent_in = self.open_of_window = self.succeeded = 0
        self.e2e_sum, self.last_success, self.failing_since, self.waited = 0.0, 0.0, 0.0, 0.0

    def status(self, now: float) -> StreamStatus:
        """How the streams stand."""
        gone = self.failed and not self.succeeded
        since = max(self.last_success, self.failing_since)
        lost = self.course.down(self.at + now) and now + self.at - (self.course.lost or (0,))[0] >= LOST
        return StreamStatus(
            now,
            begun=len(self.begun),
            finished=self.finished,
            failed=self.failed,
            window_sent=self.sent_in,
            waiting=self.open_of_window > 0,
            succeeded=self.succeeded,
            e2e_sum=self.e2e_sum,
            early_e2e=self.e2e_sum / self.succeeded if self.succeeded else 0.0,
            lost=lost,
            failing=since if gone and self.failed >= 20 and now - since >= FAILING else None,
        )

    def send(self, now: float, stream: int, load: float, scheduled: float | None = None) -> float:
        """Send one request. Returns when its stream is free."""
        what, law, index = self.lengths.next(stream), self.law, len(self.records)
        now += what["pause"] if scheduled is None else 0.0
        ttft, tpot, u = self.requests.draw(load, what["isl"], what["osl"])
        slower = self.course.slower(self.at + now, u)
        first, last = now + ttft * slower, now + (ttft + tpot * (what["osl"] - 1)) * slower
        chance = self.requests.rng.random()
        known: dict[str, Any] = {k: v for k, v in what.items() if k in ("session", "turn", "class_index")}
        base = {"index": index, "stream": stream, "sent": now, "scheduled": scheduled, "connection": index, **known}
        base |= {"asked_isl": what["isl"], "asked_osl": what["osl"]}
        refused = chance < law.fails or load >= law.breaks
        refused = refused or (
            law.failing_class is not None and what.get("class_index") == law.failing_class and u < 0.5
        )
        free = 0.0
        if self.course.down(self.at + now):
            record = Record(outcome=Outcome.CONNECT, end=now + 0.001, error="connection refused", **base)
            free = BACK_OFF
        elif self.course.down(self.at + last):
            cut = (self.course.lost or (0.0,))[0] - self.at
            record = Record(outcome=Outcome.TRUNCATED, end=max(now, cut), error="the connection was closed", **base)
            free = BACK_OFF
        elif refused:
            record = Record(
                outcome=Outcome.HTTP_ERROR, end=now + 0.02, status=503, error="HTTP 503: overloaded", **base
            )
            free = BACK_OFF
        elif chance < law.fails + law.silent:
            silent = Record(outcome=Outcome.TIMEOUT, end=now + SILENT, error="no byte for 2 min", status=200, **base)
            record, free = self.given_up(silent), BACK_OFF
        else:
            step = max(1, round(tpot * slower * 1e6))
            record = Record(
                outcome=Outcome.OK,
                end=last,
                first=first,
                visible=first,
                last=last,
                prompt_tokens=what["isl"],
                completion_tokens=what["osl"],
                cached_tokens=0,
                events=what["osl"],
                reads=what["osl"],
                text_bytes=5 * what["osl"],
                text_chars=5 * what["osl"],
                finish_reason="length",
                status=200,
                gaps=tuple(step + (i % 3 - 1) * (step // 20) for i in range(what["osl"] - 1)),
                **base,
            )
        self.records.append(record)
        start, end = self.state.start, self.state.end
        counts = start is not None and start <= now <= (math.inf if end is None else end)
        self.sent_in += counts
        self.open_of_window += counts
        heapq.heappush(self.ends, (record.end, index, counts, free))
        return record.end + free

    def end_one(self) -> tuple[float, int, float]:
        """Take in the request that ends next: when, its stream, and the pause that follows."""
        end, index, counts, free = heapq.heappop(self.ends)
        record = self.records[index]
        self.finished += 1
        self.begun.add(record.stream)
        self.open_of_window -= counts
        if record.outcome is Outcome.OK:
            self.succeeded += 1
            self.e2e_sum += record.end - record.sent
            self.last_success = end
            self.waited = max(self.waited, (record.first or end) - record.sent, max(record.gaps, default=0) / 1e6)
        else:
            self.failed += 1
        return end, record.stream, free

    def rule(self, now: float) -> bool:
        """Follow the rules of the window; whether the trial is over."""
        before, self.state = self.state, next_state(self.trial, self.state, self.status(now))
        if before.end is None and self.state.end is not None:
            self.records = [self.given_up(r) if r.outcome is Outcome.TIMEOUT else r for r in self.records]
            self.ends = [(self.records[i].end, i, counts, free) for _, i, counts, free in self.ends]
            heapq.heapify(self.ends)
        return self.state.over

    def given_up(self, silent: Record) -> Record:
        """A request that nothing comes of. Once the window has closed, the client waits no longer
        for it than is plausible by the answers that came.
        """
        closed, allowed = self.state.end, patience(self.waited)
        if closed is None or not self.succeeded or silent.end <= (end := max(closed, silent.sent + allowed)):
            return silent
        return replace(silent, end=end, error=f"silent for {allowed:.3g} s, and the window had closed")

    def closed(self) -> Played:
        """A closed loop."""
        streams = self.trial.streams
        tpot, ttft = self.requests.medians(streams)
        e2e = ttft + tpot * self.trial.shape.osl.mean
        free = [(e2e * k / streams, k) for k in range(streams)]
        heapq.heapify(free)
        now = 0.0
        while len(self.records) < MOST_REQUESTS:
            if free and (not self.ends or free[0][0] <= self.ends[0][0]):
                now, stream = heapq.heappop(free)
                self.send(now, stream, streams)
            else:
                now, stream, pause = self.end_one()
                heapq.heappush(free, (now + pause, stream))
            if self.rule(now):
                return self.over(now)
        raise RuntimeError(f"{self.trial.key}: {MOST_REQUESTS} requests, and no end")

    def open(self) -> Played:
        """Arrivals at a rate, at most so many in flight."""
        trial, cap = self.trial, self.trial.streams
        assert trial.load.per_second is not None
        arrivals = (trial.shape.arrivals or POISSON).times(trial.load.per_second, trial.seed)
        due, waiting, slots = next(arrivals), list[float](), list(range(cap))
        heapq.heapify(slots)
        while len(self.records) < MOST_REQUESTS:
            if not self.ends or due <= self.ends[0][0]:
                now = due
                waiting.append(due)
                due = next(arrivals)
            else:
                now, stream, _ = self.end_one()
                heapq.heappush(slots, stream)
            while waiting and slots:
                self.send(now, heapq.heappop(slots), cap - len(slots), waiting.pop(0))
            if self.rule(now):
                return self.over(now)
        raise RuntimeError(f"{trial.key}: {MOST_REQUESTS} requests, and no end")

    def over(self, now: float) -> Played:
        return Played([_cut(record, now) for record in self.records], self.state, now)


def _cut(record: Record, now: float) -> Record:
    """The record as it is where the trial ends now."""
    if record.end <= now:
        return record
    return replace(record, outcome=Outcome.CANCELLED, end=now, error=None, **_unseen(record, now))


def _unseen(record: Record, now: float) -> dict[str, Any]:
    """What is not yet known of a request that is cut off now."""
    seen = record.first is not None and record.first <= now
    return {
        "first": record.first if seen else None,
        "visible": record.first if seen else None,
        "last": record.first if seen else None,
        "prompt_tokens": None,
        "completion_tokens": None,
        "cached_tokens": None,
        "events": int(seen),
        "reads": int(seen),
        "text_bytes": 5 * seen,
        "text_chars": 5 * seen,
        "finish_reason": None,
        "gaps": (),
    }


def played(trial: Trial, law: Law, course: Course, at: float, seed: Any) -> Played:
    """A trial that begins `at` so many seconds of the night, to its end."""
    one = _Trial(trial, law, course, at, seed)
    return one.open() if trial.load.is_open else one.closed()


@dataclass(slots=True)
class Server:
    """The servers of a night, by deployment, and what was asked of them. `seed` is the night's."""

    laws: Mapping[str, Law]
    course: Course
    seed: int
    clock: Clock
    trials: int = 0
    on_tick: Callable[[], None] = lambda: None

    def backend(self, config: Config, *_: object) -> "NightBackend":
        """What a command gets in place of servers over HTTP."""
        return NightBackend(config, self)


class NightBackend(Backend):
    """Trials in virtual time: ticks, stops and lost servers come as over HTTP."""

    def __init__(self, config: Config, server: Server) -> None:
        self.config, self.server = config, server

    async def prepare(self, deployment: DeploymentConfig) -> Facts:
        await asyncio.sleep(0.2)
        if self.server.course.down(self.server.clock.now):
            raise MeasurementError("nothing answers at http://127.0.0.1:9/v1", "start the server")
        return Facts(deployment.name, "virtual", "m", "virtual")

    async def run(
        self, trial: Trial, *, expected_e2e: float | None, on_record: OnRecord, on_tick: OnTick, stop: asyncio.Event
    ) -> Measurement:
        del expected_e2e
        server, at = self.server, self.server.clock.now
        server.trials += 1
        law = server.laws[trial.deployment]
        run = played(trial, law, server.course, at, [server.seed, server.trials])
        waiting = sorted(run.records, key=lambda record: record.end)
        ticks, done = max(1, min(20, int(run.until))), 0
        for tick in range(ticks):
            await asyncio.sleep(run.until / ticks)
            now = run.until * (tick + 1) / ticks
            while (
                done < len(waiting)
                and waiting[done].end <= now + 1e-9
                and waiting[done].outcome is not Outcome.CANCELLED
            ):
                on_record(waiting[done])
                done += 1
            server.on_tick()
            await asyncio.sleep(0)
            if stop.is_set():
                return self._stopped(trial, run, at, now, waiting[done:], on_record)
            on_tick(_progress(run, now, done, trial))
        for record in waiting[done:]:
            on_record(record)
        state = run.state
        assert state.start is not None
        assert state.end is not None
        assert state.ended is not None
        return self._measurement(trial, at, state)

    def _stopped(
        self, trial: Trial, run: Played, at: float, now: float, left: list[Record], on_record: OnRecord
    ) -> Measurement:
        for record in left:
            if record.sent < now:
                on_record(_cut(record, now))
        begun = run.state.start is not None and run.state.start <= now
        state = WindowState(start=run.state.start if begun else now).cut_short(now, "interrupted")
        if run.state.end is not None and run.state.end <= now:
            state = replace(state, end=run.state.end)
        return self._measurement(trial, at, state)

    def _measurement(self, trial: Trial, at: float, state: WindowState) -> Measurement:
        from frontier.core.model.trials import Window

        assert state.start is not None
        assert state.end is not None
        assert state.ended is not None
        window = Window(state.start, state.end)
        busy = any(a < at + window.end and at + window.start < b for a, b in self.server.course.busy)
        health = ClientHealth(0.0004, 0.0008, 0.12, 0.001)
        if busy:
            health = replace(health, loop_lag_p99=self.server.course.lag, send_late_p99=0.6 * self.server.course.lag)
        epoch = EPOCH + self.server.clock.shift + at
        return Measurement(trial, epoch, window, state.ended, health, {}, "virtual")


def _progress(run: Played, now: float, done: int, trial: Trial) -> TrialProgress:
    state = run.state
    stage = "window" if state.start is not None and state.start <= now else "warmup"
    return TrialProgress(stage, now, trial.streams, done, 0)


# --- the truth


@lru_cache(maxsize=4096)
def truth(law: Law, shape: Shape, load: int, factor: float = 1.0) -> Mapping[str, float]:
    """The percentiles of a law in the long run, by metric; failures are infinite. `load` is a
    number of requests in flight.
    """
    assert not isinstance(load, Rate)
    requests, lengths = Requests(law, shape, 1), _Lengths(shape, np.random.default_rng(2))
    rows = []
    for k in range(TRUTH):
        what = lengths.next(k % load)
        ttft, tpot, u = requests.draw(load, what["isl"], what["osl"])
        chance = requests.rng.random()
        gone = load >= law.breaks or chance < law.fails + law.silent
        gone = gone or (law.failing_class is not None and what.get("class_index") == law.failing_class and u < 0.5)
        scale = math.inf if gone else factor
        rows.append(
            (ttft * scale, tpot * scale if what["osl"] > 1 else math.nan, (ttft + tpot * (what["osl"] - 1)) * scale)
        )
    found = {}
    for name, column in zip(("ttft", "tpot", "e2e"), np.array(rows).T, strict=True):
        known = column[~np.isnan(column)]
        for p in (50, 90, 95, 99):
            found[f"p{p}_{name}"] = (
                float(np.quantile(known, p / 100, method="inverted_cdf")) if len(known) else math.nan
            )
    found["error_rate"] = float(np.mean([math.isinf(row[2]) for row in rows]))
    return found
