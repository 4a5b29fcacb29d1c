"""The checks of `frontier verify` in words and as JSON: the open loop beside the closed loop."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from frontier.core.claim.undecided import widened
from frontier.core.model.decisions import Decision, Limit, Verdict
from frontier.core.model.loads import NO_LOAD
from frontier.core.model.metrics import metric
from frontier.core.model.points import Point
from frontier.core.model.text import clean
from frontier.core.model.units import format_number, format_share, trimmed
from frontier.planning.sla_result import Checked
from frontier.show.table import Table, indented, to_text
from frontier.show.verbosity import Detail
from frontier.show.view.json_out import choice_json, tree_of
from frontier.show.view.rough import roughly
from frontier.show.view.wording import (
    VERDICT_WORDS,
    beside_limit,
    bound_text,
    flag_figures,
    flag_kind,
    flag_words,
    interval_text,
    limit_value_text,
    told,
    value_text,
)

VERIFY_SCHEMA = "frontier.verify/1"


def verified_text(
    checks: Sequence[Checked], width: int = 100, *, again: str = "frontier verify", detail: Detail = Detail.USUAL
) -> str:
    """Each check: its verdict, then every limited metric in the open loop beside the closed loop;
    every metric where all is asked for. `again` is the command that was given, without its load
    options.
    """
    return "\n\n".join(_verified(checked, width, again, detail) for checked in checks)


def _verified(checked: Checked, width: int, again: str, detail: Detail) -> str:
    """One check as lines."""
    decision, point, verdict = checked.check.decision, checked.point, checked.judgement.verdict
    share = "" if checked.check.load == 1.0 else f"{format_share(checked.check.load)} of "
    cause = "".join(f", as {flag_kind(flag.name)}" for flag in told(point.fatal)[:1])
    head = (
        f"{VERDICT_WORDS[verdict]}{cause}, with Poisson arrivals at {format_number(checked.check.rate)} requests/s, "
        f"{share}the rate of {(decision.load or NO_LOAD).label}   {decision.series.label(longest=40)}"
    )
    rows = [open_row(point, decision, limit, checked.judgement.binding) for limit in decision.limits]
    there = f"{format_number(checked.in_flight)} in flight or waiting on average"
    lines = [f"{point.n:,} requests, at most {checked.cap:,} in flight; what came beyond waited, which counts; {there}"]
    lines += [clean(note, 300) for note in checked.notes]
    if not checked.notes:
        lines += [f"{flag_words(flag)}; {flag.advice}" for flag in told(point.fatal)]
    if verdict is Verdict.VIOLATES:
        lines += ["find the rate that holds:", f"  {again} --find"]
    elif verdict in (Verdict.UNPROVEN, Verdict.MARGINAL):
        lines += _to_decide(checked, again)
    every = [(metric(n).label, value_text(n, e.value), interval_text(n, e)) for n, e in point.metrics.items()]
    blocks = detail.of([Table.of((), rows, right=(1,))], (), [Table.of(("", "", "95% CI"), every, right=(1,))])
    tables = [indented(table.drawn(width)) for table in blocks]
    notes = detail.of((), map(indented, lines))
    return to_text(Text(head), *tables[:1], *notes, *tables[1:], width=max(width, 80))


def _to_decide(checked: Checked, again: str) -> list[str]:
    """What would decide a check that is not proven, with the command for it. Bounds that a busy
    client made wider say nothing of the rate.
    """
    busy, need = widened(checked.point), checked.judgement.need
    if need is None and not busy:
        return ["too close to the limit to decide at this rate; find the rate that holds:", f"  {again} --find"]
    load = "" if not checked.check.asked else f" --load {trimmed(format_number(checked.check.load * 100))}%"
    why = "".join(f"{flag_kind(flag.name)} ({flag_figures(flag)}), which widened its bounds; " for flag in busy)
    enough = f"about {roughly(need)} requests would decide" if need is not None else "as many again would decide"
    idle = "on an idle core " if busy else ""
    return [f"{why}{idle}{enough}:", f"  {again}{load} --requests {need or checked.point.n}"]


def open_row(point: Point, decision: Decision, limit: Limit, binds: str | None) -> tuple[str, ...]:
    """A limited metric: its value and bound in the open loop, its value in the closed loop, and its
    limit.
    """
    name = limit.metric
    here, there = point.metrics.get(name), decision.metrics.get(name)
    binding = " (tightest)" if name == binds else ""
    return (
        metric(name).label,
        beside_limit(here.value, limit) if here is not None else "not measured",
        bound_text(here, limit) if here is not None else "",
        f"closed loop {value_text(name, there.value)}" if there is not None else "",
        f"limit {limit_value_text(name, limit.promise)}{binding}",
    )


def verified_json(checks: Sequence[Checked]) -> dict[str, Any]:
    """The answer of `frontier verify --json`."""
    return {
        "schema": VERIFY_SCHEMA,
        "shapes": [
            open_json(
                each.check.decision,
                each.point,
                each.judgement.binding,
                each.notes,
                rate=each.check.rate,
                load=each.check.load,
                verdict=each.judgement.verdict.value,
                need=each.judgement.need,
                in_flight=each.in_flight,
                most_in_flight=each.cap,
            )
            for each in checks
        ],
    }


def open_json(
    decision: Decision, point: Point | None, binding: str | None, notes: Sequence[str], **facts: Any
) -> dict[str, Any]:
    """One operating point under open-loop load: what was sent and found, beside the closed loop."""
    return {
        **choice_json(decision),
        **{name: tree_of(fact) for name, fact in facts.items()},
        "binding": binding,
        "metrics": tree_of(point.metrics) if point is not None else {},
        "closed_loop": tree_of(decision.metrics),
        "flags": [flag.name for flag in point.flags] if point is not None else [],
        "notes": [*notes, *(point.notes if point is not None else ())],
    }
