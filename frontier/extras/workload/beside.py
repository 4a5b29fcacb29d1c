"""Production beside a run: where it stands, and what room is left up to the operating point. A
difference is put down to the workload or to the server.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from frontier.core.model.loads import Load
from frontier.core.model.points import Estimate, Point
from frontier.core.model.units import format_seconds, format_share
from frontier.extras.workload.config_text import between
from frontier.extras.workload.observed import ProductionFigure, Workload
from frontier.show.picture.data import Mark, Picture, Role
from frontier.show.picture.frontier_picture import shared_axes, small_multiples
from frontier.show.picture.labels import joined, legend_line
from frontier.show.verbosity import Detail
from frontier.show.view.series_view import SeriesView
from frontier.show.view.wording import Provenance

ALIKE = 0.1
"""Differences from which it is another workload: of mean lengths as a share, and of cached shares
in share of the prompt. Rebuilt workloads differ by less."""


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A figure of production beside the run's at about as many requests in flight."""

    name: str
    production: ProductionFigure
    run: Estimate

    @property
    def apart(self) -> int:
        """1 where production is surely above the run, -1 where it is surely below; 0 where the
        intervals meet.
        """
        if self.production.low is not None and self.production.low > self.run.high:
            return 1
        return -1 if self.production.high is not None and self.production.high < self.run.low else 0


@dataclass(frozen=True, slots=True)
class Beside:
    """Production beside one series of a run.

    - `at`: the measured settings from its mean requests in flight to those of its busiest hour.
    - `room`: the operating point's requests in flight over those of the busiest hour.
    - `differs`: what explains a difference: the workload, the server, or nothing that is shown.
    """

    series: str
    running: float | None
    at: tuple[Load, ...]
    operating: Load | None
    room: float | None
    figures: tuple[ComparedFigure, ...]
    lengths: Mapping[str, tuple[float, float]]
    differs: Literal["workload", "server", "nothing"]


def beside(workload: Workload, view: SeriesView) -> Beside:
    """The comparison of production with a series."""
    running = None if workload.running is None else workload.running.value / workload.servers
    points = [p for p in view.points if p.valid and not p.load.is_open]
    # Latencies are of all of the time, what is in flight of its busiest hour.
    mean = workload.arrivals.rate / workload.arrivals.busiest if workload.arrivals is not None else 1.0
    near = [] if running is None else _between(points, running * mean, running)
    operating = next((p.load for p in points if p.load == view.chosen), None)
    shape = view.frontier.shape
    lengths = {
        "prompts": (workload.mean(0), shape.isl.mean),
        "answers": (workload.mean(1), shape.osl.mean),
    }
    if workload.cached is not None:
        lengths["cached"] = (workload.cached, shape.cached)
    figures = _figures(workload, near)
    other = any(_other(name, *pair) for name, pair in lengths.items())
    apart = "server" if any(each.apart for each in figures) else "nothing"
    return Beside(
        f"{view.frontier.deployment} {shape.label}".removeprefix("default "),
        running,
        tuple(p.load for p in near),
        operating,
        operating / running if operating is not None and running else None,
        figures,
        lengths,
        "workload" if other else apart,  # type: ignore[arg-type]
    )


def _figures(workload: Workload, near: Sequence[Point]) -> tuple[ComparedFigure, ...]:
    """The figures of production that every one of these points has."""
    return tuple(
        ComparedFigure(name, figure, _together([p.metrics[name] for p in near]))
        for name, figure in workload.figures.items()
        if near and all(name in p.metrics for p in near)
    )


def _other(name: str, mine: float, runs: float) -> bool:
    return abs(mine - runs) > ALIKE if name == "cached" else abs(mine / runs - 1) > ALIKE


def _between(points: Sequence[Point], low: float, high: float) -> list[Point]:
    """The measured settings between these numbers of requests in flight, and the next ones on both
    sides; empty where that reaches beyond the measured ones. Less than one request counts as one: a
    request is in flight with itself.
    """
    least = max((p.load for p in points if p.load <= max(1.0, low)), default=math.inf)
    most = min((p.load for p in points if p.load >= high), default=-math.inf)
    return [p for p in points if least <= p.load <= most]


def _together(estimates: Sequence[Estimate]) -> Estimate:
    """One estimate that covers several, as production lies between their settings."""
    value = sum(e.value for e in estimates) / len(estimates)
    return replace(estimates[0], value=value, low=min(e.low for e in estimates), high=max(e.high for e in estimates))


def beside_lines(workload: Workload, found: Beside, detail: Detail = Detail.USUAL) -> Iterator[str]:
    """The comparison in words; without figures where only the answer is asked for."""
    each = "" if workload.servers == 1 else f" on each of {workload.servers} engines"
    yield f"Production beside {found.series}"
    if found.running is None:
        yield "How many requests production has in flight is not known: nothing tells it, and no log has their times."
    elif found.operating is None:
        yield f"Production has {found.running:.3g} requests in flight{each}; the run names no operating point."
    else:
        room = f"room for {found.room:.2g} times as many" if (found.room or 0) > 1 else "no room is left"
        where = found.operating.label
        yield f"Production has {found.running:.3g} requests in flight{each}; the operating point is {where}: {room}."
    if found.running is not None and not found.at:
        yield "Latencies are not compared: the run has not measured on both sides of production's load."
    for one in detail.of((), found.figures):
        percentile, _, what = one.name.partition("_")
        sign = {1: "  above", -1: "  below", 0: ""}[one.apart]
        yield (
            f"  {percentile} {what.upper():<5}{between(one.production, format_seconds):<40}"
            f"run at {', '.join(load.label for load in found.at)}: {format_seconds(one.run.value)}{sign}"
        )
    for name, (mine, runs) in detail.of((), found.lengths.items()):
        pair = (format_share(mine), format_share(runs)) if name == "cached" else (f"{mine:,.0f}", f"{runs:,.0f}")
        differs = "  differs" if _other(name, mine, runs) else ""
        yield f"  {name:<9}{pair[0]} in production, {pair[1]} in the run{differs}"
    yield {
        "workload": "The workload differs, which says nothing of the server: sweep production's own,  "
        "frontier workload ... > sweep.yaml",
        "server": "The workloads are alike and the latencies are not: the server differs.",
        "nothing": "Neither the workload nor the latencies are shown to differ.",
    }[found.differs]


def beside_picture(workload: Workload, views: Sequence[SeriesView], footer: Provenance | None) -> Picture | None:
    """The frontiers with production as a point and its intervals; None where production has no
    value for an axis.
    """
    drawn = []
    for view in views:
        across, up = (_estimate(workload, name) for name in view.axes)
        if across is not None and up is not None:
            running = 0.0 if workload.running is None else workload.running.value / workload.servers
            drawn.append(replace(view, expected=[(running, across, up)]))
    if not drawn:
        return None
    picture = small_multiples(drawn, footer=footer)
    panels = (replace(panel, marks=tuple(map(_named, panel.marks))) for panel in picture.panels)
    # The last note, and a part of the legend, are of predictions, in whose place production stands.
    own_axes = len(drawn) > 1 and shared_axes(drawn) is None
    legend = legend_line([replace(view, expected=()) for view in drawn], own_axes=own_axes)
    legend = joined([legend, "diamond: production, with the interval of each figure"])
    return replace(picture, name="production", panels=tuple(panels), notes=picture.notes[:-1], legend=legend)


def _named(mark: Mark) -> Mark:
    return replace(mark, text="production") if mark.role is Role.PREDICTED else mark


def _estimate(workload: Workload, name: str) -> Estimate | None:
    """Production's value of a metric, with its interval."""
    if (figure := workload.figures.get(name)) is not None:
        low, high = (figure.value if side is None else side for side in (figure.low, figure.high))
        return Estimate(figure.value, low, high, figure.n)
    if workload.arrivals is None or name not in ("output_throughput", "request_throughput"):
        return None
    rate = workload.arrivals.busiest / workload.servers
    value = rate * (workload.mean(1) if name == "output_throughput" else 1.0)
    error = 1.96 * value * (max([1.0, *workload.arrivals.dispersion.values()]) / workload.requests) ** 0.5
    return Estimate(value, max(0.0, value - error), value + error, workload.requests)
