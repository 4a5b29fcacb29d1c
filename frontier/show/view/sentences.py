"""A decision in sentences: headline, next step, claim, and its meaning in production. The reasons
are in `explain`; callers lay the sentences out.
"""

import math
from collections.abc import Sequence

from frontier.core.model.decisions import Cause, Decision, EndedEarly, NextStep, Reason, Verdict
from frontier.core.model.loads import NO_LOAD, Rate, listed
from frontier.core.model.metrics import fewest_to_bound, metric
from frontier.core.model.points import Frontier, Point
from frontier.core.model.text import clean
from frontier.core.model.units import format_elapsed, format_number, format_seconds, trimmed
from frontier.planning.alike import alike, is_clear
from frontier.planning.next_step import busy_settings, spoilt_settings
from frontier.planning.sla_result import ArrivalRate
from frontier.show.view.figures import figure_row, tightest_figure
from frontier.show.view.limit_lines import knob_sentence, room_sentence
from frontier.show.view.rough import date_text, format_rough, roughly
from frontier.show.view.wording import (
    VERDICT_WORDS,
    bound_text,
    ci_text,
    count,
    flag_figures,
    flag_kind,
    flag_words,
    limit_value_text,
    limits_text,
    load_words,
    named_value,
    told,
    value_text,
)

HALF_UNDECIDED = 1.0
"""The possible gain from which half of the throughput or more is still undecided."""


def half_undecided(decision: Decision) -> bool:
    """Whether a setting that is not proven may give twice the operating point's throughput, or
    more.
    """
    step = decision.next_step
    return step is not None and (step.gain or 0.0) >= HALF_UNDECIDED


def decision_sentence(decision: Decision, *, throughput: str = "output_throughput", gpus: int | None = None) -> str:
    """The decision with its numbers as one sentence: the title of the picture and of the page."""
    if decision.load is None:
        return headline(decision)
    figure, speed = tightest_figure(decision), decision.metrics.get(throughput)
    rate = f": {named_value(throughput, speed.value, gpus)}" if speed else ""
    tail = ""
    if figure and figure.limit and figure.metric != throughput:
        word = "limit" if figure.limit.better == "lower" else "at least"
        value = named_value(figure.metric, figure.estimate.value)
        tail = f" with {value} ({word} {limit_value_text(figure.metric, figure.limit.promise)})"
    return _with_better(decision, f"{rate}{tail}")


def answer_cells(decision: Decision, throughput: str = "output_throughput", gpus: int | None = None) -> tuple[str, ...]:
    """An answer in columns, to stand beside others: where to run, the throughput there, the value
    that is tightest, its bound and its limit. Without an operating point they are of the nearest
    setting.
    """
    figure, where, rate = tightest_figure(decision), _NO_ANSWER.get(decision.verdict, "none proven"), ""
    if decision.load is not None:
        where, speed = f"run at {decision.load.label}", decision.metrics.get(throughput)
        rate = "–" if speed is None else named_value(throughput, speed.value, gpus)
    elif decision.candidate is not None:
        where = f"{where}; nearest {decision.candidate.label}"
    if figure is None or figure.limit is None:
        return (where, rate)
    label, value, _, limit, _ = figure_row(figure, gpus)
    return (where, rate, f"{label} {value}", bound_text(figure.estimate, figure.limit), limit)


_NO_ANSWER = {Verdict.VIOLATES: "no setting meets", Verdict.INVALID: "nothing valid"}


def how_close(reason: Reason, wide: str, close: str, failed: str) -> str:
    """The word for why no reasonable number of requests decides: the bound is too wide, or the
    value is too close to its limit, or infinite.
    """
    if reason.estimate is not None and math.isinf(reason.estimate.value):
        return failed
    return wide if is_clear(reason) else close


def undecided_words(reason: Reason) -> str:
    """Why no reasonable number of requests decides, or how many seem too many."""
    limit, estimate = reason.limit, reason.estimate
    if reason.cause is Cause.NO_INTERVAL and estimate is not None and not estimate.has_interval:
        return "it has no interval; --point-estimates decides on its value alone"
    decides = "" if reason.need is None else f"about {roughly(reason.need)} requests"
    if limit is not None and estimate is not None and math.isfinite(estimate.value) and limit.breaks(estimate.value):
        proof = f"; to prove that takes {decides}" if decides and reason.cause is not Cause.TOO_FEW else ""
        return f"its value is over the limit{proof}"
    close = how_close(reason, "its bound is too wide", "it is too close to its limit", "too many requests fail")
    failing = estimate is not None and math.isinf(estimate.value)
    why = "its requests are too much alike" if reason.cause is Cause.TOO_FEW and not failing else close
    return f"{why}; it needs {decides}" if decides else f"{why} to decide in reasonable time"


_NEEDS = {
    Cause.CROSSES: "{label} {needs}",
    Cause.TOO_FEW: "{label} {needs}",
    Cause.NO_INTERVAL: "no interval",
    Cause.STALE: "the server changed since",
    Cause.DOUBTED: "to be proven anew",
    Cause.GROWS: "{label} grows",
}


def reason_words(reason: Reason) -> str:
    """The verdict of a setting in a few words, one of VERDICT_WORDS first."""
    label = metric(reason.metric).label if reason.metric else ""
    limit, estimate = reason.limit, reason.estimate
    over = limit.of.label if limit is not None and estimate is not None and limit.breaks(estimate.value) else ""
    over = "" if reason.cause in (Cause.STALE, Cause.DOUBTED) else over  # its values are of another time
    if reason.cause in (Cause.SCANNED, Cause.NOT_JUDGED):
        looked = "to compare" if reason.compared else "quick look"
        return f"over {over} ({looked})" if over else f"not proven ({looked})"
    word = VERDICT_WORDS[reason.verdict or Verdict.UNPROVEN]
    if reason.verdict is Verdict.VIOLATES:
        return f"{word} {label}"
    if reason.cause not in _NEEDS or reason.verdict is Verdict.MEETS:
        return word
    if reason.cause is Cause.NO_INTERVAL and reason.estimate is not None:
        return f"{word}: {f'over {over}' if over else 'within'} by value only"
    hopeless = reason.need is None or reason.cut == EndedEarly("given_up")
    if hopeless and any(flag.name == "client_bound" for flag in reason.flags):
        return f"{word}: this machine was busy"  # which may be why a value is over its limit
    if over:
        return f"{word}: {over} is probably over its limit"
    close = how_close(reason, "has too wide a bound", "is too close to its limit", "is infinite, as requests failed")
    few = "rests on requests too much alike" if reason.cause is Cause.TOO_FEW else close
    needs = few if reason.need is None else f"needs about {roughly(reason.need)} requests"
    return f"{word}: {_NEEDS[reason.cause].format(label=label, needs=needs)}"


def headline(decision: Decision, gpus: int | None = None) -> str:
    """The decision with its throughput, above the limited metrics: 'Run at concurrency 64: 2,888
    tok/s (95% CI 2,877 to 2,899)'.

    A setting that is not proven and may give clearly more is named too; it comes first where half
    of the throughput or more is at stake.
    """
    if decision.load is not None:
        speed = decision.metrics.get("output_throughput")
        rate = ""
        if speed is not None:
            ci = ci_text("output_throughput", speed, gpus)
            rate = f": {value_text('output_throughput', speed.value, gpus)} ({ci})"
        return _with_better(decision, rate)
    if spoilt := spoilt_settings(decision):
        busy = next(flag for flag in spoilt[-1].flags if flag.name == "client_bound")
        return f"No answer, as {flag_words(busy).partition('; ')[0]}"
    if decision.verdict is Verdict.INVALID:
        fails = decision.first_fail
        below = "to decide by" if fails is None else f"below {fails.label}, which violates the SLA"
        kinds = {flag_kind(flag.name) for r in decision.explanation.reasons for flag in told(r.flags)}
        return f"No valid measurement {below}" + (f": {kinds.pop()}" if len(kinds) == 1 and fails is None else "")
    meets = "meets" if decision.verdict is Verdict.VIOLATES else "is proven to meet"
    what = f"{meets} {limits_text(decision.limits)}"
    for flag in decision.next_step.widened[:1] if decision.next_step is not None else ():
        what = f"is proven, as {flag_kind(flag.name)}"
    nearest = "" if decision.candidate is None else f"; nearest: {decision.candidate.label}"
    return _corrected(decision, f"No setting {what}{nearest}")


def _with_better(decision: Decision, numbers: str) -> str:
    """'Run at concurrency 16 (1,447 tok/s). c=32 may give 27% more', with these numbers of the
    operating point.
    """
    asked = "" if decision.verdict is Verdict.MEETS else " (not proven, accepted as asked)"
    at, step = load_words(decision.load or NO_LOAD, decision.shape), decision.next_step
    if step is not None and half_undecided(decision):
        half = f"More than half of the throughput is undecided: {may_give(step)}"
        word = "Accepted" if asked else "Proven"
        numbers = numbers.replace(": ", ", ", 1) if numbers.startswith(": ") else numbers
        return _corrected(decision, f"{half}. {word} so far: {at}{numbers}")
    better = f". {may_give(step)}" if step is not None else ""
    return _corrected(decision, f"Run at {at}{asked}{numbers}{better}")


def _corrected(decision: Decision, text: str) -> str:
    """The text, worded as a correction where a later visit contradicted the proof."""
    if decision.claim is None or not decision.claim.corrected:
        return text
    return f"Corrected: {text[0].lower()}{text[1:]}"


def may_give(step: NextStep) -> str:
    """'c=32 may give 27% more', 'c=32 was excluded (requests came in waves) and measured again may
    give 27% more'.
    """
    gain = "may keep the SLA" if step.gain is None else f"may give {step.gain:.0%} more"
    if step.tail is not None and step.gain is not None:
        name, share = step.tail
        gain = f"may give {1 + step.gain:.0%} of it at {share:.0%} of the {metric(name).label}"
    if not step.flags:
        return f"{step.load.label} {gain}"
    why = "; ".join(dict.fromkeys(flag_kind(flag.name) for flag in told(step.flags)))
    return f"{step.load.label} was excluded ({why}) and measured again {gain}"


def next_step_words(decision: Decision) -> str:
    """What would decide the setting that may be a better answer, to stand before the command:
    'about 3 min (1,300 requests) would decide'. '' without such a setting.
    """
    step = decision.next_step
    if step is None:
        return ""
    why = _cause_words(decision, step)
    return f"{why}{_would_decide(decision, step)}"


def _cause_words(decision: Decision, step: NextStep) -> str:
    """What else than the setting itself is why it is not proven, and what to do: 'this machine was
    busy ...; on an idle core '. '' for nothing else.
    """
    for flag in step.widened:
        return f"{flag_kind(flag.name)} ({flag_figures(flag)}), which widened its bounds; on an idle core "
    if any(flag.name == "client_bound" for flag in step.flags):
        return "on an idle machine "
    flags = (flag for r in decision.explanation.settings for flag in r.flags)
    if decision.load is None and any(flag.name == "client_bound" and flag.fatal for flag in flags):
        return "this machine was busy, which spoilt other settings; on an idle machine "
    reason = next((r for r in decision.explanation.settings if r.settings == (step.load,)), None)
    if reason is None and step.gain is not None and step.throughput is None:
        return "the server may be full from there on; "
    if reason is not None and reason.cause in _SINCE:
        return _SINCE[reason.cause]
    cut = reason.cut.by if reason is not None and reason.cut is not None else ""
    same = "" if reason is None else alike(reason)
    vary = "with outputs of several lengths " if step.requests is None and step.command is not None else ""
    return f"its requests {same}; {vary or _ENDED.get(cut, '')}" if same else _ENDED.get(cut, "")


_SINCE = {
    Cause.STALE: "the server changed after it was measured; ",
    Cause.DOUBTED: "a higher setting later showed a tail that its data rule out; ",
}
_ENDED = {
    "busy": "this machine was too busy; ",
    "budget": "the budget ended its proof; ",
    "server_lost": "the server was lost in its proof; ",
}


def _would_decide(decision: Decision, step: NextStep) -> str:
    """'about 3 min (1,300 requests) would decide', or why no number would."""
    if step.widened and step.requests is None:
        return "a run of its own would decide"
    own = step.command is not None and not step.command.startswith("frontier ")  # of an import's tool
    if step.command is not None and step.seconds is None and not own:
        return "a sweep would decide"
    if step.requests is None:
        why = (reason for reason in decision.explanation.settings if reason.settings == (step.load,))
        return undecided_words(next(why, Reason(Cause.CROSSES, (step.load,))))
    amount = f"{roughly(step.requests)} requests"
    if step.seconds is None:
        return f"about {amount} would decide"
    return f"about {format_rough(step.seconds)} ({amount}) would decide"


def next_step_lines(decision: Decision) -> tuple[str, str]:
    """The next step below a headline: what would decide, as a sentence, and the command; '' for a
    missing one.
    """
    step, words = decision.next_step, next_step_words(decision)
    if step is None and decision.load is not None and (busy := busy_settings(decision)):
        excluded = listed([each.settings[0] for each in busy])
        return f"{excluded} excluded, as this machine was busy: a higher setting may be better.", ""
    if step is None:
        return "", ""
    command = clean(step.command, 4000) if step.command else ""
    if spoilt := spoilt_settings(decision):
        nearest = "" if decision.candidate is None else f", and {decision.candidate.label} is not proven"
        excluded = listed([each.settings[0] for each in spoilt])
        return (
            f"{excluded} excluded{nearest}. On an idle machine or core, measure anew{':' if command else '.'}",
            command,
        )
    head = may_give(step) if step.gain is None else step.load.label
    return f"{head}: {words}{':' if command else '.'}", command


def no_sla_sentence(points: Sequence[Point], frontier: Frontier, gpus: int | None = None) -> str:
    """The sentence without an SLA: nothing is to be proven, and the frontier is the answer."""
    members = sorted(frontier.members)
    if not members:
        return "No SLA, so nothing is to be proven; no setting is on the frontier."
    across, up = frontier.objectives[1], frontier.objectives[0]
    on = [p for p in points if p.load in members]
    best = max(on, key=lambda p: metric(up).sign * p.metrics[up].value)
    most = f"{named_value(up, best.metrics[up].value, gpus)} with {named_value(across, best.metrics[across].value)}"
    where = listed(members)
    most = f"{most} at {best.load.label}"
    return f"No SLA, so nothing is to be proven. The frontier of {_axes(frontier)} is {where}; the most is {most}."


def frontier_sentence(frontier: Frontier) -> str:
    """'On the frontier of output throughput against p95 TPOT: c=1, 8, 52', with its axes."""
    members = listed(sorted(frontier.members)) if frontier.members else "no setting"
    return f"On the frontier of {_axes(frontier)}: {members}."


def _axes(frontier: Frontier) -> str:
    """'output throughput against p95 TPOT'."""
    return " against ".join(metric(name).label.partition(" (")[0] for name in frontier.objectives)


def next_step_note(decision: Decision) -> str:
    """The next step as one sentence, with its command: 'c=32 may give 27% more (1,447 tok/s): about
    3 min ...: ...'.
    """
    step = decision.next_step
    if step is None:
        return ""
    rate = "" if step.throughput is None else f" ({value_text('output_throughput', step.throughput)})"
    way = f": {step.command}" if step.command else "."
    return f"{may_give(step)}{rate}: {next_step_words(decision)}{way}"


_FIRST_DATE = 1e9
"""Times before this (2001) are no dates: virtual time counts from 0."""


def claim_sentence(decision: Decision) -> str:
    """The confidence, how long the operating point was measured, and how rare a stall of the whole
    server must be to go unseen. '' without a claim.

    A stall hits all requests in flight, so the measured time is counted in times of one request.
    """
    claim = decision.claim
    if claim is None or decision.verdict is Verdict.INVALID:
        return ""
    requests = count(max((e.n for e in decision.metrics.values()), default=0), "request")
    when = "" if claim.until is None or claim.until < _FIRST_DATE else f" Last measured {date_text(claim.until)} UTC."
    e2e = decision.metrics.get("mean_e2e")
    each = e2e.value if e2e is not None and math.isfinite(e2e.value) else None

    def length(times: int) -> str:
        if each is None:
            return count(times, "request lifetime")
        return format_elapsed(times * each) if times * each >= 1 else format_seconds(times * each)

    one_in = max(1, math.floor(1 / claim.unseen_share + 1e-9))
    every = length(one_in)
    if claim.stage == "final":
        stall = f"a server-wide stall every {every} or more often would have been seen"
    elif one_in > 1:
        stall = f"a server-wide stall rarer than every {every} may have been missed"
    else:
        stall = "server-wide stalls may have been missed"
    enough = max((fewest_to_bound(limit.of.p) for limit in decision.limits if limit.of.p is not None), default=0)
    late = "; slow requests come in bursts, and more time shows how often"
    sure = "95%, from " if decision.verdict is Verdict.MEETS else ""
    measured = f"{sure}{requests} in {length(claim.turns)}"
    return f"{measured}; {stall}{late if claim.stage != 'final' and claim.turns >= enough else ''}.{when}"


def production_lines(decision: Decision, arrivals: ArrivalRate | None) -> list[str]:
    """The lines of an operating point in production: how to enforce it, and how many requests of
    independent users it takes.
    """
    if decision.load is None:
        return []
    if isinstance(decision.load, Rate):
        return _rate_in_production(decision, decision.load, arrivals)
    if decision.shape.has_sessions:
        return _sessions_in_production(decision, decision.load)
    where = knob_sentence(decision.engine, decision.load, decision.ranks)
    lines = [f"At most {count(decision.load, 'request')} in flight: {where}."]
    if arrivals is not None:
        rate = trimmed(format_number(arrivals.rate))
        lines.append(
            f"Independent users (Poisson arrivals): about {rate} requests/s with that limit, an estimate that "
            "frontier verify checks."
        )
    return lines


def _rate_in_production(decision: Decision, rate: Rate, arrivals: ArrivalRate | None) -> list[str]:
    """As `production_lines`, for a rate. Only the engine limited the requests in flight when it was
    measured, so a limit must leave room for as many as there were.
    """
    most = f"{rate.bare} {rate.arrivals}"
    if decision.shape.has_sessions:
        most += f" ({trimmed(format_number(rate.per_second * decision.shape.requests))} requests/s)"
    needs = []
    if arrivals is not None:
        room = f"It needs room for {count(arrivals.cap, 'request')} in flight, the most there were"
        needs = [f"{room} in the server and its queue: set no lower limit at your gateway."]
    return [
        f"At most {most} of {decision.shape.arrivals} arrivals at one replica; latency counts from the arrival.",
        *needs,
        "Limit the rate at your gateway, or scale out before it: replicas = peak rate / this rate, rounded up.",
    ]


def _sessions_in_production(decision: Decision, sessions: int) -> list[str]:
    """As `production_lines`, for sessions: a gateway limits their number, not an engine."""
    rate, e2e = decision.metrics.get("request_throughput"), decision.metrics.get("mean_e2e")
    busy = ""
    if rate is not None and e2e is not None and math.isfinite(e2e.value):  # Little's law
        busy = f"; {format_number(rate.value * e2e.value)} requests were in flight on average"
    return [
        f"At most {count(sessions, 'session')} open at a time, think times included{busy}.",
        f"Limit the sessions at your gateway. {room_sentence(decision.engine, sessions)}",
    ]
