"""Running a sweep: its conductor under signal handling, with progress on the terminal."""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from frontier import registry
from frontier.cli import common
from frontier.core.model.errors import ExitCode
from frontier.store.run_dir import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frontier.config import Config
    from frontier.planning.plan import Plan
    from frontier.sweep.conductor import SweepEnd


def measure(
    config: "Config",
    plan: "Plan",
    run: RunDirectory,
    given: "Mapping[str, Any]" = MappingProxyType({}),
    facts: "Mapping[str, Any]" = MappingProxyType({}),
    *,
    quiet: bool = False,
    announces: bool = True,
    **options: Any,
) -> "SweepEnd":
    """Run the conductor (with these options of it) under signal handling: the first Ctrl-C stops
    cleanly, the second leaves at once.

    The journal keeps `facts` of the session. With `quiet` nothing is printed meanwhile; without
    `announces`, what is proven is not announced.
    """
    from frontier.planning.sweep_progress import Progress
    from frontier.show.live import make_progress
    from frontier.sweep.backend import new_salt, open_backend, run_to_end
    from frontier.sweep.conductor import Conductor

    salt = new_salt()
    run.journal("session", salt=salt, **facts)

    async def go() -> "SweepEnd":
        stop = asyncio.Event()
        stop_on_signals(stop)
        shown = make_progress(sys.stderr, [limit.metric for limit in config.limits])
        shown.announces = announces
        progress: Progress = Progress() if quiet else shown
        async with AsyncExitStack() as stack:
            stack.callback(progress.close)
            if (option := registry.SWEEP_OPTION.find()) is not None:
                progress = await stack.enter_async_context(option.around(progress, given, config.limits))
            backend = open_backend(config, os.environ, salt)
            return await Conductor(config, plan, run, backend, progress, stop, **options).conduct()

    return run_to_end(go())


def stop_on_signals(stop: asyncio.Event) -> None:
    """Stop the sweep at the first signal; exit at once at a second one of the user's. A closed
    terminal may send two. An ignored SIGHUP, as under nohup, stays ignored.
    """
    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]

    def handle(number: int) -> None:
        if stop.is_set() and number != signal.SIGHUP:
            os._exit(ExitCode.INTERRUPTED)
        if not stop.is_set():
            stop.set()
            if number == signal.SIGHUP:
                _release(terminals)
            common.say("stopping: the trial in flight is dropped; press Ctrl-C again to leave at once")

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup; what shells put into the background
            loop.add_signal_handler(number, handle, number)


def _release(terminals: "Sequence[int]") -> None:
    """Point descriptors whose terminal is gone to /dev/null, so that writing to them does not
    fail.
    """
    for descriptor in terminals:
        try:
            os.write(descriptor, b"\n")
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
