"""Capacity: the knee, fitted scalability models, throughput regression, queueing or thrashing, a safe arrival rate.

All of it annotates; nothing of it decides. A fitted peak is named only where data show it, and never extrapolated.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from frontier.model import Estimate, Point, Rate
from frontier.stats.window import Floats

RATE = "output_throughput"
RETROGRADE = 0.98
"""Throughput has regressed when its upper end is below this much of the best lower end at a lower concurrency."""
JUMP = 1.5
"""A tail that rises by this factor from one setting to the next has jumped."""
STEADY_TPOT = 1.15
FLAT = 0.02
_FLOOR = 1e-12
_FEWEST = 5


@dataclass(frozen=True, slots=True)
class Fit:
    """A throughput model fitted to relative errors. `aic` compares models on the same points: lower is better.

    usl (Gunther's Universal Scalability Law): X = rate N / (1 + contention (N - 1) + coherency N (N - 1)).
    capped: X = min(N / (a + b N), cap): latency grows in a line until a cap (max_num_seqs, KV memory) binds; `cap` is
    infinite when none shows. `error` is the root mean square of the relative errors.
    """

    model: Literal["usl", "capped"]
    parameters: dict[str, float]
    aic: float
    error: float

    def __call__(self, concurrency: float) -> float:
        """The model's throughput."""
        p, n = self.parameters, concurrency
        if self.model == "usl":
            return p["rate"] * n / (1 + p["contention"] * (n - 1) + p["coherency"] * n * (n - 1))
        return min(n / (p["a"] + p["b"] * n), p["cap"])


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the throughput curve of one (deployment, shape) shows. None: not shown by these points.

    `best` is the fitted model of lower AIC. `peak` is the USL's N*, only when it lies inside what was measured and its
    coherency term is surely above zero. `knee` has the most throughput per latency. `retrograde` are the settings that
    surely deliver less than a lower one. `limit` names what happens from `onset` on: thrashing (throughput falls and
    latency jumps: preemption, recomputation) or queueing (throughput is flat, only the time to first token rises: an
    admission cap).
    """

    best: Fit | None = None
    fits: tuple[Fit, ...] = ()
    peak: Estimate | None = None
    knee: int | None = None
    retrograde: tuple[int, ...] = ()
    limit: Literal["thrashing", "queueing"] | None = None
    onset: int | None = None


def capacity(points: Sequence[Point]) -> Capacity:
    """Everything `Capacity` says, from the valid points of one (deployment, shape) that have an output throughput."""
    usable = sorted((p for p in points if p.valid and _value(p, RATE) > 0), key=lambda p: p.concurrency)
    if not usable or isinstance(usable[0].concurrency, Rate):  # what is served follows from what is sent
        return Capacity()
    n = np.array([p.concurrency for p in usable], dtype=np.float64)
    x = np.array([_value(p, RATE) for p in usable])
    usl, peak = fit_usl(n, x)
    fits = tuple(fit for fit in (usl, fit_capped(n, x)) if fit is not None)
    limit, onset = _limit(usable)
    return Capacity(
        best=min(fits, key=lambda fit: fit.aic, default=None),
        fits=fits,
        peak=peak,
        knee=knee(usable),
        retrograde=retrograde(usable),
        limit=limit,
        onset=onset,
    )


def fit_usl(n: Floats, x: Floats) -> tuple[Fit | None, Estimate | None]:
    """The Universal Scalability Law, and its N* = sqrt((1 - contention) / coherency) where the data support one.

    Supported: N* below the largest concurrency measured and the 95 % interval of coherency above zero. On a few points
    with 3 % noise N* is otherwise anything from half to a thousand times the truth. None under five points.
    """
    if len(n) < _FEWEST:
        return None, None
    from scipy.optimize import OptimizeWarning, curve_fit  # half a second, which a table or a picture need not pay

    def law(at: Floats, rate: float, contention: float, coherency: float) -> Floats:
        return rate * at / (1 + contention * (at - 1) + coherency * at * (at - 1))

    try:
        fitted, covariance = curve_fit(
            law, n, x, p0=(x[0] / n[0], 0.01, 1e-5), sigma=x, bounds=(0, [np.inf, 1.0, np.inf]),
            x_scale=(x[0], 0.1, 1e-3),
        )  # fmt: skip
    except (RuntimeError, OptimizeWarning):  # no convergence: then there is no such curve to show
        return None, None
    rate, contention, coherency = (float(v) for v in fitted)
    errors = law(n, rate, contention, coherency) / x - 1
    fit = Fit("usl", {"rate": rate, "contention": contention, "coherency": coherency}, _aic(errors, 3), _rms(errors))
    spread = 1.96 * math.sqrt(max(0.0, float(covariance[2, 2])))
    if not coherency - spread > 0 or contention >= 1:
        return fit, None
    peak, low, high = (math.sqrt((1 - contention) / k) for k in (coherency, coherency + spread, coherency - spread))
    return fit, Estimate(peak, low, high, len(n)) if n[0] < peak < n[-1] else None


def fit_capped(n: Floats, x: Floats) -> Fit | None:
    """X = min(N / (a + b N), cap), exactly: for each place where the cap may begin, two small least-squares problems.

    Below the cap N / X = a + b N is a line with a, b >= 0; above it the cap is the mean. None under five points.
    """
    if len(n) < _FEWEST:
        return None
    from scipy.optimize import nnls

    best: tuple[float, float, float, float] | None = None
    for free in range(2, len(n) + 1):
        (a, b), _ = nnls(np.column_stack((x[:free] / n[:free], x[:free])), np.ones(free))
        if a + b <= 0:
            continue
        flat = x[free:]
        cap = float(np.sum(1 / flat) / np.sum(1 / flat**2)) if len(flat) else math.inf
        errors = np.minimum(n / (a + b * n), cap) / x - 1
        loss = float(errors @ errors)
        if best is None or loss < best[0]:
            best = (loss, float(a), float(b), cap)
    if best is None:
        return None
    _, a, b, cap = best
    errors = np.minimum(n / (a + b * n), cap) / x - 1
    return Fit("capped", {"a": a, "b": b, "cap": cap}, _aic(errors, 2 + math.isfinite(cap)), _rms(errors))


def _aic(errors: Floats, parameters: int) -> float:
    return len(errors) * math.log(max(_FLOOR, float(errors @ errors) / len(errors))) + 2 * parameters


def _rms(errors: Floats) -> float:
    return math.sqrt(float(errors @ errors) / len(errors))


def knee(points: Sequence[Point]) -> int | None:
    """The concurrency of most throughput per latency (Kleinrock's power): an annotation.

    Curvature methods (kneed) move with the grid and the axis, this moves with the grid only; neither decides anything.
    """
    power = {
        p.concurrency: _value(p, "request_throughput") / _value(p, "mean_e2e")
        for p in points
        if p.valid and _value(p, "mean_e2e") > 0 and _value(p, "request_throughput") > 0
    }
    return max(power, key=lambda c: (power[c], -c)) if len(power) > 1 else None


def retrograde(points: Sequence[Point]) -> tuple[int, ...]:
    """The settings whose throughput is surely below that of a lower concurrency."""
    regressed: list[int] = []
    best = -math.inf
    for p in sorted((p for p in points if p.valid and RATE in p.metrics), key=lambda p: p.concurrency):
        e = p.metrics[RATE]
        if e.high < RETROGRADE * best:
            regressed.append(p.concurrency)
        best = max(best, e.low)
    return tuple(regressed)


def _limit(points: Sequence[Point]) -> tuple[Literal["thrashing", "queueing"] | None, int | None]:
    regressed = retrograde(points)
    for before, here in itertools.pairwise(points):
        if here.concurrency in regressed and max(_rise(before, here, "p99_itl"), _rise(before, here, "p99_e2e")) > JUMP:
            return "thrashing", here.concurrency
        flat = abs(_value(here, RATE) / _value(before, RATE) - 1) <= FLAT
        ttft = max(_rise(before, here, "p50_ttft"), _rise(before, here, "p99_ttft"))
        tpot = _rise(before, here, "p50_tpot")
        if flat and ttft > JUMP and tpot < STEADY_TPOT:
            return "queueing", here.concurrency
    return None, None


def _rise(before: Point, here: Point, name: str) -> float:
    """By what factor a metric rose; 0, which is no rise, when either is not known."""
    a, b = _value(before, name), _value(here, name)
    return b / a if a > 0 and b > 0 else 0.0


def _value(point: Point, name: str) -> float:
    e = point.metrics.get(name)
    return math.nan if e is None else e.value


def littles_law(point: Point) -> Estimate | None:
    """Request rate x mean E2E over concurrency: 1 when load, rate and latency fit together. None when not measured, and
    where the load is a rate.

    The interval multiplies both intervals, so it is wide; the sharp check is the integrated occupancy, which
    `load_flags` makes on every window.
    """
    rate, e2e = point.metrics.get("request_throughput"), point.metrics.get("mean_e2e")
    if rate is None or e2e is None or not math.isfinite(e2e.value) or isinstance(point.concurrency, Rate):
        return None
    c = point.concurrency
    return Estimate(rate.value * e2e.value / c, rate.low * e2e.low / c, rate.high * e2e.high / c, e2e.n)


@dataclass(frozen=True, slots=True)
class ArrivalRate:
    """An estimate of the open-loop rate one replica can take when it runs with at most `cap` requests in flight.

    `streams` is the mean in flight that keeps the 99th percentile of a bunching arrival stream within the cap;
    `rate` is in requests per second. Time to first token may still be half as long again: verify with open loop.
    """

    cap: int
    streams: int
    rate: float

    def replicas(self, peak: float) -> int:
        """How many replicas a peak of so many requests per second needs."""
        return math.ceil(peak / self.rate - 1e-9)


def arrival_rate(points: Sequence[Point], cap: int) -> ArrivalRate | None:
    """From closed-loop points to a safe Poisson rate at the operating point `cap`.

    With arrivals at random the number in flight varies about three times as much as its mean, so at most m streams are
    used with m + 2.33 sqrt(3 m) <= cap, and at most 80 % of the throughput at the cap. X(m) is read off a line through
    the neighbours: this is for planning. None without a rate at the cap or below m, for sessions, whose requests
    do not arrive at random, and for mixes, whose classes take different times. Of points at rates there is nothing to
    estimate.
    """
    if any(point.shape.kind != "shape" or point.shape.arrivals is not None for point in points):
        return None
    streams = max((m for m in range(1, cap + 1) if m + 2.33 * math.sqrt(3 * m) <= cap), default=0)
    rates = {p.concurrency: x for p in points if p.valid and (x := _value(p, "request_throughput")) > 0}
    if cap not in rates:
        return None
    measured = sorted(rates)
    if streams < max(1, measured[0]):
        return None
    closed = float(np.interp(streams, measured, [rates[c] for c in measured]))
    return ArrivalRate(cap, streams, min(closed, 0.8 * rates[cap]))
