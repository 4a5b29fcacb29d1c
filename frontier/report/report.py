"""The run as one page: the sentence, the picture, the points, the health of the data, how to reproduce it, and what it
does not say. What is said is put together here as plain text, once; Markdown and HTML only dress it.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frontier.decide.wording import (
    MISSING,
    Provenance,
    clean,
    count,
    decision_notes,
    flag_kinds,
    interval_text,
    limit_value_text,
    limits_text,
    proven_words,
    setting,
    unit_text,
    value_text,
)
from frontier.metrics import ENERGY, RATES, metric
from frontier.model import Decision, Estimate, Frontier, Limit, Point, Shape, Verdict
from frontier.plot.data import Roofline, View
from frontier.plot.labels import headline
from frontier.report.report_tables import Grid, evidence_grids, neighbours_grid
from frontier.report.tables import Gpus, gpus_of
from frontier.stats import cost_energy
from frontier.stats.window_data import Sample
from frontier.units import format_share

NOT_SAID = (
    (
        "The load was a closed loop: a fixed number of callers, each sending again as soon as it is answered. Bursts "
        "of independent users queue longer at the same average; frontier verify sends Poisson arrivals."
    ),
    (
        "Prompts were synthetic and fresh, so prefix caches were cold. Real prompts may share prefixes, stop early or "
        "draft better under speculative decoding."
    ),
    "One deployment was measured as it stood: no replicas behind a balancer, no autoscaling, no other tenants.",
    "Between the settings that were measured nothing is claimed: the staircase passes through none of them.",
    "A percentile is over the requests of the windows, not over users, nor over a worse hour that was not measured.",
)
IMPORTED_NOT_SAID = (
    "The figures are another tool's, by its definitions: see the notes under Provenance where they differ from ours.",
    (
        "Aggregates carry no interval: how far a value may be off is not known, and differences between points may be "
        "chance."
    ),
    NOT_SAID[2],
    NOT_SAID[3],
)
"""Of a run made by `frontier import`."""
KEY = "★ operating point, ● on the frontier (bold), ✕ dominated, ○ flagged and never chosen. Brackets: 95% interval."
CHECKS = (
    "errors, short outputs, wrong input lengths, cached prompts, a busy client, buffered streams, lockstep, drift, "
    "missing concurrency, a lost or changed server"
)
IMPORTED_CHECKS = (
    "as far as the files state them, that the figures of a point agree with each other (E2E with TTFT and TPOT; "
    "latency with throughput and concurrency), that the offered rate was reached, and what the files themselves call "
    "wrong. Not checked, as an aggregate cannot show it: whether the client was busy, prompts were cached, the load "
    "was held or drifted"
)
"""Of aggregates made by another tool."""
IMPORTED_REQUEST_CHECKS = (
    "errors, short outputs, wrong input lengths, lockstep, drift and missing concurrency, from the requests in the "
    "files. Not checked, as the files do not tell: whether the client was busy, prompts were cached, the server changed"
)
"""Of another tool's requests, analysed as our own."""


Setting = tuple[str, Shape]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a page is made of. `config_text` and `commands` say how to do it again.

    `lights` and `bands` are drawn where a (deployment, shape) has one; see `Roofline` and `View`. `skipped` says why a
    trial was not run, by its key. `samples` holds the windows by concurrency, for distributions and for what was
    watched; without them the page says less. `unfinished` says that a part of the run is not measured, `standing` is
    the same for machines.
    """

    points: Sequence[Point]
    frontiers: Sequence[Frontier]
    decisions: Sequence[Decision] = ()
    limits: Sequence[Limit] = ()
    provenance: Provenance = field(default_factory=Provenance)
    gpus: Gpus = None
    config_text: str | None = None
    commands: Sequence[str] = ()
    not_said: Sequence[str] = NOT_SAID
    lights: Mapping[Setting, Roofline] = field(default_factory=dict)
    bands: Mapping[Setting, Sequence[tuple[float, float, float]]] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    samples: Mapping[Setting, Mapping[int, Sample]] = field(default_factory=dict)
    checks: str = CHECKS
    unfinished: str = ""
    standing: Mapping[str, Any] | None = None

    def views(self) -> list[View]:
        """One per frontier, for the picture."""
        decided = {(d.deployment, d.shape): d for d in self.decisions}
        found = []
        for frontier in self.frontiers:
            of = (frontier.deployment, frontier.shape)
            gpus = gpus_of(self.gpus, frontier.deployment)
            light, band = self.lights.get(of), self.bands.get(of, ())
            found.append(View(self.points, frontier, decided.get(of), self.limits, light, gpus, band=band))
        return found


@dataclass(frozen=True, slots=True)
class Cell:
    """A value and its interval, which may be empty; `key` is the number a table is sorted by."""

    value: str
    interval: str = ""
    key: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One setting: its sign, whether to set it bold, and its cells."""

    concurrency: int
    sign: str
    strong: bool
    flagged: bool
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """One (deployment, shape): the verdict with its figures, and the table."""

    name: str
    verdict: str | None
    figures: tuple[tuple[str, str, str, str], ...]
    notes: tuple[str, ...]
    heads: tuple[str, ...]
    rows: tuple[Row, ...]
    neighbours: Grid | None = None
    evidence: tuple[Grid, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """All that is said, as plain text without markup, cleaned."""

    title: str
    sections: tuple[Section, ...]
    health: tuple[str, ...]
    provenance: tuple[tuple[str, str], ...]
    commands: tuple[str, ...]
    config_text: str | None
    not_said: tuple[str, ...]
    unfinished: str = ""


def page_of(report: Report) -> Page:
    """What the page says. ValueError without a frontier."""
    decided = {(d.deployment, d.shape): d for d in report.decisions}
    sections = []
    for frontier in report.frontiers:
        mine = [p for p in report.points if (p.deployment, p.shape) == (frontier.deployment, frontier.shape)]
        decision = decided.get((frontier.deployment, frontier.shape))
        sections.append(_section(sorted(mine, key=lambda p: p.concurrency), frontier, decision, report))
    health = (*_health(report.points, report.checks), *skipped_lines(report.skipped))
    return Page(
        headline(report.views()), tuple(sections), health, _provenance(report),
        tuple(clean(command, 400) for command in report.commands), _lines_cleaned(report.config_text),
        tuple(report.not_said), clean(report.unfinished, 1000),
    )  # fmt: skip


def _section(points: list[Point], frontier: Frontier, decision: Decision | None, report: Report) -> Section:
    gpus = gpus_of(report.gpus, frontier.deployment)
    names = _columns(points, frontier, report.limits)
    lit = any(point.light for point in points)
    heads = ("", "concurrency", "requests", *(_head(name, gpus) for name in names), "errors", *(_LIT if lit else ()))
    rows = tuple(_row(point, frontier, decision, names, gpus, lit=lit) for point in points)
    return Section(
        _name(frontier.deployment, frontier.shape), _verdict(decision), _figures(decision, gpus),
        tuple(decision_notes(decision)) if decision else (), heads, rows,
        neighbours_grid(decision, points) if decision else None,
        tuple(evidence_grids(report.samples.get((frontier.deployment, frontier.shape), {}))),
    )  # fmt: skip


def _name(deployment: str, shape: Shape) -> str:
    label = clean(shape.label, 60)
    return label if deployment in ("", "default") else f"{clean(deployment, 60)} · {label}"


def _columns(points: Sequence[Point], frontier: Frontier, limits: Sequence[Limit]) -> list[str]:
    usual = ["output_throughput", "p50_ttft", "p99_ttft", "p50_tpot", "p99_tpot", "p99_e2e"]
    asked = [*frontier.objectives, *(limit.metric for limit in limits)]
    names = dict.fromkeys([*usual, *asked, "cost", "energy"])
    return [n for n in names if n != "error_rate" and any(n in p.metrics for p in points)]


def _head(name: str, gpus: int | None) -> str:
    """The column of a metric; rates carry their unit here rather than in every cell."""
    label = metric(name).label.partition(" (")[0]
    if name in ENERGY or name == "cost":
        return name.replace("_", " ")
    if metric(name).unit in RATES:
        return f"{label.removesuffix(' throughput')} {unit_text(name, gpus)}"
    return label


def _row(
    point: Point, frontier: Frontier, decision: Decision | None, names: Sequence[str], gpus: int | None, *, lit: bool
) -> Row:
    chosen = decision is not None and decision.concurrency == point.concurrency
    absent = point.valid and point.concurrency in frontier.excluded
    flagged = not point.valid or absent
    on_it = point.concurrency in frontier.members
    sign = "★" if chosen else "–" if absent else "○" if flagged else "●" if on_it else "✕"
    cells = [_cell(name, point.metrics.get(name), gpus) for name in names]
    errors = _cell("error_rate", point.metrics.get("error_rate"), None)
    return Row(
        point.concurrency, sign, on_it and not flagged, flagged,
        (Cell(f"{point.concurrency}", key=point.concurrency),
         Cell(f"{point.n:,}" if point.n else "–", key=point.n or None), *cells,
         Cell(errors.value, key=errors.key), *(_lit(point) if lit else ())),
    )  # fmt: skip


_LIT = ("of light", "MBU", "MFU", "light bound by")


def _lit(point: Point) -> tuple[Cell, ...]:
    """How far from the speed of light."""
    at = point.light
    if at is None:
        return (Cell("–"),) * len(_LIT)
    shares = (at.share, at.mbu, at.mfu)
    return (*(Cell(format_share(e.value if e else None)) for e in shares), Cell(at.binds))


def _cell(name: str, estimate: Estimate | None, gpus: int | None) -> Cell:
    if estimate is None:
        return Cell("–")
    text = value_text(name, estimate.value, gpus)
    bare = text.partition(" ")[0] if metric(name).unit in RATES else text
    return Cell(bare, interval_text(name, estimate, gpus), estimate.value if math.isfinite(estimate.value) else 1e300)


def _verdict(decision: Decision | None) -> str | None:
    if decision is None:
        return None
    promise = limits_text(decision.limits)
    if decision.concurrency is not None:
        return f"Met: run at concurrency {decision.concurrency} ({promise})."
    nearest = f" The closest is {setting(decision.candidate)}." if decision.candidate is not None else ""
    if decision.verdict is Verdict.VIOLATES:
        return f"No: nothing measured keeps {promise}.{nearest}"
    if decision.verdict is Verdict.INVALID:
        return "Not valid: every point that could have answered is flagged."
    return f"Not proven: no setting is shown to keep {promise}.{nearest}"


def _figures(decision: Decision | None, gpus: int | None) -> tuple[tuple[str, str, str, str], ...]:
    """Name, value, interval, limit of the throughput and each metric of the SLA."""
    if decision is None:
        return ()
    of_limit = {limit.metric: limit for limit in decision.limits}
    found = []
    for name in dict.fromkeys(["output_throughput", *of_limit]):
        if (estimate := decision.metrics.get(name)) is None:
            continue
        limit = of_limit.get(name)
        words = ""
        if limit is not None:
            words = f"limit {limit_value_text(name, limit.promise)}{proven_words(estimate, limit)}"
            words += ", binding" if name == decision.binding else ""
        doubt = interval_text(name, estimate, gpus) or "interval not known"
        found.append((metric(name).label.partition(" (")[0], value_text(name, estimate.value, gpus), doubt, words))
    return tuple(found)


def _health(points: Sequence[Point], checks: str) -> list[str]:
    """What was checked and what was found."""
    lines = []
    valid = sum(p.valid for p in points)
    lines.append(f"{valid} of {count(len(points), 'point')} valid. Checked: {checks}.")
    several = len({(p.deployment, p.shape) for p in points}) > 1
    groups: dict[tuple[str, Shape], list[Point]] = {}
    for point in points:
        groups.setdefault((point.deployment, point.shape), []).append(point)
    for (deployment, shape), group in groups.items():
        for kind in flag_kinds(group):
            head = f"{_name(deployment, shape)}: " if several else ""
            noted = "not on these axes" if kind.name == MISSING.replace("_", " ") else "noted, still counts"
            effect = "flagged, never chosen" if kind.fatal else noted
            lines.append(f"{head}{kind.text()} ({effect}). {kind.advice[:1].upper()}{kind.advice[1:]}".strip())
    if not any(p.flags for p in points):
        lines.append("No flag was raised.")
    whole = [p for p in points if "output_throughput" in p.whole_run and "output_throughput" in p.metrics]
    if whole:
        point = max(whole, key=lambda p: p.concurrency)
        said = value_text("output_throughput", point.whole_run["output_throughput"])
        inside = value_text("output_throughput", point.metrics["output_throughput"].value)
        lines.append(
            f"Counted over the whole run, ramp and drain included, {setting(point.concurrency)} would read {said} "
            f"instead of {inside}: expect that difference to tools without a window."
        )
    return lines


def skipped_lines(skipped: Mapping[str, str]) -> list[str]:
    """What was planned and not measured, one line per reason."""
    reasons: dict[str, list[str]] = {}
    for key, reason in skipped.items():
        reasons.setdefault(reason, []).append(key)
    return [
        f"Not measured: {', '.join(clean(key, 80) for key in keys[:6])}"
        + (f" and {len(keys) - 6} more" if len(keys) > 6 else "")
        + f" ({clean(reason, 300)})."
        for reason, keys in reasons.items()
    ]


def _provenance(report: Report) -> tuple[tuple[str, str], ...]:
    known = report.provenance
    power = cost_energy.said(p.power for p in report.points if p.power).removeprefix("power ")
    pairs: tuple[tuple[str, str | None], ...] = (
        ("run", known.run), ("model", known.model), ("server", known.server), ("hardware", known.hardware),
        ("power", power), ("load", known.loop), ("measured", known.created), ("tool", known.tool),
        ("remark", known.remark),
    )  # fmt: skip
    pairs += tuple(("note", note) for note in known.notes)
    return tuple((name, clean(text, 300)) for name, text in pairs if text)


def _lines_cleaned(text: str | None) -> str | None:
    """The config, line by line, indentation kept."""
    if text is None:
        return None
    lines = [re.match(r" *", line)[0] + clean(line, 1000) for line in text.splitlines()]  # type: ignore[index]
    return "\n".join(lines)
