"""The sentences and figures that picture, tables and page share, and the cleaning of text that came from outside."""

import hashlib
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from frontier.metrics import RATES, Unit, metric, per_gpu
from frontier.model import Decision, Estimate, Flag, Frontier, Limit, Point, Verdict
from frontier.text import clean as clean
from frontier.units import format_number, format_seconds, format_share, roughly

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


def clean_name(text: str, longest: int = 40) -> str:
    """A name from outside, cleaned; a long one is cut in its middle, as variants differ at either end."""
    return middle_cut(clean(text), longest)


def middle_cut(text: str, longest: int) -> str:
    """At most `longest` characters, the middle left out.

    >>> middle_cut("llama-3.1-70b-instruct-fp8", 13)
    'llama-…ct-fp8'
    """
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 2
    return f"{text[: longest - 1 - tail].rstrip()}…{text[len(text) - tail :].lstrip()}"


def told_apart(names: Sequence[str], longest: int = 60) -> list[str]:
    """Names from outside, cleaned and cut, none like another: where the cut ones agree a short hash tells them apart,
    and the same name again is numbered.
    """
    cut = [clean_name(name, longest) for name in names]
    several = {short for short in cut if len({n for n, c in zip(names, cut, strict=True) if c == short}) > 1}
    found: list[str] = []
    for name, short in zip(names, cut, strict=True):
        label = short
        if short in several:
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
            label = f"{middle_cut(short, longest - 7)}~{digest}"
        again = sum(other == name for other in names[: len(found)])
        found.append(f"{label} ({again + 1})" if again else label)
    return found


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
    if metric(name).unit is Unit.SHARE:
        return f"{_trim(format_share(value)[:-1])}%"
    return metric(name).format(value)


def named_value(name: str, value: float, gpus: int | None = None) -> str:
    """'2,850 tok/s': the unit says what it is; where it does not, the name is said: 'p99 TTFT 396 ms'."""
    text = value_text(name, value, gpus)
    return f"{metric(name).label} {text}" if metric(name).unit in (Unit.SECONDS, Unit.SHARE) else text


def limit_value_text(name: str, value: float) -> str:
    """A limit as its author wrote it: '500 ms', '1.5 s', '1%' rather than '500 ms', '1.50 s', '1.00%'."""
    unit = metric(name).unit
    if unit is Unit.SECONDS:
        number, _, suffix = format_seconds(value).partition(" ")
        return f"{_trim(number)} {suffix}"
    if unit is Unit.SHARE:
        return f"{_trim(format_share(value)[:-1])}%"
    if unit is Unit.DOLLARS_PER_MILLION_TOKENS:
        return f"${_trim(format_number(value))}/Mtok"
    return f"{_trim(format_number(value))} {unit.value}"


def _trim(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def limit_text(limit: Limit, value: float | None = None) -> str:
    """'p99 TTFT ≤ 500 ms'; `value` replaces the promise (for the comfort mark)."""
    of = metric(limit.metric)
    sign = "≤" if of.better == "lower" else "≥"
    return f"{of.label} {sign} {limit_value_text(limit.metric, limit.promise if value is None else value)}"


def limits_text(limits: Iterable[Limit]) -> str:
    """'p99 TTFT ≤ 500 ms and p99 TPOT ≤ 30 ms'."""
    return " and ".join(limit_text(limit) for limit in limits)


def interval_text(name: str, estimate: Estimate, gpus: int | None = None) -> str:
    """'[373, 438]' in the unit `value_text` gives the value; '' when nothing is known about the doubt."""
    if math.isinf(estimate.low) and math.isinf(estimate.high):
        return ""
    scale = _display_scale(name, estimate.value, gpus)
    return f"[{format_number(estimate.low * scale)}, {format_number(estimate.high * scale)}]"


def proven_words(estimate: Estimate | None, limit: Limit) -> str:
    """', proven ≤ 6.94 ms': the one-sided bound that a claim stands on, where the two-sided interval shown beside it
    crosses the limit.
    """
    if estimate is None:
        return ""
    if metric(limit.metric).better == "lower":
        if estimate.upper <= limit.promise < estimate.high:
            return f", proven ≤ {value_text(limit.metric, estimate.upper)}"
    elif estimate.low < limit.promise <= estimate.lower:
        return f", proven ≥ {value_text(limit.metric, estimate.lower)}"
    return ""


def _display_scale(name: str, value: float, gpus: int | None) -> float:
    unit = metric(name).unit
    if unit is Unit.SECONDS:
        if math.isinf(value) or abs(value) >= 0.9995:
            return 1.0
        return 1e6 if 0 < abs(value) < 1e-3 else 1e3
    return 100.0 if unit is Unit.SHARE else 1 / per_gpu(name, gpus)


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
        said = [f.measured for f in point.flags if f.name == MISSING and all(label in f.measured for label in missing)]
        if missing and said and not flagged:
            continue
        known = said[0] if said else f"no {' and no '.join(missing)}"
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
    name = clean(flag.name, 40)
    said = f"{_FLAG_WORDS.get(name, name.replace('_', ' '))}: {clean(flag.measured, 160)}"
    return f"{said}, limit {clean(flag.limit, 60)}" if flag.limit else said


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
    found: dict[tuple[bool, str], list[tuple[int, Flag]]] = {}
    for point in points:
        for flag in point.flags:
            found.setdefault((not flag.fatal, flag.name), []).append((point.concurrency, flag))
    return [_kind(name, flags, fatal=not remark)
            for (remark, name), flags in sorted(found.items(), key=lambda kind: kind[0][0])]  # fmt: skip


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
    """The decision as one sentence, the title of the picture and the head of the page."""
    promise = limits_text(decision.limits)
    if decision.verdict is Verdict.MEETS and decision.concurrency is not None:
        return _met_sentence(decision, throughput, gpus)
    if decision.verdict is Verdict.INVALID:
        return "No valid measurement to decide by"
    if decision.verdict is Verdict.VIOLATES:
        nearest = _candidate_value(decision)
        return f"Nothing measured keeps {promise}" + (f": closest is concurrency {nearest}" if nearest else "")
    return _open_sentence(decision, promise)


def brief_sentence(decision: Decision, *, throughput: str = "output_throughput", gpus: int | None = None) -> str:
    """The same in few words, where several stand beside each other."""
    limit = binding_limit(decision)
    held = decision.metrics.get(limit.metric) if limit else None
    tail = f"{metric(limit.metric).label} {value_text(limit.metric, held.value)}" if limit and held else ""
    if decision.concurrency is not None:
        speed = decision.metrics.get(throughput)
        figures = [named_value(throughput, speed.value, gpus)] if speed else []
        return f"run at {decision.concurrency}: " + ", ".join([*figures, tail] if tail else figures)
    words = {Verdict.VIOLATES: "nothing keeps the SLA", Verdict.INVALID: "nothing valid"}
    word = words.get(decision.verdict, "not proven")
    if decision.candidate is None or decision.verdict is Verdict.INVALID:
        return word
    if decision.verdict is Verdict.UNPROVEN:
        return f"{word}: {setting(decision.candidate)} has {unproven_words(held, candidate_need(decision))}"
    return f"{word}; closest {setting(decision.candidate)}, {tail}".rstrip(", ")


def _met_sentence(decision: Decision, throughput: str, gpus: int | None) -> str:
    said = f"Run at concurrency {decision.concurrency}"
    if (speed := decision.metrics.get(throughput)) is not None:
        said += f": {named_value(throughput, speed.value, gpus)}"
    limit = binding_limit(decision)
    held = decision.metrics.get(limit.metric) if limit else None
    if limit and held and limit.metric != throughput:
        of = metric(limit.metric)
        word = "limit" if of.better == "lower" else "at least"
        promise = f"{word} {limit_value_text(limit.metric, limit.promise)}"
        said += f" with {of.label} {value_text(limit.metric, held.value)} ({promise})"
    return said


def _open_sentence(decision: Decision, promise: str) -> str:
    nearest = _candidate_value(decision)
    if nearest is None:
        return f"Not proven: no setting is shown to keep {promise}"
    if decision.verdict is Verdict.MARGINAL:
        return f"Not proven to keep {promise}: the interval of concurrency {nearest} crosses it"
    limit = binding_limit(decision)
    held = decision.metrics.get(limit.metric) if limit else None
    if held is not None and held.need is None and math.isinf(held.lower) and math.isinf(held.upper):
        return f"Not proven to keep {promise}: concurrency {nearest}; its interval is not known"
    need = candidate_need(decision)
    has = f", it has {held.n:,}" if held is not None and held.n else ""
    asked = f"; about {roughly(need)} requests would decide{has}" if need else "; too few requests to bound it"
    return f"Not proven to keep {promise}: concurrency {nearest}{asked}"


def binding_limit(decision: Decision) -> Limit | None:
    """The limit with the least headroom, else the first."""
    for limit in decision.limits:
        if limit.metric == decision.binding:
            return limit
    return decision.limits[0] if decision.limits else None


def _candidate_value(decision: Decision) -> str | None:
    """'64 at 492 ms' for the candidate; with several limits, of which metric."""
    if decision.candidate is None:
        return None
    limit = binding_limit(decision)
    estimate = decision.metrics.get(limit.metric) if limit else None
    if limit is None or estimate is None:
        return str(decision.candidate)
    label = "" if len(decision.limits) == 1 else f"{metric(limit.metric).label} "
    return f"{decision.candidate} at {label}{value_text(limit.metric, estimate.value)}"


def unproven_words(estimate: Estimate | None, need: int | None) -> str:
    """Why nothing is proven of a setting: '601 of about 1,280 requests', 'too few requests', 'interval not known'.

    A claim about a tail takes a number of requests, however good the fewer look (`metrics.claim_floor`).
    """
    if estimate is None:
        return "not measured"
    if need and estimate.n:
        return f"{estimate.n:,} of about {roughly(need)} requests"
    if math.isinf(estimate.low) and math.isinf(estimate.high):
        return "interval not known"
    return "too few requests"


def candidate_need(decision: Decision) -> int | None:
    """How many requests would decide the candidate, when that is known."""
    for judgement in decision.judgements:
        if judgement.concurrency == decision.candidate and judgement.need is not None:
            return judgement.need
    limit = binding_limit(decision)
    estimate = decision.metrics.get(limit.metric) if limit else None
    return estimate.need if estimate else None


def neighbour(decision: Decision) -> tuple[int, Verdict, str | None] | None:
    """The next measured setting above the operating point that does not meet the SLA: its verdict, what binds it."""
    if decision.concurrency is None:
        return None
    above = [j for j in decision.judgements if j.concurrency > decision.concurrency]
    for judgement in sorted(above, key=lambda j: j.concurrency):
        if judgement.verdict in (Verdict.MARGINAL, Verdict.UNPROVEN, Verdict.VIOLATES):
            return judgement.concurrency, judgement.verdict, judgement.binding
    return None


_SAID_ABOVE = ("Binding: ", "Nothing measured ", "There is no valid measurement.")


def decision_notes(decision: Decision) -> list[str]:
    """The analysis' notes, less those that only repeat the sentence and the figures they stand under."""
    return [clean(note, 400) for note in decision.notes if not note.startswith(_SAID_ABOVE)]
