"""The report of a run as data: the decision with its figures and reasons, every point, the quality of the data, how to
reproduce it, what it does not cover. All text is plain and cleaned here; page, Markdown and JSON only dress it.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frontier.decide.capacity import arrival_rate
from frontier.decide.explain import figures
from frontier.decide.sentences import (
    claim_sentence,
    figure_row,
    headline,
    next_step_lines,
    no_sla_sentence,
    production_lines,
    reason_sentences,
    sentence,
)
from frontier.decide.wording import MISSING, NO_BOUND, NO_BOUND_LEGEND, Provenance, clean, count, flag_kinds
from frontier.model import Cause, Decision, Frontier, Limit, Point, Reason, Series, Verdict, by_series
from frontier.plot.data import Roofline, View
from frontier.plot.labels import headline as title_of
from frontier.plot.selection import check_axes, default_axes, rooflines, samples_of
from frontier.report.evidence import Grid, evidence_grids, neighbours_grid
from frontier.report.json_out import Tree, decisions_json, points_json
from frontier.report.tables import SIGNS, Cell, Column, Gpus, gpus_of, point_columns, role_of, whole_run_sentence
from frontier.run import Run
from frontier.stats import cost_energy
from frontier.stats.window import WindowData
from frontier.store.run_dir import RunDirectory

NOT_SAID = (
    (
        "The load was a closed loop: a fixed number of requests in flight, each replaced as soon as it is answered. "
        "Bursts of independent users queue longer at the same average; frontier verify sends Poisson arrivals."
    ),
    (
        "Prompts were synthetic and fresh, so prefix caches were cold. Real prompts may share prefixes, stop early or "
        "draft better under speculative decoding."
    ),
    "One deployment was measured as it stood: no replicas behind a balancer, no autoscaling, no other tenants.",
    "Nothing is claimed between the measured settings: the staircase passes through none of them.",
    "A percentile is over the requests of the windows, not over users, nor over a worse hour that was not measured.",
)
IMPORTED_NOT_SAID = (
    "The figures are another tool's, by its definitions: see the notes under Provenance where they differ from ours.",
    (
        "Aggregates carry no confidence interval: how far a value may be off is not known, and differences between "
        "points may be chance."
    ),
    NOT_SAID[2],
    NOT_SAID[3],
)
"""Of a run made by `frontier import`."""
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

GLOSSARY = (
    ("concurrency, c", "Requests in flight at the same time. Setting: one shape at one concurrency."),
    ("shape", "Input and output length of the requests in tokens: 1024/256."),
    ("TTFT", "Time to first token: from sending a request to its first token."),
    ("TPOT", "Time per output token after the first: (E2E - TTFT) / (tokens - 1)."),
    ("E2E", "End-to-end latency: from sending a request to its last token."),
    ("p99", "The value that 99 of 100 requests stay below; a failed request counts as infinitely slow."),
    ("throughput", "Output tokens per second of all requests together, as they arrived in the window."),
    ("turn", "The time of one request. A stall of the server hits all requests in flight, so turns are what counts."),
    ("window", "The part of a trial that counts: after warm-up, before the load is taken away."),
    ("95% CI", "Two-sided 95% confidence interval."),
    ("at most, at least", "One-sided 95% confidence bound; an SLA is met when the bound keeps its limit."),
    ("SLA", "The latency targets that the operating point must keep."),
    ("operating point", "The setting to run: the bounds of its percentiles keep the SLA, and so does all below it."),
    ("frontier", "The settings that no other beats in both throughput and latency; the others are dominated."),
    ("excluded", "A setting whose measurement means nothing, with the flag that says why; it is never chosen."),
    ("roofline", "The throughput that the hardware allows at most. MBU, MFU: shares of its bandwidth and arithmetic."),
)  # fmt: skip
"""Definitions, so that the page reads alone."""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a page is made of. `config_text` and `commands` say how to reproduce it.

    `lights` and `bands` are drawn where a series has one; see `Roofline` and `View`. `skipped` says why a trial was not
    run, by its key. `samples` holds the windows by concurrency, for distributions and evidence; without them the page
    has less. `unfinished` says that a part of the run is not measured, `standing` is the same for machines.
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
    lights: Mapping[Any, Roofline] = field(default_factory=dict)
    bands: Mapping[Any, Sequence[tuple[float, float, float]]] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    samples: Mapping[Any, Mapping[int, WindowData]] = field(default_factory=dict)
    checks: str = CHECKS
    unfinished: str = ""
    standing: Mapping[str, Any] | None = None

    def views(self) -> list[View]:
        """One per frontier, for the picture."""
        decided = {decision.series: decision for decision in self.decisions}
        return [
            View(
                self.points, frontier, decided.get(series), self.limits, self.lights.get(series),
                gpus_of(self.gpus, frontier.deployment), band=self.bands.get(series, ()),
            )
            for frontier in self.frontiers for series in [frontier.series]
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Section:
    """One series: its decision with figures and reasons, and the columns of its points with each point's role. `step`
    is what would decide a better setting, and the command.
    """

    name: str
    verdict: str | None
    step: tuple[str, str]
    figures: tuple[tuple[str, str, str, str, str], ...]
    legend: str
    why: tuple[tuple[str, str], ...]
    production: tuple[str, ...]
    notes: tuple[str, ...]
    columns: tuple[Column, ...]
    roles: tuple[str, ...]
    concurrencies: tuple[int, ...]
    neighbours: Grid | None = None
    evidence: tuple[Grid, ...] = ()

    @property
    def rows(self) -> list[tuple[int, str, list[Cell]]]:
        """The points in order: concurrency, role, and one cell per column."""
        cells = zip(*(column.cells for column in self.columns), strict=True)
        return [(c, role, list(row)) for c, role, row in zip(self.concurrencies, self.roles, cells, strict=True)]

    @property
    def heads(self) -> list[str]:
        """The heads of the columns."""
        return [column.long or column.head for column in self.columns]


@dataclass(frozen=True, slots=True)
class Page:
    """All text of a report, plain and cleaned."""

    title: str
    sections: tuple[Section, ...]
    health: tuple[str, ...]
    provenance: tuple[tuple[str, str], ...]
    commands: tuple[str, ...]
    config_text: str | None
    not_said: tuple[str, ...]
    unfinished: str = ""
    glossary: tuple[tuple[str, str], ...] = GLOSSARY


KEY = ", ".join(f"{sign} {meaning}" for sign, _, meaning in SIGNS.values()) + f". Brackets: 95% CI. {NO_BOUND_LEGEND}."


def report_of(
    run: Run, limits: Sequence[Limit], objectives: tuple[str, str] | None = None, options: Sequence[str] = ()
) -> Report:
    """Everything a page or a picture of the run is made of; `options` are those it was asked for with."""
    decisions = run.solve(limits) if limits else ()
    axes = objectives or default_axes(run.config, decisions)
    points = run.points(limits, names=axes)
    check_axes(points, objectives or (), str(run.path))
    uncertainties = run.uncertainties(axes)
    frontiers = run.frontiers(points, axes, uncertainties)
    checks = CHECKS if not run.is_imported else IMPORTED_REQUEST_CHECKS if run.histories else IMPORTED_CHECKS
    return Report(
        points=points,
        frontiers=frontiers,
        decisions=decisions,
        limits=limits,
        provenance=provenance_of(run),
        gpus=run.gpus,
        config_text=None if run.is_imported else RunDirectory.read(run.path).config_text(),
        commands=(_made_by(run), shlex.join(["frontier", "report", str(run.path), *options])),
        not_said=IMPORTED_NOT_SAID if run.is_imported else NOT_SAID,
        lights=rooflines(run.config, points, frontiers),
        bands={series: known.band_steps for series, known in uncertainties.items()},
        skipped=run.skipped,
        samples=samples_of(run),
        checks=checks,
        unfinished=run.unfinished,
        standing=run.standing.tree() if run.standing is not None else None,
    )


def _made_by(run: Run) -> str:
    """The command that made the run."""
    if not run.is_imported:
        return f"frontier sweep {run.manifest.get('config_file', 'sweep.yaml')}"
    files = [shlex.quote(str(source["file"])) for source in run.manifest["imported"]["sources"]]
    more = f" ... ({len(files)} files)" if len(files) > 3 else ""
    return f"frontier import {' '.join(files[:3])}{more} -o {run.path}"


def provenance_of(run: Run) -> Provenance:
    """Where the numbers come from. The loads of an import are not known to have been closed loops."""
    tool = f"frontier {run.manifest.get('frontier', '')}".strip()
    deployments = run.config.deployments
    if run.is_imported:
        imported = run.manifest["imported"]
        shown = {p.deployment for p in run.imported} | {deployment for deployment, _ in run.histories}
        formats = ", ".join(dict.fromkeys(str(source["format"]) for source in imported["sources"]))
        models = dict.fromkeys(d.model for d in deployments if d.model and d.name in shown)
        return Provenance(
            run=run.path.name, model=", ".join(models) or None, loop=None, tool=tool,
            remark=f"imported from {formats}", notes=tuple(map(str, imported["notes"])),
        )  # fmt: skip
    servers = [line for line in RunDirectory.read(run.path).journal_lines() if line["event"] == "server"]
    measured = {d.model for d in deployments if d.model} | {str(s["model"]) for s in servers if "model" in s}
    return Provenance(
        run=run.path.name, model=", ".join(sorted(measured)) or None,
        server=str(servers[-1]["identity"]) if servers else None, tool=tool,
        remark=(run.standing.brief if run.standing else "") or None,
    )  # fmt: skip


def page_of(report: Report) -> Page:
    """The text of a report. ValueError without a frontier."""
    decided = {decision.series: decision for decision in report.decisions}
    groups = by_series(report.points)
    sections = []
    for frontier in report.frontiers:
        mine = sorted(groups.get(frontier.series, []), key=lambda p: p.concurrency)
        sections.append(_section(mine, frontier, decided.get(frontier.series), report))
    return Page(
        title_of(report.views()), tuple(sections),
        (*_health(groups, report), *skipped_lines(report.skipped)), _provenance(report),
        tuple(clean(command, 400) for command in report.commands), _config_cleaned(report.config_text),
        tuple(report.not_said), clean(report.unfinished, 1000),
    )  # fmt: skip


def _section(points: list[Point], frontier: Frontier, decision: Decision | None, report: Report) -> Section:
    """The section of one series."""
    gpus = gpus_of(report.gpus, frontier.deployment)
    chosen = decision.concurrency if decision else None
    rows = tuple(figure_row(figure, gpus) for figure in figures(decision)) if decision else ()
    sides = _sides(decision) if decision else {}
    arrivals = arrival_rate(points, chosen) if chosen is not None else None
    return Section(
        name=frontier.series.label(),
        verdict=f"{headline(decision, gpus)}." if decision else None,
        step=next_step_lines(decision) if decision else ("", ""),
        figures=rows,
        legend=NO_BOUND_LEGEND if any(NO_BOUND in cell for row in rows for cell in row) else "",
        why=(
            *((question, sentence(reason)) for question, reason in sides.items()),
            *([("How long it was measured", claim)] if decision and (claim := claim_sentence(decision)) else []),
        ),
        production=tuple(production_lines(decision, arrivals)) if decision else (),
        notes=tuple(reason_sentences(decision, tuple(sides.values()))) if decision
        else () if report.limits else (no_sla_sentence(points, frontier, gpus),),
        columns=tuple(point_columns(points, frontier, report.limits, chosen, gpus)),
        roles=tuple(role_of(point, frontier, chosen) for point in points),
        concurrencies=tuple(point.concurrency for point in points),
        neighbours=neighbours_grid(decision) if decision else None,
        evidence=tuple(evidence_grids(report.samples.get(frontier.series, {}))),
    )  # fmt: skip


def _sides(decision: Decision) -> dict[str, Reason]:
    """Why not more and why not less, where there is an operating point: the next judged settings on both sides."""
    chosen = decision.concurrency
    unjudged = (Cause.NOT_JUDGED, Cause.SCANNED)
    judged = [reason for reason in decision.explanation.settings if reason.cause not in unjudged]
    if chosen is None or not judged:
        return {}
    above = [reason for reason in judged if reason.settings[0] > chosen]
    below = [reason for reason in judged if reason.settings[0] < chosen]
    return {
        "Why not more": above[0] if above else Reason(Cause.HIGHEST_MEASURED, (chosen,)),
        "Why not less": below[-1] if below else Reason(Cause.LOWEST_MEASURED, (chosen,), verdict=Verdict.MEETS),
    }


def _health(groups: Mapping[Series, Sequence[Point]], report: Report) -> list[str]:
    """What was checked, and every flag with its effect."""
    points = report.points
    lines = [f"{sum(p.valid for p in points)} of {count(len(points), 'point')} valid. Checked: {report.checks}."]
    for series, group in groups.items():
        for kind in flag_kinds(group):
            head = f"{series.label()}: " if len(groups) > 1 else ""
            kept = "not on these axes" if kind.name == MISSING.replace("_", " ") else "warning, the point is kept"
            effect = "excluded" if kind.fatal else kept
            lines.append(f"{head}{kind.text()} ({effect}). {kind.advice[:1].upper()}{kind.advice[1:]}".strip())
    if not any(p.flags for p in points):
        lines.append("No flag was raised.")
    whole = whole_run_sentence(points, None)
    return [*lines, whole] if whole else lines


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
    """Name and text of everything that is known of where the numbers come from."""
    known = report.provenance
    power = cost_energy.power_text(p.power for p in report.points if p.power).removeprefix("power ")
    pairs: list[tuple[str, str | None]] = [
        ("run", known.run), ("model", known.model), ("server", known.server), ("hardware", known.hardware),
        ("power", power), ("load", known.loop), ("measured", known.created), ("tool", known.tool),
        ("remark", known.remark), *(("note", note) for note in known.notes),
    ]  # fmt: skip
    return tuple((name, clean(text, 300)) for name, text in pairs if text)


def _config_cleaned(text: str | None) -> str | None:
    """The config, cleaned line by line, indentation kept."""
    if text is None:
        return None
    lines = [re.match(r" *", line)[0] + clean(line, 1000) for line in text.splitlines()]  # type: ignore[index]
    return "\n".join(lines)


REPORT_SCHEMA = "frontier.report/1"


def report_json(report: Report) -> Tree:
    """`frontier report -o FILE.json`: the answers of `solve --json` and `show --json` with what surrounds them."""
    page = page_of(report)
    return {
        "schema": REPORT_SCHEMA,
        "title": page.title,
        "unfinished": report.standing,
        "solve": decisions_json(report.decisions),
        "show": points_json(report.points, report.frontiers),
        "sections": [
            {
                "name": section.name,
                "verdict": section.verdict,
                "notes": list(section.notes),
                "neighbours": section.neighbours.as_json() if section.neighbours else [],
                "evidence": [{"caption": grid.caption, "rows": grid.as_json()} for grid in section.evidence],
            }
            for section in page.sections
        ],
        "health": list(page.health),
        "provenance": dict(page.provenance),
        "commands": list(page.commands),
        "config": page.config_text,
        "not_said": list(page.not_said),
    }
