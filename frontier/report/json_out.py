"""JSON of decisions, points, reports and ceilings. Every tree has a `schema`; changes only add keys.

Numbers are in the metric's own unit: seconds, tokens per second, shares. Infinite and NaN become null.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from frontier.decide.capacity import littles_law
from frontier.decide.frontier_summary import Insight
from frontier.metrics import metric
from frontier.model import Decision, Distance, Estimate, Flag, Frontier, Limit, Point

SOLVE_SCHEMA = "frontier.solve/1"
SHOW_SCHEMA = "frontier.show/1"

Tree = dict[str, Any]

if TYPE_CHECKING:
    from frontier.hardware.ceilings import Ceilings
    from frontier.report.report import Report


def number(value: float | None) -> float | None:
    """A number JSON can hold, else None."""
    return None if value is None or not math.isfinite(value) else value


def estimate_tree(estimate: Estimate) -> Tree:
    """`infinite` is there only when the value is: too many requests failed for the percentile to exist."""
    tree: Tree = {
        "value": number(estimate.value),
        "low": number(estimate.low),
        "high": number(estimate.high),
        "n": estimate.n,
    }
    if math.isinf(estimate.value):
        tree["infinite"] = True
    return tree


def _metrics(metrics: Mapping[str, Estimate]) -> Tree:
    return {name: estimate_tree(estimate) for name, estimate in sorted(metrics.items())}


def _limit(limit: Limit) -> Tree:
    return {
        "metric": limit.metric,
        "better": metric(limit.metric).better,
        "promise": number(limit.promise),
        "comfort": number(limit.comfort),
    }


def limits_json(limits: Sequence[Limit]) -> list[Tree]:
    """Each line of an SLA."""
    return [_limit(limit) for limit in limits]


def decisions_json(decisions: Sequence[Decision]) -> Tree:
    """The answer of `frontier solve --json`. `shapes` has one entry per (deployment, shape), in order."""
    return {"schema": SOLVE_SCHEMA, "shapes": [decision_json(decision) for decision in decisions]}


def decision_json(decision: Decision) -> Tree:
    """One entry: `concurrency` is null unless the verdict is 'meets'; `metrics` are then those of `candidate`."""
    step = decision.rejected
    return {
        "deployment": decision.deployment,
        "shape": decision.shape.label,
        "verdict": decision.verdict.value,
        "concurrency": decision.concurrency,
        "binding": decision.binding,
        "metrics": _metrics(decision.metrics),
        "notes": list(decision.notes),
        "limits": limits_json(decision.limits),
        "candidate": decision.candidate,
        "last_pass": decision.last_pass,
        "first_fail": decision.first_fail,
        "holes": list(decision.holes),
        "throughput_optimum": decision.throughput_optimum,
        "goodput_optimum": decision.goodput_optimum,
        "cheapest": decision.cheapest,
        "rejected_step": step
        and {
            "concurrency": step.concurrency,
            "gain": number(step.gain),
            "metric": step.metric,
            "cost": number(step.cost),
            "tie": step.tie,
        },
        "judgements": [
            {
                "concurrency": j.concurrency,
                "verdict": j.verdict.value,
                "per_metric": {name: verdict.value for name, verdict in j.per_metric.items()},
                "binding": j.binding,
                "headroom": number(j.headroom),
                "need": j.need,
            }
            for j in decision.judgements
        ],
    }


def points_json(points: Sequence[Point], frontiers: Sequence[Frontier], insights: Sequence[Insight] = ()) -> Tree:
    """The answer of `frontier show --json`. `flags` are names; their figures are under `flag_details`.

    `frontiers` has the area under each series' frontier with its reference, and where its capacity ends.
    """
    of_series = {frontier.series: frontier for frontier in frontiers}
    objectives = sorted({f.objectives for f in frontiers})
    return {
        "schema": SHOW_SCHEMA,
        "objectives": list(objectives[0]) if len(objectives) == 1 else None,
        "points": [_point(point, of_series.get(point.series)) for point in points],
        "frontiers": [_insight(insight) for insight in insights],
    }


def _insight(insight: Insight) -> Tree:
    """What is known of one series as a whole."""
    f, c = insight.frontier, insight.capacity
    return {
        "deployment": f.deployment,
        "shape": f.shape.label,
        "objectives": list(f.objectives),
        "members": list(f.members),
        "area": insight.area and estimate_tree(insight.area),
        "reference": insight.reference and [number(x) for x in insight.reference],
        "knee": c.knee,
        "fits": [
            {"model": fit.model, "parameters": {k: number(v) for k, v in fit.parameters.items()},
             "aic": number(fit.aic), "error": number(fit.error), "best": fit is c.best}
            for fit in c.fits
        ],
        "peak": c.peak and estimate_tree(c.peak),
        "retrograde": list(c.retrograde),
        "limit": c.limit,
        "onset": c.onset,
        "notes": list(insight.notes),
    }  # fmt: skip


def _point(point: Point, frontier: Frontier | None) -> Tree:
    c = point.concurrency
    return {
        "deployment": point.deployment,
        "shape": point.shape.label,
        "concurrency": c,
        "valid": point.valid,
        "flags": [flag.name for flag in point.flags],
        "on_frontier": frontier is not None and c in frontier.members,
        "metrics": _metrics(point.metrics),
        "n": point.n,
        "repeats": point.repeats,
        "flag_details": [_flag(flag) for flag in point.flags],
        "excluded": frontier.excluded.get(c) if frontier else None,
        "probability": number(frontier.probability.get(c)) if frontier else None,
        "notes": list(point.notes),
        "littles_law": (law := littles_law(point)) and estimate_tree(law),
        "whole_run": {name: number(value) for name, value in sorted(point.whole_run.items())},
        "light": point.light and _distance(point.light),
        "power": point.power and {"watts": number(point.power.watts), "source": point.power.source},
    }


def _distance(light: Distance) -> Tree:
    """`share` of the ceiling (output tokens per second) that was reached, and what sets it."""
    return {
        "ceiling": number(light.ceiling),
        "binds": light.binds,
        "share": estimate_tree(light.share),
        "mbu": light.mbu and estimate_tree(light.mbu),
        "mfu": light.mfu and estimate_tree(light.mfu),
    }


def _flag(flag: Flag) -> Tree:
    return {
        "name": flag.name, "measured": flag.measured, "limit": flag.limit, "advice": flag.advice, "fatal": flag.fatal,
    }  # fmt: skip


REPORT_SCHEMA = "frontier.report/1"


def report_json(report: "Report") -> Tree:
    """`frontier report -o FILE.json`: the answers of `solve --json` and `show --json` with what surrounds them."""
    from frontier.report.report import page_of

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


CEILINGS_SCHEMA = "frontier.ceilings/1"


def ceilings_json(ceilings: "Ceilings") -> Tree:
    """The answer of `frontier ceilings --json`; rates in bytes and FLOPs per second."""
    from frontier.report.tables import ceiling_rows

    return {
        "schema": CEILINGS_SCHEMA,
        "name": ceilings.name,
        "backend": ceilings.backend,
        "devices": ceilings.devices,
        "memory": number(ceilings.memory),
        "ceilings": [
            {"name": key, "what": what, "measured": number(value), "unit": unit, "data_sheet": sheet}
            for what, key, value, unit, sheet in ceiling_rows(ceilings)
        ],
        "hardware": ceilings.hardware(),
    }
