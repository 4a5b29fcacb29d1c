"""The key `budget`: what a sweep may spend."""

import datetime as dt
import re
from typing import Annotated, Any

from pydantic import PlainValidator

from frontier.config.uses import PLAIN
from frontier.fields import MONTH, Problem, Strict, duration_in, shown, text_of, whole_in


def _dollars(value: Any) -> float:
    """Dollars of '$20'."""
    match = re.fullmatch(r"\$\s*(\d{1,12}(?:\.\d*)?|\.\d+)", value) if isinstance(value, str) else None
    if match is None or float(match[1]) <= 0:
        raise Problem(f"{{key}}: {shown(value)} is not an amount", "write dollars above zero, as $20")
    return float(match[1])


def _moment(value: Any) -> str:
    """'07:00', or '2026-11-22 07:00', of this machine's clock."""
    hint = 'write "07:00", or with its day "2026-11-22 07:00"'
    text = text_of(value, "a time of day", hint)
    match = re.fullmatch(r"(?:(\d{4}-\d\d-\d\d)[ T])?(\d{1,2}):(\d\d)", text)
    if match is None:
        raise Problem(f"{{key}}: {shown(value)} is not a time of day", hint)
    try:
        dt.date.fromisoformat(match[1] or "2000-01-01")
        dt.time(int(match[2]), int(match[3]))
    except ValueError:
        raise Problem(f"{{key}}: {shown(value)} is no time of any day", hint) from None
    return text


class BudgetConfig(Strict):
    """What the sweep as a whole may spend: seconds, requests sent, output tokens received, dollars.

    `until` is when it must be done, as '07:00' (the next time the clock shows it) or '2026-11-22
    07:00'.
    """

    time: Annotated[float, duration_in(1.0, MONTH)] | None = None
    requests: Annotated[int, whole_in(1, 10**9)] | None = None
    tokens: Annotated[int, whole_in(1, 10**12)] | None = None
    cost: Annotated[float, PlainValidator(_dollars)] | None = None
    until: Annotated[str, PlainValidator(_moment), PLAIN] | None = None

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return any(value is not None for value in self.model_dump().values())
