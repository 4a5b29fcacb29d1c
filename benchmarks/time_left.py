"""How far off the time left of a sweep is, at each tenth of it: what docs/prediction.md says of it.

Run: python -m benchmarks.time_left [sweeps]

Sweeps of the calibration study's deployments (`benchmarks.calibration`) are replayed in virtual time: the search, the
completion of the frontier and the visits ask for the trials, and the time left is estimated before them as a sweep
does. A reading is what the progress line shows at a tenth of the sweep: what was said last, less the time since.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.calibration.rules import GRID, _around
from benchmarks.calibration.servers import FAMILIES, Process
from frontier.budget import Amount, TrialTimes
from frontier.config import Config, load_config
from frontier.decide import completion, search
from frontier.decide.proof import History
from frontier.decide.search import Ask, Done
from frontier.forecast import Expected, TimeEstimator, ahead
from frontier.model import Series, Trial
from frontier.plan import Plan, make_plan, make_trial, search_policy

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


@dataclass(frozen=True, slots=True)
class Step:
    """Before a trial: when, how many are finished, and what the search and the completion ask for."""

    at: float
    trials: int
    ask: Ask | Done
    later: Ask | Done


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
        self.policy = search_policy(self.config)
        self.history: History = []
        self.taken: list[tuple[Trial, Amount]] = []
        self.clock = 0.0

    def run(self) -> list[Step]:
        """What was asked for before each trial, and when."""
        steps: list[Step] = []
        arguments = self.policy, self.shape, self.config.tiers
        while len(self.taken) < MOST:
            ask = search.next_ask(*arguments, self.history)
            later = completion.next_ask(*arguments, self.history) if isinstance(ask, Done) else ask
            if isinstance(later, Done):
                return steps
            steps.append(Step(self.clock, len(self.history), ask, later))
            self._measure(later)
        raise RuntimeError(f"{self.server.family} {self.server.seed}: {MOST} trials, and no end")

    def expected(self, step: Step) -> Expected:
        """The time left as the sweep says it before this trial."""
        history, times = self.history[: step.trials], TrialTimes(tuple(self.taken[: step.trials]))
        left = ahead(self.config, self.series, self.plan.trials, history, self.policy, step.ask, step.later)
        return self.estimator.expected(left, times, {self.series: history})

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
    steps = sweep.run()
    found = []
    for tenth in TENTHS if steps else ():
        now = sweep.clock * tenth / len(TENTHS)
        step = max((each for each in steps if each.at <= now), key=lambda each: each.at)
        expected = sweep.expected(step)
        left, bound = (max(0.0, seconds - (now - step.at)) for seconds in (expected.seconds, expected.longest))
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
