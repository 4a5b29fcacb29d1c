"""Races of server settings on servers drawn from laws whose truth is known, a second each.

    python -m benchmarks.races --races 60 -o races.jsonl       print the table of them all

Two to four variants, the baseline first. The speed of a server is drawn anew at each start, with a
spread of 0.5 to 15% from start to start. The truth of a variant is its most throughput inside the
SLA at any load, of long runs at the speed in the middle. `benchmarks.tuning` races the embedded
engine.
"""

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.calibration.rules import _around
from benchmarks.calibration.servers import TOP, Law, Process, _between, last_inside, make_trial
from benchmarks.calibration.study import quiet
from frontier.core.model.decisions import Limit
from frontier.core.model.errors import ExitCode
from frontier.core.model.series import Series
from frontier.core.model.trials import Trial
from frontier.core.stats import intervals
from frontier.core.window.window import WindowData
from frontier.extras.tune.gain import RaceRules
from frontier.extras.tune.race import Race
from frontier.extras.tune.runner import Runner
from frontier.extras.tune.tune_text import chosen_of, exit_code, noticed, outcome_of

SPREADS = (0.005, 0.02, 0.04, 0.08, 0.15)
FAMILIES = (
    *(f"equal, starts {spread:.1%}" for spread in SPREADS),
    *(f"gain, starts {spread:.1%}" for spread in SPREADS),
    "tail",
    "beyond",
    "degrades",
    "interact",
    "slow start",
)
"""Equal variants, and one with a gain of 15 to 30%, at each spread. Equal but for a tail of one;
better only beyond the load that the baseline holds; one that degrades from start to start; two
flags that help alone and harm together; starts that take longer than all else."""
NO_GAIN = ("equal", "tail", "degrades")
MOST = 600
"""Trials of a race at most."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A race: its family, the servers of its variants, the spread (ln) of their starts, and the
    seconds that a start takes. Each start of a variant is slower than the one before by `degrades`.
    """

    family: str
    servers: tuple[Process, ...]
    spread: float
    start: float
    degrades: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A race and its truth: `best`, `chosen` and `valued` are the true bests of the best variant,
    of the one chosen and of the one with the highest expected value, `truth` that of the finalist,
    over the baseline's. `noticed` is the gain that the answer says would have been seen.
    """

    number: int
    family: str
    outcome: str
    code: int
    claimed: bool
    truth: float
    ratio: float | None
    low: float | None
    high: float | None
    best: float
    chosen: float
    valued: float
    pairs: int
    deciding: int | None
    starts: int
    seconds: float
    noticed: float | None = None


def drawn(number: int) -> Drawn:
    """A race by its number: the same everywhere."""
    rng, family = np.random.default_rng([number, 94]), FAMILIES[number % len(FAMILIES)]
    law = Law(
        tpot=_between(rng, 4e-3, 12e-3),
        tpot_half=_between(rng, 16, 64),
        tpot_power=rng.uniform(0.6, 1.0),
        ttft=_between(rng, 0.02, 0.1),
        ttft_half=_between(rng, 16, 64),
        ttft_power=rng.uniform(0.6, 1.0),
        osl=64.0,
        osl_cv=0.2,
        tpot_noise=rng.uniform(0.02, 0.08),
        ttft_noise=rng.uniform(0.1, 0.3),
        shared_noise=rng.uniform(0.0, 0.05),
        memory=rng.uniform(0.0, 0.8),
        run_effect=0.0,
        error_rate=0.0,
    )
    edge = round(_between(rng, 10, 60))
    true = Process(law, family, (), number).truth(edge)
    limits = tuple(Limit(name, true[name] * 1.02) for name in ("p99_ttft", "p99_tpot"))
    bare = Process(law, family, limits, number)
    quick = faster(bare, _between(rng, 1.15, 1.3)) if family.startswith(("gain", "slow")) else law
    worse = scaled(law, rng.uniform(1.0, 1.05))
    laws = {
        "equal": (law,) * (2 + number % 3),
        "gain": (law, quick, worse)[: 2 + number % 2],
        "tail": (law, replace(law, ttft_noise=1.2 * law.ttft_noise)),
        "beyond": (replace(law, seats=max(4, round(0.6 * edge))), law),
        "degrades": (law, scaled(law, 1.0)),
        "interact": (law, scaled(law, 1 / 1.06), scaled(law, 1 / 1.02), scaled(law, 1.05)),
        "slow start": (law, quick),
    }[family.partition(",")[0]]
    spread = SPREADS[number % len(SPREADS)] if "starts" in family else 0.02
    servers = tuple(Process(each, family, limits, 1_000 * number + i) for i, each in enumerate(laws))
    degrades = (0.0, 0.01) if family == "degrades" else (0.0,) * len(laws)
    return Drawn(family, servers, spread, 600.0 if family == "slow start" else rng.uniform(10, 60), degrades)


def scaled(law: Law, factor: float) -> Law:
    """The law with latencies so many times as long."""
    return replace(law, tpot=law.tpot * factor, ttft=law.ttft * factor)


def faster(server: Process, gain: float) -> Law:
    """The law of the server with latencies so much shorter that its most throughput is about `gain`
    times as high.
    """
    base, low, high = true_best(server), 1 / gain, 1.0
    for _ in range(5):
        middle = math.sqrt(low * high)
        more = true_best(Process(scaled(server.law, middle), server.family, server.limits, server.seed)) / base
        low, high = (middle, high) if more > gain else (low, middle)
    return scaled(server.law, math.sqrt(low * high))


def true_best(server: Process) -> float:
    """The most throughput within the SLA at any load; 0 where none is."""
    c = last_inside(server, 1, 2 * TOP)
    return 0.0 if c is None else server.truth(c)["output_throughput"]


class Racing:
    """A race in virtual time."""

    def __init__(self, number: int) -> None:
        self.race_of, self.number = drawn(number), number
        self.names = [f"v{i}" for i in range(len(self.race_of.servers))]
        self.rules = RaceRules(self.race_of.servers[0].limits, "output_throughput", 2 * TOP)
        self.histories: dict[str, list[tuple[Trial, WindowData]]] = {name: [] for name in self.names}
        self.starts: dict[str, int] = {}
        self.runners: dict[str, Runner] = {}
        self.begun, self.of = 0, dict.fromkeys(self.names, 0)
        self.running: Series | None = None
        self.now, self.seconds = self.race_of.servers[0], 0.0

    def race(self) -> Race:
        shape = self.race_of.servers[0].shape
        for name in self.names:
            if name not in self.runners or len(self.runners[name].history) < len(self.histories[name]):
                history = tuple(self.histories[name])
                self.runners[name] = Runner(self.rules, Series(name, shape), history, self.starts)
        return Race(self.rules, tuple(self.runners.values()), self.running)

    def run(self) -> Race:
        """The race when it is over."""
        for _ in range(MOST):
            race = self.race()
            step = race.next_step()
            if step is None:
                return race
            name = step.series.deployment
            if step.anew:
                self.start(name)
                self.running = step.series
            history = self.histories[name]
            repeat = 1 + sum((t.load, t.phase) == (step.ask.load, step.ask.phase) for t, _ in history)
            ask = step.ask
            trial = make_trial(self.now, ask.load, ask.phase, repeat, ask.requests, ask.seconds)
            trial = replace(trial, deployment=name)
            found = self.now.trial(trial, len(self.starts), self.seconds)
            history.append((trial, replace(found, deployment=name)))
            self.starts[trial.key] = self.begun
            lasted = float((found.ends - found.starts).sum())
            self.seconds += _around(ask.load, found.n, lasted, ask.phase)
        raise RuntimeError(f"race {self.number}: {MOST} trials, and no end")

    def at_last(self, name: str) -> Process:
        """The server of a variant as its last start had it, at the speed in the middle. All have
        one seed, so that the truths of equal variants are equal.
        """
        i, seed = self.names.index(name), self.race_of.servers[0].seed
        base, slower = self.race_of.servers[i], self.race_of.degrades[i] * max(0, self.of[name] - 1)
        return Process(scaled(base.law, math.exp(slower)), base.family, base.limits, seed)

    def start(self, name: str) -> None:
        """A new start of a variant, at a speed of its own."""
        i = self.names.index(name)
        self.begun += 1
        self.of[name] += 1
        self.seconds += self.race_of.start
        rng = np.random.default_rng([self.number, self.begun, 95])
        slower = rng.normal(0, self.race_of.spread) + self.race_of.degrades[i] * (self.of[name] - 1)
        base = self.race_of.servers[i]
        self.now = Process(scaled(base.law, math.exp(slower)), base.family, base.limits, base.seed + 7 * self.begun)


def raced(number: int) -> Outcome:
    """The race of a number, beside its truth."""
    racing = Racing(number)
    race = racing.run()
    truths = [true_best(racing.at_last(name)) for name in racing.names]
    gain, finalist = race.gain, race.finalist
    other = racing.names.index(finalist.series.deployment) if finalist is not None else 0
    base, code = truths[0] or math.nan, exit_code(race)
    run = chosen_of(race)
    chosen = 0 if run is None else racing.names.index(run.series.deployment)
    values = [runner.reach(0.0).value for runner in race.runners]
    return Outcome(
        number,
        racing.race_of.family,
        outcome_of(race),
        int(code),
        code is ExitCode.YES,
        truths[other] / base,
        None if gain is None else gain.ratio.value,
        None if gain is None else gain.ratio.low,
        None if gain is None else gain.ratio.high,
        max(truths) / base,
        truths[chosen] / base,
        truths[values.index(max(values))] / base,
        0 if gain is None else gain.pairs,
        None if gain is None else gain.deciding,
        racing.begun,
        racing.seconds,
        noticed(race),
    )


# ---- the table


def table(results: Sequence[Outcome]) -> str:
    """What came of each family, and of those without a gain together, as Markdown."""
    lines = [
        "| family | races | claimed | falsely | interval holds | noticed | within 3% | by value | pairs | hours |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    groups = {family: [r for r in results if r.family == family] for family in FAMILIES}
    groups["without a gain"] = [r for r in results if r.family.startswith(NO_GAIN)]
    groups["gain, starts up to 4%"] = [r for family in FAMILIES[5:8] for r in groups[family]]
    groups["all"] = list(results)
    for name, mine in groups.items():
        if not mine:
            continue
        claimed = [r for r in mine if r.claimed]
        falsely = sum(r.truth <= 1 for r in claimed)
        known = [r for r in mine if r.low is not None and r.high is not None and math.isfinite(r.truth)]
        held = sum(r.low <= r.truth <= r.high for r in known if r.low is not None and r.high is not None)
        said = [r.best <= r.noticed for r in mine if r.noticed is not None]
        chosen = [(r, r.chosen) for r in mine], [(r, r.chosen if r.claimed else r.valued) for r in mine]
        near, valued = (sum(x >= 0.97 * r.best for r, x in each) for each in chosen)
        most = intervals.clopper_pearson(falsely, len(mine))[1]
        pairs = np.mean([r.pairs for r in mine])
        hours = np.median([r.seconds for r in mine]) / 3600
        shares = f"{held} of {len(known)}", f"{sum(said)} of {len(said)}"
        cells = name, len(mine), len(claimed), f"{falsely} (at most {most:.0%})", *shares
        lines.append(f"| {' | '.join(map(str, cells))} | {near} | {valued} | {pairs:.1f} | {hours:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Run the races that are missing and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.races", description=__doc__)
    parser.add_argument("--races", type=int, default=30)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--tables", action="store_true", help="only print the table of what the file holds")
    parser.add_argument("-o", "--output", type=Path, help="a file of results to go on from and add to")
    asked = parser.parse_args()
    text = asked.output.read_text() if asked.output is not None and asked.output.exists() else ""
    results = [Outcome(**json.loads(line)) for line in text.splitlines()]
    done = {r.number for r in results}
    quiet()
    began = time.monotonic()
    for number in range(0 if asked.tables else asked.first, 0 if asked.tables else asked.first + asked.races):
        if number in done:
            continue
        results.append(raced(number))
        print(f"{time.monotonic() - began:6.0f} s  {results[-1]}", flush=True)
        if asked.output is not None:
            with asked.output.open("a") as sink:
                sink.write(json.dumps(asdict(results[-1])) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
