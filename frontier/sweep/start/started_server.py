"""A server that a sweep starts: its command, the wait until it is ready, and its end.

It runs under a supervisor, a process of its own that ends it when the sweep lets go of it or is
gone. When the supervisor is lost, the sweep ends what it started. Where both are lost, the next
sweep of the run names the processes that are left: the journal has the session in which the server
was started.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from frontier.client.secrets import Secrets
from frontier.config import DeploymentConfig
from frontier.core.model.errors import AnotherServerError, MeasurementError, StoreError
from frontier.core.model.units import format_elapsed
from frontier.store.files import Folder
from frontier.sweep.shell_line import run_line
from frontier.sweep.start.process_session import ProcessSession, SeenProcess, ending, names
from frontier.sweep.start.supervisor import KILLED_WITHIN, Job, Output, finish
from frontier.sweep.stopping import sleep_or_stop

LAST_LINES = "; its last lines:"
"""What stands before the end of its output in a reason."""
_TAIL = 8
_FREE_WITHIN = 10.0
_READY_CHECK = 30.0
_OWN_HOSTS = ("localhost", "127.0.0.1", "::1", "0.0.0.0")  # noqa: S104  # compared with, not listened on


SUPERVISED = "supervised"
"""The event of the journal that names the session of a server, before the server is started."""


@dataclass(frozen=True, slots=True)
class LeftAlive:
    """Processes left of a server whose end no sweep has seen. `is_being_ended`: its supervisor is
    ending them.
    """

    deployment: str
    processes: tuple[SeenProcess, ...]
    is_being_ended: bool

    @property
    def text(self) -> str:
        """The processes, and the command that ends them."""
        found, command = names(self.processes), ending(self.processes)
        return f"an earlier start of {self.deployment} is still alive: {found}; end it with  {command}"


def left_alive(lines: Iterable[Mapping[str, Any]]) -> list[LeftAlive]:
    """The processes left of the servers that the sweeps of a run started, by the lines of its
    journal.
    """
    unseen: dict[str, list[ProcessSession]] = {}
    for line in lines:
        if line["event"] == SUPERVISED:
            session = ProcessSession(line["leader"], line["start"], line["system"])
            unseen.setdefault(line["deployment"], []).append(session)
        elif line["event"] == "stopped":
            unseen.pop(str(line.get("deployment")), None)
    living = [(name, session, session.living()) for name, sessions in unseen.items() for session in sessions]
    return [
        LeftAlive(name, tuple(found), any(p.pid == session.leader and not p.is_stopped for p in found))
        for name, session, found in living
        if found
    ]


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
        self._session: ProcessSession | None = None
        self._job: Job | None = None
        self._listening: asyncio.Task[None] | None = None
        self._let_go = False
        self._lost: str | None = None
        self._log_begun = 0
        self.status: int | None = None
        """The exit status of the command; None while it runs."""

    async def start(
        self,
        prepare: Callable[[], Coroutine[Any, Any, None]],
        journal: Callable[..., None],
        lines: Iterable[Mapping[str, Any]],
    ) -> None:
        """Start the server, and wait until its ready command and `prepare` succeed; the wait ends
        at once when the user stops. `lines` are the run's `journal` so far.

        MeasurementError, with the last lines of the log, when the server ends or is not ready
        within its time.
        """
        name, ready = self.deployment.name, self.deployment.ready
        await self._ended_before(list(lines))
        await self._free()
        self._note(f"starting {name}; its output is in {self.log}")
        await self._spawn(journal)
        began, pause, last = self._clock(), 0.5, "it does not answer"
        while not self._stop.is_set():
            if self._lost is not None:
                raise MeasurementError(self._lost)
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
        lines = last_lines(self.log, self._log_begun)
        tail = f"{LAST_LINES}\n  " + "\n  ".join(lines) if lines else "; it said nothing"
        return MeasurementError(what + tail, f"the whole log is {self.log}")

    async def _ended_before(self, lines: list[Mapping[str, Any]]) -> None:
        """Check that nothing is left of a server that the run's sweeps started earlier: it would
        hold the port or the memory. Where its supervisor is ending it, wait for that.
        """
        deadline = self._clock() + self._longest
        while left := left_alive(lines):
            if not all(each.is_being_ended for each in left) or self._clock() > deadline:
                raise MeasurementError("; ".join(each.text for each in left))
            if self._stop.is_set():
                raise MeasurementError(f"an earlier start of {left[0].deployment} has not ended yet")
            await sleep_or_stop(0.2, self._stop)

    async def _free(self) -> None:
        """Check that nothing answers at the address yet: it would be taken for the server that is
        about to start.
        """
        deadline = self._clock() + _FREE_WITHIN
        while self._listens():
            if self._clock() > deadline or self._stop.is_set():
                raise MeasurementError(
                    f"something answers at {self.deployment.endpoint} before {self.deployment.name} is started: "
                    "end it, or remove  start:  to measure it as it is"
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

    @property
    def _longest(self) -> float:
        """Seconds that its supervisor may take to end it."""
        return 2 * self.deployment.stop.within + KILLED_WITHIN + 10.0

    async def _spawn(self, journal: Callable[..., None]) -> None:
        assert self.deployment.start is not None
        self._job = Job(
            self.deployment.start,
            str(self.log.absolute()),
            self.deployment.stop.command,
            self.deployment.stop.within,
            # Through a pipe, and on no command line.
            sorted(self._secrets.values),
            sorted(self._secrets.whole),
        )
        logs = Folder(self.log.parent)
        logs.make()
        with logs.appender(self.log.name) as log:  # an unwritable log fails here: the supervisor could not report it
            self._log_begun = log.tell()
        # A session of its own: Ctrl-C in the terminal must reach the sweep alone. All that is
        # started stays in it, but for what calls setsid.
        self._supervisor = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "frontier.sweep.start.supervisor",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        self._session = ProcessSession.led_by(self._supervisor.pid)
        journal(SUPERVISED, deployment=self.deployment.name, **asdict(self._session))
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.write(json.dumps(asdict(self._job)).encode() + b"\n")
        await self._supervisor.stdin.drain()
        self._listening = asyncio.create_task(self._listen(self._supervisor))

    async def _listen(self, supervisor: asyncio.subprocess.Process) -> None:
        """Wait for the end of the command. A supervisor that ends before it was told to is lost;
        then this process ends what it started.
        """
        assert supervisor.stdout is not None
        while status := await supervisor.stdout.readline():
            self.status = int(status)
        if self._let_go:
            return
        self.status = self.status or await supervisor.wait() or -1
        self._lost = f"the supervisor of {self.deployment.name} was lost (status {supervisor.returncode})"
        self._note(f"{self._lost}; what it started is ended")
        await self._finish()

    async def _finish(self) -> None:
        """Do what the supervisor would have done at the end."""
        if self._job is not None and self._session is not None:
            await asyncio.to_thread(finish, self._job, self._session, Output(self._job))

    @property
    def alive(self) -> bool:
        """Whether the server may still be there: the command has not ended, or ended with status 0
        and left a server behind, as `docker run -d` does.
        """
        return not self.status

    async def end(self) -> bool:
        """Stop the server within a bounded time, whatever happens. True when nothing of it
        is left.
        """
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return True
        assert supervisor.stdin is not None
        self._let_go = True
        supervisor.stdin.close()
        with suppress(ProcessLookupError):
            supervisor.send_signal(signal.SIGCONT)  # it may have been stopped
        try:
            await asyncio.wait_for(supervisor.wait(), self._longest)
        except TimeoutError:
            self._note(f"{self.deployment.name} did not stop within {format_elapsed(self._longest)}")
            supervisor.kill()
            await supervisor.wait()
        if self._listening is not None:
            await asyncio.gather(self._listening, return_exceptions=True)
        if self._lost is None and supervisor.returncode:
            await self._finish()
        left = self._session.living() if self._session is not None else []
        if left:
            self._note(LeftAlive(self.deployment.name, tuple(left), False).text)
        return not left

    async def _succeeds(self, command: str) -> bool:
        """Whether the ready command ends with 0 in time."""
        stopped = self._stop.is_set
        done = await asyncio.to_thread(run_line, command, b"", os.environ, _READY_CHECK, most=1, stopped=stopped)
        return done.returncode == 0


def last_lines(log: Path, begun: int = 0) -> list[str]:
    """The end of a log, cut for a message; the log is cleaned already. What was in it when this
    start had `begun` is of earlier ones.
    """
    try:
        with Folder(log.parent).reader(log.name) as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - 4_000, begun if begun <= end else 0))
            lines = file.read(4_000).decode(errors="replace").splitlines()
    except (OSError, StoreError):
        return []
    return [line[:200] for line in lines if line.strip()][-_TAIL:]
