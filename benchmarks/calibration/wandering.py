"""python -m benchmarks.calibration.wandering [--deployments N] [--results FILE]

Is there an answer within ten minutes on a server that wanders? Its speed is halved for 5 to 20 s
every minute on average, and its SLA limits a p95. The truth has the episodes in it.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.calibration.__main__ import by_seed
from benchmarks.calibration.rules import GRID, best, reference_seconds
from benchmarks.calibration.servers import Episodes, Process, draw_law, draw_limits, excess
from benchmarks.calibration.sweep import Sweep
from frontier.search.series_history import SeriesHistory

BUDGET = 600.0
LEAST = 3
"""The lowest best setting of a deployment: below it nothing could give way."""


def drawn(seed: int) -> Process:
    """The deployment of this number: who knew its best setting could prove it in a fifth of the
    time.
    """
    rng = np.random.default_rng([seed, 92])
    while True:
        server = _drawn(seed, rng)
        top = best(server).load
        if top is not None and top >= LEAST and reference_seconds(server, top) < BUDGET / 5:
            return server


def _drawn(seed: int, rng: np.random.Generator) -> Process:
    law = dataclasses.replace(draw_law(rng, "smooth"), episodes=Episodes(60.0, 5.0, 20.0))
    bare = Process(law, "wander_episodes", (), seed)
    names = [("p95_ttft",), ("p95_tpot",), ("p95_e2e",), ("p95_ttft", "p95_tpot")][int(rng.integers(4))]
    limits = draw_limits(rng, names, bare.truth(2), bare.truth(max(GRID)), infeasible=False)
    return Process(law, "wander_episodes", limits, seed)


def job(seed: int) -> dict[str, Any]:
    """What a sweep of one deployment answered within its budget, with the truth of it."""
    server = drawn(seed)
    sweep = Sweep(server, 1)
    sweep.run(BUDGET)
    decision = SeriesHistory.of(server.limits, sweep.history).decision
    answer, top = None if decision is None else decision.load, best(server)
    rate = "output_throughput"
    return {
        "seed": seed,
        "best": top.load,
        "answer": answer,
        "nearest": decision and decision.candidate,
        "excess": None if answer is None else excess(server, answer),
        "share": None if answer is None else min(1.0, server.truth(answer)[rate] / max(top.throughput, 1e-9)),
        "seconds": sweep.clock,
        "trials": [f"{t.phase.value} {t.load}" for t, _ in sweep.history],
    }


def table(results: Sequence[dict[str, Any]]) -> str:
    """The shares that are asked for."""
    asked = [r for r in results if r["best"] is not None]
    answered = [r for r in asked if r["answer"] is not None]
    shares = sorted(r["share"] or 0.0 for r in asked)
    broken = sorted(r["excess"] for r in results if r["excess"] is not None and r["excess"] > 1)
    return (
        f"{len(asked)} deployments: answered in {len(answered)}; {len(broken)} break their SLA"
        f"{f', by {broken[-1] - 1:.1%} at most' if broken else ''}; share of the best throughput: "
        f"median {shares[len(shares) // 2]:.0%}, mean {np.mean(shares):.0%}"
    )


if __name__ == "__main__":
    by_seed("wandering", __doc__, 40, job, table)
