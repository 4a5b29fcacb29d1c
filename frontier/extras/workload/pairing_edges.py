"""Pairing edges: the concurrency that keeps the limits, by which answer goes with which prompt.

Two histograms do not say that, nor where in a bucket lengths lie. So the embedded engine is made as
fast as the observed server, and loaded with the lengths drawn independently, sorted (long prompts
have long answers) and reversed. Each is spread over its buckets, and also with one value in each
bucket. The distance between the edges is how much of an answer counters leave open.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from frontier.core.model.length_pairs import LengthPairs, RequestLengths
from frontier.core.model.shapes import Shape
from frontier.extras.workload.observed import Pair, Workload, capped
from frontier.extras.workload.server_metrics import pairs_apart
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import closed_loop_arrays

_TOKENS = 100_000
"""Tokens that a load generates in the engine, so that six searches take seconds."""
_REQUESTS = 50, 1_000
"""The fewest and the most requests of a load."""
_FITS = 4
"""Loads that are run to make the engine as fast as the server."""
_FAR, _MOST = 8, 512
"""The highest concurrency looked at: as a multiple of the requests in flight, and in all."""
_LONGEST = 120_000
"""Most tokens of a request that the embedded engine takes."""
_ENGINE = EngineSpec(kv_tokens=100_000_000, max_num_seqs=2_048)


def _together(inputs: Sequence[float], outputs: Sequence[float]) -> list[Pair]:
    return [(max(1, round(isl)), max(1, round(osl))) for isl, osl in zip(inputs, outputs, strict=True)]


PAIRINGS: Mapping[str, Callable[[Sequence[float], Sequence[float]], list[Pair]]] = {
    "independent": pairs_apart,
    "sorted": _together,
    "reversed": lambda inputs, outputs: _together(inputs, outputs[::-1]),
}
"""Pairs of ascending lengths by how they are paired."""


def lumped(values: Sequence[float], bounds: Sequence[float]) -> list[float]:
    """Values that lie at the mean of their bucket, with the same sum."""
    x, place = np.asarray(values, float), np.searchsorted(np.asarray(bounds), values)
    means = np.bincount(place, x) / np.maximum(1, np.bincount(place))
    return [float(mean) for mean in means[place]]


def pairing_edges(w: Workload, limits: Mapping[str, float]) -> dict[str, tuple[int, int]]:
    """The highest concurrency of an engine that keeps the limits, by pairing: with lengths spread
    over their buckets, and with one value in each bucket; 0 where no concurrency keeps them.

    Empty where counters do not say how fast the server is, and for a load that would take long to
    run.
    """
    load = _load(w)
    if w.joint or load is None or load > _MOST / 2 or not w.means:
        return {}
    sides = [sorted(float(pair[side]) for pair in w.classes[0].pairs) for side in (0, 1)]
    fills = sides, [lumped(side, bounds) for side, bounds in zip(sides, w.bounds, strict=True)]
    own = _shape(w, w.classes[0].pairs)
    engine = _as_fast(w, own, load)
    # Production keeps its limits at this load: where the engine's p99 is higher, so are the limits.
    there = _measured(engine, own, load)
    limits = {name: max(limit, there.get(name, 0.0)) for name, limit in limits.items()}
    return {
        name: tuple(edge(engine, _shape(w, paired(*lengths)), load, limits) for lengths in fills)  # type: ignore[misc]
        for name, paired in PAIRINGS.items()
    }


def _load(w: Workload) -> int | None:
    """The requests in flight on an engine; None where that is not known."""
    return None if w.running is None else max(1, round(w.running.value / w.servers))


def _most(load: int) -> int:
    return min(_FAR * load, _MOST)


def _shape(w: Workload, pairs: Sequence[Pair]) -> Shape:
    room = min(w.context or _LONGEST, _LONGEST)
    table = LengthPairs.of([RequestLengths(pair[0], pair[1]) for pair in capped(pairs, room)[0]])
    return Shape.of_pairs(table, "traffic", min(0.95, w.cached or 0.0))


def _measured(engine: EngineSpec, shape: Shape, load: int) -> dict[str, float]:
    """Means and p99 of the engine's TTFT and TPOT."""
    requests = round(np.clip(_TOKENS / shape.osl.mean, *_REQUESTS))
    took = closed_loop_arrays(engine, shape, load, requests=requests, seed=1)
    sides = {"ttft": took.ttft, "tpot": took.tpot[~np.isnan(took.tpot)]}
    found = {f"mean_{name}": float(x.mean()) for name, x in sides.items() if len(x)}
    return found | {f"p99_{name}": float(np.quantile(x, 0.99)) for name, x in sides.items() if len(x)}


def _as_fast(w: Workload, shape: Shape, load: int) -> EngineSpec:
    """The embedded engine with steps and prompts as fast as the server's at its load."""
    engine = replace(_ENGINE, prefix_cache=bool(w.cached))
    for _ in range(_FITS):
        mine = _measured(engine, shape, load)
        step, prompt = (
            float(np.clip(w.means[name] / mine[f"mean_{name}"], 0.05, 20.0))
            if name in w.means and mine.get(f"mean_{name}")
            else None
            for name in ("tpot", "ttft")
        )
        step, prompt = step or prompt or 1.0, prompt or step or 1.0
        engine = replace(
            engine,
            step_base=engine.step_base * step,
            per_decode=engine.per_decode * step,
            per_context_token=engine.per_context_token * step,
            per_prefill_token=engine.per_prefill_token * prompt,
        )
    return engine


def edge(engine: EngineSpec, shape: Shape, load: int, limits: Mapping[str, float]) -> int:
    """The highest concurrency up to _most(load) at which the engine keeps the limits."""

    def keeps(concurrency: int) -> bool:
        took = _measured(engine, shape, concurrency)
        return all(took.get(name, 0.0) <= limit for name, limit in limits.items())

    kept, most = 0, _most(load)
    broken = most + 1
    tried = load
    while kept + 1 < broken and broken - kept > 0.03 * kept:
        if keeps(tried):
            kept = tried
            tried = min(2 * tried, most) if broken > most else (kept + broken) // 2
        else:
            broken = tried
            tried = max(1, (kept + broken) // 2)
    return kept


def edges_said(w: Workload) -> str:
    """The edges in a sentence."""
    ends = [edge for pair in w.edges.values() for edge in pair]
    each = ", ".join(f"{name} {_range(*sorted(pair))}" for name, pair in w.edges.items()).replace("c=", "")
    own, more = w.edges["independent"][0], " or more" if max(ends) >= _most(_load(w) or 1) else ""
    times = f", {min(ends) / own:.2g} to {max(ends) / own:.2g} times that of the pairs here" if own else ""
    return (
        "Which answer goes with which prompt is open, and with it the edge: about "
        f"{_range(min(ends), max(ends))}{more}{times} "
        f"({each}; in the embedded engine, made as fast as this server, at the limits below). "
        "A log of the requests would tell:  frontier workload LOG"
    )


def _range(low: int, high: int) -> str:
    """'c=9 to 21'; 'none' where not even one request keeps the limits."""
    ends = dict.fromkeys("none" if end == 0 else str(end) for end in (low, high))
    return f"c={' to '.join(ends)}".replace("c=none", "none")
