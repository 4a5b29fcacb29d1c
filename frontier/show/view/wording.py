"""Values, limits, names and flags in words: the texts that terminal, page and picture share.

Every function here turns data into text; none decides anything. A decision's sentences are in
`sentences.py`.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.groups import by_key
from frontier.core.model.loads import Load
from frontier.core.model.metrics import RATES, Unit, metric, per_gpu
from frontier.core.model.points import FLAG_WORDS, Estimate, Flag, Frontier, Point, TimeBreakdown
from frontier.core.model.shapes import Shape
from frontier.core.model.text import clean as clean
from frontier.core.model.text import clean_name as clean_name
from frontier.core.model.text import some_of
from frontier.core.model.units import count as count
from frontier.core.model.units import format_number, format_seconds
from frontier.show.view.axis_units import display_one

CLOSED_LOOP = "closed loop, zero think time"
SHORT = 24
"""Length up to which a name is not shortened beside others."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """The provenance of the numbers, as far as it is known. Every text may come from a server and
    is cleaned on use.
    """

    run: str | None = None
    model: str | None = None
    server: str | None = None
    hardware: str | None = None
    loop: str | None = CLOSED_LOOP
    tool: str | None = None
    created: str | None = None
    remark: str | None = None
    notes: tuple[str, ...] = ()


def apart(names: Sequence[str]) -> list[str]:
    """Names shortened to what tells them apart: without the beginning and the end that all of them
    share. Short names, and names that are all equal, stay as they are.
    """
    if len(set(names)) < 2 or max(map(len, names)) <= SHORT:
        return list(names)
    head = _alike(names)
    head = head[: max(head.rfind(ch) for ch in "-_/ ") + 1]
    tail = _alike([name[len(head) :][::-1] for name in names])[::-1]
    cuts = [at for at in map(tail.find, "-_/ ") if at >= 0]
    tail = tail[min(cuts) :] if cuts else ""
    return [("…" if head else "") + name[len(head) : len(name) - len(tail)] + ("…" if tail else "") for name in names]


def _alike(names: Sequence[str]) -> str:
    """The beginning that all of them share."""
    same = itertools.takewhile(lambda chars: len(set(chars)) == 1, zip(*names, strict=False))
    return "".join(chars[0] for chars in same)


def unit_text(name: str, gpus: int | None = None) -> str:
    """'tok/s', 'tok/s/GPU', 'ms' stays open for times (their unit follows the value) and is ''."""
    unit = metric(name).unit
    if unit in (Unit.SECONDS, Unit.SHARE, Unit.SCORE):
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
    """'2,850 tok/s', or with the metric's name where the unit does not tell it: 'p99 TTFT
    396 ms'.
    """
    text = value_text(name, value, gpus)
    return f"{metric(name).label} {text}" if metric(name).unit in (Unit.SECONDS, Unit.SHARE, Unit.SCORE) else text


def _in_digits(text: str, number: float, tells: Callable[[float], bool]) -> str:
    """The text of a number, which has three digits, with up to seven where three do not tell it."""
    if not math.isfinite(number) or tells(float(f"{number:.3g}")):
        return text
    rounded = next((r for r in (float(f"{number:.{digits}g}") for digits in range(4, 7)) if tells(r)), number)
    return re.sub(r"[\d,.]+", f"{rounded:,.7g}", text, count=1)


def limit_value_text(name: str, value: float) -> str:
    """A limit as its author wrote it: '500 ms', '1.5 s', '18.25 ms' rather than '500 ms', '1.50 s',
    '18.3 ms'.
    """
    number = value * display_one(name, value)[0]
    return _in_digits(metric(name).format_trimmed(value), number, lambda r: math.isclose(r, number, rel_tol=1e-6))


def beside_limit(value: float | None, limit: Limit) -> str:
    """A value with the digits that show on which side of its limit it lies: '100.3 ms' beside a
    limit of 100 ms.
    """
    text = value_text(limit.metric, value)
    if value is None or math.isnan(value):
        return text
    factor = display_one(limit.metric, value)[0]
    promise = limit.promise * factor
    side = (value > limit.promise, value < limit.promise)
    return _in_digits(text, value * factor, lambda r: (r > promise, r < promise) == side)


def load_words(load: Load, shape: Shape) -> str:
    """How a sentence names the load of a shape: 'concurrency 64', '64 concurrent sessions'."""
    sessions = shape.has_sessions and not load.is_open
    return count(load, "concurrent session") if sessions else load.words


VERDICT_WORDS = {
    Verdict.MEETS: "meets",
    Verdict.VIOLATES: "violates",
    Verdict.MARGINAL: "not proven",
    Verdict.UNPROVEN: "not proven",
    Verdict.INVALID: "excluded",
}
"""A verdict in texts; JSON tells two kinds of *not proven* apart."""


def limits_text(limits: Iterable[Limit]) -> str:
    """'p99 TTFT ≤ 500 ms, p99 TPOT ≤ 30 ms and error rate ≤ 1%'."""
    signs = {"lower": "≤", "higher": "≥"}
    texts = [f"{lim.of.label} {signs[lim.better]} {limit_value_text(lim.metric, lim.promise)}" for lim in limits]
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


RUN_HERE = "   <- run here"
"""Marks the operating point in a table."""
NO_BOUND = "*"
"""Marks a percentile with too few requests for an upper bound; the legend below a table explains
it."""
NO_BOUND_LEGEND = "* too few independent requests to bound this percentile"
NOT_NEEDED = "; not needed for the answer"


def has_no_bound(name: str, estimate: Estimate, *, limited: bool) -> bool:
    """Whether a percentile has too few requests for the bound that decides, where it is `limited`;
    elsewhere for any on the side that an SLA would limit.
    """
    higher = metric(name).higher_is_better
    bounds = (estimate.lower, estimate.low) if higher else (estimate.upper, estimate.high)
    without = estimate.has_bound and all(map(math.isinf, bounds[: 1 if limited else 2]))
    return metric(name).p is not None and without and math.isfinite(estimate.value)


def _is_stated(name: str, estimate: Estimate) -> bool:
    """Whether a quality is the stated one: it is taken as exact and has no interval to show."""
    return metric(name).unit is Unit.SCORE and estimate.low == estimate.high


def interval_text(name: str, estimate: Estimate, gpus: int | None = None) -> str:
    """'[373, 438]' in the unit of `value_text`, '' without an interval. Without an upper end
    '≥ 373, at most 440 (95%)' with the bound that there is, '≥ 373' without one.
    """
    if _is_stated(name, estimate) or (math.isinf(estimate.low) and math.isinf(estimate.high)):
        return ""
    factor = display_one(name, estimate.value, gpus)[0]
    low, high, upper = (format_number(end * factor) for end in (estimate.low, estimate.high, estimate.upper))
    if math.isinf(estimate.low):
        return f"≤ {high}"
    if math.isfinite(estimate.high) or math.isinf(estimate.value):
        return f"[{low}, {high}]"
    if math.isinf(estimate.upper):
        return f"≥ {low}"
    return f"≥ {low}, at most {upper} ({level_text(estimate.confidence)})"


def ci_text(name: str, estimate: Estimate, gpus: int | None = None) -> str:
    """'95% CI 3,380 to 3,440' in the value's unit, '3,380 to 3,440 between runs', 'no interval'."""
    if not (math.isfinite(estimate.low) and math.isfinite(estimate.high)):
        return "no interval"
    if _is_stated(name, estimate):
        return "stated"
    factor = display_one(name, estimate.value, gpus)[0]
    ends = f"{format_number(estimate.low * factor)} to {format_number(estimate.high * factor)}"
    return f"95% CI {ends}" if estimate.has_bound else f"{ends} between runs"


def bound_text(estimate: Estimate, limit: Limit) -> str:
    """The one-sided bound that decides, with its confidence: 'at most 438 ms (98%)', 'at least
    ...', or why it is missing.
    """
    if math.isinf(estimate.value):
        return "too many requests failed"
    bound = deciding_bound(estimate, limit)
    if estimate.has_interval and not estimate.has_bound:
        return f"{beside_limit(estimate.low, limit)} to {beside_limit(estimate.high, limit)} between runs"
    if bound is None:
        return "no bound" if estimate.has_bound or estimate.need is not None else "no interval"
    if _is_stated(limit.metric, estimate):
        return "stated"
    word = "at most" if limit.holds(estimate.value) == (limit.better == "lower") else "at least"
    return f"{word} {beside_limit(bound, limit)} ({level_text(estimate.confidence)})"


def level_text(confidence: float) -> str:
    """'95%', or '99.9%': a confidence as one says it, never rounded up.

    >>> level_text(0.95), level_text(0.9875), level_text(0.9999)
    ('95%', '98%', '99.9%')
    """
    per_mille = math.floor(confidence * 1e3 + 1e-6)
    return f"{per_mille / 10 if per_mille > 995 else per_mille // 10:g}%"


def evidence_text(estimate: Estimate | None, limit: Limit) -> str:
    """A value, the bound that decides and the limit: 'p99 TTFT 396 ms, at most 438 ms (95%), limit
    500 ms'.
    """
    if estimate is None or math.isnan(estimate.value):
        return f"{limit.of.label} not measured"
    bound = bound_text(estimate, limit)
    value, promise = beside_limit(estimate.value, limit), limit_value_text(limit.metric, limit.promise)
    return f"{limit.of.label} {value}, {bound}, limit {promise}"


def left_out(points: Iterable[Point], frontier: Frontier) -> list[str]:
    """Why points without a fatal flag are not on the frontier: 'no p99 TTFT: c=8, c=16'."""
    out = sorted((p for p in points if p.valid and p.load in frontier.excluded), key=lambda p: p.load)
    reasons = by_key((clean(_no_values(p, frontier) or frontier.excluded[p.load], 160), p.load.label) for p in out)
    shown = [f"{why}: {', '.join(where)}" for why, where in reasons.items()]
    more = [f"and {len(shown) - MANY} more reasons"] if len(shown) > MANY else []
    return [*shown[:MANY], *more]


def _no_values(point: Point, frontier: Frontier) -> str:
    """'no p99 TTFT and no cost': the axes on which a point has no value; '' where it has both."""
    missing = [metric(name).label for name in frontier.objectives if name not in point.metrics]
    return f"no {' and no '.join(missing)}" if missing else ""


WIDENS = frozenset(
    {"non_stationary", "lockstep", "under_concurrency", "over_concurrency", "littles_law", "client_bound"}
)
"""Flags that widen the bounds of a point that they do not exclude (`core.estimates.widening`)."""


_STREAM, _LOAD = "buffered_stream coalesced", "littles_law lockstep non_stationary over_concurrency under_concurrency"
BY_THE_CLIENT = frozenset(f"{_STREAM} {_LOAD}".split())
"""What a client that stood still makes of a server without a fault. Where the client was the limit
these say nothing of the server, and their advice would not help."""


def told(flags: Iterable[Flag]) -> list[Flag]:
    """The flags that are told: where the client was the limit, not what it may have made; where it
    was merely slow, not that fewer requests were in flight for it.
    """
    every = list(flags)
    busy = {flag.fatal for flag in every if flag.name == "client_bound"}
    if True in busy:
        return [flag for flag in every if flag.name not in BY_THE_CLIENT]
    return [flag for flag in every if flag.fatal or not busy or flag.name != "under_concurrency"]


def flag_words(flag: Flag) -> str:
    """'this machine was busy: event loop late (p99) 5.82 ms, limit 5.00 ms': a flag in words, for a
    reader who does not know its name.
    """
    text = f"{flag_kind(flag.name)}: {flag_figures(flag)}"
    return f"{text} (its bounds are wider for it)" if flag.name in WIDENS and not flag.fatal else text


def flag_figures(flag: Flag) -> str:
    """'event loop late (p99) 5.82 ms, limit 5.00 ms': each value with its own limit."""
    return "; ".join(f"{value}, limit {limit}" if limit else value for value, limit in _values(flag))


def _values(flag: Flag) -> list[tuple[str, str]]:
    """What a flag measured, each value with its own limit; all of it with all limits where these
    are not as many.
    """
    measured, limits = clean(flag.measured, 160).split("; "), clean(flag.limit, 60).split(", ")
    if len(measured) != len(limits):
        return [("; ".join(measured), ", ".join(limits))]
    return list(zip(measured, limits, strict=True))


def flag_kind(name: str) -> str:
    """The kind of a flag in words, by its name: 'requests came in waves'."""
    name = clean(name, 40)
    return FLAG_WORDS.get(name, name.replace("_", " "))


MANY = 4
"""The number of settings above which those that share a figure are listed under it."""


@dataclass(frozen=True, slots=True)
class FlagKind:
    """One kind of flag, in words, and the settings that have it, as (concurrency, what was measured
    there).
    """

    name: str
    limit: str
    advice: str
    fatal: bool
    where: tuple[tuple[Load, str], ...]

    def text(self, most: int = 100) -> str:
        """'requests failed (limit 1%): c=96 4.2%, c=128 9% and 2 more': at most `most` settings; a
        figure that all of them share comes once.
        """
        limit = f" (limit {self.limit})" if self.limit else ""
        figures = {measured for _, measured in self.where}
        shared = figures.pop() if len(self.where) > 1 and len(figures) == 1 else None
        head = f"{self.name} {shared or ''}".rstrip()
        shown = [f"{c.label} {measured if shared is None else ''}".rstrip() for c, measured in self.where]
        return f"{head}{limit}: {some_of(shown, most)}"


def flag_kinds(points: Iterable[Point]) -> list[FlagKind]:
    """Every kind of flag once, the fatal ones first."""
    flagged = ((point.load, flag) for point in points for flag in told(point.flags))
    kinds = by_key(((not flag.fatal, flag.name), (load, flag)) for load, flag in flagged)
    return [
        _kind(name, flags, fatal=not remark)
        for (remark, name), flags in sorted(kinds.items(), key=lambda kind: kind[0][0])
    ]


def _kind(name: str, flags: Sequence[tuple[Load, Flag]], *, fatal: bool) -> FlagKind:
    """The kind of a flag. A limit that is not the same for all figures stands beside each of them;
    otherwise it comes once.
    """
    values = [(c, _values(flag)) for c, flag in flags]
    limits = {limit for _, pairs in values for _, limit in pairs}
    one = limits.pop() if len(limits) == 1 else ""
    where = tuple(
        (c, clean("; ".join(f"{value} (limit {limit})" if limit and not one else value for value, limit in pairs), 120))
        for c, pairs in values
    )
    return FlagKind(flag_kind(name), one, clean(flags[0][1].advice, 240), fatal, where)


# --- where the time goes

PART_WORDS = {
    "connect": "connect",
    "network": "network",
    "front_end": "server front end",
    "queue": "queue",
    "prefill": "prefill",
    "decode": "decode",
}
"""The parts of a time breakdown, in words."""
_WORTH_A_WORD = 0.005


def time_sentence(load: Load, breakdown: TimeBreakdown) -> str:
    """The time breakdown of a setting: 'at c=64, means: TTFT 212 ms (queue 20.0 ms, ...), decode
    1.9 s, ...'.
    """
    if breakdown.refused:
        return f"not known at {load.label}: {breakdown.refused}."
    before = [
        f"{PART_WORDS[name]} {format_seconds(value)}"
        for name, value in breakdown.parts.items()
        if name != "decode" and value > _WORTH_A_WORD * breakdown.ttft
    ]
    parts = f" ({', '.join(before)})" if before else ""
    decode = f", decode {format_seconds(breakdown.parts['decode'])}" if "decode" in breakdown.parts else ""
    names = ", ".join(PART_WORDS[name] for name in breakdown.missing)
    missing = f" (the server does not tell {names})" if names else ""
    rest = unexplained_text(breakdown)
    told = f", {rest} of it unexplained" if breakdown.rest >= 0 else ""
    whole = f", E2E {format_seconds(breakdown.e2e)}{told}"
    return f"at {load.label}, means: TTFT {format_seconds(breakdown.ttft)}{parts}{decode}{whole}{missing}."


def time_line(points: Sequence[Point], chosen: Load | None) -> str:
    """The time breakdown at the operating point, or else at the highest setting that has one; ''
    without one.
    """
    known = [(p.load, p.time) for p in points if p.valid and p.time is not None]
    if not known:
        return ""
    return time_sentence(*next(((c, time) for c, time in known if c == chosen), known[-1]))


def unexplained_text(breakdown: TimeBreakdown) -> str:
    """The share of the mean E2E latency that no part explains; negative where the parts
    exceed it.
    """
    return f"{breakdown.rest / breakdown.e2e:.1%}".replace("-0.0%", "0.0%")


def deciding_bound(estimate: Estimate, limit: Limit) -> float | None:
    """The one-sided 95% bound that decides, on the limit's side of the value. None without one."""
    toward_upper = limit.holds(estimate.value) == (limit.better == "lower")
    bound = estimate.upper if toward_upper else estimate.lower
    return bound if math.isfinite(bound) else None
