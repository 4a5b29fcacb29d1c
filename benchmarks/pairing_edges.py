"""How much of an edge counters leave open, against drawn services in engines of other speeds.

    python -m benchmarks.pairing_edges --services 24

The lengths of a service go together, against each other or not, or lie on three values. Its engine
serves it at a few requests in flight; of the histograms that this leaves `frontier workload` makes
its config, and says how far the edge depends on the pairing. The edge of the requests as they were
over that of the config's is held against the factors that are said.
"""

import argparse
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from frontier.client.engines.base import Key
from frontier.core.model.length_pairs import LengthPairs, RequestLengths
from frontier.core.model.shapes import Shape
from frontier.extras.workload.config_text import today
from frontier.extras.workload.observed import Pair, ProductionFigure, Workload
from frontier.extras.workload.pairing_edges import edge, pairing_edges
from frontier.extras.workload.server_metrics import workload_of
from frontier.simulator.request_times import BOUNDS
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import closed_loop_arrays

KINDS = {"together": 0.8, "against": -0.8, "independent": 0.0, "three values": 0.0}
"""The correlation of the logarithms of both lengths."""
SLACK = 0.07
"""A p99 of some hundred requests moves an edge so much."""
TPOT = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)


def service(kind: str, rng: random.Random) -> list[Pair]:
    """The lengths of 1,000 requests."""
    center, spread, answer, width = rng.uniform(5, 8), rng.uniform(0.4, 1.2), rng.uniform(4, 6), rng.uniform(0.3, 0.9)
    if kind == "three values":
        prompts, answers = (256, 512, 1024, 2048, 3500, 4096), (32, 64, 150, 256, 400)
        values = [(rng.choice(prompts), rng.choice(answers)) for _ in range(3)]
        return [values[i % 3] for i in range(1_000)]
    together, pairs = KINDS[kind], []
    for _ in range(1_000):
        a, b = rng.gauss(0, 1), rng.gauss(0, 1)
        isl = math.exp(center + spread * a)
        osl = math.exp(answer + width * (together * a + math.sqrt(1 - together**2) * b))
        pairs.append((max(1, min(30_000, round(isl))), max(1, min(2_000, round(osl)))))
    return pairs


def engine(rng: random.Random) -> EngineSpec:
    """An engine of another speed than the embedded one's."""
    ranges = {
        "step_base": (3e-3, 25e-3),
        "per_decode": (5e-6, 1e-4),
        "per_prefill_token": (8e-6, 8e-5),
        "per_context_token": (1e-8, 1.5e-7),
    }
    prices = {name: math.exp(rng.uniform(math.log(low), math.log(high))) for name, (low, high) in ranges.items()}
    return EngineSpec(**prices, noise=0.03)


def shape(pairs: Sequence[Pair]) -> Shape:
    """A shape of pairs."""
    return Shape.of_pairs(LengthPairs.of([RequestLengths(pair[0], pair[1]) for pair in pairs]), "service")


def counted(name: str, values: Sequence[float] | np.ndarray, bounds: Sequence[float]) -> Mapping[Key, float]:
    """A histogram as a server counts it."""
    x = np.asarray(values, float)
    buckets: dict[Key, float] = {
        (f"{name}_bucket", (("le", str(bound)),)): float((x <= bound).sum()) for bound in bounds
    }
    whole = {(f"{name}_bucket", (("le", "+Inf"),)): float(len(x)), (f"{name}_count", ()): float(len(x))}
    return buckets | whole | {(f"{name}_sum", ()): float(x.sum())}


def production(spec: EngineSpec, pairs: Sequence[Pair], load: int) -> Workload:
    """What the counters of an engine say that serves these requests."""
    took = closed_loop_arrays(spec, shape(pairs), load, requests=2_000, seed=5)
    series: dict[str, tuple[Sequence[float] | np.ndarray, Sequence[float]]] = {
        "vllm:request_prompt_tokens": ([pair[0] for pair in pairs], BOUNDS["request_prompt_tokens"]),
        "vllm:request_generation_tokens": ([pair[1] for pair in pairs], BOUNDS["request_prompt_tokens"]),
        "vllm:time_to_first_token_seconds": (took.ttft, BOUNDS["time_to_first_token_seconds"]),
        "vllm:request_time_per_output_token_seconds": (took.tpot[~np.isnan(took.tpot)], TPOT),
    }
    grown = {key: value for name, given in series.items() for key, value in counted(name, *given).items()}
    return replace(workload_of("service", grown, 600.0, None), running=ProductionFigure(load, load, load, 20))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=24)
    held = 0
    services = parser.parse_args().services
    for number in range(services):
        rng, kind = random.Random(f"e{number}"), list(KINDS)[number % len(KINDS)]
        pairs, spec, load = service(kind, rng), engine(rng), rng.choice([2, 4, 8, 16])
        found = production(spec, pairs, load)
        limits = today(found)
        true, configs = (edge(spec, shape(each), load, limits) for each in (pairs, found.classes[0].pairs))
        said = pairing_edges(found, limits)
        ends, own = [end for pair in said.values() for end in pair], said["independent"][0]
        factors = (min(ends) / own, max(ends) / own) if own else (0.0, math.inf)
        inside = not configs or factors[0] * (1 - SLACK) <= true / configs <= factors[1] * (1 + SLACK)
        held += inside
        line = f"{kind:14} edge c={true}, of the config c={configs}; said {factors[0]:.2g} to {factors[1]:.2g} times"
        print(line, "" if inside else "  outside", flush=True)
    print(f"{held} of {services} within")


if __name__ == "__main__":
    main()
