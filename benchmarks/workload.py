"""Rebuilt workloads beside the replayed ones, on the embedded engine.

    python -m benchmarks.workload --trace azure_code.csv --trace mooncake.jsonl -o study.jsonl

A service is a public trace, or drawn: lengths with heavy tails whose sides go together or not, and
arrivals in bursts or not. Its engine is as fast as makes the recorded rate half of what it serves.
It is loaded at c=8, c=32 and the recorded rate, in virtual time: with the requests as they were
recorded, in their order with their blocks; rebuilt from a log, by `frontier workload`; rebuilt from
two histograms with vLLM's buckets; and by a fixed shape of the same means. Rebuilt requests arrive
as the config proposes, with gamma distributed gaps. What is compared are the throughput and the p50
and p99 of TTFT and TPOT, beyond what two replays of it differ.
"""

import argparse
import json
import math
import random
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from frontier.core.model.length_pairs import LengthPairs, RequestLengths
from frontier.core.model.loads import Arrivals, Rate
from frontier.core.model.shapes import Shape
from frontier.extras.workload.arrival_files import read_trace
from frontier.extras.workload.bucket_counts import Buckets, filled
from frontier.extras.workload.log_rows import COLUMNS, log_rows
from frontier.extras.workload.log_summary import summary
from frontier.extras.workload.observed import MOST_PAIRS, Pair, Workload, capped
from frontier.extras.workload.server_metrics import pairs_apart
from frontier.extras.workload.trace_files import read_requests
from frontier.simulator.request_times import BOUNDS
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import closed_loop_arrays

REQUESTS = 3_000
"""Requests of a window: thirty of them make its p99."""
CONTEXT = 131_072
"""The context of the embedded engine, in tokens."""
LOADS = ("c=8", "c=32", "recorded rate")
FIGURES = ("throughput", "p50 TTFT", "p99 TTFT", "p50 TPOT", "p99 TPOT")
HOW = ("log", "histograms", "fixed")
ENGINE = EngineSpec(step_base=0.005, per_decode=3e-5, per_prefill_token=2e-5, per_context_token=2e-8, noise=0.03)


@dataclass(frozen=True, slots=True)
class Service:
    """A service: its requests as they were recorded, and the file that they are in."""

    name: str
    recorded: Shape
    arrivals: Arrivals
    workload: Workload


def drawn_rows(number: int) -> Iterator[dict[str, float]]:
    """The requests of a drawn service, as a log has them."""
    rng = random.Random(f"service {number}")
    center, spread = rng.uniform(5.0, 8.5), rng.uniform(0.4, 1.4)
    answer, width, together = rng.uniform(3.5, 6.0), rng.uniform(0.3, 1.0), rng.choice([0.0, 0.0, 0.4, 0.8])
    cap, cv, rate = rng.choice([300, 1_000, 2_000]), rng.choice([1.0, 1.0, 1.5, 2.5]), rng.uniform(1.0, 10.0)
    moment = 0.0
    for _ in range(12_000):
        moment += rng.gammavariate(cv**-2, cv**2 / rate)
        first, second = rng.gauss(0, 1), rng.gauss(0, 1)
        side = together * first + math.sqrt(1 - together**2) * second
        isl, osl = math.exp(center + spread * first), math.exp(answer + width * side)
        yield {
            "timestamp": round(1_000 * moment, 3),
            "input_length": max(1, min(30_000, round(isl))),
            "output_length": max(1, min(cap, round(osl))),
        }


def service_of(path: Path, name: str) -> Service:
    """The service in a trace."""
    recorded = read_requests(str(path))
    found, _ = summary(name, log_rows(path, COLUMNS), None)
    return Service(name, replace(recorded, name="recorded"), read_trace(str(path)), found)


def rebuilt(service: Service) -> Mapping[str, Shape]:
    """The shapes that stand for a service."""
    w, rows = service.workload, [(row.isl, row.osl) for row in table(service.recorded)]
    cached = min(0.95, w.cached or 0.0)
    sides = [filled(histogram([row[side] for row in rows]), MOST_PAIRS, CONTEXT).tolist() for side in (0, 1)]
    return {
        "log": shape(w.classes[0].pairs, cached),
        "histograms": shape(capped(pairs_apart(*sides), CONTEXT)[0], cached),
        "fixed": replace(Shape.of(round(w.mean(0)), round(w.mean(1))), prefix=cached),
    }


def table(recorded: Shape) -> Sequence[RequestLengths]:
    """The requests of a trace."""
    assert recorded.pairs is not None
    assert recorded.pairs.table is not None
    return recorded.pairs.table.rows


def shape(pairs: Iterable[Pair], cached: float) -> Shape:
    """A shape of pairs."""
    return Shape.of_pairs(LengthPairs.of([RequestLengths(*pair) for pair in pairs]), "rebuilt", cached)


def histogram(values: Sequence[float]) -> Buckets:
    """Lengths in vLLM's buckets."""
    bounds, x = BOUNDS["request_prompt_tokens"], np.asarray(values, float)
    return Buckets(bounds, tuple(float((x <= bound).sum()) for bound in bounds), float(len(x)), float(x.sum()))


def engine_of(service: Service) -> EngineSpec:
    """The engine that serves twice the recorded rate at c=32."""
    blocks = service.recorded.pairs is not None and service.recorded.pairs.block > 0
    spec = replace(ENGINE, prefix_cache=blocks, kv_tokens=30_000_000)
    reached = closed_loop_arrays(spec, service.recorded, 32, requests=1_000)
    trace = service.arrivals.trace
    assert trace is not None
    return replace(spec, time_scale=0.5 * len(reached.ttft) / reached.window.length / trace.rate)


def measured(
    spec: EngineSpec, loaded: Shape, load: str, arrivals: Arrivals, seed: int, size: tuple[float, int]
) -> dict[str, float]:
    """The figures of one window, of so many requests, at the rate where it is not a concurrency."""
    rate, requests = size
    concurrency: int = int(load.removeprefix("c=")) if load != LOADS[-1] else Rate.of(rate)
    if load == LOADS[-1]:
        loaded = replace(loaded, arrivals=arrivals)
    took = closed_loop_arrays(replace(spec, seed=seed), loaded, concurrency, requests=requests, seed=seed)
    tpot = took.tpot[~np.isnan(took.tpot)] if len(took.tpot) else np.asarray([math.nan])
    sides = {"TTFT": took.ttft, "TPOT": tpot}
    figures = {f"p{p} {name}": float(np.quantile(x, p / 100)) for name, x in sides.items() for p in (50, 99)}
    return {"throughput": took.output_throughput, **figures}


def study(service: Service, repeats: int, requests: int) -> Iterator[dict[str, object]]:
    """The figures of a service under each load: replayed, and rebuilt in each way."""
    spec, shapes, facts = engine_of(service), rebuilt(service), service.workload.arrivals
    assert facts is not None
    rate, gamma = facts.rate, Arrivals(facts.cv or 1.0)
    for load in LOADS:
        replays = [
            measured(spec, service.recorded, load, service.arrivals, 1 + seed, (rate, requests))
            for seed in range(repeats)
        ]
        ways = {
            how: [measured(spec, shapes[how], load, gamma, 100 + seed, (rate, requests)) for seed in range(repeats)]
            for how in HOW
        }
        for figure in FIGURES:
            original = [each[figure] for each in replays]
            yield {
                "service": service.name,
                "load": load,
                "figure": figure,
                "original": math.exp(np.mean(np.log(original))),
                "differ": max(original) / min(original) - 1,
                **{how: math.exp(np.mean(np.log([each[figure] for each in runs]))) for how, runs in ways.items()},
            }


def off(row: Mapping[str, float], how: str) -> float:
    """How far a figure is off, beyond what two replays differ."""
    return max(0.0, abs(row[how] / row["original"] - 1) - row["differ"])


def report(rows: Sequence[Mapping[str, float]]) -> None:
    """The table of them all."""
    print(f"{len({row['service'] for row in rows})} services, {len(rows)} figures")
    print(f"{'':24}{'within 10%':>14}{'within 25%':>14}{'median off':>14}{'as measured':>14}")
    for how in HOW:
        gaps, plain = [off(row, how) for row in rows], [abs(row[how] / row["original"] - 1) for row in rows]
        shares = [float(np.mean([gap <= limit for gap in gaps])) for limit in (0.1, 0.25)]
        print(f"{how:24}" + "".join(f"{x:14.1%}" for x in (*shares, np.median(gaps), np.median(plain))))
    for part in ("load", "figure", "service"):
        print(f"\n{part:24}" + "".join(f"{how:>14}" for how in HOW) + "   within 10%")
        for value in dict.fromkeys(row[part] for row in rows):
            those = [row for row in rows if row[part] == value]
            print(f"{value!s:24}" + "".join(f"{np.mean([off(row, how) <= 0.1 for row in those]):14.0%}" for how in HOW))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", action="append", type=Path, default=[], help="a public trace; repeatable")
    parser.add_argument("--drawn", type=int, default=10, help="drawn services")
    parser.add_argument("--begin", type=int, default=0, help="the number of the first of these")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="of a window")
    parser.add_argument("--repeats", type=int, default=2, help="windows of each")
    parser.add_argument("-o", type=Path, help="append every figure as a JSON line")
    given = parser.parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.begin, given.begin + given.drawn):
            lines = "".join(json.dumps(row) + "\n" for row in drawn_rows(number))
            (Path(folder) / f"drawn-{number}.jsonl").write_text(lines)
        for path in (*given.trace, *sorted(Path(folder).iterdir())):
            begun = time.monotonic()
            found = list(study(service_of(path, path.stem), given.repeats, given.requests))
            rows += found
            if given.o is not None:
                with given.o.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in found)
            print(f"{path.stem}: {time.monotonic() - begun:.0f} s", flush=True)
    report(rows)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
