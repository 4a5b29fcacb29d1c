"""The SLA and the objectives of a config, and the text of `--sla`: 'p99_ttft<=500ms, goodput>=5' to
limits."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import PlainValidator

from frontier.config.yaml_source import plain_value
from frontier.core.model.decisions import Limit
from frontier.core.model.errors import UsageError
from frontier.core.model.metrics import EXTREMES, TURN_CLASSES, Metric, Unit, metric
from frontier.core.model.text import did_you_mean
from frontier.fields import Problem, is_number, name, read, refuse, seconds_of, share, shown

Tiers = tuple[tuple[str, tuple[Limit, ...]], ...]
"""Named sets of limits, the default first."""

PRESETS: Mapping[str, str] = {
    "chat": "p99_ttft<=200ms, p99_tpot<=50ms",
    "search": "p99_ttft<=300ms, p99_e2e<=3s",
    "agent": "p99_e2e<=5s",
    "summary": "p99_ttft<=2s",
    "voice": "p99_ttft<=100ms",
    "batch": "p95_e2e<=2min",
}
"""Limits by the name of a use; their sources: docs/config.md#presets."""
DEFAULT_TIER = "default"
_SIGNS = {"<=": "lower", "<": "lower", "≤": "lower", ">=": "higher", ">": "higher", "≥": "higher"}


def known_metric(text: Any) -> Metric:
    """The metric of that name; a `Problem` with did-you-mean otherwise."""
    if not isinstance(text, str) or len(text) > 60:
        raise Problem(
            f"{shown(text)} is not a metric", "write a name such as p99_ttft or output_throughput", at_key=True
        )
    try:
        return metric(text)
    except ValueError as error:
        raise Problem.of(error, at_key=True) from None


def read_tiers(value: Any) -> Tiers:
    """The tiers of the `sla` key: {p99_ttft: 500ms}, {gold: {p99_ttft: 200ms}, silver: chat}, or
    the command line's text, as 'chat' (PRESETS).

    Limits of a class of requests stand beside the others: {p99_ttft: 2s, later: {p99_ttft: 500ms}}.
    """
    if isinstance(value, str):
        return ((DEFAULT_TIER, _limits_of_text(value)),)
    if not isinstance(value, dict) or not value:
        raise Problem("{key} is metrics with their limits", "write {p99_ttft: 500ms, p99_tpot: 30ms}")
    named = [key for key, item in value.items() if isinstance(item, dict) or item in list(PRESETS)]
    if set(named) <= set(TURN_CLASSES):
        return ((DEFAULT_TIER, read_limits(value)),)
    if stray := [key for key in value if key not in named]:
        what = f"{shown(stray[0])} stands beside named tiers"
        raise Problem(what, "put it into each tier, or name no tiers", stray[0])
    tiers: dict[str, tuple[Limit, ...]] = read(dict[_TierName, Annotated[Any, PlainValidator(read_limits)]], value)
    return tuple(tiers.items())


def _tier_name(value: str) -> str:
    try:
        known_metric(value)
    except Problem:
        return name(value)
    raise Problem(f"{value}: a limit is one value or [comfort, promise]", "write 500ms")


_TierName = Annotated[str, PlainValidator(_tier_name)]


def read_limits(value: dict[str, Any] | str) -> tuple[Limit, ...]:
    """The limits of one tier, or of a class of traffic."""
    if isinstance(value, str):
        return _limits_of_text(value)
    if not value:
        raise Problem("{key} has no limits", "write {p99_ttft: 500ms}")
    limits, problems = [], []
    for key, item in _with_classes(value):
        try:
            limits.append(_limit(known_metric(".".join(key)), item))
        except Problem as problem:
            problems.append(problem.below(*key))
    refuse(problems or _without_latencies(limits))
    return tuple(limits)


def _with_classes(value: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The limits by the parts of their names: ('p99_ttft',), of a class ('later', 'p99_ttft')."""
    for key, item in value.items():
        if key not in TURN_CLASSES:
            yield (key,), item
        elif isinstance(item, dict) and item:
            yield from (((key, name), limit) for name, limit in item.items())
        else:
            raise Problem(f"{key}: these are limits of a class", "write {p99_ttft: 500ms}", key)


def _without_latencies(limits: list[Limit]) -> list[Problem]:
    """A problem of goodput without a latency limit: it counts requests within the latency limits,
    so it would count every request.
    """
    if any(limit.of.quantity is not None for limit in limits):
        return []
    return [
        Problem(f"{limit.metric} counts requests within the latency limits, and there are none", "add  p99_ttft: 500ms")
        for limit in limits
        if limit.of.needs == "limits"
    ]


def _limit(limited: Metric, value: Any) -> Limit:
    """A limit, or a range [comfort, promise]."""
    if limited.name in EXTREMES:
        what = f"{limited.name} is of the requests that were sent, and the next one may be worse"
        raise Problem(what, f"limit {EXTREMES[limited.name]}, for which there is a proof")
    if not isinstance(value, list):
        return Limit(limited.name, _bound(limited, value))
    if len(value) != 2:
        raise Problem("{key}: a range is two limits, comfort and promise", "write [200ms, 500ms]")
    comfort, promise = _bound(limited, value[0]), _bound(limited, value[1])
    if comfort == promise:
        return Limit(limited.name, promise)
    if limited.improves(promise, comfort):
        what = "{key}: the comfort mark comes first and is the stricter of the two"
        raise Problem(what, f"write [{str(value[1])[:40]}, {str(value[0])[:40]}]")
    return Limit(limited.name, promise, comfort)


def _bound(limited: Metric, value: Any) -> float:
    """One bound in the metric's unit."""
    sign = re.match(r"\s*(<=|>=|[<>≤≥])\s*", value) if isinstance(value, str) else None
    if sign is not None:
        _check_direction(limited, sign[1], value[sign.end() :])
        value = value[sign.end() :]
    if limited.unit is Unit.SECONDS:
        return _latency(value)
    if limited.unit is Unit.SHARE:
        return share(value)
    bound = float(value) if is_number(value) else math.nan
    if isinstance(value, str):
        bound = (
            _number(value.strip().removeprefix("$").removesuffix("/Mtok").removesuffix(limited.unit.value)) or math.nan
        )
    if not 0 < bound < 1e15:
        example = "$2" if limited.unit is Unit.DOLLARS_PER_MILLION_TOKENS else "30"
        raise Problem(
            f"{{key}}: {shown(value)} is not a limit", f"write a number of {limited.unit.value}, as {example}"
        )
    return bound


_SURELY_MS = 20.0
"""A latency limit without a unit means milliseconds from this size on; a smaller one may mean
either."""


def _latency(value: Any) -> float:
    """Seconds of a latency limit, above zero and at most a day."""
    if is_number(value):
        if not value > 0:
            raise Problem(f"{{key}}: {value:g} is not a limit", "write a time above zero, as 500ms or 0.5s")
        if value < 1:
            raise Problem("{key} needs a unit", f"write {value:g}s or {value * 1000:g}ms")
        if value < _SURELY_MS:
            raise Problem("{key} needs a unit", f"write {value:g}s, or {value:g}ms if milliseconds are meant")
        raise Problem("{key} needs a unit", f"write {value:g}ms or {value / 1000:g}s")
    seconds = seconds_of(value, "a time", "500ms or 0.5s")
    if not 0 < seconds <= 86_400:
        raise Problem(f"{{key}}: {shown(value)} is not a limit", "write a time above zero and at most a day")
    return seconds


def _check_direction(limited: Metric, sign: str, rest: str) -> None:
    if _SIGNS[sign] != limited.better:
        value = rest[:40].strip()
        what = f"{limited.name} {sign} {value} asks for the wrong side: of {limited.label} {limited.better} is better"
        raise Problem(what, f"write {limited.name}{_right_sign(limited)}{value}")


def _right_sign(limited: Metric) -> str:
    return ">=" if limited.higher_is_better else "<="


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,15}(\.\d*)?|\.\d+", text.strip()) else None


# ---- the text of --sla

_PART = re.compile(r"\s*([^\s<>=≤≥:]{1,60})\s*(<=|>=|=|:|[<>≤≥])\s*(\S(?:.{0,60}\S)?)\s*")
_GOODPUT = re.compile(r"(ttft|tpot|itl|e2el?):(\d+(?:\.\d+)?)")
"""A limit as vLLM's --goodput has it, in milliseconds."""
_NEXT_LIMIT = re.compile(r"(?:\s*[;&]+\s*|\s+and\s+|\s+)(?=[A-Za-z][\w.]*\s*[<>=≤≥:])")


def _limits_of_text(text: str, tiers: Mapping[str, tuple[Limit, ...]] = MappingProxyType({})) -> tuple[Limit, ...]:
    """The limits of a text: each part of it is the name of one of the `tiers`, else of a preset,
    else a limit.
    """
    limits: dict[str, Limit] = {}
    parts = [part if part.strip() in tiers else PRESETS.get(part.strip(), part) for part in text.split(",")]
    for limit in _each_limit(",".join(parts), tiers):
        if limit.metric in limits:
            hint = f"a range is written {limit.metric}{_right_sign(limit.of)}200ms..500ms"
            raise Problem(f"{limit.metric} is limited twice", hint)
        limits[limit.metric] = limit
    for problem in _without_latencies(list(limits.values())):
        raise problem
    return tuple(limits.values())


def _each_limit(text: str, tiers: Mapping[str, tuple[Limit, ...]]) -> Iterator[Limit]:
    for part in text.split(","):
        if part.strip() in tiers:
            yield from tiers[part.strip()]
        else:
            yield _limit_of_text(part, tiers)


def _limit_of_text(part: str, tiers: Iterable[str]) -> Limit:
    """The limit of 'p99_ttft<=500ms' or 'p99_ttft<=200ms..500ms'."""
    match, written = _PART.fullmatch(part), shown(part.strip())
    if match is None:
        likely = did_you_mean(part.strip(), [*tiers, *PRESETS])
        if not likely and part.strip().isidentifier():
            known = "".join(f"the tiers are {', '.join(tiers)}; " for _ in list(tiers)[:1])
            likely = f"{known}the presets {', '.join(PRESETS)}; a limit is written  p99_ttft<=500ms"
        raise Problem(f"{written} is not a limit", likely or "write it as  p99_ttft<=500ms, p99_tpot<=30ms")
    if all(goodput := [_GOODPUT.fullmatch(each) for each in re.split(r"[;\s]+", part.strip())]):
        told = ", ".join(f"p99_{each[1].replace('e2el', 'e2e')}<={each[2]}ms" for each in goodput if each)
        raise Problem(f"{written} is the form of vLLM's --goodput", f"name the percentile and the unit:  {told}")
    if re.search(r"[<>=≤≥:]", match[3]) and "," in (apart := _NEXT_LIMIT.sub(", ", part.strip())):
        raise Problem(f"{written} is more than one limit", f"put commas between them:  {apart}")
    limited, sign, rest = known_metric(match[1]), match[2], match[3]
    if sign in "=:":
        what = f"{written} does not say which side is allowed"
        raise Problem(what, f"write {limited.name}{_right_sign(limited)}{rest}")
    _check_direction(limited, sign, rest)
    # As YAML would have it: a number where it is one, so that a missing unit is recognised.
    bounds = [plain_value(bound) for bound in rest.split("..")]
    try:
        return _limit(limited, bounds[0] if len(bounds) == 1 else bounds)
    except Problem as problem:
        hint = re.sub(r"\[(\S+), (\S+)\]", rf"{limited.name}{_right_sign(limited)}\1..\2", problem.hint or "")
        raise Problem(problem.what, hint).named(limited.name) from None


def read_objectives(value: Any) -> tuple[str, str]:
    """The two axes of the frontier, by the names of their metrics."""
    if not isinstance(value, list) or len(value) != 2:
        raise Problem("{key} are the two axes of the frontier", "write [output_throughput, p99_ttft]")
    across, up = read(tuple[_Objective, _Objective], value)
    if across == up:
        raise Problem("the two objectives are the same", "write [output_throughput, p99_ttft]", 1)
    return across, up


def _objective(value: Any) -> str:
    # Until 1.0.0 there was the inverse of `energy`, with which a frontier has the same members.
    return known_metric("energy" if value == "tokens_per_joule" else value).name


_Objective = Annotated[str, PlainValidator(_objective)]


def parse_sla(text: str, tiers: Tiers = ()) -> tuple[Limit, ...]:
    """The limits of 'p99_ttft<=500ms, p99_tpot<=30ms', of the name of one of the `tiers`, or else
    of 'chat' (PRESETS); a range is 'p99_ttft<=200ms..500ms' (comfort, promise).

    Latencies need units. `<` is read as `<=`. UsageError for anything else, an unknown metric or
    the wrong side.

    >>> parse_sla("p99_ttft<=500ms, error_rate<1%")[0].promise
    0.5
    """
    try:
        return _limits_of_text(text, {name: limits for name, limits in tiers if name != DEFAULT_TIER})
    except Problem as problem:
        raise UsageError(problem.what, problem.hint) from None
