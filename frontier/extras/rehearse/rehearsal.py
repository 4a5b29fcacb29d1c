"""A rehearsal as data: the curve that a run would be in MLPerf Endpoints, and its hours.

A run is read and nothing is measured. One curve is one system, one model and one dataset; a point
is a concurrency. The highest concurrency is elected as the Offline point.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from frontier.config.load_keys import Passes
from frontier.core.model.errors import UsageError
from frontier.core.model.loads import Load
from frontier.core.model.points import Point
from frontier.core.model.series import Series
from frontier.core.model.text import clean
from frontier.core.window.window import WindowData
from frontier.extras.rehearse import endpoints_rules as rules
from frontier.extras.rehearse.endpoints_rules import Dataset
from frontier.extras.rehearse.regions import Regions
from frontier.extras.rehearse.steady import Steady, bound_rank, judged, passes_of
from frontier.run import Run
from frontier.show.view.selection import provenance_of, series_of
from frontier.show.view.wording import flag_kinds

METRICS = ("output_throughput", "p90_tpot", "p90_interactivity", "p90_ttft", "request_throughput", "error_rate")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A point of the curve. Times are in seconds: of one pass, of a run with a steady window, and
    of the shortest run whose whole is the result. None: not known. `accuracy`: it is one of the
    points whose accuracy is asked for. `worse_than`: a lower concurrency that is better on both
    axes.
    """

    concurrency: int
    system_tps: float
    tps_per_user: float
    ttft_p90: float
    requests: int
    request_rate: float
    failed: float
    region: str | None = None
    ttft_p90_bound: float | None = None
    one_pass: float | None = None
    with_window: float | None = None
    whole_run: float | None = None
    accuracy: bool = False
    worse_than: int | None = None
    steady: Steady | None = None


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The curve, in order of concurrency. `no_regions` is the reason where there are none;
    `left_out` says which points do not count, and why. `data` are the windows of the points.
    """

    series: Series
    model: str
    benchmark: str | None
    dataset: Dataset | None
    regions: Regions | None
    no_regions: str
    points: tuple[CurvePoint, ...]
    left_out: tuple[str, ...]
    data: Mapping[Load, WindowData]

    @property
    def concurrencies(self) -> list[int]:
        """The concurrencies of the curve."""
        return [point.concurrency for point in self.points]

    @property
    def uncovered(self) -> list[str]:
        """The regions without a point."""
        return [] if self.regions is None else self.regions.uncovered(self.concurrencies)

    def seconds(self, of: str) -> float:
        """Seconds of all points, by the name of a field."""
        return sum(getattr(point, of) or 0.0 for point in self.points)

    @property
    def accuracy_seconds(self) -> float:
        """Seconds of the runs for the accuracy, at the speed of the points."""
        asked = self.dataset.accuracy if self.dataset is not None else 0
        return sum(asked / point.request_rate for point in self.points if point.accuracy)


# --- made of a run


def rehearse(run: Run, benchmark: str | None = None) -> Rehearsal:
    """The rehearsal of a run with one series. UsageError where it cannot be a curve."""
    series = _only_series(run)
    measured = [point for point in run.points(names=METRICS) if point.series == series]
    usable, left_out = _usable(measured)
    if not usable:
        raise UsageError(f"no point of the run counts: {left_out[0]}", f"frontier show {run.path}  says more")
    regions, no_regions = None, ""
    try:
        regions = Regions.of(usable[0].load, usable[-1].load)
    except ValueError as error:
        no_regions = str(error)
    dataset, windows = _dataset(run, benchmark), run.samples(series)
    points = [_point(point, dataset, windows.get(point.load), run.config.passes) for point in usable]
    return Rehearsal(
        series,
        clean(provenance_of(run).model or "", 80),
        benchmark,
        dataset,
        regions,
        no_regions,
        tuple(_placed(points, regions)),
        tuple(left_out),
        windows,
    )


def _usable(points: Sequence[Point]) -> tuple[list[Point], list[str]]:
    """The points that count, and why the others do not."""
    usable = [p for p in points if p.valid and all(math.isfinite(p.value(name)) for name in METRICS[:2])]
    left_out = [kind.text() for kind in flag_kinds(p for p in points if not p.valid) if kind.fatal]
    odd = [p.load.label for p in points if p.valid and p not in usable]
    return usable, [*left_out, *([f"no finite p90 TPOT or throughput: {', '.join(odd)}"] if odd else [])]


def _only_series(run: Run) -> Series:
    """The series of a run that is one curve."""
    series = series_of(run)
    if len(series) > 1:
        names = ", ".join(each.label() for each in series[:4])
        what = f"one curve is one system, one model and one dataset; {run.path} has {len(series)}: {names}"
        raise UsageError(what, "name one of them:  --shape SHAPE  or  --deployment NAME")
    shape = series[0].shape
    if shape.arrivals is not None or any(p.load.is_open for p in run.points()):
        raise UsageError("a point of the curve is a number of requests in flight, and this run has a rate of arrivals")
    if shape.kind != "shape":
        raise UsageError(f"{shape.label} is a {shape.kind}: only benchmarks of single requests are rehearsed")
    return series[0]


def _dataset(run: Run, benchmark: str | None) -> Dataset | None:
    """The dataset of the benchmark; else the run's own file where its size is known."""
    if benchmark is not None:
        return rules.BENCHMARKS[benchmark]
    passes, file = run.config.passes, run.config.prompts_file
    return (
        Dataset(file, clean(file, 80), passes.size, passes.size)
        if passes is not None and passes.size and file
        else None
    )


def _point(point: Point, dataset: Dataset | None, data: WindowData | None, passes: Passes | None) -> CurvePoint:
    """A point with its times. An imported one has no requests to look at."""
    tps, _, per_user, ttft, rate, failed = map(point.value, METRICS)
    rate = rate if rate > 0 else tps / point.shape.osl.mean
    failed = 0.0 if math.isnan(failed) else failed
    least = rules.least_seconds(point.load)
    made = CurvePoint(int(point.load), tps, per_user, ttft, point.n, rate, failed)
    if data is not None and (rank := bound_rank(0.9, data.n)) is not None:
        made = replace(made, ttft_p90_bound=float(np.sort(data.ttft)[-rank]))
    if data is not None and passes is not None and passes.size:
        made = replace(made, steady=judged(passes_of(data, passes.size), least))
    if dataset is None:
        return made
    one = dataset.prompts / rate
    return replace(made, one_pass=one, with_window=max(rules.PASSES * one, least), whole_run=max(one, least))


def _placed(points: Sequence[CurvePoint], regions: Regions | None) -> Iterator[CurvePoint]:
    """The points with their regions, the last of each being asked for its accuracy; and with the
    next lower concurrency that is better on both axes.
    """
    found = {} if regions is None else {p.concurrency: regions.region(p.concurrency) for p in points}
    last = {region: c for c, region in found.items()}
    for i, point in enumerate(points):
        better = (
            p.concurrency
            for p in reversed(points[:i])
            if p.system_tps > point.system_tps and p.tps_per_user > point.tps_per_user
        )
        c = point.concurrency
        yield replace(point, region=found.get(c), accuracy=c in last.values(), worse_than=next(better, None))
