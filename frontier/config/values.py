"""How each kind of value in a config is read: durations, sizes, prices, numbers, names, addresses.

Every reader takes what YAML made of the text and returns the value in SI units, or raises `Faults` with what is wrong
and the way out. `{key}` in a message stands for the key it is found under, which only the caller knows.
"""

import datetime as dt
import difflib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from frontier.redaction import looks_like_a_key, looks_random
from frontier.units import parse_bandwidth, parse_duration, parse_share, parse_size

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


def long(seconds: float) -> str:
    """Seconds as a config has them: '300ms', '45s', '10min', '24h'."""
    for scale, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= scale:
            return f"{seconds / scale:g}{unit}"
    return f"{seconds * 1000:g}ms"


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# ---- quantities -----------------------------------------------------------------------------------------------------


def duration(value: Any, *, least: float = 0.0, most: float = MONTH, example: tuple[str, str] = ("s", "min")) -> float:
    """Seconds of '30s', '5min', '1h30min'; a bare number is refused, for seconds and milliseconds are both habits."""
    if is_number(value):
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
        low = f"at least {long(least)} and " if least > 0 else ""
        raise fault(f"{{key}}: {shown(value)} is out of range", f"write {low}at most {long(most)}")
    return seconds


def moment(value: Any) -> str:
    """'07:00', or '2026-11-22 07:00', of this machine's clock."""
    way_out = 'write "07:00", or with its day "2026-11-22 07:00"'
    if not isinstance(value, str):
        raise fault(f"{{key}} is a time of day; this is {shown(value)}", way_out)
    found = re.fullmatch(r"(?:(\d{4}-\d\d-\d\d)[ T])?(\d{1,2}):(\d\d)", value.strip())
    if found is None:
        raise fault(f"{{key}}: {shown(value)} is not a time of day", way_out)
    try:
        dt.date.fromisoformat(found[1] or "2000-01-01")
        dt.time(int(found[2]), int(found[3]))
    except ValueError:
        raise fault(f"{{key}}: {shown(value)} is no time of any day", way_out) from None
    return value.strip()


def latency(value: Any) -> float:
    """Seconds of a latency limit, above zero and at most a day."""
    if is_number(value) and not isinstance(value, bool):
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
    return _with_unit(value, parse_size, "a size", "kB", "131kB or 128KiB")


def bandwidth(value: Any) -> float:
    """Bytes per second of '4.8TB/s'."""
    return _with_unit(value, parse_bandwidth, "a bandwidth", "TB/s", "900GB/s")


def _with_unit(value: Any, parse: Callable[[str], float], kind: str, unit: str, example: str) -> float:
    if is_number(value):
        raise fault("{key} needs a unit", f"write {value:g}{unit} if that is meant, or as {example}")
    try:
        number = parse(value) if isinstance(value, str) else math.nan
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise fault(f"{{key}}: {shown(value)} is not {kind}", f"write a number above zero with a unit, as {example}")
    return number


def share(value: Any) -> float:
    """0..1 of '1%' or 0.01. A bare 1 is refused: it may mean 1 % or all of it."""
    text = value if isinstance(value, str) else f"{value:.12f}".rstrip("0").rstrip(".") if is_number(value) else ""
    if text.strip() in ("1", "1.0"):
        raise fault("{key}: 1 could mean 1% or 100%", "write 1% or 100%")
    try:
        return parse_share(text)
    except ValueError:
        way_out = "write it as 1% or 0.01, between 0% and 100%"
        if is_number(value) and 1 < value <= 100:
            way_out = f"write {value:g}%"
        raise fault(f"{{key}}: {shown(value)} is not a share", way_out) from None


_PRICE = re.compile(r"\$\s*(\d{1,9}(?:\.\d*)?|\.\d+)\s*(/\s*gpu)?\s*/\s*h")

_POWER = re.compile(r"(\d{1,9}(?:\.\d*)?|\.\d+)\s*(k)?W\s*(/\s*gpu)?")

_POWER = re.compile(r"(\d{1,9}(?:\.\d*)?|\.\d+)\s*(k)?W\s*(/\s*gpu)?")


def price(value: Any, gpus: int | None) -> float:
    """Dollars per hour of the whole deployment, of '$12/h' or '$3/gpu/h'."""
    found = _PRICE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        way_out = "write $12/h for the whole deployment, or $3/gpu/h"
        if is_number(value):
            raise fault("{key} needs a unit", way_out)
        raise fault(f"{{key}}: {shown(value)} is not a price", way_out)
    if found[2] is None:
        return float(found[1])
    if gpus is None:
        raise fault("{key} is per GPU, and the number of GPUs is not given", "add  gpus: 8,  or write $12/h for all")
    return float(found[1]) * gpus


@dataclass(frozen=True, slots=True)
class Watts:
    """A power: of the whole deployment, or of each of its GPUs."""

    value: float
    per_gpu: bool

    def whole(self, gpus: int) -> float:
        """Watts of the whole deployment."""
        return self.value * gpus if self.per_gpu else self.value


def power(value: Any) -> Watts:
    """Watts of '5600W', '5.6kW' or '700W/gpu'."""
    found = _POWER.fullmatch(value) if isinstance(value, str) else None
    if found is None or float(found[1]) <= 0:
        way_out = "write 5600W for the whole deployment, or 700W/gpu"
        if is_number(value):
            raise fault("{key} needs a unit", way_out)
        raise fault(f"{{key}}: {shown(value)} is not a power", way_out)
    return Watts(float(found[1]) * (1e3 if found[2] else 1.0), found[3] is not None)


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
        same = isinstance(value, float) and value == round(value)
        hint = f"write {value:.0f}" if same else "write it in digits"
        if isinstance(value, str) and value.isdecimal() and len(value) < 18:
            hint = f"write {value} without quotes"
        raise fault(f"{{key}} is a whole number; this is {shown(value)}", f"{hint}, between {least} and {most:,}")
    if not least <= value <= most:
        raise fault(f"{{key}}: {value} is out of range", f"write a whole number between {least} and {most:,}")
    return value


def number(value: Any, least: float, most: float) -> float:
    """A plain number in least..most."""
    way_out = f"write a number between {least:,.9g} and {most:,.9g}"
    if not is_number(value):
        raise fault(f"{{key}} is a number; this is {shown(value)}", way_out)
    if not least <= value <= most:
        raise fault(f"{{key}}: {value:g} is out of range", way_out)
    return float(value)


def truth(value: Any) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise fault(f"{{key}} is true or false; this is {shown(value)}", "write true or false")
    return value


def words(value: Any, most: int = 400) -> str:
    """A text on one line. A number must be quoted to be a text, so that 1.10 is not 1.1."""
    if is_number(value) or isinstance(value, bool):
        kind = "true or false" if isinstance(value, bool) else "a number"
        raise fault(f"{{key}} is a text; {shown(value)} is {kind}", 'quote it, as {key}: "{text}"')
    if not isinstance(value, str):
        raise fault(f"{{key}} is a text; this is {shown(value)}", "write one text")
    if not value.strip() or len(value) > most or not value.isprintable():
        raise fault(f"{{key}}: {shown(value)} cannot be used", f"write a text on one line of at most {most} characters")
    return value.strip()


def webhook(value: Any) -> str:
    """An http(s) address, or '${VARIABLE}' that holds it: most are secrets."""
    way_out = "put the address into a variable:  on_finish: ${FINISH_URL}"
    if not isinstance(value, str):
        raise fault(f"{{key}} is an address; this is {shown(value)}", way_out)
    text = value.strip()
    if re.fullmatch(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}", text):
        return text
    try:
        parts = urlsplit(text)
        host, user = parts.hostname, parts.username or parts.password
    except ValueError:
        host, user = None, None
    if parts_wrong := (not host or not re.fullmatch(r"https?://[\x21-\x7e]{1,500}", text)):
        raise fault("{key} is not an address", way_out)
    if user is not None or parts_wrong or parts.query or looks_like_a_key(text) or looks_random(parts.path):
        raise fault("{key} holds what looks like a secret", way_out)
    return text


def command(value: Any) -> str:
    """A line, or several, for the shell."""
    if not isinstance(value, str):
        raise fault(f"{{key}} is a command; this is {shown(value)}", "write the line as you would type it")
    text = value.strip()
    if not text or len(text) > 4_000 or not all(ch.isprintable() or ch in "\n\t" for ch in text):
        raise fault(
            "{key} is no command that can be run", "write the line as you would type it, at most 4,000 characters"
        )
    return text


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
