"""Sweeps of a server that changes meanwhile: is the answer about the server as it is at the end?

python -m benchmarks.calibration.changes [--sweeps N] [--results FILE] [--tables]

A deployment of one of the steady families is drawn as in the study. At a random time of its sweep
every latency becomes 1.1 to 5 times as long, or as short (a step), or all grow steadily (a creep).
The truth is the law when the last window of the series starts.
"""

import argparse
import dataclasses
import math
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.calibration import rules
from benchmarks.calibration.servers import NIGHT, Law, Process, Truth, _between, excess
from benchmarks.calibration.study import Result, run_missing
from benchmarks.calibration.sweep import Sweep
from frontier.core.claim.changes import unchanged
from frontier.core.model.trials import Trial
from frontier.core.stats import intervals
from frontier.core.window.window import WindowData

FAMILIES = ("smooth", "cliff", "queue_capped")
KINDS = ("step up", "step down", "step up", "creep")
LONGEST = 25.0
"""The step comes within this many times the reference time: sweeps take about as long."""
STEPS = ((1.1, 1.5), (1.5, 5.0))


@dataclasses.dataclass(frozen=True, slots=True)
class Course:
    """By which factor latencies are longer at a time of the sweep."""

    kind: str
    factor: float = 1.0
    at: float = 0.0
    per_minute: float = 0.0

    @classmethod
    def drawn(cls, number: int, reference: float) -> "Course":
        """That of the sweep with this number, whose reference time is known."""
        rng, kind = np.random.default_rng([number, 91]), KINDS[number % len(KINDS)]
        if kind == "creep":
            return cls(kind, per_minute=_between(rng, 0.005, 0.5))
        factor = _between(rng, *STEPS[number // len(KINDS) % 2])
        return cls(kind, factor if kind == "step up" else 1 / factor, rng.uniform(0.0, LONGEST) * reference)

    def of(self, seconds: np.ndarray[Any, np.dtype[np.float64]] | float) -> Any:
        """The factor at these times."""
        return np.where(np.asarray(seconds) >= self.at, self.factor, 1.0) * (1 + self.per_minute * seconds / 60)


class Changing(Process):
    """A deployment whose latencies follow a course."""

    def __init__(self, base: Process, course: Course) -> None:
        super().__init__(base.law, base.family, base.limits, base.seed)
        self.base, self.course = base, course

    def trial(self, trial: Trial, seed: int, at: float | None = None) -> WindowData:
        """One window. Its law is that of its start; later requests are longer as it goes on."""
        assert at is not None
        begun = float(self.course.of(at))
        now = Process(_scaled(self.base.law, begun), self.family, self.limits, self.seed)
        found = now.trial(trial, seed, at)
        more = self.course.of(found.sent - 1e9 * (seed // NIGHT)) / begun
        return dataclasses.replace(found, ttft=found.ttft * more, tpot=found.tpot * more, e2e=found.e2e * more)

    def truth(self, concurrency: int) -> Truth:
        """That of the server before it changes."""
        return self.base.truth(concurrency)


def _scaled(law: Law, factor: float) -> Law:
    return dataclasses.replace(law, tpot=law.tpot * factor, ttft=law.ttft * factor)


def swept(number: int) -> Result | None:
    """One sweep; None where the deployment has no answer even without a change."""
    base = Process.drawn(FAMILIES[number % len(FAMILIES)], 10_000 + number)
    best = rules.best(base).load
    if best is None:
        return None
    course = Course.drawn(number, rules.reference_seconds(base, best))
    server = Changing(base, course)
    sweep = Sweep(server, 1)
    sweep.run()
    decision = sweep.decision()
    last = float(sweep.history[-1][1].starts[-1]) % 1e9
    factor, c = float(course.of(last)), decision.load
    return {
        "number": number,
        "kind": course.kind,
        "size": math.exp(abs(math.log(course.factor))),
        "per_minute": course.per_minute,
        "happened": course.kind == "creep" or course.at < last,
        "c": c,
        "verdict": decision.verdict.value,
        "excess": None if c is None else excess(base, c) * factor,
        "seconds": sweep.clock,
        "changes": len(unchanged(sweep.history, base.limits).changes),
        "feasible": excess(base, 1) * factor <= 1,
    }


def table(results: Iterable[Result]) -> str:
    """What came of it, as Markdown."""
    found = list(results)
    lines = [
        "| change | sweeps | exit 0 | of these break the SLA | by over 10% | noticed |",
        "|---|---|---|---|---|---|",
    ]
    groups: list[tuple[str, list[Result]]] = []
    for kind in ("step up", "step down"):
        for low, high in STEPS:
            mine = [r for r in found if r["kind"] == kind and r["happened"] and low <= r["size"] < high]
            groups.append((f"{kind}, {low:g} to {high:g} times", mine))
    groups.append(("step after the end", [r for r in found if not r["happened"]]))
    for low, high in ((0.005, 0.05), (0.05, 0.5)):
        mine = [r for r in found if r["kind"] == "creep" and low <= r["per_minute"] < high]
        groups.append((f"creep, {100 * low:g} to {100 * high:g} % a minute", mine))
    for name, mine in groups:
        answers = [r for r in mine if r["c"] is not None]
        broken, far = ([r for r in answers if r["excess"] > limit] for limit in (1.0, 1.1))
        noticed = sum(r["changes"] > 0 for r in mine)
        cells = name, len(mine), len(answers), share_text(broken, answers), share_text(far, answers), noticed
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def share_text(some: Sequence[Result], of: Sequence[Result]) -> str:
    """A share with its interval."""
    if not of:
        return "–"
    low, high = intervals.clopper_pearson(len(some), len(of))
    return f"{len(some) / len(of):.1%} ({len(some)}), {low:.0%} to {high:.0%}"


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration.changes", description=__doc__)
    parser.add_argument("--sweeps", type=int, default=120)
    parser.add_argument("--results", type=Path, help="a file of results to go on from and add to")
    parser.add_argument("--tables", action="store_true", help="only print the table of what the file holds")
    asked = parser.parse_args()
    jobs = (({"number": n}, partial(swept, n)) for n in range(0 if asked.tables else asked.sweeps))
    print(table(run_missing(asked.results, jobs)))


if __name__ == "__main__":
    main()
