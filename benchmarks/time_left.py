"""How far off the time left of a sweep is, at each tenth of it: what docs/prediction.md says of it.

Run: python -m benchmarks.time_left [sweeps]

Sweeps of the calibration study's deployments (`benchmarks.calibration`) are replayed in virtual time: the search, the
completion of the frontier and the visits ask for the trials, and the time left is estimated before them as a sweep
does. A reading is what the progress line shows at a tenth of the sweep: what was said last, less the time since.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.calibration.servers import FAMILIES, Process
from benchmarks.calibration.sweep import Sweep

WITHIN = 1.5
"""Factor of a reading that is right."""
TENTHS = tuple(range(10))


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
