"""Callouts as words: the operating point (or the nearest to one) with its numbers, and what the step above it is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from frontier.decide.wording import (
    binding_limit,
    interval_text,
    limit_value_text,
    named_value,
    neighbour,
    unproven_words,
    value_text,
)
from frontier.metrics import metric
from frontier.model import Decision, Estimate, Point, Verdict
from frontier.plot.picture_model import Panel, Role


@dataclass(frozen=True, slots=True)
class Callout:
    """An annotation still to be placed: about `away` pixels from `at`, which is in display units. `short` stands for
    all its lines where there is room for one.
    """

    concurrency: int
    lines: tuple[str, ...]
    short: str
    role: Role
    at: tuple[float, float]
    away: float


def callouts(
    panel: Panel, decision: Decision | None, points: Sequence[Point], gpus: int | None, *, brief: bool
) -> list[Callout]:
    """The operating point (or the nearest to one), then what the step above it is. `brief` where the title says it."""
    if decision is None:
        return []
    by_concurrency = {p.concurrency: p for p in points}
    found: list[Callout] = []
    star = panel.star or panel.ring
    chosen = decision.concurrency if decision.concurrency is not None else decision.candidate
    if star is not None and chosen is not None:
        lines = _chosen_lines(panel, decision, chosen, gpus)
        if brief:
            lines = (
                f"c = {chosen}",
                *(_named(panel, decision) + li for li in lines if li.startswith(("95%", "at most"))),
            )
        found.append(Callout(chosen, lines, lines[0], Role.OPERATING, star, 40.0 if brief else 105.0))
    for concurrency, lines, short in _next_lines(panel, decision, by_concurrency):
        mark = next((m for m in panel.marks if m.concurrency == concurrency and not m.beyond), None)
        if mark is not None:
            role = mark.role if mark.role is not Role.DOMINATED else Role.QUIET
            at, away = (mark.x, mark.y), 50.0 if brief else 90.0
            found.append(Callout(concurrency, lines, f"c = {concurrency}: {short}", role, at, away))
    return found


def _chosen_lines(panel: Panel, decision: Decision, chosen: int, gpus: int | None) -> tuple[str, ...]:
    head = "operating point" if decision.concurrency is not None else {
        Verdict.VIOLATES: "closest", Verdict.INVALID: "not valid",
    }.get(decision.verdict, "not proven")  # fmt: skip
    lines = [f"{head}  c = {chosen}"]
    if (speed := decision.metrics.get(panel.y.metric)) is not None:
        lines.append(named_value(panel.y.metric, speed.value, gpus))
    limit = binding_limit(decision)
    told = [limit.metric] if limit else []
    if panel.x.metric not in told:
        told.append(panel.x.metric)
    for name in told:
        if (estimate := decision.metrics.get(name)) is None:
            continue
        lines.append(f"{metric(name).label} {value_text(name, estimate.value)}")
        if name == told[0]:
            lines += _doubt(name, estimate)
    return tuple(lines)


def _doubt(name: str, estimate: Estimate) -> list[str]:
    """'95% CI 373–438 ms'; where that has no upper end, the one-sided bound that the verdict stands on, if any."""
    if not (doubt := interval_text(name, estimate)):
        return []
    if math.isinf(estimate.high) and math.isfinite(estimate.upper) and metric(name).better == "lower":
        return [f"at most {value_text(name, estimate.upper)} (95%)"]
    unit = value_text(name, estimate.value).rpartition(" ")[2]
    return [f"95% CI {doubt[1:-1].replace(', ', '–')} {unit}"]


def _named(panel: Panel, decision: Decision) -> str:
    """What an interval is of, where it is not of an axis."""
    limit = binding_limit(decision)
    return f"{metric(limit.metric).label} " if limit and limit.metric not in (panel.x.metric, panel.y.metric) else ""


def _next_lines(panel: Panel, decision: Decision, points: dict[int, Point]) -> list[tuple[int, tuple[str, ...], str]]:
    """The step not taken, and the first setting above that is not inside for a reason the axes do not show: at length,
    and in a word or two.
    """
    found: list[tuple[int, tuple[str, ...], str]] = []
    if (step := decision.rejected) is not None:
        label = metric(step.metric).label
        gain = f"c = {step.concurrency}: {step.gain * 100:+.0f}% throughput"
        why = "within the noise: not taken" if step.tie else f"for {step.cost:.2g}× {label}: not taken"
        found.append((step.concurrency, (gain, why), "not taken"))
    near = neighbour(decision)
    if near is None or near[0] in {c for c, *_ in found}:
        return found
    concurrency, verdict, binding = near
    limit = next((it for it in decision.limits if it.metric == binding), None)
    if verdict is Verdict.MARGINAL:
        found.append((concurrency, (f"c = {concurrency}: unresolved, its interval", "crosses the limit"), "unresolved"))
    elif verdict is Verdict.UNPROVEN:
        held = points[concurrency].metrics.get(binding) if binding and concurrency in points else None
        need = next((j.need for j in decision.judgements if j.concurrency == concurrency), None)
        found.append((concurrency, (f"c = {concurrency}: not proven,", unproven_words(held, need)), "not proven"))
    elif limit is None or limit.metric in (panel.x.metric, panel.y.metric):
        pass
    elif concurrency in points and (held := points[concurrency].metrics.get(limit.metric)):
        label = metric(limit.metric).label
        over = f"limit {limit_value_text(limit.metric, limit.promise)}"
        lines = (f"c = {concurrency}: {label}", f"{value_text(limit.metric, held.value)}, {over}")
        found.append(
            (concurrency, lines, f"{label} too high" if metric(limit.metric).better == "lower" else f"{label} too low")
        )
    return found
