"""Session files: the sessions of a public trace, or of a plain list, by their lengths and pauses.

Four formats are told apart by the keys of their first row. All hold lengths; texts are not read.

- Ours: `{"turns": [{"new": 8192, "out": 300}, {"new": 400, "out": 300, "pause": 12.5}]}`, pauses in
  seconds.
- AIPerf: `session_id, input_length, output_length, delay`, in milliseconds. `input_length` is what
  the turn adds, as AIPerf itself sends it, unless the rows say `context_mode:
  message_array_with_responses`: then the whole prompt.
- Bailian (Qwen): `chat_id, parent_chat_id, turn, timestamp`, in seconds; `input_length` is the
  whole prompt.
- Mooncake: `timestamp, input_length, output_length, hash_ids`, in milliseconds; `input_length` is
  the whole prompt. No row names a session: one follows another whose full blocks of 512 tokens it
  begins with.

Where a row has the whole prompt, what a turn adds is that less all that was said before. Where only
arrivals are known the pause is the time between two of them: too long by the time of the answer,
which no trace holds.
"""

import functools
import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from frontier.core.length_pairs import Table
from frontier.core.session_table import SessionFile, SessionTurn
from frontier.core.shapes import Lengths, Session, Shape
from frontier.extras.workload.arrival_files import given_rows
from frontier.fields import Problem, duration
from frontier.store.documents import INCOMPLETE, ForeignFileError, Node

BLOCK = 512
"""Tokens of a block that a hash of a Mooncake trace stands for."""
NEARLY_ALL = 0.977
"""The share of sessions that are over within SessionFile.long_turns and long_pauses."""
_EXAMPLE = 'write a line per session: {"turns": [{"new": 8192, "out": 300}, {"new": 400, "out": 300, "pause": 12.5}]}'
_WHOLE = "message_array_with_responses"


@dataclass(slots=True)
class _Found:
    """The sessions of a file, with what was not as it should be."""

    sessions: list[list[SessionTurn]]
    cut: int = 0
    begun: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class _Row:
    """A request of a trace: its whole prompt, its answer, when it arrived, in seconds, and the
    seconds before it.
    """

    prompt: int
    out: int
    at: float | None = None
    pause: float | None = None


def read_sessions(path: str) -> Shape:
    """The shape, without a name, of the sessions of a file. UsageError when there are none, naming
    what is wrong.
    """
    return _read(path, state_of(path))


def state_of(path: str) -> tuple[int, int] | None:
    """The time and the size of a file, by which what was read of it is kept until it changes; None
    where there is none.
    """
    with suppress(OSError):
        about = Path(path).stat()
        return about.st_mtime_ns, about.st_size
    return None


@functools.lru_cache(maxsize=4)
def _read(path: str, _state: tuple[int, int] | None) -> Shape:
    """As read_sessions. Kept, as a config is read several times for a sweep."""
    digest, document = given_rows(path)
    rows = document.objects
    tool, reader = _format_of(path, rows[0])
    found = reader(rows)
    sessions = [turns for turns in found.sessions if turns]
    if not any(len(turns) > 1 for turns in sessions):
        raise ForeignFileError(path, "no session has a second turn", "write single requests as a shape, as 1024/256")
    pauses = [sum(turn.pause for turn in turns[1:]) for turns in sessions]
    file = SessionFile(
        path,
        tool,
        digest[:16],
        len(sessions),
        sum(map(len, sessions)),
        int(_high([len(turns) for turns in sessions])),
        _high(pauses),
        found.cut,
        found.begun,
        found.left_out,
        Table(map(tuple, sessions)),
    )
    return shape_of(file, "sessions")


def shape_of(file: SessionFile, name: str) -> Shape:
    """The shape of the sessions of a file, whose turns it holds."""
    assert file.table is not None
    sessions = file.table.rows
    later = [turn for turns in sessions for turn in turns[1:]]
    think = sum(turn.pause for turn in later) / max(1, len(later))
    first, added = [turns[0].new for turns in sessions], [turn.new for turn in later]
    osl = [turn.out for turns in sessions for turn in turns]
    isl = [prompt for turns in sessions for prompt in _prompts(turns)]
    turns = Lengths.observed([len(each) for each in sessions])
    session = Session(turns, Lengths.observed(first), Lengths.observed(added), think, file=file)
    return Shape(Lengths.observed(isl), Lengths.observed(osl), name, session=session)


def _prompts(turns: Sequence[SessionTurn]) -> list[int]:
    """The prompt tokens of each turn of a session, with all that was said before it."""
    said = [0, *itertools.accumulate(turn.new + turn.out for turn in turns)]
    return [before + turn.new for before, turn in zip(said, turns, strict=False)]


def _high(values: Iterable[float]) -> float:
    """The value that NEARLY_ALL do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(NEARLY_ALL * len(ordered)))]


def _format_of(path: str, row: Node) -> tuple[str, Callable[[Sequence[Node]], _Found]]:
    """Whose format it is by the keys of its first row, and what reads it."""
    keys = set(row.tree)
    if "turns" in keys:
        return "ours", _ours
    if {"chat_id", "parent_chat_id"} <= keys:
        return "Bailian", _bailian
    if "session_id" in keys:
        return "AIPerf", _aiperf
    if {"timestamp", "hash_ids"} <= keys:
        return "Mooncake", _mooncake
    what = f"{row.where or 'the file'} names no session: no turns, session_id, chat_id or hash_ids"
    raise ForeignFileError(path, what, _EXAMPLE)


def _tokens(row: Node, key: str, least: int = 0) -> int:
    """A number of tokens that has to be there."""
    value = row.count(key)
    if value is None or value < least:
        what = "is missing" if value is None else f"is {value}"
        raise row.error(f"{row.place(key)} {what}; lengths are read, in tokens, and not texts", _EXAMPLE)
    return value


def _timed(found: _Found, rows: Sequence[Node], unit: float) -> Iterator[tuple[Node, _Row]]:
    """The requests of a trace in the order of their times; those without lengths, which failed, are
    counted.
    """
    times = []
    for row in rows:
        if (time := row.number("timestamp")) is None:
            raise row.error(f"{row.place('timestamp')} is missing", INCOMPLETE)
        times.append(time * unit)
    for time, row in sorted(zip(times, rows, strict=True), key=operator.itemgetter(0)):
        if (lengths := _lengths(found, row)) is not None:
            yield row, _Row(*lengths, time)


def _lengths(found: _Found, row: Node) -> tuple[int, int] | None:
    """Input and output tokens of a row of a trace; None, and counted, where it has none as it
    failed.
    """
    lengths = _tokens(row, "input_length"), _tokens(row, "output_length")
    if min(lengths) >= 1:
        return lengths
    found.left_out += 1
    return None


# --- formats


def _ours(rows: Sequence[Node]) -> _Found:
    sessions = []
    for row in rows:
        turns = []
        for i, turn in enumerate(row.items("turns")):
            try:
                pause = duration(turn.tree.get("pause", 0), bare=True)
            except Problem:
                hint = "write seconds, or a time with its unit as 300ms"
                raise turn.error(f"{turn.place('pause')} is not a time", hint) from None
            turns.append(SessionTurn(_tokens(turn, "new", 1), _tokens(turn, "out", 1), pause if i else 0.0))
        if not turns:
            raise row.error(f"{row.place('turns')} is not a list of turns", _EXAMPLE)
        sessions.append(turns)
    return _Found(sessions)


def _aiperf(rows: Sequence[Node]) -> _Found:
    found = _Found([])
    by_session: dict[str, list[tuple[Node, _Row]]] = defaultdict(list)
    for row in rows:
        if (lengths := _lengths(found, row)) is None:
            continue
        at, delay = row.number("timestamp"), row.number("delay")
        session = row.text("session_id")
        if session is None:
            raise row.error(f"{row.place('session_id')} is missing", "give every row its session")
        times = (None if value is None else value / 1000 for value in (at, delay))
        by_session[session].append((row, _Row(*lengths, *times)))
    for listed in by_session.values():
        requests = [request for _, request in listed]
        if {row.tree.get("context_mode") for row, _ in listed} == {_WHOLE}:
            _grown(found, requests)
        else:
            pauses = [0.0, *map(_pause, requests, requests[1:])]
            turns = [SessionTurn(r.prompt, r.out, pause) for r, pause in zip(requests, pauses, strict=True)]
            found.sessions.append(turns)
    return found


def _bailian(rows: Sequence[Node]) -> _Found:
    found = _Found([])
    ends: dict[str, list[_Row]] = {}
    chains: list[list[_Row]] = []
    for row, request in _timed(found, rows, 1.0):
        chat, parent = row.text("chat_id"), row.text("parent_chat_id")
        if chat is None:
            raise row.error(f"{row.place('chat_id')} is missing", INCOMPLETE)
        chain = [] if parent is None else ends.pop(parent, [])
        if not chain:  # also where another request went on with the same parent
            found.begun += parent not in (None, "-1")
            chains.append(chain)
        chain.append(request)
        ends[chat] = chain
    for chain in chains:
        _grown(found, chain)
    return found


def _mooncake(rows: Sequence[Node]) -> _Found:
    """A hash stands for its block with all before it, so the hash of a request's last full block
    tells its prompt. One after which requests go on with different full blocks is a common
    beginning, and tells nothing.
    """
    found = _Found([])
    requests: list[tuple[_Row, list[float]]] = []
    following: dict[float, set[float]] = defaultdict(set)
    for row, request in _timed(found, rows, 0.001):
        full = row.numbers("hash_ids")[: request.prompt // BLOCK]
        for before, after in pairwise(full):
            following[before].add(after)
        requests.append((request, full))
    ends: dict[float, list[_Row]] = {}
    chains: list[list[_Row]] = []
    for request, full in requests:
        of_earlier = (block for block in reversed(full) if block in ends)
        block = next((b for b in of_earlier if request.prompt > ends[b][-1].prompt + ends[b][-1].out), None)
        chain = [] if block is None else ends.pop(block)
        if not chain:
            chains.append(chain)
        chain.append(request)
        if full and len(following[full[-1]]) < 2:
            ends[full[-1]] = chain
    for chain in chains:
        _grown(found, chain)
    return found


def _grown(found: _Found, requests: Sequence[_Row]) -> None:
    """Add a session of requests with their whole prompts. Where a prompt is not longer than all
    that was said before, its history was cut: the session ends there, and another begins.
    """
    turns: list[SessionTurn] = []
    for i, request in enumerate(requests):
        before = requests[i - 1] if i else None
        new = request.prompt - (before.prompt + before.out if before else 0)
        if before is None or new < 1:
            found.cut += before is not None
            turns = [SessionTurn(request.prompt, request.out, 0.0)]
            found.sessions.append(turns)
        else:
            turns.append(SessionTurn(new, request.out, _pause(before, request)))


def grown_sessions(requests: Sequence[tuple[int, int, float]]) -> list[list[SessionTurn]]:
    """The sessions in requests that follow each other, each with its whole prompt, its answer and
    the pause before it.
    """
    found = _Found([])
    _grown(found, [_Row(prompt, out, pause=pause) for prompt, out, pause in requests])
    return found.sessions


def _pause(before: _Row, request: _Row) -> float:
    """The seconds before a later turn: as stated, or between the two arrivals."""
    if request.pause is not None:
        return request.pause
    return 0.0 if request.at is None or before.at is None else max(0.0, request.at - before.at)
