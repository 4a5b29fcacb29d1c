"""Throughput by tokens per second of each user, and the SLA tiers that would prove it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from frontier.core.model.decisions import Decision, Limit, Verdict
from frontier.core.model.loads import Load
from frontier.core.model.points import Point
from frontier.core.model.series import Series, by_series
from frontier.core.model.units import format_elapsed
from frontier.planning.next_step import least_to_prove
from frontier.run import Run
from frontier.show.picture.labels import panel_names
from frontier.show.table import Table
from frontier.show.view.series_view import SeriesView
from frontier.show.view.wording import bound_text, value_text

SPEEDS = (10, 20, 30, 50, 100)
"""Tokens per second of one user."""
PERCENTILES = ("p50_tpot", "p99_tpot")


@dataclass(frozen=True, slots=True)
class Speeds:
    """The table, a row for each series and percentile, and below it the tiers that would prove what
    is not proven, with the time that takes; '' where nothing is left to prove.
    """

    table: Table
    tiers: str


@dataclass(frozen=True, slots=True)
class _Proof:
    """A proof that is missing, and the requests per second of its setting."""

    series: Series
    limit: Limit
    load: Load
    rate: float


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    missing: _Proof | None = None


def speeds_of(run: Run, views: Sequence[SeriesView]) -> Speeds | None:
    """The table for the series of the views; None where no time between tokens was measured."""
    shown = [view for view in views if any(PERCENTILES[0] in p.metrics and p.valid for p in view.points)]
    if not shown:
        return None
    names = [f", {name}" for name in panel_names(shown)] if len(shown) > 1 else [""]
    rows = [(v, name, cells) for v in SPEEDS for name, cells in zip(names, _cells_at(run, shown, v), strict=True)]
    texts = [(f"{v} tok/s ({1000 / v:.3g} ms){name}", *(cell.text for cell in cells)) for v, name, cells in rows]
    missing = [cell.missing for _, _, cells in rows for cell in cells if cell.missing is not None]
    caption = (
        "The setting with the most throughput whose TPOT is within it, by value. Each cell stands alone: they are no "
        "joint claim"
    )
    table = Table.of(("each user gets (TPOT)", "p50 TPOT within", "p99 TPOT within"), texts, caption)
    return Speeds(table, _tiers(missing if run.again is not None else ()))


def _cells_at(run: Run, views: Sequence[SeriesView], speed: int) -> Iterator[list[_Cell]]:
    """The cells of each series at a speed, by PERCENTILES."""
    limits = [Limit(name, 1 / speed) for name in PERCENTILES]
    decided = [{d.series: d for d in run.solve([limit])} for limit in limits]
    points = [by_series(run.points([limit])) for limit in limits]
    for view in views:
        own = zip(limits, points, decided, strict=True)
        yield [_cell(of[view.series], limit, by.get(view.series), view.gpus) for limit, of, by in own]


def _cell(points: Sequence[Point], limit: Limit, decision: Decision | None, gpus: int | None) -> _Cell:
    """The setting with the most throughput within a limit by value, and whether that is proven."""
    needed = {limit.metric, "output_throughput"}
    measured = [p for p in points if p.valid and not p.overloaded and needed <= p.metrics.keys()]
    inside = [p for p in measured if limit.holds(p.metrics[limit.metric].value)]
    if not inside:
        return _Cell("none within")
    best = max(inside, key=lambda p: p.metrics["output_throughput"].value)
    made, estimate = best.metrics["output_throughput"].value, best.metrics[limit.metric]
    judged = decision.judgement(best.load) if decision is not None else None
    text = f"{value_text('output_throughput', made, gpus)} at {best.load.label}, {bound_text(estimate, limit)}"
    if judged is not None and judged.verdict is Verdict.MEETS:
        return _Cell(f"{text}: proven")
    rate = best.metrics.get("request_throughput")
    proof = _Proof(best.series, limit, best.load, rate.value) if rate is not None and rate.value > 0 else None
    return _Cell(f"{text}: value only", proof)


def _tiers(cells: Sequence[_Proof]) -> str:
    """A tier of the SLA for each row with something to prove, of its p99 where that is open (which
    proves its p50 too), and the time that its requests take at least, at the rates measured.
    """
    if not cells:
        return ""
    tightest = {cell.limit.promise: cell.limit.metric for cell in sorted(cells, key=lambda cell: cell.limit.metric)}
    ordered = sorted(tightest.items(), reverse=True)
    tiers = ", ".join(f"at_{1 / at:.0f}: {{{name}: {at * 1000:.3g}ms}}" for at, name in ordered)
    settings: dict[tuple[Series, Load], float] = {}
    for cell in cells:  # the requests of one setting prove all of its rows
        key = cell.series, cell.load
        settings[key] = max(settings.get(key, 0.0), least_to_prove((cell.limit,)) / cell.rate)
    time = f" (at least {format_elapsed(sum(settings.values()))} of requests)"
    return f"Tiers that would prove the rows that are value only{time}:  sla: {{{tiers}}}"
