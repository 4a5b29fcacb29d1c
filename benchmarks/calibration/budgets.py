"""python -m benchmarks.calibration.budgets [--deployments N] [--results FILE]

How often is there an answer at the end of a short time budget? The budgets are multiples of the
reference time of a deployment, in which its best setting alone could be proven.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.calibration.__main__ import by_seed
from benchmarks.calibration.rules import best, reference_seconds
from benchmarks.calibration.servers import Process, excess
from benchmarks.calibration.sweep import Sweep

TIMES = (1, 2, 3, 5)
DRAWN = (
    "smooth",
    "cliff",
    "queue_capped",
    "drifting",
    "stalling",
    "non_monotone",
    "fixed_lengths",
    "noisy",
    "rare_stalls",
    "heavy_tail",
    "slow_speed",
)


def job(seed: int) -> dict[str, Any]:
    """What sweeps of one deployment answered within each budget, with the truth of it; `by_times`
    is empty where no setting keeps the SLA.
    """
    number, family = divmod(seed, len(DRAWN))
    server = Process.drawn(DRAWN[family], number)
    top = best(server)
    found: dict[str, Any] = {"seed": seed, "family": server.family, "best": top.load, "by_times": {}}
    for times in TIMES if top.load is not None else ():
        sweep = Sweep(server, 1)
        sweep.run(times * reference_seconds(server, top.load or 1))
        c = sweep.decision().load
        rate = 0.0 if c is None else server.truth(c)["output_throughput"]
        found["by_times"][str(times)] = {
            "answer": c,
            "excess": None if c is None else excess(server, c),
            "share": min(1.0, rate / max(top.throughput, 1e-9)),
            "trials": [f"{t.phase.value} {t.load}" for t, _ in sweep.history],
        }
    return found


def table(results: Sequence[dict[str, Any]]) -> str:
    """Answers, the share of the best throughput that they give, and those that break their SLA."""
    lines = ["budget, in reference times | answered | mean share where answered | break the SLA"]
    for times in map(str, TIMES):
        each = [r["by_times"][times] for r in results if r["by_times"]]
        answered = [one for one in each if one["answer"] is not None]
        mean = f"{np.mean([one['share'] for one in answered]):.0%}" if answered else "-"
        broken = sum(one["excess"] > 1 for one in answered)
        lines.append(f"{times} | {len(answered)} of {len(each)} | {mean} | {broken}")
    return "\n".join(lines)


if __name__ == "__main__":
    by_seed("budgets", __doc__, 88, job, table)
