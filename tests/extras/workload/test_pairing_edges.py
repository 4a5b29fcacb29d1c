"""How far the edge depends on which answer goes with which prompt: against services in the embedded
engine whose lengths go together, go against each other, or lie on few values."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from frontier.core.model.length_pairs import LengthPairs, RequestLengths
from frontier.core.model.shapes import Shape
from frontier.extras.workload.config_text import config_text, today
from frontier.extras.workload.observed import ProductionFigure, Workload
from frontier.extras.workload.pairing_edges import edges_said, lumped, pairing_edges
from frontier.extras.workload.server_metrics import workload_of
from frontier.simulator.request_times import BOUNDS
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import closed_loop_arrays

ENGINE = EngineSpec(max_num_seqs=2_048, kv_tokens=100_000_000)
VLLM = BOUNDS["request_prompt_tokens"]
FINE = tuple(round(0.001 * 1.02**i, 6) for i in range(500))
"""Bounds of latencies that hide nothing: what is looked at here are the lengths."""
LOAD = 8


def shape(pairs: Sequence[tuple[int, int]]) -> Shape:
    return Shape.of_pairs(LengthPairs.of([RequestLengths(*pair) for pair in pairs]), "true")


def service(kind: str) -> list[tuple[int, int]]:
    """The lengths of 1,000 requests."""
    rng = random.Random(kind)
    if kind == "few values":
        return [((4_096, 64), (3_500, 150), (512, 400))[i % 3] for i in range(1_000)]
    sign = {"together": 0.95, "against": -0.95}[kind]
    pairs = []
    for _ in range(1_000):
        a, b = rng.gauss(0, 1), rng.gauss(0, 1)
        isl, osl = np.exp(7 + 0.9 * a), np.exp(5 + 0.7 * (sign * a + (1 - sign**2) ** 0.5 * b))
        pairs.append((int(min(20_000, max(1, isl))), int(min(2_000, max(1, osl)))))
    return pairs


def counted(
    name: str, values: Sequence[float] | np.ndarray, bounds: Sequence[float]
) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    x = np.asarray(values, float)
    grown = {(f"{name}_bucket", (("le", str(bound)),)): float((x <= bound).sum()) for bound in bounds}
    return grown | {
        (f"{name}_bucket", (("le", "+Inf"),)): float(len(x)),
        (f"{name}_sum", ()): float(x.sum()),
        (f"{name}_count", ()): float(len(x)),
    }


def production(pairs: Sequence[tuple[int, int]]) -> Workload:
    """What the counters of an engine say that serves these at LOAD."""
    took = closed_loop_arrays(ENGINE, shape(pairs), LOAD, requests=2_000, seed=7)
    grown = counted("vllm:request_prompt_tokens", [isl for isl, _ in pairs], VLLM)
    grown |= counted("vllm:request_generation_tokens", [osl for _, osl in pairs], VLLM)
    grown |= counted("vllm:time_to_first_token_seconds", took.ttft, FINE)
    grown |= counted("vllm:request_time_per_output_token_seconds", took.tpot[~np.isnan(took.tpot)], FINE)
    return replace(workload_of("server", grown, 600.0, None), running=ProductionFigure(LOAD, LOAD, LOAD, 20))


def keeps(pairs: Sequence[tuple[int, int]], concurrency: int, limits: dict[str, float]) -> bool:
    took = closed_loop_arrays(ENGINE, shape(pairs), concurrency, requests=1_000, seed=3)
    mine = {"p99_ttft": np.quantile(took.ttft, 0.99), "p99_tpot": np.quantile(took.tpot[~np.isnan(took.tpot)], 0.99)}
    return all(mine[name] <= limit for name, limit in limits.items())


@pytest.mark.parametrize("kind", ["together", "against", "few values"])
def test_the_range_has_the_edge_of_the_requests_as_they_were(kind: str) -> None:
    """Within a quarter: a p99 of some hundred requests is no better known."""
    pairs = service(kind)
    found = production(pairs)
    limits = {name: 1.4 * limit for name, limit in today(found).items()}
    edges = pairing_edges(found, limits)
    ends = [end for pair in edges.values() for end in pair]
    assert set(edges) == {"independent", "sorted", "reversed"}
    assert keeps(pairs, int(0.75 * min(ends)), limits), edges
    assert not keeps(pairs, int(1.25 * max(ends)) + 1, limits), edges


def test_lengths_of_one_value_in_each_bucket_keep_their_sum() -> None:
    values = sorted(random.Random(1).lognormvariate(6, 1) for _ in range(1_000))
    each = lumped(values, VLLM)
    assert sum(each) == pytest.approx(sum(values))
    assert np.searchsorted(VLLM, each).tolist() == np.searchsorted(VLLM, values).tolist()
    assert len(set(each)) == len(set(np.searchsorted(VLLM, values).tolist()))
    assert lumped([5.0, 7.0], ()) == [6.0, 6.0], "without buckets only the mean is known"


def test_the_range_is_said_with_the_way_to_know() -> None:
    found = replace(
        production(service("together")), edges={"independent": (14, 12), "sorted": (9, 9), "reversed": (21, 20)}
    )
    said = edges_said(found)
    assert "c=9 to 21" in said
    assert "0.64 to 1.5 times" in said
    assert "log" in said
    assert "none" in edges_said(replace(found, edges=dict.fromkeys(found.edges, (0, 0))))
    assert " ".join(said.split()) in config_text(replace(found, notes=(said,)))


def test_where_counters_do_not_say_how_fast_the_server_is_there_is_no_edge() -> None:
    found = production(service("few values"))
    assert pairing_edges(replace(found, running=None), today(found)) == {}
    assert pairing_edges(replace(found, means={}), today(found)) == {}
    assert pairing_edges(replace(found, joint=True), today(found)) == {}
