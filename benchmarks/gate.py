"""python -m benchmarks.gate [--gates N] [--sweeps N]

How often `frontier compare --gate` raises a false alarm, and what it catches.
Deployments are drawn as for the calibration, in virtual time, and get differences from day to day
on top of those from run to run. Of two sweeps, one each of BASE and NEW, the engine is the
simulated one and the sweeps are whole. Prints the tables
behind docs/validation/how-often-right.md.
"""

import argparse
import asyncio
import dataclasses
import itertools
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np

from benchmarks.calibration.servers import APART, FAMILIES, NIGHT, STEP_NOISE, Process, draw_law, make_trial
from frontier.config import load_config
from frontier.core.estimates.estimate import estimate
from frontier.core.model.decisions import Limit
from frontier.core.model.loads import Concurrency
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Phase
from frontier.core.window import window
from frontier.core.window.window import WindowData
from frontier.extras.api.virtual_backend import VirtualBackend
from frontier.extras.compare.gate import Gate, GateRules, Measured, family_size, gate, judged_metrics
from frontier.extras.compare.regression import gate_runs
from frontier.planning.plan import NO_PROOFS, ToProve, make_plan
from frontier.planning.sweep_progress import Progress
from frontier.read_run import load
from frontier.run import Run
from frontier.store.run_dir import RunDirectory
from frontier.sweep.conductor import Conductor

BUDGET = 1_200.0
"""Seconds of sweep that a gate may take: 20 minutes."""
GRID = (Concurrency(8), Concurrency(32))
"""Settings of the gate's sweep: every pair measures both on both sides."""
SHORT = 6.0
"""The least window of a trial, in seconds; it lasts two requests at least."""
SHAPE = Shape.of(512, 128)


class Days:
    """A drawn deployment whose speed differs from day to day by `spread` (standard deviation of
    ln).
    """

    def __init__(self, family: str, seed: int, spread: float | None = None) -> None:
        self.rng = np.random.default_rng([seed, FAMILIES.index(family), 77])
        self.law = draw_law(np.random.default_rng([seed, FAMILIES.index(family)]), family)
        self.family, self.seed = family, seed
        low, high = math.log(0.003), math.log(0.04)
        self.spread = math.exp(self.rng.uniform(low, high)) if spread is None else spread

    def day(self) -> float:
        """ln of how much slower the server is today."""
        return self.spread * float(self.rng.standard_normal())

    def server(self, slower: float) -> Process:
        """The server when it is slower by `slower` (ln)."""
        by = math.exp(slower)
        law = dataclasses.replace(self.law, tpot=self.law.tpot * by, ttft=self.law.ttft * by)
        return Process(law, self.family, (), self.seed)

    def limits(self) -> tuple[Limit, ...]:
        """An SLA that the server keeps at GRID's top by 2 to 30%, as an operating point does."""
        true = self.server(0.0).truth(GRID[-1])
        return tuple(
            Limit(name, true[name] * math.exp(self.rng.uniform(0.02, 0.3))) for name in ("p99_ttft", "p99_tpot")
        )


def trial_seconds(server: Process, c: int) -> tuple[float, float]:
    """The window of a trial, and all that it takes with its warm-up and its last requests."""
    e2e = server.phase_seconds(c, "e2e")
    length = max(SHORT, 2 * e2e)
    return length, length + max(2.0, 2 * e2e) + e2e


def measure(server: Process, c: int, seed: int, at: float, turns: int = 2) -> tuple[WindowData, float]:
    """One trial of so many turns at least, and when it ends."""
    length, takes = trial_seconds(server, c)
    length = max(length, turns * server.phase_seconds(c, "e2e"))
    trial = make_trial(server, c, Phase.GRID, 1, 1_000_000, length)
    return server.trial(trial, seed, at), at + takes


def as_measured(
    samples: dict[int, WindowData], at: float, names: Sequence[str], proven: int | None = None, *, bounded: bool = False
) -> Measured:
    """One repeat or run as the gate has it. Without intervals, unless `bounded`: they could only
    make alarms rarer.
    """

    def value(s: WindowData, name: str) -> Estimate:
        if bounded and (found := estimate(s, name)) is not None:
            return found
        of = metric(name).quantity
        rate = s.block_output_tokens.sum() / s.block_seconds.sum()
        return Estimate.without_interval(float(rate if of is None else np.quantile(getattr(s, of), 0.5)), s.n)

    values = {c: {name: value(s, name) for name in names} for c, s in samples.items()}
    return Measured("run", at, {"engine": "simulated"}, values, proven=proven)


def proven_of(samples: dict[int, WindowData], limits: Sequence[Limit]) -> int | None:
    """The highest setting that meets the SLA."""
    meets = [
        c
        for c, s in samples.items()
        if all((e := estimate(s, li.metric)) is not None and li.holds(li.bound(e)) for li in limits)
    ]
    return max(meets, default=None)


def interleaved(days: Days, slower: float, allow: float = 0.05, budget: float = BUDGET) -> tuple[Gate, int]:
    """A gate of one day: BASE and NEW in turn, until the time is up. And how many pairs that
    were.
    """
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
    rules = GateRules(names, allow, family_size(1, limits), limits)
    proven = proven_of(joined[0], limits)
    result = gate(*sides, rules, "repeats", base.shape, ("A", "B"), proven, joined[1])
    return result, pairs


def run_of_a_day(
    days: Days, slower: float, number: int, limits: Sequence[Limit]
) -> tuple[Measured, dict[int, WindowData]]:
    """One run with the speed of its day: the highest setting alone, in the 300 turns of a final
    claim, and with intervals.
    """
    server, c, seed = days.server(days.day() + slower), GRID[-1], (number + 1) * NIGHT
    samples = {c: window.join([measure(server, c, seed + k, k * APART, 60)[0] for k in range(5)])}
    proven, names = proven_of(samples, limits), judged_metrics(limits)
    return as_measured(samples, 86_400.0 * number, names, proven, bounded=True), samples


def one_each(days: Days, slower: float, allow: float) -> Gate:
    """A gate of one run each, at the setting that BASE proved, the spread of runs being stated."""
    limits = days.limits()
    rules = GateRules(judged_metrics(limits), allow, family_size(1, limits), limits, days.spread)
    base, _ = run_of_a_day(days, 0.0, 0, limits)
    new, samples = run_of_a_day(days, slower, 1, limits)
    return gate([base], [new], rules, "history", SHAPE, ("A", "B"), base.proven, samples)


def engine_config(rng: np.random.Generator) -> str:
    """The config of a drawn engine, with an SLA that it keeps up to some concurrency between 4 and
    12.
    """
    base, each, read = rng.uniform(3, 15), rng.uniform(0.02, 0.1), rng.uniform(0.005, 0.03)
    tpot = (base + each * math.exp(rng.uniform(math.log(4), math.log(12)))) * rng.uniform(1.1, 1.4)
    return f"""\
endpoint: simulator
simulator: {{step_base: {base:.3f}ms, per_decode: {each:.4f}ms, per_prefill_token: {read:.4f}ms, noise: 0.05}}
shapes: [{{isl: {{uniform: [64, 256]}}, osl: {{uniform: [8, 24]}}, name: drawn}}]
concurrency: [4, 8]
sla: {{p95_tpot: {tpot:.3f}ms, p95_ttft: {rng.uniform(10, 30) * tpot:.2f}ms}}
requests: 2000
repeats: 1
refine: 0
"""


def whole_sweep(path: Path, text: str, slower: float, seed: int, prove: ToProve = NO_PROOFS) -> Run:
    """A sweep in virtual time, of an engine that is slower than its config says by `slower`
    (ln).
    """
    config = load_config(text, "sweep.yaml")
    specs = {
        d.name: dataclasses.replace(d.engine_spec(), time_scale=math.exp(slower), seed=seed) for d in config.deployments
    }
    with (
        patch("os.fsync"),
        RunDirectory.open_for_sweep(
            path, identity=config.identity(), canonical=config.canonical(), config_text=text, facts={}
        ) as run,
    ):
        parts = config, make_plan(config), run, VirtualBackend(specs), Progress(), asyncio.Event()
        asyncio.run(Conductor(*parts, prove=prove).conduct())
    return load(path)


def two_sweeps(number: int, spread: float, slower: float, allow: float, *, told: bool = True) -> Gate:
    """A gate of one sweep each, whose servers differ by `spread` (standard deviation of ln) beside
    `slower`.

    `told`: NEW proves what BASE proved (--prove BASE) and the gate knows the spread (--spread);
    else neither.
    """
    for attempt in itertools.count():
        rng = np.random.default_rng([number, attempt, 11])
        text = engine_config(rng)
        with tempfile.TemporaryDirectory() as folder:
            a, b = rng.normal(0, spread, 2)
            base = whole_sweep(Path(folder) / "base", text, a, 2 * number + 1)
            proven = tuple(d.load for d in base.solve() if isinstance(d.load, int))
            if not proven:
                continue  # an SLA that this engine does not keep
            prove = ToProve(proven) if told else NO_PROOFS
            new = whole_sweep(Path(folder) / "new", text, b + slower, 2 * number + 2, prove)
            (found,) = gate_runs(
                [base], [new], allow=allow, limits=new.limits(), names=("base", "new"), spread=spread if told else None
            )
            return found
    raise AssertionError


def share(hits: int, n: int) -> str:
    """'3.1% (31 of 1,000)'."""
    return f"{100 * hits / n:.1f} % ({hits} of {n:,})"


def drawn(count: int, families: Sequence[str], low: float, high: float) -> Iterator[Days]:
    """So many deployments of these families, whose requests last from `low` to `high` seconds at
    GRID's top.
    """
    made = (Days(families[i % len(families)], 500_000 + i // len(families)) for i in itertools.count())
    fitting = (days for days in made if low <= days.server(0.0).phase_seconds(GRID[-1], "e2e") < high)
    return itertools.islice(fitting, count)


def row(name: str, gates: Sequence[Gate]) -> str:
    """A line of a table: how often each verdict was given."""
    cells = [share(sum(g.verdict == v for g in gates), len(gates)) for v in ("worse", "no worse", "not resolved")]
    return f"| {name} | {' | '.join(cells)} |"


HARD = ("noisy", "fixed_lengths")
STEADY = tuple(f for f in FAMILIES if f not in (*HARD, *STEP_NOISE, "infeasible", "rare_stalls", "stated_sizes"))
HEAD = "| {} | alarm (3) | pass (0) | cannot tell (4) |\n|---|--:|--:|--:|"
LESS = -math.log(0.95)
EASY, LONG = ("requests up to 5 s", STEADY, 0.0, 5.0), ("requests of 5 to 20 s", STEADY, 5.0, 20.0)
UNSTEADY = ("up to 5 s, a wandering speed or lockstep", HARD, 0.0, 5.0)
IN_TURN = ((EASY, 0.0, 1.0), (EASY, LESS, 0.3))
IN_TURN_HARD = tuple((p, change, 0.1) for p in (LONG, UNSTEADY) for change in (0.0, LESS))
"""Deployments, what changed, and the part of the gates asked for."""
SWEEPS = ((0.005, 0.10, 0.0, 1.0), (0.005, 0.05, 0.0, 0.3), (0.005, 0.10, 2 * LESS, 0.1))
"""By how much runs differ, what is allowed, what changed, and the part."""


def main() -> None:
    """Run the study and print its tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description=__doc__)
    parser.add_argument("--gates", type=int, default=1_000, help="gates where nothing changed; fewer of others (1,000)")
    parser.add_argument("--sweeps", type=int, default=1_000, help="gates of two sweeps; fewer of others (1,000)")
    asked = parser.parse_args()
    if asked.gates:
        print_gates(asked.gates)
    if asked.sweeps:
        print_sweeps(asked.sweeps)


def print_gates(count: int) -> None:
    """How often a gate gives each verdict."""
    print(HEAD.format("measured in turn, 20 minutes"), flush=True)
    _print_in_turn(count, IN_TURN)
    _print_in_turn(count, IN_TURN_HARD)


def print_sweeps(count: int) -> None:
    """How often a gate of one run each gives each verdict: deployments drawn as above, and whole
    sweeps of engines.
    """
    print(HEAD.format("one run each, with --spread"), flush=True)
    for spread, allow, slower, part in SWEEPS:
        kept = list(drawn(round(count * part), STEADY, 0.0, 5.0))
        for days in kept:
            days.spread = spread
        print(row(_one_each(spread, allow, slower), [one_each(days, slower, allow) for days in kept]), flush=True)
    for spread, allow, slower, part in SWEEPS:
        gates = [two_sweeps(i, spread, slower, allow) for i in range(round(count * part))]
        print(row(f"whole sweeps, --prove BASE: {_one_each(spread, allow, slower)}", gates), flush=True)


def _one_each(spread: float, allow: float, slower: float) -> str:
    change = f"{-math.expm1(-slower):.0%} less throughput" if slower else "nothing changed"
    return f"runs differ by {spread:.1%}, {allow:.0%} allowed: {change}"


def _print_in_turn(count: int, kinds: Sequence[tuple[tuple[str, Sequence[str], float, float], float, float]]) -> None:
    for (label, families, low, high), slower, part in kinds:
        made = [interleaved(d, slower) for d in drawn(round(count * part), families, low, high)]
        pairs = sorted(n for _, n in made)[len(made) // 2]
        change = "5% less throughput" if slower else "nothing changed"
        print(row(f"{label} ({pairs} pairs): {change}", [g for g, _ in made]), flush=True)


if __name__ == "__main__":
    main()
