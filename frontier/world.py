"""What a command takes from outside of itself: two clocks, an event loop, and the backend that runs
its trials.

`world()` is the machine, real time and servers over HTTP. Studies and tests put another in its
place by `inside`: a whole command line then runs in virtual time, against a server whose truth is
known.
"""

import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class World:
    """`wall` is unix time and `clock` counts seconds. `backend` makes what runs the trials of a
    config, from the config, the environment and a salt; None: servers over HTTP. `run` runs a
    coroutine to its end; None: on the fastest event loop at hand.
    """

    wall: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    backend: Callable[..., Any] | None = None
    run: Callable[[Coroutine[Any, Any, Any]], Any] | None = None


_MACHINE = World()
_current: ContextVar[World] = ContextVar("world", default=_MACHINE)


def world() -> World:
    """The world of this command."""
    return _current.get()


@contextlib.contextmanager
def inside(other: World) -> Iterator[None]:
    """Run the commands of this block in another world."""
    token = _current.set(other)
    try:
        yield
    finally:
        _current.reset(token)
