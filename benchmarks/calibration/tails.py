"""Sweeps of a server whose tail alone changes: is the answer about the server as it is at the end?

python -m benchmarks.calibration.tails [--sweeps N] [--steady] [--results FILE] [--tables]

The family `tail_step`: the time to first token hardly varies and does not grow with load. From a
random request on, 2, 3 or 5% of the requests take twice the limit, for good; in a fourth family
they come in runs of eight. No setting keeps the limit then. `--steady` sweeps deployments of the
study that do not change: how often is a setting proven anew, and how much later do they end?
"""

import argparse
import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.calibration.changes import share_text
from benchmarks.calibration.servers import Law, Process, Truth, _between, excess
from benchmarks.calibration.study import Result, run_missing
from benchmarks.calibration.sweep import Sweep
from frontier.core.claim.changes import unchanged
from frontier.core.model.decisions import Limit
from frontier.core.model.trials import Trial
from frontier.core.window.window import WindowData

SHARES = (0.02, 0.03, 0.05)
GRIDS = ("[2, 8]", "[1, 4, 16]", "[2, 8]", "[1, 2, 4, 8, 16]")
RUN = 8
"""Slow requests that follow each other in the family of bursts."""
LATEST = 6_000
"""The tail changes within so many requests: sweeps send about as many."""
STEADY = ("smooth", "cliff", "queue_capped", "stalling", "drifting", "noisy", "rare_stalls", "non_monotone")


class TailStep(Process):
    """A server of which a share of the requests becomes slow after the request number `after`."""

    def __init__(self, number: int, *, bursts: bool = False) -> None:
        rng = np.random.default_rng([number, 92])
        median, width = _between(rng, 0.01, 0.1), rng.uniform(0.02, 0.15)
        law = Law(_between(rng, 2e-3, 8e-3), 1e6, 1.0, median, 1e6, 1.0, 8.0, 0.0, 0.01, width, 0.0, 0.0, 0.0, 0.0)
        super().__init__(law, "tail_step", (Limit("p99_ttft", median * rng.uniform(1.8, 3.0)),), number)
        self.share, self.length = (0.013, RUN) if bursts else (SHARES[number % 3], 1)
        self.after = 0 if bursts else int(rng.integers(0, LATEST))
        self.sent = 0

    def trial(self, trial: Trial, seed: int, at: float | None = None) -> WindowData:
        """One window, with the warm-up's requests before it."""
        found = super().trial(trial, seed, at)
        rng = np.random.default_rng([self.seed, seed, 93])
        starts = rng.random(found.n) < self.share / self.length
        slow = np.convolve(starts, np.ones(self.length))[: found.n] > 0
        slow &= self.sent + 3 * trial.load + np.arange(found.n) >= self.after
        self.sent += found.n + 3 * trial.load
        ttft = np.where(slow, 2 * self.limits[0].promise, found.ttft)
        return dataclasses.replace(found, ttft=ttft, e2e=found.e2e + ttft - found.ttft)

    def truth(self, concurrency: int) -> Truth:
        """That of the server at the end of a sweep."""
        late = {"p99_ttft": 2 * self.limits[0].promise} if self.sent > self.after else {}
        return super().truth(concurrency) | late


def swept(number: int, *, bursts: bool = False) -> Result:
    """One sweep of the family."""
    server = TailStep(number, bursts=bursts)
    sweep = Sweep(server, 1, GRIDS[number % len(GRIDS)])
    sweep.run()
    return {
        "family": "bursts" if bursts else f"{server.share:.0%} slow",
        "happened": server.sent > server.after,
    } | _end(number, sweep)


def steady(number: int) -> Result | None:
    """One sweep of a deployment that does not change."""
    family = STEADY[number % len(STEADY)]
    sweep = Sweep(Process.drawn(family, 20_000 + number), 1)
    sweep.run()
    return {"family": family, "happened": False} | _end(number, sweep)


def _end(number: int, sweep: Sweep) -> Result:
    decision = sweep.decision()
    c = decision.load
    kept = unchanged(sweep.history, sweep.server.limits)
    return {
        "number": number,
        "c": c,
        "verdict": decision.verdict.value,
        "excess": None if c is None else excess(sweep.server, c),
        "seconds": sweep.clock,
        "trials": len(sweep.history),
        "changes": len(kept.changes),
        "anew": len(getattr(kept, "doubted", ())),
    }


def table(results: Sequence[Result]) -> str:
    """What came of it, as Markdown."""
    lines = ["| family | sweeps | exit 0 | of all sweeps | proven anew | changes |", "|---|---|---|---|---|---|"]
    for family in dict.fromkeys(r["family"] for r in results):
        mine = [r for r in results if r["family"] == family]
        for happened in (True, False):
            some = [r for r in mine if r["happened"] == happened]
            if some:
                name = family if happened or family in STEADY else f"{family}, after the end"
                answers = [r for r in some if r["c"] is not None]
                anew = sum(r["anew"] > 0 for r in some)
                changed = sum(r["changes"] > 0 for r in some)
                cells = name, len(some), len(answers), share_text(answers, some), anew, changed
                lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration.tails", description=__doc__)
    parser.add_argument("--sweeps", type=int, default=60)
    parser.add_argument("--steady", action="store_true", help="deployments that do not change")
    parser.add_argument("--bursts", action="store_true", help="runs of slow requests")
    parser.add_argument("--results", type=Path, help="a file of results to go on from and add to")
    parser.add_argument("--tables", action="store_true", help="only print the table of what the file holds")
    asked = parser.parse_args()
    sweep = steady if asked.steady else partial(swept, bursts=asked.bursts)
    jobs = (({"number": n}, partial(sweep, n)) for n in range(0 if asked.tables else asked.sweeps))
    print(table(run_missing(asked.results, jobs)))


if __name__ == "__main__":
    main()
