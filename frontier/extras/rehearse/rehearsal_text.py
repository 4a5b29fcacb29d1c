"""A rehearsal as text and as JSON."""

from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import RenderableType

from frontier.core.model.groups import by_key
from frontier.core.model.units import count, format_elapsed, format_seconds, format_share
from frontier.extras.rehearse import endpoints_rules as rules
from frontier.extras.rehearse.rehearsal import CurvePoint, Rehearsal
from frontier.extras.rehearse.steady import NOT_FOUND, STEADY
from frontier.show.table import Table, to_text
from frontier.show.verbosity import Detail

SCHEMA = "frontier.rehearse/1"
STATUSES = {
    "windowable": "steady for long enough",
    "insufficient_duration": "too short",
    "insufficient_passes": "too few passes",
    "partial_dataset": "less than a pass",
}


def rehearsal_text(made: Rehearsal, *, detail: Detail, width: int, colour: bool) -> str:
    """The table of the curve under what it is, and, but for `Detail.ANSWER`, what is to be said of
    it.
    """
    dataset = "" if made.dataset is None else f"{made.dataset.name} ({count(made.dataset.prompts, 'prompt')})"
    names = ", ".join(name for name in (made.benchmark or made.model or made.series.label(), dataset) if name)
    c_min, c_max = made.concurrencies[0], made.concurrencies[-1]
    about = f"{names}   C_min {c_min}   C_max {c_max}   Offline: C={c_max} elected"
    heads = ["C", "region", "tok/s", "tok/s/user", "p90 TTFT", "at most", "one pass", "window", "steady", "accuracy"]
    rows = [_row(point, c_max) for point in made.points]
    kept = [i for i, head in enumerate(heads) if head == "region" or any(row[i] for row in rows)]
    table = Table.of(
        [heads[i] for i in kept], [[row[i] for i in kept] for row in rows], right=[i for i in range(len(kept)) if i > 1]
    )
    blocks: list[RenderableType] = [rules.HEAD, about, "", table.drawn(width)]
    if detail is not Detail.ANSWER:
        lines = lines_of(made)
        if detail is Detail.ALL and made.regions is not None:
            spans = (f"{rules.REGIONS[name]} {low}–{high}" for name, (low, high) in made.regions.spans.items())
            lines.append(("Regions", ", ".join(spans)))
        blocks += ["", Table.of((), lines).drawn(width)]
    return to_text(*blocks, width=width, colour=colour)


def _row(point: CurvePoint, c_max: int) -> list[str]:
    steady, offline = point.steady, "Offline" if point.concurrency == c_max else ""
    return [
        str(point.concurrency),
        rules.REGIONS.get(point.region or "", ""),
        f"{point.system_tps:,.0f}",
        f"{point.tps_per_user:.1f}",
        format_seconds(point.ttft_p90),
        "" if point.ttft_p90_bound is None else format_seconds(point.ttft_p90_bound),
        _duration(point.one_pass),
        _duration(point.with_window),
        "" if steady is None else f"{steady.steady_passes} of {steady.passes}",
        ", ".join(part for part in ("yes" if point.accuracy else "", offline) if part),
    ]


def _duration(seconds: float | None) -> str:
    """'2.66 h', '44 min', '28 s'; '' for None."""
    if seconds is None:
        return ""
    if seconds < 60:
        return format_seconds(seconds)
    if seconds < 3600:
        return format_elapsed(60 * round(seconds / 60))
    return f"{seconds / 3600:,.2f} h"


def lines_of(made: Rehearsal) -> list[tuple[str, str]]:
    """What is to be said of the curve, by topic."""
    lines = [("Curve", curve_line(made)), ("Shape", _shape_line(made))]
    if made.dataset is not None:
        lines.append(("Time", _time_line(made)))
    else:
        lines.append(("Time", "not known without a dataset: name one with  --benchmark"))
    lines += _window_lines(made)
    lines += [("Left out", text) for text in made.left_out]
    lines.append(("Missing", "reference token counts, seeds, salt, accuracy, power (Standardized): not measured here."))
    failing = max(made.points, key=lambda point: point.failed)
    if failing.failed > 0:
        share = f"failed requests ({format_share(failing.failed)} at C={failing.concurrency})"
        lines.append(("Differs", f"{share} count as infinitely late here and are dropped there."))
    return lines


def _window_lines(made: Rehearsal) -> list[tuple[str, str]]:
    """How the measured windows are judged, where they are whole passes over a file."""
    judged = ((str(point.concurrency), point.steady) for point in made.points if point.steady is not None)
    kinds = by_key((STATUSES[steady.status] + _verdict(steady.verdict), where) for where, steady in judged)
    text = "; ".join(f"{kind}: C={', '.join(where)}" for kind, where in kinds.items())
    return [("Windows", f"{text}.")] if kinds else []


def _verdict(verdict: str) -> str:
    """' (rising)'; '' for a steady window, and where nothing was found."""
    words = verdict.replace("_", " ")
    return "" if words in (STEADY, NOT_FOUND) else f" ({words})"


def curve_line(made: Rehearsal) -> str:
    """How many points there are, and which regions have none."""
    number = len(made.points)
    parts = [f"{count(number, 'point')}" + (f" of the {rules.POINTS} that are needed" if number < rules.POINTS else "")]
    if number > rules.MOST_POINTS:
        parts[0] += f", and {rules.MOST_POINTS} are the most: leave some out"
    if made.regions is None:
        return f"{parts[0]}; no regions: {made.no_regions}."
    for name in made.uncovered:
        low, high = made.regions.spans[name]
        room = f"{low}–{high}" if low <= high else f"it has no room; one on its edge, {high} or {low}, counts"
        parts.append(f"none in {rules.REGIONS[name]} ({room})")
    if not made.uncovered:
        parts.append("every region covered")
    return f"{', '.join(parts)}, none above C={made.concurrencies[-1]} (margin to {made.regions.margin})."


def _shape_line(made: Rehearsal) -> str:
    worse = [f"C={p.concurrency} is worse than C={p.worse_than}" for p in made.points if p.worse_than is not None]
    if not worse:
        return "no point is worse than a smaller C on both axes."
    return f"{', '.join(worse)} on both axes: a submitted point stays on the official line."


def _time_line(made: Rehearsal) -> str:
    longest = max(made.points, key=lambda point: point.with_window or 0.0)
    more = f"; accuracy {format_elapsed(made.accuracy_seconds)} more" if made.regions is not None else ""
    window, whole, most = (
        format_elapsed(seconds)
        for seconds in (
            made.seconds("with_window"),
            made.seconds("whole_run"),
            longest.with_window or 0.0,
        )
    )
    mean = float(np.mean([point.system_tps / point.request_rate for point in made.points]))
    return (
        f"{window} with a window everywhere ({rules.PASSES} passes, {rules.SHORT:.0f} s or {rules.LONG:,.0f} s); "
        f"{whole} on whole-run results{more}. C={longest.concurrency} takes {most} of it. "
        f"At this run's answers, of {mean:,.0f} tokens on average."
    )


def rehearsal_json(made: Rehearsal) -> dict[str, Any]:
    """The rehearsal as JSON."""
    points = [asdict(point) for point in made.points]
    return {
        "schema": SCHEMA,
        "notice": rules.NOTICE,
        "rules": {"version": rules.VERSION, "state": rules.STATE, "checker": rules.CHECKER, "read": rules.READ},
        "deployment": made.series.deployment,
        "shape": made.series.shape.label,
        "benchmark": made.benchmark,
        "dataset": None if made.dataset is None else asdict(made.dataset),
        "c_min": made.concurrencies[0],
        "c_max": made.concurrencies[-1],
        "offline": "elected",
        "regions": None if made.regions is None else {**made.regions.spans, "margin": made.regions.margin},
        "uncovered": made.uncovered,
        "points": points,
        "seconds": {
            "with_window": made.seconds("with_window"),
            "whole_run": made.seconds("whole_run"),
            "accuracy": made.accuracy_seconds,
        },
        "no_regions": made.no_regions,
        "left_out": list(made.left_out),
    }
