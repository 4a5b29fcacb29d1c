"""Units at the edge: text with a unit to a number in SI inside, and back to text a person reads.

Inside the package time is seconds, sizes are bytes, rates are per second and shares are 0..1.
"""

import math
import re

_DURATIONS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
_SIZES = {
    "B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
    "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40,
}  # fmt: skip
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_PART = re.compile(rf"\s*{_NUMBER}\s*([A-Za-zµ]+)")


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
    if seconds is None or math.isnan(seconds):
        return "–"
    if math.isinf(seconds):
        return "∞" if seconds > 0 else "-∞"
    if seconds != 0 and abs(seconds) < 1e-3:
        return f"{_three(seconds * 1e6)} µs"
    if abs(seconds) < 0.9995:
        return f"{_three(seconds * 1e3)} ms"
    return f"{_three(seconds)} s"


def _three(x: float) -> str:
    """Three significant digits, thousands separated, no exponent."""
    if x == 0:
        return "0"
    rounded = float(f"{x:.3g}")
    digits = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{x:,.{digits}f}"


def format_number(x: float | None) -> str:
    """A plain number with three significant digits or more: '2,850', '41.7', '0.125'; '–' for None."""
    if x is None or math.isnan(x):
        return "–"
    if math.isinf(x):
        return "∞" if x > 0 else "-∞"
    return _three(x)


def format_elapsed(seconds: float) -> str:
    """A stretch of a person's time: '45 s', '9 min 12 s', '7 h 40 min'."""
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
    return f"{size:.0f} B"


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
