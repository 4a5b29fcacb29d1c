"""The servers of a sweep: started as the config says, checked before the first trial, waited for
when lost.

`start/` starts a server under a supervisor, which ends it when this process lets go of it or is
gone.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from frontier.config import DeploymentConfig
from frontier.core.model.errors import AnotherServerError, MeasurementError
from frontier.core.model.units import format_elapsed
from frontier.planning.sweep_progress import Progress
from frontier.store.journal import server_words, servers
from frontier.store.run_dir import RunDirectory
from frontier.sweep.backend import PUT_BACK, Backend, Facts
from frontier.sweep.start.started_server import StartedServer, left_alive
from frontier.sweep.stopping import sleep_or_stop, unless_stopped
from frontier.sweep.sweep_state import FailureCause, GivenUp, ServerFailures

ATTEMPTS = 2
"""How often one trial is tried when the server is lost under it."""
HUNG = 60.0
"""Seconds after which a server is restarted that the sweep started and that lives without
answering."""


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
    """Brings the servers of a sweep up and down. `started`: the servers that the sweep started, by
    deployment name.
    """

    run: RunDirectory
    backend: Backend
    progress: Progress
    stop: asyncio.Event
    clock: Callable[[], float]
    ready_wait: float
    failures: ServerFailures
    done: Set[str]
    facts: dict[str, Facts] = field(default_factory=dict)
    started: dict[str, StartedServer] = field(default_factory=dict)

    def tell_left(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Report the processes that are left of servers that earlier sweeps of the run started, by
        its journal.
        """
        for left in left_alive(lines):
            if not left.is_being_ended:
                self.progress.note(f"warning: {left.text}")

    async def up(self, deployment: DeploymentConfig) -> bool:
        """Bring a deployment up for measuring; the sweep starts it where the config says how. False
        when it is given up.

        MeasurementError at once where a server of the user's cannot be measured: the user is still
        at the terminal. A server that the sweep starts may fail hours later; then the other
        deployments are measured.
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
        """Start a deployment from scratch, with nothing else running. False when it is given up:
        the other deployments are then measured, also where the user starts the server.
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
            run = self.run
            await server.start(partial(self.prepare, deployment), run.journal, run.journal_lines())
        except BaseException:
            await self.down(deployment.name)
            raise

    async def down(self, name: str) -> None:
        """Stop a server that the sweep started; other servers are left alone."""
        server = self.started.pop(name, None)
        if server is not None and await server.end():  # what lives on is named before the next start
            self.run.journal("stopped", deployment=name)

    async def close(self) -> None:
        """Stop every server that the sweep started."""
        for name in tuple(self.started):
            await self.down(name)

    async def prepare(self, deployment: DeploymentConfig) -> None:
        """`_prepare`, unless the user stops the sweep meanwhile."""
        await unless_stopped(self._prepare(deployment), self.stop)

    async def _prepare(self, deployment: DeploymentConfig) -> None:
        """Check that a deployment can be measured. AnotherServerError when its server is not the
        one that the run was begun with.
        """
        facts = await self.backend.prepare(deployment)
        if self.done:  # another server's trials must not be mixed with them
            require_same_server(self.run.journal_lines(), facts)
        self.facts[deployment.name] = facts
        self.run.journal("server", deployment=deployment.name, identity=facts.identity, model=facts.model)
        for note in facts.notes:
            self.progress.note(note)

    async def back(self, deployment: DeploymentConfig) -> bool:
        """Wait for a lost server to answer again, for a bounded time. The deployment is given up
        when it does not.
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
        came_up: FailureCause = "lost" if name in self.facts else "never_came_up"
        given_up = GivenUp("another" if isinstance(error, AnotherServerError) else came_up, error.what)
        self.failures.given_up[name] = given_up
        self.run.journal("given_up", deployment=name, reason=given_up.why, cause=given_up.cause)
        self.progress.note(f"nothing more is run on {name}: {error.what}")
