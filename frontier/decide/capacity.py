"""Capacity: the knee, fitted scalability models, throughput regression, queueing or thrashing; and
the summary of a frontier, which they are part of.

All of it annotates; nothing of it decides. A fitted peak is named only where data show it, and
never extrapolated.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from frontier.metrics import metric
from frontier.model import Estimate, Frontier, Point, Rate, setting
from frontier.stats.window import Floats
from frontier.units import format_number

RATE = "output_throughput"
RETROGRADE = 0.98
"""Throughput has regressed when its upper end is below this much of the best lower end at a lower
concurrency."""
JUMP = 1.5
"""A tail that rises by this factor from one setting to the next has jumped."""
STEADY_TPOT = 1.15
FLAT = 0.02
SURE = 0.5
"""A member of the frontier in fewer than this share of the draws may be there by noise."""
_FLOOR = 1e-12
_FEWEST = 5


# --- models of the throughput


def _usl(n: Any, rate: float, contention: float, coherency: float) -> Any:
    return rate * n / (1 + contention * (n - 1) + coherency * n * (n - 1))


def _capped(n: Any, a: float, b: float, cap: float) -> Any:
    return np.minimum(n / (a + b * n), cap)


_MODELS: Mapping[str, Callable[..., Any]] = {"usl": _usl, "capped": _capped}
"""The throughput at a concurrency, or at an array of them."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A throughput model fitted to relative errors. `aic` compares models on the same points: lower
    is better.

    usl (Gunther's Universal Scalability Law): X = rate N / (1 + contention (N - 1) + coherency N (N
    - 1)). capped: X = min(N / (a + b N), cap): latency grows in a line until a cap (max_num_seqs,
    KV memory) binds; `cap` is infinite when none shows. `error` is the root mean square of the
    relative errors.
    """

    model: Literal["usl", "capped"]
    parameters: dict[str, float]
    aic: float
    error: float

    @classmethod
    def of(cls, model: Literal["usl", "capped"], parameters: dict[str, float], n: Floats, x: Floats) -> "Fit":
        """The model with these parameters beside the throughputs `x` at `n`; an infinite one is not
        free.
        """
        errors = _MODELS[model](n, **parameters) / x - 1
        mean = float(errors @ errors) / len(errors)
        free = sum(map(math.isfinite, parameters.values()))
        return cls(model, parameters, len(errors) * math.log(max(_FLOOR, mean)) + 2 * free, math.sqrt(mean))

    def __call__(self, concurrency: float) -> float:
        """The model's throughput."""
        return float(_MODELS[self.model](concurrency, **self.parameters))


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the throughput curve of one (deployment, shape) shows. None: not shown by these points.

    `best` is the fitted model of lower AIC. `peak` is the USL's N*, only when it lies inside what
    was measured and its coherency term is surely above zero. `knee` has the most throughput per
    latency. `retrograde` are the settings that surely deliver less than a lower one. `limit` names
    what happens from `onset` on: thrashing (throughput falls and latency jumps: preemption,
    recomputation) or queueing (throughput is flat, only the time to first token rises: an admission
    cap).
    """

    best: Fit | None = None
    fits: tuple[Fit, ...] = ()
    peak: Estimate | None = None
    knee: int | None = None
    retrograde: tuple[int, ...] = ()
    limit: Literal["thrashing", "queueing"] | None = None
    onset: int | None = None

    @property
    def notes(self) -> list[str]:
        """Where and why the throughput curve ends, as sentences."""
        lines: list[str] = []
        if self.knee is not None:
            lines.append(f"Knee: the most throughput per latency is at {setting(self.knee)}.")
        if self.best is not None:
            lines.append(f"{self._growth(self.best)} (fits within {self.best.error:.1%}).")
        if self.limit == "queueing":
            lines.append(
                f"Queueing from c={self.onset} on: throughput is flat and only the first token waits, as behind an "
                "admission cap (max_num_seqs)."
            )
        if self.limit == "thrashing":
            lines.append(
                f"Thrashing from c={self.onset} on: throughput falls and latency jumps, as when requests are preempted "
                "and computed again (KV memory)."
            )
        elif self.retrograde:
            lines.append(f"Less throughput than at a lower concurrency: c={', '.join(map(str, self.retrograde))}.")
        return lines

    def _growth(self, best: Fit) -> str:
        """The curve that fits the throughput best."""
        if best.model == "capped":
            cap = best.parameters["cap"]
            end = f" up to a cap of {metric(RATE).format(cap)}" if math.isfinite(cap) else ", no cap in sight"
            return f"Throughput grows as N / (a + b N){end}"
        if self.peak is not None:
            span = f"{self.peak.low:.0f} to {self.peak.high:.0f}"
            return f"Throughput follows the scalability law and peaks near c={self.peak.value:.0f} ({span})"
        return "Throughput follows the scalability law, without a peak that these points prove"


def capacity(points: Sequence[Point]) -> Capacity:
    """Everything `Capacity` says, from the valid points of one (deployment, shape) that have an
    output throughput.
    """
    usable = sorted((p for p in points if p.valid and p.value(RATE) > 0), key=lambda p: p.concurrency)
    if not usable or isinstance(usable[0].concurrency, Rate):  # what is served follows from what is sent
        return Capacity()
    n = np.array([p.concurrency for p in usable], dtype=np.float64)
    x = np.array([p.value(RATE) for p in usable])
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
    """The Universal Scalability Law, and its N* = sqrt((1 - contention) / coherency) where the data
    support one.

    Supported: N* below the largest concurrency measured and the 95 % interval of coherency above
    zero. On a few points with 3 % noise N* is otherwise anything from half to a thousand times the
    truth. None under five points.
    """
    if len(n) < _FEWEST:
        return None, None
    from scipy.optimize import OptimizeWarning, curve_fit  # half a second, which a table or a picture need not pay

    try:
        fitted, covariance = curve_fit(
            _usl,
            n,
            x,
            p0=(x[0] / n[0], 0.01, 1e-5),
            sigma=x,
            bounds=(0, [np.inf, 1.0, np.inf]),
            x_scale=(x[0], 0.1, 1e-3),
        )
    except (RuntimeError, OptimizeWarning):  # no convergence: then there is no such curve to show
        return None, None
    rate, contention, coherency = (float(v) for v in fitted)
    fit = Fit.of("usl", {"rate": rate, "contention": contention, "coherency": coherency}, n, x)
    spread = 1.96 * math.sqrt(max(0.0, float(covariance[2, 2])))
    if not coherency - spread > 0 or contention >= 1:
        return fit, None
    peak, low, high = (math.sqrt((1 - contention) / k) for k in (coherency, coherency + spread, coherency - spread))
    return fit, Estimate(peak, low, high, len(n)) if n[0] < peak < n[-1] else None


def fit_capped(n: Floats, x: Floats) -> Fit | None:
    """X = min(N / (a + b N), cap), exactly: for each place where the cap may begin, two small
    least-squares problems.

    Below the cap N / X = a + b N is a line with a, b >= 0; above it the cap is the mean. None under
    five points.
    """
    if len(n) < _FEWEST:
        return None
    from scipy.optimize import nnls

    fits = []
    for free in range(2, len(n) + 1):
        (a, b), _ = nnls(np.column_stack((x[:free] / n[:free], x[:free])), np.ones(free))
        if a + b <= 0:
            continue
        flat = x[free:]
        cap = float(np.sum(1 / flat) / np.sum(1 / flat**2)) if len(flat) else math.inf
        fits.append(Fit.of("capped", {"a": float(a), "b": float(b), "cap": cap}, n, x))
    return min(fits, key=lambda fit: fit.error, default=None)


# --- where the curve bends and ends


def knee(points: Sequence[Point]) -> int | None:
    """The concurrency of most throughput per latency (Kleinrock's power): an annotation.

    Curvature methods (kneed) move with the grid and the axis, this moves with the grid only;
    neither decides anything.
    """
    power = {
        p.concurrency: p.value("request_throughput") / p.value("mean_e2e")
        for p in points
        if p.valid and p.value("mean_e2e") > 0 and p.value("request_throughput") > 0
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
        flat = abs(here.value(RATE) / before.value(RATE) - 1) <= FLAT
        ttft = max(_rise(before, here, "p50_ttft"), _rise(before, here, "p99_ttft"))
        tpot = _rise(before, here, "p50_tpot")
        if flat and ttft > JUMP and tpot < STEADY_TPOT:
            return "queueing", here.concurrency
    return None, None


def _rise(before: Point, here: Point, name: str) -> float:
    """By what factor a metric rose; 0, which is no rise, when either is not known."""
    a, b = before.value(name), here.value(name)
    return b / a if a > 0 and b > 0 else 0.0


# --- load, rate and latency


def littles_law(point: Point) -> Estimate | None:
    """Request rate x mean E2E over concurrency: 1 when load, rate and latency fit together. None
    when not measured, and where the load is a rate.

    The interval multiplies both intervals, so it is wide; the sharp check is the integrated
    occupancy, which `load_flags` makes on every window.
    """
    rate, e2e = point.metrics.get("request_throughput"), point.metrics.get("mean_e2e")
    if rate is None or e2e is None or not math.isfinite(e2e.value) or isinstance(point.concurrency, Rate):
        return None
    c = point.concurrency
    return Estimate(rate.value * e2e.value / c, rate.low * e2e.low / c, rate.high * e2e.high / c, e2e.n)


# --- a frontier as a whole


@dataclass(frozen=True, slots=True)
class FrontierSummary:
    """How certain the members of a series' frontier are, its area, and where capacity ends.

    `area` under the frontier counts up to `reference` = (least gain, worst price), in the metrics'
    own units.
    """

    frontier: Frontier
    capacity: Capacity
    area: Estimate | None = None
    reference: tuple[float, float] | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for a reader."""
        notes = []
        faint = [(c, p) for c in self.frontier.members if (p := self.frontier.probability.get(c, 1.0)) < SURE]
        if faint:
            members = ", ".join(f"{setting(c)} ({p:.0%})" for c, p in faint)
            notes.append(f"On the frontier perhaps by noise alone (in brackets: share of resamples): {members}.")
        if self.area is not None and self.reference is not None:
            second = metric(self.frontier.objectives[1])
            notes.append(
                f"Area under the frontier up to {second.label} {second.format(self.reference[1])}: "
                f"{format_number(self.area.value)} [{format_number(self.area.low)}, {format_number(self.area.high)}], "
                "to compare runs by."
            )
        return (*notes, *self.capacity.notes)


def summarise(
    frontier: Frontier,
    points: Sequence[Point],
    area: Estimate | None = None,
    reference: tuple[float, float] | None = None,
) -> FrontierSummary:
    """The summary of one frontier; of `points`, those of its series count."""
    mine = [p for p in points if p.series == frontier.series]
    return FrontierSummary(frontier, capacity(mine), area, reference)
