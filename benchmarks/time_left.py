"""How far off the time left of a sweep is, after so many of its trials: what docs/prediction.md says of it.

Run: python -m benchmarks.time_left [cases]

Sweeps are simulated in virtual time on engines whose efficiency differs from the assumed 60 %, and judged after so many
of their 32 to 48 trials: by the mean of the trials so far, by what neighbouring settings took (`TrialTimes`), and by
`frontier.budget` with the hardware described and without.
"""

import random
import sys
from collections.abc import Iterator

import numpy as np

from frontier.budget import Amount, TimeEstimator, TrialTimes
from frontier.config import Config, load_config
from frontier.model import Series, Trial
from frontier.plan import make_plan
from frontier.run import History
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import virtual_trial
from frontier.stats import window

AFTER = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24)
MODELS = (("llama-3.1-8b", "h100"), ("llama-3.1-8b", "l40s"), ("qwen3-32b", "h200"), ("gpt-oss-120b", "h200"))
SHAPES = ("1024/256, 4096/256", "512/512, 128/1024, 2048/128")
OVERHEAD = 1.0
"""Seconds a trial takes beside its load."""


def cases(count: int) -> Iterator[tuple[Config, Config, EngineSpec]]:
    """The config with its hardware, without, and the engine that stands for the server."""
    rng = random.Random(5)
    for i in range(count):
        (model, gpu), shapes = MODELS[i % len(MODELS)], SHAPES[i // len(MODELS) % len(SHAPES)]
        text = f"""\
endpoint: http://localhost:8000/v1
model: {model}
shapes: [{shapes}]
concurrency: [1, 2, 4, 8, 16, 32, 64, 128]
requests: 300
repeats: 2
seed: {i}
"""
        spec = EngineSpec.from_mapping(
            {"model": model, "hardware": gpu, "efficiency": rng.uniform(0.3, 0.8), "overhead": rng.uniform(0, 5e-3),
             "noise": 0.05, "max_batched_tokens": 8192}
        )  # fmt: skip
        yield load_config(text + f"hardware: {gpu}\n", "with"), load_config(text, "without"), spec


def judged(described: Config, bare: Config, spec: EngineSpec) -> Iterator[tuple[str, int, float | None]]:
    """(method, trials done, relative error of the time left) of one sweep."""
    trials = make_plan(described).trials
    with_hardware, without = TimeEstimator(described), TimeEstimator(bare)
    seen: list[tuple[Trial, Amount]] = []
    histories: dict[Series, History] = {}
    said: list[dict[str, float | None]] = []
    for done, trial in enumerate(trials):
        if done in AFTER:
            times, rest = TrialTimes(tuple(seen)), trials[done:]
            mean = sum(took.seconds for _, took in seen) / done * len(rest) if done > 1 else None
            near = [times.seconds(other) for other in rest]
            said.append(
                {
                    "mean of the trials": mean,
                    "neighbours": None if None in near else sum(near),
                    "fitted": without.left(rest, times, histories),
                    "fitted, hardware": with_hardware.left(rest, times, histories),
                }
            )
        records, measurement = virtual_trial(trial, spec)
        took = Amount(max(record.end for record in records) + OVERHEAD, len(records))
        seen.append((trial, took))
        sample = window.window_data(measurement, iter(records))
        histories.setdefault(trial.series, []).append((trial, sample))
    ends = np.cumsum([took.seconds for _, took in seen])
    for done, each in zip(AFTER, said, strict=False):
        left = float(ends[-1] - (ends[done - 1] if done else 0.0))
        for method, seconds in each.items():
            yield method, done, None if seconds is None else seconds / left - 1


def main() -> None:
    """Print the table: median of the absolute error and the worst, in percent; a dash where nothing was said."""
    found: dict[tuple[str, int], list[float | None]] = {}
    for case in cases(int(sys.argv[1]) if len(sys.argv) > 1 else 16):
        for method, done, error in judged(*case):
            found.setdefault((method, done), []).append(error)
    print(f"{'% off, median (worst) after':<28}" + "".join(f"{done:>11}" for done in AFTER))
    for method in dict.fromkeys(method for method, _ in found):
        cells = []
        for done in AFTER:
            known = [abs(error) for error in found[method, done] if error is not None]
            told = len(known) == len(found[method, done])
            cells.append(f"{100 * np.median(known):.0f} ({100 * max(known):.0f})" if told else "-")
        print(f"{method:<28}" + "".join(f"{cell:>11}" for cell in cells))


if __name__ == "__main__":
    main()
