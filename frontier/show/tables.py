"""Tables of points with notes below them, and the table of a sweep's plan."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from frontier.core.model.decisions import Decision, Limit
from frontier.core.model.loads import Rate, SessionRate, bare, kind_of, listed
from frontier.core.model.metrics import RATES, metric
from frontier.core.model.points import Estimate, Frontier, Point
from frontier.core.model.series import Series, by_series
from frontier.core.model.text import clean
from frontier.core.model.units import format_bytes, format_number, format_share
from frontier.show.table import Cell, Column, Table, indented, to_text
from frontier.show.view.costs import power_text
from frontier.show.view.frontier_summary import FrontierSummary
from frontier.show.view.notes import Noted
from frontier.show.view.sentences import no_sla_sentence, reason_words
from frontier.show.view.wording import (
    NO_BOUND,
    NO_BOUND_LEGEND,
    NOT_NEEDED,
    count,
    flag_kind,
    flag_kinds,
    has_no_bound,
    interval_text,
    left_out,
    limits_text,
    time_sentence,
    unit_text,
    value_text,
)

if TYPE_CHECKING:
    from frontier.config import Config
    from frontier.planning.plan import Plan

DeploymentGpus = Mapping[str, int | None] | None
"""The number of GPUs that each deployment's rates are divided by; None where it is not stated."""


# --- points


def _style(point: Point, frontier: Frontier | None, chosen: int | None) -> str:
    """The style of a point's row: bold for the operating point, dim for a point that is excluded or
    not on the axes.
    """
    if not point.valid or point.overloaded:
        return "dim"
    if point.concurrency == chosen:
        return "bold"
    return "dim" if frontier is not None and point.concurrency in frontier.excluded else ""


_WARNING_FIGURES = 2
"""Most figures that a table lists of a flag that only warns; with all settings it would fill a
page."""
_RANKS = {"p50_ttft": 5, "p50_tpot": 6, "cost": 6, "energy": 6}
"""The order in which columns of metrics without a limit or an axis are left out."""
_OF_CLASSES = ("p99_ttft", "p99_e2e")
"""The metrics that a table shows of each class of requests."""
_USUAL = ("output_throughput", "p50_ttft", "p99_ttft", "p50_tpot", "p99_tpot", "p99_e2e")


def table_of(
    points: Sequence[Point],
    frontier: Frontier | None,
    limits: Sequence[Limit],
    decision: Decision | None,
    gpus: int | None,
    *,
    whole: bool = True,
    verdicts: bool = True,
) -> Table:
    """The points of a series as a table, a verdict in each row.

    Without `whole` it has only the throughput and the limited metrics, or those of the frontier
    where there are no limits. The columns of the other metrics are left out first where there is no
    room.
    """
    asked, names = _metrics_of(points, frontier, limits, whole=whole)
    chosen = decision.concurrency if decision else None
    styles = [_style(point, frontier, chosen) for point in points]
    columns = [_load_column(points, styles), *_in_flight_column(points)]
    columns += [
        _metric_column(points, name, limits, gpus, first=name in asked, whole=whole)
        for name in names
        if any(name in point.metrics for point in points)
    ]
    columns.append(
        Column("n", tuple(Cell(f"{p.n:,}" if p.n else "–", key=p.n or None) for p in points), 3, long="requests")
    )
    columns += _roofline_columns(points) if whole else []
    if not verdicts:
        return Table(tuple(columns))
    words = (verdict_words(point, frontier, limits, decision) for point in points)
    cells = tuple(Cell(text, style=style) for text, style in zip(words, styles, strict=True))
    return Table((*columns, Column("verdict", cells, left=True, wraps=True)))


def _metrics_of(
    points: Sequence[Point], frontier: Frontier | None, limits: Sequence[Limit], *, whole: bool
) -> tuple[list[str], list[str]]:
    """The metrics that a table must show, and all of its columns."""
    axes = frontier.objectives if frontier else ()
    of_sessions = any(isinstance(point.concurrency, SessionRate) for point in points)
    rates = ["request_throughput", _USUAL[0]] if of_sessions else [_USUAL[0]]
    asked = [*rates, *([limit.metric for limit in limits] or axes)]
    if not whole:
        return asked, sorted(dict.fromkeys(asked), key=lambda name: name == "error_rate")
    classes = [f"{group}.{n}" for n in _OF_CLASSES for group in (points[0].shape.finest(None) if points else ())]
    every = [*asked, *axes, *_USUAL, *classes, "cost", "energy"]
    return [*asked, *axes], [*(name for name in dict.fromkeys(every) if name != "error_rate"), "error_rate"]


RUN_HERE = "   <- run here"


def verdict_words(point: Point, frontier: Frontier | None, limits: Sequence[Limit], decision: Decision | None) -> str:
    """How a setting stands to the SLA: 'meets', 'not proven (short trial)', 'violates p95 TPOT',
    'excluded: this machine was busy'. Without an SLA: its place on the frontier.
    """
    if not point.valid:
        return f"excluded: {', '.join(dict.fromkeys(map(flag_kind, point.fatal)))}"
    if point.overloaded:
        return "excluded: more arrived than was served"
    reasons = decision.explanation.settings if decision is not None else ()
    reason = next((reason for reason in reasons if reason.settings == (point.concurrency,)), None)
    if reason is not None and decision is not None:
        measured = [(limit, point.metrics[limit.metric]) for limit in decision.limits if limit.metric in point.metrics]
        words = reason_words(reason, [limit for limit, estimate in measured if limit.breaks(estimate.value)])
        return f"{words}{RUN_HERE}" if point.concurrency == decision.concurrency else words
    if limits or frontier is None:
        return "not judged"
    if point.concurrency in frontier.excluded:
        return "not on these axes"
    return "on the frontier" if point.concurrency in frontier.members else "dominated"


def _metric_column(
    points: Sequence[Point],
    name: str,
    limits: Sequence[Limit],
    gpus: int | None,
    *,
    first: bool,
    whole: bool,
) -> Column:
    """The values of a metric, with their intervals where `whole`; an error rate has none. `first`:
    the column is left out last.
    """
    limit = next((limit for limit in limits if limit.metric == name), None)
    cells = tuple(_metric_cell(name, point.metrics.get(name), limit, gpus, marked=whole) for point in points)
    if name == "error_rate":
        return Column("errors", cells, 2)
    rank = 5 if metric(name).group else _RANKS.get(name, 4)
    rank = 1 if first else rank
    return Column(_head(name, gpus), cells, rank, interval_rank=rank + 5 if whole else None)


def _load_column(points: Sequence[Point], styles: Sequence[str]) -> Column:
    """The load of each point: its concurrency, or its rate."""
    if points and isinstance(points[0].concurrency, Rate):
        of_sessions = isinstance(points[0].concurrency, SessionRate)
        head, long = "rate", "rate, sessions that begin per second" if of_sessions else "rate, arrivals per second"
    else:
        head, long = "c", "concurrency"
    keyed = zip((p.concurrency for p in points), styles, strict=True)
    return Column(head, tuple(Cell(bare(load), key=int(load), style=style) for load, style in keyed), long=long)


def _in_flight_column(points: Sequence[Point]) -> list[Column]:
    """Requests in flight, where the load does not state them."""
    if not any(point.in_flight for point in points):
        return []
    cells = tuple(Cell(format_number(point.in_flight), key=point.in_flight) for point in points)
    return [Column("in flight", cells, 1, long="requests in flight, mean")]


def _metric_cell(
    name: str, estimate: Estimate | None, limit: Limit | None, gpus: int | None, *, marked: bool = True
) -> Cell:
    """A value with its interval, `marked` where it has no bound. Rates have their unit in the head;
    a value beyond its limit is red.
    """
    if estimate is None:
        return Cell("–", style="dim")
    text = value_text(name, estimate.value, gpus)
    text = text.partition(" ")[0] if metric(name).unit in RATES else text
    over = limit is not None and limit.breaks(estimate.value)
    return Cell(
        f"{text} {NO_BOUND}" if marked and has_no_bound(name, estimate) else text,
        interval_text(name, estimate, gpus).removesuffix(f" {NO_BOUND}"),
        estimate.value if math.isfinite(estimate.value) else 1e300,
        "red" if over else "",
    )


def _head(name: str, gpus: int | None) -> str:
    """The head of a metric's column; that of a rate is its unit."""
    if metric(name).needs in ("power", "price"):
        return name.replace("_", " ")
    if metric(name).unit in RATES:
        kind = metric(name).label.partition(" (")[0].removesuffix(" throughput")
        unit = unit_text(name, gpus)
        return unit if name in ("output_throughput", "request_throughput") else f"{kind} {unit}"
    m = metric(name)
    label = m.label.partition(" (")[0]
    return label if m.group is None else f"{m.group} {label.partition(' of ')[0]}"


def _roofline_columns(points: Sequence[Point]) -> list[Column]:
    """The distance from the roofline, where the hardware is described."""
    distances = [point.roofline_distance for point in points]
    if not any(distances):
        return []
    shares = (
        ("of roofline", 2, [distance and distance.share for distance in distances]),
        ("MBU", 3, [distance and distance.mbu for distance in distances]),
        ("MFU", 3, [distance and distance.mfu for distance in distances]),
    )
    columns = [
        Column(head, tuple(Cell(format_share(e.value if e else None)) for e in estimates), rank)
        for head, rank, estimates in shares
        if any(estimates)
    ]
    return [
        *columns,
        Column("roofline bound by", tuple(Cell(one.binds if one else "–") for one in distances), 3, left=True),
    ]


def points_table(  # noqa: PLR0913
    points: Sequence[Point],
    frontiers: Sequence[Frontier],
    limits: Sequence[Limit] = (),
    *,
    decisions: Sequence[Decision] = (),
    summaries: Sequence[FrontierSummary] = (),
    notes: Mapping[str, Noted] | None = None,
    gpus: DeploymentGpus = None,
    whole: bool = True,
    below: bool = False,
    width: int = 80,
    colour: bool = False,
) -> str:
    """One table per series.

    With `whole` it shows all metrics, the flags, the time breakdown and the notes on the whole
    series. It has no verdicts and no frontier where it stands `below` a table that has them.
    """
    known = {summary.frontier.series: summary.notes for summary in summaries}
    of_series = {frontier.series: frontier for frontier in frontiers}
    decided = {decision.series: decision for decision in decisions}
    groups = by_series(points)
    blocks = []
    for series, group in groups.items():
        ordered = sorted(group, key=lambda p: p.concurrency)
        by, frontier, decision = (gpus or {}).get(series.deployment), of_series.get(series), decided.get(series)
        table = table_of(ordered, frontier, limits, decision, by, whole=whole, verdicts=not below)
        lines: list[RenderableType] = [Text(series.label(), "bold")] if whole or len(groups) > 1 else []
        lines.append(table.drawn(width))
        if frontier and not limits and not below:
            lines.append(Text(no_sla_sentence(ordered, frontier, by)))
        lines += _energy_lines(ordered, limits, whole=whole)
        if whole:
            lines += [*_bound_lines(table, decision), *_details(ordered, frontier, decision, below=below)]
            lines += [Text(clean(note, 400), style="dim") for note in known.get(series, ())]
            lines += _noted_blocks(notes or {}, series)
        blocks.append(to_text(*lines, width=width, colour=colour))
    return "\n\n".join(blocks) or "no points"


def _bound_lines(table: Table, decision: Decision | None) -> list[RenderableType]:
    """The legend of the sign for a percentile without a bound, where a table has one."""
    if not any(NO_BOUND in text for row in table.texts for text in row):
        return []
    decides = decision is not None and decision.concurrency is not None and decision.next_step is None
    return [Text(NO_BOUND_LEGEND + NOT_NEEDED * decides, style="dim")]


def _energy_lines(points: Sequence[Point], limits: Sequence[Limit], *, whole: bool) -> list[RenderableType]:
    """The source of the power behind an energy, where the table has an energy."""
    shown = whole or any(limit.of.needs == "power" for limit in limits)
    power = power_text(p.power for p in points if p.power) if shown else ""
    return [Text(f"energy: {power}", style="dim")] if power else []


def _details(
    points: list[Point], frontier: Frontier | None, decision: Decision | None, *, below: bool
) -> list[RenderableType]:
    """The notes on the points of a series beside their table."""
    lines: list[RenderableType] = []
    if frontier is not None:
        lines += [] if below else [Text(frontier_sentence(frontier), style="dim")]
        lines += [indented(f"not on these axes, {line}") for line in left_out(points, frontier)]
    lines += _flag_lines(points)
    if time := time_line(points, decision.concurrency if decision else None):
        lines.append(Text(f"Where the time goes {time}", style="dim"))
    return lines


def frontier_sentence(frontier: Frontier) -> str:
    """'On the frontier of output throughput against p95 TPOT: c=1, 8, 52', with its axes."""
    axes = " against ".join(metric(name).label.partition(" (")[0] for name in frontier.objectives)
    return f"On the frontier of {axes}: {listed(sorted(frontier.members)) if frontier.members else 'no setting'}."


def _flag_lines(points: Sequence[Point]) -> list[RenderableType]:
    """Every kind of flag with its settings and advice; only the first figures of a flag that just
    warns.
    """
    lines: list[RenderableType] = []
    kinds = flag_kinds(points)
    for kind in kinds:
        text = f"excluded: {kind.text()}" if kind.fatal else f"note: {kind.text(_WARNING_FIGURES)}"
        lines.append(indented(text, "" if kind.fatal else "dim"))
        lines += [indented(kind.advice, "dim", by=4)] if kind.advice else []
    if any(kind.text(_WARNING_FIGURES) != kind.text() for kind in kinds if not kind.fatal):
        lines.append(indented("frontier show --json lists every setting of each flag.", "dim"))
    return lines


def _noted_blocks(notes: Mapping[str, Noted], series: Series) -> list[RenderableType]:
    """The notes of extras on a series, by setting."""
    blocks: list[RenderableType] = []
    for noted in notes.values():
        lines = [Text.assemble((f"{head}: ", "bold"), clean(text, 800)) for head, text in noted.lines.get(series, ())]
        blocks += [Text(f"{noted.title}, {noted.legend}:"), *map(indented, lines)] if lines else []
    return blocks


def time_line(points: Sequence[Point], chosen: int | None) -> str:
    """The time breakdown at the operating point, or else at the highest setting that has one; ''
    without one.
    """
    known = [(p.concurrency, p.time) for p in points if p.valid and p.time is not None]
    if not known:
        return ""
    return time_sentence(*next(((c, time) for c, time in known if c == chosen), known[-1]))


# --- plans


def plan_table(config: "Config", plan: "Plan", *, sent: bool = False, width: int = 80, colour: bool = False) -> str:
    """The trials that a sweep would run; nothing has been sent."""
    groups = by_series(plan.trials)
    begins = "from " if config.auto or config.rate == () else ""  # the others follow from what is found
    several = len({series.deployment for series in groups}) > 1
    names = ["deployment"] * several + ["shape", *{kind_of(t.concurrency) for t in plan.trials}]
    rows = [
        (
            *([clean(series.deployment, 30)] if several else []),
            clean(series.shape.label, 30),
            begins + listed(sorted({t.concurrency for t in trials}), " ").removeprefix("c="),
            str(max(t.repeat for t in trials)),
            "–" if config.auto else f"{len(trials):,}",
            "–" if config.auto else f"{sum(t.requests for t in trials):,}",
        )
        for series, trials in groups.items()
    ]
    heads = (*names, "repeats", "trials", "requests")
    table = Table.of(heads, rows, right=range(len(names), len(heads)), gap=3)
    what = "Concurrencies as the scan finds them" if config.auto else count(len(plan.trials), "trial")
    sentence = f"{what}, about {format_bytes(plan.expected_bytes)} on disk{'' if sent else '; nothing sent'}"
    lines: list[RenderableType] = [table.drawn(width), Text(""), Text(sentence, style="bold")]
    for name, limits in config.tiers:
        tier = f"{clean(name, 30)}: " if len(config.tiers) > 1 else ""
        lines.append(Text(f"SLA  {tier}{limits_text(limits)}"))
    return to_text(*lines, width=width, colour=colour)
