"""How far off the time left of a sweep is, at each tenth of it: what docs/prediction.md says of it.

Run: python -m benchmarks.time_left [sweeps]

Sweeps of the calibration study's deployments (`benchmarks.calibration`) are replayed in virtual time: the search, the
completion of the frontier and the visits ask for the trials, and before each the time left is estimated as a sweep
does. A reading is what the progress line shows at a tenth of the sweep: what was said last, less the time since.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.calibration.rules import GRID, _around
from benchmarks.calibration.servers import FAMILIES, Process
from frontier.budget import Amount, Expected, TimeEstimator, TrialTimes, ahead
from frontier.config import Config, load_config
from frontier.decide import completion, search
from frontier.decide.proof import History
from frontier.decide.search import Ask, Done, SearchPolicy
from frontier.model import Phase, Series, Trial
from frontier.plan import Plan, make_plan, make_trial

WITHIN, BOUND = 1.5, 0.95
"""Factor of a reading that is right, and the share of readings whose bound is kept."""
TENTHS = tuple(range(10))
MOST = 200
"""Trials of a sweep at most; one that is not over by then is a defect of what asks for them."""


@dataclass(frozen=True, slots=True)
class Reading:
    """At `tenth` tenths of a sweep: seconds left as said, as bounded, and as it turned out."""

    tenth: int
    said: float
    bound: float
    true: float

    @property
    def right(self) -> bool:
        """Whether it is within the factor."""
        return self.true / WITHIN <= self.said <= self.true * WITHIN


def config_of(server: Process) -> Config:
    """The config that a user of this deployment would write, with all sizes left to the sweep."""
    sla = ", ".join(f"{limit.metric}: {1e3 * limit.promise:.4f}ms" for limit in server.limits)
    lines = (
        "endpoint: http://localhost:8000/v1", "model: m", f"shapes: [{server.shape.label}]",
        f"concurrency: {list(GRID)}", f"sla: {{{sla}}}",
    )  # fmt: skip
    return load_config("\n".join(lines), "calibration")


class Sweep:
    """One sweep of a deployment, as far as it went."""

    def __init__(self, server: Process, seed: int) -> None:
        self.server, self.seed = server, seed
        self.config = config_of(server)
        self.plan: Plan = make_plan(self.config)
        self.deployment = self.config.deployments[0]
        self.shape = self.config.shapes[0]
        self.series = Series(self.deployment.name, self.shape)
        self.estimator = TimeEstimator(self.config)
        self.policy = SearchPolicy(tuple(self.config.concurrency))
        self.history: History = []
        self.taken: list[tuple[Trial, Amount]] = []
        self.clock = 0.0

    def run(self) -> list[tuple[float, Expected]]:
        """When the time left was said, and what."""
        said = []
        while len(self.taken) < MOST:
            ask = search.next_ask(self.policy, self.shape, self.config.tiers, self.history)
            after = self._completion() if isinstance(ask, Done) else ask
            if isinstance(after, Done):
                return said
            said.append((self.clock, self._expected(ask)))
            self._measure(after)
        raise RuntimeError(f"{self.server.family} {self.server.seed}: {MOST} trials, and no end")

    def _completion(self) -> Ask | Done:
        measured = {trial.concurrency for trial, _ in self.history}
        looks = {c: self._trial(Ask(c, Phase.GRID, 1, "")) for c in self.policy.grid}
        skipped = [c for c, t in looks.items() if search.skip_reason(t, self.history, self.config.limits)]
        grid = tuple(c for c in self.policy.grid if c in measured or c not in skipped)
        return completion.next_ask(replace(self.policy, grid=grid), self.shape, self.config.tiers, self.history)

    def _expected(self, ask: Ask | Done) -> Expected:
        finished = {trial.key: trial for trial, _ in self.history}
        todo = self.plan.left(finished)
        left = ahead(self.config, self.deployment, self.shape, todo, finished.values(), ask if finished else None)
        if isinstance(ask, Done):
            visit = completion.next_visit(self.config.limits, self.history)
            left = replace(left, rest=(*left.rest, *([self._trial(visit)] if visit else [])))
        times = TrialTimes(tuple(self.taken))
        return self.estimator.expected(left, times, {self.series: self.history})

    def _trial(self, ask: Ask) -> Trial:
        repeat = 1 + sum((t.concurrency, t.phase) == (ask.concurrency, ask.phase) for t, _ in self.history)
        size = ask.requests, ask.seconds
        return make_trial(self.config, self.deployment, self.shape, ask.concurrency, ask.phase, repeat, *size)

    def _measure(self, ask: Ask) -> None:
        trial, c = self._trial(ask), ask.concurrency
        sample = self.server.trial(trial, 100_000 * self.seed + len(self.taken), self.clock)
        sample = replace(sample, deployment=self.deployment.name)
        took = _around(c, sample.n, float((sample.ends - sample.starts).sum()), ask.phase)
        self.history = [*self.history, (trial, sample)]
        self.taken.append((trial, Amount(took, sample.n + 3 * c, float(sample.completion_tokens.sum()))))
        self.clock += took


def readings(server: Process, seed: int) -> list[Reading]:
    """What one sweep showed at each tenth of its time."""
    sweep = Sweep(server, seed)
    said = sweep.run()
    found = []
    for tenth in TENTHS if said else ():
        now = sweep.clock * tenth / len(TENTHS)
        at, expected = max((each for each in said if each[0] <= now), key=lambda each: each[0])
        left, bound = (max(0.0, seconds - (now - at)) for seconds in (expected.seconds, expected.longest))
        found.append(Reading(tenth, left, bound, sweep.clock - now))
    return found


def table(found: Sequence[Reading]) -> str:
    """Per tenth of a sweep: median of said over true, share within the factor, share of bounds kept."""
    lines = [f"{'after':<6}{'said / true':>12}{f'within {WITHIN:g}':>12}{'bound kept':>12}"]
    for tenth in (*TENTHS, None):
        mine = [reading for reading in found if tenth in (None, reading.tenth)]
        ratio = float(np.median([reading.said / reading.true for reading in mine]))
        right = sum(reading.right for reading in mine) / len(mine)
        kept = sum(reading.bound >= reading.true for reading in mine) / len(mine)
        name = "all" if tenth is None else f"{tenth * 10} %"
        lines.append(f"{name:<6}{ratio:>12.2f}{right:>12.0%}{kept:>12.0%}")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    found: list[Reading] = []
    for i in range(count):
        found += readings(Process.drawn(FAMILIES[i % len(FAMILIES)], i // len(FAMILIES)), i + 1)
        print(f"\r{i + 1}/{count}", end="", file=sys.stderr, flush=True)
    print("\n" + table(found))


if __name__ == "__main__":
    main()
