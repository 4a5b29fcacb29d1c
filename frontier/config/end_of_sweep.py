"""The end of a sweep in the config: the keys `budget`, what it may spend, and `on_finish`, whom it
notifies."""

import datetime as dt
import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import PlainValidator, model_validator

from frontier.client.ask.target import read_address
from frontier.client.secrets import looks_like_a_key, looks_random
from frontier.config.deployment import Command
from frontier.config.uses import PLAIN, POST, VARIABLE
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
        """There is any limit."""
        return any(value is not None for value in self.model_dump().values())


def _webhook(value: Any) -> str:
    """An http(s) address, or '${VARIABLE}' that holds it: most are secrets."""
    hint = "put the address into a variable:  on_finish: ${FINISH_URL}"
    text = text_of(value, "an address", hint)
    if VARIABLE.fullmatch(text):
        return text
    try:
        parts = read_address(text, credentials=True)
    except ValueError as error:
        raise Problem(f"{{key}} {error}", hint) from None
    if "@" in parts.netloc or parts.query or looks_like_a_key(text) or looks_random(parts.path):
        raise Problem("{key} holds what looks like a secret", hint)
    return text


class FinishConfig(Strict):
    """The notification at the end of a sweep: a command, or a webhook at `url`, given at most
    `within` seconds.
    """

    command: Command | None = None
    url: Annotated[str, PlainValidator(_webhook), POST] | None = None
    within: Annotated[float, duration_in(0.1, 600.0)] = 30.0

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise Problem("on_finish is a command or the url of a webhook", "write one of them")
        return self

    def variables(self) -> set[str]:
        """The environment variable that holds the address, if one does."""
        return {self.url[2:-1]} if self.url is not None and self.url.startswith("${") else set()

    def hidden(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """The address, where it comes from the environment: most are secrets."""
        return tuple(value for name in self.variables() if (value := environ.get(name, "").strip()))

    def address(self, environ: Mapping[str, str]) -> str | None:
        """The webhook's address; None when its variable is not set."""
        return next(iter(self.hidden(environ)), None) if self.variables() else self.url


def read_finish(value: Any) -> Any:
    """`on_finish: TEXT` is short for a mapping: an address is its `url`, all else its `command`."""
    if not isinstance(value, str):
        return value
    return {"url" if value.strip().startswith(("http://", "https://", "${")) else "command": value}
