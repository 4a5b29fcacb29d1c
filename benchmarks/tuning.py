"""Races of server settings on simulated deployments whose truth is known.

    python -m benchmarks.tuning --families 100 -o tuning.jsonl       print the table of them all

A family is a deployment with 4 to 24 variants (caps, token budgets, KV memory, prices of a step),
an SLA, and a server whose speed is drawn anew at each start. The truth of a variant is its most
throughput within the SLA at any load, of long runs at the speed in the middle. A race runs in
virtual time; each start of a server costs the seconds drawn for it. Beside it: every variant swept
to its first proof, the best of one short run of each, and successive halving on values.
"""

import argparse
import asyncio
import json
import math
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from frontier.config import Config, DeploymentConfig, load_config
from frontier.config.config_file import open_run
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.series import Series
from frontier.core.model.shapes import Shape
from frontier.extras.api.virtual_backend import VirtualBackend
from frontier.extras.tune.course import RaceCourse, race_of, rules_of
from frontier.extras.tune.variants import Variant, variants_of
from frontier.planning.plan import make_plan, search_policy
from frontier.planning.sweep_progress import Progress
from frontier.read_run import load
from frontier.search.auto import MOST
from frontier.search.next_trial import Ask
from frontier.search.scan import next_ask
from frontier.search.series_history import SeriesHistory
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import Arrays, closed_loop_arrays
from frontier.store.run_dir import RunDirectory
from frontier.sweep.backend import Facts
from frontier.sweep.conductor import Conductor, Course

KINDS = ("equal", "caps", "budgets", "memory", "prices")
SIZES = (4, 6, 12, 24)
TRUTH_REQUESTS = 12_000
WITHIN = 0.03


@dataclass(frozen=True, slots=True)
class Family:
    """One deployment with its variants, as a config; `speed` is the standard deviation (ln) of its
    speed from start to start, `start` the seconds that a start takes: a few per cent to a fourth of
    what finding and proving a setting takes, as with engines.
    """

    number: int
    kind: str
    text: str
    speed: float
    start: float


@dataclass(frozen=True, slots=True)
class Result:
    """A race and its truth: `best` and `chosen` are the true bests of the best variant and of the
    one chosen, over the baseline's; `low` to `high` is the interval of the gain claimed. `flatter`
    is by how much the winner of a short run of each is overestimated.
    """

    number: int
    kind: str
    variants: int
    claimed: bool
    truth: float
    ratio: float | None
    low: float
    high: float
    best: float
    chosen: float
    seconds: float
    swept: float
    pairs: int
    short_chosen: float
    short_flatter: float
    halving_chosen: float
    halving_flatter: float


# ---- families


def draw(number: int) -> Family:
    """A family by its number: the same everywhere."""
    rng = np.random.default_rng(90_000 + number)
    kind, size = KINDS[number % len(KINDS)], SIZES[(number // len(KINDS)) % len(SIZES)]

    def some(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(math.log(low), math.log(high))))

    base = {
        "step_base": some(4e-3, 12e-3),
        "per_decode": some(20e-6, 200e-6),
        "per_prefill_token": some(15e-6, 60e-6),
        "per_context_token": some(10e-9, 60e-9),
        "noise": float(rng.choice([0.01, 0.03, 0.08])),
        "max_num_seqs": 256,
        "max_batched_tokens": 2048,
        "kv_tokens": 400_000,
    }
    isl, osl = int(rng.choice([128, 256, 512])), int(rng.choice([32, 64]))
    edge = int(some(12, 90))
    at_edge = simulated(EngineSpec.from_mapping(base), Shape.of(isl, osl), edge, 3_000)
    tpot, ttft = (float(np.quantile(x[np.isfinite(x)], 0.99)) for x in (at_edge.tpot, at_edge.ttft))
    sla = f"{{p99_ttft: {1_000 * ttft * some(1.2, 4):.1f}ms, p99_tpot: {1_000 * tpot:.3f}ms}}"
    vary = varied(kind, size, edge, base, rng)
    text = written({key: value for key, value in base.items() if key not in vary[0]})
    variants = ", ".join(written({"name": f"v{i}", **each}) for i, each in enumerate(vary))
    config = f"shapes: {isl}/{osl}\nsla: {sla}\nseed: {number}\ndeployments:\n"
    config += f"- {{name: d, endpoint: simulator, simulator: {text}, variants: [{variants}]}}\n"
    return Family(number, kind, config, float(rng.choice([0.005, 0.01, 0.02])), some(10, 40))


def written(values: Mapping[str, Any]) -> str:
    """A mapping for a config, its numbers written out."""
    texts = (f"{key}: {value:.9f}" if isinstance(value, float) else f"{key}: {value}" for key, value in values.items())
    return f"{{{', '.join(texts)}}}"


def varied(
    kind: str, size: int, edge: int, base: Mapping[str, float], rng: np.random.Generator
) -> list[dict[str, Any]]:
    """The values of each variant, the baseline's first: effects from 0 to 40%."""
    if kind == "equal":  # caps far above the edge change nothing
        return [{"max_num_seqs": 250 + i} for i in range(size)]
    if kind == "caps":
        values = [round(edge * x) for x in np.exp(rng.uniform(math.log(0.5), math.log(2), size))]
        return [{"max_num_seqs": value} for value in values]
    if kind == "budgets":
        return [{"max_batched_tokens": int(x)} for x in np.exp(rng.uniform(math.log(260), math.log(6000), size))]
    if kind == "memory":
        return [{"kv_tokens": round(edge * 600 * x)} for x in np.exp(rng.uniform(math.log(0.3), math.log(2), size))]
    effects = 1 - rng.uniform(0, rng.choice([0.03, 0.1, 0.4]), size)
    names = ("step_base", "per_decode", "per_prefill_token")
    return [{name: base[name] * effect for name in names} for effect in effects]


# ---- truth


def simulated(spec: EngineSpec, shape: Shape, c: int, requests: int, seed: int = 0) -> Arrays:
    return closed_loop_arrays(spec, shape, c, requests=requests, seed=seed)


def keeps(arrays: Arrays, limits: Sequence[Limit]) -> bool:
    """Whether the values of a long run keep every limit."""
    for limit in limits:
        values = getattr(arrays, str(limit.of.quantity))
        if float(np.quantile(values[np.isfinite(values)], limit.of.p or 0.5)) > limit.promise:
            return False
    return True


def true_best(
    config: Config,
    deployment: DeploymentConfig,
    requests: int = TRUTH_REQUESTS,
    per_stream: int = 30,
    seed: int = 7,
    speed: float = 0.0,
) -> float:
    """The most throughput within the SLA at any load, by bisection of the load; ln of the `speed`
    of this start is added to that in the middle.
    """
    spec, shape = deployment.engine_spec(), config.shapes[0]
    spec = replace(spec, time_scale=spec.time_scale * math.exp(-speed))
    rates: dict[int, float] = {}

    @cache
    def inside(c: int) -> bool:
        arrays = simulated(spec, shape, c, max(requests, per_stream * c), seed)
        rates[c] = arrays.output_throughput
        return keeps(arrays, config.limits)

    low, high = 0, 8
    while high < 512 and inside(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if inside(middle) else (low, middle)
    return max((rate for c, rate in rates.items() if c <= low), default=0.0)


# ---- races


class Restarting(VirtualBackend):
    """The simulator whose speed is drawn anew at each start; `seconds` counts starts and trials."""

    def __init__(self, config: Config, family: Family) -> None:
        self.specs = {d.name: d.engine_spec() for d in config.deployments}
        super().__init__(dict(self.specs))
        self.family, self.seconds, self.starts = family, 0.0, 0

    async def prepare(self, deployment: DeploymentConfig) -> Facts:
        self.starts += 1
        self.seconds += self.family.start
        rng = np.random.default_rng([self.family.number, self.starts])
        spec = self.specs[deployment.name]
        scale = spec.time_scale * math.exp(rng.normal(0, self.family.speed))
        self._specs = {**self._specs, deployment.name: replace(spec, time_scale=scale)}
        return await super().prepare(deployment)

    async def run(self, trial: Any, **how: Any) -> Any:
        measurement = await super().run(trial, **how)
        self.seconds += measurement.window.end
        return measurement


def conducted(config: Config, family: Family, path: Path, course: Course, backend: Restarting | None = None) -> float:
    """The seconds that a course takes, starts included."""
    backend = backend or Restarting(config, family)
    with open_run(path, config, family.text, {}) as directory:
        conductor = Conductor(config, make_plan(config), directory, backend, Progress(), asyncio.Event(), course=course)
        asyncio.run(conductor.conduct())
    return backend.seconds


def raced(number: int) -> Result:
    """The race of a family, beside its truth."""
    family = draw(number)
    config, variants = load_config(family.text, "family"), variants_of(family.text, "family")
    truths = [true_best(config, d) for d in config.deployments]
    rules = rules_of(config, "output_throughput")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        seconds = conducted(config, family, path, RaceCourse(variants, rules))
        run = load(path)
        race = race_of(config, variants, rules, run.histories, RunDirectory.read(path).journal_lines())
        gain, finalist = race.gain, race.finalist
    claimed = gain is not None and gain.better
    names = [v.name for v in variants]
    other = names.index(finalist.series.deployment) if finalist is not None else 0
    alone = gain is None and finalist is not None and finalist.proven is not None and race.baseline.proven is None
    chosen = other if claimed or alone else 0
    base = truths[0] or math.nan
    short, halving = short_runs(config, family, range(len(variants)), 100), halved(config, family)
    return Result(
        number,
        family.kind,
        len(variants),
        claimed,
        truths[other] / base,
        None if gain is None else gain.ratio.value,
        math.nan if gain is None else gain.ratio.low,
        math.nan if gain is None else gain.ratio.high,
        max(truths) / base,
        truths[chosen] / base,
        seconds,
        sum(swept(config, family, variants)),
        0 if gain is None else gain.pairs,
        truths[max(short, key=lambda i: short[i])] / base,
        _over(short, truths, max(short, key=lambda i: short[i])),
        truths[halving[0]] / base,
        _over(halving[1], truths, halving[0]),
    )


def _over(values: Mapping[int, float], truths: Sequence[float], i: int) -> float:
    """By how much the gain of a winner by values is overestimated."""
    return (values[i] / values[0]) / (truths[i] / truths[0]) - 1 if values[0] and truths[0] else math.nan


def short_runs(config: Config, family: Family, of: Iterable[int], requests: int) -> dict[int, float]:
    """What one start and so many requests at each load say of variants, by their places."""
    rng = np.random.default_rng([family.number, requests])
    draws = {i: (int(rng.integers(1 << 30)), float(rng.normal(0, family.speed))) for i in of}
    return {i: true_best(config, config.deployments[i], requests, 4, seed, speed) for i, (seed, speed) in draws.items()}


def halved(config: Config, family: Family) -> tuple[int, dict[int, float]]:
    """Successive halving on values: of those left the better half, with twice the requests."""
    left, requests = list(range(len(config.deployments))), 100
    values: dict[int, float] = {}
    while True:
        values |= short_runs(config, family, sorted({0, *left}), requests)
        if len(left) == 1:
            return left[0], values
        left = sorted(left, key=lambda i: -values[i])[: (len(left) + 1) // 2]
        requests *= 2


@dataclass
class FirstProof:
    """Each variant searched as a sweep does, until its first proof."""

    names: Sequence[str]

    async def __call__(self, conductor: Conductor, /) -> None:
        config = conductor.config
        for name in self.names:
            series = Series(name, config.shapes[0])
            await conductor.start_anew(name)
            policy = search_policy(config, MOST, (), name)
            while True:
                history = conductor.state.histories.get(series, [])
                candidates = SeriesHistory.of(config.limits, history).candidates
                if any(k.verdict is Verdict.MEETS for k in candidates):
                    break
                ask = next_ask(policy, series.shape, config.tiers, history)
                if not isinstance(ask, Ask):
                    break
                await conductor.run_ask(series, ask)


def swept(config: Config, family: Family, variants: Sequence[Variant]) -> Iterator[float]:
    """The seconds of sweeping every variant to its first proof: of three of them, for all."""
    chosen = sorted({0, len(variants) // 2, len(variants) - 1})
    with tempfile.TemporaryDirectory() as folder:
        names = [variants[i].name for i in chosen]
        seconds = conducted(config, family, Path(folder) / "run", FirstProof(names))
    yield seconds / len(chosen) * len(variants)


# ---- the table


def table(results: Sequence[Result]) -> str:
    """What is required of races, and what came out."""
    gains = [r for r in results if r.ratio is not None and math.isfinite(r.truth)]
    none = [r for r in results if not r.truth > 1]
    rows = [
        ("claimed where the truth is 1 or less", [r.claimed for r in none], "at most 5%"),
        ("interval covers the truth", [r.low <= r.truth <= r.high for r in gains], "at least 93%"),
        ("chosen within 3% of the best", [r.chosen >= r.best * (1 - WITHIN) for r in results], "at least 90%"),
        ("best of a short run within 3%", [r.short_chosen >= r.best * (1 - WITHIN) for r in results], ""),
        ("successive halving within 3%", [r.halving_chosen >= r.best * (1 - WITHIN) for r in results], ""),
        ("gain claimed where it is over 5%", [r.claimed for r in results if r.best > 1.05], ""),
    ]
    lines = [f"{name:<42}{sum(hits):>5} of {len(hits):<5}{_percent(hits)}  {asked}" for name, hits, asked in rows]
    for size in SIZES:
        mine = [r for r in results if r.variants == size]
        if mine:
            total = sum(r.seconds for r in mine) / sum(r.swept for r in mine)
            each = np.median([r.seconds / r.swept for r in mine])
            lines.append(f"time, {size} variants: {total:.0%} of sweeping all, median {each:.0%} ({len(mine)})")
    flattered = {"short run": [r.short_flatter for r in results], "halving": [r.halving_flatter for r in results]}
    for name, values in flattered.items():
        known = [x for x in values if math.isfinite(x)]
        middle, most = np.quantile(known, [0.5, 0.9])
        lines.append(f"{name}: its winner flatters by {middle:.1%} in the median, {most:.1%} in one of ten")
    return "\n".join(lines)


def _percent(hits: Sequence[bool]) -> str:
    return f"{sum(hits) / len(hits):6.1%}" if hits else "     -"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    results: list[Result] = []
    began = time.monotonic()
    with ProcessPoolExecutor(given.jobs) as pool:
        for result in pool.map(raced, range(given.first, given.first + given.families)):
            results.append(result)
            print(f"{time.monotonic() - began:6.0f} s  {result}", flush=True)
            if given.output:
                with given.output.open("a") as file:
                    file.write(json.dumps(asdict(result)) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
