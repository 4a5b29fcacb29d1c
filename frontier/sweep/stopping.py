"""Waits that the user's stop ends."""

import asyncio
import contextlib
import math
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def sleep_or_stop(seconds: float, stop: asyncio.Event) -> None:
    """Sleep, unless the user stops the sweep; until then where the seconds are infinite."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), None if math.isinf(seconds) else seconds)


async def unless_stopped(doing: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """Its result, or None as soon as the user stops the sweep: it is then cancelled."""
    task, stopped = asyncio.ensure_future(doing), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for future in (task, stopped):
            future.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)
