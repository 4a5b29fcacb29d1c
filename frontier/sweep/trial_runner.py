"""The trial runner: measures one trial and stores it, or gives it up where it cannot be
measured.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from frontier.client.ask.same_server import EVENT, Identity
from frontier.client.load.shard import WorkerLostError
from frontier.config import Config
from frontier.core.claim.changes import away
from frontier.core.claim.undecided import may_pass
from frontier.core.estimates.estimate import estimate
from frontier.core.flags.failures import failure_words
from frontier.core.flags.flags import flags
from frontier.core.model.errors import AnotherServerError
from frontier.core.model.points import Flag
from frontier.core.model.trials import Measurement, Outcome, Record, Trial
from frontier.core.window.window import WindowData
from frontier.planning.sweep_progress import Progress
from frontier.store.run_dir import RunDirectory
from frontier.store.window_cache import load_window_data
from frontier.sweep.backend import Backend, OnRecord, OnTick
from frontier.sweep.held_load import background_of
from frontier.sweep.ledger import Ledger
from frontier.sweep.servers import ATTEMPTS, Servers
from frontier.sweep.stopping import sleep_or_stop
from frontier.sweep.sweep_state import Exclusion, SweepState

TrialEnd = Literal["done", "skipped", "dropped", "lost", "interrupted"]
"""How one trial ended:

- done: it was measured
- skipped: it was not worth measuring
- dropped: the budget had no room
- lost: the server was lost under it
- interrupted: the user stopped it"""

KEPT = ("requests", "time", "failing", "budget")
"""The ends of trials that are kept. A trial that a lost server or the user cut off is measured
again as a whole."""
CUT_OFF = "time: it was cut off"
WORKERS_LOST = 2
"""How often a trial is run again after a client process failed, each time with one process
fewer."""
_FIGURES = ("p50_ttft", "p99_ttft", "p99_tpot")
"""Metrics that are reported of every trial beside the limited ones: for dashboards, and for the
line of a trial where nothing is limited."""


async def recorded(  # noqa: PLR0913
    store: RunDirectory,
    backend: Backend,
    trial: Trial,
    stop: asyncio.Event,
    *,
    on_record: OnRecord,
    on_tick: OnTick,
    kept_with: Callable[[Measurement], Mapping[str, Any] | None],
    expected_e2e: float | None = None,
    by_budget: Callable[[], bool] = lambda: False,
    on_note: Callable[[str], None] = lambda _: None,
) -> Measurement:
    """Run one trial of a sweep or of a check, and store it. Returns its measurement.

    Each record goes from the client to the file as its request ends. `kept_with` gives the facts
    that are stored with the measurement; None: the trial is not kept. `by_budget` says of a trial
    that was cut off whether the budget did that. The background of its shape is held beside it, and
    its records are stored behind; `on_note` hears how many of them failed.
    """
    with store.writer(trial) as writer:

        def record(record: Record) -> None:
            on_record(record)
            writer.add(record)

        async with background_of(backend, trial, stop, on_record=on_record, on_tick=on_tick) as background:
            measurement = await backend.run(
                trial, expected_e2e=expected_e2e, on_record=record, on_tick=on_tick, stop=stop
            )
            await background.settle(stop)
        for each in background.beside(measurement):
            writer.add(each)
        if background.failures:
            on_note(background.failures)
        if measurement.ended == "interrupted" and measurement.window.length > 0 and by_budget():
            measurement = replace(measurement, ended="budget")
        if (facts := kept_with(measurement)) is not None:
            writer.commit(measurement, **facts)
    return measurement


@dataclass(slots=True)
class TrialRunner:
    """Runs the trials of a sweep into its histories."""

    config: Config
    run: RunDirectory
    backend: Backend
    progress: Progress
    stop: asyncio.Event
    ledger: Ledger
    servers: Servers
    state: SweepState
    _workers: int = 1
    _failed: Counter[str] = field(default_factory=Counter)
    """How the requests of the last attempt failed."""

    async def measure(self, trial: Trial) -> TrialEnd:
        """Measure and store a trial.

        After a lost server the runner waits for it and repeats the whole trial, never a single
        request. "lost" when the server was lost too often or did not come back, or when client
        processes failed too often.
        """
        attempts = workers_lost = 0
        while True:
            if self.stop.is_set():
                return "interrupted"
            if (limit := self.ledger.refuses(trial)) is not None:
                return self._drop(trial, limit)
            try:
                measurement = await self._attempt(trial)
            except AnotherServerError as error:
                self.servers.give_up(trial.deployment, error)
                return "lost"
            except WorkerLostError as error:
                workers_lost += 1
                if self._gives_up(trial, workers_lost, error):
                    return "lost"
                continue
            if measurement.ended != "server_lost":
                return self._ended(trial, measurement)
            attempts += 1
            if (step := await self._wait_for_server(trial, attempts)) is not None:
                return step

    def _ended(self, trial: Trial, measurement: Measurement) -> TrialEnd:
        """Take in a trial that ran to its end, or that the user or the budget cut off."""
        if measurement.ended == "interrupted":
            self.run.journal("interrupted", trial=trial.key, **self.ledger.facts())
            return "interrupted" if self.stop.is_set() else self._drop(trial, CUT_OFF)
        # From the file, not from memory: what is decided now is what a later look at the run will
        # decide.
        step = self._finish(trial, load_window_data(self.run, measurement))
        return self._drop(trial, CUT_OFF) if measurement.ended == "budget" else step

    async def _wait_for_server(self, trial: Trial, attempts: int) -> TrialEnd | None:
        """Wait for the server that was lost under a trial. None: run the trial again."""
        why = "no request failed"
        if self._failed:
            error, times = self._failed.most_common(1)[0]
            why = f"{self._failed.total():,} requests failed, {times:,} of them so: {error}"
        self.run.journal("server_lost", trial=trial.key, life=attempts, reason=why, **self.ledger.facts())
        self.progress.note(f"the server was lost during {trial.shape.label} {trial.load.label}: {why}")
        if not await self.servers.back(self.config.deployment(trial.deployment)):
            return "interrupted" if self.stop.is_set() else "lost"
        if attempts < ATTEMPTS:
            return None
        what = f"the server was lost {ATTEMPTS} times under {trial.load.label}: {why}"
        self.state.failures.record(trial, what)
        return "lost"

    def _gives_up(self, trial: Trial, times: int, error: WorkerLostError) -> bool:
        """Report that a client process failed. True when that happened too often and the trial is
        given up.
        """
        self.run.journal("worker_lost", trial=trial.key, reason=error.what, **self.ledger.facts())
        where = f"{trial.shape.label} {trial.load.label}"
        if times <= WORKERS_LOST:
            self.progress.note(f"{error.what}: {where} does not count, and is run again without that process")
            return False
        what = f"client processes failed {times:,} times under {trial.load.label}, at last: {error.what}"
        hint = error.hint or "see what ends them (memory?), or send from one:  workers: 1"
        self.progress.note(f"{what}; {hint}")
        self.state.failures.record(trial, what)
        return True

    async def _attempt(self, trial: Trial) -> Measurement:
        self.progress.trial_started(trial)
        e2e = self._expected_e2e(trial)
        workers = self.backend.workers(trial, e2e)
        several = {"client_processes": workers} if workers > 1 else {}
        self.run.journal("trial_begun", trial=trial.key, **several, **self.state.forecast)
        self.ledger.begin_attempt()
        self._failed.clear()
        if workers != self._workers:
            self._workers = workers
            processes = "one client process" if workers == 1 else f"{workers} client processes"
            self.progress.note(f"c={trial.load} is sent by {processes}")
        async with self._halting() as halt:
            return await recorded(
                self.run,
                self.backend,
                trial,
                halt,
                expected_e2e=e2e,
                on_record=self._count,
                on_tick=self.progress.tick,
                kept_with=lambda found: self.ledger.facts() if found.ended in KEPT else None,
                by_budget=lambda: not self.stop.is_set(),
                on_note=self.progress.note,
            )

    def _count(self, record: Record) -> None:
        """Count what a request spent, and how it failed."""
        if record.outcome not in (Outcome.OK, Outcome.CANCELLED, Outcome.CLIENT):
            self._failed[record.error or record.outcome.value] += 1
        self.ledger.count(record)

    @contextlib.asynccontextmanager
    async def _halting(self) -> AsyncIterator[asyncio.Event]:
        """The event that ends the trial in flight: the user stops, or the budget's time is over."""
        halt, left = asyncio.Event(), self.ledger.seconds_left()

        async def watch() -> None:
            await sleep_or_stop(left, self.stop)
            halt.set()

        watching = asyncio.create_task(watch())
        try:
            yield halt
        finally:
            watching.cancel()

    def recall(self, trial: Trial, sample: WindowData) -> tuple[Flag, ...]:
        """Take a finished trial into its history, in place of an earlier one with the same key.
        Returns its flags.
        """
        first = self.state.identities.get(trial.deployment, Identity())
        known, sample = first.with_window(sample)
        if known != first and (known.names or known.process):
            self.run.journal(EVENT, deployment=trial.deployment, **known.facts())
        self.state.identities[trial.deployment] = known
        sample = replace(sample, quality=self.config.deployment(trial.deployment).stated_quality)
        history = self.state.histories[trial.series]
        history[:] = [(t, s) for t, s in history if t.key != trial.key]
        history.append((trial, sample))
        self.state.done.add(trial.key)
        raised = flags(sample, self.config.limits)
        fatal = [flag for flag in raised if flag.fatal]
        if fatal:
            # What a server lists changes once, as another is deployed; what answers name, again.
            stays = [flag for flag in fatal if not (flag.name == "server_changed" and any(sample.changed))]
            why, cut_off = "; ".join(flag.measured for flag in fatal), "budget" in sample.ended
            self.state.excluded[trial.key] = Exclusion(why, may_pass(stays), cut_off=cut_off)
        elif away(sample):
            self.state.excluded[trial.key] = Exclusion(failure_words(sample), may_pass=True, away=True)
        else:
            self.state.excluded.pop(trial.key, None)
        return raised

    def _finish(self, trial: Trial, sample: WindowData) -> TrialEnd:
        raised = self.recall(trial, sample)
        if names := [flag.name for flag in raised if flag.fatal]:
            self.run.journal("flagged", trial=trial.key, flags=names)
        self.state.dropped.pop(trial.key, None)
        self.ledger.finish_attempt(trial)
        # For the eye: point values only, no claim.
        limited = [limit.metric for limit in self.config.limits]
        values = {n: estimate(sample, n) for n in ("output_throughput", *limited, *_FIGURES, "error_rate")}
        figures = {name: None if value is None else value.value for name, value in values.items()}
        self.progress.trial_finished(trial, figures, raised)
        return "done"

    def _drop(self, trial: Trial, limit: str) -> TrialEnd:
        """Note that the budget has no room for the trial. Later trials may be smaller and fit."""
        self.state.dropped[trial.key] = trial, limit
        return "dropped"

    def _expected_e2e(self, trial: Trial) -> float | None:
        """The mean E2E latency in seconds at the nearest measured concurrency of this shape: the
        time over which the streams' starts are staggered. None without a measurement.
        """
        nearest = [
            (abs(t.load - trial.load), float(s.e2e[s.ok].mean()))
            for t, s in self.state.histories[trial.series]
            if s.ok.any()
        ]
        return min(nearest)[1] if nearest else None
