"""The servers of a sweep: checked before the first trial, waited for when lost, never mixed with another."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from frontier.backend import Backend, Facts
from frontier.config import DeploymentConfig
from frontier.errors import AnotherServerError, MeasurementError
from frontier.journal import server_words, servers
from frontier.present.progress import Progress
from frontier.store import RunDirectory
from frontier.sweep.launch import Launched
from frontier.sweep.losses import Losses
from frontier.sweep.waiting import sleep_or_stop, unless_stopped
from frontier.units import format_elapsed

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
