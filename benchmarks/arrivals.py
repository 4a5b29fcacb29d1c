"""How near the rate that is estimated for independent users comes to the highest that holds.

    python -m benchmarks.arrivals --deployments 60 --results arrivals.jsonl  # goes on where it was
    python -m benchmarks.arrivals --results arrivals.jsonl --tables

The figures are in docs/validation/how-often-right.md. The deployments are those of
`benchmarks.people`: engine, shape, SLA, a sweep in virtual time and its operating point. The truth
is the same engine with the operating point's limit of requests in flight, which Poisson arrivals
meet at shares of the closed loop's rate; what waits for admission waits in its queue.
"""

import argparse
import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import people
from frontier.core.claim.claimed import claim_windows
from frontier.core.model.loads import Rate
from frontier.core.stats.intervals import clopper_pearson
from frontier.planning.arrivals import arrival_rate
from frontier.simulator import virtual

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
"""Of the closed loop's rate: what is sent."""
REQUESTS = 12_000
"""Of each rate."""
ENOUGH = 4.0
"""Times as many late requests as are forgiven, from which no higher rate is sent."""
Result = dict[str, Any]


def late(case: people.Case, cap: int, rate: float, seed: int = 1) -> float:
    """The share of late requests at a rate, as a multiple of what the SLA forgives; of several
    limits the worst.
    """
    spec = dataclasses.replace(case.spec, max_num_seqs=cap, seed=case.spec.seed * 1009 + seed)
    run = virtual.arrays_of(virtual.simulate(spec, case.shape, Rate.of(rate), REQUESTS, seed=seed))
    worst = 0.0
    for limit in case.limits:
        values = getattr(run, limit.of.quantity or "")
        known = values[~np.isnan(values)]
        worst = max(worst, float((known > limit.promise).mean()) / (1 - (limit.of.p or 0.0)))
    return worst


def deployment(number: int) -> Result:
    """What was estimated, and the late requests at each share of the closed loop's rate."""
    case, history, decision, points = people.drawn(number)
    assert decision.load is not None
    top = decision.metrics["request_throughput"].value
    estimated = arrival_rate(decision, points, claim_windows(history))
    curve = []
    for share in SHARES:
        curve.append((share, late(case, decision.load, share * top)))
        if curve[-1][1] > ENOUGH:
            break
    return {
        "number": number,
        "family": case.family,
        "cap": decision.load,
        "limits": {limit.metric: limit.promise for limit in case.limits},
        "top": top,
        "estimated": None if estimated is None else estimated.rate / top,
        "curve": curve,
    }


def most(result: Result) -> float:
    """The share up to which the SLA holds, between the shares that were sent on a line in the
    logarithm of the late requests; 0 where the lowest breaks it.
    """
    before = (0.0, 1e-3)
    for share, multiple in result["curve"]:
        if multiple > 1:
            if not before[0]:
                return 0.0
            part = -math.log(before[1]) / (math.log(multiple) - math.log(before[1]))
            return float(before[0] + (share - before[0]) * part)
        before = share, max(multiple, 1e-3)
    return before[0]


def holds(result: Result) -> bool:
    """Whether no more requests than are forgiven are late at the estimated rate."""
    shares, multiples = zip((0.0, 0.0), *result["curve"], strict=True)
    return float(np.interp(result["estimated"], shares, multiples)) <= 1


def tables(results: Sequence[Result]) -> str:
    """The study as Markdown."""
    groups: list[tuple[str, list[Result]]] = [("all", list(results))]
    groups += [(name, [r for r in results if r["family"] == name]) for name in sorted({r["family"] for r in results})]
    lines = [
        "| deployments | | estimated | holds | at least (95%) | of the highest: median | 10th percentile |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, mine in groups:
        told = [r for r in mine if r["estimated"] is not None]
        kept = sum(map(holds, told))
        ratios = [(r["estimated"] or 0.0) / most(r) for r in mine if most(r) > 0]
        middle, tenth = np.quantile(ratios, [0.5, 0.1])
        low = clopper_pearson(kept, len(told))[0]
        lines.append(f"| {name} | {len(mine)} | {len(told)} | {kept} | {low:.0%} | {middle:.0%} | {tenth:.0%} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--deployments", type=int, default=60)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--tables", action="store_true", help="print the results so far and stop")
    options = parser.parse_args(arguments)
    done = {int(r["number"]) for r in people.known(options.results)}
    if not options.tables:
        with options.results.open("a") as file:
            for number in range(options.deployments):
                if number not in done:
                    file.write(json.dumps(deployment(number)) + "\n")
                    file.flush()
    print(tables(people.known(options.results)))


if __name__ == "__main__":
    main()
