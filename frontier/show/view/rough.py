"""Estimated times and counts, rounded to what is known of them, and moments."""

import math
from datetime import UTC, datetime

from frontier.core.model.units import format_elapsed


def format_rough(seconds: float) -> str:
    """An estimated time, no more exact than it is: '40 s', '3 min', '2 h 10 min'.

    >>> [format_rough(seconds) for seconds in (7.2, 41, 100, 3580, 7980)]
    ['5 s', '40 s', '2 min', '1 h', '2 h 10 min']
    """
    step = next((step for step, below in ((5, 57.5), (60, 3570)) if seconds < below), 600)
    return format_elapsed(max(5, step * round(seconds / step)))


def format_range(low: float, high: float) -> str:
    """An estimated time between two: '7 to 20 min', '40 s to 2 min', 'at least 7 min'.

    >>> [format_range(*ends) for ends in ((420, 1200), (41, 122), (1, 3), (420, math.inf))]
    ['7 to 20 min', '40 s to 2 min', 'about 5 s', 'at least 7 min']
    """
    if math.isinf(high):
        return f"at least {format_rough(low)}"
    least, most = format_rough(low), format_rough(high)
    if least == most:
        return f"about {least}"
    number, _, unit = least.partition(" ")
    same = most.endswith(f" {unit}") and most.count(" ") == 1
    return f"{number} to {most}" if same else f"{least} to {most}"


def roughly(number: int) -> str:
    """A predicted count, rounded up to two significant digits.

    >>> roughly(2177)
    '2,200'
    """
    if number < 100:
        return str(number)
    scale: int = 10 ** (len(str(number)) - 2)
    return f"{-(-number // scale) * scale:,}"


def date_text(at: float) -> str:
    """A moment in unix time: '2026-11-22 06:10', in UTC.

    >>> date_text(1_700_000_000.0)
    '2023-11-14 22:13'
    """
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
