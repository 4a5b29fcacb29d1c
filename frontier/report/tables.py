"""Points, decisions and plans as text for a terminal, a pipe or a log: at home in 80 columns, fuller in more.

Colour only repeats what a sign or a word says. Text from outside is cleaned and never read as markup.

A frontier as a few lines of text: each setting's concurrency where it lies, for a terminal.
"""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from frontier.decide.frontier_summary import Insight
from frontier.decide.wording import (
    clean,
    decision_notes,
    flag_kinds,
    interval_text,
    left_out,
    limit_value_text,
    limits_text,
    proven_words,
    setting,
    value_text,
)
from frontier.metrics import ENERGY, metric
from frontier.model import Decision, Estimate, Frontier, Limit, Point, Shape, Verdict
from frontier.stats import cost_energy
from frontier.units import format_number, format_seconds, format_share

Gpus = int | Mapping[str, int | None] | None
"""By how many GPUs rates are divided: for all deployments, or for each by name."""

_GAP = 2
_HEADS = {
    Verdict.MEETS: ("met", "green"),
    Verdict.VIOLATES: ("no", "red"),
    Verdict.MARGINAL: ("marginal", "yellow"),
    Verdict.UNPROVEN: ("unproven", "yellow"),
    Verdict.INVALID: ("invalid", "red"),
}
_SIGNS = {
    "chosen": ("★", "bold", "operating point"),
    "frontier": ("●", "blue", "on the frontier"),
    "dominated": ("✕", "dim", "dominated"),
    "flagged": ("○", "dim", "flagged, never chosen"),
    "left out": ("–", "dim", "not on these axes"),
}


def to_text(renderable: RenderableType, *, width: int = 80, colour: bool = False) -> str:
    """What a rich renderable looks like in so many columns; the same everywhere, whatever the environment says."""
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=colour, no_color=not colour, legacy_windows=False, highlight=False,
        markup=False, emoji=False, color_system="standard" if colour else None, _environ={},
        force_jupyter=False,
    )  # fmt: skip
    console.print(renderable)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def gpus_of(gpus: Gpus, deployment: str) -> int | None:
    """The number of GPUs to divide a deployment's rates by."""
    return gpus.get(deployment) if isinstance(gpus, Mapping) else gpus


# --- points


@dataclass(frozen=True, slots=True)
class _Column:
    """One column: lower `rank` is given up later when there is no room."""

    head: str
    cells: tuple[Text, ...]
    rank: int
    left: bool = False

    @property
    def width(self) -> int:
        return max(len(self.head), *(cell.cell_len for cell in self.cells)) + _GAP


def points_table(
    points: Sequence[Point],
    frontiers: Sequence[Frontier],
    limits: Sequence[Limit] = (),
    *,
    decisions: Sequence[Decision] = (),
    insights: Sequence[Insight] = (),
    gpus: Gpus = None,
    width: int = 80,
    colour: bool = False,
) -> str:
    """One table per (deployment, shape), with what is flagged and why below it, and what is known of the whole."""
    told = {(one.frontier.deployment, one.frontier.shape): one.notes for one in insights}
    by_setting = {(f.deployment, f.shape): f for f in frontiers}
    chosen = {(d.deployment, d.shape): d.concurrency for d in decisions}
    groups: dict[tuple[str, Shape], list[Point]] = {}
    for point in points:
        groups.setdefault((point.deployment, point.shape), []).append(point)
    if not groups:
        return "no points"
    blocks: list[RenderableType] = []
    for key, group in groups.items():
        frontier = by_setting.get(key)
        blocks += [Text("")] if blocks else []
        ordered = sorted(group, key=lambda p: p.concurrency)
        blocks += _point_group(ordered, frontier, limits, chosen.get(key), gpus_of(gpus, key[0]), width)
        blocks += [Text(clean(note, 400), style="dim") for note in told.get(key, ())]
    return to_text(Group(*blocks), width=width, colour=colour)


def _point_group(
    points: list[Point], frontier: Frontier | None, limits: Sequence[Limit], chosen: int | None, gpus: int | None,
    width: int,
) -> list[RenderableType]:  # fmt: skip
    shape, deployment = clean(points[0].shape.label, 60), clean(points[0].deployment, 60)
    head = shape if deployment in ("", "default") else f"{deployment} · {shape}"
    promise = f"   SLA {limits_text(limits)}" if limits else ""
    roles = [_role(p, frontier, chosen) for p in points]
    signs = "   ".join(f"{_SIGNS[r][0]} {_SIGNS[r][2]}" for r in _SIGNS if r in roles)
    return [
        Text.assemble((head, "bold"), promise),
        _columns_table(_columns(points, roles, frontier, limits, gpus), width),
        Text(signs, style="dim"),
        *_power_line(points),
        *_left_out_lines(points, frontier),
        *_flag_lines(points),
        *_whole_run_line(points, chosen, gpus),
    ]


def _power_line(points: Sequence[Point]) -> list[RenderableType]:
    """Where the power behind an energy comes from."""
    said = cost_energy.power_text(p.power for p in points if p.power)
    return [Text(f"energy: {said}", style="dim")] if said else []


def _role(point: Point, frontier: Frontier | None, chosen: int | None) -> str:
    if not point.valid:
        return "flagged"
    if point.concurrency == chosen:
        return "chosen"
    if frontier is None or point.concurrency in frontier.excluded:
        return "left out" if frontier else "dominated"
    return "frontier" if point.concurrency in frontier.members else "dominated"


def _columns(
    points: Sequence[Point], roles: Sequence[str], frontier: Frontier | None, limits: Sequence[Limit], gpus: int | None
) -> list[_Column]:
    """Every column that could be shown, in order. The frontier's and the SLA's metrics are given up last."""
    asked = [*(frontier.objectives if frontier else ()), *(limit.metric for limit in limits)]
    usual = ["output_throughput", "p50_ttft", "p99_ttft", "p99_tpot", "p99_e2e"]
    names = [*usual, *(n for n in dict.fromkeys([*asked, "cost", "energy"]) if n not in usual and n != "error_rate")]
    names = [n for n in names if any(n in p.metrics for p in points)]
    styles = [_SIGNS[role][1] for role in roles]
    columns = [
        _Column("", tuple(Text(_SIGNS[role][0], style=_SIGNS[role][1]) for role in roles), 0),
        _Column("c", tuple(Text(str(p.concurrency), style=style) for p, style in zip(points, styles, strict=True)), 0),
        _Column("n", tuple(Text(f"{p.n:,}" if p.n else "–") for p in points), 3),
    ]
    of_limit = {limit.metric: limit for limit in limits}
    for name in names:
        found = [p.metrics.get(name) for p in points]
        rank = 1 if name in asked or name == "output_throughput" else _RANKS.get(name, 4)
        value = _value_cell(name, of_limit.get(name), gpus)
        columns.append(_Column(_head(name, gpus), tuple(value(e) for e in found), rank))
        intervals = [interval_text(name, e, gpus) if e else "" for e in found]
        if any(intervals):
            cells = tuple(Text(text, style="dim") for text in intervals)
            columns.append(_Column("95% CI", cells, rank + 5, left=True))
    rates = [p.metrics.get("error_rate") for p in points]
    if any(rates):
        value = _value_cell("error_rate", of_limit.get("error_rate"), gpus)
        columns.append(_Column("errors", tuple(value(e) for e in rates), 2))
    return [*columns, *_light_columns(points)]


_RANKS = {"p50_ttft": 5, "cost": 6, "energy": 6}
"""Which of the columns nobody asked for go first."""


def _light_columns(points: Sequence[Point]) -> list[_Column]:
    """How far from the speed of light, where the hardware is described."""
    lights = [p.light for p in points]
    if not any(lights):
        return []
    shares = [("of light", 2, [at and at.share for at in lights]), ("MBU", 3, [at and at.mbu for at in lights]),
              ("MFU", 3, [at and at.mfu for at in lights])]  # fmt: skip
    found = [
        _Column(head, tuple(Text(format_share(e.value if e else None)) for e in column), rank)
        for head, rank, column in shares
        if any(column)
    ]
    return [*found, _Column("light bound by", tuple(Text(at.binds if at else "–") for at in lights), 3, left=True)]


def _head(name: str, gpus: int | None) -> str:
    of = metric(name)
    short = {"output_throughput": "tok/s", "total_throughput": "in+out tok/s", "request_throughput": "req/s"}
    if name in ENERGY or name == "cost":
        return name.replace("_", " ")
    if name in short:
        return short[name] + ("/GPU" if gpus else "")
    return of.label.partition(" (")[0]


def _value_cell(name: str, limit: Limit | None, gpus: int | None) -> Callable[[Estimate | None], Text]:
    """A cell of this metric; a value beyond its limit is red."""
    plain_rates = name in ("output_throughput", "total_throughput", "request_throughput")

    def cell(estimate: Estimate | None) -> Text:
        if estimate is None:
            return Text("–", style="dim")
        text = value_text(name, estimate.value, gpus)
        over = limit is not None and (
            estimate.value > limit.promise if metric(name).better == "lower" else estimate.value < limit.promise
        )
        return Text(text.partition(" ")[0] if plain_rates else text, style="red" if over else "")

    return cell


def _columns_table(columns: list[_Column], width: int) -> Table:
    """As many columns as fit, the more important first, shown in their order."""
    kept: list[int] = []
    room = width + _GAP
    for i, column in sorted(enumerate(columns), key=lambda pair: (pair[1].rank, pair[0])):
        is_interval = column.head == "95% CI"
        if column.width <= room and not (is_interval and i - 1 not in kept):
            kept.append(i)
            room -= column.width
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_edge=False, header_style="dim")
    shown = [columns[i] for i in sorted(kept)]
    for column in shown:
        table.add_column(column.head, justify="left" if column.left else "right", no_wrap=True)
    for row in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*row)
    return table


def _left_out_lines(points: Sequence[Point], frontier: Frontier | None) -> list[RenderableType]:
    """Why valid points are not on the frontier, where no flag says it."""
    told = left_out(points, frontier, flagged=False) if frontier else []
    return [Padding(Text(f"– not on these axes, {line}"), (0, 0, 0, 2)) for line in told]


def _flag_lines(points: Sequence[Point]) -> list[RenderableType]:
    """Each kind of flag once, with the settings that have it and what to do."""
    lines: list[RenderableType] = []
    for kind in flag_kinds(points):
        style = "" if kind.fatal else "dim"
        lines.append(Padding(Text(f"{'○' if kind.fatal else '!'} {kind.text()}", style=style), (0, 0, 0, 2)))
        if kind.advice:
            lines.append(Padding(Text(kind.advice, style="dim"), (0, 0, 0, 4)))
    return lines


def _whole_run_line(points: Sequence[Point], chosen: int | None, gpus: int | None) -> list[RenderableType]:
    """Once per table: what the same trial looks like counted over its whole run, ramp and drain included."""
    candidates = [p for p in points if p.whole_run and p.valid]
    if not candidates:
        return []
    point = next((p for p in candidates if p.concurrency == chosen), candidates[-1])
    names = [n for n in ("output_throughput", "p99_ttft") if n in point.whole_run and n in point.metrics]
    if not names:
        return []
    whole = " and ".join(f"{_short(n)} {value_text(n, point.whole_run[n], gpus)}".strip() for n in names)
    return [Text(f"over the whole run, ramp and drain included, {setting(point.concurrency)} has {whole}: what tools "
                 f"without a window would report", style="dim")]  # fmt: skip


def _short(name: str) -> str:
    return "" if name == "output_throughput" else metric(name).label


# --- decisions


def decision_table(decisions: Sequence[Decision], *, gpus: Gpus = None, width: int = 80, colour: bool = False) -> str:
    """Each decision: the verdict, the figures it stands on with interval and limit, and what to know beside."""
    blocks: list[RenderableType] = []
    several = len({d.deployment for d in decisions}) > 1
    for decision in decisions:
        blocks += [Text("")] if blocks else []
        blocks += _decision(decision, gpus_of(gpus, decision.deployment), width, several)
    return to_text(Group(*blocks), width=width, colour=colour) if blocks else "no decision"


def _decision(decision: Decision, gpus: int | None, width: int, several: bool) -> list[RenderableType]:
    word, style = _HEADS[decision.verdict]
    indent, first = 6, max(6, len(word) + 2)
    shape = clean(decision.shape.label, 40)
    where = f"{clean(decision.deployment, 40)} · {shape}" if several else shape
    said = _headline(decision)
    head = Table.grid(padding=(0, 2, 0, 0))
    head.add_column(width=first - 2, no_wrap=True)
    head.add_column(width=max(20, min(width, 96) - first - len(where) - 2))
    head.add_column(justify="right", no_wrap=True)
    head.add_row(Text(word, style=f"bold {style}"), Text(said, style="bold"), Text(where))
    rows = _figures(decision, gpus)
    notes = [Padding(Text(note), (0, 0, 0, indent)) for note in decision_notes(decision)]
    return [head, *([Padding(rows, (0, 0, 0, indent))] if rows else []), *notes]


def _headline(decision: Decision) -> str:
    promise = limits_text(decision.limits)
    if decision.concurrency is not None:
        return f"run at concurrency {decision.concurrency}"
    nearest = f"closest: {setting(decision.candidate)}" if decision.candidate is not None else ""
    if decision.verdict is Verdict.VIOLATES:
        return f"nothing measured keeps {promise}   {nearest}".rstrip()
    if decision.verdict is Verdict.INVALID:
        return "no valid measurement to decide by"
    return f"nothing is proven to keep {promise}   {nearest}".rstrip()


def _figures(decision: Decision, gpus: int | None) -> Table | None:
    """The throughput and every metric of the SLA: value, interval, limit and which binds."""
    of_limit = {limit.metric: limit for limit in decision.limits}
    names = [n for n in dict.fromkeys(["output_throughput", "cost", *of_limit]) if n in decision.metrics]
    if not names:
        return None
    table = Table.grid(padding=(0, 2, 0, 0))
    for justify, fixed in (("left", True), ("right", True), ("left", True), ("left", False)):
        table.add_column(justify="right" if justify == "right" else "left", no_wrap=fixed)
    for name in names:
        estimate = decision.metrics[name]
        doubt = interval_text(name, estimate, gpus) or "interval not known"
        limit = _limit_words(decision, of_limit.get(name))
        label = metric(name).label.partition(" (")[0]
        table.add_row(label, value_text(name, estimate.value, gpus), doubt, limit)
    return table


def _limit_words(decision: Decision, limit: Limit | None) -> str:
    if limit is None:
        return ""
    words = f"limit {limit_value_text(limit.metric, limit.promise)}"
    shown = decision.concurrency or decision.candidate
    judged = next((j for j in decision.judgements if j.concurrency == shown), None)
    verdict = judged.per_metric.get(limit.metric) if judged else None
    if verdict is not None and verdict is not Verdict.MEETS:
        return f"{words}, {'over' if verdict is Verdict.VIOLATES else verdict.value}"
    words += proven_words(decision.metrics.get(limit.metric), limit)
    if judged is None or limit.metric != judged.binding:
        return words
    left = "" if judged.headroom is None or not math.isfinite(judged.headroom) else f", {judged.headroom:.0%} left"
    return f"{words}, binding{left}"


MARGIN = 9
"""Columns left of the plot, for the numbers of the vertical axis."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A setting: a latency in seconds (across, logarithmic) and a rate (upward, from 0). An excluded one is drawn with
    a ring, and beats no other.
    """

    latency: float
    rate: float
    excluded: bool = False


def best_so_far(spots: Mapping[int, Spot]) -> set[int]:
    """The settings that no other beats in both, without the excluded ones."""
    found, most = set(), -math.inf
    spots = {c: spot for c, spot in spots.items() if not spot.excluded}
    for concurrency, spot in sorted(spots.items(), key=lambda item: (item[1].latency, -item[1].rate)):
        if spot.rate > most:
            found.add(concurrency)
            most = spot.rate
    return found


def text_plot(spots: Mapping[int, Spot], *, across: str, up: str, width: int = 60, height: int = 8) -> Text:
    """The settings on a grid of so many columns and rows, those not finite named below it; '' for fewer than two.

    A number that would cover another is drawn as a dot, or not at all where the place itself is taken.
    """
    drawn = {c: s for c, s in spots.items() if math.isfinite(s.rate) and 0 < s.latency < math.inf}
    if len(drawn) < 2:
        return Text("")
    columns = max(20, width - MARGIN - 2)
    least, most = (pick(s.latency for s in drawn.values()) for pick in (min, max))
    top = max(s.rate for s in drawn.values()) or 1.0
    span = math.log(most / least) or 1.0
    grid = [[" "] * columns for _ in range(height)]
    styles = [[""] * columns for _ in range(height)]
    on_it = best_so_far(drawn)
    for concurrency, spot in sorted(
        drawn.items(), key=lambda item: (item[0] not in on_it, item[0] & (item[0] - 1) != 0, item[0])
    ):
        column = round(math.log(spot.latency / least) / span * (columns - 1))
        row = height - 1 - round(max(0.0, spot.rate) / top * (height - 1))
        label = f"{'○' if spot.excluded else ''}{concurrency}"
        start = min(max(0, column - len(label) + 1), columns - len(label))
        if any(ch != " " for ch in grid[row][max(0, start - 1) : start + len(label) + 1]):
            label, start = "·", column
        if grid[row][start] == " ":
            for i, ch in enumerate(label):
                grid[row][start + i] = ch
                styles[row][start + i] = "bold blue" if concurrency in on_it else "dim"
    text = Text(no_wrap=True, overflow="ellipsis")
    for i in range(height):
        number = format_number(top) if i == 0 else "0" if i == height - 1 else ""
        text.append(f"{number:>{MARGIN - 1}} │", style="dim")
        for ch, style in zip(grid[i], styles[i], strict=True):
            text.append(ch, style=style)
        text.append(f" {up}\n" if i == 0 else "\n", style="dim")
    left, right = format_seconds(least), f"{format_seconds(most)}  {across}"
    text.append(" " * MARGIN + "└" + "─" * columns + "\n", style="dim")
    text.append(f"{'':{MARGIN + 1}}{left}{right:>{max(0, columns - len(left))}}", style="dim")
    if beyond := sorted(spots.keys() - drawn.keys()):
        text.append(f"\n{'':{MARGIN + 1}}not on this chart, with no such {across}: ", style="dim")
        text.append(", ".join(f"c={c}" for c in beyond), style="dim")
    return text
