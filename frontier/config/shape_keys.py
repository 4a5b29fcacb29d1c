"""Shapes in a config: lengths, requests of two lengths, sessions of several turns, and their common
prefixes. Extras add other kinds of shapes.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from pydantic import PlainValidator, ValidationInfo

from frontier import registry
from frontier.core.model.shapes import MAX_TOKENS, Lengths, Session, Shape, ShapeError
from frontier.fields import (
    Name,
    Problem,
    Strict,
    duration,
    is_number,
    number,
    read,
    refuse,
    repeated,
    share,
    shown,
    whole,
    whole_in,
    without_nulls,
)

MAX_TURNS = 1_000
MOST_SHAPES, MOST_PREFIXES = 100, 20


def _lengths(value: Any) -> Lengths:
    """The token counts of 1024, {uniform: [512, 1024]} or {normal: [1024, 128]}."""
    hint = "write a whole number, {uniform: [512, 1024]} or {normal: [1024, 128]}"
    if isinstance(value, str) or value is None:
        raise Problem(f"{{key}}: {shown(value)} is not a length", hint)
    if not isinstance(value, dict):
        return Lengths.fixed(whole(value, 1, MAX_TOKENS))
    if len(value) != 1 or next(iter(value)) not in ("uniform", "normal"):
        raise Problem("{key} is neither uniform nor normal", hint)
    kind, pair = next(iter(value.items()))
    if not isinstance(pair, list) or len(pair) != 2 or not all(is_number(x) for x in pair):
        raise Problem(f"{kind} takes two numbers", hint, kind)
    if kind == "uniform":
        low, high = (whole(x, 1, MAX_TOKENS) for x in pair)
        if low > high:
            raise Problem(f"uniform: {low} is above {high}", f"write uniform: [{high}, {low}]", kind)
        return Lengths.uniform(low, high) if low < high else Lengths.fixed(low)
    mean, sd = number(pair[0], 1, MAX_TOKENS), number(pair[1], 0, MAX_TOKENS)
    return Lengths.normal(mean, sd) if sd > 0 else Lengths.fixed(round(mean))


def _prefix(value: Any) -> float:
    part = share(value)
    if part >= 1.0:
        raise Problem("{key}: the whole prompt cannot be common to all", "write at most 99%")
    return part


class CommonKeys(Strict):
    """What all requests, or all sessions, begin with: a share of the (first) prompt, or a number of
    tokens.
    """

    prefix: Annotated[float, PlainValidator(_prefix)] = 0.0
    system: Annotated[int, whole_in(1, MAX_TOKENS)] | None = None

    def share_of(self, prompt: Lengths) -> float:
        """Its share of a prompt."""
        if self.system is None:
            return self.prefix
        if self.prefix:
            raise Problem("prefix and system say the same in two ways", "write one of them", "system", at_key=True)
        if self.system >= prompt.low:
            what = f"system: {self.system} tokens leave nothing of a prompt of {prompt.low}"
            raise Problem(what, "the prompt counts with its system prompt: make it longer", "system")
        return self.system / prompt.mean


class _ShapeConfig(CommonKeys):
    """A shape as a mapping: {isl: 1024, osl: {uniform: [128, 256]}, name: chat, prefix: 50%}."""

    isl: Annotated[Lengths, PlainValidator(_lengths)]
    osl: Annotated[Lengths, PlainValidator(_lengths)]
    name: Name | None = None

    def shape(self) -> Shape:
        """The shape."""
        return Shape(self.isl, self.osl, self.name, self.share_of(self.isl))


def _per_turn(value: Any) -> tuple[Lengths, Lengths]:
    """The new prompt tokens and the output tokens of a turn: 400/300."""
    try:
        shape = Shape.parse(value) if isinstance(value, str) else None
    except ShapeError as error:
        raise Problem(f"{{key}}: {error.what}", _PER_TURN) from None
    if shape is None:
        raise Problem(f"{{key}} is two lengths; this is {shown(value)}", _PER_TURN)
    return shape.isl, shape.osl


_PER_TURN = "write new input/output tokens of each turn, as 400/300"


def _think(value: Any) -> tuple[float, float | None]:
    """Mean think time in seconds and its spread: 10s (exponential, None), or {uniform: [5s,
    15s]}.
    """
    if not isinstance(value, dict):
        return duration(value, most=3_600.0), None
    hint = "write 10s, drawn from the exponential distribution, or {uniform: [5s, 15s]}"
    pair = value.get("uniform")
    if len(value) != 1 or not isinstance(pair, list) or len(pair) != 2:
        raise Problem("{key} is neither a time nor uniform", hint)
    low, high = (duration(each, most=3_600.0) for each in pair)
    if low >= high:
        raise Problem("{key}: uniform runs from the shorter to the longer time", hint)
    return (low + high) / 2, (high - low) / 2


class _SessionConfig(CommonKeys):
    """A session: {name: agent, turns: 8, first: 8192, per_turn: 400/300, think: 10s, system:
    2048}.
    """

    name: Name
    turns: Annotated[Lengths, PlainValidator(_lengths)]
    first: Annotated[Lengths, PlainValidator(_lengths)]
    per_turn: Annotated[tuple[Lengths, Lengths], PlainValidator(_per_turn)]
    think: Annotated[tuple[float, float | None], PlainValidator(_think)] = (0.0, None)

    def shape(self) -> Shape:
        """The shape."""
        if self.turns.high > MAX_TURNS:
            raise Problem(f"turns: {self.turns.high:,} is out of range", f"a session has at most {MAX_TURNS}", "turns")
        added, osl = self.per_turn
        session = Session(self.turns, self.first, added, *self.think)
        if session.prompts(osl).high > MAX_TOKENS:
            what = f"the last prompt would have {session.prompts(osl).high:,} tokens; the most is {MAX_TOKENS:,}"
            raise Problem(what, "write fewer turns, or shorter ones", "turns")
        return Shape.of_session(session, osl, self.name, self.share_of(self.first))


SESSIONS = "sessions"
"""The reader of the sessions of a file, in the context of a validation: a `ReadSessions`."""
ReadSessions = Callable[..., Shape]
"""The shape, still without a name, of the sessions of a file; with 'trace' as the second argument,
of its requests. UsageError when the file cannot be used."""


def read_shapes(value: Any, info: ValidationInfo) -> tuple[Shape, ...]:
    """The shape of '1024/256' or of a mapping. A mapping with several prefixes gives a shape for
    each, named by it.
    """
    read_sessions = (info.context or {}).get(SESSIONS)
    if not isinstance(value, dict) or not isinstance(shares := value.get("prefix"), list):
        return (one_shape(value, read_sessions),)
    if not 1 <= len(shares) <= MOST_PREFIXES:
        hint = "write [0%, 25%, 50%, 75%]: one series for each"
        raise Problem(f"{{key}}: a shape has 1 to {MOST_PREFIXES} shares", hint, "prefix")
    shapes = [one_shape({**value, "prefix": item}, read_sessions) for item in shares]
    return tuple(replace(shape, name=f"{shape.label} prefix {shape.prefix * 100:.4g}%") for shape in shapes)


def one_shape(value: Any, read_sessions: ReadSessions | None = None) -> Shape:
    """The shape of '1024/256', or of a mapping."""
    if isinstance(value, str):
        try:
            return Shape.parse(value)
        except ShapeError as error:
            or_mapping = ", or {isl: 1024, osl: 256}" if error.hint.endswith("1024/256") else ""
            raise Problem(error.what, error.hint + or_mapping) from None
    if not isinstance(value, dict):
        hint = "write input/output tokens, as 1024/256, or {isl: 1024, osl: 256}"
        raise Problem(f"a shape is two lengths; this is {shown(value)}", hint)
    value = without_nulls(value)
    row = next((row for key, row in registry.installed(registry.SHAPE_KINDS) if key in value), None)
    if row is not None:
        shape: Shape = read(row.load(), value).shape(read_sessions)
        return shape
    # A key that only sessions have decides; what is left of a plain shape is then an unknown key.
    is_session = bool({"turns", "first", "per_turn", "think"} & set(value))
    keys: _ShapeConfig | _SessionConfig = read(_SessionConfig if is_session else _ShapeConfig, value)
    return keys.shape()


def distinct(items: tuple[tuple[Shape, ...], ...], info: ValidationInfo) -> tuple[Shape, ...]:
    """The shapes of all items of the list. A `Problem` where two have the same name or are the same
    shape.

    Classes of traffic may be the same shape, since their names tell them apart.
    """
    by_name = bool(info.data.get("traffic", True))  # mistaken traffic is traffic
    shapes = tuple(shape for item in items for shape in item)
    if not shapes or len(shapes) > MOST_SHAPES:
        what = "{key} is an empty list" if not shapes else f"{{key}} has more than {MOST_SHAPES} shapes"
        raise Problem(what, "write [1024/256]")
    places = [i for i, item in enumerate(items) for _ in item]
    same = [] if by_name else [described(replace(shape, name=None)) for shape in shapes]
    problems = repeated(same, "{} is given twice", "remove one; repeats: 3  measures each again", places)
    hint = "give one a name, as {isl: 1024, osl: 256, name: chat}"
    labels = [shape.label for shape in shapes]
    refuse(problems or repeated(labels, "two shapes are called {}", hint, places))
    return shapes


def described(shape: Shape) -> str:
    """A shape as one unambiguous text: 'chat: 1024-2048/256 prefix 50%'."""
    if shape.mix:
        parts = (f"{each.share * 100:.6g}% ({described(each.shape)})" for each in shape.mix)
        return f"{shape.name}: {', '.join(parts)}"
    text = f"{shape.isl}/{shape.osl}"
    if (s := shape.session) is not None:
        spread = "" if s.spread is None else f" +-{s.spread:g}s"
        of_file = "" if s.file is None else f"{s.file.sessions} sessions of a file (sha256 {s.file.sha256}),"
        text = of_file or f"turns {s.turns}, first {s.first}, then {s.added}/{shape.osl}, think {s.think:g}s{spread},"
    if shape.pairs is not None:
        recorded = "" if shape.pairs.times is None else f" of a trace {shape.pairs.times}"
        text = f"{shape.pairs.count} pairs of lengths (sha256 {shape.pairs.sha256}){recorded}"
    text = f"{shape.name}: {text}" if shape.name else text
    if (arrivals := shape.arrivals) is not None:
        named = arrivals if arrivals.trace is None else f"{arrivals.trace.name} {arrivals.trace.digest}"
        text = f"{text} {named} arrivals"
    text = f"{text} prefix {shape.prefix * 100:.6g}%" if shape.prefix else text
    beside = shape.background
    return text if beside is None else f"{text} beside {beside.streams} of {described(beside.shape)}"


def file_of(shape: Shape) -> str | None:
    """The file that holds its sessions or its requests."""
    if shape.pairs is not None:
        return shape.pairs.path
    return None if shape.session is None or shape.session.file is None else shape.session.file.path
