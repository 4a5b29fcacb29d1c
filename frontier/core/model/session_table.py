"""Turns of sessions, and session files with the figures of their sessions."""

from dataclasses import dataclass, field
from typing import NamedTuple

from frontier.core.model.length_pairs import LengthTable


class SessionTurn(NamedTuple):
    """One turn: the prompt tokens it adds to the history, its output tokens, and the seconds of
    thinking before it.
    """

    new: int
    out: int
    pause: float


@dataclass(frozen=True, slots=True)
class SessionFile:
    """What a file of sessions holds. `tool` is whose format it has, `sha256` 16 hex digits of its
    content; two are equal when their content is, wherever they lie.

    `sessions` with `requests` in all. `cut` of them begin where the history of another became
    shorter, `begun` with a history that the file does not hold; `left_out` rows have no tokens.
    Nearly all sessions (97.7%) have at most `long_turns` turns and `long_pauses` seconds of
    pauses.

    `table` holds the sessions; None where a run is read back, in which nothing is sent.
    """

    path: str = field(compare=False)
    tool: str
    sha256: str
    sessions: int
    requests: int
    long_turns: int
    long_pauses: float
    cut: int = 0
    begun: int = 0
    left_out: int = 0
    table: LengthTable[tuple[SessionTurn, ...]] | None = field(default=None, compare=False, repr=False)
