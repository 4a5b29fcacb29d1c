"""Notes on one SLA over several shapes or deployments, in sentences."""

import math
from collections.abc import Sequence

from frontier.core.model.loads import NO_LOAD, Load
from frontier.core.model.metrics import RATES, metric
from frontier.planning.sla_result import Best, SlaResult, decided_on_values
from frontier.show.view.background_view import background_note
from frontier.show.view.wording import named_value, unit_text, value_text

NAMED = 0.01
"""The share of lost throughput from which a note names it."""


def sla_notes(result: SlaResult) -> tuple[str, ...]:
    """Sentences about what is common to several shapes or deployments."""
    backgrounds = map(background_note, result.backgrounds)
    return (*backgrounds, *_common_notes(result), *map(best_note, result.best), *_cheapest_notes(result))


def _common_notes(result: SlaResult) -> list[str]:
    lines = []
    for deployment, c in result.common.items():
        mine = [d for d in result.decisions if d.deployment == deployment]
        where = f" on {deployment}" if len(result.common) > 1 else ""
        alone = ", ".join(f"{d.shape.label} {d.load if d.load is not None else 'none'}" for d in mine)
        if c is not None:
            lines.append(f"One concurrency for all shapes{where}: {c} (each alone: {alone}).")
        else:
            keeps = "keeps the SLA" if any(map(decided_on_values, mine)) else "is proven"
            lines.append(f"No concurrency measured {keeps} in every shape{where} (each alone: {alone}).")
        lines += _price(result, deployment, c)
    return lines


def _price(result: SlaResult, deployment: str, c: Load | None) -> list[str]:
    """What each shape loses at the common concurrency, or how to prove one."""
    command = result.commands.get(deployment)
    if c is None:
        return [] if command is None else [f"To prove one in all of them: {command}"]
    shares = result.given_up.get(deployment, {})
    named = [f"{label} {share:.0%}" for label, share in shares.items() if share > NAMED]
    return [f"Running everything at {c.label} costs {joined_names(named)} of its throughput."] if named else []


def _cheapest_notes(result: SlaResult) -> list[str]:
    lines = []
    for cheapest in result.cheapest:
        d = cheapest.decision
        price = value_text("cost", d.metrics["cost"].value)
        sure = "" if cheapest.sure else ", though within the intervals another may be"
        where = f"{d.deployment} at {(d.load or NO_LOAD).label}"
        lines.append(f"Cheapest answer for {d.shape.label}: {where}, {price}{sure}.")
    return lines


def best_note(best: Best, rate: str = "output_throughput") -> str:
    """The deployment with the most throughput, or most of another rate, as a sentence; and which
    others may still give more, or come closer.
    """
    undecided = [f"{name} may give more at {c.label}, which is not proven" for name, c in best.may_give]
    unit = 1 if best.per_gpu else None
    gives = ((name, c, named_value(rate, value, unit)) for name, c, value in best.closer)
    undecided += [f"{name} may give {value} at {c.label}, which is not proven" for name, c, value in gives]
    return " ".join([_winner(best, rate), *([f"{joined_names(undecided)}."] if undecided else [])])


def _winner(best: Best, rate: str) -> str:
    d = best.decision
    point = f"{named_value(rate, best.rate, 1 if best.per_gpu else None)} at {(d.load or NO_LOAD).label}"
    if best.by_values:
        apart = "more than" if best.sure else "about as much as"
        rest = f", {apart} {joined_names(best.others)}" if best.others else ""
        return f"By values alone, the most throughput for {d.shape.label}: {best.name}, {point}{rest}."
    if best.open:
        rest = f"of {joined_names(best.open)} no setting is proven, so which gives the most is open"
        if not best.others:
            return f"For {d.shape.label} only {best.name} is proven within the SLA, {point}; {rest}."
        return f"Most throughput proven for {d.shape.label}: {best.name}, {point}; {rest}."
    if not best.others:
        return f"For {d.shape.label} only {best.name} meets the SLA: {point}."
    rates = [named_value(rate, each, 1 if best.per_gpu else None) for each in (best.rate, best.second or 0.0)]
    if not best.sure:
        which = joined_names([best.name, *best.others], "or")
        most = f"the most proven is {rates[0]} by {best.name} at {(d.load or NO_LOAD).label}"
        return f"{d.shape.label}: whether {which} serves most within the SLA is not resolved; {most}."
    rival = best.others[0] + (f", the next best of {len(best.others) + 1}," if len(best.others) > 1 else "")
    more = serves_more(rate, best.rate / (best.second or math.nan), best.rate / (best.second or math.nan))
    unit = unit_text(rate, 1 if best.per_gpu else None) if metric(rate).unit in RATES else ""
    first = rates[0].removesuffix(f" {unit}")
    return f"{d.shape.label}: {best.name} {more} {rival} within the SLA, {first} against {rates[1]}."


TIMES = 2.0
"""The ratio from which one serves so many times as much, not so many percent more."""


def serves_more(rate: str, least: float, most: float) -> str:
    """'serves 68% more than', 'serves 28% to 36% more than', 'has 6.6 times as much goodput as': by
    ratios between these.
    """
    verb, what = ("serves", "") if metric(rate).unit in RATES else ("has", f" {metric(rate).label}")
    if most >= TIMES:
        ends = dict.fromkeys((f"{least:.2g}", f"{most:.2g}"))
        return f"{verb} {' to '.join(ends)} times as much{what} as"
    ends = dict.fromkeys((f"{least - 1:.0%}", f"{most - 1:.0%}"))
    return f"{verb} {' to '.join(ends)} more{what} than"


def joined_names(names: Sequence[str], last: str = "and") -> str:
    """'a, b and c'."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"
