"""Sweeps of servers to which something happens that the other studies of changes do not draw.

python -m benchmarks.calibration.events [--sweeps N] [--kind KIND] [--results FILE] [--tables]

From a random request on some requests are slow or fail: for good, for a while, or of one class. Or
a cache warms, the server restarts, or each minute takes 1% longer. Counted are the sweeps that exit
0 with a setting that breaks the SLA by the law when their last window begins.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.calibration import rules
from benchmarks.calibration.changes import LONGEST, Changing, share_text
from benchmarks.calibration.servers import NIGHT, Process, Truth, excess
from benchmarks.calibration.study import Result, run_missing
from benchmarks.calibration.sweep import Sweep
from benchmarks.calibration.tails import GRIDS, TailStep
from frontier.core.claim.changes import unchanged
from frontier.core.model.decisions import Limit
from frontier.core.model.trials import Trial
from frontier.core.window.window import WindowData

LONG = "long prompts slow"
"""A tenth of the requests have long prompts, and a third of those becomes slow."""
NEAR = "15% slow, little headroom"
"""Requests hardly vary, and usual ones take 92 to 99% of a limit on a p90."""
SLOW = {
    "2% slow": 0.02,
    "3% slow": 0.03,
    "5% slow": 0.05,
    "10% slow": 0.1,
    "5% slow for a while": 0.05,
    LONG: 1 / 30,
    NEAR: 0.15,
}
FAIL = {"1% fail": 0.01, "5% fail": 0.05}
TIMED = ("a cache warms", "a restart", "a restart, slower after", "1% a minute")
KINDS = (*SLOW, *FAIL, *TIMED)


def failing(sample: WindowData, failed: np.ndarray[Any, np.dtype[np.bool_]]) -> WindowData:
    """The window in which these requests fail."""
    ways = {name: np.where(failed, np.inf, getattr(sample, name)) for name in ("ttft", "tpot", "e2e")}
    return dataclasses.replace(sample, ok=sample.ok & ~failed, **ways)


class Happens(TailStep):
    """A server of which a share of the requests becomes slow or fails from a request on."""

    def __init__(self, number: int, kind: str) -> None:
        super().__init__(number)
        rng = np.random.default_rng([number, 96])
        self.kind, self.share = kind, (SLOW | FAIL)[kind]
        self.until = self.after + int(rng.integers(500, 3000)) if "while" in kind else 1 << 40
        if kind in FAIL:
            self.limits = (*self.limits, Limit("error_rate", self.share / 2))
        if kind == NEAR:  # a p90 takes fewer requests
            self.after //= 5
            self.law = dataclasses.replace(self.law, ttft_noise=0.002)
            self.limits = (Limit("p90_ttft", self.law.ttft / rng.uniform(0.92, 0.99)),)

    def trial(self, trial: Trial, seed: int, at: float | None = None) -> WindowData:
        """One window, with the warm-up's requests before it."""
        found = Process.trial(self, trial, seed, at)
        rng = np.random.default_rng([self.seed, seed, 97])
        order = self.sent + 3 * trial.load + np.arange(found.n)
        self.sent += found.n + 3 * trial.load
        hit = (order >= self.after) & (order < self.until) & (rng.random(found.n) < self.share)
        if self.kind in FAIL:
            return failing(found, hit)
        ttft = np.where(hit, 2 * self.limits[0].promise, found.ttft)
        return dataclasses.replace(found, ttft=ttft, e2e=found.e2e + ttft - found.ttft)

    @property
    def happens(self) -> bool:
        """Whether it does so at the end of what was sent."""
        return self.after < self.sent < self.until

    def truth(self, concurrency: int) -> Truth:
        """That of the server at the end of a sweep."""
        true = Process(self.law, self.family, self.limits[:1], self.seed).truth(concurrency)
        if not self.happens:
            return true | ({"error_rate": 0.0} if self.kind in FAIL else {})
        if self.kind in FAIL:
            return true | {"error_rate": self.share}
        return true | {self.limits[0].metric: 2 * self.limits[0].promise}


@dataclasses.dataclass(frozen=True, slots=True)
class Timed:
    """By which factor latencies are longer at a time of the sweep, and when all requests fail."""

    kind: str
    at: float

    def of(self, seconds: Any) -> Any:
        """The factor at these times."""
        later = np.asarray(seconds) - self.at
        if self.kind == "a cache warms":
            return 1 + 0.5 * np.exp(-np.asarray(seconds) / 200)
        if self.kind == "1% a minute":
            return 1 + 0.01 * np.asarray(seconds) / 60
        after = 1.3 if "slower" in self.kind else 1.0
        return np.where(later < 0, 1.0, np.where(later < 60, 2 * after, after))

    def fails(self, seconds: Any) -> Any:
        """Whether requests that are sent at these times fail."""
        later = np.asarray(seconds) - self.at
        return (later >= 0) & (later < 20) if "restart" in self.kind else np.zeros(np.shape(later), dtype=bool)


class Restarts(Changing):
    """A deployment whose latencies follow a course, and which is away for a while."""

    def trial(self, trial: Trial, seed: int, at: float | None = None) -> WindowData:
        """One window."""
        found = super().trial(trial, seed, at)
        return failing(found, self.course.fails(found.sent - 1e9 * (seed // NIGHT)))


def swept(number: int, kind: str) -> Result | None:
    """One sweep; None where the deployment has no answer even without a change."""
    server, grid = _timed(number, kind) if kind in TIMED else (Happens(number, kind), GRIDS[number % len(GRIDS)])
    if server is None:
        return None
    sweep = Sweep(server, 1) if grid is None else Sweep(server, 1, grid)
    sweep.run()
    decision = sweep.decision()
    last = float(sweep.history[-1][1].starts[-1]) % 1e9
    factor = float(server.course.of(last)) if isinstance(server, Restarts) else 1.0
    c = decision.load
    return {
        "kind": kind,
        "number": number,
        "happened": server.happens if isinstance(server, Happens) else server.course.at < last,
        "c": c,
        "verdict": decision.verdict.value,
        "excess": None if c is None else excess(server, c) * factor,
        "seconds": sweep.clock,
        "trials": len(sweep.history),
        "changes": len(unchanged(sweep.history, server.limits).changes),
        "anew": len(unchanged(sweep.history, server.limits).doubted),
    }


def _timed(number: int, kind: str) -> tuple[Restarts | None, None]:
    family = ("smooth", "cliff", "queue_capped")[number % 3]
    base = Process.drawn(family, 30_000 + number)
    best = rules.best(base).load
    if best is None:
        return None, None
    at = np.random.default_rng([number, 98]).uniform(0, LONGEST) * rules.reference_seconds(base, best)
    return Restarts(base, Timed(kind, 0.0 if kind in (TIMED[0], TIMED[-1]) else at)), None


def table(results: Sequence[Result]) -> str:
    """What came of it, as Markdown."""
    lines = [
        "| kind | sweeps | exit 0 | of all sweeps break the SLA | by over 10% | changes |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for kind in KINDS:
        if mine := [r for r in results if r["kind"] == kind]:
            answers = [r for r in mine if r["c"] is not None]
            broken, far = ([r for r in answers if r["excess"] > most] for most in (1.0, 1.1))
            cells = (
                kind,
                len(mine),
                len(answers),
                share_text(broken, mine),
                len(far),
                sum(r["changes"] > 0 for r in mine),
            )
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration.events", description=__doc__)
    parser.add_argument("--sweeps", type=int, default=12, help="of each kind")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, help="only this kind")
    parser.add_argument("--results", type=Path, help="a file of results to go on from and add to")
    parser.add_argument("--tables", action="store_true", help="only print the table of what the file holds")
    asked = parser.parse_args()
    numbers = range(asked.first, asked.first + (0 if asked.tables else asked.sweeps))
    kinds = (asked.kind,) if asked.kind else KINDS
    jobs = (({"kind": kind, "number": n}, partial(swept, n, kind)) for n in numbers for kind in kinds)
    print(table(run_missing(asked.results, jobs)))


if __name__ == "__main__":
    main()
