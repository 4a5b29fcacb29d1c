"""Waiting that the user can end.

What a lost server costs the night: which trials are put off or given up, and what is said of it. Pure.

A deployment's server that we start, wait for and stop, by the commands of its config.

The command runs under a warden (see `frontier.sweep.supervisor`) that ends it whenever this process lets go or is gone.

The servers of a sweep: checked before the first trial, waited for when lost, never mixed with another.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from frontier.config import DeploymentConfig
from frontier.errors import AnotherServerError, MeasurementError, StoreError
from frontier.model import Outcome, Record, Shape, Trial
from frontier.report.progress import Progress
from frontier.store.files import beside
from frontier.store.journal import server_words, servers
from frontier.store.run_dir import RunDirectory
from frontier.sweep.backend import Backend, Facts
from frontier.text import Secrets
from frontier.units import format_elapsed

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
        for one in (task, stopped):
            one.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)


LIVES = 2
"""How often one trial is tried when the server is lost under it."""


@dataclass(slots=True)
class Losses:
    """`felled`: per (deployment, shape) the lowest concurrency under which the server was lost LIVES times, and how.
    `gone`: deployments whose server did not come back, and what was last said of it.
    """

    felled: dict[tuple[str, Shape], tuple[int, str]] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)

    def fell(self, trial: Trial, why: str) -> None:
        """The server was lost under this trial as often as is borne."""
        at = trial.deployment, trial.shape
        if at not in self.felled or trial.concurrency < self.felled[at][0]:
            self.felled[at] = trial.concurrency, why

    def reason(self, trial: Trial) -> str | None:
        """Why a trial is not run now; None when it may be. What fells a server at 64 will not spare it at 128."""
        if trial.deployment in self.gone:
            return f"its server did not come back: {self.gone[trial.deployment]}"
        concurrency, why = self.felled.get((trial.deployment, trial.shape), (0, ""))
        if why and trial.concurrency >= concurrency:
            return f"the server was lost {LIVES} times under c={concurrency}: {why}"
        return None


class Witness:
    """A sink for records that remembers how requests failed, on its way to another sink."""

    def __init__(self, sink: Callable[[Record], None] = lambda _: None) -> None:
        self._sink = sink
        self._failed: Counter[str] = Counter()

    def __call__(self, record: Record) -> None:
        if record.outcome not in (Outcome.OK, Outcome.CANCELLED, Outcome.CLIENT):
            self._failed[record.error or record.outcome.value] += 1
        self._sink(record)

    def account(self) -> str:
        """The most common failure and how many there were."""
        if not self._failed:
            return "no request failed"
        said, times = self._failed.most_common(1)[0]
        return f"{self._failed.total()} requests failed, {times} of them so: {said}"


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
            sys.executable, "-m", "frontier.sweep.supervisor",
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


HUNG = 60.0
"""Seconds after which a server of ours that lives and does not answer is started anew."""


@dataclass(slots=True)
class Servers:
    """`ready_wait` bounds the wait for a lost server, in seconds."""

    run: RunDirectory
    backend: Backend
    progress: Progress
    stop: asyncio.Event
    clock: Callable[[], float]
    ready_wait: float
    losses: Losses
    facts: dict[str, Facts] = field(default_factory=dict)
    launched: dict[str, Launched] = field(default_factory=dict)
    done: Collection[str] = ()
    """The finished trials, growing with the sweep: another server's must not be mixed with them."""

    async def up(self, deployment: DeploymentConfig) -> bool:
        """Have it ready to be measured, started by us where the config says how. False when it is given up.

        A server of the user's that cannot be measured is said at once, by MeasurementError: they are still there. One
        that is started in turn may fail long after they left, and then the others are measured.
        """
        if deployment.start is None:
            await unless_stopped(self.prepare(deployment), self.stop)
            return True
        try:
            await self._launch(deployment)
        except MeasurementError as error:
            self.give_up(deployment.name, error)
            return False
        return not self.stop.is_set()

    async def _launch(self, deployment: DeploymentConfig) -> None:
        await self.down(deployment.name)
        server = Launched(
            deployment, self.run.log_file(deployment.name), self.stop, self.clock, self.progress.note,
            self.backend.secrets(),
        )  # fmt: skip
        self.launched[deployment.name] = server
        self.run.journal("starting", deployment=deployment.name)

        async def ready() -> None:
            await unless_stopped(self.prepare(deployment), self.stop)

        try:
            await server.start(ready)
        except BaseException:
            await self.down(deployment.name)
            raise

    async def down(self, name: str) -> None:
        """Stop a server that we started; nothing is done to any other."""
        server = self.launched.pop(name, None)
        if server is not None:
            await server.end()
            self.run.journal("stopped", deployment=name)

    async def close(self) -> None:
        """Stop every server that we started."""
        for name in tuple(self.launched):
            await self.down(name)

    async def prepare(self, deployment: DeploymentConfig) -> None:
        """Check that it can be measured. AnotherServerError when it is not the one the run was begun with."""
        facts = await self.backend.prepare(deployment)
        before = servers(self.run.journal_lines()).get(deployment.name)
        now = server_words(facts.model, facts.identity)
        if before is not None and before != now and self.done:
            raise AnotherServerError(
                f"another server answers at {facts.endpoint}: {before} when the run was begun, {now} now",
                "put the old server back, or begin a run of its own with  -o DIR",
            )
        self.facts[deployment.name] = facts
        self.run.journal("server", deployment=deployment.name, identity=facts.identity, model=facts.model)
        for note in facts.notes:
            self.progress.note(note)

    async def back(self, deployment: DeploymentConfig) -> bool:
        """Wait, bounded, for a lost server to answer again. When it does not, its deployment is given up."""
        began, pause = self.clock(), 1.0
        deadline = began + self.ready_wait
        ours = self.launched.get(deployment.name)
        while not self.stop.is_set():
            if ours is not None and (not ours.alive or self.clock() - began > HUNG):
                return await self.up(deployment)
            try:
                await unless_stopped(self.prepare(deployment), self.stop)
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
        self.losses.gone[name] = error.what
        self.run.journal("given_up", deployment=name, reason=error.what)
        self.progress.note(f"nothing more is run on {name}: {error.what}")
