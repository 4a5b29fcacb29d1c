"""A rehearsal as data: the result curve of a run under the rules of MLPerf Endpoints, and the
hours that the real runs take.

A run is read and nothing is measured. One curve is one system, one model and one dataset; a point
is a concurrency. The highest concurrency is elected as the Offline point.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from frontier.core.model.errors import UsageError
from frontier.core.model.loads import Rate
from frontier.core.model.points import Point
from frontier.core.model.series import Series
from frontier.core.window.window import WindowData
from frontier.extras.rehearse import endpoints_rules as rules
from frontier.extras.rehearse.regions import Regions
from frontier.extras.rehearse.steady import Steady, bound_rank, judged, passes_of
from frontier.run import Run
from frontier.show.view.selection import series_of
from frontier.show.view.wording import flag_kinds

METRICS = ("output_throughput", "p90_tpot", "p90_interactivity", "p90_ttft", "request_throughput", "error_rate")


@dataclass(frozen=True, slots=True)
class Dataset:
    """The dataset of the curve: prompts of a pass, and requests of a run for the accuracy."""

    name: str
    prompts: int
    accuracy: int


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A point of the curve. Times are in seconds: of one pass, of a run with a steady window, and
    of the shortest run whose whole is the result. None: not known. `accuracy`: it is one of the
    points whose accuracy is asked for. `worse_than`: a lower concurrency that is better on both
    axes.
    """

    concurrency: int
    region: str | None
    system_tps: float
    tps_per_user: float
    ttft_p90: float
    requests: int
    request_rate: float
    failed: float
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
    data: Mapping[int, WindowData]

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
    windows = run.samples(series)
    measured = [point for point in run.points(names=METRICS) if point.series == series]
    usable = [p for p in measured if p.valid and all(math.isfinite(p.value(name)) for name in METRICS[:2])]
    left_out = [kind.text() for kind in flag_kinds(p for p in measured if not p.valid) if kind.fatal]
    left_out += [f"no p90 TPOT or no throughput: c={p.concurrency}" for p in measured if p.valid and p not in usable]
    if not usable:
        raise UsageError(f"no point of the run counts: {left_out[0]}", f"frontier show {run.path}  says more")
    dataset, size = _dataset(run, benchmark), run.config.passes.size if run.config.passes is not None else None
    concurrencies = [point.concurrency for point in usable]
    regions, problem = None, ""
    try:
        regions = Regions.of(concurrencies[0], concurrencies[-1])
    except ValueError as error:
        problem = str(error)
    points = [_point(p, regions, dataset, windows.get(p.concurrency), size) for p in usable]
    if regions is not None:
        last = {p.region: p.concurrency for p in points}
        points = [replace(p, accuracy=last[p.region] == p.concurrency) for p in points]
    return Rehearsal(
        series,
        ", ".join(sorted({d.model for d in run.config.deployments if d.model and d.name == series.deployment})),
        benchmark,
        dataset,
        regions,
        problem,
        tuple(_compared(points)),
        tuple(left_out),
        windows,
    )


def _only_series(run: Run) -> Series:
    """The series of a run that is one curve."""
    series = series_of(run)
    if len(series) > 1:
        names = ", ".join(each.label() for each in series[:4])
        what = f"one curve is one system, one model and one dataset; {run.path} has {len(series)}: {names}"
        raise UsageError(what, "name one of them:  --shape SHAPE  or  --deployment NAME")
    shape = series[0].shape
    if shape.arrivals is not None or any(isinstance(p.concurrency, Rate) for p in run.points()):
        raise UsageError("a point of the curve is a number of requests in flight, and this run has a rate of arrivals")
    if shape.has_sessions or shape.mix:
        raise UsageError(f"{shape.label} is a {shape.kind}: only benchmarks of single requests are rehearsed")
    return series[0]


def _dataset(run: Run, benchmark: str | None) -> Dataset | None:
    """The dataset of the benchmark; else the run's own file where its size is known."""
    if benchmark is not None:
        of = rules.BENCHMARKS[benchmark]
        return Dataset(of.name, of.prompts, of.accuracy)
    passes, file = run.config.passes, run.config.prompts_file
    return Dataset(file, passes.size, passes.size) if passes is not None and passes.size and file else None


def _point(
    point: Point, regions: Regions | None, dataset: Dataset | None, data: WindowData | None, size: int | None
) -> CurvePoint:
    """A point with its times. An imported one has no requests to look at."""
    c, least = point.concurrency, rules.least_seconds(point.concurrency)
    tps, _, per_user, ttft, rate, failed = map(point.value, METRICS)
    rate = rate if rate > 0 else tps / point.shape.osl.mean
    made = CurvePoint(
        c,
        None if regions is None else regions.region(c),
        tps,
        per_user,
        ttft,
        point.n,
        rate,
        0.0 if math.isnan(failed) else failed,
    )
    if data is not None and (rank := bound_rank(0.9, data.n)) is not None:
        made = replace(made, ttft_p90_bound=float(np.sort(data.ttft)[-rank]))
    if data is not None and size is not None:
        made = replace(made, steady=judged(passes_of(data, size), least))
    if dataset is None:
        return made
    one = dataset.prompts / rate
    return replace(made, one_pass=one, with_window=max(rules.PASSES * one, least), whole_run=max(one, least))


def _compared(points: Sequence[CurvePoint]) -> Iterator[CurvePoint]:
    """The points, each with the lower concurrency that is better on both axes, if there is one."""
    for i, point in enumerate(points):
        better = (
            p.concurrency
            for p in reversed(points[:i])
            if p.system_tps > point.system_tps and p.tps_per_user > point.tps_per_user
        )
        yield replace(point, worse_than=next(better, None))
