"""How often the time left of a sweep holds, at each tenth of it: the figures of docs/unattended.md.

Run: python -m benchmarks.time_left [sweeps]

Sweeps of the calibration study's deployments (`benchmarks.calibration`) are replayed in virtual
time, and the time left is read as the progress line shows it at each tenth of a sweep: what was
said last, less the time since. Nothing is said before the first trial has ended, and while proofs
go on only the least time. A sweep is held where nine of ten of its readings hold.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.calibration.servers import FAMILIES, Process
from benchmarks.calibration.sweep import Step, Sweep
from frontier.core.model.trials import Phase
from frontier.planning.time_left import TimeLeft
from frontier.search.next_trial import Done

TENTHS = tuple(range(10))
SIZED_BY_SWEEP = tuple(family for family in FAMILIES if family != "stated_sizes")
STAGES = ("scan", "proofs", "completion")


@dataclass(frozen=True, slots=True)
class Reading:
    """At `tenth` tenths of a sweep: the time left as said, and the seconds that it turned out to
    be; the stage then.
    """

    tenth: int
    said: TimeLeft
    true: float
    stage: str = "scan"

    @property
    def holds(self) -> bool:
        """Whether the truth lies in the range shown."""
        low, high = self.said.range
        return low <= self.true <= high


def readings(sweep: Sweep, steps: Sequence[Step]) -> list[Reading]:
    """What one sweep, which took these steps, showed at each tenth of its time."""
    found = []
    for tenth in TENTHS if steps else ():
        now = sweep.clock * tenth / len(TENTHS)
        step = max((each for each in steps if each.at <= now), key=lambda each: each.at)
        left = sweep.time_left(step)
        if left is not None:
            found.append(Reading(tenth, left.after(now - step.at), sweep.clock - now, _stage(step)))
    return found


def _stage(step: Step) -> str:
    """What a sweep does at this step; candidates after the first that is proven are of the search
    as well.
    """
    if isinstance(step.ask, Done):
        return "completion"
    return "proofs" if step.ask.phase is Phase.PROVE else "scan"


def table(sweeps: Sequence[Sequence[Reading]]) -> str:
    """Per tenth of a sweep, per stage, of ranges and of least times, and of all: n, the share of
    ranges among them, quantiles of true over said, the share that holds; and how many sweeps are
    held.
    """
    every = [reading for sweep in sweeps for reading in sweep]
    lines = [f"{'after':<11}{'n':>6}{'ranges':>9}{'true / said: 5%':>18}{'median':>8}{'95%':>8}{'holds':>8}"]
    groups = {f"{tenth * 10} %": [r for r in every if r.tenth == tenth] for tenth in TENTHS}
    groups |= {stage: [r for r in every if r.stage == stage] for stage in STAGES}
    groups |= {"ranges": [r for r in every if not r.said.open], "at least": [r for r in every if r.said.open]}
    for name, mine in {**groups, "all": every}.items():
        if mine:
            low, middle, high = np.quantile([r.true / max(r.said.seconds, 1e-9) for r in mine], (0.05, 0.5, 0.95))
            ranges, held = (
                sum(flags) / len(mine) for flags in ([not r.said.open for r in mine], [r.holds for r in mine])
            )
            lines.append(f"{name:<11}{len(mine):>6}{ranges:>9.0%}{low:>18.2f}{middle:>8.2f}{high:>8.2f}{held:>8.0%}")
    kept = sum(sum(r.holds for r in sweep) >= 0.9 * len(sweep) for sweep in sweeps if sweep)
    return "\n".join([*lines, f"{kept} of {sum(map(bool, sweeps))} sweeps are held"])


def main() -> None:
    """Print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    sweeps: list[list[Reading]] = []
    for i in range(count):
        family, seed = SIZED_BY_SWEEP[i % len(SIZED_BY_SWEEP)], i // len(SIZED_BY_SWEEP)
        sweep = Sweep(Process.drawn(family, seed), i + 1)
        sweeps.append(readings(sweep, sweep.run()))
        print(f"\r{i + 1}/{count}", end="", file=sys.stderr, flush=True)
    print("\n" + table(sweeps))


if __name__ == "__main__":
    main()
