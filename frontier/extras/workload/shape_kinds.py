"""Kinds of shapes in a config: pairs of lengths, sessions of a file, and requests of a trace."""

import re
from dataclasses import replace
from typing import Annotated

from pydantic import PlainValidator

from frontier.config.shape_keys import MAX_TURNS, SESSIONS, CommonKeys, ReadSessions
from frontier.core.model.errors import UsageError
from frontier.core.model.length_pairs import LengthPairs, RequestLengths
from frontier.core.model.shapes import MAX_TOKENS, Shape
from frontier.fields import Name, Problem, Text, shown, text_of, whole

MOST_WRITTEN = 10_000
"""Most pairs of a shape: a config should fit a page."""
_PAIR = re.compile(r"([0-9]{1,9})/([0-9]{1,9})(?:/([0-9]{1,9}))?")
_PAIRS = "write input/output tokens of requests with spaces between them, as 812/133 90/12"


def _pairs(value: object) -> LengthPairs:
    """Pairs of lengths with spaces between them: '812/133 90/12'."""
    rows = [_pair(word) for word in text_of(value, "pairs of lengths", _PAIRS).split()]
    if not 1 <= len(rows) <= MOST_WRITTEN:
        raise Problem(f"{{key}} are 1 to {MOST_WRITTEN:,} pairs of lengths; these are {len(rows):,}", _PAIRS)
    return LengthPairs.of(rows)


def _pair(word: str) -> RequestLengths:
    """The two lengths of '812/133'; of '812/133/400' also the prompt tokens that all
    prompts share.
    """
    match = _PAIR.fullmatch(word)
    if match is None:
        raise Problem(f"{{key}}: {shown(word)} is no pair of lengths", _PAIRS)
    isl, osl = (whole(int(match[side]), 1, MAX_TOKENS) for side in (1, 2))
    if match[3] is not None and int(match[3]) >= isl:
        raise Problem(f"{{key}}: {shown(word)} leaves nothing of the prompt", "more than the common tokens are asked")
    return RequestLengths(isl, osl, None if match[3] is None else int(match[3]))


class PairsOfLengths(CommonKeys):
    """Requests whose two lengths are drawn together: {name: chat, pairs: 812/133 90/12}."""

    name: Name
    pairs: Annotated[LengthPairs, PlainValidator(_pairs)]

    def shape(self, _read: ReadSessions | None) -> Shape:
        """The shape; the common part is a share of each prompt."""
        shape = Shape.of_pairs(self.pairs, self.name)
        if shape.prefix and (self.prefix or self.system):
            raise Problem("pairs say what is common to all", "leave prefix and system out", "pairs")
        return replace(shape, prefix=shape.prefix or self.share_of(shape.isl))


def _of_file(read_sessions: ReadSessions | None, key: str, path: str, unit: str) -> Shape:
    """The shape of the file that a key names; `unit` is what it holds."""
    try:
        assert read_sessions is not None, "who validates a config says what reads its files"
        # A reader given to load_config for sessions alone takes the path alone.
        shape = read_sessions(path) if key == SESSIONS else read_sessions(path, key)
    except UsageError as error:
        raise Problem(error.what, error.hint, key) from None
    if shape.isl.high > MAX_TOKENS:
        what = f"{path}: a prompt has {shape.isl.high:,} tokens"
        raise Problem(what, f"the most is {MAX_TOKENS:,}: leave that {unit} out", key)
    return shape


class SessionsOfFile(CommonKeys):
    """Sessions of a file: {name: agent, sessions: traces/agent.jsonl, system: 2048}."""

    name: Name
    sessions: Text

    def shape(self, read_sessions: ReadSessions | None) -> Shape:
        """The shape."""
        shape = _of_file(read_sessions, "sessions", self.sessions, "session")
        assert shape.session is not None
        if shape.session.turns.high > MAX_TURNS:
            what = f"{self.sessions}: a session has {shape.session.turns.high:,} turns"
            raise Problem(what, f"the most is {MAX_TURNS:,}: divide it", "sessions")
        return replace(shape, name=self.name, prefix=self.share_of(shape.session.first))


class RequestsOfTrace(CommonKeys):
    """Requests as a trace recorded them: {name: recorded, trace: conversation.jsonl}."""

    name: Name
    trace: Text

    def shape(self, read_sessions: ReadSessions | None) -> Shape:
        """The shape. Its prefix is what the blocks of its prompts share, where the trace names
        blocks.
        """
        shape = _of_file(read_sessions, "trace", self.trace, "request")
        assert shape.pairs is not None
        if shape.pairs.block and (self.prefix or self.system):
            what = f"{self.trace} says which blocks its prompts share"
            raise Problem(what, "leave prefix and system out", "trace")
        return replace(shape, name=self.name, prefix=shape.prefix or self.share_of(shape.isl))
