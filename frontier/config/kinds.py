"""The kinds of values that config models are made of: `values`' readers as pydantic annotations."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainValidator

from frontier.config import quantities, values
from frontier.config.uses import PLAIN, READ, RUN, SEND_FILE, SEND_VARIABLE


class Strict(BaseModel):
    """Frozen; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def duration_in(least: float, most: float) -> PlainValidator:
    return PlainValidator(lambda value: quantities.duration(value, least=least, most=most))


def whole_in(least: int, most: int) -> PlainValidator:
    return PlainValidator(lambda value: values.whole(value, least, most))


def one_of(*allowed: str) -> PlainValidator:
    return PlainValidator(lambda value: values.choice(value, allowed))


Text = Annotated[str, PlainValidator(values.words), PLAIN]
Name = Annotated[str, PlainValidator(values.name), PLAIN]
Command = Annotated[str, PlainValidator(values.command), RUN]
TlsFile = Annotated[str, PlainValidator(values.words), READ]
SentFile = Annotated[str, PlainValidator(values.words), SEND_FILE]
Variable = Annotated[str, PlainValidator(values.variable), SEND_VARIABLE]
Truth = Annotated[bool, PlainValidator(values.truth)]
Dollars = Annotated[float, PlainValidator(quantities.dollars)]
Wait = Annotated[float, duration_in(0.001, 86_400.0)]
