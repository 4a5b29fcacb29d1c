"""The report of a run as data. All text is plain and cleaned here; page, Markdown and JSON only lay
it out.

- the decision with its figures and reasons, and every point
- the evidence of client, server and GPUs, and the quality of the data
- how to reproduce it, and what it does not cover
"""

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frontier import registry
from frontier.client.secrets import masked
from frontier.core.model.decisions import Limit
from frontier.core.model.loads import Load
from frontier.core.model.text import capital, clean
from frontier.core.window.window import WindowData
from frontier.extras.present.evidence_tables import cost_tables, evidence_tables, time_tables
from frontier.extras.present.neighbours import HEADS, neighbours
from frontier.extras.present.review import SIMULATED, Review, made_by, portable, review_of, unowned
from frontier.extras.present.speeds import Speeds, speeds_of
from frontier.run import Run
from frontier.show.picture.data import Picture
from frontier.show.picture.labels import answer_rows, panel_names, view_name
from frontier.show.picture.labels import headline as title_of
from frontier.show.table import Table
from frontier.show.tables import WARNING_FIGURES, table_of
from frontier.show.view.costs import power_text
from frontier.show.view.figures import Figure
from frontier.show.view.json_out import Tree
from frontier.show.view.notes import Noted, notes_of
from frontier.show.view.selection import provenance_of, samples_of, views_of
from frontier.show.view.sentences import frontier_sentence, no_sla_sentence
from frontier.show.view.series_view import SeriesView, changed
from frontier.show.view.wording import (
    NO_BOUND,
    NO_BOUND_LEGEND,
    Provenance,
    count,
    deciding_bound,
    flag_kinds,
    time_line,
)
from frontier.store.journal import VIRTUAL
from frontier.store.run_dir import RunDirectory

_OF_LOADS = {
    (False, False): (
        "The load was a closed loop: a fixed number of requests in flight, each replaced as soon as it is answered. "
        "Bursts of independent users queue longer at the same average; frontier verify sends Poisson arrivals."
    ),
    (False, True): (
        "The concurrency counts open sessions, each begun as soon as one was over, with think times drawn at random."
    ),
    (True, False): (
        "The load was an open loop: requests arrived at random at a stated rate, and latency counts from each arrival. "
        "Real arrivals come in heavier bursts, and their rate changes by the hour."
    ),
    (True, True): (
        "The load was an open loop: sessions began at random at a stated rate, with think times drawn at random. "
        "Latency counts from the arrival, of later turns from the end of thinking. Real arrivals come in heavier "
        "bursts."
    ),
}
"""What the report does not cover about the load, by whether it is an open loop and whether all
shapes are sessions."""
_OF_PROMPTS = {
    False: (
        "Prompts were made up and fresh, so prefix caches were cold. Real prompts may share prefixes, stop early or "
        "draft better under speculative decoding."
    ),
    True: (
        "Prompts were synthetic and fresh for each session; its history held the model's own answers. Real sessions "
        "vary."
    ),
}
"""What it does not cover about prompts, by whether all shapes are sessions."""
_OF_ALL = (
    "One deployment was measured as it stood: no replicas behind a balancer, no autoscaling, no other tenants.",
    "Between the measured settings nothing was measured: the staircase only joins them.",
    "A percentile is over the requests of the windows, not over users, nor over a worse hour that was not measured.",
)
NOT_SAID = (_OF_LOADS[False, False], _OF_PROMPTS[False], *_OF_ALL)
IMPORTED_NOT_SAID = (
    "The figures are another tool's, by its definitions: see the notes under Provenance where they differ from ours.",
    (
        "Aggregates carry no confidence interval: how far a value may be off is not known, and differences between "
        "points may be chance."
    ),
    *_OF_ALL[:2],
)
"""What the report of an imported run does not cover."""
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


def _not_said(run: Run) -> tuple[str, ...]:
    if run.is_imported:
        return IMPORTED_NOT_SAID
    sessions = all(shape.has_sessions for shape in run.config.shapes)
    return (_OF_LOADS[run.config.open_loop, sessions], _OF_PROMPTS[sessions], *_OF_ALL)


GLOSSARY = (
    ("concurrency, c", "Requests in flight at the same time. Setting: one shape at one concurrency."),
    ("shape", "Input and output length of the requests in tokens: 1024/256."),
    ("TTFT", "Time to first token: from sending a request to its first token."),
    ("TPOT", "Time per output token after the first chunk: (E2E - TTFT) / (tokens after it)."),
    ("E2E", "End-to-end latency: from sending a request to its last token."),
    ("p99", "The value that 99 of 100 requests stay below; a failed request counts as infinitely slow."),
    ("throughput", "Output tokens per second of all requests together, as they arrived in the window."),
    ("window", "The part of a trial that counts: after warm-up, before the load is taken away."),
    ("95% CI", "Two-sided 95% confidence interval."),
    (
        "at most, at least",
        (
            "One-sided bound with its confidence: 95%, or more where several judgements share the error of 5%, so that "
            "it may lie outside the 95% CI. An SLA is met when the bound keeps its limit."
        ),
    ),
    ("SLA", "The latency targets that the operating point must keep."),
    ("operating point", "The setting to run: the best one that is proven to keep the SLA."),
    ("frontier", "The settings that no other beats in both throughput and latency; the others are dominated."),
    ("excluded", "A setting whose measurement means nothing, with the flag that says why; it is never chosen."),
    ("bottleneck", "The resource that sets the latency; in brackets how often such evidence was right in simulations."),
    ("roofline", "The throughput that the hardware allows at most. MBU, MFU: shares of its bandwidth and arithmetic."),
)
"""Definitions, so that the page needs no other page."""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a page is made of.

    - `config_text`, `commands`: how to reproduce it.
    - `views`: one per frontier, with its points and decision.
    - `samples`: the windows by concurrency, for distributions and evidence; without them the page
      has less.
    - `notes`: the notes of extras on its series.
    - `review`: what a reviewer asks first; `speeds`: the throughput by the speed of each user;
      `before`: the values of a knob, and the figures of a baseline beside its own.
    - `pictures`: the frontiers as `plot` draws them, then those on further axes.
    - `unfinished`: a sentence that a part of the run is not measured; `standing` is the same for
      machines.
    """

    views: Sequence[SeriesView]
    provenance: Provenance = field(default_factory=Provenance)
    config_text: str | None = None
    commands: Sequence[str] = ()
    not_said: Sequence[str] = NOT_SAID
    samples: Mapping[Any, Mapping[Load, WindowData]] = field(default_factory=dict)
    checks: str = CHECKS
    unfinished: str = ""
    standing: Mapping[str, Any] | None = None
    pooled: Sequence[tuple[Table, Tree]] = ()
    notes: Mapping[str, Noted] = field(default_factory=dict)
    review: Review = field(default_factory=Review)
    speeds: Speeds | None = None
    before: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()


FIGURE_HEADS = ("metric", "value", "bound", "limit", "headroom")


def report_of(
    run: Run, limits: Sequence[Limit], objectives: tuple[str, ...] | None = None, options: Sequence[str] = ()
) -> Report:
    """Everything that a page of the run is made of; `options` are those of the command."""
    checks, pooled_of = CHECKS, registry.POOLED.find()
    if run.is_imported:
        checks = IMPORTED_REQUEST_CHECKS if run.histories else IMPORTED_CHECKS
    views = views_of(run, limits, objectives)
    decisions = [view.decision for view in views if view.decision]
    rates = run.arrival_rates(decisions)
    views = [changed(view, arrivals=rates.get(view.series)) for view in views]
    provenance = provenance_of(run)
    knob = registry.KNOB.find() if any(d.apply for d in run.config.deployments) else None
    turned = knob.result(run) if knob else []
    return Report(
        views=views,
        pooled=pooled_of([run], objectives, limits) if pooled_of and objectives else (),
        provenance=provenance,
        config_text=None if run.is_imported else RunDirectory.read(run.path).config_text(),
        commands=(
            _made_by(run, provenance),
            shlex.join(["frontier", "report", portable(run.path), *map(unowned, options)]),
        ),
        not_said=_not_said(run),
        samples=samples_of(run),
        checks=checks,
        unfinished=run.not_measured,
        standing=run.standing.tree(run.go_on) if run.standing is not None else None,
        review=review_of(run, views, rates, provenance.remark or "", " ".join(shown for _, shown, _ in turned)),
        before=[table for table, _, _ in turned],
        speeds=speeds_of(run, views),
        notes=notes_of(run, [p for view in views for p in view.points], decisions),
    )


MOST_OTHERS = 2
"""The most further pictures of a page."""


def other_axes(limits: Sequence[Limit], views: Sequence[SeriesView]) -> list[tuple[str, str]]:
    """The axes of further pictures: over other limited latencies, and over what each user gets."""
    drawn = {name for view in views for name in view.axes}
    known = {name for view in views for point in view.points for name in point.metrics}
    wanted = [*(limit.metric for limit in limits if limit.of.quantity is not None), "p50_interactivity"]
    others = [name for name in dict.fromkeys(wanted) if name in known - drawn][:MOST_OTHERS]
    return [("output_throughput", name) for name in others]


def _made_by(run: Run, provenance: Provenance) -> str:
    """The command that made the run."""
    if not run.is_imported:
        return made_by(run, provenance.server)
    files = [shlex.quote(str(source["file"])) for source in run.manifest["imported"]["sources"]]
    more = f" ... ({len(files)} files)" if len(files) > 3 else ""
    return f"frontier import {' '.join(files[:3])}{more} -o {portable(run.path)}"


def page_of(report: Report) -> dict[str, Any]:
    """The values for the templates, plain and cleaned. `answers` has a row for each of several
    sections.
    """
    return {
        "title": report.pictures[0].title if report.pictures else title_of(report.views),
        "sections": [_section(view, report) for view in report.views],
        "review": report.review,
        "speeds": report.speeds,
        "before": report.before,
        "health": [*_health(report), *([clean(report.unfinished, 1000)] if report.unfinished else [])],
        "provenance": _provenance(report),
        "commands": [clean(command, 400) for command in report.commands],
        "config_text": _config_cleaned(report.config_text),
        "not_said": report.not_said,
        "glossary": GLOSSARY,
        "pooled": [table for table, _ in report.pooled],
        "answers": answers_table(report.views) if len(report.views) > 1 else None,
    }


def answers_table(views: Sequence[SeriesView]) -> Table:
    """The answer of each series in a row, with the metric that binds, or why there is no answer."""
    answers = [cells for cells, _ in answer_rows(views, panel_names(views))]
    decided = any(view.decision is not None for view in views)
    heads = ["workload", "answer", "throughput", "tightest limit" if decided else "latency", "bound", "limit"]
    del heads[max(map(len, answers)) :]
    cells = [(name, *(cell.removeprefix("limit ") for cell in rest)) for name, *rest in answers]
    rows = [(*row, *[""] * (len(heads) - len(row))) for row in cells]
    return Table.of(heads, rows, "The answers")


def _key(table: Table) -> str:
    """What the signs of a table of points mean, of those that it has."""
    cells = [cell for column in table.columns for cell in column.cells]
    doubts = " ".join(cell.interval for cell in cells)
    signs = {
        "Brackets, and bars in the picture: 95% CI; its shade holds 90% of resamples.": "[" in doubts or "≥" in doubts,
        "At most, at least: the bound that decides, with its confidence.": "at most" in doubts or "at least" in doubts,
        f"{NO_BOUND_LEGEND}.": any(NO_BOUND in cell.value for cell in cells),
    }
    return " ".join(text for text, there in signs.items() if there)


def _section(view: SeriesView, report: Report) -> dict[str, Any]:
    """The section of one series: its decision with figures and lines of the answer, and its points.

    - `step`: what would decide a better setting, and the command.
    - `more`: shown where all details are asked for.
    - `bars`: where value and bound of each figure lie on a bar that ends beyond the limit;
      `tightest`: whether it has the least headroom.
    """
    points, answer, around, table = view.points, view.answer, neighbours(view), table_of(view)
    load, *measured, verdict = table.columns
    table = Table((load, verdict, *measured))  # the verdict is read first, where the table scrolls
    samples = report.samples.get(view.series, {})
    lines: Sequence[tuple[str, str]] = (("", no_sla_sentence(points, view.frontier, view.gpus)),)
    whole = lines
    drawn: Sequence[tuple[Figure, tuple[str, ...]]] = ()
    if answer is not None:
        lines, whole, drawn = answer.lines, answer.whole, answer.figures
    rows = [(f"{figure.mark} {name}".strip(), *cells) for figure, (name, *cells) in drawn]
    more = [("", text) for _, text in whole if text not in [text for _, text in lines]]
    more += [("Where the time goes", time)] if (time := time_line(points, view.chosen)) else []
    more += [
        (f"{noted.title} at {head}", clean(text, 800))
        for noted in report.notes.values()
        for head, text in noted.lines.get(view.series, ())
    ]
    return {
        "name": view.series.label(),
        "verdict": f"{answer.headline}." if answer else None,
        "step": answer.step if answer else ("", ""),
        "figures": Table.of(FIGURE_HEADS, rows, "Limits and measured values") if rows else None,
        "lines": lines,
        "more": more,
        "points": table,
        "key": _key(table),
        "frontier": frontier_sentence(view.frontier),
        "neighbours": Table.of(HEADS, around, "Why this point: the settings around it") if around else None,
        "evidence": [*cost_tables(view.decision), *time_tables(points), *evidence_tables(samples)],
        "bars": [bar_ends(figure) for figure, _ in drawn],
        "tightest": [figure.tightest for figure, _ in drawn],
    }


def _health(report: Report) -> list[str]:
    """The checks that were made, and every flag with its effect."""
    points = [point for view in report.views for point in view.points]
    excluded = sum(not p.valid for p in points)
    some = f"{excluded:,} of {count(len(points), 'point')} excluded" if excluded else "No point was excluded"
    lines = [f"{some}. Checked: {report.checks}."]
    for view in report.views:
        for kind in flag_kinds(view.points):
            head = f"{view_name(view)}: " if len(report.views) > 1 else ""
            effect = "excluded" if kind.fatal else "warning, the point is kept"
            text = kind.text() if kind.fatal else kind.text(WARNING_FIGURES)
            lines.append(capital(f"{head}{text} ({effect}). {capital(kind.advice)}".strip()))
    if not any(p.flags for p in points):
        lines.append("No flag was raised.")
    return lines


def _provenance(report: Report) -> tuple[tuple[str, str], ...]:
    """Name and text of each known fact of the provenance."""
    known = report.provenance
    power = power_text(p.power for v in report.views for p in v.points if p.power).removeprefix("power ")
    pairs: list[tuple[str, str | None]] = [
        ("run", known.run),
        ("model", known.model),
        ("server", SIMULATED if known.server == VIRTUAL else known.server),
        ("hardware", known.hardware),
        ("power", power),
        ("load", known.loop),
        ("measured", known.created),
        ("tool", known.tool),
        *report.review.signed,
        ("remark", known.remark),
        *(("note", note) for note in known.notes),
    ]
    return tuple((name, clean(text, 300)) for name, text in pairs if text)


def _config_cleaned(text: str | None) -> str | None:
    """The config, cleaned line by line, indentation kept."""
    if text is None:
        return None
    lines = [re.match(r" *", line)[0] + clean(line, 1000) for line in masked(text).splitlines()]  # type: ignore[index]
    return "\n".join(lines)


# --- bars


LIMIT_AT = 80
"""The place of a limit on its bar, in percent; the rest has room for values that break it."""


def bar_ends(figure: Figure) -> tuple[int, int] | None:
    """The lower and the upper end of value and bound on a bar, in percent, with the limit at
    LIMIT_AT; None without a limit. A value without a bound may be anything, so it goes to the end.
    """
    limit = figure.limit
    if limit is None or not limit.promise:
        return None
    bound = deciding_bound(figure.estimate, limit)
    shares = [value / limit.promise for value in (figure.estimate.value, math.inf if bound is None else bound)]
    if limit.better == "higher":
        shares = [1 / share if share else math.inf for share in shares]
    low, high = sorted(round(min(100.0, LIMIT_AT * share)) for share in shares)
    return low, high
