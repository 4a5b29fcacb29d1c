"""Observed workloads: the facts known of a service's requests, from any source, and the length
pairs that represent them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from frontier.core.stats.intervals import lower_rank, quantile, upper_rank

MOST_PAIRS = 1_000
"""Pairs of lengths that stand for a workload: ten of them make its p99. A config has then about 100
lines of them."""
SEVERAL = 5
"""Arrivals of a window whose index of dispersion is that of the gaps within 10 %, where these are
gamma distributed with a coefficient of variation up to 4."""
Pair = tuple[int, ...]
"""The lengths of a prompt and its answer, and where it is known how much of the prompt came from a
cache."""


@dataclass(frozen=True, slots=True)
class ProductionFigure:
    """A figure of production, in seconds or requests, with the interval that it lies in: the width
    of a histogram's bucket, or a confidence interval (95 %). A side that is not known is None.
    """

    value: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class RequestClass:
    """A class of the requests: its name, its share of them, and pairs of lengths that stand for
    them.
    """

    name: str
    share: float
    pairs: Sequence[Pair]

    def mean(self, side: int) -> float:
        """The mean length of a side, 0 the prompt and 1 the answer."""
        return sum(pair[side] for pair in self.pairs) / len(self.pairs)


@dataclass(frozen=True, slots=True)
class ArrivalFacts:
    """How requests arrive: `rate` per second over all of the time, and in its busiest part, that is
    named, with the index of dispersion of counts there by the seconds of the windows.
    """

    rate: float
    busiest: float
    when: str
    dispersion: Mapping[int, float] = field(default_factory=dict)

    @property
    def cv(self) -> float | None:
        """The coefficient of variation of gaps that are gamma distributed and as bursty: of the
        shortest window with several arrivals, as in longer ones a rate that moves slowly looks like
        bursts. None where it is not known.
        """
        enough = (window for window in sorted(self.dispersion) if window * self.busiest >= SEVERAL)
        window = next(enough, max(self.dispersion, default=0))
        return float(np.clip(np.sqrt(self.dispersion[window]), 0.1, 10.0)) if window else None


@dataclass(frozen=True, slots=True)
class Workload:
    """What a service serves. `joint` says whether both lengths of a request were seen together.

    `cached` is the share of prompt tokens that came from a prefix cache, `running` the requests in
    flight, `figures` its latencies by their metrics' names. `servers` is over how many engines it
    is counted. `replayed` and `sessions` are files that were written. `lower_bound` says that
    requests are missing, as a counter began anew. Of counters `means` are those of TTFT and TPOT,
    `bounds` those of the buckets of both lengths, and `edges` what these leave open: the highest
    concurrency that keeps the limits, from and to, by how the lengths are paired.
    """

    source: str
    requests: int
    seconds: float | None
    classes: tuple[RequestClass, ...]
    joint: bool
    cached: float | None = None
    arrivals: ArrivalFacts | None = None
    running: ProductionFigure | None = None
    figures: Mapping[str, ProductionFigure] = field(default_factory=dict)
    servers: int = 1
    endpoint: str | None = None
    model: str | None = None
    context: int | None = None
    notes: tuple[str, ...] = ()
    replayed: str | None = None
    sessions: str | None = None
    lower_bound: bool = False
    means: Mapping[str, float] = field(default_factory=dict)
    bounds: tuple[tuple[float, ...], ...] = ()
    edges: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def mean(self, side: int) -> float:
        """The mean length of a side over all requests."""
        return sum(each.share * each.mean(side) for each in self.classes)


def representative(rows: Sequence[Pair], count: int = MOST_PAIRS) -> list[Pair]:
    """So many pairs that stand for the rows: one of each group of rows with prompts of nearly one
    length, now with a short and now with a long answer among these. That keeps the tails of both
    sides and what they have to do with each other. The means are then met by scaling, as a few long
    rows would miss them.
    """
    if len(rows) <= count:
        return sorted(rows)
    pairs = np.asarray(rows, float)
    groups = np.array_split(np.argsort(pairs[:, 0], kind="stable"), count)
    by_answer = [group[np.argsort(pairs[group, 1], kind="stable")] for group in groups]
    chosen = pairs[[group[int(place * len(group))] for group, place in zip(by_answer, even(count), strict=True)]]
    scaled = np.minimum(chosen * (pairs.mean(axis=0) / np.maximum(chosen.mean(axis=0), 1e-9)), pairs.max(axis=0))
    rounded = ((max(1, round(isl)), max(1, round(osl)), *shared) for isl, osl, *shared in scaled.tolist())
    return [(isl, osl, *(min(round(tokens), isl - 1) for tokens in shared)) for isl, osl, *shared in rounded]


def even(count: int) -> NDArray[np.float64]:
    """So many places that fill 0..1 evenly, wherever the sequence is cut: multiples of the golden
    ratio.
    """
    return np.asarray(np.arange(count) * ((5**0.5 - 1) / 2) % 1.0)


def capped(pairs: Sequence[Pair], context: int | None) -> tuple[list[Pair], int]:
    """The pairs cut to what a model's context has room for, and how many were: the prompt gives
    way, the answer only where it alone is too long.
    """
    if context is None:
        return list(pairs), 0
    cut = []
    for isl, osl, *shared in pairs:
        answer = min(osl, context - 1)
        prompt = max(1, min(isl, context - answer))
        cut.append((prompt, answer, *(min(tokens, prompt - 1) for tokens in shared)))
    return cut, sum(a != b for a, b in zip(pairs, cut, strict=True))


def percentile_figures(name: str, values: Sequence[float], steps: Sequence[float] = ()) -> dict[str, ProductionFigure]:
    """The p50 and p99 of values that were seen, by the metrics' names, with their intervals; none
    without values. `steps` are those of the clock that made each, by which it may be shorter or
    longer.
    """
    found = {}
    x, off = np.asarray(values, float), np.asarray(steps or [0.0] * len(values))
    x, shortest, longest = np.sort(x), np.sort(np.maximum(0.0, x - off)), np.sort(x + off)
    for p in (0.5, 0.99) if len(x) else ():
        lower, upper = lower_rank(p, len(x), len(x), 0.975), upper_rank(p, len(x), len(x), 0.975)
        low = None if lower is None else float(shortest[lower - 1])
        high = None if upper is None else float(longest[upper - 1])
        # Below a step of its clock a value is anywhere in it.
        value = quantile(x, p) or (quantile(shortest, p) + quantile(longest, p)) / 2
        found[f"p{p * 100:g}_{name}"] = ProductionFigure(value, low, high, len(x))
    return found
