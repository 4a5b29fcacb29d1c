"""How the settings of a sweep are read: shapes with their lengths, and concurrencies."""

import re
from collections.abc import Callable
from typing import Any

from frontier.config.faults import Fault, Faults, fault, is_number, nearest, shown
from frontier.config.quantities import share
from frontier.config.values import name, number, whole
from frontier.model import MAX_TOKENS, Lengths, Shape

MAX_CONCURRENCY = 65_536
MAX_SETTINGS = 1_000


def lengths(value: Any) -> Lengths:
    """Token counts: 1024, {uniform: [512, 1024]} or {normal: [1024, 128]}."""
    kinds = "write a whole number, {uniform: [512, 1024]} or {normal: [1024, 128]}"
    if isinstance(value, dict):
        if len(value) != 1 or next(iter(value)) not in ("uniform", "normal"):
            raise fault("{key} is neither uniform nor normal", kinds)
        kind, pair = next(iter(value.items()))
        if not isinstance(pair, list) or len(pair) != 2 or not all(is_number(x) for x in pair):
            raise fault(f"{{key}}: {kind} takes two numbers", kinds, kind)
        if kind == "uniform":
            low, high = (whole(x, 1, MAX_TOKENS) for x in pair)
            if low > high:
                raise fault(f"{{key}}: {low} is above {high}", f"write uniform: [{high}, {low}]", kind)
            return Lengths.uniform(low, high) if low < high else Lengths.fixed(low)
        mean, sd = number(pair[0], 1, MAX_TOKENS), number(pair[1], 0, MAX_TOKENS)
        return Lengths.normal(mean, sd) if sd > 0 else Lengths.fixed(round(mean))
    if isinstance(value, str) or value is None:
        raise fault(f"{{key}}: {shown(value)} is not a length", kinds)
    return Lengths.fixed(whole(value, 1, MAX_TOKENS))


_SHAPE_KEYS = ("isl", "osl", "name", "prefix")
_SHAPE_EXAMPLE = "write input/output tokens, as 1024/256, or {isl: 1024, osl: 256}"


def shape(value: Any) -> Shape:
    """'1024/256', or {isl: 1024, osl: {uniform: [128, 256]}, name: chat, prefix: 50%}."""
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*", value)
        if found:
            return Shape(lengths(int(found[1])), lengths(int(found[2])))
        thousands = re.fullmatch(r"\s*(\d{1,5})[kK]\s*/?\s*(\d{1,5})[kK]\s*", value)
        if thousands:
            a, b = int(thousands[1]), int(thousands[2])
            what = f"{shown(value)}: k may mean 1,000 or 1,024"
            raise fault(what, f"write {a * 1024}/{b * 1024} or {a * 1000}/{b * 1000}")
        raise fault(f"{shown(value)} is not a shape", _SHAPE_EXAMPLE)
    if not isinstance(value, dict):
        raise fault(f"a shape is two lengths; this is {shown(value)}", _SHAPE_EXAMPLE)
    faults = [
        Fault(f"unknown key {shown(key)} in a shape", nearest(key, _SHAPE_KEYS), (key,), at_key=True)
        for key in value
        if key not in _SHAPE_KEYS
    ]
    faults += [Fault(f"the shape has no {key}", _SHAPE_EXAMPLE) for key in ("isl", "osl") if value.get(key) is None]
    readers: dict[str, Callable[[Any], Any]] = {"isl": lengths, "osl": lengths, "name": name, "prefix": _prefix}
    read: dict[str, Any] = {}
    for key, reader in readers.items():
        if value.get(key) is not None:
            try:
                read[key] = reader(value[key])
            except Faults as wrong:
                faults += [Fault(f.what, f.hint, (key, *f.path), f.at_key) for f in wrong.faults]
    if faults:
        raise Faults(*faults)
    return Shape(**read)


def _prefix(value: Any) -> float:
    part = share(value)
    if part >= 1.0:
        raise fault("{key}: the whole prompt cannot be common to all", "write at most 99%")
    return part


def concurrency(value: Any) -> tuple[int, ...]:
    """[1, 2, 4], 8, or 1..128: every doubling from 1, and 128 itself. Sorted; duplicates are refused."""
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d{1,9})\s*\.\.\s*(\d{1,9})\s*", value)
        if found is None:
            raise fault(f"{{key}}: {shown(value)} is not a range", "write [1, 2, 4, 8], or 1..128 for every doubling")
        value = {"from": int(found[1]), "to": int(found[2])}
    if isinstance(value, dict):
        return _doublings(value)
    if not isinstance(value, list):
        return (whole(value, 1, MAX_CONCURRENCY),)
    if not value or len(value) > MAX_SETTINGS:
        raise fault("{key} is an empty list" if not value else "{key} is a very long list", "write [1, 2, 4, 8]")
    faults: list[Fault] = []
    seen: set[int] = set()
    for i, item in enumerate(value):
        try:
            c = whole(item, 1, MAX_CONCURRENCY)
        except Faults as wrong:
            faults += [Fault(f.what, f.hint, (i,)) for f in wrong.faults]
            continue
        if c in seen:
            faults.append(Fault(f"{{key}}: {c} is given twice", "remove one; repeats: 3  measures each again", (i,)))
        seen.add(c)
    if faults:
        raise Faults(*faults)
    return tuple(sorted(seen))


def _doublings(value: dict[str, Any]) -> tuple[int, ...]:
    if set(value) != {"from", "to"}:
        raise fault("{key}: a range has the keys from and to", "write {from: 1, to: 128}, or 1..128")
    low, high = whole(value["from"], 1, MAX_CONCURRENCY), whole(value["to"], 1, MAX_CONCURRENCY)
    if low > high:
        raise fault(f"{{key}}: {low} is above {high}", f"write {high}..{low}")
    steps = [low]
    while steps[-1] * 2 < high:
        steps.append(steps[-1] * 2)
    return tuple(dict.fromkeys((*steps, high)))
