"""Observed workloads: the facts known of a service's requests, from any source, and the length
pairs that represent them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from frontier.core.stats.intervals import lower_rank, quantile, upper_rank

MOST_PAIRS = 1_000
"""Most length pairs of a workload: ten of them make its p99. A config then has about 100 lines of
them."""
SEVERAL = 5
"""Mean arrivals of a window at which the index of dispersion is that of the gaps within 10%, for
gamma gaps with a coefficient of variation up to 4."""
Pair = tuple[int, ...]
"""The lengths of a prompt and its answer and, where known, the prompt tokens that came from a
cache."""


@dataclass(frozen=True, slots=True)
class ProductionFigure:
    """A figure of production, in seconds or requests, with its interval: a histogram's bucket, or a
    confidence interval (95%). A side that is not known is None.
    """

    value: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class RequestClass:
    """A class of the requests: its name, its share of them, and the length pairs that represent
    them.
    """

    name: str
    share: float
    pairs: Sequence[Pair]

    def mean(self, side: int) -> float:
        """The mean length of a side: 0 is the prompt, 1 the answer."""
        return sum(pair[side] for pair in self.pairs) / len(self.pairs)


@dataclass(frozen=True, slots=True)
class ArrivalFacts:
    """How requests arrive: `rate` per second over the whole time and in its busiest part, which is
    named; and the index of dispersion of counts there, by the seconds of the windows.
    """

    rate: float
    busiest: float
    when: str
    dispersion: Mapping[int, float] = field(default_factory=dict)

    @property
    def cv(self) -> float | None:
        """The coefficient of variation of gamma gaps that are as bursty; None where it is not
        known.

        The shortest window with several arrivals decides: in longer ones a rate that changes slowly
        looks like bursts.
        """
        enough = (window for window in sorted(self.dispersion) if window * self.busiest >= SEVERAL)
        window = next(enough, max(self.dispersion, default=0))
        return float(np.clip(np.sqrt(self.dispersion[window]), 0.1, 10.0)) if window else None


@dataclass(frozen=True, slots=True)
class Workload:
    """What a service serves.

    - `joint`: whether both lengths of a request were seen together.
    - `cached`: the share of prompt tokens that came from a prefix cache.
    - `running`: the requests in flight. `figures`: its latencies by metric.
    - `servers`: the number of engines that it is counted over.
    - `replayed`, `sessions`: files that were written.
    - `lower_bound`: requests are missing, because a counter was reset.

    From counters:

    - `means`: the means of TTFT and TPOT.
    - `bounds`: the bucket bounds of both lengths.
    - `edges`: the range that these leave open for the highest concurrency that keeps the limits, by
      how the lengths are paired.
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
    """`count` pairs that represent the rows.

    Rows are grouped by prompts of nearly one length, and one row of each group is taken, now with a
    short and now with a long answer. That keeps the tails of both sides and their dependence.
    Scaling then restores the means, which a few long rows would miss.
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
    """`count` places that fill 0..1 evenly, wherever the sequence is cut: multiples of the golden
    ratio.
    """
    return np.asarray(np.arange(count) * ((5**0.5 - 1) / 2) % 1.0)


def capped(pairs: Sequence[Pair], context: int | None) -> tuple[list[Pair], int]:
    """The pairs cut to a model's context, and how many were cut. The prompt is cut first, the
    answer only where it alone is too long.
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
    """The p50 and p99 of observed values, by the metrics' names, with their intervals; empty
    without values. `steps` are the steps of each value's clock, by which it may be shorter or
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
