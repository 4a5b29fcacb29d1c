"""Where a prediction breaks the SLA: the highest concurrency that keeps every limit, and the limit
that breaks above it.

From a config, the engine that stands for it runs in virtual time, so percentiles are its own. From
a run, the predicted means are multiplied by the ratio of percentile to mean at the nearest measured
point. The result says where to measure; no operating point is chosen by it.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frontier.core.model.decisions import Limit
from frontier.core.model.points import Point
from frontier.core.model.shapes import Shape
from frontier.core.window.window import Floats
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import closed_loop_arrays

REQUESTS = 400
"""Fewest requests of a virtual run whose percentiles are compared with limits: four lie beyond a
p99."""
MOST_TOKENS = 3_000_000
"""Most output tokens of a virtual run, which take about a second. A concurrency that needs more is
not looked at."""
CLOSE = 1.05
"""The factor to which the concurrencies that keep and break the SLA are searched; a prediction is
less exact than that."""

Values = Callable[[int], Mapping[Limit, float] | None]
"""The value of each limited metric at a concurrency; None: it cannot be predicted."""


@dataclass(frozen=True, slots=True)
class SlaBreak:
    """Where the SLA breaks.

    - `inside`: the highest concurrency that keeps every limit; None: none of those looked at does.
    - `breaks_at`: the lowest one looked at that does not, by `limits`; None: all keep them.
    - `unjudged`: the limits that no prediction covers.
    """

    inside: int | None
    breaks_at: int | None
    limits: tuple[Limit, ...] = ()
    unjudged: tuple[Limit, ...] = ()


def judged(limits: Sequence[Limit], shape: Shape) -> tuple[Limit, ...]:
    """The limits that a prediction covers: on latencies of all requests, where this shape has the
    latency.
    """
    told = (limit for limit in limits if limit.of.quantity in ("ttft", "tpot", "e2e") and limit.of.group is None)
    return tuple(limit for limit in told if not limit.undefined(shape))


def sla_break(limits: Sequence[Limit], shape: Shape, settings: Sequence[int], values: Values) -> SlaBreak | None:
    """Where the limits break, searched more closely between two of these settings. None without
    limits that a prediction covers.
    """
    known = judged(limits, shape)
    if not known:
        return None

    def broken_at(concurrency: int) -> tuple[Limit, ...] | None:
        at = values(concurrency)
        return None if at is None else tuple(limit for limit in known if limit.breaks(at[limit]))

    unjudged = tuple(limit for limit in limits if limit not in known)
    inside = None
    for concurrency in sorted(settings):
        broken = broken_at(concurrency)
        if broken is None:
            break
        if broken:
            return SlaBreak(*_closer(inside, concurrency, broken, broken_at), unjudged)
        inside = concurrency
    return SlaBreak(inside, None, (), unjudged)


def _closer(
    low: int | None, high: int, broken: tuple[Limit, ...], broken_at: Callable[[int], tuple[Limit, ...] | None]
) -> tuple[int | None, int, tuple[Limit, ...]]:
    """A setting inside, one beyond, and the limits that break there, brought closer to each other
    by halving.
    """
    while low is not None and high > max(low + 1, low * CLOSE):
        middle = min(max(round(math.sqrt(low * high)), low + 1), high - 1)
        over = broken_at(middle)
        if over is None:
            break
        if over:
            high, broken = middle, over
        else:
            low = middle
    return low, high, broken


def of_engine(spec: EngineSpec, shape: Shape, limits: Sequence[Limit]) -> Values:
    """The limited metrics of this engine in virtual time."""
    own = dataclasses.replace(spec, prefix_cache=spec.prefix_cache or shape.cached > 0)

    def values(concurrency: int) -> Mapping[Limit, float] | None:
        requests = max(REQUESTS, 2 * concurrency)
        if (requests + 2 * concurrency) * shape.osl.mean > MOST_TOKENS:
            return None
        run = closed_loop_arrays(own, shape, concurrency, requests=requests)
        return {limit: _of(getattr(run, str(limit.of.quantity)), limit) for limit in judged(limits, shape)}

    return values


def _of(latencies: Floats, limit: Limit) -> float:
    """The limited statistic of some latencies."""
    value = latencies.mean() if limit.of.p is None else np.quantile(latencies, limit.of.p, method="inverted_cdf")
    return float(1 / value if limit.of.inverted else value)


def of_points(
    points: Sequence[Point], limits: Sequence[Limit], shape: Shape, mean_of: Callable[[str, int], float]
) -> Values:
    """The limited metrics: predicted means times the ratio of statistic to mean at the nearest
    measured point; the measured value where there is one. `mean_of` predicts a mean.
    """
    measured = {round(p.concurrency): p for p in points}

    def latency(limit: Limit, concurrency: int) -> float:
        value = measured[concurrency].value(limit.metric)
        return 1 / value if limit.of.inverted else value

    def one(limit: Limit, concurrency: int) -> float | None:
        mean = f"mean_{limit.of.quantity}"
        known = [c for c, p in measured.items() if p.value(limit.metric) > 0 and p.value(mean) > 0]
        if not known:
            return None
        near = min(known, key=lambda c: abs(math.log(c / concurrency)))
        ratio = (
            1.0 if near == concurrency else mean_of(str(limit.of.quantity), concurrency) / measured[near].value(mean)
        )
        value = ratio * latency(limit, near)
        return 1 / value if limit.of.inverted else value

    def values(concurrency: int) -> Mapping[Limit, float] | None:
        told = {limit: one(limit, concurrency) for limit in judged(limits, shape)}
        known = {limit: value for limit, value in told.items() if value is not None}
        return known if len(known) == len(told) else None

    return values
