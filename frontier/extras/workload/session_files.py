"""Session files: the sessions of a public trace, or of a plain list, by their lengths and pauses.

The keys of the first row tell four formats apart. All hold lengths; texts are not read.

- Ours: `{"turns": [{"new": 8192, "out": 300}, {"new": 400, "out": 300, "pause": 12.5}]}`, pauses in
  seconds.
- AIPerf: `session_id, input_length, output_length, delay`, in milliseconds. `input_length` is what
  the turn adds, as AIPerf itself sends it, unless the rows say `context_mode:
  message_array_with_responses`: then the whole prompt.
- Bailian (Qwen): `chat_id, parent_chat_id, turn, timestamp`, in seconds; `input_length` is the
  whole prompt.
- Mooncake: `timestamp, input_length, output_length, hash_ids`, in milliseconds; `input_length` is
  the whole prompt. No row names a session: a request follows another when it begins with all full
  blocks of 512 tokens of that one.

Where a row has the whole prompt, a turn adds the prompt less the session's text so far. Where only
arrivals are known, the pause is the time between two of them. It is then too long by the time of
the answer, which no trace holds.
"""

import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from frontier.core.model.groups import by_key
from frontier.core.model.length_pairs import LengthTable
from frontier.core.model.session_table import SessionFile, SessionTurn
from frontier.core.model.shapes import Lengths, Session, Shape
from frontier.extras.workload.arrival_files import given_rows
from frontier.extras.workload.log_rows import BLOCK, LogRow
from frontier.fields import Problem, duration
from frontier.store.documents import INCOMPLETE, ForeignFileError, Node

NEARLY_ALL = 0.977
"""The share of sessions that end within SessionFile.long_turns and long_pauses."""
_EXAMPLE = 'write a line per session: {"turns": [{"new": 8192, "out": 300}, {"new": 400, "out": 300, "pause": 12.5}]}'
_WHOLE = "message_array_with_responses"

Chain = Sequence[LogRow]
"""Requests that follow each other, each with its whole prompt."""


def read_sessions(path: str) -> Shape:
    """The shape, without a name, of the sessions of a file. UsageError where it has none, naming
    what is wrong.
    """
    return _read(path, state_of(path))


def state_of(path: str) -> tuple[int, int] | None:
    """The time and the size of a file. What was read of it is kept until they change; None where
    the file is missing.
    """
    about = Path(path).stat() if Path(path).is_file() else None
    return about and (about.st_mtime_ns, about.st_size)


@functools.lru_cache(maxsize=4)
def _read(path: str, _state: tuple[int, int] | None) -> Shape:
    """As read_sessions, cached, since a sweep reads its config several times."""
    digest, document = given_rows(path)
    rows = document.objects
    tool = next((tool for tool, (keys, _) in _FORMATS.items() if keys.issubset(rows[0].tree)), None)
    if tool is None:
        what = f"{rows[0].where or 'the file'} names no session: no turns, session_id, chat_id or hash_ids"
        raise ForeignFileError(path, what, _EXAMPLE)
    chains = _FORMATS[tool][1](rows)
    sessions = [turns for chain in chains for turns in sessions_in(chain)]
    if not any(len(turns) > 1 for turns in sessions):
        raise ForeignFileError(path, "no session has a second turn", "write single requests as a shape, as 1024/256")
    requests = sum(map(len, sessions))
    file = SessionFile(
        path,
        tool,
        digest[:16],
        len(sessions),
        requests,
        int(_high([len(turns) for turns in sessions])),
        _high([sum(turn.pause for turn in turns[1:]) for turns in sessions]),
        cut=len(sessions) - len(chains),
        begun=sum(chain[0].session not in (None, "-1") for chain in chains),
        left_out=0 if tool == "ours" else len(rows) - requests,
        table=LengthTable(map(tuple, sessions)),
    )
    return shape_of(file, "sessions")


def shape_of(file: SessionFile, name: str) -> Shape:
    """The shape of a file's sessions, by their turns."""
    assert file.table is not None
    sessions = file.table.rows
    later = [turn for turns in sessions for turn in turns[1:]]
    think = sum(turn.pause for turn in later) / max(1, len(later))
    first, added = [turns[0].new for turns in sessions], [turn.new for turn in later]
    osl = [turn.out for turns in sessions for turn in turns]
    isl = [prompt for turns in sessions for prompt in _prompts([(turn.new, turn.out) for turn in turns])]
    turns = Lengths.observed([len(each) for each in sessions])
    session = Session(turns, Lengths.observed(first), Lengths.observed(added), think, file=file)
    return Shape(Lengths.observed(isl), Lengths.observed(osl), name, session=session)


def _prompts(turns: Iterable[tuple[int, int]]) -> list[int]:
    """The prompt tokens of each turn of a session, with the session's text so far, by what each
    turn adds and its answer.
    """
    return [said - out for said, (_, out) in zip(itertools.accumulate(map(sum, turns)), turns, strict=True)]


def _high(values: Iterable[float]) -> float:
    """The value that NEARLY_ALL do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(NEARLY_ALL * len(ordered)))]


def sessions_in(requests: Chain) -> list[list[SessionTurn]]:
    """The sessions in requests that follow each other. Where a prompt is not longer than the
    session's text so far, its history was cut: the session ends there, and another begins.
    """
    sessions: list[list[SessionTurn]] = []
    for before, request in zip((None, *requests), requests, strict=False):
        new = request.isl - (before.isl + before.osl if before else 0)
        if before is None or new < 1:
            sessions.append([SessionTurn(request.isl, request.osl, 0.0)])
        else:
            sessions[-1].append(SessionTurn(new, request.osl, _pause(before, request)))
    return sessions


def _pause(before: LogRow, request: LogRow) -> float:
    """The seconds before a later turn: as stated, or from the end of the answer before it. Where
    that end is not known they count from its arrival.
    """
    if request.pause is not None:
        return request.pause
    if request.time is None or before.time is None:
        return 0.0
    return max(0.0, request.time - before.time - (before.e2e or 0.0))


# --- formats: the requests of a file in their sessions


def _tokens(row: Node, key: str, least: int = 0) -> int:
    """A required number of tokens."""
    value = row.count(key)
    if value is None or value < least:
        what = "is missing" if value is None else f"is {value}"
        raise row.error(f"{row.place(key)} {what}; lengths are read, in tokens, and not texts", _EXAMPLE)
    return value


def _request(row: Node, unit: float) -> LogRow | None:
    """A request of a trace whose times are in units of `unit` seconds; None where it failed and has
    no lengths.
    """
    isl, osl = _tokens(row, "input_length"), _tokens(row, "output_length")
    at, delay = (None if (value := row.number(key)) is None else value * unit for key in ("timestamp", "delay"))
    return LogRow(at, isl, osl, pause=delay) if min(isl, osl) >= 1 else None


def _timed(rows: Sequence[Node], unit: float) -> list[tuple[Node, LogRow]]:
    """The requests of a trace in the order of their times."""
    for row in rows:
        if row.number("timestamp") is None:
            raise row.error(f"{row.place('timestamp')} is missing", INCOMPLETE)
    requests = [(row, request) for row in rows if (request := _request(row, unit)) is not None]
    return sorted(requests, key=lambda each: each[1].time or 0.0)


def _named(row: Node, key: str, hint: str) -> str:
    """A required name."""
    name = row.text(key)
    if name is None:
        raise row.error(f"{row.place(key)} is missing", hint)
    return name


def _with_history(turns: Chain) -> Chain:
    """Requests with their whole prompts, where the trace has only what each adds."""
    prompts = _prompts([(turn.isl, turn.osl) for turn in turns])
    return [turn._replace(isl=isl) for turn, isl in zip(turns, prompts, strict=True)]


def _chains(links: Iterable[tuple[LogRow, Iterable[Hashable], Hashable]], *, longer: bool = False) -> list[Chain]:
    """Requests joined to conversations.

    Each link is a request, the names of requests that it may follow, and its own name. It follows
    the newest request of the first name that is found. With `longer`, it does so only where its
    prompt has more tokens than that conversation so far.
    """
    ends: dict[Hashable, list[LogRow]] = {}
    chains: list[Chain] = []
    for request, earlier, own in links:
        open_ = ((name, ends[name][-1]) for name in earlier if name in ends)
        name = next((name for name, last in open_ if not longer or request.isl > last.isl + last.osl), None)
        chain = [] if name is None else ends.pop(name)
        if not chain:  # also where another request went on with the same one
            chains.append(chain)
        chain.append(request)
        if own is not None:
            ends[own] = chain
    return chains


def _ours(rows: Sequence[Node]) -> list[Chain]:
    chains = []
    for row in rows:
        turns = [_turn(turn) for turn in row.items("turns")]
        if not turns:
            raise row.error(f"{row.place('turns')} is not a list of turns", _EXAMPLE)
        chains.append(_with_history(turns))
    return chains


def _turn(turn: Node) -> LogRow:
    try:
        pause = duration(turn.tree.get("pause", 0), bare=True)
    except Problem:
        hint = "write seconds, or a time with its unit as 300ms"
        raise turn.error(f"{turn.place('pause')} is not a time", hint) from None
    return LogRow(None, _tokens(turn, "new", 1), _tokens(turn, "out", 1), pause=pause)


def _aiperf(rows: Sequence[Node]) -> list[Chain]:
    links = []
    for row in rows:
        if (request := _request(row, 0.001)) is not None:
            session = _named(row, "session_id", "give every row its session")
            links.append((request._replace(kind=row.text("context_mode")), [session], session))
    chains = _chains(links)
    return [chain if {row.kind for row in chain} == {_WHOLE} else _with_history(chain) for chain in chains]


def _bailian(rows: Sequence[Node]) -> list[Chain]:
    """Requests of Bailian's format. The session of a request names the request that it
    continues.
    """
    links = []
    for row, request in _timed(rows, 1.0):
        chat, parent = _named(row, "chat_id", INCOMPLETE), row.text("parent_chat_id")
        links.append((request._replace(session=parent), [parent], chat))
    return _chains(links)


def _mooncake(rows: Sequence[Node]) -> list[Chain]:
    """Requests of Mooncake's format. A hash stands for its block and all blocks before it, so the
    hash of a request's last full block identifies its prompt.

    Where requests continue a block with different full blocks, it is a common beginning and
    identifies nothing.
    """
    requests = [(request, row.numbers("hash_ids")[: request.isl // BLOCK]) for row, request in _timed(rows, 0.001)]
    following = by_key(pair for _, full in requests for pair in pairwise(full))
    own = (full[-1] if full and len(set(following.get(full[-1], ()))) < 2 else None for _, full in requests)
    return _chains(
        ((request, full[::-1], name) for (request, full), name in zip(requests, own, strict=True)), longer=True
    )


_FORMATS: Mapping[str, tuple[set[str], Callable[[Sequence[Node]], list[Chain]]]] = {
    "ours": ({"turns"}, _ours),
    "Bailian": ({"chat_id", "parent_chat_id"}, _bailian),
    "AIPerf": ({"session_id"}, _aiperf),
    "Mooncake": ({"timestamp", "hash_ids"}, _mooncake),
}
"""Formats by tool: the keys in the first row of its files, and the function that reads its rows."""
