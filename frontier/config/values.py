"""How each kind of value in a config is read: durations, sizes, prices, names, lengths, shapes, concurrencies.

Every reader takes what YAML made of the text and returns the value in SI units, or raises `Faults` with what is wrong
and the way out. `{key}` in a message stands for the key it is found under, which only the caller knows.
"""

import difflib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from frontier.config.redaction import looks_like_a_key, looks_random
from frontier.model import Lengths, Shape
from frontier.units import parse_bandwidth, parse_duration, parse_share, parse_size

MAX_CONCURRENCY = 65_536
MAX_TOKENS = 4_194_304
MAX_SETTINGS = 1_000
MONTH = 30 * 86_400.0
SIMULATOR = "simulator"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong: what, the way out, and where below the value (`at_key`: at the key, not its value)."""

    what: str
    way_out: str | None = None
    path: tuple[str | int, ...] = ()
    at_key: bool = False


class Faults(ValueError):  # noqa: N818
    """Everything wrong with one value."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__("; ".join(f.what for f in faults))
        self.faults = faults


def fault(what: str, way_out: str | None = None, *path: str | int) -> Faults:
    """One fault, ready to be raised."""
    return Faults(Fault(what, way_out, path))


def shown(value: Any) -> str:
    """A value as a message repeats it: short, and a list or mapping by its kind only."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, str) else f"{value}"
    return text if len(text) <= 60 else text[:57] + "..."


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# ---- quantities -----------------------------------------------------------------------------------------------------


def duration(value: Any, *, least: float = 0.0, most: float = MONTH, example: tuple[str, str] = ("s", "min")) -> float:
    """Seconds of '30s', '5min', '1h30min'; a bare number is refused, for seconds and milliseconds are both habits."""
    if _is_number(value):
        if value == 0 and least == 0:
            return 0.0
        raise fault("{key} needs a unit", f"write {value:g}{example[0]} or {value:g}{example[1]}")
    if not isinstance(value, str):
        raise fault(f"{{key}} is a duration; this is {shown(value)}", "write a number with a unit, as 30s or 5min")
    try:
        seconds = parse_duration(value)
    except ValueError:
        raise fault(f"{{key}}: {shown(value)} is not a duration", "write it with a unit, as 30s or 5min") from None
    if not least <= seconds <= most:
        low = f"at least {least:g}s and " if least > 0 else ""
        raise fault(f"{{key}}: {shown(value)} is out of range", f"write {low}at most {most:g}s")
    return seconds


def latency(value: Any) -> float:
    """Seconds of a latency limit, above zero and at most a day."""
    if _is_number(value) and not isinstance(value, bool):
        if not value > 0:
            raise fault(f"{{key}}: {value:g} is not a limit", "write a time above zero, as 500ms or 0.5s")
        raise fault("{key} needs a unit", f"write {value:g}ms or {value / 1000:g}s")
    if not isinstance(value, str):
        raise fault(f"{{key}} is a time; this is {shown(value)}", "write a number with a unit, as 500ms or 0.5s")
    try:
        seconds = parse_duration(value)
    except ValueError:
        raise fault(f"{{key}}: {shown(value)} is not a time", "write a number with a unit, as 500ms or 0.5s") from None
    if not 0 < seconds <= 86_400:
        raise fault(f"{{key}}: {shown(value)} is not a limit", "write a time above zero and at most a day")
    return seconds


def size(value: Any) -> float:
    """Bytes of '16GB', '80GiB'."""
    return _with_unit(value, parse_size, "a size", "GB", "16GB or 80GiB")


def small_size(value: Any) -> float:
    """Bytes of '131kB'."""
    return _with_unit(value, parse_size, "a size", "kB", "131kB")


def bandwidth(value: Any) -> float:
    """Bytes per second of '4.8TB/s'."""
    return _with_unit(value, parse_bandwidth, "a bandwidth", "TB/s", "4.8TB/s")


def _with_unit(value: Any, parse: Callable[[str], float], kind: str, unit: str, example: str) -> float:
    if _is_number(value):
        raise fault("{key} needs a unit", f"write {value:g}{unit}, or whatever it is, as {example}")
    try:
        number = parse(value) if isinstance(value, str) else math.nan
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise fault(f"{{key}}: {shown(value)} is not {kind}", f"write a number above zero with a unit, as {example}")
    return number


def share(value: Any) -> float:
    """0..1 of '1%' or 0.01. A bare 1 is refused: it may mean 1 % or all of it."""
    text = value if isinstance(value, str) else f"{value:.12f}".rstrip("0").rstrip(".") if _is_number(value) else ""
    if text.strip() in ("1", "1.0"):
        raise fault("{key}: 1 could mean 1% or 100%", "write 1% or 100%")
    try:
        return parse_share(text)
    except ValueError:
        way_out = "write it as 1% or 0.01, between 0% and 100%"
        raise fault(f"{{key}}: {shown(value)} is not a share", way_out) from None


_PRICE = re.compile(r"\$\s*(\d{1,9}(?:\.\d*)?|\.\d+)\s*(/\s*gpu)?\s*/\s*h")


def price(value: Any, gpus: int | None) -> float:
    """Dollars per hour of the whole deployment, of '$12/h' or '$3/gpu/h'."""
    found = _PRICE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        way_out = "write $12/h for the whole deployment, or $3/gpu/h"
        if _is_number(value):
            raise fault("{key} needs a unit", way_out)
        raise fault(f"{{key}}: {shown(value)} is not a price", way_out)
    if found[2] is None:
        return float(found[1])
    if gpus is None:
        raise fault("{key} is per GPU, and the number of GPUs is not given", "add  gpus: 8,  or write $12/h for all")
    return float(found[1]) * gpus


def dollars(value: Any) -> float:
    """Dollars of '$20'."""
    found = re.fullmatch(r"\$\s*(\d{1,12}(?:\.\d*)?|\.\d+)", value) if isinstance(value, str) else None
    if found is None or float(found[1]) <= 0:
        raise fault(f"{{key}}: {shown(value)} is not an amount", "write dollars above zero, as $20")
    return float(found[1])


# ---- numbers, words, names ------------------------------------------------------------------------------------------


def whole(value: Any, least: int, most: int) -> int:
    """A whole number in least..most."""
    if isinstance(value, bool) or not isinstance(value, int):
        hint = f"write {value:.0f}" if isinstance(value, float) and value == round(value) else "write it in digits"
        raise fault(f"{{key}} is a whole number; this is {shown(value)}", f"{hint}, between {least} and {most:,}")
    if not least <= value <= most:
        raise fault(f"{{key}}: {value} is out of range", f"write a whole number between {least} and {most:,}")
    return value


def number(value: Any, least: float, most: float) -> float:
    """A plain number in least..most."""
    if not _is_number(value):
        raise fault(f"{{key}} is a number; this is {shown(value)}", f"write a number between {least:g} and {most:g}")
    if not least <= value <= most:
        raise fault(f"{{key}}: {value:g} is out of range", f"write a number between {least:g} and {most:g}")
    return float(value)


def truth(value: Any) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise fault(f"{{key}} is true or false; this is {shown(value)}", "write true or false")
    return value


def words(value: Any, most: int = 400) -> str:
    """A text on one line. A number must be quoted to be a text, so that 1.10 is not 1.1."""
    if _is_number(value) or isinstance(value, bool):
        kind = "true or false" if isinstance(value, bool) else "a number"
        raise fault(f"{{key}} is a text; {shown(value)} is {kind}", 'quote it, as {key}: "{text}"')
    if not isinstance(value, str):
        raise fault(f"{{key}} is a text; this is {shown(value)}", "write one text")
    if not value.strip() or len(value) > most or not value.isprintable():
        raise fault(f"{{key}}: {shown(value)} cannot be used", f"write a text on one line of at most {most} characters")
    return value.strip()


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


def name(value: Any) -> str:
    """A name that is safe in a file name: letters, digits, dot, dash and underscore."""
    text = words(value)
    if not _NAME.fullmatch(text):
        raise fault(f"{{key}}: {shown(text)} cannot be a name", "use letters, digits, . - and _, at most 60, no space")
    return text


def choice(value: Any, allowed: tuple[str, ...]) -> str:
    """One of a few words."""
    if isinstance(value, str) and value in allowed:
        return value
    raise fault(f"{{key}}: {shown(value)} is not known", nearest(value, allowed))


def nearest(value: Any, allowed: tuple[str, ...]) -> str:
    """'did you mean X?' when something is close, else all that is known."""

    close = difflib.get_close_matches(str(value)[:80].lower(), allowed, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(allowed)


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def variable(value: Any) -> str:
    """The name of an environment variable. What does not look like one may be the key itself: it is not repeated."""
    if isinstance(value, str) and _VARIABLE.fullmatch(value):
        if not looks_like_a_key(value) and not looks_random(value):
            return value
        what = "{key} looks like a key, not like the name of a variable"
    else:
        what = "{key} is not the name of an environment variable"
    raise fault(what, "put the key into the environment and its variable's name here:  {key}: OPENAI_API_KEY")


# ---- addresses ------------------------------------------------------------------------------------------------------


def endpoint(value: Any) -> str:
    """'simulator', or an http(s) address without credentials, query or route, without its trailing slash."""
    example = "write it as http://localhost:8000/v1"
    if value == SIMULATOR:
        return SIMULATOR
    if not isinstance(value, str):
        raise fault(f"{{key}} is an address; this is {shown(value)}", example)
    text = value.strip()
    try:
        parts = urlsplit(text)
        port, host, user = parts.port, parts.hostname, parts.username or parts.password
    except ValueError:
        raise fault("{key} is not an address", example) from None
    if user is not None or "@" in parts.netloc:
        raise fault("{key} holds credentials", "remove them; name the key's variable with  api_key_env: OPENAI_API_KEY")
    if parts.scheme not in ("http", "https"):
        plain = re.fullmatch(r"[\w.-]+(:\d+)?(/\S*)?", text)
        hint = nearest(text, (SIMULATOR,)) if "." not in text and ":" not in text else ""
        way_out = hint if hint.startswith("did") else f"write http://{text}" if plain and len(text) < 200 else example
        raise fault(f"{{key}}: {shown(text)} does not start with http:// or https://", way_out)
    if not host or port == 0 or not re.fullmatch(r"[\x21-\x7e]+", text) or len(text) > 500:
        raise fault(f"{{key}}: {shown(text)} is not an address", example)
    if parts.query or parts.fragment:
        raise fault("{key} has a query or fragment", example)
    for route in ("/chat/completions", "/completions", "/models", "/responses"):
        if parts.path.rstrip("/").endswith(route):
            base = text.rstrip("/").removesuffix(route)
            raise fault(f"{{key}} names a route ({route})", f"write the address before it: {base}")
    return text.rstrip("/")


# ---- shapes ---------------------------------------------------------------------------------------------------------


def lengths(value: Any) -> Lengths:
    """Token counts: 1024, {uniform: [512, 1024]} or {normal: [1024, 128]}."""
    kinds = "write a whole number, {uniform: [512, 1024]} or {normal: [1024, 128]}"
    if isinstance(value, dict):
        if len(value) != 1 or next(iter(value)) not in ("uniform", "normal"):
            raise fault("{key} is neither uniform nor normal", kinds)
        kind, pair = next(iter(value.items()))
        if not isinstance(pair, list) or len(pair) != 2 or not all(_is_number(x) for x in pair):
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
                faults += [Fault(f.what, f.way_out, (key, *f.path), f.at_key) for f in wrong.faults]
    if faults:
        raise Faults(*faults)
    return Shape(**read)


def _prefix(value: Any) -> float:
    part = share(value)
    if part >= 1.0:
        raise fault("{key}: the whole prompt cannot be common to all", "write at most 99%")
    return part


# ---- concurrency ----------------------------------------------------------------------------------------------------


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
            faults += [Fault(f.what, f.way_out, (i,)) for f in wrong.faults]
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
