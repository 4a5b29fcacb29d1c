"""Tables of points with notes below them, and the table of a sweep's plan."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from frontier.core.model.loads import NO_LOAD, SessionRate, listed
from frontier.core.model.metrics import RATES, metric
from frontier.core.model.series import Series, by_series
from frontier.core.model.text import clean
from frontier.core.model.units import format_bytes, format_number, format_share
from frontier.show.table import Cell, Column, Table, indented, to_text
from frontier.show.view.costs import power_text
from frontier.show.view.frontier_summary import FrontierSummary
from frontier.show.view.notes import Noted
from frontier.show.view.sentences import frontier_sentence, no_sla_sentence
from frontier.show.view.series_view import SeriesView, SettingView
from frontier.show.view.wording import (
    NO_BOUND,
    NO_BOUND_LEGEND,
    NOT_NEEDED,
    RUN_HERE,
    count,
    flag_kinds,
    has_no_bound,
    left_out,
    limits_text,
    time_line,
    unit_text,
    value_text,
)

if TYPE_CHECKING:
    from frontier.config import Config
    from frontier.planning.plan import Plan

# --- points


def _style(setting: SettingView) -> str:
    """The style of a setting's row: bold for the operating point, dim for one that is excluded or
    not on the axes.
    """
    if setting.sign != "excluded" and setting.chosen:
        return "bold"
    return "" if setting.usable and setting.sign != "excluded" else "dim"


WARNING_FIGURES = 2
"""Most figures that a table lists of a flag that only warns; with all settings it would fill a
page."""
_RANKS = {"p50_ttft": 5, "p50_tpot": 6, "cost": 6, "energy": 6}
"""The order in which columns of metrics without a limit or an axis are left out."""
_OF_CLASSES = ("p99_ttft", "p99_e2e")
"""The metrics that a table shows of each class of requests."""
_USUAL = ("output_throughput", "p50_ttft", "p99_ttft", "p50_tpot", "p99_tpot", "p99_e2e")


def table_of(view: SeriesView, *, whole: bool = True, verdicts: bool = True) -> Table:
    """The settings of a series as a table, a verdict in each row.

    Without `whole` it has only the throughput and the limited metrics, or those of the frontier
    where there are no limits. The columns of the other metrics are left out first where there is no
    room.
    """
    settings, points = view.settings, view.points
    asked, names = _metrics_of(view, whole=whole)
    columns = [_load_column(settings), *_in_flight_column(view)]
    columns += [
        _metric_column(view, name, first=name in asked, whole=whole)
        for name in names
        if any(name in setting.metrics for setting in settings)
    ]
    columns.append(
        Column("n", tuple(Cell(f"{p.n:,}" if p.n else "–", key=p.n or None) for p in points), 3, long="requests")
    )
    columns += _roofline_columns(view) if whole else []
    if not verdicts:
        return Table(tuple(columns))
    cells = tuple(Cell(s.words + RUN_HERE * s.chosen, style=_style(s)) for s in settings)
    return Table((*columns, Column("verdict", cells, left=True, wraps=True)))


def _metrics_of(view: SeriesView, *, whole: bool) -> tuple[list[str], list[str]]:
    """The metrics that a table must show, and all of its columns."""
    axes, points = view.frontier.objectives, view.settings
    of_sessions = any(isinstance(setting.load, SessionRate) for setting in points)
    rates = ["request_throughput", _USUAL[0]] if of_sessions else [_USUAL[0]]
    asked = [*rates, *([limit.metric for limit in view.sla] or axes), "agreement"]  # where it was measured
    if not whole:
        return asked, sorted(dict.fromkeys(asked), key=lambda name: name == "error_rate")
    classes = [f"{group}.{n}" for n in _OF_CLASSES for group in view.series.shape.finest(None)]
    every = [*asked, *axes, *_USUAL, *classes, "cost", "energy"]
    return [*asked, *axes], [*(name for name in dict.fromkeys(every) if name != "error_rate"), "error_rate"]


def _metric_column(view: SeriesView, name: str, *, first: bool, whole: bool) -> Column:
    """The values of a metric, with their intervals where `whole`; an error rate has none. `first`:
    the column is left out last.
    """
    cells = tuple(_metric_cell(setting, name, view, marked=whole) for setting in view.settings)
    if name == "error_rate":
        return Column("errors", cells, 2)
    rank = 5 if metric(name).group else _RANKS.get(name, 4)
    rank = 1 if first else rank
    doubt = "bound" if any(limit.metric == name for limit in view.sla) else "95% CI"
    return Column(_head(name, view.gpus), cells, rank, interval_head=doubt, interval_rank=rank + 5 if whole else None)


def _load_column(settings: Sequence[SettingView]) -> Column:
    """The load of each setting: its concurrency, or its rate."""
    head, long = (settings[0].load if settings else NO_LOAD).column
    return Column(head, tuple(Cell(s.load.bare, key=int(s.load), style=_style(s)) for s in settings), long=long)


def _in_flight_column(view: SeriesView) -> list[Column]:
    """Requests in flight, where the load does not state them."""
    if not any(point.in_flight for point in view.points):
        return []
    cells = tuple(Cell(format_number(point.in_flight), key=point.in_flight) for point in view.points)
    return [Column("in flight", cells, 1, long="requests in flight, mean")]


def _metric_cell(setting: SettingView, name: str, view: SeriesView, *, marked: bool) -> Cell:
    """A value with its interval, or the bound that decides where it is limited; `marked` where it
    has no bound. Rates have their unit in the head; a value beyond its limit is red.
    """
    estimate = setting.metrics.get(name)
    if estimate is None:
        return Cell("–", style="dim")
    text = value_text(name, estimate.value, view.gpus).partition(" " if metric(name).unit in RATES else "\n")[0]
    none = has_no_bound(name, estimate, limited=name in [limit.metric for limit in view.sla])
    return Cell(
        f"{text} {NO_BOUND}" if marked and none else text,
        view.doubt(name, estimate),
        estimate.value if math.isfinite(estimate.value) else 1e300,
        "red" if name in setting.over else "",
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


def _roofline_columns(view: SeriesView) -> list[Column]:
    """The distance from the roofline, where the hardware is described."""
    distances = [point.roofline_distance for point in view.points]
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


def points_table(
    views: Sequence[SeriesView],
    *,
    summaries: Sequence[FrontierSummary] = (),
    notes: Mapping[str, Noted] | None = None,
    whole: bool = True,
    below: bool = False,
    repeats: bool = True,
    width: int = 80,
    colour: bool = False,
) -> str:
    """One table per series.

    With `whole` it shows all metrics, the flags, the time breakdown and the notes on the whole
    series. It has no verdicts and no frontier where it stands `below` an answer that has them, and
    without `repeats` not the columns of the short table either.
    """
    known = {summary.frontier.series: summary.notes for summary in summaries}
    blocks = []
    for view in views:
        table = table_of(view, whole=whole, verdicts=not below)
        table = table if repeats else table.beside(table_of(view, whole=False), width)
        lines: list[RenderableType] = [Text(view.series.label(), "bold")] if whole or len(views) > 1 else []
        lines.append(table.drawn(width))
        if view.frontier.objectives and not view.sla and not below:
            lines.append(Text(no_sla_sentence(view.points, view.frontier, view.gpus)))
        lines += _energy_lines(view, whole=whole)
        if whole:
            lines += [*_bound_lines(table, view), *_details(view, below=below)]
            lines += [Text(clean(note, 400), style="dim") for note in known.get(view.series, ())]
            lines += _noted_blocks(notes or {}, view.series)
        blocks.append(to_text(*lines, width=width, colour=colour))
    return "\n\n".join(blocks) or "no points"


def _bound_lines(table: Table, view: SeriesView) -> list[RenderableType]:
    """The legend of the sign for a percentile without a bound, where a table has one."""
    if not any(NO_BOUND in text for row in table.texts for text in row):
        return []
    decides = view.answer is not None and view.chosen is not None and not any(view.answer.step)
    return [Text(NO_BOUND_LEGEND + NOT_NEEDED * decides, style="dim")]


def _energy_lines(view: SeriesView, *, whole: bool) -> list[RenderableType]:
    """The source of the power behind an energy, where the table has an energy."""
    shown = whole or any(limit.of.needs == "power" for limit in view.sla)
    power = power_text(p.power for p in view.points if p.power) if shown else ""
    return [Text(f"energy: {power}", style="dim")] if power else []


def _details(view: SeriesView, *, below: bool) -> list[RenderableType]:
    """The notes on the points of a series beside their table."""
    lines: list[RenderableType] = []
    if view.frontier.objectives:
        lines += [] if below or not view.sla else [Text(frontier_sentence(view.frontier), style="dim")]
        lines += [indented(f"not on these axes, {line}") for line in left_out(view.points, view.frontier)]
    lines += _flag_lines(view)
    if time := time_line(view.points, view.chosen):
        lines.append(Text(f"Where the time goes {time}", style="dim"))
    return lines


def _flag_lines(view: SeriesView) -> list[RenderableType]:
    """Every kind of flag with its settings and advice; only the first figures of a flag that just
    warns.
    """
    lines: list[RenderableType] = []
    kinds = flag_kinds(view.points)
    for kind in kinds:
        text = f"excluded: {kind.text()}" if kind.fatal else f"note: {kind.text(WARNING_FIGURES)}"
        lines.append(indented(text, "" if kind.fatal else "dim"))
        lines += [indented(kind.advice, "dim", by=4)] if kind.advice else []
    if any(kind.text(WARNING_FIGURES) != kind.text() for kind in kinds if not kind.fatal):
        lines.append(indented("frontier show --json lists every setting of each flag.", "dim"))
    return lines


def _noted_blocks(notes: Mapping[str, Noted], series: Series) -> list[RenderableType]:
    """The notes of extras on a series, by setting."""
    blocks: list[RenderableType] = []
    for noted in notes.values():
        lines = [Text.assemble((f"{head}: ", "bold"), clean(text, 800)) for head, text in noted.lines.get(series, ())]
        blocks += [Text(f"{noted.title}, {noted.legend}:"), *map(indented, lines)] if lines else []
    return blocks


# --- plans


def plan_table(config: "Config", plan: "Plan", *, sent: bool = False, width: int = 80, colour: bool = False) -> str:
    """The trials that a sweep would run; nothing has been sent."""
    groups = by_series(plan.trials)
    begins = "from " if config.auto or config.rate == () else ""  # the others follow from what is found
    several = len({series.deployment for series in groups}) > 1
    names = ["deployment"] * several + ["shape", *{t.load.kind for t in plan.trials}]
    rows = [
        (
            *([clean(series.deployment, 30)] if several else []),
            clean(series.shape.label, 30),
            begins + listed(sorted({t.load for t in trials}), " ").removeprefix("c="),
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
