"""How what has a unit is read from a config: times, sizes, shares, prices, powers.

Every reader takes what YAML made of the text and returns the value in SI units, or raises `Faults` with what is wrong
and the way out. `{key}` in a message stands for the key it is found under, which only the caller knows.
"""

import datetime as dt
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from frontier.config.faults import fault, is_number, shown
from frontier.units import parse_bandwidth, parse_duration, parse_share, parse_size

MONTH = 30 * 86_400.0


def long(seconds: float) -> str:
    """Seconds as a config has them: '300ms', '45s', '10min', '24h'."""
    for scale, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= scale:
            return f"{seconds / scale:g}{unit}"
    return f"{seconds * 1000:g}ms"


def duration(value: Any, *, least: float = 0.0, most: float = MONTH, example: tuple[str, str] = ("s", "min")) -> float:
    """Seconds of '30s', '5min', '1h30min'; a bare number is refused, for seconds and milliseconds are both habits."""
    if is_number(value):
        if value == 0 and least == 0:
            return 0.0
        raise fault("{key} needs a unit", f"write {value:g}{example[0]} or {value:g}{example[1]}")
    seconds = _seconds(value, "a duration", "30s or 5min")
    if not least <= seconds <= most:
        low = f"at least {long(least)} and " if least > 0 else ""
        raise fault(f"{{key}}: {shown(value)} is out of range", f"write {low}at most {long(most)}")
    return seconds


def moment(value: Any) -> str:
    """'07:00', or '2026-11-22 07:00', of this machine's clock."""
    hint = 'write "07:00", or with its day "2026-11-22 07:00"'
    if not isinstance(value, str):
        raise fault(f"{{key}} is a time of day; this is {shown(value)}", hint)
    found = re.fullmatch(r"(?:(\d{4}-\d\d-\d\d)[ T])?(\d{1,2}):(\d\d)", value.strip())
    if found is None:
        raise fault(f"{{key}}: {shown(value)} is not a time of day", hint)
    try:
        dt.date.fromisoformat(found[1] or "2000-01-01")
        dt.time(int(found[2]), int(found[3]))
    except ValueError:
        raise fault(f"{{key}}: {shown(value)} is no time of any day", hint) from None
    return value.strip()


_SURELY_MS = 20.0
"""A latency limit without a unit, this large or larger, means milliseconds; a smaller one may mean either."""


def latency(value: Any) -> float:
    """Seconds of a latency limit, above zero and at most a day."""
    if is_number(value):
        if not value > 0:
            raise fault(f"{{key}}: {value:g} is not a limit", "write a time above zero, as 500ms or 0.5s")
        if value < 1:
            raise fault("{key} needs a unit", f"write {value:g}s or {value * 1000:g}ms")
        if value < _SURELY_MS:
            raise fault("{key} needs a unit", f"write {value:g}s, or {value:g}ms if milliseconds are meant")
        raise fault("{key} needs a unit", f"write {value:g}ms or {value / 1000:g}s")
    seconds = _seconds(value, "a time", "500ms or 0.5s")
    if not 0 < seconds <= 86_400:
        raise fault(f"{{key}}: {shown(value)} is not a limit", "write a time above zero and at most a day")
    return seconds


def _seconds(value: Any, kind: str, example: str) -> float:
    if not isinstance(value, str):
        raise fault(f"{{key}} is {kind}; this is {shown(value)}", f"write a number with a unit, as {example}")
    try:
        return parse_duration(value)
    except ValueError:
        raise fault(f"{{key}}: {shown(value)} is not {kind}", f"write a number with a unit, as {example}") from None


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
        hint = "write it as 1% or 0.01, between 0% and 100%"
        if is_number(value) and 1 < value <= 100:
            hint = f"write {value:g}%"
        raise fault(f"{{key}}: {shown(value)} is not a share", hint) from None


_PRICE = re.compile(r"\$\s*(\d{1,9}(?:\.\d*)?|\.\d+)\s*(/\s*gpu)?\s*/\s*h")

_POWER = re.compile(r"(\d{1,9}(?:\.\d*)?|\.\d+)\s*(k)?W\s*(/\s*gpu)?")


def price(value: Any, gpus: int | None) -> float:
    """Dollars per hour of the whole deployment, of '$12/h' or '$3/gpu/h'."""
    found = _PRICE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        hint = "write $12/h for the whole deployment, or $3/gpu/h"
        if is_number(value):
            raise fault("{key} needs a unit", hint)
        raise fault(f"{{key}}: {shown(value)} is not a price", hint)
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
        hint = "write 5600W for the whole deployment, or 700W/gpu"
        if is_number(value):
            raise fault("{key} needs a unit", hint)
        raise fault(f"{{key}}: {shown(value)} is not a power", hint)
    return Watts(float(found[1]) * (1e3 if found[2] else 1.0), found[3] is not None)


def dollars(value: Any) -> float:
    """Dollars of '$20'."""
    found = re.fullmatch(r"\$\s*(\d{1,12}(?:\.\d*)?|\.\d+)", value) if isinstance(value, str) else None
    if found is None or float(found[1]) <= 0:
        raise fault(f"{{key}}: {shown(value)} is not an amount", "write dollars above zero, as $20")
    return float(found[1])
