"""How often a promised head count holds: fleets of the embedded engine behind a router, with people
who think.

    python -m benchmarks.people --deployments 200 --results people.jsonl   # goes on where it was
    python -m benchmarks.people --results people.jsonl --tables

The figures are in docs/validation/how-often-right.md.

Each deployment is drawn by its number: engine, shape, SLA, think time, replicas. Its sweep, its
operating point and the head count are those of frontier; the truth is a fleet in virtual time, on
engines that admit as many requests as the operating point has and queue the rest, behind a router
that sends each request to the replica with the fewest.
"""

import argparse
import dataclasses
import heapq
import itertools
import json
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frontier.core.claim import solver
from frontier.core.claim.claimed import claim_points, claim_windows
from frontier.core.model.decisions import Decision, Limit
from frontier.core.model.loads import Concurrency
from frontier.core.model.points import Point
from frontier.core.model.shapes import Lengths, Shape
from frontier.core.model.trials import Phase, Trial
from frontier.core.stats.intervals import clopper_pearson
from frontier.core.window.from_records import window_data
from frontier.core.window.window import WindowData
from frontier.extras.capacity import head_count
from frontier.planning import arrivals
from frontier.simulator.engine import Scheduler, Step
from frontier.simulator.spec import EngineSpec, Stalls
from frontier.simulator.virtual import virtual_trial

Floats = NDArray[np.float64]
GRID = tuple(map(Concurrency, (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)))
FAMILIES = ("plain", "noisy steps", "stalls", "scarce memory")
REPLICAS = (1, 1, 2, 4, 8)
LAWS = ("exponential", "lognormal")
LOGNORMAL = 1.0
"""The sigma of lognormal think times: their coefficient of variation is 1.3."""
JUDGED, LOOKED = 10_000, 4_000
"""Requests by which a promise is judged, and by which the most people are looked for."""
Result = dict[str, Any]


# --- people who think, a router, several engines


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """The requests of a fleet, in the order they were asked. Latencies count from the moment a
    person asks.
    """

    ttft: Floats
    tpot: Floats
    e2e: Floats
    waited: Floats
    in_flight: float
    rate: float

    def late(self, limit: Limit) -> float:
        """The share of requests over a limit."""
        values: Floats = getattr(self, limit.of.quantity or "e2e")
        known = values[~np.isnan(values)]
        return float((known > limit.promise).mean()) if len(known) else 0.0

    def keeps(self, limits: Sequence[Limit]) -> bool:
        return all(self.late(limit) <= 1 - (limit.of.p or 0.0) for limit in limits)


class Fleet:
    """Replicas in virtual time behind a router that sends to the one with the fewest in flight
    (ties at random).
    """

    def __init__(self, spec: EngineSpec, shape: Shape, replicas: int, think: float, law: str, seed: int) -> None:
        specs = [dataclasses.replace(spec, seed=spec.seed * 1009 + seed * 31 + i) for i in range(replicas)]
        self.engines = [Scheduler(each) for each in specs]
        self.ingest, self.shape, self.think, self.law = spec.ingest, shape, think, law
        self.rng = random.Random(seed)
        self.load = [0] * replicas
        self.busy = [False] * replicas
        self.inbox: list[deque[tuple[float, int]]] = [deque() for _ in range(replicas)]
        self.asked: list[float] = []
        self.output: list[int] = []
        self.first: dict[int, float] = {}
        self.last: dict[int, float] = {}
        self.found: list[int] = []
        self.events: list[tuple[float, int, int, Step | None]] = []
        self.order = itertools.count()

    def thinks(self) -> float:
        """A think time."""
        if self.law == "exponential":
            return self.rng.expovariate(1 / self.think)
        return self.rng.lognormvariate(math.log(self.think) - LOGNORMAL**2 / 2, LOGNORMAL)

    def rest(self) -> float:
        """What is left of a think time at a random moment."""
        if self.law == "exponential":
            return self.thinks()
        longer = self.rng.lognormvariate(math.log(self.think) + LOGNORMAL**2 / 2, LOGNORMAL)
        return self.rng.random() * longer

    def _push(self, time: float, replica: int, step: Step | None = None) -> None:
        heapq.heappush(self.events, (time, next(self.order), replica, step))

    def run(self, people: int, requests: int) -> Served:
        """So many people until `requests` were asked and answered, after a warm-up of four full
        fleets.
        """
        slots = sum(engine.spec.max_num_seqs for engine in self.engines)
        warm = 4 * slots
        for _ in range(people):
            self._push(self.rest(), -1)
        counted = range(warm, warm + requests)
        left = requests
        while left:
            now, _, replica, step = heapq.heappop(self.events)
            if replica < 0:
                self._ask(now)
                continue
            if step is not None:
                for name in step.first:
                    self.first.setdefault(name, now)
                for name in step.finished:
                    self.last[name] = now
                    self.load[replica] -= 1
                    left -= name in counted
                    self._push(now + self.thinks(), -1)
            self._go(replica, now)
        asked = np.array([self.asked[i] for i in counted])
        ttft = np.array([self.first[i] for i in counted]) - asked
        e2e = np.array([self.last[i] for i in counted]) - asked
        output = np.array([self.output[i] for i in counted])
        tpot = np.where(output > 1, (e2e - ttft) / np.maximum(1, output - 1), np.nan)
        lasted = float(asked[-1] - asked[0])
        full = np.array([self.found[i] >= slots for i in counted], dtype=np.float64)
        return Served(ttft, tpot, e2e, full, float(e2e.sum()) / lasted / len(self.load), requests / lasted)

    def _ask(self, now: float) -> None:
        """A person asks; the router chooses."""
        fewest = min(self.load)
        replica = self.rng.choice([i for i, load in enumerate(self.load) if load == fewest])
        self.found.append(sum(self.load))
        name = len(self.asked)
        self.asked.append(now)
        self.load[replica] += 1
        self.inbox[replica].append((now + self.ingest, name))
        if not self.busy[replica]:
            self.busy[replica] = True
            self._push(now + self.ingest, replica)

    def _go(self, replica: int, now: float) -> None:
        """The next step of a replica, where it has anything to do."""
        engine, inbox = self.engines[replica], self.inbox[replica]
        while inbox and inbox[0][0] <= now:
            _, name = inbox.popleft()
            prompt, output = self.shape.isl.draw(self.rng), self.shape.osl.draw(self.rng)
            while len(self.output) <= name:
                self.output.append(0)
            self.output[name] = output
            engine.submit(name, prompt, output)
        step = engine.step(now)
        self.busy[replica] = step is not None or bool(inbox)
        if step is not None:
            self._push(step.end, replica, step)
        elif inbox:
            self._push(inbox[0][0], replica)


# --- one deployment of the study


@dataclass(frozen=True, slots=True)
class Case:
    """A drawn deployment."""

    number: int
    family: str
    spec: EngineSpec
    shape: Shape
    limits: tuple[Limit, ...]
    think: float
    law: str
    replicas: int

    def served(self, cap: int, people: int, requests: int, seed: int = 1) -> Served:
        """What people meet on its fleet when each engine admits `cap`."""
        spec = dataclasses.replace(self.spec, max_num_seqs=cap)
        return Fleet(spec, self.shape, self.replicas, self.think, self.law, seed).run(people, requests)


def _lengths(rng: random.Random, low: int, high: int) -> Lengths:
    tokens = round(math.exp(rng.uniform(math.log(low), math.log(high))))
    kind = rng.choice(("fixed", "uniform", "normal"))
    if kind == "fixed":
        return Lengths.fixed(tokens)
    return (
        Lengths.uniform(max(1, tokens // 2), 3 * tokens // 2)
        if kind == "uniform"
        else Lengths.normal(tokens, tokens / 3)
    )


def measured(spec: EngineSpec, shape: Shape, seed: int, top: int) -> list[tuple[Trial, WindowData]]:
    """A sweep of the grid up to `top`: one window each, long enough to prove a p99 away from its
    limit.
    """
    history = []
    for c in (c for c in GRID if c <= top):
        requests = 1000 if c >= 4 else 400
        trial = Trial(
            "default",
            shape,
            c,
            1,
            Phase.GRID,
            requests,
            seed * 1000 + c,
            0.0,
            0.0,
            math.inf,
            f"{seed}-{c}",
        )
        records, measurement = virtual_trial(trial, spec)
        history.append((trial, window_data(measurement, records)))
    return history


def drawn(number: int) -> tuple[Case, list[tuple[Trial, WindowData]], Decision, list[Point]]:
    """A deployment with its sweep and its operating point; drawn again until it has one."""
    for attempt in itertools.count():
        rng = random.Random(f"people {number} {attempt}")
        family = FAMILIES[number % len(FAMILIES)]
        shape = Shape(_lengths(rng, 64, 2048), _lengths(rng, 8, 48))
        ms, longest = 1e-3, shape.isl.high + shape.osl.high
        spec = EngineSpec(
            step_base=rng.uniform(4, 12) * ms,
            per_decode=rng.uniform(0.01, 0.15) * ms,
            per_prefill_token=math.exp(rng.uniform(math.log(0.005), math.log(0.05))) * ms,
            per_context_token=20e-9,
            noise=rng.uniform(0.1, 0.4) if family == "noisy steps" else 0.02,
            seed=number,
            max_batched_tokens=rng.choice((1024, 2048, 8192)),
            stalls=Stalls(rng.uniform(5, 30), rng.uniform(0.05, 0.5)) if family == "stalls" else None,
            kv_tokens=round(rng.uniform(8, 40) * longest) if family == "scarce memory" else None,
        )
        top = rng.choice((8, 16, 32, 64))
        history = measured(spec, shape, number, top)
        limits = _limits(rng, history)
        points = claim_points(history, limits)
        decision = solver.solve(points, limits, history=history)
        if decision.load is not None and decision.load > 1:
            think = decision.metrics["mean_e2e"].value * math.exp(rng.uniform(math.log(1), math.log(60)))
            case = Case(number, family, spec, shape, limits, think, LAWS[number // 2 % 2], rng.choice(REPLICAS))
            return case, history, decision, points
    raise AssertionError


def _limits(rng: random.Random, history: Sequence[tuple[Trial, WindowData]]) -> tuple[Limit, ...]:
    """Limits that some setting of the grid just keeps: between its value and half as much again."""
    _, sample = rng.choice(history[1:])
    p = rng.choice((95, 99, 99, 99))
    names = rng.choice((("ttft",), ("e2e",), ("ttft", "tpot"), ("ttft", "e2e"), ("tpot",)))
    limits = []
    for name in names:
        values = getattr(sample, name)
        value = float(np.quantile(values[~np.isnan(values)], p / 100, method="inverted_cdf"))
        limits.append(Limit(f"p{p}_{name}", value * rng.uniform(1.05, 1.5)))
    return tuple(limits)


def deployment(number: int) -> Result:
    """What was promised, whether it holds, and the most people that there could be."""
    case, history, decision, points = drawn(number)
    assert decision.load is not None
    cap = decision.load
    replica = arrivals.replica_of(decision, points, claim_windows(history))
    promise = head_count.head_count(replica, case.think, case.replicas)
    waits = bool(replica.limits)

    def keeps(people: int, requests: int) -> bool:
        served = case.served(cap, people, requests)
        return served.keeps(case.limits) and (waits or float(served.waited.mean()) <= arrivals.WAITING)

    most = _most(keeps, max(1, promise.people))
    by_law = {law: dataclasses.replace(case, law=law) for law in LAWS}
    judged = {law: each.served(cap, max(1, promise.people), JUDGED, seed=2) for law, each in by_law.items()}
    own = judged[case.law]
    rate, e2e = decision.metrics["request_throughput"].value, decision.metrics["mean_e2e"].value
    by_the_mean = round(case.replicas * rate * (e2e + case.think))
    return {
        "number": number,
        "family": case.family,
        "law": case.law,
        "replicas": case.replicas,
        "cap": cap,
        "limits": {limit.metric: limit.promise for limit in case.limits},
        "binding": decision.binding,
        "think": case.think,
        "e2e": e2e,
        "people": promise.people,
        "most": most,
        "late": {limit.metric: own.late(limit) for limit in case.limits},
        "holds": {law: each.keeps(case.limits) for law, each in judged.items()},
        "waited": float(own.waited.mean()),
        "waiting": promise.waiting,
        "in_flight": [promise.in_flight, own.in_flight],
        "by_the_mean": by_the_mean,
        "mean_holds": keeps(by_the_mean, LOOKED),
    }


def _most(keeps: Any, start: int) -> int:
    """The most people whose fleet keeps the SLA, within 2%."""
    low, high = 0, start
    while keeps(high, LOOKED):
        low, high = high, math.ceil(1.15 * high) + 1
    if low == 0:
        low = high
        while low > 1 and not keeps(low, LOOKED):
            low, high = math.floor(low / 1.15), low
    while high - low > max(1, 0.02 * high):
        middle = (low + high) // 2
        low, high = (middle, high) if keeps(middle, LOOKED) else (low, middle)
    return low


# --- tables


def known(file: Path) -> list[Result]:
    """The results so far, by number."""
    if not file.exists():
        return []
    return sorted((json.loads(line) for line in file.read_text().splitlines()), key=lambda r: int(r["number"]))


def share(result: Result) -> float:
    """The people promised over the most there could be."""
    return float(result["people"] / max(1, result["most"]))


def tables(results: Sequence[Result]) -> str:
    """The study as Markdown."""
    groups: list[tuple[str, list[Result]]] = [("all", list(results))]
    for key, name in (("family", ""), ("replicas", "replicas: "), ("binding", "binding: ")):
        values = sorted({str(r[key]) for r in results}, key=lambda v: (len(v), v) if key == "replicas" else (0, v))
        groups += [(f"{name}{value}", [r for r in results if str(r[key]) == value]) for value in values]
    heads = (
        "deployments",
        "",
        "answered",
        *(f"keep the SLA, {law}" for law in LAWS),
        "both, at least (95%)",
        "promised over the most: median",
        "10th percentile",
        "N = X (R + Z) keeps it",
    )
    lines = [f"| {' | '.join(heads)} |", f"|---{'|--:' * (len(heads) - 1)}|"]
    for name, mine in groups:
        answered = [r for r in mine if r["people"]]
        n, mean = len(answered), sum(r["mean_holds"] for r in mine) / len(mine)
        kept = [sum(r["holds"][law] for r in answered) for law in LAWS]
        low = clopper_pearson(sum(kept) / len(LAWS), n)[0]
        shown = " | ".join(f"{k / max(1, n):.1%}" for k in kept)
        middle, tenth = np.quantile([share(r) for r in mine], [0.5, 0.1])
        lines.append(f"| {name} | {len(mine)} | {n} | {shown} | {low:.1%} | {middle:.0%} | {tenth:.0%} | {mean:.0%} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--deployments", type=int, default=200)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--tables", action="store_true", help="print the results so far and stop")
    options = parser.parse_args(arguments)
    done = {int(r["number"]) for r in known(options.results)}
    if not options.tables:
        with options.results.open("a") as file:
            for number in range(options.deployments):
                if number not in done:
                    file.write(json.dumps(deployment(number)) + "\n")
                    file.flush()
    print(tables(known(options.results)))


if __name__ == "__main__":
    main()
