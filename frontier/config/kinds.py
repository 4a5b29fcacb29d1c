"""The kinds of values that config models are made of: `values`' readers as pydantic annotations."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainValidator

from frontier.config import quantities, values


class Strict(BaseModel):
    """Frozen; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def duration_in(least: float, most: float) -> PlainValidator:
    return PlainValidator(lambda value: quantities.duration(value, least=least, most=most))


def whole_in(least: int, most: int) -> PlainValidator:
    return PlainValidator(lambda value: values.whole(value, least, most))


def one_of(*allowed: str) -> PlainValidator:
    return PlainValidator(lambda value: values.choice(value, allowed))


Text = Annotated[str, PlainValidator(values.words)]
Name = Annotated[str, PlainValidator(values.name)]
Truth = Annotated[bool, PlainValidator(values.truth)]
Dollars = Annotated[float, PlainValidator(quantities.dollars)]
Wait = Annotated[float, duration_in(0.001, 86_400.0)]
