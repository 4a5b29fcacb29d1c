"""A server that a sweep starts: its command, the wait until it is ready, and its end.

It runs under a supervisor, a process of its own that ends it whenever the sweep lets go of it or is
gone.
"""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from frontier.client.secrets import Secrets
from frontier.config import DeploymentConfig
from frontier.core.errors import AnotherServerError, MeasurementError, StoreError
from frontier.core.units import format_elapsed
from frontier.store.files import Folder
from frontier.sweep.servers import LAST_LINES, sleep_or_stop
from frontier.sweep.shell_line import run_line

_LAST_LINES = 8
_FREE_WITHIN = 10.0
_READY_CHECK = 30.0
_OWN_HOSTS = ("localhost", "127.0.0.1", "::1", "0.0.0.0")  # noqa: S104  # compared with, not listened on


class StartedServer:
    """One start of one deployment's server. `log` gets its output, without `secrets`; `stop` is set
    when the user ends the sweep.
    """

    def __init__(
        self,
        deployment: DeploymentConfig,
        log: Path,
        stop: asyncio.Event,
        clock: Callable[[], float],
        note: Callable[[str], None],
        secrets: Secrets,
    ) -> None:
        assert deployment.start is not None
        self._secrets = secrets
        self.deployment, self.log = deployment, log
        self._stop, self._clock, self._note = stop, clock, note
        self._supervisor: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self.status: int | None = None
        """What the command ended with; None while it runs."""

    async def start(self, prepare: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start it and wait until its ready command succeeds and `prepare` does; at once over when
        the user stops.

        MeasurementError, with the last lines of the log, when it ends or is not ready within its
        time.
        """
        name, ready = self.deployment.name, self.deployment.ready
        await self._free()
        self._note(f"starting {name}; its output is in {self.log}")
        await self._spawn()
        began, pause, last = self._clock(), 0.5, "it does not answer"
        while not self._stop.is_set():
            if self.status:
                raise self._failed(f"{name} ended with status {self.status} after {self._since(began)}")
            try:
                if self._listens() is False:
                    last = "nothing listens at its address"
                elif ready.command is None or await self._succeeds(ready.command):
                    await prepare()
                    if self._stop.is_set():
                        return
                    self._note(f"{name} is ready after {self._since(began)}")
                    return
                else:
                    last = "its ready command has not succeeded"
            except AnotherServerError:
                raise
            except MeasurementError as error:
                last = error.what
            left = ready.within - (self._clock() - began)
            if left <= 0:
                raise self._failed(f"{name} was not ready within {format_elapsed(ready.within)}: {last}")
            await sleep_or_stop(min(pause, left), self._stop)
            pause = min(1.5 * pause, 5.0)

    def _since(self, began: float) -> str:
        return format_elapsed(self._clock() - began)

    def _failed(self, what: str) -> MeasurementError:
        lines = last_lines(self.log)
        tail = f"{LAST_LINES}\n  " + "\n  ".join(lines) if lines else "; it said nothing"
        return MeasurementError(what + tail, f"the whole log is {self.log}")

    async def _free(self) -> None:
        """Nothing may answer at the address yet: it would be taken for the server that is about to
        be started.
        """
        deadline = self._clock() + _FREE_WITHIN
        while self._listens():
            if self._clock() > deadline or self._stop.is_set():
                raise MeasurementError(
                    f"something answers at {self.deployment.endpoint} before {self.deployment.name} is started",
                    "end it, or remove  start:  to measure it as it is",
                )
            await sleep_or_stop(0.2, self._stop)

    def _listens(self) -> bool | None:
        """Whether something listens at its address; None for another machine's, where only trying
        shows it.
        """
        parts = urlsplit(self.deployment.base_url)
        if parts.hostname not in _OWN_HOSTS:
            return None
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            with socket.create_connection((parts.hostname, port), 1.0):
                return True
        except OSError:
            return False

    async def _spawn(self) -> None:
        job = {
            "command": self.deployment.start,
            "log": str(self.log.absolute()),
            "stop": self.deployment.stop.command,
            "within": self.deployment.stop.within,
            # Through a pipe, and on no command line.
            "secrets": sorted(self._secrets.values),
            "whole": sorted(self._secrets.whole),
        }
        logs = Folder(self.log.parent)
        logs.make()
        logs.appender(self.log.name).close()  # an unwritable log fails here: the supervisor could not report it
        # A session of its own: Ctrl-C in the terminal must reach the sweep alone.
        self._supervisor = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "frontier.extras.launcher.supervisor",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.write(json.dumps(job).encode() + b"\n")
        await self._supervisor.stdin.drain()
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        """Hear how the command ended. A supervisor that is gone without a word took its command
        with it, or lost it.
        """
        assert self._supervisor is not None
        assert self._supervisor.stdout is not None
        status = await self._supervisor.stdout.readline()
        self.status = int(status) if status else await self._supervisor.wait() or -1

    @property
    def alive(self) -> bool:
        """It may still be there: it has not ended, or has ended well and left a server behind, as
        `docker run -d` does.
        """
        return not self.status

    async def end(self) -> None:
        """Stop it: bounded, and whatever happens nothing of it is left."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        assert supervisor.stdin is not None
        supervisor.stdin.close()
        longest = 2 * self.deployment.stop.within + 15.0
        try:
            await asyncio.wait_for(supervisor.wait(), longest)
        except TimeoutError:
            self._note(f"{self.deployment.name} did not stop within {format_elapsed(longest)}")
            supervisor.kill()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def _succeeds(self, command: str) -> bool:
        """A ready command ends with 0, in good time."""
        stopped = self._stop.is_set
        done = await asyncio.to_thread(run_line, command, b"", os.environ, _READY_CHECK, most=1, stopped=stopped)
        return done.returncode == 0


def last_lines(log: Path) -> list[str]:
    """The end of a log, for a message: it is cleaned already, and cut here."""
    try:
        with Folder(log.parent).reader(log.name) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4_000))
            lines = file.read(4_000).decode(errors="replace").splitlines()
    except (OSError, StoreError):
        return []
    return [line[:200] for line in lines if line.strip()][-_LAST_LINES:]
