"""Sentences and numbers in words: the one renderer of a decision's explanation, shared by terminal, page and picture.

Every function here turns data into text; none decides anything. Layout belongs to the medium (report/, plot/).
"""

import hashlib
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frontier.decide.capacity import ArrivalRate, Capacity
from frontier.decide.explain import UNDECIDED, Figure, tightest_figure
from frontier.decide.verdict import deciding_bound
from frontier.metrics import RATES, Unit, display_one, fewest_to_bound, metric, per_gpu
from frontier.model import Cause, Decision, Estimate, Flag, Frontier, Limit, NextStep, Point, Reason, Verdict
from frontier.stats import cost_energy
from frontier.text import clean as clean
from frontier.text import clean_name as clean_name
from frontier.text import middle_cut as middle_cut
from frontier.units import format_elapsed, format_number, roughly, trimmed

if TYPE_CHECKING:
    from frontier.decide.compare import Comparison

SHORT = 24
"""Characters of a name that need no shortening among others."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the numbers come from, as far as it is known; every text may come from a server and is cleaned on use."""

    run: str | None = None
    model: str | None = None
    server: str | None = None
    hardware: str | None = None
    loop: str | None = "closed loop, zero think time"
    tool: str | None = None
    created: str | None = None
    remark: str | None = None
    notes: tuple[str, ...] = ()


def told_apart(names: Sequence[str], longest: int = 60) -> list[str]:
    """Names from outside, cleaned and cut, none like another: where the cut ones agree a short hash tells them apart,
    and the same name again is numbered.
    """
    cut = [clean_name(name, longest) for name in names]
    several = {short for short in cut if len({n for n, c in zip(names, cut, strict=True) if c == short}) > 1}
    labels: list[str] = []
    for name, short in zip(names, cut, strict=True):
        label = short
        if short in several:
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
            label = f"{middle_cut(short, longest - 7)}~{digest}"
        again = sum(other == name for other in names[: len(labels)])
        labels.append(f"{label} ({again + 1})" if again else label)
    return labels


def apart(names: Sequence[str]) -> list[str]:
    """Long names without what all of them begin and end with: what is left tells them apart ."""
    if len(set(names)) < 2 or max(map(len, names)) <= SHORT:
        return list(names)
    head = _alike(names)
    head = head[: max(head.rfind(ch) for ch in "-_/ ") + 1]
    tail = _alike([name[len(head) :][::-1] for name in names])[::-1]
    cuts = [at for at in map(tail.find, "-_/ ") if at >= 0]
    tail = tail[min(cuts) :] if cuts else ""
    return [("…" if head else "") + name[len(head) : len(name) - len(tail)] + ("…" if tail else "") for name in names]


def _alike(names: Sequence[str]) -> str:
    """What all of them begin with."""
    same = itertools.takewhile(lambda chars: len(set(chars)) == 1, zip(*names, strict=False))
    return "".join(chars[0] for chars in same)


def unit_text(name: str, gpus: int | None = None) -> str:
    """'tok/s', 'tok/s/GPU', 'ms' stays open for times (their unit follows the value) and is ''."""
    unit = metric(name).unit
    if unit in (Unit.SECONDS, Unit.SHARE):
        return ""
    return f"{unit.value}/GPU" if unit in RATES and gpus else unit.value


def value_text(name: str, value: float | None, gpus: int | None = None) -> str:
    """'2,850 tok/s/GPU', '396 ms', '0.2%', '–'."""
    if value is None or math.isnan(value):
        return "–"
    if metric(name).unit in RATES:
        return f"{format_number(value / per_gpu(name, gpus))} {unit_text(name, gpus)}"
    return metric(name).format_trimmed(value) if metric(name).unit is Unit.SHARE else metric(name).format(value)


def named_value(name: str, value: float, gpus: int | None = None) -> str:
    """'2,850 tok/s': the unit says what it is; where it does not, the name is added: 'p99 TTFT 396 ms'."""
    text = value_text(name, value, gpus)
    return f"{metric(name).label} {text}" if metric(name).unit in (Unit.SECONDS, Unit.SHARE) else text


def limit_value_text(name: str, value: float) -> str:
    """A limit as its author wrote it: '500 ms', '1.5 s', '1%' rather than '500 ms', '1.50 s', '1.00%'."""
    return metric(name).format_trimmed(value)


def limit_text(limit: Limit, value: float | None = None) -> str:
    """'p99 TTFT ≤ 500 ms'; `value` replaces the promise (for the comfort mark)."""
    return f"{limit.of.label} {limit.bound_text(value)}"


def limits_text(limits: Iterable[Limit]) -> str:
    """'p99 TTFT ≤ 500 ms and p99 TPOT ≤ 30 ms'."""
    return " and ".join(map(str, limits))


NO_BOUND = "*"
"""Marks a percentile with too few requests for an upper bound; the legend below a table explains it."""
NO_BOUND_LEGEND = "* too few requests to bound this percentile"
NOT_NEEDED = "; not needed for the answer"


def has_no_bound(name: str, estimate: Estimate) -> bool:
    """Whether a percentile has too few requests for the one-sided bound that an SLA would be judged by."""
    bound = estimate.lower if metric(name).higher_is_better else estimate.upper
    return metric(name).p is not None and estimate.has_interval and math.isinf(bound) and math.isfinite(estimate.value)


def interval_text(name: str, estimate: Estimate, gpus: int | None = None) -> str:
    """'[373, 438]' in the unit `value_text` gives the value, '≥ 373 *' without an upper end, '' for no interval."""
    if math.isinf(estimate.low) and math.isinf(estimate.high):
        return ""
    factor = display_one(name, estimate.value, gpus)[0]
    low, high = estimate.low * factor, estimate.high * factor
    if math.isinf(high) and math.isfinite(estimate.value):
        return f"≥ {format_number(low)} {NO_BOUND}"
    return f"[{format_number(low)}, {format_number(high)}]"


def ci_text(name: str, estimate: Estimate, gpus: int | None = None) -> str:
    """'95% CI 3,380 to 3,440' in the unit of the value, 'no interval' where none is known."""
    if not (math.isfinite(estimate.low) and math.isfinite(estimate.high)):
        return "no interval"
    factor = display_one(name, estimate.value, gpus)[0]
    return f"95% CI {format_number(estimate.low * factor)} to {format_number(estimate.high * factor)}"


def bound_text(estimate: Estimate, limit: Limit) -> str:
    """The one-sided bound that decides: 'at most 438 ms (95%)', 'at least ...', or why there is none."""
    if math.isinf(estimate.value):
        return "too many requests failed"
    bound = deciding_bound(estimate, limit)
    if bound is None:
        return f"no bound {NO_BOUND}" if estimate.has_bound or estimate.need is not None else "no interval"
    word = "at most" if limit.holds(estimate.value) == (limit.better == "lower") else "at least"
    return f"{word} {value_text(limit.metric, bound)} (95%)"


def bound_words(estimate: Estimate, limit: Limit) -> str:
    """The same where no legend explains a sign."""
    return bound_text(estimate, limit).replace(f"no bound {NO_BOUND}", "too few requests to bound it")


def evidence_text(estimate: Estimate | None, limit: Limit) -> str:
    """A value, the bound that decides and the limit: 'p99 TTFT 396 ms, at most 438 ms (95%), limit 500 ms'."""
    if estimate is None or math.isnan(estimate.value):
        return f"{limit.of.label} not measured"
    bound = bound_words(estimate, limit)
    value, promise = value_text(limit.metric, estimate.value), limit_value_text(limit.metric, limit.promise)
    return f"{limit.of.label} {value}, {bound}, limit {promise}"


def setting(concurrency: int) -> str:
    """How a table or note names a setting."""
    return f"c={concurrency}"


MISSING = "missing_metric"
"""The flag of an imported point whose file does not give a metric on the frontier's axes."""


def left_out(points: Iterable[Point], frontier: Frontier, *, flagged: bool = True) -> list[str]:
    """Why points without a fatal flag are not on the frontier: 'no p99 TTFT: c=8, c=16', with the file where it is
    known. Without `flagged`, only those that no flag says it of.
    """
    reasons: dict[str, list[str]] = {}
    for point in sorted(points, key=lambda p: p.concurrency):
        if not point.valid or point.concurrency not in frontier.excluded:
            continue
        missing = [metric(name).label for name in frontier.objectives if name not in point.metrics]
        flagged_why = [
            f.measured for f in point.flags if f.name == MISSING and all(label in f.measured for label in missing)
        ]
        if missing and flagged_why and not flagged:
            continue
        known = flagged_why[0] if flagged_why else f"no {' and no '.join(missing)}"
        why = known if missing else frontier.excluded[point.concurrency]
        reasons.setdefault(clean(why, 160), []).append(setting(point.concurrency))
    shown = [f"{why}: {', '.join(where)}" for why, where in reasons.items()]
    more = [f"and {len(shown) - MANY} more reasons"] if len(shown) > MANY else []
    return [*shown[:MANY], *more]


_FLAG_WORDS = {
    "errors": "requests failed",
    "short_output": "answers of another length than asked",
    "wrong_input_length": "prompts of another length than asked",
    "cache_contaminated": "prompts came from the cache",
    "server_lost": "the server was lost",
    "server_changed": "the server changed",
    "server_restarted": "the server was restarted",
    "buffered_stream": "the stream was held back and came in bursts",
    "coalesced": "several tokens in a chunk",
    "token_mismatch": "the server's token counts do not fit its stream",
    "identity": "times and token counts do not fit together",
    "uncounted": "answers without the server's token count",
    "odd_finish": "answers were not finished",
    "hollow_first": "a first token that shows nothing",
    "missing_metric": "a metric of these axes is missing",
    "repeats_differ": "repeats differ",
    "sum": "throughputs do not add up",
    "client_bound": "this machine was busy",
    "resent": "kept connections were closed",
    "under_concurrency": "fewer requests in flight than asked",
    "over_concurrency": "more requests in flight than asked",
    "littles_law": "rate and latency do not fit the concurrency",
    "lockstep": "requests came in waves",
    "non_stationary": "throughput or latency changed within the window",
    "too_few_samples": "too few requests",
    "faster_than_light": "faster than its hardware can be",
    "no_requests": "no request counts",
}


def flag_words(flag: Flag) -> str:
    """'this machine was busy: event loop late (p99) 5.82 ms, limit 5.00 ms': a flag for one who does not know its
    name.
    """
    text = f"{_flag_kind(flag)}: {clean(flag.measured, 160)}"
    return f"{text}, limit {clean(flag.limit, 60)}" if flag.limit else text


def _flag_kind(flag: Flag) -> str:
    """'requests came in waves'."""
    name = clean(flag.name, 40)
    return _FLAG_WORDS.get(name, name.replace("_", " "))


MANY = 4
"""More settings than this, with few figures between them, are listed under each figure."""


@dataclass(frozen=True, slots=True)
class FlagKind:
    """One kind of flag over the settings that have it: (concurrency, what was measured there)."""

    name: str
    limit: str
    advice: str
    fatal: bool
    where: tuple[tuple[int, str], ...]

    def text(self, most: int = 100) -> str:
        """'errors (limit 1%): c=96 4.2%, c=128 9%'; a figure shared by all is said once."""
        limit = f" (limit {self.limit})" if self.limit else ""
        shown = [f"{setting(c)} {measured}".rstrip() for c, measured in self.where[:most]]
        figures = {measured for _, measured in self.where}
        if len(self.where) > 1 and len(figures) == 1:
            shared = figures.pop()
            limit = f" {shared}{limit}" if shared else limit
            shown = [setting(c) for c, _ in self.where[:most]]
        elif len(self.where) > MANY and 2 * len(figures) <= len(self.where):
            by_figure: dict[str, list[str]] = {}
            for c, measured in self.where[:most]:
                by_figure.setdefault(measured, []).append(setting(c))
            shown = ["; ".join(f"{measured} at {', '.join(at)}" for measured, at in by_figure.items())]
        more = f" and {len(self.where) - most} more" if len(self.where) > most else ""
        return f"{self.name}{limit}: {', '.join(shown)}{more}"


def flag_kinds(points: Iterable[Point]) -> list[FlagKind]:
    """Every kind of flag once, the fatal ones first."""
    kinds: dict[tuple[bool, str], list[tuple[int, Flag]]] = {}
    for point in points:
        for flag in point.flags:
            kinds.setdefault((not flag.fatal, flag.name), []).append((point.concurrency, flag))
    return [_kind(name, flags, fatal=not remark)
            for (remark, name), flags in sorted(kinds.items(), key=lambda kind: kind[0][0])]  # fmt: skip


def _kind(name: str, flags: Sequence[tuple[int, Flag]], *, fatal: bool) -> FlagKind:
    """A limit that depends on the setting stands beside each figure, else it is said once."""
    limits = {flag.limit for _, flag in flags}
    one = clean(limits.pop()) if len(limits) == 1 else ""
    where = tuple(
        (c, clean(flag.measured if one or not flag.limit else f"{flag.measured} (limit {flag.limit})", 120))
        for c, flag in flags
    )
    return FlagKind(clean(name).replace("_", " "), one, clean(flags[0][1].advice, 240), fatal, where)


def count(number: int, noun: str) -> str:
    """'1 trial', '1,024 requests'."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


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
    promise, no = limits_text(decision.limits), f"{_corrected(decision)}{'no' if _is_corrected(decision) else 'No'}"
    if decision.verdict is Verdict.VIOLATES:
        return f"{no} setting meets {promise}" + (f": nearest is concurrency {at}" if at else "")
    why = "its interval crosses the limit"
    if decision.verdict is Verdict.UNPROVEN:
        few = unproven_words(figure.estimate if figure else None, candidate_need(decision))
        why = f"it has {few}" if figure else "its limit was not measured"
    return f"{no} setting is proven to meet {promise}" + (f": concurrency {at}; {why}" if at else "")


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
        few = unproven_words(figure.estimate if figure else None, candidate_need(decision))
        return f"{word}: {setting(decision.candidate)} has {few}"
    return f"{word}; nearest {setting(decision.candidate)}, {tail}".rstrip(", ")


def headline(decision: Decision, gpus: int | None = None) -> str:
    """The decision without numbers, above a table of them: 'Run at concurrency 64'. Where a setting that is not proven
    may give clearly more, that is said with it; first, where it is half of the throughput or more.
    """
    if decision.concurrency is not None:
        speed = decision.metrics.get("output_throughput")
        rate = f" ({value_text('output_throughput', speed.value, gpus)})" if speed and decision.next_step else ""
        return _with_better(decision, rate)
    if decision.verdict is Verdict.INVALID:
        return "No valid measurement to decide by"
    meets = "meets" if decision.verdict is Verdict.VIOLATES else "is proven to meet"
    nearest = "" if decision.candidate is None else f"; nearest: {setting(decision.candidate)}"
    no = f"{_corrected(decision)}no" if _is_corrected(decision) else "No"
    return f"{no} setting {meets} {limits_text(decision.limits)}{nearest}"


HALF_UNDECIDED = 1.0
"""The gain from which half of the throughput or more is not decided yet."""


def _with_better(decision: Decision, numbers: str) -> str:
    """'Run at concurrency 16 (1,447 tok/s). c=32 may give 27% more', with these numbers of the operating point."""
    asked = "" if decision.verdict is Verdict.MEETS else " (not proven, accepted as asked)"
    corrected, step = _corrected(decision), decision.next_step
    if step is not None and step.gain is not None and step.gain >= HALF_UNDECIDED:
        half = f"{corrected}{'more' if corrected else 'More'} than half of the throughput is undecided"
        word = "Accepted" if asked else "Proven"
        numbers = numbers.replace(": ", ", ", 1) if numbers.startswith(": ") else numbers
        return f"{half}: {may_give(step)}. {word} so far: concurrency {decision.concurrency}{numbers}"
    run = f"{corrected}{'run' if corrected else 'Run'} at concurrency {decision.concurrency}{asked}{numbers}"
    return f"{run}. {may_give(step)}" if step is not None else run


def _is_corrected(decision: Decision) -> bool:
    return decision.claim is not None and decision.claim.corrected


def _corrected(decision: Decision) -> str:
    """'Corrected: ' where a later visit contradicted what was proven."""
    return "Corrected: " if _is_corrected(decision) else ""


def may_give(step: NextStep) -> str:
    """'c=32 may give 27% more', 'c=32 was excluded (requests came in waves) and measured again may give 27% more'."""
    gain = f"may give {step.gain:.0%} more" if step.gain is not None else "may keep the SLA"
    if not step.flags:
        return f"{setting(step.concurrency)} {gain}"
    why = "; ".join(dict.fromkeys(_flag_kind(flag) for flag in step.flags))
    return f"{setting(step.concurrency)} was excluded ({why}) and measured again {gain}"


def next_step_words(decision: Decision) -> str:
    """What would decide the setting that may be a better answer, before the command: 'about 3 min (1,300 requests)
    would decide'. '' where there is no such setting.
    """
    step = decision.next_step
    if step is None:
        return ""
    if step.command is not None and step.seconds is None:
        return "a sweep would decide"
    if step.requests is None:
        return "too close to its limit to decide at a reasonable cost"
    amount = f"{roughly(step.requests)} requests"
    if step.seconds is None:
        return f"about {amount} would decide"
    minutes = max(1, round(step.seconds / 60))
    took = f"about {minutes} min" if 1 < minutes < 60 else f"about {format_elapsed(60 * minutes)}"
    return f"{'about a minute' if minutes == 1 else took} ({amount}) would decide"


def next_step_lines(decision: Decision) -> tuple[str, str]:
    """The next step below a headline: what would decide, as a sentence, and the command; '' for what there is not."""
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
    listed = ", ".join(map(str, members))
    return (
        f"No SLA, so nothing is to be proven. The frontier is c = {listed}; the most is {most} at "
        f"{setting(best.concurrency)}."
    )


def _next_step_note(decision: Decision) -> list[str]:
    """The next step as one sentence, with its command: 'c=32 may give 27% more (1,447 tok/s): about 3 min ...: ...'."""
    step = decision.next_step
    if step is None:
        return []
    rate = "" if step.throughput is None else f" ({value_text('output_throughput', step.throughput)})"
    way = f": {step.command}" if step.command else "."
    return [f"{may_give(step)}{rate}: {next_step_words(decision)}{way}"]


def claim_sentence(decision: Decision) -> str:
    """How long the operating point was measured, and how rare a stall of the whole server that would not have shown.
    '' without a claim.
    """
    claim = decision.claim
    if claim is None:
        return ""
    turns = f"{count(claim.turns, 'turn')} (one turn: the time of one request)"
    one_in = max(1, math.floor(1 / claim.unseen_share + 1e-9))
    if claim.stage == "final":
        return f"Final claim: {turns}; a stall of the whole server in one turn of {one_in} would have been seen (95%)."
    stall = (
        f"a stall of the whole server rarer than one turn in {one_in} may not have been seen"
        if one_in > 1
        else "stalls of the whole server may not have been seen"
    )
    enough = max((fewest_to_bound(limit.of.p) for limit in decision.limits if limit.of.p is not None), default=0)
    late = "; late requests come together, so that more turns are needed" if claim.turns >= enough else ""
    return f"Early claim: {turns}; {stall}{late}."


def _nearest_value(decision: Decision) -> str:
    """'64 at 492 ms' for the candidate; with several limits, of which metric; '' without a candidate."""
    if decision.candidate is None:
        return ""
    figure = tightest_figure(decision)
    if figure is None:
        return str(decision.candidate)
    label = "" if len(decision.limits) == 1 else f"{metric(figure.metric).label} "
    return f"{decision.candidate} at {label}{value_text(figure.metric, figure.estimate.value)}"


def binding_limit(decision: Decision) -> Limit | None:
    """The limit with the least headroom, else the first."""
    figure = tightest_figure(decision)
    return figure.limit if figure else decision.limits[0] if decision.limits else None


def unproven_words(estimate: Estimate | None, need: int | None) -> str:
    """Why a setting is not proven: '601 of about 1,280 requests', 'too few requests', 'no interval'."""
    if estimate is None:
        return "not measured"
    if need and estimate.n:
        return f"{estimate.n:,} of about {roughly(need)} requests"
    return "too few requests" if estimate.has_interval else "no interval"


def candidate_need(decision: Decision) -> int | None:
    """How many requests would decide the candidate, when that is known."""
    return next((j.need for j in decision.judgements if j.concurrency == decision.candidate), None)


# --- the sentences of an explanation

_SENTENCES = {
    Cause.CHOSEN: "{c} is the operating point.",
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
    Cause.UNBOUNDED: "{c}{gives} is not proven: {n} requests cannot bound {label} ({value}); {decide}.",
    Cause.NO_INTERVAL: "{c}{gives} is not proven: {evidence}; --point-estimates decides on the value alone.",
    Cause.NOT_MEASURED: "{c}{gives} is not proven: {label} was not measured.",
    Cause.SCANNED: "{c}{gives} was only looked at: {label} {value}, limit {limit}; {decide}.",
    Cause.ACCEPTED: "Accepted although not proven, as asked: {evidence}; {decide}.",
    Cause.UNDEFINED: (
        "{label} is not defined for answers of one token, which have no second: limit TTFT or E2E, or measure longer "
        "outputs."
    ),
    Cause.COMFORTABLE: "{label} is inside the comfort mark {comfort}: there is headroom for more concurrency.",
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
        "{lower} violates although {last} meets: latency does not only grow with concurrency here, so nothing above "
        "{first} is chosen."
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
    """' gives 12% more throughput but', ' gives 14% less throughput and'; '' where the gain is unknown or nothing."""
    if reason.gain is None or abs(reason.gain) < 0.005:
        return ""
    return f" gives {abs(reason.gain):.0%} {'more throughput but' if reason.gain > 0 else 'less throughput and'}"


def sentence(reason: Reason) -> str:
    """One reason as a sentence, cleaned: flags hold words of servers and files."""
    settings = [setting(c) for c in reason.settings] or [""]
    limit, estimate = reason.limit, reason.estimate
    known = estimate is not None and not math.isnan(estimate.value)
    gain = "" if reason.gain is None else f"{reason.gain:+.1%}" if abs(reason.gain) < 0.01 else f"{reason.gain:+.0%}"
    words = {
        "c": ", ".join(settings), "first": settings[0], "last": settings[-1], "lower": ", ".join(settings[:-1]),
        "lower_ones": "" if reason.verdict is Verdict.MEETS else "; add lower concurrencies to find one that meets",
        "below": f" below {settings[0]}, which violates" if reason.settings else "",
        "label": metric(reason.metric).label if reason.metric else "",
        "seen": f": {metric(limit.metric).label} {value_text(limit.metric, estimate.value)}, limit "
        f"{limit_value_text(limit.metric, limit.promise)}" if limit and known and estimate else "",
        "value": value_text(reason.metric, estimate.value) if reason.metric and known and estimate else "–",
        "evidence": evidence_text(estimate, limit) if limit else "its limit was not measured",
        "limit": limit_value_text(limit.metric, limit.promise) if limit else "",
        "comfort": limit_value_text(limit.metric, limit.comfort) if limit and limit.comfort is not None else "",
        "gain": gain, "gives": _gain_words(reason) if reason.cause in UNDECIDED else "",
        "less": f"{-reason.gain:.0%} less" if reason.gain is not None and reason.gain <= -0.005 else "no more",
        "cost": _cost_words(reason), "decide": _what_would_decide(reason), "n": f"{estimate.n:,}" if estimate else "no",
        "flags": "; ".join(_flag_with_advice(flag) for flag in reason.flags) or "it was flagged",
        "power": cost_energy.power_text([reason.power]) if reason.power else "",
    }  # fmt: skip
    return clean(_SENTENCES[reason.cause].format(**words), 400)


def notes(decision: Decision) -> tuple[str, ...]:
    """All that is said of a decision, as sentences: `Decision.notes`, and `notes` in the JSON. First the setting that
    may give more, then what the claim covers.
    """
    claim = claim_sentence(decision)
    first = [*_next_step_note(decision), *([claim] if claim else [])]
    return (*first, *map(sentence, decision.explanation.reasons), *_remarks(decision))


def _remarks(decision: Decision) -> list[str]:
    """How the operating point was measured, where that needs saying: 'c=64: restarts were delayed'."""
    return [clean(f"{setting(decision.concurrency or 0)}: {remark}", 400) for remark in decision.explanation.remarks]


_IN_FIGURES = (Cause.BINDING, Cause.NOTHING_MEETS, Cause.NOTHING_PROVEN)
"""Reasons that the headline and the table of figures already give."""
_HIGHER = (*UNDECIDED, Cause.VIOLATES, Cause.STEP_NOT_WORTH, Cause.TIE)


def reason_sentences(decision: Decision, without: Sequence[Reason] = ()) -> list[str]:
    """The reasons below a decision's headline and figures, less those shown elsewhere (`without`); the first about a
    higher setting says that it is. Last how the operating point was measured, where that needs saying.
    """
    chosen = decision.concurrency
    reasons = [reason for reason in decision.explanation.reasons if reason.cause not in _IN_FIGURES]
    higher = [r for r in reasons if chosen is not None and r.cause in _HIGHER and r.settings[0] > chosen]
    lines = [
        f"Next higher: {sentence(reason)}" if higher and reason is higher[0] else sentence(reason)
        for reason in reasons if reason not in without
    ]  # fmt: skip
    return [*lines, *_remarks(decision)]


def production_lines(decision: Decision, arrivals: ArrivalRate | None) -> list[str]:
    """What an operating point means in production: where to set it, and how many requests of independent users."""
    if decision.concurrency is None:
        return []
    where = f"vLLM --max-num-seqs {decision.concurrency}, or your gateway's limit"
    lines = [f"Holds for at most {count(decision.concurrency, 'request')} in flight: set {where}."]
    if arrivals is not None:
        rate = trimmed(format_number(arrivals.rate))
        lines.append(
            f"Independent users (Poisson arrivals): about {rate} requests/s, estimated from closed-loop data; "
            "frontier verify checks it."
        )
    return lines


def _cost_words(reason: Reason) -> str:
    """'2.1x the p99 TTFT': what a step to a higher setting costs."""
    if reason.cost is None or reason.metric is None or reason.cost <= 1:
        return "no more tail latency"
    return f"{reason.cost:.2g}× the {metric(reason.metric).label}"


def _what_would_decide(reason: Reason) -> str:
    """'about 1,300 requests would decide', or that nothing reasonable would; and what cut its trials short."""
    cut = ""
    if reason.planned is not None and reason.estimate is not None:
        cut = f"max_time ended its trials after {reason.estimate.n:,} of {reason.planned:,} requests; "
    if reason.need is None:
        return f"{cut}too close to the limit to decide at a reasonable cost"
    return f"{cut}about {roughly(reason.need)} requests would decide"


def _flag_with_advice(flag: Flag) -> str:
    """A flag in a sentence: 'requests came in waves: 8.1, limit 2; stagger the starts'."""
    return f"{flag_words(flag)}; {flag.advice}" if flag.advice else flag_words(flag)


def capacity_notes(capacity: Capacity, rate: str = "output_throughput") -> list[str]:
    """Where and why a throughput curve ends, as far as its points show it."""
    lines: list[str] = []
    if capacity.knee is not None:
        lines.append(f"Knee: the most throughput per latency is at {setting(capacity.knee)}.")
    if capacity.best is not None:
        lines.append(f"{_fit_words(capacity, rate)} (fits within {capacity.best.error:.1%}).")
    if capacity.limit == "queueing":
        lines.append(
            f"Queueing from c={capacity.onset} on: throughput is flat and only the first token waits, as behind an "
            "admission cap (max_num_seqs)."
        )
    if capacity.limit == "thrashing":
        lines.append(
            f"Thrashing from c={capacity.onset} on: throughput falls and latency jumps, as when requests are preempted "
            "and computed again (KV memory)."
        )
    elif capacity.retrograde:
        lines.append(f"Less throughput than at a lower concurrency: c={', '.join(map(str, capacity.retrograde))}.")
    return lines


def _fit_words(capacity: Capacity, rate: str) -> str:
    """The curve that fits the throughput best."""
    assert capacity.best is not None
    if capacity.best.model == "capped":
        cap = capacity.best.parameters["cap"]
        end = f" up to a cap of {metric(rate).format(cap)}" if math.isfinite(cap) else ", no cap in sight"
        return f"Throughput grows as N / (a + b N){end}"
    if capacity.peak is not None:
        span = f"{capacity.peak.low:.0f} to {capacity.peak.high:.0f}"
        return f"Throughput follows the scalability law and peaks near c={capacity.peak.value:.0f} ({span})"
    return "Throughput follows the scalability law, without a peak that these points prove"


# --- figures of a decision


def figure_row(figure: Figure, gpus: int | None, *, brief: bool = False) -> tuple[str, str, str, str, str]:
    """Name, value, bound (a CI where nothing is limited), limit and remark of a figure; `brief` for a narrow table."""
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


# --- comparisons

Names = tuple[str, str]


def names_of(comparison: "Comparison", names: Names | None = None) -> Names:
    """What the sides are called: as asked, by their deployments, or A and B where those are the same."""
    if names is not None:
        a, b = told_apart(names, 40)
    elif comparison.a == comparison.b:
        a, b = "A", "B"
    else:
        a, b = told_apart((comparison.a, comparison.b), 40)
    return a, b


def ratio_text(ratio: Estimate) -> str:
    """'1.12× [1.08, 1.16]'."""
    known = math.isfinite(ratio.low) and math.isfinite(ratio.high)
    return f"{ratio.value:.3g}×" + (f" [{ratio.low:.3g}, {ratio.high:.3g}]" if known else " (no interval)")


def until_text(comparison: "Comparison") -> str:
    """Up to which value of the second objective the areas count: 'p99 TTFT 500 ms'."""
    other = comparison.objectives[1]
    return f"{metric(other).label} {limit_value_text(other, comparison.reference)}"


def comparison_sentence(comparison: "Comparison", names: Names | None = None) -> str:
    """'fp8 is better than bf16: 1.12× [1.08, 1.16] the area up to p99 TTFT 500 ms', per GPU where it is that."""
    a, b = names_of(comparison, names)
    ratio = f"{ratio_text(comparison.ratio)} the area up to {until_text(comparison)}"
    per = " per GPU" if comparison.per_gpu else ""
    if comparison.verdict == "invalid":
        return f"{b} against {a} cannot be compared: no usable measurement"
    if comparison.verdict == "not resolved":
        return f"{b} against {a}{per} is not resolved: {ratio}"
    return f"{b} is {comparison.verdict} than {a}{per}: {ratio}"


def gpus_note(comparison: "Comparison", names: Names | None = None) -> str | None:
    """How the GPUs of both sides count: divided by, or why not; None where there is nothing to say.

    Of rates divided by GPUs it also says what the whole deployments come to, as the ratio times their GPUs.
    """
    (a, b), (of_a, of_b) = names_of(comparison, names), comparison.gpus
    if comparison.per_gpu:
        text = f"Per GPU: {a} has {count(of_a or 0, 'GPU')}, {b} {of_b}."
        whole = comparison.ratio.value * (of_b or 0) / (of_a or 1)
        rates = [metric(name).unit in RATES for name in comparison.objectives]
        if rates == [True, False] and metric(comparison.objectives[0]).better == "higher" and math.isfinite(whole):
            text += f" As whole deployments {b} is {whole:.3g}× {a}."
        return text
    if of_a == of_b or not any(metric(name).unit in RATES for name in comparison.objectives):
        return None
    known, unknown, side = (a, b, "b") if of_b is None else (b, a, "a")
    return (
        f"Whole deployments, not per GPU: {known} has {count(of_a or of_b or 0, 'GPU')}, that of {unknown} "
        f"is not known; give it with  --set-{side} gpus=N."
    )
