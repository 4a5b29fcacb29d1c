"""Shapes: how many tokens go in and out of a request, of a session, of the classes of a mix."""

import math
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from frontier.core.model.length_pairs import LengthPairs, RequestLengths
from frontier.core.model.loads import Arrivals, Load, Rate, SessionRate, as_load
from frontier.core.model.metrics import TURN_CLASSES
from frontier.core.model.session_table import SessionFile
from frontier.core.model.text import clean_name, short_hash

MAX_TOKENS = 4_194_304
"""The largest number of input or output tokens that a config or a file may ask for."""

_SAFE_NAME = re.compile(r"[A-Za-z0-9._~-]{1,80}")


def file_label(name: str) -> str:
    """A name as part of a file name: unchanged when it is short and safe, else its safe part and a
    hash.

    Without the hash two names could get one file: 'a/b' and 'a_b', or two that are equal up to
    where they are cut.
    """
    if _SAFE_NAME.fullmatch(name) and name.strip("."):
        return name
    return f"{re.sub(r'[^A-Za-z0-9._~-]+', '_', name)[:40].lstrip('.')}-{short_hash(name)}"


class ShapeError(ValueError):
    """A text is not a shape: `what` is wrong with it, and a `hint` how to write it."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what}; {hint}")
        self.what = what
        self.hint = hint


_SHAPE_HINT = "write input/output tokens, as 1024/256"
_LENGTHS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})|~([0-9]{1,9}(?:\.[0-9]{1,9})?))?")
_THOUSANDS = re.compile(r"([0-9]{1,5})[kK]\s*/?\s*([0-9]{1,5})[kK]")


@dataclass(frozen=True, slots=True)
class Lengths:
    """The distribution of tokens per request on one side: fixed, uniform in low..high, or normal
    cut at low..high.
    """

    kind: Literal["fixed", "uniform", "normal"]
    mean: float
    low: int
    high: int
    sd: float = 0.0

    @classmethod
    def fixed(cls, tokens: int) -> "Lengths":
        return cls("fixed", tokens, tokens, tokens)

    @classmethod
    def uniform(cls, low: int, high: int) -> "Lengths":
        return cls("uniform", (low + high) / 2, low, high)

    @classmethod
    def normal(cls, mean: float, sd: float) -> "Lengths":
        """Cut at three standard deviations and at one token."""
        return cls("normal", mean, max(1, round(mean - 3 * sd)), max(1, round(mean + 3 * sd)), sd)

    @classmethod
    def observed(cls, values: Sequence[int]) -> "Lengths":
        """Lengths with the mean, the ends and the spread of some that were observed.

        >>> str(Lengths.observed([100, 300])), Lengths.observed([7, 7])
        ('200~100', Lengths(kind='fixed', mean=7, low=7, high=7, sd=0.0))
        """
        low, high, mean = min(values), max(values), sum(values) / len(values)
        if low == high:
            return cls.fixed(low)
        return cls("normal", mean, low, high, math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)))

    @classmethod
    def parse(cls, text: str) -> "Lengths":
        """The lengths that `str` writes: '256', '128-512' (uniform), '1024~256' (normal).
        ShapeError for other text.

        >>> Lengths.parse("128-512"), str(Lengths.parse("1024~256"))
        (Lengths(kind='uniform', mean=320.0, low=128, high=512, sd=0.0), '1024~256')
        """
        match = _LENGTHS.fullmatch(text.strip())
        if match is None:
            raise ShapeError(f"{clean_name(text)!r} is not a number of tokens", "write 256, 128-512 or 1024~256")
        first, high, sd = int(match[1]), int(match[2] or match[1]), float(match[3] or 0.0)
        if not 1 <= min(first, high) or not max(first, high, sd) <= MAX_TOKENS:
            raise ShapeError(f"{clean_name(text)!r} is out of range", f"lengths are from 1 to {MAX_TOKENS:,} tokens")
        if high < first:
            raise ShapeError(f"{clean_name(text)!r} runs backwards", f"write {high}-{first}")
        if sd > 0:
            return cls.normal(first, sd)
        return cls.uniform(first, high) if high > first else cls.fixed(first)

    def draw(self, rng: random.Random) -> int:
        """One random length."""
        if self.kind == "fixed":
            return self.low
        if self.kind == "uniform":
            return rng.randint(self.low, self.high)
        return min(self.high, max(self.low, round(rng.gauss(self.mean, self.sd))))

    def __str__(self) -> str:
        if self.kind == "fixed":
            return str(self.low)
        if self.kind == "uniform":
            return f"{self.low}-{self.high}"
        return f"{self.mean:g}~{self.sd:g}"

    @property
    def variance(self) -> float:
        """The variance of `draw`; for a normal law, the variance before it is cut."""
        return ((self.high - self.low + 1) ** 2 - 1) / 12 if self.kind == "uniform" else self.sd**2


FIRST, LATER = TURN_CLASSES
"""The classes of the requests of a session: its first turn, and those after it."""


@dataclass(frozen=True, slots=True)
class Session:
    """What makes a shape a session.

    - `turns`: the number of its turns
    - `first`: the prompt tokens of the first turn
    - `added`: the prompt tokens that each later turn adds to the history
    - `think`: the mean seconds of thinking before each later turn, exponential, or uniform within
      `spread` around the mean; it varies, as equal sessions would run in step
    - `file`: its sessions are sent as they are; the other fields are then figures of these sessions
    """

    turns: Lengths
    first: Lengths
    added: Lengths
    think: float = 0.0
    spread: float | None = None
    file: SessionFile | None = None

    def pause(self, rng: random.Random) -> float:
        """One random think time."""
        if self.spread is not None:
            return rng.uniform(self.think - self.spread, self.think + self.spread)
        return rng.expovariate(1 / self.think) if self.think else 0.0

    def prompts(self, osl: Lengths) -> Lengths:
        """The prompt tokens over all requests of such sessions: from the shortest to the longest,
        and their mean.
        """
        growth = self.added.mean + osl.mean
        # A session of T turns has T (T - 1) / 2 steps of growth in its T prompts; requests come by
        # T.
        earlier = (self.turns.mean**2 + self.turns.variance - self.turns.mean) / (2 * self.turns.mean)
        high = self.first.high + (self.turns.high - 1) * (self.added.high + osl.high)
        low = self.first.low
        return Lengths("uniform" if high > low else "fixed", self.first.mean + earlier * growth, low, high)


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """A class of a mix: its name, its share of the sessions that are started, and the shape of
    these.
    """

    name: str
    share: float
    shape: "Shape"


@dataclass(frozen=True, slots=True)
class Background:
    """The load beside a shape: so many `streams` of requests of another shape."""

    shape: "Shape"
    streams: int


@dataclass(frozen=True, slots=True)
class Shape:
    """A workload: input and output lengths.

    `prefix` is the share of the prompt that all requests have in common.

    With a `session` it is a conversation of several requests, its turns; each prompt has all that
    was said before. `isl` is then the length of the prompts over all turns, and `prefix` a share of
    the first turn's prompt.

    With a `mix` each session that is started is of one of these classes, drawn by their shares. A
    class whose shape has no turns has sessions of one request. `isl` and `osl` are then those of
    all requests together.

    With `pairs` the two lengths of a request are drawn together. `isl` and `osl` are then the
    lengths over all pairs, and `prefix` is a share of each prompt, whatever its length.

    With `arrivals` requests come in open loop, and the loads are rates; for sessions, the rates at
    which sessions begin. Without `arrivals` the loads are requests in flight.
    With a `background` that load is held while the shape is measured.
    """

    isl: Lengths
    osl: Lengths
    name: str | None = None
    prefix: float = 0.0
    session: Session | None = None
    mix: tuple[TrafficClass, ...] = ()
    arrivals: Arrivals | None = None
    pairs: LengthPairs | None = None
    background: Background | None = None

    @classmethod
    def of_pairs(cls, pairs: LengthPairs, name: str, prefix: float = 0.0) -> "Shape":
        """The shape of requests whose two lengths are drawn together.

        >>> rows = [RequestLengths(100, 10), RequestLengths(300, 50)]
        >>> shape = Shape.of_pairs(LengthPairs.of(rows), "mine", prefix=0.5)
        >>> shape.isl.mean, shape.osl.mean, shape.shared_of(60)
        (200.0, 30.0, 30)
        """
        assert pairs.table is not None
        isl, osl, shared, _ = zip(*pairs.table.rows, strict=True)
        prefix = prefix or sum(tokens or 0 for tokens in shared) / sum(isl)
        return cls(Lengths.observed(isl), Lengths.observed(osl), name, prefix, pairs=pairs)

    @classmethod
    def of_mix(cls, mix: Iterable[TrafficClass]) -> "Shape":
        """The shape of a mix, named by its classes.

        >>> chat, rag = Shape.of(512, 256), Shape.of(8192, 128)
        >>> mix = Shape.of_mix([TrafficClass("chat", 0.75, chat), TrafficClass("rag", 0.25, rag)])
        >>> mix.label, str(mix.isl), mix.isl.mean, mix.classes
        ('chat75%+rag25%', '512-8192', 2432.0, ('chat', 'rag'))
        """
        mix = tuple(mix)
        requests = [(each.share * each.shape.requests, each.shape) for each in mix]
        name = "+".join(f"{each.name}{each.share * 100:.4g}%" for each in mix)
        isl = _together([(share, shape.isl) for share, shape in requests])
        return cls(isl, _together([(share, shape.osl) for share, shape in requests]), name, mix=mix)

    @classmethod
    def of_session(cls, session: Session, osl: Lengths, name: str, prefix: float = 0.0) -> "Shape":
        """The shape of a session whose turns are answered with `osl` tokens.

        >>> s = Session(Lengths.fixed(8), Lengths.fixed(8192), Lengths.fixed(400), think=10.0)
        >>> shape = Shape.of_session(s, Lengths.fixed(300), "agent", prefix=0.25)
        >>> str(shape.isl), shape.isl.mean, shape.shared, shape.pause
        ('8192-13092', 10642.0, 2048, 8.75)
        """
        return cls(session.prompts(osl), osl, name, prefix, session)

    @classmethod
    def of(cls, isl: int, osl: int) -> "Shape":
        return cls(Lengths.fixed(isl), Lengths.fixed(osl))

    @classmethod
    def parse(cls, text: str) -> "Shape":
        """The shape of a text such as '1024/256', '256-4096/128-512' or '1024~256/512'. ShapeError
        for other text.

        '1k/1k' is refused, as k may mean 1,000 or 1,024.

        >>> Shape.parse(" 1024 / 256 ").label
        '1024/256'
        """
        if thousands := _THOUSANDS.fullmatch(text.strip()):
            isl, osl = int(thousands[1]), int(thousands[2])
            ways = f"write {isl * 1024}/{osl * 1024} or {isl * 1000}/{osl * 1000}"
            raise ShapeError(f"{clean_name(text)!r}: k may mean 1,000 or 1,024", ways)
        sides = [side.strip() for side in text.split("/")]
        if len(sides) != 2 or not all(_LENGTHS.fullmatch(side) for side in sides):
            raise ShapeError(f"{clean_name(text)!r} is not a shape", _SHAPE_HINT)
        return cls(Lengths.parse(sides[0]), Lengths.parse(sides[1]))

    def load(self, number: int) -> Load:
        """The load as it is; a plain number, stored or worked out, is one of this shape."""
        if self.arrivals is None:
            return as_load(number)
        return as_load(number, SessionRate if self.has_sessions else Rate)

    def session_seconds(self, e2e: float) -> float:
        """How long nearly all sessions last, with requests of `e2e` seconds: mean thinking and two
        standard deviations. So long after the first arrival all turns are there in their number. 0
        without turns.
        """
        if self.mix:
            return max(c.shape.session_seconds(e2e) for c in self.mix)
        if self.session is None:
            return 0.0
        if (file := self.session.file) is not None:
            return file.long_turns * e2e + file.long_pauses
        pauses = self.session.turns.high - 1
        spread = self.session.think if self.session.spread is None else self.session.spread / math.sqrt(3)
        return (pauses + 1) * e2e + pauses * self.session.think + 2 * math.sqrt(pauses) * spread

    def request(self, number: int, seed: int, rng: random.Random) -> RequestLengths:
        """The lengths of the request of this number in the trial of this seed, of a shape without
        turns; `rng` draws them where they are not listed.
        """
        if self.pairs is None:
            return RequestLengths(self.isl.draw(rng), self.osl.draw(rng))
        trace = None if self.arrivals is None else self.arrivals.trace
        in_step = trace is not None and trace.digest == self.pairs.times
        return self.pairs.row(number, seed, trace.start(seed)[1] if trace is not None and in_step else None)

    def shared_of(self, prompt: int) -> int:
        """Tokens of a first prompt of this length that all sessions (or requests) have in
        common.
        """
        return self.shared if self.pairs is None else int(self.prefix * prompt)

    @property
    def shared(self) -> int:
        """Prompt tokens that all sessions (or requests) have in common."""
        return round(self.prefix * (self.isl if self.session is None else self.session.first).mean)

    @property
    def cached(self) -> float:
        """The share of all prompt tokens that a prefix cache can hold: the common prefix, and in a
        session what was said before.
        """
        if self.mix:
            return sum(share * c.shape.cached * c.shape.isl.mean for share, c in self.by_class()) / self.isl.mean
        if self.session is None:
            return self.prefix
        s = self.session
        fresh = (s.first.mean - self.shared + (s.turns.mean - 1) * s.added.mean) / s.turns.mean
        return 1 - fresh / self.isl.mean

    @property
    def pause(self) -> float:
        """Mean seconds of thinking per request; 0 without sessions."""
        if self.mix:
            return sum(share * c.shape.pause for share, c in self.by_class())
        return 0.0 if self.session is None else self.session.think * (1 - 1 / self.session.turns.mean)

    @property
    def requests(self) -> float:
        """Mean number of requests of a session; 1 without turns."""
        if self.mix:
            return sum(c.share * c.shape.requests for c in self.mix)
        return 1.0 if self.session is None else self.session.turns.mean

    @property
    def most_turns(self) -> int:
        """The most requests that a session may have."""
        if self.mix:
            return max(c.shape.most_turns for c in self.mix)
        return 1 if self.session is None else self.session.turns.high

    @property
    def has_sessions(self) -> bool:
        """Whether requests follow from answers: then the concurrency counts sessions, and users may
        think meanwhile.
        """
        return self.session is not None or any(c.shape.has_sessions for c in self.mix)

    @property
    def kind(self) -> Literal["shape", "session", "mix", "shape beside a background"]:
        """What messages call it."""
        if self.mix or self.background is not None:
            return "mix" if self.mix else "shape beside a background"
        return "shape" if self.session is None else "session"

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of its requests that have metrics of their own; empty for other shapes. A
        session has its first and its later turns. A mix has its classes, each followed by its own:
        chat, agent, agent.first, agent.later.
        """
        if self.mix:
            return tuple(name for c in self.mix for name in (c.name, *(f"{c.name}.{of}" for of in c.shape.classes)))
        return () if self.session is None else (FIRST, LATER)

    def finest(self, name: str | None) -> tuple[str, ...]:
        """The classes within a class that have no classes of their own. None stands for all
        requests.

        >>> Shape.of(512, 256).finest(None), Shape.of(512, 256).finest("chat")
        ((), ())
        """
        inside = [c for c in self.classes if name is None or c == name or c.startswith(f"{name}.")]
        return tuple(c for c in inside if not any(other.startswith(f"{c}.") for other in inside))

    def in_class(self, name: str, class_index: Any, turn: Any) -> Any:
        """Whether requests are of a class, by the place of theirs in the mix and by their turn:
        numbers or arrays.
        """
        if self.mix:
            head, _, inner = name.partition(".")
            index = [c.name for c in self.mix].index(head)
            mine = class_index == index
            return mine & self.mix[index].shape.in_class(inner, class_index, turn) if inner else mine
        return turn == 0 if name == FIRST else turn > 0

    def class_share(self, name: str | None) -> float:
        """The share of its requests that are of a class; 1 for None, which is all of them, and for
        a class of others.

        >>> session = Session(Lengths.fixed(9), *[Lengths.fixed(64)] * 2)
        >>> long = Shape.of_session(session, Lengths.fixed(64), "long")
        >>> chat = TrafficClass("chat", 0.9, Shape.of(64, 64))
        >>> mix = Shape.of_mix([chat, TrafficClass("agent", 0.1, long)])
        >>> [round(mix.class_share(name), 3) for name in ("chat", "agent", "agent.first")]
        [0.5, 0.5, 0.056]
        """
        if name not in self.classes or name is None:
            return 1.0
        if self.mix:
            head, _, rest = name.partition(".")
            share, c = next((share, c) for share, c in self.by_class() if c.name == head)
            return share * c.shape.class_share(rest or None)
        first = 1 / self.requests
        return first if name == FIRST else 1 - first

    def by_class(self) -> list[tuple[float, TrafficClass]]:
        """The classes of a mix, each with its share of the requests."""
        return [(c.share * c.shape.requests / self.requests, c) for c in self.mix]

    @property
    def label(self) -> str:
        """The name in tables and plots: its own, or '1024/256'."""
        return self.name or f"{self.isl}/{self.osl}"

    @property
    def file_label(self) -> str:
        """The label as part of a file name: '1024x256'."""
        if self.name is not None:
            return file_label(self.name)
        return f"{self.isl}x{self.osl}".replace("+", "_")


def _together(parts: Sequence[tuple[float, Lengths]]) -> Lengths:
    """The lengths of requests of several kinds, each with its weight: from the shortest to the
    longest, their mean.
    """
    low, high = min(side.low for _, side in parts), max(side.high for _, side in parts)
    mean = sum(weight * side.mean for weight, side in parts) / sum(weight for weight, _ in parts)
    return Lengths("uniform" if high > low else "fixed", mean, low, high)


DEFAULT_DEPLOYMENT = "default"
"""The name of the deployment of a config that names none."""
