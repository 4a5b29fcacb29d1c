"""python -m benchmarks.gate [--gates N] [--trends N]

How often `frontier compare --gate` and `frontier trend` raise a false alarm, and what they catch. Deployments are drawn
as for the calibration, in virtual time, and get differences from day to day on top of those from run to run. Prints the
tables of docs/gate.md.
"""

import argparse
import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.signal import lfilter

from benchmarks.calibration.servers import APART, FAMILIES, NIGHT, Process, draw_law, make_trial
from frontier.decide.gate import Gate, Measured, Rules, family_size, gate, judged_metrics
from frontier.decide.trend import Trend, trend
from frontier.metrics import metric
from frontier.model import Estimate, Limit, Phase, Series, Shape
from frontier.stats import window
from frontier.stats.estimate import estimate
from frontier.stats.window import WindowData

BUDGET = 1_200.0
"""Seconds of sweep that a gate may take: 20 minutes."""
GRID = (8, 32)
"""Settings of the gate's sweep: every pair measures both on both sides."""
SHORT = 6.0
"""The least window of a trial, in seconds; it lasts two requests at least."""
SHAPE = Shape.of(512, 128)


class Days:
    """A drawn deployment whose speed differs from day to day by `spread` (standard deviation of ln).

    `kind` of the days: 'normal' and independent; 'heavy' tails (Student's t with 4 degrees of freedom); 'lasting': a
    day's speed keeps half of the one before.
    """

    def __init__(self, family: str, seed: int, spread: float | None = None, kind: str = "normal") -> None:
        self.rng = np.random.default_rng([seed, FAMILIES.index(family), 77])
        self.law = draw_law(np.random.default_rng([seed, FAMILIES.index(family)]), family)
        self.family, self.seed, self.kind = family, seed, kind
        low, high = math.log(0.003), math.log(0.04)
        self.spread = math.exp(self.rng.uniform(low, high)) if spread is None else spread
        self.last = 0.0

    def day(self) -> float:
        """ln of how much slower the server is today."""
        shock = self.rng.standard_normal()
        if self.kind == "heavy":
            shock = self.rng.standard_t(4) / math.sqrt(2)
        if self.kind == "lasting":
            shock = self.last = 0.5 * self.last + math.sqrt(0.75) * shock
        return self.spread * shock

    def server(self, slower: float) -> Process:
        """The server when it is slower by `slower` (ln)."""
        by = math.exp(slower)
        law = dataclasses.replace(self.law, tpot=self.law.tpot * by, ttft=self.law.ttft * by)
        return Process(law, self.family, (), self.seed)

    def limits(self) -> tuple[Limit, ...]:
        """An SLA that the server keeps at GRID's top by 2 to 30 %, as an operating point does."""
        true = self.server(0.0).truth(GRID[-1])
        return tuple(
            Limit(name, true[name] * math.exp(self.rng.uniform(0.02, 0.3))) for name in ("p99_ttft", "p99_tpot")
        )


def trial_seconds(server: Process, c: int) -> tuple[float, float]:
    """The window of a trial, and all that it takes with its warm-up and its last requests."""
    e2e = server.phase_seconds(c, "e2e")
    length = max(SHORT, 2 * e2e)
    return length, length + max(2.0, 2 * e2e) + e2e


def measure(server: Process, c: int, seed: int, at: float) -> tuple[WindowData, float]:
    """One trial, and when it ends."""
    length, takes = trial_seconds(server, c)
    trial = make_trial(server, c, Phase.GRID, 1, 1_000_000, length)
    return server.trial(trial, seed, at), at + takes


def as_measured(samples: dict[int, WindowData], at: float, names: Sequence[str], proven: int | None = None) -> Measured:
    """One repeat or run as the gate has it; without intervals, which could only make an alarm rarer."""

    def value(s: WindowData, name: str) -> Estimate:
        of = metric(name).quantity
        rate = s.block_output_tokens.sum() / s.block_seconds.sum()
        return Estimate.without_interval(float(rate if of is None else np.quantile(getattr(s, of), 0.5)), s.n)

    values = {c: {name: value(s, name) for name in names} for c, s in samples.items()}
    return Measured("run", at, {"engine": "simulated"}, values, proven=proven)


def proven_of(samples: dict[int, WindowData], limits: Sequence[Limit]) -> int | None:
    """The highest setting that meets the SLA."""
    meets = [
        c for c, s in samples.items()
        if all((e := estimate(s, li.metric)) is not None and li.holds(li.bound(e)) for li in limits)
    ]  # fmt: skip
    return max(meets, default=None)


def interleaved(days: Days, slower: float, allow: float = 0.05, budget: float = BUDGET) -> tuple[Gate, int]:
    """A gate of one day: BASE and NEW in turn, until the time is up. And how many pairs that were."""
    limits = days.limits()
    names, today = judged_metrics(limits), days.day()
    base, new = days.server(today), days.server(today + slower)
    takes = sum(trial_seconds(s, c)[1] for s in (base, new) for c in GRID)
    pairs = max(2, int(budget / takes))
    at, seed, night = 0.0, 1, int(days.rng.integers(1, 10_000))
    sides: tuple[list[Measured], list[Measured]] = ([], [])
    kept: tuple[dict[int, list[WindowData]], dict[int, list[WindowData]]] = ({}, {})
    for _ in range(pairs):
        made: list[dict[int, WindowData]] = [{}, {}]
        for c in GRID:
            for side in days.rng.permutation(2):
                made[side][c], at = measure((base, new)[side], c, night * NIGHT + seed, at)
                kept[side].setdefault(c, []).append(made[side][c])
                seed += 1
        for side in (0, 1):
            sides[side].append(as_measured(made[side], at, names))
    joined = [{c: window.join(parts) for c, parts in side.items()} for side in kept]
    rules = Rules(names, allow, family_size(1, limits), limits)
    proven = proven_of(joined[0], limits)
    result = gate(*sides, rules, "repeats", base.shape, ("A", "B"), proven, joined[1])
    return result, pairs


def run_of_a_day(
    days: Days, slower: float, number: int, limits: Sequence[Limit]
) -> tuple[Measured, dict[int, WindowData]]:
    """One nightly run, with the speed of its day: each setting twice."""
    server, samples = days.server(days.day() + slower), {}
    for i, c in enumerate(GRID):
        seed = (number + 1) * NIGHT + 10 * i
        samples[c] = window.join([measure(server, c, seed + k, k * APART)[0] for k in range(2)])
    return as_measured(samples, 86_400.0 * number, judged_metrics(limits), proven_of(samples, limits)), samples


def stored(days: Days, history: int, *, changed: bool, allow: float = 0.05) -> Gate:
    """A gate against a stored baseline of so many days. `changed`: by what the gate says that it would catch."""
    limits = days.limits()
    rules = Rules(judged_metrics(limits), allow, family_size(1, limits), limits)
    base = [run_of_a_day(days, 0.0, i, limits)[0] for i in range(history)]
    slower = 0.0
    if changed:
        first, _ = run_of_a_day(days, 0.0, history, limits)
        smallest = gate(base, [first], rules, "history", SHAPE, ("A", "B")).changes[0].smallest
        slower = -math.log1p(-min(smallest, 0.95))
    new, samples = run_of_a_day(days, slower, history + 1, limits)
    known = [one.proven for one in base]
    proven = None if None in known else min(known, default=None)  # type: ignore[type-var]
    return gate(base, [new], rules, "history", SHAPE, ("A", "B"), proven, samples)


def series(rng: np.random.Generator, runs: int, kind: str, step: float = 0.0) -> Trend:
    """The trend of a series of nightly runs whose metrics vary by 2 % from day to day, with a step after two thirds."""
    names = judged_metrics(())
    shocks = rng.standard_normal((runs, len(names)))
    if kind == "heavy":
        shocks = rng.standard_t(4, shocks.shape) / math.sqrt(2)
    if kind == "lasting":
        shocks = lfilter([math.sqrt(0.75)], [1.0, -0.5], shocks, axis=0)
    levels = 0.02 * shocks
    levels[2 * runs // 3 :] += step
    turned = levels * [-metric(name).sign for name in names]
    nights = [
        Measured(
            f"night {i}", 86_400.0 * i, {}, {8: {n: Estimate(v, v, v, 100) for n, v in zip(names, row, strict=True)}}
        )
        for i, row in enumerate(np.exp(turned).tolist())
    ]
    return trend(nights, names, len(names), Series("d", SHAPE))


def share(hits: int, n: int) -> str:
    """'3.1 % (31 of 1,000)'."""
    return f"{100 * hits / n:.1f} % ({hits} of {n:,})"


def drawn(count: int, families: Sequence[str], low: float, high: float, kind: str = "normal") -> Iterator[Days]:
    """So many deployments of these families, whose requests last from `low` to `high` seconds at GRID's top."""
    made = (Days(families[i % len(families)], 500_000 + i // len(families), kind=kind) for i in itertools.count())
    fitting = (days for days in made if low <= days.server(0.0).phase_seconds(GRID[-1], "e2e") < high)
    return itertools.islice(fitting, count)


def row(name: str, gates: Sequence[Gate]) -> str:
    """A line of a table: how often each verdict was given."""
    cells = [share(sum(g.verdict == v for g in gates), len(gates)) for v in ("worse", "no worse", "not resolved")]
    return f"| {name} | {' | '.join(cells)} |"


HARD = ("noisy", "fixed_lengths")
STEADY = tuple(f for f in FAMILIES if f not in (*HARD, "infeasible", "rare_stalls"))
HEAD = "| {} | alarm (3) | pass (0) | cannot tell (4) |\n|---|--:|--:|--:|"
LESS = -math.log(0.95)
EASY, LONG = ("requests up to 5 s", STEADY, 0.0, 5.0), ("requests of 5 to 20 s", STEADY, 5.0, 20.0)
UNSTEADY = ("up to 5 s, a wandering speed or lockstep", HARD, 0.0, 5.0)
IN_TURN = ((EASY, 0.0, 1.0), (EASY, LESS, 0.3))
IN_TURN_HARD = tuple((p, change, 0.1) for p in (LONG, UNSTEADY) for change in (0.0, LESS))
"""Deployments, what changed, and the part of the gates asked for."""
STORED = (("normal", 10, False, 1.0), ("normal", 10, True, 0.2), ("normal", 5, False, 0.1), ("heavy", 10, False, 0.1),
          ("lasting", 10, False, 0.1))  # fmt: skip
"""How days differ, how many there are, whether the speed changed, and the part."""


def main() -> None:
    """Run the study and print its tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description=__doc__)
    parser.add_argument("--gates", type=int, default=1_000, help="gates where nothing changed; fewer of others (1,000)")
    parser.add_argument("--trends", type=int, default=1_000, help="series of each kind (default 1,000)")
    asked = parser.parse_args()
    if asked.gates:
        print_gates(asked.gates)
    if asked.trends:
        print_trends(asked.trends)


def print_gates(count: int) -> None:
    """How often a gate gives each verdict."""
    print(HEAD.format("measured in turn, 20 minutes"), flush=True)
    _print_in_turn(count, IN_TURN)
    print("\n" + HEAD.format("against a stored baseline"), flush=True)
    for kind, days, changed, part in STORED:
        gates = [stored(d, days, changed=changed) for d in drawn(round(count * part), STEADY, 0.0, 5.0, kind)]
        change = "slower by what it says it catches" if changed else "nothing changed"
        print(row(f"{days} days, {kind}: {change}", gates), flush=True)
    print("\n" + HEAD.format("measured in turn, 20 minutes"), flush=True)
    _print_in_turn(count, IN_TURN_HARD)


def _print_in_turn(count: int, kinds: Sequence[tuple[tuple[str, Sequence[str], float, float], float, float]]) -> None:
    for (label, families, low, high), slower, part in kinds:
        made = [interleaved(d, slower) for d in drawn(round(count * part), families, low, high)]
        pairs = sorted(n for _, n in made)[len(made) // 2]
        change = "5 % less throughput" if slower else "nothing changed"
        print(row(f"{label} ({pairs} pairs): {change}", [g for g, _ in made]), flush=True)


def print_trends(count: int) -> None:
    """How often a trend shows a change point."""
    print("| days | runs | any change point, nothing changed | a step of 5 % found |\n|---|--:|--:|--:|")
    rng = np.random.default_rng(1)
    for kind, runs in itertools.product(("normal", "heavy", "lasting"), (10, 30, 300)):
        none = [series(rng, runs, kind) for _ in range(count)]
        step = [series(rng, runs, kind, 0.05) for _ in range(count)]
        hits = (sum(bool(t.steps) for t in none), sum(t.verdict == "worse" for t in step))
        print(f"| {kind} | {runs} | {share(hits[0], len(none))} | {share(hits[1], len(step))} |", flush=True)


if __name__ == "__main__":
    main()
