"""Pydantic field types with units (durations, sizes, shares, counts, names) and the `Problem` their
readers report.

A reader takes what YAML, JSON or a command line gave and returns the value in SI units, or raises
`Problem`. Every mapping that a person writes is read by models and dataclasses of these fields: the
config, the simulator's parameters, model cards and GPUs.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeGuard, get_args, get_type_hints

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainValidator, TypeAdapter, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from frontier.core.model.text import suggestion
from frontier.core.model.units import AMOUNT, LEAST, MOST_COUNT, parse_duration, parse_share

Path = tuple[str | int, ...]
"""Where a value is: keys and list positions from the top."""
MONTH = 30 * 86_400.0


class Problem(ValueError):  # noqa: N818
    """One mistake in a value: what is wrong, the hint, and its path below the value (`at_key`: at
    the key, not at its value).

    `{key}` in a text stands for the key of the value, which only the caller knows, and `{text}` for
    what was written.
    """

    def __init__(self, what: str, hint: str | None = None, *path: str | int, at_key: bool = False) -> None:
        super().__init__(what if not hint else f"{what}; {hint}")
        self.what, self.hint, self.path, self.at_key = what, hint, path, at_key

    @classmethod
    def of(cls, error: ValueError, *, at_key: bool = False) -> "Problem":
        """The problem of an error of a lower module, whose text is 'what; hint'."""
        what, _, hint = str(error).partition("; ")
        return error if isinstance(error, cls) else cls(what, hint or None, at_key=at_key)

    def below(self, *path: str | int) -> "Problem":
        """The same problem as one of a value that holds this one at `path`."""
        return Problem(self.what, self.hint, *path, *self.path, at_key=self.at_key)

    def named(self, key: str, written: str = "") -> "Problem":
        """The same problem with the key's name and the value's text filled into its texts."""
        hint = self.hint and self.hint.replace("{key}", key).replace("{text}", written[:60])
        return Problem(self.what.replace("{key}", key), hint, *self.path, at_key=self.at_key)


def refuse(problems: Iterable[Problem]) -> None:
    """Raise all problems of one value, if there are any; pydantic adds them to those of other
    values.
    """
    details = [
        InitErrorDetails(type=PydanticCustomError("problem", "{error}", {"error": problem}), input=None)
        for problem in problems
    ]
    if details:
        raise ValidationError.from_exception_data("value", details)


def repeated(labels: Sequence[str], what: str, hint: str, places: Sequence[int] | None = None) -> list[Problem]:
    """A problem at each label that occurs a second time; `places` are the labels' paths in their
    list.
    """
    first, places = {label: i for i, label in reversed(list(enumerate(labels)))}, places or range(len(labels))
    return [Problem(what.format(label), hint, places[i]) for i, label in enumerate(labels) if first[label] < i]


# ---- reading a mapping with a model or a dataclass


class Strict(BaseModel):
    """Base of the models: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read(kind: Any, value: Any) -> Any:
    """A model or dataclass `kind` made of the value. A ValidationError made of `Problem`s
    otherwise.
    """
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        refuse(problems_of(error, kind))
        raise


def read_alone(kind: Any, value: Any) -> Any:
    """As `read`, for a caller that reports one problem. ValueError that names the path, as
    'stalls.every: ...'.
    """
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        # An unknown key first: it is why another one is missing.
        raise in_words(min(problems_of(error, kind), key=lambda problem: not problem.at_key)) from None


def in_words(problem: Problem) -> Problem:
    """A problem whose text names the path, for a value that is in no file."""
    path = ".".join(map(str, problem.path))
    named = problem.named(path or "the value")
    holder = ".".join(map(str, problem.path[:-1])) if problem.at_key else path
    return Problem(named.what if "{key}" in problem.what or not holder else f"{holder}: {named.what}", named.hint)


def problems_of(
    error: ValidationError, kind: Any, unknown: Callable[[str, Path, list[str]], Problem] | None = None
) -> list[Problem]:
    """A pydantic error about the model or dataclass `kind` as problems with their whole path.

    `unknown` makes the problem of an unknown key, from the key, the path of its mapping and the
    keys known there.
    """
    return [_problem_of(details, kind, unknown or unknown_key) for details in error.errors(include_url=False)]


def unknown_key(key: str, path: Path, known: list[str]) -> Problem:
    """The problem of an unknown key in the mapping at `path`."""
    return Problem(f"unknown key {shown(key)}", suggestion(key, known), *path, key, at_key=True)


_EXAMPLES = {
    "endpoint": "http://localhost:8000/v1",
    "shapes": "[1024/256]",
    "isl": "1024",
    "osl": "256",
    "turns": "8",
    "first": "8192",
    "per_turn": "400/300",
    "name": "agent",
}


def _problem_of(error: Mapping[str, Any], kind: Any, unknown: Callable[[str, Path, list[str]], Problem]) -> Problem:
    path, own = tuple(part for part in error["loc"] if part != "[key]"), error.get("ctx", {}).get("error")
    if isinstance(own, ValueError):
        return Problem.of(own).below(*path)
    key = path[-1] if path and isinstance(path[-1], str) else None
    match error["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument" if key is not None:
            return unknown(key, path[:-1], keys_at(kind, path[:-1]))
        case "missing":
            return Problem(f"the key {key} is missing", f"add  {key}: {_EXAMPLES.get(str(key), '...')}", *path[:-1])
        case "model_type" | "model_attributes_type" | "dataclass_type" | "dict_type":
            what = f"{'{key}' if key else 'this'} is a mapping; this is {shown(error['input'])}"
            keys = keys_at(kind, path)
            return Problem(what, f"write {{{keys[0]}: ...}}; known: {', '.join(keys)}", *path)
        case "tuple_type":
            return Problem("{key} is a list", "write [..., ...]", *path)
    return Problem("{key} cannot be used as it is", None, *path)


def keys_at(kind: Any, path: Path) -> list[str]:
    """The keys of the mapping at a path below a model or dataclass."""
    for part in path:
        if isinstance(part, str):
            kind = _fields(kind).get(part)
    return list(_fields(kind))


def _fields(annotation: Any) -> dict[str, Any]:
    """The keys of the model or dataclass in an annotation, with the annotation of each."""
    todo = [annotation]
    while todo:
        kind = todo.pop(0)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            return get_type_hints(kind)
        todo += get_args(kind)
    return {}


# ---- plain values


def shown(value: Any) -> str:
    """A value as a message repeats it: cut short, and only the kind of a list or a mapping."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, str) else f"{value}"
    return text if len(text) <= 60 else text[:57] + "..."


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole(value: Any, least: int, most: int) -> int:
    """A whole number in least..most."""
    if isinstance(value, bool) or not isinstance(value, int):
        same = isinstance(value, float) and value.is_integer()
        hint = f"write {value:.0f}" if same and least <= value <= most else "write it in digits"
        if isinstance(value, str) and value.isdecimal() and len(value) < 18:
            hint = f"write {value} without quotes"
        raise Problem(f"{{key}} is a whole number; this is {shown(value)}", f"{hint}, between {least} and {most:,}")
    if not least <= value <= most:
        raise Problem(f"{{key}}: {shown(value)} is out of range", f"write a whole number between {least} and {most:,}")
    return value


def number(value: Any, least: float, most: float) -> float:
    """A plain number in least..most."""
    hint = f"write a number between {least:,.9g} and {most:,.9g}"
    if not is_number(value):
        raise Problem(f"{{key}} is a number; this is {shown(value)}", hint)
    if not least <= value <= most:
        raise Problem(f"{{key}}: {shown(value)} is out of range", hint)
    return float(value)


def truth(value: Any) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise Problem(f"{{key}} is true or false; this is {shown(value)}", "write true or false")
    return value


def text_of(value: Any, kind: str, hint: str) -> str:
    """A text of this kind ('an address'), without the space around it."""
    if not isinstance(value, str):
        raise Problem(f"{{key}} is {kind}; this is {shown(value)}", hint)
    return value.strip()


def words(value: Any, most: int = 400) -> str:
    """A text on one line. A number must be quoted to be a text, so that 1.10 is not 1.1."""
    if is_number(value) or isinstance(value, bool):
        kind = "true or false" if isinstance(value, bool) else "a number"
        raise Problem(f"{{key}} is a text; {shown(value)} is {kind}", 'quote it, as {key}: "{text}"')
    if not isinstance(value, str):
        raise Problem(f"{{key}} is a text; this is {shown(value)}", "write one text")
    if not value.strip() or len(value) > most or not value.isprintable():
        raise Problem(
            f"{{key}}: {shown(value)} cannot be used", f"write a text on one line of at most {most} characters"
        )
    return value.strip()


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


def name(value: Any) -> str:
    """A name that is safe in a file name: letters, digits, dot, dash and underscore."""
    text = words(value)
    if not _NAME.fullmatch(text):
        raise Problem(
            f"{{key}}: {shown(text)} cannot be a name", "use letters, digits, . - and _, at most 60, no space"
        )
    return text


def choice(value: Any, allowed: tuple[str, ...]) -> str:
    """One of a few words."""
    if isinstance(value, str) and value in allowed:
        return value
    raise Problem(f"{{key}}: {shown(value)} is not known", suggestion(shown(value), allowed))


# ---- values with units


def duration(value: Any, least: float = 0.0, most: float = MONTH, *, bare: bool = False) -> float:
    """Seconds of '30s', '5min', '1h30min'. A number without a unit is refused unless `bare`, since
    both s and ms are usual.
    """
    if is_number(value) and value != 0 and not bare:
        raise Problem("{key} needs a unit", f"write {value:g}s or {value:g}min")
    seconds = value if is_number(value) else seconds_of(value, "a duration", "30s or 5min")
    seconds = 0.0 if abs(seconds) < LEAST else seconds
    if not least <= seconds <= most:
        low = f"at least {duration_text(least)} and " if least > 0 else ""
        raise Problem(f"{{key}}: {shown(value)} is out of range", f"write {low}at most {duration_text(most)}")
    return float(seconds)


def seconds_of(value: Any, kind: str, example: str) -> float:
    """Seconds of a text with its unit; `kind` and `example` are for the problem where it
    has none.
    """
    hint = f"write a number with a unit, as {example}"
    text = text_of(value, kind, hint)
    try:
        return parse_duration(text)
    except ValueError:
        raise Problem(f"{{key}}: {shown(value)} is not {kind}", hint) from None


def duration_text(seconds: float) -> str:
    """Seconds as a config has them: '300ms', '45s', '10min', '24h'."""
    for scale, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:g}{unit}"
    return f"{seconds * 1e6:g}us"


def share(value: Any) -> float:
    """A share 0..1 of '1%' or 0.01. A bare 1 is refused: it may mean 1% or everything."""
    text = value if isinstance(value, str) else ""
    if is_number(value):
        text = f"{value:.12f}".rstrip("0").rstrip(".")
    if text.strip() in ("1", "1.0"):
        raise Problem("{key}: 1 could mean 1% or 100%", "write 1% or 100%")
    try:
        return parse_share(text)
    except ValueError:
        hint = "write it as 1% or 0.01, between 0% and 100%"
        if is_number(value) and 1 < value <= 100:
            hint = f"write {value:g}%"
        raise Problem(f"{{key}}: {shown(value)} is not a share", hint) from None


_SIZES = {
    "B": 1.0,
    "kB": 1e3,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
}


def parse_size(text: str) -> float:
    """Bytes of '16GB', '80GiB', '131kB'. ValueError when the unit is missing or unknown."""
    part = AMOUNT.fullmatch(text.strip())
    if part is None or part[2] not in _SIZES:
        raise ValueError(f"{text!r} is not a size: write a number with a unit, as 16GB or 80GiB")
    return float(part[1]) * _SIZES[part[2]]


def parse_bandwidth(text: str) -> float:
    """Bytes per second of '4.8TB/s'. ValueError otherwise."""
    size, slash, second = text.strip().partition("/")
    if slash != "/" or second.strip() != "s":
        raise ValueError(f"{text!r} is not a bandwidth: write it as 4.8TB/s")
    return parse_size(size)


def _measure(
    parse: Callable[[str], float], kind: str, unit: str, example: str, *, bare: bool = False
) -> PlainValidator:
    """Bytes, or bytes per second, above zero: a text with its unit, or also a number when
    `bare`.
    """

    def reader(value: Any) -> float:
        if is_number(value) and not bare:
            raise Problem("{key} needs a unit", f"write {value:g}{unit} if that is meant, or as {example}")
        try:
            amount = float(value) if is_number(value) else math.nan
            if isinstance(value, str):
                amount = parse(value)
        except (ValueError, OverflowError):
            amount = math.nan
        if not 0 < amount < math.inf:
            raise Problem(
                f"{{key}}: {shown(value)} is not {kind}", f"write a number above zero with a unit, as {example}"
            )
        return amount

    return PlainValidator(reader)


# ---- values that a command line or JSON gives


def _from_text(value: Any) -> Any:
    """The number, share or truth value that a text of a command line spells; a whole float as an
    int.
    """
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        try:
            value = parse_share(text) if text.endswith("%") else float(text)
        except ValueError:
            return value
    return int(value) if isinstance(value, float) and value.is_integer() else value


AS_TEXT = BeforeValidator(_from_text)


def without_nulls(value: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping without the keys that have no value, at every level. JSON writes such keys; YAML
    leaves them out.
    """
    return {
        key: without_nulls(item) if isinstance(item, Mapping) else item
        for key, item in value.items()
        if item is not None
    }


# ---- annotations


def duration_in(least: float, most: float, *, bare: bool = False) -> PlainValidator:
    return PlainValidator(lambda value: duration(value, least, most, bare=bare))


def whole_in(least: int, most: int) -> PlainValidator:
    return PlainValidator(lambda value: whole(value, least, most))


def number_in(least: float, most: float) -> PlainValidator:
    return PlainValidator(lambda value: number(value, least, most))


def one_of(*allowed: str) -> PlainValidator:
    return PlainValidator(lambda value: choice(value, allowed))


ONE_OR_MANY = BeforeValidator(lambda value: [value] if isinstance(value, str | dict) else value)
"""A validator that accepts a single item in place of a list of one."""
Count = Annotated[int, whole_in(0, MOST_COUNT), AS_TEXT]
Positive = Annotated[int, whole_in(1, MOST_COUNT), AS_TEXT]
Truth = Annotated[bool, PlainValidator(truth)]
Text = Annotated[str, PlainValidator(words)]
Name = Annotated[str, PlainValidator(name)]
Size = Annotated[float, _measure(parse_size, "a size", "GB", "16GB or 80GiB")]
SmallSize = Annotated[float, _measure(parse_size, "a size", "kB", "131kB or 128KiB")]
Bandwidth = Annotated[float, _measure(parse_bandwidth, "a bandwidth", "TB/s", "900GB/s")]
SizeOrBytes = Annotated[float, _measure(parse_size, "a size", "kB", "128KiB", bare=True)]
BandwidthOrBytes = Annotated[float, _measure(parse_bandwidth, "a bandwidth", "GB/s", "50GB/s", bare=True)]
