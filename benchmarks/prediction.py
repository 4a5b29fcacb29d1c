"""How well the engine model predicts deployments measured on real GPUs; the tables
behind docs/validation/how-often-right.md.

Run: python -m benchmarks.prediction [--expect] [--once] [FILE]

--expect adds the predictions made without any measurement (a minute or more); --once counts a
setting once that is in several of the file's sources, with the median of its different figures.

FILE is aiconfigurator's silicon_sample.csv (see benchmarks/silicon.py); without it the part kept in
tests/data/silicon is used. Throughput is C x OSL / (TTFT + TPOT x (OSL - 1)).
"""

import itertools
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.curves import METHODS, METRICS, Figures, Fit
from benchmarks.silicon import SAMPLE, Series, figures, once, repeated, series_of, settings
from frontier.core.model.shapes import Shape
from frontier.extras.predict.fit import Calibrated, Known, Prediction
from frontier.extras.predict.prediction import Assumption, assumed_engine, predict

Choice = Callable[[int], list[list[int]]]
"""Of a series of n points, the sets to fit on; the points inside the others are predicted."""


def between(n: int) -> list[list[int]]:
    """The first, the two in the middle, the last."""
    return [sorted({0, (n - 1) // 2, (n - 1) // 2 + 1, n - 1})]


def spread(n: int) -> list[list[int]]:
    """Four spread evenly, the first and the last among them."""
    return [sorted({0, round((n - 1) / 3), round(2 * (n - 1) / 3), n - 1})]


def others(n: int) -> list[list[int]]:
    """All but one, for each of them but the first and the last: nobody can know more of a point."""
    return [[i for i in range(n) if i != out] for out in range(1, n - 1)]


def beyond(n: int) -> list[list[int]]:  # noqa: ARG001
    """The four lowest."""
    return [[0, 1, 2, 3]]


def tries(all_series: Iterable[Series], choose: Choice) -> Iterator[tuple[Series, list[Known], list[Known]]]:
    """Each series with the points it is fitted on and those to be predicted."""
    for series in all_series:
        for fitted in choose(len(series.points)):
            known = [series.points[i] for i in fitted]
            yield series, known, [point for i, point in enumerate(series.points) if i not in fitted]


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


def left_out(all_series: Iterable[Series], method: Callable[[Series], Fit], choose: Choice) -> Errors:
    """A method judged on the points it was not fitted to."""
    found = Errors(defaultdict(list), defaultdict(list))
    for series, known, unseen in tries(all_series, choose):
        said_by = method(series)(known)
        for point in unseen:
            said, truth = said_by(point.concurrency), series.figures(point)
            for name in METRICS:
                found.wrong[name].append(abs(said[name] / truth[name] - 1))
    return found


def banded(all_series: Iterable[Series], choose: Choice) -> dict[str, float]:
    """The share of left-out points inside our bands."""
    held = defaultdict(list)
    for series, known, unseen in tries(all_series, choose):
        model = Calibrated(known, series.isl, series.osl, roofline=series.roofline())
        for point in unseen:
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
        model = Calibrated(here.points, here.isl, here.osl, roofline=here.roofline())
        for point in there.points:
            said, truth = model.elsewhere(there.isl, there.osl, point.concurrency), there.figures(point)
            at = model.at(point.concurrency)
            plain = figures(point.concurrency, at.ttft.value, at.tpot.value, there.osl)
            for name in METRICS:
                ours.wrong[name].append(abs(getattr(said, name).value / truth[name] - 1))
                same.wrong[name].append(abs(plain[name] / truth[name] - 1))
            _hold(ours.held, said, truth)
    return ours, same


def cross_checked(all_series: Sequence[Series], choose: Choice) -> dict[str, float]:
    """Coverage of bands made on one half of the deployments and tried on the other, mean of 200
    halvings.

    A band is the 95th percentile of the log errors, at twice the highest measured concurrency where
    beyond it.
    """
    rows = []
    names = sorted({(s.deployment.model, s.deployment.system) for s in all_series})
    for series, known, unseen in tries(all_series, choose):
        model = Calibrated(known, series.isl, series.osl, roofline=series.roofline())
        group = names.index((series.deployment.model, series.deployment.system))
        for point in unseen:
            said, truth = model.at(point.concurrency), series.figures(point)
            away = max(0.0, float(np.log2(point.concurrency / known[-1].concurrency)))
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
        roofline = series.roofline()
        if roofline is None:
            continue
        assumed = Assumption(assumed_engine(roofline))
        for point in series.points:
            try:
                said = predict(assumed, Shape.of(series.isl, series.osl), point.concurrency)
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
    found = settings(files[0] if files else SAMPLE)
    all_series = series_of(once(found) if "--once" in sys.argv else found)
    print(f"{len(all_series)} series, {sum(len(s.points) for s in all_series)} points")
    if len(twice := repeated(found)):
        ttft, tpot = (f"{100 * np.median(by):.1f} / {100 * np.quantile(by, 0.9):.0f}" for by in twice.T)
        print(f"{len(twice)} settings were measured twice: they differ by {tpot} % in TPOT, {ttft} % in TTFT")
    falls = np.mean([any(a.ttft > b.ttft for a, b in itertools.pairwise(s.points)) for s in all_series])
    print(f"TTFT falls somewhere in {100 * falls:.0f} % of the series")
    print(f"{'median / p90 of |error|, %':<28}{'TPOT':>13}{'throughput':>15}{'TTFT':>15}")
    for title, choose in (("between", between), ("spread", spread), ("others", others), ("beyond", beyond)):
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
        print(f"nothing measured: {len(blind.wrong['ttft'])} points of known models")
        print(f"{'nothing':<9}{'60% and 2 ms':<17}{blind.line()}")
        print(
            f"{'nothing':<9}in our 95% band  " + "  ".join(f"{100 * np.mean(blind.held[m]):10.1f}   " for m in METRICS)
        )


if __name__ == "__main__":
    main()
