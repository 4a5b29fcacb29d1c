"""python -m benchmarks.calibration.others [--deployments N] [--results FILE]

Does a sweep answer, and rightly, on servers that no family of the study draws? Each kind has a law
of its own (a prefix cache, a rate limiter, a full KV cache, a scheduler that stalls) or an SLA of
its own (a p90, gaps between tokens, a range, a least throughput). The truth is the long run.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.calibration import rules
from benchmarks.calibration.__main__ import by_seed
from benchmarks.calibration.servers import TOP, Floats, Law, Process, Truth, draw_law, excess
from benchmarks.calibration.sweep import Sweep
from frontier.core.model.decisions import Limit
from frontier.core.model.trials import Trial
from frontier.core.window.histogram import LogHistogram
from frontier.core.window.window import BLOCKS, WindowData

KINDS = (
    "two humps",
    "full KV cache",
    "few slots",
    "stall every 7 s",
    "warm-up of 60 s",
    "prefix cache",
    "429 above 20",
    "chunks of 8 tokens",
    "gaps between tokens",
    "slow replica",
    "ticks",
    "rare slow requests",
    "waves",
    "range",
    "least throughput",
)
WARM_UP, SEATS, CHUNK, STALL, APART = 60.0, 20, 8, 0.2, 6.8
"""Seconds that a server is slow after its start; requests that a limiter lets in; tokens of a chunk
of a proxy; and seconds of a scheduler's stall and between two."""
GAPS = 48
"""Gaps of an answer that are drawn, at most."""
ANSWERED = 0.95
"""An answer is asked for where one user is so far within the limits."""


class Other(Process):
    """A deployment of a kind. `strength` and `place` are what its law has beside that of a
    `Process`.
    """

    def __init__(self, law: Law, kind: str, limits: tuple[Limit, ...], seed: int) -> None:
        super().__init__(law, kind, limits, seed)
        rng = np.random.default_rng([seed, 98])
        self.strength, self.place = float(rng.random()), round(math.exp(rng.uniform(math.log(6), math.log(90))))

    def _alone(self, c: int, rows: int, rng: np.random.Generator) -> tuple[Floats, Floats, Floats, Floats]:
        starts, first, e2e, tokens = super()._alone(c, rows, rng)
        k, pace, x, kind = rows * c, (e2e - first) / (tokens - 1), self.strength, self.family
        if kind == "two humps":  # a part of the prompts is long
            first = first * np.where(rng.random(k) < 0.02 + 0.3 * x, 4 + 10 * x, 1.0)
        if kind == "prefix cache":  # it holds the prefixes of so many streams
            first = first * np.where(rng.random(k) < 0.97 * min(1.0, self.place / c), 0.1 + 0.2 * x, 1.0)
        if kind == "chunks of 8 tokens":
            first = first + (CHUNK - 1) * pace
        if kind == "slow replica":  # which replica follows from the connection of a stream
            slow = np.tile(np.where(np.arange(c) % 3 == 1, 1.1 + 0.5 * x, 1.0), rows)
            first, pace = first * slow, pace * slow
        if kind == "rare slow requests":
            slow = np.where(rng.random(k) < 0.003 + 0.03 * x, 3.0, 1.0)
            first, pace = first * slow, pace * slow
        e2e = first + pace * (tokens - 1)
        if kind == "full KV cache":  # a request that was put off is read again
            off = rng.random(k) < max(0.0, 1 - self.place / c)
            e2e = e2e + off * first * (1 + 4 * x) + off * pace * rng.uniform(0, 1, k) * tokens
        if kind == "ticks":
            tick = 0.02 + 0.1 * x
            first = tick * np.ceil(first / tick)
            e2e = np.maximum(first + tick, tick * np.ceil(e2e / tick))
        return starts, first, e2e, tokens

    def timeline(self, c: int, *how: Any, **more: Any) -> tuple[Floats, ...]:
        *times, ok, edges, streams = super().timeline(c, *how, **more)
        if self.family == "429 above 20":
            ok = np.random.default_rng([self.seed, c, len(ok)]).random(len(ok)) < SEATS / c
        return (*times, ok, edges, streams)

    def _warped(self, times: list[Floats], length: float, rng: np.random.Generator) -> list[Floats]:
        phase = rng.random()
        if self.family == "stall every 7 s":
            begun = phase * APART
            return [t + STALL * np.floor((t + begun) / APART) for t in times]
        if self.family == "waves":
            turn = 2 * math.pi / (60 + 240 * self.strength)
            depth, begun = 0.05 + 0.15 * self.strength, 2 * math.pi * phase
            return [t - depth / turn * (np.cos(turn * t + begun) - math.cos(begun)) for t in times]
        return super()._warped(times, length, rng)

    def _on_the_machine(
        self, times: list[Floats], c: int, rng: np.random.Generator, night: int, at: float
    ) -> list[Floats]:
        if self.family == "warm-up of 60 s":
            slow = 1.5 + 1.5 * self.strength
            begun = at / slow if at < WARM_UP else WARM_UP / slow + at - WARM_UP
            work = [begun + t for t in times]
            return [np.where(w * slow < WARM_UP, w * slow, w - WARM_UP / slow + WARM_UP) - at for w in work]
        return super()._on_the_machine(times, c, rng, night, at)

    def _gaps(self, c: int, pace: Floats, tokens: Floats, rng: np.random.Generator) -> Floats:
        """Gaps of answers, one after another: some are longer, as a prompt is read meanwhile."""
        count = np.minimum(GAPS, tokens - 1).astype(int)
        usual = np.repeat(pace, count) * np.exp(0.1 * rng.standard_normal(int(count.sum())))
        reads = rng.random(len(usual)) < min(0.5, 0.002 * c * (0.5 + self.strength))
        return np.where(reads, usual * (3 + 5 * self.strength), usual)

    def trial(self, trial: Trial, seed: int, at: float | None = None) -> WindowData:
        found = super().trial(trial, seed, at)
        if self.family != "gaps between tokens":
            return found
        rng, good = np.random.default_rng([self.seed, seed, 99]), np.flatnonzero(found.ok)
        parts = np.array_split(good[np.argsort(found.sent[good] + found.e2e[good])], BLOCKS)
        gaps = [self._gaps(trial.load, found.tpot[i], found.completion_tokens[i], rng) for i in parts]
        return dataclasses.replace(found, block_itl=tuple(LogHistogram.of(each) for each in gaps))

    def _long(self, c: int, runs: int, n: int) -> Truth:
        found = super()._long(c, runs, n)
        if self.family == "gaps between tokens":
            rng, gaps = np.random.default_rng([self.seed, c, 97]), []
            for _ in range(runs):
                _, first, end, tokens, *_ = self.timeline(c, n, rng)
                gaps.append(self._gaps(c, ((end - first) / (tokens - 1))[:n], tokens[:n], rng))
            at = np.quantile(np.concatenate(gaps), (0.9, 0.95, 0.99))
            found |= {f"p{p}_itl": float(value) for p, value in zip((90, 95, 99), at, strict=True)}
        if self.family == "429 above 20":
            found["error_rate"] = max(0.0, 1 - SEATS / c)
        return found


def drawn(seed: int) -> Other:
    """The deployment of this number."""
    rng, kind = np.random.default_rng([seed, 97]), KINDS[seed % len(KINDS)]
    law = draw_law(rng, "queue_capped" if kind == "few slots" else "smooth")
    if kind == "few slots":
        law = dataclasses.replace(law, seats=int(rng.integers(8, 25)))
    bare = Other(dataclasses.replace(law, error_rate=0.0), kind, (), seed)
    quantities = ("ttft", "tpot", "e2e") if kind != "gaps between tokens" else ("itl",)
    names = [f"p{rng.choice((90, 95, 99))}_{q}" for q in rng.permutation(quantities)[: 1 + int(rng.random() < 0.4)]]
    one, many = bare.truth(1), bare.truth(SEATS if kind == "429 above 20" else TOP)
    places = [math.exp(rng.uniform(math.log(one[m]), math.log(max(one[m], 1.2 * many[m])))) for m in names]
    limits = tuple(Limit(m, at, 0.7 * at if kind == "range" else None) for m, at in zip(names, places, strict=True))
    if kind == "least throughput":
        inside = [c for c in rules.GRID if excess(Other(bare.law, kind, limits, seed), c) <= 1]
        rate = "output_throughput"
        limits += (Limit(rate, rng.uniform(0.2, 1.1) * bare.truth(max(inside, default=1))[rate]),)
    return Other(bare.law, kind, limits, seed)


def best(server: Other) -> rules.Best:
    """The setting with the most throughput below the first that breaks the SLA by a latency."""
    latencies = tuple(limit for limit in server.limits if limit.of.quantity is not None)
    found = rules.best(Other(server.law, server.family, latencies, server.seed))
    return found if found.load is None or excess(server, found.load) <= 1 else rules.Best(None, 0.0)


def job(seed: int) -> dict[str, Any]:
    """What a sweep of one deployment announced and answered, with the truth of it."""
    server = drawn(seed)
    top, sweep = best(server), Sweep(server, 1)
    sweep.run()
    decision, early = sweep.decision(), sweep.announced()
    answer, share = decision.load, 0.0
    if answer is not None and top.load is not None:
        share = min(1.0, server.truth(answer)["output_throughput"] / top.throughput)
    return {
        "seed": seed,
        "kind": server.family,
        "limits": {limit.metric: limit.promise for limit in server.limits},
        "best": top.load,
        "alone": excess(server, 1),
        "answer": answer,
        "verdict": decision.verdict.value,
        "nearest": decision.candidate,
        "excess": None if answer is None else excess(server, answer),
        "share": None if top.load is None else share,
        "reference": None if top.load is None else rules.reference_seconds(server, top.load),
        "announced": early and early[1],
        "seconds": sweep.clock,
        "trials": [f"{t.phase.value} {t.load}" for t, _ in sweep.history],
    }


def table(results: Sequence[dict[str, Any]]) -> str:
    """The shares that are asked for, of all and by kind."""
    rows = [("all", results), *((kind, [r for r in results if r["kind"] == kind]) for kind in KINDS)]
    heads = "kind", "answered where it should", "answers", "break the SLA", "share", "times the reference"
    lines = [f"| {' | '.join(heads)} |", "|---|--:|--:|--:|--:|--:|"]
    for name, mine in rows:
        should = [r for r in mine if r["best"] is not None and r["alone"] < ANSWERED]
        exists = [r for r in mine if r["best"] is not None]
        answers = [r for r in mine if r["answer"] is not None]
        costs = sorted(r["announced"] / r["reference"] if r["announced"] else math.inf for r in exists)
        shares = sorted(r["share"] for r in exists)
        if exists:
            cells = (
                f"{sum(r['answer'] is not None for r in should)} of {len(should)}",
                len(answers),
                sum(r["excess"] > 1 for r in answers),
                f"{shares[len(shares) // 2]:.0%} ({np.mean(shares):.0%})",
                f"{costs[len(costs) // 2]:.1f} ({costs[int(0.9 * len(costs))]:.1f})",
            )
            lines.append(f"| {' | '.join(map(str, (name, *cells)))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    by_seed("others", __doc__, 60, job, table)
