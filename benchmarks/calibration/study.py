"""One deployment of the study: what each rule answers for it, and which published intervals hold
its truth."""

import dataclasses
import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.calibration import rules
from benchmarks.calibration.servers import Engine, Process, Server, excess, make_trial
from benchmarks.calibration.sweep import answer_first, auto
from frontier import uncertainty
from frontier.core.claim import pareto
from frontier.core.estimates import estimate
from frontier.core.model.metrics import metric
from frontier.core.model.points import Point
from frontier.core.model.trials import Phase
from frontier.core.window import window
from frontier.core.window.window import WindowData
from frontier.extras.compare.contest import CompareRules, Contest, Side, compare

RULES: dict[str, Callable[[Server, int], rules.Answer]] = {
    "answer first": answer_first,
    "proven grid, no search": rules.proven_grid,
    "largest passing value on the grid": rules.largest_passing,
    "bisection on the value": rules.bisection,
    "bisection on the mean of 3 values": rules.bisection_of_means,
    "concurrency: auto": auto,
}
SHIPPED = "answer first"
INTERVALS = "intervals"
"""Asked for like a rule: how often published intervals hold the truth."""
AUTO = "concurrency: auto"
OURS = (SHIPPED, AUTO, "proven grid, no search")
OBJECTIVES = ("output_throughput", "p99_e2e")
COVERED = (
    *(f"{s}_{q}" for q in ("ttft", "tpot", "e2e") for s in ("mean", "p50", "p90", "p95", "p99")),
    "output_throughput",
    "request_throughput",
    "error_rate",
    "goodput",
    "attainment",
)
Result = dict[str, Any]


def deployment(kind: str, family: str, seed: int, only: Sequence[str] = ()) -> Result:
    """Everything about one drawn deployment, JSON-able. `kind` is 'process' or 'engine'.

    `only` these rules, else all but AUTO, which takes as long as all of them; about the coverage of
    intervals only if INTERVALS is one of them.

    Of each rule what it announced first ('early_c', in 'early_seconds') and what it said at the end
    ('c', in 'seconds'). 'excess' is the truth there over its limit, 'share' the true throughput
    there over the best there is (0 for no answer, None where none exists). 'alone' is the excess of
    one user, 'touched' the share of rare stalls.
    """
    server: Server = Process.drawn(family, seed) if kind == "process" else Engine.drawn(family, seed)
    best = rules.best(server)
    feasible = best.load is not None
    requests, seconds = rules.dense_grid_cost(server)
    result: Result = {
        "kind": kind,
        "family": family,
        "seed": seed,
        "limits": {lim.metric: lim.promise for lim in server.limits},
        "best": best.load,
        "alone": excess(server, 1),
        "touched": server.touched(best.load or 1),
        "reference": rules.reference_seconds(server, best.load) if feasible else None,
        "dense": requests,
        "dense_seconds": seconds,
        "rules": {},
    }
    for number, name in enumerate(RULES):
        if name in (only or RULES.keys() - {AUTO}):
            result["rules"][name] = _answered(server, best, RULES[name](server, number + 1))
    if isinstance(server, Process) and (not only or INTERVALS in only):
        result["coverage"] = _coverage(server, seed)
        if seed % 4 == 0:
            result["frontier"] = _frontier(server)
    return result


def _answered(server: Server, best: rules.Best, answer: rules.Answer) -> Result:
    """What a rule said, with the truth of it."""
    early = (answer.early_concurrency, answer.early_seconds)
    if answer.early_seconds is None:  # this rule speaks at the end
        early = answer.load, answer.seconds
    result: Result = {
        "verdict": answer.verdict,
        "requests": answer.requests,
        "seconds": answer.seconds,
        "early_seconds": early[1],
        "stage": answer.claim_stage,
        "turns": answer.turns,
    }
    for prefix, c in (("", answer.load), ("early_", early[0])):
        share = 0.0 if c is None else min(1.0, server.truth(c)["output_throughput"] / max(best.throughput, 1e-9))
        result[f"{prefix}c"] = c
        result[f"{prefix}excess"] = None if c is None else excess(server, c)
        result[f"{prefix}share"] = None if best.load is None else share
    return result


def job(which: tuple[str, str, int, tuple[str, ...]]) -> Result:
    """`deployment`, for a pool of processes."""
    return deployment(*which)


def quiet() -> None:
    """Let a worker give way to everything else on the machine."""
    os.nice(19)
    warnings.simplefilter("ignore")


Result = dict[str, Any]
"""What came of one sweep of a study, as a line of its file."""


def run_missing(file: Path | None, jobs: Iterable[tuple[Result, Callable[[], Result | None]]]) -> list[Result]:
    """The results that a file has, and those of the jobs that it lacks, each added to it at once.
    A job has the values by which its result is known; None of it leaves it out.
    """
    text = file.read_text() if file is not None and file.exists() else ""
    found: list[Result] = [json.loads(line) for line in text.splitlines()]
    quiet()
    for known_by, job in jobs:
        if any(known_by.items() <= result.items() for result in found) or (result := job()) is None:
            continue
        found.append(result)
        if file is not None:
            with file.open("a") as sink:
                sink.write(json.dumps(result) + "\n")
    return found


def _coverage(server: Process, seed: int) -> dict[str, list[bool | None]]:
    """At a random setting, from three windows: is the truth inside the interval, and below the
    one-sided bound?

    Once as drawn, where every run has a speed of its own, and once with runs that are alike. None:
    no such bound.
    """
    rng = np.random.default_rng([seed, 5])
    c = int(rng.choice(rules.GRID))
    each = max(int(rng.choice([334, 1000])), 7 * c)
    alike = Process(dataclasses.replace(server.law, run_effect=0.0), server.family, server.limits, server.seed)
    found: dict[str, list[bool | None]] = {}
    for label, which in (("runs differ", server), ("runs alike", alike)):
        trials = [make_trial(which, c, Phase.GRID, repeat, each) for repeat in (1, 2, 3)]
        sample = window.join([which.trial(t, 900_000 + i) for i, t in enumerate(trials)])
        true = which.truth(c)
        for name in COVERED:
            if name == "error_rate" and true.get(name) == 0:
                continue  # nothing ever fails: no interval could be wrong, and counting them would flatter
            e = estimate.estimate(sample, name, limits=which.limits)
            if e is not None and name in true and math.isfinite(e.value):
                inside = e.low <= true[name] <= e.high if math.isfinite(e.high - e.low) else None
                found[f"{name}|{label}"] = [inside, true[name] <= e.upper if math.isfinite(e.upper) else None]
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class _Side:
    """One deployment's grid measured, and its truth at the same settings."""

    server: Process
    points: list[Point]
    samples: dict[int, WindowData]
    gain: np.ndarray[Any, np.dtype[np.float64]]
    price: np.ndarray[Any, np.dtype[np.float64]]

    @classmethod
    def measured(cls, server: Process) -> "_Side":
        samples = {}
        for c in rules.GRID:
            trials = [make_trial(server, c, Phase.GRID, repeat, 350) for repeat in (1, 2, 3)]
            samples[c] = window.join([server.trial(t, 800_000 + i) for i, t in enumerate(trials)])
        gain, price = (np.array([server.truth(c)[name] for c in rules.GRID]) for name in OBJECTIVES)
        points = [estimate.point(sample, names=OBJECTIVES) for sample in samples.values()]
        return cls(server, points, samples, gain, price)


def _frontier(server: Process) -> dict[str, bool]:
    """Is the truth inside what is published of a frontier and of two compared? Only what is
    published is named.
    """
    a = _Side.measured(server)
    drawn = uncertainty.replicates(a.samples, OBJECTIVES, draws=200)
    middle = float(np.sqrt(a.price[3] * a.price[4]))  # between two settings, where the staircase is not at a step
    ((_, low, high),) = uncertainty.band(drawn, [middle])
    stair = float(a.gain[a.price <= middle].max())
    held = bool(low <= stair <= high)
    return {"band": held, **_compared(a)}


def _compared(a: _Side) -> dict[str, bool]:
    """The same deployment made up to a quarter faster or slower, measured by itself, against
    `a`.
    """
    rng = np.random.default_rng([a.server.seed, 6])
    speed = math.exp(rng.uniform(math.log(0.8), math.log(1.25)))
    law = dataclasses.replace(a.server.law, tpot=a.server.law.tpot / speed, ttft=a.server.law.ttft / speed)
    b = _Side.measured(Process(law, a.server.family, a.server.limits, a.server.seed + 1_000_000))
    if any(pareto.exclusion(p, [metric(o) for o in OBJECTIVES]) is not None for p in (*a.points, *b.points)):
        return {}
    sides = tuple(Side(name, side.points, samples=side.samples) for name, side in (("A", a), ("B", b)))
    found = compare(Contest(sides, CompareRules(OBJECTIVES)))
    held = {}
    for difference in found.differences:
        at = [rules.GRID.index(c) for c, _ in difference.settings]
        each = (b.gain / a.gain, b.price / a.price)[OBJECTIVES.index(difference.metric)][at]
        low, high = difference.ratio.low, difference.ratio.high
        held[f"{difference.metric} ratio"] = low <= float(np.exp(np.log(each).mean())) <= high
    if found.verdict != "not resolved":
        held["verdict"] = (found.verdict == "better") == (speed > 1)
    return held
