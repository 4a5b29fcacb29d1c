"""python -m benchmarks.calibration.saturating [--deployments N] [--results FILE]

Does a sweep name the setting that the answer's own rule prefers? On servers that saturate below
their SLA: a cap on requests at work, beyond which more only wait. The truth is `solver._choose`
over the true throughput and tail of every concurrency up to the highest listed. An answer is right
whose true throughput is within 3% and whose worst true tail is within 10% of the truth's.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.calibration.__main__ import by_seed
from benchmarks.calibration.rules import GRID, reference_seconds, search_names
from benchmarks.calibration.servers import Process, draw_law, excess
from benchmarks.calibration.sweep import Sweep
from frontier.core.claim import solver
from frontier.core.model.decisions import Limit
from frontier.core.model.points import Estimate, Point
from frontier.planning.next_step import between_measured
from frontier.search.series_history import SeriesHistory

THROUGHPUT, TAIL = 0.03, 0.10
"""How far an answer that is right may lie from the truth."""


def drawn(seed: int) -> Process:
    """The deployment of this number: every second one hardly slows down below its cap."""
    rng = np.random.default_rng([seed, 91])
    law = draw_law(rng, "queue_capped")
    if seed % 2:
        law = dataclasses.replace(law, tpot_half=rng.uniform(400, 4000))
    bare = Process(law, "saturating", (), seed)
    name = f"{rng.choice(['p99', 'p95'])}_{rng.choice(['e2e', 'ttft'], p=[0.7, 0.3])}"
    most = bare.truth(max(GRID))[name]
    return Process(law, "saturating", (Limit(name, most * rng.uniform(0.8, 4.0)),), seed)


def true_points(server: Process) -> list[Point]:
    """The truth of every concurrency below the first that breaks the SLA: measured close together,
    and on straight lines between.
    """
    settings = sorted({*GRID, *(round(1.09**k) for k in range(60) if 1.09**k <= max(GRID))})
    names = search_names(server)
    values = {name: [server.truth(c)[name] for c in settings] for name in names}
    points = []
    for c in range(1, max(GRID) + 1):
        at = {name: float(np.interp(c, settings, column)) for name, column in values.items()}
        if any(limit.breaks(at[limit.metric]) for limit in server.limits):
            break
        metrics = {name: Estimate.without_interval(value, 1000) for name, value in at.items()}
        points.append(Point("d", server.shape, c, metrics, 1000))
    return points


def truth(server: Process) -> Point | None:
    """The setting that the rule takes of all of them; None where none is within."""
    points = true_points(server)
    return solver._choose(points, server.limits, "output_throughput", True, True)


def job(seed: int) -> dict[str, Any]:
    """What a sweep of one deployment announced and answered, with the truth of it."""
    server = drawn(seed)
    best = truth(server)
    sweep = Sweep(server, 1)
    sweep.run()
    decision = SeriesHistory.of(server.limits, sweep.history).decision
    answer = None if decision is None else decision.load
    step = None if decision is None else decision.next_step or between_measured(decision, sweep.history)
    early = sweep.announced()
    return {
        "seed": seed,
        "cap": server.law.seats,
        "truth": best and best.load,
        "answer": answer,
        "right": best is not None and answer is not None and _right(server, answer, best),
        "named": step and step.load,
        "named better": _better(server, answer, step and step.load),
        "excess": None if answer is None else excess(server, answer),
        "reference": best and reference_seconds(server, best.load),
        "announced": early and early[1],
        "seconds": sweep.clock,
    }


def _right(server: Process, c: int, best: Point) -> bool:
    true, rate = server.truth(c), "output_throughput"
    near = abs(true[rate] / best.value(rate) - 1) <= THROUGHPUT
    tails = [abs(true[limit.metric] / best.value(limit.metric) - 1) for limit in server.limits]
    return near and max(tails) <= TAIL


def _better(server: Process, answer: int | None, named: int | None) -> bool:
    """Whether the rule takes the setting that is named and not the answer, by the truth of both."""
    if named is None or answer is None:
        return named is not None
    points = [p for p in true_points(server) if p.load in (answer, named)]
    chosen = solver._choose(points, server.limits, "output_throughput", True, True)
    return chosen is not None and chosen.load == named


def table(results: Sequence[dict[str, Any]]) -> str:
    """The shares that are asked for."""
    asked = [r for r in results if r["truth"] is not None]
    wrong = [r for r in asked if not r["right"]]
    costs = sorted(r["announced"] / r["reference"] if r["announced"] else math.inf for r in asked)
    broken = sum(r["excess"] is not None and r["excess"] > 1 for r in results)
    named = sum(r["named better"] for r in wrong)
    return (
        f"{len(asked)} deployments: right in {sum(r['right'] for r in asked)}; in {named} of the other {len(wrong)} a "
        f"better one is named; {broken} break their SLA; announced after {costs[len(costs) // 2]:.1f} x the reference, "
        f"90th percentile {costs[int(0.9 * len(costs))]:.1f}"
    )


if __name__ == "__main__":
    by_seed("saturating", __doc__, 100, job, table)
