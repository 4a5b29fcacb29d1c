"""Prediction of the rest of a frontier from three to five measured points of a deployment.

TPOT over the number in the batch is a sum of terms, each with a physical reason:

- a constant: weights and launch overhead;
- a linear term: KV reads and arithmetic;
- what the batch's experts add until all are touched;
- a sublinear rest;
- the share of the time that other requests' prompts take between two tokens.

TTFT is an idle prefill plus what grows with the step and with the load of prompts. Weights are
fitted by non-negative least squares on relative errors. Between measured points the richest sum is
used and bent to pass through them. Beyond them simpler sums are averaged, since a rich one
extrapolates badly. Where the KV is full the batch stops growing, and Little's law gives the time
that the others wait.

The error bands are the 95th percentiles of the method's errors on aiconfigurator's silicon sample
(260 series on H100, H200 and B200); they hold for deployments like those. A prediction says where
to measure; it proves nothing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from frontier.core.model.points import Estimate
from frontier.core.model.shapes import Shape
from frontier.extras.predict.sla_break import SlaBreak
from frontier.hardware.roofline import Limits, ModelRoofline

Floats = npt.NDArray[np.float64]
CurveFunction = Callable[[Floats], Floats]
PredictionReach = Literal["between", "beyond", "other shape", "unmeasured", "simulated"]

_PROMPT_SHARE = 0.28
"""The share of an idle TTFT that delays every other request's tokens; the rest overlaps or is
overhead."""
_RESERVED = 0.8
"""Share of the output length for which a running request holds KV when the memory is full."""
_SHAPE_EFFICIENCY = 0.5
"""The share of peak bandwidth that KV reads get, used to carry a curve to another context
length."""
_QUEUED = 0.1
"""The ratio of TTFT to decode time from which a measured point may be queueing for KV."""
_BANDS: dict[str, tuple[float, float, float]] = {
    "between": (0.08, 0.40, 0.08),
    "beyond": (0.20, 0.72, 0.20),
    "other shape": (0.52, 1.45, 0.52),
}
"""Half widths as log ratios for TPOT, TTFT and throughput; beyond the points, those at twice the
highest measured concurrency."""


@dataclass(frozen=True, slots=True)
class Known:
    """A measured point: latencies in seconds, all means or all medians, and output tokens per
    second.
    """

    concurrency: float
    ttft: float
    tpot: float
    rate: float = math.nan


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is expected at a concurrency.

    - `throughput`: output tokens per second.
    - `running`: the running requests; fewer than `concurrency` where the KV is full.
    - `reach`: how far from measured ground this is. 'unmeasured' stands on an assumed efficiency
      alone, and 'simulated' is the embedded engine's own answer.
    """

    concurrency: float
    ttft: Estimate
    tpot: Estimate
    throughput: Estimate
    running: float
    reach: PredictionReach


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast of one (deployment, shape): predictions by concurrency, the measured points that
    they rest on, and the rooflines.

    - `sla`: where the SLA breaks.
    - `basis`: what the numbers rest on, in words.
    - `variant`: what a what-if changed.
    - `lights`: the roofline of each prediction, where the hardware is described.
    """

    deployment: str
    shape: Shape
    basis: str
    predictions: tuple[Prediction, ...]
    measured: tuple[Known, ...]
    rooflines: tuple[Limits | None, ...]
    variant: str = ""
    sla: SlaBreak | None = None


@dataclass(frozen=True, slots=True)
class _Fit:
    """Curves over the number running, the capacity found or given, and the log residuals at the
    measured points.
    """

    tpot: CurveFunction
    ttft: CurveFunction
    capacity: float
    octaves: Floats
    residuals: tuple[Floats, Floats]
    cost: float


class Calibrated:
    """The engine model fitted to points of one shape, at least three, at different concurrencies.

    With the deployment's roofline the capacity of its memory is known too. A model that may or may
    not have experts is assumed to have some, the more careful assumption.
    """

    def __init__(self, known: Sequence[Known], isl: float, osl: float, roofline: ModelRoofline | None = None) -> None:
        points = sorted(known, key=lambda point: point.concurrency)
        self.isl, self.osl, self.roofline, self.n = isl, osl, roofline, len(points)
        self._c = np.array([p.concurrency for p in points], dtype=np.float64)
        self._ttft = np.array([p.ttft for p in points], dtype=np.float64)
        self._tpot = np.array([p.tpot for p in points], dtype=np.float64)
        given = self._room(isl, osl)
        moe = roofline is None or roofline.model.experts > 0
        rich, simple = (_RICH, _SIMPLE) if moe else (_DENSE, _DENSE)
        self._inside = self._search(rich, given)
        capacity = given if self._inside.capacity == math.inf else self._inside.capacity
        self._outside = self._fitted(simple, capacity, outside=True)

    @property
    def capacity(self) -> float:
        """The number of requests that run at once: from the memory, or from where the queue began;
        inf when neither says.
        """
        return self._outside.capacity

    def at(self, concurrency: float) -> Prediction:
        """Expected figures at this concurrency and the measured shape."""
        low, high = float(self._c[0]), float(self._c[-1])
        inside = low <= concurrency <= high
        away = 0.0 if inside else abs(math.log2(concurrency / (high if concurrency > high else low)))
        ttft, tpot = self._value(self._inside if inside else self._outside, concurrency, math.exp(-away))
        band = _BANDS["between"] if inside else tuple(b * (1 + away) / 2 for b in _BANDS["beyond"])
        return self._prediction(concurrency, ttft, tpot, self.osl, band, "between" if inside else "beyond")

    def elsewhere(self, isl: float, osl: float, concurrency: float) -> Prediction:
        """Expected figures at another shape: longer contexts are read, and other prompts come in
        between. A roofline makes this sharper, as it knows the cost of a KV token and how prefill
        grows with the prompt.
        """
        room = self._room(isl, osl)
        running = min(concurrency, room)
        idle = float(self._ttft.min())
        factor, per_context = isl / self.isl, 0.0
        extra = (isl + osl / 2) - (self.isl + self.osl / 2)
        if self.roofline is not None:
            factor = self.roofline.prefill(isl).seconds / self.roofline.prefill(self.isl).seconds
            per_context = self.roofline.kv_bytes / self.roofline.gpu.bandwidth / _SHAPE_EFFICIENCY
            extra = self.roofline.seen(isl + osl / 2) - self.roofline.seen(self.isl + self.osl / 2)

        def moved(batch: float) -> tuple[float, float]:
            here = self._unqueued(batch)
            prompts = _PROMPT_SHARE * idle * (factor / osl - 1 / self.osl)
            return here[0] * factor, max(0.4 * here[1], here[1] + batch * (per_context * extra + prompts))

        ttft, tpot = moved(running)
        if concurrency > running:
            ttft = max(ttft, concurrency / (running / (ttft + (osl - 1) * tpot)) - (osl - 1) * tpot)
        return self._prediction(concurrency, ttft, tpot, osl, _BANDS["other shape"], "other shape", room)

    def _unqueued(self, batch: float) -> tuple[float, float]:
        """TTFT and TPOT of a batch at the measured shape, as if the whole batch fitted."""
        top = min(float(self._c[-1]), self.capacity)
        fit = self._inside if self._c[0] <= batch <= top else self._outside
        bent = np.interp(math.log2(batch), fit.octaves, fit.residuals[1])
        c = np.array([batch])
        return float(fit.ttft(c)[0]), float(fit.tpot(c)[0] * math.exp(bent))

    def _room(self, isl: float, osl: float) -> float:
        return math.inf if self.roofline is None else max(1.0, self.roofline.kv_room(isl + _RESERVED * osl))

    def _value(self, fit: _Fit, concurrency: float, trust: float) -> tuple[float, float]:
        c = np.array([concurrency], dtype=np.float64)
        ttft, tpot = _queue(fit.ttft, fit.tpot, fit.capacity, self.osl, c)
        bend = [trust * float(np.interp(math.log2(concurrency), fit.octaves, r)) for r in fit.residuals]
        return float(ttft[0]) * math.exp(bend[0]), float(tpot[0]) * math.exp(bend[1])

    def _prediction(
        self,
        concurrency: float,
        ttft: float,
        tpot: float,
        osl: float,
        band: tuple[float, ...],
        reach: PredictionReach,
        room: float | None = None,
    ) -> Prediction:
        rate = concurrency * osl / (ttft + (osl - 1) * tpot)

        def with_band(value: float, width: float) -> Estimate:
            return Estimate(value, value * math.exp(-width), value * math.exp(width), self.n)

        running = min(concurrency, self.capacity if room is None else room)
        return Prediction(
            concurrency, with_band(ttft, band[1]), with_band(tpot, band[0]), with_band(rate, band[2]), running, reach
        )

    def _search(self, forms: list["_Form"], given: float) -> _Fit:
        """The fit at the capacity, given or searched for, that explains the measured queue best."""
        queue = self._ttft[-1] / ((self.osl - 1) * self._tpot[-1]) if self.osl > 1 else 0.0
        if queue < _QUEUED:  # no request waited: whatever the memory seems to hold, all of these ran
            return self._fitted(forms, math.inf)
        best = self._fitted(forms, given)
        for capacity in np.geomspace(self._c[0], self._c[-1], 60)[1:-1]:
            if (self._c <= capacity).sum() >= 2:
                best = min(best, self._fitted(forms, float(capacity)), key=lambda fit: fit.cost)
        return best

    def _fitted(self, forms: list["_Form"], capacity: float, *, outside: bool = False) -> _Fit:
        free = self._c <= capacity
        if free.sum() < 2:
            free, capacity = self._c > 0, math.inf
        running = np.minimum(self._c, capacity)
        idle = float(self._ttft[free].min())
        # Never more than the measured growth of TPOT: with short outputs the share would be.
        most = float(np.ptp(self._tpot[free]) / np.ptp(running[free])) if np.ptp(running[free]) else math.inf
        per_request = min(_PROMPT_SHARE * idle / self.osl, most)
        prompts: CurveFunction = lambda c: per_request * c  # noqa: E731
        tpot = _average([_combine(form, running, self._tpot, prompts) for form in forms])
        load: CurveFunction = lambda c: c * idle / self.osl  # noqa: E731
        shapes: list[_Form] = [(_one, _power(0.5), _power(1.0)), (_one, tpot, load)]
        if outside:
            shapes.append((_one, _power(0.7)))
        ttft = _average([_combine(form, self._c[free], self._ttft[free], _nothing) for form in shapes])
        fitted = _queue(ttft, tpot, capacity, self.osl, self._c)
        residuals = (np.log(self._ttft / fitted[0]), np.log(self._tpot / fitted[1]))
        cost = float(np.abs(residuals[0]).sum() + 2 * np.abs(residuals[1]).sum())
        return _Fit(tpot, ttft, capacity, np.log2(self._c), residuals, cost)


_Form = tuple[CurveFunction, ...]


def _one(c: Floats) -> Floats:
    return np.ones_like(c)


def _nothing(c: Floats) -> Floats:
    return np.zeros_like(c)


def _power(exponent: float) -> CurveFunction:
    return lambda c: c**exponent


def _experts(c: Floats) -> Floats:
    """The share of experts a batch touches when one in 32 is picked, as most current models do."""
    return 1.0 - (1.0 - 1 / 32) ** c


_RICH: list[_Form] = [(_one, _power(0.6), _experts, _power(1.0))]
_SIMPLE: list[_Form] = [(_one, _power(0.5)), (_one, _power(0.4), _experts), (_one, _power(0.4), _power(0.7))]
_DENSE: list[_Form] = [(_one, _power(1.0))]


def _combine(form: _Form, c: Floats, y: Floats, fixed: CurveFunction) -> CurveFunction:
    """`fixed` plus the non-negative combination of the form's terms nearest to y in relative
    error.
    """
    from scipy.optimize import nnls  # half a second, which a sweep's start need not pay

    terms = np.array([term(c) for term in form]).T / y[:, None]
    size = np.maximum(np.linalg.norm(terms, axis=0), 1e-300)
    weights = nnls(terms / size, 1.0 - fixed(c) / y, maxiter=1000)[0] / size
    return lambda at: np.array([term(at) for term in form]).T @ weights + fixed(at)


def _average(curves: list[CurveFunction]) -> CurveFunction:
    """The geometric mean."""
    return lambda at: np.exp(np.mean([np.log(np.maximum(curve(at), 1e-12)) for curve in curves], axis=0))


def _queue(ttft: CurveFunction, tpot: CurveFunction, capacity: float, osl: float, c: Floats) -> tuple[Floats, Floats]:
    """TTFT and TPOT with at most `capacity` running. The others wait, for a time that Little's law
    gives.
    """
    running = np.minimum(c, capacity)
    first, step = ttft(running), tpot(running)
    residence = first + (osl - 1) * step
    waiting = c / running * residence - (osl - 1) * step
    return np.where(c > capacity, np.maximum(first, waiting), first), step
