"""Units at the edge: text with a unit to a number in SI inside, and back to text a person reads.

Inside the package time is seconds, sizes are bytes, rates are per second and shares are 0..1.
"""

import math
import re
from typing import Any

MOST = 1e18
"""No number of a server, a file or another tool is above this: bytes, tokens and seconds all stay far below, and what
is computed of such numbers neither overflows nor leaves 64 bits."""
LEAST = 1e-18
"""What is nearer to zero is zero: nothing is known so finely, and dividing by it would overflow."""
MOST_COUNT = 10**12
LONGEST = 1e8
"""Seconds, three years: no trial lasts longer."""
_DURATIONS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
_SIZES = {
    "B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
    "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40,
}  # fmt: skip
_NUMBER = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_PART = re.compile(rf"\s*{_NUMBER}\s*([A-Za-zµ]+)")


def usable(value: Any) -> float | None:
    """A number that came from outside, as it may be used: finite and of a sane size. None for anything else.

    >>> usable(12), usable(1e300), usable(10**400), usable("12"), usable(5e-324)
    (12.0, None, None, None, 0.0)
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MOST <= value <= MOST:
        return None  # NaN compares as false
    return float(value) if abs(value) >= LEAST else 0.0


def usable_count(value: Any) -> int | None:
    """A whole number of 0 or more that came from outside and can be a count of tokens or requests; else None."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value <= MOST_COUNT else None


def whole_number(text: str, least: int, most: int) -> int | None:
    """The number that a text of digits spells, in least..most; None for anything else, thousands of digits too."""
    spelled = text.isdecimal() and len(text) <= 18
    return value if spelled and least <= (value := int(text)) <= most else None


def parse_duration(text: str) -> float:
    """Seconds of '500ms', '0.5s', '5min', '1h30min'. ValueError when the unit is missing or unknown."""
    total, at = 0.0, 0
    stripped = text.strip()
    while at < len(stripped):
        part = _PART.match(stripped, at)
        if part is None or part[2] not in _DURATIONS:
            raise ValueError(f"{text!r} is not a duration: write a number with a unit, as 500ms, 0.5s, 5min or 1h")
        total += float(part[1]) * _DURATIONS[part[2]]
        at = part.end()
    if not stripped:
        raise ValueError("a duration is empty: write a number with a unit, as 500ms or 0.5s")
    if total > MOST:
        raise ValueError(f"{text[:40]!r} is not a duration: it never ends")
    return total


def parse_size(text: str) -> float:
    """Bytes of '16GB', '80GiB', '131kB'. ValueError when the unit is missing or unknown."""
    part = _PART.fullmatch(text.strip())
    if part is None or part[2] not in _SIZES:
        raise ValueError(f"{text!r} is not a size: write a number with a unit, as 16GB or 80GiB")
    return float(part[1]) * _SIZES[part[2]]


def parse_bandwidth(text: str) -> float:
    """Bytes per second of '4.8TB/s'. ValueError otherwise."""
    size, slash, second = text.strip().partition("/")
    if slash != "/" or second.strip() != "s":
        raise ValueError(f"{text!r} is not a bandwidth: write it as 4.8TB/s")
    return parse_size(size)


def parse_share(text: str) -> float:
    """A share 0..1 of '1%' or '0.01'. ValueError outside 0..1."""
    stripped = text.strip()
    number = re.fullmatch(rf"{_NUMBER}\s*(%?)", stripped)
    if number is None:
        raise ValueError(f"{text!r} is not a share: write 1% or 0.01")
    value = float(number[1]) / (100.0 if number[2] else 1.0)
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{text!r} is not a share between 0% and 100%")
    return value


def format_seconds(seconds: float | None) -> str:
    """'396 ms', '2.33 s', '812 µs': three digits in the unit a person would say; '∞' and '–' for inf and None."""
    if seconds is None or not math.isfinite(seconds):
        return _three(seconds)
    if seconds != 0 and abs(seconds) < 1e-3:
        return f"{_three(seconds * 1e6)} µs"
    if abs(seconds) < 0.9995:
        return f"{_three(seconds * 1e3)} ms"
    return f"{_three(seconds)} s"


def _three(x: float | None) -> str:
    """Three significant digits, thousands separated; an exponent only where a person could not count the digits."""
    if x is None or math.isnan(x):
        return "–"
    rounded = float(f"{x:.3g}")
    if math.isinf(rounded):
        return "∞" if x > 0 else "-∞"
    if x == 0:
        return "0"
    if not 1e-9 <= abs(rounded) < 1e15:
        return f"{x:.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{x:,.{digits}f}"


def format_number(x: float | None) -> str:
    """A plain number with three significant digits or more: '2,850', '41.7', '0.125'; '–' for None."""
    return _three(x)


_LONG = 3600 * 10_000.0


def format_elapsed(seconds: float) -> str:
    """A stretch of a person's time: '45 s', '9 min 12 s', '7 h 40 min'."""
    if not math.isfinite(seconds):
        return _three(seconds)
    if abs(seconds) >= _LONG:
        return f"{_three(seconds / 3600)} h"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def format_bytes(size: float) -> str:
    """'214 kB', '1.03 GB': decimal units."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(size) >= scale:
            return f"{_three(size / scale)} {unit}"
    return f"{size:.0f} B" if math.isfinite(size) else _three(size)


def roughly(number: int) -> str:
    """Rounded up to two digits: all that a forecast has.

    >>> roughly(2177)
    '2,200'
    """
    if number < 100:
        return str(number)
    scale: int = 10 ** (len(str(number)) - 2)
    return f"{-(-number // scale) * scale:,}"


def format_share(share: float | None) -> str:
    """'0.2%', '12%'; '–' for None."""
    return "–" if share is None or math.isnan(share) else f"{_three(share * 100)}%"
