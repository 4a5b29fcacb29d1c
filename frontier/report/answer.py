"""The answer on a terminal and as JSON: operating points (`frontier solve`) and their open-loop checks (`verify`)."""

import textwrap
from collections.abc import Sequence
from typing import Any, Protocol

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from frontier.decide.capacity import ArrivalRate
from frontier.decide.explain import figures
from frontier.decide.operating_point import Answer
from frontier.decide.wording import (
    HALF_UNDECIDED,
    NO_BOUND,
    NO_BOUND_LEGEND,
    bound_text,
    claim_sentence,
    clean,
    figure_row,
    flag_words,
    headline,
    limit_value_text,
    limits_text,
    next_step_lines,
    production_lines,
    reason_sentences,
    setting,
    value_text,
)
from frontier.metrics import metric
from frontier.model import Decision, Judgement, Limit, Point, Series, Verdict
from frontier.report.json_out import SOLVE_SCHEMA, Tree, decision_json, number, tree_of
from frontier.report.tables import Gpus, gpus_of, text_grid, to_text
from frontier.units import format_number, format_share

VERIFY_SCHEMA = "frontier.verify/1"
_STYLES = {Verdict.MEETS: "green", Verdict.VIOLATES: "red", Verdict.INVALID: "red"}
_LONGEST = 400


def answers_text(answers: Sequence[Answer], *, gpus: Gpus = None, width: int = 80, colour: bool = False) -> str:
    """Every tier's decisions, under its name where there are several, and what is common to its shapes."""
    blocks = []
    for tier in answers:
        first = [best.note for best in tier.best]
        more = [*_production(tier), *(note for note in tier.notes if note not in first)]
        lines = [textwrap.fill(clean(text, _LONGEST), width) for text in first]
        lines += [decision_table(tier.decisions, gpus=gpus, width=width, colour=colour)]
        lines += [textwrap.fill(clean(text, _LONGEST), width) for text in more]
        if len(answers) > 1:
            promise, name = limits_text(tier.limits), clean(tier.tier, 60)
            lines.insert(0, name if name == promise or "<" in name or ">" in name else f"{name}   {promise}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _production(tier: Answer) -> list[str]:
    """What the answer means in production, where it is a single operating point."""
    if len(tier.decisions) != 1:
        return []
    (decision,) = tier.decisions
    return production_lines(decision, tier.arrivals.get(decision.series))


def decision_table(decisions: Sequence[Decision], *, gpus: Gpus = None, width: int = 80, colour: bool = False) -> str:
    """Each decision: its sentence, the figures it stands on with bound and limit, and the reasons."""
    blocks: list[RenderableType] = []
    series = [decision.series for decision in decisions]
    for decision in decisions:
        blocks += [Text("")] if blocks else []
        blocks += _decision(decision, series, gpus_of(gpus, decision.deployment), width)
    return to_text(*blocks, width=width, colour=colour) if blocks else "no decision"


def _decision(decision: Decision, among: list[Series], gpus: int | None, width: int) -> list[RenderableType]:
    """One decision as lines."""
    name = decision.series.label(among, longest=40, keep_shape=True)
    line = clean(headline(decision, gpus), _LONGEST)
    gap = min(width, 100) - len(line) - len(name)
    # What may be far from the best is not green.
    open_half = decision.next_step is not None and (decision.next_step.gain or 0.0) >= HALF_UNDECIDED
    style = f"bold {'yellow' if open_half else _STYLES.get(decision.verdict, 'yellow')}"
    head = [Text.assemble((line, style), " " * gap, name)] if gap >= 2 else [Text(name), Text(line, style=style)]
    lines: list[RenderableType] = [*head]
    words, command = next_step_lines(decision)
    lines += [Text(words)] if words else []
    lines += [Text(f"  {command}", no_wrap=True, overflow="ignore")] if command else []
    rows: list[tuple[str, ...]] = [figure_row(figure, gpus) for figure in figures(decision)]
    if rows and sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) > width:
        brief = [figure_row(figure, gpus, brief=True) for figure in figures(decision)]
        rows = [(label, value, ", ".join(filter(None, more))) for label, value, *more in brief]
    if rows:
        lines.append(Padding(text_grid(rows, right=(1,)), (0, 0, 0, 2)))
    if any(NO_BOUND in cell for row in rows for cell in row):
        lines.append(Padding(Text(NO_BOUND_LEGEND, style="dim"), (0, 0, 0, 2)))
    claim = claim_sentence(decision)
    return [*lines, *([Text(claim)] if claim else []), *map(Text, reason_sentences(decision))]


def answers_json(answers: Sequence[Answer]) -> Tree:
    """The answer of `frontier solve --json`: `shapes` and `common` are the first tier's, `tiers` has them all."""
    trees = [_answer_json(tier) for tier in answers]
    return {
        "schema": SOLVE_SCHEMA,
        "shapes": trees[0]["shapes"] if trees else [],
        "common": trees[0]["common"] if trees else {},
        "tiers": trees,
    }


def _answer_json(tier: Answer) -> Tree:
    """One tier."""
    return {
        "tier": tier.tier,
        "limits": tree_of(tier.limits),
        "shapes": [_decision_json(d, tier.arrivals.get(d.series)) for d in tier.decisions],
        "common": dict(tier.common),
        "cheapest": [{**_choice_json(c.decision), "sure": c.sure} for c in tier.cheapest],
        "best": [
            {
                **_choice_json(b.decision),
                "rate": number(b.rate),
                "per_gpu": b.per_gpu,
                "sure": b.sure and not b.open and not b.may_give,
                "open": list(dict.fromkeys([*b.open, *(name for name, _ in b.may_give)])),
            }
            for b in tier.best
        ],
        "notes": list(tier.notes),
    }


def _choice_json(decision: Decision) -> Tree:
    """Which operating point is meant."""
    return {
        "deployment": decision.deployment, "shape": decision.shape.label, "concurrency": decision.concurrency,
    }  # fmt: skip


def _decision_json(decision: Decision, rate: ArrivalRate | None) -> Tree:
    """A decision with the rate of Poisson arrivals to plan with."""
    return {**decision_json(decision), "arrival_rate": tree_of(rate)}


# --- open-loop checks


class Check(Protocol):
    """The operating point that was checked, the rate it was sent, and the share of its own rate that this is."""

    @property
    def decision(self) -> Decision: ...
    @property
    def rate(self) -> float: ...
    @property
    def load(self) -> float: ...


class Checked(Protocol):
    """What a check measured, and the verdict."""

    @property
    def check(self) -> Check: ...
    @property
    def point(self) -> Point: ...
    @property
    def judgement(self) -> Judgement: ...
    @property
    def in_flight(self) -> float: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


def verified_text(checks: Sequence[Checked], width: int = 100) -> str:
    """Each check: the verdict, then every limited metric in the open loop beside the closed loop."""
    return "\n\n".join(_verified(checked, width) for checked in checks)


def _verified(checked: Checked, width: int) -> str:
    """One check as lines."""
    decision, point, verdict = checked.check.decision, checked.point, checked.judgement.verdict
    share = "" if checked.check.load == 1.0 else f"{format_share(checked.check.load)} of "
    head = (
        f"{verdict.headline:<5} with Poisson arrivals at {format_number(checked.check.rate)} requests/s, "
        f"{share}the rate of {setting(decision.concurrency or 0)}   {decision.series.label(longest=40)}"
    )
    rows = [_verified_row(checked, limit) for limit in decision.limits]
    lines = [f"{point.n:,} requests, {format_number(checked.in_flight)} in flight on average"]
    lines += [clean(note, 300) for note in checked.notes]
    if not checked.notes:
        lines += [f"{flag_words(flag)}; {flag.advice}" for flag in point.flags if flag.fatal]
    if verdict is Verdict.VIOLATES:
        lines.append("find the rate that holds with less load:  frontier verify --load 80%")
    elif verdict in (Verdict.UNPROVEN, Verdict.MARGINAL):
        more = f"about {checked.judgement.need:,} requests" if checked.judgement.need else "more requests"
        lines.append(f"{more} would decide:  frontier verify --requests N")
    table = Padding(text_grid(rows, right=(1,)), (0, 0, 0, 2))
    return to_text(Text(head), table, *(Padding(Text(line), (0, 0, 0, 2)) for line in lines), width=max(width, 80))


def _verified_row(checked: Checked, limit: Limit) -> tuple[str, ...]:
    """A limited metric: its value and bound in the open loop, its value in the closed loop, and its limit."""
    name = limit.metric
    here, there = checked.point.metrics.get(name), checked.check.decision.metrics.get(name)
    binding = ", binding" if name == checked.judgement.binding else ""
    return (
        metric(name).label, value_text(name, here.value) if here is not None else "not measured",
        bound_text(here, limit) if here is not None else "",
        f"closed loop {value_text(name, there.value)}" if there is not None else "",
        f"limit {limit_value_text(name, limit.promise)}{binding}",
    )  # fmt: skip


def verified_json(checks: Sequence[Checked]) -> dict[str, Any]:
    """The answer of `frontier verify --json`."""
    return {
        "schema": VERIFY_SCHEMA,
        "shapes": [
            {
                **_choice_json(each.check.decision),
                "rate": number(each.check.rate),
                "load": number(each.check.load),
                "verdict": each.judgement.verdict.value,
                "binding": each.judgement.binding,
                "need": each.judgement.need,
                "in_flight": number(each.in_flight),
                "metrics": tree_of(each.point.metrics),
                "closed_loop": tree_of(each.check.decision.metrics),
                "flags": [flag.name for flag in each.point.flags],
                "notes": [*each.notes, *each.point.notes],
            }
            for each in checks
        ],
    }
