"""The answer on a terminal and as JSON: operating points (`frontier solve`), and the results of
their open-loop checks (`verify`).
"""

import textwrap
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from frontier.core.model.decisions import Decision, Limit, Verdict
from frontier.core.model.loads import setting
from frontier.core.model.metrics import metric
from frontier.core.model.points import Point
from frontier.core.model.series import Series
from frontier.core.model.text import clean
from frontier.core.model.units import format_number, format_share, trimmed
from frontier.planning.sla_result import ArrivalRate, Checked, SlaResult
from frontier.show.table import Table, indented, to_text
from frontier.show.tables import DeploymentGpus
from frontier.show.verbosity import Detail
from frontier.show.view.explain import other_reasons, why_not_more
from frontier.show.view.figures import figure_row, figures
from frontier.show.view.json_out import SOLVE_SCHEMA, Tree, decision_json, number, tree_of
from frontier.show.view.rough import roughly
from frontier.show.view.sentences import (
    answer_parts,
    binding_parts,
    claim_sentence,
    half_undecided,
    headline,
    next_step_lines,
    production_lines,
)
from frontier.show.view.sla_notes import best_note, sla_notes
from frontier.show.view.wording import (
    NO_BOUND,
    NO_BOUND_LEGEND,
    VERDICT_WORDS,
    beside_limit,
    bound_text,
    flag_words,
    interval_text,
    limit_value_text,
    limits_text,
    value_text,
)

VERIFY_SCHEMA = "frontier.verify/1"
_STYLES = {Verdict.MEETS: "green", Verdict.VIOLATES: "red", Verdict.INVALID: "red"}
_LONGEST = 400


def answers_text(
    answers: Sequence[SlaResult],
    *,
    gpus: DeploymentGpus = None,
    detail: Detail = Detail.USUAL,
    width: int = 80,
    colour: bool = False,
) -> str:
    """The decisions of every tier, under its name where there are several, and what its shapes have
    in common.
    """
    blocks = []
    for tier in answers:
        first = [best_note(best) for best in tier.best]
        more = [note for note in sla_notes(tier) if note not in first]
        lines = [textwrap.fill(clean(text, _LONGEST), width) for text in first]
        lines.append(
            decision_table(tier.decisions, arrivals=tier.arrivals, gpus=gpus, detail=detail, width=width, colour=colour)
        )
        lines += [textwrap.fill(clean(text, _LONGEST), width) for text in more]
        if len(tier.decisions) > 1 and detail >= Detail.USUAL:
            lines += ["", to_text(summary(tier.decisions, gpus).drawn(width), width=width, colour=colour)]
        if len(answers) > 1:
            promise, name = limits_text(tier.limits), clean(tier.tier, 60)
            lines.insert(0, name if name == promise or "<" in name or ">" in name else f"{name}   {promise}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def decision_table(
    decisions: Sequence[Decision],
    *,
    arrivals: Mapping[Series, ArrivalRate] = MappingProxyType({}),
    gpus: DeploymentGpus = None,
    detail: Detail = Detail.USUAL,
    width: int = 80,
    colour: bool = False,
) -> str:
    """A table per decision: its sentence, the limited metrics with bound, limit and margin, and the
    lines on it.
    """
    series = [decision.series for decision in decisions]
    blocks = []
    for decision in decisions:
        lines = _decision(decision, series, (gpus or {}).get(decision.deployment), width)
        if detail >= Detail.USUAL:
            rows = answer_lines(decision, arrivals.get(decision.series), whole=detail is Detail.ALL)
            lines += [Text("")] * bool(rows) + [Table.of((), rows, right=()).drawn(width)] * bool(rows)
        blocks.append(to_text(*lines, width=width, colour=colour))
    return "\n\n".join(blocks) or "no decision"


_NOTHING = {Verdict.VIOLATES: "no setting meets", Verdict.INVALID: "nothing valid"}


def summary(decisions: Sequence[Decision], gpus: DeploymentGpus = None) -> Table:
    """Several decisions, a row each: where to run, the throughput there, and the limit that
    binds.
    """
    series, rows = [decision.series for decision in decisions], []
    for decision in decisions:
        name = decision.series.label(series, longest=40, keep_shape=True)
        of = (gpus or {}).get(decision.deployment)
        parts = answer_parts(decision, gpus=of)
        if decision.concurrency is None:  # why is in its own lines
            parts = (_NOTHING.get(decision.verdict, "none proven"), "", *binding_parts(decision, of))
        rows.append((name, *(part.partition(" (")[0] for part in parts)))
    return Table.of((), rows, right=(2,))


def answer_lines(decision: Decision, arrivals: ArrivalRate | None, *, whole: bool = True) -> list[tuple[str, str]]:
    """The lines of a decision, each with its label: why not more, where to set it, how sure it is,
    and the other reasons. With `whole`, also asides in lines of their own.
    """
    production = production_lines(decision, arrivals)
    lines = [("Why not more", " ".join(why_not_more(decision)))]
    # What is estimated of independent users is `frontier verify`'s to say.
    told = len(production) if decision.shape.arrivals is not None or decision.shape.has_sessions else 1
    lines += [("Where to set it", " ".join(production[:told]))]
    lines += [("", aside) for aside in production[told:] if whole]
    lines += [("How sure", claim_sentence(decision))]
    reasons = other_reasons(decision, whole=False)
    reasons += [reason for reason in other_reasons(decision) if whole and reason not in reasons]
    label = "Also" if decision.concurrency is not None else "Why"
    lines += [(label if i == 0 else "", reason) for i, reason in enumerate(reasons)]
    return [(name, text) for name, text in lines if text]


def _decision(decision: Decision, among: list[Series], gpus: int | None, width: int) -> list[RenderableType]:
    """The answer itself as lines."""
    name = decision.series.label(among, longest=40, keep_shape=True)
    line = clean(headline(decision, gpus), _LONGEST)
    gap = min(width, 100) - len(line) - len(name)
    # What may be far from the best is not green.
    style = f"bold {'yellow' if half_undecided(decision) else _STYLES.get(decision.verdict, 'yellow')}"
    head = [Text.assemble((line, style), " " * gap, name)] if gap >= 2 else [Text(name), Text(line, style=style)]
    lines: list[RenderableType] = [*head]
    # The throughput of an operating point stands in the headline, but a limit on it does not.
    stated = ("output_throughput",) if decision.concurrency is not None else ()
    rows: list[tuple[str, ...]] = [
        figure_row(figure, gpus) for figure in figures(decision) if figure.limit or figure.metric not in stated
    ]
    if rows and sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) > width:
        rows = [(label, value, ", ".join(filter(None, more))) for label, value, *more in rows]
    if rows:
        lines.append(indented(Table.of((), rows, right=(1,)).drawn(width)))
    if any(NO_BOUND in cell for row in rows for cell in row):
        lines.append(indented(NO_BOUND_LEGEND, "dim"))
    # Below the figures, which are of the setting in the headline: the step may be of another.
    words, command = next_step_lines(decision)
    lines += [Text(words)] if words else []
    lines += [Text(f"  {command}", no_wrap=True, overflow="ignore")] if command else []
    return lines


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
        "notes": list(sla_notes(tier)),
    }


def choice_json(decision: Decision) -> Tree:
    """The operating point that an answer is about, for JSON."""
    return {
        "deployment": decision.deployment,
        "shape": decision.shape.label,
        "concurrency": decision.concurrency,
    }


# --- open-loop checks


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
    head = (
        f"{VERDICT_WORDS[verdict]}, with Poisson arrivals at {format_number(checked.check.rate)} requests/s, "
        f"{share}the rate of {setting(decision.concurrency or 0)}   {decision.series.label(longest=40)}"
    )
    rows = [open_row(point, decision, limit, checked.judgement.binding) for limit in decision.limits]
    there = f"{format_number(checked.in_flight)} in flight or waiting on average"
    lines = [NO_BOUND_LEGEND] * any(NO_BOUND in cell for row in rows for cell in row)
    lines += [
        f"{point.n:,} requests, at most {checked.cap:,} in flight; what came beyond waited, which counts; {there}"
    ]
    lines += [clean(note, 300) for note in checked.notes]
    if not checked.notes:
        lines += [f"{flag_words(flag)}; {flag.advice}" for flag in point.fatal]
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
    """What would decide a check that is not proven, with the command for it."""
    if checked.judgement.need is None:
        return ["too close to the limit to decide at this rate; find the rate that holds:", f"  {again} --find"]
    load = "" if not checked.check.asked else f" --load {trimmed(format_number(checked.check.load * 100))}%"
    need = checked.judgement.need
    return [f"about {roughly(need)} requests would decide:", f"  {again}{load} --requests {need}"]


def open_row(point: Point, decision: Decision, limit: Limit, binds: str | None) -> tuple[str, ...]:
    """A limited metric: its value and bound in the open loop, its value in the closed loop, and its
    limit.
    """
    name = limit.metric
    here, there = point.metrics.get(name), decision.metrics.get(name)
    binding = ", the limit that binds" if name == binds else ""
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
