"""One trial: measured, stored, counted; again where that helps; given up where it does not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Literal

from frontier.budget import Timing
from frontier.config import Config
from frontier.errors import AnotherServerError
from frontier.model import Measurement, Record, Shape, Trial
from frontier.plan import Plan
from frontier.report.progress import Progress
from frontier.run import History, Setting
from frontier.stats.flags import flags
from frontier.stats.sample_cache import load_sample
from frontier.stats.window_data import Sample
from frontier.store.run_dir import RunDirectory
from frontier.sweep.backend import Backend
from frontier.sweep.ledger import Ledger
from frontier.sweep.servers import LIVES, Losses, Servers, Witness, sleep_or_stop

Step = Literal["done", "skipped", "dropped", "lost", "interrupted"]
"""How one trial ended: measured; not worth measuring; no room in the budget; the server lost under it; stopped."""

PATIENCE = 4
"""Busy trials in a row after which none is run again: the machine is not going to be quiet."""


@dataclass(slots=True)
class Attempts:
    """Runs trials into `histories`. `done` are the keys that count, `dropped` those without room and the limit,
    `skipped` those not worth it or not possible."""

    config: Config
    plan: Plan
    run: RunDirectory
    backend: Backend
    progress: Progress
    stop: asyncio.Event
    ledger: Ledger
    losses: Losses
    servers: Servers
    histories: dict[Setting, History]
    done: set[str] = field(default_factory=set)
    dropped: dict[str, tuple[Trial, str]] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    _timing: Timing = field(init=False)
    _witness: Witness = field(default_factory=Witness)
    _busy: int = 0

    def __post_init__(self) -> None:
        self._timing = Timing(self.config)

    def tell_what_is_left(self) -> None:
        """Tell the progress how long the rest of the grid will take."""
        gone = {*self.done, *self.dropped, *self.skipped}
        todo = [trial for trial in self.plan.trials if trial.key not in gone]
        self.progress.expect(self._timing.left(todo, self.ledger.pace, self.histories))

    async def measure(self, trial: Trial) -> Step:
        """Measure and store a trial. A lost server is waited for, and the whole trial tried again, never a request;
        "lost" when it was lost again, or did not come back.

        A trial in which this machine was too busy to measure is run once more, unless that no longer helps.
        """
        lives = 0
        busy_one: Sample | None = None
        while True:
            if self.stop.is_set():
                return "interrupted"
            if (limit := self.ledger.refuses(trial)) is not None:
                return self._drop(trial, limit) if busy_one is None else self._finish(trial, busy_one)
            try:
                measurement = await self._once(trial)
            except AnotherServerError as error:
                self.servers.give_up(trial.deployment, error)
                return "lost"
            if measurement.ended == "interrupted":
                self.run.journal("interrupted", trial=trial.key, **self.ledger.facts())
                if self.stop.is_set():
                    return "interrupted"
                cut = "time: it was cut off"
                return self._drop(trial, cut) if busy_one is None else self._finish(trial, busy_one)
            if measurement.ended == "server_lost":
                lives += 1
                why = self._witness.account()
                self.run.journal("server_lost", trial=trial.key, life=lives, reason=why, **self.ledger.facts())
                self.progress.note(f"the server was lost during {trial.shape.label} c={trial.concurrency}: {why}")
                if not await self.servers.back(self.config.deployment(trial.deployment)):
                    return "interrupted" if self.stop.is_set() else "lost"
                if lives == LIVES:
                    self.losses.fell(trial, why)
                    return "lost"
                continue
            # From the file, not from memory: what is decided now is what a later look at the run will decide.
            sample = load_sample(self.run, measurement)
            found = flags(sample, self.config.limits)
            busy = next((flag for flag in found if flag.name == "client_bound"), None)
            self._busy = self._busy + 1 if busy else 0
            if busy and busy_one is None and self._busy <= PATIENCE:
                busy_one = sample
                self.run.journal("measured_again", trial=trial.key, reason=busy.measured)
                self.progress.note(f"this machine was busy ({busy.measured}); the trial is measured once more")
                continue
            if names := [flag.name for flag in found if flag.fatal]:
                self.run.journal("flagged", trial=trial.key, flags=names)
            return self._finish(trial, sample)

    async def _once(self, trial: Trial) -> Measurement:
        self.progress.trial_started(trial, len(self.done) + 1, max(len(self.plan.trials), len(self.done) + 1))
        self.run.journal("trial_begun", trial=trial.key)
        self.ledger.begin()
        with self.run.writer(trial) as writer:

            def sink(record: Record) -> None:
                self.ledger.count(record)
                writer.add(record)

            self._witness = Witness(sink)
            async with self._halting() as halt:
                measurement = await self.backend.run(
                    trial,
                    expected_e2e=self._expected_e2e(trial),
                    sink=self._witness,
                    on_tick=self.progress.tick,
                    stop=halt,
                )
            if measurement.ended in ("requests", "time"):
                writer.commit(measurement, **self.ledger.facts())
        return measurement

    @contextlib.asynccontextmanager
    async def _halting(self) -> AsyncIterator[asyncio.Event]:
        """What ends the trial in flight: the user's stop, or the end of the budget's time."""
        left = self.ledger.seconds_left()
        if left is None:
            yield self.stop
            return
        halt = asyncio.Event()

        async def watch() -> None:
            await sleep_or_stop(left, self.stop)
            halt.set()

        watching = asyncio.create_task(watch())
        try:
            yield halt
        finally:
            watching.cancel()

    def _finish(self, trial: Trial, sample: Sample) -> Step:
        self.history(trial.deployment, trial.shape).append((trial, sample))
        self.done.add(trial.key)
        self.dropped.pop(trial.key, None)
        self.ledger.done(trial)
        self.tell_what_is_left()
        self.progress.trial_finished(trial, sample_line(sample), flags(sample, self.config.limits))
        return "done"

    def _drop(self, trial: Trial, limit: str) -> Step:
        """The budget has no room for the trial. Others after it may be smaller, and fit."""
        if not self.dropped:
            self.progress.note(f"the budget is near its end ({limit}): what no longer fits is dropped")
        self.dropped[trial.key] = trial, limit
        return "dropped"

    def _expected_e2e(self, trial: Trial) -> float | None:
        """The mean E2E where this shape was measured nearest: how long to stagger the start over."""
        seen = [
            (abs(t.concurrency - trial.concurrency), float(s.e2e[s.ok].mean()))
            for t, s in self.history(trial.deployment, trial.shape)
            if s.ok.any()
        ]
        return min(seen)[1] if seen else None

    def history(self, deployment: str, shape: Shape) -> History:
        """The finished trials of one (deployment, shape)."""
        return self.histories.setdefault((deployment, shape), [])


def sample_line(sample: Sample) -> dict[str, float | None]:
    """What the progress says of a finished trial: point values only, no claim."""
    from frontier.stats.estimate import estimate

    names = ("output_throughput", "p50_ttft", "p99_ttft", "p99_tpot", "error_rate")
    found = {name: estimate(sample, name) for name in names}
    return {name: None if e is None else e.value for name, e in found.items()}
