"""JSON of decisions and points. Every tree has a `schema`; changes only add keys.

Numbers are in the metric's own unit: seconds, tokens per second, shares. A load in open loop is a
rate, in requests per second: `rate` in place of `concurrency`, which is null then. Infinite and NaN
become null.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from frontier.core.model.decisions import Decision, Explanation, Limit
from frontier.core.model.loads import NO_LOAD, Load
from frontier.core.model.points import Estimate, Point
from frontier.core.model.shapes import Shape
from frontier.planning.most_background import MostBackground
from frontier.planning.sla_result import SlaResult
from frontier.show.view.costs import token_prices
from frontier.show.view.explain import with_notes
from frontier.show.view.figures import figures
from frontier.show.view.frontier_summary import FrontierSummary
from frontier.show.view.mixes import class_shares, class_verdicts
from frontier.show.view.notes import Noted
from frontier.show.view.series_view import SeriesView, SettingView
from frontier.show.view.sla_notes import sla_notes
from frontier.show.view.wording import deciding_bound

SOLVE_SCHEMA = "frontier.solve/1"
SHOW_SCHEMA = "frontier.show/1"

Tree = dict[str, Any]
_WRITTEN_AS = {"roofline_distance": "light", "load": "concurrency"}
"""Names in JSON that are older than those of their fields."""


def number(value: float | None) -> float | None:
    """The number; None where JSON cannot hold it."""
    return None if value is None or not math.isfinite(value) else value


def estimate_tree(estimate: Estimate) -> Tree:
    """An estimate as JSON. `infinite` is there only when the value is infinite: too many requests
    failed for the percentile to exist.
    """
    tree: Tree = {name: number(getattr(estimate, name)) for name in ("value", "low", "high")} | {"n": estimate.n}
    return {**tree, "infinite": True} if math.isinf(estimate.value) else tree


def bound_tree(estimate: Estimate, limit: Limit) -> Tree:
    """The bound that decides, as every text names it, and its confidence; null without one."""
    bound = deciding_bound(estimate, limit)
    return {"bound": bound, "confidence": None if bound is None else estimate.confidence}


def tree_of(value: Any) -> Any:
    """Any frozen dataclass of the model as a JSON tree, field by field: shapes by label, enums by
    value.
    """
    if isinstance(value, Estimate):
        return estimate_tree(value)
    if isinstance(value, Shape):
        return value.label
    if isinstance(value, Limit):
        return {
            "metric": value.metric,
            "better": value.better,
            "promise": number(value.promise),
            "comfort": number(value.comfort),
        }
    if isinstance(value, Load):
        return value.facts[value.kind]
    if is_dataclass(value):
        tree = {_WRITTEN_AS.get(field.name, field.name): tree_of(getattr(value, field.name)) for field in fields(value)}
        load = getattr(value, "load", NO_LOAD) or NO_LOAD
        return tree | load.facts if load.is_open or isinstance(value, Decision | Point) else tree
    if isinstance(value, Mapping):
        return {str(key): tree_of(value[key]) for key in sorted(value)}
    if isinstance(value, tuple | list):
        return [tree_of(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return number(value) if isinstance(value, float) else value


def decisions_json(decisions: Sequence[Decision]) -> Tree:
    """The decisions of a report as the entries of `frontier solve --json` for one tier: one per
    series, in order.
    """
    return {"schema": SOLVE_SCHEMA, "shapes": [decision_json(decision) for decision in decisions]}


def decision_json(decision: Decision) -> Tree:
    """One decision. `concurrency` is null unless the verdict is 'meets'; where it is null,
    `metrics` are those of `candidate`.

    - `reason`: why its setting has its verdict, as a code; each of `judgements` has its own.
    - `claim`: what the proof covers.
    - of `metrics`, the limited ones also have the `bound` that decides, its `confidence`, and the
      `headroom` that it leaves, as a share of the limit.
    - `next_step`: the setting that may be a better answer, with the command that decides.
    - `token_prices`: the prices of tokens that pay for the deployment; null without a price.
    """
    tree: Tree = tree_of(replace(with_notes(decision), explanation=Explanation()))
    del tree["explanation"]  # its sentences are `notes`
    for figure in figures(decision):
        if figure.limit is not None:
            bound = bound_tree(figure.estimate, figure.limit)
            tree["metrics"][figure.metric] |= {**bound, "headroom": number(figure.headroom)}
    if decision.shape.mix:
        verdicts = class_verdicts(decision)
        shares = class_shares(decision.shape, decision.metrics)
        tree["classes"] = {
            name: {**tree_of(share), "verdict": tree_of(verdicts.get(name))} for name, share in shares.items()
        }
    reasons = {reason.settings: reason.cause.value for reason in decision.explanation.settings}
    tree["reason"] = reasons.get((decision.shown,)) if decision.shown is not None else None
    for judged, judgement in zip(tree["judgements"], decision.judgements, strict=True):
        judged["reason"] = reasons.get((judgement.load,))
    tree["rejected_step"] = tree.pop("rejected")
    if decision.next_step is not None:
        tree["next_step"]["flags"] = [flag.name for flag in decision.next_step.flags]
        tree["next_step"]["widened"] = [flag.name for flag in decision.next_step.widened]
        tail = decision.next_step.tail
        tree["next_step"]["tail"] = None if tail is None else {"metric": tail[0], "share": tail[1]}
    tree["token_prices"] = tree_of(token_prices(decision.metrics))
    return tree


def points_json(
    views: Sequence[SeriesView],
    summaries: Sequence[FrontierSummary] = (),
    notes: Mapping[str, Noted] | None = None,
) -> Tree:
    """The answer of `frontier show --json`.

    - `flags`: names of flags; their figures are under `flag_details`.
    - of `metrics`, the limited ones also have the `bound` that decides, and its `confidence`.
    - `verdict`, `reason`: how the point stands to the SLA, as codes; null where it was not judged.
    - `frontiers`: the members of each series' frontier, the knee of its throughput, and where it
      falls.
    - `notes`: each note has its own name as a key.
    """
    objectives = sorted({view.frontier.objectives for view in views if view.frontier.objectives})
    return {
        "schema": SHOW_SCHEMA,
        "objectives": list(objectives[0]) if len(objectives) == 1 else None,
        "points": [_point(setting, view) for view in views for setting in view.settings],
        "frontiers": [_summary(summary) for summary in summaries],
        **{name: tree_of(tuple(noted.trees)) for name, noted in (notes or {}).items()},
    }


def _summary(summary: FrontierSummary) -> Tree:
    """The summary of one series as a whole."""
    frontier = summary.frontier
    return {
        **{name: tree_of(getattr(frontier, name)) for name in ("deployment", "shape", "objectives", "members")},
        "notes": tree_of(summary.notes),
        "knee": summary.knee,
        "retrograde": list(summary.retrograde),
    }


def _point(setting: SettingView, view: SeriesView) -> Tree:
    """One point and its place on the frontier."""
    point, law, frontier = setting.point, littles_law(setting.point), view.frontier
    c, has_axes, tree = point.load, bool(frontier.objectives), tree_of(point)
    for limit in view.sla:
        if limit.metric in point.metrics:
            tree["metrics"][limit.metric] |= bound_tree(point.metrics[limit.metric], limit)
    return {
        **tree,
        "verdict": setting.verdict,
        "reason": setting.reason,
        **({"classes": tree_of(class_shares(point.shape, point.metrics))} if point.shape.mix else {}),
        "valid": point.valid,
        "flags": [flag.name for flag in point.flags],
        "flag_details": tree_of(point.flags),
        "objectives": list(frontier.objectives) if has_axes else None,
        "on_frontier": setting.place == "member",
        "excluded": frontier.excluded.get(c),
        "probability": number(frontier.probability.get(c)),
        "littles_law": law and estimate_tree(law),
        "token_prices": tree_of(token_prices(point.metrics)),
    }


def littles_law(point: Point) -> Estimate | None:
    """Request rate x mean E2E latency over concurrency: 1 when load, rate and latency agree. None
    when not measured, and where the load is a rate.

    The interval multiplies both intervals, so it is wide. The sharp check is the integrated
    occupancy, which `load_flags` makes on every window.
    """
    rate, e2e = point.metrics.get("request_throughput"), point.metrics.get("mean_e2e")
    if rate is None or e2e is None or not math.isfinite(e2e.value) or point.load.is_open:
        return None
    c = point.load
    return Estimate(rate.value * e2e.value / c, rate.low * e2e.low / c, rate.high * e2e.high / c, e2e.n)


# --- answers


def answers_json(answers: Sequence[SlaResult]) -> Tree:
    """The answer of `frontier solve --json`. `shapes`, `common` and `common_costs` are of the first
    tier; `tiers` has all of them.
    """
    trees = [_answer_json(tier) for tier in answers]
    return {
        "schema": SOLVE_SCHEMA,
        "shapes": trees[0]["shapes"] if trees else [],
        "common": trees[0]["common"] if trees else {},
        "common_costs": trees[0]["common_costs"] if trees else {},
        "tiers": trees,
    }


def _answer_json(tier: SlaResult) -> Tree:
    """One tier."""
    return {
        "tier": tier.tier,
        "limits": tree_of(tier.limits),
        "shapes": [{**decision_json(d), "arrival_rate": tree_of(tier.arrivals.get(d.series))} for d in tier.decisions],
        "common": dict(tier.common),
        "common_costs": {name: dict(shares) for name, shares in tier.given_up.items()},
        "common_commands": dict(tier.commands),
        "cheapest": [{**choice_json(c.decision), "sure": c.sure} for c in tier.cheapest],
        "best": [
            {
                **choice_json(b.decision),
                "rate": number(b.rate),
                "per_gpu": b.per_gpu,
                "sure": b.sure and not b.open and not b.may_give,
                "open": list(dict.fromkeys([*b.open, *(name for name, _ in b.may_give)])),
            }
            for b in tier.best
        ],
        **({"backgrounds": list(map(background_json, tier.backgrounds))} if tier.backgrounds else {}),
        "notes": list(sla_notes(tier)),
    }


def background_json(of: MostBackground) -> Tree:
    """The most background of a deployment, and every amount of it."""
    return {
        **choice_json(of.chosen),
        "background": {"shape": of.shape.label, "concurrency": of.most},
        "verdict": of.chosen.verdict.value,
        "amounts": [
            {
                "background": amount,
                "shape": d.shape.label,
                "verdict": d.verdict.value,
                "background_throughput": tree_of(d.metrics.get("background_throughput")),
                "binding": d.binding,
                "value": tree_of(d.metrics.get(d.binding or "")),
            }
            for amount, d in zip(of.streams, of.decisions, strict=True)
        ],
    }


def choice_json(decision: Decision) -> Tree:
    """The operating point that an answer is about, for JSON."""
    return {
        "deployment": decision.deployment,
        "shape": decision.shape.label,
        "concurrency": decision.load,
    }
