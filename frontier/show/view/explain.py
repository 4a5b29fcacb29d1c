"""The reasons of a decision in sentences: why its operating point is the answer, and why no other
setting is. The causes are those of `core.claim.causes`; nothing is decided here.
"""

import dataclasses
import math
from collections.abc import Sequence

from frontier.core.claim.undecided import UNDECIDED
from frontier.core.model.decisions import Cause, Decision, EndedEarly, Reason, Verdict
from frontier.core.model.loads import NO_LOAD, listed
from frontier.core.model.metrics import metric
from frontier.core.model.points import Flag
from frontier.core.model.text import clean
from frontier.planning.alike import ALIKE, alike
from frontier.show.view.costs import power_text
from frontier.show.view.mixes import shares_sentence
from frontier.show.view.rough import roughly
from frontier.show.view.sentences import claim_sentence, next_step_note, undecided_words
from frontier.show.view.wording import (
    beside_limit,
    count,
    deciding_bound,
    evidence_text,
    flag_kind,
    flag_words,
    limit_value_text,
    told,
    value_text,
)

SENTENCES = {
    Cause.CHOSEN: "Binding: {evidence}.",
    Cause.STEP_NOT_WORTH: "{c} also meets: {gain} throughput, {cost}.",
    Cause.MEETS: "{c} meets{but}.",
    Cause.VIOLATES: "{c} violates: {evidence}.",
    Cause.EXCLUDED: "{c} excluded: {flags}.",
    Cause.NOT_JUDGED: "{c} {looked}, which proves nothing{seen}.",
    Cause.CROSSES: "{c}{gives} is not proven: {evidence}; {decide}.",
    Cause.TOO_FEW: "{c}{gives} is not proven: {lacks}; {decide}.",
    Cause.NO_INTERVAL: "{c}{gives} is not proven: {evidence}{alone}.",
    Cause.SCANNED: "{c}{gives} {looked}: {label} {value}, limit {limit}; {decide}.",
    Cause.STALE: "{c}{gives} was measured before the server changed, and not since: {decide}.",
    Cause.DOUBTED: (
        "A higher setting later showed a tail that the earlier data of {c} rule out: only what was measured of {c} "
        "since then counts."
    ),
    Cause.GROWS: "{c} is not proven: {label} grows {growth} a minute.",
    Cause.CHANGED: (
        "The server changed: {label} at {c} became {growth} {longer}. Only what was measured since counts."
    ),
    Cause.UNDEFINED: (
        "{label} is not defined for answers of one token, which have no second: limit TTFT or E2E, or measure longer "
        "outputs."
    ),
    Cause.RANGE: "{label} is {where}.",
    Cause.HIGHEST_MEASURED: "{c} is the highest measured setting; add higher {kind} to find the limit.",
    Cause.STATED_SLOTS: "{c} is the highest tried: the deployment states so many slots, and more requests only wait.",
    Cause.MOST_TRIED: "{c} is the highest that concurrency: auto tries; list higher ones to find the limit.",
    Cause.CLIENT_CAPACITY: "{c} is the highest tried: this client can hold no more.",
    Cause.NO_MORE_THROUGHPUT: "{c} is the highest tried: throughput no longer grows there.",
    Cause.SCAN_CUT: "{c} is the highest measured so far: the limit is not found yet.",
    Cause.LOWEST_MEASURED: "{c} is the lowest measured setting{lower_ones}.",
    Cause.BRACKET: "{first} is the highest proven setting, {last} the lowest that violates.",
    Cause.OPTIMUM: "{most} is at {c}: {value}.",
    Cause.ENERGY: "It takes {value}: {power}.",
    Cause.NON_MONOTONE: (
        "{lower} violates although {last} meets: latency does not only grow with load here, so nothing above "
        "{first} is chosen."
    ),
    Cause.UNCONFIRMED: (
        "{lower}: over a limit in the only trial, although {last} above is proven. The machine may have been busy; the "
        "same sweep measures again."
    ),
    Cause.SLOW_ALONE: "One request alone has {label} {value}: {not_load}.",
    Cause.POINT_ESTIMATES: "Decided on values alone, as asked: nothing here is proven.",
    Cause.CORRECTED: "Corrected: proven at first, but not by what counts now: {c}.",
}
"""One sentence per cause, with places for the words of `words_of`."""


def sentence(reason: Reason) -> str:
    """One reason as a sentence. It is cleaned, as flags hold words of servers and files."""
    return clean((_not_asked_for(reason) or SENTENCES[reason.cause]).format(**words_of(reason)), 400)


SLOWER = 0.05
"""Share of the operating point's throughput from which a setting without it is slower."""
MUCH_SLOWER = 0.5
"""The share from which nobody would take a setting for its shorter tail."""


def _not_asked_for(reason: Reason) -> str:
    """The sentence of an undecided setting that nobody would take, whatever would decide it: it is
    over by its value and no faster, or much slower. '' for others.
    """
    limit, estimate, gain = reason.limit, reason.estimate, reason.gain
    if limit is None or estimate is None or gain is None or gain > 0 or reason.cause not in UNDECIDED:
        return ""
    if limit.breaks(estimate.value):
        return "{c}: over {label} ({value}, limit {limit}{why}), and {faster}."
    return "{c}: {faster}, and not proven ({label} {value}, limit {limit})." if gain <= -MUCH_SLOWER else ""


def words_of(reason: Reason) -> dict[str, str]:
    """The words of a reason by their names in SENTENCES; every name is there for any reason.
    `evidence` is value, bound and limit; `decide` is what would decide.
    """
    settings = [c.label for c in reason.settings] or [""]
    kind = "rates" if any(c.is_open for c in reason.settings) else "concurrencies"
    return {
        "c": listed(reason.settings) if reason.settings else "",
        "first": settings[0],
        "last": settings[-1],
        "lower": ", ".join(settings[:-1]),
        "kind": kind,
        "lower_ones": "" if reason.verdict is Verdict.MEETS else f"; add lower {kind} to find one that meets",
        "flags": "; ".join(map(_flag_with_advice, told(reason.flags))) or "it was flagged",
        "decide": _what_would_decide(reason),
        "looked": "was measured to compare only" if reason.compared else "had a quick look only",
        "most": _MOST.get(reason.metric or "", "The most throughput within the SLA"),
        "power": power_text([reason.power]) if reason.power else "",
        **_figure_words(reason),
        **_change_words(reason),
    }


_MOST = {"goodput": "The most goodput within the SLA, by its lower bound,", "cost": "The lowest cost within the SLA"}


def _figure_words(reason: Reason) -> dict[str, str]:
    """The value, its bound and its limit."""
    limit, estimate = reason.limit, reason.estimate
    known = estimate is not None and not math.isnan(estimate.value)
    label = metric(reason.metric).label if reason.metric else ""
    value = value_text(reason.metric, estimate.value) if reason.metric and known and estimate else "–"
    if limit is not None and estimate is not None and limit.metric == reason.metric:
        value = beside_limit(estimate.value, limit)
    promise = limit_value_text(limit.metric, limit.promise) if limit else ""
    finite = known and estimate is not None and math.isfinite(estimate.value)
    takes_time = finite and reason.metric is not None and metric(reason.metric).quantity
    failed = next((f" ({flag.measured})" for flag in reason.flags if flag.name == "errors"), "")
    without = "; ".join(_flag_with_advice(f) for f in told(reason.flags) if f.name not in _WIDEN)
    return {
        "label": label,
        "value": value,
        "limit": promise,
        "seen": f": {label} {value}, limit {promise}" if limit and known else "",
        "why": next((f"; {flag.measured}" for flag in reason.flags if flag.name == "errors"), ""),
        "evidence": f"{evidence_text(estimate, limit)}{failed}" if limit else "its limit was not measured",
        "not_load": "this is service time, not queueing" if takes_time else "load is not the cause",
        "alone": _alone(reason, known=known),
        "lacks": without or _without_bound(reason, f"{label} {value}, limit {promise}"),
        "where": _where_in_range(reason),
    }


def _without_bound(reason: Reason, figure: str) -> str:
    """The `figure` of a reason with the requests that are too few for a bound; with the bound where
    there is one on the limit's side, which does not decide.
    """
    limit, estimate = reason.limit, reason.estimate
    if limit is not None and estimate is not None and deciding_bound(estimate, limit) is not None:
        return evidence_text(estimate, limit)
    sent = "" if reason.cut else f" from {count(estimate.n if estimate else 0, 'request')}"  # which the cut says
    return f"{figure}, no bound{sent}"


_WIDEN = ("client_bound", ALIKE)
"""Flags of a reason that say why a bound is wide, and not what is missing."""


def _alone(reason: Reason, *, known: bool) -> str:
    """How to decide without an interval, or what measures a value that is not there."""
    if not known and reason.metric == "agreement":
        return f"; it is measured by  frontier verify --quality --under-load {reason.settings[0]}"
    return "; --point-estimates decides on the value alone" if known and not _crosses(reason) else ""


def _crosses(reason: Reason) -> bool:
    """Whether the limit lies inside the interval, so that the value does not decide either."""
    estimate, limit = reason.estimate, reason.limit
    if estimate is None or limit is None or not estimate.has_interval:
        return False
    return limit.holds(estimate.low) != limit.holds(estimate.high)


def _where_in_range(reason: Reason) -> str:
    """Where a value lies between the comfort mark and the promise."""
    limit = reason.limit
    if limit is None or limit.comfort is None or reason.estimate is None:
        return ""
    comfort = limit_value_text(limit.metric, limit.comfort)
    if limit.comfortable(reason.estimate.value):
        return f"within the comfort mark {comfort}"
    return f"between comfort {comfort} and promise {limit_value_text(limit.metric, limit.promise)}"


TIMES = 2.0
"""The factor from which a latency is so many times as long, not so many percent longer."""


def _change_words(reason: Reason) -> dict[str, str]:
    """What a setting gains and costs against the operating point, and how much a latency
    changed.
    """
    gain, growth = reason.gain or 0.0, reason.growth or 0.0
    matters = abs(gain) >= 0.005
    gives = f" gives {abs(gain):.0%} {'more throughput but' if gain > 0 else 'less throughput and'}"
    but = f" with {-gain:.0%} less throughput" if gain < 0 else ", but a lower setting violates"
    cost = "no longer tail"
    if reason.cost is not None and reason.metric is not None and reason.cost > 1:
        cost = f"{metric(reason.metric).label} {reason.cost - 1:.0%} longer"
        if reason.cost >= TIMES:
            cost = f"{metric(reason.metric).label} {reason.cost:.3g} times as long"
    digits = 1 if abs(gain) < 0.01 else 0
    return {
        "gain": f"{abs(gain):.{digits}%} {'less' if gain < 0 else 'more'}",
        "faster": f"{-gain:.0%} slower" if gain <= -SLOWER else "no faster",
        "gives": gives if matters and reason.cause in UNDECIDED else "",
        "but": but if matters else "",
        "cost": cost,
        "growth": f"{abs(growth):.0%}",
        "longer": "longer" if growth > 0 else "shorter",
    }


def _what_would_decide(reason: Reason) -> str:
    """'about 1,300 requests would decide', or that no reasonable number would; and what cut its
    trials short.
    """
    if reason.metric in _PROMPTS:
        n = 0 if reason.estimate is None else 4 * reason.estimate.n
        return _PROMPTS[reason.metric].format(c=reason.settings[0], n=n)
    cut = _cut_words(reason.cut, reason.estimate.n) if reason.cut is not None and reason.estimate is not None else ""
    if same := alike(reason):
        cut = f"its requests {same}; {cut}"
    busy = next((flag for flag in reason.flags if flag.name == "client_bound" and reason.cause in UNDECIDED), None)
    by = "" if reason.cut is None else reason.cut.by
    if reason.need is not None and by != "given_up":
        wide = (
            "" if busy is None else f"{'that' if by == 'busy' else flag_kind(busy.name) + ', which'} widens its bound; "
        )
        return f"{cut}{wide}about {roughly(reason.need)} requests would decide"
    if busy is not None:
        return f"{cut}{_flag_with_advice(busy)}"
    return f"{cut}{undecided_words(reason)}"


_PROMPTS = {
    "quality": "more prompts would narrow its interval",
    "agreement": "four times as many prompts would halve its interval: frontier verify --quality --under-load {c} "
    "--requests {n}",
}
_CUTS = {
    "given_up": "its proof was given up after {n}: ",
    "budget": "the budget ended its proof after {n}; ",
    "busy": "this machine was too busy to measure more than {n}; ",
    "proven": "{n} were enough for the config's limits; ",
    "running": "its proof goes on, {n} so far; ",
    "server_lost": "the server was lost in its proof after {n}; ",
    "failed": "the sweep failed in its proof after {n}; ",
}


def _cut_words(cut: EndedEarly, n: int) -> str:
    """'the budget ended its proof after 800 requests; '."""
    if cut.by == "max_time":
        return f"max_time ended its trials after {n:,} of {cut.planned:,} requests; "
    return _CUTS.get(cut.by, "the sweep was stopped in its proof after {n}; ").format(n=count(n, "request"))


def _flag_with_advice(flag: Flag) -> str:
    """A flag in a sentence: 'requests came in waves: 8.1, limit 2; stagger the starts'."""
    return f"{flag_words(flag)}; {flag.advice}" if flag.advice else flag_words(flag)


# --- all reasons of a decision


def with_notes(decision: Decision) -> Decision:
    """The decision with its notes in words, for readers of data: JSON and notebooks.

    The setting that may give more comes first, then what the claim covers, then all reasons.
    """
    claim = claim_sentence(decision)
    first = filter(None, (next_step_note(decision), f"Confidence: {claim}" if claim else ""))
    notes = (*first, *map(sentence, decision.explanation.reasons), *_remarks(decision))
    return dataclasses.replace(decision, notes=notes)


def _remarks(decision: Decision) -> list[str]:
    """How the operating point was measured, where that matters: 'c=64: restarts were delayed'."""
    return [clean(f"{(decision.load or NO_LOAD).label}: {remark}", 400) for remark in decision.explanation.remarks]


_TOP = (
    Cause.HIGHEST_MEASURED,
    Cause.STATED_SLOTS,
    Cause.MOST_TRIED,
    Cause.CLIENT_CAPACITY,
    Cause.NO_MORE_THROUGHPUT,
    Cause.SCAN_CUT,
)
_HIGHER = (*UNDECIDED, Cause.NOT_JUDGED, Cause.VIOLATES, Cause.STEP_NOT_WORTH, Cause.EXCLUDED, *_TOP)


def _is_aside(reason: Reason, decision: Decision) -> bool:
    """Whether a reason is only for a reader who asks for everything: the last setting that meets,
    the first that violates, and what else is best where; a lower cost than the answer's is not.
    """
    beside = reason.metric == "cost" and reason.settings != (decision.load,)
    return reason.cause is Cause.BRACKET or (reason.cause is Cause.OPTIMUM and not beside)


def why_not_more(decision: Decision, *, whole: bool = True) -> list[str]:
    """Why no higher setting is the operating point: the next one, and the one that may give more.
    What would decide it is left out where the next step says so, unless `whole`.
    """
    step = decision.next_step
    told = None if whole or step is None or step.command is None else (step.load,)
    return [_without_step(reason) if reason.settings == told else sentence(reason) for reason in _higher(decision)]


def _without_step(reason: Reason) -> str:
    """A reason without what would decide."""
    return clean(SENTENCES[reason.cause].replace("; {decide}", "").format(**words_of(reason)), 400)


def _higher(decision: Decision) -> list[Reason]:
    """The reasons of higher settings, the next one first."""
    chosen = decision.load
    if chosen is None:
        return []
    above = (
        reason
        for reason in decision.explanation.reasons
        if reason.cause in _HIGHER and (reason.cause in _TOP or max(reason.settings) > chosen)
    )
    return sorted(above, key=lambda reason: max(reason.settings))


def other_reasons(decision: Decision, *, whole: bool = True) -> list[str]:
    """The reasons that a decision's headline, figures and `why_not_more` do not give; without
    asides unless `whole`. The last lines say how the operating point was measured, where that
    matters.
    """
    above = _higher(decision)
    lines = [
        sentence(reason)
        for reason in _merged(decision)
        if reason not in above
        and not _is_in_figures(reason, decision, whole=whole)
        and (whole or not _is_aside(reason, decision))
    ]
    shares = shares_sentence(decision.shape, decision.metrics)
    return [*lines, *([shares] if shares else []), *_remarks(decision)]


def _merged(decision: Decision) -> Sequence[Reason]:
    """The reasons of a decision. Without a valid measurement, settings that were excluded for the
    same are one.
    """
    if decision.verdict is not Verdict.INVALID:
        return decision.explanation.reasons
    groups: dict[tuple[object, ...], Reason] = {}
    for reason in sorted(decision.explanation.reasons, key=lambda each: each.settings):
        kind = (reason.cause, *(flag.name for flag in told(reason.flags)))
        first = groups.setdefault(kind, reason)
        if first is not reason:
            at = f"at {first.settings[0].label} "
            flags = (dataclasses.replace(f, measured=at + f.measured.removeprefix(at)) for f in first.flags)
            every = tuple(sorted((*first.settings, *reason.settings)))
            groups[kind] = dataclasses.replace(first, settings=every, flags=tuple(flags))
    return tuple(groups.values())


def _is_in_figures(reason: Reason, decision: Decision, *, whole: bool) -> bool:
    """Whether headline, figures and next step give the reason already: the tightest limit, or that
    the nearest setting violates, other than by its failures. Unless `whole`, also that it is not
    proven, where they say what would decide it.
    """
    step, nearest = decision.next_step, decision.load is None and reason.settings == (decision.candidate,)
    if nearest and reason.cause in UNDECIDED and step is not None and step.load == decision.candidate:
        return not whole and (step.command is None) == (reason.cause is Cause.NO_INTERVAL)
    failed = any(flag.name == "errors" for flag in reason.flags)
    return reason.cause is Cause.CHOSEN or (nearest and reason.cause is Cause.VIOLATES and not failed)
