"""Units: parsing of text such as '500ms' or '80GiB' to SI numbers, and formatting of SI numbers for
people.

Inside the package time is in seconds, sizes in bytes, rates per second and shares are 0..1.
"""

import math
import re
from typing import Any

MOST = 1e18
"""The largest number accepted from a server, a file or another tool. Real bytes, tokens and seconds
stay far below it, and arithmetic on such numbers neither overflows nor leaves 64 bits."""
LEAST = 1e-18
"""A number nearer to zero counts as zero: nothing is measured so finely, and dividing by it would
overflow."""
MOST_COUNT = 10**12
"""A count above this is no count."""
LONGEST = 1e8
"""The longest duration of a trial in seconds: three years."""
_DURATIONS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
_NUMBER = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
AMOUNT = re.compile(rf"\s*{_NUMBER}\s*([A-Za-zµ]+)")


def usable(value: Any) -> float | None:
    """A number from outside as a float when it is finite and of a sane size; None for anything
    else.

    >>> usable(12), usable(1e300), usable(10**400), usable("12"), usable(5e-324)
    (12.0, None, None, None, 0.0)
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MOST <= value <= MOST:
        return None  # NaN compares as false
    return float(value) if abs(value) >= LEAST else 0.0


def usable_count(value: Any) -> int | None:
    """A whole number from outside when it can be a count of tokens or requests (0 to MOST_COUNT);
    else None.
    """
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value <= MOST_COUNT else None


def whole_number(text: str, least: int, most: int) -> int | None:
    """The number in least..most that a text of digits spells; None for anything else, also for very
    long digits.
    """
    spelled = text.isdecimal() and len(text) <= 18
    return value if spelled and least <= (value := int(text)) <= most else None


def whole_numbers(text: str, least: int, most: int) -> tuple[int, ...] | None:
    """The numbers of a list such as '1, 2, 4', ascending, each once; None when a part of it is not
    a number in least..most.

    >>> whole_numbers("32, 8,8", 1, 64), whole_numbers("8,x", 1, 64)
    ((8, 32), None)
    """
    numbers = {whole_number(part.strip(), least, most) for part in text.split(",")}
    return None if None in numbers else tuple(sorted(number for number in numbers if number is not None))


def parse_duration(text: str) -> float:
    """Seconds of '500ms', '0.5s', '5min', '1h30min'. ValueError when the unit is missing or
    unknown.
    """
    total, at = 0.0, 0
    stripped = text.strip()
    while at < len(stripped):
        part = AMOUNT.match(stripped, at)
        if part is None or part[2] not in _DURATIONS:
            raise ValueError(f"{text!r} is not a duration: write a number with a unit, as 500ms, 0.5s, 5min or 1h")
        total += float(part[1]) * _DURATIONS[part[2]]
        at = part.end()
    if not stripped:
        raise ValueError("a duration is empty: write a number with a unit, as 500ms or 0.5s")
    if total > MOST:
        raise ValueError(f"{text[:40]!r} is not a duration: it never ends")
    return total


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
    """'396 ms', '2.33 s', '812 µs': three digits in the unit of `seconds_unit`; '∞' and '–' for inf
    and None.
    """
    if seconds is None or not math.isfinite(seconds):
        return format_number(seconds)
    factor, unit = seconds_unit(seconds)
    return f"{format_number(seconds * factor)} {unit}"


def seconds_unit(seconds: float) -> tuple[float, str]:
    """The factor and the unit in which one duration reads best: µs below a millisecond, ms below a
    second, else s.

    >>> seconds_unit(0.396), seconds_unit(2.3), seconds_unit(0.00081), seconds_unit(0)
    ((1000.0, 'ms'), (1.0, 's'), (1000000.0, 'µs'), (1000.0, 'ms'))
    """
    if not abs(seconds) < 0.9995:
        return 1.0, "s"
    return (1e6, "µs") if 0 < abs(seconds) < 1e-3 else (1e3, "ms")


def format_number(x: float | None) -> str:
    """A number with three significant digits or more: '2,850', '41.7', '0.125', '∞'; '–' for None
    and NaN.

    An exponent stands only in very small and very large numbers.
    """
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


def trimmed(number: str) -> str:
    """A formatted number without trailing zeros after its point: '1.5' of '1.50', '1' of '1.00'."""
    return number.rstrip("0").rstrip(".") if "." in number else number


_LONG = 3600 * 10_000.0


def format_elapsed(seconds: float) -> str:
    """An elapsed time in at most two units: '45 s', '20 min', '9 min 12 s', '7 h 40 min'."""
    if not math.isfinite(seconds):
        return format_number(seconds)
    if abs(seconds) >= _LONG:
        return f"{format_number(seconds / 3600)} h"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, seconds = divmod(whole, 60)
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def format_bytes(size: float) -> str:
    """A size in decimal units: '214 kB', '1.03 GB'."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(size) >= scale:
            return f"{format_number(size / scale)} {unit}"
    return f"{size:.0f} B" if math.isfinite(size) else format_number(size)


def count(number: int, noun: str) -> str:
    """'1 trial', '1,024 requests'."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def format_share(share: float | None) -> str:
    """'0.2%', '12%'; '–' for None."""
    return "–" if share is None or math.isnan(share) else f"{format_number(share * 100)}%"
