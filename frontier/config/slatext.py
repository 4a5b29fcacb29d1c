"""How an SLA is read: as a mapping in a config, or as 'p99_ttft<=500ms, goodput>=5' on the command line."""

import math
import re
from typing import Any

from frontier.config.faults import Fault, Faults, fault, shown
from frontier.config.quantities import latency, share
from frontier.config.values import name
from frontier.errors import UsageError
from frontier.metrics import Metric, Unit, metric
from frontier.model import Limit
from frontier.units import parse_duration

Tiers = tuple[tuple[str, tuple[Limit, ...]], ...]
"""Named sets of limits, the default first."""

DEFAULT_TIER = "default"
_SIGNS = {"<=": "lower", "<": "lower", "≤": "lower", ">=": "higher", ">": "higher", "≥": "higher"}
NEEDS_LIMITS = ("goodput", "attainment")


def known_metric(text: Any) -> Metric:
    """The metric of that name; `Faults` with did-you-mean otherwise."""
    if not isinstance(text, str) or len(text) > 60:
        raise fault(f"{shown(text)} is not a metric", "write a name such as p99_ttft or output_throughput")
    try:
        return metric(text)
    except ValueError as error:
        what, _, hint = str(error).partition("; ")
        raise fault(what, hint or None) from None


def read_tiers(value: Any) -> Tiers:
    """The `sla` key: {p99_ttft: 500ms}, {gold: {p99_ttft: 200ms}, silver: {...}} or the command line's text."""
    if isinstance(value, str):
        return ((DEFAULT_TIER, _limits_of_text(value)),)
    if not isinstance(value, dict) or not value:
        raise fault("{key} is metrics with their limits", "write {p99_ttft: 500ms, p99_tpot: 30ms}")
    named = [key for key, item in value.items() if isinstance(item, dict)]
    if not named:
        return ((DEFAULT_TIER, _limits(value)),)
    if len(named) < len(value):
        stray = next(key for key in value if key not in named)
        raise fault(f"{shown(stray)} stands beside named tiers", "put it into each tier, or name no tiers", stray)
    faults: list[Fault] = []
    found: list[tuple[str, tuple[Limit, ...]]] = []
    for key, item in value.items():
        try:
            known_metric(key)
        except Faults:
            pass
        else:
            faults.append(Fault("{key}: a limit is one value or [comfort, promise]", "write 500ms", (key,)))
            continue
        try:
            found.append((name(key), _limits(item)))
        except Faults as wrong:
            faults += [Fault(f.what, f.hint, (key, *f.path), f.at_key) for f in wrong.faults]
    if faults:
        raise Faults(*faults)
    return tuple(found)


def _limits(value: dict[str, Any]) -> tuple[Limit, ...]:
    if not value:
        raise fault("{key} has no limits", "write {p99_ttft: 500ms}")
    faults: list[Fault] = []
    found: list[Limit] = []
    for key, item in value.items():
        try:
            one = known_metric(key)
        except Faults as wrong:
            faults += [Fault(f.what, f.hint, (key,), at_key=True) for f in wrong.faults]
            continue
        try:
            found.append(_limit(one, item))
        except Faults as wrong:
            faults += [Fault(f.what.replace("{key}", key), f.hint, (key, *f.path)) for f in wrong.faults]
    faults += _together(found) if not faults else []
    if faults:
        raise Faults(*faults)
    return tuple(found)


def _together(limits: list[Limit]) -> list[Fault]:
    """Goodput counts requests within the latency limits: without one it would count every request."""
    if any(metric(limit.metric).quantity is not None for limit in limits):
        return []
    return [
        Fault(f"{limit.metric} counts requests within the latency limits, and there are none", "add  p99_ttft: 500ms")
        for limit in limits
        if limit.metric in NEEDS_LIMITS
    ]


def _limit(one: Metric, value: Any) -> Limit:
    """A limit, or a range [comfort, promise]."""
    if not isinstance(value, list):
        return Limit(one.name, _bound(one, value))
    if len(value) != 2:
        raise fault("{key}: a range is two limits, comfort and promise", "write [200ms, 500ms]")
    comfort, promise = _bound(one, value[0]), _bound(one, value[1])
    if comfort == promise:
        return Limit(one.name, promise)
    if (comfort > promise) == (one.better == "lower"):
        what = "{key}: the comfort mark comes first and is the stricter of the two"
        raise fault(what, f"write [{_bare(value[1])}, {_bare(value[0])}]")
    return Limit(one.name, promise, comfort)


def _bare(value: Any) -> str:
    return str(value)[:40]


def _bound(one: Metric, value: Any) -> float:
    """One bound in the metric's unit."""
    if isinstance(value, str):
        sign = re.match(r"\s*(<=|>=|[<>≤≥])\s*", value)
        if sign:
            _check_direction(one, sign[1], value[sign.end() :])
            value = value[sign.end() :]
    if one.unit is Unit.SECONDS:
        return latency(value)
    if one.unit is Unit.SHARE:
        return share(value)
    example = "$2" if one.unit is Unit.DOLLARS_PER_MILLION_TOKENS else "30"
    bound = math.nan
    if isinstance(value, str):
        text = value.strip().removeprefix("$").removesuffix("/Mtok").removesuffix(one.unit.value).strip()
        bound = float(text) if re.fullmatch(r"\d{1,15}(\.\d*)?|\.\d+", text) else math.nan
    elif isinstance(value, int | float) and not isinstance(value, bool):
        bound = float(value)
    if not 0 < bound < 1e15:
        raise fault(f"{{key}}: {shown(value)} is not a limit", f"write a number of {one.unit.value}, as {example}")
    return bound


def _check_direction(one: Metric, sign: str, rest: str) -> None:
    if _SIGNS[sign] == one.better:
        return
    right = "<=" if one.better == "lower" else ">="
    what = f"{one.name} {sign} {rest[:40].strip()} asks for the wrong side: of {one.label} {one.better} is better"
    raise fault(what, f"write {one.name}{right}{rest[:40].strip()}")


_LINE = re.compile(r"\s*([^\s<>=≤≥:]{1,60})\s*(<=|>=|=|:|[<>≤≥])\s*(\S(?:.{0,60}\S)?)\s*")
_EXAMPLE = "write it as  p99_ttft<=500ms, p99_tpot<=30ms"


def _limits_of_text(text: str) -> tuple[Limit, ...]:
    found: dict[str, Limit] = {}
    for part in text.split(","):
        line = _LINE.fullmatch(part)
        if line is None:
            raise fault(f"{shown(part.strip())} is not a limit", _EXAMPLE)
        if re.search(r"[<>=≤≥:]", line[3]):
            apart = re.sub(r"(?:\s*[;&]+\s*|\s+and\s+|\s+)(?=[A-Za-z][\w.]*\s*[<>=≤≥:])", ", ", part.strip())
            if "," in apart:
                raise fault(f"{shown(part.strip())} is more than one limit", f"put commas between them:  {apart}")
        one, sign, rest = known_metric(line[1]), line[2], line[3]
        right = "<=" if one.better == "lower" else ">="
        if sign in "=:":
            raise fault(f"{shown(part.strip())} does not say which side is allowed", f"write {one.name}{right}{rest}")
        _check_direction(one, sign, rest)
        if one.name in found:
            raise fault(f"{one.name} is limited twice", f"a range is written {one.name}{right}200ms..500ms")
        bounds: list[Any] = rest.split("..")
        if one.unit not in (Unit.SECONDS, Unit.SHARE):
            bounds = [_number_or_text(b) for b in bounds]
        elif one.unit is Unit.SECONDS:
            bounds = [_number_or_text(b) if not _is_duration(b) else b for b in bounds]
        try:
            found[one.name] = _limit(one, bounds[0] if len(bounds) == 1 else bounds)
        except Faults as wrong:
            hint = re.sub(r"\[(\S+), (\S+)\]", rf"{one.name}{right}\1..\2", wrong.faults[0].hint or "")
            raise fault(wrong.faults[0].what.replace("{key}", one.name), hint) from None
    trouble = _together(list(found.values()))
    if trouble:
        raise Faults(*trouble)
    return tuple(found.values())


def _is_duration(text: str) -> bool:
    try:
        parse_duration(text)
    except ValueError:
        return False
    return True


def _number_or_text(text: str) -> float | str:
    return float(text) if re.fullmatch(r"\d{1,15}(\.\d*)?|\.\d+", text.strip()) else text


def parse_sla(text: str) -> tuple[Limit, ...]:
    """The limits of 'p99_ttft<=500ms, p99_tpot<=30ms'; a range is 'p99_ttft<=200ms..500ms' (comfort, promise).

    Latencies need units. `<` is read as `<=`. UsageError for anything else, an unknown metric or the wrong side.

    >>> parse_sla("p99_ttft<=500ms, error_rate<1%")[0].promise
    0.5
    """
    try:
        return _limits_of_text(text)
    except Faults as wrong:
        first = wrong.faults[0]
        raise UsageError(first.what, first.hint) from None
