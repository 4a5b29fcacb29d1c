"""The config key `on_finish`: a command or a webhook for the end of a sweep."""

from collections.abc import Mapping
from typing import Annotated, Any, Self, cast

from pydantic import PlainValidator, model_validator

from frontier.client.ask.target import read_address
from frontier.client.secrets import looks_like_a_key, looks_random
from frontier.config.deployment import ShellCommand
from frontier.config.uses import POST, VARIABLE
from frontier.fields import Problem, Strict, duration_in, read, text_of

_ONE_OF = "on_finish is a command or the url of a webhook", "write one of them"


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

    command: ShellCommand | None = None
    url: Annotated[str, PlainValidator(_webhook), POST] | None = None
    within: Annotated[float, duration_in(0.1, 600.0)] = 30.0

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise Problem(*_ONE_OF)
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


def read_finish(value: Any) -> FinishConfig | None:
    """Expand `on_finish: TEXT`, which is short for a mapping: an address is its `url`, any other
    text its `command`. None without one.
    """
    if value is None:
        return None
    if isinstance(value, str):
        value = {"url" if value.strip().startswith(("http://", "https://", "${")) else "command": value}
    if not isinstance(value, dict | FinishConfig):
        raise Problem(*_ONE_OF)
    return cast("FinishConfig", read(FinishConfig, value))
