"""Turns of sessions, and session files: what a file says of the sessions that it holds."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from frontier.core.length_pairs import order_of


class SessionTurn(NamedTuple):
    """One turn: the prompt tokens it adds to what was said, its output tokens, the seconds of
    thinking before it.
    """

    new: int
    out: int
    pause: float


class SessionTable:
    """The turns of each session of a file. Shared, never copied: it may hold a million of them."""

    __slots__ = ("sessions",)

    def __init__(self, sessions: Sequence[Sequence[SessionTurn]]) -> None:
        self.sessions = tuple(tuple(turns) for turns in sessions)

    def __deepcopy__(self, memo: Any) -> "SessionTable":
        return self

    def drawn(self, seed: int, number: int) -> tuple[SessionTurn, ...]:
        """The session of this number in the trial of this seed: each once in an order drawn by the
        seed, then again in another one.
        """
        passed, place = divmod(number, len(self.sessions))
        return self.sessions[order_of(seed, passed, len(self.sessions))[place]]


@dataclass(frozen=True, slots=True)
class SessionFile:
    """What a file of sessions holds. `tool` is whose format it has, `sha256` 16 hex digits of its
    content; two are equal when their content is, wherever they lie.

    `sessions` with `requests` in all. `cut` of them begin where the history of another became
    shorter, `begun` with a history that the file does not hold; `left_out` rows have no tokens.
    Nearly all sessions (97.7 %) have at most `long_turns` turns and `long_pauses` seconds of
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
    table: SessionTable | None = field(default=None, compare=False, repr=False)
