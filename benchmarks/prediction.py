"""How well the engine model predicts deployments measured on real GPUs; the tables of docs/prediction.md.

Run: python benchmarks/prediction.py [--expect] [FILE]

--expect adds the predictions made without any measurement (a minute or more).

FILE is aiconfigurator's silicon_sample.csv (github.com/ai-dynamo/aiconfigurator, Apache-2.0, under
aic-core/src/aiconfigurator_core/systems); without it the part kept in tests/data/silicon is used. A series is one
deployment and shape at six or more concurrencies, aggregated serving, the median where a setting was measured twice.
Throughput is C x OSL / (TTFT + TPOT x (OSL - 1)).
"""

import csv
import itertools
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares, nnls

from frontier.engine.cards import card
from frontier.engine.expect import Assumption, expect
from frontier.engine.hardware import hardware
from frontier.engine.light import Carded
from frontier.engine.predict import Known, Prediction, calibrate
from frontier.engine.roofline import Roofline
from frontier.forecast import assumed_engine
from frontier.model import Shape

SAMPLE = Path(__file__).parents[1] / "tests" / "data" / "silicon" / "sample.csv"
METRICS = ("tpot", "throughput", "ttft")
Figures = Mapping[str, float]
Fit = Callable[[Sequence[Known]], Callable[[float], Figures]]


@dataclass(frozen=True, slots=True)
class Deployment:
    """What was measured; two series of one deployment differ in their shape alone."""

    source: str
    model: str
    system: str
    backend: str
    version: str
    precision: str
    tp: int
    expert_parallel: str
    attention_dp: int


@dataclass(frozen=True, slots=True)
class Series:
    """One deployment and shape, its points by rising concurrency."""

    deployment: Deployment
    isl: int
    osl: int
    points: tuple[Known, ...]

    def light(self) -> Roofline | None:
        """Its roofline; None where the model is none of the shipped cards, or attention is not sharded."""
        of = self.deployment
        try:
            gpu, model = hardware(of.system), card(of.model)
        except ValueError:
            return None
        if of.attention_dp != 1:
            return None
        return Roofline.of(model, gpu, of.tp, of.precision or None, "fp8")

    def figures(self, point: Known) -> dict[str, float]:
        """TTFT, TPOT and throughput of a point."""
        return figures(point.concurrency, point.ttft, point.tpot, self.osl)


def figures(c: float, ttft: float, tpot: float, osl: float) -> dict[str, float]:
    """Seconds, and output tokens per second by Little's law."""
    return {"ttft": ttft, "tpot": tpot, "throughput": c * osl / (ttft + (osl - 1) * tpot)}


# --- the data


def read(path: Path) -> list[Series]:
    """The file's series with six or more concurrencies, by deployment and shape."""
    found: dict[tuple[Deployment, int, int], dict[int, list[tuple[float, float]]]] = {}
    with path.open() as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            known = _ours(row) if "concurrency" in row else _theirs(row)
            if known is not None:
                deployment, isl, osl, c, ttft, tpot = known
                found.setdefault((deployment, isl, osl), {}).setdefault(c, []).append((ttft, tpot))
    series = []
    for (deployment, isl, osl), points in found.items():
        if len(points) >= 6:
            medians = [Known(c, *(float(x) for x in np.median(points[c], axis=0))) for c in sorted(points)]
            series.append(Series(deployment, isl, osl, tuple(medians)))
    return series


Row = tuple[Deployment, int, int, int, float, float]


def _ours(row: Mapping[str, str]) -> Row:
    deployment = Deployment(
        row["source"], row["model"], row["system"], row["backend"], row["version"], row["precision"], int(row["tp"]),
        row["ep"], 1,
    )  # fmt: skip
    at = int(row["isl"]), int(row["osl"]), int(row["concurrency"])
    return deployment, *at, float(row["ttft_ms"]) / 1e3, float(row["tpot_ms"]) / 1e3


def _theirs(row: Mapping[str, str]) -> Row | None:
    source = row["silicon_data_source"]
    found = re.search(r"silicon_concurrency=(\d+)", source)
    if row["mode"] != "agg" or found is None:
        return None
    if row["system"].startswith("gb200") and int(row["tp_size"]) >= 28:
        return None  # disaggregated runs under the wrong label
    name = source.partition(";")[0].removeprefix("source_file=")
    parallel = f"pp{row['pp_size']} mtp{row['moe_tp_size']} ep{row['moe_ep_size']}"
    deployment = Deployment(
        name, row["model_path"], row["system"], row["backend"], row["backend_version"], row["precision"],
        int(row["tp_size"]), parallel, int(row["attention_dp_size"] or 1),
    )  # fmt: skip
    ttft, tpot = float(row["silicon_ttft_ms"]) / 1e3, float(row["silicon_tpot_ms"]) / 1e3
    return deployment, int(row["isl"]), int(row["osl"]), int(found[1]), ttft, tpot


# --- what is compared


def engine_model(series: Series) -> Fit:
    """Ours."""

    def fit(known: Sequence[Known]) -> Callable[[float], Prediction]:
        model = calibrate(known, series.isl, series.osl, light=series.light())
        return model.at

    return lambda known: _values(fit(known))


def _values(at: Callable[[float], Prediction]) -> Callable[[float], Figures]:
    return lambda c: {name: getattr(at(c), name).value for name in METRICS}


def plain_sum(series: Series) -> Fit:
    """A non-negative fit of 1, sqrt(C) and C to TPOT and to TTFT, by relative error."""

    def curve(c: np.ndarray, y: np.ndarray) -> Callable[[float], float]:
        terms = np.array([np.ones_like(c), np.sqrt(c), c]).T
        weights = nnls(terms / y[:, None], np.ones_like(y))[0]
        return lambda at: float(np.array([1.0, at**0.5, at]) @ weights)

    def fit(known: Sequence[Known]) -> Callable[[float], Figures]:
        c = np.array([p.concurrency for p in known], dtype=float)
        ttft, tpot = (curve(c, np.array([getattr(p, name) for p in known])) for name in ("ttft", "tpot"))
        return lambda at: figures(at, ttft(at), tpot(at), series.osl)

    return fit


def interpolation(series: Series) -> Fit:
    """Straight lines between the points, log against log; the last one goes on beyond them."""

    def curve(c: np.ndarray, y: np.ndarray) -> Callable[[float], float]:
        def at(x: float) -> float:
            i = min(max(int(np.searchsorted(c, x)) - 1, 0), len(c) - 2)
            slope = np.log(y[i + 1] / y[i]) / np.log(c[i + 1] / c[i])
            return float(y[i] * (x / c[i]) ** slope)

        return at

    def fit(known: Sequence[Known]) -> Callable[[float], Figures]:
        c = np.array([p.concurrency for p in known], dtype=float)
        ttft, tpot = (curve(c, np.array([getattr(p, name) for p in known])) for name in ("ttft", "tpot"))
        return lambda at: figures(at, ttft(at), tpot(at), series.osl)

    return fit


def usl(series: Series) -> Fit:
    """The Universal Scalability Law, X(C) = l C / (1 + s (C - 1) + k C (C - 1)), fitted to throughput.

    It has no TTFT of its own: the share of TTFT in the residence is taken from the nearest measured point.
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
}


# --- the three questions


def between(n: int) -> list[int]:
    """Fitted on: the first, the two in the middle, the last."""
    return sorted({0, (n - 1) // 2, (n - 1) // 2 + 1, n - 1})


def spread(n: int) -> list[int]:
    """Fitted on: four spread evenly, the first and the last among them."""
    return sorted({0, round((n - 1) / 3), round(2 * (n - 1) / 3), n - 1})


def beyond(n: int) -> list[int]:  # noqa: ARG001
    """Fitted on: the four lowest."""
    return [0, 1, 2, 3]


@dataclass(slots=True)
class Errors:
    """Relative errors of the points left out, and which of them lay in their bands."""

    wrong: dict[str, list[float]]
    held: dict[str, list[bool]]

    def line(self) -> str:
        """Median and 90th percentile in percent for each metric."""
        return "  ".join(
            f"{100 * np.median(self.wrong[m]):5.1f} /{100 * np.quantile(self.wrong[m], 0.9):6.1f}" for m in METRICS
        )


def left_out(
    all_series: Iterable[Series], method: Callable[[Series], Fit], choose: Callable[[int], list[int]]
) -> Errors:
    """A method judged on the points it was not fitted to."""
    found = Errors(defaultdict(list), defaultdict(list))
    for series in all_series:
        fitted = choose(len(series.points))
        said_by = method(series)([series.points[i] for i in fitted])
        for i, point in enumerate(series.points):
            if i not in fitted:
                said, truth = said_by(point.concurrency), series.figures(point)
                for name in METRICS:
                    found.wrong[name].append(abs(said[name] / truth[name] - 1))
    return found


def banded(all_series: Iterable[Series], choose: Callable[[int], list[int]]) -> dict[str, float]:
    """The share of left-out points inside our bands."""
    held = defaultdict(list)
    for series in all_series:
        fitted = choose(len(series.points))
        model = calibrate([series.points[i] for i in fitted], series.isl, series.osl, light=series.light())
        for i, point in enumerate(series.points):
            if i not in fitted:
                _hold(held, model.at(point.concurrency), series.figures(point))
    return {name: float(np.mean(held[name])) for name in METRICS}


def _hold(held: dict[str, list[bool]], said: Prediction, truth: Figures) -> None:
    for name in METRICS:
        estimate = getattr(said, name)
        held[name].append(estimate.low <= truth[name] <= estimate.high)


def shape_pairs(all_series: Iterable[Series]) -> Iterator[tuple[Series, Series]]:
    """Every ordered pair of two shapes of one deployment."""
    groups = defaultdict(list)
    for series in all_series:
        groups[series.deployment].append(series)
    for group in groups.values():
        yield from itertools.permutations(group, 2)


def across(all_series: Iterable[Series]) -> tuple[Errors, Errors]:
    """Our prediction of another shape, and the same curve taken over as it is."""
    ours, same = (Errors(defaultdict(list), defaultdict(list)) for _ in range(2))
    for here, there in shape_pairs(all_series):
        model = calibrate(here.points, here.isl, here.osl, light=here.light())
        for point in there.points:
            said, truth = model.elsewhere(there.isl, there.osl, point.concurrency), there.figures(point)
            at = model.at(point.concurrency)
            plain = figures(point.concurrency, at.ttft.value, at.tpot.value, there.osl)
            for name in METRICS:
                ours.wrong[name].append(abs(getattr(said, name).value / truth[name] - 1))
                same.wrong[name].append(abs(plain[name] / truth[name] - 1))
            _hold(ours.held, said, truth)
    return ours, same


def cross_checked(all_series: Sequence[Series], choose: Callable[[int], list[int]]) -> dict[str, float]:
    """Coverage of bands made on one half of the deployments and tried on the other, mean of 200 halvings.

    A band is the 95th percentile of the log errors, at twice the highest measured concurrency where beyond it.
    """
    rows = []
    names = sorted({(s.deployment.model, s.deployment.system) for s in all_series})
    for series in all_series:
        fitted = choose(len(series.points))
        model = calibrate([series.points[i] for i in fitted], series.isl, series.osl, light=series.light())
        group = names.index((series.deployment.model, series.deployment.system))
        for i, point in enumerate(series.points):
            if i not in fitted:
                said, truth = model.at(point.concurrency), series.figures(point)
                away = max(0.0, float(np.log2(point.concurrency / series.points[fitted[-1]].concurrency)))
                wide = 1.0 if said.reach == "between" else (1 + away) / 2
                logs = (abs(np.log(getattr(said, m).value / truth[m])) / wide for m in METRICS)
                rows.append((float(group), *logs))
    found, rng = np.array(rows), np.random.default_rng(0)
    shares = []
    for _ in range(200):
        half = np.isin(found[:, 0], rng.permutation(len(names))[: len(names) // 2])
        if half.any() and not half.all():
            bands = np.quantile(found[half, 1:], 0.95, axis=0)
            shares.append((found[~half, 1:] <= bands).mean(axis=0))
    return dict(zip(METRICS, np.mean(shares, axis=0).tolist(), strict=True))


def without_measurement(all_series: Iterable[Series]) -> Errors:
    """The engine at its assumed efficiency against everything measured."""
    found = Errors(defaultdict(list), defaultdict(list))
    for series in all_series:
        light = series.light()
        if light is None:
            continue
        assumed = Assumption(assumed_engine(Carded(light)))
        for point in series.points:
            try:
                said = expect(assumed, Shape.of(series.isl, series.osl), point.concurrency)
            except ValueError:  # longer than the model takes
                continue
            truth = series.figures(point)
            for name in METRICS:
                found.wrong[name].append(abs(getattr(said, name).value / truth[name] - 1))
            _hold(found.held, said, truth)
    return found


def main() -> None:
    """Print the tables."""
    files = [Path(word) for word in sys.argv[1:] if not word.startswith("-")]
    all_series = read(files[0] if files else SAMPLE)
    print(f"{len(all_series)} series, {sum(len(s.points) for s in all_series)} points")
    print(f"{'median / p90 of |error|, %':<28}{'TPOT':>13}{'throughput':>15}{'TTFT':>15}")
    for title, choose in (("between", between), ("spread", spread), ("beyond", beyond)):
        for name, method in METHODS.items():
            print(f"{title:<9}{name:<17}{left_out(all_series, method, choose).line()}")
        held = banded(all_series, choose)
        print(f"{title:<9}in our 95% band  " + "  ".join(f"{100 * held[m]:10.1f}   " for m in METRICS))
        held = cross_checked(all_series, choose)
        print(f"{title:<9}bands of others  " + "  ".join(f"{100 * held[m]:10.1f}   " for m in METRICS))
    ours, same = across(all_series)
    print(f"{'shapes':<9}{'engine model':<17}{ours.line()}")
    print(f"{'shapes':<9}{'same curve':<17}{same.line()}")
    print(f"{'shapes':<9}in our 95% band  " + "  ".join(f"{100 * np.mean(ours.held[m]):10.1f}   " for m in METRICS))
    if "--expect" in sys.argv:
        blind = without_measurement(all_series)
        print(f"{'nothing':<9}{'60% and 2 ms':<17}{blind.line()}")
        print(
            f"{'nothing':<9}in our 95% band  " + "  ".join(f"{100 * np.mean(blind.held[m]):10.1f}   " for m in METRICS)
        )


if __name__ == "__main__":
    main()
