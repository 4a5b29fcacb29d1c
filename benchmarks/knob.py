"""How often the least energy of a knob is wrong: values measured in turn under noise and drift.

    python -m benchmarks.knob --knobs 2000
    python -m benchmarks.knob --picture FILE      a sweep of three power caps, drawn

Each knob has two to six values whose true joules of a token are drawn. A round gives each value a
window; its energy wanders from round to round and drifts. What is claimed of the value picked as
the best is held against the truth, with the correction for having picked it and without.
"""

import argparse
import math
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from frontier.core.model.points import Estimate
from frontier.extras.tune.knob_result import ratio_in_turn
from frontier.extras.tune.knob_turns import ROUNDS
from tests.kit.knobs import CappedBackend, conducted, knob_config

NOISE = (0.003, 0.01, 0.03)
"""Standard deviations (ln) of a value from round to round."""
DRIFTS = (0.0, 0.01)
"""The largest growth (ln) of the energy from window to window."""


def rounds(truth: Sequence[float], noise: float, drift: float, rng: np.random.Generator) -> list[list[Estimate]]:
    """The energy of each value in each round, every second round in the opposite order."""
    found = []
    for number in range(ROUNDS):
        order = range(len(truth)) if number % 2 == 0 else reversed(range(len(truth)))
        places = {value: number * len(truth) + place for place, value in enumerate(order)}
        each = [math.exp(truth[v] + drift * places[v] + noise * rng.normal()) for v in range(len(truth))]
        found.append([Estimate(e, e * math.exp(-1e-4), e * math.exp(1e-4), 100) for e in each])
    return found


def judged(values: int, equal: bool, noise: float, drift: float, rng: np.random.Generator) -> list[str]:
    """What is wrong with the claim of one knob."""
    truth = [0.0] * values if equal else list(rng.uniform(-0.3, 0.1, values))
    truth[0] = 0.0
    measured = rounds(truth, noise, drift, rng)
    totals = [sum(math.log(each[v].value) for each in measured) for v in range(values)]
    best = int(np.argmin(totals))
    wrong = ["knobs"]
    if best == 0:
        return wrong
    pairs = [(each[0], each[best]) for each in measured]
    for how, compared in (("", values), (" uncorrected", 2)):
        ratio = ratio_in_turn(pairs, compared)
        if not ratio.low <= math.exp(truth[best]) <= ratio.high:
            wrong.append(f"interval misses{how}")
        if ratio.high < 1:
            wrong.append(f"claimed{how}")
            if truth[best] >= 0:
                wrong.append(f"claimed falsely{how}")
    return wrong


def draw(file: str) -> None:
    """Sweep three power caps in virtual time, draw their frontiers and print what they show."""
    with tempfile.TemporaryDirectory() as here:
        cap, run = Path(here) / "cap", Path(here) / "run"
        cap.write_text("400\n")
        conducted(run, knob_config(cap), CappedBackend(cap, noise=0.005))
        command = [sys.executable, "-m", "frontier"]
        options = ["--objectives", "output_throughput,energy", "--overlay", "-o", file]
        subprocess.run([*command, "show", str(run)], check=True)
        subprocess.run([*command, "plot", str(run), *options], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.knob", description=__doc__)
    parser.add_argument("--knobs", type=int, default=2000, help="of each family")
    parser.add_argument("--seed", type=int, default=54)
    parser.add_argument("--picture", metavar="FILE", help="draw a sweep of three power caps instead")
    asked = parser.parse_args()
    if asked.picture:
        draw(asked.picture)
        return
    rng = np.random.default_rng(asked.seed)
    for equal in (True, False):
        for noise in NOISE:
            for drift in DRIFTS:
                found: Counter[str] = Counter()
                for _ in range(asked.knobs):
                    found.update(judged(int(rng.integers(2, 7)), equal, noise, drift * rng.uniform(-1, 1), rng))
                print("equal" if equal else "drawn", f"noise {noise:.1%}, drift up to {drift:.1%}:", dict(found))


if __name__ == "__main__":
    main()
