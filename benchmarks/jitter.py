"""How well the causes of jitter are told apart: each planted in the embedded engine, alone and in
pairs.

    python -m benchmarks.jitter --cases 100   # 2 minutes of CPU; docs/validation/how-often-right.md

A case is an engine, a shape and a concurrency, drawn by its number, with one or two causes planted:
long prompts (prefill of other requests), little KV memory (preemptions), pauses of the engine
(stalls of all streams), pauses of the client, in which arrivals are stamped late. The analysis
sees the records and the engine's count of preemptions.

The truth is of the engine's own steps: of each long gap the largest of what prompts, prompts
computed again, pauses and noise, and the client added to it, or the preemption within it. A case is
right when every share is within 10 points of the true one.
"""

import argparse
import itertools
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from frontier.core.model.loads import Concurrency
from frontier.core.model.shapes import Lengths, Shape
from frontier.core.model.trials import Record, Window
from frontier.extras.diagnose.jitter import LONG, GapCause, Jitter, jitter_of
from frontier.simulator.spec import EngineSpec, Stalls, price_of
from frontier.simulator.virtual import Took, records_of
from frontier.simulator.virtual_clients import VirtualClients

PLANTED = (GapCause.PREFILL, GapCause.PREEMPTION, GapCause.STALL, GapCause.CLIENT)
KINDS = (*((cause,) for cause in PLANTED), *itertools.combinations(PLANTED, 2))
"""What is planted: each cause alone, and every pair."""
NEAR = 0.10
"""Error of a share up to which it is right."""
SHOWS = 0.10
"""Least true share of a planted cause: below it the case is drawn again."""
WARM = 0.2
"""Share of a trial before its window."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """The client's pauses: one `every` seconds on average, each `duration` long."""

    every: float
    duration: float

    def spans(self, until: float, rng: random.Random) -> list[tuple[float, float]]:
        """Begin and end of each until then, none in another."""
        spans, now = [], 0.0
        while (now := now + rng.expovariate(1 / self.every)) < until:
            spans.append((now, now + self.duration))
            now += self.duration
        return spans


@dataclass(frozen=True, slots=True)
class World:
    """A deployment and its client."""

    spec: EngineSpec
    shape: Shape
    concurrency: int
    client: Pauses | None
    seed: int


@dataclass(slots=True)
class _Step:
    """What made one step longer than its decodes: seconds of prompts, of prompts computed again,
    and of pauses and noise.
    """

    prefill: float = 0.0
    again: float = 0.0
    stall: float = 0.0


def planted(kind: Sequence[GapCause], number: int, attempt: int) -> World:
    """A deployment with these causes of jitter."""
    rng = random.Random(f"jitter {number}, {attempt}")
    concurrency = rng.choice((6, 8, 12, 16, 24, 32))
    base = rng.uniform(5e-3, 18e-3)
    long_prompts = GapCause.PREFILL in kind
    isl = rng.randint(1000, 5000) if long_prompts else rng.randint(60, 150)
    osl = rng.randint(120, 400)
    spec = EngineSpec(
        step_base=base,
        per_decode=rng.uniform(10e-6, 40e-6),
        per_prefill_token=base * (rng.uniform(1.5, 5.0) / isl if long_prompts else rng.uniform(1e-4, 1e-3)),
        per_context_token=rng.uniform(1e-9, 2e-8),
        max_batched_tokens=rng.choice((1024, 2048, 4096, 8192)),
        noise=rng.uniform(0.01, 0.08),
        seed=number,
    )
    if GapCause.PREEMPTION in kind:
        room = rng.uniform(0.6, 0.8) * concurrency * (isl + osl / 2)
        spec = replace(spec, kv_tokens=max(int(room), 2 * (isl + osl)))
    if GapCause.STALL in kind:
        every, length = base * rng.uniform(40, 150), base * rng.uniform(2.5, 20)
        spec = replace(spec, stalls=Stalls(every, length))
    client = None
    if GapCause.CLIENT in kind:
        client = Pauses(base * rng.uniform(40, 150), base * rng.uniform(2.5, 20))
    spread = rng.uniform(0.05, 0.4)
    lengths = (Lengths.uniform(round(n * (1 - spread)), round(n * (1 + spread))) for n in (isl, osl))
    return World(spec, Shape(*lengths), concurrency, client, number)


class _Trial:
    """One trial in virtual time, its steps and their causes written down."""

    def __init__(self, world: World, requests: int) -> None:
        self.world = world
        self.steps: list[_Step] = []
        self.preempted: dict[int, list[int]] = {}
        clients = VirtualClients(world.spec, world.shape, Concurrency(world.concurrency), True, world.seed)
        self._watch(clients)
        now, counted, opened, start = 0.0, 0.0, False, 0.0
        while clients.completed < requests:
            if not opened and clients.completed >= WARM * requests:
                opened, start, counted = True, now, float(clients.scheduler.preemptions)
            step = clients.advance(now)
            if step is None:
                now = clients.arrivals[0][0] + clients.ingest
                continue
            for name in step.preempted:
                self.preempted.setdefault(name, []).append(step.number)
            now = step.end
        for request in clients.requests:
            if not request.done and request.open >= 0:
                request.spans.append((request.open, len(clients.ends)))
        self.preemptions = clients.scheduler.preemptions - counted
        self.ends = np.array(clients.ends)
        self.took = Took(clients.requests, self.ends, Window(start, now), now, "requests", {}, 0.0)

    def _watch(self, clients: VirtualClients) -> None:
        """Write down what each step of its engine takes beside decoding."""
        scheduler, price = clients.scheduler, price_of(self.world.spec)
        cost, apply = scheduler._cost, scheduler.disturbance.apply

        def costed(prefilled: int, pairs: float, sampled: int) -> float:
            whole = cost(prefilled, pairs, sampled)
            more = whole - price.decode(len(scheduler._decoding), scheduler._context)
            again = any(name in self.preempted for name in self._reading(clients))
            self.steps.append(_Step(again=more) if again else _Step(prefill=more))
            return whole

        def disturbed(start: float, duration: float) -> float:
            real = apply(start, duration)
            self.steps[-1].stall = real - duration
            return real

        scheduler._cost, scheduler.disturbance.apply = costed, disturbed  # type: ignore[method-assign]

    @staticmethod
    def _reading(clients: VirtualClients) -> list[int]:
        """Requests that this step reads anew: they have tokens of before a preemption."""
        scheduler = clients.scheduler
        inside = scheduler._known.values()
        return [r.id for r in inside if r.made and r.joined < 0 and r.read]

    def records(self, rng: random.Random) -> tuple[list[Record], list[np.ndarray[Any, Any]]]:
        """The records as the client stamps them, and by how long each gap is longer for its
        pauses.
        """
        spans = self.world.client.spans(self.took.until, rng) if self.world.client is not None else []
        begins, ends = np.array([s for s, _ in spans]), np.array([e for _, e in spans])
        stamped, late = [], []
        for record in records_of(self.took):
            if record.first is None:
                continue
            true = record.first + np.concatenate([[0.0], np.cumsum(record.gaps) * 1e-6])
            seen = true.copy()
            if len(spans):
                place = np.searchsorted(begins, true, side="right") - 1
                held = (place >= 0) & (true < ends[place])
                seen[held] = ends[place[held]]
            gaps = np.diff(seen)
            late.append(gaps - np.diff(true))
            micros = tuple(np.rint(gaps * 1e6).astype(int).tolist())
            stamped.append(replace(record, first=float(seen[0]), last=float(seen[-1]), gaps=micros))
        return stamped, late

    def truth(self, late: Sequence[np.ndarray[Any, Any]], stamped: Sequence[Record]) -> dict[GapCause, float]:
        """The true share of each cause among the long gaps of the window."""
        every = np.concatenate([r.gaps for r in stamped]) * 1e-6
        longer, counts = LONG * float(np.median(every)), dict.fromkeys(GapCause, 0)
        window = self.took.window
        for record, shifts in zip(stamped, late, strict=True):
            request = self.took.requests[record.index]
            numbers = np.concatenate([np.arange(a, b) for a, b in request.spans])
            ends = (record.first or 0.0) + np.cumsum(record.gaps) * 1e-6
            for i in np.flatnonzero(np.array(record.gaps) * 1e-6 > longer).tolist():
                if window.start <= ends[i] <= window.end:
                    counts[self._cause(record.index, int(numbers[i]), int(numbers[i + 1]), float(shifts[i]))] += 1
        total = sum(counts.values()) or 1
        return {cause: count / total for cause, count in counts.items()}

    def _cause(self, index: int, before: int, after: int, late: float) -> GapCause:
        if any(before < number <= after for number in self.preempted.get(index, ())):
            return GapCause.PREEMPTION
        step = self.steps[after]
        parts = {
            GapCause.PREFILL: step.prefill,
            GapCause.PREEMPTION: step.again,
            GapCause.STALL: step.stall,
            GapCause.CLIENT: late,
        }
        return max(parts, key=lambda cause: parts[cause])


def case(number: int) -> dict[str, Any]:
    """One line of results: what is planted, the true shares, those that are named."""
    kind = KINDS[number % len(KINDS)]
    for attempt in itertools.count():
        world = planted(kind, number, attempt)
        trial = _Trial(world, 12 * world.concurrency)
        stamped, late = trial.records(random.Random(number))
        true = trial.truth(late, stamped)
        found = jitter_of(stamped, trial.took.window, trial.preemptions)
        if found is not None and not found.unknown and all(true[cause] >= SHOWS for cause in kind):
            return judged(number, kind, true, found)
    raise AssertionError


def judged(number: int, kind: Sequence[GapCause], true: dict[GapCause, float], found: Jitter) -> dict[str, Any]:
    error = max(abs(true[cause] - found.shares[cause]) for cause in GapCause)
    shares = {
        name: {c.value: round(s, 3) for c, s in of.items()} for name, of in (("true", true), ("named", found.shares))
    }
    head = {"case": number, "planted": [c.value for c in kind], "long": found.long, "moments": found.moments}
    return {**head, **shares, "error": round(error, 3)}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """By what was planted: cases, those within 10 points, the largest error."""
    lines = ["| planted | cases | every share within 10 points | largest error |", "|---|--:|--:|--:|"]
    groups = {" and ".join(k): [r for r in rows if r["planted"] == list(k)] for k in KINDS}
    for name, some in {**groups, "**all**": list(rows)}.items():
        right = sum(row["error"] <= NEAR for row in some)
        worst = max((row["error"] for row in some), default=math.nan)
        lines.append(f"| {name} | {len(some)} | {right} | {100 * worst:.0f} points |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    rows = []
    for number in range(options.first, options.first + options.cases):
        rows.append(case(number))
        if options.verbose or rows[-1]["error"] > NEAR:
            print(json.dumps(rows[-1]))
    print(table(rows))


if __name__ == "__main__":
    main()
