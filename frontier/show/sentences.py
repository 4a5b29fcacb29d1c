"""A decision in sentences: headline, next step, claim, reasons, figures, and what it means in
production.

Every function here renders the causes of `decide.causes`; none decides anything. Layout belongs to
the medium.
"""

import dataclasses
import math
from collections.abc import Sequence

from frontier.decide.causes import UNDECIDED
from frontier.decide.knobs import knob_sentence
from frontier.decide.traffic import shares_sentence
from frontier.decide.users import ArrivalRate
from frontier.metrics import fewest_to_bound, metric
from frontier.model import Cause, Cut, Decision, Flag, Frontier, NextStep, Point, Rate, Reason, Verdict, in_words
from frontier.show.explain import Figure, half_undecided, tightest_figure
from frontier.show.wording import (
    bound_text,
    ci_text,
    clean,
    count,
    evidence_text,
    flag_kind,
    flag_words,
    limit_value_text,
    limits_text,
    named_value,
    setting,
    unproven_words,
    value_text,
)
from frontier.stats import cost_energy
from frontier.units import date_text, format_elapsed, format_number, roughly, trimmed


def decision_sentence(decision: Decision, *, throughput: str = "output_throughput", gpus: int | None = None) -> str:
    """The decision with its numbers as one sentence: the title of the picture and of the page."""
    figure, at = tightest_figure(decision), _nearest_value(decision)
    if decision.concurrency is not None:
        speed = decision.metrics.get(throughput)
        rate = f": {named_value(throughput, speed.value, gpus)}" if speed else ""
        tail = ""
        if figure and figure.limit and figure.metric != throughput:
            word = "limit" if figure.limit.better == "lower" else "at least"
            value = named_value(figure.metric, figure.estimate.value)
            tail = f" with {value} ({word} {limit_value_text(figure.metric, figure.limit.promise)})"
        return _with_better(decision, f"{rate}{tail}")
    if decision.verdict is Verdict.INVALID:
        return "No valid measurement to decide by"
    promise = limits_text(decision.limits)
    if decision.verdict is Verdict.VIOLATES:
        return _corrected(decision, f"No setting meets {promise}" + (f": nearest is {at}" if at else ""))
    why = "its interval crosses the limit"
    if decision.verdict is Verdict.UNPROVEN:
        why = f"it has {_too_few(decision, figure)}" if figure else "its limit was not measured"
    return _corrected(decision, f"No setting is proven to meet {promise}" + (f": {at}; {why}" if at else ""))


def brief_sentence(decision: Decision, *, throughput: str = "output_throughput", gpus: int | None = None) -> str:
    """The same in few words, where several stand beside each other."""
    figure = tightest_figure(decision)
    tail = named_value(figure.metric, figure.estimate.value) if figure else ""
    if decision.concurrency is not None:
        speed = decision.metrics.get(throughput)
        values = [named_value(throughput, speed.value, gpus)] if speed else []
        better = f"; {may_give(decision.next_step)}" if decision.next_step is not None else ""
        return f"run at {decision.concurrency}: " + ", ".join([*values, tail] if tail else values) + better
    words = {Verdict.VIOLATES: "no setting meets the SLA", Verdict.INVALID: "nothing valid"}
    word = words.get(decision.verdict, "not proven")
    if decision.candidate is None or decision.verdict is Verdict.INVALID:
        return word
    if decision.verdict is Verdict.UNPROVEN:
        return f"{word}: {setting(decision.candidate)} has {_too_few(decision, figure)}"
    return f"{word}; nearest {setting(decision.candidate)}, {tail}".rstrip(", ")


def _too_few(decision: Decision, figure: Figure | None) -> str:
    """Why the candidate is not proven: '601 of about 1,280 requests'."""
    if (grows := _grows(decision)) is not None:
        return f"{grows.metric and metric(grows.metric).label} that grows {grows.growth or 0.0:.0%} a minute"
    judged = decision.judgement(decision.candidate)
    return unproven_words(figure.estimate if figure else None, judged.need if judged else None)


def _grows(decision: Decision) -> Reason | None:
    """That a latency grows at the candidate past its limit, where it does."""
    settings = decision.explanation.settings
    return next((r for r in settings if r.cause is Cause.GROWS and r.settings == (decision.candidate,)), None)


def headline(decision: Decision, gpus: int | None = None) -> str:
    """The decision without numbers, above a table of them: 'Run at concurrency 64'. Where a setting
    that is not proven may give clearly more, that is said with it; first, where it is half of the
    throughput or more.
    """
    if decision.concurrency is not None:
        speed = decision.metrics.get("output_throughput")
        rate = f" ({value_text('output_throughput', speed.value, gpus)})" if speed and decision.next_step else ""
        return _with_better(decision, rate)
    if decision.verdict is Verdict.INVALID:
        return "No valid measurement to decide by"
    meets = "meets" if decision.verdict is Verdict.VIOLATES else "is proven to meet"
    nearest = "" if decision.candidate is None else f"; nearest: {setting(decision.candidate)}"
    return _corrected(decision, f"No setting {meets} {limits_text(decision.limits)}{nearest}")


def _with_better(decision: Decision, numbers: str) -> str:
    """'Run at concurrency 16 (1,447 tok/s). c=32 may give 27% more', with these numbers of the
    operating point.
    """
    asked = "" if decision.verdict is Verdict.MEETS else " (not proven, accepted as asked)"
    at, step = in_words(decision.concurrency or 0), decision.next_step
    if step is not None and half_undecided(decision):
        half = f"More than half of the throughput is undecided: {may_give(step)}"
        word = "Accepted" if asked else "Proven"
        numbers = numbers.replace(": ", ", ", 1) if numbers.startswith(": ") else numbers
        return _corrected(decision, f"{half}. {word} so far: {at}{numbers}")
    better = f". {may_give(step)}" if step is not None else ""
    return _corrected(decision, f"Run at {at}{asked}{numbers}{better}")


def _corrected(decision: Decision, text: str) -> str:
    """The text, as a correction where a later visit contradicted what was proven."""
    if decision.claim is None or not decision.claim.corrected:
        return text
    return f"Corrected: {text[0].lower()}{text[1:]}"


def may_give(step: NextStep) -> str:
    """'c=32 may give 27% more', 'c=32 was excluded (requests came in waves) and measured again may
    give 27% more'.
    """
    gain = f"may give {step.gain:.0%} more" if step.gain is not None else "may keep the SLA"
    if not step.flags:
        return f"{setting(step.concurrency)} {gain}"
    why = "; ".join(dict.fromkeys(flag_kind(flag) for flag in step.flags))
    return f"{setting(step.concurrency)} was excluded ({why}) and measured again {gain}"


def next_step_words(decision: Decision) -> str:
    """What would decide the setting that may be a better answer, before the command: 'about 3 min
    (1,300 requests) would decide'. '' where there is no such setting.
    """
    step = decision.next_step
    if step is None:
        return ""
    if step.command is not None and step.seconds is None:
        return "a sweep would decide"
    if step.requests is None:
        why = next((r for r in decision.explanation.settings if r.settings == (step.concurrency,)), None)
        alike = why is not None and why.cause is Cause.UNBOUNDED
        return f"{'requests too much alike' if alike else 'too close to its limit'} to decide at a reasonable cost"
    amount = f"{roughly(step.requests)} requests"
    if step.seconds is None:
        return f"about {amount} would decide"
    minutes = max(1, round(step.seconds / 60))
    took = f"about {minutes} min" if 1 < minutes < 60 else f"about {format_elapsed(60 * minutes)}"
    return f"{'about a minute' if minutes == 1 else took} ({amount}) would decide"


def next_step_lines(decision: Decision) -> tuple[str, str]:
    """The next step below a headline: what would decide, as a sentence, and the command; '' for
    what there is not.
    """
    step, words = decision.next_step, next_step_words(decision)
    if step is None:
        return "", ""
    command = clean(step.command, 4000) if step.command else ""
    head = may_give(step) if step.gain is None else setting(step.concurrency)
    return f"{head}: {words}{':' if command else '.'}", command


def no_sla_sentence(points: Sequence[Point], frontier: Frontier, gpus: int | None = None) -> str:
    """Without an SLA nothing is to be proven: the frontier is the answer."""
    members = sorted(frontier.members)
    if not members:
        return "No SLA, so nothing is to be proven; no setting is on the frontier."
    across, up = frontier.objectives[1], frontier.objectives[0]
    on = [p for p in points if p.concurrency in members]
    best = max(on, key=lambda p: metric(up).sign * p.metrics[up].value)
    most = f"{named_value(up, best.metrics[up].value, gpus)} with {named_value(across, best.metrics[across].value)}"
    rates = isinstance(members[0], Rate)
    listed = ("" if rates else "c = ") + ", ".join(map(str, members))
    return (
        f"No SLA, so nothing is to be proven. The frontier is {listed}; the most is {most} at "
        f"{setting(best.concurrency)}."
    )


def _next_step_note(decision: Decision) -> str:
    """The next step as one sentence, with its command: 'c=32 may give 27% more (1,447 tok/s): about
    3 min ...: ...'.
    """
    step = decision.next_step
    if step is None:
        return ""
    rate = "" if step.throughput is None else f" ({value_text('output_throughput', step.throughput)})"
    way = f": {step.command}" if step.command else "."
    return f"{may_give(step)}{rate}: {next_step_words(decision)}{way}"


def claim_sentence(decision: Decision) -> str:
    """How long the operating point was measured, and how rare a stall of the whole server that
    would not have shown. '' without a claim.
    """
    claim = decision.claim
    if claim is None:
        return ""
    turns = f"{count(claim.turns, 'turn')} (one turn: the time of one request)"
    one_in = max(1, math.floor(1 / claim.unseen_share + 1e-9))
    when = "" if claim.until is None else f" Last measured {date_text(claim.until)} UTC."
    if claim.stage == "final":
        stall = f"a stall of the whole server in one turn of {one_in} would have been seen (95%)"
        return f"Final claim: {turns}; {stall}.{when}"
    stall = (
        f"a stall of the whole server rarer than one turn in {one_in} may not have been seen"
        if one_in > 1
        else "stalls of the whole server may not have been seen"
    )
    enough = max((fewest_to_bound(limit.of.p) for limit in decision.limits if limit.of.p is not None), default=0)
    late = "; late requests come together, so that more turns are needed" if claim.turns >= enough else ""
    return f"Early claim: {turns}; {stall}{late}.{when}"


def _nearest_value(decision: Decision) -> str:
    """'64 at 492 ms' for the candidate; with several limits, of which metric; '' without a
    candidate.
    """
    if decision.candidate is None:
        return ""
    figure = tightest_figure(decision)
    if figure is None:
        return in_words(decision.candidate)
    label = "" if len(decision.limits) == 1 else f"{metric(figure.metric).label} "
    return f"{in_words(decision.candidate)} at {label}{value_text(figure.metric, figure.estimate.value)}"


# --- the sentences of an explanation

_SENTENCES = {
    Cause.BINDING: "Binding: {evidence}.",
    Cause.STEP_NOT_WORTH: "{c} also meets, but {gain} throughput for {cost} is not worth the step.",
    Cause.TIE: "{c} also meets; {gain} throughput for {cost} is a tie within the noise, so the lower stays.",
    Cause.LESS_THROUGHPUT: "{c} meets with {less} throughput.",
    Cause.ABOVE_VIOLATION: "{c} meets, but a lower setting violates.",
    Cause.VIOLATES: "{c} violates: {evidence}.",
    Cause.EXCLUDED: "{c} excluded: {flags}.",
    Cause.NOT_JUDGED: "{c} was only looked at, and nothing is claimed of it{seen}.",
    Cause.CROSSES: "{c}{gives} is not proven: {evidence}; {decide}.",
    Cause.TOO_FEW: "{c}{gives} is not proven: {evidence}, but {n} requests prove no {label}; {decide}.",
    Cause.UNBOUNDED: "{c}{gives} is not proven: {n} requests cannot bound {label} ({value}, limit {limit}); {decide}.",
    Cause.FEW_CONNECTIONS: "{c}{gives} is not proven: {flags}; {decide}.",
    Cause.NO_INTERVAL: "{c}{gives} is not proven: {evidence}; --point-estimates decides on the value alone.",
    Cause.NOT_MEASURED: "{c}{gives} is not proven: {label} was not measured.",
    Cause.SCANNED: "{c}{gives} was only looked at: {label} {value}, limit {limit}; {decide}.",
    Cause.STALE: "{c}{gives} was measured before the server changed, and not since: {decide}.",
    Cause.GROWS: "{c} is not proven: {label} grows {growth} a minute.",
    Cause.CHANGED: (
        "The server changed: {label} at {c} became {growth} {longer}. Only what was measured since counts."
    ),
    Cause.ACCEPTED: "Accepted although not proven, as asked: {evidence}; {decide}.",
    Cause.UNDEFINED: (
        "{label} is not defined for answers of one token, which have no second: limit TTFT or E2E, or measure longer "
        "outputs."
    ),
    Cause.COMFORTABLE: "{label} is inside the comfort mark {comfort}: there is headroom for more load.",
    Cause.WITHIN_RANGE: "{label} is between comfort {comfort} and promise {limit}.",
    Cause.ALL_MEET: "Every measured setting meets: the limit is above {c}; add higher concurrencies.",
    Cause.NO_VIOLATION: "No measured setting violates: the limit is above {c}.",
    Cause.HIGHEST_MEASURED: "{c} is the highest measured setting; add higher concurrencies to find the limit.",
    Cause.LOWEST_MEASURED: "{c} is the lowest measured setting{lower_ones}.",
    Cause.BRACKET: "{first} is the highest proven setting, {last} the lowest that violates.",
    Cause.MOST_THROUGHPUT: "The most throughput inside the SLA is at {c}: {value}, {gain}.",
    Cause.MOST_GOODPUT: "The most goodput is at {c}: {value}.",
    Cause.CHEAPEST: "The cheapest setting inside the SLA is {c}: {value}.",
    Cause.ENERGY: "It takes {value}: {power}.",
    Cause.NON_MONOTONE: (
        "{lower} violates although {last} meets: latency does not only grow with load here, so nothing above "
        "{first} is chosen."
    ),
    Cause.UNCONFIRMED: (
        "{lower}: over a limit in the only trial, although {last} above is proven. The machine may have been busy; the "
        "same sweep measures again."
    ),
    Cause.NO_VALID_POINT: "No valid measurement{below}.",
    Cause.NOTHING_MEETS: "Nearest: {c}, {evidence}.",
    Cause.NOTHING_PROVEN: "No measured setting is proven.",
    Cause.SLOW_ALONE: "One request alone has {label} {value}: this is service time, not queueing.",
    Cause.CONTRADICTION: "{first} meets, but {last} below it violates: measure both again.",
    Cause.POINT_ESTIMATES: "Decided on values alone, as asked: nothing here is proven.",
    Cause.CORRECTED: "Corrected: {c} was proven first; with the later visits its data do not keep the SLA.",
}
"""One sentence per cause. `evidence` is value, bound and limit; `decide` says what would decide."""


def _gain_words(reason: Reason) -> str:
    """' gives 12% more throughput but', ' gives 14% less throughput and'; '' where the gain is
    unknown or nothing.
    """
    if reason.gain is None or abs(reason.gain) < 0.005:
        return ""
    return f" gives {abs(reason.gain):.0%} {'more throughput but' if reason.gain > 0 else 'less throughput and'}"


def _growth_words(reason: Reason) -> dict[str, str]:
    """By how much a latency changed, and which way."""
    growth = reason.growth or 0.0
    return {"growth": f"{abs(growth):.0%}", "longer": "longer" if growth > 0 else "shorter"}


def sentence(reason: Reason) -> str:
    """One reason as a sentence, cleaned: flags hold words of servers and files."""
    settings = [setting(c) for c in reason.settings] or [""]
    limit, estimate = reason.limit, reason.estimate
    known = estimate is not None and not math.isnan(estimate.value)
    gain = ""
    if reason.gain is not None:
        gain = f"{reason.gain:+.1%}" if abs(reason.gain) < 0.01 else f"{reason.gain:+.0%}"
    label = metric(reason.metric).label if reason.metric else ""
    value = value_text(reason.metric, estimate.value) if reason.metric and known and estimate else "–"
    promise = limit_value_text(limit.metric, limit.promise) if limit else ""
    words = {
        "label": label,
        "value": value,
        "limit": promise,
        "seen": f": {label} {value}, limit {promise}" if limit and known else "",
        "c": ", ".join(settings),
        "first": settings[0],
        "last": settings[-1],
        "lower": ", ".join(settings[:-1]),
        "lower_ones": "" if reason.verdict is Verdict.MEETS else "; add lower concurrencies to find one that meets",
        "below": f" below {settings[0]}, which violates" if reason.settings else "",
        "evidence": evidence_text(estimate, limit) if limit else "its limit was not measured",
        "comfort": limit_value_text(limit.metric, limit.comfort) if limit and limit.comfort is not None else "",
        "gain": gain,
        "gives": _gain_words(reason) if reason.cause in UNDECIDED else "",
        "less": f"{-reason.gain:.0%} less" if reason.gain is not None and reason.gain <= -0.005 else "no more",
        "cost": _cost_words(reason),
        "decide": _what_would_decide(reason),
        "n": f"{estimate.n:,}" if estimate else "no",
        "flags": "; ".join(_flag_with_advice(flag) for flag in reason.flags) or "it was flagged",
        **_growth_words(reason),
        "power": cost_energy.power_text([reason.power]) if reason.power else "",
    }
    return clean(_SENTENCES[reason.cause].format(**words), 400)


def with_notes(decision: Decision) -> Decision:
    """The decision with its notes in words, for whoever reads it as data: JSON and notebooks."""
    return dataclasses.replace(decision, notes=notes(decision))


def notes(decision: Decision) -> tuple[str, ...]:
    """All that is said of a decision, as sentences: `Decision.notes`, and `notes` in the JSON.
    First the setting that may give more, then what the claim covers.
    """
    first = filter(None, (_next_step_note(decision), claim_sentence(decision)))
    return (*first, *map(sentence, decision.explanation.reasons), *_remarks(decision))


def _remarks(decision: Decision) -> list[str]:
    """How the operating point was measured, where that needs saying: 'c=64: restarts were
    delayed'.
    """
    return [clean(f"{setting(decision.concurrency or 0)}: {remark}", 400) for remark in decision.explanation.remarks]


_IN_FIGURES = (Cause.BINDING, Cause.NOTHING_MEETS, Cause.NOTHING_PROVEN)
"""Reasons that the headline and the table of figures already give."""
_HIGHER = (*UNDECIDED, Cause.VIOLATES, Cause.STEP_NOT_WORTH, Cause.TIE)


def reason_sentences(decision: Decision, without: Sequence[Reason] = ()) -> list[str]:
    """The reasons below a decision's headline and figures, less those shown elsewhere (`without`);
    the first about a higher setting says that it is. Last how the operating point was measured,
    where that needs saying.
    """
    chosen = decision.concurrency
    reasons = [reason for reason in decision.explanation.reasons if reason.cause not in _IN_FIGURES]
    higher = [r for r in reasons if chosen is not None and r.cause in _HIGHER and r.settings[0] > chosen]
    lines = [
        f"Next higher: {sentence(reason)}" if higher and reason is higher[0] else sentence(reason)
        for reason in reasons
        if reason not in without
    ]
    shares = shares_sentence(decision.shape, decision.metrics)
    return [*lines, *([shares] if shares else []), *_remarks(decision)]


def production_lines(decision: Decision, arrivals: ArrivalRate | None) -> list[str]:
    """What an operating point means in production: where to set it, and how many requests of
    independent users.
    """
    if decision.concurrency is None:
        return []
    if isinstance(decision.concurrency, Rate):
        return _rate_in_production(decision, decision.concurrency, arrivals)
    if decision.shape.has_sessions:
        return _sessions_in_production(decision, decision.concurrency)
    where = knob_sentence(decision.engine, decision.concurrency)
    lines = [f"Holds for at most {count(decision.concurrency, 'request')} in flight: {where}."]
    if arrivals is not None:
        rate = trimmed(format_number(arrivals.rate))
        lines.append(
            f"Independent users (Poisson arrivals): about {rate} requests/s with that limit, estimated from "
            "closed-loop data; frontier verify checks it, and --find proves the highest rate."
        )
    return lines


def _rate_in_production(decision: Decision, rate: Rate, arrivals: ArrivalRate | None) -> list[str]:
    """As `production_lines`, of a rate: it was measured without a limit on requests in flight but
    the engine's own, so a limit must leave room for as many as there were.
    """
    most = f"{trimmed(format_number(rate.per_second))} {rate.arrivals}"
    if decision.shape.has_sessions:
        most += f" ({trimmed(format_number(rate.per_second * decision.shape.requests))} requests/s)"
    needs = []
    if arrivals is not None:
        room = f"It needs room for {count(arrivals.cap, 'request')} in flight, the most there were"
        needs = [f"{room} in the server and its queue: set no lower limit at your gateway."]
    return [
        f"Holds for {decision.shape.arrivals} arrivals of up to {most} at one replica; a wait counts.",
        *needs,
        "Limit the rate at your gateway, or scale out before it: replicas = peak rate / this rate, rounded up.",
    ]


def _sessions_in_production(decision: Decision, sessions: int) -> list[str]:
    """As `production_lines`, of sessions: their number is limited by a gateway, not by an
    engine.
    """
    rate, e2e = decision.metrics.get("request_throughput"), decision.metrics.get("mean_e2e")
    busy = ""
    if rate is not None and e2e is not None and math.isfinite(e2e.value):  # Little's law
        busy = f"; {format_number(rate.value * e2e.value)} requests were in flight on average"
    where = f"An engine limits requests in flight: vLLM --max-num-seqs {sessions} or more lets none of them wait."
    return [
        f"Holds for at most {count(sessions, 'session')} open at a time, think times included{busy}.",
        f"Limit the sessions at your gateway. {where}",
    ]


def _cost_words(reason: Reason) -> str:
    """'2.1x the p99 TTFT': what a step to a higher setting costs."""
    if reason.cost is None or reason.metric is None or reason.cost <= 1:
        return "no more tail latency"
    return f"{reason.cost:.2g}× the {metric(reason.metric).label}"


def _what_would_decide(reason: Reason) -> str:
    """'about 1,300 requests would decide', or that nothing reasonable would; and what cut its
    trials short.
    """
    cut = _cut_words(reason.cut, reason.estimate.n) if reason.cut is not None and reason.estimate is not None else ""
    if reason.need is None:
        why = "they are too much alike" if reason.cause is Cause.UNBOUNDED else "too close to the limit"
        return f"{cut}{why} to decide at a reasonable cost"
    return f"{cut}about {roughly(reason.need)} requests would decide"


_CUTS = {
    "budget": "the budget ended its proof after {n}; ",
    "running": "its proof goes on, {n} so far; ",
    "server_lost": "the server was lost in its proof after {n}; ",
    "failed": "the sweep failed in its proof after {n}; ",
}


def _cut_words(cut: Cut, n: int) -> str:
    """'the budget ended its proof after 800 requests; '."""
    if cut.by == "max_time":
        return f"max_time ended its trials after {n:,} of {cut.planned:,} requests; "
    return _CUTS.get(cut.by, "the sweep was stopped in its proof after {n}; ").format(n=count(n, "request"))


def _flag_with_advice(flag: Flag) -> str:
    """A flag in a sentence: 'requests came in waves: 8.1, limit 2; stagger the starts'."""
    return f"{flag_words(flag)}; {flag.advice}" if flag.advice else flag_words(flag)


# --- figures of a decision


def figure_row(figure: Figure, gpus: int | None, *, brief: bool = False) -> tuple[str, str, str, str, str]:
    """Name, value, bound (a CI where nothing is limited), limit and remark of a figure; `brief` for
    a narrow table.
    """
    name, limit = figure.metric, figure.limit
    label, value = metric(name).label.partition(" (")[0], value_text(name, figure.estimate.value, gpus)
    if limit is None:
        return label, value, ci_text(name, figure.estimate, gpus), "", ""
    promise = f"limit {limit_value_text(name, limit.promise)}"
    return label, value, bound_text(figure.estimate, limit), promise, _remark(figure, brief)


def _remark(figure: Figure, brief: bool) -> str:
    """'tightest: 5% left', or how the figure stands to its limit where it does not keep it."""
    if figure.verdict is Verdict.VIOLATES:
        over = "too high" if figure.limit is not None and figure.limit.better == "lower" else "too low"
        return over if figure.left is None else f"{over} by {-figure.left:.0%}"
    if figure.verdict in (Verdict.MARGINAL, Verdict.UNPROVEN):
        return "not proven"
    if figure.tightest and figure.left is not None and figure.verdict is not None:
        return f"{figure.left:.0%} left" if brief else f"tightest: {figure.left:.0%} left"
    return ""
