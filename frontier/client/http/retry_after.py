"""Retry-After: how long a refusing server asks to be left alone."""

import re
from email.utils import parsedate_to_datetime

from frontier.client.http.exchange import Exchange

_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{0,9})?")
_MILLISECONDS = "retry-after-ms"
"""The header of Azure and OpenAI, more exact than the other one beside it."""


def retry_after(exchange: Exchange) -> float | None:
    """Seconds for which the server asks to be left alone; None where it does not say so.

    A date is held against the date of the same answer, as the clocks of server and client may
    differ.
    """
    milliseconds, text = (exchange.headers.get(name, "").strip() for name in (_MILLISECONDS, "retry-after"))
    if _SECONDS.fullmatch(milliseconds):
        return float(milliseconds) / 1000
    if _SECONDS.fullmatch(text):
        return float(text)
    until, now = _time(text), _time(exchange.headers.get("date", ""))
    return None if until is None or now is None else max(0.0, until - now)


def _time(text: str) -> float | None:
    """The time of an HTTP date, in seconds since 1970; None where it is no date."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
