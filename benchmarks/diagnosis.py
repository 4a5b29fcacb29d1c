"""How often the diagnosis is right: the embedded engine configured to bind on each resource in
turn.

    python -m benchmarks.diagnosis --results diagnosis.jsonl   # 4 minutes of CPU; goes on
    python -m benchmarks.diagnosis --results diagnosis.jsonl --tables

The figures are in docs/validation/how-often-right.md.

There are two draws of cases, which have nothing in common. Of the first come the probabilities that
the diagnosis states; the second, which no rule was made on, tests them.

A case is made of its draw and its number: an engine, lengths, what stands before the engine
(network, proxy, gateway, front end) and a load client, one or two of them made scarce. It is run in
virtual time at four concurrencies. The diagnosis sees what it would see of a real server: the
client's stamps in records, and the text of `/metrics` under an engine's names, read once a second
by the same parser; some cases leave metrics out. It never sees the configuration.

What truly binds is found by changing it: each resource in turn is made twice as plentiful (a
latency half), and the one that shortens the latency at issue most is what binds. A case counts only
if that is what was made scarce.
"""

import argparse
import heapq
import itertools
import json
import math
import random
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np

from frontier.client.ask.evidence import parse_metrics
from frontier.client.ask.facts import Readings, window_facts
from frontier.core.estimates import estimate
from frontier.core.model.loads import Concurrency
from frontier.core.model.points import Point
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import ClientHealth, Measurement, Outcome, Phase, Record, Trial, Window
from frontier.core.stats.intervals import clopper_pearson
from frontier.core.window.from_records import window_data
from frontier.core.window.time_breakdown import time_breakdown
from frontier.core.window.window import WindowData
from frontier.extras.diagnose.diagnosis import SECOND, SettingDiagnosis, diagnose_setting
from frontier.extras.diagnose.remedies import Resource
from frontier.extras.diagnose.signs import signs_of
from frontier.simulator.engine import Scheduler
from frontier.simulator.http.messages import metrics_text
from frontier.simulator.http.realtime import LiveEngine
from frontier.simulator.spec import EngineSpec
from tests.kit.virtual_truth import expected_e2e

METRICS = ("request_throughput", "mean_e2e", "mean_ttft", "mean_tpot")
FULL_CLOCK = 1.98e3
"""SM clock in MHz of an engine that is not throttled."""
BETTER = 0.15
"""Logarithm by which making the planted resource plentiful must shorten the latency at issue."""
LEADS = 0.7
"""Of the planted resource's effect: no other may have so much."""
BOTH = 0.4
"""Of the first's effect, that of the second where two are planted."""
MOVES = 0.05
"""Share by which throughput must rise, or the latency at issue fall, for an advice to have moved
the frontier."""
LITTLE = 0.04
"""Share of a latency, or of the engine's time, that cannot be what binds."""
MOST_OK = 0.97
"""Share of requests that a rate limit or an overloaded server lets through at most."""
MOST_STEPS = 60_000
SHORT = 0.35
"""Share of deployments with long prompts and short answers: there few requests run, and steadily,
below any cap."""
LONG_PROMPTS, SHORT_ANSWERS = (1536, 2048, 2560, 4096, 6000, 8192), (4, 8, 12, 16, 24)
STATING, TESTING = "draw", "test"
"""The two draws."""
CASES = 200
"""Of each draw."""
EVIDENCE = {
    "shows outside of the server": ("outside",),
    "one resource leads": ("clear",),
    "two are close, or metrics are missing": ("shared", "partial"),
}
"""What the evidence of a diagnosis rests on; two that are seldom are counted together."""


@dataclass(frozen=True, slots=True)
class World:
    """A deployment and all that stands before it. Seconds; None: no such limit.

    Lengths differ by the share `spread` up and down; 0: all are equal, as those of a shape 4096/8.
    `slots` is how many requests a proxy lets through at once, `limit` a gateway's requests per
    second, `queue` how many may wait in the server before it refuses with 503. The front end takes
    `front_end` for a request, one after the other, the client `client` for each chunk. From the
    concurrency `hot` on the clock is the share `clock` of its full.
    """

    spec: EngineSpec
    isl: int
    osl: int
    grid: tuple[int, ...]
    focus: str
    spread: float = 0.3
    rtt: float = 0.5e-3
    slots: int | None = None
    limit: float | None = None
    queue: int | None = None
    front_end: float = 1e-3
    client: float = 15e-6
    clock: float = 1.0
    hot: int = 1
    exporter: bool = True

    @property
    def top(self) -> int:
        """The setting that is diagnosed."""
        return self.grid[-1]


# --- one setting in virtual time


class _Run:
    """One trial of a closed loop through gateway, proxy, front end and engine."""

    def __init__(self, world: World, c: int, seed: int, missing: str = "") -> None:
        self.world, self.c, self.missing = world, c, missing
        self.clock = world.clock if c >= world.hot else 1.0
        own = replace(world.spec, time_scale=1 / self.clock, ingest=world.spec.ingest * self.clock, seed=seed)
        self.engine = Scheduler(own)
        self.rng = random.Random(seed)
        self.events: list[tuple[float, int, str, int]] = []
        self.order = itertools.count()
        self.records: list[dict[str, Any]] = []
        self.inside = 0
        self.owed: set[int] = set()
        self.before_proxy: deque[int] = deque()
        self.front_free = self.bucket_at = 0.0
        self.bucket = 1.0
        self.readings = Readings("metrics")
        guess = expected_e2e(world.spec, Shape.of(world.isl, world.osl), c)
        for stream in range(c):
            self.at(self.rng.random() * guess, "send", stream)

    def at(self, when: float, kind: str, number: int) -> None:
        heapq.heappush(self.events, (when, next(self.order), kind, number))

    def _length(self, mean: int) -> int:
        spread = self.world.spread
        return max(2, round(mean * self.rng.uniform(1 - spread, 1 + spread)))

    def handle(self, when: float, kind: str, number: int) -> None:
        """A stream sends; a request reaches the gateway, the proxy's other side, the scheduler."""
        world = self.world
        if kind == "send":
            self.records.append(
                {
                    "index": len(self.records),
                    "stream": number,
                    "sent": when,
                    "asked_isl": self._length(world.isl),
                    "asked_osl": self._length(world.osl),
                }
            )
            self.at(when + world.rtt / 2, "gate", len(self.records) - 1)
        elif kind == "gate":
            if not self._admitted(when):
                self._refuse(number, when, 429)
            elif world.slots is not None and self.inside >= world.slots:
                self.before_proxy.append(number)
            else:
                self._enter(number, when)
        else:
            record = self.records[number]
            self.engine.submit(
                number, record["asked_isl"], record["asked_osl"], received=record["received"], arrived=when
            )

    def _admitted(self, when: float) -> bool:
        """The gateway's token bucket, one second deep."""
        limit = self.world.limit
        if limit is None:
            return True
        self.bucket = min(max(1.0, limit), self.bucket + (when - self.bucket_at) * limit)
        self.bucket_at = when
        if self.bucket < 1:
            return False
        self.bucket -= 1
        return True

    def _enter(self, number: int, when: float) -> None:
        world = self.world
        if world.queue is not None and self.engine.waiting >= world.queue:
            self._refuse(number, when, 503)
            return
        self.inside += 1
        self.records[number]["received"] = when
        self.front_free = max(when, self.front_free) + world.front_end
        self.at(self.front_free + world.spec.ingest, "engine", number)

    def _refuse(self, number: int, when: float, status: int) -> None:
        end = when + self.world.rtt / 2
        self.owed.discard(number)
        self.records[number] |= {"outcome": Outcome.HTTP_ERROR, "status": status, "end": end}
        self.at(end + 0.25, "send", self.records[number]["stream"])

    def run(self, requests: int) -> tuple[list[Record], Measurement]:
        """Until all requests of the window have ended."""
        world, c = self.world, self.c
        now, start, end = 0.0, math.inf, math.inf
        done, backlog, opened_at, cpu = 0, 0.0, 0, 0.0
        lags: list[float] = []
        read_at = math.inf
        for _ in range(MOST_STEPS):
            while self.events and self.events[0][0] <= now:
                when, _, kind, number = heapq.heappop(self.events)
                self.handle(when, kind, number)
            step = self.engine.step(now)
            if step is None:
                backlog = max(0.0, backlog - (self.events[0][0] - now))
                now = self.events[0][0]
                continue
            backlog = max(0.0, backlog - step.duration)
            work = len(step.tokens) * world.client
            now, backlog = step.end, backlog + work
            cpu += work
            seen = now + world.rtt / 2 + backlog
            for name in step.first:
                self.records[name].setdefault("first", seen)
            for name in step.finished:
                record = self.records[name]
                record |= {"outcome": Outcome.OK, "status": 200, "end": seen, "last": seen}
                done += 1
                self.owed.discard(name)
                self.inside -= 1
                self.at(seen + self.rng.random() * step.duration, "send", record["stream"])
                if self.before_proxy:
                    self._enter(self.before_proxy.popleft(), now)
            if start == math.inf and done >= 2 * c:
                start, read_at, opened_at, cpu = now - step.duration / 2, now, len(self.records), 0.0
            elif start < math.inf and end == math.inf:
                lags.append(backlog)
                if len(self.records) - opened_at >= requests and now - start >= 8.0:
                    end, read_at = step.start, now  # all that was sent until then is known
                    sent = (r for r in self.records if start <= r["sent"] <= end and "outcome" not in r)
                    self.owed = {r["index"] for r in sent}
            if now >= read_at:
                read_at = math.inf if end < math.inf else read_at + 1.0
                self._read(now)
            if end < math.inf and not self.owed:
                break
        busy = min(1.0, cpu / (end - start)) if end < math.inf else 1.0
        late = float(np.quantile(lags, 0.99)) if lags else 0.0
        health = ClientHealth(loop_lag_p99=late, send_late_p99=late, cpu_share=busy)
        trial = Trial("d", Shape.of(world.isl, world.osl), c, 1, Phase.GRID, requests, 1, 0.0, 0.0, 1e6, "f")
        readings = self.readings.stored()
        window = Window(start, min(end, now))
        measured = Measurement(trial, 0.0, window, "requests", health, window_facts(readings), readings=readings)
        return [self._record(r, now) for r in self.records], measured

    def _record(self, record: Mapping[str, Any], now: float) -> Record:
        answered = record.get("outcome") is Outcome.OK
        kept = {name: value for name, value in record.items() if name != "received"}
        tokens = record["asked_osl"] if answered else None
        cancelled = {} if "outcome" in record else {"outcome": Outcome.CANCELLED, "end": max(now, record["sent"])}
        return Record(
            **(kept | cancelled),
            prompt_tokens=record["asked_isl"] if answered else None,
            completion_tokens=tokens,
            events=tokens or 0,
            reads=tokens or 0,
        )

    def _read(self, now: float) -> None:
        """What a scrape says now, in the text of the format, as the client reads it."""
        if self.missing == UNREAD:
            return
        engine = cast("LiveEngine", SimpleNamespace(scheduler=self.engine, waiting=self.engine.waiting))
        texts = [served(metrics_text(engine, "m").decode(), self.missing)]
        if self.world.exporter and self.missing != "clock":
            mhz = FULL_CLOCK * self.clock * self.rng.uniform(0.985, 1.0)
            texts.append(f'DCGM_FI_DEV_SM_CLOCK{{gpu="0"}} {mhz:.0f}\nDCGM_FI_DEV_POWER_USAGE{{gpu="0"}} 610\n')
        samples = parse_metrics(*(text.encode() for text in texts))
        if self.missing != "all" or self.world.exporter:
            self.readings.add(samples, now, last=True)


_NAMES = {
    "sglang": {
        "num_requests_running": "sglang:num_running_reqs",
        "num_requests_waiting": "sglang:num_queue_reqs",
        "kv_cache_usage_perc": "sglang:token_usage",
        "num_preemptions_total": "sglang:num_retracted_requests_total",
        "generation_tokens_total": "sglang:generation_tokens_total",
        "prompt_tokens_total": "sglang:prompt_tokens_total",
        "time_to_first_token_seconds": "sglang:time_to_first_token_seconds",
        "e2e_request_latency_seconds": "sglang:e2e_request_latency_seconds",
        "request_queue_time_seconds": "sglang:queue_time_seconds",
        "request_prefill_time_seconds": "sglang:per_stage_req_latency_seconds",
    },
    "tgi": {
        "num_requests_running": "tgi_batch_current_size",
        "num_requests_waiting": "tgi_queue_size",
        "request_queue_time_seconds": "tgi_request_queue_duration",
        "request_inference_time_seconds": "tgi_request_inference_duration",
        "e2e_request_latency_seconds": "tgi_request_duration",
    },
    "llamacpp": {
        "num_requests_running": "llamacpp:requests_processing",
        "num_requests_waiting": "llamacpp:requests_deferred",
        "generation_tokens_total": "llamacpp:tokens_predicted_total",
        "prompt_tokens_total": "llamacpp:prompt_tokens_total",
    },
}
"""What other engines call the metrics that they have."""
_LEFT_OUT = {
    "times": "_seconds",
    "gauges": "num_requests_|kv_cache_usage",
    "steps": "iteration_tokens",
    "kv": "kv_cache|preempt",
    "ttft": "time_to_first_token",
}
"""Parts of a vLLM's metrics that are not read, as a gateway or an old version leaves them out."""
MISSING = ("all", "clock", *_LEFT_OUT, *_NAMES)
UNREAD = "unread"
"""Nothing is read: of a trial whose latencies alone are wanted."""


def served(text: str, missing: str) -> str:
    """The metrics of a vLLM without what is missing, or under another engine's names."""
    if missing == "all":
        return ""
    if missing in _LEFT_OUT:
        return "".join(line for line in text.splitlines(True) if not re.search(_LEFT_OUT[missing], line))
    if missing not in _NAMES:
        return text
    lines = []
    for line in text.splitlines():
        for ours, theirs in _NAMES[missing].items():
            head = re.match(rf"vllm:{ours}(_sum|_count)?\{{", line)
            if head:
                stage = 'stage="prefill_forward",' if "per_stage" in theirs else ""
                lines.append(f"{theirs}{head[1] or ''}{{{stage}{line[head.end() :]}")
    return "\n".join(lines) + "\n"


def measured(world: World, c: int, seed: int, missing: str = "") -> tuple[Point, WindowData]:
    """One setting as it is read back."""
    records, measurement = _Run(world, c, seed, missing).run(
        max(80 if missing == UNREAD else 160 if c == world.top else 12, 3 * c)
    )
    sample = window_data(measurement, records)
    return replace(estimate.point(sample, names=METRICS), time=time_breakdown(sample.server)), sample


# --- worlds


def plain(rng: random.Random) -> World:
    """A deployment where nothing in particular is scarce."""
    spec = EngineSpec(
        step_base=rng.uniform(5e-3, 12e-3),
        per_decode=rng.uniform(10e-6, 40e-6),
        per_prefill_token=rng.uniform(10e-6, 30e-6),
        per_context_token=rng.uniform(20e-9, 80e-9),
        max_num_seqs=rng.choice((128, 256)),
        max_batched_tokens=rng.choice((2048, 4096, 8192)),
        kv_tokens=3_000_000,
        noise=0.03,
    )
    top = rng.choice((12, 16, 24, 32, 48, 64, 96, 128))
    isl, osl = rng.choice((128, 256, 512, 1024)), rng.choice((48, 96, 128, 192))
    if rng.random() < SHORT:
        isl, osl = rng.choice((256, 512, *LONG_PROMPTS)), rng.choice(SHORT_ANSWERS)
    world = World(spec, isl, osl, (1, max(2, top // 4), top // 2, top), rng.choice(("ttft", "e2e", "tpot")))
    return replace(
        world,
        spread=rng.choice((0.0, 0.3)),
        rtt=rng.uniform(0.2e-3, 3e-3),
        front_end=rng.uniform(0.3e-3, 2e-3),
        exporter=rng.random() < 0.6,
    )


def scarce(world: World, resource: Resource, rng: random.Random) -> World:
    """The deployment with one resource made scarce."""
    spec, top = world.spec, world.top
    guess = expected_e2e(spec, Shape.of(world.isl, world.osl), top)
    match resource:
        case Resource.PREFILL:
            spec = replace(
                spec, per_prefill_token=rng.uniform(20e-6, 90e-6), max_batched_tokens=rng.choice((2048, 4096, 8192))
            )
            return replace(world, spec=spec, isl=rng.choice(LONG_PROMPTS), osl=rng.choice((*SHORT_ANSWERS, 32, 64, 96)))
        case Resource.DECODE:
            spec = replace(
                spec,
                step_base=rng.uniform(8e-3, 20e-3),
                per_decode=rng.uniform(60e-6, 200e-6),
                per_context_token=rng.uniform(100e-9, 300e-9),
            )
            return replace(world, spec=spec, osl=rng.choice((128, 256, 384)), isl=rng.choice((64, 128, 512, 1024)))
        case Resource.KV:
            most = round(1.3 * (world.isl + world.osl))
            tokens = max(2 * most, round(top * (world.isl + world.osl) * rng.uniform(0.3, 0.6)))
            return replace(world, spec=replace(spec, kv_tokens=tokens))
        case Resource.BATCH:
            return replace(world, spec=replace(spec, max_num_seqs=max(2, round(top * rng.uniform(0.25, 0.6)))))
        case Resource.BUDGET:
            budget = max(rng.choice((128, 192, 256, 384, 512)), 2 * top)
            spec = replace(
                spec,
                max_batched_tokens=budget,
                max_num_seqs=min(spec.max_num_seqs, budget),
                step_base=rng.uniform(10e-3, 25e-3),
                per_prefill_token=rng.uniform(4e-6, 15e-6),
            )
            return replace(world, spec=spec, isl=rng.choice((1024, 2048, 4096)), osl=rng.choice((8, 16, 32, 64, 128)))
        case Resource.FRONT_END:
            return replace(world, front_end=rng.uniform(0.8, 2.0) * guess / top)
        case Resource.NETWORK if rng.random() < 0.5:
            return replace(world, rtt=rng.uniform(0.1, 0.35))
        case Resource.NETWORK:
            return replace(world, slots=max(1, round(top * rng.uniform(0.3, 0.6))))
        case Resource.CLIENT:
            return replace(world, client=rng.uniform(0.9, 1.6) * guess / (top * world.osl))
        case Resource.CLOCKS:
            return replace(world, clock=rng.uniform(0.5, 0.8), hot=world.grid[rng.choice((1, 2, 3))], exporter=True)
        case Resource.RATE_LIMIT:
            return replace(world, limit=rng.uniform(0.3, 0.7) * top / guess)
        case Resource.OVERLOAD:
            cap = max(2, round(top * rng.uniform(0.3, 0.5)))
            return replace(
                world, spec=replace(spec, max_num_seqs=cap), queue=max(1, round(top * rng.uniform(0.1, 0.3)))
            )


def relieved(world: World, resource: Resource) -> World:
    """The deployment with twice as much of one resource."""
    spec = world.spec
    match resource:
        case Resource.PREFILL:
            return replace(world, spec=replace(spec, per_prefill_token=spec.per_prefill_token / 2))
        case Resource.DECODE:
            prices = {name: getattr(spec, name) / 2 for name in ("step_base", "per_decode", "per_context_token")}
            return replace(world, spec=replace(spec, **prices))
        case Resource.KV:
            return replace(world, spec=replace(spec, kv_tokens=2 * (spec.kv_tokens or 0)))
        case Resource.BATCH:
            seqs = 2 * spec.max_num_seqs
            return replace(
                world, spec=replace(spec, max_num_seqs=seqs, max_batched_tokens=max(seqs, spec.max_batched_tokens))
            )
        case Resource.BUDGET:
            return replace(world, spec=replace(spec, max_batched_tokens=2 * spec.max_batched_tokens))
        case Resource.FRONT_END:
            return replace(world, front_end=world.front_end / 2)
        case Resource.NETWORK:
            return replace(world, rtt=world.rtt / 10, slots=world.slots and 2 * world.slots)
        case Resource.CLIENT:
            return replace(world, client=world.client / 4)
        case Resource.CLOCKS:
            return replace(world, clock=1.0)
        case Resource.RATE_LIMIT:
            return replace(world, limit=None)
        case Resource.OVERLOAD:
            return replace(world, queue=world.queue, grid=(*world.grid[:-1], max(1, world.top // 2)))


# --- cases

PAIRS = (
    (Resource.FRONT_END, Resource.NETWORK),
    (Resource.BATCH, Resource.FRONT_END),
    (Resource.KV, Resource.FRONT_END),
    (Resource.CLOCKS, Resource.DECODE),
    (Resource.CLOCKS, Resource.KV),
    (Resource.PREFILL, Resource.NETWORK),
    (Resource.BATCH, Resource.NETWORK),
    (Resource.DECODE, Resource.BATCH),
    (Resource.BUDGET, Resource.DECODE),
    (Resource.RATE_LIMIT, Resource.DECODE),
    (Resource.CLIENT, Resource.BATCH),
    (Resource.PREFILL, Resource.FRONT_END),
)
_BESIDE = (Resource.CLIENT, Resource.RATE_LIMIT, Resource.OVERLOAD)
"""Resources whose shortage shows by itself: what else would help is not asked."""
_OFTEN = (
    Resource.DECODE,
    Resource.BATCH,
    Resource.KV,
    Resource.PREFILL,
    Resource.BUDGET,
    Resource.FRONT_END,
    Resource.NETWORK,
    Resource.CLOCKS,
)
"""The order in which others are asked for their effect: those that often have one first."""


class Effect(NamedTuple):
    """What twice as much of a resource does: the logarithm by which it shortens the latency at
    issue, and that by which it raises the throughput."""

    shorter: float
    more: float


@dataclass(frozen=True, slots=True)
class Case:
    """What binds in truth, and all that the diagnosis sees."""

    drawn: str
    number: int
    kind: str
    planted: tuple[Resource, ...]
    missing: str
    world: World
    points: tuple[Point, ...]
    samples: Mapping[int, WindowData]
    unchanged: WindowData
    effects: Mapping[Resource, Effect]

    @property
    def seed(self) -> int:
        """The seed of its engine and its client."""
        return seed_of(self.drawn, self.number)


def seed_of(drawn: str, number: int) -> int:
    """The seed of a case of a draw."""
    return number if drawn == STATING else 10_000 + number


def latency(sample: WindowData, focus: str) -> float:
    """Mean of the latency at issue, over the requests that succeeded, in proportion to their
    share.
    """
    values = getattr(sample, focus)
    finite = values[np.isfinite(values)]
    return float(finite.mean()) / max(0.01, float(sample.ok.mean())) ** 3 if len(finite) else math.inf


def effect(world: World, resource: Resource, unchanged: WindowData, seed: int) -> Effect:
    """The effect of a resource, measured; none for what cannot matter much."""
    better, before = relieved(world, resource), latency(unchanged, world.focus)
    rate = float(unchanged.block_finished.sum() / unchanged.block_seconds.sum())
    plenty = {
        Resource.CLOCKS: world.clock == 1.0,
        Resource.NETWORK: world.slots is None and 2 * world.rtt < LITTLE * before,
        Resource.FRONT_END: rate * world.front_end < 0.2 and 2 * world.front_end < LITTLE * before,
        Resource.PREFILL: rate * world.isl * world.spec.per_prefill_token < LITTLE,
        Resource.BATCH: world.spec.max_num_seqs >= world.top,
        Resource.KV: (world.spec.kv_tokens or 0) >= 1.5 * world.top * (world.isl + world.osl),
    }
    if plenty.get(resource):
        return Effect(0.0, 0.0)
    _, sample = measured(better, better.top, seed, UNREAD)
    rates = [max(1e-9, float(s.block_output_tokens.sum() / s.block_seconds.sum())) for s in (unchanged, sample)]
    return Effect(math.log(before / latency(sample, world.focus)), math.log(rates[1] / rates[0]))


def binding(world: World, planted: Sequence[Resource], unchanged: WindowData, seed: int) -> dict[Resource, Effect]:
    """The effects of the resources, if those that were made scarce are what binds; else nothing."""
    effects = {r: effect(world, r, unchanged, seed) for r in planted}
    if planted[0] in (Resource.RATE_LIMIT, Resource.OVERLOAD):
        return effects if unchanged.ok.mean() <= MOST_OK else {}
    best = max(e.shorter for e in effects.values())
    if best < BETTER or any(e.shorter < BOTH * best for e in effects.values()):
        return {}
    if planted[0] is not Resource.CLIENT:
        for other in sorted(set(Resource) - {*_BESIDE, *planted}, key=_OFTEN.index):
            effects[other] = effect(world, other, unchanged, seed)
            if effects[other].shorter > LEADS * best:
                return {}
    return effects


def draw(number: int, drawn: str = STATING) -> Case:
    """The case of a number in a draw: drawn until what was made scarce is what binds."""
    seed = seed_of(drawn, number)
    kind = "two" if number % 20 in (5, 12, 18) else "missing" if number % 20 in (3, 9, 15) else "one"
    every = tuple(Resource)
    for attempt in itertools.count():
        rng = random.Random(f"{drawn} {number}, {attempt}")
        planted = (every[(number + number // 20) % len(every)],)
        if kind == "two":
            planted = PAIRS[(number % 20 // 6 + 3 * (number // 20)) % len(PAIRS)] if attempt < 8 else rng.choice(PAIRS)
        world = plain(rng)
        for resource in planted:
            world = scarce(world, resource, rng)
        missing = rng.choice(MISSING) if kind == "missing" else ""
        unchanged = measured(world, world.top, seed, UNREAD)[1]
        if effects := binding(world, planted, unchanged, seed):
            runs = {c: measured(world, c, seed, missing) for c in world.grid}
            points, samples = tuple(p for p, _ in runs.values()), {c: s for c, (_, s) in runs.items()}
            return Case(drawn, number, kind, planted, missing, world, points, samples, unchanged, effects)
    raise AssertionError


def diagnosed(case: Case) -> SettingDiagnosis:
    """What the diagnosis says of a case's highest setting, of which it gets no more than a run
    holds.
    """
    signs = [signs_of(point, case.samples[point.load]) for point in case.points]
    engine = case.missing if case.missing in _NAMES else "vllm"
    return diagnose_setting(Concurrency(case.world.top), signs, limited=f"p99_{case.world.focus}", engine=engine)


def judged(case: Case) -> dict[str, Any]:
    """One line of results."""
    found = diagnosed(case)
    named = [s.resource for s in found.suspects]
    moved = None
    if named:
        lead = named[0]
        advised = case.effects.get(lead) or effect(case.world, lead, case.unchanged, case.seed)
        moved = max(advised) > MOVES
    return {
        "draw": case.drawn,
        "case": case.number,
        "kind": case.kind,
        "planted": list(case.planted),
        "missing": case.missing,
        "focus": case.world.focus,
        "named": named,
        "unknown": found.unknown,
        "basis": found.basis,
        "probability": found.suspects[0].probability if named else None,
        "right": bool(named) and named[0] in case.planted,
        "moved": moved,
    }


# --- the study


def verdict(row: Mapping[str, Any]) -> str:
    """'right', 'wrong' or 'not known', which is what should be said where the metrics that would
    tell are missing.
    """
    return "right" if row["right"] else "wrong" if row["named"] else "not known"


def stated(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What the diagnosis states for each kind of evidence: the lower bound (95%) of the share of
    right cases of the first draw, rounded down to 5 points, 95% at most.
    """
    known = [row for row in rows if row["draw"] == STATING and row["named"]]
    shares = {kind: [row["right"] for row in known if row["basis"] in bases] for kind, bases in EVIDENCE.items()}
    bounds = {kind: clopper_pearson(sum(s), len(s), 0.95)[0] for kind, s in shares.items() if s}
    return {kind: min(0.95, math.floor(20 * low) / 20) for kind, low in bounds.items()}


def second(rows: Sequence[Mapping[str, Any]], drawn: str) -> tuple[int, int]:
    """In how many cases of a draw the second resource named was one of those made scarce, and how
    many name one.
    """
    some = [row["named"][1] in row["planted"] for row in rows if row["draw"] == drawn and len(row["named"]) > 1]
    return sum(some), len(some)


def tables(rows: Sequence[Mapping[str, Any]]) -> str:
    """The tables behind docs/validation/how-often-right.md: the cases of the second draw, and both
    draws by what was stated.
    """

    def line(head: str, some: Sequence[Mapping[str, Any]]) -> str:
        counts = [sum(verdict(row) == word for row in some) for word in ("right", "not known", "wrong")]
        advised = [row["moved"] for row in some if row["moved"] is not None]
        return f"| {head} | {len(some)} | " + " | ".join(map(str, counts)) + f" | {sum(advised)} of {len(advised)} |"

    def right(kind: str, drawn: str) -> str:
        some = [r["right"] for r in rows if r["draw"] == drawn and r["basis"] in EVIDENCE[kind]]
        return f"{sum(some)} of {len(some)}"

    tested = [row for row in rows if row["draw"] == TESTING]
    heads = "| cases | right | not known | wrong | the advice moved the frontier |\n|---|--:|--:|--:|--:|--:|"
    ones = {name: [r for r in tested if r["kind"] == "one" and r["planted"] == [name]] for name in Resource}
    groups = {name.value.replace("_", " "): some for name, some in ones.items()}
    groups["two at once"] = [row for row in tested if row["kind"] == "two"]
    groups["metrics missing"] = [row for row in tested if row["kind"] == "missing"]
    groups["**all**"] = tested
    groups["first draw, all"] = [row for row in rows if row["draw"] == STATING]
    seconds = [f"{right} of {named}" for right, named in (second(rows, STATING), second(rows, TESTING))]
    return "\n".join(
        [
            f"| scarce {heads}",
            *(line(name, some) for name, some in groups.items() if some),
            "",
            "| evidence | stated | right in the first draw | right in the second |\n|---|--:|--:|--:|",
            *(
                f"| {kind} | {share:.0%} | {right(kind, STATING)} | {right(kind, TESTING)} |"
                for kind, share in stated(rows).items()
            ),
            f"| the second resource named | {SECOND:.0%} | {' | '.join(seconds)} |",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=CASES, help="of each draw")
    parser.add_argument("--draws", nargs="+", default=[STATING, TESTING])
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    if not options.tables:
        done = {(row["draw"], row["case"]) for row in rows}
        with options.results.open("a") as file:
            for drawn, number in itertools.product(options.draws, range(options.cases)):
                if (drawn, number) not in done:
                    rows.append(judged(draw(number, drawn)))
                    file.write(json.dumps(rows[-1]) + "\n")
                    file.flush()
    print(tables(rows))


if __name__ == "__main__":
    main()
