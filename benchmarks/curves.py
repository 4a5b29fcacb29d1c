"""Ways to predict the rest of a series from some of its points: the engine model, and what it is
judged against."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from scipy.optimize import least_squares, nnls

from benchmarks.silicon import Series, figures
from frontier.extras.predict.fit import Calibrated, Known, Prediction

METRICS = ("tpot", "throughput", "ttft")
Figures = Mapping[str, float]
Fit = Callable[[Sequence[Known]], Callable[[float], Figures]]


def engine_model(series: Series) -> Fit:
    """Ours."""

    def fit(known: Sequence[Known]) -> Callable[[float], Prediction]:
        model = Calibrated(known, series.isl, series.osl, roofline=series.roofline())
        return model.at

    return lambda known: _values(fit(known))


def _values(at: Callable[[float], Prediction]) -> Callable[[float], Figures]:
    return lambda c: {name: getattr(at(c), name).value for name in METRICS}


Curve = Callable[[float], float]


def _each(series: Series, curve: Callable[[np.ndarray, np.ndarray, str], Curve]) -> Fit:
    """A curve for TTFT and one for TPOT over concurrency, each by itself."""

    def fit(known: Sequence[Known]) -> Callable[[float], Figures]:
        c = np.array([p.concurrency for p in known], dtype=float)
        ttft, tpot = (curve(c, np.array([getattr(p, name) for p in known]), name) for name in ("ttft", "tpot"))
        return lambda at: figures(at, ttft(at), tpot(at), series.osl)

    return fit


def plain_sum(series: Series) -> Fit:
    """A non-negative fit of 1, sqrt(C) and C to TPOT and to TTFT, by relative error."""

    def curve(c: np.ndarray, y: np.ndarray, _: str) -> Curve:
        terms = np.array([np.ones_like(c), np.sqrt(c), c]).T
        weights = nnls(terms / y[:, None], np.ones_like(y))[0]
        return lambda at: float(np.array([1.0, at**0.5, at]) @ weights)

    return _each(series, curve)


def interpolation(series: Series) -> Fit:
    """Straight lines between the points, log against log; the last one goes on beyond them."""

    def curve(c: np.ndarray, y: np.ndarray, _: str) -> Curve:
        def at(x: float) -> float:
            i = min(max(int(np.searchsorted(c, x)) - 1, 0), len(c) - 2)
            slope = np.log(y[i + 1] / y[i]) / np.log(c[i + 1] / c[i])
            return float(y[i] * (x / c[i]) ** slope)

        return at

    return _each(series, curve)


_POPULATION = {  # for TTFT and TPOT: slope, bend, spread of slopes, of the rest, its reach in octaves, noise
    "ttft": (0.2585, 0.0336, 0.0829, 0.1611, 0.6802, 1e-6),
    "tpot": (0.2192, 0.0228, 0.0430, 0.3577, 5.0528, 0.0356),
}
"""Most likely for all series of the whole file together, log against octaves; so the method has
seen the answers."""


def kriging(series: Series) -> Fit:
    """A Gaussian process of log latency over octaves, with what is usual among all the series as
    its prior.

    The best linear smoother there is for them, and no mechanism in it: what it cannot predict, no
    smooth curve can.
    """

    def curve(c: np.ndarray, y: np.ndarray, name: str) -> Curve:
        slope, bend, slopes, rest, reach, noise = _POPULATION[name]

        def mean(x: np.ndarray) -> np.ndarray:
            return slope * x + bend * x * x

        def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            far = np.sqrt(5) * np.abs(a[:, None] - b[None, :]) / reach
            return 100.0 + slopes**2 * np.outer(a, b) + rest**2 * (1 + far + far**2 / 3) * np.exp(-far)

        x = np.log2(c) - 4
        weights = np.linalg.solve(kernel(x, x) + noise**2 * np.eye(len(x)), np.log(y) - mean(x))

        def at(concurrency: float) -> float:
            z = np.array([np.log2(concurrency) - 4])
            return float(np.exp(mean(z) + kernel(z, x) @ weights)[0])

        return at

    return _each(series, curve)


def usl(series: Series) -> Fit:
    """The Universal Scalability Law, X(C) = l C / (1 + s (C - 1) + k C (C - 1)), fitted to
    throughput.

    It has no TTFT of its own: the share of TTFT in the residence is taken from the nearest measured
    point.
    """

    def fit(known: Sequence[Known]) -> Callable[[float], Figures]:
        c = np.array([p.concurrency for p in known], dtype=float)
        x = np.array([series.figures(p)["throughput"] for p in known])
        share = [p.ttft / (p.ttft + (series.osl - 1) * p.tpot) for p in known]

        def law(q: np.ndarray, at: np.ndarray) -> np.ndarray:
            return q[0] * at / (1 + q[1] * (at - 1) + q[2] * at * (at - 1))

        start = [x[0] / c[0], 0.01, 1e-6]
        q = least_squares(lambda q: law(q, c) / x - 1, start, bounds=([1e-9, 0, 0], np.inf), x_scale=start).x

        def at(concurrency: float) -> Figures:
            rate = float(law(q, np.array([concurrency]))[0])
            residence = concurrency * series.osl / rate
            part = share[int(np.argmin(np.abs(np.log(c / concurrency))))]
            return figures(concurrency, residence * part, residence * (1 - part) / (series.osl - 1), series.osl)

        return at

    return fit


METHODS: Mapping[str, Callable[[Series], Fit]] = {
    "engine model": engine_model,
    "1, sqrt C, C": plain_sum,
    "interpolation": interpolation,
    "USL": usl,
    "kriging": kriging,
}
