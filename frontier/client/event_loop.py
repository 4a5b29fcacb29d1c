"""The event loop: a coroutine run to its end from plain code, on uvloop where there is one."""

import asyncio
import sys
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, run on a fresh event loop, the fastest at hand.

    Where a loop is running already, as in a notebook, it runs in a thread of its own.
    """
    if asyncio._get_running_loop() is not None:
        with ThreadPoolExecutor(1) as beside:
            return beside.submit(lambda: run(coroutine)).result()
    if sys.platform == "win32":
        return asyncio.run(coroutine)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)
