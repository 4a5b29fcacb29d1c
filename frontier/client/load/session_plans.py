"""Session plans: the turns of each session of a trial, drawn by its seed.

They are the same over HTTP and in virtual time. In a mix the seed also draws the class of each
session, and a shape without turns has sessions of one request. The sessions of a file come in an
order drawn by the seed.

The first session of each stream begins part of the way in, as if the load had been on for long. It
begins with a random turn, whose history is made up, after a pause that is uniform in 0..think. So
the turns mix from the start.
"""

import random
from dataclasses import dataclass

from frontier.core.model.session_table import SessionTurn
from frontier.core.model.shapes import Shape

EARLY = 20
"""The first requests of a trial at a rate, whose mean time says how long sessions last: later
requests may wait in a backlog."""


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """The turns of one session; the first that is sent is number `start`."""

    turns: tuple[SessionTurn, ...]
    start: int = 0

    def prompt(self, turn: int) -> int:
        """The prompt tokens of a turn, with all that was said before it."""
        return sum(t.new + t.out for t in self.turns[:turn]) + self.turns[turn].new


def class_of(shape: Shape, seed: int, number: int) -> int:
    """The class of the session of this number, as its place in the mix."""
    rng = random.Random(f"{seed}/class/{number}")
    return rng.choices(range(len(shape.mix)), [each.share for each in shape.mix])[0]


def plan_session(shape: Shape, seed: int, number: int, streams: int) -> SessionPlan:
    """The session of this number in the trial of this seed, for a shape without classes. Sessions
    with a number below `streams` begin part of the way in.
    """
    session = shape.session
    rng = random.Random(f"{seed}/session/{number}")
    if session is None:
        lengths = shape.request(number, seed, rng)
        return SessionPlan((SessionTurn(lengths.isl, lengths.osl, 0.0),))
    if session.file is not None:
        assert session.file.table is not None, "the sessions of a run that was read back are not sent"
        turns = list(session.file.table.drawn(seed, number))
    else:
        turns = [
            SessionTurn(
                session.added.draw(rng) if i else session.first.draw(rng),
                shape.osl.draw(rng),
                session.pause(rng) if i else 0.0,
            )
            for i in range(session.turns.draw(rng))
        ]
    if number >= streams:
        return SessionPlan(tuple(turns))
    start = rng.randrange(len(turns))
    turns[start] = turns[start]._replace(pause=session.think * rng.random())
    return SessionPlan(tuple(turns), start)


def left_out(planned: SessionTurn, asked_osl: int) -> int:
    """The output tokens that a shortened answer left out. The next prompt has them, and so is as
    long as planned.

    `asked_osl` is 0 where the length is not forced: then answers are as long as the server makes
    them.
    """
    return planned.out - asked_osl if asked_osl else 0
