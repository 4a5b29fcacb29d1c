"""A deployment's server that we start, wait for and stop, by the commands of its config.

The command runs under a warden (see `frontier.warden`) that ends it whenever this process lets go or is gone.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from frontier.config import DeploymentConfig
from frontier.errors import AnotherServerError, MeasurementError, StoreError
from frontier.folder import beside
from frontier.redaction import Secrets
from frontier.sweep.waiting import sleep_or_stop, unless_stopped
from frontier.units import format_elapsed

LAST_LINES = "; its last lines:"
_LAST_LINES = 8
_FREE_WITHIN = 10.0
_CHECK = 30.0
_OWN_HOSTS = ("localhost", "127.0.0.1", "::1", "0.0.0.0")  # noqa: S104  # asked for, not listened on


class Launched:
    """One start of one deployment's server. `log` gets what it says, without `secrets`; `stop` is the user's wish to
    end the sweep.
    """

    def __init__(
        self, deployment: DeploymentConfig, log: Path, stop: asyncio.Event, clock: Callable[[], float],
        note: Callable[[str], None], secrets: Secrets,
    ) -> None:  # fmt: skip
        assert deployment.start is not None
        self._secrets = secrets
        self.deployment, self.log = deployment, log
        self._stop, self._clock, self._note = stop, clock, note
        self._warden: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self.status: int | None = None
        """What the command ended with; None while it runs."""

    async def start(self, prepare: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start it and wait until its ready command succeeds and `prepare` does; at once over when the user stops.

        MeasurementError, with the last lines of the log, when it ends or is not ready within its time.
        """
        name, ready = self.deployment.name, self.deployment.ready
        await self._free()
        self._note(f"starting {name}; what it says is in {self.log}")
        await self._spawn()
        began, pause, last = self._clock(), 0.5, "it does not answer"
        while not self._stop.is_set():
            if self.status:
                raise self._failed(f"{name} ended with status {self.status} after {self._since(began)}")
            try:
                if not self._might_answer():
                    last = "nothing listens at its address"
                elif ready.command is None or await unless_stopped(self._succeeds(ready.command), self._stop):
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
        said = last_lines(self.log)
        tail = f"{LAST_LINES}\n  " + "\n  ".join(said) if said else "; it said nothing"
        return MeasurementError(what + tail, f"the whole log is {self.log}")

    async def _free(self) -> None:
        """Nothing may answer at the address yet: it would be taken for the server that is about to be started."""
        if self._own_port() is None:
            return
        deadline = self._clock() + _FREE_WITHIN
        while self._might_answer():
            if self._clock() > deadline or self._stop.is_set():
                raise MeasurementError(
                    f"something answers at {self.deployment.endpoint} before {self.deployment.name} is started",
                    "end it, or remove  start:  to measure it as it is",
                )
            await sleep_or_stop(0.2, self._stop)

    def _own_port(self) -> tuple[str, int] | None:
        """Host and port, when they are this machine's."""
        parts = urlsplit(self.deployment.base_url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return (parts.hostname, port) if parts.hostname in _OWN_HOSTS else None

    def _might_answer(self) -> bool:
        """Something listens at its address; of another machine's only trying tells."""
        own = self._own_port()
        return own is None or _listens(*own)

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
        logs = beside(self.log)
        logs.make()
        logs.appender(self.log.name).close()  # what cannot be written to is said here: the warden can tell nobody
        # A session of its own: Ctrl-C in the terminal is ours to answer.
        self._warden = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "frontier.warden",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        assert self._warden.stdin is not None
        self._warden.stdin.write(json.dumps(job).encode() + b"\n")
        await self._warden.stdin.drain()
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        """What the warden tells. One that is gone without a word took its command with it, or lost it."""
        assert self._warden is not None
        assert self._warden.stdout is not None
        async for line in self._warden.stdout:
            told = json.loads(line)
            if told["event"] == "ended":
                # A command that ends well may have left a server behind, as `docker run -d` does.
                self.status = told["status"]
        if self.status is None:
            self.status = await self._warden.wait() or -1

    @property
    def alive(self) -> bool:
        """It may still be there: it has not ended, or has ended well and left a server behind."""
        return not self.status

    async def end(self) -> None:
        """Stop it: bounded, and whatever happens nothing of it is left."""
        warden, self._warden = self._warden, None
        if warden is None:
            return
        assert warden.stdin is not None
        warden.stdin.close()
        longest = 2 * self.deployment.stop.within + 15.0
        try:
            await asyncio.wait_for(warden.wait(), longest)
        except TimeoutError:
            self._note(f"{self.deployment.name} did not stop within {format_elapsed(longest)}")
            warden.terminate()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def _succeeds(self, command: str) -> bool:
        """A ready command ends with 0, in good time."""
        asked = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            return await asyncio.wait_for(asked.wait(), _CHECK) == 0
        except TimeoutError:
            return False
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(asked.pid, signal.SIGKILL)
            await asked.wait()


def _listens(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), 1.0):
            return True
    except OSError:
        return False


def last_lines(log: Path) -> list[str]:
    """The end of a log, for a message: it is cleaned already, and cut here."""
    try:
        with beside(log).reader(log.name) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4_000))
            said = file.read(4_000).decode(errors="replace").splitlines()
    except (OSError, StoreError):
        return []
    return [line[:200] for line in said if line.strip()][-_LAST_LINES:]
