"""How far off the time left of a sweep is, at each tenth of it: what docs/prediction.md says of it.

Run: python -m benchmarks.time_left [sweeps]

Sweeps of the calibration study's deployments (`benchmarks.calibration`) are replayed in virtual
time: the search, the completion of the frontier and the visits ask for the trials, and the time
left is estimated before them as a sweep does. A reading is what the progress line shows at a tenth
of the sweep: what was said last, less the time since.

The last row is what no forecast from the same states can beat: each state of a search (the stage,
whether something is proven, how many candidates were given up, how far the proof is) has its
readings multiplied by the factor that makes most of them right in hindsight.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.calibration.servers import FAMILIES, Process
from benchmarks.calibration.sweep import Step, Sweep
from frontier.decide import proof
from frontier.decide.search import Done
from frontier.model import Phase, Verdict

WITHIN = 1.5
"""Factor of a reading that is right."""
TENTHS = tuple(range(10))
SIZED_BY_SWEEP = tuple(family for family in FAMILIES if family != "stated_sizes")
STAGES = ("scan", "proofs", "completion")
FACTORS = tuple(float(f) for f in np.geomspace(1 / 8, 8, 61))
"""By which the readings of a state may be multiplied in hindsight."""
State = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """At `tenth` tenths of a sweep: seconds left as said, as bounded, and as it turned out; the
    stage then, and what else of the search's state may tell how long it goes on.
    """

    tenth: int
    said: float
    bound: float
    true: float
    stage: str = "scan"
    state: State = ()

    @property
    def right(self) -> bool:
        """Whether it is within the factor."""
        return self.true / WITHIN <= self.said <= self.true * WITHIN


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
        found.append(Reading(tenth, left, bound, sweep.clock - now, _stage(step), _state(sweep, step)))
    return found


def _stage(step: Step) -> str:
    """What a sweep does at this step; candidates after the first that is proven are of the search
    as well.
    """
    if isinstance(step.ask, Done):
        return "completion"
    return "proofs" if step.ask.phase is Phase.PROVE else "scan"


def _state(sweep: Sweep, step: Step) -> State:
    """What of a search before this step may tell how many windows are to come."""
    if (stage := _stage(step)) != "proofs" or isinstance(step.ask, Done):
        return (stage,)
    judged = proof.candidates(sweep.history[: step.trials], sweep.server.limits)
    verdicts = [candidate.verdict for candidate in judged]
    begun = next((k.windows for k in judged if k.concurrency == step.ask.concurrency), 0)
    looks = sum(look <= begun for look in proof.LOOKS)
    given_up = min(3, verdicts.count(Verdict.VIOLATES))
    return stage, Verdict.MEETS in verdicts, given_up, looks, step.ask.concurrency == 1


def in_hindsight(found: Sequence[Reading]) -> list[Reading]:
    """The readings, those of each state times the factor that makes most of them right."""
    best: list[Reading] = []
    for state in {reading.state for reading in found}:
        mine = [reading for reading in found if reading.state == state]
        tried = ([replace(reading, said=reading.said * factor) for reading in mine] for factor in FACTORS)
        best += max(tried, key=lambda readings: sum(reading.right for reading in readings))
    return best


def table(found: Sequence[Reading]) -> str:
    """Per tenth of a sweep, per stage, of all, and of all in hindsight: n, median of said over
    true, shares within the factor and of bounds kept.
    """
    lines = [f"{'after':<11}{'n':>6}{'said / true':>12}{f'within {WITHIN:g}':>12}{'bound kept':>12}"]
    groups = {f"{tenth * 10} %": [reading for reading in found if reading.tenth == tenth] for tenth in TENTHS}
    groups |= {stage: [reading for reading in found if reading.stage == stage] for stage in STAGES}
    for name, mine in {**groups, "all": list(found), "at best": in_hindsight(found)}.items():
        if not mine:
            continue
        ratio = float(np.median([reading.said / reading.true for reading in mine]))
        right = sum(reading.right for reading in mine) / len(mine)
        kept = sum(reading.bound >= reading.true for reading in mine) / len(mine)
        lines.append(f"{name:<11}{len(mine):>6}{ratio:>12.2f}{right:>12.0%}{kept:>12.0%}")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    found: list[Reading] = []
    for i in range(count):
        found += readings(Process.drawn(SIZED_BY_SWEEP[i % len(SIZED_BY_SWEEP)], i // len(SIZED_BY_SWEEP)), i + 1)
        print(f"\r{i + 1}/{count}", end="", file=sys.stderr, flush=True)
    print("\n" + table(found))


if __name__ == "__main__":
    main()
