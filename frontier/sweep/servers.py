"""The servers of a sweep: started where the config says how, checked before the first trial, waited
for when lost.

A server that a sweep starts runs under a supervisor (see `frontier.sweep.supervisor`), which ends
it whenever this process lets go of it or is gone.
"""

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from frontier.client.secrets import Secrets
from frontier.config import DeploymentConfig
from frontier.core.errors import AnotherServerError, MeasurementError, StoreError
from frontier.core.series import Series
from frontier.core.trials import Trial
from frontier.core.units import format_elapsed
from frontier.planning.sweep_progress import Progress
from frontier.store.files import Folder
from frontier.store.journal import server_words, servers
from frontier.store.run_dir import RunDirectory
from frontier.sweep.backend import PUT_BACK, Backend, Facts
from frontier.sweep.shell_line import run_line

ATTEMPTS = 2
"""How often one trial is tried when the server is lost under it."""
HUNG = 60.0
"""Seconds after which a server that the sweep started, and that lives but does not answer, is
started anew."""
LAST_LINES = "; its last lines:"
_LAST_LINES = 8
_FREE_WITHIN = 10.0
_READY_CHECK = 30.0
_OWN_HOSTS = ("localhost", "127.0.0.1", "::1", "0.0.0.0")  # noqa: S104  # compared with, not listened on

Cause = Literal["never_came_up", "lost", "another"]
T = TypeVar("T")


async def sleep_or_stop(seconds: float, stop: asyncio.Event) -> None:
    """Sleep, unless the user stops the sweep."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


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


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Why nothing more is run on a deployment: its server never came up, was lost, or is another
    one; and the last error.
    """

    cause: Cause
    why: str

    @property
    def text(self) -> str:
        """'its server never came up: fp8 ended with status 1'."""
        said = {"never_came_up": "its server never came up: ", "lost": "its server did not come back: ", "another": ""}
        return f"{said[self.cause]}{self.why}"


@dataclass(slots=True)
class ServerFailures:
    """`failed_at`: per series the lowest concurrency that was given up, as the server or client
    processes were lost under it again and again, and why. `given_up`: deployments on which nothing
    more is run.
    """

    failed_at: dict[Series, tuple[int, str]] = field(default_factory=dict)
    given_up: dict[str, GivenUp] = field(default_factory=dict)

    def facts(self) -> dict[str, str]:
        """For the journal: why deployments were given up; {} where none was."""
        if not self.given_up:
            return {}
        causes = {each.cause for each in self.given_up.values()}
        cause: Cause = causes.pop() if len(causes) == 1 else "lost"
        return {"cause": cause, "reason": "; ".join(each.why for each in self.given_up.values())}

    def record(self, trial: Trial, why: str) -> None:
        """The trial is given up: `why` says what was lost under it as often as it may be."""
        if trial.series not in self.failed_at or trial.concurrency < self.failed_at[trial.series][0]:
            self.failed_at[trial.series] = trial.concurrency, why

    def reason_to_skip(self, trial: Trial) -> str | None:
        """Why a trial is not run now; None when it may be. A crash at 64 is expected at 128 too."""
        if trial.deployment in self.given_up:
            return self.given_up[trial.deployment].text
        concurrency, why = self.failed_at.get(trial.series, (0, ""))
        return why if why and trial.concurrency >= concurrency else None


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
            "frontier.sweep.supervisor",
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
        return done.status == 0


def last_lines(log: Path) -> list[str]:
    """The end of a log, for a message: it is cleaned already, and cut here."""
    try:
        with Folder(log.parent).reader(log.name) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4_000))
            lines = file.read(4_000).decode(errors="replace").splitlines()
    except (OSError, StoreError):
        return []
    return [line[:200] for line in lines if line.strip()][-_LAST_LINES:]


def require_same_server(lines: Iterable[Mapping[str, Any]], facts: Facts, hint: str = PUT_BACK) -> None:
    """AnotherServerError when the server that answers is not the one in the journal `lines` of a
    run.
    """
    before, now = servers(lines).get(facts.deployment), server_words(facts.model, facts.identity)
    if before not in (None, now):
        raise AnotherServerError(
            f"another server answers at {facts.endpoint}: {before} when the run was begun, {now} now", hint
        )


@dataclass(slots=True)
class Servers:
    """Brings servers up and down. `ready_wait` bounds the wait for a lost server, in seconds."""

    run: RunDirectory
    backend: Backend
    progress: Progress
    stop: asyncio.Event
    clock: Callable[[], float]
    ready_wait: float
    failures: ServerFailures
    facts: dict[str, Facts] = field(default_factory=dict)
    started: dict[str, StartedServer] = field(default_factory=dict)
    done: Collection[str] = ()
    """The finished trials, growing with the sweep: another server's must not be mixed with them."""

    async def up(self, deployment: DeploymentConfig) -> bool:
        """Have it ready to be measured, started by the sweep where the config says how. False when
        it is given up.

        A server of the user's that cannot be measured raises MeasurementError at once: the user is
        still there. One that the sweep starts may fail long after they left, and then the others
        are measured.
        """
        if deployment.start is None:
            await self.prepare(deployment)
            return True
        try:
            await self._launch(deployment)
        except MeasurementError as error:
            self.give_up(deployment.name, error)
            return False
        return not self.stop.is_set()

    async def anew(self, deployment: DeploymentConfig) -> bool:
        """Have it started from scratch, and nothing else running. False when it is given up: here
        the others are measured, whoever starts its server.
        """
        await self.close()
        await self.backend.release()
        try:
            return await self.up(deployment)
        except MeasurementError as error:
            self.give_up(deployment.name, error)
            return False

    async def _launch(self, deployment: DeploymentConfig) -> None:
        await self.down(deployment.name)
        server = StartedServer(
            deployment,
            self.run.log_file(deployment.name),
            self.stop,
            self.clock,
            self.progress.note,
            self.backend.secrets(),
        )
        self.started[deployment.name] = server
        self.run.journal("starting", deployment=deployment.name)
        try:
            await server.start(partial(self.prepare, deployment))
        except BaseException:
            await self.down(deployment.name)
            raise

    async def down(self, name: str) -> None:
        """Stop a server that we started; nothing is done to any other."""
        server = self.started.pop(name, None)
        if server is not None:
            await server.end()
            self.run.journal("stopped", deployment=name)

    async def close(self) -> None:
        """Stop every server that we started."""
        for name in tuple(self.started):
            await self.down(name)

    async def prepare(self, deployment: DeploymentConfig) -> None:
        """`_prepare`, unless the user stops the sweep meanwhile."""
        await unless_stopped(self._prepare(deployment), self.stop)

    async def _prepare(self, deployment: DeploymentConfig) -> None:
        """Check that it can be measured. AnotherServerError when it is not the one the run was
        begun with.
        """
        facts = await self.backend.prepare(deployment)
        if self.done:
            require_same_server(self.run.journal_lines(), facts)
        self.facts[deployment.name] = facts
        self.run.journal("server", deployment=deployment.name, identity=facts.identity, model=facts.model)
        for note in facts.notes:
            self.progress.note(note)

    async def back(self, deployment: DeploymentConfig) -> bool:
        """Wait, bounded, for a lost server to answer again. When it does not, its deployment is
        given up.
        """
        began, pause = self.clock(), 1.0
        deadline = began + self.ready_wait
        started = self.started.get(deployment.name)
        while not self.stop.is_set():
            if started is not None and (not started.alive or self.clock() - began > HUNG):
                return await self.up(deployment)
            try:
                await self.prepare(deployment)
            except AnotherServerError as error:
                self.give_up(deployment.name, error)
                return False
            except MeasurementError as error:
                if (left := deadline - self.clock()) <= 0:
                    self.give_up(deployment.name, error)
                    return False
                self.progress.note(f"waiting for the server, at most {format_elapsed(left)} more: {error.what}")
                await sleep_or_stop(min(max(pause, error.retry_after or 0.0), left), self.stop)
                pause = min(2 * pause, 15.0)
            else:
                if not self.stop.is_set():
                    self.progress.note("the server is back")
                    return True
        return False

    def give_up(self, name: str, error: MeasurementError) -> None:
        """Run nothing more on a deployment in this session."""
        came_up: Cause = "lost" if name in self.facts else "never_came_up"
        given_up = GivenUp("another" if isinstance(error, AnotherServerError) else came_up, error.what)
        self.failures.given_up[name] = given_up
        self.run.journal("given_up", deployment=name, reason=given_up.why, cause=given_up.cause)
        self.progress.note(f"nothing more is run on {name}: {error.what}")
