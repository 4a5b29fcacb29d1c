"""The open-loop check as text and JSON."""

from collections.abc import Sequence
from typing import Any, Protocol

from frontier.decide.wording import clean, interval_text, limit_value_text, setting, value_text
from frontier.metrics import metric
from frontier.model import Decision, Judgement, Point, Verdict
from frontier.report.json_out import estimate_tree, number
from frontier.units import format_number, format_share

SCHEMA = "frontier.verify/1"
_HEADS = {
    Verdict.MEETS: "met",
    Verdict.VIOLATES: "no",
    Verdict.MARGINAL: "marginal",
    Verdict.UNPROVEN: "unproven",
    Verdict.INVALID: "invalid",
}


class _Check(Protocol):
    @property
    def decision(self) -> Decision: ...
    @property
    def rate(self) -> float: ...
    @property
    def load(self) -> float: ...


class _Checked(Protocol):
    @property
    def check(self) -> _Check: ...
    @property
    def point(self) -> Point: ...
    @property
    def judgement(self) -> Judgement: ...
    @property
    def in_flight(self) -> float: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


def verified_text(checked: Sequence[_Checked]) -> str:
    """Each check: the verdict, then every limited metric in the open loop beside the closed loop."""
    return "\n\n".join("\n".join(_lines(each)) for each in checked)


def _lines(checked: _Checked) -> list[str]:
    decision, point, verdict = checked.check.decision, checked.point, checked.judgement.verdict
    name = clean(decision.shape.label, 40)
    name = name if decision.deployment == "default" else f"{clean(decision.deployment, 40)} · {name}"
    share = "" if checked.check.load == 1.0 else f"{format_share(checked.check.load)} of "
    head = (
        f"{_HEADS[verdict]:<5} with Poisson arrivals at {format_number(checked.check.rate)} requests/s, "
        f"{share}the rate of {setting(decision.concurrency or 0)}   {name}"
    )
    lines = [head]
    rows = []
    for limit in decision.limits:
        label = metric(limit.metric).label
        here, there = point.metrics.get(limit.metric), decision.metrics.get(limit.metric)
        bound = f"limit {limit_value_text(limit.metric, limit.promise)}"
        binding = ", binding" if limit.metric == checked.judgement.binding else ""
        closed = f"closed loop {value_text(limit.metric, there.value)}" if there is not None else ""
        value = value_text(limit.metric, here.value) if here is not None else "not measured"
        interval = interval_text(limit.metric, here) if here is not None else ""
        rows.append((label, value, interval, closed, bound + binding))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines += [
        f"      {a:<{widths[0]}}  {b:>{widths[1]}}  {c:<{widths[2]}}  {d:<{widths[3]}}  {e}".rstrip()
        for a, b, c, d, e in rows
    ]
    lines.append(f"      {point.n:,} requests, {format_number(checked.in_flight)} in flight on average")
    lines += [f"      {clean(note, 300)}" for note in checked.notes]
    if not checked.notes:
        lines += [
            f"      {flag.name.replace('_', ' ')}: {clean(flag.measured, 200)} (limit {flag.limit}): {flag.advice}"
            for flag in point.flags if flag.fatal
        ]  # fmt: skip
    if verdict is Verdict.VIOLATES:
        lines.append("      find the rate that holds with less load:  frontier verify --load 80%")
    elif verdict in (Verdict.UNPROVEN, Verdict.MARGINAL):
        more = f"about {checked.judgement.need:,} requests" if checked.judgement.need else "more requests"
        lines.append(f"      {more} would decide:  frontier verify --requests N")
    return lines


def verified_json(checked: Sequence[_Checked]) -> dict[str, Any]:
    """The answer of `frontier verify --json`."""
    return {
        "schema": SCHEMA,
        "shapes": [
            {
                "deployment": each.check.decision.deployment,
                "shape": each.check.decision.shape.label,
                "concurrency": each.check.decision.concurrency,
                "rate": number(each.check.rate),
                "load": number(each.check.load),
                "verdict": each.judgement.verdict.value,
                "binding": each.judgement.binding,
                "need": each.judgement.need,
                "in_flight": number(each.in_flight),
                "metrics": {name: estimate_tree(e) for name, e in sorted(each.point.metrics.items())},
                "closed_loop": {name: estimate_tree(e) for name, e in sorted(each.check.decision.metrics.items())},
                "flags": [flag.name for flag in each.point.flags],
                "notes": [*each.notes, *each.point.notes],
            }
            for each in checked
        ],
    }
