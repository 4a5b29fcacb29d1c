"""The answers of `frontier solve`, for a terminal and as JSON: each tier, each shape, and what is common to them."""

import textwrap
from collections.abc import Sequence
from typing import Any

from frontier.decide.capacity import ArrivalRate
from frontier.decide.sla_result import Answer
from frontier.decide.wording import clean, limits_text
from frontier.model import Decision
from frontier.report.json_out import SOLVE_SCHEMA, decision_json, limits_json, number
from frontier.report.tables import Gpus, decision_table
from frontier.units import format_number

_INDENT = 6


def answers_text(answers: Sequence[Answer], *, gpus: Gpus = None, width: int = 80, colour: bool = False) -> str:
    """Every tier under its name, where there are several."""
    blocks = []
    for found in answers:
        said = [decision_table(found.decisions, gpus=gpus, width=width, colour=colour)]
        said += [_note(text, width) for text in [*_arrivals(found), *found.notes]]
        if len(answers) > 1:
            promise = limits_text(found.limits)
            name = clean(found.tier, 60)
            said.insert(0, name if name == promise or "<" in name or ">" in name else f"{name}   {promise}")
        blocks.append("\n".join(said))
    return "\n\n".join(blocks)


def _note(text: str, width: int) -> str:
    lead = " " * _INDENT
    return textwrap.fill(clean(text, 400), width=width, initial_indent=lead, subsequent_indent=lead)


def _arrivals(found: Answer) -> list[str]:
    """What a gateway in front may plan on; once, for a single operating point."""
    if len(found.decisions) != 1 or not found.arrivals:
        return []
    (rate,) = found.arrivals.values()
    admits = f"per replica that admits at most {rate.cap} at once"
    said = f"Planned for requests that come at random: {format_number(rate.rate)} req/s {admits}."
    return [f"{said} An estimate from a closed loop; only an open-loop run proves it."]


def answers_json(answers: Sequence[Answer]) -> dict[str, Any]:
    """The answer of `frontier solve --json`: `shapes` and `common` are the first tier's, `tiers` has them all."""
    trees = [_answer(found) for found in answers]
    return {
        "schema": SOLVE_SCHEMA,
        "shapes": trees[0]["shapes"] if trees else [],
        "common": trees[0]["common"] if trees else {},
        "tiers": trees,
    }


def _answer(found: Answer) -> dict[str, Any]:
    return {
        "tier": found.tier,
        "limits": limits_json(found.limits),
        "shapes": [_decision(d, found.arrivals.get((d.deployment, d.shape))) for d in found.decisions],
        "common": dict(found.common),
        "cheapest": [
            {
                "deployment": c.decision.deployment,
                "shape": c.decision.shape.label,
                "concurrency": c.decision.concurrency,
                "sure": c.sure,
            }
            for c in found.cheapest
        ],
        "best": [
            {
                "deployment": b.decision.deployment,
                "shape": b.decision.shape.label,
                "concurrency": b.decision.concurrency,
                "rate": number(b.rate),
                "per_gpu": b.per_gpu,
                "sure": b.sure and not b.open,
                "open": list(b.open),
            }
            for b in found.best
        ],
        "notes": list(found.notes),
    }


def _decision(decision: Decision, rate: ArrivalRate | None) -> dict[str, Any]:
    tree = decision_json(decision)
    tree["arrival_rate"] = rate and {"cap": rate.cap, "streams": rate.streams, "rate": number(rate.rate)}
    return tree
