"""The highest rate that keeps the SLA in words and as JSON (`frontier verify --find`)."""

from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from frontier.core.claim.verdict import judge
from frontier.core.estimates import estimate
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.metrics import metric
from frontier.core.model.text import capital
from frontier.core.model.trials import Phase, Trial
from frontier.core.model.units import format_number
from frontier.core.window.window import WindowData
from frontier.extras.verify.checked_text import VERIFY_SCHEMA, open_json, open_row
from frontier.extras.verify.found_rates import FoundRate
from frontier.search.next_trial import Done
from frontier.search.rate_policy import invalid_because, rate_of
from frontier.show.table import Table, indented, to_text
from frontier.show.verbosity import Detail
from frontier.show.view.limit_lines import knob_sentence
from frontier.show.view.wording import count, limit_value_text, limits_text, value_text

LOWER = 0.8
"""The share of a rate that could not be proven at which to try instead."""


def load_trial_text(trial: Trial, data: WindowData, limits: Sequence[Limit]) -> str:
    """A finished trial of a search as one line: 'search  9.1 requests/s  p99 TTFT 84 ms, limit 130
    ms'.
    """
    verb = "prove" if trial.phase is Phase.PROVE else "search"
    point = estimate.point(data, names=[limit.metric for limit in limits], limits=tuple(limits))
    values = [
        f"{metric(limit.metric).label} {value_text(limit.metric, e.value)}, "
        f"limit {limit_value_text(limit.metric, limit.promise)}"
        for limit in limits
        if (e := point.metrics.get(limit.metric)) is not None
    ]
    invalid = invalid_because(data, tuple(limits))
    cut = "  ended early: clearly too much" if ended_early(data) else ""
    if invalid:
        cut = f"  not valid: {invalid}"
    return f"{verb:<6}  {format_number(rate_of(trial.load).per_second)} requests/s  {'; '.join(values)}{cut}"


def ended_early(data: WindowData) -> bool:
    """Whether a trial was ended as its outcome was clear."""
    return "interrupted" in data.ended


def found_text(
    found: Sequence[FoundRate], width: int = 100, *, again: str = "frontier verify", detail: Detail = Detail.USUAL
) -> str:
    """The highest rate of each operating point: how it was proven, what the next higher rate lacks,
    and the assumptions. Where all is asked for, also each trial of the search.
    """
    return "\n\n".join(_found(each, max(width, 80), again, detail) for each in found)


def _found(found: FoundRate, width: int, again: str, detail: Detail) -> str:
    """One answer as lines."""
    decision, done, cap = found.decision, found.done, found.policy.in_flight
    located = None if done.located is None else rate_of(done.located).per_second
    refused = None if done.refused is None else rate_of(done.refused[0]).per_second
    closed = f"the {format_number(found.policy.top)} requests/s of the closed loop at {cap:,} in flight"
    name = decision.series.label(longest=40)
    lines: list[RenderableType] = []
    if found.point is not None and found.loss is not None and found.proven is not None:
        rate = format_number(found.proven)
        lines.append(Text(f"{rate} requests/s proven, {found.loss:.0%} below {closed}   {name}"))
        binds = judge(found.point, decision.limits).binding
        rows = [open_row(found.point, decision, limit, binds) for limit in decision.limits]
        lines.append(indented(Table.of((), rows, right=(1,)).drawn(width)))
    elif done.verdict is Verdict.VIOLATES:
        lines.append(Text(f"No rate keeps {limits_text(decision.limits)} when requests arrive at random   {name}"))
        lines.append(Text(f"{done.reason}."))
    else:
        lines.append(Text(f"No rate is proven against {limits_text(decision.limits)}   {name}"))
        lines.append(Text(f"{capital(done.reason.removeprefix('no rate is proven: '))}."))
        if located is not None:
            lines.append(
                Text(f"By its values alone {format_number(located)} requests/s is within the SLA, of {closed}.")
            )
        tried = located or refused or found.policy.start
        lower = f"{LOWER * tried / found.policy.top:.0%}"
        lines += [Text("A lower rate may hold; this tries one:"), Text(f"  {again} --load {lower}")]
    if done.proven is not None and refused is not None and done.refused is not None:
        lines.append(Text(f"Next higher tried: {format_number(refused)} requests/s; {done.refused[1]}."))
    elif done.proven is not None:
        lines.append(Text("No higher rate was tried: nearer to the closed loop's the queue grows without end."))
    lines += [Text(line) for line in _assumed(found)]
    trials = [Text(load_trial_text(trial, data, decision.limits)) for trial, data in found.history]
    return to_text(*detail.of(lines[:2], lines[2:], trials), width=width)


def _assumed(found: FoundRate) -> list[str]:
    """The assumptions of the answer."""
    cap = count(found.policy.in_flight, "request")
    limit = knob_sentence(found.decision.engine, found.policy.in_flight, found.decision.ranks)
    holds = f"Holds for at most {cap} in flight: {limit}. Further requests waited, and their wait counted."
    sent = f"At most {cap} were in flight; further requests waited, and their wait counted."
    return [
        sent if found.done.proven is None else holds,
        f"Assumed: independent users (Poisson arrivals), {found.decision.shape.label} alone, a queue without a limit.",
    ]


def found_json(found: Sequence[FoundRate]) -> dict[str, Any]:
    """The answer of `frontier verify --find --json`: the fields of `verified_json`, and `find`."""
    return {"schema": VERIFY_SCHEMA, "shapes": [_found_json(each) for each in found]}


def _found_json(found: FoundRate) -> dict[str, Any]:
    """One answer."""
    decision, done, point = found.decision, found.done, found.point
    judged = judge(point, decision.limits) if point is not None else None
    proofs = [data for trial, data in found.history if trial.phase is Phase.PROVE and trial.load == done.proven]
    in_flight = [float(data.in_flight.mean()) for data in proofs]
    found_point = open_json(
        decision,
        point,
        judged.binding if judged is not None else None,
        [done.reason],
        rate=found.proven,
        load=None if found.proven is None else found.proven / found.policy.top,
        verdict=done.verdict.value,
        need=None,
        in_flight=sum(in_flight) / len(in_flight) if in_flight else None,
        most_in_flight=found.policy.in_flight,
    )
    return {
        **found_point,
        "find": {
            "closed_loop_rate": found.policy.top,
            "loss": found.loss,
            "located": None if done.located is None else rate_of(done.located).per_second,
            "next_higher": _refused_json(done),
            "assumed": _assumed(found),
            "trials": [
                {
                    "rate": rate_of(trial.load).per_second,
                    "phase": trial.phase.value,
                    "requests": trial.requests,
                    "ended_early": ended_early(data),
                }
                for trial, data in found.history
            ],
        },
    }


def _refused_json(done: Done) -> dict[str, Any] | None:
    """The lowest rate above the answer that was tried, and why it is not the answer."""
    return None if done.refused is None else {"load": rate_of(done.refused[0]).per_second, "reason": done.refused[1]}
